"""Judges a case from the files of its run: in its session, and by whoever has the files later.

What the files of a run do not say of themselves is in its folder `basis/`: how the session chose each recipe's
cases, the recipe, and the baselines. The ledger has the ends of the jobs.
"""

from __future__ import annotations

import math
import shutil
from dataclasses import replace
from pathlib import Path

from pydantic import ValidationError

from plugins.base.errors import ConfigError
from plugins.base.files import write_whole
from plugins.base.yamlfile import first_mistake
from plugins.baselines.baseline_file import ACCELERATORS
from plugins.judging.choice import Choice, Setting
from plugins.judging.evidence import read_evidence
from plugins.judging.job_files import ParsedLogs
from plugins.judging.judge import judge
from plugins.judging.judgement import Judgement
from plugins.modes.checkpoints import GB
from plugins.recipes.cases import Case, Recipe
from plugins.recipes.expansion import load_recipe
from plugins.record.folder import BASIS
from plugins.record.outcome import Outcome
from plugins.record.plan import Plan

MOST_STEPS = 1_000_000
"""A recipe of somebody else must not keep the judge busy for hours."""


def write_basis(run: Path, setting: Setting) -> None:
    """Keep what the cases of a recipe are judged by in the run's folder. Raises OSError.

    If an earlier session of the run kept it, this one takes its place.
    """
    recipe, choice = setting.recipe, setting.choice
    basis, name = run / BASIS, recipe.name
    suite = basis / "suites" / name
    shutil.rmtree(suite, ignore_errors=True)
    for path in sorted(recipe.folder.rglob("*.yaml")):
        _copy(path, suite / path.relative_to(recipe.folder))
    for path in (setting.baselines / f"{name}.yaml", setting.baselines / ACCELERATORS):
        _copy(path, basis / "baselines" / path.name)
    _copy(Path(choice.own) / f"{name}.yaml" if choice.own else None, basis / "own" / f"{name}.yaml")
    chosen = basis / "choices" / f"{name}.json"
    chosen.parent.mkdir(exist_ok=True)
    write_whole(chosen, choice.model_dump_json(indent=2) + "\n")


def rejudged(run: Path, recipe: str, choice: Choice) -> str:
    """What a run kept of how a recipe's cases are chosen and judged, and would now be otherwise; "" if nothing is.

    `versions` and the folder of the site's own baselines may change. Raises ConfigError if what it kept is damaged.
    """
    path = f"{BASIS}/choices/{recipe}.json"
    if not (run / path).exists():
        return ""
    then = Basis(run).of(recipe).choice
    changes = (
        f"{path} has {name} {getattr(then, name)}, which would now be {getattr(choice, name)}"
        for name in Choice.model_fields
        if name not in ("own", "versions") and getattr(then, name) != getattr(choice, name)
    )
    return next(changes, "")


def promised_otherwise(plan: Plan, case: Case, choice: Choice) -> str:
    """What the plan of an acceptance promises, and the site file does not; "" if it does."""
    if plan.network not in (None, choice.network):
        return f"network: the plan has {plan.network}, and the site file has {choice.network or 'none'}"
    wanted, saves = plan.storage_gb_per_second, case.mode is not None and case.mode.checkpoint is not None
    rate = None if choice.promised is None else choice.promised / GB
    if saves and wanted is not None and (rate is None or not math.isclose(rate, wanted)):
        has = "none" if rate is None else f"{rate:g}"
        return (
            f"storage_gb_per_second: the plan has {wanted:g}, and the site file has {has} for {case.recipe}"
        )
    return ""


class Basis:
    """What a run was judged by, as its folder has it."""

    def __init__(self, run: Path) -> None:
        self._folder = run / BASIS
        self.baselines = self._folder / "baselines"
        self._read: dict[str, Setting] = {}

    def of(self, name: str) -> Setting:
        """How the cases of a recipe were judged. Raises ConfigError if a file is missing or damaged."""
        if name not in self._read:
            path = self._folder / "choices" / f"{name}.json"
            try:
                choice = Choice.model_validate_json(path.read_bytes())
            except (OSError, ValidationError) as error:
                raise ConfigError(f"{BASIS}/choices/{name}.json: cannot be read: {_why(error)}") from None
            if not (self._folder / "suites" / name / "recipe.yaml").is_file():
                raise ConfigError(f"{BASIS}/suites/{name}/recipe.yaml is missing")
            self._read[name] = Setting(self._recipe(name, choice), choice, self.baselines)
        return self._read[name]

    def case(self, key: str) -> Case:
        """A case as its recipe has it. Raises ConfigError also if the recipe has none, or one of too many steps."""
        name, _, case_id = key.partition("/")
        case = self.of(name).recipe.case(case_id)
        if case is None:
            raise ConfigError(f"{BASIS}/suites/{name} has no case {case_id}")
        if case.steps > MOST_STEPS:
            raise ConfigError(f"{BASIS}/suites/{name}: {case_id} has more than {MOST_STEPS:,} steps")
        return case

    def judge(self, case_key: str, outcome: Outcome) -> Judgement:
        """Judge a case anew. Its headline names the site's own baselines as the session did. Raises as above."""
        case = self.case(case_key)
        setting = self.of(case.recipe)
        choice = setting.choice
        numbers = self._folder / "own" if choice.own else None
        here = choice.model_copy(update={"own": str(numbers or "")})
        facts = replace(outcome, gpu=choice.gpu_of(case), versions=choice.versions)
        judgement = judge(read_evidence(case, facts, replace(setting, choice=here), ParsedLogs()))
        if numbers is None:
            return judgement
        reasons = tuple(reason.replace(str(numbers), choice.own) for reason in judgement.verdict.reasons)
        return replace(judgement, verdict=replace(judgement.verdict, reasons=reasons))

    def _recipe(self, name: str, choice: Choice) -> Recipe:
        folder = self._folder / "suites" / name
        return load_recipe(folder, choice.release, choice.gpu, choice.models)


def _why(error: OSError | ValidationError) -> str:
    return first_mistake(error) if isinstance(error, ValidationError) else error.strerror or str(error)


def _copy(source: Path | None, target: Path) -> None:
    target.unlink(missing_ok=True)
    if source is not None and source.is_file():
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
