"""What a printed time is of: a single step, or the mean over several. Pure.

NeMo 1's `train_step_timing in s` is the mean over the last `step_timing_kwargs.buffer_size` steps (1 unless a
recipe sets it); at the start it is the mean over as many as there are. With a size of 5, one slow step raises
five printed times, and the warm-up reaches into the sixth step. Let w be the size, m_k the printed time of
step k, t_k its own time, and P_k the time of the steps 0 to k (0 before the first). Then

    min(k + 1, w) m_k = P_k - P_(k-w),    hence    P_k = P_(k-w) + min(k + 1, w) m_k,    and t_k = P_k - P_(k-1).

If an entry cannot be read, P_k is unknown, and so are P_(k+w), P_(k+2w), ... But the time between two known
ends is known, so each step between them gets its mean: no time is lost, and no step looks faster than it was.
After the last known end, the printed means are used.

Each turn multiplies the rounding: with 4 digits, no digit is left after 50 steps. So of means in few digits,
only every w-th line is judged: such lines share no steps.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from plugins.logs.log import PrintedMeans, Step


@dataclass(frozen=True)
class Unit:
    """What a line is of, and how many last lines count. The other fields are words of a verdict.

    The last `recent` lines show the present pace of a run that still trains. The last `tail` are the end of a
    run. It is slow if it is above the settled lines by `sigmas` standard errors.
    """

    name: str
    recent: int
    tail: int
    end_is: str
    sigmas: float
    each: str = ""


STEP = Unit("steps", 10, 5, "median of the last 5 steps is", 4.0)
# The standard error of a few means is less certain, so both of the last two must be slow.
INTERVAL = Unit("intervals", 5, 2, "last 2 intervals are at least", 3.0, ", by one slow step or more each")


@dataclass(frozen=True)
class Means:
    """A line is printed every `every` steps; its time is the mean over the last `over` steps.

    A line has the index of the last of these steps. If `separable`, the times have enough digits to compute
    single steps from them.
    """

    over: int = 1
    every: int = 1
    separable: bool = False

    def __str__(self) -> str:
        return f"means: {{over: {self.over}, every: {self.every}}}"

    def fits(self, printed: PrintedMeans) -> bool:
        """Whether a format that prints these may print such means."""
        if self.over == 1 or printed == "intervals":
            return self.over == self.every
        return self.every == 1 and printed != "none"

    @property
    def span(self) -> int:
        """The number of steps whose mean a judged time is."""
        return 1 if self.separable else self.over

    @property
    def computed(self) -> bool:
        """Whether single steps are computed from printed means."""
        return self.over > self.span

    @property
    def judged(self) -> Means:
        """The times that are judged, which share no steps."""
        return Means(self.span, self.span)

    @property
    def single(self) -> bool:
        """Whether each step has a line."""
        return self.every == 1

    @property
    def unit(self) -> Unit:
        return STEP if self.single else INTERVAL

    @property
    def silent_steps(self) -> int:
        """For how many step times a log may be silent anyway. If each step has a line, the site decides."""
        return 0 if self.single else 2 * self.every

    def lines(self, steps: range) -> range:
        """The lines that end in these steps."""
        return range(steps.start - (steps.start + 1) % -self.every, steps.stop, self.every)

    def covered(self, line: int) -> range:
        """The steps from the line before to this one."""
        return range(line - self.every + 1, line + 1)

    def cut(self, steps: range) -> bool:
        """Whether these steps begin or end within those of a judged time."""
        return bool(steps.start % self.span or steps.stop % self.span)

    def warm_up(self, steps: int) -> int:
        """The steps of the first fifth of a run, at least of its first line; slow ones are no hiccups."""
        return max(steps // 5, 0 if self.single else self.every)

    def steady(self, steps: int) -> range:
        """The lines of the steady median, in a run of `steps` steps."""
        begun = max(0, steps - STEP.recent) if self.single else self.warm_up(steps)
        first = begun + -begun % self.every + self.every - 1
        return range(min(first, steps - 1), steps, self.every)

    def times(self, steps: Iterable[Step]) -> dict[int, float]:
        """The seconds of each step by itself if they can be computed, else as printed, by index.

        If a step's line cannot be read, the step is left out. If a value is not positive, the printed times
        are not such means.
        """
        printed = {step.index: step.seconds for step in steps if step.seconds is not None}
        if not self.computed:
            return printed
        ends = {-1: 0.0}
        for index, mean in sorted(printed.items()):
            start = ends.get(max(index - self.over, -1))
            if start is not None and math.isfinite(mean):
                ends[index] = start + min(index + 1, self.over) * mean
        known = sorted(ends)
        single = dict(printed)
        for index in printed:
            at = bisect_left(known, index)
            if at < len(known):
                before, end = known[at - 1], known[at]
                single[index] = (ends[end] - ends[before]) / (end - before)
        return single

    def contradiction(self, steps: Sequence[Step]) -> str:
        """Why the printed times are not such means; "" if there are steps with positive times that have them."""
        if self.over == self.every:
            return ""
        if not self.separable:
            return self._impossible({s.index: (s.seconds, s.resolution) for s in steps if s.seconds})
        for index, seconds in sorted(self.times(steps).items()):
            if not 0 < seconds < math.inf:
                return f"step {index} alone would have taken {seconds:.4g} s"
        return ""

    def _impossible(self, printed: Mapping[int, tuple[float, float]]) -> str:
        """Up to which step the printed times, each with its rounding, show that they are not such means; "" if none does.

        Two successive means differ by what a step takes longer than the one w steps before it:
        t_k - t_(k-w) = w (m_k - m_(k-1)). So the steps k, k + w, k + 2w, ... are known except for the first
        of them, which must be long enough for all later ones to take any time at all. The first w steps
        together take w m. If they had to take longer than that, the printed times are not such means.
        """
        for start in sorted(printed):
            least, fallen, total = [0.0] * self.over, [0.0] * self.over, 0.0
            most = self.over * sum(printed[start])
            index = start + 1
            while start >= self.over - 1 and index in printed:
                (before, coarse), (after, coarse_too) = printed[index - 1], printed[index]
                place = index % self.over
                fallen[place] -= self.over * (after - before + coarse_too + coarse)
                if fallen[place] > least[place]:
                    least[place] = fallen[place]
                    total = sum(least)
                if total > most:
                    return f"no steps have such means up to step {index}"
                index += 1
        return ""

    @property
    def recent(self) -> str:
        """`10 steps`, or `5 means over 10 steps`."""
        if self.single:
            return f"{self.unit.recent} steps"
        return f"{self.unit.recent} means over {self.over} steps"

    def steady_of(self, settled: int) -> str:
        """`last 10 steps`, or `8 settled intervals of 10 steps` of this many settled steps."""
        if self.single:
            return f"last {STEP.recent} steps"
        return f"{settled // self.every} settled intervals of {self.every} steps"

    def named(self, first: int, last: int | None = None) -> str:
        """`step 49`, or `steps 40 to 49` of one line or of several lines."""
        begin = self.covered(first).start
        end = first if last is None else last
        return f"step {end}" if begin == end else f"steps {begin} to {end}"

    def listed(self, times: Sequence[tuple[int, str]]) -> str:
        """`steps 3 (20 s), 4 (21 s)`, or `steps 30 to 39 (20 s), steps 40 to 49 (21 s)`."""
        if self.single:
            return f"step{'s' if len(times) > 1 else ''} " + ", ".join(f"{i} ({t})" for i, t in times)
        return ", ".join(f"{self.named(i)} ({t})" for i, t in times)


SINGLE = Means()
"""Each step has a line with its own time."""
