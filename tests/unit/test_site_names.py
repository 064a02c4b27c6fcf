"""The names in a site file are checked before any case, and in the same way on every backend."""

from __future__ import annotations

from pathlib import Path

import pytest

from fixtures.served import check_names
from fixtures.site import load_site
from plugins.base.errors import ConfigError
from tests.unit.examples import ROOT

SLURM = """\
site: lab
slurm:
  gpu: h100
  ssh: {host: login01}
  account: me
  partition: batch
  stage: /lustre
  recipes: RECIPES
"""
KUBERNETES = """\
site: lab
BACKEND:
  gpu: h100
  recipes: RECIPES
"""


def check(folder: Path, backend: str, recipes: str) -> None:
    path = folder / "site.yaml"
    text = SLURM if backend == "slurm" else KUBERNETES.replace("BACKEND", backend)
    path.write_text(text.replace("RECIPES", recipes))
    check_names(load_site(path), path, ROOT / "suites")


@pytest.mark.parametrize(
    ("backend", "recipes", "said"),
    [
        ("slurm", "{lama3: {}}", "slurm.recipes.lama3: no recipe has this name; did you mean 'llama3'?"),
        ("jobset", "{llama3_gk: {}}", "jobset.recipes.llama3_gk: no recipe has this name; did you mean 'llama3_gke'?"),
        ("pytorchjob", "{gpt3-aks: {}}", "pytorchjob.recipes.gpt3-aks: no recipe has this name; did you mean 'gpt3_aks'?"),
        ("slurm", "{llama3_gke: {}}", "slurm.recipes.llama3_gke: llama3_gke runs on jobset, not on slurm"),
        ("jobset", "{nemotron4: {}}", "jobset.recipes.nemotron4: nemotron4 runs on slurm, not on jobset"),
        ("slurm", "{proxy: {values: {imagee: a}}}", "slurm.recipes.proxy.values.imagee: means nothing to proxy; did you mean 'image'?"),
        ("slurm", "{llama3: {values: {image: a}}}", "slurm.recipes.llama3.values.image: means nothing to llama3; llama3 has no values"),
        ("jobset", "{proxy: {values: {pyton: a}}}", "jobset.recipes.proxy.values.pyton: means nothing to proxy; "),
        ("jobset", "{llama3_gke: {values: {bukket: a}}}", "jobset.recipes.llama3_gke.values.bukket: means nothing to llama3_gke; did you mean 'bucket'?"),
        ("pytorchjob", "{gpt3_aks: {values: {claims: a}}}", "pytorchjob.recipes.gpt3_aks.values.claims: means nothing to gpt3_aks; did you mean 'claim'?"),
        ("pytorchjob", "{gpt3_aks: {values: {storge: a}}}", "pytorchjob.recipes.gpt3_aks.values.storge: means nothing to gpt3_aks; did you mean 'storage'?"),
    ],
)  # fmt: skip
def test_a_name_that_is_misspelt_is_told_with_its_line(
    tmp_path: Path, backend: str, recipes: str, said: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        check(tmp_path, backend, recipes)
    line = 8 if backend == "slurm" else 4
    assert str(caught.value).startswith(f"{tmp_path}/site.yaml:{line}: {said}")


@pytest.mark.parametrize(
    ("backend", "recipes"),
    [
        ("slurm", "{llama3: {}, proxy: {values: {image: a}}}"),
        ("jobset", "{llama3_gke: {values: {bucket: a, image: b}}, proxy: {}}"),
        ("pytorchjob", "{gpt3_aks: {values: {claim: a, storage: amlfs, tier: '40', files: '3'}}}"),
    ],
)
def test_names_that_are_known_are_taken(tmp_path: Path, backend: str, recipes: str) -> None:
    check(tmp_path, backend, recipes)


@pytest.mark.parametrize("path", sorted((ROOT / "docs" / "sites").glob("*.yaml")), ids=lambda path: path.stem)
def test_the_names_of_the_commented_sites_are_known(path: Path) -> None:
    check_names(load_site(path), path, ROOT / "suites")
