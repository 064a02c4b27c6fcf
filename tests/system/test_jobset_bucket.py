"""Steps from the bucket: the pod of rank 0 is gone before its log was read to the end. A real cluster, a real client."""

from __future__ import annotations

import ast
import json
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.lab.buckets import BucketLab
from tests.lab.k8s.cluster import KubernetesLab
from tests.lab.k8s.gate import Gate
from tests.system.kube import CASE, SELECT, gke_site, items, nothing_is_left, user
from tests.system.support import Run, finish, pacemark, signal_group, start, until


@pytest.fixture
def bucket(bucket_lab: BucketLab, namespace: str) -> str:
    """A bucket of the test's own."""
    bucket_lab.make(namespace)
    return namespace


class Trial:
    """A session that is held while its job goes on to the end and loses its pods; then it looks."""

    def __init__(
        self, lab: KubernetesLab, namespace: str, folder: Path, suite: str, gate: Gate, url: str
    ) -> None:
        values = {"image": "registry.test/nemo_workload:24.07", "bucket": namespace}
        recipes = {"llama3_gke": {"values": values}}
        kubeconfig = str(gate.kubeconfig(user(lab, namespace)))
        self.site = gke_site(lab, namespace, folder, kubeconfig=kubeconfig, recipes=recipes)
        self.select = (suite, *SELECT)
        self.results = folder / "results"
        self.environment = {"STORAGE_EMULATOR_HOST": url}
        self.said = b""
        self._held = folder / "held"
        self._lab, self._namespace, self._gate = lab, namespace, gate

    def begin(self, environment: dict[str, str] | None = None, **knobs: Any) -> None:
        """Start the session, and hold it once it has read some steps; the job waits meanwhile."""
        self._held.touch()
        self._lab.set(self._namespace, held_at=10, held_by=str(self._held), **knobs)
        env = {**self.environment, **(environment or {})}
        self.process = start(*self.select, "--site", str(self.site), results=self.results, env=env)
        log = self.results / "latest" / CASE / "log.txt"
        until(lambda: log.exists() and log.read_text().count(" global_step : ") > 5, "the first steps")
        signal_group(self.process, signal.SIGSTOP)
        # The system would keep for it what comes by the connection that follows the log.
        self._gate.cut()

    def lose_the_pod(self) -> str:
        """Let the job go on to its end, and its pod of rank 0 go; returns where NeMo has put its file."""
        self._held.unlink()
        until(lambda: "terminalState" in self._jobset().get("status", {}), "the job's end")
        (pod,) = [pod for pod in items(self._lab, self._namespace, "pod") if "-workload-0-0-" in _name(pod)]
        # What tells the file of an earlier life from that of this one.
        assert pod["status"]["startTime"]
        self.said = next(
            (self._lab.root / "pods" / self._namespace / pod["metadata"]["uid"]).glob("workload.0.log")
        ).read_bytes()
        path = f"/api/v1/namespaces/{self._namespace}/pods"
        self._lab.api.delete(f"{path}/{_name(pod)}")
        until(
            lambda: _name(pod) not in map(_name, items(self._lab, self._namespace, "pod")), "the pod is gone"
        )
        return (
            f"gs://{self._namespace}/nemo-experiments/{_name(self._jobset())}/dllogger/rank-0/dllogger.json"
        )

    def go_on(self) -> Run:
        os.killpg(self.process.pid, signal.SIGCONT)
        return finish(self.process, self.results)

    def kill(self) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.communicate()

    def resume(self) -> Run:
        arguments = (*self.select, "--resume", "latest", "--site", str(self.site))
        return pacemark(*arguments, results=self.results, env=self.environment)

    def _jobset(self) -> dict[str, Any]:
        (jobset,) = items(self._lab, self._namespace, "jobset")
        return jobset


def _name(item: dict[str, Any]) -> str:
    return str(item["metadata"]["name"])


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


@pytest.fixture
def trial(
    kubernetes_lab: KubernetesLab,
    namespace: str,
    tmp_path: Path,
    small: str,
    gate: Gate,
    bucket_lab: BucketLab,
) -> Trial:
    return Trial(kubernetes_lab, namespace, tmp_path, small, gate, bucket_lab.url)


@pytest.mark.parametrize(("code", "state"), [(0, "Completed"), (1, "Failed")])
def test_the_bucket_has_what_a_pod_that_is_gone_can_no_longer_tell(
    kubernetes_lab: KubernetesLab,
    namespace: str,
    bucket: str,
    bucket_lab: BucketLab,
    trial: Trial,
    code: int,
    state: str,
) -> None:
    trial.begin(exit_code_after=code)
    url = trial.lose_the_pod()
    written = in_the_bucket(trial.said)
    bucket_lab.put(url, written)
    result = trial.go_on()
    case = result.case(CASE)
    assert (result.status, case["verdict"]) == (0, "passed"), result.out
    assert (case["job"]["state"], case["job"]["attempts"]) == (state, 1)
    remark = next(remark for remark in case["remarks"] if "gs://" in remark)
    # The pod or, while its end has not been heard of, its log.
    assert " is gone" in remark
    assert f"the steps were read from {url}" in remark
    assert remark in result.out
    folder = result.folder / CASE
    assert (folder / "log.txt").read_bytes() == written
    assert 5 < (folder / "log.own.txt").read_text().count(" global_step : ") < 50
    assert len((folder / "steps.csv").read_text().splitlines()) == 51
    nothing_is_left(kubernetes_lab, namespace)


@pytest.mark.parametrize(("code", "words"), [(0, "to 49 are missing: "), (1, "ended Failed")])
def test_without_the_file_it_is_infrastructure_as_ever_and_says_what_was_tried(
    kubernetes_lab: KubernetesLab, namespace: str, bucket: str, trial: Trial, code: int, words: str
) -> None:
    trial.begin(exit_code_after=code)
    url = trial.lose_the_pod()
    result = trial.go_on()
    case = result.case(CASE)
    assert case["verdict"] == "infrastructure", result.out
    assert words in case["headline"]
    (remark,) = case["remarks"]
    assert f"{url} cannot be read instead: there is no such object" in remark
    nothing_is_left(kubernetes_lab, namespace)


def test_what_spoilt_the_run_counts_although_only_the_pod_said_it(
    kubernetes_lab: KubernetesLab, namespace: str, bucket: str, bucket_lab: BucketLab, trial: Trial
) -> None:
    trial.begin(socket_fallback=True)
    bucket_lab.put(trial.lose_the_pod(), in_the_bucket(trial.said))
    result = trial.go_on()
    assert result.case(CASE)["verdict"] == "invalid run", result.out
    assert "fell back to TCP sockets" in result.case(CASE)["headline"]


def test_a_session_that_is_resumed_when_nothing_is_left_of_the_job_reads_the_bucket(
    kubernetes_lab: KubernetesLab, namespace: str, bucket: str, bucket_lab: BucketLab, trial: Trial
) -> None:
    trial.begin()
    trial.kill()
    bucket_lab.put(trial.lose_the_pod(), in_the_bucket(trial.said))
    kubernetes_lab.clear(namespace)
    result = trial.resume()
    case = result.case(CASE)
    assert (result.status, case["verdict"]) == (0, "passed"), result.out
    assert any(
        remark.startswith("no pod that printed steps is left; the steps") for remark in case["remarks"]
    )
    assert " global_step : " in (result.folder / CASE / "log.own.txt").read_text()


def test_a_resumed_session_that_finds_nothing_anywhere_has_lost_the_case(
    kubernetes_lab: KubernetesLab, namespace: str, bucket: str, trial: Trial
) -> None:
    trial.begin()
    trial.kill()
    trial.lose_the_pod()
    kubernetes_lab.clear(namespace)
    result = trial.resume()
    case = result.case(CASE)
    assert case["verdict"] == "lost", result.out
    assert any("there is no such object" in remark for remark in case["remarks"])


def test_without_the_package_it_says_what_to_install(
    kubernetes_lab: KubernetesLab, namespace: str, trial: Trial, tmp_path: Path
) -> None:
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    # Python reads this before anything else.
    (hidden / "sitecustomize.py").write_text("import sys\nsys.modules['google.cloud.storage'] = None\n")
    trial.begin({"PYTHONPATH": str(hidden)})
    trial.lose_the_pod()
    result = trial.go_on()
    case = result.case(CASE)
    assert case["verdict"] == "infrastructure", result.out
    (remark,) = case["remarks"]
    assert "google-cloud-storage is not installed" in remark
    assert "suites/llama3_gke/requirements.txt" in remark
    assert "Traceback" not in result.out


def test_a_bucket_that_nobody_may_read_is_told(
    kubernetes_lab: KubernetesLab, namespace: str, tmp_path: Path, small: str, gate: Gate
) -> None:
    with refusing() as url:
        trial = Trial(kubernetes_lab, namespace, tmp_path, small, gate, url)
        trial.begin()
        trial.lose_the_pod()
        result = trial.go_on()
    case = result.case(CASE)
    assert case["verdict"] == "infrastructure", result.out
    (remark,) = case["remarks"]
    assert "403: " in remark
    assert "does not have storage.objects.get access" in remark
    assert "roles/storage.objectViewer" in remark


def test_a_bucket_that_goes_away_is_told(
    kubernetes_lab: KubernetesLab, namespace: str, bucket: str, bucket_lab: BucketLab, trial: Trial
) -> None:
    trial.begin()
    trial.lose_the_pod()
    bucket_lab.remove(bucket)
    result = trial.go_on()
    assert f"there is no bucket {bucket}" in result.case(CASE)["remarks"][0], result.out


def test_a_bucket_that_is_not_there_is_missed_before_anything_is_sent(
    kubernetes_lab: KubernetesLab,
    namespace: str,
    bucket_lab: BucketLab,
    gate: Gate,
    small: str,
    tmp_path: Path,
) -> None:
    kubernetes_lab.set(namespace)
    trial = Trial(kubernetes_lab, namespace, tmp_path, small, gate, bucket_lab.url)
    arguments = (*trial.select, "--site", str(trial.site))
    result = pacemark(*arguments, results=trial.results, env=trial.environment)
    headline = result.case(CASE)["headline"]
    assert f"Cloud Storage has no bucket {namespace}" in headline, result.out
    assert f"gcloud storage buckets create gs://{namespace}" in headline
    assert items(kubernetes_lab, namespace, "jobset") == []


def test_a_bucket_that_was_downloaded_can_be_replayed(
    kubernetes_lab: KubernetesLab, namespace: str, bucket: str, trial: Trial, tmp_path: Path
) -> None:
    trial.begin()
    place = tmp_path / trial.lose_the_pod().removeprefix("gs://")
    trial.kill()
    place.parent.mkdir(parents=True)
    place.write_bytes(in_the_bucket(trial.said))
    for rank in (1, 2):
        # Every node has its file, and only rank 0 writes.
        other = place.parents[1] / f"rank-{rank}" / place.name
        other.parent.mkdir()
        other.touch()
    source = ("--backend", "replay", "--from", str(tmp_path / bucket))
    result = pacemark(*trial.select, *source, results=tmp_path / "replayed")
    assert result.case(CASE)["verdict"] == "passed", result.out
    assert result.case(CASE)["job"]["id"] == place.parents[2].name


@contextmanager
def refusing() -> Iterator[str]:
    """What Cloud Storage answers to somebody who may not: no emulator asks who one is."""

    class Refusing(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            said = "pacemark@example.test does not have storage.objects.get access to the Google Cloud Storage object."
            reasons = [{"message": said, "domain": "global", "reason": "forbidden"}]
            body = json.dumps({"error": {"code": 403, "message": said, "errors": reasons}}).encode()
            self.send_response(403)
            self.send_header("Content-Type", "application/json; charset=UTF-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: object) -> None:
            """Not into the tests' output."""

    server = HTTPServer(("127.0.0.1", 0), Refusing)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
