"""Judges the jobs of a source: no session, no run's folder, and nothing is written."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from plugins.base.words import first_of, tells_secret
from plugins.gpu.samples import Gpus
from plugins.judging.choice import Choice, Setting
from plugins.judging.evidence import read_evidence
from plugins.judging.job_files import LogEnd
from plugins.judging.judge import judge
from plugins.judging.judgement import Judgement
from plugins.logs import Log
from plugins.record.job import REPLAY, REPLAYED, Job, JobRef, JobState, Phase
from plugins.record.outcome import UNKNOWN_JOB, Outcome
from plugins.record.verdict import Kind
from plugins.sources.attribution import Attribution
from plugins.sources.jobs import FoundJob, JobLog

_NOWHERE = Path("/dev/null")
"""No file is below it: all that is known of the job is in the memory."""


@dataclass(frozen=True)
class _InMemory:
    """The log of a job, as the judge asks for it."""

    log: JobLog

    def read_log(self, log_format: str, folder: Path) -> Log:  # noqa: ARG002 - there is one log
        return self.log.logs[log_format]

    def read_gpus(self, folder: Path) -> Gpus:  # noqa: ARG002
        return Gpus()

    def read_end(self, log_format: str, outcome: Outcome) -> LogEnd:  # noqa: ARG002
        return self.log.end(log_format)


def judge_job(
    attribution: Attribution, source: str, baselines: Path, *, strict_last: bool = False
) -> Judgement:
    """Judge a job whose case is known. `source` is its source as the user named it. Raises ConfigError."""
    job, candidate = attribution.job, attribution.candidate
    assert candidate is not None
    assert job.log is not None
    case, gpu = candidate.case, candidate.gpu
    ref = JobRef(case.recipe, case.id, job.name, job.id or UNKNOWN_JOB)
    state = JobState(Phase.SUCCEEDED, REPLAYED)
    ended = Job(
        ref=ref, backend=REPLAY, gpus=case.gpus, status="ended", state=state, attempts=job.restart + 1
    )
    outcome = Outcome(gpu, _NOWHERE / case.recipe / case.id, Path(source) / job.name, ended)
    per_node = candidate.gpus_per_node
    choice = Choice(release=case.release, gpu=gpu, gpus_per_node=per_node, strict_last=strict_last)
    setting = Setting(candidate.recipe, choice, baselines)
    judgement = judge(read_evidence(case, outcome, setting, _InMemory(job.log)))
    remarks = (*judgement.verdict.remarks, *_remarks(job, judgement.verdict.kind))
    return replace(judgement, verdict=replace(judgement.verdict, remarks=remarks))


def how_known(attribution: Attribution) -> str:
    """Which job it was, and how its case is known: `job 4711, release 25.04 on h100 by the log and its path`."""
    job, candidate = attribution.job, attribution.candidate
    assert candidate is not None
    parts = [f"job {job.id}" if job.id else job.name]
    if job.restart:
        parts.append(f"restart {job.restart}, its last")
    alike = "".join(f" or {each.case.release}" for each in attribution.fitting[:-1])
    parts.append(f"release {candidate.case.release}{alike} on {candidate.gpu} by {attribution.known}")
    if job.copies:
        parts.append(f"also in {first_of(job.copies, 1)}")
    return ", ".join(parts)


def _remarks(job: FoundJob, kind: Kind) -> list[str]:
    """What a reader must know of how the job was launched, and of how it ended."""
    remarks = []
    if job.record is not None and job.record.verdict.fails and not kind.fails:
        remarks.append(f"the session that collected the log said: {job.record.headline}")
    if job.config is not None:
        ran = job.config.job_config
        changed = {**ran.env_overrides, **ran.model_overrides}
        words = [*(f"{name}={value}" for name, value in changed.items()), *ran.mbridge_args]
        if words:
            words_shown = ", ".join(_without_secrets(words))[:300]
            remarks.append(f"it was launched with {words_shown}, by its llmb-config")
    return remarks


def _without_secrets(words: Iterable[str]) -> Iterator[str]:
    """`HF_TOKEN=x`, `--hf-token x` and `--env=HF_TOKEN=x` without their values."""
    hidden = False
    for word in words:
        name, *value = re.split("[= ]", word, maxsplit=1)
        secret = tells_secret(name)
        if hidden or (value and tells_secret(word)):
            word = "..." if hidden else f"{name}=..."
        yield word
        hidden = secret and not value
