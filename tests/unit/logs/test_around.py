"""Whatever is printed around a line, the log tells the same: steps, configuration, marks, versions, GPUs."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from plugins.gpu.samples import parse_gpus
from plugins.logs import Log
from plugins.logs.formats import read
from tests.fuzz import cells
from tests.printed import nccl
from tests.printed.around import AROUND, STAMP, around
from tests.unit.stated import CASES, COMMUNICATORS, GPU_LINES, SAMPLES, judged, text_of

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
