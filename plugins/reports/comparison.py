"""Two finished runs beside each other: their cases' paces, and what else changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TextIO

from plugins.base.errors import ConfigError
from plugins.base.words import nodes_in_words
from plugins.judging.repeats import ALPHA, SAME, Comparison, Finding, Pair, Ratio, compare
from plugins.record.case import CaseRecord
from plugins.record.folder import SUMMARY
from plugins.record.stored import read_summary
from plugins.record.summary import Summary
from plugins.record.verdict import FAIL_IF, Kind

COMPARISON = "comparison.json"

_COLOURS = {Finding.FASTER: "green", Finding.SLOWER: "red", Finding.CANNOT_TELL: "yellow"}

# What a case is, besides its pace. A case whose work differs is another one.
_WORK = ("gpus", "dtype", "gpu", "variant", "sequence_length", "layers", "gbs")

# In s: no step takes less, or more.
_SHORTEST, _LONGEST = 1e-9, 1e9


@dataclass(frozen=True)
class Runs:
    """Two runs compared. `not_compared` says why for each case that is in one of them alone, or has no pace."""

    first: Summary
    second: Summary
    comparison: Comparison
    not_compared: Mapping[str, str]
    changed: Sequence[str]


def read_run(folder: Path) -> Summary:
    """The record of the run in this folder, whose paces can be compared. Raises ConfigError."""
    summary = read_summary(folder)
    for record in summary.cases:
        for pace in _paces(record):
            if not _SHORTEST < pace < _LONGEST:
                raise ConfigError(
                    f"{folder / SUMMARY}: {record.id}: {pace:g} s is no time of a step; the record is damaged"
                )
    return summary


def compare_runs(first: Summary, second: Summary) -> Runs:
    """Compare the second run with the first."""
    before = {record.id: record for record in first.cases}
    pairs, without = [], {}
    for record in second.cases:
        earlier = before.pop(record.id, None)
        reason = _why_not(first, earlier, second, record)
        if earlier is None or reason:
            without[record.id] = reason
        else:
            pairs.append(Pair(record.id, _paces(earlier), _paces(record), _properties(record)))
    without |= dict.fromkeys(before, f"not in {second.run}")
    return Runs(first, second, compare(pairs), without, _changed(first, second))


def _why_not(first: Summary, earlier: CaseRecord | None, second: Summary, record: CaseRecord) -> str:
    if earlier is None:
        return f"not in {first.run}"
    for run, case in ((first, earlier), (second, record)):
        if not _paces(case) or case.verdict is Kind.INVALID:
            return f"{case.verdict} in {run.run}"
    then, now = earlier.configuration or {}, record.configuration or {}
    other = [
        f"{name} {then.get(name)} and {now.get(name)}" for name in _WORK if then.get(name) != now.get(name)
    ]
    if not other:
        return ""
    return f"not the same work: {', '.join(other)}"


def _paces(record: CaseRecord) -> tuple[float, ...]:
    """The steady step time in s of each job that was judged."""
    if record.runs:
        return tuple(run.steady_median for run in record.runs)
    if record.steady_median:
        return (record.steady_median,)
    return ()


def _properties(record: CaseRecord) -> dict[str, str]:
    configuration = record.configuration or {}
    return {
        "recipe": record.recipe,
        "dtype": str(configuration.get("dtype")),
        "gpus": f"{configuration.get('gpus')}-GPU",
    }


def _changed(first: Summary, second: Summary) -> list[str]:
    """What is not the same in both runs, besides the pace: one line for each fact, with the cases."""
    before = {record.id: record for record in first.cases}
    changes: dict[str, list[str]] = {}
    both = [(before[record.id], record) for record in second.cases if record.id in before]
    for then, now in both:
        for name, (old, new) in _differences(_facts(then), _facts(now)).items():
            changes.setdefault(f"{name}: {old or 'not stated'} became {new or 'not stated'}", []).append(
                now.id
            )
    lines = [
        f"{text} ({'all cases' if len(cases) == len(both) else ', '.join(cases)})"
        for text, cases in changes.items()
    ]
    harness = _differences(_harness(first), _harness(second))
    return lines + [f"{name}: {old} became {new}" for name, (old, new) in harness.items()]


def _facts(record: CaseRecord) -> dict[str, str]:
    configuration = {
        name: str(value) for name, value in (record.configuration or {}).items() if name not in _WORK
    }
    return {
        "nodes": nodes_in_words(record.job.nodes),
        "release": record.release or "",
        **configuration,
        **(record.versions or {}),
    }


def _harness(summary: Summary) -> dict[str, str]:
    return {"site": summary.site, "Pacemark's commit": str(summary.commit), **summary.versions}


def _differences(then: Mapping[str, str], now: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    names = [*then, *(name for name in now if name not in then)]
    values = {name: (then.get(name, ""), now.get(name, "")) for name in names}
    return {name: (old, new) for name, (old, new) in values.items() if old != new}


def differing(runs: Runs, choice: str) -> list[str]:
    """The cases that a comparison fails for, with their figures. `choice` is one of FAIL_IF."""
    findings = runs.comparison.findings
    return [
        f"{key}: {findings[key]} than in {runs.first.run}, beyond what two equal runs would show: {_percent(ratio)}"
        for key, ratio in runs.comparison.ratios.items()
        if findings[key] in FAIL_IF[choice]
    ]


def as_json(runs: Runs) -> dict[str, Any]:
    """The comparison as other programs read it. Ratios are of paces: below 1, the second run is slower."""
    return {
        "first": runs.first.run,
        "second": runs.second.run,
        "run_to_run": runs.comparison.run_to_run,
        "effects": [
            {"name": effect.name, "cases": list(effect.cases), "ratio": asdict(effect.ratio)}
            for effect in runs.comparison.effects
        ],
        "cases": {
            key: {"finding": str(runs.comparison.findings[key]), "ratio": asdict(ratio)}
            for key, ratio in runs.comparison.ratios.items()
        },
        "not_compared": dict(runs.not_compared),
        "changed": list(runs.changed),
    }


def print_comparison(runs: Runs, file: TextIO, width: int, *, colour: bool) -> None:
    """Print what differs first, then a row for each case, and then what else changed."""
    from rich.text import Text

    from plugins.base.console import PlainConsole

    console = PlainConsole(file=file, width=width, force_terminal=colour, no_color=not colour)
    comparison = runs.comparison
    console.print(f"{runs.second.run} against {runs.first.run}", style="bold")
    printed: set[str] = set()
    for effect in comparison.effects:
        line = f"{effect.name}: {_percent(effect.ratio)}"
        if not printed.isdisjoint(effect.cases):
            line += ", on top of what is above"
        console.print(line, soft_wrap=True)
        printed.update(effect.cases)
    if not comparison.ratios:
        console.print("no case could be compared")
    elif not comparison.effects:
        untold = [*comparison.findings.values()].count(Finding.CANNOT_TELL)
        line = "no case differs beyond what two equal runs would"
        if untold:
            line += f", but of {untold} of {len(comparison.findings)} cases it cannot be told"
        console.print(line)
    findings = {
        key: Text(finding, style=_COLOURS.get(finding, "")) for key, finding in comparison.findings.items()
    }
    rows = [(key, findings[key], _percent(ratio)) for key, ratio in comparison.ratios.items()]
    console.print_rows(("case", "pace", "throughput, 95 % interval"), rows)
    for key, reason in runs.not_compared.items():
        console.print(f"not compared: {key}: {reason}", soft_wrap=True)
    for line in runs.changed:
        console.print(f"changed: {line}", soft_wrap=True)
    console.print(
        f"run-to-run standard deviation {100 * comparison.run_to_run:.2g} %; two equal runs are told to differ with a "
        f"probability of about {100 * ALPHA:g} %; same: within {100 * SAME:g} %",
        style="dim",
        soft_wrap=True,
    )


def _percent(ratio: Ratio) -> str:
    value, low, high = (100 * (part - 1) for part in (ratio.value, ratio.low, ratio.high))
    return f"{value:+.1f} % ({low:+.1f} to {high:+.1f})"
