"""The proxy on a cluster: which backend runs it, what that sends, and what must be there first."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from fixtures.backends.section import BACKENDS
from fixtures.backends.shell import Answer
from fixtures.backends.slurm.backend import SlurmBackend
from fixtures.backends.slurm.section import Slurm
from fixtures.backends.ssh.connection import SshConnection
from fixtures.served import make_backends
from fixtures.site import Site, backend_of, site_model
from plugins.base.errors import ConfigError, SiteError
from plugins.base.yaml_text import Loader
from plugins.recipes.cases import Case
from plugins.recipes.recipe_file import read_recipe
from plugins.record.job import JobRef
from tests.unit import examples

PROXY = examples.recipe_named("proxy")
NAME = "pacemark-20261122-120000-ab12.proxy-8b-8l-bf16-8gpus"
LOGIN = {"gpu": "h100", "ssh": {"host": "login01"}, "account": "a", "partition": "p", "gres": "gpu:8"}
IMAGE = "nvcr.io#nvidia/jax:26.06-py3"
OPTIONS = [
    "--size",
    "8b-8l",
    "--dtype",
    "bf16",
    "--layers",
    "8",
    "--hidden",
    "4096",
    "--ffn",
    "14336",
    "--heads",
    "32",
    "--query-groups",
    "8",
    "--vocab",
    "128256",
    "--seq-len",
    "8192",
    "--mlp",
    "gated",
    "--experts",
    "1",
    "--top-k",
    "1",
    "--gpus",
    "8",
    "--fsdp",
    "1",
    "--mbs",
    "1",
    "--ga",
    "8",
    "--steps",
    "20",
]
# As sbatch, it keeps a copy of the script; then it runs the job at once, on a node with 96 CPUs.
SBATCH = """\
#!/bin/bash
printf '%s\\0' "$@" >"$STAGE/sbatch"
SLURM_CPUS_ON_NODE=96 bash "${@: -1}" >/dev/null </dev/null || exit 1
echo 4711
"""
SRUN = """\
#!/bin/bash
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
        "slurm": {**LOGIN, "stage": "/lustre/me", "recipes": {"proxy": {}}},
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


class Login:
    """A login node on this machine, with a Slurm that runs a job at once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.stage = folder / "stage"
        self.stage.mkdir()
        (folder / "bin").mkdir()
        self.tool("sbatch", SBATCH)
        self.tool("srun", SRUN)
        for name in ("squeue", "scancel", "scontrol"):
            self.tool(name, "#!/bin/bash\n")
        self.shows("gpu:h100:8(S:0-1)")

    def tool(self, name: str, text: str) -> str:
        path = self.folder / "bin" / name
        path.write_text(text)
        path.chmod(0o755)
        return str(path)

    def shows(self, gres: str) -> None:
        """What sinfo shows of the partition's nodes, line by line."""
        self.tool("sinfo", f"#!/bin/bash\nprintf '%s\\n' {gres!r}\n")

    def backend(self, **values: str) -> SlurmBackend:
        recipes = {"proxy": {"values": values}}
        section = Slurm.model_validate({**LOGIN, "stage": str(self.stage), "recipes": recipes})
        return SlurmBackend("lab", section, [PROXY])

    def submit(self, of: Case, **values: str) -> JobRef:
        return self.backend(**values).submit(of, NAME)

    def lack(self, **values: str) -> str:
        with pytest.raises(SiteError) as caught:
            self.backend(**values).check(case())
        return str(caught.value)

    def said(self, tool: str) -> list[str]:
        """The arguments, or the environment, that were written down."""
        return (self.stage / tool).read_text().split("\0")[:-1]


@pytest.fixture
def login(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Login:
    def run(self: SshConnection, script: str, **how: object) -> Answer:
        done = subprocess.run(["bash", "-s"], input=script, capture_output=True, text=True, timeout=120)
        return Answer(done.returncode, done.stdout, done.stderr)

    monkeypatch.setattr(SshConnection, "run", run)
    made = Login(tmp_path)
    monkeypatch.setenv("STAGE", str(made.stage))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    return made


def test_the_job_has_its_own_copy_of_the_program_and_a_node_of_its_own(login: Login) -> None:
    job = login.submit(case(), python="/opt/jax/bin/python")
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


def test_an_image_is_run_by_pyxis_with_the_jobs_folder(login: Login) -> None:
    login.submit(case("tiny-fp32-1gpus"), image=IMAGE)
    folder = login.stage / "proxy" / NAME
    said = login.said("srun")
    assert said[3:10] == [
        f"--container-image={IMAGE}", f"--container-mounts={folder}:{folder}", f"--container-workdir={folder}",
        "--no-container-mount-home", "python3", "-u", "-B",
    ]  # fmt: skip
    assert {"JAX_PLATFORMS=cpu", "NPROC=2"} <= set(login.said("environment"))


def test_the_check_names_what_the_login_node_can_tell(login: Login) -> None:
    python = login.tool("python-with-jax", "#!/bin/bash\n")
    login.backend(python=python).check(case())
    login.backend(image=IMAGE, python="/nowhere/but/in/the/image").check(case())
    # Without site packages.
    bare = login.tool("python", f'#!/bin/bash\nexec {sys.executable} -S "$@"\n')
    said = login.lack(python=bare)
    assert f"jax or optax for {bare}, as the login node sees it, is missing" in said
    assert "set recipes.proxy.values.image in the site file to a container image" in said
    assert "the container image /lustre/jax.sqsh is missing" in login.lack(image="/lustre/jax.sqsh")
    login.tool("srun", "#!/bin/bash\n")
    assert "Pyxis, with which srun knows --container-image, is missing" in login.lack(image=IMAGE)


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
def test_a_partition_whose_nodes_have_fewer_gpus_is_told(login: Login, gres: str, enough: bool) -> None:
    login.shows(gres)
    if enough:
        login.backend(image=IMAGE).check(case())
    else:
        assert "a node of partition p with 8 GPUs, as `sinfo` tells its GRES, is missing" in login.lack(
            image=IMAGE
        )
    login.backend(image=IMAGE).check(case("8b-8l-bf16-1gpus"))


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"image": "a b"}, "proxy: `image`, the container image, which has jax and optax: 'a b' is not of the form"),
        ({"python": ""}, "proxy needs `python`, the Python that has jax and optax"),
    ],
)  # fmt: skip
def test_values_that_cannot_be_are_refused(login: Login, values: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        login.backend(**values)
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


def test_two_nodes_that_are_probed_together_need_the_gpus_of_one_each(login: Login) -> None:
    """A session that goes on with probes of pairs looks for this first."""
    pair = replace(case(), gpus=2 * case().gpus, one_node=False)
    tool = login.tool("python", "#!/bin/bash\n")
    login.backend(python=tool).check(pair)
    login.shows("gpu:h100:4(S:0-1)")
    with pytest.raises(SiteError, match="a node of partition"):
        login.backend(python=tool).check(pair)
