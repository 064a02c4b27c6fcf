"""Bundles that an earlier Pacemark made, in `golden/`: every later one verifies them, and says the same of them.

`python -m tests.unit.bundles.golden` makes them anew, of today's product. Only if what a bundle has was changed on
purpose: what there is of it then is gone, and with it the proof that a bundle of before is still read.
"""

from __future__ import annotations

import contextlib
import io
import random
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

from pacemark.__main__ import main
from plugins.record.folder import BASIS
from tests.fuzz import broken, cells, health, pace
from tests.fuzz.cells import Cell
from tests.fuzz.kinds import KINDS
from tests.system.support import finish, start
from tests.unit import examples
from tests.unit.bundles import runs

FOLDER = Path(__file__).parent / "golden"
PARTIES = ("vendor", "buyer")
KEYS = tuple(f"{party}.pub" for party in PARTIES)

LOGS = Path(__file__).parents[1]
REAL = {
    "proxy/8b-8l-bf16-1gpus": LOGS / "gpu_logs" / "second_process.log",
    "proxy/8b-8l-bf16-2gpus": LOGS / "gpu_logs" / "two_gpus.log",
    "gpt3_aks/375m-fp16-16gpus": LOGS / "public_logs" / "megatron_lm-0.13.txt",
}
"""Logs of real runs, each as the log of a case that is judged by it."""

DRAWN = {
    "nemo2": "healthy-hiccups",
    "maxtext": "healthy-chatter",
    "nemo1": "slow-throughout",
    "megatron_lm": "nan-loss",
}
"""A class of made-up logs for each of these formats."""

MODULES = (broken, health, pace)
"""Those that register these classes."""


@dataclass(frozen=True)
class Said:
    """What `verify` prints of a bundle, and its exit code."""

    code: int
    text: str


def verify(folder: Path, name: str) -> Said:
    """Verify a bundle of `folder` by the keys there, as one whose own recipes and baselines are those of that day."""
    with (
        tempfile.TemporaryDirectory() as published,
        contextlib.chdir(folder),
        contextlib.redirect_stdout(io.StringIO()) as out,
        mock.patch("plugins.bundle.verification.PUBLISHED", Path(published) / BASIS),
    ):
        for member, data in runs.unpacked(Path(f"{name}.zip")).items():
            if member.startswith(f"{BASIS}/"):
                path = Path(published) / member
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)
        code = main(["verify", f"{name}.zip", *(word for key in KEYS for word in ("--key", key))])
    return Said(code, out.getvalue())


def make(folder: Path) -> Iterator[str]:
    """Make the bundles, and the keys that verify them, in an empty folder. Yields the name of each bundle."""
    runs.make_keys(folder, *PARTIES)
    yield _bundle(folder, "stopped", runs.make_run(folder / "stopped"))
    yield _bundle(folder, "repeated", runs.make_run(folder / "repeated", repeated=True))
    yield _bundle(folder, "accepted", runs.make_run(folder / "accepted", runs.PLAN_TEXT))
    yield _bundle(folder, "replayed", _replayed(folder / "replayed"))
    for party in PARTIES:
        (folder / f"{party}.pem").unlink()


def _bundle(folder: Path, name: str, run: Path) -> str:
    keys = [word for party in PARTIES for word in ("--key", str(folder / f"{party}.pem"))]
    assert main(["bundle", str(run), *keys, "-o", str(folder / f"{name}.zip")]) == 0
    shutil.rmtree(folder / name)
    return name


def _replayed(folder: Path) -> Path:
    """The folder of a session that replayed the logs above."""
    logs = {key: log.read_text() for key, log in REAL.items()}
    logs |= dict(_drawn(dialect, kind) for dialect, kind in DRAWN.items())
    for key, text in logs.items():
        (folder / "logs" / key).mkdir(parents=True)
        (folder / "logs" / key / "log.txt").write_text(text)
    selected = " or ".join(f"[{key.rpartition('/')[2]}]" for key in logs)
    words = ("-k", selected, "--backend", "replay", "--from", str(folder / "logs"))
    return finish(start("suites", *words, results=folder / "results"), folder / "results").folder


def _drawn(dialect: str, kind: str) -> tuple[str, str]:
    """The key of a case that the session runs, and a log of it of this class."""
    rng = random.Random(dialect)
    while True:
        cell = cells.draw(rng, dialect)
        log = KINDS[kind](cell, rng) if _of_today(cell) else None
        if log is not None and "\0" not in log.text:
            return cell.case.key, log.text


def _of_today(cell: Cell) -> bool:
    """Whether a session without options would run this very case."""
    case = examples.recipe_named(cell.case.recipe).case(cell.case.id)
    return cell.gpu == "h100" and cell.case == case


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        made = Path(name)
        for bundle in make(made):
            (made / f"{bundle}.txt").write_text(verify(made, bundle).text)
        shutil.rmtree(FOLDER)
        shutil.copytree(made, FOLDER)
