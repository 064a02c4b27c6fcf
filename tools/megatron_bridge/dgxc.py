"""Writes the cases of dgxc-benchmarking's pre-training recipes at a commit, and which of them have a published number.

    python tools/megatron_bridge/dgxc.py --clone FOLDER --bridge FOLDER RELEASE COMMIT

It writes the ends of the recipes' YAML and of their baselines. cells.py finds out what a cell runs. Numbers are those of
baselines/megatron_bridge.yaml, of the same container and the very same configuration; for each case without one the
baselines say why. Upstream's code is run, so do it only at a commit that is trusted.
"""

from __future__ import annotations

import argparse
import sys
import tarfile
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from io import BytesIO
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from plugins.base.errors import ConfigError
from plugins.baselines.baseline_file import Cell, Table, load_baselines
from tools.megatron_bridge.cells import (
    FAMILIES,
    SCRIPTS,
    UNUSUAL,
    Family,
    Run,
    bridge_commit,
    container,
    metadata_of,
    runs,
    workload,
)
from tools.megatron_bridge.published import git, in_a_line

ROOT = Path(__file__).resolve().parents[2]
CONTRACT = Path(__file__).with_name("dgxc-launch.yaml")
PUBLISHED = ROOT / "baselines" / "megatron_bridge.yaml"
REPOSITORY = "https://github.com/NVIDIA/dgxc-benchmarking"
MARK = "# Written by tools/megatron_bridge/dgxc.py from here on.\n"


def recipe_text(family: Family, folder: Path, cases: Sequence[Run], release: str, commit: str) -> str:
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
    lines = "\n".join(f"  - {in_a_line(line)}" for line in _grouped(cases))
    return f'release: "{release}"\nsource: {REPOSITORY}/tree/{commit}/{family.path}\ncases:\n{lines}\n\n{contract}'


def _grouped(cases: Iterable[Run]) -> list[dict[str, Any]]:
    """The cases as lines: first the scales of a line are joined, then types of GPU, then dtypes."""
    lines = []
    for run in cases:
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


def baselines_text(cases: Sequence[Run], of_container: str, release: str) -> tuple[str, str]:
    """The published numbers of a family as tables, and why the other cases have none; "" if there are none of either."""
    tables: list[str] = []
    lacks: list[dict[str, Any]] = []
    for gpu in dict.fromkeys(run.gpu for run in cases):
        published = [
            table
            for table in load_baselines(PUBLISHED).tables
            if table.is_of(of_container) and table.gpu == gpu
        ]
        rows = []
        for run in (run for run in cases if run.gpu == gpu):
            cell, reason = number(run, published, of_container)
            if cell is None:
                case = {"release": release, "gpu": gpu, "size": run.size, "dtype": run.dtype}
                lacks.append({**case, "gpus": [run.gpus], "reason": reason})
            else:
                rows.append((run, cell))
        if rows:
            tables.append(_table(published[0], rows, release))
    lines = "".join(f"  - {in_a_line(lack)}\n" for lack in _joined(lacks, "gpus"))
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
    configuration = {**run.configuration(), "gbs": run.gbs, "ep": run.ep, "fsdp": run.fsdp}
    for cell in of_scale:
        others = [
            f"{key} {value}" for key, value in cell.configuration.items() if configuration[key] != value
        ]
        others += [f"{key} 1" for key in UNUSUAL if configuration[key] > 1 and key not in cell.configuration]
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
    lines.append(f"    peak: {in_a_line({run.dtype: peaks[run.dtype] for run, _ in rows})}")
    lines.append("    flops:")
    for size, name in sizes.items():
        flops = published.flops[name].model_dump(mode="json", exclude_defaults=True)
        lines.append(f"      {size}: {in_a_line(flops)}")
    lines.append("    cells:")
    for run, cell in rows:
        values = cell.model_dump(mode="json", exclude_none=True)
        if run.unstated:
            note = f"launch.sh sets {run.unstated}, of which the published table says nothing"
            values["note"] = "; ".join(filter(None, (cell.note, note)))
        lines.append(f"      - {in_a_line({**values, 'size': run.size})}")
    return "\n".join(lines) + "\n"


def texts(checkout: Path, bridges: Mapping[str, Path], release: str, commit: str) -> dict[Path, str]:
    """The text of each file. `bridges` are checkouts of Megatron-Bridge by commit. Raises ConfigError."""
    files = {}
    for family in FAMILIES:
        folder = checkout / family.path
        metadata = metadata_of(folder)
        cases = runs(family, folder, bridges[bridge_commit(metadata)])
        path = ROOT / "suites" / family.file.format(release=release)
        files[path] = head_of(path) + recipe_text(family, folder, cases, release, commit)
        baselines = ROOT / "baselines" / f"{family.recipe}.yaml"
        tables, lacking = baselines_text(cases, container(metadata), release)
        begins = "tables:\n" if tables and "\ntables:\n" not in head_of(baselines) else ""
        files[baselines] = head_of(baselines) + begins + tables + lacking
    return files


def head_of(path: Path) -> str:
    """What a person wrote at the head of a file, and MARK."""
    return path.read_text(encoding="utf-8").partition(MARK)[0] + MARK


def checked_out(clone: Path, commit: str, folder: Path, *paths: str) -> Path:
    """The files of a clone at a commit, in a new folder. Raises ConfigError with what git says."""
    with tarfile.open(fileobj=BytesIO(git(clone, "archive", commit, *paths))) as archive:
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
            bridges = {pin: checked_out(chosen.bridge, pin, Path(name) / pin, SCRIPTS) for pin in pins}
            for path, text in texts(checkout, bridges, chosen.release, chosen.commit).items():
                path.write_text(text, encoding="utf-8")
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
