"""A case is held while its nodes are probed: it ends as its own job did, whatever becomes of the probes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from fixtures.backends.section import Limits
from fixtures.backends.slurm.backend import SlurmBackend
from fixtures.fleet.controller import Fleet
from fixtures.fleet.state import Budget, Isolation, Policy
from fixtures.runs.ledger import Ledger
from fixtures.runs.planned import PlannedJob
from fixtures.runs.resume import resumed
from plugins.base.errors import ConfigError, SubmitError
from plugins.recipes.cases import Case
from plugins.record.job import Job, JobRef, JobState, Phase
from plugins.record.lines import JOBS_LOG
from tests.unit import examples
from tests.unit.cluster import NARROW, RUNNING, Site, Start, told
from tests.unit.fleet.test_isolate import ALL_ALIKE, NODES, Chooses, policy
from tests.unit.jobs_log import planned

FIRST, SECOND = (f"isolate1x1.1-{node}" for node in NODES[:2])


class Judge:
    """Calls each case too slow, as `policy` does, and notes what it is asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, str]] = []

    def __call__(self, case: Case, entry: Job, earlier: Sequence[Job]) -> Isolation | None:
        self.asked.append((entry.case, entry.failure, entry.state.nodes))
        ask = policy().isolate
        assert ask is not None
        return ask(case, entry, earlier)


@pytest.fixture
def cluster() -> Chooses:
    return Chooses()


def test_no_test_sees_its_case_as_ended_before_its_probes_have_ended(cluster: Chooses, start: Start) -> None:
    statuses = set[str]()

    def look(name: str) -> None:
        if "isolate" in name:
            statuses.update(entry.status for entry in session.ledger.entries() if entry.is_case)

    cluster.on_submit = look
    session = start(NARROW, policy=policy())
    entries = session.finish()
    assert statuses == {"submitted"}
    case, probe = entries[NARROW.id], session.ledger.isolating(NARROW.key)[0]
    assert (case.status, case.failure, case.message, case.is_case) == ("ended", "", "", True)
    assert (probe.status, probe.ref.isolates, probe.is_case) == ("ended", NARROW.key, False)
    assert case.times.ended is not None
    assert probe.times.submitted is not None
    assert case.times.ended <= probe.times.submitted
    assert list(session.fleet.board) == [NARROW.key]


def test_all_isolations_of_a_session_share_the_budget() -> None:
    budget = Budget(10.0)
    assert [budget.take(hours) for hours in (6.0, 6.0, 4.0, 0.1)] == [
        "",
        "4 of --isolate 10 are left",
        "",
        "0 of --isolate 10 are left",
    ]


def test_the_probes_come_after_the_last_repeat(cluster: Chooses, start: Start) -> None:
    both = replace(policy(), another_run=lambda case, job, earlier: "" if earlier else "cannot tell")
    start(NARROW, policy=both).finish()
    assert cluster.submitted[:2] == [NARROW.id, f"{NARROW.id}-try2"]
    assert len(cluster.submitted) == 2 + ALL_ALIKE


def test_a_case_that_was_cancelled_for_what_it_did_ends_so_after_its_probes(
    cluster: Chooses, start: Start
) -> None:
    cluster.ends[NARROW.id] = [RUNNING]
    judge = Judge()
    hung = replace(policy(), isolate=judge)
    entry = start(NARROW, policy=hung, stall_factor=0.001, stall_seconds=0.1).finish()[NARROW.id]
    # A cancelled job no longer says where it ran.
    assert judge.asked == [(NARROW.key, "hung", "gpu001")]
    assert len(cluster.submitted) == 1 + ALL_ALIKE
    assert (entry.failure, entry.state.raw) == ("hung", "CANCELLED")
    assert "after its last step" in entry.message


def test_a_session_that_is_stopped_cancels_the_probes_and_keeps_the_case(
    cluster: Chooses, start: Start
) -> None:
    name = f"{NARROW.id}-{FIRST}"
    cluster.ends[name] = [RUNNING]
    session = start(NARROW, policy=policy(), jobs_in_flight=1)
    cluster.on_read = lambda job: session.fleet.ask_to_stop() if job == name else None
    case = session.finish()[NARROW.id]
    assert cluster.cancelled == {name}
    assert (case.failure, case.message) == ("", "")
    first, *others = session.ledger.isolating(NARROW.key)
    assert first.failure == "interrupted"
    assert {job.message for job in others} == {"the session was stopped; it was never submitted"}
    assert not any(entry.may_run for entry in session.ledger.entries())


def test_a_question_without_an_answer_ends_the_case_as_it_is(cluster: Chooses, start: Start) -> None:
    def ask(case: Case, entry: Job, earlier: Sequence[Job]) -> Isolation | None:
        raise ConfigError("llama3.yaml: keep one baseline")

    session = start(NARROW, policy=Policy(isolate=ask, gpu_hours=1.0))
    assert session.finish()[NARROW.id].failure == ""
    assert (cluster.submitted, session.fleet.defect) == ([NARROW.id], "")
    assert any("which of its nodes are slow: ConfigError: llama3.yaml" in line for line in told(session))


def test_the_nodes_of_a_job_that_somebody_cancelled_are_not_probed(cluster: Chooses, start: Start) -> None:
    cluster.ends[NARROW.id] = [JobState(Phase.FAILED, "CANCELLED by 1234", nodes="gpu001")]
    judge = Judge()
    start(NARROW, policy=replace(policy(), isolate=judge)).finish()
    assert (cluster.submitted, judge.asked) == ([NARROW.id], [])


class Refuses(Chooses):
    """A cluster that sends no job to given nodes."""

    def on_nodes(self, nodes: str) -> Chooses:
        raise SubmitError(f"{nodes!r} is no list of hosts")


def test_probes_that_cannot_be_sent_to_their_nodes_are_not_sent_anywhere(tmp_path: Path) -> None:
    cluster = Refuses()
    entries = followed(taken_over(ledger_of(tmp_path)), cluster, tmp_path, policy())
    assert not any("isolate" in name for name in cluster.submitted)
    assert entries[f"{NARROW.key}/{SECOND}"].message == "not run: 'gpu002' is no list of hosts"
    assert entries[NARROW.key].failure == ""


# After a kill


def ledger_of(folder: Path) -> Ledger:
    """That of a session that was killed while the first of two probes ran."""
    made = Ledger.create(folder / JOBS_LOG, "run-1", "lab")
    made.plan([planned(NARROW, "slurm", "pacemark-run-1.case")])
    made.intend(NARROW.key)
    made.submitted(JobRef("llama3", NARROW.id, "pacemark-run-1.case", "1", "/logs"))
    made.observe(NARROW.key, JobState(Phase.SUCCEEDED, "COMPLETED", nodes="gpu[001-008]"))
    plans = [
        PlannedJob(
            NARROW, "slurm", JobRef("llama3", f"{NARROW.id}/{mode}", f"pacemark-run-1.{mode}"), "nemo2"
        )
        for mode in (FIRST, SECOND)
    ]
    for plan in plans:
        (folder / plan.key).mkdir(parents=True)
    made.plan(plans)
    made.intend(plans[0].key)
    made.submitted(replace(plans[0].ref, id="2", folder="/logs"))
    return made


def taken_over(ledger: Ledger, chosen: Case = NARROW) -> list[PlannedJob]:
    plan = PlannedJob(chosen, "slurm", JobRef("llama3", chosen.id, "pacemark-run-1.case"), "nemo2")

    def mode_of(ref: JobRef) -> tuple[Case, str] | None:
        return (NARROW, "nemo2") if ref.isolates == chosen.key else None

    return resumed(ledger, "lab", [plan], {"slurm": Chooses()}, mode_of)


def followed(plans: Sequence[PlannedJob], cluster: Chooses, folder: Path, given: Policy) -> dict[str, Job]:
    """What the ledger has after a fleet has done what is left."""
    site = Site(gpu="h100", limits=Limits(log_settle_seconds=0.05))
    ledger = Ledger(folder / JOBS_LOG)
    fleet = Fleet(folder, ledger, plans, {"slurm": cluster}, {"slurm": site}, given)
    fleet.start()
    for thread in fleet._threads:
        thread.join(60)
    assert not fleet.running
    return {entry.case: entry for entry in ledger.entries()}


@pytest.mark.parametrize("isolating", [False, True])
def test_a_resumed_session_follows_the_probes_and_submits_none_twice(
    cluster: Chooses, tmp_path: Path, isolating: bool
) -> None:
    plans = taken_over(ledger_of(tmp_path))
    assert [(plan.key, plan.ref.id, plan.nodes) for plan in plans] == [
        (NARROW.key, "1", ""),
        (f"{NARROW.key}/{FIRST}", "2", "gpu001"),
        (f"{NARROW.key}/{SECOND}", "", "gpu002"),
    ]
    entries = followed(plans, cluster, tmp_path, policy() if isolating else Policy())
    assert {entry.status for entry in entries.values()} == {"ended"}
    assert entries[NARROW.key].failure == entries[f"{NARROW.key}/{FIRST}"].failure == ""
    second = entries[f"{NARROW.key}/{SECOND}"]
    if isolating:
        assert f"pacemark-run-1.{SECOND}" in cluster.submitted
        assert second.message == ""
    else:
        # Without the option nothing new is submitted.
        assert cluster.submitted == []
        assert second.message == "not run: this session has no --isolate"


def test_a_run_with_probes_is_resumed_only_with_their_case(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"not selected now: {NARROW.key}, {NARROW.key}/{FIRST}"):
        taken_over(ledger_of(tmp_path), examples.case())


def test_the_id_of_a_proof_names_its_case() -> None:
    recipe = examples.llama3()
    assert recipe.case(f"{NARROW.id}/proof") is recipe.case(NARROW.id)
    assert recipe.case(f"{NARROW.id}/profile") is recipe.case("x/proof") is None


@pytest.mark.parametrize("nodes", ["gpu[001-064,070],login-1.x", "node7"])
def test_slurm_takes_a_list_of_hosts(nodes: str) -> None:
    backend = SlurmBackend.__new__(SlurmBackend)
    backend._site, backend._nodes = "lab", ""
    assert backend.on_nodes(nodes)._nodes == nodes
    assert backend._nodes == ""


@pytest.mark.parametrize("nodes", ["", "a b", "a;b", "--wrap=x", "a\nb", "$(x)", "'a'", "[1-2]", "a*"])
def test_slurm_takes_nothing_else_for_one(nodes: str) -> None:
    backend = SlurmBackend.__new__(SlurmBackend)
    backend._site, backend._nodes = "lab", ""
    with pytest.raises(SubmitError, match="lab: a job cannot be sent to the nodes"):
        backend.on_nodes(nodes)
