"""`why PATH...` compares each run with its published cell: what differs, and what such a difference has cost elsewhere."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TextIO

from pacemark import Command
from pacemark.judge import Judged, look, print_rest, source_arguments
from plugins.base.words import brief, counted, first_of
from plugins.record.verdict import Kind, Outcome
from plugins.reports.checkout import PUBLISHED
from plugins.reports.gate import CODES
from plugins.sources.files import File, Source
from plugins.sources.jobs import LaunchConfig
from plugins.why.causes import Cell, Tables, read_tables
from plugins.why.facts import LineFacts, Seen, of_launch, of_run
from plugins.why.table import Comparison, compare

_HEAD = ("what", "this run", "published cell", "known price", "read from")
_LONGEST, _MOST_UNREAD = 120, 6


@dataclass
class _Watched(Source):
    """A source of which single lines are read as it is judged. `seen` is what they state, by the names of the logs."""

    lines: LineFacts = field(kw_only=True)
    seen: dict[str, Seen] = field(default_factory=dict)

    def files(self, wanted: Callable[[str], bool]) -> Iterator[File]:
        for file in super().files(wanted):
            if file.target:
                # A log that another name leads to has been read, or will be.
                self.seen[file.name] = self.seen.setdefault(file.target, {})
            seen = self.seen.setdefault(file.name, {})
            yield replace(file, pieces=self.lines.passing(file.pieces, seen))


def _arguments(parser: argparse.ArgumentParser) -> None:
    source_arguments(parser)
    parser.add_argument("--json", action="store_true", help="print the rows as JSON")


def _why(options: argparse.Namespace) -> int:
    tables = read_tables(PUBLISHED / "baselines")
    lines, sources = LineFacts(tables.causes.lines), dict[str, _Watched]()

    def opened(path: str) -> Source:
        return sources.setdefault(path, _Watched(path, lines=lines))

    sight = look(options, opened)
    comparisons = [(each, _compared(each, sources[each.source].seen, tables)) for each in sight.judged]
    is_open = bool(sight.questions or sight.unread)
    status = CODES[Outcome.USAGE if is_open else Outcome.EMPTY] if is_open or not comparisons else 0
    if options.json:
        jobs = [_as_json(judged, comparison) for judged, comparison in comparisons]
        more = {"not_judged": {**sight.questions, **sight.others}, "not_read": sight.unread}
        print(json.dumps({"jobs": jobs, **more}, indent=2))
    elif sys.stdout is not None:
        for judged, comparison in comparisons:
            _print(judged, comparison, sys.stdout)
        print_rest(sight, status, sys.stdout)
    return status


def _compared(judged: Judged, seen: Mapping[str, Seen], tables: Tables) -> Comparison:
    candidate, job = judged.attribution.candidate, judged.attribution.job
    assert candidate is not None
    assert job.log is not None
    ran = (job.config or LaunchConfig()).job_config
    launched = of_launch(ran.env_overrides, ran.model_overrides, ran.mbridge_args, job.config_base)
    facts = of_run(job.log.logs[candidate.recipe.file.log], seen.get(job.log.name, {}), launched)
    nodes = candidate.case.nodes(candidate.gpus_per_node)
    return compare(Cell(candidate.case, candidate.gpu, nodes), facts, tables)


def _as_json(judged: Judged, comparison: Comparison) -> dict[str, object]:
    rows = [row._asdict() for row in comparison.rows]
    record = judged.record
    return {
        "id": judged.id,
        "verdict": record.verdict,
        "headline": record.headline,
        **comparison._asdict(),
        "rows": rows,
    }


def _print(judged: Judged, comparison: Comparison, file: TextIO) -> None:
    # It is slow to import.
    from plugins.base.console import PlainConsole

    record, rows = judged.record, comparison.rows
    lines = [f"{row.what}: {row.mend} ({row.source})" for row in rows if row.mend]
    unread = f"; not readable here: {first_of(comparison.unread, _MOST_UNREAD)}" if comparison.unread else ""
    lines.append(f"{counted(len(comparison.agree), 'fact')} agree{unread}")
    gap = record.deviation
    if gap is not None and record.verdict is Kind.TOO_SLOW and any(row.evidence for row in rows):
        lines.append(
            f"the whole gap is {-gap:.1f} %: prices are of other runs, promise nothing, and do not add up"
        )
    file.write(_line(f"{judged.id}: {record.headline}") + "\n")
    if rows:
        width, colour = max(100, shutil.get_terminal_size().columns), file.isatty()
        console = PlainConsole(file=file, width=width, force_terminal=colour, no_color=not colour)
        shown_rows = [[_line(text, _LONGEST) for text in row[: len(_HEAD)]] for row in rows]
        console.print_rows(_HEAD, shown_rows, folded=_HEAD[:-1])
    file.writelines(_line(line) + "\n" for line in lines)


def _line(text: str, longest: int = 1000) -> str:
    return brief(text.replace("\n", "\\x0a"), longest)


COMMANDS = {"why": Command("compare runs with their published cells", _arguments, _why)}
