"""A site's own baselines: what is worth recording, what becomes of a second number, and which one is judged against."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from fixtures.recording import record
from plugins import results
from plugins.baselinefile import BaselineFile
from plugins.baselinefile import load_baselines
from plugins.baselines import Baseline
from plugins.baselines import find
from plugins.baselines import lapsed
from plugins.errors import ConfigError
from plugins.judging import Judgement
from plugins.judging import judge_outcome
from plugins.recording import Candidate
from plugins.recording import Origin
from plugins.recording import as_text
from plugins.recording import candidate
from plugins.recording import shelve
from plugins.suite import Shelf
from plugins.verdicts import Kind
from plugins.yamlfile import load
from tests.unit import examples

FIRST, SECOND, THIRD = (
    Origin("lab", "NeMo 2", f"2026112{n}-090000-aaaa", f"2026-11-2{n}", {"driver": "550.90.07"})
    for n in (1, 2, 3)
)
KEY = f"llama3/{examples.CASE}"


def judged(
    times: Sequence[float] | None = None, *, own: Path | None = None, gpu: str = "b200", text: str = ""
) -> Judgement:
    """A run of the usual case on a GPU that nothing was published for."""
    recipe, case = examples.llama3(), examples.case()
    baseline = find(examples.BASELINES, recipe, case, gpu, own)
    return judge_outcome(
        case,
        examples.outcome(gpu=gpu),
        examples.parse(text + examples.nemo2_text(times)),
        baseline,
        gpu=gpu,
        baselines=examples.BASELINES,
        why_none=lapsed(own, recipe, case, gpu) if own else "",
    )


def offered(times: Sequence[float] | None = None, origin: Origin = FIRST, **more: object) -> Candidate:
    found = candidate(judged(times, **more), origin)  # type: ignore[arg-type]
    assert isinstance(found, Candidate), found
    # As it travels in the record.
    return Candidate.model_validate(
        json.loads(json.dumps(found.model_dump(mode="json", exclude_defaults=True)))
    )


def refused(judgement: Judgement) -> str:
    found = candidate(judgement, FIRST)
    assert isinstance(found, str)
    return found


def written(folder: Path, file: BaselineFile | None) -> Path:
    """The folder with this file in it, read back: what is written is what is read."""
    assert file is not None
    path = folder / "llama3.yaml"
    path.write_text(as_text(file, "lab"))
    load_baselines.cache_clear()
    assert load_baselines(path) == file
    return folder


def recorded(folder: Path, times: Sequence[float] | None = None) -> Path:
    return written(folder, shelve(None, "llama3", offered(times), verdict="no baseline", replace=False)[0])


def rewritten(path: Path, old: str, new: str) -> Path:
    """The file's folder, after somebody edited it."""
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    load_baselines.cache_clear()
    return path.parent


def own(folder: Path) -> Baseline:
    found = find(examples.BASELINES, examples.llama3(), examples.case(), "b200", folder)
    assert found is not None
    return found


def shelved(
    folder: Path, times: Sequence[float], origin: Origin = SECOND, *, replaces: bool = False
) -> tuple[BaselineFile | None, str]:
    """What becomes of another run, judged as its session would judge it."""
    judgement = judged(times, own=None if replaces else folder)
    found = candidate(judgement, origin)
    assert isinstance(found, Candidate), found
    return shelve(
        load(folder / "llama3.yaml", BaselineFile),
        "llama3",
        found,
        verdict=str(judgement.verdict.kind),
        replace=replaces,
    )


def pace(factor: float) -> list[float]:
    return [factor * seconds for seconds in examples.times()]


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
        "job": "4711", "nodes": "gpu[001-064]", "versions": {"driver": "550.90.07", "nccl": "2.21.5+cuda12.4"},
    }  # fmt: skip
    assert baseline.origin == (
        f"recorded on site lab by run {FIRST.run} on 2026-11-21 (1 run, spread 0.29 %, driver 550.90.07, nccl "
        "2.21.5+cuda12.4), release 25.04 on b200"
    )


def test_the_file_has_a_line_for_each_cell(tmp_path: Path) -> None:
    text = (recorded(tmp_path) / "llama3.yaml").read_text()
    assert text.startswith("# The own baselines of site lab, recorded with --record-baselines.")
    (line,) = [
        line for line in text.splitlines() if line.startswith("      - {size: 70b, dtype: fp8, gpus: 512,")
    ]
    assert "step_time: 10.11" in line
    assert "recorded: {status: recorded, run: 20261121-090000-aaaa, date: '2026-11-21'" in line


@pytest.mark.parametrize(
    ("times", "said"),
    [
        ([10.07 * (1.05 if i % 2 else 0.95) for i in range(50)], "the last 10 steps scatter by 7.4 %"),
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
    found = candidate(judged(times), FIRST)
    if said:
        assert isinstance(found, str)
        assert said in found
    else:
        assert isinstance(found, Candidate)


def test_a_run_that_is_not_valid_is_refused() -> None:
    spoilt = judged(text="NCCL INFO Using network Socket\n")
    assert refused(spoilt).startswith("no whole and valid run: invalid run: NCCL fell back")
    given_up = replace(judged(), outcome=replace(judged().outcome, failure="given up"))
    assert refused(given_up).startswith("no whole and valid run: ")


def test_a_case_with_a_published_baseline_is_refused() -> None:
    assert refused(judged(gpu="h100")) == "llama3.yaml has a baseline for it, which wins"


def test_a_gpu_of_unknown_peak_is_refused() -> None:
    assert "no fp8 peak of abacus is known to count MFU by" in refused(judged(gpu="abacus"))


def test_an_mfu_beyond_the_peak_is_refused() -> None:
    assert "beyond the peak" in refused(judged(pace(0.1)))


def test_a_peak_that_the_run_measures_makes_a_table_of_mfu(tmp_path: Path) -> None:
    judgement = judged()
    log = replace(judgement.log, peak_tflops=2000.0)
    case = examples.case()
    again = judge_outcome(case, judgement.outcome, log, None, gpu="b200", baselines=examples.BASELINES)
    found = candidate(again, FIRST)
    assert isinstance(found, Candidate)
    folder = written(tmp_path, shelve(None, "llama3", found, verdict="no baseline", replace=False)[0])
    baseline = own(folder)
    assert (baseline.table.peak, baseline.cell.step_time) == ("measured", None)
    # Another machine of that kind, with another peak and the same share of it.
    other = replace(judgement.log, peak_tflops=1000.0)
    slow = judge_outcome(case, judgement.outcome, other, baseline, gpu="b200", baselines=examples.BASELINES)
    assert slow.verdict.kind is Kind.TOO_FAST


# What is judged against it


@pytest.mark.parametrize(
    ("factor", "kind"), [(1.0, Kind.PASSED), (1.07, Kind.TOO_SLOW), (1 / 1.15, Kind.TOO_FAST)]
)
def test_a_recorded_baseline_is_judged_against_like_any_other(
    tmp_path: Path, factor: float, kind: Kind
) -> None:
    found = judged(pace(factor), own=recorded(tmp_path))
    assert found.verdict.kind is kind
    assert any(
        line.startswith(f"baseline  recorded on site lab by run {FIRST.run}") for line in found.details
    )
    expected = results.record(found)["expected"]
    assert (expected["recorded"]["run"], expected["recorded"]["status"]) == (FIRST.run, "recorded")


def test_the_published_baseline_wins_and_the_report_says_so(tmp_path: Path) -> None:
    rewritten(recorded(tmp_path, pace(2)) / "llama3.yaml", "gpu: b200", "gpu: h100")
    found = judged(own=tmp_path, gpu="h100")
    assert found.verdict.kind is Kind.PASSED
    (line,) = [line for line in found.details if line.startswith("own ")]
    assert line.startswith(f"own       20.22 s, recorded on site lab by run {FIRST.run}")
    assert line.endswith("not judged, the published baseline wins")
    assert results.record(found)["expected"]["recorded"] is None


def test_another_scale_release_or_gpu_has_no_recorded_baseline(tmp_path: Path) -> None:
    folder, case = recorded(tmp_path), examples.case()
    for other, gpu in (
        (examples.case("70b-fp8-256gpus"), "b200"),
        (examples.case("70b-bf16-512gpus"), "b200"),
        (replace(case, release="25.05"), "b200"),
        (case, "b300"),
    ):
        assert find(examples.BASELINES, examples.llama3(), other, gpu, folder) is None
        assert lapsed(folder, examples.llama3(), other, gpu) == ""


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("status: recorded", "status: expired", f"has one of run {FIRST.run}, which has expired"),
        ("tp: 4", "tp: 8", "has one that does not count: the baseline was measured with tp 8, but llama3/recipe.yaml"),
        ("statistic: last", "statistic: mean:15-60", "has one that does not count: statistic mean:15-60 needs step 60"),
    ],
)  # fmt: skip
def test_a_number_that_does_not_count_any_more_is_told(tmp_path: Path, old: str, new: str, said: str) -> None:
    rewritten(recorded(tmp_path) / "llama3.yaml", old, new)
    found = judged(own=tmp_path)
    assert found.verdict.kind is Kind.NO_BASELINE
    assert said in found.verdict.headline


# A second number


def test_a_run_that_passes_confirms_the_number_which_stays(tmp_path: Path) -> None:
    recorded(tmp_path)
    file, said = shelved(tmp_path, pace(1.02))
    assert said == (
        f"confirmed: 10.11 s a step of run {FIRST.run} (2026-11-21) -> 10.31 s a step, -1.9 % throughput; 2 runs "
        "agree, the number stays"
    )
    baseline = own(written(tmp_path, file))
    told = baseline.cell.recorded
    assert baseline.cell.step_time == 10.11
    assert told is not None
    assert (told.status, told.runs, told.run, told.confirmed_by) == ("confirmed", 2, FIRST.run, SECOND.run)
    assert "(2 runs agree, spread 0.29 %" in baseline.origin


# Each run 4 % slower than the last one: against the first number the second of them fails.
def test_a_slow_decline_does_not_drag_the_number_along(tmp_path: Path) -> None:
    recorded(tmp_path)
    written(tmp_path, shelved(tmp_path, pace(1.04))[0])
    assert own(tmp_path).cell.step_time == 10.11
    assert shelved(tmp_path, pace(1.08), THIRD)[1].startswith("not replaced: ")


@pytest.mark.parametrize(("factor", "verdict"), [(1.1, "too slow"), (0.8, "too fast")])
def test_a_run_that_does_not_pass_shows_the_change_and_changes_nothing(
    tmp_path: Path, factor: float, verdict: str
) -> None:
    recorded(tmp_path)
    before = (tmp_path / "llama3.yaml").read_text()
    file, said = shelved(tmp_path, pace(factor))
    assert said.startswith(f"not replaced: 10.11 s a step of run {FIRST.run} (2026-11-21) -> ")
    assert said.endswith(f"% throughput, {verdict}; --replace-baselines takes the new number")
    assert file is not None
    assert as_text(file, "lab") == before


def test_a_number_is_replaced_when_asked_and_the_old_one_is_kept_as_expired(tmp_path: Path) -> None:
    recorded(tmp_path)
    file, said = shelved(tmp_path, pace(0.8), replaces=True)
    assert said == (
        f"replaced: 10.11 s a step of run {FIRST.run} (2026-11-21) -> 8.088 s a step, +25.0 % throughput; the old "
        "number is kept as expired"
    )
    baseline = own(written(tmp_path, file))
    assert baseline.cell.step_time == 8.088
    (table,) = load_baselines(baseline.path).tables
    old, new = (cell.recorded for cell in table.cells)
    assert old is not None
    assert new is not None
    assert (old.status, old.expired_on, new.status) == ("expired", "2026-11-22", "recorded")


def test_a_restless_run_replaces_nothing(tmp_path: Path) -> None:
    recorded(tmp_path)
    restless = [10.07 * (1.05 if i % 2 else 0.95) for i in range(50)]
    assert "scatter" in refused(judged(restless))
    assert "scatter" in refused(judged(restless, own=tmp_path))


def test_the_same_run_is_recorded_once(tmp_path: Path) -> None:
    recorded(tmp_path)
    file, said = shelved(tmp_path, pace(1.0), FIRST)
    assert said == "recorded by this run before: 10.11 s a step"
    assert file == load(tmp_path / "llama3.yaml", BaselineFile)


def test_a_number_of_another_configuration_gives_way(tmp_path: Path) -> None:
    rewritten(recorded(tmp_path) / "llama3.yaml", "tp: 4", "tp: 8")
    file, said = shelved(tmp_path, pace(0.8))
    assert said.startswith("recorded: 8.088 s a step, last, ")
    assert said.endswith("was measured with another tp and has expired")
    assert own(written(tmp_path, file)).cell.step_time == 8.088


def test_a_number_written_by_hand_is_left_alone(tmp_path: Path) -> None:
    path = recorded(tmp_path) / "llama3.yaml"
    text = path.read_text()
    rewritten(path, text[text.index(", recorded: {") :], "}\n")
    assert own(tmp_path).cell.recorded is None
    assert refused(judged(own=tmp_path)) == "llama3.yaml has a baseline for it, which wins"
    file, said = shelved(tmp_path, pace(0.8), replaces=True)
    assert said == "not recorded: the site's own number, 10.11 s a step, was written by hand; edit it"
    assert file == load(path, BaselineFile)


def test_numbers_share_a_table_only_where_they_are_counted_alike(tmp_path: Path) -> None:
    first = offered()
    file, _ = shelve(None, "llama3", first, verdict="no baseline", replace=False)
    others: dict[str, dict[str, Any]] = {
        "dtype": {"cell": first.cell.model_copy(update={"dtype": "bf16"}), "peak": 2250.0},
        "gpus": {"cell": first.cell.model_copy(update={"gpus": 256})},
        "peak": {"cell": first.cell.model_copy(update={"gpus": 128}), "peak": 4000.0},
        "statistic": {"cell": first.cell.model_copy(update={"gpus": 64}), "statistic": "mean:15-40"},
        "flops": {
            "cell": first.cell.model_copy(update={"gpus": 1024}),
            "flops": first.flops.model_copy(update={"significant_digits": 2}),
        },
        "release": {"cell": first.cell, "release": "25.05"},
        "gpu": {"cell": first.cell, "gpu": "b300"},
    }
    tables = []
    for changed in others.values():
        file, said = shelve(file, "llama3", first.model_copy(update=changed), verdict="x", replace=False)
        assert said.startswith("recorded: ")
        assert file is not None
        tables.append(len(file.tables))
    assert tables == [1, 1, 2, 3, 4, 5, 6]
    written(tmp_path, file)


OFFERED = offered()


@given(st.text(max_size=20), st.text(max_size=20))
def test_whatever_a_note_or_a_version_says_the_file_can_be_read(note: str, version: str) -> None:
    new = OFFERED
    assert new.cell.recorded is not None
    told = new.cell.recorded.model_copy(update={"versions": {"driver": version}})
    cell = new.cell.model_copy(update={"note": note, "recorded": told})
    file, _ = shelve(None, "llama3", new.model_copy(update={"cell": cell}), verdict="x", replace=False)
    assert file is not None
    assert BaselineFile.model_validate(yaml.safe_load(as_text(file, "lab"))) == file


# The end of a session


def test_what_the_records_offer_is_put_into_the_tables(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path, "lab", record=True)
    offer = offered().model_dump(mode="json", exclude_defaults=True)
    records: list[dict[str, Any]] = [
        {"id": KEY, "verdict": "no baseline", "recording": offer},
        {"id": "llama3/70b-fp8-256gpus", "verdict": "noisy", "recording": {"refused": "too noisy"}},
        {"id": "nemotron4/15b-fp8-16gpus", "verdict": "infrastructure", "recording": None},
    ]
    path = tmp_path / "llama3.yaml"
    assert record(shelf, records) == [
        f"{KEY}: recorded: 10.11 s a step, last, MFU 17.32 %, spread 0.29 %",
        "llama3/70b-fp8-256gpus: not recorded: too noisy",
        f"recorded baselines: {path}",
        "nemotron4/15b-fp8-16gpus: not recorded: it was not judged",
    ]
    assert [p.name for p in tmp_path.iterdir()] == ["llama3.yaml"]
    assert own(tmp_path).cell.step_time == 10.11
    # Nothing new: the file is not touched.
    before = path.stat().st_mtime_ns
    assert record(shelf, records)[0] == f"{KEY}: recorded by this run before: 10.11 s a step"
    assert path.stat().st_mtime_ns == before


def test_a_table_that_cannot_be_read_is_not_written_over(tmp_path: Path) -> None:
    (tmp_path / "llama3.yaml").write_text("recipe: llama3\ntables: []\n")
    offer = offered().model_dump(mode="json", exclude_defaults=True)
    lines = record(
        Shelf(tmp_path, "lab", record=True), [{"id": KEY, "verdict": "no baseline", "recording": offer}]
    )
    assert lines[0].startswith(f"NOT recorded in {tmp_path}/llama3.yaml: ")
    assert (tmp_path / "llama3.yaml").read_text() == "recipe: llama3\ntables: []\n"


def test_two_own_numbers_of_a_case_are_refused(tmp_path: Path) -> None:
    path = recorded(tmp_path) / "llama3.yaml"
    line = path.read_text().splitlines()[-1]
    rewritten(path, line, f"{line}\n{line}")
    with pytest.raises(ConfigError, match="has 2 baselines; keep one"):
        judged(own=tmp_path)


def test_a_recorded_number_of_a_published_file_is_read_from_a_copy(tmp_path: Path) -> None:
    """The site's file has the very format of the published ones."""
    shutil.copy(examples.BASELINES / "llama3.yaml", tmp_path)
    found = find(tmp_path / "none", examples.llama3(), examples.case(), "h100", tmp_path)
    assert found is not None
    assert found.cell.step_time == examples.STEP_TIME
