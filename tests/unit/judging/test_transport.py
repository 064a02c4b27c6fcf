"""The network of a timed run: NCCL says it in the run's own log, and the site file says which one it should be."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from plugins.baselines.baseline_file import accelerators
from plugins.judging.evidence import SiteFacts
from plugins.judging.judgement import Judgement
from plugins.judging.validity import Started
from plugins.logs import nodes
from plugins.logs.formats import parser
from plugins.record.baseline import Statistic
from plugins.record.verdict import Kind
from tests.printed.nccl import Trace
from tests.printed.nemo2 import nemo2_line
from tests.unit import examples
from tests.unit.examples import nemo2_text, parse

REAL = Path(__file__).parents[1] / "modes" / "nccl"
WHO = "gpu-00:4000:4000 [0] NCCL INFO "
CHOSEN = "".join(f"gpu-{node:02d}:4000:4000 [0] NCCL INFO Using network IBext_v8\n" for node in range(64))


def start(**changed: object) -> str:
    """What NCCL prints at the start of the case's 64 nodes of 8 GPUs."""
    trace = Trace(nodes=64, gpus=8, ranks_stated=True, **changed)  # type: ignore[arg-type]
    return b"".join(trace.set_up()).decode()


def judged(text: str, network: str | None = "IB") -> Judgement:
    return examples.judged(
        examples.case(), examples.outcome(), parse(text), examples.baseline(), site=SiteFacts(64, network)
    )


def test_the_name_of_a_network_counts_with_the_vendor_and_without() -> None:
    text = start().replace("NET/IB/", "NET/AWS Libfabric/") + nemo2_text()
    for network in ("Libfabric", "AWS Libfabric", "aws libfabric/gdrdma"):
        verdict = judged(text, network).verdict
        assert (verdict.kind, verdict.remarks) == (Kind.PASSED, ())


@pytest.mark.parametrize("network", [None, "IB", "IB/GDRDMA"])
def test_a_run_over_the_network_of_the_site_passes(network: str | None) -> None:
    judgement = judged(start() + nemo2_text(), network)
    assert (judgement.verdict.kind, judgement.verdict.remarks) == (Kind.PASSED, ())
    assert "; network IB/GDRDMA on 512 GPUs, by mlx5_0, mlx5_1," in "\n".join(judgement.details)


@pytest.mark.parametrize(
    ("text", "network", "reason"),
    [
        (start(), "Libfabric", "the network is IB/GDRDMA, not Libfabric: ranks 0 to 7 on gpu-00, ranks 8 to 15 on gpu-01,"),
        (start(sockets=(3,)), "IB", "the network is Socket, not IB: ranks 24 to 31 on gpu-03"),
        (start().replace("via NET/IB/2/GDRDMA", "via NET/IB/2"), "IB/GDRDMA", "the network is IB, not IB/GDRDMA: rank 2 on gpu-00,"),
        (CHOSEN, "Libfabric", "the network is IBext_v8, not Libfabric: GPU 0 on gpu-00,"),
        (start().replace("NET/IB/", "NET/AWS Libfabric/"), "IB", "the network is AWS Libfabric/GDRDMA, not IB: "),
    ],
)  # fmt: skip
def test_another_network_is_another_run(text: str, network: str, reason: str) -> None:
    verdict = judged(text + nemo2_text(), network).verdict
    assert verdict.kind is Kind.INVALID
    assert any(reason in line for line in verdict.reasons), verdict.reasons
    given_up = examples.outcome(failure="given up", message="cancelled for its pace")
    log, site = parse(text + nemo2_text()), SiteFacts(64, network)
    assert (
        examples.judged(examples.case(), given_up, log, examples.baseline(), site=site).verdict.kind
        is Kind.INVALID
    )


@pytest.mark.parametrize(
    ("text", "network", "remarked"),
    [
        ("", "IB", True),
        ("", None, False),
        (CHOSEN, "IB", False),
        (CHOSEN, "IB/GDRDMA", True),
    ],
)
def test_a_network_that_is_not_seen_is_remarked_on(text: str, network: str | None, remarked: bool) -> None:
    verdict = judged(text + nemo2_text(), network).verdict
    assert verdict.kind is Kind.PASSED
    assert (
        any("nothing in the log shows that the network was" in line for line in verdict.remarks) == remarked
    )


@pytest.mark.parametrize(
    ("nvlink", "line", "invalid"),
    [
        (512, "Using network Socket", False),
        (512, "Channel 00/0 : 0[0] -> 8[0] [send] via NET/Socket/0", True),
        (8, "Assigned NET plugin Socket to comm", True),
    ],
)
def test_within_nvlink_only_a_channel_tells_of_the_network(nvlink: int, line: str, invalid: bool) -> None:
    part = accelerators(examples.BASELINES)["h100"].model_copy(update={"nvlink": nvlink})
    log = parse(f"{WHO}{line}\n{nemo2_text()}")
    reasons = examples.problems(examples.case(), log, Statistic(), part, Started(), nodes=64, network="IB")
    assert ("the network is Socket, not IB: GPU 0 on gpu-00" in reasons) == invalid


def test_what_nccl_2_28_9_printed_in_a_run_of_four_gpus() -> None:
    """With INIT alone, four H100s in two nodes by NCCL_HOSTID: each process names its network, device and rank."""
    log = parse((REAL / "init-2.28.9.txt").read_bytes())
    assert [(process.gpu, process.rank, process.network) for process in log.processes] == [
        (rank, rank, "Socket") for rank in range(4)
    ]
    assert {process.devices for process in log.processes} == {("eth0",)}


def test_a_step_in_the_midst_of_lines_of_nccl_is_read() -> None:
    channel = f"{WHO}Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/0/GDRDMA"
    text = f"{channel}\n" * 3 + "".join(f"{channel}{nemo2_line(i)}\n{channel}\n" for i in range(50))
    log = parse(text)
    assert [step.index for step in log.steps] == list(range(50))
    assert [process.network for process in log.processes] == ["IB/GDRDMA"]
    wrapped = json.dumps({"log": f"{WHO}Using network gIB\n", "stream": "stderr"})
    assert [process.networks for process in parse(f"{wrapped}\n").processes] == [("gIB",)]


@pytest.mark.parametrize(("size", "length"), [(1, 6_000), (37, 60_000), (4096, 60_000)])
def test_the_processes_do_not_depend_on_the_pieces(size: int, length: int) -> None:
    data = (start(sockets=(1,))[:length] + nemo2_text()).encode()
    pieces = parser("nemo2")
    for begin in range(0, len(data), size):
        pieces.feed(data[begin : begin + size])
        if begin % 1000 == 0:
            pieces.log()
    assert pieces.finish().processes == parse(data).processes


def test_so_many_lines_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodes, "MAX_LINES", 100)
    log = parse(start() + nemo2_text())
    assert 0 < len(log.processes) < 512
    assert len(log.steps) == 50
