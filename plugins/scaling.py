"""`test_scaling`: a test of each size and dtype whose scaling is asked for. It adds no job, and judges no case."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

import pytest

from plugins.errors import RunError, Shortfall
from plugins.judging.scaling import curves, groups
from plugins.judging.shown import Shown
from plugins.outcome import Outcome
from plugins.recipes.cases import Case
from plugins.record.verdict import Kind
from plugins.reports import results
from plugins.suite import JUDGEMENT, case_of, judge_case

Await = Callable[[pytest.Item, Case], Outcome]
"""Waits for the end of the case of a test."""

Waived = Callable[[Mapping[str, Shown]], Collection[str]]
"""The cases that the acceptance plan waives."""


class ScalingTest(pytest.Item):
    """The test of the scaling of these cases; `tests` are their own tests, as far as they are selected."""

    def __init__(
        self,
        *,
        cases: Sequence[Case],
        tests: Mapping[str, pytest.Item],
        tolerance: float,
        wait: Await,
        waived: Waived,
        name: str,
        parent: pytest.Collector,
    ) -> None:
        super().__init__(name, parent)
        self._cases, self._tests, self._tolerance = cases, tests, tolerance
        self._wait, self._waived = wait, waived

    def runtest(self) -> None:
        """Judge the scaling when all its cases have ended. Raises Shortfall."""
        shown = {
            case.key: self._shown(self._tests[case.key], case)
            for case in self._cases
            if case.key in self._tests
        }
        [curve] = curves(self._cases, shown, self._tolerance, self._waived(shown))
        if curve.short or curve.missing:
            raise Shortfall("\n".join([*curve.short, *curve.missing]), fell=bool(curve.short))

    def _shown(self, test: pytest.Item, case: Case) -> Shown:
        # A worker of xdist may run this test, and others those of the cases: the logs tell the same to each.
        try:
            found = test.stash.get(JUDGEMENT, None) or judge_case(test, case, self._wait(test, case))[1]
        except (RunError, OSError) as error:
            return Shown(Kind.INFRASTRUCTURE, f"{Kind.INFRASTRUCTURE}: {error}")
        return Shown.of(results.record(found))

    def reportinfo(self) -> tuple[Path, None, str]:
        return self.path, None, self.name


def add_tests(
    items: list[pytest.Item], cases: Sequence[Case], tolerance: float, wait: Await, waived: Waived
) -> None:
    """Add a test for each group of cases that differ in their number of GPUs, beside the tests of the cases."""
    tests = {case.key: item for item in items if (case := case_of(item))}
    for group in groups(cases):
        beside = next((tests[case.key] for case in group if case.key in tests), None)
        if beside is not None and beside.parent is not None:
            first = group[0]
            items.append(
                ScalingTest.from_parent(
                    beside.parent,
                    name=f"test_scaling[{first.size}-{first.dtype}]",
                    cases=group,
                    tests=tests,
                    tolerance=tolerance,
                    wait=wait,
                    waived=waived,
                )
            )
