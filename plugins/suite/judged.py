"""Judges the case of a test, before or while the test runs, and writes its record."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from plugins.errors import ConfigError
from plugins.job_files import ParsedLogs
from plugins.judging.case_record import record_of
from plugins.judging.choice import Setting
from plugins.judging.evidence import read_evidence
from plugins.judging.judge import judge
from plugins.judging.judgement import Judgement
from plugins.judging.shelving import Origin, offer_of
from plugins.outcome import Outcome
from plugins.recipes.cases import Case, Recipe
from plugins.record.case import CaseRecord
from plugins.reports.case_folder import write_case
from plugins.suite.session import CHOOSE, SITE_BASELINES, SiteBaselines, case_of, recipe_of

JUDGEMENT: pytest.StashKey[Judgement] = pytest.StashKey()
"""The judgement of the case of a test, from its judging until its test has ended."""

RECORD: pytest.StashKey[CaseRecord] = pytest.StashKey()
"""The record of the case of a test, once the case is judged."""


class Judge:
    """Judges the cases of a session: in a process each log is parsed once, and each case once for what it left so far.

    The fleet asks it when a job has ended, the test of the case afterwards. Any thread may ask.
    """

    def __init__(self) -> None:
        self.logs = ParsedLogs()
        self._judgements: dict[str, Judgement] = {}

    def judge(self, case: Case, outcome: Outcome, setting: Setting) -> Judgement:
        """The judgement by what is on the disk now. Raises as `read_evidence` does."""
        # What was done to find slow nodes has no part in the verdict.
        outcome = replace(outcome, isolated=None)
        evidence = read_evidence(case, outcome, setting, self.logs)
        known = self._judgements.get(case.key)
        if known is not None and known.evidence == evidence:
            return known
        judgement = self._judgements[case.key] = judge(evidence)
        return judgement

    def forget(self, judgement: Judgement) -> None:
        """Forget what is known of a case that needs no judge any more."""
        self._judgements.pop(judgement.case.key, None)
        self.logs.forget(judgement.outcome.folder)


_JUDGE: pytest.StashKey[Judge] = pytest.StashKey()


def judge_of(config: pytest.Config) -> Judge:
    """The session's judge in this process."""
    return config.stash.setdefault(_JUDGE, Judge())


def setting_of(test: pytest.Item) -> Setting:
    """Where the case of a test is judged."""
    config, recipe = test.config, recipe_of(test.config, test.path)
    assert recipe is not None
    return Setting(recipe, config.stash[CHOOSE](recipe.file), config.rootpath / "baselines")


def judge_item(test: pytest.Item, outcome: Outcome) -> Judgement:
    """Judge the case of a test, and write its record."""
    setting, case, session_judge = setting_of(test), case_of(test), judge_of(test.config)
    assert case is not None
    judged = session_judge.judge(case, outcome, setting)
    judgement = replace(judged, isolated=outcome.isolated)
    offer = _offer(setting.recipe, judgement, test.config.stash[SITE_BASELINES])
    test.stash[RECORD] = write_case(judgement, offer)
    test.stash[JUDGEMENT] = judgement
    session_judge.forget(judgement)
    return judgement


def record_in(test: pytest.Item) -> CaseRecord:
    """The record of the case of a test, when the case has ended. Raises RunError, OSError, and ConfigError if it is not run.

    A worker of xdist may ask for it, and others run the test of the case: the logs say the same to each.
    """
    # --lf chooses the test of several cases alone.
    if test not in test.session.items:
        raise ConfigError(f"this session leaves out {test.name}, which is compared here: leave out --lf")
    record, case = test.stash.get(RECORD, None), case_of(test)
    if record is not None:
        return record
    assert case is not None
    outcome = test.config.hook.pytest_pacemark_outcome(test=test)
    return record_of(judge_of(test.config).judge(case, outcome, setting_of(test)))


class JointTest(pytest.Item):
    """A test of what several cases show together: `judge` waits for their ends, and raises Shortfall."""

    def __init__(self, *, judge: Callable[[], None], name: str, parent: pytest.Collector) -> None:
        super().__init__(name, parent)
        self._judge = judge

    def runtest(self) -> None:
        self._judge()

    def reportinfo(self) -> tuple[Path, None, str]:
        return self.path, None, self.name


def _offer(recipe: Recipe, judgement: Judgement, site_baselines: SiteBaselines) -> Mapping[str, Any] | None:
    """What the case offers for the site's own baselines, for its record."""
    if not site_baselines.record:
        return None
    if judgement.case.node:
        return {"refused": f"the numbers of {recipe.name} are recorded by its own cases, not by a screening"}
    outcome = judgement.outcome
    seconds = outcome.job.times.ended
    ended = datetime.fromtimestamp(seconds, UTC) if seconds else datetime.now(UTC)
    origin = Origin(
        site=site_baselines.site,
        framework=recipe.file.title,
        run=outcome.run,
        date=f"{ended:%Y-%m-%d}",
    )
    offer = offer_of(judgement, origin)
    if isinstance(offer, str):
        return {"refused": offer}
    return offer.model_dump(mode="json", exclude_defaults=True)
