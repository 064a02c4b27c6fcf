"""Digest Nsight Systems reports where they lie: `python3 - [options] FILE... < nsys.py` prints one JSON document.

It needs Python 3.6 and its standard library, so that it runs on a login node. A `.sqlite` export is opened
read-only; a `.nsys-rep` is exported into a temporary folder first, with the program that `--nsys` names. Rows
are read in the order of their start and none is kept, so that memory does not grow with the report.

All times are integers in ns. docs/dev/modes.md defines the figures. The schema is NVIDIA's: "SQLite Schema
Reference" in the User Guide of Nsight Systems. Tables and columns are made when they are needed, and differ
between versions.
"""

import argparse
import json
import os
import re
import shutil
import signal
import sqlite3
import struct
import subprocess
import sys
import tempfile
import time
from typing import Any, Dict, List, Optional, Set
from urllib.parse import quote

VERSION = 1
_ENDING = (signal.SIGTERM, signal.SIGHUP)
MOST_PROFILES = 32
MOST_ERRORS = 100
_MOST_NAMES = 20000
_NAME = 400
_SHOWN = 120
_MISLEADING = 0.20  # of the kernels' time
_GRAPH_NAME = "(CUDA graph)"
_KERNEL, _GRAPH, _MEMCPY, _MEMSET = (
    "CUPTI_ACTIVITY_KIND_" + kind for kind in ("KERNEL", "GRAPH_TRACE", "MEMCPY", "MEMSET")
)

# Kernels of NCCL, Transformer Engine's user buffers, DeepEP, NVSHMEM, and the all-reduces of PyTorch and of inference engines.
_COMMUNICATES = re.compile(
    r"nccl|userbuffers|deep_?ep::|hybrid_?ep|nvshmem|all_reduce_(one|two)_shot|cross_device_reduce",
    re.IGNORECASE,
)

_COMPUTE, _COMMUNICATION, _OTHER = 0, 1, 2
# In the order of the classes. Together they are the profiled window.
_SHARES = ("compute", "exposed", "other", "gap")

# Whether a signal ended the program. SQLite takes what is raised while it calls back for its own interruption.
_ENDED: List[bool] = []


class Unreadable(Exception):
    """A report that cannot be digested. The text says why and what to do."""


def communicates(name: str) -> bool:
    """Whether a kernel of this name communicates."""
    return _COMMUNICATES.search(name) is not None


class Report:
    """A `.sqlite` export, opened read-only."""

    def __init__(self, path: str, seconds: float) -> None:
        _check_whole(path)
        self._base = sqlite3.connect(
            "file:" + quote(os.fsencode(os.path.abspath(path))) + "?mode=ro&immutable=1", uri=True
        )
        self._base.text_factory = lambda raw: raw.decode("utf-8", "replace")
        until = time.monotonic() + seconds
        self._base.set_progress_handler(lambda: int(time.monotonic() > until), 10000)
        self._base.execute("PRAGMA cache_size = -8000")
        self.columns: Dict[str, Set[str]] = {}
        for (table,) in self._base.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            quoted = '"' + table.replace('"', '""') + '"'
            self.columns[table] = {row[1] for row in self._base.execute("PRAGMA table_info(" + quoted + ")")}

    def close(self) -> None:
        self._base.close()

    def has(self, table: str, *columns: str) -> bool:
        return table in self.columns and set(columns) <= self.columns[table]

    def ask(self, query: str) -> sqlite3.Cursor:
        return self._base.execute(query)

    def string(self, key: int) -> Optional[str]:
        row = self._base.execute(
            "SELECT substr(value, 1, ?) FROM StringIds WHERE id = ?", (_NAME, key)
        ).fetchone()
        return None if row is None else str(row[0])


def _check_whole(path: str) -> None:
    """Raise Unreadable if the file is no SQLite database, or is shorter than its header says."""
    with open(path, "rb") as file:
        header = file.read(100)
        size = os.fstat(file.fileno()).st_size
    if not size:
        raise Unreadable("is empty: the profiler was ended before it wrote the report")
    if len(header) < 100 or not header.startswith(b"SQLite format 3\0"):
        raise Unreadable("is no SQLite file: export it with `nsys export --type sqlite`")
    page = struct.unpack(">H", header[16:18])[0]
    whole = (65536 if page == 1 else page) * struct.unpack(">I", header[28:32])[0]
    if size < whole:
        raise Unreadable("is cut off: %d of %d bytes; export it again" % (size, whole))


def digest(path: str, rank: Optional[int] = None, seconds: float = 900) -> List[Dict[str, Any]]:
    """The digests of one `.sqlite` export, one for each process and device that ran kernels.

    `rank` is the process's rank, if it is known. Raises Unreadable.
    """
    report = None
    try:
        report = Report(path, seconds)
        return _digest(report, path, rank)
    except (sqlite3.Error, OSError, OverflowError) as error:
        if _ENDED:
            sys.exit(1)
        if "interrupted" in str(error):
            raise Unreadable("took longer than %g s: digest it elsewhere" % seconds) from None
        raise Unreadable("cannot be read: %s; export it again" % error) from None
    finally:
        if report is not None:
            report.close()


def _digest(report: Report, path: str, rank: Optional[int]) -> List[Dict[str, Any]]:
    if not report.has(_KERNEL, "start", "end", "deviceId"):
        raise Unreadable("has no CUDA kernels (no table %s): profile with `--trace cuda`" % _KERNEL)
    if not report.columns[_KERNEL] & {"demangledName", "shortName"} or not report.has(
        "StringIds", "id", "value"
    ):
        raise Unreadable("has kernels without names: this version's export is not known")
    process = "globalPid" if report.has(_KERNEL, "globalPid") else "0"
    rows = report.ask(
        "SELECT DISTINCT ifnull(%s, 0), deviceId FROM %s ORDER BY 1, 2 LIMIT %d"
        % (process, _KERNEL, MOST_PROFILES)
    )
    ranks = [
        (pid, device) for pid, device in rows.fetchall() if isinstance(pid, int) and isinstance(device, int)
    ]
    if not ranks:
        raise Unreadable("has no CUDA kernels: the profiled steps were not reached")
    host = _host(report)
    digests = []
    for pid, device in ranks:
        sweep = _Sweep(report, pid, device)
        if sweep.run():
            profile = {
                "file": _base(path),
                "host": host,
                "device": device,
                "process": pid // 0x1000000 % 0x1000000,
                "rank": rank if len(ranks) == 1 else None,
                "remarks": sweep.remarks,
            }
            profile.update(sweep.shares)
            digests.append(profile)
    if not digests:
        raise Unreadable("has no kernels with a start and an end: export it again")
    return digests


def _host(report: Report) -> Optional[str]:
    """Of the system's properties only this one is read: others hold the environment with its secrets."""
    if not report.has("TARGET_INFO_SYSTEM_ENV", "name", "value"):
        return None
    row = report.ask("SELECT value FROM TARGET_INFO_SYSTEM_ENV WHERE name = 'Hostname' LIMIT 1").fetchone()
    return None if row is None or row[0] is None else str(row[0])[:_SHOWN]


class _Sweep:
    """Passes once over what one device did for one process, in the order of the starts."""

    def __init__(self, report: Report, pid: int, device: int) -> None:
        self._report, self._pid, self._device = report, pid, device
        self._known: Dict[Any, bool] = {}
        self.shares = dict.fromkeys(_SHARES, 0)
        self.remarks: List[str] = []

    def run(self) -> bool:
        """Share out the time from the first start to the last end. Returns whether there is any.

        All intervals of a class that began before a moment and last beyond it cover the time from that moment
        to their latest end without a hole. So the latest end of each class is all that must be kept.
        """
        at = None
        ends = [0, 0, 0]
        busy = in_graphs = 0
        for start, end, key in self._rows():
            if at is None:
                ends = [start, start, start]
            else:
                self._settle(at, start, ends)
            at = start
            class_ = _OTHER
            if key is not None:
                class_ = _COMMUNICATION if self._communicates(key) else _COMPUTE
                busy += end - start
                in_graphs += end - start if key == _GRAPH_NAME else 0
            ends[class_] = max(ends[class_], end)
        if at is None:
            return False
        self._settle(at, max(ends), ends)
        if in_graphs > _MISLEADING * busy:
            self.remarks.append(
                "%.0f%% of the kernels' time is in CUDA graphs whose kernels were not traced: the shares of compute and"
                " communication mislead" % (100 * in_graphs / busy)
            )
        return True

    def _rows(self) -> sqlite3.Cursor:
        """(start, end, name) of the device's kernels, graphs, copies and sets by start."""
        parts, odd = [], 0
        for table in (_KERNEL, _GRAPH, _MEMCPY, _MEMSET):
            columns = self._report.columns.get(table, set())
            if not {"start", "end", "deviceId"} <= columns:
                continue
            name = "NULL"
            if table == _KERNEL:
                names = [column for column in ("demangledName", "shortName") if column in columns]
                name = "coalesce(%s, -1)" % ", ".join([*names, "NULL"])
            elif table == _GRAPH:
                # With `--cuda-graph-trace graph`, which is the default, a graph is one record.
                name = "'%s'" % _GRAPH_NAME
            of_device = "deviceId = %d" % self._device
            if "globalPid" in columns:
                of_device += " AND ifnull(globalPid, 0) = %d" % self._pid
            whole = "typeof(start) = 'integer' AND typeof(end) = 'integer' AND end >= start"
            (left_out,) = self._report.ask(
                "SELECT count(*) FROM %s WHERE %s AND NOT (%s)" % (table, of_device, whole)
            ).fetchone()
            odd += left_out
            parts.append("SELECT start, end, %s FROM %s WHERE %s AND %s" % (name, table, of_device, whole))
        if odd:
            self.remarks.append("%d records without a start and a later end are left out" % odd)
        return self._report.ask(" UNION ALL ".join(parts) + " ORDER BY 1")

    def _settle(self, start: int, until: int, ends: List[int]) -> None:
        """Share out the time from one moment to another."""
        for number, end in enumerate([*ends, until]):
            covered = min(max(end, start), until)
            self.shares[_SHARES[number]] += covered - start
            start = covered

    def _communicates(self, key: Any) -> bool:
        """Whether a kernel communicates. `key` is its name's, or the name itself."""
        known = self._known.get(key)
        if known is None:
            name = self._report.string(key) or "" if isinstance(key, int) else str(key)[:_NAME]
            known = communicates(name)
            if len(self._known) < _MOST_NAMES:
                self._known[key] = known
        return known


def _exported(path: str, nsys: str, folder: str, seconds: float) -> str:
    """Export a `.nsys-rep` into the folder. Returns the `.sqlite` file. Raises Unreadable."""
    made = os.path.join(folder, "report.sqlite")
    if not os.path.getsize(path):
        raise Unreadable("is empty: the profiler was ended before it wrote the report")
    with open(os.path.join(folder, "output"), "w+b") as out:
        # A signal between the start of nsys and the `try` below would leave nsys running.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
        running = None
        try:
            running = subprocess.Popen(
                [nsys, "export", "--type", "sqlite", "--output", made, path],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_SETMASK, before),
            )
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            running.wait(seconds)
        except OSError as error:
            raise Unreadable("cannot be exported: %s: %s" % (nsys, error.strerror)) from None
        except subprocess.TimeoutExpired:
            raise Unreadable("was not exported within %g s" % seconds) from None
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            if running is not None and running.poll() is None:
                os.killpg(running.pid, signal.SIGKILL)
                running.wait()
        out.seek(max(0, out.tell() - 4096))
        lines = out.read(4096).decode("utf-8", "replace").strip().splitlines()
    if running.returncode or not os.path.exists(made):
        raise Unreadable("cannot be exported: %s" % (lines[-1][:300] if lines else "nsys says nothing"))
    return made


def _text(text: str) -> str:
    """Without the halves of pairs that stand for bytes that are no UTF-8."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _base(path: str) -> str:
    return _text(os.path.basename(path))[:_SHOWN]


def _rank_of(path: str) -> Optional[int]:
    """The rank, where the file's name says it (`..._rank3.nsys-rep`). `profile_%p` is a process id."""
    match = re.search(r"rank_?(\d{1,6})(?!\d)", os.path.basename(path))
    return int(match.group(1)) if match else None


def _end(*_: Any) -> None:
    _ENDED.append(True)
    sys.exit(1)


def main(arguments: List[str]) -> int:
    """Print the digests of the files. Returns 1 if there is none."""
    parser = argparse.ArgumentParser(prog="nsys.py", description="Digest Nsight Systems reports into JSON.")
    parser.add_argument(
        "files", nargs="+", metavar="FILE", help="a .sqlite export, or a .nsys-rep with --nsys"
    )
    parser.add_argument("--nsys", help="the program nsys, to export a .nsys-rep")
    parser.add_argument("--scratch", help="where exports are written, and removed (a folder with space)")
    parser.add_argument(
        "--seconds", type=float, default=900, help="the limit for each export and each digest"
    )
    options = parser.parse_args(arguments)
    if options.scratch:
        os.environ["SQLITE_TMPDIR"] = options.scratch
    for number in _ENDING:
        # Under nohup it must go on after its terminal is closed.
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _end)
    profiles: List[Dict[str, Any]] = []
    errors: List[Dict[str, str]] = []
    for path in options.files:
        folder = None
        try:
            if len(profiles) >= MOST_PROFILES:
                raise Unreadable("is left out: %d profiles are digested at once" % MOST_PROFILES)
            export = path
            if path.endswith(".nsys-rep"):
                if not options.nsys:
                    raise Unreadable("needs nsys to be exported: no nsys was found")
                folder = tempfile.mkdtemp(prefix="pacemark-nsys-", dir=options.scratch)
                export = _exported(path, options.nsys, folder, options.seconds)
            digests = digest(export, _rank_of(path), options.seconds)
            for profile in digests:
                profile["file"] = _base(path)
            profiles += digests
        except (Unreadable, OSError) as error:
            errors.append({"file": _base(path), "error": _text(str(error))[:300]})
        finally:
            if folder is not None:
                shutil.rmtree(folder, ignore_errors=True)
    json.dump(
        {"version": VERSION, "profiles": profiles[:MOST_PROFILES], "errors": errors[:MOST_ERRORS]}, sys.stdout
    )
    sys.stdout.write("\n")
    return 0 if profiles else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
