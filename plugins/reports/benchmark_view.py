"""pytest-benchmark's view: a case's steps are its rounds. Its table, JSON and comparisons work as usual."""

from __future__ import annotations

import pytest

from plugins.judging.judge import Judgement


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
    """Replay the steps as rounds, if pytest-benchmark is installed and on. Under xdist it is off."""
    config = request.config
    marker = request.node.get_closest_marker("benchmark")
    if not config.pluginmanager.hasplugin("benchmark") or marker is None:
        return
    if config.getoption("--benchmark-disable") or hasattr(config, "workerinput"):
        return
    clock: StepClock = marker.kwargs["timer"]
    clock.pending = list(judgement.case.means.times(judgement.log.steps).values())
    benchmark = request.getfixturevalue("benchmark")
    benchmark.group = judgement.case.recipe
    benchmark.pedantic(clock.round, rounds=len(clock.pending))
