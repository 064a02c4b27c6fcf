"""Storage and data for every kind, tier and selection; what is refused before it is sent; what the pods of a set-up say."""

from __future__ import annotations

from typing import Any

import pytest

from fixtures.backends.kubernetes.api import Api
from fixtures.backends.kubernetes.provision import data as storage
from fixtures.backends.kubernetes.provision.apply import Provisioner, progress
from plugins.base.errors import ConfigError, SubmitError
from plugins.base.yamlfile import load_documents
from plugins.recipes.contracts import Documents
from plugins.recipes.setup import read_setup
from tests.unit import gpt3_setup

DATA = read_setup(gpt3_setup.SOURCE / "setup.yaml").data
TIERS = {"40": 480, "125": 512, "250": 512, "500": 512}


def made(**given: Any) -> list[dict[str, Any]]:
    """All documents of a site's set-up."""
    return gpt3_setup.documents(gpt3_setup.contract(**given))


def of_kind(found: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [document for document in found if document["kind"] == kind]


@pytest.mark.parametrize("zone", ["2", ""])
@pytest.mark.parametrize(("tier", "size"), TIERS.items())
def test_every_tier_has_a_class_of_its_own_and_a_claim_of_that_class(tier: str, size: int, zone: str) -> None:
    """A region without zones is given none."""
    values = {"storage": "amlfs", "tier": tier, "capacity": str(size), "zone": zone, "claim": "ours"}
    found = made(values=values)
    (kind,), (claim,) = of_kind(found, "StorageClass"), of_kind(found, "PersistentVolumeClaim")
    name = f"pacemark-amlfs-{tier}" + (f"-zone-{zone}" if zone else "")
    assert kind["metadata"]["name"] == name == claim["spec"]["storageClassName"]
    assert kind["provisioner"] == "azurelustre.csi.azure.com"
    assert kind["parameters"]["sku-name"] == f"AMLFS-Durable-Premium-{tier}"
    assert kind["parameters"].get("zones", "") == zone
    assert (claim["metadata"]["name"], claim["metadata"]["namespace"]) == ("ours", "runs")
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]
    assert claim["spec"]["resources"]["requests"]["storage"] == f"{size}Ti"


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
    values = {"files": "59166", "parts": "600", "processes": "80", "token_secret": "mine"}
    values |= {"dataset": "pajama/all", "claim": "c"}
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


LUSTRE = {"storage": "amlfs"}


@pytest.mark.parametrize(
    ("values", "words"),
    [
        # A file system is sold in steps of its tier.
        ({**LUSTRE, "tier": "40", "capacity": "16"}, "comes in steps of 48 TiB, and 16 is not a multiple"),
        ({**LUSTRE, "tier": "40", "capacity": "100"}, "set `capacity` to 96 or 144$"),
        ({**LUSTRE, "tier": "125", "capacity": "8"}, "set `capacity` to 16 or 16$"),
        ({**LUSTRE, "tier": "250", "capacity": "511"}, "set `capacity` to 504 or 512$"),
        ({**LUSTRE, "tier": "500", "capacity": "7"}, "set `capacity` to 4 or 8$"),
        ({**LUSTRE, "tier": "64"}, "give 40, 125, 250 or 500"),
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


def test_a_class_of_our_name_with_other_parameters_is_another_one() -> None:
    (kind, _) = load_documents(gpt3_setup.SOURCE / "storage-amlfs.yaml")
    assert storage.differs(kind, {**kind, "metadata": {"uid": "1"}}) == ""
    other = {**kind, "parameters": {**kind["parameters"], "sku-name": "AMLFS-Durable-Premium-40"}}
    assert "AMLFS-Durable-Premium-40" in storage.differs(kind, other)


def test_the_contract_names_jobs_that_there_are() -> None:
    jobs = of_kind(load_documents(gpt3_setup.SOURCE / DATA.file), "Job")
    assert [job["metadata"]["name"] for job in jobs] == [*DATA.stages, DATA.probe.job]


# The data, and what its pods say


FOLDER = "slimpajama/preprocessed"
SITE = {"claim": "shared", "dataset": FOLDER, "files": "100", "parts": "72", "chunks": "15"}


def shortage(pairs: int, chunks: int = 15, *, lone: int = 0, tokenizer: str = "yes") -> str:
    """What is said of so many files; "" if they are enough."""
    there = {"pairs": str(pairs), "lone": str(lone), "tokenizer": tokenizer}
    return DATA.probe.broken({**SITE, "chunks": str(chunks), **there}) or ""


@pytest.mark.parametrize(
    ("said", "words"),
    [
        # The published sample: 100 files downloaded, one file for training made of them.
        (shortage(1), f"1 pairs - 15 for validation - 15 for test = -29, with chunks 15, in {FOLDER} on claim shared"),
        (shortage(1), "set `chunks` to at most 0"),
        (shortage(1), "prepare more files"),
        (shortage(30), "30 pairs - 15 for validation - 15 for test = 0"),
        (shortage(30), "set `chunks` to at most 14"),
        (shortage(0), f"there is no data set in {FOLDER} on claim shared"),
        (shortage(0), "run with --provision"),
        (shortage(72, lone=1), f"1 of the .bin files in {FOLDER} on claim shared have no .idx"),
        (shortage(72, tokenizer="no"), f"{FOLDER}/../bpe/vocab.json"),
    ],
)  # fmt: skip
def test_a_data_set_that_is_not_enough_is_told_with_its_arithmetic(said: str, words: str) -> None:
    assert words in said


@pytest.mark.parametrize(("pairs", "chunks"), [(31, 15), (72, 15), (1, 0), (3, 1)])
def test_enough_is_enough(pairs: int, chunks: int) -> None:
    assert shortage(pairs, chunks) == ""


@pytest.mark.parametrize(
    ("files", "parts", "useful"), [(100, 72, True), (100, 1, False), (20, 72, False), (31, 72, True)]
)
def test_a_set_up_that_would_be_of_no_use_is_known_beforehand(files: int, parts: int, useful: bool) -> None:
    said = DATA.broken({**SITE, "files": str(files), "parts": str(parts)})
    assert (said is None) == useful
    if said is not None:
        assert f"become {min(files, parts)} .bin/.idx pairs" in said
        assert "at least 31" in said


def told(said: list[str], stage: str = "extract", pattern: str = DATA.progress) -> str:
    return progress([text.encode() for text in said], pattern, stage, 4)


def line(worker: int, done: int) -> str:
    return f"pacemark: extract {worker} of 4: {done} of 25 files\n"


def test_progress_is_the_sum_of_the_workers_last_words() -> None:
    first = f"{line(0, 2)}noise\n{line(0, 9)}"
    assert told([first, line(1, 3)]) == "extract: 12 of about 100 files"
    assert told([first], stage="download") == "download: starting"
    assert told(["pacemark: extract 0 of 4: 2 of 2"]) == "extract: starting"
    # A pod that took a worker's place goes on counting where the first one was.
    every = [line(worker, 5) for worker in range(4)]
    assert told([*every, line(3, 25)]) == "extract: 40 of 100 files"
    assert told([]) == "extract: starting"


def test_progress_is_read_by_the_recipes_own_pattern() -> None:
    pattern = r"^(?P<stage>\w+)/(?P<worker>\w+) (?P<done>\S+)/(?P<all>\d+) (?P<unit>\w+)$"
    assert (
        told(["extract/a 3/5 shards\nextract/b 1/7 shards\n"], pattern=pattern)
        == "extract: 4 of about 24 shards"
    )
    # What is no number counts for nothing.
    assert told([f"extract/a {'9' * 5000}/5 shards"], pattern=pattern) == "extract: 0 of about 20 shards"
