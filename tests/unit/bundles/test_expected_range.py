"""What `verify` says of a run in which a case without a number was decided by its expected range."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pacemark.__main__ import main
from plugins.bundle import verification
from tests.unit import examples
from tests.unit.baselines.test_expected_range import without
from tests.unit.bundles import runs
from tests.unit.bundles.runs import AGAIN, Members, changed, replaced
from tests.unit.judging.test_expected_range import RANGE

Verify = Callable[..., tuple[int, str]]
PLAN = f"{runs.PLAN_TEXT}by: expected\n"
TABLE = "basis/baselines/llama3.yaml"
CHOICE = "basis/choices/llama3.json"


@pytest.fixture
def published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Pacemark that has no number for the case that ran twice."""
    root = tmp_path / "published"
    root.mkdir()
    (root / "suites").symlink_to(examples.ROOT / "suites")
    without(root / "baselines", 512)
    monkeypatch.setattr(verification, "PUBLISHED", root)
    return root


@pytest.fixture
def verify(published: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Verify:
    """The exit code and the text of `verify` on a bundle, forged by one who has the key."""
    runs.make_keys(tmp_path, "vendor")

    def verified(plan: str, forge: Callable[[Members], Members] = lambda members: members) -> tuple[int, str]:
        path = tmp_path / "run.zip"
        run = runs.make_run(tmp_path, plan, baselines=published / "baselines")
        assert main(["bundle", str(run), "-o", str(path)]) == 0
        runs.packed(runs.signed(forge(runs.unpacked(path)), tmp_path / "vendor.pem"), path)
        capsys.readouterr()
        return main(["verify", str(path), "--key", str(tmp_path / "vendor.pub")]), capsys.readouterr().out

    return verified


def test_a_range_that_decides_as_the_plan_promises_is_verified_with_a_note(
    verify: Verify,
) -> None:
    code, text = verify(PLAN)
    assert code == 0, text
    assert (
        f"note      llama3/{AGAIN}: judged by the lower end of the expected range, because nobody published"
        in text
    )
    assert (
        "note      by acceptance.yaml, the lower end of its expected range decides on a case without a"
        in text
    )
    assert "decision  accepted, by its acceptance plan: made anew" in text


def test_a_range_that_no_plan_promises_accepts_nothing(verify: Verify) -> None:
    code, text = verify(runs.PLAN_TEXT)
    assert code == 0, text
    assert "decision  incomplete, by its acceptance plan: made anew" in text
    assert f"is within the expected range, {RANGE}" in text


FORGED: dict[str, tuple[str, Callable[[Members], Members], str]] = {
    "a promise that the plan does not make": (
        runs.PLAN_TEXT,
        lambda m: changed(m, CHOICE, lambda choice: choice.update(by_expected=True)),
        f"{CHOICE}: whether expected ranges decide is not as in acceptance.yaml",
    ),
    "a promise that is not kept": (
        PLAN,
        lambda m: changed(m, CHOICE, lambda choice: choice.pop("by_expected") and None),
        f"{CHOICE}: whether expected ranges decide is not as in acceptance.yaml",
    ),
    "a promise without a plan": (
        "",
        lambda m: changed(m, CHOICE, lambda choice: choice.update(by_expected=True)),
        "are judged by the promise of a plan in basis/choices/, and the run has no plan",
    ),
    "another number of the nearest scale": (
        PLAN,
        lambda m: replaced(m, TABLE, "step_time: 10, tokens", "step_time: 10.5, tokens", 99),
        f"llama3/{AGAIN}: {TABLE} is not the published one: expected range ",
    ),
    "the summary": (
        runs.PLAN_TEXT,
        lambda m: replaced(m, "summary.json", '"verdict": "no baseline"', '"verdict": "passed"'),
        "its log says: no baseline: ",
    ),
}


@pytest.mark.parametrize(("plan", "forge", "finding"), FORGED.values(), ids=FORGED)
def test_a_range_that_decides_by_a_forgery_is_found(
    plan: str, forge: Callable[[Members], Members], finding: str, verify: Verify
) -> None:
    code, text = verify(plan, forge)
    assert code != 0
    assert finding in text
