"""Writes the cases of dgxc-benchmarking's pre-training recipes at a commit, and which of them have a published number.

    python suites/megatron_bridge/dgxc.py --clone FOLDER --bridge FOLDER RELEASE COMMIT

It writes the ends of the recipes' YAML and of their baselines. What a cell of a metadata.yaml runs is found out by
upstream's own code: its launch.sh is run with a `python` that only notes its arguments, and resolve.py asks
Megatron-Bridge, at the commit that metadata.yaml pins, what it makes of them. Numbers are those of
baselines/megatron_bridge.yaml, of the same container and the very same configuration; for each case without one the
baselines say why. The code is upstream's, so run it only at a commit that is trusted.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from io import BytesIO
from pathlib import Path
from typing import Any

import yaml

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from plugins.baselines.baseline_file import Cell, Table, load_baselines
from plugins.errors import ConfigError
from plugins.yaml_text import as_yaml

ROOT = Path(__file__).resolve().parents[2]
RESOLVE = Path(__file__).with_name("resolve.py")
CONTRACT = Path(__file__).with_name("dgxc-launch.yaml")
PUBLISHED = ROOT / "baselines" / "megatron_bridge.yaml"
REPOSITORY = "https://github.com/NVIDIA/dgxc-benchmarking"
MARK = "# Written by suites/megatron_bridge/dgxc.py from here on.\n"
BRIDGE = "scripts/performance"
# Megatron-Bridge's names of precisions; `sc` has a scale for each block of 128 values.
DTYPES = {"fp8_cs": "fp8_cs", "fp8_mx": "mxfp8", "fp8_sc": "fp8_block", "nvfp4": "nvfp4", "bf16": "bf16"}
SHARED = ("sequence_length", "tp", "pp", "cp", "vp", "mbs")
UNUSUAL = ("ep", "fsdp")
PROXY = "-proxy"


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
    assets: str = ""

    @property
    def recipe(self) -> str:
        return self.file.partition("/")[0]


# Sequence lengths: Megatron-Bridge at 06f25c227, scripts/performance/configs: llama3_llm_pretrain.py 37,
# llama31_llm_pretrain.py 36, qwen3_llm_pretrain.py 38, deepseek_llm_pretrain.py 35, kimi_llm_pretrain.py 32;
# src/megatron/bridge/recipes: nemotronh.py 455, nemotron_3_nano.py 52, nemotron_3_super.py 53; at f07871e23
# gpt_oss.py 55.
FAMILIES = (
    Family(
        file="llama3/releases/{release}.yaml",
        path="llama3.1",
        sequence_length=8192,
        sizes={"8b": "llama3-8b", "70b": "llama3-70b", "405b": "llama3.1-405b"},
        assets="meta-llama--meta-llama-3*-{model}",
    ),
    Family(
        file="qwen3/recipe.yaml",
        path="qwen3/pretrain",
        sequence_length=4096,
        sizes={"30b": "qwen3-30b-a3b", "235b": "qwen3-235b-a22b"},
        assets="qwen--qwen3-{model}-a*",
    ),
    Family(
        file="deepseek_v3/recipe.yaml",
        path="deepseek_v3/pretrain/megatron_bridge",
        sequence_length=4096,
        sizes={"671b": "deepseek-v3"},
        assets="deepseek-ai--deepseek-v3",
    ),
    Family(
        file="gpt_oss/recipe.yaml",
        path="gpt-oss/pretrain",
        sequence_length=4096,
        sizes={"120b": "gpt-oss-120b"},
        assets="openai--gpt-oss-120b",
    ),
    Family(
        file="kimi_k2/recipe.yaml",
        path="kimi-k2",
        sequence_length=4096,
        sizes={"1t": "kimi-k2"},
        assets="moonshotai--kimi-k2-instruct",
    ),
    Family(
        file="nemotron_h/recipe.yaml",
        path="nemotron-h",
        sequence_length=8192,
        sizes={"56b": "nemotron-h-56b"},
    ),
    Family(
        file="nemotron3/recipe.yaml",
        path="nemotron3",
        sequence_length=8192,
        sizes={"30b": "nemotron-3-nano", "120b": "nemotron-3-super"},
        assets="nvidia--nvidia-nemotron-3-*-{model}-a*",
    ),
)


@dataclass(frozen=True)
class Run:
    """What a cell runs. `published` is the name of its model in Megatron-Bridge's tables."""

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
                    named = {"GPU_TYPE": gpu, "MODEL_SIZE": line["model_size"], "DTYPE": dtype}
                    yield {**named, "JOB_TOTAL_GPUS": str(gpus)}


def noted(folder: Path, workload: str, variables: Iterable[Mapping[str, str]]) -> list[list[str]]:
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
        for given in variables:
            answer = subprocess.run(
                ["bash", "launch.sh"], cwd=folder, env={**usual, **given}, capture_output=True, text=True
            )
            if answer.returncode:
                raise ConfigError(f"{folder}/launch.sh: {given}: {answer.stdout}{answer.stderr}")
            lines.append(notes.read_text().splitlines()[1:])
    return lines


def resolved(bridge: Path, lines: list[list[str]]) -> list[dict[str, Any]]:
    """What Megatron-Bridge makes of each line of arguments. Raises ConfigError."""
    answer = subprocess.run(
        [sys.executable, RESOLVE, bridge / BRIDGE], input=json.dumps(lines), capture_output=True, text=True
    )
    if answer.returncode:
        raise ConfigError(f"{bridge}: {answer.stderr}")
    answers: list[dict[str, Any]] = json.loads(answer.stdout)
    return answers


def runs(family: Family, folder: Path, bridge: Path) -> list[Run]:
    """What each cell of a family runs. Raises ConfigError if a cell cannot be known."""
    metadata = metadata_of(folder)
    variables = list(cells(metadata))
    lines = noted(folder, workload(metadata), variables)
    answers = resolved(bridge, lines)
    return [_run(family, *pair) for pair in zip(variables, answers, strict=True)]


def _run(family: Family, variables: Mapping[str, str], answer: Mapping[str, Any]) -> Run:
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


def recipe_text(family: Family, folder: Path, ran: Sequence[Run], release: str, commit: str) -> str:
    """The end of a family's YAML: its release, its cases and its launch contract."""
    metadata = metadata_of(folder)
    words = {
        "FOLDER": family.path,
        "WORKLOAD": workload(metadata),
        "CONTAINER": container(metadata),
        "COMMIT": bridge_commit(metadata),
        "RELEASE": release,
    }
    contract = CONTRACT.read_text(encoding="utf-8")
    if not family.assets:
        contract = contract.partition("  # assets\n")[0] + contract.rpartition("  # assets\n")[2]
    words["ASSETS"] = family.assets.replace("*", r"\*")
    for word, value in words.items():
        contract = contract.replace(f"<{word}>", value)
    lines = "\n".join(f"  - {_in_a_line(line)}" for line in _grouped(ran))
    return f'release: "{release}"\nsource: {REPOSITORY}/tree/{commit}/{family.path}\ncases:\n{lines}\n\n{contract}'


def _grouped(ran: Iterable[Run]) -> list[dict[str, Any]]:
    """The cases as lines: first the scales of a line are joined, then types of GPU, then dtypes."""
    lines = []
    for run in ran:
        line: dict[str, Any] = {"gpu": [run.gpu], "size": run.size}
        if run.model != run.size:
            line["model"] = run.model
        batch = Fraction(run.gbs, run.gpus)
        line |= {"dtype": [run.dtype], "gpus": [run.gpus], **run.configuration()}
        lines.append({**line, "gbs_per_gpu": batch.numerator if batch.denominator == 1 else float(batch)})
    for key in ("gpus", "gpu", "dtype"):
        lines = _joined(lines, key)
    return lines


def _joined(lines: Iterable[dict[str, Any]], key: str) -> list[dict[str, Any]]:
    """The lines, with those joined that differ in this list alone."""
    groups: dict[str, dict[str, Any]] = {}
    for line in lines:
        group = groups.setdefault(repr({**line, key: None}), {**line, key: []})
        group[key] = [*group[key], *line[key]]
    return list(groups.values())


def baselines_text(ran: Sequence[Run], of_container: str, release: str) -> tuple[str, str]:
    """The published numbers of a family as tables, and why the other cases have none; "" if there are none of either."""
    tables: list[str] = []
    lacks: list[dict[str, Any]] = []
    for gpu in dict.fromkeys(run.gpu for run in ran):
        published = [
            table
            for table in load_baselines(PUBLISHED).tables
            if table.is_of(of_container) and table.gpu == gpu
        ]
        rows = []
        for run in (run for run in ran if run.gpu == gpu):
            cell, reason = number(run, published, of_container)
            if cell is None:
                case = {"release": release, "gpu": gpu, "size": run.size, "dtype": run.dtype}
                lacks.append({**case, "gpus": [run.gpus], "reason": reason})
            else:
                rows.append((run, cell))
        if rows:
            tables.append(_table(published[0], rows, release))
    lines = "".join(f"  - {_in_a_line(lack)}\n" for lack in _joined(lacks, "gpus"))
    return "".join(tables), f"lacking:\n{lines}" if lacks else ""


def number(run: Run, tables: Iterable[Table], of_container: str) -> tuple[Cell | None, str]:
    """The number in a container's tables of exactly this configuration, or why there is none."""
    if not run.is_whole:
        return None, "upstream made this model smaller, and publishes whole models only"
    of_model = [cell for table in tables for cell in table.cells if cell.size == run.published]
    alike = [cell for cell in of_model if cell.dtype == run.dtype]
    of_scale = [cell for cell in alike if cell.gpus == run.gpus]
    if not of_model:
        return None, f"no figure of {run.published} in container {of_container} on {run.gpu}"
    if not alike:
        scales = ", ".join(sorted({f"{cell.dtype} on {cell.gpus} GPUs" for cell in of_model}))
        return None, f"no figure in this precision; published: {scales}"
    if not of_scale:
        scales = ", ".join(str(gpus) for gpus in sorted({cell.gpus for cell in alike}))
        return None, f"no figure at this scale; published: {scales} GPUs"
    ran = {**run.configuration(), "gbs": run.gbs, "ep": run.ep, "fsdp": run.fsdp}
    for cell in of_scale:
        others = [f"{key} {value}" for key, value in cell.configuration.items() if ran[key] != value]
        others += [f"{key} 1" for key in UNUSUAL if ran[key] > 1 and key not in cell.configuration]
        if not others:
            return cell, ""
    return None, f"the published figure is of another configuration: {', '.join(others)}"


def _table(published: Table, rows: Sequence[tuple[Run, Cell]], release: str) -> str:
    """A table of baselines with the cells that these runs have."""
    sizes = {run.size: cell.size for run, cell in rows}
    head = published.model_dump(mode="json", include={"gpu", "framework", "source", "statistic", "primary"})
    peaks = published.peak
    assert isinstance(peaks, dict)
    lines = [f"  - release: {release}", *(f"    {key}: {value}" for key, value in head.items())]
    lines.append(f"    peak: {_in_a_line({run.dtype: peaks[run.dtype] for run, _ in rows})}")
    lines.append("    flops:")
    for size, name in sizes.items():
        flops = published.flops[name].model_dump(mode="json", exclude_defaults=True)
        lines.append(f"      {size}: {_in_a_line(flops)}")
    lines.append("    cells:")
    for run, cell in rows:
        values = cell.model_dump(mode="json", exclude_none=True)
        lines.append(f"      - {_in_a_line({**values, 'size': run.size})}")
    return "\n".join(lines) + "\n"


def _in_a_line(values: Mapping[str, Any]) -> str:
    return as_yaml(dict(values), flow=True).strip()


def texts(checkout: Path, bridges: Mapping[str, Path], release: str, commit: str) -> dict[Path, str]:
    """The text of each file. `bridges` are checkouts of Megatron-Bridge by commit. Raises ConfigError."""
    found = {}
    for family in FAMILIES:
        folder = checkout / family.path
        metadata = metadata_of(folder)
        ran = runs(family, folder, bridges[bridge_commit(metadata)])
        path = ROOT / "suites" / family.file.format(release=release)
        found[path] = head_of(path) + recipe_text(family, folder, ran, release, commit)
        baselines = ROOT / "baselines" / f"{family.recipe}.yaml"
        tables, lacking = baselines_text(ran, container(metadata), release)
        begins = "tables:\n" if tables and "\ntables:\n" not in head_of(baselines) else ""
        found[baselines] = head_of(baselines) + begins + tables + lacking
    return found


def head_of(path: Path) -> str:
    """What a person wrote at the head of a file, and MARK."""
    return path.read_text(encoding="utf-8").partition(MARK)[0] + MARK


def checked_out(clone: Path, commit: str, folder: Path, *paths: str) -> Path:
    """The files of a clone at a commit, in a new folder. Raises ConfigError with what git says."""
    answer = subprocess.run(["git", "-C", clone, "archive", commit, *paths], capture_output=True)
    if answer.returncode:
        raise ConfigError(f"{clone}: git archive: {answer.stderr.decode(errors='replace').strip()}")
    with tarfile.open(fileobj=BytesIO(answer.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return folder


def main(arguments: list[str]) -> int:
    """Write the files. The exit status is 0, or 1 for an error."""
    parser = argparse.ArgumentParser(description="Write what dgxc-benchmarking runs as cases and baselines.")
    parser.add_argument("--clone", type=Path, required=True, help=f"a clone of {REPOSITORY}")
    parser.add_argument("--bridge", type=Path, required=True, help="a clone of Megatron-Bridge")
    parser.add_argument("release", help="the name of the release, such as 26.06.01")
    parser.add_argument("commit", help="the whole hash of its commit")
    chosen = parser.parse_args(arguments)
    try:
        with tempfile.TemporaryDirectory() as name:
            checkout = checked_out(chosen.clone, chosen.commit, Path(name) / "dgxc")
            pins = {bridge_commit(metadata_of(checkout / family.path)) for family in FAMILIES}
            bridges = {pin: checked_out(chosen.bridge, pin, Path(name) / pin, BRIDGE) for pin in pins}
            for path, text in texts(checkout, bridges, chosen.release, chosen.commit).items():
                path.write_text(text, encoding="utf-8")
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
