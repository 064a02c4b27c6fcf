"""Profiles as nsys leaves them, for the stand-ins of recipes that profile a run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path


def write_profiles(stems: Sequence[str], folder: Path, fault: str = "") -> None:
    """Write a report for each stem. `fault` is as in the knob `profiles`."""
    folder.mkdir(exist_ok=True)
    for number, stem in enumerate(stems):
        last = number == len(stems) - 1
        if fault == "none" or (fault == "one missing" and last):
            continue
        if fault == "unfinished" and last:
            (folder / f"{stem}.qdstrm").write_text("stand-in for the data of a profile\n")
            continue
        text = "" if fault == "empty" and last else "stand-in for a profile\n" * 200
        (folder / f"{stem}.nsys-rep").write_text(text)
