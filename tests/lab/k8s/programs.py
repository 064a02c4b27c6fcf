"""The programs of the Kubernetes lab: which, at what versions, and where they are on this machine.

`modules/go.mod` pins them and `modules/go.sum` their contents; what does not fit the rest has a folder of its own there. `python -m tests.lab.k8s.build` builds them once
into a folder of the cache that is named after these pins. Where KUBEBUILDER_ASSETS names a folder with etcd and
kube-apiserver, as Kubernetes' own test tools do, these two come from there and are not built.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
from dataclasses import dataclass
from pathlib import Path

MODULES = Path(__file__).parent / "modules"
ASSETS = "KUBEBUILDER_ASSETS"
BUILD_HINT = "python -m tests.lab.k8s.build builds them"


@dataclass(frozen=True)
class Program:
    """`package` is built to `name`; `manifests` are copied from its `module` (globs, below its root).

    `edits`: (file of the module, what stands there once, what stands there in what we build). `pins` is the folder below
    `modules` whose go.mod pins it.
    """

    name: str
    module: str
    package: str
    manifests: tuple[str, ...] = ()
    edits: tuple[tuple[str, str, str], ...] = ()
    pins: str = ""

    @property
    def modules(self) -> Path:
        return MODULES / self.pins

    @property
    def version(self) -> str:
        """As pinned, such as `v1.36.3`."""
        return version(self.module, self.modules)


# Without symbols. The tag leaves out a part of Kueue that is off unless asked for and is a scheduler by itself.
FLAGS = ("-trimpath", "-buildvcs=false", "-tags", "exclude_scheduler_library")
STRIP = "-s -w"


_KUBERNETES = "k8s.io/kubernetes"
_TRAINING_OPERATOR = (
    "github.com/kubeflow/training-operator",
    "github.com/kubeflow/training-operator/cmd/training-operator.v1",
    ("manifests/base/crds/kubeflow.org_pytorchjobs.yaml", "manifests/base/webhook/manifests.yaml"),
    # It cannot be told to listen on loopback, nor where its certificate is.
    (
        (
            "cmd/training-operator.v1/main.go",
            "Port: webhookServerPort,",
            'Host: "127.0.0.1", Port: webhookServerPort, CertDir: os.Getenv("WEBHOOK_CERT_DIR"),',
        ),
        ("pkg/cert/cert.go", "CertDir:        certDir,", 'CertDir: os.Getenv("WEBHOOK_CERT_DIR"),'),
    ),
)
PROGRAMS = (
    Program("etcd", "go.etcd.io/etcd/server/v3", "go.etcd.io/etcd/server/v3"),
    Program("kube-apiserver", _KUBERNETES, f"{_KUBERNETES}/cmd/kube-apiserver"),
    Program("kube-controller-manager", _KUBERNETES, f"{_KUBERNETES}/cmd/kube-controller-manager"),
    Program("kube-scheduler", _KUBERNETES, f"{_KUBERNETES}/cmd/kube-scheduler"),
    Program(
        "kwok",
        "sigs.k8s.io/kwok",
        "sigs.k8s.io/kwok/cmd/kwok",
        (
            "kustomize/crd/bases/kwok.x-k8s.io_logs.yaml",
            "kustomize/stage/node/fast/node-initialize.yaml",
            "kustomize/stage/node/heartbeat-with-lease/node-heartbeat-with-lease.yaml",
            "kustomize/stage/pod/fast/pod-delete.yaml",
            "kustomize/stage/pod/fast/pod-ready.yaml",
        ),
    ),
    Program(
        "jobset",
        "sigs.k8s.io/jobset",
        "sigs.k8s.io/jobset",
        ("config/components/crd/bases/*.yaml", "config/components/webhook/manifests.yaml"),
    ),
    Program("training-operator", *_TRAINING_OPERATOR),
    # The one that AKS's own script installs. Its code does not fit the libraries of the other programs.
    Program("training-operator-1.8", *_TRAINING_OPERATOR, "training-operator-1.8"),
    Program(
        "trainer",
        "github.com/kubeflow/trainer/v2",
        "github.com/kubeflow/trainer/v2/cmd/trainer-controller-manager",
        ("manifests/base/crds/trainer.kubeflow.org_*.yaml", "manifests/base/webhook/manifests.yaml"),
    ),
    Program(
        "kueue",
        "sigs.k8s.io/kueue",
        "sigs.k8s.io/kueue/cmd/kueue",
        ("config/components/crd/bases/*.yaml", "config/components/webhook/manifests.yaml"),
    ),
)


def version(module: str, modules: Path = MODULES) -> str:
    """The pinned version of a module, such as `v1.36.3`."""
    found = re.search(rf"^\t{re.escape(module)} (v\S+)", (modules / "go.mod").read_text(), re.M)
    if found is None:
        raise LookupError(f"{modules / 'go.mod'} requires no {module}")
    return found[1]


def assets() -> Path | None:
    """The folder of KUBEBUILDER_ASSETS, if it has both programs."""
    folder = os.environ.get(ASSETS)
    if folder and all(os.access(Path(folder, name), os.X_OK) for name in ("etcd", "kube-apiserver")):
        return Path(folder)
    return None


def to_build() -> tuple[Program, ...]:
    """What is not at hand by KUBEBUILDER_ASSETS."""
    return PROGRAMS[2:] if assets() else PROGRAMS


def cache() -> Path:
    """Where Pacemark keeps what it made once."""
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "pacemark"


def home() -> Path:
    """The folder of these pins: `bin/`, and `manifests/<program>/`. It exists only when it is whole."""
    pins = sorted(MODULES.rglob("go.*"))
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in pins))
    digest.update(repr((platform.system(), platform.machine(), to_build(), FLAGS, STRIP)).encode())
    return cache() / f"k8s-{digest.hexdigest()[:12]}"


def path(name: str) -> Path:
    """Where a program is, or will be."""
    given = assets()
    if given is not None and name in ("etcd", "kube-apiserver"):
        return given / name
    return home() / "bin" / name


def manifests(name: str) -> list[Path]:
    """The YAML files that a program brings along."""
    return sorted((home() / "manifests" / name).glob("*.yaml"))


def missing_parts() -> list[str]:
    """What this machine lacks for the lab, in words; empty if it can be run."""
    return [] if home().exists() else [f"its programs, which are not in {home()} ({BUILD_HINT})"]
