"""The copy of a namespace's objects: what is kept of those that are gone."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from fixtures.backends.kubernetes.informer import Informer
from plugins.base.errors import Unreachable


class Feed:
    """Stands in for the API: three objects, two of which are deleted in front of the watch."""

    def __init__(self) -> None:
        # What is there besides, whatever its labels.
        self.there: list[dict[str, Any]] = []
        self.told = threading.Event()
        self._begun = False
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
        if query.get("labelSelector") or not self.there:
            return {"items": items, "metadata": {"resourceVersion": "1"}}
        items = [item("before", ends=True), item("first", ends=True), *self.there]
        return {"items": [*items, item("another's", labels={})], "metadata": {"resourceVersion": "3"}}

    @contextlib.contextmanager
    def stream(self, path: str, seconds: int, **query: str) -> Iterator[Feed]:
        yield self

    def events(self) -> Iterator[dict[str, Any]]:
        if not self._begun:
            self._begun = True
            yield {"type": "MODIFIED", "object": item("first", ends=True)}
            yield {"type": "DELETED", "object": item("second")}
            yield {"type": "MODIFIED", "object": item("before", ends=True)}
            self.told.set()
        self._over.wait(5)

    def stop(self) -> None:
        self._over.set()


OURS = {"app.kubernetes.io/managed-by": "pacemark"}


def item(name: str, *, ends: bool = False, labels: dict[str, str] = OURS, **more: Any) -> dict[str, Any]:
    metadata = {"name": name, "uid": f"uid of {name}", "resourceVersion": "2", "labels": labels}
    return {"metadata": metadata | ({"deletionTimestamp": "2026-11-21T09:00:00Z"} if ends else {}), **more}


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


def until_there_is(watch: Informer, name: str, **fields: Any) -> None:
    """Until the copy has this object with these fields."""
    deadline = time.monotonic() + 60
    while not fields.items() <= watch.look().objects.get(name, {}).items():
        assert time.monotonic() < deadline, watch.look()
        time.sleep(0.01)


LABEL = "app.kubernetes.io/managed-by=pacemark"


def test_what_lost_our_label_is_followed_on() -> None:
    """A watch with a selector calls it deleted, as it was before (apiserver, storage/cacher/cache_watcher.go, convertToWatchEvent)."""
    feed = Feed()
    feed.there = [item("second", labels={}, phase="Succeeded")]
    watch = Informer(feed, "/apis/any", LABEL)  # type: ignore[arg-type]
    try:
        watch.look()
        until_there_is(watch, "second", phase="Succeeded")
        copy = watch.look()
        assert sorted(copy.objects) == ["before", "first", "second"]
        assert copy.deleted == {}
    finally:
        watch.close()


def test_another_object_of_the_name_did_not_lose_our_label() -> None:
    feed = Feed()
    feed.there = [again(item("second"))]
    watch = Informer(feed, "/apis/any", LABEL)  # type: ignore[arg-type]
    try:
        watch.look()
        assert feed.told.wait(60)
        copy = watch.look()
        assert sorted(copy.objects) == ["before", "first"]
        assert list(copy.deleted) == ["second"]
    finally:
        watch.close()


class Blind(Feed):
    """The watch's version is forgotten, and of the two objects one has lost our label meanwhile."""

    def get(self, path: str, **query: str) -> Any:
        listed = super().get(path, **query)
        if self.told.is_set() and query.get("labelSelector"):
            listed["items"].pop()
        return listed

    def events(self) -> Iterator[dict[str, Any]]:
        if not self.told.is_set():
            self.told.set()
            yield {"type": "ERROR", "object": {"code": 410, "message": "too old resource version"}}
        self._over.wait(60)


def test_what_lost_our_label_while_nobody_watched_is_followed_on() -> None:
    feed = Blind()
    feed.there = [item("second", labels={}, phase="Running")]
    watch = Informer(feed, "/apis/any", LABEL)  # type: ignore[arg-type]
    try:
        watch.look()
        until_there_is(watch, "second", phase="Running")
        assert watch.look().deleted == {}
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


class Mute(Forgetful):
    """A proxy that holds back the events of each watch until the connection is given up."""

    def get(self, path: str, **query: str) -> Any:
        return {**super().get(path, **query), "items": [item(f"list {self.lists}")]}

    def events(self) -> Iterator[dict[str, Any]]:
        raise Unreachable("the watch broke off: Read timed out")
        yield


def test_a_watch_that_said_nothing_until_it_broke_is_followed_by_a_new_list() -> None:
    feed = Mute()
    watch = Informer(feed, "/apis/any", "")  # type: ignore[arg-type]
    try:
        with contextlib.suppress(Unreachable):
            watch.look()
        deadline = time.monotonic() + 60
        while watch.last_known("list 2") is None:
            assert time.monotonic() < deadline
            time.sleep(0.01)
    finally:
        watch.close()
