"""A lab that was broken is mended, whatever became of the test.

A module whose tests want another lab than the shared one has a fixture `lab` of its own.
"""

from __future__ import annotations

import contextlib
import re
import shutil
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.lab.k8s.api import ApiError
from tests.lab.k8s.cluster import KubernetesLab
from tests.lab.k8s.gate import Gate
from tests.lab.prober import Prober, answering
from tests.lab.slurm import SlurmLab
from tests.system.faults import Trial, mend
from tests.system.gpt3_site import Site
from tests.system.kube import running as pods_running
from tests.system.kube import small_suite
from tests.system.kube_trial import KubeTrial, MakeTrial
from tests.system.support import ROOT, end_sessions, until
from tests.unit.backends.kubernetes.provision.test_gpt3_scripts import compressed
from tests.unit.hub import Hub


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown() -> Generator[None]:
    """A session that a test left ends before the lab is mended: it would submit further jobs."""
    try:
        end_sessions()
    finally:
        yield


@pytest.fixture
def lab(slurm_lab: SlurmLab) -> Iterator[SlurmLab]:
    """The shared lab, for a test that breaks it: mended afterwards, and asked whether the test left a job behind.

    Every node is idle, also those of the test before: the first job of this one gets the first of them.
    """
    until(lambda: slurm_lab.idle_nodes() == slurm_lab.nodes, "every node idle")
    yield slurm_lab
    mend(slurm_lab)


@pytest.fixture
def make_trial(lab: SlurmLab, tmp_path: Path) -> Iterator[Callable[..., Trial]]:
    """Makes trials, in folders of their own by name; what a test that failed left of them is ended."""
    made: list[Trial] = []

    def make(name: str = "", **given: Any) -> Trial:
        folder = tmp_path / f"{tmp_path.name}-{name}" if name else tmp_path
        folder.mkdir(exist_ok=True)
        made.append(Trial(lab, folder, **given))
        return made[-1]

    yield make
    for trial in made:
        trial.clear()


@pytest.fixture
def prober(tmp_path: Path) -> Iterator[Prober]:
    with answering(tmp_path) as made:
        yield made


@pytest.fixture
def namespace(kubernetes_lab: KubernetesLab, tmp_path: Path) -> Iterator[str]:
    """A namespace of the test's own; what runs in it at the end is ended."""
    name = re.sub("[^a-z0-9]+", "-", f"t-{tmp_path.name.lower()}")[-40:].strip("-")
    yield kubernetes_lab.namespace(name, real_step=0.02)
    kubernetes_lab.clear(name)


@pytest.fixture
def running(kubernetes_lab: KubernetesLab, namespace: str) -> Callable[[int], None]:
    """Wait until so many pods run."""

    def wait(count: int) -> None:
        until(lambda: pods_running(kubernetes_lab, namespace) == count, f"{count} pods running")

    return wait


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The suite of Llama 3 on GKE with jobs of four nodes."""
    return str(small_suite(tmp_path_factory.mktemp("small")))


@pytest.fixture
def kube_trial(
    kubernetes_lab: KubernetesLab, namespace: str, small: str, tmp_path: Path
) -> Iterator[MakeTrial]:
    """Makes trials in the test's namespace; what a test that failed left of them is ended."""
    made: list[KubeTrial] = []

    def make(name: str = "", suite: str = small, **given: Any) -> KubeTrial:
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        made.append(KubeTrial(kubernetes_lab, namespace, folder, suite, **given))
        return made[-1]

    yield make
    for trial in made:
        trial.clear()


@pytest.fixture
def gate(kubernetes_lab: KubernetesLab) -> Iterator[Gate]:
    with Gate(kubernetes_lab) as made:
        yield made


@pytest.fixture
def hub() -> Iterator[Hub]:
    """Hugging Face with nine files of the data set."""
    served = Hub({f"train/chunk1/example_train_{n}.jsonl.zst": compressed(n + 1) for n in range(9)})
    yield served
    served.close()


@pytest.fixture
def site(kubernetes_lab: KubernetesLab, namespace: str, hub: Hub, tmp_path: Path) -> Iterator[Site]:
    """A namespace for the AKS recipe's set-up; what is made outside of it is taken away."""
    made = Site(kubernetes_lab, namespace, hub, tmp_path)
    yield made
    classes = "/apis/storage.k8s.io/v1/storageclasses"
    left = [f"/apis/batch/v1/namespaces/{namespace}/jobs/{name}" for name in made.items("jobs")]
    left += [f"{classes}/{item['metadata']['name']}" for item in kubernetes_lab.api.get(classes)["items"]]
    for path in left:
        # What was deleted before may go at this moment.
        with contextlib.suppress(ApiError):
            kubernetes_lab.api.delete(path)


@pytest.fixture
def few_steps(tmp_path: Path) -> Path:
    """A checkout whose proxy trains a tiny model for a few steps, for which there is no number."""
    checkout = tmp_path / "checkout"
    shutil.copytree(ROOT / "suites" / "proxy", checkout / "suites" / "proxy")
    for file, old, new in (
        ("recipe.yaml", "\nsteps: 50\n", "\nsteps: 5\n"),
        ("recipe.yaml", "layers: 3, hidden: 768, ffn: 2048", "layers: 1, hidden: 96, ffn: 256"),
        # How often the matrix product is measured takes longer than all else.
        ("train.py", "\nROUNDS = 100 ", "\nROUNDS = 10 "),
        ("train.py", "\nBURSTS = 3 ", "\nBURSTS = 1 "),
    ):
        path = checkout / "suites" / "proxy" / file
        assert old in path.read_text()
        path.write_text(path.read_text().replace(old, new))
    (checkout / "baselines").mkdir()
    shutil.copy(ROOT / "baselines" / "accelerators.yaml", checkout / "baselines")
    for name in ("conftest.py", "pytest.ini", "plugins", "fixtures"):
        (checkout / name).symlink_to(ROOT / name)
    return checkout / "suites" / "proxy"
