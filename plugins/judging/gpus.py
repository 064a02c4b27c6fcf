"""What a run's GPUs tell of its pace: whether it counts, and why it is slow. Pure."""

from __future__ import annotations

from dataclasses import replace

from plugins.baselines.accelerators import Accelerator
from plugins.baselines.file import Table
from plugins.digests import gpu_causes
from plugins.digests.gpu_samples import Gpus
from plugins.judging.verdicts import Verdict
from plugins.metrics import Measurement
from plugins.recipes.cases import Case
from plugins.record.verdict import Kind


def spoiled(gpus: Gpus | None) -> list[str]:
    """Why the run is no evidence, by what the hardware says of itself while its steps ran."""
    return gpu_causes.spoiled(gpus.timed) if gpus is not None else []


def unended(case: Case, gpus: Gpus | None) -> str:
    """Why a run whose steps are all there is no evidence: its program ended before its last look at each GPU."""
    if gpus is None:
        return ""
    seen = {product.gpu for product in gpus.products if product.when == "after"}
    lacking = [f"GPU {gpu}" for gpu in range(case.gpus) if gpu not in seen]
    if not lacking:
        return ""
    return f"the program did not come to its end: no matrix product after the run on {', '.join(lacking)}"


def low(gpus: Gpus | None, healthy: float | None) -> list[str]:
    """Why a run that is in the band is no evidence: the GPUs whose matrix product alone is slow."""
    return gpu_causes.low_products(gpus.timed, healthy) if gpus is not None else []


def explained(verdict: Verdict, gpus: Gpus | None, healthy: float | None) -> Verdict:
    """The verdict with the cause of a slow run in its headline.

    A run that is in the band is not valid if a GPU's matrix product alone shows that it is slow. Another process
    on a GPU is then a remark. `healthy` is the product of a healthy GPU in TFLOP/s; None if it is unknown.
    """
    if gpus is None:
        return verdict
    timed = gpus.timed
    found, unsampled = gpu_causes.causes(timed, healthy), _unsampled(timed)
    if verdict.kind in (Kind.TOO_SLOW, Kind.NOISY):
        why = "; ".join(found) or unsampled or "nothing that NVML tells of the GPUs explains it"
        return replace(verdict, headline=f"{verdict.headline}; cause: {why}")
    low = gpu_causes.low_products(timed, healthy)
    if verdict.kind is Kind.PASSED and low:
        return Verdict(
            Kind.INVALID, f"{Kind.INVALID}: {'; '.join(found)}", (verdict.headline, *verdict.remarks)
        )
    return replace(verdict, remarks=(*verdict.remarks, *found, *([unsampled] if unsampled else ())))


def lines(
    gpus: Gpus | None, measurement: Measurement, part: Accelerator | None, table: Table | None = None
) -> list[str]:
    """The lines of the report: each GPU, MFU at the clock that was held, the energy of a token, the all-reduce, weak scaling.

    `table` is that of the baseline; None if there is none.
    """
    if gpus is None:
        return []
    timed = gpus.timed
    found = gpu_causes.summary(timed)
    held, share = timed.clock, measurement.mfu
    if held and share is not None and part is not None and part.clock_mhz is not None:
        at_clock = share * part.clock_mhz / held
        found.append(
            f"clock     MFU {at_clock:.2f} % of the peak at the {held:.0f} MHz that were held; the data sheet's peak is at "
            f"{part.clock_mhz:.0f} MHz"
        )
    if watts := timed.watts:
        found.append(
            f"energy    {watts / measurement.tokens_per_second:.4g} J a token, {watts / measurement.case.gpus:.0f} W a GPU"
        )
    if gpus.all_reduce is not None:
        beside = (
            f"; NVLink has {part.nvlink_gb_per_second:g} GB/s each way"
            if part and part.nvlink_gb_per_second
            else ""
        )
        found.append(f"links     all-reduce at {gpus.all_reduce:.1f} GB/s of bus bandwidth{beside}")
    return found + (_scaling(measurement, table) if table is not None else [])


def _scaling(measurement: Measurement, table: Table) -> list[str]:
    """The share of one GPU's pace that each GPU keeps, if the table has one GPU with as large a batch for each."""
    case = measurement.case
    for cell in table.cells if case.gpus > 1 else []:
        same = (cell.size, cell.dtype, cell.gpus, cell.gbs * case.gpus) == (
            case.size,
            case.dtype,
            1,
            case.gbs,
        )
        if same and cell.step_time is not None:
            share = 100 * cell.step_time / measurement.step_time
            return [
                f"scaling   {share:.1f} % of one GPU's pace, {cell.step_time:.4g} s a step with as large a batch"
            ]
    return []


def _unsampled(timed: Gpus) -> str:
    """The GPUs of which NVML told nothing during the steps, in words; "" if there is none."""
    lacking = sorted({product.gpu for product in timed.products} - {*timed.numbers})
    names = ", ".join(f"GPU {gpu}" for gpu in lacking)
    return (
        f"not sampled during the steps, so heat, limits and other processes are unknown: {names}"
        if lacking
        else ""
    )
