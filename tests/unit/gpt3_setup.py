"""The set-up of the AKS recipe, as the tests take it apart: a recipe that has it, and its scripts in a folder."""

from __future__ import annotations

import shutil
import tempfile
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import yaml

from fixtures.backends.kubernetes.provision.contract import Contract
from fixtures.backends.kubernetes.section import Kubernetes
from plugins.recipes.cases import Recipe
from plugins.recipes.expansion import load_recipe
from plugins.recipes.setup import NO_STORAGE
from tests.unit.examples import ROOT

SOURCE = ROOT / "suites" / "gpt3_aks"
# What a recipe's own manifest gives its set-up.
_RECIPE = r"""
recipe: gpt3_aks
title: GPT-3 with a set-up
backend: jobset
release: "25.03"
source: https://example.org/gpt3
log: megatron_lm
steps: 100
startup_minutes: 1
models:
  tiny: {layers: 2, hidden: 64, ffn: 128, heads: 4, query_groups: 4, vocab: 256}
cases:
  - {size: tiny, dtype: [bf16], gpus: [16], sequence_length: 128, mbs: 1, gbs: 32}
manifest:
  file: manifest.yaml
  container: pytorch
  setup: setup.yaml
  values:
    image: {what: the image, mend: build it, default: "registry.test/megatron-lm:latest"}
    claim: {what: the claim, mend: make it, default: shared-storage-pvc}
    dataset: {what: the folder, mend: give it, default: slimpajama/preprocessed}
    chunks: {what: the files kept, mend: give it, default: "15"}
"""


@lru_cache
def _temporary() -> tempfile.TemporaryDirectory[str]:
    """A folder that is removed at the end of the process."""
    return tempfile.TemporaryDirectory(prefix="pmk-setup-")


@lru_cache
def recipe() -> Recipe:
    """A small recipe with the set-up that is shipped."""
    folder = Path(_temporary().name) / "gpt3_aks"
    shutil.copytree(SOURCE, folder)
    (folder / "recipe.yaml").write_text(_RECIPE)
    return load_recipe(folder)


def section(**given: Any) -> Kubernetes:
    """A site's section with these `values` for the recipe, or other keys of it."""
    values = given.pop("values", {})
    return Kubernetes.model_validate(
        {"gpu": "h100", "namespace": "runs", "recipes": {"gpt3_aks": {"values": values}}, **given}
    )


def contract(**given: Any) -> Contract:
    """What the set-up means on a site with these `values` or other keys."""
    return Contract(section(**given), recipe())


def documents(of: Contract) -> list[dict[str, Any]]:
    """All that may be made on a site, in that order."""
    kind, data = of.kind, of.file.data
    made = of.storage_documents(kind) if kind != NO_STORAGE else []
    return [*made, *(one for stage in data.stages for one in of.stage_documents(stage, of.id))]


def scripts(folder: Path) -> Path:
    """The scripts of the data's Jobs, as a pod finds them."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in _scripts().items():
        (folder / name).write_text(text)
    return folder


@cache
def _scripts() -> dict[str, str]:
    """The text of each script."""
    first: dict[str, Any] = next(yaml.safe_load_all((SOURCE / "data.yaml").read_text()))
    return dict(first["data"])
