"""Each bench ends with figures: a small run of what `make bench` runs. `tests/bench/test_rates.py` and `test_damaged_ledger.py` have the others."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench import collection, fleet, kube, parsing, waiting
from tests.bench.benches import BENCHES
from tests.lab.k8s.cluster import KubernetesLab
from tests.lab.slurm import SlurmLab
from tests.system.support import until

JOBS = 4


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    for bench in BENCHES:
        for module, name, value in bench.small:
            monkeypatch.setattr(module, name, value)
    assert fleet.JOBS == JOBS


@pytest.mark.usefixtures("small")
def test_the_fleet_beside_sbatch(slurm_lab: SlurmLab, tmp_path: Path) -> None:
    """Without ReFrame, which is installed from the network."""
    ways = [fleet.pacemark(slurm_lab, tmp_path), fleet.bare(slurm_lab, tmp_path)]
    assert all(len(way.record.ended) == JOBS for way in ways)
    assert all(way.ratio > 1 for way in ways)


@pytest.mark.usefixtures("small")
def test_cases_that_wait(slurm_lab: SlurmLab, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        waiting.compare(slurm_lab, tmp_path)
    finally:
        slurm_lab.run("scancel", *(str(job.id) for job in slurm_lab.squeue()))
        until(lambda: not slurm_lab.squeue(), "an empty cluster")
    assert "\nmet: Ctrl-C leaves no job: 0 left" in capsys.readouterr().out


def test_requests_do_not_grow_with_the_time_in_the_queue(
    kubernetes_lab: KubernetesLab, tmp_path: Path
) -> None:
    """What a job needs: its check, JobSet and ConfigMap, its end and its deletion; what all share comes on top."""
    asked = kube.session(kubernetes_lab, tmp_path / "bench", 4, wait=12)
    assert asked.left == 0
    assert asked.waiting <= 2, asked.requests
    assert asked.besides_logs <= 30 + 4 * 8, asked.requests
    assert 0 < asked.requests["get pods/log"] <= kube.LOGS_A_JOB * asked.jobs, asked.requests


@pytest.mark.usefixtures("small")
def test_collection(capsys: pytest.CaptureFixture[str]) -> None:
    collection.main()
    assert "collecting 6 cases <= " in capsys.readouterr().out


@pytest.mark.usefixtures("small")
def test_parsing(capsys: pytest.CaptureFixture[str]) -> None:
    parsing.main()
    said = capsys.readouterr().out
    assert all(f"{name}: parse >= " in said for name in parsing.STEPS)
