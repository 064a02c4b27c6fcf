"""What the end of a log tells besides its steps, of a log alone: how its job ended, and lines that no step is read from."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from plugins.judging.choice import Choice, Setting
from plugins.judging.evidence import read_evidence
from plugins.judging.job_files import ParsedLogs
from plugins.judging.judge import judge
from plugins.judging.verdicts import Verdict
from plugins.recipes.cases import Recipe
from plugins.record.folder import LOG
from plugins.record.verdict import Kind
from tests.printed import nemo1
from tests.unit import examples
from tests.unit.stated import STARTING

# As a job says of itself that it was ended, or died: slurmstepd, srun, Python, ProcessGroupNCCL.cpp (PyTorch 2.5), torchrun, bash.
ENDS = (
    "slurmstepd: error: *** STEP 99012.0 ON gpu001 CANCELLED AT 2026-10-07T09:40:10 DUE TO TIME LIMIT ***",
    "srun: error: gpu001: task 3: Aborted (core dumped)",
    "srun: error: gpu[001-064]: tasks 0-511: Exited with exit code 1",
    "[rank3]: Traceback (most recent call last):",
    "[rank0]:[E1007 09:30:10.1 ProcessGroupNCCL.cpp:616] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=9)",
    "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:",
    "W1007 09:30:10 torch/distributed/elastic/agent: Received Signals.SIGTERM death signal, shutting down workers",
    "train.sh: line 7: 4711 Segmentation fault      python train.py",
)
QUIET = (
    "[rank0]:[W1007 09:30:10.1 ProcessGroupNCCL.cpp:1168] Warning: destroy_process_group() was not called before program exit",
    "srun: error: If this is a warning, nothing ended",
    "[after training is done] datetime: 2026-10-07 09:30:12",
)


def judged(recipe: Recipe, case_id: str, text: str, folder: Path) -> Verdict:
    """The verdict on a log by the files of its case's folder, as a replay has them."""
    case = recipe.case(case_id)
    assert case is not None
    (folder / LOG).write_text(text)
    outcome = replace(examples.outcome(), folder=folder, log=folder / LOG)
    setting = Setting(recipe, Choice(), examples.BASELINES)
    return judge(read_evidence(case, outcome, setting, ParsedLogs())).verdict


@pytest.mark.parametrize("end", ENDS)
def test_a_job_that_broke_off_behind_its_last_step_is_remarked_on(end: str, tmp_path: Path) -> None:
    text = f"{examples.nemo2_text()}{QUIET[0]}\n{end}\nsrun: Force Terminated StepId=1.0\n"
    verdict = judged(examples.llama3(), examples.CASE, text, tmp_path)
    words = f'behind its last step the log says "{end}": the pace stands, but look at how the job ended'
    assert (verdict.kind, verdict.remarks) == (Kind.PASSED, (words,))


@pytest.mark.parametrize("end", QUIET)
def test_what_a_job_that_ended_well_prints_is_no_remark(end: str, tmp_path: Path) -> None:
    text = f"{ENDS[3]}\n{examples.nemo2_text()}{end}\n"
    verdict = judged(examples.llama3(), examples.CASE, text, tmp_path)
    assert (verdict.kind, verdict.remarks) == (Kind.PASSED, ())


def test_bars_that_no_step_is_read_from_are_quoted(tmp_path: Path) -> None:
    """Lightning's own bar in the place of NeMo 2's ProgressPrinter; then one of a thousand steps and more in NeMo 1."""
    bar = nemo1.bar(49, gbs=1024).strip()
    verdict = judged(examples.llama3(), examples.CASE, bar + "\n", tmp_path)
    assert verdict.headline.startswith(
        'invalid run: the log has no training step; none can be read from lines such as "'
    )
    assert bar[:60] in verdict.headline
    rounded = bar.replace("global_step=49.00", "global_step=9e+3")
    assert rounded != bar
    verdict = judged(examples.recipe_named("nemotron4"), "340b-bf16-128gpus", rounded + "\n", tmp_path)
    assert 'none can be read from lines such as "' in verdict.headline
    begun = f"{STARTING.format(512)}\n"
    for text, said in (
        ("starting\n", "the log has no training step"),
        (
            f"{begun}{examples.nemo2_text()}{begun}",
            "the last attempt has no training step; the one before it ended after step 49",
        ),
    ):
        assert judged(examples.llama3(), examples.CASE, text, tmp_path).headline == f"invalid run: {said}"
