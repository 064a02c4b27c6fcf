"""The order in which a session calls its hooks: docs/dev/architecture.md."""

from __future__ import annotations

from pathlib import Path

from tests.unit.session import hook_log
from tests.unit.test_gate import PASSED, session

FIRST = """\
pacemark-run pytest_runtestloop
pacemark-run pytest_pacemark_cases_chosen
pacemark-gate pytest_pacemark_run_opened
pacemark-terminal pytest_pacemark_run_opened
pacemark-waiting pytest_pacemark_run_opened
pacemark-terminal pytest_pacemark_outcome begins
pacemark-waiting pytest_pacemark_outcome
"""

# The record is written before it is read for the site's own baselines and printed. The exit status is final after all
# others have changed it. The lock is released when nobody writes into the run's folder any more.
LAST = """\
pacemark-gate pytest_sessionfinish begins
pacemark-run pytest_sessionfinish
pacemark-terminal pytest_pacemark_waiting
pacemark-run pytest_pacemark_waiting
pacemark-gate pytest_pacemark_ending
pacemark-gate pytest_pacemark_run_ended
pacemark-terminal pytest_pacemark_run_ended
pacemark-recording pytest_pacemark_run_ended
pacemark-recording pytest_sessionfinish
pacemark-terminal pytest_terminal_summary begins
pacemark-selection pytest_terminal_summary begins
pacemark-recording pytest_terminal_summary
pacemark-gate pytest_terminal_summary
pacemark-selection pytest_terminal_summary ends
pacemark-gate pytest_pacemark_ending
pacemark-terminal pytest_terminal_summary ends
pacemark-gate pytest_sessionfinish ends
pacemark-run pytest_unconfigure
Signals.restore
RunLock.release
"""


def test_a_run_is_opened_before_the_first_test_and_ended_before_its_record_is_used(tmp_path: Path) -> None:
    site = tmp_path / "site.yaml"
    site.write_text("site: archive\nreplay: {gpu: h100}\n")
    options = ("--site", str(site), "--record-baselines", "--site-baselines", str(tmp_path / "baselines"))
    run = session(tmp_path, {PASSED: 1.0}, "-p", hook_log.__name__, *options)
    assert run.status == 0, run.out
    log = (tmp_path / hook_log.NAME).read_text()
    assert FIRST in log
    assert log.endswith(LAST)
    assert log.count("pacemark-terminal pytest_pacemark_case_ended\n") == 1
