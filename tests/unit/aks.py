"""What the tests of gpt3_aks make of it: the documents of a case, its script run by bash on this machine, and its logs."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from fixtures.backends.kubernetes import objects
from fixtures.backends.kubernetes.manifest import Word, documents
from fixtures.backends.kubernetes.section import Kubernetes
from plugins.base.yaml_text import Loader
from plugins.recipes.cases import Case
from plugins.recipes.expansion import load_recipe
from plugins.recipes.models import SiteModel
from tests.printed.megatron_lm import line
from tests.unit import examples
from tests.unit.gke import Launched

NAME = "pm-3f2a91c04b-175b-fp16-512gpus"
FOLDER = examples.ROOT / "suites" / "gpt3_aks"
QUICK, LARGE = "375m-fp16-16gpus", "175b-fp16-512gpus"
"""The README's quick test and its large run."""

Document = dict[str, Any]


def case(case_id: str = QUICK, models: tuple[SiteModel, ...] = ()) -> Case:
    found = load_recipe(FOLDER, models=models).case(case_id)
    assert found is not None
    return found


def made(
    case_id: str = LARGE,
    *,
    name: str = NAME,
    namespace: str = "benchmarks",
    models: tuple[SiteModel, ...] = (),
    **given: Word,
) -> list[Document]:
    """The documents of a case, by the words that the backend has for it; `given` are values of the site."""
    recipe = load_recipe(FOLDER, models=models)
    section = Kubernetes(gpu="h100", namespace=namespace)
    words = objects.words(case(case_id, models), section, name)
    return documents(recipe, case(case_id, models), {**words, "arguments": [], **given})


def untouched() -> list[Document]:
    """`manifest.yaml` as it stands."""
    return list(yaml.load_all((FOLDER / "manifest.yaml").read_text(), Loader))


def pods(found: list[Document]) -> dict[str, Document]:
    """The pod template of each kind of replica."""
    replicas = found[1]["spec"]["pytorchReplicaSpecs"]
    return {role: replicas[role]["template"] for role in replicas}


def container(found: list[Document], role: str = "Master") -> Document:
    """The container that trains."""
    (only,) = pods(found)[role]["spec"]["containers"]
    return dict(only)


def environment(found: list[Document], role: str = "Master") -> dict[str, str]:
    return {item["name"]: item["value"] for item in container(found, role)["env"]}


# Writes down how it was started; does with a checkpoint what it is told to.
_TORCHRUN = """\
printf "%s\\0" "$@" >"{folder}/torchrun"; env -0 >"{folder}/environment"
if [[ -n "${{WRITES:-}}" ]]; then head -c "$WRITES" /dev/zero >"$CHECKPOINT_PATH/rank0.distcp"; fi
if [[ -n "${{WAITS:-}}" ]]; then sleep 30 & trap 'kill $!; echo asked to end; exit 143' TERM; touch "{folder}/waits"; wait; fi
exit ${{ENDS:-0}}"""


class Pod(Launched):
    """Runs a case's script in bash on a small data set in `folder`; torchrun writes down how it was started."""

    def __init__(self, folder: Path, found: list[Document], files: int = 40) -> None:
        self._container, self._environment = container(found), environment(found)
        tools = {
            "torchrun": _TORCHRUN.format(folder=folder),
            "nvidia-smi": 'for i in 1 2 3; do echo "NVIDIA H100 80GB HBM3, 550.144.03"; done',
            "hostname": 'echo "${POD:-the-pod}"',
        }
        super().__init__(folder, folder, tools)
        self.script = self._write("train_megatron.sh", found[0]["data"]["train_megatron.sh"])
        self.data = folder / "data" / "slimpajama" / "preprocessed"
        self.data.mkdir(parents=True)
        for number in range(files):
            for ending in ("bin", "idx"):
                (self.data / f"chunk_{number:02d}.{ending}").touch()
        (self.data.parent / "bpe").mkdir()
        for file in ("vocab.json", "merges.txt"):
            (self.data.parent / "bpe" / file).touch()

    @property
    def started(self) -> bool:
        return (self._folder / "torchrun").exists()

    def option(self, name: str) -> list[str]:
        """What stands behind this option, up to the next one."""
        at = self.torchrun.index(name) + 1
        rest = self.torchrun[at:]
        end = next((i for i, text in enumerate(rest) if text.startswith("--")), len(rest))
        return rest[:end]

    def run(self, **changed: str) -> subprocess.CompletedProcess[str]:
        """As the kubelet would, with what the operator adds."""
        process = self.start(**changed)
        out, said = process.communicate(timeout=120)
        return subprocess.CompletedProcess(process.args, process.returncode, out, said)

    def start(self, **changed: str) -> subprocess.Popen[str]:
        """The same, without waiting for its end."""
        given = {
            **self._environment,
            "STORAGE_MOUNT": str(self._folder / "data"),
            "MASTER_ADDR": f"{NAME}-master-0",
            "MASTER_PORT": "23456",
            "PATH": f"{self._folder / 'bin'}:{os.environ['PATH']}",
        }
        shell, place = self._container["command"]
        assert place == "/scripts/train_megatron.sh"
        return subprocess.Popen(
            [shell, str(self.script), *self._container["args"]],
            env=given | changed,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


def log_lines(
    seconds: Sequence[float] | float = 8.0,
    *,
    of: Case | None = None,
    interval: int = 10,
    throughput: bool = True,
    skipped: Mapping[int, int] | None = None,
    **fields: Any,
) -> list[str]:
    """A run's lines as Megatron prints them: one for each interval, with the mean of its steps in s.

    The first is that of the warm-up, unless all are given. FP16 skips the first 15 updates, unless said otherwise.
    """
    ran = of or case()
    count = ran.steps // interval
    means = [seconds * 2.5, *[seconds] * (count - 1)] if isinstance(seconds, float) else seconds
    losses = {1: 10, 2: 5} if skipped is None else skipped
    return [
        line(
            number * interval,
            f"{1000 * mean:.1f}",
            total=ran.steps,
            throughput=f"{megatrons_rate(ran, mean):.1f}" if throughput else None,
            skipped=losses.get(number, 0),
            **{
                "gbs": ran.gbs,
                "scale": 2.0**17,
                "loss": None if losses.get(number) == interval else f"{10.83 - number / 100:.6E}",
                **fields,
            },
        )
        for number, mean in enumerate(means, start=1)
    ]


def megatrons_rate(ran: Case, seconds: float) -> float:
    """TFLOP/s per GPU as `num_floating_point_operations` at 878d65f counts them, in its own terms."""
    model, length = ran.model, ran.sequence_length
    expansion_factor = 3 * 2 * 2
    attention = 1 + model.query_groups / model.heads + length / model.hidden / 2
    layer = attention + model.ffn / model.hidden
    flops = (
        expansion_factor
        * ran.gbs
        * length
        * model.hidden
        * model.hidden
        * (model.layers * layer + model.vocab / (2 * model.hidden))
    )
    return flops / (seconds * 10**12 * ran.gpus)
