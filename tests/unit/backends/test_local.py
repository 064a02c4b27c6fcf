"""Processes of this machine that another session started: known, ended, and never mistaken for a stranger's."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from fixtures.backends import this_machine
from fixtures.backends.base import LogPiece, LogPlace
from fixtures.backends.local import LocalBackend
from fixtures.backends.this_machine import Local
from plugins.base.errors import SiteError
from plugins.logs.log import type_of
from plugins.recipes.cases import Case
from plugins.recipes.expansion import load_recipe
from plugins.record.job import JobRef, Phase

PROXY = load_recipe(Path(__file__).resolve().parents[3] / "suites" / "proxy")


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[JobRef]:
    """A process that a session started which forgot it since."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    sleeper = [sys.executable, "-uc", "import time; print('begun'); time.sleep(60)"]
    monkeypatch.setattr(LocalBackend, "_command", lambda self, case: sleeper)
    dead = LocalBackend(Local(), [PROXY])
    started = dead.submit(PROXY.cases[0], "pacemark-run-1.x")
    yield started
    dead.cancel([started])
    dead._processes[started.name].wait(60)


def phase(backend: LocalBackend, job: JobRef) -> Phase:
    return backend.poll([job])[job].phase


def text(backend: LocalBackend, job: JobRef) -> bytes:
    return backend.read_log(job, LogPlace(), []).data


def until_gone(backend: LocalBackend, job: JobRef) -> None:
    deadline = time.monotonic() + 60
    while phase(backend, job) is not Phase.GONE:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_process_of_a_session_that_died_is_followed_and_ended(job: JobRef) -> None:
    backend = LocalBackend(Local(), [PROXY])
    assert phase(backend, job) is Phase.RUNNING
    deadline = time.monotonic() + 60
    while text(backend, job) != b"begun\n":
        assert time.monotonic() < deadline
        time.sleep(0.02)
    backend.cancel([job])
    until_gone(backend, job)
    # Its log stays.
    assert text(backend, job) == b"begun\n"


def test_a_secret_by_its_name_is_sent_and_not_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    program = [sys.executable, "-c", "import os; print(os.environ['WANDB_API_KEY'], 'is sent')"]
    monkeypatch.setattr(LocalBackend, "_command", lambda self, case: program)
    backend = LocalBackend(Local(environment={"WANDB_API_KEY": "local-5up3r-s3cret"}), [PROXY])
    assert "WANDB_API_KEY='<not shown>'" in backend.plan(PROXY.cases[0], "x")
    started = backend.submit(PROXY.cases[0], "pacemark-run-1.y")
    backend._processes[started.name].wait(60)
    assert text(backend, started) == b"*" * 18 + b" is sent\n"


def test_modules_that_the_recipe_needs_are_named_if_they_are_missing() -> None:
    file = PROXY.file.model_copy(update={"modules": ["json", "jaxx", "optaxx"]})
    backend = LocalBackend(Local(), [replace(PROXY, file=file)])
    with pytest.raises(SiteError) as caught:
        backend.check(PROXY.cases[0])
    said = str(caught.value)
    assert said.startswith("proxy needs jaxx and optaxx, which this Python does not have\n    mend: ")
    assert said.endswith("-m pip install -r " + str(PROXY.folder / "requirements.txt"))
    with pytest.raises(SiteError) as caught:
        backend.check(PROXY.cases[1])
    assert str(caught.value).endswith("-m pip install -r " + str(PROXY.folder / "requirements-gpu.txt"))


def test_a_case_on_a_cpu_has_the_recipes_environment_and_the_sites_wins() -> None:
    on_cpu, on_gpu, *_ = PROXY.cases
    backend = LocalBackend(Local(environment={"NPROC": "4"}), [PROXY])
    assert "\nJAX_PLATFORMS=cpu NPROC=4 " in backend.plan(on_cpu, "name")
    assert "\nNPROC=4 " in backend.plan(on_gpu, "name")


def test_the_handicap_of_the_site_is_the_programs() -> None:
    backend = LocalBackend(Local(handicap=2), [PROXY])
    assert backend.plan(PROXY.cases[0], "name").endswith(" --handicap 2\n")


def test_a_case_on_gpus_is_told_how_its_batch_is_spread() -> None:
    case = PROXY.case("8b-8l-fsdp-fp8-8gpus")
    assert case is not None
    said = LocalBackend(Local(), [PROXY]).plan(case, "name")
    assert "--mlp gated --experts 1 --top-k 1 --gpus 8 --fsdp 8 --mbs 1 --ga 8 --steps 20" in said


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA H200", "h200"),
        ("NVIDIA GH200 480GB", "gh200"),
        ("NVIDIA H100 PCIe", "h100-pcie"),
        ("NVIDIA H100 64GB HBM2e", "h100-hbm2e"),
        ("NVIDIA H200 NVL", "h200-nvl"),
        ("NVIDIA H100-80C", "h100-80c"),
        ("NVIDIA H100L-94C", "h100l-94c"),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", "h100-mig"),
        ("NVIDIA A100-SXM4-80GB", "a100"),
        ("NVIDIA GeForce RTX 4090", "geforce-rtx-4090"),
        ("unknown", "unknown"),
    ],
)
def test_the_type_of_gpu_is_that_of_its_name(name: str, kind: str) -> None:
    assert type_of(name) == kind


@pytest.mark.parametrize(("device", "seen"), [("nvidia3", True), ("nvidiactl", False)])
def test_a_container_may_have_another_gpu_than_the_first(
    device: str, seen: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / device).touch()
    monkeypatch.setattr(this_machine, "_DEVICES", tmp_path)
    assert Local(gpu="h100", gpus_per_node=1, max_gpus=1).has_gpu is seen


def test_an_id_that_has_passed_to_a_stranger_is_left_alone(tmp_path: Path) -> None:
    case: Case = PROXY.cases[0]
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as stranger:
        try:
            backend = LocalBackend(Local(), [PROXY])
            for folder in (tmp_path, tmp_path / "cleared away"):
                job = JobRef(case.recipe, case.id, "pacemark-run-1.x", str(stranger.pid), str(folder))
                assert phase(backend, job) is Phase.GONE
                backend.cancel([job])
                # Nothing new, not an empty log: what the session collected stays.
                assert backend.read_log(job, LogPlace(), []) == LogPiece(b"", LogPlace())
            (tmp_path / "lock").touch()
            assert (
                phase(backend, JobRef(case.recipe, case.id, "x", str(stranger.pid), str(tmp_path)))
                is Phase.GONE
            )
            assert stranger.poll() is None
        finally:
            stranger.kill()
