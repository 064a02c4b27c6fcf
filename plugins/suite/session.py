"""What a session sets for its suites, and what a test of a suite is about."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from plugins.judging.choice import Choice
from plugins.recipes.cases import Case, Recipe, load_recipe
from plugins.recipes.recipe_file import RecipeFile, read_recipe


@dataclass(frozen=True)
class SiteBaselines:
    """Where the site's own baselines are (None: nowhere), and whether this session records them.

    With `replace`, cases are not judged against them, because the new numbers take their place.
    """

    folder: Path | None = None
    site: str = ""
    record: bool = False
    replace: bool = False

    @property
    def judged(self) -> Path | None:
        return None if self.replace else self.folder


CHOOSE: pytest.StashKey[Callable[[RecipeFile], Choice]] = pytest.StashKey()
"""The session's choice for a recipe, set by the code that knows the site."""

SITE_BASELINES: pytest.StashKey[SiteBaselines] = pytest.StashKey()
"""The site's own baselines, set by the same code."""


SCREENING, PROBING = "node", "proxy"
"""The suite that runs a case on each node, and the recipe of that case."""

SCREENED: pytest.StashKey[Sequence[Case]] = pytest.StashKey()
"""The cases of `SCREENING`, one a node, set by the code that knows the cluster."""

_RECIPES: pytest.StashKey[dict[Path, Recipe | None]] = pytest.StashKey()
"""The recipe beside each test file, if there is one: the session's choice for a recipe never changes."""


def recipe_of(config: pytest.Config, path: Path) -> Recipe | None:
    """The recipe whose cases this test file runs, in the session's release: that in its folder; None if there is none."""
    recipes = config.stash.setdefault(_RECIPES, {})
    if path not in recipes:
        folder = path.parent
        if folder.name == SCREENING:
            folder = folder.parent / PROBING
        if not (folder / "recipe.yaml").exists():
            return recipes.setdefault(path, None)
        choice = config.stash[CHOOSE](read_recipe(folder))
        recipes[path] = load_recipe(folder, choice.release, choice.gpu, choice.models)
    return recipes[path]


def cases_of(config: pytest.Config, path: Path) -> Sequence[Case]:
    """The cases that this test file can run; none if it has no recipe."""
    recipe = recipe_of(config, path)
    if recipe is None:
        return ()
    return config.stash.get(SCREENED, ()) if path.parent.name == SCREENING else recipe.cases


def case_of(test: pytest.Item) -> Case | None:
    """The case that a test runs; None if it runs no case."""
    spec = getattr(test, "callspec", None)
    if spec is None:
        return None
    case = spec.params.get("case")
    return case if isinstance(case, Case) else None


def cases_in(tests: Iterable[pytest.Item]) -> list[tuple[Case, pytest.Item]]:
    """The cases that these tests run, each with its test, in their order."""
    pairs = [(case_of(test), test) for test in tests]
    return [(case, test) for case, test in pairs if case is not None]
