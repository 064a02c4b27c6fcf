"""What a run says of a case, as far as the acceptance of a cluster needs it. Pure."""

from __future__ import annotations

import datetime
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from plugins.record.case import CaseRecord
from plugins.record.nodes import node_names
from plugins.record.verdict import Kind

# What a case is measured by. A case that is too fast was another one, and a noisy one has no steady pace.
_PACED = (Kind.PASSED, Kind.TOO_SLOW, Kind.NO_BASELINE)

UNCHOSEN = "it was not selected, so this session did not judge its logs"
"""Why a case of a resumed run is missing whose record another session left. That speaks only against the cluster."""


@dataclass(frozen=True)
class Shown:
    """How a case ended, from its entry of `summary.json`.

    It was judged by the numbers of this `release` ("" if it was not judged) for this type of `gpu`. If the number is
    the site's own, `recorded` is the run that measured it or, if it was written by hand, `number` is the step time in
    s. With `by_range` it was judged by its expected range, because nobody published a number.

    `runs` is how many runs of the case were judged, `nodes` are those of all their jobs, and `submitted` is the day
    (UTC) on which the last job was. `pace` is the steady one in tokens/s, `published` the expected one, both of all
    GPUs; None if there is none.
    """

    kind: Kind
    headline: str
    nodes: frozenset[str] = frozenset()
    submitted: datetime.date | None = None
    release: str = ""
    gpu: str = ""
    recorded: str = ""
    number: float | None = None
    by_range: bool = False
    runs: int = 1
    pace: float | None = None
    published: float | None = None

    @classmethod
    def of(cls, record: CaseRecord) -> Shown:
        """What the record of a case says."""
        runs, expected, job = record.runs or (), record.expected, record.job
        shown = cls(
            record.verdict,
            record.headline,
            nodes=frozenset().union(*map(node_names, (job.nodes, *(run.nodes for run in runs)))),
            submitted=_day(job.submitted),
            release=record.release or "",
            gpu=str((record.configuration or {}).get("gpu") or ""),
            runs=len(runs) or 1,
        )
        if record.verdict in _PACED:
            tokens = (record.tokens_per_second or 0.0) * (record.step_time or 0.0)
            shown = replace(shown, pace=ratio(tokens, record.steady_median))
        if expected is None:
            return shown
        if record.expected_range is not None:
            # The middle of a range is no published number, by which scaling could be judged.
            return replace(shown, by_range=True)
        shown = replace(shown, recorded=expected.recorded_by, published=expected.tokens_per_second)
        if expected.own and not expected.recorded_by:
            return replace(shown, number=expected.step_time)
        return shown


@dataclass(frozen=True)
class RunShown:
    """What a run that began on this day (UTC) says of its cases, by their keys.

    `unrun` says why cases were not run. `spoiled` says why the run is no evidence at all, however its cases ended; ""
    if it is.
    """

    cases: Mapping[str, Shown]
    begun: datetime.date
    unrun: Mapping[str, str] = field(default_factory=dict)
    spoiled: str = ""


def ratio(value: float | None, of: float | None) -> float | None:
    """A figure over another; None if one of them is missing, or if there is no such number."""
    if not value or not of or not math.isfinite(value / of):
        return None
    return value / of


def _day(seconds: float | None) -> datetime.date | None:
    if seconds is None:
        return None
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).date()
