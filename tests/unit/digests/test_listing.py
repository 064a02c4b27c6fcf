"""What is wrong with a job's reports, in words."""

from __future__ import annotations

import pytest

from plugins.digests.listing import Entry
from plugins.digests.listing import maxtext_reports
from plugins.digests.listing import megatron_reports

STARTED = 1_000_000.0
WHOLE = 40_000_000


def reports(count: int, **changed: Entry) -> list[Entry]:
    names = {
        f"profile_{4000 + n}.nsys-rep": Entry(f"profile_{4000 + n}.nsys-rep", WHOLE, STARTED + 900)
        for n in range(count)
    }
    return [changed.get(name.partition(".")[0], entry) for name, entry in names.items()]


def test_whole_reports_have_no_fault() -> None:
    others = [Entry(".init", 0, STARTED + 1), Entry("profile_1.sqlite", 0, 0), Entry("notes.nsys-rep", 0, 0)]
    assert megatron_reports([*reports(8), *others], 8, STARTED) == []


@pytest.mark.parametrize(
    ("entry", "fault"),
    [
        (
            Entry("profile_4003.nsys-rep", 0, STARTED + 900),
            "profile_4003.nsys-rep is empty: the profiler was ended before it wrote the report",
        ),
        (
            Entry("profile_4003.nsys-rep", 100, STARTED + 900),
            "profile_4003.nsys-rep has 100 bytes: too small for a whole report",
        ),
    ],
)
def test_a_file_that_is_not_whole_is_named_once(entry: Entry, fault: str) -> None:
    assert megatron_reports(reports(8, profile_4003=entry), 8, STARTED) == [fault]


def test_a_missing_report_is_counted_because_its_name_holds_no_rank() -> None:
    (fault,) = megatron_reports(reports(7), 8, STARTED)
    assert fault.startswith("7 reports for 8 profiled ranks; their names hold process ids")
    (none,) = megatron_reports([], 8, STARTED)
    assert none.startswith("0 reports for 8")


def test_a_report_of_an_earlier_job_does_not_count() -> None:
    earlier = Entry("profile_4003.nsys-rep", WHOLE, STARTED - 1)
    faults = megatron_reports(reports(8, profile_4003=earlier), 8, STARTED)
    assert faults[0] == "profile_4003.nsys-rep is older than the job, so it is another job's"
    assert faults[1].startswith("7 reports for 8")


def test_reports_beyond_the_ranks_are_told() -> None:
    (fault,) = megatron_reports(reports(9), 8, STARTED)
    assert fault == "9 reports for 8 profiled ranks: some are of another attempt"


def test_a_rank_that_a_name_holds_is_named() -> None:
    named = [
        Entry(f"profile_{4000 + rank}_1234_node0_rank{rank}.nsys-rep", WHOLE, STARTED + 9)
        for rank in range(8)
    ]
    assert megatron_reports(named, 8, STARTED, "1234") == []
    assert megatron_reports(named[:3] + named[5:], 8, STARTED, "1234") == ["no report of rank 3, 4"]
    faults = megatron_reports(named[:1], 1, STARTED, "1235")
    assert faults[0] == "profile_4000_1234_node0_rank0.nsys-rep is another job's"
    assert faults[1].startswith("0 reports for 1 profiled ranks")


def test_both_reports_of_a_maxtext_run_are_looked_for() -> None:
    run = "maxtext_llama2_70b_16n_fp8_minimal"
    pair = [Entry(f"{run}-{kind}.nsys-rep", WHOLE, STARTED + 9) for kind in ("prof", "perf")]
    assert maxtext_reports(pair, run, STARTED) == []
    assert maxtext_reports(pair[:1], run, STARTED) == [f"{run}-perf.nsys-rep is missing"]
    assert maxtext_reports(pair, "other", STARTED) == [
        "other-prof.nsys-rep is missing",
        "other-perf.nsys-rep is missing",
    ]


def test_odd_names_are_shown_harmless() -> None:
    (fault,) = megatron_reports([Entry("profile_\x1b[2J.nsys-rep", 0, STARTED)], 1, STARTED)
    assert fault.startswith("profile_\\x1b[2J.nsys-rep is empty")
