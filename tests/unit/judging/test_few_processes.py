"""What few processes of many print: their own statements count, and what other output made of another's does not."""

from __future__ import annotations

import random

import pytest

from plugins.judging.identity import garbled
from plugins.logs.statements import MAX_VALUES, SHARE
from tests.printed import maxtext
from tests.unit.examples import parse
from tests.unit.stated import ABSL, CASES, COMMUNICATORS, GPU_LINES, facts_of, judged, steps_of, text_of

PRINTED_BY_ALL = ("nemo1", "maxtext")
OF_A_PROCESS = GPU_LINES[:5]
H100, H200 = "NVIDIA H100 80GB HBM3", "NVIDIA H200"


# How a line is printed and how a name is compared have nothing in common.
@pytest.mark.parametrize(
    ("dialect", "line", "few", "other"),
    [
        *((dialect, line, 1, H200) for dialect in sorted(CASES) for line in OF_A_PROCESS),
        *(
            ("maxtext", OF_A_PROCESS[0], few, other)
            for few in (1, 2, 8, 16)
            for other in (
                H200,
                "NVIDIA A100 80GB PCIe",
                "NVIDIA H100 PCIe",
                "NVIDIA Graphics Device",
                "AMD Instinct MI300X",
            )
        ),
    ],
)
def test_few_gpus_of_another_type_are_refused(dialect: str, line: str, few: int, other: str) -> None:
    lines = [line.format(H100)] * (64 - few) + [line.format(other)] * few
    random.Random(few).shuffle(lines)
    (reason,) = judged(dialect, text_of(dialect, *lines))
    assert reason.startswith("the log is of GPUs of several types: ")
    assert f"{H100} ({64 - few} lines)" in reason
    assert f"{other} ({few} line{'s' if few > 1 else ''})" in reason


# As two processes write one line (measured on streams that are cut at any byte).
@pytest.mark.parametrize(
    "torn",
    [
        "NVIDIA H100 80GH100 80GB HBM3", "NVIDIA 80GB HBM3", "NVID0GB HBM3", "NVIDIABM3", "NVIDIA H100HBM3", "0GB HBM3",
        "NVIDIA H1tor [0]: NVIDIA H100 80GB HBM3", "NVIDIA HBM3", "tor [0]: NVIDIA H100 80GB HBM3", ": NVIDIA H100 80GB HBM3",
    ],
)  # fmt: skip
def test_a_name_that_two_processes_wrote_is_no_type(torn: str) -> None:
    lines = [GPU_LINES[0].format(name) for name in (*[H100] * 7, torn)]
    assert judged("maxtext", text_of("maxtext", *lines)) == []


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
        GPU_LINES[0].format(H100),
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
