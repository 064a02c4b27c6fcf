"""Why a run on these GPUs is slow, or no evidence: what their samples, states and matrix products show. Pure."""

from __future__ import annotations

import re
import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping

from plugins.base.words import listed
from plugins.gpu.samples import POWER_CAP, Gpus, Process, Series, State

# Bits of nvmlDeviceGetCurrentClocksEventReasons.
_SET_CLOCK = 0x2
REASONS = {
    _SET_CLOCK: "a clock that was set",
    0x8: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "hardware power brake",
}
SPOILING = (0x8, 0x20, 0x40, 0x80)
"""The reasons that say that this GPU, or its cooling or power supply, is not in order."""

OFTEN = 0.05
"""What is seen in fewer of the samples explains no pace."""

VIOLATED = 0.02
"""A limit that held the clocks down for less of the time explains no pace."""

SLOWER_CLOCK = 0.05
SLOWER_PRODUCT = 0.07
SLOWER_STEP = 0.05
SLOWER_MEMORY = 0.10
"""If a GPU's clock, product, pace alone or memory is below the median of the others by this share, it is named."""

IDLE = 0.03
"""A GPU that trains is idle for less than this share of the time."""

LOW_PRODUCT = 0.10
"""A healthy GPU's matrix product is within this share of its type's."""

LOW_ALL_REDUCE = 0.50
"""An all-reduce between healthy GPUs of a node has at least this share of the type's bus bandwidth."""

_MOST_PROCESSES = 4
_FIGURES = (
    ("SM", "sm_mhz", "MHz"),
    ("memory", "memory_mhz", "MHz"),
    ("power", "power_w", "W"),
    ("limit", "limit_w", "W"),
    ("GPU", "temperature_c", "C"),
    ("HBM", "memory_c", "C"),
    ("busy", "busy", "%"),
)

Figures = Mapping[int, float | None]

_DIGITS = re.compile(r"[\d.,]+")


def summary(gpus: Gpus) -> list[str]:
    """A line for each GPU: what it held in these samples. Of a temperature it is the highest, else the median."""
    lines = []
    for series in gpus.series:
        words = []
        for name, field, unit in _FIGURES:
            value = series.highest(field) if unit == "C" else series.median(field)
            if value is not None:
                words.append(f"{name} {value:.0f} {unit}")
        words.append(f"at the power cap {_percent(series.held_by(POWER_CAP))}")
        for product in gpus.products:
            if product.gpu == series.gpu:
                words.append(f"product {product.when} {product.sustained:.0f} ({product.burst:.0f}) TFLOP/s")
        words += [f"step alone {seconds:.4g} s" for gpu, seconds in gpus.alone if gpu == series.gpu]
        lines.append(f"gpu {series.gpu}     {', '.join(words)}")
    return lines


def spoiled(gpus: Gpus) -> list[str]:
    """Why these samples are of no healthy machine: what its hardware says of itself."""
    return [reason for series in gpus.series for reason in _held_down(series)] + list(_faults(gpus))


def causes(gpus: Gpus, healthy: float | None = None, all_reduce: float | None = None) -> list[str]:
    """What plainly explains a slow run, most telling first; empty if nothing does.

    `healthy` is the sustained matrix product in TFLOP/s of a healthy GPU of this type, `all_reduce` the bus bandwidth in
    GB/s of an all-reduce between healthy ones.
    """
    reasons = []
    if gpus.handicap > 1:
        reasons.append(f"each step did its work {gpus.handicap} times (handicap)")
    return [
        *reasons,
        *(cause for series in gpus.series for cause in _other_processes(series)),
        *spoiled(gpus),
        *_driver_errors(gpus),
        *(cause for series in gpus.series for cause in _limited(series, gpus.states)),
        *unlike(gpus),
        *_narrow(gpus),
        *(cause for series in gpus.series for cause in _idle(series)),
        *low_products(gpus, healthy),
        *_slow_links(gpus, all_reduce),
    ]


def told_apart(gpus: Gpus, good: Gpus) -> list[str]:
    """What explains a slow run beside a good one of the same program: what the good one says too, with other figures, does not."""
    alike = {_DIGITS.sub("", cause) for cause in causes(good)}
    novel = [cause for cause in causes(gpus) if _DIGITS.sub("", cause) not in alike]
    return [*novel, *unlike(gpus, good)]


def low_products(gpus: Gpus, healthy: float | None) -> list[str]:
    """GPUs whose matrix product alone shows that they are slow, or not theirs alone."""
    if healthy is None:
        return []
    return [
        f"GPU {product.gpu}: a matrix product alone reached {product.sustained:.0f} TFLOP/s {product.when} the run, on a "
        f"healthy GPU of this type {healthy:.0f}"
        for product in gpus.products
        if product.sustained < (1 - LOW_PRODUCT) * healthy
    ]


def _slow_links(gpus: Gpus, healthy: float | None) -> list[str]:
    """Whether the GPUs of the node are slow with each other, which is no fault of one of them."""
    if healthy is None or gpus.all_reduce is None or gpus.all_reduce >= LOW_ALL_REDUCE * healthy:
        return []
    return [
        f"the links between the GPUs: an all-reduce reached {gpus.all_reduce:.0f} GB/s of bus bandwidth, on a healthy node "
        f"of this type {healthy:.0f}"
    ]


def _held_down(series: Series) -> Iterator[str]:
    """What held the clocks of a GPU down that should not."""
    for bit in SPOILING:
        share = series.held_by(bit)
        if share > OFTEN:
            reason = f"GPU {series.gpu}: {REASONS[bit]} (0x{bit:x}) in {_percent(share)} of the samples"
            hottest = series.highest("temperature_c")
            yield reason if hottest is None else f"{reason}, at up to {hottest:.0f} C"
    for limit in ("thermal", "board", "reliability"):
        share = series.violated(limit)
        if share > VIOLATED:
            yield f"GPU {series.gpu}: its {limit} limit held the clocks down for {_percent(share)} of the time"


def _faults(gpus: Gpus) -> Iterator[str]:
    """The faults of memory that the states of the GPUs tell."""
    errors_before = {state.gpu: state.ecc_uncorrected for state in gpus.states if state.when == "begin"}
    for state in (state for state in gpus.states if state.when == "end"):
        before = errors_before.get(state.gpu)
        if before is not None and state.ecc_uncorrected is not None and state.ecc_uncorrected > before:
            errors = state.ecc_uncorrected - before
            yield f"GPU {state.gpu}: {errors} uncorrected memory errors during the run"
        if state.rows_failed:
            yield f"GPU {state.gpu} failed to remap rows of its memory"
        elif state.rows_pending:
            yield f"GPU {state.gpu} waits to remap rows of its memory"


def _driver_errors(gpus: Gpus) -> Iterator[str]:
    for state in gpus.states:
        if state.when == "end" and state.xids:
            yield f"GPU {state.gpu}: the driver told of {listed('XID', sorted(set(state.xids)))} during the run"


def _other_processes(series: Series) -> Iterator[str]:
    """The other processes on a GPU, of the names that are seen most often."""
    # By name: one that is started again and again has another id each time.
    by_name: defaultdict[str, list[list[Process]]] = defaultdict(list)
    for sample in series.samples:
        for name in {process.name for process in sample.others}:
            by_name[name].append([process for process in sample.others if process.name == name])
    for name, samples in sorted(by_name.items(), key=lambda pair: -len(pair[1]))[:_MOST_PROCESSES]:
        share = len(samples) / len(series.samples)
        if share <= OFTEN:
            continue
        pids = {process.pid for processes in samples for process in processes}
        words = f"process {min(pids)} ({name or 'unnamed'}) was"
        if len(pids) > 1:
            words = f"{len(pids)} processes ({name or 'unnamed'}; one is {min(pids)}) were"
        most = max(sum(process.mib for process in processes) for processes in samples)
        yield f"{words} on GPU {series.gpu} too, in {_percent(share)} of the samples, with {most} MiB"


def _limited(series: Series, states: tuple[State, ...]) -> Iterator[str]:
    """Limits that somebody set."""
    gpu, limit = series.gpu, series.median("limit_w")
    usual = next((s.default_limit_w for s in states if s.gpu == gpu and s.default_limit_w), None)
    if limit is not None and usual is not None and limit < 0.99 * usual:
        yield f"GPU {gpu}: its power limit is {limit:.0f} W, by default {usual:.0f} W"
    share = series.held_by(_SET_CLOCK)
    if share > OFTEN:
        yield f"GPU {gpu}: {REASONS[_SET_CLOCK]} (0x2) limits it in {_percent(share)} of the samples"


def unlike(gpus: Gpus, good: Gpus | None = None) -> Iterator[str]:
    """GPUs with a lower clock, pace alone, matrix product or number of NVLinks than the node's others, or than a good node.

    The product after the run is compared only if no step alone was measured there; the memory only with a good node.
    """
    others = "the node's others" if good is None else "a good node"

    figures, good_figures = _figures(gpus), _figures(good) if good else {}

    def below(name: str, share: float) -> Iterator[tuple[int, float, float]]:
        return _below(figures[name], share, good_figures.get(name))

    for gpu, clock, usual in below("clock", SLOWER_CLOCK):
        yield f"GPU {gpu}: its SM clock is {clock:.0f} MHz, that of {others} {usual:.0f} MHz"
    for gpu, pace, usual in below("pace", SLOWER_STEP):
        yield f"GPU {gpu}: a step alone takes {1 / pace:.4g} s, on {others} {1 / usual:.4g} s"
    for when in ("before",) if gpus.alone else ("before", "after"):
        for gpu, rate, usual in below(when, SLOWER_PRODUCT):
            yield f"GPU {gpu}: its matrix product {when} the run is {rate:.0f} TFLOP/s, that of {others} {usual:.0f}"
    for gpu, up, usual in below("links", 0.0):
        yield f"GPU {gpu}: {up:.0f} NVLinks are up, on {others} {usual:.0f}"
    if good is not None:
        for gpu, rate, usual in below("memory", SLOWER_MEMORY):
            yield f"GPU {gpu}: its memory copies {rate:.0f} GB/s, that of {others} {usual:.0f}"


def _figures(gpus: Gpus) -> Mapping[str, Figures]:
    """The figures of each GPU that are compared with those of others, by name; more is better."""
    figures: dict[str, Figures] = {
        when: {product.gpu: product.sustained for product in gpus.products if product.when == when}
        for when in ("before", "after")
    }
    return figures | {
        "clock": {series.gpu: series.median("sm_mhz") for series in gpus.series},
        "pace": {gpu: 1 / seconds for gpu, seconds in gpus.alone},
        "links": {state.gpu: state.nvlinks for state in gpus.states if state.nvlinks is not None},
        "memory": dict(gpus.memory),
    }


def _below(values: Figures, share: float, good: Figures | None) -> Iterator[tuple[int, float, float]]:
    """Each GPU with a value below a median by more than this share: its number, its value and the median.

    It is the median of the `good` GPUs; without these, of the node's other GPUs.
    """
    known = {gpu: value for gpu, value in values.items() if value is not None}
    for gpu, value in known.items():
        peers = [peer for peer in (good or {}).values() if peer is not None]
        if good is None:
            peers = [known[peer] for peer in known if peer != gpu]
        if peers and value < (1 - share) * statistics.median(peers):
            yield gpu, value, statistics.median(peers)


def _narrow(gpus: Gpus) -> Iterator[str]:
    """PCIe links that have fewer lanes than both ends could use. Their generation falls at idle, so it is no sign."""
    for state in gpus.states:
        width, most = state.pcie_width, state.pcie_width_max
        if state.when == "end" and width is not None and most is not None and width < most:
            yield f"GPU {state.gpu}: its PCIe link has {width} of {most} lanes"


def _idle(series: Series) -> Iterator[str]:
    """Whether a GPU was kept waiting."""
    busy = series.values("busy") or [100.0]
    idle = 1 - statistics.fmean(busy) / 100
    if idle > IDLE:
        yield f"GPU {series.gpu} was idle for {_percent(idle)} of the time: its program or its host kept it waiting"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
