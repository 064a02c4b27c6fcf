"""`python -m tests.bench [NAME...] [--small]`: runs the benches, and writes their figures into docs/dev/performance.md.

The figures are appended to `history.jsonl`, with the day, the machine and its load. Small runs take seconds and are not kept.
"""

from __future__ import annotations

import argparse
import os
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from multiprocessing import get_context
from pathlib import Path

from tests.bench import performance
from tests.bench.benches import BENCHES, measure
from tests.bench.performance import Entry


def machine() -> str:
    """The processors of this machine."""
    rows = [line.partition(":") for line in Path("/proc/cpuinfo").read_text().splitlines()]
    models = [value.strip() for key, _, value in rows if key.strip() == "model name"]
    return f"{os.cpu_count()} x {models[0] if models else 'an unnamed processor'}"


def main() -> int:
    names = [bench.name for bench in BENCHES]
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which: {', '.join(names)} (default: all)")
    parser.add_argument("--small", action="store_true", help="run them small, and keep no figures")
    options = parser.parse_args()
    unknown = [name for name in options.names if name not in names]
    if unknown:
        parser.error(f"no bench {', '.join(unknown)}; there are {', '.join(names)}")
    failed = False
    for name in options.names or names:
        print(f"\n== {name}", flush=True)
        day, load = datetime.now(UTC), os.getloadavg()[0]
        with ProcessPoolExecutor(1, get_context("spawn")) as pool:
            try:
                figures = pool.submit(measure, name, options.small).result()
            except RuntimeError as error:
                print(f"{name} did not run: {error}", flush=True)
                failed = True
                continue
        if not options.small:
            performance.keep(Entry(f"{day:%Y-%m-%d}", machine(), round(load, 1), name, tuple(figures)))
    return int(failed)


if __name__ == "__main__":
    raise SystemExit(main())
