"""`bundle RUN`: one archive of a run that anyone can verify, with a statement that its parties sign."""

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
from fixtures.runs.lock import RunLock
from fixtures.runs.opening import damage_of, read_ledger
from pacemark.leaks import leaks
from plugins.bundle import archive, limit, statement
from plugins.bundle.examination import OF_RUN
from plugins.bundle.findings import Examination, print_findings, print_line
from plugins.bundle.sbom import SBOM, bill
from plugins.bundle.verification import check_files, opened
from plugins.errors import ConfigError
from plugins.files import below, from_here
from plugins.record.folder import ALLURE, BASIS, GPUS_PLOT, GPUS_TABLE, STEPS, SUMMARY
from plugins.reports.checkout import VERSION

HELP = "write a run into one archive that anyone can verify: logs, ledger, baselines, verdicts"

# What is made of the record is left out: nobody checks it, and a page may be anything.
_VIEWS = (STEPS, GPUS_TABLE, GPUS_PLOT)
_MOST_LEAKS = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
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


def run(options: argparse.Namespace) -> int:
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
        findings = _examined(temporary)
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
    if took > limit.SECONDS / 2:
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


def _examined(path: Path) -> Examination:
    findings = Examination()
    with opened(path) as bundle:
        check_files(bundle, findings)
    return findings
