"""Runs Pacemark as its users do: pytest in a process of its own, on a suite, with a site file."""

from __future__ import annotations

import configparser
import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Protocol

from plugins.record.stored import read_summary
from tests.lab import daemons
from tests.lab.slurm import SlurmLab
from tests.lab.stage import Stage
from tests.system.forks import GUARD as GUARD
from tests.system.forks import OPTIONS, Forks, Session
from tests.system.forks import ROOT as ROOT

TOKEN = "hf_planted-by-a-test-0123456789"
CASE = "llama3/70b-fp8-512gpus"
SELECT = ("suites/llama3", "-k", "70b and fp8 and 512")
# Whoever runs the tests may be logged in to a cloud: they ask nobody but this machine, where nobody listens.
NO_STORAGE = "http://127.0.0.1:9"

_started: list[Session] = []
"""By the test that runs now."""

USUAL_LIMITS = {"log_settle_seconds": 2, "cancel_seconds": 300}
"""A site's. If its controllers lost their API server, they may ask it again only after a minute (client-go's reflector)."""


class LoginNode(Protocol):
    """How a lab is reached."""

    host: str
    port: int
    user: str
    key: Path
    known_hosts: Path


@dataclass(frozen=True)
class Run:
    """A finished session: exit status, everything it printed, and its results folder."""

    status: int
    out: str
    folder: Path

    @property
    def summary(self) -> dict[str, Any]:
        value: dict[str, Any] = json.loads((self.folder / "summary.json").read_text())
        return value

    def case(self, key: str = CASE) -> dict[str, Any]:
        return next(case for case in self.summary["cases"] if case["id"] == key)

    @property
    def allure(self) -> dict[str, dict[str, Any]]:
        """Allure's result of each case that was judged, by the case's key."""
        results = [json.loads(path.read_text()) for path in (self.folder / "allure").glob("*-result.json")]
        return {p["value"]: result for result in results for p in result["parameters"] if p["name"] == "id"}

    @property
    def verdicts(self) -> dict[str, str]:
        return {case["id"]: case["verdict"] for case in self.summary["cases"]}


def command(*arguments: str, results: Path) -> list[str]:
    """The command line of a session."""
    return [sys.executable, "-m", "pytest", *OPTIONS, *_strict(), "--results", str(results), *arguments]


@cache
def _strict() -> tuple[str, ...]:
    """A session of ours fails for a warning, but for those of which pytest.ini says something else."""
    ini = configparser.ConfigParser()
    ini.read(ROOT / "pytest.ini")
    own = ini["pytest"]["filterwarnings"].split("\n")
    return tuple(word for one in ("error", *filter(None, own)) for word in ("-W", one))


def environment(env: dict[str, str] | None = None) -> dict[str, str]:
    """What a session finds: this process's own, but for what the tests themselves run under; and `env`."""
    fixed = {
        "HF_TOKEN": TOKEN,
        "STORAGE_EMULATOR_HOST": NO_STORAGE,
        "GITHUB_STEP_SUMMARY": "",
    }
    found = {**os.environ, **fixed, **(env or {})}
    return {name: value for name, value in found.items() if not name.startswith("PYTEST_")}


@cache
def forks() -> Forks:
    return Forks(environment())


def start(*arguments: str, results: Path, env: dict[str, str] | None = None) -> Session:
    """Start pytest in a process group of its own, as a terminal does; all of it anew if Python itself is told something."""
    anew = any(name.startswith("PYTHON") for name in env or {})
    _started.append(forks().start(command(*arguments, results=results), environment(env), anew=anew))
    return _started[-1]


def end_sessions() -> None:
    """kill -9 of each session that was started and still runs, with all its processes: nobody waits for it any more."""
    while _started:
        session = _started.pop()
        if session.poll() is None:
            daemons.kill(daemons.family({session.pid}))
        session.stdout.close()
        session.wait()


def finish(process: Session, results: Path, seconds: float = GUARD) -> Run:
    out, _ = process.communicate(timeout=seconds)
    latest = results / "latest"
    folder = latest.resolve() if latest.exists() else results
    # Whatever became of the session, it showed the token nowhere.
    shown = [path for path in folder.rglob("*") if path.is_file() and _shows_token(path)]
    assert shown == []
    assert TOKEN not in out
    if (folder / "summary.json").exists():
        read_summary(folder)
    return Run(process.wait(), out, folder)


def _shows_token(path: Path) -> bool:
    # Another session of the same run may rename a file meanwhile.
    with contextlib.suppress(FileNotFoundError):
        return TOKEN.encode() in path.read_bytes()
    return False


def pacemark(
    *arguments: str, results: Path, env: dict[str, str] | None = None, seconds: float = GUARD
) -> Run:
    return finish(start(*arguments, results=results, env=env), results, seconds)


def site_file(lab: LoginNode, stage: Stage, folder: Path, *, limits: str = "", **keys: str) -> Path:
    """A site file for this stage of the lab; `keys` replace or add keys of the section `slurm`.

    `limits` adds limits, each with a comma before it, or replaces the usual ones.
    """
    own = ", ".join(f"{key}: {value}" for key, value in USUAL_LIMITS.items() if f" {key}:" not in limits)
    section = {
        "gpu": "h100",
        "account": "lab_acct",
        "partition": "batch",
        "stage": str(stage.root),
        "gres": '"gpu:8"',
        "limits": f"{{{(own + limits).removeprefix(', ')}}}",
        "ssh": login(lab),
        **keys,
    }
    path = folder / "site.yaml"
    path.write_text("site: lab\nslurm:\n" + "".join(f"  {key}: {value}\n" for key, value in section.items()))
    return path


def on_slurm(
    lab: SlurmLab, folder: Path, *arguments: str, keys: dict[str, str] | None = None, **knobs: Any
) -> Run:
    """A session on a stage with these knobs; `keys` as of `site_file`."""
    site = site_file(lab, lab.stage(folder.name, **knobs), folder, **(keys or {}))
    return pacemark(*arguments, "--site", str(site), results=folder / "results")


def login(lab: LoginNode, more: str = "") -> str:
    """The site file's `ssh` for this lab; `more` with a comma before it."""
    return (
        f"{{host: {lab.host}, port: {lab.port}, user: {lab.user}, key: {lab.key}, "
        f"known_hosts: {lab.known_hosts}, config: /nonexistent{more}}}"
    )


def until(true: Callable[[], bool], what: str, seconds: float = GUARD) -> None:
    began = time.monotonic()
    deadline = began + seconds
    while not true():
        now = time.monotonic()
        assert now < deadline, f"not within {seconds} s: {what}"
        # What takes long to ask is asked less often.
        time.sleep(min(1, max(0.1, 4 * (now - began))))
        began = time.monotonic()


def signal_group(process: Session, number: signal.Signals) -> None:
    """What a terminal does on Ctrl-C: every process of the foreground group gets it. Of SIGSTOP the effect is waited for."""
    os.killpg(process.pid, number)
    if number == signal.SIGSTOP:
        until(lambda: daemons.is_stopped(process.pid), "no thread of the session runs")
