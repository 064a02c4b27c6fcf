"""A slow case is held while its nodes are probed: no node twice at once, and what is damaged ends the probes alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import pytest

from fixtures.fleet.isolate import LEAVES
from fixtures.fleet.state import Isolation, Policy, PricedCase
from plugins.base.errors import Absent, Infrastructure, SubmitError
from plugins.isolation import PROOF
from plugins.isolation.probes import Answer, Nodes, Probe, Result, Run, Search
from plugins.isolation.rounds import ProbeJob, nodes_of
from plugins.isolation.search import isolate
from plugins.recipes.cases import Case
from plugins.record.job import Job, JobRef, JobState, Phase
from tests.unit.cluster import MIDDLE, NARROW, Cluster, Session, Start, told

NODES = tuple(f"gpu{number:03}" for number in range(1, 9))
ALL_ALIKE = 8 + 8 + 4
Measure = Callable[[Probe], Result]


class Chooses(Cluster):
    """A cluster that sends jobs to given nodes, and cannot be asked for their leaves. `running` are its jobs now."""

    def __init__(self) -> None:
        super().__init__()
        self.running: set[str] = set()

    def submit(self, case: Case, name: str, excluded: tuple[str, ...] = ()) -> JobRef:
        self.running.add(name)
        return super().submit(case, name, excluded)

    def _state(self, job: JobRef) -> JobState:
        self.running.discard(job.name)
        return super()._state(job)

    def on_nodes(self, nodes: str) -> Chooses:
        return self

    def leaves(self) -> Mapping[str, str]:
        raise Absent("scontrol: no such program")


@pytest.fixture
def cluster() -> Chooses:
    return Chooses()


def policy(measure: Measure = lambda probe: Result(probe, (Run(1.0, 0.001),)), hours: float = 1e6) -> Policy:
    """Calls each case too slow. Unless `measure` says otherwise, its nodes are all alike."""

    def search(leaves: Mapping[str, str]) -> Search[Answer]:
        return isolate(Nodes(NODES, leaves), 0.08)

    def measured(probe: Probe, _jobs: Sequence[Job]) -> Result:
        return measure(probe)

    isolation = Isolation(
        search, lambda _probe: PricedCase(NARROW, 2.0, 1.0), measured, "nemo2", PricedCase(MIDDLE, 10.0, 20.0)
    )
    return Policy(isolate=lambda *_: isolation, gpu_hours=hours)


SLOW = "gpu003"


def slow_node(probe: Probe) -> Result:
    """What probes measure if `SLOW` is 9 % slow."""
    return Result(probe, (Run(1.09 if SLOW in probe.nodes else 1.0, 0.001),) * probe.runs)


def proofs(session: Session) -> list[Job]:
    return [entry for entry in session.ledger.entries() if entry.ref.mode == PROOF]


def probes(session: Session, status: str = "") -> list[tuple[str, ...]]:
    """The nodes of each probe with this status, of any if none is given."""
    jobs = [
        ProbeJob.parse(entry.ref.mode)
        for entry in session.ledger.entries()
        if entry.status == status or not status
    ]
    return [job.probe.nodes for job in jobs if job is not None]


def test_each_probe_is_submitted_once_and_those_of_two_cases_share_no_node_at_once(
    cluster: Chooses, start: Start
) -> None:
    most: list[int] = []

    def look(_name: str) -> None:
        modes = [name[name.index("isolate") :] for name in list(cluster.running) if "isolate" in name]
        nodes = Counter(node for mode in modes for node in nodes_of(mode).split(","))
        most.append(max(nodes.values(), default=0))

    cluster.on_submit = look
    session = start(MIDDLE, NARROW, policy=policy())
    entries = session.finish()
    assert [entries[case.id].failure for case in (MIDDLE, NARROW)] == ["", ""]
    assert len(probes(session, "ended")) == 2 * ALL_ALIKE
    assert len(cluster.submitted) == len(set(cluster.submitted)) == 2 + 2 * ALL_ALIKE
    assert max(most) == 1


@pytest.mark.parametrize("text", ["[]", "{", "7"])
def test_a_damaged_list_of_leaves_ends_the_probes_and_nothing_else(
    text: str, cluster: Chooses, start: Start
) -> None:
    def damage(name: str) -> None:
        if "isolate1" in name:
            (session.fleet.folder / MIDDLE.key / LEAVES).write_text(text)

    cluster.on_submit = damage
    session = start(MIDDLE, policy=policy())
    case = session.finish()[MIDDLE.id]
    assert (case.status, case.failure, session.fleet.defect) == ("ended", "", "")
    assert len(probes(session)) == len(NODES)
    assert any(f"{MIDDLE.key}: no further probe: " in line for line in told(session))


@pytest.mark.parametrize(
    "error", [OSError("input/output error"), Infrastructure("artefacts.json is damaged")]
)
def test_a_probe_that_cannot_be_read_ends_the_probes_and_nothing_else(
    error: Exception, cluster: Chooses, start: Start
) -> None:
    def measure(_probe: Probe) -> Result:
        raise error

    session = start(MIDDLE, policy=policy(measure))
    case = session.finish()[MIDDLE.id]
    assert (case.status, case.failure, session.fleet.defect) == ("ended", "", "")
    assert len(probes(session)) == len(NODES)


def test_probes_that_all_fail_are_tried_once_more_and_then_no_more(cluster: Chooses, start: Start) -> None:
    session = start(MIDDLE, policy=policy(lambda probe: Result(probe, reason="no jax")))
    assert session.finish()[MIDDLE.id].failure == ""
    assert len(probes(session, "ended")) == 2 * len(NODES)


def test_a_round_beyond_the_budget_is_recorded_and_not_run(cluster: Chooses, start: Start) -> None:
    session = start(MIDDLE, policy=policy(hours=10))
    assert session.finish()[MIDDLE.id].failure == ""
    assert len(cluster.submitted) == 1 + len(NODES)
    (refused,) = (entry for entry in session.ledger.entries() if "not run: " in entry.message)
    assert refused.message == (
        "not run: round 2 of the isolation, 4 probes (about 4 GPU-hours): 2 of --isolate 10 are left"
    )


def test_a_round_of_more_probes_than_run_at_once_says_so(cluster: Chooses, start: Start) -> None:
    session = start(MIDDLE, policy=policy(), jobs_in_flight=4)
    session.finish()
    assert [line.partition("round ")[2] for line in told(session) if "of the isolation" in line][:2] == [
        "1 of the isolation, 8 probes (about 8 GPU-hours), 4 at once (limits.jobs_in_flight)",
        "2 of the isolation, 4 probes (about 4 GPU-hours)",
    ]


def test_the_case_runs_once_more_without_the_nodes_that_slow_it(cluster: Chooses, start: Start) -> None:
    session = start(MIDDLE, policy=policy(slow_node))
    assert session.finish()[MIDDLE.id].failure == ""
    (proof,) = proofs(session)
    assert (proof.case, proof.excluded, proof.failure) == (f"{MIDDLE.key}/proof", (SLOW,), "")
    assert cluster.submitted[-1] == proof.ref.name
    assert (cluster.excluded[0], cluster.excluded[-1]) == ((), (SLOW,))


def test_a_proof_beyond_the_budget_is_recorded_and_not_run(cluster: Chooses, start: Start) -> None:
    session = start(MIDDLE, policy=policy(slow_node, hours=30))
    assert session.finish()[MIDDLE.id].failure == ""
    (proof,) = proofs(session)
    assert proof.times.submitted is None
    assert (
        proof.message == f"not run: the case without {SLOW} (about 20 GPU-hours): 11 of --isolate 30 are left"
    )


def test_a_proof_that_the_cluster_refuses_leaves_the_verdict(cluster: Chooses, start: Start) -> None:
    def refuse(name: str) -> None:
        if name.endswith(PROOF):
            raise SubmitError("Requested node configuration is not available")

    cluster.on_submit = refuse
    session = start(MIDDLE, policy=policy(slow_node))
    assert session.finish()[MIDDLE.id].failure == ""
    (proof,) = proofs(session)
    assert proof.failure == "infrastructure"
    assert "Requested node configuration is not available" in proof.message


def test_of_the_probes_those_that_fail_are_told(cluster: Chooses, start: Start) -> None:
    def fail(name: str) -> None:
        if name.endswith("isolate1x1.1-gpu003"):
            cluster.ends[name] = [JobState(Phase.FAILED, "NODE_FAIL", nodes="gpu003")]

    cluster.on_submit = fail
    session = start(MIDDLE, policy=policy())
    session.finish()
    lines = [line.partition(" ")[2] for line in told(session)]
    assert sum("of the isolation" in line for line in lines) == 4
    (line,) = (line for line in lines if "isolate1x" in line or "isolate2x" in line)
    assert line.partition(": ")[0].endswith("isolate1x1.1-gpu003")
    assert "node_fail" in line
