"""The names of nodes in a list. Pure."""

from __future__ import annotations

import re

_LISTED = re.compile(r"[^,\s\[\]]*(?:\[[^\[\]]*\][^,\s\[\]]*)*")
_RANGE = re.compile(r"(\d+)(?:-(\d+))?")
_MOST_NODES = 100_000
_SCREENING = re.compile(r".+-\d+gpus\.([^/]+)")


def screened_node(case_id: str) -> str:
    """The node that a case screens, by its id, `8b-8l-bf16-8gpus.gpu017`; "" if it screens none."""
    match = _SCREENING.fullmatch(case_id)
    return match[1] if match else ""


def node_names(text: str) -> frozenset[str]:
    """The nodes of a list, in any order; see `node_list`."""
    return frozenset(node_list(text))


def node_list(text: str) -> tuple[str, ...]:
    """The nodes of a list as Slurm and Kubernetes print it, in its order: `gpu[001-004,007],login1`.

    What is no such list is one name.
    """
    names: dict[str, None] = {}
    for name in _LISTED.findall(text):
        head, bracket, rest = name.partition("[")
        inside, _, tail = rest.partition("]")
        if not bracket or "[" in tail:
            if name:
                names[name] = None
            continue
        for item in inside.split(","):
            ends = _RANGE.fullmatch(item.strip())
            first, last = (int(ends[1]), int(ends[2] or ends[1])) if ends else (1, 0)
            if ends is None or not 0 <= last - first < _MOST_NODES - len(names):
                names[f"{head}[{item}]{tail}"] = None
            else:
                numbers = range(first, last + 1)
                names |= dict.fromkeys(f"{head}{number:0{len(ends[1])}d}{tail}" for number in numbers)
    return tuple(names)
