"""Sessions with an acceptance plan, and with scaling. Logs are replayed, so no cluster is needed."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import pytest

from fixtures.runs.ledger import Ledger, read_ledger
from fixtures.session.agreed import acceptance_of
from fixtures.site import THIS_MACHINE
from plugins.acceptance.decision import acceptance_lines, decide
from plugins.acceptance.scaling import RunShown, Shown, curves, scaling_lines
from plugins.base.errors import ConfigError
from plugins.judging.choice import Choice, Setting
from plugins.judging.rejudge import rejudged, write_basis
from plugins.recipes.cases import Case
from plugins.record.case import CaseRecord
from plugins.record.lines import JOBS_LOG
from plugins.record.plan import PLAN, Agreed, Plan
from plugins.record.summary import Ending, Scale, Scaling, WaivedCase
from plugins.record.verdict import Kind, Outcome
from plugins.reports.gate import CODES, SessionState, ending_of
from tests.system.support import Run, pacemark
from tests.unit import examples
from tests.unit.jobs_log import lines_of, log_of
from tests.unit.test_gate import session

SMALL, MIDDLE, LARGE = (f"70b-bf16-{gpus}gpus" for gpus in (64, 128, 256))
TEXT = f"""\
# Agreed on by both.
site: this-machine
cases: [llama3/{SMALL}, llama3/{MIDDLE}, llama3/{LARGE}]
"""


DIGEST = hashlib.sha256(TEXT.encode()).hexdigest()


def plan(folder: Path, text: str = TEXT) -> tuple[str, str]:
    path = folder / "plan.yaml"
    path.write_text(text)
    return "--acceptance", str(path)


def decision(run: Run) -> dict[str, Any]:
    found: dict[str, Any] = run.summary["acceptance"]
    return found


def test_a_replay_is_never_accepted_and_keeps_its_plan(tmp_path: Path) -> None:
    run = session(tmp_path, {SMALL: 1.0, MIDDLE: 1.0, LARGE: 1.0}, *plan(tmp_path))
    assert (run.status, run.summary["outcome"], run.summary["exit_code"]) == (1, "passed", 1), run.out
    assert decision(run)["decision"] == "incomplete"
    assert list(decision(run)["missing"]) == ["the run"]
    assert f"INCOMPLETE: 3 case(s) of the plan with SHA-256 {decision(run)['digest']}" in run.out
    assert (run.folder / PLAN).read_text() == TEXT
    assert decision(run)["digest"] == read_ledger(run.folder).run().plan == DIGEST
    # Before any job.
    first = (run.folder / "jobs.log").read_text().splitlines()[0]
    assert json.loads(first.partition(" ")[2])["run"]["plan"] == DIGEST


def test_a_log_is_one_run_by_the_tolerance_of_the_plan_however_many_it_asks_for(tmp_path: Path) -> None:
    text = f"{TEXT}repeats: {{at_most: 2, always: true}}\ntolerance: {{slower: 0.08}}\n"
    run = session(tmp_path, {SMALL: 1.07}, *plan(tmp_path, text))
    case = run.case(f"llama3/{SMALL}")
    assert (case["verdict"], case["runs"], "run 1 of 2" in run.out) == ("passed", [], False), run.out
    told = (
        "judged by the tolerance of the acceptance plan: slower 0.08 (the baseline's own is 0.05); by the baseline's own it would be "
        "too slow: "
    )
    assert [remark for remark in case["remarks"] if remark.startswith(told)]


@pytest.mark.parametrize("how", ["by a link", "as a module"])
def test_a_session_has_a_decision_however_its_suites_are_named(tmp_path: Path, how: str) -> None:
    link, log = tmp_path / "link", two_logs(tmp_path / "logs")
    link.symlink_to(examples.ROOT)
    named = {
        "by a link": ["-c", str(link / "pytest.ini"), str(link / "suites/llama3")],
        "as a module": ["-c", "pytest.ini", "--pyargs", "conftest.py", "suites.llama3.test_llama3"],
    }
    replay = ("--backend", "replay", "--from", str(log))
    run = pacemark(*named[how], *plan(tmp_path), *replay, results=tmp_path / "results")
    assert decision(run)["decision"] == "incomplete", run.out


def two_logs(folder: Path) -> Path:
    """A folder with logs of two jobs of a case, so that it is known of none of them which is meant."""
    size, dtype, gpus = SMALL.removesuffix("gpus").split("-")
    folder.mkdir()
    for job in (7, 8):
        (folder / f"log-x.pretrain_llama3.1_{size}_{dtype}_{gpus}_{job}_0.out").write_text("")
    return folder


def test_a_scale_that_is_waived_is_told_as_such() -> None:
    scale = Scale(
        case="a", gpus=8, tokens_per_second_per_gpu=1.0, published_tokens_per_second_per_gpu=1.0, efficiency=0.9,
        published_efficiency=1.0, limit=None, why="", waived=True,
    )  # fmt: skip
    judged = replace(scale, gpus=16, limit=0.95, waived=False)
    told = list(scaling_lines([Scaling(recipe="r", size="8b", dtype="fp8", scales=(scale, judged))]))
    assert told == ["scaling of r/8b-fp8: 8 GPUs 90.0 % (waived), 16 GPUs 90.0 % (limit 95.0 %)"]


def test_a_text_of_the_plan_makes_no_line_of_its_own() -> None:
    case = examples.case()
    found = session_ending([case], [case]).acceptance
    assert found is not None
    waived = WaivedCase(
        case=case.key,
        verdict=Kind.NOISY,
        headline="x",
        reason="a\nACCEPTED: 1",
        agreed_by="b",
        until=date.max,
    )
    lines = list(acceptance_lines(replace(found, waived=(waived,))))
    assert lines[-1].endswith("(until 9999-12-31, agreed by b: a ACCEPTED: 1)")


def test_a_session_with_a_plan_runs_its_cases_and_no_others(tmp_path: Path) -> None:
    log = two_logs(tmp_path / "logs")
    run = pacemark(
        "suites", *plan(tmp_path), "--backend", "replay", "--from", str(log), results=tmp_path / "results"
    )
    assert sorted(run.verdicts) == sorted(f"llama3/{case}" for case in (SMALL, MIDDLE, LARGE))
    assert decision(run)["decision"] == "incomplete"


def test_a_replay_judges_what_it_can_of_a_plan(tmp_path: Path) -> None:
    saving = "llama3/70b-checkpoint-bf16-128gpus"
    text = f"site: this-machine\ncases: [llama3/{SMALL}, {saving}]\n"
    run = session(tmp_path, {SMALL: 1.0}, *plan(tmp_path, text), "--variant", "checkpoint")
    assert run.verdicts == {f"llama3/{SMALL}": "passed"}, run.out
    assert list(decision(run)["missing"]) == [saving, "the run"]


def test_what_is_not_selected_is_missing(tmp_path: Path) -> None:
    run = session(tmp_path, {SMALL: 1.0, MIDDLE: 1.0}, *plan(tmp_path), "--gate")
    assert (run.status, run.summary["outcome"], run.summary["exit_code"]) == (14, "passed", 14), run.out
    assert decision(run)["missing"][f"llama3/{LARGE}"] == "it was not run"


def test_a_plan_says_how_often_its_runs_find_a_slow_cluster(tmp_path: Path) -> None:
    text = TEXT + "repeats: {at_most: 3}\ntolerance: {slower: 0.04}\n"
    run = pacemark("suites/llama3", "--plan", *plan(tmp_path, text), results=tmp_path / "results")
    assert run.status == 0, run.out
    lines = [line for line in run.out.splitlines() if "one run at" in line]
    assert lines == [
        "3 case(s): one run at 4 % finds a cluster 3 % slow in 19.0 %, 8 % slow in > 99.9 %; at most 3 runs together find one "
        "3 % slow in 4.3 %, 8 % slow in > 99.9 %"
    ]
    assert "\nnoise: 1.3 % a step, correlated by 0.8, 0.5 % between runs, which nine of ten" in run.out
    run = pacemark("suites/llama3", "--plan", results=tmp_path / "results")
    assert "one run at" not in run.out
    assert "\n34 case(s) without a site file: about " in run.out


def test_a_slow_case_is_not_accepted_whatever_the_gate_says_besides(tmp_path: Path) -> None:
    """The record, JUnit's and Allure's have the decision."""
    file, allure = tmp_path / "junit.xml", tmp_path / "allure"
    reports = ("--gate", "--maxfail=9", f"--junitxml={file}", f"--alluredir={allure}")
    run = session(tmp_path, {SMALL: 1.0, MIDDLE: 1.07, LARGE: None}, *plan(tmp_path), *reports)
    assert run.status == run.summary["exit_code"] == 10, run.out
    assert decision(run)["decision"] == "not accepted"
    assert list(decision(run)["failed"]) == [f"llama3/{MIDDLE}"]
    assert decision(run)["missing"][f"llama3/{LARGE}"].startswith("invalid run: no log of")
    properties = ElementTree.parse(file).find("testsuite/properties")
    assert properties is not None
    told = {entry.attrib["name"]: entry.attrib["value"] for entry in properties}
    assert told == {"acceptance": "not accepted", "acceptance_plan": decision(run)["digest"]}
    lines = (allure / "environment.properties").read_text().splitlines()
    assert {f"{name}={value}" for name, value in told.items()} <= set(lines)


AGREED = Agreed(Plan(site="lab", cases=[examples.case().key]), b"")


def session_ending(
    recorded: Sequence[Case],
    selected: Sequence[Case],
    *,
    finishing: bool = True,
    verdict: str = "passed",
    resumed: Any = None,
) -> Ending:
    """How a session ends that selected these cases. Those of its run's record have all this verdict.

    If it goes on with the run of the record `resumed`, it has no plan, and is asked for scaling.
    """
    record = CaseRecord.unjudged(examples.outcome().job, "")
    record = replace(record, tokens_per_second=1.0, step_time=1.0, steady_median=1.0)
    plan = Plan(site="lab", cases=[case.key for case in recorded])
    state = SessionState(
        status=0,
        final=finishing,
        other=False,
        gate=False,
        begun=date(2026, 11, 22),
        cases=[replace(record, id=case.key, verdict=Kind(verdict), headline=verdict) for case in recorded],
        selected=selected,
        left_out={},
        agreed=Agreed(plan, b""),
        asked=recorded,
    )
    if resumed is not None:
        state = replace(state, agreed=None, asked=(), scaling=0.03, resumed=resumed)
    return ending_of(state)


@pytest.mark.parametrize("finishing", [True, False])
def test_a_session_that_is_shut_down_accepts_nothing(finishing: bool) -> None:
    case = examples.case()
    ended = session_ending([case], [case], finishing=finishing)
    assert ended.acceptance is not None
    told = (ended.acceptance.decision, ended.exit_code)
    assert told == (("accepted", 0) if finishing else ("incomplete", None))


def test_a_record_that_another_session_left_speaks_only_against_the_cluster() -> None:
    selected, other = examples.case(SMALL), examples.case(LARGE)
    ending = session_ending([selected, other], [selected])
    assert ending.acceptance is not None
    assert (ending.acceptance.decision, ending.exit_code) == ("incomplete", 1)
    assert ending.acceptance.missing == {
        other.key: "it was not selected, so this session did not judge its logs"
    }
    # The plan does not judge scaling, so that its curve is shown whole.
    assert [curve.cases for curve in ending.scaling] == [{selected.key, other.key}]
    slow = session_ending([selected, other], [selected], verdict="too slow").acceptance
    assert slow is not None
    assert (slow.decision, other.key in slow.failed) == ("not accepted", True)


@pytest.mark.parametrize("outcome", Outcome)
def test_a_session_that_did_not_come_to_its_end_accepts_nothing(outcome: Outcome) -> None:
    case, agreed = examples.case(), AGREED
    passed = {case.key: Shown(Kind.PASSED, "passed")}
    found = decide(agreed, [case], RunShown(passed, date(2026, 11, 22)), outcome)
    ended = outcome in (Outcome.PASSED, *(one for one, code in CODES.items() if code >= 10))
    assert found.decision == ("accepted" if ended else "incomplete")
    assert found.missing == ({} if ended else {"the run": f"the session ended as {outcome}"})
    slower = decide(agreed, [case], RunShown(passed, date(2026, 11, 22)), outcome, ["it is slower"])
    assert slower.decision == "incomplete"


def test_scaling_is_a_test_beside_those_of_its_cases_also_in_a_worker(tmp_path: Path) -> None:
    run = session(tmp_path, {SMALL: 1.0, MIDDLE: 1.02, LARGE: 1.04}, "--scaling", "0.03", "--gate", "-n", "1")
    assert (run.status, run.summary["outcome"]) == (10, "performance"), run.out
    assert set(run.verdicts.values()) == {"passed"}
    assert "test_scaling[70b-bf16]" in run.out
    assert f"llama3/{LARGE}: scaling efficiency 96." in run.out
    [found] = run.summary["scaling"]
    assert [bool(scale["why"]) for scale in found["scales"]] == [False, False, True]
    assert run.summary["acceptance"] is None


def test_scaling_that_is_enough_passes(tmp_path: Path) -> None:
    run = session(tmp_path, {SMALL: 1.03, MIDDLE: 1.03, LARGE: 1.03}, "--scaling", "0.01", "--gate")
    assert (run.status, run.summary["outcome"]) == (0, "passed"), run.out
    assert "4 passed" in run.out


def test_scaling_without_a_scale_fails_and_names_it(tmp_path: Path) -> None:
    run = session(tmp_path, {SMALL: 1.0, MIDDLE: None}, "--scaling", "0.05", "--gate")
    assert (run.status, run.summary["outcome"]) == (11, "invalid"), run.out
    assert "FAILED suites/llama3/test_llama3.py::test_scaling[70b-bf16] - llama3" in run.out
    assert [scale["why"] for scale in run.summary["scaling"][0]["scales"]][1].startswith(f"llama3/{MIDDLE}: ")


def test_each_test_of_scaling_has_a_name_of_its_own(tmp_path: Path) -> None:
    """Also where cases of one size and dtype differ in their model."""
    site = tmp_path / "site.yaml"
    site.write_text("site: lab\nreplay: {gpu: gb300}\n")
    chosen = ("-m", "case(size='671b-proxy', dtype='bf16')", "--scaling", "0.05", "--collect-only", "-q")
    replay = ("--site", str(site), "--backend", "replay", "--from", str(tmp_path))
    run = pacemark("suites/deepseek_v3", *chosen, *replay, results=tmp_path)
    assert re.findall(r"test_scaling\[(.*)\]", run.out) == ["671b-proxy-bf16-4gpus", "671b-proxy-bf16-16gpus"]


def run_that_died(folder: Path, digest: str) -> Path:
    """A run of site this-machine that began with the plan of this digest."""
    made = folder / "results" / "20261122-000000-00000000"
    made.mkdir(parents=True, mode=0o700)
    Ledger.create(made / JOBS_LOG, made.name, "this-machine", digest)
    return made


def resumed(folder: Path, *options: str) -> Run:
    return pacemark(
        "suites/llama3", "--resume", "20261122-000000-00000000", *options, results=folder / "results"
    )


def test_a_resumed_run_has_the_plan_that_it_began_with(tmp_path: Path) -> None:
    folder = run_that_died(tmp_path, DIGEST)
    (folder / PLAN).write_text(TEXT)
    run = resumed(tmp_path, "--collect-only", "-q")
    assert run.status == 0, run.out
    assert "3/34 tests collected" in run.out


def agreed(folder: Path, **options: Any) -> Agreed | None:
    """The plan of a session with these options, which records in this folder."""
    given = {"--results": str(folder / "results"), **{f"--{name}": value for name, value in options.items()}}
    config: Any = SimpleNamespace(getoption=given.get, rootpath=folder)
    return acceptance_of(config, THIS_MACHINE)


@pytest.mark.parametrize(
    ("digest", "text", "more", "reason"),
    [
        (DIGEST, None, None, "acceptance.yaml: no such file"),
        (DIGEST, TEXT, "scaling: 0.2\n", "began with another plan"),
        (
            DIGEST,
            f"{TEXT}tolerance: {{slower: 0.2}}\n",
            None,
            "is not the plan that run 20261122-000000-00000000 began",
        ),
        ("", None, "", "began without a plan"),
    ],
    ids=["no plan any more", "another plan", "a plan that was changed", "none before"],
)
def test_a_run_does_not_go_on_with_another_plan(
    digest: str, text: str | None, more: str | None, reason: str, tmp_path: Path
) -> None:
    folder = run_that_died(tmp_path, digest)
    if text is not None:
        (folder / PLAN).write_text(text)
    acceptance = None if more is None else plan(tmp_path, TEXT + more)[1]
    with pytest.raises(ConfigError, match=reason):
        agreed(tmp_path, resume=folder.name, acceptance=acceptance)


def test_a_run_whose_record_is_damaged_is_not_resumed(tmp_path: Path) -> None:
    """What an earlier session found, such as a regression, would be forgotten."""
    folder = run_that_died(tmp_path, "")
    (folder / "summary.json").write_text('{"schema": 2}')
    run = resumed(tmp_path, "--collect-only", "-q")
    assert run.status == 4, run.out
    assert f"ERROR: --resume {folder.name}: {folder}/summary.json" in run.out
    assert "without it the regressions and the scaling of earlier sessions are forgotten" in run.out


def test_the_plan_of_a_damaged_ledger_is_that_of_its_whole_lines(tmp_path: Path) -> None:
    folder = run_that_died(tmp_path, "0123")
    Ledger(folder / JOBS_LOG).take_over()
    log = (folder / JOBS_LOG).read_bytes()
    (folder / JOBS_LOG).write_bytes(log.replace(b'"plan": "0123"', b'"plan": ""', 1))
    found = read_ledger(folder)
    assert found.run().plan == "0123"
    assert found.damage == ("line 1 has a wrong checksum",)


def test_another_plan_in_a_whole_line_is_damage(tmp_path: Path) -> None:
    folder = run_that_died(tmp_path, "0123")
    lines = lines_of((folder / JOBS_LOG).read_bytes())
    other = {**lines[0], "run": {**lines[0]["run"], "plan": "4567"}}
    (folder / JOBS_LOG).write_bytes(log_of([*lines, other]))
    found = read_ledger(folder)
    assert found.run().plan == "0123"
    assert found.damage == ("line 2 has another site, folder, start or plan",)


def test_a_run_with_a_plan_goes_on_by_the_site_file_that_it_began_with(tmp_path: Path) -> None:
    folder = run_that_died(tmp_path, DIGEST)
    (folder / PLAN).write_text(TEXT)
    site = tmp_path / "site.yaml"
    ssh = "{host: 127.0.0.1, port: 9, user: me}"
    section = f"{{gpu: h100, account: a, partition: b, stage: /s, network: IB, ssh: {ssh}, versions: {{driver: '2'}}}}"
    site.write_text(f"site: this-machine\nslurm: {section}\n")
    write_basis(folder, Setting(examples.llama3(), Choice(versions={"driver": "1"}), examples.BASELINES))
    run = resumed(tmp_path, "--site", str(site))
    said = "basis/choices/llama3.json has network None, which would now be IB: put that back in the site file"
    assert (run.status, said in run.out) == (4, True), run.out


@pytest.mark.parametrize(
    "other",
    [
        {"release": "24.11"},
        {"gpu": "gb200"},
        {"promised": 1.0},
        {"network": "IB"},
        {"gpus_per_node": 4},
        {"strict_last": True},
        {"agreed": {"slower": 0.1}},
    ],
)
def test_a_run_goes_on_by_what_it_was_judged_by(tmp_path: Path, other: dict[str, Any]) -> None:
    write_basis(tmp_path, Setting(examples.llama3(), Choice(), examples.BASELINES))
    [name] = other
    told = rejudged(tmp_path, "llama3", Choice.model_validate(other))
    assert told.startswith(f"basis/choices/llama3.json has {name} ")
    assert rejudged(tmp_path, "llama3", Choice(versions={"driver": "2"}, own="/own")) == ""


@pytest.mark.parametrize(
    "option",
    [
        "strict-last",
        "release",
        "replace-baselines",
        "record-baselines",
        "repeat-undecided",
        "repeat",
        "scaling",
    ],
)
def test_an_option_that_changes_what_the_plan_asks_for_is_refused(tmp_path: Path, option: str) -> None:
    reason = f"--{option} changes what the acceptance plan asks for: leave it out"
    with pytest.raises(ConfigError, match=reason):
        agreed(tmp_path, acceptance=plan(tmp_path)[1], **{option: "24.11"})


def test_a_number_that_the_site_wrote_by_hand_is_in_the_plan_before_the_first_job(tmp_path: Path) -> None:
    published = (examples.BASELINES / "llama3.yaml").read_text()
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "llama3.yaml").write_text(published.replace("gpu: h100", "gpu: h200"))
    (tmp_path / "site.yaml").write_text("site: lab\nreplay: {gpu: h200}\n")
    given = ("--site", str(tmp_path / "site.yaml"), "--site-baselines", str(tmp_path / "own"))
    text = f"site: lab\ncases: [llama3/{SMALL}]\n"
    refused = session(tmp_path, {SMALL: 1.0}, *plan(tmp_path, text), *given)
    assert refused.status == 4, refused.out
    number = examples.target(SMALL).step_time
    why = f"the site's own baselines have {number:g} s, written by hand, which `numbers` of the plan does not say"
    assert f"plan.yaml: numbers: llama3/{SMALL}: {why}" in refused.out
    text += f"tolerance: {{slower: 0.05}}\nnumbers: {{llama3/{SMALL}: {number}}}\n"
    run = session(tmp_path, {SMALL: 1.0}, *plan(tmp_path, text), *given)
    # A replay is never accepted; nothing else is missing.
    assert [*decision(run)["missing"]] == ["the run"], run.out


def test_a_site_file_that_promises_otherwise_than_the_plan_is_refused(tmp_path: Path) -> None:
    (tmp_path / "site.yaml").write_text(
        "site: lab\nslurm: {gpu: h100, account: me, partition: batch, stage: /stage, storage_gb_per_second: 20, ssh: {host: login}}\n"
    )
    text = "site: lab\ncases: [llama3/70b-checkpoint-bf16-128gpus]\nstorage_gb_per_second: "
    given = ("suites/llama3", "--variant", "checkpoint", "--plan", "--site", str(tmp_path / "site.yaml"))
    run = pacemark(*given, *plan(tmp_path, f"{text}50\n"), results=tmp_path / "results")
    reason = "plan.yaml: storage_gb_per_second: the plan has 50, and the site file has 20 for llama3"
    assert (run.status, reason in run.out) == (4, True), run.out
    run = pacemark(*given, *plan(tmp_path, f"{text}20\n"), results=tmp_path / "results")
    assert run.status == 0, run.out


def test_a_session_that_judges_other_scaling_ends_by_what_fell_short_before() -> None:
    cases = [examples.case(SMALL), examples.case(LARGE)]
    paces = {case.key: Shown(Kind.PASSED, "passed", pace=1.0, published=1.0 * case.gpus) for case in cases}
    short = curves(cases, paces, 0.03)
    resumed = SimpleNamespace(regressions=(), uncompared=(), scaling=short)
    ending = session_ending([*cases, examples.case()], [examples.case()], resumed=resumed)
    assert (ending.outcome, ending.scaling) == ("performance", tuple(short))
