"""The credentials of a kubeconfig: bounded, renewed when they are refused, and never left out in silence."""

from __future__ import annotations

import base64
import json
import time
import tracemalloc
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from fixtures.backends.kubernetes import connection as module
from fixtures.backends.kubernetes import credentials as access
from fixtures.backends.kubernetes.api import Api
from fixtures.backends.kubernetes.section import Kubernetes
from plugins.base.errors import Denied, Unreachable
from tests.lab.daemons import command
from tests.unit.kubeapi import Server, kubeconfig

VERSION = "client.authentication.k8s.io/v1"


def credential(status: Any) -> str:
    """A line of bash that prints it."""
    return f"echo '{json.dumps({'apiVersion': VERSION, 'kind': 'ExecCredential', 'status': status})}'"


_made: list[Api] = []


def api(path: Path) -> Api:
    """As this kubeconfig says; closed at the test's end."""
    _made.append(Api("lab", Kubernetes(gpu="h100", kubeconfig=str(path))))
    return _made[-1]


@pytest.fixture(autouse=True)
def _close() -> Iterator[None]:
    yield
    while _made:
        _made.pop().close()


class Plugin:
    """A credential plugin in `folder`: a line of bash. How often it ran is counted."""

    def __init__(self, folder: Path, server: Server) -> None:
        self.server = server
        self._program, self._runs = folder / "plugin", folder / "runs"
        runs = {
            "apiVersion": VERSION,
            "command": "./plugin",
            "args": ["get-token"],
            "provideClusterInfo": True,
        }
        self.user: dict[str, Any] = {"exec": {**runs, "env": [{"name": "REALM", "value": "lab"}]}}
        self.kubeconfig = kubeconfig(folder / "config", server.url, self.user)

    def api(self) -> Api:
        return api(self.kubeconfig)

    def does(self, body: str) -> None:
        self._program.write_text(f"#!/bin/bash\necho run >>{self._runs}\n{body}\n")
        self._program.chmod(0o755)

    def gives(self, **status: Any) -> None:
        self.does(credential(status))

    @property
    def runs(self) -> int:
        return len(self._runs.read_text().splitlines()) if self._runs.exists() else 0


def wants_two(given: str) -> tuple[int, bytes]:
    """An answer to whoever has the second token."""
    return (200, b'{"items": []}') if given == "Bearer TWO" else (401, b"")


@pytest.fixture
def plugin(tmp_path: Path, server: Server) -> Plugin:
    return Plugin(tmp_path, server)


def certificate(ends: datetime) -> tuple[str, str]:
    """A client certificate and its key, in base64."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "me")])
    made = x509.CertificateBuilder(name, name, key.public_key(), 7).not_valid_after(ends)
    signed = made.not_valid_before(ends - timedelta(days=2)).sign(key, hashes.SHA256())
    pem, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    private = key.private_bytes(pem, form, serialization.NoEncryption())
    return base64.b64encode(signed.public_bytes(pem)).decode(), base64.b64encode(private).decode()


@pytest.mark.parametrize(
    ("days", "reason"),
    [(-1, "its client certificate expired at {:%Y-%m-%d %H:%M} UTC, so renew it"), (1, "SSL")],
)
def test_a_client_certificate_that_has_expired_is_named(
    tmp_path: Path, server: Server, days: int, reason: str
) -> None:
    """The server does not speak TLS, which is seen only with a certificate that may be used."""
    ends = datetime.now(UTC) + timedelta(days=days)
    data, key = certificate(ends)
    user = {"client-certificate-data": data, "client-key-data": key}
    client = api(kubeconfig(tmp_path / "config", server.url.replace("http:", "https:"), user))
    with pytest.raises(Unreachable, match=reason.format(ends)):
        client.find("/api/v1/namespaces/any")


def test_a_plugin_is_run_once_without_a_terminal_and_told_of_its_cluster(plugin: Plugin) -> None:
    plugin.does(
        f"""[[ "$1 $REALM" == "get-token lab" ]] || exit 3
        [[ -t 0 ]] && exit 4
        grep -q '"interactive": false' <<<"$KUBERNETES_EXEC_INFO" || exit 5
        grep -q '"server": "{plugin.server.url}"' <<<"$KUBERNETES_EXEC_INFO" || exit 6
        {credential({"token": "ONE"})}"""
    )
    asked = plugin.api()
    asked.get("/x")
    asked.get("/x")
    assert plugin.server.asked == ["Bearer ONE", "Bearer ONE"]
    assert plugin.runs == 1


def test_a_plugin_that_hangs_is_ended_with_all_that_it_started(
    plugin: Plugin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Longer than it takes to start on a busy machine.
    monkeypatch.setattr(access, "_PLUGIN_SECONDS", 3)
    pid = tmp_path / "pid"
    plugin.does(f"sleep 30 & echo $! >{pid}; echo 'To sign in, open a browser' >&2; sleep 30")
    began = time.monotonic()
    with pytest.raises(Denied, match=r"gave no credentials within 3 s: To sign in, open a browser"):
        plugin.api().get("/x")
    assert time.monotonic() - began < 30
    while command(int(pid.read_text())):
        assert time.monotonic() - began < 30
        time.sleep(0.01)
    assert plugin.server.asked == []


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("echo 'run: cloud login' >&2; exit 1", "ended with exit code 1: run: cloud login"),
        ("echo token-in-plain-text", "printed no ExecCredential"),
        (credential({}), "gave neither a token nor a certificate with its key"),
        (credential({"clientCertificateData": "x"}), "gave neither a token nor"),
        ("", r"cannot be used: .*No such file or directory: './plugin'"),
    ],
)
def test_nobody_is_asked_without_the_credentials_that_a_plugin_did_not_give(
    plugin: Plugin, body: str, words: str
) -> None:
    if body:
        plugin.does(body)
    with pytest.raises(Denied, match=words) as caught:
        plugin.api().get("/x")
    assert "token-in-plain-text" not in str(caught.value)
    assert plugin.server.asked == []


@pytest.mark.usefixtures("at_once")
def test_a_plugin_that_failed_is_run_again_and_only_the_first_failure_ends_the_session(
    plugin: Plugin,
) -> None:
    asked = plugin.api()
    plugin.does("exit 1")
    with pytest.raises(Denied):
        asked.get("/x")
    plugin.gives(token="ONE")
    asked.get("/x")
    # From here on it has worked: what fails now may pass.
    plugin.server.answer = wants_two
    plugin.does("echo 'no network' >&2; exit 1")
    with pytest.raises(Unreachable, match="no network") as caught:
        asked.get("/x")
    assert not isinstance(caught.value, Denied)
    plugin.gives(token="TWO")
    assert asked.get("/x") == {"items": []}


def test_a_certificate_from_a_plugin_is_used(plugin: Plugin, tmp_path: Path) -> None:
    plugin.gives(clientCertificateData="CERTIFICATE", clientKeyData="KEY")
    config = kubeconfig(tmp_path / "tls", "https://one:6443", plugin.user)
    found, _ = access.configured(Kubernetes(gpu="h100", kubeconfig=str(config)), "lab")
    assert (Path(found.cert_file).read_text(), Path(found.key_file).read_text()) == ("CERTIFICATE", "KEY")


def test_a_user_acts_as_the_one_whom_the_kubeconfig_says(tmp_path: Path, plugin: Plugin) -> None:
    """`as:` and its like, as kubectl sends them (client-go transport/round_trippers.go, impersonatingRoundTripper)."""
    acts = {
        "as": "runs-bot",
        "as-uid": "7",
        "as-groups": ["gpu-users", "dev"],
        "as-user-extra": {"example.org/team": ["ml", "infra"]},
    }
    plugin.gives(token="ONE")
    users: list[dict[str, Any]] = [{"token": "ONE"}, plugin.user]
    for number, credentials in enumerate(users):
        api(kubeconfig(tmp_path / f"as-{number}", plugin.server.url, {**credentials, **acts})).get("/x")
        assert plugin.server.asked[-1] == "Bearer ONE"
        assert plugin.server.impersonated == [
            ("Impersonate-User", "runs-bot"),
            ("Impersonate-Uid", "7"),
            ("Impersonate-Group", "gpu-users"),
            ("Impersonate-Group", "dev"),
            ("Impersonate-Extra-example.org%2Fteam", "ml"),
            ("Impersonate-Extra-example.org%2Fteam", "infra"),
        ]
    plugin.api().get("/x")
    assert plugin.server.impersonated == []


# Credentials that are refused


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """New credentials may be got again at once."""
    monkeypatch.setattr(module, "_AGAIN_SECONDS", 0.0)


@pytest.mark.usefixtures("at_once")
def test_a_token_file_that_was_rotated_is_read_again(tmp_path: Path, server: Server) -> None:
    (tmp_path / "token").write_text("ONE\n")
    asked = api(kubeconfig(tmp_path / "config", server.url, {"tokenFile": str(tmp_path / "token")}))
    asked.get("/x")
    (tmp_path / "token").write_text("TWO\n")
    server.answer = wants_two
    asked.get("/x")
    assert server.asked == ["Bearer ONE", "Bearer ONE", "Bearer TWO"]


@pytest.mark.usefixtures("at_once")
def test_a_plugin_without_a_word_on_expiry_is_run_again_when_its_token_is_refused(plugin: Plugin) -> None:
    plugin.gives(token="ONE")
    asked = plugin.api()
    asked.get("/x")
    plugin.gives(token="TWO")
    plugin.server.answer = wants_two
    with asked.stream("/x", 1):
        """A watch gets new ones too."""
    assert plugin.server.asked[-1] == "Bearer TWO"
    assert plugin.runs == 2


def test_credentials_that_stay_refused_are_told_and_a_plugin_is_not_run_for_each_request(
    plugin: Plugin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_AGAIN_SECONDS", 3600.0)
    plugin.gives(token="ONE")
    plugin.server.answer = lambda given: (401, b'{"message": "Unauthorized"}')
    asked = plugin.api()
    for pause in (0.0, 3600.0, 0.0):
        asked._connection._made_at -= pause
        with pytest.raises(Denied, match="of the kubeconfig are refused: GET /x: 401: Unauthorized"):
            asked.get("/x")
    assert plugin.runs == 2


def test_an_auth_provider_is_not_waited_for_without_a_bound(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access, "_READ_SECONDS", 0.5)
    provider = {"name": "gcp", "config": {"cmd-path": "sleep", "cmd-args": "5"}}
    path = kubeconfig(tmp_path / "config", server.url, {"auth-provider": provider})
    with pytest.raises(Denied, match=r"gave no credentials within 0.5 s"):
        api(path).get("/x")


# Mistakes in a kubeconfig, and who else may answer


@pytest.mark.parametrize(
    ("proxy", "words"),
    [
        ("socks5://bastion:1080", "pip install PySocks"),
        ("bastion:8080", r"give http://HOST:PORT"),
        ("ftp://bastion", r"give http://HOST:PORT"),
    ],
)
def test_a_proxy_that_cannot_be_used_is_told_with_what_helps(tmp_path: Path, proxy: str, words: str) -> None:
    cluster: dict[str, Any] = {"proxy-url": proxy}
    path = kubeconfig(tmp_path / "config", "https://one:6443", **cluster)
    with pytest.raises(Denied, match=f"its `proxy-url` cannot be used: (.|\n)*{words}"):
        api(path).get("/x")


NO_CONFIGS = [
    "- a",
    "",
    "{current-context: c, contexts: [c]}",
    "a: " + "[" * 9999,
]


@pytest.mark.parametrize("text", NO_CONFIGS)
def test_a_kubeconfig_that_is_none_is_told(tmp_path: Path, text: str) -> None:
    (tmp_path / "config").write_text(text)
    for ask in (lambda: api(tmp_path / "config").get("/x"), api(tmp_path / "config").server):
        with pytest.raises(Denied, match="config cannot be used: "):
            ask()


def test_a_token_that_no_header_may_have_is_not_shown(tmp_path: Path, server: Server) -> None:
    with pytest.raises(Denied, match="has a character in it that no header may have") as caught:
        api(kubeconfig(tmp_path / "config", server.url, {"token": "SECRET\nSECRET"})).get("/x")
    assert "SECRET" not in str(caught.value)


def test_a_plugin_that_prints_without_end_takes_no_memory(plugin: Plugin) -> None:
    plugin.does("yes noise | head -c 60000000; yes more | head -c 60000000 >&2; echo 'no login' >&2")
    tracemalloc.start()
    with pytest.raises(Denied, match=r"(?s)printed no ExecCredential: .*more.*no login") as caught:
        plugin.api().get("/x")
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 30 << 20
    assert len(str(caught.value)) < 2000
