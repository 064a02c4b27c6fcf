"""MaxText's log, and the local proxy's, which prints the same line."""

from __future__ import annotations

import math
import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugins.logs import Span
from plugins.logs import Step
from plugins.logs import read
from tests.unit.examples import parse

PUBLISHED = (
    "completed step: 49, seconds: 7.908, TFLOP/s/device: 460.480, Tokens/s/device: 1035.970, "
    "total_weights: 524288, loss: 0.000"
)


def line(index: int, seconds: str = "7.908", weights: str = "524288", loss: str = "0.000") -> str:
    return (
        f"completed step: {index}, seconds: {seconds}, TFLOP/s/device: 460.480, Tokens/s/device: 1035.970, "
        f"total_weights: {weights}, loss: {loss}"
    )


def only(text: str | bytes) -> Step:
    (step,) = parse(text, "maxtext").steps
    return step


def test_the_published_line() -> None:
    assert only(PUBLISHED + "\n") == Step(
        index=49,
        seconds=7.908,
        resolution=0.0005,
        tokens=524288,
        tokens_per_gpu=Span(pytest.approx(8191.927, abs=0.01), pytest.approx(8192.972, abs=0.01)),
        flops_per_gpu=Span(pytest.approx(3.64124e15, rel=1e-5), pytest.approx(3.64171e15, rel=1e-5)),
        tflops_per_gpu=460.48,
        loss=0.0,
        slowest_seconds=7.908,
    )


@pytest.mark.parametrize(("printed", "half_a_unit"), [("7.908", 0.0005), ("0.123456", 5e-7), ("12.0", 0.05)])
def test_the_decimals_that_stand_there_are_the_resolution(printed: str, half_a_unit: float) -> None:
    assert only(line(3, printed) + "\n").resolution == pytest.approx(half_a_unit)


@pytest.mark.parametrize("prefix", ["0: ", "[2024-12-09 10:00:00] ", "x", "\0", "I1209 pyconfig.py:1] "])
def test_a_prefix_does_no_harm(prefix: str) -> None:
    assert only(f"{prefix}{PUBLISHED}\n").seconds == 7.908


def test_two_steps_on_one_line() -> None:
    log = parse(f"{line(3, '7.1')} {line(4, '7.2')}\n", "maxtext")
    assert [(step.index, step.seconds) for step in log.steps] == [(3, 7.1), (4, 7.2)]


def test_text_behind_a_line_does_no_harm() -> None:
    assert only(f"{PUBLISHED} Per train step: ...\n").seconds == 7.908


@pytest.mark.parametrize("between", ["[rank3] careful", "\n[rank3] careful\n", "\n"])
def test_a_line_cut_by_another_rank_never_states_another_time(between: str) -> None:
    for at in range(1, PUBLISHED.index(", loss: ")):
        found = parse(f"{PUBLISHED[:at]}{between}{PUBLISHED[at:]}\n", "maxtext").steps
        assert [(step.index, step.seconds) for step in found] in ([], [(49, 7.908)]), at


def test_a_truncated_last_line_is_no_step() -> None:
    for cut in range(1, len(PUBLISHED) + 1):
        assert parse(PUBLISHED[:cut], "maxtext").steps == (), PUBLISHED[:cut]


def test_windows_line_ends() -> None:
    text = "\n".join(line(i) for i in range(5)) + "\n"
    assert parse(text.replace("\n", "\r\n"), "maxtext").steps == parse(text, "maxtext").steps


def test_a_split_at_any_byte_gives_the_same_log() -> None:
    data = f"proxy machine peak: 812.5 TFLOP/s/device (bf16)\r\n{line(0)}\n{line(1)}\n{PUBLISHED}".encode()
    whole = parse(data, "maxtext")
    for at in range(len(data) + 1):
        assert read("maxtext", iter([data[:at], data[at:]])) == whole


def test_two_runs_in_one_log_leave_the_last() -> None:
    text = "".join(f"{line(i, '9.999')}\n" for i in range(15)) + "".join(f"{line(i)}\n" for i in range(50))
    log = parse(text, "maxtext")
    assert log.restarted_after == ()
    assert log.profiling_steps == 15
    assert {step.seconds for step in log.steps} == {7.908}
    assert len(log.steps) == 50


@pytest.mark.parametrize("loss", ["nan", "inf", "-inf"])
def test_a_loss_that_is_no_number_is_read_as_it_is(loss: str) -> None:
    step = only(line(7, loss=loss) + "\n")
    assert step.loss is not None
    assert not math.isfinite(step.loss)


def test_a_loss_in_scientific_notation() -> None:
    assert only(line(7, loss="1.5e-05") + "\n").loss == 1.5e-05


@pytest.mark.parametrize("seconds", ["7", "nan", "-7.908", "7,908", "7.9.08", "1e3", ""])
def test_seconds_that_the_format_cannot_print_are_no_step(seconds: str) -> None:
    assert parse(line(7, seconds) + "\n", "maxtext").steps == ()


def test_the_machines_own_peak_is_read() -> None:
    assert parse("proxy machine peak: 812.5 TFLOP/s/device (bf16, 8192)\n", "maxtext").peak_tflops == 812.5


def test_a_truncated_peak_is_no_peak() -> None:
    line = "proxy machine peak: 812.5 TFLOP/s/device (bf16)"
    for cut in range(1, len(line)):
        assert parse(line[:cut], "maxtext").peak_tflops is None, line[:cut]


@pytest.mark.parametrize("number", ["0", "0.0", "1e400", "0e10"])
def test_a_peak_that_cannot_be_is_no_peak(number: str) -> None:
    assert parse(f"proxy machine peak: {number} TFLOP/s/device (bf16)\n", "maxtext").peak_tflops is None


def test_a_megabyte_without_a_line_feed() -> None:
    assert parse(b"x" * (1 << 20) + f"{PUBLISHED}\n{line(3)}\n".encode(), "maxtext").last_index == 3


def test_bytes_that_are_no_utf_8_and_nul_bytes_do_no_harm() -> None:
    assert only(b"\xff\0\xc3" + PUBLISHED.encode() + b"\xe2\x28\0\n").seconds == 7.908


@pytest.mark.parametrize(("key", "number"), [("weights", "9" * 5000), ("seconds", "9" * 400 + ".0")])
def test_an_absurd_number_does_not_raise(key: str, number: str) -> None:
    assert len(parse(line(49, **{key: number}) + "\n", "maxtext").steps) <= 1


LOG = "".join(f"{line(i, f'7.{i}08')}\n" for i in range(4)).encode()


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """A log in which pieces were deleted, doubled or filled with noise."""
    data = bytearray(LOG)
    for _ in range(draw(st.integers(1, 6))):
        start = draw(st.integers(0, len(data)))
        end = min(len(data), start + draw(st.integers(0, 200)))
        match draw(st.sampled_from(["delete", "insert", "double"])):
            case "delete":
                del data[start:end]
            case "insert":
                data[start:start] = draw(
                    st.one_of(st.binary(max_size=20), st.sampled_from([b"\n", b"1", b"."]))
                )
            case _:
                data[start:start] = data[start:end]
    return bytes(data)


@given(mutated())
def test_a_damaged_log_is_read_without_an_invented_step(data: bytes) -> None:
    lines = re.split(rb"[\r\n]", data)
    for step in parse(data, "maxtext").steps:
        stated = [re.findall(rb"completed step: (\d+), seconds: (\d+\.\d+),", text) for text in lines]
        assert (step.index, step.seconds) in [(int(i), float(t)) for found in stated for i, t in found]


@given(mutated(), st.lists(st.integers(0, 600), max_size=4))
def test_a_damaged_log_reads_the_same_in_pieces(data: bytes, cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), len(data)]
    pieces = [data[a:b] for a, b in pairwise(edges)]
    assert read("maxtext", iter(pieces)).steps == parse(data, "maxtext").steps
