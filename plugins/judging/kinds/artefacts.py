"""A case whose pace is not judged: it is judged by whether it left its profiles or its trace on the cluster. Pure."""

from __future__ import annotations

import shlex
from statistics import median

from plugins.judging.evidence import Evidence
from plugins.judging.identity import identity_line
from plugins.judging.job_words import job_lines, remarks
from plugins.judging.judgement import Conclusion
from plugins.judging.verdicts import Verdict
from plugins.logs import Log
from plugins.modes import profiles, traces
from plugins.modes.artefacts import Artefacts
from plugins.modes.checks import artefact_problems, reports
from plugins.modes.traces import NcclDigest
from plugins.recipes.cases import Case
from plugins.record.case import File
from plugins.record.verdict import Kind


def takes(case: Case) -> bool:
    """Whether the case is judged by its files alone."""
    return case.leaves_files


def problems(evidence: Evidence) -> list[str]:
    """The reasons why its files are not what its mode is for."""
    site = evidence.site
    return artefact_problems(evidence.case, evidence.artefacts, nodes=site.nodes, network=site.network)


def left_lines(evidence: Evidence) -> list[str]:
    """What there is of its files, and the pace beside which they were made."""
    artefacts = evidence.artefacts
    if artefacts is None:
        return []
    lines = _report_lines(artefacts, reports(evidence.case, artefacts))
    if artefacts.profiles:
        lines += [f"          {line}" for line in profiles.table(artefacts.profiles).splitlines()]
    if artefacts.trace is not None:
        lines += _trace_lines(artefacts.trace)
    return [*lines, *(f"note      {note}" for note in artefacts.notes), *_pace_line(evidence.log)]


def judge(evidence: Evidence) -> Conclusion:
    """A run in another mode passes if its files are there."""
    case, log, artefacts = evidence.case, evidence.log, evidence.artefacts
    assert artefacts is not None
    details = (*left_lines(evidence), identity_line(case, log), *job_lines(evidence.outcome))
    verdict = Verdict(Kind.PASSED, (_summary(case, artefacts),), remarks(evidence))
    return Conclusion(verdict, details, artefacts=artefacts)


def _summary(case: Case, artefacts: Artefacts) -> str:
    """What the run left, in a line."""
    trace = artefacts.trace
    if trace is None:
        files = reports(case, artefacts)
        return f"{len(files)} profiles of this job, {_megabytes(files)}; to fetch them: {_fetch(artefacts)}"
    members = trace.members()
    networks = sorted({name for setup in trace.setups for name in setup.networks})
    return (
        f"{len(members)} ranks on {len({rank.host for rank in members})} hosts made {trace.counts.calls:,} NCCL calls, network "
        f"{', '.join(networks) or 'not told'}"
    )


def _report_lines(artefacts: Artefacts, reports: list[File]) -> list[str]:
    if not reports:
        return []
    return [
        f"profiles  {len(reports)} reports, {_megabytes(reports)}, in {artefacts.folder} on {artefacts.host}",
        *(f"          {file.name}  {file.size:,} bytes" for file in reports),
        f"fetch     {_fetch(artefacts)}",
    ]


def _trace_lines(trace: NcclDigest) -> list[str]:
    lines = []
    if trace.counts.torn:
        lines.append(
            f"note      {trace.counts.torn:,} calls are not counted: other ranks' output tore their lines "
            f"({trace.torn_share:.1%})"
        )
    return lines + [f"trace     {line}" for line in traces.table(trace).splitlines()]


def _pace_line(log: Log) -> list[str]:
    times = [step.seconds for step in log.steps if step.seconds is not None]
    if not times:
        return []
    return [
        f"steps     median {median(times):.4g} s of {len(times)} steps, not judged: it compares with no timed run"
    ]


def _megabytes(files: list[File]) -> str:
    return f"{sum(file.size for file in files) / 1e6:,.1f} MB"


def _fetch(artefacts: Artefacts) -> str:
    """The command that copies the files to the user's machine."""
    return f"scp -r {artefacts.host}:{shlex.quote(artefacts.folder)} ."
