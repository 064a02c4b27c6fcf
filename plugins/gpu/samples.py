"""What a run's log tells of its GPUs: samples and states by NVML, and the rate of a matrix product. Pure.

A program prints them as lines of JSON (`suites/proxy/gpus.py`). Lines of others and damaged ones are passed
over.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from plugins.logs.origin import plain

# Eight GPUs, sampled twice a second for half an hour. Longer lines are cut, further ones are not kept.
MAX_LINES = 1 << 15
MAX_LINE = 1 << 13
_MOST_NOT_IDLE = 8
_JSON = re.compile(rb"gpu (sample|state): (.*)", re.DOTALL)
_PRODUCT = re.compile(
    r"proxy gpu (\d{1,3}) product (before|after): burst (\d{1,6}\.\d), sustained (\d{1,6}\.\d) TFLOP/s"
)
_ALONE = re.compile(r"proxy gpu (\d{1,3}) step alone: (\d{1,6}\.\d{1,9}) s \(")
_MEMORY = re.compile(r"proxy gpu (\d{1,3}) memory: (\d{1,6}) GB/s \(")
# Several sizes are printed, the largest one last.
_ALL_REDUCE = re.compile(r"proxy all-reduce: bus bandwidth (\d{1,6}\.\d) GB/s")
_HANDICAP = re.compile(r"proxy attention: \w{1,20}, handicap (\d{1,6})\b")
_NOT_IDLE = re.compile(r"proxy: (GPU \d{1,3} is not idle before the start: .{1,300})")

# Of nvmlDeviceGetCurrentClocksEventReasons. This bit and 0x1 (idle) are normal: at full load an H100 is at its
# power limit.
POWER_CAP = 0x4

Number = Annotated[int, Field(ge=0, lt=64)]
"""Of a GPU in its node."""

Count = Annotated[int, Field(ge=-1, lt=1 << 64)]
Real = Annotated[float, Field(gt=-1e15, lt=1e15)]
"""A damaged line may hold a number of any length. NVML counts in 64 bits."""


class _Line(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True, allow_inf_nan=False, defer_build=True)


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
    xids: tuple[Count, ...] | None = None


@dataclass(frozen=True)
class Product:
    """The rate of a bf16 matrix product on a GPU in TFLOP/s: for a moment, and for some seconds."""

    gpu: int
    when: str
    burst: float
    sustained: float


@dataclass(frozen=True)
class Series:
    """The samples of one GPU, in the order of the log."""

    gpu: int
    samples: tuple[Sample, ...]

    def values(self, name: str) -> list[float]:
        """A field of the samples that tell it."""
        values = (getattr(sample, name) for sample in self.samples)
        return [value for value in values if value is not None]

    def median(self, name: str) -> float | None:
        values = self.values(name)
        if not values:
            return None
        return statistics.median(values)

    def highest(self, name: str) -> float | None:
        return max(self.values(name), default=None)

    def held_by(self, bit: int) -> float:
        """The share of the samples in which this bit of `reasons` held the clocks down."""
        masks = [sample.reasons for sample in self.samples if sample.reasons is not None]
        return sum(bool(mask & bit) for mask in masks) / max(1, len(masks))

    def violated(self, limit: str) -> float:
        """The share of the time between the first and the last sample in which this limit held the clocks down."""
        counts = [(s.at, s.violations_ns[limit] / 1e9) for s in self.samples if limit in s.violations_ns]
        return _rate(counts) or 0.0

    @property
    def watts(self) -> float | None:
        """The mean power in W by the energy counter; None if that is not known."""
        return _rate([(s.at, s.energy_j) for s in self.samples if s.energy_j is not None])


@dataclass(frozen=True)
class Gpus:
    """All that the log tells of its GPUs.

    `alone` has the step time of each GPU in s, measured after the run while each of several trained by itself.
    `memory` has the rate of a copy within the memory of each GPU in GB/s.
    `all_reduce` is the bus bandwidth in GB/s of an all-reduce over them. `not_idle` says why the program did not
    start. `handicap` is how often each step did its work.
    """

    samples: tuple[Sample, ...] = ()
    states: tuple[State, ...] = ()
    products: tuple[Product, ...] = ()
    alone: tuple[tuple[int, float], ...] = ()
    memory: tuple[tuple[int, float], ...] = ()
    all_reduce: float | None = None
    not_idle: tuple[str, ...] = ()
    handicap: int = 1

    @property
    def timed(self) -> Gpus:
        """With the samples of the steps that count alone."""
        return replace(self, samples=tuple(sample for sample in self.samples if sample.step >= 0))

    @property
    def numbers(self) -> list[int]:
        return sorted({sample.gpu for sample in self.samples})

    @property
    def series(self) -> Iterator[Series]:
        """The samples of each GPU, by its number."""
        for gpu in self.numbers:
            yield Series(gpu, tuple(sample for sample in self.samples if sample.gpu == gpu))

    @property
    def clock(self) -> float | None:
        """The SM clock in MHz that the slowest GPU really held."""
        clocks = [series.median("sm_mhz") for series in self.series]
        return min((clock for clock in clocks if clock is not None), default=None)

    @property
    def watts(self) -> float | None:
        """The mean power in W of all GPUs together, by their energy counters; None if one does not tell."""
        powers = [series.watts for series in self.series]
        known = [power for power in powers if power is not None]
        if len(known) < len(powers):
            return None
        return sum(known) or None


def parse_gpus(lines: Iterable[bytes]) -> Gpus | None:
    """What these lines of a log tell of its GPUs; None if nothing. What an earlier attempt told is left out."""
    reader = _Reader()
    for line in lines:
        for piece in plain(line[:MAX_LINE])[0]:
            reader.read(piece)
    return reader.gpus()


class _Reader:
    """Collects what the lines of a log tell."""

    def __init__(self) -> None:
        self._not_idle: list[str] = []
        self._handicap = 1
        self._begin()

    def _begin(self) -> None:
        self._samples: list[Sample] = []
        self._states: list[State] = []
        self._products: list[Product] = []
        self._alone: dict[int, float] = {}
        self._memory: dict[int, float] = {}
        self._all_reduce: float | None = None

    def read(self, line: bytes) -> None:
        match = _JSON.search(line)
        if match is not None:
            self._read_json(match[1], match[2])
        elif b"proxy" in line:
            self._read_words(line.decode(errors="replace"))

    def _read_json(self, kind: bytes, data: bytes) -> None:
        try:
            if kind == b"sample" and len(self._samples) < MAX_LINES:
                self._samples.append(Sample.model_validate_json(data))
            elif kind == b"state":
                state = State.model_validate_json(data)
                if any((known.gpu, known.when) == (state.gpu, state.when) for known in self._states):
                    # The program was started again in the same log.
                    self._begin()
                self._states.append(state)
        except ValidationError:
            return

    def _read_words(self, text: str) -> None:
        product, alone, rate = _PRODUCT.search(text), _ALONE.search(text), _ALL_REDUCE.search(text)
        handicap, not_idle = _HANDICAP.search(text), _NOT_IDLE.search(text)
        memory = _MEMORY.search(text)
        if product and len(self._products) < MAX_LINES:
            self._products.append(Product(int(product[1]), product[2], float(product[3]), float(product[4])))
        elif alone and float(alone[2]) > 0:
            self._alone[int(alone[1])] = float(alone[2])
        elif memory:
            self._memory[int(memory[1])] = float(memory[2])
        elif rate:
            self._all_reduce = float(rate[1])
        elif handicap:
            self._handicap = int(handicap[1])
        elif not_idle and len(self._not_idle) < _MOST_NOT_IDLE:
            self._not_idle.append(not_idle[1].strip())

    def gpus(self) -> Gpus | None:
        gpus = Gpus(
            tuple(self._samples),
            tuple(self._states),
            tuple(self._products),
            tuple(self._alone.items()),
            tuple(self._memory.items()),
            self._all_reduce,
            tuple(self._not_idle),
            self._handicap,
        )
        return None if gpus == Gpus(handicap=self._handicap) else gpus


def _rate(counts: Sequence[tuple[float, float]]) -> float | None:
    """How much a counter grew in each second, from times in s and what it had then; None if that is not known."""
    if len(counts) < 2:
        return None
    (begin, first), (end, last) = counts[0], counts[-1]
    return (last - first) / (end - begin) if end > begin else None
