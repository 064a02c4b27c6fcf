"""What the Slurm backend sends: a golden script, and real bash to see that no value breaks out of it."""

from __future__ import annotations

import os
import re
import subprocess
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from fixtures.backends.base import LogPlace
from fixtures.backends.shell import Answer, Hear, unheard
from fixtures.backends.slurm import launcher
from fixtures.backends.slurm.backend import SlurmBackend
from fixtures.backends.slurm.controller import Controller
from fixtures.backends.slurm.script import Script, preamble
from fixtures.backends.slurm.section import Slurm
from fixtures.backends.ssh import files
from fixtures.backends.ssh.connection import SshConnection
from plugins.base.errors import ConfigError, SiteError, SubmitError, Unreachable
from plugins.recipes.expansion import load_recipe
from plugins.record.job import JobRef
from tests.unit import examples

GOLDEN = Path(__file__).parents[2] / "golden"
NAME = "pacemark-20250411-120000-ab12.llama3-70b-fp8-512gpus"
TOKEN = "hf_S3cret'\"$(id)"
NASTY = [
    "plain",
    "",
    "two words",
    "it's",
    'say "hi"',
    "$(touch pwned)",
    "`touch pwned`",
    "; touch pwned #",
    "a\ntouch pwned\n",
    "$HOME ${PATH}",
    "'; touch pwned; '",
    "\\",
    "\\'",
    "!! *?[a-z] ~",
    "{gpus}",
    "héllo → 世界",
    "tab\there",
    "-n",
]


def section(**given: object) -> Slurm:
    fixed = {
        "gpu": "h100",
        "ssh": {"host": "login01"},
        "account": "research",
        "partition": "gpu",
        "stage": "/lustre/nemo",
        "gres": "gpu:8",
        "prologue": "module load slurm",
        "environment": {"NCCL_IB_HCA": "=mlx5_0,mlx5_1", "WHO": "it's me"},
    }
    return Slurm.model_validate(fixed | given)


def plan(slurm: Slurm | None = None) -> str:
    return SlurmBackend("big-one", slurm or section(), [examples.llama3()]).plan(examples.case(), NAME)


@pytest.fixture(autouse=True)
def _token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", TOKEN)


def test_what_the_prologue_prints_is_no_answer() -> None:
    for words in ("echo 17; echo '- Job id: 18' # 19", "# nothing", ""):
        script = f"{preamble(words)}echo 20"
        done = subprocess.run(["bash"], input=script, capture_output=True, text=True, check=True)
        assert (done.stdout, "17" in done.stderr) == ("20\n", "17" in words)


# Source: ENVIRONMENT VARIABLES of squeue(1), scancel(1), sinfo(1), sacct(1) and scontrol(1), and their getenv() calls, Slurm
# 22.05 to 26.05; of sbatch(1) and srun(1) those that move a job or its log.
OPTIONS = {
    "SQUEUE": "ACCOUNT ALL ARRAY FEDERATION FORMAT FORMAT2 LICENSES LOCAL NAMES PARTITION PRIORITY QOS SIB SIBLING SORT STATES USERS",
    "SCANCEL": "ACCOUNT BATCH CRON CTLD FULL HURRY INTERACTIVE NAME PARTITION QOS STATE USER VERBOSE WCKEY",
    "SINFO": "ALL FEDERATION FORMAT FUTURE LOCAL PARTITION SORT",
    "SACCT": "FEDERATION FORMAT LOCAL",
    "SCONTROL": "ALL FEDERATION FUTURE LOCAL SIB SIBLING",
    "SBATCH": "ARRAY_INX CLUSTERS ERROR EXPORT HOLD NO_REQUEUE OUTPUT REQUEUE TEST_ONLY TIMELIMIT WAIT",
    "SRUN": "CONTAINER ERROR EXPORT_ENV INPUT OUTPUT",
    "SLURM": "BITSTR_LEN RESTART_COUNT TIME_FORMAT TOPO_LEN",
}
VARIABLES = [f"{tool}_{word}" for tool, words in OPTIONS.items() for word in words.split()]
LEADING = ("SLURM_CONF", "SLURM_CLUSTERS", "SLURM_JWT")


@pytest.mark.parametrize("place", ["profile", "prologue"])
def test_no_variable_of_a_profile_or_prologue_is_an_option_of_slurms_tools(place: str) -> None:
    lines = "\n".join([*(f"export {name}=x" for name in [*VARIABLES, *LEADING]), "set -euo pipefail; IFS=E:"])
    script = preamble(lines) if place == "prologue" else f"{lines}\n{preamble('')}"
    command = ["env", "-i", f"PATH={os.environ['PATH']}", "bash", "-c"]
    done = subprocess.run(
        [*command, f'{script}false; env; three="1 2 3"; printf "%s\\n" $three'],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    names = [line.partition("=")[0] for line in done.stdout.splitlines()]
    assert not set(VARIABLES) & set(names)
    assert set(LEADING) <= set(names)
    assert names[-3:] == ["1", "2", "3"]


def test_an_option_that_cannot_be_unset_ends_the_script() -> None:
    """squeue would show no job, which is not told from there being none."""
    script = f"readonly SQUEUE_STATES=COMPLETED\n{preamble('')}echo squeue"
    done = subprocess.run(["bash"], input=script, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "")
    assert "SQUEUE_STATES: cannot unset: readonly variable" in done.stderr


class Cluster:
    """A stage on this machine whose launcher writes down the environment that it was called with."""

    def __init__(self, stage: Path) -> None:
        self.stage = stage
        (stage / "llama3.1").mkdir()
        (stage / "venv" / "bin").mkdir(parents=True)
        (stage / "venv" / "bin" / "activate").write_text("")
        launcher = stage / "llama3.1" / "launch.sh"
        launcher.write_text(
            "#!/bin/bash\nenv -0 > environment\necho '- Job id: 4711'\necho '- Local Directory: /logs/here'\n"
        )
        launcher.chmod(0o755)

    def submit_without(self, *nodes: str) -> None:
        slurm = section(stage=str(self.stage), prologue="")
        SlurmBackend("big-one", slurm, [examples.llama3()]).submit(examples.case(), NAME, nodes)

    def submit_to(self, nodes: str) -> None:
        slurm = section(stage=str(self.stage), prologue="")
        SlurmBackend("big-one", slurm, [examples.llama3()]).on_nodes(nodes).submit(examples.case(), NAME)

    def submit(self, **given: object) -> dict[str, str]:
        """The environment in which the launcher ran."""
        slurm = section(stage=str(self.stage), prologue="", **given)
        job = SlurmBackend("big-one", slurm, [examples.llama3()]).submit(examples.case(), NAME)
        assert (job.id, job.folder, job.name, job.case) == (
            "4711",
            "/logs/here",
            NAME,
            "llama3/70b-fp8-512gpus",
        )
        text = (self.stage / "llama3.1" / "environment").read_text()
        return dict(pair.partition("=")[::2] for pair in text.split("\0") if pair)


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    def run(self: SshConnection, script: str, **how: object) -> Answer:
        assert script.count(NAME) <= 2
        done = subprocess.run(
            ["bash", "-s"], input=script, capture_output=True, text=True, timeout=120, cwd=tmp_path
        )
        return Answer(done.returncode, done.stdout, done.stderr)

    monkeypatch.setattr(SshConnection, "run", run)
    stage = tmp_path / "stage"
    stage.mkdir()
    return Cluster(stage)


@pytest.mark.parametrize(
    ("recipe", "case_id"),
    [
        ("llama3", "70b-fp8-512gpus"),
        ("nemotron4", "340b-bf16-128gpus"),
        ("maxtext_llama2", "70b-fp8-1024gpus"),
    ],
)
def test_the_script_is_the_golden_one(recipe: str, case_id: str) -> None:
    backend = SlurmBackend("big-one", section(), [examples.recipe_named(recipe)])
    name = NAME.replace("llama3-70b-fp8-512gpus", f"{recipe}-{case_id}")
    golden = GOLDEN / f"{recipe}-{case_id}.sh"
    assert backend.plan(examples.case(case_id, recipe), name) == golden.read_text()


@pytest.mark.parametrize(
    ("case_id", "environment", "named"),
    [
        ("8b-fp8-16gpus", {}, ["NCCL_DEBUG=INFO", "NCCL_DEBUG_SUBSYS=INIT"]),
        ("8b-fp8-16gpus", {"NCCL_DEBUG": "WARN"}, ["NCCL_DEBUG=WARN", "NCCL_DEBUG_SUBSYS=INIT"]),
        ("8b-fp8-8gpus", {}, []),
        ("8b-profile-fp8-16gpus", {}, []),
        ("8b-nccl-trace-fp8-16gpus", {}, []),
    ],
)
def test_a_timed_run_of_several_nodes_has_nccl_name_its_network(
    case_id: str, environment: dict[str, str], named: list[str]
) -> None:
    """Unless the site has it say something else."""
    backend = SlurmBackend("big-one", section(environment=environment), [examples.llama3()])
    lines = backend.plan(examples.case(case_id), NAME).splitlines()
    assert [line.removeprefix("export ") for line in lines if "NCCL_DEBUG" in line] == named


@pytest.mark.parametrize("recipe", ["nemotron4", "maxtext_llama2"])
def test_recipes_that_use_the_same_names_have_stages_of_their_own(recipe: str) -> None:
    case = examples.recipe_named(recipe).cases[0]
    launch = examples.recipe_named(recipe).file.launch
    assert launch is not None
    words = Script("big-one", section(), launch, case).words
    assert (words["stage"], words["recipe"]) == (
        f"/lustre/nemo/{recipe}",
        f"/lustre/nemo/{recipe}/{launch.folder}",
    )
    elsewhere = section(recipes={recipe: {"stage": "/scratch/ready/", "folder": "/home/me/recipe"}})
    words = Script("big-one", elsewhere, launch, case).words
    assert (words["stage"], words["recipe"]) == ("/scratch/ready", "/home/me/recipe")


@pytest.mark.parametrize("recipe", ["llama3", "nemotron4", "maxtext_llama2"])
def test_every_text_of_a_contract_can_be_filled_in(recipe: str) -> None:
    found = examples.recipe_named(recipe)
    assert found.file.launch is not None
    for case in found.cases:
        script = Script("big-one", section(), found.file.launch, case, NAME)
        texts = [
            script.fill(text) for need in script.launch.requires for text in (need.mend, need.path or "")
        ]
        texts += [script.bash(need.test or "") for need in script.launch.requires]
        texts += [script.set_up() or "", script.fill(script.launch.log_folder or "")]
        assert not [text for text in texts if re.search(r"\{[a-z_]+\}", text)]


# What would change the GPUs of a node behind launch.sh's back, in the login environment or in the site file.
@pytest.mark.parametrize("name", ["SLURM_GPUS_PER_NODE", "SBATCH_GPUS_PER_NODE", "SBATCH_GPUS"])
def test_nothing_sets_nemotrons_gpus_a_node(name: str) -> None:
    recipe = examples.recipe_named("nemotron4")
    unset = SlurmBackend("big-one", section(), [recipe]).plan(recipe.cases[0], NAME)
    assert re.search(rf"^unset .*\b{name}\b", unset, re.MULTILINE)
    with pytest.raises(ConfigError, match=f"slurm.environment sets {name}, which nemotron4 sets itself"):
        SlurmBackend("big-one", section(environment={name: "null"}), [recipe])


def test_the_plan_is_valid_bash() -> None:
    script = plan().replace("<not shown>", "x")
    done = subprocess.run(["bash", "-n"], input=script, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_launcher_is_told_the_whole_case(cluster: Cluster) -> None:
    found = cluster.submit()
    stage = str(cluster.stage)
    assert {name: found[name] for name in EXPECTED} == EXPECTED
    assert {found[name] for name in ("STAGE_PATH", "NEMORUN_HOME", "NEMO_HOME", "HF_HOME")} == {stage}
    assert found["PWD"] == f"{stage}/llama3.1"


EXPECTED = {
    "DTYPE": "fp8",
    "MODEL_SIZE": "70b",
    "JOB_TOTAL_GPUS": "512",
    "GPUS_PER_NODE": "8",
    "MAX_STEPS": "50",
    "SBATCH_ACCOUNT": "research",
    "SBATCH_PARTITION": "gpu",
    "SBATCH_JOB_NAME": NAME,
    "SBATCH_GRES": "gpu:8",
    "TIME_LIMIT": "00:30:00",
    "ENABLE_PROFILE": "false",
    "ENABLE_NCCLTRACE": "false",
    "ENABLE_CHECKPOINT": "false",
    "DISABLE_PERFRUN": "false",
}


def test_a_value_reaches_the_launcher_as_it_is(cluster: Cluster) -> None:
    given = {f"NASTY_{i}": value for i, value in enumerate(NASTY)}
    found = cluster.submit(environment=given)
    assert {name: found[name] for name in given} == given
    assert not list(cluster.stage.parent.rglob("pwned"))


@pytest.mark.parametrize("option", ["gres", "constraint"])
def test_an_option_of_sbatch_cannot_break_out(cluster: Cluster, option: str) -> None:
    found = cluster.submit(**{option: "a'; touch pwned; $(touch pwned) '"})
    assert found[f"SBATCH_{option.upper()}"] == "a'; touch pwned; $(touch pwned) '"
    assert not list(cluster.stage.parent.rglob("pwned"))


def _sbatch(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let the cluster's launcher call an sbatch that writes down its arguments; into which file."""
    tools = cluster.stage / "slurm's tools"
    tools.mkdir()
    said = cluster.stage / "arguments"
    for tool, line in (("sbatch", f'printf "%s\\n" "$@" >{said}; echo "$PATH" >{said}.path'), ("squeue", "")):
        (tools / tool).write_text(f"#!/bin/bash\n{line}\n")
        (tools / tool).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    with (cluster.stage / "llama3.1" / "launch.sh").open("a") as launcher:
        launcher.write("sbatch --parsable 'my job.sh'\n")
    return said


def test_chosen_and_excluded_nodes_reach_the_sbatch_that_the_launcher_calls(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    said = _sbatch(cluster, monkeypatch)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with (cluster.stage / "llama3.1" / "launch.sh").open("r+") as launcher:
        text = launcher.read()
        launcher.seek(0)
        launcher.write(text.replace("sbatch --parsable", "PATH=/its/own:$PATH\nsbatch --parsable"))
    before = set(tmp_path.iterdir())
    cluster.submit()
    assert said.read_text().splitlines() == ["--parsable", "my job.sh"]
    path = said.with_name("arguments.path").read_text()
    assert path.startswith("/its/own:")
    cluster.submit_without("gpu003", "gpu007")
    assert said.read_text().splitlines() == ["--exclude=gpu003,gpu007", "--parsable", "my job.sh"]
    cluster.submit_to("gpu[001-063,070]")
    assert said.read_text().splitlines() == ["--nodelist=gpu[001-063,070]", "--parsable", "my job.sh"]
    # The job inherits it: no folder of /tmp may stand there.
    assert said.with_name("arguments.path").read_text() == path
    assert set(tmp_path.iterdir()) == before


def test_a_node_that_cannot_be_excluded_is_an_error(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = _sbatch(cluster, monkeypatch)
    # As good as a /tmp that nothing may be run from: another sbatch is found first.
    monkeypatch.setenv("BASH_FUNC_sbatch%%", "() { true; }")
    with pytest.raises(SubmitError, match="cannot choose nodes"):
        cluster.submit_without("gpu003")
    assert not said.exists()


def test_what_would_spoil_the_run_is_taken_out_of_the_environment(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [
        "LOAD_CHECKPOINT_PATH",
        "OPTIMIZATION_NAME",
        "OPTIMIZATION_CODE",
        "RUN_CONF_IMAGE",
        *VARIABLES,
    ]
    for name in names:
        monkeypatch.setenv(name, "left over")
    monkeypatch.setenv("ENABLE_PROFILE", "true")
    found = cluster.submit()
    assert [name for name in names if found.get(name) == "left over"] == []
    assert found["ENABLE_PROFILE"] == "false"


# The verdict rests on what the recipe says it runs; a site has no say in that.
@pytest.mark.parametrize("name", ["DTYPE", "MODEL_SIZE", "JOB_TOTAL_GPUS", "MAX_STEPS", "ENABLE_PROFILE"])
def test_a_site_does_not_override_what_the_case_is(name: str) -> None:
    with pytest.raises(ConfigError, match=f"slurm.environment sets {name}, which llama3 sets itself"):
        plan(section(environment={name: "other"}))


# Secrets


def test_the_launcher_sees_a_reference_and_the_job_the_secret(cluster: Cluster) -> None:
    found = cluster.submit()
    assert found["HF_TOKEN"] == "${PACEMARK_SECRET_HF_TOKEN}"
    assert found["PACEMARK_SECRET_HF_TOKEN"] == TOKEN
    assert [name for name, value in found.items() if TOKEN in value] == ["PACEMARK_SECRET_HF_TOKEN"]


def test_the_plan_has_no_secret() -> None:
    assert TOKEN not in plan()
    assert "hf_S3cret" not in plan()
    assert (
        "export PACEMARK_SECRET_HF_TOKEN=<not shown>\nexport HF_TOKEN='${PACEMARK_SECRET_HF_TOKEN}'\n"
        in plan()
    )


def test_a_secret_in_the_site_file_is_refused_and_not_shown() -> None:
    with pytest.raises(ConfigError, match="HF_TOKEN") as refused:
        plan(section(environment={"HF_TOKEN": "hf_in_the_file"}))
    assert "hf_in_the_file" not in str(refused.value)


OWN = {"WANDB_API_KEY": "local-5up3r-s3cret", "NCCL_IB_PKEY": "0x8001", "TOKENIZERS_PARALLELISM": "false"}


def test_a_secret_of_the_sites_own_is_sent_and_not_shown(cluster: Cluster) -> None:
    shown = plan(section(environment=OWN))
    assert "export WANDB_API_KEY='<not shown>'\n" in shown
    assert "export NCCL_IB_PKEY=0x8001\nexport TOKENIZERS_PARALLELISM=false\n" in shown
    found = cluster.submit(environment=OWN)
    assert {name: found[name] for name in OWN} == OWN


def test_a_secret_of_the_sites_own_is_in_no_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    log = f"wandb: {OWN['WANDB_API_KEY']} {TOKEN} 0x8001\n".encode()
    monkeypatch.setattr(files, "names", lambda self, folder: ["log-a-a.task_7_0.out"])
    monkeypatch.setattr(files, "size", lambda self, path: len(log))
    monkeypatch.setattr(files, "read", lambda self, path, offset, size: log[offset : offset + size])
    backend = SlurmBackend("lab", section(environment=OWN), [examples.llama3()])
    piece = backend.read_log(JobRef("llama3", examples.CASE, "name", "7", "/logs"), LogPlace(), ())
    assert piece.data == b"wandb: " + b"*" * 18 + b" " + b"*" * len(TOKEN) + b" 0x8001\n"


def test_every_secret_of_the_recipe_is_a_reference() -> None:
    launch = examples.llama3().file.launch
    assert launch is not None
    assert launch.secrets == ["HF_TOKEN"]
    for secret in launch.secrets:
        assigned = re.findall(rf"^export {secret}=(.*)$", plan(), re.MULTILINE)
        assert assigned == [f"'${{PACEMARK_SECRET_{secret}}}'"]


def test_a_secret_in_an_error_is_cut_out(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    launcher = cluster.stage / "llama3.1" / "launch.sh"
    launcher.write_text('#!/bin/bash\necho "bad token $PACEMARK_SECRET_HF_TOKEN" >&2\nexit 3\n')
    tools = cluster.stage / "tools"
    tools.mkdir()
    (tools / "squeue").write_text("#!/bin/bash\n")
    (tools / "squeue").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    with pytest.raises(SubmitError) as caught:
        cluster.submit()
    assert "hf_S3cret" not in str(caught.value)
    assert "launch.sh ended with status 3 and named 0 job ids where one is expected" in str(caught.value)
    assert "bad token <HF_TOKEN>" in str(caught.value)
    launcher.write_text('#!/bin/bash\necho "bad key $WANDB_API_KEY of $NCCL_IB_PKEY" >&2\nexit 3\n')
    with pytest.raises(SubmitError, match="bad key <WANDB_API_KEY> of 0x8001"):
        cluster.submit(environment=OWN)


def test_a_secret_is_sent_without_the_white_space_around_it(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file with line ends of Windows: bash would trace the token as $'hf_...\\r', which is another text."""
    launcher = cluster.stage / "llama3.1" / "launch.sh"
    launcher.write_text(
        '#!/bin/bash\nset -x\n: "$PACEMARK_SECRET_HF_TOKEN"\necho "$PACEMARK_SECRET_HF_TOKEN"\'\r\'\nexit 3\n'
    )
    tools = cluster.stage / "tools"
    tools.mkdir()
    (tools / "squeue").write_text("#!/bin/bash\n")
    (tools / "squeue").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    monkeypatch.setenv("HF_TOKEN", f" {TOKEN}\r\n")
    with pytest.raises(SubmitError) as caught:
        cluster.submit()
    said = str(caught.value)
    assert "+ : '<HF_TOKEN>'\n" in said
    assert TOKEN not in said


@pytest.mark.parametrize(
    ("token", "why"), [("", "is not set"), (" \r\n", "is not set"), ("hf_1234\n", "has 7 characters")]
)
def test_a_secret_that_cannot_be_redacted_is_refused(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, token: str, why: str
) -> None:
    monkeypatch.setenv("HF_TOKEN", token)
    tools = cluster.stage / "tools"
    tools.mkdir()
    (tools / "scontrol").write_text("#!/bin/bash\n")
    (tools / "scontrol").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    backend = SlurmBackend("big-one", section(stage=str(cluster.stage), prologue=""), [examples.llama3()])
    with pytest.raises(SiteError) as caught:
        backend.check(examples.case())
    assert str(caught.value).count(f"HF_TOKEN {why}") == 1
    assert "hf_1234" not in str(caught.value)


@pytest.mark.parametrize(("token", "left"), [(TOKEN, b"*" * len(TOKEN)), ("1", b"1")])
def test_a_secret_in_the_training_log_is_not_collected(
    monkeypatch: pytest.MonkeyPatch, token: str, left: bytes
) -> None:
    monkeypatch.setenv("HF_TOKEN", token)
    log = b"HF_TOKEN=" + token.encode() + b"\ntrain_step_timing in s: 11.10 |\n"
    monkeypatch.setattr(files, "names", lambda self, folder: ["log-a-a.task_7_0.out"])
    monkeypatch.setattr(files, "size", lambda self, path: len(log))
    monkeypatch.setattr(files, "read", lambda self, path, offset, size: log[offset : offset + size])
    backend = SlurmBackend("lab", section(), [examples.llama3()])
    piece = backend.read_log(JobRef("llama3", examples.CASE, "name", "7", "/logs"), LogPlace(), ())
    assert piece.data == log.replace(token.encode(), left)
    assert piece.place.offset == len(log)


@pytest.mark.parametrize("end", [b"Training epo\n", b"Training epoch", b"it ends like this: hf_S"])
def test_a_life_that_ends_like_the_beginning_of_a_secret_does_not_hide_the_next(
    monkeypatch: pytest.MonkeyPatch, end: bytes
) -> None:
    """What may begin a secret is held back until more comes, but after a requeue nothing more comes."""
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    logs = {"log-a-a.task_7_0.out": end}
    monkeypatch.setattr(files, "names", lambda self, folder: list(logs))
    monkeypatch.setattr(files, "size", lambda self, path: len(logs[Path(path).name]))
    monkeypatch.setattr(
        files,
        "read",
        lambda self, path, offset, size: logs[Path(path).name][offset : offset + size],
    )
    backend = SlurmBackend("lab", section(), [examples.llama3()])
    job, place = JobRef("llama3", examples.CASE, "name", "7", "/logs"), LogPlace()
    for _ in range(3):
        place = backend.read_log(job, place, ()).place
    assert place.file == "log-a-a.task_7_0.out"
    logs["log-a-a.task_7_1.out"] = b"the second life\n"
    piece = backend.read_log(job, place, ())
    assert (piece.data, piece.place.attempt) == (b"the second life\n", 2)
    assert backend.read_log(job, piece.place, ()).data == b""


def test_an_attempt_that_was_told_before_its_log_is_there_counts_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    logs = {"log-a-a.task_7_0.out": b"the first life\n"}
    monkeypatch.setattr(files, "names", lambda self, folder: list(logs))
    monkeypatch.setattr(files, "size", lambda self, path: len(logs[Path(path).name]))
    monkeypatch.setattr(files, "read", lambda self, path, offset, size: logs[Path(path).name][offset:])
    backend = SlurmBackend("lab", section(), [examples.llama3()])
    job, place = JobRef("llama3", examples.CASE, "name", "7", "/logs"), LogPlace(attempt=2)
    assert backend.read_log(job, place, ()).place == place
    logs["log-a-a.task_7_1.out"] = b"the second life\n"
    piece = backend.read_log(job, place, ())
    assert (piece.data, piece.place.attempt) == (b"the second life\n", 2)


def _submit_noisily(monkeypatch: pytest.MonkeyPatch, listed: str, said: str) -> JobRef:
    """Submit by a launcher of whose output a part is missing, where squeue shows these ids under the name."""
    rows = "".join(f"{job}|{NAME}|RUNNING||None\n" for job in listed.split())

    def run(self: SshConnection, script: str, **how: object) -> Answer:
        if "squeue" in script:
            return Answer(0, rows, "")
        return Answer(0, said, "noise\n", left_out=5000)

    monkeypatch.setattr(SshConnection, "run", run)
    monkeypatch.setattr(launcher, "end_all", lambda *asked: (" All were cancelled.", False))
    return SlurmBackend("big-one", section(prologue=""), [examples.llama3()]).submit(examples.case(), NAME)


@pytest.mark.parametrize("said", ["- Job id: 4711\n", "", "- Job id: 4711\n- Job id: 4712\n"])
def test_a_launcher_that_printed_too_much_has_the_job_that_squeue_shows(
    monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    job = _submit_noisily(monkeypatch, "4711", said + "- Local Directory: /logs/here\n")
    assert (job.id, job.folder) == ("4711", "/logs/here")


def test_several_jobs_of_a_launcher_that_printed_too_much_are_cancelled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(SubmitError) as caught:
        _submit_noisily(monkeypatch, "4711 4712", "- Job id: 4711\n- Local Directory: /logs/here\n")
    assert (
        "named 2 job ids where one is expected. All were cancelled. It said, with 5000 bytes left out:"
        in str(caught.value)
    )


def test_a_launcher_that_printed_too_much_and_has_no_job_yet_is_looked_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(
        Unreachable, match=f"5000 bytes too many to be kept, and squeue shows no job named {NAME}"
    ):
        _submit_noisily(monkeypatch, "", "- Job id: 4711\n")


# Source: sbatch.c of Slurm 22.05, `MAX_RETRIES` and the loop around slurm_submit_batch_job.
WAITS = "sbatch: error: Slurm temporarily unable to accept job, sleeping and retrying."


def test_what_sbatch_says_while_it_waits_is_shown_at_once_and_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []

    def run(self: SshConnection, script: str, *, heard: Hear = unheard, **how: object) -> Answer:
        for line in ("module loaded", WAITS, f"sbatch: warning: the token is {TOKEN}"):
            heard(line)
        return Answer(124, "", f"{WAITS}\n")

    monkeypatch.setenv("HF_TOKEN", TOKEN)
    monkeypatch.setattr(SshConnection, "run", run)
    backend = SlurmBackend("big-one", section(prologue=""), [examples.llama3()])
    backend.notify = lines.append
    with pytest.raises(Unreachable, match=f"no answer within 600 s: status 124: {WAITS}$"):
        backend.submit(examples.case(), NAME)
    assert lines == [
        f"{examples.case().key}: {WAITS}",
        f"{examples.case().key}: sbatch: warning: the token is <HF_TOKEN>",
    ]


@pytest.mark.parametrize(
    ("config", "listed", "words"),
    [
        (
            "MaxJobCount = 3",
            "1\n2\n3_0\n",
            r"; Slurm has as many jobs as it may have \(MaxJobCount 3\): sbatch waits",
        ),
        ("MaxJobCount = 3", "1\n2\n", "nothing$"),
        ("maintenance", "1\n2\n", "nothing$"),
    ],
)
def test_a_launcher_whose_sbatch_waits_unheard_says_that_slurm_is_full(
    monkeypatch: pytest.MonkeyPatch, config: str, listed: str, words: str
) -> None:
    """NeMo-Run keeps to itself what sbatch says."""

    def run(self: SshConnection, script: str, **how: object) -> Answer:
        if "scontrol show config" in script:
            return Answer(0, config + "\n", "")
        return Answer(0, listed, "") if "squeue" in script else Answer(124, "", "")

    monkeypatch.setattr(SshConnection, "run", run)
    backend = SlurmBackend("big-one", section(prologue=""), [examples.llama3()])
    with pytest.raises(Unreachable, match=f"no answer within 600 s: status 124: .*{words}"):
        backend.submit(examples.case(), NAME)


# Source: nemo_run/run/experiment.py, `os.makedirs(self._exp_dir, exist_ok=False)`.
TAKEN = (
    "FileExistsError: [Errno 17] File exists: '/stage/experiments/pretrain_llama3/pretrain_llama3_1764350000'"
)


@pytest.mark.parametrize("living", ["", "4711"])
def test_a_launch_in_the_second_of_another_is_launched_again(
    monkeypatch: pytest.MonkeyPatch, living: str
) -> None:
    bounds, lines, pauses = list[float](), list[str](), list[float]()

    def run(self: SshConnection, script: str, **how: object) -> Answer:
        if "squeue" in script:
            return Answer(0, f"{living}|{NAME}|RUNNING||None|||||\n" if living else "", "")
        bounds.extend(float(text) for text in re.findall(r"kill-after=20 (\S+)", script))
        if len(bounds) < 3:
            return Answer(1, "", f"Traceback:\n{TAKEN}\n")
        return Answer(0, "- Job id: 4712\n- Local Directory: /logs/here\n", "")

    monkeypatch.setattr(SshConnection, "run", run)
    monkeypatch.setattr(threading.Event, "wait", lambda event, seconds: pauses.append(seconds))
    monkeypatch.setattr(launcher, "end_all", lambda *asked: (" All were cancelled.", False))
    backend = SlurmBackend("big-one", section(prologue=""), [examples.llama3()])
    backend.notify = lines.append
    if living:
        # Whatever the launcher says: it has submitted a job.
        with pytest.raises(SubmitError, match="named 0 job ids"):
            backend.submit(examples.case(), NAME)
        assert len(bounds) == 1
        return
    assert backend.submit(examples.case(), NAME).id == "4712"
    assert (
        lines == [f"{examples.case().key}: another launch began in the same second: launching it again"] * 2
    )
    assert all(pause >= 1 for pause in pauses)
    assert 500 < bounds[2] <= bounds[1] <= bounds[0] == 600


def test_nothing_is_launched_again_once_the_session_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """It went on to the bound of the launcher, and then submitted a job."""
    launches = list[str]()

    def run(self: SshConnection, script: str, **how: object) -> Answer:
        if "squeue" in script:
            return Answer(0, "", "")
        launches.append(script)
        backend.abort_waits()
        return Answer(1, "", f"Traceback:\n{TAKEN}\n")

    monkeypatch.setattr(SshConnection, "run", run)
    backend = SlurmBackend("big-one", section(prologue=""), [examples.llama3()])
    with pytest.raises(SubmitError, match="named 0 job ids"):
        backend.submit(examples.case(), NAME)
    assert len(launches) == 1


def test_a_launcher_that_was_killed_is_not_called_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """As by the limit of memory that a login node gives each user: status 137 is also that of `timeout`."""
    monkeypatch.setattr(SshConnection, "run", lambda self, script, **how: Answer(137, "", "Killed\n"))
    backend = SlurmBackend("big-one", section(prologue=""), [examples.llama3()])
    with pytest.raises(
        Unreachable, match=r"the launcher: killed after 0 s, as by a limit of memory .* Killed"
    ):
        backend.submit(examples.case(), NAME)


CRASH = "srun: error: gpu002: task 11: Exited with exit code 1\n"


# What the tasks say stands beside the log, what srun says where the batch script writes.
@pytest.mark.parametrize("recipe", ["nemotron4", "maxtext_llama2"])
def test_what_srun_complains_of_is_read_and_its_node_is_blamed(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, recipe: str
) -> None:
    backend = SlurmBackend(
        "lab", section(stage=str(cluster.stage), prologue=""), [examples.recipe_named(recipe)]
    )
    case = examples.recipe_named(recipe).cases[0]
    stage = cluster.stage / recipe
    tools = cluster.stage / "tools"
    (stage / "logs").mkdir(parents=True)
    tools.mkdir()
    # As sbatch does: it fills in %j, and starts before there is a folder for the results.
    (tools / "sbatch").write_text(
        "#!/bin/bash\nfor option; do case $option in --output=*) out=${option#*=};; esac; done\n"
        f'[ "$SLURM_KILL_BAD_EXIT" = 1 ] && printf %s "{CRASH}" >"${{out//%j/4711}}"; echo 4711\n'
    )
    (tools / "sbatch").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    job = backend.submit(case, "pacemark-1.one")
    job = replace(job, folder=str(stage / "logs"))
    monkeypatch.setattr(Controller, "blamed", lambda self, job: "")
    assert backend.read_errors(job).decode() == CRASH
    (stage / "logs" / "log-pacemark-1.one_4711.err").write_text("RuntimeError: NCCL error\n")
    assert backend.read_errors(job).decode() == "RuntimeError: NCCL error\n" + CRASH
    assert backend.blamed(job) == "gpu002"


@pytest.mark.parametrize(
    ("case_id", "variables"),
    [
        ("405b-nvfp4-512gpus", {"DTYPE": "nvfp4", "FP8_RECIPE": None}),
        ("70b-fp8_cs-64gpus", {"DTYPE": "fp8", "FP8_RECIPE": "cs"}),
        ("70b-mxfp8-512gpus", {"DTYPE": "fp8", "FP8_RECIPE": "mx"}),
    ],
)
def test_a_launcher_gets_the_variables_of_the_dtype_and_the_type_of_gpu(
    case_id: str, variables: dict[str, str | None]
) -> None:
    recipe = load_recipe(examples.ROOT / "suites" / "llama3", "26.06.01", "b200")
    case = recipe.case(case_id)
    assert case is not None
    assert recipe.file.launch is not None
    text = Script("lab", section(gpu="b200"), recipe.file.launch, case, NAME).run({})
    exported = dict(re.findall(r"^export (\w+)=(.*)$", text, re.MULTILINE))
    assert {name: exported.get(name) for name in variables} == variables
    assert (exported["GPU_TYPE"], exported["MODEL_SIZE"]) == ("b200", case.size)
