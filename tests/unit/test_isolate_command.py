"""`pacemark isolate RUN GPU_HOURS`: which session it becomes."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from pacemark.__main__ import main
from plugins.acceptance.screening import screening
from plugins.judging.choice import Choice
from plugins.record.stored import read_summary, write_summary
from plugins.reports.checkout import CHECKOUT
from tests.unit.bundles import runs


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The command line of the session, once there is one."""
    command: list[str] = []
    monkeypatch.setattr("os.execv", lambda _program, words: command.extend(words))
    return command


def isolate(run: Path, *more: str) -> int | None:
    return main(["isolate", run.name, "300", "--site", "lab.yaml", "--results", str(run.parent), *more])


def test_the_session_goes_on_with_the_cases_that_were_too_slow(session: list[str], tmp_path: Path) -> None:
    run = runs.make_run(tmp_path)
    isolate(run)
    assert session == [
        *(sys.executable, "-m", "pytest", str(CHECKOUT / "suites" / "llama3"), "-k", f"[{runs.SLOW}]"),
        *("--site", "lab.yaml", "--results", str(tmp_path), "--resume", run.name, "--isolate", "300"),
    ]


def test_all_cases_of_a_plan_are_selected_since_its_decision_needs_them(
    session: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = runs.make_run(tmp_path, runs.PLAN_TEXT)
    isolate(run)
    assert session[5] == f"[{runs.PASSED}] or [{runs.SLOW}] or [{runs.AGAIN}]"
    session.clear()
    assert (isolate(run, "-k", runs.SLOW), session) == (2, [])
    assert (
        "has an acceptance plan, whose decision needs all of its cases: leave -k out"
        in capsys.readouterr().err
    )


def test_a_run_without_such_a_case_is_an_error(
    session: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = runs.make_run(tmp_path)
    assert isolate(run, "-k", "405b") == 2
    assert capsys.readouterr().err == f"error: run {run.name}: no case with 405b was too slow\n"
    assert session == []


def test_a_node_that_was_screened_is_no_case_of_several_nodes(
    session: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = runs.make_run(tmp_path)
    summary = read_summary(run)
    cases = tuple(replace(case, id=f"{case.id}.gpu001") for case in summary.cases)
    write_summary(run, replace(summary, cases=cases, screening=screening(cases, {})))
    assert isolate(run) == 2
    reason = "no case was too slow; the slow nodes that it screened are in failing_nodes.txt"
    assert capsys.readouterr().err == f"error: run {run.name}: {reason}\n"
    assert session == []


def test_the_cases_are_judged_by_the_same_numbers_as_before(session: list[str], tmp_path: Path) -> None:
    run = runs.make_run(tmp_path)
    chosen = run / "basis" / "choices" / "llama3.json"
    choice = Choice.model_validate_json(chosen.read_bytes())
    chosen.write_text(
        choice.model_copy(update={"own": "/our/numbers", "strict_last": True}).model_dump_json()
    )
    isolate(run)
    assert session[6:9] == ["--site-baselines", "/our/numbers", "--strict-last"]
