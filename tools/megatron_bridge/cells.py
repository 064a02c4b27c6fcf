"""Finds out what the cells of dgxc-benchmarking's pre-training recipes run, by upstream's own code.

The launch.sh of a recipe is run with a `python` that only notes its arguments. Megatron-Bridge's own parser and tables,
at the commit that metadata.yaml pins, say what configuration follows. That is done by this file as a program:

    python tools/megatron_bridge/cells.py FOLDER <LINES

FOLDER is Megatron-Bridge's scripts/performance. LINES and what is printed are JSON: a list of lists of arguments, and a
mapping for each. Run it only on code that is trusted.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import yaml

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from plugins.base.errors import ConfigError

SCRIPTS = "scripts/performance"
# Megatron-Bridge's names of precisions; `sc` has a scale for each block of 128 values.
DTYPES = {"fp8_cs": "fp8_cs", "fp8_mx": "mxfp8", "fp8_sc": "fp8_block", "nvfp4": "nvfp4", "bf16": "bf16"}
SHARED = ("sequence_length", "tp", "pp", "cp", "vp", "mbs")
UNUSUAL = ("ep", "fsdp")
PROXY = "-proxy"
# What launch.sh may set beside the configuration that the published tables state.
UNSTATED = ("--moe_a2a_overlap", "--cuda_graph_impl", "--cuda_graph_scope", "--recompute_modules")

_NAME = re.compile(
    r"gpus(?P<gpus>\d+)_tp(?P<tp>\d+)_pp(?P<pp>\d+)_cp(?P<cp>\d+)_vp(?P<vp>\d+|None)_ep(?P<ep>\d+)_etp(?:\d+|None)"
    r"_mbs(?P<mbs>\d+)_gbs(?P<gbs>\d+)"
)


@dataclass(frozen=True)
class Family:
    """A recipe of dgxc-benchmarking.

    `file` is the YAML here that it is written to, `path` its folder there. `sizes` are the names of its models in
    Megatron-Bridge's tables, by MODEL_SIZE. `assets` is a pattern for the names of the tokenizers and configurations
    that its job reads, "" if it reads none.
    """

    file: str
    path: str
    sequence_length: int
    sizes: Mapping[str, str]
    assets: str

    @property
    def recipe(self) -> str:
        return self.file.partition("/")[0]


FAMILIES = tuple(
    Family(**family)
    for family in yaml.safe_load(Path(__file__).with_name("dgxc-families.yaml").read_text(encoding="utf-8"))
)


@dataclass(frozen=True)
class Run:
    """What a cell runs. `published` is the name of its model in Megatron-Bridge's tables.

    `unstated` are the options of launch.sh that the tables do not state.
    """

    gpu: str
    size: str
    model: str
    published: str
    dtype: str
    gpus: int
    sequence_length: int
    tp: int
    pp: int
    cp: int
    vp: int
    ep: int
    fsdp: int
    mbs: int
    gbs: int
    unstated: str = ""

    @property
    def is_whole(self) -> bool:
        """Whether it is a whole model, not one that upstream made smaller."""
        return not self.size.endswith(PROXY)

    def configuration(self) -> dict[str, int]:
        """What a case and its baseline have in common, without the batch and what is usual."""
        unusual = {name: getattr(self, name) for name in UNUSUAL if getattr(self, name) > 1}
        return {name: getattr(self, name) for name in SHARED} | unusual


def cells(metadata: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The variables that launch.sh takes for each cell: GPU_TYPE, MODEL_SIZE, DTYPE and JOB_TOTAL_GPUS.

    `dtypes` may be one name, a list, or a mapping with scales of its own.
    """
    for gpu, group in metadata["run"]["gpu_configs"].items():
        for line in group["model_configs"]:
            dtypes = [line["dtypes"]] if isinstance(line["dtypes"], str) else line["dtypes"]
            for dtype in dtypes:
                scales = dtypes[dtype] if isinstance(dtypes, dict) else line["scales"]
                for gpus in sorted([*scales, *line.get("proxy_scales", [])]):
                    model = {"GPU_TYPE": gpu, "MODEL_SIZE": line["model_size"], "DTYPE": dtype}
                    yield {**model, "JOB_TOTAL_GPUS": str(gpus)}


def arguments_of(folder: Path, workload: str, variables: Iterable[Mapping[str, str]]) -> list[list[str]]:
    """The arguments that launch.sh hands to setup_experiment.py, for each set of variables. Raises ConfigError."""
    lines = []
    with tempfile.TemporaryDirectory() as name:
        install, notes = Path(name), Path(name) / "notes"
        (install / "workloads" / workload / "Megatron-Bridge").mkdir(parents=True)
        for python in (install / "python", install / "python3"):
            python.write_text(f"#!/bin/sh\nprintf '%s\\n' \"$@\" >{notes}\n")
            python.chmod(0o755)
        usual = {"PATH": f"{install}:{os.defpath}", "LLMB_INSTALL": name}
        usual |= {"SBATCH_ACCOUNT": "account", "SBATCH_PARTITION": "partition"}
        for cell in variables:
            answer = subprocess.run(
                ["bash", "launch.sh"], cwd=folder, env={**usual, **cell}, capture_output=True, text=True
            )
            if answer.returncode:
                raise ConfigError(f"{folder}/launch.sh: {cell}: {answer.stdout}{answer.stderr}")
            lines.append(notes.read_text().splitlines()[1:])
    return lines


def configurations(bridge: Path, lines: list[list[str]]) -> list[dict[str, Any]]:
    """What Megatron-Bridge makes of each line of arguments. Raises ConfigError."""
    answer = subprocess.run(
        [sys.executable, __file__, bridge / SCRIPTS], input=json.dumps(lines), capture_output=True, text=True
    )
    if answer.returncode:
        raise ConfigError(f"{bridge}: {answer.stderr}")
    answers: list[dict[str, Any]] = json.loads(answer.stdout)
    return answers


def runs(family: Family, folder: Path, bridge: Path) -> list[Run]:
    """What each cell of a family runs. Raises ConfigError if a cell cannot be known."""
    metadata = metadata_of(folder)
    variables = list(cells(metadata))
    lines = arguments_of(folder, workload(metadata), variables)
    answers = configurations(bridge, lines)
    return [_run(family, *cell) for cell in zip(variables, lines, answers, strict=True)]


def _run(family: Family, variables: Mapping[str, str], line: list[str], answer: Mapping[str, Any]) -> Run:
    """Raises ConfigError if the size or the precision is not known here."""
    unknown = {variables["MODEL_SIZE"]} - {*family.sizes} | {answer["dtype"]} - {*DTYPES}
    if unknown:
        raise ConfigError(
            f"{family.path}: add {', '.join(sorted(unknown))} to dgxc-families.yaml or cells.py"
        )
    size = model = variables["MODEL_SIZE"]
    published = family.sizes[size]
    if answer["hidden"] or answer["layers"]:
        # Upstream makes a smaller model of it, of a hidden size and perhaps with fewer layers.
        size = f"{size}{PROXY}"
        model = size if answer["layers"] is None else f"{size}-{answer['layers']}l"
    sizes = {name: answer[name] for name in ("gpus", "tp", "pp", "cp", "vp", "ep", "mbs", "gbs")}
    shards = answer["gpus"] // (answer["tp"] * answer["pp"] * answer["cp"]) if answer["sharded"] else 1
    return Run(
        gpu=variables["GPU_TYPE"],
        size=size,
        model=model,
        published=published,
        dtype=DTYPES[answer["dtype"]],
        sequence_length=family.sequence_length,
        fsdp=shards,
        unstated=" ".join(option for option in line if option.startswith(UNSTATED)),
        **sizes,
    )


def metadata_of(folder: Path) -> dict[str, Any]:
    metadata: dict[str, Any] = yaml.safe_load((folder / "metadata.yaml").read_text(encoding="utf-8"))
    return metadata


def workload(metadata: Mapping[str, Any]) -> str:
    """The name of a workload's folder on a cluster."""
    return f"pretrain_{metadata['general']['workload']}"


def container(metadata: Mapping[str, Any]) -> str:
    """The release of the container."""
    (image,) = metadata["container"]["images"]
    return str(image).rpartition(":")[2]


def bridge_commit(metadata: Mapping[str, Any]) -> str:
    return str(metadata["repositories"]["megatron_bridge"]["commit"])


def configuration(parser: Any, utils: Any, arguments: list[str]) -> dict[str, Any]:
    """The configuration that upstream names the experiment by, and what the name lacks. Raises ValueError."""
    args, unknown = parser.parse_cli_args().parse_known_args(arguments)
    if unknown:
        raise ValueError(f"setup_experiment.py does not know {' '.join(unknown)}")
    workload = (
        *(args.model_family_name, args.model_recipe_name, args.gpu),
        *(args.compute_dtype, args.task, args.config_variant),
    )
    name = utils.get_exp_name_config(args, *workload)
    sizes = _NAME.fullmatch(name)
    if not sizes:
        raise ValueError(f"{name!r} is of no known form")
    base = utils.get_workload_base_config(*workload)
    return {
        **{key: 1 if size == "None" else int(size) for key, size in sizes.groupdict().items()},
        "dtype": args.compute_dtype,
        "sharded": bool(args.use_megatron_fsdp or base.use_megatron_fsdp),
        "hidden": args.hidden_size,
        "layers": args.num_layers,
    }


def main(folder: str) -> None:
    # The parser asks NeMo-Run for a folder's name, and for nothing else.
    stand_in: Any = SimpleNamespace(get_nemorun_home=lambda: "")
    sys.modules |= {"nemo_run": stand_in, "nemo_run.config": stand_in}
    sys.path.insert(0, folder)
    parser, utils = importlib.import_module("argument_parser"), importlib.import_module("utils.utils")
    json.dump([configuration(parser, utils, line) for line in json.load(sys.stdin)], sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1])
