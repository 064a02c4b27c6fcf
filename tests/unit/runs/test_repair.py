"""Damage of a run's ledger is noticed, told and mended, and no job that may be there is ever taken for planned."""

from __future__ import annotations

import random
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from fixtures.runs.journal import JOURNAL
from fixtures.runs.ledger import LEDGER, Entry, Ledger
from fixtures.runs.repair import open_ledger, read_ledger
from plugins.errors import ConfigError
from tests.unit import examples

WAL, SHM = f"{LEDGER}-wal", f"{LEDGER}-shm"
CASES = [examples.case(f"70b-fp8-{gpus}gpus") for gpus in (512, 128, 64)]
ENDED, SUBMITTED, PLANNED = (case.key for case in CASES)
SEEDS = range(12)
KILLED = """
import os, sys
from pathlib import Path
from plugins.record.job import JobRef, JobState, Phase
from fixtures.runs.ledger import Ledger
from tests.unit import examples
ended, submitted, planned = (examples.case(f"70b-fp8-{gpus}gpus") for gpus in (512, 128, 64))
ledger = Ledger.create(Path(sys.argv[1]), "run-1", "lab")
ledger.plan([(case, "slurm", f"pacemark-run-1.{case.id}") for case in (ended, submitted, planned)])
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


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a session left that was killed: one case ended at its second try, one has a job, one is planned."""
    folder = tmp_path_factory.mktemp("killed") / "run-1"
    folder.mkdir()
    subprocess.run([sys.executable, "-c", KILLED, str(folder / LEDGER)], cwd=examples.ROOT, check=False)
    assert (folder / WAL).stat().st_size > 0
    return folder


@pytest.fixture
def folder(killed: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(killed, tmp_path / "run-1"))


def whole(killed: Path, tmp_path: Path) -> list[Entry]:
    return read_ledger(Path(shutil.copytree(killed, tmp_path / "whole"))).entries


def flip(path: Path, seed: int, count: int = 8) -> None:
    """Change some bytes at random."""
    chosen = random.Random(seed)
    data = bytearray(path.read_bytes())
    for _ in range(count):
        data[chosen.randrange(len(data))] ^= 1 << chosen.randrange(8)
    path.write_bytes(data)


def require_safe(folder: Path, before: list[Entry]) -> str:
    """The ledger is as it was, or the damage is told and each case counts as one that may have its job."""
    ledger, told = open_ledger(folder)
    after = {entry.case: entry for entry in ledger.entries()}
    earlier = [tried.ref.name for tried in ledger.earlier(ENDED)]
    ledger.close()
    if not told:
        assert list(after.values()) == before
    else:
        assert (after[SUBMITTED].ref.name, after[SUBMITTED].ref.id) == (
            "pacemark-run-1.70b-fp8-128gpus",
            "18",
        )
        assert after[SUBMITTED].may_run
        assert after[PLANNED].status == "intent"
        assert after[PLANNED].times.submitted is not None
        assert after[ENDED].ref.name.endswith("-try2")
        assert f"its ledger in {folder} is damaged: " in told
        assert "looked up by its name" in told
    assert earlier == ["pacemark-run-1.70b-fp8-512gpus"]
    # Mended for good.
    again, remark = open_ledger(folder)
    assert remark == ""
    assert {entry.case: entry for entry in again.entries()} == after
    again.close()
    return told


def test_a_whole_ledger_is_left_as_it_is(killed: Path, folder: Path, tmp_path: Path) -> None:
    assert require_safe(folder, whole(killed, tmp_path)) == ""


def test_a_ledger_without_its_last_changes_is_behind(killed: Path, folder: Path, tmp_path: Path) -> None:
    (folder / WAL).unlink()
    told = require_safe(folder, whole(killed, tmp_path))
    assert f"{LEDGER} is behind {JOURNAL} in {SUBMITTED}, {ENDED}, {PLANNED}" in told
    assert (folder / f"{LEDGER}.damaged").exists()


@pytest.mark.parametrize("share", [0.0, 0.3, 0.6, 0.9])
def test_a_wal_that_was_cut(killed: Path, folder: Path, tmp_path: Path, share: float) -> None:
    data = (folder / WAL).read_bytes()
    (folder / WAL).write_bytes(data[: int(len(data) * share)])
    require_safe(folder, whole(killed, tmp_path))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", [LEDGER, WAL, SHM, JOURNAL])
def test_flipped_bits(killed: Path, folder: Path, tmp_path: Path, name: str, seed: int) -> None:
    flip(folder / name, seed)
    require_safe(folder, whole(killed, tmp_path))


@pytest.mark.parametrize("name", [LEDGER, JOURNAL])
@pytest.mark.parametrize("how", ["empty", "missing", "text", "bytes"])
def test_one_of_ledger_and_journal_is_enough(
    killed: Path, folder: Path, tmp_path: Path, name: str, how: str
) -> None:
    if how == "missing":
        (folder / name).unlink()
    else:
        content = {"empty": b"", "text": b"this is no ledger\n" * 600, "bytes": b"\xff\x00\xfe" * 4000}[how]
        (folder / name).write_bytes(content)
    assert name in require_safe(folder, whole(killed, tmp_path))


def columns() -> list[tuple[str, str]]:
    with sqlite3.connect(":memory:") as database:
        from fixtures.runs import ledger

        database.executescript(ledger._SCHEMA)
        return [
            (table, row[1])
            for table in ("run", "submission")
            for row in database.execute(f"pragma table_info({table})")
            if row[2].lower() == "text"
        ]


@pytest.mark.parametrize(("table", "column"), columns())
def test_text_that_is_no_utf_8(killed: Path, folder: Path, tmp_path: Path, table: str, column: str) -> None:
    with sqlite3.connect(folder / LEDGER) as database:
        database.execute(f"update {table} set {column} = cast(x'ff00fe41' as text) || rowid")
    database.close()
    told = require_safe(folder, whole(killed, tmp_path))
    assert told or (table, column) in {("run", "host"), ("run", "process")}


def test_a_ledger_and_a_journal_that_nobody_can_read_are_one_clear_error(folder: Path) -> None:
    for name in (LEDGER, JOURNAL):
        (folder / name).write_bytes(b"")
    with pytest.raises(ConfigError, match=r"its ledger cannot be read .* begin with pacemark-run-1"):
        read_ledger(folder)


def test_a_ledger_that_is_in_use_is_not_damaged(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Ledger(folder / LEDGER).close()
    with sqlite3.connect(folder / LEDGER, isolation_level=None) as other:
        other.execute("pragma journal_mode=delete")
        other.execute("begin exclusive")
        connect = sqlite3.connect
        monkeypatch.setattr(
            sqlite3, "connect", lambda path, **given: connect(path, **{**given, "timeout": 0.1})
        )
        with pytest.raises(ConfigError, match=r"cannot be read at present \(database is locked\)"):
            read_ledger(folder)
    other.close()
    assert (folder / LEDGER).exists()


def test_a_session_that_ended_between_the_ledger_and_the_journal_did_no_damage(
    killed: Path, folder: Path, tmp_path: Path
) -> None:
    lines = (folder / JOURNAL).read_bytes().splitlines(keepends=True)
    (folder / JOURNAL).write_bytes(b"".join(lines[:-1]))
    assert require_safe(folder, whole(killed, tmp_path)) == ""


def test_a_line_that_a_power_cut_cut_off_is_told_and_spoils_no_other(
    killed: Path, folder: Path, tmp_path: Path
) -> None:
    (folder / JOURNAL).write_bytes((folder / JOURNAL).read_bytes()[:-9])
    assert f"{JOURNAL} has 1 line(s) whose checksum is wrong" in require_safe(folder, whole(killed, tmp_path))


@pytest.mark.parametrize("byte", [b"f", b"\xe6"])
def test_the_name_of_a_column_has_another_byte(
    killed: Path, folder: Path, tmp_path: Path, byte: bytes
) -> None:
    sqlite3.connect(folder / LEDGER).execute("pragma wal_checkpoint(truncate)").connection.close()
    data = (folder / LEDGER).read_bytes()
    before, found, behind = data.rpartition(b"recipe text not null,\n")
    assert found
    (folder / LEDGER).write_bytes(before + byte + found[1:] + behind)
    assert f"{LEDGER} cannot be read whole" in require_safe(folder, whole(killed, tmp_path))


@pytest.mark.parametrize("name", [LEDGER, JOURNAL])
def test_a_journal_of_another_run_tells_nothing_of_this_one(
    killed: Path, folder: Path, tmp_path: Path, name: str
) -> None:
    expected = whole(killed, tmp_path)
    (tmp_path / "run-2").mkdir()
    other = Ledger.create(tmp_path / "run-2" / LEDGER, "run-2", "lab")
    other.plan([(case, "slurm", f"pacemark-run-2.{case.id}") for case in CASES])
    for case in CASES:
        for _ in range(9):
            other.intend(case.key)
        other.end(case.key)
    other.close()
    shutil.copyfile(tmp_path / "run-2" / name, folder / name)
    if name == LEDGER:
        (folder / WAL).unlink()
    told = require_safe(folder, expected)
    assert f"{LEDGER} and {JOURNAL} are of different runs" in told
    assert read_ledger(folder).run.id == "run-1"


@pytest.mark.parametrize("name", [WAL, SHM])
@pytest.mark.parametrize("how", ["folder", "link"])
def test_something_else_is_beside_the_ledger(
    killed: Path, folder: Path, tmp_path: Path, name: str, how: str
) -> None:
    expected = whole(killed, tmp_path)
    (folder / name).unlink()
    if how == "folder":
        (folder / name).mkdir()
    else:
        (folder / name).symlink_to("nowhere")
    assert f"{name} is no regular file" in require_safe(folder, expected)


@pytest.mark.parametrize("name", [LEDGER, WAL, JOURNAL])
def test_a_ledger_that_is_damaged_twice_is_made_anew_twice(
    killed: Path, folder: Path, tmp_path: Path, name: str
) -> None:
    expected = whole(killed, tmp_path)
    for kind in (Path.touch, Path.mkdir):
        (folder / name).unlink(missing_ok=True)
        kind(folder / name)
        (folder / f"{name}.damaged").touch()
        require_safe(folder, expected)
    assert (folder / f"{name}.damaged").is_file()
