"""A checkpoint as NeMo 2 leaves it on a file system: the same tree, the same order, the size of the real one, but sparse.

First rank 0 writes common.pt, then every rank its tensors, then rank 0 .metadata and metadata.json (`save` in Megatron's
dist_checkpointing/serialization.py). Lightning's own ModelCheckpoint writes no marker of a checkpoint that is not finished.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

GIB = 2**30
SIZES = {"8b": 105, "70b": 920, "405b": 5325}
"""In GiB, as the recipe's README has them."""

FILES = 2
"""What each rank writes: a file for each of its threads."""

FILL = 4 << 20
"""Where a disk is to be filled, the real bytes of each file."""


class Cut(Exception):
    """The job was killed while it saved."""


def save(folder: Path, size: str, ranks: int, samples: int, fault: str = "") -> None:
    """Write a checkpoint below a job's folder. `fault` is as in the knob `saved`. Raises OSError on a full disk."""
    name = f"default--None=0.0000-epoch=0-consumed_samples={samples}.0"
    weights = folder / "code" / "nemo_experiments" / "default" / "checkpoints" / name / "weights"
    weights.mkdir(parents=True)
    (weights / "common.pt").write_bytes(b"stand-in for the state that all ranks share\n")
    names = [f"__{rank}_{number}.distcp" for rank in range(ranks) for number in range(FILES)]
    for number, file in enumerate(names):
        if fault == "cut off" and number == len(names) // 2:
            raise Cut
        with (weights / file).open("wb") as data:
            if fault == "real":
                data.write(os.urandom(FILL))
            if not (fault == "empty" and number == 3):
                data.truncate(SIZES[size] * GIB // len(names))
    (weights / ".metadata").write_bytes(b"stand-in for where each tensor is\n")
    if fault != "no metadata":
        (weights / "metadata.json").write_text(
            '{"sharded_backend": "torch_dist", "sharded_backend_version": 1}'
        )


def load(path: Path, size: str) -> None:
    """Read a checkpoint. Raises ValueError if it is none, or is of another model."""
    weights = path / "weights"
    if json.loads((weights / "metadata.json").read_text())["sharded_backend"] != "torch_dist":
        raise ValueError(f"{weights} is not a distributed checkpoint")
    found = sum(file.stat().st_size for file in weights.glob("*.distcp"))
    if abs(found - SIZES[size] * GIB) > 0.01 * SIZES[size] * GIB:
        raise ValueError(f"Global shape mismatch: {weights} is of another model")
