"""A scheduler that plays a script: sbatch, squeue, sacct, scontrol and scancel behind a real sshd, on loopback.

    with ScriptedLab(log) as lab:
        stage = lab.stage()
        lab.play(Script(forget_after=0))
        ...                                     # ssh -p {lab.port} {lab.user}@{lab.host}
        assert len(lab.calls("sbatch")) == 1

Real Slurm gives no adversarial timing, and no cluster lies on demand. Needs sshd and no root.
"""

from __future__ import annotations

import getpass
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType

from tests.lab import daemons, ports, reaper, sshd
from tests.lab.config import SYSTEM_PATH
from tests.lab.daemons import Daemon, LabError
from tests.lab.scripted_tools import TOOLS, Scheduler
from tests.lab.stage import Stage, make_stage

INSTALL_HINT = "apt-get install -y --no-install-recommends openssh-server"

# Seconds since the submission, the state from then on, and the share of the training log that is written by then.
Timeline = tuple[tuple[float, str, float], ...]
FINE: Timeline = ((0, "PENDING", 0), (0.2, "RUNNING", 0.3), (0.6, "COMPLETED", 1))
STUCK: Timeline = ((0, "PENDING", 0), (0.2, "RUNNING", 0.3))


def ending(state: str, share: float = 0.3) -> Timeline:
    """A job that runs for a moment and ends in this state, having written this share of its log."""
    return ((0, "RUNNING", share), (0.4, state, share))


@dataclass(frozen=True)
class Fault:
    """What a tool does for its first `calls` calls, or for all: waits `seconds`, then fails with `error`, if any.

    `silent`: it does nothing, says nothing and succeeds.
    """

    error: str = ""
    seconds: float = 0
    silent: bool = False
    calls: int | None = None


@dataclass(frozen=True)
class Script:
    """What the scheduler plays.

    The jobs: `timeline`; `ends`: with its last state a job is over; `forget_after`: seconds until the controller
    drops it then; `traceback` and `complaints`: what its tasks and srun say at its end; `kind`: "", "array" or "het"; `renamed`: the id has passed to another user's job, of this name; `cluster`: where sbatch sends it; `reason`, `exit_code` and `nodes` as printed.
    The tools: `faults` by tool (an sbatch that fails or hangs has made its job all the same); `appears_after`:
    seconds until the controller knows a job; `reply`: what sbatch prints;
    `cancel_ignored`: scancel succeeds and nothing happens. sacct: `accounted`: the state it says, whatever is
    true; `purged`: it knows no job.
    """

    timeline: Timeline = FINE
    ends: bool = True
    forget_after: float | None = None
    traceback: str = ""
    complaints: str = ""
    kind: str = ""
    renamed: str = ""
    cluster: str = ""
    reason: str = "None"
    exit_code: str = "0:0"
    nodes: str = "gpu[001-008]"
    faults: Mapping[str, Fault] = field(default_factory=dict)
    appears_after: float = 0
    reply: str = "{id}"
    cancel_ignored: bool = False
    accounted: str = ""
    purged: bool = False


@dataclass(frozen=True)
class Call:
    """One start of a tool."""

    tool: str
    argv: list[str]
    time: float
    pid: int


def missing_parts() -> list[str]:
    """What this machine lacks for the lab, in words; empty if it can be run."""
    return sshd.missing_programs(sshd.PROGRAMS, INSTALL_HINT)


def training_log(folder: Path) -> bytes:
    """What the smallest case of maxtext_llama2 prints at the published pace; works in `folder`."""
    make_stage(folder, "maxtext_llama2", provisioned=False, real_step=0)
    argv = [sys.executable, "-m", "tests.lab.recipe_maxtext.trainer", "run_name=perf", "steps=50"]
    argv += ["quantization=", "per_device_batch_size=2", "max_target_length=4096"]
    argv += ["dcn_fsdp_parallelism=8", "ici_fsdp_parallelism=8", "dcn_data_parallelism=1"]
    environment = {"STAGE_PATH": str(folder / "maxtext_llama2")}
    return subprocess.run(
        argv, cwd=reaper.REPOSITORY, env=environment, capture_output=True, check=True
    ).stdout


class ScriptedLab:
    """A login node whose Slurm is played. `log` is what every job writes."""

    host = sshd.HOST

    def __init__(self, log: bytes) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="pms-", dir="/tmp"))
        self.user = getpass.getuser()
        self.key = self.root / "ssh" / "client_key"
        self.known_hosts = self.root / "ssh" / "known_hosts"
        self.port = 0
        self._ports: ports.Ports | None = None
        self._sshd: Daemon | None = None
        self._reaper: subprocess.Popen[bytes] | None = None
        for folder in ("ssh", "bin", "home", "run", "log", "scheduler"):
            (self.root / folder).mkdir()
        self._scheduler = self.root / "scheduler"
        (self._scheduler / "log.txt").write_bytes(log)
        (self._scheduler / "calls.jsonl").touch()
        self.play(Script())

    def __enter__(self) -> ScriptedLab:
        try:
            self._start()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def stage(self, recipe: str = "maxtext_llama2") -> Stage:
        """A stage that is ready for its recipe."""
        return make_stage(self.root / "stage", recipe, provisioned=True)

    def play(self, script: Script) -> None:
        """Play this from now on, also to the jobs that there are."""
        fresh = self._scheduler / "script.json.new"
        fresh.write_text(json.dumps(asdict(script)))
        fresh.replace(self._scheduler / "script.json")

    def calls(self, tool: str) -> list[Call]:
        """Every start of a tool so far, in order."""
        lines = (self._scheduler / "calls.jsonl").read_text().splitlines()
        return [call for line in lines if (call := Call(**json.loads(line))).tool == tool]

    def jobs(self) -> dict[int, str]:
        """The state of every job that ever was, whether or not the controller has forgotten it."""
        scheduler = Scheduler(self._scheduler)
        return {job["id"]: scheduler.moment(job)[0] for job in scheduler.jobs}

    def live_jobs(self) -> list[int]:
        """The jobs that have not ended."""
        scheduler = Scheduler(self._scheduler)
        return [job["id"] for job in scheduler.jobs if not scheduler.moment(job)[2]]

    def names(self, jobs: Sequence[int]) -> list[str]:
        """The names under which these jobs were submitted."""
        return [job["name"] for job in Scheduler(self._scheduler).jobs if job["id"] in jobs]

    def running_tools(self) -> set[int]:
        """Process ids of the tools that have not come back."""
        name = str(self._scheduler)
        pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
        return {pid for pid in pids if name in daemons.command(pid)}

    def _start(self) -> None:
        tools = Path(__file__).with_name("scripted_tools.py")
        for name in TOOLS:
            path = self.root / "bin" / name
            path.write_text(
                f'#!/bin/sh\nexec {sys.executable} -I -S -B {tools} {self._scheduler} {name} "$@"\n'
            )
            path.chmod(0o755)
        # All that is asked of it before a launch; a shell's start costs less than Python's.
        (self.root / "bin" / "srun").write_text("#!/bin/sh\necho --container-image pmix\n")
        (self.root / "bin" / "srun").chmod(0o755)
        sshd.make_home(self.root)
        environment = {"PATH": SYSTEM_PATH, "HOME": f"{self.root}/home", daemons.MARK: str(self.root)}
        self._ports = ports.claim(0)
        self.port = self._ports.sshd
        self._sshd = sshd.make_sshd(self.root, self.port, environment)
        self._reaper = reaper.start(self.root, keep=False)
        self._sshd.start()
        deadline = time.monotonic() + 300
        while not daemons.answers(self.host, self.port):
            self._sshd.check()
            if time.monotonic() > deadline:
                raise LabError(f"sshd was not ready in time:\n{daemons.tail(self._sshd.log)}")
            time.sleep(0.02)

    def _stop(self) -> None:
        if self._sshd:
            self._sshd.stop()
        daemons.clear(self.root, self._ports, self._reaper)
