"""The size and work of a case's model: parameters, and the FLOPs and tokens of a step on a GPU. Pure."""

from __future__ import annotations

from plugins.baselines.metrics import FlopsDefinition, flops_per_sequence
from plugins.logs import FlopsName, Log, Step
from plugins.recipes.cases import Case
from plugins.recipes.models import Model

FLOPS_MARGIN = 0.001
"""If time and rate are on one line, their product may be off by this share. Other models differ by more."""


def parameters(model: Model) -> float:
    """The parameters of the whole model, without norms and biases, with a separate output layer."""
    return model.layers * _of_a_layer(model) + 2.0 * model.vocab * model.hidden


def first_stage(case: Case) -> float:
    """The parameters that rank 0 holds: its tensor parallel share of the first pipeline stage.

    If the layers do not divide evenly, the embedding and the output layer count as one layer each, as with
    NeMo's `account_for_..._in_pipeline_split`.
    """
    model, embeddings = case.model, case.model.vocab * case.model.hidden
    if case.pp == 1:
        embeddings *= 2
    layers = model.layers / case.pp
    if model.layers % (case.pp * case.vp) != 0:
        layers = (model.layers + 2) / case.pp - 1
    return (layers * _of_a_layer(model) + embeddings) / case.tp


def _of_a_layer(model: Model) -> float:
    """The parameters of a decoder layer's matrices: attention, MLPs with or without a gate, and their router."""
    attention = 2.0 * model.hidden**2 * (1 + model.query_groups / model.heads)
    router = model.hidden * model.experts if model.experts > 1 else 0
    matrices = 3 if model.mlp == "gated" else 2
    return attention + router + model.experts * matrices * model.hidden * model.ffn


def flops_of_a_step(case: Case, name: FlopsName) -> float:
    """The model FLOPs of a step on one GPU, by this definition."""
    sequence = flops_per_sequence(case.model, case.sequence_length, FlopsDefinition(definition=name))
    return case.gbs * sequence / case.gpus


def flops_printed(case: Case, log: Log) -> dict[int, float]:
    """Step time x rate of each settled step by its index, if the two are not printed on one line."""
    return {
        step.index: (step.rated_seconds or step.seconds or 0.0) * step.tflops_per_gpu * 1e12
        for step in log.steps
        if (step.rated_seconds or step.seconds)
        and step.tflops_per_gpu
        and step.flops_per_gpu is None
        and step.index >= case.means.warm_up(case.steps)
    }


def uncounted(case: Case, log: Log) -> str:
    """The remark on a log that states a rate of 0.0 throughout, because its framework counts no FLOPs of such a model; "" on others.

    So does Megatron-Bridge up to v0.2.0 with Mamba layers (flop_utils.py 345; NVIDIA-NeMo/Megatron-Bridge#1499, mended in v0.2.1).
    """
    rates = [step.tflops_per_gpu for step in log.steps if step.tflops_per_gpu is not None]
    if not rates or any(rates) or all(block.kind != "mamba" for block in case.model.blocks):
        return ""
    known = "as Megatron-Bridge up to v0.2.0 (container 25.11) does of a model with Mamba layers"
    return f"every line states 0.0 TFLOP/s a GPU, {known}: the rate tells nothing of the model; judged by the step times"


def counted_by(case: Case, log: Log) -> FlopsName:
    """The first of the format's definitions of FLOPs by which all rates fit the case's model.

    If none fits, it is the first of all. Half the sequence length by full attention has as many FLOPs as the
    whole length by causal attention. So if the log does not state the sequence length, only the first
    definition is tried.
    """
    names = log.flops
    if not any(fact.name == "sequence_length" for fact in log.facts):
        names = names[:1]
    for name in names:
        flops = flops_of_a_step(case, name)
        if not any(other_work(case, step, flops) for step in log.steps):
            return name
    return log.flops[0]


def other_work(case: Case, step: Step, flops: float) -> str:
    """Why a GPU did other work in this step than the case's; "" if it did not, or if it is unknown."""
    tokens = case.tokens_per_step / case.gpus
    if step.tokens_per_gpu is not None and tokens not in step.tokens_per_gpu:
        low, high = step.tokens_per_gpu.low, step.tokens_per_gpu.high
        return f"step time x tokens/s is {low:.0f} to {high:.0f} tokens a GPU at step {step.index}, this case runs {tokens:.0f}"
    done = step.flops_per_gpu
    if done is None or (flops * (1 + FLOPS_MARGIN) >= done.low and flops * (1 - FLOPS_MARGIN) <= done.high):
        return ""
    return (
        f"step time x TFLOP/s is {done.low / 1e12:.1f} to {done.high / 1e12:.1f} TFLOP a GPU at step {step.index}, this case's "
        f"model is {flops / 1e12:.1f}"
    )
