"""The fixtures of a suite's test: what its case measured, and what it should reach.

pytest needs them to collect the tests, which shall take little time. So what they return is made by
`plugins.suite.measured`, which is loaded when tests run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from plugins.recipes.cases import Case

if TYPE_CHECKING:
    from plugins.judging.judgement import Judgement
    from plugins.judging.measurement import Measurement
    from plugins.modes.checkpoints import Written
    from plugins.record.outcome import Outcome
    from plugins.suite.measured import Figures, Promise, Targets

MEASURED = "plugins.suite.measured"


@pytest.fixture
def judgement(request: pytest.FixtureRequest, case: Case, outcome: Outcome) -> Judgement:
    """The `Judgement` of the case. Its log is checked and compared with the baseline, and its record is written.

    Because it asks for `case`, each test that asks for a figure is made for every case.
    """
    judged: Judgement = request.config.pluginmanager.getplugin(MEASURED).judged(request, outcome)
    return judged


@pytest.fixture
def figures(request: pytest.FixtureRequest, judgement: Judgement) -> Figures:
    """The `Figures` of the case. Raises an error, or skips the test, if it has none."""
    figures: Figures = request.config.pluginmanager.getplugin(MEASURED).Figures(judgement)
    return figures


@pytest.fixture
def measured(figures: Figures) -> Measurement | None:
    """What the case measured; None if its run was invalid."""
    return figures.judgement.measurement


@pytest.fixture
def written(figures: Figures) -> Written | None:
    """The checkpoint that the case wrote; None if its run was invalid."""
    return figures.judgement.written


@pytest.fixture
def loaded(figures: Figures) -> float | None:
    """The seconds in which the case loaded a checkpoint."""
    return figures.judgement.log.loaded


@pytest.fixture
def lacking(figures: Figures) -> list[str]:
    """What a run in another mode should have left on the cluster, and did not."""
    return figures.lacking


@pytest.fixture
def expected(figures: Figures) -> Targets | None:
    """What the case should reach by its baseline; None if its run was invalid."""
    return figures.expected


@pytest.fixture
def promised(figures: Figures) -> Promise | None:
    """What the shared storage should reach by the site file; None if the run was invalid."""
    return figures.promised
