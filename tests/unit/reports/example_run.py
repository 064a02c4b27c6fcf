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
        changed = {"id": case.key, "verdict": str(kind), "headline": f"{kind}: because of {number}"}
        records.append({**record, **changed, "job": job})
    left = LeftOut(recipe="llama3", reason="4096 GPUs need 512 nodes", cases=3)
    about = results.About("lab", 0.0, "abc123", True, 12.5, (left,))
    ending = Ending(
        outcome=Outcome.PERFORMANCE, exit_code=1, regressions=["llama3/x regressed"], uncompared=[]
    )
    return results.write_summary(folder, about, 3600.0, records, lambda totals: ending)
