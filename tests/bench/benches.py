"""The benches: what each measures, how it becomes small, and which tests hold the part of it that is no time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from types import ModuleType

from tests.bench import checkout, collection, fleet, isolation, kube, parsing, rates, waiting
from tests.bench.report import FIGURES, Figure

Settings = tuple[tuple[ModuleType, str, object], ...]


@dataclass(frozen=True)
class Bench:
    """A bench. `run` prints it; with the values of `small` in place of those of its modules, in seconds.

    `guards` are the files of tests, below `tests/`, that hold its exact counts: requests, modules, bytes, plots.
    """

    name: str
    what: str
    run: Callable[[], object]
    small: Settings
    guards: tuple[str, ...]


_FAST = checkout.JOB.replace(f"-rt {checkout.STEP_SECONDS}", "-rt 0.02")

BENCHES = (
    Bench(
        "collection",
        "Collecting cases, beside an empty session and bare tests",
        collection.main,
        tuple((collection, name, value) for name, value in (("ROUNDS", 1), ("FEW_ROUNDS", 1), ("SIZES", 3), ("SCALES", 2))),
        ("unit/session/test_collecting.py", "system/test_collection.py"),
    ),
    Bench(
        "parsing",
        "Parsing a log of 1 GB, beside `grep -c`",
        parsing.main,
        ((parsing, "ROUNDS", 1), (parsing, "SIZE", 10**6)),
        ("unit/logs/test_telling_lines.py",),
    ),
    Bench(
        "rates",
        "How often a verdict is wrong, by simulation; docs/dev/verdicts.md has its tables",
        partial(rates.main, ()),
        ((rates, "RUNS", 300),),
        ("bench/test_rates.py", "unit/judging/test_noise.py"),
    ),
    Bench(
        "isolation",
        "How often what slows a job is named, by simulation",
        isolation.main,
        ((isolation, "FLEETS", 2), (isolation, "HEALTHY", 2), (isolation, "LARGE", 64), (isolation, "WRITES", False)),
        ("unit/isolation/test_search.py",),
    ),
    Bench(
        "fleet",
        "64 jobs of 4 nodes and 10 s, beside `sbatch` in a loop and ReFrame; 500 cases that wait",
        fleet.main,
        (
            (checkout, "JOB", _FAST),
            (fleet, "JOBS", 4),
            (fleet, "WITH_PEER", False),
            (waiting, "FEW", 1),
            (waiting, "MANY", 2),
            (waiting, "WINDOW", 1.0),
        ),
        ("unit/fleet/test_order.py", "unit/backends/ssh/test_log_tail.py"),
    ),
    Bench(
        "kube",
        "Requests to the API server: one job, 32 at once, jobs that wait in a queue",
        kube.main,
        ((kube, "MANY", 2), (kube, "LONG", 8.0)),
        ("unit/backends/kubernetes/test_requests.py",),
    ),
)  # fmt: skip
"""In the order in which `python -m tests.bench` runs them."""


def measure(name: str, small: bool) -> list[Figure]:
    """Run a bench in a process of its own. Raises RuntimeError with the reason if this machine cannot run it."""
    (bench,) = [bench for bench in BENCHES if bench.name == name]
    for module, setting, value in bench.small if small else ():
        setattr(module, setting, value)
    try:
        bench.run()
    except SystemExit as error:
        if error.code:
            raise RuntimeError(str(error.code)) from None
    return FIGURES
