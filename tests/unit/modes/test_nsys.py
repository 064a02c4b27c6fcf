"""The program that digests Nsight Systems reports on a login node."""

from __future__ import annotations

import ast
import csv
import gzip
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from plugins.modes import nsys
from plugins.modes.profiles import read_profiles
from tests.unit.modes.simulator import REDUCE, STEPS, Recorded, export, insert, new_export, simulate

PROGRAM = Path(nsys.__file__)
NAMES = [
    line.split("\t")
    for line in (Path(__file__).parent / "kernel_names.tsv").read_text().splitlines()
    if not line.startswith("#")
]
COMPUTE, COMMUNICATION = "sm90_xmma_gemm_bf16bf16", REDUCE


def run(*arguments: str | Path) -> tuple[int, dict[str, Any]]:
    """Run the program as on a login node, from standard input."""
    done = subprocess.run(
        [sys.executable, "-I", "-", *map(str, arguments)],
        input=PROGRAM.read_bytes(),
        capture_output=True,
        check=False,
        timeout=300,
    )
    assert done.stderr == b""
    return done.returncode, json.loads(done.stdout)


def one(path: Path) -> dict[str, Any]:
    (found,) = nsys.digest(str(path))
    return found


def shares(found: dict[str, Any]) -> list[int]:
    return [found[share] for share in ("compute", "exposed", "other", "gap")]


def test_the_program_is_python_3_6_and_needs_the_standard_library_alone() -> None:
    tree = ast.parse(PROGRAM.read_text(), feature_version=(3, 6))
    imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    imported |= {
        alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names
    }
    assert {str(name).split(".")[0] for name in imported} <= sys.stdlib_module_names - {"__future__"}


@pytest.mark.parametrize("version", ["2026_2", "2022_2"])
def test_a_report_is_digested_from_standard_input(tmp_path: Path, version: str) -> None:
    recorded = simulate()[0]
    path = export(tmp_path / "profile_4000_17_node0_rank3.sqlite", recorded, version=version)
    code, found = run(path)
    assert code == 0
    digests = read_profiles(json.dumps(found).encode(), "here")
    (profile,) = digests.profiles
    assert (profile.host, profile.rank, profile.remarks) == ("node07", 3, ())
    assert 85_000_000 < sum(profile.shares.values()) / STEPS < 95_000_000
    assert 75_000_000 < profile.compute / STEPS < 82_000_000
    assert len(json.dumps(found)) < 500


def test_no_secret_of_the_environment_is_read(tmp_path: Path) -> None:
    path = export(tmp_path / "a.sqlite", simulate()[0])
    assert "hf_not_for_anyone" in path.read_bytes().decode("latin-1")
    assert "hf_not" not in json.dumps(one(path))


@pytest.mark.parametrize(("kind", "name", "_source"), NAMES, ids=[row[1][:40] for row in NAMES])
def test_kernels_that_communicate_are_told_from_others(kind: str, name: str, _source: str) -> None:
    assert nsys.communicates(name) == (kind == "communication")


def painted(
    kernels: list[tuple[int, int, str]], copies: list[tuple[int, int]], since: int, until: int
) -> list[int]:
    """compute, exposed, other, gap: each ns is looked at by itself."""
    found = [0] * 4
    for ns in range(since, until):
        computes = any(start <= ns < end for start, end, name in kernels if name == COMPUTE)
        communicates = any(start <= ns < end for start, end, name in kernels if name == COMMUNICATION)
        copying = any(start <= ns < end for start, end in copies)
        found[0 if computes else 1 if communicates else 2 if copying else 3] += 1
    return found


@pytest.mark.parametrize("seed", range(12))
def test_shares_are_unions_that_sum_to_the_window(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)

    def intervals(count: int) -> list[tuple[int, int]]:
        return [
            (start, start + rng.choice([0, 1, 7, 30])) for start in (rng.randrange(300) for _ in range(count))
        ]

    kernels = [(*span, rng.choice([COMPUTE, COMMUNICATION])) for span in intervals(12)]
    copies = intervals(4)
    path = export(tmp_path / "a.sqlite", Recorded(kernels, copies))
    spans = [*copies, *((start, end) for start, end, _ in kernels)]
    begin, end = min(start for start, _ in spans), max(end for _, end in spans)
    assert shares(one(path)) == painted(kernels, copies, begin, end)


def test_a_graph_whose_kernels_were_not_traced_counts_as_compute_with_a_remark(tmp_path: Path) -> None:
    path = export(tmp_path / "a.sqlite", Recorded(kernels=[(100, 200, COMPUTE)]))
    with sqlite3.connect(path) as base:
        base.execute(
            "CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE (start INTEGER NOT NULL, end INTEGER NOT NULL,"
            " deviceId INTEGER NOT NULL, graphId INTEGER NOT NULL)"
        )
        base.execute("INSERT INTO CUPTI_ACTIVITY_KIND_GRAPH_TRACE VALUES (200, 500, 0, 1)")
    base.close()
    found = one(path)
    assert found["compute"] == 400
    assert found["remarks"][0] == (
        "75% of the kernels' time is in CUDA graphs whose kernels were not traced: the shares of compute and "
        "communication mislead"
    )


TEXT = b"Generating '/tmp/nsys-report-1234.qdstrm'\n" * 9


def _bytes(content: bytes) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(content)


def _changed(change: Callable[[bytes], bytes]) -> Callable[[Path], object]:
    """A whole report whose bytes are then changed."""
    return lambda path: path.write_bytes(change(export(path, simulate()[0]).read_bytes()))


def _without(*tables: str) -> Callable[[Path], object]:
    return lambda path: export(path, simulate()[0], drop=tables)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (_bytes(b""), "is empty: the profiler was ended"),
        (_bytes(TEXT), "is no SQLite file"),
        (_bytes(b"SQLite"), "is no SQLite file"),
        (_changed(lambda raw: raw[:-5000]), "is cut off: "),
        (_changed(lambda raw: raw[:4096] + b"\xff" * (len(raw) - 8192) + raw[-4096:]), "cannot be read: "),
        (lambda path: export(path, Recorded()), "has no CUDA kernels: the profiled steps were not reached"),
        (_without("CUPTI_ACTIVITY_KIND_KERNEL"), "has no CUDA kernels (no table"),
        (_without("StringIds"), "has kernels without names"),
        (Path.mkdir, "cannot be read: "),
        (Path, "cannot be read: "),
    ],
    ids=["empty", "text", "short", "cut", "scribbled", "no kernels", "no table", "no names", "a folder", "missing"],
)  # fmt: skip
def test_a_report_that_cannot_be_digested_says_why(
    tmp_path: Path, make: Callable[[Path], object], said: str
) -> None:
    path = tmp_path / "a.sqlite"
    make(path)
    with pytest.raises(nsys.Unreadable) as failed:
        nsys.digest(str(path))
    assert str(failed.value).startswith(said)


def test_each_process_of_a_report_is_digested_unless_that_takes_too_long(tmp_path: Path) -> None:
    ranks = simulate()
    path = export(tmp_path / "a.sqlite", *ranks)
    found = nsys.digest(str(path), rank=0)
    alone = [one(export(tmp_path / f"{rank}.sqlite", recorded)) for rank, recorded in enumerate(ranks)]
    assert [(each["process"], each["device"], each["rank"]) for each in found] == [
        (4000 + n, n, None) for n in range(4)
    ]
    assert list(map(shares, found)) == list(map(shares, alone))
    with pytest.raises(nsys.Unreadable, match="took longer than 0 s: digest it elsewhere"):
        nsys.digest(str(path), seconds=0)


def test_one_bad_report_keeps_the_others(tmp_path: Path) -> None:
    good = export(tmp_path / "good.sqlite", simulate()[0])
    (tmp_path / "bad.sqlite").write_bytes(TEXT)
    code, found = run(tmp_path / "bad.sqlite", good, tmp_path / "c.nsys-rep")
    assert (code, len(found["profiles"])) == (0, 1)
    assert [failed["file"] for failed in found["errors"]] == ["bad.sqlite", "c.nsys-rep"]
    assert run(tmp_path / "bad.sqlite")[0] == 1


@pytest.mark.parametrize(
    "drop",
    [
        ["NVTX_EVENTS", "CUPTI_ACTIVITY_KIND_RUNTIME"],
        ["CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET"],
        ["TARGET_INFO_GPU", "TARGET_INFO_SYSTEM_ENV", "META_DATA_EXPORT", "TARGET_INFO_SESSION_START_TIME"],
    ],
)
def test_other_tables_may_be_missing(tmp_path: Path, drop: list[str]) -> None:
    found = one(export(tmp_path / "a.sqlite", simulate()[0], drop=drop))
    assert read_profiles(json.dumps({"version": 1, "profiles": [found], "errors": []}).encode(), "here")


@pytest.mark.parametrize(
    ("table", "column"),
    [
        ("CUPTI_ACTIVITY_KIND_KERNEL", "globalPid"),
        ("CUPTI_ACTIVITY_KIND_KERNEL", "demangledName"),
        ("CUPTI_ACTIVITY_KIND_KERNEL", "shortName"),
        ("CUPTI_ACTIVITY_KIND_MEMCPY", "deviceId"),
        ("TARGET_INFO_SYSTEM_ENV", "value"),
    ],
)
def test_other_versions_lack_columns(tmp_path: Path, table: str, column: str) -> None:
    path = export(tmp_path / "a.sqlite", simulate()[0])
    with sqlite3.connect(path) as base:
        base.execute(f"ALTER TABLE {table} DROP COLUMN {column}")
    base.close()
    found = one(path)
    assert found["compute"] > 380_000_000


def test_odd_values_are_left_out_and_counted(tmp_path: Path) -> None:
    kernels = [(100, 200, COMPUTE), (300, 250, COMPUTE), (-50, -20, COMPUTE)]
    path = export(tmp_path / "a.sqlite", Recorded(kernels=kernels))
    with sqlite3.connect(path) as base:
        base.execute("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET end = 'soon' WHERE start = -50")
    base.close()
    found = one(path)
    assert shares(found) == [100, 0, 0, 0]
    assert found["remarks"][0] == "2 records without a start and a later end are left out"


def test_huge_and_odd_names_stay_short(tmp_path: Path) -> None:
    kernels = [(n, n + 1, f"{n}" + "\x1b[2J\ud800'\"%s" + "x" * 1_000_000) for n in range(3)]
    path = tmp_path / "a.sqlite"
    base = new_export(path)
    base.text_factory = bytes
    names = [(n, name.encode("utf-8", "surrogatepass")) for n, _, name in kernels]
    base.executemany("INSERT INTO StringIds VALUES (?, CAST(? AS TEXT))", names)
    columns = ("start", "end", "demangledName")
    insert(base, "2026_2", "CUPTI_ACTIVITY_KIND_KERNEL", columns, [(s, e, s) for s, e, _ in kernels])
    base.execute("COMMIT")
    base.close()
    found = one(path)
    assert found["compute"] == 3
    assert len(json.dumps(found)) < 4000


# What wait4 tells is no less than the memory of the process that started this one.
MEASURED = """
import runpy, sys
sys.argv = sys.argv[1:]
try:
    runpy.run_path(sys.argv[0], run_name="__main__")
except SystemExit as ended:
    assert not ended.code
with open("/proc/self/status") as status:
    sys.stderr.write(next(line.split()[1] for line in status if line.startswith("VmHWM:")))
"""


def _memory(folder: Path, count: int) -> int:
    """The most memory that the program takes for a report with so many kernels, in bytes."""
    path = folder / f"{count}.sqlite"
    base = new_export(path)
    insert(base, "2026_2", "StringIds", ("id", "value"), [(n, f"gemm_{n}") for n in range(1, 500)])
    rows = ((n * 9_000 % 7_000_000_007, n * 9_000 % 7_000_000_007 + 4_000, n % 499 + 1) for n in range(count))
    insert(base, "2026_2", "CUPTI_ACTIVITY_KIND_KERNEL", ("start", "end", "demangledName"), rows)
    base.execute("COMMIT")
    base.close()
    done = subprocess.run(
        [sys.executable, "-I", "-c", MEASURED, str(PROGRAM), str(path)],
        capture_output=True,
        text=True,
        check=True,
    )
    (profile,) = json.loads(done.stdout)["profiles"]
    assert profile["compute"] > count * 3_000
    return int(done.stderr) << 10


def test_memory_does_not_grow_with_the_report(tmp_path: Path) -> None:
    # 45,000 rows are 7 MB as Python's values, and 4 MB in what SQLite keeps of the file and sorts.
    assert _memory(tmp_path, 60_000) - _memory(tmp_path, 15_000) < 7 << 20


def _report(folder: Path, name: str = "a") -> Path:
    (folder / "scratch").mkdir()
    path = folder / f"{name}.nsys-rep"
    path.write_bytes(b"x" * 5000)
    return path


def _nsys(path: Path, body: str) -> Path:
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


def test_a_report_is_exported_into_a_folder_that_is_removed(tmp_path: Path) -> None:
    made = export(tmp_path / "made.sqlite", simulate()[0])
    report = _report(tmp_path, "profile_12")
    # nsys export --type sqlite --output FILE REPORT
    program = _nsys(
        tmp_path / "nsys", f'[ "$1 $2 $3 $4" = "export --type sqlite --output" ] && cp {made} "$5"'
    )
    code, found = run("--nsys", program, "--scratch", tmp_path / "scratch", report)
    assert code == 0
    assert [(each["file"], each["rank"]) for each in found["profiles"]] == [("profile_12.nsys-rep", None)]
    assert list((tmp_path / "scratch").iterdir()) == []


def test_an_export_that_hangs_is_ended(tmp_path: Path) -> None:
    report = _report(tmp_path)
    program = _nsys(tmp_path / "nsys", "sleep 60")
    code, found = run("--nsys", program, "--seconds", "0.1", "--scratch", tmp_path, report)
    assert (code, found["errors"][0]["error"]) == (1, "was not exported within 0.1 s")
    assert list(tmp_path.glob("pacemark*")) == []


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (
            "echo 'The report was made by a newer version.'; exit 1",
            "cannot be exported: The report was made by",
        ),
        ("exit 0", "cannot be exported: nsys says nothing"),
    ],
)
def test_an_export_that_fails_says_what_nsys_said(tmp_path: Path, body: str, said: str) -> None:
    report = _report(tmp_path)
    code, found = run("--nsys", _nsys(tmp_path / "nsys", body), "--scratch", tmp_path / "scratch", report)
    assert (code, found["errors"][0]["error"][: len(said)]) == (1, said)
    assert list((tmp_path / "scratch").iterdir()) == []


def test_an_export_that_is_ended_leaves_no_folder(tmp_path: Path) -> None:
    report = _report(tmp_path)
    scratch = tmp_path / "scratch"
    os.mkfifo(tmp_path / "begun")
    program = _nsys(tmp_path / "nsys", f"exec >/dev/null 2>&1; echo $$ > {tmp_path}/begun; exec sleep 60")
    arguments = [sys.executable, str(PROGRAM), "--nsys", str(program), "--scratch", str(scratch), str(report)]
    with subprocess.Popen(arguments, stdout=subprocess.DEVNULL) as running:
        exporting = int((tmp_path / "begun").read_text())
        assert len(list(scratch.iterdir())) == 1
        running.send_signal(signal.SIGTERM)
        assert running.wait(300) == 1
    assert list(scratch.iterdir()) == []
    assert not Path(f"/proc/{exporting}").exists()


def test_under_nohup_an_export_goes_on_after_its_terminal_is_closed(tmp_path: Path) -> None:
    report = _report(tmp_path)
    made = export(tmp_path / "made.sqlite", simulate()[0])
    for name in ("begun", "go"):
        os.mkfifo(tmp_path / name)
    program = _nsys(tmp_path / "nsys", f'echo > {tmp_path}/begun; read line < {tmp_path}/go; cp {made} "$5"')
    arguments = ["nohup", sys.executable, str(PROGRAM), "--nsys", str(program), str(report)]
    with subprocess.Popen(arguments, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as running:
        (tmp_path / "begun").read_text()
        running.send_signal(signal.SIGHUP)
        (tmp_path / "go").write_text("\n")
        out, _ = running.communicate(timeout=300)
    assert running.returncode == 0
    assert len(json.loads(out)["profiles"]) == 1


# A real report, against what NVIDIA's own programs count in it

HERE = Path(__file__).parent / "report_h100"
COPIES = 365_486 + 14_688
"""The time of memsets and of copies, in ns."""


def printed(name: str) -> list[dict[str, str]]:
    with (HERE / name).open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def profile(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Any]:
    path = tmp_path_factory.mktemp("report") / "ranges.sqlite"
    path.write_bytes(gzip.decompress((HERE / "ranges.sqlite.gz").read_bytes()))
    (profile,) = nsys.digest(str(path))
    return profile


def test_the_window_is_that_of_nsys_stats(profile: Mapping[str, Any]) -> None:
    """From the first kernel of the first step to the last kernel of the last one."""
    rows = printed("steps.csv")
    end = int(rows[-1]["Projected Start (ns)"]) + int(rows[-1]["Projected Duration (ns)"])
    window = sum(profile[share] for share in ("compute", "exposed", "other", "gap"))
    assert window == end - int(rows[0]["Projected Start (ns)"])


def test_the_shares_are_those_of_nsys_stats(profile: Mapping[str, Any]) -> None:
    """No kernel of this report runs beside another one, nor beside a copy: each sum is a share."""
    kernels = sum(int(row["Total Time (ns)"]) for row in printed("kernels.csv"))
    assert (profile["compute"], profile["other"], profile["exposed"]) == (kernels, COPIES, 0)


def test_nothing_of_the_report_is_doubtful(profile: Mapping[str, Any]) -> None:
    assert profile["remarks"] == []
