"""What the controller and the accounting are taken to say where only one of them answers, and what sinfo and scontrol add to it."""

from __future__ import annotations

import re
from dataclasses import replace
from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest

from fixtures.backends.base import ClusterTimes
from fixtures.backends.shell import Answer
from fixtures.backends.slurm import states
from fixtures.backends.slurm.answers import LoginNode
from fixtures.backends.slurm.backend import SlurmBackend
from fixtures.backends.slurm.controller import Controller
from fixtures.backends.slurm.launcher import Launcher, cancel
from fixtures.backends.slurm.states import Explanations
from fixtures.backends.ssh import connection
from fixtures.backends.ssh.connection import SshConnection
from fixtures.backends.ssh.endpoint import Ssh
from fixtures.runs import unconfirmed
from plugins.base.errors import Denied, Unreachable, Unsent
from plugins.record.job import JobRef, JobState, Phase
from tests.unit.backends.slurm.login import SECTION


def test_a_launcher_has_its_bound_from_when_the_connection_stands() -> None:
    """As long as the launcher and what ends it may take, and a login before that."""
    section = SECTION.model_copy(
        update={"launch_minutes": 2, "ssh": Ssh(host="login", connect_seconds=7, command_seconds=11)}
    )
    assert section.launch_bound == 120 + 30 + 7 + 11


def job(number: int) -> JobRef:
    return JobRef("llama3", f"70b-{number}gpus", f"ours-{number}", f"{number}", "/logs")


JOB = job(17)
TITLES = "JOBID|NAME|STATE|NODELIST|REASON|START_TIME|END_TIME|SUBMIT_TIME|RESTART_COUNT|EXIT_CODE\n"
FORGOTTEN = Answer(1, "", "slurm_load_jobs error: Invalid job id specified\n")
DISABLED = Answer(1, "", "Slurm accounting storage is disabled\n")
NOW = 1763830000


def row(of: JobRef, state: str, *, name: str = "", submitted: int = NOW, restarts: int = 0) -> str:
    return f"{of.id}|{name or of.name}|{state}|gpu1|None|{NOW}|{NOW + 500}|{submitted}|{restarts}|256\n"


class Tools:
    """Slurm's tools on a login node: what each says, and the tools that were started."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.started: list[str] = []
        self.answers = {"sacct": DISABLED, "scontrol": FORGOTTEN, "mine": Answer(0, TITLES, "")}
        self.login = LoginNode("lab", SECTION, SshConnection(SECTION.ssh))
        self.controller = Controller(self.login)
        monkeypatch.setattr(SshConnection, "run", lambda connection, script: self._run(script))

    def lists(self, *rows: str, mine: bool = False) -> None:
        """Let squeue list these jobs, and where they are `mine`, as those of this user too."""
        self.answers["squeue"] = Answer(0, TITLES + "".join(rows), "")
        self.answers["mine"] = Answer(0, TITLES + "".join(rows) * mine, "")

    def cannot_say(self, words: str) -> None:
        """Require that nothing is taken to be known of the job."""
        with pytest.raises(Unreachable, match=words):
            self.states(JOB)

    def states(self, *jobs: JobRef) -> list[JobState]:
        self.started.clear()
        states = self.controller.states(jobs)
        return [states[job] for job in jobs]

    def _run(self, script: str) -> Answer:
        tools = re.findall(r"timeout --kill-after=5 48 (\w+)", script)
        self.started += tools
        (tool,) = set(tools)
        if tool == "squeue" and "--user=" in script:
            tool = "mine"
        answer = self.answers.get(tool, Answer(0, "", ""))
        if tool == "scontrol":
            jobs = re.findall(r"echo pacemark-job (\d+)", script)
            return Answer(0, "".join(f"\npacemark-job {job}\n{answer.out}{answer.err}" for job in jobs), "")
        return answer


@pytest.fixture
def tools(monkeypatch: pytest.MonkeyPatch) -> Tools:
    return Tools(monkeypatch)


REFUSED = "sacct: error: Unable to contact slurmdbd: Connection refused\n"


@pytest.mark.parametrize(
    "answer",
    [
        Answer(1, "", REFUSED),
        Answer(124, "", ""),
        # A prologue's own words are not sacct's.
        Answer(1, "", f"bash: module: command not found\n{REFUSED}"),
        Answer(124, "", "/etc/motd not found, telemetry is disabled\n"),
    ],
)
def test_accounting_that_does_not_answer_says_nothing_about_a_job(tools: Tools, answer: Answer) -> None:
    tools.answers["sacct"] = answer
    with pytest.raises(Unreachable, match="lab: sacct: "):
        tools.controller.accounted("pacemark-x")


@pytest.mark.parametrize(
    "words",
    [
        "Slurm accounting storage is disabled\n",
        "bash: sacct: command not found\n",
        "timeout: failed to run command 'sacct': No such file or directory\n",
    ],
)
def test_where_there_is_no_accounting_it_knows_of_no_job(tools: Tools, words: str) -> None:
    tools.answers["sacct"] = Answer(127, "", words)
    assert tools.controller.accounted("pacemark-x") == []


JOBS = [job(number) for number in range(100, 600)]


@pytest.mark.parametrize(
    ("state", "then"),
    [
        ("RUNNING", []),
        ("COMPLETED", []),
        # sacct, which does not ask the controller, tells by whom it was cancelled, and sinfo of its nodes.
        ("CANCELLED", ["sacct", "sinfo"]),
    ],
)
def test_one_squeue_tells_of_500_jobs(tools: Tools, state: str, then: list[str]) -> None:
    for each in JOBS:
        tools.controller.names.expect(each.name)
    tools.lists(*(row(each, state) for each in JOBS))
    assert {found.raw for found in tools.states(*JOBS)} == {state}
    assert tools.started == ["squeue", *then]
    # What it says of them does not change any more.
    tools.states(*JOBS)
    assert tools.started == ["squeue"]
    tools.started.clear()
    if state not in ("PENDING", "RUNNING"):
        assert tools.controller.times(JOBS[7]) == ClusterTimes(started=NOW, ended=NOW + 500)
    assert tools.started == []


def test_500_jobs_are_cancelled_by_one_squeue_and_one_scancel(tools: Tools) -> None:
    tools.lists(*(row(each, "PENDING") for each in JOBS), mine=True)
    cancel(tools.login, tools.controller, JOBS)
    assert tools.started == ["squeue", "scancel"]


def test_a_job_that_was_listed_is_gone_once_a_whole_list_lacks_it(tools: Tools) -> None:
    tools.lists(row(JOB, "RUNNING"), row(job(18), "RUNNING"))
    tools.states(JOB, job(18))
    tools.lists(row(job(18), "RUNNING"))
    gone = JobState(Phase.GONE, "GONE (sacct: status 1: Slurm accounting storage is disabled)")
    assert tools.states(JOB, job(18))[0] == gone
    # The list may lack it for other reasons. scontrol says that the controller does not know the id.
    assert tools.started == ["squeue", "sacct", "scontrol"]
    # Of a single id squeue says it by an error.
    tools.answers["squeue"] = FORGOTTEN
    assert tools.states(JOB) == [gone]
    assert tools.started == ["squeue"]


def test_a_filter_that_hides_a_running_job_does_not_make_it_gone(tools: Tools) -> None:
    """As good as squeue in a wrapper that shows one partition. Nothing but `Invalid job id` confirms an end."""
    tools.lists(row(JOB, "RUNNING"))
    tools.states(JOB)
    tools.lists()
    tools.answers["scontrol"] = Answer(0, f"JobId=17 JobName={JOB.name} JobState=RUNNING NodeList=n1", "")
    assert tools.states(JOB)[0].phase is Phase.RUNNING


def test_a_job_is_not_gone_if_another_cluster_answers(tools: Tools, monkeypatch: pytest.MonkeyPatch) -> None:
    """As after another SLURM_CONF in a profile. After Ctrl-C the job "was cancelled", and ran on."""
    clusters = ["alpha", "beta", "", "beta", "alpha"]
    monkeypatch.setattr(
        tools.controller, "_explanation", lambda command: f"ClusterName = {clusters.pop(0)}\n"
    )
    assert tools.controller.cluster() == tools.controller.cluster() == "alpha"
    tools.answers["squeue"] = FORGOTTEN
    tools.cannot_say("on the Slurm cluster alpha, and scontrol answers for beta: see SLURM_CONF")
    tools.cannot_say("and scontrol answers for none")
    # That cluster may have a job of the id.
    tools.lists(row(JOB, "RUNNING", name="theirs"))
    tools.cannot_say("and scontrol answers for beta")
    assert tools.states(JOB)[0].phase is Phase.GONE


@pytest.mark.parametrize("listed", ["never", "by a list without titles"])
def test_any_other_list_that_lacks_a_job_does_not_tell_that_it_is_gone(tools: Tools, listed: str) -> None:
    if listed != "never":
        tools.lists(row(JOB, "RUNNING"))
        tools.states(JOB)
        tools.answers["squeue"] = Answer(0, "maintenance\n", "")
    else:
        tools.lists()
    tools.answers["scontrol"] = Answer(1, "", "slurm_load_jobs error: Unable to contact slurm controller\n")
    tools.cannot_say("squeue does not list job 17, and scontrol: slurm_load_jobs")
    tools.answers["scontrol"] = Answer(0, f"JobId=17 JobName={JOB.name} JobState=RUNNING NodeList=n1", "")
    assert tools.states(JOB)[0].phase is Phase.RUNNING
    tools.answers["scontrol"] = FORGOTTEN
    assert tools.states(JOB)[0].phase is Phase.GONE


def test_accounting_is_asked_for_the_times_of_a_requeued_or_forgotten_job(tools: Tools) -> None:
    attempts = f"17|{JOB.name}|REQUEUED|n|0:0|1000|1100\n17|{JOB.name}|COMPLETED|n|0:0|{NOW}|{NOW + 500}\n"
    tools.answers["sacct"] = Answer(0, attempts, "")
    tools.lists(row(JOB, "COMPLETED", restarts=1))
    expected = ClusterTimes(started=NOW, ended=NOW + 500, earlier_seconds=100.0, restarts=1)
    for started in (["squeue", "sacct"], ["squeue"]):
        assert tools.states(JOB)[0].phase is Phase.SUCCEEDED
        assert tools.started == started
        assert tools.controller.times(JOB) == expected
    tools.answers["squeue"] = FORGOTTEN
    assert tools.states(JOB)[0].phase is Phase.SUCCEEDED
    assert tools.controller.times(JOB) == expected


# A plug-in of Slurm (job_submit) may give a job another name.


def test_a_job_that_slurm_renames_is_known_by_the_first_list(tools: Tools) -> None:
    tools.controller.names.expect(JOB.name)
    tools.lists(row(JOB, "RUNNING", name="site-17"), mine=True)
    assert tools.states(JOB)[0].phase is Phase.RUNNING
    assert tools.started == ["squeue", "squeue"]
    assert tools.controller.names.as_listed(JOB) == replace(JOB, renamed="site-17")
    assert tools.states(JOB, job(18))[0].phase is Phase.RUNNING
    cancel(tools.login, tools.controller, [JOB])
    assert tools.started[-2:] == ["squeue", "scancel"]
    # That of another user is another job.
    tools.lists(row(JOB, "RUNNING", name="theirs"))
    assert tools.states(JOB)[0].raw == "GONE (the id is now another job's, named theirs)"


# An administrator may do so in mid-run: `scontrol update JobId=17 JobName=held-for-rack-7`.


def renamed(tools: Tools, name: str, *, submitted: int = NOW, state: str = "RUNNING") -> JobState:
    """What is said of the job once this user's job of its id has this name."""
    tools.lists(row(JOB, state, name=name, submitted=submitted), mine=True)
    return tools.states(JOB)[0]


def test_a_job_that_is_renamed_in_mid_run_is_still_ours(tools: Tools) -> None:
    tools.controller.names.expect(JOB.name)
    for name in (JOB.name, "rack-7", "rack-8", JOB.name, "rack-9"):
        assert renamed(tools, name).phase is Phase.RUNNING
        assert tools.controller.names.as_listed(JOB).cluster_name == name
    cancel(tools.login, tools.controller, [JOB])
    assert tools.started[-2:] == ["squeue", "scancel"]
    assert renamed(tools, "rack-9", state="COMPLETED").phase is Phase.SUCCEEDED
    assert tools.controller.times(JOB).ended == NOW + 500


def test_a_job_that_was_requeued_and_renamed_at_once_is_neither_over_nor_cancelled(tools: Tools) -> None:
    """A requeue sets the time of the submission anew (src/slurmctld/job_mgr.c): it may be another job of the id."""
    tools.controller.names.expect(JOB.name)
    assert renamed(tools, JOB.name).phase is Phase.RUNNING
    # Under its own name the new time is learned.
    assert renamed(tools, JOB.name, submitted=NOW + 60).phase is Phase.RUNNING
    assert renamed(tools, "rack-7", submitted=NOW + 60).phase is Phase.RUNNING
    state = renamed(tools, "rack-8", submitted=NOW + 120)
    assert state.phase is Phase.UNKNOWN
    assert state.reason == "job 17 is named rack-8, and is ours only if it was renamed"
    cancel(tools.login, tools.controller, [JOB])
    assert "scancel" not in tools.started


@pytest.mark.parametrize(
    ("submitted", "is_mine", "phase"),
    [
        (NOW - 30, True, Phase.RUNNING),
        (NOW - 3600, True, Phase.UNKNOWN),
        (NOW + 7200, True, Phase.UNKNOWN),
        (NOW, False, Phase.GONE),
    ],
)
def test_a_job_that_a_dead_session_never_saw_is_ours_if_its_user_and_its_time_are(
    tools: Tools, submitted: int, is_mine: bool, phase: Phase
) -> None:
    tools.lists(row(JOB, "RUNNING", name="site-17", submitted=submitted), mine=is_mine)
    tools.controller.names.expect(JOB.name, NOW)
    tools.answers["sacct"] = Answer(0, f"17|site-17|RUNNING|n|0:0|{NOW}|Unknown\n", "")
    for _ in range(2):
        assert tools.states(JOB)[0].phase is phase
    cancel(tools.login, tools.controller, [JOB])
    # Of a job of another user, scancel is given the name and the user of ours.
    assert ("scancel" in tools.started) is (phase is not Phase.UNKNOWN)
    if phase is Phase.UNKNOWN:
        words = "unclear: job 17 is named site-17, and is ours only if it was renamed"
        assert tools.states(JOB)[0].raw == words


def test_no_other_tool_tells_that_a_job_is_gone_which_slurm_may_have_renamed(tools: Tools) -> None:
    tools.controller.names.expect(JOB.name)
    tools.answers["squeue"] = Answer(0, "maintenance\n", "")
    tools.answers["sacct"] = Answer(0, f"17|site-17|RUNNING|n|0:0|{NOW}|Unknown\n", "")
    tools.answers["scontrol"] = Answer(0, "JobId=17 JobName=site-17 JobState=RUNNING NodeList=n1", "")
    tools.cannot_say("squeue does not list job 17")


@pytest.mark.parametrize(("bound", "jobs"), [(10.0, 8), (60.0, 1)])
def test_a_controller_that_hangs_takes_no_longer_than_the_bound_of_a_cancellation(
    monkeypatch: pytest.MonkeyPatch, bound: float, jobs: int
) -> None:
    """Each tool hangs until `timeout` ends it. Those that run at the same time end at the same time."""
    now, asked = 1000.0, list[str]()

    def hang(self: SshConnection, script: str) -> Answer:
        nonlocal now
        now += max(map(float, re.findall(r"timeout --kill-after=5 (\S+) ", script)))
        asked.extend(re.findall(r"squeue|scancel(?= --)", script))
        return Answer(124, "", "")

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    monkeypatch.setattr(SshConnection, "run", hang)
    clock = SimpleNamespace(monotonic=lambda: now, sleep=sleep)
    monkeypatch.setattr(unconfirmed, "time", clock)
    monkeypatch.setattr(connection, "time", clock)
    refs = [JobRef("llama3", "70b-fp8-512gpus", f"pacemark-x-{job}", str(job)) for job in range(jobs)]
    left = unconfirmed.cancel(SlurmBackend("lab", SECTION, []), MagicMock(), refs, bound)
    assert list(left) == refs
    # The last requests, and the second that the loop waits, may begin just before the bound.
    assert now - 1000 <= bound + 4
    assert {"squeue", "scancel"} == set(asked)


@pytest.mark.parametrize(
    ("error", "sent", "kind"),
    [(Unreachable, False, Unsent), (Unreachable, True, Unreachable), (Denied, False, Denied)],
)
def test_a_launcher_that_was_not_sent_is_known_as_that(
    monkeypatch: pytest.MonkeyPatch, error: type[Unreachable], sent: bool, kind: type[Unreachable]
) -> None:
    def fail(self: SshConnection, script: str, **bounds: object) -> Answer:
        failure = error("ssh login: the server allows no further session")
        failure.sent = sent
        raise failure

    monkeypatch.setattr(SshConnection, "run", fail)
    login = LoginNode("lab", SECTION, SshConnection(SECTION.ssh))
    launcher = Launcher(login, Controller(login), print)
    script = MagicMock(launch=MagicMock(secrets=[]))
    with pytest.raises(Unreachable) as caught:
        launcher._launch(script, "sbatch", "")
    assert type(caught.value) is kind


# Beside the state of a job that does not start or end: what sinfo tells of nodes, and scontrol of reservations.

REASONS = "gpu[007,009]|replaced in December\ngpu003|Prolog error\nWelcome\n"
RESERVATION = (
    "ReservationName=team StartTime=2026-11-23T08:00:00 EndTime=2026-11-30T08:00:00 Flags=SPEC_NODES\n"
    "ReservationName=works StartTime=2026-11-24T02:00:00 EndTime=2026-11-24T08:00:00 Duration=06:00:00 Nodes=gpu[001-256] "
    "NodeCnt=256 Flags=MAINT,SPEC_NODES,ALL_NODES\n"
)
HELD = JobState(Phase.QUEUED, "PENDING", "launch failed requeued held", hopeless=True)
MAINTENANCE = JobState(Phase.QUEUED, "PENDING", "ReqNodeNotAvail, Reserved for maintenance")
FAILED = JobState(Phase.FAILED, "NODE_FAIL", nodes="gpu[001-064]")
ENDING = JobState(Phase.ENDING, "COMPLETING", nodes="gpu[001-064]")
OF_ALL_NODES = "sinfo --noheader --list-reasons --format='%N|%E'"


class Asked:
    """A tool that answers this, and the commands that it was asked by."""

    def __init__(self, answer: str) -> None:
        self.answer = answer
        self.commands: list[str] = []

    def __call__(self, command: str) -> str:
        self.commands.append(command)
        return self.answer


def test_a_failed_prolog_names_its_node_and_no_other() -> None:
    asked = Asked(REASONS)
    state = Explanations(asked).explained("17", HELD)
    assert state == replace(HELD, reason="launch failed requeued held; `sinfo -R` says: gpu003: Prolog error")
    assert asked.commands == [OF_ALL_NODES]


def test_a_node_that_is_drained_after_its_job_was_requeued_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(states, "_FRESH_SECONDS", -1)
    asked = Asked("")
    explained = Explanations(asked).explained
    assert explained("17", HELD) == HELD
    asked.answer = REASONS
    for _ in range(3):
        assert "gpu003: Prolog error" in explained("17", HELD).reason
    assert asked.commands == [OF_ALL_NODES] * 2


def test_a_maintenance_names_its_reservation_and_its_times() -> None:
    reason = Explanations(Asked(RESERVATION)).explained("17", MAINTENANCE).reason
    assert reason == (
        "ReqNodeNotAvail, Reserved for maintenance; the reservation works is from 2026-11-24T02:00:00 to "
        "2026-11-24T08:00:00: a job whose `time_limit` ends before it can still start"
    )


def test_one_question_tells_of_the_nodes_of_all_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    # However long this machine takes for 500 jobs.
    monkeypatch.setattr(states, "_FRESH_SECONDS", 3600)
    asked = Asked("gpu[016-017,070]|Kill task failed\ngpu[080-081]|Not responding\n")
    explained = Explanations(asked).explained
    for job in range(500):
        reason = explained(f"{job}", FAILED).reason
        assert reason == "`sinfo -R` says: gpu016,gpu017: Kill task failed"
    reason = explained("600", replace(FAILED, nodes="gpu[080-089]")).reason
    assert reason == "`sinfo -R` says: gpu[080-081]: Not responding"
    assert explained("601", replace(FAILED, nodes="gpu090")) == replace(FAILED, nodes="gpu090")
    assert asked.commands == [OF_ALL_NODES]
    # An answer from before a job failed does not tell of its nodes.
    monkeypatch.setattr(states, "_FRESH_SECONDS", -1)
    explained("1", FAILED)
    assert asked.commands == [OF_ALL_NODES]
    explained("602", FAILED)
    assert asked.commands == [OF_ALL_NODES] * 2


def test_a_job_that_ends_is_asked_about_only_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Asked("gpu017|Kill task failed\n")
    explained = Explanations(asked).explained
    assert explained("17", ENDING) == ENDING
    assert asked.commands == []
    monkeypatch.setattr(states, "_END_SECONDS", -1)
    for _ in range(3):
        assert explained("17", ENDING).reason == "`sinfo -R` says: gpu017: Kill task failed"
    assert asked.commands == [OF_ALL_NODES]


@pytest.mark.parametrize(
    "state", [HELD, MAINTENANCE, FAILED, replace(FAILED, nodes=""), JobState(Phase.RUNNING, "RUNNING")]
)
@pytest.mark.parametrize("answer", ["", "Welcome\n", "a=b\n\n|", "Flags=MAINT"])
def test_what_the_tools_do_not_tell_changes_nothing_else(state: JobState, answer: str) -> None:
    explained = Explanations(Asked(answer)).explained("17", state)
    assert replace(explained, reason="") == replace(state, reason="")
    assert explained.reason.startswith(state.reason)
