"""pytest-benchmark's view: a case's steps after the warm-up are its rounds.

Its table, JSON and comparisons work as usual, if one of its options is given.
"""

from __future__ import annotations

import os
import shlex

import pytest

from plugins.judging.judgement import Judgement


class StepClock:
    """A timer that advances by the seconds of one step for each round."""

    def __init__(self) -> None:
        self.now = 0.0
        self.pending: list[float] = []

    def __call__(self) -> float:
        return self.now

    def round(self) -> None:
        self.now += self.pending.pop(0)


def prepare(item: pytest.Item) -> None:
    """Give the item's benchmark fixture, if the test uses it, a clock that follows the log."""
    item.add_marker(pytest.mark.benchmark(timer=StepClock()))


def show(request: pytest.FixtureRequest, judgement: Judgement) -> None:
    """Replay the steps as rounds, if pytest-benchmark is asked for and on. Under xdist it is off."""
    config = request.config
    marker = request.node.get_closest_marker("benchmark")
    if not config.pluginmanager.hasplugin("benchmark") or marker is None:
        return
    if config.getoption("--benchmark-disable") or hasattr(config, "workerinput") or not _asked_for(config):
        return
    means, steps = judgement.case.means, judgement.log.steps
    warm_up = means.warm_up(judgement.case.steps)
    clock: StepClock = marker.kwargs["timer"]
    clock.pending = [seconds for index, seconds in means.times(steps).items() if index >= warm_up]
    if not clock.pending:
        return
    benchmark = request.getfixturevalue("benchmark")
    benchmark.group = judgement.case.recipe
    benchmark.pedantic(clock.round, rounds=len(clock.pending))


def _asked_for(config: pytest.Config) -> bool:
    """Whether an option of pytest-benchmark is given, on the command line or where pytest has more of it."""
    more = shlex.split(os.environ.get("PYTEST_ADDOPTS", ""))
    given = [*config.invocation_params.args, *more, *config.getini("addopts")]
    return any(str(word).startswith("--benchmark-") for word in given)
