"""What a report is that is a file of a finished run."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from plugins.record.summary import Summary


class Report(Protocol):
    """A file that is made of the record of a finished run: the page, CTRF, metrics.

    Allure, JUnit and pytest-benchmark are hooks of pytest, and so are no reports.
    """

    name: str
    """The name of the file in the run's folder."""

    def write(self, summary: Summary, folder: Path) -> None:
        """Write the report into the run's folder, which has all else already. Raises OSError."""
