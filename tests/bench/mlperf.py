"""Real step times: what logs of MLPerf Training v5.1 print of each run, kept as a corpus for the simulation of verdicts.

    python -m tests.bench.mlperf CLONE [--commit COMMIT]

Reads the logs from a clone of https://github.com/mlcommons/training_results_v5.1 (Apache License 2.0) and writes `mlperf.txt`.

An MLPerf log has a record of JSON behind `:::MLLOG ` in a line, maybe behind the name of a process. A record `tracked_stats` has
the time of one step under `train_step_time` (`DeltaTimingCallback` in the submissions' custom_callbacks.py). A system prints
each step or every 32nd one (`LOG_EVERY_N_STEPS`), which its clock tells: `time_ms` of the records beside the step time. So only
the systems that print each step tell how steps follow each other.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import statistics
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from plugins.base.scatter import robust_sigma
from plugins.judging.steadiness import Noise

REPOSITORY = "https://github.com/mlcommons/training_results_v5.1"
COMMIT = "441d65f4445cd59687466533fd9f55399136e7a4"
CORPUS = Path(__file__).with_name("mlperf.txt")
RECORD = ":::MLLOG "
LOGS = re.compile(r"(.+)/results/([^/]+)/(llama31_8b|llama31_405b)/result_(\d+)\.txt")
"""The logs of pre-training: submitter, system, benchmark, run."""

FEWEST = 60
"""A log with fewer steps is left out."""

UNIT = 1e-4
"""Step times are kept as deviations from the median of their run, in this unit."""

MOST = 900
"""So many steps of a run are kept. The data loader of two systems begins anew after 1,000, which takes 70 to 100 times as long as a step."""

SETTLED = 10
"""What is made of a run is made of the steps after these."""


@dataclass(frozen=True)
class Trace:
    """The printed step times of a run, as multiples of their median, which is `pace` in s. Every `every`-th step is printed."""

    every: int
    pace: float
    steps: tuple[float, ...]

    @property
    def scatter(self) -> float:
        return robust_sigma(self.steps[SETTLED:])

    @property
    def correlation(self) -> float:
        """That of each step with the next, of which outliers count as three standard deviations."""
        limit = 3 * self.scatter
        near = [min(max(step - 1, -limit), limit) for step in self.steps[SETTLED:]]
        return statistics.correlation(near[1:], near[:-1])


@dataclass(frozen=True)
class System:
    """The runs of a benchmark on a system."""

    name: str
    runs: tuple[Trace, ...]

    @property
    def every(self) -> int:
        return self.runs[0].every

    @cached_property
    def pace(self) -> float:
        return statistics.median(run.pace for run in self.runs)

    @property
    def noise(self) -> Noise:
        """How its steps and runs scatter; the correlation is 0 if it does not print each step."""
        alike = [run.correlation for run in self.runs if run.every == 1]
        return Noise(
            statistics.median(run.scatter for run in self.runs),
            statistics.median(alike or [0.0]),
            statistics.stdev(run.pace for run in self.runs) / self.pace,
        )

    def window(self, steps: int, rng: random.Random) -> list[float]:
        """Successive printed steps of one of its runs, as multiples of the system's pace.

        They begin anywhere, and the beginning of the run follows its end (a circular block bootstrap: D. N. Politis and
        J. P. Romano, 1992). The first `SETTLED` are left out.
        """
        run = rng.choice(self.runs)
        settled = run.steps[SETTLED:]
        first = rng.randrange(len(settled))
        return [settled[(first + i) % len(settled)] * run.pace / self.pace for i in range(steps)]


def step_times(lines: Iterable[str]) -> tuple[list[float], int]:
    """The step times that a log prints, in s, and of every how many steps it prints one.

    An evaluation prints the last step time again, without a new number. The first step after it is left out, because its
    timer ran through a part of the evaluation.
    """
    records = [json.loads(text) for _, mark, text in (line.partition(RECORD) for line in lines) if mark]
    kept: list[Mapping[str, Any]] = []
    last, evaluated = -1, False
    for record in records:
        evaluated |= record["key"] == "eval_stop"
        if record["key"] == "tracked_stats" and "train_step_time" in record["value"]:
            number = record["metadata"].get("step", -1)
            if number > last:
                if not evaluated:
                    kept.append(record)
                last, evaluated = number, False
    times = [record["value"]["train_step_time"] for record in kept]
    if len(times) < FEWEST:
        return [], 1
    apart = statistics.median(after["time_ms"] - before["time_ms"] for before, after in pairwise(kept))
    if apart < 1500 * statistics.median(times):
        return times, 1
    numbers = [record["metadata"]["step"] for record in kept]
    return times, int(statistics.mode(after - before for before, after in pairwise(numbers)))


def logs(clone: Path, commit: str) -> Iterator[tuple[re.Match[str], list[str]]]:
    """The logs of pre-training in the clone at a commit, with what their paths say, in the order of these."""
    git = ["git", "-C", str(clone)]
    names = subprocess.run(
        [*git, "ls-tree", "-r", "-z", "--name-only", commit], check=True, capture_output=True, text=True
    )
    for name in names.stdout.split("\0"):
        path = LOGS.fullmatch(name)
        if path is not None:
            log = subprocess.run([*git, "show", f"{commit}:{name}"], check=True, capture_output=True)
            yield path, log.stdout.decode(errors="replace").splitlines()


def lines(clone: Path, commit: str) -> Iterator[str]:
    """The corpus: of each run its system, benchmark, number, how many steps lie between two lines, median in s, and deviations."""
    yield f"# Step times of {REPOSITORY} at {commit}, Apache License 2.0. Written by `python -m tests.bench.mlperf`."
    yield "# SUBMITTER/SYSTEM/BENCHMARK RUN EVERY MEDIAN: deviations of the steps from the median, in 0.01 %."
    yield f"# Up to {MOST} steps of each run, which is SUBMITTER/results/SYSTEM/BENCHMARK/result_RUN.txt there."
    for path, log in logs(clone, commit):
        times, every = step_times(log)
        if times:
            submitter, system, benchmark, run = path.groups()
            times = times[:MOST]
            median = statistics.median(times)
            deviations = " ".join(str(round((time / median - 1) / UNIT)) for time in times)
            yield f"{submitter}/{system}/{benchmark} {run} {every} {median:.6g}: {deviations}"


@lru_cache
def systems() -> Mapping[str, System]:
    """The corpus, by the names of its systems, which have that of the benchmark."""
    runs: dict[str, list[Trace]] = {}
    for line in CORPUS.read_text().splitlines():
        if not line.startswith("#"):
            head, _, deviations = line.partition(": ")
            system, _, every, pace = head.split()
            steps = tuple(1 + UNIT * int(deviation) for deviation in deviations.split())
            runs.setdefault(system, []).append(Trace(int(every), float(pace), steps))
    return {name: System(name, tuple(traces)) for name, traces in runs.items()}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.mlperf", description=__doc__)
    parser.add_argument("clone", type=Path, help=f"a clone of {REPOSITORY}")
    parser.add_argument("--commit", default=COMMIT, help=f"which commit of it ({COMMIT})")
    chosen = parser.parse_args()
    CORPUS.write_text("\n".join(lines(chosen.clone, chosen.commit)) + "\n")


if __name__ == "__main__":
    main()
