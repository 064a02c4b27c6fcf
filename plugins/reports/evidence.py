"""The digests of what the jobs of a run left in its folder: of the logs that nobody judges, too."""

from __future__ import annotations

import contextlib
import hashlib
from pathlib import Path

from plugins.record.folder import ALLURE, ARTEFACTS, BASIS, ERRORS, SENT

# Folders of a run that are no recipe's.
_OTHER = (ALLURE, BASIS)
_LOGS = "log"
_NAMES = (SENT, ERRORS, ARTEFACTS)


def digests(run: Path) -> dict[str, str]:
    """The SHA-256 of each log, of what was sent and of the errors of each job, by the path in the run's folder.

    A file that cannot be read is left out: it must not cost the record.
    """
    found = {}
    for path in sorted(run.glob("*/*/**/*")):
        name = path.relative_to(run)
        if name.parts[0] in _OTHER or not (path.name.startswith(_LOGS) or path.name in _NAMES):
            continue
        with contextlib.suppress(OSError):
            if path.is_file() and not path.is_symlink():
                with path.open("rb") as file:
                    found[str(name)] = hashlib.file_digest(file, "sha256").hexdigest()
    return found
