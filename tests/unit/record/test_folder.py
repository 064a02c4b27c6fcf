"""The folder of a run is its user's alone: a log may hold what others should not read."""

from __future__ import annotations

import stat
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fixtures.runs.lock import RunLock
from fixtures.session.choices import CHOICES
from fixtures.session.opening import begin_run
from plugins.base.errors import ConfigError
from plugins.record.folder import make_private
from plugins.record.lines import JOBS_LOG
from tests.unit.chosen import choices


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_run_is_private_and_its_parents_are_as_they_were(tmp_path: Path) -> None:
    folder = tmp_path / "shared" / "results" / "20261122-043152-abcd"
    folder.parent.parent.mkdir(mode=0o755)
    make_private(folder)
    assert (mode(folder), mode(folder.parent.parent)) == (0o700, 0o755)


def test_a_folder_that_allure_made_is_made_private(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    (folder / "allure").mkdir(parents=True)
    folder.chmod(0o755)
    make_private(folder)
    assert mode(folder) == 0o700


def test_a_link_is_no_folder_of_a_run(tmp_path: Path) -> None:
    other, link = tmp_path / "other", tmp_path / "run"
    other.mkdir(mode=0o755)
    link.symlink_to(other)
    with pytest.raises(PermissionError, match="is a link, or belongs to another user"):
        make_private(link)
    assert mode(other) == 0o755


def test_a_folder_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    monkeypatch.setattr("os.geteuid", lambda: folder.stat().st_uid + 1)
    with pytest.raises(PermissionError, match="another user"):
        make_private(folder)


def test_a_run_of_another_session_of_the_same_second_is_refused(tmp_path: Path) -> None:
    first = RunLock(tmp_path)
    assert first.take()
    session: Any = SimpleNamespace(stash={CHOICES: choices(folder=tmp_path)})
    with pytest.raises(ConfigError, match="is the run of another session"):
        begin_run(session, [])
    assert not (tmp_path / JOBS_LOG).exists()
    first.release()
