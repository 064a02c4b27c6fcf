"""What a log states of itself, held against the case that it is judged as: another cell's log must not pass. Pure.

Whatever a log states must agree. What it does not state is no fault of the run, for formats state little: the record says
which facts agree, and a log that states none is remarked.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterable
from collections.abc import Mapping
from itertools import product

from plugins.baselines.file import Accelerator
from plugins.logs import FlopsName
from plugins.logs import Log
from plugins.logs import Step
from plugins.logs.statements import Fact
from plugins.metrics import FlopsDefinition
from plugins.metrics import flops_per_sequence
from plugins.metrics import warm_up_steps
from plugins.recipes.cases import Case
from plugins.recipes.file import Model

# How far a framework's own count of the model FLOPs may be off ours, where a step's time and rate stand on one line; another model
# is further away.
FLOPS_MARGIN = 0.001

# The same where the rate is of a few steps, or by another clock: the median of all settled steps is compared.
RATE_MARGIN = 0.02

# Vocabularies are padded, norms and biases counted or not, a stage may have a layer more; the next model is a multiple away.
PARAMETERS_MARGIN = 0.10

# The facts that together are a case's dtype.
_DTYPE = ("fp8", "precision")

_WORDS = {
    "processes": "number of processes",
    "gpu": "type of GPU",
    "fp8": "dtype",
    "precision": "dtype",
    "averaged": "number of steps that each printed time is the mean of",
}
# What a fact says in the record: the rest are parallel sizes and batches, which several models share.
_KINDS = {
    "processes": ("processes", "group", "peers", "asked_nodes"),
    "model": (
        *("layers", "hidden", "ffn", "heads", "query_groups", "vocab"),
        *("parameters", "million_parameters", "first_stage", "size"),
    ),
    "sequence length": ("sequence_length",),
    "dtype": _DTYPE,
}
_RATE = "step time x rate"
_GPU = re.compile(r"\b(G?[ABHLVT]\d{1,4}[A-Z]?|RTX|GeForce)\b(?:.*\b(PCIe|NVL|MIG)\b)?", re.IGNORECASE)


def contradictions(case: Case, log: Log, part: Accelerator | None, job: str = "") -> list[str]:
    """What the log states and is not so of this case, in words; empty where all agrees.

    `part` is the type of GPU that the case ran on, and `job` the id of its job, as far as they are known.
    """
    own = expected_facts(case)
    found = [
        f"{_quoted(fact)}, "
        + (
            f"this case is {case.dtype}"
            if fact.name in _DTYPE
            else f"this case's {_WORDS.get(fact.name, fact.name)} is {own[fact.name]}"
        )
        for fact in log.facts
        if fact.name in own and fact.value != own[fact.name]
    ]
    found += [
        f"{_quoted(fact)}, this case's job is {job}"
        for fact in log.facts
        if fact.name == "job" and job.isdecimal() and fact.value != int(job)
    ]
    return (
        found
        + _processes(case, log.facts)
        + _parameters(case, log.facts)
        + _gpus(log, part)
        + _rate(case, log)
    )


def expected_facts(case: Case) -> dict[str, int | str]:
    """What a log may state that is a fact of the case itself, by name."""
    return {
        **case.facts(),
        "processes": case.gpus,
        "averaged": case.averaged if case.smoothing == 1 else case.smoothing,
        "size": case.model_name,
    }


def stated_by(case: Case, log: Log) -> dict[str, str]:
    """Which line of the log states each kind of fact, of those that tell this case from others; "" for what none does."""
    said = {
        kind: next((fact.said for name in names for fact in log.facts if fact.name == name), "")
        for kind, names in _KINDS.items()
    }
    said["type of GPU"] = next(iter(_gpu_names(log)), "")
    if not said["model"] and (_rates(case, log) or any(step.flops_per_gpu for step in log.steps)):
        said["model"] = said["sequence length"] = _RATE
    if any(step.tokens for step in log.steps):
        said["sequence length"] = said["sequence length"] or "the tokens of a step"
    return said


def anonymous(case: Case, log: Log) -> str:
    """Why nobody can tell this run from that of another cell; "" where something in its log does."""
    if any(stated_by(case, log).values()):
        return ""
    return (
        "nothing in the log states the number of processes, the model, the sequence length, the dtype or the type of GPU: its batch and "
        "its pace alone tell this case"
    )


def _processes(case: Case, facts: Iterable[Fact]) -> list[str]:
    """No group of processes is larger than the case, and NCCL's largest no smaller where nothing else tells the number of processes.

    Gloo's groups are those of data parallel processes alone.
    """
    told: dict[str, list[tuple[int, Fact]]] = {}
    for fact in facts:
        if isinstance(fact.value, int):
            told.setdefault(fact.name, []).append((fact.value + (fact.name == "peers"), fact))
    found = []
    for name in ("group", "peers"):
        if name not in told:
            continue
        most, fact = max(told[name], key=lambda one: one[0])
        few = name == "group" and most < case.gpus and "processes" not in told
        if most > case.gpus or few:
            found.append(
                f"{_quoted(fact)}: its largest group has {most} processes, this case has {case.gpus}"
            )
    for kind, own, words in (
        ("asked", case.gpus, f"this case has {case.gpus} GPUs"),
        ("fsdp", case.fsdp, f"this case's fsdp is {case.fsdp}"),
    ):
        pairs = product(told.get(f"{kind}_nodes", ()), told.get(f"{kind}_devices", ()))
        wrong = next(((nodes, devices) for nodes, devices in pairs if nodes[0] * devices[0] != own), None)
        if wrong:
            (_, nodes), (_, devices) = wrong
            found.append(f"{_quoted(nodes)} and {_quoted(devices)[len('the log says ') :]}, {words}")
    return found


def _quoted(fact: Fact) -> str:
    return f'the log says "{fact.said}"'


def _gpus(log: Log, part: Accelerator | None) -> list[str]:
    """A name tells another part only where both name one: `NVIDIA H100 80GB HBM3` and `NVIDIA H100 SXM` are one."""
    wanted = _GPU.search(part.name) if part else None
    found = []
    for name in _gpu_names(log):
        seen = _GPU.search(name)
        if seen is None and name.startswith("NVIDIA "):
            continue
        if wanted and part and (seen is None or (seen[1].upper(), seen[2]) != (wanted[1].upper(), wanted[2])):
            found.append(f"the log is of {name}, this case is judged as of {part.name}")
    return found


def _gpu_names(log: Log) -> list[str]:
    """As the run prints them, and our launchers."""
    printed = [str(fact.value) for fact in log.facts if fact.name == "gpu"]
    return list(dict.fromkeys([*printed, *(value for name, value in log.versions if name == "gpu")]))


def _parameters(case: Case, facts: Iterable[Fact]) -> list[str]:
    counts = {
        "parameters": parameters(case.model),
        "million_parameters": parameters(case.model) / 1e6,
        "first_stage": first_stage(case),
    }
    return [
        f"{_quoted(fact)}, this case's model has {counts[fact.name]:,.0f}"
        for fact in facts
        if fact.name in counts
        and isinstance(fact.value, int)
        and abs(fact.value / counts[fact.name] - 1) > PARAMETERS_MARGIN
    ]


def _of_a_layer(model: Model) -> float:
    """Parameters of the matrices of a decoder layer: attention with g of a query groups, and an MLP with a gate or without."""
    h = model.hidden
    return (
        2.0 * h * h * (1 + model.query_groups / model.heads)
        + (3 if model.mlp == "gated" else 2) * h * model.ffn
    )


def parameters(model: Model) -> float:
    """Those of the whole model, its embedding and its output layer apart, but for norms and biases."""
    return model.layers * _of_a_layer(model) + 2.0 * model.vocab * model.hidden


def first_stage(case: Case) -> float:
    """Those that rank 0 holds: of the first pipeline stage, a share of tensor parallel size.

    Where the layers do not divide, the embedding and the output layer count as one each (NeMo's account_for_..._in_pipeline_split).
    """
    model, stages = case.model, case.pp * case.vp
    layers = model.layers / case.pp if model.layers % stages == 0 else (model.layers + 2) / case.pp - 1
    embeddings = model.vocab * model.hidden * (2 if case.pp == 1 else 1)
    return (layers * _of_a_layer(model) + embeddings) / case.tp


def flops_of_a_step(case: Case, name: FlopsName) -> float:
    """Model FLOPs of a step on one GPU, counted in this way."""
    return (
        case.gbs
        * flops_per_sequence(case.model, case.sequence_length, FlopsDefinition(definition=name))
        / case.gpus
    )


def _rates(case: Case, log: Log) -> list[float]:
    """FLOPs of a step on one GPU by time and rate of the settled steps, where these do not stand on one line."""
    return [
        step.seconds * step.tflops_per_gpu * 1e12
        for step in log.steps
        if step.seconds
        and step.tflops_per_gpu
        and step.flops_per_gpu is None
        and step.index >= warm_up_steps(case.steps)
    ]


def _rate(case: Case, log: Log) -> list[str]:
    """Whether the rate that the run prints is that of the case's model, in any of the ways in which its format counts."""
    rates = _rates(case, log)
    if not rates:
        return []
    done, own = statistics.median(rates), [flops_of_a_step(case, name) for name in log.flops]
    if any(abs(done / flops - 1) <= RATE_MARGIN for flops in own):
        return []
    return [
        f"step time x TFLOP/s is {done / 1e12:.1f} TFLOP a GPU, this case's model is {' or '.join(f'{flops / 1e12:.1f}' for flops in own)}"
    ]


def counted_by(case: Case, log: Log) -> FlopsName:
    """By which of the ways in which its format counts the rates of this run are those of the case's model; the first where they are by none.

    Sequences of half the length take as much by full attention as whole ones by causal attention: without a length that is stated only the first counts.
    """
    stated = any(fact.name == "sequence_length" for fact in log.facts)
    return next(
        (
            name
            for name in (log.flops if stated else log.flops[:1])
            if not any(counts_as(case, step, flops_of_a_step(case, name)) for step in log.steps)
        ),
        log.flops[0],
    )


def counts_as(case: Case, step: Step, flops: float) -> str:
    """Why what a GPU did in this step is not what the case's does, in words; "" where it is, or the line does not tell."""
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


def unstated(facts: Iterable[Fact], names: Mapping[str, str]) -> str:
    """Those of these facts that the run does not state, in words."""
    stated = {fact.name for fact in facts}
    return " and ".join(words for name, words in names.items() if name not in stated)
