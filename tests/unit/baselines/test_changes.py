"""What a run was made with, and what is told of it when it does not reach a recorded number."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from plugins.baselines.changes import compare, mixed, versions_of
from plugins.judging.judgement import Judgement
from plugins.judging.shelving import shelve
from plugins.logs import Log
from plugins.record.case import CaseRecord
from plugins.record.job import Job, JobRef, Phase
from plugins.record.verdict import Kind
from tests.unit import examples
from tests.unit.examples import record_json
from tests.unit.own_tables import (
    FIRST,
    SECOND,
    judged,
    offered,
    own,
    pace,
    recorded,
    rewritten,
    shelved,
    written,
)

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


def test_the_record_of_a_case_has_the_versions_whole() -> None:
    found = judged(text="NCCL version 2.21.5\n", images=(ONE,))
    assert record_json(found)["versions"] == {"driver": "550.90.07", "image": ONE, "nccl": "2.21.5"}
    assert CaseRecord.unjudged(Job(ref=JobRef("llama3", "x", "n", "1")), "Ctrl-C").versions is None


def test_they_are_recorded_and_told_where_the_number_comes_from(tmp_path: Path) -> None:
    run = {"text": node("550.144.03"), "images": (ONE,)}
    assert told(run, run, tmp_path)
    cell = own(tmp_path).cell
    assert cell.recorded is not None
    assert cell.recorded.versions == {"driver": "550.144.03", "image": ONE, "gpu": GPU}
    assert own(tmp_path).origin.endswith(
        f"(1 run, spread 0.29 %, driver 550.144.03, image sha256:111111111111, gpu {GPU}), release 25.04 on b200"
    )


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


@pytest.mark.parametrize(
    ("factor", "kind", "said"),
    [(1.0, Kind.PASSED, False), (1.06, Kind.TOO_SLOW, True), (0.8, Kind.TOO_FAST, True)],
)
def test_it_is_said_where_the_case_does_not_pass(
    tmp_path: Path, factor: float, kind: Kind, said: bool
) -> None:
    found = judged(pace(factor), own=recorded(tmp_path))
    assert (found.verdict.kind, bool(lines(found))) == (kind, said)


def test_a_noisy_run_says_so_with_both_spreads(tmp_path: Path) -> None:
    unstable = [seconds * (1.06 if i % 2 else 0.94) for i, seconds in enumerate(examples.times())]
    found = judged(unstable, own=recorded(tmp_path))
    assert found.verdict.kind is Kind.NOISY
    assert lines(found) == [
        "changed   nothing that is known: driver 550.90.07, nodes gpu[001-064]",
        "spread    0.29 % when recorded, 8.9 % now",
    ]


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
