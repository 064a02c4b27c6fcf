"""What a run was made with, and what changed since another run. Pure.

A version is a text with a name: `driver`, `gpu`, `image` (a digest), `nccl`, and whatever the site file
states.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from plugins.baselines.file import Recorded
from plugins.logs import Log
from plugins.outcome import Outcome

# Reports show this much of a digest, which is enough to tell two apart. Records have all of it.
_DIGEST = re.compile(r"\b(sha\d{3}:[0-9a-f]{12})[0-9a-f]+")
_CUT = re.compile(r" and \d+ more$")
# Spreads differ by chance. A report shows them if one is this many times the other, and larger by this share
# of a step.
_TIMES, _SHARE = 2.0, 0.005


@dataclass(frozen=True)
class Comparison:
    """Two runs, in words: what `changed`, what is the `same`, and what only one of them states."""

    changed: tuple[str, ...]
    same: tuple[str, ...]
    unknown: tuple[str, ...]


def versions_of(outcome: Outcome, log: Log) -> dict[str, str]:
    """All known versions by name. What the run states wins over what the site file states."""
    return {
        **outcome.versions,
        **{name: " and ".join(values) for name, values in _told(outcome, log).items()},
    }


def mixed(outcome: Outcome, log: Log) -> list[str]:
    """The remarks on versions of which a run states several: its nodes were not alike."""
    return [
        f"more than one {name} in this run: {shown(' and '.join(values))}"
        + ("; a tag may move between two pulls, a digest cannot" if name == "image" else "")
        for name, values in _told(outcome, log).items()
        if len(values) > 1
    ]


def nodes_of(outcome: Outcome) -> str:
    """The nodes of the run; "" if the cluster may have named only the node to blame for its end."""
    return outcome.job.state.nodes if outcome.succeeded or outcome.job.failure else ""


def since(recorded: Recorded, outcome: Outcome, log: Log, spread: float) -> list[str]:
    """The lines of a report on what is different in this run. `spread` is its spread, a share."""
    found = compare(_all(recorded), _with_nodes(versions_of(outcome, log), nodes_of(outcome)))
    lines = []
    if found.changed:
        lines.append(f"changed   {', '.join(found.changed)}")
        lines += [f"same      {', '.join(found.same)}"] if found.same else []
    elif found.same:
        lines.append(f"changed   nothing that is known: {', '.join(found.same)}")
    else:
        lines.append("changed   not known: there is nothing that both runs tell")
    lines += [f"unknown   {', '.join(found.unknown)}"] if found.unknown else []
    low, high = sorted((recorded.spread, spread))
    if high > _TIMES * low and high - low > _SHARE:
        lines.append(f"spread    {100 * recorded.spread:.2g} % when recorded, {100 * spread:.2g} % now")
    return lines


def differences(old: Recorded, new: Recorded) -> str:
    """`driver 550.54 -> 550.90, nodes a -> b`; "" if nothing is known to have changed."""
    return ", ".join(compare(_all(old), _all(new)).changed)


def compare(then: Mapping[str, str], now: Mapping[str, str]) -> Comparison:
    names = [*then, *(name for name in now if name not in then)]
    both = [name for name in names if name in then and name in now]
    return Comparison(
        changed=tuple(
            f"{name} {shown(then[name])} -> {shown(now[name])}" for name in both if then[name] != now[name]
        ),
        same=tuple(f"{name} {_same(now[name])}" for name in both if then[name] == now[name]),
        unknown=tuple(
            f"{name} now (then {shown(then[name])})"
            if name in then
            else f"{name} then (now {shown(now[name])})"
            for name in names
            if name not in both
        ),
    )


def shown(version: str) -> str:
    """A version as a report shows it, with digests cut."""
    return _DIGEST.sub(r"\1", version)


def _told(outcome: Outcome, log: Log) -> dict[str, list[str]]:
    """What the cluster and the log state of the run: the values of each version."""
    found: dict[str, list[str]] = {}
    for name, value in (*(("image", digest) for digest in outcome.job.state.images), *log.versions):
        found.setdefault(name, []).append(value)
    # Their order does not matter, so they are sorted.
    return {name: sorted(values) for name, values in found.items()}


def _all(recorded: Recorded) -> dict[str, str]:
    return _with_nodes(recorded.versions, recorded.nodes or "")


def _with_nodes(versions: Mapping[str, str], nodes: str) -> dict[str, str]:
    """The versions, and the nodes as the last one, because they are many."""
    return {**versions, **({"nodes": nodes} if nodes else {})}


def _same(version: str) -> str:
    return f"{shown(version)} (as far as they are named)" if _CUT.search(version) else shown(version)
