"""How many processes ran, on which GPUs, as which job, and in which attempt: what any run may state of itself."""

from __future__ import annotations

import random
import tracemalloc
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plugins.judging import identity
from plugins.judging.identity import garbled
from plugins.judging.validity import Started
from plugins.logs import Log, statements
from plugins.logs.formats import parser, read
from plugins.logs.statements import MAX_VALUES, SHARE
from plugins.record.baseline import Statistic
from tests.printed import maxtext
from tests.unit.examples import parse, problems
from tests.unit.stated import (
    ABSL,
    BEGINNINGS,
    CASES,
    COMMUNICATORS,
    GPU_LINES,
    H100,
    JOB,
    PARTS,
    SAMPLES,
    STARTING,
    asked,
    contradictions,
    facts_of,
    judged,
    log_of,
    record,
    steps_of,
    text_of,
)

DIALECTS = pytest.mark.parametrize("dialect", sorted(CASES))
LARGEST = ": its largest group has {} processes, this case has "


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


# Properties


def lines_of(dialect: str) -> list[str]:
    """One of each statement of this dialect, and of all."""
    own = [sample.line.format(sample.right) for sample in SAMPLES if sample.dialect == dialect]
    common = [line.format(512) for line in COMMUNICATORS] + [line.format("NVIDIA H100") for line in GPU_LINES]
    gloo = "[Gloo] Rank 0 is connected to 511 peer ranks. Expected number of connected peer ranks is : 511"
    begun = [line for name, line in BEGINNINGS if name == dialect]
    return [*own, *common, gloo, *begun, asked("nemo1"), "  fp8: hybrid", "      log_step_timing: true"]


LINES: dict[str, list[str]] = {dialect: lines_of(dialect) for dialect in CASES}
INSERTED = [
    b"\n", b"\r", b"\0", b"9" * 30, b"-1", b"nan", b"1e9", b"{", b"]", b", ", b"\xff", "٣".encode(), b"'", b"NVIDIA ", b"\x1b[32m",
]  # fmt: skip


@st.composite
def damaged(draw: st.DrawFn, dialect: str) -> bytes:
    """Statements, among a few steps, with any bytes in them, cut, doubled or glued to others."""
    chosen = draw(st.lists(st.sampled_from(LINES[dialect]), min_size=1, max_size=6))
    lines = [*chosen, *steps_of(dialect, 20)[: draw(st.integers(0, 4))], *chosen[:2]]
    data = bytearray("\n".join(lines).encode())
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(data)))
        to = min(len(data), at + draw(st.integers(0, 60)))
        if draw(st.booleans()):
            data[at:at] = draw(st.one_of(st.binary(max_size=12), st.sampled_from(INSERTED)))
        else:
            del data[at:to]
    return bytes(data) + b"\n"


def told(dialect: str, log: Log) -> tuple[Iterable[object], ...]:
    case = CASES[dialect]
    return (
        problems(case, log, Statistic(), H100, started=Started(JOB)),
        identity.stated_by(case, log).items(),
        identity.anonymous(case, log),
    )


@DIALECTS
@given(data=st.data())
@settings(max_examples=30)
def test_whatever_a_statement_holds_nothing_is_raised(dialect: str, data: st.DataObject) -> None:
    log = parse(data.draw(damaged(dialect)), dialect)
    assert max(Counter(fact.name for fact in log.facts).values(), default=0) <= MAX_VALUES + 2
    assert all(len(fact.said) <= 200 and "\n" not in fact.said for fact in log.facts)
    told(dialect, log)
    told(dialect, replace(log, steps=log_of(dialect, text_of(dialect)).steps))


@DIALECTS
@given(data=st.data())
@settings(max_examples=25)
def test_statements_read_the_same_in_pieces(dialect: str, data: st.DataObject) -> None:
    found = data.draw(damaged(dialect))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(found)), max_size=5)))
    pieces = (found[a:b] for a, b in pairwise([0, *cuts, len(found)]))
    assert repr(read(dialect, pieces)) == repr(parse(found, dialect))


# A thousand processes state a fact each, again and again; or other output makes a new value of each.
@pytest.mark.parametrize(
    ("dialect", "line"),
    [
        ("nemo2", "Initializing distributed: GLOBAL_RANK: 0, MEMBER: 1/{}"),
        ("nemo1", "      num_layers: {}"),
        ("maxtext", "Config param emb_dim: {}"),
    ],
)
def test_memory_stays_flat_with_many_statements(
    monkeypatch: pytest.MonkeyPatch, dialect: str, line: str
) -> None:
    monkeypatch.setattr(statements, "MAX_LINES", 4000)
    different = "".join(f"{line.format(n)}\n" for n in range(1000)).encode()
    reader = parser(dialect)
    for _ in range(5):
        reader.feed(different)
    tracemalloc.start()
    for _ in range(200):
        reader.feed(different)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1 << 20
    assert len(reader.finish().facts) <= MAX_VALUES


# What few processes of many print

OF_A_PROCESS = GPU_LINES[:5]
H100_NAME, H200_NAME = "NVIDIA H100 80GB HBM3", "NVIDIA H200"


# How a line is printed and how a name is compared have nothing in common.
@pytest.mark.parametrize(
    ("dialect", "line", "few", "other"),
    [
        *((dialect, line, 1, H200_NAME) for dialect in sorted(CASES) for line in OF_A_PROCESS),
        *(
            ("maxtext", OF_A_PROCESS[0], few, other)
            for few in (1, 2, 8, 16)
            for other in (
                H200_NAME,
                "NVIDIA A100 80GB PCIe",
                "NVIDIA H100 PCIe",
                "NVIDIA Graphics Device",
                "AMD Instinct MI300X",
            )
        ),
    ],
)
def test_few_gpus_of_another_type_are_refused(dialect: str, line: str, few: int, other: str) -> None:
    lines = [line.format(H100_NAME)] * (64 - few) + [line.format(other)] * few
    random.Random(few).shuffle(lines)
    (reason,) = judged(dialect, text_of(dialect, *lines))
    assert reason.startswith("the log is of GPUs of several types: ")
    assert f"{H100_NAME} ({64 - few} lines)" in reason
    assert f"{other} ({few} line{'s' if few > 1 else ''})" in reason


# On GKE each rank has five groups of 8 and one of all.
@pytest.mark.parametrize("dialect", sorted(CASES))
@pytest.mark.parametrize("line", COMMUNICATORS)
def test_the_communicator_of_all_counts_however_rare_it_is(dialect: str, line: str) -> None:
    gpus = CASES[dialect].gpus
    node, whole, more = (line.format(size) for size in (8, gpus, 2 * gpus))
    assert judged(dialect, text_of(dialect, *[*[node] * 5, whole] * 32)) == []
    many = [node] * (2 * SHARE + 1)
    rare = text_of(dialect, *many, whole)
    assert ("group", gpus) in facts_of(dialect, rare)
    assert judged(dialect, rare) == []
    (reason,) = judged(dialect, text_of(dialect, *many, more))
    assert f"its largest group has {2 * gpus} processes" in reason


@pytest.mark.parametrize(
    ("key", "right", "other"),
    [
        ("num_decoder_layers", 80, 8),
        ("max_target_length", 4096, 2048),
        ("vocab_size", 32000, 128256),
        ("quantization", "", "fp8"),
    ],
)
def test_what_8_of_64_processes_state_otherwise_counts(key: str, right: object, other: object) -> None:
    lines = [f"Config param {key}: {right}"] * 56 + [f"Config param {key}: {other}"] * 8
    (reason,) = judged("maxtext", text_of("maxtext", *lines))
    assert f'"Config param {key}: {other}" in 8 of 64 lines, this case' in reason


# A value at the end of a line is cut where another process ends its own line, or made longer by the rest of another's.
@pytest.mark.parametrize("torn", ["40", "4", "40967", "", "40964096", "64"])
def test_a_value_that_other_output_cut_or_made_longer_is_none(torn: str) -> None:
    line = "Config param max_target_length: {}"
    lines = [line.format(4096)] * 40 + [line.format(torn)]
    assert judged("maxtext", text_of("maxtext", *lines)) == []
    assert judged("maxtext", text_of("maxtext", *lines[::-1])) == []
    remark = garbled(parse(text_of("maxtext", *lines), "maxtext"))
    assert remark == (
        f'"Config param max_target_length: {torn}" in 1 of 41 lines is taken as garbled by other output; judged without'
        if torn
        else ""
    )
    # One that is no part of the others may be torn once.
    for count in (1, 2, 8):
        several = text_of("maxtext", *[line.format(4096)] * 512, *[line.format(2048)] * count)
        assert (judged("maxtext", several) == []) is (count == 1)


def test_a_command_that_every_process_prints_hides_no_configuration_that_one_prints() -> None:
    command = "GSW: MODEL=nemotron4 BASE_CONFIG=' model.tensor_model_parallel_size=8 '"
    setting = "      tensor_model_parallel_size: 4"
    (reason,) = judged("nemo1", text_of("nemo1", *[command] * 64, setting))
    assert reason.startswith(f'the log says "{setting.strip()}" in 1 of 65 lines, this case')


def _streams(rng: random.Random, head: str) -> str:
    """What 64 processes write through one pipe, each in blocks of its own size that begin anywhere in a line."""
    ranks = []
    for rank in range(64):
        text, size = f"{rank}: starts\n" + "." * rng.randrange(1, 200) + f"\n{head}", rng.choice((4096, 8192))
        ranks.append([text[at : at + size] for at in range(0, len(text), size)])
    blocks = []
    while any(ranks):
        blocks.append(rng.choice([rank for rank in ranks if rank]).pop(0))
    return "".join(blocks)


@pytest.mark.parametrize("seed", range(20))
def test_64_processes_that_cut_each_others_lines_are_a_healthy_run(seed: int) -> None:
    rng = random.Random(seed)
    settings = (
        ("emb_dim", 8192), ("num_decoder_layers", 80), ("mlp_dim", 28672), ("num_query_heads", 64), ("num_kv_heads", 8),
        ("vocab_size", 32000), ("max_target_length", 4096), ("global_batch_size_to_train_on", 128), ("dtype", "bfloat16"),
        ("quantization", ""), ("ici_fsdp_parallelism", 8), ("dcn_fsdp_parallelism", 8), ("gradient_accumulation_steps", 1),
    )  # fmt: skip
    between = [f"Config param {'abcdefghij'[n % 10] * (5 + n % 23)}: remat" for n in range(200)]
    lines = [
        GPU_LINES[0].format(H100_NAME),
        *(f"{ABSL}pyconfig.py:584] Config param {key}: {value}" for key, value in settings),
        *between,
    ]
    rng.shuffle(lines)
    steps = "\n".join(maxtext.line(i, loss=f"{7.31 - i / 1000:.3f}") for i in range(50))
    text = _streams(rng, "\n".join(lines) + "\n") + steps + "\n"
    assert judged("maxtext", text) == []


def test_values_of_one_fact_leave_room_for_the_others() -> None:
    names = [GPU_LINES[0].format(f"NVIDIA H100 {n}GB HBM3") for n in range(500)]
    log = parse(text_of("maxtext", *names, "Config param num_decoder_layers: 40"), "maxtext")
    assert sum(fact.name == "gpu" for fact in log.facts) == MAX_VALUES
    assert ("layers", 40) in [(fact.name, fact.value) for fact in log.facts]


def test_a_step_that_few_processes_print_is_not_said_to_be_garbled() -> None:
    case = CASES["maxtext"]
    lines = [[line] * 8 for line in steps_of("maxtext", case.steps)]
    for step in (20, 21, 22):
        lines[step] = lines[step][:3]
    reasons = judged("maxtext", "\n".join(line for step in lines for line in step) + "\n")
    assert reasons == [
        "steps 20 to 22: fewer than half of the 8 processes have a whole line of it; only 2 such steps are allowed"
    ]
