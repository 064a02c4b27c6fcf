"""Records are written whole; what is damaged, planted or strange in a folder costs its run a line, or is a clear error."""

from __future__ import annotations

import io
import json
import os
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import allure_commons
import pytest
from allure_commons._hooks import AllureDeveloperHooks
from pluggy import PluginManager

from fixtures.backends.base import LogPlace
from fixtures.backends.shell import Answer
from fixtures.backends.ssh.log_tail import trouble
from fixtures.runs.folders import Summary, print_runs
from fixtures.runs.ledger import Ledger
from fixtures.runs.lock import RunLock
from fixtures.session.life import About, write_record
from plugins.base.errors import ConfigError, Unreachable
from plugins.base.files import write_whole
from plugins.record.case import CaseRecord
from plugins.record.folder import CASE, make_case_folder, point_latest
from plugins.record.job import Job, JobRef
from plugins.record.lines import JOBS_LOG
from plugins.record.stored import case_as_json, read_case, write_case
from plugins.record.summary import Ending
from plugins.record.verdict import Kind, Outcome
from plugins.reports.allure_view import Lenient
from plugins.reports.terminal import print_table
from tests.system.support import pacemark
from tests.unit.backends.ssh.test_log_tail import Here, drain, long
from tests.unit.bundles import runs
from tests.unit.cluster import NARROW, WIDE
from tests.unit.jobs_log import planned

Damage = Callable[[Path], object]


def make_folder(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.mkdir()


def make_pipe(path: Path) -> None:
    path.unlink(missing_ok=True)
    os.mkfifo(path)


def make_dangling(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to(path.parent / "nowhere")


ABOUT = About("lab", 0.0)


def failed(cases: Sequence[CaseRecord]) -> Ending:
    return runs.ended(Outcome.FAILED, 1)


def made(folder: Path) -> Path:
    """A run of two cases that has ended; one of them is judged."""
    folder.mkdir(parents=True)
    ledger = Ledger.create(folder / JOBS_LOG, folder.name, "lab")
    ledger.plan([planned(case, "slurm", case.id) for case in (NARROW, WIDE)])
    for case in (NARROW, WIDE):
        ledger.end(case.key)
    ledger.finish()
    for case in (NARROW, WIDE):
        (folder / case.key).mkdir(parents=True)
    record = CaseRecord.unjudged(Job(ref=JobRef(NARROW.recipe, NARROW.id, NARROW.id)), "")
    write_case(folder / NARROW.key, replace(record, verdict=Kind.PASSED))
    return folder


def listed(folder: Path) -> list[str]:
    said = io.StringIO()
    print_runs(folder, said, 200)
    return [" ".join(line.split()) for line in said.getvalue().splitlines()]


def test_a_file_is_on_the_disk_before_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    fsync, replace = os.fsync, Path.replace

    def note_fsync(handle: int) -> None:
        done.append(f"fsync {Path(f'/proc/self/fd/{handle}').readlink().name}")
        fsync(handle)

    def note_replace(self: Path, target: Path) -> Path:
        done.append(f"rename to {target.name}")
        return replace(self, target)

    monkeypatch.setattr(os, "fsync", note_fsync)
    monkeypatch.setattr(Path, "replace", note_replace)
    write_whole(tmp_path / "case.json", "{}\n")
    assert done == ["fsync case.json.part", "rename to case.json", f"fsync {tmp_path.name}"]
    done.clear()
    write_whole(tmp_path / "steps.csv", "step\n", alone=False)
    assert done == ["fsync steps.csv.part", "rename to steps.csv"]
    assert (tmp_path / "case.json").read_text() == "{}\n"


def test_a_file_that_cannot_be_written_leaves_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    write_whole(tmp_path / "case.json", "before")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_whole(tmp_path / "case.json", "after")
    assert (tmp_path / "case.json").read_text() == "before"


DAMAGED: dict[str, Damage] = {
    "empty": lambda path: path.write_bytes(b""),
    "cut": lambda path: path.write_text('{"id": "x", "verd'),
    "binary": lambda path: path.write_bytes(bytes(range(256))),
    "list": lambda path: path.write_text("[1, 2]"),
    "types": lambda path: path.write_text('{"verdict": {"a": 1}}'),
    "unknown": lambda path: path.write_text('{"verdict": "splendid"}'),
    "deep": lambda path: path.write_text("[" * 100_000),
    "folder": make_folder,
    "pipe": make_pipe,
}


@pytest.mark.parametrize("damage", DAMAGED.values(), ids=DAMAGED.keys())
def test_a_damaged_record_of_a_case_costs_that_case_its_verdict(tmp_path: Path, damage: Damage) -> None:
    made(tmp_path / "run-1"), made(tmp_path / "run-2")
    path = tmp_path / "run-1" / NARROW.key / CASE
    damage(path)
    lines = listed(tmp_path)
    assert lines[1] == "run-1 lab ended 1 with a damaged record, 1 not judged none"
    assert lines[2] == "run-2 lab ended 1 passed, 1 not judged none"
    summary = write_record(tmp_path / "run-1", ABOUT, Summary.of(tmp_path / "run-1").entries, None, failed)
    assert summary.cases[0].verdict == "infrastructure"
    assert summary.cases[0].headline.startswith(f"infrastructure: its record is damaged: {path}: ")


RECORD = CaseRecord.unjudged(Job(ref=JobRef(NARROW.recipe, NARROW.id, NARROW.id, "17")), "stopped")
WRITTEN = case_as_json(RECORD)


@pytest.mark.parametrize(
    "wrong",
    [
        {"mfu": float("nan")}, {"step_time": "x"}, {"expected": "x", "step_time": 1.0}, {"remarks": 5}, {"id": 5},
        {"job": {**WRITTEN["job"], "started": "yesterday"}},
    ],
)  # fmt: skip
def test_a_record_that_cannot_be_shown_is_damaged(tmp_path: Path, wrong: dict[str, Any]) -> None:
    run = made(tmp_path / "run-1")
    entries = Summary.of(run).entries
    path = run / NARROW.key / CASE
    path.write_text(json.dumps(WRITTEN))
    assert write_record(run, ABOUT, entries, None, failed).cases[0] == RECORD
    path.write_text(json.dumps({**WRITTEN, **wrong}))
    summary = write_record(run, ABOUT, entries, None, failed)
    assert "its record is damaged" in summary.cases[0].headline
    print_table(summary.cases, io.StringIO(), 120, colour=False)


def test_a_file_in_the_place_of_a_recipes_folder_is_a_damaged_record(tmp_path: Path) -> None:
    run = made(tmp_path / "run-1")
    (run / "llama3").rename(run / "elsewhere")
    (run / "llama3").touch()
    assert listed(tmp_path)[1] == "run-1 lab ended 2 with a damaged record none"


def test_a_record_that_may_not_be_read_is_a_damaged_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = made(tmp_path / "run-1")

    def refuse(self: Path) -> bytes:
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.raises(ConfigError, match=r"case.json: cannot be read: .*Permission denied"):
        read_case(run / NARROW.key)


@pytest.mark.parametrize(
    "damage",
    [make_folder, make_pipe, make_dangling, lambda path: path.write_bytes(b""), lambda path: path.write_bytes(b"x" * 5000)],
    ids=["folder", "pipe", "dangling", "empty", "no database"],
)  # fmt: skip
def test_a_damaged_ledger_hides_no_other_run(tmp_path: Path, damage: Damage) -> None:
    """If no line of it is whole, only the run's name is known."""
    made(tmp_path / "run-1"), made(tmp_path / "run-2")
    log = tmp_path / "run-1" / JOBS_LOG
    log.write_bytes(log.read_bytes().replace(b"lab", b"lob", 1))
    assert listed(tmp_path)[1:] == [
        "run-1 lab its ledger is damaged 1 passed, 1 not judged none",
        "run-2 lab ended 1 passed, 1 not judged none",
    ]
    damage(log)
    lines = listed(tmp_path)
    assert lines[-1] == "run-2 lab ended 1 passed, 1 not judged none"
    # A link that leads nowhere is no run at all.
    assert (
        damage is make_dangling or lines[1] == "run-1 ? its ledger cannot be read ? look for pacemark-run-1*"
    )


@pytest.mark.parametrize(
    "damage", [make_folder, make_pipe, make_dangling], ids=["folder", "pipe", "dangling"]
)
def test_a_lock_that_is_none_is_told(tmp_path: Path, damage: Damage) -> None:
    made(tmp_path / "run-1"), made(tmp_path / "run-2")
    damage(tmp_path / "run-1" / "lock")
    with pytest.raises(ConfigError, match=r"run-1/lock: cannot be locked \(.*\); it should be an empty file"):
        RunLock(tmp_path / "run-1").take()
    lines = listed(tmp_path)
    assert lines[1] == "run-1 ? its lock cannot be read ? look for pacemark-run-1*"
    assert lines[2] == "run-2 lab ended 1 passed, 1 not judged none"
    assert not (tmp_path / "run-1" / "nowhere").exists()


@pytest.mark.parametrize("damage", [make_folder, make_pipe, Path.touch], ids=["folder", "pipe", "file"])
def test_nothing_but_a_link_is_replaced_by_latest(tmp_path: Path, damage: Damage) -> None:
    damage(tmp_path / "latest")
    with pytest.raises(FileExistsError, match=r"latest is no link to a run; move it away"):
        point_latest(tmp_path / "run-1")
    assert [path.name for path in tmp_path.iterdir()] == ["latest"]


def test_a_link_that_leads_nowhere_is_replaced_by_latest(tmp_path: Path) -> None:
    make_dangling(tmp_path / "latest")
    point_latest(tmp_path / "run-1")
    assert (tmp_path / "latest").readlink() == Path("run-1")


def test_allure_that_cannot_write_is_told_once_and_stops_nobody() -> None:
    told: list[str] = []
    reports = []

    class Logger:
        @allure_commons.hookimpl  # type: ignore[untyped-decorator]
        def report_result(self, result: object) -> None:
            reports.append(result)
            raise FileNotFoundError(2, "No such file or directory")

    # Not Allure's own, which has that of this session.
    hooks = PluginManager("allure")
    hooks.add_hookspecs(AllureDeveloperHooks)
    hooks.register(Lenient(told.append))
    hooks.register(Logger())
    hooks.hook.report_result(result=1)
    hooks.hook.report_result(result=2)
    assert reports == [1, 2]
    assert told == ["Allure's results cannot be written any more: [Errno 2] No such file or directory"]


def test_a_run_that_is_gone_is_not_made_again_for_a_case(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        make_case_folder(tmp_path / "run-1" / NARROW.key)
    assert list(tmp_path.iterdir()) == []


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    write_case(tmp_path, replace(RECORD, headline="chêne"))
    assert read_case(tmp_path) == replace(RECORD, headline="chêne")
    assert read_case(tmp_path / "none") is None


ODD = [
    "plain",
    "with space",
    "a\nb",
    "it's",
    '"q"',
    "$(touch planted)",
    "`touch planted`",
    "-n",
    "; touch planted",
]
NOWHERE = LogPlace()


class Watched(Here):
    """Keeps what the last script wrote."""

    def run(self, script: str, **kinds: Any) -> Answer:
        self.script = script
        self.answer = super().run(script)
        return self.answer


@pytest.mark.parametrize("name", ODD)
def test_the_probe_of_a_folder_leaves_nothing_and_says_nothing(name: str, tmp_path: Path) -> None:
    folder = tmp_path / name
    folder.mkdir()
    here = Watched()
    assert trouble(here, str(folder), NOWHERE) == ""
    assert here.answer.status == 0
    assert "65536 bytes" in here.answer.err
    assert list(tmp_path.rglob("*")) == [folder]


def test_the_probe_follows_no_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target, folder = tmp_path / "target", tmp_path / "stage"
    target.write_text("of somebody else")
    folder.mkdir()
    # Both the name that it once had and the one that it is going to have.
    monkeypatch.setattr("secrets.token_hex", lambda size: "guessed")
    planted = [folder / ".pacemark-probe", folder / ".pacemark-guessed"]
    for link in planted:
        link.symlink_to(target)
    here = Watched()
    trouble(here, str(folder), NOWHERE)
    assert "cannot overwrite existing file" in here.answer.err
    assert target.read_text() == "of somebody else"
    assert all(link.is_symlink() for link in planted)


def test_the_probe_makes_no_file_behind_a_dangling_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("secrets.token_hex", lambda size: "guessed")
    link = tmp_path / ".pacemark-guessed"
    link.symlink_to(tmp_path / "made")
    here = Watched()
    trouble(here, str(tmp_path), NOWHERE)
    assert here.answer.status != 0
    assert list(tmp_path.iterdir()) == [link]


def test_each_probe_has_a_name_of_its_own(tmp_path: Path) -> None:
    here = Watched()
    scripts = set()
    for _ in range(2):
        trouble(here, str(tmp_path), NOWHERE)
        scripts.add(here.script)
    assert len(scripts) == 2


def test_a_full_disk_is_told_by_whoever_notices_it(tmp_path: Path) -> None:
    class Full(Here):
        def run(self, script: str, **kinds: Any) -> Answer:
            return Answer(1, "", f"bash: line 3: {tmp_path}/x: Disk quota exceeded")

    told = trouble(Full(), str(tmp_path), NOWHERE)
    assert told == f"the disk of its log is full: Disk quota exceeded in {tmp_path}"


def test_a_large_log_that_became_a_link_is_not_searched(tmp_path: Path) -> None:
    class Replacing(Here):
        def run(self, script: str, **kinds: Any) -> Answer:
            if "grep" in script:
                path.unlink()
                path.symlink_to(secret)
            return super().run(script)

    secret, path = tmp_path / "secret", tmp_path / "log.out"
    secret.write_bytes(long("nemo2", 3))
    path.write_bytes(secret.read_bytes())
    with pytest.raises(Unreachable, match="failed"):
        drain(Replacing(), path, "nemo2")


@pytest.mark.parametrize("name", ODD)
def test_a_log_of_any_name_is_searched(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(long("nemo2", 3))
    got, end = drain(Here(), path, "nemo2")
    assert end == path.stat().st_size
    assert b"bytes without a step left out here" in got


@pytest.mark.parametrize("odd", ODD)
def test_no_job_id_is_a_command(odd: str, tmp_path: Path) -> None:
    """Ids come from a launcher's words and from a ledger; both may be damaged."""
    from fixtures.backends.slurm.answers import LoginNode
    from fixtures.backends.slurm.controller import Controller
    from fixtures.backends.slurm.launcher import cancel

    class Run:
        most_seconds = 60.0

        def run(self, script: str, *, seconds: float | None = None) -> Answer:
            subprocess.run(
                ["bash", "-s"], input=script.encode(), cwd=tmp_path, capture_output=True, check=False
            )
            return Answer(0, "", "")

    section = SimpleNamespace(
        prologue="", environment={}, launch_bound=9, ssh=SimpleNamespace(command_seconds=5)
    )
    login = LoginNode("here", section, Run())  # type: ignore[arg-type]
    controller = Controller(login)
    job = JobRef("llama3", "8b", f"name {odd}", odd, odd)
    cancel(login, controller, [job])
    controller.folder(odd)
    controller._shown([job])
    assert not list(tmp_path.iterdir())


def test_no_program_in_a_folder_of_logs_is_run(tmp_path: Path) -> None:
    """pytest looks for a conftest.py in each word of the command line that it does not know."""
    logs, ran = tmp_path / "logs", tmp_path / "ran"
    for folder in (logs, logs / "test_logs"):
        folder.mkdir()
        (folder / "conftest.py").write_text(f"open({str(ran)!r}, 'w')\n")
    chosen = ("suites/llama3", "-k", "70b and fp8 and 512", "--backend", "replay", "--from", str(logs))
    run = pacemark(*chosen, results=tmp_path / "results")
    assert (run.status, "ERROR: no log of llama3/70b-fp8-512gpus below" in run.out) == (4, True), run.out
    assert not ran.exists()
