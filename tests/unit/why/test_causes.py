"""Each cause fires by what its source prints or its launcher was told, and not in a cell that it is not about.

NVIDIA/nccl v2.21.5-1, v2.28.9-1 and 5067397c; NVIDIA-NeMo/Megatron-Bridge b50da4c74: `baselines/causes.yaml` has the lines.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from plugins.base.errors import ConfigError
from plugins.base.yamlfile import load
from plugins.logs.formats import parser
from plugins.logs.registry import FORMATS
from plugins.sources.registry import Candidate
from plugins.why.causes import Causes, Cell, read_tables
from plugins.why.facts import Fact, LineFacts, Seen, of_launch, of_run
from plugins.why.table import Comparison, compare
from tests.printed.nccl import info
from tests.unit import examples
from tests.unit.logs.test_telling_lines import REAL
from tests.unit.sources.upstream import candidate, registry

TABLES = read_tables(examples.BASELINES)
OLD, NEW = "26.06.01", "26.08.00"
QWEN = ("qwen3/30b-bf16-8gpus", NEW, "gb200")
ONE_NODE = ("qwen3/30b-bf16-8gpus", NEW, "b200")
QWEN_H100 = ("qwen3/235b-bf16-256gpus", NEW, "h100")
QWEN_B200 = ("qwen3/235b-bf16-256gpus", NEW, "b200")
LLAMA_H100 = ("llama3/70b-bf16-64gpus", NEW, "h100")
LLAMA = ("llama3/405b-nvfp4-256gpus", NEW, "gb200")
GKE = ("llama3_gke/70b-bf16-128gpus", "24.07", "h100")
GPT3 = ("gpt3_aks/375m-fp16-16gpus", "25.03", "h100")


def version(text: str) -> str:
    return f"NCCL version {text}+cuda12.4"


NO_PLUGIN = info("NET/Plugin: Could not find: libnccl-net-aws-ofi.so. Using internal network plugin.")
SOCKET = info("Assigned NET plugin Socket to comm")
SHARED_MEMORY = info("Channel 00/0 : 3[3] -> 0[0] via SHM/direct/direct")
OFFLOAD = "  optimizer_cpu_offload: True  (Mcore default: False)"
WARNING = "/opt/megatron/core/optimizer/__init__.py:18: UserWarning: Transformer Engine and Apex are not installed. Falling back to Torch optimizers."


def variable(name: str, value: str) -> str:
    return info(f"{name} set by environment to {value}.")


@dataclass(frozen=True)
class Run:
    """A run of a cell: lines of its log, and what its launcher was told."""

    of: tuple[str, str, str]
    lines: Sequence[str] = ()
    variables: Mapping[str, object] = field(default_factory=dict)
    overrides: Mapping[str, object] = field(default_factory=dict)
    words: Sequence[str] = ()


def compared(run: Run, of: Candidate) -> Comparison:
    data = "".join(f"{line}\n" for line in run.lines).encode()
    launched = of_launch(run.variables, run.overrides, run.words, "llmb-config_7.yaml")
    return compared_bytes(data, of, of.recipe.file.log, launched)


def compared_bytes(data: bytes, of: Candidate, log_format: str, launched: Iterable[Fact] = ()) -> Comparison:
    seen: Seen = {}
    reader = parser(log_format)
    for piece in LineFacts(TABLES.causes.lines).passing([data], seen):
        reader.feed(piece)
    cell = Cell(of.case, of.gpu, of.case.nodes(of.gpus_per_node))
    return compare(cell, of_run(reader.finish(), seen, launched), TABLES)


def fired(run: Run) -> list[str]:
    return [row.what for row in compared(run, candidate(*run.of)).rows if row.mend]


# By the cause: a run that has it, and what is changed in one that has not.
PLANTED: dict[str, tuple[Run, dict[str, Any]]] = {
    "NCCL looks for another plug-in than is installed, and falls back to sockets": (
        Run(QWEN, [version("2.29.2"), NO_PLUGIN, SOCKET]),
        {"lines": [version("2.28.9"), NO_PLUGIN, SOCKET]},
    ),
    "the network plug-in needs another version of a library": (
        Run(QWEN, [info("NET/Plugin: libnccl-net-ofi.so: /opt/lib/libibverbs.so.1: version `IBVERBS_PRIVATE_34' not found (required by /usr/lib/libefa.so.1)")]),
        {"of": ONE_NODE},
    ),
    "NVLink SHARP is off": (Run(GKE, [variable("NCCL_NVLS_ENABLE", "0")]), {"of": LLAMA_H100}),
    "this NCCL may hang for ever on Arm processors: 7 of 7 runs of 128 GB200 did": (Run(LLAMA, [version("2.28.9")]), {"lines": [version("2.29.3")]}),
    "the newer container is slower for GPT-OSS": (
        Run(("gpt_oss/120b-bf16-64gpus", OLD, "gb200"), variables={"RUN_CONF_IMAGE": "nvcr.io#nvidia/nemo:26.06.01"}),
        {"of": ("gpt_oss/120b-bf16-64gpus", NEW, "gb200")},
    ),
    "the all-to-all of experts is not overlapped": (
        Run(QWEN_H100, words=["--moe_a2a_overlap=False"]),
        {"of": QWEN_B200},
    ),
    "the all-to-all of experts is overlapped, which costs processor time": (
        Run(QWEN_B200, words=["--moe_a2a_overlap True"]),
        {"of": ("qwen3/235b-mxfp8-256gpus", NEW, "b200")},
    ),
    "more tensor parallelism": (Run(LLAMA_H100, overrides={"TP": 8}), {"overrides": {"TP": 4}}),
    "more pipeline stages": (
        Run(LLAMA_H100, words=["--pipeline_model_parallel_size", "8"]),
        {"words": ["--pipeline_model_parallel_size", "4"]},
    ),
    "the MLP is recomputed": (Run(LLAMA_H100, words=["--recompute_modules", "core_attn", "mlp"]), {"words": ["--recompute_modules=core_attn"]}),
    "whole layers are recomputed": (Run(QWEN, words=["--recompute_num_layers=4"]), {"words": ["--recompute_num_layers=0"]}),
    "CUDA graphs are off": (Run(QWEN, words=["--cuda_graph_impl=none"]), {"of": LLAMA_H100}),
    "the optimizer runs on the processor": (Run(QWEN, [OFFLOAD]), {"lines": [OFFLOAD.replace("True", "False")]}),
    "Transformer Engine and Apex are missing": (Run(QWEN, [WARNING]), {"of": GPT3}),
    "the dispatcher of tokens gathers them all": (
        Run(QWEN_H100, words=["model.moe_token_dispatcher_type=allgather"]),
        {"of": LLAMA_H100},
    ),
    "communication is not overlapped": (Run(LLAMA, words=["+ddp.overlap_grad_reduce=false"]), {"words": ["ddp.overlap_grad_reduce=true"]}),
    "another CUDA_DEVICE_MAX_CONNECTIONS": (
        Run(LLAMA_H100, variables={"CUDA_DEVICE_MAX_CONNECTIONS": 32}),
        {"of": QWEN},
    ),
    "Python collects garbage whenever it likes": (Run(LLAMA, words=["train.manual_gc=False"]), {"words": ["train.manual_gc=True"]}),
    "NCCL sends nothing through a neighbour (PXN) between two GPUs": (
        Run(QWEN, [variable("NCCL_P2P_PXN_LEVEL", "0")]),
        {"of": ONE_NODE},
    ),
    "NCCL sends nothing through a neighbour (PXN)": (Run(QWEN, [variable("NCCL_PXN_DISABLE", "1")]), {"of": GPT3}),
    "the network does not reach the GPUs' memory": (
        Run(QWEN, [info("NET/IB : GPU Direct RDMA Disabled for HCA 0 'mlx5_0'")]),
        {"lines": [info("NET/Socket : GPU Direct RDMA Disabled for HCA 0 'eth0'")]},
    ),
    "NCCL finds no topology file where it was told to look": (
        Run(QWEN, [info("Could not open XML topology file /opt/nvd5-topo.xml : No such file or directory")]),
        {"lines": [info("NCCL_TOPO_FILE set by environment to /opt/nvd5-topo.xml")]},
    ),
    "chunks that NCCL does not support": (
        Run(QWEN, [variable("NCCL_CHUNK_SIZE", "1048576")]),
        {"lines": [variable("NCCL_P2P_NET_CHUNKSIZE", "2097152"), variable("NCCL_CHUNK_SIZE", "524288")]},
    ),
    "GPUs of a node talk through its memory": (
        Run(QWEN, [version("2.23.4"), SHARED_MEMORY]),
        {"lines": [version("2.21.5"), SHARED_MEMORY]},
    ),
}  # fmt: skip


def test_each_cause_is_planted() -> None:
    assert [cause.what for cause in TABLES.causes.causes] == list(PLANTED)


OWN = b"source: made by the maintainers of Pacemark on one H100 "


@pytest.mark.parametrize("what", PLANTED)
def test_a_cause_fires_in_its_cells_alone(what: str) -> None:
    run, changed = PLANTED[what]
    assert fired(run) == [what]
    assert fired(replace(run, **changed)) == []


@pytest.mark.parametrize("path", REAL, ids=lambda path: path.stem)
def test_no_cause_fires_on_a_real_log(path: Path) -> None:
    """In no cell of its format: neither on excerpts that others made public, nor on our own runs of upstream's programs on an H100."""
    data = path.read_bytes()
    log_format = max((name for name in FORMATS if path.stem.startswith(name)), key=len, default="nemo2")
    cells = {
        (each.case.recipe, each.case.release, each.gpu): each
        for each in registry().candidates
        if each.recipe.file.log == log_format and (each.gpu == "h100" or OWN not in data)
    }
    assert {
        row.what for each in cells.values() for row in compared_bytes(data, each, log_format).rows if row.mend
    } == set()


def test_what_the_published_cell_has_agrees() -> None:
    """The launcher of the cell sets NCCL_NVLS_ENABLE=0; the log states what ran, whatever the launcher was told."""
    run = Run(
        QWEN, [version("2.30.7"), variable("NCCL_NVLS_ENABLE", "0")], {"NCCL_NVLS_ENABLE": 1, "HF_TOKEN": "x"}
    )
    comparison = compared(run, candidate(*QWEN))
    assert comparison.rows == []
    assert comparison.agree == ["NCCL", "NCCL_NVLS_ENABLE"]
    assert comparison.unread[:2] == ["GPU", "driver"]
    (row,) = compared(replace(run, lines=[variable("NCCL_NVLS_ENABLE", "1")]), candidate(*QWEN)).rows
    assert row[:5] == ("NCCL_NVLS_ENABLE", "1", "0", "no known price", "the log")


@pytest.mark.parametrize(
    "words",
    [
        ["-hf", "s3"],
        ["-wdk s3"],
        ["--wandb_key", "s3=="],
        ["--hf_token", "-s3"],
        ["--custom_env_vars=HF_TOKEN=s3"],
        ["-ce", "FOO=1,HF_TOKEN=s3"],
        ["model.api_key=s3"],
        ["https_proxy=http://me:s3@proxy:3128"],
    ],
)
def test_no_secret_of_a_launcher_is_a_fact(words: Sequence[str]) -> None:
    facts = list(of_launch({"EXTRA_ARGS": "--hf_token s3"}, {}, [*words, "--x=2"], "llmb-config_7.yaml"))
    assert "s3" not in str(facts)
    assert (facts[-1].name, facts[-1].values) == ("--x", ("2",))


def test_prices_come_first_by_their_class() -> None:
    words = ["--cuda_graph_impl=none", "--seq_length=8192", "--anything"]
    lines = [
        variable("NCCL_CHUNK_SIZE", "1048576"),
        PLANTED["the network plug-in needs another version of a library"][0].lines[0],
    ]
    rows = compared(Run(QWEN, lines, words=words), candidate(*QWEN)).rows
    assert [(row.evidence, row.price.split("(")[0].strip()) for row in rows] == [
        ("A", "484 to 623 ms a step"),
        ("B", "collectives by 3 in the place of 489 GB/s"),
        ("C", "worth a look"),
        ("", "no known price"),
        ("", "no known price"),
    ]


def test_memory_and_values_are_bounded() -> None:
    line = variable("NCCL_X{}", "{}")
    data = "".join(line.format(n % 400, n) + "\n" for n in range(5000)).encode() + b"NET/Plugin: " * (1 << 18)
    seen: Seen = {}
    pieces = [data[at : at + 4096] for at in range(0, len(data), 4096)]
    assert b"".join(LineFacts(TABLES.causes.lines).passing(pieces, seen)) == data
    assert len(seen) == 256
    assert {len(values) for values in seen.values()} == {4}


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("evidence: C}", "evidence: C, figure: 5 %}", "classes A and B need figure and shape, class C has neither"),
        ("hint: ", "hnt: ", "unknown key; did you mean 'hint'?"),
        ('matches: ".*"', 'matches: "("', "regular expression"),
        ('least: "2.29"', 'least: "new"', "is not of the form"),
        ("causes:\n", "causes: [\n", "causes.yaml:"),
    ],
)  # fmt: skip
def test_a_damaged_table_is_one_clear_error(old: str, new: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "causes.yaml"
    path.write_text((examples.BASELINES / "causes.yaml").read_text().replace(old, new, 1))
    with pytest.raises(ConfigError, match=r"causes\.yaml:\d+: .*") as error:
        load(path, Causes)
    assert said in str(error.value)
