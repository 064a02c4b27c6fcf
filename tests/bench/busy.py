"""The case of `make demo` on a CPU beside busy loops: its verdicts and how long it takes.

    python -m tests.bench.busy [--runs N] [--handicap K]

A loop is a process that computes all the time and never waits. They are started in turns of none, one and two.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.bench import checkout, process
from tests.bench.report import print_target

LOOPS = (0, 1, 2)
CHECKOUT = checkout.ROOT
CASE = "proxy/tiny-fp32-1gpus"
# It ends with this process, however that ends.
_LOOP = """\
import os
parent = os.getppid()
while os.getppid() == parent:
    for _ in range(10**6):
        pass
"""
_LEAST = 0.9
_LONGEST = 150.0


@dataclass(frozen=True)
class Run:
    """A session beside some loops. `load` is the load average before it, `seconds` its wall time."""

    loops: int
    load: float
    seconds: float
    verdict: str
    headline: str
    remarks: tuple[str, ...]


@contextlib.contextmanager
def busy(loops: int) -> Iterator[None]:
    started = [subprocess.Popen([sys.executable, "-c", _LOOP]) for _ in range(loops)]
    try:
        yield
    finally:
        for loop in started:
            loop.kill()
            loop.wait()


def session(folder: Path, loops: int, handicap: int = 1) -> Run:
    """Judge the case beside so many loops, with the run in `folder`."""
    folder.mkdir()
    site = folder / "site.yaml"
    site.write_text(f"site: this-machine\nlocal: {{handicap: {handicap}}}\n")
    results, load = folder / "results", os.getloadavg()[0]
    with busy(loops):
        options = ("-k", "tiny", "--site", str(site), "--results", str(results))
        cost = process.pytest(CHECKOUT, folder / "out", *options).wait()
    case = results / "latest" / CASE / "case.json"
    if not case.exists():
        sys.exit((folder / "out").read_text(errors="replace"))
    record = json.loads(case.read_text())
    return Run(loops, load, cost.wall, record["verdict"], record["headline"], tuple(record["remarks"]))


def print_verdicts(runs: Sequence[Run]) -> None:
    print(f"\n{'loops':>5} {'seconds':>14}  verdicts")
    for loops in sorted({run.loops for run in runs}):
        these = [run for run in runs if run.loops == loops]
        seconds = [run.seconds for run in these]
        verdicts = Counter(run.verdict for run in these)
        told = ", ".join(f"{count} {verdict}" for verdict, count in verdicts.most_common())
        print(f"{loops:5} {min(seconds):6.0f} to {max(seconds):4.0f}  {told}")
        share = verdicts["passed"] / len(these)
        print_target(f"{loops} busy loops: 9 of 10 pass", share >= _LEAST, f"{100 * share:.0f} %")
    idle = max((run.seconds for run in runs if not run.loops), default=0.0)
    print_target("without a loop at most 2:30", idle <= _LONGEST, f"{idle:.0f} s")


def main(arguments: Sequence[str] = ()) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.busy", description=__doc__)
    parser.add_argument("--runs", type=int, default=10, help="of each number of loops (default: 10)")
    parser.add_argument(
        "--handicap", type=int, default=1, help="how often each step does its work (default: 1)"
    )
    given = parser.parse_args(arguments)
    runs = []
    with tempfile.TemporaryDirectory() as name:
        for number in range(given.runs):
            for loops in LOOPS:
                run = session(Path(name) / f"{number}-{loops}", loops, given.handicap)
                print(f"{loops} loops, load {run.load:.1f}, {run.seconds:.0f} s: {run.headline}", flush=True)
                for remark in run.remarks:
                    print(f"    {remark}", flush=True)
                runs.append(run)
    print_verdicts(runs)


if __name__ == "__main__":
    main(sys.argv[1:])
