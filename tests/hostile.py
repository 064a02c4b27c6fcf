"""A session in which every text from outside means harm to a terminal, a browser or the reader of a report.

The logs are judged by the replay backend; as a plugin of pytest (`-p tests.hostile`) this module puts what a cluster would say
around each of them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from plugins.recipes.cases import Case
from plugins.record.job import Job, JobRef, JobState, Phase
from plugins.record.outcome import Outcome
from plugins.suite.session import case_of
from tests.printed import nemo2
from tests.system import support
from tests.unit import examples

# The clipboard, the title, clear the screen, the cursor, C1, from right to left; what XML cannot hold; a command to CI.
OBEYED = "\x1b]52;c;aGk=\x07\x1b]0;x\x07\x1b[2J\x1b[1A\x9b2J\r\u202e\x00\x0b\x7f\ufffe\udc80##vso[task.setvariable variable=PATH]/tmp"
# Each ends what may stand around it, and says which one it was in case it runs.
MARKUP = (
    "<script>window.ran='script'</script>",
    "</pre><script>window.ran='pre'</script>",
    "</script><script>alert('end')</script>",
    "<img src=http://evil.example/i onerror=\"window.ran='img'\">",
    "\"'><svg onload=alert(1)>",
    "<iframe srcdoc='<script>parent.ran=1</script>'></iframe>",
    "<style>@import 'http://evil.example/c';body{display:none}</style>",
    "<meta http-equiv=refresh content='0;url=http://evil.example/m'>",
    "[x](javascript:alert(1)) ![x](http://evil.example/md)",
    "```\n# x\n<b onmouseover=alert(2)>",
    "]]>&lt;x&#x1b; %0a::error::x {{constructor.constructor('alert(3)')()}} ${alert(4)}",
    "[link=http://evil.example]x[/link][/][red]",
)
# On a line of its own, as what an error says may be.
COMMAND = "::stop-commands::x"
TEXT = f"{OBEYED} {' '.join(MARKUP)}\n{COMMAND}"


@dataclass(frozen=True)
class Fate:
    """What becomes of a case: its pace, relative to the published one, how many of its steps it prints, and what the cluster says."""

    verdict: str
    slower: float = 1.0
    steps: int = 50
    gbs: int = 0
    changed: Mapping[str, Any] = dataclasses.field(default_factory=dict)


FATES = {
    "70b-bf16-64gpus": Fate("passed"),
    "70b-bf16-128gpus": Fate("too slow", slower=1.1),
    "70b-bf16-256gpus": Fate("too fast", slower=0.8),
    "70b-bf16-512gpus": Fate("invalid run", gbs=8),
    "70b-fp8-64gpus": Fate("infrastructure", steps=20, changed={"phase": Phase.FAILED}),
    "70b-fp8-128gpus": Fate("infrastructure", changed={"backend": "slurm", "failure": "infrastructure", "message": f"sbatch: {TEXT}"}),
    "70b-fp8-256gpus": Fate("lost", changed={"failure": "lost", "message": f"sacct: {TEXT}"}),
    "70b-fp8-512gpus": Fate("no baseline", changed={"gpu": f"gpu {TEXT}"}),
}  # fmt: skip
_SAID: dict[str, Any] = {
    name: f"{name} {TEXT}"
    for name in ("id", "name", "raw", "reason", "nodes", "exit_code", "log_note", "setup")
}  # fmt: skip
_EARLIER = Job(
    ref=JobRef("llama3", "70b", TEXT, TEXT),
    state=JobState(Phase.FAILED, TEXT, nodes=f"earlier {TEXT}"),
    failure="infrastructure",
    message=TEXT,
    excluded=(TEXT,),
)
STARTED, LASTED = 1_790_000_000.0, 900.0
_AROUND: dict[str, Any] = {
    "images": (TEXT,),
    "excluded": (f"excluded {TEXT}",),
    "versions": {"driver": TEXT},
    "earlier": (_EARLIER,),
    "attempts": 2,
    "started": STARTED,
    "ended": STARTED + LASTED,
}


def run(folder: Path, *options: str) -> support.Run:
    """Judge these cases in a session of their own, whose files are kept in `folder`."""
    logs = folder / "logs"
    logs.mkdir(parents=True)
    for number, (case_id, fate) in enumerate(FATES.items()):
        case = examples.case(case_id)
        name = f"log-x.pretrain_llama3.1_{case.size}_{case.dtype}_{case.gpus}_{number}_0.out"
        (logs / name).write_bytes(_log(case, fate).encode("utf-8", "surrogateescape"))
    wanted = " or ".join(f"(70b and {case_id[4::].replace('-', ' and ')})" for case_id in FATES)
    return support.pacemark(
        "suites/llama3", "-k", wanted, "--backend", "replay", "--from", str(logs), "-p", "tests.hostile",
        *options, results=folder / "results",
    )  # fmt: skip


def _log(case: Case, fate: Fate) -> str:
    pace = examples.target(case.id).step_time * fate.slower
    gbs = fate.gbs or case.gbs
    lines = [f"All distributed processes registered. Starting with {case.gpus} processes", *_harm("start")]
    lines += [nemo2.nemo2_line(step, pace, gbs=gbs) for step in range(fate.steps)]
    return "\n".join([*lines, *_harm("error"), ""])


def _harm(word: str) -> list[str]:
    return [f"{word} {OBEYED}", *(f"{word} {markup}" for markup in MARKUP)]


@pytest.hookimpl(wrapper=True)
def pytest_pacemark_outcome(test: pytest.Item) -> Generator[None, Outcome, Outcome]:
    plain = yield
    case = case_of(test)
    assert case is not None
    return examples.with_facts(plain, **_SAID, **_AROUND, **FATES[case.id].changed)
