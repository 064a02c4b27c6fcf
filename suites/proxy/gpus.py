"""What NVML tells of this node's GPUs: whether they are idle, and samples of them while a program trains.

All is printed as lines of the log, because a log is what every cluster hands back:

    GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-...)
    gpu state: {"gpu": 0, "when": "begin", ...}
    gpu sample: {"gpu": 0, "at": 1795359247.6, "step": 3, "sm_mhz": 1395, ...}

`plugins.gpu.samples` reads them. Without nvidia-ml-py nothing is sampled, and the log says so.
"""

import json
import os
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

try:
    import pynvml as nvml
except ImportError:
    nvml = None

INTERVAL = 0.5  # seconds between two samples
IDLE_SECONDS = 10.0  # how long a GPU is given to become idle: a job before this one may just have ended
BUSY_PERCENT = 5
HELD_MIB = 2048  # of a GPU that no process is seen on; the driver itself holds less
NOT_IDLE = 5  # the exit code

# nvmlPerfPolicyType_t: which limit the clocks were below their request for, and for how long.
VIOLATIONS = {"power": 0, "thermal": 1, "board": 3, "reliability": 5}
MEMORY_TEMPERATURE = 82  # nvmlFieldValue's ids
NVLINKS = 18


def shown() -> bool:
    """Whether this node shows an NVIDIA GPU. In a container it may be another one than the first."""
    return any(Path("/dev").glob("nvidia[0-9]*"))


def _asked(name: str, *arguments: Any) -> Any:
    """What NVML's function answers; None where this GPU, driver or version of nvidia-ml-py does not tell."""
    with suppress(nvml.NVMLError, AttributeError):
        return getattr(nvml, name)(*arguments)
    return None


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return "of another container"


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _uuid(handle: Any) -> str:
    return _text(nvml.nvmlDeviceGetUUID(handle))


class Gpus:
    """The first `count` GPUs that this program may use."""

    def __init__(self, count: int) -> None:
        nvml.nvmlInit()
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        names = map(str, range(count)) if visible is None else visible.split(",")
        self._handles = [self._handle(name.strip()) for name in names if name.strip()][:count]
        self._uuids = [_uuid(handle) for handle in self._handles]
        self._own: set[int] = set()
        self._step = -1
        self._samples: list[str] = []
        self._events = _asked("nvmlEventSetCreate")
        known = zip(self._uuids, self._handles, strict=True)
        self._xids: dict[str, list[int]] = {uuid: [] for uuid, handle in known if self._tells_xids(handle)}
        # A clock that is set in the middle must not change how far apart two samples are.
        self._epoch = time.time() - time.monotonic()
        self._ended = threading.Event()
        self._sampler = threading.Thread(target=self._sample, daemon=True)

    @staticmethod
    def _handle(name: str) -> Any:
        if name.isdecimal():
            return nvml.nvmlDeviceGetHandleByIndex(int(name))
        # CUDA takes the beginning of an id, too.
        for handle in map(nvml.nvmlDeviceGetHandleByIndex, range(nvml.nvmlDeviceGetCount())):
            if name.startswith("GPU-") and _uuid(handle).startswith(name):
                return handle
        return nvml.nvmlDeviceGetHandleByUUID(name)

    def _tells_xids(self, handle: Any) -> bool:
        """Whether the driver tells the errors (XIDs) of this GPU from now on. It keeps no earlier ones."""
        try:
            nvml.nvmlDeviceRegisterEvents(handle, nvml.nvmlEventTypeXidCriticalError, self._events)
        except (nvml.NVMLError, AttributeError):
            return False
        return True

    def wait_until_idle(self) -> None:
        """End this program if a GPU is not idle, with what is on it."""
        until = time.monotonic() + IDLE_SECONDS
        while busy := [why for index in range(len(self._handles)) if (why := self._business(index))]:
            if time.monotonic() > until:
                for why in busy:
                    print(f"proxy: {why}")
                sys.exit(NOT_IDLE)
            time.sleep(INTERVAL)

    def _business(self, index: int) -> str:
        """Why a GPU is not idle; "" if it is."""
        handle = self._handles[index]
        memory = _asked("nvmlDeviceGetMemoryInfo", handle)
        use = _asked("nvmlDeviceGetUtilizationRates", handle)
        held, busy = (memory.used >> 20 if memory else 0), (use.gpu if use else 0)
        others = self._processes(handle)
        if not others and busy < BUSY_PERCENT and held < HELD_MIB:
            return ""
        who = (
            " and ".join(f"process {one['pid']} ({one['name']})" for one in others)
            or "a process that NVML does not show"
        )
        return f"GPU {index} is not idle before the start: {who} uses it, {busy} % busy, {held} MiB held"

    def _processes(self, handle: Any) -> list[dict[str, Any]]:
        found = _asked("nvmlDeviceGetComputeRunningProcesses", handle) or []
        return [
            {"pid": one.pid, "name": _name(one.pid), "mib": (one.usedGpuMemory or 0) >> 20}
            for one in found
            if one.pid not in self._own
        ]

    def begin(self, names: Sequence[str]) -> None:
        """Print each GPU's name and state, and begin to sample. This program is now on the GPUs.

        `names` are as CUDA has them: of a GPU in parts, NVML may show the whole one.
        """
        present = {one["pid"] for handle in self._handles for one in self._processes(handle)}
        # In a container NVML may give this process another id. Before the start there was no other process.
        self._own = {os.getpid()} if os.getpid() in present else present
        for index, (uuid, name) in enumerate(zip(self._uuids, names, strict=True)):
            print(f"GPU {index}: {name} (UUID: {uuid})")
        print(f"proxy driver: {_text(nvml.nvmlSystemGetDriverVersion())}")
        self._states("begin")
        self._sampler.start()

    def stepping(self, step: int) -> None:
        """Print the samples so far; those that follow are of this step. -1: of no step that counts."""
        # One thread prints, so that no line is inside another one.
        samples, self._samples = self._samples, []
        for sample in samples:
            print(f"gpu sample: {sample}")
        self._step = step

    def end(self) -> None:
        self._ended.set()
        self._sampler.join()
        self.stepping(-1)
        self._states("end")

    def _states(self, when: str) -> None:
        """Print what changes slowly."""
        for index, handle in enumerate(self._handles):
            remapped = _asked("nvmlDeviceGetRemappedRows", handle) or [None] * 4
            links = [_asked("nvmlDeviceGetNvLinkState", handle, link) for link in range(NVLINKS)]
            state = {
                "gpu": index,
                "when": when,
                "default_limit_w": _watts(_asked("nvmlDeviceGetPowerManagementDefaultLimit", handle)),
                "pcie_width": _asked("nvmlDeviceGetCurrPcieLinkWidth", handle),
                "pcie_width_max": _asked("nvmlDeviceGetMaxPcieLinkWidth", handle),
                "nvlinks": sum(link == 1 for link in links)
                if any(link is not None for link in links)
                else None,
                "ecc_uncorrected": _asked("nvmlDeviceGetTotalEccErrors", handle, 1, 0),
                "rows_pending": remapped[2] and bool(remapped[2]),
                "rows_failed": remapped[3] and bool(remapped[3]),
                "xids": self._xids.get(self._uuids[index]),
            }
            print(f"gpu state: {json.dumps(state)}")

    def _note_xid(self) -> None:
        """Note the XID that waits, if there is one."""
        event = _asked("nvmlEventSetWait_v2", self._events, 0)
        if event is not None:
            # Of a GPU in parts, it is of the whole one. A GPU that is lost tells no id.
            uuid = _text(_asked("nvmlDeviceGetUUID", event.device))
            self._xids.get(uuid, []).append(event.eventData)

    def _sample(self) -> None:
        while not self._ended.wait(INTERVAL):
            self._note_xid()
            for index, handle in enumerate(self._handles):
                use = _asked("nvmlDeviceGetUtilizationRates", handle)
                memory = _asked("nvmlDeviceGetFieldValues", handle, [MEMORY_TEMPERATURE])
                energy = _asked("nvmlDeviceGetTotalEnergyConsumption", handle)
                violated = {
                    k: _asked("nvmlDeviceGetViolationStatus", handle, v) for k, v in VIOLATIONS.items()
                }
                sample = {
                    "gpu": index,
                    "at": round(self._epoch + time.monotonic(), 3),
                    "step": self._step,
                    "sm_mhz": _asked("nvmlDeviceGetClockInfo", handle, nvml.NVML_CLOCK_SM),
                    "memory_mhz": _asked("nvmlDeviceGetClockInfo", handle, nvml.NVML_CLOCK_MEM),
                    "power_w": _watts(_asked("nvmlDeviceGetPowerUsage", handle)),
                    "limit_w": _watts(_asked("nvmlDeviceGetEnforcedPowerLimit", handle)),
                    "temperature_c": _asked("nvmlDeviceGetTemperature", handle, nvml.NVML_TEMPERATURE_GPU),
                    "memory_c": memory[0].value.uiVal if memory and memory[0].nvmlReturn == 0 else None,
                    "reasons": _asked("nvmlDeviceGetCurrentClocksEventReasons", handle),
                    "busy": use and use.gpu,
                    "memory_busy": use and use.memory,
                    "energy_j": None if energy is None else energy / 1000,
                    "violations_ns": {k: v.violationTime for k, v in violated.items() if v is not None},
                    "others": self._processes(handle),
                }
                self._samples.append(json.dumps(sample))


def watch(count: int) -> Gpus | None:
    """The first `count` GPUs, to be sampled; None if NVML cannot be asked."""
    try:
        return Gpus(count)
    except Exception as error:
        if nvml is not None and not isinstance(error, nvml.NVMLError):
            raise
        print(f"proxy: the GPUs are not sampled: {error if nvml else 'no nvidia-ml-py'}")
        return None


def _watts(milliwatts: int | None) -> float | None:
    return None if milliwatts is None else milliwatts / 1000
