"""The jobs of a source: the log of each, what it states, and what its launcher wrote beside it.

NVIDIA's llmb-run writes `llmb-config_<job>.yaml` beside the log of a job (exemplar-performance e249aa3,
cli/llmb-run/src/llmb_run/run_config.py 276), and takes the log of its last restart (job_logs.py 42).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import PurePosixPath
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from plugins.base.errors import ConfigError
from plugins.base.yaml_text import Loader
from plugins.judging.identity import fingerprint
from plugins.judging.job_files import TAIL, LogEnd, end_of
from plugins.logs import Log
from plugins.logs.formats import parser
from plugins.logs.registry import FORMATS
from plugins.record.case import CaseRecord
from plugins.record.folder import CASE, LOG, OWN_LOG
from plugins.record.stored import parse_case
from plugins.sources.files import SUFFIX, Damaged, File, Source, SourceDamaged

_CONFIG = re.compile(r"llmb-config_(\d+)\.yaml")
# NeMo-Run's log, `log-<account>-<account>.<experiment>_<job>_<restart>.out`, then the outputs of batch scripts.
_OF_JOB = re.compile(
    r"log-.*\.[A-Za-z].*_(?P<job>\d+)_(?P<restart>\d+)\.out|(?:sbatch_.*_|slurm-)(?P<batch>\d+)\.out"
)
_TEXT = re.compile(r".*\.(log|out|err|txt|json|jsonl)")
# A try that another one followed, and what Pacemark keeps beside the log that it judged.
_ASIDE = re.compile(
    r"(.*/)?(try-\d+/.*|allure/.*|basis/.*|log\.earlier\.txt|errors\.txt|sent\.txt|(summary|ctrf|artefacts|nodes|comparison)\.json)"
)
_MOST_SMALL = 1 << 20
_SURE = 3
"""A format of which so many steps were read is that of the log."""


class _Section(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class ModelInfo(_Section):
    """The words of llmb-run: `dtype` names no scaling of FP8."""

    model_name: str = ""
    model_size: str = ""
    dtype: str = ""
    scale: int | None = None
    gpu_type: str = ""


class WorkloadInfo(_Section):
    gsw_version: str = ""
    workload_type: str = "pretrain"


class JobConfig(_Section):
    proxy: bool = False
    profile_enabled: bool = False
    env_overrides: Mapping[str, Any] = {}
    model_overrides: Mapping[str, Any] = {}
    mbridge_args: tuple[str, ...] = ()


class LaunchConfig(_Section):
    """`llmb-config_<job>.yaml`. Any key may be missing: earlier releases have fewer."""

    model_info: ModelInfo = ModelInfo()
    workload_info: WorkloadInfo = WorkloadInfo()
    job_config: JobConfig = JobConfig()


@dataclass(frozen=True)
class JobLog:
    """A log: what it states by each format in which it has steps, or by all formats if it has none in any.

    `fault` is why it could not be read, "" if it could.
    """

    name: str
    logs: Mapping[str, Log]
    ends: Mapping[str, LogEnd]
    fault: str = ""

    @property
    def has_steps(self) -> bool:
        return any(log.steps or log.restarted_after for log in self.logs.values())

    @cached_property
    def prints(self) -> frozenset[str]:
        """What tells its steps from those of any other run, by each format."""
        return frozenset(fingerprint(log) for log in self.logs.values() if log.steps)


@dataclass(frozen=True)
class FoundJob:
    """A job with the log of its last attempt, None if there is none. `id` is "" if no name states it.

    `config_name` is the file of its launcher, "" if there is none. `record` is that of the case which Pacemark judged by the
    log, `own_log` whether it took the place of another one there. `copies` are the other names of the same log, `rivals`
    those of other logs of the same attempt.
    """

    id: str
    log: JobLog | None
    restart: int = 0
    config: LaunchConfig | None = None
    config_name: str = ""
    record: CaseRecord | None = None
    own_log: bool = False
    copies: tuple[str, ...] = ()
    rivals: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """What stands for it in a message."""
        return self.log.name if self.log else self.config_name

    @property
    def config_base(self) -> str:
        """`llmb-config_4711.yaml`."""
        return PurePosixPath(self.config_name).name


def wanted(name: str) -> bool:
    """Whether a file of this name may tell of a job."""
    base = PurePosixPath(SUFFIX.sub("", name)).name
    return bool(_CONFIG.fullmatch(base) or _TEXT.fullmatch(base)) and not _ASIDE.fullmatch(name)


@dataclass
class _Read:
    """What was read of a source, by the folder and the id of the job, or by the folder."""

    configs: dict[tuple[str, str], tuple[str, LaunchConfig]] = field(default_factory=dict)
    logs: dict[tuple[str, str], list[tuple[int, JobLog]]] = field(default_factory=lambda: defaultdict(list))
    records: dict[str, CaseRecord] = field(default_factory=dict)
    own_logs: set[str] = field(default_factory=set)
    links: dict[str, str] = field(default_factory=dict)

    def take(self, file: File) -> None:
        """Raises Damaged, or ConfigError for a record."""
        if file.target:
            self.links[file.name] = file.target
            return
        path = PurePosixPath(SUFFIX.sub("", file.name))
        folder, named = str(path.parent), _CONFIG.fullmatch(path.name)
        if named:
            self.configs[folder, named[1]] = file.name, _read_config(file)
        elif path.name == CASE:
            self.records[folder] = parse_case(_whole(file), file.name)
        elif path.name == OWN_LOG:
            self.own_logs.add(folder)
        else:
            self._keep_read(file)

    def _keep_read(self, file: File) -> None:
        """Raises Damaged for a file that no name calls the log of a job. An unreadable one may be that of its last attempt."""
        try:
            self._keep(read_log(file))
        except SourceDamaged:
            raise
        except Damaged as error:
            unread = JobLog(file.name, {}, {}, str(error))
            if not _is_named(unread):
                raise
            self._keep(unread)

    def follow_links(self) -> Iterator[str]:
        """Take each link to a log of this source as that log. Yields those that lead elsewhere: they are not followed."""
        known = {log.name: log for logs in self.logs.values() for _, log in logs}
        for name, target in self.links.items():
            if target in known:
                self._keep(replace(known[target], name=name))
            elif _OF_JOB.fullmatch(PurePosixPath(SUFFIX.sub("", name)).name):
                yield name

    def _keep(self, log: JobLog) -> None:
        path = PurePosixPath(SUFFIX.sub("", log.name))
        folder, of_job = str(path.parent), _OF_JOB.fullmatch(path.name)
        if of_job is None:
            self.logs[folder if path.name == LOG else str(path), ""].append((0, log))
            return
        # The output of a batch script counts as the log only if there is no other.
        job, restart = of_job["job"] or of_job["batch"], int(of_job["restart"] or -1)
        self.logs[folder, job].append((restart, log))

    def jobs(self) -> Iterator[FoundJob]:
        """Each job with its log and what stands beside it."""
        for folder, job in sorted({*self.configs, *self.logs}):
            config_name, config = self.configs.get((folder, job), ("", None))
            restart, logs = _last_attempt(self.logs.get((folder, job), ()))
            if config is None and not logs:
                continue
            record = None if job else self.records.get(folder)
            yield FoundJob(
                job,
                logs[0] if logs else None,
                restart,
                config,
                config_name,
                record,
                own_log=record is not None and folder in self.own_logs,
                rivals=tuple(log.name for log in logs[1:] if log.prints != logs[0].prints),
            )


def read_jobs(source: Source) -> list[FoundJob]:
    """The jobs of a source, in the order of the names of their logs. Raises ConfigError if it cannot be read at all."""
    read = _Read()
    for file in source.files(wanted):
        try:
            read.take(file)
        except SourceDamaged as error:
            source.refused[source.name] = f"{error} (in {file.name})"
            break
        except (Damaged, ConfigError) as error:
            source.refused[file.name] = str(error)
    for name in read.follow_links():
        source.refused[name] = f"is a link to {read.links[name]}, which is not followed"
    return list(_without_copies(read.jobs()))


def _last_attempt(logs: Sequence[tuple[int, JobLog]]) -> tuple[int, list[JobLog]]:
    """The number of restarts of the last attempt, and its logs: what no name calls the log of a job is one if it has steps."""
    if not any(restart >= 0 and _is_named(log) for restart, log in logs):
        logs = [(restart, log) for restart, log in logs if log.has_steps]
    last = max((restart for restart, _ in logs), default=0)
    return max(0, last), [log for restart, log in logs if restart == last]


def _is_named(log: JobLog) -> bool:
    name = PurePosixPath(SUFFIX.sub("", log.name)).name
    return name == LOG or _OF_JOB.fullmatch(name) is not None


def read_log(file: File) -> JobLog:
    """Read a log by all formats at once, until one of them is sure. Raises Damaged."""
    parsers, tail = {name: parser(name) for name in FORMATS}, b""
    sure = False
    for piece in file.pieces:
        for reader in parsers.values():
            reader.feed(piece)
        tail = (tail + piece)[-TAIL:]
        if not sure:
            steps = {name: len(reader.log().steps) for name, reader in parsers.items()}
            sure = max(steps.values()) >= _SURE
            parsers = {name: parsers[name] for name, count in steps.items() if count or not sure}
    logs = {name: reader.finish() for name, reader in parsers.items()}
    stepping = {name: log for name, log in logs.items() if log.steps or log.restarted_after}
    return JobLog(file.name, stepping or logs, {name: end_of(name, tail) for name in stepping or logs})


def _whole(file: File) -> bytes:
    """All bytes of a small file. Raises Damaged."""
    text = b""
    for piece in file.pieces:
        text += piece
        if len(text) > _MOST_SMALL:
            raise Damaged(f"has more than {_MOST_SMALL:,} bytes")
    return text


def _read_config(file: File) -> LaunchConfig:
    """Raises Damaged."""
    try:
        return LaunchConfig.model_validate(yaml.load(_whole(file), Loader))
    except (yaml.YAMLError, ValidationError, ValueError, RecursionError) as error:
        raise Damaged(f"is no llmb-config: {str(error).splitlines()[0]}") from None


def _without_copies(jobs: Iterable[FoundJob]) -> list[FoundJob]:
    """Each log of a job once, under the name that tells most. A log that two jobs have by their ids counts for each."""
    kept: list[FoundJob] = []
    for job in sorted(jobs, key=lambda job: (job.config is None, not job.id)):
        same = next((other for other in kept if _is_copy(job, other)), None)
        if same is None:
            kept.append(job)
        elif job.log is not None:
            kept[kept.index(same)] = replace(same, copies=(*same.copies, job.log.name))
    return sorted(kept, key=lambda job: job.name)


def _is_copy(job: FoundJob, other: FoundJob) -> bool:
    if job.log is None or other.log is None or job.config is not None:
        return False
    return bool(job.log.prints & other.log.prints) and job.id in ("", other.id)
