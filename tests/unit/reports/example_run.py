"""A run with cases of any verdict, as a session leaves it in its folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

from fixtures.session.life import About, summary_of
from plugins.judging.case_record import record_of
from plugins.record.case import CaseRecord, EarlierJob, Run
from plugins.record.folder import LOG, STEPS
from plugins.record.job import Job, JobRef, JobState
from plugins.record.plan import Decision, Plan
from plugins.record.stored import write_summary
from plugins.record.summary import AcceptanceRecord, Ending, Scale, Scaling, Summary, WaivedCase
from plugins.record.verdict import Kind, LeftOut, Outcome
from plugins.suite.judged import write_case
from tests.unit import examples

COLUMNS = "step,seconds,tokens_per_second,loss,grad_norm,raw_seconds"

_RUN = Run(
    id="77", name="again", nodes="node77", step_time=10.5, steady_median=10.4, spread=0.02, hiccups=(20,)
)
_CASES = ("llama3/70b-fp8-8gpus", "llama3/70b-fp8-16gpus")
_WAIVED = WaivedCase(
    case=_CASES[1], reason="a switch", agreed_by="A & B", until=date(2027, 1, 31), verdict=Kind.TOO_SLOW,
    headline="too slow: by 7 %",
)  # fmt: skip
_SCALE = Scale(
    case=_CASES[0], gpus=8, tokens_per_second_per_gpu=100.0, published_tokens_per_second_per_gpu=101.0, efficiency=1.0,
    published_efficiency=1.0, limit=None, why="", waived=False,
)  # fmt: skip


def accepted_as(decision: Decision, **reasons: Any) -> dict[str, Any]:
    """A decision on a plan of two cases, and its scaling, for `make`. `reasons` are what failed and is missing."""
    plan = {"site": "lab", "cases": [*_CASES], "scaling": 0.03, "tolerance": {"slower": 0.04}}
    acceptance = AcceptanceRecord(
        decision=decision, digest="0123456789abcdef", plan=Plan.model_validate(plan), cases=_CASES, waived=(_WAIVED,),
        **{"failed": {}, "missing": {}, "unpublished": {}, **reasons},
    )  # fmt: skip
    scales = (
        _SCALE,
        replace(_SCALE, case=_CASES[1], gpus=16, efficiency=0.9, limit=0.97, why="too low"),
        replace(
            _SCALE, case="x", gpus=32, waived=True,
            tokens_per_second_per_gpu=None, published_tokens_per_second_per_gpu=None, efficiency=None,
        ),
    )  # fmt: skip
    scaling = Scaling(recipe="llama3", size="70b", dtype="fp8", scales=scales)
    return {"acceptance": acceptance, "scaling": (scaling,)}


def make(
    folder: Path,
    kinds: Sequence[Kind] = tuple(Kind),
    steps: int = 50,
    accepted: Mapping[str, Any] | None = None,
) -> Summary:
    """Make a run with a case of each of these verdicts. Returns its summary."""
    judged = examples.judged(
        examples.case(),
        examples.outcome(),
        examples.parse(examples.nemo2_text(examples.times(s0=60.0, s20=20.0))),
        examples.baseline(),
    )
    records = []
    for number, kind in enumerate(kinds):
        size, scale = divmod(number, len(Kind))
        case = replace(examples.case(), size=f"{70 + size}b", gpus=8 * 2**scale)
        folder_of = folder / case.key
        record = record_of(judged)
        if kind in (Kind.INFRASTRUCTURE, Kind.LOST, Kind.SKIPPED):
            record = CaseRecord.unjudged(judged.outcome.job, "")
        else:
            write_case(examples.with_outcome(judged, replace(judged.outcome, folder=folder_of)))
            (folder_of / LOG).write_text("a log")
        if steps != 50:
            rows = [f"{index},1,1,1,1,{10 + index % 7 / 100}" for index in range(steps)]
            (folder_of / STEPS).write_text("\n".join([COLUMNS, *rows, ""]))
        job = replace(record.job, id=f"10{number}", nodes=f"node{number}")
        record = replace(record, id=case.key, verdict=kind, headline=f"{kind}: because of {number}", job=job)
        if kind is Kind.TOO_SLOW:
            earlier = Job(
                ref=JobRef("llama3", case.id, "again", "77"),
                state=JobState(raw="FAILED", nodes="node77"),
                failure="repeated",
            )
            runs = (_RUN, replace(_RUN, id="101"))
            record = replace(record, earlier_jobs=(EarlierJob.of(earlier),), runs=runs)
            (folder_of / "try-1").mkdir()
            (folder_of / "try-1" / LOG).write_text("another log")
        records.append(record)
    left = LeftOut(recipe="llama3", reason="4096 GPUs need 512 nodes", cases=3, ids=("a", "b", "c"))
    about = About("lab", 0.0, "abc123", True, 12.5, (left,))
    ending = Ending(
        outcome=Outcome.PERFORMANCE,
        exit_code=1,
        regressions=("llama3/x regressed",),
        uncompared=(),
        **{"acceptance": None, "scaling": (), **(accepted or {})},
    )
    summary = summary_of(folder, about, tuple(records), ending, 3600.0)
    write_summary(folder, summary)
    return summary


def changed(summary: Summary, **values: Any) -> Summary:
    """The summary with these values in the record of its first case."""
    first, *others = summary.cases
    return replace(summary, cases=(replace(first, **values), *others))
