"""A real Kubernetes on this machine: its control plane, JobSet, the training-operator or Trainer, Kueue, nodes by KWOK.

    with KubernetesLab(nodes=64) as lab:
        lab.namespace("first", real_step=0.01)
        ...                                     # kubernetes.config.load_kube_config(str(lab.kubeconfig))

Everything listens on loopback, with the lab's own certificates, and runs as whoever starts it.
By hand: `python -m tests.lab.k8s --nodes 64`.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

import urllib3

from tests.lab import daemons, ports, reaper
from tests.lab.daemons import Daemon, LabError
from tests.lab.k8s import access, config, objects, programs
from tests.lab.k8s.api import Api, ApiError, collection
from tests.lab.k8s.certificates import Authority
from tests.lab.recipe.knobs import Knobs

_REPOSITORY = Path(__file__).resolve().parents[3]
# What the API server knows the components as, by their certificates: all may do anything.
_CLIENTS = ("admin", "kube-controller-manager", "kube-scheduler", "kwok", "pods", *config.CONTROLLERS)


class KubernetesLab:
    """One cluster of nodes of 8 GPUs each, everything in `root`: an empty folder, kept at the end.

    Without `root` it makes one below /tmp and removes it. `nodes` of each machine type in `machines`. `controllers` are
    those that it begins with; `kueue` replaces keys of Kueue's configuration.
    """

    def __init__(
        self,
        root: Path | None = None,
        nodes: int = 64,
        machines: Sequence[str] = ("a3-megagpu-8g", "Standard_ND96isr_H100_v5"),
        controllers: Sequence[str] = ("kueue", "jobset", "training-operator"),
        kueue: Mapping[str, Any] | None = None,
    ) -> None:
        self.root = root or Path(tempfile.mkdtemp(prefix="pmk-", dir="/tmp"))
        self._own_root = root is None
        self.nodes = [objects.node(objects.MACHINES[m], n) for m in machines for n in range(nodes)]
        self.kubeconfig = self.root / "kubeconfig" / "admin"
        self.server = ""
        self._ports: ports.Block | None = None
        self._daemons: dict[str, Daemon] = {}
        self._reaper: subprocess.Popen[bytes] | None = None
        self._api: Api | None = None
        self._controllers = controllers
        self._kueue = kueue or {}
        self._settings: config.Settings

    def __enter__(self) -> KubernetesLab:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def api(self) -> Api:
        """The API server, as one who may do anything."""
        if self._api is None:
            raise LabError("the Kubernetes lab was not started")
        return self._api

    @property
    def pids(self) -> set[int]:
        """All processes of the lab; the reaper is not one of them."""
        return daemons.marked(self.root)

    def start(self, seconds: float = 600.0) -> None:
        """Bring it up and wait until every node and controller is ready; LabError, with a log's tail, if that fails."""
        deadline = time.monotonic() + seconds
        try:
            settings, authority = self._prepare()
            self._daemons["etcd"].start()
            self.start_api(seconds)
            self._populate(settings, authority, deadline)
            for name in ("kube-controller-manager", "kube-scheduler", "kwok", "pods", *self._controllers):
                self._daemons[name].start()
            for name in self._controllers:
                port = settings.ports[f"{objects.plain(name)}-health"]
                self._wait(name, partial(_answers, f"http://{config.HOST}:{port}/readyz"), deadline)
            self._wait("kwok", lambda: self.ready_nodes() == len(self.nodes), deadline)
            account = "/api/v1/namespaces/default/serviceaccounts/default"
            self._wait("kube-controller-manager", lambda: self._exists(account), deadline)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End every process, in a bounded time; removes what it made."""
        # The API server first asks its clients to go; etcd last.
        for group in ([d for n, d in self._daemons.items() if n != "etcd"], list(self._daemons.values())):
            daemons.end(group, 2)
        watcher, self._reaper = self._reaper, None
        daemons.clear(self.root, self._ports, watcher, keep=not self._own_root)

    def namespace(self, name: str, **knobs: Any) -> str:
        """A new namespace, whose pods run by these knobs (tests.lab.recipe.knobs); its name."""
        for daemon in self._daemons.values():
            daemon.check()
        self.set(name, **knobs)
        self.api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        # A pod cannot be made before there is one, and controllers that tried wait long before they try again.
        account = f"/api/v1/namespaces/{name}/serviceaccounts/default"
        self._wait("kube-controller-manager", lambda: self._exists(account), time.monotonic() + 600)
        return name

    def set(self, namespace: str, **knobs: Any) -> None:
        """Give pods that start from now on in this namespace these knobs."""
        folder = self.root / "knobs" / namespace
        folder.mkdir(parents=True, exist_ok=True)
        Knobs(**knobs).save(folder)

    def hold(self, namespace: str, step: int, **knobs: Any) -> None:
        """As `set`; besides, the pods wait after this step until they are let go."""
        held = self._held(namespace)
        self.set(namespace, held_at=step, held_by=str(held), **knobs)
        held.touch()

    def let_go(self, namespace: str) -> None:
        """Pods that wait go on, and none waits any more."""
        self._held(namespace).unlink()

    def add_kinds(self, name: str, seconds: float = 300.0) -> None:
        """The kinds of one more controller, without the controller itself."""
        for document in (kinds := list(objects.kinds(self._settings, [name]))):
            self.api.create(document)
        self._wait_served(kinds, time.monotonic() + seconds)

    def remove_kinds(self, name: str, seconds: float = 300.0) -> None:
        """They go, and all objects of them."""
        for document in (kinds := list(objects.kinds(self._settings, [name]))):
            self.api.delete(f"{collection(document)}/{document['metadata']['name']}")
        paths = list(objects.served(kinds))
        self._wait("kube-apiserver", lambda: not any(map(self._exists, paths)), time.monotonic() + seconds)

    def clear(self, namespace: str, seconds: float = 600.0) -> None:
        """Delete its jobs of every kind, and wait until their pods are gone."""
        for group, kind in (("jobset.x-k8s.io/v1alpha2", "jobsets"), ("kubeflow.org/v1", "pytorchjobs")):
            if self._exists(f"/apis/{group}/{kind}"):
                self.api.delete(f"/apis/{group}/namespaces/{namespace}/{kind}")
        pods, deadline = f"/api/v1/namespaces/{namespace}/pods", time.monotonic() + seconds
        self._wait("kube-controller-manager", lambda: not self.api.get(pods)["items"], deadline)

    def user(self, namespace: str, name: str, rules: access.Rules, cluster_rules: access.Rules = ()) -> Path:
        """The kubeconfig of a new service account that may do what these RBAC rules say, and no more."""
        token = access.service_account(self.api, namespace, name, rules, cluster_rules)
        for rule in (*rules[:1], *cluster_rules[:1]):
            may = partial(access.is_allowed, self.api, namespace, name, rule)
            self._wait("kube-apiserver", may, time.monotonic() + 120)
        path = self.root / "kubeconfig" / f"{namespace}-{name}"
        ca = self.root / "pki" / "ca.crt"
        return access.write_kubeconfig(path, self.server, ca, token=token, namespace=namespace)

    def ready_nodes(self) -> int:
        """How many nodes could run pods now."""
        conditions = [node["status"].get("conditions", []) for node in self.api.get("/api/v1/nodes")["items"]]
        return sum(any(c["type"] == "Ready" and c["status"] == "True" for c in one) for one in conditions)

    def stop_api(self) -> None:
        """The API server goes away; what it knows stays in etcd, and pods go on."""
        self._daemons["kube-apiserver"].stop()

    def signal(self, name: str, number: signal.Signals) -> None:
        """Send one of its programs a signal: SIGKILL for a crash, SIGSTOP for a hang."""
        self._daemons[name].signal(number)

    def answers(self) -> bool:
        """Whether the API server is there."""
        return self._exists("/readyz")

    def requests(self, namespace: str) -> list[dict[str, Any]]:
        """What the users of this namespace asked of the API server, by its own audit log; a watch once it began."""
        log, mark = self.root / "log" / config.AUDIT_LOG, f'"system:serviceaccount:{namespace}:'
        # The last line may be written at this moment.
        lines = log.read_text().split("\n")[:-1] if log.exists() else []
        entries = [json.loads(line) for line in lines if mark in line]
        return list({entry["auditID"]: entry for entry in entries}.values())

    def log_of(self, pod: Mapping[str, Any]) -> Path:
        """The file that the log of this pod's main container is served from."""
        return next(self._logs_of(pod))

    def has_begun(self, pod: Mapping[str, Any]) -> bool:
        """Whether the pod's stand-in runs, and has its knobs: a pod runs a moment before."""
        return any(self._logs_of(pod))

    def reads(self, log: Path) -> bool:
        """Whether a kubelet has this file open."""
        pid = self._daemons["kwok"].pid
        # A file may be closed while they are looked at.
        with contextlib.suppress(OSError):
            return any(entry.readlink() == log for entry in Path(f"/proc/{pid}/fd").iterdir())
        return False

    def start_api(self, seconds: float = 300.0) -> None:
        """The API server comes (back) and answers."""
        self._daemons["kube-apiserver"].start()
        self._wait("kube-apiserver", lambda: self._exists("/readyz"), time.monotonic() + seconds)

    def memory(self) -> dict[str, int]:
        """MB that each process holds, shared pages by its share."""
        return {name: _memory(daemon.pid) for name, daemon in self._daemons.items() if daemon.pid}

    def _prepare(self) -> tuple[config.Settings, Authority]:
        """Folders, keys and configuration files; nothing runs yet but the reaper."""
        if missing := programs.missing_parts():
            raise LabError("the Kubernetes lab needs " + "; ".join(missing))
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        for folder in ("log", "pki/webhook", "kubeconfig", "knobs", "pods"):
            (self.root / folder).mkdir(parents=True)
        self._reaper = reaper.start(self.root, keep=not self._own_root)
        self._ports = ports.claim_block(len(config.PORTS))
        numbers = {name: self._ports.base + offset for offset, name in enumerate(config.PORTS)}
        self.server = f"https://{config.HOST}:{numbers['api']}"
        (self.root / "server").write_text(self.server)
        authority = Authority(self.root / "pki", ("kueue-ca", "training-operator-ca"))
        settings = config.Settings(
            root=self.root,
            ports=numbers,
            ca=authority.pair.certificate,
            server=authority.issue("server"),
            webhook=authority.issue("webhook/tls", hosts=objects.WEBHOOK_HOSTS),
            token_key=authority.token_key(),
            kueue=self._kueue,
        )
        self._settings = settings
        for name in _CLIENTS:
            client = authority.issue(name, group="system:masters")
            access.write_kubeconfig(settings.kubeconfig(name), self.server, settings.ca, client=client)
            if name == "admin":
                self._api = Api(self.server, str(settings.ca), client=client)
        (self.root / "kwok.yaml").write_text(objects.kwok_configuration())
        self._daemons = {daemon.name: daemon for daemon in self._define(settings)}
        return settings, authority

    def _define(self, settings: config.Settings) -> list[Daemon]:
        environment = {
            # Programs leave what they cache there, and find no configuration of the caller's.
            "HOME": str(self.root),
            "TMPDIR": str(self.root),
            "PATH": os.environ.get("PATH", ""),
            "MY_POD_NAMESPACE": "kubeflow",
            "WEBHOOK_CERT_DIR": str(self.root / "pki" / "webhook"),
            daemons.MARK: str(self.root),
        }
        commands = {
            "etcd": config.etcd(settings),
            "kube-apiserver": config.apiserver(settings),
            "kube-controller-manager": config.controller_manager(settings),
            "kube-scheduler": config.scheduler(settings),
            "kwok": config.kwok(settings),
            "pods": [sys.executable, "-m", "tests.lab.k8s.pods", str(self.root)],
            **{name: config.CONTROLLERS[name](settings) for name in self._controllers},
        }
        return [
            Daemon(
                name, argv, environment | {"PYTHONPATH": str(_REPOSITORY)}, self.root / "log" / f"{name}.log"
            )
            for name, argv in commands.items()
        ]

    def _populate(self, settings: config.Settings, authority: Authority, deadline: float) -> None:
        """Kinds, nodes, secrets and webhooks."""
        with ThreadPoolExecutor(8) as pool:
            kinds = list(objects.kinds(settings, ["kwok", *self._controllers]))
            list(pool.map(self.api.create, (*kinds, *objects.namespaces())))
            list(pool.map(self.api.create, objects.secrets(settings, authority.pair.key)))
            list(pool.map(self.api.create, self.nodes))
            for name in self._controllers:
                list(pool.map(self.api.create, objects.webhooks(settings, name)))
        # A controller that finds its kind missing looks again only after 10 s.
        self._wait_served(kinds, deadline)

    def _wait_served(self, kinds: Sequence[dict[str, Any]], deadline: float) -> None:
        """All at once: the server loads a kind when it is first asked for it, and says to ask again after a second."""
        paths = set(objects.served(kinds))
        with ThreadPoolExecutor(8) as pool:
            list(
                pool.map(
                    lambda path: self._wait("kube-apiserver", partial(self._exists, path), deadline),
                    paths,
                )
            )
        # The server tells of a kind later than it serves it, and Trainer's controller ends if it is not told.
        self._wait("kube-apiserver", lambda: paths <= self.api.discovered(), deadline)

    def _logs_of(self, pod: Mapping[str, Any]) -> Iterator[Path]:
        folder = self.root / "pods" / str(pod["metadata"]["namespace"]) / str(pod["metadata"]["uid"])
        return folder.glob("*.0.log")

    def _held(self, namespace: str) -> Path:
        return self.root / "knobs" / namespace / "held"

    def _exists(self, path: str) -> bool:
        try:
            self.api.request("GET", path)
        except ApiError:
            return False
        return True

    def _wait(self, name: str, ready: Callable[[], bool], deadline: float) -> None:
        while not ready():
            self._daemons[name].check()
            if time.monotonic() > deadline:
                raise LabError(f"{name} was not ready in time:\n{daemons.tail(self._daemons[name].log)}")
            time.sleep(0.1)


def _answers(url: str) -> bool:
    try:
        return urllib3.request("GET", url, timeout=2, retries=False).status == 200
    except urllib3.exceptions.HTTPError:
        return False


def _memory(pid: int) -> int:
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return int(text.split("Pss:")[1].split()[0]) // 1024
