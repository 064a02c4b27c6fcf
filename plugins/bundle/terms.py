"""What a reader should know of how cases were judged: by whose word, and by what milder than what was published."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from plugins.bundle.findings import few
from plugins.bundle.run import BundledRun
from plugins.judging.judgement import Judgement
from plugins.judging.kinds.timed import BY_AGREED
from plugins.modes.checkpoints import GB
from plugins.recipes.cases import load_recipe
from plugins.record.folder import BASIS
from plugins.record.job import REPLAY, Job
from plugins.record.plan import PLAN, Plan
from plugins.record.verdict import LeftOut

BY_RANGE = "judged by the lower end of the expected range, because nobody published a number"
"""So begins the note on such cases, which it names."""


@dataclass
class Terms:
    """By what the cases of a run were judged: `by` has each thing in words, with its cases."""

    run: BundledRun
    judged_as: set[str] = field(default_factory=set)
    by: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict(list))

    def add(self, entry: Job, judgement: Judgement) -> None:
        for words in self._of(entry, judgement):
            self.by[words].append(judgement.case.key)
        self.judged_as.add(self._as_what(entry.ref.recipe, judgement))

    def notes(self) -> Iterator[str]:
        if self.judged_as:
            yield f"judged as what the site file states: {', '.join(sorted(self.judged_as))}"
        for words, cases in self.by.items():
            if words.startswith((BY_AGREED, BY_RANGE)):
                yield f"{few(cases)}: {words}"
            else:
                yield f"{len(cases)} case(s) are {words}"

    def _as_what(self, name: str, judgement: Judgement) -> str:
        """`llama3 25.02 (its newest is 25.04) on h100`."""
        release, folder = judgement.case.release, self.run.published / "suites" / name
        judged_as = f"{name} {release}"
        if (folder / "recipe.yaml").is_file():
            newest = load_recipe(folder).file.release
            if newest != release:
                judged_as += f" (its newest is {newest})"
        return f"{judged_as} on {judgement.outcome.gpu}"

    def _of(self, entry: Job, judgement: Judgement) -> Iterator[str]:
        choice, target = self.run.basis.of(entry.ref.recipe).choice, judgement.expected
        if target is not None and target.baseline.path.parent != self.run.basis.baselines:
            yield f"judged by the site's own numbers, which nobody published: see {BASIS}/own/"
        if target is not None and target.baseline.range is not None:
            yield BY_RANGE
        if judgement.case.model_name in {model.size for model in choice.models}:
            yield f"of models that the site added, which nobody published: see {BASIS}/choices/"
        if entry.backend == REPLAY:
            yield "of logs that were there before: no job of this run wrote them"
        if choice.strict_last:
            yield "judged by the published statistic alone (--strict-last)"
        if judgement.written is not None:
            promised = judgement.written.promised
            if promised:
                yield f"judged by the {promised / GB:g} GB/s that the site file promises of the storage"
            else:
                yield "judged by no promised bandwidth of the storage"
        if len(judgement.runs) > 1:
            yield "judged by several runs together"
        yield from (remark for remark in judgement.verdict.remarks if remark.startswith(BY_AGREED))


def left_out(parts: Sequence[LeftOut]) -> Iterator[str]:
    """The cases that were selected and did not run."""
    for left_out in parts:
        yield f"by the session's word, {left_out.cases} case(s) of {left_out.recipe} were left out: {left_out.reason}"


def agreed(plan: Plan) -> Iterator[str]:
    """What a plan allows beyond what is published, besides its tolerance and its waivers."""
    if plan.scaling is not None:
        yield f"by {PLAN}, scaling may fall short of the published efficiency by {100 * plan.scaling:g} %"
    if plan.recorded_baselines:
        yield f"by {PLAN}, numbers that this site itself recorded count"
    if plan.by == "expected":
        yield f"by {PLAN}, the lower end of its expected range decides on a case without a published number"
    if plan.numbers:
        yield f"by {PLAN}, both parties agreed on the numbers of {few(sorted(plan.numbers))}"
