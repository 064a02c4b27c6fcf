"""What stands on the cluster at a job's end is compared with what was read of its log."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from fixtures.backends.base import LogCheck, LogPlace
from fixtures.fleet.state import Policy
from plugins.base.errors import Unreachable
from plugins.record.job import Job, JobRef
from plugins.record.verdict import Kind
from tests.unit.cluster import WIDE, Cluster, Session
from tests.unit.examples import nemo2_text, outcome, times
from tests.unit.judging.test_judge import judged

DIFFERS = LogCheck("the first 7274 bytes of /x/log are not those that were read")
SLOWER = nemo2_text([1.08 * seconds for seconds in times()])
Answer = LogCheck | Unreachable


class Checked(Cluster):
    """Gives these answers in turn when it is asked whether the log stands, and the last one from then on."""

    def __init__(self, *answers: Answer) -> None:
        super().__init__()
        self.answers = list(answers)
        self.on_asked: Callable[[], None] = lambda: None

    def check_log(self, job: JobRef, place: LogPlace) -> LogCheck:
        self.on_asked()
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Unreachable):
            raise answer
        return answer


def end_of(folder: Path, cluster: Cluster) -> tuple[Job, str]:
    """The record of one case, and the log that was kept of it."""
    session = Session(folder, cluster, [WIDE], Policy())
    session.fleet.start()
    try:
        entry = session.finish()[WIDE.id]
    finally:
        session.fleet.stop()
    return entry, (folder / WIDE.key / "log.txt").read_text()


def test_a_log_that_stands_is_not_mentioned(tmp_path: Path) -> None:
    entry, log = end_of(tmp_path, Checked(LogCheck()))
    assert (entry.log_note, entry.log_fault, log) == ("", "", nemo2_text())


def test_a_log_that_differs_is_read_anew_once(tmp_path: Path) -> None:
    cluster = Checked(DIFFERS, LogCheck())
    cluster.on_asked = lambda: cluster.logs.update({WIDE.id: SLOWER})
    entry, log = end_of(tmp_path, cluster)
    assert log == SLOWER
    assert entry.log_note == f"{DIFFERS.differs}; it was read anew from its first byte"
    assert entry.log_fault == ""


def test_a_log_that_differs_again_makes_the_run_invalid(tmp_path: Path) -> None:
    entry, _ = end_of(tmp_path, Checked(DIFFERS))
    assert entry.log_fault == DIFFERS.differs
    verdict = judged(outcome(log_fault=entry.log_fault), nemo2_text()).verdict
    assert verdict.kind is Kind.INVALID
    assert (
        verdict.headline
        == f"invalid run: the log on the cluster is not the one that was read: {DIFFERS.differs}"
    )


@pytest.mark.parametrize(
    "answers",
    [[LogCheck(unknown="the login node has neither sha256sum nor openssl")], [Unreachable("it is gone")]],
    ids=["no program", "no answer"],
)
def test_a_check_that_cannot_be_had_is_a_remark(tmp_path: Path, answers: list[Answer]) -> None:
    entry, log = end_of(tmp_path, Checked(*answers))
    assert entry.log_note.startswith("it is not known whether its log still is what was read: ")
    assert (entry.log_fault, log) == ("", nemo2_text())
    assert entry.log_note in judged(outcome(log_note=entry.log_note), nemo2_text()).verdict.remarks


def test_a_check_that_is_answered_later_is_no_remark(tmp_path: Path) -> None:
    entry, _ = end_of(tmp_path, Checked(Unreachable("it is gone"), LogCheck()))
    assert (entry.log_note, entry.log_fault) == ("", "")
