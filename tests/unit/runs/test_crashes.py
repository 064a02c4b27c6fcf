"""At each write of the log of jobs and each request, a session is killed, or its disk is full: no double, none left."""

from __future__ import annotations

import errno
import io
import itertools
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from fixtures.runs.folders import Summary
from fixtures.runs.ledger import open_ledger
from fixtures.runs.leftovers import cancel_left
from fixtures.runs.resume import resumed
from fixtures.site import Site
from plugins.record.lines import JOBS_LOG
from tests.unit import crashes
from tests.unit.cluster import Site as Quick
from tests.unit.crashes import Kept


class Lab(Site):
    def section(self, backend: str) -> Quick:
        return crashes.site()


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Quick, "launch_bound", 0.0)
    monkeypatch.setattr("fixtures.runs.unconfirmed.LOOK_AGAIN_SECONDS", 0.02)
    monkeypatch.setattr("fixtures.fleet.ending.LOOK_SECONDS", 0.02)
    monkeypatch.setattr("fixtures.runs.leftovers._LOOK_SECONDS", 0.02)
    monkeypatch.setattr("fixtures.runs.unconfirmed.LOOK_SECONDS", 0.02)


@pytest.fixture
def killed(tmp_path: Path) -> list[Path]:
    """What a session would have left on the disk if it had been killed: at each point, where that differs."""
    folder, known = tmp_path / "run-1", set[tuple[bytes, ...]]()
    copies: list[Path] = []
    one_at_a_time = threading.Lock()

    def point(where: str) -> None:
        with one_at_a_time:
            files = (folder / JOBS_LOG, folder / "cluster")
            content = tuple(file.read_bytes() if file.exists() else b"" for file in files)
            if content not in known:
                known.add(content)
                copies.append(Path(shutil.copytree(folder, tmp_path / f"{len(known)} {where}")))

    crashes.session(folder, point)
    return copies


def require_known(folder: Path, cluster: Kept, where: str) -> None:
    """No job was submitted twice, and the ledger knows each."""
    names = cluster.requests("submit")
    assert len(set(names)) == len(names), where
    assert set(names) <= {job.ref.name for job in open_ledger(folder)[0].jobs()}, where


def goes_on(folder: Path, where: str) -> None:
    """`--resume` ends each case, and leaves no job."""
    cluster = Kept(folder / "cluster")
    ledger, _ = open_ledger(folder)
    crashes.drive(folder, ledger, resumed(ledger, "lab", crashes.plans(), {"slurm": cluster}), cluster)
    require_known(folder, cluster, where)
    assert cluster.live() == [], where
    assert [entry.status for entry in ledger.entries()] == ["ended", "ended"], where
    assert not any(entry.may_run for entry in ledger.entries()), where
    assert {entry.failure for entry in ledger.entries()} == {""}, where


def swept(folder: Path, where: str) -> None:
    cluster = Kept(folder / "cluster", ends=False)
    assert cancel_left(folder, Lab(site="lab"), {"slurm": cluster}, io.StringIO()), where
    require_known(folder, cluster, where)
    assert (cluster.live(), Summary.of(folder).left) == ([], []), where


def test_a_session_killed_at_any_point_goes_on_and_leaves_no_job(killed: list[Path]) -> None:
    where = [folder.name.partition(" ")[2] for folder in killed]
    assert {"in a line", "behind a line", "behind a submission", "behind a cancellation"} <= set(where)
    for copy in killed:
        for end in (goes_on, swept):
            folder = copy.with_name("run-1")
            shutil.rmtree(folder)
            shutil.copytree(copy, folder)
            end(folder, copy.name)


def full_from(number: int) -> Callable[[str], None]:
    """The disk is full when the `number`-th line is half written, and stays so."""
    lines = itertools.count(1)

    def point(where: str) -> None:
        if where == "in a line" and next(lines) >= number:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    return point


def test_a_disk_that_is_full_at_any_line_leaves_no_job(tmp_path: Path) -> None:
    for number in itertools.count(1):
        folder = tmp_path / str(number)
        fleet = crashes.session(folder, full_from(number))
        cluster = Kept(folder / "cluster")
        where = f"line {number}"
        assert cluster.live() == [], where
        if not fleet.defect:
            break
        assert fleet.defect.startswith("the disk of the results folder is full"), where
        goes_on(folder, where)
    assert number > 10
