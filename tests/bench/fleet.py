"""64 jobs of 4 nodes and 10 s on a cluster that holds them all: Pacemark over SSH, ReFrame, and sbatch without either.

The floor is the time that the longest job took, by the controller's log: what all of them need that start at once. What
the cluster itself needs for as many jobs is measured by sbatch in a loop: it starts batch jobs about once a second. Then
cases that wait behind a busy cluster. The cluster is the lab's Slurm of 256 nodes on this machine.
"""

from __future__ import annotations

import compileall
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path

from tests.bench import checkout, controller, process, reframe, waiting
from tests.bench.controller import Record
from tests.bench.process import Cost
from tests.bench.report import Row, print_figure, print_table, print_target
from tests.lab.slurm import SlurmLab, missing_parts
from tests.system.support import site_file

JOBS = 64
WITH_PEER = True
"""Whether ReFrame is measured, which is installed from the network."""

_SBATCH = f"sbatch --nodes={checkout.NODES} --exclusive --mem=0 --gres=gpu:8 --output=bare-%j.out"
_PATIENCE = 600.0


@dataclass(frozen=True)
class Way:
    """One way to run the jobs. `login` is CPU in s on the login node outside the process tree: sshd and its sessions."""

    name: str
    cost: Cost
    record: Record
    login: float = 0.0

    @property
    def ratio(self) -> float:
        """Wall over the floor of the same run."""
        return self.cost.wall / self.record.longest

    def rows(self) -> list[Row]:
        record, cost = self.record, self.cost
        first, last = min(record.submitted.values()), max(record.ended.values())
        return [
            ("wall, whole session", "s", cost.wall),
            ("  until the first submission", "s", first - cost.began),
            ("  first to last submission", "s", max(record.submitted.values()) - first),
            ("  last job's end to exit", "s", cost.ended - last),
            ("floor: the longest job", "s", record.longest),
            ("first submission to last end", "s", record.span),
            ("wall / floor", "x", self.ratio),
            ("CPU, process tree", "s", cost.cpu),
            ("CPU, sshd and its sessions", "s", self.login),
            ("memory, largest process", "MB", cost.peak),
            ("job information requests", "/s", record.job_information / cost.wall),
        ]


def pacemark(lab: SlurmLab, folder: Path) -> Way:
    """A pytest session of `JOBS` cases; all must pass."""
    stage = lab.stage("fleet", provisioned=False)
    checkout.stock(stage.root)
    # As `pip` compiles what it installs. Else the first session after a change of the code compiles it, in 0.8 s.
    for name in ("plugins", "fixtures"):
        compileall.compile_dir(checkout.ROOT / name, quiet=1)
    # The first session compiles the templates of its page, too.
    compile_page = "from plugins.reports.page import PageReport; PageReport.load()"
    keeping = {**os.environ, **process.KEEPING}
    subprocess.run([sys.executable, "-c", compile_page], cwd=checkout.ROOT, env=keeping, check=True)
    made = checkout.make(folder / "checkout", JOBS)
    site = site_file(lab, stage, folder, limits=f", jobs_in_flight: {JOBS}")
    sshd = int((lab.root / "run" / "sshd.pid").read_text())
    before = process.cpu_of(sshd)
    with controller.watching(lab) as record:
        cost = process.pytest(made, folder / "pytest.out", "--site", str(site)).wait()
    require(cost, record, folder / "pytest.out")
    return Way("Pacemark", cost, record, process.cpu_of(sshd) - before)


def peer(lab: SlurmLab, folder: Path) -> Way:
    program = reframe.install()
    with controller.watching(lab) as record:
        cost = reframe.start(program, lab, folder / "reframe", JOBS).wait()
    require(cost, record, folder / "reframe" / "reframe.out")
    return Way("ReFrame", cost, record)


def bare(lab: SlurmLab, folder: Path) -> Way:
    """No harness at all, the least that this machine and its Slurm need: until the last job's own end."""
    folder = folder / "loop"
    folder.mkdir()
    (folder / "job.sh").write_text(checkout.JOB)
    out, watch = folder / "bare.out", controller.Watch(lab)
    loop = f"for ((i = 0; i < {JOBS}; i++)); do {_SBATCH} job.sh; done"
    with controller.watching(lab) as record:
        cost = process.Measured(["bash", "-c", loop], cwd=folder, out=out, env=lab.environment).wait()
        deadline = time.monotonic() + _PATIENCE
        while len(watch.read().ended) < JOBS and time.monotonic() < deadline:
            time.sleep(0.2)
    require(cost, record, out)
    return Way("sbatch", replace(cost, ended=max(record.ended.values())), record)


def require(cost: Cost, record: Record, out: Path) -> None:
    """A way that did not run all jobs to their end has no figures."""
    if cost.status or len(record.ended) != JOBS or record.started.keys() != record.ended.keys():
        sys.exit(
            f"status {cost.status}, {len(record.ended)} of {JOBS} jobs ended:\n{out.read_text()[-3000:]}"
        )


def side_by_side(lab: SlurmLab, folder: Path) -> None:
    ours, loop = ways = [pacemark(lab, folder), bare(lab, folder)]
    if WITH_PEER:
        ways.append(peer(lab, folder))
    print_table(
        f"{JOBS} jobs of {checkout.NODES} nodes and {checkout.STEPS * checkout.STEP_SECONDS:g} s",
        [way.name for way in ways],
        [way.rows() for way in ways],
    )
    for way in ways:
        print(f"requests, {way.name}: {way.record.by_type}")
    cost, record = ours.cost, ours.record
    print_figure("wall against the longest job", ", ".join(f"{way.name} {way.ratio:.2f} x" for way in ways))
    ratio = cost.wall / loop.cost.wall
    print_target(
        "wall <= 1.15 x that of sbatch in a loop", ratio <= 1.15, f"{ratio:.2f} x {loop.cost.wall:.2f} s"
    )
    print_figure("until the first submission", f"{min(record.submitted.values()) - cost.began:.2f} s")
    print_figure("from the last job's end to the exit", f"{cost.ended - max(record.ended.values()):.2f} s")
    print_target("CPU <= 3 s", cost.cpu <= 3, f"{cost.cpu:.2f} s")
    print_target("memory <= 80 MB", cost.peak <= 80, f"{cost.peak:.0f} MB")
    rate = record.job_information / cost.wall
    print_target("at most one job information request a second", rate <= 1, f"{rate:.2f} /s")
    if WITH_PEER:
        share = (cost.cpu + ours.login) / ways[-1].cost.cpu
        print_target("CPU, login node included, <= half of ReFrame's", share <= 0.5, f"{share:.2f} x")


def main() -> None:
    if missing := missing_parts():
        sys.exit("the fleet's bench needs " + "; ".join(missing))
    with tempfile.TemporaryDirectory() as name, SlurmLab(nodes=JOBS * checkout.NODES) as lab:
        side_by_side(lab, Path(name))
        waiting.compare(lab, Path(name))


if __name__ == "__main__":
    main()
