"""The fleet and checkpoints: one at a time, the load behind its save, nothing left, whatever becomes of them."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from fixtures.fleet.controller import Fleet
from fixtures.fleet.state import Policy
from fixtures.runs.checkpoints import is_kept, is_left, to_remove
from fixtures.runs.ledger import Ledger
from fixtures.runs.planned import PlannedJob
from plugins.base.errors import Infrastructure, SiteError, Unreachable
from plugins.recipes.cases import Case
from plugins.record.job import Job, JobRef
from plugins.record.lines import JOBS_LOG
from tests.unit import examples
from tests.unit.cluster import BROKEN, NARROW, RUNNING, Cluster, Session, Site, Start, told
from tests.unit.examples import nemo2_line
from tests.unit.jobs_log import planned
from tests.unit.modes.test_saved_checkpoints import NAME, SAVES, left, steps

SAVE = examples.case("70b-checkpoint-fp8-512gpus")
LOAD = examples.case("70b-checkpoint-load-fp8-512gpus")
OTHER = examples.case("70b-checkpoint-bf16-256gpus")
WHOLE = "\n".join([*steps(), *SAVES]) + "\n"


class Storage(Cluster):
    """A cluster that keeps what jobs save: `kept` are the jobs whose checkpoint is there."""

    def __init__(self, *saves: Case) -> None:
        super().__init__()
        self.found = left()
        self.kept: set[str] = set()
        self.most = 0
        self.loaded: list[str] = []
        self.trouble: Exception | None = None
        self.gate = threading.Event()
        self.gate.set()
        self.logs = {name: WHOLE for case in saves for name in (case.id, f"{case.id}-try2")}
        self.logs[LOAD.id] = nemo2_line(0, last=0) + "\n"

    def submit(self, case: Case, name: str, excluded: tuple[str, ...] = ()) -> JobRef:
        ref = super().submit(case, name, excluded)
        if case.after is not None:
            self.loaded.append(case.loads)
            assert case.after.id in self.kept
        if case.leaves_checkpoint:
            self.kept.add(name)
            self.most = max(self.most, len(self.kept))
        return ref

    def examine(self, case: Case, job: JobRef, known: str) -> tuple[str, bool]:
        return self.found.model_dump_json(), True

    def discard(self, job: JobRef) -> str:
        assert self.gate.wait(60)
        if self.trouble is not None:
            raise self.trouble
        self.kept.discard(job.name)
        return f"/lustre/{job.id}"

    def keeping(self, job: JobRef) -> str:
        return f"ssh login01 rm -r /lustre/{job.id}"


@pytest.fixture
def cluster() -> Storage:
    return Storage(SAVE, OTHER)


def ends(session: Session, *cases: Case) -> Sequence[str]:
    entries = session.finish()
    return [entries[case.id].failure for case in cases]


def entry(session: Session, case: Case) -> Job:
    return session.entries()[case.id]


def test_the_load_follows_its_save_with_its_path_and_then_nothing_is_left(
    cluster: Storage, start: Start
) -> None:
    session = start(LOAD, SAVE)
    assert ends(session, SAVE, LOAD) == ["", ""]
    assert cluster.submitted == [SAVE.id, LOAD.id]
    assert cluster.loaded == [f"{cluster.found.folder}/{NAME}"]
    assert cluster.kept == set()
    assert any(f"{SAVE.key}: its checkpoint in /lustre/1 is removed" in line for line in told(session))
    assert to_remove(session.ledger) == []


def test_a_save_alone_is_removed_at_its_end(cluster: Storage, start: Start) -> None:
    assert ends(start(SAVE), SAVE) == [""]
    assert cluster.kept == set()


def test_a_kept_checkpoint_is_told_and_no_sweep_removes_it(cluster: Storage, start: Start) -> None:
    session = start(SAVE, LOAD, policy=Policy(keep_checkpoints=True))
    assert ends(session, SAVE, LOAD) == ["", ""]
    assert cluster.kept == {SAVE.id}
    said = [line for line in told(session) if "is kept; to remove it: ssh login01 rm -r /lustre/1" in line]
    assert len(said) == 1
    assert to_remove(session.ledger) == []
    # A session that goes on with the run knows it.
    assert is_kept(session.ledger, OTHER.key)


def test_no_load_waits_for_a_save_that_this_session_does_not_run(cluster: Storage, tmp_path: Path) -> None:
    path = tmp_path / JOBS_LOG
    ledger = Ledger.create(path, "run-1", "lab")
    ledger.plan([planned(case, "slurm", case.id) for case in (SAVE, LOAD)])
    plan = PlannedJob(LOAD, "slurm", JobRef(LOAD.recipe, LOAD.id, LOAD.id), "nemo2")
    fleet = Fleet(tmp_path, ledger, [plan], {"slurm": cluster}, {"slurm": Site(gpu="h100")}, Policy())
    fleet.start()
    for thread in fleet._threads:
        thread.join(60)
    ended = ledger.entry(LOAD.key)
    fleet.stop()
    assert ended is not None
    assert (ended.failure, cluster.submitted) == ("interrupted", [])
    assert f"this session does not run {SAVE.id}" in ended.message


def test_one_checkpoint_is_there_at_a_time_and_other_cases_are_not_held_up(
    cluster: Storage, start: Start
) -> None:
    cluster.gate.clear()
    session = start(SAVE, LOAD, OTHER, NARROW)
    deadline = time.monotonic() + 60
    while any(entry(session, case).status != "ended" for case in (SAVE, LOAD, NARROW)):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    # The first is not removed yet.
    assert OTHER.id not in cluster.submitted
    cluster.gate.set()
    assert ends(session, OTHER) == [""]
    assert (cluster.most, cluster.kept) == (1, set())


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        ("died", "its job 1 ended NODE_FAIL"),
        ("cut off", "the save was cut off: there is no metadata.json"),
        ("no room", "infrastructure: site big: its checkpoint takes 988 GB"),
        ("no line", "no checkpoint was written"),
        ("unseen", "nobody has looked at what it left on the cluster"),
        ("damaged", "artefacts.json is damaged"),
    ],
)
def test_without_a_whole_checkpoint_the_load_is_never_submitted(
    cluster: Storage, start: Start, fault: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if fault == "died":
        cluster.ends[SAVE.id], cluster.logs[SAVE.id] = [BROKEN], "\n".join(steps()) + "\n"
    elif fault == "cut off":
        cluster.found = left(without="metadata.json")
    elif fault == "no line":
        cluster.logs[SAVE.id] = "\n".join(steps()) + "\n"
    elif fault == "no room":

        def refuse(name: str) -> None:
            raise SiteError("site big: its checkpoint takes 988 GB")

        cluster.on_submit = refuse
    elif fault == "unseen":

        def fail(*_: object) -> tuple[str, bool]:
            raise Infrastructure("nobody knows the folder of its job")

        monkeypatch.setattr(cluster, "examine", fail)
    else:
        monkeypatch.setattr(cluster, "examine", lambda *_: (cluster.found.model_dump_json(), True))
        monkeypatch.setattr("fixtures.fleet.checkpoints.read_artefacts", _damaged)
    session = start(SAVE, LOAD)
    session.finish()
    assert entry(session, LOAD).failure == "skipped"
    assert f"{SAVE.id} saved nothing that can be loaded: " in entry(session, LOAD).message
    assert why in entry(session, LOAD).message
    assert cluster.submitted == [SAVE.id]
    assert cluster.kept == set()


def _damaged(folder: Path) -> None:
    raise Infrastructure("artefacts.json is damaged: its text: Invalid JSON")


def test_a_try_that_failed_leaves_nothing_for_the_next_one(cluster: Storage, start: Start) -> None:
    cluster.ends[SAVE.id], cluster.logs[SAVE.id] = [BROKEN], "\n".join(steps()) + "\n"
    session = start(SAVE, policy=Policy(retries=1))
    assert ends(session, SAVE) == [""]
    assert cluster.submitted == [SAVE.id, f"{SAVE.id}-try2"]
    assert (cluster.most, cluster.kept) == (1, set())
    assert (session.fleet.folder / SAVE.key / "try-1" / "artefacts.json").exists()


@pytest.mark.parametrize(
    "error", [Infrastructure("/lustre/x: rm: Permission denied"), Unreachable("ssh: /lustre/x")]
)
def test_a_removal_that_fails_is_told_and_left_to_the_next_sweep(
    cluster: Storage, start: Start, error: Exception
) -> None:
    cluster.trouble = error
    session = start(SAVE)
    assert ends(session, SAVE) == [""]
    said = [line for line in told(session) if f"its checkpoint is NOT removed: {error}" in line]
    assert len(said) == 1
    assert "by hand: ssh login01 rm -r /lustre/1" in said[0]
    assert to_remove(session.ledger) == [SAVE.key]


def test_a_session_that_is_stopped_removes_what_its_job_saved(cluster: Storage, start: Start) -> None:
    cluster.ends[SAVE.id] = [RUNNING]
    session = start(SAVE, LOAD)
    while SAVE.id not in cluster.submitted or entry(session, SAVE).status != "submitted":
        time.sleep(0.01)
    session.fleet.stop()
    assert ends(session, SAVE, LOAD) == ["interrupted", "interrupted"]
    assert cluster.kept == set()
    assert not is_left(session.ledger, SAVE.key)


def test_what_a_try_left_that_could_not_be_removed_then_is_removed_at_the_end(
    cluster: Storage, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.ends[SAVE.id], cluster.logs[SAVE.id] = [BROKEN], "\n".join(steps()) + "\n"
    discard, refused = cluster.discard, [Unreachable("ssh: no answer")]

    def once(job: JobRef) -> str:
        if refused:
            raise refused.pop()
        return discard(job)

    monkeypatch.setattr(cluster, "discard", once)
    session = start(SAVE, policy=Policy(retries=1))
    assert ends(session, SAVE) == [""]
    assert cluster.kept == set()
    assert to_remove(session.ledger) == []
