"""What `--sweep`, `--cancel` and `--resume` do with the checkpoints that a dead run left."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from fixtures.fleet.controller import Fleet
from fixtures.fleet.state import Policy
from fixtures.runs.checkpoints import is_kept, is_left, to_remove
from fixtures.runs.ledger import Ledger
from fixtures.runs.leftovers import cancel_left
from fixtures.runs.planned import PlannedJob
from fixtures.runs.resume import resumed
from fixtures.session.requirements import require_saves
from plugins.base.errors import ConfigError, Infrastructure
from plugins.record.folder import make_case_folder
from plugins.record.job import Checkpoint, JobRef, JobState, Phase
from plugins.record.lines import JOBS_LOG
from tests.unit.cluster import RUNNING
from tests.unit.cluster import Site as Machine
from tests.unit.fleet.test_checkpoints import LOAD, SAVE, Storage
from tests.unit.jobs_log import planned
from tests.unit.runs.test_leftovers import Lab, keep_house

DONE = JobState(Phase.SUCCEEDED, "COMPLETED")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A dead run whose save ended well, and whose load was never sent."""
    made = tmp_path / "run-1"
    made.mkdir()
    ledger = Ledger.create(made / JOBS_LOG, "run-1", "lab")
    ledger.plan([planned(case, "slurm", f"pacemark-run-1.{case.id}") for case in (SAVE, LOAD)])
    ledger.intend(SAVE.key)
    ledger.submitted(JobRef(SAVE.recipe, SAVE.id, f"pacemark-run-1.{SAVE.id}", "5", "/stage/x/y"))
    ledger.observe(SAVE.key, DONE)
    ledger.end(SAVE.key, "", "")
    for case in (SAVE, LOAD):
        make_case_folder(made / case.key)
    return made


def cluster() -> Storage:
    made = Storage()
    made.kept = {f"pacemark-run-1.{SAVE.id}"}
    return made


def finished(folder: Path) -> None:
    ledger = Ledger(folder / JOBS_LOG)
    ledger.end(LOAD.key, "interrupted", "")
    ledger.finish()


def test_a_sweep_removes_what_a_run_left_that_itself_has_ended(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    finished(folder)
    storage = cluster()
    assert keep_house(folder, storage, monkeypatch, site="other") == 1
    assert "run run-1 left 1 checkpoint on site lab, not on other" in capsys.readouterr().out
    assert storage.kept
    assert keep_house(folder, storage, monkeypatch) == 0
    assert storage.kept == set()
    assert f"{SAVE.key}: its checkpoint in /lustre/5 is removed" in capsys.readouterr().out
    assert keep_house(folder, storage, monkeypatch) == 0
    assert "left a job or a checkpoint on site lab" in capsys.readouterr().out


def test_a_removal_that_fails_is_tried_by_each_sweep(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    finished(folder)
    storage = cluster()
    storage.trouble = Infrastructure("/stage/x/y: it is a link")
    for _ in range(2):
        assert keep_house(folder, storage, monkeypatch) == 1
        said = capsys.readouterr().out.replace("\\n", "\n")
        assert "NOT removed: /stage/x/y: it is a link\n    by hand: ssh" in said
    assert to_remove(Ledger(folder / JOBS_LOG)) == [SAVE.key]


def test_what_is_kept_on_purpose_survives_a_sweep(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    finished(folder)
    note(folder, "to be kept")
    storage = cluster()
    assert keep_house(folder, storage, monkeypatch) == 0
    assert storage.kept


def test_nothing_is_removed_while_a_job_may_use_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = Ledger(folder / JOBS_LOG)
    ledger.intend(LOAD.key)
    ledger.submitted(JobRef(LOAD.recipe, LOAD.id, f"pacemark-run-1.{LOAD.id}", "6", "/stage/x/z"))
    storage, file = cluster(), io.StringIO()
    monkeypatch.setattr(storage, "cancel", lambda _: None)
    monkeypatch.setattr("fixtures.runs.unconfirmed.LOOK_SECONDS", 0.05)
    storage.ends[f"pacemark-run-1.{LOAD.id}"] = [RUNNING]
    assert not cancel_left(folder, Lab(site="lab"), {"slurm": storage}, file)
    assert "its checkpoint is left: job 6 may still run" in file.getvalue()
    assert storage.kept


def test_a_case_that_was_never_submitted_left_nothing(tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path / JOBS_LOG, "run-1", "lab")
    ledger.plan([planned(SAVE, "slurm", "save")])
    assert (to_remove(ledger), is_left(ledger, SAVE.key)) == ([], False)
    ledger.intend(SAVE.key)
    assert (to_remove(ledger), is_left(ledger, SAVE.key)) == ([SAVE.key], True)
    # Its launcher was cut off, and no job appeared.
    ledger.end(SAVE.key, "interrupted", "there is no job")
    storage, file = cluster(), io.StringIO()
    assert cancel_left(tmp_path, Lab(site="lab"), {"slurm": storage}, file)
    assert (to_remove(Ledger(ledger.path)), file.getvalue()) == ([], "")


def note(folder: Path, fate: Checkpoint) -> None:
    ledger = Ledger(folder / JOBS_LOG)
    ledger.note_checkpoints(ledger.tries(SAVE.key), fate)


def plans() -> list[PlannedJob]:
    refs = [(case, JobRef(case.recipe, case.id, f"pacemark-run-1.{case.id}")) for case in (SAVE, LOAD)]
    return [PlannedJob(case, "slurm", ref, "nemo2") for case, ref in refs]


def go_on(folder: Path, storage: Storage | None = None) -> dict[str, str]:
    ledger, storage = Ledger(folder / JOBS_LOG), storage or cluster()
    jobs = resumed(ledger, "lab", plans(), {"slurm": storage})
    fleet = Fleet(folder, ledger, jobs, {"slurm": storage}, {"slurm": Machine(gpu="h100")}, Policy())
    fleet.start()
    for thread in fleet._threads:
        thread.join(60)
    return {job.case: f"{job.failure}: {job.message}" for job in ledger.entries()}


def test_a_run_that_goes_on_removes_what_it_finds_at_its_end(folder: Path) -> None:
    ledger = Ledger(folder / JOBS_LOG)
    ledger.end(LOAD.key, "infrastructure", "")
    storage = cluster()
    go_on(folder, storage)
    assert storage.kept == set()
    assert to_remove(Ledger(folder / JOBS_LOG)) == []


@pytest.mark.parametrize("noted", [True, False])
def test_a_run_that_was_told_to_keep_a_checkpoint_goes_on_to_keep_it(folder: Path, noted: bool) -> None:
    """Without the option. It was noted of the case, or of the whole run."""
    if noted:
        note(folder, "to be kept")
    else:
        Ledger(folder / JOBS_LOG).keep_checkpoints()
    storage = cluster()
    go_on(folder, storage)
    assert storage.kept == {f"pacemark-run-1.{SAVE.id}"}
    assert is_kept(Ledger(folder / JOBS_LOG), SAVE.key)
    assert to_remove(Ledger(folder / JOBS_LOG)) == []


@pytest.mark.parametrize(
    ("removed", "reason"),
    [
        # Its save has passed. If its test were skipped, the session would exit with 0.
        (True, f"it was not submitted: the checkpoint of {SAVE.id} is removed already; run both again"),
        # This session may not have the save's test.
        (False, f"{SAVE.id} saved nothing that can be loaded: infrastructure: node gpu001 died"),
    ],
)
def test_a_load_whose_checkpoint_is_removed_or_whose_save_failed_in_an_earlier_session_fails(
    folder: Path, removed: bool, reason: str
) -> None:
    if removed:
        note(folder, "removed")
    else:
        Ledger(folder / JOBS_LOG).end(SAVE.key, "infrastructure", "node gpu001 died")
    storage = cluster()
    assert go_on(folder, storage)[LOAD.key] == f"interrupted: {reason}"
    assert storage.submitted == []


def test_a_load_that_was_skipped_is_asked_about_again(folder: Path) -> None:
    ledger = Ledger(folder / JOBS_LOG)
    ledger.end(LOAD.key, "skipped", "the save was lost")
    assert [plan.case for plan in resumed(ledger, "lab", plans(), {})] == [LOAD]
    assert {entry.case: entry.status for entry in ledger.entries()}[LOAD.key] == "planned"


def test_a_load_alone_is_one_error() -> None:
    require_saves([SAVE, LOAD], ())
    require_saves([LOAD], {SAVE.key})
    words = f"{LOAD.key} loads what {SAVE.id} saves, which is not selected: select both"
    with pytest.raises(ConfigError, match=words):
        require_saves([LOAD], ())
