"""What follows the end of a case's job: a table of how it ended, what went before, and what is allowed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from fixtures.fleet.ending import End, Hold, JobEnd, Repeat, Retry, after
from fixtures.fleet.state import Isolation
from plugins.record.job import Failure, Job, JobRef
from tests.unit.cluster import NARROW
from tests.unit.fleet.test_isolate import policy

_ISOLATE = policy().isolate
assert _ISOLATE is not None
SLOW = _ISOLATE(NARROW, Job(ref=JobRef("r", "c", "name")), [])
WELL, BROKEN, DIED = JobEnd(complete=True), JobEnd("infrastructure"), JobEnd(died=True)


class Judge:
    """Says the same of each case. What it is not asked it does not say."""

    def __init__(
        self, another_run: str | None = None, isolation: Isolation | str | None = "not asked"
    ) -> None:
        self._another_run, self._isolation = another_run, isolation

    def another_run(self) -> str:
        assert self._another_run is not None
        return self._another_run

    def isolation(self) -> Isolation | None:
        assert not isinstance(self._isolation, str)
        return self._isolation


def tries(*failures: Failure) -> list[Job]:
    return [Job(ref=JobRef("r", "c", "name"), failure=failure) for failure in failures]


NOBODY, FINE, MORE, ILL = Judge(), Judge("", None), Judge("too noisy to tell"), Judge("", SLOW)
UNASKED = Judge(isolation=None)


@pytest.mark.parametrize(
    ("end", "earlier", "judge", "retries", "follows"),
    [
        pytest.param(WELL, [], FINE, 0, End(), id="it ended well"),
        pytest.param(WELL, [], MORE, 0, Repeat(2, "too noisy to tell"), id="one run cannot tell"),
        pytest.param(WELL, tries("repeated", "repeated"), MORE, 0, Repeat(4, "too noisy to tell"), id="the 4th run"),
        pytest.param(WELL, tries("infrastructure"), MORE, 1, Repeat(2, "too noisy to tell"), id="a retry is no run"),
        pytest.param(WELL, [], ILL, 0, Hold(SLOW), id="too slow, whose nodes are probed"),
        pytest.param(JobEnd(), [], UNASKED, 3, End(), id="its log is not whole"),
        pytest.param(JobEnd(), [], Judge(isolation=SLOW), 3, Hold(SLOW), id="its log is not whole, and it is slow"),
        pytest.param(BROKEN, [], UNASKED, 0, End(), id="broken, no retries"),
        pytest.param(BROKEN, [], NOBODY, 2, Retry(1), id="broken"),
        pytest.param(DIED, [], NOBODY, 2, Retry(1), id="died by itself"),
        pytest.param(BROKEN, tries("infrastructure"), NOBODY, 2, Retry(2), id="broken again"),
        pytest.param(BROKEN, tries("infrastructure", "infrastructure"), UNASKED, 2, End(), id="broken too often"),
        pytest.param(BROKEN, tries("repeated", "infrastructure"), NOBODY, 2, Retry(2), id="a run is no retry"),
        pytest.param(JobEnd("lost"), [], UNASKED, 2, End(), id="lost"),
        pytest.param(JobEnd("hung", complete=True), [], UNASKED, 2, End(), id="hung after its last step"),
        pytest.param(JobEnd("given up"), [], Judge(isolation=SLOW), 2, Hold(SLOW), id="given up as slow"),
        pytest.param(JobEnd("given up", died=True), [], UNASKED, 2, End(), id="a cancelled job did not die"),
        pytest.param(replace(WELL, isolating=True), [], FINE, 0, Hold(), id="its isolation is under way"),
        pytest.param(replace(BROKEN, final=True), [], NOBODY, 2, End(), id="the session stops"),
        pytest.param(replace(WELL, final=True), [], NOBODY, 0, End(), id="cancelled by hand"),
        pytest.param(
            replace(WELL, final=True, isolating=True), [], NOBODY, 0, Hold(), id="the session stops during an isolation"
        ),
    ],
)  # fmt: skip
def test_what_follows_the_end_of_a_job(
    end: JobEnd, earlier: Sequence[Job], judge: Judge, retries: int, follows: End | Retry | Repeat | Hold
) -> None:
    assert after(end, earlier, retries, judge.another_run, judge.isolation) == follows
