"""Within a process each log is parsed once and each end of a job is judged once, and the disk has the last word."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import plugins.judging.job_files
import plugins.suite.judged
from plugins.isolation.probes import Answer, Ending
from plugins.judging.choice import Choice, Repeats, Setting
from plugins.judging.job_files import MOST_PARSED, ParsedLogs
from plugins.judging.judge import another_run
from plugins.logs.formats import read
from plugins.record.folder import LOG, keep_try
from plugins.record.job import Job
from plugins.record.outcome import Isolated, Outcome
from plugins.record.verdict import Kind
from plugins.suite.judged import Judge
from tests.unit import examples
from tests.unit.examples import nemo2_text, times

CASE = examples.case()
SETTING = Setting(examples.llama3(), Choice(), examples.BASELINES)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How many logs were parsed, and how many cases judged."""
    counts: Counter[str] = Counter()

    def count(module: Any, name: str, word: str) -> None:
        plain: Callable[..., Any] = getattr(module, name)

        def counting(*values: Any) -> Any:
            counts[word] += 1
            return plain(*values)

        monkeypatch.setattr(module, name, counting)

    count(plugins.judging.job_files, "read", "parsed")
    count(plugins.suite.judged, "judge", "judged")
    return counts


def ended(folder: Path, text: str, *earlier: Job) -> Outcome:
    """The end of the case's job, whose log says this."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / LOG).write_text(text)
    return replace(examples.outcome(), folder=folder, log=folder / LOG, earlier=earlier)


def undecided(seed: int) -> str:
    """A log whose pace is at the limit of the band."""
    dice, limit = random.Random(seed), 1 / (1 - 0.05)
    return nemo2_text([examples.STEP_TIME * limit * dice.gauss(1, 0.01) for _ in range(50)])


def test_the_fleet_and_the_test_of_a_case_share_one_judgement(tmp_path: Path, counted: Counter[str]) -> None:
    judge, outcome = Judge(), ended(tmp_path, nemo2_text(times()))
    asked = judge.judge(CASE, outcome, SETTING)
    assert another_run(asked, Repeats()) == ""
    # The test knows besides what probes told of the case's nodes.
    known = replace(outcome, isolated=Isolated(Answer(Ending.CANNOT_TELL, "too few probes"), 1, 0.5))
    assert judge.judge(CASE, known, SETTING) is asked
    assert counted == {"parsed": 1, "judged": 1}


def test_each_of_several_runs_is_parsed_once_though_its_log_moves(
    tmp_path: Path, counted: Counter[str]
) -> None:
    judge, first = Judge(), ended(tmp_path, undecided(0))
    assert "standard errors" in another_run(judge.judge(CASE, first, SETTING), Repeats())
    keep_try(tmp_path, 1)
    before = replace(first.job, failure="repeated", try_number=1)
    second = ended(tmp_path, undecided(1), before)
    judged = judge.judge(CASE, second, SETTING)
    assert len(judged.runs) == 2
    assert judge.judge(CASE, second, SETTING) is judged
    assert counted == {"parsed": 2, "judged": 2}


@pytest.mark.parametrize("kept_time", [False, True])
def test_a_log_that_changed_is_parsed_and_judged_again(
    tmp_path: Path, counted: Counter[str], kept_time: bool
) -> None:
    judge, outcome = Judge(), ended(tmp_path, nemo2_text(times()))
    assert judge.judge(CASE, outcome, SETTING).verdict.kind is Kind.PASSED
    path = tmp_path / LOG
    before, text = path.stat(), path.read_text()
    slow = nemo2_text([1.1 * seconds for seconds in times()])
    path.write_text(slow)
    if kept_time:
        # Somebody puts another file with the time of the first in its place.
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        assert len(slow) != len(text)
    assert judge.judge(CASE, outcome, SETTING).verdict.kind is Kind.TOO_SLOW
    assert counted == {"parsed": 2, "judged": 2}


def test_another_file_of_the_same_size_and_time_is_parsed(tmp_path: Path, counted: Counter[str]) -> None:
    logs, path = ParsedLogs(), tmp_path / LOG
    path.write_text(nemo2_text(times()))
    before = path.stat()
    assert logs.read_log("nemo2", tmp_path).steps[0].loss != 9.0
    other = tmp_path / "other"
    other.write_text(path.read_text().replace("reduced_train_loss: 11.96", "reduced_train_loss: 19.96"))
    other.replace(path)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_size == before.st_size
    assert logs.read_log("nemo2", tmp_path).steps[0].loss == 19.96
    assert counted["parsed"] == 2


def test_another_end_of_the_same_job_is_judged_again(tmp_path: Path, counted: Counter[str]) -> None:
    judge, outcome = Judge(), ended(tmp_path, nemo2_text(times()))
    judge.judge(CASE, outcome, SETTING)
    lost = replace(outcome, job=replace(outcome.job, failure="lost", message="gone"))
    assert judge.judge(CASE, lost, SETTING).verdict.kind is Kind.LOST
    assert counted == {"parsed": 1, "judged": 2}


def test_a_log_is_parsed_anew_for_another_format(tmp_path: Path, counted: Counter[str]) -> None:
    logs = ParsedLogs()
    ended(tmp_path, nemo2_text(times()))
    assert len(logs.read_log("nemo2", tmp_path).steps) == 50
    assert logs.read_log("maxtext", tmp_path).steps == ()
    assert counted["parsed"] == 2


def test_what_is_known_of_a_judged_case_is_forgotten(tmp_path: Path, counted: Counter[str]) -> None:
    judge, outcome = Judge(), ended(tmp_path / "case", nemo2_text(times()))
    ended(tmp_path / "other", nemo2_text(times()))
    judge.logs.read_log("nemo2", tmp_path / "other")
    judge.forget(judge.judge(CASE, outcome, SETTING))
    judge.judge(CASE, outcome, SETTING)
    judge.logs.read_log("nemo2", tmp_path / "other")
    assert counted == {"parsed": 3, "judged": 2}


def test_the_oldest_parsed_logs_make_room(tmp_path: Path, counted: Counter[str]) -> None:
    logs = ParsedLogs()
    folders = [tmp_path / str(number) for number in range(MOST_PARSED + 1)]
    for folder in folders:
        ended(folder, nemo2_text(times()[:1]))
        logs.read_log("nemo2", folder)
    logs.read_log("nemo2", folders[1])
    assert counted["parsed"] == MOST_PARSED + 1
    logs.read_log("nemo2", folders[0])
    assert counted["parsed"] == MOST_PARSED + 2


def test_a_file_that_grows_while_it_is_read_is_not_kept(
    tmp_path: Path, counted: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    logs, path = ParsedLogs(), tmp_path / LOG
    path.write_text(nemo2_text(times()[:10]))

    def grows(*values: Any) -> Any:
        log = read(*values)
        with path.open("a") as file:
            file.write("more\n")
        return log

    with monkeypatch.context() as patch:
        patch.setattr(plugins.judging.job_files, "read", grows)
        logs.read_log("nemo2", tmp_path)
    logs.read_log("nemo2", tmp_path)
    assert counted["parsed"] == 1, "the second time, too"
