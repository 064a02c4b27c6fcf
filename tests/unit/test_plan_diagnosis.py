"""What a session decides about a diagnosis: which cases, at what price, by which command; and the option itself."""

from __future__ import annotations

import argparse
import io
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from fixtures.backends.section import Machine
from fixtures.backends.slurm.section import Slurm
from fixtures.fleet.state import Symptom
from fixtures.options import _gpu_hours, contradictions
from fixtures.session.choices import ChosenCase
from fixtures.session.dry import print_plan
from fixtures.session.prospects import command, why_undiagnosable
from fixtures.session.prospects import symptom as symptom_of
from fixtures.site import THIS_MACHINE
from plugins.outcome import Outcome
from plugins.suite.judged import Judge
from tests.unit import examples
from tests.unit.chosen import choices, chosen
from tests.unit.examples import nemo2_text, times

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


def ended(folder: Path, seconds: Sequence[float], **facts: object) -> Outcome:
    log = folder / "log.txt"
    log.write_text(nemo2_text(seconds))
    return replace(examples.outcome(**facts), folder=folder, log=log)


def symptom(chosen: ChosenCase, outcome: Outcome) -> Symptom | None:
    """What to diagnose of a case that ended so."""
    return symptom_of(chosen, Judge().judge(chosen.case, outcome, chosen.setting))


def noisy() -> list[float]:
    return [seconds * (0.92, 1.0, 1.08)[i % 3] for i, seconds in enumerate(times())]


def test_a_slow_case_is_diagnosed_at_the_price_of_its_own_pace(tmp_path: Path) -> None:
    outcome = ended(tmp_path, [1.1 * seconds for seconds in times()])
    found = symptom(CHOSEN, outcome)
    assert found is not None
    assert found.headline.startswith("too slow: 11.12 s a step where 10.07 s is expected")
    assert [mode.case.variant for mode in found.modes] == ["profile", "nccl-trace"]
    # Six minutes of start, and 25 and 5 steps at the measured pace.
    assert [round(mode.minutes, 2) for mode in found.modes] == [10.63, 6.93]
    assert [round(mode.gpu_hours, 1) for mode in found.modes] == [90.7, 59.1]


def test_a_noisy_case_and_one_that_was_given_up_are_diagnosed_too(tmp_path: Path) -> None:
    found = symptom(CHOSEN, ended(tmp_path, noisy()))
    assert found is not None
    assert found.headline.startswith("noisy: ")
    slow = ended(
        tmp_path, [1.1 * seconds for seconds in times()][:30], failure="given up", message="given up"
    )
    found = symptom(CHOSEN, slow)
    assert found is not None
    assert found.headline == "too slow: given up"


@pytest.mark.parametrize(
    ("seconds", "facts"),
    [
        (times(), {}),
        ([0.8 * one for one in times()], {}),
        ([1.1 * one for one in times()][:30], {}),
        ([1.1 * one for one in times()], {"failure": "infrastructure", "message": "x"}),
        ([1.1 * one for one in times()], {"failure": "lost", "message": "x"}),
    ],
)
def test_no_other_verdict_is_diagnosed(
    tmp_path: Path, seconds: list[float], facts: dict[str, object]
) -> None:
    assert symptom(CHOSEN, ended(tmp_path, seconds, **facts)) is None


def test_all_runs_of_a_case_decide_together(tmp_path: Path) -> None:
    """One run alone is too slow, but the case is judged by both."""
    outcome = ended(tmp_path, [1.054 * seconds for seconds in times()])
    before = replace(outcome.job, failure="repeated", try_number=1)
    (tmp_path / "try-1").mkdir()
    (tmp_path / "try-1" / "log.txt").write_text(nemo2_text(times()))
    assert symptom(CHOSEN, outcome) is not None
    both = replace(outcome, earlier=(before,))
    assert symptom(CHOSEN, both) is None


def test_what_cannot_be_diagnosed_says_why(tmp_path: Path) -> None:
    gpt3 = examples.recipe_named("gpt3_aks")
    assert why_undiagnosable(CHOSEN) == ""
    assert why_undiagnosable(chosen(gpt3.cases[0], gpt3)).startswith("gpt3_aks describes no profile")
    other = "it needs jobs on given nodes and a look at their files, and slurm does not do both"
    assert why_undiagnosable(replace(CHOSEN, section=Machine(gpu="h100"))) == other
    found = symptom(
        replace(CHOSEN, section=Machine(gpu="h100")),
        ended(tmp_path, [1.1 * one for one in times()]),
    )
    assert found is not None
    assert (found.modes, found.why_none) == ((), other)


def test_the_commands_can_be_copied() -> None:
    again = command(CHOSEN, [CHOSEN.case], "--site", "my site.yaml")
    modes = CHOSEN.recipe.diagnostic_modes(CHOSEN.case)
    record = command(CHOSEN, modes, "--site", "my site.yaml", "--record-baselines")
    assert again == "pytest suites/llama3 -k '[70b-fp8-512gpus]' --site 'my site.yaml'"
    assert record == (
        "pytest suites/llama3 -k '[70b-profile-fp8-512gpus] or [70b-nccl-trace-fp8-512gpus]' "
        "--variant profile --variant nccl-trace --site 'my site.yaml' --record-baselines"
    )
    assert command(CHOSEN, [replace(CHOSEN.case, variant="sharp")]).endswith("--variant sharp")


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
    unset = dict.fromkeys(("backend", "source", "resume", "site", "nodes", "diagnose", "repeat"))
    off = dict.fromkeys(
        ("plan", "check", "gate", "collectonly", "strict_last", "repeat_undecided", "exclude_failed_nodes"),
        False,
    )
    counts = {"give_up_after": 0, "retry_infrastructure": 0}
    records = {"record_baselines": False, "replace_baselines": False}
    option = argparse.Namespace(**unset, **off, **counts, **records, keep_checkpoints=True, variant=asked)
    mistakes = list(contradictions(option, THIS_MACHINE))
    assert [mistake.endswith("give that too") for mistake in mistakes] == ([True] if refused else [])
