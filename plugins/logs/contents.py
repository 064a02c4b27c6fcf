"""What a file is that is not the text of one log, by its first bytes. Pure."""

from __future__ import annotations

import re
import tarfile
from contextlib import suppress

BEGINNING = 4096
"""So many bytes of a file are looked at."""

GZIP, XZ, ZSTANDARD = (f"compressed with {name}" for name in ("gzip", "xz", "Zstandard"))
TAR = "a tar archive"
_BY_BEGINNING = {
    rb"\x1f\x8b": GZIP,
    rb"\xfd7zXZ\0": XZ,
    rb"\x28\xb5\x2f\xfd": ZSTANDARD,
    rb"BZh[1-9](1AY&SY|\x17rE8P\x90)": "compressed with bzip2",
    rb"PK(\x03\x04|\x05\x06|\x07\x08)": "a zip archive",
    # With the mark of the byte order, or every second of 16 bytes is zero. Text before them may be of another alphabet.
    rb"\xff\xfe|\xfe\xff": "text in UTF-16",
    rb"(..)*?([^\0]\0){8}": "text in UTF-16LE",
    rb"(..)*?(\0[^\0]){8}": "text in UTF-16BE",
}
# Text has hardly any of these bytes; of what is compressed or encrypted they are 8.6 %. A hole in a log is zeros.
_UNUSUAL, _MOST_UNUSUAL = re.compile(rb"[\x01-\x06\x10-\x1a\x1c-\x1f\x7f]"), 0.05


def contents(begins: bytes) -> str:
    """What a file is that begins so; "" if it may be a log."""
    # Whatever wrote a tar archive, its first header has a checksum.
    with suppress(tarfile.HeaderError):
        tarfile.TarInfo.frombuf(begins[: tarfile.BLOCKSIZE], "utf-8", "surrogateescape")
        return TAR
    for pattern, name in _BY_BEGINNING.items():
        if re.match(pattern, begins, re.DOTALL):
            return name
    usual = len(_UNUSUAL.findall(begins)) <= _MOST_UNUSUAL * len(begins.replace(b"\0", b""))
    return "" if usual else "binary"
