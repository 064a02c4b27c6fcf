"""A pod's log behind an API server on loopback, which serves it as a kubelet's `ReadLogs` does (k8s.io/cri-client, pkg/logs).

What of that is kept here: a read shows the newest file alone. Who follows gets a file to its end, hears of each file that was made
since it came to an end first, one after the other, and at each of these words goes on with whatever file is the newest by then, from
its beginning. Nothing is answered, not even headers, before there is a line.
"""

from __future__ import annotations

import select
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlparse

_BEGAN = datetime(2026, 11, 21, 9, tzinfo=UTC)
Line = tuple[str, str]


@dataclass(eq=False)
class _Follower:
    """One who follows: which file, how much of it, and how many files it has heard of since it came to an end first."""

    file: int
    at: int = 0
    heard: int | None = None
    cut: bool = False


@dataclass
class Kubelet:
    """`asked`: for each request whether it follows. `status`: what each is refused with; `deaf`: it hears of no new file."""

    files: list[list[Line]] = field(default_factory=lambda: [[]])
    asked: list[bool] = field(default_factory=list)
    followers: list[_Follower] = field(default_factory=list)
    status: int = 0
    deaf: bool = False
    ended: bool = False
    clock: float = 0.0

    def __post_init__(self) -> None:
        # Held by whoever wants those who follow to fall behind.
        self.changed = threading.Condition()
        kubelet = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                try:
                    kubelet._answer(self)
                except OSError:
                    # Cut, by either side: no end is sent.
                    self.close_connection = True

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def say(self, text: str, seconds: float = 0.01) -> None:
        """A line, so long after the one before."""
        with self.changed:
            self.clock += seconds
            stamp = f"{_BEGAN + timedelta(seconds=self.clock):%Y-%m-%dT%H:%M:%S.%f}000Z"
            self.files[-1].append((stamp, f"{text}\n"))
            self.changed.notify_all()

    def rotate(self) -> None:
        with self.changed:
            self.files.append([])
            self.changed.notify_all()

    def cut(self) -> None:
        """Break the connections of all who follow."""
        with self.changed:
            for follower in self.followers:
                follower.cut = True
            self.changed.notify_all()

    def end(self) -> None:
        """The container exits."""
        with self.changed:
            self.ended = True
            self.changed.notify_all()

    def wait(self, followers: int, seconds: float = 60.0) -> bool:
        """Whether so many follow, and have all there is."""

        def there() -> bool:
            behind = [one for one in self.followers if one.at < len(self.files[one.file])]
            return len(self.followers) == followers and not behind

        with self.changed:
            return self.changed.wait_for(there, seconds)

    def close(self) -> None:
        self.cut()
        self._server.shutdown()
        self._server.server_close()

    def _answer(self, request: BaseHTTPRequestHandler) -> None:
        query = {key: value[-1] for key, value in parse_qs(urlparse(request.path).query).items()}
        follows = query.get("follow") == "true"
        self.asked.append(follows)
        if self.status:
            request.send_response(self.status)
            body = b'{"kind": "Status", "reason": "NotFound"}'
            request.send_header("Content-Length", str(len(body)))
            request.end_headers()
            request.wfile.write(body)
            return
        since, begun = query.get("sinceTime", "")[:19], False
        for lines in self._followed(request.connection) if follows else self._newest():
            shown = "".join(f"{stamp} {text}" for stamp, text in lines if stamp[:19] >= since).encode()
            if shown and not begun:
                self._begin(request)
                begun = True
            if shown:
                request.wfile.write(b"%x\r\n%b\r\n" % (len(shown), shown))
        if not begun:
            self._begin(request)
        request.wfile.write(b"0\r\n\r\n")

    def _begin(self, request: BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        request.send_header("Transfer-Encoding", "chunked")
        request.end_headers()

    def _newest(self) -> Iterator[list[Line]]:
        with self.changed:
            lines = list(self.files[-1])
        yield lines

    def _followed(self, connection: socket.socket) -> Iterator[list[Line]]:
        with self.changed:
            me = _Follower(len(self.files) - 1)
            self.followers.append(me)
            self.changed.notify_all()
        try:
            while (lines := self._next(me, connection)) is not None:
                yield lines
        finally:
            with self.changed:
                self.followers.remove(me)
                self.changed.notify_all()

    def _next(self, me: _Follower, connection: socket.socket) -> list[Line] | None:
        """More of the log; None at its end."""
        with self.changed:
            while True:
                if me.cut or _is_closed(connection):
                    raise ConnectionResetError
                lines = self.files[me.file][me.at :]
                if lines:
                    me.at += len(lines)
                    self.changed.notify_all()
                    return lines
                if self.ended:
                    return None
                if me.heard is None:
                    me.heard = len(self.files)
                elif me.heard < len(self.files) and not self.deaf:
                    me.heard += 1
                    me.file, me.at = len(self.files) - 1, 0
                else:
                    self.changed.wait(0.05)


def _is_closed(connection: socket.socket) -> bool:
    """By the other side, which says nothing more."""
    readable, _, _ = select.select([connection], [], [], 0)
    return bool(readable) and connection.recv(1, socket.MSG_PEEK) == b""
