"""The limits that Slurm's tools tell, against cases. Texts are as Slurm 22.05 prints them with slurmdbd, in the lab."""

from __future__ import annotations

from typing import Any

import pytest

from fixtures.backends.shell import Answer
from fixtures.backends.slurm.limits import ACCOUNT_COLUMNS, QOS_COLUMNS, need_of, satisfies
from fixtures.backends.slurm.refusals import compared
from fixtures.backends.slurm.section import Slurm

CONFIG = """\
Configuration data as of 2026-11-23T18:11:12
AccountingStorageEnforce = associations,limits,qos
ClusterName             = pacemark
"""
PARTITION = (
    "PartitionName=batch AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL AllocNodes=ALL Default=YES QoS=N/A DefaultTime=NONE "
    "DisableRootJobs=NO ExclusiveUser=NO GraceTime=0 Hidden=NO MaxNodes=UNLIMITED MaxTime=02:00:00 MinNodes=0 LLN=NO "
    "MaxCPUsPerNode=UNLIMITED Nodes=gpu[001-016] PriorityJobFactor=1 PriorityTier=1 RootOnly=NO ReqResv=NO OverSubscribe=NO "
    "OverTimeLimit=NONE PreemptMode=REQUEUE State=UP TotalCPUs=128 TotalNodes=16 SelectTypeParameters=NONE"
)
NODES = "batch|idle|16|gpu:8|(null)\n"
# The columns ACCOUNT_COLUMNS: what names the row, six limits of TRES, GrpSubmit, MaxSubmit, MaxWall.
USER = "pacemark|kid|root|||qos1|qos1,normal|||||||||\n"
ACCOUNTS = "pacemark|kid|||lab_acct||normal|||||||||\npacemark|lab_acct|||root||normal|||||||||\npacemark|root|||||normal|||||||||\n"
# The columns QOS_COLUMNS.
QOS = "normal||||||||||||||\nqos1|DenyOnLimit|||||||||||||\n"


def row(text: str, **limits: str) -> str:
    """The last line of a table, with these limits set."""
    *first, last = text.splitlines()
    cells = last.split("|")
    columns = ACCOUNT_COLUMNS if len(cells) == len(ACCOUNT_COLUMNS) else QOS_COLUMNS
    for name, value in limits.items():
        cells[columns.index(name)] = value
    return "\n".join([*first, "|".join(cells), ""])


def found(site: dict[str, Any], **answers: str | Answer) -> tuple[str, str]:
    """What is missing, and what is remarked, for cases of 2, 8 and 16 nodes, with these keys of the site file."""
    usual = {
        "config": CONFIG,
        "partitions": PARTITION,
        "nodes": NODES,
        "user": USER,
        "accounts": ACCOUNTS,
        "qos": QOS,
    }
    asked = {
        name: text if isinstance(text, Answer) else Answer(0, text, "")
        for name, text in {**usual, **answers}.items()
    }
    keys = {
        "gpu": "h100",
        "ssh": {"host": "a"},
        "account": "kid",
        "partition": "batch",
        "stage": "/s",
        "gres": "gpu:8",
    }
    section = Slurm.model_validate({**keys, **site})
    needs = [need_of(f"of-{nodes}", nodes, 8 * nodes, section, 3) for nodes in (2, 8, 16)]
    result = compared(section, asked, needs)
    assert bool(result.ready) == (not result.missing)
    return "\n".join(result.missing), "\n".join(result.remarks)


def test_a_cluster_without_limits_takes_every_case() -> None:
    assert found({}) == ("", "")


RESERVED = "ReservationName=accept StartTime=2026-11-23T18:00:00 EndTime=2026-11-23T19:00:00 Duration=01:00:00 Nodes=gpu[001-002] NodeCnt=2 CoreCnt=32 Features=(null) PartitionName=batch Flags=SPEC_NODES TRES=cpu=32 Users=root Groups=(null) Accounts=(null) Licenses=(null) State=ACTIVE"


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ({"nodes": "batch|idle|8|gpu:8|(null)\n"}, "8 nodes are in partition batch with 8 GPUs: too little for of-16 (16 nodes)\n    mend: set `max_gpus: 64`"),
        ({"nodes": "batch|idle|8|gpu:8|a\nbatch|idle|8|gpu:4|a\n"}, "8 nodes are in partition batch with 8 GPUs"),
        ({"nodes": "batch|idle|15|gpu:8|a\nbatch|drained|1|gpu:8|a\n"}, "15 of the 16 nodes of partition batch with 8 GPUs are neither down nor drained: too little for of-16"),
        ({"partitions": PARTITION.replace("MaxNodes=UNLIMITED", "MaxNodes=8")}, "MaxNodes=8 of partition batch: too little for of-16 (16 nodes)"),
        ({"partitions": PARTITION.replace("MinNodes=0", "MinNodes=4")}, "MinNodes=4 of partition batch: too much for of-2 (2 nodes)"),
        ({"partitions": PARTITION.replace("MaxTime=02:00:00", "MaxTime=00:20:00")}, 'MaxTime=00:20:00 of partition batch: too little for of-2 (30 minutes), of-8 (30 minutes), of-16 (30 minutes)\n    mend: set `time_limit: "00:20:00"`'),
        ({"partitions": PARTITION.replace("State=UP", "State=DOWN")}, "partition batch takes no jobs now"),
        ({"partitions": PARTITION.replace("AllowAccounts=ALL", "AllowAccounts=vision")}, "partition batch does not admit the account kid"),
        ({"partitions": PARTITION.replace("AllowQos=ALL", "DenyQos=qos1")}, "partition batch does not admit the QOS qos1"),
        ({"partitions": PARTITION.replace("AllowQos=ALL", "AllowQos=high")}, "partition batch does not admit the QOS qos1"),
        ({"user": row(USER, MaxTRES="node=4")}, "MaxTRES node=4 of user root in account kid: too little for of-8 (8 nodes), of-16"),
        ({"user": row(USER, MaxWall="00:10:00")}, "MaxWall=00:10:00 of user root in account kid: too little for of-2 (30 minutes)"),
        ({"accounts": row(ACCOUNTS, GrpTRES="cpu=64,gres/gpu=64")}, "GrpTRES gres/gpu=64 of account root: too little for of-16 (128 GPUs)\n    mend: set `max_gpus: 64`"),
        ({"accounts": row(ACCOUNTS, GrpSubmit="2")}, "GrpSubmit=2 of account root: too little for of-2 (3 jobs at once), of-8 (3 jobs at once), of-16 (3 jobs at once)\n    mend: set `limits: {jobs_in_flight: 2}`"),
        ({"accounts": row(ACCOUNTS, GrpTRESMins="gres/gpu=1000")}, "GrpTRESMins gres/gpu=1000 of account root: too little for of-8 (1920 GPUs x minutes)"),
        ({"qos": row(QOS, MaxTRESPU="gres/gpu=64")}, "MaxTRESPU gres/gpu=64 of QOS qos1: too little for of-16 (128 GPUs)"),
        ({"qos": row(QOS, MaxTRESPA="node=8")}, "MaxTRESPA node=8 of QOS qos1: too little for of-16 (16 nodes)"),
        ({"qos": row(QOS, MaxTRESPerNode="gres/gpu=4")}, "MaxTRESPerNode gres/gpu=4 of QOS qos1: too little for of-2 (8 GPUs of a node)"),
        ({"qos": row(QOS, MinTRES="gres/gpu=64")}, "MinTRES gres/gpu=64 of QOS qos1: too much for of-2 (16 GPUs)"),
        ({"qos": row(QOS, MaxSubmitPU="0")}, "MaxSubmitPU=0 of QOS qos1: too little for of-2 (3 jobs at once)"),
    ],
)  # fmt: skip
def test_what_a_limit_refuses_is_told_with_the_cases_and_what_to_do(
    answers: dict[str, str], said: str
) -> None:
    missing, _ = found({}, **answers)
    assert missing.startswith(said)
    assert missing.count("mend: ") == 1


@pytest.mark.parametrize(
    ("site", "answers", "said"),
    [
        ({"constraint": "hbm3&ib"}, {"nodes": "batch|idle|4|gpu:8|hbm3,ib\nbatch|idle|12|gpu:8|ib\n"}, "4 nodes are in partition batch with 8 GPUs and the features hbm3&ib: too little for of-8 (8 nodes), of-16"),
        ({"account": "nobodys"}, {}, "the account nobodys is not one that this user may charge in partition batch\n    mend: set `account` in the site file to one of kid"),
        ({"qos": "high"}, {}, "the QOS high is not one that the account kid may use\n    mend: set `qos` in the site file to one of qos1, normal"),
        ({"reservation": "accept"}, {"reservation": RESERVED}, "2 nodes are in reservation accept: too little for of-8 (8 nodes), of-16"),
        ({"reservation": "acept"}, {"reservation": Answer(1, "Reservation acept not found", "")}, "the reservation acept is missing"),
        ({"gres": "gpu:h100:8"}, {"qos": row(QOS, MaxTRES="gres/gpu:h100=64")}, "MaxTRES gres/gpu:h100=64 of QOS qos1: too little for of-16 (128 GPUs)"),
    ],
)  # fmt: skip
def test_what_the_site_file_asks_for_is_compared(
    site: dict[str, Any], answers: dict[str, Any], said: str
) -> None:
    assert found(site, **answers)[0].startswith(said)


@pytest.mark.parametrize(
    ("site", "answers"),
    [
        # Slurm takes whichever partition admits the job, and the first level that sets a limit.
        ({"partition": "batch,long"}, {"partitions": f"{PARTITION.replace('MaxTime=02:00:00', 'MaxTime=00:20:00')}\n{PARTITION.replace('=batch', '=long')}", "nodes": NODES + NODES.replace("batch", "long")}),
        ({}, {"qos": row(QOS, MaxWall="01:00:00"), "user": row(USER, MaxWall="00:10:00")}),
        ({}, {"qos": row(QOS, GrpTRES="node=16"), "accounts": row(ACCOUNTS, GrpTRES="node=8")}),
        # The QOS lifts limits of the partition.
        ({}, {"qos": row(QOS, Flags="DenyOnLimit,PartitionMaxNodes"), "partitions": PARTITION.replace("MaxNodes=UNLIMITED", "MaxNodes=8")}),
        ({}, {"qos": row(QOS, Flags="PartitionTimeLimit"), "partitions": PARTITION.replace("MaxTime=02:00:00", "MaxTime=00:20:00")}),
        # Its own QOS goes before the partition's.
        ({}, {"qos": f"{row('part' + 14 * '|', MaxTRES='node=8')}{row(QOS, Flags='OverPartQOS', MaxTRES='node=16')}", "partitions": PARTITION.replace("QoS=N/A", "QoS=part")}),
        # These limits are not enforced, are of another QOS, or of another cluster.
        ({}, {"config": CONFIG.replace(",limits,qos", ""), "qos": row(QOS, MaxWall="00:01:00")}),
        ({}, {"config": CONFIG.replace("associations,limits,qos", "none"), "user": Answer(1, "", "no accounting"), "accounts": "", "qos": ""}),
        ({"qos": "normal"}, {"qos": row(QOS, MaxWall="00:01:00")}),
        ({}, {"user": USER + row(USER, MaxWall="00:01:00").replace("pacemark", "other")}),
        # GRES is not configured, and a node that is powered down takes jobs.
        ({"gres": None}, {"nodes": "batch|idle~|16|(null)|(null)\n"}),
        ({"constraint": "a|b"}, {"nodes": "batch|idle|8|gpu:8|a\nbatch|idle|8|gpu:8|b\n"}),
        ({"reservation": "accept"}, {"reservation": RESERVED.replace("NodeCnt=2", "NodeCnt=16"), "partitions": PARTITION.replace("ReqResv=NO", "ReqResv=YES")}),
    ],
)  # fmt: skip
def test_a_limit_that_does_not_hold_refuses_nothing(site: dict[str, Any], answers: dict[str, Any]) -> None:
    assert found(site, **answers) == ("", "")


@pytest.mark.parametrize(
    ("site", "answers", "remark"),
    [
        ({}, {"qos": Answer(1, "sacctmgr: error: Access denied", "")}, "not compared with the limits that `sacctmgr show qos` tells, because it says status 1: sacctmgr: error: Access denied"),
        ({}, {"user": Answer(124, "", "")}, "not compared with the limits that `sacctmgr show associations` tells"),
        ({}, {"qos": row(QOS, MaxTRES="cpu=64")}, "MaxTRES cpu=64 of QOS qos1 is not compared with the cases"),
        ({"constraint": "[rack1*4&rack2*4]"}, {}, "which nodes have `constraint: [rack1*4&rack2*4]` is not known"),
    ],
)  # fmt: skip
def test_what_is_not_compared_is_said(site: dict[str, Any], answers: dict[str, Any], remark: str) -> None:
    assert found(site, **answers)[1].startswith(remark)


@pytest.mark.parametrize(
    ("constraint", "known"),
    [("a", True), ("a&b", True), ("a&c", False), ("c|b", True), ("a&b|c", None), ("(a)", None), ("", True)],
)
def test_a_constraint_is_compared_with_features(constraint: str, known: bool | None) -> None:
    assert satisfies(constraint, ("a", "b")) is known
