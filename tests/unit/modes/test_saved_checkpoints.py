"""Checkpoints of Llama 3.1: judged by the log and by the files that the job left, and their load by where the loss goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from plugins.base.errors import ConfigError
from plugins.judging.evidence import Saved, SiteFacts
from plugins.judging.judgement import Judgement
from plugins.logs import Log
from plugins.logs.registry import FORMATS
from plugins.modes.artefacts import Artefacts
from plugins.modes.checkpoints import GB
from plugins.recipes.recipe_file import read_recipe
from plugins.record.case import File
from plugins.record.job import Phase
from plugins.record.verdict import Kind
from tests.printed.nemo2 import nemo2_line
from tests.unit import examples

SAVE = examples.case("70b-checkpoint-fp8-512gpus")
LOAD = examples.case("70b-checkpoint-load-fp8-512gpus")
SIZE = SAVE.checkpoint or 0
NAME = "default--None=0.0000-epoch=0-consumed_samples=51200.0"
FOLDER = "/lustre/nemo/experiments/x/x_1744382464/x/code/nemo_experiments/default/checkpoints"
NEMO = "[NeMo I 2025-04-11 14:48:45 nemo_logging:393] "
SAVED = (
    NEMO
    + "Global Checkpoint Save : Rank: {} : Iteration: 50 : Start time: 1744408121.151s : Save duration: {}s"
)
LOADED = (
    NEMO
    + "Global Checkpoint Load : Rank : {} : Start time : 1744407969.270s : Time spent in load_checkpoint: {}s"
)
RESTORED = (
    NEMO
    + "Finished restoring from RestoreConfig(path='{}', adapter_path=None, load_model_state=True), cleaning up."
)
SAVES = [SAVED.format(0, "40.000"), SAVED.format(11, "44.250"), SAVED.format(3, "41.100")]


def steps(first: float = 12.36, last: float = 11.96, count: int = 50) -> list[str]:
    """The loss falls from `first` to `last`."""
    losses = [first + (last - first) * i / max(count - 1, 1) for i in range(count)]
    return [nemo2_line(i, loss=f"{loss:.4}", last=count - 1) for i, loss in enumerate(losses)]


def log_of(*lines: str) -> Log:
    return examples.parse("\n".join(lines) + "\n")


def left(*more: File, size: int = SIZE, without: str = "", name: str = NAME, **changed: Any) -> Artefacts:
    """What 512 ranks leave: two files each, and what rank 0 writes."""
    names = [f"__{rank}_{part}.distcp" for rank in range(512) for part in range(2)]
    files = [File(name=f"{name}/weights/{file}", size=size // 1024, modified=200) for file in names]
    files += [
        File(name=f"{name}/weights/{file}", size=80, modified=200)
        for file in ("common.pt", ".metadata", "metadata.json")
        if file != without
    ]
    found = Artefacts(host="me@login01", folder=FOLDER, begun=100, free=10**13, files=(*files, *more))
    return found.model_copy(update=changed)


WHOLE = log_of(*steps(), *SAVES)


def saved(
    log: Log = WHOLE, found: Artefacts | None = None, promised: float | None = None, **job: Any
) -> Judgement:
    return examples.judged(
        SAVE, examples.with_facts(examples.outcome(), **job), log, None,
        site=SiteFacts(64, promised=promised), artefacts=found or left(),
    )  # fmt: skip


# Cases


def test_checkpoints_are_saved_and_loaded_where_upstream_tested_it() -> None:
    cases = [case for case in examples.llama3().cases if case.variant.startswith("checkpoint")]
    scales: dict[str, set[int]] = {}
    for case in cases:
        scales.setdefault(case.size, set()).add(case.gpus)
    assert scales == {
        "8b-checkpoint": {16, 32, 64, 128},
        "8b-checkpoint-load": {16, 32, 64, 128},
        "70b-checkpoint": {128, 256, 512, 1024, 2048},
        "70b-checkpoint-load": {128, 256, 512, 1024, 2048},
        "405b-checkpoint": {512, 1024, 2048},
        "405b-checkpoint-load": {1024, 2048},
    }
    assert all((case.after is not None) == case.variant.endswith("load") for case in cases)
    assert (LOAD.after, LOAD.steps, SAVE.steps) == (SAVE, 1, 50)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("gibibytes: {8b: 105,", "gibibytes: {9b: 105,", "are of the same sizes"),
        (
            "log: nemo2",
            "log: maxtext",
            "checkpoint: logs of the format maxtext do not tell how long a save took",
        ),
        ("after: checkpoint", "after: profile", "is no variant that leaves a checkpoint"),
        ("name: default--*", "name: ../*", "name"),
        ("name: default--*", "name: '*'", "name"),
        ("folder: code/nemo", "folder: ../code/nemo", "folder"),
        ("folder: code/nemo", "folder: /code/nemo", "folder"),
        ("      name: default--*\n", "", "give both folder and name"),
        (
            "gibibytes: {8b",
            "bytes_per_parameter: 14\n      gibibytes: {8b",
            "give either bytes_per_parameter or",
        ),
    ],
)
def test_a_mistake_in_the_recipe_is_told(tmp_path: Path, old: str, new: str, said: str) -> None:
    text = (examples.ROOT / "suites" / "llama3" / "recipe.yaml").read_text()
    assert text.count(old) == 1
    (tmp_path / "recipe.yaml").write_text(text.replace(old, new))
    with pytest.raises(ConfigError, match=said):
        read_recipe(tmp_path)


# The log


@pytest.mark.parametrize("name", FORMATS)
def test_a_format_says_whether_its_logs_time_a_save(name: str) -> None:
    lines = "\n".join(
        [*SAVES, "    save-checkpoint ................................: (41234.56, 41300.00)", ""]
    )
    assert FORMATS[name].times_saves == bool(examples.parse(lines, name).saves)


def test_the_slowest_rank_counts_and_each_iteration_is_a_checkpoint() -> None:
    assert WHOLE.saves == (44.25,)
    assert log_of(*SAVES, SAVES[0].replace("Iteration: 50", "Iteration: 25")).saves == (44.25, 40.0)
    assert log_of(SAVES[0].replace("Iteration: 50 : ", "")).saves == (40.0,)
    assert log_of("[rank7] using GPU 5" + SAVES[0] + SAVES[1]).saves == (44.25,)


# The save


def test_a_whole_checkpoint_passes_and_tells_its_bandwidth() -> None:
    found = saved()
    assert found.verdict.kind is Kind.PASSED
    assert found.verdict.headline.startswith("passed: 0.90 TiB in 44.2 s, 22.3 GB/s; nothing to compare with")
    assert f"files     1024 in me@login01:{FOLDER}/{NAME}" in found.text
    # The published table rounds.
    assert saved(found=left(size=14 * 70_553_706_496)).verdict.kind is Kind.PASSED


@pytest.mark.parametrize(("promised", "kind"), [(25, Kind.PASSED), (40, Kind.TOO_SLOW), (15, Kind.TOO_FAST)])
def test_it_is_judged_by_what_the_site_promises(promised: float, kind: Kind) -> None:
    assert saved(promised=promised * GB).verdict.kind is kind


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (steps(), "no checkpoint was written, and one is meant"),
        (
            [*steps(), *SAVES, SAVES[0].replace("Iteration: 50", "Iteration: 25")],
            "2 checkpoints were written",
        ),
    ],
)
def test_a_log_without_one_save_is_invalid(lines: list[str], said: str) -> None:
    assert said in saved(log_of(*lines)).verdict.headline


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (left().model_copy(update={"files": ()}), "no *.distcp file of this job is in /lustre"),
        (left(begun=300.0), "the 1027 files there are from before this job"),
        (left(without="metadata.json"), "the save was cut off: there is no metadata.json, written once every rank is done"),
        (left(size=SIZE // 2), "its 1024 files have 0.45 TiB, and a checkpoint of 70b has 0.90 TiB"),
        (left(size=8 * SIZE // 70), "have 113 GB, and a checkpoint of 70b has 0.90 TiB"),
        (left(size=SIZE * 12 // 10), "have 1.08 TiB, and"),
        (left(File(name=f"{NAME}/weights/__9_9.distcp", size=0, modified=200)), "weights/__9_9.distcp is empty"),
        (left(File(name=f"{NAME[:-4]}9.0/weights/__9_9.distcp", size=1, modified=200)), "2 checkpoints are in"),
        (left(without=".metadata", free=10**9), f"the file system of {FOLDER} is full: 1 GB are free"),
    ],
)  # fmt: skip
def test_each_way_in_which_it_is_not_whole_is_told_apart(found: Artefacts, said: str) -> None:
    judged = saved(found=found)
    assert judged.verdict.kind is Kind.INVALID
    assert said in judged.verdict.headline
    assert ("is full" in judged.verdict.headline) == ("is full" in said)


def test_a_job_that_died_while_it_saved_says_what_it_left() -> None:
    found = saved(log_of(*steps()), left(without="metadata.json", free=0), phase=Phase.FAILED, raw="FAILED")
    assert found.verdict.kind is Kind.INFRASTRUCTURE
    assert "ended FAILED on gpu[001-064] after step 49" in found.verdict.headline
    assert "the save was cut off" in found.verdict.headline
    assert "is full: 0 GB are free" in found.verdict.headline


# The load


def loaded(
    *lines: str,
    before: Log = WHOLE,
    loss: str = "11.96",
    path: str = f"{FOLDER}/{NAME}",
    found: Artefacts | None = None,
    **job: Any,
) -> Judgement:
    said = lines or (LOADED.format(0, "9.712"), RESTORED.format(path))
    return examples.judged(
        LOAD, examples.with_facts(examples.outcome(), **job), log_of(*said, nemo2_line(0, last=0, loss=loss)), None, site=SiteFacts(64), saved=Saved(before, found or left()),
    )  # fmt: skip


def test_a_load_that_goes_on_where_the_save_ended_passes() -> None:
    found = loaded()
    assert found.verdict.kind is Kind.PASSED
    assert found.verdict.headline == (
        "passed: 0.90 TiB loaded in 9.7 s, 102 GB/s; its loss of 11.96 continues 11.96, the last of the save"
    )
    assert found.measurement is None
    assert not any("new one" in remark for remark in found.verdict.remarks)


@pytest.mark.parametrize(
    ("first", "loss", "kind"),
    [
        ("12.36", "12.07", Kind.PASSED),
        # 1 % of 11.96.
        ("12.36", "12.08", Kind.INVALID),
        ("12.36", "11.80", Kind.INVALID),
        ("12.36", "12.36", Kind.INVALID),
        # Half of what it fell.
        ("12.04", "12.00", Kind.PASSED),
        ("12.04", "12.01", Kind.INVALID),
        # Two units of the last digit.
        ("11.96", "11.98", Kind.PASSED),
        ("11.96", "11.99", Kind.INVALID),
        ("11.98", "11.96", Kind.PASSED),
    ],
)
def test_the_loss_continues_that_of_the_save(first: str, loss: str, kind: Kind) -> None:
    before = log_of(*steps(float(first)), *SAVES)
    found = loaded(before=before, loss=loss)
    assert found.verdict.kind is kind, found.text
    assert kind is Kind.PASSED or f"its loss of {float(loss):.4g} does not continue" in found.verdict.headline
    # Where it hardly fell it is no proof, and told as such.
    unproved = any(
        "it does not tell a loaded model from a new one" in remark for remark in found.verdict.remarks
    )
    assert unproved == (kind is Kind.PASSED and float(first) < 12)


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (["nothing"], "the log has no line of a checkpoint's load"),
        ([LOADED.format(0, "9.712"), RESTORED.format("/lustre/other")], "it loaded /lustre/other, and /lustre/nemo"),
        (
            [LOADED.format(0, "9.712"), "number of parameters on (tensor, pipeline) model parallel rank (0, 0): 1003560960"],
            "1003560960",
        ),
    ],
)  # fmt: skip
def test_another_load_is_an_invalid_run(lines: list[str], said: str) -> None:
    found = loaded(*lines)
    assert found.verdict.kind is Kind.INVALID
    assert said in found.verdict.headline


def test_a_load_of_nobody_knows_what_is_no_evidence() -> None:
    nan = log_of(*steps()[:-1], nemo2_line(49, loss="nan"), *SAVES)
    assert "does not continue that of the save" in loaded(before=nan).verdict.headline
    assert "there is no log of 70b-checkpoint-fp8-512gpus" in loaded(before=Log()).verdict.headline
    assert "nobody knows which checkpoint" in loaded(found=left(files=())).verdict.headline


# By another rank's message.
TORN = f"{FOLDER}/de[rank10]:[W1209 14:46:02.118 x.cpp:4115]  using GPU 2.fault/{NAME}"


@pytest.mark.parametrize(
    ("lines", "named"),
    [
        ([RESTORED.format(f"{FOLDER}/{NAME}")], True),
        ([], False),
        ([RESTORED.format(TORN)], False),
    ],
)
def test_a_load_whose_log_does_not_name_the_checkpoint_is_told_as_such(lines: list[str], named: bool) -> None:
    found = loaded(LOADED.format(0, "9.712"), *lines)
    assert found.verdict.kind is Kind.PASSED
    assert ("the log does not say which checkpoint was loaded" in found.verdict.remarks) is not named


def test_a_load_whose_save_failed_is_skipped() -> None:
    found = loaded(
        failure="skipped", message="70b-checkpoint-fp8-512gpus saved nothing that can be loaded: lost"
    )
    assert found.verdict.kind is Kind.SKIPPED
    assert (
        found.verdict.headline == "skipped: 70b-checkpoint-fp8-512gpus saved nothing that can be loaded: lost"
    )
