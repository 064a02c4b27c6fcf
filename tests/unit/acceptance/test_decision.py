"""The decision on an acceptance plan. It says accepted only if all that the plan asks for was shown."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugins.acceptance.decision import acceptance_lines, asked, decide, runs_of
from plugins.acceptance.scaling import RunShown, Shown
from plugins.base.errors import ConfigError
from plugins.judging.choice import Repeats
from plugins.record.job import node_names
from plugins.record.plan import Agreed, Decision, Plan, read_plan
from plugins.record.summary import AcceptanceRecord
from plugins.record.verdict import Kind, Outcome
from tests.unit import examples

SMALL, MIDDLE, LARGE = (f"llama3/70b-bf16-{gpus}gpus" for gpus in (64, 128, 256))
KNOWN = [*examples.llama3().cases, *examples.recipe_named("nemotron4").cases]
TODAY = datetime.date(2026, 11, 22)
WAIVER = {"case": MIDDLE, "verdicts": ["too slow"], "reason": "a switch", "agreed_by": "A, B", "until": TODAY}


def plan(**keys: Any) -> Plan:
    return Plan.model_validate({"site": "lab", "cases": [SMALL, MIDDLE, LARGE], **keys})


def ran(pace: float = 1.0, kind: Kind = Kind.PASSED, **facts: Any) -> dict[str, Shown]:
    """What a run shows of the three cases: at this pace of a GPU, beside a published one of 100."""
    return {
        key: Shown(
            kind, f"{kind}: ...", frozenset({f"n{gpus}"}), TODAY, "25.04", "h100",
            pace=100 * pace * gpus, published=100.0 * gpus, **facts,
        )
        for key, gpus in ((SMALL, 64), (MIDDLE, 128), (LARGE, 256))
    }  # fmt: skip


def but(key: str, **facts: Any) -> dict[str, Shown]:
    """All passed, and these facts of one case are others."""
    shown = ran()
    return shown | {key: replace(shown[key], **facts)}


def ended(kind: Kind, **facts: Any) -> dict[str, Shown]:
    """The case in the middle ended so, the others passed."""
    return but(MIDDLE, kind=kind, headline=f"{kind}: ...", **facts)


def not_run(key: str, shown: Mapping[str, Shown]) -> dict[str, Shown]:
    return {other: case for other, case in shown.items() if other != key}


def decided(
    shown: Mapping[str, Shown],
    *,
    begun: datetime.date = TODAY,
    spoiled: str = "",
    unrun: Mapping[str, str] = {},
    **keys: Any,
) -> AcceptanceRecord:
    agreed = plan(**keys)
    run = RunShown(shown, begun, unrun, spoiled=spoiled)
    return decide(Agreed(agreed, b""), asked(agreed, KNOWN, "plan"), run, Outcome.PASSED)


def accepted(shown: Mapping[str, Shown], **keys: Any) -> bool:
    return decided(shown, **keys).decision is Decision.ACCEPTED


def missing(shown: Mapping[str, Shown], **keys: Any) -> Mapping[str, str]:
    """What such a run did not show, so that the decision is open."""
    record = decided(shown, **keys)
    assert record.decision is Decision.INCOMPLETE
    return record.missing


def test_it_is_accepted_if_every_case_passed() -> None:
    record = decided(ran())
    assert record.decision is Decision.ACCEPTED
    assert (record.failed, record.missing, record.waived) == ({}, {}, ())


@pytest.mark.parametrize("by", [None, "expected"])
@pytest.mark.parametrize("kind", [kind for kind in Kind if kind is not Kind.PASSED])
def test_a_case_that_ended_otherwise_is_never_accepted(kind: Kind, by: str | None) -> None:
    """Nor does a promised range make another verdict a pass."""
    record = decided(ended(kind), by=by)
    against = kind in (Kind.TOO_SLOW, Kind.NOISY)
    assert record.decision is (Decision.NOT_ACCEPTED if against else Decision.INCOMPLETE)
    assert (record.failed if against else record.missing) == {MIDDLE: f"{kind}: ..."}


def test_a_case_that_was_not_run_is_missing() -> None:
    shown = not_run(LARGE, ran())
    assert missing(shown) == {LARGE: "it was not run"}
    assert missing(shown, unrun={LARGE: "too large"}) == {LARGE: "too large"}


def test_a_case_that_is_slow_counts_more_than_one_that_is_missing() -> None:
    record = decided(not_run(LARGE, ended(Kind.TOO_SLOW)))
    assert record.decision is Decision.NOT_ACCEPTED
    assert (list(record.failed), list(record.missing)) == ([MIDDLE], [LARGE])


def test_a_run_that_is_no_evidence_accepts_nothing() -> None:
    reason = "its logs were replayed"
    assert missing(ran(), spoiled=reason) == {"the run": reason}


def test_a_waiver_is_for_its_case_its_verdict_and_its_time() -> None:
    record = decided(ended(Kind.TOO_SLOW), waivers=[WAIVER])
    assert record.decision is Decision.ACCEPTED
    assert [waived.case for waived in record.waived] == [MIDDLE]
    # Its case passed: nothing is waived.
    assert decided(ran(), waivers=[WAIVER]).waived == ()


@pytest.mark.parametrize(
    ("shown", "begun", "why"),
    [
        (ended(Kind.NOISY), TODAY, "noisy: ...; its waiver is for too slow"),
        (ended(Kind.TOO_SLOW), TODAY + datetime.timedelta(1), f"its waiver ended on {TODAY}"),
        (ended(Kind.TOO_SLOW, release=""), TODAY, "it was not judged, so it cannot be waived"),
        # The run goes on with --resume after the waiver has ended.
        (ended(Kind.TOO_SLOW, submitted=TODAY + datetime.timedelta(1)), TODAY, f"its waiver ended on {TODAY}"),
    ],
)  # fmt: skip
def test_a_waiver_that_does_not_count_says_why(
    shown: Mapping[str, Shown], begun: datetime.date, why: str
) -> None:
    record = decided(shown, begun=begun, waivers=[WAIVER])
    assert record.decision is not Decision.ACCEPTED
    assert record.waived == ()
    assert why in record.failed[MIDDLE]


def test_a_waiver_is_for_no_other_case_and_none_that_was_not_run() -> None:
    record = decided(ended(Kind.TOO_SLOW), waivers=[{**WAIVER, "case": LARGE}])
    assert record.decision is Decision.NOT_ACCEPTED
    assert list(missing(not_run(MIDDLE, ran()), waivers=[WAIVER])) == [MIDDLE]


def test_waivers_alone_accept_nothing() -> None:
    every = [{**WAIVER, "case": key} for key in (SMALL, MIDDLE, LARGE)]
    assert missing(ran(kind=Kind.TOO_SLOW), waivers=every) == {"the plan": "no case passed"}


@pytest.mark.parametrize(
    ("keys", "facts", "why"),
    [
        ({"releases": {"llama3": "25.04"}}, {"release": "24.11"}, "it was judged by release 24.11"),
        ({"gpu": "h100"}, {"gpu": "h200"}, "it was judged as a h200, and the plan asks for h100"),
        ({}, {"recorded": "20260101"}, "a number that run 20260101 recorded, which the plan does not allow"),
    ],
)
def test_a_pass_by_other_numbers_is_missing(keys: dict[str, Any], facts: dict[str, Any], why: str) -> None:
    assert why in missing(but(LARGE, **facts), **keys)[LARGE]
    assert accepted(ran(), **keys)


def test_a_case_must_have_run_as_often_as_the_plan_asks() -> None:
    always: dict[str, Any] = {"repeats": {"at_most": 3, "always": True}}
    assert missing(ran(runs=2), **always)[SMALL] == "it ran 2 times, and the plan asks for 3"
    assert accepted(ran(runs=3), **always)
    assert (runs_of(plan(**always)), runs_of(plan())) == (Repeats(3, always=True), None)
    # Fewer runs told.
    assert accepted(ran(), repeats={"at_most": 3})


@pytest.mark.parametrize(
    ("stated", "own", "why"),
    [
        ({MIDDLE: 3.5}, 3.50001, ""),
        ({}, 3.5, "the site's own baselines have 3.5 s, written by hand, which `numbers` of the plan does not say"),
        ({MIDDLE: 3.5}, 3.6, "`numbers` of the plan says 3.5 s, and the site's own baselines 3.6 s"),
        ({MIDDLE: 3.5}, None, "`numbers` of the plan says 3.5 s, and the site's own baselines have no such number for it"),
    ],
)  # fmt: skip
def test_a_number_that_the_site_wrote_by_hand_counts_if_the_plan_states_it(
    stated: dict[str, float], own: float | None, why: str
) -> None:
    record = decided(but(MIDDLE, number=own), numbers=stated, tolerance={"slower": 0.05})
    assert record.missing == ({MIDDLE: why} if why else {})
    assert record.decision is (Decision.INCOMPLETE if why else Decision.ACCEPTED)


def test_a_pass_by_a_range_counts_only_if_the_plan_promises_it() -> None:
    shown = ended(Kind.PASSED, by_range=True, published=None)
    reason = "it was judged by its expected range, which the plan does not promise"
    assert missing(shown) == {MIDDLE: reason}
    assert accepted(shown, by="expected")
    # The others have published numbers, of which the range is none.
    assert missing(shown, by="expected", scaling=0.03) == {CURVE: f"{MIDDLE}: {NO_NUMBER}"}


def test_the_first_line_says_what_judged_cases_without_a_published_number() -> None:
    assert next(acceptance_lines(decided(ran()))).startswith("ACCEPTED: 3 case(s) of the plan with SHA-256 ")
    assert decided(ran()).basis == ""
    shown = {
        **ran(),
        SMALL: replace(ran()[SMALL], by_range=True),
        MIDDLE: replace(ran()[MIDDLE], number=3.5),
        LARGE: replace(ran()[LARGE], kind=Kind.NO_BASELINE),
    }
    record = decided(shown, by="expected", numbers={MIDDLE: 3.5}, tolerance={"slower": 0.05})
    basis = "no published number for 3 of 3 cases: judged 1 by an expected range, 1 by an agreed number, 1 by nothing"
    assert next(acceptance_lines(record)).endswith(f"; {basis}")
    # What did not run has been judged by nothing that could be told.
    assert decided({}).unpublished == {}


def test_every_node_must_have_been_part_of_a_case_that_passed() -> None:
    assert accepted(ran(), nodes=["n[64,128]", "n256"])
    assert missing(ran(), nodes=["n64", "N64", "n[256-258]"]) == {
        "nodes N64": "no case that passed ran on N64",
        "nodes n[256-258]": "no case that passed ran on n257, n258",
    }
    # That of a case that is waived has shown nothing.
    assert list(missing(ended(Kind.TOO_SLOW), nodes=["n128"], waivers=[WAIVER])) == ["nodes n128"]


CURVE, NO_NUMBER = "scaling of llama3/70b-bf16", "it has no baseline to compare its scaling with"


def test_scaling_is_part_of_the_decision_if_the_plan_asks_for_it() -> None:
    shown = but(LARGE, pace=93.0 * 256)
    assert accepted(shown)
    record = decided(shown, scaling=0.05)
    assert record.decision is Decision.NOT_ACCEPTED
    assert "scaling efficiency 93.0 % against 64 GPUs" in record.failed[CURVE]
    assert accepted(shown, scaling=0.08)


def test_scaling_that_cannot_be_told_is_missing() -> None:
    assert missing(but(LARGE, published=None), scaling=0.05) == {CURVE: f"{LARGE}: {NO_NUMBER}"}


def test_scaling_of_which_waivers_leave_one_scale_was_not_shown() -> None:
    shown = ended(Kind.TOO_SLOW)
    waived: dict[str, Any] = {"waivers": [WAIVER], "scaling": 0.05}
    assert accepted(shown, **waived)
    reason = "no two scales are left beside the waived cases"
    assert missing(shown, cases=[SMALL, MIDDLE], **waived) == {"scaling": reason}


@given(
    kinds=st.lists(st.sampled_from(Kind), min_size=3, max_size=3),
    waived=st.lists(st.sampled_from([kind for kind in Kind if kind is not Kind.PASSED]), min_size=1),
    left=st.sets(st.sampled_from([SMALL, MIDDLE, LARGE])),
    spoiled=st.sampled_from(["", "x"]),
)
def test_accepted_means_passed_or_waived(
    kinds: list[Kind], waived: list[Kind], left: set[str], spoiled: str
) -> None:
    shown = {
        key: replace(one, kind=kind)
        for (key, one), kind in zip(ran().items(), kinds, strict=True)
        if key not in left
    }
    record = decided(shown, spoiled=spoiled, waivers=[{**WAIVER, "verdicts": waived}])
    fine = [key for key, one in shown.items() if one.kind is Kind.PASSED]
    waived_too = [MIDDLE] if MIDDLE in shown and shown[MIDDLE].kind in waived else []
    is_accepted = {*fine, *waived_too} == {SMALL, MIDDLE, LARGE} and bool(fine) and not spoiled
    assert (record.decision is Decision.ACCEPTED) == is_accepted
    assert is_accepted == (not record.failed and not record.missing)


# The plan's file.

TEXT = """\
site: lab
cases: [llama3/70b-bf16-*]
number: 6
"""


def read(folder: Path, text: str) -> list[str]:
    path = folder / "acceptance.yaml"
    path.write_text(text)
    agreed = read_plan(path)
    return [case.key for case in asked(agreed.plan, KNOWN, "acceptance.yaml")]


def test_a_plan_names_its_cases_by_ids_and_patterns(tmp_path: Path) -> None:
    assert read(tmp_path, TEXT) == [case.key for case in KNOWN if case.key.startswith("llama3/70b-bf16-")]
    assert read(tmp_path, f"site: lab\ncases: [{LARGE}, {SMALL}, {SMALL}]") == [SMALL, LARGE]
    assert read(tmp_path, f"site: lab\ncases: [{LARGE}]") == [LARGE]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (TEXT.replace("70b", "71b"), "cases: no case is llama3/71b-bf16-*; "),
        (TEXT.replace("number: 6", "number: 7"), "number: the plan says 7 cases, and `cases` selects 6: llama3/"),
        (TEXT.replace("number: 6\n", ""), "number: say how many cases these are, because `cases` has a pattern"),
        (TEXT + "tolerance: {slower: 0.3}\n", "tolerance.slower: must be 0.2 or less, got 0.3"),
        (TEXT + "scaling: 0.5\n", "scaling: must be 0.2 or less"),
        (f"site: lab\ncases: [{SMALL}]\nscaling: 0.05\n", "scaling: no two cases of the plan differ in their number of GPUs alone"),
        (TEXT + "releases: {llama3: '25.05'}\n", "the plan asks for llama3 25.05, and its cases are of 25.04 here"),
        (TEXT + "releases: {nemotron4: '24.11'}\n", "releases: the plan has no case of nemotron4"),
        (TEXT + "waivers: [{case: llama3/70b-fp8-64gpus, verdicts: [noisy], reason: x, agreed_by: y, until: 2027-01-01}]\n", "waivers: llama3/70b-fp8-64gpus is no case of this plan; did you mean"),
        (TEXT + f"waivers: [{{case: {SMALL}, verdicts: [passed], reason: it rains, agreed_by: A and B, until: 2027-01-01}}]\n", "waivers: a case that passed needs none"),
        (TEXT + f"waivers: [{{case: {SMALL}, verdicts: [slow], reason: it rains, agreed_by: A and B, until: 2027-01-01}}]\n", "waivers.0.verdicts.0: must be 'passed', 'too slow'"),
        (TEXT + f"waivers: [{{case: {SMALL}, verdicts: [noisy], reason: none, agreed_by: A and B, until: 2027-01-01}}]\n", "waivers.0.reason: a placeholder"),
        (TEXT + f"waivers: [{{case: {SMALL}, verdicts: [noisy], reason: it rains, agreed_by: A and B, until: soon}}]\n", "waivers.0.until: expected a day"),
        (TEXT + "waivers:\n" + 2 * f"- {{case: {SMALL}, verdicts: [noisy], reason: it rains, agreed_by: A and B, until: 2027-01-01}}\n", f"waivers: {SMALL} has two; keep one"),
        (TEXT + "tolerance: {slower: 0.05}\nnumbers: {llama3/70b-fp8-64gpus: 3.5}\n", "numbers: llama3/70b-fp8-64gpus is no case of this plan; did you mean"),
        (TEXT + f"numbers: {{{SMALL}: 3.5}}\n", "numbers: say `tolerance` too, or the site's own baselines would choose it"),
        (TEXT + "nodes: [n1, ',']\n", "nodes: ',' is no list of nodes, such as 'gpu[001-064]'"),
        (TEXT + "nodes: ['n[1-2']\n", "nodes: 'n[1-2' is no list of nodes"),
        (TEXT + "nodes: ['n[2-1]']\n", "nodes: 'n[2-1]' is no list of nodes"),
        (TEXT + "nodes: ['n*']\n", "nodes: 'n*' is no list of nodes"),
        (TEXT + "nodes: ['n1,n*']\n", "nodes: 'n1,n*' is no list of nodes"),
        (f"site: lab\ncases: [{SMALL}, llama3/70b-fp8-*]\n", "number: say how many cases these are"),
        (TEXT + "tolerence: {slower: 0.05}\n", "acceptance.yaml:4: tolerence: unknown key; did you mean 'tolerance'?"),
    ],
)  # fmt: skip
def test_a_plan_that_is_wrong_is_refused(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigError) as error:
        read(tmp_path, text)
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", set()),
        ("gpu001", {"gpu001"}),
        ("gpu[001-003,010],login1", {"gpu001", "gpu002", "gpu003", "gpu010", "login1"}),
        ("a-b-1, a-b-2", {"a-b-1", "a-b-2"}),
        ("r[1-2]n", {"r1n", "r2n"}),
        ("r[1-2]n[3]", {"r[1-2]n[3]"}),
        ("n[1,a]", {"n1", "n[a]"}),
        ("n[3-1]", {"n[3-1]"}),
        ("n[1-999999999]", {"n[1-999999999]"}),
        ("this machine", {"this", "machine"}),
    ],
)
def test_the_nodes_of_a_list(text: str, names: set[str]) -> None:
    assert node_names(text) == names


def test_a_short_text_of_many_nodes_fills_no_memory() -> None:
    found = node_names(",".join(f"n{number}[0-99999]" for number in range(100)))
    assert len(found) < 100_100
    assert {"n0[0-99999]", "n99[0-99999]"} & found == {"n99[0-99999]"}
