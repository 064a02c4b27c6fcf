"""The record of a run, `summary.json`, which other programs read. Its JSON Schema is `docs/summary.schema.json`.

Every key but `screening` is always there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import date
from enum import StrEnum
from operator import mul
from statistics import fmean
from typing import Annotated, Literal

from pydantic import Field

from plugins.record.case import CaseRecord
from plugins.record.job import REPLAYED, Job
from plugins.record.lines import Moment, Part
from plugins.record.plan import Decision, Plan
from plugins.record.verdict import PACED, UNNAMED, Kind, LeftOut, Outcome

SCHEMA: Literal[1] = 1
"""It changes if a change would mislead a reader of the old schema."""


@dataclass(frozen=True, kw_only=True)
class RunsSaved(Part):
    """What `--repeat-undecided` saved: of the cases that their runs decided."""

    at_most: int
    """The most runs of a case."""
    runs: int
    """Those that were made."""
    not_needed: int
    """Those that were not made, because fewer decided."""
    gpu_hours_saved: float
    """What these would have cost: each as much as the case's own runs in the mean."""

    @classmethod
    def of(cls, at_most: int, tries: Mapping[str, Sequence[Job]], cases: Sequence[CaseRecord]) -> RunsSaved:
        """What these cases saved, each of which could run `at_most` times.

        `tries` are the jobs of each case, oldest first; the last one and those that were repeated are judged together.
        Only a case that is judged by its pace was decided by its runs.
        """
        paced = [tries[case.id] for case in cases if case.verdict in PACED and case.expected]
        decided = [[job for job in jobs if job is jobs[-1] or job.failure == "repeated"] for jobs in paced]
        spare = [max(0, at_most - len(runs)) for runs in decided]
        costs = [
            fmean([job.gpu_hours for job in runs if job.gpu_hours is not None] or [0.0]) for runs in decided
        ]
        return cls(
            at_most=at_most,
            runs=sum(map(len, decided)),
            not_needed=sum(spare),
            gpu_hours_saved=round(sum(map(mul, spare, costs)), 3),
        )

    @property
    def text(self) -> str:
        saved = ""
        if self.not_needed:
            saved = f", which saved about {self.gpu_hours_saved:.3g} GPU-hours"
        return f"at most {self.at_most} runs of a case: {self.runs} made, {self.not_needed} not needed{saved}"


@dataclass(frozen=True, kw_only=True)
class Scale(Part):
    """A scale of a size and dtype. Its pace is the steady one."""

    case: str
    gpus: int
    tokens_per_second_per_gpu: float | None
    """null if no valid run measured it."""
    published_tokens_per_second_per_gpu: float | None
    efficiency: float | None
    """`tokens_per_second_per_gpu` over that of the smallest scale."""
    published_efficiency: float | None
    """The same of the published numbers."""
    limit: float | None
    """The smallest efficiency that is enough, if one is asked for."""
    why: str
    """Why the limit is not reached, or why that cannot be told; empty if it is reached, or none is asked for."""
    waived: bool
    """Whether the plan waives the case: then it is neither judged nor compared with."""


@dataclass(frozen=True, kw_only=True)
class Scaling(Part):
    """The scaling of one recipe, size and dtype, with the same work per GPU at each scale."""

    recipe: str
    size: str
    dtype: str
    scales: tuple[Scale, ...]
    """The smallest one first."""

    @property
    def name(self) -> str:
        return f"{self.recipe}/{self.size}-{self.dtype}"

    @property
    def cases(self) -> frozenset[str]:
        return frozenset(scale.case for scale in self.scales)

    @property
    def judged(self) -> frozenset[str]:
        """The cases at which it reaches its limit or not, or at which that cannot be told."""
        return frozenset(scale.case for scale in self.scales if scale.limit is not None or scale.why)

    @property
    def short(self) -> list[str]:
        """What falls short, in words."""
        return [scale.why for scale in self.scales if scale.why and scale.limit is not None]

    @property
    def missing(self) -> list[str]:
        """What cannot be told, in words."""
        return [scale.why for scale in self.scales if scale.why and scale.limit is None]


NO_SITE = "none: logs were judged"
"""The site of logs that no session judged."""


class NodeState(StrEnum):
    """What a screening says of a node, the worst first."""

    FAILING = "failing"
    NOT_JUDGED = "not judged"
    PASSING = "passing"


@dataclass(frozen=True, kw_only=True)
class ScreenedNode(Part):
    """A node of a screening."""

    node: str
    case: str
    """The case that ran on it."""
    leaf: str
    """Its leaf switch or block; empty if that is not known."""
    state: NodeState
    seconds: float | None
    """The median time of its last steps; null if they are no evidence."""
    slowness: float | None
    """By how much that is above the median of all nodes, as a share; null if they are too few."""
    reason: str
    """What speaks against it, or what else is to be said of it."""


@dataclass(frozen=True, kw_only=True)
class Screening(Part):
    """The nodes of a cluster, each by itself."""

    headline: str
    limit: float | None
    """The slowness above which a node fails; null if too few were measured."""
    smallest: float | None
    """The least slowness that is seen in 99 of 100 nodes, as a share."""
    unlike: tuple[str, ...]
    """The nodes that are slower than their peers, or of a slower kind."""
    nodes: tuple[ScreenedNode, ...]
    """The worst first."""

    def having(self, state: NodeState) -> list[ScreenedNode]:
        return [node for node in self.nodes if node.state is state]


@dataclass(frozen=True, kw_only=True)
class WaivedCase(Part):
    """A case that did not pass, and need not."""

    case: str
    verdict: Kind
    headline: str
    reason: str
    agreed_by: str
    until: date
    """The last day (UTC) of the waiver."""


@dataclass(frozen=True, kw_only=True)
class AcceptanceRecord(Part):
    """The decision on the run's acceptance plan. docs/acceptance.md says how it is made."""

    decision: Decision
    digest: str
    """The SHA-256 of the plan, which is `acceptance.yaml` in the run's folder; the run's first line in `jobs.log` has it too."""
    plan: Plan
    cases: tuple[str, ...]
    """All cases of the plan."""
    failed: Mapping[str, str]
    """What speaks against the cluster, by the case or the part of the plan."""
    missing: Mapping[str, str]
    """What was not shown, by the case, the list of nodes or the part of the plan."""
    waived: tuple[WaivedCase, ...]
    unpublished: Mapping[str, str]
    """What judged a case for which nobody published a number, by the case: its expected range, a number of the parties, or nothing."""

    @property
    def basis(self) -> str:
        """What the decision stands on besides published numbers; "" if nothing."""
        if not self.unpublished:
            return ""
        judged = ", ".join(f"{count} by {by}" for by, count in Counter(self.unpublished.values()).items())
        return f"no published number for {len(self.unpublished)} of {len(self.cases)} cases: judged {judged}"


@dataclass(frozen=True, kw_only=True)
class Session(Part):
    """Which run it is, and when it was."""

    schema: Literal[1]
    """It changes if a reader of the old schema would be misled."""
    run: str
    """The name of the run's folder."""
    site: str
    """The site file's `site`."""
    started: Moment
    ended: Moment


@dataclass(frozen=True, kw_only=True)
class Ending(Part):
    """How the session ended."""

    outcome: Outcome
    """The whole session in one word: see docs/ci.md."""
    exit_code: int | None
    """Of the process; null if the session ended while it was being shut down."""
    regressions: tuple[str, ...]
    """With `--benchmark-compare-fail` or `--fail-if`: the cases that regressed or differ, with their figures."""
    uncompared: tuple[str, ...]
    """With `--benchmark-compare-fail` or `--fail-if`: the cases that could not be compared with the earlier run."""
    acceptance: AcceptanceRecord | None
    """With `--acceptance`: what the run has shown of its plan."""
    scaling: tuple[Scaling, ...]
    """Of each recipe, size and dtype with at least two measured scales."""
    screening: Annotated[Screening | None, Field(exclude_if=lambda value: value is None)] = None
    """Of the nodes that `suites/node` screened; left out if it screened none."""


@dataclass(frozen=True, kw_only=True)
class Summary(Ending, Session):
    """The record of a run."""

    totals: Mapping[Kind, int]
    """The number of cases with each verdict."""
    gpu_hours: float
    """Of all jobs of the run: of earlier tries, isolations and cancelled jobs too. Of a job that the cluster started again, the earlier attempts count if the cluster tells how long they ran. A replay has none."""
    repeated: RunsSaved | None
    """null without `--repeat-undecided`."""
    left_out: tuple[LeftOut, ...]
    commit: str | None
    """The commit of Pacemark's own checkout; null if it is none: then `versions` tells."""
    dirty: bool | None
    """Whether files of the checkout differed from that commit."""
    versions: Mapping[str, str]
    """Of Pacemark, Python and the relevant packages."""
    files: Mapping[str, str]
    """The SHA-256 of each log, of what was sent and of the errors of each job, by the path in the run's folder; of earlier jobs too."""
    cases: tuple[CaseRecord, ...]
    """In the order of the session."""

    @property
    def where(self) -> str:
        """`site lab`, or that logs were judged of which nobody names the site."""
        replayed = all(case.job.state == REPLAYED for case in self.cases)
        if self.site == NO_SITE or (self.site == UNNAMED and self.cases and replayed):
            return "judged from logs"
        return f"site {self.site}"

    def ended_as(self, ending: Ending) -> Summary:
        """The same record with another end of the session."""
        return replace(self, **{field.name: getattr(ending, field.name) for field in fields(Ending)})
