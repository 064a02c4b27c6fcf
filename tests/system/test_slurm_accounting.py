"""A site with accounting: QOS and accounts that keep a job away, and a sacct that is the last to know it. For real."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import datetime
from functools import partial
from pathlib import Path

import pytest
import yaml

from fixtures.backends.base import Findings
from fixtures.backends.slurm.answers import LoginNode
from fixtures.backends.slurm.preflight import Limits
from fixtures.backends.slurm.section import Slurm
from fixtures.backends.ssh.connection import SshConnection
from fixtures.backends.ssh.endpoint import Ssh
from tests.lab.accounting import ACCOUNT, AccountingLab
from tests.lab.daemons import LabError
from tests.system.faults import CASE, MakeTrial, Trial, mend
from tests.system.support import login, pacemark, site_file, until
from tests.unit import examples

Ask = Callable[..., Findings]

# Four cases, of 1 to 8 nodes: as many as the lab has.
SMALL = "8b and bf16 and ([8b-bf16-8gpus] or 16gpus or 32gpus or 64gpus)"


@pytest.fixture
def lab(accounting_lab: AccountingLab) -> Iterator[AccountingLab]:
    yield accounting_lab
    mend(accounting_lab)


def until_forgotten(trial: Trial, *, accounted: bool = True) -> None:
    """Until the run's job has ended and the controller no longer knows it, but sacct (where `accounted`) does."""

    def forgotten() -> bool:
        try:
            return bool(trial.jobs()) and not trial.lab.run(
                "scontrol", "show", "job", str(trial.jobs()[-1].id)
            )
        except LabError as error:
            return "Invalid job id" in str(error)

    until(forgotten, "the controller forgot the job")
    if accounted:
        # Until the controller has told slurmdbd of the job's start, it is called "allocation" there.
        known = re.compile(rf"pacemark-{trial.run}\..*\|(?!RUNNING|PENDING)")
        until(lambda: bool(known.match(in_sacct(trial, "JobName,State"))), "its end in sacct")


def has_printed(log: Path, steps: int) -> bool:
    return log.read_bytes().count(b" | global_step: ") == steps


def in_sacct(trial: Trial, fields: str) -> str:
    """What sacct says of the run's job; it lags behind by seconds."""
    return trial.lab.run("sacct", "-nPX", "-j", str(trial.jobs()[0].id), "-o", fields).strip()


# What sbatch refuses


def test_a_qos_that_denies_what_is_over_its_limit_is_refused(
    lab: AccountingLab, make_trial: MakeTrial
) -> None:
    qos = lab.qos("MaxTRESPerJob=gres/gpu=4", "Flags=DenyOnLimit")
    refused(make_trial(keys={"qos": qos}), "sbatch: error: QOSMaxGRESPerJob", "`sacctmgr show qos`")


def refused(trial: Trial, words: str, mend: str) -> None:
    result = trial.start().end()
    case = result.case(CASE)
    assert case["verdict"] == "infrastructure", result.out
    assert words in case["headline"]
    assert mend in case["headline"].partition("mend: ")[2]
    assert trial.jobs() == []


# What waits for ever


def test_a_job_beyond_what_its_qos_allows_a_job_can_never_start(
    lab: AccountingLab, make_trial: MakeTrial
) -> None:
    """Six at once. The last one is in a partition that does not admit its account."""
    trials = {
        reason: make_trial(reason, keys={"qos": lab.qos(limit)}, limits=", hopeless_seconds: 1").start()
        for limit, reason in (
            ("MaxTRESPerJob=gres/gpu=4", "QOSMaxGRESPerJob"),
            ("MaxTRESPerNode=gres/gpu=4", "QOSMaxGRESPerNode"),
            ("MinTRESPerJob=gres/gpu=16", "QOSMinGRES"),
            ("GrpTRESMins=gres/gpu=0", "QOSGrpGRESMinutes"),
            ("GrpWall=0", "QOSGrpWallLimit"),
        )
    }
    lab.run("scontrol", "update", "PartitionName=small", "AllowAccounts=others")
    trial = make_trial("account", keys={"partition": "small"}, limits=", hopeless_seconds: 1").start()
    denied = f"Job's account not permitted to use this partition (small allows others not {ACCOUNT})"
    trials[denied] = trial
    try:
        results = {reason: trial.end() for reason, trial in trials.items()}
    finally:
        lab.run("scontrol", "update", "PartitionName=small", "AllowAccounts=ALL")
    for reason, result in results.items():
        assert result.case(CASE)["verdict"] == "infrastructure", result.out
        assert f"it can never start; the queue says: {reason}; cancelled" in result.case(CASE)["headline"]
        assert [job.state for job in trials[reason].jobs()] == ["CANCELLED"]


def test_a_job_that_its_qos_keeps_waiting_is_given_up_with_the_reason(
    lab: AccountingLab, make_trial: MakeTrial
) -> None:
    """What else runs in the QOS may be to blame, so it is waited for, as long as the site allows. Two at once."""
    limits = ", hopeless_seconds: 1, queue_minutes: 0.1"
    trials = {
        reason: make_trial(reason, keys={"qos": lab.qos(limit)}, limits=limits)
        for limit, reason in (
            ("MaxTRESPerUser=gres/gpu=4", "QOSMaxGRESPerUser"),
            ("GrpTRES=gres/gpu=4", "QOSGrpGRES"),
        )
    }
    for reason, trial in trials.items():
        trial.first_seen_waiting_for(reason)
    for reason, trial in trials.items():
        result = trial.end()
        assert result.case(CASE)["verdict"] == "infrastructure", result.out
        assert (
            f"still queued after 0.1 minutes; the queue says: {reason}; cancelled"
            in result.case(CASE)["headline"]
        )
        assert [job.state for job in trial.jobs()] == ["CANCELLED"]


# What only sacct remembers: the session's first squeue waits until the controller has forgotten the job.


def test_a_forgotten_job_is_judged_by_what_sacct_remembers(lab: AccountingLab, make_trial: MakeTrial) -> None:
    """Four at once: one completes, one fails, one is cancelled, one runs out of time."""
    trials = {
        # Slurm does not let a job end in the second in which it started.
        "COMPLETED": make_trial("completed"),
        "FAILED": make_trial("failed", real_step=0.5, crash_at=3),
        "CANCELLED by 0": make_trial("cancelled", real_step=0.5, hang_at=3),
        "TIMEOUT": make_trial("timeout", real_step=0.5, hang_at=3),
    }
    gates = [trial.gate("squeue").shut() for trial in trials.values()]
    for trial in trials.values():
        trial.start()
    jobs = {}
    for state in ("CANCELLED by 0", "TIMEOUT"):
        log, jobs[state] = trials[state].log(), trials[state].job().id
        until(partial(has_printed, log, 4), "step 3")
    lab.run("scancel", str(jobs["CANCELLED by 0"]))
    lab.exhaust_limit(jobs["TIMEOUT"])
    for trial in trials.values():
        until_forgotten(trial)
    for gate in gates:
        gate.open()
    for state, trial in trials.items():
        result, node = trial.end(), in_sacct(trial, "NodeList")
        case = result.case(CASE)
        if state == "COMPLETED":
            assert case["verdict"] == "passed", result.out
            assert (case["job"]["state"], case["job"]["nodes"], case["job"]["exit_code"]) == (
                state,
                node,
                "0:0",
            )
        else:
            assert case["verdict"] == "infrastructure", result.out
            # Of a job whose rank died it is the highest of its tasks, of which srun ended the others.
            code = r"\d+:0" if state == "FAILED" else "0:0"
            said = rf"ended {state} on {node} after step 3 of 0 to 49 \(exit code {code}\)"
            assert re.search(said, case["headline"])


def test_a_forgotten_job_whose_log_nobody_knows_is_infrastructure(
    lab: AccountingLab, make_trial: MakeTrial
) -> None:
    """This launcher prints where the log is. Its answer was lost, and sacct does not know that."""
    trial = make_trial()
    gate = trial.gate("sbatch", after=True).shut()
    trial.start()
    gate.until_somebody_waits()
    until_forgotten(trial)
    lab.cut_sessions()
    gate.open()
    result = trial.end()
    (job,) = trial.jobs()
    assert result.case(CASE)["verdict"] == "infrastructure", result.out
    headline = result.case(CASE)["headline"]
    assert f"job {job.id} ended COMPLETED, but no step was seen: nobody knows where its log is" in headline
    assert f"Look below {trial.stage.root}" in headline


# slurmdbd is gone


def test_slurmdbd_that_dies_while_a_job_runs_changes_nothing(
    lab: AccountingLab, make_trial: MakeTrial
) -> None:
    """Two at once: one passes, one dies."""
    passes, dies = (
        make_trial(name, real_step=0.08, crash_at=step).start()
        for name, step in (("passes", -1), ("dies", 30))
    )
    passes.until_steps(5)
    dies.until_steps(5)
    lab.stop_slurmdbd()
    result = passes.end()
    assert result.verdicts == {CASE: "passed"}, result.out
    result = dies.end()
    assert result.verdicts == {CASE: "infrastructure"}, result.out
    assert re.search(r"ended FAILED on gpu00\d after step 30 of 0 to 49", result.case(CASE)["headline"])


def test_a_forgotten_job_is_lost_while_slurmdbd_is_gone_and_decided_when_it_is_back(
    lab: AccountingLab, make_trial: MakeTrial
) -> None:
    trial = make_trial(crash_at=3).hold(2)
    gate = trial.gate("squeue").shut()
    trial.start()
    trial.log()
    lab.stop_slurmdbd()
    trial.let_go()
    until_forgotten(trial, accounted=False)
    gate.open()
    result = trial.end()
    assert result.verdicts == {CASE: "lost"}, result.out
    assert "Problem talking to the database: Connection refused" in result.case(CASE)["headline"]
    lab.start_slurmdbd()
    # The controller kept the job's end for it.
    until(lambda: in_sacct(trial, "State") == "FAILED", "its end in sacct")
    result = trial.resume()
    assert result.verdicts == {CASE: "infrastructure"}, result.out
    said = r"ended FAILED on gpu001 after step 3 of 0 to 49 \(exit code \d+:0\)"
    assert re.search(said, result.case(CASE)["headline"])
    assert len(trial.jobs()) == 1


# A node stops answering: slurmd, slurmstepd and the job itself. Slurm waits SlurmdTimeout, here 20 s.


def test_a_node_that_stops_answering(lab: AccountingLab, make_trial: MakeTrial) -> None:
    """Two at once: the job on the one may be requeued, that on the other ends."""
    trials = [make_trial(name).hold(10).start() for name in ("requeued", "ended")]
    for trial in trials:
        trial.until_steps(3)
        lab.run("scontrol", "update", f"JobId={trial.job().id}", f"Requeue={int(trial is trials[0])}")
    jobs, nodes = [trial.job() for trial in trials], [trial.node() for trial in trials]
    with lab.frozen_node(nodes[0]), lab.frozen_node(nodes[1]):
        for trial in trials:
            trial.let_go()
        results = [trial.end() for trial in trials]
    assert [ran.id for trial in trials for ran in trial.jobs()] == [job.id for job in jobs]
    case = results[0].case(CASE)
    assert case["verdict"] == "passed", results[0].out
    assert case["job"]["attempts"] == 2
    assert case["job"]["nodes"] != nodes[0]
    assert "the job was started 2 times; judged by its last attempt" in case["remarks"]
    ran = datetime.fromisoformat(case["job"]["ended"]) - datetime.fromisoformat(case["job"]["started"])
    assert case["job"]["earlier_seconds"] > ran.total_seconds()
    hours = 8 * (case["job"]["earlier_seconds"] + ran.total_seconds()) / 3600
    assert results[0].summary["gpu_hours"] == pytest.approx(hours, abs=0.01)
    case = results[1].case(CASE)
    assert case["verdict"] == "infrastructure", results[1].out
    assert f"ended NODE_FAIL on {nodes[1]} after step " in case["headline"]


# --check: what Slurm tells of each limit by `sbatch --test-only`, and what it leaves to the queue


@pytest.fixture
def ask(lab: AccountingLab) -> Iterator[Ask]:
    """A function that returns what the check finds of a case of so many nodes on a site with these keys."""
    ssh = Ssh.model_validate(yaml.safe_load(login(lab)))
    connection = SshConnection(ssh)
    usual = {"gpu": "h100", "account": ACCOUNT, "partition": "batch", "stage": "/tmp", "gres": "gpu:8"}

    def asked(nodes: int = 2, *more: int, **keys: str) -> Findings:
        section = Slurm.model_validate({**usual, **keys, "ssh": ssh})
        cases = [examples.case(f"8b-bf16-{8 * count}gpus") for count in (nodes, *more)]
        return Limits(LoginNode("lab", section, connection)).findings(cases)

    yield asked
    connection.close()


# The reason that Slurm gives for a job of 2 nodes and 30 minutes, and what is remarked on if only the queue tells it.
LIMITS = {
    "MaxWall=0:10:00": ("QOSMaxWallDurationPerJobLimit", ""),
    "MaxTRESPerJob=gres/gpu=8": ("QOSMaxGRESPerJob", ""),
    "MaxTRESPerNode=gres/gpu=4": ("QOSMaxGRESPerNode", ""),
    "MaxTRESMinsPerJob=gres/gpu=100": ("QOSMaxGRESMinutesPerJob", ""),
    "MinTRESPerJob=gres/gpu=64": ("QOSMinGRES", ""),
    "MaxTRESPerUser=gres/gpu=8": ("QOSMaxGRESPerUser", "MaxTRESPU gres/gpu=8"),
    "MaxTRESPerAccount=gres/gpu=8": ("MaxGRESPerAccount", "MaxTRESPA gres/gpu=8"),
    "GrpTRES=node=1": ("QOSGrpNodeLimit", "GrpTRES node=1"),
    "GrpTRESRunMins=gres/gpu=100": ("QOSGrpGRESRunMinutes", "GrpTRESRunMins gres/gpu=100"),
    "GrpTRESMins=gres/gpu=100": ("QOSGrpGRESMinutes", ""),
    "GrpWall=10": ("QOSGrpWallLimit", ""),
}


def test_slurm_tells_a_limit_of_a_qos_that_denies_what_is_over_it(lab: AccountingLab, ask: Ask) -> None:
    for limit, (reason, remark) in LIMITS.items():
        qos = lab.qos(limit)
        findings = ask(qos=qos)
        assert findings.ready == ["Slurm takes 8b-bf16-16gpus on 2 node(s)"], limit
        limits = [text.partition(" is less")[0] for text in findings.remarks]
        assert limits == ([f"{remark} of QOS {qos}"] if remark else [])
        lab._manage("modify", "qos", qos, "set", "Flags=DenyOnLimit")
        (refusal,) = ask(qos=qos).missing
        assert (
            f"8b-bf16-16gpus on 2 node(s): sbatch: error: {reason} / allocation failure: Job violates"
            in refusal
        )


def test_slurm_tells_how_many_jobs_it_takes_whatever_the_flags(lab: AccountingLab, ask: Ask) -> None:
    qos = lab.qos("MaxSubmitJobsPerUser=1")
    findings = ask(2, 1, qos=qos)
    assert findings.ready == ["Slurm takes 8b-bf16-16gpus on 2 node(s), 8b-bf16-8gpus on 1 node(s)"]
    (refusal,) = findings.missing
    assert "Slurm refuses 2 jobs at once: sbatch: error: QOSMaxSubmitJobPerUserLimit / " in refusal
    (refusal,) = ask(qos=lab.qos("GrpSubmitJobs=0")).missing
    assert "on 2 node(s): sbatch: error: QOSGrpSubmitJobsLimit / " in refusal


UNFIT = "Requested node configuration is not available"


def test_slurm_tells_what_a_site_file_cannot_have(lab: AccountingLab, ask: Ask) -> None:
    sites: list[tuple[dict[str, str], str]] = [
        ({"gres": "gpu:h100:8"}, UNFIT),
        ({"gres": "fpga:1"}, "Invalid generic resource (gres) specification"),
        ({"constraint": "hbm3"}, "Invalid feature specification"),
        ({"account": "nobodys"}, "Invalid account or account/partition combination specified"),
        ({"partition": "nowhere"}, "Invalid partition name specified"),
        ({"qos": "nowhere"}, "Invalid qos specification"),
        ({"qos": lab.qos(allowed=False)}, "Invalid qos specification"),
        ({"reservation": "nothing"}, "Requested reservation is invalid"),
    ]
    for keys, words in sites:
        (refusal,) = ask(**keys).missing
        assert words in refusal.partition("\n    mend: ")[0]
        assert all(f"`{key}` (now {value})" in refusal.partition("mend: ")[2] for key, value in keys.items())
    assert UNFIT in ask(16).missing[0]
    assert UNFIT in ask(4, partition="small").missing[0]
    # The queue tells PartitionTimeLimit.
    assert ask(partition="small", time_limit="01:00:00").missing == []


def test_slurm_tells_of_the_nodes_and_partitions_of_today(lab: AccountingLab, ask: Ask) -> None:
    made = ("StartTime=now", "Duration=60", f"Users={lab.user}", "Nodes=gpu[001-002]")
    lab.run("scontrol", "create", "reservation", "ReservationName=accept", *made)
    try:
        # It will end, and whoever waits until then needs no other nodes.
        assert ask(8).missing == []
        assert ask(2, reservation="accept").missing == []
        assert UNFIT in ask(4, reservation="accept").missing[0]
    finally:
        lab.run("scontrol", "delete", "ReservationName=accept")
    lab.run("scontrol", "update", "NodeName=gpu[005-008]", "State=DRAIN", "Reason=disk")
    try:
        assert "nodes that are down or drained do not count" in ask(8).missing[0]
    finally:
        lab.run("scontrol", "update", "NodeName=gpu[005-008]", "State=RESUME")
    try:
        lab.run("scontrol", "update", "PartitionName=small", "State=DRAIN")
        assert "Required partition not available (inactive or drain)" in ask(partition="small").missing[0]
        lab.run("scontrol", "update", "PartitionName=small", "State=DOWN")
        assert ask(partition="small").remarks == ["partition small is down: its jobs wait until it is up"]
    finally:
        lab.run("scontrol", "update", "PartitionName=small", "State=UP")


def test_the_limits_of_the_accounts_above_are_remarked_on(lab: AccountingLab, ask: Ask) -> None:
    lab._manage("add", "account", "students", f"parent={ACCOUNT}", "cluster=pacemark")
    lab._manage("add", "user", lab.user, "account=students")
    lab._manage("modify", "account", ACCOUNT, "set", "GrpTRES=gres/gpu=16")
    try:
        (remark,) = ask(4, 2, account="students").remarks
        assert remark.startswith(
            f"GrpTRES gres/gpu=16 of account {ACCOUNT} is less than what 8b-bf16-32gpus on"
        )
    finally:
        lab._manage("modify", "account", ACCOUNT, "set", "GrpTRES=gres/gpu=-1")


def test_a_check_says_what_slurm_takes_and_submits_nothing(lab: AccountingLab, tmp_path: Path) -> None:
    before = lab.jobs_ever()
    qos = lab.qos("MaxTRESPerJob=gres/gpu=16", "MaxSubmitJobsPerUser=3", "Flags=DenyOnLimit")
    site = site_file(lab, lab.stage(tmp_path.name), tmp_path, qos=qos)
    run = pacemark("suites/llama3", "-k", SMALL, "--site", str(site), "--check", results=tmp_path / "results")
    assert run.status == 1, run.out
    assert (
        "  ready    llama3: Slurm takes 8b-bf16-16gpus on 2 node(s), 8b-bf16-8gpus on 1 node(s)\n" in run.out
    )
    refused = "  missing  llama3: Slurm refuses 8b-bf16-64gpus on 8 node(s), 8b-bf16-32gpus on 4 node(s): sbatch: error: QOSMaxGRESPerJob / "
    assert refused in run.out
    assert f"`qos` (now {qos})" in run.out
    assert (
        "  missing  llama3: Slurm refuses 4 jobs at once: sbatch: error: QOSMaxSubmitJobPerUserLimit / "
        in run.out
    )
    assert "not ready: llama3; nothing was submitted" in run.out
    assert lab.jobs_ever() == before


# --init-site


def test_a_site_file_that_the_cluster_itself_told_runs_a_case(lab: AccountingLab, tmp_path: Path) -> None:
    """The lab's Slurm does not tell the type of its GPUs, and this machine mounts no file system that nodes share."""
    ssh = tmp_path / ".ssh" / "config"
    ssh.parent.mkdir()
    ssh.write_text(
        f"Host lab\nHostName {lab.host}\nPort {lab.port}\nUser {lab.user}\nIdentityFile {lab.key}\nUserKnownHostsFile {lab.known_hosts}\n"
    )
    file, stage, env = tmp_path / "site.yaml", lab.stage(tmp_path.name), {"HOME": str(tmp_path)}
    asked = pacemark("--init-site", "slurm://lab", f"--site={file}", results=tmp_path / "results", env=env)
    assert asked.status == 0, asked.out
    assert "answer slurm.gpu (required)" in asked.out
    text = file.read_text()
    told = yaml.safe_load(text)
    assert told["site"] == "pacemark"
    assert {key: value for key, value in told["slurm"].items() if key != "stage"} == {
        "gpus_per_node": 8,
        "gres": "gpu:8",
        "max_gpus": 64,
        "partition": "batch",
        "account": ACCOUNT,
        "ssh": {"host": "lab"},
    }
    # What it could not find out is answered, and the file is used.
    for key, value in {"gpu": "h100", "stage": stage.root}.items():
        text = re.sub(rf"^  (# )?{key}: .*$", f"  {key}: {value}", text, flags=re.MULTILINE)
    file.write_text(text)
    select = ("suites/llama3", "-k", "8b and bf16 and 8gpus")
    checked = pacemark(*select, "--site", str(file), "--check", results=tmp_path / "results", env=env)
    assert checked.status == 0, checked.out
    run = pacemark(*select, "--site", str(file), results=tmp_path / "results", env=env)
    assert run.status == 0, run.out
    assert run.verdicts == {CASE: "passed"}
