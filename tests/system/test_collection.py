"""Looking costs nothing: collection, --plan and mistakes touch no cluster and import nothing heavy."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.system.support import ROOT, pacemark
from tests.unit import aks, examples
from tests.unit.baselines.test_store import FILE

SITE = ROOT / "docs" / "sites" / "slurm.yaml"


def test_collection_imports_nothing_heavy(tmp_path: Path) -> None:
    code = (
        "import sys, pytest\n"
        "status = pytest.main(['suites', '--collect-only', '-q', '-p', 'no:cacheprovider'])\n"
        "print('heavy:', sorted({'kubernetes', 'paramiko', 'jax', 'optax', 'rich', 'jinja2'} & set(sys.modules)))\n"
        "sys.exit(status)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert "142/193 tests collected" in done.stdout
    assert "heavy: []" in done.stdout


def test_a_warning_inside_a_library_does_not_spoil_a_session(tmp_path: Path) -> None:
    hook = (
        "import warnings\n\ndef pytest_collection_finish():\n    warnings.warn('old', DeprecationWarning)\n"
    )
    (tmp_path / "warns.py").write_text(hook)
    session = [
        sys.executable,
        "-m",
        "pytest",
        "suites/proxy",
        "--collect-only",
        "-p",
        "no:cacheprovider",
        "-p",
        "warns",
    ]
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(session, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert "DeprecationWarning: old" in done.stdout


@pytest.mark.parametrize("option", ["--benchmark-disable", "--alluredir={folder}"])
def test_options_of_other_plugins_may_be_in_a_file(tmp_path: Path, option: str) -> None:
    # A folder `allure` in the checkout would be taken for the library.
    (tmp_path / "options").write_text(f"{option.format(folder=tmp_path / 'allure')}\n")
    result = pacemark("suites/llama3", "--collect-only", "-q", f"@{tmp_path / 'options'}", results=tmp_path)
    assert result.status == 0, result.out


@pytest.mark.parametrize(
    ("selection", "ids"),
    [
        (["-k", "70b and fp8 and 512"], ["70b-fp8-512gpus"]),
        (["-m", 'case(size="8b", dtype="bf16", gpus=16)'], ["8b-bf16-16gpus"]),
        (["-m", 'case(size="405b-proxy", gpus=32)'], ["405b-proxy-bf16-32gpus", "405b-proxy-fp8-32gpus"]),
    ],
)
def test_cases_are_selected_by_words_and_exactly(
    tmp_path: Path, selection: list[str], ids: list[str]
) -> None:
    result = pacemark("suites/llama3", "--collect-only", "-q", *selection, results=tmp_path)
    found = [
        line.partition("[")[2].rstrip("]") for line in result.out.splitlines() if "::test_pretrain[" in line
    ]
    assert found == ids


def test_the_plan_tells_nodes_time_and_price_without_a_site(tmp_path: Path) -> None:
    result = pacemark("suites/llama3", "-k", "70b and fp8 and 512", "--plan", results=tmp_path / "results")
    assert result.status == 0
    # 50 steps of 10.07 s and 6 minutes of start-up on 512 GPUs.
    assert "llama3/70b-fp8-512gpus     64   512  1024     14.4      122.8" in result.out
    assert "nothing was submitted" in result.out
    assert not (tmp_path / "results").exists()


def test_the_verbose_plan_is_the_script_that_is_sent(tmp_path: Path) -> None:
    arguments = ("suites/llama3", "-k", "70b and fp8 and 512", "--plan", "-v", "--site", str(SITE))
    result = pacemark(*arguments, results=tmp_path)
    assert "cd /lustre/me/dgxc-benchmarking/llama3.1" in result.out
    assert "export JOB_TOTAL_GPUS=512" in result.out
    assert "./launch.sh </dev/null" in result.out
    assert "hf_planted" not in result.out


def test_a_recipe_on_kubernetes_is_planned_without_a_site(tmp_path: Path) -> None:
    result = pacemark("suites/llama3_gke", "--plan", results=tmp_path)
    assert result.status == 0
    # 50 steps of 45.81 s and 12 minutes of start-up on 128 GPUs; of 512 nothing was published.
    assert "llama3_gke/70b-fp8-128gpus" in result.out
    assert ["16", "128", "1024", "50.2", "107.0"] in [line.split()[1:] for line in result.out.splitlines()]
    assert ["64", "512", "1024", "?", "?"] in [line.split()[1:] for line in result.out.splitlines()]


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ("{}", "llama3_gke needs `image`"),
        ("{image: bad image, bucket: logs}", "'bad image' is not of the form"),
    ],
    ids=["unset", "of a wrong form"],
)
def test_a_plan_that_cannot_be_made_is_one_clear_error(tmp_path: Path, values: str, said: str) -> None:
    site = tmp_path / "site.yaml"
    site.write_text(f"site: lab\njobset:\n  gpu: h100\n  recipes: {{llama3_gke: {{values: {values}}}}}\n")
    select = ("suites/llama3_gke", "-k", "fp8 and 512", "--plan", "-v", "--site", str(site))
    result = pacemark(*select, results=tmp_path / "results")
    assert result.status == 4
    assert said in result.out
    assert "Traceback" not in result.out
    assert "INTERNALERROR" not in result.out


def test_a_plan_says_how_large_a_model_is_whose_name_does_not_tell(tmp_path: Path) -> None:
    result = pacemark("suites/gpt3_aks", "--plan", "-k", "375m or 175b", results=tmp_path)
    assert result.status == 0
    rows = [line.split() for line in result.out.splitlines()]
    # Billions of parameters, nodes, GPUs, GBS; nobody has published a pace.
    assert ["gpt3_aks/375m-fp16-16gpus", "0.065", "B", "2", "16", "32", "?", "?"] in rows
    assert ["gpt3_aks/175b-fp16-512gpus", "174.6", "B", "64", "512", "8192", "?", "?"] in rows


def test_a_variant_is_collected_when_it_is_asked_for(tmp_path: Path) -> None:
    usual = pacemark("suites/gpt3_aks", "--collect-only", "-q", results=tmp_path)
    assert "43 tests collected" in usual.out
    assert "sharp" not in usual.out
    assert "checkpoint" not in usual.out
    written = pacemark("suites", "--collect-only", "-q", "--variant", "checkpoint", results=tmp_path)
    assert "231/282 tests collected" in written.out
    assert "test_checkpoint_load[405b-checkpoint-load-bf16-1024gpus]" in written.out
    assert "test_checkpoint_save[405b-checkpoint-load" not in written.out
    assert "test_checkpoint_write[175b-checkpoint-fp16-512gpus]" in written.out
    assert "test_pretrain[175b-checkpoint" not in written.out
    assert "test_checkpoint_write[175b-fp16" not in written.out
    both = pacemark("suites", "--collect-only", "-q", "--variant", "sharp", results=tmp_path)
    assert "174/225 tests collected" in both.out
    assert "test_pretrain[175b-sharp-fp16-512gpus]" in both.out
    wrong = pacemark("suites", "--collect-only", "-q", "--variant", "shrap", results=tmp_path)
    assert wrong.status == 4
    assert (
        "ERROR: --variant shrap: none of these recipes has it; known: checkpoint, nccl-trace, profile, sharp"
        in wrong.out
    )


AKS_SITE = """\
site: aks
pytorchjob:
  gpu: h100
  max_gpus: 64
  recipes:
    gpt3_aks:
      models:
        - {size: tall, layers: 24, hidden: 1024, heads: 16, sequence_length: 4096, tp: 2, gbs: 64, gpus: [16, 32]}
"""


def test_a_site_adds_models_of_its_own(tmp_path: Path) -> None:
    site = tmp_path / "site.yaml"
    site.write_text(AKS_SITE)
    result = pacemark("suites/gpt3_aks", "--plan", "-k", "tall", "--site", str(site), results=tmp_path)
    assert result.status == 0
    rows = [line.split()[:1] for line in result.out.splitlines() if line.startswith("gpt3_aks/")]
    assert rows == [["gpt3_aks/tall-fp16-16gpus"], ["gpt3_aks/tall-fp16-32gpus"]]
    site.write_text(AKS_SITE.replace("tp: 2", "tp: 3"))
    wrong = pacemark("suites/gpt3_aks", "--plan", "--site", str(site), results=tmp_path)
    assert wrong.status != 0
    assert (
        "the site's recipes.gpt3_aks.models: size tall: heads 16 is not a multiple of tp = 3 (16 = 5 x 3 + 1)"
        in wrong.out
    )


def test_a_log_of_means_is_judged_without_a_site(tmp_path: Path) -> None:
    log = tmp_path / "monday-375m-fp16-16gpus-worker-0.log"
    log.write_text("".join(f"{line}\n" for line in aks.log_lines(0.05)))
    select = ("suites/gpt3_aks", "-k", "375m and 16gpus", "--backend", "replay", "--from", str(log))
    result = pacemark(*select, "-rs", results=tmp_path / "results")
    case = result.case("gpt3_aks/375m-fp16-16gpus")
    assert (case["verdict"], case["statistic"], case["step_time"]) == ("no baseline", "mean:50-99", 0.05), (
        result.out
    )
    # Of the large model that its name is not, this would be six times as much.
    assert case["tflops_per_gpu"] == pytest.approx(32 * 4.288256e11 / 0.05 / 16 / 1e12)


def test_a_site_without_a_recipes_kind_of_cluster_leaves_it_out(tmp_path: Path) -> None:
    result = pacemark("suites", "--plan", "--site", str(SITE), results=tmp_path)
    assert result.status == 0
    assert (
        "pacemark: left out 6 case(s) of llama3_gke: llama3_gke needs a `jobset:` section, which site 'my-cluster' "
        "does not have"
    ) in result.out
    assert "llama3/70b-fp8-512gpus" in result.out
    alone = pacemark("suites/llama3_gke", "--plan", "--site", str(SITE), results=tmp_path)
    assert alone.status == 4
    assert "ERROR: llama3_gke needs a `jobset:` section, which site 'my-cluster' does not have" in alone.out


def test_a_site_leaves_out_what_it_cannot_run_and_says_so(tmp_path: Path) -> None:
    result = pacemark("suites/llama3", "--plan", "--site", str(SITE), results=tmp_path)
    assert "pacemark: left out 8 case(s) of llama3: more than max_gpus 512" in result.out
    assert "8 deselected" in result.out


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "no such file"),
        ("site: x\nslurn: {}\n", ":2: slurn: unknown key; did you mean 'slurm'?"),
        (
            "site: x\nslurm:\n  gpu: h100\n  acount: me\n",
            ":4: slurm.acount: unknown key; did you mean 'account'?",
        ),
        ("site: [\n", "not valid YAML"),
        ("\x00\x01", "not valid YAML"),
        (
            SITE.read_text().replace("  # environment:", "  environment: {DTYPE: bf16}\n  #"),
            "slurm.environment sets DTYPE, which llama3 sets itself",
        ),
        ("site: x\n", "llama3 needs a `slurm:` section, which site 'x' does not have"),
        (
            SITE.read_text().replace("gpu: h100\n", "gpu: H100\n"),
            "slurm.gpu: no table has the GPU 'H100', nor has baselines/accelerators.yaml, where a new type belongs; "
            "did you mean 'h100'?",
        ),
    ],
)
def test_a_mistake_in_the_site_file_is_one_clear_error(tmp_path: Path, text: str | None, words: str) -> None:
    path = tmp_path / "site.yaml"
    if text is not None:
        path.write_text(text)
    result = pacemark("suites/llama3", "--site", str(path), results=tmp_path / "results")
    assert result.status == 4, result.out
    assert "ERROR: " in result.out
    assert words in result.out
    assert "Traceback" not in result.out


@pytest.mark.parametrize(
    "option", ["--cancel", "--resume", "--site", "--init-site", "--release", "--site-baselines", "--from"]
)
def test_a_variable_that_is_not_set_is_no_reason_to_run_anything(tmp_path: Path, option: str) -> None:
    """`--cancel "$RUN"` with RUN unset would start the jobs that it was to end."""
    result = pacemark("suites/proxy", option, "", results=tmp_path / "results")
    assert result.status == 4, result.out
    assert f"ERROR: {option} is empty; is a variable not set?" in result.out
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize(
    ("options", "status", "words"),
    [
        # Nobody listens there.
        (["slurm://127.0.0.1:9"], 1, "@127.0.0.1:9: "),
        (
            ["slurm://login", "--sweep"],
            4,
            "--init-site does nothing else: it does not go together with --sweep",
        ),
        (["login"], 4, "--init-site login: that is neither slurm://[USER@]HOST[:PORT]"),
    ],
)
def test_a_cluster_that_cannot_be_asked_leaves_no_site_file(
    tmp_path: Path, options: list[str], status: int, words: str
) -> None:
    file = tmp_path / "site.yaml"
    result = pacemark("suites", "--init-site", *options, f"--site={file}", results=tmp_path)
    assert (result.status, words in result.out, "Traceback" in result.out) == (status, True, False), (
        result.out
    )
    assert not file.exists()


def test_a_run_that_cannot_be_read_hides_no_other(tmp_path: Path) -> None:
    (tmp_path / "results" / "20260101-000000-dead").mkdir(parents=True)
    (tmp_path / "results" / "20260101-000000-dead" / "jobs.log").touch()
    for option in ("--sweep", "--list-runs"):
        result = pacemark("suites", option, results=tmp_path / "results")
        assert result.status == (option == "--sweep"), result.out
        assert "its ledger cannot be read" in result.out
        assert "Traceback" not in result.out


def test_a_log_that_exists_is_judged_without_a_site(tmp_path: Path) -> None:
    lines = [
        f"Training epoch 0, iteration {i}/49 | lr: 7.496e-06 | global_batch_size: 1024 | global_step: {i} | "
        f"reduced_train_loss: {11.96 - i / 100:.4} | train_step_timing in s: 10.{70 + i % 3} | consumed_samples: {(i + 1) * 1024}\n"
        for i in range(50)
    ]
    log = tmp_path / "log.out"
    log.write_text("".join(lines))
    select = ("suites/llama3", "-k", "70b and fp8 and 512", "--backend", "replay", "--from", str(log))
    slow = pacemark(*select, results=tmp_path / "results")
    assert slow.verdicts == {"llama3/70b-fp8-512gpus": "too slow"}, slow.out
    assert f"judged from {log}, the one file that was given\n" in slow.out
    assert slow.out.count("replay: judged as llama3 25.04 on h100, which a log does not say") == 1
    log.write_text("".join(line.replace("in s: 10.7", "in s: 10.0") for line in lines))
    passed = pacemark(*select, results=tmp_path / "the second")
    assert passed.verdicts == {"llama3/70b-fp8-512gpus": "passed"}
    # What it says to open the report with can be pasted into a shell.
    command = next(line for line in passed.out.splitlines() if line.startswith("allure: "))
    assert shlex.split(command)[5:] == [
        str(passed.folder / "allure"),
        "-c",
        str(passed.folder / "allurerc.json"),
    ]


def test_an_empty_selection_names_the_nearest_cases_also_of_workers(tmp_path: Path) -> None:
    result = pacemark("suites/llama3", "-k", "70b and fp8 and 500", "-n", "2", results=tmp_path / "results")
    assert result.status == 5, result.out
    said = "-k '70b and fp8 and 500' selects none of 34 case(s); the nearest: llama3/70b-fp8-512gpus, "
    assert result.out.count(said) == 1


@pytest.mark.parametrize("more", [(), ("-n", "2"), ("--plan",)], ids=["alone", "workers", "plan"])
@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("framework:", "framwork:", "baselines/llama3.yaml:5: tables.0.framwork: unknown key; did you mean 'framework'?"),
        ("tp: 4", "tp: 8", "the baseline was measured with tp 8, but llama3/recipe.yaml runs tp 4; make them agree"),
        ("statistic: last", "statistic: mean:35-60", "statistic mean:35-60 needs step 60, but the recipe ends at step 49"),
    ],
    ids=["key", "configuration", "statistic"],
)  # fmt: skip
def test_a_mistake_in_a_baselines_file_is_one_clear_error(
    tmp_path: Path, old: str, new: str, said: str, more: tuple[str, ...]
) -> None:
    checkout, log = tmp_path / "checkout", tmp_path / "log.out"
    for name in ("suites", "baselines"):
        shutil.copytree(ROOT / name, checkout / name)
    for name in ("conftest.py", "pytest.ini", "plugins", "fixtures"):
        (checkout / name).symlink_to(ROOT / name)
    assert old in FILE
    (checkout / "baselines" / "llama3.yaml").write_text(FILE.replace(old, new))
    log.write_text(examples.nemo2_text())
    select = (str(checkout / "suites" / "llama3"), "-k", "70b and fp8 and 512")
    source = ("--backend", "replay", "--from", str(log))
    result = pacemark(*select, *source, *more, results=tmp_path / "results")
    assert result.status == 4, result.out
    assert "ERROR: " in result.out
    assert said in result.out
    assert "Traceback" not in result.out
    assert "INTERNALERROR" not in result.out
    # Nothing is left of a session that never began.
    assert not list((tmp_path / "results").glob("*"))
