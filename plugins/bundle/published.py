"""Sets the basis of a run beside the recipes and baselines that this Pacemark has itself."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

from plugins.baselines.accelerators import accelerators
from plugins.baselines.baseline_file import Table
from plugins.baselines.expected import counting, usual_statistic
from plugins.baselines.expected_range import extrapolated
from plugins.baselines.store import Baseline, find, references
from plugins.bundle.findings import Examination, differing
from plugins.bundle.run import BundledRun
from plugins.bundle.statement import NewerFormat
from plugins.errors import ConfigError
from plugins.judging.judgement import Judgement
from plugins.recipes.cases import Case, Recipe, load_recipe
from plugins.record.folder import BASIS


def check_recipe(run: BundledRun, key: str, findings: Examination) -> tuple[Recipe, Case] | None:
    """Set what a case runs beside the case that this Pacemark has itself, which is returned if it has one.

    Raises ConfigError or NewerFormat if the case has a mode that is not Pacemark's own: a pattern of it would be
    used on names that somebody made, and may take for ever.
    """
    name, _, case_id = key.partition("/")
    setting, case = run.basis.of(name), run.basis.case(key)
    recipe, choice, folder = setting.recipe, setting.choice, run.published / "suites" / name
    known = same = None
    none = f"no recipe {name}"
    if (folder / "recipe.yaml").is_file():
        known = load_recipe(folder, choice.release, choice.gpu, choice.models)
        none = f"no such case of release {case.release}"
        if not known.unfit:
            same = known.case(case_id)
    if known is None or same is None:
        if case.mode is not None:
            raise NewerFormat(f"this Pacemark has {none}, and looks for no files by another's patterns")
        findings.cannot.append(f"{key}: this Pacemark has {none}: it is judged by what the bundle says of it")
        return None
    different = differing(_plain(known, same), _plain(recipe, case))
    if different:
        findings.wrong.append(f"{key}: its recipe is not the published one: {different} (published, bundle)")
        if case.mode != same.mode:
            raise ConfigError("its mode is not the published one, so no files are looked for by it")
    return known, same


def check_baseline(
    run: BundledRun, judgement: Judgement, known: tuple[Recipe, Case], findings: Examination
) -> None:
    """Set the baseline of a case beside the one that this Pacemark has itself."""
    case, gpu = judgement.case, judgement.outcome.gpu
    recipe, table = run.basis.of(case.recipe).recipe, f"{BASIS}/baselines/{case.recipe}.yaml"
    here, there = run.published / "baselines", run.basis.baselines
    try:
        ours, theirs = find(here, *known, gpu), find(there, recipe, case, gpu)
        sheets = [accelerators(folder).get(gpu) for folder in (here, there)]
    except ConfigError as error:
        findings.wrong.append(f"{case.key}: its baseline cannot be compared: {error}")
        return
    different = differing(*(sheet.model_dump(mode="json") if sheet else {} for sheet in sheets))
    if different:
        findings.wrong.append(
            f"{BASIS}/baselines: the data of {gpu} are not the published ones: {different} (published, bundle)"
        )
    if theirs is None:
        if ours is not None:
            findings.wrong.append(f"{case.key}: a number for it is published, and {table} has none")
            return
    elif ours is None:
        findings.cannot.append(
            f"{case.key}: this Pacemark has no number for it, the bundle has one in {table}: use a newer one"
        )
        return
    different = differing(_figures(here, known[1], ours, gpu), _figures(there, case, theirs, gpu))
    if different:
        findings.wrong.append(
            f"{case.key}: {table} is not the published one: {different} (published, bundle)"
        )


def _figures(folder: Path, case: Case, baseline: Baseline | None, gpu: str) -> dict[str, Any]:
    """What the tables in a folder say of a case: the numbers that it is judged by, or how it is measured without."""
    figures: dict[str, Any] = {"references": [item.model_dump() for item in references(folder, case, gpu)]}
    if baseline is None:
        figures["statistic"] = str(usual_statistic(folder, case))
        figures["MFU"] = repr(counting(case, None, gpu, folder).basis())
        scaled = extrapolated(case, gpu, folder)
        figures["expected range"] = scaled.why_none or repr(scaled.range)
        return figures
    of_all = set(Table.model_fields) - {"cells", "notes", "references", "also"}
    figures |= baseline.table.model_dump(mode="json", include=of_all)
    return {**figures, **baseline.cell.model_dump(mode="json"), "tolerance": baseline.tolerance.model_dump()}


def _plain(recipe: Recipe, case: Case) -> dict[str, Any]:
    """What a case runs, and how its log is read."""
    values = {field.name: getattr(case, field.name) for field in fields(case) if field.name != "after"}
    return {**values, "log": recipe.file.log, "program": recipe.file.program}
