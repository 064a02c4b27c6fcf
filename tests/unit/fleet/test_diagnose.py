"""A red case is held while its recipe's other modes run on its nodes: when, one by one, and what never changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from fixtures.backends.section import Limits
from fixtures.backends.slurm.backend import SlurmBackend
from fixtures.fleet.controller import Fleet
from fixtures.fleet.state import Budget, Policy, PricedCase, Symptom
from fixtures.runs.ledger import Ledger
from fixtures.runs.planned import PlannedJob
from fixtures.runs.resume import resumed
from plugins.errors import ConfigError, SubmitError
from plugins.modes.artefacts import Artefacts
from plugins.recipes.cases import Case
from plugins.record.case import File
from plugins.record.job import Job, JobRef, JobState, Phase
from plugins.record.lines import JOBS_LOG
from tests.unit import examples
from tests.unit.cluster import BROKEN, NARROW, RUNNING, Cluster, Site, Start, told
from tests.unit.examples import nemo2_text
from tests.unit.jobs_log import planned
from tests.unit.modes.test_nccl_trace import digest_of
from tests.unit.modes.traces import Trace

LLAMA3 = examples.llama3()
MODES = LLAMA3.diagnostic_modes(NARROW)
TRACED = digest_of(Trace(nodes=8).whole())
PROFILE, TRACE = (f"{NARROW.id}-{mode.variant}" for mode in MODES)


class Chooses(Cluster):
    """A cluster that sends jobs to given nodes, and looks at what they leave."""

    def __init__(self) -> None:
        super().__init__()
        self.chosen: list[str] = []
        self.on_examine: Callable[[], object] = lambda: None

    def on_nodes(self, nodes: str) -> Chooses:
        if nodes != "gpu001":
            raise SubmitError(f"{nodes!r} is no list of hosts")
        self.chosen.append(nodes)
        return self

    def examine(self, case: Case, job: JobRef, known: str) -> tuple[str, bool]:
        self.on_examine()
        if case.mode is not None and case.mode.nccl_trace:
            return Artefacts(host="login", folder="/logs", trace=TRACED).model_dump_json(), True
        files = tuple(File(name=f"profile_{rank}.nsys-rep", size=9999, modified=0.0) for rank in range(8))
        return Artefacts(host="login", folder="/logs", begun=0.0, files=files).model_dump_json(), True


class Doctor:
    """Calls a case red, and says what its modes cost."""

    def __init__(self, *modes: Case, hours: float = 1.0, why_none: str = "") -> None:
        self.symptom = Symptom(
            "too slow: 11 s a step", [PricedCase(mode, 9.0, hours) for mode in modes], why_none
        )
        self.asked: list[tuple[str, str, str]] = []

    def __call__(self, case: Case, entry: Job, earlier: Sequence[Job]) -> Symptom | None:
        self.asked.append((entry.case, entry.failure, entry.state.nodes))
        return self.symptom if case is NARROW else None


@pytest.fixture
def cluster() -> Chooses:
    made = Chooses()
    for name, mode in zip((PROFILE, TRACE), MODES, strict=True):
        made.logs[name] = nemo2_text([10.0] * mode.steps)
    return made


def policy(doctor: Doctor, hours: float = 10.0) -> Policy:
    return Policy(diagnose=doctor, gpu_hours=hours)


def test_the_modes_run_one_after_the_other_on_the_nodes_of_the_case(cluster: Chooses, start: Start) -> None:
    doctor = Doctor(*MODES)
    live: list[int] = []
    cluster.on_submit = lambda name: live.append(
        sum(entry.status in ("intent", "submitted") for entry in session.ledger.entries())
    )
    session = start(NARROW, policy=policy(doctor))
    entries = session.finish()
    assert cluster.submitted == [NARROW.id, PROFILE, TRACE]
    assert set(cluster.chosen) == {"gpu001"}
    # While a job of the diagnosis is submitted, the ledger has it and the held case as not ended, and no other.
    assert live == [1, 2, 2]
    assert doctor.asked == [(NARROW.key, "", "gpu001")]
    case, profile = entries[NARROW.id], entries[f"{NARROW.id}/profile"]
    assert (case.status, case.failure, case.message, case.is_case) == ("ended", "", "", True)
    assert (profile.status, profile.failure, profile.ref.diagnoses, profile.is_case) == (
        "ended", "", NARROW.key, False,
    )  # fmt: skip
    assert case.times.ended is not None
    assert profile.times.submitted is not None
    assert case.times.ended <= profile.times.submitted
    folder = session.fleet.folder / NARROW.key / "profile"
    assert (folder / "artefacts.json").exists()
    assert (folder / "log.txt").read_text() == cluster.logs[PROFILE]
    assert any(
        said.endswith(
            "too slow: 11 s a step; to find the cause on gpu001: profile (about 1 GPU-hours), nccl-trace (about 1 GPU-hours)"
        )
        for said in told(session)
    )
    assert list(session.fleet.board) == [NARROW.key]


def test_no_test_sees_its_case_as_ended_before_its_diagnosis_has_ended(
    cluster: Chooses, start: Start
) -> None:
    stages: list[str] = []

    def look() -> None:
        stages.extend(entry.status for entry in session.ledger.entries() if entry.is_case)

    cluster.on_examine = look
    session = start(NARROW, policy=policy(Doctor(*MODES)))
    session.finish()
    assert stages == ["submitted", "submitted"]


def test_a_case_that_is_not_red_and_a_session_without_the_option_run_once(
    cluster: Chooses, start: Start
) -> None:
    nobody = Doctor()
    wide = examples.case()
    assert start(wide, policy=policy(nobody)).finish()[wide.id].status == "ended"
    start(NARROW, policy=Policy(), run="second").finish()
    assert cluster.submitted == [wide.id, NARROW.id]
    assert [key for key, *_ in nobody.asked] == [wide.key]


def test_what_the_budget_forbids_is_not_run_and_said(cluster: Chooses, start: Start) -> None:
    session = start(NARROW, policy=policy(Doctor(*MODES, hours=3.0), 4.0))
    entries = session.finish()
    assert cluster.submitted == [NARROW.id, PROFILE]
    trace = entries[f"{NARROW.id}/nccl-trace"]
    said = "not run: about 3 GPU-hours, and 1 of --diagnose 4 are left"
    assert (trace.status, trace.failure, trace.message, trace.times.submitted) == (
        "ended",
        "interrupted",
        said,
        None,
    )
    assert any(said in line for line in told(session))


def test_all_diagnoses_of_a_session_share_the_budget() -> None:
    budget = Budget("--diagnose", 10.0)
    assert [budget.take(hours) for hours in (6.0, 6.0, 4.0, 0.1)] == [
        "",
        "4 of --diagnose 10 are left",
        "",
        "0 of --diagnose 10 are left",
    ]


@pytest.mark.parametrize(
    ("state", "doctor", "said"),
    [
        (
            JobState(Phase.SUCCEEDED, "COMPLETED", nodes="$(rm)"),
            Doctor(*MODES),
            "'$(rm)' is no list of hosts",
        ),
        (JobState(Phase.SUCCEEDED, "COMPLETED"), Doctor(*MODES), "'' is no list of hosts"),
        (RUNNING, Doctor(why_none="toy describes no profile"), "not diagnosed: toy describes no profile"),
    ],
)
def test_what_cannot_be_diagnosed_is_not_submitted(
    cluster: Chooses, start: Start, state: JobState, doctor: Doctor, said: str
) -> None:
    if state is not RUNNING:
        cluster.ends[NARROW.id] = [state]
    session = start(NARROW, policy=policy(doctor))
    assert session.finish()[NARROW.id].failure == ""
    assert cluster.submitted == [NARROW.id]
    assert any(said in line for line in told(session))


@pytest.mark.parametrize("broken", [PROFILE, TRACE])
def test_a_mode_that_breaks_changes_nothing_of_the_case_and_is_not_tried_again(
    cluster: Chooses, start: Start, broken: str
) -> None:
    cluster.ends[broken], cluster.logs[broken] = [BROKEN], "no step\n"
    session = start(NARROW, policy=Policy(retries=2, diagnose=Doctor(*MODES), gpu_hours=9.0))
    entries = session.finish()
    assert cluster.submitted == [NARROW.id, PROFILE, TRACE]
    assert (entries[NARROW.id].failure, entries[NARROW.id].state.raw) == ("", "COMPLETED")


def test_a_mode_that_the_cluster_refuses_changes_nothing_of_the_case(cluster: Chooses, start: Start) -> None:
    def refuse(name: str) -> None:
        if name == PROFILE:
            raise SubmitError("sbatch: error: Requested node configuration is not available")

    cluster.on_submit = refuse
    entries = start(NARROW, policy=policy(Doctor(*MODES))).finish()
    assert cluster.submitted == [NARROW.id, PROFILE, TRACE]
    assert entries[NARROW.id].failure == ""
    assert "not available" in entries[f"{NARROW.id}/profile"].message


def test_the_diagnosis_comes_after_the_last_repeat(cluster: Chooses, start: Start) -> None:
    again = f"{NARROW.id}-try2"
    both = Policy(
        another_run=lambda case, job, earlier: "" if earlier else "cannot tell",
        diagnose=Doctor(*MODES), gpu_hours=9.0,
    )  # fmt: skip
    start(NARROW, policy=both).finish()
    assert cluster.submitted == [NARROW.id, again, PROFILE, TRACE]


def test_a_case_that_was_cancelled_for_what_it_did_ends_so_after_its_diagnosis(
    cluster: Chooses, start: Start
) -> None:
    cluster.ends[NARROW.id] = [RUNNING]
    doctor = Doctor(*MODES)
    session = start(NARROW, policy=policy(doctor), stall_factor=0.001, stall_seconds=0.1)
    entry = session.finish()[NARROW.id]
    assert cluster.submitted == [NARROW.id, PROFILE, TRACE]
    # A cancelled job no longer says where it ran.
    assert doctor.asked == [(NARROW.key, "hung", "gpu001")]
    assert (entry.failure, entry.state.raw) == ("hung", "CANCELLED")
    assert "after its last step" in entry.message


def test_a_session_that_is_stopped_cancels_the_diagnosis_and_keeps_the_case(
    cluster: Chooses, start: Start
) -> None:
    cluster.ends[PROFILE] = [RUNNING]
    session = start(NARROW, policy=policy(Doctor(*MODES)))
    cluster.on_read = lambda name: session.fleet.ask_to_stop() if name == PROFILE else None
    entries = session.finish()
    assert cluster.cancelled == {PROFILE}
    assert (entries[NARROW.id].failure, entries[NARROW.id].message) == ("", "")
    assert entries[f"{NARROW.id}/profile"].failure == "interrupted"
    assert entries[f"{NARROW.id}/nccl-trace"].message == "the session was stopped; it was never submitted"
    assert not any(entry.may_run for entry in entries.values())


def test_a_question_without_an_answer_ends_the_case_as_it_is(cluster: Chooses, start: Start) -> None:
    def ask(case: Case, entry: Job, earlier: Sequence[Job]) -> Symptom | None:
        raise ConfigError("llama3.yaml: keep one baseline")

    session = start(NARROW, policy=Policy(diagnose=ask, gpu_hours=1.0))
    assert session.finish()[NARROW.id].failure == ""
    assert (cluster.submitted, session.fleet.defect) == ([NARROW.id], "")
    assert any("whether to diagnose it: ConfigError: llama3.yaml" in line for line in told(session))


def test_a_job_that_somebody_cancelled_is_not_diagnosed(cluster: Chooses, start: Start) -> None:
    cluster.ends[NARROW.id] = [JobState(Phase.FAILED, "CANCELLED by 1234", nodes="gpu001")]
    doctor = Doctor(*MODES)
    start(NARROW, policy=policy(doctor)).finish()
    assert (cluster.submitted, doctor.asked) == ([NARROW.id], [])


# After a kill


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    """That of a session that was killed while the profile ran."""
    made = Ledger.create(tmp_path / JOBS_LOG, "run-1", "lab")
    (tmp_path / NARROW.key / "profile").mkdir(parents=True)
    made.plan([planned(NARROW, "slurm", "pacemark-run-1.case")])
    made.intend(NARROW.key)
    made.submitted(JobRef("llama3", NARROW.id, "pacemark-run-1.case", "1", "/logs"))
    made.observe(NARROW.key, JobState(Phase.SUCCEEDED, "COMPLETED", nodes="gpu001"))
    plans = [
        PlannedJob(
            mode, "slurm", JobRef("llama3", f"{NARROW.id}/{mode.variant}", f"pacemark-run-1.{name}"), "nemo2"
        )
        for mode, name in zip(MODES, (PROFILE, TRACE), strict=True)
    ]
    made.plan(plans)
    made.intend(plans[0].key)
    made.submitted(replace(plans[0].ref, id="2", folder="/logs"))
    return made


def taken_over(ledger: Ledger, chosen: Case = NARROW) -> list[PlannedJob]:
    plan = PlannedJob(chosen, "slurm", JobRef("llama3", chosen.id, "pacemark-run-1.case"), "nemo2")

    def mode_of(ref: JobRef) -> tuple[Case, str] | None:
        mode = LLAMA3.in_mode(chosen, ref.mode) if ref.diagnoses == chosen.key else None
        return (mode, "nemo2") if mode else None

    return resumed(ledger, "lab", [plan], {"slurm": Chooses()}, mode_of)


def followed(
    plans: Sequence[PlannedJob], cluster: Cluster, ledger: Ledger, folder: Path, given: Policy
) -> dict[str, Job]:
    """What the ledger has after a fleet has done what is left."""
    site = Site(gpu="h100", limits=Limits(log_settle_seconds=0.05))
    fleet = Fleet(folder, ledger, plans, {"slurm": cluster}, {"slurm": site}, given)
    fleet.start()
    for thread in fleet._threads:
        thread.join(60)
    assert not fleet.running
    return {entry.case: entry for entry in ledger.entries()}


@pytest.mark.parametrize("doctor", [None, Doctor(*MODES)])
def test_a_resumed_session_follows_the_diagnosis_and_submits_none_twice(
    cluster: Chooses, ledger: Ledger, tmp_path: Path, doctor: Doctor | None
) -> None:
    plans = taken_over(ledger)
    assert [(plan.key, plan.ref.id, plan.nodes) for plan in plans] == [
        (NARROW.key, "1", ""),
        (f"{NARROW.key}/profile", "2", ""),
        (f"{NARROW.key}/nccl-trace", "", ""),
    ]
    cluster.logs[f"pacemark-run-1.{PROFILE}"] = nemo2_text([10.0] * MODES[0].steps)
    cluster.logs[f"pacemark-run-1.{TRACE}"] = nemo2_text([10.0] * MODES[1].steps)
    entries = followed(plans, cluster, ledger, tmp_path, policy(doctor) if doctor else Policy())
    assert {entry.status for entry in entries.values()} == {"ended"}
    assert entries[NARROW.key].failure == entries[f"{NARROW.key}/profile"].failure == ""
    # Without the option nothing new is submitted.
    assert cluster.submitted == ([f"pacemark-run-1.{TRACE}"] if doctor else [])
    trace = entries[f"{NARROW.key}/nccl-trace"]
    assert trace.message == ("" if doctor else "not run: this session has no --diagnose")
    assert doctor is None or doctor.asked == []


def test_a_job_whose_nodes_nobody_knows_any_more_is_not_sent_anywhere(
    cluster: Chooses, ledger: Ledger, tmp_path: Path
) -> None:
    """The ledger was made anew from its journal, and the cluster has forgotten the case's job."""
    ledger.observe(NARROW.key, JobState(Phase.RUNNING, "RUNNING"))
    cluster.ends["pacemark-run-1.case"] = [JobState(Phase.GONE, "unknown")]
    plans = taken_over(ledger)
    cluster.logs[f"pacemark-run-1.{PROFILE}"] = nemo2_text([10.0] * MODES[0].steps)
    entries = followed(plans, cluster, ledger, tmp_path, policy(Doctor(*MODES)))
    assert cluster.submitted == []
    assert entries[f"{NARROW.key}/nccl-trace"].message == "not run: '' is no list of hosts"
    assert entries[NARROW.key].failure == ""


def test_a_run_with_jobs_of_a_diagnosis_is_resumed_only_with_their_case(ledger: Ledger) -> None:
    with pytest.raises(ConfigError, match=f"not selected now: {NARROW.key}, {NARROW.key}/profile"):
        taken_over(ledger, examples.case())


def test_the_id_of_a_diagnosis_job_names_its_case_in_the_mode() -> None:
    assert LLAMA3.case(f"{NARROW.id}/profile") is MODES[0]
    assert LLAMA3.case(f"{NARROW.id}/sharp") is LLAMA3.case("x/profile") is None
    assert LLAMA3.diagnostic_modes(MODES[0]) == ()


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
