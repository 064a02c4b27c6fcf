"""JobSets and PyTorchJobs: which pod tells, when a new life begins, what bounds hold without us, which kind a recipe's job is."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

import pytest
import yaml

from fixtures.backends.base import LogPlace
from fixtures.backends.kubernetes import objects, readiness
from fixtures.backends.kubernetes.api import Api, Refused
from fixtures.backends.kubernetes.backend import KubernetesBackend
from fixtures.backends.kubernetes.facts import Pod
from fixtures.backends.kubernetes.job_logs import LogPods, why_gone
from fixtures.backends.kubernetes.jobset import JobSets
from fixtures.backends.kubernetes.kinds import JobKind
from fixtures.backends.kubernetes.pytorchjob import PyTorchJobs, TorchJobSets
from fixtures.backends.kubernetes.section import Kubernetes
from fixtures.backends.kubernetes.states import Seen, state_of
from fixtures.backends.kubernetes.watched import Watched
from fixtures.backends.section import Limits, Workload
from fixtures.served import make_backends
from fixtures.site import site_model
from plugins.base.errors import ConfigError, SiteError, SubmitError, Unreachable
from plugins.recipes.contracts import SiteOverlay
from plugins.record.job import JobRef, Phase
from tests.unit import aks, examples, kubeapi

SECTION = Kubernetes(
    gpu="h100", queue="gpus", time_limit_minutes=30, keep_minutes=5, limits=Limits(queue_minutes=60)
)


def pod(name: str, created: str = "2026-01-01T00:00:00Z", uid: str = "", **labels: str) -> Pod:
    metadata = {"name": name, "uid": uid or name, "labels": labels, "creationTimestamp": created}
    spec = {"nodeName": f"node-of-{name}"}
    return Pod({"metadata": metadata, "spec": spec, "status": {"phase": "Running"}})


def rank(name: str, index: str, created: str, restarts: str = "0") -> Pod:
    labels = {"batch.kubernetes.io/job-completion-index": index}
    return pod(name, created, **labels, **{"jobset.sigs.k8s.io/restart-attempt": restarts})


def job(*conditions: tuple[str, str], **spec: Any) -> dict[str, Any]:
    said = [{"type": kind, "status": status, "reason": kind, "message": "m"} for kind, status in conditions]
    replicas = {"Master": {"replicas": 1, "template": {}}, "Worker": {"replicas": 2, "template": {}}}
    spec = {"pytorchReplicaSpecs": replicas, **spec}
    return {"metadata": {"name": "pm-x", "labels": {}}, "spec": spec, "status": {"conditions": said}}


def test_a_jobset_speaks_by_the_newest_pod_of_rank_0() -> None:
    kind, late = JobSets(), "2026-01-01T00:01:00Z"
    old, new, other = rank("a-0", "0", "2026-01-01T00:00:00Z"), rank("b-0", "0", late), rank("b-1", "1", late)
    assert kind.log_pods([old, new, other]) == [new]
    assert kind.log_pods([other]) == []
    going = rank("c-0", "0", late)
    going.item["metadata"]["deletionTimestamp"] = late
    assert kind.log_pods([going, new]) == kind.log_pods([new, going]) == [new]


def test_a_jobset_is_bounded_on_the_cluster() -> None:
    child: dict[str, Any] = {"template": {"spec": {}}, "ttlSecondsAfterFinished": 43200, "backoffLimit": 6}
    replicated = [{"name": "workload", "template": {"spec": child}}]
    item: dict[str, Any] = {"spec": {"replicatedJobs": replicated}, "metadata": {}}
    JobSets().bound(item, SECTION)
    assert item["spec"]["failurePolicy"] == {"maxRestarts": 0}
    assert (child["activeDeadlineSeconds"], child["backoffLimit"]) == (90 * 60, 0)
    assert "ttlSecondsAfterFinished" not in child


def test_a_jobsets_other_pod_is_another_life() -> None:
    kind = JobSets()
    first = kind.place(rank("a-0", "0", ""), LogPlace())
    assert first == LogPlace("a-0", attempt=1)
    assert kind.place(rank("a-0", "0", ""), LogPlace("a-0", 7, 1)) == LogPlace("a-0", 7, 1)
    assert kind.place(rank("b-0", "0", ""), LogPlace("a-0", 7, 1)) == LogPlace("b-0", attempt=2)
    assert kind.place(rank("d-0", "0", "", restarts="3"), LogPlace()) == LogPlace("d-0", attempt=4)
    # A later session has the number of the attempt, and not the pod.
    assert kind.place(rank("b-0", "0", ""), LogPlace(attempt=2)) == LogPlace("b-0", attempt=2)


def test_a_pytorchjob_speaks_by_the_last_name_as_text() -> None:
    kind = PyTorchJobs()
    pods = [pod("gpt-master-0"), *(pod(f"gpt-worker-{number}") for number in range(63))]
    names = [one.name for one in kind.log_pods(pods)]
    assert names[0] == "gpt-worker-9"
    assert names[-1] == "gpt-master-0"
    assert len(names) == 64


def test_a_pytorchjobs_pod_of_the_same_name_is_another_life() -> None:
    kind = PyTorchJobs()
    old, new = pod("w-9", uid="1"), pod("w-9", "2026-01-01T00:05:00Z", uid="2")
    assert kind.log_pods([new, old]) == [new]
    first = kind.place(old, LogPlace())
    assert first == LogPlace("w-9 1", attempt=1)
    assert kind.place(old, first) == first
    read = LogPlace("w-9 1", 70, 1, "stamp")
    assert kind.place(new, read) == LogPlace("w-9 2", 0, 2)
    # The search found the steps elsewhere: the same life says more.
    assert kind.place(pod("m-0", uid="3"), read) == LogPlace("m-0 3", 70, 1)
    assert kind.place(new, LogPlace(attempt=2)) == LogPlace("w-9 2", 0, 2)


def test_a_pytorchjob_runs_on_while_its_workers_do() -> None:
    kind, succeeded = PyTorchJobs(), job(("Running", "False"), ("Succeeded", "True"))
    busy = [pod("m-0"), pod("w-0"), pod("w-1")]
    busy[0].item["status"]["phase"] = "Succeeded"
    state = state_of(kind, Seen(succeeded, busy))
    assert (state.phase, state.raw) == (Phase.RUNNING, "Succeeded")
    assert state.reason == "the master has ended, 2 of 3 pods still run"
    for one in busy:
        one.item["status"]["phase"] = "Succeeded"
    assert state_of(kind, Seen(succeeded, busy)).phase is Phase.SUCCEEDED


@pytest.mark.parametrize(
    ("item", "phase", "raw"),
    [
        (job(("Created", "True"), ("Suspended", "True")), Phase.QUEUED, "Suspended"),
        (job(("Running", "False"), ("Failed", "True")), Phase.FAILED, "Failed"),
    ],
)
def test_the_states_of_a_pytorchjob(item: dict[str, Any], phase: Phase, raw: str) -> None:
    state = state_of(PyTorchJobs(), Seen(item))
    assert (state.phase, state.raw) == (phase, raw)


def test_a_pytorchjob_is_bounded_on_the_cluster() -> None:
    # With a limit the training operator before 1.9.4 deletes the pods of a job that fails, logs and all.
    item = job(runPolicy={"backoffLimit": 3})
    for replica in item["spec"]["pytorchReplicaSpecs"].values():
        replica["restartPolicy"] = "OnFailure"
    PyTorchJobs().bound(item, SECTION)
    assert item["spec"]["runPolicy"] == {
        "activeDeadlineSeconds": 90 * 60,
        "ttlSecondsAfterFinished": 300,
        "cleanPodPolicy": "None",
        "suspend": True,
    }
    assert {r["restartPolicy"] for r in item["spec"]["pytorchReplicaSpecs"].values()} == {"Never"}


# Which pod prints the steps: searched for in all of them, whichever can be read


JOB = JobRef("gpt3_aks", "175b-fp16-512gpus", "run.gpt3_aks-175b", "pm-1", "default")
NAMES = [f"pm-1-worker-{number}" for number in range(4)]
STEP = b" [2026-11-21 09:00:00] iteration       10/     100 | elapsed time per iteration (ms): 75.0 |\n"


class Printers:
    """The pods of one job. `says` is what each has printed; those in `dead` cannot be read."""

    def __init__(self) -> None:
        self.says: dict[str, bytes] = {}
        self.dead: set[str] = set()
        self.asked: list[str] = []
        self.clock = 0.0
        self.takes = 0.0

    def kind(self, job: JobRef) -> PyTorchJobs:
        return PyTorchJobs()

    def present_pods(self, job: JobRef) -> list[Pod]:
        return [pod(name, **{"training.kubeflow.org/job-name": "pm-1"}) for name in NAMES]

    def read(self, path: str, *, query: Mapping[str, str], attempts: int) -> bytes:
        name = path.split("/")[-2]
        self.asked.append(name)
        if name in self.dead:
            self.clock += self.takes
            raise Unreachable(f"{name}: i/o timeout")
        return self.says.get(name, b"")


@pytest.fixture
def printers(monkeypatch: pytest.MonkeyPatch) -> Printers:
    made = Printers()
    monkeypatch.setattr(time, "monotonic", lambda: made.clock)
    return made


@pytest.fixture
def search(printers: Printers) -> LogPods:
    hints = ("pytorch", (b"elapsed time per iteration",))
    made = LogPods(cast(Api, printers), cast(Watched, printers), lambda job: hints)
    look(made)
    return made


def look(search: LogPods, *, over: bool = False) -> str:
    present = search.present(JOB, over=over)
    assert present is not None
    return present.name


def test_a_pod_that_cannot_be_read_keeps_no_other_from_being_found(
    printers: Printers, search: LogPods
) -> None:
    printers.dead, printers.says = {NAMES[2]}, {NAMES[1]: STEP}
    assert look(search) == NAMES[3]
    printers.clock = 31
    assert look(search) == NAMES[1]
    assert search.unheard(JOB) == ""


def test_a_search_that_did_not_reach_all_is_no_search(printers: Printers, search: LogPods) -> None:
    printers.dead, printers.says = {NAMES[2]}, {NAMES[2]: STEP}
    for printers.clock in (31, 62, 93, 124):
        assert look(search) == NAMES[3]
    assert search.unheard(JOB).endswith(f"pod {NAMES[2]} cannot be read: {NAMES[2]}: i/o timeout")
    printers.dead = set()
    printers.clock = 155
    assert look(search) == NAMES[2]


def test_nobody_waits_long_for_pods_that_do_not_answer(printers: Printers, search: LogPods) -> None:
    printers.dead, printers.takes, printers.clock = set(NAMES), 10, 31
    look(search)
    assert printers.asked == [NAMES[3], NAMES[2]]
    # The others have their turn before these.
    printers.clock, printers.dead = 100, {NAMES[3], NAMES[2]}
    look(search)
    assert printers.asked[2:4] == [NAMES[1], NAMES[0]]


def test_a_run_that_prints_its_first_line_late_is_still_found(printers: Printers, search: LogPods) -> None:
    for printers.clock in (31, 121, 601, 1202, 1803):
        before = len(printers.asked)
        assert look(search) == look(search) == NAMES[3]
        assert len(printers.asked) == before + len(NAMES)
    printers.says, printers.clock = {NAMES[0]: STEP}, 2404
    assert look(search) == NAMES[0]


def test_at_the_end_all_are_searched_once_more(printers: Printers, search: LogPods) -> None:
    printers.dead, printers.says = {NAMES[0]}, {NAMES[0]: STEP}
    assert look(search, over=True) == look(search, over=True) == NAMES[3]
    assert len(printers.asked) == len(NAMES)
    printers.dead, printers.clock = set(), 6
    assert look(search, over=True) == NAMES[0]
    assert search.unheard(JOB) == ""


# What became of it, and where the recipe keeps another log


# A PyTorchJob as a JobSet: the same pods, and what the training operator would set


TORCH = TorchJobSets()
# What setPodEnv of the training operator 1.8.1 and 1.9.4 sets, but for the ranks.
SET = {
    "PYTHONUNBUFFERED": "1",
    "MASTER_PORT": "23456",
    "PET_MASTER_PORT": "23456",
    "MASTER_ADDR": f"{aks.NAME}-node-0-0.{aks.NAME}",
    "PET_MASTER_ADDR": f"{aks.NAME}-node-0-0.{aks.NAME}",
}


@pytest.mark.parametrize(("case_id", "nodes"), [(aks.LARGE, 64), ("375m-fp16-8gpus", 1)])
def test_it_has_the_pods_of_the_pytorchjob_and_what_the_operator_sets(case_id: str, nodes: int) -> None:
    before = aks.made(case_id)
    template = aks.pods(before)["Master"]
    scripts, job = TORCH.rendered(before)
    assert scripts == before[0]
    assert (job["apiVersion"], job["kind"]) == ("jobset.x-k8s.io/v1alpha2", "JobSet")
    assert job["metadata"] == before[1]["metadata"]
    assert TORCH.expected(job) == nodes
    assert job["spec"]["network"] == {"enableDNSHostnames": True, "publishNotReadyAddresses": False}
    (replicated,) = job["spec"]["replicatedJobs"]
    child = replicated["template"]["spec"]
    assert (child["completions"], child["completionMode"]) == (nodes, "Indexed")
    assert child["template"]["spec"]["restartPolicy"] == "Never"
    (container,) = child["template"]["spec"]["containers"]
    own, added = container["env"][:-9], container["env"][-9:]
    assert {**container, "env": own} == template["spec"]["containers"][0]
    usual = {**template["spec"], "restartPolicy": "Never", "containers": [container]}
    assert child["template"]["spec"] == usual
    # Labels and host names have 63 characters.
    assert len(f"{aks.NAME:x<40}-{replicated['name']}-0-63-abcde") <= 63
    plain = {entry["name"]: entry["value"] for entry in added if "value" in entry}
    assert plain == {**SET, "WORLD_SIZE": str(nodes), "PET_NNODES": str(nodes)}
    ranks = {entry["name"]: entry["valueFrom"]["fieldRef"]["fieldPath"] for entry in added[6:8]}
    index = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
    assert ranks == {"RANK": index, "PET_NODE_RANK": index}


HIGH = {"spec": {"priorityClassName": "high"}}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"runPolicy": {"schedulingPolicy": {"queue": "q"}}}, "spec.runPolicy of PyTorchJob"),
        ({"pytorchReplicaSpecs": {"Worker": {"scale": 1}}}, "Worker.scale of PyTorchJob"),
        (
            {"pytorchReplicaSpecs": {"Master": {"template": HIGH}}},
            "a master and workers of different pods in PyTorchJob",
        ),
    ],
)
def test_what_a_jobset_cannot_be_is_told_with_what_to_do(change: dict[str, Any], words: str) -> None:
    overlay = [SiteOverlay(kind="PyTorchJob", merge={"spec": change})]
    section = Kubernetes(gpu="h100", recipes={"gpt3_aks": Workload(overlay=overlay)})
    recipe = examples.recipe_named("gpt3_aks")
    backend = KubernetesBackend("lab", section, [recipe], TORCH)
    with pytest.raises(ConfigError, match=rf"^{words} \S+ cannot be had as a JobSet") as caught:
        backend.submit(aks.case(), "the-job")
    assert "mend: take it out of `overlay` in the site file, or install the operator" in str(caught.value)


def host(name: str, life: str, uid: str) -> Pod:
    return pod(f"{name}-{life}", f"2026-11-21T09:00:0{uid}Z", uid)


def test_the_last_host_by_name_prints_the_steps_whatever_its_pods_are_called() -> None:
    pods = [host(f"pm-node-0-{number}", "zzzzz" if number == 10 else "aaaaa", "1") for number in range(11)]
    pods.append(host("pm-node-0-9", "bbbbb", "2"))
    found = TORCH.log_pods(pods)
    assert [one.name for one in found[:2]] == ["pm-node-0-9-bbbbb", "pm-node-0-8-aaaaa"]
    assert len(found) == 11


def test_in_a_jobset_the_script_waits_for_the_master_and_says_who_it_is(tmp_path: Path) -> None:
    script = aks.Pod(tmp_path, aks.made(aks.QUICK))
    asked = tmp_path / "asked"
    (tmp_path / "bin" / "getent").write_text(
        f'#!/bin/bash\n[[ "$*" == "hosts the-master" ]] && {{ [[ -e {asked} ]] || {{ touch {asked}; exit 2; }}; }}\n'
    )
    (tmp_path / "bin" / "sleep").write_text("#!/bin/bash\n")
    for tool in ("getent", "sleep"):
        (tmp_path / "bin" / tool).chmod(0o755)
    for index, host in (("0", "1"), ("1", "0")):
        asked.unlink(missing_ok=True)
        done = script.run(JOB_COMPLETION_INDEX=index, MASTER_ADDR="the-master")
        assert (done.returncode, done.stderr) == (0, "")
        assert asked.exists()
        assert script.option("--rdzv_conf")[0] == f"is_host={host}"
        assert script.option("--rdzv_endpoint") == ["the-master:23456"]


def test_the_plan_shows_the_first_kind_and_that_the_cluster_decides(tmp_path: Path) -> None:
    section = Kubernetes(gpu="h100", kubeconfig=str(tmp_path / "none"))
    site = site_model().model_validate({"site": "lab", "pytorchjob": section})
    backend = make_backends(site, [examples.recipe_named("gpt3_aks")], None)["pytorchjob"]
    text = backend.plan(aks.case(), "the-job")
    assert text.startswith(
        "# A PyTorchJob or, where the cluster has none, a JobSet: the cluster decides. This is the PyTorchJob.\n"
    )
    assert [document["kind"] for document in yaml.safe_load_all(text)] == ["ConfigMap", "PyTorchJob"]


# Which kind a recipe's job is on clusters that have one, another, both or none, and that it stays what it was


OPERATOR, JOBSET = PyTorchJobs(), TorchJobSets()
KINDS: tuple[JobKind, ...] = (OPERATOR, JOBSET)
CASE = aks.case()
FORBIDDEN = Refused(403, "pytorchjobs is forbidden")
NAME = "pacemark-run-1.gpt3_aks-375m"
ID = objects.object_name(NAME, CASE.id)


class Cluster(kubeapi.Memory):
    """Serves these kinds of job; of the others it says what an API server does."""

    def __init__(self, *served: JobKind) -> None:
        super().__init__()
        self.before = self._refuse
        self.serve(*served)

    def serve(self, *served: JobKind) -> None:
        self._served = {kind.path("runs") for kind in served}
        for kind in KINDS:
            self.objects.pop(f"/apis/{kind.group}/{kind.version}", None)
        for kind in served:
            resources = [{"name": kind.plural}]
            self.objects[f"/apis/{kind.group}/{kind.version}"] = {"metadata": {}, "resources": resources}

    def _refuse(self, method: str, path: str) -> None:
        for kind in KINDS:
            if path.startswith(kind.path("runs")) and kind.path("runs") not in self._served:
                raise Unreachable(f"{method} {path}: 404: 404 page not found")

    def made(self) -> list[str]:
        return [item["kind"] for item in self.objects.values() if "kind" in item]


Open = Callable[[Cluster], KubernetesBackend]


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Open:
    """Begins a session on a cluster that has all else."""
    base = "fixtures.backends.kubernetes"
    monkeypatch.setattr(readiness, "STARTING_SECONDS", 0.0)
    monkeypatch.setattr(readiness, "lacks", lambda *_: [])
    monkeypatch.setattr(f"{base}.provision.apply.Provisioner.lacks", lambda *_, **__: [])
    monkeypatch.setattr(f"{base}.watched.Informer", kubeapi.Watch)
    recipe, section = examples.recipe_named("gpt3_aks"), Kubernetes(gpu="h100", namespace="runs")

    def begin(cluster: Cluster) -> KubernetesBackend:
        monkeypatch.setattr(f"{base}.backend.Api", lambda *_: cluster)
        return KubernetesBackend("lab", section, [recipe], OPERATOR, JOBSET)

    return begin


def submitted(backend: KubernetesBackend, name: str = NAME) -> JobRef:
    backend.check(CASE)
    return backend.submit(CASE, name)


@pytest.mark.parametrize(
    ("served", "kind"),
    [((OPERATOR,), "PyTorchJob"), ((JOBSET,), "JobSet"), ((OPERATOR, JOBSET), "PyTorchJob")],
)
def test_the_first_kind_that_the_cluster_has_is_made_recorded_and_shown(
    session: Open, served: tuple[JobKind, ...], kind: str
) -> None:
    cluster = Cluster(*served)
    backend = session(cluster)
    backend.check(CASE)
    assert backend.submit(CASE, NAME) == JobRef(CASE.recipe, CASE.id, NAME, ID, "runs", kind, uid="uid-1")
    assert cluster.made() == [kind, "ConfigMap"]
    assert f"\nkind: {kind}\n" in backend.plan(CASE, NAME)
    assert "the cluster decides" not in backend.plan(CASE, NAME)


def test_a_cluster_that_has_none_of_them_is_told_what_to_install(session: Open) -> None:
    with pytest.raises(SiteError) as caught:
        session(Cluster()).check(CASE)
    assert str(caught.value) == (
        "site lab is not ready for gpt3_aks:\n"
        "  PyTorchJob (kubeflow.org/v1) and JobSet (jobset.x-k8s.io/v1alpha2) are missing on the cluster\n"
        "    mend: install one of them: https://www.kubeflow.org/docs/components/trainer/legacy-v1/installation or "
        "https://jobset.sigs.k8s.io/docs/installation"
    )


def test_a_kind_that_comes_while_the_server_starts_is_waited_for(
    session: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = Cluster(JOBSET)
    monkeypatch.setattr("time.sleep", lambda _: cluster.serve(OPERATOR, JOBSET))
    assert submitted(session(cluster)).kind == "PyTorchJob"


def test_a_kind_that_comes_in_the_middle_of_a_session_changes_nothing(session: Open) -> None:
    cluster = Cluster(JOBSET)
    backend = session(cluster)
    backend.check(CASE)
    cluster.serve(OPERATOR, JOBSET)
    backend.check(CASE)
    assert backend.submit(CASE, NAME).kind == "JobSet"


@pytest.mark.parametrize("denied", [False, True])
def test_a_later_session_finds_and_ends_the_job_as_what_it_is(session: Open, denied: bool) -> None:
    """After the cluster gained the training operator; also where this user may do nothing with its jobs."""
    cluster = Cluster(JOBSET)
    job = submitted(session(cluster))
    cluster.serve(OPERATOR, JOBSET)
    if denied:
        cluster.refuse("", OPERATOR.path("runs"), FORBIDDEN)
    later = session(cluster)
    assert later.find(JobRef(CASE.recipe, CASE.id, NAME), to_end=True) == job
    later.cancel([job])
    assert cluster.made() == []


def test_a_job_of_a_kind_that_may_not_be_looked_at_does_not_count_as_gone(session: Open) -> None:
    cluster = Cluster(OPERATOR, JOBSET)
    cluster.refuse("", OPERATOR.path("runs"), FORBIDDEN)
    with pytest.raises(Unreachable, match="pytorchjobs is forbidden"):
        session(cluster).find(JobRef(CASE.recipe, CASE.id, NAME))


def test_jobs_of_both_kinds_are_listed_asked_about_and_ended_together(session: Open) -> None:
    cluster, jobs = Cluster(JOBSET), list[JobRef]()
    for served in ((JOBSET,), (OPERATOR, JOBSET)):
        cluster.serve(*served)
        backend = session(cluster)
        jobs.append(submitted(backend, f"{NAME}-{len(jobs)}"))
    assert [job.kind for job in jobs] == ["JobSet", "PyTorchJob"]
    assert {(job.id, job.kind) for job in backend.listed("pacemark-run-1.")} == {
        (job.id, job.kind) for job in jobs
    }
    # Nobody knows of which case a listed job is.
    for asked in (jobs, backend.listed("pacemark-run-1.")):
        states = backend.poll(asked)
        assert {job: states[job].phase for job in asked} == dict.fromkeys(asked, Phase.QUEUED)
    backend.cancel(jobs)
    ended = {(state.phase, state.raw) for state in backend.poll(jobs).values()}
    assert ended == {(Phase.FAILED, "CANCELLED")}
    # Kinds that are not there are not asked for.
    cluster.serve(JOBSET)
    assert session(cluster).listed("pacemark-run-1.") == []


@pytest.mark.parametrize("hidden", KINDS)
def test_a_kind_that_cannot_be_asked_hides_no_job_of_another_kind(session: Open, hidden: JobKind) -> None:
    cluster, jobs = Cluster(OPERATOR, JOBSET), list[JobRef]()
    for kind in KINDS:
        cluster.serve(kind)
        backend = session(cluster)
        jobs.append(submitted(backend, f"{NAME}-{kind.name}"))
    cluster.refuse("", hidden.path("runs"), Unreachable("the kind is forbidden"))
    seen, unseen = sorted(jobs, key=lambda job: job.kind == hidden.name)
    states = backend.poll(jobs)
    assert states[seen].phase is Phase.QUEUED
    assert states[unseen].phase is Phase.UNKNOWN
    assert states[unseen].raw == "cannot be asked: the kind is forbidden"
    # If no kind can be asked, nothing is known at all, and the session's own bound counts.
    with pytest.raises(Unreachable, match="the kind is forbidden"):
        backend.poll([unseen])


@pytest.mark.parametrize("kind", KINDS)
def test_what_keeps_a_deleted_job_of_any_kind_reaches_the_user(session: Open, kind: JobKind) -> None:
    cluster = Cluster(kind)
    backend, lines = session(cluster), list[str]()
    backend.notify = lines.append
    job = submitted(backend)
    cluster.objects[f"{kind.path('runs')}/{job.id}"]["metadata"]["finalizers"] = ["site/audit"]
    backend.cancel([job])
    assert lines == [f"{kind.name} {ID} is deleted, and stays until its finalizers are removed: site/audit"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_job_of_any_kind_that_a_policy_changed_is_ended_at_once(
    session: Open, monkeypatch: pytest.MonkeyPatch, kind: JobKind
) -> None:
    """Nobody would know whose it is: the check could not tell, since its webhook does not answer dry runs."""
    cluster = Cluster(kind)
    backend, post = session(cluster), cluster.post

    def strip(path: str, document: Any, **query: str) -> Any:
        made = post(path, document, **query)
        if document["kind"] == kind.name:
            for there in (made, cluster.objects[f"{path}/{made['metadata']['name']}"]):
                del there["metadata"]["annotations"]
        return made

    backend.check(CASE)
    monkeypatch.setattr(cluster, "post", strip)
    with pytest.raises(SubmitError) as caught:
        backend.submit(CASE, NAME)
    change = f"metadata.annotations.pacemark/job is missing instead of '{NAME}'"
    end = f"{kind.name} {ID} was deleted again\n    mend: ask the administrator"
    assert str(caught.value).startswith(f"the cluster changed {kind.name} {ID}: {change}; {end}")
    assert not caught.value.may_run
    assert cluster.made() == []


def test_why_a_pod_is_gone() -> None:
    evicted = Pod({"metadata": {"name": "p"}, "status": {"reason": "Evicted", "message": "disk"}})
    assert why_gone(evicted) == "pod p that printed the steps is gone (Evicted: disk)"
    assert why_gone(None) == "no pod that printed steps is left"
