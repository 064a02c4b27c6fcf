"""Judges the case of a test, before or while the test runs, and writes what is known of it into its folder:
its record, its steps, and its GPUs' samples with a plot.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from plugins.base.errors import ConfigError
from plugins.base.files import write_whole
from plugins.base.svg import Svg
from plugins.gpu.samples import Gpus, Sample
from plugins.judging.case_record import as_csv, record_of, steps_table
from plugins.judging.choice import Setting
from plugins.judging.evidence import read_evidence
from plugins.judging.job_files import ParsedLogs
from plugins.judging.judge import judge
from plugins.judging.judgement import Judgement
from plugins.judging.shelving import Origin, offer_of
from plugins.recipes.cases import Case, Recipe
from plugins.record.case import CaseRecord
from plugins.record.folder import FAILING_NODES, GPUS_PLOT, GPUS_TABLE, PASSING_NODES, STEPS, make_case_folder
from plugins.record.job import node_list
from plugins.record.outcome import Outcome
from plugins.record.stored import write_case as write_record
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


_WIDTH, _ROW, _LEFT, _RIGHT, _TOP = 860, 130, 70, 20, 40
_ROWS = (
    ("SM clock, MHz", "sm_mhz"),
    ("power, W", "power_w"),
    ("temperature, C", "temperature_c"),
    ("busy, %", "busy"),
)
_COLOURS = ("#1f5fa8", "#c0392b", "#2e8b57", "#8e44ad", "#d68910", "#117a65", "#7b241c", "#566573")


def gpus_svg(title: str, gpus: Gpus) -> str:
    """A row for each figure and a line for each GPU. The time of the steps that count is shaded."""
    begin = min(sample.at for sample in gpus.samples)
    length = max(max(sample.at for sample in gpus.samples) - begin, 1e-9)
    height = _TOP + _ROW * len(_ROWS) + 30

    def x(at: float) -> float:
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * (at - begin) / length

    svg = Svg(_WIDTH, height, f"{title}: GPUs by NVML", _LEFT)
    timed = [x(sample.at) for sample in gpus.timed.samples]
    if timed:
        svg.rect(min(timed), _TOP, max(timed) - min(timed), _ROW * len(_ROWS), "#eef4fb")
    for row, (label, name) in enumerate(_ROWS):
        bottom = _TOP + _ROW * (row + 1) - 10
        top = max((series.highest(name) or 0.0 for series in gpus.series), default=0.0) or 1.0
        svg.text(_LEFT, bottom - _ROW + 24, label)
        svg.text(_LEFT - 8, bottom - _ROW + 38, f"{top:.0f}", "end")
        svg.text(_LEFT - 8, bottom, "0", "end")
        for series in gpus.series:
            known = [(x(s.at), getattr(s, name)) for s in series.samples if getattr(s, name) is not None]
            points = [(at, bottom - (_ROW - 36) * value / top) for at, value in known]
            svg.polyline(points, _COLOURS[series.gpu % len(_COLOURS)])
    svg.text(_LEFT, height - 8, f"{length:.0f} s; shaded: the steps that count")
    return str(svg)


def write_case(judgement: Judgement, recording: Mapping[str, Any] | None = None) -> CaseRecord:
    """Write the files of a case. Returns its record. Raises OSError.

    `recording` is what the case offers for the site's own baselines.
    """
    folder, gpus, record = judgement.outcome.folder, judgement.gpus, record_of(judgement, recording)
    make_case_folder(folder)
    write_whole(folder / STEPS, steps_table(judgement), alone=False)
    write_record(folder, record)
    if gpus is not None and gpus.samples:
        write_whole(folder / GPUS_TABLE, as_csv(Sample.model_fields, _samples(gpus)))
        write_whole(folder / GPUS_PLOT, gpus_svg(judgement.case.key, gpus))
    for name, nodes in _sorted_nodes(judgement).items():
        write_whole(folder / name, "".join(f"{node}\n" for node in nodes))
    return record


def _sorted_nodes(judgement: Judgement) -> dict[str, list[str]]:
    """The nodes of the case that slow it, and the others whose probes ran and were fast, for `srun --exclude` and `--nodelist`."""
    if judgement.isolated is None or not judgement.isolated.answer.culprits:
        return {}
    answer, nodes = judgement.isolated.answer, node_list(judgement.outcome.job.state.nodes)
    unknown = {node for failed in answer.failed for node in failed.probe.nodes}
    return {
        FAILING_NODES: [node for node in nodes if node in answer.accused],
        PASSING_NODES: [node for node in nodes if node not in answer.accused | answer.doubtful | unknown],
    }


def _samples(gpus: Gpus) -> Iterable[Iterable[object]]:
    """Violations and other processes are JSON."""
    for sample in gpus.samples:
        values = sample.model_dump(mode="json").values()
        yield [json.dumps(value) if isinstance(value, list | dict) else value for value in values]
