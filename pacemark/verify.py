"""`verify BUNDLE`: whether these parties signed it, whether it is complete, and whether its logs say what it says."""

from __future__ import annotations

import argparse
from pathlib import Path

from plugins.bundle import statement
from plugins.bundle.findings import Examination, print_findings, print_line
from plugins.bundle.limit import add_argument, within
from plugins.bundle.verification import check_files, check_signatures, check_stamp, opened
from plugins.errors import ConfigError

HELP = "verify a bundle without network and cluster: signatures, completeness, and every verdict anew from the logs"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("bundle", type=Path, metavar="BUNDLE", help="the file that `bundle` wrote")
    parser.add_argument(
        "--key",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="the public key of a party that must have signed; may be given several times",
    )
    parser.add_argument(
        "--tsa",
        type=Path,
        metavar="FILE",
        help="the root certificates of the time-stamping authority that must have stamped it",
    )
    add_argument(parser)


def run(options: argparse.Namespace) -> int:
    """Print what was found. Returns 0 if the bundle is verified, 1 if it is not, 2 if that cannot be told."""
    keys = [statement.PublicKey(path) for path in options.key]
    if len({key.id for key in keys}) < len(keys):
        raise ConfigError("--key: two of these files have the same key: each party has its own")
    roots = statement.load_roots(options.tsa) if options.tsa is not None else []
    if not options.bundle.exists():
        raise ConfigError(f"{options.bundle}: there is no such file")
    if not options.bundle.is_file():
        raise ConfigError(f"{options.bundle}: is no file")
    findings = Examination()
    try:
        with within(options.seconds, findings), opened(options.bundle) as bundle:
            print_line("bundle", bundle.said)
            check_signatures(bundle.envelope, keys, findings)
            check_stamp(bundle, roots, findings)
            check_files(bundle, findings)
    except statement.NewerFormat as error:
        findings.cannot.append(str(error))
    except ConfigError as error:
        findings.wrong.append(str(error))
    except OSError as error:
        findings.cannot.append(f"it cannot be read: {error}")
    print_findings(findings)
    if findings.wrong:
        print_line("result", "NOT VERIFIED")
        return 1
    if findings.cannot:
        print_line("result", "CANNOT TELL")
        return 2
    print_line("result", f"VERIFIED: signed by {' and '.join(str(key.path) for key in keys)}")
    return 0
