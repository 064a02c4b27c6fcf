"""What options ask for: which cases, what a session does with them, what is refused, and what `--check` finds."""

from __future__ import annotations

import argparse
import io
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fixtures.backends.base import Findings
from fixtures.backends.replay import ReplayBackend
from fixtures.backends.slurm.section import Slurm
from fixtures.options import _gpu_hours, contradictions
from fixtures.session.choices import CHOICES, SELECTED, Selected
from fixtures.session.choosing import asked_of_cases, nearest, scales
from fixtures.session.dry import check, print_plan
from fixtures.session.prospects import baseline_of, command
from fixtures.session.selection import Selection
from fixtures.site import THIS_MACHINE, Site, load_site
from plugins.base.errors import Absent, ConfigError, SiteError, Unreachable
from plugins.recipes.cases import Case
from plugins.suite.session import CHOOSE
from tests.system.support import ROOT
from tests.unit import examples
from tests.unit.chosen import choices, chosen
from tests.unit.cluster import Cluster
from tests.unit.test_mistakes import SLURM

CASES = [case.key for case in examples.llama3().cases]


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("case(gpu=16)", "-m case(gpu=16): a case has no gpu; did you mean 'gpus'?"),
        ("not x and case(size='8b', dytpe='fp8')", "a case has no dytpe; did you mean 'dtype'?"),
        ("case(nodes=2)", "a case has no nodes; known here: size, dtype, gpus"),
        ("case(gpus='16')", "-m case(gpus='16'): gpus is a number: write gpus=16"),
        ("case(gpus='many')", "gpus is a number: write gpus=16"),
        ("case(gpus=True)", "gpus is a number: write gpus=16"),
        ("case(size=8)", '-m case(size=8): size is text in quotes, such as size="8b"'),
        ("case(size='8b') or case(dtype=None)", 'dtype is text in quotes, such as dtype="bf16"'),
    ],
)
def test_a_mark_that_selects_nothing_is_an_error_that_says_what_is_meant(expression: str, said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        asked_of_cases(expression)
    assert said in str(refused.value)


def test_a_mark_that_a_case_may_have_is_none() -> None:
    assert asked_of_cases("case(size='8b', gpus=16) or case(dtype=\"fp8\") and slow") == [
        "8b",
        "16gpus",
        "fp8",
    ]
    # What pytest refuses, it refuses better.
    for other in ("", "slow", "case", "case(", "case(size)", "case(size=", "showcase(gpu=1)"):
        assert asked_of_cases(other) == []


@pytest.mark.parametrize(
    ("keyword", "first"),
    [
        ("70b and fp8 and 500", "llama3/70b-fp8-512gpus"),
        ("70b and fp8 and 511gpus", "llama3/70b-fp8-512gpus"),
        ("8b and FP8 and 7", "llama3/8b-fp8-8gpus"),
        ("71b and bf16 and 512 and not fp8", "llama3/70b-bf16-512gpus"),
        ("70b and fp16 and 1024", "llama3/70b-bf16-1024gpus"),
        ("lama3 and 405b and fp8 and 1024 and not (proxy)", "llama3/405b-fp8-1024gpus"),
    ],
)
def test_an_empty_selection_names_the_nearest_cases(keyword: str, first: str) -> None:
    said = nearest(keyword, "", CASES)
    assert said.startswith(
        f"-k '{keyword}' selects none of {len(CASES)} case(s); the nearest: {first}, llama3/"
    )
    assert said.count("llama3/") == 3


def test_a_mark_names_the_nearest_cases_too() -> None:
    said = nearest("", "case(size='70b', dtype='fp8', gpus=500)", CASES)
    assert "-m 'case(size='70b', dtype='fp8', gpus=500)' selects none" in said
    assert "the nearest: llama3/70b-fp8-512gpus" in said


def test_a_selection_that_was_not_made_by_words_names_none() -> None:
    assert nearest("", "", CASES) == ""


class Item:
    """As much of a test as is selected by."""

    def __init__(self, path: Path, case: Case) -> None:
        self.path = path
        self.callspec = SimpleNamespace(params={"case": case})


class Session:
    """A session that selects tests of llama3's cases."""

    def __init__(self, site: Site = THIS_MACHINE, keyword: str = "") -> None:
        self.option = SimpleNamespace(keyword=keyword, markexpr="")
        self.hook = SimpleNamespace(pytest_deselected=lambda items: None)
        self.stash = pytest.Stash()
        self.stash[CHOICES], self.stash[SELECTED] = choices(site), Selected()
        self.stash[CHOOSE] = self.stash[CHOICES].choice

    def select(self, items: list[Any], *, until: int | None = None) -> Selected:
        """Select all tests or, as `-k` does, those until this one."""
        hook = Selection(self).pytest_collection_modifyitems(items)  # type: ignore[arg-type]
        next(hook)
        if until is not None:
            del items[until:]
        assert next(hook, None) is None
        return self.stash[SELECTED]


def items_of(cases: Iterable[Case]) -> list[Any]:
    path = ROOT / "suites" / "llama3" / "test_llama3.py"
    return [Item(path, case) for case in cases]


def test_a_selection_that_is_not_empty_names_none(tmp_path: Path) -> None:
    (tmp_path / "site.yaml").write_text(SLURM.replace("PORT", "22"))
    site, cases = load_site(tmp_path / "site.yaml"), examples.llama3().cases
    assert Session(site, "71b").select(items_of(cases), until=1).nearest == ""
    assert Session(site, "71b").select(items_of(cases), until=0).nearest.startswith("-k '71b' selects none")


def test_what_the_site_cannot_run_has_its_reason_by_case(tmp_path: Path) -> None:
    (tmp_path / "site.yaml").write_text(SLURM.replace("PORT", "22") + "  max_gpus: 1024\n")
    items = items_of(case for case in examples.llama3().cases if case.id.startswith("70b-fp8-"))
    selected = Session(load_site(tmp_path / "site.yaml")).select(items)
    assert [item.callspec.params["case"].gpus for item in items] == [64, 128, 256, 512, 1024]
    assert selected.reasons == {"llama3/70b-fp8-2048gpus": "the site cannot run it: more than max_gpus 1024"}
    assert [group.ids for group in selected.left_out] == [("70b-fp8-2048gpus",)]


@pytest.mark.parametrize(
    ("keyword", "gpus", "said"),
    [
        ("8gpus", (8, 128), "8gpus is a part of 128gpus, 2048gpus too; selected are cases on 8, 128 GPUs"),
        ("8B and not 16gpus", (8,), ""),
        ("70b and not 8gpus", (64, 512), "8gpus is a part of 128gpus, 2048gpus too; selected are cases on 64, 512 GPUs"),
        ("2gpus and 70b", (512,), "2gpus is a part of 32gpus, 512gpus too; selected are cases on 512 GPUs"),
        ("70b and fp8 and 512", (512,), ""),
        ("128gpus or 16gpus", (16, 128), ""),
        ("gpus", (8, 16), ""),
        ("[70b-fp8-8gpus]", (), ""),
    ],
)  # fmt: skip
def test_a_number_that_is_the_end_of_a_longer_one_is_told_with_the_scales(
    keyword: str, gpus: tuple[int, ...], said: str
) -> None:
    hint = scales(keyword, CASES, [case for case in examples.llama3().cases if case.gpus in gpus])
    assert bool(hint) == bool(said)
    assert said in hint


SECTION = Slurm.model_validate(
    {"gpu": "h100", "ssh": {"host": "login"}, "account": "a", "partition": "p", "stage": "/scratch"}
)
CHOSEN = chosen(section=SECTION)


@pytest.mark.parametrize("replayed", ["", "/logs/old"])
def test_the_plan_of_a_replay_has_no_price(replayed: str) -> None:
    file = io.StringIO()
    source = Path(replayed) if replayed else None
    print_plan([CHOSEN], choices(source=source), {}, file, 120)
    head, *_, last = file.getvalue().splitlines()
    if replayed:
        assert last == "1 case(s), judged from /logs/old: no job, no GPU-hours"
        assert head.split() == ["case", "nodes", "GPUs", "GBS"]
    else:
        assert "GPU-hours; nothing was submitted" in last
        assert head.split() == ["case", "nodes", "GPUs", "GBS", "minutes", "GPU-hours"]


def test_the_command_that_runs_a_case_again_can_be_copied() -> None:
    again = command(CHOSEN, "--site", "my site.yaml")
    assert again == "pytest suites/llama3 -k '[70b-fp8-512gpus]' --site 'my site.yaml'"
    sharp = replace(CHOSEN, case=replace(CHOSEN.case, variant="sharp"))
    assert command(sharp).endswith("--variant sharp")


@pytest.mark.parametrize(("text", "hours"), [("12", 12.0), ("0.5", 0.5), ("1e3", 1000.0)])
def test_a_budget_is_a_number_of_gpu_hours(text: str, hours: float) -> None:
    assert _gpu_hours(text) == hours


@pytest.mark.parametrize("text", ["", "x", "0", "-1", "nan", "inf", "12h", "1,5"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(
        argparse.ArgumentTypeError, match=r"is no number of GPU-hours above 0, such as 12 or 0\.5"
    ):
        _gpu_hours(text)


def refused(**given: Any) -> list[str]:
    """Why these options cannot be given together."""
    unset = dict.fromkeys(("backend", "source", "resume", "site", "nodes", "repeat"))
    off = dict.fromkeys(
        ("plan", "check", "gate", "collectonly", "strict_last", "repeat_undecided", "exclude_failed_nodes"),
        False,
    )
    counts = {"give_up_after": 0, "retry_infrastructure": 0}
    more = {"record_baselines": False, "replace_baselines": False, "keep_checkpoints": False, "variant": []}
    option = argparse.Namespace(**{**unset, **off, **counts, **more, **given})
    return list(contradictions(option, THIS_MACHINE))


@pytest.mark.parametrize(("asked", "wrong"), [([], True), (["profile"], True), (["checkpoint"], False)])
def test_keeping_checkpoints_is_about_the_variant_that_saves_one(asked: list[str], wrong: bool) -> None:
    mistakes = refused(keep_checkpoints=True, variant=asked)
    assert [mistake.endswith("give that too") for mistake in mistakes] == [True] * wrong


@pytest.mark.parametrize("looking", ["plan", "check", "collectonly"])
def test_there_is_no_gate_where_nothing_is_judged(looking: str) -> None:
    (mistake,) = refused(gate=True, **{looking: True})
    assert mistake.startswith("--gate is about verdicts, and --plan, --check and --collect-only run no case")


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
