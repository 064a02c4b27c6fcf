"""`--benchmark-compare-fail`: the cases that are slower than in an earlier run, in words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pytest_benchmark.utils import PercentageRegressionCheck


def require_comparable(config: pytest.Config) -> None:
    """Raise UsageError if `--benchmark-compare-fail` is given and nothing can be compared.

    pytest-benchmark itself would say so after the last job, or not at all.
    """
    session = getattr(config, "_benchmarksession", None)
    if session is None or not session.compare_fail:
        return
    if session.disabled or session.skip:
        raise pytest.UsageError(
            "--benchmark-compare-fail compares nothing if pytest-benchmark is off, as with -n, --benchmark-disable and "
            "--benchmark-skip: leave them out"
        )
    if not session.compare:
        raise pytest.UsageError(
            "--benchmark-compare-fail needs what to compare with: give --benchmark-compare too"
        )
    if not session.compared_mapping:
        raise pytest.UsageError(
            f"--benchmark-compare: nothing to compare with is in {config.getoption('--benchmark-storage')}; --benchmark-save=NAME saves a run"
        )


def compared(config: pytest.Config) -> tuple[list[str], list[str]]:
    """What `--benchmark-compare-fail` finds: the cases that regressed, and those that it cannot compare.

    pytest-benchmark itself, which would raise an exception at the end, is kept from finding them.
    """
    session = getattr(config, "_benchmarksession", None)
    if session is None or not session.compare_fail:
        return [], []
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
    return regressed, lone


def _change(check: Any, now: float, before: float) -> str:
    """`median 10.81 s, +7.3 % (limit 3 %), where it was 10.07 s`."""
    relative = isinstance(check, PercentageRegressionCheck)
    limit = f"{check.threshold:g} %" if relative else f"{check.threshold:g} s"
    off = f"{100 * (now / before - 1):+.1f} %" if before else f"{now - before:+.4g} s"
    return f"{check.field} {now:.4g} s, {off} (limit {limit}), where it was {before:.4g} s"
