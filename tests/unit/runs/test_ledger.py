"""The ledger: the life of a case, seen by whoever reads it, whatever becomes of its writer."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from fixtures.runs.ledger import Ledger
from plugins.record.job import Job, JobRef, JobState, Phase
from plugins.record.outcome import outcome_of
from tests.unit import examples
from tests.unit.jobs_log import planned

CASE = examples.case()
KEY = CASE.key
NAME = "pacemark-1.llama3-70b-fp8-512gpus"
REF = JobRef(CASE.recipe, CASE.id, NAME, "4711", "/logs/here")
RUNNING = JobState(Phase.RUNNING, "RUNNING", nodes="gpu[001-064]")
WRITER = """
import sys
from pathlib import Path
from plugins.record.job import Job, JobRef, JobState, Phase
from fixtures.runs.ledger import Ledger
ledger = Ledger.create(Path(sys.argv[1]), "run-1", "big-one")
ledger.plan_setup(JobRef("llama3", "setup", "one"), "slurm")
ledger.plan_setup(JobRef("llama3", "other", "two"), "slurm")
ledger.intend("llama3/setup")
ledger.submitted(JobRef("llama3", "setup", "one", "17", "/logs"))
ledger.observe("llama3/setup", JobState(Phase.RUNNING, "RUNNING", nodes="gpu001"), 5.0)
ledger.intend("llama3/other")
print("written", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger.create(tmp_path / "jobs.log", "run-1", "big-one")


def entry(ledger: Ledger) -> Job:
    found = ledger.entry(KEY)
    assert found is not None
    return found


def test_the_life_of_a_case(ledger: Ledger) -> None:
    ledger.plan([planned(CASE, "slurm", NAME)])
    assert (entry(ledger).status, entry(ledger).gpus, entry(ledger).ref.name, entry(ledger).attempts) == (
        "planned",
        512,
        NAME,
        1,
    )
    assert entry(ledger).times.submitted is None

    ledger.intend(KEY)
    assert (entry(ledger).status, entry(ledger).ref.id) == ("intent", "")
    assert entry(ledger).times.submitted is not None

    ledger.submitted(REF)
    assert entry(ledger).status == "submitted"
    assert entry(ledger).ref == REF

    ledger.observe(KEY, RUNNING, 123.0)
    assert (entry(ledger).state.phase, entry(ledger).state.raw, entry(ledger).state.nodes) == (
        "running",
        "RUNNING",
        "gpu[001-064]",
    )
    assert entry(ledger).times.started == 123.0

    ledger.attempt(KEY, 2)
    ledger.cancel_asked(KEY)
    assert entry(ledger).times.cancel_confirmed is None
    ledger.cancel_confirmed({KEY: JobState(Phase.FAILED, "CANCELLED")})
    ledger.end(KEY, "interrupted", "Ctrl-C")
    last = entry(ledger)
    assert (last.state.raw, last.state.nodes) == ("CANCELLED", RUNNING.nodes)
    assert (last.status, last.attempts, last.failure, last.message) == ("ended", 2, "interrupted", "Ctrl-C")
    assert last.times.submitted is not None
    assert last.times.cancel_asked is not None
    assert last.times.cancel_confirmed is not None
    assert last.times.ended is not None
    assert last.times.submitted <= last.times.cancel_asked <= last.times.cancel_confirmed <= last.times.ended


def test_where_a_job_ran_outlives_what_the_cluster_says_of_it(ledger: Ledger) -> None:
    ledger.plan([planned(CASE, "pytorchjob", NAME)])
    ledger.observe(KEY, replace(RUNNING, images=("sha256:1", "sha256:2")))
    for over in (JobState(Phase.FAILED, "CANCELLED"), JobState(Phase.GONE, "not found")):
        ledger.observe(KEY, over)
        assert (entry(ledger).state.nodes, entry(ledger).state.images) == (
            "gpu[001-064]",
            ("sha256:1", "sha256:2"),
        )
    assert outcome_of(entry(ledger), Path("x")).job.state.images == ("sha256:1", "sha256:2")
    # Back in the queue: another life, on other nodes.
    ledger.observe(KEY, JobState(Phase.QUEUED, "Suspended"))
    assert (entry(ledger).state.nodes, entry(ledger).state.images) == ("", ())
    assert outcome_of(entry(ledger), Path("x")).job.state.images == ()


def test_another_try_has_run_nowhere_yet(ledger: Ledger) -> None:
    ledger.plan([planned(CASE, "pytorchjob", NAME)])
    ledger.observe(KEY, replace(RUNNING, images=("sha256:1",)))
    ledger.try_again(KEY)
    assert (entry(ledger).state.nodes, entry(ledger).state.images) == ("", ())


def test_an_earlier_try_keeps_all_that_was_known_of_it(ledger: Ledger) -> None:
    ledger.plan([planned(CASE, "slurm", NAME)])
    ledger.intend(KEY, "here")
    ledger.submitted(REF)
    ledger.observe(KEY, replace(RUNNING, images=("sha256:1", "sha256:2"), hopeless=True), 123.0)
    ledger.attempt(KEY, 2)
    ledger.log_note(KEY, "from a copy")
    first = entry(ledger)
    again = ledger.try_again(KEY, ("gpu001", "gpu002"), "infrastructure", "a node failed")
    assert again == entry(ledger)
    assert (again.ref, again.try_number) == (JobRef(CASE.recipe, CASE.id, f"{NAME}-try2"), 2)
    assert (again.status, again.location, again.excluded) == ("planned", "here", ("gpu001", "gpu002"))
    (kept,) = ledger.earlier(KEY)
    assert kept.times.ended is not None
    ended = replace(first, status="ended", times=replace(first.times, ended=kept.times.ended))
    assert kept == replace(ended, failure="infrastructure", message="a node failed")
    assert ledger.entries() == [again]


def test_the_third_try_is_named_after_the_first_and_keeps_the_place_of_its_case(ledger: Ledger) -> None:
    other = examples.case("70b-bf16-512gpus")
    ledger.plan([planned(CASE, "slurm", NAME), planned(other, "slurm", "other")])
    ledger.try_again(KEY)
    assert ledger.try_again(KEY).ref.name == f"{NAME}-try3"
    assert [(found.case, found.try_number) for found in ledger.entries()] == [(KEY, 3), (other.key, 1)]
    assert [found.try_number for found in ledger.earlier(KEY)] == [1, 2]


def test_one_case_does_not_touch_another(ledger: Ledger) -> None:
    other = examples.case("70b-bf16-512gpus")
    ledger.plan([planned(CASE, "slurm", NAME), planned(other, "slurm", "other")])
    before = ledger.entry(other.key)
    ledger.intend(KEY)
    ledger.submitted(REF)
    ledger.end(KEY)
    assert ledger.entry(other.key) == before
    assert [found.case for found in ledger.entries()] == [KEY, other.key]


def test_an_unknown_case_is_none(ledger: Ledger) -> None:
    assert ledger.entry("llama3/none") is None


def test_a_case_is_planned_once_and_a_plan_is_whole_or_not_at_all(ledger: Ledger) -> None:
    other = examples.case("70b-bf16-512gpus")
    ledger.plan([planned(CASE, "slurm", NAME)])
    with pytest.raises(ValueError, match=f"{KEY} is planned already"):
        ledger.plan([planned(other, "slurm", "other"), planned(CASE, "slurm", NAME)])
    assert [found.case for found in ledger.entries()] == [KEY]


def test_the_set_up_of_a_recipe_holds_no_gpus(ledger: Ledger) -> None:
    ledger.plan_setup(JobRef("llama3", "setup", "setup-1"), "slurm")
    found = ledger.entry("llama3/setup")
    assert found is not None
    assert (found.gpus, found.status, found.ref.name) == (0, "planned", "setup-1")
    ledger.end("llama3/setup", "interrupted", "Ctrl-C")
    ledger.plan_setup(JobRef("llama3", "setup", "setup-1"), "slurm")
    assert ledger.entry("llama3/setup") == replace(found, try_number=2)


def test_another_connection_sees_every_write_at_once(ledger: Ledger) -> None:
    reader = Ledger(ledger.path)
    ledger.plan([planned(CASE, "slurm", NAME)])
    assert entry(reader).status == "planned"
    ledger.intend(KEY)
    assert entry(reader).status == "intent"
    ledger.submitted(REF)
    assert entry(reader) == entry(ledger)


def test_a_reader_does_not_stop_the_writer_and_takes_whole_lines(ledger: Ledger) -> None:
    ledger.plan([planned(CASE, "slurm", NAME)])
    reader = Ledger(ledger.path)
    before = ledger.path.read_bytes()
    ledger.intend(KEY)
    whole = ledger.path.read_bytes()
    for size in range(len(before), len(whole)):
        ledger.path.write_bytes(whole[:size])
        assert entry(reader).status == "planned"
    ledger.path.write_bytes(whole)
    assert entry(reader).status == "intent"


def shrink(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-2])


def replace_file(path: Path) -> None:
    """As a copy over it does: what it says may be of any time."""
    path.with_name("copy").write_bytes(path.read_bytes())
    path.with_name("copy").replace(path)


def put_a_folder_there(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (shrink, "it is shorter than before"),
        (replace_file, "it is another file than before"),
        (Path.unlink, "No such file"),
        (put_a_folder_there, "it is no regular file"),
    ],
)
def test_a_file_that_is_no_longer_what_it_was_tells_nothing_more(
    ledger: Ledger, change: Callable[[Path], None], reason: str
) -> None:
    """Neither to a worker nor to the fleet, which writes no line there."""
    ledger.plan([planned(CASE, "slurm", NAME)])
    reader = Ledger(ledger.path)
    assert reader.entry(KEY) is not None
    change(ledger.path)
    with pytest.raises(OSError, match=reason):
        reader.entry(KEY)
    with pytest.raises(OSError, match=reason):
        ledger.require_there()
    with pytest.raises(OSError, match=reason):
        ledger.intend(KEY)
    assert entry(ledger).status == "planned"


def test_no_line_leaves_the_file_open(ledger: Ledger) -> None:
    ledger.plan([planned(CASE, "slurm", NAME)])
    before = os.listdir("/proc/self/fd")  # noqa: PTH208 - the numbers alone
    for number in range(10):
        ledger.attempt(KEY, number + 2)
    assert len(os.listdir("/proc/self/fd")) == len(before)  # noqa: PTH208


def test_the_fleet_is_known_and_so_is_its_end(ledger: Ledger) -> None:
    assert (ledger.run().pid, ledger.run().ended) == (os.getpid(), None)
    ledger.finish()
    assert ledger.run().ended is not None


def test_a_text_of_the_cluster_is_no_line_of_its_own(ledger: Ledger) -> None:
    ledger.plan([planned(CASE, "slurm", NAME)])
    nasty = "\nffff {}\n'\0\udcff\u2028"
    ledger.observe(KEY, JobState(Phase.UNKNOWN, nasty, reason=nasty), None)
    ledger.end(KEY, "lost", nasty)
    assert (entry(ledger).state.raw, entry(ledger).state.reason, entry(ledger).message) == (
        nasty,
        nasty,
        nasty,
    )


def test_what_was_written_survives_kill_9_of_the_writer(tmp_path: Path) -> None:
    path = tmp_path / "jobs.log"
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path)],
        cwd=examples.ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "written\n"
        alive = Ledger(path)
        seen = alive.entries()
        writer.send_signal(signal.SIGKILL)
    assert writer.returncode == -signal.SIGKILL
    left = Ledger(path)
    assert left.entries() == seen
    first, second = left.entries()
    assert (first.status, first.ref.id, first.state.raw, first.times.started) == (
        "submitted",
        "17",
        "RUNNING",
        5.0,
    )
    assert (second.status, second.ref.name, second.ref.id) == ("intent", "two", "")
    assert (left.run().pid, left.run().ended) == (writer.pid, None)
    left.end("llama3/setup", "lost", "its fleet died")
    found = alive.entry("llama3/setup")
    assert found is not None
    assert found.status == "ended"
