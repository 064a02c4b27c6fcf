"""The parts of a suite's test: its cases, `measured`, `expected`, and how a verdict becomes pytest's outcome.

    def test_pretrain(measured, expected):
        assert measured.tokens_per_second == expected.tokens_per_second
        assert measured.mfu == expected.mfu

The job's end comes from the fixture `outcome`, which the code that runs jobs provides.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from plugins.errors import ConfigError, Infrastructure, Invalid, Lost, RunError
from plugins.judging import checkpoints, diagnosis, recording
from plugins.judging.cause import Setting, find_cause
from plugins.judging.checkpoints import Written
from plugins.judging.choice import Choice
from plugins.judging.diagnosis import Diagnosis
from plugins.judging.evidence import read_evidence
from plugins.judging.expected import Promise, Target, Targets, figure
from plugins.judging.judge import judge
from plugins.judging.judgement import Judgement
from plugins.judging.verdicts import Verdict
from plugins.metrics import Measurement
from plugins.outcome import Outcome
from plugins.recipes.cases import Case, Recipe, load_recipe
from plugins.recipes.file import RecipeFile, read_recipe
from plugins.record.folder import CASE
from plugins.record.verdict import Kind
from plugins.reports import allure_view, benchmark_view, junit, results
from plugins.words import shown


@dataclass(frozen=True)
class SiteBaselines:
    """Where the site's own baselines are (None: nowhere), and whether this session records them.

    With `replace`, cases are not judged against them, because the new numbers take their place.
    """

    folder: Path | None = None
    site: str = ""
    record: bool = False
    replace: bool = False

    @property
    def judged(self) -> Path | None:
        return None if self.replace else self.folder


CHOOSE: pytest.StashKey[Callable[[RecipeFile], Choice]] = pytest.StashKey()
"""The session's choice for a recipe, set by the code that knows the site."""

SITE_BASELINES: pytest.StashKey[SiteBaselines] = pytest.StashKey()
"""The site's own baselines, set by the same code."""

VERDICT = "pacemark_verdict"
"""The attribute of a test's report with the key of its case, the kind of its verdict, and its headline."""

JUDGEMENT: pytest.StashKey[Judgement] = pytest.StashKey()
RECIPE: pytest.StashKey[Recipe] = pytest.StashKey()

EXPLAINED = "pacemark_explained"
"""The attribute of a failed test's report that says that its case's verdict is why it failed."""

SHORT = "pacemark_short"
"""The attribute of a test's report that says that scaling fell short."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("pacemark")
    group.addoption(
        "--variant",
        action="append",
        default=[],
        metavar="NAME",
        help="collect a recipe's cases in this variant as well, e.g. sharp; may be given several times",
    )


def recipe_of(config: pytest.Config, path: Path) -> Recipe | None:
    """The recipe in the folder of this test file, in the session's release; None if there is none."""
    folder = path.parent
    if not (folder / "recipe.yaml").exists():
        return None
    choice = choice_for(config, read_recipe(folder))
    return load_recipe(folder, choice.release, choice.gpu, choice.models)


def choice_for(config: pytest.Config, recipe: RecipeFile) -> Choice:
    """The session's choice for this recipe."""
    choose = config.stash.get(CHOOSE, None)
    return choose(recipe) if choose else Choice()


def case_of(item: pytest.Item) -> Case | None:
    """The case that a test runs; None if it runs no case."""
    spec = getattr(item, "callspec", None)
    case = spec.params.get("case") if spec else None
    return case if isinstance(case, Case) else None


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make a test of every case of the recipe beside the test file, and of a variant's cases if asked for."""
    if "case" not in metafunc.fixturenames:
        return
    try:
        recipe = recipe_of(metafunc.config, metafunc.definition.path)
    except ConfigError as error:
        raise pytest.UsageError(str(error)) from None
    if recipe is None:
        return
    metafunc.parametrize(
        "case",
        [
            pytest.param(
                case, id=case.id, marks=pytest.mark.case(size=case.size, dtype=case.dtype, gpus=case.gpus)
            )
            for case in recipe.cases
            if _is_for(metafunc, case)
        ],
    )


def all_cases(config: pytest.Config) -> list[Case]:
    """The cases of all suites that this session can choose from: the usual ones and those of its variants."""
    variants = config.getoption("--variant")
    recipes = [recipe_of(config, path) for path in sorted(config.rootpath.glob("suites/*/recipe.yaml"))]
    return [
        case
        for recipe in recipes
        if recipe and not recipe.unfit
        for case in recipe.cases
        if not case.variant or (case.after or case).variant in variants
    ]


def _is_for(metafunc: pytest.Metafunc, case: Case) -> bool:
    """Whether a test is for this case.

    If the test has the mark `variant`, it is for that variant's cases only. Cases whose pace is not judged
    have a test with this mark. The mark's last name is the variant's own, the first the one to ask for.
    """
    own = metafunc.definition.get_closest_marker("variant")
    if own is not None or not case.is_timed:
        return own is not None and case.variant == own.args[-1]
    return not case.variant or case.variant in metafunc.config.getoption("--variant")


def pytest_pycollect_makeitem(
    collector: pytest.Collector, name: str, obj: object
) -> list[pytest.Item] | None:
    """Leave out a test with the mark `variant`, unless its variant was asked for."""
    own = [mark for mark in getattr(obj, "pytestmark", []) if mark.name == "variant"]
    asked = collector.config.getoption("--variant")
    return [] if own and own[0].args[0] not in asked else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    known: set[str] = set()
    for item in items:
        if case_of(item) is not None:
            benchmark_view.prepare(item)
            recipe = recipe_of(config, item.path)
            variants = recipe.file.variants if recipe else {}
            known |= {name for name, variant in variants.items() if not variant.after}
    unknown = sorted(set(config.getoption("--variant")) - known)
    if unknown and not hasattr(config, "workerinput"):
        raise pytest.UsageError(
            f"--variant {', '.join(unknown)}: none of these recipes has it; known: {', '.join(sorted(known)) or 'none'}"
        )


@pytest.fixture
def judgement(request: pytest.FixtureRequest, case: Case, outcome: Outcome) -> Judgement:
    """The judged case: its log is checked and compared with the baseline, and its record is written.

    Because it asks for `case`, each test that asks for a figure is made for every case.
    """
    try:
        found = request.node.stash.get(JUDGEMENT, None) or judge_item(request.node, outcome)
    except OSError as error:
        raise Infrastructure(f"its files in the results folder cannot be read or written: {error}") from None
    if found.measurement is not None:
        benchmark_view.show(request, found)
    return found


def judge_item(item: pytest.Item, outcome: Outcome) -> Judgement:
    """Judge the case of a test, before or while the test runs, and write its record."""
    judged, setting = judge_case(item, outcome)
    judgement = explained(judged, lambda: find_cause(judged, setting))
    site_baselines = item.config.stash.get(SITE_BASELINES, SiteBaselines())
    results.write_case(judgement, _offer(setting.recipe, judgement, site_baselines))
    item.stash[JUDGEMENT] = judgement
    item.stash[RECIPE] = setting.recipe
    return judgement


def judge_case(item: pytest.Item, outcome: Outcome) -> tuple[Judgement, Setting]:
    """Judge the case of a test, and write nothing. Returns also where it is judged."""
    config, case, recipe = item.config, case_of(item), recipe_of(item.config, item.path)
    if case is None or recipe is None:
        raise ConfigError(f"{item.path}: a suite's test stands beside its recipe.yaml")
    choice, recorded = (
        choice_for(config, recipe.file),
        config.stash.get(SITE_BASELINES, SiteBaselines()).judged,
    )
    setting = Setting(recipe, choice, config.rootpath / "baselines", recorded)
    return judge(read_evidence(recipe, case, outcome, choice, setting.baselines)), setting


def explained(judgement: Judgement, find: Callable[[], Diagnosis | None]) -> Judgement:
    """The judgement with what `find` says of its cause. A diagnosis changes no verdict, even if it fails."""
    try:
        return replace(judgement, diagnosis=find())
    except Exception as error:
        why = f"Pacemark itself failed: {type(error).__name__}: {error}"
        return replace(judgement, diagnosis=diagnosis.undiagnosed(why))


def _offer(recipe: Recipe, judgement: Judgement, site_baselines: SiteBaselines) -> Mapping[str, Any] | None:
    """What the case offers for the site's own baselines, for its record."""
    if not site_baselines.record or judgement.case.checkpoint is not None:
        return None
    outcome = judgement.outcome
    seconds = outcome.job.times.ended
    ended = datetime.fromtimestamp(seconds, UTC) if seconds else datetime.now(UTC)
    origin = recording.Origin(
        site=site_baselines.site,
        framework=recipe.file.title,
        run=outcome.run,
        date=f"{ended:%Y-%m-%d}",
    )
    if judgement.case.mode is not None:
        digest = recording.digest(judgement, origin)
        return {"refused": digest} if isinstance(digest, str) else {"digest": digest}
    offered = recording.candidate(judgement, origin)
    if isinstance(offered, str):
        return {"refused": offered}
    return offered.model_dump(mode="json", exclude_defaults=True)


@pytest.fixture
def measured(judgement: Judgement) -> Measurement | None:
    """What the case measured. If its run was invalid, it is None, and the test fails before its body runs.

    If the job did not run to its end, the fixture raises an error. If there is no baseline, or if the job was
    not submitted because what it needs is not there, the test is skipped.
    """
    _require_figures(judgement)
    return judgement.measurement


@pytest.fixture
def written(judgement: Judgement) -> Written | None:
    """The checkpoint that the case wrote. In all other respects it is like `measured`."""
    _require_figures(judgement)
    return judgement.written


@pytest.fixture
def loaded(judgement: Judgement) -> float | None:
    """The seconds in which the case loaded a checkpoint. In all other respects it is like `measured`."""
    _require_figures(judgement)
    return judgement.log.loaded


@pytest.fixture
def lacking(judgement: Judgement) -> list[str]:
    """What a run in another mode should have left on the cluster, and did not. Otherwise like `measured`."""
    _require_figures(judgement)
    # An invalid run fails before its test's body.
    return [] if judgement.verdict.kind is Kind.PASSED else [judgement.verdict.headline]


def _require_figures(judgement: Judgement) -> None:
    kind, text = judgement.verdict.kind, judgement.text
    if kind is Kind.INFRASTRUCTURE:
        raise Infrastructure(text)
    if kind is Kind.LOST:
        raise Lost(text)
    if kind in (Kind.NO_BASELINE, Kind.SKIPPED):
        pytest.skip(shown(judgement.verdict.headline))


@pytest.fixture
def expected(judgement: Judgement, measured: Measurement | None) -> Targets | None:
    """What the case should reach by its baseline; None if its run was invalid."""
    target = judgement.expected
    if target is None or measured is None:
        return None
    band = target.baseline.tolerance.slower, target.baseline.tolerance.faster
    return Targets(
        Target(target.tokens_per_second, "tokens/s", measured.tokens_per_second, *band, judgement),
        Target(target.mfu, "% MFU", measured.mfu, *band, judgement),
    )


@pytest.fixture
def promised(judgement: Judgement, written: Written | None) -> Promise | None:
    """What the shared storage should reach by the site file; None if the run was invalid."""
    if written is None or written.promised is None:
        return None
    band = checkpoints.SLOWER, checkpoints.FASTER
    return Promise(Target(written.promised, "bytes/s", written.bytes_per_second, *band, judgement))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, Any, Any]:
    """Show a case in Allure, whether its test goes on or not."""
    try:
        return (yield)
    finally:
        # At the end of the set-up, allure-pytest replaces the name and the description by its own. So this
        # hook wraps that of allure-pytest.
        case = case_of(item)
        if JUDGEMENT in item.stash:
            allure_view.show(item.stash[JUDGEMENT], item.stash[RECIPE])
        elif case is not None:
            allure_view.show_unjudged(case, sys.exception())
            allure_view.set_times(item.config, None)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, Any, Any]:
    """Let a judged case last as long as its job did in Allure."""
    try:
        return (yield)
    finally:
        if JUDGEMENT in item.stash:
            allure_view.set_times(item.config, item.stash[JUDGEMENT].outcome.job.times)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """Fail a test if its verdict fails, whatever its body asserts."""
    judgement = item.stash.get(JUDGEMENT, None)
    if judgement is not None and judgement.verdict.kind is Kind.INVALID:
        raise Invalid(judgement.text)
    try:
        result = yield
    except (pytest.skip.Exception, pytest.xfail.Exception):
        _require_verdict(item)
        raise
    _require_verdict(item)
    judgement = item.stash.get(JUDGEMENT, None)
    if judgement is None:
        if case_of(item) is not None and recipe_of(item.config, item.path) is not None:
            pytest.fail("the case was not judged: its test asks for none of its figures", pytrace=False)
        return result
    if not (judgement.outcome.folder / CASE).exists():
        pytest.fail(f"the record of the case is gone: {judgement.outcome.folder / CASE}", pytrace=False)
    return result


def _require_verdict(item: pytest.Item) -> None:
    """Fail a test whose case is judged, and whose verdict fails. Its body may have asked for the judgement."""
    judgement = item.stash.get(JUDGEMENT, None)
    if judgement is not None and judgement.verdict.fails:
        pytest.fail(shown(judgement.text), pytrace=False)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show what went wrong, without the place in Pacemark that noticed it, and how long the job ran.

    pytest's own hook, which obeys the mark `xfail`, is inside this one.
    """
    judgement = item.stash.get(JUDGEMENT, None)
    fresh = judgement if call.when == "setup" else None
    if fresh is not None:
        item.user_properties += junit.properties(fresh)
    report = yield
    if fresh is not None and (seconds := junit.seconds(fresh)) is not None:
        # The test itself only waits for the job.
        report.duration = seconds
    if call.excinfo is not None and isinstance(call.excinfo.value, RunError | ConfigError):
        report.longrepr = call.excinfo.getrepr(style="value")
        if (crash := getattr(report.longrepr, "reprcrash", None)) is not None:
            # It begins with the error's class.
            crash.message = shown(str(call.excinfo.value))
    case, verdict = case_of(item), _verdict(call, judgement)
    fails = verdict.fails if verdict is not None else hasattr(report, "wasxfail")
    if case is not None and report.skipped and fails and call.when != "teardown":
        vars(report).pop("wasxfail", None)
        report.outcome = "failed"
        if judgement is not None and isinstance(report.longrepr, tuple):
            # It says where the test was skipped.
            report.longrepr = shown(judgement.text)
    setattr(report, EXPLAINED, _explained(call, judgement))
    setattr(report, SHORT, call.excinfo is not None and getattr(call.excinfo.value, "fell", False))
    crash = getattr(report.longrepr, "reprcrash", None)
    if report.failed and crash is not None and judgement is not None and judgement.verdict.fails:
        crash.message = shown(judgement.verdict.headline)
    last = call.when == "call" or (call.when == "setup" and not report.passed)
    # A suite's test may fail for a reason of its own, which pytest tells.
    if case is not None and last and verdict is not None and verdict.fails == report.failed:
        setattr(report, VERDICT, (case.key, str(verdict.kind), verdict.headline))
    return report


def _verdict(call: pytest.CallInfo[None], judgement: Judgement | None) -> Verdict | None:
    """How the case of a test ended; None if that is not known."""
    if judgement is not None:
        return judgement.verdict
    error = call.excinfo.value if call.excinfo is not None else None
    if not isinstance(error, RunError):
        return None
    kind = Kind.LOST if isinstance(error, Lost) else Kind.INFRASTRUCTURE
    return Verdict(kind, f"{kind}: {error}")


def _explained(call: pytest.CallInfo[None], judgement: Judgement | None) -> bool:
    error = call.excinfo.value if call.excinfo else None
    asserted = call.when == "call" and isinstance(error, AssertionError | pytest.fail.Exception)
    return isinstance(error, RunError) or (asserted and judgement is not None and judgement.verdict.fails)


def pytest_assertrepr_compare(op: str, left: object, right: object) -> list[str] | None:
    """The failure message of `measured == expected`."""
    if op != "==" or not isinstance(right, Target) or not isinstance(left, int | float):
        return None
    return [f"{figure(left)} {right.unit} == {right!r}", *shown(right.judgement.text).splitlines()]
