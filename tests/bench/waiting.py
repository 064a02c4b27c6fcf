"""Cases that wait behind a busy cluster: what the controller is asked meanwhile, and how a Ctrl-C ends it."""

from __future__ import annotations

import os
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from tests.bench import checkout, controller, process
from tests.bench.controller import Record
from tests.bench.report import print_target
from tests.lab.slurm import SlurmLab
from tests.system.support import site_file

FEW, MANY = 5, 500
WINDOW = 45.0
_SUBMITTING = 600.0
_ALIKE = 1.2


@dataclass(frozen=True)
class Wait:
    """`cancelling`: s from Ctrl-C to the exit; `left`: jobs.

    `record` is of the window in which all cases waited, `end` of the time from Ctrl-C to the exit.
    """

    record: Record
    end: Record
    cancelling: float
    left: int

    @property
    def rate(self) -> float:
        """Job information requests a minute while all cases waited."""
        return self.record.job_information * 60 / WINDOW


def compare(lab: SlurmLab, folder: Path) -> None:
    lab.run("sbatch", f"--nodes={lab.nodes}", "--exclusive", "--output=/dev/null", "--wrap=sleep 7200")
    while lab.idle_nodes():
        time.sleep(0.2)
    few, many = (wait(lab, folder / f"waiting-{cases}", cases) for cases in (FEW, MANY))
    for name, way in ((FEW, few), (MANY, many)):
        print(f"requests, {name} cases: waiting: {way.record.by_type}; Ctrl-C: {way.end.by_type}")
    print_target(
        f"as many requests with {MANY} waiting cases as with {FEW}",
        many.rate <= _ALIKE * few.rate,
        f"{many.rate:.0f} and {few.rate:.0f} a minute",
    )
    print_target(
        "Ctrl-C leaves no job", not (few.left or many.left), f"{many.left} left, {many.cancelling:.1f} s"
    )
    requests = sum(many.end.requests.values())
    print_target(
        f"Ctrl-C with {MANY} jobs < 2 s, <= 20 requests",
        many.cancelling < 2 and requests <= 20,
        f"{many.cancelling:.1f} s, {requests} requests",
    )


def wait(lab: SlurmLab, folder: Path, cases: int) -> Wait:
    """A session of `cases` cases that is interrupted when all have waited for `WINDOW` seconds."""
    folder.mkdir()
    stage = lab.stage(folder.name, provisioned=False)
    checkout.stock(stage.root)
    made = checkout.make(folder / "checkout", cases)
    site = site_file(lab, stage, folder, limits=f", jobs_in_flight: {cases}")
    others = len(lab.squeue())
    watch = controller.Watch(lab)
    session = process.pytest(made, folder / "pytest.out", "--site", str(site))
    deadline = time.monotonic() + _SUBMITTING
    while len(submitted := watch.read().submitted) < cases:
        if time.monotonic() > deadline:
            os.killpg(session.pid, signal.SIGINT)
            session.wait()
            sys.exit(f"{len(submitted)} of {cases} cases were submitted in {_SUBMITTING:g} s")
        time.sleep(0.5)
    with controller.watching(lab) as record:
        time.sleep(WINDOW)
    with controller.watching(lab) as end:
        asked = time.time()
        os.killpg(session.pid, signal.SIGINT)
        cost = session.wait()
    return Wait(
        record=record,
        end=end,
        cancelling=cost.ended - asked,
        left=len(lab.squeue()) - others,
    )
