"""Megatron-Bridge: the last rank prints Megatron-LM's iteration line, and rank 0 a line of its own.

    Step Time : 5.66s GPU utilization: 1190.9MODEL_TFLOP/s/GPU [2026-03-27 23:09:42] iteration        9/      50 |
    consumed samples:         1152 | elapsed time per iteration (ms): 5683.2 | ... |

Two processes write at the same time, so the two may be on one line or on two. Rank 0's line names no
iteration, and its time is by rank 0's own clock. It counts for the next iteration if it is the only such line
before it; late, it is of the iteration before. The step time is that of the iteration line. Iterations are
1-based; times are in milliseconds (rank 0: seconds).
"""

from __future__ import annotations

import re
from dataclasses import replace

from plugins.logs.log import Fact, Log
from plugins.logs.megatron_lm import SETUP, MegatronLM
from plugins.logs.statements import ANCHOR, ARGUMENTS, Statement

_UTILIZATION = re.compile(
    r"Step Time : (\d{1,9}\.\d\d)s GPU utilization: (\d{1,9}\.\d) ?(?:MODEL_)?TFLOP/s/GPU"
)
# In YAML a dtype has lines of its own (src/megatron/bridge/utils/yaml_utils.py 120).
_DTYPES: dict[str, int | str] = {"torch.bfloat16": "bf16", "torch.float16": "fp16", "torch.float32": "fp32"}
_DTYPE = re.compile(rf"{ANCHOR}  params_dtype:\s*$")
_TARGET = re.compile(rf"{ANCHOR}    _target_: (torch\.\w+)\s*$")

_SWITCH: dict[str, int | str] = {"true": True, "True": True, "false": False, "False": False}


def _setting(
    key: str, fact: str, words: dict[str, int | str] | None = None, *, any_word: bool = False
) -> Statement:
    """A key of the configuration, in YAML or in the summary of what differs from the defaults."""
    return Statement(
        f"  {key}: ".encode(),
        rf"{ANCHOR}  {key}: '?(?P<{fact}>[\w.]+)'?(?:  \(Mcore default: .*|\s*)$",
        words or {},
        any_word,
    )


# src/megatron/bridge/training/setup.py 486 to 500 (v0.3.0), config.py (v0.3.1 and later): rank 0 prints them,
# and once more before all values are known. A run in FP8 states FP8 in one of several places, and null in
# others.
STATEMENTS = (
    *SETUP,
    *(_setting(key, fact) for key, fact in ARGUMENTS.items()),
    _setting("num_query_groups", "query_groups"),
    _setting("seq_length", "sequence_length"),
    _setting("sequence_length", "sequence_length"),
    _setting("virtual_pipeline_model_parallel_size", "vp", {"null": 1, "None": 1}),
    _setting("expert_model_parallel_size", "ep"),
    _setting("vocab_size", "vocab"),
    _setting("num_moe_experts", "experts", {"null": 1, "None": 1}),
    _setting("moe_router_topk", "top_k"),
    _setting(
        "moe_expert_capacity_factor",
        "expert_capacity",
        {"null": "none", "None": "none", "1": "1.0"},
        any_word=True,
    ),
    _setting(
        "moe_router_force_load_balancing",
        "balanced",
        _SWITCH,
    ),
    _setting("params_dtype", "precision", _DTYPES),
    _setting("global_batch_size", "gbs"),
    _setting("fp8", "fp8", {"hybrid": True, "e4m3": True, "null": False, "None": False}),
    _setting(
        "fp8_recipe", "fp8_recipe", {name: name for name in ("delayed", "tensorwise", "blockwise", "mxfp8")}
    ),
    _setting("fp4", "fp8", {"e2m1": "fp4"}),
    _setting("use_megatron_fsdp", "sharded", _SWITCH),
)


class MegatronBridge(MegatronLM):
    """Parses the lines of `training_log` in Megatron-Bridge's train_utils.py (releases around 26.02)."""

    hints = (*MegatronLM.hints, b"TFLOP/s/GPU")
    asides = (*MegatronLM.asides, b" params_dtype:", b" _target_: torch.", b"checkpoint:", b"] Non-default values ")  # fmt: skip
    statements = STATEMENTS
    # The first section of the YAML, whose keys are sorted, and the first of the summary.
    top = re.compile(r"^(?P<prefix>.*\S)?(?P<blanks> *)(?:checkpoint:\s*$|\[\w+\] Non-default values )")
    tells = "routing"

    def __init__(self) -> None:
        super().__init__()
        # (TFLOP/s/GPU, seconds) since the last iteration. More than one is ambiguous, so two are enough.
        self._pending: list[tuple[float, float]] = []
        self._in_dtype = False

    def read_line(self, line: str, *, ended: bool) -> None:
        place = 0
        for match in _UTILIZATION.finditer(line):
            super().read_line(line[place : match.start()], ended=True)
            self._pending = [*self._pending[:1], (float(match[2]), float(match[1]))]
            place = match.end()
        super().read_line(line[place:], ended=ended)

    def read_aside(self, line: str) -> None:
        super().read_aside(line)
        if _DTYPE.search(line):
            self._in_dtype = True
            return
        target = _TARGET.search(line)
        if self._in_dtype and target:
            self._in_dtype = False
            if target[1] in _DTYPES:
                self._stated.keep(Fact("precision", _DTYPES[target[1]], f"params_dtype: {target[1]}"))

    def log(self) -> Log:
        log = super().log()
        return replace(log, facts=tuple(fact for fact in log.facts if not _replaced(fact, log.facts)))

    def utilization(self, fields: dict[str, str]) -> tuple[float | None, float | None]:  # noqa: ARG002 - rank 0 prints it
        pending, self._pending = self._pending, []
        if len(pending) != 1:
            return None, None
        return pending[0]


def _replaced(fact: Fact, facts: tuple[Fact, ...]) -> bool:
    """Whether another place states what holds instead: FP8, the dtype of the parameters, the model's vocabulary.

    Two sections have `use_megatron_fsdp`, and either switches it on in both (src/megatron/bridge/training/config.py, `validate`).
    """
    rivals = [rival for rival in facts if rival.name == fact.name and rival is not fact]
    if fact.name in ("fp8", "sharded"):
        return not fact.value and any(rival.value for rival in rivals)
    if fact.name == "fp8_recipe":
        # It is stated also where nothing is in FP8, and `delayed` before the run's own is known.
        in_fp8 = any(stated.name == "fp8" and stated.value is True for stated in facts)
        return not in_fp8 or (fact.value == "delayed" and bool(rivals))
    if fact.value == "fp32":
        return any(rival.said.startswith("params_dtype") for rival in rivals)
    return fact.name == "vocab" and any(int(rival.value) > int(fact.value) for rival in rivals)
