"""Which lines of a log identify its run, so that it cannot pass for a run of another case. Pure.

For example, the record of a case says that the line `num_layers: 80` states the model. A fact that the log does
not state does not make the run invalid, because formats state little. A log that states no such fact gets a remark.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping

from plugins.base.words import counted, first_of
from plugins.judging.model import counted_by, flops_printed
from plugins.logs import Log
from plugins.logs.log import Fact, type_of
from plugins.recipes.cases import Case

# The facts of each kind in the record. Parallel sizes and batches identify nothing, because many models share them.
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
"""BF16, FP8 and FP4 runs all print this, so it does not identify the dtype."""
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
    """The line that states each kind of fact, by the kind; "" if no line states it."""
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
    """The line of the report with what the log states about the run's identity, and what it does not state."""
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
    """The remark on a log without any fact that identifies its run; "" if it has one."""
    if any(stated_by(case, log).values()):
        return ""
    return (
        "nothing in the log states the number of processes, the model, the sequence length, the dtype or the type of GPU: its batch and "
        "its pace alone tell this case"
    )


def garbled(log: Log) -> str:
    """The remark on statements that count as garbled, because only few processes make them; "" if there are none."""
    if not log.garbled:
        return ""
    first, count = log.garbled[0], len(log.garbled) - 1
    lines = sum(fact.lines for fact in (*log.facts, *log.garbled) if fact.name == first.name)
    more = f" (and {count} more)" if count else ""
    return f'"{first.said}" in {first.lines} of {lines} lines{more} is taken as garbled by other output; judged without'


def untold(case: Case, log: Log) -> str:
    """The remark on a valid run if its log does not state what its format usually states; "" if it states all."""
    missing = unstated(log.facts, _WANTED)
    if log.tells == "configuration" and missing:
        return (
            f"the log does not state {missing} (its record of the configuration is garbled); judged without"
        )
    stated = any(step.flops_per_gpu for step in log.steps) or not unstated(log.facts, _MODEL)
    if log.tells == "rate" and case.is_timed and not stated:
        return (
            "nothing in the log tells which model ran, and with which sequence length: only the throughput would, which "
            "Megatron-LM prints with --log-throughput"
        )
    if log.tells == "routing" and not {"layers", "hidden"} & {fact.name for fact in log.facts}:
        return "the log states no configuration: no dtype, parallel sizes or routing; only step time x rate may tell the model; judged without"
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
    """The fact of this name from a summary of the configuration; None if there is none.

    Such a summary leaves out each value that is Megatron Core's default.
    """
    return next((fact for fact in facts if fact.name == name and _OF_A_SUMMARY in fact.said), None)


def unstated(facts: Iterable[Fact], names: Mapping[str, str]) -> str:
    """Those of these facts that the run does not state, in words; "" if it states all. `names` has the words for each."""
    stated = {fact.name for fact in facts}
    return " and ".join(words for name, words in names.items() if name not in stated)


def type_in(case: Case, log: Log, gpu: str) -> str:
    """The type of the GPUs that the log names; "unknown" if it has steps and names none.

    It is `gpu`, the type of the site, if the log names several types, or has no steps and names none. A case for a
    CPU gets `gpu` too.
    """
    types = {type_of(name) for name in gpu_names(log)}
    if case.accelerator != "gpu" or len(types) > 1 or not (types or log.steps):
        return gpu
    return types.pop() if types else "unknown"


def gpu_names(log: Log) -> list[str]:
    """The names of GPUs that the run prints, then those that Pacemark's launchers print."""
    printed = [str(fact.value) for fact in log.facts if fact.name == "gpu"]
    return list(dict.fromkeys([*printed, *(value for name, value in log.versions if name == "gpu")]))


def fingerprint(log: Log) -> str:
    """A hash of the log's steps in 16 hexadecimal digits. It identifies the job.

    Copies of a log have the same hash, whatever other lines they have.
    """
    steps = [(step.index, step.seconds, step.loss, step.grad_norm) for step in log.steps]
    return hashlib.sha256(repr(steps).encode()).hexdigest()[:16]
