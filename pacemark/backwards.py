"""Checks that nothing in a run ends before it begins."""

from __future__ import annotations

from collections.abc import Iterator

from pacemark.jobs import JobsOfRun, named
from plugins.record.folder import SUMMARY
from plugins.record.job import Times
from plugins.record.lines import JOBS_LOG
from plugins.record.public import stamp
from plugins.record.summary import Summary

# In seconds. The times of a job may be by the clock of the cluster and by that of the session.
_CLOCKS_DIFFER = 3600.0


def backwards(summary: Summary, ledger: JobsOfRun) -> Iterator[str]:
    """What ends before it begins, by the summary or by the ledger."""
    if summary.ended < summary.started:
        yield (
            f"{SUMMARY} says that the run ended at {stamp(summary.ended)}, before its start at {stamp(summary.started)}"
        )
    run = ledger.run
    if run.ended is not None and run.ended < run.started:
        yield f"{JOBS_LOG}: the run ended {run.started - run.ended:,.0f} s before its start"
    for entry in ledger.all:
        for words, early in _of_job(entry.times):
            if early > _CLOCKS_DIFFER:
                yield f"{named(entry)}: {words.format(f'{early:,.0f} s')} in {JOBS_LOG}"


def _of_job(times: Times) -> Iterator[tuple[str, float]]:
    """What may be backwards of a job, and by how many seconds it is."""
    for words, first, last in (
        ("its end is {} before its start", times.started, times.ended),
        ("its end is {} before it was submitted", times.submitted, times.ended),
        ("its start is {} before it was submitted", times.submitted, times.started),
        ("its cancellation was confirmed {} before it was asked for", times.cancel_asked, times.cancel_confirmed),
    ):  # fmt: skip
        if first is not None and last is not None:
            yield words, first - last
