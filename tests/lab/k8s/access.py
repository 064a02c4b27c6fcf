"""Ways into the lab's cluster: kubeconfig files, and users who may do only what a role says."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from tests.lab.k8s.api import Api
from tests.lab.k8s.certificates import Pair

Rules = Sequence[dict[str, Any]]
CONTEXT = "lab"


def write_kubeconfig(
    path: Path,
    server: str,
    ca: Path,
    *,
    client: Pair | None = None,
    token: str = "",
    namespace: str = "default",
) -> Path:
    """A kubeconfig with all that it needs in itself, readable by its owner alone."""

    def inline(file: Path) -> str:
        return base64.b64encode(file.read_bytes()).decode()

    user = {"token": token}
    if client:
        user = {"client-certificate-data": inline(client.certificate), "client-key-data": inline(client.key)}
    context = {"cluster": "lab", "user": "lab", "namespace": namespace}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": CONTEXT,
        "clusters": [
            {"name": "lab", "cluster": {"server": server, "certificate-authority-data": inline(ca)}}
        ],
        "users": [{"name": "lab", "user": user}],
        "contexts": [{"name": CONTEXT, "context": context}],
    }
    path.touch(mode=0o600)
    path.write_text(yaml.safe_dump(document))
    return path


def service_account(api: Api, namespace: str, name: str, rules: Rules, cluster_rules: Rules = ()) -> str:
    """The token of a new service account that may do what `rules` say in its namespace, and no more.

    `cluster_rules`: for what is in no namespace, such as nodes.
    """
    here = {"name": name, "namespace": namespace}
    everywhere = {"name": f"{namespace}-{name}"}
    api.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": here})
    for kind, metadata, given in (("Role", here, rules), ("ClusterRole", everywhere, cluster_rules)):
        if not given:
            continue
        group = "rbac.authorization.k8s.io"
        api.create({"apiVersion": f"{group}/v1", "kind": kind, "metadata": metadata, "rules": list(given)})
        api.create(
            {
                "apiVersion": f"{group}/v1",
                "kind": f"{kind}Binding",
                "metadata": metadata,
                "subjects": [{"kind": "ServiceAccount", **here}],
                "roleRef": {"apiGroup": group, "kind": kind, "name": metadata["name"]},
            }
        )
    asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    return str(
        api.post(f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token", asked)["status"]["token"]
    )


def is_allowed(api: Api, namespace: str, name: str, rule: dict[str, Any]) -> bool:
    """Whether this service account may do what a rule says: the API server takes a moment to read a new role."""
    resource, _, subresource = rule["resources"][0].partition("/")
    attributes = {
        "namespace": namespace,
        "group": rule["apiGroups"][0],
        "resource": resource,
        "subresource": subresource,
        "verb": rule["verbs"][0],
    }
    spec = {"user": f"system:serviceaccount:{namespace}:{name}", "resourceAttributes": attributes}
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
    answer = api.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
    return bool(answer["status"]["allowed"])
