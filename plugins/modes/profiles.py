"""A digest of profiles: what `plugins/modes/nsys.py` printed, as values, as a table, and as a plot of the shares. Pure.

Times are integers in ns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field, ValidationError

from plugins.base.errors import ConfigError
from plugins.base.svg import stacked_bars
from plugins.base.words import shown
from plugins.base.yamlfile import Strict, first_mistake
from plugins.modes.nsys import MOST_ERRORS, MOST_PROFILES

MOST_BYTES = 1 << 20
_NAMES = 400
_LONGEST_REASON = 1000

_COLOURS = {"compute": "#1f5fa8", "exposed": "#c0392b", "other": "#8aa", "gap": "#f0c36d"}

Time = Annotated[int, Field(ge=0, le=1 << 62)]
Text = Annotated[str, Field(max_length=_NAMES)]


class ProfileDigest(Strict):
    """What one device did for one process in the profiled window; docs/dev/modes.md defines the shares.

    None: the report does not say.
    """

    file: Text
    host: Text | None
    device: Time
    process: Time
    rank: Time | None
    compute: Time
    exposed: Time
    other: Time
    gap: Time
    remarks: Annotated[tuple[Text, ...], Field(max_length=20, strict=False)]

    @property
    def who(self) -> str:
        """The rank if it is known, with the GPU."""
        place = f"{self.host or 'unknown host'} GPU {self.device}"
        if self.rank is None:
            return place
        return f"rank {self.rank} ({place})"

    @property
    def shares(self) -> dict[str, int]:
        """Compute, exposed communication, other and gap; together they are the window."""
        return {part: getattr(self, part) for part in _COLOURS}


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
    lines = [f"{'':32} {'window s':>9} {'compute':>8} {'exposed':>8} {'other':>8} {'gap':>8}"]
    lines += map(_row, profiles)
    lines += [f"{shown(profile.who)}: {shown(remark)}" for profile in profiles for remark in profile.remarks]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def shares_svg(profiles: Sequence[ProfileDigest]) -> str:
    """One bar for the window of each rank, stacked from its shares."""
    bars = [
        (_cut(profile.who, 32), profile.shares, f"{sum(profile.shares.values()) / 1e9:.4g}")
        for profile in by_rank(profiles)
    ]
    return stacked_bars("seconds of the profiled window", _COLOURS, bars)


def _cut(text: str, width: int) -> str:
    text = shown(text).replace("\n", " ")
    if len(text) <= width:
        return text
    return text[: width - 3] + "..."


def _row(profile: ProfileDigest) -> str:
    window = sum(profile.shares.values())
    cells = " ".join(f"{time / window if window else 0:.1%}".rjust(8) for time in profile.shares.values())
    return f"{_cut(profile.who, 32):32} {window / 1e9:9.4f} {cells}"
