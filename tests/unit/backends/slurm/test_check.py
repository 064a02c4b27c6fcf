"""What must be there before a launch, asked for in real bash on stages that are as the recipes' set-ups leave them."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from plugins.base.errors import SiteError, Unprovisioned, Unreachable
from tests.lab.stage import make_stage
from tests.unit import examples
from tests.unit.backends.slurm.login import Login

RECIPES = ("llama3", "nemotron4", "maxtext_llama2")
EACH = pytest.mark.parametrize("recipe", RECIPES)
# What the check runs but for Slurm's tools.
PROGRAMS = "bash timeout stat find dd base64 grep head od tr id cat python3"
SLURM = ("sbatch", "squeue", "scancel", "scontrol")
# As Slurm 22.05 and Pyxis 0.20 print it.
SRUN = """\
case "$1" in
    --help) echo "      --container-image=[USER@][REGISTRY#]IMAGE[:TAG]|PATH" ;;
    --mpi=list) printf 'MPI plugin types are...\\n\\tnone\\n\\tpmix\\n\\tpmi2\\nspecific versions: pmix_v4\\n' >&2 ;;
esac"""


class Site(Login):
    """The login node of a site that runs one recipe; its stage is as the set-up leaves it."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch, recipe: str) -> None:
        super().__init__(root, monkeypatch)
        monkeypatch.delenv("SLURM_MPI_TYPE", raising=False)
        for tool in SLURM:
            self.tool(tool)
        self.tool("srun", SRUN)
        self.recipe = examples.recipe_named(recipe)
        self.files = make_stage(self.stage, recipe, provisioned=True)

    def check(self, **keys: Any) -> None:
        self.backend(self.recipe, partition="p,q", **keys).check(self.recipe.cases[-1])

    def lack(self, **keys: Any) -> SiteError:
        with pytest.raises(SiteError) as caught:
            self.check(**keys)
        return caught.value


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recipe: str) -> Site:
    return Site(tmp_path, monkeypatch, recipe)


@EACH
def test_a_stage_as_the_set_up_leaves_it_is_ready(site: Site) -> None:
    site.check()
    assert len(site.scripts) == 1
    site.files.image.write_bytes(site.files.image.read_bytes()[:63])
    assert "is not whole" in str(site.lack())


@pytest.mark.parametrize("recipe", ["llama3"])
def test_a_folder_is_there_whatever_size_its_file_system_gives_it(site: Site) -> None:
    """Some have 0 for each folder, as /proc has."""
    folder = Path("/proc/self/task")
    assert folder.stat().st_size == 0
    for path, missing in ((str(folder), False), ("/proc/nothing", True)):
        lack = str(site.lack(recipes={"llama3": {"folder": path}}))
        assert (f"the recipe folder {path} is missing" in lack) is missing


@pytest.mark.parametrize("recipe", ["llama3"])
def test_a_partition_is_missing_only_if_scontrol_says_so(site: Site) -> None:
    site.tool("scontrol", '[ "$4" = p ] || { echo "Partition $4 not found" >&2; exit 1; }')
    assert "  the partition q is missing\n    mend: see `sinfo`" in str(site.lack())
    assert "partition p" not in str(site.lack())
    site.tool("scontrol", "printf 'slurm_load_partitions error:\\n*\\n' >&2\nexit 1")
    words = re.escape("lab: scontrol: status 1: slurm_load_partitions error: *")
    with pytest.raises(Unreachable, match=words):
        site.check()


@pytest.mark.parametrize("recipe", ["llama3"])
def test_an_srun_without_pyxis_or_pmix_is_told_with_what_to_do(site: Site) -> None:
    site.tool("srun", SRUN.replace("--container-image", "--nothing"))
    lack, mend = site.lack(), "is missing\n    mend: have the administrator"
    assert f"Pyxis, with which srun knows --container-image, {mend}" in str(lack)
    assert not isinstance(lack, Unprovisioned)
    # What the compute nodes alone have is not looked for.
    site.check(on_nodes_only=["Pyxis"])
    site.tool("srun", SRUN.replace("pmix", "pmi1"))
    assert f"PMIx in Slurm {mend}" in str(site.lack())
    (site.tools / "srun").unlink()
    site.check(on_nodes_only=["Pyxis", "PMIx"])


@pytest.mark.parametrize("recipe", ["llama3"])
def test_a_path_without_slurms_tools_blames_neither_pyxis_nor_pmix(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The profile loads no module of Slurm: whether srun knows Pyxis is not known."""
    plain = tmp_path / "plain"
    plain.mkdir()
    for tool in PROGRAMS.split():
        (plain / tool).symlink_to(shutil.which(tool) or "/nonexistent")
    monkeypatch.setenv("PATH", str(plain))
    lack = str(site.lack())
    assert "sbatch on the PATH of a login shell is missing\n    mend: set `prologue` in the site file" in lack
    # Then srun alone is missing.
    for tool in SLURM:
        (plain / tool).symlink_to(site.tools / tool)
    for words in (lack, str(site.lack())):
        assert "srun on the PATH of a login shell is missing" in words
        assert not re.search("Pyxis|PMIx", words)


@pytest.mark.parametrize("recipe", RECIPES[1:])
def test_a_site_may_have_another_type_of_mpi(site: Site) -> None:
    site.tool("srun", SRUN.replace("pmix", "pmi1"))
    site.check(environment={"SLURM_MPI_TYPE": "pmi2"})


@pytest.mark.parametrize("recipe", ["maxtext_llama2"])
def test_an_image_is_whole(site: Site) -> None:
    image = site.files.image
    whole = image.read_bytes()
    for broken in (bytes(96) + whole[96:], whole[:40] + b"\xff" + bytes(7) + b"\n" * 100, b"hsqs"):
        image.write_bytes(broken)
        lack = site.lack()
        assert f"{image} is not whole: its import was cut short, or runs still\n" in str(lack)
        assert f"mend: if no set-up runs (squeue): rm {image}, then run pytest with --provision" in str(lack)
        # enroot writes over no file.
        assert not isinstance(lack, Unprovisioned)
    image.unlink()
    lack = site.lack()
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
def test_a_set_up_that_was_cut_short_is_told(site: Site, undone: str) -> None:
    subprocess.run(["bash", "-c", undone], cwd=site.files.recipe, check=True)
    lack, nemo = site.lack(), site.files.recipe / "NeMo"
    assert f"a whole set-up in {nemo} (checked out at d2b21556, patched, installed) is missing" in str(lack)
    assert f"rm -rf {nemo}, and run pytest with --provision" in str(lack)
    assert not isinstance(lack, Unprovisioned)


@pytest.mark.parametrize("recipe", ["llama3"])
def test_a_python_that_is_too_old_is_told(site: Site) -> None:
    python = site.files.venv / "bin" / "python"
    real = python.resolve()
    python.unlink()
    version = f'[ "$1" = -c ] && exec {real} -c "import sys; sys.version_info = (3, 10, 11); $2"\nexit 1'
    python.symlink_to(site.tool("old python", version))
    # Of the version before the first that upstream takes.
    mend = "Python 3.10.12 or newer is missing\n    mend: put one on the PATH in `prologue`"
    assert mend in str(site.lack())
    site.tool("old python", version.replace("10, 11", "10, 12"))
    assert "Python 3.10.12" not in str(site.lack())
