"""What the tests of faults share: one session on a case of one node, the gate before a tool, what must hold at its end.

Whatever breaks: no job is left, none is submitted twice, and the session ends within a bound.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from fixtures.runs.lock import is_live
from tests.lab.jobs import LabJob
from tests.lab.slurm import SlurmLab
from tests.lab.stage import Stage
from tests.system.forks import Session
from tests.system.support import GUARD, TOKEN, Run, finish, pacemark, signal_group, site_file, start, until

CASE = "llama3/8b-bf16-8gpus"
NEMOTRON = "nemotron4/340b-bf16-128gpus"
MAXTEXT = "maxtext_llama2/70b-bf16-64gpus"

MakeTrial = Callable[..., "Trial"]


class Trial:
    """One run on the lab of one case, alone in its results folder: started, taken up again, and asked about.

    `keys` replace keys of the site file, `limits` are added to its limits; all else are knobs of the stage.
    """

    def __init__(
        self,
        lab: SlurmLab,
        folder: Path,
        *,
        case: str = CASE,
        limits: str = "",
        keys: dict[str, str] | None = None,
        stage: Stage | None = None,
        results: Path | None = None,
        **knobs: Any,
    ) -> None:
        self.lab = lab
        self.case = case
        self.recipe, _, self.case_id = case.partition("/")
        self.folder = folder
        self.results = results or folder / "results"
        self.tools = folder / "bin"
        self.stage = stage or lab.stage(folder.name, recipe=self.recipe, **knobs)
        prologue = {"prologue": f'"export PATH={self.tools}:$PATH"'}
        self.site = site_file(lab, self.stage, folder, limits=limits, **{**prologue, **(keys or {})})
        self.process: Session | None = None

    # The session

    def start(self, *more: str, env: dict[str, str] | None = None) -> Trial:
        size, dtype, gpus = self.case_id.rsplit("-", 2)
        chosen = f'case(size="{size}", dtype="{dtype}", gpus={gpus.removesuffix("gpus")})'
        self.process = self.session(f"suites/{self.recipe}", "-m", chosen, *more, env=env)
        return self

    def session(self, *arguments: str, env: dict[str, str] | None = None) -> Session:
        """Start a session on its site."""
        return start(*arguments, "--site", str(self.site), results=self.results, env=env)

    def hold(self, step: int) -> Trial:
        """Its job is to wait after this step until it is let go."""
        self.stage.hold(step)
        return self

    def let_go(self) -> None:
        self.stage.let_go()

    def until_said(self, words: str) -> None:
        """Until the session has printed this."""
        process = self.process
        assert process is not None
        until(lambda: words in process.said(), words)

    def resume(self, *more: str) -> Run:
        return self.start("--resume", "latest", *more).end()

    def end(self, seconds: float = GUARD, *, left: int = 0) -> Run:
        """Wait for the session's own end; afterwards no job of it may be left, and none have been submitted twice."""
        assert self.process is not None
        result = finish(self.process, self.results, seconds)
        assert len([job for job in self.living() if job.state != "COMPLETING"]) == left, result.out
        names = [job.name for job in self.jobs()]
        assert len(names) == len(set(names)), f"submitted twice: {names}\n{result.out}"
        return result

    def passed(self) -> str:
        """Its end: the case passed, by one job; what the session printed."""
        result = self.end()
        assert result.verdicts == {self.case: "passed"}, result.out
        assert len(self.jobs()) == 1
        return result.out

    def blamed(self) -> str:
        """Its end: the case is infrastructure; its headline."""
        result = self.end()
        assert result.verdicts == {self.case: "infrastructure"}, result.out
        headline: str = result.case(self.case)["headline"]
        return headline

    def house(self, *command: str) -> Run:
        """`--sweep` and the like."""
        return pacemark("suites", *command, "--site", str(self.site), results=self.results)

    def signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        signal_group(self.process, number)

    def kill(self) -> None:
        """kill -9 of the session and its workers: nobody can clean up."""
        self.signal(signal.SIGKILL)
        assert self.process is not None
        self.process.communicate()

    def clear(self) -> None:
        """End what still runs of the session itself, and open every gate."""
        for path in self.tools.glob("*.shut"):
            path.unlink()
        if self.process is not None and self.process.stdout is not None and not self.process.stdout.closed:
            self.kill()

    # What is to be seen from outside

    @property
    def run(self) -> str:
        """The run's id, which is in the name of each of its jobs."""
        return (self.results / "latest").resolve().name

    def owned(self) -> bool:
        """Whether a session has the run."""
        return is_live(self.results / "latest")

    def living(self) -> list[LabJob]:
        return [job for job in self.lab.squeue() if self.run in job.name]

    def jobs(self) -> list[LabJob]:
        """All that ever were, by id."""
        return [job for job in self.lab.jobs_ever() if self.run in job.name]

    def job(self, state: str = "RUNNING") -> LabJob:
        """The run's job, once it is in this state."""
        found: list[LabJob] = []

        def seen() -> bool:
            # It may leave the state at any moment, so it is not looked for again.
            found[:] = [job for job in self.living() if job.state == state]
            return bool(found)

        until(seen, f"a job that is {state}")
        return found[0]

    def node(self) -> str:
        """The node, or the first of the nodes, that the run's job is on."""
        nodes = self.lab.ask("squeue", "-h", "-o", "%N", "-j", str(self.job().id)).strip()
        return self.lab.run("scontrol", "show", "hostnames", nodes).split()[0]

    def log(self) -> Path:
        """The job's own log on the stage, once it is there."""
        job = self.job()
        found: list[Path] = []

        def seen() -> bool:
            found[:] = [path for path in self.stage.path.rglob(f"log-*{job.id}*.out") if path.stat().st_size]
            return bool(found)

        until(seen, "the job's log")
        return found[0]

    def collected(self) -> bytes:
        """What the session has of the job's log."""
        path = self.results / "latest" / self.case / "log.txt"
        return path.read_bytes() if path.exists() else b""

    def has_read(self, size: int) -> bool:
        # An end that may begin a secret is kept back.
        return len(self.collected()) > size - len(TOKEN)

    def first_seen_waiting_for(self, reason: str) -> None:
        """Start the session, which asks for its job only once this is in the reason: Slurm tells it a moment after sbatch."""
        gate = self.gate("squeue").shut()
        self.start()
        until(lambda: any(reason in job.reason for job in self.living()), reason)
        gate.open()

    def until_steps(self, count: int) -> None:
        """Until the session knows so many steps."""
        until(lambda: self.collected().count(b"global_step") >= count, f"{count} steps in the session")

    # Where a tool of Slurm is held up

    def gate(self, tool: str, *, after: bool = False) -> Gate:
        """A gate before (or behind) one of the tools on the login node; open until it is shut."""
        self.tools.mkdir(exist_ok=True)
        return Gate(self.tools, tool, after=after)


@contextlib.contextmanager
def small_disk(folder: Path) -> Iterator[None]:
    """A file system of 12 MB at this place."""
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=12m", "pacemark-lab", str(folder)], check=True)
    try:
        yield
    finally:
        # Lazily: whoever still writes to it must not keep it in place.
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def mend(lab: SlurmLab) -> None:
    """After a test: everything runs again, every node is idle, and the test has left no job behind."""
    lab.mend()
    left = lab.end_jobs()
    until(lambda: lab.idle_nodes() == lab.nodes, "every node idle again")
    assert left == []


class Gate:
    """While it is shut, whoever calls the tool waits in front of it, or with `after` behind it."""

    def __init__(self, tools: Path, tool: str, *, after: bool) -> None:
        self._shut, self._came = tools / f"{tool}.shut", tools / f"{tool}.came"
        # Whoever passes while it is being shut leaves no sign.
        wait = f"while [ -e {self._shut} ]; do touch {self._came}; sleep 0.05; done"
        real = f'/usr/bin/{tool} "$@"'
        steps = f"{real}; status=$?; {wait}; exit $status" if after else f"{wait}; exec {real}"
        (tools / tool).write_text(f"#!/bin/bash\n{steps}\n")
        (tools / tool).chmod(0o755)

    def shut(self) -> Gate:
        self._came.unlink(missing_ok=True)
        self._shut.touch()
        return self

    def until_somebody_waits(self) -> None:
        until(self._came.exists, "somebody at the gate")

    def open(self) -> None:
        self._shut.unlink(missing_ok=True)


class Behind:
    """What the login node shows of a log that the nodes write: as much as the test lets through."""

    def __init__(self, log: Path) -> None:
        self.shown, self.real = log, log.with_name(f"real-{log.stem}")
        # The job goes on writing to the file that it has open.
        log.rename(self.real)
        self.show()

    def show(self, part: float = 1.0) -> None:
        data = self.real.read_bytes()
        fresh = self.shown.with_name("fresh")
        fresh.write_bytes(data[: int(len(data) * part)])
        fresh.replace(self.shown)
