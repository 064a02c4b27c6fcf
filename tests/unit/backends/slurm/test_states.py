"""Slurm's words: every state of squeue(1) has a phase, and nothing unknown counts as over."""

from __future__ import annotations

import pytest

from fixtures.backends.slurm.states import PHASES, hopeless, phase
from plugins.record.job import Phase

# "JOB STATE CODES" of squeue(1), Slurm 22.05 to 24.11, and those that only sacct(1) lists.
SQUEUE = {
    "BOOT_FAIL": Phase.FAILED,
    "CANCELLED": Phase.FAILED,
    "COMPLETED": Phase.SUCCEEDED,
    "CONFIGURING": Phase.QUEUED,
    "COMPLETING": Phase.ENDING,
    "DEADLINE": Phase.FAILED,
    "FAILED": Phase.FAILED,
    "NODE_FAIL": Phase.FAILED,
    "OUT_OF_MEMORY": Phase.FAILED,
    "PENDING": Phase.QUEUED,
    "PREEMPTED": Phase.FAILED,
    "RUNNING": Phase.RUNNING,
    "RESV_DEL_HOLD": Phase.QUEUED,
    "REQUEUE_FED": Phase.QUEUED,
    "REQUEUE_HOLD": Phase.QUEUED,
    "REQUEUED": Phase.QUEUED,
    "RESIZING": Phase.RUNNING,
    "REVOKED": Phase.FAILED,
    "SIGNALING": Phase.RUNNING,
    "SPECIAL_EXIT": Phase.QUEUED,
    "STAGE_OUT": Phase.ENDING,
    "STOPPED": Phase.SUSPENDED,
    "SUSPENDED": Phase.SUSPENDED,
    "TIMEOUT": Phase.FAILED,
}
LATER = {
    "EXPEDITING": Phase.QUEUED,
    "LAUNCH_FAILED": Phase.FAILED,
    "POWER_UP_NODE": Phase.QUEUED,
    "RECONFIG_FAIL": Phase.FAILED,
    "UPDATE_DB": Phase.RUNNING,
}


@pytest.mark.parametrize(("word", "expected"), [*SQUEUE.items(), *LATER.items()])
def test_every_state_has_its_phase(word: str, expected: Phase) -> None:
    assert phase(word) is expected


def test_the_table_has_no_other_state() -> None:
    assert set(PHASES) == set(SQUEUE) | set(LATER)


@pytest.mark.parametrize("word", SQUEUE)
def test_case_and_space_do_not_matter(word: str) -> None:
    assert phase(f" {word.lower()} ") is SQUEUE[word]


# sacct cuts a state to ten characters unless it is asked not to.
@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("CANCELLED by 1234", Phase.FAILED),
        ("CANCELLED+", Phase.FAILED),
        ("OUT_OF_ME+", Phase.FAILED),
        ("RESV_DEL_+", Phase.QUEUED),
        ("REQUEUE_H+", Phase.QUEUED),
        ("COMPLETIN+", Phase.ENDING),
        ("CONFIGURI+", Phase.QUEUED),
        ("SPECIAL_E+", Phase.QUEUED),
    ],
)
def test_long_and_cut_words(word: str, expected: Phase) -> None:
    assert phase(word) is expected


@pytest.mark.parametrize(
    "word",
    ["", " ", "+", "COMPLET+", "RE+", "R", "CD", "DONE", "COMPLETED?", "COMPLETED,RESIZING", "Unknown", "\0"],
)
def test_what_is_unknown_or_ambiguous_counts_as_still_there(word: str) -> None:
    assert phase(word) is Phase.UNKNOWN
    assert not phase(word).over


def test_only_these_phases_are_over() -> None:
    assert {found for found in Phase if found.over} == {Phase.SUCCEEDED, Phase.FAILED, Phase.GONE}


@pytest.mark.parametrize(
    "reason",
    [
        "AccountNotAllowed",
        "BadConstraints",
        "DependencyNeverSatisfied",
        "InvalidAccount",
        "InvalidQOS",
        "JobHeldAdmin",
        "PartitionInactive",
        "PartitionNodeLimit",
        "PartitionTimeLimit",
        "QOSNotAllowed",
        "ReservationDeleted",
        "MaxMemPerLimit",
        "launch failed requeued held",
        "launch_failed_requeued_held",
        "job requeued in held state",
        "JobHoldMaxRequeue",
        "BurstBufferOperation",
        "PartitionConfig",
        "QOSUsageThreshold",
        "AssocGrpGRESMinutes",
        "AssocGrpCPUMinutesLimit",
        "AssocGrpBillingMinutes",
        "AssocGrpWallLimit",
        "QOSGrpGRESMinutes",
        "QOSGrpMemoryMinutes",
        "QOSGrpWallLimit",
        "QOSMaxNodePerJobLimit",
        "AssocMaxWallDurationPerJobLimit",
        "MaxNodePerJobLimit",
        "QOSMaxGRESPerJob",
        "QOSMaxGRESMinutesPerJob",
        "QOSMaxGRESPerNode",
        "QOSMaxCpuPerNode",
        "QOSMinGRES",
        "QOSMinCpuNotSatisfied",
        "Job's account not permitted to use this partition (small allows other not lab_acct)",
        "Job's QOS not permitted to use this partition (small denies high including high)",
    ],
)
def test_a_reason_that_does_not_pass_is_hopeless(reason: str) -> None:
    assert hopeless("PENDING", reason)
    assert hopeless("PENDING", f"({reason})")
    assert not hopeless("RUNNING", reason)


# A held job waits for its user, and nobody will come: the suite submitted it.
def test_a_job_that_its_user_holds_is_hopeless() -> None:
    assert hopeless("PENDING", "JobHeldUser")


@pytest.mark.parametrize(
    "reason",
    [
        "",
        "None",
        "Resources",
        "Priority",
        "Dependency",
        "BeginTime",
        "Licenses",
        "Prolog",
        "Reservation",
        "Cleaning",
        "ReqNodeNotAvail, UnavailableNodes:gpu[001-002]",
        "NodeDown",
        "QOSGrpNodeLimit",
        "AssocGrpGRES",
        "AssocGrpNodeLimit",
        "AssocMaxJobsLimit",
        "QOSMaxJobsPerUserLimit",
        "QOSMaxGRESPerUser",
        "QOSGrpGRES",
        "QOSGrpJobsLimit",
        "QOSGrpGRESRunMinutes",
        "AssocGrpCPURunMinutesLimit",
        "AssocGrpUnknownRunMinutes",
        "PartitionDown",
        "ReqNodeNotAvail, Reserved for maintenance",
        "BurstBufferResources",
        "FedJobLock",
        "SchedDefer",
        "MaxGRESPerAccount",
        "MaxJobsPerAccount",
        "JobArrayTaskLimit",
        "SomethingNew",
    ],
)
def test_a_reason_that_passes_is_not_hopeless(reason: str) -> None:
    assert not hopeless("PENDING", reason)


@pytest.mark.parametrize("state", ["REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD"])
def test_a_state_that_somebody_must_end_is_hopeless_whatever_its_reason(state: str) -> None:
    assert hopeless(state, "None")
