"""A folder that a session is given and that is none is said before its first job, and not after its last one."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from _pytest.junitxml import xml_key

from fixtures.session.choices import CHOICES
from fixtures.session.choosing import site_baselines_of
from fixtures.session.ci import Gate
from fixtures.session.plugins import _place_allure
from plugins.base.errors import ConfigError
from tests.unit import examples


def test_a_place_for_junit_that_is_none_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    xml = SimpleNamespace(logfile=str(tmp_path / "file" / "junit.xml"))
    config: Any = SimpleNamespace(stash={CHOICES: None, xml_key: xml})
    session: Any = None
    with pytest.raises(pytest.UsageError, match="file: File exists"):
        Gate(config).pytest_sessionstart(session)
    xml.logfile = str(tmp_path / "new" / "junit.xml")
    Gate(config).pytest_sessionstart(session)
    assert (tmp_path / "new" / "junit.xml").exists()


def test_a_place_for_allure_that_is_none_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    option = SimpleNamespace(allure_report_dir=str(tmp_path / "file"))
    config: Any = SimpleNamespace(
        stash={CHOICES: SimpleNamespace(looks=False)},
        option=option,
        rootpath=examples.ROOT,
        invocation_params=SimpleNamespace(dir=examples.ROOT),
        args=["suites"],
    )
    with pytest.raises(pytest.UsageError, match=r"the run cannot be recorded in .*/file: File exists"):
        _place_allure(config)


def test_the_sites_numbers_need_a_folder_unless_they_are_recorded_or_it_is_the_usual_one(
    tmp_path: Path,
) -> None:
    site: Any = SimpleNamespace(site="lab")

    def folder(path: Path, *, record: bool = False) -> Path | None:
        option = SimpleNamespace(site_baselines=str(path), record_baselines=record, replace_baselines=False)
        config: Any = SimpleNamespace(option=option, rootpath=tmp_path)
        return site_baselines_of(config, site).folder

    mine, usual = tmp_path / "mine", tmp_path / "baselines" / "sites" / "lab"
    with pytest.raises(ConfigError, match=f"^--site-baselines {mine}: no such folder$"):
        folder(mine)
    mine.touch()
    with pytest.raises(ConfigError, match="no such folder"):
        folder(mine)
    assert folder(mine.with_name("new"), record=True) == mine.with_name("new")
    # `pacemark isolate` names the folder that its run had.
    assert folder(usual) == usual
