"""What Slurm's tools print: states and reasons, rows among banners, parts of jobs, ids with something glued to them, and anything at all."""

from __future__ import annotations

import itertools
import random
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fixtures.backends.base import ClusterTimes, InQueue
from fixtures.backends.shell import Answer
from fixtures.backends.slurm.answers import (
    LoginNode,
    blamed,
    mend_of,
    of_last_step,
    only_node,
    printed_ids,
    unanswered,
)
from fixtures.backends.slurm.controller import Controller
from fixtures.backends.slurm.job_table import Accounts, JobTable, from_queue, from_scontrol
from fixtures.backends.slurm.launcher import cancel
from fixtures.backends.slurm.preflight import Limits, lacking
from fixtures.backends.slurm.section import Slurm
from fixtures.backends.slurm.states import PHASES, hopeless, phase
from fixtures.backends.ssh.connection import SshConnection
from fixtures.backends.ssh.endpoint import Ssh
from plugins.base.errors import Unreachable
from plugins.judging.complaints import complaints
from plugins.logs import Log
from plugins.logs.formats import read
from plugins.record.job import JobRef, JobState, Phase
from tests.unit import examples
from tests.unit.backends.slurm.login import SECTION

BATCH = Slurm(gpu="h100", account="kid", partition="batch", stage="/s", gres="gpu:8", ssh=Ssh(host="login"))
JOB = JobRef("llama3", "70b-fp8-512gpus", "ours", "17", "/logs")
PATTERNS = {
    name: launch.job_id
    for name in ("llama3", "nemotron4", "maxtext_llama2")
    if (launch := examples.recipe_named(name).file.launch) is not None
}


def begun(*rows: str) -> str:
    """These rows of squeue with the times of the job, its restarts and its exit code."""
    return "".join(f"{row}|1763830000|1763830500|1763829990|0|256\n" for row in rows)


def accounted(*rows: str) -> dict[JobRef, JobState]:
    """What these rows of sacct say of the job, with its times."""
    return Accounts("".join(f"{row}|1763830000|1763830500\n" for row in rows)).states([JOB])


def squeue(*rows: str) -> JobState | None:
    return JobTable(begun(*rows)).states([JOB]).get(JOB)


@pytest.mark.parametrize("row", ["", "170|ours|RUNNING|n|None", "17|ours|RUNNING"])
def test_another_row_is_none_of_ours(row: str) -> None:
    assert squeue(row) is None


# Seen on Slurm 22.05 in the seconds after a short job of eight nodes.
def test_a_row_of_sacct_that_is_not_complete_yet_says_nothing() -> None:
    assert accounted("17|allocation|FAILED|gpu001|3:0") == {}
    failed = JobState(Phase.FAILED, "FAILED", nodes="gpu[001-008]", exit_code="3:0")
    assert accounted("17|ours|FAILED|gpu[001-008]|3:0") == {JOB: failed}


# As sbatch of Slurm 22.05 prints them in the lab, of a submission and with --test-only.
@pytest.mark.parametrize(
    ("said", "keys"),
    [
        ("sbatch: error: Batch job submission failed: Invalid qos specification", ["`qos` (now not set)"]),
        ("allocation failure: Invalid account or account/partition combination specified", ["`account` (now kid)"]),
        ("sbatch: error: invalid partition specified: nowhere\nallocation failure: Invalid partition name specified", ["`partition` (now batch)"]),
        ("allocation failure: User's group not permitted to use this partition", ["`partition` (now batch)"]),
        ("allocation failure: Requested reservation is invalid", ["`reservation` (now not set)"]),
        ("allocation failure: Invalid feature specification", ["`constraint` (now not set)"]),
        ("sbatch: error: Invalid generic resource (gres) specification", ["`gres` (now gpu:8)"]),
        ("allocation failure: Requested time limit is invalid (missing or exceeds some limit)", ["`time_limit` (now 00:30:00)"]),
        ("allocation failure: Node count specification invalid", ["`max_gpus` (now not set)", "`partition` (now batch)"]),
        ("allocation failure: Requested node configuration is not available", ["`max_gpus` (now not set)", "`gres` (now gpu:8)"]),
        ("sbatch: error: QOSMaxGRESPerJob\nallocation failure: Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)", ["`max_gpus` (now not set)", "`time_limit` (now 00:30:00)", "`sacctmgr show qos`"]),
        ("sbatch: error: QOSMaxSubmitJobPerUserLimit\nallocation failure: Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)", ["`jobs_in_flight` of `limits` (now 8)"]),
    ],
)  # fmt: skip
def test_a_refusal_is_told_with_the_keys_to_change(said: str, keys: list[str]) -> None:
    mend = mend_of(f"Entering\n{said}\n", BATCH)
    assert mend.startswith(f"set {keys[0]}")
    assert "in the site file; see `" in mend
    assert all(key in mend for key in keys)


@pytest.mark.parametrize(
    "said",
    [
        "",
        "allocation failure: Access/permission denied",
        "allocation failure: Invalid time specified",
        "allocation failure: Socket timed out on send/recv operation",
        "sbatch: error: lua: ask for fewer nodes\nallocation failure: Unspecified error",
    ],
)
def test_other_words_of_slurm_refuse_nothing_for_good(said: str) -> None:
    assert mend_of(said, BATCH) == ""


# Seen on Slurm 22.05: `squeue --jobs=17` lists all parts of an array or a heterogeneous job of that id.
@pytest.mark.parametrize(
    ("rows", "phase"),
    [
        (["17_[0-3]|ours|PENDING||Resources"], Phase.UNKNOWN),
        (["17_1|ours|RUNNING|n1|None", "17_0|ours|COMPLETED|n2|None"], Phase.UNKNOWN),
        (["17_1|ours|COMPLETED|n1|None", "17_0|ours|COMPLETED|n2|None"], Phase.FAILED),
        (["17+0|ours|RUNNING|n1|None", "17+1|ours|RUNNING|n2|None"], Phase.UNKNOWN),
        (["17+0|ours|CANCELLED|n1|None", "17+1|ours|CANCELLED|n2|None"], Phase.FAILED),
    ],
)
def test_parts_are_named_and_never_a_success(rows: list[str], phase: Phase) -> None:
    state = squeue(*rows)
    assert state is not None
    assert state.phase is phase
    assert all(row.partition("|")[0] in state.raw for row in rows)


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="|"), max_size=40), max_size=6))
def test_banners_change_nothing(banner: list[str]) -> None:
    text = "\n".join([*banner, begun("17|ours|RUNNING|n1|None"), *banner])
    assert JobTable(text).states([JOB]) == {JOB: JobState(Phase.RUNNING, "RUNNING", nodes="n1")}
    assert JobTable(text).living("ours") == {"17": True}
    text = "\n".join([*banner, "17|ours|TIMEOUT|n1|0:15|1|2", *banner])
    timeout = JobState(Phase.FAILED, "TIMEOUT", nodes="n1", exit_code="0:15")
    assert Accounts(text).states([JOB]) == {JOB: timeout}


def test_scontrols_line_is_a_state() -> None:
    text = "JobId=16 JobName=ours JobState=RUNNING\nJobId=17 JobName=ours JobState=FAILED Reason=NonZeroExitCode ExitCode=1:0 NodeList=n[1-2]"
    assert from_scontrol(JOB, text) == JobState(
        Phase.FAILED, "FAILED", reason="NonZeroExitCode", nodes="n[1-2]", exit_code="1:0"
    )
    assert from_scontrol(JOB, "slurm_load_jobs error: Invalid job id specified") is None


def test_the_jobs_of_a_name_are_told_whole_and_in_order() -> None:
    rows = ["21_0|ours|COMPLETED|n|None", "21_1|ours|RUNNING|n|None", "9|ours|CANCELLED||None"]
    table = JobTable(begun(*rows, "100+0|ours|PENDING||None", "5|theirs|RUNNING|n|None"))
    assert table.living("ours") == {"9": False, "21": True, "100": True}


@pytest.mark.parametrize("glued", ["", ";alps", "_[0-3]", "+0"])
def test_what_is_glued_to_an_id_is_seen(glued: str) -> None:
    text = f"Task 0: x\n- Job id: 4711{glued}\n- Local Directory: /logs\n"
    assert printed_ids(PATTERNS["llama3"], text) == [("4711", glued)]
    assert printed_ids(PATTERNS["llama3"], text.replace("4711", "nothing")) == []


# sbatch's own reply, where anything but an id, alone or with its cluster, is no id at all.
@pytest.mark.parametrize("recipe", ["nemotron4", "maxtext_llama2"])
def test_the_reply_of_sbatch_is_an_id_or_none(recipe: str) -> None:
    banner = "sbatch: note: 12 nodes are down\n"
    assert printed_ids(PATTERNS[recipe], f"{banner}4711\n") == [("4711", "")]
    assert printed_ids(PATTERNS[recipe], f"{banner}4711;alps\n") == [("4711", ";alps")]
    assert printed_ids(PATTERNS[recipe], f"{banner}4711_3\n4712+0\n") == []


@pytest.mark.parametrize(
    "error",
    [
        "Socket timed out on send/recv operation",
        "Unable to contact slurm controller (connect failure)",
        "Message receive failure",
    ],
)
def test_a_controller_that_did_not_answer_is_known(error: str) -> None:
    line = f"sbatch: error: Batch job submission failed: {error}"
    assert unanswered(f"loading modules\n{line}\n") == line


@pytest.mark.parametrize(
    "error",
    [
        "sbatch: error: Batch job submission failed: Invalid account or account/partition combination specified",
        "curl: (28) Connection timed out",
    ],
)
def test_a_refusal_is_an_answer(error: str) -> None:
    assert unanswered(error) == ""


@pytest.mark.parametrize(
    ("text", "node"),
    [
        ("JobId=17 JobState=NODE_FAIL Reason=None FailedNode=gpu-3.rack1 Dependency=(null)", "gpu-3.rack1"),
        ("+ srun ./train\nsrun: error: Node failure on gpu003\n", "gpu003"),
        ("srun: error: gpu003: task 17: Exited with exit code 1", "gpu003"),
        # What follows from the first failure is no failure of its own.
        (
            "srun: error: gpu003: task 17: Aborted\nsrun: Terminating StepId=17.0\nsrun: error: gpu[001-002]: tasks 0-15: "
            "Terminated\nsrun: error: gpu004: tasks 24-31: Killed",
            "gpu003",
        ),
        # A shell around a task answers SIGTERM so.
        (
            "srun: error: gpu003: task 17: Killed\nsrun: launch/slurm: _step_signal: Terminating StepId=4.0\nsrun: error: gpu005: "
            "tasks 32-35: Exited with exit code 143\nsrun: error: gpu002: tasks 8-15: Terminated\nsrun: Force Terminated StepId=4.0",
            "gpu003",
        ),
        (
            "srun: Job step aborted: Waiting up to 32 seconds for job step to finish.\nsrun: error: gpu003: task 17: Aborted",
            "",
        ),
        ("srun: Job step aborted: Waiting up to 32 seconds.\nsrun: error: Node failure on gpu003", "gpu003"),
        ("srun: error: gpu003: task 17: Killed", ""),
        ("srun: error: gpu003: task 17: Aborted\nsrun: error: gpu004: task 25: Aborted", ""),
        ("slurmstepd: error: *** JOB 17 ON gpu001 CANCELLED DUE TO NODE FAILURE, SEE SLURMCTLD LOG ***", ""),
    ],
)
def test_a_node_is_blamed_only_where_it_is_named_alone(text: str, node: str) -> None:
    assert blamed(text) == node


# llama3's batch script as bash traces it under `set -evx`: what it reads, what it runs, what srun says.
SUDO_FAILS = """\
head_node_ip=$(srun --nodes=1 --ntasks=1 -w "$head_node" hostname --ip-address)
++ srun --nodes=1 --ntasks=1 -w gpu001 hostname --ip-address
+ head_node_ip=10.0.0.1
srun --ntasks=64 --output vboost.out --error vboost.err bash -c 'sudo nvidia-smi boost-slider --vboost 1'
+ srun --ntasks=64 --output vboost.out --error vboost.err bash -c 'sudo nvidia-smi boost-slider --vboost 1'
srun: error: gpu007: task 6: Exited with exit code 127
srun --output log.out --container-image i.sqsh --kill-on-bad-exit=1 train
"""
TRAINING = """\
+ srun --output log.out --container-image i.sqsh --kill-on-bad-exit=1 train
srun: error: gpu002: task 11: Exited with exit code 1
exitcode=$?
+ exitcode=1
"""


def test_a_step_that_prepares_the_nodes_is_blamed_for_nothing() -> None:
    assert of_last_step((SUDO_FAILS + TRAINING).encode()).decode() == TRAINING
    quiet = TRAINING.replace("gpu002: task 11: Exited with exit code 1", "Invalid MPI type")
    assert blamed(of_last_step((SUDO_FAILS + quiet).encode()).decode()) == ""
    # Without a trace nobody knows which step spoke.
    plain = b"srun: error: gpu002: task 11: Exited with exit code 1\n"
    assert of_last_step(plain) == plain


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("3:17|ours|PENDING||Priority|1763830000\n", InQueue(3, 1763830000.0)),
        # A squeue that does not know the form of times.
        ("3:17|ours|PENDING||Priority|2026-11-22T12:00:00\n", InQueue(3)),
        ("banner\n2:16|other|PENDING||Priority|N/A\n3:17|ours|PENDING||Priority|0\n", InQueue(3)),
        ("x:17|ours|PENDING||Priority|N/A\n", None),
        (f"{'9' * 5000}:17|ours|PENDING||Priority|N/A\n", None),
        (f"3:17|ours|PENDING||Priority|{'9' * 12}\n", InQueue(3)),
        ("", None),
    ],
)
def test_the_number_of_a_line_of_the_queue_is_a_position(text: str, found: InQueue | None) -> None:
    text = text.replace("\n", "|N/A|1763829990|0|0\n")
    assert from_queue([JOB], text).get(JOB) == found


def test_the_times_of_a_job_are_those_that_slurm_has() -> None:
    def listed(name: str, state: str, *times: object) -> ClusterTimes | None:
        row = ["17", name, state, "n1", "None", *times]
        return JobTable("|".join(map(str, row))).times(JOB)

    span = ClusterTimes(started=1763830000.0, ended=1763830500.0)
    assert listed("ours", "COMPLETED", 1763830000, 1763830500, 1, 0, 0) == span
    assert listed("ours", "FAILED", "Unknown", "2026-11-22T12:00:00", 1, 0, 0) == ClusterTimes()
    assert listed("ours", "FAILED", 1763830000, 1763830500, 1, 2, 0) == replace(span, restarts=2)
    # Of a job that runs, squeue has the time at which it must end.
    assert listed("ours", "RUNNING", 1, 2, 1, 0, 0) is None
    assert listed("x", "COMPLETED", 1, 2, 1, 0, 0) is None
    assert listed("ours", "COMPLETED", 1, 2) is None
    rows = "17|ours|COMPLETED|n|0:0|1763830000|1763830500\n17.batch|ours|COMPLETED|n|0:0|5|6\n"
    assert Accounts(rows).attempts(JOB, None) == span
    begins = "17|ours|RUNNING|n|0:0|1763830000|Unknown\n"
    assert Accounts(begins).attempts(JOB, None) == ClusterTimes(started=1763830000.0)
    assert Accounts("17|another|COMPLETED|n|0:0|1|2\n").attempts(JOB, None) == ClusterTimes()


# Slurm before 23.02 prints what wait(2) gives, and since then what sacct prints.
@pytest.mark.parametrize(
    ("code", "shown"),
    [("0", "0:0"), ("256", "1:0"), ("9", "0:9"), ("137", "0:9"), ("1:0", "1:0"), ("0:15", "0:15"), ("4294967294", ""), ("", "")],
)  # fmt: skip
def test_the_exit_code_of_a_job_that_failed_is_told_in_one_form(code: str, shown: str) -> None:
    row = f"17|ours|FAILED|n1|NonZeroExitCode|1|2|1|0|{code}"
    assert JobTable(row).states([JOB])[JOB].exit_code == shown
    assert JobTable(row.replace("FAILED", "COMPLETED")).states([JOB])[JOB].exit_code == ""


def test_the_last_start_of_a_job_is_told_once_it_began() -> None:
    assert JobTable(begun("17|ours|RUNNING|n1|None")).starts([JOB]) == {JOB: 1763830000.0}
    assert JobTable(begun("17|ours|COMPLETED|n1|0:0")).starts([JOB]) == {JOB: 1763830000.0}
    # Of a job that waits, squeue has the time at which it may start.
    for row in ("17|ours|PENDING||Resources", "17|theirs|RUNNING|n1|None", "17_0|ours|RUNNING|n1|None"):
        assert JobTable(begun(row)).starts([JOB]) == {}
    unknown = begun("17|ours|RUNNING|n1|None").replace("1763830000", "N/A")
    assert JobTable(f"{unknown}17|ours|RUNNING").starts([JOB]) == {}


def test_the_earlier_attempts_of_a_job_are_those_that_accounting_has() -> None:
    def attempts(*times: str, last: ClusterTimes | None = None) -> ClusterTimes:
        return Accounts("".join(f"17|{time}\n" for time in times)).attempts(JOB, last)

    # A job that was requeued before it ran has no start, and another cluster's job had the same id.
    ours = "ours|REQUEUED|n|0:0"
    times = ("2000|2300", "Unknown|Unknown", "3000|3050")
    earlier = ["other|FAILED|n|0:0|1|1000", *(f"{ours}|{time}" for time in times)]
    last = ClusterTimes(started=4000.0, ended=4500.0)
    assert attempts(*earlier, f"{ours}|4000|4500") == replace(last, earlier_seconds=350.0, restarts=3)
    # Accounting may not know yet that the last attempt began, or ended.
    for behind in ([], [f"{ours}|4000|Unknown"]):
        assert attempts(*earlier, *behind, last=last) == replace(last, earlier_seconds=350.0)
    assert attempts(last=last) == last


# The words of states and reasons. Every state of squeue(1) has a phase, and nothing unknown counts as over.

# "JOB STATE CODES" of squeue(1), Slurm 22.05 to 24.11, and those that only sacct(1) lists.
STATES = {
    Phase.QUEUED: "CONFIGURING EXPEDITING PENDING POWER_UP_NODE REQUEUED REQUEUE_FED REQUEUE_HOLD RESV_DEL_HOLD SPECIAL_EXIT",
    Phase.RUNNING: "RESIZING RUNNING SIGNALING UPDATE_DB",
    Phase.SUSPENDED: "STOPPED SUSPENDED",
    Phase.ENDING: "COMPLETING STAGE_OUT",
    Phase.SUCCEEDED: "COMPLETED",
    Phase.FAILED: (
        "BOOT_FAIL CANCELLED DEADLINE FAILED LAUNCH_FAILED NODE_FAIL OUT_OF_MEMORY PREEMPTED RECONFIG_FAIL REVOKED TIMEOUT"
    ),
}
# sacct cuts a state to ten characters unless it is asked not to.
CUT = {
    Phase.QUEUED: "CONFIGURI+ REQUEUE_H+ RESV_DEL_+ SPECIAL_E+",
    Phase.ENDING: "COMPLETIN+",
    Phase.FAILED: "CANCELLED+ OUT_OF_ME+",
}


@pytest.mark.parametrize("expected", STATES)
def test_every_state_has_its_phase(expected: Phase) -> None:
    words = STATES[expected].split()
    assert {word for word, known in PHASES.items() if known is expected} == set(words)
    for word in [*words, *(f" {word.lower()} " for word in words), *CUT.get(expected, "").split()]:
        assert phase(word) is expected, word
    assert expected.over is (expected in (Phase.SUCCEEDED, Phase.FAILED))


@pytest.mark.parametrize(
    "word",
    ["", " ", "+", "COMPLET+", "RE+", "R", "CD", "DONE", "COMPLETED?", "COMPLETED,RESIZING", "Unknown", "\0"],
)
def test_what_is_unknown_or_ambiguous_counts_as_still_there(word: str) -> None:
    assert phase(word) is Phase.UNKNOWN
    assert not phase(word).over
    assert Phase.GONE.over


# Of more than one word, or of a pair of brackets.
LASTING = [
    "launch failed requeued held",
    "job requeued in held state",
    "Job's account not permitted to use this partition (small allows other not lab_acct)",
    "Job's QOS not permitted to use this partition (small denies high including high)",
]
# A held job waits for its user, and nobody will come: the suite submitted it.
LASTING_WORDS = """
    JobHeldUser JobHeldAdmin JobHoldMaxRequeue launch_failed_requeued_held
    AccountNotAllowed InvalidAccount InvalidQOS QOSNotAllowed BadConstraints DependencyNeverSatisfied ReservationDeleted
    PartitionInactive PartitionNodeLimit PartitionTimeLimit PartitionConfig BurstBufferOperation MaxMemPerLimit
    QOSUsageThreshold AssocGrpGRESMinutes AssocGrpCPUMinutesLimit AssocGrpBillingMinutes AssocGrpWallLimit QOSGrpGRESMinutes
    QOSGrpMemoryMinutes QOSGrpWallLimit QOSMaxNodePerJobLimit AssocMaxWallDurationPerJobLimit MaxNodePerJobLimit
    QOSMaxGRESPerJob QOSMaxGRESMinutesPerJob QOSMaxGRESPerNode QOSMaxCpuPerNode QOSMinGRES QOSMinCpuNotSatisfied
"""


@pytest.mark.parametrize("reason", [*LASTING, *LASTING_WORDS.split()])
def test_a_reason_that_does_not_pass_is_hopeless(reason: str) -> None:
    assert hopeless("PENDING", reason)
    assert hopeless("PENDING", f"({reason})")
    assert not hopeless("RUNNING", reason)


PASSING = ["", "ReqNodeNotAvail, UnavailableNodes:gpu[001-002]", "ReqNodeNotAvail, Reserved for maintenance"]
PASSING_WORDS = """
    None Resources Priority Dependency BeginTime Licenses Prolog Reservation Cleaning NodeDown PartitionDown
    BurstBufferResources FedJobLock SchedDefer JobArrayTaskLimit SomethingNew
    QOSGrpNodeLimit AssocGrpGRES AssocGrpNodeLimit AssocMaxJobsLimit QOSMaxJobsPerUserLimit QOSMaxGRESPerUser QOSGrpGRES
    QOSGrpJobsLimit QOSGrpGRESRunMinutes AssocGrpCPURunMinutesLimit AssocGrpUnknownRunMinutes MaxGRESPerAccount MaxJobsPerAccount
"""


@pytest.mark.parametrize("reason", [*PASSING, *PASSING_WORDS.split()])
def test_a_reason_that_passes_is_not_hopeless(reason: str) -> None:
    assert not hopeless("PENDING", reason)


# Slurm's tools, a launcher and a login node say anything: what follows is the truth, a doubt or one clear error.

ID = re.compile("[1-9][0-9]{0,9}")

# What squeue prints last: when a job begins, ends and was submitted, its restarts and its exit code.
TIMES = "|N/A|N/A|1763830000|0|0:0"

# What answers are made of, and what has no place in them.
WORDS = [
    "17", "17|", "17_0|", "17+0|", "ours", "ours|", "|", "\n", "\n", "\r\n", " ", "RUNNING", "COMPLETED", "COMPLETED|", "FAILED", "CANCELLED by 1",
    "n1", "None", "Unknown", "+", "allocation", "JobId=17 ", "JobName=ours ", "JobState=COMPLETED ", "JobState=", "=", "(null)", "PartitionName=p State=DOWN ", "pacemark-answer 2 1 0 ", " to start at ", "QOS|q|node=",
    "- Job id: ", "- Job id: 17\n", "\n17\n", ";c", "pacemark-job 17\n", "Invalid job id", "lacks 0\n", "lacks 99\n", "checked\n", "srun: error: ",
    "srun: error: n1: task 1: ", "Node failure on ", "FailedNode=", "StdOut=/", "9" * 5000, "-1", "٣", "²", "1e999", "NaN", "n[0-99999999999]", "$(id)",
    "\0", "\x0b", "\x1c", "\x85", "\u2028", "\ufffd", "\x1b[2J",
]  # fmt: skip
ANYTHING = st.lists(st.sampled_from(WORDS) | st.text(max_size=4), max_size=25).map("".join)
# A user's own word: a name, a comment. A line's end in it would be one of the table.
OWN_WORDS = st.lists(st.sampled_from(WORDS) | st.text(max_size=6), max_size=12).map(
    lambda words: "".join(words).replace("\n", "").replace("\r", "")
)


@given(ANYTHING)
def test_anything_is_an_answer(text: str) -> None:
    for table in (JobTable(text), Accounts(text)):
        # Nothing is told of a job but by a whole row of its own.
        rows = [line.strip().split("|") for line in text.replace("\r", "\n").split("\n")]
        told = table.states([JOB])
        assert not told or any(row[0].startswith("17") and len(row) == table.width for row in rows)
    assert from_scontrol(JOB, text) is None or "JobId=17" in text
    assert lacking(text, 3) is None or "checked" in text
    assert set(lacking(text, 3) or []) <= {0}
    for pattern in PATTERNS.values():
        assert all(ID.fullmatch(job) for job, _ in printed_ids(pattern, text))
    assert all(ID.fullmatch(job) for job in JobTable(text).living("ours"))
    assert re.fullmatch(r"(\w[\w.-]*)?", blamed(text), re.ASCII)
    assert unanswered(text) == ""
    assert only_node(text.split()) in ("", *text.split())


@given(OWN_WORDS)
def test_no_name_makes_another_job_ours(name: str) -> None:
    """The id was given to a job of any other name, which runs."""
    if name.strip() != "ours":
        states = [
            JobTable(f"17|{name}|RUNNING|n1|None{TIMES}").states([JOB]).get(JOB),
            Accounts(f"17|{name}|RUNNING|n1|0:0|1|Unknown").states([JOB]).get(JOB),
            from_scontrol(JOB, f"JobId=17 JobName={name} UserId=x(1) JobState=RUNNING NodeList=n1"),
        ]
        assert all(state is None or state.phase in (Phase.GONE, Phase.UNKNOWN) for state in states)


@given(OWN_WORDS | ANYTHING)
def test_a_job_that_runs_is_not_over_whatever_else_is_said(text: str) -> None:
    told = [
        JobTable(f"17|ours|RUNNING|n1|{text}{TIMES}").states([JOB]).get(JOB),
        from_scontrol(JOB, f"JobId=17 JobName=ours UserId=x(1) JobState=RUNNING Comment={text}"),
    ]
    assert all(state is None or not state.phase.over for state in told)
    assert JobTable(f"17|ours|RUNNING|n1|{text}{TIMES}").living("ours") == {"17": True}


@pytest.mark.parametrize(
    ("rows", "phase"),
    [
        (["17|ours|RUNNING|n1|None", "17|ours|COMPLETED|n1|None"], Phase.UNKNOWN),
        (["17|ours|COMPLETED|n1|None", "17|ours|RUNNING|n1|None"], Phase.UNKNOWN),
        (["17|ours|COMPLETED|n1|None"] * 2, Phase.SUCCEEDED),
        (["17|ours|COMPLETED|n1|a|b"], None),
        (["17|ours|COMPLETED|n1|None", "17|ours"], None),
        (["17|ours|COMPLETED|x|RUNNING|n1|None"], None),
    ],
)
def test_rows_that_contradict_each_other_end_no_job(rows: list[str], phase: Phase | None) -> None:
    state = JobTable("".join(f"{row}{TIMES}\n" for row in rows)).states([JOB]).get(JOB)
    assert (state.phase if state else None) is phase


@pytest.mark.parametrize("said", ["9" * 5000, "99999999999", "0", "-17", "٣", "17abc", "0x11"])
def test_what_is_no_id_is_no_job(said: str) -> None:
    assert JobTable(f"{said}|ours|RUNNING|n|None").living("ours") == {}
    assert printed_ids(PATTERNS["llama3"], f"- Job id: {said}") in ([], [("17", "")])
    assert printed_ids(PATTERNS["nemotron4"], f"{said}\n") == []


@pytest.mark.parametrize("said", ["modules were checked\n", "checked by admin\n", "un", "", "lacks 1\n"])
def test_checks_that_were_not_made_to_the_end_are_none(said: str) -> None:
    assert lacking(said, 3) is None
    assert lacking(f"{said}\nlacks 2\nlacks 99\nchecked\n", 3) in ([2], [1, 2])


@settings(max_examples=60)
@given(st.builds(Answer, st.sampled_from([0, 0, 0, 1, 124, 255]), ANYTHING, ANYTHING))
def test_a_controller_that_says_anything_is_believed_or_cannot_be_asked(answer: Answer) -> None:
    said = ""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SshConnection, "run", lambda self, script: answer)
        login = LoginNode("lab", SECTION, SshConnection(SECTION.ssh))
        controller = Controller(login)
        try:
            assert isinstance(controller.states([JOB])[JOB], JobState)
            cancel(login, controller, [JOB])
            controller.folder("17")
            assert "$" not in controller.blamed(JOB)
            controller.living("ours")
            controller.accounted("ours")
            Limits(login).findings([examples.case(), examples.case("8b-bf16-16gpus")])
        except Unreachable as error:
            said = str(error)
    assert not said or said.startswith("lab: ")


@pytest.mark.parametrize(
    "block",
    ["17|ours|RUNNING|n|", " \n", "srun: error: n1: task ", "- Job id: 1 ", "|", "StdOut=/a/"],
)  # fmt: skip
def test_a_megabyte_of_anything_takes_no_time(block: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text = block * (1_000_000 // len(block))
    monkeypatch.setattr(SshConnection, "run", lambda self, script: Answer(0, text, text))
    began = time.process_time()
    table = JobTable(text)
    table.states([JOB])
    table.living("ours")
    Accounts(text).states([JOB])
    from_scontrol(JOB, text)
    blamed(text)
    lacking(text, 30)
    Controller(LoginNode("lab", SECTION, SshConnection(SECTION.ssh))).folder("17")
    for pattern in PATTERNS.values():
        printed_ids(pattern, text)
    assert time.process_time() - began < 5


# The output of 512 tasks in one file, in pieces. srun writes the pieces of all tasks as they come. A task's output travels line by
# line, a longer one in pieces of 1024 bytes (slurmstepd's io.c, MAX_MSG_LEN). Unbuffered it travels as it was written: Python's `print`
# writes the text and the end of the line apart.


PIECE = 1024
NODES, TASKS = 64, 512
STEPS = 50


def buffered(text: str) -> Iterator[bytes]:
    """The pieces in which a task's output comes by default; a carriage return ends no line."""
    for line in text.encode().split(b"\n")[:-1]:
        whole = line + b"\n"
        for start in range(0, len(whole), PIECE):
            yield whole[start : start + PIECE]


def unbuffered(text: str) -> Iterator[bytes]:
    """The pieces with SLURM_UNBUFFEREDIO=1, which llama3 sets."""
    for line in text.splitlines():
        yield line.encode()
        yield b"\n"


def together(tasks: Iterable[Iterable[bytes]], chance: random.Random, *, label: bool = False) -> bytes:
    """All pieces in one file, those of each task in their order; with `--label` each is a line behind its task's number."""
    queues = [list(pieces)[::-1] for pieces in tasks]
    order = [rank for rank, queue in enumerate(queues) for _ in queue]
    chance.shuffle(order)
    pieces = ((rank, queues[rank].pop()) for rank in order)
    if label:
        return b"".join(b"%3d: %s\n" % (rank, piece.removesuffix(b"\n")) for rank, piece in pieces)
    return b"".join(piece for _, piece in pieces)


def warnings(rank: int) -> str:
    """What a rank prints besides; some of it begins with a number."""
    return (
        f"[rank{rank}]:[W411 14:46:02.118 ProcessGroupNCCL.cpp:4115] [PG 0 Rank {rank}]  using GPU {rank % 8} to perform barrier\n"
        f"2025-04-11 14:46:02,{rank:03} - WARNING - rank {rank}: failed to open libibverbs.so.1\n"
        f"gpu{rank // 8 + 1:03}:101:310 [{rank % 8}] NCCL INFO comm 0x55556b100660 rank {rank} nRanks {TASKS} nNodes {NODES} "
        f"localRanks 8 localRank {rank % 8} MNNVL 0\n"
    )


def llama3(seed: int, *, label: bool = False) -> tuple[list[str], bytes]:
    """The step times that rank 0 prints, and the log."""
    chance = random.Random(seed)
    shown = [f"{chance.uniform(9, 11):.4}" for _ in range(STEPS)]
    log = b""
    for step, seconds in enumerate(shown):
        line = (
            f"Training epoch 0, iteration {step}/{STEPS - 1} | lr: 1.4e-07 | global_batch_size: 1024 | global_step: {step} | "
            f"peak_memory_usage: 70833405952 | reduced_train_loss: 11.96 | train_step_timing in s: {seconds}"
        )
        line += f" | consumed_samples: {(step + 1) * 1024}\n" if step else "\n"
        others = [unbuffered(warnings(rank)) for rank in chance.sample(range(1, TASKS), 16)]
        log += together([unbuffered(line), *others], chance, label=label)
    return shown, log


def nemotron4(seed: int, *, label: bool = False) -> tuple[list[str], bytes]:
    """As `llama3`: a bar that is one line, drawn twice a step and once more at the end."""
    chance = random.Random(seed)
    shown = [f"{chance.uniform(4.1, 4.9):.2f}0" for _ in range(STEPS)]
    bars, figures = ["x" * chance.randrange(PIECE)], ""
    for step, seconds in enumerate(shown):
        bar = f"\rEpoch 0: : {2 * step + 2:3}%|{'█' * (step // 5):<10}| {step + 1}/{STEPS} [00:46<03:04"
        bars.append(f"{bar}{figures}]")
        figures = (
            f", reduced_train_loss=11.90, global_step={f'{step}.'.ljust(5, '0')}, consumed_samples={(step + 1) * 128.0}, "
            f"train_step_timing in s={seconds}"
        )
        bars.append(f"{bar}{figures}]")
    # What each task echoes first is longer than a piece.
    said = f"GSW: MODEL=nemotron4 JOB_NUM_NODES={NODES} BASE_CONFIG='{'a.key=value ' * 90}'\n"
    tasks = [said + "".join([*bars, bars[-1], "\n"]), *(said + warnings(rank) for rank in range(1, TASKS))]
    return shown, together(map(buffered, tasks), chance, label=label)


RECIPES: dict[str, tuple[str, Callable[..., tuple[list[str], bytes]]]]
RECIPES = {
    "llama3": ("nemo2", llama3),
    "nemotron4": ("nemo1", nemotron4),
}


CAUSE = "[rank11]: RuntimeError: CUDA error: uncorrectable ECC error encountered"
CULPRIT = "srun: error: gpu002: task 11: Exited with exit code 1"


def errors(seed: int) -> bytes:
    """Standard error of all tasks: their warnings, the death of rank 11, and what the others then say of it."""
    chance = random.Random(seed)
    last_words = (
        "[rank{rank}]:[E411 14:52:40.{rank:03} ProcessGroupNCCL.cpp:1895] [PG 0 Rank {rank}] Process group watchdog thread terminated "
        "with exception: NCCL error: remote process exited or there was a network error\n"
        + "frame #{rank}: c10d::ProcessGroupNCCL::WorkNCCL::checkTimeout(std::optional<std::chrono::duration<long>>) + 0x1d2 "
        "(0x7f3c5d8a1e2c in libtorch_cuda.so)\n"
        * 6
        + "terminate called after throwing an instance of 'c10::DistBackendError'\n"
    )
    return (
        together((buffered(warnings(rank)) for rank in range(TASKS)), chance)
        + f"[rank11]: Traceback (most recent call last):\n{CAUSE}\n".encode()
        + together((buffered(last_words.format(rank=rank)) for rank in range(TASKS) if rank != 11), chance)
        # Its last line has no end.
        + b"slurmstepd-gpu001: error: *** STEP 17.0 ON gpu001 CANCELLED AT 2026-11-22T10:43:56 ***\n[rank40]: Exception igno"
    )


def complaints_of_srun(seed: int) -> bytes:
    """What srun says of that: the tasks that have a shell around them answer SIGTERM with an exit code."""
    chance = random.Random(seed)
    ended = []
    for node in range(1, NODES + 1):
        first = 8 * node - 8
        half = chance.randrange(1, 7)
        ended += [
            f"srun: error: gpu{node:03}: tasks {first}-{first + half}: Exited with exit code 143\n",
            f"srun: error: gpu{node:03}: tasks {first + half + 1}-{first + 7}: {chance.choice(['Terminated', 'Killed'])}\n",
        ]
    chance.shuffle(ended)
    head = f"{CULPRIT}\nsrun: launch/slurm: _step_signal: Terminating StepId=17.0\n"
    return f"{head}{''.join(ended)}srun: Force Terminated StepId=17.0\n".encode()


def parsed(recipe: str, data: bytes) -> Log:
    chance = random.Random(0)
    cuts = [0, *sorted(chance.sample(range(1, len(data)), 20)), len(data)]
    pieces = (data[start:end] for start, end in itertools.pairwise(cuts))
    begin = time.process_time()
    log = read(RECIPES[recipe][0], pieces)
    # 4.9 MB in half a second; ten times that would keep a session from its other jobs.
    assert time.process_time() - begin < 5
    return log


@pytest.mark.parametrize(("recipe", "label"), [("llama3", False), ("nemotron4", False), ("llama3", True)])
def test_every_step_of_512_tasks_is_read_and_none_wrong(recipe: str, label: bool) -> None:
    """Those of MaxText, where each task prints each step, are in `tests/unit/logs/test_maxtext.py`."""
    shown, data = RECIPES[recipe][1](0, label=label)
    log = parsed(recipe, data)
    found = {step.index: step.seconds for step in log.steps}
    assert list(found) == list(range(STEPS))
    # What follows the time on the first line of NeMo 2 may be another rank's.
    unread = [step for step, seconds in found.items() if seconds is None]
    assert unread in ([], [0] if recipe == "llama3" else [])
    assert all(found[step] in (None, float(text)) for step, text in enumerate(shown))
    assert (log.repeated, log.restarted_after) == ((), ())
    values = Counter(fact.name for fact in log.facts)
    assert values["group"] == 1
    assert set(values.values()) == {1}


def test_of_64_nodes_whose_tasks_srun_ended_only_the_first_is_blamed_and_shown() -> None:
    for seed in range(3):
        said = complaints_of_srun(seed)
        assert blamed(said.decode()) == "gpu002"
        assert complaints(said) == [CULPRIT.encode()]
        traced = f"{SUDO_FAILS}+ srun --output log.out train\n".encode() + said
        assert blamed(of_last_step(traced).decode()) == "gpu002"


def test_the_cause_is_shown_among_the_last_words_of_511_other_ranks() -> None:
    shown = complaints(errors(0) + b"\n" + complaints_of_srun(0))[-8:]
    assert CAUSE.encode() in shown
    assert shown[-1] == CULPRIT.encode()
