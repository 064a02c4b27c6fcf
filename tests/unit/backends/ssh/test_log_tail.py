"""Files of a login node, read by its shell; and a log that is fetched while it grows, of what is large only the lines that tell."""

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
from plugins.logs import registry
from plugins.logs.formats import parser, read
from tests.printed.nemo2 import nemo2_line
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
    """A login node that is this machine: its files and its bash, without the network between.

    `first` is run in front of each script, and `moved` are the bytes that all have printed. `read` are the bytes of logs that this
    machine was to read, `scripts` how many scripts it was given.
    """

    def __init__(self, first: str = "") -> None:
        self.first = first
        self.moved = self.read = self.scripts = 0

    def run(self, script: str, *, seconds: float | None = None, cut: bool = False) -> Answer:
        self.scripts += 1
        self.read += sum(map(int, re.findall(r" count=(\d+)", script)))
        done = subprocess.run(["bash", "-s"], input=(self.first + script).encode(), capture_output=True)
        self.moved += len(done.stdout) + len(done.stderr)
        return Answer(done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log.out"


def drain(here: Here, path: Path, name: str, known: ReadRanges | None = None) -> tuple[bytes, int]:
    """Everything that is new now, and where it ends."""
    data = b""
    wanted = parser(name).wanted
    known = known or ReadRanges()
    while True:
        before = known.end
        data += remote_log.RemoteLog(here, str(path), known).fetch(wanted, lambda data: data)
        if known.end == before:
            return data, known.end


def stated(name: str, data: bytes) -> tuple[object, ...]:
    log = read(name, iter([data]))
    return log.steps, log.planned, log.repeated, log.restarted_after, log.marks, log.ranks


def long(name: str, megabytes: int) -> bytes:
    """The whole log with chatter between its lines."""
    lines = LOGS[name].encode().splitlines(keepends=True)
    between = CHATTER * (megabytes * 10**6 // len(CHATTER) // len(lines))
    return b"".join(between + line for line in lines) + CHATTER * 20


@FORMATS
def test_a_large_log_is_read_by_its_telling_lines(name: str, path: Path) -> None:
    whole = long(name, 4)
    path.write_bytes(whole)
    here = Here()
    data, end = drain(here, path, name)
    assert end == len(whole)
    assert stated(name, data) == stated(name, whole)
    assert here.moved < 800_000
    assert b"bytes without a step left out here; the whole log is " in data
    # Cut behind the end of a line.
    assert whole.endswith(data[len(CHATTER) - remote_log.KEPT_END :])


@FORMATS
def test_a_log_that_grows_by_any_pieces_loses_no_line(name: str, path: Path) -> None:
    whole, chance = long(name, 2), random.Random(name)
    data, known, written = b"", ReadRanges(), 0
    while written < len(whole):
        piece = whole[written : written + chance.choice([7, 900, 70_000, 400_000, 900_000])]
        with path.open("ab") as file:
            file.write(piece)
        written += len(piece)
        data += drain(Here(), path, name, known)[0]
    assert known.end == len(whole)
    assert stated(name, data) == stated(name, whole)


@pytest.mark.parametrize(
    "whole",
    [LOGS["nemo2"].encode() + CHATTER, LOGS["nemo2"].encode() * 400, None],
    ids=["small", "nothing but steps", "not there"],
)
def test_a_log_without_chatter_is_fetched_whole(whole: bytes | None, path: Path) -> None:
    if whole is not None:
        path.write_bytes(whole)
    same = drain(Here(), path, "nemo2") == (whole or b"", len(whole or b""))
    assert same


@pytest.mark.parametrize("line", [b"x" * 3_000_000, b"x" * 3_000_000 + b"\n"])
def test_a_line_without_an_end_is_no_trap(line: bytes, path: Path) -> None:
    whole = LOGS["nemo2"].encode() + line
    path.write_bytes(whole)
    data, end = drain(Here(), path, "nemo2")
    assert end == len(whole)
    assert len(read("nemo2", iter([data])).steps) == 50


# A program may take some 60 MB of memory.
LITTLE_MEMORY = "ulimit -v 60000\n"
# What stands in the middle of a log. A disk that was full, or a node that broke down, leaves NUL bytes.
MIDDLES = {
    "a hole": bytes(12 << 20),
    "a hole with a line in it": bytes(6 << 20) + b"\n" + CHATTER + bytes(6 << 20),
    "bars that end with carriage returns": (
        CHATTER.replace(b"\n", b"\r") * 200 + b"NCCL INFO Using network IB\r"
    )
    * 300,
    "some lines that are wanted": (CHATTER * 10 + b"NCCL INFO Using network IB\n" * 5) * 6_000,
    "hardly a line that is not": (CHATTER + b"gpu001:1:1 [0] NCCL INFO Using network IB\n" * 30) * 2_000,
}


@pytest.mark.parametrize(
    ("middle", "name"),
    [*((middle, "nemo2") for middle in MIDDLES), ("hardly a line that is not", "megatron_bridge")],
)
def test_what_is_searched_grows_with_the_log_not_as_its_square(middle: str, name: str, path: Path) -> None:
    lines = LOGS[name].encode().splitlines(keepends=True)
    half = len(lines) // 2
    here = Here(LITTLE_MEMORY)
    path.write_bytes(b"".join([*lines[:half], MIDDLES[middle], *lines[half:]]))
    data, end = drain(here, path, name)
    assert end == path.stat().st_size
    assert stated(name, data) == stated(name, b"".join(lines))
    assert here.read < 5 * end


def test_a_hole_takes_no_memory_of_the_login_node(path: Path) -> None:
    """The first step behind it stands in the same line."""
    here = Here(LITTLE_MEMORY)
    lines = LOGS["nemo2"].encode().splitlines(keepends=True)
    with path.open("wb") as file:
        file.writelines(lines[:10])
        file.seek(80 << 20, os.SEEK_CUR)
        file.writelines(lines[10:])
    data, end = drain(here, path, "nemo2")
    assert end == path.stat().st_size
    assert len(read("nemo2", iter([data])).steps) == 50
    assert len(data) < 1 << 20


def test_a_search_that_did_not_see_everything_is_no_answer(path: Path) -> None:
    class Shrinking(Here):
        def run(self, script: str, **kinds: Any) -> Answer:
            if "grep" in script:
                path.write_bytes(b"")
            return super().run(script)

    path.write_bytes(long("nemo2", 3))
    with pytest.raises(Unreachable, match="failed"):
        drain(Shrinking(), path, "nemo2")


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
def test_a_file_that_was_written_anew_is_noticed(change: Callable[[bytes], bytes], path: Path) -> None:
    whole = LOGS["nemo2"].encode().replace(b"reduced_train_loss", b"loss")
    path.write_bytes(whole)
    known = ReadRanges()
    drain(Here(), path, "nemo2", known)
    # Another file of the name, as after `mv`, is no other than the same one with other bytes.
    path.rename(path.with_name("old"))
    path.write_bytes(change(whole))
    if len(change(whole)) == len(whole):
        # Nothing is new. The check at the end of the job notices it.
        assert check(Here(), str(path), known).differs
        return
    with pytest.raises(remote_log.Replaced):
        drain(Here(), path, "nemo2", known)


def test_the_check_at_the_end_says_whether_the_file_has_what_was_read(path: Path) -> None:
    whole, known = long("nemo2", 3), ReadRanges()
    path.write_bytes(whole)
    drain(Here(), path, "nemo2", known)
    assert len(known.ranges) > 1
    here: Any = Here()
    assert check(here, str(path), known) == LogCheck()
    # The job still writes: what was read is there.
    path.write_bytes(whole + CHATTER)
    assert check(here, str(path), known) == LogCheck()
    for place in (0, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:place] + b"~" + whole[place + 1 :])
        words = f"the first {len(whole)} bytes of {path} are not those that were read"
        assert check(here, str(path), known).differs == words
    path.write_bytes(whole[:-1])
    assert "bytes, of which" in check(here, str(path), known).differs
    path.unlink()
    assert check(here, str(path), known) == LogCheck(unknown=f"{path} is not there any more")


@pytest.mark.parametrize(
    ("status", "words"),
    [(124, "within 60 s"), (3, "neither sha256sum nor openssl"), (1, "cannot read")],
)
def test_a_check_without_an_answer_says_why(status: int, words: str, path: Path) -> None:
    class Other(Here):
        def run(self, script: str, **kinds: Any) -> Answer:
            return Answer(status, "", "it is forbidden") if "digest" in script else super().run(script)

    path.write_text(LOGS["nemo2"])
    known = ReadRanges()
    drain(Here(), path, "nemo2", known)
    assert words in check(Other(), str(path), known).unknown


def test_a_login_node_without_a_program_for_digests_is_read_all_the_same(path: Path) -> None:
    whole, known, here = long("nemo2", 3), ReadRanges(), Here("command() { return 1; }\n")
    path.write_bytes(whole)
    data, end = drain(here, path, "nemo2", known)
    assert end == len(whole)
    assert len(read("nemo2", iter([data])).steps) == 50
    assert check(here, str(path), known).unknown == "the login node has neither sha256sum nor openssl"


# Several logs at once


def fetch(ssh: files.Runner, path: str, known: ReadRanges) -> bytes:
    return remote_log.RemoteLog(ssh, path, known).fetch([b"line"], lambda data: data)


def test_many_logs_that_grow_are_read_and_checked_by_three_scripts(tmp_path: Path) -> None:
    """The names are such as a recipe of somebody else's may have. Of one log the end is read, one has not grown."""
    here, logs = Here(), {str(tmp_path / f"it's log {n}.out"): ReadRanges() for n in range(20)}
    first, *_, last = logs
    for n, path in enumerate(logs):
        Path(path).write_bytes(b"a line\n" * n)
    for path in (first, last):
        fetch(here, path, logs[path])
    with Path(last).open("ab") as file:
        file.write(b"its end\n")
    here.scripts = 0
    seen = Ahead(here)
    remote_log.look_ahead(seen, logs)
    # A round may ask for each log twice.
    texts = [fetch(seen, path, known) for path, known in logs.items()]
    again = {fetch(seen, path, known) for path, known in logs.items()}
    assert texts == [b"a line\n" * n for n in range(19)] + [b"its end\n"]
    assert (again, here.scripts) == ({b""}, 2)
    digests = whole_ahead(here, logs)
    assert all(is_whole(known, digests[path]) for path, known in logs.items() if known.end)
    assert here.scripts == 3


@pytest.mark.parametrize("fault", ["grown", "changed", "a link", "gone", "searched"])
def test_a_log_that_may_differ_is_checked_alone(fault: str, path: Path) -> None:
    here, known, other = Here(), ReadRanges(), path.with_name("other.out")
    text = b"a line\n" * (100_000 if fault == "searched" else 100)
    path.write_bytes(text)
    drain(here, path, "nemo2", known)
    if fault == "grown":
        path.write_bytes(text + b"more\n")
    elif fault == "changed":
        path.write_bytes(text.upper())
    elif fault in ("a link", "gone"):
        path.rename(other)
    if fault == "a link":
        path.symlink_to(other)
    digest = whole_ahead(here, {str(path): known}).get(str(path), "")
    assert not is_whole(known, digest)


def test_what_is_fetched_ahead_of_a_log_that_was_replaced_is_not_taken(path: Path) -> None:
    here, known = Here(), ReadRanges()
    path.write_bytes(b"a line\n" * 10)
    drain(here, path, "nemo2", known)
    path.write_bytes(b"another\n" * 20)
    seen = Ahead(here)
    remote_log.look_ahead(seen, {str(path): known})
    with pytest.raises(remote_log.Replaced):
        fetch(seen, str(path), known)


# Files, whatever their names and whatever the shell answers

DATA = bytes(range(256)) * 9000  # more than one block of dd
NAMES = [
    b"log-ours_17_0.out",
    b"caf\xe9.out",
    "größe".encode(),
    b"\x1b[2J",
    b"\xed\xa0\x80",
    b"a\nb",
    b"-rf",
    b".x",
]


class Says(Here):
    """A login node that answers this, whatever it is asked."""

    def __init__(self, answer: Answer) -> None:
        super().__init__()
        self.answer = answer

    def run(self, script: str, **kinds: Any) -> Answer:
        return self.answer


@pytest.mark.parametrize("name", ["log", "-n", "$(touch planted)", "it's"])
def test_a_range_of_any_bytes_arrives_as_it_is(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(DATA)
    assert files.size(Here(), str(path)) == len(DATA)
    assert files.read(Here(), str(path), 0, len(DATA)) == DATA
    assert files.read(Here(), str(path), 4097, 1 << 20) == DATA[4097 : 4097 + (1 << 20)]
    assert files.read(Here(), str(path), len(DATA) - 3, 100) == DATA[-3:]
    assert files.read(Here(), str(path), len(DATA) + 5, 100) == b""
    status = files.status(Here(), str(path))
    assert status == (len(DATA), int(path.stat().st_mtime))
    assert [entry.name for entry in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("path", ["none", "file/none"])
def test_a_file_that_is_not_there(path: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    absent = str(tmp_path / path)
    assert files.size(Here(), absent) is None
    assert files.status(Here(), absent) is None
    assert files.read(Here(), absent, 0, 9) is None
    assert files.names(Here(), absent) == []


def test_only_a_regular_file_is_a_log(tmp_path: Path) -> None:
    log, link, pipe = tmp_path / "log", tmp_path / "link", tmp_path / "pipe"
    log.write_text("step 0\n")
    link.symlink_to(log)
    os.mkfifo(pipe)
    with pytest.raises(Unreachable, match="link is a symbolic link, which is not read"):
        files.size(Here(), str(link))
    for other in (pipe, tmp_path):
        with pytest.raises(Unreachable, match="is no regular file, which is not read"):
            files.size(Here(), str(other))
    # What was put there after that look.
    with pytest.raises(Unreachable, match=r"link cannot be read: dd: .*Too many levels of symbolic links"):
        files.read(Here(), str(link), 0, 9)
    with pytest.raises(Unreachable, match=r"cannot be read: dd: .*Is a directory"):
        files.read(Here(), str(tmp_path), 0, 9)
    # No writer is waited for.
    files.read(Here(), str(pipe), 0, 9)


def test_a_name_of_any_bytes_hides_no_other(tmp_path: Path) -> None:
    """Whoever may write to the folder of the logs may put a file there whose name is no UTF-8."""
    for name in NAMES:
        (Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + name))).touch()
    expected = {name.decode(errors="replace") for name in NAMES}
    assert set(files.names(Here(), str(tmp_path))) == expected
    (tmp_path.parent / "link").symlink_to(tmp_path)
    assert len(files.names(Here(), str(tmp_path.parent / "link"))) == len(NAMES)


def test_a_folder_of_too_many_files_is_one_clear_error() -> None:
    with pytest.raises(
        Unreachable, match=r"^/logs has too many files: move away those that are not of this job$"
    ):
        files.names(Says(Answer(0, "a\0", "", left_out=7)), "/logs")


REFUSED = Answer(1, "", "dd: failed to open '/logs/No such file or directory': Permission denied\n")


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (REFUSED, "Permission denied"),
        (Answer(127, "", "bash: stat: command not found\n"), "command not found"),
        (Answer(1, "", ""), "status 1"),
    ],
)
def test_what_a_login_node_cannot_read_is_not_absent(answer: Answer, reason: str) -> None:
    def read(ssh: files.Runner, path: str) -> bytes | None:
        return files.read(ssh, path, 0, 9)

    for ask in (files.size, files.status, files.names, read):
        with pytest.raises(Unreachable, match=rf"^/logs cannot be read: (.*: )?{reason}$"):
            ask(Says(answer), "/logs")


@pytest.mark.parametrize("text", ["81a4 7 1\n2 2", "", "banner\n81a4 7 1\n"])
def test_a_status_of_another_form_is_no_answer(text: str) -> None:
    with pytest.raises(Unreachable, match="the login node's `stat` printed"):
        files.size(Says(Answer(0, text, "")), "/logs/log")


@pytest.mark.parametrize("text", ["YQ", "Y\nQ==", "YQ==YQ==", "banner: YQ=="])
def test_bytes_that_are_no_base64_are_no_answer(text: str) -> None:
    with pytest.raises(Unreachable, match="/logs/log: the login node sent no base64"):
        files.read(Says(Answer(0, text, "")), "/logs/log", 0, 9)
