"""What a run's log tells of its GPUs: samples and states by NVML, and the rate of a matrix product. Pure.

A program prints them as lines of JSON (`suites/proxy/gpus.py`). Lines of others and damaged ones are passed
over.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from plugins.wrapped import plain

# Eight GPUs, sampled twice a second for half an hour. Longer lines are cut, further ones are not kept.
MAX_LINES = 1 << 15
MAX_LINE = 1 << 13
_SAMPLE, _STATE = b"gpu sample: ", b"gpu state: "
_PRODUCT = re.compile(
    r"proxy gpu (\d{1,3}) product (before|after): burst (\d{1,6}\.\d), sustained (\d{1,6}\.\d) TFLOP/s"
)
_ALONE = re.compile(r"proxy gpu (\d{1,3}) step alone: (\d{1,6}\.\d{1,9}) s \(")
_ALL_REDUCE = re.compile(r"proxy all-reduce: bus bandwidth (\d{1,6}\.\d) GB/s")
_HANDICAP = re.compile(r"proxy attention: \w{1,20}, handicap (\d{1,6})\b")
_NOT_IDLE = re.compile(r"proxy: (GPU \d{1,3} is not idle before the start: .{1,300})")

# Bits of nvmlDeviceGetCurrentClocksEventReasons. 0x1 (idle) and 0x4 (software power cap) are normal: at full load
# an H100 is at its power limit.
POWER_CAP = 0x4
REASONS = {
    0x2: "a clock that was set",
    0x8: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "hardware power brake",
}
SPOILING = 0x8 | 0x20 | 0x40 | 0x80
"""The reasons that say that this GPU, or its cooling or power supply, is not in order."""

OFTEN = 0.05
"""What is seen in fewer of the samples explains no pace."""

VIOLATED = 0.02
"""A limit that held the clocks down for less of the time explains no pace."""

SLOWER_CLOCK = 0.05
SLOWER_PRODUCT = 0.07
SLOWER_STEP = 0.05
"""If a GPU's clock, product or pace alone is below the median of the node's others by this share, it is named."""

IDLE = 0.03
"""A GPU that trains is idle for less than this share of the time."""

LOW_PRODUCT = 0.10
"""A healthy GPU's matrix product is within this share of its type's."""


Number = Annotated[int, Field(ge=0, lt=64)]
"""Of a GPU in its node."""

Count = Annotated[int, Field(ge=-1, lt=1 << 64)]
Real = Annotated[float, Field(gt=-1e15, lt=1e15)]
"""A damaged line may hold a number of any length. NVML counts in 64 bits."""


class _Line(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True, allow_inf_nan=False)


class Process(_Line):
    """A process on a GPU that is not of the run."""

    pid: Count
    name: Annotated[str, AfterValidator(lambda name: name[:40])] = ""
    mib: Count = 0


class Sample(_Line):
    """A GPU at a moment. `at` is in s since the epoch; `step` is -1 if no step that counts was running.

    `reasons` is NVML's bit mask of what holds the clocks down, `busy` in percent. `violations_ns` counts for how
    long each limit did so, `energy_j` the energy, both since the driver was loaded. None: the GPU does not tell.
    """

    gpu: Number
    at: Real
    step: Count
    sm_mhz: Real | None = None
    memory_mhz: Real | None = None
    power_w: Real | None = None
    limit_w: Real | None = None
    temperature_c: Real | None = None
    memory_c: Real | None = None
    reasons: Count | None = None
    busy: Real | None = None
    memory_busy: Real | None = None
    energy_j: Real | None = None
    violations_ns: dict[str, Count] = {}
    others: tuple[Process, ...] = ()


class State(_Line):
    """What changes slowly, at the beginning or the end of a run. The width of PCIe is in lanes."""

    gpu: Number
    when: Literal["begin", "end"]
    default_limit_w: Real | None = None
    pcie_width: Count | None = None
    pcie_width_max: Count | None = None
    nvlinks: Count | None = None
    ecc_uncorrected: Count | None = None
    rows_pending: bool | None = None
    rows_failed: bool | None = None


@dataclass(frozen=True)
class Product:
    """The rate of a bf16 matrix product on a GPU in TFLOP/s: for a moment, and for some seconds."""

    gpu: int
    when: str
    burst: float
    sustained: float


@dataclass(frozen=True)
class Gpus:
    """All that the log tells of its GPUs.

    `alone` has each GPU and its time of a step in s, when each of several trained by itself after the run.
    `all_reduce` is the bus bandwidth in GB/s of an all-reduce over them. `not_idle` says why the program did not
    start. `handicap` is how often each step did its work.
    """

    samples: tuple[Sample, ...] = ()
    states: tuple[State, ...] = ()
    products: tuple[Product, ...] = ()
    alone: tuple[tuple[int, float], ...] = ()
    all_reduce: float | None = None
    not_idle: tuple[str, ...] = ()
    handicap: int = 1

    @property
    def timed(self) -> Gpus:
        """With the samples of the steps that count alone."""
        return replace(self, samples=tuple(sample for sample in self.samples if sample.step >= 0))

    def of(self, gpu: int) -> list[Sample]:
        return [sample for sample in self.samples if sample.gpu == gpu]

    @property
    def numbers(self) -> list[int]:
        return sorted({sample.gpu for sample in self.samples})


def parse_gpus(lines: Iterable[bytes]) -> Gpus | None:
    """What these lines of a log tell of its GPUs; None if nothing. What an earlier attempt told is left out."""
    samples: list[Sample] = []
    states: list[State] = []
    products: list[Product] = []
    alone: dict[int, float] = {}
    all_reduce: float | None = None
    not_idle: list[str] = []
    handicap = 1
    for line in (piece for whole in lines for piece in plain(whole[:MAX_LINE])[0]):
        if (at := line.find(_SAMPLE)) >= 0 and len(samples) < MAX_LINES:
            samples += _parsed(Sample, line[at + len(_SAMPLE) :])
        elif (at := line.find(_STATE)) >= 0:
            for state in _parsed(State, line[at + len(_STATE) :]):
                if (state.gpu, state.when) in {(one.gpu, one.when) for one in states}:
                    # The program was started again in the same log.
                    samples, states, products, alone, all_reduce = [], [], [], {}, None
                states.append(state)
        elif b"proxy" in line:
            text = line.decode(errors="replace")
            if (match := _PRODUCT.search(text)) and len(products) < MAX_LINES:
                products.append(Product(int(match[1]), match[2], float(match[3]), float(match[4])))
            elif (match := _ALONE.search(text)) and float(match[2]) > 0:
                alone[int(match[1])] = float(match[2])
            elif match := _ALL_REDUCE.search(text):
                all_reduce = float(match[1])
            elif match := _HANDICAP.search(text):
                handicap = int(match[1])
            elif match := _NOT_IDLE.search(text):
                not_idle = [*not_idle[:7], match[1].strip()]
    if not (samples or states or products or alone or all_reduce or not_idle):
        return None
    return Gpus(
        tuple(samples),
        tuple(states),
        tuple(products),
        tuple(alone.items()),
        all_reduce,
        tuple(not_idle),
        handicap,
    )


def _parsed(model: type[Any], data: bytes) -> list[Any]:
    try:
        return [model.model_validate_json(data)]
    except ValidationError:
        return []


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def _highest(values: Iterable[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)


def _rate(counted: Sequence[tuple[float, float]]) -> float | None:
    """How much a counter grew in each second, from times in s and what it had then; None if that is not known."""
    if len(counted) < 2:
        return None
    (begin, first), (end, last) = counted[0], counted[-1]
    return (last - first) / (end - begin) if end > begin else None


def _share(samples: Sequence[Sample], bit: int) -> float:
    told = [sample.reasons for sample in samples if sample.reasons is not None]
    return sum(bool(reasons & bit) for reasons in told) / len(told) if told else 0.0


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def clock(gpus: Gpus) -> float | None:
    """The SM clock in MHz that the slowest GPU really held."""
    held = [_median(sample.sm_mhz for sample in gpus.of(gpu)) for gpu in gpus.numbers]
    return min((one for one in held if one is not None), default=None)


def watts(gpus: Gpus) -> float | None:
    """The mean power in W of all GPUs together, by their energy counters."""
    total = 0.0
    for gpu in gpus.numbers:
        own = _rate([(s.at, s.energy_j) for s in gpus.of(gpu) if s.energy_j is not None])
        if own is None:
            return None
        total += own
    return total or None


def summary(gpus: Gpus) -> list[str]:
    """A line for each GPU: what it held in these samples."""
    lines = []
    for gpu in gpus.numbers:
        samples = gpus.of(gpu)
        figures = (
            ("SM", _median(s.sm_mhz for s in samples), "MHz"),
            ("memory", _median(s.memory_mhz for s in samples), "MHz"),
            ("power", _median(s.power_w for s in samples), "W"),
            ("limit", _median(s.limit_w for s in samples), "W"),
            ("GPU", _highest(s.temperature_c for s in samples), "C"),
            ("HBM", _highest(s.memory_c for s in samples), "C"),
            ("busy", _median(s.busy for s in samples), "%"),
        )
        told = [f"{name} {value:.0f} {unit}" for name, value, unit in figures if value is not None]
        told += [f"at the power cap {_percent(_share(samples, POWER_CAP))}"]
        told += [
            f"product {p.when} {p.sustained:.0f} ({p.burst:.0f}) TFLOP/s"
            for p in gpus.products
            if p.gpu == gpu
        ]
        told += [f"step alone {seconds:.4g} s" for number, seconds in gpus.alone if number == gpu]
        lines.append(f"gpu {gpu}     {', '.join(told)}")
    return lines


def spoiled(gpus: Gpus) -> list[str]:
    """Why these samples are of no healthy machine: what its hardware says of itself."""
    found = []
    for gpu in gpus.numbers:
        samples = gpus.of(gpu)
        for bit in (bit for bit in REASONS if bit & SPOILING):
            if (share := _share(samples, bit)) > OFTEN:
                hot = _highest(s.temperature_c for s in samples)
                at = f", at up to {hot:.0f} C" if hot is not None else ""
                found.append(f"GPU {gpu}: {REASONS[bit]} (0x{bit:x}) in {_percent(share)} of the samples{at}")
        for kind in ("thermal", "board", "reliability"):
            if (part := _violated(samples, kind)) > VIOLATED:
                found.append(
                    f"GPU {gpu}: its {kind} limit held the clocks down for {_percent(part)} of the time"
                )
    errors_before = {state.gpu: state.ecc_uncorrected for state in gpus.states if state.when == "begin"}
    for state in (state for state in gpus.states if state.when == "end"):
        before = errors_before.get(state.gpu)
        if before is not None and state.ecc_uncorrected is not None and state.ecc_uncorrected > before:
            errors = state.ecc_uncorrected - before
            found.append(f"GPU {state.gpu}: {errors} uncorrected memory errors during the run")
        if state.rows_pending or state.rows_failed:
            what = "failed to remap" if state.rows_failed else "waits to remap"
            found.append(f"GPU {state.gpu} {what} rows of its memory")
    return found


def _violated(samples: Sequence[Sample], kind: str) -> float:
    """The share of the time between the first and the last sample in which this limit held the clocks down."""
    told = [(s.at, s.violations_ns[kind] / 1e9) for s in samples if kind in s.violations_ns]
    return _rate(told) or 0.0


def causes(gpus: Gpus, healthy: float | None = None) -> list[str]:
    """What plainly explains a slow run, most telling first; empty if nothing does.

    `healthy` is the sustained matrix product in TFLOP/s of a healthy GPU of this type.
    """
    asked = [f"each step did its work {gpus.handicap} times (handicap)"] if gpus.handicap > 1 else []
    return [
        *asked,
        *_others(gpus),
        *spoiled(gpus),
        *_limited(gpus),
        *_unlike_the_others(gpus),
        *_narrow(gpus),
        *_idle(gpus),
        *low_products(gpus, healthy),
    ]


def _others(gpus: Gpus) -> list[str]:
    """The other processes on a GPU."""
    found = []
    for gpu in gpus.numbers:
        samples = gpus.of(gpu)
        # By name: one that is started again and again has another id each time.
        seen: dict[str, list[list[Process]]] = {}
        for sample in samples:
            for name in {one.name for one in sample.others}:
                seen.setdefault(name, []).append([one for one in sample.others if one.name == name])
        for name, groups in sorted(seen.items(), key=lambda pair: -len(pair[1]))[:4]:
            pids = {one.pid for ones in groups for one in ones}
            if (share := len(groups) / len(samples)) > OFTEN:
                who = (
                    f"process {min(pids)} ({name or 'unnamed'}) was"
                    if len(pids) == 1
                    else f"{len(pids)} processes ({name or 'unnamed'}; one is {min(pids)}) were"
                )
                found.append(
                    f"{who} on GPU {gpu} too, in {_percent(share)} of the samples, "
                    f"with {max(sum(one.mib for one in ones) for ones in groups)} MiB"
                )
    return found


def _limited(gpus: Gpus) -> list[str]:
    """Limits that somebody set."""
    found = []
    for gpu in gpus.numbers:
        samples = gpus.of(gpu)
        limit = _median(sample.limit_w for sample in samples)
        usual = next((s.default_limit_w for s in gpus.states if s.gpu == gpu and s.default_limit_w), None)
        if limit is not None and usual is not None and limit < 0.99 * usual:
            found.append(f"GPU {gpu}: its power limit is {limit:.0f} W, by default {usual:.0f} W")
        if (share := _share(samples, 0x2)) > OFTEN:
            found.append(f"GPU {gpu}: {REASONS[0x2]} (0x2) limits it in {_percent(share)} of the samples")
    return found


def _unlike_the_others(gpus: Gpus) -> list[str]:
    """GPUs whose clock, pace alone or matrix product is below that of the node's others.

    The product after the run is compared only if no step alone was measured there.
    """
    clocks = {gpu: _median(sample.sm_mhz for sample in gpus.of(gpu)) for gpu in gpus.numbers}
    found = [
        f"GPU {gpu}: its SM clock is {own:.0f} MHz, that of the node's others {others:.0f} MHz"
        for gpu, own, others in _below({g: c for g, c in clocks.items() if c is not None}, SLOWER_CLOCK)
    ]
    found += [
        f"GPU {gpu}: a step alone takes {1 / own:.4g} s, on the node's others {1 / others:.4g} s"
        for gpu, own, others in _below({g: 1 / seconds for g, seconds in gpus.alone}, SLOWER_STEP)
    ]
    for when in ("before",) if gpus.alone else ("before", "after"):
        rates = {product.gpu: product.sustained for product in gpus.products if product.when == when}
        found += [
            f"GPU {gpu}: its matrix product {when} the run is {own:.0f} TFLOP/s, that of the node's others {others:.0f}"
            for gpu, own, others in _below(rates, SLOWER_PRODUCT)
        ]
    links = {state.gpu: float(state.nvlinks) for state in gpus.states if state.nvlinks is not None}
    found += [
        f"GPU {gpu}: {own:.0f} NVLinks are up, on the node's others {others:.0f}"
        for gpu, own, others in _below(links, 0.0)
    ]
    return found


def _below(values: dict[int, float], share: float) -> list[tuple[int, float, float]]:
    """Each GPU whose value is below the median of the others' by more than this share, with both."""
    found = []
    for gpu, own in values.items():
        others = [value for other, value in values.items() if other != gpu]
        if others and own < (1 - share) * statistics.median(others):
            found.append((gpu, own, statistics.median(others)))
    return found


def _narrow(gpus: Gpus) -> list[str]:
    """PCIe links that have fewer lanes than both ends could use. Their generation falls at idle, so it is no sign."""
    return [
        f"GPU {state.gpu}: its PCIe link has {state.pcie_width} of {state.pcie_width_max} lanes"
        for state in gpus.states
        if state.when == "end"
        and state.pcie_width is not None
        and state.pcie_width_max is not None
        and state.pcie_width < state.pcie_width_max
    ]


def _idle(gpus: Gpus) -> list[str]:
    """GPUs that were kept waiting."""
    found = []
    for gpu in gpus.numbers:
        told = [sample.busy for sample in gpus.of(gpu) if sample.busy is not None]
        if told and (idle := 1 - statistics.fmean(told) / 100) > IDLE:
            found.append(
                f"GPU {gpu} was idle for {_percent(idle)} of the time: its program or its host kept it waiting"
            )
    return found


def low_products(gpus: Gpus, healthy: float | None) -> list[str]:
    """GPUs whose matrix product alone shows that they are slow, or not theirs alone."""
    if healthy is None:
        return []
    return [
        f"GPU {one.gpu}: a matrix product alone reached {one.sustained:.0f} TFLOP/s {one.when} the run, on a healthy GPU "
        f"of this type {healthy:.0f}"
        for one in gpus.products
        if one.sustained < (1 - LOW_PRODUCT) * healthy
    ]
