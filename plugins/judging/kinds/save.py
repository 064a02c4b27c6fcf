"""A case that writes a checkpoint: it is judged by the bandwidth that the shared storage promises. Pure."""

from __future__ import annotations

import math

from plugins.base.words import billions
from plugins.judging.evidence import Evidence
from plugins.judging.job_words import job_lines, remarks
from plugins.judging.judgement import Conclusion
from plugins.judging.verdicts import Verdict
from plugins.modes.checkpoints import (
    GB,
    TIB,
    Written,
    bytes_words,
    data_files,
    path_of,
    rate_words,
    seconds_words,
)
from plugins.modes.checks import artefact_problems
from plugins.recipes.cases import Case
from plugins.record.verdict import Kind

SLOWER, FASTER = 0.3, 0.1
"""A save may be this much slower and faster than the promised bandwidth. Its time includes gathering the
state and waiting for the slowest writer.
"""

FEWEST_SECONDS = 5.0
"""A save that should take less than this is not judged: most of its time is not writing."""


def takes(case: Case) -> bool:
    """Whether the case writes a checkpoint."""
    return case.checkpoint is not None


def problems(evidence: Evidence) -> list[str]:
    """The reasons why its files are no whole checkpoint, if they are looked at."""
    site = evidence.site
    return artefact_problems(evidence.case, evidence.artefacts, nodes=site.nodes, network=site.network)


def left_lines(_: Evidence) -> list[str]:
    """Nothing: the reasons say all of its files."""
    return []


def judge(evidence: Evidence) -> Conclusion:
    """Judge the bandwidth of the save."""
    written = _written(evidence)
    kind, words = _compared(written)
    details = (*_lines(evidence.case, written), *job_lines(evidence.outcome))
    return Conclusion(Verdict(kind, (f"{written}{words}",), remarks(evidence)), details, written=written)


def _written(evidence: Evidence) -> Written:
    """The checkpoint of a valid run: its size is that of its files, if they were counted."""
    log, artefacts, promised = evidence.log, evidence.artefacts, evidence.site.promised
    if artefacts is None:
        return Written(log.saves[0], log.saved_bytes or 0, promised)
    files = data_files(artefacts)
    size, path = sum(file.size for file in files), path_of(evidence.case, artefacts)
    return Written(log.saves[0], size, promised, len(files), f"{artefacts.host}:{path}")


def _compared(written: Written) -> tuple[Kind, str]:
    """How a checkpoint compares with the promise, and the words for that.

    If its files were counted, it passes even if its bandwidth cannot be judged.
    """
    unjudged = Kind.NO_BASELINE
    if written.files:
        unjudged = Kind.PASSED
    share = written.share
    if share is None or written.promised is None or written.expected is None:
        return (
            unjudged,
            "; nothing to compare with: the site file does not say what its storage promises (docs/kubernetes.md)",
        )
    promised = rate_words(written.promised)
    if written.expected < FEWEST_SECONDS:
        return unjudged, (
            f"; too little to tell: {promised} would take it in {seconds_words(written.expected)}, and below "
            f"{FEWEST_SECONDS:g} s other things take longer"
        )
    kind, limit = Kind.PASSED, ""
    if share < 1 - SLOWER:
        kind, limit = Kind.TOO_SLOW, f" (limit -{100 * SLOWER:g} %)"
    elif share > 1 + FASTER:
        kind, limit = Kind.TOO_FAST, f" (limit +{100 * FASTER:g} %); was it all on the storage by then?"
    return kind, f" where {promised} is promised, {100 * (share - 1):+.1f} % bandwidth{limit}"


def _lines(case: Case, written: Written) -> list[str]:
    """The lines of the report below the headline."""
    assert case.checkpoint is not None
    model = case.model_name
    if case.parameters is not None:
        model = f"{billions(case.parameters)} parameters"
    lines = [f"measured  {_row(written.seconds, written.size)}"]
    if written.expected is not None:
        lines.append(f"promised  {_row(written.expected, written.size)}")
    lines.append(f"size      {bytes_words(case.checkpoint)} expected of {model}")
    if written.files:
        lines.append(f"files     {written.files} in {written.path}")
    if not written.promised:
        return lines
    for save in case.published_saves:
        if math.isclose(save.gb_per_second * GB, written.promised):
            lines.append(
                f"published {save.minutes:.2f} min for {save.tebibytes:g} TiB by {save.storage}, which are "
                f"{save.tebibytes * TIB / written.promised / 60:.2f}; for comparison, not judged"
            )
    return lines


def _row(seconds: float, size: int) -> str:
    return f"{seconds_words(seconds):>11}  {rate_words(size / seconds):>11}  {bytes_words(size)}"
