"""How many processes ran, on which GPUs, as which job, and in which attempt: what any run may state of itself."""

from __future__ import annotations

import pytest

from tests.unit.examples import parse
from tests.unit.stated import (
    BEGINNINGS,
    CASES,
    COMMUNICATORS,
    GPU_LINES,
    H100,
    JOB,
    PARTS,
    STARTING,
    asked,
    contradicted,
    contradictions,
    facts_of,
    judged,
    record,
    steps_of,
    text_of,
)

DIALECTS = pytest.mark.parametrize("dialect", sorted(CASES))
ATTEMPTS = pytest.mark.parametrize("dialect", sorted(set(CASES) - {"maxtext"}))
LARGEST = ": its largest group has {} processes, this case has "


@pytest.mark.parametrize("line", COMMUNICATORS)
@pytest.mark.parametrize("dialect", ["nemo2", "maxtext"])
def test_a_communicator_is_of_the_case(dialect: str, line: str) -> None:
    gpus = CASES[dialect].gpus
    assert ("group", gpus) in facts_of(dialect, line.format(gpus) + "\n")
    assert judged(dialect, text_of(dialect, line.format(gpus))) == []
    for other in (gpus // 2, 2 * gpus):
        (said,) = contradicted(dialect, line.format(other))
        assert said.endswith(LARGEST.format(other) + str(gpus))
    if dialect != "maxtext":
        # Behind the last step too.
        (said,) = judged(dialect, f"{text_of(dialect)}{line.format(2 * gpus)}\n")
        assert LARGEST.format(2 * gpus) in said


# Those of tensor, pipeline and data parallel groups are smaller.
@pytest.mark.parametrize(
    ("sizes", "stated", "valid"),
    [
        ([4, 16, 512, 4], None, True),
        ([512], None, True),
        ([4, 16], None, False),
        ([4, 16], 512, True),
        ([1024, 512], None, False),
        ([1024, 512], 512, False),
        ([1], 512, True),
    ],
)
def test_the_largest_communicator_counts(sizes: list[int], stated: int | None, valid: bool) -> None:
    head = [COMMUNICATORS[i % 5].format(size) for i, size in enumerate(sizes)]
    head += [] if stated is None else [STARTING.format(stated)]
    found = judged("nemo2", text_of("nemo2", *head))
    assert [LARGEST.format(max(sizes)) in said for said in found] == ([] if valid else [True])


# Gloo, through PyTorch, of each group: NVIDIA's perf scripts print it, and Megatron's data parallel groups are the largest.
@pytest.mark.parametrize(
    ("peers", "stated", "valid"),
    [([511, 0], None, True), ([511, 0], 512, True), ([15, 0], 512, True), ([1023], 512, False), ([1023], None, False), ([15, 0], None, True)],
)  # fmt: skip
def test_the_largest_group_of_gloo(peers: list[int], stated: int | None, valid: bool) -> None:
    head = [
        f"[Gloo] Rank 0 is connected to {n} peer ranks. Expected number of connected peer ranks is : {n}"
        for n in peers
    ]
    head += [] if stated is None else [STARTING.format(stated)]
    found = judged("nemo2", text_of("nemo2", *head))
    assert [LARGEST.format(max(peers) + 1) in said for said in found] == ([] if valid else [True])
    # As processes on one node write it at once (verdimrc/playground-nemo-2.0-gh, 05-byoc-te-mb).
    torn = "[Gloo] Rank [Gloo] Rank 23 is connected to  is connected to 77 peer ranks. Expected number of connected peer ranks is : 7"
    assert facts_of("nemo2", text_of("nemo2", torn)) == []


# Types of GPU.


@DIALECTS
@pytest.mark.parametrize("line", GPU_LINES)
def test_the_type_of_gpu_that_a_run_names(dialect: str, line: str) -> None:
    other = text_of(dialect, line.format("NVIDIA A100-SXM4-80GB"))
    assert judged(dialect, other, part=None) == [], "nobody knows the type"
    assert judged(dialect, text_of(dialect, line.format("NVIDIA H100 80GB HBM3"))) == []
    assert judged(dialect, other) == [
        "the log is of NVIDIA A100-SXM4-80GB, this case is judged as of NVIDIA H100 SXM"
    ]


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("NVIDIA H100 80GB HBM3", {"h100"}),
        ("NVIDIA H100 SXM", {"h100"}),
        ("NVIDIA H100 PCIe", set()),
        ("NVIDIA H100 NVL", set()),
        ("NVIDIA H100 64GB HBM2e", set()),
        ("NVIDIA H800", set()),
        ("NVIDIA H20", set()),
        ("NVIDIA H200", {"h200"}),
        ("NVIDIA H200 NVL", set()),
        ("NVIDIA GH200 480GB", set()),
        ("NVIDIA B200", {"b200"}),
        ("NVIDIA GB200", {"gb200"}),
        ("NVIDIA B300 SXM6 AC", {"b300"}),
        ("NVIDIA GB300", {"gb300"}),
        ("NVIDIA A100-SXM4-80GB", set()),
        ("NVIDIA A10G", set()),
        ("NVIDIA L40S", set()),
        ("NVIDIA RTX A6000", set()),
        ("NVIDIA GeForce RTX 3060", set()),
        # Of an engineering sample nobody knows what it is.
        ("NVIDIA Graphics Device", set(PARTS)),
    ],
)
def test_a_name_is_of_one_type(name: str, parts: set[str]) -> None:
    log = parse(text_of("maxtext", GPU_LINES[0].format(name)), "maxtext")
    case = CASES["maxtext"]
    assert {key for key, part in PARTS.items() if not contradictions(case, log, part)} == parts


# Jobs.


@pytest.mark.parametrize("dialect", ["nemo1", "maxtext"])
def test_the_job_that_a_log_is_of(dialect: str) -> None:
    assert judged(dialect, text_of(dialect, *[asked(dialect)] * 8)) == []
    other = text_of(dialect, asked(dialect, job="4699"))
    (said,) = judged(dialect, other)
    assert said == 'the log says "JOB_ID=4699", this case\'s job is 4711'
    for unknown in ("", "pm-3f2a91c04b"):
        assert judged(dialect, other, job=unknown) == []
    # The id stands also where the launcher did not know how many GPUs a node has.
    (said,) = judged(dialect, text_of(dialect, asked(dialect, devices="", job="4699")))
    assert "JOB_ID=4699" in said


@pytest.mark.parametrize("dialect", ["nemo1", "maxtext"])
@pytest.mark.parametrize(("factor", "devices"), [(2, 8), (1, 4), (4, 8)])
def test_the_nodes_and_gpus_that_a_run_asked_for(dialect: str, factor: int, devices: int) -> None:
    gpus = CASES[dialect].gpus
    (said,) = judged(dialect, text_of(dialect, asked(dialect, gpus // 8 * factor, devices)))
    assert said == (
        f'the log says "JOB_NUM_NODES={gpus // 8 * factor}" and "GPUS_PER_NODE={devices}", this case has {gpus} GPUs'
    )
    assert judged(dialect, text_of(dialect, asked(dialect, gpus // 4, 4))) == []


def test_the_nodes_and_gpus_of_a_configuration() -> None:
    right, other = "      num_nodes: 32", "      num_nodes: 16"
    assert judged("nemo1", text_of("nemo1", right, "      devices: 8")) == []
    assert judged("nemo1", text_of("nemo1", other, "      devices: 8")) == [
        'the log says "num_nodes: 16" and "devices: 8", this case has 256 GPUs'
    ]
    # One of them alone does not tell.
    assert judged("nemo1", text_of("nemo1", other)) == []


# Attempts.


@pytest.mark.parametrize(("dialect", "line"), BEGINNINGS)
def test_an_attempt_that_began_and_made_no_step_is_the_last_one(dialect: str, line: str) -> None:
    last = CASES[dialect].steps - 1
    text = text_of(dialect, line) + line + "\nsrun: error: gpu001: task 0: Exited with exit code 1\n"
    assert judged(dialect, text) == [
        f"the last attempt has no training step; the one before it ended after step {last}"
    ]
    log = parse(text, dialect)
    assert (log.steps, log.restarted_after) == ((), (last,))


# What one process prints once may come late, as where standard error was put behind standard output.
@pytest.mark.parametrize(("dialect", "line"), [one for one in BEGINNINGS if one[1] != record()])
def test_a_beginning_behind_the_only_attempt_is_its_own(dialect: str, line: str) -> None:
    assert judged(dialect, text_of(dialect) + line + "\n") == []


@pytest.mark.parametrize(("dialect", "line"), BEGINNINGS)
def test_an_attempt_that_begins_again_starts_over(dialect: str, line: str) -> None:
    last = steps_of(dialect, 20)
    text = text_of(dialect, line, count=20) + text_of(dialect, line)
    log = parse(text, dialect)
    assert len(log.steps) == len(steps_of(dialect))
    assert len(log.restarted_after) == 1
    assert judged(dialect, text) == []
    assert len(last) < len(log.steps)


# An attempt that goes on from a checkpoint is no whole run, even where its first step would go on in the count.
@pytest.mark.parametrize(("dialect", "line"), BEGINNINGS)
def test_steps_before_a_beginning_are_not_those_of_the_attempt(dialect: str, line: str) -> None:
    lines = steps_of(dialect)
    first = [record(), line] if dialect == "dllogger" else [line]
    half = len(lines) // 2
    found = judged(dialect, "\n".join([*first, *lines[:half], line, *lines[half:]]) + "\n")
    assert found
    assert "so no attempt ran all steps: steps 0 to " in found[0]


def test_facts_of_standard_error_count_beside_those_of_the_log() -> None:
    log = parse(text_of("nemo1", "      num_layers: 96"), "nemo1")
    beside = parse(STARTING.format(128) + "\n", "nemo1")
    both = log.beside(beside)
    assert [said[:36] for said in contradictions(CASES["nemo1"], both, H100, JOB)] == [
        'the log says "All distributed proces'
    ]
    assert len(both.steps) == 50
    assert both.beside(beside).facts == both.facts
