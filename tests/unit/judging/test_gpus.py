"""What a log tells of its GPUs. The logs are of lent H100 and H200, with every fourth or sixth sample kept."""

from __future__ import annotations

import json
import random
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from plugins.baselines.baseline_file import accelerators
from plugins.baselines.store import find
from plugins.gpu import causes as gpu_causes
from plugins.gpu.causes import causes, spoiled, summary
from plugins.gpu.samples import Gpus, Process, Product, Sample, State, parse_gpus
from plugins.judging import hardware
from plugins.judging.case_record import record_of
from plugins.judging.identity import type_in
from plugins.judging.judgement import Judgement
from plugins.logs.formats import parser, read
from plugins.logs.log import Fact
from plugins.recipes.expansion import load_recipe
from plugins.record.job import Failure, Job, JobRef, JobState, Phase
from plugins.record.outcome import Outcome
from plugins.record.stored import case_as_json
from plugins.record.verdict import Kind
from plugins.suite.judged import write_case
from tests.unit import examples

ROOT = Path(__file__).resolve().parents[3]
LOGS = ROOT / "tests" / "unit" / "gpu_logs"
PROXY = load_recipe(ROOT / "suites" / "proxy")
CASE = PROXY.case("8b-8l-bf16-1gpus")


def gpus(name: str) -> Gpus:
    with (LOGS / f"{name}.log").open("rb") as file:
        found = parse_gpus(file)
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
    before: bytes = b"",
    before_it: Gpus | None = None,
    earlier: str = "second_process",
    message: str = "",
    failure: Failure = "",
) -> Judgement:
    assert CASE is not None
    baselines = ROOT / "baselines"
    data = before + (LOGS / f"{name}.log").read_bytes().replace(b"proxy jax: 0.11.2", b"proxy jax: " + jax)
    state = JobState(Phase.SUCCEEDED if succeeded else Phase.FAILED, "COMPLETED" if succeeded else "FAILED")
    job = Job(ref=JobRef("proxy", CASE.id, "x", "7"), state=state, message=message, failure=failure)
    outcome = Outcome(gpu, folder, None, job)
    log_before = (LOGS / f"{earlier}.log").read_bytes()
    return examples.judged(
        CASE,
        outcome,
        read("maxtext", [data]),
        find(baselines, PROXY, CASE, gpu),
        baselines=baselines,
        before=[read("maxtext", [log_before])] if before_it else (),
        gpus=[*([before_it] if before_it else []), changed or gpus(name)],
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
    assert "(throughput -5 % to +5 %)\n" in text
    assert "processes (Num_devices: 1), " in text
    assert found.measurement is not None
    assert found.measurement.mfu == pytest.approx(65.69, abs=0.01)


@pytest.mark.parametrize(
    ("name", "headline", "cause"),
    [
        ("second_process", "too slow: 2.652 s", "cause: process 1314 (python3) was on GPU 0 too, in"),
        ("kept_waiting", "too slow: 1.879 s", "cause: GPU 0 was idle for"),
    ],
)
def test_a_slow_run_fails_with_its_cause(name: str, headline: str, cause: str) -> None:
    verdict = judged(name).verdict
    assert verdict.kind is Kind.TOO_SLOW
    assert headline in verdict.headline
    assert cause in verdict.headline


def test_a_handicap_is_the_cause() -> None:
    slow = replace(gpus("second_process"), samples=gpus("healthy").samples, products=gpus("healthy").products)
    assert slow.handicap == 1
    assert (
        "nothing that NVML tells of the GPUs explains it"
        in judged("second_process", changed=slow).verdict.headline
    )
    (line,) = [x for x in (LOGS / "healthy.log").read_bytes().splitlines() if b"handicap" in x]
    told = parse_gpus(
        [
            line.replace(b"handicap 1", b"handicap 2"),
            b"proxy all-reduce: bus bandwidth 1.0 GB/s (1024 MiB of each GPU, median of 10)",
        ]
    )
    assert told is not None
    verdict = judged("second_process", changed=replace(slow, handicap=told.handicap)).verdict
    assert verdict.headline.endswith("; cause: each step did its work 2 times (handicap)")


def test_a_gpu_that_is_not_idle_before_the_start_is_named() -> None:
    verdict = judged("not_idle", succeeded=False).verdict
    assert verdict.kind is Kind.INFRASTRUCTURE
    said = "GPU 0 is not idle before the start: process 1228 (python3) uses it, 95 % busy"
    assert said in verdict.headline
    # A launcher may hide the exit code, and a replay does not know it.
    assert said in judged("not_idle").verdict.headline


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
    unnamed = replace(log, facts=(), versions=())
    assert type_in(CASE, unnamed, "b200") == "unknown"
    assert type_in(CASE, replace(unnamed, steps=()), "b200") == "b200"


@pytest.mark.parametrize("other", ["NVIDIA H200", "NVIDIA H100 PCIe", "NVIDIA Graphics Device"])
def test_gpus_of_two_types_never_pass(other: str) -> None:
    line = f"GPU 1: {other} (UUID: GPU-1)\n".encode()
    for gpu in ("h100", "l40"):
        verdict = judged("healthy", gpu=gpu, before=line).verdict
        assert verdict.kind is Kind.INVALID
        assert (
            f"the log is of GPUs of several types: {other} (1 line), NVIDIA H100 80GB HBM3 (1 line)"
            in verdict.headline
        )


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
    assert parse_gpus(fetched) == parse_gpus(lines)


def test_of_two_gpus_the_slow_one_is_named() -> None:
    two = gpus("two_gpus").timed
    process = "process 2644 (python3) was on GPU 1 too, in 80 % of the samples, with 1002 MiB"
    assert gpu_causes.causes(two, 673) == [
        process,
        "GPU 1: a step alone takes 0.499 s, on the node's others 0.2164 s",
        "GPU 1: a matrix product alone reached 309 TFLOP/s after the run, on a healthy GPU of this type 673",
    ]
    assert gpu_causes.causes(replace(two, alone=())) == [
        process,
        "GPU 1: its matrix product after the run is 309 TFLOP/s, that of the node's others 686",
    ]


@pytest.mark.parametrize(
    ("bandwidth", "is_cause"),
    [(26.1, True), (20.4, True), (119.9, True), (120.0, False), (232.4, False), (None, False)],
    ids=["no peer access", "one ring", "below half", "half", "healthy", "not measured"],
)
def test_slow_links_are_named_as_links_and_not_as_a_gpu(bandwidth: float | None, is_cause: bool) -> None:
    """Bandwidths of two H100 with NCCL_P2P_DISABLE=1, with NCCL_ALGO=Ring and one channel, and with neither."""
    cause = (
        f"the links between the GPUs: an all-reduce reached {bandwidth or 0:.0f} GB/s of bus bandwidth, on a healthy node of "
        "this type 240"
    )
    assert gpu_causes.causes(Gpus(all_reduce=bandwidth), 686, 240) == [cause] * is_cause
    assert gpu_causes.causes(Gpus(all_reduce=bandwidth), 673, None) == []


def test_a_gpu_whose_step_alone_is_slow_is_named_whatever_its_product() -> None:
    lines = [
        f"proxy gpu {gpu} product after: burst 790.0, sustained {rate} TFLOP/s".encode()
        for gpu, rate in enumerate((600.0, 686.0))
    ]
    told = "proxy gpu {} step alone: {:.6f} s (one micro batch, median of 10)"
    for slow, named in ((0.3145, False), (0.3165, True)):
        alone = [told.format(gpu, slow if gpu == 2 else 0.3).encode() for gpu in range(4)]
        found = parse_gpus([*lines, *alone])
        assert found is not None
        said = ["GPU 2: a step alone takes 0.3165 s, on the node's others 0.3 s"] if named else []
        assert gpu_causes.causes(found) == said
    two = replace(gpus("two_gpus"), alone=((0, 0.3), (1, 0.45)))
    shown = gpu_causes.summary(two)
    assert shown[1].endswith("step alone 0.45 s")
    assert parse_gpus(
        [*alone, b'gpu state: {"gpu": 0, "when": "begin"}', *[b'gpu state: {"gpu": 0, "when": "begin"}']]
    ) == Gpus(states=(State(gpu=0, when="begin"),))


def test_the_record_of_a_node_has_its_slow_gpus_as_the_remarks_have_them() -> None:
    """A screening of nodes without a baseline decides by that value, and not by the words of a remark."""
    for paces, slow in (((0.3, 0.45), ("GPU 1",)), ((0.3, 0.3), ())):
        judgement = judged("healthy", changed=replace(gpus("healthy"), alone=tuple(enumerate(paces))))
        assert case_as_json(record_of(judgement)).keys().isdisjoint({"slow_gpus"})
        case = replace(judgement.case, node="gpu017")
        record = record_of(replace(judgement, evidence=replace(judgement.evidence, case=case)))
        assert record.slow_gpus == record.remarks
        assert tuple(words.partition(":")[0] for words in record.remarks) == slow


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
    hot = changed(**values)
    for found in (
        judged("healthy", changed=hot),
        judged("healthy", changed=hot, failure="given up"),
        judged("healthy", before_it=hot),
    ):
        assert found.verdict.kind is Kind.INVALID
        assert said in found.verdict.headline


def test_a_thermal_limit_counts_by_its_share_of_the_time() -> None:
    healthy = gpus("healthy").timed
    begin = healthy.samples[0].at

    def held(share: float) -> Gpus:
        samples = tuple(
            s.model_copy(update={"violations_ns": {"thermal": int(share * (s.at - begin) * 1e9)}})
            for s in healthy.samples
        )
        return replace(healthy, samples=samples)

    assert gpu_causes.spoiled(held(0.019)) == []
    assert len(gpu_causes.spoiled(held(0.021))) == 1
    assert gpu_causes.spoiled(held(0.3)) == [
        "GPU 0: its thermal limit held the clocks down for 30 % of the time"
    ]


def sampled(share: float = 0.0, gpu: int = 0, **values: Any) -> tuple[Sample, ...]:
    """Samples of a busy GPU; this share of them has other values."""
    others = {"reasons": 0, "busy": 100.0}
    return tuple(
        Sample(gpu=gpu, at=float(n), step=0, **(others | values if n < 400 * share else others))
        for n in range(400)
    )


@pytest.mark.parametrize(
    ("within", "beyond"),
    [
        (Gpus(sampled(0.0475, reasons=0x40)), Gpus(sampled(0.0525, reasons=0x40))),
        (Gpus(sampled(0.0475, reasons=0x2)), Gpus(sampled(0.0525, reasons=0x2))),
        (Gpus(sampled(0.0475, others=(Process(pid=9),))), Gpus(sampled(0.0525, others=(Process(pid=9),)))),
        (Gpus(sampled(1.0, busy=97.2)), Gpus(sampled(1.0, busy=96.8))),
        (
            Gpus((*sampled(1.0, sm_mhz=1000.0), *sampled(1.0, gpu=1, sm_mhz=953.0))),
            Gpus((*sampled(1.0, sm_mhz=1000.0), *sampled(1.0, gpu=1, sm_mhz=947.0))),
        ),
        (
            Gpus(products=(Product(0, "before", 0.0, 100.0), Product(1, "before", 0.0, 93.4))),
            Gpus(products=(Product(0, "before", 0.0, 100.0), Product(1, "before", 0.0, 92.6))),
        ),
        (Gpus(products=(Product(0, "after", 0.0, 90.5),)), Gpus(products=(Product(0, "after", 0.0, 89.5),))),
    ],
)
def test_what_is_a_little_off_explains_no_pace(within: Gpus, beyond: Gpus) -> None:
    assert gpu_causes.causes(within, 100.0) == []
    assert len(gpu_causes.causes(beyond, 100.0)) == 1


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
    assert said in gpu_causes.causes(changed(**values).timed)[0]
    verdict = judged("healthy", changed=changed(**values)).verdict
    assert verdict.kind is Kind.PASSED
    assert said in verdict.remarks[0]


def test_a_pace_in_the_band_does_not_pass_if_the_product_alone_is_slow() -> None:
    products = (Product(0, "before", 330.0, 307.0), Product(0, "after", 757.1, 685.9))
    slow = replace(gpus("healthy"), products=products)
    verdict = judged("healthy", changed=slow).verdict
    assert verdict.kind is Kind.INVALID
    assert (
        "a matrix product alone reached 307 TFLOP/s before the run, on a healthy GPU of this type 686"
        in verdict.headline
    )
    # Its headline compares no pace.
    assert verdict.deviation is None
    # Nor do several runs, whichever of them it is.
    verdict = judged("healthy", before_it=slow, earlier="healthy").verdict
    assert verdict.headline.startswith(
        "invalid run: run 1: GPU 0: a matrix product alone reached 307 TFLOP/s"
    )


@pytest.mark.parametrize("succeeded", [True, False])
def test_a_program_that_ends_after_its_last_step_but_before_its_end_does_not_pass(succeeded: bool) -> None:
    healthy = gpus("healthy")
    first = replace(healthy, products=healthy.products[:1])
    for cut in (first, Gpus()):
        verdict = judged("healthy", changed=cut, succeeded=succeeded, message="it went on for 600 s").verdict
        assert verdict.kind is Kind.INVALID
        assert verdict.headline == (
            "invalid run: the program did not come to its end: no matrix product after the run on GPU 0; it went on for 600 s"
        )
    # The look at the GPUs is over: what fails then is the job's clean-up.
    assert judged("healthy", succeeded=False).verdict.kind is Kind.PASSED


def test_of_gpus_that_were_not_sampled_nothing_is_said_by_nvml() -> None:
    said = "not sampled during the steps, so heat, limits and other processes are unknown: GPU 0"
    verdict = judged("healthy", changed=unsampled("healthy")).verdict
    assert (verdict.kind, verdict.remarks) == (Kind.PASSED, (said,))
    verdict = judged("kept_waiting", changed=unsampled("kept_waiting")).verdict
    assert verdict.kind is Kind.TOO_SLOW
    assert verdict.headline.endswith(f"; cause: {said}")
    products = (*gpus("healthy").products, Product(1, "after", 757.1, 685.9))
    verdict = judged("healthy", changed=replace(gpus("healthy"), products=products)).verdict
    assert verdict.remarks == (said.replace("GPU 0", "GPU 1"),)


def unsampled(name: str) -> Gpus:
    """The same run without samples, as if there were no nvidia-ml-py."""
    return replace(gpus(name), samples=(), states=())


def test_a_process_that_is_started_again_and_again_is_named() -> None:
    healthy = gpus("healthy").timed
    samples = tuple(
        s.model_copy(update={"others": (Process(pid=900 + number, name="burst", mib=300),)})
        for number, s in enumerate(healthy.samples)
    )
    (said,) = gpu_causes.causes(replace(healthy, samples=samples))
    assert said == (
        f"{len(samples)} processes (burst; one is 900) were on GPU 0 too, in 100 % of the samples, with 300 MiB"
    )


def test_of_several_runs_the_one_that_decides_is_explained() -> None:
    verdict = judged("healthy", before_it=gpus("second_process")).verdict
    assert verdict.kind is Kind.TOO_SLOW
    assert "cause: process 1314 (python3) was on GPU 0 too, in" in verdict.headline


def test_of_several_runs_each_must_have_come_to_its_end() -> None:
    verdict = judged("healthy", before_it=replace(gpus("second_process"), products=())).verdict
    assert verdict.kind is Kind.INVALID
    assert "run 1: the program did not come to its end: no matrix product after the run" in verdict.headline


def test_several_gpus_are_compared_with_one() -> None:
    two, found = PROXY.case("8b-8l-bf16-2gpus"), judged("healthy").measurement
    assert two is not None
    assert found is not None
    baseline = find(ROOT / "baselines", PROXY, two, "h200")
    assert baseline is not None
    lines = hardware.lines(gpus("healthy"), replace(found, case=two), None, baseline.table)
    assert lines[-1] == "scaling   100.9 % of one GPU's pace, 1.714 s a step with as large a batch"
    assert not any(line.startswith("scaling ") for line in judged("healthy").details)


def test_an_all_reduce_is_told_beside_what_nvlink_moves() -> None:
    found = judged("healthy").measurement
    assert found is not None
    told = parse_gpus([b"proxy all-reduce: bus bandwidth 330.4 GB/s (1024 MiB of each GPU, median of 10)"])
    part = accelerators(ROOT / "baselines")["h200"]
    (line,) = hardware.lines(told, found, part)
    assert line == "links     all-reduce at 330.4 GB/s of bus bandwidth; NVLink has 450 GB/s each way"


def test_clocks_links_and_memory_of_a_node_are_compared() -> None:
    both = gpus("two_gpus").timed
    samples = tuple(
        s.model_copy(update={"others": (), "sm_mhz": 1200 if s.gpu else 1500}) for s in both.samples
    )
    states = (
        State(gpu=0, when="begin", nvlinks=18, ecc_uncorrected=2),
        State(gpu=0, when="end", nvlinks=18, ecc_uncorrected=3, rows_pending=True),
        State(gpu=1, when="begin", nvlinks=16, ecc_uncorrected=0),
        State(gpu=1, when="end", nvlinks=16, ecc_uncorrected=0, pcie_width=8, pcie_width_max=16),
    )
    assert gpu_causes.causes(Gpus(samples, states)) == [
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
    assert parse_gpus([line]) is None


def test_the_samples_are_kept_as_a_table_and_a_plot(tmp_path: Path) -> None:
    write_case(judged("second_process", folder=tmp_path))
    table = (tmp_path / "gpus.csv").read_text().splitlines()
    assert table[0].startswith("gpu,at,step,sm_mhz,memory_mhz,power_w,limit_w,temperature_c")
    assert len(table) == 1 + len(gpus("second_process").samples)
    plot = (tmp_path / "gpus.svg").read_text()
    assert plot.count("<polyline") == 4
    assert json.loads((tmp_path / "case.json").read_text())["verdict"] == "too slow"


def test_a_slow_node_is_told_apart_from_a_good_one() -> None:
    (cause,) = gpu_causes.told_apart(gpus("second_process"), gpus("healthy"))[:1]
    assert "was on GPU 0 too" in cause
    waiting = gpus("kept_waiting")
    assert gpu_causes.causes(waiting)
    assert gpu_causes.told_apart(waiting, waiting) == []


def test_figures_of_a_slow_node_are_compared_with_those_of_a_good_one() -> None:
    """Its only GPU has no others beside it."""
    lines = [
        "proxy gpu 0 memory: {} GB/s (copy of 1024 MiB, median of 20)",
        "proxy gpu 0 product after: burst 790.0, sustained {} TFLOP/s",
    ]
    slow, good, middling = (
        parse_gpus([line.format(figure).encode() for line, figure in zip(lines, figures, strict=True)])
        or Gpus()
        for figures in ((1900, 600.0), (2600, 690.0), (2400, 660.0))
    )
    assert gpu_causes.told_apart(slow, good) == [
        "GPU 0: its matrix product after the run is 600 TFLOP/s, that of a good node 690",
        "GPU 0: its memory copies 1900 GB/s, that of a good node 2600",
    ]
    assert gpu_causes.told_apart(middling, good) == gpu_causes.causes(slow) == []


# Whatever number stands in a line about a GPU: no error, and a verdict of the GPUs that can be told.

LOG = (LOGS / "healthy.log").read_bytes()
WORDS = (
    b"0", b"-1", b"9" * 15, b"9" * 20, b"9" * 308, b"9" * 309, b"9" * 5000, b"-" + b"9" * 308, b"1e308", b"-1e308", b"1e400", b"1e-320",
    b"NaN", b"-Infinity", b"null", b"true", b'"7"', b"[]", b"", b"\xff",
)  # fmt: skip
_NUMBER = re.compile(rb"-?\d+(\.\d+)?")


def told(lines: list[bytes]) -> None:
    gpus = parse_gpus(lines)
    if gpus is not None:
        for view in (gpus, gpus.timed):
            assert all(
                isinstance(line, str) for line in [*summary(view), *spoiled(view), *causes(view, 700.0)]
            )
            assert view.clock is None or isinstance(view.clock, float)
            assert view.watts is None or isinstance(view.watts, float)


@pytest.mark.parametrize("seed", range(10))
def test_any_number_of_a_line_about_a_gpu_may_be_any_other(seed: int) -> None:
    rng, lines = random.Random(seed), LOG.splitlines(keepends=True)
    places = [n for n, line in enumerate(lines) if b"gpu s" in line or b"proxy" in line]
    for place in rng.sample(places, min(20, len(places))):
        for word in WORDS:
            number = rng.choice(list(_NUMBER.finditer(lines[place])) or [None])
            if number is not None:
                line = lines[place][: number.start()] + word + lines[place][number.end() :]
                told([*lines[max(0, place - 20) : place], line, *lines[place + 1 : place + 20]])


@pytest.mark.parametrize(
    "key", [b"energy_j", b"violations_ns", b"reasons", b"sm_mhz", b"at", b"mib", b"ecc_uncorrected"]
)
def test_a_number_of_308_digits_is_no_traceback(key: bytes) -> None:
    value = b'{"thermal": ' + b"9" * 308 + b"}" if key == b"violations_ns" else b"9" * 308
    sample = b'gpu sample: {"gpu": 0, "at": 1.0, "step": 1, "' + key + b'": ' + value + b"}\n"
    state = b'gpu state: {"gpu": 7, "when": "end", "' + key + b'": ' + value + b"}\n"
    assert judged("healthy", before=sample * 3 + state).verdict.kind is Kind.PASSED
