"""Judges the case of a test, before or while the test runs, and writes its record."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from plugins.judging import diagnosis, recording
from plugins.judging.cause import find_cause
from plugins.judging.choice import Setting
from plugins.judging.diagnosis import Diagnosis
from plugins.judging.evidence import read_evidence
from plugins.judging.judge import judge
from plugins.judging.judgement import Judgement
from plugins.outcome import Outcome
from plugins.recipes.cases import Recipe
from plugins.reports.case_folder import write_case
from plugins.suite.session import CHOOSE, SITE_BASELINES, SiteBaselines, case_of, recipe_of

JUDGEMENT: pytest.StashKey[Judgement] = pytest.StashKey()
"""The judgement of the case of a test, once there is one."""


def judge_case(test: pytest.Item, outcome: Outcome) -> tuple[Judgement, Setting]:
    """Judge the case of a test, and write nothing. Returns also where it is judged."""
    config, case, recipe = test.config, case_of(test), recipe_of(test.config, test.path)
    assert case is not None
    assert recipe is not None
    setting = Setting(recipe, config.stash[CHOOSE](recipe.file), config.rootpath / "baselines")
    return judge(read_evidence(case, outcome, setting)), setting


def judge_item(test: pytest.Item, outcome: Outcome) -> Judgement:
    """Judge the case of a test, find the cause of its verdict, and write its record."""
    judged, setting = judge_case(test, outcome)
    judgement = explained(judged, lambda: find_cause(judged, setting))
    offer = _offer(setting.recipe, judgement, test.config.stash[SITE_BASELINES])
    write_case(judgement, offer)
    test.stash[JUDGEMENT] = judgement
    return judgement


def explained(judgement: Judgement, find: Callable[[], Diagnosis | None]) -> Judgement:
    """The judgement with what `find` says of its cause. A diagnosis changes no verdict, even if it fails."""
    try:
        return replace(judgement, diagnosis=find())
    except Exception as error:
        reason = f"Pacemark itself failed: {type(error).__name__}: {error}"
        return replace(judgement, diagnosis=diagnosis.undiagnosed(reason))


def _offer(recipe: Recipe, judgement: Judgement, site_baselines: SiteBaselines) -> Mapping[str, Any] | None:
    """What the case offers for the site's own baselines, for its record."""
    if not site_baselines.record or judgement.case.checkpoint is not None:
        return None
    outcome = judgement.outcome
    seconds = outcome.job.times.ended
    ended = datetime.fromtimestamp(seconds, UTC) if seconds else datetime.now(UTC)
    origin = recording.Origin(
        site=site_baselines.site,
        framework=recipe.file.title,
        run=outcome.run,
        date=f"{ended:%Y-%m-%d}",
    )
    if judgement.case.mode is not None:
        digest = recording.digest(judgement, origin)
        return {"refused": digest} if isinstance(digest, str) else {"digest": digest}
    candidate = recording.candidate(judgement, origin)
    if isinstance(candidate, str):
        return {"refused": candidate}
    return candidate.model_dump(mode="json", exclude_defaults=True)
