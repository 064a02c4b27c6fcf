"""A site's own baselines from end to end: recorded, judged against, confirmed, changed, replaced, refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.system.support import CASE, SELECT, Run, pacemark
from tests.unit import examples

SITE = 'site: lab\nreplay: {gpu: b200, versions: {driver: "550.90.07"}}\n'


class Lab:
    """A site with GPUs that nobody published a number for, whose runs are replayed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.own = folder / "own"
        self.site = folder / "site.yaml"
        self.site.write_text(SITE)

    def run(self, factor: float, *options: str, site: bool = True, unstable: bool = False) -> Run:
        log = self.folder / "log.out"
        times = [factor * seconds for seconds in examples.times()]
        if unstable:
            times = [seconds * (1.06 if i % 2 else 0.94) for i, seconds in enumerate(times)]
        log.write_text("NCCL version 2.21.5+cuda12.4\n" + examples.nemo2_text(times))
        where = ("--site", str(self.site), "--site-baselines", str(self.own)) if site else ()
        source = ("--backend", "replay", "--from", str(log))
        return pacemark(*SELECT, *source, *where, *options, results=self.folder / "results")

    @property
    def table(self) -> str:
        path = self.own / "llama3.yaml"
        return path.read_text() if path.exists() else ""


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path)


def test_recorded_then_judged_against_then_replaced(lab: Lab) -> None:
    first = lab.run(1.0, "--record-baselines")
    assert first.status == 0, first.out
    assert first.verdicts == {CASE: "no baseline"}
    assert f"{CASE}: recorded: 10.11 s a step, last, MFU 17.32 %, spread 0.29 %" in first.out
    assert f"recorded baselines: {lab.own}/llama3.yaml" in first.out
    for known in (
        f"run: {first.folder.name}",
        "driver: 550.90.07",
        "nccl: 2.21.5+cuda12.4",
        "status: recorded",
    ):
        assert known in lab.table
    assert first.case()["recording"]["cell"]["step_time"] == 10.11

    # Without the option nothing is recorded, and the number is judged against.
    passed = lab.run(1.01)
    assert passed.verdicts == {CASE: "passed"}
    assert f"judged against: llama3 25.04 on b200 as recorded by run {first.folder.name}" in passed.out
    assert passed.case()["expected"]["recorded"]["run"] == first.folder.name
    assert passed.case()["recording"] is None
    slow = lab.run(1.1)
    assert (slow.status, slow.verdicts) == (1, {CASE: "too slow"})
    assert f"baseline  recorded on site lab by run {first.folder.name}" in slow.out
    shown = [json.loads(path.read_text()) for path in (slow.folder / "allure").glob("*-result.json")]
    assert f"recorded on site lab by run {first.folder.name}" in shown[0]["descriptionHtml"]

    confirmed = lab.run(1.01, "--record-baselines")
    assert confirmed.verdicts == {CASE: "passed"}
    assert "2 runs agree, the number stays" in confirmed.out
    assert "status: confirmed" in lab.table

    # A change is shown, and fails, before anything is replaced.
    before = lab.table
    changed = lab.run(0.8, "--record-baselines")
    assert changed.verdicts == {CASE: "too fast"}
    assert "not replaced: 10.11 s a step of run" in changed.out
    assert (
        "-> 8.088 s a step, +25.0 % throughput, too fast; --replace-baselines takes the new number"
        in changed.out
    )
    assert lab.table == before

    replaced = lab.run(0.8, "--replace-baselines")
    assert replaced.verdicts == {CASE: "no baseline"}
    assert "replaced: 10.11 s a step of run" in replaced.out
    assert lab.run(0.81).verdicts == {CASE: "passed"}
    assert lab.table.count("status: expired") == 1


def test_a_log_is_not_judged_by_what_was_recorded_from_it_nor_confirms_it(lab: Lab) -> None:
    first = lab.run(1.0, "--record-baselines")
    again = lab.run(1.0, "--record-baselines")
    assert again.verdicts == {CASE: "no baseline"}
    assert f"run {first.folder.name} recorded it from this very log" in again.out
    assert f"{CASE}: not confirmed: 10.11 s a step of run {first.folder.name}" in again.out
    assert "counts this very log already" in again.out
    assert "status: recorded" in lab.table
    lab.run(1.01, "--record-baselines")
    once = lab.table
    assert "status: confirmed" in once
    # Of the job that confirmed it, judged once more.
    twice = lab.run(1.01, "--record-baselines")
    assert twice.verdicts == {CASE: "passed"}
    assert "counts this very log already" in twice.out
    assert lab.table == once


@pytest.mark.parametrize("site", ["site: lab\n", "site: lab\nreplay: {versions: {driver: x}}\n"])
def test_logs_of_a_gpu_that_nobody_names_are_not_recorded(lab: Lab, site: str) -> None:
    lab.site.write_text(site)
    result = lab.run(1.0, "--record-baselines")
    assert result.status == 4
    assert "which a log does not say: name it in the site file, replay: {gpu: ...}" in result.out
    assert lab.table == ""


def test_a_noisy_run_is_refused_with_its_spread(lab: Lab) -> None:
    result = lab.run(1.0, "--record-baselines", unstable=True)
    assert result.verdicts == {CASE: "no baseline"}
    assert "not recorded: too noisy to be held against other runs: the settled steps scatter by" in result.out
    assert lab.table == ""


def test_a_published_number_is_not_recorded_over(lab: Lab) -> None:
    lab.site.write_text(SITE.replace("b200", "h100"))
    result = lab.run(1.0, "--record-baselines")
    assert result.verdicts == {CASE: "passed"}
    assert f"{CASE}: not recorded: llama3.yaml has a baseline for it, which wins" in result.out
    assert lab.table == ""


def test_the_workers_of_xdist_offer_and_the_controller_records(lab: Lab) -> None:
    result = lab.run(1.0, "--record-baselines", "-n", "1")
    assert result.status == 0, result.out
    assert f"{CASE}: recorded: 10.11 s a step" in result.out
    assert lab.run(1.01, "-n", "1").verdicts == {CASE: "passed"}


# Something else stands where the table should be.
def test_a_number_that_could_not_be_kept_fails_the_session(lab: Lab) -> None:
    lab.own.mkdir()
    (lab.own / "llama3.yaml").mkdir()
    result = lab.run(1.0, "--replace-baselines")
    assert result.verdicts == {CASE: "no baseline"}
    assert result.status == 1
    assert f"NOT recorded in {lab.own}/llama3.yaml: " in result.out


def test_without_a_site_there_is_nobody_to_record_for(lab: Lab) -> None:
    result = lab.run(1.0, "--record-baselines", site=False)
    assert result.status == 4
    assert "recorded baselines belong to a site: name it with --site FILE" in result.out


def test_a_folder_that_cannot_be_written_is_told_before_anything_runs(lab: Lab) -> None:
    lab.own.write_text("a file where a folder should be")
    result = lab.run(1.0, "--record-baselines")
    assert result.status == 4
    assert "--record-baselines: cannot write to" in result.out
    assert "Traceback" not in result.out
