"""What becomes of a recorded baseline: judged against, confirmed, replaced, expired."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from plugins.base.yaml_text import Loader
from plugins.base.yamlfile import load
from plugins.baselines.baseline_file import CONFIGURATION, BaselineFile, load_baselines
from plugins.baselines.changes import compare, mixed, versions_of
from plugins.baselines.store import SiteNumbers, find
from plugins.judging.identity import fingerprint
from plugins.judging.judgement import Judgement
from plugins.judging.shelving import as_text, shelve
from plugins.logs import Log
from plugins.recipes.models import Model
from plugins.record.job import Phase
from plugins.record.verdict import Kind
from tests.unit import examples
from tests.unit.examples import record_json
from tests.unit.own_tables import (
    FIRST,
    SECOND,
    THIRD,
    judged,
    offered,
    own,
    pace,
    recorded,
    refused,
    rewritten,
    shelved,
    written,
)

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
    expected = record_json(found)["expected"]
    assert (expected["recorded"]["run"], expected["recorded"]["status"]) == (FIRST.run, "recorded")


def test_the_published_baseline_wins_and_the_report_says_so(tmp_path: Path) -> None:
    rewritten(recorded(tmp_path, pace(2)) / "llama3.yaml", "gpu: b200", "gpu: h100")
    found = judged(own=tmp_path, gpu="h100")
    assert found.verdict.kind is Kind.PASSED
    (line,) = [line for line in found.details if line.startswith("own ")]
    assert line.startswith(f"own       20.22 s, recorded on site lab by run {FIRST.run}")
    assert line.endswith("not judged, the published baseline wins")
    assert record_json(found)["expected"]["recorded"] is None


def test_another_scale_release_or_gpu_has_no_recorded_baseline(tmp_path: Path) -> None:
    folder, case = recorded(tmp_path), examples.case()
    for other, gpu, elsewhere in (
        (examples.case("70b-fp8-256gpus"), "b200", ""),
        (examples.case("70b-bf16-512gpus"), "b200", ""),
        (
            replace(case, release="25.05"),
            "b200",
            "on b200 in release 25.04, and this is b200 in release 25.05",
        ),
        (case, "b300", "on b200 in release 25.04, and this is b300 in release 25.04"),
    ):
        assert find(examples.BASELINES, examples.llama3(), other, gpu, SiteNumbers(folder)) is None
        assert SiteNumbers(folder).lapsed(examples.llama3(), other, gpu).endswith(elsewhere)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("status: recorded", "status: expired", f"has one of run {FIRST.run}, which has expired"),
        ("tp: 4", "tp: 8", "has one that does not count: the baseline was measured with tp 8, but llama3/recipe.yaml"),
        ("hidden: 8192", "hidden: 7680", "has one that does not count: the baseline was measured with hidden 7680, but"),
        ("mlp: gated", "mlp: gelu", "has one that does not count: the baseline was measured with mlp gelu, but"),
        ("step_time: 1", "step_time: 2", "has one that does not count: a step_time of 2"),
        ("statistic: last", "statistic: mean:15-60", "has one that does not count: statistic mean:15-60 needs step 60"),
    ],
)  # fmt: skip
def test_a_number_that_does_not_count_any_more_is_told(tmp_path: Path, old: str, new: str, said: str) -> None:
    rewritten(recorded(tmp_path) / "llama3.yaml", old, new)
    found = judged(own=tmp_path)
    assert found.verdict.kind is Kind.NO_BASELINE
    assert said in found.verdict.headline


def test_a_number_does_not_count_for_the_run_that_recorded_it(tmp_path: Path) -> None:
    folder, recipe, case = recorded(tmp_path), examples.llama3(), examples.case()
    this_run = SiteNumbers(folder, run=FIRST.run)
    assert find(examples.BASELINES, recipe, case, "b200", this_run) is None
    assert this_run.lapsed(recipe, case, "b200") == (
        f"{folder}/llama3.yaml has one that does not count: this very run recorded it"
    )
    log = fingerprint(judged().log)
    this_log = SiteNumbers(folder, run=SECOND.run, log=log)
    assert find(examples.BASELINES, recipe, case, "b200", this_log) is None
    assert find(examples.BASELINES, recipe, case, "b200", replace(this_log, job="4711")) is None
    assert this_log.lapsed(recipe, case, "b200") == (
        f"{folder}/llama3.yaml has one that does not count: run {FIRST.run} recorded it from this very log"
    )
    # Another job whose steps are printed with the same few digits.
    other_job = replace(this_log, job="4712")
    assert find(examples.BASELINES, recipe, case, "b200", other_job) == own(folder)
    other_log = replace(this_log, log=fingerprint(judged(pace(1.01)).log))
    assert find(examples.BASELINES, recipe, case, "b200", other_log) == own(folder)
    assert other_log.lapsed(recipe, case, "b200") == ""


def test_a_number_that_does_not_state_its_model_can_still_be_read(tmp_path: Path) -> None:
    path = recorded(tmp_path) / "llama3.yaml"
    rewritten(path, "hidden: 8192, ffn: 28672, heads: 64, query_groups: 8, vocab: 128256, mlp: gated, ", "")
    assert judged(own=tmp_path).verdict.kind is Kind.PASSED
    # It is no other configuration either, when another number is offered.
    assert shelved(tmp_path, pace(1.01))[1].startswith("confirmed: ")


def test_a_recorded_number_states_all_that_a_case_is(tmp_path: Path) -> None:
    case = examples.case()
    assert own(recorded(tmp_path)).cell.configuration == case.identity()
    assert (
        set(case.identity())
        == set(CONFIGURATION) - {"ep"}
        == set(case.configuration()) | set(Model.model_fields) - {"blocks"}
    )


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


# The same job again, from the log that it left: as often as one likes.
@pytest.mark.parametrize(
    ("factor", "job", "counted"), [(1.02, "4711", "job 4711"), (1.0, "of unknown id", "this very log")]
)
def test_a_job_does_not_confirm_itself(tmp_path: Path, factor: float, job: str, counted: str) -> None:
    recorded(tmp_path)
    file, said = shelved(tmp_path, pace(factor), job=job)
    assert said == f"not confirmed: 10.11 s a step of run {FIRST.run} (2026-11-21) counts {counted} already"
    assert file == load(tmp_path / "llama3.yaml", BaselineFile)


@pytest.mark.parametrize(
    ("factor", "job", "counted"), [(1.03, "4712", "job 4712"), (1.02, "of unknown id", "this very log")]
)
def test_a_job_confirms_once(tmp_path: Path, factor: float, job: str, counted: str) -> None:
    recorded(tmp_path)
    written(tmp_path, shelved(tmp_path, pace(1.02), job="4712")[0])
    written(tmp_path, shelved(tmp_path, pace(0.99), THIRD, job="4713")[0])
    file, said = shelved(tmp_path, pace(factor), job=job)
    assert said.endswith(f" counts {counted} already")
    assert file is not None
    told = own(written(tmp_path, file)).cell.recorded
    assert told is not None
    assert (told.runs, told.confirmed_jobs, len(told.confirmed_logs)) == (3, ["4712", "4713"], 2)


# Each run 4 % slower than the last one: against the first number the second of them fails.
def test_a_slow_decline_does_not_drag_the_number_along(tmp_path: Path) -> None:
    recorded(tmp_path)
    written(tmp_path, shelved(tmp_path, pace(1.04))[0])
    assert own(tmp_path).cell.step_time == 10.11
    assert shelved(tmp_path, pace(1.08), THIRD, job="4713")[1].startswith("not replaced: ")


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
    unstable = [10.07 * (1.05 if i % 2 else 0.95) for i in range(50)]
    assert "scatter" in refused(judged(unstable))
    assert "scatter" in refused(judged(unstable, own=tmp_path))


def test_the_same_run_is_recorded_once(tmp_path: Path) -> None:
    recorded(tmp_path)
    file, said = shelved(tmp_path, pace(1.0), FIRST)
    assert said == "recorded by this run before: 10.11 s a step"
    assert file == load(tmp_path / "llama3.yaml", BaselineFile)


@pytest.mark.parametrize(("old", "new"), [("tp: 4", "tp: 8"), ("hidden: 8192", "hidden: 7680")])
def test_a_number_of_another_configuration_gives_way(tmp_path: Path, old: str, new: str) -> None:
    rewritten(recorded(tmp_path) / "llama3.yaml", old, new)
    file, said = shelved(tmp_path, pace(0.8))
    assert said.startswith("recorded: 8.088 s a step, last, ")
    assert said.endswith(f"was measured with another {old.partition(':')[0]} and has expired")
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


# Somebody lets a table of the site's own hold for a later release.
ALSO = "  - release: '25.03'\n    also: ['25.04']\n"


def test_a_number_of_a_table_for_several_releases_is_replaced_in_each(tmp_path: Path) -> None:
    rewritten(recorded(tmp_path) / "llama3.yaml", "  - release: '25.04'\n", ALSO)
    file, said = shelved(tmp_path, pace(0.8), replaces=True)
    assert said.startswith("replaced: 10.11 s a step of run ")
    assert own(written(tmp_path, file)).cell.step_time == 8.088
    # The older release has none now; what it measures anew is no second number for the later one.
    older = offered(pace(0.9), THIRD).model_copy(update={"release": "25.03"})
    file, said = shelve(file, "llama3", older, verdict="no baseline", replace=False)
    assert said.startswith("recorded: 9.099 s a step")
    assert own(written(tmp_path, file)).cell.step_time == 8.088


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
    assert BaselineFile.model_validate(yaml.load(as_text(file, "lab"), Loader)) == file


# What a run was made with, and what is told of it when it does not reach a recorded number

ONE, TWO = (f"sha256:{digit * 64}" for digit in "12")
GPU = "NVIDIA B200"
LABELS = ("changed", "same", "unknown", "spread")


def node(driver: str) -> str:
    return f"node aks-7, GPUs and driver: 8 {GPU}, {driver}\n"


def lines(judgement: Judgement) -> list[str]:
    """What it says of the run that its number was recorded in."""
    return [line for line in judgement.details if line[:10].strip() in LABELS]


def told(recorded: dict[str, Any], now: dict[str, Any], folder: Path, factor: float = 1.06) -> list[str]:
    """The same of a run that is slower than a first one by `factor`; both by text of the log and outcome."""
    written(folder, shelve(None, "llama3", offered(**recorded), verdict="x", replace=False)[0])
    return lines(judged(pace(factor), own=folder, **now))


# What is known


def test_what_the_run_told_wins_over_what_the_site_states() -> None:
    outcome = examples.outcome(
        images=(ONE,), versions={"image": "nemo-24.07", "driver": "1", "ofed": "24.10"}
    )
    log = examples.parse(node("550.144.03"))
    assert versions_of(outcome, log) == {
        "image": ONE, "driver": "550.144.03", "ofed": "24.10", "gpu": GPU,
    }  # fmt: skip
    assert versions_of(examples.outcome(), Log()) == {}


def test_versions_that_differ_within_a_run_are_told_and_remarked() -> None:
    found = judged(text=node("550.2") + node("550.1"), images=(ONE, TWO))
    assert found.versions["driver"] == "550.1 and 550.2"
    assert found.versions["image"] == f"{ONE} and {TWO}"
    assert "more than one driver in this run: 550.1 and 550.2" in found.verdict.remarks
    assert (
        "more than one image in this run: sha256:111111111111 and sha256:222222222222; a tag may move between two "
        "pulls, a digest cannot"
    ) in found.verdict.remarks
    assert mixed(examples.outcome(images=(ONE,)), examples.parse(node("550.1"))) == []


# What changed


def test_a_run_that_is_too_slow_says_what_changed(tmp_path: Path) -> None:
    nccl = "NCCL version 2.21.5+cuda12.4\n"
    first = {"text": nccl + node("550.54.15"), "images": (ONE,), "nodes": "aks-a, aks-b"}
    second = {"text": nccl + node("550.90.07"), "images": (TWO,), "nodes": "aks-c, aks-d"}
    assert told(first, second, tmp_path) == [
        "changed   driver 550.54.15 -> 550.90.07, image sha256:111111111111 -> sha256:222222222222, nodes aks-a, "
        "aks-b -> aks-c, aks-d",
        f"same      nccl 2.21.5+cuda12.4, gpu {GPU}",
    ]


def test_the_message_names_the_recording_that_it_is_compared_with(tmp_path: Path) -> None:
    found = judged(pace(1.06), own=recorded(tmp_path))
    assert found.verdict.kind is Kind.TOO_SLOW
    assert found.verdict.headline == (
        f"too slow: 10.72 s a step where 10.11 s is expected, as run {FIRST.run} recorded on {FIRST.date}, -5.7 % "
        f"throughput (limit -5 %)"
    )
    place = [line[:10].strip() for line in found.details]
    assert place.index("baseline") < place.index("changed") < place.index("job")


def test_a_run_that_was_given_up_says_so_too(tmp_path: Path) -> None:
    found = judged(
        pace(1.5),
        own=recorded(tmp_path),
        failure="given up",
        message="given up",
        phase=Phase.FAILED,
        nodes="gpu9",
    )
    assert found.verdict.kind is Kind.TOO_SLOW
    assert lines(found) == ["changed   nodes gpu[001-064] -> gpu9", "same      driver 550.90.07"]


def test_what_only_one_run_tells_is_said(tmp_path: Path) -> None:
    first = {"versions": {}, "text": "NCCL version 2.21.5\n"}
    assert told(first, {"images": (ONE,), "versions": {}}, tmp_path) == [
        "changed   nothing that is known: nodes gpu[001-064]",
        "unknown   nccl now (then 2.21.5), image then (now sha256:111111111111)",
    ]


def test_a_table_from_before_versions_were_kept_is_read(tmp_path: Path) -> None:
    path = recorded(tmp_path) / "llama3.yaml"
    rewritten(path, ", nodes: 'gpu[001-064]', versions: {driver: 550.90.07}", "")
    assert lines(judged(pace(1.06), own=tmp_path)) == [
        "changed   not known: there is nothing that both runs tell",
        "unknown   driver then (now 550.90.07), nodes then (now gpu[001-064])",
    ]


def test_of_many_nodes_only_the_first_are_known_to_be_the_same() -> None:
    nodes = {"nodes": "gke-a, gke-b, gke-c and 61 more"}
    assert compare(nodes, nodes).same == ("nodes gke-a, gke-b, gke-c and 61 more (as far as they are named)",)


# Of a job that failed behind its last step a cluster may name the node at fault alone.
def test_the_nodes_of_a_job_that_failed_are_not_compared(tmp_path: Path) -> None:
    assert told({}, {"phase": Phase.FAILED, "nodes": "gpu007"}, tmp_path) == [
        "changed   nothing that is known: driver 550.90.07",
        "unknown   nodes now (then gpu[001-064])",
    ]


def test_a_second_recording_shows_what_is_different_besides(tmp_path: Path) -> None:
    recorded(tmp_path)
    _, said = shelved(tmp_path, pace(1.1), SECOND, nodes="gpu[065-128]")
    assert said.endswith(
        "-9.1 % throughput, with nodes gpu[001-064] -> gpu[065-128], too slow; --replace-baselines takes the new number"
    )
