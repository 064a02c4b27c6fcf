"""The API server, spoken to in plain JSON: what the lab itself needs, and its tests."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import urllib3
from urllib3.exceptions import HTTPError

from tests.lab.daemons import LabError
from tests.lab.k8s.certificates import Pair

# Which part of an object a patch of this kind changes: RFC 7386, and server-side apply.
MERGE = "application/merge-patch+json"
APPLY = "application/apply-patch+yaml"
# As all clients of it do: again where it says after how long (429 while it loads the kinds), else not.
_PATIENCE = urllib3.Retry(
    10, connect=0, read=0, other=0, redirect=0, allowed_methods=None, raise_on_status=False
)
_DISCOVERY = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


class ApiError(LabError):
    """The API server refused, or did not answer (`status` 0)."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Api:
    """As the client whose certificate or token it is given."""

    def __init__(self, server: str, ca: str, *, client: Pair | None = None, token: str = "") -> None:
        self.server = server
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._pool = urllib3.PoolManager(
            ca_certs=ca,
            cert_file=str(client.certificate) if client else None,
            key_file=str(client.key) if client else None,
            retries=_PATIENCE,
            maxsize=16,
        )

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        content: str = "application/json",
        accept: str = "application/json, */*",
        query: Mapping[str, str] | None = None,
    ) -> bytes:
        """The body of the answer; ApiError for one of 400 and above, or none within 120 s."""
        try:
            answer = self._pool.request(
                method,
                self.server + path,
                fields=query,
                body=None if body is None else json.dumps(body).encode(),
                headers={**self._headers, "Content-Type": content, "Accept": accept},
                timeout=120,
            )
        except HTTPError as error:
            raise ApiError(0, f"{method} {path}: {error}") from error
        if answer.status >= 400:
            raise ApiError(answer.status, f"{method} {path}: {answer.status}: {_message(answer.data)}")
        return answer.data

    def get(self, path: str, **query: str) -> Any:
        """An object, or a list of them."""
        return json.loads(self.request("GET", path, query=query))

    def discovered(self) -> set[str]:
        """Where it lists the objects of each kind that it tells its clients of, without those of the core API."""
        groups = json.loads(self.request("GET", "/apis", accept=_DISCOVERY))["items"]
        return {
            f"/apis/{group['metadata']['name']}/{version['version']}/{kind['resource']}"
            for group in groups
            for version in group["versions"]
            for kind in version.get("resources", [])
        }

    def create(self, document: Mapping[str, Any]) -> Any:
        """A new object; its kind and namespace say where."""
        return self.post(collection(document), document)

    def post(self, path: str, document: Mapping[str, Any]) -> Any:
        """What the server makes of it there."""
        return json.loads(self.request("POST", path, document))

    def apply(self, document: Mapping[str, Any]) -> Any:
        """Server-side apply: created or brought to what is given."""
        path = f"{collection(document)}/{document['metadata']['name']}"
        query = {"fieldManager": "pacemark-lab", "force": "true"}
        # urllib3 takes no query beside a body.
        path += "?" + "&".join(f"{key}={value}" for key, value in query.items())
        return json.loads(self.request("PATCH", path, document, content=APPLY))

    def merge(self, path: str, change: Any) -> Any:
        """Change a part of an object."""
        return json.loads(self.request("PATCH", path, change, content=MERGE))

    def delete(self, path: str) -> None:
        """Delete it and, in the background, what it owns."""
        self.request("DELETE", path, {"propagationPolicy": "Background"})

    def watch(self, path: str, version: str, seconds: int) -> Iterator[Any]:
        """Events behind `version`, until the server ends the watch after `seconds`."""
        query = {"watch": "1", "resourceVersion": version, "timeoutSeconds": str(seconds)}
        timeout = urllib3.Timeout(connect=5, read=seconds + 30)
        try:
            answer = self._pool.request(
                "GET",
                self.server + path,
                fields=query,
                headers=self._headers,
                timeout=timeout,
                preload_content=False,
            )
            if answer.status >= 400:
                raise ApiError(answer.status, f"watch {path}: {answer.status}: {_message(answer.data)}")
            rest = b""
            for chunk in answer.stream(2**16):
                *lines, rest = (rest + chunk).split(b"\n")
                yield from (json.loads(line) for line in lines)
        except HTTPError as error:
            raise ApiError(0, f"watch {path}: {error}") from error


def collection(document: Mapping[str, Any]) -> str:
    """The path of the objects of its kind, in its namespace if it names one."""
    group, kind = document["apiVersion"], document["kind"]
    prefix = f"/apis/{group}" if "/" in group else f"/api/{group}"
    namespace = document["metadata"].get("namespace")
    place = f"/namespaces/{namespace}" if namespace else ""
    plural = kind.lower() if kind.endswith("s") else f"{kind.lower()}s"
    if kind.endswith("Class"):
        plural = f"{kind.lower()}es"
    elif kind.endswith("y"):
        plural = f"{kind.lower()[:-1]}ies"
    return f"{prefix}{place}/{plural}"


def _message(data: bytes) -> str:
    """What a Status object says, else the answer as it is."""
    try:
        return str(json.loads(data)["message"])
    except (ValueError, KeyError, TypeError):
        return data.decode(errors="replace").strip()
