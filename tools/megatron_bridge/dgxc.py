"""Writes the cases of exemplar-performance's pre-training recipes at a commit, and which of them have a published number.

    python tools/megatron_bridge/dgxc.py --clone FOLDER --bridge FOLDER RELEASE COMMIT

It writes the ends of the recipes' YAML and of their baselines, and tells what differs from what they said before: from the same
release, or from the one before a new one. cells.py finds out what a cell runs, dgxc-families.yaml says what is read. Numbers are
those of baselines/megatron_bridge.yaml, of the same container and the very same configuration; for each case without one the
baselines say why. Upstream's code is run, so do it only at a commit that is trusted.
"""

from __future__ import annotations

import argparse
import re
import sys
import tarfile
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from io import BytesIO
from itertools import product
from pathlib import Path
from typing import Any

import yaml

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from plugins.base.errors import ConfigError
from plugins.baselines.baseline_file import Cell, Table, load_baselines
from tools.megatron_bridge.cells import (
    FAMILIES,
    RELEASES,
    ROOT,
    SCRIPTS,
    UNUSUAL,
    Family,
    Run,
    bridge_commit,
    container,
    folders,
    metadata_of,
    runs,
    workload,
)
from tools.megatron_bridge.published import git, in_a_line

CONTRACT = Path(__file__).with_name("dgxc-launch.yaml")
PUBLISHED = ROOT / "baselines" / "megatron_bridge.yaml"
MARK = "# Written by tools/megatron_bridge/dgxc.py from here on.\n"


def recipe_text(family: Family, folder: Path, place: str, cases: Sequence[Run], release: str) -> str:
    """The end of a family's YAML: its release, its cases and its launch contract.

    `folder` is the family's in a checkout, `place` the commit and its path there.
    """
    known, metadata = RELEASES[release], metadata_of(folder)
    gpus = dict.fromkeys(run.gpu for run in cases)
    names = {"container": container, "commit": bridge_commit}
    pins = {name: {gpu: pin(metadata, gpu) for gpu in gpus} for name, pin in names.items()}
    one = {name: min(pin.values()) for name, pin in pins.items() if len({*pin.values()}) == 1}
    proxies = dict.fromkeys(run.size for run in cases if not run.is_whole)
    otherwise = ""
    if proxies and "PROXY_WORKLOAD" in known.unset:
        otherwise += "  # Without it launch.sh starts the whole model.\n  environment_by_size:\n"
        otherwise += "".join(f'    {size}: {{PROXY_WORKLOAD: "true"}}\n' for size in proxies)
    if len(one) < len(pins):
        otherwise += "  names_by_gpu:\n"
        otherwise += "".join(f"    {name}: {in_a_line(pins[name])}\n" for name in pins if name not in one)
    words = {
        "LAUNCHER": known.launcher,
        "REPOSITORY": known.repository,
        "FOLDER": place.partition("/")[2],
        "WORKLOAD": workload(metadata),
        "CONTAINER": one.get("container", "{container}"),
        "COMMIT": one.get("commit", "{commit}"),
        "RELEASE": release,
        "MXFP8": known.mxfp8.get(family.recipe, "mx"),
        "OTHERWISE": otherwise,
        "UNSET": f",\n    {', '.join(known.unset)}" if known.unset else "",
        "ASSETS": family.assets.replace("*", r"\*"),
    }
    contract = CONTRACT.read_text(encoding="utf-8")
    if not family.assets:
        contract = contract.partition("  # assets\n")[0] + contract.rpartition("  # assets\n")[2]
    for word, value in words.items():
        contract = contract.replace(f"<{word}>", value)
    lines = "\n".join(f"  - {in_a_line(line)}" for line in _grouped(cases))
    return f'release: "{release}"\nsource: {known.repository}/tree/{place}\ncases:\n{lines}\n\n{contract}'


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


def baselines_text(cases: Sequence[Run], containers: Mapping[str, str], release: str) -> tuple[str, str]:
    """The published numbers of a family as tables, and why the other cases have none; "" if there are none of either.

    `containers` are the releases of the container by type of GPU.
    """
    tables: list[str] = []
    lacks: list[dict[str, Any]] = []
    for gpu in dict.fromkeys(run.gpu for run in cases):
        published = [
            table
            for table in load_baselines(PUBLISHED).tables
            if table.is_of(containers[gpu]) and table.gpu == gpu
        ]
        rows = []
        for run in (run for run in cases if run.gpu == gpu):
            cell, reason = number(run, published, containers[gpu])
            if cell is None:
                case = {"release": release, "gpu": gpu, "size": run.size, "dtype": run.dtype}
                lacks.append({**case, "gpus": [run.gpus], "reason": reason})
            else:
                rows.append((run, cell))
        if rows:
            tables.append(_table(published[0], rows, release))
    return "".join(tables), "".join(f"  - {in_a_line(lack)}\n" for lack in _joined(lacks, "gpus"))


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
    for family, folder in found(checkout):
        metadata = metadata_of(folder)
        cases = runs(family, folder, bridges)
        path = recipe_path(family, release)
        place = f"{commit}/{folder.relative_to(checkout).as_posix()}"
        files[path] = head_of(path) + recipe_text(family, folder, place, cases, release)
        baselines = ROOT / "baselines" / f"{family.recipe}.yaml"
        containers = {run.gpu: container(metadata, run.gpu) for run in cases}
        own = baselines_text(cases, containers, release)
        files[baselines] = baselines_with(baselines, release, *own)
    return files


def found(checkout: Path) -> list[tuple[Family, Path]]:
    """The folder of each family in a checkout. Raises ConfigError if there is none."""
    known = folders(checkout)
    gone = [family.workload for family in FAMILIES if family.workload not in known]
    if gone:
        raise ConfigError(
            f"no metadata.yaml is of the workload {', '.join(gone)}; correct dgxc-families.yaml"
        )
    return [(family, known[family.workload]) for family in FAMILIES]


def recipe_path(family: Family, release: str) -> Path:
    """The YAML of a release of a family. Raises ConfigError if nobody has begun it."""
    folder = ROOT / "suites" / family.recipe
    path = folder / "releases" / f"{release}.yaml"
    if path.exists():
        return path
    usual = folder / "recipe.yaml"
    if release_of(usual) != release:
        raise ConfigError(
            f"{path}: write its head first, as that of the release before, with the shapes of new models"
        )
    return usual


def release_of(path: Path) -> str:
    """The release in what is written below MARK; "" if nothing is."""
    written = re.match(r'release: "(.*)"\n', path.read_text(encoding="utf-8").partition(MARK)[2])
    return written[1] if written else ""


def head_of(path: Path) -> str:
    """What a person wrote at the head of a file, and MARK."""
    return path.read_text(encoding="utf-8").partition(MARK)[0] + MARK


def baselines_with(path: Path, release: str, tables: str, lacks: str) -> str:
    """A file of baselines with these tables of a release, and these reasons of cases without a number.

    What it says of other releases stays as it is.
    """
    written = path.read_text(encoding="utf-8").partition(MARK)[2]
    blocks = re.findall(r"(?m)^(  - \{?release: ([\w.]+).*\n(?:    .*\n)*)", written)
    text = head_of(path)
    for key, begins, own in (("tables", "  - r", tables), ("lacking", "  - {", lacks)):
        named = [(name, block) for block, name in blocks if block.startswith(begins) and name != release]
        whole = "".join(block for _, block in sorted([*named, (release, own)], key=lambda block: block[0]))
        if whole and f"\n{key}:\n" not in text:
            text += f"{key}:\n"
        text += whole
    return text


def changes(files: Mapping[Path, str], release: str) -> Iterator[str]:
    """What the files say of a release otherwise than those on disk or, if it is new, than these say of the one before it."""
    for family in FAMILIES:
        path, baselines = recipe_path(family, release), ROOT / "baselines" / f"{family.recipe}.yaml"
        folder = ROOT / "suites" / family.recipe
        places = [folder / "recipe.yaml", *folder.glob("releases/*.yaml")]
        written = {release_of(place): place for place in places}
        before = release
        if release not in written:
            before = max((name for name in written if name and name < release), default="")
            yield f"{family.recipe} {release}: a new release, compared with {before or 'none'}"
        old: dict[str, dict[str, Any]] = {}
        if before:
            old = stated(*(place.read_text(encoding="utf-8") for place in (written[before], baselines)))
        for line in _differences(old, stated(files[path], files[baselines])):
            yield f"{family.recipe} {line}"


def _differences(old: Mapping[str, Mapping[str, Any]], new: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """The cells that are new or gone, and what else differs, a line each."""
    for cell in sorted({*old, *new}):
        was, now = old.get(cell), new.get(cell)
        if was is None or now is None:
            yield f"{cell}: {'a new cell' if was is None else 'a cell no more'}"
        elif was != now:
            changed = [name for name in {**was, **now} if was.get(name) != now.get(name)]
            words = [f"{name} {was.get(name, 'none')} -> {now.get(name, 'none')}" for name in changed]
            yield f"{cell}: {', '.join(words)}"


def stated(recipe: str, baselines: str) -> dict[str, dict[str, Any]]:
    """The configuration and the figures of each cell that is written below MARK."""
    written = yaml.safe_load(recipe.partition(MARK)[2])
    cells: dict[str, dict[str, Any]] = {}
    for line in written["cases"]:
        scales = product(line["gpu"], line["dtype"], line["gpus"])
        configuration = {
            name: value for name, value in line.items() if name not in ("gpu", "size", "dtype", "gpus")
        }
        for gpu, dtype, gpus in scales:
            cells[f"{gpu} {line['size']} {dtype} {gpus} GPUs"] = {"model": line["size"], **configuration}
    for table in yaml.safe_load(baselines).get("tables", []):
        for cell in table["cells"] if table["release"] == written["release"] else []:
            figures = {"tokens/s": cell["tokens_per_second_per_gpu"], "TFLOP/s": cell["tflops_per_gpu"]}
            cells[f"{table['gpu']} {cell['size']} {cell['dtype']} {cell['gpus']} GPUs"] |= figures
    return cells


def unread(checkout: Path, clone: Path) -> Iterator[str]:
    """The workloads that upstream pre-trains and nobody reads here, and the releases that are here or there alone."""
    names = {*folders(checkout)} - {family.workload for family in FAMILIES}
    if names:
        yield f"not read: {', '.join(sorted(names))}"
    tagged = {tag.removeprefix("v") for tag in git(clone, "tag", "--list", "v*").decode().split()}
    for release in sorted({name for name in tagged if name > min(RELEASES)} | {*RELEASES}):
        if release not in RELEASES:
            yield f"{release}: a new release, which dgxc-families.yaml does not have"
        elif release not in tagged:
            yield f"{release}: upstream has no such release any more"


def checked_out(clone: Path, commit: str, folder: Path, *paths: str) -> Path:
    """The files of a clone at a commit, in a new folder. Raises ConfigError with what git says."""
    with tarfile.open(fileobj=BytesIO(git(clone, "archive", commit, *paths))) as archive:
        archive.extractall(folder, filter="data")
    return folder


def main(arguments: list[str]) -> int:
    """Write the files, and print what upstream changed. The exit status is 0, or 1 for an error."""
    parser = argparse.ArgumentParser(
        description="Write what exemplar-performance runs as cases and baselines."
    )
    parser.add_argument("--clone", type=Path, required=True, help="a clone of exemplar-performance")
    parser.add_argument("--bridge", type=Path, required=True, help="a clone of Megatron-Bridge")
    parser.add_argument("release", choices=RELEASES, help="the name of the release")
    parser.add_argument("commit", help="the whole hash of its commit")
    chosen = parser.parse_args(arguments)
    try:
        with tempfile.TemporaryDirectory() as name:
            checkout = checked_out(chosen.clone, chosen.commit, Path(name) / "dgxc")
            metadata = [metadata_of(folder) for _, folder in found(checkout)]
            pins = {bridge_commit(one, gpu) for one in metadata for gpu in one["run"]["gpu_configs"]}
            bridges = {pin: checked_out(chosen.bridge, pin, Path(name) / pin, SCRIPTS) for pin in pins}
            files = texts(checkout, bridges, chosen.release, chosen.commit)
            changed = [*changes(files, chosen.release), *unread(checkout, chosen.clone)]
        for path, text in files.items():
            path.write_text(text, encoding="utf-8")
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 1
    print(*changed, sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
