"""What a probe's job measured, and which baseline it is compared with: that of its own GPUs and versions, or none."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from fixtures.fleet.state import Isolation, PricedCase
from fixtures.session.isolating import PROBES, STEPS, Prober, isolated, proof_of, run_of
from plugins.isolation import PROOF
from plugins.isolation.probes import Expected, Nodes, Probe, Result
from plugins.isolation.search import isolate
from plugins.judging.case_record import record_of
from plugins.judging.job_files import ParsedLogs
from plugins.judging.judgement import Judgement
from plugins.logs import Step
from plugins.recipes.expansion import load_recipe
from plugins.record.folder import LOG
from plugins.record.job import Job, JobRef, JobState
from tests.unit import examples
from tests.unit.chosen import chosen

ROOT = Path(__file__).parents[3]
HEALTHY = (ROOT / "tests" / "unit" / "gpu_logs" / "healthy.log").read_text()
"""20 steps of 8b-8l in bf16 on an H100."""

RECIPE = load_recipe(ROOT / "suites" / "proxy")
CASE = next(case for case in RECIPE.cases if (case.size, case.dtype, case.gpus) == (*PROBES["gpu"], 1))
ALONE, PAIR = Probe(("gpu001",), length=20 // STEPS), Probe(("gpu001", "gpu002"), length=20 // STEPS)


def prober_and_job(folder: Path, text: str, *, gpus: int = 0) -> tuple[Prober, Job]:
    """A prober, and the job of a probe with this log."""
    job = Job(ref=JobRef.of_probe("proxy", "llama3/70b", "isolate2x2.1-gpu001+gpu002", "probe"), gpus=gpus)
    (folder / job.case).mkdir(parents=True)
    (folder / job.case / LOG).write_text(text)
    return Prober(RECIPE, CASE, folder, ROOT / "baselines", ParsedLogs()), job


@pytest.mark.parametrize(
    ("probe", "gpus", "change", "expected"),
    [
        (ALONE, 1, ("", ""), Expected(1.706, 0.05)),
        (ALONE, 1, ("H100 80GB HBM3", "H200"), Expected(1.714, 0.05)),
        (ALONE, 1, ("H100 80GB HBM3", "H100 PCIe"), None),
        (ALONE, 1, ("proxy jax: 0.11.2", "proxy jax: 0.10.2"), None),
        (ALONE, 1, ("proxy jax: 0.11.2", ""), None),
        (ALONE, 8, ("", ""), None),
        (PAIR, 1, ("", ""), None),
    ],
)
def test_a_probe_is_compared_with_the_baseline_of_its_own_gpus_and_versions(
    probe: Probe, gpus: int, change: tuple[str, str], expected: Expected | None, tmp_path: Path
) -> None:
    prober, job = prober_and_job(tmp_path, HEALTHY.replace(*change))
    result = replace(prober, case=replace(CASE, gpus=gpus)).result(probe, [job])
    assert [round(run.seconds, 3) for run in result.runs] == [1.699]
    assert result.expected == expected


def test_a_pair_over_another_network_than_that_of_the_case_measured_nothing(tmp_path: Path) -> None:
    """Its pods may lack what the pods of the case have, such as RDMA devices: all pairs would be alike."""
    socket = "gpu001:77:77 [0] NCCL INFO Using network Socket"
    prober, job = prober_and_job(tmp_path, f"{socket}\n{HEALTHY}")
    assert prober.result(PAIR, [job]).runs
    prober = replace(prober, by_sockets=False)
    assert prober.result(ALONE, [job]).runs
    result = prober.result(PAIR, [job])
    assert not result.runs
    reason = "it tells nothing of the network of the case: NCCL fell back to TCP sockets"
    assert result.reason.startswith(reason)
    assert socket in result.reason


def test_a_probe_that_ran_elsewhere_measured_nothing(tmp_path: Path) -> None:
    prober, job = prober_and_job(tmp_path, HEALTHY)
    assert prober.result(PAIR, [replace(job, state=JobState(nodes="gpu[001-002]"))]).runs
    for nodes in ("gpu001", "gpu[001,003]", "gpu[001-003]"):
        elsewhere = prober.result(PAIR, [replace(job, state=JobState(nodes=nodes))])
        assert (elsewhere.runs, elsewhere.reason) == ((), f"it ran on {nodes}")


@pytest.mark.parametrize(
    ("gpus", "change", "reason"),
    [
        (1, ("", ""), ""),
        (2, ("", ""), "it ran on 2 GPUs, and the others on 1"),
        (1, ("seconds: 1.", "seconds: 0."), ""),
        (1, (r"seconds: \d\.\d+", "seconds: 0.000"), " after 20 of 20 steps"),
    ],
)
def test_a_probe_of_other_gpus_and_one_without_times_measured_nothing(
    gpus: int, change: tuple[str, str], reason: str, tmp_path: Path
) -> None:
    """Of an earlier session, say, whose site file had other nodes; beside the others it would be slow or fast."""
    prober, job = prober_and_job(tmp_path, re.sub(*change, HEALTHY), gpus=gpus)
    result = prober.result(ALONE, [job])
    assert (bool(result.runs), result.reason) == (not reason, reason)


@pytest.mark.parametrize(
    ("seconds", "run"),
    [
        ([1.7] * 7 + [1.83] * 3, (1.83, 7)),
        ([1.7] * 10, (1.7, 0)),
        # Two steps may be stalls.
        ([1.7] * 8 + [1.83] * 2, (1.7, 0)),
        ([1.83] * 10, (1.83, 0)),
    ],
)
def test_a_pace_that_falls_in_the_middle_of_a_probe_is_that_of_its_last_steps(
    seconds: list[float], run: tuple[float, int]
) -> None:
    measured = run_of([Step(index, each) for index, each in enumerate(seconds)])
    assert (measured.seconds, measured.since) == run


def slow_case(folder: Path, more: str = "") -> Judgement:
    """The judgement of a case that is too slow."""
    log = examples.parse(f"{examples.nemo2_text([12.0] * 50)}{more}")
    return examples.judged(examples.case(), examples.outcome(folder=folder), log, examples.baseline())


def test_what_the_slow_job_told_of_a_node_is_in_the_answer_and_in_the_record(tmp_path: Path) -> None:
    xid = "Nov 07 18:17:15 gpu017 kernel: NVRM: Xid (PCI:0000:01:00): 79, GPU has fallen off the bus."
    judged = slow_case(tmp_path, f"{xid}\n")
    search = Isolation(
        lambda _: isolate(Nodes(("gpu001", "gpu002"), {}), 0.1),
        lambda _: PricedCase(CASE, 1.0, 1.0),
        lambda probe, _: Result(probe),
        "maxtext",
        PricedCase(CASE, 1.0, 1.0),
    )
    words = "the job itself told: XID 79 on gpu017; the probes: cannot tell which node: "
    for isolation in ("it is over", search):
        answer = isolated(isolation, judged, [], ParsedLogs())
        assert answer.headline.startswith(words)
        record = record_of(replace(judged, isolated=answer)).isolation
        assert record is not None
        assert (record.headline, record.symptoms) == (answer.headline, ("XID 79 on gpu017",))


@pytest.mark.parametrize(
    ("accused", "nodes", "failure", "headline"),
    [
        (["gpu018"], "gpu[001-016]", "", "not proved without gpu017: what is slow now is gpu018"),
        (["gpu017"], "gpu[016-031]", "", "not proved without gpu017: it ran on gpu017"),
        (["gpu017"], "", "interrupted", "not proved without gpu017: not run: 3 of --isolate 10 are left"),
        (["gpu017"], "gpu[001-016]", "", "without gpu017: 10.07 s a step: within its limits"),
        (["gpu017"], "gpu[001-016]", "slow", "without gpu017: still too slow: 11.5 s a step where it was 12 s"),
    ],
)  # fmt: skip
def test_the_case_without_the_slow_nodes_proves_only_what_it_ran_without(
    accused: Sequence[str], nodes: str, failure: str, headline: str, tmp_path: Path
) -> None:
    case, seconds = examples.case(), 11.5 if failure == "slow" else 10.07
    judged = slow_case(tmp_path / case.key)
    ref = JobRef(case.recipe, f"{case.id}/{PROOF}", "proof", "8")
    state = replace(judged.outcome.job.state, nodes=nodes)
    job = replace(judged.outcome.job, ref=ref, status="ended", excluded=("gpu017",), state=state)
    if failure == "interrupted":
        job = replace(job, failure="interrupted", message="not run: 3 of --isolate 10 are left")
    (tmp_path / job.case).mkdir(parents=True)
    (tmp_path / job.case / LOG).write_text(examples.nemo2_text([seconds] * 50))
    proof = proof_of(chosen(case), judged, frozenset(accused), [job], ParsedLogs())
    assert proof is not None
    assert (proof.nodes, proof.headline) == (("gpu017",), headline)
    assert proof_of(chosen(case), judged, frozenset(accused), [], ParsedLogs()) is None
