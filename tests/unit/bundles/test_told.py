"""What `verify` tells of a bundle in which nothing is wrong: each case, and what its judgement was milder by."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pacemark.__main__ import main
from plugins.judging.choice import Choice
from plugins.record.stored import read_summary
from plugins.reports.ci_files import verdicts
from tests.unit import examples
from tests.unit.bundles import runs
from tests.unit.bundles.runs import AGAIN, PASSED, SLOW, STOPPED


def told(folder: Path, capsys: pytest.CaptureFixture[str], plan: str = "") -> list[str]:
    """The lines of `verify` on a bundle of the usual run."""
    runs.make_keys(folder, "vendor")
    run, path = runs.make_run(folder, plan), folder / "run.zip"
    assert main(["bundle", str(run), "--key", str(folder / "vendor.pem"), "-o", str(path)]) == 0
    capsys.readouterr()
    assert main(["verify", str(path), "--key", str(folder / "vendor.pub")]) == 0
    return capsys.readouterr().out.splitlines()


def test_each_case_has_a_line_with_what_was_measured_and_expected(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = told(tmp_path, capsys)
    assert [line for line in lines if line.startswith("case ")] == [
        f"case      llama3/{PASSED}: passed, measured 14.67 s a step, expected 14.66 s, off by -0.1 %",
        f"case      llama3/{SLOW}: too slow, measured 16.15 s a step, expected 14.67 s, off by -9.2 %",
        f"case      llama3/{AGAIN}: passed, measured 10.08 s a step, expected 10.07 s, off by -0.1 %",
        f"case      llama3/{STOPPED}: infrastructure: cancelled: the session was stopped",
    ]


@pytest.mark.parametrize(
    ("agreed", "said"),
    [
        pytest.param("slower: 0.2", "slower 0.2 (the baseline's own is 0.05)", id="twenty percent"),
        pytest.param("spread: 0.2, slower: 0.2", "spread 0.2 (the baseline's own is 0.05)", id="spread"),
        pytest.param(
            "hiccups: 0.25, slower: 0.2", "hiccups 0.25 (the baseline's own is 0.125)", id="hiccups"
        ),
        pytest.param("faster: 0.5, slower: 0.2", "faster 0.5 (the baseline's own is 0.1)", id="faster"),
    ],
)
def test_a_tolerance_that_is_milder_than_the_published_one_is_told(
    agreed: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = told(tmp_path, capsys, runs.PLAN_TEXT.replace("slower: 0.06", agreed))
    assert "decision  accepted, by its acceptance plan: made anew" in lines
    notes = [line for line in lines if line.startswith("note ") and said in line]
    (alone,) = (line for line in notes if "would be" in line)
    assert alone.startswith(f"note      llama3/{SLOW}: judged by the tolerance of the acceptance plan: ")
    assert alone.endswith(
        "by the baseline's own it would be too slow: 16.15 s a step where 14.67 s is expected, -9.2 % throughput (limit -5 %)"
    )
    assert [line for line in notes if f"llama3/{PASSED}, llama3/{AGAIN}: judged by the tolerance" in line]


def test_a_verdict_that_rests_on_an_agreed_tolerance_says_so_in_every_report(tmp_path: Path) -> None:
    run = runs.make_run(tmp_path, runs.PLAN_TEXT.replace("slower: 0.06", "slower: 0.2"))
    summary = read_summary(run)
    said = "by the baseline's own it would be too slow: "
    (slow,) = (record for record in summary.cases if record.id == f"llama3/{SLOW}")
    assert any(said in remark for remark in slow.remarks)
    assert said in verdicts(summary, 1 << 20)


MILDER: dict[str, tuple[str, dict[str, Any], str]] = {
    "scaling": (
        f"{runs.PLAN_TEXT}scaling: 0.2\n",
        {},
        "note      by acceptance.yaml, scaling may fall short of the published efficiency by 20 %",
    ),
    "recorded numbers": (
        f"{runs.PLAN_TEXT}recorded_baselines: true\n",
        {},
        "note      by acceptance.yaml, numbers that this site itself recorded count",
    ),
    "an earlier release": (
        "",
        {"release": "25.02"},
        "note      judged as what the site file states: llama3 25.02 (its newest is 25.04) on h100",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("plan", "choice", "said"), MILDER.values(), ids=MILDER)
def test_what_else_makes_a_judgement_milder_is_told(
    plan: str,
    choice: dict[str, Any],
    said: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(runs, "Choice", partial(Choice, **choice))
    if choice:
        recipe = examples.recipe_named("llama3", **choice)
        monkeypatch.setattr(examples, "llama3", lambda: recipe)
        monkeypatch.setattr(examples, "case", lambda case_id: recipe.case(case_id))
    assert said in told(tmp_path, capsys, plan)
