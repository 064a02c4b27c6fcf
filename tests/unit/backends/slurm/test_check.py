"""What must be there before a launch and what Slurm takes, asked for in real bash: on stages as the set-ups leave them, of stand-ins for the tools."""

from __future__ import annotations

import re
import shutil
import subprocess
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

from fixtures.backends.base import Findings
from fixtures.backends.shell import Answer
from fixtures.backends.slurm.answers import LoginNode
from fixtures.backends.slurm.inventory import other_gpus
from fixtures.backends.slurm.preflight import Limits, long_waits
from fixtures.backends.slurm.section import Slurm
from fixtures.backends.ssh.connection import SshConnection
from plugins.base.errors import Denied, SiteError, Unprovisioned, Unreachable
from tests.lab.stage import make_stage
from tests.unit import examples
from tests.unit.backends.slurm.login import KEYS, Login

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


# What Slurm takes: stand-ins print what Slurm 22.05 with accounting printed in the lab


CASES = {nodes: examples.case(f"8b-bf16-{8 * nodes}gpus") for nodes in (1, 2, 4, 8)}
TAKEN = "sbatch: Job 98 to start at 2026-11-28T20:37:20 using 32 processors on nodes gpu[001-002] in partition batch"
LATER = "sbatch: Job 19 to start at 2027-02-26T20:57:26 using 128 processors on nodes gpu[001-008] in partition batch"
UNFIT = "allocation failure: Requested node configuration is not available"
POLICY = "allocation failure: Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)"
BATCH = {**KEYS, "account": "kid", "partition": "batch", "stage": "/s", "gres": "gpu:8"}

# Prints the file of its answers that is named after its options, with the status in that file's first line.
SBATCH = """\
nodes= jobs=1 later=
for word; do
    case $word in --nodes=*) nodes=${word#*=} ;; --array=1-*) jobs=${word#*-*-*-} ;; --begin=*) later=-later ;; esac
done
echo "$* QOS=$SBATCH_QOS GRES=$SBATCH_GRES" >>"${0%/*}/calls"
file=${0%/*}/$nodes-$jobs$later
[ -e "$file" ] || file=${0%/*}/usual
tail -n +2 "$file" >&2
exit "$(head -n 1 "$file")"\
"""


class Asked(Login):
    """A login node of which a test says what sbatch answers."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(root, monkeypatch)
        for tool, bash in {"sbatch": SBATCH, "scontrol": "", "sacctmgr": ""}.items():
            self.tool(tool, bash)
        self.says(TAKEN, 0)
        self.keys: dict[str, Any] = {}

    def says(self, text: str, status: int, nodes: int = 0, jobs: int = 1, later: str = "") -> None:
        """Let sbatch say this to a question; to all others without `nodes`."""
        name = f"{nodes}-{jobs}{later}" if nodes else "usual"
        (self.tools / name).write_text(f"{status}\n{text}\n")

    @cached_property
    def limits(self) -> Limits:
        section = Slurm.model_validate({**BATCH, **self.keys})
        return Limits(LoginNode("lab", section, SshConnection(section.ssh)))

    def ask(self, *nodes: int) -> Findings:
        return self.limits.findings([CASES[count] for count in nodes])

    def refused(self, *nodes: int) -> str:
        (missing,) = self.ask(*nodes).missing
        return missing

    @property
    def calls(self) -> list[str]:
        return sorted((self.tools / "calls").read_text().splitlines())


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Asked:
    return Asked(tmp_path, monkeypatch)


def test_each_scale_and_the_jobs_at_once_are_asked_once_a_session(slurm: Asked) -> None:
    slurm.keys = {"qos": "gpu", "time_limit": "01:00:00", "reservation": "accept"}
    findings = slurm.ask(2, 2, 1)
    assert (findings.missing, findings.remarks) == ([], [])
    taken = (
        "Slurm takes 8b-bf16-16gpus, 8b-bf16-16gpus on 2 node(s), 8b-bf16-8gpus on 1 node(s), 3 jobs at once"
    )
    assert findings.ready == [taken]
    asked = "--test-only --exclusive --mem=0 --account=kid --partition=batch --time=01:00:00"
    calls = [
        f"{asked} --nodes=1 --array=1-3 --wrap=true QOS=gpu GRES=gpu:8",
        f"{asked} --nodes=1 --wrap=true QOS=gpu GRES=gpu:8",
        f"{asked} --nodes=2 --wrap=true QOS=gpu GRES=gpu:8",
    ]
    assert slurm.calls == calls
    assert slurm.ask(1, 2, 2) == slurm.ask(1, 2, 2)
    assert slurm.calls == calls


def test_what_slurm_refuses_is_told_in_its_words_with_the_cases_and_what_to_do(slurm: Asked) -> None:
    slurm.says(f"sbatch: error: QOSMaxGRESPerJob\n{POLICY}", 1, nodes=4)
    slurm.says(f"sbatch: error: QOSMaxGRESPerJob\n{POLICY}", 1, nodes=8)
    assert slurm.ask(8, 4, 2).ready == ["Slurm takes 8b-bf16-16gpus on 2 node(s), 3 jobs at once"]
    assert slurm.refused(8, 4, 2).startswith(
        "Slurm refuses 8b-bf16-64gpus on 8 node(s), 8b-bf16-32gpus on 4 node(s): sbatch: error: QOSMaxGRESPerJob / "
        f"{POLICY}\n    mend: set `max_gpus` (now not set), `time_limit` (now 00:30:00), `qos` (now not set) or "
    )
    assert slurm.ask(8, 4, 2).remarks == []


def test_nodes_that_somebody_has_reserved_for_a_while_refuse_no_case(slurm: Asked) -> None:
    slurm.says(UNFIT, 1, nodes=8)
    slurm.says(LATER, 0, nodes=8, later="-later")
    assert slurm.ask(8).ready == ["Slurm takes 8b-bf16-64gpus on 8 node(s)"]
    assert "--begin=now+90days" in slurm.calls[0]


@pytest.mark.parametrize(
    "keys", [{"reservation": "accept"}, {"environment": {"SBATCH_RESERVATION": "accept"}}]
)
def test_a_job_in_a_reservation_is_not_asked_for_after_its_end(slurm: Asked, keys: dict[str, Any]) -> None:
    slurm.keys = keys
    slurm.says(UNFIT, 1, nodes=8)
    slurm.says(LATER, 0, nodes=8, later="-later")
    refused = slurm.refused(8)
    assert refused.startswith(f"Slurm refuses 8b-bf16-64gpus on 8 node(s): {UNFIT}\n    mend: set `max_gpus`")


def test_fewer_jobs_at_once_than_a_session_submits_are_told(slurm: Asked) -> None:
    slurm.keys = {"limits": {"jobs_in_flight": 2}}
    slurm.says(f"sbatch: error: QOSMaxSubmitJobPerUserLimit\n{POLICY}", 1, nodes=1, jobs=2)
    refused = slurm.refused(4, 2, 1)
    assert refused.startswith("Slurm refuses 2 jobs at once: sbatch: error: QOSMaxSubmitJobPerUserLimit / ")
    assert "\n    mend: set `jobs_in_flight` of `limits` (now 2) in the site file; see " in refused


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("allocation failure: Socket timed out on send/recv operation", 1),
        ("sbatch: error: resolve_ctls_from_dns_srv: res_nsearch error: Unknown host\nsbatch: fatal: Could not establish a configuration source", 1),
        # What job_submit/lua prints, with the error that it gives.
        ("sbatch: error: ask for fewer nodes\nallocation failure: Unspecified error", 1),
        ("allocation failure: Access/permission denied", 1),
        # A reservation that begins later.
        ("allocation failure: Invalid time specified", 1),
        ("sbatch: unrecognized option '--test-only'\nTry \"sbatch --help\" for more information", 255),
        ("timeout: failed to run command 'sbatch': No such file or directory", 127),
        ("Submitted nothing", 0),
        (UNFIT, 0),
    ],
)  # fmt: skip
def test_an_answer_that_is_no_clear_refusal_refuses_no_case(slurm: Asked, text: str, status: int) -> None:
    slurm.keys = {"reservation": "accept"}
    slurm.says(text, status, nodes=2)
    findings = slurm.ask(2, 1)
    assert findings.missing == []
    said = text.replace("\n", " / ")
    assert findings.remarks == [
        f"whether Slurm takes 8b-bf16-16gpus on 2 node(s) is not known: sbatch says {said}"
    ]


@pytest.mark.parametrize(
    ("error", "raised"), [(Unreachable("lab: no answer within 60 s"), False), (Denied("lab: refused"), True)]
)
def test_only_a_cluster_that_denies_access_ends_the_check(
    slurm: Asked, monkeypatch: pytest.MonkeyPatch, error: Unreachable, raised: bool
) -> None:
    def fail(self: SshConnection, script: str, **how: object) -> Answer:
        raise error

    monkeypatch.setattr(SshConnection, "run", fail)
    if raised:
        with pytest.raises(Denied):
            slurm.ask(1, 2)
    else:
        remark = "Slurm could not be asked what it takes: lab: no answer within 60 s"
        assert slurm.ask(1, 2) == Findings([], [], [remark])


@pytest.mark.parametrize(
    ("listed", "keys", "said"),
    [
        ("gpu:8(S:0-1)\n(null)", {}, []),
        ("gpu:H100:8,nvme:1", {"gres": "gpu:h100:8"}, []),
        ("gpu:h100:4\ngpu:h100:8", {"gres": "gpu:8"}, []),
        ("(null)\na banner", {}, []),
        ("gpu:h100:4,gpu:a100:4", {}, []),
        ("gpu:h100:4\ngpu:2", {}, ["no node of the partition batch has 8 GPUs; they have 2 or 4"]),
    ],
)
def test_gpus_that_no_node_has_are_told(listed: str, keys: dict[str, Any], said: list[str]) -> None:
    section = Slurm.model_validate({**BATCH, "gres": None, **keys})
    assert [text.partition("\n")[0] for text in other_gpus(listed, section)] == said


# What may let a case wait for hours. A partition in the form of `scontrol --oneliner`, rows of sacctmgr behind what they are of:
# GrpTRES, GrpTRESRunMins, MaxTRESPU, MaxTRESPA.

NAMES = {2: "of-2", 8: "of-8"}


def waits(text: str, **keys: Any) -> list[str]:
    section = Slurm.model_validate({**BATCH, **keys})
    return [line.partition(". If it holds")[0] for line in long_waits(text, section, NAMES)]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("PartitionName=batch AllowGroups=ALL State=DOWN TotalCPUs=64", ["partition batch is down: its jobs wait until it is up"]),
        ("PartitionName=batch AllowGroups=ALL State=UP TotalCPUs=64", []),
        ("QOS|qos1|cpu=64,gres/gpu=32|||", ["GrpTRES gres/gpu=32 of QOS qos1 is less than what of-8 needs"]),
        ("QOS|qos1|||gres/gpu=8,node=4|", ["MaxTRESPU gres/gpu=8 of QOS qos1 is less than what of-2, of-8 needs", "MaxTRESPU node=4 of QOS qos1 is less than what of-8 needs"]),
        ("QOS|qos1||||node=4", ["MaxTRESPA node=4 of QOS qos1 is less than what of-8 needs"]),
        ("account|lab_acct|gres/gpu=16|||\nuser|root|node=8|||", ["GrpTRES gres/gpu=16 of account lab_acct is less than what of-8 needs"]),
        ("QOS|normal||||\naccount|root||||\nbanner|of|node=1|||\nQOS|cut|node=1", []),
    ],
)  # fmt: skip
def test_a_limit_of_several_jobs_that_one_exceeds_alone_is_remarked_on(text: str, said: list[str]) -> None:
    assert waits(text) == said


def test_the_rows_are_those_of_the_jobs_own_qos_and_accounts(slurm: Asked) -> None:
    slurm.tool(
        "scontrol",
        'case $* in *config) echo "ClusterName             = lab" ;; *) echo "PartitionName=batch QoS=part State=UP" ;; esac',
    )
    slurm.tool(
        "sacctmgr",
        """case $* in
    *"show qos where name=part,usual format="*) echo 'part||||'; echo 'usual|gres/gpu=8|||' ;;
    *"clusters=lab account=kid user=$(id -un) format=DefaultQOS"*) echo usual ;;
    *"clusters=lab account=kid user=$(id -un)"*) echo 'me||' ;;
    *"account=kid user= "*) echo 'lab_acct|kid||' ;;
    *"account=lab_acct user= "*) echo 'root|lab_acct|node=1|' ;;
    *"account=root user= "*) echo '|root||' ;;
    *) exit 1 ;;
esac""",
    )
    told = [remark.partition(" is less")[0] for remark in slurm.ask(2).remarks]
    assert told == ["GrpTRES gres/gpu=8 of QOS usual", "GrpTRES node=1 of account lab_acct"]
