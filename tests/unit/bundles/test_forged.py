"""What two parties forged together, who have all keys, so that every digest and signature is right: each is found, and named."""

from __future__ import annotations

import hashlib
import json
import re
import zipfile
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from fixtures.session.screening import ScreenedNodes
from pacemark.__main__ import main
from plugins.judging.choice import Choice
from plugins.record.lines import JOBS_LOG
from plugins.record.plan import PLAN
from tests.system.support import pacemark
from tests.unit.bundles import runs
from tests.unit.bundles.changes import (
    CHOICE,
    SUMMARY,
    also,
    at_last,
    case_of,
    chained,
    choice,
    cut,
    in_turn,
    jobs,
    journal,
    record,
    renamed,
    run,
    summary,
    text,
    throughout,
    unsubmitted,
    unsummarised,
    without,
)
from tests.unit.bundles.runs import (
    AGAIN,
    PASSED,
    RUN,
    SLOW,
    STOPPED,
    Change,
    Made,
    changed,
)
from tests.unit.jobs_log import Content, log_of

pytestmark = pytest.mark.usefixtures("parsed_once")
LLAMA3, RECIPE = "basis/baselines/llama3.yaml", "basis/suites/llama3/recipe.yaml"
LONG_AGO = "2024-01-01T00:00:00.000+00:00"


def of_another(lines: list[Content]) -> list[Content]:
    """The lines in which the first job was submitted say another job's id."""
    return [
        jobs(line, PASSED, {"id": "77"})
        if line["jobs"] and line["jobs"][0]["status"] == "submitted"
        else line
        for line in lines
    ]


def scaled(*case_ids: str) -> Content:
    """A curve in `summary.json` on which each scale is as good as the smallest."""
    figures = ("tokens_per_second_per_gpu", "published_tokens_per_second_per_gpu")
    even = {**dict.fromkeys(figures, 1000.0), "efficiency": 1.0, "published_efficiency": 1.0}
    rest = {"limit": None, "why": "", "waived": False}
    scales = [
        {"case": f"llama3/{name}", "gpus": int(name.split("-")[2][:-4]), **even, **rest} for name in case_ids
    ]
    return {"recipe": "llama3", "size": "70b", "dtype": "bf16", "scales": scales}


SCREENED_NODE = dict.fromkeys(("seconds", "slowness")) | {
    "node": "gpu001", "case": PASSED, "leaf": "", "state": "passing", "reason": "",
}  # fmt: skip
SCREENING = {"headline": "1 node", "limit": None, "smallest": None, "unlike": [], "nodes": [SCREENED_NODE]}
ALL_PASSED = in_turn(
    record(SLOW, verdict="passed"),
    summary(lambda found: found["totals"].update({"passed": 3, "too slow": 0})),
    lambda members: changed(members, f"llama3/{SLOW}/case.json", lambda case: case.update(verdict="passed")),
)
NEVER_RAN = in_turn(
    without(f"llama3/{SLOW}/case.json"),
    summary(lambda s: case_of(s, SLOW).update({**case_of(s, STOPPED), "id": f"llama3/{SLOW}"})),
    summary(lambda s: s["totals"].update({"too slow": 0, "infrastructure": 2})),
)
LOGS = [f"llama3/{case_id}/log.txt" for case_id in (PASSED, SLOW)]
OF_ALIASES = b"a: &a [x, x, x, x, x, x, x, x, x]\n" + b"".join(
    f"{chr(98 + i)}: &{chr(98 + i)} [{', '.join([f'*{chr(97 + i)}'] * 9)}]\n".encode() for i in range(12)
)
REFERENCE = (
    "references: [{name: x, size: 70b, dtype: bf16, gpus: 64, tokens_per_second_per_gpu: 1.0, source: y}]"
)
LINE = "jobs.log: a line is none of Pacemark's"

FORGED: dict[str, tuple[Change, str]] = {
    # What the records say
    "a step time in a log": (text(LOGS[1], "s: 16.1", "s: 14.6", 99), f"llama3/{SLOW}: summary.json says 'too slow', its log says: passed"),
    "a slow log was made of a good one": (text(LOGS[0], "s: 14.6", "s: 16.6", 99), f"llama3/{PASSED}: summary.json says 'passed', its log says: too slow"),
    "two logs were swapped": (lambda m: {**m, **dict(zip(LOGS, (m[name] for name in reversed(LOGS)), strict=True))}, f"llama3/{PASSED}: summary.json says 'passed', its log says: "),
    "the verdict in every record": (ALL_PASSED, f"llama3/{SLOW}: summary.json says 'passed', its log says: too slow"),
    "a case counts as never judged": (
        without(f"llama3/{SLOW}/case.json"),
        f"llama3/{SLOW}: summary.json says 'too slow' and llama3/{SLOW}/case.json is missing, its log says: too slow",
    ),
    "a slow case counts as one that never ran": (
        NEVER_RAN,
        f"llama3/{SLOW}: summary.json says 'infrastructure' and llama3/{SLOW}/case.json is missing, its log says: too slow",
    ),
    "a figure of a case that never ran": (
        record(STOPPED, steady_median=1.0),
        f"llama3/{STOPPED}: summary.json differs from its log and the ledger in steady_median (1.0, None)",
    ),
    "the headline of a case that never ran": (
        record(STOPPED, headline="passed: 1 s a step"),
        f"llama3/{STOPPED}: summary.json says 'infrastructure' and llama3/{STOPPED}/case.json is missing",
    ),
    "the totals": (summary(lambda s: s["totals"].update({"too slow": 0})), "summary.json: its totals are not those of its cases: too slow (0, 1)"),
    "the outcome": (summary(outcome="passed"), "the session ended as 'passed', by its verdicts it is 'performance'"),
    "a figure in the summary": (
        record(PASSED, tokens_per_second=9.9e5),
        f"llama3/{PASSED}: summary.json differs from its log and the ledger in tokens_per_second (990000.0,",
    ),
    "a remark in the summary": (record(AGAIN, remarks=[]), f"llama3/{AGAIN}: summary.json differs from its log and the ledger in remarks"),
    "a figure in a case's record": (
        lambda m: changed(m, f"llama3/{PASSED}/case.json", lambda case: case.update(mfu=60.0)),
        f"llama3/{PASSED}/case.json differs from its log and the ledger in mfu (60.0,",
    ),
    "a screening of no case": (summary(screening=SCREENING), "summary.json: its screening differs from its logs in headline"),
    "scaling without a plan": (
        summary(scaling=[scaled(PASSED, SLOW)]),
        f"summary.json: its scaling of llama3/{SLOW} differs from its logs in tokens_per_second_per_gpu (1000.0, ",
    ),
    "what repeats saved": (
        summary(repeated={"at_most": 2, "runs": 3, "not_needed": 3, "gpu_hours_saved": 999.0}),
        "summary.json: what repeats saved differs from the ledger in gpu_hours_saved (999.0, ",
    ),
    "a key twice in the summary": (text(SUMMARY, '"outcome":', '"outcome": "passed", "outcome":'), "summary.json: it has a key twice"),
    "a key twice in a case's record": (
        text(f"llama3/{SLOW}/case.json", '"verdict":', '"verdict": "passed", "verdict":'),
        f"llama3/{SLOW}/case.json: it has a key twice",
    ),
    "the run of the summary": (summary(run="other"), f"summary.json is of run other, jobs.log of run {RUN}, the bundle of run {RUN}"),
    "the site of the summary": (summary(site="other"), "summary.json is of site other, jobs.log of site lab"),
    "the GPU-hours": (summary(gpu_hours=1.0), "summary.json has 1.0 GPU-hours, the jobs in jobs.log took"),
    "the day of the run": (summary(started=LONG_AGO), "summary.json says that the run began at 2024-01-01"),
    "an end of the run before its start": (summary(ended=LONG_AGO), f"summary.json says that the run ended at {LONG_AGO}, before its start at "),
    "a time without its zone, which each machine reads otherwise": (
        summary(started=LONG_AGO.removesuffix("+00:00")),
        "summary.json: is no record of a run: started: Value error, has no time zone",
    ),
    "a case that was not run": (
        summary(lambda s: s["cases"].append({**case_of(s, PASSED), "id": "llama3/8b-bf16-8gpus"})),
        "llama3/8b-bf16-8gpus is in summary.json and was not run",
    ),
    "a case twice": (summary(lambda s: s["cases"].append(case_of(s, PASSED))), "summary.json has a case twice"),
    "a summary that is no record": (summary(lambda s: s.pop("cases") and None), "summary.json: is no record of a run: cases"),
    "no summary": (without(SUMMARY), "summary.json is missing"),
    # What was run
    "a case was left out of the summary": (unsummarised(SLOW, "too slow"), f"llama3/{SLOW} was run and is left out of summary.json"),
    "a case was left out everywhere, and its files stayed": (
        in_turn(unsubmitted(SLOW), unsummarised(SLOW, "too slow")),
        f"llama3/{SLOW} has files and no submission in jobs.log",
    ),
    "a case was left out of the log of jobs": (unsubmitted(SLOW), f"llama3/{SLOW} is in summary.json and was not run"),
    "a failed submission was left out": (unsubmitted(AGAIN), f"llama3/{AGAIN}: try 1 is missing, and there is a try 2: a submission was left out"),
    "a job that is no case, for want of a GPU": (
        in_turn(throughout(SLOW, gpus=0), unsummarised(SLOW, "too slow")),
        f"llama3/{SLOW} is a job without a GPU in jobs.log",
    ),
    "a key twice in the ledger": (chained('"nodes":', '"nodes": "other", "nodes":'), f"{LINE}: it has a key twice"),
    "a line of the journal with a key twice": (chained('"id": "101"', '"id": "77", "id": "101"'), LINE),
    "a time that is no number": (chained('"ended": 1800000900.0', '"ended": NaN'), f"{LINE}: jobs.0.times.ended"),
    "an end of the ledger before its start": (
        journal(lambda rows: [*rows[:-1], run(rows[-1], ended=rows[0]["run"]["started"] - 1)]),
        "jobs.log: the run ended 1 s before its start",
    ),
    "an end of a job before its start": (throughout(ended=1.7e9), f"llama3/{PASSED} try 1: its end is 100,000,000 s before its start in jobs.log"),
    "an end of a job before it was submitted": (throughout(started=None, ended=1.7e9), f"llama3/{PASSED} try 1: its end is "),
    "a cancellation that was confirmed before it was asked for": (
        throughout(cancel_asked=1.8e9, cancel_confirmed=1.7e9),
        f"llama3/{PASSED} try 1: its cancellation was confirmed 100,000,000 s before it was asked for in jobs.log",
    ),
    "the journal was cut off": (cut(lambda rows: rows[:-3]), "jobs.log: the run has not ended"),
    "the journal was cut off in a line": (lambda m: {**m, JOBS_LOG: m[JOBS_LOG][:-9]}, "jobs.log: its last line is cut off"),
    "lines of the journal were moved": (cut(lambda rows: rows[::-1]), "jobs.log: line 1 does not follow the line before it"),
    "a line of the journal was left out": (cut(lambda rows: [*rows[:4], *rows[5:]]), "jobs.log: line 5 does not follow the line before it"),
    "a line of the journal means harm": (cut(lambda rows: [*rows, log_of([{"job": 7}])]), LINE),
    "a line of the journal with a number for a name": (throughout(recipe=7), f"{LINE}: jobs.0.ref.recipe"),
    "a line of the journal with another job's id": (journal(of_another), f"llama3/{PASSED} try 1: jobs.log has it as the jobs 77, 101: one of them was left out"),
    "a line of the journal on another run": (
        journal(lambda rows: [*rows, run(rows[0], id="other")]),
        "is of run other: lines were changed, left out or moved",
    ),
    "a line of the journal with another site": (
        journal(lambda rows: [*rows, run(rows[0], site="other")]),
        "has another site, folder, start or plan: lines were changed, left out or moved",
    ),
    "no journal": (without(JOBS_LOG), "jobs.log is missing"),
    "the journal of another run": (
        journal(lambda rows: [run(row, id="x") for row in rows]),
        f"summary.json is of run {RUN}, jobs.log of run x, the bundle of run {RUN}",
    ),
    "a run that did not end": (journal(lambda rows: [*rows[:-1], run(rows[-1], ended=None)]), "jobs.log: the run has not ended"),
    "a job's id": (at_last(id="999"), f"llama3/{PASSED} try 1: jobs.log has it as the jobs 101, 999: one of them was left out"),
    "a job's id is that of another": (at_last(id="102"), f"llama3/{PASSED} try 1 and llama3/{SLOW} try 1 are one job in jobs.log, 102"),
    "a job that ran less than no time": (at_last(earlier_seconds=-240.0), f"{LINE}: jobs.0.times.earlier_seconds"),
    "a job's end": (at_last(phase="failed"), f"llama3/{PASSED}: summary.json differs from its log and the ledger in "),
    "a job that did not end": (at_last(status="submitted"), f"llama3/{PASSED} try 1 has not ended"),
    "logs that were replayed": (at_last(backend="replay"), "1 case(s) are of logs that were there before: no job of this run wrote them"),
    "an unknown fact": (at_last(seal="x"), f"{LINE}: jobs.0.seal"),
    "a job's GPUs": (at_last(gpus=8), f"llama3/{PASSED}: jobs.log says that it has 8 GPUs"),
    "a path in the ledger": (at_last(recipe="../../etc"), f"{LINE}: jobs.0.ref.recipe"),
    # Files
    "the files of a case that was not run": (also("llama3/8b-bf16-8gpus/log.txt"), "llama3/8b-bf16-8gpus has files and no submission in jobs.log"),
    "the files of a try that was not": (also(f"llama3/{PASSED}/try-1/log.txt"), f"llama3/{PASSED}/try-1 has files and no submission in jobs.log"),
    "the files of a proof that was not": (also(f"llama3/{SLOW}/proof/log.txt"), f"llama3/{SLOW}/proof has files and no submission in jobs.log"),
    "the files of a try below another name": (
        also(f"llama3/{AGAIN}/try-1/first/log.txt"),
        f"llama3/{AGAIN}/try-1/first has files and no submission in jobs.log",
    ),
    "a file beside the cases": (also("llama3/passed.txt"), "llama3/passed.txt has no place in a bundle"),
    "what was sent is gone": (without(f"llama3/{AGAIN}/try-1/sent.txt"), f"llama3/{AGAIN} try 1: what was sent is missing"),
    "a page of their own": (also("report.html"), "report.html has no place in a bundle"),
    "a plan that was added": (also(PLAN, b"site: lab\ncases: [x]\n"), "acceptance.yaml was added: no plan was in the ledger before the first job"),
    # What it was judged by
    "a wider tolerance": (
        text(LLAMA3, "tolerance: {slower: 0.05", "tolerance: {slower: 0.5", 9),
        f"{LLAMA3} is not the published one: tolerance.slower (0.05, 0.5)",
    ),
    "a lower baseline": (
        text(LLAMA3, "step_time: 14.67", "step_time: 16.15", 9),
        f"llama3/{SLOW}: {LLAMA3} is not the published one: step_time (14.67, 16.15) (published, bundle)",
    ),
    "another statistic": (text(LLAMA3, "statistic: last", "statistic: mean:10-20", 9), "is not the published one: statistic (last, mean:10-20)"),
    "a figure of others": (
        text(LLAMA3, "    statistic: last", f"    {REFERENCE}\n    statistic: last", 9),
        f"llama3/{PASSED}: {LLAMA3} is not the published one: references ([], [{{'name': 'x'",
    ),
    "no baselines": (without(LLAMA3), f"llama3/{PASSED}: a number for it is published, and {LLAMA3} has none"),
    "another peak": (
        text("basis/baselines/accelerators.yaml", "bf16: 989", "bf16: 500"),
        "basis/baselines: the data sheet of h100 is not the published one: peak.bf16",
    ),
    "fewer steps in the recipe": (text(RECIPE, "steps: 50", "steps: 20"), f"llama3/{PASSED}: its recipe is not the published one: steps (50, 20)"),
    "another format of logs": (
        text(RECIPE, "log: nemo2", "log: megatron_lm"),
        f"llama3/{PASSED}: its recipe is not the published one: log (nemo2, megatron_lm)",
    ),
    "a recipe of a thousand million steps": (text(RECIPE, "steps: 50", "steps: 1000000000"), "has more than 1,000,000 steps"),
    "a recipe of a hundred million cases": (
        text(RECIPE, "dtype: [bf16], gpus: [64", f"dtype: [{'bf16, ' * 10_000}bf16], gpus: [{'64, ' * 10_000}64"),
        "recipe.yaml: cases: are more than 10,000 with all variants",
    ),
    "the tolerance of a plan that there is not": (
        choice(agreed={"slower": 0.15}),
        "4 case(s) are judged by the tolerance of a plan in basis/choices/, and the run has no plan",
    ),
    "no recipe": (without(RECIPE), "it cannot be judged: basis/suites/llama3/recipe.yaml is missing"),
    "no recipe for a case that never ran": (without(RECIPE), f"llama3/{STOPPED}: summary.json says 'infrastructure', and it cannot be judged: "),
    "a recipe with an alias of aliases": (also(RECIPE, OF_ALIASES), "it cannot be judged: "),
    "a choice": (choice(strict_last="yes"), f"{CHOICE}: cannot be read: strict_last"),
    "a driver's version": (
        choice(versions={"driver": "600"}),
        "differs from its log and the ledger in versions.driver (550.54, 600)",
    ),
}  # fmt: skip


def planned(plan: str) -> Change:
    """Another plan, also in the summary."""
    digest = hashlib.sha256(plan.encode()).hexdigest()
    return in_turn(
        summary(lambda found: found["acceptance"].update(digest=digest)), also(PLAN, plan.encode())
    )


def planned_throughout(plan: str) -> Change:
    """Another plan, also in the summary and in each line of the log of jobs."""
    digest = hashlib.sha256(plan.encode()).hexdigest()
    return in_turn(journal(lambda rows: [run(row, plan=digest) for row in rows]), planned(plan))


def decided(**values: Any) -> Change:
    return summary(lambda found: found["acceptance"].update(values))


# The plan asks for all scales of a model, of which the recipe has fewer than the published one.
ALL_SCALES = runs.PLAN_TEXT.replace("cases: [", "number: 4\ncases: [llama3/70b-bf16-*, ")
SCALES = "dtype: [bf16], gpus: [64, 128"
ANOTHER = "acceptance.yaml is not the plan that the ledger had before the first job"
ACCEPTED = "summary.json says 'accepted' of acceptance.yaml, its logs say: incomplete: "
PLANS: dict[str, tuple[Change, str]] = {
    "the date of a waiver": (text(PLAN, "2099-12-31", "2098-12-31"), ANOTHER),
    "another plan afterwards": (planned(runs.PLAN_TEXT.replace("0.06", "0.12")), ANOTHER),
    "another plan in a line after the first job": (
        journal(lambda rows: [*rows[:-1], run(rows[-1], plan="0" * 64)]),
        "has another site, folder, start or plan: lines were changed, left out or moved",
    ),
    "no plan any more": (without(PLAN), "acceptance.yaml is missing: the ledger had it before the first job"),
    "the tolerance beside the plan": (choice(agreed={"slower": 0.15}), f"{CHOICE}: its tolerance is not that of acceptance.yaml"),
    "a plan of another site": (
        planned_throughout(runs.PLAN_TEXT.replace("site: lab", "site: other")),
        "acceptance.yaml is for site other, the run is of site lab",
    ),
    "logs that were replayed": (at_last(backend="replay"), f"{ACCEPTED}the run: its logs were replayed"),
    "a session that was shut down": (summary(exit_code=None), f"{ACCEPTED}the run: the session was shut down"),
    "another network than the plan's": (
        planned_throughout(f"{runs.PLAN_TEXT}network: IB\n"),
        "network: the plan has IB, and the site file has none",
    ),
    "the decision": (decided(decision="incomplete"), "summary.json says 'incomplete' of acceptance.yaml, its logs say: accepted"),
    "a waived case is not told": (decided(waived=[]), "summary.json: its decision differs from its logs in waived"),
    "a number that nobody published": (
        decided(unpublished={"llama3/70b-bf16-64gpus": "an agreed number"}),
        "summary.json: its decision differs from its logs in unpublished",
    ),
    "no decision": (summary(acceptance=None), "summary.json says 'nothing' of acceptance.yaml, its logs say: accepted"),
    "scaling": (
        summary(lambda s: s["scaling"][0]["scales"][1].update(efficiency=0.999)),
        "summary.json: its scaling differs from its logs in [0].scales[1].efficiency (0.999,",
    ),
    "a recipe without cases of the plan": (
        in_turn(planned_throughout(ALL_SCALES), text(RECIPE, f"{SCALES}, 256, 512, 1024, 2048]", f"{SCALES}, 256]")),
        "acceptance.yaml: number: the plan says 4 cases, and `cases` selects ",
    ),
    "a case of the plan was left out": (
        in_turn(unsubmitted(PASSED), unsummarised(PASSED, "passed")),
        f"{ACCEPTED}llama3/70b-bf16-64gpus: it was not run",
    ),
}  # fmt: skip


def screened(**values: Any) -> Change:
    return summary(lambda found: found["screening"].update(values))


def first_node(**values: Any) -> Change:
    return summary(lambda found: found["screening"]["nodes"][0].update(values))


DIFFERS = "its screening differs from its logs in "
SCREENED: dict[str, tuple[Change, str]] = {
    "no screening": (
        summary(lambda found: found.pop("screening") and found),
        f"{DIFFERS}headline (None, 4 nodes, 1 failing (a4), 0 not judged, 3 passing; ",
    ),
    "its headline": (screened(headline="4 nodes, 4 passing"), f"{DIFFERS}headline (4 nodes, 4 passing, 4 nodes, 1 failing (a4), "),
    "the state of a node": (first_node(state="passing"), f"{DIFFERS}nodes[0].state (passing, failing)"),
    "what speaks against a node": (first_node(reason=""), f"{DIFFERS}nodes[0].reason (, 4.0 % slower than its peers (limit 2.5 %)"),
    "the outcome": (summary(outcome="passed"), "the session ended as 'passed', by its verdicts it is 'performance'"),
}  # fmt: skip


@pytest.fixture(scope="module")
def screening(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """A run of four nodes, each of which passed, and one of which is slower than the others."""
    folder = tmp_path_factory.mktemp("screening")
    healthy = (Path(__file__).parents[1] / "cpu_logs" / "busy.log").read_text()

    def slower(step: re.Match[str]) -> str:
        seconds = f"{1.04 * float(step[1]):.6f}"
        return f"seconds: {seconds}, TFLOP/s/device: {float(step[2]) / 1.04:.6f}, Tokens/s/device: {1024 / float(seconds):.3f}"

    slow = re.sub(r"seconds: (\S+), TFLOP/s/device: (\S+), Tokens/s/device: [\d.]+", slower, healthy)
    names = ("a1", "a2", "a3", "a4")
    for node in names:
        place = folder / f"logs/proxy/tiny-fp32-1gpus.{node}"
        place.mkdir(parents=True)
        (place / "log.txt").write_text(slow if node == "a4" else healthy)
    nodes = ScreenedNodes("tiny-fp32-1gpus", dict.fromkeys(names, ""), {"a1": "leaf0"})
    (folder / "logs/nodes.json").write_text(nodes.text)
    replay = ("--backend", "replay", "--from", str(folder / "logs"))
    run = pacemark("suites/node", *replay, results=folder / "results")
    assert (run.status, run.summary["outcome"], set(run.verdicts.values())) == (
        1,
        "performance",
        {"passed"},
    ), run.out
    assert main(["bundle", str(run.folder), "-o", str(folder / "run.zip")]) == 0
    with zipfile.ZipFile(folder / "run.zip") as bundle:
        bundle.extractall(folder / run.folder.name)
    return Made.of(folder / run.folder.name)


@pytest.mark.parametrize("name", ["usual", "accepted", "screening"])
def test_a_run_that_is_forged_in_nothing_is_verified(
    name: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """What the tests of forged runs change is all that is wrong with them."""
    findings = request.getfixturevalue(name).examined(tmp_path)
    assert (findings.wrong, findings.cannot) == ([], [])


def told(made: Made, folder: Path, change: Change, predicate: dict[str, str] | None = None) -> str:
    """What is found of a run that is not verified."""
    findings = made.examined(folder, change, predicate=predicate)
    assert findings.wrong
    return "\n".join([*findings.wrong, *findings.cannot, *findings.notes])


@pytest.mark.parametrize(("change", "finding"), FORGED.values(), ids=FORGED)
def test_what_two_parties_forged_together_is_named(
    change: Change, finding: str, usual: Made, tmp_path: Path
) -> None:
    assert finding in told(usual, tmp_path, change)


@pytest.mark.parametrize(("change", "finding"), PLANS.values(), ids=PLANS)
def test_what_was_forged_around_a_plan_is_named(
    change: Change, finding: str, accepted: Made, tmp_path: Path
) -> None:
    found = told(accepted, tmp_path, change)
    assert finding in found
    assert "has a decision, and the run has no plan" not in found


@pytest.mark.parametrize(("change", "finding"), SCREENED.values(), ids=SCREENED)
def test_what_was_forged_in_a_screening_is_named(
    change: Change, finding: str, screening: Made, tmp_path: Path
) -> None:
    assert finding in told(screening, tmp_path, change)


def test_a_plan_that_the_first_line_does_not_have_is_named(accepted: Made, tmp_path: Path) -> None:
    """That line was there before the first job."""
    forged = journal(lambda rows: [run(rows[0], plan=""), *rows[1:]])
    assert "jobs.log: line 2 has another site, folder, start or plan" in told(accepted, tmp_path, forged)


def test_a_decision_without_a_plan_is_named(accepted: Made, usual: Made, tmp_path: Path) -> None:
    decision = json.loads(accepted.members[SUMMARY])["acceptance"]
    finding = "summary.json has a decision, and the run has no plan"
    assert finding in told(usual, tmp_path, summary(acceptance=decision))


@pytest.mark.parametrize(
    ("predicate", "finding"),
    [
        ({"site": "other"}, "statement.dsse.json says site 'other', jobs.log says 'lab'"),
        ({"plan": "other"}, "statement.dsse.json says plan 'other', jobs.log says ''"),
        ({"run": "another"}, "the bundle of run another"),
    ],
)
def test_a_statement_of_something_else_is_named(
    predicate: dict[str, str], finding: str, usual: Made, tmp_path: Path
) -> None:
    assert finding in told(usual, tmp_path, dict, predicate)


def test_what_differs_comes_with_the_commit_that_made_the_run(usual: Made, tmp_path: Path) -> None:
    note = "the run was made with commit ab12 of Pacemark: with another one its records may differ"
    assert note in told(usual, tmp_path, summary(commit="ab12", gpu_hours=1.0))


def test_how_a_case_without_a_number_is_measured_is_the_published_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "Choice", partial(Choice, gpu="h123"))
    made = Made.of(runs.make_run(tmp_path))
    finding = f"llama3/{PASSED}: {LLAMA3} is not the published one: statistic (last, mean:10-20)"
    assert finding in told(
        made, tmp_path / "forged", text(LLAMA3, "statistic: last", "statistic: mean:10-20", 9)
    )


def test_the_files_of_a_mode_are_not_looked_for_by_the_pattern_of_another(
    usual: Made, tmp_path: Path
) -> None:
    """Such a pattern may take years."""
    case = "70b-profile-bf16-128gpus"
    pattern = text(RECIPE, r"profile_.*\.nsys-rep", "(.|.)*x")
    profiled = in_turn(renamed(SLOW, case), pattern)
    reason = "it cannot be judged: its mode is not the published one"
    assert f"llama3/{case}: summary.json says 'too slow', and {reason}" in told(
        usual, tmp_path / "a", profiled
    )
    unknown = usual.examined(tmp_path / "b", in_turn(profiled, renamed("llama3", "mine")))
    reason = "this Pacemark has no recipe mine, and looks for no files by another's patterns"
    assert (unknown.wrong, f"mine/{case}: {reason}" in unknown.cannot) == ([], True)


def is_intent(row: Content) -> bool:
    return [job["status"] for job in row["jobs"]] == ["intent"]


UNKNOWN: dict[str, tuple[Change, str]] = {
    "a ledger that was made anew": (
        journal(lambda rows: [*rows, {**rows[-1], "damage": ["line 3 has a wrong checksum"]}]),
        "jobs.log was damaged, so whether it has each submission is not known: line 3 has a wrong checksum",
    ),
    "a gap in the journal": (
        journal(lambda rows: [row for row in rows if row is not next(filter(is_intent, rows))]),
        f"llama3/{PASSED} try 1: jobs.log lacks a change of it: it was submitted, and no line says that it",
    ),
    "a record of a newer schema": (summary(schema=2), "summary.json is of schema 2, and this Pacemark knows 1"),
    "a recipe that is nobody's": (
        renamed("llama3", "mine"),
        "this Pacemark has no recipe mine: it is judged by what the bundle says of it",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("change", "reason"), UNKNOWN.values(), ids=UNKNOWN)
def test_what_this_version_does_not_know_proves_nothing(
    change: Change, reason: str, usual: Made, tmp_path: Path
) -> None:
    findings = usual.examined(tmp_path, change)
    assert (findings.wrong, reason in "\n".join(findings.cannot)) == ([], True)
