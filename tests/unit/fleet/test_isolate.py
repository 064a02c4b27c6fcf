"""A slow case is held while its nodes are probed: no node twice at once, and whatever becomes of the probes, it ends as its own job did."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from fixtures.backends.section import Limits
from fixtures.backends.slurm.backend import SlurmBackend
from fixtures.fleet import isolate as isolating
from fixtures.fleet.controller import Fleet
from fixtures.fleet.isolate import LEAVES
from fixtures.fleet.job import TrackedJob
from fixtures.fleet.jobs import TrackedJobs
from fixtures.fleet.state import Isolation, Policy, PricedCase
from fixtures.runs.ledger import Ledger
from fixtures.runs.planned import PlannedJob
from fixtures.runs.resume import resumed
from plugins.base.errors import Absent, ConfigError, Infrastructure, SubmitError
from plugins.isolation import PROOF
from plugins.isolation.probes import Answer, Nodes, Probe, Result, Run, Search
from plugins.isolation.rounds import ProbeJob, nodes_of
from plugins.isolation.search import isolate
from plugins.recipes.cases import Case
from plugins.record.job import Job, JobRef, JobState, Phase
from plugins.record.lines import JOBS_LOG
from tests.unit import examples
from tests.unit.cluster import MIDDLE, NARROW, Cluster, Session, Site, Start, failing, until
from tests.unit.jobs_log import planned

NODES = tuple(f"gpu{number:03}" for number in range(1, 9))
FIRST, SECOND = (f"isolate1x1.1-{node}" for node in NODES[:2])
ALL_ALIKE = 8 + 8 + 4
SLOW = "gpu003"
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


def isolation(measure: Measure = lambda probe: Result(probe, (Run(1.0, 0.001),))) -> Isolation:
    """The search in a case that is too slow. Unless `measure` says otherwise, its nodes are all alike."""

    def search(leaves: Mapping[str, str]) -> Search[Answer]:
        return isolate(Nodes(NODES, leaves), 0.08)

    def measured(probe: Probe, _jobs: Sequence[Job]) -> Result:
        return measure(probe)

    of_probe, proof = PricedCase(NARROW, 2.0, 1.0), PricedCase(MIDDLE, 10.0, 20.0)
    return Isolation(search, lambda _probe: of_probe, measured, "nemo2", proof)


def policy(*measure: Measure, hours: float = 1e6) -> Policy:
    """Calls each case too slow."""
    return Policy(isolate=lambda *_: isolation(*measure), gpu_hours=hours)


def slow_node(probe: Probe) -> Result:
    """What probes measure if `SLOW` is 9 % slow."""
    return Result(probe, (Run(1.09 if SLOW in probe.nodes else 1.0, 0.001),) * probe.runs)


def ended_well(session: Session) -> bool:
    """Whether the case ended as its own job did."""
    case = session.end()
    return (case.status, case.failure, case.message, session.fleet.defect) == ("ended", "", "", "")


def probes(session: Session) -> list[ProbeJob]:
    jobs = [ProbeJob.parse(entry.ref.mode) for entry in session.ledger.entries()]
    return [job for job in jobs if job is not None]


def proof_of(session: Session) -> Job:
    (proof,) = (entry for entry in session.ledger.entries() if entry.ref.mode == PROOF)
    return proof


# The rounds of probes


def test_each_probe_is_submitted_once_and_those_of_two_cases_share_no_node_at_once(
    cluster: Chooses, start: Start
) -> None:
    most = list[int]()

    def look(_name: str) -> None:
        modes = [name[name.index("isolate") :] for name in list(cluster.running) if "isolate" in name]
        nodes = Counter(node for mode in modes for node in nodes_of(mode).split(","))
        most.append(max(nodes.values(), default=0))

    cluster.on_submit = look
    session = start(MIDDLE, NARROW, policy=policy())
    assert ended_well(session)
    assert session.job(NARROW).failure == ""
    assert {entry.status for entry in session.ledger.entries()} == {"ended"}
    assert len(probes(session)) == 2 * ALL_ALIKE
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
    assert ended_well(session)
    assert len(probes(session)) == len(NODES)
    assert any(line.startswith(f"{MIDDLE.key}: no further probe: ") for line in session.messages())


@pytest.mark.parametrize(
    "error", [OSError("input/output error"), Infrastructure("artefacts.json is damaged")]
)
def test_a_probe_that_cannot_be_read_ends_the_probes_and_nothing_else(error: Exception, start: Start) -> None:
    session = start(MIDDLE, policy=policy(failing(error)))
    assert ended_well(session)
    assert len(probes(session)) == len(NODES)


def test_a_round_beyond_the_budget_is_recorded_and_not_run(cluster: Chooses, start: Start) -> None:
    session = start(MIDDLE, policy=policy(hours=10))
    assert ended_well(session)
    assert len(cluster.submitted) == 1 + len(NODES)
    assert [entry.message for entry in session.ledger.entries() if entry.message] == [
        "not run: round 2 of the isolation, 4 probes (about 4 GPU-hours): 2 of --isolate 10 are left"
    ]


def test_a_round_of_more_probes_than_run_at_once_says_so(start: Start) -> None:
    session = start(MIDDLE, policy=policy(), jobs_in_flight=4)
    session.finish()
    rounds = [line.partition("round ")[2] for line in session.messages() if "of the isolation" in line]
    assert rounds[:2] == [
        "1 of the isolation, 8 probes (about 8 GPU-hours), 4 at once (limits.jobs_in_flight)",
        "2 of the isolation, 4 probes (about 4 GPU-hours)",
    ]


# The case once more without the nodes that slow it


def test_the_case_runs_once_more_without_the_nodes_that_slow_it(cluster: Chooses, start: Start) -> None:
    session = start(MIDDLE, policy=policy(slow_node))
    assert ended_well(session)
    proof = proof_of(session)
    assert (proof.case, proof.excluded, proof.failure) == (f"{MIDDLE.key}/proof", (SLOW,), "")
    assert cluster.submitted[-1] == proof.ref.name
    assert (cluster.excluded[0], cluster.excluded[-1]) == ((), (SLOW,))


def test_a_proof_beyond_the_budget_is_recorded_and_not_run(start: Start) -> None:
    session = start(MIDDLE, policy=policy(slow_node, hours=30))
    assert ended_well(session)
    proof = proof_of(session)
    reason = f"the case without {SLOW} (about 20 GPU-hours): 11 of --isolate 30 are left"
    assert (proof.times.submitted, proof.message) == (None, f"not run: {reason}")


def test_a_proof_that_the_cluster_refuses_leaves_the_verdict(cluster: Chooses, start: Start) -> None:
    reason = "Requested node configuration is not available"
    cluster.on_submit = failing(SubmitError(reason), f"{MIDDLE.id}-{PROOF}")
    session = start(MIDDLE, policy=policy(slow_node))
    assert ended_well(session)
    proof = proof_of(session)
    assert proof.failure == "infrastructure"
    assert reason in proof.message


def test_the_id_of_a_proof_names_its_case() -> None:
    recipe = examples.llama3()
    assert recipe.case(f"{NARROW.id}/proof") is recipe.case(NARROW.id)
    assert recipe.case(f"{NARROW.id}/profile") is recipe.case("x/proof") is None


# The case that is held


def test_no_test_sees_its_case_as_ended_before_its_probes_have_ended(cluster: Chooses, start: Start) -> None:
    statuses = set[str]()

    def look(name: str) -> None:
        if "isolate" in name:
            statuses.update(entry.status for entry in session.ledger.entries() if entry.is_case)

    cluster.on_submit = look
    session = start(NARROW, policy=policy())
    assert ended_well(session)
    assert statuses == {"submitted"}
    case, probe = session.job(NARROW), session.ledger.isolating(NARROW.key)[0]
    assert (probe.status, probe.ref.isolates, probe.is_case) == ("ended", NARROW.key, False)
    assert case.times.ended is not None
    assert probe.times.submitted is not None
    assert case.times.ended <= probe.times.submitted
    assert list(session.fleet.board) == [NARROW.key]


def test_a_case_that_was_cancelled_for_what_it_did_ends_so_after_its_probes(
    cluster: Chooses, start: Start
) -> None:
    asked = list[tuple[str, str, str]]()

    def judge(case: Case, entry: Job, earlier: Sequence[Job]) -> Isolation:
        asked.append((entry.case, entry.failure, entry.state.nodes))
        return isolation()

    cluster.run(NARROW)
    hung = Policy(isolate=judge, gpu_hours=1e6)
    entry = start(NARROW, policy=hung, stall_factor=0.001, stall_seconds=0.1).end()
    # A cancelled job no longer says where it ran.
    assert asked == [(NARROW.key, "hung", "gpu001")]
    assert len(cluster.submitted) == 1 + ALL_ALIKE
    assert (entry.failure, entry.state.raw) == ("hung", "CANCELLED")
    assert "after its last step" in entry.message


def test_a_session_that_is_stopped_cancels_the_probes_and_keeps_the_case(
    cluster: Chooses, start: Start
) -> None:
    name = f"{NARROW.id}-{FIRST}"
    cluster.ends[name] = [JobState(Phase.RUNNING, "RUNNING")]
    session = start(NARROW, policy=policy(), jobs_in_flight=1)
    cluster.on_read = lambda job: session.fleet.ask_to_stop() if job == name else None
    assert ended_well(session)
    assert cluster.cancelled == {name}
    first, *others = session.ledger.isolating(NARROW.key)
    assert first.failure == "interrupted"
    assert {job.message for job in others} == {"the session was stopped; it was never submitted"}
    assert not any(entry.may_run for entry in session.ledger.entries())


def test_a_session_that_is_stopped_between_two_rounds_begins_no_further_one(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    unended = isolating.unended

    def look(jobs: TrackedJobs, case: TrackedJob) -> list[TrackedJob]:
        running = unended(jobs, case)
        jobs.state.stopping = bool(probes(session)) and not running
        return running

    session = start(NARROW, policy=policy())
    monkeypatch.setattr(isolating, "unended", look)
    assert ended_well(session)
    assert {job.round for job in probes(session)} == {1}


# After a kill


def ledger_of(folder: Path) -> Ledger:
    """That of a session that was killed while the first of two probes ran."""
    ledger = Ledger.create(folder / JOBS_LOG, "run-1", "lab")
    ledger.plan([planned(NARROW, "slurm", "pacemark-run-1.case")])
    ledger.intend(NARROW.key)
    ledger.submitted(JobRef("llama3", NARROW.id, "pacemark-run-1.case", "1", "/logs"))
    ledger.observe(NARROW.key, JobState(Phase.SUCCEEDED, "COMPLETED", nodes="gpu[001-008]"))
    refs = [JobRef("llama3", f"{NARROW.id}/{mode}", f"pacemark-run-1.{mode}") for mode in (FIRST, SECOND)]
    plans = [PlannedJob(NARROW, "slurm", ref, "nemo2") for ref in refs]
    for plan in plans:
        (folder / plan.key).mkdir(parents=True)
    ledger.plan(plans)
    ledger.intend(plans[0].key)
    ledger.submitted(replace(refs[0], id="2", folder="/logs"))
    return ledger


def taken_over(ledger: Ledger, chosen: Case = NARROW) -> list[PlannedJob]:
    def mode_of(ref: JobRef) -> tuple[Case, str] | None:
        return (NARROW, "nemo2") if ref.isolates == chosen.key else None

    plan = planned(chosen, "slurm", "pacemark-run-1.case")
    return resumed(ledger, "lab", [plan], {"slurm": Chooses()}, mode_of)


def followed(cluster: Chooses, folder: Path, policy: Policy) -> dict[str, Job]:
    """What the ledger has after a fleet has done what is left."""
    plans = taken_over(ledger_of(folder))
    site = Site(gpu="h100", limits=Limits(log_settle_seconds=0.05))
    ledger = Ledger(folder / JOBS_LOG)
    fleet = Fleet(folder, ledger, plans, {"slurm": cluster}, {"slurm": site}, policy)
    fleet.start()
    until(lambda: not fleet.running)
    return {entry.case: entry for entry in ledger.entries()}


@pytest.mark.parametrize(
    ("policy", "submitted", "message"),
    [(policy(), True, ""), (Policy(), False, "not run: this session has no --isolate")],
    ids=["--isolate", "without"],
)
def test_a_resumed_session_follows_the_probes_and_submits_none_twice(
    cluster: Chooses, tmp_path: Path, policy: Policy, submitted: bool, message: str
) -> None:
    entries = followed(cluster, tmp_path, policy)
    assert {entry.status for entry in entries.values()} == {"ended"}
    assert entries[NARROW.key].failure == entries[f"{NARROW.key}/{FIRST}"].failure == ""
    assert f"pacemark-run-1.{FIRST}" not in cluster.submitted
    assert (f"pacemark-run-1.{SECOND}" in cluster.submitted) == bool(cluster.submitted) == submitted
    assert entries[f"{NARROW.key}/{SECOND}"].message == message


def test_probes_that_cannot_be_sent_to_their_nodes_are_not_sent_anywhere(
    cluster: Chooses, tmp_path: Path
) -> None:
    cluster.use(on_nodes=failing(SubmitError("'gpu002' is no list of hosts")))
    entries = followed(cluster, tmp_path, policy())
    assert not any("isolate" in name for name in cluster.submitted)
    assert entries[f"{NARROW.key}/{SECOND}"].message == "not run: 'gpu002' is no list of hosts"
    assert entries[NARROW.key].failure == ""


def test_a_run_with_probes_is_resumed_only_with_their_case(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"not selected now: {NARROW.key}, {NARROW.key}/{FIRST}"):
        taken_over(ledger_of(tmp_path), examples.case())


# Slurm's lists of hosts


@pytest.fixture
def slurm() -> SlurmBackend:
    backend = SlurmBackend.__new__(SlurmBackend)
    backend._site, backend._nodes = "lab", ""
    return backend


@pytest.mark.parametrize("nodes", ["gpu[001-064,070],login-1.x", "node7"])
def test_slurm_takes_a_list_of_hosts(slurm: SlurmBackend, nodes: str) -> None:
    assert slurm.on_nodes(nodes)._nodes == nodes
    assert slurm._nodes == ""


@pytest.mark.parametrize("nodes", ["", "a b", "a;b", "--wrap=x", "a\nb", "$(x)", "'a'", "[1-2]", "a*"])
def test_slurm_takes_nothing_else_for_one(slurm: SlurmBackend, nodes: str) -> None:
    with pytest.raises(SubmitError, match="lab: a job cannot be sent to the nodes"):
        slurm.on_nodes(nodes)
