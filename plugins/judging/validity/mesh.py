"""Whether the mesh of GPUs that MaxText prints is the case's. Pure.

For each axis it prints a size within a slice (`ici`) and one over all slices (`dcn`); a node is a slice. -1 is
what the other axes leave. Source: MaxText/max_utils.py, `fill_unspecified_mesh_axes` (8e55ab1).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import product

from plugins.judging.validity.run import TimedRun, quoted


def mesh(run: TimedRun) -> Iterator[str]:
    """Each axis has the case's size. An axis that no case shards over has the size 1."""
    case = run.case
    sizes = {"data": case.dp, "fsdp": case.fsdp, "tensor": case.tp, "pipeline": case.pp, "context": case.cp}
    for name in [name for name in run.numbers if name.startswith("ici_")]:
        axis = name.removeprefix("ici_")
        expected = sizes.get(axis, 1)
        for (inner, within), (outer, over) in product(run.numbers[name], run.numbers.get(f"dcn_{axis}", ())):
            size = _size(run, "ici", inner) * _size(run, "dcn", outer)
            if size not in (0, expected):
                yield f'{quoted(within)} and "{over.said}", which is {size}; this case\'s {axis} is {expected}'
                break


def _size(run: TimedRun, place: str, size: int) -> int:
    """The size of an axis; 0 if it is what the others leave and that is not known."""
    slices = max((count for count, _ in run.numbers.get("slices", ())), default=0)
    if size != -1 or not slices:
        return max(0, size)
    others = [stated[0][0] for name, stated in run.numbers.items() if name.startswith(f"{place}_")]
    total = slices if place == "dcn" else run.case.gpus // slices
    return total // math.prod(other for other in others if other > 0)
