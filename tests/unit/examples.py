"""What the tests judge: cases and baselines of the published llama3 recipe, logs in NeMo 2's own format."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import fields, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from plugins.baselines.expected import Expected, counting, expected
from plugins.baselines.expected_range import numbers
from plugins.baselines.metrics import MfuBasis
from plugins.baselines.store import Baseline, find
from plugins.gpu.samples import Gpus
from plugins.judging import validity
from plugins.judging.case_record import record_of
from plugins.judging.evidence import Evidence, runs_of
from plugins.judging.judge import judge
from plugins.judging.judgement import Judgement
from plugins.judging.measurement import Measurement
from plugins.judging.timing import timing
from plugins.judging.validity import TimedRun
from plugins.logs import Log, Step
from plugins.logs.formats import read
from plugins.logs.numbers import resolution
from plugins.recipes.cases import Case, Recipe
from plugins.recipes.expansion import load_recipe
from plugins.record.baseline import Statistic
from plugins.record.job import Job, JobRef, Phase
from plugins.record.outcome import Outcome
from plugins.record.stored import case_as_json
from plugins.reports.plot import drawable, steps_svg
from tests.printed.nemo2 import nemo2_line

ROOT = Path(__file__).parents[2]
BASELINES = ROOT / "baselines"
CASE = "70b-fp8-512gpus"
STEP_TIME = 10.07
"""Published for `CASE`, in s."""


def recipe_named(name: str, release: str | None = None, gpu: str = "h100") -> Recipe:
    return load_recipe(ROOT / "suites" / name, release, gpu)


def llama3() -> Recipe:
    return recipe_named("llama3")


@cache
def case(
    case_id: str = CASE, recipe: str = "llama3", *, release: str | None = None, gpu: str = "h100"
) -> Case:
    found = recipe_named(recipe, release, gpu).case(case_id)
    assert found is not None
    return found


@cache
def baseline(
    case_id: str = CASE,
    recipe: str = "llama3",
    *,
    statistic: str | None = None,
    release: str | None = None,
    gpu: str = "h100",
) -> Baseline:
    """The published baseline, or the same numbers with another statistic."""
    owner = recipe_named(recipe, release, gpu)
    found = find(BASELINES, owner, case(case_id, recipe, release=release, gpu=gpu), gpu)
    assert found is not None
    if statistic is not None:
        found = replace(found, table=found.table.model_copy(update={"statistic": statistic}))
    return found


@cache
def basis(
    case_id: str = CASE, recipe: str = "llama3", *, release: str | None = None, gpu: str = "h100"
) -> MfuBasis:
    which = case(case_id, recipe, release=release, gpu=gpu)
    found = counting(which, baseline(case_id, recipe, release=release, gpu=gpu), gpu, BASELINES).basis()
    assert found is not None
    return found


@cache
def target(case_id: str = CASE, recipe: str = "llama3", *, statistic: str | None = None) -> Expected:
    found = baseline(case_id, recipe, statistic=statistic)
    return expected(case(case_id, recipe), found, basis(case_id, recipe))


def evidence(
    case: Case,
    outcome: Outcome,
    log: Log,
    baseline: Baseline | None,
    *,
    baselines: Path = BASELINES,
    why_none: str = "",
    before: Sequence[Log] = (),
    gpus: Sequence[Gpus | None] = (),
    **more: Any,
) -> Evidence:
    """What a case is judged by. `before` are the logs of its earlier runs, `gpus` what each log tells of them, oldest first."""
    found = numbers(case, baseline, outcome.gpu, baselines, why_none)
    return Evidence(case, outcome, runs_of(outcome, [*before, log], gpus), found, **more)


def judged(case: Case, outcome: Outcome, log: Log, baseline: Baseline | None, **more: Any) -> Judgement:
    """The judgement on such evidence."""
    return judge(evidence(case, outcome, log, baseline, **more))


def problems(*facts: Any, **more: Any) -> list[str]:
    """Why a run with these facts, which are those of `TimedRun`, is no evidence."""
    return validity.problems(TimedRun(*facts, **more))


def with_outcome(judgement: Judgement, outcome: Outcome) -> Judgement:
    """The judgement of a case that had this outcome."""
    return replace(judgement, evidence=replace(judgement.evidence, outcome=outcome))


def steps(times: Sequence[float]) -> list[Step]:
    """Steps as NeMo 2 would print them: 4 significant digits."""
    return [_step(index, f"{seconds:.4}") for index, seconds in enumerate(times)]


@lru_cache(maxsize=100_000)
def _step(index: int, printed: str) -> Step:
    return Step(index, float(printed), resolution(printed, 4), loss=11.96 - index / 100)


def measure(times: Sequence[float], *, statistic: str = "last") -> Measurement:
    return Measurement(case(), timing(steps(times), Statistic.parse(statistic)), basis())


def times(**changed: float) -> list[float]:
    """50 steps at the published pace but for a few, `times(s49=13.1)`; a little noise, as every run has."""
    found = [STEP_TIME * (1 + 0.002 * (i % 5 - 2)) for i in range(50)]
    for name, seconds in changed.items():
        found[int(name.removeprefix("s"))] = seconds
    return found


def nemo2_text(seconds: Sequence[float] | None = None) -> str:
    """A whole log of `CASE`, 50 steps unless other times are given, with the start-up chatter around it."""
    lines = [nemo2_line(i, t) for i, t in enumerate(times() if seconds is None else seconds)]
    chatter = (
        "[NeMo I 2025-04-11 14:40:12 nemo_logging:393] Setting up optimizers\n"
        "All distributed processes registered. Starting with 512 processes\n"
    )
    return chatter + "\n".join(lines) + "\njob exited with code 0\n"


def parse(text: str | bytes, format_name: str = "nemo2") -> Log:
    data = text if isinstance(text, bytes) else text.encode()
    return read(format_name, iter([data]))


def record_json(judgement: Judgement) -> dict[str, Any]:
    """The record of a judged case, as `case.json` has it."""
    return case_as_json(record_of(judgement))


def plot(found: Judgement) -> ElementTree.Element:
    """The plot of a judged case."""
    times = drawable(found.case.means.times(found.log.steps))
    return ElementTree.fromstring(steps_svg(record_of(found), times))


def drawn(svg: ElementTree.Element, kind: str) -> list[str]:
    """The points of a line of a plot; none if it has no such line."""
    found = [path for path in svg.iter("{http://www.w3.org/2000/svg}path") if path.get("class") == kind]
    # Small letters draw the mark of a point, beside it.
    return re.findall(r"-?[\d.]+,-?[\d.]+", re.sub("[a-z][^A-Z]*", "", found[0].attrib["d"])) if found else []


def close_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a folder that cannot be listed, also not by root."""
    scandir = os.scandir

    def refuse(path: Any = ".") -> Any:
        if Path(path) == folder:
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    folder.mkdir()
    monkeypatch.setattr("os.scandir", refuse)


def outcome(**changed: object) -> Outcome:
    """A job of `CASE` that ended well, but for what is given."""
    facts: dict[str, object] = {
        "id": "4711",
        "name": "pacemark-1.llama3",
        "raw": "COMPLETED",
        "phase": Phase.SUCCEEDED,
        "nodes": "gpu[001-064]",
        "exit_code": "0:0",
        "submitted": 100.0,
        "started": 160.0,
        "ended": 1060.0,
    }
    job = Job(ref=JobRef("llama3", CASE, ""))
    plain = Outcome("h100", Path("results/run/llama3") / CASE, Path("log.txt"), job)
    return with_facts(plain, **(facts | changed))


def with_facts(found: Outcome, **changed: object) -> Outcome:
    """The outcome with other facts of it, its job, or the job's `ref`, `state` and `times`."""

    def given(part: object) -> Any:
        return {one.name: changed.pop(one.name) for one in fields(part) if one.name in changed}  # type: ignore[arg-type]

    of_outcome = given(found)
    ref, state, times = (
        replace(part, **given(part)) for part in (found.job.ref, found.job.state, found.job.times)
    )
    job = replace(found.job, ref=ref, state=state, times=times, **changed)  # type: ignore[arg-type]
    return replace(found, job=job, **of_outcome)
