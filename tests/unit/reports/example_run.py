"""A run with cases of any verdict, as a session leaves it in its folder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from plugins.judging.judge import judge_outcome
from plugins.judging.verdicts import Kind
from plugins.reports import results
from plugins.reports.gate import Outcome
from plugins.reports.summary import Ending
from plugins.reports.summary import LeftOut
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


def make(folder: Path, kinds: Sequence[Kind] = tuple(Kind), steps: int = 50) -> dict[str, Any]:
    """Make a run with a case of each of these verdicts. Returns its summary."""
    judged = judge_outcome(
        examples.case(),
        examples.outcome(),
        examples.parse(examples.nemo2_text(examples.times(s0=60.0, s20=20.0))),
        examples.baseline(),
        gpu="h100",
        baselines=examples.BASELINES,
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
            results.write_case(replace(judged, outcome=replace(judged.outcome, folder=folder_of)))
            (folder_of / results.LOG).write_text("a log")
        if steps != 50:
            rows = [f"{index},1,1,1,1,{10 + index % 7 / 100}" for index in range(steps)]
            (folder_of / results.STEPS).write_text("\n".join([COLUMNS, *rows, ""]))
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
                (folder_of / part / results.LOG).write_text("another log")
        records.append({**record, **changed, "job": job})
    left = LeftOut(recipe="llama3", reason="4096 GPUs need 512 nodes", cases=3)
    about = results.About("lab", 0.0, "abc123", True, 12.5, (left,))
    ending = Ending(
        outcome=Outcome.PERFORMANCE, exit_code=1, regressions=["llama3/x regressed"], uncompared=[]
    )
    return results.write_summary(folder, about, 3600.0, records, lambda totals: ending)
