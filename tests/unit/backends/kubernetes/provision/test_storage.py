"""Documents of storage and data for every kind, tier and selection; what is refused before it is sent."""

from __future__ import annotations

from typing import Any

import pytest

from fixtures.backends.kubernetes.api import Api
from fixtures.backends.kubernetes.provision import data as storage
from fixtures.backends.kubernetes.provision.apply import Provisioner
from plugins.base.errors import ConfigError, SubmitError
from plugins.base.yamlfile import load_documents
from plugins.recipes.contracts import Documents
from plugins.recipes.setup import read_setup
from tests.unit import gpt3_setup

TIERS = {"40": 480, "125": 512, "250": 512, "500": 512}


def made(**given: Any) -> list[dict[str, Any]]:
    """All documents of a site's set-up."""
    return gpt3_setup.documents(gpt3_setup.contract(**given))


def of_kind(found: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [document for document in found if document["kind"] == kind]


@pytest.mark.parametrize(("tier", "size"), TIERS.items())
def test_every_tier_has_a_class_of_its_own_and_a_claim_of_that_class(tier: str, size: int) -> None:
    values = {"storage": "amlfs", "tier": tier, "capacity": str(size), "zone": "2", "claim": "ours"}
    found = made(values=values)
    (kind,), (claim,) = of_kind(found, "StorageClass"), of_kind(found, "PersistentVolumeClaim")
    assert kind["metadata"]["name"] == f"pacemark-amlfs-{tier}-zone-2" == claim["spec"]["storageClassName"]
    assert kind["provisioner"] == "azurelustre.csi.azure.com"
    assert kind["parameters"]["sku-name"] == f"AMLFS-Durable-Premium-{tier}"
    assert kind["parameters"]["zones"] == "2"
    assert (claim["metadata"]["name"], claim["metadata"]["namespace"]) == ("ours", "runs")
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]
    assert claim["spec"]["resources"]["requests"]["storage"] == f"{size}Ti"


def test_a_region_without_zones_is_given_none() -> None:
    found = made(values={"storage": "amlfs", "zone": ""})
    (kind,), (claim,) = of_kind(found, "StorageClass"), of_kind(found, "PersistentVolumeClaim")
    assert kind["metadata"]["name"] == "pacemark-amlfs-125" == claim["spec"]["storageClassName"]
    assert "zones" not in kind["parameters"]
    assert kind["parameters"]["sku-name"] == "AMLFS-Durable-Premium-125"


def test_an_overlay_depends_on_an_optional_value_alone() -> None:
    known = {
        "zone": {"what": "the zone", "mend": "give it", "optional": True},
        "tier": {"what": "", "mend": ""},
    }
    for name in ("zones", "tier"):
        overlay = {"when": {"given": [name]}, "merge": {}}
        with pytest.raises(ValueError, match=f"when.given: '{name}' is no optional value; there are: zone"):
            Documents.model_validate({"file": "x.yaml", "values": known, "overlay": [overlay]})


def test_blob_has_the_published_mount_options() -> None:
    found = made(values={"storage": "blob"})
    (kind,), (claim,) = of_kind(found, "StorageClass"), of_kind(found, "PersistentVolumeClaim")
    assert kind["provisioner"] == "blob.csi.azure.com"
    assert kind["mountOptions"] == [
        "-o allow_other", "--use-attr-cache=true", "--cancel-list-on-mount-seconds=10", "-o attr_timeout=120",
        "-o entry_timeout=120", "-o negative_timeout=120", "--log-level=LOG_WARNING", "--file-cache-timeout-in-seconds=120",
        "--block-cache", "--block-cache-block-size=32", "--block-cache-parallelism=80",
    ]  # fmt: skip
    assert claim["spec"]["resources"]["requests"]["storage"] == "100Ti"


def test_without_a_kind_there_is_no_storage_to_make() -> None:
    kinds = {document["kind"] for document in made()}
    assert kinds == {"Job", "ConfigMap"}


def test_the_jobs_have_what_the_site_says_and_bounds_of_their_own() -> None:
    values = {
        "files": "59166",
        "parts": "600",
        "processes": "80",
        "token_secret": "mine",
        "dataset": "pajama/all",
        "claim": "c",
    }
    contract = gpt3_setup.contract(
        values=values, node_selector={"agentpool": "gpu"}, environment={"HTTPS_PROXY": "http://proxy"}
    )
    jobs = of_kind(gpt3_setup.documents(contract), "Job")
    assert [job["metadata"]["name"] for job in jobs] == [
        f"{contract.id}-{stage}" for stage in ("download", "extract", "concatenate", "preprocess")
    ]
    for job in jobs:
        spec, pod = job["spec"], job["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        given = {entry["name"]: entry.get("value") for entry in container["env"]}
        assert (spec["completionMode"], spec["completions"], spec["parallelism"]) == ("Indexed", 4, 4)
        assert spec["activeDeadlineSeconds"] > 0 < spec["ttlSecondsAfterFinished"]
        assert pod["restartPolicy"] == "Never"
        assert pod["nodeSelector"] == {"agentpool": "gpu"}
        assert given["HTTPS_PROXY"] == "http://proxy"
        assert (given["FILES"], given["PARTS"], given["DATASET_PATH"]) == ("59166", "600", "pajama/all")
        volumes = {volume["name"]: volume for volume in pod["volumes"]}
        assert volumes["data-storage"]["persistentVolumeClaim"]["claimName"] == "c"
        assert volumes["scripts"]["configMap"]["name"] == job["metadata"]["name"]
        assert len(job["metadata"]["name"]) <= 57  # its pods have six characters more
    (token,) = (
        e for e in jobs[0]["spec"]["template"]["spec"]["containers"][0]["env"] if e["name"] == "HF_TOKEN"
    )
    assert token["valueFrom"]["secretKeyRef"] == {"name": "mine", "key": "token", "optional": True}
    assert jobs[3]["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] == "80"


def test_the_same_folder_of_the_same_claim_has_the_same_set_up_in_every_session() -> None:
    one = gpt3_setup.contract().id
    assert one == gpt3_setup.contract(values={"files": "59166"}).id
    others = [
        gpt3_setup.contract(values={"dataset": "other"}),
        gpt3_setup.contract(values={"claim": "other"}),
        gpt3_setup.contract(namespace="other"),
    ]
    assert len({one, *(other.id for other in others)}) == 4


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (
            {"storage": "amlfs", "tier": "40", "capacity": "16"},
            "comes in steps of 48 TiB, and 16 is not a multiple",
        ),
        ({"storage": "amlfs", "tier": "64"}, "give 40, 125, 250 or 500"),
        ({"storage": "nfs"}, "`storage` is 'nfs'; known: amlfs, blob, none"),
        ({"files": "all"}, "give a number, such as 100"),
        ({"token_secret": "hf_Secret Value"}, "kubectl create secret generic hf-token --from-file"),
    ],
)
def test_a_wrong_value_is_told_with_what_to_give(values: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        made(values=values)


def test_a_data_set_that_leaves_nothing_to_train_on_is_refused_before_anything_is_made() -> None:
    section = gpt3_setup.section(values={"parts": "1"})
    # Nothing is asked of a cluster: there is none.
    session = Provisioner("lab", Api("lab", section), section, gpt3_setup.recipe())
    with pytest.raises(SubmitError, match=r"1 pairs - 15 for validation - 15 for test = -29"):
        session.provision("job")


@pytest.mark.parametrize(
    ("tier", "capacity", "mend"),
    [
        ("40", "100", "96 or 144"),
        ("125", "8", "16 or 16"),
        ("250", "511", "504 or 512"),
        ("500", "7", "4 or 8"),
    ],
)
def test_a_file_system_is_sold_in_steps_of_its_tier(tier: str, capacity: str, mend: str) -> None:
    with pytest.raises(ConfigError, match=f"set `capacity` to {mend}$"):
        made(values={"storage": "amlfs", "tier": tier, "capacity": capacity})


def test_a_class_of_our_name_with_other_parameters_is_another_one() -> None:
    (kind, _) = load_documents(gpt3_setup.SOURCE / "storage-amlfs.yaml")
    assert storage.differs(kind, {**kind, "metadata": {"uid": "1"}}) == ""
    other = {**kind, "parameters": {**kind["parameters"], "sku-name": "AMLFS-Durable-Premium-40"}}
    assert "AMLFS-Durable-Premium-40" in storage.differs(kind, other)


def test_the_contract_names_jobs_that_there_are() -> None:
    setup = read_setup(gpt3_setup.SOURCE / "setup.yaml")
    names = [
        d["metadata"]["name"]
        for d in load_documents(gpt3_setup.SOURCE / setup.data.file)
        if d["kind"] == "Job"
    ]
    assert names == [*setup.data.stages, setup.data.probe.job]
