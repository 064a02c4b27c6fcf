"""A site file in the making: of what Slurm's tools and an API server say, as they should, and as nobody should."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import BaseModel

from fixtures.backends.draft import Draft, fits, names
from fixtures.backends.kubernetes import site_draft
from fixtures.backends.kubernetes.section import Kubernetes
from fixtures.backends.kubernetes.site_draft import Cluster
from fixtures.backends.shell import Answer
from fixtures.backends.slurm import survey
from fixtures.backends.slurm.inventory import FIND_FOLDERS, associations, folders, partitions
from fixtures.backends.slurm.section import Slurm
from fixtures.backends.slurm.survey import drafted
from fixtures.backends.ssh.endpoint import Ssh
from fixtures.site import load_site
from plugins.base.errors import ConfigError, Denied, SiteError, Unreachable
from plugins.recipes.expansion import load_recipe
from tests.unit.kubeapi import kubeconfig

KNOWN = {"h100", "h200", "b200", "gb200"}

# Slurm 22.05, as the lab's controller prints it.
LAB = """\
PartitionName=batch AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL AllocNodes=ALL Default=YES QoS=N/A DefaultTime=NONE DisableRootJobs=NO ExclusiveUser=NO GraceTime=0 Hidden=NO MaxNodes=UNLIMITED MaxTime=02:00:00 MinNodes=0 LLN=NO MaxCPUsPerNode=UNLIMITED Nodes=gpu[001-004] PriorityJobFactor=1 PriorityTier=1 RootOnly=NO ReqResv=NO OverSubscribe=NO OverTimeLimit=NONE PreemptMode=REQUEUE State=UP TotalCPUs=64 TotalNodes=4 SelectTypeParameters=NONE JobDefaults=(null) DefMemPerNode=UNLIMITED MaxMemPerNode=UNLIMITED TRES=cpu=64,mem=4000M,node=4,billing=64
PartitionName=small AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL AllocNodes=ALL Default=NO QoS=N/A DefaultTime=NONE DisableRootJobs=NO ExclusiveUser=NO GraceTime=0 Hidden=NO MaxNodes=2 MaxTime=00:20:00 MinNodes=0 LLN=NO MaxCPUsPerNode=UNLIMITED Nodes=gpu[001-004] PriorityJobFactor=1 PriorityTier=1 RootOnly=NO ReqResv=NO OverSubscribe=NO OverTimeLimit=NONE PreemptMode=REQUEUE State=UP TotalCPUs=64 TotalNodes=4 SelectTypeParameters=NONE JobDefaults=(null) DefMemPerNode=UNLIMITED MaxMemPerNode=UNLIMITED TRES=cpu=64,mem=4000M,node=4,billing=64

"""
LAB_NODES = "batch|idle|4|gpu:8|(null)\nsmall|idle|4|gpu:8|(null)\n"

# Slurm 20.11 (no TRES, no NodeSets) and 24.05 (NodeSets, ExclusiveTopo, MaxCPUsPerSocket, PowerDownOnIdle), by
# slurm_sprint_partition_info in partition_info.c.
OLD = """\
PartitionName=cpu AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL AllocNodes=ALL Default=YES QoS=N/A DefaultTime=01:00:00 DisableRootJobs=NO ExclusiveUser=NO GraceTime=0 Hidden=NO MaxNodes=UNLIMITED MaxTime=7-00:00:00 MinNodes=0 LLN=NO MaxCPUsPerNode=UNLIMITED Nodes=c[001-100] PriorityJobFactor=1 PriorityTier=1 RootOnly=NO ReqResv=NO OverSubscribe=NO OverTimeLimit=NONE PreemptMode=OFF State=UP TotalCPUs=12800 TotalNodes=100 SelectTypeParameters=NONE JobDefaults=(null) DefMemPerNode=UNLIMITED MaxMemPerNode=UNLIMITED
PartitionName=dgx AllowGroups=ALL DenyAccounts=guests,students AllowQos=normal,high AllocNodes=ALL Default=NO QoS=dgx DefaultTime=NONE DisableRootJobs=NO ExclusiveUser=NO GraceTime=0 Hidden=NO MaxNodes=16 MaxTime=UNLIMITED MinNodes=0 LLN=NO MaxCPUsPerNode=UNLIMITED Nodes=dgx[01-64] PriorityJobFactor=1 PriorityTier=1 RootOnly=NO ReqResv=NO OverSubscribe=EXCLUSIVE OverTimeLimit=NONE PreemptMode=OFF State=UP TotalCPUs=14336 TotalNodes=64 SelectTypeParameters=NONE JobDefaults=(null) DefMemPerNode=UNLIMITED MaxMemPerNode=UNLIMITED
"""
OLD_NODES = """\
cpu|idle|100|(null)|icelake,ib
dgx|allocated|50|gpu:h100:8(S:0-1)|sapphire,hbm3
dgx|drained*|4|gpu:h100:8(S:0-1)|sapphire,hbm3
dgx|mixed|10|gpu:h100:8(S:0-1)|sapphire,hbm3
"""
NEW = """\
PartitionName=defq AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL AllocNodes=ALL Default=YES QoS=N/A DefaultTime=NONE DisableRootJobs=NO ExclusiveUser=NO ExclusiveTopo=NO GraceTime=0 Hidden=NO MaxNodes=UNLIMITED MaxTime=00:10:00 MinNodes=0 LLN=NO MaxCPUsPerNode=UNLIMITED MaxCPUsPerSocket=UNLIMITED NodeSets=all Nodes=node[001-018] PriorityJobFactor=1 PriorityTier=1 RootOnly=NO ReqResv=NO OverSubscribe=NO OverTimeLimit=NONE PreemptMode=OFF State=UP TotalCPUs=2592 TotalNodes=18 SelectTypeParameters=NONE JobDefaults=(null) DefMemPerNode=UNLIMITED MaxMemPerNode=UNLIMITED TRES=cpu=2592,mem=16T,node=18,billing=2592,gres/gpu=72 ResumeTimeout=GLOBAL SuspendTimeout=GLOBAL SuspendTime=GLOBAL PowerDownOnIdle=NO
PartitionName=rack AllowGroups=ALL AllowAccounts=llm AllowQos=ALL AllocNodes=ALL Default=NO QoS=N/A DefaultTime=NONE DisableRootJobs=NO ExclusiveUser=NO ExclusiveTopo=NO GraceTime=0 Hidden=NO MaxNodes=UNLIMITED MaxTime=UNLIMITED MinNodes=0 LLN=NO MaxCPUsPerNode=UNLIMITED MaxCPUsPerSocket=UNLIMITED NodeSets=all Nodes=node[001-018] PriorityJobFactor=1 PriorityTier=1 RootOnly=NO ReqResv=YES OverSubscribe=NO OverTimeLimit=NONE PreemptMode=OFF State=UP TotalCPUs=2592 TotalNodes=18 SelectTypeParameters=NONE JobDefaults=(null) DefMemPerNode=UNLIMITED MaxMemPerNode=UNLIMITED TRES=cpu=2592,mem=16T,node=18,billing=2592,gres/gpu=72 ResumeTimeout=GLOBAL SuspendTimeout=GLOBAL SuspendTime=GLOBAL PowerDownOnIdle=NO
"""
NEW_NODES = """\
defq|idle|17|gpu:nvidia_gb200:4(S:0-1),mps:0|location=rack1,gb200
defq|down~|1|gpu:nvidia_gb200:4(S:0-1),mps:0|location=rack1,gb200
rack|idle|18|gpu:nvidia_gb200:4(S:0-1),mps:0|location=rack1,gb200
"""

# What sacctmgr prints of the user's associations, and of the user.
ACCOUNTS = """\
other|elsewhere||normal
cluster|guests||normal
cluster|llm|cpu|normal
cluster|llm||high,normal,scavenger
cluster|vision||normal
"""

SRUN = "      --container-image=[USER@][REGISTRY#]IMAGE[:TAG]|PATH\n"
MPI = "MPI plugin types are...\n\tpmix\n\tnone\n\tpmi2\nspecific pmix plugin versions available: pmix_v4\n"


def config(accounting: str = "accounting_storage/slurmdbd") -> str:
    return f"Configuration data\nAccountingStorageType   = {accounting}\nClusterName             = Cluster\nSLURM_VERSION           = 22.05.8\n"


def draft(**said: str) -> tuple[dict[str, Any], Draft, list[str]]:
    """The section by what the tools said, as the file has it, the draft, and what is to be done first."""
    usual = {
        "config": config(),
        "partitions": OLD,
        "nodes": OLD_NODES,
        "accounts": ACCOUNTS,
        "user": "llm\n",
        "srun": SRUN,
        "mpi": MPI,
        "folders": "lustre|5000000000|shared|/lustre/me\n",
        "stage": "",
    }
    made, to_do = drafted(Ssh(host="login"), "", {**usual, **said}, KNOWN)
    file = Draft()
    file.add("slurm", made)
    return yaml.safe_load(file.text())["slurm"], made, to_do


def asked(made: Draft) -> list[str]:
    return [question.key.removeprefix("slurm.") for question in made.questions]


def test_all_that_can_be_found_out_makes_a_whole_site_file(tmp_path: Path) -> None:
    section, made, to_do = draft()
    assert section == {
        "gpu": "h100",
        "gpus_per_node": 8,
        "gres": "gpu:8",
        # A job has 16 nodes at most.
        "max_gpus": 128,
        "partition": "dgx",
        "account": "llm",
        "stage": "/lustre/me/pacemark",
        "ssh": {"host": "login"},
    }
    assert asked(made) == []
    assert to_do == ["mkdir -p /lustre/me/pacemark"]
    file = Draft()
    file.set("site", "mine")
    file.add("slurm", made)
    (tmp_path / "site.yaml").write_text(file.text())
    assert load_site(tmp_path / "site.yaml").section("slurm") is not None
    # What was not chosen, and what is broken now, stands beside it.
    words = " ".join(file.text().replace("#", "").split())
    assert "cpu (100 nodes, no GPUs, 168 hours, default)" in words
    assert "4 of the partition's 64 nodes are down or drained now." in words
    assert "QOS of this account: high and normal." in words


@pytest.mark.parametrize(
    ("shown", "nodes", "kind", "count", "most", "partition", "limit"),
    [
        (LAB, LAB_NODES, None, 8, 32, "batch", None),
        (OLD, OLD_NODES, "h100", 8, 128, "dgx", None),
        # The other partition takes only jobs of a reservation.
        (NEW, NEW_NODES, "gb200", 4, 72, "defq", "00:10:00"),
    ],
    ids=["22.05", "20.11", "24.05"],
)
def test_partitions_as_several_versions_print_them(
    shown: str, nodes: str, kind: str | None, count: int, most: int, partition: str, limit: str | None
) -> None:
    section, made, _ = draft(partitions=shown, nodes=nodes)
    keys = ("gpu", "gpus_per_node", "max_gpus", "partition", "time_limit")
    assert [section.get(key) for key in keys] == [kind, count, most, partition, limit]
    assert asked(made) == ([] if kind else ["gpu"])


def test_a_banner_or_a_row_of_another_form_is_no_partition() -> None:
    listed = "Welcome | to | dgx\n\n" + OLD_NODES + "dgx|idle\nunknown|idle|4|gpu:h100:8|x\n"
    assert [one.name for one in partitions("*** maintenance = today ***\n" + OLD, listed)] == ["cpu", "dgx"]
    assert partitions("", OLD_NODES) == partitions(OLD, "") == []


@pytest.mark.parametrize(
    ("gres", "features", "kind"),
    [
        ("gpu:8", "ib,H200", "h200"),
        ("gpu:nvidia_h100_80gb_hbm3:8(S:0-1)", "(null)", "h100"),
        ("nvme:1,gpu:H200:8(IDX:0-7)", "h100", "h200"),
        # Other parts, no type, and two types in a node.
        ("gpu:h100_pcie:8", "(null)", None),
        ("gpu:8", "non_h100,h100-nvl", None),
        ("gpu:a100:8", "h100", None),
        ("gpu:h100:4,gpu:h200:4", "h100", None),
    ],
)
def test_the_type_of_gpu_is_told_or_asked(gres: str, features: str, kind: str | None) -> None:
    section, made, _ = draft(nodes=f"dgx|idle|64|{gres}|{features}\n")
    assert section.get("gpu") == kind
    assert asked(made) == ([] if kind else ["gpu"])


@pytest.mark.parametrize(
    ("nodes", "keys"),
    [
        ("dgx|idle|8|gpu:h100:8|x\ndgx|idle|8|gpu:h200:8|y\n", ["gpu", "constraint"]),
        ("dgx|idle|64|(null)|(null)\n", ["gpu", "gpus_per_node"]),
    ],
    ids=["two types in a partition", "Slurm names no GPUs"],
)
def test_what_slurm_does_not_tell_of_the_gpus_is_asked(nodes: str, keys: list[str]) -> None:
    section, made, _ = draft(nodes=nodes)
    assert asked(made) == keys
    assert ("gres" in section) is ("gpu:" in nodes)


@pytest.mark.parametrize(
    ("accounts", "user", "account"),
    [
        (ACCOUNTS, "vision\n", "vision"),
        # guests may not use the partition, the first row is of another cluster.
        (ACCOUNTS, "guests\n", "llm"),
        ("CLUSTER|llm||normal\n", "", "llm"),
        ("cluster|llm|cpu|normal\n", "llm\n", None),
        ("sacctmgr: banner\n", "", None),
    ],
)
def test_the_account_is_the_users_default_if_the_partition_takes_it(
    accounts: str, user: str, account: str | None
) -> None:
    section, made, _ = draft(accounts=accounts, user=user)
    assert section.get("account") == account
    assert asked(made) == ([] if account else ["account"])


def test_a_partition_that_takes_none_of_the_users_accounts_is_not_chosen() -> None:
    section, _, _ = draft(accounts="cluster|guests||normal\n", user="guests\n")
    assert (section["partition"], section["account"]) == ("cpu", "guests")
    assert {one.account for one in associations(ACCOUNTS, "Cluster")} == {"guests", "llm", "vision"}


def test_a_parallel_file_system_comes_first_and_the_home_folder_last() -> None:
    said = """\
nfs4|90000000|shared|/nfs/me
lustre|10|home|/lustre/home/me
fuse.juicefs|100|shared|/jfs/me
lustre|200|shared|/lustre/scratch/me
tmpfs|99999999|shared|/tmp
lustre|x|shared|/broken
"""
    paths = ["/lustre/scratch/me", "/jfs/me", "/broken", "/nfs/me", "/lustre/home/me"]
    assert [one.path for one in folders(said)] == paths
    # A stage that the user has is taken.
    section, _, to_do = draft(stage="/lustre/team/stage\n")
    assert (section["stage"], to_do) == ("/lustre/team/stage", [])


@pytest.mark.parametrize("said", ["lustre|100|shared|/lustre/with blank\n", "lustre|1|shared|/x;reboot\n"])
def test_a_stage_that_cannot_be_found_is_asked_for(said: str) -> None:
    section, made, to_do = draft(folders=said)
    assert "stage" not in section
    assert (asked(made), to_do) == (["stage"], [])


def test_plugins_that_the_login_node_lacks_are_asked_about() -> None:
    _, made, _ = draft(srun="Usage: srun\n", mpi="MPI plugin types are...\n\tpmi2\n")
    assert asked(made) == ["on_nodes_only"]
    assert "on_nodes_only: [Pyxis, PMIx]" in made.text()
    assert "[Pyxis]" in draft(srun="Usage: srun\n")[1].text()


def test_names_that_break_yaml_and_answers_of_megabytes_do_no_harm() -> None:
    odd = '"]}\x1b[2J#&*'
    row = OLD.splitlines()[1]
    shown = OLD + row.replace("=dgx", f"={odd}", 1) + "\n" + "PartitionName=x " * 100_000 + "\n"
    nodes = OLD_NODES + f"{odd}|idle|9999|gpu:h100:8|{odd}\n" + "\x00" * 1_000_000
    rows = ACCOUNTS + f"cluster|{odd}||{odd}\n" + "".join(f"cluster|a{n}||q\n" for n in range(5_000))
    stage = f"lustre|1|shared|/{odd}\n"
    section, made, _ = draft(
        partitions=shown, nodes=nodes, accounts=rows, srun="y" * 3_000_000, folders=stage
    )
    assert (section["partition"], section["account"]) == ("dgx", "llm")
    assert len(made.text()) < 10_000
    assert "\x1b" not in made.text()


class Login:
    """A login node whose Slurm is in a module, or nowhere; `said` are answers by a word of their scripts."""

    def __init__(self, **said: Answer) -> None:
        self.module = True
        self.said = said

    def run(self, script: str, **_: object) -> Answer:
        if "command -v" in script:
            return Answer(0 if self.module and "module load slurm" in script else 1, "", "")
        return next((answer for word, answer in self.said.items() if word in script), Answer(0, "", ""))


def test_slurm_in_a_module_is_found_and_the_module_stands_in_the_file() -> None:
    prologue, answers = survey._ask("login", Login(list=Answer(1, "", MPI)))  # type: ignore[arg-type]
    assert (prologue, answers["mpi"], answers["accounts"]) == ("module load slurm", MPI, "")
    made, _ = drafted(Ssh(host="login"), prologue, answers, KNOWN)
    assert "prologue: module load slurm\n" in made.text()


def test_a_login_node_without_slurm_and_a_controller_that_does_not_answer() -> None:
    login = Login(partition=Answer(1, "", "slurm_load_partitions: Unable to contact slurm controller\n"))
    with pytest.raises(Unreachable, match=r"^login: scontrol: status 1: .*Unable to contact"):
        survey._ask("login", login)  # type: ignore[arg-type]
    login.module = False
    with pytest.raises(SiteError, match=r"login: the login shell does not find sbatch"):
        survey._ask("login", login)  # type: ignore[arg-type]


def test_the_script_finds_the_folder_that_the_user_may_write_to(tmp_path: Path) -> None:
    """The script itself, with a list of mounts of the test's own."""
    for folder in ("lustre/users/me", "with blank/me", "home/me", "tmpfs/me", "hung", "bin"):
        (tmp_path / folder).mkdir(parents=True)
    test = tmp_path / "bin" / "test"
    test.write_text('#!/bin/bash\ncase $2 in */hung/*) exec sleep 60 ;; esac\nexec /usr/bin/test "$@"\n')
    test.chmod(0o755)
    kinds = {"lustre": "lustre", r"with\040blank": "fuse.juicefs", "home": "nfs4", "tmpfs": "tmpfs"}
    lines = [
        f"server:/x {tmp_path}/{mount} {kind} rw,relatime 0 0\n"
        for mount, kind in {**kinds, "hung": "nfs", "missing": "nfs"}.items()
    ]
    mounts = tmp_path / "mounts"
    mounts.write_text("".join(lines))
    script = FIND_FOLDERS.replace("/proc/mounts", str(mounts)).replace("kill-after=1 3", "kill-after=1 0.5")
    script = f"id() {{ echo me; }}\n{script}"
    done = subprocess.run(
        ["bash", "-c", script],
        env={"PATH": f"{tmp_path}/bin:/usr/bin:/bin", "HOME": f"{tmp_path}/home/me"},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    found = {one.path.removeprefix(f"{tmp_path}/"): one for one in folders(done.stdout)}
    assert {path: (one.kind, one.is_home) for path, one in found.items()} == {
        "lustre/users/me": ("lustre", False),
        "with blank/me": ("fuse.juicefs", False),
        "home/me": ("nfs4", True),
    }, done.stderr
    assert all(one.free > 0 for one in found.values())


# A site file in the making: what it says is valid YAML, whatever a cluster said


HOSTILE = (
    "a: {b: [",
    "x\n  account: root\n",
    "\x1b[2J\x07\x00\x85\u2028\ufeff\uffff",
    "\ud800",
    "# not a comment",
    "'\"&*!|>%@`",
    "-\t- ?: x",
    "größe",
    "a" * 3_000_000,
    "",
)


@pytest.mark.parametrize("said", HOSTILE, ids=range(len(HOSTILE)))
def test_whatever_a_cluster_says_stays_in_its_comment(said: str) -> None:
    draft = Draft()
    draft.set("site", "x", said, f"others: {names([said] * 50)}")
    draft.offer("qos", said[:200], said)
    draft.ask("gpu", "h100", said)
    text = draft.text(said)
    assert yaml.safe_load(text) == {"site": "x"}
    assert text.isascii()
    assert all(line.isprintable() for line in text.split("\n"))
    assert len(text) < 20_000


@pytest.mark.parametrize("said", [said for said in HOSTILE if len(said) < 1000 and "\ud800" not in said])
def test_a_value_is_what_it_was(said: str) -> None:
    draft = Draft()
    draft.set("site", said)
    draft.set("labels", {"key": [said, "1:30:00", "007", "yes"]})
    assert yaml.safe_load(draft.text()) == {"site": said, "labels": {"key": [said, "1:30:00", "007", "yes"]}}


def test_a_mapping_without_a_value_is_commented_out_as_a_whole() -> None:
    draft = Draft()
    draft.set("site", "x")
    values = draft.within("jobset").within("recipes").within("llama3_gke").within("values")
    values.ask("image", "", "the image")
    values.ask("bucket", "b", "the bucket")
    assert yaml.safe_load(draft.text()) == {"site": "x"}
    # Without the marks it says what was asked.
    block = draft.text().partition("# jobset:")
    restored = "jobset:" + "\n".join(line.removeprefix("# ") for line in block[2].splitlines())
    assert yaml.safe_load(restored) == {
        "jobset": {"recipes": {"llama3_gke": {"values": {"image": "", "bucket": "b"}}}}
    }
    assert [question.key for question in draft.questions] == [
        "jobset.recipes.llama3_gke.values.image",
        "jobset.recipes.llama3_gke.values.bucket",
    ]


class Model(BaseModel):
    site: str
    """What the model says."""

    port: int = 22


def test_a_comment_begins_with_what_the_model_says_of_the_key() -> None:
    draft = Draft("", Model)
    draft.set("site", "x", "What was found.")
    draft.offer("port", 22)
    draft.within("ssh", model=Model).set("site", "y")
    assert (
        draft.text("Head.")
        == """\
# Head.

# What the model says.
# What was found.
site: x
# port: 22

ssh:
  # What the model says.
  site: y
"""
    )


def test_names_are_counted_when_there_are_many() -> None:
    assert names([]) == "none"
    assert names(["a"]) == "a"
    assert names(["a", "b", "c"]) == "a, b and c"
    assert names(map(str, range(2000))).endswith("11 and 1988 more")


@pytest.mark.parametrize(
    ("key", "value", "good"),
    [
        ("partition", "batch,h100", True),
        ("partition", "a b", False),
        ("partition", "batch\n", False),
        ("account", "", False),
        ("stage", "/lustre/me", True),
        ("stage", "lustre", False),
    ],
)
def test_a_key_takes_only_what_its_model_takes(key: str, value: str, good: bool) -> None:
    assert fits(Slurm, key, value) is good


# What an API server tells: nodes as clouds label them, and what a user may not see


SUITES = Path(__file__).resolve().parents[3] / "suites"
RECIPES = [load_recipe(SUITES / name) for name in ("gpt3_aks", "llama3_gke", "llama3")]

Node = dict[str, Any]


def labelled(labels: dict[str, str], taints: tuple[dict[str, str], ...] = (), **resources: str) -> Node:
    others = {key.replace("__", "/"): n for key, n in resources.items()}
    offered = {"cpu": "96", "nvidia.com/gpu": "8", **others}
    return {
        "metadata": {"name": "n", "uid": "u", "labels": labels},
        "spec": {"taints": list(taints)},
        "status": {"allocatable": {key: n for key, n in offered.items() if n != "0"}},
    }


GPUS = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
SKU = {"key": "sku", "value": "gpu", "effect": "NoSchedule"}
POOL, PRODUCT = "cloud.google.com/gke-nodepool", "nvidia.com/gpu.product"


def gke(pool: str = "a3-mega", kind: str = "nvidia-h100-mega-80gb", **resources: str) -> Node:
    return labelled({POOL: pool, "cloud.google.com/gke-accelerator": kind}, (GPUS,), **resources)


def aks(pool: str = "gpu", kind: str = "Standard_ND96isr_H100_v5", **resources: str) -> Node:
    labels = {"agentpool": pool, "node.kubernetes.io/instance-type": kind}
    return labelled(labels, (SKU,), **{"rdma__ib": "8", **resources})


def system(cloud: str) -> Node:
    label = {"gke": POOL, "aks": "agentpool"}[cloud]
    return labelled({label: "system"}, (), **{"nvidia.com__gpu": "0"})


def named(*names: str, **spec: Any) -> list[dict[str, Any]]:
    return [{"metadata": {"name": name}, "spec": spec} for name in names]


def sections(**told: Any) -> tuple[dict[str, Any], dict[str, Draft]]:
    """The sections by what the server told, as the file has them, and their drafts."""
    usual: dict[str, Any] = {
        "site": Kubernetes(gpu="any", context="ctx", namespace="runs"),
        "release": "v1.33.3-gke.1226000",
        "kinds": ("JobSet",),
        "trainer": False,
        "kueue": False,
        "nodes": [gke(), gke(), system("gke")],
        "namespaces": named("default", "runs"),
        "queues": [],
        "claims": named("data", accessModes=["ReadWriteMany"]),
        "classes": named("standard"),
    }
    drafts = site_draft.drafted(Cluster(**{**usual, **told}), KNOWN, RECIPES)
    file = Draft()
    for name, draft in drafts.items():
        file.add(name, draft)
    return yaml.safe_load(file.text()) or {}, drafts


def keys_asked(draft: Draft) -> list[str]:
    return [question.key.partition(".")[2] for question in draft.questions]


VALUES = [f"recipes.llama3_gke.values.{name}" for name in ("image", "bucket")]


USUAL = {"gpu": "h100", "gpus_per_node": 8, "context": "ctx", "namespace": "runs"}


def test_gke_with_jobset() -> None:
    found, drafts = sections()
    assert found == {"jobset": {**USUAL, "max_gpus": 16, "tolerations": [GPUS]}}
    # What no cluster knows is left to the user.
    assert keys_asked(drafts["jobset"]) == VALUES


def test_aks_with_the_training_operator(tmp_path: Path) -> None:
    found, drafts = sections(
        kinds=("PyTorchJob",),
        nodes=[aks(), aks(), aks(), system("aks")],
        site=Kubernetes(gpu="any", kubeconfig="~/.kube/aks", context="ctx", namespace="runs"),
    )
    claim = {"kubeconfig": "~/.kube/aks", "recipes": {"gpt3_aks": {"values": {"claim": "data"}}}}
    assert found == {"pytorchjob": {**USUAL, "max_gpus": 24, "tolerations": [SKU], **claim}}
    assert keys_asked(drafts["pytorchjob"]) == []
    path = tmp_path / "site.yaml"
    path.write_text(yaml.safe_dump({"site": "x", **found}))
    assert load_site(path).section("pytorchjob") is not None


@pytest.mark.parametrize(
    ("kinds", "nodes", "expected"),
    [
        (("JobSet",), [aks()], ["pytorchjob"]),
        (("JobSet", "PyTorchJob"), [gke()], ["jobset"]),
        (("JobSet", "PyTorchJob"), [gke(), aks()], ["jobset", "pytorchjob"]),
        # GPU pools that an autoscaler has emptied: the other nodes tell the cloud.
        (("JobSet",), [system("gke")], ["jobset"]),
        # A user who may not see nodes.
        (("JobSet",), None, ["jobset", "pytorchjob"]),
        ((), [gke()], []),
    ],
)
def test_the_sections_follow_from_the_kinds_of_job_and_the_cloud(
    kinds: tuple[str, ...], nodes: list[Node] | None, expected: list[str]
) -> None:
    assert list(sections(kinds=kinds, nodes=nodes)[1]) == expected


def test_pools_of_the_same_gpus_are_all_used_and_others_left_out() -> None:
    small = gke("l4", "nvidia-l4", **{"nvidia.com__gpu": "1"})
    found, _ = sections(nodes=[gke("a"), gke("b"), small, system("gke")])
    assert found["jobset"]["node_affinity"] == {POOL: ["a", "b"]}
    assert found["jobset"]["max_gpus"] == 16
    found, _ = sections(nodes=[gke("a"), gke("l4", "nvidia-l4"), gke("l4", "nvidia-l4")])
    assert found["jobset"]["node_selector"] == {POOL: "a"}


@pytest.mark.parametrize(
    ("labels", "kind"),
    [
        ({"cloud.google.com/gke-accelerator": "nvidia-h200-141gb"}, "h200"),
        ({PRODUCT: "NVIDIA-H100-80GB-HBM3"}, "h100"),
        # Other parts, and none that is known.
        ({"cloud.google.com/gke-accelerator": "nvidia-tesla-a100"}, None),
        ({"node.kubernetes.io/instance-type": "Standard_NC80adis_H100_v5"}, None),
        ({PRODUCT: "NVIDIA-H100-80GB-HBM3-MIG-1g.10gb"}, None),
    ],
)
def test_the_type_of_gpu_is_told_by_labels_or_asked(labels: dict[str, str], kind: str | None) -> None:
    found, drafts = sections(nodes=[labelled({POOL: "x", **labels})])
    assert found["jobset"].get("gpu") == kind
    assert ("gpu" in keys_asked(drafts["jobset"])) is (kind is None)


@pytest.mark.parametrize(
    ("resources", "expected", "questions"),
    [
        ({}, {}, []),
        ({"rdma__ib": "0", "rdma__shared_ib": "1k"}, {"rdma": "rdma/shared_ib", "rdma_count": "1"}, []),
        ({"rdma__ib": "0", "nvidia.com__rdma_hca": "8"}, {"rdma": "nvidia.com/rdma_hca", "rdma_count": "8"}, []),
        ({"rdma__ib": "0"}, {}, ["recipes.gpt3_aks.values.rdma"]),
    ],
)  # fmt: skip
def test_infiniband_goes_by_the_name_that_the_nodes_offer(
    resources: dict[str, str], expected: dict[str, str], questions: list[str]
) -> None:
    found, drafts = sections(nodes=[aks(**resources)])
    assert found["pytorchjob"]["recipes"]["gpt3_aks"]["values"] == {"claim": "data", **expected}
    assert keys_asked(drafts["pytorchjob"]) == questions


@pytest.mark.parametrize(
    ("claims", "claim"),
    [
        (named("a", "shared-storage-pvc", accessModes=["ReadWriteMany"]), "shared-storage-pvc"),
        (named("a", accessModes=["ReadWriteOnce"]), None),
        (named('"]} #', accessModes=["ReadWriteMany"]), None),
        (None, None),
    ],
)
def test_the_claim_is_one_that_all_nodes_may_write_to(
    claims: list[dict[str, Any]] | None, claim: str | None
) -> None:
    found, drafts = sections(nodes=[aks()], claims=claims)
    values = found["pytorchjob"].get("recipes", {}).get("gpt3_aks", {}).get("values", {})
    assert values.get("claim") == claim
    assert keys_asked(drafts["pytorchjob"]) == ([] if claim else ["recipes.gpt3_aks.values.claim"])


@pytest.mark.parametrize(
    ("kueue", "queues", "queue", "question"),
    [
        (False, [], None, False),
        (True, named("first", "second"), "first", False),
        (True, [], None, False),
        (True, None, None, True),
        (True, named("\x1b[2J", "good"), "good", False),
    ],
)
def test_a_queue_of_kueue(
    kueue: bool, queues: list[dict[str, Any]] | None, queue: str | None, question: bool
) -> None:
    found, drafts = sections(kueue=kueue, queues=queues)
    assert found["jobset"].get("queue") == queue
    assert ("queue" in keys_asked(drafts["jobset"])) is question


def test_a_user_who_may_see_nothing_gets_a_file_of_questions() -> None:
    found, drafts = sections(kueue=True, nodes=None, namespaces=None, queues=None, claims=None, classes=None)
    assert found == {key: {"context": "ctx", "namespace": "runs"} for key in ("jobset", "pytorchjob")}
    assert keys_asked(drafts["jobset"]) == ["gpu", "queue", *VALUES]
    assert keys_asked(drafts["pytorchjob"]) == ["gpu", "queue", "recipes.gpt3_aks.values.claim"]


def test_taints_that_pass_by_themselves_and_values_that_no_key_takes_are_left_out() -> None:
    passing = {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}
    bare = {"key": "gpu", "effect": "NoSchedule"}
    labels, long = {POOL: "x", PRODUCT: "\x1b[2J" * 1000}, {**bare, "key": "x" * 999}
    found, _ = sections(nodes=[labelled(labels, (passing, bare)), labelled(labels, (bare, long))])
    assert found["jobset"]["tolerations"] == [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}]


# The kubeconfig


def test_a_context_that_does_not_exist_is_an_error_with_those_that_do(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path / "config", "https://127.0.0.1:1")
    with pytest.raises(ConfigError, match="the kubeconfig has no context 'her'; did you mean 'here'"):
        site_draft.survey("her", str(path), KNOWN, [])
    with pytest.raises(Denied, match="no such file"):
        site_draft.survey("", str(tmp_path / "missing"), KNOWN, [])
    path.write_text("contexts: 3\n")
    with pytest.raises(Denied, match="cannot be used"):
        site_draft.survey("", str(path), KNOWN, [])
