"""What a test can change about the stand-in trainer, without touching how it is launched."""

from __future__ import annotations

import dataclasses
import json
import os
import random
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

FILE = "lab.json"
BEFORE_STEPS = -2
"""For `held_at`: on GKE, behind the first lines of the log."""


@dataclass(frozen=True)
class Knobs:
    """Read from `$STAGE_PATH/lab.json` when the trainer starts. Steps count from 0; a step of -1 means never.

    Pace, in printed (virtual) time:
        pace: factor on the published step time; slow_nodes: on Slurm, of a job on any of these alone, of all if there are none; noise: relative standard deviation; seed: of that noise;
        paces: "8b-fp8-64" -> a further factor on the step time of this case of llama3;
        warmup: number of slow first steps; slow_steps: step -> factor, for stalls and hiccups.
    Pace, in real seconds:
        startup: before the first step; real_step: for each step; late_log: before the first line of the log.
    What it runs:
        nodes: on Slurm, of so many nodes of a job, from the first one on, each of the eight tasks runs and prints;
        gbs: global batch size if not 0; steps: print only the first N planned steps, yet exit 0, if not 0;
        nan_at: the loss is nan from this step on; checkpoint: save one at the end;
        storage: on Kubernetes, the GB/s that a checkpoint is written with which is asked for.
    How it ends:
        vboost_fails: llama3's first step, `sudo nvidia-smi`, fails on the last node;
        dead_at: on Slurm, a rank on the second node dies after this step, and the others wait for it;
        crash_at: traceback and exit code 1 after this step; hang_at: silent but running after this step;
        held_at: it waits after this step as long as the file held_by is there;
        restarts: how often the job requeues itself, each time after step restart_at;
        exit_code_after: exit code behind the last step;
        master_first: the master of a PyTorchJob ends at once, the others go on.
    How the log looks:
        driver: on Kubernetes, what nvidia-smi says on each node;
        speaker: on Kubernetes, the end of the name of the pod that prints the steps, if not that of the last rank;
        interleave: other ranks' text glued to and into step lines;
        socket_fallback: NCCL says that it uses TCP sockets;
        chatter: megabytes of other ranks' warnings before each step;
        profiles: a run that is profiled writes its reports;
        trace_calls: pairs of collectives in a step of an NCCL trace;
        saved: "": a checkpoint is written whole if it is asked for; else "cut off", "empty", "no metadata", or "real" (bytes
        that fill a disk);
        probes: on Kubernetes, the path of the table by which probes of nodes are slow: see `tests.lab.prober`;
        loaded: "": a checkpoint is loaded if it is asked for; else "another" is, or the loss begins "anew";
        leak: a traceback prints the environment, the token in two halves with a pause between them.
    """

    pace: float = 1.0
    slow_nodes: list[str] = field(default_factory=list)
    noise: float = 0.002
    seed: int = 0
    paces: dict[str, float] = field(default_factory=dict)
    warmup: int = 3
    slow_steps: dict[int, float] = field(default_factory=dict)
    startup: float = 0.0
    real_step: float = 0.02
    late_log: float = 0.0
    nodes: int = 2
    gbs: int = 0
    steps: int = 0
    nan_at: int = -1
    checkpoint: bool = False
    storage: float = 60.0
    vboost_fails: bool = False
    dead_at: int = -1
    crash_at: int = -1
    hang_at: int = -1
    held_at: int = -1
    held_by: str = ""
    restarts: int = 0
    restart_at: int = 5
    exit_code_after: int = 0
    master_first: bool = False
    driver: str = "550.144.03"
    speaker: str = ""
    interleave: bool = False
    socket_fallback: bool = False
    chatter: int = 0
    profiles: bool = True
    trace_calls: int = 2
    saved: str = ""
    loaded: str = ""
    probes: str = ""
    leak: bool = False

    def seconds(self, published: float, step: int, noise: random.Random) -> float:
        """Virtual time of one step in s: published, times pace, noise, and what is slow about this step."""
        factor = noise.gauss(1.0, self.noise) * self.slow_steps.get(step, 1.0)
        if step < self.warmup:
            # The first step compiles and connects; the next ones still settle.
            factor *= 5.0 if step == 0 else 1.1
        return self.pace * published * factor

    def holds(self, step: int) -> bool:
        """Whether it waits after this step."""
        return step == self.held_at and Path(self.held_by).exists()

    @classmethod
    def load(cls, stage: Path) -> Knobs:
        """Knobs of a stage; the defaults if it has no file."""
        path = stage / FILE
        if not path.exists():
            return cls()
        values = json.loads(path.read_text())
        # JSON has only text as keys.
        if "slow_steps" in values:
            values["slow_steps"] = {int(key): value for key, value in values["slow_steps"].items()}
        if values.get("slow_nodes") and "SLURM_JOB_NODELIST" in os.environ:
            nodes = ["scontrol", "show", "hostnames", os.environ["SLURM_JOB_NODELIST"]]
            names = subprocess.run(nodes, check=True, capture_output=True, text=True).stdout.split()
            if set(names).isdisjoint(values["slow_nodes"]):
                values["pace"] = 1.0
        return cls(**values)

    def save(self, stage: Path) -> None:
        """Write them in one move, so that a trainer never reads half a file."""
        fresh = stage / f"{FILE}.new"
        fresh.write_text(json.dumps(dataclasses.asdict(self), indent=1))
        fresh.replace(stage / FILE)
