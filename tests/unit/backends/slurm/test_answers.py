"""What Slurm's tools print: rows among banners, parts of jobs, ids with something glued to them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fixtures.backends.base import ClusterTimes, InQueue
from fixtures.backends.slurm.answers import blamed, mend_of, of_last_step, printed_ids, unanswered
from fixtures.backends.slurm.job_table import Accounts, JobTable, from_queue, from_scontrol
from fixtures.backends.slurm.section import Slurm
from fixtures.backends.ssh.endpoint import Ssh
from plugins.record.job import JobRef, JobState, Phase
from tests.unit import examples

SECTION = Slurm(gpu="h100", account="kid", partition="batch", stage="/s", gres="gpu:8", ssh=Ssh(host="login"))
JOB = JobRef("llama3", "70b-fp8-512gpus", "ours", "17", "/logs")
LAUNCHERS = {
    name: examples.recipe_named(name).file.launch for name in ("llama3", "nemotron4", "maxtext_llama2")
}


def begun(*rows: str) -> str:
    """These rows of squeue with the times of the job, its restarts and its exit code."""
    return "".join(f"{row}|1763830000|1763830500|1763829990|0|256\n" for row in rows)


def accounted(*rows: str) -> dict[JobRef, JobState]:
    """What these rows of sacct say of the job, with its times."""
    return Accounts("".join(f"{row}|1763830000|1763830500\n" for row in rows)).states([JOB])


def squeue(*rows: str) -> JobState | None:
    return JobTable(begun(*rows)).states([JOB]).get(JOB)


def test_a_row_of_squeue_is_a_state() -> None:
    assert squeue("17|ours|PENDING||Resources") == JobState(Phase.QUEUED, "PENDING", reason="Resources")
    assert squeue("17|ours|RUNNING|gpu[1-8]|None") == JobState(Phase.RUNNING, "RUNNING", nodes="gpu[1-8]")


@pytest.mark.parametrize(
    "row", ["", "170|ours|RUNNING|n|None", "7|ours|RUNNING|n|None", "17|ours|RUNNING", "JOBID|N|S|N|R"]
)
def test_another_row_is_none_of_ours(row: str) -> None:
    assert squeue(row) is None


# Seen on Slurm 22.05 in the seconds after a short job of eight nodes.
def test_a_row_of_sacct_that_is_not_complete_yet_says_nothing() -> None:
    assert accounted("17|allocation|FAILED|gpu001|3:0") == {}
    assert accounted("17|ours|FAILED|gpu[001-008]|3:0") == {
        JOB: JobState(Phase.FAILED, "FAILED", nodes="gpu[001-008]", exit_code="3:0")
    }


# As sbatch of Slurm 22.05 prints them in the lab, of a submission and with --test-only.
@pytest.mark.parametrize(
    ("said", "keys"),
    [
        ("sbatch: error: Batch job submission failed: Invalid qos specification", ["`qos` (now not set)"]),
        ("allocation failure: Invalid account or account/partition combination specified", ["`account` (now kid)"]),
        ("sbatch: error: invalid partition specified: nowhere\nallocation failure: Invalid partition name specified", ["`partition` (now batch)"]),
        ("allocation failure: Required partition not available (inactive or drain)", ["`partition` (now batch)"]),
        ("allocation failure: User's group not permitted to use this partition", ["`partition` (now batch)"]),
        ("allocation failure: Requested reservation is invalid", ["`reservation` (now not set)"]),
        ("allocation failure: Access denied to requested reservation", ["`reservation` (now not set)"]),
        ("allocation failure: Invalid feature specification", ["`constraint` (now not set)"]),
        ("sbatch: error: Invalid generic resource (gres) specification", ["`gres` (now gpu:8)"]),
        ("allocation failure: Requested time limit is invalid (missing or exceeds some limit)", ["`time_limit` (now 00:30:00)"]),
        ("allocation failure: Node count specification invalid", ["`max_gpus` (now not set)", "`partition` (now batch)"]),
        ("allocation failure: Requested node configuration is not available", ["`max_gpus` (now not set)", "`gres` (now gpu:8)"]),
        ("sbatch: error: QOSMaxGRESPerJob\nallocation failure: Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)", ["`max_gpus` (now not set)", "`time_limit` (now 00:30:00)", "`sacctmgr show qos`"]),
        ("sbatch: error: QOSMaxSubmitJobPerUserLimit\nallocation failure: Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)", ["`jobs_in_flight` of `limits` (now 8)"]),
        ("sbatch: error: MaxSubmitJobsPerAccount\nallocation failure: Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)", ["`jobs_in_flight` of `limits` (now 8)"]),
    ],
)  # fmt: skip
def test_a_refusal_is_told_with_the_keys_to_change(said: str, keys: list[str]) -> None:
    mend = mend_of(f"Entering\n{said}\n", SECTION)
    assert mend.startswith(f"set {keys[0]}")
    assert "in the site file; see `" in mend
    assert all(key in mend for key in keys)


@pytest.mark.parametrize(
    "said",
    [
        "",
        "allocation failure: Access/permission denied",
        "allocation failure: Invalid time specified",
        "allocation failure: Invalid job array specification",
        "allocation failure: Requested nodes are busy",
        "allocation failure: Socket timed out on send/recv operation",
        "sbatch: error: lua: ask for fewer nodes\nallocation failure: Unspecified error",
    ],
)
def test_other_words_of_slurm_refuse_nothing_for_good(said: str) -> None:
    assert mend_of(said, SECTION) == ""


def test_an_id_that_was_given_to_another_job_is_gone() -> None:
    assert squeue("17|theirs|COMPLETED|n|None") == JobState(
        Phase.GONE, "GONE (the id is now another job's, named theirs)"
    )


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
    assert Accounts(text).states([JOB]) == {
        JOB: JobState(Phase.FAILED, "TIMEOUT", nodes="n1", exit_code="0:15")
    }


def test_the_last_life_of_a_requeued_job_counts() -> None:
    states = accounted("17|ours|REQUEUED|n1|0:0", "17|ours|COMPLETED|n2|0:0")
    assert states[JOB].phase is Phase.SUCCEEDED


def test_scontrols_line_is_a_state() -> None:
    text = "JobId=16 JobName=ours JobState=RUNNING\nJobId=17 JobName=ours JobState=FAILED Reason=NonZeroExitCode ExitCode=1:0 NodeList=n[1-2]"
    assert from_scontrol(JOB, text) == JobState(
        Phase.FAILED, "FAILED", reason="NonZeroExitCode", nodes="n[1-2]", exit_code="1:0"
    )
    assert from_scontrol(JOB, "slurm_load_jobs error: Invalid job id specified") is None


def test_the_jobs_of_a_name_are_told_whole_and_in_order() -> None:
    rows = [
        "21_0|ours|COMPLETED|n|None",
        "21_1|ours|RUNNING|n|None",
        "9|ours|CANCELLED||None",
        "100+0|ours|PENDING||None",
    ]
    assert JobTable(begun(*rows, "5|theirs|RUNNING|n|None")).living("ours") == {
        "9": False,
        "21": True,
        "100": True,
    }


@pytest.mark.parametrize(
    ("printed", "ids"),
    [
        ("4711", [("4711", "")]),
        ("4711;alps", [("4711", ";alps")]),
        ("4711_3", [("4711", "_3")]),
        ("4711_[0-3]", [("4711", "_[0-3]")]),
        ("4711+0", [("4711", "+0")]),
        ("nothing", []),
    ],
)
def test_what_is_glued_to_an_id_is_seen(printed: str, ids: list[tuple[str, str]]) -> None:
    launch = LAUNCHERS["llama3"]
    assert launch is not None
    assert printed_ids(launch.job_id, f"Task 0: x\n- Job id: {printed}\n- Local Directory: /logs\n") == ids


# sbatch's own reply, where anything but an id, alone or with its cluster, is no id at all.
@pytest.mark.parametrize("recipe", ["nemotron4", "maxtext_llama2"])
def test_the_reply_of_sbatch_is_an_id_or_none(recipe: str) -> None:
    launch = LAUNCHERS[recipe]
    assert launch is not None
    banner = "sbatch: note: 12 nodes are down\n"
    assert printed_ids(launch.job_id, f"{banner}4711\n") == [("4711", "")]
    assert printed_ids(launch.job_id, f"{banner}4711;alps\n") == [("4711", ";alps")]
    assert printed_ids(launch.job_id, f"{banner}4711_3\n4712+0\n") == []


@pytest.mark.parametrize(
    "error",
    [
        "Socket timed out on send/recv operation",
        "Zero Bytes were transmitted or received",
        "Unable to contact slurm controller (connect failure)",
        "Unable to contact slurm controller (receive failure)",
        "Communication connection failure",
        "Message receive failure",
        "Slurm backup controller in standby mode",
    ],
)
def test_a_controller_that_did_not_answer_is_known(error: str) -> None:
    line = f"sbatch: error: Batch job submission failed: {error}"
    assert unanswered(f"loading modules\n{line}\n") == line


@pytest.mark.parametrize(
    "error",
    [
        "sbatch: error: Batch job submission failed: Invalid account or account/partition combination specified",
        "sbatch: error: Batch job submission failed: Requested node configuration is not available",
        "sbatch: error: QOSMaxSubmitJobPerUserLimit",
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
        ("srun: error: gpu003: tasks 16-23: Segmentation fault (core dumped)", "gpu003"),
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
        ("srun: error: gpu[001-064]: tasks 0-511: Exited with exit code 1", ""),
        ("srun: error: gpu003: task 17: Aborted\nsrun: error: gpu004: task 25: Aborted", ""),
        ("slurmstepd: error: *** JOB 17 ON gpu001 CANCELLED DUE TO NODE FAILURE, SEE SLURMCTLD LOG ***", ""),
        ("srun: error: $(id): task 1: Aborted", ""),
        ("", ""),
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
        ("1017:17|ours|PENDING||Priority|N/A\n", InQueue(1017)),
        # A squeue that does not know the form of times.
        ("3:17|ours|PENDING||Priority|2026-11-22T12:00:00\n", InQueue(3)),
        ("banner\n2:16|other|PENDING||Priority|N/A\n3:17|ours|PENDING||Priority|0\n", InQueue(3)),
        ("3:17|another|PENDING||Priority|N/A\n", None),
        ("17|ours|PENDING||Priority|N/A\n", None),
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
    for row in (
        ("ours", "RUNNING", 1, 2, 1, 0, 0),
        ("x", "COMPLETED", 1, 2, 1, 0, 0),
        ("ours", "COMPLETED", 1, 2),
    ):
        assert listed(*row) is None
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
    assert (
        JobTable(begun("17|ours|RUNNING|n1|None").replace("1763830000", "N/A") + "17|ours|RUNNING").starts(
            [JOB]
        )
        == {}
    )


def test_the_earlier_attempts_of_a_job_are_those_that_accounting_has() -> None:
    def attempts(*times: str, last: ClusterTimes | None = None) -> ClusterTimes:
        return Accounts("".join(f"17|{time}\n" for time in times)).attempts(JOB, last)

    # A job that was requeued before it ran has no start, and another cluster's job had the same id.
    ours = "ours|REQUEUED|n|0:0"
    earlier = [
        "other|FAILED|n|0:0|1|1000",
        f"{ours}|2000|2300",
        f"{ours}|Unknown|Unknown",
        f"{ours}|3000|3050",
    ]
    assert attempts(*earlier, f"{ours}|4000|4500") == ClusterTimes(
        started=4000.0, ended=4500.0, earlier_seconds=350.0, restarts=3
    )
    # Accounting may not know yet that the last attempt began, or ended.
    last = ClusterTimes(started=4000.0, ended=4500.0)
    for behind in ([], [f"{ours}|4000|Unknown"]):
        assert attempts(*earlier, *behind, last=last) == replace(last, earlier_seconds=350.0)
    assert attempts(last=last) == last
