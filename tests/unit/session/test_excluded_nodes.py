"""`--exclude-nodes` is checked before anything is sent, as far as the cluster tells its nodes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from fixtures.session.requirements import require_nodes
from plugins.errors import ConfigError


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
