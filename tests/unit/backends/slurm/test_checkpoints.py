"""Checkpoints on a login node, by real bash: the room for one, its files, and that nothing else is ever removed."""

from __future__ import annotations

import os
import shlex
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from fixtures.backends.shell import Answer
from fixtures.backends.slurm.backend import SlurmBackend
from fixtures.backends.slurm.section import Slurm
from fixtures.backends.ssh import files
from fixtures.backends.ssh.connection import SshConnection
from plugins.base.errors import Infrastructure, SiteError, Unreachable
from plugins.modes.artefacts import parse_artefacts
from plugins.record.job import JobRef
from tests.unit import examples

SAVE = examples.case("8b-checkpoint-bf16-16gpus")
LOAD = examples.case("8b-checkpoint-load-bf16-16gpus")
NAME = "pacemark-run-1.llama3-8b-checkpoint-bf16-16gpus"
JOB = "4711"
BELOW = "code/nemo_experiments/default/checkpoints"
CHECKPOINT = "default--None=0.0000-epoch=0-consumed_samples=12800.0"


class Login:
    """A login node on this machine. `before` is run in front of each script, `path` is searched before the PATH."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.stage = root / "stage"
        self.folder = self.stage / "experiments" / "x_1744382464" / "x"
        self.path = root / "bin"
        self.before = ""
        self.scripts: list[str] = []
        monkeypatch.setattr(SshConnection, "run", lambda _, script, **__: self.run(script))
        monkeypatch.setenv("HF_TOKEN", "hf_0123456789")
        section = {"gpu": "h100", "ssh": {"host": "login01"}, "account": "a", "partition": "p"}
        self.backend = SlurmBackend(
            "big", Slurm.model_validate({**section, "stage": str(self.stage)}), [examples.llama3()]
        )

    def run(self, script: str) -> Answer:
        self.scripts.append(script)
        environment = {"PATH": f"{self.path}:{os.environ['PATH']}"}
        done = subprocess.run(
            ["bash", "-c", f"{self.before}\n{script}"], capture_output=True, text=True, env=environment
        )
        return Answer(done.returncode, done.stdout, done.stderr)

    def tool(self, name: str, text: str) -> None:
        self.path.mkdir(exist_ok=True)
        (self.path / name).write_text(f"#!/bin/bash\n{text}\n")
        (self.path / name).chmod(0o755)

    def save(self, folder: Path | None = None, job: str = JOB) -> Path:
        """What a job leaves in its folder. Returns the checkpoint."""
        folder = folder or self.folder
        weights = folder / BELOW / CHECKPOINT / "weights"
        weights.mkdir(parents=True)
        for name in ("__0_0.distcp", "__0_1.distcp", ".metadata", "metadata.json"):
            (weights / name).write_text("data")
        (folder / f"log-a.x_{job}_0.out").write_text("log")
        return weights.parent

    def discard(self, folder: object = None, job: str = JOB) -> str:
        return self.backend.discard(
            JobRef(SAVE.recipe, SAVE.id, NAME, job, str(self.folder if folder is None else folder))
        )


@pytest.fixture
def login(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Login:
    return Login(tmp_path, monkeypatch)


def test_the_checkpoint_of_a_job_is_removed_and_all_else_stays(login: Login) -> None:
    saved = login.save()
    kept = [
        login.folder / BELOW / "mine",
        saved.parent / "other--epoch=0",
        login.folder / f"log-a.x_{JOB}_0.out",
    ]
    for path in kept[:2]:
        path.mkdir()
    assert login.discard() == str(saved.parent)
    assert not saved.exists()
    assert all(path.exists() for path in kept)
    assert login.discard() == ""


def test_names_with_blanks_are_removed_whole(login: Login) -> None:
    saved = login.save()
    for name in ("default-- two words", "default--$(touch pwned)", "default--a\nb"):
        (saved.parent / name).mkdir()
    login.discard()
    assert list(saved.parent.iterdir()) == []
    assert not Path("pwned").exists()


def test_a_job_that_saved_nothing_leaves_nothing(login: Login) -> None:
    login.stage.mkdir()
    assert login.discard() == ""
    login.folder.mkdir(parents=True)
    assert login.discard() == ""


@pytest.mark.parametrize(
    "folder",
    ["", "/", ".", "stage", "//", "/..", "/lustre/../etc", "/lustre//x", "/lustre/x/", "/a\nb", "/a/./b"],
)
def test_what_is_no_path_of_a_folder_is_never_entered(login: Login, folder: str) -> None:
    with pytest.raises(Infrastructure, match="is no path of a job's folder"):
        login.discard(folder)
    assert login.scripts == []


@pytest.mark.parametrize("job", ["", "*", "1;2", "0x1", "-1", "४"])
def test_what_is_no_id_of_a_job_removes_nothing(login: Login, job: str) -> None:
    login.save()
    with pytest.raises(Infrastructure, match="is no id of a job"):
        login.discard(job=job)


def test_the_stage_itself_and_what_is_outside_of_it_are_no_folders_of_a_job(
    login: Login, tmp_path: Path
) -> None:
    outside = [
        login.save(tmp_path / "home" / "someone" / "x"),
        login.save(login.stage),
        login.save(login.stage / "x"),
    ]
    for saved in outside:
        with pytest.raises(Infrastructure, match="not below the stage"):
            login.discard(saved.parents[len(Path(BELOW).parts)])
        assert saved.exists()


def test_the_folder_of_another_job_is_left_alone(login: Login) -> None:
    saved = login.save(job="14711")
    with pytest.raises(Infrastructure, match="it has no log of job 4711"):
        login.discard()
    assert saved.exists()


@pytest.mark.parametrize("link", ["", "code", "code/nemo_experiments", BELOW])
def test_a_link_leads_nowhere(login: Login, link: str) -> None:
    victim = login.save(login.stage / "experiments" / "victim" / "x")
    if link:
        (login.folder / link).parent.mkdir(parents=True)
        (login.folder / f"log-a.x_{JOB}_0.out").touch()
    else:
        login.folder.parent.mkdir(parents=True)
    (login.folder / link).symlink_to(victim.parents[len(Path(BELOW).parts)] / link)
    with pytest.raises(Infrastructure, match="is a link"):
        login.discard()
    assert victim.exists()


def test_a_link_among_the_checkpoints_is_removed_and_not_what_it_leads_to(login: Login) -> None:
    saved, victim = login.save(), login.save(login.stage / "experiments" / "victim" / "x")
    (saved.parent / "default--last").symlink_to(victim)
    login.discard()
    assert list(saved.parent.iterdir()) == []
    assert (victim / "weights" / ".metadata").exists()


@pytest.mark.parametrize("part", BELOW.split("/"))
def test_a_folder_that_is_replaced_by_a_link_meanwhile_leads_nowhere(login: Login, part: str) -> None:
    login.save()
    victim = login.save(login.stage / "experiments" / "victim" / "x")
    real = next(path for path in login.folder.rglob(part) if path.is_dir())
    led = victim.parents[len(Path(BELOW).parts)] / real.relative_to(login.folder)
    # Between the look at the folder and its entry.
    swap = f"mv {real} {real}.real; ln -s {led} {real}"
    login.before = f"""trap 'if [[ $BASH_COMMAND == cd*part* && $part == {part} ]]; then trap - DEBUG; {swap}; fi' DEBUG"""
    with pytest.raises(Infrastructure, match="is elsewhere now"):
        login.discard()
    assert real.is_symlink()
    assert (victim / "weights" / ".metadata").exists()


@pytest.mark.skipif(
    os.geteuid() != 0 and os.environ.get("PACEMARK_REQUIRE_LABS") != "1",
    reason="only root can give a folder to another user",
)
@pytest.mark.parametrize("below", ["", BELOW])
def test_what_belongs_to_another_user_is_left_alone(login: Login, below: str) -> None:
    saved = login.save()
    os.chown(login.folder / below, 12345, 12345)
    with pytest.raises(Infrastructure, match="belongs to another user"):
        login.discard()
    assert saved.exists()


def test_a_removal_that_fails_is_told_with_its_path(login: Login) -> None:
    saved = login.save()
    login.tool("rm", "echo \"rm: cannot remove 'x': Read-only file system\" >&2; exit 1")
    with pytest.raises(Infrastructure, match=f"{login.folder}: rm: cannot remove 'x': Read-only file system"):
        login.discard()
    assert saved.exists()


def test_a_removal_without_an_answer_is_no_removal(login: Login, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(self: SshConnection, script: str, *, seconds: float, to_end: bool) -> Answer:
        assert to_end, "it takes minutes, and the end of a session does not cut it off"
        return Answer(137, "", "Killed")

    monkeypatch.setattr(SshConnection, "run", run)
    with pytest.raises(Unreachable, match="the removal in /x did not end: status 137: Killed"):
        login.discard("/x")


def test_a_recipe_that_is_not_selected_is_left_to_a_sweep(login: Login) -> None:
    job = JobRef("nemotron4", "340b", NAME, JOB, str(login.folder))
    with pytest.raises(Infrastructure, match="nemotron4 is not selected in this session: --sweep removes it"):
        login.backend.discard(job)
    assert login.backend.keeping(job) == ""
    assert login.scripts == []


def test_the_files_are_found_with_the_room_that_is_left(login: Login) -> None:
    login.save()
    login.tool("df", 'echo "Avail"; echo 12345')
    text, whole = login.backend.examine(SAVE, JobRef(SAVE.recipe, SAVE.id, NAME, JOB, str(login.folder)), "")
    found = parse_artefacts(text)
    assert whole
    assert {file.name for file in found.files} == {
        f"{CHECKPOINT}/weights/{name}"
        for name in ("__0_0.distcp", "__0_1.distcp", ".metadata", "metadata.json")
    }
    assert (found.folder, found.free) == (f"{login.folder}/{BELOW}", 12345)


@pytest.mark.parametrize("mode", ["checkpoint", "profile", "nccl-trace"])
def test_files_of_a_job_whose_folder_nobody_knows_cannot_be_found(login: Login, mode: str) -> None:
    case = examples.case(f"8b-{mode}-bf16-16gpus")
    with pytest.raises(Infrastructure, match="nobody knows the folder of its job"):
        login.backend.examine(case, JobRef(case.recipe, case.id, NAME, JOB, ""), "")
    assert login.scripts == []


def test_a_login_node_without_python_is_told_at_once(login: Login, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "names", lambda *_: [f"log-a.x_{JOB}_0.out"])
    case = examples.case("8b-nccl-trace-bf16-16gpus")
    login.tool("python3", "echo 'bash: python3: command not found' >&2; exit 127")
    with pytest.raises(Infrastructure, match="status 127: bash: python3: command not found") as caught:
        login.backend.examine(case, JobRef(case.recipe, case.id, NAME, JOB, str(login.folder)), "")
    # It would be asked again.
    assert not isinstance(caught.value, Unreachable)


def test_nothing_is_submitted_where_there_is_too_little_room(login: Login) -> None:
    login.tool("df", 'echo "Avail"; echo 112742891519')
    with pytest.raises(SiteError, match=r"takes 112\.7 GB, and 112\.7 GB are free"):
        login.backend.submit(SAVE, NAME)
    assert len(login.scripts) == 1


def test_the_load_is_told_the_path_and_the_save_is_told_to_save(login: Login) -> None:
    sent = login.backend.plan(replace(LOAD, loads="/lustre/it's here"), NAME)
    assert """export LOAD_CHECKPOINT_PATH='/lustre/it'"'"'s here'""" in sent
    assert sent.index("unset ") < sent.index("export LOAD_CHECKPOINT_PATH=")
    assert "export MAX_STEPS=1\n" in sent
    assert "export ENABLE_CHECKPOINT=false" in sent
    save = login.backend.plan(SAVE, NAME)
    assert "export ENABLE_CHECKPOINT=true" in save
    assert "LOAD_CHECKPOINT_PATH=" not in save
    assert "what 8b-checkpoint-bf16-16gpus saves" in login.backend.plan(LOAD, NAME)


def test_the_command_that_removes_a_kept_checkpoint(login: Login) -> None:
    said = login.backend.keeping(JobRef(SAVE.recipe, SAVE.id, NAME, JOB, "/lustre/a b"))
    assert shlex.split(said) == ["ssh", "login01", f"rm -r '/lustre/a b/{BELOW}'"]
