"""Sessions that are killed at random moments and whose ledger is damaged at random: no double, none left, no traceback.

    python -m tests.bench.soak --sessions 100 --seed 1

Each session runs on a scripted scheduler of its own. After `kill -9` and the damage it is resumed, killed again, and swept.
Exits with 1 where anything was found.
"""

from __future__ import annotations

import argparse
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from plugins.record.lines import JOBS_LOG
from tests.lab.scripted import STUCK, Script, ScriptedLab, training_log
from tests.system.scripted import RECIPE, site_of
from tests.system.support import pacemark, signal_group, start, until

# Several cases, so that a session is killed between two submissions too.
_SELECT = (f"suites/{RECIPE}", "-k", "bf16")
# From its start until a session is killed, at most.
_LONGEST = 8.0
_TRACES = ("Traceback", "INTERNALERROR")


@dataclass
class Count:
    """What was found. `killed`: sessions that had submitted a job when they were killed."""

    sessions: int = 0
    killed: int = 0
    jobs: int = 0
    doubles: int = 0
    left: int = 0
    tracebacks: int = 0
    said: list[str] = field(default_factory=list)

    @property
    def good(self) -> bool:
        return not (self.doubles or self.left or self.tracebacks)

    def __str__(self) -> str:
        return (
            f"{self.sessions} sessions, {self.killed} killed with jobs, {self.jobs} jobs: {self.doubles} doubled, "
            f"{self.left} left, {self.tracebacks} tracebacks"
        )


def soak(sessions: int, seed: int) -> Count:
    count, chosen = Count(), random.Random(seed)
    with tempfile.TemporaryDirectory() as made:
        log = training_log(Path(made) / "log")
        for number in range(sessions):
            folder = Path(made) / str(number)
            folder.mkdir()
            with ScriptedLab(log) as lab:
                _session(lab, folder, chosen, count)
            print(f"{number + 1}: {count}", flush=True)
    return count


def _session(lab: ScriptedLab, folder: Path, chosen: random.Random, count: Count) -> None:
    lab.play(Script(timeline=STUCK, ends=False))
    site = ("--site", str(site_of(lab, RECIPE, folder, launch_minutes="0.2")))
    results = folder / "results"
    count.sessions += 1
    # The first has a job, however long this machine takes for it.
    _killed(chosen, *_SELECT, *site, results=results, ready=lambda: count.sessions > 1 or bool(lab.jobs()))
    count.killed += bool(lab.jobs())
    runs = [path for path in results.glob("*") if (path / JOBS_LOG).exists() and not path.is_symlink()]
    for again in (["--resume", "latest"], ["--sweep"]):
        for run in runs:
            _damage(run, chosen)
        if again == ["--sweep"]:
            said = pacemark("suites", *again, *site, results=results).out
        elif runs:
            said = _killed(chosen, *_SELECT, *again, *site, results=results)
        else:
            continue
        if any(trace in said for trace in _TRACES):
            count.tracebacks += 1
            count.said.append(said)
    # None of them ends by itself, and nothing is cancelled before the last command.
    count.jobs += len(lab.jobs())
    names = Counter(lab.names(list(lab.jobs())))
    count.doubles += sum(number > 1 for number in names.values())
    if lab.live_jobs():
        count.left += len(lab.live_jobs())
        count.said.append(said)


def _killed(
    chosen: random.Random, *arguments: str, results: Path, ready: Callable[[], bool] = lambda: True
) -> str:
    """What a session said until it was killed at a random moment, once this was so."""
    process = start(*arguments, results=results)
    until(ready, "a job")
    time.sleep(chosen.uniform(1, _LONGEST))
    signal_group(process, signal.SIGKILL)
    return process.communicate()[0]


def _damage(run: Path, chosen: random.Random) -> None:
    """Cut the run's log of jobs behind its first line, take a line out of it, change bits in a line, or nothing."""
    path = run / JOBS_LOG
    how = chosen.choice(["nothing", "cut", "remove", "flip"])
    lines = path.read_bytes().splitlines(keepends=True)
    if how == "nothing" or len(lines) < 2:
        # If no line is whole, the run is only named.
        return
    number = chosen.randrange(len(lines))
    if how == "cut":
        data = b"".join(lines)
        path.write_bytes(data[: chosen.randrange(len(lines[0]), len(data))])
        return
    changed = bytearray(lines.pop(number))
    if how == "flip":
        for _ in range(8):
            changed[chosen.randrange(len(changed))] ^= 1 << chosen.randrange(8)
        lines.insert(number, bytes(changed))
    path.write_bytes(b"".join(lines))


def main() -> int:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--sessions", type=int, default=100)
    options.add_argument("--seed", type=int, default=1)
    given = options.parse_args()
    count = soak(given.sessions, given.seed)
    print("\n\n".join([*count.said, str(count)]))
    return 0 if count.good else 1


if __name__ == "__main__":
    sys.exit(main())
