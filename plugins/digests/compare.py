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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import fmean, median, stdev

from plugins.digests.profile import UNKNOWN_LIMIT, Digests, ProfileDigest, Step

NOISE = 4.0
FLOOR = 0.02
FLOOR_UNDIVIDED = 0.05


class Cause(StrEnum):
    """What made a step longer."""

    COMPUTE = "compute"
    COMMUNICATION = "exposed communication"
    TRANSPORT = "transport"
    GAP = "host gap"
    DATA = "data"
    CHECKPOINT = "checkpoint"
    COPIES = "copies"
    UNKNOWN = "cannot tell"


_OWN: Mapping[Cause, Callable[[Step], int]] = {
    Cause.COMPUTE: lambda step: step.compute,
    Cause.COPIES: lambda step: step.other,
    Cause.DATA: lambda step: step.data,
    Cause.CHECKPOINT: lambda step: step.checkpoint,
    Cause.GAP: lambda step: step.gap - step.data - step.checkpoint,
}
_PARTS: Mapping[Cause, Callable[[Step], int]] = {
    **_OWN,
    Cause.COMMUNICATION: lambda step: step.exposed,
}


@dataclass(frozen=True)
class Finding:
    """The cause, where it is, and the figures. Times are in seconds a step.

    `ranks`: where the cause is; empty: on all profiled ranks, or it is not a rank's. `grew`: by how much the
    part grew on the critical rank. `collective`: the one whose exposed time grew most. `last`: the rank that
    arrives last at the collectives, None if none stands out.
    """

    cause: Cause
    headline: str
    ranks: tuple[str, ...]
    grew: float
    step_grew: float
    collective: str | None
    last: str | None
    figures: tuple[str, ...]


def cause(
    good: Digests,
    now: Digests,
    *,
    world: int | None = None,
    good_networks: Mapping[int, str] | None = None,
    networks: Mapping[int, str] | None = None,
) -> Finding:
    """Say what grew. `world` is the case's number of ranks; networks are by rank, from NCCL's own log."""
    return _Comparison(good.ranks, now.ranks, world, good_networks or {}, networks or {}).finding()


class _Comparison:
    def __init__(
        self,
        good: Sequence[ProfileDigest],
        now: Sequence[ProfileDigest],
        world: int | None,
        good_networks: Mapping[int, str],
        networks: Mapping[int, str],
    ) -> None:
        self._good, self._now, self._world = good, now, world
        self._good_networks, self._networks = good_networks, networks

    def finding(self) -> Finding:
        if not self._good or not self._now:
            which = "good run" if not self._good else "present run"
            return self._unknown(f"no rank of the {which} has a digest")
        self._length = fmean(_mean(one, _length) for one in self._good)
        if not self._length:
            return self._unknown("the good steps have no length")
        hidden = max(one.unknown_share for one in (*self._good, *self._now))
        if hidden > UNKNOWN_LIMIT:
            return self._unknown(f"{hidden:.0%} of a rank's kernel time is in no category")
        growths = {part: self._growths(figure) for part, figure in _PARTS.items()}
        steps = self._growths(_length)
        step = fmean(steps)
        limit = self._noise(_length)
        figures = self._figures(growths, steps, limit)
        last = self._last()
        if step <= limit:
            why = f"the step grew by {_ms(step)}, within the noise of {_ms(limit)}"
            return self._unknown(why, step, figures)
        own = [sum(growths[part][rank] for part in _OWN) for rank in range(len(self._now))]
        critical = max(range(len(own)), key=own.__getitem__)
        if own[critical] >= step / 2:
            return self._own_work(growths, critical, step, figures, last)
        exposed = growths[Cause.COMMUNICATION]
        if min(exposed) >= step / 2:
            return self._communication(exposed, step, figures, last)
        return self._unknown("nothing grew by half of what the step grew by", step, figures)

    def _own_work(
        self,
        growths: Mapping[Cause, Sequence[float]],
        critical: int,
        step: float,
        figures: tuple[str, ...],
        last: int | None,
    ) -> Finding:
        part = max(_OWN, key=lambda part: growths[part][critical])
        grew = growths[part][critical]
        limit = self._noise(_PARTS[part])
        if grew <= limit:
            return self._unknown("no part of the work grew by more than its noise", step, figures)
        where = [rank for rank, by in enumerate(growths[part]) if by >= grew / 2]
        names = () if len(where) == len(self._now) > 1 else tuple(self._now[rank].who for rank in where)
        text = (
            f"{part} grew by {_ms(grew)} a step on {', '.join(names) or f'all {len(where)} profiled ranks'}"
        )
        if part is Cause.GAP and self._before_first_kernel(critical, grew):
            text += "; it lies before the step's first kernel, and the report does not mark the data loader"
        if names and last in where:
            text += f"; {self._now[last].who} arrives last at the collectives"
        return self._found(part, text, names, grew, step, None, last, figures)

    def _communication(
        self, exposed: Sequence[float], step: float, figures: tuple[str, ...], last: int | None
    ) -> Finding:
        grew = min(exposed)
        collective = self._collective()
        text = f"exposed communication grew by {_ms(grew)} a step on all {len(exposed)} profiled ranks"
        if collective:
            text += f", most in {collective}"
        changed = sorted(
            rank
            for rank, network in self._networks.items()
            if self._good_networks.get(rank, network) != network
        )
        if changed:
            first = changed[0]
            text = (
                f"transport: rank {first} uses {self._networks[first]}, it used {self._good_networks[first]}"
                f"{f' (and {len(changed) - 1} more ranks)' if len(changed) > 1 else ''}; {text}"
            )
            ranks = tuple(f"rank {rank}" for rank in changed)
            return self._found(Cause.TRANSPORT, text, ranks, grew, step, collective, last, figures)
        if self._world is None or self._world > len(self._now):
            text += "; a slow link, or a rank without a profile that arrives late"
        return self._found(Cause.COMMUNICATION, text, (), grew, step, collective, last, figures)

    def _found(
        self,
        part: Cause,
        text: str,
        ranks: tuple[str, ...],
        grew: float,
        step: float,
        collective: str | None,
        last: int | None,
        figures: tuple[str, ...],
    ) -> Finding:
        text += f"; the step grew by {_ms(step)} ({step / self._length:.1%})"
        name = None if last is None else self._now[last].who
        return Finding(part, text, ranks, grew, step, collective, name, figures)

    def _unknown(self, why: str, step: float = 0.0, figures: tuple[str, ...] = ()) -> Finding:
        return Finding(Cause.UNKNOWN, f"{Cause.UNKNOWN}: {why}", (), 0.0, step, None, None, figures)

    def _growths(self, figure: Callable[[Step], int]) -> list[float]:
        """By how much the mean grew, for each present rank."""
        before = [_mean(one, figure) for one in self._good]
        if len(before) != len(self._now):
            before = [median(before)] * len(self._now)
        return [_mean(one, figure) - was for one, was in zip(self._now, before, strict=True)]

    def _noise(self, figure: Callable[[Step], int]) -> float:
        scatters = [
            stdev(figure(step) / 1e9 for step in one.steps)
            for one in self._good
            if len(one.steps) > 1 and one.count == 1
        ]
        if not scatters:
            return FLOOR_UNDIVIDED * self._length
        steps = min(len(one.steps) for one in (*self._good, *self._now))
        return max(NOISE * median(scatters) * math.sqrt(2 / steps), FLOOR * self._length)

    def _last(self) -> int | None:
        """The rank that waits least in the collectives, if that stands out more than it did in the good run."""
        if len(self._now) < 2:
            return None
        inside = [_mean(one, _communication) for one in self._now]
        rank = min(range(len(inside)), key=inside.__getitem__)
        ahead = _beside_others(inside, rank)
        if len(self._good) == len(self._now):
            ahead -= _beside_others([_mean(one, _communication) for one in self._good], rank)
        return rank if ahead > self._noise(_communication) else None

    def _collective(self) -> str | None:
        """The collective whose exposed time a rank and step grew most."""
        before, after = _exposed(self._good), _exposed(self._now)
        grew = {name: time - before.get(name, 0.0) for name, time in after.items()}
        return max(grew, key=grew.__getitem__) if grew else None

    def _before_first_kernel(self, rank: int, grew: float) -> bool:
        marked = any(step.data for one in (*self._good, *self._now) for step in one.steps)
        return not marked and self._growths(lambda step: step.head)[rank] >= 0.7 * grew

    def _figures(
        self, growths: Mapping[Cause, Sequence[float]], steps: Sequence[float], limit: float
    ) -> tuple[str, ...]:
        """One line for the noise, one for each rank."""
        lines = [f"good step {_ms(self._length)}, noise of a step's growth {_ms(limit)}"]
        for rank, one in enumerate(self._now):
            parts = ", ".join(f"{part} {growths[part][rank] * 1e3:+.1f}" for part in growths)
            lines.append(
                f"{one.who}: step {steps[rank] * 1e3:+.1f} ms: {parts}; "
                f"inside collectives {_ms(_mean(one, _communication))}"
            )
        return tuple(lines)


def _length(step: Step) -> int:
    return step.length


def _communication(step: Step) -> int:
    return step.communication


def _mean(one: ProfileDigest, figure: Callable[[Step], int]) -> float:
    return fmean(figure(step) for step in one.steps) / one.count / 1e9


def _beside_others(inside: Sequence[float], rank: int) -> float:
    """By how much the others' median is above the rank's own."""
    return median([*inside[:rank], *inside[rank + 1 :]]) - inside[rank]


def _exposed(ranks: Sequence[ProfileDigest]) -> dict[str, float]:
    """Exposed seconds of each collective, a rank and step."""
    found: dict[str, float] = {}
    for one in ranks:
        for name, collective in one.collectives.items():
            share = collective.exposed / 1e9 / len(one.steps) / one.count / len(ranks)
            found[name] = found.get(name, 0.0) + share
    return found


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.1f} ms"
