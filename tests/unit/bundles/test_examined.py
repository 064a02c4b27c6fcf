"""What is found of a run in which nothing is wrong: its cases, its decision, and what its judgement was milder by."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest

from plugins.acceptance.scaling import UNCHOSEN
from plugins.bundle.findings import Examination, print_findings
from plugins.judging.choice import Choice
from plugins.record.plan import Decision
from plugins.record.stored import read_summary
from plugins.reports.ci_files import verdicts
from tests.system.support import pacemark
from tests.unit import examples
from tests.unit.baselines.test_expected_range import without
from tests.unit.bundles import runs
from tests.unit.bundles.changes import CHOICE, SUMMARY, choice, text
from tests.unit.bundles.runs import AGAIN, PASSED, PLAN_TEXT, SLOW, STOPPED, Change, Made, changed
from tests.unit.judging.test_expected_range import RANGE

pytestmark = pytest.mark.usefixtures("parsed_once")
LLAMA3 = "basis/baselines/llama3.yaml"
LENIENT = PLAN_TEXT.replace("slower: 0.06", "slower: 0.2")


def made_with(monkeypatch: pytest.MonkeyPatch, folder: Path, plan: str = "", **chosen: Any) -> Made:
    """The usual run of a site that has chosen this."""
    monkeypatch.setattr(runs, "Choice", partial(Choice, **chosen))
    return Made.of(runs.make_run(folder, plan))


def test_each_case_has_a_line_with_what_was_measured_and_expected(usual: Made, tmp_path: Path) -> None:
    findings = usual.examined(tmp_path)
    assert findings.cases == [
        f"llama3/{PASSED}: passed: 14.67 s a step where 14.66 s is expected, -0.1 % throughput",
        f"llama3/{SLOW}: too slow: 16.15 s a step where 14.67 s is expected, -9.2 % throughput (limit -5 %)",
        f"llama3/{AGAIN}: passed: 10.08 s a step where 10.07 s is expected, -0.1 % throughput",
        f"llama3/{STOPPED}: infrastructure: cancelled: the session was stopped",
    ]
    assert findings.notes == [
        "judged as what the site file states: llama3 25.04 on h100",
        f"by the ledger, another job had to follow llama3/{AGAIN} try 1 (node gpu017 is down)",
    ]


@pytest.mark.parametrize(
    ("agreed", "told"),
    [
        ("slower: 0.2", "slower 0.2 (the baseline's own is 0.05)"),
        ("spread: 0.2, slower: 0.2", "spread 0.2 (the baseline's own is 0.05)"),
        ("hiccups: 0.25, slower: 0.2", "hiccups 0.25 (the baseline's own is 0.125)"),
        ("faster: 0.5, slower: 0.2", "faster 0.5 (the baseline's own is 0.1)"),
    ],
)
def test_a_tolerance_that_is_milder_than_the_published_one_is_told(
    agreed: str, told: str, tmp_path: Path
) -> None:
    made = Made.of(runs.make_run(tmp_path, PLAN_TEXT.replace("slower: 0.06", agreed)))
    findings = made.examined(tmp_path / "again")
    assert (findings.wrong, findings.decision) == ([], Decision.ACCEPTED)
    notes = [note for note in findings.notes if told in note]
    (alone,) = (note for note in notes if "would be" in note)
    assert alone.startswith(f"llama3/{SLOW}: judged by the tolerance of the acceptance plan: ")
    assert alone.endswith(
        "by the baseline's own it would be too slow: 16.15 s a step where 14.67 s is expected, -9.2 % throughput (limit -5 %)"
    )
    assert [note for note in notes if f"llama3/{PASSED}, llama3/{AGAIN}: judged by the tolerance" in note]


def test_a_verdict_that_rests_on_an_agreed_tolerance_says_so_in_every_report(tmp_path: Path) -> None:
    summary = read_summary(runs.make_run(tmp_path, LENIENT))
    told = "by the baseline's own it would be too slow: "
    (slow,) = (record for record in summary.cases if record.id == f"llama3/{SLOW}")
    assert any(told in remark for remark in slow.remarks)
    assert told in verdicts(summary, 1 << 20)


@pytest.mark.parametrize(
    ("plan", "chosen", "note"),
    [
        (f"{PLAN_TEXT}scaling: 0.2\n", {}, "by acceptance.yaml, scaling may fall short of the published efficiency by 20 %"),
        (f"{PLAN_TEXT}recorded_baselines: true\n", {}, "by acceptance.yaml, numbers that this site itself recorded count"),
        ("", {"release": "25.02"}, "judged as what the site file states: llama3 25.02 (its newest is 25.04) on h100"),
        ("", {"strict_last": True}, "4 case(s) are judged by the published statistic alone (--strict-last)"),
    ],
    ids=["scaling", "recorded numbers", "an earlier release", "--strict-last"],
)  # fmt: skip
def test_what_else_makes_a_judgement_milder_is_told(
    plan: str, chosen: dict[str, Any], note: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "release" in chosen:
        recipe = examples.recipe_named("llama3", **chosen)
        monkeypatch.setattr(examples, "llama3", lambda: recipe)
        monkeypatch.setattr(examples, "case", lambda case_id: recipe.case(case_id))
    findings = made_with(monkeypatch, tmp_path, plan, **chosen).examined(tmp_path / "again")
    assert (findings.wrong, note in findings.notes) == ([], True)


def test_numbers_that_the_site_wrote_by_hand_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    published = (examples.BASELINES / "llama3.yaml").read_text()
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "llama3.yaml").write_text(published.replace("gpu: h100", "gpu: h123"))
    made = made_with(monkeypatch, tmp_path, own=str(tmp_path / "own"), gpu="h123")
    findings = made.examined(tmp_path / "again")
    note = "3 case(s) are judged by the site's own numbers, which nobody published: see basis/own/"
    assert (findings.wrong, note in findings.notes) == ([], True)


def test_models_that_the_site_added_are_told(tmp_path: Path) -> None:
    site = (examples.ROOT / "docs" / "sites" / "pytorchjob.yaml").read_text()
    (tmp_path / "site.yaml").write_text(
        site.replace("      # models:\n      #   - {", "      models:\n        - {")
    )
    case, log = "gpt3_aks/mine-fp16-16gpus", examples.ROOT / "tests/unit/public_logs/megatron_lm-0.13.txt"
    (tmp_path / case).mkdir(parents=True)
    shutil.copy(log, tmp_path / case / "log.txt")
    chosen = ("suites/gpt3_aks", "-k", "mine and 16gpus", "--site", str(tmp_path / "site.yaml"))
    replay = ("--backend", "replay", "--from", str(tmp_path))
    run = pacemark(*chosen, *replay, results=tmp_path / "results")
    assert [one["id"] for one in run.summary["cases"]] == [case], run.out
    note = "1 case(s) are of models that the site added, which nobody published: see basis/choices/"
    assert note in Made.of(run.folder).examined(tmp_path / "again").notes


def test_a_number_that_nobody_published_proves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(examples.BASELINES, tmp_path / "baselines")
    text, begin, lacking = (examples.BASELINES / "llama3.yaml").read_text().partition("lacking:\n")
    head, _, tables = text.partition("tables:\n")
    more = tables.replace("gpu: h100", "gpu: h123").replace("gpu: gb200", "gpu: h124")
    (tmp_path / "baselines" / "llama3.yaml").write_text(f"{head}tables:\n{tables}{more}{begin}{lacking}")
    monkeypatch.setattr(examples, "BASELINES", tmp_path / "baselines")
    findings = made_with(monkeypatch, tmp_path, gpu="h123").examined(tmp_path / "again")
    reason = f"llama3/{PASSED}: this Pacemark has no number for it, the bundle has one in {LLAMA3}: use a newer one, or --recipes DIR"
    assert (findings.wrong, reason in findings.cannot) == ([], True)


def test_what_probes_of_nodes_told_is_no_part_of_the_judgement(usual: Made, tmp_path: Path) -> None:
    lists = {name: list[Any]() for name in ("parts", "failed", "symptoms")}
    told = {"ending": "all alike", "headline": "no node: all are alike", "smallest": 0.05, "rounds": 4}
    isolation = {**told, **lists, "gpu_hours": 8.5, "proof": None, "command": None}
    of_case = changed(
        usual.members, f"llama3/{SLOW}/case.json", lambda case: case.update(isolation=isolation)
    )
    both = changed(of_case, SUMMARY, lambda found: found["cases"][1].update(isolation=isolation))
    assert json.loads(both[SUMMARY])["cases"][1]["id"] == f"llama3/{SLOW}"
    findings = usual.examined(tmp_path, lambda _: both)
    assert (findings.wrong, findings.cannot) == ([], [])


# The decision on an acceptance plan.


def test_the_decision_of_a_plan_is_made_anew(accepted: Made, tmp_path: Path) -> None:
    findings = accepted.examined(tmp_path)
    assert (findings.wrong, findings.decision) == ([], Decision.ACCEPTED)
    assert [note for note in findings.notes if note.startswith(f"waived: llama3/{SLOW}: too slow: ")]


FOUR = PLAN_TEXT.replace(f"llama3/{SLOW}, ", '"llama3/70b-*-128gpus", ', 1) + "number: 4\n"
UNRUN = "llama3/70b-fp8-128gpus"


@pytest.mark.parametrize(
    ("plan", "values"),
    [
        # Its logs do not tell why a case was not run. A pattern is for no case of a variant.
        (
            FOUR,
            {
                "cases": [f"llama3/{PASSED}", f"llama3/{SLOW}", UNRUN, f"llama3/{AGAIN}"],
                "missing": {UNRUN: "it was not selected", "the run": "the ledger was damaged"},
            },
        ),
        # An earlier session ran the case, and it passed.
        (PLAN_TEXT, {"missing": {f"llama3/{PASSED}": UNCHOSEN}}),
    ],
    ids=["never run", "run by an earlier session"],
)
def test_why_a_run_has_not_shown_its_plan_is_what_its_session_said(
    plan: str, values: dict[str, Any], tmp_path: Path
) -> None:
    made = Made.of(runs.make_run(tmp_path, plan))

    def undecided(summary: dict[str, Any]) -> None:
        summary["acceptance"].update(decision="incomplete", **values)

    findings = made.examined(tmp_path / "again", lambda members: changed(members, SUMMARY, undecided))
    assert (findings.wrong, findings.decision) == ([], Decision.INCOMPLETE)
    missing = [f"missing: {case}: {reason}" for case, reason in values["missing"].items()]
    assert set(missing) <= set(findings.notes)


def test_no_decision_rests_on_a_verdict_that_was_not_made_anew(accepted: Made, tmp_path: Path) -> None:
    def without_files(members: dict[str, bytes]) -> dict[str, bytes]:
        return {name: data for name, data in members.items() if not name.startswith(f"llama3/{PASSED}/")}

    assert accepted.examined(tmp_path / "gone", without_files).decision is Decision.INCOMPLETE
    none = accepted.examined(tmp_path / "none", lambda members: {**members, LLAMA3: b"no table"})
    assert (none.wrong != [], none.decision) == (True, None)
    assert "no decision was made anew: not every case can be judged" in none.notes


# A case without a number, which its expected range decides.

BY_RANGE = f"{PLAN_TEXT}by: expected\n"
Ranged = Callable[[str], tuple[Made, Path]]


@pytest.fixture(scope="module")
def ranged(tmp_path_factory: pytest.TempPathFactory) -> Ranged:
    """The run with this plan by a Pacemark that has no number for the case that ran twice; and that one's own files."""
    published = tmp_path_factory.mktemp("published")
    (published / "suites").symlink_to(examples.ROOT / "suites")
    without(published / "baselines", 512)

    @cache
    def made(plan: str) -> tuple[Made, Path]:
        folder = tmp_path_factory.mktemp("ranged")
        return Made.of(runs.make_run(folder, plan, baselines=published / "baselines")), published

    return made


def test_a_range_that_decides_as_the_plan_promises_is_verified_with_a_note(
    ranged: Ranged, tmp_path: Path
) -> None:
    made, published = ranged(BY_RANGE)
    findings = made.examined(tmp_path, published=published)
    assert (findings.wrong, findings.decision) == ([], Decision.ACCEPTED)
    notes = "\n".join(findings.notes)
    assert f"llama3/{AGAIN}: judged by the lower end of the expected range, because nobody published" in notes
    assert "by acceptance.yaml, the lower end of its expected range decides on a case without a" in notes
    assert re.search(r"no published number for 1 of \d cases: judged 1 by an expected range", notes)


def test_a_range_that_no_plan_promises_accepts_nothing(ranged: Ranged, tmp_path: Path) -> None:
    made, published = ranged(PLAN_TEXT)
    findings = made.examined(tmp_path, published=published)
    assert (findings.wrong, findings.decision) == ([], Decision.INCOMPLETE)
    assert f"is within the expected range, {RANGE}" in "\n".join([*findings.cases, *findings.notes])


OTHERWISE = f"{CHOICE}: whether expected ranges decide is not as in acceptance.yaml"


@pytest.mark.parametrize(
    ("plan", "change", "finding"),
    [
        (PLAN_TEXT, choice(by_expected=True), OTHERWISE),
        (BY_RANGE, lambda m: changed(m, CHOICE, lambda found: found.pop("by_expected") and None), OTHERWISE),
        (
            "",
            choice(by_expected=True),
            "are judged by the promise of a plan in basis/choices/, and the run has no plan",
        ),
        (
            BY_RANGE,
            text(LLAMA3, "step_time: 10, tokens", "step_time: 10.5, tokens", 99),
            f"llama3/{AGAIN}: {LLAMA3} is not the published one: expected range ",
        ),
        (
            PLAN_TEXT,
            text(SUMMARY, '"verdict": "no baseline"', '"verdict": "passed"'),
            "its log says: no baseline: ",
        ),
    ],
    ids=[
        "a promise that the plan does not make", "a promise that is not kept", "a promise without a plan",
        "another number of the nearest scale", "the summary",
    ],
)  # fmt: skip
def test_a_range_that_decides_by_a_forgery_is_found(
    plan: str, change: Change, finding: str, ranged: Ranged, tmp_path: Path
) -> None:
    made, published = ranged(plan)
    assert finding in "\n".join(made.examined(tmp_path, change, published).wrong)


def test_a_decision_that_was_made_anew_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    print_findings(Examination(decision=Decision.ACCEPTED))
    assert capsys.readouterr().out == "decision  accepted, by its acceptance plan: made anew\n"
