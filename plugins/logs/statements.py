"""What a run states of itself besides its steps: how many processes, which model, in which precision, on which GPU. Pure.

A `Statement` is a line as an upstream's source prints it; docs/logs.md names the place of each. A group of its pattern that is named
as a fact of `plugins.identity` gives one. The statements of any format stand here, those of one format in its module.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import field

MAX_FACTS = 64
"""A run states a fact in one way, or in a few that contradict each other; what goes beyond is not kept."""

MAX_LINES = 1 << 13
"""Each of the processes of the largest recipe may state a fact a few times; further such lines are not looked at."""


@dataclass(frozen=True)
class Fact:
    """What a run states of itself: `name` as in `plugins.identity`, `said` as the log puts it."""

    name: str
    value: int | str
    said: str


@dataclass(frozen=True, eq=False)
class Statement:
    """A line that has `hint` in it and matches `pattern`, each named group of which is a fact.

    A whole number counts as such, one with three decimals in thousandths, a list of ranks by its length, a GPU by its name; `words`
    are the other values that count, and what they mean. `begins`: one process prints it once, before the first step of an attempt.
    """

    hint: bytes
    pattern: re.Pattern[str]
    words: Mapping[str, int | str] = field(default_factory=dict)
    begins: bool = False

    def facts(self, match: re.Match[str]) -> Iterator[Fact]:
        for name, text in match.groupdict().items():
            value = None if text is None else self._value(text.strip())
            if value is not None:
                yield Fact(name, value, " ".join(match[0].split())[:200])

    def _value(self, text: str) -> int | str | None:
        if text in self.words:
            return self.words[text]
        if re.fullmatch(r"\d{1,18}", text, re.ASCII):
            return int(text)
        if re.fullmatch(r"\d+(?:, \d+)+", text, re.ASCII):
            return text.count(",") + 1
        if re.fullmatch(r"\d{1,9}\.\d{3}", text, re.ASCII):
            return int(text.replace(".", ""))
        return text if text.startswith("NVIDIA ") else None


def lists(name: str, words: str) -> Statement:
    """A group of parallel processes, as NeMo prints that of rank 0."""
    return Statement(
        f"Rank 0 has {words} parallel group".encode(),
        re.compile(rf"Rank 0 has {words} parallel group ?: \[(?:(?P<{name}>\d+, [\d, ]+)|0)\]"),
    )


COMMON = (
    Statement(b"Starting with ", re.compile(r"Starting with (?P<processes>\d{1,7}) processes\b"), begins=True),
    Statement(b", MEMBER: ", re.compile(r"GLOBAL_RANK: \d+, MEMBER: \d+/(?P<processes>\d{1,7})\b")),
    Statement(b" nranks ", re.compile(r"NCCL INFO .*?\bcomm 0x[0-9a-f]+ rank \d+ nranks (?P<group>\d{1,7})\b")),
    Statement(
        b" nNodes ",
        re.compile(r"NCCL INFO .*?\bcomm 0x[0-9a-f]+ rank \d+ nRanks (?P<group>\d{1,7}) nNodes (?P<group_nodes>\d{1,7})\b"),
    ),
    Statement(b" peer ranks. Expected", re.compile(r"^\W*\[Gloo\] Rank \d+ is connected to (?P<peers>\d{1,7}) peer ranks\. Expected")),
    Statement(b"StreamExecutor ", re.compile(r"StreamExecutor (?:\[\d+\]|device \(\d+\)): (?P<gpu>NVIDIA [^,]{1,60}), Compute")),
    Statement(b"using a CUDA device (", re.compile(r"using a CUDA device \('(?P<gpu>NVIDIA [^']{1,60})'\)")),
    Statement(b" (UUID: GPU-", re.compile(r"\bGPU \d+: (?P<gpu>NVIDIA [^()]{1,60}?) \(UUID: GPU-")),
    Statement(b"  NVIDIA ", re.compile(r"\| +\d+ +(?P<gpu>NVIDIA \S.{1,40}?) +(?:On|Off) +\|")),
    Statement(
        b"GSW: MODEL=",
        re.compile(
            r"GSW: MODEL=.*?(?:\bJOB_NUM_NODES=(?P<asked_nodes>\d{1,6})\b.*?)?(?:\bGPUS_PER_NODE=(?P<asked_devices>\d{1,3})\b.*?)?"
            r"\bJOB_ID=(?P<job>\d{1,15})\b"
        ),
    ),
    lists("tp", "tensor model"),
    lists("pp", "pipeline model"),
    lists("cp", "context"),
    lists("dp", "data"),
)  # fmt: skip


class Statements:
    """The facts that were read so far of the newest attempt.

    What is stated behind a step is kept apart until the next one comes: if that begins another attempt, it is of that one.
    `begun`: an attempt began behind the last step.
    """

    def __init__(self, known: tuple[Statement, ...]) -> None:
        self._known = dict.fromkeys(known, 0)
        self._facts: dict[tuple[str, int | str], Fact] = {}
        self._since: dict[tuple[str, int | str], Fact] = {}
        self.begun = False

    @property
    def hints(self) -> tuple[bytes, ...]:
        """The substrings without which a line states nothing that is still looked for."""
        return tuple(dict.fromkeys(known.hint for known, lines in self._known.items() if lines < MAX_LINES))

    def read(self, line: bytes, text: str) -> bool:
        """Take in a line that has a hint in it; whether there are fewer hints now."""
        fewer = False
        for statement, lines in self._known.items():
            if lines >= MAX_LINES or statement.hint not in line:
                continue
            self._known[statement] += 1
            fewer |= lines + 1 == MAX_LINES
            for match in statement.pattern.finditer(text):
                self.begun |= statement.begins
                for fact in statement.facts(match):
                    self.keep(fact)
        return fewer

    def keep(self, fact: Fact) -> None:
        if len(self._since) < MAX_FACTS:
            self._since.setdefault((fact.name, fact.value), fact)

    def stepped(self, *, anew: bool) -> None:
        """A step was read; `anew`: it is the first of another attempt."""
        if anew:
            self._facts = {}
        for key, fact in self._since.items():
            if len(self._facts) < MAX_FACTS:
                self._facts.setdefault(key, fact)
        self._since = {}
        self.begun = False

    @property
    def facts(self) -> tuple[Fact, ...]:
        if self.begun:
            return tuple(self._since.values())
        return tuple({**self._since, **self._facts}.values())
