"""What is recorded of a cluster, without secrets, and what is played back of it."""

from __future__ import annotations

import json
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fixtures.backends.kubernetes import objects
from fixtures.backends.kubernetes.api import Api, Refused
from fixtures.backends.kubernetes.section import Kubernetes
from fixtures.backends.recorded import NotRecorded, Recording
from fixtures.backends.recorder import Recorder
from fixtures.backends.shell import Answer
from fixtures.backends.ssh.connection import SshConnection
from fixtures.backends.ssh.endpoint import Ssh
from plugins.base.errors import ConfigError, Unreachable
from tests.recordings import meaning
from tests.system.kube import SELECT, gke_site
from tests.system.support import pacemark
from tests.unit.kubeapi import Server, kubeconfig

RUN, LATER = "20261121-094226-2019c4a7", "20270101-000000-00000000"
SECRET = "hf_abcdefghijklmnop"
PODS = "/api/v1/namespaces/runs/pods"


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.close()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "recording.jsonl"


@pytest.fixture
def real(server: Server, file: Path, tmp_path: Path) -> Iterator[Api]:
    """The API server, whose answers are recorded."""
    section = Kubernetes(gpu="h100", kubeconfig=str(kubeconfig(tmp_path / "config", server.url)))
    made = Api("lab", section)
    made.use(Recorder(file, RUN, {"HF_TOKEN": SECRET}).api("lab", section))
    yield made
    made.close()


def played(file: Path, run: str = RUN) -> Api:
    section = Kubernetes(gpu="h100")
    made = Api("lab", section)
    made.use(Recording(file, run).api("lab", section))
    return made


def pod(name: str, **fields: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "uid": "1", **fields.pop("metadata", {})},
        **fields,
    }


def answer(server: Server, document: Any, status: int = 200) -> None:
    server.answer = lambda _: (status, json.dumps(document).encode())


def test_a_question_is_answered_as_it_was(server: Server, real: Api, file: Path) -> None:
    answer(server, {"items": [pod("one")]})
    recorded = real.get(PODS, labelSelector="a=b")
    server.close()
    assert played(file).get(PODS, labelSelector="a=b") == recorded
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_refusal_is_played_back_as_a_refusal(server: Server, real: Api, file: Path) -> None:
    answer(server, {"kind": "Status", "reason": "Forbidden", "message": "no list of pods"}, 403)
    with pytest.raises(Refused, match="403: no list of pods") as refused:
        real.get(PODS)
    with pytest.raises(Refused) as again:
        played(file).get(PODS)
    assert str(again.value) == str(refused.value)


def test_a_server_that_was_never_there_is_not_there(server: Server, real: Api, file: Path) -> None:
    server.close()
    with pytest.raises(Unreachable) as error:
        real.get(PODS)
    with pytest.raises(Unreachable) as again:
        played(file).get(PODS)
    assert str(again.value) == str(error.value)


@pytest.mark.parametrize("asked", [{"path": f"{PODS}s"}, {"path": PODS, "labelSelector": "a=c"}])
def test_what_was_never_asked_is_an_error(
    server: Server, real: Api, file: Path, asked: dict[str, str]
) -> None:
    real.get(PODS, labelSelector="a=b")
    with pytest.raises(NotRecorded, match="the recording has no answer to GET /api/v1/namespaces/runs/pods"):
        played(file).get(**asked)


def test_an_object_is_made_as_it_was_or_not_at_all(server: Server, real: Api, file: Path) -> None:
    answer(server, pod("one"), 201)
    real.post(PODS, {"spec": {"gpus": 8}})
    api = played(file)
    with pytest.raises(NotRecorded):
        api.post(PODS, {"spec": {"gpus": 4}})
    assert api.post(PODS, {"spec": {"gpus": 8}})["metadata"]["name"] == "one"


def test_nothing_is_told_before_the_change_that_it_followed(server: Server, real: Api, file: Path) -> None:
    names = ["before", "before", "after", "later"]
    answers = iter(names)
    server.answer = lambda _: (200, json.dumps({"items": [pod(next(answers))]}).encode())
    server.answers["DELETE"] = 200, json.dumps(pod("one")).encode()
    for name in names:
        if name == "after":
            real.delete(f"{PODS}/one", "1")
        real.get(PODS)
    api, told = played(file), list[str]()
    for change in (False, False, False, True, False, False):
        if change:
            api.delete(f"{PODS}/one", "1")
        told.append(api.get(PODS)["items"][0]["metadata"]["name"])
    assert told == ["before", "before", "before", "after", "later", "later"]


def test_a_session_that_forgets_a_change_is_told(server: Server, real: Api, file: Path) -> None:
    server.answers["DELETE"] = 200, json.dumps(pod("one")).encode()
    real.delete(f"{PODS}/one", "1")
    assert [line["key"] for line in Recording(file, RUN).missing] == [f"{PODS}/one"]


def test_an_answer_that_stays_the_same_is_written_once(server: Server, real: Api, file: Path) -> None:
    for _ in range(5):
        real.get(PODS)
    assert len(file.read_text().splitlines()) == 2


def test_names_are_those_of_the_run_that_asks(server: Server, real: Api, file: Path) -> None:
    job, later = (f"pacemark-{run}.llama3-8b" for run in (RUN, LATER))
    name, renamed = (objects.object_name(each, "8b") for each in (job, later))
    answer(server, pod(name, metadata={"annotations": {objects.JOB: job}}))
    real.find(f"{PODS}/{name}")
    found = played(file, LATER).find(f"{PODS}/{renamed}")
    assert found is not None
    assert (found["metadata"]["name"], objects.made_by(found)) == (renamed, later)


def test_no_secret_is_recorded(server: Server, real: Api, file: Path) -> None:
    env = [{"name": "SITE_PASSWORD", "value": "a password of the site's own"}, {"name": "A", "value": "B"}]
    answer(server, pod("one", spec={"containers": [{"name": "c", "env": env}]}, status={"message": SECRET}))
    real.find(f"{PODS}/one")
    text = file.read_text()
    assert "<HF_TOKEN>" in text
    assert "<SITE_PASSWORD>" in text
    assert [word for word in (SECRET, "a password", "ONE", "Bearer") if word in text] == []


def test_a_login_node_answers_scripts(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = {"squeue": Answer(0, f"1|RUNNING|{SECRET}\n", "a warning\n"), "sbatch x": Answer(1, "", "no\n")}
    monkeypatch.setattr(SshConnection, "run", lambda _, script, **__: answers[script])
    ssh, heard = Ssh(host="login"), list[str]()
    login = Recorder(file, RUN, {"HF_TOKEN": SECRET}).login(ssh)
    for script in answers:
        login.run(script)
    monkeypatch.undo()
    again = Recording(file, RUN).login(ssh)
    assert again.run("squeue", heard=heard.append) == Answer(0, "1|RUNNING|<HF_TOKEN>\n", "a warning\n")
    assert again.run("sbatch x") == answers["sbatch x"]
    assert heard == ["a warning"]
    with pytest.raises(NotRecorded):
        again.run("sinfo")


@pytest.mark.parametrize("text", ["", "{}\n", "[1]\n", "global_step: 3\n"])
def test_another_file_is_no_recording(file: Path, text: str) -> None:
    file.write_text(text)
    with pytest.raises(ConfigError, match="is no recording of a session"):
        Recording(file, RUN)


def test_a_recording_is_never_written_over(file: Path, server: Server, small: str, tmp_path: Path) -> None:
    file.write_text("an earlier one")
    config = kubeconfig(tmp_path / "config", server.url)
    site = gke_site(None, "runs", tmp_path, kubeconfig=str(config))  # type: ignore[arg-type]
    options = ("--site", str(site), "--record-answers", str(file))
    result = pacemark(small, *SELECT, *options, results=tmp_path / "results")
    assert (result.status, file.read_text()) == (4, "an earlier one")
    assert f"ERROR: {file}: File exists" in result.out
    assert server.paths == []


# Whether a recording made anew says what those that are kept say: a field that is gone is told, another moment is not


PENDING: dict[str, Any] = {"metadata": {"name": "one"}, "status": {"phase": "Pending"}}
PLACED = {**PENDING, "spec": {"nodeName": "n1"}}
RENAMED = {"metadata": {"name": "one"}, "status": {"step": "Pending"}}
WHOLE = [[PENDING], [PLACED]]


def recording(path: Path, lists: list[list[dict[str, Any]]]) -> Path:
    answers = [{"ask": "GET", "key": PODS, "status": 200, "answer": {"items": items}} for items in lists]
    path.write_text("\n".join(json.dumps(line) for line in ({"run": RUN}, *answers)))
    return path


@pytest.mark.parametrize(
    ("kept", "fresh", "lost"),
    [
        ([WHOLE] * 3, WHOLE, {}),
        ([WHOLE] * 3, [[PLACED]], {}),
        ([WHOLE] * 3, [[PENDING]], {"GET /api/v1/pods": {".spec.nodeName: str"}}),
        ([WHOLE] * 3, [[RENAMED], [PLACED], [RENAMED]], {}),
        (
            [WHOLE] * 3,
            [[RENAMED], [{**RENAMED, **PLACED, "status": {}}]],
            {"GET /api/v1/pods": {".status.phase: str"}},
        ),
        # Two sessions saw it at some moment: a third may not.
        ([WHOLE] * 2, [[PENDING]], {}),
        ([WHOLE], [[RENAMED]], {"GET /api/v1/pods": {".status.phase: str"}}),
        ([WHOLE], [], {}),
    ],
)
def test_what_is_lost_of_the_answers(
    tmp_path: Path, kept: list[Any], fresh: list[Any], lost: dict[str, set[str]]
) -> None:
    before = [recording(tmp_path / f"{number}.jsonl", lists) for number, lists in enumerate(kept)]
    assert meaning.lost(before, recording(tmp_path / "fresh.jsonl", fresh)) == lost
