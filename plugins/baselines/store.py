"""Finds baselines: the numbers that a case should reach, and where they come from."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path

from plugins.base.errors import ConfigError
from plugins.baselines.baseline_file import NO_TABLES, Cell, Reference, Table, load_baselines
from plugins.baselines.changes import shown
from plugins.recipes.cases import Case, Recipe
from plugins.record.baseline import AgreedTolerance, ExpectedRange, Statistic, Tolerance

# Two figures of a cell are of one run if they differ by less, as a share: people round them.
_ROUNDED = 0.01


@dataclass(frozen=True)
class Baseline:
    """A cell with its table and file: what one case is judged against.

    If a case has both a published number and the site's own, it is judged by the published one; `beside` is the
    other. `agreed` takes the place of the published tolerance. `of_site` says whether it is the site's own number.
    With a `range`, the cell is of another scale: the case is judged by the lower end of the range.
    """

    path: Path
    table: Table
    cell: Cell
    beside: Baseline | None = None
    agreed: AgreedTolerance | None = None
    of_site: bool = False
    range: ExpectedRange | None = None

    @property
    def published_tolerance(self) -> Tolerance:
        published = self.cell.tolerance or self.table.tolerance
        if self.range is None:
            return published
        low, middle, high = self.range.low, self.range.middle, self.range.high
        faster = high / middle * (1 + published.faster) - 1
        return published.model_copy(update={"slower": 1 - low / middle, "faster": faster})

    @property
    def tolerance(self) -> Tolerance:
        """What the case is judged with."""
        if self.agreed is None:
            return self.published_tolerance
        if self.range is not None:
            steadiness = self.agreed.model_copy(update={"slower": None, "faster": None})
            return steadiness.instead_of(self.published_tolerance)
        return self.agreed.instead_of(self.published_tolerance)

    @property
    def statistic(self) -> Statistic:
        return Statistic.parse(self.table.statistic)

    @property
    def origin(self) -> str:
        """Where the number comes from, in one line."""
        table, run = self.table, self.cell.recorded
        if self.range is not None:
            origin = replace(self, range=None).origin
            return f"expected range, {self.range.text}: nobody published a number of this case; {origin}"
        if run is None:
            also = f" (printed again in {', '.join(table.also)})" if table.also else ""
            return f"{table.framework} release {table.release}{also} on {table.gpu}, {table.source}"
        runs = f"{run.runs} runs agree" if run.runs > 1 else "1 run"
        versions = "".join(f", {name} {shown(version)}" for name, version in run.versions.items())
        return (
            f"{table.source} by run {run.run} on {run.date} ({runs}, spread {100 * run.spread:.2g} %{versions}), "
            f"release {table.release} on {table.gpu}"
        )


@dataclass(frozen=True)
class SiteNumbers:
    """The numbers in the folder of a site's own baselines, as they count for one run.

    `run` is the name of the run that is judged, `job` the id of its job, `log` the fingerprint of its log; "" if
    that is not known. A number that was recorded from them does not count.
    """

    folder: Path
    run: str = ""
    job: str = ""
    log: str = ""

    def find(self, recipe: Recipe, case: Case, gpu: str) -> Baseline | None:
        """The number that counts for this case; None if there is none."""
        number = _number(self.folder, case, gpu)
        if number is None or self._lapsed(number, recipe, case):
            return None
        return replace(number, of_site=True)

    def lapsed(self, recipe: Recipe, case: Case, gpu: str) -> str:
        """Why the site's own number for this case does not count; "" if it does, or there is none."""
        path, number = _file_of(self.folder, case), _number(self.folder, case, gpu)
        if number is not None:
            reason = self._lapsed(number, recipe, case)
            return f"{path} has one that does not count: {reason}" if reason else ""
        numbers = numbers_of(self.folder, case, gpu, case.gpus)
        expired = [old.cell.recorded.run for old in numbers if old.cell.recorded]
        if expired:
            return f"{path} has one of run {expired[-1]}, which has expired"
        key = (case.size, case.dtype, case.gpus)
        others = [
            f"{path} has one on {table.gpu} in release {table.release}, and this is {gpu} in release {case.release}"
            for table in (load_baselines(path).tables if path.exists() else ())
            if key in ((cell.size, cell.dtype, cell.gpus) for cell in table.cells)
        ]
        return others[0] if others else ""

    def _lapsed(self, number: Baseline, recipe: Recipe, case: Case) -> str:
        recorded = number.cell.recorded
        if recorded is not None and recorded.run == self.run:
            return "this very run recorded it"
        if recorded is not None and self.log and recorded.is_from(self.job, self.log):
            return f"run {recorded.run} recorded it from this very log"
        return _unlike(number, recipe, case) or _contradiction(number.cell, case)


def find(
    folder: Path, recipe: Recipe, case: Case, gpu: str, site: SiteNumbers | None = None
) -> Baseline | None:
    """The baseline of `case`, in its release, on this type of GPU; None if there is none.

    If `folder` has a published baseline, it is that one; otherwise it is the site's own.

    Raises:
        ConfigError: two tables have the cell, or the recipe runs another configuration than the published
            one, so that the number does not apply to the case.
    """
    published = _number(folder, case, gpu)
    reason = "" if published is None else _unlike(published, recipe, case)
    if published is not None and reason:
        raise ConfigError(f"{published.path}: {case.id}: {reason}")
    of_site = None if site is None else site.find(recipe, case, gpu)
    return of_site if published is None else replace(published, beside=of_site)


def lacking(folder: Path, case: Case, gpu: str) -> str:
    """Why no number was published for this case; "" if its baselines do not say."""
    path = _file_of(folder, case)
    if not path.exists():
        return ""
    key = (case.release, gpu, case.size, case.dtype)
    for lack in load_baselines(path).lacking:
        if (lack.release, lack.gpu, lack.size, lack.dtype) == key and case.gpus in lack.gpus:
            return lack.reason
    return ""


def references(folder: Path, case: Case, gpu: str) -> tuple[Reference, ...]:
    """What others measured at the case's size and dtype, on any number of GPUs."""
    return tuple(
        reference
        for table in tables_of(folder, case)
        if table.gpu == gpu
        for reference in table.references
        if (reference.size, reference.dtype) == (case.size, case.dtype)
    )


def gpus_of_tables(folder: Path) -> set[str]:
    """The types of GPU of all tables in this folder."""
    paths = [path for path in folder.glob("*.yaml") if path.name not in NO_TABLES]
    return {table.gpu for path in paths for table in load_baselines(path).tables}


def _file_of(folder: Path, case: Case) -> Path:
    return folder / f"{case.recipe}.yaml"


def tables_of(folder: Path, case: Case) -> list[Table]:
    """The tables of the case's release, on any GPU; none if its recipe has no file. Raises ConfigError."""
    path = _file_of(folder, case)
    if not path.exists():
        return []
    file = load_baselines(path)
    if file.recipe != path.stem:
        raise ConfigError(f"{path}: recipe is '{file.recipe}', but the file is named after '{path.stem}'")
    return [table for table in file.tables if table.is_of(case.release)]


def numbers_of(folder: Path, case: Case, gpu: str, scale: int | None = None) -> list[Baseline]:
    """The numbers of the case's size and dtype on this type of GPU, at this scale; at all scales if none is given."""
    return [
        Baseline(_file_of(folder, case), table, cell)
        for table in tables_of(folder, case)
        if table.gpu == gpu
        for cell in table.cells
        if (cell.size, cell.dtype) == (case.size, case.dtype) and scale in (None, cell.gpus)
    ]


def _number(folder: Path, case: Case, gpu: str) -> Baseline | None:
    """The number of this case that has not expired. Raises ConfigError if there are several."""
    numbers = [number for number in numbers_of(folder, case, gpu, case.gpus) if not number.cell.expired]
    if len(numbers) > 1:
        raise ConfigError(
            f"{_file_of(folder, case)}: {case.id} of release {case.release} on {gpu} has {len(numbers)} baselines; keep one"
        )
    return numbers[0] if numbers else None


def _unlike(baseline: Baseline, recipe: Recipe, case: Case) -> str:
    """How the baseline's configuration differs from what the recipe runs; "" if it does not."""
    ran = case.identity()
    key = baseline.cell.unlike(ran)
    if key:
        return (
            f"the baseline was measured with {key} {baseline.cell.configuration[key]}, but "
            f"{recipe.name}/{recipe.path.relative_to(recipe.folder)} runs {key} {ran[key]}; make them agree"
        )
    return unfit(baseline.statistic, case)


def _contradiction(cell: Cell, case: Case) -> str:
    """Why the step time and the tokens/s of a cell cannot both be so; "" if they can."""
    if cell.step_time is None:
        return ""
    rate = case.tokens_per_step / cell.step_time
    each = cell.tokens_per_second_per_gpu
    for stated in (cell.tokens_per_second, each and each * case.gpus):
        if stated is not None and not math.isclose(rate, stated, rel_tol=_ROUNDED):
            return f"a step_time of {cell.step_time:g} s is {rate:,.0f} tokens/s, and it says {stated:,.0f}: correct one"
    return ""


def unfit(statistic: Statistic, case: Case) -> str:
    """Why a case has no such statistic; "" if it has."""
    last = statistic.indices(case.steps)[-1]
    if last >= case.steps:
        return f"statistic {statistic} needs step {last}, but the recipe ends at step {case.steps - 1}"
    if statistic.first is not None and case.means.cut(statistic.indices(case.steps)):
        return (
            f"statistic {statistic} cuts an interval, but the times of this recipe are means over {case.means.span} steps; let it "
            f"begin at a multiple of {case.means.span} and end before one"
        )
    return ""
