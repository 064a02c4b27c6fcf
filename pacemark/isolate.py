"""`isolate RUN GPU_HOURS`: probes the nodes of a run's cases that were too slow."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from pathlib import Path

from fixtures.runs.folders import find_run
from plugins.errors import ConfigError
from plugins.record.folder import FAILING_NODES
from plugins.record.stored import read_summary
from plugins.record.verdict import Kind
from plugins.rejudge import Basis
from plugins.reports.checkout import CHECKOUT

HELP = "find the nodes that slow the cases of a run that were too slow, without running these first"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="the folder of a run, its name, or latest")
    parser.add_argument("gpu_hours", metavar="GPU_HOURS", help="how much all probes and proofs may cost")
    parser.add_argument("--site", metavar="FILE", required=True, help="the site file of the run")
    parser.add_argument("--results", type=Path, default=Path("results"), metavar="DIR", help="where runs are")
    parser.add_argument(
        "-k", dest="case", default="", metavar="CASE", help="only cases with this in their names"
    )


def run(options: argparse.Namespace) -> int:
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
