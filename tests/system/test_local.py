"""Programs on this machine: they end with their session or with a sweep, and do their work as often as a handicap says."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fixtures.runs.ledger import read_ledger
from tests.lab import daemons
from tests.system.support import ROOT, finish, pacemark, signal_group, start, until
from tests.system.test_proxy import CPU_ONLY, TINY

# Prints the processor time of a small training step that is computed once, and of one that is computed 16 times.
COSTS = """\
import runpy, sys, time
from argparse import Namespace
sys.path.insert(0, "suites/proxy")
train = runpy.run_path("suites/proxy/train.py")
jax = train["jax"]
shape = dict(layers=1, hidden=256, ffn=512, heads=2, query_groups=1, vocab=512, seq_len=128, mbs=1, mlp="gated", experts=1, top_k=1)
steps = {}
for handicap in (1, 16):
    given = Namespace(**shape, seed=0, ga=1, gpus=1, fsdp=1, dtype="fp32", handicap=handicap)
    step, *held = train["prepare"](given, jax.devices()[:1], None)
    steps[handicap] = jax.jit(step).lower(*held).compile(), held
costs = {1: [], 16: []}
for _ in range(10):
    for handicap, (step, held) in steps.items():
        began = time.process_time()
        jax.block_until_ready(step(*held))
        costs[handicap].append(time.process_time() - began)
print(min(costs[16]) / min(costs[1]))
"""


def test_a_handicap_makes_a_step_do_its_work_that_many_times() -> None:
    done = subprocess.run(
        [sys.executable, "-c", COSTS],
        cwd=ROOT, env={**os.environ, "JAX_PLATFORMS": "cpu", "NPROC": "1"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    # Processor time is as noisy as the machine is busy; the optimizer's part is done once. Merged passes cost about 1.
    assert 6 < float(done.stdout) < 20


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_training_process(tmp_path: Path, number: signal.Signals) -> None:
    process = start(*CPU_ONLY, results=tmp_path / "results")
    log = tmp_path / "results" / "latest" / TINY / "log.txt"
    until(lambda: log.exists() and "proxy devices" in log.read_text(), "the training process runs")
    (job,) = read_ledger(tmp_path / "results" / "latest").entries()
    assert trains(job.ref.id)
    signal_group(process, number)
    result = finish(process, tmp_path / "results")
    assert "was cancelled" in result.case(TINY)["headline"]
    assert not trains(job.ref.id)


def test_a_training_process_that_a_dead_session_left_is_swept(tmp_path: Path) -> None:
    process = start(*CPU_ONLY, results=tmp_path / "results")
    log = tmp_path / "results" / "latest" / TINY / "log.txt"
    until(lambda: log.exists() and "proxy devices" in log.read_text(), "the training process runs")
    process.kill()
    process.communicate()
    shown = pacemark("suites", "--list-runs", results=tmp_path / "results")
    trainer = shown.out.split()[-1]
    assert trains(trainer)
    swept = pacemark("suites", "--sweep", results=tmp_path / "results")
    assert swept.status == 0, swept.out
    assert f"job {trainer} is over" in swept.out
    assert not trains(trainer)


def trains(number: str) -> bool:
    """Whether the process of this number trains. One that has ended has no command line."""
    return "train.py" in daemons.command(int(number))
