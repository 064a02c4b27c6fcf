"""How each of the lab's programs is run: arguments, configuration files, and the ports they listen on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests.lab.k8s import programs
from tests.lab.k8s.certificates import Pair

HOST = "127.0.0.1"
AUDIT_LOG = "audit.jsonl"
PORTS = (
    "etcd",
    "peer",
    "api",
    "kwok",
    "jobset",
    "jobset-health",
    "training-operator",
    "training-operator-health",
    "trainer",
    "trainer-health",
    "kueue",
    "kueue-health",
)
# Controllers of this size talk faster than the default allows: 20 requests a second would be 64 pods in 3 s.
_QPS = ("--kube-api-qps=500", "--kube-api-burst=500")


@dataclass(frozen=True)
class Settings:
    """What the arguments depend on. `ports`: by the names in PORTS. `kueue`: keys of its configuration."""

    root: Path
    ports: dict[str, int]
    ca: Path
    server: Pair
    webhook: Pair
    token_key: Path
    kueue: Mapping[str, Any] = field(default_factory=dict)

    def kubeconfig(self, name: str) -> Path:
        """Of a component, as its own client of the API server."""
        return self.root / "kubeconfig" / name


def etcd(s: Settings) -> list[str]:
    """One member, with a client certificate asked for and no promise to survive a crash of the machine."""
    client, peer = (f"https://{HOST}:{s.ports[name]}" for name in ("etcd", "peer"))
    files = (f"cert-file={s.server.certificate}", f"key-file={s.server.key}", f"trusted-ca-file={s.ca}")
    return [
        str(programs.path("etcd")),
        "--name=lab",
        f"--data-dir={s.root / 'etcd'}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=lab={peer}",
        *(f"--{option}" for option in files),
        *(f"--peer-{option}" for option in files),
        "--client-cert-auth",
        "--peer-client-cert-auth",
        "--unsafe-no-fsync",
        "--log-level=warn",
    ]


def apiserver(s: Settings) -> list[str]:
    """RBAC, admission as it comes, and pods that may be privileged, as the recipes' are.

    Its audit log has what users asked, and nothing of what the lab's own parts did.
    """
    users = {"level": "Metadata", "userGroups": ["system:serviceaccounts"], "omitStages": ["RequestReceived"]}
    policy = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": [users, {"level": "None"}]}
    (s.root / "audit.yaml").write_text(yaml.safe_dump(policy))
    return [
        str(programs.path("kube-apiserver")),
        f"--bind-address={HOST}",
        f"--advertise-address={HOST}",
        f"--secure-port={s.ports['api']}",
        # A server on loopback cannot be the address of the service `kubernetes`.
        "--endpoint-reconciler-type=none",
        f"--etcd-servers=https://{HOST}:{s.ports['etcd']}",
        f"--etcd-cafile={s.ca}",
        f"--etcd-certfile={s.server.certificate}",
        f"--etcd-keyfile={s.server.key}",
        f"--tls-cert-file={s.server.certificate}",
        f"--tls-private-key-file={s.server.key}",
        f"--cert-dir={s.root / 'pki'}",
        f"--client-ca-file={s.ca}",
        "--authorization-mode=RBAC",
        f"--audit-policy-file={s.root / 'audit.yaml'}",
        f"--audit-log-path={s.root / 'log' / AUDIT_LOG}",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={s.token_key}",
        f"--service-account-signing-key-file={s.token_key}",
        "--service-cluster-ip-range=10.96.0.0/16",
        "--allow-privileged=true",
        "--kubelet-preferred-address-types=ExternalIP",
        "--profiling=false",
    ]


def controller_manager(s: Settings) -> list[str]:
    """All controllers; it serves nothing itself."""
    return [
        str(programs.path("kube-controller-manager")),
        f"--kubeconfig={s.kubeconfig('kube-controller-manager')}",
        f"--service-account-private-key-file={s.token_key}",
        f"--root-ca-file={s.ca}",
        "--leader-elect=false",
        "--secure-port=0",
        # On a busy machine KWOK's heartbeats come late, and no node must count as gone for that.
        "--node-monitor-grace-period=1000s",
        # 64 pods of one Job at once.
        "--concurrent-job-syncs=10",
        # Nobody looks at these, and they would be written for each pod that comes or goes.
        "--endpoint-updates-batch-period=2s",
        "--endpointslice-updates-batch-period=2s",
        *_QPS,
    ]


def scheduler(s: Settings) -> list[str]:
    """As it comes; it serves nothing itself."""
    return [
        str(programs.path("kube-scheduler")),
        f"--kubeconfig={s.kubeconfig('kube-scheduler')}",
        "--leader-elect=false",
        "--secure-port=0",
        *_QPS,
    ]


def kwok(s: Settings) -> list[str]:
    """The kubelet of every node: node and pod status by the stages in kwok.yaml, logs by Logs objects."""
    address = s.ports["kwok"]
    return [
        str(programs.path("kwok")),
        f"--config={s.root / 'kwok.yaml'}",
        f"--kubeconfig={s.kubeconfig('kwok')}",
        "--manage-all-nodes=true",
        "--enable-crds=Logs",
        f"--node-ip={HOST}",
        f"--node-port={address}",
        f"--server-address={HOST}:{address}",
        f"--tls-cert-file={s.server.certificate}",
        f"--tls-private-key-file={s.server.key}",
        # A heartbeat of each node every 250 s, not every 10 s: 128 nodes' are a third of what an idle cluster does.
        "--node-lease-duration-seconds=1000",
    ]


def jobset(s: Settings) -> list[str]:
    """The JobSet controller, with its webhooks."""
    configuration = {
        "apiVersion": "config.jobset.x-k8s.io/v1alpha1",
        "kind": "Configuration",
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": False},
        **_endpoints(s, "jobset"),
    }
    return [str(programs.path("jobset")), *_configured(s, "jobset", configuration)]


def kueue(s: Settings) -> list[str]:
    """Kueue, for the kinds of job that the recipes are."""
    configuration = {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "namespace": "kueue-system",
        "leaderElection": {"leaderElect": False},
        # Without it Kueue wants certificates for its metrics below /etc.
        "internalCertManagement": {"enable": True},
        "integrations": {"frameworks": ["batch/job", "jobset.x-k8s.io/jobset", "kubeflow.org/pytorchjob"]},
        "featureGates": {"VisibilityOnDemand": False},
        **_endpoints(s, "kueue"),
        **s.kueue,
    }
    return [str(programs.path("kueue")), *_configured(s, "kueue", configuration)]


def training_operator(s: Settings) -> list[str]:
    """The training-operator v1, for PyTorchJob alone; finds its certificate by WEBHOOK_CERT_DIR."""
    return [*_training_operator(s, "training-operator"), *_QPS]


def training_operator_1_8(s: Settings) -> list[str]:
    """The same, in the other's place."""
    return _training_operator(s, "training-operator-1.8")


def _training_operator(s: Settings, program: str) -> list[str]:
    return [
        str(programs.path(program)),
        f"--kubeconfig={s.kubeconfig(program)}",
        "--enable-scheme=pytorchjob",
        "--controller-threads=4",
        f"--webhook-server-port={s.ports['training-operator']}",
        f"--health-probe-bind-address={HOST}:{s.ports['training-operator-health']}",
        "--metrics-bind-address=0",
    ]


def trainer(s: Settings) -> list[str]:
    """Kubeflow Trainer v2; finds its certificate below TMPDIR."""
    configuration = {
        "apiVersion": "config.trainer.kubeflow.org/v1alpha1",
        "kind": "Configuration",
        "leaderElection": {"leaderElect": False},
        "certManagement": {"enable": False},
        **_endpoints(s, "trainer"),
    }
    # It has no key for that.
    del configuration["webhook"]["certDir"]
    place = s.root / "k8s-webhook-server" / "serving-certs"
    place.parent.mkdir()
    place.symlink_to(s.webhook.certificate.parent)
    return [str(programs.path("trainer")), *_configured(s, "trainer", configuration)]


def _endpoints(s: Settings, name: str) -> dict[str, Any]:
    return {
        "webhook": {"host": HOST, "port": s.ports[name], "certDir": str(s.webhook.certificate.parent)},
        "health": {"healthProbeBindAddress": f"{HOST}:{s.ports[f'{name}-health']}"},
        "metrics": {"bindAddress": "0"},
        "clientConnection": {"qps": 500, "burst": 500},
    }


def _configured(s: Settings, name: str, configuration: dict[str, Any]) -> list[str]:
    file = s.root / f"{name}.yaml"
    file.write_text(yaml.safe_dump(configuration))
    return [f"--kubeconfig={s.kubeconfig(name)}", f"--config={file}"]


CONTROLLERS: dict[str, Callable[[Settings], list[str]]] = {
    "kueue": kueue,
    "jobset": jobset,
    "training-operator": training_operator,
    "training-operator-1.8": training_operator_1_8,
    "trainer": trainer,
}
"""What a cluster may have."""
