"""The proxy, on this machine and on a cluster: which backend runs it, what that sends, and what must be there first."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from fixtures.backends import this_machine
from fixtures.backends.base import LogPiece, LogPlace
from fixtures.backends.local import LocalBackend
from fixtures.backends.section import BACKENDS
from fixtures.backends.slurm.backend import SlurmBackend
from fixtures.backends.this_machine import Local
from fixtures.served import make_backends
from fixtures.site import Site, backend_of, site_model
from plugins.base.errors import ConfigError, SiteError
from plugins.base.yaml_text import Loader
from plugins.logs.log import type_of
from plugins.recipes.cases import Case
from plugins.recipes.recipe_file import read_recipe
from plugins.record.job import JobRef, Phase
from tests.unit import examples
from tests.unit.backends.slurm.login import KEYS, Login
from tests.unit.cluster import until

PROXY = examples.recipe_named("proxy")
NAME = "pacemark-20261122-120000-ab12.proxy-8b-8l-bf16-8gpus"
SLURM = {**KEYS, "gres": "gpu:8"}
IMAGE = "nvcr.io#nvidia/jax:26.06-py3"
OPTIONS = shlex.split(
    "--size 8b-8l --dtype bf16 --layers 8 --hidden 4096 --ffn 14336 --heads 32 --query-groups 8 --vocab 128256 --seq-len 8192 "
    "--mlp gated --experts 1 --top-k 1 --gpus 8 --fsdp 1 --mbs 1 --ga 8 --steps 20"
)
# As sbatch, it keeps a copy of the script; then it runs the job at once, on a node with 96 CPUs.
SBATCH = """\
printf '%s\\0' "$@" >"$STAGE/sbatch"
SLURM_CPUS_ON_NODE=96 bash "${@: -1}" >/dev/null </dev/null || exit 1
echo 4711
"""
SRUN = """\
[[ "$1" != --help ]] || { echo "      --container-image=[USER@][REGISTRY#]IMAGE[:TAG]|PATH"; exit; }
printf '%s\\0' "$@" >"$STAGE/srun"
env -0 >"$STAGE/environment"
"""


def case(case_id: str = "8b-8l-bf16-8gpus") -> Case:
    found = PROXY.case(case_id)
    assert found is not None
    return found


def site(**sections: Any) -> Site:
    known: dict[str, dict[str, Any]] = {
        "slurm": {**SLURM, "stage": "/lustre/me", "recipes": {"proxy": {}}},
        "jobset": {"gpu": "h100", "recipes": {"proxy": {}}},
        "pytorchjob": {"gpu": "h100", "recipes": {"proxy": {}}},
        "local": {},
    }
    given = {name: {**known[name], **keys} for name, keys in sections.items()}
    return site_model().model_validate({"site": "lab", **given}, strict=False)


@pytest.mark.parametrize(
    ("sections", "backend"),
    [
        ((), "local"),
        (("local",), "local"),
        (("slurm", "local"), "slurm"),
        (("pytorchjob",), "pytorchjob"),
        (("pytorchjob", "jobset"), "jobset"),
        (("jobset", "slurm"), "slurm"),
    ],
)
def test_a_recipe_runs_on_the_first_of_its_backends_that_the_site_names_it_for(
    sections: tuple[str, ...], backend: str
) -> None:
    here = site(**{name: {} for name in sections})
    assert backend_of(PROXY.file, here) == backend
    assert list(make_backends(here, [PROXY], None)) == [backend]
    # What an earlier session left may be on any.
    assert set(make_backends(here, [PROXY], None, all_of_them=True)) == {"local", *sections}
    assert backend_of(examples.llama3().file, here) == "slurm"


def test_each_backend_of_each_recipe_has_its_contract() -> None:
    for path in sorted((examples.ROOT / "suites").glob("*/recipe.yaml")):
        file = examples.recipe_named(path.parent.name).file
        expected = set() if file.logs_only else {BACKENDS[name].contract for name in file.backend}
        assert set(file.contracts) == expected


def test_a_recipe_that_lost_its_contract_is_not_taken_for_one_that_has_logs_alone(tmp_path: Path) -> None:
    text = (examples.ROOT / "suites" / "megatron_bridge" / "recipe.yaml").read_text()
    (tmp_path / "recipe.yaml").write_text(text.replace("logs_only: true\n", ""))
    with pytest.raises(ConfigError, match="give one of `launch`, `manifest`, `program`"):
        read_recipe(tmp_path)


class Proxy(Login):
    """A login node with a Slurm that runs a job at once."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(root, monkeypatch)
        self.stage.mkdir()
        monkeypatch.setenv("STAGE", str(self.stage))
        self.tool("sbatch", SBATCH)
        self.tool("srun", SRUN)
        for name in ("squeue", "scancel", "scontrol"):
            self.tool(name)
        self.shows("gpu:h100:8(S:0-1)")

    def shows(self, gres: str) -> None:
        """What sinfo shows of the partition's nodes, line by line."""
        self.tool("sinfo", f"printf '%s\\n' {gres!r}")

    def with_values(self, **values: str) -> SlurmBackend:
        return self.backend(PROXY, gres="gpu:8", recipes={"proxy": {"values": values}})

    def lack(self, of: Case, **values: str) -> str:
        with pytest.raises(SiteError) as caught:
            self.with_values(**values).check(of)
        return str(caught.value)

    def said(self, tool: str) -> list[str]:
        """The arguments, or the environment, that were written down."""
        return (self.stage / tool).read_text().split("\0")[:-1]


@pytest.fixture
def login(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Proxy:
    return Proxy(tmp_path, monkeypatch)


def test_the_job_has_its_own_copy_of_the_program_and_a_node_of_its_own(login: Proxy) -> None:
    job = login.with_values(python="/opt/jax/bin/python").submit(case(), NAME)
    folder = login.stage / "proxy" / NAME
    assert (job.id, job.folder) == ("4711", str(folder))
    for name in ("train.py", "moe.py", "gpus.py", "cpus.py", "batch.sh"):
        assert (folder / name).read_bytes() == (PROXY.folder / name).read_bytes()
    asked = login.said("sbatch")
    assert {"--exclusive", "--no-requeue", f"--output={folder}/log-%j.out"} <= set(asked)
    assert asked[asked.index("-N") + 1] == "1"
    # All CPUs of the node are the program's.
    assert login.said("srun") == [
        "--ntasks=1", "--cpus-per-task=96", "--mpi=none", "/opt/jax/bin/python", "-u", "-B", "train.py", *OPTIONS,
        "--nodes", "1",
    ]  # fmt: skip
    assert not [pair for pair in login.said("environment") if pair.startswith("JAX_PLATFORMS=")]


def test_an_image_is_run_by_pyxis_with_the_jobs_folder(login: Proxy) -> None:
    login.with_values(image=IMAGE).submit(case("tiny-fp32-1gpus"), NAME)
    folder = login.stage / "proxy" / NAME
    said = login.said("srun")
    assert said[3:10] == [
        f"--container-image={IMAGE}", f"--container-mounts={folder}:{folder}", f"--container-workdir={folder}",
        "--no-container-mount-home", "python3", "-u", "-B",
    ]  # fmt: skip
    assert {"JAX_PLATFORMS=cpu", "NPROC=2"} <= set(login.said("environment"))


def test_the_check_names_what_the_login_node_can_tell(login: Proxy) -> None:
    login.with_values(python=str(login.tool("python-with-jax"))).check(case())
    login.with_values(image=IMAGE, python="/nowhere/but/in/the/image").check(case())
    # Without site packages.
    bare = login.tool("python", f'exec {sys.executable} -S "$@"')
    said = login.lack(case(), python=str(bare))
    assert f"jax or optax for {bare}, as the login node sees it, is missing" in said
    assert "set recipes.proxy.values.image in the site file to a container image" in said
    missing = login.lack(case(), image="/lustre/jax.sqsh")
    assert "the container image /lustre/jax.sqsh is missing" in missing
    login.tool("srun")
    missing = login.lack(case(), image=IMAGE)
    assert "Pyxis, with which srun knows --container-image, is missing" in missing


# Two nodes that are probed together need the GPUs of one each: a session that goes on with probes of pairs looks for this first.
PAIR = replace(case(), gpus=2 * case().gpus, one_node=False)


@pytest.mark.parametrize("of", [case(), PAIR], ids=["a node", "a pair"])
@pytest.mark.parametrize(
    ("gres", "enough"),
    [
        ("gpu:h100:8(S:0-1)", True),
        ("(null)\ngpu:8", True),
        ("gpu:a100:4", False),
        ("(null)", True),  # no GRES is configured
        ("lustre:1,gpu:h100:4(S:0),gpu:a100:2", False),
    ],
)
def test_a_partition_whose_nodes_have_fewer_gpus_is_told(
    login: Proxy, gres: str, enough: bool, of: Case
) -> None:
    login.shows(gres)
    if enough:
        login.with_values(image=IMAGE).check(of)
    else:
        missing = f"a node of partition p with {of.gpus} GPUs, as `sinfo` tells its GRES, is missing"
        assert missing in login.lack(of, image=IMAGE)
    login.with_values(image=IMAGE).check(case("8b-8l-bf16-1gpus"))


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"image": "a b"}, "proxy: `image`, the container image, which has jax and optax: 'a b' is not of the form"),
        ({"python": ""}, "proxy needs `python`, the Python that has jax and optax"),
    ],
)  # fmt: skip
def test_values_that_cannot_be_are_refused(login: Proxy, values: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        login.with_values(**values)
    assert said in str(caught.value)


def documents(section: str, of: Case, **values: str) -> list[dict[str, Any]]:
    keys = {"kubeconfig": "/nonexistent", "recipes": {"proxy": {"values": values}}}
    backend = make_backends(site(**{section: keys}), [PROXY], None)[section]
    return list(yaml.load_all(backend.plan(of, NAME), Loader))


@pytest.mark.parametrize(("section", "kind"), [("jobset", "JobSet"), ("pytorchjob", "PyTorchJob")])
def test_one_pod_has_the_program_and_its_gpus(section: str, kind: str) -> None:
    files, job = documents(section, case(), image="registry.test/jax:1")
    assert (files["kind"], job["kind"]) == ("ConfigMap", kind)
    for name in ("train.py", "moe.py", "gpus.py", "cpus.py"):
        assert files["data"][name] == (PROXY.folder / name).read_text()
    if kind == "JobSet":
        (replicated,) = job["spec"]["replicatedJobs"]
        child = replicated["template"]["spec"]
        assert (replicated["replicas"], child["parallelism"], child["completions"]) == (1, 1, 1)
        template = child["template"]
    else:
        ((role, replica),) = job["spec"]["pytorchReplicaSpecs"].items()
        assert (role, replica["replicas"]) == ("Master", 1)
        template = replica["template"]
    (container,) = template["spec"]["containers"]
    assert container["image"] == "registry.test/jax:1"
    assert [*container["command"], *container["args"]] == ["python3", "-u", "/proxy/train.py", *OPTIONS]
    assert container["resources"]["limits"] == {"nvidia.com/gpu": 8}
    volumes = {volume["name"]: volume for volume in template["spec"]["volumes"]}
    assert volumes["files"]["configMap"]["name"] == files["metadata"]["name"]


def test_the_case_on_a_cpu_asks_for_no_gpu_and_has_its_environment() -> None:
    _, job = documents("jobset", case("tiny-fp32-1gpus"))
    (container,) = job["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["containers"]
    assert container["resources"] == {"limits": {}}
    given = {entry["name"]: entry.get("value") for entry in container["env"]}
    assert (given["JAX_PLATFORMS"], given["NPROC"]) == ("cpu", "2")
    assert container["image"] == "nvcr.io/nvidia/jax:26.06-py3"


def test_a_file_that_is_not_there_is_told() -> None:
    file = PROXY.file.model_copy(update={"files": ["nothing.py"]})
    with pytest.raises(ConfigError, match=r"recipe\.yaml: files: .*nothing\.py"):
        replace(PROXY, file=file).read_files()


# On this machine: processes that another session started are known, ended, and never mistaken for a stranger's.

ON_CPU, ON_GPU = (case.id for case in PROXY.cases[:2])


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[JobRef]:
    """A process that a session started which forgot it since."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    sleeper = [sys.executable, "-uc", "import time; print('begun'); time.sleep(60)"]
    monkeypatch.setattr(LocalBackend, "_command", lambda self, case: sleeper)
    dead = LocalBackend(Local(), [PROXY])
    started = dead.submit(PROXY.cases[0], "pacemark-run-1.x")
    yield started
    dead.cancel([started])
    dead._processes[started.name].wait(60)


def phase(backend: LocalBackend, job: JobRef) -> Phase:
    return backend.poll([job])[job].phase


def text(backend: LocalBackend, job: JobRef) -> bytes:
    return backend.read_log(job, LogPlace(), []).data


def test_a_process_of_a_session_that_died_is_followed_and_ended(job: JobRef) -> None:
    backend = LocalBackend(Local(), [PROXY])
    assert phase(backend, job) is Phase.RUNNING
    until(lambda: text(backend, job) == b"begun\n")
    backend.cancel([job])
    until(lambda: phase(backend, job) is Phase.GONE)
    # Its log stays.
    assert text(backend, job) == b"begun\n"


def test_a_secret_by_its_name_is_sent_and_not_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    program = [sys.executable, "-c", "import os; print(os.environ['WANDB_API_KEY'], 'is sent')"]
    monkeypatch.setattr(LocalBackend, "_command", lambda self, case: program)
    backend = LocalBackend(Local(environment={"WANDB_API_KEY": "local-5up3r-s3cret"}), [PROXY])
    assert "WANDB_API_KEY='<not shown>'" in backend.plan(PROXY.cases[0], "x")
    started = backend.submit(PROXY.cases[0], "pacemark-run-1.y")
    backend._processes[started.name].wait(60)
    assert text(backend, started) == b"*" * 18 + b" is sent\n"


def test_modules_that_the_recipe_needs_are_named_if_they_are_missing() -> None:
    file = PROXY.file.model_copy(update={"modules": ["json", "jaxx", "optaxx"]})
    backend = LocalBackend(Local(), [replace(PROXY, file=file)])
    with pytest.raises(SiteError) as caught:
        backend.check(PROXY.cases[0])
    said = str(caught.value)
    assert said.startswith("proxy needs jaxx and optaxx, which this Python does not have\n    mend: ")
    assert said.endswith("-m pip install -r " + str(PROXY.folder / "requirements.txt"))
    with pytest.raises(SiteError) as caught:
        backend.check(PROXY.cases[1])
    assert str(caught.value).endswith("-m pip install -r " + str(PROXY.folder / "requirements-gpu.txt"))


@pytest.mark.parametrize(
    ("case_id", "keys", "words"),
    [
        (ON_CPU, {"environment": {"NPROC": "4"}}, "\nJAX_PLATFORMS=cpu NPROC=4 "),
        (ON_GPU, {"environment": {"NPROC": "4"}}, "\nNPROC=4 "),
        (ON_CPU, {"handicap": 2}, " --handicap 2\n"),
        ("8b-8l-fsdp-fp8-8gpus", {}, "--top-k 1 --gpus 8 --fsdp 8 --mbs 1 --ga 8 --steps 20"),
    ],
    ids=["the recipe's and the site's variables", "the site's variable", "the site's handicap", "its batch"],
)
def test_a_program_gets_what_case_and_site_set(case_id: str, keys: dict[str, Any], words: str) -> None:
    case = PROXY.case(case_id)
    assert case is not None
    assert words in LocalBackend(Local(**keys), [PROXY]).plan(case, "name")


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA H200", "h200"),
        ("NVIDIA GH200 480GB", "gh200"),
        ("NVIDIA H100 PCIe", "h100-pcie"),
        ("NVIDIA H100 64GB HBM2e", "h100-hbm2e"),
        ("NVIDIA H200 NVL", "h200-nvl"),
        ("NVIDIA H100-80C", "h100-80c"),
        ("NVIDIA H100L-94C", "h100l-94c"),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", "h100-mig"),
        ("NVIDIA A100-SXM4-80GB", "a100"),
        ("NVIDIA GeForce RTX 4090", "geforce-rtx-4090"),
        ("unknown", "unknown"),
    ],
)
def test_the_type_of_gpu_is_that_of_its_name(name: str, kind: str) -> None:
    assert type_of(name) == kind


@pytest.mark.parametrize(("device", "seen"), [("nvidia3", True), ("nvidiactl", False)])
def test_a_container_may_have_another_gpu_than_the_first(
    device: str, seen: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / device).touch()
    monkeypatch.setattr(this_machine, "_DEVICES", tmp_path)
    assert Local(gpu="h100", gpus_per_node=1, max_gpus=1).has_gpu is seen


def test_an_id_that_has_passed_to_a_stranger_is_left_alone(tmp_path: Path) -> None:
    case: Case = PROXY.cases[0]
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as stranger:
        try:
            backend = LocalBackend(Local(), [PROXY])
            (tmp_path / "locked").mkdir()
            (tmp_path / "locked" / "lock").touch()
            for folder in (tmp_path, tmp_path / "cleared away", tmp_path / "locked"):
                job = JobRef(case.recipe, case.id, "pacemark-run-1.x", str(stranger.pid), str(folder))
                assert phase(backend, job) is Phase.GONE
                backend.cancel([job])
                # Nothing new, not an empty log: what the session collected stays.
                assert backend.read_log(job, LogPlace(), []) == LogPiece(b"", LogPlace())
            assert stranger.poll() is None
        finally:
            stranger.kill()
