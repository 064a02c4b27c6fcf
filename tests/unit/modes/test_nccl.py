"""The program that digests NCCL traces where they lie, on real traces (`nccl/README.md`), on torn ones and on hostile ones."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plugins.base.errors import Infrastructure
from plugins.logs import nccl
from plugins.logs.nccl import Digest
from plugins.modes.checks import trace_problems
from plugins.modes.traces import NcclDigest, in_units, messages_svg, read_digest, table
from tests.printed.nccl import Trace

REAL = Path(__file__).parent / "nccl"
PROGRAM = Path(nccl.__file__)
MIB = 1 << 20


def digest_of(data: bytes) -> dict[str, Any]:
    digest = nccl.Digest()
    digest.feed(data)
    return digest.report()


def real(name: str) -> dict[str, Any]:
    return digest_of((REAL / f"{name}.txt").read_bytes())


def sums(report: dict[str, Any]) -> dict[str, tuple[int, int]]:
    found: dict[str, tuple[int, int]] = {}
    for name, _, _, calls, size in report["calls"]:
        before = found.get(name, (0, 0))
        found[name] = before[0] + calls, before[1] + size
    return found


def test_it_is_a_program_for_python_3_6_and_the_standard_library_alone() -> None:
    tree = ast.parse(PROGRAM.read_text(), feature_version=(3, 6))
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    names = {
        alias.name if isinstance(node, ast.Import) else node.module
        for node in imports
        for alias in node.names
    }
    assert names <= {"argparse", "json", "os", "re", "stat", "sys", "time", "collections", "typing"}


def test_it_is_sent_as_a_script(tmp_path: Path) -> None:
    trace = tmp_path / "log.out"
    trace.write_bytes(Trace().whole())
    command = [sys.executable, "-I", "-", "--limit-seconds", "60", str(trace)]
    with PROGRAM.open("rb") as script:
        done = subprocess.run(command, stdin=script, capture_output=True, check=True)
    answer = json.loads(done.stdout)
    assert done.stdout.count(b"\n") == 1
    assert answer["done"]
    assert answer["counts"]["calls"] == 16 * 5 * 5


@pytest.mark.parametrize("name", ["recipe-2.28.9", "sockets-2.28.9", "shm-2.28.9"])
def test_the_calls_of_a_real_trace_are_all_counted(name: str) -> None:
    """What the program called is in `nccl/README.md`. The barrier is an all-reduce of a float."""
    report = real(name)
    elements = (1 + 4096 + (1 << 22)) * (2 + 4 + 8 + 1)
    assert sums(report) == {
        "AllReduce": (2 * 16, 2 * (elements + 3 * 2 * MIB + 4)),
        "AllGather": (2 * 9, 2 * 9 * 4 * MIB),
        "ReduceScatter": (2 * 3, 2 * 3 * 4 * MIB),
        "Broadcast": (2, 4 * MIB),
        "Reduce": (2, 4 * MIB),
        "AlltoAll": (2, 4 * MIB),
        "Send": (3, 6 * MIB),
        "Recv": (3, 6 * MIB),
    }
    assert report["counts"]["torn"] == 0
    assert report["uneven"] == []
    assert [row[2] for row in report["ranks"]] == [0, 1]


def test_calls_behind_labels_of_launchers_and_both_ends_of_a_transfer_are_counted() -> None:
    """A rank may send more often than another receives, so transfers say nothing about a trace that is cut."""
    labels, transfers = real("labels"), real("transfers")
    assert sums(labels) == {"AllGather": (3, 3 * 2359808 * 4 * 4), "AllReduce": (2, (7382228 + 7382228) * 4)}
    long = "r24-02-22-23-29-0066-raycluster-lv52c-worker-l4-8-"
    assert labels["hosts"] == ["node-1", "node-2", "node-3", f"{long}fqztx", f"{long}srrss"]
    gathered = (1, 2 * 2097152 * 4)
    sent = {"Send": (3, 3 * 2420736 * 4), "Recv": (1, 2420736 * 4)}
    assert sums(transfers) == {**sent, "AllGather": gathered, "ReduceScatter": gathered}
    assert transfers["uneven"] == []


def test_what_the_ranks_of_real_traces_chose() -> None:
    """With what the recipes ask NCCL for, no rank is stated; on one node the network is chosen but not used."""
    recipe, sockets, shm = (real(f"{name}-2.28.9") for name in ("recipe", "sockets", "shm"))
    assert recipe["setups"] == [
        {"networks": ["Socket"], "plugins": [], "transports": ["P2P/CUMEM"], "devices": []}
    ]
    assert sockets["setups"] == [
        {"networks": ["Socket"], "plugins": [], "transports": ["NET/Socket"], "devices": ["eth0"]}
    ]
    assert shm["setups"] == [{"networks": ["Socket"], "plugins": [], "transports": ["SHM"], "devices": []}]
    assert (recipe["world"], sockets["world"]) == (0, 2)
    assert [row[3] for row in recipe["ranks"]] == [None, None]
    assert [row[3] for row in sockets["ranks"]] == [0, 1]


@pytest.mark.parametrize(
    ("line", "transport", "device"),
    [
        ("Channel 07/0 : 0[0] -> 8[0] [send] via NET/IBext_v8/7/GDRDMA", "NET/IBext_v8/GDRDMA", "7"),
        ("Channel 01/0 : 1[1] -> 9[1] [send] via NET/IB/3(4)/GDRDMA/Shared", "NET/IB/GDRDMA", "3"),
        ("Channel 01/0 : 1[1] -> 9[1] [send] via NET/IB/3/GDRDMA(PCI)", "NET/IB/GDRDMA", "3"),
        ("Channel 00/0 : 1[f50] -> 0[350] [receive] via NET/AWS Libfabric/0", "NET/AWS Libfabric", "0"),
        ("CollNet 00/0 : 1 [send] via COLLNET/SHARP/0/GDRDMA", "COLLNET/SHARP/GDRDMA", "0"),
        ("Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM/read", "P2P/CUMEM", ""),
        ("Channel 00/0 : 0[0] -> 1[1] via P2P/direct pointer/read", "P2P/direct pointer", ""),
        ("Channel 00/0 : 0[0] -> 1[1] via P2P/indirect/2[2]", "P2P/indirect", ""),
        ("Channel 00 : 0[0] -> 1[1] via SHM/direct/CE", "SHM", ""),
    ],
)
def test_transports(line: str, transport: str, device: str) -> None:
    call = next(line for line in Trace().lines() if b"opCount" in line).decode()
    channel = call.partition("NCCL INFO ")[0] + f"NCCL INFO {line}\r\n"
    (setup,) = digest_of((channel + call).encode())["setups"]
    assert setup["transports"] == [transport]
    assert "".join(setup["devices"]) == device


def test_a_plug_in_that_is_loaded_is_not_yet_the_network() -> None:
    """NCCL 2.21: src/net.cc 460 and src/init.cc 322."""
    first, *rest = Trace(nodes=1, gpus=1).lines()
    who = first.partition(b"NCCL INFO ")[0] + b"NCCL INFO "
    loaded = who + b"NET/Plugin: Loaded net plugin AWS Libfabric (v7)\n"
    (setup,) = digest_of(b"".join([loaded, who + b"Using network Socket\n", rest[-1]]))["setups"]
    assert (setup["plugins"], setup["networks"]) == (["AWS Libfabric"], ["Socket"])


def test_the_elements_of_each_type_have_their_size() -> None:
    """src/nccl.h.in 300-313: int8, uint8, int32, uint32, int64, uint64, half, float, double, bfloat16, two of fp8."""
    sizes = [1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1]
    call = "gpu-00:1:1 [0] NCCL INFO AllReduce: opCount 0 sendbuff 0x7 recvbuff 0x7 count 10 datatype {} op 0 root 0 comm 0x5 [nranks=2] stream 0x5\n"
    text = "".join(call.format(datatype) for datatype in range(len(sizes)))
    assert sums(digest_of(text.encode())) == {"AllReduce": (12, 10 * sum(sizes))}


def test_what_a_thread_of_another_gpu_prints_is_of_the_one_that_acts() -> None:
    member = b"gpu-00:1:1 [0] NCCL INFO comm 0x5 rank 0 nranks 2 cudaDev 0 - Init COMPLETE\n"
    way = b"gpu-00:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/1\n"
    lists = (
        b"gpu-00:1:2 [1] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_9:1/IB [RO]; OOB eth0:192.0.2.2<0>\n"
    )
    digest = nccl.Digest()
    digest.feed(member + way + lists)
    ((_, gpu, rank, setup),) = digest.processes()
    assert (gpu, rank, setup["transports"], setup["devices"]) == (0, 0, ["NET/IB"], ["mlx5_9"])


def test_a_torn_line_is_no_call_of_whose_name_it_seems_to_have() -> None:
    report = real("torn")
    assert report["counts"]["torn"] == 2
    assert report["counts"]["calls"] == 3
    assert [row[1] for row in report["ranks"]] == [32615, 32617, 32625]


LINES = [
    *list(Trace(nodes=2, gpus=1, steps=1).lines()),
    b"\n",
    b"\xff\xfe\x00NCCL INFO \n",
    b"0: gpu-00:1:1 [0] NCCL INFO AllReduce: opCount \n",
    b"x" * 300 + b"\n",
    b"gpu-01:4000:4000 [0] NCCL INFO Channel 00/0 : 1[0] -> gpu-00:4000:4000 [0] NCCL INFO Using network IB\n",
]


@st.composite
def logs(draw: st.DrawFn) -> bytes:
    """Lines of several ranks, torn by one another and by garbage."""
    data = bytearray(b"".join(draw(st.lists(st.sampled_from(LINES), max_size=12))))
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(data)))
        gone = draw(st.integers(0, 40))
        data[at : at + gone] = draw(st.one_of(st.binary(max_size=30), st.sampled_from(LINES)))
    return bytes(data)


@settings(max_examples=75, deadline=None)
@given(data=logs(), block=st.integers(1, 500))
def test_the_digest_is_the_same_whatever_the_pieces(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, block: int
) -> None:
    trace = tmp_path_factory.mktemp("trace") / "log"
    trace.write_bytes(data)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nccl, "LONGEST_LINE", 250)
        report = nccl.run(str(trace), float("inf"), block)
        assert report == nccl.run(str(trace), float("inf"))
    assert report["done"]
    assert report["counts"]["lines"] <= data.count(b"\n") + 1


def test_a_trace_that_takes_too_long_is_not_done(tmp_path: Path) -> None:
    trace = tmp_path / "log"
    trace.write_bytes(Trace().whole())
    report = nccl.run(str(trace), -1.0)
    assert not report["done"]
    assert (report["size"], report["read"]) == (trace.stat().st_size, 0)


def test_a_last_line_without_its_end_is_not_read(tmp_path: Path) -> None:
    trace = tmp_path / "log"
    whole = Trace().whole()
    trace.write_bytes(whole[:-20])
    report = nccl.run(str(trace), float("inf"))
    assert report["done"]
    assert (report["size"], report["read"]) == (len(whole) - 20, whole.rindex(b"\n", 0, -1) + 1)
    trace.write_bytes(whole)
    assert nccl.run(str(trace), float("inf"))["counts"]["calls"] == report["counts"]["calls"] + 1


@pytest.mark.parametrize("kind", ["none", "folder", "pipe"])
def test_what_is_no_file_is_one_error(tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str) -> None:
    trace = tmp_path / "log"
    if kind == "folder":
        trace.mkdir()
    elif kind == "pipe":
        os.mkfifo(trace)
    assert nccl.main([str(trace)]) == 1
    said = json.loads(capsys.readouterr().out)
    what = "No such file or directory" if kind == "none" else "is no regular file"
    assert said == {"error": f"{trace}: {what}"}


def test_memory_and_digest_stay_bounded_whatever_the_trace() -> None:
    """More hosts, processes, communicators, collectives, networks and devices than there is room for, all with the longest names."""
    digest = nccl.Digest()
    huge = "9" * 20
    lines = []
    for i in range(8000):
        who = f"{i // 2:063d}:{10**9 + i}:1 [{i}] NCCL INFO "
        lines += [
            f"{who}{i % 3000:020d}: opCount f sendbuff (nil) recvbuff (nil) count {huge} datatype 8 op 0 root 0 "
            f"comm 0x{i:016x} [nranks={i % 5000}] stream (nil)",
            f"{who}Channel 00/0 : 0[0] -> 1[1] [send] via NET/{i % 400:024d}/{i % 999}/GDRDMA",
            f"{who}Using network {i % 300:024d}",
        ]
    digest.feed("\n".join([*lines, ""]).encode())
    some = list(digest.ranks.values())
    for i in range(300):
        for rank in some[i::300]:
            rank["networks"] = rank["plugins"] = [f"{i:03d}{j:021d}" for j in range(nccl.MOST_NAMES)]
            rank["transports"] = [f"COLLNET/{i:03d}{j:021d}/GDRDMA" for j in range(nccl.MOST_NAMES)]
            rank["devices"] = list(range(nccl.MOST_DEVICES))
            rank["interfaces"] = {"IB": {str(j): f"{i:03d}{j:017d}" for j in range(nccl.MOST_DEVICES)}}
            rank["member"] = {"9999999": 9999998}
            rank["calls"] = nccl.MOST
    assert len(digest.ranks) <= nccl.MOST_RANKS
    assert len(digest.hosts) <= nccl.MOST_HOSTS
    assert len(digest.calls) <= nccl.MOST_CALLS
    report = digest.report()
    assert len(report["ranks"]) == nccl.MOST_RANKS
    assert len(report["calls"]) == nccl.MOST_CALLS
    assert len(report["setups"]) == nccl.MOST_SETUPS
    assert report["counts"]["calls"] == 8000
    assert sum(row[3] for row in report["calls"]) + report["other_calls"][0] == 8000
    uneven = {"nranks": 10**7, "calls": nccl.MOST, "fewer": [[4095, nccl.MOST]] * nccl.MOST_FEWER}
    report["uneven"] = [uneven] * nccl.MOST_UNEVEN
    assert len(json.dumps(report, separators=(",", ":"))) < 950_000


def test_handles_beyond_the_room_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nccl, "MOST_HANDLES", 10)
    digest = nccl.Digest()
    digest.feed(Trace().whole())
    assert max(len(digest.handles), len(digest._members)) <= 10
    report = digest.report()
    assert report["untracked_calls"] > 0
    assert sum(calls for calls, _ in digest.handles.values()) + report["untracked_calls"] == 400


@pytest.mark.parametrize(
    "garbage", [os.urandom(1 << 16), b"a:1:" * 20000, b"NCCL INFO " * 9000, b"\0" * (1 << 18)]
)
def test_a_line_without_end_costs_little_and_hides_nothing_after_it(tmp_path: Path, garbage: bytes) -> None:
    trace = tmp_path / "log"
    trace.write_bytes(garbage * 4 + b"\n" + Trace().whole())
    report = nccl.run(str(trace), float("inf"))
    assert report["counts"]["calls"] == 400


# What is wrong with a trace, and how it is shown


def answer(data: bytes, **changes: Any) -> bytes:
    digest = Digest()
    digest.feed(data)
    rest = {"size": len(data), "read": len(data), "done": True}
    return json.dumps({**digest.report(), **rest, **changes}).encode()


def read_digest_of(data: bytes, **changes: Any) -> NcclDigest:
    return read_digest(answer(data, **changes))


@pytest.mark.parametrize(
    ("trace", "said"),
    [
        (Trace(), []),
        (Trace(ranks_stated=True), []),
        (Trace(label="[1,12]<stdout>:"), []),
        (Trace(missing=(3,)), ["15 of 16 ranks made calls: gpu-00 has 7 of 8"]),
        (Trace(missing=(3,), ranks_stated=True), ["15 of 16 ranks made calls: rank 3 is missing"]),
        (
            Trace(missing=(3, 8, 9, 10), ranks_stated=True),
            ["12 of 16 ranks made calls: ranks 3 and 8 to 10 are missing"],
        ),
        (Trace(missing=range(8, 16)), ["8 of 16 ranks made calls: 1 of 2 nodes have any"]),
        (Trace(missing=range(16)), ["the trace has no NCCL call in 0 lines"]),
        (Trace(steps=0), ["the trace has no NCCL call in 96 lines"]),
        (
            Trace(cut=(9, 10)),
            [
                "the trace is not whole: in communicators of 16 ranks others made 5 collective calls, "
                "GPUs 1 and 2 on gpu-01 2",
                "the trace is not whole: in communicators of 8 ranks others made 20 collective calls, "
                "GPUs 1 and 2 on gpu-01 8",
            ],
        ),
        (Trace(sockets=(1,)), ["the network is Socket, not IB: GPUs 0 to 7 on gpu-01"]),
        (
            Trace(sockets=(0, 1), ranks_stated=True),
            ["the network is Socket, not IB: ranks 0 to 7 on gpu-00, ranks 8 to 15 on gpu-01"],
        ),
        (Trace(nodes=4), ["a communicator has 32 ranks, the case has 16: this is the trace of a larger job"]),
        (
            Trace(nodes=1),
            [
                "8 of 16 ranks made calls: 1 of 2 nodes have any",
                "no channel over a network is seen on gpu-00",
            ],
        ),
        (Trace(nodes=4, gpus=4), ["the ranks are on 4 hosts, the case has 2 nodes"]),
        (
            Trace(nodes=1, gpus=16),
            [
                "the ranks are on 1 host, the case has 2 nodes",
                "no channel over a network is seen on gpu-00",
            ],
        ),
    ],
)
def test_what_is_wrong_with_a_trace_of_16_gpus_on_2_nodes(trace: Trace, said: list[str]) -> None:
    assert trace_problems(read_digest_of(trace.whole()), 16, 2, "IB") == said


def test_two_jobs_in_one_log() -> None:
    both = Trace(nodes=1).whole() + Trace(nodes=1).whole().replace(b"gpu-00:4", b"gpu-00:5")
    (said,) = trace_problems(read_digest_of(both), 8, 1, "IB")
    assert said == "16 ranks made calls, the case has 8: this is the trace of a larger job, or of several"


def test_a_network_is_proved_by_a_channel() -> None:
    """On one node none is expected. On two, a host without any is named."""
    whole = Trace().whole()
    assert trace_problems(read_digest_of(whole), 16, 2, "IB/GDRDMA") == []
    quiet = b"".join(line for line in Trace().lines() if b"via NET/" not in line or b"gpu-00" in line)
    assert trace_problems(read_digest_of(quiet), 16, 2, "IB") == [
        "no channel over a network is seen on gpu-01"
    ]
    slower = whole.replace(b"via NET/IB/2/GDRDMA", b"via NET/IB/2")
    assert trace_problems(read_digest_of(slower), 16, 2, "IB") == []
    assert trace_problems(read_digest_of(slower), 16, 2, "IB/GDRDMA") == [
        "the network is IB, not IB/GDRDMA: GPU 2 on gpu-00, GPU 2 on gpu-01"
    ]
    real = (REAL / "recipe-2.28.9.txt").read_bytes()
    assert trace_problems(read_digest_of(real), 2, 1, "IB") == []


@pytest.mark.parametrize(
    ("network", "expected"),
    [
        ("NET/IBext_v8", "IB"),
        ("NET/AWS Libfabric", "Libfabric"),
        ("NET/Libfabric", "libfabric"),
        ("NET/FasTrak", "FasTrak"),
        ("COLLNET/SHARP", "IB"),
    ],
)
def test_a_network_is_known_by_how_its_name_begins(network: str, expected: str) -> None:
    whole = Trace().whole()
    digest = read_digest_of(
        whole.replace(b"NET/IB/", f"{network}/".encode()).replace(b"plugin IB", b"plugin x")
    )
    assert trace_problems(digest, 16, 2, expected) == []
    assert len(trace_problems(digest, 16, 2, "Socket")) == 1
    assert not trace_problems(digest, 16, 2)


def test_a_name_that_is_cut_or_glued_is_no_rank_even_of_a_short_trace() -> None:
    whole = Trace(steps=60).whole()
    glued = read_digest_of(whole + b"vg" + whole.splitlines(keepends=True)[-1])
    assert (len(glued.ranks), trace_problems(glued, 16, 2, "IB")) == (17, [])
    lines = Trace(steps=1, sizes=(1 << 20,)).whole().splitlines(keepends=True)
    torn = [lines[-1][len(b"gpu") :], b"epoch" + lines[-2]]
    found = read_digest_of(b"".join([*lines, *torn]))
    assert {rank.host for rank in found.ranks} != {rank.host for rank in found.members()}
    assert len(found.members()) == 16
    assert trace_problems(found, 16, 2, "IB") == []


def test_many_torn_lines_hide_no_rank_that_stopped() -> None:
    lines = Trace(cut=[3], steps=20).whole().splitlines(keepends=True)
    torn = [line[: len(line) // 2] + b"\n" if number % 7 == 0 else line for number, line in enumerate(lines)]
    (reason,) = [one for one in trace_problems(read_digest_of(b"".join(torn)), 16, 2) if "not whole" in one][
        :1
    ]
    assert "GPU 3 on gpu-00" in reason


def test_a_format_that_is_not_known_is_told() -> None:
    other = Trace().whole().replace(b" count ", b" elements ", 140)
    (said,) = (text for text in trace_problems(read_digest_of(other), 16, 2, "IB") if "not known" in text)
    assert said.startswith("140 of 400 calls cannot be read")


def test_what_could_not_be_told_apart_is_no_pass() -> None:
    whole = Trace().whole()
    found = json.loads(answer(whole))
    ranks = [[*row[:4], None, *row[5:]] if number == 3 else row for number, row in enumerate(found["ranks"])]
    unread = read_digest_of(whole, done=False, size=2000, read=1000)
    assert trace_problems(unread, 16, 2) == ["the trace was not read to its end: 1000 bytes of at least 2000"]
    digest = read_digest_of(whole, ranks=ranks, untracked_calls=7, other_ranks=5)
    assert trace_problems(digest, 16, 2, "IB") == [
        "5 calls are of more ranks than can be told apart",
        "7 calls are of more communicators than can be told apart: the trace may not be whole",
        "too many set-ups: the network of GPU 3 on gpu-00 is not known",
    ]


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (1 << 41, "2 TiB"), (1 << 53, "8.19e+03 TiB")],
)
def test_units(size: int, text: str) -> None:
    assert in_units(size) == text


def test_the_plot_has_a_bar_for_each_size_and_collective() -> None:
    svg = messages_svg(read_digest_of(Trace().whole()), "llama3 8b")
    drawn = ElementTree.fromstring(svg)
    space = "{http://www.w3.org/2000/svg}"
    bars = [rect for rect in drawn.iter(f"{space}rect") if rect.get("height") == "16"]
    assert len(bars) == 5
    assert "AllGather" in svg
    empty = messages_svg(read_digest_of(b""), "nothing")
    assert len(list(ElementTree.fromstring(empty).iter(f"{space}rect"))) == 1


GOOD = answer(Trace(gpus=1, sockets=(1,), ranks_stated=True).whole())


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (b"", "is no digest of an NCCL trace"),
        (b"python3: command not found", "It begins: python3: command not found"),
        (
            b'{"error":"log.out: No such file or directory"}',
            "cannot be read where it lies: log.out: No such file",
        ),
        (GOOD[:-1] + b',"more":1}', "more: Extra inputs"),
        (GOOD.replace(b'"version": 1', b'"version": 3'), "version"),
        (GOOD.replace(b'"hosts": ["gpu-00", ', b'"hosts": ['), "a rank is on a host"),
        (GOOD.replace(b"gpu-01", b"\\u001b[2J"), "hosts"),
        (b" " * 1_000_001, "1000001 bytes"),
    ],
)
def test_what_is_no_digest_is_one_error(given: bytes, said: str) -> None:
    with pytest.raises(Infrastructure, match=said.replace("[", r"\[")):
        read_digest(given)


@settings(max_examples=100, deadline=None)
@given(
    st.integers(0, len(GOOD)),
    st.integers(0, 20),
    st.one_of(st.binary(max_size=8), st.sampled_from([b"-1", b"[]", b'""', b"9" * 30])),
)
def test_whatever_a_cluster_answers(at: int, gone: int, put: bytes) -> None:
    try:
        digest = read_digest(GOOD[:at] + put + GOOD[at + gone :])
    except Infrastructure:
        return
    for expected in ("IB", "IB/GDRDMA", None):
        assert all(trace_problems(digest, 2, 2, expected))
    ElementTree.fromstring(messages_svg(digest, ""))
    table(digest)
