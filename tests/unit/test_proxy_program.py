"""The proxy's programs without a GPU: training on two CPU devices of jax, and NVML played by a module."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from types import SimpleNamespace
from typing import Any

import pytest

from plugins.digests.gpus import read_gpus

PROXY = Path(__file__).resolve().parents[2] / "suites" / "proxy"

TRAINING = """
import sys
sys.path.insert(0, sys.argv[1])
import train, jax
from argparse import Namespace
jax.config.update("jax_num_cpu_devices", 2)
shape = dict(layers=1, hidden=32, ffn=64, heads=2, query_groups=1, vocab=64, seq_len=16, mbs=1, mlp="gated", handicap=1, seed=0)
def losses(**given):
    a = Namespace(**{**shape, **given})
    step, state, tokens = train.prepare(a, jax.devices()[:a.gpus], None)
    step, found = jax.jit(step), []
    for _ in range(4):
        state, loss = step(state, tokens)
        found.append(float(loss))
    return found
import json
print(json.dumps({
    "parallel": losses(dtype="fp32", gpus=2, fsdp=1, ga=2),
    "sharded": losses(dtype="fp32", gpus=2, fsdp=2, ga=2),
    "fp8": losses(dtype="fp8", gpus=2, fsdp=2, ga=2),
}))
"""


def test_the_same_tokens_train_alike_however_they_are_spread_and_in_fp8() -> None:
    pytest.importorskip("jax")
    done = subprocess.run(
        [sys.executable, "-c", TRAINING, str(PROXY)],
        # What is compiled runs for milliseconds.
        env={"JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_backend_optimization_level=0"},
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    losses = json.loads(done.stdout)
    assert losses["sharded"] == pytest.approx(losses["parallel"], rel=1e-5)
    for found in losses.values():
        assert sorted(found, reverse=True) == found
        assert found[-1] < found[0] - 0.03
    assert losses["fp8"] == pytest.approx(losses["parallel"], rel=0.02)


def test_a_node_without_a_gpu_trains_nothing_in_bf16() -> None:
    pytest.importorskip("jax")
    shape = ("layers", "hidden", "ffn", "heads", "query-groups", "vocab", "seq-len", "mbs")
    options = ["--size", "8b-8l", "--dtype", "bf16", *(word for name in shape for word in (f"--{name}", "2"))]
    done = subprocess.run(
        [sys.executable, str(PROXY / "train.py"), *options, "--hidden", "8"],
        env={"JAX_PLATFORMS": "cpu"}, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 3
    assert re.fullmatch(r"proxy: bf16 needs an NVIDIA GPU, and \S+ shows none\n", done.stderr)
    assert done.stdout.startswith("proxy: trains on ")


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A GPU as NVML describes it, of an H100 that tells nothing of NVLink."""

    class NVMLError(Exception):
        pass

    def not_told(*_: Any) -> Any:
        raise NVMLError("Not Supported")

    answers: dict[str, Any] = {
        "Init": None, "DeviceGetHandleByIndex": "handle", "DeviceGetMemoryInfo": SimpleNamespace(used=500 << 20),
        "DeviceGetUtilizationRates": SimpleNamespace(gpu=0, memory=0), "DeviceGetName": "NVIDIA H100 80GB HBM3",
        "DeviceGetUUID": "GPU-1", "SystemGetDriverVersion": b"580.159.04", "DeviceGetRemappedRows": (1, 0, 0, 0),
        "DeviceGetMaxClockInfo": 1980, "DeviceGetClockInfo": 1395, "DeviceGetPowerUsage": 699257,
        "DeviceGetEnforcedPowerLimit": 700000, "DeviceGetPowerManagementDefaultLimit": 700000,
        "DeviceGetTemperature": 59, "DeviceGetCurrentClocksEventReasons": 4, "DeviceGetTotalEnergyConsumption": 5000,
        "DeviceGetViolationStatus": SimpleNamespace(violationTime=7), "DeviceGetTotalEccErrors": 0,
        "DeviceGetCurrPcieLinkGeneration": 5, "DeviceGetCurrPcieLinkWidth": 16, "DeviceGetMaxPcieLinkGeneration": 5,
        "DeviceGetMaxPcieLinkWidth": 16,
        "DeviceGetFieldValues": [SimpleNamespace(nvmlReturn=0, value=SimpleNamespace(uiVal=51))],
    }  # fmt: skip
    played = SimpleNamespace(
        NVMLError=NVMLError, NVML_CLOCK_SM=1, NVML_CLOCK_MEM=2, NVML_TEMPERATURE_GPU=0, processes=[]
    )
    for name, answer in answers.items():
        setattr(played, f"nvml{name}", lambda *_, answer=answer: answer)
    played.nvmlDeviceGetNvLinkState = not_told
    played.nvmlDeviceGetComputeRunningProcesses = lambda _: played.processes
    monkeypatch.setitem(sys.modules, "pynvml", played)
    return played


@pytest.fixture
def program(nvml: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("proxy_gpus", PROXY / "gpus.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(module, "INTERVAL", 0.001)
    monkeypatch.setattr(module, "IDLE_SECONDS", 0.0)
    return module


def test_what_the_sampler_prints_is_what_the_digest_reads(
    program: ModuleType, nvml: SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    watch = program.watch(1)
    watch.wait_until_idle()
    own, stranger = (SimpleNamespace(pid=pid, usedGpuMemory=900 << 20) for pid in (424242, 1))
    nvml.processes = [own]
    watch.begin()
    nvml.processes = [own, stranger]
    watch.stepping(3)
    while not watch._samples:
        watch._ended.wait(0.001)
    watch.end()
    found = read_gpus(capsys.readouterr().out.encode().splitlines())
    assert found is not None
    sample = next(sample for sample in found.samples if sample.step == 3 and sample.others)
    assert (sample.sm_mhz, sample.power_w, sample.memory_c, sample.reasons, sample.energy_j) == (
        1395,
        699.257,
        51,
        4,
        5,
    )
    assert [(one.pid, one.mib) for one in sample.others] == [(1, 900)]
    assert sample.violations_ns == {"power": 7, "thermal": 7, "board": 7, "reliability": 7}
    assert [(s.when, s.nvlinks, s.pcie_width, s.rows_remapped, s.rows_pending) for s in found.states] == [
        ("begin", None, 16, 1, False),
        ("end", None, 16, 1, False),
    ]


def test_a_gpu_that_is_not_idle_ends_the_program(
    program: ModuleType, nvml: SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    nvml.processes = [SimpleNamespace(pid=1 << 22, usedGpuMemory=900 << 20)]
    with pytest.raises(SystemExit) as ended:
        program.watch(1).wait_until_idle()
    assert ended.value.code == program.NOT_IDLE
    said = capsys.readouterr().out
    assert (
        "proxy: GPU 0 is not idle before the start: process 4194304 (of another container) uses it, 0 % busy"
        in said
    )
    found = read_gpus(said.encode().splitlines())
    assert found is not None
    assert len(found.not_idle) == 1


def test_without_nvidia_ml_py_the_log_says_that_nothing_is_sampled(
    program: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(program, "nvml", None)
    assert program.watch(1) is None
    assert "proxy: the GPUs are not sampled: no nvidia-ml-py" in capsys.readouterr().out
