"""How fast a checkpoint was written: read from Megatron's log, checked, and judged by what the storage promises."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from fixtures.backends.section import Workload
from fixtures.fleet.job import TrackedJob
from fixtures.fleet.watchdog import silent
from plugins.base.errors import ConfigError
from plugins.judging.evidence import SiteFacts
from plugins.judging.judgement import Judgement
from plugins.logs import Log
from plugins.logs.formats import read
from plugins.modes.checkpoints import GB
from plugins.recipes.cases import Case
from plugins.recipes.recipe_file import read_recipe
from plugins.record.job import JobRef, Phase
from plugins.record.verdict import Kind
from tests.unit import aks, examples
from tests.unit.examples import record_json
from tests.unit.fleet.test_watchdog import NOW, RUNNING, machine

CASE = aks.case("175b-checkpoint-fp16-512gpus")
SIZE = CASE.checkpoint or 0
RECIPE = read_recipe(aks.FOLDER)
TIMER = "    save-checkpoint ................................: (41234.56, 41300.00)"
FOUND = "pacemark: checkpoint of {} bytes in 1024 files in /data/checkpoints/pm-3f2a91c04b-175b-checkpoint-fp16-512gpus"


def log_of(*extra: str, steps: Sequence[str] | None = None) -> Log:
    """A run's log: its steps, and what is said of the checkpoint."""
    lines = [*(aks.log_lines(of=CASE) if steps is None else steps), *extra]
    return read("megatron_lm", iter([("\n".join(lines) + "\n").encode()]))


GOOD = log_of(TIMER, FOUND.format(SIZE))


def judged(
    log: Log = GOOD,
    promised: float | None = 64 * GB,
    *,
    of: Case = CASE,
    last: Sequence[str] = (),
    **job: Any,
) -> Judgement:
    return examples.judged(
        of,
        examples.with_facts(examples.outcome(), **job),
        log,
        None,
        last_lines=tuple(last),
        site=SiteFacts(promised=promised),
    )


# Cases


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("  steps: 20", "  steps: 25", "steps 25 is not a multiple of 10"),
        ("  steps: 20", "  steps: 10", "two at the least"),
        (
            "variants: [sharp]}\n  - {size: 30b",
            "variants: [checkpoint]}\n  - {size: 30b",
            "list it in no line",
        ),
    ],
)
def test_a_mistake_in_the_recipe_is_told(tmp_path: Path, old: str, new: str, said: str) -> None:
    text = (aks.FOLDER / "recipe.yaml").read_text()
    assert text.count(old) == 1
    (tmp_path / "recipe.yaml").write_text(text.replace(old, new))
    with pytest.raises(ConfigError, match=said):
        read_recipe(tmp_path)


# Promises


@pytest.mark.parametrize(
    ("given", "promised"),
    [
        ({}, None),
        ({"storage": "amlfs"}, None),
        ({"storage": "blob", "tier": "125", "capacity": "16"}, None),
        # A small file system of a fast tier is slow.
        ({"storage": "amlfs", "tier": "125", "capacity": "16"}, 2 * GB),
        ({"storage": "amlfs", "tier": "fast", "capacity": "16"}, None),
    ],
)
def test_the_promise_is_that_of_the_sites_file_system(given: dict[str, str], promised: float | None) -> None:
    assert Workload(values=given).promised(RECIPE.checkpoint) == promised
    assert Workload(values=given).promised(None) is None
    assert Workload(values=given, storage_gb_per_second=7.5).promised(None) == 7.5 * GB


# Logs


@pytest.mark.parametrize(
    "line",
    [
        "    save-checkpoint-non-persistent .................: (1.00, 2.00)",
        "    save-checkpoint ................................: (41234.56, 413",
        "    load-checkpoint ................................: (41234.56, 41300.00)",
        "pacemark: checkpoint of many bytes",
    ],
)
def test_a_save_is_timed_by_its_slowest_rank_and_another_line_tells_nothing_of_it(line: str) -> None:
    assert (GOOD.saves, GOOD.saved_bytes) == ((41.3,), SIZE)
    assert log_of(line).saves == ()
    assert log_of(line).saved_bytes is None


# Verdicts


@pytest.mark.parametrize(
    ("promised", "kind"),
    [
        (58, Kind.PASSED),
        (64, Kind.PASSED),
        (84, Kind.PASSED),
        (85, Kind.TOO_SLOW),
        (53.9, Kind.PASSED),
        (53, Kind.TOO_FAST),
        (500, Kind.NO_BASELINE),
    ],
)
def test_a_save_is_judged_by_the_promised_bandwidth(promised: float, kind: Kind) -> None:
    # 2.22 TiB in 41.3 s are 59.2 GB/s.
    assert judged(promised=promised * GB).verdict.kind is kind


def test_the_figures_stand_beside_the_published_ones() -> None:
    found = judged()
    assert found.verdict.headline == (
        "passed: 2.22 TiB in 41.3 s, 59.2 GB/s where 64 GB/s is promised, -7.5 % bandwidth"
    )
    assert [line.strip() for line in found.text.splitlines()[1:5]] == [
        "measured       41.3 s    59.2 GB/s  2.22 TiB",
        "promised       38.2 s      64 GB/s  2.22 TiB",
        "size      2.22 TiB expected of 174.6 B parameters",
        "published 0.61 min for 2.3 TiB by tier 125 with 512 TiB, which are 0.66; for comparison, not judged",
    ]
    assert found.measurement is None
    alone = judged(promised=None).verdict
    assert alone.kind is Kind.NO_BASELINE
    assert "2.22 TiB in 41.3 s, 59.2 GB/s; nothing to compare with" in alone.headline


def test_a_checkpoint_that_is_too_small_tells_nothing() -> None:
    small = aks.case("375m-checkpoint-fp16-16gpus")
    log = log_of(TIMER, FOUND.format(small.checkpoint), steps=aks.log_lines(of=small))
    found = judged(log, of=small)
    assert found.verdict.kind is Kind.NO_BASELINE
    assert "0.905 GB in 41.3 s, 0.0219 GB/s" in found.verdict.headline
    assert "too little to tell: 64 GB/s would take it in 0.014 s" in found.verdict.headline


@pytest.mark.parametrize(
    ("log", "said"),
    [
        (log_of(TIMER), "the log does not say how large the checkpoint is"),
        (log_of(FOUND.format(SIZE)), "no checkpoint was written, and one is meant"),
        (log_of(TIMER, TIMER, FOUND.format(SIZE)), "2 checkpoints were written, and one is meant"),
        (
            log_of(TIMER, FOUND.format(SIZE // 7)),
            "the checkpoint has 0.32 TiB, and one of this model with its",
        ),
        (log_of(TIMER.replace("41300", "00000"), FOUND.format(SIZE)), "in no time at all"),
        (
            log_of(TIMER, FOUND.format(SIZE), steps=aks.log_lines(of=CASE, skipped={1: 10, 2: 10})),
            "every update was skipped",
        ),
        (log_of(TIMER, FOUND.format(SIZE), steps=aks.log_lines(of=CASE, gbs=8)), "global batch size 8"),
        (log_of(TIMER, FOUND.format(SIZE), "NCCL INFO Using network Socket"), "fell back to TCP sockets"),
    ],
)
def test_another_run_than_this_one_is_no_evidence(log: Log, said: str) -> None:
    found = judged(log)
    assert found.verdict.kind is Kind.INVALID
    assert said in found.verdict.headline


def test_a_job_that_dies_in_its_save_is_the_clusters() -> None:
    found = judged(
        log_of(), raw="Failed", phase=Phase.FAILED, exit_code="1", last=["OSError: No space left on device"]
    )
    assert found.verdict.kind is Kind.INFRASTRUCTURE
    assert "its log   | OSError: No space left on device" in found.text


def test_a_job_that_fails_behind_its_save_is_judged_with_a_remark() -> None:
    found = judged(raw="Failed", phase=Phase.FAILED, exit_code="1")
    assert found.verdict.kind is Kind.PASSED
    assert "after its last step: its checkpoint is there, but look at its clean-up" in found.text


def test_the_record_has_the_checkpoint_and_no_pace() -> None:
    record = record_json(judged())
    assert record["checkpoint"] == {
        "seconds": 41.3, "bytes": SIZE, "bytes_per_second": SIZE / 41.3, "files": 0, "path": "",
        "promised_bytes_per_second": 64 * GB, "promised_seconds": SIZE / (64 * GB),
    }  # fmt: skip
    assert record["step_time"] is None
    assert record_json(judged(promised=None))["checkpoint"]["promised_seconds"] is None


def test_a_save_of_any_length_is_waited_for() -> None:
    job = TrackedJob(CASE, "jobset", JobRef(CASE.recipe, CASE.id, "name"), "megatron_lm")
    job.state, job.running, job.reading.stepped = RUNNING, NOW - 4000, NOW - 3600
    job.reading.log = log_of()
    assert silent(job, machine(), NOW) is None
    # A run that goes on behind it hangs, as any other.
    job.reading.log = GOOD
    assert silent(job, machine(), NOW) == 3600
    job.reading.log = log_of(steps=[])
    assert silent(job, machine(), NOW) is None
