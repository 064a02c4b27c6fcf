"""What a run tells of what it was made with, and of the nodes that printed its lines."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugins.logs import Log, nodes
from plugins.logs.formats import parser
from plugins.logs.log import HostError
from plugins.logs.nodes import MAX_VALUES, OTHERS, Versions
from tests.unit.examples import parse

H100 = "NVIDIA H100 80GB HBM3"
NODE = "node aks-7, GPUs and driver: "


def told(text: str) -> list[tuple[str, str]]:
    return list(parse(text, "megatron_lm").versions)


@pytest.mark.parametrize("name", ["nemo1", "nemo2", "maxtext", "megatron_lm", "megatron_bridge", "dllogger"])
def test_every_format_tells_gpu_driver_and_nccl(name: str) -> None:
    text = f"{NODE}8 {H100}, 550.144.03\nx NCCL version 2.21.5+cuda12.4\nNCCL version 9.9\n"
    assert parse(text, name).versions == (
        ("gpu", H100),
        ("driver", "550.144.03"),
        ("nccl", "2.21.5+cuda12.4"),
    )


@pytest.mark.parametrize(
    "said",
    [
        "unknown",
        f"8 {H100}, 550.144.03[rank3] careful",
        f"8 {H100}, 550.144.03 and so on",
        f"8 {H100}, [N/A]",
        f"8 {H100}",
        "1 NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.",
        f"8 {H100}, 550",
        "; ; ;",
        "9" * 600,
    ],
)
def test_what_is_no_list_of_gpus_tells_nothing(said: str) -> None:
    assert told(f"{NODE}{said}\n") == []


def test_of_a_thousand_nodes_that_all_differ_few_values_are_kept() -> None:
    lines = [f"{NODE}8 {H100}, 550.{number}\n".encode() for number in range(4_000)]
    # The searches that many logs share are made by the first of them.
    first, reader = parser("megatron_lm"), parser("megatron_lm")
    for line in lines[:100]:
        first.feed(line)
    assert b", GPUs and driver: " in reader.wanted
    tracemalloc.start()
    for line in lines:
        reader.feed(line)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    drivers = [value for name, value in reader.log().versions if name == "driver"]
    assert drivers == [*(f"550.{number}" for number in range(MAX_VALUES)), OTHERS]
    assert b", GPUs and driver: " not in reader.wanted
    assert peak < 1 << 16


@given(st.text(max_size=60))
def test_whatever_stands_in_the_line_nothing_is_raised(said: str) -> None:
    found = Versions()
    found.read(f"{NODE}{said}")
    assert {name for name, _ in found.pairs} <= {"gpu", "driver"}


def test_what_the_pod_told_is_known_of_a_log_from_elsewhere() -> None:
    pod = Log(versions=(("driver", "550.1"), ("driver", "550.2"), ("nccl", "2.21.5")))
    copy = Log(versions=(("nccl", "2.25.1"),))
    assert copy.beside(pod).versions == (("nccl", "2.25.1"), ("driver", "550.1"), ("driver", "550.2"))


# What a log tells of the node that printed a line, in the lines of the kernel and of NCCL as users have reported them.

WARNING = "NCCL WARN NET/IB : "


def symptoms_of(text: str, log_format: str = "nemo2") -> list[tuple[str, str]]:
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
    assert symptoms_of(f"{line}\n") == [(host, words)]


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
    assert symptoms_of(f"{line}\n") == []


def test_xids_differ_in_their_numbers_and_other_words_do_not() -> None:
    assert HostError("gpu1", "XID 79").kind != HostError("gpu1", "XID 48").kind
    assert (
        HostError("gpu1", "mlx5_0:1 on QP (0x7f1a)").kind == HostError("gpu2", "mlx5_3:1 on QP (0x7f2b)").kind
    )


def test_the_symptoms_of_a_flood_of_hosts_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodes, "MOST", 3)
    line = f"gpu{{}}:1:9 [0] transport/net_ib.cc:101 {WARNING}mlx5_0:1 Got async event : port error\n"
    hosts = [host for host, _ in symptoms_of("".join(line.format(host) for host in range(5)))]
    assert hosts == ["gpu0", "gpu1", "gpu2"]
