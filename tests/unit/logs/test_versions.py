"""What a run tells of what it was made with."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugins.logs import Log
from plugins.logs.formats import parser
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


# As the launcher joins them, as a shell does that does not quote them, and of several nodes in one log.
@pytest.mark.parametrize(
    "text",
    [
        f"{NODE}4 {H100}, 550.1; 4 {H100}, 550.2\n",
        f"{NODE}4 {H100}, 550.1 4 {H100}, 550.2\n",
        f"{NODE}8 {H100}, 550.1\n{NODE}8 {H100}, 550.2\n{NODE}8 {H100}, 550.1\n",
    ],
)
def test_drivers_that_differ_are_all_told(text: str) -> None:
    assert told(text) == [("gpu", H100), ("driver", "550.1"), ("driver", "550.2")]


def test_gpus_that_differ_are_all_told() -> None:
    assert told(f"{NODE}7 {H100}, 550.1; 1 NVIDIA H100 NVL, 550.1\n") == [
        ("gpu", H100),
        ("gpu", "NVIDIA H100 NVL"),
        ("driver", "550.1"),
    ]


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


def test_a_version_cut_short_is_none() -> None:
    text = f"{NODE}8 {H100}, 550.144.03"
    assert all(told(text[:end]) == [] for end in range(len(text) + 1))
    assert told("NCCL version 2.2") == []


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
