"""The decision on an acceptance plan, and scaling, as they are recorded and told. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from plugins.acceptance.decision import decide
from plugins.acceptance.scaling import RunShown, Shown, ratio
from plugins.recipes.cases import Case
from plugins.record.plan import Agreed
from plugins.record.summary import AcceptanceRecord, Scale, Scaling
from plugins.record.verdict import Outcome

# A session that ended so has not brought its cases to an end, or not by their verdicts alone.
_NO_END = (Outcome.FAILED, Outcome.INTERRUPTED, Outcome.INTERNAL_ERROR, Outcome.USAGE, Outcome.EMPTY)


def decided(
    agreed: Agreed,
    cases: Sequence[Case],
    run: RunShown,
    outcome: Outcome,
    regressions: Sequence[str] = (),
) -> AcceptanceRecord:
    """What `summary.json` says of the decision on a run.

    `outcome` and `regressions` are those of `summary.json`. The others are as in `plugins.acceptance.decision.decide`.
    """
    spoiled = "; ".join(filter(None, [run.spoiled, why_ended(outcome, regressions)]))
    return decide(agreed, cases, replace(run, spoiled=spoiled))


def why_ended(outcome: Outcome, regressions: Sequence[str]) -> str:
    """Why a session that ended so is no evidence for its plan; "" if it is."""
    reasons = list(regressions)
    if outcome in _NO_END:
        reasons.insert(0, f"the session ended as {outcome}")
    return "; ".join(filter(None, reasons))


def scaling_record(curves: Sequence[Scaling]) -> tuple[Scaling, ...]:
    """What `summary.json` says of scaling: of the curves with at least two measured scales, and of the judged ones."""
    return tuple(
        curve
        for curve in curves
        if any(scale.why for scale in curve.scales)
        or sum(scale.tokens_per_second_per_gpu is not None for scale in curve.scales) > 1
    )


def scaling_beside(
    earlier: Sequence[Scaling], scaling: Sequence[Scaling], shown: Mapping[str, Shown]
) -> tuple[Scaling, ...]:
    """The curves of a run: those of this session, and those of an earlier one that these do not replace.

    A curve replaces an earlier one if it has other cases too, or is judged. What an earlier session judged stays as long as
    the paces are the same that were compared, unless the case is judged again.
    """
    standing = [curve for curve in _still_so(earlier, shown) if not _replaced(curve, scaling)]
    covered = [curve.cases for curve in standing]
    now = [curve for curve in scaling if curve.judged or not any(curve.cases <= cases for cases in covered)]
    return scaling_record([*now, *standing])


def _still_so(curves: Sequence[Scaling], shown: Mapping[str, Shown]) -> Iterator[Scaling]:
    """These curves, without the scales whose pace is another one now; none whose smallest scale has another one."""
    for curve in curves:
        scales = []
        for scale in curve.scales:
            pace = scale.tokens_per_second_per_gpu
            if scale.case not in shown or ratio(shown[scale.case].pace, scale.gpus) == pace:
                scales.append(scale)
        base = next((scale for scale in curve.scales if not scale.waived), curve.scales[0])
        if base in scales:
            yield replace(curve, scales=tuple(scales))


def _replaced(earlier: Scaling, scaling: Sequence[Scaling]) -> bool:
    """Whether these curves say more of the cases of an earlier one than it does, and judge all that it judges."""
    beside = [curve for curve in scaling if curve.cases & earlier.cases]
    judged = frozenset().union(*(curve.judged for curve in beside))
    return earlier.judged <= judged and any(curve.judged or curve.cases - earlier.cases for curve in beside)


def acceptance_lines(record: AcceptanceRecord) -> Iterator[str]:
    """The decision in lines for a terminal. No text of the plan or of a verdict makes a line of its own."""
    return (" ".join(line.split()) for line in _lines(record))


def _lines(record: AcceptanceRecord) -> Iterator[str]:
    yield f"{record.decision.upper()}: {len(record.cases)} case(s) of the plan with SHA-256 {record.digest}"
    for word, reasons in (("failed", record.failed), ("missing", record.missing)):
        for key, reason in reasons.items():
            yield f"{word}: {key}: {reason}"
    for waived in record.waived:
        yield (
            f"waived: {waived.case}: {waived.headline} (until {waived.until}, agreed by {waived.agreed_by}: "
            f"{waived.reason})"
        )


def scaling_lines(records: Sequence[Scaling]) -> Iterator[str]:
    """Scaling in lines for a terminal, those that are judged."""
    for record in records:
        if any(scale.limit is not None or scale.why for scale in record.scales):
            scales = ", ".join(_scale(scale) for scale in record.scales)
            yield f"scaling of {record.name}: {scales}"


def _scale(scale: Scale) -> str:
    if scale.efficiency is None:
        return f"{scale.gpus} GPUs none"
    text = f"{scale.gpus} GPUs {100 * scale.efficiency:.1f} %"
    if scale.waived:
        return f"{text} (waived)"
    if scale.limit is not None:
        return f"{text} (limit {100 * scale.limit:.1f} %)"
    return text
