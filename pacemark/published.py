"""Sets what a run was judged by beside the recipes and baselines that this Pacemark has itself."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

from pacemark.differences import differences
from pacemark.differences import few
from pacemark.findings import Findings
from pacemark.statement import NewerFormat
from plugins.baselines.file import Table
from plugins.baselines.store import Baseline
from plugins.baselines.store import accelerators
from plugins.baselines.store import find
from plugins.baselines.store import mfu_basis
from plugins.baselines.store import references
from plugins.baselines.store import usual_statistic
from plugins.errors import ConfigError
from plugins.judging.judge import Judgement
from plugins.recipes.cases import Case
from plugins.recipes.cases import Recipe
from plugins.recipes.cases import load_recipe
from plugins.rejudge import BASIS
from plugins.rejudge import Basis


def check_recipe(basis: Basis, key: str, published: Path, found: Findings) -> tuple[Recipe, Case] | None:
    """Set what a case runs beside the case that this Pacemark has itself, which is returned if it has one.

    Raises ConfigError or NewerFormat if the case has a mode that is not Pacemark's own: a pattern of it would be
    used on names that somebody made, and may take for ever.
    """
    name, _, case_id = key.partition("/")
    recipe, choice = basis.of(name)
    folder, case = published / "suites" / name, basis.case(key)
    known = (
        load_recipe(folder, choice.release, choice.gpu, choice.models)
        if (folder / "recipe.yaml").is_file()
        else None
    )
    same = known.case(case_id) if known is not None and not known.unfit else None
    if known is None or same is None:
        none = f"no recipe {name}" if known is None else f"no such case of release {case.release}"
        if case.mode is not None:
            raise NewerFormat(f"this Pacemark has {none}, and looks for no files by another's patterns")
        found.cannot.append(f"{key}: this Pacemark has {none}: it is judged by what the bundle says of it")
        return None
    if different := list(differences(_plain(known, same), _plain(recipe, case))):
        found.wrong.append(
            f"{key}: its recipe is not the published one: {few(different)} (published, bundle)"
        )
        if case.mode != same.mode:
            raise ConfigError("its mode is not the published one, so no files are looked for by it")
    return known, same


def check_baseline(
    basis: Basis, judgement: Judgement, known: tuple[Recipe, Case], published: Path, found: Findings
) -> None:
    """Set the baseline of a case beside the one that this Pacemark has itself."""
    case, gpu = judgement.case, judgement.outcome.gpu
    recipe, name = basis.of(case.recipe)[0], f"{case.recipe}.yaml"
    try:
        ours, theirs = (
            find(published / "baselines", *known, gpu),
            find(basis.baselines, recipe, case, gpu),
        )
        parts = accelerators(published / "baselines").get(gpu), accelerators(basis.baselines).get(gpu)
    except ConfigError as error:
        found.wrong.append(f"{case.key}: its baseline cannot be compared: {error}")
        return
    if parts[0] != parts[1] and (different := list(differences(_dump(parts[0]), _dump(parts[1])))):
        found.wrong.append(
            f"{BASIS}/baselines: the data of {gpu} are not the published ones: {few(different)} (published, bundle)"
        )
    beside = (
        _beside(published / "baselines", known[1], ours, gpu),
        _beside(basis.baselines, case, theirs, gpu),
    )
    if (ours is None) == (theirs is None) and (different := list(differences(*beside))):
        found.wrong.append(
            f"{case.key}: {BASIS}/baselines/{name} is not the published one: {few(different)} (published, bundle)"
        )
    if ours is None and theirs is not None:
        found.cannot.append(
            f"{case.key}: this Pacemark has no number for it, the bundle has one in {BASIS}/baselines/{name}: use a newer one"
        )
    elif ours is not None and theirs is None:
        found.wrong.append(f"{case.key}: a number for it is published, and {BASIS}/baselines/{name} has none")
    elif (
        ours is not None
        and theirs is not None
        and (different := list(differences(_figures(ours), _figures(theirs))))
    ):
        found.wrong.append(
            f"{case.key}: {BASIS}/baselines/{name} is not the published one: {few(different)} (published, bundle)"
        )


def _beside(folder: Path, case: Case, baseline: Baseline | None, gpu: str) -> dict[str, Any]:
    """What the tables in a folder say of a case besides its baseline. Without one they say how it is measured."""
    told: dict[str, Any] = {"references": [one.model_dump() for one in references(folder, case, gpu)]}
    if baseline is None:
        told["statistic"] = str(usual_statistic(folder, case))
        told["MFU"] = repr(mfu_basis(case, None, gpu, folder, None))
    return told


def _plain(recipe: Recipe, case: Case) -> dict[str, Any]:
    """What a case runs, and how its log is read."""
    told = {one.name: getattr(case, one.name) for one in fields(case) if one.name != "after"}
    return {**told, "log": recipe.file.log, "program": recipe.file.program}


def _figures(baseline: Baseline) -> dict[str, Any]:
    """What a case is judged by: its cell, and what its table says of all of them."""
    head: dict[str, Any] = baseline.table.model_dump(
        mode="json", include=set(Table.model_fields) - {"cells", "notes", "references", "also"}
    )
    return {**head, **baseline.cell.model_dump(mode="json"), "tolerance": baseline.tolerance.model_dump()}


def _dump(part: Any) -> dict[str, Any]:
    return {} if part is None else dict(part.model_dump(mode="json"))
