"""The proxy on this machine: 50 real training steps, and a step twice as slow is caught."""

from __future__ import annotations

import importlib.util
import os
import signal
import sys
from pathlib import Path

import pytest

from tests.system.support import ROOT
from tests.system.support import finish
from tests.system.support import pacemark
from tests.system.support import signal_group
from tests.system.support import start
from tests.system.support import until

TINY = "proxy/tiny-fp32-1gpus"
CPU_ONLY = ("suites/proxy", "-k", "tiny")


def test_fifty_real_steps_pass_on_this_machine(tmp_path: Path) -> None:
    # The last ten steps take seven seconds; where somebody else took a core for just these, a second run tells. A
    # machine that is too slow is so twice.
    result = pacemark(*CPU_ONLY, results=tmp_path / "results", seconds=400)
    if result.status != 0:
        result = pacemark(*CPU_ONLY, results=tmp_path / "again", seconds=400)
    assert result.status == 0, result.out
    case = result.case(TINY)
    assert case["verdict"] == "passed"
    log = (result.folder / TINY / "log.txt").read_text()
    assert log.count("completed step: ") == 50
    assert "proxy done: 50 steps" in log
    losses = [
        float(line.rpartition("loss: ")[2]) for line in log.splitlines() if line.startswith("completed step")
    ]
    assert losses[-1] < losses[0] / 10, "it did not learn, so it did not train"
    # Two programs count the same FLOPs: the trainer in its log, and the metrics from the case.
    stated = next(line for line in log.splitlines() if line.startswith("completed step: 49,"))
    assert float(stated.split("TFLOP/s/device: ")[1].split(",")[0]) == pytest.approx(
        case["tflops_per_gpu"], rel=1e-4
    )


def test_a_machine_half_as_fast_is_too_slow(tmp_path: Path) -> None:
    site = tmp_path / "slow.yaml"
    site.write_text("site: slow\nlocal: {handicap: 2}\n")
    result = pacemark(*CPU_ONLY, "--site", str(site), results=tmp_path / "results", seconds=400)
    assert result.case(TINY)["verdict"] == "too slow", result.out
    assert result.status == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_training_process(tmp_path: Path, number: signal.Signals) -> None:
    process = start(*CPU_ONLY, results=tmp_path / "results")
    log = tmp_path / "results" / "latest" / TINY / "log.txt"
    until(lambda: log.exists() and "proxy devices" in log.read_text(), "the training process runs")
    signal_group(process, number)
    result = finish(process, tmp_path / "results", 30)
    assert "was cancelled" in result.case(TINY)["headline"]
    assert _processes_with(f"pacemark-{result.folder.name}") == []


def test_a_training_process_that_a_dead_session_left_is_swept(tmp_path: Path) -> None:
    process = start(*CPU_ONLY, results=tmp_path / "results")
    log = tmp_path / "results" / "latest" / TINY / "log.txt"
    until(lambda: log.exists() and "proxy devices" in log.read_text(), "the training process runs")
    process.kill()
    process.communicate()
    shown = pacemark("suites", "--list-runs", results=tmp_path / "results")
    trainer = int(shown.out.split()[-1])
    assert Path(f"/proc/{trainer}/cmdline").read_bytes().count(b"train.py") == 1
    swept = pacemark("suites", "--sweep", results=tmp_path / "results")
    assert swept.status == 0, swept.out
    assert f"job {trainer} is over" in swept.out
    assert not Path(f"/proc/{trainer}").exists() or "Z" in Path(f"/proc/{trainer}/stat").read_text()


def test_without_jax_there_is_one_message_with_the_command(tmp_path: Path) -> None:
    if importlib.util.find_spec("jax") is None:
        pytest.fail("this test hides jax, but it is not even there: pip install -r tests/requirements.txt")
    # A Python that has everything but jax: the same packages through a folder of links.
    site = tmp_path / "site"
    site.mkdir()
    for entry in Path(pytest.__file__).parents[1].iterdir():
        if not entry.name.startswith(("jax", "optax")):
            (site / entry.name).symlink_to(entry)
    launcher = tmp_path / "run.py"
    launcher.write_text(
        f"import sys; sys.path = [p for p in sys.path if 'site-packages' not in p] + [{str(site)!r}]\n"
        "import pytest; sys.exit(pytest.main(sys.argv[1:]))\n"
    )
    import subprocess

    done = subprocess.run(
        [
            sys.executable,
            str(launcher),
            "-p",
            "no:cacheprovider",
            "--results",
            str(tmp_path / "r"),
            *CPU_ONLY,
        ],
        cwd=ROOT,
        env=os.environ,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert "proxy needs jax and optax, which this Python does not have" in done.stdout
    assert "-m pip install -r" in done.stdout
    assert "suites/proxy/requirements.txt" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr


def _processes_with(text: str) -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if text.encode() in path.read_bytes():
                found.append(path.parent.name)
        except OSError:
            continue
    return found
