"""The ledger in a bundle: its rows as JSON. SQLite's file is left out, because nobody should open one of a stranger."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, Field, ValidationError

from fixtures.runs.journal import Key, Row, key_of
from fixtures.runs.ledger import Entry, entry_of
from plugins.errors import ConfigError
from plugins.record.job import Failure, Phase
from plugins.yamlfile import Strict, first_mistake

EXPORT = "ledger.json"


def _texts(text: str) -> str:
    found = json.loads(text)
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        raise ValueError("no list of texts in JSON")
    return text


# They are names of folders.
Name = Annotated[str, Field(pattern=r"^\w[\w.+-]*$")]
CaseId = Annotated[str, Field(pattern=r"^\w[\w.+-]*(/\w[\w.+-]*)?$")]
Texts = Annotated[str, AfterValidator(_texts)]


class RunRow(Strict):
    """The columns of the table `run`."""

    id: Name
    site: str
    host: str
    pid: int
    process: str
    home: str
    started: float
    ended: float | None
    plan: str = ""


class Submission(Strict):
    """The columns of the table `submission` (`fixtures.runs.ledger`)."""

    recipe: Name
    case_id: CaseId
    try_number: int = Field(ge=1)
    backend: str
    location: str
    gpus: int = Field(ge=0)
    status: str
    name: str
    id: str
    folder: str
    kind: str
    renamed: str = ""
    phase: Phase
    raw: str
    reason: str
    nodes: str
    exit_code: str
    images: Texts
    hopeless: int
    submitted: float | None
    started: float | None
    ended: float | None
    earlier_seconds: float = Field(ge=0)
    cancel_asked: float | None
    cancel_confirmed: float | None
    attempts: int
    excluded: Texts
    log_note: str
    log_fault: str = ""
    failure: Failure
    message: str
    revision: int


class Export(Strict):
    """A ledger: the row of its run, and a row for each submission."""

    run: RunRow
    submissions: tuple[Submission, ...] = Field(strict=False)

    @property
    def rows(self) -> dict[Key, Row]:
        rows = (submission.model_dump(mode="json") for submission in self.submissions)
        return {key_of(row): row for row in rows}

    @property
    def tries(self) -> dict[str, list[Entry]]:
        """The submissions by the key of their case, oldest first; also those that are no case's own."""
        found: dict[str, list[Entry]] = {}
        for _, row in sorted(self.rows.items(), key=lambda pair: pair[0][2]):
            entry = entry_of(row)
            found.setdefault(entry.case, []).append(entry)
        return found

    @property
    def entries(self) -> list[Entry]:
        """All submissions, those of a case together."""
        return [entry for tries in self.tries.values() for entry in tries]


def named(entry: Entry) -> str:
    """A submission in words."""
    return f"{entry.case} try {entry.try_number}"


def exported(run: Mapping[str, Any], rows: Iterable[Row]) -> bytes:
    return json.dumps({"run": run, "submissions": list(rows)}, indent=1).encode() + b"\n"


def read_export(data: bytes) -> Export:
    """Raises ConfigError."""
    try:
        found = Export.model_validate_json(data)
    except (ValidationError, RecursionError) as error:
        why = first_mistake(error) if isinstance(error, ValidationError) else "it is too deep"
        raise ConfigError(f"{EXPORT}: is no ledger: {why}") from None
    if len(found.rows) < len(found.submissions):
        raise ConfigError(f"{EXPORT}: two rows are of one submission")
    return found
