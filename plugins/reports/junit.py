"""What pytest's JUnit XML says of a case beyond its failure: properties, and how long its job ran. Pure."""

from __future__ import annotations

from plugins.judging.judgement import Judgement
from plugins.outcome import UNKNOWN_JOB
from plugins.words import shown


def properties(judgement: Judgement) -> list[tuple[str, str]]:
    """The verdict and the figures, by the names of the record; without those that the case does not have."""
    measurement, target, job = judgement.measurement, judgement.expected, judgement.outcome.job
    values = {
        "verdict": str(judgement.verdict.kind),
        "step_time": f"{measurement.step_time:.6g}" if measurement else "",
        "expected_step_time": f"{target.step_time:.6g}" if target and measurement else "",
        "tokens_per_second": f"{measurement.tokens_per_second:.1f}" if measurement else "",
        "mfu": f"{measurement.mfu:.4g}" if measurement and measurement.mfu is not None else "",
        "job": "" if job.ref.id == UNKNOWN_JOB else job.ref.label,
        "nodes": job.state.nodes,
    }
    return [(name, shown(value)) for name, value in values.items() if value]


def seconds(judgement: Judgement) -> float | None:
    """How long the case's last job ran; None if that is not known, as of a log that is replayed."""
    return judgement.outcome.job.times.ran
