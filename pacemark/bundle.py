"""`bundle RUN`: one archive of a run that anyone can verify, with a statement that its parties sign."""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import stat
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from ahocorasick_rs import BytesAhoCorasick

from fixtures.backends.redaction import forms
from fixtures.runs.folders import find_run
from fixtures.runs.lock import RunLock
from fixtures.runs.opening import damage_of, read_ledger
from plugins.bundle import archive, limit, statement
from plugins.bundle.examination import OF_RUN
from plugins.bundle.findings import Examination, print_findings, print_line
from plugins.bundle.statement import SBOM, bill
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


# A line beyond this length is looked at in parts, which overlap.
_LONGEST = 1 << 16
_OVERLAP = 1 << 10

_KINDS = {
    "a private key": rb"-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----",
    # In Base64, as in a kubeconfig: PRIVATE, RSA, EC, OPENSSH or ENCRYPTED.
    "an encoded private key": rb"LS0tLS1CRUdJTiB(QUklW|SU0Eg|FQyBQ|PUEVO|FTkNS)",
    "a token of Hugging Face": rb"\bhf_[A-Za-z0-9]{30,}\b",
    "a token of GitHub": rb"\b(gh[pousr]_[A-Za-z0-9]{36,}|github_pat_[A-Za-z0-9_]{60,})\b",
    "a token of GitLab": rb"\bglpat-[A-Za-z0-9_-]{20,}",
    "a key of NGC": rb"\bnvapi-[A-Za-z0-9_-]{40,}",
    "a token of Slack": rb"\bxox[abprs]-[A-Za-z0-9-]{10,}",
    "a key of AWS": rb"\b(AKIA|ASIA)[A-Z0-9]{16}\b",
    "a key of Google": rb"\bAIza[A-Za-z0-9_-]{35}\b",
    "an access token of Google": rb"\bya29\.[A-Za-z0-9_-]{20,}",
    "a key of an API": rb"\bsk-[A-Za-z0-9_-]{32,}",
    "a JSON web token": rb"\beyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}",
    "a password in a URL": rb"\b[a-z][a-z0-9+.-]*://[^\s/:@]*:(?!\*|<|\$)[^\s/@]{3,}@",
    "a header with credentials": rb"(?i)\bauthorization[\"']?\s*[:=]\s*[\"']?(bearer|basic|token)\s+[A-Za-z0-9._~+/=-]{12,}",
    "a registry's password": rb"\"auth\"\s*:\s*\"[A-Za-z0-9+/=]{20,}\"",
    "a password of .netrc": rb"\blogin\s+\S+\s+password\s+[^\s<$*]{4,}",
    "a signed URL": rb"(?i)[?&](sig|x-amz-signature|x-goog-signature)=[A-Za-z0-9%+/]{20,}",
    # Not `<NAME>`, `$NAME` or `***`, which stand for one.
    "a password by its name": rb"(?i)\b\w*passw(or)?d[\"']?\s*[:=]\s*[\"']?(?=[^\s\"']*\d)(?=[^\s\"']*[a-z])[^\s\"'<$*{]{6,}",
    "a secret by its option": rb"(?i)(?<!\S)--([a-z0-9]+-)*(passw(or)?d|token|secret|api-?key)[ =][\"']?(?=[^\s\"']*\d)(?=[^\s\"']*[a-z])[^\s\"'<$*{]{6,}",
    "a secret by its name": rb"(?i)\b\w*(password|passwd|secret|token|(api|access|account)[_-]?key)[\"']?\s*[:=]\s*[\"']?(?=[^\s\"']*\d)(?=[^\s\"']*[a-z])[A-Za-z0-9+/_~.-]{20,}",
}
_PATTERNS = {label: re.compile(pattern) for label, pattern in _KINDS.items()}
# Each pattern needs one of these, in small letters: most lines have none, and are looked at once.
_LIKELY = BytesAhoCorasick(
    b"key token secret passw auth :// eyj hf_ ghp_ gho_ ghu_ ghs_ ghr_ github_pat_ glpat- nvapi- xox akia asia aiza ya29. sk- ls0tls1 sig= signature=".split()
)
_NAMED = re.compile(r"(?i)(token|secret|password|passwd|api_?key|access_?key)$")


def leaks(path: Path) -> Iterator[tuple[int, str]]:
    """The number of each line that has what looks like a secret, and what it looks like. Raises OSError."""
    secrets = {name: forms(value.strip()) for name, value in os.environ.items() if _NAMED.search(name)}
    known = [(form, f"the value of {name}") for name, spellings in secrets.items() for form in spellings]
    with path.open("rb") as file:
        number, tail = 1, b""
        while piece := file.readline(_LONGEST):
            text = tail + piece
            label = _what(text, known)
            if label:
                yield number, label
            if piece.endswith(b"\n"):
                number, tail = number + 1, b""
            else:
                tail = text[-_OVERLAP:]


def _what(text: bytes, known: list[tuple[bytes, str]]) -> str:
    for form, label in known:
        if form in text:
            return label
    small = text.lower()
    if _LIKELY.find_matches_as_indexes(small):
        for label, pattern in _PATTERNS.items():
            if pattern.search(text):
                return label
    return ""
