"""The chain of a journal's lines."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from fixtures.runs.journal import JOURNAL, Journal, broken, read


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A journal of six lines, some of them longer than what is read at once."""
    path = tmp_path / JOURNAL
    Journal(path).note("run", {"id": "run"})
    for number in range(0, 4, 2):
        rows = [
            {"recipe": "r", "case_id": f"c{i}", "try_number": 1, "message": "x" * 20_000}
            for i in (number, number + 1)
        ]
        Journal(path).note("job", *rows)
    Journal(path).note("run", {"id": "run", "ended": 1.0})
    return path


def test_each_line_follows_the_one_before_it(path: Path) -> None:
    assert broken(path) == []
    assert len(read(path).jobs) == 4


Change = Callable[[list[bytes]], list[bytes]]


@pytest.mark.parametrize(
    ("change", "lines"),
    [
        (lambda lines: [*lines[:2], *lines[3:]], [3]),
        (lambda lines: lines[1:], [1]),
        (lambda lines: [*lines[:1], *lines[2:0:-1], *lines[3:]], [2, 3, 4]),
        (lambda lines: [*lines[:2], lines[2].replace(b"xxx", b"yyy", 1), *lines[3:]], [3, 4]),
        (lambda lines: [*lines[:2], b"", *lines[2:]], []),
    ],
    ids=["left out", "the first left out", "swapped", "changed", "an empty line"],
)
def test_a_line_that_was_changed_breaks_the_chain(path: Path, change: Change, lines: list[int]) -> None:
    path.write_bytes(b"\n".join(change(path.read_bytes().split(b"\n"))))
    assert broken(path) == lines


@pytest.mark.parametrize("lost", [1, 5, 20_100])
def test_after_a_line_that_was_cut_off_the_chain_goes_on_with_what_is_left_of_it(
    path: Path, lost: int
) -> None:
    path.write_bytes(path.read_bytes()[:-lost])
    Journal(path).note("run", {"id": "run"})
    assert len(broken(path)) == (lost > 1)
    assert read(path).run == {"id": "run"}
