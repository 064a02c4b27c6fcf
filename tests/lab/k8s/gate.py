"""A gate before the lab's API server: what passes it can be held up, cut off, refused, or have its answer lost.

    with Gate(lab) as gate:
        site = ... gate.kubeconfig(kubeconfig) ...
        gate.on("POST .*/jobsets", "lose the answer")

It ends the TLS of its clients with the server's own certificate, so that it sees their requests. They must come with
tokens: a client's certificate does not pass.
"""

from __future__ import annotations

import contextlib
import re
import socket
import ssl
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import BinaryIO
from urllib.parse import urlparse

from tests.lab.k8s.cluster import KubernetesLab
from tests.lab.k8s.config import HOST

# What becomes of a request: it waits until it is let go; it never arrives; it arrives, but its answer does not; its answer
# breaks off in the middle. Anything else is the answer that it gets, such as "429 Too Many Requests\r\nRetry-After: 1".
HOLD, CUT, LOSE, BREAK = "hold", "cut", "lose the answer", "break the answer off"
_HALF = 700


@dataclass
class Rule:
    """For requests that `pattern` matches, as `GET /api/v1/pods?watch=true`; for the next `times` of them."""

    pattern: str
    what: str
    times: int
    met: threading.Event = field(default_factory=threading.Event)
    over: threading.Event = field(default_factory=threading.Event)

    def let_go(self) -> None:
        """From now on requests pass; those that were held do too."""
        self.times = 0
        self.over.set()


class Gate:
    """Listens on loopback. Open, and without rules, until it is told otherwise."""

    def __init__(self, lab: KubernetesLab) -> None:
        self._lab = lab
        self._rules: list[Rule] = []
        # What each was opened for; "" for those of clients.
        self._open: dict[socket.socket, str] = {}
        # The patterns of what was cut.
        self._cuts: list[str] = []
        self._lock = threading.Lock()
        self._server: socket.socket | None = None
        # While it is shut nobody else gets its port, as an outgoing connection would.
        self._place = socket.socket()
        self._place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._place.bind((HOST, 0))
        self.port: int = self._place.getsockname()[1]

    def __enter__(self) -> Gate:
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for rule in self._rules:
            rule.let_go()
        self.shut()
        self._place.close()

    def kubeconfig(self, original: Path) -> Path:
        """The same user, by way of the gate."""
        path = original.with_name(f"{original.name}-gate")
        path.write_text(original.read_text().replace(self._lab.server, f"https://{HOST}:{self.port}"))
        path.chmod(0o600)
        return path

    def on(self, pattern: str, what: str, times: int = 1 << 30) -> Rule:
        """Do this to requests that match from now on."""
        rule = Rule(pattern, what, times)
        self._rules.append(rule)
        return rule

    def open(self) -> None:
        """Take connections, at the same port as ever."""
        self._server = socket.create_server((HOST, self.port))
        threading.Thread(target=self._accept, args=(self._server,), daemon=True).start()

    def shut(self) -> None:
        """Refuse connections, and cut those that there are."""
        if self._server is not None:
            with contextlib.suppress(OSError):
                self._server.shutdown(socket.SHUT_RDWR)
            self._server.close()
            self._server = None
        self.cut()

    def cut(self, pattern: str = "") -> None:
        """Cut the connections that there are for such requests, also those that are still being opened. New ones are taken."""
        with self._lock:
            self._cuts.append(pattern)
            for connection, line in self._open.items():
                if re.search(pattern, line):
                    _cut(connection)

    def _accept(self, server: socket.socket) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        pki = self._lab.root / "pki"
        context.load_cert_chain(pki / "server.crt", pki / "server.key")
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            # A client may have sent its request before the thread has opened its side.
            threading.Thread(
                target=self._serve, args=(connection, context, len(self._cuts)), daemon=True
            ).start()

    def _serve(self, plain: socket.socket, context: ssl.SSLContext, cuts: int) -> None:
        with contextlib.suppress(OSError, ValueError):
            client = context.wrap_socket(plain, server_side=True)
            with self._held(client, "", cuts), client.makefile("rb") as requests:
                while (request := _request(requests)) is not None and self._pass(client, request, cuts):
                    pass

    def _pass(self, client: socket.socket, request: bytes, cuts: int) -> bool:
        """Carry a request over, by the rules; whether the connection goes on."""
        line = request.partition(b" HTTP/")[0].decode()
        rule = self._rule(line)
        what = rule.what if rule is not None else ""
        if rule is not None:
            rule.met.set()
            if what == HOLD:
                rule.over.wait()
            elif what == CUT:
                return False
            elif what not in (LOSE, BREAK):
                client.sendall(f"HTTP/1.1 {what}\r\nContent-Length: 0\r\n\r\n".encode())
                return True
        address = urlparse(self._lab.server)
        trusted = ssl.create_default_context(cafile=str(self._lab.root / "pki" / "ca.crt"))
        made = socket.create_connection((address.hostname or HOST, address.port or 0), timeout=10)
        made.settimeout(None)
        with self._held(trusted.wrap_socket(made, server_hostname=HOST), line, cuts) as server:
            # One request a connection, so that its answer ends where the connection does.
            server.sendall(request.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n", 1))
            left = _HALF if what == BREAK else 1 << 62
            while left > 0 and (data := server.recv(1 << 16)):
                if what == LOSE:
                    return False
                client.sendall(data[:left])
                left -= len(data)
        return False

    def _rule(self, line: str) -> Rule | None:
        """The rule for this request, which is one less to come for it."""
        with self._lock:
            rule = next(
                (rule for rule in self._rules if rule.times > 0 and re.search(rule.pattern, line)), None
            )
            if rule is not None:
                rule.times -= 1
            return rule

    @contextlib.contextmanager
    def _held(self, connection: socket.socket, line: str, cuts: int) -> Iterator[socket.socket]:
        """Hold a connection that was begun after so many cuts."""
        with self._lock:
            self._open[connection] = line
            if any(re.search(pattern, line) for pattern in self._cuts[cuts:]):
                _cut(connection)
        try:
            yield connection
        finally:
            with self._lock:
                del self._open[connection]
            _cut(connection)
            connection.close()


def _cut(connection: socket.socket) -> None:
    """Whoever reads from it gets its end. It is not closed: its thread would then use what has its number next."""
    with contextlib.suppress(OSError):
        # TLS forgets its keys if it is asked itself, and its thread would carry on what is encrypted.
        socket.socket.shutdown(connection, socket.SHUT_RDWR)


def _request(stream: BinaryIO) -> bytes | None:
    """The next request with its body; None where there is none."""
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        line = stream.readline()
        if not line:
            return None
        head += line
    length = re.search(rb"(?i)^content-length: *(\d+)", head, re.MULTILINE)
    return head + (stream.read(int(length[1])) if length else b"")
