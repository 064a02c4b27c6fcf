"""What a log tells of the node that printed a line, in the lines of the kernel and of NCCL as users have reported them."""

from __future__ import annotations

import pytest

from plugins.logs import nodes
from plugins.logs.formats import parser
from plugins.logs.log import HostError
from plugins.logs.registry import FORMATS

WARNING = "NCCL WARN NET/IB : "


def told(text: str, log_format: str = "nemo2") -> list[tuple[str, str]]:
    reader = parser(log_format)
    reader.feed(text.encode())
    return [(each.host, each.words) for each in reader.finish().symptoms]


@pytest.mark.parametrize(
    ("line", "host", "words"),
    [
        # NVIDIA's kernel module, by syslog and by journald.
        ("Nov 07 18:17:15 gpu017 kernel: NVRM: Xid (PCI:0000:01:00): 79, pid='<unknown>', GPU has fallen off the bus.", "gpu017", "XID 79"),
        ("2026-09-14T20:30:27-0400 gpu-17 kernel: NVRM: Xid (PCI:0000:3b:00): 48, pid=0, Double Bit ECC Error", "gpu-17", "XID 48"),
        ("12: Nov 07 18:17:15 gpu017 kernel: [ 3491.1] NVRM: Xid (PCI:0000:01:00): 94, Contained: ECC error", "gpu017", "XID 94"),
        # NCCL issues 1710, 905 (NCCL 2.17) and sichek 44 (with a stamp); NCCL 2.28 has `error event` and a function.
        (f"node201:127799:127863 [0] transport/net_ib.cc:101 {WARNING}mlx5_0:1 Got async event : port error", "node201", f"{WARNING}mlx5_0:1 Got async event : port error"),
        (f"17: gpu-48:34050:34121 [0] transport/net_ib.cc:93 {WARNING}Got async event : port error", "gpu-48", f"{WARNING}Got async event : port error"),
        (f"gpu1:1:2 [0] transport/net_ib/common.cc:180 (ncclIbAsyncThreadMain) {WARNING}mlx5_3:1 Got async error event: port error", "gpu1", f"{WARNING}mlx5_3:1 Got async error event: port error"),
        (f"gpu1:1:2 [0] transport/net_ib.cc:9 {WARNING}mlx5_3:1 async fatal event: local catastrophic error", "gpu1", f"{WARNING}mlx5_3:1 async fatal event: local catastrophic error"),
        ("[2026-01-04 21:33:04] w-0:617:2799 [3] transport/net_ib.cc:2360 NCCL WARN NET/IB: Got completion from peer 172.16.234.184<53393> with status=12", "w-0", "NCCL WARN NET/IB: Got completion from peer 172.16.234.184<53393> with status=12"),
        (f"[1,12]<stdout>:gpu1:815:864 [0] transport/net_ib.cu:80 {WARNING}Got async event : local catastrophic error", "gpu1", f"{WARNING}Got async event : local catastrophic error"),
    ],
)  # fmt: skip
def test_an_error_of_a_node_is_read_with_its_host(line: str, host: str, words: str) -> None:
    assert told(f"{line}\n") == [(host, words)]


@pytest.mark.parametrize(
    "line",
    [
        "Jul 18 21:08:48 kernel: NVRM: Xid (PCI:0000:41:00): 79, GPU has fallen off the bus.",  # no host
        "NVRM: Xid (PCI:0000:41:00): 79",
        "transport/net_ib.cc:93 NCCL WARN NET/IB : mlx5_0:1 Got async event : port error",
        "gpu1:1:2 [0] NCCL INFO NET/IB : Got async event : client reregistration",
        f"gpu1:1:2 [0] transport/net_ib.cc:93 {WARNING}mlx5_0:1 Got async event : client reregistration",
        "gpu1:1:2 [0] transport/nvls.cc:621 NCCL WARN Cuda failure 1 'invalid argument'",
    ],
)
def test_what_has_no_host_and_what_is_no_fault_is_no_symptom(line: str) -> None:
    assert told(f"{line}\n") == []


@pytest.mark.parametrize("log_format", sorted(FORMATS))
def test_each_format_tells_symptoms_once_for_each_host(log_format: str) -> None:
    lines = [
        f"gpu{host}:{pid}:9 [{pid}] transport/net_ib.cc:101 {WARNING}mlx5_{pid}:1 Got async event : port error"
        for host in (1, 2)
        for pid in range(8)
    ]
    words = f"{WARNING}mlx5_0:1 Got async event : port error"
    assert told("\n".join([*lines, *lines, ""]), log_format) == [("gpu1", words), ("gpu2", words)]


def test_xids_differ_in_their_numbers_and_other_words_do_not() -> None:
    assert HostError("gpu1", "XID 79").kind != HostError("gpu1", "XID 48").kind
    assert (
        HostError("gpu1", "mlx5_0:1 on QP (0x7f1a)").kind == HostError("gpu2", "mlx5_3:1 on QP (0x7f2b)").kind
    )


def test_the_symptoms_of_a_flood_of_hosts_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodes, "MOST", 3)
    line = f"gpu{{}}:1:9 [0] transport/net_ib.cc:101 {WARNING}mlx5_0:1 Got async event : port error\n"
    hosts = [host for host, _ in told("".join(line.format(host) for host in range(5)))]
    assert hosts == ["gpu0", "gpu1", "gpu2"]
