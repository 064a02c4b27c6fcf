"""Steps from the bucket, where the pod of rank 0 is gone before its log was read to the end, and the bucket through its own client."""

from __future__ import annotations

import ast
import importlib
import json
import signal
import socket
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from fixtures.backends.base import LogCopy, LogPlace
from fixtures.backends.kubernetes import gcs
from fixtures.backends.kubernetes.facts import Pod
from fixtures.backends.kubernetes.gcs import Storage, Unreadable, fetch
from tests.lab.buckets import BucketLab
from tests.lab.k8s.cluster import KubernetesLab
from tests.lab.k8s.gate import Gate
from tests.system.kube import CASE, user
from tests.system.kube_trial import KubeTrial, MakeTrial
from tests.system.support import GUARD, NO_STORAGE, until

NOBODY = Path("requirements.txt")


@pytest.fixture
def bucket(bucket_lab: BucketLab, namespace: str) -> str:
    """A bucket of the test's own."""
    bucket_lab.make(namespace)
    return namespace


@pytest.fixture
def trial(kubernetes_lab: KubernetesLab, namespace: str, gate: Gate, kube_trial: MakeTrial) -> KubeTrial:
    """A session by way of the gate, with a bucket of its namespace's name."""
    values = {"image": "registry.test/nemo_workload:24.07", "bucket": namespace}
    kubeconfig = str(gate.kubeconfig(user(kubernetes_lab, namespace)))
    return kube_trial(keys={"kubeconfig": kubeconfig, "recipes": {"llama3_gke": {"values": values}}})


def begin(trial: KubeTrial, gate: Gate, storage: BucketLab, **knobs: int) -> None:
    """Start the session, and stop it once it has read some steps; the job waits meanwhile."""
    trial.knobs |= knobs
    trial.hold(10).start(env={"STORAGE_EMULATOR_HOST": storage.url}).until_steps(6)
    trial.signal(signal.SIGSTOP)
    # The system would keep for it what comes by the connection that follows the log.
    gate.cut()


def lose_the_pod(trial: KubeTrial) -> tuple[str, bytes]:
    """Let the job go on to its end, and its pod of rank 0 go: where NeMo has put its file, and what the pod said."""
    trial.let_go()
    until(trial.jobset_ended, "the job's end")
    pod = trial.pod()
    # What tells the file of an earlier life from that of this one.
    assert pod["status"]["startTime"]
    said, name = trial.lab.log_of(pod).read_bytes(), pod["metadata"]["name"]
    trial.lab.api.delete(f"/api/v1/namespaces/{trial.namespace}/pods/{name}")
    until(lambda: name not in [each["metadata"]["name"] for each in trial.items("pod")], "the pod is gone")
    job = trial.jobset()["metadata"]["name"]
    return f"gs://{trial.namespace}/nemo-experiments/{job}/dllogger/rank-0/dllogger.json", said


def in_the_bucket(said: bytes) -> bytes:
    """The file that DLLogger writes besides what it prints: the same records, as JSON."""
    records = []
    for line in said.decode().splitlines():
        _, found, record = line.partition(" stdout F DLL ")
        if not found:
            continue
        when, _, rest = record.partition(" - ")
        step, _, values = rest.partition(" ")
        pairs = (pair.partition(" : ") for pair in values.strip().split("  "))
        data = {name: _value(value) for name, _, value in pairs}
        number = int(step) if step.isdigit() else step
        records.append({"datetime": when, "elapsedtime": "1.5", "type": "LOG", "step": number, "data": data})
    return "".join(f"DLLL {json.dumps(record)}\n" for record in records).encode()


def _value(text: str) -> object:
    try:
        return ast.literal_eval(text.strip())
    except (ValueError, SyntaxError):
        return text.strip()


def test_the_bucket_has_what_a_pod_that_is_gone_can_no_longer_tell(
    bucket: str, bucket_lab: BucketLab, trial: KubeTrial, gate: Gate
) -> None:
    begin(trial, gate, bucket_lab, exit_code_after=1)
    url, said = lose_the_pod(trial)
    written = in_the_bucket(said)
    bucket_lab.put(url, written)
    trial.signal(signal.SIGCONT)
    result = trial.end()
    case = result.case(CASE)
    assert (result.status, case["verdict"]) == (0, "passed"), result.out
    assert (case["job"]["state"], case["job"]["attempts"]) == ("Failed", 1)
    remark = next(remark for remark in case["remarks"] if "gs://" in remark)
    # The pod or, while its end has not been heard of, its log.
    assert " is gone" in remark
    assert f"the steps were read from {url}" in remark
    assert remark in result.out
    folder = result.folder / CASE
    assert (folder / "log.txt").read_bytes() == written
    assert 5 < (folder / "log.own.txt").read_text().count(" global_step : ") < 50
    assert len((folder / "steps.csv").read_text().splitlines()) == 51


def test_without_the_file_it_is_infrastructure_as_ever_and_says_what_was_tried(
    bucket: str, bucket_lab: BucketLab, trial: KubeTrial, gate: Gate
) -> None:
    begin(trial, gate, bucket_lab)
    url, _ = lose_the_pod(trial)
    trial.signal(signal.SIGCONT)
    result = trial.end()
    case = result.case(CASE)
    assert case["verdict"] == "infrastructure", result.out
    assert "to 49 are missing: " in case["headline"]
    (remark,) = case["remarks"]
    assert f"{url} cannot be read instead: there is no such object" in remark


def test_a_session_that_is_resumed_when_nothing_is_left_of_the_job_reads_the_bucket(
    bucket: str, bucket_lab: BucketLab, trial: KubeTrial, gate: Gate
) -> None:
    begin(trial, gate, bucket_lab)
    trial.kill()
    url, said = lose_the_pod(trial)
    bucket_lab.put(url, in_the_bucket(said))
    trial.lab.clear(trial.namespace)
    result = trial.start("--resume", "latest", env={"STORAGE_EMULATOR_HOST": bucket_lab.url}).end()
    case = result.case(CASE)
    assert (result.status, case["verdict"]) == (0, "passed"), result.out
    words = "no pod that printed steps is left; the steps"
    assert any(remark.startswith(words) for remark in case["remarks"])
    assert " global_step : " in (result.folder / CASE / "log.own.txt").read_text()


def test_a_bucket_that_is_not_there_is_missed_before_anything_is_sent(
    bucket_lab: BucketLab, trial: KubeTrial
) -> None:
    result = trial.start(env={"STORAGE_EMULATOR_HOST": bucket_lab.url}).end()
    headline = result.case(CASE)["headline"]
    assert f"Cloud Storage has no bucket {trial.namespace}" in headline, result.out
    assert f"gcloud storage buckets create gs://{trial.namespace}" in headline
    assert trial.made() == []


@pytest.fixture(scope="module", autouse=True)
def _imported() -> None:
    """What the first read imports takes longer than an answer may."""
    for name in ("google.auth", "google.api_core.exceptions", "google.cloud.storage"):
        importlib.import_module(name)


@pytest.fixture
def storage(bucket_lab: BucketLab, monkeypatch: pytest.MonkeyPatch) -> Storage:
    for name, bound in (("_ANSWER_SECONDS", 300.0), ("_CHECK_SECONDS", 300.0), ("_TIMEOUT", (300.0, 300.0))):
        monkeypatch.setattr(gcs, name, bound)
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", bucket_lab.url)
    bucket_lab.make("read")
    return Storage(NOBODY)


def test_an_object_is_read_whole_with_the_time_of_its_last_writing(
    storage: Storage, bucket_lab: BucketLab
) -> None:
    url = "gs://read/some folder/näme.json"
    bucket_lab.put(url, b"old")
    first = storage.read(url)
    assert first.data == b"old"
    bucket_lab.put(url, b"new\n" * 100_000)
    second = storage.read(url)
    assert second.data == b"new\n" * 100_000
    assert first.at < second.at
    assert abs(second.at - datetime.now(UTC)) < timedelta(minutes=1)


def test_what_is_missing_is_named(storage: Storage) -> None:
    with pytest.raises(Unreadable, match="there is no such object"):
        storage.read("gs://read/other")
    with pytest.raises(Unreadable, match="there is no bucket nowhere"):
        storage.read("gs://nowhere/other")
    assert (storage.lacks("nowhere"), storage.lacks("read")) == (True, False)


def test_what_an_earlier_life_wrote_is_not_the_last_ones(storage: Storage, bucket_lab: BucketLab) -> None:
    bucket_lab.put("gs://read/life", b"steps")
    copy = LogCopy(LogPlace(), "gs://read/life", "the pod is gone")

    def of(began: datetime) -> LogCopy:
        return fetch(storage, copy, Pod({"status": {"startTime": f"{began:%Y-%m-%dT%H:%M:%SZ}"}}))

    later = of(datetime.now(UTC) + timedelta(minutes=1))
    assert later.data is None
    assert "before the job's last start at" in later.trouble
    assert of(datetime.now(UTC) - timedelta(minutes=1)).data == b"steps"
    assert fetch(storage, copy, None).data == b"steps"


def test_nobody_there_is_a_reason_and_lacks_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", NO_STORAGE)
    with pytest.raises(Unreadable, match="Connection refused"):
        Storage(NOBODY).read("gs://a/b")
    assert not Storage(NOBODY).lacks("a")


def test_one_who_never_answers_is_waited_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gcs, "_ANSWER_SECONDS", 1.0)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", f"http://127.0.0.1:{silent.getsockname()[1]}")
        storage = Storage(NOBODY)
        for _ in range(20):
            with pytest.raises(Unreadable, match="no answer within 1 s"):
                storage.read("gs://a/b")
        # It may connect only after it was given up.
        silent.settimeout(GUARD)
        silent.accept()[0].close()
        silent.setblocking(False)
        # Whoever waits each time connects each time.
        with pytest.raises(BlockingIOError):
            silent.accept()


def test_without_credentials_it_says_how_to_get_some(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("STORAGE_EMULATOR_HOST", "GOOGLE_APPLICATION_CREDENTIALS"):
        monkeypatch.delenv(name, raising=False)
    # Nobody's gcloud, and no look for a metadata server.
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    with pytest.raises(Unreadable, match="gcloud auth application-default login"):
        Storage(NOBODY).read("gs://a/b")
    assert not Storage(NOBODY).lacks("a")
