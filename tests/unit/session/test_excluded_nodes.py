"""`--exclude-nodes` is checked before anything is sent, as far as the cluster tells its nodes."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fixtures.runs.ledger import Ledger
from fixtures.session.choices import CHOICES
from fixtures.session.opening import resume_run
from fixtures.session.requirements import require_nodes
from plugins.base.errors import ConfigError
from plugins.record.lines import JOBS_LOG
from tests.unit.cluster import WIDE
from tests.unit.jobs_log import planned


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
