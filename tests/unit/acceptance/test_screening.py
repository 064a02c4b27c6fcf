"""A screening by the records of its cases: which nodes fail, by their own verdicts and beside the others, and what reports show."""

from __future__ import annotations

import io
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fixtures.backends.kubernetes.blame import Broken, broken, first_deleted
from fixtures.backends.kubernetes.facts import Pod
from plugins.acceptance.screening import NodeLists, compares, heat_map, print_screening, screening, shade
from plugins.record.case import CaseRecord, EarlierJob, JobRecord, Means
from plugins.record.folder import FAILING_NODES, PASSING_NODES
from plugins.record.job import Job, JobRef, JobState, Phase
from plugins.record.summary import NodeState, Screening, Summary
from plugins.record.verdict import Kind
from plugins.reports.ci_files import ctrf, metrics, verdicts
from plugins.reports.page import PageReport
from tests.unit import examples
from tests.unit.reports import example_run

CASE = "proxy/8b-8l-bf16-8gpus"
SECONDS = 1.7


def record(node: str, slowness: float = 0.0, verdict: Kind = Kind.PASSED, ran: bool = True) -> CaseRecord:
    """The record of a node that is so much slower than the others."""
    case_id = f"{CASE}.{node}".partition("/")[2]
    job = Job(ref=JobRef("proxy", case_id, "name", "1"), state=JobState(nodes=node if ran else ""))
    seconds = SECONDS * (1 + slowness) if verdict in (Kind.PASSED, Kind.TOO_SLOW, Kind.NO_BASELINE) else None
    return replace(
        CaseRecord.unjudged(job, ""),
        verdict=verdict,
        headline=f"{verdict}: because",
        step_time=seconds,
        steady_median=seconds,
        statistic="mean:10-19",
        configuration={},
        slow_gpus=(),
        means=Means(over=1, every=1, judged=1),
    )


def fleet(
    count: int, slow: Mapping[int, float] | None = None, *, verdict: Kind = Kind.PASSED, noise: float = 0.004
) -> list[CaseRecord]:
    """So many nodes, with the noise of healthy ones; some are slower."""
    scatter = random.Random(count)
    return [
        record(f"gpu{number:03}", scatter.gauss((slow or {}).get(number, 0.0), noise), verdict)
        for number in range(1, count + 1)
    ]


def screened(
    records: Sequence[CaseRecord], leaves: Mapping[str, str] | None = None, causes: Sequence[str] = ()
) -> Screening:
    result = screening(records, leaves or {}, lambda slow, good: causes)
    assert result is not None
    return result


def states(result: Screening) -> set[NodeState]:
    return {node.state for node in result.nodes}


def state_of(last: CaseRecord) -> tuple[NodeState, str]:
    """The state of this node beside eight healthy ones, and the reason."""
    node = next(node for node in screened([*fleet(8), last]).nodes if node.node == last.job.nodes)
    return node.state, node.reason


def by_baseline(records: Sequence[CaseRecord]) -> Screening:
    """The screening if each of these nodes passed by a baseline."""
    return screened([replace(record, verdict=Kind.PASSED) for record in records])


def slow_ones(last: int, slowness: float, first: int = 1) -> dict[int, float]:
    return dict.fromkeys(range(first, last + 1), slowness)


def gpus(*numbers: int) -> list[str]:
    return [f"gpu{number:03}" for number in numbers]


def having(result: Screening, state: NodeState) -> list[str]:
    return sorted(node.node for node in result.having(state))


@pytest.mark.parametrize("count", [3, 4, 8, 16, 64, 256])
def test_healthy_nodes_pass(count: int) -> None:
    result = screened(fleet(count))
    assert states(result) == {NodeState.PASSING}
    assert result.unlike == ()
    assert "0 failing, 0 not judged" in result.headline


@pytest.mark.parametrize("count", [8, 16, 64, 256])
def test_a_node_that_passes_its_baseline_fails_beside_its_peers(count: int) -> None:
    result = screened(fleet(count, {5: 0.049}), causes=["GPU 3: a step alone takes 0.3 s", "another"])
    assert having(result, NodeState.FAILING) == ["gpu005"] == list(result.unlike)
    assert result.nodes[0].node == "gpu005"
    assert "slower than its peers (limit " in result.nodes[0].reason
    assert result.nodes[0].reason.endswith("; GPU 3: a step alone takes 0.3 s")
    assert "1 failing (gpu005)" in result.headline


def test_the_cause_of_a_verdict_is_not_repeated() -> None:
    records = fleet(16)
    records[4] = record("gpu005", 0.09, Kind.TOO_SLOW)
    result = screened(records, causes=["GPU 3 ..."])
    assert result.nodes[0].reason.startswith("too slow: because; ")
    assert "GPU 3" not in result.nodes[0].reason


@pytest.mark.parametrize(
    ("verdict", "ran", "state"),
    [
        (Kind.TOO_SLOW, True, NodeState.FAILING),
        (Kind.NOISY, True, NodeState.FAILING),
        (Kind.INVALID, True, NodeState.FAILING),
        (Kind.INFRASTRUCTURE, True, NodeState.FAILING),
        (Kind.INFRASTRUCTURE, False, NodeState.NOT_JUDGED),
        (Kind.TOO_FAST, True, NodeState.NOT_JUDGED),
        (Kind.LOST, True, NodeState.NOT_JUDGED),
        (Kind.SKIPPED, False, NodeState.NOT_JUDGED),
    ],
)
def test_a_node_fails_by_the_verdict_on_its_case(verdict: Kind, ran: bool, state: NodeState) -> None:
    result = screened([*fleet(8), record("gpu009", 0.0, verdict, ran)])
    node = result.nodes[0]
    assert (node.node, node.state, node.reason) == ("gpu009", state, f"{verdict}: because")
    assert len(having(result, NodeState.PASSING)) == 8


def test_without_a_baseline_the_peers_decide() -> None:
    result = screened(fleet(16, {2: 0.08}, verdict=Kind.NO_BASELINE))
    assert having(result, NodeState.FAILING) == ["gpu002"]
    assert len(having(result, NodeState.PASSING)) == 15


@pytest.mark.parametrize("count", [1, 2])
def test_too_few_nodes_are_not_compared(count: int) -> None:
    """A node without a baseline has then been compared with nothing."""
    result = screened(fleet(count, {1: 0.5}, verdict=Kind.NO_BASELINE))
    assert states(result) == {NodeState.NOT_JUDGED}
    assert result.limit is None
    assert "too few were measured" in result.headline
    assert states(screened(fleet(count))) == {NodeState.PASSING}


def test_two_kinds_of_nodes_accuse_nobody_and_the_slower_kind_does_not_pass() -> None:
    result = screened(fleet(16, slow_ones(6, 0.04), noise=0.002))
    assert having(result, NodeState.FAILING) == []
    assert having(result, NodeState.NOT_JUDGED) == sorted(result.unlike) == gpus(*range(1, 7))
    assert "two kinds of nodes: 10 take about 1.7" in result.headline


@pytest.mark.parametrize(("fast", "slow"), [(1, 2), (1, 3), (2, 3), (3, 4), (3, 5), (5, 11)])
def test_slow_nodes_do_not_pass_because_most_are_slow(fast: int, slow: int) -> None:
    result = screened(fleet(fast + slow, slow_ones(slow, 0.3), verdict=Kind.NO_BASELINE, noise=0.001))
    assert having(result, NodeState.FAILING) == []
    assert len(having(result, NodeState.NOT_JUDGED)) == len(result.unlike) == slow
    assert f"two kinds of nodes: {fast} take about" in result.headline


@pytest.mark.parametrize(("fast", "slow"), [(1, 4), (3, 10), (1, 255), (50, 206)])
def test_slow_nodes_do_not_pass_beside_a_few_fast_ones(fast: int, slow: int) -> None:
    """Fewer than a quarter are no kind; a baseline tells that the others are well."""
    records = fleet(fast + slow, slow_ones(slow, 0.08), verdict=Kind.NO_BASELINE, noise=0.003)
    result = screened(records)
    assert states(result) == {NodeState.NOT_JUDGED}
    assert f"; {fast} take about 1." in result.headline
    assert not compares(result)
    assert states(by_baseline(records)) == {NodeState.PASSING}
    assert compares(by_baseline(records))


@pytest.mark.parametrize("fast", [60, 62, 63])
def test_slow_nodes_are_not_of_a_kind_that_is_filled_up_with_them(fast: int) -> None:
    """Of 256 nodes a kind has 64 at least."""
    result = screened(fleet(256, slow_ones(256, 0.08, fast + 1), verdict=Kind.NO_BASELINE, noise=0.003))
    assert "two kinds of nodes: 64 take about" in result.headline
    assert having(result, NodeState.PASSING) == gpus(*range(1, fast + 1))


@pytest.mark.parametrize("half", [2, 3])
def test_nodes_that_scatter_too_much_pass_by_a_baseline_alone(half: int) -> None:
    """Two of four nodes are 30 % slower, and the limit by their scatter is above 90 %."""
    records = fleet(2 * half, slow_ones(half, 0.3), verdict=Kind.NO_BASELINE)
    result = screened(records)
    assert states(result) == {NodeState.NOT_JUDGED}
    assert "they scatter too much to pass beside each other" in result.headline
    assert states(by_baseline(records)) == {NodeState.PASSING}


@pytest.mark.parametrize("count", [1, 2, 8])
def test_a_gpu_that_is_slower_than_the_others_of_its_node_is_named_without_a_baseline(count: int) -> None:
    slow_gpu = "GPU 1: in whatever words"
    records = fleet(count, verdict=Kind.NO_BASELINE)
    records = [replace(record, remarks=("a stall",)) for record in records]
    records[0] = replace(records[0], remarks=("a stall", slow_gpu), slow_gpus=(slow_gpu,))
    node, *others = screened(records).nodes
    assert (node.node, node.state) == ("gpu001", NodeState.NOT_JUDGED)
    assert {other.reason for other in others if other.state is NodeState.PASSING} <= {"no baseline"}
    assert node.reason == f"{slow_gpu}; no baseline; a stall"


def taken(reason: str) -> str:
    """What a job's state says of a pod that the cluster took away for this reason."""
    condition = {"type": "DisruptionTarget", "status": "True", "reason": reason, "message": "x"}
    item = {
        "metadata": {"name": "run-0"},
        "spec": {"nodeName": "gpu009"},
        "status": {"conditions": [condition]},
    }
    return str(*broken([Pod(item)]))


def deleted() -> str:
    metadata = {"name": "run-0", "deletionTimestamp": "2026-11-21T09:00:00Z"}
    return str(*first_deleted([Pod({"metadata": metadata, "spec": {"nodeName": "gpu009"}})]))


@pytest.mark.parametrize(
    ("raw", "reason", "state"),
    [
        ("CANCELLED by 0", "", NodeState.NOT_JUDGED),
        ("PREEMPTED", "", NodeState.NOT_JUDGED),
        ("Failed", taken("EvictionByEvictionAPI"), NodeState.NOT_JUDGED),
        ("Failed", taken("PreemptionByScheduler"), NodeState.NOT_JUDGED),
        ("Failed", deleted(), NodeState.NOT_JUDGED),
        ("Failed", taken("DeletionByTaintManager"), NodeState.FAILING),
        ("Failed", str(Broken("run-0", "gpu009", "c", "1", "it was deleted")), NodeState.FAILING),
        ("NODE_FAIL", "", NodeState.FAILING),
        ("TIMEOUT", "", NodeState.FAILING),
    ],
)
def test_a_job_that_others_ended_accuses_no_node(raw: str, reason: str, state: NodeState) -> None:
    """The words are those of the judge and of the backend."""
    outcome = examples.outcome(raw=raw, reason=reason, phase=Phase.FAILED, nodes="gpu009")
    log = examples.parse(examples.nemo2_text([10.0] * 4))
    verdict = examples.judged(examples.case(), outcome, log, examples.baseline()).verdict
    assert verdict.kind is Kind.INFRASTRUCTURE
    ended = record("gpu009", verdict=verdict.kind)
    ended = replace(ended, headline=verdict.headline, job=JobRecord.of(outcome.job))
    assert state_of(ended) == (state, ended.headline)


def test_a_job_that_the_session_cancelled_because_it_hung_accuses_its_node() -> None:
    ended = record("gpu009", verdict=Kind.INFRASTRUCTURE)
    job = replace(ended.job, state="CANCELLED by 1000")
    ended = replace(ended, headline="infrastructure: no new step for 600 s, the last was 3", job=job)
    assert state_of(ended)[0] is NodeState.FAILING


@pytest.mark.parametrize(
    ("raw", "nodes", "failure", "state"),
    [
        ("FAILED", "gpu009", "", NodeState.NOT_JUDGED),
        ("RUNNING", "gpu009", "infrastructure", NodeState.NOT_JUDGED),
        ("COMPLETED", "gpu009", "repeated", NodeState.PASSING),
        ("CANCELLED", "gpu009", "interrupted", NodeState.PASSING),
        ("PREEMPTED", "gpu009", "", NodeState.PASSING),
        ("", "", "infrastructure", NodeState.PASSING),
    ],
)
def test_a_node_on_which_a_job_broke_does_not_pass_by_the_next_one(
    raw: str, nodes: str, failure: Any, state: NodeState
) -> None:
    before = Job(ref=JobRef("proxy", "x", "x"), state=JobState(raw=raw, nodes=nodes), failure=failure)
    remark = "1 job of this case ended as infrastructure before"
    last = replace(record("gpu009"), earlier_jobs=(EarlierJob.of(before),), remarks=(remark,))
    assert state_of(last) == (state, remark)


def test_a_job_that_a_stopped_session_cancelled_accuses_no_node() -> None:
    stopped = replace(record("gpu009", verdict=Kind.INFRASTRUCTURE), configuration=None)
    assert state_of(stopped)[0] is NodeState.NOT_JUDGED


def test_what_is_no_evidence_is_no_peer() -> None:
    """Else broken nodes would set the pace."""
    odd = [replace(record(f"odd{n}", 0.0, Kind.INVALID), step_time=0.1, steady_median=0.1) for n in range(9)]
    result = screened([*fleet(8), *odd])
    assert len(having(result, NodeState.PASSING)) == 8
    assert {node.seconds for node in result.having(NodeState.FAILING)} == {None}


# What reports show of 256 nodes

LEAVES = {f"gpu{number:03}": f"leaf{(number - 1) // 32:02}" for number in range(1, 257)}


@pytest.fixture(scope="module")
def large() -> tuple[list[CaseRecord], Screening]:
    records = fleet(256, {17: 0.09, 200: 0.03})
    records[16] = record("gpu017", 0.09, Kind.TOO_SLOW)
    records[40] = record("gpu041", 0.0, Kind.INFRASTRUCTURE)
    records[90] = record("gpu091", 0.0, Kind.SKIPPED, ran=False)
    return records, screened(records, LEAVES)


@pytest.fixture
def summary(large: tuple[list[CaseRecord], Screening], tmp_path: Path) -> Summary:
    records, result = large
    return replace(example_run.make(tmp_path, kinds=()), cases=tuple(records), screening=result)


def test_the_terminal_shows_the_worst_first(large: tuple[list[CaseRecord], Screening]) -> None:
    text = io.StringIO()
    print_screening(large[1], text, 120, colour=False)
    lines = text.getvalue().splitlines()
    assert lines[0].split()[:3] == ["node", "state", "s/step"]
    nodes = [line.split()[0] for line in lines[1:] if line.startswith("gpu")]
    assert nodes[:4] == gpus(17, 200, 41, 91)
    assert lines[-2] == "and 242 nodes that pass and are as fast as these or faster"
    counts = "256 nodes, 3 failing (gpu017, gpu200, gpu041), 1 not judged (gpu091), 252 passing; what is "
    assert lines[-1].startswith(counts)


def test_the_map_has_a_row_for_each_leaf(large: tuple[list[CaseRecord], Screening]) -> None:
    rows = heat_map(large[1])
    assert list(rows) == [f"leaf{number:02}" for number in range(8)]
    assert [node.node for node in rows["leaf00"]] == gpus(*range(1, 33))
    shades = {node.node: shade(large[1], node) for nodes in rows.values() for node in nodes}
    assert (shades["gpu017"], shades["gpu200"], shades["gpu041"]) == (5, 5, 5)
    assert list(heat_map(screened(fleet(40)))) == ["gpu001 to gpu032", "gpu033 to gpu040"]


def test_the_page_and_the_lists_have_each_node(summary: Summary, tmp_path: Path) -> None:
    html, markdown = PageReport().render(tmp_path, summary)
    for number in range(1, 257):
        assert html.count(f'id="node-gpu{number:03}"') == html.count(f'href="#node-gpu{number:03}"') == 1
    assert html.index('id="node-gpu017"') < html.index('id="node-gpu200"') < html.index('id="node-gpu001"')
    # No other table has them again but those of jobs.
    assert 'id="matrix"' not in html
    assert 'id="verdicts"' not in html
    assert markdown.index("| gpu017 |") < markdown.index("| gpu001 |")
    assert "## Verdicts" not in markdown
    assert summary.screening is not None
    assert f"- screening: `{summary.screening.headline}`" in verdicts(summary, 1 << 20)
    NodeLists().write(summary, tmp_path)
    assert (tmp_path / FAILING_NODES).read_text() == "gpu017\ngpu041\ngpu200\n"
    assert len((tmp_path / PASSING_NODES).read_text().splitlines()) == 252


def test_ci_reads_that_a_node_is_slow_whose_own_case_passed(summary: Summary) -> None:
    *cases, peers = ctrf(summary)["results"]["tests"]
    slow = next(case for case in cases if case["name"].endswith(".gpu200"))
    assert (slow["status"], peers["name"], peers["status"]) == ("passed", "test_peers", "failed")
    assert "gpu200" in peers["message"]
    assert 'pacemark_nodes{state="failing"} 3\npacemark_nodes{state="not judged"} 1\n' in metrics(summary)
    too_few = replace(summary, screening=screened(fleet(2)))
    assert ctrf(too_few)["results"]["tests"][-1]["status"] == "skipped"
