"""The proxy, trained once on this machine: 50 real steps pass, and the same steps a third as fast do not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.system.support import Run
from tests.system.support import pacemark

TINY = "proxy/tiny-fp32-1gpus"
CPU_ONLY = ("suites/proxy", "-k", "tiny")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A session that trained."""
    # The last ten steps take seven seconds; where somebody else took a core for just these, a second run tells. A
    # machine that is too slow is so twice.
    for _ in range(2):
        result = pacemark(*CPU_ONLY, results=tmp_path_factory.mktemp("results"), seconds=400)
        if result.status == 0:
            break
    return result


def test_fifty_real_steps_pass_on_this_machine(trained: Run) -> None:
    assert trained.status == 0, trained.out
    case = trained.case(TINY)
    assert case["verdict"] == "passed"
    log = (trained.folder / TINY / "log.txt").read_text()
    assert log.count("completed step: ") == 50
    assert "proxy done: 50 steps" in log
    losses = [
        float(line.rpartition("loss: ")[2]) for line in log.splitlines() if line.startswith("completed step")
    ]
    assert losses[-1] < 0.75 * losses[0], "it did not learn, so it did not train"
    # Two programs count the same FLOPs: the trainer in its log, and the metrics from the case.
    stated = next(line for line in log.splitlines() if line.startswith("completed step: 49,"))
    assert float(stated.split("TFLOP/s/device: ")[1].split(",")[0]) == pytest.approx(
        case["tflops_per_gpu"], rel=1e-4
    )


def test_a_machine_a_third_as_fast_is_too_slow(trained: Run, tmp_path: Path) -> None:
    # A third: at half its pace a run at the upper edge of the band (+60 %) would be at -20 %, within the band.
    log = tmp_path / "log.txt"
    log.write_text(a_third_as_fast((trained.folder / TINY / "log.txt").read_text()))
    source = ("--backend", "replay", "--from", str(log))
    result = pacemark(*CPU_ONLY, *source, results=tmp_path / "results")
    case = result.case(TINY)
    assert case["verdict"] == "too slow", result.out
    assert case["tflops_per_gpu"] == pytest.approx(trained.case(TINY)["tflops_per_gpu"] / 3, rel=1e-4)
    assert result.status == 1


def a_third_as_fast(log: str) -> str:
    """What the trainer had printed if each step had taken three times as long."""
    (tflop,) = map(float, re.findall(r"([\d.]+) TFLOP/step", log))

    def slower(found: re.Match[str]) -> str:
        seconds, tokens = 3 * float(found[1]), int(found[2])
        return (
            f"seconds: {seconds:.6f}, TFLOP/s/device: {tflop / seconds:.6f}, "
            f"Tokens/s/device: {tokens / seconds:.3f}, total_weights: {tokens}"
        )

    return re.sub(r"seconds: ([\d.]+), TFLOP.*, total_weights: (\d+)", slower, log)
