"""A synchronous data-parallel job, and the exports that Nsight Systems makes of it.

Each rank computes by itself and reduces its gradients in buckets beside the backward pass. A collective ends on
all ranks at once, after the last one has entered it and the data were moved. Every kernel's time scatters, each
rank has a speed of its own, and each rank's clock another zero.

The exports have the tables of a real one: `schema/*.sql` name their sources.
"""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

MS = 1_000_000
RANKS = 4
STEPS = 6
LAYERS = 4

FORWARD = (
    ("nvjet_tst_192x192_64x4_2x1_v_bz_coopB_bias_TNN", 4.0),
    ("cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x128_4x1x1_kernel0_0", 2.0),
    ("void transformer_engine::normalization::rmsnorm_fwd_general_kernel<>", 0.3),
)
BACKWARD = (
    ("nvjet_tst_192x208_64x4_1x1_h_bz_coopB_bias_TNT", 8.0),
    ("cudnn_generated_fort_native_sdpa_sm90_flash_bprop_wgmma_f16_knob_26_64x64x128_1x1x1_kernel0_0", 4.0),
    ("void at::native::vectorized_elementwise_kernel<(int)4, at::native::CUDAFunctor_add<float>>", 1.0),
)
OPTIMIZER = "void multi_tensor_apply_kernel<transformer_engine::multi_tensor_adam::AdamFunctorMaster<float>>"
REDUCE = "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
GATHER = "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


@dataclass
class Recorded:
    """What the profiler saw of one rank. Times are in ns: (start, end, name of the kernel)."""

    kernels: list[tuple[int, int, str]] = field(default_factory=list)
    copies: list[tuple[int, int]] = field(default_factory=list)


class _Rank:
    def __init__(self, rng: random.Random, speed: float) -> None:
        self.recorded = Recorded()
        self.now = float(10_000 * MS + rng.randrange(9_000 * MS))
        self.ready = self.now
        self._rng, self._speed = rng, speed

    def compute(self, name: str, ms: float) -> None:
        self.now += self._rng.uniform(2_000, 6_000)
        took = ms * MS * self._speed * self._rng.gauss(1, 0.01)
        self._launch(self.now, self.now + took, name)
        self.now += took

    def collective(self, since: float, until: float, name: str) -> None:
        self._launch(since, until, name)
        self.ready = until

    def load(self) -> None:
        self.now += 0.3 * MS * self._rng.gauss(1, 0.05)
        self.recorded.copies.append((int(self.now) + 2_000, int(self.now) + 52_000))
        self.now += 52_000

    def _launch(self, start: float, end: float, name: str) -> None:
        self.recorded.kernels.append((int(start), int(end), name))


def simulate(ranks: int = RANKS) -> list[Recorded]:
    """What the profiler saw of each rank."""
    rng = random.Random("a job")
    members = [_Rank(rng, rng.gauss(1, 0.004)) for _ in range(ranks)]
    zeros = [member.now for member in members]

    def together(name: str, ms: float) -> None:
        """A collective: it ends everywhere at once, each clock counted from its own zero."""
        since = [max(member.now, member.ready) for member in members]
        last = max(at - zero for at, zero in zip(since, zeros, strict=True))
        took = ms * MS * rng.gauss(1, 0.02)
        for member, at, zero in zip(members, since, zeros, strict=True):
            member.collective(at, zero + last + took, name)

    for _ in range(STEPS):
        for member in members:
            member.load()
            for _ in range(LAYERS):
                for name, ms in FORWARD:
                    member.compute(name, ms)
        for _ in range(LAYERS):
            for member in members:
                for name, ms in BACKWARD:
                    member.compute(name, ms)
            together(REDUCE, 6.0)
        for member in members:
            member.now = member.ready
            member.compute(OPTIMIZER, 1.5)
        together(GATHER, 5.0)
        for member in members:
            member.now = member.ready + 3_000
    return [member.recorded for member in members]


@cache
def _schema(version: str) -> tuple[str, dict[str, dict[str, bool]]]:
    """The statements of a schema, and for each table which columns must have a value."""
    text = (Path(__file__).parent / "schema" / f"nsys_{version}.sql").read_text()
    base = sqlite3.connect(":memory:")
    base.executescript(text)
    tables = [name for (name,) in base.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    columns = {
        table: {row[1]: bool(row[3]) and not row[5] for row in base.execute(f"PRAGMA table_info({table})")}
        for table in tables
    }
    return text, columns


def insert(
    base: sqlite3.Connection,
    version: str,
    table: str,
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
) -> None:
    """Insert rows; other columns that must have a value are 0."""
    known = _schema(version)[1][table]
    rest = [name for name, needed in known.items() if needed and name not in columns]
    marks = ", ".join(["?"] * len(columns) + ["0"] * len(rest))
    base.executemany(f"INSERT INTO {table} ({', '.join([*columns, *rest])}) VALUES ({marks})", rows)


@cache
def _without_rows(version: str) -> bytes:
    base = sqlite3.connect(":memory:")
    base.executescript(_schema(version)[0])
    return base.serialize()


def new_export(path: Path, version: str = "2026_2") -> sqlite3.Connection:
    """An export without rows, opened to write them."""
    path.write_bytes(_without_rows(version))
    base = sqlite3.connect(path, isolation_level=None)
    base.execute("PRAGMA journal_mode = OFF")
    base.execute("PRAGMA synchronous = OFF")
    base.execute("BEGIN")
    return base


COLUMNS = {
    "CUPTI_ACTIVITY_KIND_KERNEL": ("start", "end", "deviceId", "globalPid", "demangledName", "shortName"),
    "CUPTI_ACTIVITY_KIND_MEMCPY": ("start", "end", "deviceId", "globalPid", "bytes", "copyKind"),
    "StringIds": ("id", "value"),
    "TARGET_INFO_SYSTEM_ENV": ("name", "value"),
    "TARGET_INFO_GPU": ("id", "name"),
    "TARGET_INFO_SESSION_START_TIME": ("utcTime",),
}  # fmt: skip
ENVIRONMENT = [
    ("NvDriverVersion", "580.95.05"),
    ("CudaDriverVersion", "13000"),
    ("DeviceEnvironment", "HF_TOKEN=hf_not_for_anyone"),
]


def export(
    path: Path,
    *recorded: Recorded,
    version: str = "2026_2",
    host: str = "node07",
    device: int = 0,
    drop: Sequence[str] = (),
) -> Path:
    """Write what the profiler saw of the processes of one report. `drop`: tables that this report lacks."""
    base = new_export(path, version)
    names: dict[str, int] = {}

    def number(name: str) -> int:
        return names.setdefault(name, len(names) + 1)

    rows: dict[str, list[tuple[object, ...]]] = {table: [] for table in COLUMNS}
    for at, one in enumerate(recorded):
        gpu, pid = device + at, 0x1000000000000 + (4000 + at) * 0x1000000
        rows["CUPTI_ACTIVITY_KIND_KERNEL"] += [
            (s, e, gpu, pid, number(n), number(n)) for s, e, n in one.kernels
        ]
        rows["CUPTI_ACTIVITY_KIND_MEMCPY"] += [(s, e, gpu, pid, 1 << 20, 1) for s, e in one.copies]
    rows["StringIds"] = [(number, name) for name, number in names.items()]
    rows["TARGET_INFO_SYSTEM_ENV"] = [("Hostname", host), *ENVIRONMENT]
    rows["TARGET_INFO_GPU"] = [(n, "NVIDIA H100 80GB HBM3") for n in range(8)]
    rows["TARGET_INFO_SESSION_START_TIME"] = [("2026-11-20T10:00:00",)]
    for table, values in rows.items():
        insert(base, version, table, COLUMNS[table], values)
    meta = "META_DATA_EXPORT" if "META_DATA_EXPORT" in _schema(version)[1] else "EXPORT_META_DATA"
    stated = [("EXPORT_PRODUCT_VERSION", "2026.2.1.210"), ("EXPORT_SCHEMA_VERSION", "3.25.0")]
    insert(base, version, meta, ("name", "value"), stated)
    for table in drop:
        base.execute(f"DROP TABLE {table}")
    base.execute("COMMIT")
    base.close()
    return path
