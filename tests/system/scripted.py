"""One pytest session of Pacemark on the scripted scheduler, and what the scheduler saw of it."""

from __future__ import annotations

import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tests.lab.scripted import Script, ScriptedLab
from tests.system.support import Run, finish, login, signal_group, site_file, start, until

RECIPE = "maxtext_llama2"
CELL = "70b-bf16-64gpus"

# A session may take this long, in s, however the cluster behaves. Alone it takes less than 14, and what hangs does so for FOR_EVER.
BOUND = 240

TIMED_OUT = "Socket timed out on send/recv operation"
FOR_EVER = 600

# On a busy machine a cluster that is well is slow: what has a bound of its own here is left to the tests of that bound.
_LIMITS = {"log_settle_seconds": 1, "hopeless_seconds": 1, "cancel_seconds": 60, "unreachable_minutes": 5}
SHORT = {"cancel_seconds": 3, "unreachable_minutes": 0.06}
"""For what is never confirmed or never answered: so far from each other that a test can tell which bound it was."""

# For tools that answer, and for one that hangs.
_COMMAND_SECONDS, _SHORT_COMMAND_SECONDS = 10, 5
NO_ANSWER, NO_ANSWER_OF_SHELL = "no answer within 4 s", "no answer within 5 s"
"""What is said of a tool that hangs, and of a login node that does not say so in time."""

SUBMITTED = "job 4711"
"""What a session prints once it knows its job."""


@dataclass(frozen=True)
class Session:
    """What a session said, and how long it took in s."""

    run: Run
    case: dict[str, Any]
    seconds: float

    @property
    def verdict(self) -> str:
        verdict: str = self.case["verdict"]
        return verdict

    @property
    def headline(self) -> str:
        headline: str = self.case["headline"]
        return headline


def play(
    lab: ScriptedLab,
    tmp_path: Path,
    script: Script,
    *,
    recipe: str = RECIPE,
    limits: Mapping[str, float] = MappingProxyType({}),
    interrupt: str = "",
    **keys: str,
) -> Session:
    """Run the case against this script; with `interrupt`, Ctrl-C is sent once its job runs and the session has printed this."""
    select = _selection(lab, tmp_path, script, recipe, limits, keys)
    results = tmp_path / "results"
    began = time.monotonic()
    with start(*select, results=results) as process:
        try:
            if interrupt:
                until(lambda: "RUNNING" in lab.jobs().values(), "the job runs")
                until(lambda: interrupt in process.said(), interrupt)
                signal_group(process, signal.SIGINT)
            run = finish(process, results, BOUND)
        finally:
            process.kill()
    session = Session(run, run.case(f"{recipe}/{CELL}"), time.monotonic() - began)
    require_good_manners(lab, session)
    return session


def _selection(
    lab: ScriptedLab,
    tmp_path: Path,
    script: Script,
    recipe: str,
    limits: Mapping[str, float],
    keys: Mapping[str, str],
) -> tuple[str, ...]:
    """Let the lab play, and select the case of this recipe on it."""
    lab.play(script)
    if any(fault.seconds for fault in script.faults.values()):
        keys = {"ssh": login(lab, f", command_seconds: {_SHORT_COMMAND_SECONDS}"), **keys}
    return f"suites/{recipe}", "-k", CELL, "--site", str(site_of(lab, recipe, tmp_path, limits, **keys))


def site_of(
    lab: ScriptedLab,
    recipe: str,
    tmp_path: Path,
    limits: Mapping[str, float] = MappingProxyType({}),
    **keys: str,
) -> Path:
    """The site file for a stage of the lab."""
    return site_file(
        lab, lab.stage(recipe), tmp_path, limits="".join(f", {name}: {value}" for name, value in {**_LIMITS, **limits}.items()),
        **{"ssh": login(lab, f", command_seconds: {_COMMAND_SECONDS}"), **keys},
    )  # fmt: skip


def require_good_manners(lab: ScriptedLab, session: Session) -> None:
    """What holds whatever the cluster does: one submission, only its job is cancelled, in a bounded time."""
    assert session.seconds < BOUND, session.run.out
    assert len(lab.calls("sbatch")) <= 1, lab.calls("sbatch")
    for call in lab.calls("scancel"):
        ids = {argument for argument in call.argv if not argument.startswith("--")}
        assert ids <= {str(job) for job in lab.jobs()}, call
    assert "Traceback" not in session.run.out
    # One that hangs is ended on the login node, though nobody may wait for that.
    until(lambda: not lab.running_tools(), "the end of all tools", BOUND)
