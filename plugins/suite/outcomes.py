"""Makes pytest's outcome of a test of the verdict on its case, whatever the test's body asserts."""

from __future__ import annotations

import sys
from collections.abc import Generator
from typing import Any

import pytest

from plugins.base.errors import ConfigError, Invalid, Lost, RunError
from plugins.base.words import shown
from plugins.judging.judgement import Judgement
from plugins.judging.verdicts import Verdict
from plugins.record.folder import CASE
from plugins.record.verdict import Kind
from plugins.reports import allure_view
from plugins.reports.ci_files import junit_properties
from plugins.suite.judged import JUDGEMENT, RECORD
from plugins.suite.session import case_of, recipe_of

VERDICT = "pacemark_verdict"
"""The attribute of a test's report with the key of its case, the kind of its verdict, and its headline."""

EXPLAINED = "pacemark_explained"
"""The attribute of a failed test's report that says that its case's verdict is why it failed."""


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, Any, Any]:
    """Show a case in Allure, whether its test goes on or not."""
    try:
        return (yield)
    finally:
        # At the end of the set-up, allure-pytest replaces the name and the description by its own. So this
        # hook wraps that of allure-pytest.
        case, recipe = case_of(item), recipe_of(item.config, item.path)
        if recipe is not None and JUDGEMENT in item.stash:
            allure_view.show(item.config, item.stash[JUDGEMENT], item.stash[RECORD], recipe)
        elif case is not None:
            allure_view.show_unjudged(case, sys.exception())
            allure_view.set_times(item.config, None)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, Any, Any]:
    """Let a judged case last as long as its job did in Allure, and be explained there once."""
    try:
        return (yield)
    finally:
        if JUDGEMENT in item.stash:
            allure_view.set_times(item.config, item.stash[JUDGEMENT].outcome.job.times)
            allure_view.explain_once(item.config, item.stash[JUDGEMENT].verdict)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    """Let go of a judgement behind its test: it has the whole log."""
    try:
        return (yield)
    finally:
        if JUDGEMENT in item.stash:
            del item.stash[JUDGEMENT]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """Fail a test if its verdict fails. Its body may have asked for the judgement."""
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
    """Fail a test whose case is judged, and whose verdict fails."""
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
    seconds = None
    if call.when == "setup" and judgement is not None:
        item.user_properties += junit_properties(item.stash[RECORD])
        seconds = judgement.outcome.job.times.ran
    report = yield
    if seconds is not None:
        # The test itself only waits for the job.
        report.duration = seconds
    error = call.excinfo.value if call.excinfo is not None else None
    if call.excinfo is not None and isinstance(error, RunError | ConfigError):
        report.longrepr = call.excinfo.getrepr(style="value")
        # It begins with the error's class.
        _say(report, str(error))
    case, verdict = case_of(item), _verdict(error, judgement)
    if case is not None:
        _require_no_skip(report, judgement, verdict)
    setattr(report, EXPLAINED, _explained(report, error, judgement))
    if report.failed and judgement is not None and judgement.verdict.fails:
        _say(report, judgement.verdict.headline)
    last = report.when == "call" or (report.when == "setup" and not report.passed)
    # A suite's test may fail for a reason of its own, which pytest shows.
    if case is not None and last and verdict is not None and verdict.fails == report.failed:
        setattr(report, VERDICT, (case.key, str(verdict.kind), verdict.headline))
    return report


def _say(report: pytest.TestReport, text: str) -> None:
    """Let pytest's summary give this text as the reason of a failure, if it gives one."""
    crash = getattr(report.longrepr, "reprcrash", None)
    if crash is not None:
        crash.message = shown(text)


def _require_no_skip(report: pytest.TestReport, judgement: Judgement | None, verdict: Verdict | None) -> None:
    """Let the test of a case fail that is skipped or expected to fail, and whose verdict fails or is not known."""
    fails = verdict.fails if verdict is not None else hasattr(report, "wasxfail")
    if not report.skipped or not fails or report.when == "teardown":
        return
    vars(report).pop("wasxfail", None)
    report.outcome = "failed"
    if judgement is not None and isinstance(report.longrepr, tuple):
        # It says where the test was skipped.
        report.longrepr = shown(judgement.text)


def _verdict(error: BaseException | None, judgement: Judgement | None) -> Verdict | None:
    """How the case of a test ended; None if that is not known."""
    if judgement is not None:
        return judgement.verdict
    if not isinstance(error, RunError):
        return None
    kind = Kind.LOST if isinstance(error, Lost) else Kind.INFRASTRUCTURE
    return Verdict(kind, (str(error),))


def _explained(report: pytest.TestReport, error: BaseException | None, judgement: Judgement | None) -> bool:
    asserted = report.when == "call" and isinstance(error, AssertionError | pytest.fail.Exception)
    return isinstance(error, RunError) or (asserted and judgement is not None and judgement.verdict.fails)
