"""The record of a run: our own JSON in `results/<run>/`. Every other report is a view of it.

`plugins.reports.summary` has its types, docs/results.md tells of them.
"""

from __future__ import annotations

import csv
import io
import json
import stat
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from operator import mul
from pathlib import Path
from platform import python_version
from statistics import fmean
from typing import Any

from plugins.digests.gpu_plot import gpus_svg
from plugins.digests.gpu_samples import Gpus, Sample
from plugins.errors import ConfigError
from plugins.files import write_json, write_whole
from plugins.judging import identity
from plugins.judging.diagnosis import Diagnosis
from plugins.judging.judgement import Judgement
from plugins.judging.pace_report import beside
from plugins.judging.verdicts import Band
from plugins.record.folder import CASE, CTRF, GPUS_PLOT, GPUS_TABLE, METRICS, STEPS, SUMMARY, make_case_folder
from plugins.record.job import Job
from plugins.record.verdict import PACED, Kind
from plugins.reports.checkout import VERSION
from plugins.reports.ctrf import ctrf
from plugins.reports.evidence import digests
from plugins.reports.openmetrics import metrics
from plugins.reports.summary import SCHEMA, Ending, LeftOut

# The keys that only a judged case has.
_FIGURES = (
    "release",
    "statistic",
    "means",
    "step_time",
    "last_step_time",
    "steady_median",
    "spread",
    "hiccups",
    "runs",
    "tokens_per_second",
    "tflops_per_gpu",
    "mfu",
    "mfu_beside",
    "corrected_mfu",
    "days_per_1t_tokens",
    "mfu_definition",
    "expected",
    "references",
    "recording",
    "checkpoint",
    "artefacts",
    "diagnosis",
    "configuration",
    "identity",
    "versions",
)
_PACKAGES = ("pytest", "pydantic", "paramiko", "allure-pytest", "pytest-benchmark")


def record(judgement: Judgement, recording: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """A case as other programs read it. Times are in s, MFU is in percent. null: the case has no such figure.

    `recording` is what the case offers for the site's own baselines.
    """
    case, measurement, target, outcome = (
        judgement.case,
        judgement.measurement,
        judgement.expected,
        judgement.outcome,
    )
    timing, job = measurement.timing if measurement else None, outcome.job
    return {
        "id": case.key,
        "release": case.release,
        "verdict": str(judgement.verdict.kind),
        "headline": judgement.verdict.headline,
        "remarks": list(judgement.verdict.remarks),
        "statistic": str(judgement.statistic),
        "means": {"over": case.means.over, "every": case.means.every, "judged": case.means.span},
        "step_time": timing.step_time if timing else None,
        "last_step_time": timing.last[1] if timing else None,
        "steady_median": timing.steady if timing else None,
        "spread": timing.spread if timing else None,
        "hiccups": [index for index, _ in timing.hiccups] if timing else None,
        "runs": _runs(judgement),
        "tokens_per_second": measurement.tokens_per_second if measurement else None,
        "tflops_per_gpu": measurement.tflops_per_gpu if measurement else None,
        "mfu": measurement.mfu if measurement else None,
        "mfu_beside": measurement.mfu_beside if measurement else None,
        "corrected_mfu": target.corrected_mfu(timing.step_time) if target and timing else None,
        "days_per_1t_tokens": measurement.days_per_1t_tokens if measurement else None,
        "mfu_definition": _mfu_basis(judgement),
        "expected": None
        if target is None or timing is None
        else {
            "step_time": target.step_time,
            "tokens_per_second": target.tokens_per_second,
            "mfu": target.mfu,
            "days_per_1t_tokens": target.days_per_1t_tokens,
            "fastest": Band(target, timing.resolution).fastest,
            "slowest": Band(target, timing.resolution).slowest,
            "source": target.baseline.table.source,
            "release": target.baseline.table.release,
            "framework": target.baseline.table.framework,
            "gpu": target.baseline.table.gpu,
            "own": target.baseline.of_site,
            "recorded": run.model_dump(mode="json") if (run := target.baseline.cell.recorded) else None,
        },
        "references": [
            {
                "name": reference.name,
                "gpus": reference.gpus,
                "tokens_per_second_per_gpu": reference.tokens_per_second_per_gpu,
                "source": reference.source,
                "note": reference.note,
                "text": beside(measurement, reference),
            }
            for reference in judgement.references
            if measurement is not None
        ],
        "recording": recording,
        "checkpoint": None
        if (written := judgement.written) is None
        else {
            "seconds": written.seconds,
            "bytes": written.size,
            "bytes_per_second": written.bytes_per_second,
            "promised_bytes_per_second": written.promised,
            "promised_seconds": written.expected,
            "files": written.files,
            "path": written.path,
        },
        "artefacts": judgement.artefacts.model_dump(mode="json", exclude={"profiles", "trace"})
        if judgement.artefacts
        else None,
        "diagnosis": _diagnosis(judgement.diagnosis),
        "configuration": {
            "gpus": case.gpus,
            "dtype": case.dtype,
            "gpu": outcome.gpu,
            "variant": case.variant,
            "parameters": case.parameters,
            **case.configuration(),
        },
        "identity": identity.stated_by(case, judgement.log),
        "versions": judgement.versions,
        "job": _job(job),
        "earlier_jobs": [
            {
                "id": tried.ref.id,
                "name": tried.ref.name,
                "state": tried.state.raw,
                "nodes": tried.state.nodes,
                "failure": tried.failure,
                "message": tried.message,
                "excluded_nodes": list(tried.excluded),
            }
            for tried in outcome.earlier
        ],
    }


def unjudged(job: Job, why: str) -> dict[str, Any]:
    """The record of a case that was not judged, because the session was stopped first."""
    nothing = dict.fromkeys(_FIGURES)
    return {
        "id": job.ref.case,
        "verdict": str(Kind.INFRASTRUCTURE),
        "headline": f"{Kind.INFRASTRUCTURE}: {why}",
        "remarks": [],
        **nothing,
        "job": _job(job),
        "earlier_jobs": [],
    }


def _job(job: Job) -> dict[str, Any]:
    return {
        "id": job.ref.id,
        "name": job.ref.name,
        "kind": job.ref.kind,
        "state": job.state.raw,
        "reason": job.state.reason,
        "nodes": job.state.nodes,
        "exit_code": job.state.exit_code,
        "submitted": _stamp(job.times.submitted),
        "started": _stamp(job.times.started),
        "ended": _stamp(job.times.ended),
        "attempts": job.attempts,
        "earlier_seconds": job.times.earlier_seconds,
        "excluded_nodes": list(job.excluded),
    }


def read_case(folder: Path) -> dict[str, Any] | None:
    """The record that `write_case` wrote into a case's folder; None if there is none.

    Raises ConfigError if it is damaged.
    """
    path = folder / CASE
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise ConfigError(f"{path}: is no regular file")
        found = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from None
    if not isinstance(found, dict) or not {str(found.get("verdict"))} <= set(Kind):
        raise ConfigError(f"{path}: is no record of a case")
    return found


def write_case(judgement: Judgement, recording: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Write the case's record and its steps into its folder. Returns the record."""
    folder = judgement.outcome.folder
    make_case_folder(folder)
    table = io.StringIO()
    writer = csv.writer(table)
    writer.writerow(["step", "seconds", "tokens_per_second", "loss", "grad_norm", "raw_seconds"])
    raw = judgement.case.means.times(judgement.log.steps)
    for step in judgement.log.steps:
        rate = judgement.case.tokens_per_step / step.seconds if step.seconds else None
        writer.writerow([step.index, step.seconds, rate, step.loss, step.grad_norm, raw.get(step.index)])
    write_whole(folder / STEPS, table.getvalue())
    written = record(judgement, recording)
    write_json(folder / CASE, written)
    if judgement.gpus is not None and judgement.gpus.samples:
        write_whole(folder / GPUS_TABLE, _samples(judgement.gpus))
        write_whole(folder / GPUS_PLOT, gpus_svg(judgement.case.key, judgement.gpus))
    return written


def _samples(gpus: Gpus) -> str:
    """The samples of the GPUs as CSV; violations and other processes are JSON."""
    table = io.StringIO()
    writer = csv.writer(table)
    writer.writerow(Sample.model_fields)
    for sample in gpus.samples:
        row = sample.model_dump(mode="json")
        writer.writerow(json.dumps(v) if isinstance(v, (list, dict)) else v for v in row.values())
    return table.getvalue()


@dataclass(frozen=True)
class About:
    """What a run's summary says besides its cases.

    `started` is in s since the epoch. `commit` and `dirty` are those of Pacemark's checkout. `gpu_hours` are of
    all jobs. `left_out` are the selected cases that the site cannot run. A case may run `at_most` times until its
    runs decide; None: that was not asked for. `runs` has the GPU-hours of each run of a case, None where they are
    not known.
    """

    site: str
    started: float
    commit: str | None = None
    dirty: bool | None = None
    gpu_hours: float = 0.0
    left_out: tuple[LeftOut, ...] = ()
    at_most: int | None = None
    runs: Mapping[str, Sequence[float | None]] = field(default_factory=dict)


def write_summary(
    folder: Path,
    about: About,
    ended: float,
    cases: Sequence[Mapping[str, Any]],
    end: Callable[[Sequence[Mapping[str, Any]]], Ending],
) -> dict[str, Any]:
    """Write `summary.json` from the records of the run's cases. Returns the summary.

    `end` says how the session ended, from these records.
    """
    counts = Counter(case["verdict"] for case in cases)
    totals = {kind: counts[kind] for kind in Kind}
    summary = {
        "schema": SCHEMA,
        "run": folder.name,
        "site": about.site,
        "started": _stamp(about.started),
        "ended": _stamp(ended),
        **end(cases).model_dump(mode="json"),
        "totals": totals,
        "gpu_hours": round(about.gpu_hours, 3),
        "repeated": repeated(about, cases),
        "left_out": [left.model_dump() for left in about.left_out],
        "commit": about.commit,
        "dirty": about.dirty,
        "versions": {
            "pacemark": VERSION,
            "python": python_version(),
            **{name: version(name) for name in _PACKAGES},
        },
        "files": digests(folder),
        "cases": list(cases),
    }
    write_json(folder / SUMMARY, summary)
    return summary


def write_ending(folder: Path, summary: Mapping[str, Any], ending: Ending) -> dict[str, Any]:
    """Write `summary.json` again if the session ended otherwise than it says, then what is made of it for CI."""
    final = {**summary, **ending.model_dump(mode="json")}
    if final != summary:
        write_json(folder / SUMMARY, final)
    write_json(folder / CTRF, ctrf(final))
    write_whole(folder / METRICS, metrics(final))
    return final


def _runs(judgement: Judgement) -> list[dict[str, Any]]:
    """What each run of the case measured, and its job, if several runs were judged together."""
    jobs = [*judgement.outcome.repeated, judgement.outcome.job]
    return [
        {
            "id": job.ref.id,
            "name": job.ref.name,
            "nodes": job.state.nodes,
            "step_time": run.timing.step_time,
            "steady_median": run.timing.steady,
            "spread": run.timing.spread,
            "hiccups": [index for index, _ in run.timing.hiccups],
        }
        for job, run in zip(jobs, judgement.runs, strict=False)
    ]


def repeated(about: About, cases: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """The runs that were not needed. Only a case that is judged by its pace was decided by its runs."""
    if about.at_most is None:
        return None
    decided = [about.runs[case["id"]] for case in cases if case["verdict"] in PACED and case["expected"]]
    spare = [max(0, about.at_most - len(runs)) for runs in decided]
    costs = [fmean([hours for hours in runs if hours is not None] or [0.0]) for runs in decided]
    return {
        "at_most": about.at_most,
        "runs": sum(map(len, decided)),
        "not_needed": sum(spare),
        "gpu_hours_saved": round(sum(map(mul, spare, costs)), 3),
    }


def saving(summary: Mapping[str, Any]) -> str:
    """What it saved that a case runs only until its runs decide, in words; "" if that was not asked for."""
    found = summary["repeated"]
    if not found:
        return ""
    saved = f", which saved about {found['gpu_hours_saved']:.3g} GPU-hours" if found["not_needed"] else ""
    return (
        f"at most {found['at_most']} runs of a case: {found['runs']} made, {found['not_needed']} "
        f"not needed{saved}"
    )


def _diagnosis(found: Diagnosis | None) -> dict[str, Any] | None:
    """What is known of the cause of a verdict."""
    if found is None or not found.headline:
        return None
    good, now = found.transport
    return {
        "cause": str(found.cause) if found.cause else None,
        "headline": found.headline,
        "ranks": list(found.ranks),
        "slowest": found.slowest,
        "last": found.last,
        "collective": found.collective,
        "figures": {
            part: {"good": then, "now": here} for part, (then, here) in (found.figures or {}).items()
        },
        "transport": {"good": good or None, "now": now or None},
        "lines": list(found.lines),
        "jobs": [
            {
                "mode": run.mode,
                "id": run.outcome.job.ref.id,
                "name": run.outcome.job.ref.name,
                "state": run.outcome.job.state.raw,
                "nodes": run.outcome.job.state.nodes,
                "gpu_hours": run.gpu_hours,
                "why_not": run.why_not,
                "good": None
                if run.good is None
                else {"run": run.good.run, "date": run.good.date, "nodes": run.good.nodes},
            }
            for run in found.runs
        ],
        "command": found.command or None,
    }


def _mfu_basis(judgement: Judgement) -> dict[str, Any] | None:
    basis = judgement.measurement.mfu_basis if judgement.measurement else None
    if basis is None:
        return None
    right = judgement.expected.corrected if judgement.expected else None
    return {
        "flops": str(basis.definition),
        "flops_per_sequence": basis.flops,
        "beside_flops": str(basis.beside.definition) if basis.beside else None,
        "beside_flops_per_sequence": basis.beside.flops if basis.beside else None,
        "corrected_flops": str(right.definition) if right else None,
        "corrected_flops_per_sequence": right.flops if right else None,
        "peak_tflops_per_gpu": basis.peak_tflops,
        "statistic": str(judgement.statistic),
    }


def _stamp(seconds: float | None) -> str | None:
    return (
        None if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
    )
