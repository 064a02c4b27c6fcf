"""What a run states about itself besides its steps: number of processes, model, precision, type of GPU. Pure.

Example: `All distributed processes registered. Starting with 512 processes` states the fact `processes`, 512.

A `Statement` has a pattern for such a line. Each named group of the pattern gives a fact of the same name.
`plugins.judging.validity.configuration` compares the facts with the case. docs/dev/logs.md says where in
upstream's source each line is printed. Statements that any format may have are here. A statement of one format
is in the module of that format.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from plugins.logs.log import GPU_NAME, Fact

MAX_VALUES = 32
"""The most values of one fact that are kept. A run states one value, or a few that contradict each other."""

MAX_LINES = 1 << 16
"""The most lines of one statement that are read. Each process of the largest recipe may print about a dozen."""

MANY, SHARE = 4, 64
"""A value is garbled if one line states it, beside at least `MANY` lines of the same statement with another value.

If it is the begin or the end of the other value, or the name of a GPU, one line in `SHARE` may state it.
"""

OF_A_PROCESS = ("gpu", "group", "peers")
"""Facts that may differ between the processes of one run. All others follow from the command that started it."""

ANCHOR = r"(?<! ) ?"
"""The end of the prefix that a launcher or a container runtime prints before an indented key, if there is one.

Examples of prefixes: `17: ` (srun), `[default0]:` (torchrun), `retraining/0 ` (NeMo-Run), `[1,5]<stdout>:` (mpirun),
a time stamp (kubectl), a time stamp and ` stdout F ` (containerd), a pod and its container (stern).

An indentation has an even number of blanks. So if the number is odd, the first blank belongs to the prefix.
If a prefix ends with several blanks, `LineParser` removes all but one: the line `top` tells their number.
"""

_GPU = r"[A-Z][\w.+-]*(?: [\w.+-]+){1,7}"
"""The whole name of a GPU. If other output is mixed into a name, it often contains a character that is not allowed here."""

REACH = 512, 1 << 15
"""A line may be very long. It is searched from so many characters before its hint to so many after it."""


_Key = tuple[str, int | str]
"""A fact's name and value."""


@dataclass(frozen=True, eq=False)
class Statement:
    """A line that contains `hint` and matches `pattern`. Each named group of the pattern is a fact.

    The text of the group gives the value of the fact. For example, `512` gives 512, `1.250` gives 1250 (thousandths),
    and `0, 1, 2, 3` gives 4, the number of ranks. `words` has the values of particular texts, and comes before these
    rules. With `any_word`, any other text, such as the name of a GPU, is the value itself. Without it, such a
    text gives no fact.

    `begins`: one process prints the line once in each attempt, before the first step.
    """

    hint: bytes
    pattern: str
    words: Mapping[str, int | str] = field(default_factory=dict)
    any_word: bool = False
    begins: bool = False

    @property
    def hints(self) -> tuple[bytes]:
        return (self.hint,)

    def facts(self, match: re.Match[str]) -> Iterator[Fact]:
        for name, text in match.groupdict(default="").items():
            value = self._value(text.strip())
            if value is not None:
                yield Fact(name, value, " ".join(match[0].split())[:200])

    def _value(self, text: str) -> int | str | None:
        if text in self.words:
            return self.words[text]
        if re.fullmatch(r"0|[1-9]\d{0,17}", text, re.ASCII):
            return int(text)
        if re.fullmatch(r"\d+(?:, \d+)+", text, re.ASCII):
            return text.count(",") + 1
        if re.fullmatch(r"\d{1,9}\.\d{3}", text, re.ASCII):
            return int(text.replace(".", ""))
        if self.any_word and text and not text.startswith("$"):
            return text
        return None


def printable(text: str) -> str:
    """The text without halves of surrogate pairs, which JSON may contain."""
    return text.encode(errors="replace").decode()


def lists(name: str, words: str) -> Statement:
    """The statement of a parallel group of rank 0, as NeMo prints it.

    For example, `Rank 0 has data parallel group: [0, 8]` states that the group has 2 processes.
    """
    return Statement(
        f"Rank 0 has {words} parallel group".encode(),
        rf"Rank 0 has {words} parallel group ?: \[(?P<{name}>\d+(?:, \d+)*)\]",
        {"0": 1},
    )


def launch_argument(
    key: str, fact: str, words: Mapping[str, int | str] | None = None, *, any_word: bool = False
) -> Statement:
    """The statement of an argument that the launch script prints. `key` is a regular expression of its name.

    Sources: dgxc-benchmarking v24.11.1 nemotron/configure.sh 87, v25.01.1 maxtext/configure.sh 122.
    """
    return Statement(b"GSW: MODEL=", rf"(?<=[ ']){key}=(?P<{fact}>\w*)(?=[ '])", words or {}, any_word)


ARGUMENTS = {
    "num_layers": "layers",
    "hidden_size": "hidden",
    "ffn_hidden_size": "ffn",
    "num_attention_heads": "heads",
    "tensor_model_parallel_size": "tp",
    "pipeline_model_parallel_size": "pp",
    "context_parallel_size": "cp",
    "micro_batch_size": "mbs",
}
"""The fact that each argument of Megatron Core states. All frameworks on top of it use these names."""

COMMON = (
    Statement(
        b"processes registered. Starting with ",
        r"All distributed processes registered\. Starting with (?P<processes>\d{1,7}) processes\b",
        begins=True,
    ),
    Statement(b", MEMBER: ", r"GLOBAL_RANK: \d+, MEMBER: \d+/(?P<processes>\d{1,7})\s*$"),
    Statement(b" nranks ", r"NCCL INFO .{0,200}?\bcomm 0x[0-9a-f]+ rank \d+ nranks (?P<group>\d{1,7}) cudaDev "),
    Statement(
        b" nNodes ",
        r"NCCL INFO .{0,200}?\bcomm 0x[0-9a-f]+ rank \d+ nRanks (?P<group>\d{1,7}) nNodes ",
    ),
    Statement(
        b" peer ranks. Expected",
        r"\[Gloo\] Rank \d+ is connected to (?P<peers>\d{1,7}) peer ranks\. Expected .{1,60} is : (?P=peers)\b",
    ),
    Statement(
        b"StreamExecutor ",
        rf"StreamExecutor (?:\[\d+\]|device \(\d+\)): (?P<gpu>{_GPU}), Compute Capability",
        any_word=True,
    ),
    Statement(b"using a CUDA device (", rf"using a CUDA device \('(?P<gpu>{_GPU})'\)", any_word=True),
    Statement(b" (UUID: GPU-", rf"\bGPU \d+: (?P<gpu>{_GPU}) \(UUID: GPU-", any_word=True),
    Statement(b"  NVIDIA ", r"\| +\d+ {2,}(?P<gpu>NVIDIA [\w.+-]+(?: [\w.+-]+){0,6}) +(?:On|Off) +\|", any_word=True),
    Statement(b"GPTDatasetConfig(", r"GPTDatasetConfig\(.{0,400}?\bsequence_length=(?P<sequence_length>\d{1,9})\b"),
    Statement(b"setting number of micro", r"setting number of micro-?batches to constant (?P<ga>\d{1,7})\b"),
    Statement(b"GSW: MODEL=", r"\bJOB_NUM_NODES=(?P<asked_nodes>\d{1,6})(?= )"),
    Statement(b"GSW: MODEL=", r"\bGPUS_PER_NODE=(?P<asked_devices>\d{1,3})(?= )"),
    Statement(b"GSW: MODEL=", r"\bJOB_ID=(?P<job>\d{1,15})(?= )"),
    Statement(b"GSW: MODEL=", r"\bDTYPE=(?P<fp8>\w+)(?= )", {"fp8": True, "bf16": False}),
    Statement(b"GSW: MODEL=", r"\bMODEL_SIZE=(?P<size>\w+)(?= )", any_word=True),
    lists("tp", "tensor model"),
    lists("pp", "pipeline model"),
    lists("cp", "context"),
    lists("dp", "data"),
)  # fmt: skip


@dataclass
class _Attempt:
    """What one attempt states. `lines` counts the lines that state each of the `facts`, by the hints of the statements."""

    facts: dict[_Key, Fact] = field(default_factory=dict)
    lines: dict[_Key, Counter[bytes]] = field(default_factory=dict)

    def add(self, fact: Fact, lines: Counter[bytes]) -> None:
        key = fact.name, fact.value
        if key in self.facts or sum(name == fact.name for name, _ in self.facts) < MAX_VALUES:
            self.facts.setdefault(key, fact)
            self.lines.setdefault(key, Counter()).update(lines)

    def join(self, attempt: _Attempt) -> None:
        for key, fact in attempt.facts.items():
            self.add(fact, attempt.lines[key])

    def inherit(self, earlier: _Attempt) -> None:
        """Add the facts of an earlier attempt, except those that the same statement gives in this attempt."""
        made = {(name, hint) for (name, _), lines in self.lines.items() for hint in lines}
        for key, fact in earlier.facts.items():
            lines = {hint: n for hint, n in earlier.lines[key].items() if (fact.name, hint) not in made}
            if lines:
                self.add(fact, Counter(lines))


class Statements:
    """The facts of the newest attempt that have been read so far.

    A launcher may state a fact once for the whole job. So a fact of an earlier attempt holds for this one too,
    unless this attempt makes the same statement.

    A fact that is stated after a step may belong to the next attempt. So it is kept apart until the next step. If
    that step begins another attempt, the fact belongs to that attempt.

    `begun`: another attempt began after the last step. `known`: the statements that are still searched for.
    """

    def __init__(self, known: tuple[Statement, ...]) -> None:
        self.known = known
        self._lines: Counter[Statement] = Counter()
        self._earlier = _Attempt()
        self._attempt = _Attempt()
        self._since = _Attempt()
        self._opened: set[object] = set()
        self.begun = False

    def read(self, statement: Statement, text: str) -> bool:
        """Read a line that contains the hint of this statement. Returns true once no more such lines are to be read."""
        at = max(0, text.find(statement.hint.decode()))
        match = re.compile(statement.pattern).search(text, max(0, at - REACH[0]), at + REACH[1])
        if match:
            if statement.begins:
                self.begins(statement.hint)
            for fact in statement.facts(match):
                self.keep(fact, statement.hint)
        self._lines[statement] += 1
        if self._lines[statement] < MAX_LINES:
            return False
        self.known = tuple(known for known in self.known if known is not statement)
        return True

    @property
    def restated(self) -> bool:
        """Whether two facts of the configuration were stated after the last step. An evaluation may state one again."""
        return len(self._restated()) > 1

    @property
    def restated_by_one(self) -> bool:
        """As `restated`, without facts that several lines of this attempt state: one of many processes may print late."""
        if len(self._since.facts) < 2:
            # As after nearly every step, which asks this.
            return False
        by_many = {name for (name, _), lines in self._attempt.lines.items() if max(lines.values()) > 1}
        return len(self._restated() - by_many) > 1

    def _restated(self) -> set[str]:
        return {name for name, _ in self._since.facts}.difference(OF_A_PROCESS)

    def begins(self, line: object) -> None:
        """Note a line that each attempt prints once. If it was read before, another attempt has begun."""
        self.begun |= line in self._opened
        self._opened.add(line)

    def keep(self, fact: Fact, hint: bytes = b"") -> None:
        lines = self._since.lines.get((fact.name, fact.value))
        if lines is not None:
            lines[hint] += 1
            return
        self._since.add(replace(fact, said=printable(fact.said)[:200]), Counter([hint]))

    def stepped(self, *, anew: bool) -> None:
        """Note that a step was read. `anew`: it is the first step of another attempt."""
        if anew:
            self._attempt.inherit(self._earlier)
            self._earlier, self._attempt = self._attempt, _Attempt()
        if self._since.facts:
            self._attempt.join(self._since)
            self._since = _Attempt()
        self.begun = False

    def facts(self) -> tuple[tuple[Fact, ...], tuple[Fact, ...]]:
        """The facts of the newest attempt, and apart from them those that count as garbled."""
        stated = self._stated()
        counted = [replace(fact, lines=stated.lines[key].total()) for key, fact in stated.facts.items()]
        garbled = tuple(fact for fact in counted if _garbled(fact, stated))
        return tuple(fact for fact in counted if fact not in garbled), garbled

    def _stated(self) -> _Attempt:
        stated = _Attempt()
        if not self.begun:
            stated.join(self._attempt)
        stated.join(self._since)
        stated.inherit(self._earlier)
        return stated


def _garbled(fact: Fact, stated: _Attempt) -> bool:
    """Whether each line with this fact is garbled: many lines of the same statement state another value."""
    return all(
        any(_made_of(fact, lines, rival, counts[hint]) for rival, counts in stated.lines.items())
        for hint, lines in stated.lines[fact.name, fact.value].items()
    )


def _made_of(fact: Fact, lines: int, rival: _Key, many: int) -> bool:
    """Whether the `lines` lines with this fact are garbled forms of the rival's line, which is there `many` times.

    Example: 500 lines end with `MEMBER: 17/512`, and one ends with `17/51`: other output cut it.

    Facts `OF_A_PROCESS` may really differ between processes. A number is never garbled there, because its pattern
    demands words on both sides of it. The name of a GPU is garbled if it is of no known type and ends with the
    same character as the rival.
    """
    name, value = rival
    if fact.name != name or fact.value == value or many < MANY:
        return False
    text, whole = str(fact.value), str(value)
    cut = whole.startswith(text) or whole.endswith(text)
    limit = 1
    if cut or name == "gpu":
        limit = max(1, many // SHARE)
    if lines > limit:
        return False
    if name == "gpu":
        return text[-1] == whole[-1] and GPU_NAME.search(text) is None
    return name not in OF_A_PROCESS
