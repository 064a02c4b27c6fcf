"""No job is left behind, no secret is shown, and what is wrong with a site is said before anything is submitted."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import time
from functools import partial
from pathlib import Path

import pytest

from fixtures.backends.shell import Answer
from fixtures.backends.slurm.answers import LoginNode
from fixtures.backends.slurm.controller import Controller
from fixtures.backends.slurm.preflight import preflight
from fixtures.backends.slurm.script import Script, launch_of
from fixtures.backends.slurm.section import Slurm
from fixtures.backends.ssh.connection import SshConnection
from fixtures.backends.ssh.endpoint import Ssh
from fixtures.runs.ledger import read_ledger
from tests.lab.daemons import LabError, command
from tests.lab.slurm import SlurmLab
from tests.system.faults import Gate
from tests.system.forks import Session
from tests.system.support import (
    CASE,
    SELECT,
    TOKEN,
    finish,
    on_slurm,
    pacemark,
    signal_group,
    site_file,
    start,
    until,
)
from tests.unit.examples import llama3

TWO = ("suites/llama3", "-k", "70b and fp8 and (64 or 512)")


def two_that_hang(lab: SlurmLab, tmp_path: Path, *more: str) -> tuple[Session, Gate]:
    """A session on two cases, once both run for ever, and the gate before its scancel, which is shut."""
    tools = tmp_path / "bin"
    tools.mkdir()
    gate = Gate(tools, "scancel", after=False).shut()
    prologue = f'"export PATH={tools}:$PATH"'
    site = site_file(lab, lab.stage(tmp_path.name, hang_at=5), tmp_path, prologue=prologue)
    process = start(*TWO, *more, "--site", str(site), results=tmp_path / "results")
    until(lambda: [job.state for job in lab.squeue()] == ["RUNNING"] * 2, "two jobs running")
    return process, gate


def heard(process: Session, further: int) -> bool:
    """Whether the session has heard a first signal, and so many further ones."""
    said = process.said()
    return "cancelling what is left" in said and said.count("this ends by itself") >= further


@pytest.mark.parametrize(
    "signals",
    [
        pytest.param([signal.SIGINT], marks=pytest.mark.promise("no leaked job: Ctrl-C")),
        pytest.param([signal.SIGINT] * 2, marks=pytest.mark.promise("no leaked job: Ctrl-C twice")),
        pytest.param([signal.SIGTERM], marks=pytest.mark.promise("no leaked job: SIGTERM")),
        pytest.param([signal.SIGHUP], marks=pytest.mark.promise("no leaked job: a closed terminal")),
    ],
    ids=["Ctrl-C", "twice Ctrl-C", "SIGTERM", "SIGHUP"],
)
def test_a_signal_in_the_middle_leaves_no_job(
    slurm_lab: SlurmLab, tmp_path: Path, signals: list[signal.Signals]
) -> None:
    process, gate = two_that_hang(slurm_lab, tmp_path)
    for further, number in enumerate(signals):
        signal_group(process, number)
        # Of two that come before the first is heard, the system hands over one.
        until(partial(heard, process, further), "it is heard")
    gate.open()
    result = finish(process, tmp_path / "results")
    assert slurm_lab.squeue() == []
    assert result.status == 2, result.out
    assert set(result.verdicts.values()) == {"infrastructure"}
    assert "was cancelled" in result.case()["headline"]
    if len(signals) > 1:
        assert "still cancelling" in result.out


@pytest.mark.parametrize("after", [0.5, 1.0, 1.5])
def test_a_signal_while_submitting_leaves_no_job(slurm_lab: SlurmLab, tmp_path: Path, after: float) -> None:
    stage = slurm_lab.stage(tmp_path.name, hang_at=5)
    site = site_file(slurm_lab, stage, tmp_path)
    process = start(*TWO, "--site", str(site), results=tmp_path / "results")
    until((tmp_path / "results" / "latest" / "jobs.log").exists, "the run has begun")
    time.sleep(after)
    signal_group(process, signal.SIGTERM)
    finish(process, tmp_path / "results")
    # Neither a job nor a launcher that may still submit one.
    until(
        lambda: not any(str(stage.path) in command(pid) for pid in slurm_lab.pids),
        "the end of all it started",
    )
    assert slurm_lab.squeue() == []


def test_a_signal_under_xdist_leaves_no_job(slurm_lab: SlurmLab, tmp_path: Path) -> None:
    process, gate = two_that_hang(slurm_lab, tmp_path, "-n", "2")
    gate.open()
    signal_group(process, signal.SIGINT)
    finish(process, tmp_path / "results")
    assert slurm_lab.squeue() == []


@pytest.mark.promise("no leaked job: -x")
def test_stopping_at_the_first_failure_cancels_the_rest(slurm_lab: SlurmLab, tmp_path: Path) -> None:
    # The program of the first one is killed.
    process, gate = two_that_hang(slurm_lab, tmp_path, "-x")
    gate.open()
    (first,) = (job for job in slurm_lab.squeue() if job.name.endswith("64gpus"))

    def is_killed() -> bool:
        # A job that is about to launch its program gets no signal.
        with contextlib.suppress(LabError):
            slurm_lab.run("scancel", "--full", "--signal=KILL", str(first.id))
        return first.id not in [job.id for job in slurm_lab.squeue()]

    until(is_killed, "the first job is over")
    result = finish(process, tmp_path / "results")
    assert result.status == 1, result.out
    assert slurm_lab.squeue() == []
    dead, stopped = (result.case(f"llama3/70b-fp8-{gpus}gpus") for gpus in (64, 512))
    assert dead["headline"].startswith(f"infrastructure: job {first.id} ended ")
    assert (stopped["verdict"], "was cancelled" in stopped["headline"]) == ("infrastructure", True)
    # The log of jobs has that the cluster confirmed it.
    (stopped_job,) = (job for job in read_ledger(result.folder).entries() if job.case == stopped["id"])
    assert stopped_job.times.cancel_confirmed


def test_a_signal_after_the_first_failure_does_not_cut_the_cancelling_short(
    slurm_lab: SlurmLab, tmp_path: Path
) -> None:
    """The session is ending already, without any signal: the first one must not be raised into that."""
    process, gate = two_that_hang(slurm_lab, tmp_path, "-x")
    (first,) = (job for job in slurm_lab.squeue() if job.name.endswith("64gpus"))
    slurm_lab.run("scancel", str(first.id))
    gate.until_somebody_waits()
    signal_group(process, signal.SIGTERM)
    until(lambda: "still cancelling" in process.said(), "it is told")
    gate.open()
    result = finish(process, tmp_path / "results")
    assert slurm_lab.squeue() == []
    assert result.status == 1, result.out
    assert set(result.verdicts.values()) == {"infrastructure"}


def test_the_token_never_stands_in_a_process_list(slurm_lab: SlurmLab, tmp_path: Path) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    # The launcher runs until it was seen.
    gate = Gate(tools, "sbatch", after=False).shut()
    site = site_file(
        slurm_lab,
        slurm_lab.stage(tmp_path.name, real_step=0.05),
        tmp_path,
        prologue=f'"export PATH={tools}:$PATH"',
    )
    process = start(*SELECT, "--site", str(site), results=tmp_path / "results")
    seen, launches = [], 0

    def is_over() -> bool:
        nonlocal launches
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                line = path.read_bytes()
            except OSError:
                continue
            launches += b"pretrain_llama31" in line
            if TOKEN.encode() in line:
                seen.append(line)
        if launches:
            gate.open()
        return process.poll() is not None

    until(is_over, "the session's end")
    finish(process, tmp_path / "results")
    assert launches, "the launcher was never seen running, so this test saw nothing"
    assert seen == []


def test_a_stage_that_lacks_something_names_it_and_the_command_that_mends_it(
    slurm_lab: SlurmLab, tmp_path: Path
) -> None:
    before = slurm_lab.jobs_ever()
    result = on_slurm(slurm_lab, tmp_path, *SELECT, provisioned=False)
    assert result.case()["verdict"] == "infrastructure"
    assert "nvidia+nemo+25.02.01.sqsh is missing" in result.out
    assert "--provision" in result.out
    assert "sbatch -A lab_acct -p batch -N 1 ./setup.sh" in result.out
    assert slurm_lab.jobs_ever() == before


def test_a_check_tells_all_that_is_missing_and_submits_nothing(slurm_lab: SlurmLab, tmp_path: Path) -> None:
    before = slurm_lab.jobs_ever()
    stage = slurm_lab.stage(tmp_path.name, provisioned=False)
    site = site_file(slurm_lab, stage, tmp_path, partition="nowhere")
    given = ("--check", "--provision", "--site", str(site))
    result = pacemark("suites", *given, results=tmp_path / "results", env={"HF_TOKEN": ""})
    assert result.status == 1, result.out
    for line in (
        "  ready    llama3: sbatch on the PATH of a login shell",
        "  missing  llama3: HF_TOKEN is not set where pytest runs",
        "  missing  llama3: the partition nowhere is missing",
        f"  missing  llama3: the container image {stage.image} is missing",
        # What one recipe lacks hides no other, and each backend answers.
        "  missing  nemotron4: the partition nowhere is missing",
        "  ready    proxy: all that tiny-fp32-1gpus needs",
        "not ready: llama3, maxtext_llama2, nemotron4, deepseek_v3, gpt_oss, nemotron_h, qwen3, nemotron3; nothing was submitted",
    ):
        assert f"\n{line}\n" in result.out, result.out
    assert result.out.count("mend: ") == result.out.count("  missing  ")
    assert "Traceback" not in result.out
    assert slurm_lab.jobs_ever() == before
    assert not (tmp_path / "results").exists()


def test_a_changed_host_key_is_told_as_what_it_may_be(slurm_lab: SlurmLab, tmp_path: Path) -> None:
    own = slurm_lab.key.with_suffix(".pub").read_text().split()[:2]
    (tmp_path / "known_hosts").write_text(f"[{slurm_lab.host}]:{slurm_lab.port} {' '.join(own)}\n")
    site = site_file(slurm_lab, slurm_lab.stage(tmp_path.name), tmp_path)
    site.write_text(site.read_text().replace(str(slurm_lab.known_hosts), str(tmp_path / "known_hosts")))
    result = pacemark(*SELECT, "--site", str(site), results=tmp_path / "results")
    assert "the host key has CHANGED" in result.out


def test_ssh_config_and_proxy_jump_are_honoured(slurm_lab: SlurmLab, tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text(
        f"Host jump login\n  HostName {slurm_lab.host}\n  Port {slurm_lab.port}\n  User {slurm_lab.user}\n"
        f"  IdentityFile {slurm_lab.key}\n  UserKnownHostsFile {slurm_lab.known_hosts}\n"
        f"Host login\n  ProxyJump jump\n"
    )
    result = on_slurm(slurm_lab, tmp_path, *SELECT, keys={"ssh": f"{{host: login, config: {config}}}"})
    assert result.verdicts == {CASE: "passed"}, result.out


def test_a_job_in_a_partition_that_is_hidden_is_found_by_its_name(
    slurm_lab: SlurmLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a user who is no operator of Slurm: without --all, squeue lists none of their jobs, and scontrol no partition.

    Source: _all_parts_visible in src/slurmctld/job_mgr.c. A launcher without an answer left its job there.
    """
    user = [*["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "env", "-i"]]
    user += [f"{name}={value}" for name, value in slurm_lab.environment.items()]

    def run(_: SshConnection, script: str, **bounds: object) -> Answer:
        done = subprocess.run([*user, "bash", "-c", script], capture_output=True, text=True)
        return Answer(done.returncode, done.stdout, done.stderr)

    monkeypatch.setattr(SshConnection, "run", run)
    section = Slurm(gpu="h100", account="lab_acct", partition="batch", stage="/tmp", ssh=Ssh(host="login"))
    login = LoginNode("lab", section, SshConnection(section.ssh))
    sent = "sbatch --parsable --account=lab_acct --partition=batch --job-name=theirs --output=/dev/null --chdir=/tmp"
    slurm_lab.run("scontrol", "update", "PartitionName=batch", "Hidden=YES")
    try:
        job = login.run(f"{sent} --wrap 'sleep 600'").out.strip()
        assert Controller(login).living("theirs") == {job: True}
        recipe = llama3()
        script = Script("lab", section, launch_of(recipe), recipe.cases[0])
        assert "the partition batch" in preflight(login, script)[0].ready
    finally:
        slurm_lab.run("scontrol", "update", "PartitionName=batch", "Hidden=NO")
        slurm_lab.run("scancel", "--name=theirs")
    until(lambda: slurm_lab.squeue() == [], "no job is left")
