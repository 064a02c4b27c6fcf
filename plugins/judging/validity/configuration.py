"""Whether what the log states of its run agrees with the case. A log of another case must not pass. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator
from itertools import product

from plugins.base.words import counted
from plugins.judging.identity import gpu_names, summarised, unstated
from plugins.judging.model import (
    counted_by,
    first_stage,
    flops_of_a_step,
    flops_printed,
    other_work,
    parameters,
)
from plugins.judging.validity.run import Check, TimedRun, listed, quoted
from plugins.logs import Step
from plugins.logs.log import GPU_NAME, Fact, type_of
from plugins.recipes.cases import Case

LINE_MARGIN, OTHER_LINES = 0.1, 0.25
"""In at most this share of the lines the rate may differ more than by this share: a step stalled, and its rate is the next one's."""

RATE_MARGIN = 0.02
"""If time and rate are not on one line, the median of their product may be off by this share."""

PARAMETERS_MARGIN = 0.10
"""A stated number of parameters may differ from ours by this share.

Vocabularies are padded, norms and biases may count, and a stage may have a layer more. Other models are a
multiple away.
"""

VOCABULARY_MARGIN = 0.01
"""A stated vocabulary may differ from the case's by this share: it is padded, or counts a token for the end."""

# A format that states its configuration must state these: half the work or another dtype may look like the
# case.
_DEMANDED = {"sequence_length": "the sequence length", "fp8": "whether it computed in FP8"}

_DTYPE = ("fp8", "fp8_recipe", "precision")
_ROUTING = ("expert_capacity", "balanced")
_DEFAULTS: dict[str, int | str] = {
    "tp": 1,
    "pp": 1,
    "vp": 1,
    "cp": 1,
    "ep": 1,
    "experts": 1,
    "top_k": 2,
    "sharded": False,
    "fp8": False,
}
"""Megatron Core's defaults (megatron/core at 02aa3ee: model_parallel_config.py, transformer/transformer_config.py,
distributed/distributed_data_parallel_config.py)."""

_WORDS = {
    "processes": "number of processes",
    "buffer_size": "number of steps that each printed time is the mean of",
    "micro_batch": "micro batch of all GPUs",
    "sharded": "sharding by Megatron FSDP",
    "sequences_per_gpu": "number of sequences in a GPU's micro batch",
}


def demanded(run: TimedRun) -> Iterator[str]:
    """If the format states the configuration of its runs, this log states it."""
    if run.log.tells != "configuration":
        return
    if not run.log.facts:
        yield "the log does not state its run's configuration: its record (PARAMETER) is missing"
        return
    missing = unstated(run.log.facts, _DEMANDED)
    if missing:
        yield f"the log does not state {missing}: its record (PARAMETER) is garbled"


def facts(run: TimedRun) -> Iterator[str]:
    case = run.case
    values = {
        **case.facts(),
        "processes": case.gpus,
        "buffer_size": case.means.over,
        "size": case.model_name,
    }
    routed = _is_routed(run)
    for fact in run.log.facts:
        if fact.name not in values or _agrees(fact, values[fact.name]):
            continue
        if fact.name == "top_k" and not routed:
            continue
        quote = quoted(fact)
        lines = [rival.lines for rival in run.log.facts if rival.name == fact.name]
        if max(lines) > fact.lines:
            quote += f" in {fact.lines} of {counted(sum(lines), 'line')}"
        if fact.name in _DTYPE:
            yield f"{quote}, this case is {case.dtype}"
        elif fact.name in _ROUTING:
            yield f"{quote}, {_routed(case)}"
        else:
            yield f"{quote}, this case's {_WORDS.get(fact.name, fact.name)} is {values[fact.name]}"


def _is_routed(run: TimedRun) -> bool:
    """Whether the log leaves open that tokens go to experts.

    Without experts the number of a token's experts means nothing. Megatron Core prints its default of 2 there
    (megatron/core/transformer/transformer_config.py at core_v0.14.0: `moe_router_topk`, `num_moe_experts`).
    """
    return {fact.value for fact in run.log.facts if fact.name == "experts"} != {1}


def _agrees(fact: Fact, value: int | str) -> bool:
    if fact.name == "vocab" and isinstance(fact.value, int) and isinstance(value, int):
        return abs(fact.value / value - 1) <= VOCABULARY_MARGIN
    return fact.value == value


def fp8_recipe(run: TimedRun) -> Iterator[str]:
    """A run in FP8 that states no recipe has the default one, delayed scaling: the summary prints what is no default."""
    wanted = run.case.facts().get("fp8_recipe")
    in_fp8 = any(fact.name == "fp8" and fact.value is True for fact in run.log.facts)
    if wanted and in_fp8 and not any(fact.name == "fp8_recipe" for fact in run.log.facts):
        yield f"the log states FP8 and no recipe of it, which is delayed scaling; this case is {run.case.dtype}"


def defaults(run: TimedRun) -> Iterator[str]:
    """What a summary does not state is as by default: the summary leaves out what is a default."""
    summary = summarised(run.log.facts, "hidden")
    if summary is None or summarised(run.log.facts, "layers") is None:
        return
    stated, values = {fact.name for fact in run.log.facts}, run.case.facts()
    for name, default in _DEFAULTS.items():
        unrouted = name == "top_k" and run.case.model.experts == 1
        if name in stated or values[name] == default or unrouted:
            continue
        if name == "fp8":
            yield f"{quoted(summary)} and neither FP8 nor FP4, so that it ran without; this case is {run.case.dtype}"
        else:
            word = _WORDS.get(name, name)
            yield f"{quoted(summary)} and no {word}, which is then {default}; this case's {word} is {values[name]}"


def routing(run: TimedRun) -> Iterator[str]:
    """A run whose summary states no routing has the default one: the summary leaves out what is a default."""
    summary = summarised(run.log.facts, "experts")
    stated = {fact.name for fact in run.log.facts}
    missing = "expert_capacity" if run.case.drops_tokens else "balanced"
    if run.case.model.experts > 1 and summary is not None and missing not in stated:
        default = "drops no token" if run.case.drops_tokens else "leaves the experts to the router"
        yield f"{quoted(summary)} and no routing of its own, which {default}; {_routed(run.case)}"


def _routed(case: Case) -> str:
    """How the tokens of a case go to its experts, in words."""
    if case.drops_tokens:
        return "this case drops tokens beyond an even share"
    return "this case drops no token, and balances its experts by force"


def job(run: TimedRun) -> Iterator[str]:
    for fact in run.log.facts:
        job = run.started.job
        if fact.name == "job" and job.isdecimal() and fact.value != int(job):
            yield f"{quoted(fact)}, this case's job is {job}"


def groups(run: TimedRun) -> Iterator[str]:
    """No group of processes is larger than the case.

    If nothing else states the number of processes, the largest group of NCCL has all of them. Gloo's largest
    group has the data parallel ones only.
    """
    gpus, stated = run.case.gpus, run.numbers
    for name in ("group", "peers"):
        if name not in stated:
            continue
        # A process does not count itself among its peers.
        most, fact = max(
            ((n + (name == "peers"), fact) for n, fact in stated[name]), key=lambda pair: pair[0]
        )
        if most > gpus or (name == "group" and most < gpus and "processes" not in stated):
            yield f"{quoted(fact)}: its largest group has {most} processes, this case has {gpus}"


def nodes(run: TimedRun) -> Iterator[str]:
    """Nodes x GPUs of a node, as asked for, is the case's number of GPUs."""
    requests = product(run.numbers.get("asked_nodes", ()), run.numbers.get("asked_devices", ()))
    for (count, node), (devices, device) in requests:
        if count * devices != run.case.gpus:
            yield f'{quoted(node)} and "{device.said}", this case has {counted(run.case.gpus, "GPU")}'
            return


def mesh(run: TimedRun) -> Iterator[str]:
    """Each axis of MaxText's mesh of GPUs has the case's size. An axis that no case shards over has the size 1.

    For each axis MaxText prints a size within a slice (`ici`) and one over all slices (`dcn`); a node is a slice. -1 is
    what the other axes leave. Source: MaxText/max_utils.py, `fill_unspecified_mesh_axes` (8e55ab1).
    """
    case = run.case
    sizes = {"data": case.dp, "fsdp": case.fsdp, "tensor": case.tp, "pipeline": case.pp, "context": case.cp}
    for name in [name for name in run.numbers if name.startswith("ici_")]:
        axis = name.removeprefix("ici_")
        expected = sizes.get(axis, 1)
        for (inner, within), (outer, over) in product(run.numbers[name], run.numbers.get(f"dcn_{axis}", ())):
            size = _axis_size(run, "ici", inner) * _axis_size(run, "dcn", outer)
            if size not in (0, expected):
                yield f'{quoted(within)} and "{over.said}", which is {size}; this case\'s {axis} is {expected}'
                break


def _axis_size(run: TimedRun, place: str, size: int) -> int:
    """The size of an axis; 0 if it is what the others leave and that is not known."""
    slices = max((count for count, _ in run.numbers.get("slices", ())), default=0)
    if size != -1 or not slices:
        return max(0, size)
    sizes = [stated[0][0] for name, stated in run.numbers.items() if name.startswith(f"{place}_")]
    total = {"ici": run.case.gpus // slices, "dcn": slices}[place]
    return total // math.prod(other for other in sizes if other > 0)


def parameter_counts(run: TimedRun) -> Iterator[str]:
    model = run.case.model
    if model.blocks:
        # Its layers are not alike, and which of them a rank holds is not stated.
        return
    counts = {
        "parameters": parameters(model),
        "million_parameters": parameters(model) / 1e6,
        "first_stage": first_stage(run.case),
    }
    for fact in run.log.facts:
        if fact.name not in counts or not isinstance(fact.value, int):
            continue
        if abs(fact.value / counts[fact.name] - 1) > PARAMETERS_MARGIN:
            yield f"{quoted(fact)}, this case's model has {counts[fact.name]:,.0f}"


def gpus(run: TimedRun) -> Iterator[str]:
    """The GPUs are of one type, the case's. `NVIDIA H100 80GB HBM3` and `NVIDIA H100 SXM` are one type."""
    names = gpu_names(run.log)
    if len({type_of(name) for name in names}) > 1:
        lines = {str(fact.value): fact.lines for fact in run.log.facts if fact.name == "gpu"}
        stated = {name: f" ({counted(count, 'line')})" for name, count in lines.items()}
        named = [f"{name}{stated.get(name, '')}" for name in names]
        yield f"the log is of GPUs of several types: {', '.join(named)}"
        return
    if run.part is None:
        return
    wanted = GPU_NAME.search(run.part.name)
    if wanted is None:
        return
    for name in names:
        match = GPU_NAME.search(name)
        if match is None and name.startswith("NVIDIA "):
            continue
        if match is None or (match[1].upper(), match[2]) != (wanted[1].upper(), wanted[2]):
            yield f"the log is of {name}, this case is judged as of {run.part.name}"


def rate(run: TimedRun) -> Iterator[str]:
    """The printed rate is that of the case's model, by any of the format's definitions of FLOPs."""
    flops = flops_printed(run.case, run.log)
    if not flops:
        return
    done = statistics.median(flops.values())
    models = [flops_of_a_step(run.case, name) for name in run.log.flops]
    if not any(abs(done / model - 1) <= RATE_MARGIN for model in models):
        words = " or ".join(f"{model / 1e12:.1f}" for model in models)
        yield f"step time x TFLOP/s is {done / 1e12:.1f} TFLOP a GPU, this case's model is {words}"
        return
    # A rate may be that of the step before, or the mean of a few.
    deviating = [
        index
        for index, flop in flops.items()
        if not any(abs(flop / model - 1) <= LINE_MARGIN for model in models)
    ]
    if len(deviating) > max(2, len(flops) * OTHER_LINES):
        yield f"{listed(deviating)}: step time x TFLOP/s is {flops[deviating[0]] / 1e12:.1f} TFLOP a GPU, elsewhere {done / 1e12:.1f}"


def batch(run: TimedRun) -> Iterator[str]:
    """Each step has the case's batch, tokens and FLOPs. The first other one is named, the rest counted."""
    steps = run.log.steps
    if all(step.gbs is None and step.consumed_samples is None and step.tokens is None for step in steps):
        yield "no line states the global batch size, the consumed samples or the tokens of a step"
        return
    flops = flops_of_a_step(run.case, counted_by(run.case, run.log))
    wrong = [reason for reason in (_other_batch(run, step, flops) for step in steps) if reason]
    yield from wrong[:1]
    if len(wrong) > 1:
        yield f"and {len(wrong) - 1} more such steps"


def _other_batch(run: TimedRun, step: Step, flops: float) -> str:
    case, consumed = run.case, step.consumed_samples
    if step.gbs is not None and step.gbs != case.gbs:
        return f"global batch size {step.gbs} at step {step.index}, this case runs {case.gbs}"
    expected = (step.index + 1) * case.gbs
    if consumed is not None and abs(consumed - expected) > step.consumed_resolution:
        rounded = f" (rounded to {2 * step.consumed_resolution:g})" if step.consumed_resolution else ""
        return f"{consumed} consumed samples{rounded} after step {step.index}, {step.index + 1} x GBS {case.gbs} is {expected}"
    if step.tokens is not None and step.tokens != case.tokens_per_step:
        return (
            f"{step.tokens} tokens (total_weights) at step {step.index}, GBS {case.gbs} x sequence length "
            f"{case.sequence_length} is {case.tokens_per_step}"
        )
    return other_work(case, step, flops)


STATEMENTS: tuple[Check, ...] = (
    facts,
    fp8_recipe,
    defaults,
    routing,
    job,
    groups,
    nodes,
    mesh,
    parameter_counts,
    gpus,
    rate,
)
CHECKS: tuple[Check, ...] = (demanded, *STATEMENTS, batch)
