"""What a case should reach by its baseline, and the definitions that its pace and MFU are counted with."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from plugins.baselines.baseline_file import Cell, Primary, accelerators
from plugins.baselines.metrics import (
    FlopsDefinition,
    MfuBasis,
    days_per_1t_tokens,
    flops_per_sequence,
    mfu,
    possible_mfu,
    tokens_per_second,
)
from plugins.baselines.store import Baseline, tables_of, unfit
from plugins.recipes.cases import Case
from plugins.record.baseline import Statistic


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

    def deviation(self, step_time: float) -> float:
        """The share by which the throughput at this step time in s is above (+) or below (-) the expected one."""
        return self.step_time / step_time - 1

    def corrected_mfu(self, step_time: float) -> float | None:
        """MFU in percent by the corrected definition at this step time in s; never judged."""
        return possible_mfu(self.case, step_time, self.corrected)


def expected(case: Case, baseline: Baseline, basis: MfuBasis) -> Expected:
    """What `case` should reach: the published step time, or the one that follows from the published figure.

    If the baseline is that of another scale, it is the step time in the middle of its range.
    """
    if baseline.range is None:
        step_time = _step_time(case, baseline.cell, baseline.table.primary, basis)
    else:
        step_time = case.tokens_per_step / case.gpus / baseline.range.middle
    right = baseline.table.corrected_flops.get(case.size)
    corrected = None if right is None else _counted(case, right, basis.peak_tflops)
    return Expected(case, baseline, step_time, basis, corrected)


def _step_time(case: Case, cell: Cell, primary: Primary, basis: MfuBasis) -> float:
    """The step time in s that a cell states, or that follows from its primary figure by the FLOPs of its table."""
    if cell.step_time is not None:
        return cell.step_time
    if primary == "tokens_per_second_per_gpu" and cell.tokens_per_second_per_gpu is not None:
        return case.tokens_per_step / case.gpus / cell.tokens_per_second_per_gpu
    if cell.tflops_per_gpu is not None:
        tflops = cell.tflops_per_gpu
    else:
        assert cell.mfu is not None
        tflops = cell.mfu / 100 * basis.peak_tflops
    return case.gbs * basis.flops / case.gpus / (tflops * 1e12)


def usual_statistic(folder: Path, case: Case) -> Statistic:
    """How a case without a baseline is measured.

    If the tables of its release, or else its recipe, state one statistic that fits the case, it is that one.
    Otherwise it is the last step.
    """

    def fitting(texts: Iterable[str]) -> set[Statistic]:
        """The statistics that end by the last step of this case, and cut no interval."""
        stated = {Statistic.parse(text) for text in texts}
        return {statistic for statistic in stated if not unfit(statistic, case)}

    statistics = fitting(table.statistic for table in tables_of(folder, case))
    if not statistics and case.measure is not None:
        statistics = fitting([case.measure.statistic])
    return statistics.pop() if len(statistics) == 1 else Statistic()


@dataclass(frozen=True)
class Counting:
    """How the MFU of a case is counted: the definition of its FLOPs, and the peak in TFLOP/s per GPU.

    `peak` is None if it is unknown. If `by_measured_peak`, a peak that the run itself measured takes its place.
    """

    case: Case
    definition: FlopsDefinition
    peak: float | None
    by_measured_peak: bool

    def basis(self, measured_peak: float | None = None) -> MfuBasis | None:
        """What MFU is counted with; None if no peak is known. `measured_peak` (TFLOP/s per GPU) is the run's own."""
        peak = self.peak
        if self.by_measured_peak and measured_peak is not None and 0 < measured_peak < math.inf:
            peak = measured_peak
        if peak is None:
            return None
        case, definition = self.case, self.definition
        second = case.measure.beside if case.measure else None
        if second in (None, definition.definition):
            return _counted(case, definition, peak)
        beside = _counted(case, FlopsDefinition(definition=second), peak)
        return _counted(case, definition, peak, beside)


def counting(case: Case, baseline: Baseline | None, gpu: str, folder: Path) -> Counting:
    """How MFU is counted: by the definitions of the baseline, so that both figures are comparable.

    If there is no baseline, the definition is that of the tables of the case's release for its size, or that
    of its recipe, or else full attention. The peak is the measured one, or that of the tables for this GPU,
    or else that of the data sheet.
    """
    if baseline is None:
        definition, peak = _usual_basis(case, gpu, folder)
        return Counting(case, definition, peak, by_measured_peak=True)
    definition, peaks = baseline.table.flops[case.size], baseline.table.peak
    if isinstance(peaks, str):
        return Counting(case, definition, None, by_measured_peak=True)
    return Counting(case, definition, peaks[case.dtype], by_measured_peak=False)


def _usual_basis(case: Case, gpu: str, folder: Path) -> tuple[FlopsDefinition, float | None]:
    """The definition, and the peak in TFLOP/s per GPU, of a case without a baseline."""
    tables = [table for table in tables_of(folder, case) if case.size in table.flops]
    definitions = {table.corrected_flops.get(case.size, table.flops[case.size]) for table in tables}
    if len(definitions) == 1:
        definition = definitions.pop()
    else:
        definition = FlopsDefinition(definition=case.measure.flops if case.measure else "full-attention")
    stated = {t.peak.get(case.dtype) for t in tables if t.gpu == gpu and isinstance(t.peak, dict)} - {None}
    if len(stated) == 1:
        return definition, stated.pop()
    sheet = accelerators(folder).get(gpu)
    return definition, sheet.peak.get(case.dtype) if sheet else None


def _counted(
    case: Case, definition: FlopsDefinition, peak: float, beside: MfuBasis | None = None
) -> MfuBasis:
    flops = flops_per_sequence(case.model, case.sequence_length, definition)
    return MfuBasis(flops, definition, peak, beside)
