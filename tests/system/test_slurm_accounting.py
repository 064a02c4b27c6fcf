"""A site with accounting: QOS and accounts that keep a job away, and a sacct that is the last to know it. For real."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import datetime
from functools import partial
from pathlib import Path

import pytest
import yaml

from tests.lab.accounting import ACCOUNT, AccountingLab
from tests.lab.daemons import LabError
from tests.system.faults import CASE, MakeTrial, Trial, mend
from tests.system.support import pacemark, site_file, until

Check = Callable[..., str]

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


def test_a_qos_that_does_not_exist_is_refused(lab: AccountingLab, make_trial: MakeTrial) -> None:
    refused(make_trial(keys={"qos": "nowhere"}), "Invalid qos specification", "`qos` (now nowhere)")


def test_a_qos_that_the_user_may_not_use_is_refused(lab: AccountingLab, make_trial: MakeTrial) -> None:
    qos = lab.qos(allowed=False)
    refused(make_trial(keys={"qos": qos}), "Invalid qos specification", f"`qos` (now {qos})")


def test_a_qos_that_denies_what_is_over_its_limit_is_refused(
    lab: AccountingLab, make_trial: MakeTrial
) -> None:
    qos = lab.qos("MaxTRESPerJob=gres/gpu=4", "Flags=DenyOnLimit")
    refused(make_trial(keys={"qos": qos}), "sbatch: error: QOSMaxGRESPerJob", "`sacctmgr show qos`")


def test_an_account_that_does_not_exist_is_refused(lab: AccountingLab, make_trial: MakeTrial) -> None:
    trial = make_trial(keys={"account": "nobodys"})
    refused(trial, "Invalid account or account/partition combination specified", "`account` (now nobodys)")


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
    """Five at once."""
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
    for reason, trial in trials.items():
        result = trial.end()
        assert result.case(CASE)["verdict"] == "infrastructure", result.out
        assert f"it can never start; the queue says: {reason}; cancelled" in result.case(CASE)["headline"]
        assert [job.state for job in trial.jobs()] == ["CANCELLED"]


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


def test_a_job_runs_under_the_account_and_qos_of_the_site(lab: AccountingLab, make_trial: MakeTrial) -> None:
    qos = lab.qos()
    trial = make_trial(keys={"qos": qos}).start()
    result = trial.end()
    assert result.verdicts == {CASE: "passed"}, result.out
    until(lambda: in_sacct(trial, "Account,QOS") == f"{ACCOUNT}|{qos}", f"{ACCOUNT} and {qos} in sacct")


# --check


@pytest.fixture
def checked(lab: AccountingLab, tmp_path: Path) -> Check:
    """A function that returns what `--check` prints of these cases. It must end with this status."""
    stage = lab.stage(tmp_path.name)

    def check(select: str = SMALL, *, status: int = 0, **keys: str) -> str:
        site = site_file(lab, stage, tmp_path, **keys)
        run = pacemark(
            "suites/llama3", "-k", select, "--site", str(site), "--check", results=tmp_path / "results"
        )
        assert run.status == status, run.out
        return run.out

    return check


def test_a_check_tells_which_cases_the_qos_refuses(lab: AccountingLab, checked: Check) -> None:
    limits = ("MaxTRESPerJob=gres/gpu=16", "GrpTRES=node=4", "MaxWall=0:10:00", "MaxSubmitJobsPerUser=2")
    qos = lab.qos(*limits)
    out = checked(status=1, qos=qos)
    assert (
        f"MaxTRES gres/gpu=16 of QOS {qos}: too little for 8b-bf16-64gpus (64 GPUs), 8b-bf16-32gpus (32 GPUs)\n"
        in out
    )
    assert "mend: set `max_gpus: 16` in the site file" in out
    assert f"GrpTRES node=4 of QOS {qos}: too little for 8b-bf16-64gpus (8 nodes)\n" in out
    assert f"MaxWall=00:10:00 of QOS {qos}: too little for 8b-bf16-64gpus (30 minutes), " in out
    assert f"MaxSubmitPU=2 of QOS {qos}: too little for 8b-bf16-64gpus (4 jobs at once), " in out
    assert "not ready: llama3; nothing was submitted" in out


def test_a_check_tells_which_cases_the_accounts_refuse(lab: AccountingLab, checked: Check) -> None:
    lab._manage("add", "account", "students", f"parent={ACCOUNT}", "cluster=pacemark")
    lab._manage("add", "user", lab.user, "account=students")
    lab._manage("modify", "account", ACCOUNT, "set", "GrpTRES=gres/gpu=16")
    try:
        out = checked(status=1, account="students")
        assert f"GrpTRES gres/gpu=16 of account {ACCOUNT}: too little for 8b-bf16-64gpus (64 GPUs)" in out
    finally:
        lab._manage("modify", "account", ACCOUNT, "set", "GrpTRES=gres/gpu=-1")
    assert "ready    llama3: the limits of partition batch for 4 case(s)" in checked()


def test_a_check_compares_the_partition_with_every_case(lab: AccountingLab, checked: Check) -> None:
    out = checked("8b and bf16 and (16gpus or 8gpus)", status=1)
    assert "8 nodes are in partition batch with 8 GPUs: too little for 8b-bf16-128gpus (16 nodes)" in out
    out = checked(status=1, partition="small", time_limit='"01:00:00"')
    assert (
        "MaxNodes=2 of partition small: too little for 8b-bf16-64gpus (8 nodes), 8b-bf16-32gpus (4 nodes)\n"
        in out
    )
    assert "MaxTime=00:30:00 of partition small: too little for 8b-bf16-64gpus (60 minutes), " in out


def test_a_check_counts_the_nodes_that_take_jobs(lab: AccountingLab, checked: Check) -> None:
    made = (
        "create",
        "reservation",
        "ReservationName=accept",
        "StartTime=now",
        "Duration=60",
        f"Users={lab.user}",
    )
    lab.run("scontrol", *made, "Nodes=gpu[001-002]")
    lab.run("scontrol", "update", "NodeName=gpu[005-008]", "State=DRAIN", "Reason=disk")
    try:
        out = checked(status=1, reservation="accept")
    finally:
        lab.run("scontrol", "update", "NodeName=gpu[005-008]", "State=RESUME")
        lab.run("scontrol", "delete", "ReservationName=accept")
    said = "4 of the 8 nodes of partition batch with 8 GPUs are neither down nor drained: too little for 8b-bf16-64gpus"
    assert said in out
    assert "2 nodes are in reservation accept: too little for 8b-bf16-64gpus (8 nodes), 8b-bf16-32gpus" in out


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
