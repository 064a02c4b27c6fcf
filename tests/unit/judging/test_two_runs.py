"""Two runs in one log: what starts over after its last step, what a launcher states once, and lines of another file."""

from __future__ import annotations

from dataclasses import replace

import pytest

from plugins.judging.validity import Started
from plugins.record.verdict import Kind
from plugins.timing import Statistic
from tests.unit.examples import nemo2_text, outcome, parse, problems
from tests.unit.judging.test_judge import judged as judged_outcome
from tests.unit.stated import CASES, H100, JOB, judged, steps_of, text_of

DIALECTS = pytest.mark.parametrize("dialect", sorted(CASES))
TWO_RUNS = "nothing says that the job was started again: two runs share this log"


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


@DIALECTS
def test_the_count_of_the_cluster_excuses_it_too(dialect: str) -> None:
    statistic = Statistic.parse("mean:50-99") if dialect == "megatron_lm" else Statistic()
    log = parse(text_of(dialect) * 2, dialect)
    assert problems(CASES[dialect], log, statistic, H100, started=Started(JOB, 2)) == []
    assert problems(CASES[dialect], log, statistic, H100, started=Started(JOB, 1)) != []


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


@DIALECTS
@pytest.mark.parametrize(
    "prefix",
    [
        "",
        "12: ",
        "[default0]:",
        "[pod/train-0/main] ",
        "[1,5]<stdout>:",
        "gpu001: ",
        "2025-04-11T14:46:18.123456Z stdout F ",
        "pretraining/0 ",
    ],
)
def test_a_prefix_of_a_launcher_is_no_label(dialect: str, prefix: str) -> None:
    text = "".join(f"{prefix}{line}\n" for line in text_of(dialect).splitlines())
    assert parse(text, dialect).other_file == ""


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
    assert (
        judged(
            dialect,
            text_of(dialect, GSW.format_map(own | changed), count=20) + text_of(dialect, GSW.format_map(own)),
        )
        == []
    )
