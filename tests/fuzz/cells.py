"""What is judged: every case of every recipe that has a baseline, with the dialect of its log, and a healthy run of it."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from pathlib import Path

from plugins.baselines.baseline_file import Cell as Line
from plugins.baselines.baseline_file import Table
from plugins.baselines.metrics import FlopsDefinition
from plugins.baselines.store import Baseline, find
from plugins.recipes.cases import Case, Recipe
from plugins.recipes.expansion import load_recipe
from tests.printed import dllogger, maxtext, megatron_bridge, megatron_lm, nemo1, nemo2
from tests.printed.run import Job, Page, Renderer, Style, teraflops_of_a_step

ROOT = Path(__file__).parents[2]
BASELINES = ROOT / "baselines"

DIALECTS: dict[str, Renderer] = {
    "nemo2": nemo2.render,
    "nemo1": nemo1.render,
    "maxtext": maxtext.render,
    "megatron_lm": megatron_lm.render,
    "megatron_bridge": megatron_bridge.render,
    "dllogger": dllogger.render,
}

RELEASES = {
    "llama3": ("24.11", "25.02", "25.04", "25.05"),
    "nemotron4": ("24.11", "25.01", "25.02", "25.04", "25.05"),
    "maxtext_llama2": ("24.11", "25.01"),
    "gpt3_aks": ("25.03",),
    "llama3_gke": ("24.07",),
}

GPUS = ("h100", "gb200")

MFU_OF_GPT3 = 0.42
"""Nobody has published a pace for gpt3_aks: a cluster of this MFU stands in."""

EVERY_PROCESS = {"maxtext", "nemo1"}
"""Dialects with lines that every process prints."""


@dataclass(frozen=True)
class Cell:
    """A case with its baseline; `target` is the published step time in s."""

    dialect: str
    release: str
    gpu: str
    case: Case
    baseline: Baseline

    @property
    def name(self) -> str:
        return f"{self.case.key} {self.release} {self.gpu} {self.dialect}"

    @property
    def target(self) -> float:
        assert self.baseline.cell.step_time is not None
        return self.baseline.cell.step_time

    @property
    def per_node(self) -> int:
        return 4 if self.gpu == "gb200" else 8

    @property
    def edge(self) -> float:
        """The share by which the slowest step time that passes is above the target."""
        return 1 / (1 - self.baseline.tolerance.slower) - 1

    @property
    def span(self) -> int:
        return self.case.means.span

    def render(self, job: Job) -> Page:
        return DIALECTS[self.dialect](job)


def buffer_size(case: Case) -> int:
    """Over how many last steps NeMo 1 averages a printed time."""
    return case.means.over if case.means.every == 1 else 1


def _own_baseline(case: Case) -> Baseline:
    """As a site would record it: by the case's own statistic and definition."""
    assert case.measure is not None
    # Small models on many GPUs wait for the network more than they compute.
    work = teraflops_of_a_step(case, causal=True)
    seconds = work / (MFU_OF_GPT3 * 989) + 0.05
    line = Line.model_validate(
        {
            **case.configuration(),
            "size": case.size,
            "dtype": case.dtype,
            "gpus": case.gpus,
            "step_time": float(f"{seconds:.4g}"),
            "tokens_per_second": case.tokens_per_step / seconds,
            "mfu": 100 * work / seconds / 989,
        }
    )
    table = Table(
        release=case.release,
        gpu="h100",
        framework="Megatron-LM",
        source="the site lab",
        statistic=case.measure.statistic,
        peak={case.dtype: 989},
        flops={case.size: FlopsDefinition(definition=case.measure.flops)},
        cells=[line],
    )
    return Baseline(BASELINES / "sites" / "lab" / "gpt3_aks.yaml", table, line)


@lru_cache
def cells() -> tuple[Cell, ...]:
    """All that have a baseline. Megatron-Bridge has no recipe: llama3's cases stand in, read as its logs."""
    found = []
    for name, releases in RELEASES.items():
        for release, gpu in product(releases, GPUS):
            recipe = load_recipe(ROOT / "suites" / name, release, gpu)
            for case in () if recipe.unfit else recipe.cases:
                baseline = _baseline(recipe, case, gpu)
                if baseline is None or case.checkpoint is not None:
                    continue
                cell = Cell(recipe.file.log, release, gpu, case, baseline)
                found.append(cell)
                if (name, release) == ("llama3", "25.04"):
                    found.append(replace(cell, dialect="megatron_bridge"))
    return tuple(found)


def _baseline(recipe: Recipe, case: Case, gpu: str) -> Baseline | None:
    if case.recipe != "gpt3_aks":
        return find(BASELINES, recipe, case, gpu)
    return _own_baseline(case) if gpu == "h100" and not case.variant else None


@lru_cache
def cells_of(dialect: str) -> tuple[Cell, ...]:
    return tuple(cell for cell in cells() if cell.dialect == dialect)


def draw(rng: random.Random, dialect: str) -> Cell:
    """A cell of the dialect: every recipe, release and size alike, then one of their cells."""
    of = cells_of(dialect)
    groups = sorted({(cell.case.recipe, cell.release, cell.case.size) for cell in of})
    group = rng.choice(groups)
    return rng.choice([cell for cell in of if (cell.case.recipe, cell.release, cell.case.size) == group])


def series(
    rng: random.Random,
    cell: Cell,
    *,
    steps: int | None = None,
    pace: float | None = None,
    noise: float = 0.003,
    hiccups: int = 0,
) -> list[float]:
    """Step times in s of a healthy run at `pace` of the target: a slow start, normal scatter, and stalls of 20 to 40 %."""
    count = cell.case.steps if steps is None else steps
    usual = cell.target * (rng.uniform(0.985, 1.015) if pace is None else pace)
    times = [usual * max(0.8, 1 + rng.gauss(0, noise)) for _ in range(count)]
    if count:
        times[0] += usual * rng.uniform(0.5, 3) + rng.uniform(5, 40)
    if count > 1:
        times[1] *= rng.uniform(1, 1.3)
    settled = range(count // 5, count)
    for index in rng.sample(settled, min(hiccups, len(settled))):
        times[index] *= rng.uniform(1.2, 1.4)
    if cell.dialect == "maxtext":
        _dispatched(rng, times)
    return times


def _dispatched(rng: random.Random, times: list[float]) -> None:
    """MaxText prints from dispatch to dispatch: step 2 is next to nothing, often 7 too behind a long 6, at times another or the last one, and all jitter a little."""
    if len(times) < 10:
        return
    times[2] = rng.uniform(0.01, 0.026)
    if rng.random() < 0.5:
        times[6], times[7] = times[6] + times[7] - 0.01, 0.01
    shifts = [0.0] * 9 + [rng.gauss(0, 0.01) for _ in range(len(times) - 10)] + [0.0]
    for index in range(9, len(times)):
        times[index] += shifts[index] - shifts[index - 1]
    if rng.random() < 0.3:
        late = rng.choice((len(times) - 1, rng.randrange(10, len(times))))
        times[late - 1], times[late] = times[late - 1] + times[late] - 0.01, 0.01


def losses(rng: random.Random, cell: Cell, count: int) -> list[float]:
    """From 12 downwards; MaxText's synthetic batch is the same every time, and learnt after three steps."""
    if cell.dialect == "maxtext":
        return [14.271, 14.271, 6.057, *[0.0] * count][:count]
    return [11.96 - 0.02 * index + rng.uniform(-0.005, 0.005) for index in range(count)]


def style(rng: random.Random, cell: Cell) -> Style:
    return Style(
        stderr=cell.dialect == "nemo2" or rng.random() < (0.3 if cell.dialect in EVERY_PROCESS else 0.7),
        nccl=rng.random() < 0.2,
        ranks=rng.choice((1, 2, 8)) if cell.dialect in EVERY_PROCESS else 1,
        stdout=cell.dialect == "dllogger" and rng.random() < 0.5,
        twice=rng.random() < 0.7,
        first_consumed=rng.random() < 0.3,
        newer=cell.dialect in ("megatron_lm", "maxtext") and rng.random() < 0.5,
    )


def job(rng: random.Random, cell: Cell, times: list[float] | None = None) -> Job:
    """A healthy run of the cell, or one with these step times."""
    if times is None:
        times = series(rng, cell)
    return Job(
        case=cell.case,
        release=cell.release,
        times=tuple(times),
        losses=tuple(losses(rng, cell, len(times))),
        gpu=cell.gpu,
        per_node=cell.per_node,
        averaged=buffer_size(cell.case),
        seed=rng.getrandbits(32),
        style=style(rng, cell),
    )


def page(cell: Cell, rng: random.Random, pace: float | None = None) -> Page:
    """The log of a healthy run of the cell, or of one at this pace."""
    return cell.render(job(rng, cell, None if pace is None else series(rng, cell, pace=pace)))
