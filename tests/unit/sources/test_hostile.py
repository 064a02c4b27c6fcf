"""Archives that mean harm or are damaged: each gets one clear line, nothing is written, and nothing passes."""

from __future__ import annotations

import gzip
import io
import tarfile
import zipfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from backports import zstd

from pacemark.__main__ import main
from plugins.sources import files
from tests.unit.sources import upstream
from tests.unit.sources.upstream import TOP, job, log_name, of, text


@cache
def good() -> dict[str, bytes]:
    """The files of a job that passes."""
    return job(of("gpt"), 7, [text(of("gpt"))])


LOG = "log-x.run_8_0.out"


def member(name: str, data: bytes = b"", size: int | None = None, kind: bytes = tarfile.REGTYPE) -> bytes:
    """A member whose header may say another size than its data has."""
    info = tarfile.TarInfo(name)
    info.type, info.size = kind, len(data) if size is None else size
    return info.tobuf() + data + bytes(-len(data) % 512)


def with_member(*members: bytes) -> bytes:
    """A whole archive, behind these."""
    return b"".join(members) + upstream.tar(good())


def encrypted() -> bytes:
    data = bytearray(upstream.zipped({LOG: b"text"}))
    data[6] |= 1
    data[data.index(b"PK\x01\x02") + 8] |= 1
    return bytes(data)


def linked() -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        entry = zipfile.ZipInfo(LOG)
        entry.external_attr = 0o120777 << 16
        archive.writestr(entry, "/etc/passwd")
    return made.getvalue()


HOSTILE: dict[str, tuple[Callable[[], bytes], str]] = {
    "absolute": (lambda: with_member(member(f"/{LOG}", b"x")), "has a path that leads out of the archive"),
    "above": (lambda: with_member(member(f"../{LOG}", b"x")), "has a path that leads out of the archive"),
    "link": (lambda: upstream.tar(good(), upstream.link(f"{TOP}/{LOG}", "/etc/passwd")), "is a link to /etc/passwd, which is not followed"),
    "device": (lambda: with_member(member(LOG, kind=tarfile.CHRTYPE)), "is no plain file"),
    "huge": (lambda: with_member(member(LOG, size=1 << 40)), "log-x.run_8_0.out has 1,099,511,627,776 bytes by its header"),
    "large header": (lambda: with_member(member("x", b"1" * (2 << 20), kind=tarfile.XHDTYPE)), "has a header of 2,097,152 bytes"),
    "many": (lambda: with_member(*[member("x.py")] * 1001), "has more than 1,000 files: name its logs themselves"),
    "nested": (lambda: with_member(member(LOG, upstream.tar({}))), "is a tar archive, not the text of one log"),
    "packed twice": (lambda: with_member(member(LOG, gzip.compress(gzip.compress(b"log")))), "is compressed with gzip, not the text of one log"),
    "bomb": (lambda: zstd.compress(with_member(*[member("x.py", bytes(1 << 20))] * 40)), "has more than 0 GiB when it is decompressed"),
    "cut": (lambda: zstd.compress(upstream.tar(good()))[:-40], "cannot be decompressed"),
    "cut in a member": (lambda: upstream.tar({"a.log": text(of("gpt"))})[:9000], "is cut or damaged, and what follows is unknown"),
    "cut between members": (lambda: member("x.log", b"x") * 3, "is cut or damaged, and what follows is unknown"),
    "garbage inside": (lambda: upstream.tar(good())[:1536] + b"?" * 512 + upstream.tar(good())[2048:], "is cut or damaged, and what follows is unknown"),
    "encrypted": (encrypted, "is encrypted"),
    "zip link": (linked, "is a link, which is not followed"),
    "cut zip": (lambda: upstream.zipped(good())[:-300], "is no whole zip archive"),
    "zip bomb": (lambda: upstream.zipped({f"{n}.py": bytes(1 << 20) for n in range(40)}), "has more than 0 GiB when it is decompressed"),
}  # fmt: skip


@pytest.fixture(autouse=True)
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_MOST_FILES", 1000)
    monkeypatch.setattr(files, "_MOST_IN_ALL", 32 << 20)


@pytest.mark.parametrize("name", HOSTILE)
def test_an_archive_that_means_harm_gets_one_line(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    make, words = HOSTILE[name]
    path = tmp_path / "exp"
    path.write_bytes(make())
    monkeypatch.chdir(tmp_path)
    status = main(["judge", "exp"])
    shown = capsys.readouterr()
    assert shown.err == ""
    (line,) = [line for line in shown.out.splitlines() if line.startswith("not ")]
    assert words in line
    assert status == 4
    assert list(tmp_path.iterdir()) == [path]


def test_what_was_read_before_the_damage_is_judged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    slow = job(of("gpt"), 7, [text(of("gpt"), 1.2)])
    data = upstream.tar({**slow, "z/log-z_9_0.out": text(of("gpt"))})
    path = tmp_path / "exp.tar"
    path.write_bytes(data[: data.index(f"{TOP}/z/".encode()) + 5000])
    assert main(["judge", str(path)]) == 1
    out = capsys.readouterr().out
    assert "gpt_oss/120b-bf16-64gpus  too slow" in out
    assert "is cut or damaged" in out


def test_a_damaged_log_costs_no_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = log_name(of("gpt"), 8)
    damaged = {f"{other}.gz": gzip.compress(text(of("gpt"), 1.1))[:-30]}
    upstream.write_tree(tmp_path, {**good(), **damaged, "config/llmb-config_8.yaml": b"{"})
    assert main(["judge", str(tmp_path)]) == 4
    out = capsys.readouterr().out
    assert "gpt_oss/120b-bf16-64gpus  passed" in out
    assert "cannot be decompressed" in out
    assert "is no llmb-config" in out


def test_standard_input_is_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    data = zstd.compress(upstream.tar(good()))
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))
    assert main(["judge", "-"]) == 0
    assert "1 passed" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["missing.log", "empty"])
def test_nothing_to_judge_is_said(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty").mkdir()
    status = main(["judge", str(tmp_path / name)])
    shown = capsys.readouterr()
    assert (status, "cannot be read: No such file" in shown.err) in ((2, True), (5, False))
    assert shown.err or "no log of a training run was found" in shown.out
