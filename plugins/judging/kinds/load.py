"""A case that loads the checkpoint of another one: it is judged by whether the training goes on there. Pure."""

from __future__ import annotations

from plugins.judging import checkpoints
from plugins.judging.evidence import Evidence
from plugins.judging.identity import identity_line
from plugins.judging.job_words import job_lines, remarks
from plugins.judging.judgement import Finding
from plugins.judging.verdicts import Verdict
from plugins.recipes.cases import Case
from plugins.record.verdict import Kind


def takes(case: Case) -> bool:
    """Whether the case loads a checkpoint."""
    return case.after is not None


def problems(evidence: Evidence) -> list[str]:
    """The reasons why the log does not show that the checkpoint was loaded."""
    return checkpoints.load_problems(evidence.case, evidence.log, evidence.saved)


def left_lines(_: Evidence) -> list[str]:
    """Nothing: it leaves no files."""
    return []


def judge(evidence: Evidence) -> Finding:
    """A load passes if nothing is wrong with it."""
    case, log, saved = evidence.case, evidence.log, evidence.saved
    assert saved is not None
    headline = f"{Kind.PASSED}: {checkpoints.load_headline(case, log, saved)}"
    notes = (*checkpoints.load_remarks(log, saved), *remarks(evidence))
    return Finding(
        Verdict(Kind.PASSED, headline, notes), (identity_line(case, log), *job_lines(evidence.outcome))
    )
