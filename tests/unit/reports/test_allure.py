"""What Allure gets besides a case's verdict: the job's times, titles of cases that were not judged, earlier runs."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import allure
import pytest
from allure_commons import model2

from plugins.errors import Lost
from plugins.record.job import Times
from plugins.reports import allure_history, allure_view
from plugins.reports.allure_history import HISTORY, MOST_RUNS, POINT, HistoryReport
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


def made(results: Path, run: str, site: str = "lab", **changed: Any) -> Path:
    folder = results / run
    (folder / "allure").mkdir(parents=True)
    result = {
        "uuid": run,
        "name": "a case",
        "fullName": "suites#test",
        "testCaseId": "17",
        "status": "passed",
        "start": 1000,
        "stop": 3000,
        "parameters": [{"name": "case", "value": "x"}, {"name": "gbs", "value": "8", "excluded": True}],
        **changed,
    }
    (folder / "allure" / f"{run}-result.json").write_text(json.dumps(result))
    write_history(folder, site)
    return folder


def write_history(folder: Path, site: str = "lab") -> None:
    summary: Any = SimpleNamespace(site=site, ended=4.0)
    HistoryReport().write(summary, folder)


def history(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / HISTORY).read_text().splitlines()]


def test_the_history_of_a_run_is_of_the_earlier_runs_on_its_site(tmp_path: Path) -> None:
    first = made(tmp_path, "run-1", status="failed")
    made(tmp_path, "run-2", "another site")
    made(tmp_path, "run-5")
    third = made(tmp_path, "run-3")
    assert history(first) == []
    (found,) = history(third)
    assert (found["uuid"], found["timestamp"]) == ("run-1", 4000)
    ((identity, case),) = found["testResults"].items()
    assert (case["status"], case["duration"], case["historyId"]) == ("failed", 2000, identity)
    assert found["knownTestCaseIds"] == [identity.partition(".")[0]]


def test_only_the_last_runs_are_read_and_kept_oldest_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = [made(tmp_path, f"run-{number:02d}") for number in range(MOST_RUNS + 3)]
    assert [point["uuid"] for point in history(runs[-1])] == [run.name for run in runs[2:-1]]
    points, read = list[Path](), allure_history._line

    def counted(path: Path, site: str) -> str:
        points.append(path)
        return read(path, site)

    monkeypatch.setattr(allure_history, "_line", counted)
    write_history(runs[-1])
    assert len(points) == MOST_RUNS


def test_of_a_case_that_a_session_went_on_with_the_last_result_counts(tmp_path: Path) -> None:
    folder = made(tmp_path, "run-1")
    again = json.loads(next((folder / "allure").iterdir()).read_text())
    (folder / "allure" / "0-result.json").write_text(json.dumps({**again, "start": 2000, "status": "failed"}))
    write_history(folder)
    point = json.loads((folder / POINT).read_text())
    assert [case["status"] for case in point["testResults"].values()] == ["failed"]


@pytest.mark.parametrize("text", ["", "[]", "{", '{"name": 5}', "[" * 100_000])
def test_damaged_files_cost_their_run_its_point(tmp_path: Path, text: str) -> None:
    made(tmp_path, "run-1")
    (tmp_path / "run-1" / POINT).write_text(text)
    folder = made(tmp_path, "run-2")
    (folder / "allure" / "1-result.json").write_text(text)
    write_history(folder)
    assert history(folder) == []
    assert len(json.loads((folder / POINT).read_text())["testResults"]) == 1
