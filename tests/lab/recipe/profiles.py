"""Profiles as nsys leaves them, for the stand-ins of recipes that profile a run."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from tests.unit.modes.simulator import export, simulate


def write_profiles(stems: Sequence[str], folder: Path, fault: str = "", *, marks: str = "optimizer") -> None:
    """Write a report for each stem. `fault` is as in the knob `profiles`.

    A report holds its own export, which the lab's nsys hands out. All jobs run on the same GPUs.
    """
    folder.mkdir(exist_ok=True)
    ranks = simulate(f"lab {os.environ.get('SLURM_JOB_ID')}", marks=marks, ranks=max(2, len(stems)))
    for number, (stem, recorded) in enumerate(zip(stems, ranks, strict=False)):
        last = number == len(stems) - 1
        if fault == "none" or (fault == "one missing" and last):
            continue
        if fault == "unfinished" and last:
            (folder / f"{stem}.qdstrm").write_text("stand-in for the data of a profile\n")
            continue
        report = folder / f"{stem}.nsys-rep"
        report.unlink(missing_ok=True)
        if fault == "empty" and last:
            report.touch()
        else:
            export(report, recorded, host="gpu001", device=number)
