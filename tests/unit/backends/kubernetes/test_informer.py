"""The copy of a namespace's objects: what is kept of those that are gone."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from fixtures.backends.kubernetes.informer import Informer


class Feed:
    """Stands in for the API: one object, which is deleted in front of the watch."""

    def __init__(self) -> None:
        self.told = threading.Event()
        self._over = threading.Event()

    def get(self, path: str, **query: str) -> Any:
        return {"items": [_item()], "metadata": {"resourceVersion": "1"}}

    @contextlib.contextmanager
    def stream(self, path: str, seconds: int, **query: str) -> Iterator[Feed]:
        yield self

    def events(self) -> Iterator[dict[str, Any]]:
        if not self.told.is_set():
            yield {"type": "DELETED", "object": _item()}
            self.told.set()
        self._over.wait(5)

    def stop(self) -> None:
        self._over.set()


def _item() -> dict[str, Any]:
    return {"metadata": {"name": "one", "resourceVersion": "2"}}


@pytest.mark.parametrize("selector", ["app.kubernetes.io/managed-by=pacemark", ""])
def test_only_what_is_ours_is_remembered_when_it_is_gone(selector: str) -> None:
    feed = Feed()
    watch = Informer(feed, "/apis/any", selector)  # type: ignore[arg-type]
    try:
        watch.look()
        assert feed.told.wait(60)
        copy = watch.look()
        assert copy.objects == {}
        assert (list(copy.deleted), list(copy.leaving)) == ((["one"], ["one"]) if selector else ([], []))
    finally:
        watch.close()
