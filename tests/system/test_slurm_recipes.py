"""The recipes that sbatch launches, on a real Slurm cluster: submitted, followed, read, and judged."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest

from fixtures.backends.base import LogPlace
from fixtures.backends.slurm.backend import SlurmBackend
from fixtures.backends.slurm.section import Slurm
from fixtures.site import load_site
from plugins.base.errors import Unreachable
from plugins.recipes.cases import Case
from plugins.recipes.expansion import load_recipe
from plugins.record.job import JobRef, Phase
from tests.lab.slurm import SlurmLab
from tests.lab.stage import Stage
from tests.system.support import ROOT, SELECT, TOKEN, finish, pacemark, site_file, start, until

SMALLEST = {"nemotron4": "340b-bf16-128gpus", "maxtext_llama2": "70b-bf16-64gpus"}
PUBLISHED = {"nemotron4": (4.61, 28432, 55.38), "maxtext_llama2": (6.999, 74909, 52.59)}
LOGS = {
    "nemotron4": "nemotron4/results/24.11/bf16/340b/128",
    "maxtext_llama2": "maxtext_llama2/results/25.01/bf16/70b/64",
}
SETUP_MAKES = {
    "nemotron4": {"launch.sh", "configure.sh", "cfg", "nvidia+nemo+24.09.sqsh"},
    "maxtext_llama2": {"launch.sh", "cfg", "nvidia+jax+maxtext-2024.12.09.sqsh"},
}


def select(recipe: str) -> tuple[str, ...]:
    return (f"suites/{recipe}", "-k", SMALLEST[recipe])


@contextmanager
def backend(lab: SlurmLab, stage: Stage, folder: Path, recipe: str, **keys: str) -> Iterator[SlurmBackend]:
    site = load_site(site_file(lab, stage, folder, **keys))
    section = site.section("slurm")
    assert isinstance(section, Slurm)
    with closing(SlurmBackend(site.site, section, [load_recipe(ROOT / "suites" / recipe)])) as found:
        yield found


def case_of(recipe: str) -> Case:
    case = load_recipe(ROOT / "suites" / recipe).case(SMALLEST[recipe])
    assert case is not None
    return case


def until_known(true: Callable[[], bool], what: str) -> None:
    """As `until`; a controller that is late on a busy machine is asked again."""

    def is_true() -> bool:
        with suppress(Unreachable):
            return true()
        return False

    until(is_true, what)


def end_of(backend: SlurmBackend, job: JobRef) -> Phase:
    phases: list[Phase] = []

    def is_over() -> bool:
        phases.append(backend.poll([job])[job].phase)
        return phases[-1].over

    until_known(is_over, "the job's end")
    return phases[-1]


@pytest.mark.parametrize("recipe", list(SMALLEST))
def test_a_job_is_submitted_from_its_stage_and_its_log_is_read(
    slurm_lab: SlurmLab, tmp_path: Path, recipe: str
) -> None:
    stage = slurm_lab.stage(tmp_path.name, recipe=recipe)
    case, name = case_of(recipe), f"pacemark-{tmp_path.name}.one"
    with backend(slurm_lab, stage, tmp_path, recipe) as slurm:
        slurm.check(case)
        job = slurm.submit(case, name)
        assert job.folder == str(stage.root / LOGS[recipe])
        assert slurm.find(JobRef(case.recipe, case.id, name)) == job
        assert end_of(slurm, job) is Phase.SUCCEEDED
        piece = slurm.read_log(job, LogPlace(), ())
    assert piece.place.file == f"log-{name}_{job.id}.out"
    assert piece.data.startswith(b"GSW: ")
    last = b"global_step=49.00" if recipe == "nemotron4" else b"completed step: 49"
    assert last in piece.data
    shown = slurm_lab.jobs_ever()[-1]
    assert (shown.id, shown.name, shown.nodes) == (int(job.id), name, case.gpus // 8)
    assert list((stage.path / "results").rglob("*.err"))


@pytest.mark.parametrize("recipe", list(SMALLEST))
def test_a_job_is_never_started_twice(slurm_lab: SlurmLab, tmp_path: Path, recipe: str) -> None:
    stage = slurm_lab.stage(tmp_path.name, recipe=recipe, hang_at=1)
    case = case_of(recipe)
    with backend(slurm_lab, stage, tmp_path, recipe) as slurm:
        job = slurm.submit(case, f"pacemark-{tmp_path.name}.one")
        try:
            assert "Requeue=0" in slurm_lab.ask("scontrol", "show", "job", job.id)
            assert "TimeLimit=00:30:00" in slurm_lab.ask("scontrol", "show", "job", job.id)
        finally:
            slurm.cancel([job])
        end_of(slurm, job)


def test_singleton_does_not_serialise_two_cases(slurm_lab: SlurmLab, tmp_path: Path) -> None:
    stage = slurm_lab.stage(tmp_path.name, recipe="nemotron4", hang_at=1)
    recipe = load_recipe(ROOT / "suites" / "nemotron4")
    cases = [case for case in recipe.cases if case.gpus == 128 and case.size == "340b"]
    with backend(slurm_lab, stage, tmp_path, "nemotron4") as slurm:
        jobs = [slurm.submit(case, f"pacemark-{tmp_path.name}.{case.id}") for case in cases]
        try:
            until_known(
                lambda: {state.raw for state in slurm.poll(jobs).values()} == {"RUNNING"}, "two jobs at once"
            )
            # A step that is cancelled while its tasks are started may take Slurm a minute to end.
            until_known(
                lambda: all(b", MEMBER: " in slurm.read_log(job, LogPlace(), ()).data for job in jobs),
                "tasks of both that print",
            )
        finally:
            slurm.cancel(jobs)
        for job in jobs:
            end_of(slurm, job)


@pytest.mark.parametrize("recipe", list(SMALLEST))
def test_the_recipes_own_setup_makes_the_stage(slurm_lab: SlurmLab, tmp_path: Path, recipe: str) -> None:
    stage = slurm_lab.stage(tmp_path.name, recipe=recipe, provisioned=False)
    with backend(slurm_lab, stage, tmp_path, recipe) as slurm:
        job = slurm.provision(case_of(recipe), f"pacemark-{tmp_path.name}.setup")
        assert job is not None
        assert end_of(slurm, job) is Phase.SUCCEEDED
        assert {path.name for path in stage.path.iterdir()} >= SETUP_MAKES[recipe]
        slurm.check(case_of(recipe))


# From here on the logs are judged.


@pytest.mark.parametrize("recipe", list(SMALLEST))
def test_the_smallest_case_passes_at_the_published_pace(
    slurm_lab: SlurmLab, tmp_path: Path, recipe: str
) -> None:
    # All 128 or 64 tasks.
    site = site_file(slurm_lab, slurm_lab.stage(tmp_path.name, recipe=recipe, nodes=16), tmp_path)
    result = pacemark(*select(recipe), "--site", str(site), results=tmp_path / "results")
    assert result.status == 0, result.out
    case = result.case(f"{recipe}/{SMALLEST[recipe]}")
    found = (case["step_time"], case["tokens_per_second"], case["mfu"])
    assert found == pytest.approx(PUBLISHED[recipe], rel=0.02)
    assert (case["verdict"], case["job"]["attempts"]) == ("passed", 1)


def test_nemotrons_corrected_mfu_stands_beside_the_published_kind(
    slurm_lab: SlurmLab, tmp_path: Path
) -> None:
    stage = slurm_lab.stage(tmp_path.name, recipe="nemotron4", pace=1.1, noise=0.0)
    site = site_file(slurm_lab, stage, tmp_path)
    result = pacemark(*select("nemotron4"), "--site", str(site), results=tmp_path / "results")
    case = result.case("nemotron4/340b-bf16-128gpus")
    assert case["verdict"] == "too slow", result.out
    assert case["mfu"] / case["corrected_mfu"] == pytest.approx(1.1715, abs=0.0005)
    assert "corrected MFU 42.9" in result.out
    assert "expected 47.27 %" in result.out


@pytest.mark.promise("no wrong pass: the global batch size")
@pytest.mark.parametrize("recipe", list(SMALLEST))
def test_another_batch_size_is_an_invalid_run(slurm_lab: SlurmLab, tmp_path: Path, recipe: str) -> None:
    stage = slurm_lab.stage(tmp_path.name, recipe=recipe, gbs=16)
    site = site_file(slurm_lab, stage, tmp_path)
    result = pacemark(*select(recipe), "--site", str(site), results=tmp_path / "results")
    assert result.case(f"{recipe}/{SMALLEST[recipe]}")["verdict"] == "invalid run", result.out


def test_four_cases_of_a_recipe_run_at_once_in_spite_of_singleton(
    slurm_lab: SlurmLab, tmp_path: Path
) -> None:
    stage = slurm_lab.stage(tmp_path.name, recipe="nemotron4")
    stage.hold(10)
    site = site_file(slurm_lab, stage, tmp_path)
    process = start(
        "suites/nemotron4", "-m", "case(gpus=128)", "--site", str(site), results=tmp_path / "results"
    )
    until(
        lambda: len([job for job in slurm_lab.squeue() if job.state == "RUNNING"]) == 4, "four jobs at once"
    )
    stage.let_go()
    result = finish(process, tmp_path / "results")
    assert result.status == 0, result.out
    assert set(result.verdicts.values()) == {"passed"}


def test_two_recipes_share_a_session_and_a_site_and_set_themselves_up(
    slurm_lab: SlurmLab, tmp_path: Path
) -> None:
    before = {job.id for job in slurm_lab.jobs_ever()}
    stages = [slurm_lab.stage(tmp_path.name, recipe=recipe, provisioned=False) for recipe in SMALLEST]
    for stage in stages:
        stage.hold(10)
    site = site_file(slurm_lab, stages[0], tmp_path)
    process = start(
        *(f"suites/{recipe}" for recipe in SMALLEST), "-k", " or ".join(SMALLEST.values()), "--provision",
        "--site", str(site), results=tmp_path / "results",
    )  # fmt: skip
    cases = {f"{recipe}-{case}" for recipe, case in SMALLEST.items()}

    def running() -> set[str]:
        return {job.name.rpartition(".")[2] for job in slurm_lab.squeue() if job.state == "RUNNING"}

    until(lambda: running() == cases, "both cases at once")
    for stage in stages:
        stage.let_go()
    result = finish(process, tmp_path / "results")
    assert result.status == 0, result.out
    assert set(result.verdicts.values()) == {"passed"}
    setups = {job.name.rpartition(".")[2] for job in slurm_lab.jobs_ever() if job.id not in before}
    assert {f"{recipe}-setup" for recipe in SMALLEST} <= setups


# What is wrong is said before anything is submitted.


@pytest.mark.parametrize("recipe", list(SMALLEST))
def test_a_bare_stage_is_told_with_what_mends_it(slurm_lab: SlurmLab, tmp_path: Path, recipe: str) -> None:
    before = slurm_lab.jobs_ever()
    stage = slurm_lab.stage(tmp_path.name, recipe=recipe, provisioned=False)
    site = site_file(slurm_lab, stage, tmp_path)
    result = pacemark(*select(recipe), "--site", str(site), results=tmp_path / "results")
    assert result.verdicts == {f"{recipe}/{SMALLEST[recipe]}": "infrastructure"}
    assert f"the container image {stage.image} is missing" in result.out
    assert (
        f"cd {stage.recipe} && STAGE_PATH={stage.path} sbatch -A lab_acct -p batch -N 1 ./setup.sh"
        in result.out
    )
    assert slurm_lab.jobs_ever() == before


def test_a_launcher_of_another_recipe_or_release_is_not_run(slurm_lab: SlurmLab, tmp_path: Path) -> None:
    stage = slurm_lab.stage(tmp_path.name, recipe="nemotron4")
    launcher = stage.path / "launch.sh"
    launcher.write_text(launcher.read_text().replace("GSW_VERSION=24.11", "GSW_VERSION=25.01"))
    site = site_file(slurm_lab, stage, tmp_path)
    result = pacemark(*select("nemotron4"), "--site", str(site), results=tmp_path / "results")
    assert result.verdicts == {"nemotron4/340b-bf16-128gpus": "infrastructure"}
    assert "the launcher of release 24.11, for which the numbers hold, in the stage is missing" in result.out
    assert slurm_lab.squeue() == []


def test_null_gpus_a_node_in_the_users_profile_do_no_harm(slurm_lab: SlurmLab, tmp_path: Path) -> None:
    stage = slurm_lab.stage(tmp_path.name, recipe="nemotron4", provisioned=False)
    profile = '"export SLURM_GPUS_PER_NODE=null ENABLE_PROFILE=true SRUN_OUTPUT=/dev/null"'
    case, name = case_of("nemotron4"), f"pacemark-{tmp_path.name}"
    with backend(slurm_lab, stage, tmp_path, "nemotron4", prologue=profile) as slurm:
        setup = slurm.provision(case, f"{name}.setup")
        assert setup is not None
        assert end_of(slurm, setup) is Phase.SUCCEEDED
        job = slurm.submit(case, f"{name}.one")
        assert end_of(slurm, job) is Phase.SUCCEEDED
        assert b"global_step=49.00" in slurm.read_log(job, LogPlace(), ()).data


def test_nodes_of_four_gpus_leave_both_recipes_out(tmp_path: Path) -> None:
    site = tmp_path / "site.yaml"
    text = (ROOT / "docs" / "sites" / "slurm.yaml").read_text()
    site.write_text(text.replace("gpus_per_node: 8", "gpus_per_node: 4"))
    result = pacemark("suites/nemotron4", "--plan", "--site", str(site), results=tmp_path / "results")
    assert "left out 18 case(s) of nemotron4: the recipe needs nodes of 8 GPUs, not 4" in result.out


def test_a_job_that_died_shows_what_srun_said_and_no_secret(slurm_lab: SlurmLab, tmp_path: Path) -> None:
    stage = slurm_lab.stage(tmp_path.name, nodes=16, dead_at=3, vboost_fails=True)
    site = site_file(slurm_lab, stage, tmp_path)
    result = pacemark(*SELECT, "--site", str(site), results=tmp_path / "results")
    # Not of the step before it, on another node.
    nodes = slurm_lab.run("scontrol", "show", "hostnames", result.case()["job"]["nodes"]).split()
    assert re.findall(r"its error \| (.*): (.*)", result.out) == [
        (f"srun: error: {nodes[1]}: task 11", "Exited with exit code 1")
    ]
    kept = [path for path in result.folder.rglob("*") if path.is_file()]
    assert any(path.name == "errors.txt" for path in kept)
    assert [path for path in kept if TOKEN.encode() in path.read_bytes()] == []
    (batch,) = stage.path.glob("experiments/*/*/*/sbatch_*.out")
    assert "task 0: Exited with exit code 127" in batch.read_text()


@pytest.mark.parametrize("recipe", list(SMALLEST))
def test_a_rank_that_dies_ends_its_job_at_once_and_its_node_is_kept_out(
    slurm_lab: SlurmLab, tmp_path: Path, recipe: str
) -> None:
    # The others wait for it. Nobody gives it up: the bound is ten minutes.
    stage = slurm_lab.stage(tmp_path.name, recipe=recipe, nodes=16, dead_at=1)
    site = site_file(slurm_lab, stage, tmp_path)
    options = ("--retry-infrastructure", "1", "--exclude-failed-nodes")
    result = pacemark(*select(recipe), *options, "--site", str(site), results=tmp_path / "results")
    case = result.case(f"{recipe}/{SMALLEST[recipe]}")
    assert case["verdict"] == "infrastructure", result.out
    assert "its error | RuntimeError: CUDA error: uncorrectable ECC error encountered" in result.out
    # The tasks that srun ended are not shown: maxtext's have a shell around them, and exit with 143.
    (said,) = re.findall(r"its error \| srun: (.*)", result.out)
    assert "task 11: Exited with exit code 1" in said
    nodes = slurm_lab.run("scontrol", "show", "hostnames", case["earlier_jobs"][0]["nodes"]).split()
    assert case["job"]["excluded_nodes"] == [nodes[1]]
