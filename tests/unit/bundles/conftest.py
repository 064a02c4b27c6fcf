"""Runs and keys that the tests of bundles share: they are changed nowhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from pacemark.__main__ import main
from plugins.judging.job_files import ParsedLogs
from tests.unit.bundles import runs
from tests.unit.bundles.runs import Made, Members

PARSED = ParsedLogs()


@pytest.fixture
def parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A log that several tests examine is parsed for the first of them."""
    monkeypatch.setattr("plugins.judging.rejudge.ParsedLogs", lambda: PARSED)


@pytest.fixture
def unexamined(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bundle is opened, and its signatures and digests are checked; what its files say is for `test_forged`."""
    monkeypatch.setattr("plugins.bundle.verification.examine", lambda *_: None)


@pytest.fixture(scope="session")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("keys")
    runs.make_keys(folder, "vendor", "buyer", "other")
    return folder


@pytest.fixture(scope="session")
def usual(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return Made.of(runs.make_run(tmp_path_factory.mktemp("usual")))


@pytest.fixture(scope="session")
def accepted(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """A run with an acceptance plan, which it is accepted by."""
    return Made.of(runs.make_run(tmp_path_factory.mktemp("accepted"), runs.PLAN_TEXT))


@pytest.fixture(scope="session")
def bundle(usual: Made, tmp_path_factory: pytest.TempPathFactory, keys: Path) -> Path:
    """The bundle of the usual run, which both parties have signed."""
    path = tmp_path_factory.mktemp("bundle") / "run.zip"
    signers = [word for name in ("vendor", "buyer") for word in ("--key", str(keys / f"{name}.pem"))]
    assert main(["bundle", str(usual.folder), *signers, "-o", str(path)]) == 0
    return path


@pytest.fixture(scope="session")
def members(bundle: Path) -> Members:
    return runs.unpacked(bundle)
