"""Trials that are played back."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.recordings.trials import Begin, PlayedTrial
from tests.system.kube import small_suite


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(small_suite(tmp_path_factory.mktemp("small")))


@pytest.fixture
def begin(request: pytest.FixtureRequest, small: str, tmp_path: Path) -> Begin:
    name = request.function.__name__.removeprefix("test_")
    return lambda **options: PlayedTrial(name, tmp_path, small, **options)
