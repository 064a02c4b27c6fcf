"""Every error that Pacemark raises on purpose.

    PacemarkError
    ├── ConfigError            a file or an option is wrong: which file, which line, what was meant
    └── RunError               a case could not be brought to a judgement
        ├── Invalid            it ran, but something else or not all of it
        ├── Shortfall          several cases fall short together: in their scaling, or a node beside others
        ├── Infrastructure     submit, queue, node, network or storage
        │   ├── SiteError      the site lacks something; names the command that mends it
        │   │   └── Unprovisioned  and --provision makes all that is missing
        │   ├── SubmitError    the cluster refused the job
        │   └── Unreachable    the cluster cannot be asked right now
        │       ├── Absent     nobody answers at its address: unknown name, refused port
        │       └── Denied     and will refuse until somebody repairs the access: login, host key
        └── Lost               the cluster cannot say what became of the job

A message says what was tried, what came back and what to do. It never contains a secret.
"""

from __future__ import annotations

from plugins.base.words import shown


class PacemarkError(Exception):
    """Root of the tree. The user sees its text without a traceback, and harmless to a terminal."""

    def __str__(self) -> str:
        return shown(super().__str__())


class ConfigError(PacemarkError):
    """A file or an option is wrong. If it is a file, the message starts with `file:line:`."""


class RunError(PacemarkError):
    """A case could not be judged by its speed."""


class Invalid(RunError, AssertionError):
    """The job ran, but it ran something else, or not all of it."""


class Shortfall(RunError, AssertionError):
    """The scaling of several cases falls short of its limit, a node of its peers, or the scaling cannot be told."""


class Infrastructure(RunError):
    """Submit, queue, node, network or storage failed. It says nothing about the cluster's pace."""


class SiteError(Infrastructure):
    """The site lacks something that the recipe needs. The message has the command that provides it."""


class Unprovisioned(SiteError):
    """All that is missing is made by the recipe's own set-up, so the set-up may run."""


class SubmitError(Infrastructure):
    """The cluster refused the job, or its answer names no job.

    `may_run`: the cluster may have made a job all the same. Its end was asked for, but not confirmed.
    """

    def __init__(self, message: str, *, may_run: bool = False) -> None:
        super().__init__(message)
        self.may_run = may_run


class Unreachable(Infrastructure):
    """The cluster cannot be asked now. This says nothing about a job. `sent`: the request may have reached it."""

    sent = True


class Unsent(Unreachable):
    """Nothing of a submission was sent, so that it made no job."""


class Busy(Unreachable):
    """The cluster answers, and wants to be asked later. So it is there, and access to it is not denied."""


class Absent(Unreachable):
    """Nobody answers at the cluster's address: its name is not known, or the port is refused.

    If the cluster answered before in this session, it may come back. Otherwise the address is wrong.
    """


class Denied(Unreachable):
    """The cluster refuses the login, or its host key is not the known one. Asking again does not help.

    An earlier request may have been carried out all the same.
    """


class Lost(RunError):
    """Neither the cluster nor the log says what became of the job."""
