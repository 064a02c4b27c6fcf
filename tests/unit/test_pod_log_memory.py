"""A long log of a pod takes no more memory than a short one, whether it is read or followed: all was held once, twice as text and as lines."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import parse_qs, urlparse

import pytest

from fixtures.backends.base import LogPlace
from fixtures.backends.kubernetes.api import Api
from fixtures.backends.kubernetes.follow import Logs
from fixtures.backends.kubernetes.section import Kubernetes
from plugins.logs.formats import parser
from plugins.record.job import JobRef
from tests.printed.nemo2 import nemo2_line
from tests.unit import kubeapi

STEPS, LINES = 50, 250
MOST = 20e6
"""What is held of a log until it is taken, and pieces of it, in bytes."""
JOB = JobRef("llama3_gke", "70b-fp8-128gpus", "run.llama3_gke-70b", "pm-1", "default")
LONG = f"a warning of some rank that says nothing about any step {'.' * 2000}\n" * LINES
NOW = b"2026-11-21T09:00:%02d.000000Z"
STAMPED = b"".join(b"NOW " + line + b"\n" for line in LONG.encode().splitlines())


class Handler(BaseHTTPRequestHandler):
    """The API server, as far as this log goes: a second of the container's clock for each step."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        query = parse_qs(urlparse(self.path).query)
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        with suppress(OSError):
            for step in range(STEPS):
                stamp = NOW % step
                if stamp.decode() >= query.get("sinceTime", [""])[0]:
                    piece = STAMPED.replace(b"NOW", stamp) + b"%b %b\n" % (stamp, nemo2_line(step).encode())
                    self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            if "follow" in query:
                # Until the other side closes it.
                self.connection.recv(1)
            else:
                self.wfile.write(b"0\r\n\r\n")
        self.close_connection = "follow" in query

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def logs(folder: Path) -> Iterator[Logs]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    config = kubeapi.kubeconfig(folder / "config", f"http://127.0.0.1:{server.server_address[1]}")
    made = Logs(Api("site", Kubernetes(gpu="h100", kubeconfig=str(config))))
    yield made
    made.close()
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("runs", [False, True], ids=["read", "followed"])
def test_a_long_log_takes_no_more_memory(tmp_path: Path, runs: bool) -> None:
    steps, place, size = parser("nemo2"), LogPlace("pm-1-0"), 0
    with logs(tmp_path) as source:
        tracemalloc.start()
        while steps.log().last_index != STEPS - 1:
            piece = source.read(JOB, ("default", "pm-1-0", "workload"), place, runs=runs, over=not runs)
            place, size = piece.place, size + len(piece.data)
            steps.feed(piece.data)
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert len(steps.log().steps) == STEPS
    assert size == sum(len(LONG) + len(nemo2_line(step)) + 1 for step in range(STEPS)) > MOST
    assert most < MOST
