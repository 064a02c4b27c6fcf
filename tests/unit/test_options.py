"""What options say of a session: its plan, the command that runs a case again, and what they refuse."""

from __future__ import annotations

import argparse
import io
from dataclasses import replace
from pathlib import Path

import pytest

from fixtures.backends.slurm.section import Slurm
from fixtures.options import _gpu_hours, contradictions
from fixtures.session.dry import print_plan
from fixtures.session.prospects import command
from fixtures.site import THIS_MACHINE
from tests.unit.chosen import choices, chosen

SLURM = Slurm.model_validate(
    {"gpu": "h100", "ssh": {"host": "login"}, "account": "a", "partition": "p", "stage": "/scratch"}
)
CHOSEN = chosen(section=SLURM)


@pytest.mark.parametrize("replayed", ["", "/logs/old"])
def test_the_plan_of_a_replay_has_no_price(replayed: str) -> None:
    file = io.StringIO()
    source = Path(replayed) if replayed else None
    print_plan([CHOSEN], choices(source=source), {}, file, 120)
    head, *_, last = file.getvalue().splitlines()
    if replayed:
        assert last == "1 case(s), judged from /logs/old: no job, no GPU-hours"
        assert head.split() == ["case", "nodes", "GPUs", "GBS"]
    else:
        assert "GPU-hours; nothing was submitted" in last
        assert head.split() == ["case", "nodes", "GPUs", "GBS", "minutes", "GPU-hours"]


def test_the_command_that_runs_a_case_again_can_be_copied() -> None:
    again = command(CHOSEN, "--site", "my site.yaml")
    assert again == "pytest suites/llama3 -k '[70b-fp8-512gpus]' --site 'my site.yaml'"
    sharp = replace(CHOSEN, case=replace(CHOSEN.case, variant="sharp"))
    assert command(sharp).endswith("--variant sharp")


@pytest.mark.parametrize(("text", "hours"), [("12", 12.0), ("0.5", 0.5), ("1e3", 1000.0)])
def test_a_budget_is_a_number_of_gpu_hours(text: str, hours: float) -> None:
    assert _gpu_hours(text) == hours


@pytest.mark.parametrize("text", ["", "x", "0", "-1", "nan", "inf", "12h", "1,5"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(
        argparse.ArgumentTypeError, match=r"is no number of GPU-hours above 0, such as 12 or 0\.5"
    ):
        _gpu_hours(text)


@pytest.mark.parametrize(("asked", "refused"), [([], True), (["profile"], True), (["checkpoint"], False)])
def test_keeping_checkpoints_is_about_the_variant_that_saves_one(asked: list[str], refused: bool) -> None:
    unset = dict.fromkeys(("backend", "source", "resume", "site", "nodes", "repeat"))
    off = dict.fromkeys(
        ("plan", "check", "gate", "collectonly", "strict_last", "repeat_undecided", "exclude_failed_nodes"),
        False,
    )
    counts = {"give_up_after": 0, "retry_infrastructure": 0}
    records = {"record_baselines": False, "replace_baselines": False}
    option = argparse.Namespace(**unset, **off, **counts, **records, keep_checkpoints=True, variant=asked)
    mistakes = list(contradictions(option, THIS_MACHINE))
    assert [mistake.endswith("give that too") for mistake in mistakes] == ([True] if refused else [])
