"""What varies a session's input alone: logs that are replayed, options, and words for what a machine lacks."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from google.api_core.exceptions import Forbidden

from fixtures.backends.kubernetes.gcs import Storage, Unreadable
from tests.system.support import CASE, ROOT, SELECT, Run, pacemark
from tests.unit import examples


class Site:
    """A site with GPUs that nobody published a number for, whose runs are replayed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.own = folder / "own"
        self.file = folder / "site.yaml"
        self.file.write_text('site: lab\nreplay: {gpu: b200, versions: {driver: "550.90.07"}}\n')

    def run(self, factor: float, *options: str) -> Run:
        """A session on the log of a run that takes this much longer than the usual one."""
        log = self.folder / "log.out"
        times = [factor * seconds for seconds in examples.times()]
        log.write_text("NCCL version 2.21.5+cuda12.4\n" + examples.nemo2_text(times))
        where = ("--site", str(self.file), "--site-baselines", str(self.own))
        replay = (*SELECT, "--backend", "replay", "--from", str(log))
        return pacemark(*replay, *where, *options, results=self.folder / "results")


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def test_a_number_is_recorded_then_judged_against_then_replaced(site: Site) -> None:
    first = site.run(1.0, "--record-baselines", "-n", "1")
    assert (first.status, first.verdicts) == (0, {CASE: "no baseline"}), first.out
    assert f"recorded baselines: {site.own}/llama3.yaml" in first.out
    table = (site.own / "llama3.yaml").read_text()
    for known in (f"run: {first.folder.name}", "driver: 550.90.07", "nccl: 2.21.5+cuda12.4"):
        assert known in table
    slow = site.run(1.1)
    assert (slow.status, slow.verdicts) == (1, {CASE: "too slow"}), slow.out
    assert f"baseline  recorded on site lab by run {first.folder.name}" in slow.out
    confirmed = site.run(1.01, "--record-baselines")
    assert "2 runs agree, the number stays" in confirmed.out
    # A change is shown, and fails, before anything is replaced.
    changed = site.run(0.8, "--record-baselines")
    assert changed.verdicts == {CASE: "too fast"}
    assert "too fast; --replace-baselines takes the new number" in changed.out
    replaced = site.run(0.8, "--replace-baselines")
    assert replaced.verdicts == {CASE: "no baseline"}
    assert (site.own / "llama3.yaml").read_text().count("status: expired") == 1


def test_a_number_that_could_not_be_kept_fails_the_session(site: Site) -> None:
    (site.own / "llama3.yaml").mkdir(parents=True)
    result = site.run(1.0, "--replace-baselines")
    assert (result.status, result.verdicts) == (1, {CASE: "no baseline"})
    assert f"NOT recorded in {site.own}/llama3.yaml: " in result.out


def test_a_folder_that_cannot_be_written_is_told_before_anything_runs(site: Site) -> None:
    site.own.write_text("a file where a folder should be")
    result = site.run(1.0, "--record-baselines")
    assert (result.status, "--record-baselines: cannot write to" in result.out) == (4, True), result.out


def test_logs_of_a_gpu_that_nobody_names_are_not_recorded(site: Site) -> None:
    site.file.write_text("site: lab\nreplay: {versions: {driver: x}}\n")
    result = site.run(1.0, "--record-baselines")
    assert result.status == 4
    assert "which a log does not say: name it in the site file, replay: {gpu: ...}" in result.out
    assert not site.own.exists()


def test_a_plan_is_of_the_gpu_and_release_that_a_site_of_logs_names(site: Site) -> None:
    site.file.write_text('site: lab\nreplay: {gpu: gb300, release: "26.06.01"}\n')
    run = pacemark("suites/qwen3", "--plan", "--site", str(site.file), results=site.folder / "results")
    assert run.status == 0, run.out
    assert "qwen3/235b-bf16-256gpus " in run.out
    assert "6 case(s) on site lab" in run.out


def test_allure_shows_labels_steps_attachments_and_links(site: Site) -> None:
    site.file.write_text("site: lab\nreplay: {gpu: h100}\n")
    site.own.mkdir()
    run = site.run(1.0)
    allure = run.folder / "allure"
    shown = run.allure[CASE]
    assert shown["name"] == "passed -0.4 %: 70b fp8 512 GPUs"
    labels = {label["name"]: label["value"] for label in shown["labels"]}
    story = (labels["epic"], labels["feature"], labels["story"])
    assert story == ("Llama 3.1 pre-training (NeMo 2)", "70b", "fp8")
    attached = {file["name"] for step in shown["steps"] for file in step.get("attachments", [])}
    assert {"the end of the log", "steps", "measurement"} <= attached
    assert {link["name"] for link in shown["links"]} == {"the recipe", "the baseline's source"}
    parameters = {p["name"]: p["value"] for p in shown["parameters"] if p.get("mode") != "hidden"}
    assert {"release": "25.04", "tp": "4", "gbs": "1024"}.items() <= parameters.items()
    assert [value for value in parameters.values() if re.search("['<>]", value)] == []
    assert "site=lab" in (allure / "environment.properties").read_text()
    categories = {category["name"] for category in json.loads((allure / "categories.json").read_text())}
    assert {"too slow", "too fast", "noisy", "invalid run", "infrastructure", "lost"} <= categories


@pytest.mark.parametrize(
    ("options", "status", "said"),
    [
        ([*SELECT, "--repeat-undecided", "--plan"], 0, "about 123 GPU-hours, 368 with 3 runs at most"),
        (["suites", "--release", "25.05", "--collect-only", "-q"], 0,
         "left out 12 case(s) of maxtext_llama2: maxtext_llama2 has no release 25.05; it has 24.11, 25.01"),
        ([*SELECT, "--give-up-after", "10", "--site", str(ROOT / "docs" / "sites" / "slurm.yaml")], 4,
         "--give-up-after 10: a pace is known after 20 of 50 steps at the earliest"),
        ([*SELECT, "--backend", "replay", "--from", str(ROOT / "README.md"), "--record-answers", "answers.jsonl"], 4,
         "--record-answers: a replay asks no cluster: leave it out"),
    ],
    ids=["a plan with repeats", "a release that few recipes have", "giving up too early", "recording a replay"],
)  # fmt: skip
def test_what_options_mean_is_told(tmp_path: Path, options: list[str], status: int, said: str) -> None:
    result = pacemark(*options, results=tmp_path / "results")
    assert (result.status, said in result.out) == (status, True), result.out


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ImportError("google.cloud.storage"), r"google-cloud-storage is not installed \(.* -r requirements.txt"),
        (Forbidden("no access"), r"403: no access; let this user read it \(roles/storage.objectViewer\)"),
    ],
)  # fmt: skip
def test_why_a_bucket_cannot_be_read(error: Exception, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = Storage(Path("requirements.txt"))

    def refuse(**_: object) -> None:
        raise error

    # By it no credentials are looked for.
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", "http://127.0.0.1:9")
    monkeypatch.setattr("google.cloud.storage.Client", refuse)
    with pytest.raises(Unreadable, match=words):
        storage.read("gs://a/b")


def test_an_image_without_jax_is_told_by_the_programs_own_words() -> None:
    program = [sys.executable, "-S", str(ROOT / "suites" / "proxy" / "train.py")]
    done = subprocess.run(program, capture_output=True, text=True, check=False)
    assert done.returncode == 3
    assert "has no jax or optax (No module named 'jax')" in done.stderr
    assert "name a container image that has them" in done.stderr
