"""How a case is compared with its baseline: what its record says of it, and what a plan may agree on."""

import re
from dataclasses import dataclass
from typing import Literal, Self

from pydantic import Field

from plugins.base.errors import ConfigError
from plugins.base.yamlfile import Day, Stated, Strict
from plugins.record.lines import Part


@dataclass(frozen=True)
class Statistic:
    """Which step time a baseline publishes: `last`, or `mean:A-B` over the 0-based steps A to B inclusive."""

    first: int | None = None
    last: int | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse either form. Raises ConfigError for any other text."""
        if text == "last":
            return cls()
        match = re.fullmatch(r"mean:(\d+)-(\d+)", text)
        if not match or int(match[1]) > int(match[2]):
            raise ConfigError(f"statistic '{text}' is unknown; write last or mean:A-B, A not above B")
        return cls(int(match[1]), int(match[2]))

    def __str__(self) -> str:
        if self.first is None:
            return "last"
        return f"mean:{self.first}-{self.last}"

    def indices(self, steps: int) -> range:
        """The 0-based steps that the statistic needs in a run of `steps` steps."""
        if self.first is None or self.last is None:
            return range(steps - 1, steps)
        return range(self.first, self.last + 1)


class Tolerance(Strict):
    """How far a run may be from the baseline, and how much its steps may scatter.

    `slower` and `faster` are shares of the baseline's throughput. `spread` is the largest robust relative
    standard deviation of the settled steps. `hiccups` is the largest share of them that may be far above the
    median.
    """

    slower: float = Field(default=0.05, gt=0, lt=1)
    faster: float = Field(default=0.10, gt=0)
    spread: float = Field(default=0.05, gt=0)
    hiccups: float = Field(default=0.125, gt=0, lt=1)


class AgreedTolerance(Strict):
    """What two parties agree on instead of a baseline's own tolerance; None: the baseline's own stays."""

    slower: float | None = Field(default=None, gt=0, le=0.2)
    """How much slower than the baseline passes, as a share of its throughput."""

    faster: float | None = Field(default=None, gt=0, le=0.5)
    """How much faster passes."""

    spread: float | None = Field(default=None, gt=0, le=0.2)
    """The largest relative spread of the settled steps."""

    hiccups: float | None = Field(default=None, gt=0, le=0.25)
    """The largest share of the settled steps that may stall."""

    def instead_of(self, published: Tolerance) -> Tolerance:
        """A baseline's own tolerance, with what was agreed on in its place."""
        return published.model_copy(update=self.model_dump(exclude_none=True))


@dataclass(frozen=True, kw_only=True)
class ExpectedRange(Part):
    """Where the pace of a case should be whose number nobody published: 90 % of such paces are in it.

    The figures are in tokens/s per GPU.
    """

    low: float
    middle: float
    """What the published scales make most likely."""
    high: float
    scales: tuple[int, ...]
    """The numbers of GPUs of the published scales that the range may follow from: it follows from the first, which is the nearest."""

    def side(self, pace: float, resolution: float = 0.0) -> Literal["below", "within", "above"]:
        """Where a pace is, measured by times that are rounded by this share at most."""
        if pace < self.low / (1 + resolution):
            return "below"
        if pace > self.high / (1 - resolution):
            return "above"
        return "within"

    @property
    def text(self) -> str:
        """`90 %: 1,462 to 1,541 tokens/s/GPU, from 3 published scales (the nearest: 64, 128 GPUs)`."""
        nearest = ", ".join(f"{gpus:,}" for gpus in self.scales[:2])
        count = f"{len(self.scales)} published scales"
        if len(self.scales) == 1:
            count = "1 published scale"
        return f"90 %: {self.low:,.0f} to {self.high:,.0f} tokens/s/GPU, from {count} (the nearest: {nearest} GPUs)"


class Recorded(Strict):
    """The run of the site in which a number was measured.

    The run: `run` is the name of its folder in the results, `date` its day (UTC). `spread` and `hiccups` are
    as in its record. `nodes` and `versions` are given if they are known.

    The runs that agree: `runs` is their number, with this one; `confirmed_by` is the newest of the others. If
    `status` is `expired`, the number is kept for readers only: no run is judged against it.

    The logs: `log` is the fingerprint of the steps in the run's log. By `job` and `log`, and by those of the
    runs that confirmed the number, a job counts once, however often its log is judged.
    """

    status: Literal["recorded", "confirmed", "expired"]
    run: Stated
    date: Day
    runs: int = Field(default=1, gt=0)
    confirmed_by: str | None = None
    confirmed_on: Day | None = None
    expired_on: Day | None = None
    spread: float = Field(ge=0)
    hiccups: int = Field(default=0, ge=0)
    job: str | None = None
    log: str | None = None
    confirmed_jobs: list[str] = []
    confirmed_logs: list[str] = []
    nodes: str | None = None
    versions: dict[str, str] = {}

    def is_from(self, job: str, log: str) -> bool:
        """Whether the number was recorded from the log of this fingerprint. `job` is "" if its id is unknown.

        Steps of milliseconds print alike in every run. So if two jobs have different ids, equal logs are two
        logs.
        """
        return self.log == log and (not job or not self.job or self.job == job)
