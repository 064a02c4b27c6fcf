"""Some hundred logs of the fuzzer for each dialect, always the same ones: none passes wrongly, fails wrongly or crashes."""

from __future__ import annotations

import pytest

from tests.fuzz import cells
from tests.fuzz.run import fuzz, one

LOGS = 60
"""For each dialect: every class once, and some again."""


@pytest.mark.parametrize("dialect", cells.DIALECTS)
def test_no_log_is_judged_wrongly(dialect: str) -> None:
    faults = [str(result) for result in fuzz(LOGS, seed=1, dialects=[dialect]) if result.fault]

    assert not faults, "\n".join(faults)


@pytest.mark.parametrize("dialect", cells.DIALECTS)
def test_a_number_makes_the_same_log_again(dialect: str) -> None:
    first, again = (one("slow-throughout", dialect, 7) for _ in range(2))

    assert first is not None
    assert first == again
