"""The promise of every parser: whatever the bytes are, nothing is raised, and no step is read that no line states."""

from __future__ import annotations

import json
import math
import re
import tracemalloc
from collections.abc import Iterator
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugins.logs import registry
from plugins.logs.formats import parser, read
from plugins.logs.line_parser import MAX_LINE, MAX_WRAPPED
from tests.printed import dllogger, megatron_bridge, megatron_lm, nemo1
from tests.printed.maxtext import line as maxtext_line
from tests.printed.nemo2 import nemo2_line
from tests.unit.examples import parse

TIMES = [10.07, 10.12, 9.98, 10.3]
# A few whole lines of each format, as the documented rules make them; every step has a time of its own.
LOGS: dict[str, list[str]] = {
    "nemo1": [nemo1.bar(i, t) for i, t in enumerate(TIMES)],
    "nemo2": [nemo2_line(i, t) for i, t in enumerate(TIMES)],
    "maxtext": [
        f"{rank}: {maxtext_line(i, f'7.{i}{rank}8')}" for i in range(3) for rank in range(3)
    ],
    "megatron_lm": [megatron_lm.line(i + 1, f"{1000 * t:.1f}") for i, t in enumerate(TIMES)],
    "megatron_bridge": [
        f"{megatron_bridge.rate(t)}{megatron_lm.line(i + 1, f'{1000 * t:.1f}')}"
        for i, t in enumerate(TIMES)
    ],
    "dllogger": [
        form(i, dllogger.data(i, t))
        for form in (dllogger.in_file, dllogger.in_output)
        for i, t in enumerate(TIMES)
    ],
}  # fmt: skip
# How a line states a step and a time, read as loosely as can be; the scale turns them into `Step`'s.
STATED: dict[str, tuple[str, str, int, float]] = {
    "nemo1": (r"global_step=([\d.]+)", r"timing in s=([-+.\w]+)", 0, 1),
    "nemo2": (r"iteration (\d+)/", r"timing in s: ([-+.\w]+)", 0, 1),
    "maxtext": (r"completed step: (\d+)", r"seconds: ([-+.\w]+)", 0, 1),
    "megatron_lm": (r"iteration +(\d+)/", r"\(ms\): *([-+.\w]+)", 1, 1000),
    "megatron_bridge": (r"iteration +(\d+)/", r"\(ms\): *([-+.\w]+)", 1, 1000),
    "dllogger": (r'(?:"step": | - )(\d+)', r'timing in s"? ?: ([-+.\w]+)', 0, 1),
}
FORMATS = pytest.mark.parametrize("name", sorted(registry.FORMATS))
ENCODINGS = ["utf-8", "utf-16", "utf-16-be", "utf-32", "utf-7", "cp037"]
INSERTED = [
    b"\n", b"\r\n", b"\r", b"\0", b" | ", b"1", b".", b"e9", b"-", b"nan", b"NaN", b"Infinity", b"]", b", ", b"}",
    b"{", b'"', b"\xff", b"\xe2\x96", "٣".encode(), b"x" * (MAX_LINE + 1), b"x" * MAX_WRAPPED, b"\x1b[32m", b"[rank3] careful\n",
]  # fmt: skip


@st.composite
def mutated(draw: st.DrawFn, name: str) -> bytes:
    """A log that was truncated, interleaved, repeated, reordered, filled with noise or written in another encoding."""
    lines = draw(st.permutations(LOGS[name])) if draw(st.booleans()) else LOGS[name]
    end = draw(st.sampled_from(["\n", "\r", "\r\n", ""]))
    data = bytearray(
        "".join(line + end for line in lines).encode(
            draw(st.sampled_from([*["utf-8"] * 9, *ENCODINGS])), errors="replace"
        )
    )
    for _ in range(draw(st.integers(0, 6))):
        start = draw(st.integers(0, len(data)))
        stop = min(len(data), start + draw(st.integers(0, 400)))
        piece = data[start:stop]
        match draw(st.sampled_from(["delete", "insert", "double", "move", "truncate", "nan"])):
            case "delete":
                del data[start:stop]
            case "insert":
                data[start:start] = draw(st.one_of(st.binary(max_size=20), st.sampled_from(INSERTED)))
            case "double":
                data[start:start] = piece
            case "truncate":
                del data[max(start, len(data) // 2) :]
            case "nan":
                data[start:stop] = re.sub(rb"\d+\.\d+", b"nan", piece)
            case _:
                del data[start:stop]
                at = draw(st.integers(0, len(data)))
                data[at:at] = piece
    return bytes(data)


def stated(name: str, data: bytes) -> list[tuple[set[float], list[float]]]:
    """The steps and the times that each line of `data` states."""
    step, time, first, unit = STATED[name]
    # Lines are read without their colours.
    texts = (raw.decode("utf-8", errors="replace") for raw in re.split(rb"[\r\n]", data))
    lines = (re.sub(r"\x1b\[[0-9;]*m", "", text) for text in texts)
    return [
        (
            {value - first for value in numbers(re.findall(step, line))},
            [value / unit for value in numbers(re.findall(time, line))],
        )
        for line in lines
    ]


def numbers(texts: list[str]) -> Iterator[float]:
    for text in texts:
        try:
            yield float(text)
        except ValueError:
            continue


@FORMATS
def test_undamaged_every_step_is_read(name: str) -> None:
    log = parse("\n".join(LOGS[name][: 9 if name == "maxtext" else 4]) + "\n", name)
    assert [step.index for step in log.steps] == list(range(3 if name == "maxtext" else 4))
    assert all(step.seconds is not None for step in log.steps)


@FORMATS
def test_numbers_in_colours_read_as_those_without(name: str) -> None:
    plain = "\n".join(LOGS[name]) + "\n"
    coloured = re.sub(r"(?<![\w.])\d+\.\d+(?![\w.])", "\x1b[1;36m\\g<0>\x1b[0m", plain)
    assert coloured != plain
    assert parse(coloured, name).steps == parse(plain, name).steps


@FORMATS
@given(data=st.data())
def test_a_damaged_log_is_read_without_an_invented_step_and_the_same_in_pieces(
    name: str, data: st.DataObject
) -> None:
    found = data.draw(mutated(name))
    log = parse(found, name)
    lines = stated(name, found)
    assert len({step.index for step in log.steps}) == len(log.steps)
    for step in log.steps:
        assert any(
            step.index in steps
            and (step.seconds is None or step.seconds in times or (math.isnan(step.seconds) and times))
            for steps, times in lines
        ), step
    cuts = data.draw(st.lists(st.integers(0, len(found)), max_size=4))
    pieces = (found[a:b] for a, b in pairwise([0, *sorted(cuts), len(found)]))
    assert repr(read(name, pieces)) == repr(log)


@FORMATS
@given(noise=st.binary(max_size=300))
def test_noise_has_no_step(name: str, noise: bytes) -> None:
    assert parse(noise, name).steps == ()


@FORMATS
def test_a_split_at_any_byte_gives_the_same_log(name: str) -> None:
    found = "\r\n".join(["héllo", *LOGS[name][:3]]).encode()
    whole = parse(found, name)
    assert all(read(name, iter([found[:at], found[at:]])) == whole for at in range(len(found) + 1))


@FORMATS
@pytest.mark.parametrize("encoding", ENCODINGS[1:])
def test_a_foreign_encoding_has_no_step_or_the_right_one(name: str, encoding: str) -> None:
    for text in LOGS[name]:
        found = parse(f"{text}\n".encode(encoding, errors="replace"), name).steps
        assert found in ((), parse(f"{text}\n", name).steps)


@FORMATS
@pytest.mark.parametrize("filler", [b"x", b" ", b"| ", b"9", b"[", b", a=1", b"\0"])
def test_a_line_of_a_megabyte_before_and_behind_a_step(name: str, filler: bytes) -> None:
    long = filler * (1 + (1 << 20) // len(filler))
    first, second = (line.encode() for line in LOGS[name][:2])
    expected = parse(b"\n".join([first, second]) + b"\n", name).steps
    assert parse(b"\n".join([first, long + second, long, second + b"\n"]), name).steps == expected
    assert parse(b"\n".join([first, long, second, long, b""]), name).steps == expected


@FORMATS
@pytest.mark.parametrize("size", [30_000, 100_000, 300_000])
def test_a_long_line_of_a_log_driver_reads_the_same_in_pieces(name: str, size: int) -> None:
    *lines, last = LOGS[name]
    between = "chatter, " * (size // 9 // len(lines))
    wrapped = json.dumps({"log": "".join(f"{line}\r{between}\r" for line in lines) + "\n"})
    data = f"{wrapped}\n{last}\n".encode()
    whole = parse(data, name)
    for piece in (4099, 65536, 70_001):
        assert read(name, (data[at : at + piece] for at in range(0, len(data), piece))) == whole
    if len(data) < MAX_WRAPPED:
        assert whole.steps == parse("\n".join(LOGS[name]) + "\n", name).steps


@FORMATS
def test_memory_stays_flat(name: str) -> None:
    """40 MB of chatter, of a line without end, and of one step drawn again and again."""
    chatter = [
        b"chatter of another library\n" * 40000,
        b"x" * (1 << 20),
        f"{LOGS[name][0]}\n".encode() * 100,
    ]
    reader = parser(name)
    tracemalloc.start()
    for piece in chatter:
        for _ in range(20 if piece is not chatter[2] else 3):
            reader.feed(piece)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1 << 20
    assert reader.finish().size > 40 << 20
