"""The digests that a site recorded: what a good run of a case left in another mode. Pure, but for their files.

A diagnosis sets a slow run's digests beside them. Each is a file of JSON below the site's own baselines.
"""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, ValidationError

from plugins.errors import ConfigError
from plugins.modes.profiles import ProfileDigest
from plugins.modes.traces import NcclDigest
from plugins.recipes.cases import Case
from plugins.yamlfile import Day, Stated, Strict, first_mistake

MOST_BYTES = 1_000_000
"""A larger digest is neither recorded nor read."""


class RecordedDigest(Strict):
    """The digests of one run of a case in a mode, and what they are comparable with.

    `gpu` is the type of GPU. `configuration` is the case's identity: the configuration and the model's shape.
    `run` is the name of the run's folder, `date` its day (UTC).
    """

    case: Stated
    release: Stated
    dtype: Stated
    gpu: Stated
    configuration: dict[str, int | str]
    run: Stated
    date: Day
    job: str
    nodes: str
    versions: dict[str, str]
    profiles: tuple[ProfileDigest, ...] = Field(default=(), strict=False)
    trace: NcclDigest | None = None

    @property
    def origin(self) -> str:
        """`run 20261121-094226-2019c4a7 (2026-11-21) on gpu[001-064]`."""
        nodes = f" on {self.nodes}" if self.nodes else ""
        return f"run {self.run} ({self.date}){nodes}"

    def unlike(self, case: Case, gpu: str) -> str:
        """What keeps these digests from being compared with those of this case; "" if nothing does."""
        pairs = {
            "release": (self.release, case.release),
            "dtype": (self.dtype, case.dtype),
            "type of GPU": (self.gpu, gpu),
        }
        ran = case.identity()
        for name in sorted(self.configuration.keys() | ran.keys()):
            pairs[name] = (str(self.configuration.get(name)), str(ran.get(name)))
        return next((f"{name} {old}, not {new}" for name, (old, new) in pairs.items() if old != new), "")


def path_of(folder: Path, case: Case) -> Path:
    """Where the digests of a case in a mode are, below the folder of the site's own baselines."""
    return folder / "digests" / case.recipe / f"{case.id}.json"


def load_digest(path: Path) -> RecordedDigest | None:
    """The recorded digests; None if there are none. Raises ConfigError if the file is damaged."""
    try:
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from None
    reason = f"has more than {MOST_BYTES:,} bytes"
    if len(data) <= MOST_BYTES:
        try:
            return RecordedDigest.model_validate_json(data)
        except ValidationError as error:
            reason = first_mistake(error)
    raise ConfigError(f"{path}: is no recorded digest: {reason}; remove it, and record it again")


def shelve_digest(
    old: RecordedDigest | None, new: RecordedDigest, *, replace: bool
) -> tuple[RecordedDigest, str]:
    """The digest to keep, and what was done, in words. The first one stays, unless it compares with nothing."""
    if old is None:
        return new, "digest recorded"
    if old.run == new.run:
        return old, "digest recorded by this run before"
    names = ("release", "dtype", "gpu", "configuration")
    changed = next((name for name in names if getattr(old, name) != getattr(new, name)), "")
    if not replace and not changed:
        return old, f"digest not replaced: that of {old.origin} stays; --replace-baselines takes the new one"
    because = f", which had another {changed}" if changed else ""
    return new, f"digest replaced: it takes the place of that of {old.origin}{because}"
