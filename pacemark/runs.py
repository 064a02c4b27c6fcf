"""Commands on runs: `compare FIRST SECOND`, and `isolate RUN GPU_HOURS`."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import sys
from pathlib import Path

from fixtures.runs.folders import find_record, find_run
from pacemark import Command
from plugins.base.errors import ConfigError
from plugins.judging.rejudge import Basis
from plugins.record.folder import FAILING_NODES
from plugins.record.stored import read_summary
from plugins.record.verdict import FAIL_IF, Kind, Outcome
from plugins.reports.checkout import CHECKOUT
from plugins.reports.comparison import (
    Runs,
    as_json,
    compare_runs,
    differing,
    print_comparison,
    read_run,
)
from plugins.reports.gate import CODES


def _compare_arguments(parser: argparse.ArgumentParser) -> None:
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


def _compare(options: argparse.Namespace) -> int:
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


def _isolate_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="the folder of a run, its name, or latest")
    parser.add_argument("gpu_hours", metavar="GPU_HOURS", help="how much all probes and proofs may cost")
    parser.add_argument("--site", metavar="FILE", required=True, help="the site file of the run")
    parser.add_argument("--results", type=Path, default=Path("results"), metavar="DIR", help="where runs are")
    parser.add_argument(
        "-k", dest="case", default="", metavar="CASE", help="only cases with this in their names"
    )


def _isolate(options: argparse.Namespace) -> int:
    """Become a session that goes on with the run: its cases have ended, so that only probes and proofs run."""
    folder = find_run(options.results, options.run)
    summary = read_summary(folder)
    several = [case for case in summary.cases if not case.node]
    slow = [case for case in several if case.verdict is Kind.TOO_SLOW and options.case in case.id]
    if not slow:
        which = f" with {options.case}" if options.case else ""
        nodes = f"; the slow nodes that it screened are in {FAILING_NODES}" if summary.screening else ""
        raise ConfigError(f"run {folder.name}: no case{which} was too slow{nodes}")
    if options.case and summary.acceptance is not None:
        raise ConfigError(
            f"-k: run {folder.name} has an acceptance plan, whose decision needs all of its cases: leave -k out"
        )
    cases = slow if summary.acceptance is None else summary.cases
    suites = dict.fromkeys(str(CHECKOUT / "suites" / case.recipe) for case in cases)
    chosen = [*suites, "-k", " or ".join(f"[{case.id.partition('/')[2]}]" for case in cases)]
    variants = {str((case.configuration or {}).get("variant") or "") for case in cases}
    chosen += [word for name in sorted(variants - {""}) for word in ("--variant", name)]
    basis = Basis(folder)
    choices = [basis.of(case.recipe).choice for case in cases]
    releases = {choice.release for choice in choices if choice.release}
    if summary.acceptance is None and len(releases) == 1:
        chosen += ["--release", *releases]
    # Otherwise the cases would be judged by other numbers than before.
    numbers = {choice.own for choice in choices if choice.own}
    chosen += [word for own in numbers for word in ("--site-baselines", own)]
    if any(choice.strict_last for choice in choices):
        chosen.append("--strict-last")
    more = ["--site", options.site, "--results", str(folder.parent), "--resume", folder.name]
    command = [sys.executable, "-m", "pytest", *chosen, *more, "--isolate", options.gpu_hours]
    print(shlex.join(command), flush=True)
    os.execv(sys.executable, command)


COMMANDS = {
    "compare": Command(
        "compare the paces of two runs, case by case, and say what else changed", _compare_arguments, _compare
    ),
    "isolate": Command(
        "find the nodes that slow the cases of a run that were too slow, without running these first",
        _isolate_arguments,
        _isolate,
    ),
}
