"""What the tests of llama3_gke make of it: the documents of a case, and its container run by bash on this machine."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from fixtures.backends.kubernetes.manifest import Word, documents
from plugins.base.yaml_text import Loader
from tests.unit import examples

NAME = "pmk-20250411-120000-ab12-70b-fp8-512gpus"
MANIFEST = examples.ROOT / "suites" / "llama3_gke" / "manifest.yaml"
Document = dict[str, Any]


def words(case_id: str, **given: Word) -> dict[str, Word]:
    """What the backend gives, and a site's values."""
    case = examples.case(case_id, "llama3_gke")
    fixed: dict[str, Word] = {
        "name": NAME,
        "namespace": "benchmarks",
        "gpus": case.gpus,
        "nodes": case.nodes(8),
        "gpus_per_node": 8,
        "dtype": case.dtype,
        "model": case.model_name,
        "size": case.size,
        "steps": case.steps,
        "gbs": case.gbs,
        "queue": "a3-mega",
        "arguments": [],
        "image": "europe-west4-docker.pkg.dev/my-project/gpu/nemo_workload:24.07",
        "bucket": "my-logs",
    }
    return {**fixed, **given}


def made(case_id: str = "70b-fp8-512gpus", **given: Word) -> list[Document]:
    """The documents of a case."""
    recipe = examples.recipe_named("llama3_gke")
    return documents(recipe, examples.case(case_id, "llama3_gke"), words(case_id, **given))


def untouched() -> list[Document]:
    """`manifest.yaml` as it stands."""
    return list(yaml.load_all(MANIFEST.read_text(), Loader))


def job(found: list[Document]) -> Document:
    """The spec of the one Job that the JobSet makes."""
    (replicated,) = found[1]["spec"]["replicatedJobs"]
    spec: Document = replicated["template"]["spec"]
    return spec


def workload(found: list[Document]) -> Document:
    """The container that trains."""
    (container,) = job(found)["template"]["spec"]["containers"]
    assert container["name"] == examples.recipe_named("llama3_gke").file.manifest.container  # type: ignore[union-attr]
    return dict(container)


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every text and number of a document with its place, where named things have their names."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from leaves(item, f"{path}.{key}")
    elif isinstance(value, list):
        for number, item in enumerate(value):
            name = item.get("name", number) if isinstance(item, dict) else number
            yield from leaves(item, f"{path}.{name}")
    else:
        yield path, value


class _Dumper(yaml.SafeDumper):
    """YAML for people: texts of several lines as they are, no anchors."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)


def shown(found: list[Document]) -> str:
    return yaml.dump_all(found, Dumper=_Dumper, sort_keys=False, width=1000)


class Launched:
    """A pod's container that is run by bash below `folder`. torchrun writes into `seen` how it was started."""

    def __init__(self, folder: Path, seen: Path, tools: dict[str, str]) -> None:
        """`tools` are lines of bash, by the name of the program that they stand in for."""
        self._folder, self._seen = folder, seen
        for name, body in tools.items():
            self._write(f"bin/{name}", f"#!/bin/bash\n{body}\n").chmod(0o755)

    @property
    def torchrun(self) -> list[str]:
        """The arguments that it was started with."""
        return (self._seen / "torchrun").read_text().split("\0")[:-1]

    @property
    def environment(self) -> dict[str, str]:
        """What torchrun found there."""
        text = (self._seen / "environment").read_text()
        return dict(pair.partition("=")[::2] for pair in text.split("\0") if pair)

    def _write(self, path: str, text: str) -> Path:
        place = self._folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
        return place


class Pod(Launched):
    """Runs a case's container in bash: what is below / lies below a folder, and torchrun writes down its arguments."""

    def __init__(self, folder: Path, found: list[Document]) -> None:
        self._container = workload(found)
        self.config = found[0]["data"]["nemo-config.yaml"]
        tools = {
            "torchrun": 'printf "%s\\0" "$@" >torchrun; env -0 >environment; exit ${TORCHRUN_ENDS:-0}',
            "ldconfig": '[ "$1" != -p ] || echo "    libcuda.so.1 => /x/libcuda.so.1"',
            "nvidia-smi": 'for i in 1 2 3; do echo "NVIDIA H100 80GB HBM3, 550.144.03"; done',
            "hostname": "echo the-pod",
            "sleep": "",
        }
        super().__init__(folder, folder / "here", tools)
        self._write("workload/launcher/launch-workload.sh", found[0]["data"]["launch-workload.sh"])
        self._write("workload/configs/nemo-config.yaml", self.config)
        self._write("artifacts/third-party/tokenizers/gpt2/gpt2-vocab.json", "{}")
        profile = 'export NCCL_FROM_PROFILE="$# arguments"\n'
        self._write("usr/local/nccl-plugin/lib64/nccl-env-profile.sh", profile)
        self._write("here/empty", "")

    @property
    def files(self) -> set[str]:
        return {path.name for path in (self._folder / "here").iterdir()}

    def run(self, index: int = 3, **environment: str) -> subprocess.CompletedProcess[str]:
        """As the kubelet would on the node with this index."""
        given = {item["name"]: item["value"] for item in self._container["env"] if "value" in item}
        below = {"NCCL_INIT_SCRIPT", "NEMO_CONFIG_PATH", "TOKENIZER_PATH"}
        given |= {name: f"{self._folder}{given[name]}" for name in below}
        given |= {"JOB_COMPLETION_INDEX": str(index), "PATH": f"{self._folder / 'bin'}:{os.environ['PATH']}"}
        *options, script, name = self._container["command"]
        assert script.count("/workload/launcher/") == 1
        script = script.replace("/workload/launcher/", f"{self._folder}/workload/launcher/")
        return subprocess.run(
            [*options, script, name, *self._container["args"]],
            env=given | environment,
            cwd=self._folder / "here",
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
