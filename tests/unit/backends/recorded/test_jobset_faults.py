"""The job, its queue, its nodes and its pods, each broken as it happens on a cluster: sessions as in `test_jobset`."""

from __future__ import annotations

import re
from typing import Any

from tests.lab.k8s.objects import NO_IMAGE, NO_MOUNT
from tests.recordings import changes
from tests.recordings.trials import Begin, JobsetTrial, infrastructure
from tests.system.kube import CASE
from tests.system.kube_trial import KubeTrial

QUEUE = {"queue": "a3-mega"}
EMPTY = {"node_selector": {"cloud.google.com/gke-nodepool": "none-yet"}}
HOPELESS = {"hopeless_seconds": 3.0}


def image(name: str) -> dict[str, Any]:
    return {"recipes": {"llama3_gke": {"values": {"image": name, "bucket": "lab-bucket"}}}}


def judged_by_its_last_attempt(trial: JobsetTrial) -> None:
    result = trial.end()
    case = result.case(CASE)
    # The first life was too slow.
    assert case["verdict"] == "passed", result.out
    assert "the job was started 2 times; judged by its last attempt" in case["remarks"]
    assert (result.folder / CASE / "log.attempt-1.txt").exists()


# The queue


def test_a_quota_that_is_too_small_for_ever(begin: Begin) -> None:
    trial = begin(keys=QUEUE, limits=HOPELESS)
    trial.change(lambda real: real.queue(16))
    headline = infrastructure(trial.start())
    assert "it can never start; the queue says: " in headline
    assert "maximum capacity" in headline
    assert headline.endswith("; cancelled")


def test_a_workload_that_is_evicted_begins_again_and_its_last_life_is_judged(begin: Begin) -> None:
    # Its workload is deactivated for a while, and a workload that stays so is given up.
    trial = begin(keys=QUEUE, pace=1.3, limits={"hopeless_seconds": 300}).hold(10)
    trial.change(lambda real: real.queue(32))
    trial.start()
    trial.until_steps(5)
    trial.change(changes.evict_workload)
    judged_by_its_last_attempt(trial)


# Nodes and pods


def test_pods_that_the_cluster_does_not_make(begin: Begin) -> None:
    trial = begin(limits=HOPELESS)
    quota = {"spec": {"hard": {"requests.nvidia.com/gpu": "16"}}, "metadata": {"name": "gpus"}}
    trial.change(lambda real: changes.create(real, "ResourceQuota", quota))
    # The API server puts "(combined from similar events): " before what was said often. On a busy machine not all have a node yet.
    said = r"[0-2] of 4 pods have a node: FailedCreate: .*Error creating: pods .* is forbidden: exceeded quota: gpus, requested: "
    assert re.search(f"it can never start; the queue says: {said}", infrastructure(trial.start()))
    trial.change(changes.require_few_lists_of_events)


def test_pods_that_pod_security_forbids(begin: Begin) -> None:
    trial = begin(limits=HOPELESS)
    labels = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}
    trial.change(lambda real: real.lab.api.merge(f"/api/v1/namespaces/{real.namespace}", labels))
    headline = infrastructure(trial.start())
    assert "it can never start; the queue says: 0 of 4 pods have a node: FailedCreate: " in headline
    assert 'violates PodSecurity "restricted:latest": ' in headline


def test_a_pool_at_zero_is_refused(begin: Begin) -> None:
    headline = infrastructure(begin(keys=EMPTY).start())
    assert "4 nodes of 8 allocatable nvidia.com/gpu are needed" in headline


def test_a_pool_that_is_scaled_from_zero_is_waited_for(begin: Begin) -> None:
    headline = infrastructure(
        begin(keys={**EMPTY, "autoscaled": True}, limits={"queue_minutes": 0.1}).start()
    )
    assert "still queued after 0.1 minutes; the queue says: 0 of 4 pods have a node: " in headline


def test_a_mount_that_the_storage_denies(begin: Begin) -> None:
    trial = begin(keys=image(NO_MOUNT), limits=HOPELESS).start()
    trial.change(changes.fail_mount)
    said = (
        rf"it can never start; the cluster says: 0 of 4 pods run: pod pm-\S+: FailedMount: {changes.DENIED}"
    )
    assert re.search(said, infrastructure(trial))


def test_an_image_that_cannot_be_pulled(begin: Begin) -> None:
    headline = infrastructure(begin(keys=image(NO_IMAGE), limits=HOPELESS).start())
    # On a busy machine some pods have no node yet.
    assert re.search(
        r"it can never start; the (cluster|queue) says: (\d+ of 4 pods have a node: )?pod pm-", headline
    )
    assert f'ErrImagePull: failed to pull and unpack image "{NO_IMAGE}": not found' in headline


def test_a_node_that_fails_is_named(begin: Begin) -> None:
    trial = begin(hang_at=5).start()
    trial.until_steps(3)
    trial.change(lambda real: changes.taint(real, "node.kubernetes.io/out-of-service"))
    assert re.search(r"pod pm-\S+-3-\S+ on gke-\S+ .*DeletionByTaintManager", infrastructure(trial))


def test_a_node_that_dies_is_named(begin: Begin) -> None:
    """Its kubelet ends no pod any more. Meanwhile the Job does not fail."""
    trial = begin(hang_at=5, limits=HOPELESS).start()
    trial.until_steps(3)
    trial.change(changes.keep_pod)
    trial.change(lambda real: changes.taint(real, "lab/unreachable"))
    trial.until_said("it can never start; the queue says: 0 of 4 pods have a node: pod pm-")
    trial.change(changes.let_pod_go)
    headline = infrastructure(trial)
    assert re.search(
        r"0 of 4 pods have a node: pod pm-\S+-3-\S+ on gke-\S+ \(DeletionByTaintManager", headline
    )


def test_a_pod_that_somebody_evicts_is_named(begin: Begin) -> None:
    trial = begin(hang_at=5).start()
    trial.until_steps(3)
    trial.change(changes.evict)
    assert re.search(r"pod pm-\S+-3-\S+ on gke-\S+ .*EvictionByEvictionAPI", infrastructure(trial))


def test_a_pod_that_somebody_deletes_is_named(begin: Begin) -> None:
    trial = begin(hang_at=5).start()
    trial.until_steps(3)
    trial.change(lambda real: real.lab.api.delete(changes.pod_path(real)))
    assert re.search(r"pod pm-\S+-3-\S+ on gke-\S+ .*it was deleted", infrastructure(trial))


def test_nobody_restarts_a_jobset(begin: Begin) -> None:
    """Whoever deletes the Job of a JobSet gets another one, whose steps begin again."""
    trial = begin(pace=1.3).hold(10).start()
    trial.until_steps(3)
    trial.change(changes.delete_job)
    judged_by_its_last_attempt(trial)


def test_a_sidecar_that_never_ends_holds_up_no_whole_run(begin: Begin) -> None:
    case = beside_a_sidecar(begin)
    assert case["verdict"] == "passed"
    assert any("the sidecar istio-proxy still runs" in remark for remark in case["remarks"])


def test_a_sidecar_that_never_ends_holds_up_no_crash(begin: Begin) -> None:
    headline = beside_a_sidecar(begin, crash_at=7)["headline"]
    assert re.search(r"pod pm-\S+ on gke-\S+: container workload ended with exit code 1 ", headline)
    assert "the sidecar istio-proxy still runs" in headline


def beside_a_sidecar(begin: Begin, **knobs: int) -> dict[str, Any]:
    trial = begin(**knobs)
    trial.change(changes.add_sidecars)
    return trial.start().end().case(CASE)


def test_a_jobset_that_a_finalizer_keeps_is_told(begin: Begin) -> None:
    trial = begin(pace=1.3, hang_at=30, limits={"cancel_seconds": 10}).hold(10).start("--give-up-after", "20")
    trial.until_steps(5)
    trial.change(lambda real: changes.merge_jobset(real, {"metadata": {"finalizers": ["site/audit"]}}))
    trial.change(KubeTrial.let_go)
    trial.until_said("stays until its finalizers are removed: site/audit")
    trial.until_said("NOT confirmed (it stays until its finalizers are removed: site/audit)")
    trial.change(lambda real: changes.merge_jobset(real, {"metadata": {"finalizers": None}}))
    assert trial.end().case(CASE)["verdict"] == "too slow"


# The job


def test_the_cluster_itself_ends_a_job_at_its_limit(begin: Begin) -> None:
    # The cluster counts both from the beginning; on a busy machine the session's own bound for the queue must not come first.
    headline = infrastructure(
        begin(hang_at=5, keys={"time_limit_minutes": 0.05}, limits={"queue_minutes": 1}).start()
    )
    assert "DeadlineExceeded" in headline
