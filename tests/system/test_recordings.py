"""The sessions of the recordings on real clusters, recorded anew: they end as they did, and the answers mean what they did.

With RECORD=1 the recordings are replaced.
"""

from __future__ import annotations

import lzma
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.lab.k8s.cluster import KubernetesLab
from tests.lab.slurm import SlurmLab
from tests.recordings import meaning, trials
from tests.recordings.played import RECORDINGS
from tests.unit.backends.recorded import test_jobset, test_jobset_faults, test_slurm


def sessions_of(*modules: ModuleType) -> dict[str, Callable[..., None]]:
    named = (item for module in modules for item in vars(module).items())
    return {name.removeprefix("test_"): test for name, test in named if name.startswith("test_")}


RECORDS = os.environ.get("RECORD") == "1"
JOBSET, SLURM = sessions_of(test_jobset, test_jobset_faults), sessions_of(test_slurm)


@pytest.fixture
def begin(
    kubernetes_lab: KubernetesLab, small: str, tmp_path: Path, name: str
) -> Iterator[Callable[..., trials.RecordedTrial]]:
    namespace, made = trials.namespace_of(name), list[trials.RecordedTrial]()
    kubernetes_lab.namespace(namespace, real_step=0.02)

    def make(**options: Any) -> trials.RecordedTrial:
        made.append(trials.RecordedTrial(tmp_path, kubernetes_lab, namespace, tmp_path, small, **options))
        return made[-1]

    yield make
    for trial in made:
        trial.clear()
    kubernetes_lab.clear(namespace)


@pytest.mark.parametrize("name", JOBSET)
def test_kubernetes_answers_as_it_did(
    name: str, begin: Callable[..., trials.RecordedTrial], tmp_path: Path
) -> None:
    JOBSET[name](begin)
    sessions = sorted(tmp_path.glob("*.jsonl"))
    assert len(sessions) == len(list((RECORDINGS / "jobset").glob(f"{name}-*.xz"))) or RECORDS
    assert sessions
    for fresh in sessions:
        compare(fresh, RECORDINGS / "jobset" / f"{name}-{fresh.stem}.jsonl.xz")


@pytest.mark.parametrize("name", SLURM)
def test_slurm_answers_as_it_did(name: str, lab: SlurmLab, tmp_path: Path) -> None:
    trial = trials.RecordedSlurmTrial(lab, tmp_path, keys={"prologue": '""'})
    SLURM[name](trial)
    fresh = tmp_path / "1.jsonl"
    text = fresh.read_text().replace(str(trial.stage.root), str(trials.STAGE))
    fresh.write_text(text.replace(str(lab.root), "/recorded/lab"))
    compare(fresh, RECORDINGS / "slurm" / f"{name}-1.jsonl.xz")


def compare(fresh: Path, kept: Path) -> None:
    """The fresh one says what the recordings always say; with RECORD=1 it is kept."""
    if RECORDS:
        kept.write_bytes(lzma.compress(fresh.read_bytes(), preset=9))
    assert meaning.lost(sorted(kept.parent.glob("*.xz")), fresh) == {}
