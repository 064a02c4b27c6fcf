"""A case that loads the checkpoint of another one: it is judged by whether the training goes on there. Pure."""

from __future__ import annotations

import math

from plugins.judging.evidence import Evidence, Saved
from plugins.judging.identity import identity_line
from plugins.judging.job_words import job_lines, remarks
from plugins.judging.judgement import Conclusion
from plugins.judging.verdicts import Verdict
from plugins.logs import Log
from plugins.modes.checkpoints import bytes_words, data_files, path_of, rate_words, seconds_words
from plugins.recipes.cases import Case
from plugins.record.verdict import Kind

LOSS_DIGITS = 0.002
LOSS_CHANGE = 0.01
"""By how much of itself the first loss may differ from the last one of the run that saved.

NeMo prints four digits, and a step's loss is that before its update: two units of the last digit always
pass. More than 1 % is a jump: the batches are random tokens, whose loss hardly differs. Between the two, a difference
passes up to half of the loss's fall while the checkpoint was trained, so that a new model does not pass.
"""


def takes(case: Case) -> bool:
    """Whether the case loads a checkpoint."""
    return case.after is not None


def problems(evidence: Evidence) -> list[str]:
    """The reasons why the log does not show that the checkpoint of `case.after` was loaded."""
    save, log, saved = evidence.case.after, evidence.log, evidence.saved
    assert save is not None
    if saved is None or not _losses(saved.log):
        return [f"there is no log of {save.id}, whose checkpoint it loads"]
    reasons, path = [], path_of(save, saved.artefacts)
    if log.loaded is None:
        reasons.append("the log has no line of a checkpoint's load (Global Checkpoint Load)")
    if not path:
        reasons.append(f"nobody knows which checkpoint {save.id} saved")
    elif log.restored and log.restored != path:
        reasons.append(f"it loaded {log.restored}, and {path} was saved for it")
    return [*reasons, *_other_losses(_losses(log), _losses(saved.log))]


def left_lines(_: Evidence) -> list[str]:
    """Nothing: it leaves no files."""
    return []


def judge(evidence: Evidence) -> Conclusion:
    """A load passes if nothing is wrong with it."""
    case, log, saved = evidence.case, evidence.log, evidence.saved
    assert saved is not None
    notes = (*_remarks(log, saved), *remarks(evidence))
    verdict = Verdict(Kind.PASSED, (_summary(case, log, saved),), notes)
    return Conclusion(verdict, (identity_line(case, log), *job_lines(evidence.outcome)))


def _losses(log: Log) -> list[float]:
    return [step.loss for step in log.steps if step.loss is not None]


def _other_losses(losses: list[float], of_save: list[float]) -> list[str]:
    """Why these losses do not continue those of the save; empty if they do."""
    first, last = next(iter(losses), None), abs(of_save[-1])
    limit = max(LOSS_DIGITS * last, min(LOSS_CHANGE * last, abs(of_save[0] - of_save[-1]) / 2))
    # If a loss is not a number, no comparison holds.
    if first is None or abs(first - of_save[-1]) <= limit:
        return []
    return [
        f"its loss of {first:.4g} does not continue that of the save, which began with {of_save[0]:.4g} and ended with "
        f"{of_save[-1]:.4g} (limit {limit:.2g})"
    ]


def _remarks(log: Log, saved: Saved) -> list[str]:
    """What a reader of a load that passed must know."""
    losses, lines = _losses(saved.log), []
    if not log.restored:
        lines.append("the log does not say which checkpoint was loaded")
    if abs(losses[0] - losses[-1]) <= 2 * LOSS_DIGITS * abs(losses[-1]):
        lines.append(
            f"the loss of the save fell from {losses[0]:.4g} to {losses[-1]:.4g} only: it does not tell a loaded model from a new one"
        )
    return lines


def _summary(case: Case, log: Log, saved: Saved) -> str:
    """What was loaded, in a line."""
    assert case.after is not None
    assert case.after.checkpoint is not None
    files = [] if saved.artefacts is None else data_files(saved.artefacts)
    size, seconds = sum(file.size for file in files), log.loaded or 0.0
    rate = f", {rate_words(size / seconds)}" if size and seconds else ""
    first, last = next(iter(_losses(log)), math.nan), _losses(saved.log)[-1]
    return (
        f"{bytes_words(size or case.after.checkpoint)} loaded in {seconds_words(seconds)}{rate}; its loss of {first:.4g} "
        f"continues {last:.4g}, the last of the save"
    )
