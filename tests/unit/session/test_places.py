"""What a session is given and cannot use is said before its first job, and not after its last one; and how a test waits for its case."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest
from _pytest.junitxml import xml_key

from fixtures.runs.ledger import Ledger
from fixtures.session.choices import CHOICES
from fixtures.session.choosing import site_baselines_of
from fixtures.session.ci import Gate
from fixtures.session.opening import resume_run
from fixtures.session.plugins import _place_allure
from fixtures.session.requirements import require_nodes, require_planned_nodes
from fixtures.session.run import Run
from fixtures.session.waiting import Waiting
from plugins.base.errors import ConfigError, SiteError
from plugins.record.lines import JOBS_LOG
from tests.unit import examples
from tests.unit.cluster import WIDE
from tests.unit.jobs_log import planned

# A folder that is none


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


# `--exclude-nodes`


def require(nodes: list[str]) -> None:
    case = SimpleNamespace(key="llama3/8b", nodes=lambda _gpus: 2)
    chosen: Any = SimpleNamespace(backend="kube", case=case, choice=SimpleNamespace(gpus_per_node=8))
    backend: Any = SimpleNamespace(nodes=lambda _case: dict.fromkeys(nodes, ""))
    require_nodes(("gpu017",), [chosen], {"kube": backend})


@pytest.mark.parametrize(
    ("nodes", "words"),
    [
        (["gpu018", "gpu019"], "kube has no node gpu017"),
        (["gpu017", "gpu018"], "llama3/8b needs 2 nodes, and kube has 1 others"),
    ],
)
def test_a_node_that_is_not_there_and_too_few_others_are_errors(nodes: list[str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        require(nodes)


def test_if_the_cluster_tells_no_nodes_it_is_said_that_nobody_knows(
    capfd: pytest.CaptureFixture[str],
) -> None:
    """This user may not list nodes, say: a name that no node has keeps the case off none."""
    require(["gpu017", "gpu018", "gpu019"])
    assert capfd.readouterr().err == ""
    require([])
    assert (
        "--exclude-nodes: kube tells no nodes, so nobody knows whether it has gpu017"
        in capfd.readouterr().err
    )


@pytest.mark.parametrize(
    ("nodes", "lacks"),
    [
        (lambda _: ["gpu1", "gpu2", "gpu3"], ""),
        (lambda _: ["gpu2"], "gpu1, gpu3"),
        (lambda _: [], ""),
        # An overlay of the site sends each recipe to nodes of its own.
        (lambda case: {"llama3": ["gpu1", "gpu2"], "qwen3": ["gpu3"]}[case.recipe], ""),
        (Mock(side_effect=SiteError("JobSet is missing on the cluster")), ""),
        (Mock(side_effect=ConfigError("image: the site has no value for it")), ""),
    ],
)
def test_nodes_of_a_plan_that_are_not_there_are_an_error(
    nodes: Callable[[Any], list[str]], lacks: str
) -> None:
    chosen: list[Any] = [
        SimpleNamespace(backend="kube", case=SimpleNamespace(recipe=name)) for name in ("llama3", "qwen3")
    ]
    backend: Any = SimpleNamespace(nodes=lambda case: dict.fromkeys(nodes(case), ""))
    agreed: Any = SimpleNamespace(plan=SimpleNamespace(nodes=["gpu[1-2]", "gpu3"]))
    with (
        contextlib.nullcontext()
        if not lacks
        else pytest.raises(ConfigError, match=f"kube has no node {lacks} for")
    ):
        require_planned_nodes(agreed, chosen, {"kube": backend})


@pytest.mark.parametrize(("nodes", "refused"), [(("b", "a"), False), ((), False), (("a",), True)])
def test_a_run_goes_on_without_the_nodes_that_it_began_without_in_any_order(
    tmp_path: Path, nodes: tuple[str, ...], refused: bool
) -> None:
    ledger = Ledger.create(tmp_path / JOBS_LOG, "run-1", "lab")
    ledger.plan([replace(planned(WIDE, "slurm", WIDE.id), excluded=("a", "b"))])
    choices = SimpleNamespace(folder=tmp_path, excluded=nodes, site=SimpleNamespace(site="lab"))
    reporter = SimpleNamespace(ensure_newline=lambda: None, write_line=lambda _: None)
    with contextlib.ExitStack() as stack:
        config: Any = SimpleNamespace(
            stash={CHOICES: choices},
            option=SimpleNamespace(isolate=None),
            add_cleanup=stack.callback,
            pluginmanager=SimpleNamespace(getplugin=lambda _: reporter),
        )
        if refused:
            stack.enter_context(pytest.raises(ConfigError, match="began with a,b left out"))
        resume_run(config, [], [], {})


# Waiting


class Ending:
    """A run that ends with its only case, at the moment when it is asked whether it still runs."""

    def __init__(self) -> None:
        self.job: Any = SimpleNamespace(status="submitted")
        self.ledger = SimpleNamespace(entry=lambda key: self.job)

    @property
    def running(self) -> bool:
        self.job = SimpleNamespace(status="ended")
        return False


def test_a_case_that_ends_with_its_run_is_not_lost(pytestconfig: pytest.Config) -> None:
    run = Ending()
    assert Waiting(pytestconfig)._ended(cast(Run, run), "llama3/a-case") is run.job
