"""Every error that Pacemark raises on purpose.

    PacemarkError
    ├── ConfigError            a file or an option is wrong: which file, which line, what was meant
    └── RunError               a case could not be brought to a judgement
        ├── Invalid            it ran, but something else or not all of it
        ├── Infrastructure     submit, queue, node, network or storage
        │   ├── SiteError      the site lacks something; names the command that mends it
        │   │   └── Unprovisioned  and --provision would make it, or go on making it
        │   ├── SubmitError    the cluster refused the job
        │   └── Unreachable    the cluster cannot be asked right now
        │       └── Denied     and will not be, until somebody mends the access: login, host key
        └── Lost               the cluster cannot say what became of the job

A message says what was tried, what came back and what to do. It never carries a secret.
"""

from __future__ import annotations

from plugins.words import shown


class PacemarkError(Exception):
    """Root of the tree; shown to the user without a traceback, and without what a terminal would obey."""

    def __str__(self) -> str:
        return shown(super().__str__())


class ConfigError(PacemarkError):
    """A file or an option is wrong. The message starts with `file:line:` where there is a file."""


class RunError(PacemarkError):
    """A case could not be brought to a judgement of its speed."""


class Invalid(RunError, AssertionError):
    """The job ran, but it ran something else, or not all of it."""


class Infrastructure(RunError):
    """Submit, queue, node, network or storage failed; says nothing about the pace of the cluster."""


class SiteError(Infrastructure):
    """Something that the recipe needs is missing on the site; the message has the command that mends it."""


class Unprovisioned(SiteError):
    """All that is missing is what the recipe's own set-up makes, so that it may be run for it."""


class SubmitError(Infrastructure):
    """The cluster refused the job, or what it answered names no job.

    `may_run`: it may have made one all the same, whose end was asked for but not confirmed.
    """

    def __init__(self, message: str, *, may_run: bool = False) -> None:
        super().__init__(message)
        self.may_run = may_run


class Unreachable(Infrastructure):
    """The cluster cannot be asked now. Never a statement about a job."""


class Denied(Unreachable):
    """The cluster refuses the login, or its host key is not the known one; asking again does not help.

    What was asked before may have been carried out all the same.
    """


class Lost(RunError):
    """The cluster cannot say what became of the job, and neither can its log."""
