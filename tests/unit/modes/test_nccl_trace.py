"""What is said of an NCCL trace: who is missing, over which network, the table and the plot."""

from __future__ import annotations

import json
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plugins.base.errors import Infrastructure
from plugins.logs.nccl import Digest
from plugins.modes.checks import trace_problems
from plugins.modes.traces import NcclDigest, in_units, messages_svg, read_digest, table
from tests.printed.nccl import Trace
from tests.unit.modes.test_nccl import REAL


def answer(data: bytes, **changes: Any) -> bytes:
    digest = Digest()
    digest.feed(data)
    rest = {"size": len(data), "read": len(data), "done": True}
    return json.dumps({**digest.report(), **rest, **changes}).encode()


def digest_of(data: bytes, **changes: Any) -> NcclDigest:
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
    assert trace_problems(digest_of(trace.whole()), 16, 2, "IB") == said


def test_two_jobs_in_one_log() -> None:
    both = Trace(nodes=1).whole() + Trace(nodes=1).whole().replace(b"gpu-00:4", b"gpu-00:5")
    (said,) = trace_problems(digest_of(both), 8, 1, "IB")
    assert said == "16 ranks made calls, the case has 8: this is the trace of a larger job, or of several"


def test_a_network_is_proved_by_a_channel() -> None:
    """On one node none is expected. On two, a host without any is named."""
    whole = Trace().whole()
    assert trace_problems(digest_of(whole), 16, 2, "IB/GDRDMA") == []
    quiet = b"".join(line for line in Trace().lines() if b"via NET/" not in line or b"gpu-00" in line)
    assert trace_problems(digest_of(quiet), 16, 2, "IB") == ["no channel over a network is seen on gpu-01"]
    slower = whole.replace(b"via NET/IB/2/GDRDMA", b"via NET/IB/2")
    assert trace_problems(digest_of(slower), 16, 2, "IB") == []
    assert trace_problems(digest_of(slower), 16, 2, "IB/GDRDMA") == [
        "the network is IB, not IB/GDRDMA: GPU 2 on gpu-00, GPU 2 on gpu-01"
    ]
    real = (REAL / "recipe-2.28.9.txt").read_bytes()
    assert trace_problems(digest_of(real), 2, 1, "IB") == []


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
    digest = digest_of(whole.replace(b"NET/IB/", f"{network}/".encode()).replace(b"plugin IB", b"plugin x"))
    assert trace_problems(digest, 16, 2, expected) == []
    assert len(trace_problems(digest, 16, 2, "Socket")) == 1
    assert not trace_problems(digest, 16, 2)


def test_a_few_torn_lines_are_no_reason() -> None:
    lines = list(Trace(steps=40).lines())
    at = next(i for i, line in enumerate(lines) if b"opCount 9" in line)
    lines[at : at + 2] = [lines[at][:60] + lines[at + 1][:30] + lines[at][60:], lines[at + 1][30:]]
    digest = digest_of(b"".join(lines))
    assert digest.counts.torn == 2
    assert trace_problems(digest, 16, 2, "IB") == []
    # Another program may write over the begin of a line.
    lines = list(Trace().lines())
    at = next(n for n, line in enumerate(lines) if b"ReduceScatter: opCount 0 " in line)
    lines[at] = lines[at][lines[at].index(b"pCount") :]
    beginless = digest_of(b"".join(lines))
    assert (beginless.counts.torn, trace_problems(beginless, 16, 2, "IB")) == (1, [])
    torn = digest.model_copy(update={"counts": digest.counts.model_copy(update={"torn": 30})})
    cut = digest_of(Trace(steps=40, cut=(9,)).whole()).uneven
    (world, _) = trace_problems(torn.model_copy(update={"uneven": cut}), 16, 2)
    assert world.endswith("in communicators of 16 ranks others made 40 collective calls, GPU 1 on gpu-01 20")


def test_a_name_that_is_cut_or_glued_is_no_rank_even_of_a_short_trace() -> None:
    whole = Trace(steps=60).whole()
    glued = digest_of(whole + b"vg" + whole.splitlines(keepends=True)[-1])
    assert (len(glued.ranks), trace_problems(glued, 16, 2, "IB")) == (17, [])
    lines = Trace(steps=1, sizes=(1 << 20,)).whole().splitlines(keepends=True)
    torn = [lines[-1][len(b"gpu") :], b"epoch" + lines[-2]]
    found = digest_of(b"".join([*lines, *torn]))
    assert {rank.host for rank in found.ranks} != {rank.host for rank in found.members()}
    assert len(found.members()) == 16
    assert trace_problems(found, 16, 2, "IB") == []


def test_lines_of_one_rank_that_are_torn_at_once_make_no_short_trace_unwhole() -> None:
    lines = Trace(nodes=2).whole().splitlines(keepends=True)
    own = [n for n, line in enumerate(lines) if line.startswith(b"gpu-00:4002:") and b"[nranks=8]" in line]
    for n in own[:4]:
        lines[n] = lines[n][4:]
    for n, kept in zip(own[4:8], (3, 5, 30, 60), strict=True):
        lines[n] = lines[n][:kept] + b"\n" + lines[n][kept:]
    assert trace_problems(digest_of(b"".join(lines)), 16, 2, "IB") == []


def test_many_torn_lines_hide_no_rank_that_stopped() -> None:
    lines = Trace(cut=[3], steps=20).whole().splitlines(keepends=True)
    torn = [line[: len(line) // 2] + b"\n" if number % 7 == 0 else line for number, line in enumerate(lines)]
    (reason,) = [one for one in trace_problems(digest_of(b"".join(torn)), 16, 2) if "not whole" in one][:1]
    assert "GPU 3 on gpu-00" in reason


def test_a_format_that_is_not_known_is_told() -> None:
    other = Trace().whole().replace(b" count ", b" elements ", 140)
    (said,) = (text for text in trace_problems(digest_of(other), 16, 2, "IB") if "not known" in text)
    assert said.startswith("140 of 400 calls cannot be read")


def test_what_could_not_be_told_apart_is_no_pass() -> None:
    whole = Trace().whole()
    found = json.loads(answer(whole))
    ranks = [[*row[:4], None, *row[5:]] if number == 3 else row for number, row in enumerate(found["ranks"])]
    unread = digest_of(whole, done=False, size=2000, read=1000)
    assert trace_problems(unread, 16, 2) == ["the trace was not read to its end: 1000 bytes of at least 2000"]
    digest = digest_of(whole, ranks=ranks, untracked_calls=7, other_ranks=5)
    assert trace_problems(digest, 16, 2, "IB") == [
        "5 calls are of more ranks than can be told apart",
        "7 calls are of more communicators than can be told apart: the trace may not be whole",
        "too many set-ups: the network of GPU 3 on gpu-00 is not known",
    ]


def test_the_table() -> None:
    assert table(digest_of(Trace().whole())).splitlines() == [
        "collective       ranks        calls        bytes    mean size",
        "AllGather            8          160     6.25 GiB       40 MiB",
        "ReduceScatter        8          160     6.25 GiB       40 MiB",
        "AllReduce           16           80        320 B          4 B",
    ]


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (1 << 41, "2 TiB"), (1 << 53, "8.19e+03 TiB")],
)
def test_units(size: int, text: str) -> None:
    assert in_units(size) == text


def test_the_plot_has_a_bar_for_each_size_and_collective() -> None:
    svg = messages_svg(digest_of(Trace().whole()), "llama3 8b")
    drawn = ElementTree.fromstring(svg)
    space = "{http://www.w3.org/2000/svg}"
    bars = [rect for rect in drawn.iter(f"{space}rect") if rect.get("height") == "16"]
    assert len(bars) == 5
    assert "AllGather" in svg
    empty = messages_svg(digest_of(b""), "nothing")
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
