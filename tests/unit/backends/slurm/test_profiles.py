"""Profiles on a login node, by real bash: each report is digested once, whatever its name and whatever is said of it."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from fixtures.backends.slurm.backend import SlurmBackend
from fixtures.backends.slurm.section import Slurm
from plugins.base.errors import SiteError, SubmitError
from plugins.modes import nsys
from plugins.modes.artefacts import parse_artefacts
from plugins.recipes.cases import Case
from plugins.record.job import JobRef
from tests.unit import examples
from tests.unit.backends.slurm.test_checkpoints import Login
from tests.unit.modes.simulator import STEPS, export, simulate

PROFILE = examples.case("8b-profile-bf16-8gpus")
NAME = "pacemark-run-1.llama3-8b-profile-bf16-8gpus"
LONG = "x" * 150


@pytest.mark.parametrize("digested", [True, False])
def test_each_report_is_digested_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, digested: bool
) -> None:
    login = Login(tmp_path, monkeypatch)
    folder = login.folder / "nsys_profile"
    folder.mkdir(parents=True)
    (login.stage / f".{NAME}").touch()
    for rank in range(8):
        (folder / f"profile_{rank}{LONG}.nsys-rep").write_bytes(b"x" * 5000)
    (one, *_) = nsys.digest(str(export(tmp_path / "a.sqlite", *simulate("a good"))), STEPS)
    one["file"] = f"profile_0{LONG}.nsys-rep"[:120]
    answer = json.dumps({"version": 1, "profiles": [one] if digested else [], "errors": []})
    login.tool("nsys", "true")
    login.tool("python3", f"echo {shlex.quote(answer)}")
    job, known, whole, asked = (
        JobRef(PROFILE.recipe, PROFILE.id, NAME, "4711", str(login.folder)),
        "",
        False,
        0,
    )
    while not whole:
        known, whole = login.backend.examine(PROFILE, job, known)
        asked += 1
        assert asked <= 9
    found = parse_artefacts(known)
    assert len({profile.file for profile in found.profiles}) == (8 if digested else 0)
    assert len(found.notes) == (0 if digested else 8)


PGLE = examples.case("70b-profile-fp8-64gpus", "maxtext_llama2")
TIMED = examples.case("70b-fp8-64gpus", "maxtext_llama2")
OWN = "pacemark-run-1.maxtext_llama2-"
ELSE = "pacemark-run-2.maxtext_llama2-"


def maxtext(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *jobs: str) -> Login:
    """A login node where these jobs run, and where sbatch refuses any other."""
    login = Login(tmp_path, monkeypatch)
    section = {"gpu": "h100", "ssh": {"host": "login01"}, "account": "a", "partition": "p"}
    login.backend = SlurmBackend(
        "big",
        Slurm.model_validate({**section, "stage": str(login.stage)}),
        [examples.recipe_named("maxtext_llama2")],
    )
    (login.stage / "maxtext_llama2").mkdir(parents=True)
    rows = "\n".join(f"{number}|{name}|RUNNING|gpu1|None" for number, name in enumerate(jobs, 17))
    login.tool("squeue", f"cat <<'END'\n{rows}\nEND")
    login.tool("sbatch", f"ls -A {login.stage}/maxtext_llama2 >{tmp_path}/seen; exit 1")
    return login


@pytest.mark.parametrize("other", [PGLE.id, TIMED.id, f"{TIMED.id}-try2", f"{TIMED.id}-proof"])
def test_a_job_of_another_session_that_writes_the_same_reports_is_waited_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other: str
) -> None:
    """Also one that began after this one: what is there may be of either."""
    login = maxtext(tmp_path, monkeypatch, ELSE + other)
    said = (
        f"job 17 ({ELSE}{other}) of another session writes reports of the same names into the same folder: "
        f"run {PGLE.id} again once that job is over"
    )
    with pytest.raises(SiteError, match=re.escape(said)):
        login.backend.submit(PGLE, OWN + PGLE.id)
    assert not (tmp_path / "seen").exists()
    with pytest.raises(SiteError, match=re.escape(said)):
        login.backend.examine(PGLE, JobRef(PGLE.recipe, PGLE.id, OWN + PGLE.id, "16", "/logs"), "")


@pytest.mark.parametrize(
    ("case", "other"),
    [
        # A timed run asks nothing: its pace is judged.
        (TIMED, ELSE + TIMED.id),
        (TIMED, ELSE + PGLE.id),
        (PGLE, ELSE + "70b-profile-fp8-128gpus"),
        (PGLE, ELSE + "70b-bf16-64gpus"),
        (PGLE, OWN + TIMED.id),
        (PGLE, f"pacemark-run-2.llama3-{TIMED.id}"),
        (PGLE, "mine"),
    ],
)
def test_no_other_job_holds_up_a_profile_and_a_refused_one_leaves_no_marker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: Case, other: str
) -> None:
    login = maxtext(tmp_path, monkeypatch, other)
    with pytest.raises(SubmitError):
        login.backend.submit(case, OWN + case.id)
    marker = f".{OWN}{case.id}"
    assert (marker in (tmp_path / "seen").read_text().split()) is case.leaves_files
    assert not (login.stage / "maxtext_llama2" / marker).exists()


def test_a_job_of_which_only_the_name_is_known_has_nothing_to_remove(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    login = maxtext(tmp_path, monkeypatch)
    login.backend.release([JobRef("", "", OWN + PGLE.id, "17")])
    assert login.scripts == []
