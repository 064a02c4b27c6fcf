"""A case that writes a checkpoint: it is judged by the bandwidth that the shared storage promises. Pure."""

from __future__ import annotations

from plugins.judging import checkpoints, modes
from plugins.judging.evidence import Evidence
from plugins.judging.job_words import job_lines, remarks
from plugins.judging.judgement import Finding
from plugins.judging.verdicts import Verdict
from plugins.recipes.cases import Case


def takes(case: Case) -> bool:
    """Whether the case writes a checkpoint."""
    return case.checkpoint is not None


def problems(evidence: Evidence) -> list[str]:
    """The reasons why its files are no whole checkpoint, if they are looked at."""
    site = evidence.site
    return modes.problems(evidence.case, evidence.artefacts, nodes=site.nodes, network=site.network)


def left_lines(_: Evidence) -> list[str]:
    """Nothing: the reasons say all of its files."""
    return []


def judge(evidence: Evidence) -> Finding:
    """Judge the bandwidth of the save."""
    case = evidence.case
    written = checkpoints.written_by(case, evidence.log, evidence.artefacts, evidence.site.promised)
    kind, headline = checkpoints.judge(written)
    details = (*checkpoints.explain(case, written), *job_lines(evidence.outcome))
    return Finding(Verdict(kind, headline, remarks(evidence)), details, written=written)
