"""The output of 512 tasks in one file, in pieces: what is read of it, how fast, and who is blamed for its end.

srun writes one file with the pieces of all tasks, in the order in which they happened to come. A task's output travels line by line,
a longer one in pieces of 1024 bytes (slurmstepd's io.c, MAX_MSG_LEN). Unbuffered it travels as it was written: Python's `print`
writes the text and the end of the line apart.
"""

from __future__ import annotations

import itertools
import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

import pytest

from fixtures.backends.slurm.answers import blamed, of_last_step
from plugins.judging.complaints import complaints
from plugins.logs import Log
from plugins.logs.formats import read
from tests.unit.backends.slurm.test_answers import SUDO_FAILS

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
    # What each task echoes first is longer than a piece.
    said = f"GSW: MODEL=nemotron4 JOB_NUM_NODES={NODES} BASE_CONFIG='{'a.key=value ' * 90}'\n"
    tasks = [said + "".join([*bars, bars[-1], "\n"]), *(said + warnings(rank) for rank in range(1, TASKS))]
    return shown, together(map(buffered, tasks), chance, label=label)


RECIPES: dict[str, tuple[str, Callable[..., tuple[list[str], bytes]]]]
RECIPES = {
    "llama3": ("nemo2", llama3),
    "nemotron4": ("nemo1", nemotron4),
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


def parsed(recipe: str, data: bytes) -> Log:
    chance = random.Random(0)
    cuts = [0, *sorted(chance.sample(range(1, len(data)), 20)), len(data)]
    pieces = (data[start:end] for start, end in itertools.pairwise(cuts))
    begin = time.process_time()
    log = read(RECIPES[recipe][0], pieces)
    # 4.9 MB in half a second; ten times that would keep a session from its other jobs.
    assert time.process_time() - begin < 5
    return log


@pytest.mark.parametrize("label", [False, True], ids=["plain", "label"])
@pytest.mark.parametrize("recipe", list(RECIPES))
def test_every_step_of_512_tasks_is_read_and_none_wrong(recipe: str, label: bool) -> None:
    """Those of MaxText, where each task prints each step, are in `tests/unit/logs/test_maxtext.py`."""
    shown, data = RECIPES[recipe][1](0, label=label)
    log = parsed(recipe, data)
    found = {step.index: step.seconds for step in log.steps}
    assert list(found) == list(range(STEPS))
    # What follows the time on the first line of NeMo 2 may be another rank's.
    unread = [step for step, seconds in found.items() if seconds is None]
    assert unread in ([], [0] if recipe == "llama3" else [])
    assert all(found[step] in (None, float(text)) for step, text in enumerate(shown))
    assert (log.repeated, log.restarted_after) == ((), ())
    values = Counter(fact.name for fact in log.facts)
    assert values["group"] == 1
    assert set(values.values()) == {1}


def test_of_64_nodes_whose_tasks_srun_ended_only_the_first_is_blamed_and_shown() -> None:
    for seed in range(3):
        said = complaints_of_srun(seed)
        assert blamed(said.decode()) == "gpu002"
        assert complaints(said) == [CULPRIT.encode()]
        traced = f"{SUDO_FAILS}+ srun --output log.out train\n".encode() + said
        assert blamed(of_last_step(traced).decode()) == "gpu002"


def test_the_cause_is_shown_among_the_last_words_of_511_other_ranks() -> None:
    shown = complaints(errors(0) + b"\n" + complaints_of_srun(0))[-8:]
    assert CAUSE.encode() in shown
    assert shown[-1] == CULPRIT.encode()
