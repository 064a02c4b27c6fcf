"""From a slow case to the node, the card or the link, and a case on each node: real jobs on given nodes of a real Slurm cluster."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from plugins.record.job import node_list
from tests.lab.prober import Prober
from tests.lab.slurm import SlurmLab
from tests.system.faults import MakeTrial, Trial
from tests.system.support import GUARD, ROOT, Run, environment, until

# 8 % slow, where 5 % is the limit.
SLOW = 1.087
CASE, SMALL, WHOLE = "llama3/8b-bf16-128gpus", "llama3/8b-bf16-64gpus", "llama3/70b-bf16-2048gpus"
QUARTERS = [f"llama3/{size}-{dtype}-512gpus" for size in ("70b", "405b") for dtype in ("bf16", "fp8")]
LEAF = 16
# All probes of a round at once.
AT_ONCE = ", jobs_in_flight: 256, submissions_at_once: 6"

MakeSlow = Callable[..., Trial]


@pytest.fixture
def make_slow(make_trial: MakeTrial, prober: Prober, tmp_path: Path) -> MakeSlow:
    """A case that is too slow on the nodes of a table, or on all if it has none, on a lab whose probes find what the table says."""

    def make(table: dict[str, Any], case: str = CASE, *, ready: bool = True) -> Trial:
        program = prober.install(table)
        if not ready:
            program = tmp_path / "nowhere"
        keys = {"recipes": f"{{proxy: {{values: {{python: '{program}'}}}}}}"}
        leaves = [node for leaf in table.get("leaves", {}).values() for node in leaf["nodes"]]
        names = [name for kind in ("nodes", "cards", "links") for name in table.get(kind, {})]
        slow = [*leaves, *(node for name in names for node in name.split("+"))]
        trial: Trial = make_trial(
            case=case, keys=keys, limits=AT_ONCE, pace=SLOW, slow_nodes=slow, real_step=0.005
        )
        return trial

    return make


def headline(result: Run, case: str = CASE) -> str:
    assert result.verdicts == {case: "too slow"}, result.out
    words: str = result.case(case)["isolation"]["headline"]
    return words


def check(result: Run, case: str, words: str, slow: Sequence[str] = (), crashed: Sequence[str] = ()) -> None:
    """The answer of a case begins so and names these nodes, on the terminal, in the record and in the lists of nodes."""
    isolation = result.case(case)["isolation"]
    assert isolation["headline"].startswith(words)
    assert f"{case}: {words}" in result.out
    assert sorted(node for part in isolation["parts"] for node in part["nodes"]) == sorted(slow)
    assert [each["nodes"] for each in isolation["failed"]] == [[node] for node in crashed]
    files = [result.folder / case / f"{kind}_nodes.txt" for kind in ("failing", "passing")]
    failing, passing = (path.read_text().split() if path.exists() else [] for path in files)
    assert failing == sorted(slow)
    nodes = int(case.rpartition("-")[2].removesuffix("gpus")) // 8
    assert len(passing) == (nodes - len(slow) - len(crashed) if slow else 0)
    assert isolation["rounds"] <= 6 + len(crashed)
    assert (isolation["proof"] is None) == (isolation["command"] is None) == (not slow)


def proof(result: Run, case: str, nodes: Sequence[str]) -> str:
    """What the answer says of the case without these nodes. The command that runs it so follows."""
    words, _, command = result.case(case)["isolation"]["headline"].partition("; to run it without them: ")
    assert command.startswith("pytest suites/llama3 ")
    assert command.endswith(f" --exclude-nodes {','.join(sorted(nodes))}")
    return str(words.rpartition(f" without {','.join(sorted(nodes))}: ")[2])


def test_what_slows_each_of_four_cases_on_256_nodes_is_named(make_slow: MakeSlow, tmp_path: Path) -> None:
    """A node, a link, the uplink of a leaf, and nothing: four cases at once on 64 nodes each, with up to 256 probes at once."""
    trial = make_slow({}).hold(5)
    trial.start("-m", "case(gpus=512)", "--isolate", "5000")
    until(lambda: sum(job.state == "RUNNING" for job in trial.living()) == 4, "four jobs")
    rows = dict(row.split() for row in trial.lab.ask("squeue", "-h", "-o", "%j %N").splitlines())
    rings = [node_list(rows[f"pacemark-{trial.run}.{case.replace('/', '-')}"]) for case in QUARTERS]
    node, link, leaf = rings[0][2:3], rings[1][4:6], rings[2][LEAF : 2 * LEAF]
    table = {
        "nodes": {node[0]: 0.09},
        "links": {"+".join(link): 0.1},
        "leaves": {"slow": {"slowness": 0.1, "nodes": leaf}},
    }
    (tmp_path / "faults.json").write_text(json.dumps(table))
    trial.let_go()
    result = trial.end()
    assert result.verdicts == dict.fromkeys(QUARTERS, "too slow"), result.out
    check(result, QUARTERS[0], f"{node[0]}: ", node)
    check(result, QUARTERS[1], f"the link {'-'.join(link)}: ", link)
    check(result, QUARTERS[2], "the uplink of leaf leaf", leaf)
    check(result, QUARTERS[3], "no node: all are alike")
    for case, slow in zip(QUARTERS, (node, link, leaf), strict=False):
        assert re.fullmatch(
            r"still too slow: [\d.]+ s a step where it was [\d.]+ s", proof(result, case, slow)
        )


def test_a_session_killed_during_256_probes_goes_on_with_them(make_slow: MakeSlow, tmp_path: Path) -> None:
    """Two slow nodes of 256 and one on which every probe crashes are named, and no probe was submitted twice."""
    trial = make_slow({"nodes": {"gpu003": 0.09, "gpu200": 0.08}, "crash": ["gpu100"]}, WHOLE)
    (tmp_path / "faults.wait").touch()
    trial.start("--isolate", "500")
    until(lambda: sum(job.state == "RUNNING" for job in trial.living()) == 255, "255 probes")
    trial.kill()
    (tmp_path / "faults.wait").unlink()
    result = trial.resume("--isolate", "5000")
    assert result.verdicts == {WHOLE: "too slow"}, result.out
    check(result, WHOLE, "gpu003: ", ["gpu003", "gpu200"], ["gpu100"])
    assert "; gpu200: " in headline(result, WHOLE)
    assert "Requested node configuration is not available" in proof(result, WHOLE, ["gpu003", "gpu200"])
    assert sum("-isolate1" in job.name for job in trial.jobs()) == 256


def test_a_session_killed_during_the_proof_goes_on_with_it(make_slow: MakeSlow, tmp_path: Path) -> None:
    trial = make_slow({"nodes": {"gpu003": 0.09}}, SMALL)
    (tmp_path / "faults.wait").touch()
    trial.start("--isolate", "500")
    until(lambda: any("-isolate" in job.name for job in trial.living()), "a probe")
    trial.hold(3)
    (tmp_path / "faults.wait").unlink()
    until(lambda: any(job.name.endswith("-proof") for job in trial.living()), "the proof")
    trial.kill()
    trial.let_go()
    assert ": within its limits; " in headline(trial.resume(), SMALL)
    assert sum("-proof" in job.name for job in trial.jobs()) == 1


def test_a_run_that_has_ended_is_isolated_without_its_case(make_slow: MakeSlow) -> None:
    """Its budget is too small for a round first. With a larger one the search goes on. What else was in its record stays."""
    trial = make_slow({"nodes": {"gpu003": 0.09}}, SMALL)
    before = trial.start("--repeat-undecided").end()
    assert before.case(SMALL)["verdict"] == "too slow"
    job = before.case(SMALL)["job"]
    command = rf"python -m pacemark isolate {trial.results / trial.run} \d+ --site {trial.site}"
    assert re.search(
        rf"^to find the nodes that slow 1 case\(s\), in about \d+ GPU-hours: {command}$",
        before.out,
        re.MULTILINE,
    )

    def isolate(hours: str) -> Run:
        command = (sys.executable, "-m", "pacemark", "isolate", "latest", hours, "-k", "8b")
        more = ("--site", str(trial.site), "--results", str(trial.results))
        ended = subprocess.run(
            [*command, *more], cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=GUARD
        )
        return Run(ended.returncode, ended.stdout, trial.results / "latest")

    refused = isolate("2.2")
    assert "not run: round 2 of the isolation" in headline(refused, SMALL)
    result = isolate("100")
    assert headline(result, SMALL).startswith("gpu003: ")
    assert ": within its limits; " in headline(result, SMALL)
    assert "to find the nodes" not in result.out
    assert result.case(SMALL)["job"] == job
    assert result.summary["repeated"] == before.summary["repeated"] is not None
    names = [each.name for each in trial.jobs()]
    assert len(names) == len(set(names))
    assert sum("-isolate1" in name for name in names) == 8
    assert trial.living() == []


def test_what_probes_need_is_asked_for_before_anything_is_sent(make_slow: MakeSlow) -> None:
    trial = make_slow({}, SMALL, ready=False)
    result = trial.start("--isolate", "500").end()
    assert result.status == 4, result.out
    assert "--isolate: site lab is not ready for proxy" in result.out
    assert not (trial.results / "latest").exists()
    checked = trial.start("--isolate", "500", "--check").end()
    assert checked.status == 1, checked.out
    assert "missing  proxy: jax or optax for" in checked.out
    assert trial.start().end().verdicts == {SMALL: "too slow"}
    resumed = trial.start("--resume", "latest", "--isolate", "500").end()
    assert (resumed.status, "--isolate: site lab is not ready for proxy" in resumed.out) == (4, True)


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


def test_a_session_that_goes_on_without_isolating_follows_what_runs(probing: Trial, tmp_path: Path) -> None:
    probing.kill()
    (tmp_path / "faults.wait").unlink()
    assert "the session was stopped in round 2" in headline(probing.resume(), SMALL)
    assert sum("-isolate" in job.name for job in probing.jobs()) == 8


def test_what_a_killed_session_left_of_an_isolation_is_swept(probing: Trial) -> None:
    probing.kill()
    swept = probing.house("--sweep")
    assert swept.status == 0, swept.out
    assert probing.living() == []


def test_ctrl_c_cancels_the_probes_and_the_verdict_stays(probing: Trial) -> None:
    probing.signal(signal.SIGINT)
    probing.end()
    assert probing.living() == []
    result = probing.resume()
    assert "the session was stopped in round 2" in headline(result, SMALL)


NODES = [f"gpu{number:03}" for number in range(1, 17)]
LIMITS = ", jobs_in_flight: 16"

Screening = Callable[..., Trial]


@pytest.fixture
def screen(make_trial: MakeTrial, prober: Prober, tmp_path: Path) -> Screening:
    """Begin a screening of 16 nodes, which are as a table says."""

    def begin(table: dict[str, Any], *more: str, wait: bool = False) -> Trial:
        keys = {"recipes": f"{{proxy: {{values: {{python: '{prober.install(table)}'}}}}}}"}
        if wait:
            (tmp_path / "faults.wait").touch()
        trial: Trial = make_trial(limits=LIMITS, keys=keys)
        trial.process = trial.session("suites/node", "--nodes", "gpu[001-016]", *more)
        return trial

    return begin


@pytest.fixture
def drained(lab: SlurmLab) -> Iterator[str]:
    """A node that takes no jobs."""
    lab.set_node("gpu007", "drain")
    yield "gpu007"
    lab.set_node("gpu007", "resume")


def states(result: Run) -> dict[str, str]:
    return {node["node"]: node["state"] for node in result.summary["screening"]["nodes"]}


def listed(result: Run, kind: str) -> list[str]:
    return (result.folder / f"{kind}_nodes.txt").read_text().split()


def test_a_slow_a_broken_and_a_drained_node_are_told_from_the_others(screen: Screening, drained: str) -> None:
    result = screen({"nodes": {"gpu003": 0.09}, "gpus": {"gpu003": 3}, "crash": ["gpu005"]}).end()
    assert result.status == 1, result.out
    failing = {"gpu003", "gpu005"}
    wanted = {node: "failing" if node in failing else "passing" for node in NODES}
    assert states(result) == {**wanted, drained: "not judged"}, result.out
    screening = result.summary["screening"]
    # Worst first.
    assert [node["node"] for node in screening["nodes"][:3]] == ["gpu003", "gpu005", drained]
    slow, broken, unfit = screening["nodes"][:3]
    assert slow["reason"].startswith("no baseline; ")
    assert re.search(
        r"; [89]\.\d % slower than its peers \(limit 2\.5 %\); GPU 3: a step alone takes ", slow["reason"]
    )
    assert "ended FAILED on gpu005" in broken["reason"]
    assert unfit["reason"] == f"skipped: {drained} takes no jobs: drained: lab"
    assert screening["unlike"] == ["gpu003"]
    assert listed(result, "failing") == sorted(failing)
    assert listed(result, "passing") == [
        node for node in NODES if wanted[node] == "passing" and node != drained
    ]
    # Each node had one job, on itself, and the drained one had none.
    assert len(result.summary["cases"]) == 16
    ran = {case["id"].partition(".")[2]: case["job"]["nodes"] for case in result.summary["cases"]}
    assert ran == {node: node if node != drained else "" for node in NODES}
    assert "test_peers" in result.out
    assert "16 nodes, 2 failing (gpu003, gpu005), 1 not judged (gpu007), 13 passing" in result.out


def test_a_job_that_an_administrator_cancels_tells_nothing_of_its_node(
    screen: Screening, tmp_path: Path, lab: SlurmLab
) -> None:
    trial = screen({}, "-k", "gpu00", wait=True)
    until(lambda: sum(job.state == "RUNNING" for job in trial.living()) == 9, "nine jobs")
    lab.run("scancel", next(str(job.id) for job in trial.living() if job.name.endswith(".gpu004")))
    trial.until_said("ended CANCELLED on gpu004")
    (tmp_path / "faults.wait").unlink()
    result = trial.end()
    assert result.status == 1, result.out
    nodes = [node for node in NODES if node.startswith("gpu00")]
    assert states(result) == {node: "not judged" if node == "gpu004" else "passing" for node in nodes}
    assert listed(result, "failing") == []


def test_a_screening_of_healthy_nodes_goes_on_after_it_was_killed(screen: Screening, tmp_path: Path) -> None:
    """With the nodes that it began with, and with workers of xdist."""
    trial = screen({}, wait=True)
    until(lambda: sum(job.state == "RUNNING" for job in trial.living()) == 16, "sixteen jobs")
    trial.kill()
    (tmp_path / "faults.wait").unlink()
    trial.process = trial.session("suites/node", "--resume", "latest", "-n", "2")
    result = trial.end()
    assert result.status == 0, result.out
    assert states(result) == dict.fromkeys(NODES, "passing"), result.out
    assert len(trial.jobs()) == 16
    assert "16 skipped" in result.out
    assert "1 passed" in result.out
