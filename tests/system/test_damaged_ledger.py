"""A session is killed, its ledger is damaged or copied: no second job of any name, none left, and no traceback."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from plugins.record.lines import JOBS_LOG
from tests.bench.soak import soak
from tests.lab.scripted import STUCK, Script, ScriptedLab
from tests.system.forks import Session
from tests.system.scripted import CELL, RECIPE, site_of
from tests.system.support import Run, finish, pacemark, signal_group, start, until

SELECT = (f"suites/{RECIPE}", "-k", CELL)
LONG = Script(timeline=STUCK, ends=False)


def torn_tail(folder: Path) -> None:
    """As after a power cut: the id of the job is lost with the end of its line."""
    path = folder / JOBS_LOG
    data = path.read_bytes()
    path.write_bytes(data[: data.index(b'"status": "submitted"')])


def flipped_bytes(folder: Path) -> None:
    """In each line but one."""
    path = folder / JOBS_LOG
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([lines[0], *(line.replace(b'"at"', b'"aT"') for line in lines[1:])]))


def lost_tail(folder: Path) -> None:
    """Nothing in it knows of the job: as in an older copy of the folder."""
    lines = (folder / JOBS_LOG).read_bytes().splitlines(keepends=True)
    (folder / JOBS_LOG).write_bytes(b"".join(lines[:2]))


DAMAGES = [torn_tail, flipped_bytes, lost_tail]


def killed(lab: ScriptedLab, tmp_path: Path, site: Path, script: Script = LONG) -> Path:
    """The folder of a run whose session was killed while its job ran."""
    lab.play(script)
    process = start(*SELECT, "--site", str(site), results=tmp_path / "results")
    try:
        return recorded(lab, tmp_path)
    finally:
        kill(process)


def recorded(lab: ScriptedLab, tmp_path: Path) -> Path:
    """The folder of the run, once its job runs and the ledger has the job's id."""
    until(lambda: "RUNNING" in lab.jobs().values(), "the job runs")
    folder = (tmp_path / "results" / "latest").resolve()
    until(lambda: '"status": "submitted"' in (folder / JOBS_LOG).read_text(), "its id is recorded")
    return folder


def followed(tmp_path: Path) -> bool:
    journal = tmp_path / "results" / "latest" / JOBS_LOG
    return journal.exists() and '"id": "4711"' in journal.read_text(errors="replace")


def kill(process: Session) -> None:
    signal_group(process, signal.SIGKILL)
    process.communicate()


def ask(site: Path, tmp_path: Path, *arguments: str, results: str = "results") -> Run:
    run = pacemark(*arguments, "--site", str(site), results=tmp_path / results)
    assert "Traceback" not in run.out
    return run


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_sweep_finds_and_cancels_whatever_became_of_the_ledger(
    scripted_lab: ScriptedLab, tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    site = site_of(scripted_lab, RECIPE, tmp_path, launch_minutes="0.5")
    damage(killed(scripted_lab, tmp_path, site))
    swept = ask(site, tmp_path, "suites", "--sweep")
    assert swept.status == 0, swept.out
    assert "job 4711" in swept.out
    assert scripted_lab.live_jobs() == []


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_resumed_run_goes_on_with_its_job_whatever_became_of_the_ledger(
    scripted_lab: ScriptedLab, tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    site = site_of(scripted_lab, RECIPE, tmp_path, launch_minutes="0.5")
    damage(killed(scripted_lab, tmp_path, site))
    process = start(*SELECT, "--site", str(site), "--resume", "latest", results=tmp_path / "results")
    try:
        until(lambda: followed(tmp_path), "the job is followed again")
        scripted_lab.play(Script())
        resumed = finish(process, tmp_path / "results")
    finally:
        process.kill()
    assert "Traceback" not in resumed.out
    assert resumed.case(f"{RECIPE}/{CELL}")["verdict"] == "passed", resumed.out
    assert resumed.case(f"{RECIPE}/{CELL}")["job"]["id"] == "4711"
    assert len(scripted_lab.calls("sbatch")) == 1


def test_a_copy_of_a_run_that_lives_is_left_alone(scripted_lab: ScriptedLab, tmp_path: Path) -> None:
    scripted_lab.play(LONG)
    site = site_of(scripted_lab, RECIPE, tmp_path)
    with start(*SELECT, "--site", str(site), results=tmp_path / "results") as process:
        try:
            run = recorded(scripted_lab, tmp_path)
            shutil.copytree(tmp_path / "results", tmp_path / "backup", symlinks=True)
            for command in (
                ["suites", "--sweep"],
                ["suites", "--cancel", run.name],
                [*SELECT, "--resume", run.name],
            ):
                said = ask(site, tmp_path, *command, results="backup")
                assert f"is a copy of {run}" in said.out
                assert "where the run is alive: nothing is done here" in said.out
                assert said.status == (0 if "--sweep" in command else 4)
            assert scripted_lab.live_jobs() == [4711]
            assert len(scripted_lab.calls("sbatch")) == 1
        finally:
            kill(process)
    swept = ask(site, tmp_path, "suites", "--sweep", results="backup")
    assert "is a copy of" in swept.out
    assert scripted_lab.live_jobs() == []


def test_a_folder_that_was_moved_still_tells_what_to_cancel(
    scripted_lab: ScriptedLab, tmp_path: Path
) -> None:
    site = site_of(scripted_lab, RECIPE, tmp_path)
    killed(scripted_lab, tmp_path, site)
    (tmp_path / "results").rename(tmp_path / "elsewhere")
    swept = ask(site, tmp_path, "suites", "--sweep", results="elsewhere")
    assert swept.status == 0, swept.out
    assert scripted_lab.live_jobs() == []


def test_a_short_soak_finds_nothing() -> None:
    count = soak(3, seed=7)
    assert count.good, count.said
    assert count.killed
