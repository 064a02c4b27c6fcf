"""Faults of a run, alone and in pairs, in three formats; and what the judge says of each log."""

from __future__ import annotations

import hashlib
import itertools
import random
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from plugins.baselines.store import Baseline
from plugins.judging.judgement import Judgement
from plugins.logs import Log
from plugins.logs.formats import read
from plugins.record.job import Phase
from tests.fuzz import cells
from tests.fuzz.cells import Cell
from tests.fuzz.run import outcome
from tests.printed.run import Job, Page
from tests.unit import examples

STORED = Path(__file__).with_name("stored") / "faults.tsv"

RUNS = {
    "nemo2": ("llama3", "70b-fp8-512gpus"),
    "maxtext": ("maxtext_llama2", "70b-fp8-1024gpus"),
    "megatron_lm": ("gpt3_aks", "175b-fp16-512gpus"),
}
"""The recipe and the case of each format."""


@dataclass
class Run:
    """A run as a fault finds it: what it really was, what is done to its log, and what is changed of its job."""

    cell: Cell
    job: Job
    edits: list[Callable[[Page], None]] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)


Fault = Callable[[Run], None]
FAULTS: dict[str, Fault] = {}


def fault(function: Fault) -> Fault:
    """Registers a fault by the name of its function."""
    FAULTS[function.__name__.replace("_", "-")] = function
    return function


def _scaled(run: Run, factor: float, first: int = 0) -> None:
    times = [seconds * (factor if index >= first else 1.0) for index, seconds in enumerate(run.job.times)]
    run.job = replace(run.job, times=tuple(times))


@fault
def slow(run: Run) -> None:
    _scaled(run, 1.09 + run.cell.edge)


@fault
def fast(run: Run) -> None:
    _scaled(run, 0.7)


@fault
def slow_at_the_end(run: Run) -> None:
    _scaled(run, 1.2 + run.cell.edge, len(run.job.times) - 20)


@fault
def noisy(run: Run) -> None:
    rng = random.Random(7)
    run.job = replace(run.job, times=tuple(seconds * rng.uniform(0.75, 1.3) for seconds in run.job.times))


@fault
def a_stall(run: Run) -> None:
    times = list(run.job.times)
    times[-4] *= 5
    run.job = replace(run.job, times=tuple(times))


@fault
def not_a_number(run: Run) -> None:
    run.job = replace(run.job, losses=(*run.job.losses[:-5], *[float("nan")] * 5))


@fault
def other_gpu(run: Run) -> None:
    run.job = replace(run.job, gpu="a100")


@fault
def other_layers(run: Run) -> None:
    case = run.job.case
    run.job = replace(run.job, case=replace(case, model=case.model.model_copy(update={"layers": 20})))


@fault
def other_sequence(run: Run) -> None:
    case = run.job.case
    run.job = replace(run.job, case=replace(case, sequence_length=case.sequence_length // 2))


@fault
def few_processes(run: Run) -> None:
    run.job = replace(run.job, case=replace(run.job.case, gpus=run.job.case.gpus // 2))


@fault
def other_job(run: Run) -> None:
    run.job = replace(run.job, job_id="815")


@fault
def cut_short(run: Run) -> None:
    def cut(page: Page) -> None:
        del page.steps[len(page.steps) // 2 :]
        page.tail.clear()

    run.edits.append(cut)


@fault
def a_step_twice(run: Run) -> None:
    def doubled(page: Page) -> None:
        page.steps.insert(len(page.steps) // 2, list(page.steps[len(page.steps) // 2]))

    run.edits.append(doubled)


@fault
def two_runs(run: Run) -> None:
    def doubled(page: Page) -> None:
        page.steps += [list(pieces) for pieces in page.steps]

    run.edits.append(doubled)


@fault
def a_mark(run: Run) -> None:
    run.edits.append(
        lambda page: page.before(1, "gpu001:11:22 [0] NCCL INFO NET/Socket : Using [0]eth0:10.0.0.1<0>")
    )


@fault
def traceback_at_the_end(run: Run) -> None:
    run.edits.append(
        lambda page: page.end(
            "Traceback (most recent call last):", "torch.OutOfMemoryError: CUDA out of memory."
        )
    )


@fault
def job_failed(run: Run) -> None:
    run.facts |= {"phase": Phase.FAILED, "raw": "NODE_FAIL", "exit_code": "1:0"}


@fault
def job_lost(run: Run) -> None:
    run.facts |= {"failure": "lost", "message": "the cluster does not know the job any more"}


@fault
def job_hung(run: Run) -> None:
    run.facts |= {"failure": "hung", "message": "cancelled: it had not ended 15 minutes after its last step"}


@fault
def given_up(run: Run) -> None:
    run.facts |= {"failure": "given up", "message": "its pace could not return to the band"}


@fault
def started_twice(run: Run) -> None:
    run.facts |= {"attempts": 2}


@fault
def log_replaced(run: Run) -> None:
    run.facts |= {"log_fault": "the log was replaced while it was read: it shrank"}


def whole(name: str) -> Run:
    """A healthy run of a format's case."""
    recipe, case_id = RUNS[name]
    chosen = [cell for cell in cells.cells_of(name) if (cell.case.recipe, cell.case.id) == (recipe, case_id)]
    cell = next(cell for cell in reversed(chosen) if cell.gpu == "h100")
    rng = random.Random(zlib.crc32(name.encode()))
    return Run(cell, cells.job(rng, cell, cells.series(rng, cell, pace=1.0)))


@cache
def _log(dialect: str, text: str) -> Log:
    """Many pairs of faults leave the same text: those of which one is no fault of the log."""
    return read(dialect, [text.encode()])


def judgement_of(run: Run, baseline: Baseline | None, baselines: Path = examples.BASELINES) -> Judgement:
    """What the judge says of a run by this baseline, and by the tables in this folder."""
    page = run.cell.render(run.job)
    for edit in run.edits:
        edit(page)
    log = _log(run.cell.dialect, page.text())
    facts = examples.with_facts(outcome(run.cell, 1.1 * sum(run.job.times) + 300), **run.facts)
    return examples.judged(run.cell.case, facts, log, baseline, baselines=baselines)


def combined(name: str) -> Iterator[tuple[str, Run]]:
    """The runs of a format with no fault, with each of them, and with each pair; and the names of the faults."""
    for chosen in [(), *((name_of,) for name_of in FAULTS), *itertools.combinations(FAULTS, 2)]:
        run = whole(name)
        for fault_name in chosen:
            FAULTS[fault_name](run)
        yield " + ".join(chosen) or "none", run


def rows(name: str) -> Iterator[str]:
    """For each fault or pair of faults in a format: the verdict, a digest of the whole text, headline and remarks."""
    for faults, run in combined(name):
        judgement = judgement_of(run, run.cell.baseline)
        verdict = judgement.verdict
        digest = hashlib.sha256(judgement.text.encode()).hexdigest()[:8]
        text = " | ".join([verdict.headline, *map(str, verdict.remarks)])
        yield "\t".join([name, faults, str(verdict.kind), digest, text])
