"""NeMo 2's log: what a line states is read as it stands, and nothing else is."""

from __future__ import annotations

import math
import re

import pytest

from plugins.logs import Log, Step
from plugins.logs.formats import parser, read
from plugins.logs.line_parser import MAX_LINE
from plugins.logs.numbers import resolution
from tests.unit.examples import nemo2_line, nemo2_text, parse

PUBLISHED = (
    "Training epoch 0, iteration 49/49 | lr: 7.496e-06 | global_batch_size: 128 | global_step: 49 | "
    "peak_memory_usage: 70833405952 | memory_allocated: 44271689728 | reduced_train_loss: 11.96 | "
    "train_step_timing in s: 12.39 | consumed_samples: 6400"
)
# Release 25.05 and later.
LATER = (
    "Training epoch 0, iteration 45/99 | lr: 6.897e-06 | global_batch_size: 128 | global_step: 45 | "
    "max_memory_reserved: 127785762816 | max_memory_allocated: 115792977920 | reduced_train_loss: 11.96 | "
    "train_step_timing in s: 6.08 | TFLOPS_per_GPU: 1.249e+03 | consumed_samples: 5888"
)
SAVE = (
    "[NeMo I 2025-04-11 14:48:45 nemo_logging:393] Global Checkpoint Save : Rank: 0 : Iteration: 50 : "
    "Start time: 1744408121.151s : Save duration: 4.389s"
)
LOAD = (
    "[NeMo I 2025-04-11 14:46:18 nemo_logging:393] Global Checkpoint Load : Rank : 0 : Start time : "
    "1744407969.270s : Time spent in load_checkpoint: 9.712s"
)
TRACE = (
    "gpu001:4711:4720 [7] NCCL INFO AllReduce: opCount 2 sendbuff 0x7ffb4713c200 recvbuff 0x7ffb4713c200 "
    "count 1 datatype 1 op 0 root 0 comm 0x55556b100660 [nranks=128] stream 0x5555630c58b0"
)
SOCKET = "gpu001:4711:4711 [0] NCCL INFO Using network Socket"


def only(text: str | bytes) -> Step:
    (step,) = parse(text).steps
    return step


def seconds(log: Log) -> list[tuple[int, float | None]]:
    return [(step.index, step.seconds) for step in log.steps]


def test_the_published_line() -> None:
    assert only(PUBLISHED + "\n") == Step(
        index=49, seconds=12.39, resolution=0.005, gbs=128, consumed_samples=6400, loss=11.96
    )


def test_the_line_of_a_later_release() -> None:
    assert only(LATER + "\n") == Step(
        index=45,
        seconds=6.08,
        resolution=0.0005,
        gbs=128,
        consumed_samples=5888,
        loss=11.96,
        tflops_per_gpu=1249.0,
    )


def test_a_whole_log_has_iterations_0_to_49() -> None:
    log = parse(nemo2_text())
    assert [step.index for step in log.steps] == list(range(50))
    assert (log.planned, log.last_index, log.repeated, log.restarted_after, log.marks) == (50, 49, (), (), ())


def test_an_empty_log() -> None:
    assert parse(b"") == Log(flops=("full-attention", "causal-attention"))


def test_the_size_counts_every_byte() -> None:
    assert parse(nemo2_text()).size == len(nemo2_text())


# Trailing zeros are dropped by the format: 9.33 is 9.330.
@pytest.mark.parametrize(
    ("printed", "half_a_unit"),
    [("12.39", 0.005), ("9.33", 0.0005), ("10", 0.005), ("9", 0.0005), ("123.4", 0.05), ("0.1234", 0.00005),
     ("1.234e+03", 0.5), ("1234", 0.5), ("5.4", 0.0005)],
)  # fmt: skip
def test_four_significant_digits(printed: str, half_a_unit: float) -> None:
    assert only(nemo2_line(49, printed) + "\n").resolution == pytest.approx(half_a_unit)
    assert resolution(printed, 4) == pytest.approx(half_a_unit)


@pytest.mark.parametrize(
    "prefix",
    [
        "0: ",
        "  0: ",
        "[0]: ",
        "[1,0]<stdout>:",
        "[2025-04-11 14:48:45] ",
        "gpu001: ",
        "\x1b[32m",
        "\0\0\0",
        "│ ",
    ],
)
def test_a_prefix_does_no_harm(prefix: str) -> None:
    assert only(f"{prefix}{PUBLISHED}\n").seconds == 12.39


@pytest.mark.parametrize("before", ["[rank3] W0411 something", "loss is 3 | ", "iteration 3/49 | "])
def test_text_glued_before_a_line_does_no_harm(before: str) -> None:
    assert only(f"{before}{PUBLISHED}\n").seconds == 12.39


@pytest.mark.parametrize(
    "after", ["[rank3] W0411 something", " [NeMo I 2025-04-11 14:48:45 x:1] y", " | z", "7", "\0"]
)
def test_text_glued_behind_a_line_does_not_change_its_time(after: str) -> None:
    assert only(f"{PUBLISHED}{after}\n").seconds == 12.39


def test_a_number_with_other_output_glued_to_it_does_not_count() -> None:
    assert only(PUBLISHED.replace("6400", "6400[rank3] W0411") + "\n").consumed_samples is None
    assert only(PUBLISHED.replace("12.39", "12.39foo") + "\n").seconds is None


def test_two_steps_on_one_line() -> None:
    log = parse(f"{nemo2_line(3, 10.1)}{nemo2_line(4, 10.2)}\n")
    assert seconds(log) == [(3, 10.1), (4, 10.2)]


def test_two_steps_on_one_line_with_text_between() -> None:
    log = parse(f"{nemo2_line(3, 10.1)}[rank3] oh {nemo2_line(4, 10.2)}\n")
    assert seconds(log) == [(3, 10.1), (4, 10.2)]


def test_a_line_cut_by_another_rank_never_states_another_time() -> None:
    for at in range(PUBLISHED.index(" | global_batch_size"), PUBLISHED.index(" | consumed")):
        cut = f"{PUBLISHED[:at]}[rank3] W0411 careful {PUBLISHED[at:]}\n"
        assert only(cut).seconds in (12.39, None), cut


def test_a_line_cut_in_its_time_is_seen_without_a_time() -> None:
    at = PUBLISHED.index("2.39")
    assert only(f"{PUBLISHED[:at]}[rank3] W0411 careful{PUBLISHED[at:]}\n").seconds is None


# Another rank's output often begins with a line feed; what stands before it is not the whole number.
@pytest.mark.parametrize("at", range(1, len("12.39")))
def test_a_time_cut_by_a_line_feed_is_no_time(at: int) -> None:
    cut = PUBLISHED.index("12.39") + at
    assert only(f"{PUBLISHED[:cut]}\n[rank3] W0411 careful\n{PUBLISHED[cut:]}\n").seconds is None


# A writer was killed in the middle of a line, and the next attempt appends to the same file.
@pytest.mark.parametrize("at", range(1, len("12.39")))
def test_a_time_cut_by_the_next_attempt_is_no_time(at: int) -> None:
    cut = PUBLISHED.index("12.39") + at
    first = parse(f"{PUBLISHED[:cut]}{nemo2_line(0, 10.1)}\n").steps[0]
    assert (first.index, first.seconds) == (49, None)


def test_a_truncated_last_line_never_has_a_shortened_number() -> None:
    whole = only(PUBLISHED + "\n")
    for cut in range(PUBLISHED.index(" | lr"), len(PUBLISHED)):
        for step in parse(PUBLISHED[:cut]).steps:
            assert step.index == 49
            assert step.seconds in (whole.seconds, None), PUBLISHED[:cut]
            assert step.gbs in (whole.gbs, None), PUBLISHED[:cut]
            assert step.loss in (whole.loss, None), PUBLISHED[:cut]
            assert step.consumed_samples is None, PUBLISHED[:cut]


@pytest.mark.parametrize("end", ["\n", ""])
def test_a_head_cut_short_is_no_step(end: str) -> None:
    for cut in range(PUBLISHED.index(" | lr")):
        assert parse(PUBLISHED[:cut] + end).steps == (), PUBLISHED[:cut]


def test_the_last_line_without_its_line_feed_has_its_time() -> None:
    assert only(PUBLISHED).seconds == 12.39


def test_windows_line_ends() -> None:
    assert parse(nemo2_text().replace("\n", "\r\n")).steps == parse(nemo2_text()).steps


def test_carriage_returns_end_lines_too() -> None:
    assert parse(nemo2_text().replace("\n", "\r")).steps == parse(nemo2_text()).steps


def test_a_split_at_any_byte_gives_the_same_log() -> None:
    chatter = f"héllo {TRACE}\r\n0: {PUBLISHED}\r\n{nemo2_line(0, 10.1)}{nemo2_line(1)}\n{nemo2_line(2)}"
    data = chatter.encode()
    whole = parse(data)
    for at in range(len(data) + 1):
        assert read("nemo2", iter([data[:at], data[at:]])) == whole


def test_single_bytes_give_the_same_log() -> None:
    data = nemo2_text([10.07, 10.1, 10.05]).encode()
    assert read("nemo2", iter([bytes([byte]) for byte in data])) == parse(data)


def test_the_log_so_far_has_no_unfinished_line() -> None:
    reader = parser("nemo2")
    reader.feed(f"{nemo2_line(0)}\n{nemo2_line(1)}".encode())
    assert [step.index for step in reader.log().steps] == [0]
    assert [step.index for step in reader.finish().steps] == [0, 1]


def test_a_restart_in_the_same_log_leaves_the_last_attempt() -> None:
    first = [nemo2_line(i, 99.0) for i in range(18)]
    second = [nemo2_line(i, 10.1) for i in range(50)]
    log = parse("\n".join([*first, *second]) + "\n")
    assert log.restarted_after == (17,)
    assert log.repeated == ()
    assert seconds(log) == [(i, 10.1) for i in range(50)]


def test_every_restart_is_told() -> None:
    lines = [nemo2_line(i) for last in (3, 7, 2) for i in range(last + 1)]
    log = parse("\n".join(lines) + "\n")
    assert log.restarted_after == (3, 7)
    assert log.last_index == 2


def test_a_restart_that_dies_early_is_no_complete_run() -> None:
    log = parse("\n".join(nemo2_line(i) for last in (49, 4) for i in range(last + 1)) + "\n")
    assert [step.index for step in log.steps] == [0, 1, 2, 3, 4]


def test_a_line_printed_twice_is_a_repeat_and_its_first_time_stays() -> None:
    log = parse("\n".join(nemo2_line(i, t) for i, t in ((2, 10.0), (3, 10.1), (3, 20.0), (4, 10.2))) + "\n")
    assert log.repeated == (3,)
    assert seconds(log) == [(2, 10.0), (3, 10.1), (4, 10.2)]


def test_two_ranks_printing_are_repeats() -> None:
    log = parse("\n".join(f"{rank}: {nemo2_line(i)}" for i in range(50) for rank in (0, 1)) + "\n")
    assert log.repeated == tuple(range(1, 50))


def test_a_profiled_run_announces_25_steps() -> None:
    log = parse("\n".join(nemo2_line(i, last=24) for i in range(25)) + "\n")
    assert (log.planned, log.last_index) == (25, 24)


def test_two_announcements_contradict_each_other() -> None:
    assert parse(f"{nemo2_line(0, last=24)}\n{nemo2_line(1, last=49)}\n").planned == 0


@pytest.mark.parametrize("loss", ["nan", "inf", "-inf", "-nan"])
def test_a_loss_that_is_no_number_is_read_as_it_is(loss: str) -> None:
    step = only(nemo2_line(7, loss=loss) + "\n")
    assert step.loss is not None
    assert not math.isfinite(step.loss)
    assert step.seconds == 10.07


@pytest.mark.parametrize(
    ("printed", "value"), [("1.239e+01", 12.39), ("1.2e-05", 0.000012), ("1e+01", 10.0), ("12", 12.0)]
)
def test_scientific_notation(printed: str, value: float) -> None:
    assert only(nemo2_line(49, printed) + "\n").seconds == value


@pytest.mark.parametrize("printed", ["", "12.39.1", "12,39", "1e", "--1", "0x12", "12.39 s", "1_000", "٣,٩"])
def test_a_time_that_is_no_number_is_no_time(printed: str) -> None:
    assert only(nemo2_line(49, printed) + "\n").seconds is None


@pytest.mark.parametrize("printed", ["nan", "-1.5", "0"])
def test_a_time_that_cannot_be_is_kept_for_the_judge(printed: str) -> None:
    found = only(nemo2_line(49, printed) + "\n").seconds
    assert found is not None
    assert not found > 0


@pytest.mark.parametrize("step", [48, "x"])
def test_a_line_that_contradicts_itself_is_not_read_as_its_head_says(step: int | str) -> None:
    log = parse(nemo2_line(49, step=step) + "\n")
    assert [found.index for found in log.steps] in ([], [49]) if step == "x" else log.steps == ()


@pytest.mark.parametrize(
    "head", ["iteration 49", "iteration /49", "iteration 49/", "iteration x/49", "iteration 49/4x"]
)
def test_a_broken_head_is_no_step(head: str) -> None:
    assert parse(PUBLISHED.replace("iteration 49/49", head) + "\n").steps == ()


@pytest.mark.parametrize(
    "head", ["Training epoch 0, iteration 49/49", "Training epoch 0, iteration 49/49 | lr: 7.4"]
)
def test_a_head_that_ends_the_log_states_no_time(head: str) -> None:
    assert all(step.seconds is None for step in parse(head).steps)


def test_a_megabyte_without_a_line_feed_keeps_its_memory_flat() -> None:
    data = b"x" * (1 << 20) + f"{PUBLISHED}\n{nemo2_line(0, 10.1)}\n".encode()
    reader = parser("nemo2")
    for at in range(0, len(data), 1 << 15):
        reader.feed(data[at : at + (1 << 15)])
    assert seconds(reader.finish()) == [(0, 10.1)]


def test_a_step_at_the_start_of_an_endless_line_is_read() -> None:
    log = parse(
        f"{nemo2_line(0, 10.1)} | ".encode() + b"x" * (1 << 20) + b"\n" + nemo2_line(1, 10.2).encode() + b"\n"
    )
    assert seconds(log) == [(0, 10.1), (1, 10.2)]


@pytest.mark.parametrize("shift", range(6))
def test_a_time_cut_by_the_longest_line_is_no_time(shift: int) -> None:
    at = PUBLISHED.index("12.39") + shift
    assert parse(" " * (MAX_LINE - at) + PUBLISHED + "\n").steps[0].seconds in (None, 12.39)


@pytest.mark.parametrize("size", [MAX_LINE - 1, MAX_LINE, MAX_LINE + 1])
@pytest.mark.parametrize("piece", [1000, MAX_LINE - 1, MAX_LINE, MAX_LINE + 1])
def test_a_long_line_gives_the_same_log_in_pieces(size: int, piece: int) -> None:
    data = (" " * (size - len(PUBLISHED)) + PUBLISHED + f"\n{nemo2_line(0, 10.1)}\n").encode()
    assert read("nemo2", (data[at : at + piece] for at in range(0, len(data), piece))) == parse(data)


def test_bytes_that_are_no_utf_8_do_no_harm() -> None:
    assert only(b"\xff\xfe\xc3" + PUBLISHED.encode() + b"\xe2\x28\n").seconds == 12.39


def test_nul_bytes_between_lines_do_no_harm() -> None:
    assert seconds(parse(nemo2_text().replace("\n", "\n\0\0\0"))) == seconds(parse(nemo2_text()))


def test_a_nul_byte_in_a_number_spoils_it() -> None:
    assert only(PUBLISHED.replace("12.39", "12\0.39") + "\n").seconds is None


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        (SAVE, "checkpoint"),
        (LOAD, "checkpoint"),
        ("Successfully saved checkpoint from iteration      50 to /stage/x", "checkpoint"),
        (TRACE, "nccl trace"),
        (TRACE.replace("opCount 2", "opCount 1f"), "nccl trace"),
        (SOCKET, "socket network"),
        ("Generating '/tmp/nsys-report-1.qdstrm'", "profiler"),
        ("Capture range started in the application.", "profiler"),
    ],
)
def test_what_spoils_a_timed_run_is_marked(line: str, kind: str) -> None:
    assert parse(f"{nemo2_line(0)}\n{line}\n{nemo2_line(1)}\n").marks == ((kind, line),)
    assert parse(line).marks == ((kind, line),)
    assert parse(f"{PUBLISHED}{line}\n").marks[0][0] == kind


@pytest.mark.parametrize(
    "line",
    [
        "gpu001:4711:4711 [0] NCCL INFO Using network IB",
        "gpu001:4711:4711 [0] NCCL INFO Bootstrap : Using eth0:10.0.0.1<0>",
        "[NeMo I 2025-04-11 14:48:45 x:1] Checkpointing is off",
        "NCCL_SOCKET_IFNAME=eth0",
    ],
)
def test_innocent_lines_are_not_marked(line: str) -> None:
    assert parse(f"{line}\n").marks == ()


def test_a_mark_keeps_its_first_line() -> None:
    log = parse(f"{SAVE}\n{SAVE.replace('Rank: 0', 'Rank: 1')}\n{SOCKET}\n")
    assert log.marks == (("checkpoint", SAVE), ("socket network", SOCKET))


@pytest.mark.parametrize(
    "number", ["1e400", "1e-400", "1e99999999999999999999", "9" * 400, "-" + "9" * 400 + ".5"]
)
def test_an_absurd_time_does_not_raise(number: str) -> None:
    assert len(parse(nemo2_line(49, number) + "\n").steps) == 1


@pytest.mark.parametrize(
    "key", ["global_batch_size", "consumed_samples", "global_step", "reduced_train_loss"]
)
def test_an_absurdly_long_number_does_not_raise(key: str) -> None:
    line = re.sub(f"{key}: [^ ]+", f"{key}: " + "9" * 5000, PUBLISHED)
    assert len(parse(line + "\n").steps) <= 1


def test_a_log_tells_the_version_of_nccl_once() -> None:
    reader = parser("nemo2")
    assert b"NCCL version " in reader.wanted
    reader.feed(
        b"gpu001:7:7 [0] NCCL INFO cudaDriverVersion\nNCCL version 2.21.5+cuda12.4\nNCCL version 9.9\n"
    )
    assert reader.log().versions == (("nccl", "2.21.5+cuda12.4"),)
    assert b"NCCL version " not in reader.wanted
