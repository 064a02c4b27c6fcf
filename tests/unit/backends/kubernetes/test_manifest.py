"""A recipe's manifest becomes a case's documents: what is merged, what is filled in, and what is refused."""

from __future__ import annotations

import copy
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from fixtures.backends.kubernetes.manifest import Word, documents
from plugins.base.errors import ConfigError
from plugins.recipes.contracts import SiteOverlay
from plugins.recipes.expansion import load_recipe

BASE = """\
apiVersion: v1
kind: ConfigMap
metadata: {name: small-files}
data:
  run.sh: |
    f() { echo "${HOME} $(id) {nodes}"; }
---
apiVersion: example.org/v1
kind: Thing
metadata: {name: small, labels: {keep: me, drop: me}}
spec:
  count: 1
  command: [bash, -c, 'echo "{count}"']
  tolerations: [{key: gpu}, {key: spot}]
  containers:
    - name: helper
      image: helper
    - name: main
      image: set-me
      env:
        - {name: A, value: "1"}
        - {name: B, value: "2"}
"""
RECIPE = """\
recipe: small
title: A small recipe
backend: jobset
release: "2.0"
source: https://example.org/small
log: dllogger
steps: 50
startup_minutes: 1
models:
  tiny: {layers: 2, hidden: 64, ffn: 128, heads: 4, query_groups: 2, vocab: 256}
cases:
  - {size: tiny, dtype: [fp8, bf16], gpus: [8], sequence_length: 128, mbs: 1, gbs: 64}
manifest:
  file: manifest.yaml
  container: main
  values:
    image: {what: the container image, mend: build it, pattern: '[a-z:]+'}
  overlay:
"""
WORDS: dict[str, Word] = {
    "name": "job-1",
    "nodes": 2,
    "queue": "",
    "image": "mine:latest",
    "arguments": ["a=1", "b=2"],
}


def recipe_text(overlay: str = "") -> str:
    return RECIPE + ("".join(f"    {line}\n" for line in overlay.splitlines()) or "    []\n")


def made(
    folder: Path,
    overlay: str = "",
    *,
    dtype: str = "fp8",
    base: str = BASE,
    site: Sequence[SiteOverlay] = (),
    **words: Word,
) -> list[dict[str, Any]]:
    """The documents of `RECIPE` with these lines of overlays, and the site's."""
    # A folder of its own each time: what was read is not read again.
    place = Path(tempfile.mkdtemp(dir=folder))
    (place / "manifest.yaml").write_text(base)
    (place / "recipe.yaml").write_text(recipe_text(overlay))
    recipe = load_recipe(place)
    case = recipe.case(f"tiny-{dtype}-8gpus")
    assert case is not None
    return documents(recipe, case, {**WORDS, **words}, overlay=site)


def thing(folder: Path, merge: str, **given: Any) -> dict[str, Any]:
    """The spec of the Thing, with this merged in."""
    spec: dict[str, Any] = made(folder, f"- kind: Thing\n  merge: {merge}", **given)[1]["spec"]
    return spec


def refused(folder: Path, overlay: str, **given: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        made(folder, overlay, **given)
    return re.sub(rf"{folder}/\w+/", "", str(caught.value))


def test_nothing_is_filled_in_in_the_file_itself(tmp_path: Path) -> None:
    files, _ = made(tmp_path, "- merge: {metadata: {namespace: '{name}'}}")
    assert files["data"]["run.sh"] == 'f() { echo "${HOME} $(id) {nodes}"; }\n'


def test_an_overlay_is_for_a_kind_a_name_or_everything(tmp_path: Path) -> None:
    overlay = (
        "- merge: {metadata: {namespace: everywhere}}\n"
        "- {kind: Thing, merge: {metadata: {name: '{name}'}}}\n"
        # By the name in the file, whatever became of it since.
        "- {name: small, merge: {spec: {seen: true}}}\n"
        "- {kind: ConfigMap, name: small-files, merge: {metadata: {name: '{name}-files'}}}"
    )
    files, thing = made(tmp_path, overlay)
    assert files["metadata"] == {"name": "job-1-files", "namespace": "everywhere"}
    assert thing["metadata"]["name"] == "job-1"
    assert thing["metadata"]["namespace"] == "everywhere"
    assert thing["spec"]["seen"] is True
    assert "spec" not in files


@pytest.mark.parametrize(
    ("merge", "changed"),
    [
        ("{spec: {count: 5}}", {"count": 5}),
        ("{spec: {new: {deep: [1]}}}", {"new": {"deep": [1]}}),
        # Of no names: kubectl would replace these as well.
        ("{spec: {tolerations: [{key: x}]}}", {"tolerations": [{"key": "x"}]}),
    ],
)
def test_what_is_no_mapping_is_replaced(tmp_path: Path, merge: str, changed: dict[str, Any]) -> None:
    base = list(yaml.safe_load_all(BASE))[1]["spec"]
    assert thing(tmp_path, merge) == {**base, **changed}


def test_null_takes_a_key_out(tmp_path: Path) -> None:
    overlay = "- {kind: Thing, merge: {metadata: {labels: {drop: null}}, spec: {count: null}}}"
    _, found = made(tmp_path, overlay)
    assert found["metadata"]["labels"] == {"keep": "me"}
    assert "count" not in found["spec"]
    assert thing(tmp_path, "{spec: {new: {gone: null, there: 1}}}")["new"] == {"there": 1}


def test_lists_of_named_things_are_merged_by_name(tmp_path: Path) -> None:
    env = "[{name: B, value: '3'}, {name: C, value: '4'}]"
    merge = f"{{spec: {{containers: [{{name: main, image: '{{image}}', env: {env}}}, {{name: extra}}]}}}}"
    helper, main, added = thing(tmp_path, merge)["containers"]
    assert helper == {"name": "helper", "image": "helper"}
    assert main["image"] == "mine:latest"
    assert [(item["name"], item["value"]) for item in main["env"]] == [("A", "1"), ("B", "3"), ("C", "4")]
    assert added == {"name": "extra"}


def test_a_list_in_which_a_name_stands_twice_is_replaced(tmp_path: Path) -> None:
    # Two mounts of one volume: by name one of them would vanish.
    base = BASE.replace("[{key: gpu}, {key: spot}]", "[{name: a, at: 1}, {name: a, at: 2}]")
    spec = thing(tmp_path, "{spec: {tolerations: [{name: a, at: 3}]}}", base=base)
    assert spec["tolerations"] == [{"name": "a", "at": 3}]


def test_a_number_over_a_text_is_a_text(tmp_path: Path) -> None:
    # A variable's value, which Kubernetes takes no number for.
    main = "{name: main, image: true, env: [{name: A, value: '{nodes}'}]}"
    spec = thing(
        tmp_path, f"{{spec: {{containers: [{main}], count: '{{nodes}}', text: '{{nodes}} of {{name}}'}}}}"
    )
    assert (spec["containers"][1]["env"][0]["value"], spec["count"]) == ("2", 2)
    assert (spec["containers"][1]["image"], spec["text"]) == (True, "2 of job-1")


def test_arguments_take_the_place_of_their_name(tmp_path: Path) -> None:
    merge = "{spec: {command: ['n={nodes}', '{arguments}', last, [kept, whole]]}}"
    assert thing(tmp_path, merge)["command"] == ["n=2", "a=1", "b=2", "last", ["kept", "whole"]]
    assert thing(tmp_path, merge, arguments=())["command"] == ["n=2", "last", ["kept", "whole"]]


def test_a_value_is_not_filled_in_again(tmp_path: Path) -> None:
    assert thing(tmp_path, "{spec: {text: 'x {name}'}}", name="{nodes}")["text"] == "x {nodes}"
    assert thing(tmp_path, "{spec: {command: ['{arguments}']}}", arguments=["a={b}"])["command"] == ["a={b}"]


@pytest.mark.parametrize(
    ("when", "dtype", "queue", "applies"),
    [
        ("{dtype: [bf16]}", "bf16", "", True),
        ("{dtype: [bf16]}", "fp8", "", False),
        ("{queue: true}", "fp8", "q", True),
        ("{queue: false}", "fp8", "", True),
        ("{dtype: [bf16], queue: true}", "bf16", "", False),
        ("{nodes: [1, 2]}", "fp8", "", True),
        ("{nodes: [1]}", "fp8", "", False),
        ("{variant: [fast]}", "fp8", "", False),
    ],
)
def test_an_overlay_applies_by_dtype_queue_nodes_and_variant(
    tmp_path: Path, when: str, dtype: str, queue: str, applies: bool
) -> None:
    overlay = f"- {{when: {when}, kind: Thing, merge: {{spec: {{count: 9}}}}}}"
    assert made(tmp_path, overlay, dtype=dtype, queue=queue)[1]["spec"]["count"] == (9 if applies else 1)


def test_later_overlays_win_and_the_caller_may_change_what_it_gets(tmp_path: Path) -> None:
    overlay = "- merge: {x: 1, y: 1}\n- merge: {x: 2}"
    first = made(tmp_path, overlay)
    before = copy.deepcopy(first)
    assert (first[0]["x"], first[0]["y"]) == (2, 1)
    first[0]["data"].clear()
    first[1]["spec"]["containers"].pop()
    assert made(tmp_path, overlay) == before


@pytest.mark.parametrize(
    ("overlay", "said"),
    [
        ("- merge: {a: [{b: '{nodez}'}]}", "overlay.0.merge.a.0.b: nothing is known as {nodez}; known: arguments, image, name,"),
        ("- merge: {a: '${HOME}'}", "overlay.0.merge.a: a brace that encloses no name, in '${HOME}'"),
        ("- merge: {a: '{}'}", "a brace that encloses no name"),
        ("- merge: {a: 'all: {arguments}'}", "{arguments} is a list, which has no place in a text"),
        ("- {kind: Thing, merge: {spec: {containers: {name: main}}}}", "containers: cannot merge a mapping into a list that the manifest"),
        ("- {kind: Thing, merge: {spec: [1]}}", "merge.spec: cannot merge a list into a mapping that the manifest has there"),
        ("- {kind: Thing, merge: {spec: {count: {of: 1}}}}", "spec.count: cannot merge a mapping into the value 1 that the manifest"),
        ("- {kind: Thng, merge: {}}", "overlay.0.merge: manifest.yaml has no Thng; it has ConfigMap small-files, Thing small"),
        # Told even where it would not apply.
        ("- {when: {dtype: [bf16]}, name: big, merge: {}}", "manifest.yaml has no big; it has ConfigMap"),
        ("- {when: {dtyp: [bf16]}, merge: {}}", "did you mean 'dtype'?"),
    ],
)  # fmt: skip
def test_an_overlay_that_does_not_fit_is_refused(tmp_path: Path, overlay: str, said: str) -> None:
    message = refused(tmp_path, overlay)
    assert message.startswith("recipe.yaml:")
    assert said in message


@pytest.mark.parametrize(
    ("base", "said"),
    [
        (BASE.replace("image: helper", "image:"), "Thing small: spec.containers.0.image has no value"),
        ("a: 1\n", "manifest.yaml: document 1 lacks apiVersion, kind or metadata.name"),
        ("", "manifest.yaml: has no document"),
        (f"{BASE}---\n- a list\n", "manifest.yaml:24: expected `key: value` lines, found none"),
        (BASE.replace("  count: 1\n", "  count: 1\n  count: 2\n"), "manifest.yaml:13: count: given twice"),
    ],
)
def test_a_manifest_with_a_mistake_is_refused_with_its_place(tmp_path: Path, base: str, said: str) -> None:
    message = refused(tmp_path, "", base=base)
    assert message.startswith("manifest.yaml")
    assert said in message


@pytest.mark.parametrize(
    ("image", "words"),
    [
        ("", "small needs `image`, the container image: build it"),
        ("Mine", "small: `image`, the container image: 'Mine' is not of the form that it needs; build it"),
    ],
)
def test_a_value_that_the_site_does_not_give_is_told_with_what_mends_it(
    tmp_path: Path, image: str, words: str
) -> None:
    assert words in refused(tmp_path, "", image=image)


# The recipe's own file


def test_a_value_with_a_default_need_not_be_given(tmp_path: Path) -> None:
    text = recipe_text("- {kind: Thing, merge: {spec: {image: '{image}'}}}")
    (tmp_path / "recipe.yaml").write_text(text.replace("mend: build it,", "mend: build it, default: 'a:b',"))
    (tmp_path / "manifest.yaml").write_text(BASE)
    recipe = load_recipe(tmp_path)
    for words, image in ((WORDS, "mine:latest"), ({**WORDS, "image": None}, "a:b")):
        given = {name: word for name, word in words.items() if word is not None}
        assert documents(recipe, recipe.cases[0], given)[1]["spec"]["image"] == image


def test_what_stands_in_two_places_by_an_alias_is_two_things(tmp_path: Path) -> None:
    base = BASE.replace("tolerations: [", "tolerations: &same [") + "  others: *same\n"
    spec = made(tmp_path, base=base)[1]["spec"]
    assert spec["others"] == spec["tolerations"]
    spec["others"][0]["key"] = "changed"
    assert spec["tolerations"][0] == {"key": "gpu"}
    assert "&" not in yaml.safe_dump(spec)


@pytest.mark.parametrize(
    ("merge", "path", "value"),
    [
        ("{spec: {tolerations: [{key: sku}]}}", ("spec", "tolerations"), [{"key": "sku"}]),
        ("{spec: {containers: [{name: main, env: [{name: NEW, value: x}]}]}}", ("spec", "containers", 1, "env", 2, "name"), "NEW"),
        ("{metadata: {labels: {drop: null}}}", ("metadata", "labels"), {"keep": "me"}),
    ],
)  # fmt: skip
def test_a_site_changes_where_and_how_its_pods_run(
    tmp_path: Path, merge: str, path: tuple[str | int, ...], value: Any
) -> None:
    overlay = "- {kind: Thing, merge: {spec: {containers: [{name: main, image: '{image}'}]}}}"
    site = SiteOverlay(kind="Thing", merge=yaml.safe_load(merge))
    found: Any = made(tmp_path, overlay, site=[site])[1]
    for key in path:
        found = found[key]
    assert found == value


def test_what_the_recipe_takes_out_for_a_case_a_site_does_not_bring_back(tmp_path: Path) -> None:
    """A PyTorchJob of one node has no workers; a site's overlay is for all its cases."""
    overlay = "- {kind: Thing, when: {nodes: [2]}, merge: {spec: {containers: null, count: null}}}"
    given = {"count": {"a": 1}, "tolerations": [{"key": "sku"}], "new": 1}
    site = SiteOverlay(kind="Thing", merge={"spec": given})
    spec = made(tmp_path, overlay, site=[site])[1]["spec"]
    assert (spec["tolerations"], spec["new"]) == ([{"key": "sku"}], 1)
    assert not {"count", "containers"} & spec.keys()
    site = SiteOverlay(kind="Thing", merge={"spec": {"containers": [{"name": "main", "image": "own"}]}})
    assert "containers" not in made(tmp_path, overlay, site=[site])[1]["spec"]
    assert len(made(tmp_path, overlay.replace("[2]", "[1]"), site=[site])[1]["spec"]["containers"]) == 2


MOUNTED = """\
apiVersion: example.org/v1
kind: Thing
metadata: {name: small}
spec:
  volumes:
    - {name: files, configMap: {name: small-files}}
    - {name: data, persistentVolumeClaim: {claimName: data}}
  containers:
    - name: main
      image: set-me
      command: [bash, /scripts/run.sh]
      volumeMounts: [{name: files, mountPath: /scripts}, {name: data, mountPath: /data}]
"""


def changes(folder: Path, merge: str, base: str, kind: str | None = None) -> str:
    """Why a site's overlay is refused."""
    overlay = SiteOverlay(kind=kind, merge=yaml.safe_load(merge))
    with pytest.raises(ConfigError, match=r"^recipes.small.overlay.0.merge: ") as caught:
        made(folder, base=base, site=[overlay])
    return str(caught.value)


@pytest.mark.parametrize(
    ("merge", "path"),
    [
        ("{spec: {containers: [{name: main, env: [{name: A, value: '2'}]}]}}", "spec.containers.main.env.A"),
        ("{spec: {containers: [{name: main, command: [true]}]}}", "spec.containers.main.command"),
        ("{spec: {containers: [{name: helper, args: [x]}]}}", "spec.containers.helper.args"),
        ("{metadata: {name: other}}", "metadata.name"),
        ("{kind: Other}", "kind"),
    ],
)
def test_a_site_changes_nothing_that_makes_the_case(tmp_path: Path, merge: str, path: str) -> None:
    assert f": changes {path}, which makes the case; a site may" in changes(tmp_path, merge, BASE, "Thing")


MOUNTS = "containers.main.volumeMounts./scripts"


@pytest.mark.parametrize(
    ("merge", "path"),
    [
        ("{containers: [{name: main, volumeMounts: [{name: mine, mountPath: /scripts/run.sh}]}]}", MOUNTS),
        ("{containers: [{name: main, volumeMounts: [{name: files, subPath: x}]}]}", MOUNTS),
        ("{containers: [{name: main, workingDir: /mine}]}", "containers.main.workingDir"),
        ("{volumes: [{name: files, configMap: {items: [{key: a, path: run.sh}]}}]}", "volumes.files.configMap.items"),
        ("{volumes: [{name: files, configMap: null, hostPath: {path: /mine}}]}", MOUNTS),
        ("{failurePolicy: {maxRestarts: 3}}", "failurePolicy.maxRestarts"),
    ],
)  # fmt: skip
def test_a_site_puts_nothing_over_a_file_and_adds_no_restart(tmp_path: Path, merge: str, path: str) -> None:
    assert f": changes spec.{path}, which makes the case" in changes(tmp_path, f"{{spec: {merge}}}", MOUNTED)


def test_a_site_changes_no_file_and_names_a_document_that_there_is(tmp_path: Path) -> None:
    reason = changes(tmp_path, "{data: {run.sh: 'true'}}", BASE, "ConfigMap")
    assert ": changes data, which makes the case" in reason
    assert ": manifest.yaml has no Other; it has ConfigMap" in changes(tmp_path, "{}", BASE, "Other")


@pytest.mark.parametrize(
    "merge",
    [
        "{containers: [{name: main, volumeMounts: [{name: mine, mountPath: /data/cache}, {name: more, mountPath: /scripts2}]}]}",
        "{volumes: [{name: data, persistentVolumeClaim: null, hostPath: {path: /lustre}}, {name: mine, emptyDir: {}}]}",
        "{volumes: [{name: files, configMap: {defaultMode: 365}}]}",
        "{initContainers: [{name: check, image: own, command: [x], restartPolicy: Always, resources: {limits: {nvidia.com/gpu: 1}}}]}",
    ],
)
def test_a_site_adds_volumes_mounts_and_containers_of_its_own(tmp_path: Path, merge: str) -> None:
    overlay = SiteOverlay(merge={"spec": yaml.safe_load(merge)})
    assert made(tmp_path, base=MOUNTED, site=[overlay])
