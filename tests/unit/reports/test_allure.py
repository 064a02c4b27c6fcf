"""What Allure gets besides a case's verdict: the job's times, and titles of cases that were not judged."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import allure
import pytest
from allure_commons import model2

from plugins.base.errors import Lost
from plugins.record.job import Times
from plugins.reports import allure_view
from tests.unit import examples


@pytest.mark.parametrize(
    ("times", "start", "stop"),
    [
        (Times(submitted=1.0, started=10.0, ended=25.5), 10_000, 25_500),
        (Times(submitted=1.0, ended=25.5), 7, 8),
        (None, None, 8),
    ],
)
def test_a_result_lasts_as_long_as_the_job(times: Times | None, start: int | None, stop: int) -> None:
    result = SimpleNamespace(start=7, stop=8)
    listener = SimpleNamespace(allure_logger=SimpleNamespace(get_test=lambda uuid: result))
    config: Any = SimpleNamespace(pluginmanager=SimpleNamespace(getplugin={"allure_listener": listener}.get))
    allure_view.set_times(config, times)
    assert (result.start, result.stop) == (start, stop)


@pytest.mark.parametrize(
    ("before", "after", "files"),
    [
        (model2.TestBeforeResult(status="passed"), model2.TestAfterResult(), 0),
        (model2.TestBeforeResult(status="broken"), model2.TestAfterResult(), 1),
        (model2.TestBeforeResult(status="passed"), model2.TestAfterResult(status="failed"), 1),
        (
            model2.TestBeforeResult(status="passed", attachments=[model2.Attachment("a.txt")]),
            model2.TestAfterResult(),
            1,
        ),
        (
            model2.TestBeforeResult(status="passed", steps=[model2.TestBeforeResult()]),
            model2.TestAfterResult(),
            1,
        ),
    ],
)
def test_a_fixture_that_passed_and_shows_nothing_has_no_file(
    tmp_path: Path, before: model2.TestBeforeResult, after: model2.TestAfterResult, files: int
) -> None:
    writer = allure_view.Writer(tmp_path)
    writer.report_container(model2.TestResultContainer(uuid="1", befores=[before], afters=[after]))
    assert len(list(tmp_path.iterdir())) == files


@pytest.mark.parametrize(
    ("error", "kind"),
    [(Lost("gone"), "lost"), (KeyboardInterrupt(), "infrastructure"), (None, "infrastructure")],
)
def test_a_case_that_was_not_judged_has_a_title(
    error: BaseException | None, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    titles: list[str] = []
    monkeypatch.setattr(allure.dynamic, "title", titles.append)
    allure_view.show_unjudged(examples.case(), error)
    assert titles == [f"{examples.case().key}: {kind}, not judged"]
