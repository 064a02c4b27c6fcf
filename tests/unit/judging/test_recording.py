"""Recording a site's own baselines: what is worth it, and how it is written."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from fixtures.session.recording import record, require_writable
from plugins.base.errors import ConfigError
from plugins.judging.identity import fingerprint
from plugins.judging.shelving import Offer, offer_of, shelve
from plugins.record.verdict import Kind
from plugins.suite.session import SiteBaselines
from tests.unit import examples
from tests.unit.own_tables import (
    FIRST,
    KEY,
    judged,
    offered,
    offering,
    own,
    pace,
    recorded,
    refused,
    rewritten,
    written,
)

# What is recorded


def test_a_quiet_run_becomes_a_cell_with_all_that_is_known_of_it(tmp_path: Path) -> None:
    text = "NCCL version 2.21.5+cuda12.4\n"
    file, said = shelve(None, "llama3", offered(text=text), verdict="no baseline", replace=False)
    assert said == "recorded: 10.11 s a step, last, MFU 17.32 %, spread 0.29 %"
    baseline = own(written(tmp_path, file))
    cell, table = baseline.cell, baseline.table
    assert (cell.step_time, cell.tokens_per_second, cell.mfu) == (10.11, 829733.73, 17.3206)
    assert (table.release, table.gpu, table.statistic, table.peak) == ("25.04", "b200", "last", {"fp8": 4500})
    assert cell.recorded is not None
    assert cell.recorded.model_dump(exclude_none=True) == {
        "status": "recorded", "run": FIRST.run, "date": "2026-11-21", "runs": 1, "spread": 0.002945, "hiccups": 0,
        "job": "4711", "log": fingerprint(judged().log), "confirmed_jobs": [], "confirmed_logs": [], "nodes": "gpu[001-064]", "versions": {"driver": "550.90.07", "nccl": "2.21.5+cuda12.4"},
    }  # fmt: skip
    assert baseline.origin == (
        f"recorded on site lab by run {FIRST.run} on 2026-11-21 (1 run, spread 0.29 %, driver 550.90.07, nccl "
        "2.21.5+cuda12.4), release 25.04 on b200"
    )


def test_a_log_is_known_by_its_steps_in_every_copy_of_it() -> None:
    log = judged(text="NCCL version 2.21.5\n").log
    assert fingerprint(log) == fingerprint(judged().log)
    for other in (pace(1.0)[:49], [*pace(1.0)[:49], 10.12]):
        assert fingerprint(judged(other).log) != fingerprint(log)


# Process numbers come again, and a log's name may not say its job.
@pytest.mark.parametrize("changed", [{"nodes": "this machine"}, {"id": "of unknown id"}, {"id": ""}])
def test_an_id_that_tells_no_job_from_another_is_not_recorded(changed: dict[str, str]) -> None:
    found = examples.with_outcome(judged(), examples.outcome(gpu="b200", **changed))
    offer = offer_of(found, FIRST)
    assert isinstance(offer, Offer)
    assert offer.cell.recorded is not None
    assert (offer.cell.recorded.job, offer.cell.recorded.log) == (None, fingerprint(found.log))


@pytest.mark.parametrize(
    ("times", "said"),
    [
        ([10.07 * (1.05 if i % 2 else 0.95) for i in range(50)], "the settled steps scatter by 7.4 %"),
        (
            examples.times(**{f"s{i}": 13.1 for i in (11, 19, 27, 35)}),
            "4 of 40 settled steps far above the median",
        ),
        (examples.times(s49=13.1), "its outliers move last by +30.1 %: step 49 (13.1 s); run it again"),
        (examples.times(s49=8.0), "its outliers move last by -20.5 %: step 49 (8 s); run it again"),
        ([10.07 + 0.02 * i for i in range(50)], ""),
    ],
)
def test_a_restless_run_is_refused_with_its_spread(times: list[float], said: str) -> None:
    found = offer_of(judged(times), FIRST)
    if said:
        assert isinstance(found, str)
        assert said in found
    else:
        assert isinstance(found, Offer)


def test_a_case_that_cannot_have_a_number_is_refused() -> None:
    usual = judged()
    profiled = replace(usual.evidence, case=examples.case("70b-profile-fp8-512gpus"))
    given_up = examples.with_outcome(usual, examples.with_facts(usual.outcome, failure="given up"))
    for judgement, said in (
        (replace(usual, evidence=profiled), "its pace is not judged"),
        (judged(gpu="h100"), "llama3.yaml has a baseline for it, which wins"),
        (judged(gpu="abacus"), "no fp8 peak of abacus is known to count MFU by"),
        (judged(pace(0.1)), "faster than NVIDIA B200 can be"),
        (
            judged(text="NCCL INFO Using network Socket\n"),
            "no whole and valid run: invalid run: NCCL fell back",
        ),
        (given_up, "no whole and valid run: "),
    ):
        assert said in refused(judgement)


def test_a_peak_that_the_run_measures_makes_a_table_of_mfu(tmp_path: Path) -> None:
    judgement = judged()
    log = replace(judgement.log, peak_tflops=2000.0)
    case = examples.case()
    again = examples.judged(case, judgement.outcome, log, None)
    found = offer_of(again, FIRST)
    assert isinstance(found, Offer)
    folder = written(tmp_path, shelve(None, "llama3", found, verdict="no baseline", replace=False)[0])
    baseline = own(folder)
    assert (baseline.table.peak, baseline.cell.step_time) == ("measured", None)
    # Another machine of that kind, with another peak and the same share of it.
    other = replace(judgement.log, peak_tflops=1000.0)
    slow = examples.judged(case, judgement.outcome, other, baseline)
    assert slow.verdict.kind is Kind.TOO_FAST
    # A later run is compared by its share too.
    assert found.cell.recorded is not None
    assert found.cell.mfu is not None
    later = found.cell.recorded.model_copy(update={"run": "later"})
    less = found.cell.model_copy(update={"recorded": later, "mfu": 0.9 * found.cell.mfu})
    file = shelve(None, "llama3", found, verdict="no baseline", replace=False)[0]
    offer = found.model_copy(update={"cell": less})
    assert "-10.0 % throughput" in shelve(file, "llama3", offer, verdict="too slow", replace=True)[1]


def test_a_run_that_measures_no_peak_has_another_table_than_one_that_does() -> None:
    judgement = judged()
    log = replace(judgement.log, peak_tflops=2000.0)
    measured = offer_of(examples.judged(examples.case(), judgement.outcome, log, None), FIRST)
    assert isinstance(measured, Offer)
    other = offered()
    wider = other.model_copy(update={"cell": other.cell.model_copy(update={"gpus": 1024})})
    for first, second in ((measured, wider), (wider, measured)):
        file = shelve(None, "llama3", first, verdict="no baseline", replace=False)[0]
        file = shelve(file, "llama3", second, verdict="no baseline", replace=False)[0]
        assert file is not None
        assert [table.peak for table in file.tables] == [
            offer.peak if isinstance(offer.peak, str) else {"fp8": offer.peak} for offer in (first, second)
        ]


# The end of a session


def test_what_the_records_offer_is_put_into_the_tables(tmp_path: Path) -> None:
    site_baselines = SiteBaselines(tmp_path, "lab", record=True)
    offer = offered().model_dump(mode="json", exclude_defaults=True)
    records = [
        offering(KEY, offer),
        offering("llama3/70b-fp8-256gpus", {"refused": "too noisy"}, Kind.NOISY),
        offering("nemotron4/15b-fp8-16gpus", None, Kind.INFRASTRUCTURE),
    ]
    path = tmp_path / "llama3.yaml"
    assert record(site_baselines, records) == [
        f"{KEY}: recorded: 10.11 s a step, last, MFU 17.32 %, spread 0.29 %",
        "llama3/70b-fp8-256gpus: not recorded: too noisy",
        f"recorded baselines: {path}",
        "nemotron4/15b-fp8-16gpus: not recorded: it was not judged",
    ]
    assert [p.name for p in tmp_path.iterdir()] == ["llama3.yaml"]
    assert own(tmp_path).cell.step_time == 10.11
    # Nothing new: the file is not touched.
    before = path.stat().st_mtime_ns
    assert record(site_baselines, records)[0] == f"{KEY}: recorded by this run before: 10.11 s a step"
    assert path.stat().st_mtime_ns == before


def test_a_table_that_cannot_be_read_is_not_written_over(tmp_path: Path) -> None:
    (tmp_path / "llama3.yaml").write_text("recipe: llama3\ntables: []\n")
    offer = offered().model_dump(mode="json", exclude_defaults=True)
    lines = record(
        SiteBaselines(tmp_path, "lab", record=True),
        [offering(KEY, offer)],
    )
    assert lines[0].startswith(f"NOT recorded in {tmp_path}/llama3.yaml: ")
    assert (tmp_path / "llama3.yaml").read_text() == "recipe: llama3\ntables: []\n"


def test_two_own_numbers_of_a_case_are_refused(tmp_path: Path) -> None:
    path = recorded(tmp_path) / "llama3.yaml"
    line = path.read_text().splitlines()[-1]
    rewritten(path, line, f"{line}\n{line}")
    with pytest.raises(ConfigError, match="has 2 baselines; keep one"):
        judged(own=tmp_path)


def test_sessions_that_begin_together_find_that_they_can_write(tmp_path: Path) -> None:
    site_baselines = SiteBaselines(tmp_path / "site", "lab", record=True)
    with ThreadPoolExecutor(8) as pool:
        for done in [pool.submit(require_writable, site_baselines) for _ in range(800)]:
            done.result()
    assert list((tmp_path / "site").iterdir()) == []
