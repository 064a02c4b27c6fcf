"""Which lines of a log tell its run from a run of another case. Pure.

Formats state little, so a fact that is not stated does not make a run invalid. The record says which lines
state each kind of fact. A log that states none gets a remark.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping

from plugins.judging.model import counted_by, flops_printed
from plugins.logs import Log
from plugins.logs.log import Fact, type_of
from plugins.recipes.cases import Case
from plugins.words import counted, first_of

# The facts of each kind in the record. Parallel sizes and batches are left out, because models share them.
_KINDS = {
    "processes": ("processes", "group", "peers", "asked_nodes"),
    "model": (
        *("layers", "hidden", "ffn", "heads", "query_groups", "vocab", "experts", "top_k"),
        *("parameters", "million_parameters", "first_stage", "size"),
    ),
    "sequence length": ("sequence_length",),
    "dtype": ("fp8", "fp8_recipe", "precision"),
}
_MOST_NAMED = 8
_RATE = "step time x rate"
_NOT_FP16 = "loss scale is 1.0"
"""So it is in BF16, in FP8 and in FP4: it tells no dtype."""
_MODEL = {
    "layers": "the number of layers",
    "hidden": "the hidden size",
    "sequence_length": "the sequence length",
}
_ROUTING = {
    "expert_capacity": "whether experts dropped tokens",
    "balanced": "whether experts were balanced by force",
}
_OF_A_SUMMARY = "(Mcore default: "
_WANTED = {"layers": "the number of layers", "precision": "the precision"}


def stated_by(case: Case, log: Log) -> dict[str, str]:
    """For each kind of fact that identifies a run, the line that states it; "" if there is none."""
    facts = [fact for fact in log.facts if fact.said != _NOT_FP16]
    lines = {
        kind: next((fact.said for name in names for fact in facts if fact.name == name), "")
        for kind, names in _KINDS.items()
    }
    lines["type of GPU"] = next(iter(gpu_names(log)), "")
    if not lines["model"] and (flops_printed(case, log) or any(step.flops_per_gpu for step in log.steps)):
        lines["model"] = lines["sequence length"] = _RATE
    if any(step.tokens for step in log.steps):
        lines["sequence length"] = lines["sequence length"] or "the tokens of a step"
    return lines


def identity_line(case: Case, log: Log) -> str:
    """What the log states of the run's identity, and what it does not state: a line of the report."""
    lines = stated_by(case, log)
    stated = ", ".join(f"{kind} ({line})" for kind, line in lines.items() if line)
    missing = ", ".join(kind for kind, line in lines.items() if not line)
    words = f"identity  {stated or 'nothing'}"
    if missing:
        words += f"; not stated: {missing}"
    if len(log.flops) > 1 and any(step.flops_per_gpu for step in log.steps):
        words += f"; its TFLOP/s are by {counted_by(case, log)}"
    words += "".join(f"; {name} {value}" for name, value in log.versions if name == "jax")
    return f"{words}{_network(log)}"


def _network(log: Log) -> str:
    """Which network NCCL used, by which plug-ins and devices; "" if it does not say."""
    used = Counter(process.network for process in log.processes if process.network)
    if not used:
        return ""
    networks = [f"{name} on {counted(count, 'GPU')}" for name, count in used.most_common()]
    by = {name for process in log.processes for name in (*process.plugins, *process.devices)}
    words = f"; network {first_of(networks, _MOST_NAMED)}"
    return f"{words}, by {first_of(sorted(by), _MOST_NAMED)}" if by else words


def anonymous(case: Case, log: Log) -> str:
    """The remark on a log that states no fact that identifies its run; "" if it states one."""
    if any(stated_by(case, log).values()):
        return ""
    return (
        "nothing in the log states the number of processes, the model, the sequence length, the dtype or the type of GPU: its batch and "
        "its pace alone tell this case"
    )


def garbled(log: Log) -> str:
    """The remark on statements of few processes that are taken as garbled; "" if there are none."""
    if not log.garbled:
        return ""
    first, count = log.garbled[0], len(log.garbled) - 1
    lines = sum(fact.lines for fact in (*log.facts, *log.garbled) if fact.name == first.name)
    more = f", as {count} more" if count else ""
    return f'other output is taken to have made "{first.said}", which {first.lines} of {lines} lines state{more}; judged without'


def untold(case: Case, log: Log) -> str:
    """The remark on a valid run whose log lacks what its format usually states; "" if it lacks nothing."""
    missing = unstated(log.facts, _WANTED)
    if log.tells == "configuration" and missing:
        return (
            f"the log does not state {missing} (its record of the configuration is garbled); judged without"
        )
    stated = any(step.flops_per_gpu for step in log.steps) or not unstated(log.facts, _MODEL)
    if log.tells == "rate" and case.is_timed and not stated:
        return (
            "nothing in the log tells which model ran, and of which sequence length: Megatron-LM prints its throughput, "
            "which would, with --log-throughput only"
        )
    if log.tells == "routing" and not {"layers", "hidden"} & {fact.name for fact in log.facts}:
        return "the log states no configuration: nothing tells its dtype, parallel sizes or routing, and at most its step time x rate its model; judged without"
    missing = unstated(log.facts, _ROUTING)
    if (
        log.tells == "routing"
        and case.model.experts > 1
        and missing
        and summarised(log.facts, "experts") is None
    ):
        return f"the log does not state {missing}; judged without"
    return ""


def summarised(facts: Iterable[Fact], name: str) -> Fact | None:
    """The fact of this name as a summary states it that leaves out what is Megatron Core's default; None if there is none."""
    return next((fact for fact in facts if fact.name == name and _OF_A_SUMMARY in fact.said), None)


def unstated(facts: Iterable[Fact], names: Mapping[str, str]) -> str:
    """Which of these facts the run does not state, in words."""
    stated = {fact.name for fact in facts}
    return " and ".join(words for name, words in names.items() if name not in stated)


def type_in(case: Case, log: Log, gpu: str) -> str:
    """The type of the GPUs that the log names; of several `gpu`, that of the site, which is also that of a log without steps.

    A log that has steps and names no GPU is of no known type.
    """
    types = {type_of(name) for name in gpu_names(log)}
    if case.accelerator != "gpu" or len(types) > 1 or not (types or log.steps):
        return gpu
    return types.pop() if types else "unknown"


def gpu_names(log: Log) -> list[str]:
    """The GPUs that the run names, then those that our launchers name."""
    printed = [str(fact.value) for fact in log.facts if fact.name == "gpu"]
    return list(dict.fromkeys([*printed, *(value for name, value in log.versions if name == "gpu")]))


def fingerprint(log: Log) -> str:
    """A hash of the log's steps, which identifies its job.

    All copies of a log have the same hash, whatever other lines they have.
    """
    steps = [(step.index, step.seconds, step.loss, step.grad_norm) for step in log.steps]
    return hashlib.sha256(repr(steps).encode()).hexdigest()[:16]
