"""All that a case is judged by, as one value: the session's choices, its files, its baseline. Nothing else of the judge reads a file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import zip_longest
from pathlib import Path

from plugins.baselines.expected_range import Numbers, extrapolated, numbers
from plugins.baselines.metrics import MfuBasis
from plugins.baselines.store import Baseline, SiteNumbers, find
from plugins.gpu.samples import Gpus
from plugins.judging import hardware
from plugins.judging.choice import Choice, Setting
from plugins.judging.complaints import complaints
from plugins.judging.identity import fingerprint, type_in
from plugins.judging.job_files import JobLogs, quotable, read_artefacts
from plugins.judging.validity import UNKNOWN, Started, TimedRun
from plugins.logs import Log
from plugins.modes.artefacts import Artefacts
from plugins.recipes.cases import Case, Recipe
from plugins.record.baseline import Statistic
from plugins.record.folder import ERRORS, try_folder
from plugins.record.outcome import Outcome


@dataclass(frozen=True)
class Run:
    """A run of a case: the parsed log of its job's last attempt, what that tells of its GPUs, and its job.

    `gpus` is None if logs of this recipe tell nothing of them.
    """

    log: Log
    gpus: Gpus | None = None
    started: Started = UNKNOWN


@dataclass(frozen=True)
class Saved:
    """What the job left that saved a checkpoint: its log and its files."""

    log: Log
    artefacts: Artefacts | None


@dataclass(frozen=True)
class SiteFacts:
    """What the site file states that a case is judged by.

    The case runs on so many `nodes`, between which NCCL should name the `network` so; None: as it likes. `promised` is
    the bandwidth of the shared storage in bytes/s, None if it is unknown.
    """

    nodes: int = 1
    network: str | None = None
    promised: float | None = None


@dataclass(frozen=True)
class Evidence:
    """A case, the end of its job, and all that its verdict follows from.

    `runs` are the earlier runs of the case that ended well without a clear verdict, oldest first, then its own: all
    are judged together. `artefacts` is what a run in another mode left on the cluster, `saved` what the job left whose
    checkpoint this one loads. If the job died or hung, the verdict quotes `last_lines`, the end of its log, and
    `errors`, the error messages outside the log. `like_a_step` is the last line of the log that begins as a step does or
    draws a bar, `broken_off` the first behind it by which the job did not end well; "" if there is none. With `strict_last` the published statistic alone decides.
    """

    case: Case
    outcome: Outcome
    runs: tuple[Run, ...]
    numbers: Numbers
    site: SiteFacts = SiteFacts()
    artefacts: Artefacts | None = None
    saved: Saved | None = None
    last_lines: tuple[str, ...] = ()
    like_a_step: str = ""
    broken_off: str = ""
    errors: tuple[str, ...] = ()
    strict_last: bool = False

    @property
    def own(self) -> Run:
        """The run of the case's last job."""
        return self.runs[-1]

    @property
    def log(self) -> Log:
        """The log of the case's last job."""
        return self.own.log

    @property
    def logs(self) -> list[Log]:
        """The logs of all runs."""
        return [run.log for run in self.runs]

    @cached_property
    def basis(self) -> MfuBasis | None:
        """What MFU is counted with; None if no peak is known."""
        return self.numbers.counting.basis(hardware.peak(self.case, self.logs))

    def timed(self, run: Run, statistic: Statistic, *, whole: bool = True) -> TimedRun:
        """One of the runs, as its checks see it."""
        site, part = self.site, self.numbers.accelerator
        return TimedRun(self.case, run.log, statistic, part, run.started, whole, site.nodes, site.network)


def runs_of(
    outcome: Outcome,
    logs: Sequence[Log],
    gpus: Sequence[Gpus | None] = (),
    *,
    log_of_each_start: bool = False,
) -> tuple[Run, ...]:
    """The runs with these logs, oldest first: the last is that of the outcome's own job.

    If there is a log of each start, each of these logs is of one start, however often the job was started.
    """
    jobs = [Started(job.ref.id, job.attempts) for job in outcome.repeated[: len(logs) - 1]]
    jobs += [UNKNOWN] * (len(logs) - 1 - len(jobs))
    jobs.append(Started(outcome.known_job, outcome.job.attempts))
    if log_of_each_start:
        jobs = [replace(started, times=1) for started in jobs]
    return tuple(
        Run(log, samples, started) for log, samples, started in zip_longest(logs, gpus[: len(logs)], jobs)
    )


def read_evidence(case: Case, outcome: Outcome, setting: Setting, parsed: JobLogs) -> Evidence:
    """What a case is judged by: its outcome, and the files in the outcome's folder.

    Raises OSError, or Infrastructure or ConfigError if a file is damaged.
    """
    recipe, choice = setting.recipe, setting.choice
    file, folder = recipe.file, outcome.folder
    folders = [*(try_folder(folder, job.try_number) for job in outcome.repeated), folder]
    logs = [parsed.read_log(file.log, where) for where in folders]
    if file.program:
        outcome = replace(outcome, gpu=type_in(case, logs[-1], outcome.gpu))
    tells_of_gpus = file.program and case.accelerator == "gpu"
    gpus = [parsed.read_gpus(where) for where in folders] if tells_of_gpus else []
    site = site_numbers(choice, outcome.run, outcome.known_job, fingerprint(logs[-1]))
    baseline = baseline_in(setting, case, outcome.gpu, site)
    why_none = "" if site is None else site.lapsed(recipe, case, outcome.gpu)
    return Evidence(
        case=case,
        outcome=outcome,
        runs=runs_of(outcome, logs, gpus, log_of_each_start=file.log_of_each_start),
        numbers=numbers(case, baseline, outcome.gpu, setting.baselines, why_none),
        site=SiteFacts(case.nodes(choice.gpus_per_node), choice.network, choice.promised),
        artefacts=read_artefacts(folder) if case.mode else None,
        saved=_read_saved(recipe, case, outcome, parsed),
        **vars(parsed.read_end(file.log, outcome)),
        errors=_read_errors(folder / ERRORS),
        strict_last=choice.strict_last,
    )


def site_numbers(choice: Choice, run: str = "", job: str = "", log: str = "") -> SiteNumbers | None:
    """The site's own numbers, as they count for this run, job and log; None if it has none."""
    return SiteNumbers(Path(choice.own), run, job, log) if choice.own else None


def baseline_in(setting: Setting, case: Case, gpu: str, site: SiteNumbers | None) -> Baseline | None:
    """The number that a case is judged by, with the tolerance that was agreed on. Raises ConfigError.

    If it has none, and the plan of an acceptance promises it, it is judged by its expected range.
    """
    baseline = find(setting.baselines, setting.recipe, case, gpu, site)
    if baseline is None and setting.choice.by_expected:
        baseline = extrapolated(case, gpu, setting.baselines).baseline
    return None if baseline is None else replace(baseline, agreed=setting.choice.agreed)


def _read_saved(recipe: Recipe, case: Case, outcome: Outcome, parsed: JobLogs) -> Saved | None:
    """What the job left whose checkpoint this case loads; None if it loads none."""
    if case.after is None:
        return None
    folder = outcome.folder.parent / case.after.id
    return Saved(parsed.read_log(recipe.file.log, folder), read_artefacts(folder))


def _read_errors(path: Path) -> tuple[str, ...]:
    """The last error messages that a job printed outside its log."""
    if not path.exists():
        return ()
    return quotable(complaints(path.read_bytes()))
