"""Slurm's tools, a launcher and a login node say anything at all: what follows is the truth, a doubt or one clear error."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fixtures.backends.shell import Answer
from fixtures.backends.slurm.answers import LoginNode, blamed, only_node, printed_ids, unanswered
from fixtures.backends.slurm.controller import Controller
from fixtures.backends.slurm.job_table import Accounts, JobTable, from_scontrol
from fixtures.backends.slurm.launcher import cancel
from fixtures.backends.slurm.preflight import Limits, lacking
from fixtures.backends.slurm.section import Slurm
from fixtures.backends.ssh.connection import SshConnection
from fixtures.backends.ssh.endpoint import Ssh
from plugins.base.errors import Unreachable
from plugins.record.job import JobRef, JobState, Phase
from tests.unit import examples

JOB = JobRef("llama3", "70b-fp8-512gpus", "ours", "17", "/logs")
SECTION = Slurm(gpu="h100", account="a", partition="p", stage="/s", ssh=Ssh(host="login"))
PATTERNS = [
    launch.job_id
    for name in ("llama3", "nemotron4", "maxtext_llama2")
    if (launch := examples.recipe_named(name).file.launch) is not None
]
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
    for pattern in PATTERNS:
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
    assert printed_ids(PATTERNS[0], f"- Job id: {said}") in ([], [("17", "")])
    assert printed_ids(PATTERNS[1], f"{said}\n") == []


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
    ["17|ours|RUNNING|n|", "\n", " \n", "JobId=17 ", "a/", "srun: error: n1: task ", "- Job id: 1 ", "|", "99 bytes", "StdOut=/a/"],
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
    for pattern in PATTERNS:
        printed_ids(pattern, text)
    assert time.process_time() - began < 5
