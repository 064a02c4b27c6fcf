"""How hypothesis runs here: the same examples each time, and nothing written into the checkout. And fleets to be used."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.configuration import set_hypothesis_home_dir
from pydantic import TypeAdapter

from fixtures.fleet.state import Policy
from plugins.judging import case_record
from plugins.judging.judgement import Judgement
from plugins.recipes.cases import Case
from plugins.record.case import CaseRecord
from plugins.record.stored import case_as_json
from plugins.suite import judged
from tests.unit import examples
from tests.unit.cluster import Clock, Cluster, Session, Start

set_hypothesis_home_dir(Path(tempfile.gettempdir()) / "pacemark-hypothesis")
settings.register_profile(
    "pacemark",
    deadline=None,
    derandomize=True,
    database=None,
    max_examples=50,
    # By the clock on the wall, and a busy machine is slow.
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("pacemark")


@cache
def records() -> TypeAdapter[CaseRecord]:
    """Made once: its types have thousands of docstrings."""
    return TypeAdapter(CaseRecord)


@pytest.fixture(scope="session", autouse=True)
def typed_records() -> Iterator[None]:
    """Hold every record that a test makes against the types of summary.json."""
    made = case_record.record_of

    def checked(judgement: Judgement, recording: Mapping[str, Any] | None = None) -> CaseRecord:
        found = made(judgement, recording)
        records().validate_json(json.dumps(case_as_json(found)))
        return found

    with pytest.MonkeyPatch.context() as patch:
        for module in (case_record, judged, examples):
            patch.setattr(module, "record_of", checked)
        yield


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr("time.monotonic", made)
    return made


@pytest.fixture
def start(tmp_path: Path, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    monkeypatch.setattr("fixtures.fleet.settle._AGAIN_SECONDS", 0.1)
    monkeypatch.setattr("fixtures.fleet.ending.LOOK_SECONDS", 0.1)
    made: list[Session] = []

    def begin(*cases: Case, policy: Policy | None = None, run: str = "", **limits: object) -> Session:
        folder = tmp_path / run
        folder.mkdir(exist_ok=True)
        session = Session(folder, cluster, cases, policy or Policy(), **limits)
        made.append(session)
        session.fleet.start()
        return session

    yield begin
    for session in made:
        session.fleet.stop()
