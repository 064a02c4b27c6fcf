"""Checkpoints and profiles on a login node, by real bash: what is read of them, and that nothing else is ever removed."""

from __future__ import annotations

import json
import os
import re
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fixtures.backends.shell import Answer
from fixtures.backends.slurm.backend import SlurmBackend
from fixtures.backends.ssh import files
from fixtures.backends.ssh.connection import SshConnection
from plugins.base.errors import Infrastructure, SiteError, SubmitError, Unreachable
from plugins.modes import nsys
from plugins.recipes.cases import Case
from plugins.record.job import JobRef
from tests.unit import examples
from tests.unit.backends.slurm.login import Login
from tests.unit.modes.simulator import export, simulate

SAVE = examples.case("8b-checkpoint-bf16-16gpus")
LOAD = examples.case("8b-checkpoint-load-bf16-16gpus")
NAME = "pacemark-run-1.llama3-8b-checkpoint-bf16-16gpus"
JOB = "4711"
BELOW = "code/nemo_experiments/default/checkpoints"
CHECKPOINT = "default--None=0.0000-epoch=0-consumed_samples=12800.0"
FILES = ("__0_0.distcp", "__0_1.distcp", ".metadata", "metadata.json")


class Saving(Login):
    """A login node where jobs leave checkpoints."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(root, monkeypatch)
        self.folder = self.stage / "experiments" / "x_1744382464" / "x"
        self.slurm = self.backend(examples.llama3())

    def job(self, folder: object = None, job: str = JOB) -> JobRef:
        return JobRef(SAVE.recipe, SAVE.id, NAME, job, str(self.folder if folder is None else folder))

    def save(self, folder: Path | None = None, job: str = JOB) -> Path:
        """What a job leaves in its folder. Returns the checkpoint."""
        folder = folder or self.folder
        weights = folder / BELOW / CHECKPOINT / "weights"
        weights.mkdir(parents=True)
        for name in FILES:
            (weights / name).write_text("data")
        (folder / f"log-a.x_{job}_0.out").write_text("log")
        return weights.parent

    def discard(self, folder: object = None, job: str = JOB) -> str:
        return self.slurm.discard(self.job(folder, job))

    def keeps(self, reason: str, *saved: Path, **job: Any) -> None:
        """Require that the removal is refused, and that all that was saved is there."""
        with pytest.raises(Infrastructure, match=reason):
            self.discard(**job)
        assert all((each / "weights" / ".metadata").exists() for each in saved)


@pytest.fixture
def login(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Saving:
    return Saving(tmp_path, monkeypatch)


def test_the_checkpoint_of_a_job_is_removed_and_all_else_stays(login: Saving) -> None:
    login.stage.mkdir()
    assert login.discard() == ""
    saved = login.save()
    others = [login.folder / BELOW / "mine", saved.parent / "other--epoch=0"]
    for path in others:
        path.mkdir()
    assert login.discard() == str(saved.parent)
    assert not saved.exists()
    assert all(path.exists() for path in [*others, login.folder / f"log-a.x_{JOB}_0.out"])
    assert login.discard() == ""


def test_names_with_blanks_are_removed_whole(login: Saving) -> None:
    saved = login.save()
    for name in ("default-- two words", "default--$(touch pwned)", "default--a\nb"):
        (saved.parent / name).mkdir()
    login.discard()
    assert list(saved.parent.iterdir()) == []
    assert not list(login.root.rglob("pwned"))


@pytest.mark.parametrize(
    "folder",
    ["", "/", ".", "stage", "/..", "/lustre/../etc", "/lustre/x/", "/a\nb"],
)
def test_what_is_no_path_of_a_folder_is_never_entered(login: Saving, folder: str) -> None:
    login.keeps("is no path of a job's folder", folder=folder)
    assert login.scripts == []


@pytest.mark.parametrize("job", ["", "*", "1;2", "४"])
def test_what_is_no_id_of_a_job_removes_nothing(login: Saving, job: str) -> None:
    login.keeps("is no id of a job", login.save(), job=job)


@pytest.mark.parametrize("folder", ["../home/someone/x", ".", "x"])
def test_the_stage_itself_and_what_is_outside_of_it_are_no_jobs_folders(login: Saving, folder: str) -> None:
    login.stage.mkdir()
    path = (login.stage / folder).resolve()
    login.keeps("not below the stage", login.save(path), folder=path)


def test_the_folder_of_another_job_is_left_alone(login: Saving) -> None:
    login.keeps("it has no log of job 4711", login.save(job="14711"))


@pytest.mark.parametrize("link", ["", "code", "code/nemo_experiments", BELOW])
def test_a_link_leads_nowhere(login: Saving, link: str) -> None:
    victim = login.save(login.stage / "experiments" / "victim" / "x")
    (login.folder / link).parent.mkdir(parents=True)
    if link:
        (login.folder / f"log-a.x_{JOB}_0.out").touch()
    (login.folder / link).symlink_to(victim.parents[len(Path(BELOW).parts)] / link)
    login.keeps("is a link", victim)


def test_a_link_among_the_checkpoints_is_removed_and_not_what_it_leads_to(login: Saving) -> None:
    saved, victim = login.save(), login.save(login.stage / "experiments" / "victim" / "x")
    (saved.parent / "default--last").symlink_to(victim)
    login.discard()
    assert list(saved.parent.iterdir()) == []
    assert (victim / "weights" / ".metadata").exists()


@pytest.mark.parametrize("part", BELOW.split("/"))
def test_a_folder_that_is_replaced_by_a_link_meanwhile_leads_nowhere(login: Saving, part: str) -> None:
    login.save()
    victim = login.save(login.stage / "experiments" / "victim" / "x")
    real = next(path for path in login.folder.rglob(part) if path.is_dir())
    led = victim.parents[len(Path(BELOW).parts)] / real.relative_to(login.folder)
    # Between the look at the folder and its entry.
    swap = f"mv {real} {real}.real; ln -s {led} {real}"
    login.before = f"""trap 'if [[ $BASH_COMMAND == cd*part* && $part == {part} ]]; then trap - DEBUG; {swap}; fi' DEBUG"""
    login.keeps("is elsewhere now", victim)
    assert real.is_symlink()


@pytest.mark.skipif(
    os.geteuid() != 0 and os.environ.get("PACEMARK_REQUIRE_LABS") != "1",
    reason="only root can give a folder to another user",
)
@pytest.mark.parametrize("below", ["", BELOW])
def test_what_belongs_to_another_user_is_left_alone(login: Saving, below: str) -> None:
    saved = login.save()
    os.chown(login.folder / below, 12345, 12345)
    login.keeps("belongs to another user", saved)


def test_a_removal_that_fails_is_told_with_its_path(login: Saving) -> None:
    login.tool("rm", "echo \"rm: cannot remove 'x': Read-only file system\" >&2; exit 1")
    login.keeps(f"{login.folder}: rm: cannot remove 'x': Read-only file system", login.save())


def test_a_removal_without_an_answer_is_no_removal(login: Saving, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(self: SshConnection, script: str, *, seconds: float, to_end: bool) -> Answer:
        assert to_end, "it takes minutes, and the end of a session does not cut it off"
        return Answer(137, "", "Killed")

    monkeypatch.setattr(SshConnection, "run", run)
    with pytest.raises(Unreachable, match="the removal in /x did not end: status 137: Killed"):
        login.discard("/x")


def test_a_recipe_that_is_not_selected_is_left_to_a_sweep(login: Saving) -> None:
    job = JobRef("nemotron4", "340b", NAME, JOB, str(login.folder))
    with pytest.raises(Infrastructure, match="nemotron4 is not selected in this session: --sweep removes it"):
        login.slurm.discard(job)
    assert login.slurm.keeping(job) == ""
    assert login.scripts == []


def test_the_files_are_found_with_the_room_that_is_left(login: Saving) -> None:
    login.save()
    login.tool("df", 'echo "Avail"; echo 12345')
    found = login.slurm.examine(SAVE, login.job())
    assert {file.name for file in found.files} == {f"{CHECKPOINT}/weights/{name}" for name in FILES}
    assert (found.folder, found.free) == (f"{login.folder}/{BELOW}", 12345)


@pytest.mark.parametrize("mode", ["checkpoint", "profile", "nccl-trace"])
def test_files_of_a_job_whose_folder_nobody_knows_cannot_be_found(login: Saving, mode: str) -> None:
    case = examples.case(f"8b-{mode}-bf16-16gpus")
    with pytest.raises(Infrastructure, match="nobody knows the folder of its job"):
        login.slurm.examine(case, login.job(""))
    assert login.scripts == []


def test_a_login_node_without_python_is_told_at_once(login: Saving, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "names", lambda *_: [f"log-a.x_{JOB}_0.out"])
    case = examples.case("8b-nccl-trace-bf16-16gpus")
    login.stage.mkdir()
    login.tool("python3", "echo 'bash: python3: command not found' >&2; exit 127")
    with pytest.raises(Infrastructure, match="status 127: bash: python3: command not found") as caught:
        login.slurm.examine(case, login.job())
    # It would be asked again.
    assert not isinstance(caught.value, Unreachable)


def test_nothing_is_submitted_where_there_is_too_little_room(login: Saving) -> None:
    login.tool("df", 'echo "Avail"; echo 112742891519')
    with pytest.raises(SiteError, match=r"takes 112\.7 GB, and 112\.7 GB are free"):
        login.slurm.submit(SAVE, NAME)
    assert len(login.scripts) == 1


def test_the_load_is_told_the_path_and_the_save_is_told_to_save(login: Saving) -> None:
    sent = login.slurm.plan(replace(LOAD, loads="/lustre/it's here"), NAME)
    assert """export LOAD_CHECKPOINT_PATH='/lustre/it'"'"'s here'""" in sent
    assert sent.index("unset ") < sent.index("export LOAD_CHECKPOINT_PATH=")
    assert "export MAX_STEPS=1\n" in sent
    assert "export ENABLE_CHECKPOINT=false" in sent
    save = login.slurm.plan(SAVE, NAME)
    assert "export ENABLE_CHECKPOINT=true" in save
    assert "LOAD_CHECKPOINT_PATH=" not in save
    assert "what 8b-checkpoint-bf16-16gpus saves" in login.slurm.plan(LOAD, NAME)


# Profiles: each report is digested once, whatever its name and whatever is said of it.

PROFILE = examples.case("8b-profile-bf16-8gpus")
PROFILED = "pacemark-run-1.llama3-8b-profile-bf16-8gpus"
LONG = "x" * 150


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Login:
    return Login(tmp_path, monkeypatch)


@pytest.mark.parametrize("digested", [0, 3, 8])
def test_each_report_is_digested_or_said_to_have_no_digest(
    node: Login, tmp_path: Path, digested: int
) -> None:
    folder = node.stage / "experiments" / "x"
    (folder / "nsys_profile").mkdir(parents=True)
    (node.stage / f".{PROFILED}").touch()
    names = [f"profile_{rank}{LONG}.nsys-rep" for rank in range(8)]
    for name in names:
        (folder / "nsys_profile" / name).write_bytes(b"x" * 5000)
    (profile, *_) = nsys.digest(str(export(tmp_path / "a.sqlite", *simulate())))
    profiles = [profile | {"file": name[:120]} for name in names[:digested]]
    errors = [{"file": name[:120], "error": "is cut off"} for name in names[digested:]]
    answer = json.dumps({"version": 1, "profiles": profiles, "errors": errors})
    node.tool("nsys")
    node.tool("python3", f"echo {shlex.quote(answer)}; printf '%s\\n' \"$@\" >{node.root}/asked")
    job = JobRef(PROFILE.recipe, PROFILE.id, PROFILED, JOB, str(folder))
    found = node.backend(examples.llama3()).examine(PROFILE, job)
    asked = (node.root / "asked").read_text().splitlines()
    assert sorted(Path(path).name for path in asked[-8:]) == names
    assert (len(found.files), len(found.profiles), len(found.notes)) == (8, digested, 8 - digested)


def test_reports_are_not_digested_before_all_are_there_or_without_nsys(node: Login) -> None:
    folder = node.stage / "experiments" / "x"
    (folder / "nsys_profile").mkdir(parents=True)
    (node.stage / f".{PROFILED}").touch()
    backend, job = (
        node.backend(examples.llama3()),
        JobRef(PROFILE.recipe, PROFILE.id, PROFILED, JOB, str(folder)),
    )
    for rank in range(8):
        assert backend.examine(PROFILE, job).notes == ()
        (folder / "nsys_profile" / f"profile_{rank}.nsys-rep").write_bytes(b"x" * 5000)
    [note] = backend.examine(PROFILE, job).notes
    assert note.startswith(
        "the profiles have no digest: status 127: nsys is not on the PATH of a login shell"
    )


PGLE = examples.case("70b-profile-fp8-64gpus", "maxtext_llama2")
TIMED = examples.case("70b-fp8-64gpus", "maxtext_llama2")
OWN = "pacemark-run-1.maxtext_llama2-"
ELSE = "pacemark-run-2.maxtext_llama2-"


def maxtext(node: Login, *jobs: str) -> SlurmBackend:
    """Where these jobs run, and where sbatch refuses any other."""
    folder = node.stage / "maxtext_llama2"
    folder.mkdir(parents=True)
    rows = "\n".join(f"{number}|{name}|RUNNING|gpu1|None" for number, name in enumerate(jobs, 17))
    node.tool("squeue", f"cat <<'END'\n{rows}\nEND")
    node.tool("sbatch", f"ls -A {folder} >{node.root}/seen; exit 1")
    return node.backend(examples.recipe_named("maxtext_llama2"))


@pytest.mark.parametrize("other", [PGLE.id, TIMED.id, f"{TIMED.id}-try2", f"{TIMED.id}-proof"])
def test_a_job_of_another_session_that_writes_the_same_reports_is_waited_out(node: Login, other: str) -> None:
    """Also one that began after this one: what is there may be of either."""
    backend = maxtext(node, ELSE + other)
    said = (
        f"job 17 ({ELSE}{other}) of another session writes reports of the same names into the same folder: "
        f"run {PGLE.id} again once that job is over"
    )
    with pytest.raises(SiteError, match=re.escape(said)):
        backend.submit(PGLE, OWN + PGLE.id)
    assert not (node.root / "seen").exists()
    with pytest.raises(SiteError, match=re.escape(said)):
        backend.examine(PGLE, JobRef(PGLE.recipe, PGLE.id, OWN + PGLE.id, "16", "/logs"))


@pytest.mark.parametrize(
    ("case", "other"),
    [
        # A timed run asks nothing: its pace is judged.
        (TIMED, ELSE + TIMED.id),
        (PGLE, ELSE + "70b-profile-fp8-128gpus"),
        (PGLE, OWN + TIMED.id),
        (PGLE, f"pacemark-run-2.llama3-{TIMED.id}"),
        (PGLE, "mine"),
    ],
)
def test_no_other_job_holds_up_a_profile_or_leaves_a_marker(node: Login, case: Case, other: str) -> None:
    with pytest.raises(SubmitError):
        maxtext(node, other).submit(case, OWN + case.id)
    marker = f".{OWN}{case.id}"
    assert (marker in (node.root / "seen").read_text().split()) is case.leaves_files
    assert not (node.stage / "maxtext_llama2" / marker).exists()


def test_a_job_of_which_only_the_name_is_known_has_nothing_to_remove(node: Login) -> None:
    maxtext(node).release([JobRef("", "", OWN + PGLE.id, "17")])
    assert node.scripts == []


def test_the_command_that_removes_a_kept_checkpoint(login: Saving) -> None:
    said = login.slurm.keeping(login.job("/lustre/a b"))
    assert shlex.split(said) == ["ssh", "login01", f"rm -r '/lustre/a b/{BELOW}'"]
