"""What `-k` and `-m` ask for that no case has: what is said, and which cases are named instead."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fixtures.session.choices import CHOICES, SELECTED, Selected
from fixtures.session.choosing import asked_of_cases, nearest, scales
from fixtures.session.selection import Selection
from fixtures.site import THIS_MACHINE, Site, load_site
from plugins.base.errors import ConfigError
from plugins.recipes.cases import Case
from plugins.suite.session import CHOOSE
from tests.system.support import ROOT
from tests.unit import examples
from tests.unit.chosen import choices
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
