"""What must be there before a launch, asked for in real bash on stages that are as the recipes' set-ups leave them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fixtures.backends.shell import Answer
from fixtures.backends.slurm.backend import SlurmBackend
from fixtures.backends.slurm.section import Slurm
from fixtures.backends.ssh.connection import SshConnection
from plugins.base.errors import SiteError, Unprovisioned, Unreachable
from tests.lab.stage import Stage, make_stage
from tests.unit import examples

RECIPES = ("llama3", "nemotron4", "maxtext_llama2")
EACH = pytest.mark.parametrize("recipe", RECIPES)
# As Slurm 22.05 and Pyxis 0.20 print it.
SRUN = """\
#!/bin/bash
case "$1" in
    --help) echo "      --container-image=[USER@][REGISTRY#]IMAGE[:TAG]|PATH" ;;
    --mpi=list) printf 'MPI plugin types are...\\n\\tnone\\n\\tpmix\\n\\tpmi2\\nspecific versions: pmix_v4\\n' >&2 ;;
esac
"""


@dataclass
class Site:
    """A login node on this machine with the stage of one recipe."""

    stage: Stage
    tools: Path
    scripts: list[str]
    folder: str = ""

    def srun(self, old: str, new: str) -> None:
        (self.tools / "srun").write_text(SRUN.replace(old, new))

    def check(self, recipe: str, on_nodes_only: Sequence[str] = (), **environment: str) -> None:
        fixed = {"gpu": "h100", "ssh": {"host": "login01"}, "account": "a", "partition": "p,q"}
        given: dict[str, Any] = {"environment": environment, "on_nodes_only": list(on_nodes_only)}
        if self.folder:
            given["recipes"] = {recipe: {"folder": self.folder}}
        section = Slurm.model_validate({**fixed, "stage": str(self.stage.root), **given})
        SlurmBackend("lab", section, [examples.recipe_named(recipe)]).check(
            examples.recipe_named(recipe).cases[-1]
        )

    def lack(self, recipe: str) -> SiteError:
        with pytest.raises(SiteError) as caught:
            self.check(recipe)
        return caught.value


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recipe: str) -> Site:
    scripts: list[str] = []

    def run(self: SshConnection, script: str, **how: object) -> Answer:
        scripts.append(script)
        done = subprocess.run(["bash", "-s"], input=script, capture_output=True, text=True, timeout=120)
        return Answer(done.returncode, done.stdout, done.stderr)

    monkeypatch.setattr(SshConnection, "run", run)
    monkeypatch.setenv("HF_TOKEN", "hf_0123456789")
    monkeypatch.delenv("SLURM_MPI_TYPE", raising=False)
    tools = tmp_path / "bin"
    tools.mkdir()
    for tool in ("sbatch", "squeue", "scancel", "scontrol", "srun"):
        (tools / tool).write_text(SRUN if tool == "srun" else "#!/bin/bash\n")
        (tools / tool).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    return Site(make_stage(tmp_path / "stage", recipe, provisioned=True), tools, scripts)


@EACH
def test_a_stage_as_the_set_up_leaves_it_is_ready(site: Site, recipe: str) -> None:
    site.check(recipe)
    assert len(site.scripts) == 1
    site.stage.image.write_bytes(site.stage.image.read_bytes()[:63])
    assert "is not whole" in str(site.lack(recipe))


@pytest.mark.parametrize("recipe", ["llama3"])
def test_a_folder_is_there_whatever_size_its_file_system_gives_it(site: Site, recipe: str) -> None:
    """Some have 0 for each folder, as /proc has."""
    folder = Path("/proc/self/task")
    assert folder.stat().st_size == 0
    site.folder = str(folder)
    assert f"the recipe folder {folder} is missing" not in str(site.lack(recipe))
    site.folder = "/proc/nothing"
    assert "the recipe folder /proc/nothing is missing" in str(site.lack(recipe))


@pytest.mark.parametrize("recipe", ["llama3"])
def test_a_partition_is_missing_only_if_scontrol_says_so(site: Site, recipe: str) -> None:
    scontrol = site.tools / "scontrol"
    scontrol.write_text('#!/bin/bash\n[ "$4" = p ] || { echo "Partition $4 not found" >&2; exit 1; }\n')
    assert "  the partition q is missing\n    mend: see `sinfo`" in str(site.lack(recipe))
    assert "partition p" not in str(site.lack(recipe))
    scontrol.write_text("#!/bin/bash\nprintf 'slurm_load_partitions error:\\n*\\n' >&2\nexit 1\n")
    with pytest.raises(
        Unreachable, match=re.escape("lab: scontrol: status 1: slurm_load_partitions error: *")
    ):
        site.check(recipe)


@EACH
def test_an_srun_without_pyxis_or_pmix_is_told_with_what_to_do(site: Site, recipe: str) -> None:
    site.srun("--container-image", "--nothing")
    lack = site.lack(recipe)
    assert (
        "Pyxis, with which srun knows --container-image, is missing\n    mend: have the administrator"
        in str(lack)
    )
    assert not isinstance(lack, Unprovisioned)
    site.srun("pmix", "pmi1")
    assert "PMIx in Slurm is missing\n    mend: have the administrator" in str(site.lack(recipe))


@EACH
def test_a_path_without_slurms_tools_blames_neither_pyxis_nor_pmix(
    site: Site, recipe: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The profile loads no module of Slurm: whether srun knows Pyxis is not known."""
    plain = tmp_path / "plain"
    plain.mkdir()
    for tool in [
        "bash",
        "timeout",
        "stat",
        "find",
        "dd",
        "base64",
        "grep",
        "head",
        "od",
        "tr",
        "id",
        "cat",
        "python3",
    ]:
        (plain / tool).symlink_to(shutil.which(tool) or "/nonexistent")
    monkeypatch.setenv("PATH", str(plain))
    lack = str(site.lack(recipe))
    assert "sbatch on the PATH of a login shell is missing\n    mend: set `prologue` in the site file" in lack
    assert "srun on the PATH of a login shell is missing" in lack
    assert not re.search("Pyxis|PMIx", lack)
    # srun alone is missing.
    for tool in ("sbatch", "squeue", "scancel", "scontrol"):
        (plain / tool).symlink_to(site.tools / tool)
    lack = str(site.lack(recipe))
    assert "srun on the PATH of a login shell is missing" in lack
    assert not re.search("Pyxis|PMIx", lack)


@EACH
def test_what_the_compute_nodes_alone_have_is_not_looked_for(site: Site, recipe: str) -> None:
    site.srun("--container-image", "--nothing")
    site.check(recipe, on_nodes_only=["Pyxis"])
    (site.tools / "srun").unlink()
    site.check(recipe, on_nodes_only=["Pyxis", "PMIx"])


@pytest.mark.parametrize("recipe", RECIPES[1:])
def test_a_site_may_have_another_type_of_mpi(site: Site, recipe: str) -> None:
    site.srun("pmix", "pmi1")
    site.check(recipe, SLURM_MPI_TYPE="pmi2")


@pytest.mark.parametrize("recipe", ["maxtext_llama2"])
def test_an_image_is_whole(site: Site, recipe: str) -> None:
    image = site.stage.image
    whole = image.read_bytes()
    for broken in (bytes(96) + whole[96:], whole[:40] + b"\xff" + bytes(7) + b"\n" * 100, b"hsqs"):
        image.write_bytes(broken)
        lack = site.lack(recipe)
        assert f"{image} is not whole: its import was cut short, or runs still\n" in str(lack)
        assert f"mend: if no set-up runs (squeue): rm {image}, then run pytest with --provision" in str(lack)
        # enroot writes over no file.
        assert not isinstance(lack, Unprovisioned)
    image.unlink()
    lack = site.lack(recipe)
    assert f"{image} is missing\n" in str(lack)
    assert "not whole" not in str(lack)
    assert isinstance(lack, Unprovisioned)


# setup.sh does none of this again once there is a NeMo/.
@pytest.mark.parametrize("recipe", ["llama3"])
@pytest.mark.parametrize(
    "undone",
    [
        "echo ref: refs/heads/main >NeMo/.git/HEAD",
        "sed -i s/pinning// NeMo/scripts/performance/argument_parser.py",
        "rm -r ../venv/lib/python3*/site-packages/nemo_toolkit*",
    ],
    ids=["cloned", "checked out", "patched"],
)
def test_a_set_up_that_was_cut_short_is_told(site: Site, recipe: str, undone: str) -> None:
    subprocess.run(["bash", "-c", undone], cwd=site.stage.recipe, check=True)
    lack = site.lack(recipe)
    nemo = site.stage.recipe / "NeMo"
    assert f"a whole set-up in {nemo} (checked out at d2b21556, patched, installed) is missing" in str(lack)
    assert f"rm -rf {nemo}, and run pytest with --provision" in str(lack)
    assert not isinstance(lack, Unprovisioned)


@pytest.mark.parametrize("recipe", ["llama3"])
def test_a_python_that_is_too_old_is_told(site: Site, recipe: str) -> None:
    python = site.stage.venv / "bin" / "python"
    real = python.resolve()
    python.unlink()
    # Of the version before the first that upstream takes.
    python.write_text(
        f'#!/bin/bash\n[ "$1" = -c ] && exec {real} -c "import sys; sys.version_info = (3, 10, 11); $2"\nexit 1\n'
    )
    python.chmod(0o755)
    lack = site.lack(recipe)
    assert "Python 3.10.12 or newer is missing\n    mend: put one on the PATH in `prologue`" in str(lack)
    python.write_text(python.read_text().replace("10, 11", "10, 12"))
    assert "Python 3.10.12" not in str(site.lack(recipe))
