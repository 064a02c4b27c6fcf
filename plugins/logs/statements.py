"""What a run states of itself besides its steps: number of processes, model, precision, type of GPU. Pure.

A `Statement` is a line as an upstream's source prints it; docs/dev/logs.md names the place of each. Each named
group of its pattern gives a fact of that name, which `plugins.judging.validity.configuration` compares with
the case. The statements of any format are here, those of one format are in its module.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from plugins.logs.log import GPU_NAME, Fact

MAX_VALUES = 32
"""A run states a fact in one way, or in a few that contradict each other. Values beyond these are dropped."""

MAX_LINES = 1 << 16
"""Each process of the largest recipe may state a fact some dozen times. Further such lines are not read."""

MANY, SHARE = 4, 64
"""If at least `MANY` lines state a value, other output has made another one in one line, and has cut it in one of `SHARE`."""

OF_A_PROCESS = ("gpu", "group", "peers")
"""Facts that differ between the processes of one run. All others follow from the one command that started it."""

ANCHOR = r"(?<! ) ?"
"""What stands before the blanks that indent a key: nothing, or what a launcher or a container runtime prints.

It ends with at most one blank, and an indentation is even, so the two are told apart. If it ends with several, `LineParser.top`
tells how many, and they are taken off. Examples: `17: ` (srun),
`[default0]:` (torchrun), `retraining/0 ` (NeMo-Run), `[1,5]<stdout>:` (mpirun), a stamp (kubectl), a stamp and
` stdout F ` (containerd), a pod and its container (stern).
"""

_GPU = r"[A-Z][\w.+-]*(?: [\w.+-]+){1,7}"
"""The whole name of a GPU. A name with other output in it often has another character."""

REACH = 512, 1 << 15
"""How far a statement is searched for before and after its hint, in characters. A line may be very long."""


_Key = tuple[str, int | str]
"""A fact's name and value."""


@dataclass(frozen=True, eq=False)
class Statement:
    """A line that contains `hint` and matches `pattern`. Each named group of the pattern is a fact.

    A whole number counts as such, a number with three decimals in thousandths, a list of ranks by its length,
    a GPU by its name. `words` are the other values that count, with their meanings. With `any_word` every
    other value counts as it is. If `begins` is true, one process prints the line once, before the first step
    of an attempt.
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
    """The statement of a group of parallel processes, as NeMo prints that of rank 0."""
    return Statement(
        f"Rank 0 has {words} parallel group".encode(),
        rf"Rank 0 has {words} parallel group ?: \[(?P<{name}>\d+(?:, \d+)*)\]",
        {"0": 1},
    )


def launch_argument(
    key: str, fact: str, words: Mapping[str, int | str] | None = None, *, any_word: bool = False
) -> Statement:
    """An argument of the launch script, as it prints it; `key` is a regular expression.

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
"""Facts by the names of Megatron Core's arguments, by which all frameworks on top of it state them."""

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
    """What one attempt states: facts by name and value, and how many lines of each statement, known by its hint, state them."""

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
        """Add what an earlier attempt states by statements that this attempt does not make."""
        made = {(name, hint) for (name, _), lines in self.lines.items() for hint in lines}
        for key, fact in earlier.facts.items():
            lines = {hint: n for hint, n in earlier.lines[key].items() if (fact.name, hint) not in made}
            if lines:
                self.add(fact, Counter(lines))


class Statements:
    """The facts that were read so far of the newest attempt.

    What this attempt does not state, but an earlier one did, holds for this one too: a launcher states it once for the
    whole job. If a fact is stated after a step, it is kept apart until the next step. If that step begins another
    attempt, the fact belongs to that attempt. `begun`: an attempt began after the last step. `known`: the
    statements that are still looked for.
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
        """Read a line that contains the hint of this statement. Returns whether the statement is not looked for any more."""
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
        """Whether the configuration was stated after the last step: two facts of it, since an evaluation may state one of them again."""
        return len(self._restated()) > 1

    @property
    def restated_by_one(self) -> bool:
        """The same of what one process states: of many that state a fact, some may be late."""
        by_many = {name for (name, _), lines in self._attempt.lines.items() if max(lines.values()) > 1}
        return len(self._restated() - by_many) > 1

    def _restated(self) -> set[str]:
        return {name for name, _ in self._since.facts}.difference(OF_A_PROCESS)

    def begins(self, line: object) -> None:
        """Note that a line was read which each attempt prints once.

        If this attempt printed it before, another attempt begins.
        """
        self.begun |= line in self._opened
        self._opened.add(line)

    def keep(self, fact: Fact, hint: bytes = b"") -> None:
        lines = self._since.lines.get((fact.name, fact.value))
        if lines is not None:
            lines[hint] += 1
            return
        self._since.add(replace(fact, said=printable(fact.said)[:200]), Counter([hint]))

    def stepped(self, *, anew: bool) -> None:
        """Note that a step was read. If it is the first of another attempt, `anew` is true."""
        if anew:
            self._attempt.inherit(self._earlier)
            self._earlier, self._attempt = self._attempt, _Attempt()
        self._attempt.join(self._since)
        self._since = _Attempt()
        self.begun = False

    def facts(self) -> tuple[tuple[Fact, ...], tuple[Fact, ...]]:
        """The facts, and besides them the statements that are none, because other output is in them."""
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
    """Whether other output made each line of this fact: many lines of the same statement say something else."""
    return all(
        any(_made_of(fact, lines, rival, counts[hint]) for rival, counts in stated.lines.items())
        for hint, lines in stated.lines[fact.name, fact.value].items()
    )


def _made_of(fact: Fact, lines: int, rival: _Key, many: int) -> bool:
    """Whether other output made the `lines` of this fact out of some that state the rival name and value, as `many` do.

    Processes may differ in what is `OF_A_PROCESS`. There a number counts, because words stand before and behind it.
    So does the name of a GPU, unless it is of no known type and ends as the other one does.
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
