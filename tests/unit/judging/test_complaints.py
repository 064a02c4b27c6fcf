"""Which lines of what a dead job said besides its log are shown."""

from __future__ import annotations

import pytest

from plugins.judging.complaints import complaints

CRASH = "srun: error: gpu002: task 11: Exited with exit code 1"
# As srun ends the others then.
AFTERMATH = (
    "srun: Terminating StepId=17.0",
    "slurmstepd: error: *** STEP 17.0 ON gpu001 CANCELLED AT 2026-11-22T07:00:00 ***",
    "srun: error: gpu001: tasks 0-7: Terminated",
    "srun: error: gpu002: tasks 8-10,12-15: Killed",
    "srun: error: gpu003: tasks 16-23: Exited with exit code 143",
    "srun: Force Terminated StepId=17.0",
)


def found(*lines: str) -> list[str]:
    return [line.decode() for line in complaints("\n".join(lines).encode())]


def test_what_a_script_traces_is_no_complaint() -> None:
    said = ("+ srun --error e --kill-on-bad-exit=1 ./train", CRASH, "+ exitcode=1", 'echo "job exited"')
    assert found(*said) == [CRASH]


@pytest.mark.parametrize("program", ["srun", "/usr/bin/srun"])
def test_whatever_srun_says_is_a_complaint(program: str) -> None:
    said = (f"{program}: unrecognized option '--container-image'", 'Try "srun --help" for more information')
    assert found("+ srun --container-image i.sqsh ./train", *said, "+ exitcode=255") == [said[0]]


def test_what_follows_from_the_first_failure_is_left_out() -> None:
    assert found("RuntimeError: NCCL error", CRASH, *AFTERMATH) == ["RuntimeError: NCCL error", CRASH]
    killed = "srun: error: gpu002: task 11: Killed"
    assert found(killed, *AFTERMATH) == [killed]
    # Slurm 22.05.
    assert found(killed, "srun: launch/slurm: _step_signal: Terminating StepId=17.1", *AFTERMATH[1:]) == [
        killed
    ]


def test_the_end_itself_is_shown_where_there_is_nothing_else() -> None:
    assert found(*AFTERMATH) == list(AFTERMATH)
    limit = "slurmstepd: error: *** JOB 17 ON gpu001 CANCELLED AT 2026-11-22T07:00:00 DUE TO TIME LIMIT ***"
    assert found(AFTERMATH[0], limit, *AFTERMATH) == [limit]
    assert found("out of memory", "", "bye") == ["out of memory", "bye"]


def test_of_what_many_ranks_say_the_first_is_shown_but_each_node_that_srun_names() -> None:
    ranks = [f"[rank{rank}]: RuntimeError: NCCL error at 0x7f3c{rank:04x}" for rank in range(512)]
    other = CRASH.replace("gpu002", "gpu003")
    assert found(*ranks, CRASH, other) == [ranks[0], CRASH, other]


def test_the_lines_of_srun_on_many_nodes_leave_room_for_the_cause() -> None:
    """One for each of 64 nodes; eight lines are shown."""
    cause = "RuntimeError: CUDA error: uncorrectable ECC error encountered"
    ends = [f"srun: error: gpu{node:03d}: task {node}: Exited with exit code 1" for node in range(64)]
    assert found(cause, *ends) == [cause, *ends[:2], f"{ends[2]} (and 61 more such lines)"]
    assert found(cause, *ends[:3]) == [cause, *ends[:3]]
