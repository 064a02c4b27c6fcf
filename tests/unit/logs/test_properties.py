"""The promise of every parser: whatever the bytes are, nothing is raised, and no step is read that no line states."""

from __future__ import annotations

import json
import math
import random
import re
import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugins.gpu.samples import parse_gpus
from plugins.logs import Log, registry
from plugins.logs.formats import parser, read
from plugins.logs.line_parser import MAX_LINE, MAX_WRAPPED
from tests.fuzz import cells
from tests.printed import dllogger, megatron_bridge, megatron_lm, nccl, nemo1
from tests.printed.around import AROUND, STAMP, around
from tests.printed.maxtext import line as maxtext_line
from tests.printed.nemo2 import nemo2_line
from tests.unit.examples import parse
from tests.unit.stated import CASES, COMMUNICATORS, GPU_LINES, SAMPLES, judged, text_of

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
    found = "\r\n".join(["héllo", *LOGS[name][:2]]).encode()
    whole = parse(found, name)
    assert all(read(name, iter([found[:at], found[at:]])) == whole for at in range(len(found) + 1))


@FORMATS
@pytest.mark.parametrize("filler", [b"x", b" ", b"| ", b"9", b"[", b", a=1", b"\0"])
def test_a_line_of_a_megabyte_before_and_behind_a_step(name: str, filler: bytes) -> None:
    long = filler * (1 + (1 << 20) // len(filler))
    first, second = (line.encode() for line in LOGS[name][:2])
    expected = parse(b"\n".join([first, second]) + b"\n", name).steps
    assert parse(b"\n".join([first, long + second, long, second + b"\n"]), name).steps == expected
    assert parse(b"\n".join([first, long, second, long, b""]), name).steps == expected


@FORMATS
@pytest.mark.parametrize("size", [30_000, 300_000])
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


# Whatever is printed around a line, the log tells the same

DIALECTS = pytest.mark.parametrize("dialect", sorted(CASES))
EACH = pytest.mark.parametrize("name", AROUND)


@cache
def whole(dialect: str) -> tuple[str, Log]:
    """A log with every statement, a mark, and versions, from which nothing is judged; and what is read of it."""
    cell = cells.draw(random.Random(5), dialect)
    job = cells.job(random.Random(6), cell)
    page = cell.render(replace(job, nsys=True, style=replace(job.style, ranks=1, nccl=True, stderr=True)))
    samples = [sample.line.format(sample.right) for sample in SAMPLES if sample.dialect == dialect]
    gpus = [line.format("NVIDIA H100 80GB HBM3") for line in GPU_LINES]
    page.add(
        *samples,
        *gpus,
        *(line.format(64) for line in COMMUNICATORS),
        nccl.TRACES[0],
        "NCCL version 2.25.1+cuda12.8",
    )
    page.end(
        "Saved memory snapshot to x", "saving checkpoint at iteration      10 to /ckpt in torch_dist format"
    )
    return page.text(), read(dialect, [page.text().encode()])


@EACH
@DIALECTS
def test_a_log_tells_the_same_whatever_is_around_its_lines(dialect: str, name: str) -> None:
    text, plain = whole(dialect)
    found = read(dialect, [around(name, text).encode()])
    assert {(fact.name, fact.value) for fact in found.facts} == {
        (fact.name, fact.value) for fact in plain.facts
    }
    # A stamp in front and srun's label tell more.
    assert [replace(step, slowest_rank=None, stamp=None, collected=False) for step in found.steps] == [
        replace(step, slowest_rank=None, stamp=None, collected=False) for step in plain.steps
    ]
    assert {kind for kind, _ in found.marks} == {kind for kind, _ in plain.marks}
    assert found.versions == plain.versions
    assert (found.planned, found.tells, found.restarted_after) == (
        plain.planned,
        plain.tells,
        plain.restarted_after,
    )
    assert plain.facts
    assert plain.steps


@EACH
@pytest.mark.parametrize(
    ("dialect", "line"),
    [
        ("nemo1", "      encoder_seq_length: 2048"),
        ("nemo1", "        buffer_size: 5"),
        ("megatron_bridge", "  num_layers: 16"),
        ("megatron_bridge", "  num_layers: 16  (Mcore default: 0)"),
        ("megatron_lm", "  num_layers ...................................... 24"),
        ("maxtext", "Config param emb_dim: 4096"),
        ("maxtext", "Config param quantization: fp8"),
        ("nemo2", "GLOBAL_RANK: 0, MEMBER: 1/64"),
    ],
)
def test_another_configuration_is_refused_whatever_is_around_it(name: str, dialect: str, line: str) -> None:
    (reason,) = judged(dialect, around(name, text_of(dialect, line)))
    assert f'the log says "{" ".join(line.split())}' in reason.replace("  ", " ")


# `docker compose logs` and stern pad a name, people write prefixes of their own, and a log within YAML or Markdown is indented.
PADDED = (
    "  ", "    ", "worker-0  ", "worker-0    | ", "[gpu001]   ", "2025-04-11 14:46:18,123 INFO    ", "worker-0 |      ", "2025-04-11  INFO:  ",
)  # fmt: skip


@pytest.mark.parametrize("prefix", PADDED)
@DIALECTS
def test_a_log_tells_the_same_behind_a_prefix_that_ends_in_blanks(dialect: str, prefix: str) -> None:
    text, plain = whole(dialect)
    found = read(dialect, ["".join(f"{prefix}{line}" for line in text.splitlines(keepends=True)).encode()])
    assert [(fact.name, fact.value, fact.lines) for fact in found.facts] == [
        (fact.name, fact.value, fact.lines) for fact in plain.facts
    ]
    assert [step.seconds for step in found.steps] == [step.seconds for step in plain.steps]


@pytest.mark.parametrize("prefix", ["", *PADDED])
@pytest.mark.parametrize(
    ("dialect", "top", "line"),
    [
        ("nemo1", "    trainer:", "      encoder_seq_length: 2048"),
        ("megatron_bridge", "checkpoint:", "  num_layers: 16"),
        ("megatron_bridge", "[ddp] Non-default values (vs Mcore X):", "  num_layers: 16  (Mcore default: 0)"),
    ],
)
def test_a_configuration_counts_by_its_depth_behind_a_prefix_that_ends_in_blanks(
    dialect: str, top: str, line: str, prefix: str
) -> None:
    for blanks, said in (("", True), ("  ", False), ("    ", False)):
        lines = [f"{prefix}{top}", f"{prefix}{blanks}{line}", f"{prefix}{blanks}  checkpoint:"]
        assert bool(judged(dialect, text_of(dialect, *lines))) is said
        # Another program's settings, before them, have such a line deeper.
        assert bool(judged(dialect, text_of(dialect, f"{prefix}  {top}", *lines))) is said


# containerd and docker cut a line of more than 16 KiB: the first part may end within a number.
@pytest.mark.parametrize(
    "lines",
    [
        [f"{STAMP} stdout P       encoder_seq_length: 40", f"{STAMP} stdout F 96"],
        [f'{{"log":"      encoder_seq_length: 40","stream":"stdout","time":"{STAMP}"}}'],
    ],
)
def test_a_line_that_goes_on_in_the_next_one_states_nothing(lines: list[str]) -> None:
    assert judged("nemo1", text_of("nemo1", *lines)) == []


@EACH
def test_the_gpus_are_seen_whatever_is_around_their_lines(name: str) -> None:
    log = (Path(__file__).parents[1] / "gpu_logs" / "healthy.log").read_text()
    found = parse_gpus(around(name, log).encode().splitlines(keepends=True))
    assert found == parse_gpus(log.encode().splitlines(keepends=True))
    assert found is not None
    assert found.samples
