"""A log is fetched piece by piece while it grows, and of what is large only the lines that tell: nothing is lost."""

from __future__ import annotations

import os
import random
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fixtures.backends.base import LogCheck
from fixtures.backends.read_ranges import ReadRanges
from fixtures.backends.shell import Answer
from fixtures.backends.ssh import files
from fixtures.backends.ssh import log_tail as remote_log
from fixtures.backends.ssh.files import Ahead
from fixtures.backends.ssh.log_tail import check, is_whole, whole_ahead
from plugins.base.errors import Unreachable
from plugins.logs import Log, registry
from plugins.logs.formats import parser, read
from tests.unit.examples import nemo2_line
from tests.unit.logs import test_dllogger, test_megatron_bridge, test_megatron_lm, test_nemo1
from tests.unit.logs.test_maxtext import joined, ticks

CHATTER = b"[rank5]:W0411 14:46:02.118 ProcessGroupNCCL.cpp:1250] a warning that says nothing\n"
SOCKET = b"gpu001:101:101 [0] NCCL INFO Using network Socket\n"
LOGS = {
    "nemo1": test_nemo1.whole([10.07 + i / 10 for i in range(50)]),
    "nemo2": "".join(f"{nemo2_line(i, 10 + i / 100)}\n" for i in range(50)),
    "maxtext": joined(ticks(64, range(15), late=2), ticks(64, range(50), late=2, seed=2)),
    "dllogger": test_dllogger.whole(),
    "megatron_bridge": test_megatron_bridge.whole(),
    "megatron_lm": test_megatron_lm.whole(),
}
FORMATS = pytest.mark.parametrize("name", sorted(registry.FORMATS))


class Here:
    """A login node that is this machine: its files and its bash, without the network between."""

    def __init__(self) -> None:
        self.moved = 0

    def run(self, script: str, *, seconds: float | None = None, cut: bool = False) -> Answer:
        done = subprocess.run(["bash", "-s"], input=script.encode(), capture_output=True, check=False)
        self.moved += len(done.stdout) + len(done.stderr)
        return Answer(done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode())


def drain(here: Here, path: Path, name: str, known: ReadRanges | None = None) -> tuple[bytes, int]:
    """Everything that is new now, and where it ends."""
    got = b""
    wanted = parser(name).wanted
    known = known or ReadRanges()
    while True:
        before = known.end
        got += remote_log.RemoteLog(here, str(path), known).fetch(wanted, lambda data: data)
        if known.end == before:
            return got, known.end


def stated(log: Log) -> tuple[object, ...]:
    return log.steps, log.planned, log.repeated, log.restarted_after, log.marks, log.ranks


def long(name: str, megabytes: int) -> bytes:
    """The whole log with chatter between its lines."""
    lines = LOGS[name].encode().splitlines(keepends=True)
    between = CHATTER * (megabytes * 10**6 // len(CHATTER) // len(lines))
    return b"".join(between + line for line in lines) + CHATTER * 20


@FORMATS
def test_a_large_log_is_read_by_its_telling_lines(name: str, tmp_path: Path) -> None:
    path = tmp_path / "log.out"
    whole = long(name, 8)
    path.write_bytes(whole)
    here = Here()
    got, end = drain(here, path, name)
    assert end == len(whole)
    assert stated(read(name, iter([got]))) == stated(read(name, iter([whole])))
    assert here.moved < 800_000
    assert b"bytes without a step left out here; the whole log is " in got
    # Cut behind the end of a line.
    assert whole.endswith(got[len(CHATTER) - remote_log.KEPT_END :])


@FORMATS
def test_a_log_that_grows_by_any_pieces_loses_no_line(name: str, tmp_path: Path) -> None:
    path = tmp_path / "log.out"
    path.touch()
    whole = long(name, 3)
    chance = random.Random(name)
    got, known, written = b"", ReadRanges(), 0
    while written < len(whole):
        piece = whole[written : written + chance.choice([7, 900, 70_000, 400_000, 900_000])]
        with path.open("ab") as file:
            file.write(piece)
        written += len(piece)
        got += drain(Here(), path, name, known)[0]
    assert known.end == len(whole)
    assert stated(read(name, iter([got]))) == stated(read(name, iter([whole])))


def test_what_spoils_a_run_is_found_in_the_midst_of_chatter(tmp_path: Path) -> None:
    path = tmp_path / "log.out"
    whole = long("nemo2", 4)
    middle = whole.index(b"\n", len(whole) // 2) + 1
    path.write_bytes(whole[:middle] + SOCKET + whole[middle:])
    got, _ = drain(Here(), path, "nemo2")
    assert [kind for kind, _ in read("nemo2", iter([got])).marks] == ["socket network"]


def test_a_small_log_is_fetched_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "log.out"
    whole = LOGS["nemo2"].encode() + CHATTER
    path.write_bytes(whole)
    assert drain(Here(), path, "nemo2") == (whole, len(whole))


def test_a_log_of_nothing_but_steps_is_fetched_whole(tmp_path: Path) -> None:
    path = tmp_path / "log.out"
    whole = LOGS["nemo2"].encode() * 400
    path.write_bytes(whole)
    same = drain(Here(), path, "nemo2") == (whole, len(whole))
    assert same


@pytest.mark.parametrize("line", [b"x" * 3_000_000, b"x" * 3_000_000 + b"\n"])
def test_a_line_without_an_end_is_no_trap(line: bytes, tmp_path: Path) -> None:
    path = tmp_path / "log.out"
    whole = LOGS["nemo2"].encode() + line
    path.write_bytes(whole)
    got, end = drain(Here(), path, "nemo2")
    assert end == len(whole)
    assert len(read("nemo2", iter([got])).steps) == 50


class Reading(Here):
    """How many bytes of the log this machine reads, where a program may take some 60 MB of memory."""

    def __init__(self) -> None:
        super().__init__()
        self.read = 0

    def run(self, script: str, *, seconds: float | None = None, cut: bool = False) -> Answer:
        self.read += sum(map(int, re.findall(r" count=(\d+)", script)))
        return super().run(f"ulimit -v 60000\n{script}", seconds=seconds, cut=cut)


# What stands in the middle of a log. A disk that was full, or a node that broke down, leaves NUL bytes.
MIDDLES = {
    "a hole": bytes(24 << 20),
    "a hole with a line in it": bytes(12 << 20) + b"\n" + CHATTER + bytes(12 << 20),
    "bars that end with carriage returns": (
        CHATTER.replace(b"\n", b"\r") * 200 + b"NCCL INFO Using network IB\r"
    )
    * 1_000,
    "some lines that are wanted": (CHATTER * 10 + b"NCCL INFO Using network IB\n" * 5) * 20_000,
    "hardly a line that is not": (CHATTER + b"gpu001:1:1 [0] NCCL INFO Using network IB\n" * 30) * 6_000,
}


@pytest.mark.parametrize("name", ["nemo2", "megatron_bridge"])
@pytest.mark.parametrize("middle", MIDDLES)
def test_what_is_searched_grows_with_the_log_and_not_as_its_square(
    middle: str, name: str, tmp_path: Path
) -> None:
    lines = LOGS[name].encode().splitlines(keepends=True)
    half = len(lines) // 2
    path, here = tmp_path / "log.out", Reading()
    path.write_bytes(b"".join([*lines[:half], MIDDLES[middle], *lines[half:]]))
    got, end = drain(here, path, name)
    assert end == path.stat().st_size
    assert stated(read(name, iter([got]))) == stated(read(name, iter([b"".join(lines)])))
    assert here.read < 5 * end


def test_a_hole_takes_no_memory_of_the_login_node(tmp_path: Path) -> None:
    """The first step behind it stands in the same line."""
    path, here = tmp_path / "log.out", Reading()
    lines = LOGS["nemo2"].encode().splitlines(keepends=True)
    with path.open("wb") as file:
        file.writelines(lines[:10])
        file.seek(140 << 20, os.SEEK_CUR)
        file.writelines(lines[10:])
    got, end = drain(here, path, "nemo2")
    assert end == path.stat().st_size
    assert len(read("nemo2", iter([got])).steps) == 50
    assert len(got) < 1 << 20


def test_a_search_that_did_not_see_everything_is_no_answer(tmp_path: Path) -> None:
    class Shrinking(Here):
        def run(self, script: str, **kinds: Any) -> Answer:
            if "grep" in script:
                path.write_bytes(b"")
            return super().run(script)

    path = tmp_path / "log.out"
    path.write_bytes(long("nemo2", 3))
    with pytest.raises(Unreachable, match="failed"):
        drain(Shrinking(), path, "nemo2")


def test_a_log_that_is_not_there_has_nothing_new(tmp_path: Path) -> None:
    assert drain(Here(), tmp_path / "none", "nemo2") == (b"", 0)


# What was read, and the file that stands there at the next look: none of it continues what was read.
@pytest.mark.parametrize(
    "change",
    [
        lambda whole: whole[: len(whole) // 4],
        lambda whole: whole.replace(b"loss", b"LOSS"),
        lambda whole: whole.replace(b"loss", b"LOSS") + CHATTER * 5000,
        lambda whole: whole[:-100] + CHATTER * 100,
        lambda whole: b"",
    ],
    ids=["shorter", "of the same size", "longer and large", "another end", "empty"],
)
@pytest.mark.parametrize("renamed", [False, True])
def test_a_file_that_was_written_anew_is_noticed(
    change: Callable[[bytes], bytes], renamed: bool, tmp_path: Path
) -> None:
    path, whole = tmp_path / "log.out", LOGS["nemo2"].encode()
    whole = whole.replace(b"reduced_train_loss", b"loss")
    path.write_bytes(whole)
    known = ReadRanges()
    drain(Here(), path, "nemo2", known)
    (tmp_path / "new").write_bytes(change(whole))
    if renamed:
        (tmp_path / "new").replace(path)
    else:
        path.write_bytes(change(whole))
    if len(change(whole)) == len(whole):
        # Nothing is new. The check at the end of the job notices it.
        assert check(Here(), str(path), known).differs
        return
    with pytest.raises(remote_log.Replaced):
        drain(Here(), path, "nemo2", known)


@FORMATS
def test_the_check_at_the_end_says_whether_the_file_has_what_was_read(name: str, tmp_path: Path) -> None:
    path, whole = tmp_path / "log.out", long(name, 3)
    path.write_bytes(whole)
    known = ReadRanges()
    drain(Here(), path, name, known)
    assert len(known.ranges) > 1
    here: Any = Here()
    assert check(here, str(path), known) == LogCheck()
    # The job still writes: what was read is there.
    path.write_bytes(whole + CHATTER)
    assert check(here, str(path), known) == LogCheck()
    for place in (0, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:place] + b"~" + whole[place + 1 :])
        assert (
            check(here, str(path), known).differs
            == f"the first {len(whole)} bytes of {path} are not those that were read"
        )
    path.write_bytes(whole[:-1])
    assert "bytes, of which" in check(here, str(path), known).differs
    path.unlink()
    assert check(here, str(path), known) == LogCheck(unknown=f"{path} is not there any more")


@pytest.mark.parametrize(
    ("status", "words"),
    [(124, "within 60 s"), (137, "within 60 s"), (3, "neither sha256sum nor openssl"), (1, "cannot read")],
)
def test_a_check_without_an_answer_says_why(status: int, words: str, tmp_path: Path) -> None:
    class Other(Here):
        def run(self, script: str, **kinds: Any) -> Answer:
            return Answer(status, "", "it is forbidden") if "digest" in script else super().run(script)

    path = tmp_path / "log.out"
    path.write_text(LOGS["nemo2"])
    known = ReadRanges()
    drain(Here(), path, "nemo2", known)
    assert words in check(Other(), str(path), known).unknown


def test_a_login_node_without_a_program_for_digests_is_read_all_the_same(tmp_path: Path) -> None:
    class Bare(Here):
        def run(self, script: str, **kinds: Any) -> Answer:
            return super().run("command() { return 1; }\n" + script)

    path, whole = tmp_path / "log.out", long("nemo2", 3)
    path.write_bytes(whole)
    known, here = ReadRanges(), Bare()
    got, end = drain(here, path, "nemo2", known)
    assert end == len(whole)
    assert len(read("nemo2", iter([got])).steps) == 50
    assert check(here, str(path), known).unknown == "the login node has neither sha256sum nor openssl"


class Counting(Here):
    """How many scripts this machine was given."""

    def __init__(self) -> None:
        super().__init__()
        self.scripts = 0

    def run(self, script: str, *, seconds: float | None = None, cut: bool = False) -> Answer:
        self.scripts += 1
        return super().run(script, seconds=seconds, cut=cut)


def test_many_logs_that_grow_are_read_and_checked_by_three_scripts(tmp_path: Path) -> None:
    """The names are such as a recipe of somebody else's may have. Of one log the end is read, one has not grown."""
    here, logs = Counting(), {str(tmp_path / f"it's log {n}.out"): ReadRanges() for n in range(20)}
    first, *_, last = logs
    for n, path in enumerate(logs):
        Path(path).write_bytes(b"a line\n" * n)
    for path in (first, last):
        remote_log.RemoteLog(here, path, logs[path]).fetch([b"line"], lambda data: data)
    with Path(last).open("ab") as file:
        file.write(b"its end\n")
    here.scripts = 0
    seen = Ahead(here)
    remote_log.look_ahead(seen, logs)
    # A round may ask for each log twice.
    texts = [
        remote_log.RemoteLog(seen, path, logs[path]).fetch([b"line"], lambda data: data) for path in logs
    ]
    again = [
        remote_log.RemoteLog(seen, path, logs[path]).fetch([b"line"], lambda data: data) for path in logs
    ]
    assert texts == [b"a line\n" * n for n in range(19)] + [b"its end\n"]
    assert (set(again), here.scripts) == ({b""}, 2)
    digests = whole_ahead(here, logs)
    assert all(is_whole(known, digests[path]) for path, known in logs.items() if known.end)
    assert here.scripts == 3


@pytest.mark.parametrize("fault", ["grown", "changed", "a link", "gone", "searched"])
def test_a_log_that_may_differ_is_checked_alone(fault: str, tmp_path: Path) -> None:
    here, path, known = Here(), tmp_path / "log.out", ReadRanges()
    text = b"a line\n" * (100_000 if fault == "searched" else 100)
    path.write_bytes(text)
    drain(here, path, "nemo2", known)
    if fault == "grown":
        path.write_bytes(text + b"more\n")
    elif fault == "changed":
        path.write_bytes(text.upper())
    elif fault in ("a link", "gone"):
        path.rename(tmp_path / "other.out")
    if fault == "a link":
        path.symlink_to(tmp_path / "other.out")
    digest = whole_ahead(here, {str(path): known}).get(str(path), "")
    assert not is_whole(known, digest)


@pytest.mark.parametrize("trace", ["", "set -x\n"])
def test_logs_of_one_byte_and_one_that_is_gone_are_fetched_together(trace: str, tmp_path: Path) -> None:
    class Traced(Counting):
        def run(self, script: str, *, seconds: float | None = None, cut: bool = False) -> Answer:
            return super().run(trace + script, seconds=seconds, cut=cut)

    here, logs = Traced(), [str(tmp_path / name) for name in ("a", "gone", "b")]
    for path in (logs[0], logs[2]):
        Path(path).write_bytes(path[-1].encode())
    seen = Ahead(here)
    seen.fetch(dict.fromkeys(logs, (0, 1)))
    assert [files.read(seen, path, 0, 1) for path in (logs[0], logs[2])] == [b"a", b"b"]
    assert here.scripts == 1


def test_what_is_fetched_ahead_of_a_log_that_was_replaced_is_not_taken(tmp_path: Path) -> None:
    here, path, known = Here(), tmp_path / "log.out", ReadRanges()
    path.write_bytes(b"a line\n" * 10)
    drain(here, path, "nemo2", known)
    path.write_bytes(b"another\n" * 20)
    seen = Ahead(here)
    remote_log.look_ahead(seen, {str(path): known})
    with pytest.raises(remote_log.Replaced):
        remote_log.RemoteLog(seen, str(path), known).fetch([b"line"], lambda data: data)
