"""Which case a job ran, and how that is known: by its launcher's file, by what its log states, by the log's path. Pure.

What stays open after all three is a question for the user, never a guess.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path, PurePosixPath

from plugins.base.words import first_of
from plugins.baselines.baseline_file import accelerators
from plugins.judging.identity import stated_by
from plugins.judging.validity import Started, TimedRun, configuration
from plugins.logs import Log
from plugins.recipes.cases import DTYPES
from plugins.record.baseline import Statistic
from plugins.sources.jobs import FoundJob, LaunchConfig
from plugins.sources.registry import Candidate, Named, PathRules, Registry, names

_SHOWN = 6
_STEPLESS = "has no training step of a known format"
_TELLING = {
    "processes": "processes",
    "layers": "layers",
    "hidden": "hidden size",
    "heads": "heads",
    "experts": "experts",
    "sequence_length": "sequence length",
    "fp8_recipe": "FP8",
    "precision": "precision",
    "tp": "TP",
    "pp": "PP",
    "gpu": "GPU",
}
"""The facts that tell a case from others, in words."""


@dataclass(frozen=True)
class Asked:
    """What the user says of all jobs: the type of GPU, the release, and a part of the case's name; "" for nothing."""

    gpu: str = ""
    release: str = ""
    case: str = ""

    @property
    def words(self) -> str:
        """` with --gpu gb200`; "" if nothing was said."""
        words = [f"--{name} {value}" for name, value in vars(self).items() if value]
        return f" with {', '.join(words)}" if words else ""

    def fits(self, candidate: Candidate) -> bool:
        case = candidate.case
        return (
            self.gpu in ("", candidate.gpu)
            and self.release in ("", case.release)
            and (self.case in (case.key, case.id, case.recipe) or self.case in case.key)
        )


@dataclass(frozen=True)
class Attribution:
    """The case of a job, and `known`, by what it is known; or `question`, why it is not judged.

    `fitting` are the cases that it may be of. If it is known, they are one case, of several releases that have the same number.
    `answer` are the options that say which of them it is. `other`: no pace of such a job was published.
    """

    job: FoundJob
    known: str = ""
    question: str = ""
    answer: str = ""
    fitting: tuple[Candidate, ...] = ()
    other: bool = False

    @property
    def candidate(self) -> Candidate | None:
        """The case, of the latest release; None if it is open."""
        return None if self.question else self.fitting[-1]


class Attributor:
    """Finds the cases of jobs among these candidates, of which the user `asked` for some."""

    def __init__(self, candidates: Iterable[Candidate], registry: Registry, asked: Asked) -> None:
        self._asked, self._registry = asked, registry
        self.candidates = [candidate for candidate in candidates if asked.fits(candidate)]
        self._of_variant = any(candidate.case.variant for candidate in self.candidates)

    @cached_property
    def _rules(self) -> PathRules:
        return PathRules(self.candidates)

    def of(self, job: FoundJob) -> Attribution:
        """The case of a job. Raises ConfigError if a table of numbers is damaged."""
        reason = _without_pace(job.config, job.config_base)
        if reason and not self._of_variant:
            return Attribution(job, question=reason, other=True)
        reason = _unfit(job)
        named = self._rules.read(job.unread or job.name)
        if reason or job.log is None:
            return Attribution(job, question=reason, fitting=self._possible(job, named))
        logs = job.log.logs
        job = replace(job, id=job.id or next((name.job for name in named.values()), ""))
        if job.is_stepless and not (job.id or job.record):
            return Attribution(job, question=_STEPLESS)
        if job.record is not None:
            return self._of_record(job)
        pool = [each for each in self.candidates if each.recipe.file.log in logs]
        if job.config is not None:
            pool = [each for each in pool if fits(each, job.config)]
            if not pool:
                return Attribution(job, question=self._unknown(job, job.config))
        by_path = [each for each in pool if _is_named(each, named)]
        if job.config is not None and job.config.model_info.is_whole:
            # The log and its path decide only what the launcher's file leaves open.
            stated = [each for each in pool if not self._against(each, job)] or pool
            return self._one(job, [each for each in stated if each in by_path] or stated, job.config_base)
        return self._by_log(job, pool, by_path)

    def _possible(self, job: FoundJob, named: Mapping[str, Named]) -> tuple[Candidate, ...]:
        """The cases that a job may be of which is not judged: by its record, its launcher's file, its log if another job has
        the same steps, and by its path if that names one.
        """
        pool = [each for each in self.candidates if job.config is None or fits(each, job.config)]
        if job.record is not None:
            pool = [each for each in pool if each.case.key == job.record.id]
        elif job.twin and job.log is not None:
            logs = job.log.logs
            pool = [each for each in pool if each.recipe.file.log in logs and not self._against(each, job)]
        return tuple(each for each in pool if each.names_scale and _is_named(each, named)) or tuple(pool)

    def _by_log(self, job: FoundJob, pool: Sequence[Candidate], by_path: Sequence[Candidate]) -> Attribution:
        """The case that the log states and its path names; else that which the log states; else that which its path names."""
        assert job.log is not None
        logs = job.log.logs
        stated = [each for each in pool if not self._against(each, job)]
        both = [each for each in stated if each in by_path]
        if both:
            return self._one(job, both, "the log and its path")
        identified = [each for each in stated if stated_by(each.case, logs[each.recipe.file.log])["model"]]
        if identified:
            return self._one(job, identified, "the log, and not by its path" if job.id else "the log")
        if self._asked.case:
            return self._one(job, by_path or pool, "--case")
        # A path that names no scale fits all cases, also those that the log contradicts.
        return self._one(job, [each for each in by_path if each.names_scale or each in stated], "its path")

    def _of_record(self, job: FoundJob) -> Attribution:
        record = job.record
        assert record is not None
        ran = (record.configuration or {}).get("gpu")
        same = [
            each
            for each in self.candidates
            if each.case.key == record.id and each.case.release == record.release and each.gpu == ran
        ]
        if same:
            return self._one(job, same, "the record of the session that collected it")
        words = f"{record.id} of {record.release} on {ran}, by the record beside it"
        return Attribution(job, question=f"{words}, which is no case that is judged here")

    def _against(self, candidate: Candidate, job: FoundJob) -> str:
        assert job.log is not None
        log = job.log.logs[candidate.recipe.file.log]
        return contradiction(candidate, log, self._registry.baselines, job.id)

    def _one(self, job: FoundJob, fitting: Sequence[Candidate], known: str) -> Attribution:
        """The case if it is one; the question which it is if there are several."""
        if not fitting:
            return Attribution(job, question=self._none(job))
        fitting = sorted(fitting, key=lambda each: each.order)
        places = {(each.case.key, each.gpu) for each in fitting}
        alike = len(places) == 1 and len({self._registry.number(each) for each in fitting}) == 1
        if len(fitting) > 1 and not alike:
            has_steps = job.log is not None and job.log.has_steps
            question, answer = _which(fitting) if has_steps else (_STEPLESS, "")
            return Attribution(job, question=question, answer=answer, fitting=tuple(fitting))
        return Attribution(job, known, fitting=tuple(fitting))

    def _unknown(self, job: FoundJob, config: LaunchConfig) -> str:
        return f"{_ran(config, job.config_base)}, which is no case{self._asked.words or ' here'}"

    def _none(self, job: FoundJob) -> str:
        """Why no case fits, and what to do."""
        assert job.log is not None
        if not job.log.has_steps:
            return _STEPLESS
        stated = max(map(_stated, job.log.logs.values()), key=len)
        words = f"states {stated}" if stated else "states nothing of its model, and its path names no case"
        return f"no case{self._asked.words} fits: it {words}; --case CASE judges it as one (`pacemark cases` lists them)"


def _is_named(candidate: Candidate, named: Mapping[str, Named]) -> bool:
    """Whether the path of a log names this case, by what the rules for paths read in it."""
    rule = candidate.recipe.file.replay
    return rule is not None and rule in named and names(candidate, named[rule])


def contradiction(candidate: Candidate, log: Log, baselines: Path, job: str = "") -> str:
    """The first that the log of this job states and the case does not have; "" if there is nothing."""
    case = candidate.case
    batch = {step.gbs for step in log.steps if step.gbs is not None}
    if batch and case.gbs not in batch:
        # Most cases differ by this, and to ask for all takes longer.
        return f"its global batch size is {min(batch)}"
    run = TimedRun(case, log, Statistic(), accelerators(baselines).get(candidate.gpu), Started(job))
    return next((reason for check in configuration.CHECKS for reason in check(run)), "")


def _stated(log: Log) -> str:
    """What a log states that tells a case from others."""
    facts = {
        fact.name: f"{words} {fact.value}"
        for fact in log.facts
        for name, words in _TELLING.items()
        if name == fact.name
    }
    batches = {step.gbs for step in log.steps if step.gbs is not None}
    return ", ".join(
        [*(facts[name] for name in _TELLING if name in facts), *(f"batch {gbs}" for gbs in sorted(batches))]
    )


def launched_otherwise(candidate: Candidate, config: LaunchConfig, name: str) -> str:
    """Why a job is not of this case by its launcher's file; "" if it may be."""
    reason = "" if candidate.case.variant else _without_pace(config, name)
    return reason or ("" if fits(candidate, config) else _ran(config, name))


def _ran(config: LaunchConfig, name: str) -> str:
    """What a job ran by its launcher's file."""
    model, release = config.model_info, config.workload_info.gsw_version
    proxy = " proxy" if config.job_config.proxy else ""
    words = f"{model.model_name} {model.model_size}{proxy} in {model.dtype} on {model.scale} {model.gpu_type}"
    return f"ran {words}, release {release}, by {name}"


def _without_pace(config: LaunchConfig | None, name: str) -> str:
    """Why no pace of a job was published, whatever case it ran; "" if there may be one. `name` is its launcher's file."""
    config = config or LaunchConfig()
    if config.workload_info.workload_type != "pretrain":
        return f"is a {config.workload_info.workload_type} by {name}"
    if config.job_config.profile_enabled:
        return f"was profiled by {name}"
    return ""


def _unfit(job: FoundJob) -> str:
    """Why a job is not judged, whatever case it ran; "" if it may be."""
    if job.unread:
        return f"its {PurePosixPath(job.unread).name} cannot be read, so that what is here may not tell all"
    if job.log is None and job.record:
        return f"is {job.record.verdict} by its {job.config_base}, and its log is not here"
    if job.log is None:
        return f"job {job.id} ran by {job.config_base}, and its log is not here"
    if job.rivals:
        rivals = [PurePosixPath(name).name for name in job.rivals]
        return f"has {len(rivals)} more log(s) of the same attempt, {first_of(rivals, 2)}: judge the right one by itself"
    if job.twin:
        return f"has the steps of another job, {job.twin}: one of the two logs is a copy"
    if job.own_log:
        return "took the place of the job's own log, which says what else happened; the verdict on both is in case.json"
    return ""


def fits(candidate: Candidate, config: LaunchConfig) -> bool:
    """Whether the launcher's file may be that of this case. What it does not say fits each."""
    model, case = config.model_info, candidate.case
    # The first three tell most cases apart.
    return (
        model.scale in (None, case.gpus)
        and model.gpu_type in ("", candidate.gpu)
        and _release(config.workload_info.gsw_version) in ("", case.release)
        and model.model_size in ("", case.model_name.partition("-proxy")[0])
        and (not model.dtype or case.dtype in _dtypes(model.dtype))
        and config.job_config.proxy == ("proxy" in case.size)
        and (not model.model_name or _plain(model.model_name) in _names(candidate))
    )


def _names(candidate: Candidate) -> set[str]:
    """What llmb-run may call the recipe of a case: as a part of the path of its launcher."""
    launch = candidate.recipe.file.launch
    return {_plain(part) for part in (candidate.recipe.name, *(launch.folder.split("/") if launch else ()))}


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _release(version: str) -> str:
    """Tag v26.06.01 says 26.06.00 of itself, and that release had no other cells of these families (release.yaml at c84bc9b)."""
    return {"26.06.00": "26.06.01"}.get(version, version)


def _dtypes(word: str) -> set[str]:
    """The dtypes that llmb-run calls so: its `fp8` is any scaling of FP8."""
    if word == "fp8":
        return {name for name, facts in DTYPES.items() if facts["fp8"] is True}
    return {word}


def _which(fitting: Sequence[Candidate]) -> tuple[str, str]:
    """The question which of these cases it is, and the options that say it."""
    sides = {
        "--gpu": ("type of GPU", [each.gpu for each in fitting]),
        "--case": ("case", [each.case.key for each in fitting]),
        "--release": ("release", [each.case.release for each in fitting]),
    }
    known, options, parts = [], [], []
    for option, (noun, values) in sides.items():
        first, *more = dict.fromkeys(values)
        if more:
            parts.append(f"its {noun} is {first_of([first, *more], _SHOWN).replace(', ', ' or ')}")
            options.append(option)
        else:
            known.append(first)
    of = f" ({' '.join(known)})" if known else ""
    return f"{' and '.join(parts)}{of}, which nothing tells", " and ".join(options)
