"""Looking costs nothing: collection, --plan and mistakes touch no cluster and import nothing heavy."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.system.support import ROOT, pacemark
from tests.unit import examples
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


@pytest.mark.parametrize(
    ("more", "old", "new", "said"),
    [
        ((), "framework:", "framwork:", "baselines/llama3.yaml:5: tables.0.framwork: unknown key; did you mean 'framework'?"),
        (("-n", "2"), "tp: 4", "tp: 8", "the baseline was measured with tp 8, but llama3/recipe.yaml runs tp 4; make them agree"),
        (("--plan",), "statistic: last", "statistic: mean:35-60", "statistic mean:35-60 needs step 60, but the recipe ends at step 49"),
    ],
    ids=["key", "configuration, with workers", "statistic, at --plan"],
)  # fmt: skip
def test_a_mistake_in_a_baselines_file_is_one_clear_error(
    tmp_path: Path, more: tuple[str, ...], old: str, new: str, said: str
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
