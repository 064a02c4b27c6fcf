"""`compare FIRST SECOND`: what the second run is against the first."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from pathlib import Path

from fixtures.runs.folders import find_record
from plugins.errors import ConfigError
from plugins.reports.comparison import as_json
from plugins.reports.comparison import compare_runs
from plugins.reports.comparison import print_comparison
from plugins.reports.comparison import read_summary

HELP = "compare the paces of two runs, case by case, and say what else changed"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "first", metavar="FIRST", help="the run to compare with: its folder, its name, or latest"
    )
    parser.add_argument("second", metavar="SECOND", help="the run in question, likewise")
    parser.add_argument("--results", type=Path, default=Path("results"), metavar="DIR", help="where runs are")
    parser.add_argument("--json", action="store_true", help="print it as JSON")


def run(given: argparse.Namespace) -> int:
    """Print the comparison. Returns 0: whether a difference matters is the reader's to say."""
    first, second = (read_summary(find_record(given.results, name)) for name in (given.first, given.second))
    if first.run == second.run:
        raise ConfigError(f"{given.first} and {given.second} are the same run, {first.run}: name two runs")
    runs = compare_runs(first, second)
    if given.json:
        print(json.dumps(as_json(runs), indent=2))
    else:
        width = max(120, shutil.get_terminal_size().columns)
        print_comparison(runs, sys.stdout, width, colour=sys.stdout.isatty())
    return 0
