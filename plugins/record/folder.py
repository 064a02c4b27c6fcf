"""The folder of a run, `results/<run>/`, and that of a case in it, `<run>/<recipe>/<case>/`: their names and paths.

docs/results.md tells what each file has.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import stat
from pathlib import Path

# In the folder of a run.
SUMMARY = "summary.json"
CTRF = "ctrf.json"
METRICS = "metrics.txt"
ALLURE = "allure"
"""The folder with Allure's results."""
NODES = "nodes.json"
"""The nodes of a screening."""
BASIS = "basis"
"""What the cases were judged by: the folders `choices`, `suites` and `baselines`, and the site's own baselines in `own`."""

# In the folder of a case.
CASE = "case.json"
STEPS = "steps.csv"
LOG = "log.txt"
OWN_LOG = "log.own.txt"
"""The job's own log, if another log is judged in its place."""
EARLIER_LOG = "log.earlier.txt"
ERRORS = "errors.txt"
GPUS_TABLE = "gpus.csv"
GPUS_PLOT = "gpus.svg"
FAILING_NODES = "failing_nodes.txt"
PASSING_NODES = "passing_nodes.txt"
SENT = "sent.txt"
ARTEFACTS = "artefacts.json"

LATEST = "latest"
"""The link beside the runs to the newest one."""

_LOGS = "log*"
# What a job left: its logs, and these.
_LEFT = (SENT, ERRORS, ARTEFACTS)


def make_private(folder: Path) -> None:
    """Make a run's folder, or take the one that this user made before, and close it to other users.

    A log may hold what others must not read. Raises OSError if the folder cannot be made, or is somebody
    else's.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
        raise PermissionError(f"{folder} is a link, or belongs to another user")
    if stat.S_IMODE(status.st_mode) != 0o700:
        # Allure may have made it first, with the permissions of the umask.
        folder.chmod(0o700)


def point_latest(folder: Path) -> None:
    """Let the link `latest` beside the run point at it. Raises OSError if it is no link."""
    latest = folder.parent / LATEST
    if not latest.is_symlink() and latest.exists():
        raise FileExistsError(f"{latest} is no link to a run; move it away")
    link = folder.parent / f".latest-{os.getpid()}"
    link.unlink(missing_ok=True)
    link.symlink_to(folder.name)
    link.replace(latest)


def past_latest(path: Path) -> Path:
    """The same path with the run's own name in the place of `latest`, which the next session points at its own run."""
    for link in (path, *path.parents):
        if link.name == LATEST and link.is_symlink():
            return link.resolve() / path.relative_to(link)
    return path


def make_case_folder(folder: Path) -> None:
    """Make the folder of a case, `run/recipe/case`. The run's folder must exist.

    Raises FileNotFoundError if it does not. A new one would be open to other users, and have no log of jobs.
    """
    if not folder.is_dir():
        folder.parent.mkdir(exist_ok=True)
        folder.mkdir(exist_ok=True)


def try_folder(folder: Path, number: int) -> Path:
    """The folder for the files of this try of a case, once another try follows. `folder` is the case's."""
    return folder / f"try-{number}"


def keep_try(folder: Path, number: int) -> None:
    """Move what was sent and read of this try out of the way of the next one, whose log will be in `folder`."""
    target = try_folder(folder, number)
    target.mkdir(parents=True, exist_ok=True)
    for path in [*(folder / name for name in _LEFT), *folder.glob(_LOGS)]:
        if path.exists():
            shutil.move(path, target / path.name)


def digests(run: Path) -> dict[str, str]:
    """The SHA-256 of each log, of what was sent and of the errors of each job, by the path in the run's folder.

    Also of the logs that nobody judges. A file that cannot be read is left out: it must not cost the record.
    """
    known = {}
    for path in sorted(run.glob("*/*/**/*")):
        name = path.relative_to(run)
        of_job = path.name in _LEFT or path.match(_LOGS)
        if name.parts[0] in (ALLURE, BASIS) or not of_job:
            continue
        with contextlib.suppress(OSError):
            if path.is_file() and not path.is_symlink():
                with path.open("rb") as file:
                    known[str(name)] = hashlib.file_digest(file, "sha256").hexdigest()
    return known
