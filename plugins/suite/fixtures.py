"""The fixtures of a suite's test: what its case measured, and what it should reach.

pytest needs them to collect the tests, which shall take little time. So what they return is made by
`plugins.suite.measured`, which is loaded when tests run.
"""

from __future__ import annotations

from typing import Any

import pytest

from plugins.recipes.cases import Case

MEASURED = "plugins.suite.measured"


@pytest.fixture
def judgement(request: pytest.FixtureRequest, case: Case, outcome: Any) -> Any:
    """The `Judgement` of the case. Its log is checked and compared with the baseline, and its record is written.

    Because it asks for `case`, each test that asks for a figure is made for every case.
    """
    return request.config.pluginmanager.getplugin(MEASURED).judged(request, outcome)


@pytest.fixture
def figures(request: pytest.FixtureRequest, judgement: Any) -> Any:
    """The `Figures` of the case. Raises an error, or skips the test, if it has none."""
    return request.config.pluginmanager.getplugin(MEASURED).Figures(judgement)


@pytest.fixture
def measured(figures: Any) -> Any:
    """What the case measured; None if its run was invalid."""
    return figures.measured


@pytest.fixture
def written(figures: Any) -> Any:
    """The checkpoint that the case wrote; None if its run was invalid."""
    return figures.written


@pytest.fixture
def loaded(figures: Any) -> Any:
    """The seconds in which the case loaded a checkpoint."""
    return figures.loaded


@pytest.fixture
def lacking(figures: Any) -> Any:
    """What a run in another mode should have left on the cluster, and did not."""
    return figures.lacking


@pytest.fixture
def expected(figures: Any) -> Any:
    """What the case should reach by its baseline; None if its run was invalid."""
    return figures.expected


@pytest.fixture
def promised(figures: Any) -> Any:
    """What the shared storage should reach by the site file; None if the run was invalid."""
    return figures.promised
