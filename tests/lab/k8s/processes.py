"""Containers that are really run: those of a set-up's Jobs, whose scripts are part of what is tested, and those of one image.

Their claim is a folder of the lab, their ConfigMap is written beside it, and their paths are turned to both.
"""

from __future__ import annotations

import base64
import os
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.lab import daemons
from tests.lab.k8s.api import Api, ApiError
from tests.lab.k8s.standins import Said

_SETUP = "pacemark/setup"
REAL = "registry.test/runs-on-this-machine:1"
"""What a container of this image is told to run is run with the programs of this machine."""
_PAUSE = 0.05


def is_meant(pod: Mapping[str, Any]) -> bool:
    """Whether this pod's container is run."""
    images = {container.get("image") for container in pod["spec"]["containers"]}
    return _SETUP in pod["metadata"].get("labels", {}) or images == {REAL}


def volume(root: Path, namespace: str, claim: str) -> Path:
    """What is on a claim."""
    return root / "volumes" / namespace / claim


def run(pod: Mapping[str, Any], api: Api, root: Path) -> Said:
    """Its output; the process ends with the pod."""
    metadata, (container,) = pod["metadata"], pod["spec"]["containers"]
    volumes = {one["name"]: one for one in pod["spec"]["volumes"]}
    places: dict[str, Path] = {}
    for mount in container["volumeMounts"]:
        source = volumes.get(mount["name"], {})
        if "persistentVolumeClaim" in source:
            place = volume(root, metadata["namespace"], source["persistentVolumeClaim"]["claimName"])
        else:
            place = root / "pods" / metadata["namespace"] / metadata["uid"] / mount["name"]
        if "configMap" in source:
            yield from _wait_for_files(api, metadata["namespace"], source["configMap"]["name"], place)
        place.mkdir(parents=True, exist_ok=True)
        places[mount["mountPath"]] = place
    command = [_turned(word, places) for word in (*container["command"], *container.get("args", []))]
    process = subprocess.Popen(
        command,
        env=_environment(pod, container, api, places),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    assert process.stdout is not None
    os.set_blocking(process.stdout.fileno(), False)
    rest = b""
    try:
        while True:
            over = process.poll() is not None
            *lines, rest = (rest + (process.stdout.read() or b"")).split(b"\n")
            for line in lines:
                yield 0.0, line.decode(errors="replace")
            if over:
                return process.returncode
            yield _PAUSE, None
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()


def _wait_for_files(api: Api, namespace: str, name: str, place: Path) -> Said:
    """As a kubelet: no container before what it mounts is there."""
    while True:
        try:
            files = api.get(f"/api/v1/namespaces/{namespace}/configmaps/{name}")["data"]
            break
        except ApiError:
            yield 0.2, None
    place.mkdir(parents=True)
    for file, text in files.items():
        (place / file).write_text(text)
    return None


def _environment(
    pod: Mapping[str, Any], container: Mapping[str, Any], api: Api, places: Mapping[str, Path]
) -> dict[str, str]:
    found = {"PATH": os.environ["PATH"], daemons.MARK: os.environ.get(daemons.MARK, "")}
    metadata = pod["metadata"]
    for entry in container.get("env", []):
        source = entry.get("valueFrom", {})
        if "fieldRef" in source:
            field, _, key = source["fieldRef"]["fieldPath"].partition("['")
            found[entry["name"]] = metadata[field.partition(".")[2]][key.removesuffix("']")]
        elif "secretKeyRef" in source:
            wanted = source["secretKeyRef"]
            try:
                secret = api.get(f"/api/v1/namespaces/{metadata['namespace']}/secrets/{wanted['name']}")
            except ApiError:
                continue  # optional
            found[entry["name"]] = base64.b64decode(secret["data"][wanted["key"]]).decode()
        else:
            found[entry["name"]] = _turned(entry.get("value", ""), places)
    return found


def _turned(word: str, places: Mapping[str, Path]) -> str:
    """A path inside of the container as the lab has it."""
    for mount, place in places.items():
        if word == mount or word.startswith(f"{mount}/"):
            return str(place) + word.removeprefix(mount)
    return word
