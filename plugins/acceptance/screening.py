"""Screening: the nodes of a cluster beside their baseline and beside each other, by the records of their cases,
and how reports show them.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from plugins.base.files import write_whole
from plugins.base.words import counted
from plugins.isolation.evidence import LEAST, SHARE, Peers, two_kinds
from plugins.isolation.probes import SHOWN, percent
from plugins.record.case import CaseRecord, EarlierJob
from plugins.record.folder import FAILING_NODES, PASSING_NODES
from plugins.record.summary import NodeState, ScreenedNode, Screening, Summary
from plugins.record.verdict import Kind

FEWEST = 3
"""Fewer nodes are not compared with each other."""

FASTER = 0.05
"""If a node is faster than its peers by more than this share, these may all be slow: only a baseline tells."""

WIDEST = 0.08
"""If nodes scatter so much that a limit is above this share, no node passes by its peers alone."""

# The step time of such a case is that of its node.
_MEASURED = (Kind.PASSED, Kind.TOO_SLOW, Kind.NO_BASELINE)
_FAILING = (Kind.TOO_SLOW, Kind.NOISY, Kind.INVALID)
_ORDER = list(NodeState)
# So a job ends on Slurm, and the pod of one on Kubernetes, that somebody cancelled, or that made room for another: that says
# nothing of its node. A job that the session itself cancelled for a fault has another headline.
_ENDED_BY_OTHERS = re.compile(rf"{Kind.INFRASTRUCTURE}: job \S+ ended (CANCELLED|PREEMPTED)\b")
_PREEMPTED_POD = re.compile(
    r"pod \S+ on \S+ \((PreemptionByScheduler|EvictionByEvictionAPI|it was deleted)\b"
)

Causes = Callable[[str, str], Sequence[str]]
"""What the GPUs of a slow case tell that those of a good one do not; both cases are given by their keys."""


@dataclass(frozen=True)
class _Comparison:
    """What the nodes are compared with, None if they are too few; and the reason of each that is unlike the others.

    `words` says it of all. If there are two kinds of nodes, the slower kind is unlike the others, and none of it is accused.
    `alike`: a node without a baseline passes beside the others.
    """

    peers: Peers | None
    unlike: Mapping[str, str]
    words: str
    kinds: bool = False
    alike: bool = False

    def accuses(self, node: str) -> bool:
        return node in self.unlike and not self.kinds


def screening(
    records: Iterable[CaseRecord], leaves: Mapping[str, str], causes: Causes | None = None
) -> Screening | None:
    """What these records tell of the nodes that they screen; None if they screen none."""
    cases = {record.node: record for record in records if record.node}
    if not cases:
        return None
    seconds = {node: time for node, record in cases.items() if (time := _seconds(record)) is not None}
    compared = _compare(seconds)
    states = {node: _state(record, compared) for node, record in cases.items()}
    good = next((cases[node].id for node, state in states.items() if state is NodeState.PASSING), "")
    nodes = []
    for node, record in cases.items():
        reasons = _reasons(record, compared.unlike.get(node, ""))
        # A verdict on a slow case has its cause already.
        if causes and good and compared.accuses(node) and record.verdict is not Kind.TOO_SLOW:
            reasons += causes(record.id, good)[:1]
        undecided = record.verdict is Kind.NO_BASELINE and states[node] is not NodeState.PASSING
        if record.verdict is Kind.PASSED or undecided:
            reasons += [remark for remark in record.remarks if remark not in reasons]
        slowness = None
        if compared.peers is not None and node in seconds:
            slowness = compared.peers.slowness(seconds[node])
        nodes.append(
            ScreenedNode(
                node=node,
                case=record.id,
                leaf=leaves.get(node, ""),
                state=states[node],
                seconds=seconds.get(node),
                slowness=slowness,
                reason="; ".join(reasons),
            )
        )
    nodes.sort(key=lambda node: (_ORDER.index(node.state), -(node.slowness or 0.0)))
    peers = compared.peers
    return Screening(
        headline=_headline(nodes, compared.words),
        limit=peers.limit if peers else None,
        smallest=peers.smallest if peers else None,
        unlike=tuple(compared.unlike),
        nodes=tuple(nodes),
    )


def _seconds(record: CaseRecord) -> float | None:
    """The step time of a node: the median of the last steps, which one hiccup does not change. None if it is no evidence."""
    if record.verdict not in _MEASURED:
        return None
    return record.steady_median or record.step_time


def _compare(seconds: Mapping[str, float]) -> _Comparison:
    times = list(seconds.values())
    if len(times) < FEWEST:
        return _Comparison(None, {}, "too few were measured to compare them with each other")
    peers = Peers.of(times, LEAST)
    kinds = two_kinds(times) or _faster_kind(times, peers)
    if kinds is not None:
        fast, slow = kinds
        # A kind has a quarter of the nodes at least, and so some of the slower ones if there are fewer fast ones.
        edge = min(slow[0], (1 + LEAST) * statistics.median(fast))
        unlike = {node: "of the slower kind of nodes" for node, time in seconds.items() if time >= edge}
        words = f"two kinds of nodes: {_kind(fast)}, {_kind(slow)}"
        return _Comparison(peers, unlike, words, kinds=True, alike=peers.limit <= WIDEST)
    unlike = {
        node: f"{percent(peers.slowness(time))} slower than its peers (limit {percent(peers.limit)})"
        for node, time in seconds.items()
        if peers.slowness(time) > peers.limit
    }
    words = f"what is {percent(peers.smallest)} slower than its peers would have been seen"
    fast = [time for time in times if -peers.slowness(time) > max(FASTER, peers.limit)]
    if peers.limit > WIDEST:
        words = f"they scatter too much to pass beside each other: {words}"
    elif fast:
        words = f"{_kind(fast)}, so much less than the others that no node passes without a baseline; {words}"
    return _Comparison(peers, unlike, words, alike=peers.limit <= WIDEST and not fast)


def compares(screening: Screening) -> bool:
    """Whether the nodes of a screening could pass beside each other: not if they are too few or too unlike."""
    passing = screening.having(NodeState.PASSING)
    return bool(passing) and screening.limit is not None and screening.limit <= WIDEST


def _faster_kind(times: Sequence[float], peers: Peers) -> tuple[list[float], list[float]] | None:
    """The nodes that are as much faster than their peers as a slow one is slower, if they are a kind, and all others."""
    values = sorted(times)
    fast = [time for time in values if -peers.slowness(time) > peers.limit]
    if len(fast) < SHARE * len(values) or not fast:
        return None
    return fast, values[len(fast) :]


def _kind(times: Sequence[float]) -> str:
    return f"{len(times)} take about {statistics.median(times):.4g} s a step"


def _state(record: CaseRecord, compared: _Comparison) -> NodeState:
    # A case without a configuration was not judged: the session was stopped, and cancelled its job.
    judged, job = record.configuration is not None, record.job
    ended_by_others = _ENDED_BY_OTHERS.match(record.headline) or _PREEMPTED_POD.match(job.reason)
    broken = record.verdict is Kind.INFRASTRUCTURE and judged and job.nodes != "" and not ended_by_others
    if record.verdict in _FAILING or broken or compared.accuses(record.node):
        return NodeState.FAILING
    if record.node in compared.unlike or any(map(_broke, record.earlier_jobs)):
        return NodeState.NOT_JUDGED
    if record.verdict is Kind.PASSED:
        return NodeState.PASSING
    # A node without a baseline passes if it is like the others, and its GPUs are like each other.
    if record.verdict is Kind.NO_BASELINE and compared.alike and record.slow_gpus == ():
        return NodeState.PASSING
    return NodeState.NOT_JUDGED


def _broke(job: EarlierJob) -> bool:
    """Whether an earlier job of a case, which was tried again, broke on its node."""
    return job.failure in ("", "infrastructure") and job.nodes != "" and job.state != "PREEMPTED"


def _reasons(record: CaseRecord, unlike: str) -> list[str]:
    """What is to be said of a node before the remarks on its case: its slow GPUs, its verdict unless it passed, and its slowness."""
    # Why there is no baseline is the same for all nodes, and the pace of each stands in a column of its own.
    short = {Kind.PASSED: "", Kind.NO_BASELINE: str(Kind.NO_BASELINE)}
    headline = short.get(record.verdict, record.headline)
    slow_gpus = [] if unlike else [remark for remark in record.remarks if remark in (record.slow_gpus or ())]
    return [*slow_gpus, *(text for text in (headline, unlike) if text)]


def _headline(nodes: Sequence[ScreenedNode], words: str) -> str:
    counts = [counted(len(nodes), "node")]
    for state in _ORDER:
        names = [node.node for node in nodes if node.state is state]
        listed = ""
        if names and state is not NodeState.PASSING:
            listed = f" ({', '.join(names[:SHOWN])}{', ...' if len(names) > SHOWN else ''})"
        counts.append(f"{len(names)} {state}{listed}")
    return f"{', '.join(counts)}; {words}"


COLOURS = {NodeState.FAILING: "red", NodeState.NOT_JUDGED: "yellow", NodeState.PASSING: "green"}
SIGNS = {NodeState.FAILING: "✗", NodeState.NOT_JUDGED: "?", NodeState.PASSING: "✓"}

_COLUMNS = ("node", "state", "s/step", "slower", "leaf", "what")
# So many of the passing nodes are shown on a terminal: the slowest.
_MOST_PASSING = 10
# A row of the map has so many nodes if their leaves are not known.
_ROW = 32
_SHADES = 5


class NodeLists:
    """`failing_nodes.txt` and `passing_nodes.txt` in the folder of a run, for `srun --exclude` and `--nodelist`."""

    name = FAILING_NODES

    def write(self, summary: Summary, folder: Path) -> None:
        """Write both files, if nodes were screened. Raises OSError."""
        if summary.screening is not None:
            for name, state in ((FAILING_NODES, NodeState.FAILING), (PASSING_NODES, NodeState.PASSING)):
                names = sorted(node.node for node in summary.screening.having(state))
                write_whole(folder / name, "".join(f"{node}\n" for node in names))


def print_screening(screening: Screening, file: TextIO, width: int, *, colour: bool) -> None:
    """Print a row for each node, the worst first; of those that pass, only the slowest."""
    # It is slow to import, and only needed once jobs have run.
    from rich.text import Text

    from plugins.base.console import PlainConsole

    console = PlainConsole(file=file, width=width, force_terminal=colour, no_color=not colour)
    passing = screening.having(NodeState.PASSING)
    # To say that one is hidden would take its line.
    hidden = passing[_MOST_PASSING:] if len(passing) > _MOST_PASSING + 1 else []
    rows = []
    for node in screening.nodes[: len(screening.nodes) - len(hidden)]:
        state = Text(node.state, style=COLOURS[node.state])
        reason = "; ".join(map(str.strip, node.reason.splitlines()))
        rows.append((node.node, state, *figures(node), node.leaf, reason))
    console.print_rows(_COLUMNS, rows, right=("s/step", "slower"), folded=("what",))
    if hidden:
        console.print(f"and {len(hidden)} nodes that pass and are as fast as these or faster", style="dim")
    console.print(screening.headline, style="bold", soft_wrap=True)


def figures(node: ScreenedNode) -> tuple[str, str]:
    """The step time of a node, and by how much it is above that of all."""
    seconds = "" if node.seconds is None else f"{node.seconds:.4g}"
    return seconds, "" if node.slowness is None else f"{100 * node.slowness:+.1f} %"


def heat_map(screening: Screening) -> Mapping[str, Sequence[ScreenedNode]]:
    """The nodes by their leaves, in the order of their names; in rows of equal length if no leaf is known."""
    nodes = sorted(screening.nodes, key=lambda node: node.node)
    if not any(node.leaf for node in nodes):
        rows = [nodes[start : start + _ROW] for start in range(0, len(nodes), _ROW)]
        return {f"{row[0].node} to {row[-1].node}": row for row in rows}
    leaves: dict[str, list[ScreenedNode]] = {}
    for node in sorted(nodes, key=lambda node: node.leaf):
        leaves.setdefault(node.leaf or "unknown", []).append(node)
    return leaves


def shade(screening: Screening, node: ScreenedNode) -> int:
    """How dark a node is on the map: 0 for one as fast as the others, `_SHADES` for one that fails, or is at the limit."""
    if node.state is NodeState.FAILING:
        return _SHADES
    if node.slowness is None or not screening.limit:
        return 0
    return max(0, min(_SHADES, int(_SHADES * node.slowness / screening.limit)))
