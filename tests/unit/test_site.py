"""The site file: a mistake is told with its line, and what a site cannot run is left out with a reason."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from fixtures.backends import this_machine
from fixtures.backends.kubernetes import connection
from fixtures.backends.kubernetes import submit as making
from fixtures.backends.kubernetes.provision import jobs as setup
from fixtures.backends.kubernetes.section import Kubernetes
from fixtures.backends.section import Machine
from fixtures.backends.slurm.section import Slurm
from fixtures.backends.this_machine import Local
from fixtures.served import check_gpus, check_names
from fixtures.site import (
    THIS_MACHINE,
    Site,
    backend_of,
    load_site,
    needs_site,
    out_of_limits,
    site_model,
    workload_of,
)
from plugins.base.errors import ConfigError
from plugins.judging.choice import Choice
from plugins.recipes.recipe_file import read_recipe
from tests.unit import examples
from tests.unit.own_tables import recorded, rewritten

SITE = """\
site: big-one
slurm:
  gpu: h100
  gpus_per_node: 8
  ssh: {host: login01}
  account: research
  partition: gpu
  stage: /lustre/nemo
  time_limit: "00:45:00"
  max_gpus: 512
  dtypes: [bf16, fp8]
  limits:
    gpus_in_flight: 1024
  environment:
    NCCL_IB_HCA: mlx5
"""


def read(folder: Path, text: str) -> Site:
    path = folder / "site.yaml"
    path.write_text(text)
    return load_site(path)


def refused(folder: Path, old: str, new: str) -> list[str]:
    assert old in SITE
    with pytest.raises(ConfigError) as caught:
        read(folder, SITE.replace(old, new))
    return str(caught.value).replace(f"{folder}/", "").splitlines()


def machine(**given: object) -> Machine:
    return Machine.model_validate({"gpu": "h100"} | given)


def test_a_site_is_read(tmp_path: Path) -> None:
    site = read(tmp_path, SITE)
    slurm = site.section("slurm")
    assert isinstance(slurm, Slurm)
    assert (site.site, slurm.stage, slurm.time_limit) == ("big-one", "/lustre/nemo", "00:45:00")
    assert site.section("local") == Local()


TIME, PATH = '"00:45:00"', "expected a whole path on the cluster"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("partition: gpu", "partion: gpu\n  partition: gpu", "7: slurm.partion: unknown key; did you mean 'partition'?"),
        ("{host: login01}", "{hots: a, host: b}", "5: slurm.ssh.hots: unknown key; did you mean 'host'?"),
        ("gpus_in_flight", "gpu_in_flight", "13: slurm.limits.gpu_in_flight: unknown key; did you mean 'gpus_in_flight'?"),
        ("  account: research\n", "", "2: slurm.account: missing; this key is required"),
        ("site: big-one\n", "", "1: site: missing; this key is required"),
        ("max_gpus: 512", "max_gpus: 0", "10: slurm.max_gpus: must be greater than 0, got 0"),
        ("gpus_per_node: 8", "gpus_per_node: x", "4: slurm.gpus_per_node: expected a whole number, got 'x'"),
        ("NCCL_IB_HCA: mlx5", "NCCL_X: 1", "15: slurm.environment.NCCL_X: expected text, got 1 (YAML reads this as a number: "),
        ("{host: login01}", "{host: a, port: 70000}", "5: slurm.ssh.port: must be less than 65536, got 70000"),
        ("{host: login01}", "{host: a, proxy_jump: 'a:b:c'}", "5: slurm.ssh.proxy_jump: expected user@host:port"),
        ("{host: login01}", "{host: a, proxy_jump: 'a,'}", "5: slurm.ssh.proxy_jump: expected user@host:port"),
        *(
            (TIME, limit, "9: slurm.time_limit: expected hours:minutes:seconds")
            for limit in ('"half an hour"', '"00:30:00; x"', '"1:5"', '""', '"-5"')
        ),
        *(
            ("  account: research", f"  recipes: {{llama3: {{{place}: /a b}}}}\n  account: research", f"6: slurm.recipes.llama3.{place}: {PATH}")
            for place in ("folder", "venv", "stage")
        ),
        *(
            ("NCCL_IB_HCA: mlx5", f'"{name}": x', "15: slurm.environment")
            for name in ("A B", "A;id", "A$(id)", "", "1A", "A-B", "A=B")
        ),
    ],
)  # fmt: skip
def test_a_mistake_is_told_with_its_line(tmp_path: Path, old: str, new: str, said: str) -> None:
    assert refused(tmp_path, old, new)[0].startswith(f"site.yaml:{said}")


# YAML 1.1 reads 1:30:00 as 5400, in base 60; 00:30:00 it leaves alone.
@pytest.mark.parametrize("limit", ["1:30:00", "30:00", "30", "45"])
def test_a_time_limit_that_yaml_reads_as_a_number_is_explained(tmp_path: Path, limit: str) -> None:
    (said,) = refused(tmp_path, TIME, limit)
    assert said.startswith("site.yaml:9: slurm.time_limit: ")
    assert said.endswith("(YAML reads this as a number: put it in quotes)")


@pytest.mark.parametrize("limit", ["00:30:00", '"1:30:00"', '"30"', "1-00:00:00", "02:00:00"])
def test_a_time_limit_is_taken_as_it_stands(tmp_path: Path, limit: str) -> None:
    site = read(tmp_path, SITE.replace('"00:45:00"', limit))
    slurm = site.section("slurm")
    assert isinstance(slurm, Slurm)
    assert slurm.time_limit == limit.strip('"')


@pytest.mark.parametrize("jump", ["none", "gate", "me@gate:2222", "gate1, me@gate2.site,gate3:22"])
def test_jump_hosts_are_taken_as_they_stand(tmp_path: Path, jump: str) -> None:
    site = read(tmp_path, SITE.replace("{host: login01}", f"{{host: a, proxy_jump: '{jump}'}}"))
    slurm = site.section("slurm")
    assert isinstance(slurm, Slurm)
    assert slurm.ssh.proxy_jump == jump


# The recipes' own scripts do not quote these.
@pytest.mark.parametrize(
    ("key", "values"),
    [
        ("stage: /lustre/nemo", ["/lustre/my nemo", "lustre/nemo", "~/nemo", "/lustre/$USER", "/lustre/$(id)", "/lustre/*"]),
        ("stage: /lustre/nemo", ['"/lustre/nemo\\n"', '"/lustre/nemo\\nx"']),
        ("account: research", ["research;id", "my research", "''", "-research `id`"]),
        ("partition: gpu", ["gpu|x", "gpu x"]),
        ("site: big-one", ["../big", '"big\\none"', "''"]),
    ],
)  # fmt: skip
def test_what_an_unquoted_script_would_take_apart_is_refused(
    tmp_path: Path, key: str, values: list[str]
) -> None:
    for value in values:
        (said,) = refused(tmp_path, key, f"{key.partition(':')[0]}: {value}")
        assert ": expected a " in said or ": expected the name of " in said, value
        assert "pattern" not in said


@pytest.mark.parametrize(
    ("section", "has_gpu", "said"),
    [
        (machine(), True, None),
        (machine(max_gpus=512), True, None),
        (machine(max_gpus=511), True, "more than max_gpus 511"),
        (machine(dtypes=["fp8"]), True, None),
        (machine(dtypes=["bf16"]), True, "dtype fp8 is not in dtypes"),
        (machine(dtypes=[]), True, "dtype fp8 is not in dtypes"),
        (machine(limits={"gpus_in_flight": 512}), True, None),
        (machine(limits={"gpus_in_flight": 256}), True, "more than limits.gpus_in_flight 256"),
        (
            machine(),
            False,
            "no GPU on this machine; for a cluster, name recipes.llama3 in its section of the site file",
        ),
        (machine(max_gpus=8, dtypes=["bf16"]), True, "more than max_gpus 8"),
    ],
)
def test_a_limit_leaves_a_case_out_and_says_why(section: Machine, has_gpu: bool, said: str | None) -> None:
    assert out_of_limits(examples.case("70b-fp8-512gpus"), section, has_gpu=has_gpu) == said


def test_a_recipe_whose_rules_need_other_nodes_is_left_out() -> None:
    case = examples.case("340b-bf16-128gpus", "nemotron4")
    said = out_of_limits(case, machine(gpus_per_node=4), has_gpu=True)
    assert said == "the recipe needs nodes of 8 GPUs, not 4"
    assert out_of_limits(case, machine(gpus_per_node=8), has_gpu=True) is None


@pytest.mark.parametrize(
    ("gpus", "of_a_node", "said"),
    [(1, 8, None), (8, 8, None), (8, 4, "more than the 4 GPUs of a node"), (4, 72, None)],
)
def test_a_case_on_one_node_may_leave_gpus_unused(gpus: int, of_a_node: int, said: str | None) -> None:
    case = examples.case(f"8b-8l-bf16-{gpus}gpus", "proxy")
    assert out_of_limits(case, machine(gpus_per_node=of_a_node), has_gpu=True) == said


@pytest.mark.parametrize(
    ("gpus", "said"), [(1, None), (2, None), (4, "more than max_gpus 2"), (8, "more than max_gpus 2")]
)
@pytest.mark.parametrize("one_node", [True, False])
def test_without_a_site_file_a_case_may_have_any_gpus_of_this_machine(
    monkeypatch: pytest.MonkeyPatch, gpus: int, said: str | None, one_node: bool
) -> None:
    monkeypatch.setattr(this_machine, "gpu_names", lambda: ("NVIDIA H200", "NVIDIA H200"))
    case = replace(examples.case(f"8b-8l-bf16-{gpus}gpus", "proxy"), one_node=one_node)
    assert out_of_limits(case, Local(), has_gpu=True) == said


def test_of_several_backends_a_cluster_runs_only_what_its_site_file_names(tmp_path: Path) -> None:
    proxy = read_recipe(examples.ROOT / "suites" / "proxy")
    assert backend_of(proxy, THIS_MACHINE) == "local"
    assert backend_of(proxy, read(tmp_path, SITE)) == "local"
    assert backend_of(proxy, read(tmp_path, f"{SITE}  recipes: {{proxy: {{}}}}\n")) == "slurm"
    assert backend_of(examples.llama3().file, read(tmp_path, SITE)) == "slurm"


def test_a_recipe_for_a_cluster_needs_a_site(tmp_path: Path) -> None:
    recipe = examples.llama3().file
    said = needs_site(recipe, "slurm", THIS_MACHINE)
    assert said is not None
    assert "llama3 runs on a cluster: give it with --site FILE" in said
    assert (
        needs_site(recipe, "slurm", site_model()(site="mine"))
        == "llama3 needs a `slurm:` section, which site 'mine' does not have"
    )
    assert needs_site(recipe, "slurm", read(tmp_path, SITE)) is None
    assert needs_site(recipe, "replay", THIS_MACHINE) is None


def test_a_case_is_judged_as_the_sites_gpu() -> None:
    assert Choice(gpu="b200").gpu_of(examples.case()) == "b200"


KUBERNETES = """\
site: aks
pytorchjob:
  gpu: h100
  recipes:
    gpt3_aks:
      models:
        - {size: tall, layers: 24, hidden: 1024, heads: 16, sequence_length: 2048, gbs: 64, gpus: [8, 16]}
"""


def test_a_site_has_models_of_its_own_for_a_recipe(tmp_path: Path) -> None:
    site = read(tmp_path, KUBERNETES)
    (model,) = workload_of(examples.recipe_named("gpt3_aks").file, site).models
    assert (model.size, model.gpus, model.tp) == ("tall", (8, 16), 1)
    for other in ("llama3_gke", "llama3", "proxy"):
        assert workload_of(examples.recipe_named(other).file, site).models == ()


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("layers: 24", "numLayers: 24", "models.0.numLayers: unknown key"),
        ("layers: 24, ", "", "models.0.layers: missing"),
        ("layers: 24", "layers: 24.5", "models.0.layers: expected a whole number"),
        ("gpus: [8, 16]", "gpus: []", "models.0.gpus: must have 1 or more values"),
        (
            "gpus: [8, 16]",
            "gpus: ['8']",
            "models.0.gpus.0: expected a whole number, got '8' (write it without quotes)",
        ),
        ("size: tall", "size: Tall Model", "models.0.size: expected a name of small letters"),
    ],
)
def test_a_model_with_a_mistake_is_refused_with_its_line(
    tmp_path: Path, old: str, new: str, said: str
) -> None:
    assert old in KUBERNETES
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, KUBERNETES.replace(old, new))
    messages = str(caught.value).splitlines()
    assert any(":7: pytorchjob.recipes.gpt3_aks." in message and said in message for message in messages)


def known(folder: Path, text: str) -> None:
    check_gpus(read(folder, text), folder / "site.yaml", examples.BASELINES, folder / "own")


@pytest.mark.parametrize(
    "path", sorted((examples.ROOT / "docs" / "sites").glob("*.yaml")), ids=lambda path: path.stem
)
def test_the_gpus_and_the_names_of_the_commented_sites_are_known(path: Path) -> None:
    check_gpus(load_site(path), path, examples.BASELINES, None)
    check_names(load_site(path), path, examples.ROOT / "suites")


@pytest.mark.parametrize(
    ("backend", "recipes", "said"),
    [
        ("slurm", "{llama3_gke: {}}", "slurm.recipes.llama3_gke: llama3_gke runs on jobset, not on slurm"),
        ("jobset", "{llama3_gk: {}}", "jobset.recipes.llama3_gk: no recipe has this name; did you mean 'llama3_gke'?"),
        ("slurm", "{llama3: {values: {image: a}}}", "slurm.recipes.llama3.values.image: means nothing to llama3; llama3 has no values"),
        ("jobset", "{proxy: {values: {pyton: a}}}", "jobset.recipes.proxy.values.pyton: means nothing to proxy; "),
        ("pytorchjob", "{gpt3_aks: {values: {storge: a}}}", "pytorchjob.recipes.gpt3_aks.values.storge: means nothing to gpt3_aks; did you mean 'storage'?"),
        ("slurm", "{llama3: {}, proxy: {values: {image: a}}}", ""),
        ("jobset", "{llama3_gke: {values: {bucket: a, image: b}}, proxy: {}}", ""),
        ("pytorchjob", "{gpt3_aks: {values: {claim: a, storage: amlfs, tier: '40', files: '3'}}}", ""),
    ],
)  # fmt: skip
def test_a_name_that_is_misspelt_is_told_with_its_line(
    tmp_path: Path, backend: str, recipes: str, said: str
) -> None:
    path = tmp_path / "site.yaml"
    cluster = "  ssh: {host: a}\n  account: a\n  partition: b\n  stage: /c\n" if backend == "slurm" else ""
    site = read(tmp_path, f"site: lab\n{backend}:\n  gpu: h100\n  recipes: {recipes}\n{cluster}")
    if not said:
        check_names(site, path, examples.ROOT / "suites")
        return
    with pytest.raises(ConfigError) as caught:
        check_names(site, path, examples.ROOT / "suites")
    assert str(caught.value).startswith(f"{path}:4: {said}")


# The proxy's are in its table alone; a section that does not say it has a default of ours.
@pytest.mark.parametrize(
    "text",
    ["local: {gpu: h100}", "local: {gpu: cpu}", "local: {handicap: 2}", "replay: {}", "replay: {gpu: GB300}"],
)
def test_a_gpu_that_a_table_or_a_data_sheet_has_is_known(tmp_path: Path, text: str) -> None:
    known(tmp_path, f"site: lab\n{text}\n")


@pytest.mark.parametrize(
    ("gpu", "hint"),
    [("h10", "did you mean 'h100'?"), ("tpu-v5p", "known here: b200, ")],
)
def test_a_gpu_that_nobody_knows_is_refused(tmp_path: Path, gpu: str, hint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        known(tmp_path, SITE.replace("gpu: h100", f"gpu: {gpu}") + f"replay:\n  gpu: {gpu}\n")
    replayed, ran = str(caught.value).replace(f"{tmp_path}/", "").splitlines()
    assert ran.startswith(f"site.yaml:3: slurm.gpu: no table has the GPU '{gpu}', nor has baselines/")
    assert hint in ran
    assert replayed.startswith("site.yaml:17: replay.gpu: ")


def test_a_gpu_of_the_sites_own_table_is_known(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    rewritten(recorded(own) / "llama3.yaml", "gpu: b200", "gpu: mi300")
    known(tmp_path, "site: lab\nreplay: {gpu: mi300}\n")


def test_no_job_appears_any_more_once_it_counts_as_never_submitted() -> None:
    """A last request may begin late, and the server carry it out after nobody waits for it."""
    latest = max(making.SUBMIT_SECONDS, setup.SUBMIT_SECONDS) + connection.CONNECT_SECONDS
    assert Kubernetes(gpu="h100").launch_bound >= latest + 60


@pytest.mark.parametrize("name", ["site", "section", "model_fields", "tony"])
def test_only_a_backend_has_a_section(name: str) -> None:
    """An older ledger, or a recipe that nobody has checked yet, may name anything."""
    assert THIS_MACHINE.section(name) is None


@pytest.mark.parametrize("backend", ["slurm", "jobset", "pytorchjob", "local"])
@pytest.mark.parametrize(
    ("variable", "said"),
    [
        ("WANDB_API_KEY: s3cret", "WANDB_API_KEY is a secret by its name and has 6 characters; one under 8 cannot be kept out of logs"),
        ("MLFLOW_TRACKING_PASSWORD: '1!'", "MLFLOW_TRACKING_PASSWORD is a secret by its name and has 2 characters"),
        ("GITLAB_TOKEN: 123456789123", "environment.GITLAB_TOKEN: expected text (YAML reads this as a number: put it in quotes)"),
        ("DB_SECRET: [abcdefgh]", "environment.DB_SECRET: expected text"),
        ("NCCL_IB_PKEY: '0x8001'", ""),
        ("TOKENIZERS_PARALLELISM: 'no'", ""),
        ("MAX_TOKENS: '4096'", ""),
        ("USE_KEY: 'true'", ""),
        ("WANDB_API_KEY: a-whole-secret", ""),
    ],
)  # fmt: skip
def test_a_secret_by_its_name_is_whole_and_its_value_is_not_told(
    tmp_path: Path, backend: str, variable: str, said: str
) -> None:
    text = SITE if backend == "slurm" else f"site: lab\n{backend}:\n  gpu: h100\n  environment:\n    A: b\n"
    text = text.replace("    A: b", f"    {variable}").replace("    NCCL_IB_HCA: mlx5", f"    {variable}")
    if not said:
        read(tmp_path, text)
        return
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, text)
    assert said in str(caught.value)
    assert not any(value in str(caught.value) for value in ("s3cret", "1!", "123456789123", "abcdefgh"))
