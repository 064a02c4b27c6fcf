"""The acceptance plan of a run: a YAML file on which buyer and vendor agree before the first job."""

import hashlib
import re
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from plugins.base.yaml_text import read_bytes
from plugins.base.yamlfile import Date, GpuType, Stated, Strict, parse
from plugins.record.baseline import AgreedTolerance
from plugins.record.job import node_names
from plugins.record.verdict import Kind

PLAN = "acceptance.yaml"
"""The name of the run's own copy of its plan."""

MOST_SHORTFALL = 0.2
"""A plan, or `--scaling`, cannot allow more than this."""

_PATTERN = set("*?[")
_NODE = re.compile(r"[\w.-]+")


class Waiver(Strict):
    """A case that need not pass, because both parties agree on it."""

    case: str
    """The id of the case, no pattern."""

    verdicts: list[Annotated[Kind, Field(strict=False)]] = Field(min_length=1)
    """What it may end as. A case that was not run at all cannot be waived."""

    reason: Stated
    agreed_by: Stated
    until: Date
    """The last day (UTC), as 2027-01-31. The run must have begun by then, and the case's last job too."""


class Repeated(Strict):
    """How often a case runs."""

    at_most: int = Field(default=1, ge=1, le=20)
    """A further run follows only if the runs so far do not tell whether the case passes."""

    always: bool = False
    """Each case runs `at_most` times, also if fewer runs tell."""


class Plan(Strict):
    """What is to be shown of a site."""

    site: Stated
    """The `site` of the site file."""

    cases: list[Stated] = Field(min_length=1)
    """Ids of cases, such as `llama3/70b-fp8-512gpus`, or patterns with `*`: each of them must be shown.

    Those of a variant need `--variant`.
    """

    number: int | None = Field(default=None, gt=0)
    """How many cases these are; required if `cases` has a pattern, because a suite may get other cases."""

    nodes: list[Stated] = []
    """Nodes, or lists such as `"gpu[001-064]"`, in quotes: a case that passed must have run on each of them."""

    gpu: GpuType | None = None
    """The type of GPU by whose numbers the cases are judged."""

    releases: dict[str, Stated] = {}
    """The release of each recipe; those of the site file or the recipes count for the others."""

    recorded_baselines: bool = False
    """Whether a number that this site itself recorded counts as a baseline."""

    numbers: dict[str, Annotated[float, Field(gt=0)]] = {}
    """Agreed step times in s, by the id of the case, where nobody published a number.

    The site's own baselines have them, without `recorded`.
    """

    by: Literal["expected"] | None = Field(default=None, exclude_if=lambda by: by is None)
    """`expected`: a case for which nobody published a number is decided by the lower end of its [expected
    range](verdicts.md#an-expected-range).
    """

    repeats: Repeated = Repeated()
    tolerance: AgreedTolerance | None = None
    """It takes the place of the baselines' own."""

    scaling: float | None = Field(default=None, gt=0, le=MOST_SHORTFALL)
    """By which share the efficiency at a scale may fall short of the published one; none: it is not judged."""

    network: Stated | None = None
    """The network between the nodes, as the site file must have it: every case on several nodes is judged by it."""

    storage_gb_per_second: float | None = Field(default=None, gt=0)
    """What the shared storage promises, as the site file must have it: a case of `checkpoint` is judged by it."""

    waivers: list[Waiver] = []

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.number is None and any(_PATTERN & set(text) for text in self.cases):
            raise ValueError("number: say how many cases these are, because `cases` has a pattern")
        named = [waiver.case for waiver in self.waivers]
        if twice := sorted({case for case in named if named.count(case) > 1}):
            raise ValueError(f"waivers: {', '.join(twice)} has two; keep one")
        if odd := [text for text in self.nodes if not _names_nodes(text)]:
            raise ValueError(f"nodes: {odd[0]!r} is no list of nodes, such as 'gpu[001-064]'")
        if self.numbers and self.tolerance is None:
            raise ValueError("numbers: say `tolerance` too, or the site's own baselines would choose it")
        if any(Kind.PASSED in waiver.verdicts for waiver in self.waivers):
            raise ValueError("waivers: a case that passed needs none")
        return self


@dataclass(frozen=True)
class Agreed:
    """A plan with the bytes of its file."""

    plan: Plan
    data: bytes

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of the file."""
        return hashlib.sha256(self.data).hexdigest()


class Decision(StrEnum):
    """What a run has shown of its plan."""

    ACCEPTED = "accepted"
    NOT_ACCEPTED = "not accepted"
    INCOMPLETE = "incomplete"


def read_plan(path: Path) -> Agreed:
    """Read an acceptance plan. Raises ConfigError."""
    return parse_plan(path, read_bytes(path))


def parse_plan(path: Path, data: bytes) -> Agreed:
    """The plan of a file of these bytes. Raises ConfigError, which names `path`."""
    return Agreed(parse(path, data, Plan), data)


def _names_nodes(text: str) -> bool:
    """Whether a text is a list of nodes; no part of it is left that is not a node's name."""
    names = node_names(text)
    return bool(names) and text.count("[") == text.count("]") and all(map(_NODE.fullmatch, names))
