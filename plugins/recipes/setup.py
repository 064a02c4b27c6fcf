"""What a recipe on Kubernetes needs before its jobs: shared storage and data, and the Jobs that make them."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Annotated
from typing import Self

from pydantic import Field
from pydantic import model_validator

from plugins.recipes.contracts import Documents
from plugins.yamlfile import Strict
from plugins.yamlfile import load

NO_STORAGE = "none"


class Preparation(Documents):
    """The Jobs that prepare the data. Each is a document of `file`, beside a ConfigMap with their scripts.

    `stages` are Jobs by name, one after the other; each can be run again and goes on where it stopped, and its pods
    tell how far they are in lines that `fixtures.backends.kubernetes.provision.data` reads. `count` is the Job that looks what there is.
    `container` is the one that works.
    """

    container: str
    stages: list[str] = Field(min_length=1)
    count: str

    @model_validator(mode="after")
    def _each_once(self) -> Self:
        names = [*self.stages, self.count]
        if len(set(names)) < len(names):
            raise ValueError(f"stages and count name a Job twice: {', '.join(names)}")
        return self


class SetUp(Strict):
    """The contract of a set-up: `storage` by its kind, of which a site names one or `none`, and the data in it.

    Storage is documents that end with a PersistentVolumeClaim. What is there already is never changed.
    """

    storage: dict[Annotated[str, Field(pattern=r"^[a-z]+$")], Documents] = {}
    data: Preparation

    @model_validator(mode="after")
    def _none_is_taken(self) -> Self:
        if NO_STORAGE in self.storage:
            raise ValueError(
                f"storage.{NO_STORAGE}: a site says this where there is nothing to make; take another name"
            )
        return self


@lru_cache
def read_setup(path: Path) -> SetUp:
    """Read a set-up's file; a mistake is a ConfigError with its line."""
    return load(path, SetUp)
