"""The record of a judged case. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from plugins.baselines.expected import Expected
from plugins.judging import identity
from plugins.judging.diagnosis import Diagnosis, ModeRun
from plugins.judging.judgement import Judgement
from plugins.judging.pace_report import beside
from plugins.judging.verdicts import Band
from plugins.metrics import Measurement, MfuBasis, Timing
from plugins.modes.artefacts import Artefacts
from plugins.modes.checkpoints import Written
from plugins.record import case as parts
from plugins.record.case import CaseRecord


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
        artefacts=_artefacts(judgement.artefacts),
        diagnosis=_diagnosis(judgement.diagnosis),
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
        earlier_jobs=outcome.earlier,
    )
    if judgement.measurement is None:
        return record
    return _with_figures(record, judgement, judgement.measurement)


def _with_figures(record: CaseRecord, judgement: Judgement, measurement: Measurement) -> CaseRecord:
    timing, target = measurement.timing, judgement.expected
    record = replace(
        record,
        step_time=timing.step_time,
        last_step_time=timing.last[1],
        steady_median=timing.steady,
        spread=timing.spread,
        hiccups=_indices(timing),
        tokens_per_second=measurement.tokens_per_second,
        tflops_per_gpu=measurement.tflops_per_gpu,
        mfu=measurement.mfu,
        mfu_beside=measurement.mfu_beside,
        days_per_1t_tokens=measurement.days_per_1t_tokens,
        mfu_definition=_mfu_definition(judgement, measurement.mfu_basis),
        references=tuple(
            parts.Compared(
                name=reference.name,
                gpus=reference.gpus,
                tokens_per_second_per_gpu=reference.tokens_per_second_per_gpu,
                source=reference.source,
                note=reference.note,
                text=beside(measurement, reference),
            )
            for reference in judgement.references
        ),
    )
    if target is None:
        return record
    return replace(
        record, corrected_mfu=target.corrected_mfu(timing.step_time), expected=_expected(target, timing)
    )


def _indices(timing: Timing) -> tuple[int, ...]:
    """The steps that stalled."""
    return tuple(index for index, _ in timing.hiccups)


def _expected(target: Expected, timing: Timing) -> parts.Expected:
    band, baseline = Band(target, timing.resolution), target.baseline
    return parts.Expected(
        step_time=target.step_time,
        tokens_per_second=target.tokens_per_second,
        mfu=target.mfu,
        days_per_1t_tokens=target.days_per_1t_tokens,
        fastest=band.fastest,
        slowest=band.slowest,
        source=baseline.table.source,
        release=baseline.table.release,
        framework=baseline.table.framework,
        gpu=baseline.table.gpu,
        own=baseline.of_site,
        recorded=baseline.cell.recorded,
    )


def _runs(judgement: Judgement) -> tuple[parts.Run, ...]:
    """What each run of the case measured, and its job, if several runs were judged together."""
    jobs = [*judgement.outcome.repeated, judgement.outcome.job]
    return tuple(
        parts.Run(
            id=job.ref.id,
            name=job.ref.name,
            nodes=job.state.nodes,
            step_time=run.timing.step_time,
            steady_median=run.timing.steady,
            spread=run.timing.spread,
            hiccups=_indices(run.timing),
        )
        for job, run in zip(jobs, judgement.runs, strict=False)
    )


def _checkpoint(written: Written | None) -> parts.WrittenCheckpoint | None:
    if written is None:
        return None
    return parts.WrittenCheckpoint(
        seconds=written.seconds,
        bytes=written.size,
        bytes_per_second=written.bytes_per_second,
        promised_bytes_per_second=written.promised,
        promised_seconds=written.expected,
        files=written.files,
        path=written.path,
    )


def _artefacts(artefacts: Artefacts | None) -> parts.Left | None:
    if artefacts is None:
        return None
    return parts.Left(
        host=artefacts.host,
        folder=artefacts.folder,
        begun=artefacts.begun,
        free=artefacts.free,
        files=artefacts.files,
        notes=artefacts.notes,
    )


def _diagnosis(diagnosis: Diagnosis | None) -> parts.DiagnosedCause | None:
    """What is known of the cause of a verdict."""
    if diagnosis is None or not diagnosis.headline:
        return None
    good, now = diagnosis.transport
    figures = diagnosis.figures or {}
    return parts.DiagnosedCause(
        cause=diagnosis.cause,
        headline=diagnosis.headline,
        ranks=tuple(diagnosis.ranks),
        slowest=diagnosis.slowest,
        last=diagnosis.last,
        collective=diagnosis.collective,
        figures={part: parts.Change(good=before, now=seconds) for part, (before, seconds) in figures.items()},
        transport=parts.Transport(good=good or None, now=now or None),
        lines=tuple(diagnosis.lines),
        jobs=tuple(_diagnosis_job(run) for run in diagnosis.runs),
        command=diagnosis.command or None,
    )


def _diagnosis_job(run: ModeRun) -> parts.DiagnosisJob:
    job, good = run.outcome.job, None
    if run.good is not None:
        good = parts.GoodRun(run=run.good.run, date=run.good.date, nodes=run.good.nodes)
    return parts.DiagnosisJob(
        mode=run.mode,
        id=job.ref.id,
        name=job.ref.name,
        state=job.state.raw,
        nodes=job.state.nodes,
        gpu_hours=run.gpu_hours,
        why_not=run.why_not,
        good=good,
    )


def _mfu_definition(judgement: Judgement, basis: MfuBasis | None) -> parts.MfuDefinition | None:
    if basis is None:
        return None
    definition = parts.MfuDefinition(
        flops=str(basis.definition),
        flops_per_sequence=basis.flops,
        beside_flops=None,
        beside_flops_per_sequence=None,
        corrected_flops=None,
        corrected_flops_per_sequence=None,
        peak_tflops_per_gpu=basis.peak_tflops,
        statistic=str(judgement.statistic),
    )
    if basis.beside is not None:
        beside_flops = str(basis.beside.definition)
        definition = replace(
            definition, beside_flops=beside_flops, beside_flops_per_sequence=basis.beside.flops
        )
    corrected = judgement.expected.corrected if judgement.expected else None
    if corrected is None:
        return definition
    return replace(
        definition, corrected_flops=str(corrected.definition), corrected_flops_per_sequence=corrected.flops
    )
