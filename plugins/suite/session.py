"""What a session sets for its suites, and the tests of a suite: one for each case of the recipe beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from plugins.base.errors import ConfigError
from plugins.judging.choice import Choice
from plugins.recipes.cases import Case, Recipe
from plugins.recipes.expansion import load_recipe
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


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("pacemark")
    group.addoption(
        "--variant",
        action="append",
        default=[],
        metavar="NAME",
        help="collect a recipe's cases in this variant as well, e.g. sharp; may be given several times",
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "case" not in metafunc.fixturenames:
        return
    try:
        recipe = recipe_of(metafunc.config, metafunc.definition.path)
    except ConfigError as error:
        raise pytest.UsageError(str(error)) from None
    if recipe is None:
        return
    cases = cases_of(metafunc.config, metafunc.definition.path)
    mark = metafunc.definition.get_closest_marker("variant")
    tests = [
        pytest.param(
            case, id=case.test_id, marks=pytest.mark.case(size=case.size, dtype=case.dtype, gpus=case.gpus)
        )
        for case in cases
        if _is_for(case, mark, metafunc.config.option.variant)
    ]
    metafunc.parametrize("case", tests)


def _is_for(case: Case, mark: pytest.Mark | None, asked: Sequence[str]) -> bool:
    """Whether a test with this mark `variant`, or none, is for this case.

    If the test has the mark `variant`, it is for that variant's cases only. Cases whose pace is not judged
    have a test with this mark. The mark's last name is the variant's own, the first the one to ask for.
    """
    if mark is not None:
        return bool(case.variant == mark.args[-1])
    if not case.is_timed:
        return False
    return not case.variant or case.variant in asked


def pytest_pycollect_makeitem(collector: pytest.Collector, obj: object) -> list[pytest.Item] | None:
    """Leave out a test with the mark `variant`, unless its variant was asked for."""
    for mark in getattr(obj, "pytestmark", []):
        if mark.name == "variant":
            return None if mark.args[0] in collector.config.option.variant else []
    return None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Refuse a variant that no collected recipe has."""
    recipes: dict[Path, Recipe] = {}
    for item in items:
        recipe = recipe_of(config, item.path)
        if recipe is not None and case_of(item) is not None:
            recipes[item.path] = recipe
    variants = [variant for recipe in recipes.values() for variant in recipe.file.variants.items()]
    known = {name for name, variant in variants if not variant.after}
    unknown = sorted(set(config.option.variant) - known)
    if unknown and not hasattr(config, "workerinput"):
        raise pytest.UsageError(
            f"--variant {', '.join(unknown)}: none of these recipes has it; known: {', '.join(sorted(known)) or 'none'}"
        )


def all_cases(config: pytest.Config) -> list[Case]:
    """The cases of all suites that this session can choose from: the usual ones and those of its variants."""
    recipes = [recipe_of(config, path) for path in sorted(config.rootpath.glob("suites/*/recipe.yaml"))]
    return [
        case
        for recipe in recipes
        if recipe and not recipe.unfit
        for case in recipe.cases
        if not case.variant or (case.after or case).variant in config.option.variant
    ]
