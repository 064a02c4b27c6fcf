"""A digest of profiles: what `plugins/modes/nsys.py` printed, as values, as a table, and as a plot of the steps' shares. Pure.

Times are integers in ns.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Annotated, Literal

from pydantic import Field, ValidationError, model_validator

from plugins.base.errors import ConfigError
from plugins.base.svg import stacked_bars
from plugins.base.words import shown
from plugins.base.yamlfile import Strict, first_mistake
from plugins.modes.nsys import MOST_ERRORS, MOST_PROFILES, MOST_STEPS

MOST_BYTES = 1 << 20
_NAMES = 400
_LONGEST_REASON = 1000

_COLOURS = {"compute": "#1f5fa8", "exposed": "#c0392b", "other": "#8aa", "gap": "#f0c36d"}

Time = Annotated[int, Field(ge=0, le=1 << 62)]
Text = Annotated[str, Field(max_length=_NAMES)]


class StepShares(Strict):
    """The shares of one step; docs/dev/modes.md defines them."""

    length: Time
    compute: Time
    exposed: Time
    other: Time
    gap: Time

    @model_validator(mode="after")
    def _whole(self) -> StepShares:
        if self.compute + self.exposed + self.other + self.gap != self.length:
            raise ValueError("the shares of a step do not sum to its length")
        return self


class ProfileDigest(Strict):
    """What one device did for one process in the profiled steps. None: the report does not say."""

    file: Text
    host: Text | None
    device: Time
    process: Time
    rank: Time | None
    steps_by: Text
    count: Annotated[int, Field(ge=1, lt=1 << 31)]
    steps: Annotated[tuple[StepShares, ...], Field(min_length=1, max_length=MOST_STEPS, strict=False)]
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


def by_rank(profiles: Sequence[ProfileDigest]) -> list[ProfileDigest]:
    """By rank where all are known, otherwise by host and device."""
    if all(profile.rank is not None for profile in profiles):
        return sorted(profiles, key=lambda profile: (profile.rank or 0, profile.device))
    return sorted(profiles, key=lambda profile: (profile.host or "", profile.device, profile.process))


def table(profiles: Sequence[ProfileDigest]) -> str:
    """The shares of each rank, and what is doubtful of them."""
    profiles = by_rank(profiles)
    lines = [f"{'':32} {'step s':>9} {'compute':>8} {'exposed':>8} {'other':>8} {'gap':>8}"]
    lines += map(_shares, profiles)
    lines += [f"steps by: {shown(by)}" for by in sorted({profile.steps_by for profile in profiles})]
    lines += [f"{shown(profile.who)}: {shown(remark)}" for profile in profiles for remark in profile.remarks]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def shares_svg(profiles: Sequence[ProfileDigest]) -> str:
    """One bar for each step of each rank, stacked from its shares."""
    bars = [
        (
            f"{_cut(profile.who, 32)} {number}",
            {part: getattr(step, part) for part in _COLOURS},
            f"{step.length / 1e9 / profile.count:.4g}",
        )
        for profile in by_rank(profiles)
        for number, step in enumerate(profile.steps, start=1)
    ]
    return stacked_bars("seconds of each profiled step", _COLOURS, bars)


def _cut(text: str, width: int) -> str:
    text = shown(text).replace("\n", " ")
    if len(text) <= width:
        return text
    return text[: width - 3] + "..."


def _shares(profile: ProfileDigest) -> str:
    length = profile.mean("length")
    shares = [f"{profile.mean(part) / length if length else 0:.1%}" for part in _COLOURS]
    cells = " ".join(share.rjust(8) for share in shares)
    return f"{_cut(profile.who, 32):32} {length:9.4f} {cells}"
