"""The fleet and checkpoints: one at a time, the load behind its save, nothing left, whatever becomes of them."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from fixtures.fleet.state import Policy
from fixtures.runs.checkpoints import is_kept, is_left, to_remove
from plugins.base.errors import Infrastructure, SiteError, Unreachable
from plugins.modes.artefacts import Artefacts
from plugins.recipes.cases import Case
from plugins.record.job import JobRef
from tests.printed.nemo2 import nemo2_line
from tests.unit import examples
from tests.unit.cluster import BROKEN, NARROW, Cluster, Session, Start, failing, until
from tests.unit.jobs_log import planned
from tests.unit.modes.test_saved_checkpoints import NAME, SAVES, left, steps

SAVE = examples.case("70b-checkpoint-fp8-512gpus")
LOAD = examples.case("70b-checkpoint-load-fp8-512gpus")
OTHER = examples.case("70b-checkpoint-bf16-256gpus")
UNSAVED, WHOLE = ("\n".join([*steps(), *saves, ""]) for saves in ([], SAVES))


class Storage(Cluster):
    """A cluster that keeps what jobs save: `kept` are the jobs whose checkpoint is there."""

    def __init__(self, *saves: Case) -> None:
        super().__init__()
        self.artefacts = left()
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

    def examine(self, case: Case, job: JobRef) -> Artefacts:
        return self.artefacts

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


def ends(session: Session) -> list[str]:
    """How the cases ended, in the order in which they were given."""
    entries = session.finish()
    return [entries[case.id].failure for case in session.cases]


def breaks(cluster: Storage) -> None:
    """Let the first job of `SAVE` break before it saves."""
    cluster.ends[SAVE.id], cluster.logs[SAVE.id] = [BROKEN], UNSAVED


def test_the_load_follows_its_save_with_its_path_and_then_nothing_is_left(
    cluster: Storage, start: Start
) -> None:
    session = start(LOAD, SAVE)
    assert ends(session) == ["", ""]
    assert cluster.submitted == [SAVE.id, LOAD.id]
    assert cluster.loaded == [f"{cluster.artefacts.folder}/{NAME}"]
    assert cluster.kept == set()
    assert f"{SAVE.key}: its checkpoint in /lustre/1 is removed" in session.messages()
    assert to_remove(session.ledger) == []


def test_a_kept_checkpoint_is_told_and_no_sweep_removes_it(cluster: Storage, start: Start) -> None:
    session = start(SAVE, LOAD, policy=Policy(keep_checkpoints=True))
    assert ends(session) == ["", ""]
    assert cluster.kept == {SAVE.id}
    advice = "is kept; to remove it: ssh login01 rm -r /lustre/1"
    assert sum(advice in line for line in session.messages()) == 1
    assert to_remove(session.ledger) == []
    # A session that goes on with the run knows it.
    assert is_kept(session.ledger, OTHER.key)


def test_no_load_waits_for_a_save_that_this_session_does_not_run(cluster: Storage, tmp_path: Path) -> None:
    session = Session(tmp_path, cluster, [LOAD, SAVE], Policy())
    session.resume(tmp_path, cluster, [planned(LOAD, "slurm", LOAD.id)])
    until(lambda: session.job(LOAD).status == "ended")
    session.fleet.stop()
    assert (session.job(LOAD).failure, cluster.submitted) == ("interrupted", [])
    assert f"this session does not run {SAVE.id}" in session.job(LOAD).message


def test_one_checkpoint_is_there_at_a_time_and_other_cases_are_not_held_up(
    cluster: Storage, start: Start
) -> None:
    cluster.gate.clear()
    cluster.run(NARROW)
    session = start(SAVE, LOAD, OTHER, NARROW)
    until(lambda: all(session.job(case).status == "ended" for case in (SAVE, LOAD)))
    # The fleet goes round at least once more.
    del cluster.ends[NARROW.id]
    until(lambda: session.job(NARROW).status == "ended")
    # The first is not removed yet.
    assert OTHER.id not in cluster.submitted
    cluster.gate.set()
    assert ends(session) == [""] * 4
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
    match fault:
        case "died":
            breaks(cluster)
        case "cut off":
            cluster.artefacts = left(without="metadata.json")
        case "no line":
            cluster.logs[SAVE.id] = UNSAVED
        case "no room":
            cluster.on_submit = failing(SiteError("site big: its checkpoint takes 988 GB"))
        case "unseen":
            cluster.use(examine=failing(Infrastructure("nobody knows the folder of its job")))
        case "damaged":
            damaged = Infrastructure("artefacts.json is damaged: its text: Invalid JSON")
            monkeypatch.setattr("fixtures.fleet.checkpoints.read_artefacts", failing(damaged))
    entry = start(LOAD, SAVE).end()
    assert entry.failure == "skipped"
    assert f"{SAVE.id} saved nothing that can be loaded: " in entry.message
    assert why in entry.message
    assert (cluster.submitted, cluster.kept) == ([SAVE.id], set())


def test_a_try_that_failed_leaves_nothing_for_the_next_one(cluster: Storage, start: Start) -> None:
    breaks(cluster)
    session = start(SAVE, policy=Policy(retries=1))
    assert ends(session) == [""]
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
    assert ends(session) == [""]
    (line,) = (line for line in session.messages() if f"its checkpoint is NOT removed: {error}" in line)
    assert "by hand: ssh login01 rm -r /lustre/1" in line
    assert to_remove(session.ledger) == [SAVE.key]


def test_a_session_that_is_stopped_removes_what_its_job_saved(cluster: Storage, start: Start) -> None:
    cluster.run(SAVE)
    session = start(SAVE, LOAD)
    session.await_submitted(SAVE)
    session.fleet.stop()
    assert ends(session) == ["interrupted", "interrupted"]
    assert cluster.kept == set()
    assert not is_left(session.ledger, SAVE.key)


def test_what_a_try_left_that_could_not_be_removed_then_is_removed_at_the_end(
    cluster: Storage, start: Start
) -> None:
    breaks(cluster)
    discard, refused = cluster.discard, [Unreachable("ssh: no answer")]

    def once(job: JobRef) -> str:
        if refused:
            raise refused.pop()
        return discard(job)

    cluster.use(discard=once)
    session = start(SAVE, policy=Policy(retries=1))
    assert ends(session) == [""]
    assert cluster.kept == set()
    assert to_remove(session.ledger) == []
