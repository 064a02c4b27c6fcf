"""The archive of a bundle: a ZIP file whose members are plain files, written and read within bounds.

The layout is that of APPNOTE.TXT, 4.3.6: the members, each after a header of its own; the list of the members; its end.
Bytes that are of no member are refused: other programs may find other members in them, and nobody signs them.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import struct
import unicodedata
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from plugins.base.errors import ConfigError
from plugins.base.words import shown

MOST_MEMBERS = 100_000
MOST_BYTES = 4 << 30
"""All members together, decompressed."""
LONGEST_NAME = 240
"""In bytes."""
MOST_LEVELS = 8

# Text that repeats itself is compressed to a hundredth; a member that is made to fill a disk, to a thousandth.
_MOST_TIMES = 250
_ANY_WAY = 64 << 20
_PIECE = 1 << 20
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
# The earliest that ZIP knows. A date of its own would make two archives of the same files differ.
_DATE = (1980, 1, 1, 0, 0, 0)


def write(path: Path, members: Mapping[str, Path | bytes]) -> None:
    """Write these members, by name. Raises FileExistsError or OSError."""
    with zipfile.ZipFile(path, "x", zipfile.ZIP_DEFLATED) as archive:
        for name, content in sorted(members.items()):
            entry = zipfile.ZipInfo(name, _DATE)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (stat.S_IFREG | 0o644) << 16
            with archive.open(entry, "w", force_zip64=True) as member:
                for piece in _pieces(content):
                    member.write(piece)


def rewrite(path: Path, members: Mapping[str, Path | bytes]) -> None:
    """Write an archive in the place of the one at `path`, which stays as it is if that fails. Raises OSError."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        write(temporary, members)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def digest(content: Path | bytes) -> str:
    """SHA-256, as hexadecimal digits. Raises OSError."""
    made = hashlib.sha256()
    for piece in _pieces(content):
        made.update(piece)
    return made.hexdigest()


def _pieces(content: Path | bytes) -> Iterator[bytes]:
    if isinstance(content, bytes):
        yield content
        return
    with content.open("rb") as file:
        while piece := file.read(_PIECE):
            yield piece


class Archive:
    """An archive that is read. Number, names, sizes and kinds of its members are checked before any is read."""

    def __init__(self, path: Path) -> None:
        """Raises OSError, and ConfigError: the file is no archive of a bundle, or is damaged; the message says how."""
        self.path = path
        # Whether it can be read says nothing of what it holds.
        with path.open("rb") as file:
            self._size = os.fstat(file.fileno()).st_size
        try:
            self._zip = zipfile.ZipFile(path)
        except (OSError, zipfile.BadZipFile, NotImplementedError, ValueError) as error:
            _require_readable(error)
            raise ConfigError(f"{path}: is no whole ZIP file: {error}") from None
        self._members = self._checked()

    def _checked(self) -> dict[str, zipfile.ZipInfo]:
        entries = self._zip.infolist()
        if len(entries) > MOST_MEMBERS:
            raise self._wrong("", f"it has {len(entries):,} members, more than {MOST_MEMBERS:,}")
        members: dict[str, zipfile.ZipInfo] = {}
        alike: dict[str, str] = {}
        for entry in entries:
            # Python cuts a name at its first NUL, which is a fault.
            name = entry.orig_filename
            fault = _fault(entry)
            if fault:
                raise self._wrong(name, fault)
            if name in members:
                raise self._wrong(name, "two members have this name")
            folded = unicodedata.normalize("NFKC", name).casefold()
            if folded in alike:
                raise self._wrong(name, f"{alike[folded]} is the same name on some file systems")
            members[name], alike[folded] = entry, name
        folders = {str(parent) for folded in alike for parent in PurePosixPath(folded).parents}
        both = folders & set(alike)
        if both:
            raise self._wrong(min(both), "it is a file and a folder")
        total = sum(entry.file_size for entry in entries)
        if total > min(MOST_BYTES, _ANY_WAY + _MOST_TIMES * self._size):
            raise self._wrong(
                "", f"its members are {total:,} bytes, too many for {self._size:,} bytes of ZIP"
            )
        reason = stray(self.path, self._zip.start_dir, entries)
        if reason:
            raise self._wrong("", reason)
        return members

    @property
    def names(self) -> list[str]:
        return list(self._members)

    def read(self, name: str, most: int) -> bytes:
        """A member of at most so many bytes. Raises ConfigError and OSError."""
        if name not in self._members:
            raise self._wrong(name, "it is missing")
        if self._members[name].file_size > most:
            raise self._wrong(name, f"it has more than {most:,} bytes")
        return b"".join(self.pieces(name))

    def extract(self, folder: Path) -> None:
        """Write all members below this folder, which is empty. Raises ConfigError or OSError."""
        for name in self._members:
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("xb") as file:
                for piece in self.pieces(name):
                    file.write(piece)

    def pieces(self, name: str) -> Iterator[bytes]:
        """The bytes of a member, no more than the archive says. Raises ConfigError if they are damaged, and OSError."""
        entry = self._members[name]
        missing, crc = entry.file_size, 0
        try:
            with self.path.open("rb") as file:
                file.seek(data_at(file, entry))
                for piece in _inflated(file, entry):
                    missing, crc = missing - len(piece), zlib.crc32(piece, crc)
                    if missing < 0:
                        raise self._wrong(name, "it has more bytes than the archive says")
                    yield piece
        except (zlib.error, EOFError) as error:
            raise self._wrong(name, f"it cannot be decompressed: {error}") from None
        if missing:
            raise self._wrong(name, f"it is {missing:,} bytes shorter than the archive says")
        if crc != entry.CRC:
            raise self._wrong(name, "it cannot be read: its CRC is another one")

    def _wrong(self, name: str, reason: str) -> ConfigError:
        return ConfigError(f"{self.path}: {f'{name}: ' if name else ''}{reason}")


def _inflated(file: BinaryIO, entry: zipfile.ZipInfo) -> Iterator[bytes]:
    """The bytes of the member whose data begin here. Raises zlib.error or EOFError if the archive has other data."""
    inflate = zlib.decompressobj(-zlib.MAX_WBITS) if entry.compress_type == zipfile.ZIP_DEFLATED else None
    size = entry.compress_size
    while size:
        data = file.read(min(_PIECE, size))
        if not data:
            raise EOFError("it is cut off")
        size -= len(data)
        if inflate is None:
            yield data
            continue
        while data:
            yield inflate.decompress(data, _PIECE)
            data = inflate.unconsumed_tail
        if inflate.unused_data or (inflate.eof and size):
            raise EOFError("it has bytes after its end")
    while inflate is not None and not inflate.eof:
        # The last input may have more output than one piece.
        data = inflate.decompress(b"", _PIECE)
        if not data:
            raise EOFError("its end is missing")
        yield data


def _require_readable(error: Exception) -> None:
    """Raise the error if the disk failed. By EINVAL the file is damaged: it names a place before its own begin."""
    if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
        raise error


def _fault(entry: zipfile.ZipInfo) -> str:
    """What is wrong with a member by its entry; "" if nothing is."""
    name = entry.orig_filename
    path = PurePosixPath(name)
    if (
        "\0" in name
        or shown(name) != name
        or len(name.encode()) > LONGEST_NAME
        or set(name) & set('\\:*?"<>|\n\t')
    ):
        return "a member cannot have this name"
    kind = stat.S_IFMT(entry.external_attr >> 16)
    if name.endswith("/") or kind not in (0, stat.S_IFREG):
        return "it is no plain file"
    if path.is_absolute() or ".." in path.parts or str(path) != name:
        return "it would be outside of the bundle's folder"
    if len(path.parts) > MOST_LEVELS:
        return f"it is below more than {MOST_LEVELS - 1} folders"
    if entry.flag_bits & 0x1:
        return "it is encrypted"
    if entry.compress_type not in _METHODS:
        return "it is compressed in another way than Deflate"
    return ""


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
