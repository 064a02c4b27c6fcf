"""`verify BUNDLE`: whether these parties signed it, whether it is complete, and whether its logs say what it says."""

from __future__ import annotations

import argparse
import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pacemark.limit import add_argument, within
from plugins.bundle import statement
from plugins.bundle.archive import Archive, digest, rewrite
from plugins.bundle.examination import MOST_BYTES, examine
from plugins.bundle.findings import Examination, print_findings, print_line
from plugins.errors import ConfigError
from plugins.reports.checkout import CHECKOUT, VERSION

if TYPE_CHECKING:
    from cryptography.x509 import Certificate
    from securesystemslib.dsse import Envelope

HELP = "verify a bundle without network and cluster: signatures, completeness, and every verdict anew from the logs"

MOST_STAMP = 1 << 20

_RUN = re.compile(r"\w[\w.-]{0,99}", re.ASCII)
_INSTALLED = Path(__file__).parent / "published"
PUBLISHED = _INSTALLED if _INSTALLED.is_dir() else CHECKOUT
"""Where the suites and baselines are that Pacemark itself has."""


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


def run(given: argparse.Namespace) -> int:
    """Print what was findings. Returns 0 if the bundle is verified, 1 if it is not, 2 if that cannot be told."""
    keys = [statement.PublicKey(path) for path in given.key]
    if len({key.id for key in keys}) < len(keys):
        raise ConfigError("--key: two of these files have the same key: each party has its own")
    roots = statement.load_roots(given.tsa) if given.tsa is not None else []
    if not given.bundle.is_file():
        none = "is no file" if given.bundle.exists() else "there is no such file"
        raise ConfigError(f"{given.bundle}: {none}")
    findings = Examination()
    try:
        with within(given.seconds, findings), opened(given.bundle) as bundle:
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


@dataclass(frozen=True)
class Bundle:
    """A bundle that was opened: its statement, and its members in `folder`, whose name is that of the run."""

    archive: Archive
    envelope: Envelope
    digests: dict[str, str]
    predicate: dict[str, Any]
    folder: Path

    @property
    def said(self) -> str:
        made = self.predicate
        return f"run {self.folder.name} on site {made.get('site')}, made by Pacemark {made.get('pacemark')}"

    def put(self, name: str, content: bytes) -> None:
        """Write the bundle anew with this member. Raises OSError; then it stays as it is."""
        members: dict[str, Path | bytes] = {member: self.folder / member for member in self.archive.names}
        rewrite(self.archive.path, {**members, name: content})


@contextmanager
def opened(path: Path) -> Iterator[Bundle]:
    """Open a bundle, and read its members into a folder that is removed afterwards.

    Raises ConfigError if the archive or the statement is damaged or means harm, and OSError.
    """
    archive = Archive(path)
    envelope, digests, predicate = statement.read(archive.read(statement.ENVELOPE, MOST_BYTES))
    name = predicate.get("run")
    if not isinstance(name, str) or not _RUN.fullmatch(name):
        raise ConfigError(f"{statement.ENVELOPE}: its statement names no run")
    with tempfile.TemporaryDirectory(prefix="pacemark-") as above:
        folder = Path(above) / name
        folder.mkdir()
        archive.extract(folder)
        yield Bundle(archive, envelope, digests, predicate, folder)


def check_signatures(envelope: Envelope, keys: Sequence[statement.PublicKey], findings: Examination) -> None:
    findings.wrong += filter(None, (key.why_not(envelope) for key in keys))
    others = len(envelope.signatures.keys() - {key.id for key in keys})
    if not keys:
        carried = f"it carries {others} signature(s)" if others else "it carries no signature"
        findings.cannot.append(f"no --key was given, and {carried}: who made this bundle is not known")
    elif others:
        findings.notes.append(
            f"{others} more signature(s), by keys that were not given: whether they are any is not known"
        )


def check_stamp(bundle: Bundle, roots: Sequence[Certificate], findings: Examination) -> None:
    if statement.STAMP not in bundle.archive.names:
        findings.wrong += ["--tsa was given, and it carries no time stamp"] if roots else []
        return
    try:
        answer = bundle.archive.read(statement.STAMP, MOST_STAMP)
        when = statement.time_of(answer, bundle.envelope.payload, roots)
    except ConfigError as error:
        findings.wrong.append(str(error))
        return
    by = "by an authority of --tsa" if roots else "and nobody knows who says so: no --tsa was given"
    findings.notes.append(f"the statement was there on {when:%Y-%m-%d at %H:%M:%S} UTC, {by}")


def check_files(bundle: Bundle, findings: Examination) -> None:
    """The members are those of the statement, and what they say is so."""
    findings.doing = "the digests of its members"
    names = set(bundle.archive.names) - {statement.ENVELOPE, statement.STAMP}
    findings.wrong += [
        f"{name} is missing: the statement names it" for name in sorted(bundle.digests.keys() - names)
    ]
    findings.wrong += [
        f"{name} is not in the statement: it was added" for name in sorted(names - bundle.digests.keys())
    ]
    for name in sorted(names & bundle.digests.keys()):
        if digest(bundle.folder / name) != bundle.digests[name]:
            findings.wrong.append(f"{name} is not what was signed: its SHA-256 is another one")
    before = len(findings.wrong)
    try:
        examine(bundle.folder, bundle.predicate, PUBLISHED, findings)
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        # Files that somebody made may be wrong in any way.
        findings.wrong.append(f"its files are none of Pacemark's: {error}")
        return
    made = bundle.predicate.get("pacemark")
    if made != VERSION and len(findings.wrong) > before:
        findings.cannot.append(
            f"the run was made with Pacemark {made}, and this is {VERSION}: with another one its records may differ"
        )
