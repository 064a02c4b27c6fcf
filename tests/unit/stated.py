"""Lines by which a run states what it is, as their upstreams print them, and runs that have them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from plugins.baselines.baseline_file import Accelerator, accelerators
from plugins.judging.validity import Started
from plugins.judging.validity.configuration import STATEMENTS
from plugins.judging.validity.run import TimedRun
from plugins.logs import Log
from plugins.recipes.cases import Case
from plugins.record.baseline import Statistic
from tests.printed import dgxc, dllogger, lightning, maxtext, megatron_bridge, megatron_lm, nemo1
from tests.printed.megatron_lm import argument
from tests.printed.nemo2 import nemo2_line
from tests.unit import aks, examples
from tests.unit.examples import parse, problems

JOB = "4711"
PARTS = accelerators(examples.BASELINES)
H100 = PARTS["h100"]

# The cases that the runs below are judged as, by dialect. No recipe is of Megatron-Bridge; it runs the same models.
LLAMA = examples.case("70b-bf16-512gpus")
CASES = {
    "nemo2": LLAMA,
    "nemo1": examples.case("340b-fp8-256gpus", "nemotron4"),
    "maxtext": examples.case("70b-bf16-64gpus", "maxtext_llama2"),
    "megatron_lm": aks.case(),
    "megatron_bridge": examples.case(),
    "dllogger": examples.case(),
}


@lru_cache
def steps_of(dialect: str, count: int = 50) -> tuple[str, ...]:
    """The lines of a run's first steps, as its format prints them; Megatron-LM prints one for each ten of 100."""
    if dialect == "megatron_lm":
        return tuple(aks.log_lines(8.0)[: max(2, count // 5)])
    made: dict[str, Callable[[int], str]] = {
        "nemo2": nemo2_line,
        "nemo1": lambda i: nemo1.bar(i, gbs=64),
        "maxtext": lambda i: maxtext.line(i, loss=f"{7.31 - i / 1000:.3f}"),
        "megatron_bridge": lambda i: megatron_bridge.rate() + megatron_lm.line(i + 1),
        "dllogger": lambda i: dllogger.in_output(i, dllogger.data(i)),
    }
    return tuple(made[dialect](i) for i in range(count))


def record(**changed: object) -> str:
    """DLLogger's record of the configuration, without which its run is none."""
    return dllogger.in_output(
        "PARAMETER", dllogger.STATED | {f"cfg/{key}": value for key, value in changed.items()}
    )


def text_of(dialect: str, *head: str, count: int = 50) -> str:
    """A run that has these lines before its first step."""
    first = [record()] if dialect == "dllogger" and not any("PARAMETER" in line for line in head) else []
    return "\n".join([*first, *head, *steps_of(dialect, count)]) + "\n"


@lru_cache(4)
def log_of(dialect: str, text: str) -> Log:
    """Many tests ask several questions about one text."""
    return parse(text, dialect)


def judged(
    dialect: str, text: str, case: Case | None = None, part: Accelerator | None = H100, job: str = JOB
) -> list[str]:
    """What makes this log no evidence for the case."""
    statistic = Statistic.parse("mean:50-99") if dialect == "megatron_lm" else Statistic()
    return problems(case or CASES[dialect], log_of(dialect, text), statistic, part, started=Started(job))


def facts_of(dialect: str, text: str) -> list[tuple[str, int | str]]:
    return [(fact.name, fact.value) for fact in log_of(dialect, text).facts]


def contradicted(dialect: str, *lines: str) -> list[str]:
    """What is held against a run that has these lines, whatever its steps are."""
    log = parse("\n".join([*lines, steps_of(dialect)[0]]) + "\n", dialect)
    return contradictions(CASES[dialect], log, H100, JOB)


def contradictions(case: Case, log: Log, part: Accelerator, job: str = "") -> list[str]:
    """What the log states and is not so of the case."""
    run = TimedRun(case, log, Statistic(), part, Started(job))
    return [reason for check in STATEMENTS for reason in check(run)]


@dataclass(frozen=True)
class Sample:
    """A line with a hole: what stands in it in a run of the case, what in another run, and what is said of that."""

    dialect: str
    line: str
    right: object
    other: object
    fact: str
    said: str

    def __str__(self) -> str:
        return f"{self.dialect}-{self.fact}-{' '.join(self.line.split())[:40]}"


NEMO = lightning.noted("")
ABSL = "I1122 01:31:04.147770 139732555342144 "
PROCESSES = "this case's number of processes is"


# What every process of the two recipes prints first, of the cases above.
GIVEN = {
    "nemo1": dgxc.info(
        "nemo",
        model="nemotron4",
        size="340b",
        nodes=32,
        dtype="fp8",
        release="24.11",
        job="4711",
        config=" model.overlap_p2p_comm=True model.batch_p2p_comm=False model.global_batch_size=64 "
        "trainer.num_nodes=32 trainer.max_steps=50 trainer.val_check_interval=50 trainer.limit_val_batches=1 "
        "run.results_dir=/stage/results/24.11/fp8/340b/256 model.data.index_mapping_dir=/stage/index_mapping "
        "model.tokenizer.model=/cfg/nemotron_2_256k.model model.tensor_model_parallel_size=8 model.pipeline_model_parallel_size=8 "
        "model.virtual_pipeline_model_parallel_size=12 model.fp8=True trainer.enable_checkpointing=False "
        "exp_manager.explicit_log_dir=/stage/results/24.11/fp8/340b/256/results exp_manager.create_checkpoint_callback=False "
        "exp_manager.checkpoint_callback_params.model_parallel_size=64 model.ub_tp_comm_overlap=True model.sequence_parallel=True "
        "model.micro_batch_size=1 model.mcore_gpt=True model.transformer_engine=True model.fp8_hybrid=True "
        "model.nsys_profile.enabled=False +model.fp8_params=True",
    ),
    "maxtext": dgxc.info(
        "maxtext",
        model="llama2",
        size="70b",
        nodes=8,
        dtype="bf16",
        job="4711",
        config="use_iota_embed=true scan_layers=true per_device_batch_size=2 "
        "model_name=llama2-70b remat_policy=save_dot_except_mlpwi enable_checkpointing=false logits_dot_in_fp32=false "
        "base_output_directory=local_train dataset_path=local dataset_type=synthetic attention=cudnn_flash_te "
        "tokenizer_path=/opt/maxtext/assets/tokenizer.llama2 max_target_length=4096 quantization= hardware=gpu_multiprocess "
        "dcn_fsdp_parallelism=8 ici_fsdp_parallelism=8 ici_data_parallelism=1 dcn_data_parallelism=1 ici_tensor_parallelism=1 "
        "dcn_tensor_parallelism=1 monitor_goodput=False enable_goodput_recording=False profiler=nsys skip_first_n_steps_for_profiler=9 "
        "profiler_steps=3 remat_policy=custom query_proj=device mlpwo=device ",
        more=" MBS=2 ici_TP=1 ici_FSDP=8 ici_DP=1 dcn_TP=1 dcn_FSDP=8 dcn_DP=1 MEM_FRACTION=0.94 POLICY=save_dot_except_mlpwi QUANTIZATION=",
    ),
}


def given(dialect: str, key: str, value: object) -> str:
    """That line, with a hole where this key has its value."""
    line, hole = GIVEN[dialect], f"{key}={value} "
    assert line.count(hole) == 1
    return line.replace(hole, f"{key}={{}} ")


SAMPLES = [
    *(
        Sample("nemo1", given("nemo1", f"model.{key}", right), right, other, name, said)
        for key, name, right, other, said in (
            ("global_batch_size", "gbs", 64, 128, "this case's gbs is 64"),
            ("micro_batch_size", "mbs", 1, 2, "this case's mbs is 1"),
            ("tensor_model_parallel_size", "tp", 8, 4, "this case's tp is 8"),
            ("pipeline_model_parallel_size", "pp", 8, 4, "this case's pp is 8"),
            ("virtual_pipeline_model_parallel_size", "vp", 12, "null", "this case's vp is 12"),
            ("fp8", "fp8", True, False, "this case is fp8"),
        )
    ),
    *(
        Sample("maxtext", given("maxtext", key, right), right, other, name, said)
        for key, name, right, other, said in (
            ("per_device_batch_size", "sequences_per_gpu", 2, 4, "this case's number of sequences in a GPU's micro batch is 2"),
            ("max_target_length", "sequence_length", 4096, 8192, "this case's sequence_length is 4096"),
            ("quantization", "fp8", "", "fp8", "this case is bf16"),
            ("dcn_fsdp_parallelism", "dcn_fsdp", 8, 4, "this case's fsdp is 64"),
            ("ici_fsdp_parallelism", "ici_fsdp", 8, 4, "this case's fsdp is 64"),
            ("ici_data_parallelism", "ici_data", 1, 2, "this case's data is 1"),
            ("dcn_tensor_parallelism", "dcn_tensor", 1, 2, "this case's tensor is 1"),
        )
    ),
    # Also NeMo d2b21556 nemo/lightning/pytorch/strategies/megatron_strategy.py 519 and 526; so in nemo/collections/diffusion/readme.rst.
    *(
        Sample(dialect, line, CASES[dialect].gpus, CASES[dialect].gpus // 2, "processes", f"{PROCESSES} {CASES[dialect].gpus}")
        for dialect in ("nemo1", "nemo2", "dllogger")
        for line in (
            lightning.starting("{}"),
            lightning.initializing(0, "{}"),
            " 0: " + lightning.initializing(0, "{}"),
        )
    ),
    # NeMo d2b21556 nemo/lightning/megatron_init.py 441, 463, 484 and 516; so in NVIDIA-NeMo/Speech#11742.
    Sample("nemo2", NEMO + "Rank 0 has data parallel group : {}", [*range(0, 128, 8)], [*range(0, 64, 8)], "dp", "this case's dp is 16"),
    Sample("nemo2", NEMO + "Rank 0 has context parallel group: {}", [0, 4], [0, 4, 8, 12], "cp", "this case's cp is 2"),
    Sample("nemo2", NEMO + "Rank 0 has tensor model parallel group: {}", [0, 1, 2, 3], [0, 1], "tp", "this case's tp is 4"),
    Sample("nemo2", NEMO + "Rank 0 has pipeline model parallel group: {}", [0, 128, 256, 384], [0, 256], "pp", "this case's pp is 4"),
    # NeMo of 2023 has no blank before the colon.
    Sample("nemo1", NEMO + "Rank 0 has data parallel group: {}", [0, 8, 16, 24], [0, 8], "dp", "this case's dp is 4"),
    Sample("nemo1", NEMO + "Rank 0 has tensor model parallel group: {}", [*range(8)], [*range(4)], "tp", "this case's tp is 8"),
    Sample("nemo1", NEMO + "Rank 0 has pipeline model parallel group: {}", [*range(0, 256, 32)], [0, 128], "pp", "this case's pp is 8"),
    # nemo/lightning/megatron_parallel.py 611: that of d2b21556 has its blank before the comma, that of 2024 behind it.
    Sample("nemo2", NEMO + " > number of parameters on (tensor, pipeline) model parallel rank (0 ,0): {}", 4541186048, 2401927168, "first_stage", "this case's model has 4,540,"),
    Sample("nemo2", NEMO + " > number of parameters on (tensor, pipeline) model parallel rank (0, 0): {}", 4541186048, 8030261248, "first_stage", "this case's model has 4,540,"),
    # NeMo d2b21556 nemo/lightning/base.py 49.
    Sample("nemo2", NEMO + "Padded vocab_size: {}, original vocab_size: 128256, dummy tokens: 256.", 128512, 32000, "vocab", "this case's vocab is 128256"),
    # NeMo v2.0.0: examples/nlp/language_modeling/megatron_gpt_pretraining.py 38, as OmegaConf writes YAML and
    # nemo/utils/formatters/base.py indents it; keys of nemotron4-340b-synth.yaml (dgxc-benchmarking v24.11.1).
    Sample("nemo1", "      micro_batch_size: {}", 1, 2, "mbs", "this case's mbs is 1"),
    Sample("nemo1", "      global_batch_size: {}", 64, 128, "gbs", "this case's gbs is 64"),
    Sample("nemo1", "      tensor_model_parallel_size: {}", 8, 4, "tp", "this case's tp is 8"),
    Sample("nemo1", "      pipeline_model_parallel_size: {}", 8, 16, "pp", "this case's pp is 8"),
    Sample("nemo1", "      virtual_pipeline_model_parallel_size: {}", 12, "null", "vp", "this case's vp is 12"),
    Sample("nemo1", "      context_parallel_size: {}", 1, 2, "cp", "this case's cp is 1"),
    Sample("nemo1", "      encoder_seq_length: {}", 4096, 8192, "sequence_length", "this case's sequence_length is 4096"),
    Sample("nemo1", "      num_layers: {}", 96, 48, "layers", "this case's layers is 96"),
    Sample("nemo1", "      hidden_size: {}", 18432, 6144, "hidden", "this case's hidden is 18432"),
    Sample("nemo1", "      ffn_hidden_size: {}", 73728, 24576, "ffn", "this case's ffn is 73728"),
    Sample("nemo1", "      num_attention_heads: {}", 96, 48, "heads", "this case's heads is 96"),
    Sample("nemo1", "      num_query_groups: {}", 8, 96, "query_groups", "this case's query_groups is 8"),
    Sample("nemo1", "      fp8: {}", "true", "false", "fp8", "this case is fp8"),
    Sample("nemo1", "      precision: {}", "bf16", "16-mixed", "precision", "this case is fp8"),
    Sample("nemo1", "        buffer_size: {}", 1, 5, "buffer_size", "this case's number of steps that each printed time is the mean of is 1"),
    Sample("nemo1", "17:       num_layers: {}", 96, 48, "layers", "this case's layers is 96"),
    # NeMo v2.0.0 nemo/collections/nlp/models/language_modeling/megatron_gpt_model.py 1680.
    Sample("nemo1", NEMO + "Pipeline model parallel rank: 0, Tensor model parallel rank: 0, Number of model parameters on device: 5.77e+09. Number of precise model parameters on device: {}.", 341029634048, 15628806144, "parameters", "this case's model has 341,"),
    # Megatron-LM 878d65f megatron/training/arguments.py 395 to 408; core_v0.12.0 330 (its comma is missing); 0.8; core_v0.19.0.
    *(
        Sample("megatron_lm", line, 16, 32, "processes", f"{PROCESSES} 16")
        for line in (
            "using world size: {}, data-parallel size: 16, context-parallel size: 1, hierarchical context-parallel sizes: None, tensor-model-parallel size: 1, encoder-tensor-model-parallel size: 0, pipeline-model-parallel size: 1, encoder-pipeline-model-parallel size: 0",
            "using world size: {}, data-parallel size: 16, context-parallel size: 1, hierarchical context-parallel sizes: Nonetensor-model-parallel size: 1, encoder-tensor-model-parallel size: 0, pipeline-model-parallel size: 1, encoder-pipeline-model-parallel size: 0",
            "using world size: {}, data-parallel size: 16, context-parallel size: 1 tensor-model-parallel size: 1, pipeline-model-parallel size: 1",
            "using world size: {}, data-parallel size: 16, context-parallel size: 1, hierarchical context-parallel sizes: None, tensor-model-parallel size: 1, pipeline-model-parallel size: 1",
        )
    ),
    *(
        Sample("megatron_lm", f"using world size: 16, data-parallel size: {dp}, context-parallel size: {cp}, hierarchical context-parallel sizes: None, tensor-model-parallel size: {tp}, encoder-tensor-model-parallel size: 0, pipeline-model-parallel size: {pp}, encoder-pipeline-model-parallel size: 0", right, other, name, f"this case's {name} is {right}")
        for name, dp, cp, tp, pp, right, other in (
            ("dp", "{}", 1, 1, 1, 16, 8), ("cp", 16, "{}", 1, 1, 1, 2), ("tp", 16, 1, "{}", 1, 1, 2), ("pp", 16, 1, 1, "{}", 1, 2),
        )
    ),
    Sample("megatron_lm", argument("world_size"), 16, 8, "processes", f"{PROCESSES} 16"),
    Sample("megatron_lm", argument("tensor_model_parallel_size"), 1, 2, "tp", "this case's tp is 1"),
    Sample("megatron_lm", argument("pipeline_model_parallel_size"), 1, 2, "pp", "this case's pp is 1"),
    Sample("megatron_lm", argument("virtual_pipeline_model_parallel_size"), None, 2, "vp", "this case's vp is 1"),
    Sample("megatron_lm", argument("context_parallel_size"), 1, 2, "cp", "this case's cp is 1"),
    Sample("megatron_lm", argument("num_layers"), 12, 24, "layers", "this case's layers is 12"),
    Sample("megatron_lm", argument("hidden_size"), 512, 768, "hidden", "this case's hidden is 512"),
    Sample("megatron_lm", argument("ffn_hidden_size"), 2048, 3072, "ffn", "this case's ffn is 2048"),
    Sample("megatron_lm", argument("num_attention_heads"), 8, 12, "heads", "this case's heads is 8"),
    Sample("megatron_lm", argument("seq_length"), 1024, 2048, "sequence_length", "this case's sequence_length is 1024"),
    Sample("megatron_lm", argument("micro_batch_size"), 1, 4, "mbs", "this case's mbs is 1"),
    Sample("megatron_lm", argument("global_batch_size"), 32, 16, "gbs", "this case's gbs is 32"),
    Sample("megatron_lm", argument("data_parallel_size"), 16, 8, "dp", "this case's dp is 16"),
    Sample("megatron_lm", argument("num_experts"), None, 8, "experts", "this case's experts is 1"),
    # megatron/training/tokenizer/tokenizer.py (878d65f), megatron/core/tokenizers/utils/build_tokenizer.py (core_v0.19.0).
    Sample("megatron_lm", megatron_lm.padded(50257, "{}"), 50304, 32000, "vocab", "this case's vocab is 50304"),
    Sample("megatron_lm", "INFO:megatron.core.tokenizers.utils.build_tokenizer: > padded vocab (size: 50256) with 48 dummy tokens (new size: {})", 50304, 32000, "vocab", "this case's vocab is 50304"),
    Sample("megatron_lm", argument("fp8"), None, "hybrid", "fp8", "this case is fp16"),
    # Megatron-Bridge v0.3.0 src/megatron/bridge/training/setup.py 486 to 500 (YAML); v0.3.1 and later: config.py,
    # `log_non_default_values`, as in NVIDIA-NeMo/Megatron-Bridge#2974.
    *(
        Sample("megatron_bridge", f"  {key}: {{}}{behind}", right, other, name, f"this case's {name} is {right}")
        for key, name, right, other in (
            ("num_layers", "layers", 80, 32), ("hidden_size", "hidden", 8192, 4096), ("ffn_hidden_size", "ffn", 28672, 14336),
            ("num_attention_heads", "heads", 64, 32), ("num_query_groups", "query_groups", 8, 64),
            ("seq_length", "sequence_length", 8192, 131072), ("sequence_length", "sequence_length", 8192, 1024),
            ("tensor_model_parallel_size", "tp", 4, 8), ("pipeline_model_parallel_size", "pp", 8, 4),
            ("context_parallel_size", "cp", 1, 2), ("micro_batch_size", "mbs", 1, 2), ("global_batch_size", "gbs", 1024, 512),
            ("virtual_pipeline_model_parallel_size", "vp", 5, "None"), ("vocab_size", "vocab", 128256, 256000),
            ("num_moe_experts", "experts", 1, 8),
        )
        for behind in ("", "  (Mcore default: 0)")
    ),
    # MaxText 8e55ab1 MaxText/pyconfig.py 360, MaxText/max_utils.py 594, MaxText/train.py 622; v0.2.4 through absl.
    *(
        Sample("maxtext", before + maxtext.parameter(key), right, other, name, f"this case's {name} is {right}")
        for key, name, right, other in (
            ("emb_dim", "hidden", 8192, 4096), ("num_decoder_layers", "layers", 80, 1), ("mlp_dim", "ffn", 28672, 14336),
            ("num_query_heads", "heads", 64, 32), ("num_kv_heads", "query_groups", 8, 64), ("vocab_size", "vocab", 32000, 128256),
            ("num_experts", "experts", 1, 8), ("num_experts_per_tok", "top_k", 1, 2),
            ("max_target_length", "sequence_length", 4096, 8192), ("global_batch_size_to_train_on", "gbs", 128, 256),
            ("gradient_accumulation_steps", "ga", 1, 2),
        )
        for before in ("", ABSL + "pyconfig.py:584] ")
    ),
    Sample("maxtext", maxtext.parameter("micro_batch_size_to_train_on"), 128, 64, "micro_batch", "this case's micro batch of all GPUs is 128"),
    Sample("maxtext", maxtext.parameter("per_device_batch_size"), "2.0", "1.0", "sequences_per_gpu", "this case's number of sequences in a GPU's micro batch is 2"),
    Sample("maxtext", ABSL + "pyconfig.py:584] " + maxtext.parameter("per_device_batch_size"), 2, 4, "sequences_per_gpu", "this case's number of sequences in a GPU's micro batch is 2"),
    Sample("maxtext", maxtext.parameter("dtype"), "bfloat16", "float32", "precision", "this case is bf16"),
    Sample("maxtext", maxtext.parameter("quantization"), "", "fp8", "fp8", "this case is bf16"),
    Sample("maxtext", maxtext.parameter("quantization"), "None", "int8", "fp8", "this case is bf16"),
    Sample("maxtext", ABSL + "pyconfig.py:584] " + maxtext.parameter("quantization"), "QuantizationType.NONE", "QuantizationType.FP8", "fp8", "this case is bf16"),
    Sample("maxtext", maxtext.devices("{}"), 64, 128, "processes", f"{PROCESSES} 64"),
    Sample("maxtext", ABSL + "maxtext_utils.py:2274] " + maxtext.devices("{}", "1, 1, 64, 1, 1, 1, 1, 1, 1, 1, 1, 1"), 64, 8, "processes", f"{PROCESSES} 64"),
    Sample("maxtext", "number parameters: {} billion", "68.977", "6.738", "million_parameters", "this case's model has 68,"),
]  # fmt: skip


# Of each communicator, and one for each process, with NCCL_DEBUG=INFO.
COMMUNICATORS = [
    # NCCL 2.18.5 src/init.cc 1356 and 1375.
    "gpu001:57:214 [7] NCCL INFO comm 0x55c13a6640d0 rank 15 nranks {} cudaDev 7 nvmlDev 7 busId e0000 commId 0x46cbea2567b59372 - Init START",
    "gpu001:57:214 [7] NCCL INFO comm 0x55c13a6640d0 rank 15 nranks {} cudaDev 7 nvmlDev 7 busId e0000 commId 0x46cbea2567b59372 - Init COMPLETE",
    # 2.21.5 1541, 1544 and 1160.
    "gpu001:57:214 [7] NCCL INFO ncclCommInitRank comm 0x55c13a6640d0 rank 15 nranks {} cudaDev 7 nvmlDev 7 busId e0000 commId 0x46cbea2567b59372 - Init COMPLETE",
    "gpu001:57:214 [7] NCCL INFO ncclCommSplit comm 0x55c13a6640d0 rank 15 nranks {} cudaDev 7 nvmlDev 7 busId e0000 parent 0x5624aab80dd0 color 1 key 0 commId 0x46cb - Init COMPLETE",
    "[default0]:gpu001:78:108 [0] NCCL INFO comm 0x55bde5d092d0 rank 0 nRanks {} nNodes 2 localRanks 8 localRank 0 MNNVL 0",
    # 2.23.4 1440 and 1454, 2.25.1 1385, 2.28.9 1574.
    "gpu001:57:214 [7] NCCL INFO ncclCommSplit comm 0x55c13a6640d0 rank 15 nranks {} cudaDev 7 nvmlDev 7 busId e0000 parent 0x5624aab80dd0 color 1 key 0- Init START",
    "gpu001:57:214 [7] NCCL INFO ncclCommSplit comm 0x55c13a6640d0 rank 15 nranks {} cudaDev 7 nvmlDev 7 busId e0000 parent 0x5624aab80dd0 splitCount 3 color 1 key 0 - Init COMPLETE",
    "gpu001:57:214 [7] NCCL INFO ncclCommInitRankConfig comm 0x55c13a6640d0 rank 15 nranks {} cudaDev 7 nvmlDev 7 busId e0000 commId 0x46cb - Init COMPLETE",
    # 2.29.7 1699, with its time as NCCL_DEBUG_TIMESTAMP_LEVELS asks for it; mpirun before it.
    "[2026-01-02 03:04:05] gpu001:57:214 [2] NCCL INFO [Rank 2] ncclCommInitRankConfig comm 0x5624aab80dd0 rank 2 nranks {} cudaDev 2 nvmlDev 2 busId 49000 commId 0x2609201f6848b74c - Init START",
    "[1,5]<stdout>:gpu001:18101:18135 [5] NCCL INFO comm 0x7f3804000fa0 rank 5 nranks {} cudaDev 5 busId 3bfd00000 - Init COMPLETE",
]
STARTING = lightning.starting("{}")

GPU_LINES = [
    # XLA: xla/service/service.cc, of JAX 0.11 and, with round brackets, of older ones.
    "I1122 01:31:04.147770    3126 service.cc:170]   StreamExecutor [0]: {}, Compute Capability 9.0a (Driver: 13.0.0[580.159.4]; Runtime: 13.0.0; Toolkit: 13.0.0; DNN: 9.19.0)",
    "I0000 00:00:1735689600.000000    3126 service.cc:156]   StreamExecutor device (0): {}, Compute Capability 9.0",
    lightning.tensor_cores("{}"),
    # nvidia-smi -L, and its table.
    "GPU 0: {} (UUID: GPU-5b7c8e1a-0000-1111-2222-333344445555)",
    "|   0  {:<28}  On  |   00000000:1B:00.0 Off |                    0 |",
    # Our launchers.
    "node gpu001, GPUs and driver: 8 {}, 550.144.03",
]


def asked(dialect: str, nodes: object = None, devices: object = 8, job: str = JOB) -> str:
    """What each process of the case echoes first."""
    case = CASES[dialect]
    return dgxc.info(
        "maxtext" if dialect == "maxtext" else "nemo",
        model="llama2" if dialect == "maxtext" else "nemotron4",
        size=case.model_name,
        nodes=case.gpus // 8 if nodes is None else nodes,
        devices=devices,
        dtype=case.dtype,
        job=job,
        config=" model.global_batch_size=64 trainer.num_nodes=32",
    )


# What an attempt begins with: one process prints it once.
BEGINNINGS = [
    ("nemo2", STARTING.format(512)),
    ("nemo1", STARTING.format(256)),
    (
        "nemo1",
        "[NeMo I 2024-11-20 10:11:12 megatron_gpt_pretraining:38] \n    \n    ************** Experiment configuration ***********",
    ),
    ("megatron_lm", "using world size: 16, data-parallel size: 16, context-parallel size: 1, tensor-model-parallel size: 1, pipeline-model-parallel size: 1"),
    *((dialect, line) for dialect in ("megatron_lm", "megatron_bridge") for line in ("time to initialize megatron (seconds): 21.204", "done with setup ...")),
    ("dllogger", record()),
    ("dllogger", STARTING.format(512)),
]  # fmt: skip
