"""Workers of xdist: what they leave is what one process leaves, and a worker that dies takes no verdict with it."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.system.support import Run
from tests.unit.session import dying
from tests.unit.test_gate import OTHER, PASSED, SLOW, session

PACES = {PASSED: 1.0, SLOW: 1.2, OTHER: 1.0}
VERDICTS = {f"llama3/{PASSED}": "passed", f"llama3/{SLOW}": "too slow", f"llama3/{OTHER}": "passed"}


def in_allure(run: Run) -> dict[str, str]:
    """The cases and their verdicts in the results of Allure that the last line tells to open."""
    assert f"allure@3 open {run.folder / 'allure'} -c" in run.out
    return {case: re.split(r" [+-]|, not|:", result["name"])[0] for case, result in run.allure.items()}


@pytest.mark.parametrize("workers", ["0", "2", "4"])
def test_allure_has_every_case_whoever_judged_it(workers: str, tmp_path: Path) -> None:
    """xdist hands its workers the command line and no value of an option: WorkerController.setup in xdist/workermanage.py, 3.8.0."""
    run = session(tmp_path, PACES, "-n", workers)
    assert run.verdicts == VERDICTS, run.out
    assert in_allure(run) == VERDICTS


@pytest.mark.parametrize("options", [(), ("--clean-alluredir",), ("--dist", "worksteal")])
@pytest.mark.parametrize("moment", ["setup", "call", "teardown"])
def test_another_worker_judges_the_case_of_one_that_died(
    options: tuple[str, ...], moment: str, tmp_path: Path
) -> None:
    xml = tmp_path / "junit.xml"
    dies = {"DIES": f"{moment}:128gpus:1"}
    run = session(
        tmp_path, PACES, "-p", dying.__name__, "-n", "2", "--gate", "--junitxml", str(xml), *options, env=dies
    )
    assert run.verdicts == VERDICTS, run.out
    assert (run.status, run.summary["outcome"]) == (10, "performance"), run.out
    assert "crashed while running" in run.out
    assert ": another worker judges it" in run.out
    assert in_allure(run) == VERDICTS
    assert len(list(ElementTree.parse(xml).iter("skipped"))) == 1


# xdist itself sends a test again whose file stays with one worker: LoadScopeScheduling.remove_node, 3.8.0.
FILES = ("-n", "2", "--dist", "loadfile", "--max-worker-restart", "1")


@pytest.mark.parametrize("options", [("-n", "2"), ("-n", "4"), FILES])
@pytest.mark.parametrize("moment", ["setup", "call"])
def test_a_case_whose_workers_die_is_passed_nowhere(
    options: tuple[str, ...], moment: str, tmp_path: Path
) -> None:
    dies = {"DIES": f"{moment}:64gpus:2"}
    run = session(tmp_path, {PASSED: 1.0, OTHER: 1.0}, "-p", dying.__name__, "--gate", *options, env=dies)
    assert run.verdicts[f"llama3/{PASSED}"] == "infrastructure", run.out
    assert (run.status, run.summary["outcome"]) == (12, "infrastructure"), run.out
    assert "or the worker of xdist that judged it died" in run.case(f"llama3/{PASSED}")["headline"]
    assert in_allure(run) == run.verdicts
    assert options == FILES or run.verdicts[f"llama3/{OTHER}"] == "passed"


@pytest.mark.parametrize(("options", "status"), [((), 1), (("--gate",), 12)])
def test_a_case_that_no_worker_is_left_for_does_not_end_as_passed(
    options: tuple[str, ...], status: int, tmp_path: Path
) -> None:
    xml, dies = tmp_path / "junit.xml", {"DIES": "setup:64gpus:1"}
    alone = ("-p", dying.__name__, "-n", "1", "--max-worker-restart", "0", "--junitxml", str(xml))
    run = session(tmp_path, {PASSED: 1.0}, *alone, *options, env=dies)
    assert run.verdicts == {f"llama3/{PASSED}": "infrastructure"}, run.out
    assert (run.status, run.summary["exit_code"]) == (status, status), run.out
    assert in_allure(run) == run.verdicts
    [error] = ElementTree.parse(xml).iter("error")
    assert "no worker was left to judge it" in error.get("message", "")
