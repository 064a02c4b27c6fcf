"""Recorded runs leave the records that they left before, and pairs of faults get the verdicts that they got before.

If a change is meant, `python -m tests.golden` writes the golden files anew, and their diff shows it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.golden import faults, sessions


@pytest.mark.parametrize("name", sessions.SESSIONS)
def test_a_recorded_session_leaves_the_same_records(name: str, tmp_path: Path) -> None:
    folder = sessions.STORED / name
    stored = {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}
    assert sessions.run(name, tmp_path) == stored


@pytest.mark.parametrize("name", faults.RUNS)
def test_pairs_of_faults_get_the_same_verdicts(name: str) -> None:
    stored = faults.STORED.read_text().splitlines()
    assert list(faults.rows(name)) == [row for row in stored if row.startswith(f"{name}\t")]
    assert {row.partition("\t")[0] for row in stored} == set(faults.RUNS)
