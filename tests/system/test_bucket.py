"""Cloud Storage through its own client: what is read, what is refused, and how long nobody is waited for."""

from __future__ import annotations

import importlib
import socket
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from fixtures.backends.base import LogCopy, LogPlace
from fixtures.backends.kubernetes import gcs as bucket
from fixtures.backends.kubernetes.facts import Pod
from fixtures.backends.kubernetes.gcs import Storage, Unreadable, fetch
from tests.lab.buckets import BucketLab
from tests.system.support import GUARD, NO_STORAGE

NOBODY = Path("requirements.txt")


@pytest.fixture(scope="module", autouse=True)
def _imported() -> None:
    """What the first read imports takes longer than an answer may."""
    for name in ("google.auth", "google.api_core.exceptions", "google.cloud.storage"):
        importlib.import_module(name)


@pytest.fixture
def storage(bucket_lab: BucketLab, monkeypatch: pytest.MonkeyPatch) -> Storage:
    for name, bound in (("_ANSWER_SECONDS", 300.0), ("_CHECK_SECONDS", 300.0), ("_TIMEOUT", (300.0, 300.0))):
        monkeypatch.setattr(bucket, name, bound)
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", bucket_lab.url)
    bucket_lab.make("read")
    return Storage(NOBODY)


def test_an_object_is_read_whole_with_the_time_of_its_last_writing(
    storage: Storage, bucket_lab: BucketLab
) -> None:
    url = "gs://read/some folder/näme.json"
    bucket_lab.put(url, b"old")
    first = storage.read(url)
    assert first.data == b"old"
    bucket_lab.put(url, b"new\n" * 100_000)
    second = storage.read(url)
    assert second.data == b"new\n" * 100_000
    assert first.at < second.at
    assert abs(second.at - datetime.now(UTC)) < timedelta(minutes=1)


def test_what_is_missing_is_named(storage: Storage) -> None:
    with pytest.raises(Unreadable, match="there is no such object"):
        storage.read("gs://read/other")
    with pytest.raises(Unreadable, match="there is no bucket nowhere"):
        storage.read("gs://nowhere/other")
    assert (storage.lacks("nowhere"), storage.lacks("read")) == (True, False)


def test_what_an_earlier_life_wrote_is_not_the_last_ones(storage: Storage, bucket_lab: BucketLab) -> None:
    bucket_lab.put("gs://read/life", b"steps")
    copy = LogCopy(LogPlace(), "gs://read/life", "the pod is gone")

    def of(began: datetime) -> LogCopy:
        return fetch(storage, copy, Pod({"status": {"startTime": f"{began:%Y-%m-%dT%H:%M:%SZ}"}}))

    later = of(datetime.now(UTC) + timedelta(minutes=1))
    assert later.data is None
    assert "before the job's last start at" in later.trouble
    assert of(datetime.now(UTC) - timedelta(minutes=1)).data == b"steps"
    assert fetch(storage, copy, None).data == b"steps"


def test_nobody_there_is_a_reason_and_lacks_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", NO_STORAGE)
    with pytest.raises(Unreadable, match="Connection refused"):
        Storage(NOBODY).read("gs://a/b")
    assert not Storage(NOBODY).lacks("a")


def test_one_who_never_answers_is_waited_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bucket, "_ANSWER_SECONDS", 1.0)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", f"http://127.0.0.1:{silent.getsockname()[1]}")
        storage = Storage(NOBODY)
        for _ in range(20):
            with pytest.raises(Unreadable, match="no answer within 1 s"):
                storage.read("gs://a/b")
        # It may connect only after it was given up.
        silent.settimeout(GUARD)
        silent.accept()[0].close()
        silent.setblocking(False)
        # Whoever waits each time connects each time.
        with pytest.raises(BlockingIOError):
            silent.accept()


def test_without_credentials_it_says_how_to_get_some(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("STORAGE_EMULATOR_HOST", "GOOGLE_APPLICATION_CREDENTIALS"):
        monkeypatch.delenv(name, raising=False)
    # Nobody's gcloud, and no look for a metadata server.
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    with pytest.raises(Unreadable, match="gcloud auth application-default login"):
        Storage(NOBODY).read("gs://a/b")
    assert not Storage(NOBODY).lacks("a")
