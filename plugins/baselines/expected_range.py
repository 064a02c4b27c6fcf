"""The numbers of a case, and where its pace should be if nobody published one, by those of other scales.

In weak scaling each GPU does the same work at each scale, so that its throughput changes with the communication alone.
The figures here come from 357 pairs of scales in 40 published series of weak scaling. The scales of a pair are at most
`MOST_DOUBLINGS` apart, and each has more GPUs than NVLink connects.
tests/unit/baselines/test_expected_range.py counts them anew, and says how often a range holds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path

from plugins.base.words import counted
from plugins.baselines.baseline_file import Accelerator, Cell, Reference, accelerators
from plugins.baselines.expected import Counting, counting, expected, usual_statistic
from plugins.baselines.store import Baseline, lacking, numbers_of, references, unfit
from plugins.recipes.cases import Case
from plugins.record.baseline import ExpectedRange, Statistic

EFFICIENCY = 0.9946
"""The throughput of a GPU, as a share, when the number of GPUs is doubled: the median of the series."""

SLOWER, FASTER = 0.0191, 0.0102
"""By which share of the throughput a larger scale is below and above that in one of 20 pairs, times the root of the doublings, of one at least."""

MOST_DOUBLINGS = 4
"""Scales that are farther apart were published of three models alone."""

WIDER, FEW_DOUBLINGS = 2.25, 2
"""Models with experts or Mamba layers scale less alike: their range is so many times as wide, and goes only so far.

If each of the four published ones in turn is left out, the range of all others holds for 19 of their 31 pairs as it is,
and for 29 so. No published series of a model with experts goes farther.
"""

MOST_GPUS = 2304
"""No series has a larger scale."""

# What grows with the number of GPUs in weak scaling, and follows from the rest of the configuration.
_SCALED = ("gbs", "dp", "ga")
# What a table states only where it is no 1.
_USUALLY_1 = ("ep", "fsdp")


@dataclass(frozen=True)
class Scaled:
    """The nearest published scale of a case, with the range that follows; None if there is no range.

    `why_none` says why there is none; "" if nobody published a number of the case's size and dtype on this type of GPU
    in its release, at any scale.
    """

    baseline: Baseline | None = None
    why_none: str = ""

    @property
    def range(self) -> ExpectedRange | None:
        if self.baseline is None:
            return None
        return self.baseline.range


def extrapolated(case: Case, gpu: str, folder: Path) -> Scaled:
    """What the published numbers of other scales say of a case. Raises ConfigError if a table has a mistake."""
    published = [number for number in numbers_of(folder, case, gpu) if not number.cell.recorded]
    if not published or not case.is_timed:
        return Scaled()
    sheet = accelerators(folder).get(gpu)
    if sheet is None:
        return Scaled(why_none=f"how many GPUs NVLink connects is not known of {gpu}")
    if case.gpus <= sheet.nvlink:
        return Scaled(why_none="NVLink connects all of its GPUs, and no published series is so small")
    if case.gpus > MOST_GPUS:
        return Scaled(why_none=f"no published series has more than {MOST_GPUS:,} GPUs")
    usable: list[Baseline] = []
    unusable: dict[str, list[int]] = {}
    for baseline in published:
        reason = _unusable(case, baseline, sheet.nvlink)
        if reason:
            unusable.setdefault(reason, []).append(baseline.cell.gpus)
        else:
            usable.append(baseline)
    if not usable:
        reasons = (f"{', '.join(map(str, gpus))} GPUs {reason}" for reason, gpus in unusable.items())
        return Scaled(why_none="; ".join(reasons))
    usable.sort(key=lambda baseline: (abs(_doublings(case, baseline)), baseline.cell.gpus))
    return _from_nearest(case, usable, gpu, folder)


def _from_nearest(case: Case, usable: list[Baseline], gpu: str, folder: Path) -> Scaled:
    """The range that follows from the first of these scales."""
    nearest, scales = usable[0], tuple(baseline.cell.gpus for baseline in usable)
    doublings, most, wider = _doublings(case, nearest), MOST_DOUBLINGS, 1.0
    if case.model.experts > 1 or case.model.blocks:
        most, wider = FEW_DOUBLINGS, WIDER
    if abs(doublings) > most:
        return Scaled(
            why_none=f"the nearest published scale, {counted(scales[0], 'GPU')}, is {abs(doublings):.3g} doublings away, more than {most}"
        )
    basis = counting(case, nearest, gpu, folder).basis()
    if basis is None:
        return Scaled(why_none=f"nobody published a pace on {counted(scales[0], 'GPU')}")
    # The work of a GPU is the same, so that the step time is that of the nearest scale but for the efficiency.
    seconds = expected(case, nearest, basis).step_time
    middle = case.tokens_per_step / case.gpus / seconds * EFFICIENCY**doublings
    spread = wider * math.sqrt(max(1.0, abs(doublings)))
    below, above = SLOWER, FASTER
    if doublings < 0:
        below, above = FASTER, SLOWER
    low, high = middle * math.exp(-below * spread), middle * math.exp(above * spread)
    expected_range = ExpectedRange(low=low, middle=middle, high=high, scales=scales)
    return Scaled(replace(nearest, range=expected_range))


def _doublings(case: Case, baseline: Baseline) -> float:
    """How often the GPUs of a published scale are doubled at the scale of the case; negative if they are halved."""
    return math.log2(case.gpus / baseline.cell.gpus)


def _unusable(case: Case, baseline: Baseline, domain: int) -> str:
    """Why a published scale says nothing of a case; "" if it does. NVLink connects so many GPUs as `domain`."""
    cell = baseline.cell
    if cell.gpus <= domain:
        return "are all connected by NVLink, those of the case are not"
    ran = {**dict.fromkeys(_USUALLY_1, 1), **case.identity()}
    differing = next((key for key, value in _per_gpu(cell).items() if ran.get(key) != value), "")
    if differing:
        return f"run {differing} {_per_gpu(cell)[differing]}, the case {ran.get(differing)}"
    if cell.gbs * case.gpus != case.gbs * cell.gpus:
        return f"run a batch of {cell.gbs / cell.gpus:g} sequences per GPU, the case {case.gbs / case.gpus:g}"
    reason = unfit(baseline.statistic, case)
    if reason:
        return f"were measured otherwise: {reason}"
    return ""


def _per_gpu(cell: Cell) -> dict[str, int | str]:
    """What a cell states of its configuration that is the same at each scale."""
    stated = {**dict.fromkeys(_USUALLY_1, 1), **cell.configuration}
    return {key: value for key, value in stated.items() if key not in _SCALED}


@dataclass(frozen=True)
class Numbers:
    """What the run of a case on this type of GPU is compared with, and how.

    `lacking` says why no number was published, "" if there is one or nobody says. `why_none` says why the site's own
    baseline does not count, "" if it does or is missing. `statistic` is the step time that counts. `accelerator` is
    None if the type of GPU is unknown. `references` are what others measured, for comparison.
    `range` is where its pace should be by the published numbers of other scales, if it has no number itself;
    `why_no_range` says why there is none, "" if nobody published a number of another scale either.
    """

    gpu: str
    baseline: Baseline | None
    lacking: str
    why_none: str
    statistic: Statistic
    counting: Counting
    accelerator: Accelerator | None
    references: tuple[Reference, ...]
    range: ExpectedRange | None = None
    why_no_range: str = ""


def numbers(case: Case, baseline: Baseline | None, gpu: str, folder: Path, why_none: str = "") -> Numbers:
    """Look up what a case is judged by besides its baseline. `folder` has the published tables. Raises ConfigError."""
    if case.mode is not None:
        # A short run may not have the steps of the usual statistic.
        statistic = Statistic()
    elif baseline is not None:
        statistic = baseline.statistic
    else:
        statistic = usual_statistic(folder, case)
    scaled = Scaled(baseline)
    if baseline is None:
        scaled = extrapolated(case, gpu, folder)
    return Numbers(
        gpu=gpu,
        baseline=baseline,
        lacking=lacking(folder, case, gpu) if baseline is None else "",
        why_none=why_none,
        statistic=statistic,
        counting=counting(case, baseline, gpu, folder),
        accelerator=accelerators(folder).get(gpu),
        references=references(folder, case, gpu),
        range=scaled.range,
        why_no_range=scaled.why_none,
    )
