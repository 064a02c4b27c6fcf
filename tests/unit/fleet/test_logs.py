"""What the fleet reads of logs: handed on to who judges, compared with the cluster at the end, or taken from a copy elsewhere."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import plugins.judging.job_files
import plugins.suite.judged
from fixtures.backends.base import LogCheck, LogCopy, LogPiece, LogPlace
from fixtures.backends.kubernetes.job_logs import with_gap
from fixtures.backends.kubernetes.logs import Read
from fixtures.fleet import log_reading
from fixtures.fleet.job import LogReading
from fixtures.fleet.log_reading import contradiction
from fixtures.fleet.state import Policy
from fixtures.session.choices import CHOICES
from fixtures.session.opening import _policy
from fixtures.session.prospects import outcome_in
from plugins.base.errors import Unreachable
from plugins.judging.choice import Repeats
from plugins.judging.job_files import ParsedLogs
from plugins.logs import Log
from plugins.logs.formats import parser, read
from plugins.logs.line_parser import MAX_LINE, MAX_WRAPPED
from plugins.record.folder import ERRORS, LOG
from plugins.record.job import Job, JobRef, JobState, Phase
from plugins.record.verdict import Kind
from plugins.suite.judged import judge_of
from tests.unit import examples
from tests.unit.chosen import choices, chosen
from tests.unit.cluster import BROKEN, DONE, NARROW, RUNNING, WIDE, Cluster, Session, Start
from tests.unit.examples import nemo2_text, outcome, parse, times
from tests.unit.judging.test_judge import judged

WHOLE, BEGUN = nemo2_text(), nemo2_text(times()[:31])
SLOWER = nemo2_text([1.1 * seconds for seconds in times()])


@dataclass(frozen=True)
class Ended:
    """What became of a case, and its files."""

    entry: Job
    folder: Path

    def read(self, name: str = LOG) -> str | None:
        path = self.folder / name
        return path.read_text() if path.exists() else None


Follow = Callable[..., Ended]


@pytest.fixture
def follow(cluster: Cluster, start: Start) -> Follow:
    """Run one case whose own log is no longer than that."""

    def follow(log: str = WHOLE, *, policy: Policy | None = None, run: str = "", **limits: float) -> Ended:
        cluster.logs.setdefault(WIDE.id, log)
        session = start(WIDE, policy=policy, run=run, **limits)
        return Ended(session.end(), session.fleet.folder / WIDE.key)

    return follow


# Whoever judges parses no log again that the fleet parsed while its job ran. The disk has the last word.

LIMIT = 1 / (1 - 0.05)
"""The pace, as a factor on the published step time, that just passes."""


class Reader:
    """Reads logs as those do who judge, and counts how many are parsed for that."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.logs = ParsedLogs()
        self.policy = Policy(logs=self.logs)
        self._patch = monkeypatch

    def read(self, folder: Path) -> tuple[Log, int]:
        calls = list[Any]()

        def counting(*values: Any) -> Log:
            calls.append(values)
            return read(*values)

        with self._patch.context() as patch:
            patch.setattr(plugins.judging.job_files, "read", counting)
            log = self.logs.read_log("nemo2", folder)
        whole = ParsedLogs().read_log("nemo2", folder)
        assert repr(log) == repr(whole), "what a parser of the whole file finds"
        return log, len(calls)


@pytest.fixture
def reader(monkeypatch: pytest.MonkeyPatch) -> Reader:
    return Reader(monkeypatch)


def in_pieces(cluster: Cluster, size: int, *, before: Callable[[int], None] = lambda offset: None) -> None:
    """Let logs be read in pieces of this size. `before` is called before each of them."""

    def read_log(job: Any, place: LogPlace, wanted: Sequence[bytes]) -> LogPiece:
        before(place.offset)
        data = cluster.logs.get(job.name, nemo2_text()).encode()[place.offset :][:size]
        return LogPiece(data, LogPlace("log", place.offset + len(data)), more=True)

    cluster.use(read_log=read_log)


@pytest.mark.parametrize("size", [1 << 20, 1000, 77])
def test_a_log_that_was_followed_is_not_parsed_again(
    cluster: Cluster, start: Start, reader: Reader, size: int
) -> None:
    in_pieces(cluster, size)
    # The last line has no end.
    cluster.logs[WIDE.id] = WHOLE.rstrip("\n")
    session = start(WIDE, policy=reader.policy)
    session.finish()
    log, count = reader.read(session.fleet.folder / WIDE.key)
    assert (len(log.steps), count) == (50, 0)
    assert [job.log for each in session.fleet._controllers for job in each.jobs.cases] == [Log()], "let go of"


def change(path: Path) -> None:
    """Change a log, and keep its size."""
    path.write_bytes(path.read_bytes().replace(b"reduced_train_loss: 11", b"reduced_train_loss: 19"))


def test_a_log_that_somebody_else_changed_is_parsed_again(
    cluster: Cluster, follow: Follow, reader: Reader, tmp_path: Path
) -> None:
    """Also if it was changed between two pieces."""
    path = tmp_path / WIDE.key / LOG
    in_pieces(cluster, 1000, before=lambda offset: change(path) if offset == 4000 else None)
    log, count = reader.read(follow(policy=reader.policy).folder)
    assert count == 1
    assert str(log.steps[0].loss).startswith("19")


def test_a_log_that_is_changed_after_its_job_is_parsed_again(follow: Follow, reader: Reader) -> None:
    folder = follow(policy=reader.policy).folder
    change(folder / LOG)
    assert reader.read(folder)[1] == 1


@pytest.mark.parametrize("length", [MAX_LINE, MAX_LINE + 1, MAX_WRAPPED, 3 * MAX_WRAPPED])
@pytest.mark.parametrize("size", [1 << 20, 50_000])
def test_a_log_with_a_line_that_is_cut_is_handed_on(
    cluster: Cluster, follow: Follow, reader: Reader, length: int, size: int
) -> None:
    in_pieces(cluster, size)
    ended = follow(WHOLE + length * "x" + WHOLE + "\n", policy=reader.policy)
    assert reader.read(ended.folder)[1] == 0


@pytest.mark.parametrize(("pace", "runs"), [(1.0, 1), (1.1, 1), (LIMIT, 2)])
@pytest.mark.parametrize("knows_end", [True, False])
def test_the_fleet_and_the_test_of_a_case_judge_each_run_once(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pace: float, runs: int, knows_end: bool
) -> None:
    """With repeats and `--isolate`. If the cluster has forgotten the job, nobody knows when it ended."""
    dice = random.Random(0)
    noise = 0.01 if pace == LIMIT else 0.001
    seconds = [examples.STEP_TIME * pace * dice.gauss(1, noise) for _ in range(50)]
    for name in (WIDE.id, f"{WIDE.id}-try2"):
        cluster.logs[name] = nemo2_text(seconds)
        cluster.ends[name] = [DONE if knows_end else JobState(Phase.GONE, "gone")]
    unused = (
        "provision",
        "retry_infrastructure",
        "give_up_after",
        "exclude_failed_nodes",
        "keep_checkpoints",
    )
    option = SimpleNamespace(**dict.fromkeys(unused, 0), isolate=9.0)
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
    job = session.end()
    assert counts == {"judge": runs}, "by the fleet"
    outcome = outcome_in(tmp_path, session.ledger, case, job, session.ledger.earlier(WIDE.key))
    judgement = judge_of(config).judge(WIDE, outcome, case.setting)
    assert len(judgement.evidence.runs) == runs
    assert counts == {"judge": runs}, "by the fleet and the test"


def test_what_a_program_does_before_its_first_step_is_said_once() -> None:
    messages = list[str]()
    jobs: Any = SimpleNamespace(say=messages.append, grown=0.0)
    job: Any = SimpleNamespace(key="proxy/8b", log=Log(), reading=LogReading())
    lines = parser("maxtext")
    for line in (b"proxy begins: to compile\n", b"proxy begins: to warm up\n", b"no line of ours\n"):
        log_reading._take(jobs, job, lines, line)
        job.log = job.reading.log
    assert messages == ["proxy/8b: begins to compile", "proxy/8b: begins to warm up"]


# What stands on the cluster at a job's end is compared with what was read.

DIFFERS = LogCheck("the first 7274 bytes of /x/log are not those that were read")
UNKNOWN = LogCheck(unknown="the login node has neither sha256sum nor openssl")
Answer = LogCheck | Unreachable


def check(cluster: Cluster, *answers: Answer) -> None:
    """Give these answers in turn when it is asked whether the log stands, and the last one from then on."""

    def check_log(job: JobRef, place: LogPlace) -> LogCheck:
        answer = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(answer, Unreachable):
            raise answer
        return answer

    left = list(answers)
    cluster.use(check_log=check_log)


@pytest.mark.parametrize("answers", [[LogCheck()], [Unreachable("it is gone"), LogCheck()]])
def test_a_log_that_stands_is_not_mentioned(cluster: Cluster, follow: Follow, answers: list[Answer]) -> None:
    """Also if that is answered later."""
    check(cluster, *answers)
    ended = follow()
    assert (ended.entry.log_note, ended.entry.log_fault, ended.read()) == ("", "", WHOLE)


def test_a_log_that_differs_is_read_anew_once(cluster: Cluster, follow: Follow) -> None:
    def check_log(job: JobRef, place: LogPlace) -> LogCheck:
        before = cluster.logs[WIDE.id]
        cluster.logs[WIDE.id] = SLOWER
        return LogCheck() if before == SLOWER else DIFFERS

    cluster.use(check_log=check_log)
    ended = follow()
    assert ended.read() == SLOWER
    assert ended.entry.log_note == f"{DIFFERS.differs}; it was read anew from its first byte"
    assert ended.entry.log_fault == ""


def test_a_log_that_differs_again_makes_the_run_invalid(cluster: Cluster, follow: Follow) -> None:
    check(cluster, DIFFERS)
    entry = follow().entry
    assert entry.log_fault == DIFFERS.differs
    verdict = judged(outcome(log_fault=entry.log_fault), WHOLE).verdict
    assert verdict.kind is Kind.INVALID
    reason = f"the log on the cluster is not the one that was read: {DIFFERS.differs}"
    assert verdict.headline == f"invalid run: {reason}"


@pytest.mark.parametrize("answer", [UNKNOWN, Unreachable("it is gone")], ids=["no program", "no answer"])
def test_a_check_that_cannot_be_had_is_a_remark(cluster: Cluster, follow: Follow, answer: Answer) -> None:
    check(cluster, answer)
    ended = follow()
    note = ended.entry.log_note
    assert note.startswith("it is not known whether its log still is what was read: ")
    assert (ended.entry.log_fault, ended.read()) == ("", WHOLE)
    assert note in judged(outcome(log_note=note), WHOLE).verdict.remarks


# A log that is gone before its last steps were read, and a copy of it elsewhere

SOURCE = "gs://bucket/nemo-experiments/job/dllogger.json"
NO_OBJECT = "there is no such object"


def copy(text: str | None, *, attempt: int = 1, **facts: Any) -> LogCopy:
    place = LogPlace("log" if attempt == 1 else f"log{attempt}", attempt=attempt)
    return LogCopy(place, SOURCE, "the pod is gone", None if text is None else text.encode(), **facts)


@pytest.mark.parametrize("end", [DONE, BROKEN])
def test_a_copy_with_more_steps_takes_the_place_of_what_was_read(
    cluster: Cluster, follow: Follow, reader: Reader, end: JobState
) -> None:
    cluster.ends[WIDE.id] = [end]
    cluster.copies[WIDE.id] = copy(WHOLE)
    case = follow(BEGUN, policy=reader.policy)
    assert (case.read(), case.read("log.own.txt")) == (WHOLE, BEGUN)
    assert case.entry.log_note == f"the pod is gone; the steps were read from {SOURCE}"
    # It is another view of the same life.
    assert (case.entry.attempts, case.entry.failure) == (1, "")
    log, count = reader.read(case.folder)
    assert (len(log.steps), bool(count)) == (50, True)


@pytest.mark.parametrize(
    ("log", "other", "note"),
    [
        (WHOLE, copy(SLOWER), ""),
        (BEGUN, copy(SLOWER), f"{SOURCE} is not of the attempt that was read: it has"),
        (BEGUN, copy(nemo2_text(times()[:20])), f"the pod is gone, and {SOURCE} has no more steps than were read"),
        (
            BEGUN,
            copy(None, trouble=NO_OBJECT),
            f"the pod is gone, and {SOURCE} cannot be read instead: {NO_OBJECT}",
        ),
    ],
    ids=["the log is whole", "of another life", "no more steps", "no copy"],
)  # fmt: skip
def test_a_copy_that_tells_no_more_of_the_same_life_is_not_taken(
    cluster: Cluster, follow: Follow, log: str, other: LogCopy, note: str
) -> None:
    cluster.copies[WIDE.id] = other
    case = follow(log)
    assert (case.read(), case.read("log.own.txt"), case.entry.failure) == (log, None, "")
    assert note in case.entry.log_note
    assert bool(case.entry.log_note) == bool(note)


def test_a_copy_of_a_later_life_is_that_lifes_log(cluster: Cluster, follow: Follow) -> None:
    cluster.copies[WIDE.id] = copy(SLOWER, attempt=2)
    case = follow(BEGUN)
    assert (case.read(), case.read("log.attempt-1.txt")) == (SLOWER, BEGUN)
    assert (case.read("log.own.txt"), case.entry.attempts) == (None, 2)
    assert case.entry.log_note.endswith("was not read")


def test_of_a_copy_with_two_lives_the_last_one_counts(cluster: Cluster, follow: Follow) -> None:
    both = nemo2_text([1.1 * seconds for seconds in times()[:40]]) + WHOLE
    cluster.copies[WIDE.id] = copy(both)
    case = follow(BEGUN)
    assert case.read() == both
    assert "were read from" in case.entry.log_note


def test_a_copy_may_appear_a_moment_later(
    cluster: Cluster, follow: Follow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_reading, "_AGAIN_SECONDS", 0.02)
    answers = iter([copy(None, trouble=NO_OBJECT)] * 5)
    cluster.use(read_copy=lambda job, place: next(answers, copy(WHOLE)))
    case = follow(BEGUN, log_settle_seconds=300)
    assert case.read() == WHOLE
    assert "were read from" in case.entry.log_note


def test_steps_that_even_the_copy_lacks_never_ran(cluster: Cluster, follow: Follow) -> None:
    """Where there is none, the log's own trouble is why it ends; with one, it is judged."""
    cluster.use(log_trouble=lambda job, place: "the rest is gone")
    cluster.copies[WIDE.id] = copy(nemo2_text(times()[:45]))
    assert follow(BEGUN).entry.failure == ""
    del cluster.copies[WIDE.id]
    cluster.ends[WIDE.id] = [BROKEN]
    case = follow(BEGUN, run="none")
    assert (case.entry.failure, "the rest is gone" in case.entry.message) == ("infrastructure", True)
    assert case.read(ERRORS) == "srun: error: gpu001: task 3: Killed\n"


def test_what_grows_is_awaited_also_in_a_copy(tmp_path: Path) -> None:
    jobs: Any = SimpleNamespace(folder=tmp_path, grown=0.0, note=lambda *_: None)
    job: Any = SimpleNamespace(key=WIDE.key, case=WIDE, log_format="nemo2", log=Log(), reading=LogReading())
    assert log_reading._use(jobs, job, copy(BEGUN), BEGUN.encode()) == ""
    assert job.reading.grown == jobs.grown > 0


@pytest.mark.parametrize(
    ("read", "other", "differs"),
    [
        (times()[:31], times(), False),
        (times(), times()[:31], False),
        ([], times(), False),
        (times(s7=13.1)[:31], times(), True),
    ],
)
def test_two_logs_of_one_life_tell_the_same(
    read: Sequence[float], other: Sequence[float], differs: bool
) -> None:
    assert bool(contradiction(parse(nemo2_text(read)), parse(nemo2_text(other)))) == differs


def test_what_spoils_one_log_of_a_run_spoils_the_other() -> None:
    one = Log(marks=(("profiler", "a"),))
    other = Log(steps=parse(WHOLE).steps, marks=(("profiler", "b"), ("socket fallback", "c")))
    both = one.beside(other)
    assert (both.marks, both.steps) == ((("profiler", "a"), ("socket fallback", "c")), ())


# Lines that are known to be lost: what they may have told is never assumed

WHOLE_LOG = nemo2_text()
GAP = "the kubelet rotated the log of pod p away"
HALF = len(WHOLE_LOG) // 2


def in_known_pieces(*pieces: tuple[str, str], more: bool = False) -> Cluster:
    """Its one log comes in these pieces, each with the gap that is known up to there."""
    made, ends = Cluster(), [0]
    for text, _ in pieces:
        ends.append(ends[-1] + len(text))

    def read(job: JobRef, place: LogPlace, wanted: Sequence[bytes]) -> LogPiece:
        made.on_read(job.name)
        number = ends.index(place.offset)
        if number == len(pieces):
            return LogPiece(b"", place)
        text, gap = pieces[number]
        return LogPiece(text.encode(), LogPlace("log", ends[number + 1], gap=gap), more=more)

    made.read_log = read  # type: ignore[method-assign]
    return made


def followed(folder: Path, made: Cluster) -> Job:
    session = Session(folder, made, [WIDE], Policy())
    session.fleet.start()
    try:
        return session.finish()[WIDE.id]
    finally:
        session.fleet.stop()


@pytest.mark.parametrize("end", [DONE, BROKEN])
@pytest.mark.parametrize("pieces", [[(WHOLE_LOG, GAP)], [("a first line\n", ""), (WHOLE_LOG, GAP)]])
def test_nobody_judges_a_run_that_told_what_it_is_in_lines_that_are_lost(
    tmp_path: Path, pieces: list[tuple[str, str]], end: Any
) -> None:
    made = in_known_pieces(*pieces)
    made.ends[WIDE.id] = [end]
    entry = followed(tmp_path, made)
    assert entry.failure == "infrastructure"
    assert (
        f"every step was seen, but {GAP}; the lost lines state its network and configuration" in entry.message
    )


def test_lines_that_are_lost_behind_the_first_step_are_a_remark(tmp_path: Path) -> None:
    entry = followed(tmp_path, in_known_pieces((WHOLE_LOG[:HALF], ""), (WHOLE_LOG[HALF:], GAP)))
    assert entry.failure == ""
    assert entry.log_note == f"{GAP}; the rest of these lines was not read"


def test_a_run_that_hung_at_its_end_does_not_pass_with_its_first_lines_lost(tmp_path: Path) -> None:
    made = in_known_pieces((WHOLE_LOG, GAP))
    made.ends[WIDE.id] = [RUNNING]
    session = Session(tmp_path, made, [WIDE], Policy(), stall_seconds=0.2, stall_factor=0.001)
    session.fleet.start()
    entry = session.finish()[WIDE.id]
    session.fleet.stop()
    assert entry.failure == "infrastructure"
    assert "after its last step, but " + GAP in entry.message


def test_the_buckets_copy_takes_the_place_of_a_log_without_its_first_lines(tmp_path: Path) -> None:
    made = in_known_pieces((WHOLE_LOG, GAP))
    copied = WHOLE_LOG + "the end\n"
    made.copies[WIDE.id] = LogCopy(LogPlace("log"), SOURCE, GAP, copied.encode())
    entry, folder = followed(tmp_path, made), tmp_path / WIDE.key
    assert entry.failure == ""
    assert entry.log_note.startswith(
        f"{GAP}; the steps were read from {SOURCE}; the rest of what the job printed"
    )
    assert ((folder / "log.txt").read_text(), (folder / "log.own.txt").read_text()) == (copied, WHOLE_LOG)


def test_a_copy_that_is_not_whole_makes_nothing_good(tmp_path: Path) -> None:
    made = in_known_pieces((WHOLE_LOG, GAP))
    made.copies[WIDE.id] = LogCopy(LogPlace("log"), SOURCE, GAP, WHOLE_LOG[:HALF].encode())
    assert followed(tmp_path, made).failure == "infrastructure"


def resumed(folder: Path, made: Cluster, *earlier: str) -> Path:
    """The case's folder, where earlier sessions collected these logs."""
    place = folder / WIDE.key
    place.mkdir(parents=True)
    for name, text in zip(("log.txt", "log.earlier.txt"), earlier, strict=False):
        (place / name).write_text(text)
    followed(folder, made)
    return place


def test_what_an_earlier_session_read_is_kept_while_the_new_log_lacks_its_head(tmp_path: Path) -> None:
    folder = resumed(tmp_path, in_known_pieces((WHOLE_LOG, GAP)), "the middle\n", "the head\n")
    assert (folder / "log.earlier.txt").read_text() == "the head\nthe middle\n"
    assert (folder / "log.txt").read_text() == WHOLE_LOG


def test_with_a_copy_it_stays_as_what_the_job_said(tmp_path: Path) -> None:
    made = in_known_pieces((WHOLE_LOG, GAP))
    made.copies[WIDE.id] = LogCopy(LogPlace("log"), SOURCE, GAP, f"{WHOLE_LOG}\n".encode())
    folder = resumed(tmp_path, made, "the head\n")
    assert (folder / "log.own.txt").read_text() == "the head\n" + WHOLE_LOG
    assert not (folder / "log.earlier.txt").exists()


def test_a_log_that_grows_faster_than_it_is_read_is_read_on(tmp_path: Path) -> None:
    made = in_known_pieces(*((line, "") for line in WHOLE_LOG.splitlines(keepends=True)), more=True)
    made.ends[WIDE.id] = made.ends[NARROW.id] = [RUNNING]
    asked: list[str] = []
    made.on_read = asked.append
    session = Session(tmp_path, made, [WIDE, NARROW], Policy())
    session.fleet.start()
    while set(asked[-8:]) != {WIDE.id, NARROW.id} or len(asked) < 150:
        assert session.fleet.running
    session.fleet.stop()
    # Neither one piece in each look, nor all of them before the other one has its turn.
    assert (NARROW.id, 16) in [(name, len(list(run))) for name, run in groupby(asked)]


HEAD = r"Pod on \S+ is running"


def seen_place(text: str, *, lost: bool = False, before: LogPlace | None = None) -> LogPlace:
    before = before or LogPlace("p")
    place = LogPlace("p", before.offset + len(text), mark="2026-11-21T09:00:00Z 1", gap=before.gap)
    return with_gap(Read(text.encode(), place, lost=lost), before, "p", HEAD)


def test_a_log_that_does_not_begin_at_its_beginning_has_a_gap() -> None:
    assert seen_place("a warning\nPod on p is running\n").gap == ""
    assert "rotated the first lines of pod p away unread" in seen_place("step 17\nPod on p is exiting\n").gap
    assert with_gap(Read(b"step 17\n", LogPlace("p", 8)), LogPlace("p"), "p", None).gap == ""


def test_a_head_that_comes_a_moment_later_is_there() -> None:
    first = seen_place("bash: warning: setlocale\n")
    assert first.gap
    assert seen_place("Pod on p is running\n", before=first).gap == ""
    assert seen_place("step 17\n", before=first).gap == first.gap


def test_a_gap_stays_a_gap() -> None:
    place = seen_place("step 17\n", lost=True, before=seen_place("Pod on p is running\n"))
    assert "away before all of it was read" in place.gap
    assert seen_place("Pod on p is running\n", before=place).gap == place.gap
