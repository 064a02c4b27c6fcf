"""A real Slurm on this machine: munged, slurmctld, up to 256 slurmd and sshd, all on loopback.

    with SlurmLab(nodes=64) as lab:
        stage = lab.stage("first", pace=1.2)
        ...                                     # ssh -p {lab.port} {lab.user}@{lab.host}

By hand: `python -m tests.lab.slurm --nodes 64`.
"""

from __future__ import annotations

import argparse
import contextlib
import getpass
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.lab import config, daemons, jobs, ports, reaper, sshd
from tests.lab.daemons import Daemon, LabError
from tests.lab.jobs import LabJob
from tests.lab.recipe import knobs
from tests.lab.stage import Stage, make_stage

INSTALL_HINT = "apt-get install -y --no-install-recommends slurm-wlm munge openssh-server"
# Seconds for what takes one on a quiet machine, however busy this one is.
PATIENCE = 300.0
_PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", *sshd.PROGRAMS)

# srun as a cluster with Pyxis and PMIx has it. What it starts "in a container" are the tasks of a recipe, which hear from rank 0
# through pipes; of a large job those of its first nodes (see Knobs).
_SRUN = r"""#!/bin/bash
set -e
case "$*" in
    --help) {srun} --help; echo "      --container-image=[USER@][REGISTRY#]IMAGE[:TAG]|PATH"; exit ;;
    --mpi=list) {srun} --mpi=list; echo pmix; exit ;;
    *--container-image*) ;;
    *) exec {srun} "$@" ;;
esac
nodes=$(grep -o '"nodes": [0-9]*' "$STAGE_PATH/lab.json" | tr -dc 0-9)
nodes=$((SLURM_JOB_NUM_NODES < nodes ? SLURM_JOB_NUM_NODES : nodes))
step=(--mpi=none --nodes="$nodes" --ntasks=$((nodes * SLURM_NTASKS_PER_NODE)))
while (($#)); do
    case $1 in
        --container-image | --container-mounts | --container-workdir) shift ;;
        --container-* | --no-container-* | --mpi=*) ;;
        *) step+=("$1") ;;
    esac
    shift
done
export LAB_RANKS=$STAGE_PATH/ranks/$SLURM_JOB_ID.${{SLURM_RESTART_COUNT:-0}}
mkdir -p "$LAB_RANKS"
mkfifo "$LAB_RANKS/answers" $(seq -f "$LAB_RANKS/%.0f" $((nodes * SLURM_NTASKS_PER_NODE - 1)))
exec {srun} "${{step[@]}}"
"""


# A report of the lab holds its own export. Of the real nsys this follows `export` with --type sqlite, --output FILE and
# the report behind them (User Guide of Nsight Systems, "CLI Export Command Switch Options"); it knows no other switch.
# What each node runs before and after a job: it fails, or takes its time, while a test wants that.
_PROLOG = "#!/bin/sh\n[ ! -e {root}/fail-prolog ]\n"
_EPILOG = "#!/bin/sh\nwhile [ -e {root}/hold-epilog ]; do sleep 0.1; done\n"

_NSYS = r"""#!/bin/bash
[[ $# == 6 && "$1 $2 $3 $4" == "export --type sqlite --output" ]] || { echo "unrecognised option '$*'" >&2; exit 1; }
[[ -e $6 ]] || { echo "File '$6' does not exist." >&2; exit 1; }
exec cp -- "$6" "$5"
"""


def version() -> tuple[int, int]:
    """The release of this machine's Slurm: (22, 5)."""
    # slurm-wlm 22.05.8
    words = subprocess.run(["slurmctld", "-V"], capture_output=True, text=True, check=True).stdout.split()
    year, month, *_ = words[-1].split(".")
    return int(year), int(month)


def missing_parts() -> list[str]:
    """What this machine lacks for the lab, in words; empty if it can be run."""
    missing = sshd.missing_programs(_PROGRAMS, INSTALL_HINT)
    if os.geteuid() != 0:
        missing.append("root: slurmd and munged are run as root here")
    return missing


class SlurmLab:
    """One cluster, everything in `root`: an empty folder with a short path (unix sockets), kept at the end.

    Without `root` it makes one below /tmp and removes it. `min_job_age`: seconds that ended jobs are kept;
    `slurmd_timeout`: seconds until a node that does not answer is down.
    """

    host = sshd.HOST
    accounting = False

    def __init__(
        self, root: Path | None = None, nodes: int = 64, *, min_job_age: int = 300, slurmd_timeout: int = 300
    ) -> None:
        self.root = root or Path(tempfile.mkdtemp(prefix="pml-", dir="/tmp"))
        self._own_root = root is None
        self.nodes = nodes
        self.min_job_age = min_job_age
        self.slurmd_timeout = slurmd_timeout
        self.user = getpass.getuser()
        self.key = self.root / "ssh" / "client_key"
        self.known_hosts = self.root / "ssh" / "known_hosts"
        self.port = 0
        self._ports: ports.Ports | None = None
        self._daemons: dict[str, Daemon] = {}
        self._reaper: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def environment(self) -> dict[str, str]:
        """Variables with which Slurm's commands reach this lab, and nothing of the caller's own Slurm."""
        return {
            "PATH": f"{self.root}/bin:{config.SYSTEM_PATH}",
            "SLURM_CONF": str(self.root / "slurm.conf"),
            daemons.MARK: str(self.root),
        }

    @property
    def pids(self) -> set[int]:
        """All processes of the lab: daemons, job steps, sessions; the reaper is not one of them."""
        return daemons.marked(self.root)

    def start(self, seconds: float = 600.0) -> None:
        """Bring it up and wait until every node is idle; LabError, with a log's tail, if that fails."""
        try:
            self._prepare()
            deadline = time.monotonic() + seconds
            self._daemons["munged"].start()
            self._wait("munged", lambda: (self.root / "munge" / "socket").exists(), deadline)
            self._start_accounting(deadline)
            self._daemons["slurmctld"].start()
            self.start_sshd()
            self._wait("slurmctld", lambda: "is UP" in self._try("scontrol", "ping"), deadline)
            for daemon in self._nodes():
                daemon.start()
            self._wait("slurmd.gpu001", lambda: self.idle_nodes() == self.nodes, deadline)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Cancel all jobs and end every process, in a bounded time; removes what it made."""
        if self._daemons:
            self.stop_sshd()
        if self._daemons and self._daemons["slurmctld"].pid and any(d.pid for d in self._nodes()):
            # What waits is cancelled; what runs is killed with its batch shell, without KillWait's grace.
            self._try("scancel", "--user", self.user, "--state=PENDING")
            self._try("scancel", "--user", self.user, "--full", "--signal=KILL")
        # Nodes first. One whose job has just ended would wait 5 s for its remains; the sweep ends them here.
        for group in (self._nodes(), [d for d in self._daemons.values() if not d.name.startswith("slurmd.")]):
            daemons.end(group, 1)
        watcher, self._reaper = self._reaper, None
        daemons.clear(self.root, self._ports, watcher, keep=not self._own_root)

    def run(self, *argv: str, timeout: float = PATIENCE) -> str:
        """Standard output of a Slurm command, run here and not over SSH; LabError if it fails."""
        try:
            done = subprocess.run(argv, env=self.environment, capture_output=True, text=True, timeout=timeout)
        except subprocess.TimeoutExpired as error:
            raise LabError(f"{' '.join(argv)}: no answer in {timeout:g} s") from error
        if done.returncode != 0:
            raise LabError(f"{' '.join(argv)}: exit code {done.returncode}: {done.stderr.strip()}")
        return done.stdout

    def ask(self, *argv: str) -> str:
        """As `run`, for what changes nothing: a controller that is late on a busy machine is asked again."""
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                return self.run(*argv)
            except LabError as error:
                if "Socket timed out" not in str(error) or time.monotonic() > deadline:
                    raise

    def idle_nodes(self) -> int:
        """How many nodes could start a job now."""
        states = [
            line.split() for line in self._try("sinfo", "-h", "-p", "batch", "-o", "%T %D").splitlines()
        ]
        return sum(int(count) for state, count in states if state == "idle")

    def squeue(self) -> list[LabJob]:
        """Jobs that have not ended: pending, running, completing."""
        return jobs.from_squeue(self.ask("squeue", "-h", "-o", jobs.SQUEUE_FORMAT))

    def jobs_ever(self) -> list[LabJob]:
        """One entry a job, by id, for all that ever were: ended ones in their last state, and the rest.

        Comes from the completion log, so it outlives MinJobAge and a restart of the controller.
        """
        # The queue is asked first: what has left it by then is in the log.
        queued = self.squeue()
        log = self.root / "log" / "jobcomp.txt"
        ended = jobs.from_completion_log(log.read_text()) if log.exists() else []
        ever = {job.id: job for job in (*ended, *queued)}
        return [ever[number] for number in sorted(ever)]

    def set_node(self, node: str, state: str) -> None:
        """`scontrol update` of a node's state: down, drain, resume, ..."""
        self.run("scontrol", "update", f"NodeName={node}", f"State={state}", "Reason=lab")

    def exhaust_limit(self, job: int) -> None:
        """The time limit of this job is over; Slurm looks at limits twice a minute."""
        while True:
            try:
                self.run("scontrol", "update", f"JobId={job}", "EndTime=now")
            except LabError as error:
                # scontrol says which second that is, and it may be over when the controller looks.
                if "Invalid time specified" not in str(error):
                    raise
            else:
                return

    @property
    def sessions(self) -> set[int]:
        """The processes of sshd that serve a connection each; what was started in one is not among them."""
        listener = self._daemons["sshd"].pid
        # One that was accepted just now is `/usr/sbin/sshd ... -R`, and later `sshd: ...`.
        return {
            pid
            for pid in self.pids - {listener}
            if Path(daemons.command(pid).partition(" ")[0]).name in ("sshd", "sshd:")
        }

    def cut_sessions(self) -> None:
        """Every connection breaks; what runs in one goes on, and a new one is taken at once."""
        daemons.kill(self.sessions)

    def end_logins(self) -> None:
        """Every connection breaks, and what was started in one ends: also what waits though its connection is gone.

        Programs of jobs, which have the environment of their sbatch, end with it.
        """
        # One may start another while they are listed.
        while logins := self.sessions | self._started_in_logins():
            daemons.kill(logins)

    def _started_in_logins(self) -> set[int]:
        return {pid for pid in self.pids if b"\0SSH_CONNECTION=" in daemons.environment(pid)}

    @contextlib.contextmanager
    def frozen_login_node(self) -> Iterator[None]:
        """While the block runs nothing answers over SSH, though every connection stands and new ones are accepted."""
        listener = self._daemons["sshd"].pid
        # Its children are known only once it makes no further one.
        with daemons.frozen({listener} if listener else ()), daemons.frozen(self.sessions):
            yield

    @contextlib.contextmanager
    def frozen_node(self, node: str) -> Iterator[None]:
        """While the block runs this node does nothing, not even answer: slurmd, slurmstepd and jobs are stopped."""
        with daemons.frozen(daemons.of_node(self.root, node)):
            yield

    def stop_sshd(self) -> None:
        """No new sessions and none of the old ones; Slurm goes on."""
        listener = self._daemons["sshd"]
        with daemons.frozen({pid for pid in (listener.pid,) if pid}):
            # Its children are known while it lives, and while it is frozen there is no further one.
            listener.terminate()
            daemons.kill(self.sessions)
        listener.stop()

    def start_sshd(self) -> None:
        """(Again) take sessions, on the same port and with the same host key."""
        self._daemons["sshd"].start()
        self._wait("sshd", lambda: daemons.answers(self.host, self.port), time.monotonic() + PATIENCE)

    def stop_controller(self) -> None:
        """Slurm's commands fail from here on; jobs go on running."""
        # Killed, it may not have written down what it knows of its jobs.
        self._daemons["slurmctld"].stop(PATIENCE)

    def start_controller(self) -> None:
        """The controller comes back and knows its jobs again."""
        deadline = time.monotonic() + PATIENCE
        self._daemons["slurmctld"].start()
        self._wait("slurmctld", lambda: "is UP" in self._try("scontrol", "ping"), deadline)
        # By itself the controller asks the nodes how they are only after a third of SlurmdTimeout.
        self.run("scontrol", "reconfigure")
        self._wait(
            "slurmctld", lambda: "unk" not in (self._try("sinfo", "-h", "-o", "%T") or "unk"), deadline
        )

    def mend(self) -> None:
        """Start again what a test has stopped, and take every node back into service."""
        if self._daemons["sshd"].pid is None:
            self.start_sshd()
        if self._daemons["slurmctld"].pid is None:
            self.start_controller()
        for name in ("fail-prolog", "hold-epilog"):
            (self.root / name).unlink(missing_ok=True)
        self._wait("slurmctld", self._resumed, time.monotonic() + PATIENCE)

    def end_jobs(self) -> list[LabJob]:
        """Cancel all jobs that there are; returns those that had not ended."""
        left = [job for job in self.squeue() if job.state != "COMPLETING"]
        for job in left:
            with contextlib.suppress(LabError):
                self.run("scancel", str(job.id))
        return left

    def recover(self) -> None:
        """After a test that failed: as if it had not been. What waits on the login node could yet submit a job."""
        self.end_logins()
        self.mend()
        self.end_jobs()
        deadline = time.monotonic() + PATIENCE
        self._wait("slurmctld", lambda: self.idle_nodes() == self.nodes, deadline)

    def stage(self, name: str, *, recipe: str = "llama3", provisioned: bool = True, **knobs: Any) -> Stage:
        """A fresh STAGE_PATH of a recipe on this cluster; see tests.lab.recipe.knobs for the knobs.

        Recipes share a name, the stage of a site: each but llama3 has a folder of its own in it.
        """
        return make_stage(self.root / "stages" / name, recipe, provisioned=provisioned, **knobs)

    def _prepare(self) -> None:
        """Folders, keys and configuration files; nothing runs yet but the reaper."""
        if missing := missing_parts():
            raise LabError("the Slurm lab needs " + "; ".join(missing))
        # munged wants its socket within everyone's reach, and no folder that others may write to.
        self.root.mkdir(parents=True, exist_ok=True)
        self.root.chmod(0o711)
        for folder in ("munge", "state", "spool", "run", "log", "ssh", "dev", "stages", "home", "bin"):
            (self.root / folder).mkdir()
            (self.root / folder).chmod(0o755)
        self._ports = ports.claim(self.nodes)
        self.port = self._ports.sshd
        settings = config.Settings(
            root=self.root,
            nodes=self.nodes,
            slurmctld_port=self._ports.slurmctld,
            slurmd_port=self._ports.slurmd,
            slurmdbd_port=self._ports.slurmdbd if self.accounting else 0,
            min_job_age=self.min_job_age,
            slurmd_timeout=self.slurmd_timeout,
        )
        self._configure(settings)
        for gpu in range(8):
            (self.root / "dev" / f"nvidia{gpu}").symlink_to("/dev/null")
        munge_key = self.root / "munge" / "key"
        munge_key.touch(mode=0o600)
        munge_key.write_bytes(os.urandom(128))
        login = sshd.make_sshd(self.root, self.port, {**self.environment, "HOME": f"{self.root}/home"})
        self._install_pyxis()
        self._daemons = {daemon.name: daemon for daemon in (login, *self._define())}
        self._reaper = reaper.start(self.root, keep=not self._own_root)

    def _install_pyxis(self) -> None:
        """The login shell's srun names Pyxis' option, of which this machine has no plug-in; and it has an nsys."""
        sshd.make_home(self.root)
        srun = _SRUN.format(srun=shutil.which("srun", path=config.SYSTEM_PATH))
        prolog, epilog = (text.format(root=self.root) for text in (_PROLOG, _EPILOG))
        for name, text in (("srun", srun), ("nsys", _NSYS), ("prolog", prolog), ("epilog", epilog)):
            tool = self.root / "bin" / name
            tool.write_text(text)
            tool.chmod(0o755)

    def _configure(self, settings: config.Settings) -> None:
        (self.root / "slurm.conf").write_text(config.slurm_conf(settings))
        (self.root / "topology.conf").write_text(config.topology_conf(settings))
        (self.root / "gres.conf").write_text(config.gres_conf(settings))
        # 22.05 does not know it. Later slurmds do not start without a cgroup that they may write to.
        if version() >= (23, 2):
            (self.root / "cgroup.conf").write_text("CgroupPlugin=disabled\n")

    def _start_accounting(self, deadline: float) -> None:
        """What the controller wants to find when it starts; here nothing."""

    def _daemon(self, name: str, *argv: str, env: Mapping[str, str] | None = None) -> Daemon:
        program = shutil.which(argv[0], path=config.SYSTEM_PATH) or argv[0]
        environment = {**self.environment, **(env or {})}
        return Daemon(name, [program, *argv[1:]], environment, self.root / "log" / f"{name}.out")

    def _define(self) -> list[Daemon]:
        munge = self.root / "munge"
        files = {"key-file": "key", "socket": "socket", "pid-file": "pid", "seed-file": "seed"}
        paths = [f"--{option}={munge / name}" for option, name in files.items()]

        def node(name: str) -> Daemon:
            mark = {daemons.NODE_MARK: f"{self.root}/{name}"}
            return self._daemon(f"slurmd.{name}", "slurmd", "-D", "-N", name, env=mark)

        return [
            self._daemon(
                "munged", "munged", "--foreground", *paths, f"--log-file={self.root / 'log' / 'munged.log'}"
            ),
            self._daemon("slurmctld", "slurmctld", "-D"),
            *(node(f"gpu{number:03d}") for number in range(1, self.nodes + 1)),
        ]

    def _nodes(self) -> Sequence[Daemon]:
        return [daemon for name, daemon in self._daemons.items() if name.startswith("slurmd.")]

    def _resumed(self) -> bool:
        """Whether each node is in service; those that are not are taken back."""
        broken = self.ask("sinfo", "-h", "-N", "-t", "down,drain,fail", "-o", "%N").split()
        if broken:
            # Slurm refuses it for a node that has come back by itself meanwhile.
            self._try("scontrol", "update", f"NodeName={','.join(sorted(set(broken)))}", "State=RESUME")
        return not broken

    def _try(self, *argv: str) -> str:
        """Like `run`, but an answer that fails, or does not come soon, is an empty one."""
        try:
            return self.run(*argv, timeout=60)
        except LabError:
            return ""

    def _wait(self, name: str, ready: Callable[[], bool], deadline: float) -> None:
        while not ready():
            self._daemons[name].check()
            if time.monotonic() > deadline:
                raise LabError(f"{name} was not ready in time:\n{daemons.tail(self._daemons[name].log)}")
            time.sleep(0.05)


def _site(lab: SlurmLab, stage: Stage) -> str:
    """A site file for this lab: its login node is in no ~/.ssh/config."""
    return f"""\
site: lab
slurm:
  gpu: h100
  account: lab_acct
  partition: batch
  stage: {stage.root}
  gres: "gpu:8"
  limits: {{log_settle_seconds: 2}}
  ssh:
    host: {lab.host}
    port: {lab.port}
    user: {lab.user}
    key: {lab.key}
    known_hosts: {lab.known_hosts}
    config: /nonexistent
"""


def main() -> int:
    """Bring a lab up, say how to reach it, and keep it until Ctrl-C or SIGTERM."""
    parser = argparse.ArgumentParser(prog="python -m tests.lab.slurm", description=main.__doc__)
    parser.add_argument("--nodes", type=int, default=64, help="nodes of 8 GPUs each (default 64)")
    parser.add_argument("--root", type=Path, help="an empty folder with a short path; kept at the end")
    options = parser.parse_args()
    enough = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: enough.set())
    try:
        with SlurmLab(options.root, options.nodes) as lab:
            _tell(lab)
            enough.wait()
    except LabError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _tell(lab: SlurmLab) -> None:
    stage = lab.stage("stage")
    site = lab.root / "site.yaml"
    site.write_text(_site(lab, stage))
    print(f"{lab.nodes} nodes are idle, until Ctrl-C. To judge a case on them, in another terminal:")
    print("  export HF_TOKEN=none-is-needed")
    print(f'  {sys.executable} -m pytest suites/llama3 -k "8b and bf16 and 16gpus" --site {site}')
    print("To make the cluster 10 % slower, and to judge the case again:")
    print(f'  sed -i \'s/"pace": 1.0/"pace": 1.1/\' {stage.path / knobs.FILE}   # tests/lab/recipe/knobs.py')
    print("To log in, and then to prepare a launch by hand:")
    print(f"  ssh -i {lab.key} -o UserKnownHostsFile={lab.known_hosts} -p {lab.port} {lab.user}@{lab.host}")
    print(f"  export STAGE_PATH={stage.path}; source {stage.venv}/bin/activate; cd {stage.recipe}")
    facts = {
        "host": lab.host,
        "port": lab.port,
        "user": lab.user,
        "key": str(lab.key),
        "known_hosts": str(lab.known_hosts),
        "slurm_conf": lab.environment["SLURM_CONF"],
        "stage_path": str(stage.path),
        "recipe": str(stage.recipe),
        "venv": str(stage.venv),
        "site": str(site),
    }
    print(json.dumps(facts), flush=True)


if __name__ == "__main__":
    sys.exit(main())
