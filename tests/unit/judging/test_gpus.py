"""What a log tells of its GPUs. The logs are of lent H100 and H200, with every fourth or sixth sample kept."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from plugins.baselines.store import find
from plugins.digests import gpus as digest
from plugins.digests.gpus import Gpus
from plugins.digests.gpus import Process
from plugins.digests.gpus import Product
from plugins.digests.gpus import State
from plugins.digests.gpus import read_gpus
from plugins.job import Job
from plugins.job import JobRef
from plugins.job import JobState
from plugins.job import Phase
from plugins.judging import gpus as gpu_judging
from plugins.judging.identity import type_in
from plugins.judging.judge import Judgement
from plugins.judging.judge import judge_outcome
from plugins.judging.verdicts import Kind
from plugins.logs.formats import parser
from plugins.logs.formats import read
from plugins.logs.statements import Fact
from plugins.outcome import Outcome
from plugins.recipes.cases import load_recipe
from plugins.reports import results

ROOT = Path(__file__).resolve().parents[3]
LOGS = ROOT / "tests" / "unit" / "gpu_logs"
PROXY = load_recipe(ROOT / "suites" / "proxy")
CASE = PROXY.case("8b-8l-bf16-1gpus")


def gpus(name: str) -> Gpus:
    with (LOGS / f"{name}.log").open("rb") as file:
        found = read_gpus(file)
    assert found is not None
    return found


def judged(
    name: str,
    *,
    changed: Gpus | None = None,
    gpu: str = "h100",
    succeeded: bool = True,
    folder: Path = LOGS,
    jax: bytes = b"0.11.2",
) -> Judgement:
    assert CASE is not None
    baselines = ROOT / "baselines"
    data = (LOGS / f"{name}.log").read_bytes().replace(b"proxy jax: 0.11.2", b"proxy jax: " + jax)
    state = JobState(Phase.SUCCEEDED if succeeded else Phase.FAILED, "COMPLETED" if succeeded else "FAILED")
    outcome = Outcome(gpu, folder, None, Job(ref=JobRef("proxy", CASE.id, "x", "7"), state=state))
    return judge_outcome(
        CASE,
        outcome,
        read("maxtext", [data]),
        find(baselines, PROXY, CASE, gpu),
        gpu=gpu,
        baselines=baselines,
        gpus=changed or gpus(name),
    )


def changed(**values: Any) -> Gpus:
    """The healthy run, with other values in the samples of its steps."""
    healthy = gpus("healthy")
    samples = tuple(replaced(sample, values) if sample.step >= 0 else sample for sample in healthy.samples)
    return replace(healthy, samples=samples)


def replaced(sample: Any, values: dict[str, Any]) -> Any:
    return sample.model_copy(update=values)


def test_a_healthy_run_passes_at_its_power_cap_and_shows_its_clock_and_energy() -> None:
    found = judged("healthy")
    assert (found.verdict.kind, found.verdict.remarks) == (Kind.PASSED, ())
    text = found.text
    assert "gpu 0     SM 1380 MHz, memory 2619 MHz, power 698 W, limit 700 W" in text
    assert "at the power cap 100 %, product before 691 (801) TFLOP/s" in text
    assert (
        "MFU 87.11 % of the peak at the 1380 MHz that were held; the data sheet's peak is at 1830 MHz" in text
    )
    assert "energy    0.01806 J a token, 697 W a GPU" in text
    assert found.measurement is not None
    assert found.measurement.mfu == pytest.approx(65.69, abs=0.01)


@pytest.mark.parametrize(
    ("name", "headline", "cause"),
    [
        ("second_process", "too slow: 2.131 s", "cause: process 1314 (python3) was on GPU 0 too, in"),
        ("kept_waiting", "too slow: 1.879 s", "cause: GPU 0 was idle for"),
    ],
)
def test_a_slow_run_fails_with_its_cause(name: str, headline: str, cause: str) -> None:
    verdict = judged(name).verdict
    assert verdict.kind is Kind.TOO_SLOW
    assert headline in verdict.headline
    assert cause in verdict.headline


def test_a_gpu_that_is_not_idle_before_the_start_is_named() -> None:
    verdict = judged("not_idle", succeeded=False).verdict
    assert verdict.kind is Kind.INFRASTRUCTURE
    assert "GPU 0 is not idle before the start: process 1228 (python3) uses it, 95 % busy" in verdict.headline


def test_a_type_of_gpu_without_a_number_never_passes() -> None:
    verdict = judged("healthy", gpu="b300").verdict
    assert verdict.kind is Kind.INVALID
    assert "the log is of NVIDIA H100 80GB HBM3, this case is judged as of NVIDIA B300" in verdict.headline
    verdict = judged("healthy", gpu="h100-pcie").verdict
    assert verdict.kind is Kind.NO_BASELINE
    assert "measured 1.697 s a step" in verdict.headline


@pytest.mark.parametrize(
    ("name", "gpu"),
    [(b"NVIDIA H100 80GB HBM3", "h100"), (b"NVIDIA H200", "h200"), (b"NVIDIA A100-SXM4-80GB", "a100")],
)
def test_the_type_of_gpu_is_the_one_that_the_log_names(name: bytes, gpu: str) -> None:
    assert CASE is not None
    log = read("maxtext", [(LOGS / "healthy.log").read_bytes().replace(b"NVIDIA H100 80GB HBM3", name)])
    assert type_in(CASE, log, "b200") == gpu
    assert type_in(PROXY.cases[0], log, "cpu") == "cpu"
    other = Fact("gpu", "NVIDIA B200", "GPU 1: NVIDIA B200 (UUID: GPU-1)")
    # Of two types none is judged: the log is not that of the site's.
    assert type_in(CASE, replace(log, facts=(*log.facts, other)), "b200") == "b200"
    assert type_in(CASE, replace(log, facts=(), versions=()), "b200") == "b200"


def test_another_jax_than_the_baselines_is_a_remark_and_part_of_the_identity() -> None:
    found = judged("healthy", jax=b"0.10.2")
    assert found.verdict.kind is Kind.PASSED
    assert found.verdict.remarks == ("the run has jax 0.10.2, the baseline was measured with 0.11.2",)
    assert any(line.startswith("identity ") and line.endswith("; jax 0.10.2") for line in found.details)
    assert found.versions == {"jax": "0.10.2", "driver": "580.159.04"}


def test_what_a_long_log_tells_of_its_gpus_is_fetched_too() -> None:
    reader = parser("maxtext")
    lines = (LOGS / "two_gpus.log").read_bytes().splitlines(keepends=True)
    reader.feed(b"".join(lines))
    fetched = [line for line in lines if any(wanted in line for wanted in reader.wanted)]
    assert read_gpus(fetched) == read_gpus(lines)


def test_of_two_gpus_the_slow_one_is_named() -> None:
    found = digest.causes(gpus("two_gpus").during(0, 99), 673)
    assert found[0].startswith("process 3040 (python3) was on GPU 1 too, in 5")
    assert "GPU 1: its matrix product after the run is 453 TFLOP/s, that of the node's others 670" in found
    assert not any("GPU 0" in cause for cause in found)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"reasons": 0x44}, "GPU 0: hardware thermal slowdown (0x40) in 100 % of the samples, at up to"),
        ({"reasons": 0x20}, "GPU 0: software thermal slowdown (0x20) in 100 % of the samples"),
        ({"reasons": 0x88}, "GPU 0: hardware slowdown (0x8) in 100 %"),
        ({"reasons": 0x80}, "GPU 0: hardware power brake (0x80) in 100 %"),
    ],
)
def test_hardware_that_slows_itself_down_makes_a_run_invalid(values: dict[str, Any], said: str) -> None:
    verdict = judged("healthy", changed=changed(**values)).verdict
    assert verdict.kind is Kind.INVALID
    assert said in verdict.headline


def test_a_thermal_limit_counts_by_its_share_of_the_time() -> None:
    healthy = gpus("healthy").during(0, 99)
    begin = healthy.samples[0].at

    def held(share: float) -> Gpus:
        samples = tuple(
            s.model_copy(update={"violations_ns": {"thermal": int(share * (s.at - begin) * 1e9)}})
            for s in healthy.samples
        )
        return replace(healthy, samples=samples)

    assert digest.spoiled(held(0.01)) == []
    assert digest.spoiled(held(0.3)) == ["GPU 0: its thermal limit held the clocks down for 30 % of the time"]


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"limit_w": 500.0}, "GPU 0: its power limit is 500 W, by default 700 W"),
        ({"reasons": 0x6}, "GPU 0: a clock that was set (0x2) limits it in 100 % of the samples"),
        ({"busy": 80.0}, "GPU 0 was idle for 20 % of the time: its program or its host kept it waiting"),
        ({"others": (Process(pid=9, name="dcgm", mib=300),)}, "process 9 (dcgm) was on GPU 0 too, in 100 %"),
    ],
)
def test_a_limit_or_a_stranger_explains_a_slow_run_and_is_a_remark_on_a_good_one(
    values: dict[str, Any], said: str
) -> None:
    assert said in digest.causes(changed(**values).during(0, 99))[0]
    verdict = judged("healthy", changed=changed(**values)).verdict
    assert verdict.kind is Kind.PASSED
    assert said in verdict.remarks[0]


def test_a_pace_in_the_band_does_not_pass_if_the_product_alone_is_slow() -> None:
    slow = replace(gpus("healthy"), products=(Product(0, "before", 330.0, 307.0),))
    verdict = judged("healthy", changed=slow).verdict
    assert verdict.kind is Kind.INVALID
    assert (
        "a matrix product alone reached 307 TFLOP/s before the run, on a healthy GPU of this type 686"
        in verdict.headline
    )


def test_several_gpus_are_compared_with_one() -> None:
    two, found = PROXY.case("8b-8l-bf16-2gpus"), judged("healthy").measurement
    assert two is not None
    assert found is not None
    baseline = find(ROOT / "baselines", PROXY, two, "h200")
    assert baseline is not None
    lines = gpu_judging.lines(gpus("healthy"), replace(found, case=two), None, baseline.table)
    assert lines[-1] == "scaling   101.1 % of one GPU's pace, 1.718 s a step with as large a batch"
    assert not any(line.startswith("scaling ") for line in judged("healthy").details)


def test_clocks_links_and_memory_of_a_node_are_compared() -> None:
    both = gpus("two_gpus").during(0, 99)
    samples = tuple(
        s.model_copy(update={"others": (), "sm_mhz": 1200 if s.gpu else 1500}) for s in both.samples
    )
    states = (
        State(gpu=0, when="begin", nvlinks=18, ecc_uncorrected=2),
        State(gpu=0, when="end", nvlinks=18, ecc_uncorrected=3, rows_pending=True),
        State(gpu=1, when="begin", nvlinks=16, ecc_uncorrected=0),
        State(gpu=1, when="end", nvlinks=16, ecc_uncorrected=0, pcie_width=8, pcie_width_max=16),
    )
    assert digest.causes(Gpus(samples, states)) == [
        "GPU 0: 1 uncorrected memory errors during the run",
        "GPU 0 waits to remap rows of its memory",
        "GPU 1: its SM clock is 1200 MHz, that of the node's others 1500 MHz",
        "GPU 1: 16 NVLinks are up, on the node's others 18",
        "GPU 1: its PCIe link has 8 of 16 lanes",
    ]


@pytest.mark.parametrize(
    "line",
    [
        b"gpu sample: ", b"gpu sample: {", b"gpu sample: []", b'gpu sample: {"gpu": "x"}', b"gpu state: \xff\xfe",
        b'gpu sample: {"gpu": 0, "at": 1, "step": 1, "others": [{"pid": 1, "name": "\\ud800"}]}',
        b'gpu sample: {"gpu": 0, "at": NaN, "step": 1}', b"proxy gpu 0 product", b"gpu sample: " + b"9" * 100_000,
    ],
)  # fmt: skip
def test_damaged_lines_are_passed_over(line: bytes) -> None:
    assert read_gpus([line]) is None


def test_what_an_earlier_start_told_is_left_out() -> None:
    lines = (LOGS / "healthy.log").read_bytes().splitlines()
    assert read_gpus([*lines, *lines]) == read_gpus(lines)


def test_the_samples_are_kept_as_a_table_and_a_plot(tmp_path: Path) -> None:
    results.write_case(judged("second_process", folder=tmp_path))
    table = (tmp_path / "gpus.csv").read_text().splitlines()
    assert table[0].startswith("gpu,at,step,sm_mhz,memory_mhz,power_w,limit_w,temperature_c")
    assert len(table) == 1 + len(gpus("second_process").samples)
    plot = (tmp_path / "gpus.svg").read_text()
    assert plot.count("<polyline") == 4
    assert json.loads((tmp_path / "case.json").read_text())["verdict"] == "too slow"
