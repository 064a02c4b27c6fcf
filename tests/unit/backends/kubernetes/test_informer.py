"""The copy of a namespace's objects: what is kept of those that are gone."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from fixtures.backends.kubernetes.informer import Informer


class Feed:
    """Stands in for the API: three objects, two of which are deleted in front of the watch."""

    def __init__(self) -> None:
        # What is there besides, whatever its labels.
        self.there: list[dict[str, Any]] = []
        self.told = threading.Event()
        self._over = threading.Event()

    def get(self, path: str, **query: str) -> Any:
        if "fieldSelector" in query:
            assert query == {"fieldSelector": f"metadata.name={query['fieldSelector'].partition('=')[2]}"}
            return {
                "items": [
                    each for each in self.there if query["fieldSelector"].endswith(each["metadata"]["name"])
                ]
            }
        items = [item("before", ends=True), item("first"), item("second")]
        return {"items": items, "metadata": {"resourceVersion": "1"}}

    @contextlib.contextmanager
    def stream(self, path: str, seconds: int, **query: str) -> Iterator[Feed]:
        yield self

    def events(self) -> Iterator[dict[str, Any]]:
        if not self.told.is_set():
            yield {"type": "MODIFIED", "object": item("first", ends=True)}
            yield {"type": "DELETED", "object": item("second")}
            yield {"type": "MODIFIED", "object": item("before", ends=True)}
            self.told.set()
        self._over.wait(5)

    def stop(self) -> None:
        self._over.set()


def item(name: str, *, ends: bool = False) -> dict[str, Any]:
    metadata = {"name": name, "uid": f"uid of {name}", "resourceVersion": "2"}
    return {"metadata": metadata | ({"deletionTimestamp": "2026-11-21T09:00:00Z"} if ends else {})}


@pytest.mark.parametrize("selector", ["app.kubernetes.io/managed-by=pacemark", ""])
def test_only_what_is_ours_is_remembered_when_it_is_gone(selector: str) -> None:
    feed = Feed()
    watch = Informer(feed, "/apis/any", selector)  # type: ignore[arg-type]
    try:
        watch.look()
        assert feed.told.wait(60)
        copy = watch.look()
        assert list(copy.objects) == ["before", "first"]
        assert list(copy.deleted) == (["second"] if selector else [])
        # The end of one was asked for before anybody watched.
        assert copy.leaving.get("uid of before", 0) == 0
        order = sorted(
            (uid for uid, place in copy.leaving.items() if place), key=lambda uid: copy.leaving[uid]
        )
        assert order == (["uid of first", "uid of second"] if selector else [])
    finally:
        watch.close()


@pytest.mark.parametrize("there", [True, False])
def test_what_lost_our_label_was_not_deleted(there: bool) -> None:
    """A watch with a selector calls it deleted, as it was before (apiserver, storage/cacher/cache_watcher.go, convertToWatchEvent)."""
    feed = Feed()
    feed.there = [item("second")] if there else [again(item("second"))]
    watch = Informer(feed, "/apis/any", "app.kubernetes.io/managed-by=pacemark")  # type: ignore[arg-type]
    try:
        watch.look()
        assert feed.told.wait(60)
        copy = watch.look()
        assert ("second" in copy.objects) == there
        assert ("second" in copy.deleted) != there
    finally:
        watch.close()


def again(made: dict[str, Any]) -> dict[str, Any]:
    """Another object of the same name."""
    return {"metadata": {**made["metadata"], "uid": "another"}}


class Forgetful(Feed):
    """An API server, or a proxy in front of it, that answers 410 to every watch."""

    def __init__(self) -> None:
        super().__init__()
        self.lists = 0

    def get(self, path: str, **query: str) -> Any:
        self.lists += 1
        return super().get(path, **query)

    def events(self) -> Iterator[dict[str, Any]]:
        yield {"type": "ERROR", "object": {"code": 410, "message": "too old resource version"}}


def test_a_server_that_forgets_every_version_is_asked_after_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    feed, pauses = Forgetful(), list[float]()
    watch = Informer(feed, "/apis/any", "")  # type: ignore[arg-type]
    enough = threading.Event()

    def wait(seconds: float) -> bool:
        pauses.append(seconds)
        if len(pauses) == 8:
            enough.set()
        return enough.is_set()

    monkeypatch.setattr(watch._ended, "wait", wait)
    monkeypatch.setattr(watch._ended, "is_set", enough.is_set)
    try:
        # What was listed is not in doubt.
        assert list(watch.look().objects) == ["before", "first", "second"]
        assert enough.wait(60)
    finally:
        watch.close()
    assert pauses == [0.25, 0.5, 1, 2, 4, 5, 5, 5]
    assert feed.lists == 8
