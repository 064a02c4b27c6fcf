"""What a run leaves beside its page: summary.json, whose schema in docs/ is that of the types, and results for Allure."""

from __future__ import annotations

import os
import subprocess
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import allure
import pytest
from allure_commons.model2 import Attachment
from allure_commons.model2 import TestAfterResult as After
from allure_commons.model2 import TestBeforeResult as Before
from allure_commons.model2 import TestResultContainer as Container

from fixtures.runs.ledger import Ledger
from plugins.base.errors import Lost
from plugins.record.case import CaseRecord
from plugins.record.job import Job, JobRef, JobState, Phase, Times
from plugins.record.lines import JOBS_LOG
from plugins.record.stored import case_as_json
from plugins.reports import allure_view
from plugins.reports.checkout import commit_of
from tests import schema
from tests.unit import examples
from tests.unit.cluster import NARROW, WIDE
from tests.unit.jobs_log import planned


def test_the_schema_in_the_repository_is_that_of_the_types() -> None:
    assert schema.PATH.read_text() == schema.schema(), "write it anew: python -m tests.schema"


def test_a_case_that_was_not_judged_has_the_same_keys() -> None:
    job = Job(
        ref=JobRef(NARROW.recipe, NARROW.id, "name"), state=JobState(Phase.FAILED, "FAILED", nodes="n1")
    )
    record = case_as_json(CaseRecord.unjudged(job, "stopped"))
    optional = {"expected_range", "isolation", "slow_gpus"}
    assert set(record) == {field.name for field in fields(CaseRecord)} - optional
    assert record["job"]["nodes"] == "n1"


def test_gpu_hours_are_those_of_all_jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = Ledger.create(tmp_path / JOBS_LOG, "run", "lab")
    ledger.plan([planned(NARROW, "slurm", "a"), planned(WIDE, "replay", "b")])
    assert ledger.gpu_hours() == 0
    monkeypatch.setattr("time.time", lambda: 10_000.0)
    for case, started in ((NARROW, 6400.0), (WIDE, 0.0)):
        ledger.observe(case.key, JobState(Phase.RUNNING), started)
    assert ledger.gpu_hours() == NARROW.gpus
    ledger.try_again(NARROW.key, failure="infrastructure", why="a node died")
    ledger.observe(NARROW.key, JobState(Phase.RUNNING), 8200.0)
    # The cluster has started it twice.
    ledger.observe(NARROW.key, JobState(Phase.SUCCEEDED), 8200.0, 900.0)
    ledger.end(NARROW.key)
    monkeypatch.setattr("time.time", lambda: 20_000.0)
    assert ledger.gpu_hours() == 1.75 * NARROW.gpus
    entry = ledger.entry(NARROW.key)
    assert entry is not None
    assert entry.gpu_hours == 0.75 * NARROW.gpus


def git(folder: Path, *command: str) -> str:
    who = ("-c", "user.name=x", "-c", "user.email=x@localhost")
    return subprocess.run(
        ["git", *who, *command], cwd=folder, check=True, capture_output=True, text=True
    ).stdout


def test_the_commit_of_a_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert commit_of(tmp_path) == (None, None)
    git(tmp_path, "init", "-b", "main")
    assert commit_of(tmp_path) == (None, None)
    (tmp_path / "file").write_text("1")
    (tmp_path / "inner").mkdir()
    git(tmp_path, "add", "file")
    git(tmp_path, "commit", "-m", "first")
    # As a hook of git would set it.
    monkeypatch.setenv("GIT_DIR", "/nonexistent")
    head = (tmp_path / ".git" / "refs" / "heads" / "main").read_text().strip()
    index = (tmp_path / ".git" / "index").stat().st_ino
    os.utime(tmp_path / "file", (0, 0))
    assert commit_of(tmp_path) == (head, False)
    # Whoever writes it locks it first, and a killed session would leave that lock behind.
    assert (tmp_path / ".git" / "index").stat().st_ino == index
    (tmp_path / "file").write_text("2")
    assert commit_of(tmp_path) == (head, True)
    # Somebody's checkout that has Pacemark in a folder tells nothing of Pacemark.
    assert commit_of(tmp_path / "inner") == (None, None)
    monkeypatch.setenv("PATH", "/nonexistent")
    assert commit_of(tmp_path) == (None, None)


# Allure


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
        (Before(status="passed"), After(), 0),
        (Before(status="broken"), After(), 1),
        (Before(status="passed"), After(status="failed"), 1),
        (Before(status="passed", attachments=[Attachment("a.txt")]), After(), 1),
        (Before(status="passed", steps=[Before()]), After(), 1),
    ],
)
def test_a_fixture_that_passed_and_shows_nothing_has_no_file(
    tmp_path: Path, before: Before, after: After, files: int
) -> None:
    writer = allure_view.Writer(tmp_path)
    writer.report_container(Container(uuid="1", befores=[before], afters=[after]))
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
    assert titles == [f"{kind}, not judged: 70b fp8 512 GPUs"]
