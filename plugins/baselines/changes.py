"""What a run was made with, and what changed since another run. Pure.

A version is a text with a name: `driver`, `gpu`, `image` (a digest), `nccl`, and whatever the site file
states.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from plugins.base.words import nodes_in_words
from plugins.logs import Log
from plugins.record.baseline import Recorded
from plugins.record.outcome import Outcome

# Reports show this much of a digest, which is enough to tell two apart. Records have all of it.
_DIGEST = re.compile(r"\b(sha\d{3}:[0-9a-f]{12})[0-9a-f]+")
_CUT = re.compile(r" and \d+ more$")
# Spreads differ by chance. A report shows them if one is this many times the other, and larger by this share
# of a step.
_TIMES, _SHARE = 2.0, 0.005


@dataclass(frozen=True)
class Changes:
    """Two runs, in words: what `changed`, what is the `same`, and what only one of them states."""

    changed: tuple[str, ...]
    same: tuple[str, ...]
    unknown: tuple[str, ...]


def versions_of(outcome: Outcome, log: Log) -> dict[str, str]:
    """All known versions by name. What the run states wins over what the site file states."""
    stated = {name: " and ".join(values) for name, values in _stated(outcome, log).items()}
    return {**outcome.versions, **stated}


def mixed(outcome: Outcome, log: Log) -> list[str]:
    """The remarks on versions that a run states with several values: its nodes were not alike."""
    remarks = []
    for name, values in _stated(outcome, log).items():
        if len(values) > 1:
            remark = f"more than one {name} in this run: {shown(' and '.join(values))}"
            if name == "image":
                remark += "; a tag may move between two pulls, a digest cannot"
            remarks.append(remark)
    return remarks


def nodes_of(outcome: Outcome) -> str:
    """The nodes of the run; "" if the cluster may have named only the node to blame for its end."""
    return nodes_in_words(outcome.job.state.nodes) if outcome.succeeded or outcome.job.failure else ""


def since(recorded: Recorded, outcome: Outcome, log: Log, spread: float) -> list[str]:
    """The lines of a report on what is different in this run. `spread` is its spread, a share."""
    comparison = compare(_all(recorded), _with_nodes(versions_of(outcome, log), nodes_of(outcome)))
    changed, same = ", ".join(comparison.changed), ", ".join(comparison.same)
    lines = []
    if changed:
        lines.append(f"changed   {changed}")
        if same:
            lines.append(f"same      {same}")
    elif same:
        lines.append(f"changed   nothing that is known: {same}")
    else:
        lines.append("changed   not known: there is nothing that both runs tell")
    if comparison.unknown:
        lines.append(f"unknown   {', '.join(comparison.unknown)}")
    low, high = sorted((recorded.spread, spread))
    if high > _TIMES * low and high - low > _SHARE:
        lines.append(f"spread    {100 * recorded.spread:.2g} % when recorded, {100 * spread:.2g} % now")
    return lines


def differences(old: Recorded, new: Recorded) -> str:
    """`driver 550.54 -> 550.90, nodes a -> b`; "" if nothing is known to have changed."""
    return ", ".join(compare(_all(old), _all(new)).changed)


def compare(then: Mapping[str, str], now: Mapping[str, str]) -> Changes:
    """Compare the versions of two runs, in the order in which `then` has them."""
    changed, same, unknown = [], [], []
    for name in {**then, **now}:
        if name not in now:
            unknown.append(f"{name} now (then {shown(then[name])})")
        elif name not in then:
            unknown.append(f"{name} then (now {shown(now[name])})")
        elif then[name] != now[name]:
            changed.append(f"{name} {shown(then[name])} -> {shown(now[name])}")
        else:
            partly = " (as far as they are named)" if _CUT.search(now[name]) else ""
            same.append(f"{name} {shown(now[name])}{partly}")
    return Changes(tuple(changed), tuple(same), tuple(unknown))


def shown(version: str) -> str:
    """A version as a report shows it, with digests cut."""
    return _DIGEST.sub(r"\1", version)


def _stated(outcome: Outcome, log: Log) -> dict[str, list[str]]:
    """What the cluster and the log state of the run: the values of each version."""
    versions: dict[str, list[str]] = {}
    for name, value in (*(("image", digest) for digest in outcome.job.state.images), *log.versions):
        versions.setdefault(name, []).append(value)
    # Their order does not matter, so they are sorted.
    return {name: sorted(values) for name, values in versions.items()}


def _all(recorded: Recorded) -> dict[str, str]:
    return _with_nodes(recorded.versions, recorded.nodes or "")


def _with_nodes(versions: Mapping[str, str], nodes: str) -> dict[str, str]:
    """The versions, and the nodes as the last one, because they are many."""
    return {**versions, "nodes": nodes} if nodes else dict(versions)
