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
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from urllib.parse import parse_qs, urlparse

from tests.unit.kubeapi import Handler, Server

_BEGAN = datetime(2026, 11, 21, 9, tzinfo=UTC)
Line = tuple[str, str]


@dataclass(eq=False)
class _Follower:
    """One who follows: which file, how much of it, and how many files it has heard of since it came to an end first."""

    file: int
    at: int = 0
    heard: int | None = None
    cut: bool = False


class Kubelet(Server):
    """`follows`: for each request whether it follows. `status`: what each is refused with; `deaf`: it hears of no new file."""

    def __init__(self) -> None:
        super().__init__()
        self.files: list[list[Line]] = [[]]
        self.follows: list[bool] = []
        self.followers: list[_Follower] = []
        self.status, self.clock = 0, 0.0
        self.deaf = self.ended = False
        # Held by whoever wants those who follow to fall behind.
        self.changed = threading.Condition()

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
        super().close()

    def respond(self, request: Handler) -> None:
        try:
            self._answer(request)
        except OSError:
            # Cut, by either side: no end is sent.
            request.close_connection = True

    def _answer(self, request: Handler) -> None:
        query = {key: value[-1] for key, value in parse_qs(urlparse(request.path).query).items()}
        follows = query.get("follow") == "true"
        self.follows.append(follows)
        if self.status:
            request.answer(self.status, b'{"kind": "Status", "reason": "NotFound"}')
            return
        since, begun = query.get("sinceTime", "")[:19], False
        for lines in self._followed(request.connection) if follows else self._newest():
            shown = "".join(f"{stamp} {text}" for stamp, text in lines if stamp[:19] >= since).encode()
            if shown:
                begun = begun or request.begin_chunks()
                request.chunk(shown)
        if not begun:
            request.begin_chunks()
        request.chunk(b"")

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
