"""Cloud Storage on this machine: gcp-storage-emulator, spoken to by the same google-cloud-storage as the real one.

    with BucketLab() as lab:
        lab.put("gs://bucket/a/name", b"...")
        ...                                     # STORAGE_EMULATOR_HOST=lab.url

It keeps objects in memory, listens on loopback and asks nobody who he is.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any

import urllib3

from tests.lab import daemons, ports, reaper
from tests.lab.daemons import Daemon, LabError

HOST = "127.0.0.1"


class BucketLab:
    """One storage, empty at first."""

    def __init__(self) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="pmb-", dir="/tmp"))
        self.url = ""
        self._ports: ports.Block | None = None
        self._daemon: Daemon | None = None
        self._reaper: subprocess.Popen[bytes] | None = None
        self._client: Any = None

    def __enter__(self) -> BucketLab:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self, seconds: float = 300.0) -> None:
        """Bring it up and wait until it answers; LabError, with its log's tail, if it does not."""
        from google.auth.credentials import AnonymousCredentials
        from google.cloud.storage import Client

        self._reaper = reaper.start(self.root, keep=False)
        self._ports = ports.claim_block(1)
        self.url = f"http://{HOST}:{self._ports.base}"
        argv = [sys.executable, "-m", "gcp_storage_emulator", "start", "--in-memory", "--quiet"]
        self._daemon = Daemon(
            "gcp-storage-emulator",
            [*argv, "--host", HOST, "--port", str(self._ports.base)],
            {**os.environ, daemons.MARK: str(self.root)},
            self.root / "log",
        )
        self._daemon.start()
        deadline = time.monotonic() + seconds
        while not self._answers():
            self._daemon.check()
            if time.monotonic() > deadline:
                raise LabError(f"the storage was not ready in time:\n{daemons.tail(self._daemon.log)}")
            time.sleep(0.1)
        options = {"api_endpoint": self.url}
        self._client = Client("lab", credentials=AnonymousCredentials(), client_options=options)

    def stop(self) -> None:
        """End it, in a bounded time; nothing of it is left."""
        if self._client is not None:
            self._client.close()
        if self._daemon is not None:
            self._daemon.stop()
        daemons.clear(self.root, self._ports, self._reaper)

    def make(self, bucket: str) -> None:
        """A bucket, if there is none of this name."""
        if not self._client.bucket(bucket).exists(timeout=60, retry=None):
            self._client.create_bucket(bucket, timeout=60, retry=None)

    def remove(self, bucket: str) -> None:
        """The bucket goes with all that is in it."""
        self._client.bucket(bucket).delete(force=True, timeout=60)

    def put(self, url: str, data: bytes) -> None:
        """Write an object `gs://bucket/name`, also over an old one; the bucket must be there."""
        bucket, _, name = url.removeprefix("gs://").partition("/")
        self._client.bucket(bucket).blob(name).upload_from_string(data, timeout=60, retry=None)

    def _answers(self) -> bool:
        try:
            return urllib3.request("GET", f"{self.url}/", timeout=2, retries=False).status == 200
        except urllib3.exceptions.HTTPError:
            return False
