"""Cases as a session runs and judges them, and its choices, for the tests of what a session does with them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fixtures.backends.section import Machine
from fixtures.session.choices import Choices, ChosenCase
from fixtures.site import THIS_MACHINE, Site
from plugins.judging.choice import Choice, Setting
from plugins.recipes.cases import Case, Recipe
from plugins.suite.session import SiteBaselines
from tests.unit import examples


def chosen(
    case: Case | None = None,
    recipe: Recipe | None = None,
    *,
    backend: str = "slurm",
    section: Machine | None = None,
) -> ChosenCase:
    """A case of a recipe: the published example, but for what is given."""
    return ChosenCase(
        case or examples.case(),
        Setting(recipe or examples.llama3(), Choice(), examples.BASELINES),
        backend,
        section,
    )


def choices(site: Site = THIS_MACHINE, folder: Path = Path("run"), **chosen: Any) -> Choices:
    """The choices of a session of this repository's suites."""
    own = chosen.pop("site_baselines", SiteBaselines())
    return Choices(site, examples.ROOT, folder, own, **chosen)
