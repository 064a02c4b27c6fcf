"""What the record of a case says of its jobs: a flat object for the last job, and one for each that another job followed."""

from __future__ import annotations

from dataclasses import dataclass

from plugins.record.job import Failure, Job, Times
from plugins.record.lines import Moment, Part


@dataclass(frozen=True, kw_only=True)
class EarlierJob(Part):
    """A job of the case that another job followed."""

    id: str
    name: str
    state: str
    nodes: str
    failure: Failure
    """`repeated` if another run of the case followed it, `interrupted` if a stopped session cancelled it, empty if it broke itself."""
    message: str
    excluded_nodes: tuple[str, ...]

    @classmethod
    def of(cls, job: Job) -> EarlierJob:
        return cls(
            id=job.ref.id,
            name=job.ref.name,
            state=job.state.raw,
            nodes=job.state.nodes,
            failure=job.failure,
            message=job.message,
            excluded_nodes=job.excluded,
        )

    @property
    def label(self) -> str:
        """The job's id on its cluster, or its name if no id is known."""
        return self.id or self.name


@dataclass(frozen=True, kw_only=True)
class JobRecord(Part):
    """A job on its cluster, in the cluster's own words."""

    id: str
    name: str
    kind: str
    """On Kubernetes, the kind of its object; elsewhere empty."""
    state: str
    reason: str
    nodes: str
    exit_code: str
    submitted: Moment | None
    started: Moment | None
    ended: Moment | None
    attempts: int
    """1 + its restarts by the cluster."""
    earlier_seconds: float
    """How long the attempts before the last one ran; 0 if the cluster does not tell."""
    excluded_nodes: tuple[str, ...]
    """`--exclude-nodes` or `--exclude-failed-nodes` kept the job away from them."""

    @classmethod
    def of(cls, job: Job) -> JobRecord:
        return cls(
            id=job.ref.id,
            name=job.ref.name,
            kind=job.ref.kind,
            state=job.state.raw,
            reason=job.state.reason,
            nodes=job.state.nodes,
            exit_code=job.state.exit_code,
            submitted=job.times.submitted,
            started=job.times.started,
            ended=job.times.ended,
            attempts=job.attempts,
            earlier_seconds=job.times.earlier_seconds,
            excluded_nodes=job.excluded,
        )

    @property
    def label(self) -> str:
        """The job's id on its cluster, or its name if no id is known."""
        return self.id or self.name

    @property
    def times(self) -> Times:
        return Times(self.submitted, self.started, self.ended, self.earlier_seconds)
