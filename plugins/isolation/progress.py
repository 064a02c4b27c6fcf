"""How far an isolation is, by the jobs that its probes were: a search is sent what they measured, round by round."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count

from plugins.isolation import PROOF
from plugins.isolation.answer import Answer
from plugins.isolation.probes import Probe, Result, Search

_MODE = re.compile(r"isolate(\d+)x(\d+)\.(\d+)-(.+)")


def isolates(mode: str) -> bool:
    """Whether a job with this mode is a part of an isolation."""
    return mode == PROOF or ProbeJob.parse(mode) is not None


@dataclass(frozen=True)
class ProbeJob:
    """A job of an isolation: a start of a probe in a round, both counted from 1. Its name is the mode of the job."""

    round: int
    probe: Probe
    run: int

    @property
    def name(self) -> str:
        return f"isolate{self.round}x{self.probe.length}.{self.run}-{'+'.join(self.probe.nodes)}"

    @classmethod
    def parse(cls, mode: str) -> ProbeJob | None:
        """The job with this mode, as that of a probe that was started once; None if it is no job of an isolation."""
        match = _MODE.fullmatch(mode)
        if match is None:
            return None
        number, length, run, nodes = match.groups()
        return cls(int(number), Probe(tuple(nodes.split("+")), length=int(length)), int(run))


def nodes_of(mode: str) -> str:
    """The list of nodes that a job with this mode runs on; "" if it is no job of an isolation."""
    job = ProbeJob.parse(mode)
    return ",".join(job.probe.nodes) if job else ""


def jobs_of(number: int, probe: Probe) -> list[ProbeJob]:
    """The jobs of a probe in a round."""
    return [ProbeJob(number, probe, run) for run in range(1, probe.runs + 1)]


@dataclass(frozen=True)
class Round:
    """The probes of a round that are not over."""

    number: int
    probes: tuple[Probe, ...]


def progress(search: Search[Answer], result: Callable[[int, Probe], Result | None]) -> Round | Answer:
    """The answer, or the round that the search is in. `result` is what a probe of a round measured; None if it is not over."""
    try:
        probes = next(search)
        for number in count(1):
            results = [result(number, probe) for probe in probes]
            over = [each for each in results if each is not None]
            if len(over) < len(probes):
                return Round(
                    number, tuple(probe for probe, each in zip(probes, results, strict=True) if each is None)
                )
            probes = search.send(over)
    except StopIteration as end:
        answer: Answer = end.value
        return answer
    raise AssertionError("a search ends")
