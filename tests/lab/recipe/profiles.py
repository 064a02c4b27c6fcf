"""Profiles as nsys leaves them, for the stand-ins of recipes that profile a run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tests.unit.modes.simulator import export, simulate


def write_profiles(stems: Sequence[str], folder: Path) -> None:
    """Write a report for each stem. It holds its own export, which the lab's nsys hands out."""
    folder.mkdir(exist_ok=True)
    for device, (stem, recorded) in enumerate(zip(stems, simulate(max(2, len(stems))), strict=False)):
        report = folder / f"{stem}.nsys-rep"
        report.unlink(missing_ok=True)
        export(report, recorded, host="gpu001", device=device)
