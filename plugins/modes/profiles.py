"""What `plugins/modes/nsys.py` printed on the cluster, as values. Times are integers in ns. Pure."""

from __future__ import annotations

from statistics import fmean
from typing import Annotated, Literal

from pydantic import Field, ValidationError, model_validator

from plugins.errors import ConfigError
from plugins.modes.nsys import KERNELS, MOST_ERRORS, MOST_PROFILES, MOST_STEPS
from plugins.yaml_mistakes import first_mistake
from plugins.yamlfile import Strict

MOST_BYTES = 1 << 20
UNKNOWN_LIMIT = 0.20
"""If more than this share of the kernels' time is in no category, the shares mislead."""

_NAMES = 400
_LONGEST_REASON = 1000

Time = Annotated[int, Field(ge=0, le=1 << 62)]
Text = Annotated[str, Field(max_length=_NAMES)]


class StepShares(Strict):
    """The shares of one step; docs/modes.md defines them."""

    length: Time
    compute: Time
    exposed: Time
    other: Time
    gap: Time
    communication: Time
    data: Time
    checkpoint: Time
    head: Time

    @model_validator(mode="after")
    def _whole(self) -> StepShares:
        if self.compute + self.exposed + self.other + self.gap != self.length:
            raise ValueError("the shares of a step do not sum to its length")
        if self.data + self.checkpoint > self.gap or self.communication < self.exposed:
            raise ValueError("a part of a step is larger than the whole")
        return self


class Total(Strict):
    time: Time
    calls: Time


class Collective(Total):
    exposed: Time


class Kernel(Total):
    category: Text
    name: Text
    mean: Time


class ProfileDigest(Strict):
    """What one device did for one process in the profiled steps. None: the report does not say."""

    file: Text
    nsys: Text | None
    export_schema: Text | None
    host: Text | None
    driver: Text | None
    cuda: Text | None
    started: Text | None
    gpu: Text | None
    device: Time
    process: Time
    rank: Time | None
    steps_by: Text
    count: Annotated[int, Field(ge=1, lt=1 << 31)]
    steps: Annotated[tuple[StepShares, ...], Field(min_length=1, max_length=MOST_STEPS, strict=False)]
    kernels: Annotated[tuple[Kernel, ...], Field(max_length=KERNELS, strict=False)]
    categories: dict[Text, Total]
    collectives: dict[Text, Collective]
    unknown_share: Annotated[float, Field(ge=0, le=1)]
    remarks: Annotated[tuple[Text, ...], Field(max_length=20, strict=False)]

    @property
    def who(self) -> str:
        """The rank if it is known, with the GPU."""
        place = f"{self.host or 'unknown host'} GPU {self.device}"
        if self.rank is None:
            return place
        return f"rank {self.rank} ({place})"

    def mean(self, name: str) -> float:
        """The mean of a part of the steps, in seconds."""
        return fmean(getattr(step, name) for step in self.steps) / self.count / 1e9


class Failed(Strict):
    file: Text
    error: Annotated[str, Field(max_length=1000)]


class Digests(Strict):
    """The digests of a job's reports, and the reports that have none."""

    version: Literal[1]
    profiles: Annotated[tuple[ProfileDigest, ...], Field(max_length=MOST_PROFILES, strict=False)]
    errors: Annotated[tuple[Failed, ...], Field(max_length=MOST_ERRORS, strict=False)]

    @property
    def ranks(self) -> tuple[ProfileDigest, ...]:
        """By rank where all are known, otherwise by host and device."""
        if all(profile.rank is not None for profile in self.profiles):
            return tuple(sorted(self.profiles, key=lambda profile: (profile.rank or 0, profile.device)))
        return tuple(sorted(self.profiles, key=lambda p: (p.host or "", p.device, p.process)))


def read_profiles(text: bytes, source: str) -> Digests:
    """Read what the program printed. `source` says where it is from. Raises ConfigError."""
    if len(text) > MOST_BYTES:
        raise ConfigError(
            f"{source}: is no digest of profiles: {len(text)} bytes, at most {MOST_BYTES} are read"
        )
    try:
        return Digests.model_validate_json(text)
    except ValidationError as error:
        raise ConfigError(
            f"{source}: is no digest of profiles: {first_mistake(error)[:_LONGEST_REASON]};"
            " make it again with plugins/modes/nsys.py"
        ) from None
