"""Which pod had the log, what became of it, and where the recipe keeps another one."""

from __future__ import annotations

from typing import Any

from fixtures.backends.kubernetes.facts import Pod
from fixtures.backends.kubernetes.job_logs import why_gone
from fixtures.backends.kubernetes.rendering import Renderer
from fixtures.backends.kubernetes.section import Kubernetes
from fixtures.backends.section import Workload
from tests.unit import examples


def pod(name: str, index: str, created: str, **status: Any) -> dict[str, Any]:
    labels = {"batch.kubernetes.io/job-completion-index": index}
    return {"metadata": {"name": name, "labels": labels, "creationTimestamp": created}, "status": status}


def test_why_a_pod_is_gone() -> None:
    disrupted = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "DeletionByTaintManager",
        "message": "m",
    }
    assert why_gone(None) == "no pod that printed steps is left"
    assert why_gone(Pod(pod("p", "0", ""))) == "pod p that printed the steps is gone"
    assert (
        why_gone(Pod(pod("p", "0", "", reason="Evicted", message="disk")))
        == "pod p that printed the steps is gone (Evicted: disk)"
    )
    assert why_gone(Pod(pod("p", "0", "", conditions=[disrupted]))).endswith(
        "gone (DeletionByTaintManager: m)"
    )


def test_where_the_recipe_keeps_its_copy() -> None:
    url = "gs://logs/nemo-experiments/pm-1/dllogger/rank-0/dllogger.json"
    assert log_copy("llama3_gke", bucket="logs") == url
    assert log_copy("llama3_gke") is None
    assert log_copy("gpt3_aks", bucket="logs") is None


def log_copy(name: str, **values: str) -> str | None:
    recipe = examples.recipe_named(name)
    section = Kubernetes(gpu="h100", recipes={name: Workload(values=values)})
    renderer = Renderer(None, section, {name: recipe})  # type: ignore[arg-type]
    return renderer.log_copy(recipe.cases[0], "pm-1")
