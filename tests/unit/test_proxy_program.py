"""The proxy's program on GPUs: NVML is played by a module."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from plugins.gpu.causes import causes
from plugins.gpu.samples import parse_gpus

PROXY = Path(__file__).resolve().parents[2] / "suites" / "proxy"


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
        "DeviceGetMaxPcieLinkWidth": 16, "EventSetCreate": "events", "DeviceRegisterEvents": None,
        "DeviceGetFieldValues": [SimpleNamespace(nvmlReturn=0, value=SimpleNamespace(uiVal=51))],
    }  # fmt: skip
    played = SimpleNamespace(
        NVMLError=NVMLError, NVML_CLOCK_SM=1, NVML_CLOCK_MEM=2, NVML_TEMPERATURE_GPU=0, processes=[]
    )
    for name, answer in answers.items():
        setattr(played, f"nvml{name}", lambda *_, answer=answer: answer)
    played.nvmlDeviceGetNvLinkState = not_told
    played.nvmlEventTypeXidCriticalError, played.xids = 8, []

    def next_xid(_events: str, _milliseconds: int) -> Any:
        if not played.xids:
            raise NVMLError("Timeout")
        return SimpleNamespace(device="handle", eventData=played.xids.pop())

    played.nvmlEventSetWait_v2 = next_xid
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
    # In parts, while NVML shows the whole one.
    watch.begin(["NVIDIA H100 80GB HBM3 MIG 1g.10gb"])
    nvml.processes, nvml.xids = [own, stranger], [79]
    watch.stepping(3)
    while nvml.xids or not any(json.loads(sample)["step"] == 3 for sample in list(watch._samples)):
        watch._ended.wait(0.001)
    watch.end()
    out = capsys.readouterr().out
    assert out.startswith("GPU 0: NVIDIA H100 80GB HBM3 MIG 1g.10gb (UUID: GPU-1)\n")
    found = parse_gpus(out.encode().splitlines())
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
    assert [(s.when, s.nvlinks, s.pcie_width, s.rows_pending, s.xids) for s in found.states] == [
        ("begin", None, 16, False, ()),
        ("end", None, 16, False, (79,)),
    ]
    assert "GPU 0: the driver told of XID 79 during the run" in causes(found)


def test_a_gpu_that_is_lost_in_a_run_ends_no_sampler(
    program: ModuleType,
    nvml: SimpleNamespace,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    watch = program.watch(1)
    watch.begin(["NVIDIA H100 80GB HBM3"])
    nvml.xids = [79]
    monkeypatch.setattr(nvml, "nvmlDeviceGetUUID", nvml.nvmlDeviceGetNvLinkState)
    while nvml.xids:
        watch._ended.wait(0.001)
    watch._samples.clear()
    while not watch._samples:
        assert watch._sampler.is_alive()
        watch._ended.wait(0.001)
    watch.end()
    assert '"when": "end"' in capsys.readouterr().out


def test_an_old_nvidia_ml_py_and_a_clock_that_is_set_leave_the_samples(
    program: ModuleType, nvml: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    del nvml.nvmlDeviceGetCurrentClocksEventReasons, nvml.nvmlDeviceRegisterEvents
    watch = program.watch(1)
    assert watch._xids == {}
    watch.begin(["NVIDIA H100 80GB HBM3"])
    begun = program.time.time()
    monkeypatch.setattr(program.time, "time", lambda: begun - 3600)
    count = len(watch._samples)
    while len(watch._samples) == count:
        watch._ended.wait(0.001)
    watch._ended.set()
    watch._sampler.join()
    last = json.loads(watch._samples[-1])
    assert last["reasons"] is None
    assert begun - 60 < last["at"] < begun + 60


def test_the_gpus_are_those_that_cuda_shows(
    program: ModuleType, nvml: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = ["GPU-11aa", "GPU-22bb", "GPU-33cc"]
    nvml.nvmlDeviceGetCount = lambda: len(ids)
    nvml.nvmlDeviceGetHandleByIndex = lambda index: ids[index]
    nvml.nvmlDeviceGetHandleByUUID = lambda name: f"part {name}"
    nvml.nvmlDeviceGetUUID = lambda handle: handle
    for visible, shown in (
        ("2, 0", ["GPU-33cc", "GPU-11aa"]), ("GPU-22", ["GPU-22bb"]), ("MIG-7", ["part MIG-7"]), ("", []),
    ):  # fmt: skip
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        assert program.watch(2)._handles == shown
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert program.watch(2)._handles == ids[:2]


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
    found = parse_gpus(said.encode().splitlines())
    assert found is not None
    assert len(found.not_idle) == 1


def test_without_nvidia_ml_py_the_log_says_that_nothing_is_sampled(
    program: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(program, "nvml", None)
    assert program.watch(1) is None
    assert "proxy: the GPUs are not sampled: no nvidia-ml-py" in capsys.readouterr().out
