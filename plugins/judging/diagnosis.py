"""From a red verdict to its cause: what the case's runs in other modes say, beside the recorded good ones. Pure.

A diagnosis explains a verdict and never changes it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from plugins.baselines.digests import RecordedDigest
from plugins.digests.artefacts import Artefacts
from plugins.digests.growth import Growth, explain_growth
from plugins.digests.nccl_trace import NcclDigest, Setup
from plugins.digests.profile import Digests, ProfileDigest
from plugins.outcome import Outcome
from plugins.recipes.cases import Case
from plugins.record.verdict import Cause

# Without a good digest, a rank arrives last if it waits less than the median of the others by this share of a
# step.
_LAST = 0.02

FINDINGS = ("socket fallback", "socket network")
"""The kinds of marks (`plugins.logs.marks`) that spoil a run, but not the evidence for a cause."""

# The parts of a step, in the order of the report: the word, and the fields of `Step` that it is made of.
_PARTS: Mapping[str, tuple[str, ...]] = {
    "step": ("length",),
    str(Cause.COMPUTE): ("compute",),
    str(Cause.COMMUNICATION): ("exposed",),
    str(Cause.GAP): ("gap", "-data", "-checkpoint"),
    str(Cause.DATA): ("data",),
    str(Cause.CHECKPOINT): ("checkpoint",),
    str(Cause.COPIES): ("other",),
}


@dataclass(frozen=True)
class ModeRun:
    """A job of the case in another mode.

    `found` is what it left on the cluster, if that is evidence; otherwise `why_not` says why it is none.
    `good` is the recorded digest that it compares with; if there is none, `why_no_good` says why.
    """

    mode: str
    outcome: Outcome
    gpu_hours: float | None = None
    found: Artefacts | None = None
    why_not: str = ""
    good: RecordedDigest | None = None
    why_no_good: str = ""


@dataclass(frozen=True)
class Diagnosis:
    """The finding, in words and figures.

    `cause` is None if no job tells anything. `figures` has the seconds a step of each part, now and in the
    good run (None if there is none); `transport` how many ranks use which network, in words. `slowest` is the
    rank with the most work of its own, `last` the one that arrives last at the collectives.
    """

    headline: str
    cause: Cause | None = None
    ranks: tuple[str, ...] = ()
    slowest: str | None = None
    last: str | None = None
    collective: str | None = None
    figures: Mapping[str, tuple[float | None, float]] | None = None
    transport: tuple[str, str] = ("", "")
    lines: tuple[str, ...] = ()
    runs: tuple[ModeRun, ...] = ()
    command: str = ""


def gpu_hours(case: Case, startup_minutes: float, step_time: float) -> float:
    """What a job of this case costs, if a step takes so many seconds."""
    return case.gpus * minutes(case, startup_minutes, step_time) / 60


def minutes(case: Case, startup_minutes: float, step_time: float) -> float:
    """How long such a job runs."""
    return startup_minutes + case.steps * step_time / 60


def advice(command: str, cost: float) -> Diagnosis:
    """How a case that was not diagnosed can be. `command` lacks the budget; `cost` is in GPU-hours."""
    if not command:
        return Diagnosis("")
    line = f"{command} --diagnose {_budget(cost)}"
    return Diagnosis(
        f"to find the cause, in about {cost:.2g} GPU-hours beside those of the case itself: {line}",
        command=line,
    )


def undiagnosed(why: str) -> Diagnosis:
    """Nothing was run, for this reason."""
    return Diagnosis(f"no diagnosis: {why}")


def diagnose(gpus: int, runs: Sequence[ModeRun], recording: str) -> Diagnosis:
    """What the runs of a case on so many GPUs tell. `recording` is the command that records good digests."""
    profile = next((run for run in runs if run.found is not None and run.found.profiles), None)
    trace = next((run for run in runs if run.found is not None and run.found.trace), None)
    notes = [f"{run.mode}: {run.why_not}" for run in runs if run.why_not]
    notes += [f"{run.mode}: {note}" for run in runs if run.found for note in _lacking(run.found)]
    if profile is None and trace is None:
        return Diagnosis(f"no diagnosis: {'; '.join(notes) or 'no job was run'}", runs=tuple(runs))
    networks, good_networks = _networks(trace)
    transport = (_counted(good_networks), _counted(networks))
    last = slowest = figures = finding = None
    lines = []
    if profile is not None:
        now, good = _profiles(profile)
        slowest = max(now, key=_own).who
        figures = _figures(good, now)
        finding = explain_growth(
            _digests(good), _digests(now), world=gpus, good_networks=good_networks, networks=networks
        ) if good else None  # fmt: skip
        last = finding.last if finding else _last(now)
        lines += _table(figures, slowest, last)
    if trace is not None:
        then = f"{transport[0]} in the good run, now " if transport[0] else ""
        lines.append(f"transport  {then}{transport[1] or 'not told by the trace'}")
    lines += [f"good       {run.mode} of {run.good.origin}" for run in (profile, trace) if run and run.good]
    headline, what = _conclusion(profile, finding, networks, good_networks)
    lacking = [run for run in runs if run.found is not None and run.good is None]
    if lacking:
        why = "; ".join(f"{run.mode}: {run.why_no_good}" for run in lacking)
        notes.append(
            f"no good digest to compare with ({why}); to record one when the case is well: {recording}"
        )
    return Diagnosis(
        headline=headline,
        cause=what,
        ranks=finding.ranks if finding else (),
        slowest=slowest,
        last=last,
        collective=finding.collective if finding else None,
        figures=figures,
        transport=transport,
        lines=(*lines, *(finding.figures if finding else ()), *(f"note       {note}" for note in notes)),
        runs=tuple(runs),
    )


def _conclusion(
    profile: ModeRun | None,
    finding: Growth | None,
    networks: Mapping[int, str],
    good_networks: Mapping[int, str],
) -> tuple[str, Cause]:
    """The headline and the cause."""
    if finding is not None:
        told = "" if finding.cause is Cause.UNKNOWN else "cause: "
        return f"{told}{finding.headline}", finding.cause
    changed = [rank for rank, name in networks.items() if good_networks.get(rank, name) != name]
    if changed and profile is None:
        first = changed[0]
        more = f" (and {len(changed) - 1} more ranks)" if len(changed) > 1 else ""
        text = f"transport: rank {first} uses {networks[first]}, it used {good_networks[first]}{more}"
        return f"cause: {text}", Cause.TRANSPORT
    why = (
        "there is no good digest to compare with" if profile is not None else "there is no profile to compare"
    )
    return f"{Cause.UNKNOWN}: {why}; what is known without one is below", Cause.UNKNOWN


def explain(diagnosis: Diagnosis) -> list[str]:
    """The lines of the report below the verdict's."""
    if not diagnosis.headline:
        return []
    return [
        f"diagnosis {diagnosis.headline}",
        *(f"          {line}" for line in diagnosis.lines),
        *_job_lines(diagnosis),
    ]


def _job_lines(diagnosis: Diagnosis) -> list[str]:
    return [
        f"          job        {run.mode}: {run.outcome.job.ref.id}, {run.outcome.job.state.raw}, nodes {run.outcome.job.state.nodes}, "
        f"{run.gpu_hours:.2g} GPU-hours, in {run.outcome.folder}"
        for run in diagnosis.runs
        if run.outcome.job.ref.id and run.gpu_hours is not None
    ]


def _lacking(found: Artefacts) -> Sequence[str]:
    """What could not be found out of what a job left."""
    none = not found.profiles and found.trace is None and not found.notes
    return [f"no digest was made of what is in {found.folder}"] if none else found.notes


def _profiles(run: ModeRun) -> tuple[Sequence[ProfileDigest], Sequence[ProfileDigest]]:
    """The profiles of this run, and those of the good one."""
    assert run.found is not None
    return _digests(run.found.profiles).ranks, run.good.profiles if run.good else ()


def _digests(profiles: Sequence[ProfileDigest]) -> Digests:
    return Digests(version=1, profiles=tuple(profiles), errors=())


def _figures(
    good: Sequence[ProfileDigest], now: Sequence[ProfileDigest]
) -> dict[str, tuple[float | None, float]]:
    return {
        part: (
            fmean(_seconds(one, names) for one in good) if good else None,
            fmean(_seconds(one, names) for one in now),
        )
        for part, names in _PARTS.items()
    }


def _seconds(one: ProfileDigest, names: Sequence[str]) -> float:
    return sum(-one.mean(name[1:]) if name.startswith("-") else one.mean(name) for name in names)


def _own(one: ProfileDigest) -> float:
    """The seconds of a step that the rank does not spend in exposed communication."""
    return one.mean("length") - one.mean("exposed")


def _last(now: Sequence[ProfileDigest]) -> str | None:
    """The rank that waits least in the collectives, if it stands out."""
    if len(now) < 2:
        return None
    first, *others = sorted(now, key=lambda one: one.mean("communication"))
    gap = median(one.mean("communication") for one in others) - first.mean("communication")
    return first.who if gap > _LAST * fmean(one.mean("length") for one in now) else None


def _table(
    figures: Mapping[str, tuple[float | None, float]], slowest: str | None, last: str | None
) -> list[str]:
    """The figures beside each other: a line for each part of a step that takes any time."""
    whole = figures["step"][1]
    lines = [f"{'ms, mean of ranks':<22} {'good':>10} {'now':>10} {'grew':>10} {'share':>8}"]
    for part, (good, now) in figures.items():
        if good or now:
            before = (
                f"{1e3 * good:10.1f} {1e3 * now:10.1f} {1e3 * (now - good):+10.1f}"
                if good is not None
                else f"{'':>10} {1e3 * now:10.1f} {'':>10}"
            )
            lines.append(f"{part:<22} {before} {100 * now / whole if whole else 0:6.1f} %")
    lines.append(f"slowest    {slowest} has the most work of its own")
    if last:
        lines.append(f"last       {last} arrives last at the collectives")
    return lines


def _networks(trace: ModeRun | None) -> tuple[dict[int, str], dict[int, str]]:
    """The network of each rank, now and in the good run."""
    if trace is None or trace.found is None or trace.found.trace is None:
        return {}, {}
    now = networks(trace.found.trace)
    good = networks(trace.good.trace) if trace.good and trace.good.trace else {}
    if good and len(good) != len(now):
        usual = Counter(good.values()).most_common(1)[0][0]
        good = dict.fromkeys(now, usual)
    return now, good


def networks(trace: NcclDigest) -> dict[int, str]:
    """The network of each rank that shows one. If NCCL printed no ranks, they are counted by host and GPU."""
    members = sorted(trace.members(), key=lambda rank: (trace.hosts[rank.host], rank.gpu, rank.pid))
    return {
        number if rank.rank is None else rank.rank: name
        for number, rank in enumerate(members)
        if rank.setup is not None and (name := _network(trace.setups[rank.setup]))
    }


def _network(setup: Setup) -> str:
    """The network of a rank's channels; if no channel is seen, the one that it chose."""
    channels = [name.partition("/")[2] for name in setup.transports if name.startswith(("NET/", "COLLNET/"))]
    return " and ".join(sorted(set(channels or setup.networks)))


def _counted(found: Mapping[int, str]) -> str:
    """`IB/GDRDMA on 16 ranks`."""
    counts = Counter(found.values()).most_common()
    return ", ".join(f"{name} on {count} rank{'s' if count > 1 else ''}" for name, count in counts)


def _budget(cost: float) -> str:
    """The cost, rounded up to two digits."""
    unit = 10.0 ** (math.floor(math.log10(cost)) - 1) if cost > 0 else 1.0
    return f"{math.ceil(cost / unit) * unit:.6g}"
