"""Sizes, promises and durations of checkpoints, against the published table and lines of Megatron's log."""

from __future__ import annotations

import pytest

from plugins import checkpoints
from plugins.checkpoints import GB
from plugins.checkpoints import TIB
from plugins.checkpoints import Save

# 96 layers of 12 h^2 + 13 h, the padded vocabulary of 51200 and 2048 positions, a last norm; h = 12288.
GPT3 = 96 * (12 * 12288**2 + 13 * 12288) + (51200 + 2048) * 12288 + 2 * 12288


def test_the_checkpoint_of_175b_is_nearly_what_is_published() -> None:
    assert pytest.approx(174.6e9, rel=1e-3) == GPT3
    size = checkpoints.checkpoint_bytes(GPT3)
    assert size / TIB == pytest.approx(2.22, abs=0.01)
    assert size / TIB == pytest.approx(checkpoints.PUBLISHED_TIB, rel=0.04)


# Tier, GB/s and minutes of the recipe's README.
@pytest.mark.parametrize(
    ("tier", "speed", "minutes"), [(40, 19.2, 2.04), (125, 64, 0.61), (250, 128, 0.31), (500, 256, 0.15)]
)
def test_the_published_table_follows_from_tier_and_size(tier: int, speed: float, minutes: float) -> None:
    assert checkpoints.bandwidth(tier, checkpoints.TIERS[tier]) / GB == pytest.approx(speed)
    assert round(checkpoints.published_minutes(tier), 2) == minutes
    # Its 2.3 TiB are 7 % more than it took them for.
    true = checkpoints.PUBLISHED_TIB * TIB / checkpoints.bandwidth(tier, checkpoints.TIERS[tier]) / 60
    assert true / checkpoints.published_minutes(tier) == pytest.approx(1.0737, abs=1e-3)


def test_a_small_file_system_of_a_fast_tier_is_slow() -> None:
    assert checkpoints.bandwidth(125, 16) == 2 * GB


OWN = """\
[2026-11-21 12:00:00.000000] saving checkpoint at iteration     100 to /data/checkpoints/x in torch_dist format
Storing distributed optimizer sharded state of type fully_sharded_model_space
  [2026-11-21 12:00:41.500000] successfully saved checkpoint from iteration     100 to /data/checkpoints/x
"""
STAMPED = """\
2026-11-21T12:00:00.123456789Z saving checkpoint at iteration     100 to /data/checkpoints/x in torch_dist format
2026-11-21T12:00:30Z  [2026-11-21 12:00:30] iteration      110/     200 | consumed samples:         3520 |
2026-11-21T12:00:41.623456789Z   successfully saved checkpoint from iteration     100 to /data/checkpoints/x [ t 1/8, p 1/16 ]
"""


@pytest.mark.parametrize("text", [OWN, STAMPED])
def test_a_save_lasts_from_its_first_line_to_its_last(text: str) -> None:
    (save,) = checkpoints.saves(text.splitlines())
    assert save == Save(100, 41.5, "/data/checkpoints/x")


@pytest.mark.parametrize(
    "text",
    [
        # Without any time.
        "saving checkpoint at iteration 100 to /x in torch_dist format\nsuccessfully saved checkpoint from iteration 100 to /x",
        # Never ended.
        OWN.rpartition("  [")[0],
        # Ended and never begun.
        OWN.splitlines()[-1],
        # Two clocks.
        OWN.splitlines()[0] + "\n" + STAMPED.splitlines()[-1],
        "",
    ],
)
def test_of_a_save_without_begin_end_or_time_nothing_is_said(text: str) -> None:
    assert checkpoints.saves(text.splitlines()) == []


def test_several_saves_are_told_apart() -> None:
    second = OWN.replace("12:00", "13:00").replace("    100", "    200")
    assert [save.iteration for save in checkpoints.saves((OWN + second).splitlines())] == [100, 200]


def test_megatrons_own_timer_is_read_by_the_slowest_rank() -> None:
    line = "    save-checkpoint ................................: (41234.56, 41300.00)"
    assert checkpoints.timed([line, f"2026-11-21T12:00:41.6Z {line}", "other"]) == [41.3, 41.3]


def test_a_save_is_judged_by_the_promised_bandwidth() -> None:
    size = 2.22 * TIB
    good = checkpoints.written([60.0, 41.0], size, 64 * GB)
    assert good.passed
    assert str(good) == (
        "2.22 TiB in 41.0 s, 59.5 GB/s: 93 % of the 64.0 GB/s promised (38.1 s); at least 70 % must be"
    )
    slow = checkpoints.written([60.0], size, 64 * GB)
    assert slow.passed is False
    assert slow.share == pytest.approx(0.636, abs=1e-3)
    assert checkpoints.written([60.0], size, 64 * GB, least=0.6).passed


def test_without_a_promise_there_is_no_judgement() -> None:
    save = checkpoints.written([10.0], TIB, None)
    assert (save.passed, save.share, save.expected) == (None, None, None)
    assert "no bandwidth to compare it with" in str(save)


@pytest.mark.parametrize("seconds", [[], [0.0]])
def test_nothing_saved_is_an_error(seconds: list[float]) -> None:
    with pytest.raises(ValueError, match="no checkpoint"):
        checkpoints.written(seconds, TIB, GB)
