"""Prints what Megatron-Bridge at 06f25c227 and at b50da4c74 prints while it trains, at the published pace, and trains nothing.

As `tests.printed.megatron_bridge`; by src/megatron/bridge/training: config.py lines 1425 to 1434 (what differs from the
defaults), utils/train_utils.py lines 783 (by rank 0) and 821 to 873 (by the last rank). Both processes write at once, so that their lines meet.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

from plugins.baselines.metrics import FlopsDefinition, flops_per_sequence
from plugins.recipes.models import Model
from plugins.recipes.recipe_file import read_recipe
from tests.lab.stage import REPOSITORY
from tests.lab.standin import OTHER_RANK, StandIn, stage_knobs
from tests.printed import megatron_bridge, megatron_lm

# By Megatron-Bridge's name of a model: that in its tables, the sequence length, and the TFLOP/s of a GPU by precision.
MODELS: dict[str, tuple[str, int, dict[str, float]]] = {
    "llama3_70b": ("llama3-70b", 8192, {"fp8_cs": 731.0}),
    "nemotron_3_nano": ("nemotron-3-nano", 8192, {"fp8_mx": 726.0}),
    "qwen3_30b_a3b": ("qwen3-30b-a3b", 4096, {"fp8_mx": 1029.0}),
    "deepseek_v3": ("deepseek-v3", 4096, {}),
}
UNPUBLISHED = 200.0
DTYPES = {
    "bf16": {},
    "fp8_cs": {"fp8": "hybrid", "fp8_recipe": "tensorwise"},
    "fp8_mx": {"fp8": "e4m3", "fp8_recipe": "mxfp8"},
}
# The name of an experiment: utils/utils.py, line 164.
NAME = re.compile(
    r"pretrain_(?P<model>\w+?)_(?P<dtype>bf16|fp8_cs|fp8_mx)_gpus(?P<gpus>\d+)_tp(?P<tp>\d+)_pp(?P<pp>\d+)_cp(?P<cp>\d+)"
    r"_vp(?P<vp>\d+|None)_ep(?P<ep>\d+)_etp\w+_mbs(?P<mbs>\d+)_gbs(?P<gbs>\d+)"
)


class MegatronBridge(StandIn):
    """The lines of rank 0 and of the last rank."""

    work = 0.0

    def say_configuration(self, facts: dict[str, Any]) -> None:
        self.say(f"{'=' * 70}\nConfiguration Summary (Non-Default Values vs Megatron Core)\n{'=' * 70}\n")
        for name, value in sorted(facts.items()):
            self.say(megatron_bridge.setting(name, value) + "\n")

    def say_step(self, step: int, seconds: float) -> None:
        rate = megatron_bridge.rate(seconds, self.work / seconds)
        line = megatron_lm.line(
            step + 1, seconds * 1000, total=self.steps, gbs=self.gbs, loss=self.loss(step)
        )
        # The last rank may be the first to write, and another one may write between the two.
        self.say(rate + ("" if step % 3 else f"\n{OTHER_RANK}\n") + line + "\n")


def smaller(model: Model, layers: int, experts: int) -> Model:
    """DeepSeek-V3 with so many layers, of which three are dense, and one more for multi-token prediction."""
    counts = {"latent-attention": layers + 1, "experts": layers - 3 + 1}
    blocks = tuple(
        block.model_copy(update={"layers": counts.get(block.kind, block.layers)}) for block in model.blocks
    )
    return model.model_copy(update={"layers": layers, "experts": experts, "blocks": blocks})


def main(folder: Path) -> int:
    plan = json.loads((folder / "configs" / "plan.json").read_text())
    named = NAME.fullmatch(plan["name"])
    assert named, plan["name"]
    sizes = {key: 1 if value == "None" else int(value) for key, value in named.groupdict().items() if key not in ("model", "dtype")}  # fmt: skip
    name, sequence_length, rates = MODELS[named["model"]]
    tflops = rates.get(named["dtype"], UNPUBLISHED)
    model = read_recipe(REPOSITORY / "suites" / "megatron_bridge").models[name]
    words = plan["arguments"]
    if "--num_layers" in words:
        layers, experts = (int(words[words.index(key) + 1]) for key in ("--num_layers", "--num_moe_experts"))
        model = smaller(model, layers, experts)
    flops = flops_per_sequence(model, sequence_length, FlopsDefinition(definition="causal-attention"))
    arguments = dict(argument.partition("=")[::2] for argument in words)
    steps = arguments.get("--max_steps") or words[words.index("--max_steps") + 1]
    work = sizes["gbs"] * flops / sizes["gpus"] / 1e12
    trainer = MegatronBridge(stage_knobs(), step_time=work / tflops, gbs=sizes["gbs"], steps=int(steps))
    trainer.work = work
    facts: dict[str, Any] = {
        **DTYPES[named["dtype"]],
        "num_layers": model.layers,
        "hidden_size": model.hidden,
        "num_attention_heads": model.heads,
        "seq_length": sequence_length,
        "params_dtype": megatron_bridge.Bare("torch.bfloat16"),
        "tensor_model_parallel_size": sizes["tp"],
        "pipeline_model_parallel_size": sizes["pp"],
        "context_parallel_size": sizes["cp"],
        "micro_batch_size": sizes["mbs"],
        "global_batch_size": trainer.gbs,
    }
    if sizes["vp"] > 1:
        facts["virtual_pipeline_model_parallel_size"] = sizes["vp"]
    if model.experts > 1:
        facts |= {"num_moe_experts": model.experts, "expert_model_parallel_size": sizes["ep"]}
        facts |= {"moe_router_topk": model.top_k, "moe_router_force_load_balancing": True}
    trainer.ranks.warn()
    trainer.say_configuration(facts)
    return trainer.run()


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
