"""Looking costs nothing: collection, --plan and mistakes touch no cluster and import nothing heavy."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.system.support import ROOT
from tests.system.support import pacemark

SITE = ROOT / "docs" / "sites" / "slurm.yaml"


def test_collection_imports_nothing_heavy(tmp_path: Path) -> None:
    code = (
        "import sys, pytest\n"
        "status = pytest.main(['suites', '--collect-only', '-q', '-p', 'no:cacheprovider'])\n"
        "print('heavy:', sorted({'kubernetes', 'paramiko', 'jax', 'optax', 'rich'} & set(sys.modules)))\n"
        "sys.exit(status)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert "58 tests collected" in done.stdout
    assert "heavy: []" in done.stdout


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


def test_a_cluster_recipe_without_a_site_says_what_to_give(tmp_path: Path) -> None:
    result = pacemark("suites/llama3", "-k", "512", results=tmp_path / "results")
    assert result.status == 4
    assert list((tmp_path / "results").iterdir()) == []
    assert "give it with --site FILE (docs/sites/ has a commented example)" in result.out
