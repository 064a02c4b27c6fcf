"""`compare FIRST SECOND`: what the second run is against the first."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from pathlib import Path

from fixtures.runs.folders import find_record
from plugins.errors import ConfigError
from plugins.record.verdict import FAIL_IF, Outcome
from plugins.reports.comparison import (
    Runs,
    as_json,
    compare_runs,
    differing,
    print_comparison,
    read_run,
)
from plugins.reports.gate import CODES

HELP = "compare the paces of two runs, case by case, and say what else changed"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "first", metavar="FIRST", help="the run to compare with: its folder, its name, or latest"
    )
    parser.add_argument("second", metavar="SECOND", help="the run in question, likewise")
    parser.add_argument("--results", type=Path, default=Path("results"), metavar="DIR", help="where runs are")
    parser.add_argument("--json", action="store_true", help="print it as JSON")
    parser.add_argument(
        "--fail-if",
        choices=list(FAIL_IF),
        help=f"exit with {CODES[Outcome.PERFORMANCE]} if a case is so beyond noise, else with {CODES[Outcome.NO_BASELINE]} if one "
        "could not be compared",
    )


def run(options: argparse.Namespace) -> int:
    """Print the comparison. Without `--fail-if` it returns 0: whether a difference matters is the reader's to say."""
    first, second = (read_run(find_record(options.results, name)) for name in (options.first, options.second))
    if first.run == second.run:
        raise ConfigError(
            f"{options.first} and {options.second} are the same run, {first.run}: name two runs"
        )
    runs = compare_runs(first, second)
    if options.json:
        print(json.dumps(as_json(runs), indent=2))
    else:
        width = max(120, shutil.get_terminal_size().columns)
        print_comparison(runs, sys.stdout, width, colour=sys.stdout.isatty())
    if options.fail_if is None:
        return 0
    code, reason = _gate(runs, options.fail_if)
    # What is printed as JSON stays JSON.
    print(f"gate: {reason}, exit code {code}", file=sys.stderr if options.json else sys.stdout)
    return code


def _gate(runs: Runs, choice: str) -> tuple[int, str]:
    """The exit code of `--fail-if`, and why."""
    differ = len(differing(runs, choice))
    if differ:
        return CODES[Outcome.PERFORMANCE], f"{differ} case(s) {choice}"
    if runs.not_compared or not runs.comparison.ratios:
        return CODES[Outcome.NO_BASELINE], f"{len(runs.not_compared)} case(s) not compared"
    return 0, f"no case is {choice} beyond noise"
