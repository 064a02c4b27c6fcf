"""Damage of a run's log of jobs is noticed, told and recorded, and no job that may be there is ever taken for planned."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fixtures.runs.ledger import Ledger, damage_of, open_ledger, read_ledger
from plugins.base.errors import ConfigError
from plugins.record.job import Job
from plugins.record.lines import JOBS_LOG
from tests.unit import examples
from tests.unit.jobs_log import lines_of, planned

CASES = [examples.case(f"70b-fp8-{gpus}gpus") for gpus in (512, 128, 64)]
ENDED, SUBMITTED, PLANNED = (case.key for case in CASES)
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
    after = {entry.case: entry for entry in ledger.entries()}
    for entry in before:
        found = after.get(entry.case)
        if found is None:
            # Its only line is lost. It is looked up by its name as soon as it is planned again.
            assert entry.case == PLANNED
            ledger.plan([planned(case, "slurm", "again") for case in CASES if case.key == PLANNED])
            assert ledger.entry(PLANNED).may_run  # type: ignore[union-attr]
        elif told:
            assert found.status != "planned"
            assert entry.ref.name.startswith(found.ref.name)
            assert found.ref.id in ("", "17", entry.ref.id)
            assert found.may_run or found.status == "ended"
        else:
            assert found == entry
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
        assert read_ledger(folder).entry(ENDED).may_run  # type: ignore[union-attr]
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


def test_a_line_that_was_cut_off_is_removed_and_no_planned_job_is_sent_unseen(
    killed: Path, folder: Path
) -> None:
    """Its line was not on the disk, so that nothing was done yet; but somebody may have cut off more."""
    path = folder / JOBS_LOG
    *lines, last = path.read_bytes().splitlines(keepends=True)
    for lost in (1, 9, len(last) - 1):
        path.write_bytes(b"".join([*lines, last[:-lost]]))
        assert not read_ledger(folder).damage
        ledger, told = open_ledger(folder)
        assert told == ""
        assert ledger.entry(ENDED).status == "submitted"  # type: ignore[union-attr]
        assert ledger.entry(PLANNED).may_run  # type: ignore[union-attr]
        assert path.read_bytes().startswith(b"".join(lines))
        ledger.end(ENDED)
        again = read_ledger(folder)
        assert not again.damage
        assert again.entry(ENDED).status == "ended"  # type: ignore[union-attr]


@pytest.mark.parametrize("name", ["sent.txt", "log.txt", "case.json"])
def test_a_planned_job_that_left_a_trace_may_be_there(killed: Path, folder: Path, name: str) -> None:
    """As in a log from which the last lines were cut off, which nobody can see."""
    (folder / PLANNED).mkdir(parents=True)
    (folder / PLANNED / name).touch()
    assert read_ledger(folder).entry(PLANNED).status == "planned"  # type: ignore[union-attr]
    ledger, told = open_ledger(folder)
    assert told == ""
    job = ledger.entry(PLANNED)
    assert job is not None
    assert (job.status, job.may_run) == ("intent", True)
    assert job.times.submitted == pytest.approx((killed / JOBS_LOG).stat().st_mtime, abs=60)
    assert read_ledger(folder).entries() == ledger.entries()


def test_a_case_that_the_log_lost_and_that_left_a_trace_may_be_there(killed: Path, folder: Path) -> None:
    lines = (folder / JOBS_LOG).read_bytes().splitlines(keepends=True)
    (folder / JOBS_LOG).write_bytes(lines[0])
    (folder / PLANNED).mkdir(parents=True)
    (folder / PLANNED / "sent.txt").touch()
    ledger, told = open_ledger(folder)
    assert (told, ledger.entries()) == ("", [])
    ledger.plan([planned(case, "slurm", case.id) for case in CASES])
    assert [entry.status for entry in ledger.entries()] == ["planned", "planned", "intent"]


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


def test_many_damaged_lines_are_counted(folder: Path) -> None:
    path = folder / JOBS_LOG
    path.write_bytes(path.read_bytes().replace(b'"at"', b'"ta"', LINES - 1))
    assert damage_of(read_ledger(folder)).count("has a wrong checksum") == 3
    assert f"and {LINES - 4} more" in damage_of(read_ledger(folder))


def test_somebody_else_who_writes_breaks_no_chain(folder: Path) -> None:
    """The run's lock keeps two processes apart; where it was removed, each takes what the other one wrote."""
    one, other = Ledger(folder / JOBS_LOG), Ledger(folder / JOBS_LOG)
    for ledger in (one, other, one):
        ledger.intend(PLANNED)
        ledger.cancel_asked(SUBMITTED)
    assert read_ledger(folder).damage == ()
    assert read_ledger(folder).entries() == one.entries()
