"""All that the tables of baselines have for a case, looked up once."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from plugins.baselines.accelerators import Accelerator, accelerators
from plugins.baselines.baseline_file import Reference
from plugins.baselines.expected import Counting, counting, usual_statistic
from plugins.baselines.expected_range import Scaled, extrapolated
from plugins.baselines.store import Baseline, lacking, references
from plugins.recipes.cases import Case
from plugins.record.baseline import ExpectedRange
from plugins.timing import Statistic


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
