"""Several runs of one case: whether another one is needed, and what all of them measured together. Pure.

The unit is the run, not the step: what a cluster does differently from run to run is the same in all steps of
a run. So the runs' medians are averaged, and the distance between them counts as well as the scatter of the
steps.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from statistics import fmean, stdev

from plugins.baselines.expected import Expected
from plugins.judging.choice import MAX_RUNS
from plugins.judging.measurement import Measurement, Settled, Timing
from plugins.judging.pace import judge_pace
from plugins.judging.steadiness import fell
from plugins.judging.verdicts import Band, Verdict
from plugins.record.verdict import Kind

# If the steady median is closer than this many of its standard errors to a limit of the band, it is in doubt.
SIGMAS = 3.0

# The median of all settled steps must be beyond a limit by at least this share to be beyond doubt, because
# runs differ from each other.
SURE = 0.01

# Between these shares of the limit, the number of stalls is in doubt: of 40 steps, from 3 to 7 stalls.
FEW, MANY = 0.5, 1.5


def unsure(runs: Sequence[Measurement], expected: Expected, at_most: int = MAX_RUNS) -> str:
    """Why another run of the case would help to decide; "" if these runs decide, or if there are `at_most`.

    If one of the runs fails beyond doubt, the case is not run again.
    """
    if len(runs) >= at_most or any(_clear_failure(run, expected) for run in runs):
        return ""
    return _doubt(together(runs), expected)


def judge_runs(runs: Sequence[Measurement], expected: Expected) -> tuple[Measurement, Verdict]:
    """What all runs of a case measured together, and their verdict.

    If one of them fails beyond doubt, its measurement and verdict are returned.
    """
    for number, run in enumerate(runs, start=1):
        if len(runs) > 1 and _clear_failure(run, expected):
            verdict = judge_pace(run, expected)
            alone = f"run {number} of {len(runs)} decides by itself; the others change nothing of it"
            return run, replace(verdict, remarks=(alone, *verdict.remarks))
    measurement = together(runs)
    verdict = judge_pace(measurement, expected)
    return measurement, replace(verdict, remarks=(*remarks_on(runs), *verdict.remarks))


def remarks_on(runs: Sequence[Measurement]) -> list[str]:
    """The remark that the figures are of several runs; empty if there is one."""
    if len(runs) == 1:
        return []
    medians = ", ".join(f"{run.timing.steady:.4g}" for run in runs)
    return [f"{len(runs)} runs of this case are judged together: steady medians {medians} s"]


def _clear_failure(run: Measurement, expected: Expected) -> bool:
    return not _doubt(run, expected) and judge_pace(run, expected).fails


def _doubt(measurement: Measurement, expected: Expected) -> str:
    """What these figures leave undecided; "" if they decide."""
    timing, band = measurement.timing, Band(expected, measurement.timing.resolution)
    off = SIGMAS * timing.steady_error
    sides = {band.side(timing.steady * (1 + sign * off)) for sign in (-1, 0, 1)}
    # All settled steps together say more than the last ten.
    slow = timing.settled.median * (1 - max(SURE, SIGMAS * timing.settled_error))
    if band.side(timing.steady) is band.side(slow) is Kind.TOO_SLOW:
        return ""
    if len(sides) > 1:
        return (
            f"the steady median {timing.steady:.4g} s is within {SIGMAS:.0f} standard errors ({100 * off:.2g} %) of a limit of "
            f"the band"
        )
    if sides != {Kind.PASSED}:
        return ""
    if fell(measurement, band) and band.side(timing.tail * (1 - SIGMAS * timing.tail_error)) is Kind.TOO_SLOW:
        # The run is slow at its end beyond doubt.
        return ""
    share = len(timing.settled.hiccups) / timing.settled.steps / expected.baseline.tolerance.hiccups
    if FEW < share <= MANY:
        return f"{len(timing.settled.hiccups)} of {timing.settled.steps} settled steps stalled, which may be chance"
    verdict = judge_pace(measurement, expected)
    if not verdict.fails or share > MANY:
        return ""
    return verdict.headline


def together(runs: Sequence[Measurement]) -> Measurement:
    """What several runs of a case measured."""
    return replace(runs[-1], timing=pooled([run.timing for run in runs]))


def pooled(runs: Sequence[Timing]) -> Timing:
    """Combine the figures of several runs: means of the runs' figures, and all their stalls.

    The window and the last line are those of the last run. `periodic` and `lasting` are true if they are for most
    runs.
    """
    if len(runs) == 1:
        return runs[0]
    published, settled = [run.published for run in runs], [run.settled for run in runs]
    steady = fmean(run.steady for run in runs)
    between = stdev(run.steady for run in runs) / steady / math.sqrt(len(runs))
    return replace(
        runs[-1],
        published=replace(
            published[-1],
            step_time=fmean(run.step_time for run in published),
            outliers=tuple(chain.from_iterable(run.outliers for run in published)),
            without_outliers=fmean(run.without_outliers for run in published),
            lasting=2 * sum(run.lasting for run in published) > len(runs),
        ),
        settled=Settled(
            median=fmean(run.median for run in settled),
            mean=fmean(run.mean for run in settled),
            spread=fmean(run.spread for run in settled),
            hiccups=tuple(chain.from_iterable(run.hiccups for run in settled)),
            fast=tuple(chain.from_iterable(run.fast for run in settled)),
            periodic=2 * sum(run.periodic for run in settled) > len(runs),
            steps=sum(run.steps for run in settled),
        ),
        steady=steady,
        steady_error=max(math.hypot(*(run.steady_error for run in runs)) / len(runs), between),
        tail=fmean(run.tail for run in runs),
        tail_error=math.hypot(*(run.tail_error for run in runs)) / len(runs),
        resolution=fmean(run.resolution for run in runs),
        runs=len(runs),
    )
