"""Whole sessions on what a real Kubernetes answered (tests/recordings); `tests/system/test_recordings.py` runs them on the lab.

A test gets `begin`, which makes a trial. What is done to the cluster meanwhile, `trial.change` does on the lab. When a recording
is played back, it tells from then on what came of it.
"""

from __future__ import annotations

import re
import signal

import pytest

from tests.recordings.trials import Begin, infrastructure
from tests.system.kube import CASE
from tests.system.kube_trial import KubeTrial

# The verdicts


@pytest.mark.promise("on Kubernetes: a published recipe")
def test_a_run_at_the_published_pace_passes(begin: Begin) -> None:
    result = begin().run()
    assert (result.status, result.verdicts) == (0, {CASE: "passed"}), result.out
    assert result.case(CASE)["step_time"] == pytest.approx(183.2, rel=0.01)


def test_a_slow_run_is_too_slow(begin: Begin) -> None:
    result = begin(pace=1.2, noise=0.001).run()
    assert (result.status, result.verdicts) == (1, {CASE: "too slow"}), result.out
    assert re.search(
        r"219\.\d s a step where 183\.2 s is expected.*limit -10 %", result.case(CASE)["headline"]
    )


@pytest.mark.promise("no confusing failure: what the cluster said")
def test_a_pod_that_dies_is_named_with_its_node_and_its_last_words(begin: Begin) -> None:
    headline = infrastructure(begin(crash_at=12, real_step=0.1).start())
    assert "ended Failed on gke-a3mega-pool-" in headline
    assert "container workload ended with exit code 1" in headline


def test_a_case_that_cannot_reach_its_band_is_given_up(begin: Begin) -> None:
    result = begin(pace=1.3, hang_at=30).run("--give-up-after", "20")
    assert result.case(CASE)["verdict"] == "too slow", result.out
    assert "given up after step" in result.case(CASE)["headline"]


# How a session ends


@pytest.mark.promise("no leaked job: Ctrl-C")
def test_ctrl_c_deletes_the_jobset(begin: Begin) -> None:
    ended_by(begin, signal.SIGINT)


@pytest.mark.promise("no leaked job: SIGTERM")
def test_sigterm_deletes_the_jobset(begin: Begin) -> None:
    ended_by(begin, signal.SIGTERM)


def ended_by(begin: Begin, number: signal.Signals) -> None:
    trial = begin(hang_at=5).start()
    trial.until_steps(5)
    trial.signal(number)
    result = trial.end()
    assert (result.status, result.verdicts) == (2, {CASE: "infrastructure"}), result.out
    assert "was cancelled" in result.case(CASE)["headline"]
    assert "NOT confirmed" not in result.out


@pytest.mark.promise("no leaked job: --resume")
def test_a_killed_session_is_resumed(begin: Begin) -> None:
    trial = begin().hold(10).start()
    trial.until_steps(11)
    trial.kill()
    trial.change(KubeTrial.let_go)
    result = trial.resume()
    assert (result.status, result.verdicts) == (0, {CASE: "passed"}), result.out
    assert len((result.folder / CASE / "steps.csv").read_text().splitlines()) == 51
