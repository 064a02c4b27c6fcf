"""The files of a source, a log, a folder, an archive or standard input, one after the other. Nothing is unpacked to disk.

`judge exp.tar.zst` reads an archive once, from its beginning to its end, a piece at a time. Number and size of what it
holds are bounded, and what is no plain file is refused by name.
"""

from __future__ import annotations

import gzip
import lzma
import posixpath
import re
import shlex
import stat
import sys
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Protocol, cast

from plugins.base.errors import ConfigError
from plugins.base.files import below
from plugins.logs.origin import BEGINNING, GZIP, TAR, XZ, ZIP, ZSTANDARD, contents

SUFFIX = re.compile(r"(\.(t?(gz|xz|zst|bz2?)|zstd|lz4|lzma|Z|zip|7z|tar))+$")
"""What the name of a log ends with if it is compressed or packed, also if such a file is then refused."""

MOST_BYTES = 1 << 30
"""The log of a case has some hundred MB at most. What is much larger when it is decompressed may fill the memory."""

PIECE = 1 << 20
STDIN = "-"

_MOST_FILES, _MOST_IN_ALL, _MOST_HEADER, _LONGEST_NAME = 200_000, 8 << 30, 1 << 20, 4096
# What tarfile reads into the memory: long names, and headers of PAX.
_HEADERS = (
    *(tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK),
    *(tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE),
)
_UNPACK = {
    TAR: "run `mkdir logs && tar -xf {path} -C logs`, and name one of the logs",
    ZIP: "run `unzip {path} -d logs`, and name one of the logs",
    "compressed with bzip2": "run `bzip2 -dc {path} > log.txt`, and name log.txt",
    **{
        f"text in {form}": f"run `iconv -f {form} -t UTF-8 {{path}} > log.txt`, and name log.txt"
        for form in ("UTF-16", "UTF-16LE", "UTF-16BE")
    },
}


class Damaged(Exception):
    """A file that cannot be read or decompressed to its end, or holds more than is allowed."""


class SourceDamaged(Damaged):
    """An archive that cannot be read any further: what follows is unknown."""


class Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


@dataclass(frozen=True)
class File:
    """A file of a source. `name` is its path in it. `pieces` are its bytes, decompressed, which are read before the next file is taken.

    Reading them raises Damaged. `target` is the path of another file of the archive if this is a link to it, "" if it is none.
    """

    name: str
    pieces: Iterator[bytes]
    target: str = ""


@dataclass
class Source:
    """What is judged, by the name that the user gave it. `refused` are the files that could not be taken, and why."""

    name: str
    refused: dict[str, str] = field(default_factory=dict)

    def files(self, wanted: Callable[[str], bool]) -> Iterator[File]:
        """The files with wanted names; of a single file itself, whatever its name is. Raises ConfigError if there is none such."""
        path = Path(self.name)
        try:
            if self.name == STDIN:
                if sys.stdin is None:
                    raise ConfigError("-: standard input is closed")
                yield from self._opened(sys.stdin.buffer, "standard input", wanted)
            elif path.is_dir():
                yield from self._folder(path, wanted)
            else:
                with path.open("rb") as file:
                    yield from self._opened(file, path.name, wanted)
        except Damaged as error:
            self.refused[self.name] = str(error)
        except OSError as error:
            raise ConfigError(f"{error.filename or self.name}: cannot be read: {error.strerror}") from None

    def _folder(self, folder: Path, wanted: Callable[[str], bool]) -> Iterator[File]:
        for path in sorted(below(folder)):
            name = str(path.relative_to(folder))
            if path.is_dir() or not wanted(name):
                continue
            try:
                if not stat.S_ISREG(path.stat().st_mode):
                    self.refused[name] = "is no plain file"
                    continue
                with path.open("rb") as file:
                    yield File(name, pieces(decompressed(file), str(path)))
            except OSError as error:
                self.refused[name] = f"cannot be read: {error.strerror}"

    def _opened(self, file: BinaryIO, name: str, wanted: Callable[[str], bool]) -> Iterator[File]:
        start = _Started(file)
        if contents(start.begin) == ZIP and file.seekable():
            yield from self._zip(file, wanted)
            return
        stream = _Started(decompressed(start))
        if contents(stream.begin) == TAR:
            yield from self._tar(stream, wanted)
        else:
            yield File(name, pieces(stream, self.name))

    def _tar(self, stream: Readable, wanted: Callable[[str], bool]) -> Iterator[File]:
        counted = cast(BinaryIO, _Counted(stream))
        try:
            with tarfile.open(fileobj=counted, mode="r|", tarinfo=_Member, bufsize=PIECE) as archive:
                for number, member in enumerate(archive):
                    # Without this, it keeps each for ever.
                    archive.members = []  # type: ignore[attr-defined]
                    if number == _MOST_FILES:
                        raise Damaged(f"has more than {_MOST_FILES:,} files: name its logs themselves")
                    if member.size > _MOST_IN_ALL:
                        # To skip it takes hours, also if the archive ends before.
                        raise Damaged(
                            f"{member.name[:_LONGEST_NAME]} has {member.size:,} bytes by its header"
                        )
                    if member.isdir() or not wanted(member.name):
                        continue
                    fault = _fault(member.name, member.size)
                    if not fault and not (member.isreg() or member.issym() or member.islnk()):
                        fault = "is no plain file"
                    if fault:
                        self.refused[member.name[:_LONGEST_NAME]] = fault
                        continue
                    if not member.isreg():
                        yield File(member.name, iter(()), _target(member))
                        continue
                    data = archive.extractfile(member)
                    assert data is not None
                    yield File(member.name, pieces(decompressed(data)))
        except (tarfile.TarError, EOFError, OSError, ValueError, RecursionError) as error:
            raise Damaged(f"is cut or damaged, and what follows is unknown: {error}") from None

    def _zip(self, file: BinaryIO, wanted: Callable[[str], bool]) -> Iterator[File]:
        try:
            archive = zipfile.ZipFile(file)
        except (zipfile.BadZipFile, NotImplementedError, ValueError) as error:
            raise Damaged(f"is no whole zip archive: {error}") from None
        entries = archive.infolist()
        if len(entries) > _MOST_FILES:
            raise Damaged(f"has more than {_MOST_FILES:,} files: name its logs themselves")
        if sum(entry.file_size for entry in entries) > _MOST_IN_ALL:
            raise Damaged(
                f"has more than {_MOST_IN_ALL >> 30} GiB when it is decompressed: name its logs themselves"
            )
        for entry in entries:
            if entry.filename.endswith("/") or not wanted(entry.filename):
                continue
            fault = _fault(entry.filename, entry.file_size)
            if stat.S_ISLNK(entry.external_attr >> 16):
                fault = "is a link, which is not followed"
            elif entry.flag_bits & 1:
                fault = "is encrypted"
            if fault:
                self.refused[entry.filename[:_LONGEST_NAME]] = fault
                continue
            try:
                with archive.open(entry) as data:
                    yield File(entry.filename, pieces(decompressed(cast(BinaryIO, data))))
            except (zipfile.BadZipFile, NotImplementedError) as error:
                self.refused[entry.filename] = f"cannot be decompressed: {error}"


def decompressed(file: Readable) -> Readable:
    """The bytes of a file, decompressed if they are compressed."""
    start = _Started(file)
    opener = _OPENERS.get(contents(start.begin))
    return start if opener is None else cast(Readable, opener(start))


def decompressed_file(path: Path) -> Any:
    """A file, opened for reading what it has decompressed. Raises OSError."""
    with path.open("rb") as file:
        opener = _OPENERS.get(contents(file.read(BEGINNING)))
    return opener(path) if opener else path.open("rb")


def is_archive(path: Path) -> bool:
    """Whether it is a tar or zip archive, also a compressed one. Raises OSError."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        start = _Started(file)
        try:
            return contents(start.begin) == ZIP or contents(_Started(decompressed(start)).begin) == TAR
        except Damaged:
            return False


def pieces(file: Readable, path: str = "") -> Iterator[bytes]:
    """The bytes of a log, which a user may find at this path. Raises Damaged also if it is no log, or too large for one."""
    size, piece = 0, b""
    try:
        while piece := _read(file, PIECE):
            kind = contents(piece[:BEGINNING]) if not size else ""
            size += len(piece)
            if kind:
                raise Damaged(f"is {kind}, not the text of one log: {_advice(kind, path)}")
            if size > MOST_BYTES:
                raise Damaged(
                    f"has more than {MOST_BYTES >> 20:,} MiB when it is decompressed, which no log of a case has"
                )
            yield piece
    except OSError as error:
        raise Damaged(f"cannot be read: {error}") from None


def _advice(kind: str, path: str) -> str:
    """What to do with a file that is no log."""
    return (_UNPACK.get(kind, "") if path else "").format(path=shlex.quote(path)) or "name the log itself"


def _fault(name: str, size: int) -> str:
    """What is wrong with a file of an archive by its name and size; "" if nothing is."""
    if len(name) > _LONGEST_NAME:
        return f"has a name of more than {_LONGEST_NAME:,} characters"
    if name.startswith(("/", "\\")) or re.match(r"[A-Za-z]:", name) or ".." in re.split(r"[/\\]", name):
        return "has a path that leads out of the archive"
    if size > MOST_BYTES:
        return f"has {size:,} bytes, which no log of a case has"
    return ""


def _target(member: tarfile.TarInfo) -> str:
    """The path in the archive of what this link leads to."""
    if member.islnk():
        return member.linkname
    return posixpath.normpath(posixpath.join(posixpath.dirname(member.name), member.linkname))


def _zstd(file: Any) -> Any:
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd
    return zstd.open(file)


_OPENERS: dict[str, Any] = {GZIP: gzip.open, XZ: lzma.open, ZSTANDARD: _zstd}


class _Started:
    """A file whose beginning was looked at."""

    def __init__(self, file: Readable) -> None:
        self._file, self.begin = file, b""
        while len(self.begin) < BEGINNING and (piece := _read(file, BEGINNING - len(self.begin))):
            self.begin += piece
        self._ahead = self.begin

    def read(self, size: int = -1, /) -> bytes:
        if not self._ahead:
            return _read(self._file, size)
        taken, self._ahead = self._ahead[:size], self._ahead[size:]
        return taken


def _read(file: Readable, size: int) -> bytes:
    try:
        return file.read(size)
    except tarfile.TarError as error:
        raise SourceDamaged(f"is cut or damaged, and what follows is unknown: {error}") from None
    except (Damaged, OSError):
        raise
    except Exception as error:
        raise Damaged(
            f"cannot be decompressed: {error or type(error).__name__}; judge a whole copy of it"
        ) from None


class _Counted:
    """A stream that ends with an error before it fills the memory or takes for ever."""

    def __init__(self, file: Readable) -> None:
        self._file, self._size = file, 0

    def read(self, size: int, /) -> bytes:
        try:
            piece = _read(self._file, size)
        except Damaged as error:
            raise SourceDamaged(str(error)) from None
        self._size += len(piece)
        if self._size > _MOST_IN_ALL:
            raise SourceDamaged(
                f"has more than {_MOST_IN_ALL >> 30} GiB when it is decompressed: name its logs themselves"
            )
        return piece


class _Member(tarfile.TarInfo):
    """A member of an archive. An archive that is cut between two members, or damaged there, is an error, not its end."""

    @classmethod
    def fromtarfile(cls, archive: tarfile.TarFile) -> _Member:
        try:
            member = super().fromtarfile(archive)
        except tarfile.EOFHeaderError:  # type: ignore[attr-defined]
            raise
        except tarfile.HeaderError as error:
            raise Damaged(f"is cut or damaged, and what follows is unknown: {error}") from None
        return member

    def _proc_member(self, archive: tarfile.TarFile) -> tarfile.TarInfo:
        if self.type in _HEADERS and self.size > _MOST_HEADER:
            raise Damaged(f"has a header of {self.size:,} bytes")
        member: tarfile.TarInfo = super()._proc_member(archive)  # type: ignore[misc]
        # What is said of all members has no end, and each member would copy it.
        archive.pax_headers = {}
        return member

    def _refuse_sparse(self, *_: object) -> tarfile.TarInfo:
        # tarfile reads the whole list of its holes into the memory.
        raise Damaged(f"{self.name[:_LONGEST_NAME]} is sparse: pack it again without --sparse")

    _proc_sparse = _proc_gnusparse_10 = _refuse_sparse
