"""A case whose pace is not judged: it is judged by whether it left its profiles or its trace on the cluster. Pure."""

from __future__ import annotations

from plugins.judging import modes
from plugins.judging.evidence import Evidence
from plugins.judging.identity import identity_line
from plugins.judging.job_words import job_lines, remarks
from plugins.judging.judgement import Finding
from plugins.judging.verdicts import Verdict
from plugins.recipes.cases import Case
from plugins.record.verdict import Kind


def takes(case: Case) -> bool:
    """Whether the case is judged by its files alone."""
    return case.leaves_files


def problems(evidence: Evidence) -> list[str]:
    """The reasons why its files are not what its mode is for."""
    site = evidence.site
    return modes.problems(evidence.case, evidence.artefacts, nodes=site.nodes, network=site.network)


def left_lines(evidence: Evidence) -> list[str]:
    """What there is of its files."""
    if evidence.artefacts is None:
        return []
    return modes.explain(evidence.case, evidence.log, evidence.artefacts)


def judge(evidence: Evidence) -> Finding:
    """A run in another mode passes if its files are there."""
    case, log, artefacts = evidence.case, evidence.log, evidence.artefacts
    assert artefacts is not None
    headline = f"{Kind.PASSED}: {modes.headline(case, artefacts)}"
    details = (*left_lines(evidence), identity_line(case, log), *job_lines(evidence.outcome))
    return Finding(Verdict(Kind.PASSED, headline, remarks(evidence)), details, artefacts=artefacts)
