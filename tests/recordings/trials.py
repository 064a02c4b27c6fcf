"""Trials on the lab whose sessions are recorded, and trials without a lab, whose sessions are answered by these recordings."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from tests.lab.stage import KINDS, Stage
from tests.recordings.played import MISSING, RECORDINGS
from tests.system.faults import Trial
from tests.system.kube import CASE, SELECT, gke_site
from tests.system.kube_trial import KubeTrial
from tests.system.support import USUAL_LIMITS, Run, finish, start, until


def namespace_of(name: str) -> str:
    return f"recorded-{name[:40]}".replace("_", "-").strip("-")


class RecordedTrial(KubeTrial):
    """A trial on the lab. Each of its sessions writes a recording into `folder`."""

    def __init__(self, folder: Path, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.recordings = folder
        self.number = 0
        self._mends: list[Callable[[], None]] = []

    def start(self, *more: str, env: dict[str, str] | None = None) -> Self:
        self.number += 1
        super().start(*more, "--record-answers", str(self.recordings / f"{self.number}.jsonl"), env=env)
        return self

    def hold(self, step: int) -> Self:
        super().hold(step)
        return self

    def change(self, what: Callable[[KubeTrial], Any]) -> None:
        """Do something to the cluster. What it returns is called at the end of the test."""
        if self.number:
            recording = self.recordings / f"{self.number}.jsonl"
            until(recording.exists, "the session's recording")
            with recording.open("a") as file:
                file.write('{"mark": true}\n')
        mend = what(self)
        if callable(mend):
            self._mends.append(mend)

    def clear(self) -> None:
        super().clear()
        for mend in self._mends:
            mend()


# A recording answers at once, so that nothing is waited for long.
_SHORT = {"log_settle_seconds": 0.2, "hopeless_seconds": 0.5}


class PlayedTrial(KubeTrial):
    """The same trial without a lab: its sessions are answered by the recordings of this name."""

    def __init__(
        self,
        name: str,
        folder: Path,
        suite: str,
        *,
        limits: dict[str, float] | None = None,
        keys: dict[str, Any] | None = None,
        select: tuple[str, ...] = SELECT,
        **knobs: Any,
    ) -> None:
        self.name, self.number = name, 0
        self.results, self.select, self.process = folder / "results", (suite, *select), None
        given = {**USUAL_LIMITS, **(limits or {})}
        short = {key: min(value, _SHORT.get(key, value)) for key, value in given.items()}
        self.site = gke_site(None, namespace_of(name), folder, limits=short, kubeconfig="/nonexistent", **(keys or {}))  # type: ignore[arg-type]  # fmt: skip

    def start(self, *more: str, env: dict[str, str] | None = None) -> Self:
        self.number += 1
        file = RECORDINGS / "jobset" / f"{self.name}-{self.number}.jsonl.xz"
        self._marks = self.site.with_name(f"marks-{self.number}")
        self._marks.touch()
        played = {"PLAYED": str(file), "PLAYED_MARKS": str(self._marks), **(env or {})}
        options = (*self.select, "--site", str(self.site), "-p", "tests.recordings.played", *more)
        self.process = start(*options, results=self.results, env=played)
        return self

    def end(self) -> Run:
        assert self.process is not None
        result = finish(self.process, self.results, 60)
        assert MISSING not in result.out
        return result

    def hold(self, step: int) -> Self:
        return self

    def change(self, what: Callable[[KubeTrial], Any]) -> None:
        """The recording has what came of it. It is told from now on."""
        if self.number:
            with self._marks.open("a") as file:
                file.write("\n")


JobsetTrial = RecordedTrial | PlayedTrial
Begin = Callable[..., JobsetTrial]


def infrastructure(trial: JobsetTrial) -> str:
    """It ends as infrastructure; the headline."""
    result = trial.end()
    assert (result.status, result.verdicts) == (1, {CASE: "infrastructure"}), result.out
    headline: str = result.case(CASE)["headline"]
    return headline


STAGE = Path("/recorded/stage")
"""The stage in the recordings."""


class RecordedSlurmTrial(Trial):
    """A trial on the lab, whose session writes a recording."""

    def start(self, *more: str, env: dict[str, str] | None = None) -> Self:
        super().start(*more, "--record-answers", str(self.folder / "1.jsonl"), env=env)
        return self


class NoLab:
    """How a lab is reached that is not there."""

    host, port, user, key, known_hosts = "login.invalid", 22, "lab", Path("/key"), Path("/known_hosts")


class PlayedSlurmTrial(Trial):
    """The same trial without a lab."""

    def __init__(self, name: str, folder: Path, **options: Any) -> None:
        knobs = {key: options[key] for key in options if key in ("limits", "keys")}
        super().__init__(NoLab(), folder, stage=Stage(STAGE, KINDS["llama3"]), **knobs)  # type: ignore[arg-type]
        self.file = RECORDINGS / "slurm" / f"{name}-1.jsonl.xz"

    def start(self, *more: str, env: dict[str, str] | None = None) -> Self:
        super().start("-p", "tests.recordings.played", *more, env={"PLAYED": str(self.file), **(env or {})})
        return self

    def end(self, seconds: float = 60, *, left: int = 0) -> Run:
        assert self.process is not None
        result = finish(self.process, self.results, seconds)
        assert MISSING not in result.out
        return result
