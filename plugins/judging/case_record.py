"""The record of a judged case. Pure."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from plugins.baselines.expected import Expected
from plugins.baselines.metrics import MfuBasis
from plugins.gpu.causes import unlike
from plugins.judging import identity
from plugins.judging.judgement import Judgement
from plugins.judging.measurement import Measurement, Timing
from plugins.judging.pace import beside
from plugins.judging.verdicts import Band
from plugins.modes.checkpoints import Written
from plugins.record import case as parts
from plugins.record.case import CaseRecord, EarlierJob
from plugins.record.lines import part_of
from plugins.record.outcome import Isolated

_FIGURES = ("step_time", "tokens_per_second", "tflops_per_gpu", "mfu", "mfu_beside", "days_per_1t_tokens")
"""The keys of the record that a measurement has by these names."""


def record_of(judgement: Judgement, recording: Mapping[str, Any] | None = None) -> CaseRecord:
    """A case as other programs read it. Times are in s, MFU is in percent. None: the case has no such figure.

    `recording` is what the case offers for the site's own baselines.
    """
    case, outcome, means = judgement.case, judgement.outcome, judgement.case.means
    record = replace(
        CaseRecord.unjudged(outcome.job, ""),
        id=case.key,
        release=case.release,
        verdict=judgement.verdict.kind,
        headline=judgement.verdict.headline,
        remarks=judgement.verdict.remarks,
        statistic=str(judgement.statistic),
        means=parts.Means(over=means.over, every=means.every, judged=means.span),
        runs=_runs(judgement),
        references=(),
        recording=recording,
        checkpoint=_checkpoint(judgement.written),
        artefacts=None if judgement.artefacts is None else part_of(parts.Left, judgement.artefacts),
        isolation=_isolation(judgement.isolated),
        slow_gpus=_slow_gpus(judgement) if case.node else None,
        configuration={
            "gpus": case.gpus,
            "dtype": case.dtype,
            "gpu": outcome.gpu,
            "variant": case.variant,
            "parameters": case.parameters,
            **case.configuration(),
        },
        identity=identity.stated_by(case, judgement.log),
        versions=judgement.versions,
        earlier_jobs=tuple(map(EarlierJob.of, outcome.earlier)),
    )
    if judgement.measurement is None:
        return record
    return _with_figures(record, judgement, judgement.measurement)


def _with_figures(record: CaseRecord, judgement: Judgement, measurement: Measurement) -> CaseRecord:
    timing, target = measurement.timing, judgement.expected
    record = replace(
        record,
        **{name: getattr(measurement, name) for name in _FIGURES},
        last_step_time=timing.published.last[1],
        steady_median=timing.steady,
        spread=timing.settled.spread,
        hiccups=tuple(index for index, _ in timing.settled.hiccups),
        mfu_definition=_mfu_definition(judgement, measurement.mfu_basis),
        expected_range=judgement.evidence.numbers.range,
        references=tuple(
            part_of(parts.Compared, reference, text=beside(measurement, reference))
            for reference in judgement.references
        ),
    )
    if target is None:
        return record
    share = judgement.verdict.deviation
    if share is None:
        share = target.deviation(max(measurement.step_time, timing.steady))
    return replace(
        record,
        deviation=100 * share,
        corrected_mfu=target.corrected_mfu(measurement.step_time),
        expected=_expected(target, timing),
    )


def _expected(target: Expected, timing: Timing) -> parts.Expected:
    band, baseline = Band(target, timing.resolution), target.baseline
    return part_of(
        parts.Expected, target, band, baseline.table, own=baseline.of_site, recorded=baseline.cell.recorded
    )


def _runs(judgement: Judgement) -> tuple[parts.Run, ...]:
    """What each run of the case measured, and its job, if several runs were judged together."""
    jobs = [*judgement.outcome.repeated, judgement.outcome.job]
    return tuple(
        part_of(
            parts.Run,
            job.ref,
            job.state,
            run,
            run.timing.settled,
            steady_median=run.timing.steady,
            hiccups=tuple(index for index, _ in run.timing.settled.hiccups),
        )
        for job, run in zip(jobs, judgement.runs, strict=False)
    )


def _checkpoint(written: Written | None) -> parts.WrittenCheckpoint | None:
    if written is None:
        return None
    return part_of(
        parts.WrittenCheckpoint,
        written,
        bytes=written.size,
        promised_bytes_per_second=written.promised,
        promised_seconds=written.expected,
    )


def _isolation(isolated: Isolated | None) -> parts.IsolatedParts | None:
    if isolated is None:
        return None
    answer = isolated.answer
    return part_of(
        parts.IsolatedParts,
        isolated,
        answer,
        parts=tuple(part_of(parts.SlowPart, culprit) for culprit in answer.culprits),
        smallest=answer.smallest if math.isfinite(answer.smallest) else None,
        failed=tuple(part_of(parts.FailedProbe, failed, failed.probe) for failed in answer.failed),
        command=isolated.command or None,
    )


def _slow_gpus(judgement: Judgement) -> tuple[str, ...]:
    """The GPUs that are slower than the others of their node, as a remark or the verdict has them too."""
    return tuple(unlike(judgement.gpus.timed)) if judgement.gpus else ()


def _mfu_definition(judgement: Judgement, basis: MfuBasis | None) -> parts.MfuDefinition | None:
    if basis is None:
        return None
    corrected = judgement.expected.corrected if judgement.expected else None
    return parts.MfuDefinition(
        **_flops("flops", basis),
        **_flops("beside_flops", basis.beside),
        **_flops("corrected_flops", corrected),
        peak_tflops_per_gpu=basis.peak_tflops,
        statistic=str(judgement.statistic),
    )


def _flops(key: str, basis: MfuBasis | None) -> dict[str, Any]:
    """A definition of FLOPs and how many they are; both None without a basis."""
    if basis is None:
        return {key: None, f"{key}_per_sequence": None}
    return {key: str(basis.definition), f"{key}_per_sequence": basis.flops}


_STEPS = ("step", "seconds", "tokens_per_second", "loss", "grad_norm", "raw_seconds")


def steps_table(judgement: Judgement) -> str:
    """The steps of a case as CSV, which `steps.csv` in its folder is."""
    return as_csv(_STEPS, _steps(judgement))


def _steps(judgement: Judgement) -> Iterable[Iterable[object]]:
    case, steps = judgement.case, judgement.log.steps
    raw = case.means.times(steps)
    for step in steps:
        rate = case.tokens_per_step / step.seconds if step.seconds else None
        yield step.index, step.seconds, rate, step.loss, step.grad_norm, raw.get(step.index)


def as_csv(head: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    table = io.StringIO()
    writer = csv.writer(table)
    writer.writerow(head)
    writer.writerows(rows)
    return table.getvalue()
