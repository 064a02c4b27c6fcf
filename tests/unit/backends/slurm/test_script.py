"""What the Slurm backend sends: a golden script, and real bash to see that no value breaks out of it."""

from __future__ import annotations

import os
import re
import subprocess
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

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
from plugins.record.job import JobRef
from tests.unit import examples
from tests.unit.backends.slurm.login import KEYS, Login

GOLDEN = Path(__file__).parents[2] / "golden"
NAME = "pacemark-20250411-120000-ab12.llama3-70b-fp8-512gpus"
TOKEN = "hf_S3cret'\"$(id)"
NASTY = [
    "plain", "", "two words", "it's", 'say "hi"', "$(touch pwned)", "`touch pwned`", "; touch pwned #", "a\ntouch pwned\n",
    "$HOME ${PATH}", "'; touch pwned; '", "\\", "\\'", "!! *?[a-z] ~", "{gpus}", "héllo → 世界", "tab\there", "-n",
]  # fmt: skip


def section(**keys: object) -> Slurm:
    fixed = {
        **KEYS,
        "account": "research",
        "partition": "gpu",
        "stage": "/lustre/nemo",
        "gres": "gpu:8",
        "prologue": "module load slurm",
        "environment": {"NCCL_IB_HCA": "=mlx5_0,mlx5_1", "WHO": "it's me"},
    }
    return Slurm.model_validate(fixed | keys)


def backend(recipe: str = "llama3", **keys: Any) -> SlurmBackend:
    return SlurmBackend("big-one", section(**keys), [examples.recipe_named(recipe)])


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


class Cluster(Login):
    """A login node whose launcher writes down the environment that it was called with."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(root, monkeypatch, "slurm's tools")
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        self.folder = self.stage / "llama3.1"
        self.folder.mkdir(parents=True)
        (self.stage / "venv" / "bin").mkdir(parents=True)
        (self.stage / "venv" / "bin" / "activate").touch()
        self.tool("squeue")
        self.launches(
            "env -0 > environment\necho '- Job id: 4711'\necho '- Local Directory: /logs/here'\n"
            "[ -z \"$(type -P sbatch)\" ] || PATH=/its/own:$PATH sbatch --parsable 'my job.sh'"
        )

    def launches(self, bash: str) -> None:
        """Let this be the launcher."""
        path = self.folder / "launch.sh"
        path.write_text(f"#!/bin/bash\n{bash}\n")
        path.chmod(0o755)

    def slurm(self, **keys: Any) -> SlurmBackend:
        return backend(stage=str(self.stage), prologue="", **keys)

    def submit(self, **keys: Any) -> dict[str, str]:
        """The environment in which the launcher ran."""
        job = self.slurm(**keys).submit(examples.case(), NAME)
        assert job == JobRef("llama3", "70b-fp8-512gpus", NAME, "4711", "/logs/here")
        text = (self.folder / "environment").read_text()
        return dict(pair.partition("=")[::2] for pair in text.split("\0") if pair)

    def refusal(self, **keys: Any) -> str:
        with pytest.raises(SubmitError) as caught:
            self.submit(**keys)
        return str(caught.value)


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    return Cluster(tmp_path, monkeypatch)


@pytest.mark.parametrize(
    ("recipe", "case_id"),
    [
        ("llama3", "70b-fp8-512gpus"),
        ("nemotron4", "340b-bf16-128gpus"),
        ("maxtext_llama2", "70b-fp8-1024gpus"),
    ],
)
def test_the_script_is_the_golden_one(recipe: str, case_id: str) -> None:
    """It has no secret: for HF_TOKEN there is a reference."""
    name = NAME.replace("llama3-70b-fp8-512gpus", f"{recipe}-{case_id}")
    golden = GOLDEN / f"{recipe}-{case_id}.sh"
    assert backend(recipe).plan(examples.case(case_id, recipe), name) == golden.read_text()


@pytest.mark.parametrize(
    ("case_id", "environment", "named"),
    [
        ("8b-fp8-16gpus", {}, ["NCCL_DEBUG=INFO", "NCCL_DEBUG_SUBSYS=INIT"]),
        ("8b-fp8-16gpus", {"NCCL_DEBUG": "WARN"}, ["NCCL_DEBUG=WARN", "NCCL_DEBUG_SUBSYS=INIT"]),
        ("8b-fp8-8gpus", {}, []),
        ("8b-nccl-trace-fp8-16gpus", {}, []),
    ],
)
def test_a_timed_run_of_several_nodes_has_nccl_name_its_network(
    case_id: str, environment: dict[str, str], named: list[str]
) -> None:
    """Unless the site has it say something else."""
    lines = backend(environment=environment).plan(examples.case(case_id), NAME).splitlines()
    assert [line.removeprefix("export ") for line in lines if "NCCL_DEBUG" in line] == named


@pytest.mark.parametrize("recipe", ["nemotron4", "maxtext_llama2"])
def test_a_recipe_has_a_stage_of_its_own_where_the_site_says_so(recipe: str) -> None:
    case, launch = examples.recipe_named(recipe).cases[0], examples.recipe_named(recipe).file.launch
    assert launch is not None
    slurm = section(recipes={recipe: {"stage": "/scratch/ready/", "folder": "/home/me/recipe"}})
    words = Script("big-one", slurm, launch, case).words
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


# The verdict rests on what the recipe says it runs; a site has no say in that.
LLAMA3 = ["DTYPE", "MODEL_SIZE", "JOB_TOTAL_GPUS", "MAX_STEPS", "ENABLE_PROFILE"]
# What would change the GPUs of a node behind launch.sh's back, in the login environment or in the site file.
NEMOTRON4 = ["SLURM_GPUS_PER_NODE", "SBATCH_GPUS_PER_NODE", "SBATCH_GPUS"]


@pytest.mark.parametrize(
    ("recipe", "name"),
    [*(("llama3", name) for name in LLAMA3), *(("nemotron4", name) for name in NEMOTRON4)],
)
def test_a_site_does_not_override_what_the_case_is(recipe: str, name: str) -> None:
    with pytest.raises(ConfigError, match=f"slurm.environment sets {name}, which {recipe} sets itself"):
        backend(recipe, environment={name: "null"})
    if recipe == "nemotron4":
        unset = backend(recipe).plan(examples.recipe_named(recipe).cases[0], NAME)
        assert re.search(rf"^unset .*\b{name}\b", unset, re.MULTILINE)


def test_a_value_reaches_the_launcher_as_it_is(cluster: Cluster) -> None:
    values = {f"NASTY_{i}": value for i, value in enumerate(NASTY)}
    option = "a'; touch pwned; $(touch pwned) '"
    environment = cluster.submit(environment=values, gres=option, constraint=option)
    assert {name: environment[name] for name in values} == values
    assert (environment["SBATCH_GRES"], environment["SBATCH_CONSTRAINT"]) == (option, option)
    assert not list(cluster.root.rglob("pwned"))
    assert environment["PWD"] == str(cluster.folder)


# It writes down its arguments and its PATH.
SBATCH = r"""printf "%s\n" "$@" >arguments; echo "$PATH" >path"""


def test_chosen_and_excluded_nodes_reach_the_sbatch_that_the_launcher_calls(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    cluster.tool("sbatch", SBATCH)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    before, slurm, case = set(tmp_path.iterdir()), cluster.slurm(), examples.case()
    paths = set[str]()
    for submitting, excluded, options in (
        (slurm, (), []),
        (slurm, ("gpu003", "gpu007"), ["--exclude=gpu003,gpu007"]),
        (slurm.on_nodes("gpu[001-063,070]"), (), ["--nodelist=gpu[001-063,070]"]),
    ):
        submitting.submit(case, NAME, excluded)
        arguments = (cluster.folder / "arguments").read_text().splitlines()
        assert arguments == [*options, "--parsable", "my job.sh"]
        paths.add((cluster.folder / "path").read_text())
    # The job inherits it: no folder of /tmp may stand there.
    (path,) = paths
    assert path.startswith("/its/own:")
    assert set(tmp_path.iterdir()) == before


def test_a_node_that_cannot_be_excluded_is_told(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster.tool("sbatch", SBATCH)
    # As good as a /tmp that nothing may be run from: another sbatch is found first.
    monkeypatch.setenv("BASH_FUNC_sbatch%%", "() { true; }")
    with pytest.raises(SubmitError, match="cannot choose nodes"):
        cluster.slurm().submit(examples.case(), NAME, ("gpu003",))
    assert not (cluster.folder / "arguments").exists()


def test_what_would_spoil_the_run_is_unset(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [*VARIABLES, "LOAD_CHECKPOINT_PATH", "OPTIMIZATION_NAME", "OPTIMIZATION_CODE", "RUN_CONF_IMAGE"]
    for name in names:
        monkeypatch.setenv(name, "left over")
    monkeypatch.setenv("ENABLE_PROFILE", "true")
    environment = cluster.submit()
    assert [name for name in names if environment.get(name) == "left over"] == []
    assert environment["ENABLE_PROFILE"] == "false"


# Secrets


def test_the_launcher_sees_a_reference_and_the_job_the_secret(cluster: Cluster) -> None:
    environment = cluster.submit()
    assert environment["HF_TOKEN"] == "${PACEMARK_SECRET_HF_TOKEN}"
    assert environment["PACEMARK_SECRET_HF_TOKEN"] == TOKEN
    assert [name for name, value in environment.items() if TOKEN in value] == ["PACEMARK_SECRET_HF_TOKEN"]


def test_a_secret_in_the_site_file_is_refused_and_not_shown() -> None:
    with pytest.raises(ConfigError, match="HF_TOKEN") as refused:
        backend(environment={"HF_TOKEN": "hf_in_the_file"})
    assert "hf_in_the_file" not in str(refused.value)


OWN = {"WANDB_API_KEY": "local-5up3r-s3cret", "NCCL_IB_PKEY": "0x8001", "TOKENIZERS_PARALLELISM": "false"}


def test_a_secret_of_the_sites_own_is_sent_and_not_shown(cluster: Cluster) -> None:
    shown = backend(environment=OWN).plan(examples.case(), NAME)
    assert "export WANDB_API_KEY='<not shown>'\n" in shown
    assert "export NCCL_IB_PKEY=0x8001\nexport TOKENIZERS_PARALLELISM=false\n" in shown
    environment = cluster.submit(environment=OWN)
    assert {name: environment[name] for name in OWN} == OWN


def test_a_secret_in_an_error_is_cut_out(cluster: Cluster) -> None:
    cluster.launches('echo "bad token $PACEMARK_SECRET_HF_TOKEN" >&2\nexit 3')
    refusal = cluster.refusal()
    assert "hf_S3cret" not in refusal
    assert "launch.sh ended with status 3 and named 0 job ids where one is expected" in refusal
    assert "bad token <HF_TOKEN>" in refusal
    cluster.launches('echo "bad key $WANDB_API_KEY of $NCCL_IB_PKEY" >&2\nexit 3')
    assert "bad key <WANDB_API_KEY> of 0x8001" in cluster.refusal(environment=OWN)


def test_a_secret_is_sent_without_white_space(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file with line ends of Windows: bash would trace the token as $'hf_...\\r', which is another text."""
    token = "$PACEMARK_SECRET_HF_TOKEN"
    cluster.launches(f'set -x\n: "{token}"\necho "{token}"\'\r\'\nexit 3')
    monkeypatch.setenv("HF_TOKEN", f" {TOKEN}\r\n")
    refusal = cluster.refusal()
    assert "+ : '<HF_TOKEN>'\n" in refusal
    assert TOKEN not in refusal


@pytest.mark.parametrize(
    ("token", "reason"), [("", "is not set"), (" \r\n", "is not set"), ("hf_1234\n", "has 7 characters")]
)
def test_a_secret_that_cannot_be_redacted_is_refused(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, token: str, reason: str
) -> None:
    monkeypatch.setenv("HF_TOKEN", token)
    cluster.tool("scontrol")
    with pytest.raises(SiteError) as caught:
        cluster.slurm().check(examples.case())
    assert str(caught.value).count(f"HF_TOKEN {reason}") == 1
    assert "hf_1234" not in str(caught.value)


# Logs

JOB = JobRef("llama3", examples.CASE, "name", "7", "/logs")
FIRST, SECOND = "log-a-a.task_7_0.out", "log-a-a.task_7_1.out"


@pytest.fixture
def logs(monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """The files in the folder of the job's logs."""
    known: dict[str, bytes] = {}

    def read(ssh: SshConnection, path: str, offset: int, size: int) -> bytes:
        return known[Path(path).name][offset : offset + size]

    monkeypatch.setattr(files, "names", lambda ssh, folder: list(known))
    monkeypatch.setattr(files, "size", lambda ssh, path: len(known[Path(path).name]))
    monkeypatch.setattr(files, "read", read)
    return known


# What is as short as a figure is no secret.
@pytest.mark.parametrize(("token", "shown"), [(TOKEN, "*" * len(TOKEN)), ("1", "1")])
def test_a_secret_in_the_training_log_is_not_collected(
    logs: dict[str, bytes], monkeypatch: pytest.MonkeyPatch, token: str, shown: str
) -> None:
    monkeypatch.setenv("HF_TOKEN", token)
    logs[FIRST] = f"HF_TOKEN={token} wandb: {OWN['WANDB_API_KEY']} 0x8001\nstep 11.10 |\n".encode()
    piece = backend(environment=OWN).read_log(JOB, LogPlace(), ())
    assert piece.data.decode() == f"HF_TOKEN={shown} wandb: {'*' * 18} 0x8001\nstep 11.10 |\n"
    assert piece.place.offset == len(logs[FIRST])


@pytest.mark.parametrize("end", [b"Training epo\n", b"Training epoch", b"it ends like this: hf_S"])
def test_a_life_that_ends_like_the_beginning_of_a_secret_hides_no_next(
    logs: dict[str, bytes], end: bytes
) -> None:
    """What may begin a secret is held back until more comes, but after a requeue nothing more comes."""
    logs[FIRST] = end
    slurm, place = backend(), LogPlace()
    for _ in range(3):
        place = slurm.read_log(JOB, place, ()).place
    assert place.file == FIRST
    logs[SECOND] = b"the second life\n"
    piece = slurm.read_log(JOB, place, ())
    assert (piece.data, piece.place.attempt) == (b"the second life\n", 2)
    assert slurm.read_log(JOB, piece.place, ()).data == b""


def test_an_attempt_that_was_told_before_its_log_is_there_counts_once(logs: dict[str, bytes]) -> None:
    logs[FIRST] = b"the first life\n"
    slurm, place = backend(), LogPlace(attempt=2)
    assert slurm.read_log(JOB, place, ()).place == place
    logs[SECOND] = b"the second life\n"
    piece = slurm.read_log(JOB, place, ())
    assert (piece.data, piece.place.attempt) == (b"the second life\n", 2)


# Launchers

KEY = examples.case().key
STARTED = "- Job id: 4711\n- Local Directory: /logs/here\n"


class Answers:
    """What the login node says: Slurm's configuration, the queue, and the launcher, of which the last answer is repeated.

    `heard` are the lines that the launcher prints while it runs, `bounds` the seconds that each launch may take, `lines` what the
    session is told.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.config = self.queue = ""
        self.launcher: list[Answer] = []
        self.heard: list[str] = []
        self.bounds: list[float] = []
        self.lines: list[str] = []
        self.on_launch: Callable[[], None] = lambda: None
        self.slurm = backend(prologue="")
        monkeypatch.setattr(SshConnection, "run", lambda _, script, **how: self._run(script, **how))
        monkeypatch.setattr(launcher, "end_all", lambda *asked: (" All were cancelled.", False))

    def submit(self, *outputs: Answer) -> JobRef:
        self.launcher = list(outputs)
        return self.slurm.submit(examples.case(), NAME)

    def _run(self, script: str, *, heard: Hear = unheard, **how: object) -> Answer:
        if "scontrol show config" in script:
            return Answer(0 if self.config else 1, f"{self.config}\n", "")
        if "squeue" in script:
            return Answer(0, self.queue, "")
        self.bounds += map(float, re.findall(r"kill-after=20 (\S+)", script))
        self.on_launch()
        for line in self.heard:
            heard(line)
        return self.launcher.pop(0) if len(self.launcher) > 1 else self.launcher[0]


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Answers:
    return Answers(monkeypatch)


def listed(*jobs: str) -> str:
    return "".join(f"{job}|{NAME}|RUNNING||None|||||\n" for job in jobs)


def too_long(text: str) -> Answer:
    return Answer(0, text, "noise\n", left_out=5000)


@pytest.mark.parametrize("said", ["- Job id: 4711\n", "", "- Job id: 4711\n- Job id: 4712\n"])
def test_a_launcher_that_printed_too_much_has_the_job_that_squeue_shows(answers: Answers, said: str) -> None:
    answers.queue = listed("4711")
    job = answers.submit(too_long(f"{said}- Local Directory: /logs/here\n"))
    assert (job.id, job.folder) == ("4711", "/logs/here")


def test_several_jobs_of_a_launcher_that_printed_too_much_are_cancelled(answers: Answers) -> None:
    answers.queue = listed("4711", "4712")
    words = "named 2 job ids where one is expected. All were cancelled. It said, with 5000 bytes left out:"
    with pytest.raises(SubmitError, match=words):
        answers.submit(too_long(STARTED))


def test_a_launcher_that_printed_too_much_and_has_no_job_yet_is_looked_up(answers: Answers) -> None:
    words = f"5000 bytes too many to be kept, and squeue shows no job named {NAME}"
    with pytest.raises(Unreachable, match=words):
        answers.submit(too_long("- Job id: 4711\n"))


# Source: sbatch.c of Slurm 22.05, `MAX_RETRIES` and the loop around slurm_submit_batch_job.
WAITS = "sbatch: error: Slurm temporarily unable to accept job, sleeping and retrying."


def test_what_sbatch_says_while_it_waits_is_shown_at_once_and_kept(answers: Answers) -> None:
    answers.slurm.notify = answers.lines.append
    answers.heard = ["module loaded", WAITS, f"sbatch: warning: the token is {TOKEN}"]
    with pytest.raises(Unreachable, match=f"no answer within 600 s: status 124: {WAITS}$"):
        answers.submit(Answer(124, "", f"{WAITS}\n"))
    assert answers.lines == [f"{KEY}: {WAITS}", f"{KEY}: sbatch: warning: the token is <HF_TOKEN>"]


FULL = r"; Slurm has as many jobs as it may have \(MaxJobCount 3\): sbatch waits"


@pytest.mark.parametrize(
    ("config", "queue", "words"),
    [
        ("MaxJobCount = 3", "1\n2\n3_0\n", FULL),
        ("MaxJobCount = 3", "1\n2\n", "nothing$"),
    ],
)
def test_a_launcher_whose_sbatch_waits_unheard_says_that_slurm_is_full(
    answers: Answers, config: str, queue: str, words: str
) -> None:
    """NeMo-Run keeps to itself what sbatch says."""
    answers.config, answers.queue = config, queue
    with pytest.raises(Unreachable, match=f"no answer within 600 s: status 124: .*{words}"):
        answers.submit(Answer(124, "", ""))


# Source: nemo_run/run/experiment.py, `os.makedirs(self._exp_dir, exist_ok=False)`.
TAKEN = Answer(
    1,
    "",
    "Traceback:\nFileExistsError: [Errno 17] File exists: "
    "'/stage/experiments/pretrain_llama3/pretrain_llama3_1764350000'\n",
)


def test_a_launch_in_the_second_of_another_is_launched_again(
    answers: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses = list[float]()
    answers.slurm.notify = answers.lines.append
    monkeypatch.setattr(threading.Event, "wait", lambda event, seconds: pauses.append(seconds))
    assert answers.submit(TAKEN, TAKEN, Answer(0, STARTED, "")).id == "4711"
    assert answers.lines == [f"{KEY}: another launch began in the same second: launching it again"] * 2
    assert all(pause >= 1 for pause in pauses)
    first, second, third = answers.bounds
    assert 500 < third <= second <= first == 600


@pytest.mark.parametrize("reason", ["it has submitted a job", "the session ends"])
def test_nothing_is_launched_again_once_the_session_ends_or_has_a_job(answers: Answers, reason: str) -> None:
    """It went on to the bound of the launcher, and then submitted a job."""
    if reason == "the session ends":
        answers.on_launch = answers.slurm.abort_waits
    else:
        answers.queue = listed("4711")
    with pytest.raises(SubmitError, match="named 0 job ids"):
        answers.submit(TAKEN)
    assert len(answers.bounds) == 1


def test_a_launcher_that_was_killed_is_not_called_slow(answers: Answers) -> None:
    """As by the limit of memory that a login node gives each user: status 137 is also that of `timeout`."""
    words = r"the launcher: killed after 0 s, as by a limit of memory .* Killed"
    with pytest.raises(Unreachable, match=words):
        answers.submit(Answer(137, "", "Killed\n"))


CRASH = "srun: error: gpu002: task 11: Exited with exit code 1\n"


# What the tasks say stands beside the log, what srun says where the batch script writes.
@pytest.mark.parametrize("recipe", ["nemotron4", "maxtext_llama2"])
def test_what_srun_complains_of_is_read_and_its_node_is_blamed(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, recipe: str
) -> None:
    slurm = backend(recipe, stage=str(cluster.stage), prologue="")
    logs = cluster.stage / recipe / "logs"
    logs.mkdir(parents=True)
    # As sbatch does: it fills in %j, and starts before there is a folder for the results.
    cluster.tool(
        "sbatch",
        "for option; do case $option in --output=*) out=${option#*=};; esac; done\n"
        f'[ "$SLURM_KILL_BAD_EXIT" = 1 ] && printf %s "{CRASH}" >"${{out//%j/4711}}"; echo 4711',
    )
    job = replace(slurm.submit(examples.recipe_named(recipe).cases[0], "pacemark-1.one"), folder=str(logs))
    monkeypatch.setattr(Controller, "blamed", lambda self, job: "")
    assert slurm.read_errors(job).decode() == CRASH
    (logs / "log-pacemark-1.one_4711.err").write_text("RuntimeError: NCCL error\n")
    assert slurm.read_errors(job).decode() == "RuntimeError: NCCL error\n" + CRASH
    assert slurm.blamed(job) == "gpu002"


@pytest.mark.parametrize(
    ("key", "release", "variables"),
    [
        ("llama3/405b-nvfp4-512gpus", "26.06.01", {"DTYPE": "nvfp4", "FP8_RECIPE": None}),
        ("llama3/70b-mxfp8-512gpus", "26.06.01", {"DTYPE": "fp8", "FP8_RECIPE": "mx"}),
        # Qwen3's launch.sh hands it on as the whole precision.
        ("qwen3/30b-mxfp8-8gpus", "26.08.00", {"DTYPE": "fp8", "FP8_RECIPE": "fp8_mx"}),
        ("deepseek_v3/671b-proxy-mxfp8-8gpus", "26.08.00", {"PROXY_WORKLOAD": "true", "FP8_RECIPE": "mx"}),
        ("deepseek_v3/671b-mxfp8-512gpus", "26.08.00", {"PROXY_WORKLOAD": None, "CPU_PERF_PROXY": None, "DISABLE_CG": None}),
    ],
)  # fmt: skip
def test_a_launcher_gets_the_variables_of_the_dtype_the_size_and_the_type_of_gpu(
    key: str, release: str, variables: dict[str, str | None]
) -> None:
    name, _, case_id = key.partition("/")
    recipe = examples.recipe_named(name, release, "b200")
    case, launch = recipe.case(case_id), recipe.file.launch
    assert case is not None
    assert launch is not None
    text = Script("lab", section(gpu="b200"), launch, case, NAME).run({})
    unset, exported = (
        re.findall(r"^unset (.*)$", text, re.MULTILINE),
        dict(re.findall(r"^export (\w+)=(.*)$", text.rpartition("\nunset ")[2], re.MULTILINE)),
    )
    assert {name: exported.get(name) for name in variables} == variables
    if release == "26.08.00":
        assert {"LLMB_MBRIDGE_EXTRA_ARGS", "PROXY_WORKLOAD", "CPU_PERF_PROXY", "DISABLE_CG"} < {
            *unset[-1].split()
        }
    assert (exported["GPU_TYPE"], exported["MODEL_SIZE"]) == ("b200", case.model_name)
