"""What a run's GPUs and processors tell of its pace: whether it counts, and why it is slow. Pure.

The pace of a run on a CPU is judged by the peak of a matrix product that the run measured itself. The best product is the
peak of a machine that does nothing else. Behind each step the program times the same product again, and counts how much of
the processors it has meanwhile. By that part of the best product the steps are judged.

It counts only as far as others used the processors. What the program itself does beside its steps, and a clock that
falls, slow the products as well, and excuse nothing.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from plugins.baselines.baseline_file import Accelerator, Table
from plugins.baselines.expected import Expected
from plugins.gpu import causes as gpu_causes
from plugins.gpu.samples import Gpus
from plugins.judging.measurement import Measurement
from plugins.judging.verdicts import Verdict
from plugins.logs import Log
from plugins.logs.log import ProcessorSample
from plugins.recipes.cases import Case
from plugins.record.verdict import Kind

WAITING = 2.0
"""Two threads that wait for each other lose up to twice the share of the processors that others use."""

BUSY = 0.10
"""If others used less of the processors, they explain no pace."""

UNKNOWN = "this machine does not tell who had its processors, so a slow step may be another program's"

SPARE = 0.25
"""Beside others a pace counts only if it is off the limit by this part of the tolerance: it is an estimate."""

NAMED, SHOWN = 3, 0.005
"""So many of the other programs are named, and a share below this one is not."""


def peak(case: Case, logs: Sequence[Log]) -> float | None:
    """The peak in TFLOP/s by which these runs are judged together; None if one measured none."""
    peaks = [_peak(case, log) for log in logs]
    known = [tflops for tflops in peaks if tflops is not None]
    if len(known) < len(peaks):
        return None
    return max(known)


def explained_by_cpus(
    verdict: Verdict, case: Case, logs: Sequence[Log], measurement: Measurement, expected: Expected | None
) -> Verdict:
    """The verdict with what other programs on this machine mean for it.

    If they used the processors, a run that neither passes clearly nor is clearly too slow is invalid: its steps do not
    tell what they would have been alone.
    """
    settled = _settled(case, logs)
    if not settled:
        return verdict
    others, who = _others(settled), _who(settled)
    if not verdict.fails and (others is None or others < BUSY):
        return verdict
    if others is None:
        return _with(verdict, UNKNOWN)
    if others < BUSY:
        return _with(verdict, f"{who}, which explains no slow step")
    known = all(_last(case, log) for log in logs)
    if expected is None or (known and _clear(verdict, measurement, expected)):
        return _with(verdict, f"{who}: judged by what this one had of them")
    reason = (
        f"{who}, and the steps do not tell the machine's pace without them: let this program have "
        f"the processors for itself, and run it again"
    )
    beside = f"judged beside them, it is {verdict.headline}"
    remarks = (beside, *verdict.remarks)
    return replace(verdict, kind=Kind.INVALID, reasons=(reason,), remarks=remarks, deviation=None)


def busy(case: Case, logs: Sequence[Log]) -> str:
    """Who kept the processors from these runs; "" if nobody did, or if it is not known."""
    settled = _settled(case, logs)
    if not settled or (_others(settled) or 0.0) < BUSY:
        return ""
    return _who(settled)


def _settled(case: Case, logs: Sequence[Log]) -> list[ProcessorSample]:
    steps = range(case.means.warm_up(case.steps), case.steps)
    return [sample for log in logs for sample in log.processors if sample.step in steps]


def _peak(case: Case, log: Log) -> float | None:
    last = _last(case, log)
    if log.peak_tflops is None or not last:
        return log.peak_tflops
    had = statistics.median(sample.share for sample in last)
    return log.peak_tflops * min(1.0, max(had, 1 - WAITING * (_others(last) or 0.0)))


def _last(case: Case, log: Log) -> list[ProcessorSample]:
    """The samples of the steps whose median decides; empty if most are missing."""
    steps = range(case.steps - case.means.unit.recent, case.steps)
    last = [sample for sample in log.processors if sample.step in steps]
    if 2 * len(last) <= len(steps):
        return []
    return last


def _others(samples: Sequence[ProcessorSample]) -> float | None:
    """The share of the processors that this program could not have; None if it is not known."""
    if any(sample.others_s is None for sample in samples):
        return None
    return sum(_shares(samples).values())


def _shares(samples: Sequence[ProcessorSample]) -> dict[str, float]:
    """The share of the processors that others used, by the name of the field."""
    whole = sum(sample.seconds * sample.processors for sample in samples)
    fields = ("others_s", "stolen_s", "held_s")
    return {name: sum(getattr(sample, name) or 0.0 for sample in samples) / whole for name in fields}


def _who(samples: Sequence[ProcessorSample]) -> str:
    """`other programs had 62 % of the processors (firefox, cc1plus)`, and what else kept them from this program."""
    used: defaultdict[str, float] = defaultdict(float)
    for name, seconds in (pair for sample in samples for pair in sample.programs.items()):
        used[name] += seconds
    whole = sum(sample.others_s or 0.0 for sample in samples)
    names = sorted((name for name in used if used[name] > BUSY * whole), key=lambda name: -used[name])
    named = f" ({', '.join(names[:NAMED])})" if names else ""
    shares = _shares(samples)
    percents = {name: f"{100 * share:.0f} %" for name, share in shares.items()}
    words = {
        "others_s": f"other programs had {percents['others_s']} of the processors{named}",
        "stolen_s": f"a hypervisor gave {percents['stolen_s']} of the processors to other machines",
        "held_s": f"the CPU limit of its cgroup kept {percents['held_s']} of the processors from this program",
    }
    parts = [words[name] for name, share in shares.items() if share >= SHOWN]
    return ", ".join(parts) or "other programs had less than 1 % of the processors"


def _with(verdict: Verdict, remark: str) -> Verdict:
    return replace(verdict, remarks=(*verdict.remarks, remark))


def _clear(verdict: Verdict, measurement: Measurement, expected: Expected) -> bool:
    """Whether the steady pace is in the band, or below it, and not near its limit."""
    off = expected.deviation(measurement.timing.steady)
    slower = expected.baseline.tolerance.slower
    if verdict.kind is Kind.PASSED:
        return off > -(1 - SPARE) * slower
    return verdict.kind is Kind.TOO_SLOW and off < -(1 + SPARE) * slower


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


def explained_by_gpus(verdict: Verdict, gpus: Gpus | None, table: Table | None) -> Verdict:
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
    remarks = (verdict.headline, *verdict.remarks)
    return replace(verdict, kind=Kind.INVALID, reasons=tuple(reasons), remarks=remarks, deviation=None)


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
