"""What a pod's log costs that is read, or followed, through the API server, and what its copy costs that is judged: memory and seconds.

Each in a process of its own, of a short log and of a long one: memory is flat where both take the same.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlparse

from fixtures.backends.base import LogPlace
from fixtures.backends.kubernetes.api import Api
from fixtures.backends.kubernetes.follow import Logs
from fixtures.backends.kubernetes.section import Kubernetes
from plugins.logs.formats import parser, read
from plugins.record.job import JobRef
from tests.bench.parsing import CHATTER, PIECE, STEPS
from tests.bench.report import Row, print_table, print_target
from tests.unit import kubeapi

SHORT, LONG = 2 * 10**6, 200 * 10**6
MORE = 16.0
"""MB that a log may take besides, however long it is: what is held of it until it is taken, and pieces of it."""
_BEGAN = datetime(2026, 11, 21, 9, tzinfo=UTC)
# Lines a second, as of many ranks that warn at once; and in a chunk.
_A_SECOND, _PART = 100_000, 1000
_STEPS = 50
_WAYS = ("read", "follow", "parse")
_JOB = JobRef("llama3_gke", "70b-fp8-128gpus", "run.llama3_gke-70b", "pm-1", "default")


@dataclass(frozen=True)
class Cost:
    """`memory`: MB that the process held at most beyond what it held before it began."""

    memory: float
    seconds: float

    def rows(self, size: int) -> list[Row]:
        return [("memory", "MB", self.memory), ("rate", "MB/s", size / 1e6 / self.seconds)]


class Served:
    """A pod's log of about so many bytes, many lines a second, behind what looks like an API server."""

    def __init__(self, size: int) -> None:
        self._lines = size // len(CHATTER)
        self._every = self._lines // _STEPS
        self._chatter = [b".%06d000Z %b" % (part, CHATTER) for part in range(_A_SECOND)]
        served = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                served._answer(self)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        steps = sum(len(self._step(number)) for number in range(_STEPS))
        self.size = steps + (self._lines - _STEPS) * len(CHATTER)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _answer(self, request: BaseHTTPRequestHandler) -> None:
        query = parse_qs(urlparse(request.path).query)
        request.send_response(200)
        request.send_header("Transfer-Encoding", "chunked")
        request.end_headers()
        with contextlib.suppress(OSError):
            for piece in self._pieces(query.get("sinceTime", [""])[0]):
                request.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            if "follow" in query:
                # Until the other side closes it.
                request.connection.recv(1)
            else:
                request.wfile.write(b"0\r\n\r\n")
        request.close_connection = "follow" in query

    def _pieces(self, since: str) -> Iterator[bytes]:
        passed = datetime.fromisoformat(since) - _BEGAN if since else timedelta()
        first = max(0, round(passed.total_seconds()) * _A_SECOND)
        for begin in range(first, self._lines, _PART):
            second, part = divmod(begin, _A_SECOND)
            stamp = f"{_BEGAN + timedelta(seconds=second):%Y-%m-%dT%H:%M:%S}".encode()
            count = min(_PART, self._lines - begin)
            lines = [stamp + line for line in self._chatter[part : part + count]]
            for step in range(-(-begin // self._every), min(_STEPS, -(-(begin + count) // self._every))):
                number = step * self._every - begin
                lines[number] = lines[number].replace(CHATTER, self._step(step))
            yield b"".join(lines)

    def _step(self, number: int) -> bytes:
        return STEPS["nemo2"][0].format(i=number, n=(number + 1) * 128).encode()


def measure(way: str, url: str, size: int, folder: Path) -> None:
    """What one way costs this process, which prints it."""
    copy = folder / "log.txt"
    steps = parser("nemo2")
    section = Kubernetes(gpu="h100", kubeconfig=str(kubeapi.kubeconfig(folder / "config", url)))
    api = Api("bench", section)
    # What is imported at the first request, and what the first line costs, is no part of it.
    api.read("/api/v1/namespaces/default/pods/pm-1-0/log", query={"sinceTime": "2027-01-01T00:00:00Z"})
    steps.feed(CHATTER)
    held, began = _most(), time.perf_counter()
    if way == "parse":
        with copy.open("rb") as file:
            found = read("nemo2", iter(lambda: file.read(PIECE), b"")).steps
    else:
        logs, place, over = Logs(api), LogPlace("pm-1-0"), way == "read"
        with copy.open("wb") as file:
            while place.offset < size:
                piece = logs.read(_JOB, ("default", "pm-1-0", "workload"), place, runs=not over, over=over)
                place = piece.place
                file.write(piece.data)
                steps.feed(piece.data)
                if not piece.data:
                    time.sleep(0.01)
        logs.close()
        found = steps.log().steps
    assert len(found) == _STEPS
    print(json.dumps({"memory": _most() - held, "seconds": time.perf_counter() - began}))


def _most() -> float:
    """MB that this process has held at most. What getrusage says may be of the process that started it."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def costs(size: int) -> tuple[int, dict[str, Cost]]:
    """The log's size, and what each way costs."""
    served, found = Served(size), {}
    with tempfile.TemporaryDirectory() as folder:
        for way in _WAYS:
            command = [sys.executable, "-m", "tests.bench.podlogs", way, served.url, str(served.size), folder]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            found[way] = Cost(**json.loads(done.stdout))
    served.close()
    return served.size, found


def main() -> None:
    (small, short), (size, long) = costs(SHORT), costs(LONG)
    for way in _WAYS:
        columns = [short[way].rows(small), long[way].rows(size)]
        print_table(f"a pod's log: {way}", [f"{small / 1e6:.0f} MB", f"{size / 1e6:.0f} MB"], columns)
        print_target(
            f"{way}: a long log takes no more than {MORE:g} MB",
            long[way].memory <= MORE,
            f"{long[way].memory:.0f} MB",
        )


if __name__ == "__main__":
    if len(sys.argv) > 1:
        measure(sys.argv[1], sys.argv[2], int(sys.argv[3]), Path(sys.argv[4]))
    else:
        main()
