"""The set-up on a cluster that refuses, breaks off and forgets: nothing hangs, nothing is left unsaid."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from fixtures.backends.kubernetes import preflight as check
from fixtures.backends.kubernetes.api import Api, Refused
from fixtures.backends.kubernetes.backend import KubernetesBackend
from fixtures.backends.kubernetes.jobset import JobSets
from fixtures.backends.kubernetes.kinds import Rules
from fixtures.backends.kubernetes.provision import data as storage
from fixtures.backends.kubernetes.provision.apply import Provisioner, progress
from fixtures.backends.kubernetes.provision.data import RULES
from fixtures.backends.kubernetes.pytorchjob import PyTorchJobs
from plugins.base.errors import ConfigError, SiteError, SubmitError, Unprovisioned, Unreachable
from plugins.base.yamlfile import load_documents
from plugins.recipes.setup import read_setup
from plugins.record.job import SETUP_CASE, JobRef, Phase
from tests.unit import examples, gpt3_setup, kubeapi
from tests.unit.kubeapi import CLAIMS, CLASSES, EVENTS, JOBS, MAPS, PODS, REVIEWS, Memory, Object

JOB, LATER = "pacemark-20261121-094226-2019.gpt3_aks-setup", "pacemark-20261121-104226-3020.gpt3_aks-setup"
SUBMITTED = JobRef("gpt3_aks", SETUP_CASE, JOB)


QUOTA = Refused(403, "exceeded quota: configmaps")


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> Memory:
    # A submission without an answer is not repeated.
    for module in ("apply", "data"):
        monkeypatch.setattr(f"fixtures.backends.kubernetes.provision.{module}.SUBMIT_SECONDS", 0.0)
    monkeypatch.setattr("fixtures.backends.kubernetes.provision.jobs._LOOK_AGAIN_SECONDS", 0.01)
    made = Memory()
    made.claim()
    return made


def begun(memory: Memory) -> tuple[Provisioner, JobRef]:
    """A session that has begun to make the data, and its job."""
    session = kubeapi.setup(memory)
    return session, session.provision(JOB)


# A Job and the scripts that it mounts


def test_a_job_whose_scripts_are_refused_is_deleted_again(memory: Memory) -> None:
    memory.refuse("POST", MAPS, QUOTA)
    with pytest.raises(SubmitError, match="exceeded quota") as caught:
        kubeapi.setup(memory).provision(JOB)
    assert not caught.value.may_run
    assert memory.names(JOBS) == []


def test_a_job_whose_scripts_are_refused_and_that_cannot_be_deleted_may_run(memory: Memory) -> None:
    def before(method: str, path: str) -> None:
        if (method, path) == ("POST", MAPS):
            raise QUOTA
        if method == "DELETE":
            raise Unreachable("no answer")

    memory.before = before
    session = kubeapi.setup(memory)
    with pytest.raises(SubmitError, match=r"exceeded quota.* may still be there.* no answer") as caught:
        session.provision(JOB)
    assert caught.value.may_run
    # And is found by whoever sweeps.
    assert session.find(SUBMITTED, to_end=True) is not None


def test_another_sessions_job_is_not_deleted_for_its_scripts(memory: Memory) -> None:
    kubeapi.setup(memory).provision(JOB)
    (place,) = (path for path in memory.objects if path.startswith(MAPS))
    del memory.objects[place]
    memory.refuse("POST", MAPS, QUOTA)
    session = kubeapi.setup(memory)
    end = session.state(session.provision(LATER))
    assert end.phase is Phase.FAILED
    assert "stage download cannot begin: exceeded quota" in end.reason
    assert memory.names(JOBS) == ["download"]


def test_a_server_that_forbids_all_after_a_lost_answer_leaves_open_whether_a_job_was_made(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was restarted, and has not read its roles. The Job of the request without an answer is there."""
    monkeypatch.setattr("fixtures.backends.kubernetes.provision.apply.SUBMIT_SECONDS", 60.0)
    monkeypatch.setattr("fixtures.backends.kubernetes.api._UNTIL_PAUSE", 0.0)
    make = memory.post

    def post(path: str, document: Any, **query: str) -> Any:
        if path != JOBS:
            return make(path, document, **query)
        if memory.names(JOBS):
            raise Refused(403, "forbidden")
        make(path, document, **query)
        raise Unreachable("cut off")

    monkeypatch.setattr(memory, "post", post)
    job = kubeapi.setup(memory).provision(JOB)
    assert memory.names(JOBS) == memory.names(MAPS) == ["download"]
    assert kubeapi.setup(memory).find(SUBMITTED, to_end=True) == job


def test_scripts_that_got_no_answer_are_made_at_the_next_look(memory: Memory) -> None:
    session, job = begun(memory)
    memory.over("download")
    memory.refuse("POST", MAPS, Unreachable("500"), times=1)
    with pytest.raises(Unreachable):
        session.state(job)
    assert (memory.names(JOBS), memory.names(MAPS)) == (["download", "extract"], ["download"])
    assert session.state(job).phase is Phase.RUNNING
    assert memory.names(MAPS) == ["download", "extract"]
    # Looked for once, not at every look.
    memory.asked.clear()
    session.state(job)
    assert [path for _, path in memory.asked if path.startswith(MAPS)] == []


@pytest.mark.parametrize("again", ["provision", "find"])
def test_scripts_that_a_dead_session_did_not_make_are_made_by_the_next(memory: Memory, again: str) -> None:
    memory.refuse("POST", MAPS, Unreachable("kill -9"))
    with pytest.raises(Unreachable):
        kubeapi.setup(memory).provision(JOB)
    memory.before = lambda method, path: None
    assert memory.names(MAPS) == []
    session = kubeapi.setup(memory)
    job = session.provision(LATER) if again == "provision" else session.find(SUBMITTED)
    assert job is not None
    session.state(job)
    assert memory.names(MAPS) == ["download"]


def test_nothing_is_made_any_more_once_the_end_was_asked_for(memory: Memory) -> None:
    session, job = begun(memory)
    memory.over("download")
    memory.refuse("DELETE", JOBS, Unreachable("500"))
    with pytest.raises(Unreachable):
        session.end(job)
    assert session.state(job).phase is Phase.RUNNING
    assert memory.names(JOBS) == ["download"]
    memory.before = lambda method, path: None
    session.end(job)
    assert session.state(job).phase is Phase.GONE
    # Asked for anew, it begins anew.
    assert session.state(session.provision(LATER)).phase is Phase.QUEUED


def test_a_value_that_is_no_number_is_told(memory: Memory) -> None:
    with pytest.raises(SubmitError, match="`chunks` is '1O', which is no number"):
        kubeapi.setup(memory, chunks="1O").provision(JOB)


# Whether --provision would help


def checked(memory: Memory, monkeypatch: pytest.MonkeyPatch, **values: str) -> SiteError:
    """What the check says of two nodes on a cluster that has all the rest."""
    monkeypatch.setattr("fixtures.backends.kubernetes.readiness.lacks", lambda *_: [])
    case = examples.case("375m-fp16-16gpus", "gpt3_aks")
    section = gpt3_setup.section(values=values)
    monkeypatch.setattr("fixtures.backends.kubernetes.backend.Api", lambda *_: memory)
    backend = KubernetesBackend("lab", section, [examples.recipe_named("gpt3_aks")], PyTorchJobs())
    with pytest.raises(SiteError) as caught:
        backend.check(case)
    return caught.value


def test_a_check_makes_no_pod_that_counts_and_calls_nothing_ready_that_was_not_counted(
    memory: Memory,
) -> None:
    session = kubeapi.setup(memory)
    (lack,) = session.lacks(2, probe=False)
    assert "whether the data on the claim shared-storage-pvc is whole is not known" in lack
    assert not session.would_help
    assert {asked for asked in memory.asked if asked[0] not in ("GET", "LIST")} == {("POST", REVIEWS)}


PENDING = {"status": {"phase": "Pending"}}
BEING_MADE = {**PENDING, "spec": {"accessModes": ["ReadWriteMany"], "storageClassName": "blob"}}


@pytest.mark.parametrize(
    ("change", "helps"),
    [
        ({"spec": {"accessModes": ["ReadWriteOnce"]}}, False),
        ({"status": {"phase": "Lost"}}, False),
        (PENDING, False),  # and no class that would make its volume
        # It is waited for, as after a session that died a minute ago.
        (BEING_MADE, True),
    ],
)
def test_nothing_is_made_for_a_claim_that_is_of_no_use(
    memory: Memory, monkeypatch: pytest.MonkeyPatch, change: dict[str, Any], helps: bool
) -> None:
    memory.objects[f"{CLAIMS}/shared-storage-pvc"] |= change
    memory.objects[f"{CLASSES}/blob"] = {"provisioner": "blob.csi.azure.com"}
    memory.objects["/apis/storage.k8s.io/v1/csidrivers/blob.csi.azure.com"] = {}
    assert isinstance(checked(memory, monkeypatch), Unprovisioned) is helps


@pytest.mark.parametrize(("chunks", "helps"), [("15", True), ("1O", False)])
def test_nothing_is_made_for_a_mistake_in_the_values(
    memory: Memory, monkeypatch: pytest.MonkeyPatch, chunks: str, helps: bool
) -> None:
    """A claim that is missing may be made."""
    memory.objects.clear()
    error = checked(memory, monkeypatch, storage="amlfs", chunks=chunks)
    assert isinstance(error, Unprovisioned) is helps
    assert helps or "chunks" in str(error)


# Storage


def test_a_class_that_is_there_needs_no_permission_to_make_it(memory: Memory) -> None:
    """docs/rbac/pytorchjob.yaml says so."""
    driver = "/apis/storage.k8s.io/v1/csidrivers/azurelustre.csi.azure.com"
    lustre = {"storage": "amlfs", "tier": "125", "capacity": "16"}
    contract = gpt3_setup.contract(values=lustre)
    kind = contract.storage_documents("amlfs")[0]
    memory.objects = {driver: {}, f"{CLASSES}/{kind['metadata']['name']}": kind}
    memory.refuse("POST", CLASSES, Refused(403, "storageclasses is forbidden"))
    kubeapi.setup(memory, **lustre).provision(JOB)
    assert f"{CLAIMS}/shared-storage-pvc" in memory.objects
    # Another one of that name is refused as ever.
    del memory.objects[f"{CLAIMS}/shared-storage-pvc"]
    memory.objects[f"{CLASSES}/{kind['metadata']['name']}"]["parameters"] = {}
    with pytest.raises(SubmitError, match="is there and another one"):
        kubeapi.setup(memory, **lustre).provision(JOB)


# Pods whose logs cannot be read


def silence(memory: Memory, pod: str) -> list[str]:
    """The node of this pod does not answer any more; how often it was asked."""
    asked: list[str] = []

    def before(method: str, path: str) -> None:
        if path == f"{PODS}/{pod}/log":
            asked.append(path)
            raise Unreachable(f"GET {path}: 500: dial tcp 10.0.0.4:10250: i/o timeout")

    memory.before = before
    return asked


def test_a_pod_whose_log_cannot_be_read_keeps_nobody_from_being_told_of_the_others(memory: Memory) -> None:
    session, job = begun(memory)
    dead, alive = memory.pods("download")
    asked = silence(memory, dead)
    memory.logs[f"{PODS}/{alive}/log"] = b"pacemark: download 1 of 4: 3 of 10 files\n"
    for _ in range(3):
        state = session.state(job)
        assert (state.phase, state.raw) == (Phase.RUNNING, "download: 3 of about 40 files")
    # Its node is left alone for a while.
    assert len(asked) == 1


def test_a_stage_that_failed_is_told_though_its_last_words_cannot_be_read(memory: Memory) -> None:
    session, job = begun(memory)
    ended = {"exitCode": 1, "reason": "Error", "finishedAt": "2026-11-21T10:05:00Z"}
    failed = [{"name": "main", "state": {"terminated": ended}}]
    dead, alive = memory.pods("download", phase="Failed", containerStatuses=failed)
    memory.over("download", "Failed")
    silence(memory, dead)
    memory.logs[f"{PODS}/{alive}/log"] = b"no space left\n"
    end = session.state(job)
    assert (end.phase, end.nodes, end.exit_code) == (Phase.FAILED, "aks-1", "1")
    assert f"pod {dead}" in end.reason
    assert "no space left" in end.reason


def test_the_pods_of_a_stage_that_somebody_made_anew_are_not_those_of_the_former_one(memory: Memory) -> None:
    """Its Job has the same name, and so have the labels on the pods: what the former ones said is of no stage that is there."""
    session, job = begun(memory)
    for name in memory.pods("download"):
        memory.logs[f"{PODS}/{name}/log"] = b"pacemark: download 1 of 4: 3 of 10 files\n"
    (stage,) = (item for place, item in memory.objects.items() if place.startswith(JOBS))
    stage["metadata"]["uid"] = "another"
    for place, item in memory.objects.items():
        if place.startswith(MAPS):
            item["metadata"]["ownerReferences"][0]["uid"] = "another"
    state = session.state(job)
    assert (state.phase, state.raw) == (Phase.QUEUED, "download: waiting")


def test_a_count_whose_answer_cannot_be_read_is_made_again(memory: Memory) -> None:
    session = kubeapi.setup(memory)

    def before(method: str, path: str) -> None:
        # Its pod is done as soon as it is there.
        if method == "POST" and path == MAPS:
            memory.over("count")
            memory.pods("count", phase="Succeeded")
        if path.endswith("/log"):
            raise Unreachable("no route to host")

    memory.before = before
    with pytest.raises(Unreachable):
        session.lacks(2)
    assert memory.names(JOBS) == []


# The count


COUNTED = "pacemark: data: {} pairs, 0 without index, tokenizer yes\n"


def count_of(memory: Memory, pairs: int) -> None:
    """Every count is done as soon as its pod has its script, and says so many."""

    def before(method: str, path: str) -> None:
        if method == "LIST" and path == PODS and "count" in memory.names(JOBS):
            memory.over("count")
            first, _ = memory.pods("count", phase="Succeeded")
            memory.logs[f"{PODS}/{first}/log"] = COUNTED.format(pairs).encode()

    memory.before = before


def counted(memory: Memory) -> Object:
    """The record of the last count."""
    (record,) = (item for path, item in memory.objects.items() if path.endswith("-counted"))
    return record


def test_the_count_of_another_session_is_read_and_left_to_it(memory: Memory) -> None:
    other = kubeapi.setup(memory)
    theirs = other._contract.stage_documents("count", "theirs")
    other._jobs.make(*theirs, 0.0)
    count_of(memory, 40)
    assert kubeapi.setup(memory).lacks(2) == []
    assert "count" in memory.names(JOBS)
    # One that has ended is in the way of the next, whoever made it.
    del memory.objects[f"{MAPS}/{counted(memory)['metadata']['name']}"]
    assert kubeapi.setup(memory).lacks(2) == []
    assert memory.names(JOBS) == []


def test_a_count_that_another_session_took_away_is_made_again(memory: Memory) -> None:
    other = kubeapi.setup(memory)
    made = other._jobs.make(*other._contract.stage_documents("count", "theirs"), 0.0)

    def before(method: str, path: str) -> None:
        if method == "LIST" and path == PODS:
            # They have read it before we could.
            memory.before = lambda method, path: None
            memory.delete(f"{JOBS}/{made['metadata']['name']}", made["metadata"]["uid"])
            count_of(memory, 40)

    memory.before = before
    assert kubeapi.setup(memory).lacks(2) == []
    assert [path for method, path in memory.asked if method == "POST"].count(JOBS) == 3
    assert memory.names(JOBS) == []


def test_a_new_count_takes_the_place_of_the_old_one(memory: Memory) -> None:
    count_of(memory, 5)
    session = kubeapi.setup(memory)
    assert session.lacks(2) == []
    more = kubeapi.setup(memory, chunks="4")
    count_of(memory, 40)
    assert more.lacks(2) == []
    record = counted(memory)
    assert record["data"]["said"] == COUNTED.format(40).strip()
    assert "deletionTimestamp" not in record["metadata"]


# Permissions, and pods that are not made or not placed


@pytest.mark.parametrize("verb", ["delete jobs", "list events"])
def test_every_verb_is_asked_for_before_anything_is_made(memory: Memory, verb: str) -> None:
    memory.denied = {verb}
    session = kubeapi.setup(memory)
    (lack,) = session.lacks(2)
    what, _, resource = verb.partition(" ")
    assert f"permission is missing in namespace runs: {what} {resource}" in lack
    assert "kubectl apply -f docs/rbac/pytorchjob.yaml" in lack
    assert {path for method, path in memory.asked if method == "POST"} == {REVIEWS}
    assert not session.would_help


JOB_RULES = (*check.RULES, *check.QUEUE_RULES, *JobSets.rules)


@pytest.mark.parametrize(
    ("rules", "file", "role"),
    [
        (RULES, "pytorchjob", "pacemark-data"),
        (JOB_RULES, "pytorchjob", "pacemark"),
        (JOB_RULES, "jobset", "pacemark"),
    ],
)
def test_what_is_asked_for_is_what_the_role_gives(rules: Rules, file: str, role: str) -> None:
    documents = yaml.safe_load_all((examples.ROOT / "docs" / "rbac" / f"{file}.yaml").read_text())
    (given,) = (one["rules"] for one in documents if one["metadata"]["name"] == role)
    stated = {(one["apiGroups"][0], one["resources"][0], tuple(one["verbs"])) for one in given}
    own = {one for one in stated if one[1] in ("jobsets", "pytorchjobs")}
    assert stated - own == set(rules)


def warn(memory: Memory, kind: str, name: str, reason: str, message: str) -> None:
    """An event, as a controller or a kubelet writes it."""
    memory.objects[f"{EVENTS}/{name}.18"] = {
        "metadata": {"name": f"{name}.18", "creationTimestamp": "2026-11-22T07:09:39Z"},
        "involvedObject": {"kind": kind, "name": name, "uid": "uid-1"},
        "type": "Warning",
        "reason": reason,
        "message": message,
    }


def refuse_pods(memory: Memory, session: Provisioner, stage: str) -> str:
    """As the Job controller tells of PodSecurity; its words."""
    message = f'Error creating: pods "{stage}-0" is forbidden: violates PodSecurity "restricted:latest": runAsNonRoot != true'
    warn(memory, "Job", f"{session.id}-{stage}", "FailedCreate", message)
    return f"FailedCreate: {message}"


def test_a_count_whose_pod_is_refused_is_told_at_once(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fixtures.backends.kubernetes.provision.jobs._EVENTS_SECONDS", 0.0)
    session = kubeapi.setup(memory)
    words = refuse_pods(memory, session, "count")
    (lack,) = session.lacks(2)
    assert f"could not be counted: {words}" in lack
    assert memory.names(JOBS) == []


@pytest.mark.parametrize(
    ("message", "autoscaled", "waits"),
    [
        ("0/128 nodes are available: 128 node(s) had untolerated taint(s).", False, False),
        ("0/128 nodes are available: 128 node(s) had untolerated taint(s).", True, True),
        ("0/128 nodes are available: pod has unbound immediate PersistentVolumeClaims.", False, True),
    ],
)
def test_a_count_that_finds_no_node_is_told_at_once_where_none_will_come(
    memory: Memory, monkeypatch: pytest.MonkeyPatch, message: str, autoscaled: bool, waits: bool
) -> None:
    monkeypatch.setattr("fixtures.backends.kubernetes.provision.jobs._UNPLACED_SECONDS", 0.0)
    for name in ("_PROBE_SECONDS", "_PROBE_SECONDS_AUTOSCALED"):
        monkeypatch.setattr(f"fixtures.backends.kubernetes.provision.data.{name}", 0.1)
    reason = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}

    def before(method: str, path: str) -> None:
        if (method, path) == ("LIST", PODS):
            memory.pods("count", phase="Pending", conditions=[reason])

    memory.before = before
    session = kubeapi.setup(memory)
    session._data._section = session._data._section.model_copy(update={"autoscaled": autoscaled})
    (lack,) = session.lacks(2)
    assert f"could not be counted: Unschedulable: {message}" in lack
    # It is looked at again where it is waited for, and then for what its pods said.
    assert (memory.asked.count(("LIST", PODS)) > 2) is waits
    assert memory.names(JOBS) == []


def test_a_stage_whose_pods_are_refused_is_hopeless(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    session, job = begun(memory)
    words = refuse_pods(memory, session, "download")
    # Just made, it is not asked about.
    assert not session.state(job).hopeless
    assert ("LIST", EVENTS) not in memory.asked
    monkeypatch.setattr("fixtures.backends.kubernetes.provision.jobs._EVENTS_SECONDS", 0.0)
    state = session.state(job)
    assert (state.phase, state.hopeless) == (Phase.QUEUED, True)
    assert state.reason == words


@pytest.mark.parametrize(("error", "hopeless"), [("429 Too Many Requests", False), ("not found", True)])
def test_a_stage_whose_image_an_old_kubelet_pulls_again_later_may_yet_begin(
    memory: Memory, error: str, hopeless: bool
) -> None:
    session, job = begun(memory)
    waiting = {"reason": "ImagePullBackOff", "message": 'Back-off pulling image "nemo"'}
    status = {"name": "download", "state": {"waiting": waiting}}
    first, _ = memory.pods("download", phase="Pending", containerStatuses=[status])
    warn(memory, "Pod", first, "Failed", f'Failed to pull image "nemo": {error}')
    state = session.state(job)
    assert (state.hopeless, error in state.reason) == (hopeless, True)


# Storage and data for every kind, tier and selection


DATA = read_setup(gpt3_setup.SOURCE / "setup.yaml").data


def made(**given: Any) -> list[dict[str, Any]]:
    """All documents of a site's set-up."""
    return gpt3_setup.documents(gpt3_setup.contract(**given))


def of_kind(found: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [document for document in found if document["kind"] == kind]


@pytest.mark.parametrize(
    ("tier", "size", "zone"), [("40", 480, "2"), ("125", 512, ""), ("250", 512, "1"), ("500", 512, "3")]
)
def test_every_tier_has_a_class_of_its_own_and_a_claim_of_that_class(tier: str, size: int, zone: str) -> None:
    """A region without zones is given none."""
    values = {"storage": "amlfs", "tier": tier, "capacity": str(size), "zone": zone, "claim": "ours"}
    found = made(values=values)
    (kind,), (claim,) = of_kind(found, "StorageClass"), of_kind(found, "PersistentVolumeClaim")
    name = f"pacemark-amlfs-{tier}" + (f"-zone-{zone}" if zone else "")
    assert kind["metadata"]["name"] == name == claim["spec"]["storageClassName"]
    assert kind["provisioner"] == "azurelustre.csi.azure.com"
    assert kind["parameters"]["sku-name"] == f"AMLFS-Durable-Premium-{tier}"
    assert kind["parameters"].get("zones", "") == zone
    assert (claim["metadata"]["name"], claim["metadata"]["namespace"]) == ("ours", "runs")
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]
    assert claim["spec"]["resources"]["requests"]["storage"] == f"{size}Ti"


def test_the_jobs_have_what_the_site_says_and_bounds_of_their_own() -> None:
    values = {"files": "59166", "parts": "600", "processes": "80", "token_secret": "mine"}
    values |= {"dataset": "pajama/all", "claim": "c"}
    contract = gpt3_setup.contract(
        values=values, node_selector={"agentpool": "gpu"}, environment={"HTTPS_PROXY": "http://proxy"}
    )
    jobs = of_kind(gpt3_setup.documents(contract), "Job")
    assert [job["metadata"]["name"] for job in jobs] == [
        f"{contract.id}-{stage}" for stage in ("download", "extract", "concatenate", "preprocess")
    ]
    for job in jobs:
        spec, pod = job["spec"], job["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        given = {entry["name"]: entry.get("value") for entry in container["env"]}
        assert (spec["completionMode"], spec["completions"], spec["parallelism"]) == ("Indexed", 4, 4)
        assert spec["activeDeadlineSeconds"] > 0 < spec["ttlSecondsAfterFinished"]
        assert pod["restartPolicy"] == "Never"
        assert pod["nodeSelector"] == {"agentpool": "gpu"}
        assert given["HTTPS_PROXY"] == "http://proxy"
        assert (given["FILES"], given["PARTS"], given["DATASET_PATH"]) == ("59166", "600", "pajama/all")
        volumes = {volume["name"]: volume for volume in pod["volumes"]}
        assert volumes["data-storage"]["persistentVolumeClaim"]["claimName"] == "c"
        assert volumes["scripts"]["configMap"]["name"] == job["metadata"]["name"]
        assert len(job["metadata"]["name"]) <= 57  # its pods have six characters more
    (token,) = (
        e for e in jobs[0]["spec"]["template"]["spec"]["containers"][0]["env"] if e["name"] == "HF_TOKEN"
    )
    assert token["valueFrom"]["secretKeyRef"] == {"name": "mine", "key": "token", "optional": True}
    assert jobs[3]["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] == "80"


def test_the_same_folder_of_the_same_claim_has_the_same_set_up_in_every_session() -> None:
    one = gpt3_setup.contract().id
    assert one == gpt3_setup.contract(values={"files": "59166"}).id
    others = [
        gpt3_setup.contract(values={"dataset": "other"}),
        gpt3_setup.contract(values={"claim": "other"}),
        gpt3_setup.contract(namespace="other"),
    ]
    assert len({one, *(other.id for other in others)}) == 4


LUSTRE = {"storage": "amlfs"}


@pytest.mark.parametrize(
    ("values", "words"),
    [
        # A file system is sold in steps of its tier.
        ({**LUSTRE, "tier": "40", "capacity": "16"}, "comes in steps of 48 TiB, and 16 is not a multiple"),
        ({**LUSTRE, "tier": "40", "capacity": "100"}, "set `capacity` to 96 or 144$"),
        ({**LUSTRE, "tier": "500", "capacity": "7"}, "set `capacity` to 4 or 8$"),
        ({"storage": "nfs"}, "`storage` is 'nfs'; known: amlfs, blob, none"),
        ({"files": "all"}, "give a number, such as 100"),
        ({"token_secret": "hf_Secret Value"}, "kubectl create secret generic hf-token --from-file"),
    ],
)
def test_a_wrong_value_is_told_with_what_to_give(values: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        made(values=values)


def test_a_data_set_that_leaves_nothing_to_train_on_is_refused_before_anything_is_made() -> None:
    section = gpt3_setup.section(values={"parts": "1"})
    # Nothing is asked of a cluster: there is none.
    session = Provisioner("lab", Api("lab", section), section, gpt3_setup.recipe())
    with pytest.raises(SubmitError, match=r"1 pairs - 15 for validation - 15 for test = -29"):
        session.provision("job")


# The data, and what its pods say


FOLDER = "slimpajama/preprocessed"
SITE = {"claim": "shared", "dataset": FOLDER, "files": "100", "parts": "72", "chunks": "15"}


def shortage(pairs: int, chunks: int = 15, *, lone: int = 0, tokenizer: str = "yes") -> str:
    """What is said of so many files; "" if they are enough."""
    there = {"pairs": str(pairs), "lone": str(lone), "tokenizer": tokenizer}
    return DATA.probe.broken({**SITE, "chunks": str(chunks), **there}) or ""


@pytest.mark.parametrize(
    ("said", "words"),
    [
        # The published sample: 100 files downloaded, one file for training made of them.
        (shortage(1), f"1 pairs - 15 for validation - 15 for test = -29, with chunks 15, in {FOLDER} on claim shared"),
        (shortage(1), "set `chunks` to at most 0"),
        (shortage(30), "set `chunks` to at most 14"),
        (shortage(0), f"there is no data set in {FOLDER} on claim shared"),
        (shortage(72, lone=1), f"1 of the .bin files in {FOLDER} on claim shared have no .idx"),
        (shortage(72, tokenizer="no"), f"{FOLDER}/../bpe/vocab.json"),
    ],
)  # fmt: skip
def test_a_data_set_that_is_not_enough_is_told_with_its_arithmetic(said: str, words: str) -> None:
    assert words in said


@pytest.mark.parametrize(("pairs", "chunks"), [(31, 15), (72, 15), (1, 0), (3, 1)])
def test_enough_is_enough(pairs: int, chunks: int) -> None:
    assert shortage(pairs, chunks) == ""


def told(said: list[str], stage: str = "extract", pattern: str = DATA.progress) -> str:
    return progress([text.encode() for text in said], pattern, stage, 4)


def line(worker: int, done: int) -> str:
    return f"pacemark: extract {worker} of 4: {done} of 25 files\n"


def test_progress_is_the_sum_of_the_workers_last_words() -> None:
    first = f"{line(0, 2)}noise\n{line(0, 9)}"
    assert told([first, line(1, 3)]) == "extract: 12 of about 100 files"
    assert told([first], stage="download") == "download: starting"
    assert told(["pacemark: extract 0 of 4: 2 of 2"]) == "extract: starting"
    # A pod that took a worker's place goes on counting where the first one was.
    every = [line(worker, 5) for worker in range(4)]
    assert told([*every, line(3, 25)]) == "extract: 40 of 100 files"
    assert told([]) == "extract: starting"


def test_a_class_of_our_name_with_other_parameters_is_another_one() -> None:
    (kind, _) = load_documents(gpt3_setup.SOURCE / "storage-amlfs.yaml")
    assert storage.differs(kind, {**kind, "metadata": {"uid": "1"}}) == ""
    other = {**kind, "parameters": {**kind["parameters"], "sku-name": "AMLFS-Durable-Premium-40"}}
    assert "AMLFS-Durable-Premium-40" in storage.differs(kind, other)


def test_permissions_are_asked_for_once(memory: Memory) -> None:
    count_of(memory, 40)
    session = kubeapi.setup(memory)
    assert session.lacks(2) == []
    asked = [path for _, path in memory.asked].count(REVIEWS)
    assert session.lacks(2) == []
    assert [path for _, path in memory.asked].count(REVIEWS) == asked == 11
