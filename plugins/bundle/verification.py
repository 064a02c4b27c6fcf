"""Opens a bundle, and checks its signatures, its time stamp, its members and what they say."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plugins.base.errors import ConfigError
from plugins.baselines.baseline_file import ACCELERATORS, accelerators, load_baselines
from plugins.bundle import statement
from plugins.bundle.archive import Archive, digest, rewrite
from plugins.bundle.examination import MOST_BYTES, examine
from plugins.bundle.findings import Examination
from plugins.recipes.expansion import load_recipe
from plugins.reports.checkout import PUBLISHED, VERSION

if TYPE_CHECKING:
    from cryptography.x509 import Certificate
    from securesystemslib.dsse import Envelope

MOST_STAMP = 1 << 20

_RUN = re.compile(r"\w[\w.-]{0,99}", re.ASCII)


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
    unknown = len(envelope.signatures.keys() - {key.id for key in keys})
    if not keys:
        carried = "it carries no signature"
        if unknown:
            carried = f"it carries {unknown} signature(s)"
        findings.cannot.append(f"no --key was given, and {carried}: who made this bundle is not known")
    elif unknown:
        findings.notes.append(f"{unknown} more signature(s), by keys that were not given: not checked")


def check_stamp(bundle: Bundle, roots: Sequence[Certificate], findings: Examination) -> None:
    if statement.STAMP not in bundle.archive.names:
        if roots:
            findings.wrong.append("--tsa was given, and it carries no time stamp")
        return
    try:
        answer = bundle.archive.read(statement.STAMP, MOST_STAMP)
        when = statement.time_of(answer, bundle.envelope.payload, roots)
    except ConfigError as error:
        findings.wrong.append(str(error))
        return
    by = "by an authority of --tsa" if roots else "and nobody knows who says so: no --tsa was given"
    findings.notes.append(f"the statement was there on {when:%Y-%m-%d at %H:%M:%S} UTC, {by}")


def supplied(folder: Path) -> Path:
    """A verifier's own folder of suites and baselines. Raises ConfigError if it has none, or one of its own recipes is wrong."""
    recipes = sorted((folder / "suites").glob("*/recipe.yaml"))
    if not recipes or not (folder / "baselines" / ACCELERATORS).exists():
        raise ConfigError(
            f"--recipes {folder}: lacks suites/NAME/recipe.yaml or baselines/{ACCELERATORS}: name a folder that has them as a "
            "checkout of Pacemark does"
        )
    accelerators(folder / "baselines")
    for name in (path.parent.name for path in recipes):
        if not (PUBLISHED / "suites" / name).is_dir():
            load_recipe(folder / "suites" / name)
            if (folder / "baselines" / f"{name}.yaml").exists():
                load_baselines(folder / "baselines" / f"{name}.yaml")
    return folder


def check_files(bundle: Bundle, findings: Examination, *recipes: Path) -> None:
    """The members are those of the statement, and what they say is so. `recipes` is what the verifier supplies."""
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
        examine(bundle.folder, bundle.predicate, (PUBLISHED, *recipes), findings)
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        # Files that somebody made may be wrong in any way.
        findings.wrong.append(f"its files are none of Pacemark's: {error}")
        return
    made = bundle.predicate.get("pacemark")
    if made != VERSION and len(findings.wrong) > before:
        findings.cannot.append(
            f"the run was made with Pacemark {made}, and this is {VERSION}: with another one its records may differ"
        )
