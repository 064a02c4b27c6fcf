"""A page for each recipe: its models, its cases, and its baselines as the YAML has them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from plugins.base.words import counted
from plugins.baselines.baseline_file import Cell, Table, load_baselines
from plugins.baselines.store import lacking
from plugins.recipes.cases import Case, Recipe
from plugins.recipes.expansion import load_recipe
from plugins.recipes.models import Model
from plugins.recipes.recipe_file import Matrix, RecipeFile, read_releases

_LAYOUT = ("tp", "pp", "cp", "vp", "fsdp", "mbs", "gbs")
_RATES = ("MFU [%]", "TFLOP/s/GPU")


def recipes(root: Path) -> list[Recipe]:
    return [load_recipe(path.parent) for path in sorted(root.glob("suites/*/recipe.yaml"))]


def tables(root: Path, recipe: Recipe) -> list[Table]:
    """The recipe's tables: first those of its own release, then the newest."""
    path = root / "baselines" / f"{recipe.name}.yaml"
    found = load_baselines(path).tables if path.exists() else []
    newest = sorted(found, key=lambda table: table.release, reverse=True)
    return sorted(newest, key=lambda table: not table.is_of(recipe.file.release))


def overview(root: Path) -> str:
    """A line for each recipe."""
    rows = [
        (
            f"[`{recipe.name}`](suites/{recipe.name}.md)",
            recipe.file.title,
            _backends(recipe.file),
            recipe.file.release,
            len(_usual(recipe)),
            sum(len(table.cells) for table in tables(root, recipe)),
        )
        for recipe in recipes(root)
    ]
    return _table(("suite", "recipe", "backend", "release", "cases", "numbers"), rows)


def page(root: Path, recipe: Recipe) -> str:
    """What its page says below the recipe's name."""
    return "\n\n".join(_parts(root, recipe, tables(root, recipe)))


def _parts(root: Path, recipe: Recipe, baselines: Sequence[Table]) -> Iterator[str]:
    file = recipe.file
    usual = _usual(recipe)
    yield f"{file.title}."
    yield f"    pytest suites/{recipe.name} --collect-only -q\n    pytest suites/{recipe.name} --plan"
    facts = [
        ("source", _link(file.source)),
        ("release", file.release),
        ("runs on" if file.contracts else "judged from", _backends(file)),
        ("log format", f"`{file.log}`"),
        ("steps", ", ".join(str(steps) for steps in sorted({case.steps for _, case in usual}))),
        *([("nodes", f"of {counted(file.gpus_per_node, 'GPU')} only")] if file.gpus_per_node else []),
    ]
    yield _list(facts)
    yield "## Models"
    names = [name for name in Model.model_fields if name != "blocks"]
    yield _table(
        ("", *names), [(key, *(getattr(model, name) for name in names)) for key, model in file.models.items()]
    )
    yield "## Cases"
    yield "Select one by its id (`-k`), or several by size, dtype and number of GPUs."
    yield _cases(root, usual)
    for other in _launched(recipe):
        yield f"### Release {other.file.release}"
        yield _cases(root, _usual(other))
    if file.variants:
        yield "## Other modes and variants"
        yield "Each is collected only with `--variant`."
        yield _table(
            ("", "", "cases"),
            [(f"`{name}`", v.what, _count(recipe.cases, name)) for name, v in file.variants.items()],
        )
    yield "## Baselines"
    if not baselines:
        yield _unpublished(file)
    for table in baselines:
        yield from _baselines(table)


def _usual(recipe: Recipe) -> list[tuple[str, Case]]:
    """The cases of a release that are no variant, with their type of GPU; "" if they are those of any."""
    gpus = dict.fromkeys(gpu for group in recipe.file.cases for gpu in group.gpu)
    if not gpus:
        return [("", case) for case in recipe.cases if not case.variant]
    release = recipe.file.release
    return [
        (gpu, case)
        for gpu in gpus
        for case in load_recipe(recipe.folder, release, gpu).cases
        if not case.variant
    ]


def _launched(recipe: Recipe) -> list[Recipe]:
    """The recipe in its other releases that can be run."""
    releases = read_releases(recipe.folder, recipe.file)
    return [
        load_recipe(recipe.folder, name)
        for name, (path, file) in releases.items()
        if path != recipe.path and file.contracts
    ]


def _cases(root: Path, cases: Iterable[tuple[str, Case]]) -> str:
    """A line for each case: what it runs, and why no number was published if the baselines say so."""
    head = ("GPU", "case", "sequence length", "layers", *_LAYOUT, "without a number because")
    rows = [
        (
            gpu,
            f"`{case.id}`",
            case.sequence_length,
            case.model.layers,
            *(getattr(case, key) for key in _LAYOUT),
            lacking(root / "baselines", case, gpu),
        )
        for gpu, case in cases
    ]
    shown = [column for column in range(len(head)) if any(row[column] != "" for row in rows)]
    return _table([head[column] for column in shown], [[row[column] for column in shown] for row in rows])


def _backends(file: RecipeFile) -> str:
    if not file.contracts:
        return "logs alone"
    return ", ".join(f"`{name}`" for name in file.backend)


def _unpublished(file: Matrix) -> str:
    said = "No number was published: a case ends as *no baseline*, unless the site has [recorded its own](../baselines.md#recording)."
    if file.measure:
        said += f" It is measured by `{file.measure.statistic}`, and its MFU by `{file.measure.flops}`."
    return said


def _baselines(table: Table) -> Iterator[str]:
    yield f"### {' = '.join((table.release, *table.also))}, {table.gpu}"
    peak = (
        "measured by each run"
        if table.peak == "measured"
        else ", ".join(f"{dtype} {value:g} TFLOP/s" for dtype, value in table.peak.items())
    )
    flops = dict.fromkeys(found.definition for found in table.flops.values())
    corrected = dict.fromkeys(found.definition for found in table.corrected_flops.values())
    band = table.tolerance
    facts = [
        ("framework", table.framework),
        ("source", _link(table.source)),
        ("statistic", f"[`{table.statistic}`](../verdicts.md#which-step-time)"),
        ("peak of a GPU", peak),
        ("model FLOPs", ", ".join(f"[`{name}`](../mfu.md)" for name in flops)),
        *([("corrected", ", ".join(f"`{name}`" for name in corrected))] if corrected else []),
        ("band", f"-{band.slower:.0%} to +{band.faster:.0%} of the throughput".replace("%", " %")),
    ]
    yield _list(facts)
    head = ("size", "dtype", "GPUs", "layers", *_LAYOUT, "s/step", "tokens/s", "tokens/s/GPU", *_RATES)
    rows = [_cell(cell) for cell in table.cells]
    stated = [column for column in range(len(head)) if any(row[column] is not None for row in rows)]
    yield _table([head[column] for column in stated], [[row[column] for column in stated] for row in rows])
    notes = [
        *table.notes,
        *(f"{c.size} {c.dtype}, {counted(c.gpus, 'GPU')}: {c.note}." for c in table.cells if c.note),
    ]
    if notes:
        yield "\n".join(f"- {note}" for note in notes)
    if table.references:
        yield "Others' figures, shown beside and never judged:"
        yield _table(
            ("", "size", "dtype", "GPUs", "tokens/s/GPU", ""),
            [
                (r.name, r.size, r.dtype, r.gpus, f"{r.tokens_per_second_per_gpu:g}", r.note or "")
                for r in table.references
            ],
        )


def _cell(cell: Cell) -> tuple[object, ...]:
    rate, of_a_gpu = cell.tokens_per_second, cell.tokens_per_second_per_gpu
    if rate is not None:
        of_a_gpu = rate / cell.gpus
    return (
        cell.size,
        cell.dtype,
        cell.gpus,
        cell.layers,
        *(getattr(cell, key) for key in _LAYOUT),
        None if cell.step_time is None else f"{cell.step_time:g}",
        None if rate is None else f"{rate:,.0f}",
        None if of_a_gpu is None else f"{of_a_gpu:,.0f}",
        None if cell.mfu is None else f"{cell.mfu:.2f}",
        None if cell.tflops_per_gpu is None else f"{cell.tflops_per_gpu:g}",
    )


def _count(cases: Iterable[Case], variant: str) -> int:
    return sum(case.variant == variant for case in cases)


def _is_number(cell: object) -> bool:
    return cell is None or str(cell).replace(",", "").replace(".", "").isdecimal()


def _link(source: str) -> str:
    return f"<{source}>" if source.startswith("https://") else source


def _list(facts: Iterable[tuple[str, object]]) -> str:
    return "\n".join(f"- {name}: {value}" for name, value in facts)


def _table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    numbers = [all(_is_number(line[column]) for line in rows) for column in range(len(head))]
    lines = [head, ["---:" if number else "---" for number in numbers], *rows]
    return "\n".join(
        "| "
        + " | ".join(
            "" if cell is None else str(cell).replace("|", r"\|").replace("\n", " ") for cell in line
        )
        + " |"
        for line in lines
    )
