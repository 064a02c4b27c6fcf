"""What srun makes of the output of a job's 512 tasks: one file with the pieces of all, in the order in which they happened to come.

A task's output travels line by line, a longer one in pieces of 1024 bytes (slurmstepd's io.c, MAX_MSG_LEN). Unbuffered it travels as
it was written: Python's `print` writes the text and the end of the line apart.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator

PIECE = 1024
NODES, TASKS = 64, 512
STEPS = 50


def buffered(text: str) -> Iterator[bytes]:
    """The pieces in which a task's output comes by default; a carriage return ends no line."""
    for line in text.encode().split(b"\n")[:-1]:
        whole = line + b"\n"
        for start in range(0, len(whole), PIECE):
            yield whole[start : start + PIECE]


def unbuffered(text: str) -> Iterator[bytes]:
    """The pieces with SLURM_UNBUFFEREDIO=1, which llama3 sets."""
    for line in text.splitlines():
        yield line.encode()
        yield b"\n"


def together(tasks: Iterable[Iterable[bytes]], chance: random.Random, *, label: bool = False) -> bytes:
    """All pieces in one file, those of each task in their order; with `--label` each is a line behind its task's number."""
    queues = [list(pieces)[::-1] for pieces in tasks]
    order = [rank for rank, queue in enumerate(queues) for _ in queue]
    chance.shuffle(order)
    pieces = ((rank, queues[rank].pop()) for rank in order)
    if label:
        return b"".join(b"%3d: %s\n" % (rank, piece.removesuffix(b"\n")) for rank, piece in pieces)
    return b"".join(piece for _, piece in pieces)


def warnings(rank: int) -> str:
    """What a rank prints besides; some of it begins with a number."""
    return (
        f"[rank{rank}]:[W411 14:46:02.118 ProcessGroupNCCL.cpp:4115] [PG 0 Rank {rank}]  using GPU {rank % 8} to perform barrier\n"
        f"2025-04-11 14:46:02,{rank:03} - WARNING - rank {rank}: failed to open libibverbs.so.1\n"
        f"gpu{rank // 8 + 1:03}:101:310 [{rank % 8}] NCCL INFO comm 0x55556b100660 rank {rank} nRanks {TASKS} nNodes {NODES} "
        f"localRanks 8 localRank {rank % 8} MNNVL 0\n"
    )


def stated(model: str, size: str, config: str) -> str:
    """What each task of nemotron4 and maxtext_llama2 echoes first, longer than a piece."""
    return (
        f"GSW: MODEL={model} FRAMEWORK=any MODEL_SIZE={size} JOB_NUM_NODES={NODES} GPUS_PER_NODE=8 DTYPE=bf16 SYNTHETIC_DATA=True "
        f"IMAGE='/lustre/stage/image.sqsh' JOB_ID=4711 JOB_MODE=training BASE_CONFIG='{'a.key=value ' * 90}{config} '\n"
    )


def llama3(seed: int, *, label: bool = False) -> tuple[list[str], bytes]:
    """The step times that rank 0 prints, and the log."""
    chance = random.Random(seed)
    shown = [f"{chance.uniform(9, 11):.4}" for _ in range(STEPS)]
    log = b""
    for step, seconds in enumerate(shown):
        line = (
            f"Training epoch 0, iteration {step}/{STEPS - 1} | lr: 1.4e-07 | global_batch_size: 1024 | global_step: {step} | "
            f"peak_memory_usage: 70833405952 | reduced_train_loss: 11.96 | train_step_timing in s: {seconds}"
        )
        line += f" | consumed_samples: {(step + 1) * 1024}\n" if step else "\n"
        others = [unbuffered(warnings(rank)) for rank in chance.sample(range(1, TASKS), 16)]
        log += together([unbuffered(line), *others], chance, label=label)
    return shown, log


def nemotron4(seed: int, *, label: bool = False) -> tuple[list[str], bytes]:
    """As `llama3`: a bar that is one line, drawn twice a step and once more at the end."""
    chance = random.Random(seed)
    shown = [f"{chance.uniform(4.1, 4.9):.2f}0" for _ in range(STEPS)]
    bars, figures = ["x" * chance.randrange(PIECE)], ""
    for step, seconds in enumerate(shown):
        bar = f"\rEpoch 0: : {2 * step + 2:3}%|{'█' * (step // 5):<10}| {step + 1}/{STEPS} [00:46<03:04"
        bars.append(f"{bar}{figures}]")
        figures = (
            f", reduced_train_loss=11.90, global_step={f'{step}.'.ljust(5, '0')}, consumed_samples={(step + 1) * 128.0}, "
            f"train_step_timing in s={seconds}"
        )
        bars.append(f"{bar}{figures}]")
    said = stated("nemotron4", "340b", "model.global_batch_size=128 model.micro_batch_size=1")
    tasks = [said + "".join([*bars, bars[-1], "\n"]), *(said + warnings(rank) for rank in range(1, TASKS))]
    return shown, together(map(buffered, tasks), chance, label=label)


def maxtext_llama2(seed: int, *, label: bool = False) -> tuple[list[str], bytes]:
    """As `llama3`: every rank prints every step, of a profiling run too, and may be a few steps late."""
    chance = random.Random(seed)
    said = stated("llama2", "70b", "per_device_batch_size=2 max_target_length=4096")
    log = together((buffered(said + warnings(rank)) for rank in range(TASKS)), chance, label=label)
    for steps in (15, STEPS):
        shown = [f"{chance.uniform(7, 7.1):.3f}" for _ in range(steps)]
        for start in range(0, steps, 5):
            lines = "".join(_maxtext_line(step, shown[step]) for step in range(start, start + 5))
            log += together((buffered(lines) for _ in range(TASKS)), chance, label=label)
    return shown, log


def _maxtext_line(step: int, seconds: str) -> str:
    return (
        f"completed step: {step}, seconds: {seconds}, TFLOP/s/device: {3641.2 / float(seconds):.3f}, "
        f"Tokens/s/device: {8192 / float(seconds):.3f}, total_weights: 4194304, loss: 9.123\n"
    )


RECIPES: dict[str, tuple[str, Callable[..., tuple[list[str], bytes]]]] = {
    "llama3": ("nemo2", llama3),
    "nemotron4": ("nemo1", nemotron4),
    "maxtext_llama2": ("maxtext", maxtext_llama2),
}


CAUSE = "[rank11]: RuntimeError: CUDA error: uncorrectable ECC error encountered"
CULPRIT = "srun: error: gpu002: task 11: Exited with exit code 1"


def errors(seed: int) -> bytes:
    """Standard error of all tasks: their warnings, the death of rank 11, and what the others then say of it."""
    chance = random.Random(seed)
    last_words = (
        "[rank{rank}]:[E411 14:52:40.{rank:03} ProcessGroupNCCL.cpp:1895] [PG 0 Rank {rank}] Process group watchdog thread terminated "
        "with exception: NCCL error: remote process exited or there was a network error\n"
        + "frame #{rank}: c10d::ProcessGroupNCCL::WorkNCCL::checkTimeout(std::optional<std::chrono::duration<long>>) + 0x1d2 "
        "(0x7f3c5d8a1e2c in libtorch_cuda.so)\n"
        * 6
        + "terminate called after throwing an instance of 'c10::DistBackendError'\n"
    )
    return (
        together((buffered(warnings(rank)) for rank in range(TASKS)), chance)
        + f"[rank11]: Traceback (most recent call last):\n{CAUSE}\n".encode()
        + together((buffered(last_words.format(rank=rank)) for rank in range(TASKS) if rank != 11), chance)
        # Its last line has no end.
        + b"slurmstepd-gpu001: error: *** STEP 17.0 ON gpu001 CANCELLED AT 2026-11-22T10:43:56 ***\n[rank40]: Exception igno"
    )


def complaints_of_srun(seed: int) -> bytes:
    """What srun says of that: the tasks that have a shell around them answer SIGTERM with an exit code."""
    chance = random.Random(seed)
    ended = []
    for node in range(1, NODES + 1):
        first = 8 * node - 8
        half = chance.randrange(1, 7)
        ended += [
            f"srun: error: gpu{node:03}: tasks {first}-{first + half}: Exited with exit code 143\n",
            f"srun: error: gpu{node:03}: tasks {first + half + 1}-{first + 7}: {chance.choice(['Terminated', 'Killed'])}\n",
        ]
    chance.shuffle(ended)
    head = f"{CULPRIT}\nsrun: launch/slurm: _step_signal: Terminating StepId=17.0\n"
    return f"{head}{''.join(ended)}srun: Force Terminated StepId=17.0\n".encode()
