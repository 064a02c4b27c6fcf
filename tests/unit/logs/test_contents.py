"""What is not the text of one log is called what it is, by its bytes; every log that exists is text."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import random
import tarfile
import zipfile
from collections.abc import Sequence
from itertools import pairwise

import pytest
from backports import zstd

from plugins.logs.formats import read
from plugins.logs.origin import contents
from plugins.logs.registry import FORMATS
from plugins.record.baseline import Statistic
from tests.unit import examples

LOG = examples.nemo2_text().encode()
LOGS = {"slow/log-x_7_0.out": LOG.replace(b"10.0", b"19.0"), "good/log-x_8_0.out": LOG}


def tar(members: dict[str, bytes] = LOGS, form: int = tarfile.GNU_FORMAT) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=form) as archive:
        for name, data in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return file.getvalue()


def tar_before_posix() -> bytes:
    """As tar wrote it before 1988: without `ustar` in the header, the checksum is all that tells it (V7 tar(5))."""
    data = bytearray(tar())
    data[257:265] = bytes(8)
    data[148:156] = b" " * 8
    data[148:156] = f"{sum(data[:512]):06o}\0 ".encode()
    return bytes(data)


def zipped() -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, data in LOGS.items():
            archive.writestr(name, data)
    return file.getvalue()


OTHERS: dict[str, tuple[bytes, str]] = {
    "tar": (tar(), "a tar archive"),
    "tar of PAX": (tar({"ä" * 200: LOG}, tarfile.PAX_FORMAT), "a tar archive"),
    "tar before POSIX": (tar_before_posix(), "a tar archive"),
    "bzip2": (bz2.compress(LOG), "compressed with bzip2"),
    "nothing in bzip2": (bz2.compress(b""), "compressed with bzip2"),
    "zip": (zipped(), "a zip archive"),
    "gzip": (gzip.compress(LOG), "compressed with gzip"),
    "xz": (lzma.compress(LOG), "compressed with xz"),
    "zstd": (zstd.compress(LOG), "compressed with Zstandard"),
    "UTF-16": (LOG.decode().encode("utf-16"), "text in UTF-16"),
    "UTF-16LE": (LOG.decode().encode("utf-16-le"), "text in UTF-16LE"),
    "UTF-16BE": (LOG.decode().encode("utf-16-be"), "text in UTF-16BE"),
    "UTF-16LE behind other letters": (
        "═══ ログ ═══\n".encode("utf-16-le") + LOG.decode().encode("utf-16-le"),
        "text in UTF-16LE",
    ),
    "random": (random.Random(1).randbytes(9000), "binary"),
    # A report of Nsight Systems in SQLite begins so.
    "sqlite": (b"SQLite format 3\0" + bytes.fromhex("1000010100402020000000020000000200") * 9, "binary"),
}


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("pieces", [(), (1, 300, 513)], ids=["whole", "in pieces"])
def test_such_a_log_of_a_cluster_is_no_evidence(name: str, pieces: Sequence[int]) -> None:
    """Of a tar, the steps of its last log would be judged."""
    data, called = OTHERS[name]
    assert contents(data[:4096]) == called
    cuts = [0, *pieces, len(data)]
    parts = [data[start:end] for start, end in pairwise(cuts)]
    for log_format in FORMATS:
        log = read(log_format, parts)
        assert examples.problems(examples.case(), log, Statistic()) == [
            f"the log is {called}, not the text of one log"
        ]


TEXTS: dict[str, bytes] = {
    "nothing": b"",
    "UTF-8": b"\xef\xbb\xbf" + LOG,
    "GBK": "作业已经开始".encode("gbk") * 400,
    "a hole at its beginning": bytes(6000) + LOG,
    "a hole in its beginning": LOG[:100] + bytes(3990) + LOG,
    "colours and bars": (b"\x1b[32m\x0f step 1 \x1b(B\x1b[m\x08\x08\r" * 200) + LOG,
    "a name that is alike": b"PKR is a name, BZh9 is one too\nustar\n" + LOG,
}


@pytest.mark.parametrize("name", TEXTS)
def test_a_log_is_text(name: str) -> None:
    assert contents(TEXTS[name][:4096]) == ""
