"""`--init-site`: which cluster is meant, where the file goes, and what is said of it."""

from __future__ import annotations

import io
import socket
from pathlib import Path

import pytest

from fixtures.backends.draft import Draft
from fixtures.backends.kubernetes import site_draft as kubernetes
from fixtures.backends.slurm import survey as slurm
from fixtures.backends.ssh.endpoint import Ssh
from fixtures.housekeeping import init_site
from fixtures.site import load_site
from plugins.base.errors import ConfigError, Unreachable

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Ssh]:
    """A cluster whose Slurm tells all but the type of GPU; and what it was reached by. The test runs in a folder of its own."""
    reached = list[Ssh]()

    def survey(ssh: Ssh, known: set[str]) -> tuple[str, Draft, list[str]]:
        reached.append(ssh)
        draft = Draft("slurm.")
        draft.ask("gpu", "h100", f"one of {len(known)} types")
        for name, value in {"account": "a", "partition": "p", "stage": "/s"}.items():
            draft.set(name, value)
        draft.within("ssh").set("host", ssh.host)
        return "My cluster\x1b[2J", draft, ["mkdir -p /s"]

    monkeypatch.setattr(slurm, "survey", survey)
    monkeypatch.chdir(tmp_path)
    return reached


def run(where: str, file: str | None = None) -> str:
    out = io.StringIO()
    init_site(where, file, ROOT, out)
    return out.getvalue()


def test_the_file_is_named_after_the_cluster_and_what_is_open_is_said(
    asked: list[Ssh], tmp_path: Path
) -> None:
    said = run("slurm://login")
    assert "My-cluster-2J.yaml: the site file of My cluster\\x1b[2J, with slurm\n" in said
    assert "  first: mkdir -p /s\n" in said
    assert "  answer slurm.gpu (required): one of " in said
    assert said.endswith("then run: pytest suites --site My-cluster-2J.yaml --check\n")
    with pytest.raises(ConfigError, match=r"slurm\.gpu: missing; this key is required"):
        load_site(tmp_path / "My-cluster-2J.yaml")
    answered = (tmp_path / "My-cluster-2J.yaml").read_text().replace("# gpu: h100", "gpu: h100")
    (tmp_path / "site.yaml").write_text(answered)
    assert load_site(tmp_path / "site.yaml").site == "My-cluster-2J"


def test_a_file_is_never_overwritten(asked: list[Ssh], tmp_path: Path) -> None:
    (tmp_path / "there.yaml").write_text("mine")
    (tmp_path / "link.yaml").symlink_to("nowhere")
    for name in ("there.yaml", "link.yaml"):
        with pytest.raises(ConfigError, match=f"{name} is there already and is never overwritten"):
            run("slurm://login", name)
    # The cluster was not even asked.
    assert asked == []
    run("slurm://login")
    with pytest.raises(ConfigError, match=r"My-cluster-2J\.yaml is there already"):
        run("slurm://login")
    with pytest.raises(ConfigError, match=r"cannot be written: .*No such file"):
        run("slurm://login", "no/folder.yaml")
    assert (tmp_path / "there.yaml").read_text() == "mine"


@pytest.mark.parametrize(
    ("where", "reached"),
    [
        ("slurm://login.example.com", Ssh(host="login.example.com")),
        ("slurm://me@login:2222/", Ssh(host="login", user="me", port=2222)),
        ("slurm://[::1]:22", Ssh(host="::1", port=22)),
    ],
)
def test_a_login_node_is_reached_as_it_was_named(asked: list[Ssh], where: str, reached: Ssh) -> None:
    run(where)
    assert asked == [reached]


@pytest.mark.parametrize(
    "where",
    [
        "login.example.com",
        "ssh://login",
        "slurm://",
        "slurm://login:0",
        "slurm://login:99999",
        "slurm://login:port",
        "slurm://-oProxyCommand=x",
        "slurm://login/home",
        "slurm:login",
        "kube:context",
    ],
)
def test_what_names_no_cluster_is_an_error_that_says_what_does(asked: list[Ssh], where: str) -> None:
    with pytest.raises(ConfigError, match=r"neither slurm://\[USER@\]HOST\[:PORT\].*nor kube://CONTEXT"):
        run(where)
    assert asked == []


def test_a_password_is_not_shown(asked: list[Ssh]) -> None:
    with pytest.raises(ConfigError, match="neither") as caught:
        run("slurm://me:secret@login")
    assert "secret" not in str(caught.value)


def test_a_context_may_have_any_name(
    asked: list[Ssh], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    contexts = list[str]()

    def survey(context: str, *_: object) -> tuple[str, dict[str, Draft], list[str]]:
        contexts.append(context)
        return context, {}, ["install JobSet"]

    monkeypatch.setattr(kubernetes, "survey", survey)
    said = run("kube://arn:aws:eks:us-east-1:1:cluster/mine")
    assert contexts == ["arn:aws:eks:us-east-1:1:cluster/mine"]
    assert "with no section\n  first: install JobSet\n" in said
    assert load_site(tmp_path / "arn-aws-eks-us-east-1-1-cluster-mine.yaml").section("jobset") is None


def test_a_login_node_that_does_not_answer_is_not_told_of_a_site_file() -> None:
    # It is bound, so that no other program gets it, and nobody listens.
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        with pytest.raises(Unreachable) as caught:
            run(f"slurm://127.0.0.1:{bound.getsockname()[1]}")
    assert "mend: correct `host` and `port`;" in str(caught.value)
