"""Sessions whose cluster is a recording: `-p tests.recordings.played` is the plugin, with the file's path in $PLAYED."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from fixtures.backends.base import Backend
from fixtures.backends.kubernetes import job_states, reasons
from fixtures.backends.kubernetes.section import Kubernetes
from fixtures.backends.recorded import Recording
from fixtures.backends.redaction import secrets_of
from fixtures.backends.slurm.section import Slurm
from fixtures.fleet import settle
from fixtures.served import make_backends
from fixtures.session import prospects
from fixtures.session.choices import CHOICES

RECORDINGS = Path(__file__).parent
MISSING = "the session did not ask for: "
_PLAYED: list[Recording] = []


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    def played(*arguments: Any, **options: Any) -> Mapping[str, Backend]:
        backends = make_backends(*arguments, **options)
        run, secrets = config.stash[CHOICES].folder.name, secrets_of(os.environ)
        _PLAYED.append(Recording(Path(os.environ["PLAYED"]), run, secrets))
        for backend in backends.values():
            backend.wire(_PLAYED[-1])
        if marks := os.environ.get("PLAYED_MARKS"):
            threading.Thread(target=pass_marks, args=(_PLAYED[-1], Path(marks)), daemon=True).start()
        return backends

    vars(prospects)["make_backends"] = played
    # A recording is asked as often as one likes, and answers at once.
    for section in (Kubernetes, Slurm):
        section.fastest_poll = 0.1
    vars(reasons)["_SHORTEST_PAUSE"] = vars(job_states)["_SIDECAR_SECONDS"] = 0.5
    vars(settle)["ASK_AGAIN_SECONDS"] = 1.0


def pass_marks(recording: Recording, marks: Path) -> None:
    """Pass a mark for each line that the test writes into this file."""
    passed = 0
    while True:
        for _ in range(passed, marks.stat().st_size):
            recording.pass_mark()
            passed += 1
        time.sleep(0.02)


def pytest_unconfigure() -> None:
    for recording in _PLAYED:
        for line in recording.missing:
            print(f"{MISSING}{line.get('ask')} {line.get('key')}{line.get('script', '')}")
