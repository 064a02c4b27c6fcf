"""Where a line is from: another attempt, another file, a log driver that wrapped it, or a file that is no log. Pure.

A prefix before a line is no wrapping: whatever reads a line finds its words behind any prefix.
"""

from __future__ import annotations

import json
import re
import tarfile
from contextlib import suppress
from datetime import UTC, datetime

_REASONS = (b" DUE TO JOB REQUEUE", b" DUE TO PREEMPTION", b" DUE TO NODE FAILURE")
ORIGIN_HINTS = (*_REASONS, b"will restart worker group", b"==> ")
RESTART = re.compile(
    r"\*\*\* .{1,200} CANCELLED AT \S{1,30} DUE TO (?:JOB REQUEUE|PREEMPTION|NODE FAILURE)\b"
    r"|Worker group \w+\. \d+/\d+ attempts left; +will restart worker group"
)
"""What says that the job, or its processes, are started again.

Sources: Slurm 23.11 src/slurmd/slurmstepd/req.c, `_handle_signal_container`; PyTorch 2.7
torch/distributed/elastic/agent/server/api.py 945.
"""

HEADER = re.compile(
    r"^==> (?P<file>standard input|std(?:out|err)|.{1,300}\.(?:log|out|err|txt|jsonl?)(?:\.\w{1,4})?"
    r"|(?=\S{0,200}(?:[/.]\w|\d))(?!v?\d+[./][\d./]* )\S{1,300}) <==\s*$"
)
"""The line by which `head` and `tail` begin each of several files (coreutils src/head.c and tail.c, `write_header`).

`==> Launching <==` is a banner: the name of a file has a folder, an ending or a digit, and no blank, unless it ends as a log's.
"""

# What `grep -H` and `grep -Hn` print before a line, and how mail and `diff` quote one.
_LABEL = re.compile(
    r"(?P<label>(?:[^\s:]{0,300}/)?[^\s:/]{1,200}\.(?:log|out|err|txt)(?:\.\w{1,4})?:(?:\d{1,9}:)?|[<>]+ )"
)


def label_of(line: str) -> str:
    """What stands before this line to say that it is another file's; "" if nothing does."""
    match = _LABEL.match(line)
    return match["label"].strip() if match else ""


# What `kubectl logs --timestamps` and containerd print before a line, perhaps behind the name of a pod.
_STAMP = re.compile(
    r"(?:\[[^\]]{1,300}\] )?(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:\d\d)?) "
)


def seconds_of(clock: str) -> float | None:
    """`2025-01-01 12:00:00`, taken as UTC, in seconds since the epoch; None for other texts."""
    try:
        return datetime.fromisoformat(clock).replace(tzinfo=UTC).timestamp()
    except (ValueError, OverflowError):
        return None


def stamp_of(line: str) -> float | None:
    """The time at which this line was collected, in seconds; None if it does not begin with one."""
    match = _STAMP.match(line)
    return seconds_of(match[1]) if match else None


BEGINNING = 4096
"""So many bytes of a file are looked at."""

GZIP, XZ, ZSTANDARD = (f"compressed with {name}" for name in ("gzip", "xz", "Zstandard"))
TAR, ZIP = "a tar archive", "a zip archive"
_BY_BEGINNING = {
    rb"\x1f\x8b": GZIP,
    rb"\xfd7zXZ\0": XZ,
    rb"\x28\xb5\x2f\xfd": ZSTANDARD,
    rb"BZh[1-9](1AY&SY|\x17rE8P\x90)": "compressed with bzip2",
    rb"PK(\x03\x04|\x05\x06|\x07\x08)": ZIP,
    rb"\xff\xfe|\xfe\xff": "text in UTF-16",
}
# Without the mark of the byte order, every second of 16 bytes is zero. Text before them may be of another alphabet.
_WITH_ZEROS = {rb"(..)*?([^\0]\0){8}": "text in UTF-16LE", rb"(..)*?(\0[^\0]){8}": "text in UTF-16BE"}
# Text has hardly any of these bytes; of what is compressed or encrypted they are 8.6 %. A hole in a log is zeros.
_UNUSUAL, _MOST_UNUSUAL = re.compile(rb"[\x01-\x06\x10-\x1a\x1c-\x1f\x7f]"), 0.05


def contents(begins: bytes) -> str:
    """What a file is that begins so; "" if it may be a log."""
    # Whatever wrote a tar archive, its first header has a checksum.
    with suppress(tarfile.HeaderError):
        tarfile.TarInfo.frombuf(begins[: tarfile.BLOCKSIZE], "utf-8", "surrogateescape")
        return TAR
    # Each start is tried, so that is left out for a log, which has no zeros.
    patterns = _BY_BEGINNING | (_WITH_ZEROS if b"\0" in begins else {})
    for pattern, name in patterns.items():
        if re.match(pattern, begins, re.DOTALL):
            return name
    usual = len(_UNUSUAL.findall(begins)) <= _MOST_UNUSUAL * len(begins.replace(b"\0", b""))
    return "" if usual else "binary"


# moby daemon/logger/jsonfilelog (`log`); what Fluent Bit and Vector (`message`) and Google Cloud Logging (`textPayload`) write.
_IN_JSON = re.compile(
    rb'\s*(?:\{.{0,1000}?)?"(?P<key>log|message|textPayload)": ?(?P<text>"(?:[^"\\]|\\.)*")'
)
# containerd pkg/cri/io/logger.go: a stamp, the stream, and P if the line goes on in the next one.
_GOES_ON = re.compile(rb"\S{20,40} std(?:out|err) P ")


def plain(line: bytes) -> tuple[list[bytes], bool]:
    """The lines that a process wrote, without the JSON that a log driver put around them, and whether they are whole.

    A container runtime cuts lines of more than 16 KiB.
    """
    if _GOES_ON.match(line):
        return [line], False
    wrapped = _IN_JSON.match(line) if line.lstrip()[:1] in (b"{", b'"') else None
    if wrapped is None:
        return [line], True
    try:
        text = str(json.loads(wrapped["text"]))
    except ValueError:
        return [line], True
    pieces = text.replace("\r", "\n").encode(errors="replace").split(b"\n")
    return pieces, wrapped["key"] != b"log" or pieces[-1] == b""
