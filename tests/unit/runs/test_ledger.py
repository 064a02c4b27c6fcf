"""The ledger: the life of a case, seen by whoever reads it, whatever becomes of its writer and of its file."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from fixtures.runs.ledger import Ledger, open_ledger, read_ledger
from plugins.base.errors import ConfigError
from plugins.record.job import Job, JobRef, JobState, Phase
from plugins.record.lines import JOBS_LOG
from plugins.record.outcome import outcome_of
from tests.unit import examples
from tests.unit.jobs_log import lines_of, planned

CASE = examples.case()
KEY = CASE.key
NAME = "pacemark-1.llama3-70b-fp8-512gpus"
REF = JobRef(CASE.recipe, CASE.id, NAME, "4711", "/logs/here")
RUNNING = JobState(Phase.RUNNING, "RUNNING", nodes="gpu[001-064]")


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    """The case is planned."""
    made = Ledger.create(tmp_path / "jobs.log", "run-1", "big-one")
    made.plan([planned(CASE, "slurm", NAME)])
    return made


def entry(ledger: Ledger, key: str = KEY) -> Job:
    found = ledger.entry(key)
    assert found is not None
    return found


def test_the_life_of_a_case(ledger: Ledger) -> None:
    job = entry(ledger)
    assert (job.status, job.gpus, job.ref.name, job.attempts) == ("planned", 512, NAME, 1)
    assert job.times.submitted is None
    ledger.intend(KEY)
    assert (entry(ledger).status, entry(ledger).ref.id) == ("intent", "")
    assert entry(ledger).times.submitted is not None
    ledger.submitted(REF)
    assert (entry(ledger).status, entry(ledger).ref) == ("submitted", REF)
    ledger.observe(KEY, RUNNING, 123.0)
    assert (entry(ledger).state, entry(ledger).times.started) == (RUNNING, 123.0)
    ledger.attempt(KEY, 2)
    ledger.cancel_asked(KEY)
    assert entry(ledger).times.cancel_confirmed is None
    ledger.cancel_confirmed({KEY: JobState(Phase.FAILED, "CANCELLED")})
    ledger.end(KEY, "interrupted", "Ctrl-C")
    last, times = entry(ledger), entry(ledger).times
    assert (last.state.raw, last.state.nodes) == ("CANCELLED", RUNNING.nodes)
    assert (last.status, last.attempts, last.failure, last.message) == ("ended", 2, "interrupted", "Ctrl-C")
    moments = [times.submitted, times.cancel_asked, times.cancel_confirmed, times.ended]
    known = [moment for moment in moments if moment is not None]
    assert known == sorted(known)
    assert len(known) == 4


def places(ledger: Ledger) -> list[tuple[str, tuple[str, ...]]]:
    """The nodes and the images of the job in the ledger and in the record."""
    states = (entry(ledger).state, outcome_of(entry(ledger), Path("x")).job.state)
    return [(state.nodes, state.images) for state in states]


def test_where_a_job_ran_outlives_what_the_cluster_says_of_it(ledger: Ledger) -> None:
    ledger.observe(KEY, replace(RUNNING, images=("sha256:1", "sha256:2")))
    for over in (JobState(Phase.FAILED, "CANCELLED"), JobState(Phase.GONE, "not found")):
        ledger.observe(KEY, over)
        assert places(ledger) == [("gpu[001-064]", ("sha256:1", "sha256:2"))] * 2
    # Back in the queue: another life, on other nodes.
    ledger.observe(KEY, JobState(Phase.QUEUED, "Suspended"))
    assert places(ledger) == [("", ())] * 2


def test_an_earlier_try_keeps_all_that_was_known_of_it(ledger: Ledger) -> None:
    ledger.intend(KEY, "here")
    ledger.submitted(REF)
    ledger.observe(KEY, replace(RUNNING, images=("sha256:1", "sha256:2"), hopeless=True), 123.0)
    ledger.attempt(KEY, 2)
    ledger.log_note(KEY, "from a copy")
    first = entry(ledger)
    again = ledger.try_again(KEY, ("gpu001", "gpu002"), "infrastructure", "a node failed")
    assert again == entry(ledger)
    assert (again.ref, again.try_number) == (JobRef(CASE.recipe, CASE.id, f"{NAME}-try2"), 2)
    assert (again.status, again.location, again.excluded) == ("planned", "here", ("gpu001", "gpu002"))
    # It has run nowhere yet.
    assert places(ledger) == [("", ())] * 2
    (first_try,) = ledger.earlier(KEY)
    assert first_try.times.ended is not None
    ended = replace(first, status="ended", times=replace(first.times, ended=first_try.times.ended))
    assert first_try == replace(ended, failure="infrastructure", message="a node failed")
    assert ledger.entries() == [again]


def test_the_third_try_is_named_after_the_first_and_keeps_the_place_of_its_case(ledger: Ledger) -> None:
    other = examples.case("70b-bf16-512gpus")
    ledger.plan([planned(other, "slurm", "other")])
    ledger.try_again(KEY)
    assert ledger.try_again(KEY).ref.name == f"{NAME}-try3"
    assert [(found.case, found.try_number) for found in ledger.entries()] == [(KEY, 3), (other.key, 1)]
    assert [found.try_number for found in ledger.earlier(KEY)] == [1, 2]


def test_a_case_is_planned_once_and_a_plan_is_whole_or_not_at_all(ledger: Ledger) -> None:
    other = examples.case("70b-bf16-512gpus")
    with pytest.raises(ValueError, match=f"{KEY} is planned already"):
        ledger.plan([planned(other, "slurm", "other"), planned(CASE, "slurm", NAME)])
    assert [found.case for found in ledger.entries()] == [KEY]
    assert ledger.entry(other.key) is None


def test_the_set_up_of_a_recipe_holds_no_gpus(ledger: Ledger) -> None:
    ledger.plan_setup(JobRef("llama3", "setup", "setup-1"), "slurm")
    found = entry(ledger, "llama3/setup")
    assert (found.gpus, found.status, found.ref.name) == (0, "planned", "setup-1")
    ledger.end("llama3/setup", "interrupted", "Ctrl-C")
    ledger.plan_setup(JobRef("llama3", "setup", "setup-1"), "slurm")
    assert ledger.entry("llama3/setup") == replace(found, try_number=2)


def test_a_reader_does_not_stop_the_writer_and_takes_whole_lines(ledger: Ledger) -> None:
    reader = Ledger(ledger.path)
    before = ledger.path.read_bytes()
    ledger.intend(KEY)
    whole = ledger.path.read_bytes()
    for size in range(len(before), len(whole)):
        ledger.path.write_bytes(whole[:size])
        assert entry(reader).status == "planned"
    ledger.path.write_bytes(whole)
    assert entry(reader).status == "intent"
    ledger.submitted(REF)
    assert entry(reader) == entry(ledger)


def shrink(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-2])


def replace_file(path: Path) -> None:
    """As a copy over it does: what it says may be of any time."""
    path.with_name("copy").write_bytes(path.read_bytes())
    path.with_name("copy").replace(path)


def put_a_folder_there(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (shrink, "it is shorter than before"),
        (replace_file, "it is another file than before"),
        (Path.unlink, "No such file"),
        (put_a_folder_there, "it is no regular file"),
    ],
)
def test_a_file_that_is_no_longer_what_it_was_tells_nothing_more(
    ledger: Ledger, change: Callable[[Path], None], reason: str
) -> None:
    """Neither to a worker nor to the fleet, which writes no line there."""
    reader = Ledger(ledger.path)
    assert reader.entry(KEY) is not None
    change(ledger.path)
    uses: list[Callable[[], object]]
    uses = [partial(reader.entry, KEY), ledger.require_there, partial(ledger.intend, KEY)]
    for use in uses:
        with pytest.raises(OSError, match=reason):
            use()
    assert entry(ledger).status == "planned"


def test_no_line_leaves_the_file_open(ledger: Ledger) -> None:
    before = os.listdir("/proc/self/fd")  # noqa: PTH208 - the numbers alone
    for number in range(10):
        ledger.attempt(KEY, number + 2)
    assert len(os.listdir("/proc/self/fd")) == len(before)  # noqa: PTH208


def test_a_text_of_the_cluster_is_no_line_of_its_own(ledger: Ledger) -> None:
    nasty = "\nffff {}\n'\0\udcff\u2028"
    ledger.observe(KEY, JobState(Phase.UNKNOWN, nasty, reason=nasty), None)
    ledger.end(KEY, "lost", nasty)
    job = entry(ledger)
    assert (job.state.raw, job.state.reason, job.message) == (nasty, nasty, nasty)


# Damage of a run's log of jobs is noticed, told and recorded, and no job that may be there is ever taken for planned.

CASES = [examples.case(f"70b-fp8-{gpus}gpus") for gpus in (512, 128, 64)]
ENDED, SENT, WAITING = (case.key for case in CASES)
SEEDS = range(12)
KILLED = """
import os, sys
from pathlib import Path
from plugins.record.job import JobRef, JobState, Phase
from fixtures.runs.ledger import Ledger
from tests.unit import examples, jobs_log
ended, submitted, planned = (examples.case(f"70b-fp8-{gpus}gpus") for gpus in (512, 128, 64))
ledger = Ledger.create(Path(sys.argv[1]), "run-1", "lab")
ledger.plan([jobs_log.planned(case, "slurm", f"pacemark-run-1.{case.id}") for case in (ended, submitted, planned)])
for number, case in enumerate((ended, submitted), start=17):
    ledger.intend(case.key)
    ledger.submitted(JobRef(case.recipe, case.id, f"pacemark-run-1.{case.id}", str(number), "/logs"))
    ledger.observe(case.key, JobState(Phase.RUNNING, "RUNNING", nodes="gpu001"), 5.0)
ledger.try_again(ended.key, ("gpu001",), "infrastructure", "a node failed")
ledger.intend(ended.key)
ledger.submitted(JobRef(ended.recipe, ended.id, f"pacemark-run-1.{ended.id}-try2", "19", "/logs"))
ledger.observe(ended.key, JobState(Phase.SUCCEEDED, "COMPLETED", nodes="gpu002"))
ledger.end(ended.key)
os.kill(os.getpid(), 9)
"""
# Its plan, the changes of the jobs in the order of `KILLED`, and the line of the run before them.
LINES = 13


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a session left that was killed: one case ended at its second try, one has a job, one is planned."""
    folder = tmp_path_factory.mktemp("killed") / "run-1"
    folder.mkdir()
    subprocess.run([sys.executable, "-c", KILLED, str(folder / JOBS_LOG)], cwd=examples.ROOT, check=False)
    assert len(lines_of((folder / JOBS_LOG).read_bytes())) == LINES
    return folder


@pytest.fixture
def folder(killed: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(killed, tmp_path / "run-1"))


def whole(killed: Path) -> list[Job]:
    return read_ledger(killed).entries()


def require_safe(folder: Path, before: list[Job]) -> str:
    """Each job is as it was, or as it was earlier; and if the damage is told, none counts as planned."""
    ledger, told = open_ledger(folder)
    after = {job.case: job for job in ledger.entries()}
    for job in before:
        found = after.get(job.case)
        if found is None:
            # Its only line is lost. It is looked up by its name as soon as it is planned again.
            assert job.case == WAITING
            ledger.plan([planned(case, "slurm", "again") for case in CASES if case.key == WAITING])
            assert entry(ledger, WAITING).may_run
        elif told:
            assert found.status != "planned"
            assert job.ref.name.startswith(found.ref.name)
            assert found.ref.id in ("", "17", job.ref.id)
            assert found.may_run or found.status == "ended"
        else:
            assert found == job
    if told:
        assert f"its ledger in {folder} is damaged: {JOBS_LOG}: line " in told
        assert "looked up by its name" in told
    # Said once: what is known stands behind it.
    again, remark = open_ledger(folder)
    assert remark == ""
    assert again.entries() == ledger.entries()
    return told


def test_a_whole_ledger_is_left_as_it_is(killed: Path, folder: Path) -> None:
    before = (folder / JOBS_LOG).read_bytes()
    assert require_safe(folder, whole(killed)) == ""
    assert (folder / JOBS_LOG).read_bytes() == before


@pytest.mark.parametrize("number", range(LINES))
def test_a_byte_of_each_line_is_flipped(killed: Path, folder: Path, number: int) -> None:
    lines = (folder / JOBS_LOG).read_bytes().splitlines(keepends=True)
    changed = bytearray(lines[number])
    changed[random.Random(number).randrange(len(changed) - 1)] ^= 4
    (folder / JOBS_LOG).write_bytes(b"".join([*lines[:number], bytes(changed), *lines[number + 1 :]]))
    assert f"line {number + 1} " in require_safe(folder, whole(killed))


@pytest.mark.parametrize("number", range(LINES))
def test_each_line_is_left_out(killed: Path, folder: Path, number: int) -> None:
    lines = (folder / JOBS_LOG).read_bytes().splitlines(keepends=True)
    (folder / JOBS_LOG).write_bytes(b"".join([*lines[:number], *lines[number + 1 :]]))
    if number == LINES - 1:
        # Nobody can see that: the job is followed, which is over.
        assert entry(read_ledger(folder), ENDED).may_run
    else:
        told = require_safe(folder, whole(killed))
        assert f"line {number + 1} does not follow the line before it" in told


@pytest.mark.parametrize("seed", SEEDS)
def test_flipped_bits(killed: Path, folder: Path, seed: int) -> None:
    chosen, path = random.Random(seed), folder / JOBS_LOG
    data = bytearray(path.read_bytes())
    for _ in range(4):
        data[chosen.randrange(len(data))] ^= 1 << chosen.randrange(8)
    path.write_bytes(data)
    assert require_safe(folder, whole(killed))


def test_a_line_that_was_cut_off_is_removed_and_no_job_is_sent_unseen(killed: Path, folder: Path) -> None:
    """Its line was not on the disk, so that nothing was done yet; but somebody may have cut off more."""
    path = folder / JOBS_LOG
    *lines, last = path.read_bytes().splitlines(keepends=True)
    for lost in (1, 9, len(last) - 1):
        path.write_bytes(b"".join([*lines, last[:-lost]]))
        assert not read_ledger(folder).damage
        ledger, told = open_ledger(folder)
        assert told == ""
        assert entry(ledger, ENDED).status == "submitted"
        assert entry(ledger, WAITING).may_run
        assert path.read_bytes().startswith(b"".join(lines))
        ledger.end(ENDED)
        again = read_ledger(folder)
        assert not again.damage
        assert entry(again, ENDED).status == "ended"


@pytest.mark.parametrize("name", ["sent.txt", "log.txt", "case.json"])
def test_a_planned_job_that_left_a_trace_may_be_there(killed: Path, folder: Path, name: str) -> None:
    """As in a log from which the last lines were cut off, which nobody can see."""
    (folder / WAITING).mkdir(parents=True)
    (folder / WAITING / name).touch()
    assert entry(read_ledger(folder), WAITING).status == "planned"
    ledger, told = open_ledger(folder)
    assert told == ""
    job = entry(ledger, WAITING)
    assert (job.status, job.may_run) == ("intent", True)
    assert job.times.submitted == pytest.approx((killed / JOBS_LOG).stat().st_mtime, abs=60)
    assert read_ledger(folder).entries() == ledger.entries()


def test_a_case_that_the_log_lost_and_that_left_a_trace_may_be_there(killed: Path, folder: Path) -> None:
    lines = (folder / JOBS_LOG).read_bytes().splitlines(keepends=True)
    (folder / JOBS_LOG).write_bytes(lines[0])
    (folder / WAITING).mkdir(parents=True)
    (folder / WAITING / "sent.txt").touch()
    ledger, told = open_ledger(folder)
    assert (told, ledger.entries()) == ("", [])
    ledger.plan([planned(case, "slurm", case.id) for case in CASES])
    assert [job.status for job in ledger.entries()] == ["planned", "planned", "intent"]


@pytest.mark.parametrize("how", ["empty", "missing", "text", "bytes", "folder", "no line"])
def test_a_ledger_that_nobody_can_read_is_one_clear_error(folder: Path, how: str) -> None:
    (folder / JOBS_LOG).unlink()
    if how == "folder":
        (folder / JOBS_LOG).mkdir()
    elif how != "missing":
        contents = {"empty": b"", "text": b"this is no ledger\n" * 600, "bytes": b"\xff\x00\xfe" * 4000}
        (folder / JOBS_LOG).write_bytes(contents.get(how, b"0123456789abcdef {}\n"))
    with pytest.raises(
        ConfigError, match=r"its ledger cannot be read .* begin with pacemark-run-1"
    ) as caught:
        read_ledger(folder)
    assert "another version" not in str(caught.value)


def test_the_ledger_of_another_run_tells_nothing_of_this_one(folder: Path, tmp_path: Path) -> None:
    """Nobody ends the jobs of the other one, and those of this one are named."""
    name = "20261122-120000-0123abcd"
    (tmp_path / name).mkdir()
    shutil.copyfile(folder / JOBS_LOG, tmp_path / name / JOBS_LOG)
    with pytest.raises(ConfigError, match=rf"it is that of run run-1\); .* begin with pacemark-{name}"):
        read_ledger(tmp_path / name)


def test_a_ledger_that_is_damaged_twice_is_told_twice_and_keeps_its_lines(killed: Path, folder: Path) -> None:
    path = folder / JOBS_LOG
    for _ in range(2):
        *lines, last = path.read_bytes().splitlines(keepends=True)
        before = b"".join([*lines, last.replace(b"lab", b"lob", 1)])
        path.write_bytes(before)
        assert require_safe(folder, whole(killed))
        assert path.read_bytes().startswith(before)


def test_somebody_else_who_writes_breaks_no_chain(folder: Path) -> None:
    """The run's lock keeps two processes apart; where it was removed, each takes what the other one wrote."""
    one, other = Ledger(folder / JOBS_LOG), Ledger(folder / JOBS_LOG)
    for ledger in (one, other, one):
        ledger.intend(WAITING)
        ledger.cancel_asked(SENT)
    assert read_ledger(folder).damage == ()
    assert read_ledger(folder).entries() == one.entries()
