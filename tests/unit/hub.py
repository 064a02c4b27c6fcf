"""A Hugging Face hub on loopback, as far as a data set's download talks to it, and Megatron's preprocessing."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

_PAGE = 3
# Writes what Megatron's tool writes: a .bin and an .idx of that prefix; here a byte for each document.
PREPROCESS = """\
import argparse, glob, os, sys, time
parser = argparse.ArgumentParser()
for name in ("input", "output-prefix", "tokenizer-type", "vocab-file", "merge-file", "workers"):
    parser.add_argument("--" + name, required=True)
parser.add_argument("--append-eod", action="store_true", required=True)
given = parser.parse_args()
documents = open(given.input).read().splitlines()
prefix = given.output_prefix + "_text_document"
with open(prefix + ".bin", "w") as file:
    file.write("b" * len(documents))
    file.flush()
    if os.environ.get("HOLD") and glob.glob(os.environ["HOLD"] + "/*.bin"):
        time.sleep(600)
if os.environ.get("BROKEN") and os.environ["BROKEN"] in given.input:
    sys.exit("RuntimeError: no memory left")
open(prefix + ".idx", "w").write(str(len(documents)))
"""


def megatron(folder: Path) -> Path:
    """A folder with Megatron's tool."""
    (folder / "tools").mkdir(parents=True)
    (folder / "tools" / "preprocess_data.py").write_text(PREPROCESS)
    return folder


class Hub:
    """Serves `files` (contents by path) of any data set. What was asked is in `asked`: path and token.

    `busy`: how many of the next requests for files it answers with 429; `cut`: how many of the next files it sends by
    half; `tickets`: if there are any, each takes one, and waits for it. Files come from another host than the one that is asked.
    """

    def __init__(self, files: dict[str, bytes]) -> None:
        self.files = files
        self.asked: list[tuple[str, str]] = []
        self.busy = 0
        self.cut = 0
        self.tickets: threading.Semaphore | None = None
        hub = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                hub.answer(self)

            def log_message(self, *_: Any) -> None:
                pass

        class Server(ThreadingHTTPServer):
            def handle_error(self, *_: Any) -> None:
                """Who asks may be killed before the answer."""

        self._server = Server(("127.0.0.1", 0), Handler)
        self._port = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self._port}"
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        path, _, query = request.path.partition("?")
        self.asked.append((request.path, request.headers.get("Authorization", "")))
        if "/api/datasets/" in path:
            self._list(request, path, query)
        elif "/resolve/" in path:
            if self.busy > 0:
                self.busy -= 1
                _send(request, 429, b"slow down", {"Retry-After": "0"})
                return
            # As the hub does: the bytes are elsewhere.
            place = path.split("/resolve/main/")[1]
            _send(request, 302, b"", {"Location": f"http://localhost:{self._port}/bytes/{place}"})
        else:
            self._bytes(request, path.removeprefix("/bytes/"))

    def _list(self, request: BaseHTTPRequestHandler, path: str, query: str) -> None:
        start = int(query.partition("start=")[2] or 0)
        names = sorted(self.files)
        page = [{"type": "file", "path": n, "size": len(self.files[n])} for n in names[start : start + _PAGE]]
        more = {}
        if start + _PAGE < len(names):
            more["Link"] = f'<{self.url}{path}?start={start + _PAGE}>; rel="next"'
        folder = {"type": "directory", "path": "train/chunk1", "size": 0}
        _send(request, 200, json.dumps([folder, *page]).encode(), more)

    def _bytes(self, request: BaseHTTPRequestHandler, place: str) -> None:
        known = {"vocab.json": b"{}", "merges.txt": b"#version"}
        content = {**known, **self.files}.get(place)
        if self.tickets is not None and place not in known:
            self.tickets.acquire()
        if content is None:
            _send(request, 404, b"", {})
        elif self.cut > 0 and place not in known:
            self.cut -= 1
            _send(request, 200, content[: len(content) // 2], {})
        else:
            _send(request, 200, content, {})


def _send(request: BaseHTTPRequestHandler, status: int, content: bytes, headers: dict[str, str]) -> None:
    request.send_response(status)
    for name, value in headers.items():
        request.send_header(name, value)
    request.send_header("Content-Length", str(len(content)))
    request.end_headers()
    request.wfile.write(content)
