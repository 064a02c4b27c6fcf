"""Which nodes a session screens, and with which case, by its command line, its site file and what the cluster tells."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fixtures.backends.kubernetes import capacity
from fixtures.backends.slurm.inventory import unfit_nodes
from fixtures.fleet.job import TrackedJob
from fixtures.runs.planned import PlannedJob, job_of
from fixtures.session import screening
from fixtures.session.choices import CHOICES
from fixtures.session.screening import ScreenedNodes
from plugins.base.errors import ConfigError, Unreachable
from plugins.baselines.store import Baseline
from plugins.judging.verdicts import Verdict
from plugins.recipes.cases import Case
from plugins.record.case import CaseRecord
from plugins.record.job import Job, JobRef, screened_node
from plugins.record.verdict import Kind
from plugins.suite.judged import record_in
from tests.system.support import pacemark
from tests.unit import examples
from tests.unit.chosen import choices

PROXY = examples.recipe_named("proxy")
CPU_LOG = Path(__file__).parents[1] / "cpu_logs" / "busy.log"


def test_the_case_of_a_node_has_the_name_of_the_node_behind_its_id() -> None:
    case = PROXY.case("8b-8l-bf16-8gpus.ip-10-0-0-1.ec2.internal")
    assert case is not None
    assert (case.node, case.test_id) == ("ip-10-0-0-1.ec2.internal",) * 2
    assert case.key == "proxy/8b-8l-bf16-8gpus.ip-10-0-0-1.ec2.internal"
    assert PROXY.case("8b-8l-bf16-3gpus.gpu001") is None
    assert screened_node("8b-8l-bf16-8gpus") == screened_node("70b-fp8-512gpus/isolate1x1.1-gpu017") == ""


@pytest.mark.parametrize("state", ["idle|none", "allocated|none", "mixed|none"])
def test_slurm_tells_which_nodes_take_jobs(state: str) -> None:
    assert unfit_nodes(f"a banner\ngpu001|{state}\n") == {"gpu001": ""}


@pytest.mark.parametrize(
    "state", ["drained|bad DIMM | slot 3", "draining|later", "down|Not responding", "idle*|none"]
)
def test_slurm_tells_which_nodes_take_no_jobs(state: str) -> None:
    assert unfit_nodes(f"a banner\ngpu001|{state}\n") == {"gpu001": state.replace("|", ": ", 1)}


def test_kubernetes_tells_the_nodes_of_gpus_also_those_that_lost_some(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def node(name: str, gpus: int | None, ready: str = "True", **spec: Any) -> dict[str, Any]:
        resources = {"cpu": "96"} if gpus is None else {"nvidia.com/gpu": str(gpus)}
        conditions = [{"type": "Ready", "status": ready}]
        status = {"capacity": resources, "allocatable": resources, "conditions": conditions}
        return {"metadata": {"name": name}, "spec": spec, "status": status}

    gpu = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
    nodes = [
        node("a", 8, taints=[gpu]),
        node("b", 8, unschedulable=True),
        node("c", 8, "False"),
        node("lost-a-gpu", 7),
        node("lost-its-plugin", 0),
        node("control-plane", None),
    ]
    monkeypatch.setattr(capacity, "nodes_for", lambda api, want: nodes)
    pod = {"spec": {"containers": [{"resources": {"limits": {"nvidia.com/gpu": 8}}}]}}
    section: Any = SimpleNamespace(queue=None)
    unfit = capacity.unfit_nodes(None, section, pod)  # type: ignore[arg-type]
    few = "with too little nvidia.com/gpu"
    lost = {"lost-a-gpu": few, "lost-its-plugin": few}
    assert unfit == {"a": "", "b": "cordoned", "c": "not ready", **lost}


def test_the_next_job_of_a_case_runs_on_the_same_node() -> None:
    case = PROXY.case("8b-8l-bf16-8gpus.gpu001")
    assert case is not None
    ref = job_of("run", "proxy", case.id)
    job = TrackedJob.of(PlannedJob(case, "slurm", ref, "maxtext", nodes=case.node))
    again = job.again(Job(ref=JobRef("proxy", case.id, "again"), try_number=2))
    assert (again.ref.name, again.nodes) == ("again", "gpu001")


def judged(nodes: str, baseline: Baseline | None) -> Verdict:
    """The verdict on a case that was to run on gpu001 and ran on these nodes."""
    case, log = replace(examples.case(), node="gpu001"), examples.parse(examples.nemo2_text())
    return examples.judged(case, examples.outcome(nodes=nodes), log, baseline).verdict


def test_a_job_that_ran_elsewhere_tells_nothing_of_the_node() -> None:
    assert judged("gpu001", examples.baseline()).kind is Kind.PASSED
    for nodes in ("gpu002", ""):
        verdict = judged(nodes, examples.baseline())
        assert verdict.kind is Kind.INVALID
        assert verdict.reasons[0].startswith("it was to run on gpu001, and ran on ")


def test_without_a_baseline_the_case_that_lacks_it_is_named_without_its_node() -> None:
    verdict = judged("gpu001", None)
    assert verdict.kind is Kind.NO_BASELINE
    assert ".gpu001" not in verdict.reasons[0]


def test_the_nodes_of_a_run_are_read_as_they_were_written() -> None:
    nodes = ScreenedNodes("8b-8l-bf16-8gpus", {"gpu001": "", "gpu002": "drained: lab"}, {"gpu001": "leaf0"})
    assert ScreenedNodes.parse(nodes.text, "here") == nodes
    for damaged in ("", "[]", "{}", '{"case": "", "unfit": 3, "leaves": {}}'):
        with pytest.raises(ConfigError, match="here has no list of nodes"):
            ScreenedNodes.parse(damaged, "here")


def test_suites_leave_the_screening_out_unless_it_is_named(tmp_path: Path) -> None:
    all_suites = pacemark("suites", "--collect-only", "-q", results=tmp_path)
    assert "suites/proxy/" in all_suites.out
    assert "suites/node/" not in all_suites.out
    chosen = ("-k", "tiny or gpu00", "--nodes", "gpu[001-003]")
    named = pacemark("suites/node", "suites/proxy", "--collect-only", "-q", *chosen, results=tmp_path)
    assert [line for line in named.out.splitlines() if "::" in line] == [
        *(f"suites/node/test_node.py::test_node[gpu00{number}]" for number in (1, 2, 3)),
        "suites/proxy/test_proxy.py::test_pretrain[tiny-fp32-1gpus]",
        "suites/node/test_node.py::test_peers",
    ]


def test_a_screening_is_replayed_with_its_own_case_and_nodes(tmp_path: Path) -> None:
    """Also one of which no node took a job."""
    source = tmp_path / "run"
    for node in ("a1", "a2", "a3"):
        folder = source / f"proxy/tiny-fp32-1gpus.{node}"
        folder.mkdir(parents=True)
        (folder / "log.txt").write_bytes(CPU_LOG.read_bytes())
    drained = dict.fromkeys(("a1", "a2", "a3"), "drained: lab")
    for unfit, state in (({**drained, "a1": "", "a2": ""}, "passing"), (drained, "not judged")):
        (source / "nodes.json").write_text(ScreenedNodes("tiny-fp32-1gpus", unfit, {"a1": "leaf7"}).text)
        replay = ("--backend", "replay", "--from", str(source))
        result = pacemark("suites/node", *replay, results=tmp_path / "results")
        assert result.status == 0, result.out
        nodes = {node["node"]: node for node in result.summary["screening"]["nodes"]}
        assert nodes["a1"]["state"] == nodes["a2"]["state"] == state, result.out
        assert (nodes["a1"]["leaf"], nodes["a3"]["state"]) == ("leaf7", "not judged")
        assert nodes["a3"]["reason"] == "skipped: a3 takes no jobs: drained: lab"
        assert "too few nodes were measured to compare them" in result.out
        nothing = "nothing was decided: of 3 cases none passed or failed; exit code 0, with --gate 13"
        assert (f"\n{nothing}\nrecord: " in result.out) == (state == "not judged")
        skipped = f"SKIPPED [{3 - list(unfit.values()).count('')}] suites/node/test_node.py:7"
        assert f"{skipped}: skipped: they are in the table\n" in result.out


@pytest.mark.parametrize(
    ("named", "excluded", "refused"),
    [
        ((), (), False),
        (("a2", "a1"), (), False),
        (("a1",), (), True),
        (("a1", "a2", "a3"), (), True),
        ((), ("a1",), True),
    ],
)
def test_a_screening_that_goes_on_has_the_nodes_that_it_began_with(
    tmp_path: Path, named: Any, excluded: Any, refused: bool
) -> None:
    (tmp_path / "nodes.json").write_text(ScreenedNodes("tiny-fp32-1gpus", {"a1": "", "a2": ""}, {}).text)
    config: Any = SimpleNamespace(option=SimpleNamespace(nodes=named))
    session = replace(choices(excluded=excluded), folder=tmp_path, source=None)
    if refused:
        with pytest.raises(ConfigError, match=f"run {tmp_path.name} has the 2 nodes that it began with"):
            screening._recorded(config, session)
    else:
        nodes = screening._recorded(config, session)
        assert nodes is not None
        assert [*nodes.unfit] == ["a1", "a2"]


@pytest.mark.parametrize(
    ("text", "leaf"),
    [(ScreenedNodes("tiny-fp32-1gpus", {"a1": ""}, {"a1": "leaf7"}).text, "leaf7"), ("{", "")],
)
def test_a_session_with_other_cases_of_the_run_has_its_screening(
    tmp_path: Path, text: str, leaf: str
) -> None:
    (tmp_path / "nodes.json").write_text(text)
    config: Any = SimpleNamespace(stash={CHOICES: replace(choices(), folder=tmp_path)})
    job = Job(ref=JobRef("proxy", "tiny-fp32-1gpus.a1", "name"))
    result = screening.screened(config, [CaseRecord.unjudged(job, "")])
    assert result is not None
    assert [(node.node, node.leaf) for node in result.nodes] == [("a1", leaf)]
    assert screening.screened(config, []) is None


def test_what_the_session_does_not_run_is_not_compared() -> None:
    """`--lf` chooses the comparison that failed, without the nodes that it compares."""
    node: Any = SimpleNamespace(name="test_node[a1]", stash={}, session=SimpleNamespace(items=[]))
    with pytest.raises(ConfigError, match=r"this session leaves out test_node\[a1\], which is compared here"):
        record_in(node)


class Cluster:
    """A cluster that tells these nodes."""

    def __init__(self, nodes: dict[str, str]) -> None:
        self.told = nodes

    def nodes(self, case: Case) -> dict[str, str]:
        return self.told

    def leaves(self) -> dict[str, str]:
        raise Unreachable("no answer")

    def close(self) -> None:
        pass


@pytest.mark.parametrize(
    ("named", "excluded", "told", "expected"),
    [
        ((), (), {"a": "", "b": "down: lab"}, {"a": "", "b": "down: lab"}),
        (("b",), (), {"a": "", "b": "down: lab"}, {"b": "down: lab"}),
        ((), ("a",), {"a": "", "b": ""}, {"b": ""}),
        # Who may not list nodes names them.
        (("a", "b"), (), {}, {"a": "", "b": ""}),
        (("c",), (), {"a": ""}, "site this-machine has no node c"),
        ((), (), {}, "name them with --nodes HOSTLIST"),
        ((), ("a",), {"a": ""}, "all are left out"),
    ],
)
def test_the_nodes_are_those_that_were_named_and_the_cluster_tells(
    monkeypatch: pytest.MonkeyPatch, named: Any, excluded: Any, told: dict[str, str], expected: Any
) -> None:
    monkeypatch.setattr(screening, "make_backends", lambda *_: {"local": Cluster(told)})
    config: Any = SimpleNamespace(option=SimpleNamespace(nodes=named))
    session = choices(excluded=excluded)
    if isinstance(expected, str):
        with pytest.raises(ConfigError, match=expected):
            screening._asked(config, session, PROXY)
    else:
        nodes = screening._asked(config, session, PROXY)
        assert (nodes.unfit, nodes.leaves) == (expected, {})
        assert nodes.case.startswith(("tiny-fp32-1gpus", "8b-8l-bf16-"))
