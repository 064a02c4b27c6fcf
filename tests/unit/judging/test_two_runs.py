"""Two runs in one log: what starts over after its last step, what a launcher states once, and lines of another file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from plugins.judging.validity import Started
from plugins.logs import Log
from plugins.logs.line_parser import MAX_RESTARTS
from plugins.record.baseline import Statistic
from plugins.record.verdict import Kind
from tests.unit.examples import nemo2_text, outcome, parse, problems
from tests.unit.judging.test_judge import judged as judged_outcome
from tests.unit.stated import CASES, H100, JOB, judged, record, steps_of, text_of

DIALECTS = pytest.mark.parametrize("dialect", sorted(CASES))
TWO_RUNS = "nothing says that the job was started again: two runs share this log"


def started(dialect: str, log: Log, starts: int = 1) -> list[str]:
    """What makes this log no evidence where the cluster counts so many starts of the job."""
    statistic = Statistic.parse("mean:50-99") if dialect == "megatron_lm" else Statistic()
    return problems(CASES[dialect], log, statistic, H100, started=Started(JOB, starts))


# A run whose log was cut at its front has no line that begins it.
@DIALECTS
@pytest.mark.parametrize(
    "between",
    ["", "+ srun python train.py\n", "GSW: MODEL=x JOB_ID=4711 \n", "Traceback (most recent call last):\n"],
)
def test_a_run_behind_a_whole_one_is_another_run(dialect: str, between: str) -> None:
    (reason,) = judged(dialect, text_of(dialect) + between + text_of(dialect))
    assert reason.startswith(f"an earlier run in the same log reached step {CASES[dialect].steps - 1} at ")
    assert reason.endswith(TWO_RUNS)


@DIALECTS
def test_a_run_that_died_before_its_last_step_may_start_over(dialect: str) -> None:
    most = len(steps_of(dialect)) * (5 if dialect == "megatron_lm" else 1)
    for count in (10, most - 5 if dialect == "megatron_lm" else most - 1):
        assert judged(dialect, text_of(dialect, count=count) + text_of(dialect)) == []


@DIALECTS
@pytest.mark.parametrize(
    "line",
    [
        "slurmstepd: error: *** JOB 4711 ON gpu001 CANCELLED AT 2025-04-11T10:35:06 DUE TO JOB REQUEUE ***",
        "slurmstepd: error: *** STEP 4711.0 ON gpu001 CANCELLED AT 2025-04-11T10:35:06 DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***",
        "W0411 10:35:06.1 7 torch/distributed/elastic/agent/server/api.py:719] [default] Worker group FAILED. 3/3 attempts left; will restart worker group",
    ],
)
def test_a_job_that_is_started_again_may_start_over_after_its_last_step(dialect: str, line: str) -> None:
    text = text_of(dialect) + line + "\n" + text_of(dialect)
    assert judged(dialect, text) == []
    assert parse(text, dialect).restarted_after == (CASES[dialect].steps - 1,)
    # It excuses the run behind it alone.
    assert judged(dialect, text + text_of(dialect))[0].endswith(TWO_RUNS)


MARK = "slurmstepd: error: *** JOB 4711 ON gpu001 CANCELLED AT 2025-04-11T10:35:06 DUE TO JOB REQUEUE ***\n"
TORCHRUN = "W0411 10:35:06.1 7 api.py:900] [default] Worker group FAILED. 2/3 attempts left; will restart worker group\n"


@DIALECTS
@pytest.mark.parametrize(
    "place",
    ["in front", "in the first run", "behind an attempt that died", "behind a start that has no step"],
)
def test_a_mark_before_the_end_of_a_whole_run_does_not_excuse_the_next(dialect: str, place: str) -> None:
    start = "".join(f"{line}\n" for line in STARTS[dialect])
    whole = text_of(dialect, *STARTS[dialect])
    died = text_of(dialect, count=20)
    others = "\n".join(steps_of(dialect)[len(steps_of(dialect, 20)) :]) + "\n"
    first = {
        "in front": MARK + whole,
        "in the first run": died + MARK + others,
        "behind an attempt that died": died + MARK + whole,
        "behind a start that has no step": whole + start + MARK,
    }[place]
    reasons = judged(dialect, first + whole)
    assert reasons
    assert reasons[0].endswith("share this log")


@DIALECTS
@pytest.mark.parametrize("attempts", [MAX_RESTARTS - 1, MAX_RESTARTS + 3])
def test_a_whole_run_behind_very_many_attempts_is_not_forgotten(dialect: str, attempts: int) -> None:
    died = text_of(dialect, count=5) + MARK
    log = parse(died * attempts + text_of(dialect) * 2, dialect)
    assert len(log.earlier) <= MAX_RESTARTS
    (reason,) = started(dialect, log)
    assert reason.endswith(TWO_RUNS)


@DIALECTS
@pytest.mark.parametrize(
    ("mark", "starts", "valid"),
    [
        (MARK, 2, False),
        (MARK, 3, True),
        ("", 2, False),
        ("", 3, True),
        (TORCHRUN, 1, False),
        (TORCHRUN, 2, True),
    ],
    ids=lambda value: str(value)[:20],
)
def test_a_start_that_follows_an_attempt_that_died_excuses_no_whole_run(
    dialect: str, mark: str, starts: int, valid: bool
) -> None:
    text = text_of(dialect, count=20) + mark + text_of(dialect) * 2
    assert (started(dialect, parse(text, dialect), starts) == []) is valid


# An attempt that goes on where another one ended

RESUMED = "the run was started again behind step {} and went on with step {}, so no attempt ran all steps: "
STARTS = {
    "maxtext": (
        "Config param emb_dim: 8192",
        "Config param num_decoder_layers: 80",
        "Num_devices: 64, shape (8, 1, 8, 1, 1, 1, 1, 1)",
        "number parameters: 68.977 billion",
    ),
    "megatron_lm": ("time to initialize megatron (seconds): 21.204", "done with setup ..."),
    "megatron_bridge": ("  num_layers: 80", "  hidden_size: 8192"),
    "nemo1": ("      num_layers: 96", "      hidden_size: 18432"),
    "nemo2": (
        "[NeMo I 2025-04-11 14:40:00 base:49] Padded vocab_size: 128256, original vocab_size: 128256, dummy tokens: 0.",
        "Rank 0 has tensor model parallel group: [0, 1, 2, 3]",
    ),
    "dllogger": (record(),),
}
"""What a run prints before its first step, without a word of a checkpoint."""


def in_two(dialect: str, between: str, head: Sequence[str] = ()) -> tuple[str, int]:
    """A run with these lines behind half of its steps, and the last step before them."""
    lines = steps_of(dialect)
    half = len(lines) // 2
    begun = text_of(dialect, *head, count=0).lstrip() + "\n".join(lines[:half]) + "\n"
    last = half - 1 if dialect != "megatron_lm" else 10 * half - 1
    return begun + between + "\n".join(lines[half:]) + "\n", last


@DIALECTS
@pytest.mark.parametrize("processes", [1, 8])
def test_a_run_that_was_resumed_at_the_next_step_is_refused(dialect: str, processes: int) -> None:
    lines = STARTS[dialect]
    if dialect == "maxtext":
        # Each process prints them.
        lines = tuple(line for line in lines for _ in range(processes))
    text, last = in_two(dialect, "".join(f"{line}\n" for line in lines), lines)
    next_step = last + (10 if dialect == "megatron_lm" else 1)
    reasons = judged(dialect, text)
    assert reasons[0].startswith(RESUMED.format(last, next_step))
    assert judged(dialect, text_of(dialect, *lines)) == []


@DIALECTS
def test_a_run_that_goes_on_behind_a_mark_was_resumed(dialect: str) -> None:
    text, last = in_two(dialect, MARK)
    next_step = last + (10 if dialect == "megatron_lm" else 1)
    assert judged(dialect, text)[0].startswith(RESUMED.format(last, next_step))


@pytest.mark.parametrize("dialect", ["megatron_lm", "dllogger"])
def test_a_run_that_goes_on_behind_the_first_line_of_its_launcher_was_resumed(dialect: str) -> None:
    line = "node aks-7, GPUs and driver: 8 NVIDIA H100 80GB HBM3, 550.144.03\n"
    text, last = in_two(dialect, line)
    assert judged(dialect, text)[0].startswith(f"the run was started again behind step {last} and ")
    # `kubectl logs` prints one pod behind the other.
    assert judged(dialect, line + text_of(dialect) + line.replace("aks-7", "aks-8")) == []


@DIALECTS
@pytest.mark.parametrize(
    "line",
    [
        "setting number of micro-batches to constant 1",
        "| 0  NVIDIA H100 80GB HBM3          On  |",
        "gpu001:1:2 [0] NCCL INFO ncclCommInitRank comm 0x5624aab1 rank 0 nranks 8 cudaDev 0 nvmlDev 0 busId 1b000 commId 0x26 - Init COMPLETE",
    ],
)
def test_what_a_run_may_print_between_two_steps_is_no_start(dialect: str, line: str) -> None:
    text, _ = in_two(dialect, 4 * f"{line}\n", [line])
    assert [reason for reason in judged(dialect, text) if "started again" in reason] == []


@DIALECTS
def test_the_count_of_the_cluster_excuses_it_too(dialect: str) -> None:
    log = parse(text_of(dialect) * 2, dialect)
    assert started(dialect, log, 2) == []
    assert started(dialect, log, 1) != []


def test_a_fast_run_behind_a_slow_one_does_not_pass() -> None:
    text = nemo2_text([12.9] * 50) + nemo2_text()
    verdict = judged_outcome(outcome(), text).verdict
    assert verdict.kind is Kind.INVALID
    assert "an earlier run in the same log reached step 49 at 12.9 s a step" in verdict.headline
    again = outcome()
    again = replace(again, job=replace(again.job, attempts=2))
    remarks = judged_outcome(again, text).verdict.remarks
    assert (
        "training started over in the same log (after step 49, at 12.9 s a step); judged by the last attempt"
        in remarks
    )


# Lines of another file


@DIALECTS
@pytest.mark.parametrize(
    "label",
    ["results/old/log.out:", "log-4699.out:", "/lustre/runs/a/log.txt:17:", "old.log.gz:", "> ", ">> ", "< "],
)
def test_steps_behind_a_label_are_another_files(dialect: str, label: str) -> None:
    steps = "\n".join(f"{label}{line}" for line in steps_of(dialect)) + "\n"
    for text in (
        text_of(dialect) + steps,
        text_of(dialect, count=20) + steps,
        text_of(dialect, count=0) + steps,
    ):
        assert (
            f'steps stand behind "{label.strip()}", so they are another file\'s: judge that file by itself'
            in judged(dialect, text)
        )


FILES = (
    "results/old/log.out", "slurm-4711", "/lustre/a run/log-4711.out", "../a/b", "stdout", "standard input", "rank0", "train.log.1", "0", "a-b.json",
)  # fmt: skip


@DIALECTS
@pytest.mark.parametrize("name", FILES)
def test_steps_behind_the_header_of_tail_are_another_files(dialect: str, name: str) -> None:
    text = text_of(dialect, count=20) + f"==> {name} <==\n" + text_of(dialect)
    assert any(f'behind "{name}"' in reason for reason in judged(dialect, text))


@DIALECTS
@pytest.mark.parametrize(
    "banner",
    ["Launching", "Launching...", "Launching training", "Phase 1/3", "1/3", "v2.0", "Pre-flight", "Step 2 of 4: train.py with 8 GPUs"],
)  # fmt: skip
def test_a_banner_is_no_header_of_a_file(dialect: str, banner: str) -> None:
    assert judged(dialect, text_of(dialect, f"==> {banner} <==")) == []


# What a launcher states once for the job

GSW = "GSW: MODEL=x DTYPE={dtype} MODEL_SIZE={size} JOB_NUM_NODES={nodes} GPUS_PER_NODE=8 JOB_ID={job} BASE_CONFIG='' "


@DIALECTS
@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"job": "4699"}, "JOB_ID=4699"), ({"nodes": "1"}, "JOB_NUM_NODES=1"), ({"size": "other"}, "MODEL_SIZE=other"), ({"dtype": "other"}, "DTYPE="),
    ],
)  # fmt: skip
def test_what_the_launcher_states_once_holds_for_each_attempt(
    dialect: str, changed: dict[str, str], words: str
) -> None:
    case = CASES[dialect]
    own = {
        "dtype": case.dtype.replace("fp16", "bf16"),
        "size": case.model_name,
        "nodes": str(case.gpus // 8),
        "job": JOB,
    }
    if "dtype" in changed:
        changed = {"dtype": "bf16" if case.dtype == "fp8" else "fp8"}
    text = text_of(dialect, GSW.format_map(own | changed), count=20) + text_of(dialect)
    (reason,) = judged(dialect, text)
    assert words in reason
    # Another start of the job states it anew.
    again = text_of(dialect, GSW.format_map(own | changed), count=20) + text_of(dialect, GSW.format_map(own))
    assert judged(dialect, again) == []
