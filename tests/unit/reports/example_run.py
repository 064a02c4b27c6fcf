"""A run with cases of any verdict, as a session leaves it in its folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from plugins.record.folder import LOG, STEPS
from plugins.record.plan import Decision, Plan
from plugins.record.verdict import Kind, Outcome
from plugins.reports import results
from plugins.reports.summary import AcceptanceRecord, Ending, LeftOut, Scaling
from tests.unit import examples

COLUMNS = "step,seconds,tokens_per_second,loss,grad_norm,raw_seconds"

_JOB = {"id": "77", "name": "again", "state": "FAILED", "nodes": "node77"}
_RUN = {"step_time": 10.5, "steady_median": 10.4, "spread": 0.02, "hiccups": [20]}
_DIAGNOSIS = {
    "cause": "compute",
    "headline": "cause: compute",
    "ranks": ["rank 3"],
    "slowest": "rank 3",
    "last": None,
    "collective": None,
    "figures": {"compute": {"good": 1.0, "now": 1.2}},
    "transport": {"good": None, "now": None},
    "lines": ["compute grew by 20 %"],
    "jobs": [{**_JOB, "id": "78", "mode": "profile", "gpu_hours": 1.5, "why_not": "", "good": None}],
    "command": None,
}
_AGAIN = {
    "earlier_jobs": [{**_JOB, "failure": "repeated", "message": "", "excluded_nodes": []}],
    "runs": [{"id": id_, "name": "again", "nodes": "node77", **_RUN} for id_ in ("77", "101")],
    "diagnosis": _DIAGNOSIS,
}


def accepted_as(decision: Decision, **found: Any) -> dict[str, Any]:
    """A decision on a plan of two cases, and its scaling, for `make`."""
    cases = ["llama3/70b-fp8-8gpus", "llama3/70b-fp8-16gpus"]
    waiver = {"case": cases[1], "reason": "a switch", "agreed_by": "A & B", "until": "2027-01-31"}
    plan = {"site": "lab", "cases": cases, "scaling": 0.03, "tolerance": {"slower": 0.04}}
    record = {
        "decision": decision,
        "digest": "0123456789abcdef",
        "plan": Plan.model_validate(plan),
        "cases": cases,
        "failed": {},
        "missing": {},
        "waived": [{**waiver, "verdict": Kind.TOO_SLOW, "headline": "too slow: by 7 %"}],
        **found,
    }
    scale = {"published_efficiency": 1.0, "why": "", "limit": None, "waived": False, "efficiency": 1.0}
    paces = {"tokens_per_second_per_gpu": 100.0, "published_tokens_per_second_per_gpu": 101.0}
    scales = [
        {**scale, **paces, "case": cases[0], "gpus": 8},
        {**scale, **paces, "case": cases[1], "gpus": 16, "efficiency": 0.9, "limit": 0.97, "why": "too low"},
        {**scale, "case": "x", "gpus": 32, "waived": True, "efficiency": None, **dict.fromkeys(paces)},
    ]
    scaling = {"recipe": "llama3", "size": "70b", "dtype": "fp8", "scales": scales}
    return {
        "acceptance": AcceptanceRecord.model_validate(record, strict=False),
        "scaling": [Scaling.model_validate(scaling)],
    }


def make(
    folder: Path,
    kinds: Sequence[Kind] = tuple(Kind),
    steps: int = 50,
    accepted: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
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
        record = results.record(judged)
        if kind in (Kind.INFRASTRUCTURE, Kind.LOST, Kind.SKIPPED):
            record = results.unjudged(replace(judged.outcome.job), "")
        else:
            results.write_case(examples.with_outcome(judged, replace(judged.outcome, folder=folder_of)))
            (folder_of / LOG).write_text("a log")
        if steps != 50:
            rows = [f"{index},1,1,1,1,{10 + index % 7 / 100}" for index in range(steps)]
            (folder_of / STEPS).write_text("\n".join([COLUMNS, *rows, ""]))
        job = {**record["job"], "id": f"10{number}", "nodes": f"node{number}"}
        changed: dict[str, Any] = {
            "id": case.key,
            "verdict": str(kind),
            "headline": f"{kind}: because of {number}",
        }
        if kind is Kind.TOO_SLOW:
            changed |= _AGAIN
            for part in ("try-1", "profile"):
                (folder_of / part).mkdir()
                (folder_of / part / LOG).write_text("another log")
        records.append({**record, **changed, "job": job})
    left = LeftOut(recipe="llama3", reason="4096 GPUs need 512 nodes", cases=3)
    about = results.About("lab", 0.0, "abc123", True, 12.5, (left,))
    ending = Ending(
        outcome=Outcome.PERFORMANCE,
        exit_code=1,
        regressions=["llama3/x regressed"],
        uncompared=[],
        **(accepted or {"acceptance": None, "scaling": []}),
    )
    return results.write_summary(folder, about, 3600.0, records, lambda cases: ending)
