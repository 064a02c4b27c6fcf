"""What a recipe on Kubernetes needs before its jobs: shared storage and data, and the Jobs that make them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, field_validator, model_validator

from plugins.base.yamlfile import Strict, form, load
from plugins.recipes.arithmetic import Expression, Term, evaluate, fill
from plugins.recipes.contracts import Documents, PatternText, ValueName, compiled

NO_STORAGE = "none"

_PROGRESS_GROUPS = {"stage", "worker", "done", "all", "unit"}


class Rule(Strict):
    """A condition, the message if it does not hold, and what helps. `{names}` are filled into both texts."""

    require: Expression
    lack: str
    mend: str


class Ruled(Strict):
    """Something with `rules`. Each of `numbers` is computed from the values and the numbers before it."""

    numbers: dict[ValueName, Expression] = {}
    rules: list[Rule] = []

    def broken(self, words: Mapping[str, str]) -> str | None:
        """The message of the first rule that does not hold; None if all hold.

        Raises ValueError if a rule cannot be computed.
        """
        known: dict[str, Term] = dict(words)
        for name, text in self.numbers.items():
            known[name] = evaluate(text, known)
        for rule in self.rules:
            if not evaluate(rule.require, known):
                return fill(f"{rule.lack}\n    mend: {rule.mend}", known)
        return None


class StorageSetUp(Documents, Ruled):
    """Documents that end with a PersistentVolumeClaim. The rules must hold before they are applied."""


class Driver(Strict):
    """A CSI driver: how to install it, and the message while it makes a volume."""

    install: str
    wait: str = ""


class DataProbe(Ruled):
    """The Job that finds out which data are there.

    Its pod prints a line that matches `says`. The rules must hold before a job is sent; the named groups of
    the line are values in them too. If the pod does not answer, the message is `unknown` with the reason, and
    `mend`.
    """

    job: str
    says: PatternText
    unknown: str
    mend: str


class Preparation(Documents, Ruled):
    """The Jobs that prepare the data. Each Job is a document of `file`; a ConfigMap there has their scripts.

    `stages` names the Jobs in their order. If a Job runs again, it continues where it stopped. `container` is
    the container that does the work. `progress` is a pattern for the lines in which the pods report their
    progress.

    `place` names the values that say where the data are; the claim is the first. Sessions in which these
    values are equal share the Jobs. `selection` names the values that say what is made there. The rules must
    hold before anything is made.
    """

    container: str
    place: list[str] = Field(min_length=1)
    selection: list[str] = []
    stages: list[str] = Field(min_length=1)
    progress: PatternText
    probe: DataProbe

    @field_validator("progress")
    @classmethod
    def _has_its_groups(cls, text: str) -> str:
        missing = _PROGRESS_GROUPS - compiled(text).groupindex.keys()
        if missing:
            raise ValueError(f"the pattern needs the groups (?P<{'>...) (?P<'.join(sorted(missing))}>...)")
        return text

    @model_validator(mode="after")
    def _each_once(self) -> Self:
        names = [*self.stages, self.probe.job]
        if len(set(names)) < len(names):
            raise ValueError(f"stages and probe.job name a Job twice: {', '.join(names)}")
        return self


class SetUp(Strict):
    """The contract of a set-up: `storage` by kind, CSI `drivers` by name, and the data.

    A site names one kind of storage, or `none`. What is there already is never changed.
    """

    drivers: dict[str, Driver] = {}
    storage: dict[Annotated[str, form(r"[a-z]+", "a name of small letters")], StorageSetUp] = {}
    data: Preparation

    @property
    def names(self) -> set[str]:
        """The values that a site may give for it, besides those of the recipe's manifest."""
        return {
            "storage",
            *(name for documents in (self.data, *self.storage.values()) for name in documents.values),
        }

    @model_validator(mode="after")
    def _none_is_taken(self) -> Self:
        if NO_STORAGE in self.storage:
            raise ValueError(
                f"storage.{NO_STORAGE}: a site says this where there is nothing to make; take another name"
            )
        return self


@lru_cache
def read_setup(path: Path) -> SetUp:
    """Read a set-up's file. Raises ConfigError with the line of each mistake."""
    return load(path, SetUp)
