"""`sign BUNDLE`: another party signs the statement that is in it."""

from __future__ import annotations

import argparse
from pathlib import Path

from plugins.bundle import statement
from plugins.bundle.findings import Examination, print_findings, print_line
from plugins.bundle.limit import add_argument, within
from plugins.bundle.verification import check_files, opened

HELP = "add a signature to a bundle, once it is known to be whole and its verdicts are made anew"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("bundle", type=Path, metavar="BUNDLE", help="the file that `bundle` wrote")
    parser.add_argument(
        "--key",
        type=Path,
        action="append",
        required=True,
        metavar="FILE",
        help="an Ed25519 private key; may be given several times",
    )
    add_argument(parser)


def run(options: argparse.Namespace) -> int:
    """Sign. Returns 0, or 1 if the bundle is not verified; then it stays as it is.

    Raises ConfigError or OSError.
    """
    findings = Examination()
    with opened(options.bundle) as bundle:
        print_line("bundle", bundle.said)
        with within(options.seconds, findings):
            check_files(bundle, findings)
        print_findings(findings)
        if findings.wrong or findings.cut_off:
            print_line("result", "not signed")
            return 1
        for key in options.key:
            statement.sign(bundle.envelope, key)
        bundle.put(statement.ENVELOPE, statement.written(bundle.envelope))
        print_line("result", f"signed: it carries {len(bundle.envelope.signatures)} signature(s)")
    return 0
