"""How a session ends: exit codes with and without `--gate`, and what CI reads; no test hides a case that has not passed. Logs are replayed."""

from __future__ import annotations

import itertools
import json
import re
import shutil
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import pytest

from plugins.record.plan import Decision
from plugins.record.stored import read_summary, write_summary
from plugins.record.verdict import Kind, Outcome
from plugins.reports.benchmark import require_comparable
from plugins.reports.gate import CODES, exit_code, overall
from tests.printed import nemo2
from tests.system.support import CASE, Run, pacemark
from tests.unit import examples
from tests.unit.bundles import runs

PASSED, SLOW, OTHER = "70b-bf16-64gpus", "70b-bf16-128gpus", "70b-bf16-256gpus"


def session(
    folder: Path, paces: Mapping[str, float | None], *options: str, env: dict[str, str] | None = None
) -> Run:
    """Replay a log of each case at this pace, relative to the published one; None: there is no log."""
    logs = folder / "logs"
    logs.mkdir(exist_ok=True)
    for number, (case_id, pace) in enumerate(paces.items()):
        case = examples.case(case_id)
        name = logs / f"log-x.pretrain_llama3.1_{case.size}_{case.dtype}_{case.gpus}_{number}_0.out"
        name.unlink(missing_ok=True)
        if pace is not None:
            seconds = examples.target(case_id).step_time * pace
            lines = [nemo2.nemo2_line(step, seconds, gbs=case.gbs) for step in range(50)]
            name.write_text("\n".join([f"Starting with {case.gpus} processes", *lines, ""]))
    chosen = [f"suites/llama3/test_llama3.py::test_pretrain[{case_id}]" for case_id in paces]
    replay = ("--backend", "replay", "--from", str(logs))
    return pacemark(*chosen, *replay, *options, results=folder / "results", env=env)


def test_every_combination_of_verdicts_has_the_code_of_its_worst() -> None:
    order = [
        *((kind, 10) for kind in (Kind.TOO_SLOW, Kind.TOO_FAST, Kind.NOISY)),
        (Kind.INVALID, 11),
        *((kind, 12) for kind in (Kind.INFRASTRUCTURE, Kind.LOST)),
        *((kind, 13) for kind in (Kind.NO_BASELINE, Kind.SKIPPED)),
        (Kind.PASSED, 0),
    ]
    assert {kind for kind, _ in order} == set(Kind)
    for size in (1, 2, 3):
        for some in itertools.combinations(order, size):
            totals = Counter(kind for kind, _ in some)
            status = int(some[0][1] in (10, 11, 12))
            code = exit_code(status, overall(status, totals))
            assert code == min(number or 99 for _, number in some) % 99, some


def test_a_look_at_a_run_does_not_end_as_the_run_did(tmp_path: Path) -> None:
    run = runs.make_run(tmp_path)
    write_summary(run, replace(read_summary(run), regressions=(f"llama3/{SLOW}: slower",)))
    choice = (f"suites/llama3/test_llama3.py::test_pretrain[{SLOW}]", "--resume", run.name, "--plan")
    look = pacemark(*choice, results=tmp_path)
    assert (look.status, "regressed" in look.out) == (0, False), look.out


@pytest.mark.parametrize("status", [2, 3, 4, 5, 6, 42])
def test_what_pytest_says_of_the_session_stays(status: int) -> None:
    outcome = overall(status, Counter([Kind.PASSED, Kind.TOO_SLOW]))
    assert CODES[outcome] == (status if status < 6 else 1)
    assert exit_code(status, outcome) == status


@pytest.mark.parametrize(
    ("status", "totals", "found", "outcome"),
    [
        (1, [Kind.TOO_SLOW], {"other": True}, Outcome.FAILED),
        (0, [Kind.TOO_SLOW], {}, Outcome.PERFORMANCE),
        (1, [Kind.PASSED], {}, Outcome.FAILED),
        (1, [Kind.NO_BASELINE], {}, Outcome.FAILED),
        (1, [Kind.PASSED], {"uncompared": True}, Outcome.FAILED),
        (0, [Kind.PASSED], {"uncompared": True}, Outcome.NO_BASELINE),
        (1, [Kind.PASSED], {"regressed": True}, Outcome.PERFORMANCE),
        (1, [Kind.PASSED, Kind.INVALID], {"regressed": True}, Outcome.PERFORMANCE),
        (0, [], {}, Outcome.EMPTY),
    ],
)
def test_what_verdicts_do_not_tell(
    status: int, totals: list[Kind], found: dict[str, bool], outcome: Outcome
) -> None:
    assert overall(status, Counter(totals), **found) is outcome


@pytest.mark.parametrize(
    ("status", "outcome", "decision", "code", "gate"),
    [
        (1, Outcome.PERFORMANCE, Decision.ACCEPTED, 0, 0),
        (0, Outcome.PASSED, Decision.INCOMPLETE, 1, 14),
        (0, Outcome.NO_BASELINE, Decision.INCOMPLETE, 1, 13),
        (1, Outcome.PERFORMANCE, Decision.NOT_ACCEPTED, 1, 10),
        (2, Outcome.INTERRUPTED, Decision.INCOMPLETE, 2, 2),
        (3, Outcome.INTERNAL_ERROR, Decision.ACCEPTED, 3, 3),
    ],
)
def test_with_a_plan_only_an_accepted_run_is_0(
    status: int, outcome: Outcome, decision: Decision, code: int, gate: int
) -> None:
    assert exit_code(status, outcome, decision, gate=False) == code
    assert exit_code(status, outcome, decision) == gate


def test_only_a_session_that_passed_is_0() -> None:
    assert [outcome for outcome, code in CODES.items() if code == 0] == [Outcome.PASSED]
    assert len(set(CODES.values())) == len(Outcome)


def gate_of(run: Run) -> tuple[int, str, int]:
    return run.status, run.summary["outcome"], run.summary["exit_code"]


def test_the_gate_is_open_if_all_passed(tmp_path: Path) -> None:
    run = session(tmp_path, {PASSED: 1.0}, "--gate")
    assert gate_of(run) == (0, "passed", 0), run.out
    assert "gate: passed, exit code 0" in run.out


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A session in which one case passed, one was too slow and one found no log; as on GitHub."""
    folder = tmp_path_factory.mktemp("mixed")
    (folder / "step.md").write_text("from another step\n")
    run = session(
        folder, {PASSED: 1.0, SLOW: 1.2, OTHER: None}, "--gate", f"--junitxml={folder / 'junit.xml'}",
        env={"GITHUB_STEP_SUMMARY": str(folder / "step.md")},
    )  # fmt: skip
    assert gate_of(run) == (10, "performance", 10), run.out
    return run


def test_the_totals_are_those_of_the_cases(mixed: Run) -> None:
    found = {kind: count for kind, count in mixed.summary["totals"].items() if count}
    assert found == {"passed": 1, "too slow": 1, "invalid run": 1}
    assert set(mixed.summary["totals"]) == set(Kind)
    # A replay has no jobs.
    assert mixed.summary["gpu_hours"] == 0


def test_what_logs_do_not_say_is_told_once_for_all_of_them(mixed: Run) -> None:
    assert mixed.out.count("which a log does not say") == 1
    assert "replay: judged as llama3 25.04 on h100, which a log does not say (--release; " in mixed.out
    assert all("does not say" not in remark for case in mixed.summary["cases"] for remark in case["remarks"])


def test_junit_has_the_verdict_and_the_figures(mixed: Run) -> None:
    cases = {
        case.attrib["name"]: {p.attrib["name"]: p.attrib["value"] for p in case.iterfind("properties/*")}
        for case in ElementTree.parse(mixed.folder.parents[1] / "junit.xml").iter("testcase")
    }
    slow = cases[f"test_pretrain[{SLOW}]"]
    assert (slow["verdict"], slow["job"], slow["gpus"], slow["release"]) == ("too slow", "1", "128", "25.04")
    record = mixed.case(f"llama3/{SLOW}")
    assert float(slow["tokens_per_second"]) == pytest.approx(record["tokens_per_second"])
    assert float(slow["deviation"]) == pytest.approx(record["deviation"])
    assert f" {record['deviation']:+.1f} % throughput (limit -5 %)" in record["headline"]
    broken = cases[f"test_pretrain[{OTHER}]"]
    assert broken["verdict"] == "invalid run"
    assert "mfu" not in broken
    # There is no plan.
    environment = (mixed.folder / "allure" / "environment.properties").read_text()
    assert "acceptance" not in environment + (mixed.folder.parents[1] / "junit.xml").read_text()


def test_allure_explains_a_case_once(mixed: Run) -> None:
    result, headline = mixed.allure[f"llama3/{SLOW}"], mixed.case(f"llama3/{SLOW}")["headline"]
    assert result["name"] == f"too slow {mixed.case(f'llama3/{SLOW}')['deviation']:+.1f} %: 70b bf16 128 GPUs"
    assert result["statusDetails"] == {"message": headline}
    assert json.dumps(result).count(headline) == 2
    assert "data:image/svg+xml;base64," in result["descriptionHtml"]


def test_the_summary_of_the_step_on_github(mixed: Run) -> None:
    text = (mixed.folder.parents[1] / "step.md").read_text()
    assert text.startswith("from another step\n## Pacemark: performance\n")
    rows = [line.split(" | ") for line in text.splitlines() if line.startswith("| `")]
    # Those that did not pass come first.
    assert [row[0] for row in rows] == [f"| `llama3/{case}`" for case in (SLOW, OTHER, PASSED)]
    assert [row[1] for row in rows] == ["too slow", "invalid run", "passed"]
    assert f"- `llama3/{SLOW}`: `too slow: " in text
    lines = [line.partition("::too slow: ")[0] for line in mixed.out.splitlines() if line.startswith("::")]
    assert lines[0] == f"::error title=llama3/{SLOW}"
    assert len(lines) == 2


def test_openmetrics_has_the_figures_of_each_case(mixed: Run) -> None:
    lines = (mixed.folder / "metrics.txt").read_text().splitlines()
    assert 'pacemark_cases{verdict="too slow"} 1' in lines
    record = mixed.case(f"llama3/{SLOW}")
    labels = f'case="llama3/{SLOW}",recipe="llama3",release="25.04",gpu="h100",gpus="128",dtype="{record["configuration"]["dtype"]}"'
    assert f"pacemark_step_seconds{{{labels}}} {record['step_time']:.10g}" in lines
    assert f"pacemark_deviation_percent{{{labels}}} {record['deviation']:.10g}" in lines
    assert [line for line in lines if OTHER in line] == []
    assert lines[-1] == "# EOF"


@pytest.mark.parametrize(
    ("paces", "options", "status"),
    [
        ({SLOW: 1.2, OTHER: None}, (), 1),
        # Its first failure ends the session; what the others would have been is unknown.
        ({SLOW: 1.2, OTHER: 1.0}, ("--gate", "-x"), 1),
        ({SLOW: 1.2, PASSED: 1.0}, ("--gate", "-k", "nothing"), 5),
        ({PASSED: 1.0}, ("--gate", "--plan"), 4),
    ],
)
def test_exit_codes(
    tmp_path: Path, paces: dict[str, float | None], options: tuple[str, ...], status: int
) -> None:
    run = session(tmp_path, paces, *options)
    assert run.status == status, run.out
    assert "Traceback" not in run.out
    if (run.folder / "summary.json").exists():
        assert run.summary["exit_code"] == status


def test_a_case_without_a_baseline_is_not_passed(tmp_path: Path) -> None:
    site = tmp_path / "site.yaml"
    site.write_text("site: lab\nreplay: {gpu: b200}\n")
    run = session(tmp_path, {PASSED: 1.0}, "--gate", "--site", str(site))
    assert gate_of(run) == (13, "no baseline", 13), run.out
    assert "\nnothing was decided: of 1 case none passed or failed; exit code 13\nrecord: " in run.out


def test_looking_starts_no_jobs_with_xdist_either(tmp_path: Path) -> None:
    run = session(tmp_path, {PASSED: 1.0}, "--check", "-d", "--tx", "popen")
    assert run.status == 0, run.out
    assert "nothing was submitted" in run.out
    assert not list(tmp_path.glob("results/*/summary.json"))


def test_a_record_that_is_not_whole_does_not_say_passed(tmp_path: Path) -> None:
    planted = tmp_path / "test_planted.py"
    planted.write_text(
        f"from pathlib import Path\n\ndef test_planted():\n    Path({str(tmp_path / 'results/latest/ctrf.json')!r}).mkdir()\n"
    )
    run = session(tmp_path, {PASSED: 1.0}, "--gate", str(planted))
    assert "the record of the run could not be written" in run.out
    assert gate_of(run) == (1, "failed", 1), run.out


def test_a_report_that_pytest_cannot_write_leaves_no_record_that_says_passed(tmp_path: Path) -> None:
    run = session(tmp_path, {PASSED: 1.0}, "--gate", "--junitxml", "/dev/full")
    assert gate_of(run) == (1, "failed", 1), run.out
    assert (
        f"a report could not be written: [Errno 28] No space left on device; the run's folder is {run.folder}"
        in run.out
    )
    assert "Traceback" not in run.out


@pytest.mark.parametrize("text", ["def test_plain():\n    assert 1 == 2\n", "assert 1 == 2\n"])
def test_a_test_that_fails_by_itself_is_no_verdict(text: str, tmp_path: Path) -> None:
    plain = tmp_path / "test_plain.py"
    plain.write_text(text)
    run = session(tmp_path, {SLOW: 1.2}, "--gate", "--continue-on-collection-errors", str(plain))
    assert gate_of(run) == (1, "failed", 1), run.out


# --benchmark-compare-fail


def test_a_regression_is_told_in_words(tmp_path: Path) -> None:
    storage = f"--benchmark-storage={tmp_path / 'saved'}"
    saved = session(tmp_path, {PASSED: 1.0}, storage, "--benchmark-save=monday")
    assert saved.status == 0, saved.out
    compare = (storage, "--benchmark-compare", "--benchmark-compare-fail=median:3%")
    # 4 % are within the band, so that the case itself passes.
    worse = session(tmp_path, {PASSED: 1.04}, *compare)
    assert gate_of(worse) == (1, "performance", 1), worse.out
    assert "Traceback" not in worse.out
    before, now = (
        run.case(f"llama3/{PASSED}")["steady_median"] for run in (saved, worse)
    )  # fmt: skip
    line = (
        f"llama3/{PASSED}: median {now:.4g} s, +4.0 % (limit 3 %), where it was {before:.4g} s in 0001_monday"
    )
    assert worse.summary["regressions"] == [line]
    assert f"regressed: {line}" in worse.out
    # A case that the saved benchmark lacks has not kept its pace either.
    alone = session(tmp_path, {PASSED: 1.0, OTHER: 1.0}, *compare, "--gate")
    assert gate_of(alone) == (13, "no baseline", 13), alone.out
    assert alone.summary["regressions"] == []
    assert f"not compared: llama3/{OTHER}: not in 0001_monday" in alone.out


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"compare_fail": ["x"]}, "give --benchmark-compare too"),
        ({"compare_fail": ["x"], "compare": True}, "--benchmark-save=NAME saves a run"),
        ({"compare_fail": ["x"], "disabled": True}, "--benchmark-compare-fail: nothing is saved or compared"),
        ({"save": "monday", "disabled": True}, "--benchmark-save: nothing is saved or compared if pytest-"),
        ({"autosave": True, "skip": True}, "--benchmark-autosave: nothing is saved or compared if pytest-"),
        ({"compare": True, "disabled": True}, "--benchmark-compare: nothing is saved or compared"),
    ],
)
def test_what_cannot_be_compared_is_told(options: dict[str, Any], told: str) -> None:
    results = ("save", "autosave", "json", "histogram", "compare", "compare_fail")
    off = dict.fromkeys((*results, "disabled", "skip"))
    session = SimpleNamespace(**{**off, "compared_mapping": {}, **options})
    config: Any = SimpleNamespace(_benchmarksession=session, getoption=lambda name: "there")
    with pytest.raises(pytest.UsageError, match=re.escape(told)):
        require_comparable(config)


def test_what_cannot_be_compared_is_told_before_the_first_job(tmp_path: Path) -> None:
    run = session(tmp_path, {PASSED: 1.0}, "--benchmark-save=monday", "-n", "2")
    told = "--benchmark-save: nothing is saved or compared if pytest-"
    assert (run.status, told in run.out) == (4, True), run.out
    assert not (tmp_path / "results" / "latest").exists()


def test_a_case_that_the_site_file_leaves_out_is_counted_and_named(tmp_path: Path) -> None:
    site = tmp_path / "site.yaml"
    site.write_text("site: here\nlocal: {gpu: cpu, dtypes: [bf16]}\n")
    run = pacemark("suites/proxy", "-k", "tiny", "--gate", "--site", str(site), results=tmp_path / "results")
    assert "left out 1 case(s) of proxy: dtype fp32 is not in dtypes (tiny-fp32-1gpus)" in run.out
    assert "1 selected case(s) were left out and not judged" in run.out
    assert run.status == 5


CASES = [f"70b-{dtype}-{gpus}gpus" for dtype in ("bf16", "fp8") for gpus in (64, 128, 256)]


@pytest.fixture(scope="module")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> Callable[[bool], Path]:
    """The folder of a run in which all cases passed, and of one without the last case."""

    @cache
    def made(whole: bool) -> Path:
        folder = tmp_path_factory.mktemp("earlier")
        assert session(folder, dict.fromkeys(CASES if whole else CASES[:-1], 1.0)).status == 0
        return (folder / "results" / "latest").resolve()

    return made


@pytest.mark.parametrize(
    ("pace", "options", "status", "line"),
    [
        (1.045, ("--fail-if", "slower", "--gate"), 10, f"differs: llama3/{SLOW}: slower than in "),
        (0.96, ("--fail-if", "slower", "--gate"), 0, ""),
        (None, ("--fail-if", "slower", "--gate"), 13, "not compared: llama3/"),
    ],
)
def test_a_session_fails_for_a_difference_from_an_earlier_run_if_it_is_asked_to(
    tmp_path: Path,
    earlier: Callable[[bool], Path],
    pace: float | None,
    options: tuple[str, ...],
    status: int,
    line: str,
) -> None:
    paces = {**dict.fromkeys(CASES, 1.0), SLOW: pace or 1.0}
    run = session(tmp_path, paces, "--compare", str(earlier(pace is not None)), *options)
    assert run.status == status, run.out
    assert (line in run.out) if line else ("differs: " not in run.out and "not compared: " not in run.out)
    assert run.summary["exit_code"] == status


def test_fail_if_without_a_run_to_compare_with_is_a_mistake(tmp_path: Path) -> None:
    run = session(tmp_path, {PASSED: 1.0}, "--fail-if", "slower")
    told = "--fail-if is about an earlier run: give --compare RUN too"
    assert (run.status, told in run.out) == (4, True), run.out


TESTS = """
import pytest

def test_that_asks_for_no_figure(case):
    pass

def test_that_skips(measured):
    pytest.skip("not today")

def test_that_expects_a_failure(measured):
    pytest.xfail("as ever")

def test_that_asks_late(case, request):
    request.getfixturevalue("measured")

@pytest.mark.xfail(reason="as ever")
def test_that_is_marked(measured, expected):
    assert measured.tokens_per_second == expected.tokens_per_second

@pytest.mark.xfail(reason="as ever", run=False)
def test_that_is_marked_not_to_run(measured):
    pass

@pytest.fixture
def ready(measured):
    pytest.skip("not today")

def test_that_skips_in_its_setup(ready):
    pass
"""


def hidden(folder: Path, *options: str) -> Run:
    """A run of one case, 20 % slower than published, in a suite of these tests."""
    suite, logs = folder / "llama3", folder / "logs"
    shutil.copytree(examples.ROOT / "suites" / "llama3", suite)
    (suite / "test_llama3.py").write_text(TESTS)
    logs.mkdir()
    pace = 1.2 * examples.target().step_time
    (logs / "log-x.pretrain_llama3.1_70b_fp8_512_1_0.out").write_text(examples.nemo2_text([pace] * 50))
    return pacemark(
        # No pytest.ini registers the mark of the cases there.
        str(suite), "--rootdir", str(examples.ROOT), "-p", "conftest", "-W", "default", "-k", "70b and fp8 and 512",
        "--backend", "replay", "--from", str(logs), *options, results=folder / "results",
    )  # fmt: skip


def test_no_test_of_a_case_hides_its_verdict(tmp_path: Path) -> None:
    found = hidden(tmp_path)
    failed = [line for line in found.out.splitlines() if line.startswith(("FAILED ", "ERROR "))]
    assert found.status == pytest.ExitCode.TESTS_FAILED
    assert len(failed) == TESTS.count("def test_that_") == 7, found.out
    assert all("::test_that_" in line for line in failed)
    assert "the case was not judged: its test asks for none of its figures" in found.out
    assert found.verdicts == {CASE: "too slow"}


@pytest.mark.parametrize("option", ["--setup-only", "--benchmark-only"])
def test_an_option_with_which_nothing_is_judged_is_refused(option: str, tmp_path: Path) -> None:
    found = hidden(tmp_path, option)
    assert found.status == pytest.ExitCode.USAGE_ERROR
    assert f"{option}: the cases would run, and their tests would judge none of them" in found.out
    assert "Traceback" not in found.out
