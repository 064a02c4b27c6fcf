"""What a run left on the cluster besides its log, as the backend found it. Pure.

A backend writes it as JSON into the case's folder (`ARTEFACTS`). It comes from a cluster, so it may be wrong
in any way.
"""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field, ValidationError

from plugins.base.errors import Infrastructure
from plugins.base.words import first_of, shown
from plugins.base.yamlfile import Strict, first_mistake
from plugins.modes.profiles import ProfileDigest
from plugins.modes.traces import NcclDigest
from plugins.record.case import File
from plugins.record.folder import ARTEFACTS


class Artefacts(Strict):
    """The files of one folder, and what is known of them.

    `host` and `folder` say where they are. `begun` is when the job was submitted, by the same clock as the
    files' times; None if that is not known. `free` are the bytes that are free on the file system, where that
    was asked. `profiles` and `trace` are the digests of the files. `notes` say what could not be found out,
    and why.
    """

    host: str
    folder: str
    begun: float | None = Field(default=None, lt=1e15)
    free: int | None = Field(default=None, lt=1 << 63)
    files: tuple[File, ...] = Field(default=(), strict=False)
    profiles: tuple[ProfileDigest, ...] = Field(default=(), strict=False)
    trace: NcclDigest | None = None
    notes: tuple[str, ...] = Field(default=(), strict=False)

    @property
    def own(self) -> list[File]:
        """The files that the job itself wrote; none if it is not known when it was submitted."""
        return [file for file in self.files if self.begun is not None and file.modified >= self.begun]


def parse_artefacts(data: str | bytes) -> Artefacts:
    """The artefacts in this JSON. Raises Infrastructure if it is damaged."""
    try:
        return Artefacts.model_validate_json(data)
    except ValidationError as error:
        raise Infrastructure(f"{ARTEFACTS} is damaged: {first_mistake(error)}") from None


def are(things: Sequence[object]) -> str:
    """The verb of a sentence about so many things."""
    return "is" if len(things) == 1 else "are"


def few(names: list[str]) -> str:
    """The first of these names, and how many more there are."""
    return shown(first_of(names, 3))
