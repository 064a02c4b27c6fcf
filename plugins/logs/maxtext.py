"""MaxText: each process prints a line for each step. Steps are 0-based, times are in s with three decimals.

    completed step: 49, seconds: 7.908, TFLOP/s/device: 460.480, Tokens/s/device: 1035.970, total_weights: 524288,
    loss: 0.000

The published recipe runs twice in one log: 15 steps that only profile (for the compiler), then the 50 that
count. There is one process for each GPU, so a log has 64 to 2048 lines for each step. The lines do not name
their process unless Slurm labels them (`17: completed step: ...`). `RunSteps` tells the runs apart.

Its TFLOP/s are by full attention until the middle of 2025, and by causal attention since then
(`calculate_tflops_training_per_device`, commit a4c01726e).

The proxy prints the same line, after its machine's own peak. Its steps are short, so it prints six decimals.
It also prints what its GPUs say (`plugins.gpu.samples`), who had the processors (`plugins.logs.log`), what it
does before the first step, and its versions:

    proxy begins: to compile the training step, which takes seconds to minutes
    proxy jax: 0.11.2

A step needs every process: no process can print step k + 2 before each has printed step k. So within a run a line
is late by a step or two, or by a few if the cluster forwards output slowly. Runs are told apart by these rules:

- If a line is more than `LATE` steps behind the newest, it begins another run. If lines are labelled, so does
  a line that goes back behind what the same process printed. The earlier run is dropped as a whole: two runs
  are never mixed.
- If a run died within its first `LATE` steps, that rule does not find it. At the end of the log it is found:
  the steps that it reached were printed more often than the later ones, and all its lines come before all
  lines of the next run. Then its lines are dropped. Otherwise these steps count as repeated.
- The number of processes is the number of lines that most steps have. If a step has fewer, other output
  garbled some of them. If it has less than half, the step ran, but its time is unknown. If a step has more,
  it is a repeat.

A step is summarised once no more lines of it can follow, so the memory does not grow with the log.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from plugins.logs.line_parser import MAX_STEPS, LineParser, attempt
from plugins.logs.log import SAMPLE_HINT, Attempt, Log, ProcessorSample, Step, read_sample
from plugins.logs.numbers import NUMBER, resolution, worked
from plugins.logs.statements import Statement, launch_argument

_STEP = re.compile(
    rf"completed step: (\d{{1,9}}), seconds: (\d{{1,15}}\.\d{{1,15}}), TFLOP/s/device: ({NUMBER}), "
    rf"Tokens/s/device: ({NUMBER}), total_weights: (\d{{1,15}}), loss: ({NUMBER})(?![\w.])"
)
_PEAK = re.compile(rf"proxy machine peak: ({NUMBER}) TFLOP/s/device \(")
_VERSION = re.compile(r"proxy (jax|driver): ([\w.+-]{1,60})$")
_BEGINS = re.compile(r"proxy begins: (.{1,200})$")
# nsys with a capture range, and XLA's profiler (tsl/profiler/lib/profiler_session.cc 82, 112, 131).
_CAPTURE = re.compile(
    r"(?P<begins>Capture range started in the application|Profiler session (?:initializing|started))"
    r"|Capture range ended in the application|Generating '.*\.(?:qdstrm|nsys-rep)'|Profiler session (?:collecting data|tear down)"
)
_LABEL = re.compile(r" *(\d{1,5}): ")


def _setting(
    key: str, fact: str, words: dict[str, int | str] | None = None, *, any_word: bool = False
) -> Statement:
    return Statement(
        f"Config param {key}: ".encode(),
        rf"Config param {key}: {{1,4}}(?P<{fact}>\S*)\s{{0,4}}$",
        words or {},
        any_word,
    )


# The names of each kind of FP8 (v0.2.4 src/maxtext/configs/types.py 83 to 102). Any other arithmetic counts
# by its name.
_FP8 = (
    *("fp8", "fp8_full", "fp8_gpu", "fp8_nanoo", "nanoo_fp8", "fp8_nano_v2", "fp8_e5m2", "fp8_e4m3"),
    *("te_fp8_ds", "te_fp8_cs", "te_fp8_delayedscaling", "te_fp8_currentscaling", "te_mxfp8"),
)
_QUANTIZATION: dict[str, int | str] = {
    **dict.fromkeys(("", "None", "none", "QuantizationType.NONE"), False),
    **{name: True for kind in _FP8 for name in (kind, f"QuantizationType.{kind.upper()}")},
}
# The axes of the mesh (8e55ab1 MaxText/configs/base.yml 282 to 297, v0.2.4 src/maxtext/configs/types.py 1222 to 1258).
_AXES = (
    *("data", "fsdp", "fsdp_transpose", "sequence", "tensor", "tensor_transpose", "tensor_sequence", "pipeline", "expert"),
    *("context", "context_autoregressive", "context_usp_ulysses", "autoregressive", "diloco"),
)  # fmt: skip
_FILLED: dict[str, int | str] = {"-1": -1}
# Every process prints these (MaxText/pyconfig.py 360, max_utils.py 594, train.py 622; commit 8e55ab1).
STATEMENTS = (
    _setting("emb_dim", "hidden"),
    _setting("num_decoder_layers", "layers"),
    _setting("mlp_dim", "ffn"),
    _setting("num_experts", "experts"),
    _setting("num_experts_per_tok", "top_k"),
    _setting("num_query_heads", "heads"),
    _setting("num_kv_heads", "query_groups"),
    _setting("vocab_size", "vocab"),
    _setting("max_target_length", "sequence_length"),
    _setting("global_batch_size_to_train_on", "gbs"),
    _setting("micro_batch_size_to_train_on", "micro_batch"),
    _setting("gradient_accumulation_steps", "ga"),
    Statement(
        b"Config param per_device_batch_size: ",
        r"Config param per_device_batch_size: (?P<sequences_per_gpu>\d{1,9})(?:\.0)?\s{0,4}$",
    ),
    _setting("num_slices", "slices"),
    *(
        _setting(f"{place}_{axis}_parallelism", f"{place}_{axis}", _FILLED)
        for place in ("ici", "dcn")
        for axis in _AXES
    ),
    _setting("dtype", "precision", {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}),
    _setting("quantization", "fp8", _QUANTIZATION, any_word=True),
    launch_argument("per_device_batch_size", "sequences_per_gpu"),
    launch_argument("max_target_length", "sequence_length"),
    launch_argument("quantization", "fp8", _QUANTIZATION, any_word=True),
    *(
        launch_argument(f"{place}_{axis}_parallelism", f"{place}_{axis}", _FILLED)
        for place in ("ici", "dcn")
        for axis in ("data", "fsdp", "tensor")
    ),
    Statement(b"Num_devices: ", r"Num_devices: (?P<processes>\d{1,7})(?=, shape \()"),
    Statement(b"number parameters: ", r"number parameters: (?P<million_parameters>\d{1,6}\.\d{3}) billion"),
)  # fmt: skip

PROFILING_STEPS = 15
"""The recipe's profiling run has exactly these steps, 0 to 14. The timed run after it has more."""


class MaxText(LineParser):
    """Parses MaxText's metric line (max_logging, December 2024 to v0.2.4)."""

    hints = (b"completed step: ", b"proxy machine peak: ")
    # What `plugins.gpu.samples` reads must be fetched of a long log, too.
    asides = (
        b"Capture range ",
        b"Generating '",
        b"Profiler session ",
        b"proxy ",
        b"proxy: ",
        b"gpu sample: ",
        b"gpu state: ",
        SAMPLE_HINT.encode(),
    )
    statements = STATEMENTS
    flops = ("full-attention", "causal-attention")

    def __init__(self) -> None:
        super().__init__()
        self._captured: int | None = None
        self._capture_ended: int | None = None
        self._run = RunLines()
        # The run before this one, if it has the shape of the profiling run.
        self._profile: Attempt | None = None
        self._lines = 0
        self._processors: list[ProcessorSample] = []
        self._activity = ""

    def read_line(self, line: str, *, ended: bool) -> None:
        peak = _PEAK.search(line)
        if peak and ended and 0 < float(peak[1]) < math.inf:
            self.measured_peak(float(peak[1]))
        label = _LABEL.match(line)
        first = line.find("completed step: ")
        for match in _STEP.finditer(line):
            if match.end() == len(line) and not ended:
                continue
            # Slurm labels the first step of a line. If a line has another step, its process is unknown.
            rank = None
            if label and match.start() == first:
                rank = int(label[1])
            index = int(match[1])
            self._lines += 1
            anew = self._run.is_over(index, rank) or self._is_resumed(index)
            if anew:
                self.begins_anew()
            # What the profiling run stated holds for the timed run too, because both are of one job.
            self._stated.stepped(anew=anew and self._profile is None)
            self._run.add(index, Print(float(match[2]), self._lines, rank, match.groups()[1:], self.stamp))

    def read_aside(self, line: str) -> None:
        capture = _CAPTURE.search(line)
        if capture and capture["begins"]:
            self._captured, self._capture_ended = max(self._run.newest, 0), None
        elif capture and self._capture_ended is None:
            # nsys prints `Generating` again at the end of the job.
            self._capture_ended = max(self._run.newest, 0)
        version = _VERSION.search(line)
        if version:
            self._versions.keep(version[1], version[2])
        begins = _BEGINS.search(line)
        if begins:
            self._activity = begins[1]
        if SAMPLE_HINT in line:
            self._keep(read_sample(line))

    def log(self) -> Log:
        run = self._run.summary()
        return replace(
            super().log(),
            steps=run.steps,
            repeated=run.repeated,
            earlier=(*self._earlier, *self._restarts(run)),
            ranks=run.ranks,
            queued=True,
            captured_after=self._captured,
            captured_until=run.last if self._capture_ended is None else self._capture_ended,
            processors=tuple(self._processors),
            activity=self._activity,
        )

    def _keep(self, sample: ProcessorSample | None) -> None:
        """Keep a sample that is not damaged. If the steps go back, training has started over."""
        if sample is None:
            return
        if self._processors and sample.step <= self._processors[-1].step:
            self._processors.clear()
        if len(self._processors) < MAX_STEPS:
            self._processors.append(sample)

    @property
    def under_way(self) -> bool:
        """Whether a run has gone so far that a line may end it. `RunLines` tells apart a shorter one, and start-up lines may be late."""
        return self._run.newest > LATE

    @property
    def _begun(self) -> bool:
        return self._stated.restated

    def _is_resumed(self, index: int) -> bool:
        """Whether a run that was started again goes on with this step, which no process has printed."""
        again = bool(self._restarter) or self._begun
        return self.under_way and index > self._run.newest and again

    def _restarts(self, run: RunSteps) -> list[Attempt]:
        """The attempts that are known to be over by this run. The profiling run is none if a longer run follows it."""
        restarts = list(map(Attempt, run.restarted_after))
        if self._profile is not None and run.last < PROFILING_STEPS:
            restarts.insert(0, self._profile)
        return restarts

    def begins_anew(self) -> None:
        run = self._run.summary()
        for restart in self._restarts(run):
            self.ended(restart)
        complete = [step.index for step in run.steps if step.seconds is not None]
        ended = attempt(run.steps, self._restarter)
        self._profile = None
        if complete == list(range(PROFILING_STEPS)):
            self._profile = ended
        else:
            self.ended(ended)
        self._restarter = ""
        self._run = RunLines()
        self._captured = self._capture_ended = None


LATE = 7
"""Half of the shortest run that another run follows: the recipe's 15 steps of profiling."""

MAX_RANKS = 1 << 13
"""More processes than any recipe has. Further lines of a step are counted, but not kept."""


class Print(NamedTuple):
    """One process's line of a step. `order` is its place among the log's step lines, `rank` its label, `stamp` when it was collected.

    `fields` are seconds, TFLOP/s, tokens/s, total weights and loss, as printed.
    """

    seconds: float
    order: int
    rank: int | None
    fields: Sequence[str]
    stamp: float | None = None


@dataclass(frozen=True)
class RunSteps:
    """What a run's lines state together. `last` is the newest step; if there are none, it is -1.

    If an earlier run died too early to be told apart before, `restarted_after` has its last step.
    """

    steps: tuple[Step, ...]
    repeated: tuple[int, ...]
    restarted_after: tuple[int, ...]
    ranks: int | None
    last: int


class RunLines:
    """Collects the lines of one run. `newest` is the newest step, -1 before the first one."""

    def __init__(self) -> None:
        self.newest = -1
        self._counts: dict[int, int] = {}
        self._prints: dict[int, list[Print]] = {}
        self._settled: dict[int, Step] = {}
        self._last_of: dict[int, int] = {}

    def is_over(self, index: int, rank: int | None) -> bool:
        """Whether this step, printed by this process, can only belong to another run."""
        return index < self.newest - LATE or (rank is not None and index < self._last_of.get(rank, -1))

    def add(self, index: int, line: Print) -> None:
        if index not in self._counts and len(self._counts) >= MAX_STEPS:
            return
        self._counts[index] = self._counts.get(index, 0) + 1
        if line.rank is not None:
            self._last_of[line.rank] = index
        prints = self._prints.setdefault(index, [])
        if len(prints) < MAX_RANKS:
            prints.append(line)
        if index > self.newest:
            self.newest = index
            # The first steps are kept, because only the end shows whether an earlier run is among them.
            for old in [i for i in self._prints if LATE < i < index - LATE]:
                self._settled[old] = _boil(old, self._prints.pop(old))

    def summary(self) -> RunSteps:
        if not self._counts:
            return RunSteps((), (), (), None, -1)
        late = Counter(count for index, count in self._counts.items() if index > LATE)
        counts = late or Counter(self._counts.values())
        ranks = max(counts, key=lambda count: (counts[count], count))
        dropped = self._earlier_run(ranks) if late else -1
        repeated = tuple(i for i, count in sorted(self._counts.items()) if i > dropped and count > ranks)
        steps = dict(self._settled)
        for index, prints in self._prints.items():
            if index <= dropped:
                prints = prints[-ranks:]
            steps[index] = _boil(index, prints)
        return RunSteps(
            steps=tuple(_whole(steps[index], ranks) for index in sorted(steps)),
            repeated=repeated,
            restarted_after=(dropped,) if dropped >= 0 else (),
            ranks=ranks,
            last=self.newest,
        )

    def _earlier_run(self, ranks: int) -> int:
        """The last step of a run that died early and comes before this one; -1 if there is none."""
        early = {index: prints for index, prints in self._prints.items() if index <= LATE}
        surplus = [index for index, prints in sorted(early.items()) if len(prints) > ranks]
        if not surplus or surplus != list(range(len(surplus))):
            return -1
        if any(self._counts[index] > len(prints) for index, prints in early.items()):
            return -1
        # Of the surplus steps the last lines are this run's; of the others all are, no more than there are processes.
        before = max(early[index][-ranks - 1].order for index in surplus)
        first = min(prints[-ranks:][0].order for prints in early.values())
        return surplus[-1] if before < first else -1


def _whole(step: Step, ranks: int) -> Step:
    """The step, without its time if less than half of the processes print it."""
    if 2 * step.ranks >= ranks:
        return step
    return replace(step, seconds=None, slowest_seconds=None)


def _boil(index: int, prints: Sequence[Print]) -> Step:
    """Summarise the lines of a step. Its time is the middle one; of two in the middle, the slower."""
    ordered = sorted(prints)
    middle, slowest = ordered[len(ordered) // 2], ordered[-1]
    seconds, tflops, rate, *_ = middle.fields
    weights = {line.fields[3] for line in ordered}
    losses = [float(line.fields[4]) for line in ordered]
    return Step(
        index=index,
        seconds=middle.seconds,
        resolution=resolution(seconds),
        tokens=int(weights.pop()) if len(weights) == 1 else 0,
        tokens_per_gpu=worked(seconds, rate, 1),
        flops_per_gpu=worked(seconds, tflops, 1e12),
        tflops_per_gpu=float(tflops),
        loss=next((loss for loss in losses if not math.isfinite(loss)), float(middle.fields[4])),
        stamp=middle.stamp,
        collected=middle.stamp is not None,
        disagreeing=_disagree([line.fields[4] for line in ordered]),
        ranks=len(ordered),
        slowest_seconds=slowest.seconds,
        slowest_rank=slowest.rank,
    )


def _disagree(losses: Sequence[str]) -> bool:
    """Whether more than a quarter of the processes print another loss than most.

    If other output cut a line short, its loss does not count as another one.
    """
    (most, _), *second = Counter(losses).most_common(2)
    return any(4 * count > len(losses) and not most.startswith(loss) for loss, count in second)
