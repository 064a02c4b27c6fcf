"""What runs in the lab's pods: the recipes' output, line by line at a set pace, and how it ends. Nothing is trained.

A stand-in is a generator: it yields how many real seconds to wait and what to print then (None: nothing), and returns
the exit code of its container, or None if it never ends. Step times are virtual, and so is the clock that its lines state.
"""

from __future__ import annotations

import datetime
import json
import random
import re
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.lab import prober
from tests.lab.recipe.knobs import BEFORE_STEPS, Knobs
from tests.printed import dllogger, megatron_lm, nccl

Said = Generator[tuple[float, "str | None"], None, "int | None"]

_JOBSET = "jobset.sigs.k8s.io/jobset-name"
_INDEX = "batch.kubernetes.io/job-completion-index"
_PYTORCHJOB = "training.kubeflow.org/job-name"
_OVERRIDE = re.compile(r"(?<![\w.])\+*([a-z_]+\.[\w.]+)=([^\s'\"]+)")


@dataclass(frozen=True)
class Container:
    """What a pod's main container knows of itself: its variables, its command line, and its job.

    `host` is its host name, where that is not the node's; `node` is the node that it runs on.
    """

    pod: str
    host: str
    node: str
    name: str
    group: str
    environment: Mapping[str, str]
    command: str

    @classmethod
    def of(cls, pod: Mapping[str, Any]) -> Container:
        """The container that the recipes' commands run in: `workload`, `pytorch`, else the first."""
        containers = {c["name"]: c for c in pod["spec"]["containers"]}
        name = next((n for n in ("workload", "pytorch") if n in containers), next(iter(containers)))
        container, labels = containers[name], pod["metadata"].get("labels", {})
        environment = {e["name"]: e.get("value", "") for e in container.get("env", [])}
        environment.setdefault("JOB_COMPLETION_INDEX", "0")
        if _INDEX in labels:
            environment["JOB_COMPLETION_INDEX"] = labels[_INDEX]
        group = labels.get(_JOBSET) or labels.get(_PYTORCHJOB) or pod["metadata"]["name"]
        command = " ".join([*container.get("command", []), *container.get("args", [])])
        full = pod["metadata"]["name"]
        spec = pod["spec"]
        return cls(
            full, spec.get("hostname", full), spec.get("nodeName", ""), name, group, environment, command
        )

    @property
    def nodes(self) -> int:
        """How many pods its job waits for before it begins."""
        return int(self.environment.get("NNODES") or self.environment.get("PET_NNODES") or 1)

    @property
    def speaks(self) -> bool:
        """Whether it is the one that prints the steps."""
        if "PET_NNODES" not in self.environment:
            return self.environment["JOB_COMPLETION_INDEX"] == "0"
        # torchrun ranks nodes by name as text, and Megatron prints from the last rank: worker-9 of 64.
        workers = [f"{self.group}-worker-{number}" for number in range(self.nodes - 1)]
        pytorchjob = [f"{self.group}-master-0", *workers]
        jobset = [f"{self.group}-node-0-{number}" for number in range(self.nodes)]
        return self.host == max(pytorchjob if self.host in pytorchjob else jobset)

    @property
    def is_master(self) -> bool:
        """Whether its end is that of its PyTorchJob."""
        return self.host == f"{self.group}-master-0"

    @property
    def rank(self) -> str:
        """That of its process, as the training operator tells it, or its index."""
        return self.environment.get("RANK") or self.environment["JOB_COMPLETION_INDEX"]

    def run(self, knobs: Knobs, nodes: Callable[[], Sequence[str]]) -> Said:
        """Its output, by the recipe that it belongs to. `nodes` are those of its job, its own one first, once all of it is there."""
        if "/proxy/train.py" in self.command:
            return _proxy(self, knobs, nodes)
        if "PET_NNODES" in self.environment:
            return _megatron(self, knobs)
        if "NNODES" in self.environment:
            return _nemo(self, knobs)
        return _plain(knobs)


def _proxy(container: Container, knobs: Knobs, nodes: Callable[[], Sequence[str]]) -> Said:
    """A probe of one node or two: slow as the table says, where the scheduler has put its pods."""
    path = Path(knobs.probes)
    table = json.loads(path.read_text()) if path.is_file() else {}
    placed = nodes()
    crash = prober.crashes(table, placed)
    if crash:
        yield 0, crash
        return 1
    if container.rank != "0":
        return None
    while path.with_suffix(".wait").exists():
        yield 0.05, None
    for line in prober.printed(table, placed, container.command.split()):
        yield 0, line
    return 0


def _plain(knobs: Knobs) -> Said:
    yield knobs.startup, "a container that is no recipe's"
    return knobs.exit_code_after


def _nemo(container: Container, knobs: Knobs) -> Said:
    """Llama3 70B on GKE: NeMo 24.07 through our launcher; upstream's exits with 0 whatever torchrun did."""
    environment, given = container.environment, dict(_OVERRIDE.findall(container.command))
    gpus, steps = int(environment.get("WORLD_SIZE", 8)), int(given.get("trainer.max_steps", 50))
    gbs = knobs.gbs or int(given.get("model.global_batch_size", 1024))
    fp8 = given.get("model.fp8", "true").lower() == "true"
    job = environment.get("JOB_IDENTIFIER", container.group)
    # The one published figure: 45.8 s on 128 GPUs, with FP8.
    step_time = (45.8 if fp8 else 78.0) * 128 / gpus
    yield knobs.late_log, f"Pod on {container.pod} is running"
    yield 0, f"Pod is assigned job index of {environment['JOB_COMPLETION_INDEX']}"
    yield 0, _node(container.pod, knobs)
    yield 0, f"Logging to /job-logs/nemo-experiments/{job}"
    if not container.speaks:
        return None
    while knobs.holds(BEFORE_STEPS):
        yield 0.05, None
    yield knobs.startup, "[NeMo I 2024-10-10 20:49:13 megatron_gpt_pretraining:37]"
    yield 0, "NCCL version 2.21.5+cuda12.4"
    if knobs.socket_fallback:
        yield 0, nccl.info(nccl.OVER_SOCKETS, host=container.pod, pids="101:101")
    settings: dict[str, object] = {
        "cfg/micro_batch_size": 1,
        "cfg/global_batch_size": gbs,
        "cfg/encoder_seq_length": 8192,
        "cfg/num_layers": 80,
        "cfg/fp8": fp8,
        "cfg/precision": "bf16-mixed",
    }
    clock = datetime.datetime.now()
    yield 0, dllogger.in_output("PARAMETER", settings, _stamp(clock))
    noise, recent = random.Random(f"{knobs.seed}/{gpus}/{gbs}"), list[float]()
    for step in range(knobs.steps or steps):
        recent = [*recent, knobs.seconds(step_time, step, noise)][-5:]
        clock += datetime.timedelta(seconds=recent[-1])
        yield knobs.real_step, dllogger.in_output(step, _record(step, gbs, recent, knobs), _stamp(clock))
        while knobs.holds(step):
            yield 0.05, None
        if step == knobs.hang_at:
            return None
        if step == knobs.crash_at:
            yield 0, "Traceback (most recent call last):"
            yield 0, f"RuntimeError: NCCL error after step {step}"
            break
    yield 0, "Training completed"
    yield 0, f"Pod on {container.pod} is exiting"
    return 1 if step == knobs.crash_at else knobs.exit_code_after


def _record(step: int, gbs: int, recent: Sequence[float], knobs: Knobs) -> dict[str, object]:
    """What NeMo logs of a step. `recent` are the times of the last steps."""
    return {
        "reduced_train_loss": _loss(knobs, step),
        "lr": 2.0e-07 * (step + 1),
        "global_step": float(step),
        "consumed_samples": float((step + 1) * gbs),
        "grad_norm": 1.5,
        # NeMo's own mean of the last 5 steps.
        "train_step_timing in s": sum(recent) / len(recent),
        "epoch": 0,
    }


def _node(name: str, knobs: Knobs) -> str:
    """As the launchers say it first."""
    return f"node {name}, GPUs and driver: 8 NVIDIA H100 80GB HBM3, {knobs.driver}"


def _megatron(container: Container, knobs: Knobs) -> Said:
    """GPT-3 on AKS: Megatron-LM, a line every 10 iterations, the first with what they take to warm up."""
    environment = container.environment
    gpus = container.nodes * int(environment.get("GPUS_PER_NODE", 8))
    iterations = int(environment.get("NUMBER_OF_ITERATIONS", 50))
    gbs = knobs.gbs or int(environment.get("GLOBAL_BATCH_SIZE", 512))
    interval = int(environment.get("LOG_INTERVAL", 10))
    yield knobs.late_log, _node(container.host, knobs)
    if not (container.host.endswith(knobs.speaker) if knobs.speaker else container.speaks):
        return 0 if knobs.master_first and container.is_master else None
    yield knobs.startup, " > using tensorboard"
    yield 0, "NCCL version 2.25.1+cuda12.8"
    if knobs.socket_fallback:
        yield 0, nccl.info(nccl.OVER_SOCKETS, host=container.pod, pids="101:101")
    noise, times, skipped = random.Random(f"{knobs.seed}/{gpus}/{gbs}"), list[float](), 0
    clock = datetime.datetime.now()
    flops = gbs * _gpt_flops(environment) / gpus
    rate = environment.get("LOG_THROUGHPUT") == "1"
    for iteration in range(1, (knobs.steps or iterations) + 1):
        step = iteration - 1
        times.append(knobs.seconds(flops / 430e12, step, noise))
        clock += datetime.timedelta(seconds=times[-1])
        # FP16 halves its loss scale from 2^32 to 2^17, and skips the update each time.
        skipped += step < 16
        if iteration % interval == 0:
            mean = sum(times) / len(times)
            line = megatron_lm.line(
                iteration,
                mean * 1000,
                total=iterations,
                gbs=gbs,
                throughput=flops / mean / 1e12 if rate else None,
                loss=_loss(knobs, step) if skipped < interval else None,
                skipped=skipped,
                grad_norm=1.5,
                scale=2.0**32 if skipped == 10 else 2.0**17,
                date=f"{clock:%Y-%m-%d %H:%M:%S}",
                learning_rate=6e-6,
            )
            yield knobs.real_step * interval, line
            times.clear()
            skipped = 0
        while knobs.holds(step):
            yield 0.05, None
        if step == knobs.hang_at:
            return None
        if step == knobs.crash_at:
            yield 0, f"RuntimeError: NCCL error after iteration {iteration}"
            return 1
    yield from _saved(environment, knobs)
    yield 0, f"[exiting program at iteration {iterations}] datetime: {_stamp(clock)}"
    return knobs.exit_code_after


def _saved(environment: Mapping[str, str], knobs: Knobs) -> Generator[tuple[float, str], None, None]:
    """What is said of a checkpoint: by Megatron's last rank, and by the launcher."""
    place = environment.get("CHECKPOINT_PATH")
    if not place:
        return
    size = 14 * _gpt_parameters(environment)
    seconds = size / (knobs.storage * 1e9)
    yield knobs.real_step, "(min, max) time across ranks (ms):"
    yield 0, f"    {'save-checkpoint ':.<48}: ({seconds * 990:.2f}, {seconds * 1000:.2f})"
    yield 0, f"pacemark: checkpoint of {size} bytes in 1024 files in {place}"
    yield 0, f"pacemark: removed {place}"


def _gpt_flops(environment: Mapping[str, str]) -> float:
    """Model FLOPs of a sequence by Megatron's own count of causal attention."""
    layers, hidden = int(environment.get("NUM_LAYERS", 96)), int(environment.get("HIDDEN_SIZE", 12288))
    length, vocabulary = int(environment.get("SEQ_LENGTH", 2048)), _vocabulary(environment)
    layer = 48 * hidden**2 + 12 * hidden**2 * (2 + length / (2 * hidden))
    return length * (layers * layer + 6 * hidden * vocabulary)


def _gpt_parameters(environment: Mapping[str, str]) -> int:
    layers, hidden = int(environment["NUM_LAYERS"]), int(environment["HIDDEN_SIZE"])
    embedded = _vocabulary(environment) + max(2048, int(environment["SEQ_LENGTH"]))
    return layers * (12 * hidden**2 + 13 * hidden) + embedded * hidden + 2 * hidden


def _vocabulary(environment: Mapping[str, str]) -> int:
    """GPT-2's tokens, padded."""
    padding = 128 * int(environment.get("TENSOR_MODEL_PARALLEL_SIZE", 8))
    return -(-50257 // padding) * padding


def _loss(knobs: Knobs, step: int) -> float:
    return float("nan") if 0 <= knobs.nan_at <= step else 11.96 + 0.4 / (step + 1)


def _stamp(clock: datetime.datetime) -> str:
    return f"{clock:%Y-%m-%d %H:%M:%S.%f}"
