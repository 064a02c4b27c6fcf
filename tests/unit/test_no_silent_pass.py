"""A session whose selected case has not passed does not exit with 0, whatever the test of the case does."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.system import support
from tests.unit import examples

TESTS = """
import pytest

def test_that_asks_for_no_figure(case):
    pass

def test_that_skips(measured):
    pytest.skip("not today")

def test_that_expects_a_failure(measured):
    pytest.xfail("as ever")

def test_that_asks_late(case, request):
    request.getfixturevalue("measured")

@pytest.mark.xfail(reason="as ever")
def test_that_is_marked(measured, expected):
    assert measured.tokens_per_second == expected.tokens_per_second

@pytest.mark.xfail(reason="as ever", run=False)
def test_that_is_marked_not_to_run(measured):
    pass

@pytest.fixture
def ready(measured):
    pytest.skip("not today")

def test_that_skips_in_its_setup(ready):
    pass
"""


def session(folder: Path, *options: str) -> support.Run:
    """A run of one case, 20 % slower than published, in a suite of these tests."""
    suite, logs = folder / "llama3", folder / "logs"
    shutil.copytree(examples.ROOT / "suites" / "llama3", suite)
    (suite / "test_llama3.py").write_text(TESTS)
    logs.mkdir()
    pace = 1.2 * examples.target().step_time
    (logs / "log-x.pretrain_llama3.1_70b_fp8_512_1_0.out").write_text(examples.nemo2_text([pace] * 50))
    return support.pacemark(
        # No pytest.ini registers the mark of the cases there.
        str(suite), "--rootdir", str(examples.ROOT), "-p", "conftest", "-W", "default", "-k", "70b and fp8 and 512",
        "--backend", "replay", "--from", str(logs), *options, results=folder / "results",
    )  # fmt: skip


def test_no_test_of_a_case_hides_its_verdict(tmp_path: Path) -> None:
    found = session(tmp_path)
    failed = [line for line in found.out.splitlines() if line.startswith(("FAILED ", "ERROR "))]
    assert found.status == pytest.ExitCode.TESTS_FAILED
    assert len(failed) == TESTS.count("def test_that_") == 7, found.out
    assert all("::test_that_" in line for line in failed)
    assert "the case was not judged: its test asks for none of its figures" in found.out
    assert found.verdicts == {support.CASE: "too slow"}


@pytest.mark.parametrize("option", ["--setup-only", "--benchmark-only"])
def test_an_option_with_which_nothing_is_judged_is_refused(option: str, tmp_path: Path) -> None:
    found = session(tmp_path, option)
    assert found.status == pytest.ExitCode.USAGE_ERROR
    assert f"{option}: the cases would run, and their tests would judge none of them" in found.out
    assert "Traceback" not in found.out
