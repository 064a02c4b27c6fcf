"""Finds out what the cells of exemplar-performance's pre-training recipes run, by upstream's own code.

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
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import yaml

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from plugins.base.errors import ConfigError
from plugins.baselines.baseline_file import ACCELERATORS, accelerators

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = "scripts/performance"
# Megatron-Bridge's names of precisions; `sc` has a scale for each block of 128 values.
DTYPES = {"fp8_cs": "fp8_cs", "fp8_mx": "mxfp8", "fp8_sc": "fp8_block", "nvfp4": "nvfp4", "bf16": "bf16"}
SHARED = ("sequence_length", "tp", "pp", "cp", "vp", "mbs")
UNUSUAL = ("ep", "fsdp")
PROXY = "-proxy"
# What launch.sh may set beside the configuration that the published tables state.
UNSTATED = (
    *("--moe_a2a_overlap", "--cuda_graph_impl", "--cuda_graph_scope", "--recompute_modules"),
    "--pipeline_model_parallel_layout",
)

_NAME = re.compile(
    r"gpus(?P<gpus>\d+)_tp(?P<tp>\d+)_pp(?P<pp>\d+)_cp(?P<cp>\d+)_vp(?P<vp>\d+|None)_ep(?P<ep>\d+)_etp(?:\d+|None)"
    r"_mbs(?P<mbs>\d+)_gbs(?P<gbs>\d+)"
)


@dataclass(frozen=True)
class Release:
    """A release of exemplar-performance, which was dgxc-benchmarking before.

    `launcher` is a test that a launch.sh is the release's. `unset` are the variables that it reads besides those that
    every release unsets. `mxfp8` is the FP8_RECIPE of mxfp8, by recipe, where it is another word than `mx`.
    """

    repository: str
    launcher: str
    unset: tuple[str, ...] = ()
    mxfp8: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Family:
    """A recipe of exemplar-performance.

    `recipe` is its name here, `workload` its name there. `sizes` are the names of its models in Megatron-Bridge's tables,
    by MODEL_SIZE. `assets` is a pattern for the names of the tokenizers and configurations that its job reads, "" if it
    reads none.
    """

    recipe: str
    workload: str
    sequence_length: int
    sizes: Mapping[str, str]
    assets: str


_KNOWN = yaml.safe_load(Path(__file__).with_name("dgxc-families.yaml").read_text(encoding="utf-8"))
RELEASES = {name: Release(**release) for name, release in _KNOWN["releases"].items()}
FAMILIES = tuple(Family(**family) for family in _KNOWN["families"])


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


def cells(metadata: Mapping[str, Any]) -> Iterator[dict[str, str]]:
    """The variables that launch.sh takes for each cell: GPU_TYPE, MODEL_SIZE, DTYPE, JOB_TOTAL_GPUS and PROXY_WORKLOAD.

    Up to 26.06.01, launch.sh reads no PROXY_WORKLOAD: the scale alone makes a proxy.
    """
    for gpu, group in metadata["run"]["gpu_configs"].items():
        for line in group["model_configs"]:
            for dtype, scales, proxies in _scales(line):
                model = {"GPU_TYPE": gpu, "MODEL_SIZE": line["model_size"], "DTYPE": dtype}
                jobs = [*((gpus, "false") for gpus in scales), *((gpus, "true") for gpus in proxies)]
                for gpus, proxy in sorted(jobs):
                    yield {**model, "JOB_TOTAL_GPUS": str(gpus), "PROXY_WORKLOAD": proxy}


def _scales(line: Mapping[str, Any]) -> Iterator[tuple[str, list[int], list[int]]]:
    """Each dtype with the scales of the whole model and of its proxy.

    `dtypes` is one name, a list, or a mapping to scales or to `{scales, proxy_scales}`; the line's own `proxy_scales` hold
    for a dtype without some (cli/llmb-run/src/llmb_run/metadata_utils.py at e249aa3, line 65).
    """
    dtypes = [line["dtypes"]] if isinstance(line["dtypes"], str) else line["dtypes"]
    for dtype in dtypes:
        scales = dtypes[dtype] if isinstance(dtypes, dict) else line["scales"]
        own = scales if isinstance(scales, dict) else {"scales": scales}
        yield dtype, own["scales"], own.get("proxy_scales", line.get("proxy_scales", []))


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


def runs(family: Family, folder: Path, bridges: Mapping[str, Path]) -> list[Run]:
    """What each cell of a family runs. `bridges` are checkouts by commit. Raises ConfigError if a cell cannot be known."""
    metadata = metadata_of(folder)
    sheets = accelerators(ROOT / "baselines")
    unknown = [gpu for gpu in metadata["run"]["gpu_configs"] if gpu not in sheets]
    if unknown:
        raise ConfigError(
            f"{folder}/metadata.yaml: the type of GPU {', '.join(unknown)} is unknown; add it to {ACCELERATORS}"
        )
    variables = list(cells(metadata))
    lines = arguments_of(folder, workload(metadata), variables)
    found: list[Run] = []
    for commit, group in groupby(
        zip(variables, lines, strict=True), lambda cell: bridge_commit(metadata, cell[0]["GPU_TYPE"])
    ):
        of_commit = list(group)
        answers = configurations(bridges[commit], [line for _, line in of_commit])
        found += [_run(family, *cell, answer) for cell, answer in zip(of_commit, answers, strict=True)]
    return found


def _run(family: Family, variables: Mapping[str, str], line: list[str], answer: Mapping[str, Any]) -> Run:
    """Raises ConfigError if the size or the precision is not known here, or a proxy is none."""
    unknown = {variables["MODEL_SIZE"]} - {*family.sizes} | {answer["dtype"]} - {*DTYPES}
    if unknown:
        raise ConfigError(
            f"{family.workload}: add {', '.join(sorted(unknown))} to dgxc-families.yaml or cells.py"
        )
    size = model = variables["MODEL_SIZE"]
    published = family.sizes[size]
    smaller = any(answer[name] for name in ("hidden", "layers", "experts"))
    if smaller != (variables["PROXY_WORKLOAD"] == "true"):
        raise ConfigError(
            f"{family.workload}: {dict(variables)}: launch.sh runs {'a smaller' if smaller else 'the whole'} model"
        )
    if smaller:
        # Upstream makes a smaller model of it: of another hidden size, with fewer layers, or with fewer experts.
        size = model = f"{size}{PROXY}"
        model += f"-{answer['layers']}l" if answer["layers"] else ""
        model += f"-{answer['experts']}e" if answer["experts"] else ""
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


def folders(checkout: Path) -> dict[str, Path]:
    """The folders of the workloads that are pre-trained, by name."""
    found = {}
    for path in sorted(checkout.glob("**/metadata.yaml")):
        general = metadata_of(path.parent)["general"]
        if general["workload_type"] == "pretrain":
            found[general["workload"]] = path.parent
    return found


def metadata_of(folder: Path) -> dict[str, Any]:
    metadata: dict[str, Any] = yaml.safe_load((folder / "metadata.yaml").read_text(encoding="utf-8"))
    return metadata


def workload(metadata: Mapping[str, Any]) -> str:
    """The name of a workload's folder on a cluster."""
    return f"pretrain_{metadata['general']['workload']}"


def container(metadata: Mapping[str, Any], gpu: str) -> str:
    """The release of the container on a type of GPU."""
    (image,) = _on(gpu, metadata["container"]["images"])
    return str(image).rpartition(":")[2]


def bridge_commit(metadata: Mapping[str, Any], gpu: str) -> str:
    """The commit of Megatron-Bridge on a type of GPU."""
    return str(_on(gpu, metadata["repositories"])["megatron_bridge"]["commit"])


def _on(gpu: str, stated: Any) -> Any:
    """What holds on a type of GPU."""
    if "by_gpu" not in stated:
        return stated
    by_gpu = stated["by_gpu"]
    return by_gpu[gpu if gpu in by_gpu else "default"]


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
        "experts": getattr(args, "num_moe_experts", None),
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
