"""From a slow case to the node, the card or the link, on a real Slurm cluster: real jobs on given nodes, round by round."""

from __future__ import annotations

import json
import signal
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.system.faults import MakeTrial, Trial
from tests.system.support import ROOT, Run, pacemark, signal_group, until

# 8 % slow, where 5 % is the limit.
SLOW = 1.087
CASE, SMALL, LARGE = "llama3/8b-bf16-128gpus", "llama3/8b-bf16-64gpus", "llama3/70b-bf16-512gpus"
LEAF1 = {"slowness": 0.1, "nodes": [f"gpu{number:03}" for number in range(17, 33)]}

MakeSlow = Callable[..., Trial]


@pytest.fixture
def make_slow(make_trial: MakeTrial, tmp_path: Path) -> MakeSlow:
    """A case that is too slow, on a lab whose probes find what a table says."""

    def make(table: dict[str, Any], case: str = CASE, *, ready: bool = True) -> Trial:
        faults, python = tmp_path / "faults.json", tmp_path / "python"
        faults.write_text(json.dumps(table))
        python.write_text(
            '#!/bin/bash\n[ "$1" != -c ] || exit 0\nwhile [ "$1" = -u ] || [ "$1" = -B ]; do shift; done\nshift\n'
            f'PYTHONPATH={ROOT} exec {sys.executable} -m tests.lab.prober {faults} "$@"\n'
        )
        python.chmod(python.stat().st_mode | stat.S_IXUSR)
        program = python if ready else tmp_path / "nowhere"
        keys = {"recipes": f"{{proxy: {{values: {{python: '{program}'}}}}}}"}
        trial: Trial = make_trial(case=case, keys=keys, pace=SLOW, real_step=0.005)
        return trial

    return make


def headline(result: Run, case: str = CASE) -> str:
    assert result.verdicts == {case: "too slow"}, result.out
    words: str = result.case(case)["isolation"]["headline"]
    return words


@pytest.mark.parametrize(
    ("table", "words"),
    [
        pytest.param({"nodes": {"gpu003": 0.09}}, "gpu003: ", id="node"),
        pytest.param({"nodes": {"gpu003": 0.09, "gpu011": 0.08}}, "gpu003: ", id="two nodes"),
        pytest.param({"links": {"gpu004+gpu005": 0.1}}, "the link gpu004-gpu005: ", id="link"),
        pytest.param(
            {"cards": {"gpu009": 0.1}, "crash": ["gpu012"]}, "the network of gpu009: ", id="card and crash"
        ),
        pytest.param({}, "no node: all are alike", id="healthy"),
    ],
)
def test_what_slows_a_case_is_named(make_slow: MakeSlow, table: dict[str, Any], words: str) -> None:
    result = make_slow(table).start("--isolate", "500").end(400)
    said = headline(result)
    assert said.startswith(words)
    assert f"{CASE}: {words}" in result.out
    isolation = result.case(CASE)["isolation"]
    slow = [
        node
        for kind in ("nodes", "cards", "links")
        for name in table.get(kind, {})
        for node in name.split("+")
    ]
    assert sorted(node for part in isolation["parts"] for node in part["nodes"]) == sorted(slow)
    assert [each["nodes"] for each in isolation["failed"]] == [[node] for node in table.get("crash", [])]
    files = [result.folder / CASE / f"{kind}_nodes.txt" for kind in ("failing", "passing")]
    nodes = [path.read_text().split() if path.exists() else [] for path in files]
    assert nodes[0] == sorted(slow)
    assert len(nodes[1]) == (16 - len(slow) - len(table.get("crash", [])) if slow else 0)
    assert isolation["rounds"] <= 6 + bool(table.get("crash")) * 1


def test_an_uplink_of_a_leaf_is_named(make_slow: MakeSlow) -> None:
    """On 64 nodes of four leaves, as `scontrol show topology` tells them."""
    result = make_slow({"leaves": {"leaf1": LEAF1}}, LARGE).start("--isolate", "5000").end(400)
    assert headline(result, LARGE).startswith("the uplink of leaf leaf1 (16 nodes): ")


def test_a_budget_that_is_too_small_probes_nothing_and_says_so(make_slow: MakeSlow) -> None:
    trial = make_slow({})
    result = trial.start("--isolate", "0.01").end()
    assert (
        "cannot tell which node: not run: round 1 of the isolation, 16 probes (about 4.3 GPU-hours): 0.01 of --isolate 0.01 are left"
        in headline(result)
    )
    assert len(trial.jobs()) == 1


def test_what_probes_need_is_asked_for_before_anything_is_sent(make_slow: MakeSlow) -> None:
    trial = make_slow({}, SMALL, ready=False)
    result = trial.start("--isolate", "500").end()
    assert result.status == 4, result.out
    assert "--isolate: site lab is not ready for proxy" in result.out
    assert not (trial.results / "latest").exists()
    checked = trial.start("--isolate", "500", "--check").end()
    assert checked.status == 1, checked.out
    assert "missing  proxy: jax or optax for" in checked.out


def test_a_case_of_one_node_has_nothing_to_isolate(make_slow: MakeSlow) -> None:
    case = "llama3/8b-bf16-8gpus"
    trial = make_slow({}, case)
    assert (
        headline(trial.start("--isolate", "500").end(), case) == "cannot tell which node: it runs on one node"
    )
    assert len(trial.jobs()) == 1


@pytest.fixture
def probing(make_slow: MakeSlow, tmp_path: Path) -> Trial:
    """A session in the middle of its first round, whose probes wait."""
    trial = make_slow({"nodes": {"gpu003": 0.09}}, SMALL)
    (tmp_path / "faults.wait").touch()
    trial.start("--isolate", "500")
    until(
        lambda: sum("-isolate1" in job.name and job.state == "RUNNING" for job in trial.living()) == 8,
        "eight probes",
    )
    return trial


def test_a_session_killed_during_an_isolation_goes_on_with_it(probing: Trial, tmp_path: Path) -> None:
    probing.kill()
    (tmp_path / "faults.wait").unlink()
    assert headline(probing.resume("--isolate", "500"), SMALL).startswith("gpu003: ")
    assert sum("-isolate1" in job.name for job in probing.jobs()) == 8


def test_a_session_that_goes_on_without_isolating_follows_what_runs(probing: Trial, tmp_path: Path) -> None:
    probing.kill()
    (tmp_path / "faults.wait").unlink()
    assert "the session was stopped in round 2" in headline(probing.resume(), SMALL)
    assert sum("-isolate" in job.name for job in probing.jobs()) == 8


def test_what_a_killed_session_left_of_an_isolation_is_swept(probing: Trial) -> None:
    probing.kill()
    swept = pacemark("suites/llama3", "--sweep", "--site", str(probing.site), results=probing.results)
    assert swept.status == 0, swept.out
    assert probing.living() == []


def test_ctrl_c_cancels_the_probes_and_the_verdict_stays(probing: Trial) -> None:
    assert probing.process is not None
    signal_group(probing.process, signal.SIGINT)
    probing.end()
    assert probing.living() == []
    result = probing.resume()
    assert "the session was stopped in round 2" in headline(result, SMALL)


def test_a_run_that_was_cancelled_during_an_isolation_goes_on_with_it(probing: Trial, tmp_path: Path) -> None:
    """Its case gets another job, and the probes that were cancelled are made again."""
    probing.kill()
    cancelled = pacemark(
        "suites/llama3", "--cancel", "latest", "--site", str(probing.site), results=probing.results
    )
    assert cancelled.status == 0, cancelled.out
    assert probing.living() == []
    (tmp_path / "faults.wait").unlink()
    assert headline(probing.resume("--isolate", "500"), SMALL).startswith("gpu003: ")
