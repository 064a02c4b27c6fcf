"""A lab that was broken is mended, whatever became of the test.

A module whose tests want another lab than the shared one has a fixture `lab` of its own.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.lab.k8s.cluster import KubernetesLab
from tests.lab.k8s.gate import Gate
from tests.lab.slurm import SlurmLab
from tests.system.faults import Trial
from tests.system.faults import mend
from tests.system.kube import running as pods_running
from tests.system.kube_trial import KubeTrial
from tests.system.kube_trial import MakeTrial
from tests.system.support import until


@pytest.fixture
def lab(slurm_lab: SlurmLab) -> Iterator[SlurmLab]:
    """The shared lab, for a test that breaks it: mended afterwards, and asked whether the test left a job behind."""
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


@pytest.fixture
def kube_trial(kubernetes_lab: KubernetesLab, namespace: str, tmp_path: Path) -> Iterator[MakeTrial]:
    """Makes trials in the test's namespace; what a test that failed left of them is ended."""
    made: list[KubeTrial] = []

    def make(name: str = "", **given: Any) -> KubeTrial:
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        made.append(KubeTrial(kubernetes_lab, namespace, folder, **given))
        return made[-1]

    yield make
    for trial in made:
        trial.clear()


@pytest.fixture
def gate(kubernetes_lab: KubernetesLab) -> Iterator[Gate]:
    with Gate(kubernetes_lab) as made:
        yield made
