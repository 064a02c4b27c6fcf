"""`judge PATH...` judges any logs: no checkout, no site file, no cluster. `cases` lists what can be judged."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from platform import python_version
from typing import TextIO
from xml.etree import ElementTree

from pacemark import Command
from plugins.base.errors import ConfigError, Infrastructure
from plugins.base.files import write_whole
from plugins.base.words import counted, first_of, shown
from plugins.judging.case_record import record_of, steps_table
from plugins.judging.judgement import Judgement
from plugins.record.case import CaseRecord
from plugins.record.folder import STEPS
from plugins.record.stored import summary_as_json
from plugins.record.summary import NO_SITE, SCHEMA, Summary
from plugins.record.verdict import Kind, LeftOut, Outcome
from plugins.reports.checkout import PUBLISHED, VERSION
from plugins.reports.gate import CODES, exit_code, overall
from plugins.reports.terminal import print_table
from plugins.sources.attribution import Asked, Attribution, Attributor
from plugins.sources.files import STDIN, Source
from plugins.sources.jobs import FoundJob, read_jobs, wanted
from plugins.sources.judged import how_known, judge_job
from plugins.sources.registry import Registry

_LONGEST = 100
"""A longer path is shortened in the terminal."""


@dataclass(frozen=True)
class Judged:
    """A job whose case is known. `id` tells it from other jobs of the same case."""

    source: str
    attribution: Attribution
    judgement: Judgement
    id: str

    @property
    def record(self) -> CaseRecord:
        return replace(record_of(self.judgement), id=self.id)


@dataclass(frozen=True)
class Sight:
    """What was found in all sources: the jobs that were judged, and by their names those that were not, and files that cannot be read.

    `others` are jobs that have no published pace, `stepless` files beside them that have no training step.
    """

    judged: Sequence[Judged]
    questions: dict[str, str]
    unread: dict[str, str]
    others: dict[str, str]
    stepless: list[str]


def source_arguments(parser: argparse.ArgumentParser) -> None:
    """What is judged, and what the user says of it."""
    parser.add_argument(
        "paths",
        nargs="+",
        metavar="PATH",
        help="a log, a folder of logs, an archive (tar, zip), or - for standard input",
    )
    parser.add_argument(
        "--gpu", default="", metavar="TYPE", help="the type of GPU of all jobs, such as gb200"
    )
    parser.add_argument(
        "--release", default="", metavar="NAME", help="the release of all jobs, such as 26.06.01"
    )
    parser.add_argument(
        "--case", default="", metavar="CASE", help="the case of all jobs, or a part of its name"
    )


def _judge_arguments(parser: argparse.ArgumentParser) -> None:
    source_arguments(parser)
    parser.add_argument("--strict-last", action="store_true", help="let the published statistic alone decide")
    parser.add_argument("--json", action="store_true", help="print the record as JSON")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write the report as a page")
    parser.add_argument("--junit", type=Path, metavar="FILE", help="write the verdicts as JUnit's XML")
    parser.add_argument("--gate", action="store_true", help="exit with the code of the verdicts (docs/ci.md)")


def _judge(options: argparse.Namespace) -> int:
    _require_pages(options.html, options.junit)
    sight = look(options, strict_last=options.strict_last)
    summary = _summary(sight, options)
    if options.html:
        write_whole(options.html, _page(sight, summary))
    if options.junit:
        write_whole(options.junit, _junit(sight))
    if options.json:
        known = {
            judged.id: {"log": judged.attribution.job.name, "known": how_known(judged.attribution)}
            for judged in sight.judged
        }
        more = {
            "found": known,
            "not_judged": {**sight.questions, **sight.others},
            "not_read": sight.unread,
            "without_steps": sight.stepless,
        }
        print(json.dumps({**summary_as_json(summary), **more}, indent=2))
    elif sys.stdout is not None:
        _print(sight, summary, sys.stdout)
    assert summary.exit_code is not None
    return summary.exit_code


def _require_known(attributor: Attributor, registry: Registry, asked: Asked) -> None:
    """Raise ConfigError if the user asks for what no recipe has."""
    if asked.gpu and asked.gpu not in registry.gpus:
        raise ConfigError(f"--gpu {asked.gpu}: is no type of GPU; known: {', '.join(registry.gpus)}")
    if not attributor.candidates:
        words = " ".join(f"--{name} {value}" for name, value in vars(asked).items() if value)
        raise ConfigError(f"{words}: there is no such case; `pacemark cases` lists all")


def _require_pages(*paths: Path | None) -> None:
    """Raise ConfigError if a report would take the place of a log, or of a folder."""
    for path in paths:
        if path is not None and (path.is_dir() or wanted(path.name)):
            raise ConfigError(f"{path}: is a folder or the name of a log: name a file such as report.html")


def look(
    options: argparse.Namespace, opened: Callable[[str], Source] = Source, *, strict_last: bool = False
) -> Sight:
    """Read all sources of `source_arguments`, as `opened` opens them, and judge their jobs. Raises ConfigError."""
    registry = Registry(PUBLISHED)
    asked = Asked(options.gpu, options.release, options.case)
    attributor = Attributor(registry.candidates, registry, asked)
    _require_known(attributor, registry, asked)
    if "" in options.paths:
        raise ConfigError("a path is empty: name a log, a folder or an archive")
    judgements: list[tuple[str, Attribution, Judgement]] = []
    sight = Sight([], {}, {}, {}, [])
    for path in dict.fromkeys(map(os.path.normpath, options.paths)):
        source = opened(path)
        for attribution in _reported(list(map(attributor.of, read_jobs(source)))):
            job, place = attribution.job, _place(path, attribution.job.name)
            if job.is_stepless and not job.id and not job.record and place != path:
                sight.stepless.append(place)
                continue
            if attribution.candidate is None:
                group = sight.others if attribution.other else sight.questions
                group[place] = attribution.question + (
                    f": give {attribution.answer}" if attribution.answer else ""
                )
                continue
            try:
                judgement = judge_job(attribution, path, registry.baselines, strict_last=strict_last)
            except Infrastructure as error:
                sight.questions[place] = str(error)
                continue
            judgements.append((path, attribution, judgement))
        sight.unread.update({_place(path, name): reason for name, reason in source.refused.items()})
    return replace(sight, judged=list(_with_ids(judgements)))


def _reported(attributions: Sequence[Attribution]) -> Iterator[Attribution]:
    """One a job: of its pods' logs those with steps, or else one of them; the output of its batch script if there is no log."""
    jobs = [each.job for each in attributions]
    known = {_place_of_pods(job) for job in jobs if job.log and job.log.has_steps}
    logged = {job.id for job in jobs if job.log and not job.is_of_batch}
    for each in attributions:
        if each.job.is_of_batch and each.job.id in logged:
            continue
        if each.job.id and each.job.is_stepless:
            if _place_of_pods(each.job) in known:
                continue
            known.add(_place_of_pods(each.job))
        yield each


def _place_of_pods(job: FoundJob) -> tuple[str, str]:
    return job.name[: job.name.find(job.id)], job.id


def _place(path: str, name: str) -> str:
    """Where a file is, as a user finds it."""
    if name in (path, Path(path).name) or path == STDIN:
        return path
    return f"{path}/{name}" if Path(path).is_dir() else f"{path}:{name}"


def _with_ids(judgements: Sequence[tuple[str, Attribution, Judgement]]) -> Iterator[Judged]:
    """Each with a name of its own: that of its case, and behind # its job if several ran the case."""
    keys = Counter(judgement.case.key for _, _, judgement in judgements)
    given: Counter[str] = Counter()
    for source, attribution, judgement in judgements:
        name = judgement.case.key
        if keys[name] > 1:
            name += f"#{attribution.job.id or len(given) + 1}"
        given[name] += 1
        yield Judged(source, attribution, judgement, name if given[name] == 1 else f"{name}#{given[name]}")


def _summary(sight: Sight, options: argparse.Namespace) -> Summary:
    """The record, as that of a session."""
    records = tuple(judged.record for judged in sight.judged)
    counts = Counter(record.verdict for record in records)
    status = int(any(kind.fails for kind in counts))
    outcome = overall(status, counts)
    code = exit_code(status, outcome, gate=options.gate)
    if not records:
        outcome, code = Outcome.EMPTY, CODES[Outcome.EMPTY]
    if (sight.questions or sight.unread) and not status:
        # What is not known must not pass.
        outcome, code = Outcome.USAGE, CODES[Outcome.USAGE]
    now = time.time()
    return Summary(
        schema=SCHEMA,
        run=", ".join(options.paths),
        site=NO_SITE,
        started=now,
        ended=now,
        outcome=outcome,
        exit_code=code,
        regressions=(),
        uncompared=(),
        acceptance=None,
        scaling=(),
        totals={kind: counts[kind] for kind in Kind},
        gpu_hours=0.0,
        repeated=None,
        left_out=tuple(_left_out(sight)),
        commit=None,
        dirty=None,
        versions={"pacemark": VERSION, "python": python_version()},
        files={},
        cases=records,
    )


def _left_out(sight: Sight) -> Iterator[LeftOut]:
    """What was not judged, for the record and the page."""
    for name, reason in {**sight.questions, **sight.unread, **sight.others}.items():
        yield LeftOut(recipe=name, reason=reason, cases=1, ids=(name,))


def _print(sight: Sight, summary: Summary, file: TextIO) -> None:
    width = max(100, shutil.get_terminal_size().columns)
    if summary.cases:
        print_table(summary.cases, file, width, colour=file.isatty())
    for judged in sight.judged:
        file.write(_line(f"{judged.id}: {how_known(judged.attribution)}"))
    if summary.totals[Kind.TOO_SLOW]:
        file.write("`pacemark why PATH` says what differs from the published cell\n")
    assert summary.exit_code is not None
    print_rest(sight, summary.exit_code, file)


def print_rest(sight: Sight, status: int, file: TextIO) -> None:
    """Print what was found beside the jobs that were judged."""
    groups = {"no published pace": sight.others, "not judged": sight.questions, "not read": sight.unread}
    for words, group in groups.items():
        for name, reason in group.items():
            file.write(_line(f"{words}: {_short(name)}: {reason}"))
    if not (sight.judged or sight.questions or sight.unread):
        file.write("no log of a training run was found\n")
    if sight.stepless:
        file.write(_line(f"no training step: {first_of(list(map(_short, sight.stepless)), 3)}"))
    unknown = len(sight.questions) + len(sight.unread)
    if unknown:
        file.write(f"{counted(unknown, 'file')} without a verdict: exit code {status}\n")


def _line(text: str) -> str:
    """The text on one line: the name of a file may have several."""
    return shown(text).replace("\n", "\\x0a") + "\n"


def _short(place: str) -> str:
    """Without the folders in the middle: those of an archive are long, and `--json` has them."""
    return place if len(place) <= _LONGEST else f".../{place.rpartition('/')[2]}"


def _page(sight: Sight, summary: Summary) -> str:
    from plugins.reports.page import PageReport

    with tempfile.TemporaryDirectory(prefix="pacemark-") as name:
        for judged in sight.judged:
            path = Path(name) / judged.id / STEPS
            path.parent.mkdir(parents=True)
            path.write_text(steps_table(judged.judgement))
        return PageReport().render(Path(name), summary)[0]


def _junit(sight: Sight) -> str:
    """The verdicts as JUnit's XML: what was not judged is an error."""
    from plugins.reports.ci_files import junit_properties

    records = [judged.record for judged in sight.judged]
    failed = [record for record in records if record.verdict.fails]
    unknown = {**sight.questions, **sight.unread}
    suite = ElementTree.Element(
        "testsuite",
        name="pacemark",
        tests=str(len(records) + len(unknown)),
        failures=str(len(failed)),
        errors=str(len(unknown)),
        skipped=str(sum(record.verdict in (Kind.NO_BASELINE, Kind.SKIPPED) for record in records)),
    )
    for record in records:
        test = ElementTree.SubElement(suite, "testcase", classname=record.recipe, name=shown(record.id))
        properties = ElementTree.SubElement(test, "properties")
        for name, value in junit_properties(record):
            ElementTree.SubElement(properties, "property", name=name, value=value)
        if record.verdict.fails:
            ElementTree.SubElement(test, "failure", message=shown(record.headline))
        elif record.verdict is not Kind.PASSED:
            ElementTree.SubElement(test, "skipped", message=shown(record.headline))
    for name, reason in unknown.items():
        test = ElementTree.SubElement(suite, "testcase", classname="not judged", name=shown(name))
        ElementTree.SubElement(test, "error", message=shown(reason))
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def _cases_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--gpu", default="", metavar="TYPE", help="cases on this type of GPU")
    parser.add_argument("--release", default="", metavar="NAME", help="cases of this release")
    parser.add_argument("-k", dest="case", default="", metavar="CASE", help="cases with this in their names")


def _cases(options: argparse.Namespace) -> int:
    """Print a line for each case: its name, release, type of GPU, and the number that it is judged by."""
    registry, asked = Registry(PUBLISHED), Asked(options.gpu, options.release, options.case)
    candidates = sorted(filter(asked.fits, registry.candidates), key=lambda each: each.order)
    for each in candidates:
        number = registry.number(each)
        print(f"{each.text}: {number.text if number else 'no number was published'}")
    if not candidates:
        raise ConfigError("there is no such case")
    return 0


COMMANDS = {
    "cases": Command("list what can be judged, and by which number", _cases_arguments, _cases),
    "judge": Command("judge logs, folders and archives of logs", _judge_arguments, _judge),
}
