"""Files of a login node, read by its shell: here the bash of this machine, and its files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from fixtures.backends.shell import Answer
from fixtures.backends.ssh import files
from plugins.base.errors import Unreachable
from tests.unit.backends.ssh.test_log_tail import Here

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


@pytest.mark.parametrize("name", ["log", "a b", "-n", "$(touch planted)", "it's"])
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
    assert sorted(files.names(Here(), str(tmp_path))) == sorted(
        name.decode(errors="replace") for name in NAMES
    )
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


@pytest.mark.parametrize("text", ["81a4 7", "81a4 7 1\n2 2", "", "banner\n81a4 7 1\n", "x" * 99])
def test_a_status_of_another_form_is_no_answer(text: str) -> None:
    with pytest.raises(Unreachable, match="the login node's `stat` printed"):
        files.size(Says(Answer(0, text, "")), "/logs/log")


@pytest.mark.parametrize("text", ["YQ", "Y\nQ==", "�", "YQ==YQ==", "banner: YQ=="])
def test_bytes_that_are_no_base64_are_no_answer(text: str) -> None:
    with pytest.raises(Unreachable, match="/logs/log: the login node sent no base64"):
        files.read(Says(Answer(0, text, "")), "/logs/log", 0, 9)
