"""The corpus of real step times: how a log of MLPerf is read, and what the model of noise says of the corpus."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from plugins.judging.steadiness import PUBLISHED
from tests.bench.mlperf import MOST, step_times, systems

HEAD = ":::MLLOG "


def log(every: int, count: int = 64, before: str = "") -> Iterator[str]:
    """A log that prints the time of every `every`-th step, with an evaluation in the middle."""
    stamp = 0
    for line in range(count):
        seconds = 2.0 + line / 1000
        stamp += round(1000 * every * seconds)
        yield before + HEAD + record(stamp, "tracked_stats", {"train_step_time": seconds}, step=line * every)
        if line == count // 2:
            yield HEAD + record(stamp, "tracked_stats", {"train_step_time": 9.0})
            yield HEAD + record(stamp, "tracked_stats", {"train_step_time": 9.0}, step=0)
            yield HEAD + record(stamp + 500, "eval_stop", None)
        yield "no record"
        yield HEAD + record(stamp, "tracked_stats", {"throughput": 3.0})


def record(stamp: int, key: str, value: object, **metadata: int) -> str:
    return json.dumps({"time_ms": stamp, "key": key, "value": value, "metadata": metadata})


@pytest.mark.parametrize(("every", "before"), [(1, ""), (32, " 0: ")])
def test_the_steps_of_a_log_are_read_without_those_of_an_evaluation(every: int, before: str) -> None:
    times, apart = step_times(log(every, before=before))
    assert apart == every
    assert times == [2.0 + line / 1000 for line in range(64) if line != 33]
    assert step_times(log(1, count=60)) == ([], 1), "too short"


def test_the_corpus_has_the_runs_of_every_system() -> None:
    assert len(systems()) == 41
    assert sum(len(system.runs) for system in systems().values()) == 354
    assert {system.every for system in systems().values()} == {1, 32}
    lengths = [len(run.steps) for system in systems().values() for run in system.runs]
    assert 60 < min(lengths) <= max(lengths) == MOST


def test_nine_of_ten_systems_scatter_no_more_than_the_model_counts_on() -> None:
    noises = [system.noise for system in systems().values()]
    alike = [noise.correlation for noise in noises if noise.correlation]
    assert len(alike) == 10
    for values, limit in (
        ([noise.step for noise in noises], PUBLISHED.step),
        ([noise.between for noise in noises], PUBLISHED.between),
        (alike, PUBLISHED.correlation),
    ):
        assert 0.9 <= sum(value <= limit for value in values) / len(values) < 0.98
