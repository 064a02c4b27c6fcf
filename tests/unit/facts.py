"""What a chart's manifest and ours come down to, as facts by name: objects, pods, containers, what they run and with which variables."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.unit.gke import leaves

Object = dict[str, Any]
Facts = dict[str, str]

NAME = "NAME"
"""Stands for the name of the job in the values of facts."""
# Of the pod's shell, not of the manifest.
_SHELLS = frozenset(["PATH", "PWD", "OLDPWD", "SHLVL", "_", "HOME", "HOSTNAME"])
# What only the launcher reads: its effect is in torchrun's arguments.
_LAUNCHERS = frozenset(
    ["CHECKPOINT_PATH", "CHECKPOINT_PATH_DIR", "CHUNKS", "DATASET_PATH", "EVAL_INTERVAL", "GLOBAL_BATCH_SIZE", "HIDDEN_SIZE",
     "LOGLEVEL", "LOGS_PATH", "LOG_INTERVAL", "LOG_THROUGHPUT", "MERGE_FILE", "MICRO_BATCH_SIZE", "NUMBER_OF_ITERATIONS",
     "NUM_ATTENTION_HEADS", "NUM_LAYERS", "PIPELINE_MODEL_PARALLEL_SIZE", "RDZV_ID", "SAVE_INTERVAL", "SEQ_LENGTH",
     "TENSOR_MODEL_PARALLEL_SIZE", "TOPO_FILE", "USE_SHARP", "VOCAB_FILE"]
)  # fmt: skip
# What does something in a container's script; the rest prints, or is the shell's own.
_PROGRAMS = re.compile(r"(gcloud|mkdir|chmod|cp|sleep|source|/\S+\.sh)\s")
_LONGEST = 60


def of_object(document: Object, replicas: Mapping[str, Object], maps: Sequence[Object]) -> Facts:
    """What an object says besides its pods, and its pods by what kind of replica they are; alike ones as one."""
    own = _without({key: document[key] for key in document if key != "metadata"}, list(replicas.values()))
    found = {path.lstrip("."): _text(value) for path, value in leaves(own)}
    found |= _metadata("metadata", document["metadata"])
    files = {item["metadata"]["name"]: item["data"] for item in maps}
    pods = {role: dict(_of_pods(template, files)) for role, template in replicas.items()}
    first, *others = pods.values()
    for name in dict.fromkeys(name for pod in pods.values() for name in pod):
        if all(other.get(name) == first.get(name) for other in others):
            found[f"pods: {name}"] = first[name]
        else:
            found |= {f"{role}: {name}": pod[name] for role, pod in pods.items() if name in pod}
    return found


def _without(value: Any, templates: Sequence[Object]) -> Any:
    """An object without its pods."""
    if isinstance(value, dict):
        return {
            key: _without(item, templates)
            for key, item in value.items()
            if not any(item is template for template in templates)
        }
    return [_without(item, templates) for item in value] if isinstance(value, list) else value


def _metadata(place: str, metadata: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Annotations one by one; of labels, by which nothing runs otherwise, the names."""
    if metadata.get("labels"):
        yield f"{place}.labels", ", ".join(sorted(metadata["labels"]))
    for name, value in metadata.get("annotations", {}).items():
        yield f"{place}.annotations.{name}", _text(value)


def _of_pods(template: Object, files: Mapping[str, Mapping[str, str]]) -> Iterator[tuple[str, str]]:
    spec = template["spec"]
    yield from _metadata("metadata", template.get("metadata", {}))
    parts = ("volumes", "containers", "initContainers")
    yield from (
        (path.lstrip("."), _text(v)) for path, v in leaves({k: spec[k] for k in spec if k not in parts})
    )
    volumes = {volume["name"]: _source(volume, files) for volume in spec["volumes"]}
    for kind in ("initContainers", "containers"):
        for container in spec.get(kind, []):
            yield from _of_container(container, kind, volumes)


def _source(volume: Object, files: Mapping[str, Mapping[str, str]]) -> str:
    """Where a volume comes from, whatever its name."""
    ((kind, source),) = ((kind, source) for kind, source in volume.items() if kind != "name")
    if kind == "configMap":
        items = source.get("items") or [{"path": name} for name in files[source["name"]]]
        kept = {key: value for key, value in source.items() if key == "defaultMode"}
        source = {**kept, "files": " ".join(sorted(item["path"] for item in items))}
    return f"{kind} {_terse(source)}"


def _terse(source: Mapping[str, Any]) -> str:
    """`medium: Memory, sizeLimit: 64Gi`."""
    return ", ".join(
        sorted(f"{path.rpartition('.')[2]}: {_text(value)}" for path, value in leaves(dict(source)))
    )


def _of_container(container: Object, kind: str, volumes: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    name, own = container["name"], ("name", "command", "args", "env", "volumeMounts")
    yield f"{name} is in", kind
    for path, value in leaves({key: container[key] for key in container if key not in own}):
        yield f"{name}{path}", _text(value)
    for mount in container.get("volumeMounts", []):
        more = {key: value for key, value in mount.items() if key not in ("name", "mountPath")}
        yield (
            f"{name} has at {mount['mountPath']}",
            volumes[mount["name"]] + (f", {_terse(more)}" if more else ""),
        )
    for entry in container.get("env", []):
        if entry["name"] not in _LAUNCHERS:
            value = entry["value"] if "value" in entry else _terse(entry["valueFrom"])
            yield f"{name} env {entry['name']}", value
    match container["command"]:
        case [shell, "-c", script, *_]:
            yield f"{name} has the shell", shell
            stops = re.search(r"^\s*set -\w*e", script, re.MULTILINE)
            yield f"{name} stops at what fails", "yes" if stops else "no"
            yield from ((f"{name} runs {line}", "yes") for line in _lines(script, container.get("env", [])))


def _lines(script: str, env: Sequence[Object]) -> Iterator[str]:
    """What a script runs, with these variables in it."""
    script = script.replace("\\\n", " ")
    for entry in env:
        script = re.sub(rf"\$\{{?{entry['name']}\b\}}?", entry.get("value", "?"), script)
    for line in script.splitlines():
        words = shlex.split(line.partition(" & ")[0], comments=True) if _PROGRAMS.match(line.strip()) else []
        if words:
            yield " ".join(words)


def of_run(arguments: Sequence[str], environment: Mapping[str, str], folder: Path) -> Facts:
    """torchrun's arguments and variables, in a pod that was run below a folder."""
    found, option = dict[str, list[str]](), "torchrun"
    for argument in arguments:
        option, *value = argument.split("=", 1) if re.match(r"[-+\w.]+=", argument) else (option, argument)
        if argument.startswith("--") and "=" not in argument:
            option, value = argument, []
        elif argument.endswith(".py"):
            option = "program"
        found.setdefault(option.lstrip("+"), []).extend(value)
    facts = {f"torchrun {name}": _short(values) or "given" for name, values in found.items()}
    facts |= {f"env {name}": value for name, value in environment.items() if name not in _SHELLS | _LAUNCHERS}
    return {name: value.replace(str(folder), "") for name, value in facts.items()}


def _short(values: Sequence[str]) -> str:
    """A list of files by its ends."""
    whole = " ".join(values)
    return (
        whole
        if len(whole) <= _LONGEST * 2
        else f"{len(values)} words, {' '.join(values[:2])} to {' '.join(values[-2:])}"
    )


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def differences(chart: Facts, ours: Facts) -> dict[str, tuple[str | None, str | None]]:
    """The facts that are not the same, each as the chart has it and as it is here; None where it is not there."""
    return {
        name: (chart.get(name), ours.get(name))
        for name in sorted(chart.keys() | ours.keys())
        if chart.get(name) != ours.get(name)
    }


def merged(stated: Facts, ran: Facts, container: str, others: Sequence[str] = ()) -> Facts:
    """What a manifest states and what was seen when its container ran, which says more of the variables that it states.

    `others` are variables that somebody else gave the run.
    """
    prefix = f"pods: {container} "
    seen = {f"{prefix}{name}" for name in ran} - {f"{prefix}env {name}" for name in others}
    return {name: value for name, value in stated.items() if name not in seen} | {
        name: value for name, value in ran.items() if name not in {f"env {other}" for other in others}
    }


def named(facts: Facts, *names: str) -> Facts:
    """With the job's own names, longest first, all the same."""
    pattern = re.compile("|".join(map(re.escape, sorted(names, key=len, reverse=True))))
    return {key: pattern.sub(NAME, value) for key, value in facts.items()}
