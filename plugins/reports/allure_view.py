"""Allure's view of a judgement: labels, parameters, steps, attachments, links.

If Allure writes no results, nothing happens.
"""

from __future__ import annotations

import contextlib
import re
from base64 import b64encode
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import allure
import allure_commons
import pytest
from allure_commons.logger import AllureFileLogger
from allure_commons.model2 import Parameter, StatusDetails, TestResult, TestResultContainer
from allure_commons.types import ParameterMode
from allure_commons.utils import now, uuid4

from plugins.base.errors import Lost
from plugins.base.files import write_json, write_whole
from plugins.base.words import as_html, counted, shown
from plugins.judging.judgement import Judgement
from plugins.judging.verdicts import Verdict
from plugins.modes.profiles import shares_svg
from plugins.modes.traces import messages_svg
from plugins.recipes.cases import Case, Recipe
from plugins.record.case import CaseRecord
from plugins.record.folder import CASE, GPUS_PLOT, GPUS_TABLE, SENT, STEPS
from plugins.record.job import Times
from plugins.record.summary import Summary
from plugins.record.verdict import Kind
from plugins.reports.plot import drawable, steps_svg

# In the order of Allure's tab: the verdicts on the cluster's pace come first.
_CATEGORIES = (
    Kind.TOO_SLOW,
    Kind.TOO_FAST,
    Kind.NOISY,
    Kind.INVALID,
    Kind.INFRASTRUCTURE,
    Kind.LOST,
    Kind.NO_BASELINE,
    Kind.SKIPPED,
)
_STATUSES = {Kind.NO_BASELINE: ["skipped"], Kind.SKIPPED: ["skipped"]}
_CHARTS = [
    {"type": "statusDynamics", "title": "The last runs on this site"},
    {"type": "statusTransitions", "title": "Cases that changed since the run before"},
]
# Nothing of a case: it is the pytest that waited for it.
_OF_PYTEST = ["parentSuite", "suite", "subSuite", "package", "host", "thread", "framework", "language"]
_LOG_TAIL = 65_536
CONFIG = "allurerc.json"


def show(config: pytest.Config, judgement: Judgement, record: CaseRecord, recipe: Recipe) -> None:
    """Put all that is known about the case into the running test's Allure result. `record` is that of the judgement."""
    case, result = judgement.case, _result(config)
    if result is None:
        return
    allure.dynamic.epic(recipe.file.title)
    allure.dynamic.feature(case.size)
    allure.dynamic.story(case.dtype)
    allure.dynamic.title(_title(case, record.verdict, record.deviation))
    allure.dynamic.tag(str(record.verdict), shown(judgement.outcome.gpu))
    for parameter in result.parameters:
        # They are its identity, by their values in Python.
        parameter.mode = ParameterMode.HIDDEN.value
    # These are not: a changed table must not break a case's history.
    known = {"id": case.key, "release": case.release, **case.configuration()}
    result.parameters += [Parameter(name, str(value), excluded=True) for name, value in known.items()]
    allure.dynamic.link(recipe.file.source, name="the recipe")
    if judgement.expected is not None and judgement.expected.baseline.cell.recorded is None:
        allure.dynamic.link(judgement.expected.baseline.table.source, name="the baseline's source")
    # HTML, because in Markdown a line of a log could end the block of code and begin markup.
    allure.dynamic.description_html(_plot(judgement, record) + as_html(judgement.text))
    _steps(judgement)


def show_unjudged(case: Case, error: BaseException | None) -> None:
    """Give the running test's Allure result a title, if its set-up ended before the case was judged."""
    kind = Kind.LOST if isinstance(error, Lost) else Kind.INFRASTRUCTURE
    allure.dynamic.title(_title(case, f"{kind}, not judged"))


def add_unjudged(case: Case, why: str) -> None:
    """Write a result of a case whose test was ended by no process, so that none has written one."""
    title, at = _title(case, f"{Kind.INFRASTRUCTURE}, not judged"), now()
    result = TestResult(uuid=uuid4(), name=title, status="broken", start=at, stop=at)
    result.statusDetails = StatusDetails(message=shown(f"{Kind.INFRASTRUCTURE}: {why}"))
    result.parameters = [Parameter("id", case.key, excluded=True)]
    allure_commons.plugin_manager.hook.report_result(result=result)


def set_times(config: pytest.Config, times: Times | None) -> None:
    """Let the running test's Allure result last as long as the case's job did.

    `times` is None if the case was not judged. Then the result has no beginning, because of a case's results
    Allure shows the one that began last: here that of the session that went on with the run.
    """
    result = _result(config)
    if result is None:
        return
    if times is None:
        result.start = None
    elif times.started is not None and times.ended is not None:
        result.start, result.stop = round(1000 * times.started), round(1000 * times.ended)


def explain_once(config: pytest.Config, verdict: Verdict) -> None:
    """Let the running test's Allure result give the headline as the reason of its status: the description has the rest."""
    result, headline = _result(config), shown(verdict.headline)
    details = result and result.statusDetails
    # Any other reason is of the test itself.
    if details and headline.partition("\n")[0] in details.message:
        details.message, details.trace = headline, None


def write_environment(folder: Path, summary: Summary) -> None:
    """Write what Allure shows as the run's environment, of its record. Raises OSError."""
    accepted = summary.acceptance
    environment: dict[str, str] = {"site": summary.site, "run": summary.run}
    if accepted is not None:
        environment |= {"acceptance": accepted.decision, "acceptance_plan": accepted.digest}
    environment |= summary.versions
    lines = [f"{name}={value}" for name, value in environment.items()]
    write_whole(folder / "environment.properties", "\n".join(lines) + "\n")


def write_run(folder: Path, run: Path, summary: Summary) -> None:
    """Write what Allure shows about the whole run: its environment, categories and charts.

    There is a category for each verdict. `folder` has Allure's results, from which Allure 2 reads the categories.
    `run` is the run's folder, which gets the configuration of Allure 3: the command that opens the report names it.
    `summary` is the run's record. Raises OSError if they cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    write_environment(folder, summary)
    categories = [
        {
            "name": str(kind),
            # Any line of the message may carry the verdict.
            "messageRegex": rf"[\s\S]*\b{re.escape(str(kind))}: [\s\S]*",
            "matchedStatuses": _STATUSES.get(kind, ["failed", "broken"]),
        }
        for kind in _CATEGORIES
    ]
    write_json(folder / "categories.json", categories)
    awesome = {
        "reportName": "Pacemark: training pace",
        "groupBy": ["epic", "feature", "story"],
        "defaultSortBy": "status,asc",
        "sections": ["charts"],
        "charts": _CHARTS,
    }
    settings = {
        "name": f"{summary.site}, {run.name}",
        "categories": categories,
        # Allure itself adds a run to its history when a report of it is made.
        "historyPath": str((run.parent / f"allure-history-{summary.site}.jsonl").resolve()),
        "historyLimit": 20,
        "hideLabels": _OF_PYTEST,
        "plugins": {"awesome": {"options": awesome}},
    }
    write_json(run / CONFIG, settings)


class Writer(AllureFileLogger):  # type: ignore[misc]
    """Allure's own, which writes a file for each fixture of each test: six for a case, and no reader needs those that passed."""

    @allure_commons.hookimpl  # type: ignore[untyped-decorator]
    def report_container(self, container: TestResultContainer) -> None:
        """Write what set-up and tear-down did, if that failed or shows anything."""
        parts = (*container.befores, *container.afters)
        if any(part.status not in (None, "passed") or part.steps or part.attachments for part in parts):
            super().report_container(container)


class Lenient:
    """A plug-in of Allure: if results cannot be written, it says so once, and the session goes on.

    The folder may be full, read-only or gone while jobs run that only this session cancels.
    """

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._told = False

    @allure_commons.hookimpl(wrapper=True)  # type: ignore[untyped-decorator]
    def report_result(self) -> Generator[None, Any, Any]:
        try:
            return (yield)
        except OSError as error:
            if not self._told:
                self._told = True
                self._tell(f"Allure's results cannot be written any more: {error}")
            return None

    report_container = report_attached_file = report_attached_data = report_result


def _result(config: pytest.Config) -> Any:
    """The running test's result; None if Allure writes none."""
    listener = config.pluginmanager.getplugin("allure_listener")
    return listener and listener.allure_logger.get_test(None)


def _plot(judgement: Judgement, record: CaseRecord) -> str:
    """The step times as HTML, in which Allure shows no SVG but as an image; "" if there are none."""
    seconds = drawable(judgement.case.means.times(judgement.log.steps))
    if not seconds:
        return ""
    image = b64encode(steps_svg(record, seconds).encode()).decode()
    return f'<img alt="step times" width="100%" src="data:image/svg+xml;base64,{image}">'


def _title(case: Case, verdict: str, deviation: float | None = None) -> str:
    """`too slow -6.9 %: 70b fp8 512 GPUs`. Allure's list of the cases shows nothing else."""
    percent = "" if deviation is None else f" {deviation:+.1f} %"
    name = " ".join([case.size, case.dtype, counted(case.gpus, "GPU"), case.node])
    return f"{verdict}{percent}: {name.strip()}"


def _steps(judgement: Judgement) -> None:
    """The course of the case in five steps, each with its files."""
    outcome, folder, log = judgement.outcome, judgement.outcome.folder, judgement.log
    times = outcome.job.times
    with allure.step(shown(f"provision: {outcome.setup}")):
        pass
    with allure.step(shown(f"launch: job {outcome.job.ref.id or 'none'}")):
        _file(folder / SENT, "what was sent", allure.attachment_type.TEXT)
    durations = {"queued": times.queued, "ran": times.ran}
    lasted = [f"{word} {seconds:.0f} s" for word, seconds in durations.items() if seconds is not None]
    with allure.step(shown("run: " + ", ".join([outcome.job.state.raw or outcome.job.failure, *lasted]))):
        _tail(outcome.log)
    with allure.step(f"parse: {len(log.steps)} {judgement.case.means.unit.name}"):
        _file(folder / STEPS, "steps", allure.attachment_type.CSV)
        _file(folder / GPUS_TABLE, "GPUs by NVML", allure.attachment_type.CSV)
        _file(folder / GPUS_PLOT, "GPUs by NVML, plotted", allure.attachment_type.SVG)
    with allure.step(f"judge: {judgement.verdict.kind}"):
        _file(folder / CASE, "measurement", allure.attachment_type.JSON)
        for name, svg in _plots(judgement):
            allure.attach(svg, name, allure.attachment_type.SVG)


def _plots(judgement: Judgement) -> Iterator[tuple[str, str]]:
    """The plots of what a run in another mode left on the cluster."""
    artefacts = judgement.artefacts
    if artefacts is not None and artefacts.trace is not None:
        yield "bytes by size of message", messages_svg(artefacts.trace, judgement.case.key)
    if artefacts is not None and artefacts.profiles:
        yield "shares of the profiled window", shares_svg(artefacts.profiles)


def _file(path: Path, name: str, kind: allure.attachment_type) -> None:
    # Of a file, Allure copies more than the content, which takes longer.
    with contextlib.suppress(FileNotFoundError):
        allure.attach(path.read_bytes(), name, kind)


def _tail(path: Path | None) -> None:
    if path is None:
        return
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _LOG_TAIL))
        text = shown(file.read().decode("utf-8", errors="replace"))
    allure.attach(text, "the end of the log", allure.attachment_type.TEXT)
