"""The lab itself: is it a cluster, and does the stand-in recipe keep the published contract?"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import paramiko
import pytest

from fixtures.backends.slurm.section import Slurm
from fixtures.site import load_site
from tests.lab import daemons, fixtures
from tests.lab.recipe.ranks import OTHERS
from tests.lab.slurm import SlurmLab
from tests.lab.sshd import BANNER
from tests.lab.stage import Stage

TOKEN = "hf_not_a_token"
STEP = re.compile(r"iteration (\d+)/(\d+) .*?global_batch_size: (\d+) .*?in s: ([\d.]+) .*?samples: (\d+)")


@pytest.fixture
def ssh(slurm_lab: SlurmLab) -> Iterator[paramiko.SSHClient]:
    with connect(slurm_lab) as client:
        yield client


def connect(lab: SlurmLab) -> paramiko.SSHClient:
    client = paramiko.SSHClient()
    client.load_host_keys(str(lab.known_hosts))
    client.set_missing_host_key_policy(paramiko.RejectPolicy())
    client.connect(
        lab.host,
        lab.port,
        lab.user,
        key_filename=str(lab.key),
        allow_agent=False,
        look_for_keys=False,
        timeout=120,
        banner_timeout=120,
        auth_timeout=120,
    )
    return client


def sh(client: paramiko.SSHClient, command: str) -> tuple[int, str]:
    """Exit code, and standard output and error together, without the banner of every shell."""
    _, out, _ = client.exec_command(f"{{ {command}\n}} 2>&1", timeout=300)
    text = out.read().decode().removeprefix(BANNER)
    return out.channel.recv_exit_status(), text


def launch(client: paramiko.SSHClient, stage: Stage, **variables: str | int) -> tuple[int, str]:
    """Run launch.sh as the recipe's README says."""
    environment = {
        "STAGE_PATH": stage.path,
        "HF_TOKEN": TOKEN,
        "SBATCH_ACCOUNT": "ai_team",
        "SBATCH_PARTITION": "batch",
    }
    exports = " ".join(
        f"{key}={shlex.quote(str(value))}" for key, value in {**environment, **variables}.items()
    )
    return sh(client, f"source {stage.venv}/bin/activate; cd {stage.recipe}; export {exports}; ./launch.sh")


def submitted(text: str) -> list[tuple[int, Path]]:
    """Job id and folder of each task, as launch.sh printed them."""
    ids, folders = (
        re.findall(r"^- Job id: (\d+)$", text, re.M),
        re.findall(r"^- Local Directory: (.+)$", text, re.M),
    )
    assert len(ids) == len(folders) == len(re.findall(r"^Task \d+: ", text, re.M)), text
    return [(int(number), Path(folder)) for number, folder in zip(ids, folders, strict=True)]


def log_of(job: int, folder: Path, restart: int = 0) -> str:
    """What rank 0 printed."""
    return OTHERS.sub("", (folder / f"log-ai_team-team.{folder.name}_{job}_{restart}.out").read_text())


def command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


def until(what: str, ready: Callable[[], object], seconds: float = 600) -> None:
    end = time.monotonic() + seconds
    while not ready():
        assert time.monotonic() < end, f"after {seconds} s still not: {what}"
        time.sleep(0.05)


def finish(lab: SlurmLab, job: int) -> str:
    """Wait for the end of a job; its last state."""
    until(f"job {job} ended", lambda: job not in {j.id for j in lab.squeue()})
    # The completion log is written by a thread of its own.
    until(f"job {job} is in the completion log", lambda: job in {j.id for j in lab.jobs_ever()})
    return next(j.state for j in lab.jobs_ever() if j.id == job)


def require_steps(logs: list[str], wanted: list[int]) -> None:
    """Each log has this many steps."""
    assert [[int(step[0]) for step in STEP.findall(log)] for log in logs] == [[*range(n)] for n in wanted]


def test_256_nodes_are_idle(slurm_lab: SlurmLab) -> None:
    until("256 nodes are idle", lambda: slurm_lab.idle_nodes() == 256)


def test_login_with_the_known_host_key_finds_slurm(ssh: paramiko.SSHClient, slurm_lab: SlurmLab) -> None:
    assert sh(ssh, "sbatch --version") == (0, "slurm-wlm 22.05.8\n") or sh(ssh, "command -v sbatch")[0] == 0
    assert sh(ssh, f"test -s {slurm_lab.root}/slurm.conf")[0] == 0


def test_accounting_is_disabled_as_on_many_clusters(ssh: paramiko.SSHClient) -> None:
    code, text = sh(ssh, "sacct")
    assert code != 0
    assert "accounting storage is disabled" in text


def test_512_gpus_take_64_nodes_and_end_at_the_published_pace(
    ssh: paramiko.SSHClient, slurm_lab: SlurmLab
) -> None:
    stage = slurm_lab.stage("pace")
    code, text = launch(ssh, stage, MODEL_SIZE="70b", DTYPE="fp8", JOB_TOTAL_GPUS=512)
    assert code == 0, text
    ((job, folder),) = submitted(text)
    assert finish(slurm_lab, job) == "COMPLETED"
    ran = next(j for j in slurm_lab.jobs_ever() if j.id == job)
    assert (ran.nodes, ran.name) == (64, "ai_team-team.pretrain_llama3.1_70b_fp8_512")
    steps = STEP.findall(log_of(job, folder))
    require_steps([log_of(job, folder)], [50])
    assert steps[-1][1:3] == ("49", "1024")
    assert float(steps[-1][3]) == pytest.approx(10.07, rel=0.01)
    assert int(steps[-1][4]) == 50 * 1024
    assert (folder / "token.sha256").read_text().strip() == hashlib.sha256(TOKEN.encode()).hexdigest()
    assert "job exited with code 0" in (folder / f"sbatch_{ran.name}_{job}.out").read_text()
    # As upstream: the token stands in clear in the generated script.
    assert f"export HF_TOKEN={TOKEN}\n" in (folder.parent / f"{folder.name}_sbatch.sh").read_text()


def test_2048_gpus_take_all_256_nodes(ssh: paramiko.SSHClient, slurm_lab: SlurmLab) -> None:
    stage = slurm_lab.stage("all", real_step=0)
    code, text = launch(ssh, stage, MODEL_SIZE="405b", JOB_TOTAL_GPUS=2048, SBATCH_GPUS_PER_NODE=8)
    assert code == 0, text
    ((job, folder),) = submitted(text)
    assert finish(slurm_lab, job) == "COMPLETED"
    assert next(j.nodes for j in slurm_lab.jobs_ever() if j.id == job) == 256
    assert STEP.findall(log_of(job, folder))[-1][2] == "1024"


def test_profile_and_trace_are_jobs_of_their_own(ssh: paramiko.SSHClient, slurm_lab: SlurmLab) -> None:
    stage = slurm_lab.stage("extras")
    code, text = launch(ssh, stage, JOB_TOTAL_GPUS=16, ENABLE_PROFILE="true", ENABLE_NCCLTRACE="true")
    assert code == 0, text
    tasks = submitted(text)
    assert [finish(slurm_lab, job) for job, _ in tasks] == ["COMPLETED"] * 3
    require_steps([log_of(*task) for task in tasks], [25, 25, 5])
    assert len(list((tasks[1][1] / "nsys_profile").glob("*.nsys-rep"))) == 8
    assert "NCCL INFO AllReduce: opCount 4 " in log_of(*tasks[2])


def test_launches_in_one_second_are_refused_but_for_the_first(
    ssh: paramiko.SSHClient, slurm_lab: SlurmLab
) -> None:
    stage = slurm_lab.stage("twins", real_step=0)
    launches = [launch(ssh, stage) for _ in range(3)]
    tasks = [task for _, text in launches for task in submitted(text)]
    assert [code for code, _ in launches].count(0) == len(tasks) == len({folder for _, folder in tasks}) > 0
    assert all("FileExistsError" in text for code, text in launches if code)
    assert [finish(slurm_lab, job) for job, _ in tasks] == ["COMPLETED"] * len(tasks)


def test_setup_provisions_a_bare_stage(ssh: paramiko.SSHClient, slurm_lab: SlurmLab) -> None:
    stage = slurm_lab.stage("bare", provisioned=False)
    code, text = launch(ssh, stage)
    assert code != 0
    assert "NeMo: No such file or directory" in text
    assert not stage.image.exists()
    activate = f"export STAGE_PATH={stage.path}; source {stage.venv}/bin/activate; cd {stage.recipe}"
    code, text = sh(ssh, f"{activate}; sbatch --parsable -A ai_team -p batch -N 1 ./setup.sh")
    assert code == 0, text
    assert finish(slurm_lab, int(text)) == "COMPLETED", (
        stage.recipe / f"slurm-{text.strip()}.out"
    ).read_text()
    assert stage.image.stat().st_size > 0
    assert sh(ssh, f"{activate}; python -c 'import nemo_run'") == (0, "")
    by_hand = slurm_lab.stage("by-hand")
    for made in ("llama3.1/NeMo", "venv"):
        # The interpreter leaves its caches behind where it ran.
        files = [
            {str(p.relative_to(s.path)) for p in (s.path / made).rglob("*") if "__pycache__" not in p.parts}
            for s in (stage, by_hand)
        ]
        assert files[0] == files[1]
    ((job, _),) = submitted(launch(ssh, stage)[1])
    assert finish(slurm_lab, job) == "COMPLETED"


def test_a_requeued_job_has_a_log_for_each_start(ssh: paramiko.SSHClient, slurm_lab: SlurmLab) -> None:
    stage = slurm_lab.stage("requeue", restarts=1, restart_at=7)
    ((job, folder),) = submitted(launch(ssh, stage)[1])
    assert finish(slurm_lab, job) == "COMPLETED"
    require_steps([log_of(job, folder, restart) for restart in (0, 1)], [8, 50])


def test_a_crash_ends_the_job_as_failed(ssh: paramiko.SSHClient, slurm_lab: SlurmLab) -> None:
    stage = slurm_lab.stage(
        "crash", real_step=0, crash_at=3, nan_at=2, slow_steps={1: 3.0}, noise=0, warmup=0
    )
    ((job, folder),) = submitted(launch(ssh, stage)[1])
    assert finish(slurm_lab, job) == "FAILED"
    log = log_of(job, folder)
    assert "Traceback" in log
    assert [step[3] for step in STEP.findall(log)] == ["12.27", "36.81", "12.27", "12.27"]
    assert log.count("reduced_train_loss: nan") == 2


def test_a_hanging_job_ends_at_once_when_cancelled(ssh: paramiko.SSHClient, slurm_lab: SlurmLab) -> None:
    stage = slurm_lab.stage("hang", real_step=0, hang_at=4)
    ((job, folder),) = submitted(launch(ssh, stage)[1])
    until(
        "the fifth step", lambda: (folder / "token.sha256").exists() and "iteration 4/" in log_of(job, folder)
    )
    slurm_lab.run("scancel", str(job))
    assert finish(slurm_lab, job) == "CANCELLED"


def test_torn_lines_still_hold_every_step_time(ssh: paramiko.SSHClient, slurm_lab: SlurmLab) -> None:
    stage = slurm_lab.stage("torn", real_step=0, interleave=True, socket_fallback=True, checkpoint=True)
    ((job, folder),) = submitted(launch(ssh, stage)[1])
    assert finish(slurm_lab, job) == "COMPLETED"
    log = log_of(job, folder)
    assert log.count("train_step_timing in s: ") == 50
    assert log.count("\nTraining epoch") < 40
    assert "NCCL INFO Using network Socket" in log
    assert "Global Checkpoint Save : Rank: 0 : Iteration: 50 : " in log


def test_sbatch_refusing_is_a_failed_launch(ssh: paramiko.SSHClient, slurm_lab: SlurmLab) -> None:
    code, text = launch(ssh, slurm_lab.stage("refused"), SBATCH_PARTITION="nowhere")
    assert code != 0
    assert "invalid partition specified: nowhere" in text


def test_an_unknown_knob_is_an_error(slurm_lab: SlurmLab) -> None:
    with pytest.raises(TypeError, match="pacee"):
        slurm_lab.stage("knobs").set(pacee=2)


@pytest.fixture
def small_lab(slurm_parts: None) -> Iterator[SlurmLab]:
    with SlurmLab(nodes=2) as lab:
        yield lab


def test_two_labs_at_once_and_services_that_go_and_come_back(
    small_lab: SlurmLab, slurm_lab: SlurmLab
) -> None:
    until("both are idle", lambda: (small_lab.idle_nodes(), slurm_lab.idle_nodes()) == (2, 256))
    with connect(small_lab) as client:
        transport = client.get_transport()
        small_lab.stop_sshd()
        until("the session is cut", lambda: transport is not None and not transport.is_active())
    with pytest.raises(OSError, match="Unable to connect"):
        connect(small_lab)
    small_lab.start_sshd()
    with connect(small_lab) as client:
        small_lab.stop_controller()
        code, text = sh(client, "squeue")
        assert code != 0
        assert "Unable to contact slurm controller" in text
        small_lab.start_controller()
        assert sh(client, "squeue -h") == (0, "")
    small_lab.set_node("gpu001", "drain")
    until("one node is left", lambda: small_lab.idle_nodes() == 1)
    # As after a test that failed in the midst of all that.
    small_lab.run("sbatch", "-o", "/dev/null", "--wrap", "sleep 600")
    with connect(small_lab) as client:
        client.exec_command("sleep 600; sbatch --wrap true")
        until("it waits", lambda: any("; sbatch" in command(pid) for pid in small_lab.pids))
    small_lab.stop_controller()
    small_lab.recover()
    until("both nodes are idle", lambda: small_lab.idle_nodes() == 2)
    assert small_lab.squeue() == []
    assert [pid for pid in small_lab.pids if "sleep 600" in command(pid)] == []


@pytest.mark.usefixtures("slurm_parts")
def test_stop_leaves_no_process_behind() -> None:
    with SlurmLab(nodes=2) as lab:
        job = lab.run(
            "sbatch", "--parsable", "-o", "/dev/null", "--wrap", "trap '' TERM; sleep 600; sleep 600"
        ).strip()
        until("the job runs", lambda: [j.state for j in lab.squeue() if j.id == int(job)] == ["RUNNING"])
        client = connect(lab)
        client.exec_command("sleep 600")
        until("the session runs", lambda: any("sleep 600" in command(pid) for pid in lab.pids))
        before = daemons.born(lab.pids)
        assert len(before) > 8
    assert daemons.survivors(before) == []
    assert not lab.root.exists()


@pytest.mark.usefixtures("slurm_parts")
def test_a_killed_owner_leaves_no_process_behind() -> None:
    owner = subprocess.Popen(
        [sys.executable, "-m", "tests.lab.slurm", "--nodes", "2"],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(fixtures.__file__).parents[2],
    )
    with owner:
        assert owner.stdout is not None
        facts = next(json.loads(line) for line in owner.stdout if line.startswith("{"))
        section = load_site(Path(facts["site"])).section("slurm")
        assert isinstance(section, Slurm)
        assert (section.ssh.port, section.stage) == (facts["port"], facts["stage_path"])
        root = Path(facts["slurm_conf"]).parent
        environment = {**os.environ, "SLURM_CONF": str(root / "slurm.conf"), daemons.MARK: str(root)}
        subprocess.run(
            ["sbatch", "-o", str(root / "o"), "--wrap", "sleep 600"], env=environment, check=True, timeout=300
        )
        until("the job runs", (root / "o").exists)
        assert len(daemons.marked(root)) > 6
        owner.send_signal(signal.SIGKILL)
    until("the lab is gone", lambda: not daemons.marked(root) and not root.exists())
