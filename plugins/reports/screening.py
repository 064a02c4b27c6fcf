"""A screening as reports show it: a table with the worst node first, the lists of nodes, and where the slow ones are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TextIO

from plugins.files import write_whole
from plugins.record.folder import FAILING_NODES, PASSING_NODES
from plugins.record.summary import NodeState, ScreenedNode, Screening, Summary

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

    from plugins.console import PlainConsole

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
