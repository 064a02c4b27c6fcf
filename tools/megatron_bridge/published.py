"""Reads the pre-training tables that Megatron-Bridge publishes, at a commit, and writes them as cases and baselines.

    python tools/megatron_bridge/published.py --clone FOLDER COMMIT

It writes the end of recipe.yaml, the files of releases/, and baselines/megatron_bridge.yaml. A row that cannot be
read is an error: none is skipped, and no file is written. Where a cell has a second figure in parentheses, it
is that of a second precision, and its row makes two cases. The program prints which releases are new or gone,
and what upstream changed within a release since the commit that the baselines were written from.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from plugins.base.errors import ConfigError
from plugins.base.yaml_text import as_yaml
from plugins.base.yamlfile import load
from plugins.baselines.baseline_file import BaselineFile, accelerators
from plugins.baselines.metrics import FlopsDefinition, flops_per_sequence
from plugins.logs import FlopsName
from plugins.recipes.models import Model
from plugins.recipes.recipe_file import read_recipe

ROOT = Path(__file__).resolve().parents[2]
SUITE = ROOT / "suites" / "megatron_bridge"
RECIPE = SUITE / "recipe.yaml"
BASELINES = ROOT / "baselines" / "megatron_bridge.yaml"
SHEETS = "baselines/accelerators.yaml"
REPOSITORY = "https://github.com/NVIDIA-NeMo/Megatron-Bridge"
PAGES = ("docs/performance-summary.md", "docs/performance-summary-archive.md")
MARK = "# Written by published.py from here on.\n"

# How the tables name a model, and what its name is followed by. A model that runs otherwise has a size of its own.
NAMES = {
    "LLAMA3_8B": "llama3-8b",
    "LLAMA3_70B": "llama3-70b",
    "LLAMA3.1_405B": "llama3.1-405b",
    "DeepSeekV3": "deepseek-v3",
    "DeepSeekV4 Flash": "deepseek-v4-flash",
    "GPT OSS 120B": "gpt-oss-120b",
    "Qwen3_30B_a3B": "qwen3-30b-a3b",
    "Qwen3_235B_a22B": "qwen3-235b-a22b",
    "Kimi_K2": "kimi-k2",
    "Nemotron_3_Nano": "nemotron-3-nano",
    "Nemotron_3_5_Lightning": "nemotron-3.5-lightning",
    "Nemotron_3_Super": "nemotron-3-super",
    "Nemotron_3_Ultra": "nemotron-3-ultra",
}
TOKENDROP = "-tokendrop"
SUFFIXES = {None: "", "dropless": "", "tokendrop": TOKENDROP, "w/ MTP": "", "w/o MTP": "-no-mtp"}
# Up to this release the FLOPs of a model were counted otherwise: recipe.yaml has it under a second name.
COUNTED_OTHERWISE = {"gpt-oss-120b": "26.04.01"}
# Of these no source here states the whole shape. Their figures stand in the notes of the tables.
WITHOUT_SHAPE = ("deepseek-v4-flash", "nemotron-3.5-lightning", "nemotron-3-ultra")

COLUMNS = {
    "#-GPUs": "gpus",
    "GBS": "gbs",
    "MBS": "mbs",
    "Sequence Length": "sequence_length",
    "FSDP": "fsdp",
    "TP": "tp",
    "PP": "pp",
    "CP": "cp",
    "VP": "vp",
    "EP": "ep",
    "GA": "ga",
    "Tokens / sec / GPU": "tokens",
    "Model TFLOP / sec / GPU": "tflops",
}
REQUIRED = ("gpus", "gbs", "mbs", "sequence_length", "tp", "pp", "cp", "tflops")
DTYPES = {
    "BF16": "bf16",
    "FP8": "fp8_cs",
    "FP8-CS": "fp8_cs",
    "FP8-MX": "mxfp8",
    "MXFP8": "mxfp8",
    "NVFP4": "nvfp4",
}
# Release 25.09 has no column of precisions: its first figure is FP8 with a scale for each tensor, the second, by a
# footnote, has one for each block of 32 values on Blackwell and of 128 on Hopper.
WITHOUT_A_COLUMN = {"h100": ("fp8_cs", "fp8_block")}
WITHOUT_A_COLUMN_ELSEWSUITE = ("fp8_cs", "mxfp8")

PRETRAINING = "Pre-Training"
OTHER_SECTIONS = ("SFT", "LoRA")
# scripts/performance/README.md, line 284 (v0.6.0): the first 70 % of a run's steps do not count.
STATISTIC = "mean:35-49"
STEPS = "steps: 50\n"
# v0.1.0rc4 has `train_iters: 100` and `use_nsys_profiler: true` in all six files of scripts/performance/configs; nsys itself is started
# by setup_experiment.py --enable_nsys alone.
STATISTIC_OTHERWISE = {"25.09": "mean:70-99"}
STEPS_OTHERWISE = {"25.09": "steps: 100\nprofiled: setting\n"}
# Where a cell lacks the second figure that its row's second run had.
CORRECTED: dict[tuple[str, str, str, str, int], dict[str, Any]] = {
    ("25.09", "gb200", "llama3-70b", "mxfp8", 64): {
        "mbs": 1,
        "note": "MBS 2 is printed; GA 16 and upstream's own configuration say 1 "
        "(v0.1.0rc4 scripts/performance/configs/llama3/llama3_70b_llm_pretrain.yaml)",
    }
}
# How far the two figures of a row may be apart, as a share.
TOLERANCE = 0.01
# What upstream itself calls a regression is no pace to reach.
REGRESSION = "regression"
FLOPS: FlopsName = "causal-attention"
# What a release does not inherit from recipe.yaml.
OF_A_RELEASE = """log: megatron_bridge
steps: 50
replay: 'log-[^/]*_(?P<job>\\d+)_(?P<restart>\\d+)\\.out'
"""

HEAD = """\
# What Megatron-Bridge publishes of its pre-training, as printed: tokens/s and model TFLOP/s, both per GPU. Written by
# tools/megatron_bridge/published.py; `source` and `line` say where a figure stands. A release whose tokens/s are whole
# samples/s of the job is judged by its TFLOP/s, which are finer."""

_RELEASE = re.compile(r"## (\d\d\.\d\d(?:\.\d\d)?) NeMo Container")
_SECTION = re.compile(r"### (\S+) Performance")
_SUBJECT = re.compile(r"#### (Model|System): (.+)")
_CELL = re.compile(r"(\d+|n/a)(?: \((\d+)\))?(?:\[\^([\w-]+)\])?")
_FOOTNOTE = re.compile(r"\[\^([\w-]+)\]: (.+)")
_NAME = re.compile(r"(.+?)(?: \(([^)]+)\))?")


@dataclass(frozen=True)
class Row:
    """A figure with its configuration, as printed. `tokens` is in tokens/s, `tflops` in TFLOP/s, both per GPU.

    `fsdp` is as printed: 0 if the run does not shard. `tokens` is None where only the other figure is printed.
    """

    release: str
    gpu: str
    size: str
    dtype: str
    page: str
    line: int
    gpus: int
    gbs: int
    mbs: int
    sequence_length: int
    tp: int
    pp: int
    cp: int
    tflops: int
    tokens: int | None = None
    vp: int = 1
    ep: int = 1
    fsdp: int = 0
    ga: int | None = None
    note: str = ""

    @property
    def key(self) -> tuple[str, str, str, str, int]:
        return self.release, self.gpu, self.size, self.dtype, self.gpus

    @property
    def model(self) -> str:
        """The name of the row's model in recipe.yaml."""
        name = self.size.removesuffix(f"-gbs{self.gbs}").removesuffix(TOKENDROP)
        until = COUNTED_OTHERWISE.get(name, "")
        return f"{name}-{until}" if self.release <= until else name

    @property
    def has_shape(self) -> bool:
        """Whether its model is known well enough to be a case."""
        return self.size not in WITHOUT_SHAPE

    @property
    def objection(self) -> str:
        """Why no run is judged by this row; "" if runs are."""
        if not self.has_shape:
            return "no source states the model's shape"
        return self.note if REGRESSION in self.note else ""

    @property
    def samples_per_second(self) -> float | None:
        """Sequences in a second, of the whole job, by the printed tokens/s; None if none are printed."""
        return None if self.tokens is None else self.tokens * self.gpus / self.sequence_length


class Page:
    """Reads a page line by line: the release, the section and the table that a line belongs to."""

    def __init__(self, name: str, text: str) -> None:
        self._name = name
        self._lines = text.splitlines()
        self._notes = dict(_FOOTNOTE.findall(text))
        self._release = ""
        self._section = ""
        self._subject: tuple[str, str] = ("", "")
        self._header: list[str] = []

    def rows(self) -> Iterator[Row]:
        """The pre-training figures. Raises ConfigError with the line of a heading or a row that cannot be read."""
        for number, line in enumerate(self._lines, start=1):
            try:
                if line.startswith("#"):
                    self._enter(line)
                elif line.startswith("|") and self._section not in OTHER_SECTIONS:
                    yield from self._row(number, [cell.strip() for cell in line.strip("|").split("|")])
            except ValueError as error:
                raise ConfigError(f"{self._name}:{number}: this cannot be read: {error}") from None

    def _enter(self, line: str) -> None:
        """Take a heading in. Raises ValueError if it is below a release and of no known form."""
        self._header = []
        level = line.index(" ")
        if level <= 2:
            release = _RELEASE.fullmatch(line)
            self._release, self._section, self._subject = release[1] if release else "", "", ("", "")
        elif self._release and level == 3:
            self._section = _known(_SECTION, line)[1]
            if self._section not in (PRETRAINING, *OTHER_SECTIONS):
                raise ValueError(f"the section {self._section!r} is unknown")
        elif self._release:
            subject = _known(_SUBJECT, line)
            self._subject = (subject[1], subject[2])

    def _row(self, number: int, cells: list[str]) -> Iterator[Row]:
        """The figures of a line of a table: one, or two where its cells have two."""
        if self._section != PRETRAINING:
            raise ValueError("a table outside a release's section")
        if not self._header:
            self._header = cells
            return
        if not set("".join(cells)) - {"-"}:
            return
        printed = dict([self._subject, *zip(self._header, cells, strict=True)])
        gpu = printed.pop("System").removeprefix("DGX-").lower()
        name, suffix = _known(_NAME, printed.pop("Model")).groups()
        size = _named(NAMES, name, "model") + _named(SUFFIXES, suffix, "suffix of a model")
        dtypes = _dtypes(gpu, printed.pop("Precision", ""))
        sheet = _named(accelerators(BASELINES.parent), gpu, "type of GPU", SHEETS)
        for dtype in dtypes:
            _named(sheet.peak, dtype, f"peak of {gpu} in", SHEETS)
        figures = {_named(COLUMNS, column, "column"): _figures(cell) for column, cell in printed.items()}
        notes = {self._notes[note] for _, _, note in figures.values() if note}
        whole = {name: first for name, (first, _, _) in figures.items() if first is not None}
        missing = [column for column, name in COLUMNS.items() if name in REQUIRED and name not in whole]
        if missing:
            raise ValueError(f"no figure below {', '.join(missing)}")
        row = Row(
            release=self._release,
            gpu=gpu,
            size=size,
            dtype=dtypes[0],
            page=self._name,
            line=number,
            note=" ".join(sorted(notes)),
            **whole,
        )
        yield row
        second = {name: second for name, (_, second, _) in figures.items() if second is not None}
        if "tflops" in second:
            changed: dict[str, Any] = {"dtype": dtypes[1], "tokens": None, **second}
            yield replace(row, **changed)
        elif second or (len(dtypes) > 1 and "Precision" in self._header):
            raise ValueError("a second precision without a second TFLOP/s figure")


def _known(form: re.Pattern[str], text: str) -> re.Match[str]:
    match = form.fullmatch(text)
    if not match:
        raise ValueError(f"{text!r} is of no known form")
    return match


def _named(names: Mapping[Any, Any], name: str | None, what: str, file: str = "published.py") -> Any:
    if name not in names:
        raise ValueError(f"the {what} {name!r} is unknown here; add it to {file}")
    return names[name]


def _dtypes(gpu: str, precision: str) -> tuple[str, ...]:
    """The precisions of the first and of the second figure of a row."""
    if not precision:
        return WITHOUT_A_COLUMN.get(gpu, WITHOUT_A_COLUMN_ELSEWSUITE)
    return tuple(_named(DTYPES, name, "precision") for name in _known(_NAME, precision).groups() if name)


def _figures(cell: str) -> tuple[int | None, int | None, str | None]:
    """The first and the second figure of a cell, and its footnote. None stands for `n/a` and what is missing."""
    first, second, note = _known(_CELL, cell).groups()
    return (None if first == "n/a" else int(first)), (int(second) if second else None), note


def read_pages(texts: Mapping[str, str]) -> list[Row]:
    """The rows of all pages, by name. If a scale is printed twice, the second has the batch in its size."""
    rows: list[Row] = []
    keys: set[tuple[str, str, str, str, int]] = set()
    for name, text in texts.items():
        for row in Page(name, text).rows():
            row = replace(row, **CORRECTED.get(row.key, {}))
            if row.key in keys:
                row = replace(row, size=f"{row.size}-gbs{row.gbs}")
            if row.key in keys:
                raise ConfigError(f"{name}:{row.line}: this scale is printed twice with the same batch")
            keys.add(row.key)
            rows.append(row)
    return rows


def is_rounded_to_samples(rows: list[Row]) -> bool:
    """Whether the tokens/s of all these rows are whole samples/s of the job, and so too coarse to judge by."""
    return all(row.samples_per_second in (None, round(row.samples_per_second or 0)) for row in rows)


def disagreement(row: Row, model: Model) -> str:
    """How far the two printed figures of a row are from agreeing; "" if no further than they are rounded.

    They may differ by 1 % and by half a sample in a second of the whole job.
    """
    if row.tokens is None:
        return ""
    sequence = flops_per_sequence(model, row.sequence_length, FlopsDefinition(definition=FLOPS))
    tokens = row.tflops * 1e12 / sequence * row.sequence_length
    half_a_sample = row.sequence_length / row.gpus / 2
    if abs(row.tokens - tokens) <= TOLERANCE * tokens + half_a_sample:
        return ""
    return f"{row.tokens} tokens/s are printed; {row.tflops} TFLOP/s are {tokens:.0f} tokens/s"


def _accumulation(row: Row) -> str:
    """What is wrong with the printed number of gradient accumulation steps; "" if it follows from the batch."""
    steps = row.gbs // (row.mbs * row.gpus // (row.tp * row.pp * row.cp))
    if row.ga in (None, steps):
        return ""
    return f"GA {row.ga} is printed; the batch takes {steps}"


def _grouped(rows: list[Row]) -> dict[tuple[str, str], list[Row]]:
    """The rows by release and type of GPU, in their order."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.release, row.gpu), []).append(row)
    return groups


def _case(row: Row) -> str:
    """A row as a line of `cases`."""
    case: dict[str, Any] = {"gpu": [row.gpu], "size": row.size}
    if row.model != row.size:
        case["model"] = row.model
    if TOKENDROP in row.size:
        case["drops_tokens"] = True
    case |= {"dtype": [row.dtype], "gpus": [row.gpus], **_configuration(row)}
    return f"  - {in_a_line(case)}"


def _configuration(row: Row) -> dict[str, int]:
    """What a case and its baseline have in common, without what is usual."""
    names = ("sequence_length", "tp", "pp", "cp", "vp", "mbs", "gbs")
    configuration = {name: getattr(row, name) for name in names}
    unusual = {name: getattr(row, name) for name in ("ep", "fsdp") if getattr(row, name) > 1}
    return configuration | unusual


def release_text(rows: list[Row], commit: str) -> str:
    """The cases of a release as YAML: what follows MARK in recipe.yaml, and stands in a file of releases/."""
    first = rows[0]
    cases = "\n".join(_case(row) for row in rows if row.has_shape)
    return f'release: "{first.release}"\nsource: {_source(first, commit)}\ncases:\n{cases}\n'


def _source(row: Row, commit: str) -> str:
    return f"{REPOSITORY}/blob/{commit}/{row.page}"


def baselines_text(rows: list[Row], models: Mapping[str, Model], commit: str) -> str:
    """The rows as a baselines file, with a line for each cell."""
    lines = [HEAD, "recipe: megatron_bridge", "tables:"]
    for (release, gpu), group in _grouped(rows).items():
        rounded = is_rounded_to_samples([row for row in rows if row.release == release])
        judging = [row for row in group if not row.objection]
        if not judging:
            raise ConfigError(
                f"{group[0].page}:{group[0].line}: no run can be judged by any row of {release} on {gpu}"
            )
        peak = accelerators(BASELINES.parent)[gpu].peak
        table = {
            "release": release,
            "gpu": gpu,
            "framework": f"Megatron-Bridge, NeMo container {release}",
            "source": _source(group[0], commit),
            "statistic": STATISTIC_OTHERWISE.get(release, STATISTIC),
            "primary": "tflops_per_gpu" if rounded else "tokens_per_second_per_gpu",
            "notes": [
                f"{row.size} {row.dtype} {row.gpus} GPUs (line {row.line}): no run is judged by the printed {row.tokens} "
                f"tokens/s and {row.tflops} TFLOP/s per GPU: {row.objection}"
                for row in group
                if row.objection
            ],
        }
        lines += _indented("  - ", as_yaml({key: value for key, value in table.items() if value}))
        lines.append(f"    peak: {in_a_line({row.dtype: peak[row.dtype] for row in judging})}")
        lines.append("    flops:")
        lines += [f"      {size}: {{definition: {FLOPS}}}" for size in {row.size: None for row in judging}]
        lines.append("    cells:")
        lines += [f"      - {in_a_line(_cell(row, models[row.model]))}" for row in judging]
    if any(row.objection and row.has_shape for row in rows):
        lines.append("lacking:")
    lines += [f"  - {in_a_line(_lack(row))}" for row in rows if row.objection and row.has_shape]
    return "\n".join(lines) + "\n"


def _lack(row: Row) -> dict[str, Any]:
    """Why the case of a row has no number, as its verdict says it."""
    case = {"release": row.release, "gpu": row.gpu, "size": row.size, "dtype": row.dtype, "gpus": [row.gpus]}
    figures = f"{row.tokens} tokens/s and {row.tflops} TFLOP/s per GPU"
    return {**case, "reason": f"no run is judged by the printed {figures}: {row.objection.rstrip('.')}"}


def _cell(row: Row, model: Model) -> dict[str, Any]:
    """A row as a cell: the configuration, the printed figures, where they stand, and what is to be said of them."""
    cell: dict[str, Any] = {"size": row.size, "dtype": row.dtype, "gpus": row.gpus, **_configuration(row)}
    cell |= {"tokens_per_second_per_gpu": row.tokens, "tflops_per_gpu": row.tflops, "line": row.line}
    cell["note"] = "; ".join(filter(None, (row.note, _accumulation(row), disagreement(row, model))))
    return {name: value for name, value in cell.items() if value not in (None, "")}


def in_a_line(values: Mapping[str, Any]) -> str:
    """A mapping as one line of YAML."""
    return as_yaml(dict(values), flow=True).strip()


def _indented(first: str, text: str) -> list[str]:
    """The lines of a text: `first` stands before the first, and as many blanks before the others."""
    return textwrap.indent(text.rstrip(), " " * len(first)).replace(" " * len(first), first, 1).split("\n")


def changes(old: BaselineFile, new: BaselineFile) -> list[str]:
    """What differs between the files, a line each: releases, and within a release whatever is printed of a run."""
    before, after = _printed(old), _printed(new)
    earlier, later = ({release for release, _ in printed} for printed in (before, after))
    lines = [f"{release}: a new release" for release in sorted(later - earlier)]
    lines += [
        f"{release}: no longer printed; delete its file in releases/" for release in sorted(earlier - later)
    ]
    for place in sorted({*before, *after}):
        was, now = before.get(place, {}), after.get(place, {})
        changed = [name for name in {**was, **now} if was.get(name) != now.get(name)]
        if changed and place[0] in earlier & later:
            words = [f"{name} {was.get(name, 'none')} -> {now.get(name, 'none')}" for name in changed]
            lines.append(f"{' '.join(place)}: {', '.join(words)}")
    return lines


def _printed(file: BaselineFile) -> dict[tuple[str, str], dict[str, Any]]:
    """The figures and the configuration of each cell, and each note, by its release and what it is of."""
    printed: dict[tuple[str, str], dict[str, Any]] = {}
    for table in file.tables:
        for cell in table.cells:
            figures = {"tokens/s": cell.tokens_per_second_per_gpu, "TFLOP/s": cell.tflops_per_gpu}
            place = f"{table.gpu} {cell.size} {cell.dtype} {cell.gpus} GPUs"
            printed[table.release, place] = {**figures, **cell.configuration}
        for note in table.notes:
            subject, _, words = note.partition(": ")
            printed[table.release, f"{table.gpu} {subject.partition(' (line')[0]}"] = {"note": words}
    return printed


def _texts(clone: Path, commit: str) -> dict[str, str]:
    """The pages that a commit of a clone has, by name. Raises ConfigError with what git says."""
    names = git(clone, "ls-tree", "--name-only", commit, "docs/").decode().split()
    return {page: git(clone, "show", f"{commit}:{page}").decode() for page in PAGES if page in names}


def git(clone: Path, *arguments: str) -> bytes:
    """What git prints in a clone. Raises ConfigError with what it says if it fails."""
    answer = subprocess.run(["git", "-C", clone, *arguments], capture_output=True)
    if answer.returncode:
        raise ConfigError(f"{clone}: git {arguments[0]}: {answer.stderr.decode(errors='replace').strip()}")
    return answer.stdout


def write(rows: list[Row], commit: str) -> list[str]:
    """Write all files, or none. Return what differs from before, a line each. Raises ConfigError."""
    old = load(BASELINES, BaselineFile) if BASELINES.exists() else None
    releases: dict[str, list[Row]] = {}
    for row in rows:
        releases.setdefault(row.release, []).append(row)
    newest = max(releases)
    head = RECIPE.read_text(encoding="utf-8").split(MARK)[0]
    texts = {RECIPE: head + MARK + release_text(releases.pop(newest), commit)}
    for release, group in releases.items():
        text = MARK.replace("here", "its first line") + release_text(group, commit)
        texts[SUITE / "releases" / f"{release}.yaml"] = text + OF_A_RELEASE.replace(
            STEPS, STEPS_OTHERWISE.get(release, STEPS)
        )
    texts[BASELINES] = baselines_text(rows, read_recipe(SUITE).models, commit)
    (SUITE / "releases").mkdir(exist_ok=True)
    for path, text in texts.items():
        path.write_text(text, encoding="utf-8")
    return changes(old, load(BASELINES, BaselineFile)) if old else []


def main(arguments: list[str]) -> int:
    """Write the files, and print what upstream changed. The exit status is 0, or 1 for an error."""
    parser = argparse.ArgumentParser(
        description="Write what Megatron-Bridge publishes as cases and baselines."
    )
    parser.add_argument("--clone", type=Path, required=True, help=f"a clone of {REPOSITORY}")
    parser.add_argument("commit", help="the whole hash of the commit that is read")
    chosen = parser.parse_args(arguments)
    try:
        rows = read_pages(_texts(chosen.clone, chosen.commit))
        changed = write(rows, chosen.commit)
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 1
    print(*changed, f"{len(rows)} figures, {len(changed)} changes", sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
