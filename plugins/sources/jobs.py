"""The jobs of a source: the log of each, what it states, and what its launcher wrote beside it.

NVIDIA's llmb-run writes `llmb-config_<job>.yaml` beside the log of a job (exemplar-performance e249aa3,
cli/llmb-run/src/llmb_run/run_config.py 276), and takes the log of its last restart (job_logs.py 42).
"""

from __future__ import annotations

import math
import re
import zlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from pathlib import Path, PurePosixPath
from typing import Any

from ahocorasick_rs import BytesAhoCorasick, Implementation
from pydantic import BaseModel, ConfigDict, model_validator

from plugins.base.errors import ConfigError
from plugins.base.yamlfile import parse
from plugins.judging.identity import fingerprint
from plugins.judging.job_files import TAIL, LogEnd, end_of
from plugins.logs import Log
from plugins.logs.formats import parser
from plugins.logs.line_parser import LineParser
from plugins.logs.registry import FORMATS
from plugins.record.case import CaseRecord
from plugins.record.folder import ALLURE, BASIS, CASE, LOG, OWN_LOG
from plugins.record.stored import parse_case
from plugins.record.verdict import Kind
from plugins.sources.files import SUFFIX, Damaged, File, Source, SourceDamaged, decompressed, pieces

_CONFIG = re.compile(r"llmb-config_(\d+)\.yaml", re.ASCII)
# NeMo-Run's log, `log-<account>-<suffix>.<task>_<job>_<restart>.out`. Without `run`, the numbers may be others, as in
# `log-maxtext_llama2_70b_<GPUs>_<job>.out`. Then the outputs of batch scripts.
_OF_JOB = re.compile(
    r"(?s)log-(?P<run>[^.]*-[^.]*\.)?.*_(?P<job>\d+)_(?P<restart>\d+)\.out|(?:sbatch_.*_|slurm-)(?P<batch>\d+)\.out",
    re.ASCII,
)
_NAMED = re.compile(r"(?s)log-.*\.out")
_TEXT = re.compile(r"(?is).*\.(log|out|err|txt|json|jsonl)(\.\d+)?")
# Beside the log that Pacemark judged: a try that another one followed, and what else it keeps.
_ASIDE = re.compile(r"try-\d+|log\.earlier\.txt|errors\.txt|sent\.txt|artefacts\.json")
_MOST_SMALL = 1 << 20
_SURE = 3
"""A format of which so many steps were read is that of the log."""
_MOST_HELD = 32
"""So many pieces of 1 MiB are kept until a hint tells the format."""


class _Section(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, values: object) -> object:
        if not isinstance(values, dict):
            return values
        return {key: value for key, value in values.items() if value is not None}


class ModelInfo(_Section):
    """The words of llmb-run: `dtype` names no scaling of FP8."""

    model_name: str = ""
    model_size: str = ""
    dtype: str = ""
    scale: int | None = None
    gpu_type: str = ""

    @property
    def is_whole(self) -> bool:
        """Whether it names a case by itself."""
        return bool(self.model_name and self.model_size and self.dtype and self.scale)


class WorkloadInfo(_Section):
    framework: str = ""
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

    `tail` is its end, compressed: a source may have thousands of logs.
    """

    name: str
    logs: Mapping[str, Log]
    tail: bytes

    @property
    def has_steps(self) -> bool:
        return any(log.steps or log.restarted_after for log in self.logs.values())

    def end(self, log_format: str) -> LogEnd:
        """What its end tells."""
        return end_of(log_format, zlib.decompress(self.tail))

    @cached_property
    def prints(self) -> frozenset[str]:
        """What tells its steps from those of any other run, by each format."""
        return frozenset(fingerprint(log) for log in self.logs.values() if log.steps)


@dataclass(frozen=True)
class FoundJob:
    """A job with the log of its last attempt, None if there is none. `id` is "" if no name states it.

    `config_name` is the file of its launcher, "" if there is none. `record` is that of the case which Pacemark judged by the
    log, `own_log` whether it took the place of another one there. `copies` are the other names of the same log, `rivals`
    those of other logs of the same attempt, `twin` that of the log of another job with the same steps, `unread` is the name of its launcher's file, record or last log if it cannot be read.
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
    twin: str = ""
    unread: str = ""

    @property
    def is_stepless(self) -> bool:
        """Whether it has a log without steps, whose own name does not say that it is one of a job."""
        return self.log is not None and not self.log.has_steps and not _is_named(self.log.name)

    @property
    def is_of_batch(self) -> bool:
        """Whether its log is what a batch script printed, without steps."""
        base = PurePosixPath(SUFFIX.sub("", self.name)).name
        return self.log is not None and not self.log.has_steps and base.startswith(("sbatch_", "slurm-"))

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
    return bool(_CONFIG.fullmatch(base) or _TEXT.fullmatch(base))


@dataclass
class _Read:
    """What was read of a source, by the folder and the id of the job, or by the folder."""

    configs: dict[tuple[str, str], tuple[str, LaunchConfig]] = field(default_factory=dict)
    logs: list[JobLog] = field(default_factory=list)
    records: dict[str, CaseRecord] = field(default_factory=dict)
    cases: set[PurePosixPath] = field(default_factory=set)
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
            self.cases.add(path.parent)
            self.records[folder] = parse_case(_whole(file), file.name)
        elif path.name == OWN_LOG:
            self.own_logs.add(folder)
        else:
            self.logs.append(read_log(file, self._formats(file.name)))

    def _formats(self, name: str) -> Collection[str]:
        """The formats that a log may have: of a job whose launcher's file was read, which stands before it in an archive, one."""
        config = self.configs.get(self._place_of(name)[0])
        framework = config[1].workload_info.framework if config else ""
        return [framework] if framework in FORMATS else FORMATS

    def follow_links(self) -> Iterator[str]:
        """Take each link to a log of this source as that log. Yields those that lead elsewhere: they are not followed."""
        known = {log.name: log for log in self.logs}
        for name, target in self.links.items():
            if target in known:
                self.logs.append(replace(known[target], name=name))
            elif _is_named(name):
                yield name

    def _place_of(self, name: str) -> tuple[tuple[str, str], float]:
        """The folder and the id of the job that a file of this name is of, and its restart; or its path and no id."""
        path = PurePosixPath(SUFFIX.sub("", name))
        config, of_job = _CONFIG.fullmatch(path.name), _OF_JOB.fullmatch(path.name)
        if config:
            return (str(path.parent), config[1]), math.inf
        if of_job and of_job["batch"]:
            # It counts as the log only if there is no other.
            return (str(path.parent), of_job["batch"]), -1
        if of_job and (of_job["run"] or (str(path.parent), of_job["job"]) in self.configs):
            return (str(path.parent), of_job["job"]), int(of_job["restart"])
        of_folder = path.name in (LOG, CASE)
        return (str(path.parent if of_folder else path), ""), math.inf if path.name == CASE else 0

    def jobs(self, lost: Iterable[str]) -> Iterator[FoundJob]:
        """Each job with its log and what stands beside it. In the place of a `lost` file no earlier one may pass."""
        runs = {case.parent.parent for case in self.cases}
        logs_of: dict[tuple[str, str], list[tuple[float, JobLog]]] = defaultdict(list)
        lost_of: dict[tuple[str, str], list[tuple[float, str]]] = defaultdict(list)
        for log in self.logs:
            place, restart = self._place_of(log.name)
            logs_of[place].append((restart, log))
        for name in lost:
            place, restart = self._place_of(name)
            lost_of[place].append((restart, name))
        without_log = {
            (folder, "") for folder, record in self.records.items() if record.verdict is not Kind.SKIPPED
        }
        for folder, job in sorted({*self.configs, *logs_of, *without_log}):
            if self._is_aside(PurePosixPath(folder), runs):
                continue
            config_name, config = self.configs.get((folder, job), ("", None))
            record = None if job else self.records.get(folder)
            attempts = logs_of[folder, job]
            restart, logs = _last_attempt(attempts)
            if not (config or record or logs):
                # Nothing else tells that the job failed.
                logs = [log for _, log in attempts[:1]]
            unread = (name for number, name in lost_of[folder, job] if number >= restart)
            yield FoundJob(
                job,
                logs[0] if logs else None,
                restart,
                config,
                config_name or (str(PurePosixPath(folder, CASE)) if record else ""),
                record,
                own_log=record is not None and folder in self.own_logs,
                rivals=tuple(log.name for log in logs[1:] if log.prints != logs[0].prints),
                unread=next(unread, ""),
            )

    def _is_aside(self, place: PurePosixPath, runs: Set[PurePosixPath]) -> bool:
        """Whether Pacemark keeps this beside the log of a case, or in a run as what its report shows."""
        return any(
            (path.parent in self.cases and _ASIDE.fullmatch(path.name))
            or (path.parent in runs and path.name in (ALLURE, BASIS))
            for path in (place, *place.parents)
        )


def read_jobs(source: Source) -> list[FoundJob]:
    """The jobs of a source, in the order of the names of their logs. Raises ConfigError if it cannot be read at all."""
    read, cut = _Read(), []
    for file in source.files(wanted):
        try:
            read.take(file)
        except SourceDamaged as error:
            source.refused[source.name] = f"{error} (in {file.name})"
            cut = [file.name]
            break
        except (Damaged, ConfigError) as error:
            source.refused[file.name] = str(error)
    for name in read.follow_links():
        source.refused[name] = f"is a link to {read.links[name]}, which is not followed"
    return _without_copies(read.jobs([*source.refused, *cut]))


def _last_attempt(logs: Sequence[tuple[float, JobLog]]) -> tuple[int, list[JobLog]]:
    """The number of restarts of the last attempt, and its logs: what no name calls the log of a job is one if it has steps."""
    if not any(restart >= 0 and _is_named(log.name) for restart, log in logs):
        logs = [(restart, log) for restart, log in logs if log.has_steps]
    last = max((restart for restart, _ in logs), default=0)
    return int(max(0, last)), [log for restart, log in logs if restart == last]


def _is_named(name: str) -> bool:
    """Whether a file of this name is the log of a job, whatever it has."""
    base = PurePosixPath(SUFFIX.sub("", name)).name
    return base == LOG or _NAMED.fullmatch(base) is not None or _OF_JOB.fullmatch(base) is not None


def read_log(file: File, formats: Collection[str] = FORMATS) -> JobLog:
    """Read a log by those of these formats that it has hints of, or by all, until one of them is sure. Raises Damaged."""
    sure, tail = len(formats) == 1, b""
    readers: dict[str, LineParser] = {name: parser(name) for name in formats if sure}
    held: list[bytes] = []
    for piece in file.pieces:
        for reader in readers.values():
            reader.feed(piece)
        tail = (tail + piece)[-TAIL:]
        if sure:
            continue
        held.append(piece)
        _begin(readers, held, every=len(held) == _MOST_HELD)
        steps = {name: reader.log().steps for name, reader in readers.items()}
        sure = max(map(len, steps.values()), default=0) >= _SURE
        if sure:
            # Megatron-Bridge has Megatron-LM's lines; which of the two it is, a rate tells.
            rated = [name for name, read in steps.items() if any(step.tflops_per_gpu for step in read)]
            readers = {
                name: readers[name] for name in rated or [name for name, read in steps.items() if read]
            }
        if sure or len(readers) == len(FORMATS):
            held = []
    if not sure:
        _begin(readers, held, every=True)
    logs = {name: reader.finish() for name, reader in readers.items()}
    stepping = {name: log for name, log in logs.items() if log.steps or log.restarted_after}
    return JobLog(file.name, stepping or logs, zlib.compress(tail, 1))


@cache
def _hints() -> tuple[list[str], BytesAhoCorasick]:
    """The format of each hint, and the search that finds all hints in one pass. It takes a while to make."""
    pairs = [(name, hint) for name in FORMATS for hint in parser(name).hints]
    search = BytesAhoCorasick([hint for _, hint in pairs], implementation=Implementation.DFA)
    return [name for name, _ in pairs], search


def _begin(readers: dict[str, LineParser], held: Sequence[bytes], *, every: bool) -> None:
    """Read all that is held by each further format that has a hint in the newest piece, or by `every` one."""
    hinted = set(FORMATS)
    if not every:
        names, search = _hints()
        hinted = {names[number] for number, _, _ in search.find_matches_as_indexes(held[-1])}
    for name in [name for name in FORMATS if name in hinted - set(readers)]:
        readers[name] = parser(name)
        for piece in held:
            readers[name].feed(piece)


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
        return parse(Path(PurePosixPath(file.name).name), _whole(file), LaunchConfig)
    except ConfigError as error:
        raise Damaged(f"is no llmb-config: {str(error).splitlines()[0]}") from None


def config_beside(log: Path, job: str) -> tuple[Path, LaunchConfig] | None:
    """The file of a job's launcher beside its log; None if there is none. Raises OSError, and Damaged if it cannot be read."""
    for path in sorted(log.parent.glob("llmb-config_*.yaml*")):
        named = _CONFIG.fullmatch(SUFFIX.sub("", path.name))
        if named and named[1] == job and path.is_file():
            with path.open("rb") as file:
                return path, _read_config(File(path.name, pieces(decompressed(file), str(path))))
    return None


def _without_copies(jobs: Iterable[FoundJob]) -> list[FoundJob]:
    """Each log of a job once, under the name that tells most. Two jobs that have the same one by their ids are twins."""
    kept: dict[int, FoundJob] = {}
    owners: dict[str, list[int]] = defaultdict(list)
    ordered = sorted(jobs, key=lambda job: (job.config is None, not job.id))
    for number, job in enumerate(ordered):
        prints = job.log.prints if job.log else frozenset()
        others = [other for mark in prints for other in owners[mark]]
        same = next((other for other in others if _may_be_copy(job, kept[other])), None)
        if same is not None and job.log is not None:
            kept[same] = replace(kept[same], copies=(*kept[same].copies, job.log.name))
            continue
        kept[number] = job
        if others:
            first = others[0]
            kept[number] = replace(job, twin=kept[first].name)
            kept[first] = replace(kept[first], twin=job.name)
        for mark in prints:
            owners[mark].append(number)
    return sorted(kept.values(), key=lambda job: job.name)


def _may_be_copy(job: FoundJob, other: FoundJob) -> bool:
    """Whether a log with the steps of another job's is that, and not said by its name to be of another job."""
    base, base_of_other = PurePosixPath(job.name).name, PurePosixPath(other.name).name
    if job.config is not None or job.id not in ("", other.id):
        return False
    return base == base_of_other or bool(job.id) or not _NAMED.fullmatch(base)
