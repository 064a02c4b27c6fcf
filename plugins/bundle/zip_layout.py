"""Where a ZIP file has bytes that are of no member: other programs may find other members in them, and nobody signs them.

The layout is that of APPNOTE.TXT, 4.3.6: the members, each after a header of its own; the list of the members; its end.
"""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

# 4.3.7: flags, method, CRC, both sizes, and the lengths of the name and of the extra field.
_HEAD = struct.Struct("<4s2xHH4xLLLHH")
_HEAD_SIGN = b"PK\3\4"
# 4.3.12: the header in the list, without name, extra field and comment.
_LISTED = 46
# 4.3.16: sign, this disk, the list's disk, members on this disk, members, size and place of the list, length of the comment.
_END = struct.Struct("<4sHHHHLLH")
_END_SIGN = b"PK\5\6"
# 4.3.14, 4.3.15: two records before the end, of an archive that needs numbers of 64 bits.
_END_64, _LOCATOR_AT = 76, 56
_END_64_SIGN, _LOCATOR_SIGN = b"PK\6\6" + struct.pack("<Q", 44), b"PK\6\7"
_ELSEWHERE_16, _ELSEWHERE_32 = 0xFFFF, 0xFFFFFFFF
# 4.5.3: the one extra field that is read, of sizes and places of 64 bits.
_EXTRA = struct.Struct("<HH")
_SIZES_64 = 1
_UTF8 = 0x800


def stray(path: Path, list_at: int, entries: Sequence[zipfile.ZipInfo]) -> str:
    """What is wrong with the layout, whose list of members begins at this byte; "" if nothing is. Raises OSError."""
    with path.open("rb") as file:
        return _in_members(file, list_at, entries) or _after_list(file, list_at, entries)


def data_at(file: BinaryIO, entry: zipfile.ZipInfo) -> int:
    """Where the data of a member begin. Raises OSError."""
    file.seek(entry.header_offset)
    *_, name_length, extra_length = _HEAD.unpack(file.read(_HEAD.size))
    return entry.header_offset + _HEAD.size + int(name_length) + int(extra_length)


def _in_members(file: BinaryIO, list_at: int, entries: Sequence[zipfile.ZipInfo]) -> str:
    end = 0
    for entry in sorted(entries, key=lambda entry: entry.header_offset):
        name = entry.orig_filename
        if entry.header_offset != end:
            return f"it has bytes of no member before {name}"
        file.seek(end)
        head = file.read(_HEAD.size)
        if len(head) < _HEAD.size:
            return f"{name}: it is cut off"
        sign, flags, method, crc, packed, size, name_length, extra_length = _HEAD.unpack(head)
        own_name, extra = file.read(name_length), file.read(extra_length)
        if entry.comment or not all(map(_is_of_sizes, (extra, entry.extra))):
            return f"{name}: it has a comment or an extra field, which nobody signs"
        if extra and (size, packed) == (_ELSEWHERE_32, _ELSEWHERE_32):
            size, packed = struct.unpack("<QQ", extra[_EXTRA.size :].ljust(16, b"\0")[:16])
        listed = (entry.flag_bits, entry.compress_type, entry.CRC, entry.compress_size, entry.file_size)
        if (flags, method, crc, packed, size) != listed or (sign, own_name) != (_HEAD_SIGN, _name(entry)):
            return f"{name}: its own header says otherwise than the list of members"
        end += _HEAD.size + name_length + extra_length + entry.compress_size
    return "" if end == list_at else "it has bytes of no member before its list of members"


def _after_list(file: BinaryIO, list_at: int, entries: Sequence[zipfile.ZipInfo]) -> str:
    size = sum(_LISTED + len(_name(entry)) + len(entry.extra) for entry in entries)
    file.seek(list_at + size)
    data = file.read(_END_64 + _END.size + 1)
    records, end = data[: -_END.size], data[-_END.size :]
    if len(end) < _END.size:
        return "its end is cut off"
    sign, disk, list_disk, here, in_all, listed, place, comment = _END.unpack(end)
    signs = records[: len(_END_64_SIGN)], records[_LOCATOR_AT:][: len(_LOCATOR_SIGN)]
    records_fit = len(records) == _END_64 and signs == (_END_64_SIGN, _LOCATOR_SIGN)
    if (records and not records_fit) or sign != _END_SIGN or comment:
        return "it has bytes after its list of members, or an archive comment: nobody signs them"
    counted = {here, in_all} <= {len(entries), _ELSEWHERE_16 if records else len(entries)}
    placed = listed in (size, _ELSEWHERE_32) and place in (list_at, _ELSEWHERE_32)
    if counted and placed and not disk and not list_disk:
        return ""
    return "its end is not that of its list of members"


def _name(entry: zipfile.ZipInfo) -> bytes:
    return entry.orig_filename.encode("utf-8" if entry.flag_bits & _UTF8 else "cp437")


def _is_of_sizes(extra: bytes) -> bool:
    """Whether an extra field has sizes and places of 64 bits, and nothing else."""
    if not extra:
        return True
    if len(extra) < _EXTRA.size:
        return False
    kind, length = _EXTRA.unpack(extra[: _EXTRA.size])
    return bool(kind == _SIZES_64 and length == len(extra) - _EXTRA.size <= 24)
