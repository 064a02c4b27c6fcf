"""The fleet, which parses logs while their jobs run, hands them on: nobody parses such a log again. The disk has the last word."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import plugins.judging.job_files
import plugins.suite.judged
from fixtures.backends.base import LogCopy, LogPiece, LogPlace
from fixtures.fleet.state import Policy
from fixtures.session.choices import CHOICES
from fixtures.session.opening import _policy
from fixtures.session.prospects import outcome_in
from plugins.judging.choice import Repeats
from plugins.judging.job_files import ParsedLogs
from plugins.logs import Log
from plugins.logs.formats import read
from plugins.logs.line_parser import MAX_LINE, MAX_WRAPPED
from plugins.record.folder import LOG, try_folder
from plugins.record.job import JobState, Phase
from plugins.suite.judged import judge_of
from tests.unit import examples
from tests.unit.chosen import choices, chosen
from tests.unit.cluster import BROKEN, DONE, WIDE, Cluster, Session, Start
from tests.unit.examples import nemo2_text, times

LIMIT = 1 / (1 - 0.05)
"""The pace, as a factor on the published step time, that just passes."""


class Reader:
    """Reads logs as those do who judge, and counts how many are parsed for that."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.logs = ParsedLogs()
        self._patch = monkeypatch

    def policy(self, **more: Any) -> Policy:
        return Policy(logs=self.logs, **more)

    def read(self, folder: Path) -> tuple[Log, int]:
        count = 0

        def counting(*values: Any) -> Log:
            nonlocal count
            count += 1
            return read(*values)

        with self._patch.context() as patch:
            patch.setattr(plugins.judging.job_files, "read", counting)
            log = self.logs.read_log("nemo2", folder)
        assert repr(log) == repr(ParsedLogs().read_log("nemo2", folder)), (
            "what a parser of the whole file finds"
        )
        return log, count


@pytest.fixture
def reader(monkeypatch: pytest.MonkeyPatch) -> Reader:
    return Reader(monkeypatch)


def in_pieces(cluster: Cluster, size: int, *, before: Callable[[int], None] = lambda offset: None) -> None:
    """Let logs be read in pieces of this size. `before` is called before each of them."""

    def read_log(job: Any, place: LogPlace, wanted: Sequence[bytes]) -> LogPiece:
        before(place.offset)
        data = cluster.logs.get(job.name, nemo2_text()).encode()[place.offset :][:size]
        return LogPiece(data, LogPlace("log", place.offset + len(data)), more=True)

    cluster.read_log = read_log  # type: ignore[method-assign]


@pytest.mark.parametrize("size", [1 << 20, 1000, 77])
def test_a_log_that_was_followed_is_not_parsed_again(
    cluster: Cluster, start: Start, reader: Reader, size: int
) -> None:
    in_pieces(cluster, size)
    # The last line has no end.
    cluster.logs[WIDE.id] = nemo2_text(times()).rstrip("\n")
    session = start(WIDE, policy=reader.policy())
    session.finish()
    log, count = reader.read(session.fleet.folder / WIDE.key)
    assert (len(log.steps), count) == (50, 0)
    assert [job.log for each in session.fleet._controllers for job in each.jobs.cases] == [Log()], "let go of"


def test_the_logs_of_all_runs_of_a_case_are_handed_on(cluster: Cluster, start: Start, reader: Reader) -> None:
    second = f"{WIDE.id}-try2"
    cluster.logs[second] = nemo2_text([2 * seconds for seconds in times()])
    counts: list[int] = []

    def another(case: object, job: object, earlier: Sequence[object]) -> str:
        counts.append(reader.read(session.fleet.folder / WIDE.key)[1])
        return "" if earlier else "cannot tell"

    session = start(WIDE, policy=reader.policy(another_run=another))
    session.finish()
    folder = session.fleet.folder / WIDE.key
    assert counts == [0, 0], "the fleet asks the judge after it has handed the log on"
    assert reader.read(try_folder(folder, 1))[1] == reader.read(folder)[1] == 0
    assert reader.read(folder)[0].steps != reader.read(try_folder(folder, 1))[0].steps


def test_the_log_of_a_job_that_broke_is_handed_on(cluster: Cluster, start: Start, reader: Reader) -> None:
    cluster.ends[WIDE.id], cluster.logs[WIDE.id] = [BROKEN], nemo2_text(times()[:7])
    session = start(WIDE, policy=reader.policy())
    session.finish()
    log, count = reader.read(session.fleet.folder / WIDE.key)
    assert (len(log.steps), count) == (7, 0)


def test_a_log_that_somebody_else_changed_is_parsed_again(
    cluster: Cluster, start: Start, reader: Reader, tmp_path: Path
) -> None:
    """As long as it is: also if it was changed between two pieces, and keeps its size."""
    path = tmp_path / WIDE.key / LOG

    def change(offset: int) -> None:
        if offset == 4000:
            path.write_bytes(path.read_bytes().replace(b"reduced_train_loss: 11", b"reduced_train_loss: 19"))

    in_pieces(cluster, 1000, before=change)
    session = start(WIDE, policy=reader.policy())
    session.finish()
    log, count = reader.read(session.fleet.folder / WIDE.key)
    assert count == 1
    assert str(log.steps[0].loss).startswith("19")


def test_a_log_that_is_changed_after_its_job_is_parsed_again(
    cluster: Cluster, start: Start, reader: Reader
) -> None:
    session = start(WIDE, policy=reader.policy())
    session.finish()
    path = session.fleet.folder / WIDE.key / LOG
    path.write_bytes(path.read_bytes().replace(b"reduced_train_loss: 11", b"reduced_train_loss: 19"))
    assert reader.read(path.parent)[1] == 1


@pytest.mark.parametrize("length", [MAX_LINE, MAX_LINE + 1, MAX_WRAPPED, 3 * MAX_WRAPPED])
@pytest.mark.parametrize("size", [1 << 20, 50_000])
def test_a_log_with_a_line_that_is_cut_is_handed_on(
    cluster: Cluster, start: Start, reader: Reader, length: int, size: int
) -> None:
    in_pieces(cluster, size)
    cluster.logs[WIDE.id] = nemo2_text(times()) + length * "x" + nemo2_text(times()) + "\n"
    session = start(WIDE, policy=reader.policy())
    session.finish()
    assert reader.read(session.fleet.folder / WIDE.key)[1] == 0


def test_a_copy_that_took_the_place_of_a_log_is_parsed(
    cluster: Cluster, start: Start, reader: Reader
) -> None:
    cluster.logs[WIDE.id] = nemo2_text(times()[:5])
    whole = nemo2_text(times()).encode()
    cluster.copies[WIDE.id] = LogCopy(LogPlace("copy", len(whole)), "the copy", "its log is gone", whole)
    session = start(WIDE, policy=reader.policy())
    session.finish()
    log, count = reader.read(session.fleet.folder / WIDE.key)
    assert len(log.steps) == 50
    assert count >= 1


@pytest.mark.parametrize(("pace", "runs"), [(1.0, 1), (1.1, 1), (LIMIT, 2)])
@pytest.mark.parametrize("knows_end", [True, False])
def test_the_fleet_and_the_test_of_a_case_judge_each_run_once(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pace: float, runs: int, knows_end: bool
) -> None:
    """With repeats and `--isolate`. If the cluster has forgotten the job, nobody knows when it ended."""
    dice = random.Random(0)
    noise = {LIMIT: 0.01}.get(pace, 0.001)
    seconds = [examples.STEP_TIME * pace * dice.gauss(1, noise) for _ in range(50)]
    for name in (WIDE.id, f"{WIDE.id}-try2"):
        cluster.logs[name] = nemo2_text(seconds)
        cluster.ends[name] = [DONE if knows_end else JobState(Phase.GONE, "gone")]
    option = SimpleNamespace(
        provision=False,
        retry_infrastructure=0,
        give_up_after=0,
        exclude_failed_nodes=False,
        keep_checkpoints=False,
        isolate=9.0,
    )
    config: Any = SimpleNamespace(option=option, stash=pytest.Stash())
    config.stash[CHOICES] = choices(folder=tmp_path, repeats=Repeats(at_most=2))
    counts: Counter[str] = Counter()

    def count(module: Any, name: str) -> None:
        plain = getattr(module, name)

        def counting(*values: Any) -> Any:
            counts[name] += 1
            return plain(*values)

        monkeypatch.setattr(module, name, counting)

    count(plugins.judging.job_files, "read")
    count(plugins.suite.judged, "judge")
    session, case = Session(tmp_path, cluster, [WIDE], Policy()), chosen(WIDE)
    for controller in session.fleet._controllers:
        controller.jobs.policy = _policy(config, session.ledger, {WIDE.key: case})
    session.fleet.start()
    job = session.finish()[WIDE.id]
    assert counts == {"judge": runs}, "by the fleet"
    outcome = outcome_in(tmp_path, session.ledger, case, job, session.ledger.earlier(WIDE.key))
    judgement = judge_of(config).judge(WIDE, outcome, case.setting)
    assert len(judgement.evidence.runs) == runs
    assert counts == {"judge": runs}, "by the fleet and the test"
