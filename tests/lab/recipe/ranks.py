"""The other tasks of a job. Each is a process of srun's that prints what rank 0 hands it through a pipe."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable
from pathlib import Path

from tests.printed import nccl

# A line that begins so goes to standard error, is answered, or ends its task with the exit code behind it.
ERROR, MEET, END = "\x01error ", "\x01meet\n", "\x01end "

OTHERS = re.compile(
    r"Initializing distributed: .*\n|\[rank\d+\]:\[W.*\n|gpu\d+:.* NCCL INFO NET/IB : Got async event.*\n"
)
"""Their lines in a log. srun may write one into the midst of a line of rank 0, of which it passes on 1024 bytes at a time."""

VICTIM = 11
"""The rank that dies or hangs, on the second node."""


class Ranks:
    """The tasks of this step but rank 0: all that the lab started, from rank 1 on. They run once this is made."""

    def __init__(self) -> None:
        pipes = os.environ.get("LAB_RANKS")
        self._answers = os.open(Path(pipes) / "answers", os.O_RDWR) if pipes else -1
        started = int(os.environ["SLURM_STEP_NUM_TASKS"]) if pipes else 1
        self._pipes = {rank: _opened(Path(pipes or "") / str(rank)) for rank in range(1, started)}

    def __len__(self) -> int:
        return len(self._pipes)

    def say(self, rank: int, text: str, *, error: bool = False) -> None:
        """Have a task print whole lines; nothing where it was not started or has ended."""
        if rank in self._pipes:
            lines = text.splitlines(keepends=True)
            with contextlib.suppress(BrokenPipeError):
                os.write(self._pipes[rank], "".join(ERROR * error + line for line in lines).encode())

    def all_say(self, text: Callable[[int], str], *, error: bool = False) -> None:
        """Have each task print the lines of its rank."""
        for rank in self._pipes:
            self.say(rank, text(rank), error=error)

    def meet(self) -> None:
        """Wait until each task has come so far, as a collective does; for ever where one has died."""
        self.all_say(lambda _: MEET)
        left = len(self._pipes)
        while left:
            left -= len(os.read(self._answers, left))

    def warn(self) -> None:
        """What PyTorch warns of on each rank before a barrier, and the barrier."""
        self.all_say(
            lambda rank: (
                f"[rank{rank}]:[W1209 14:46:02.118 ProcessGroupNCCL.cpp:4115] [PG 0 Rank {rank}]  using GPU {rank % 8} "
                "to perform barrier as devices used by this process are currently unknown.\n"
            ),
            error=True,
        )
        self.meet()

    def note(self) -> None:
        """What NCCL says on two ranks, on standard output, while they train: a run with three torn steps is invalid."""
        for rank in (1, VICTIM):
            text = "NET/IB : Got async event : client reregistration"
            line = nccl.info(text, host=f"gpu{rank // 8 + 1:03}", pids="101:310", gpu=rank % 8)
            self.say(rank, line + "\n")

    def die(self, rank: int, error: str) -> None:
        """End a task with exit code 1."""
        self.say(rank, error, error=True)
        self.say(rank, f"{END}1\n")

    def end(self) -> None:
        """End all tasks with exit code 0."""
        self.all_say(lambda _: f"{END}0\n")


def _opened(pipe: Path) -> int:
    """The writing end, once the task has the other one; another run of the same tasks finds a pipe of its own."""
    end = os.open(pipe, os.O_WRONLY)
    pipe.unlink()
    os.mkfifo(pipe)
    return end
