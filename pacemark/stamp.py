"""`stamp BUNDLE`: a time stamp by RFC 3161, which shows that the statement was there by then.

A time-stamping authority answers a request, which has nothing of the bundle but a digest. Neither this command
nor `verify` asks one: the user sends the request, and hands the answer in.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from plugins.bundle import statement
from plugins.bundle.findings import print_line
from plugins.bundle.statement import STAMP
from plugins.bundle.verification import opened
from plugins.errors import ConfigError

HELP = "ask for a time stamp of a bundle's statement, or put one into the bundle"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("bundle", type=Path, metavar="BUNDLE", help="the file that `bundle` wrote")
    choice = parser.add_mutually_exclusive_group(required=True)
    choice.add_argument("--request", type=Path, metavar="FILE", help="write the request for a time stamp")
    choice.add_argument("--answer", type=Path, metavar="FILE", help="put this answer to it into the bundle")


def run(options: argparse.Namespace) -> int:
    """Write the request, or the bundle with the answer. Returns 0. Raises ConfigError or OSError."""
    from rfc3161_client import TimestampRequestBuilder

    with opened(options.bundle) as bundle:
        if options.request is not None:
            request = TimestampRequestBuilder().data(bundle.envelope.payload).build()
            with options.request.open("xb") as file:
                file.write(request.as_bytes())
            print_line(
                "request", f"{options.request}: send it to an authority, and its answer goes to --answer"
            )
            return 0
        if STAMP in bundle.archive.names:
            raise ConfigError(f"{options.bundle}: has a time stamp already")
        answer = options.answer.read_bytes()
        when = statement.time_of(answer, bundle.envelope.payload, name=str(options.answer))
        bundle.put(STAMP, answer)
        print_line("stamp", f"{when:%Y-%m-%d %H:%M:%S} UTC: `verify --tsa FILE` checks who says so")
    return 0
