"""Judges a case from the files of its run: in its session, and by whoever has the files later.

What the files of a run do not say of themselves is in its folder `basis/`: how the session chose each recipe's
cases, the recipe, and the baselines. The ledger has the ends of the jobs.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from pydantic import Field, ValidationError

from plugins.baselines.accelerators import ACCELERATORS
from plugins.baselines.numbers import numbers
from plugins.baselines.store import Baseline, SiteNumbers, find
from plugins.errors import ConfigError
from plugins.files import write_whole
from plugins.job_files import read_artefacts, read_gpus, read_log
from plugins.judging import recording
from plugins.judging.checkpoints import GB, Saved
from plugins.judging.evidence import Evidence, SiteFacts, runs_of
from plugins.judging.identity import type_in
from plugins.judging.judge import judge
from plugins.judging.judgement import Judgement
from plugins.logs.formats import parser
from plugins.outcome import Outcome
from plugins.recipes.cases import DEFAULT_GPU, Case, Recipe, load_recipe
from plugins.recipes.file import SiteModel
from plugins.record.baseline import AgreedTolerance
from plugins.record.folder import BASIS, ERRORS, OWN_LOG, try_folder
from plugins.record.plan import Plan
from plugins.reports.complaints import complaints, of_each_kind
from plugins.yamlfile import Strict, first_mistake

MOST_STEPS = 1_000_000
"""A recipe of somebody else must not keep the judge busy for hours."""


_LAST_LINES = 8
_LINE_WIDTH = 200
_TAIL = 1 << 18


class Choice(Strict):
    """How a session chooses and judges the cases of a recipe.

    They are those of this `release`, the recipe's own if it is None, on this type of `gpu`. `models` are those that
    the site adds. `promised` is the bandwidth of its shared storage in bytes/s. `network` is how NCCL names the
    network between its nodes, which have `gpus_per_node` GPUs. `versions` are those that the site file states. With
    `strict_last` the published statistic alone decides.

    `own` is the folder of the site's own baselines, "" if there are none or none count. `agreed` is the tolerance
    of an acceptance plan.
    """

    release: str | None = None
    gpu: str = DEFAULT_GPU
    models: tuple[SiteModel, ...] = Field(default=(), strict=False)
    promised: float | None = None
    network: str | None = None
    gpus_per_node: int = Field(default=8, gt=0)
    versions: dict[str, str] = {}
    strict_last: bool = False
    own: str = ""
    agreed: AgreedTolerance | None = None

    def gpu_of(self, case: Case) -> str:
        """The type of accelerator whose baselines the case is judged against."""
        return "cpu" if case.accelerator == "cpu" else self.gpu

    def site_numbers(self, run: str = "", job: str = "", log: str = "") -> SiteNumbers | None:
        """The site's own numbers, as they count for this run, job and log; None if it has none."""
        return SiteNumbers(Path(self.own), run, job, log) if self.own else None

    def baseline(
        self, recipe: Recipe, case: Case, gpu: str, baselines: Path, site: SiteNumbers | None
    ) -> Baseline | None:
        """The number that the case is judged by, with the tolerance that was agreed on. Raises ConfigError."""
        baseline = find(baselines, recipe, case, gpu, site)
        return None if baseline is None else replace(baseline, agreed=self.agreed)


def read_evidence(recipe: Recipe, case: Case, outcome: Outcome, choice: Choice, baselines: Path) -> Evidence:
    """What a case is judged by: its outcome, and the files in the outcome's folder.

    `baselines` is the folder of the published baselines. Raises OSError, or Infrastructure or ConfigError if a
    file is damaged.
    """
    folders = [try_folder(outcome.folder, job.try_number) for job in outcome.repeated]
    folders.append(outcome.folder)
    logs = [read_log(recipe.file.log, folder) for folder in folders]
    if recipe.file.program:
        outcome = replace(outcome, gpu=type_in(case, logs[-1], outcome.gpu))
    site = choice.site_numbers(outcome.run, outcome.known_job, recording.fingerprint(logs[-1]))
    baseline = choice.baseline(recipe, case, outcome.gpu, baselines, site)
    why_none = site.lapsed(recipe, case, outcome.gpu) if site else ""
    tells_of_gpus = recipe.file.program and case.accelerator == "gpu"
    written = outcome.folder / OWN_LOG
    return Evidence(
        case=case,
        outcome=outcome,
        runs=runs_of(outcome, logs, [read_gpus(folder) for folder in folders] if tells_of_gpus else ()),
        numbers=numbers(case, baseline, outcome.gpu, baselines, why_none),
        site=SiteFacts(case.nodes(choice.gpus_per_node), choice.network, choice.promised),
        artefacts=read_artefacts(outcome.folder) if case.mode else None,
        saved=_saved(recipe, case, outcome),
        last_lines=_last_lines(written if written.exists() else outcome.log, parser(recipe.file.log).hints),
        errors=_last_errors(outcome.folder / ERRORS),
        strict_last=choice.strict_last,
    )


def write_basis(run: Path, recipe: Recipe, choice: Choice, baselines: Path) -> None:
    """Keep what the cases of a recipe are judged by in the run's folder. Raises OSError.

    If an earlier session of the run kept it, this one takes its place.
    """
    basis, name = run / BASIS, recipe.name
    suite = basis / "suites" / name
    shutil.rmtree(suite, ignore_errors=True)
    for path in sorted(recipe.folder.rglob("*.yaml")):
        _copy(path, suite / path.relative_to(recipe.folder))
    for path in (baselines / f"{name}.yaml", baselines / ACCELERATORS):
        _copy(path, basis / "baselines" / path.name)
    _copy(Path(choice.own) / f"{name}.yaml" if choice.own else None, basis / "own" / f"{name}.yaml")
    chosen = basis / "choices" / f"{name}.json"
    chosen.parent.mkdir(exist_ok=True)
    write_whole(chosen, choice.model_dump_json(indent=2) + "\n")


def rejudged(run: Path, recipe: str, choice: Choice) -> str:
    """What a run kept of how a recipe's cases are chosen and judged, and would now be otherwise; "" if nothing is.

    `versions` and the folder of the site's own baselines may change. Raises ConfigError if what it kept is damaged.
    """
    kept = f"{BASIS}/choices/{recipe}.json"
    if not (run / kept).exists():
        return ""
    then = Basis(run).of(recipe)[1]
    changes = (
        f"{kept} has {name} {getattr(then, name)}, which would now be {getattr(choice, name)}"
        for name in Choice.model_fields
        if name not in ("own", "versions") and getattr(then, name) != getattr(choice, name)
    )
    return next(changes, "")


def promised_otherwise(plan: Plan, case: Case, choice: Choice) -> str:
    """What the plan of an acceptance promises, and the site file does not; "" if it does."""
    if plan.network not in (None, choice.network):
        return f"network: the plan has {plan.network}, and the site file has {choice.network or 'none'}"
    wanted, saves = plan.storage_gb_per_second, case.mode is not None and case.mode.checkpoint is not None
    given = None if choice.promised is None else choice.promised / GB
    if saves and wanted is not None and (given is None or not math.isclose(given, wanted)):
        has = "none" if given is None else f"{given:g}"
        return (
            f"storage_gb_per_second: the plan has {wanted:g}, and the site file has {has} for {case.recipe}"
        )
    return ""


class Basis:
    """What a run was judged by, as its folder has it."""

    def __init__(self, run: Path) -> None:
        self._folder = run / BASIS
        self.baselines = self._folder / "baselines"
        self._read: dict[str, tuple[Recipe, Choice]] = {}

    def of(self, name: str) -> tuple[Recipe, Choice]:
        """A recipe, and the session's choice for it. Raises ConfigError if one is missing or damaged."""
        if name not in self._read:
            path = self._folder / "choices" / f"{name}.json"
            try:
                choice = Choice.model_validate_json(path.read_bytes())
            except (OSError, ValidationError) as error:
                raise ConfigError(f"{BASIS}/choices/{name}.json: cannot be read: {_why(error)}") from None
            if not (self._folder / "suites" / name / "recipe.yaml").is_file():
                raise ConfigError(f"{BASIS}/suites/{name}/recipe.yaml is missing")
            self._read[name] = self._recipe(name, choice), choice
        return self._read[name]

    def case(self, key: str) -> Case:
        """A case as its recipe has it. Raises ConfigError also if the recipe has none, or one of too many steps."""
        name, _, case_id = key.partition("/")
        case = self.of(name)[0].case(case_id)
        if case is None:
            raise ConfigError(f"{BASIS}/suites/{name} has no case {case_id}")
        if case.steps > MOST_STEPS:
            raise ConfigError(f"{BASIS}/suites/{name}: {case_id} has more than {MOST_STEPS:,} steps")
        return case

    def judge(self, case_key: str, outcome: Outcome) -> Judgement:
        """Judge a case anew. Its headline names the site's own baselines as the session did. Raises as above."""
        case = self.case(case_key)
        recipe, choice = self.of(case.recipe)
        own = self._folder / "own" if choice.own else None
        here = choice.model_copy(update={"own": str(own or "")})
        facts = replace(outcome, gpu=choice.gpu_of(case), versions=choice.versions)
        found = judge(read_evidence(recipe, case, facts, here, self.baselines))
        if own is None:
            return found
        headline = found.verdict.headline.replace(str(own), choice.own)
        return replace(found, verdict=replace(found.verdict, headline=headline))

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


def _saved(recipe: Recipe, case: Case, outcome: Outcome) -> Saved | None:
    """What the job left whose checkpoint this case loads; None if it loads none."""
    if case.after is None:
        return None
    folder = outcome.folder.parent / case.after.id
    return Saved(read_log(recipe.file.log, folder), read_artefacts(folder))


def _last_lines(path: Path | None, hints: Sequence[bytes]) -> tuple[str, ...]:
    """The last lines of a log that are not steps. If a job died, they usually say why."""
    if path is None:
        return ()
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _TAIL))
        lines = file.read().splitlines()
    telling = [line for line in lines if line.strip() and not any(hint in line for hint in hints)]
    return _shown(of_each_kind(telling))


def _last_errors(path: Path) -> tuple[str, ...]:
    """The last error messages that a job printed outside its log."""
    return _shown(complaints(path.read_bytes())) if path.exists() else ()


def _shown(lines: Sequence[bytes]) -> tuple[str, ...]:
    return tuple(
        line.decode("utf-8", errors="replace").strip()[:_LINE_WIDTH] for line in lines[-_LAST_LINES:]
    )
