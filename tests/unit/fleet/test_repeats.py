"""A case that is run again because its run alone does not tell: when, how often, and what is kept of each run."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from fixtures.backends.base import LogPiece, LogPlace
from fixtures.fleet.state import Policy
from plugins.base.errors import ConfigError
from plugins.judging.job_files import ParsedLogs
from plugins.recipes.cases import Case
from plugins.record.job import Job, JobState, Phase
from plugins.record.outcome import outcome_of
from tests.unit.cluster import BROKEN, DONE, RUNNING, WIDE, Cluster, Session, Start, told
from tests.unit.examples import nemo2_text, times

FIRST, SECOND, THIRD = WIDE.id, f"{WIDE.id}-try2", f"{WIDE.id}-try3"


class Judge:
    """Says of so many runs of a case that they do not tell, and keeps what it was asked."""

    def __init__(self, undecided: int, folder: Path | None = None) -> None:
        self.repeated = undecided
        self.folder = folder
        self.asked: list[tuple[str, ...]] = []
        self.steps: list[list[int]] = []

    def __call__(self, case: Case, job: Job, earlier: Sequence[Job]) -> str:
        assert case == WIDE
        names = [f"try-{tried.try_number}" for tried in earlier if tried.failure == "repeated"]
        self.asked.append((*names, job.ref.case_id))
        if self.folder is not None:
            folders = [*(self.folder / case.key / name for name in names), self.folder / case.key]
            self.steps.append([len(ParsedLogs().read_log("nemo2", folder).steps) for folder in folders])
        runs = len(names) + 1
        return f"{runs} cannot tell" if runs <= self.repeated else ""


def earlier(session: Session) -> list[tuple[str, str, str]]:
    return [(t.ref.name, t.failure, t.message) for t in session.ledger.earlier(WIDE.key)]


def test_a_run_that_does_not_tell_is_followed_by_another(cluster: Cluster, start: Start) -> None:
    judge = Judge(1)
    session = start(WIDE, policy=Policy(another_run=judge))
    entry = session.finish()[WIDE.id]
    assert cluster.submitted == [FIRST, SECOND]
    assert (entry.ref.name, entry.try_number, entry.failure, entry.ref.id) == (SECOND, 2, "", "2")
    assert earlier(session) == [(FIRST, "repeated", "1 cannot tell")]
    assert any(
        said.endswith(f"{WIDE.key}: 1 cannot tell; running it again (run 2)") for said in told(session)
    )


def test_a_run_that_tells_is_not(cluster: Cluster, start: Start) -> None:
    session = start(WIDE, policy=Policy(another_run=Judge(0)))
    assert session.finish()[WIDE.id].try_number == 1
    assert cluster.submitted == [FIRST]


def test_each_run_is_kept_and_all_are_asked_about(cluster: Cluster, start: Start, tmp_path: Path) -> None:
    for number, name in enumerate((FIRST, SECOND, THIRD)):
        cluster.logs[name] = nemo2_text([seconds + number for seconds in times()])
    judge = Judge(2, tmp_path)
    session = start(WIDE, policy=Policy(another_run=judge))
    entry = session.finish()[WIDE.id]
    assert cluster.submitted == [FIRST, SECOND, THIRD]
    assert judge.asked == [(WIDE.id,), ("try-1", WIDE.id), ("try-1", "try-2", WIDE.id)]
    assert judge.steps == [[50], [50, 50], [50, 50, 50]]
    assert entry.failure == ""
    folder = session.fleet.folder / WIDE.key
    for name, place in ((FIRST, folder / "try-1"), (SECOND, folder / "try-2"), (THIRD, folder)):
        assert (place / "log.txt").read_text() == cluster.logs[name]
        assert (place / "sent.txt").read_text() == name
    outcome = outcome_of(entry, folder, "h100", session.ledger.earlier(WIDE.key))
    assert [tried.try_number for tried in outcome.repeated] == [1, 2]
    assert [said.partition("; ")[2] for said in told(session) if "; running" in said] == [
        "running it again (run 2)",
        "running it again (run 3)",
    ]


@pytest.mark.parametrize(
    "broken",
    [(True, False, True, False, False), (False, False, True, True, False), (True, True, False, False, False)],
)
def test_tries_and_runs_are_counted_apart_in_any_order(
    cluster: Cluster, start: Start, broken: Sequence[bool]
) -> None:
    names = [WIDE.id, *(f"{WIDE.id}-try{number}" for number in range(2, 6))]
    for name, breaks in zip(names, broken, strict=True):
        if breaks:
            cluster.ends[name], cluster.logs[name] = [BROKEN], "no step\n"
    judge = Judge(2)
    session = start(WIDE, policy=Policy(retries=2, another_run=judge))
    entry = session.finish()[WIDE.id]
    assert cluster.submitted == names
    assert (entry.try_number, entry.failure, entry.state.raw) == (5, "", DONE.raw)
    assert [failure for _, failure, _ in earlier(session)] == ["" if b else "repeated" for b in broken[:4]]
    whole = [f"try-{number}" for number, breaks in enumerate(broken[:4], start=1) if not breaks]
    assert [set(asked) - {WIDE.id} for asked in judge.asked] == [set(), {whole[0]}, set(whole)]
    said = [line.rpartition("; ")[2] for line in told(session) if " again (" in line]
    assert [line for line in said if line.startswith("trying")] == [
        "trying again (1 of 2)",
        "trying again (2 of 2)",
    ]


def test_a_job_that_breaks_after_all_tries_ends_the_case(cluster: Cluster, start: Start) -> None:
    cluster.ends[SECOND], cluster.logs[SECOND] = [BROKEN], "no step\n"
    session = start(WIDE, policy=Policy(another_run=Judge(9)))
    assert session.finish()[WIDE.id].state.raw == "NODE_FAIL"
    assert cluster.submitted == [FIRST, SECOND]


def test_nodes_that_were_kept_out_stay_out_and_none_is_blamed_for_a_run_that_ended_well(
    cluster: Cluster, start: Start
) -> None:
    cluster.ends[FIRST], cluster.logs[FIRST] = [BROKEN], "no step\n"
    cluster.blames = {FIRST: "gpu007", SECOND: "gpu009"}
    start(WIDE, policy=Policy(retries=1, exclude_failed_nodes=True, another_run=Judge(1))).finish()
    assert cluster.excluded == [(), ("gpu007",), ("gpu007",)]


def test_what_did_not_end_well_is_not_run_again(cluster: Cluster, start: Start) -> None:
    judge = Judge(9)
    for number, state in enumerate([BROKEN, JobState(Phase.FAILED, "CANCELLED by 1234"), DONE]):
        cluster.ends[FIRST], cluster.logs[FIRST] = [state], "no step\n"
        start(WIDE, policy=Policy(another_run=judge), run=f"run-{number}").finish()
    assert cluster.submitted == [FIRST] * 3
    assert judge.asked == []


def test_a_whole_run_that_somebody_cancelled_is_not_run_again(cluster: Cluster, start: Start) -> None:
    cluster.ends[FIRST] = [JobState(Phase.FAILED, "CANCELLED by 1234")]
    judge = Judge(9)
    start(WIDE, policy=Policy(another_run=judge)).finish()
    assert (cluster.submitted, judge.asked) == ([FIRST], [])


def test_a_run_that_hung_after_its_last_step_is_not_run_again(cluster: Cluster, start: Start) -> None:
    cluster.ends[FIRST] = [RUNNING]
    judge = Judge(9)
    session = start(WIDE, policy=Policy(another_run=judge), stall_factor=0.001, stall_seconds=0.1)
    assert session.finish()[WIDE.id].failure == "hung"
    assert (cluster.submitted, judge.asked) == ([FIRST], [])


def test_a_session_that_is_stopped_runs_nothing_again(cluster: Cluster, start: Start) -> None:
    begun = threading.Event()

    def stop(case: Case, job: Job, earlier: Sequence[Job]) -> str:
        begun.wait(60)
        session.fleet.ask_to_stop()
        return "cannot tell"

    session = start(WIDE, policy=Policy(another_run=stop))
    begun.set()
    entry = session.finish()[WIDE.id]
    assert cluster.submitted == [FIRST]
    assert (entry.failure, entry.message) == (
        "interrupted",
        "the session was stopped; it was never submitted",
    )


def test_a_run_that_ends_well_while_its_session_stops_is_judged_as_it_is(
    cluster: Cluster, start: Start
) -> None:
    begun = threading.Event()

    def stop(name: str) -> None:
        begun.wait(60)
        session.fleet.ask_to_stop()

    cluster.on_read = stop
    judge = Judge(9)
    session = start(WIDE, policy=Policy(another_run=judge))
    begun.set()
    entry = session.finish()[WIDE.id]
    assert (cluster.submitted, judge.asked) == ([FIRST], [])
    assert (entry.failure, entry.state.raw) == ("", DONE.raw)


def _config_error() -> str:
    raise ConfigError("llama3.yaml: keep one baseline")


def _defect() -> str:
    raise ZeroDivisionError("float division by zero")


@pytest.mark.parametrize(
    ("fail", "said"),
    [
        (_config_error, "ConfigError: llama3.yaml: keep one baseline"),
        (_defect, "ZeroDivisionError: float division"),
    ],
)
def test_a_question_without_an_answer_ends_the_case_as_it_is(
    cluster: Cluster, start: Start, fail: Callable[[], str], said: str
) -> None:
    session = start(WIDE, policy=Policy(another_run=lambda case, job, earlier: fail()))
    entry = session.finish()[WIDE.id]
    assert (cluster.submitted, entry.failure, session.fleet.defect) == ([FIRST], "", "")
    assert any(
        f"nobody can say whether another run would tell more: {said}" in line for line in told(session)
    )


def test_what_is_wrong_with_a_log_stays_with_its_run(
    cluster: Cluster, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, gap = nemo2_text().encode(), "2 kB of its log are lost"

    def read_log(job: object, place: LogPlace, wanted: Sequence[bytes]) -> LogPiece:
        # Behind the first step: before it, nobody could say what the job ran.
        end = 1000 if not place.offset else len(whole)
        return LogPiece(whole[place.offset : end], LogPlace("log", end, gap=gap if place.offset else ""))

    monkeypatch.setattr(cluster, "read_log", read_log)
    session = start(WIDE, policy=Policy(another_run=Judge(1)))
    session.finish()
    ((name, failure, message),) = earlier(session)
    assert (name, failure) == (FIRST, "repeated")
    assert message.startswith(f"1 cannot tell; {gap}")
