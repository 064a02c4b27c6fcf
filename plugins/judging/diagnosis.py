"""What is known of the cause of a verdict: the value, its lines in the report, and what it costs to find it. Pure.

A diagnosis explains a verdict and never changes it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from plugins.baselines.digests import RecordedDigest
from plugins.modes.artefacts import Artefacts
from plugins.outcome import Outcome
from plugins.recipes.cases import Case
from plugins.record.verdict import Cause

FINDINGS = ("socket fallback", "socket network")
"""The kinds of marks (`plugins.logs.marks`) that spoil a run, but not the evidence for a cause."""


@dataclass(frozen=True)
class ModeRun:
    """A job of the case in another mode.

    `artefacts` is what it left on the cluster, if that is evidence; otherwise `why_not` says why it is none.
    `good` is the recorded digest that it compares with; if there is none, `why_no_good` says why.
    """

    mode: str
    outcome: Outcome
    gpu_hours: float | None = None
    artefacts: Artefacts | None = None
    why_not: str = ""
    good: RecordedDigest | None = None
    why_no_good: str = ""


@dataclass(frozen=True)
class Diagnosis:
    """The finding, in words and figures.

    `cause` is None if no job tells anything. `figures` has the seconds a step of each part, now and in the
    good run (None if there is none); `transport` how many ranks use which network, in words. `slowest` is the
    rank with the most work of its own, `last` the one that arrives last at the collectives.
    """

    headline: str
    cause: Cause | None = None
    ranks: tuple[str, ...] = ()
    slowest: str | None = None
    last: str | None = None
    collective: str | None = None
    figures: Mapping[str, tuple[float | None, float]] | None = None
    transport: tuple[str, str] = ("", "")
    lines: tuple[str, ...] = ()
    runs: tuple[ModeRun, ...] = ()
    command: str = ""


def gpu_hours(case: Case, startup_minutes: float, step_time: float) -> float:
    """What a job of this case costs, if a step takes so many seconds."""
    return case.gpus * minutes(case, startup_minutes, step_time) / 60


def minutes(case: Case, startup_minutes: float, step_time: float) -> float:
    """How long such a job runs."""
    return startup_minutes + case.steps * step_time / 60


def advice(command: str, cost: float) -> Diagnosis:
    """How a case that was not diagnosed can be. `command` lacks the budget; `cost` is in GPU-hours."""
    if not command:
        return Diagnosis("")
    line = f"{command} --diagnose {budget(cost)}"
    return Diagnosis(
        f"to find the cause, in about {cost:.2g} GPU-hours beside those of the case itself: {line}",
        command=line,
    )


def undiagnosed(reason: str) -> Diagnosis:
    """Nothing was run, for this reason."""
    return Diagnosis(f"no diagnosis: {reason}")


def explain(diagnosis: Diagnosis) -> list[str]:
    """The lines of the report below the verdict's."""
    if not diagnosis.headline:
        return []
    return [
        f"diagnosis {diagnosis.headline}",
        *(f"          {line}" for line in diagnosis.lines),
        *_job_lines(diagnosis),
    ]


def _job_lines(diagnosis: Diagnosis) -> list[str]:
    return [
        f"          job        {run.mode}: {run.outcome.job.ref.id}, {run.outcome.job.state.raw}, nodes {run.outcome.job.state.nodes}, "
        f"{run.gpu_hours:.2g} GPU-hours, in {run.outcome.folder}"
        for run in diagnosis.runs
        if run.outcome.job.ref.id and run.gpu_hours is not None
    ]


def budget(cost: float) -> str:
    """The cost, rounded up to two digits."""
    unit = 10.0 ** (math.floor(math.log10(cost)) - 1) if cost > 0 else 1.0
    return f"{math.ceil(cost / unit) * unit:.6g}"
