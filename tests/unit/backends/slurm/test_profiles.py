"""Profiles on a login node, by real bash: each report is digested once, whatever its name and whatever is said of it."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from plugins.digests import nsys
from plugins.digests.artefacts import read_artefacts
from plugins.job import JobRef
from tests.unit import examples
from tests.unit.backends.slurm.test_checkpoints import Login
from tests.unit.digests.simulator import STEPS
from tests.unit.digests.simulator import export
from tests.unit.digests.simulator import simulate

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
    found = read_artefacts(known)
    assert len({profile.file for profile in found.profiles}) == (8 if digested else 0)
    assert len(found.notes) == (0 if digested else 8)
