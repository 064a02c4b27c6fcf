"""pytest-benchmark's view: a case's steps after the warm-up are its rounds.

It is loaded if one of its options is given (conftest.py); its table, JSON and comparisons then work as usual. What
`--benchmark-compare-fail` finds is told in words.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pytest_benchmark.utils import PercentageRegressionCheck

from plugins.judging.judgement import Judgement
from plugins.reports.gate import Comparison

# Its options that ask for something which it makes of all cases.
_RESULTS = ("save", "autosave", "json", "histogram", "compare", "compare-fail")


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
    """Give the item's benchmark fixture, if there is one, a clock that follows the log."""
    if item.config.pluginmanager.hasplugin("benchmark"):
        item.add_marker(pytest.mark.benchmark(timer=StepClock()))


def show(request: pytest.FixtureRequest, judgement: Judgement) -> None:
    """Replay the steps as rounds, if pytest-benchmark is loaded and on. Under xdist it is off."""
    config = request.config
    marker = request.node.get_closest_marker("benchmark")
    if marker is None or config.getoption("--benchmark-disable") or hasattr(config, "workerinput"):
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


def require_comparable(config: pytest.Config) -> None:
    """Raise UsageError if an option of pytest-benchmark asks for what it cannot save or compare.

    pytest-benchmark itself would say so after the last job, or not at all.
    """
    session = getattr(config, "_benchmarksession", None)
    if session is None:
        return
    asked = [f"--benchmark-{name}" for name in _RESULTS if getattr(session, name.replace("-", "_"))]
    if asked and (session.disabled or session.skip):
        raise pytest.UsageError(
            f"{', '.join(asked)}: nothing is saved or compared if pytest-benchmark is off, as with -n, --benchmark-disable "
            "and --benchmark-skip: leave them out"
        )
    if not session.compare_fail:
        return
    if not session.compare:
        raise pytest.UsageError(
            "--benchmark-compare-fail needs what to compare with: give --benchmark-compare too"
        )
    if not session.compared_mapping:
        raise pytest.UsageError(
            f"--benchmark-compare: nothing to compare with is in {config.getoption('--benchmark-storage')}; --benchmark-save=NAME saves a run"
        )


def compared(config: pytest.Config) -> Comparison | None:
    """What `--benchmark-compare-fail` finds; None if it is not given.

    pytest-benchmark itself, which would raise an exception at the end, is kept from finding them.
    """
    session = getattr(config, "_benchmarksession", None)
    if session is None or not session.compare_fail:
        return None
    session.performance_regressions.clear()
    saved = {Path(path).stem: benches for path, benches in session.compared_mapping.items()}
    regressed, lone = [], []
    for bench in filter(None, session.benchmarks):
        case = f"{bench.group}/{bench.param}"
        before = {
            name: benches[bench.fullname]["stats"]
            for name, benches in saved.items()
            if bench.fullname in benches
        }
        if not before:
            lone.append(f"{case}: not in {', '.join(saved)}")
        regressed += [
            f"{case}: {_change(check, bench[check.field], stats[check.field])} in {name}"
            for name, stats in before.items()
            for check in session.compare_fail
            if check.fails(bench, stats)
        ]
    return Comparison(regressed, lone)


def _change(check: Any, now: float, before: float) -> str:
    """`median 10.81 s, +7.3 % (limit 3 %), where it was 10.07 s`."""
    unit, off = "s", f"{now - before:+.4g} s"
    if isinstance(check, PercentageRegressionCheck):
        unit = "%"
    if before:
        off = f"{100 * (now / before - 1):+.1f} %"
    return f"{check.field} {now:.4g} s, {off} (limit {check.threshold:g} {unit}), where it was {before:.4g} s"
