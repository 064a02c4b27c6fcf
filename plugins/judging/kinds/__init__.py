"""What each kind of case is judged by: a module for each, in the table `KINDS`. Pure."""

from __future__ import annotations

from typing import Protocol

from plugins.judging.evidence import Evidence
from plugins.judging.judgement import Conclusion
from plugins.judging.kinds import artefacts, load, save, timed
from plugins.recipes.cases import Case


class KindOfCase(Protocol):
    """What the judge asks the module of a kind of case."""

    def takes(self, case: Case) -> bool:
        """Whether a case is of this kind."""

    def problems(self, evidence: Evidence, /) -> list[str]:
        """The reasons why what the job left, besides its own log, is no evidence; empty if it is."""

    def left_lines(self, evidence: Evidence, /) -> list[str]:
        """The lines of the report on what the job left, if it is no evidence."""

    def judge(self, evidence: Evidence) -> Conclusion:
        """Judge a case whose evidence is valid."""


KINDS: tuple[KindOfCase, ...] = (save, load, artefacts, timed)
"""A case is of the first kind that takes it."""


def kind_of(case: Case) -> KindOfCase:
    """The kind of a case."""
    return next(kind for kind in KINDS if kind.takes(case))
