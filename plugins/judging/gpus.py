"""What a run's GPUs tell of its pace: whether it counts, and why it is slow. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from plugins.baselines.baseline_file import Accelerator, Table
from plugins.gpu import causes as gpu_causes
from plugins.gpu.samples import Gpus
from plugins.judging.measurement import Measurement
from plugins.judging.verdicts import Verdict
from plugins.recipes.cases import Case
from plugins.record.verdict import Kind


def spoiled(gpus: Gpus | None) -> list[str]:
    """Why the run is no evidence, by what the hardware says of itself while its steps ran."""
    return [] if gpus is None else gpu_causes.spoiled(gpus.timed)


def unended(case: Case, gpus: Gpus | None) -> str:
    """Why a run whose steps are all there is no evidence: its program ended before its last look at each GPU."""
    if gpus is None:
        return ""
    measured = {product.gpu for product in gpus.products if product.when == "after"}
    missing = [f"GPU {gpu}" for gpu in range(case.gpus) if gpu not in measured]
    if not missing:
        return ""
    return f"the program did not come to its end: no matrix product after the run on {', '.join(missing)}"


def low(gpus: Gpus | None, healthy: float | None) -> list[str]:
    """Why a run that is in the band is no evidence: the GPUs whose matrix product alone is slow."""
    return [] if gpus is None else gpu_causes.low_products(gpus.timed, healthy)


def explained(verdict: Verdict, gpus: Gpus | None, table: Table | None) -> Verdict:
    """The verdict with the cause of a slow run among its reasons.

    A run that is in the band is not valid if a GPU's matrix product alone shows that it is slow. Another process
    on a GPU is then a remark. `table` is that of the baseline, with what healthy GPUs reach; None if there is none.
    """
    if gpus is None:
        return verdict
    healthy, all_reduce = (table.product, table.all_reduce) if table else (None, None)
    causes, unsampled = gpu_causes.causes(gpus.timed, healthy, all_reduce), _unsampled(gpus.timed)
    if verdict.kind in (Kind.TOO_SLOW, Kind.NOISY):
        cause = "; ".join(causes) or unsampled or "nothing that NVML tells of the GPUs explains it"
        return replace(verdict, reasons=(*verdict.reasons, f"cause: {cause}"))
    if verdict.kind is Kind.PASSED and low(gpus, healthy):
        return vetoed(verdict, causes)
    return replace(verdict, remarks=(*verdict.remarks, *causes, *filter(None, [unsampled])))


def vetoed(verdict: Verdict, reasons: Sequence[str]) -> Verdict:
    """The verdict on a run whose pace is no evidence, for these reasons; what it would be is a remark."""
    return Verdict(Kind.INVALID, tuple(reasons), (verdict.headline, *verdict.remarks))


def lines(
    gpus: Gpus | None, measurement: Measurement, part: Accelerator | None, table: Table | None = None
) -> list[str]:
    """The lines of the report: each GPU, MFU at the clock that was held, the energy of a token, the all-reduce, weak scaling.

    `table` is that of the baseline; None if there is none.
    """
    if gpus is None:
        return []
    report = [*gpu_causes.summary(gpus.timed), *_clock_line(gpus.timed, measurement, part)]
    watts = gpus.timed.watts
    if watts:
        token, gpu = watts / measurement.tokens_per_second, watts / measurement.case.gpus
        report.append(f"energy    {token:.4g} J a token, {gpu:.0f} W a GPU")
    if gpus.all_reduce is not None:
        line = f"links     all-reduce at {gpus.all_reduce:.1f} GB/s of bus bandwidth"
        if part is not None and part.nvlink_gb_per_second:
            line += f"; NVLink has {part.nvlink_gb_per_second:g} GB/s each way"
        report.append(line)
    if table is None:
        return report
    return report + _scaling(measurement, table)


def _clock_line(timed: Gpus, measurement: Measurement, part: Accelerator | None) -> list[str]:
    """MFU at the clock that was held; nothing if it is not known."""
    held, share = timed.clock, measurement.mfu
    if not held or share is None or part is None or part.clock_mhz is None:
        return []
    return [
        f"clock     MFU {share * part.clock_mhz / held:.2f} % of the peak at the {held:.0f} MHz that were held; the data sheet's "
        f"peak is at {part.clock_mhz:.0f} MHz"
    ]


def _scaling(measurement: Measurement, table: Table) -> list[str]:
    """The share of one GPU's pace that each GPU keeps, if the table has one GPU with as large a batch for each."""
    case = measurement.case
    if case.gpus == 1:
        return []
    of_one_gpu = (case.size, case.dtype, 1, case.gbs)
    for cell in table.cells:
        weak = (cell.size, cell.dtype, cell.gpus, cell.gbs * case.gpus) == of_one_gpu
        if weak and cell.step_time is not None:
            share = 100 * cell.step_time / measurement.step_time
            return [
                f"scaling   {share:.1f} % of one GPU's pace, {cell.step_time:.4g} s a step with as large a batch"
            ]
    return []


def _unsampled(timed: Gpus) -> str:
    """The remark on GPUs without a sample of NVML during the steps; "" if each has one."""
    missing = sorted({product.gpu for product in timed.products} - {*timed.numbers})
    if not missing:
        return ""
    names = ", ".join(f"GPU {gpu}" for gpu in missing)
    return f"not sampled during the steps, so heat, limits and other processes are unknown: {names}"
