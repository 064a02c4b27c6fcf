"""What NCCL prints with NCCL_DEBUG=INFO: the start of a run, lines that spoil one, and traces of any size and shape.

The start is by NVIDIA/nccl v2.21.5-1 (src/init.cc L322 and L1541, src/transport/net.cc L195, src/transport/net_socket.cc L62,
src/enqueue.cc L2022) and v2.28.9-1 (src/plugin/net.cc L225). Traces are by the print statements of 2.28.9 (commit dbc86fd):

    prefix    src/debug.cc: `%s:%d:%d [%d] NCCL INFO ` (host up to its first dot, pid, tid, cudaDev)
    call      src/enqueue.cc 2645; `(nil)` for a null pointer is glibc's `%p`
    channel   src/transport/net.cc 313 and 359, p2p.cc 393
    network   src/transport/net_ib.cc 836, net_socket.cc 76, src/plugin/net.cc 187 and 244
    rank      src/init.cc 1598: of the subsystem INIT, which the recipes do not ask for

The order is that of the trace of two H200s in `nccl/`: a rank sets up its communicators, then it calls.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tests.printed.run import Job, Page

BF16, FLOAT = 9, 7


def info(text: str, *, host: str = "gpu001", pids: str = "1234:5678", gpu: int = 0) -> str:
    """A line of NCCL."""
    return f"{host}:{pids} [{gpu}] NCCL INFO {text}"


OVER_SOCKETS = "Using network Socket"

SOCKETS = [
    info(OVER_SOCKETS),
    info("Channel 00/0 : 0[0] -> 8[0] [send] via NET/Socket/0"),
    info("Channel 01/0 : 8[0] -> 0[0] [receive] via NET/Socket/1/Shared", gpu=3),
    info("Channel 00/0 : 0[0] -> 8[0] [send] via NET/Socket/0(1)"),
    info("Assigned NET plugin Socket to comm"),
    info("NET/Socket: Using 4 threads and 1 sockets per thread"),
]
"""In a run of several nodes."""

TRACES = [
    info("AllReduce: opCount 2 sendbuff 0x7ffb4713c200 recvbuff 0x7ffb4713c200 count 1 datatype 1 op 0 root 0 comm 0x55556b100660 [nranks={world}] stream 0x5555630c58b0"),
    "[7] NCCL INFO AllGather: opCount 1f sendbuff 0x7ffb4713c200 recvbuff 0x7ffb4713c200 count 4096 datatype 9 op 0 root 0 comm 0x55556b100660 [nranks=4] stream 0x5555630c58b0",
    info("ReduceScatter: opCount a3 sendbuff 0x7f recvbuff 0x7f count 131072 datatype 9 op 0 root 0 comm 0x5555 [nranks=8] stream 0x5555", gpu=1),
    info("Send: opCount a3 sendbuff (nil) recvbuff 0x7f count 131072 datatype 9 op 0 root 0 comm 0x5555 [nranks=2] stream 0x5555", gpu=1),
]  # fmt: skip


def made(call: str, comm: str, rank: int, ranks: int, *, end: str, bus: str = "1b000") -> str:
    """A communicator of so many ranks was asked for, or is complete: `end` names what it was made of, and which of both."""
    return info(
        f"{call} comm {comm} rank {rank} nranks {ranks} cudaDev {rank % 8} nvmlDev {rank % 8} busId {bus} {end}",
        gpu=rank % 8,
    )


def start(page: Page, job: Job, rng: random.Random) -> None:
    """The world's communicator and one of a group; on one node it has no network to use."""
    world = job.case.gpus
    call = "[Rank 0] ncclCommInitRankConfig" if rng.random() < 0.5 else "ncclCommInitRank"
    comm, commid = "0x5624aab80dd0", "commId 0x2609201f6848b74c"
    split = f"parent {comm} color 1 key 0 commId 0x46cb - Init COMPLETE"
    page.add(
        info("Bootstrap : Using eth0:10.0.0.1<0>"),
        info("cudaDriverVersion 12060"),
        made(call, comm, 0, world, end=f"{commid} - Init START"),
        info("Using network IB" if job.nodes > 1 else OVER_SOCKETS),
        made(call, comm, 0, world, end=f"{commid} - Init COMPLETE"),
        made("ncclCommSplit", "0x55c13a6640d0", 0, max(job.case.tp, 1), end=split),
    )
    if job.nodes > 1:
        page.add(info("Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/0/GDRDMA"))
    page.tell(nranks=world)


@dataclass(frozen=True)
class Trace:
    """A job of `nodes` times `gpus` ranks: a communicator of all, and one for each node.

    Attributes:
        missing: these ranks print nothing.
        cut: these ranks stop after the first half of the steps.
        sockets: on these nodes NCCL finds no InfiniBand.
        sizes: elements of each AllGather and ReduceScatter of a step.
        ranks_stated: the subsystem INIT was on too.
        label: what the launcher prints before each line.
    """

    nodes: int = 2
    gpus: int = 8
    steps: int = 5
    missing: Sequence[int] = ()
    cut: Sequence[int] = ()
    sockets: Sequence[int] = ()
    sizes: Sequence[int] = (1 << 20, 1 << 22)
    ranks_stated: bool = False
    label: str = ""

    @property
    def world(self) -> int:
        return self.nodes * self.gpus

    def lines(self) -> Iterator[bytes]:
        yield from self.set_up()
        for step in range(self.steps):
            yield from self.step(step)

    def set_up(self) -> Iterator[bytes]:
        for rank in self._ranks:
            yield from self._setup(rank)

    def step(self, step: int) -> Iterator[bytes]:
        for call in range(2 * len(self.sizes) + 1):
            for rank in self._ranks:
                if step < self.steps // 2 or rank not in self.cut:
                    yield self._call(rank, step, call)

    @property
    def _ranks(self) -> list[int]:
        return [rank for rank in range(self.world) if rank not in self.missing]

    def whole(self) -> bytes:
        return b"".join(self.lines())

    def _line(self, rank: int, text: str) -> bytes:
        node, gpu = divmod(rank, self.gpus)
        pid = 4000 + gpu
        line = info(text, host=f"gpu-{node:02d}", pids=f"{pid}:{pid}", gpu=gpu)
        return f"{self.label}{line}\n".encode()

    def _setup(self, rank: int) -> Iterator[bytes]:
        node, gpu = divmod(rank, self.gpus)
        if node in self.sockets:
            net = "Socket"
            yield self._line(rank, "NET/IB : No device found.")
            yield self._line(rank, "Failed to initialize NET plugin IB")
            yield self._line(rank, "NET/Socket : Using [0]eth0:192.0.2.2<0>")
        else:
            net = "IB"
            devices = " ".join(f"[{i}]mlx5_{i}:1/IB" for i in range(8))
            yield self._line(rank, f"NET/IB : Using {devices} [RO]; OOB eth0:192.0.2.2<0>")
        yield self._line(rank, f"Initialized NET plugin {net}")
        yield self._line(rank, f"Assigned NET plugin {net} to comm")
        if self.ranks_stated:
            yield self._line(
                rank,
                f"ncclCommInitRankConfig comm {self._comm(rank, 'world')} rank {rank} nranks {self.world} cudaDev {gpu} "
                f"nvmlDev {gpu} busId {0x18000 + gpu:x} commId 0x735adaeaefd05c93 - Init COMPLETE",
            )
        beside = node * self.gpus + (gpu + 1) % self.gpus
        yield self._line(
            rank, f"Channel 00/0 : {rank}[{gpu}] -> {beside}[{beside % self.gpus}] via P2P/CUMEM"
        )
        over = (rank + self.gpus) % self.world
        if over != rank:
            device, direct = (0, "") if net == "Socket" else (gpu, "/GDRDMA")
            for way, (a, b) in (("send", (rank, over)), ("receive", (over, rank))):
                yield self._line(
                    rank, f"Channel 00/0 : {a}[{gpu}] -> {b}[{gpu}] [{way}] via NET/{net}/{device}{direct}"
                )

    def _call(self, rank: int, step: int, call: int) -> bytes:
        if call == 2 * len(self.sizes):
            name, count, datatype, comm, size = "AllReduce", 1, FLOAT, "world", self.world
        else:
            name = ("AllGather", "ReduceScatter")[call % 2]
            count, datatype, comm, size = self.sizes[call // 2], BF16, "node", self.gpus
        return self._line(
            rank,
            f"{name}: opCount {step:x} sendbuff 0x7fe7a7e00200 recvbuff 0x7fe7a7e04000 count {count} "
            f"datatype {datatype} op 0 root 0 comm {self._comm(rank, comm)} [nranks={size}] stream 0x5556fe0c58b0",
        )

    def _comm(self, rank: int, name: str) -> str:
        return f"0x{0x55556B100660 + 4096 * rank + (8 if name == 'world' else 0):x}"
