"""Finds baselines: the numbers that a case should reach, their source, and the definitions that they use."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from plugins.baselines.file import (
    Accelerator,
    AgreedTolerance,
    BaselineFile,
    Cell,
    Reference,
    Table,
    Tolerance,
    load_accelerators,
    load_baselines,
)
from plugins.baselines.versions import shown
from plugins.errors import ConfigError
from plugins.metrics import (
    FlopsDefinition,
    MfuBasis,
    Statistic,
    days_per_1t_tokens,
    flops_per_sequence,
    mfu,
    tokens_per_second,
)
from plugins.recipes.cases import Case, Recipe

_ACCELERATORS = "accelerators.yaml"


@dataclass(frozen=True)
class Baseline:
    """A cell with its table and file: what one case is judged against.

    If a case has both a published number and the site's own, it is judged by the published one; `own` is the
    other. `agreed` takes the place of its own tolerance.
    """

    path: Path
    table: Table
    cell: Cell
    own: Baseline | None = None
    agreed: AgreedTolerance | None = None
    is_own: bool = False

    @property
    def own_tolerance(self) -> Tolerance:
        return self.cell.tolerance or self.table.tolerance

    @property
    def tolerance(self) -> Tolerance:
        """What the case is judged with."""
        return self.agreed.instead_of(self.own_tolerance) if self.agreed else self.own_tolerance

    @property
    def statistic(self) -> Statistic:
        return Statistic.parse(self.table.statistic)

    @property
    def origin(self) -> str:
        """Where the number comes from, in one line."""
        table = self.table
        if (run := self.cell.recorded) is not None:
            runs = f"{run.runs} runs agree" if run.runs > 1 else "1 run"
            versions = "".join(f", {name} {shown(version)}" for name, version in run.versions.items())
            return (
                f"{table.source} by run {run.run} on {run.date} ({runs}, spread {100 * run.spread:.2g} %{versions}), "
                f"release {table.release} on {table.gpu}"
            )
        also = f" (printed again in {', '.join(table.also)})" if table.also else ""
        return f"{table.framework} release {table.release}{also} on {table.gpu}, {table.source}"


def find(
    folder: Path,
    recipe: Recipe,
    case: Case,
    gpu: str,
    own: Path | None = None,
    *,
    run: str = "",
    job: str = "",
    log: str = "",
    agreed: AgreedTolerance | None = None,
) -> Baseline | None:
    """The baseline of `case`, in its release, on this type of GPU; None if there is none.

    If `folder` has a published baseline, it is that one; otherwise it is the site's own, which is recorded in
    the folder `own`. `run` is the name of the run that is judged, `job` the id of its job, and `log` the
    fingerprint of its log. If the site's own number was recorded from them, it does not count. `agreed` is
    the tolerance of an acceptance plan.

    Raises:
        ConfigError: two tables have the cell, or the recipe runs another configuration than the published
            one, so that the number does not apply to the case.
    """
    published = _cell(folder / f"{recipe.name}.yaml", case, gpu)
    if published is not None and (why := _unlike(published, recipe, case)):
        raise ConfigError(f"{published.path}: {case.id}: {why}")
    mine = _cell(own / f"{recipe.name}.yaml", case, gpu) if own else None
    if mine is not None:
        mine = None if _idle(mine, recipe, case, run, job, log) else replace(mine, is_own=True)
    found = replace(published, own=mine) if published else mine
    return replace(found, agreed=agreed) if found else None


def lapsed(
    own: Path, recipe: Recipe, case: Case, gpu: str, *, run: str = "", job: str = "", log: str = ""
) -> str:
    """Why the site's own number for `case` does not count for this run; "" if it does or is missing."""
    path = own / f"{recipe.name}.yaml"
    mine = _cell(path, case, gpu)
    if mine is not None:
        why = _idle(mine, recipe, case, run, job, log)
        return f"{path} has one that does not count: {why}" if why else ""
    old = [found.cell.recorded.run for found in _cells(path, case, gpu) if found.cell.recorded]
    return f"{path} has one of run {old[-1]}, which has expired" if old else ""


def _cells(path: Path, case: Case, gpu: str) -> list[Baseline]:
    return [
        Baseline(path, table, cell)
        for table in _tables(path, case)
        if table.gpu == gpu
        for cell in table.cells
        if (cell.size, cell.dtype, cell.gpus) == (case.size, case.dtype, case.gpus)
    ]


def _cell(path: Path, case: Case, gpu: str) -> Baseline | None:
    found = [baseline for baseline in _cells(path, case, gpu) if not baseline.cell.expired]
    if len(found) > 1:
        raise ConfigError(
            f"{path}: {case.id} of release {case.release} on {gpu} has {len(found)} baselines; keep one"
        )
    return found[0] if found else None


def _idle(mine: Baseline, recipe: Recipe, case: Case, run: str, job: str, log: str) -> str:
    """Why a number of the site's own does not count for this run and log; "" if it does."""
    if (told := mine.cell.recorded) is not None:
        if told.run == run:
            return "this very run recorded it"
        if log and told.is_from(job, log):
            return f"run {told.run} recorded it from this very log"
    return _unlike(mine, recipe, case)


def _unlike(baseline: Baseline, recipe: Recipe, case: Case) -> str:
    """How the baseline's configuration differs from what the recipe runs; "" if it does not."""
    ran = case.identity()
    if key := baseline.cell.unlike(ran):
        return (
            f"the baseline was measured with {key} {baseline.cell.configuration[key]}, but "
            f"{recipe.name}/{recipe.path.relative_to(recipe.folder)} runs {key} {ran[key]}; make them agree"
        )
    statistic = baseline.statistic
    beyond = statistic.indices(case.steps)[-1]
    if beyond >= case.steps:
        return f"statistic {statistic} needs step {beyond}, but the recipe ends at step {case.steps - 1}"
    if statistic.cuts(case.means):
        return (
            f"statistic {statistic} cuts an interval, but the times of this recipe are means over {case.means.span} steps; let it "
            f"begin at a multiple of {case.means.span} and end before one"
        )
    return ""


def _read(path: Path) -> BaselineFile | None:
    if not path.exists():
        return None
    file = load_baselines(path)
    if file.recipe != path.stem:
        raise ConfigError(f"{path}: recipe is '{file.recipe}', but the file is named after '{path.stem}'")
    return file


def _tables(path: Path, case: Case) -> list[Table]:
    """The tables of the case's release, on any GPU."""
    file = _read(path)
    return [t for t in file.tables if t.is_of(case.release)] if file else []


def accelerators(folder: Path) -> dict[str, Accelerator]:
    """The data sheets, by the type of GPU."""
    return load_accelerators(folder / _ACCELERATORS)


def gpus_of_tables(folder: Path) -> set[str]:
    """The types of GPU of all tables in this folder."""
    paths = [path for path in folder.glob("*.yaml") if path.name != _ACCELERATORS]
    return {table.gpu for path in paths for table in load_baselines(path).tables}


def usual_statistic(folder: Path, case: Case) -> Statistic:
    """How a case without a baseline is measured.

    If the tables of its release, or else its recipe, state one statistic that fits the case, it is that one.
    Otherwise it is the last step.
    """

    def usable(texts: Iterable[str]) -> set[Statistic]:
        """The statistics that fit a run of this case: they end by its last step, and cut no interval."""
        found = {Statistic.parse(text) for text in texts}
        return {s for s in found if s.indices(case.steps)[-1] < case.steps and not s.cuts(case.means)}

    stated = usable(table.statistic for table in _tables(folder / f"{case.recipe}.yaml", case))
    found = stated or usable([case.measure.statistic] if case.measure else [])
    return found.pop() if len(found) == 1 else Statistic()


def references(folder: Path, case: Case, gpu: str) -> tuple[Reference, ...]:
    """What others measured at the case's size and dtype, on any number of GPUs."""
    return tuple(
        reference
        for table in _tables(folder / f"{case.recipe}.yaml", case)
        if table.gpu == gpu
        for reference in table.references
        if (reference.size, reference.dtype) == (case.size, case.dtype)
    )


def mfu_basis(
    case: Case, baseline: Baseline | None, gpu: str, folder: Path, measured_peak: float | None
) -> MfuBasis | None:
    """What MFU is counted with: the definitions of the baseline, so that both figures are comparable.

    If there is no baseline, the definition is that of the tables of the case's release for its size, or that
    of its recipe, or else full attention. The peak is the measured one, or that of the tables for this GPU,
    or else that of the data sheet. If no peak is known, there is none.

    `measured_peak` (TFLOP/s per GPU) is what the run itself measured.
    """
    definition = FlopsDefinition(definition=case.measure.flops if case.measure else "full-attention")
    if measured_peak is not None and not 0 < measured_peak < math.inf:
        measured_peak = None
    peak: float | None
    if baseline is not None:
        definition = baseline.table.flops[case.size]
        table_peak = baseline.table.peak
        peak = measured_peak if isinstance(table_peak, str) else table_peak[case.dtype]
    else:
        tables = [
            table for table in _tables(folder / f"{case.recipe}.yaml", case) if case.size in table.flops
        ]
        definitions = {table.corrected_flops.get(case.size, table.flops[case.size]) for table in tables}
        if len(definitions) == 1:
            definition = definitions.pop()
        stated = {t.peak.get(case.dtype) for t in tables if t.gpu == gpu and isinstance(t.peak, dict)} - {
            None
        }
        known = accelerators(folder).get(gpu)
        sheet = known.peak.get(case.dtype) if known else None
        peak = measured_peak or (stated.pop() if len(stated) == 1 else sheet)
    if peak is None:
        return None
    return _mfu_basis(case, definition, peak)


def _mfu_basis(case: Case, definition: FlopsDefinition, peak: float) -> MfuBasis:
    """The MFU basis; `beside` has the recipe's second definition, if that is another one."""

    def counted(how: FlopsDefinition, beside: MfuBasis | None = None) -> MfuBasis:
        return MfuBasis(flops_per_sequence(case.model, case.sequence_length, how), how, peak, beside)

    second = case.measure.beside if case.measure else None
    if second in (None, definition.definition):
        return counted(definition)
    return counted(definition, counted(FlopsDefinition(definition=second)))


@dataclass(frozen=True)
class Expected:
    """What a case should reach. `step_time` is in s; tokens/s, MFU and days follow from it.

    MFU is by the baseline's definitions. If the baseline's FLOPs are known to be wrong, `corrected` counts
    MFU by the right ones; otherwise it is None.
    """

    case: Case
    baseline: Baseline
    step_time: float
    mfu_basis: MfuBasis
    corrected: MfuBasis | None = None

    @property
    def tokens_per_second(self) -> float:
        return tokens_per_second(self.case, self.step_time)

    @property
    def mfu(self) -> float:
        return mfu(self.case, self.step_time, self.mfu_basis)

    @property
    def days_per_1t_tokens(self) -> float:
        return days_per_1t_tokens(self.case, self.step_time)

    def corrected_mfu(self, step_time: float) -> float | None:
        """MFU in percent by the corrected definition at this step time in s; never judged."""
        share = mfu(self.case, step_time, self.corrected) if self.corrected else None
        return share if share is not None and share <= 100 else None


def expected(case: Case, baseline: Baseline, basis: MfuBasis) -> Expected:
    """What `case` should reach: the published step time, or the one that follows from a published MFU."""
    published = baseline.cell.step_time
    if published is None:
        flops_of_a_step = case.gbs * basis.flops / case.gpus
        published = flops_of_a_step / (baseline.cell.mfu / 100 * basis.peak_tflops * 1e12)
    corrected = None
    if (right := baseline.table.corrected_flops.get(case.size)) is not None:
        flops = flops_per_sequence(case.model, case.sequence_length, right)
        corrected = MfuBasis(flops, right, basis.peak_tflops)
    return Expected(case, baseline, published, basis, corrected)
