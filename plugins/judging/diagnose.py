"""From a red verdict to its cause: what the case's runs in other modes say, beside the recorded good ones. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median

from plugins.judging.diagnosis import Diagnosis, ModeRun
from plugins.modes.artefacts import Artefacts
from plugins.modes.growth import Growth, changed_networks, explain_growth, transport_words
from plugins.modes.profiles import Digests, ProfileDigest
from plugins.modes.traces import NcclDigest
from plugins.record.verdict import Cause
from plugins.words import counted

_LAST = 0.02
"""Without a good digest, a rank arrives last if it waits less than the median of the others by this share of a step."""

# The parts of a step, in the order of the report: the word, and the fields of `Step` that it is the sum of, with their signs.
_PARTS: Mapping[str, Mapping[str, int]] = {
    "step": {"length": 1},
    str(Cause.COMPUTE): {"compute": 1},
    str(Cause.COMMUNICATION): {"exposed": 1},
    str(Cause.GAP): {"gap": 1, "data": -1, "checkpoint": -1},
    str(Cause.DATA): {"data": 1},
    str(Cause.CHECKPOINT): {"checkpoint": 1},
    str(Cause.COPIES): {"other": 1},
}


@dataclass(frozen=True)
class _Networks:
    """The network of each rank, now and in the good run; empty if there is no trace."""

    now: Mapping[int, str]
    good: Mapping[int, str]

    @property
    def transport(self) -> tuple[str, str]:
        """How many ranks use which network in the good run and now, in words."""
        return _listed(self.good), _listed(self.now)


@dataclass(frozen=True)
class _Compared:
    """A profile beside the good one, as in `Diagnosis`. `growth` is None if there is no good one, all else if there is no profile."""

    figures: Mapping[str, tuple[float | None, float]] | None = None
    slowest: str | None = None
    last: str | None = None
    growth: Growth | None = None


def diagnose(gpus: int, runs: Sequence[ModeRun], recording: str) -> Diagnosis:
    """What the runs of a case on so many GPUs tell. `recording` is the command that records good digests."""
    profile = next((run for run in runs if run.artefacts is not None and run.artefacts.profiles), None)
    trace = next((run for run in runs if run.artefacts is not None and run.artefacts.trace), None)
    notes = _notes(runs)
    if profile is None and trace is None:
        return Diagnosis(f"no diagnosis: {'; '.join(notes) or 'no job was run'}", runs=tuple(runs))
    ranks, compared = _networks_of(trace), _Compared()
    lines = []
    if profile is not None:
        compared = _compare(profile, gpus, ranks)
        lines += _table(compared)
    if trace is not None:
        lines.append(_transport_line(ranks))
    lines += [f"good       {run.mode} of {run.good.origin}" for run in (profile, trace) if run and run.good]
    growth = compared.growth
    headline, cause = _conclusion(profile, growth, ranks)
    diagnosis = Diagnosis(
        headline=headline,
        cause=cause,
        slowest=compared.slowest,
        last=compared.last,
        figures=compared.figures,
        transport=ranks.transport,
        runs=tuple(runs),
    )
    if growth is not None:
        lines += growth.figures
        diagnosis = replace(diagnosis, ranks=growth.ranks, collective=growth.collective)
    notes += _without_good(runs, recording)
    return replace(diagnosis, lines=(*lines, *(f"note       {note}" for note in notes)))


def _notes(runs: Sequence[ModeRun]) -> list[str]:
    """Which runs are no evidence, and what could not be found out of what the others left."""
    notes = [f"{run.mode}: {run.why_not}" for run in runs if run.why_not]
    for run in runs:
        if run.artefacts is not None:
            notes += [f"{run.mode}: {note}" for note in _unread(run.artefacts)]
    return notes


def _unread(artefacts: Artefacts) -> Sequence[str]:
    if artefacts.profiles or artefacts.trace is not None or artefacts.notes:
        return artefacts.notes
    return [f"no digest was made of what is in {artefacts.folder}"]


def _without_good(runs: Sequence[ModeRun], recording: str) -> list[str]:
    """The note on runs that there is no good digest for, and how to record one."""
    lone = [
        f"{run.mode}: {run.why_no_good}" for run in runs if run.artefacts is not None and run.good is None
    ]
    if not lone:
        return []
    return [
        f"no good digest to compare with ({'; '.join(lone)}); to record one when the case is well: {recording}"
    ]


def _conclusion(profile: ModeRun | None, growth: Growth | None, ranks: _Networks) -> tuple[str, Cause]:
    """The headline and the cause."""
    if growth is not None and growth.cause is Cause.UNKNOWN:
        return growth.headline, growth.cause
    if growth is not None:
        return f"cause: {growth.headline}", growth.cause
    changed = changed_networks(ranks.good, ranks.now)
    if changed and profile is None:
        return f"cause: {transport_words(changed)}", Cause.TRANSPORT
    reason = "there is no profile to compare"
    if profile is not None:
        reason = "there is no good digest to compare with"
    return f"{Cause.UNKNOWN}: {reason}; what is known without one is below", Cause.UNKNOWN


def _compare(profile: ModeRun, gpus: int, ranks: _Networks) -> _Compared:
    assert profile.artefacts is not None
    now = _digests(profile.artefacts.profiles)
    slowest = max(now.ranks, key=lambda rank: rank.mean("length") - rank.mean("exposed")).who
    if profile.good is None or not profile.good.profiles:
        return _Compared(_figures((), now.ranks), slowest, _last(now.ranks), None)
    good = _digests(profile.good.profiles)
    growth = explain_growth(good, now, world=gpus, good_networks=ranks.good, networks=ranks.now)
    return _Compared(_figures(profile.good.profiles, now.ranks), slowest, growth.last, growth)


def _digests(profiles: Sequence[ProfileDigest]) -> Digests:
    return Digests(version=1, profiles=tuple(profiles), errors=())


def _figures(
    good: Sequence[ProfileDigest], now: Sequence[ProfileDigest]
) -> dict[str, tuple[float | None, float]]:
    """The seconds a step of each part in the good run, None if there is none, and now: means of the ranks."""
    means = {part: _mean(now, fields) for part, fields in _PARTS.items()}
    if not good:
        return {part: (None, mean) for part, mean in means.items()}
    return {part: (_mean(good, fields), means[part]) for part, fields in _PARTS.items()}


def _mean(ranks: Sequence[ProfileDigest], fields: Mapping[str, int]) -> float:
    """The mean of the ranks' sums of these fields, each with its sign."""
    return fmean(sum(sign * rank.mean(name) for name, sign in fields.items()) for rank in ranks)


def _last(now: Sequence[ProfileDigest]) -> str | None:
    """The rank that waits least in the collectives, if it stands out."""
    if len(now) < 2:
        return None
    first, *further = sorted(now, key=lambda rank: rank.mean("communication"))
    gap = median(rank.mean("communication") for rank in further) - first.mean("communication")
    if gap <= _LAST * fmean(rank.mean("length") for rank in now):
        return None
    return first.who


def _table(compared: _Compared) -> list[str]:
    """The figures beside each other: a line for each part of a step that takes any time."""
    figures = compared.figures or {}
    whole = figures["step"][1]
    lines = [f"{'ms, mean of ranks':<22} {'good':>10} {'now':>10} {'grew':>10} {'share':>8}"]
    for part, (good, now) in figures.items():
        if not good and not now:
            continue
        columns = f"{'':>10} {1e3 * now:10.1f} {'':>10}"
        if good is not None:
            columns = f"{1e3 * good:10.1f} {1e3 * now:10.1f} {1e3 * (now - good):+10.1f}"
        lines.append(f"{part:<22} {columns} {100 * now / whole if whole else 0:6.1f} %")
    lines.append(f"slowest    {compared.slowest} has the most work of its own")
    if compared.last:
        lines.append(f"last       {compared.last} arrives last at the collectives")
    return lines


def _transport_line(ranks: _Networks) -> str:
    good, now = ranks.transport
    now = now or "not told by the trace"
    if good:
        now = f"{good} in the good run, now {now}"
    return f"transport  {now}"


def _networks_of(trace: ModeRun | None) -> _Networks:
    if trace is None or trace.artefacts is None or trace.artefacts.trace is None:
        return _Networks({}, {})
    now, good = networks(trace.artefacts.trace), {}
    if trace.good is not None and trace.good.trace is not None:
        good = networks(trace.good.trace)
    if good and len(good) != len(now):
        usual = Counter(good.values()).most_common(1)[0][0]
        good = dict.fromkeys(now, usual)
    return _Networks(now, good)


def networks(trace: NcclDigest) -> dict[int, str]:
    """The network of each rank that shows one. If NCCL printed no ranks, they are counted by host and GPU."""
    members = sorted(trace.members(), key=lambda rank: (trace.hosts[rank.host], rank.gpu, rank.pid))
    names = {}
    for number, rank in enumerate(members):
        name = trace.process(rank).network
        if name:
            names[number if rank.rank is None else rank.rank] = name
    return names


def _listed(networks: Mapping[int, str]) -> str:
    """`IB/GDRDMA on 16 ranks`."""
    counts = Counter(networks.values()).most_common()
    return ", ".join(f"{name} on {counted(count, 'rank')}" for name, count in counts)
