"""`--check`: what is ready and what is missing, of each recipe, whatever another one lacks; and nothing is submitted."""

from __future__ import annotations

from pathlib import Path

import pytest

from fixtures.backends.base import Findings
from fixtures.backends.replay import ReplayBackend
from fixtures.session.dry import check
from fixtures.session.prospects import baseline_of
from plugins.base.errors import Absent, SiteError, Unreachable
from plugins.recipes.cases import Case
from tests.unit import examples
from tests.unit.chosen import chosen
from tests.unit.cluster import Cluster

RECIPES = [examples.recipe_named(name) for name in ("llama3", "nemotron4", "maxtext_llama2")]
LACK = "the image /x.sqsh is missing\n    mend: run pytest with --provision"


class Looked(Cluster):
    """Says of a recipe what a test says, or raises it. `looked` are the cases that it was asked about."""

    def __init__(self, **told: Findings | Exception) -> None:
        super().__init__()
        self.told = told
        self.looked: list[Case] = []
        self.here: dict[str, list[str]] = {}

    def findings(self, case: Case) -> Findings:
        self.looked.append(case)
        told = self.told.get(case.recipe, Findings(["sbatch"]))
        if isinstance(told, Exception):
            raise told
        return told

    def lacks_here(self, case: Case) -> list[str]:
        return self.here.get(case.recipe, [])


def checked(backend: Cluster) -> tuple[list[str], str]:
    said: list[str] = []
    cases = [chosen(case, recipe) for recipe in RECIPES for case in recipe.cases if not case.variant]
    unready = check(cases, {"slurm": backend}, said.append)
    assert backend.submitted == []
    return unready, "\n".join(said)


def test_all_that_is_ready_has_a_line() -> None:
    backend = Looked(
        llama3=Findings(["sbatch", "the partition batch"], [], ["the bucket is written by the nodes"])
    )
    unready, said = checked(backend)
    assert unready == []
    assert "  ready    llama3: sbatch\n  ready    llama3: the partition batch\n" in said
    assert "  note     llama3: the bucket is written by the nodes\n" in said
    assert said.endswith("all is ready for 72 case(s) of 3 recipe(s); nothing was submitted")
    # As a session does, with the case that needs the most.
    assert [case.gpus for case in backend.looked] == [2048, 2048, 2048]


@pytest.mark.parametrize(
    "told",
    [Findings(["sbatch"], [LACK]), SiteError(LACK), Unreachable(LACK)],
    ids=["lacks", "refused", "no answer"],
)
def test_what_one_recipe_lacks_hides_no_other(told: Findings | Exception) -> None:
    unready, said = checked(Looked(nemotron4=told))
    assert unready == ["nemotron4"]
    assert (
        "  missing  nemotron4: the image /x.sqsh is missing\n               mend: run pytest with --provision\n"
        in said
    )
    assert "  ready    llama3: sbatch\n" in said
    assert "  ready    maxtext_llama2: sbatch\n" in said
    assert said.endswith("not ready: nemotron4; nothing was submitted")


def test_a_cluster_that_cannot_be_reached_is_asked_once_and_this_machine_all_the_same() -> None:
    backend = Looked(llama3=Absent("the name login cannot be resolved"))
    backend.here = {
        "maxtext_llama2": ["HF_TOKEN is not set\n    mend: export HF_TOKEN=..."],
        "llama3": ["the name login cannot be resolved"],
    }
    unready, said = checked(backend)
    assert sorted(unready) == sorted(recipe.name for recipe in RECIPES)
    assert len(backend.looked) == 1
    assert said.count("the name login cannot be resolved") == 1
    assert "  missing  nemotron4: not looked at, because slurm cannot be asked\n" in said
    assert (
        "  missing  maxtext_llama2: HF_TOKEN is not set\n               mend: export HF_TOKEN=...\n" in said
    )
    assert "  ready" not in said


def test_what_is_said_of_this_machine_is_said_once() -> None:
    backend = Looked(llama3=Findings([], ["HF_TOKEN is not set"]))
    backend.here = {"llama3": ["HF_TOKEN is not set"]}
    assert checked(backend)[1].count("HF_TOKEN is not set") == 1


def test_of_a_replay_each_log_is_looked_for(tmp_path: Path) -> None:
    recipe = RECIPES[0]
    log = tmp_path / examples.case().key / "log.txt"
    log.parent.mkdir(parents=True)
    log.touch()
    said: list[str] = []
    cases = [
        chosen(examples.case(case_id), backend="replay") for case_id in (examples.CASE, "70b-fp8-64gpus")
    ]
    backend = ReplayBackend(tmp_path, "h100", [recipe])
    assert check(cases, {"replay": backend}, said.append, each=True) == ["llama3"]
    assert f"  ready    llama3: 70b-fp8-512gpus: judged from {log}, which Pacemark collected" in said
    assert any(line.startswith("  missing  llama3: no log of llama3/70b-fp8-64gpus below ") for line in said)


def test_a_number_that_needs_the_run_s_own_peak_is_a_baseline() -> None:
    recipe = examples.recipe_named("proxy")
    found = {
        case.id: baseline_of(chosen(case, recipe)) is not None
        for case in recipe.cases
        if case.id in ("tiny-fp32-1gpus", "8b-8l-bf16-8gpus")
    }
    assert found == {"tiny-fp32-1gpus": True, "8b-8l-bf16-8gpus": False}
