"""What a running session shows: of each verdict one line, at once, and as much of the cases as fits."""

from __future__ import annotations

import io
import queue
import re
import shlex
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fixtures.console import Live
from fixtures.fleet.state import Progress
from fixtures.runs.unconfirmed import unconfirmed_words
from fixtures.session.terminal import _going_on
from plugins.base.console import fitting
from plugins.base.errors import Lost, SubmitError
from plugins.judging.verdicts import Verdict
from plugins.record.case import CaseRecord
from plugins.record.job import Job, JobRef, Phase
from plugins.record.verdict import NOTHING, STOPPED, Kind
from plugins.reports.terminal import colour_of, print_table
from plugins.suite.judged import JUDGEMENT
from plugins.suite.outcomes import VERDICT, pytest_runtest_makereport
from tests.golden import sessions
from tests.system.support import Run, pacemark
from tests.unit import examples
from tests.unit.fleet.test_watchdog import PENDING, status
from tests.waits import FIRST, SECOND

SITE = Path(__file__).parents[2] / "docs" / "sites" / "slurm.yaml"


class Reporter:
    """As much of pytest's reporter as is used, which keeps what is written."""

    def __init__(self, width: int, *, terminal: bool) -> None:
        self.isatty = self.hasmarkup = terminal
        self.lines: list[tuple[str, dict[str, bool]]] = []
        self._tw = SimpleNamespace(fullwidth=width, _file=io.StringIO())

    def ensure_newline(self) -> None:
        """Nothing is open."""

    def write_line(self, line: str, **markup: bool) -> None:
        self.lines.append((line, markup))


def shown_by(
    verbosity: int, *board: Progress, width: int = 80, terminal: bool = False
) -> tuple[Live, Reporter]:
    reporter = Reporter(width, terminal=terminal)
    config: Any = SimpleNamespace(
        pluginmanager=SimpleNamespace(getplugin={"terminalreporter": reporter}.get),
        get_verbosity=lambda: verbosity,
    )
    fleet: Any = SimpleNamespace(
        messages=queue.SimpleQueue(), board={one.key: one for one in board}, limits={}
    )
    return Live(config, fleet), reporter


def test_a_verdict_is_told_once_in_its_colour_after_what_the_fleet_has_said() -> None:
    shown, reporter = shown_by(0)
    shown._fleet.messages.put("12:00:00 llama3/a: job 17")
    for _ in range(2):
        shown.tell("llama3/a", "noisy", "noisy: the steps scatter")
    (first, _), (second, markup) = reporter.lines
    assert first == "  12:00:00 llama3/a: job 17"
    assert re.fullmatch(r"  \d\d:\d\d:\d\d llama3/a: noisy: the steps scatter", second)
    assert markup == {"red": True}


def test_what_failed_what_passed_and_what_says_nothing_have_colours_of_their_own() -> None:
    colours = {kind: colour_of(kind) for kind in Kind}
    assert colours[Kind.PASSED] == "green"
    assert {colours[kind] for kind in (Kind.TOO_SLOW, Kind.TOO_FAST, Kind.NOISY)} == {"red"}
    assert {colours[kind] for kind in (Kind.INVALID, Kind.INFRASTRUCTURE, Kind.LOST)} == {"magenta"}
    assert {colours[kind] for kind in (Kind.NO_BASELINE, Kind.SKIPPED)} == {"yellow"}


def test_quiet_is_one_line_for_each_case_and_quieter_is_none() -> None:
    text = f"infrastructure: no such partition {'x' * 100}\n  mend: y"
    for verbosity, terminal, lines in (
        (-1, False, [f"llama3/a: infrastructure: no such partition {'x' * 100}"]),
        (-1, True, ["llama3/a: infrastructure: no such partition ..."]),
        (-2, False, []),
    ):
        shown, reporter = shown_by(verbosity, terminal=terminal)
        shown._fleet.messages.put("12:00:00 llama3/a: job 17")
        shown.tell("llama3/a", "infrastructure", text)
        assert [line for line, _ in reporter.lines] == lines
        assert all(markup == {"purple": True} for _, markup in reporter.lines)


def test_a_case_that_waits_and_the_total_are_told_seldom_in_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    shown, reporter = shown_by(0, status(state=PENDING, running=None))
    for now[0] in (1000.0, 1004.0, 1005.0, 1599.0, 1600.0, 1601.0, 1604.0, 1605.0):
        shown.update()
    assert [line.split("  ")[-1] for line, _ in reporter.lines] == [
        "Priority",
        "1 case: 1 queued",
        "Priority",
    ]


def told(monkeypatch: pytest.MonkeyPatch, *moments: tuple[float, dict[str, str]]) -> list[str]:
    """The lines of a session in a file, of which cases wait for these reasons at these moments."""
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    shown, reporter = shown_by(0)
    for now[0], reasons in moments:
        states = {key: replace(PENDING, reason=reason) for key, reason in reasons.items()}
        board = {key: replace(status(state=state, running=None), key=key) for key, state in states.items()}
        shown._fleet.board = board
        shown.update()
    return [re.sub(r"queued \S+  ", "", line.strip()) for line, _ in reporter.lines]


NO_NODE = (
    "0 of 16 pods have a node: Unschedulable: 0/128 nodes are available: 128 Insufficient nvidia.com/gpu."
)
PULL = "pod pm-1-workload-0-0-x7k2p, container workload: ErrImagePull: not found"


def test_a_new_reason_is_told_within_seconds_in_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    later = NO_NODE.replace("128", "120").replace("0 of", "8 of")
    lines = told(
        monkeypatch,
        (0, {"a": "Priority"}),
        (6, {"a": "Priority"}),
        (20, {"a": "Resources"}),
        (26, {"a": "Resources"}),
        # It passes.
        (30, {"a": NO_NODE}),
        (32, {"a": PULL}),
        (38, {"a": PULL.replace("x7k2p", "9dxq4")}),
        # What was told is not told again, and a count is no other reason.
        (40, {"a": "Resources"}),
        (50, {"a": "Resources"}),
        (60, {"a": NO_NODE}),
        (66, {"a": later}),
        (80, {"a": NO_NODE}),
    )
    assert lines == ["a  Priority", "a  Resources", f"a  {PULL.replace('x7k2p', '9dxq4')}", f"a  {later}"]


def test_many_cases_with_one_reason_share_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    many = {f"llama3/{number}": "Priority" for number in range(60)}
    lines = told(
        monkeypatch,
        (0, many),
        (6, many),
        (12, many | {"llama3/3": "Resources"}),
        (18, many | {"llama3/3": "Resources"}),
    )
    assert lines == ["llama3/0  Priority (and 59 more cases)", "llama3/3  Resources"]


def test_a_case_that_runs_soon_has_no_line_of_its_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    assert told(monkeypatch, (0, {"a": "Priority"}), (4, {"a": "Priority"}), (8, {})) == []


@pytest.mark.parametrize(
    ("width", "lacks"),
    [
        (120, ()),
        (110, ("tokens/s",)),
        (90, ("expected 10.07", "tokens/s")),
        (80, ("expected 10.07", "s/step", "tokens/s")),
    ],
)
def test_a_narrow_terminal_leaves_out_what_is_needed_least(
    monkeypatch: pytest.MonkeyPatch, width: int, lacks: tuple[str, ...]
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("TERM", "xterm")
    shown, reporter = shown_by(0, status([10.6] * 31), width=width, terminal=True)
    shown.update()
    shown._close()
    said = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", reporter._tw._file.getvalue())
    row = next(line for line in said.splitlines() if "step 31/50" in line)
    assert [
        word
        for word in ("expected 10.07", "s/step", "tokens/s", "-5.0 %", "running", "left")
        if word not in row
    ] == sorted(lacks)
    assert "…" not in row


@pytest.mark.parametrize("width", [80, 100])
def test_no_word_of_a_live_row_is_cut(monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("TERM", "xterm")
    long = "megatron_bridge/qwen3-235b-a22b-tokendrop-fp8_cs-256gpus"
    pending, held = replace(PENDING, reason=NO_NODE), replace(PENDING, phase=Phase.SUSPENDED, reason=PULL)
    board = [
        replace(status([10.6] * 31, try_number=2), key=long),
        replace(status(state=pending, running=None), key=f"{long}-2"),
        replace(status([10.6] * 31, state=held), key="llama3/a"),
    ]
    shown, reporter = shown_by(0, *board, width=width, terminal=True)
    shown._draw(410.0)
    shown._print(f"llama3/a: {NO_NODE}")
    shown._close()
    said = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", " ", reporter._tw._file.getvalue())
    words = {word for one in board for word in one.line(410.0).split()} | set(shown._total().split())
    assert {*said.split()} - words <= {"...", "llama3/a:"}
    assert said.count(long) >= 2


def test_a_verdict_that_is_told_while_no_test_waits_begins_no_region() -> None:
    shown, reporter = shown_by(0, status([10.6] * 31), terminal=True)
    shown.tell("llama3/a", "passed", "passed: as it should be")
    assert reporter._tw._file.getvalue() == ""
    assert [markup for _, markup in reporter.lines] == [{"green": True}]


@pytest.mark.parametrize(
    ("error", "verdict", "outcome", "told"),
    [
        (None, "passed", "passed", "passed"),
        (None, "too slow", "failed", "too slow"),
        # A suite's own assertion.
        (None, "passed", "failed", None),
        (Lost("the process is gone"), None, "failed", "lost"),
        (SubmitError("no partition"), None, "failed", "infrastructure"),
        (ValueError("a defect"), None, "failed", None),
    ],
)
def test_a_report_has_the_verdict_that_it_agrees_with(
    error: Exception | None, verdict: str | None, outcome: str, told: str | None
) -> None:
    item: Any = SimpleNamespace(
        stash=pytest.Stash(), callspec=SimpleNamespace(params={"case": examples.case()})
    )
    if verdict is not None:
        judged: Any = SimpleNamespace(verdict=Verdict(Kind(verdict), ("why",)))
        item.stash[JUDGEMENT] = judged
    excinfo = SimpleNamespace(value=error, getrepr=lambda style: str(error)) if error else None
    when = "setup" if error else "call"
    report: Any = SimpleNamespace(
        passed=outcome == "passed", failed=outcome == "failed", skipped=False, longrepr=None, when=when
    )
    call: Any = SimpleNamespace(when=when, excinfo=excinfo)
    making = pytest_runtest_makereport(item, call)
    next(making)
    with pytest.raises(StopIteration):
        making.send(report)
    assert getattr(report, VERDICT, (None, None))[1] == told


def test_columns_are_left_out_in_their_order_and_only_as_many_as_needed() -> None:
    rows = [["case", "1234", "12345678"], ["x", "1", "1"]]
    assert fitting(rows, 20, (2, 1)) == [0, 1, 2]
    assert fitting(rows, 19, (2, 1)) == [0, 1]
    assert fitting(rows, 9, (2, 1)) == [0]
    assert fitting([], 9, (2, 1)) == []


def record(name: str, verdict: str, *remarks: str) -> CaseRecord:
    empty = CaseRecord.unjudged(Job(ref=JobRef("llama3", name, name)), "")
    return replace(empty, verdict=Kind(verdict), headline=f"{verdict}: why", remarks=remarks)


def test_the_last_table_has_a_group_for_each_verdict_and_what_failed_at_its_end() -> None:
    records = [
        record("a", "too slow"),
        record("b", "passed"),
        record("c", "lost"),
        record("d", "passed", "!"),
    ]
    file = io.StringIO()
    print_table(records, file, 200, colour=False, details=False)
    lines = [line.split() for line in file.getvalue().splitlines()]
    assert lines[1:] == [
        ["llama3/b", "passed"],
        ["llama3/d", "passed", "*"],
        [],
        ["llama3/a", "too", "slow"],
        [],
        ["llama3/c", "lost"],
        ["*", "with", "remarks,", "in", "the", "record"],
        ["2", "passed,", "1", "too", "slow,", "1", "lost"],
    ]


def test_what_was_stopped_and_what_has_no_baseline_is_said_once() -> None:
    stopped = [
        replace(
            record(name, "infrastructure"), headline=f"infrastructure: {STOPPED}; job {number} was cancelled"
        )
        for number, name in enumerate("abc")
    ]
    alone = [
        replace(
            record(f"8b-{scale}gpus", "no baseline"),
            step_time=1.0,
            headline=f"no baseline: measured {scale} s; {NOTHING}: llama3.yaml has no 8b-{scale}gpus of b200",
        )
        for scale in (8, 16)
    ]
    asked = (
        unconfirmed_words(JobRef("llama3", key, f"n{job}", str(job)), "") for key, job in (("d", 7), ("e", 8))
    )
    lost = [
        replace(stopped[0], id=f"llama3/{key}", headline=f"infrastructure: {STOPPED}; {words}")
        for key, words in zip("de", asked, strict=True)
    ]
    file = io.StringIO()
    print_table([*stopped, *alone, *lost], file, 200, colour=False)
    said = file.getvalue().splitlines()
    assert [line.split()[1] for line in said if line.startswith("llama3/") and ": " not in line] == [
        "no"
    ] * 2 + ["stopped"] * 5
    assert said[-5:] == [
        "llama3/8b-8gpus and 1 more: no baseline: measured 8 s; nothing to compare with: llama3.yaml has no 8b-8gpus of b200",
        "llama3/a and 2 more: stopped: job 0 was cancelled",
        "llama3/d: stopped: job 7 was asked to end, which is NOT confirmed: look after it",
        "llama3/e: stopped: job 8 was asked to end, which is NOT confirmed: look after it",
        "2 no baseline, 5 stopped",
    ]  # fmt: skip
    print_table([*stopped, *alone, *lost], file, 200, colour=False, details=False)
    quiet = file.getvalue().splitlines()[len(said) :]
    assert quiet[-3:] == said[-3:]
    assert sum(": " in line for line in quiet) == 2


@pytest.mark.parametrize(("width", "columns"), [(120, 8), (90, 7), (80, 6)])
def test_the_last_table_fits_the_terminal(width: int, columns: int) -> None:
    made = record("405b-fp8-1024gpus", "infrastructure")
    made = replace(made, step_time=10.81, steady_median=10.77, tokens_per_second=776004.0, mfu=36.83)
    file = io.StringIO()
    print_table([made], file, width, colour=False, details=False)
    head, row = file.getvalue().splitlines()[:2]
    assert len(head.split()) == columns
    assert len(row) <= width
    assert "infrastructure" in row


def session(folder: Path, *options: str) -> Run:
    wanted = f"[{FIRST}] or [{SECOND}]"
    select = ("suites/llama3", "-k", wanted, "--site", str(SITE), "-p", "tests.waits", "--tb=no", "-rN")
    return pacemark(*select, *options, results=folder / "results")


def test_a_verdict_is_told_while_the_test_of_an_earlier_case_still_waits(tmp_path: Path) -> None:
    found = session(tmp_path)
    said = re.findall(r"^  [\d:]{8} llama3/(\S+): (passed|invalid run): ", found.out, re.MULTILINE)
    assert said == [(SECOND, "passed"), (FIRST, "invalid run")], found.out
    assert found.verdicts == {f"llama3/{SECOND}": "passed", f"llama3/{FIRST}": "invalid run"}
    # Neither the file of the tests nor their letters: each case has its line.
    assert "test_llama3.py" not in found.out
    assert re.search(rf"running on gpu001; log: \S*/llama3/{FIRST}/log.txt$", found.out, re.MULTILINE)
    assert "Rounds" not in found.out


def test_a_quiet_session_is_a_line_for_each_case_and_the_table(tmp_path: Path) -> None:
    lines = session(tmp_path, "-q").out.splitlines()
    table = next(number for number, line in enumerate(lines) if "= verdicts: " in line)
    told = [line for line in lines[:table] if line]
    assert [line.split(": ")[0] for line in told] == [f"llama3/{SECOND}", f"llama3/{FIRST}"]
    assert [line.split()[0] for line in lines[table + 2 : table + 5] if line.strip()] == [
        f"llama3/{SECOND}",
        f"llama3/{FIRST}",
    ]
    assert lines[-1].startswith("1 failed, 1 passed")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("stopped", r"to go on: pytest .*-k '70b and fp8 and \(256 or 512\)' .* --resume latest"),
        ("no-baseline", "no baseline for 1 case: --record-baselines keeps what they measure as the site's own numbers"),
    ],
)  # fmt: skip
def test_a_session_ends_with_what_to_do(tmp_path: Path, name: str, said: str) -> None:
    out = sessions.session(name, tmp_path).out
    assert len(re.findall(rf"^{said}$", out, re.MULTILINE)) == 1, out
    assert "interrupted: the session was stopped" not in out


@pytest.mark.parametrize(
    ("words", "kept"),
    [
        ("suites/node --nodes gpu1,gpu2 --gate", "suites/node --gate"),
        ("suites/node --nodes=gpu1 -k 'a b'", "suites/node -k 'a b'"),
        ("suites --record-answers new.jsonl -n 4", "suites -n 4"),
        ("suites --compare latest --fail-if slower", "suites --compare 20260101-1 --fail-if slower"),
        ("suites --compare=results/latest", "suites --compare=results/20260101-1"),
        ("suites --compare 20251231-1 --results latest", "suites --compare 20251231-1 --results latest"),
    ],
)
def test_a_stopped_session_goes_on_without_what_is_of_a_new_run(words: str, kept: str) -> None:
    earlier: Any = SimpleNamespace(run="20260101-1")
    assert shlex.join(_going_on(shlex.split(words), earlier)) == kept


def test_what_is_wrong_with_many_cases_is_said_once(tmp_path: Path) -> None:
    """In the lines, in pytest's own errors and below the table; each file has it for each case."""
    site = tmp_path / "site.yaml"
    ssh = "{host: 127.0.0.1, port: 1, user: me, config: /nonexistent}"
    site.write_text(f"site: lab\nslurm: {{gpu: h100, account: a, partition: p, stage: /s, ssh: {ssh}}}\n")
    junit = tmp_path / "junit.xml"
    select = ("suites/llama3", "-k", "8b", "--site", str(site), f"--junitxml={junit}")
    found = pacemark(*select, results=tmp_path / "results")
    first, reason = "llama3/8b-bf16-8gpus", "never submitted: ssh me@127.0.0.1:1: no connection"
    assert list(found.verdicts.values()) == ["infrastructure"] * 10
    # Where the variable CI is set, pytest's short summary has it as well, which is cut elsewhere.
    lines = [line for line in found.out.splitlines() if not line.startswith("ERROR ")]
    assert sum(f" {reason}" in line for line in lines) == 3, found.out
    assert f"{first} and 9 more: infrastructure: {reason}" in found.out
    # A line and an error of each other case.
    others = re.findall(rf"^(  [\d:]{{8}} \S+: )?infrastructure, as {first}$", found.out, re.MULTILINE)
    assert len(others) == 18
    assert junit.read_text().count(reason) >= 10
    assert all(reason in case["headline"] for case in found.summary["cases"])
