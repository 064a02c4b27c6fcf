"""What grew between a good digest of a case and the present one: from a red verdict to its cause. Pure.

Each rank's mean step is compared, part by part, with the same rank's in the good digest, or with the median
rank's if another number of ranks was profiled. A rank's own work is everything but exposed communication:
compute, copies, data, checkpoint, and the rest of the host's gaps. In a step that all ranks end together, the
others wait for the last rank inside their collectives. So growth of own work on one rank shows as exposed
communication on the others, and a slow network shows as exposed communication on all.

The rule:

1. Where the mean step grew no more than the noise, the cause cannot be told.
2. The critical rank is the one whose own work grew most. If that is at least half of the step's growth, the
   cause is the part that grew most there. It is on all ranks if the part grew by at least half as much on each
   of them, otherwise on those where it did.
3. Otherwise, if exposed communication grew by at least half of the step's growth on every rank, the cause is
   communication, with the collective whose exposed time grew most. It is transport if a rank's network is
   another one than in the good run.
4. Otherwise it cannot be told.

Noise of a part: `NOISE` standard errors of the difference of two means, from the scatter of the good steps
(the median over the ranks), or `FLOOR` of the good step if that is more, because two runs differ by more than
the steps of one. Where the good steps cannot scatter,
because the window was not divided, it is `FLOOR_UNDIVIDED`.

No clocks of different ranks are compared. The last arriver is the rank that spends least time inside the
collectives: by more below the median of the others than in the good run, and by more than the noise.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median, stdev

from plugins.modes.profiles import UNKNOWN_LIMIT, Digests, ProfileDigest
from plugins.record.verdict import Cause

NOISE = 4.0
FLOOR = 0.02
FLOOR_UNDIVIDED = 0.05

# If so much of a gap's growth is before the first kernel of a step, it lies there.
_BEFORE_FIRST_KERNEL = 0.7

# The parts of a step, by the names of `StepShares`.
_OWN_WORK: Mapping[Cause, str] = {
    Cause.COMPUTE: "compute",
    Cause.COPIES: "other",
    Cause.DATA: "data",
    Cause.CHECKPOINT: "checkpoint",
    Cause.GAP: "unmarked_gap",
}
_PARTS: Mapping[Cause, str] = {**_OWN_WORK, Cause.COMMUNICATION: "exposed"}


@dataclass(frozen=True)
class Growth:
    """The cause of a slow run, where it is, and the figures.

    `ranks`: where the cause is; empty: on all profiled ranks, or it is not a rank's. `collective`: the one whose
    exposed time grew most. `last`: the rank that arrives last at the collectives, None if none stands out.
    """

    cause: Cause
    headline: str
    ranks: tuple[str, ...] = ()
    collective: str | None = None
    last: str | None = None
    figures: tuple[str, ...] = ()


def explain_growth(
    good: Digests,
    now: Digests,
    *,
    world: int | None = None,
    good_networks: Mapping[int, str] | None = None,
    networks: Mapping[int, str] | None = None,
) -> Growth:
    """Say what grew. `world` is the case's number of ranks; networks are by rank, from NCCL's own log."""
    pair = _Pair(good.ranks, now.ranks)
    reason = pair.incomparable()
    if reason:
        return _unknown(reason)
    parts = {part: pair.growths(name) for part, name in _PARTS.items()}
    steps = pair.growths("length")
    step, noise = fmean(steps), pair.noise("length")
    figures = pair.figures(parts, steps, noise)
    if step <= noise:
        return _unknown(f"the step grew by {_ms(step)}, within the noise of {_ms(noise)}", figures)
    work = [sum(parts[part][rank] for part in _OWN_WORK) for rank in range(len(pair.now))]
    critical = max(range(len(work)), key=work.__getitem__)
    if work[critical] >= step / 2:
        growth = _own_work(pair, parts, critical)
    elif min(parts[Cause.COMMUNICATION]) >= step / 2:
        changed = changed_networks(good_networks or {}, networks or {})
        by_rank = dict(sorted(changed.items()))
        growth = _communication(pair, min(parts[Cause.COMMUNICATION]), world, by_rank)
    else:
        growth = _unknown("nothing grew by half of what the step grew by")
    if growth.cause is Cause.UNKNOWN:
        return replace(growth, figures=figures)
    headline = f"{growth.headline}; the step grew by {_ms(step)} ({step / pair.length:.1%})"
    return replace(growth, headline=headline, last=pair.last(), figures=figures)


def _unknown(reason: str, figures: tuple[str, ...] = ()) -> Growth:
    return Growth(Cause.UNKNOWN, f"{Cause.UNKNOWN}: {reason}", figures=figures)


@dataclass(frozen=True)
class _Pair:
    """The profiled ranks of the good run and of the present one."""

    good: Sequence[ProfileDigest]
    now: Sequence[ProfileDigest]

    @property
    def all(self) -> Sequence[ProfileDigest]:
        return (*self.good, *self.now)

    @property
    def length(self) -> float:
        """The mean step of the good run in s."""
        return fmean(profile.mean("length") for profile in self.good)

    def incomparable(self) -> str:
        """Why nothing can be said of these profiles; "" if something can."""
        for word, ranks in (("good", self.good), ("present", self.now)):
            if not ranks:
                return f"no rank of the {word} run has a digest"
        if not self.length:
            return "the good steps have no length"
        hidden = max(profile.unknown_share for profile in self.all)
        if hidden > UNKNOWN_LIMIT:
            return f"{hidden:.0%} of a rank's kernel time is in no category"
        return ""

    def growths(self, name: str) -> list[float]:
        """By how much the mean of a part grew, for each present rank."""
        before = [profile.mean(name) for profile in self.good]
        if len(before) != len(self.now):
            before = [median(before)] * len(self.now)
        return [profile.mean(name) - mean for profile, mean in zip(self.now, before, strict=True)]

    def noise(self, name: str) -> float:
        """The growth of a part in s that is within the noise."""
        scatters: list[float] = [
            stdev(getattr(step, name) / 1e9 for step in profile.steps)
            for profile in self.good
            if len(profile.steps) > 1 and profile.count == 1
        ]
        if not scatters:
            return FLOOR_UNDIVIDED * self.length
        steps = min(len(profile.steps) for profile in self.all)
        return max(NOISE * median(scatters) * math.sqrt(2 / steps), FLOOR * self.length)

    def last(self) -> str | None:
        """The rank that waits least in the collectives, if that stands out more than it did in the good run."""
        if len(self.now) < 2:
            return None
        inside = [profile.mean("communication") for profile in self.now]
        rank = min(range(len(inside)), key=inside.__getitem__)
        ahead = _beside_others(inside, rank)
        if len(self.good) == len(self.now):
            ahead -= _beside_others([profile.mean("communication") for profile in self.good], rank)
        if ahead <= self.noise("communication"):
            return None
        return self.now[rank].who

    def collective(self) -> str | None:
        """The collective whose exposed time a rank and step grew most."""
        before, after = _exposed(self.good), _exposed(self.now)
        return max(after, key=lambda name: after[name] - before.get(name, 0.0), default=None)

    def is_before_first_kernel(self, rank: int, grew: float) -> bool:
        """Whether a host gap is where the data loader works, and no report marks the data loader."""
        marked = any(step.data for profile in self.all for step in profile.steps)
        return not marked and self.growths("head")[rank] >= _BEFORE_FIRST_KERNEL * grew

    def figures(
        self, parts: Mapping[Cause, Sequence[float]], steps: Sequence[float], noise: float
    ) -> tuple[str, ...]:
        """One line for the noise, one for each rank."""
        lines = [f"good step {_ms(self.length)}, noise of a step's growth {_ms(noise)}"]
        for rank, profile in enumerate(self.now):
            growths = ", ".join(f"{part} {parts[part][rank] * 1e3:+.1f}" for part in parts)
            lines.append(
                f"{profile.who}: step {steps[rank] * 1e3:+.1f} ms: {growths}; "
                f"inside collectives {_ms(profile.mean('communication'))}"
            )
        return tuple(lines)


def _own_work(pair: _Pair, parts: Mapping[Cause, Sequence[float]], critical: int) -> Growth:
    """The part of its own work that grew most on the critical rank."""
    part = max(_OWN_WORK, key=lambda part: parts[part][critical])
    grew = parts[part][critical]
    if grew <= pair.noise(_PARTS[part]):
        return _unknown("no part of the work grew by more than its noise")
    ranks = [profile.who for profile, by in zip(pair.now, parts[part], strict=True) if by >= grew / 2]
    if len(ranks) == len(pair.now) > 1:
        ranks = []
    text = f"{part} grew by {_ms(grew)} a step on {', '.join(ranks) or f'all {len(pair.now)} profiled ranks'}"
    if part is Cause.GAP and pair.is_before_first_kernel(critical, grew):
        text += "; it lies before the step's first kernel, and the report does not mark the data loader"
    last = pair.last()
    if last in ranks:
        text += f"; {last} arrives last at the collectives"
    return Growth(part, text, tuple(ranks))


def _communication(
    pair: _Pair, grew: float, world: int | None, changed: Mapping[int, tuple[str, str]]
) -> Growth:
    """Communication that was exposed for longer on all ranks.

    `changed` has each rank whose network is another one, with that of the good run and the present one.
    """
    collective = pair.collective()
    text = f"exposed communication grew by {_ms(grew)} a step on all {len(pair.now)} profiled ranks"
    if collective:
        text += f", most in {collective}"
    if changed:
        ranks = tuple(f"rank {rank}" for rank in changed)
        return Growth(Cause.TRANSPORT, f"{transport_words(changed)}; {text}", ranks, collective)
    if world is None or world > len(pair.now):
        text += "; a slow link, or a rank without a profile that arrives late"
    return Growth(Cause.COMMUNICATION, text, collective=collective)


def changed_networks(before: Mapping[int, str], now: Mapping[int, str]) -> dict[int, tuple[str, str]]:
    """Each rank whose network is another one than in the good run, with both."""
    return {rank: (before[rank], name) for rank, name in now.items() if before.get(rank, name) != name}


def transport_words(changed: Mapping[int, tuple[str, str]]) -> str:
    """The first rank that uses another network than in the good run, in words."""
    rank, (before, now) = next(iter(changed.items()))
    more = f" (and {len(changed) - 1} more ranks)" if len(changed) > 1 else ""
    return f"transport: rank {rank} uses {now}, it used {before}{more}"


def _beside_others(inside: Sequence[float], rank: int) -> float:
    """By how much the others' median is above the rank's own."""
    return median([*inside[:rank], *inside[rank + 1 :]]) - inside[rank]


def _exposed(profiles: Sequence[ProfileDigest]) -> Mapping[str, float]:
    """Exposed seconds of each collective, a rank and step."""
    seconds: defaultdict[str, float] = defaultdict(float)
    for profile in profiles:
        for name, collective in profile.collectives.items():
            seconds[name] += collective.exposed / 1e9 / len(profile.steps) / profile.count / len(profiles)
    return seconds


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.1f} ms"
