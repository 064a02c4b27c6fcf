"""Scaling: which cases are compared, with what, and when that cannot be told."""

from __future__ import annotations

import datetime
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from plugins.acceptance.decision import decide
from plugins.acceptance.scaling import RunShown, Shown, curves, groups, scaling_beside
from plugins.bundle import examination as bundled_plan
from plugins.judging.case_record import record_of
from plugins.record.baseline import Recorded
from plugins.record.case import CaseRecord, Run
from plugins.record.plan import Agreed, Plan
from plugins.record.summary import Scaling
from plugins.record.verdict import Kind, Outcome
from tests.unit import examples

CASES = [case for case in examples.llama3().cases if (case.size, case.dtype) == ("70b", "bf16")][:3]
SMALL, MIDDLE, LARGE = (case.key for case in CASES)


def shown(*paces: float | None) -> dict[str, Shown]:
    """A run in which each case had this pace of a GPU; None: its job broke. Published are 100, 98 and 96."""
    return {
        case.key: Shown(Kind.PASSED, "passed", pace=pace * case.gpus, published=number * case.gpus)
        if pace is not None
        else Shown(Kind.INFRASTRUCTURE, "infrastructure: a node died")
        for case, pace, number in zip(CASES, paces, (100.0, 98.0, 96.0), strict=True)
    }


def record() -> CaseRecord:
    """That of a case whose steady steps took 10 s."""
    log = examples.parse(examples.nemo2_text([10.0] * 49 + [12.0]))
    return record_of(examples.judged(examples.case(), examples.outcome(), log, examples.baseline()))


def curve(
    shown: dict[str, Shown], *, tolerance: float | None = 0.05, waived: tuple[str, ...] = ()
) -> Scaling:
    [curve] = curves(CASES, shown, tolerance, waived)
    return curve


def named(recipe: str, **chosen: str) -> list[list[str]]:
    cases = [case for case in examples.recipe_named(recipe).cases if case.is_timed and not case.variant]
    cases = [case for case in cases if all(getattr(case, key) == value for key, value in chosen.items())]
    return [[case.id for case in group] for group in groups(cases)]


def test_a_session_that_judges_some_of_the_cases_again_keeps_their_scaling() -> None:
    run = shown(100.0, 80.0, 96.0)
    earlier = [curve(run)]
    assert earlier[0].short
    some = {key: value for key, value in run.items() if key != LARGE}
    without_limit = curves(CASES[:2], some)
    assert scaling_beside(earlier, without_limit, some) == tuple(earlier)
    assert scaling_beside([], without_limit, some) == tuple(without_limit)
    # One of them has run once more, or there is one more.
    again = shown(100.0, 98.0, None)
    assert scaling_beside(earlier, curves(CASES, again), again) == tuple(curves(CASES, again))
    assert scaling_beside(without_limit, curves(CASES, run), run) == tuple(curves(CASES, run))


def test_a_curve_of_more_cases_does_not_replace_what_fell_short() -> None:
    run = shown(100.0, 80.0, 96.0)
    [earlier] = curves(CASES[:2], run, 0.05)
    more = curves(CASES, run)
    assert scaling_beside([earlier], more, run) == (*more, earlier)
    assert scaling_beside([earlier, *more], more, run) == (earlier, *more)
    # It does if it judges the case itself, or if the case has run again.
    assert scaling_beside([earlier], [curve(run)], run) == (curve(run),)
    again = shown(100.0, 98.0, 96.0)
    assert scaling_beside([earlier], curves(CASES, again), again) == tuple(curves(CASES, again))


def test_what_fell_short_stays_if_another_scale_runs_again() -> None:
    earlier, again = curve(shown(100.0, 80.0, 96.0)), shown(100.0, 80.0, 97.0)
    [kept] = scaling_beside([earlier], [], {LARGE: again[LARGE]})
    assert kept.scales == earlier.scales[:2]
    assert kept.short == earlier.short
    # Its figures compare with the smallest scale.
    smaller = shown(90.0, 80.0, 96.0)
    assert scaling_beside([earlier], [], {SMALL: smaller[SMALL]}) == ()


def test_a_session_that_judges_other_scales_keeps_what_fell_short() -> None:
    earlier = curve(shown(100.0, 98.0, 80.0))
    two = shown(100.0, 98.0, 80.0)
    del two[LARGE]
    now = curves(CASES[:2], two, 0.2)
    assert scaling_beside([earlier], now, two) == (*now, earlier)


def test_a_bundle_has_each_curve_made_anew_by_its_own_smallest_scale(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundled_plan, "Shown", SimpleNamespace(of=lambda record: record))
    run, cases = shown(100.0, 98.0, 80.0), {case.key: case for case in CASES}
    made = [*curves(CASES, run), *curves(CASES[1:], run, 0.05)]
    bundled: Any = SimpleNamespace(
        summary=SimpleNamespace(scaling=made), basis=SimpleNamespace(case=cases.get)
    )
    records: dict[str, Any] = {**run}
    assert list(bundled_plan._scaling_without_plan(bundled, records)) == []
    records[LARGE] = None
    wrong = list(bundled_plan._scaling_without_plan(bundled, records))
    assert len(wrong) == 2
    assert all(LARGE in text for text in wrong)


def test_two_curves_of_the_same_size_and_dtype_stay() -> None:
    known = examples.recipe_named("deepseek_v3", gpu="h200").cases
    cases = [case for case in known if (case.size, case.dtype) == ("671b-proxy", "bf16")]
    run = {case.key: Shown(Kind.PASSED, "passed", pace=100.0, published=100.0 * case.gpus) for case in cases}
    earlier = curves(cases, run, 0.05)
    assert [made.name for made in earlier] == ["deepseek_v3/671b-proxy-bf16"] * 2
    assert all(made.short for made in earlier)
    assert scaling_beside(earlier, [], {}) == tuple(earlier)
    assert scaling_beside(earlier, curves(cases, run), run) == tuple(earlier)
    agreed = Agreed(Plan(site="lab", cases=["*"], number=len(cases), scaling=0.05), b"")
    failed = decide(agreed, cases, RunShown(run, datetime.date(2026, 11, 22)), Outcome.PASSED).failed
    assert failed == {
        f"scaling of {earlier[0].name}": "; ".join(text for made in earlier for text in made.short)
    }


def test_only_cases_with_the_same_work_of_a_gpu_are_compared() -> None:
    assert named("llama3", size="70b", dtype="fp8") == [
        [f"70b-fp8-{gpus}gpus" for gpus in (64, 128, 256, 512, 1024, 2048)]
    ]
    # The global batch size stays: strong scaling.
    assert named("llama3_gke") == []
    # Each scale has other layers.
    assert named("llama3", size="405b-proxy") == []
    assert named("proxy", size="8b-8l", dtype="bf16") == [[f"8b-8l-bf16-{gpus}gpus" for gpus in (1, 2, 4, 8)]]


def test_the_smallest_scale_comes_first_and_only_what_is_timed_is_a_scale() -> None:
    profiled = next(case for case in examples.llama3().cases if not case.is_timed)
    untimed = replace(CASES[1], mode=profiled.mode)
    assert groups([CASES[2], untimed, CASES[0]]) == [[CASES[0], CASES[2]]]


def test_the_efficiency_is_against_the_smallest_scale_and_its_limit_is_the_published_one() -> None:
    made = curve(shown(110, 104.5, 99))
    assert [scale.efficiency for scale in made.scales] == pytest.approx([1, 0.95, 0.9])
    assert [scale.published_efficiency for scale in made.scales] == pytest.approx([1, 0.98, 0.96])
    assert made.scales[0].limit is None
    assert [scale.limit for scale in made.scales[1:]] == pytest.approx([0.95 * 0.98, 0.95 * 0.96])
    assert (len(made.short), made.missing) == (1, [])
    assert made.short[0].startswith(f"{LARGE}: scaling efficiency 90.0 % against 64 GPUs")


@pytest.mark.parametrize("short", [0.0, 1e-9])
def test_the_limit_itself_is_enough(short: float) -> None:
    found = curve(shown(100, 98 * 0.95 * (1 - short), 96))
    assert bool(found.short) == bool(short)


BROKE, NOT_RUN = "infrastructure: a node died", "it was not run"
NO_NUMBER = "it has no baseline to compare its scaling with"


def but(key: str, **facts: Any) -> dict[str, Shown]:
    """A run as published, but for these facts of one case."""
    run = shown(100, 98, 96)
    return run | {key: replace(run[key], **facts)}


@pytest.mark.parametrize(
    ("run", "missing"),
    [
        (shown(100, None, 96), {MIDDLE: BROKE}),
        ({LARGE: shown(100, 98, 96)[LARGE]}, {SMALL: NOT_RUN, MIDDLE: NOT_RUN}),
        # The next scale does not take the place of a smallest one that is missing.
        (shown(None, 98, 50), {SMALL: BROKE}),
        (but(SMALL, kind=Kind.NO_BASELINE, published=None), {SMALL: NO_NUMBER}),
        (but(SMALL, kind=Kind.INVALID, headline="invalid: ...", pace=None), {SMALL: "invalid: ..."}),
    ],
    ids=["broke", "not run", "the smallest broke", "no baseline", "not valid"],
)
def test_a_scale_without_a_valid_run_is_missing_and_no_pass(
    run: dict[str, Shown], missing: dict[str, str]
) -> None:
    made = curve(run)
    assert made.missing == [f"{key}: {reason}" for key, reason in missing.items()]
    assert made.short == []


def test_the_next_scale_does_not_take_the_place_of_a_smallest_one_that_is_missing() -> None:
    assert [scale.efficiency for scale in curve(shown(None, 98, 50)).scales] == [None, None, None]


@pytest.mark.parametrize(
    ("paces", "waived"),
    [
        ((100, None, 96), (MIDDLE,)),
        ((200, 98, 96), (SMALL,)),
        ((100, 98, 50), (SMALL, MIDDLE)),
        ((100, 98, 50), (SMALL, MIDDLE, LARGE)),
    ],
)
def test_a_waived_case_is_neither_judged_nor_compared_with(
    paces: tuple[float | None, ...], waived: tuple[str, ...]
) -> None:
    made = curve(shown(*paces), waived=waived)
    assert (made.short, made.missing) == ([], [])
    if waived == (SMALL,):
        assert made.scales[2].efficiency == pytest.approx(96 / 98)


def test_nothing_is_judged_if_nobody_asks_for_it() -> None:
    made = curve(shown(100, 50, None), tolerance=None)
    assert [scale.efficiency for scale in made.scales] == [1, 0.5, None]
    assert (made.short, made.missing) == ([], [])


@pytest.mark.parametrize(
    ("kind", "seconds"),
    [
        (Kind.PASSED, 10.0),
        (Kind.TOO_SLOW, 10.0),
        (Kind.NO_BASELINE, 10.0),
        (Kind.TOO_FAST, None),
        (Kind.NOISY, None),
        (Kind.INVALID, None),
    ],
)
def test_the_pace_is_the_steady_one_of_a_case_that_is_measured(kind: Kind, seconds: float | None) -> None:
    found = Shown.of(replace(record(), verdict=kind))
    assert found.pace == (seconds and pytest.approx(examples.case().tokens_per_step / seconds))
    assert found.nodes == {f"gpu{number:03d}" for number in range(1, 65)}
    assert (found.release, found.gpu, found.recorded) == ("25.04", "h100", "")
    assert (found.number, found.runs) == (None, 1)
    assert found.published == examples.target().tokens_per_second


def test_the_runs_and_the_day_are_those_of_the_record() -> None:
    told = record()
    at = datetime.datetime.fromisoformat("2026-11-22T23:30:00-02:00").timestamp()
    job = replace(told.job, nodes="n1", submitted=at)
    run = Run(id="7", name="a", nodes="n[2-3]", step_time=1.0, steady_median=1.0, spread=0.0, hiccups=())
    found = Shown.of(replace(told, job=job, runs=(run, replace(run, nodes="n1"))))
    assert found.submitted == datetime.date(2026, 11, 23)
    assert (found.runs, sorted(found.nodes)) == (2, ["n1", "n2", "n3"])


@pytest.mark.parametrize(
    ("own", "recorded", "number"), [(False, None, None), (True, None, 3.5), (True, {"run": "monday"}, None)]
)
def test_a_number_by_hand_is_one_of_the_site_that_no_run_recorded(
    own: bool, recorded: dict[str, str] | None, number: float | None
) -> None:
    told, run = record(), None
    assert told.expected is not None
    if recorded is not None:
        run = Recorded(status="recorded", date="2026-11-23", spread=0.0, run=recorded["run"])
    expected = replace(told.expected, own=own, recorded=run, step_time=3.5)
    found = Shown.of(replace(told, expected=expected))
    assert (found.number, found.recorded) == (number, "monday" if recorded else "")
