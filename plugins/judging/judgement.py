"""What the judge says of a case. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from plugins.baselines.baseline_file import Reference
from plugins.baselines.changes import versions_of
from plugins.baselines.expected import Expected
from plugins.gpu.samples import Gpus
from plugins.judging.evidence import Evidence
from plugins.judging.measurement import Measurement
from plugins.judging.verdicts import Verdict
from plugins.logs import Log
from plugins.modes.artefacts import Artefacts
from plugins.modes.checkpoints import Written
from plugins.recipes.cases import Case
from plugins.record.baseline import Statistic
from plugins.record.outcome import Isolated, Outcome
from plugins.record.verdict import Kind


@dataclass(frozen=True)
class Conclusion:
    """What a stage of the judge concludes: the verdict, and what it rests on.

    `details` are the lines of the report below the headline. `measurement` and `expected` are None if nothing was
    measured, or if there is no baseline. `references` are figures of others for comparison. If the case ran several
    times, `runs` has the measurement of each run, those of `outcome.earlier` first. `written` is the checkpoint of a
    case that writes one, `artefacts` what a run in another mode left on the cluster.
    """

    verdict: Verdict
    details: tuple[str, ...] = ()
    measurement: Measurement | None = None
    expected: Expected | None = None
    references: tuple[Reference, ...] = ()
    runs: tuple[Measurement, ...] = ()
    written: Written | None = None
    artefacts: Artefacts | None = None


@dataclass(frozen=True, kw_only=True)
class Judgement(Conclusion):
    """The judgement of one case. `isolated` says which of its nodes are slow, if they were probed."""

    evidence: Evidence
    isolated: Isolated | None = None

    @property
    def case(self) -> Case:
        return self.evidence.case

    @property
    def outcome(self) -> Outcome:
        return self.evidence.outcome

    @property
    def log(self) -> Log:
        """The log of the case's last job."""
        return self.evidence.log

    @property
    def gpus(self) -> Gpus | None:
        """What that log tells of its GPUs."""
        return self.evidence.own.gpus

    @property
    def statistic(self) -> Statistic:
        """The step time that counts."""
        if self.measurement is None:
            return self.evidence.numbers.statistic
        return self.measurement.timing.published.statistic

    @property
    def versions(self) -> dict[str, str]:
        """The versions that the run was made with, as far as they are known."""
        return versions_of(self.outcome, self.log)

    @property
    def text(self) -> str:
        """Headline, figures and remarks, for a terminal."""
        lines = [f"  {line}" for line in self.details]
        if self.isolated is not None:
            lines += [f"  isolation {self.isolated.headline}"]
        lines += [f"  remark    {remark}" for remark in self.verdict.remarks]
        return "\n".join([f"{self.case.key}: {self.verdict.headline}", *lines])


def ended(evidence: Evidence, kind: Kind, reasons: Sequence[str], details: Sequence[str] = ()) -> Conclusion:
    """How a case ends whose job or run is no evidence, for these reasons."""
    note = evidence.outcome.job.log_note
    verdict = Verdict(kind, tuple(reasons), tuple(filter(None, [note])))
    return Conclusion(verdict, tuple(details))
