"""Commands on bundles: `bundle` writes a run into one archive, which others `verify`, `sign` and `stamp`.

A time-stamping authority answers a request, which has nothing of the bundle but a digest. No command asks one: the
user sends the request, and hands the answer in.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import stat
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from fixtures.runs.folders import find_run
from fixtures.runs.leaks import leaks
from fixtures.runs.ledger import damage_of, read_ledger
from fixtures.runs.lock import RunLock
from pacemark import Command
from plugins.base.errors import ConfigError
from plugins.base.files import below, from_here
from plugins.bundle import archive, statement
from plugins.bundle.examination import OF_RUN
from plugins.bundle.findings import SECONDS, Examination, add_seconds, print_findings, print_line, within
from plugins.bundle.statement import SBOM, STAMP, bill
from plugins.bundle.verification import check_files, check_signatures, check_stamp, opened, supplied
from plugins.record.folder import ALLURE, BASIS, GPUS_PLOT, GPUS_TABLE, STEPS, SUMMARY
from plugins.reports.checkout import VERSION

# What is made of the record is left out: nobody checks it, and a page may be anything.
_VIEWS = (STEPS, GPUS_TABLE, GPUS_PLOT)
_MOST_LEAKS = 20


def _bundle_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="the folder of a run, its name, or latest")
    parser.add_argument("--results", type=Path, default=Path("results"), metavar="DIR", help="where runs are")
    parser.add_argument(
        "--key",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="sign with this Ed25519 private key; may be given several times",
    )
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="the bundle (default: RUN.zip)")


def _bundle(options: argparse.Namespace) -> int:
    """Write the bundle. Returns 0. Raises ConfigError if the run is not fit for it; then nothing is written."""
    folder = find_run(options.results, options.run)
    output = options.output or Path(f"{folder.name}.zip")
    if output.exists():
        raise ConfigError(f"{output}: is there already: give another name with -o")
    lock = RunLock(folder)
    if not lock.look():
        raise ConfigError(f"run {folder.name} is still going on")
    temporary = output.with_name(f".{output.name}.{os.getpid()}.part")
    try:
        _write(folder, options.key, temporary)
        start = time.monotonic()
        findings = _examine(temporary)
        took = time.monotonic() - start
        if findings.wrong:
            lines = "\n  ".join(findings.wrong)
            raise ConfigError(
                f"run {folder.name} would not be verified, and no bundle was written:\n  {lines}\n"
                f"    if its session was cut off, --resume {folder.name} judges its cases"
            )
        os.link(temporary, output)
    except FileExistsError:
        raise ConfigError(f"{output}: is there already: give another name with -o") from None
    except OSError as error:
        # Otherwise it is a file of the run that cannot be read.
        if error.filename and str(error.filename) != str(temporary):
            raise
        raise ConfigError(f"{output}: cannot be written: {error.strerror}") from None
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()
        lock.release()
    print_findings(findings)
    if took > SECONDS / 2:
        print_line(
            "note",
            f"`verify` takes about {took:.0f} s on a machine like this one: give it --seconds {2 * took:.0f}",
        )
    print_line(
        "bundle", f"{from_here(output)}: {output.stat().st_size:,} bytes, signed by {len(options.key)} key(s)"
    )
    return 0


def _write(folder: Path, keys: list[Path], output: Path) -> None:
    ledger = read_ledger(folder)
    damage = damage_of(ledger)
    if damage:
        raise ConfigError(damage)
    run = ledger.run()
    if run.ended is None:
        raise ConfigError(
            f"run {folder.name} did not end: --resume {folder.name} goes on with it, --cancel {folder.name} ends its jobs"
        )
    if not (folder / SUMMARY).exists():
        raise ConfigError(f"run {folder.name} has no {SUMMARY}: --resume {folder.name} judges its cases")
    if not (folder / BASIS / "choices").exists():
        raise ConfigError(f"run {folder.name} has no {BASIS}/: it is from before there were bundles")
    members: dict[str, Path | bytes] = dict(_files(folder))
    _require_no_secret(folder)
    members[SBOM] = bill()
    predicate = {
        "run": folder.name,
        "site": run.site,
        "pacemark": VERSION,
        "bundled": datetime.now(UTC).isoformat(timespec="seconds"),
        "plan": run.plan,
    }
    envelope = statement.make({name: archive.digest(content) for name, content in members.items()}, predicate)
    for key in keys:
        statement.sign(envelope, key)
    archive.write(output, {**members, statement.ENVELOPE: statement.written(envelope)})


def _files(folder: Path) -> Iterator[tuple[str, Path]]:
    """The files of a run that go into its bundle, by name. Raises ConfigError if one is no plain file."""
    for path in sorted(below(folder)):
        name = path.relative_to(folder)
        of_run = len(name.parts) == 1 and name.name in OF_RUN
        if not of_run and (len(name.parts) == 1 or name.parts[0] == ALLURE or name.name in _VIEWS):
            continue
        mode = path.lstat().st_mode
        if stat.S_ISREG(mode):
            yield str(name), path
        elif not stat.S_ISDIR(mode):
            raise ConfigError(f"{path}: is no plain file: move it away")


def _require_no_secret(folder: Path) -> None:
    secrets = [
        f"{path}:{number}: looks like {label}" for _, path in _files(folder) for number, label in leaks(path)
    ]
    if secrets:
        more = f"\n  and {len(secrets) - _MOST_LEAKS} more" if len(secrets) > _MOST_LEAKS else ""
        lines = "\n  ".join(secrets[:_MOST_LEAKS])
        raise ConfigError(
            f"no bundle was written: a bundle goes to others, and this must not:\n  {lines}{more}"
        )


def _examine(path: Path) -> Examination:
    findings = Examination()
    with opened(path) as bundle:
        check_files(bundle, findings)
    return findings


def _sign_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("bundle", type=Path, metavar="BUNDLE", help="the file that `bundle` wrote")
    parser.add_argument(
        "--key",
        type=Path,
        action="append",
        required=True,
        metavar="FILE",
        help="an Ed25519 private key; may be given several times",
    )
    add_seconds(parser)


def _sign(options: argparse.Namespace) -> int:
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


def _stamp_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("bundle", type=Path, metavar="BUNDLE", help="the file that `bundle` wrote")
    choice = parser.add_mutually_exclusive_group(required=True)
    choice.add_argument("--request", type=Path, metavar="FILE", help="write the request for a time stamp")
    choice.add_argument("--answer", type=Path, metavar="FILE", help="put this answer to it into the bundle")


def _stamp(options: argparse.Namespace) -> int:
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


def _verify_arguments(parser: argparse.ArgumentParser) -> None:
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
    parser.add_argument(
        "--recipes",
        type=Path,
        metavar="DIR",
        help="your own suites/ and baselines/, for cases that this Pacemark does not have",
    )
    add_seconds(parser)


def _verify(options: argparse.Namespace) -> int:
    """Print what was found. Returns 0 if the bundle is verified, 1 if it is not, 2 if that cannot be told."""
    keys = [statement.PublicKey(path) for path in options.key]
    if len({key.id for key in keys}) < len(keys):
        raise ConfigError("--key: two of these files have the same key: each party has its own")
    roots = statement.load_roots(options.tsa) if options.tsa is not None else []
    recipes = [] if options.recipes is None else [supplied(options.recipes)]
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
            check_files(bundle, findings, *recipes)
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
    by = f", by recipes of {options.recipes}" if findings.supplied else ""
    print_line("result", f"VERIFIED: signed by {' and '.join(str(key.path) for key in keys)}{by}")
    return 0


COMMANDS = {
    "bundle": Command(
        "write a run into one archive that anyone can verify: logs, ledger, baselines, verdicts",
        _bundle_arguments,
        _bundle,
    ),
    "sign": Command(
        "add a signature to a bundle, once it is known to be whole and its verdicts are made anew",
        _sign_arguments,
        _sign,
    ),
    "stamp": Command(
        "ask for a time stamp of a bundle's statement, or put one into the bundle", _stamp_arguments, _stamp
    ),
    "verify": Command(
        "verify a bundle without network and cluster: signatures, completeness, and every verdict anew from the logs",
        _verify_arguments,
        _verify,
    ),
}
