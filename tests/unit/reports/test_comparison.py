"""`python -m pacemark compare FIRST SECOND` on runs whose records are written by hand."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fixtures.session.agreed import earlier_run
from pacemark.__main__ import main
from plugins.base.errors import ConfigError
from plugins.record.case import CaseRecord
from plugins.record.folder import SUMMARY
from plugins.record.job import Job, JobRef
from plugins.record.lines import JOBS_LOG
from plugins.record.stored import case_as_json

CASES = [
    f"llama3/{size}-{dtype}-{gpus}gpus"
    for size in ("8b", "70b", "405b")
    for dtype in ("bf16", "fp8")
    for gpus in (64, 512)
]


def record(case: str, seconds: float, **changes: Any) -> dict[str, Any]:
    recipe, _, rest = case.partition("/")
    _, dtype, gpus = rest.split("-")
    found = case_as_json(CaseRecord.unjudged(Job(ref=JobRef(recipe, rest, f"run.{case}")), "nothing"))
    configuration = {"gpus": int(gpus.removesuffix("gpus")), "dtype": dtype, "gpu": "h100", "tp": 4}
    return {
        **found,
        "verdict": "passed",
        "steady_median": seconds,
        "configuration": configuration,
        "versions": {"NCCL": "2.21.5"},
        **changes,
    }


def run(folder: Path, name: str, *records: dict[str, Any], **changes: Any) -> str:
    path = folder / name
    path.mkdir()
    summary = {
        "schema": 1, "run": name, "site": "lab", "outcome": "passed", "exit_code": 0, "regressions": [], "uncompared": [],
        "started": "2026-11-22T10:00:00.000+00:00", "ended": "2026-11-22T11:00:00.000+00:00",
        "commit": None, "dirty": None, "versions": {"pacemark": "0.1.0"}, "totals": {"passed": len(records)},
        "gpu_hours": 1.0, "repeated": None, "acceptance": None, "scaling": [], "left_out": [], "files": {}, "cases": list(records),
    }  # fmt: skip
    (path / SUMMARY).write_text(json.dumps({**summary, **changes}))
    return str(path)


def compared(capsys: pytest.CaptureFixture[str], *options: str, code: int = 0) -> str:
    """What the command prints that ends with this exit code."""
    assert main(["compare", *options]) == code
    return capsys.readouterr().out


@pytest.fixture
def first(tmp_path: Path) -> str:
    """A run in which all cases had the same pace."""
    return run(tmp_path, "first", *(record(case, 5.0) for case in CASES))


def test_a_slower_case_and_what_else_changed(
    first: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    records = [record(case, 5.2 if case == CASES[3] else 5.0, versions={"NCCL": "2.23.4"}) for case in CASES]
    text = compared(capsys, first, run(tmp_path, "second", *records, site="other"))
    assert "second against first" in text
    assert f"{CASES[3]}: -3.8 % (" in text
    assert text.count("slower") == 1
    assert "changed: NCCL: 2.21.5 became 2.23.4 (all cases)" in text
    assert "changed: site: lab became other" in text
    effects = json.loads(compared(capsys, "--json", "--results", str(tmp_path), "first", "second"))
    assert [effect["cases"] for effect in effects["effects"]] == [[CASES[3]]]
    assert {key for key, case in effects["cases"].items() if case["finding"] == "slower"} == {CASES[3]}


@pytest.mark.parametrize(
    ("slower", "said"),
    [
        (6 * [1.1] + 2 * [1.0], ("all cases: -9.1 %", "), on top of what is above\n")),
        (3 * [1.1] + [1.0], ("no case differs beyond what two equal runs would, but of 4 of 4 cases it cannot be told",)),
        (8 * [1.0], ("no case differs beyond what two equal runs would\n",)),
    ],
)  # fmt: skip
def test_what_the_comparison_cannot_tell_or_tells_in_parts_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], slower: list[float], said: tuple[str, ...]
) -> None:
    cases = [f"llama3/70b-{dtype}-{gpus}gpus" for gpus in (64, 128, 256, 512) for dtype in ("bf16", "fp8")]
    first = run(tmp_path, "first", *(record(case, 5.0) for case in cases[: len(slower)]))
    after = zip(cases, slower, strict=False)
    second = run(tmp_path, "second", *(record(case, 5.0 * by) for case, by in after))
    text = compared(capsys, first, second)
    assert all(words in text for words in said), text


@pytest.mark.parametrize(
    ("seconds", "choice", "gate"),
    [
        (5.0, "slower", (0, "no case is slower beyond noise")),
        (5.2, "slower", (10, "1 case(s) slower")),
        (5.2, "different", (10, "1 case(s) different")),
        (4.8, "slower", (0, "no case is slower beyond noise")),
        (4.8, "different", (10, "1 case(s) different")),
        (None, "slower", (13, "1 case(s) not compared")),
    ],
)
def test_a_comparison_can_fail_if_it_is_asked_to(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    seconds: float | None,
    choice: str,
    gate: tuple[int, str],
) -> None:
    code, words = gate[0], f"gate: {gate[1]}, exit code {gate[0]}\n"
    first = run(tmp_path, "first", *(record(case, 5.0) for case in CASES))
    others = [record(case, 5.0) for case in CASES if case != CASES[3]]
    second = run(tmp_path, "second", *others, *([record(CASES[3], seconds)] if seconds else []))
    assert "gate:" not in compared(capsys, first, second)
    assert compared(capsys, first, second, "--fail-if", choice, code=code).endswith(words)
    assert main(["compare", first, second, "--fail-if", choice, "--json"]) == code
    printed = capsys.readouterr()
    assert json.loads(printed.out)["second"] == "second"
    assert printed.err == words


def test_runs_without_a_case_in_common_do_not_pass(tmp_path: Path) -> None:
    first, second = run(tmp_path, "first"), run(tmp_path, "second")
    assert main(["compare", first, second, "--fail-if", "slower"]) == 13


def test_what_cannot_be_compared_is_said_with_the_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one, other, gone, new, invalid = CASES[:5]
    configuration = record(one, 5.0)["configuration"]
    first = run(tmp_path, "first", *(record(case, 5.0) for case in (one, other, gone, invalid)))
    second = run(
        tmp_path, "second",
        record(one, 5.0, configuration={**configuration, "gpu": "h200"}),
        record(other, 5.0, verdict="infrastructure", steady_median=None),
        record(new, 5.0),
        record(invalid, 5.0, verdict="invalid run"),
    )  # fmt: skip
    effects = json.loads(compared(capsys, "--json", first, second))
    assert effects["cases"] == {}
    assert effects["not_compared"] == {
        one: "not the same work: gpu h100 and h200",
        other: "infrastructure in second",
        gone: "not in second",
        new: "not in first",
        invalid: "invalid run in second",
    }
    assert "no case could be compared" in compared(capsys, first, second)


def test_each_run_of_a_case_that_ran_several_times_counts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = {"id": "1", "name": "1", "nodes": "", "step_time": 5.0, "spread": 0.0, "hiccups": []}
    runs = [{**plain, "steady_median": seconds} for seconds in (4.0, 5.0, 6.25)]
    first = run(tmp_path, "first", record(CASES[0], 5.0))
    second = run(tmp_path, "second", record(CASES[0], 9.0, runs=runs))
    cases = json.loads(compared(capsys, "--json", first, second))["cases"]
    assert cases[CASES[0]]["ratio"]["value"] == pytest.approx(1.0)


def error(capsys: pytest.CaptureFixture[str], *runs: str) -> str:
    """The one line that is printed where runs cannot be compared."""
    assert main(["compare", *runs]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("error: ")
    assert printed.err.count("\n") == 1
    return printed.err.strip()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (None, "no run '"),
        ("{", "cannot be read"),
        ('{"schema": 1}', "Field required"),
        ('{"schema": 2}', "use a newer one"),
    ],
)
def test_a_run_without_a_record_is_one_clear_error(
    first: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str | None, reason: str
) -> None:
    (tmp_path / "second").mkdir()
    if text is not None:
        (tmp_path / "second" / SUMMARY).write_text(text)
    assert reason in error(capsys, first, str(tmp_path / "second"))


def test_a_run_and_itself_is_one_clear_error(
    first: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "latest").symlink_to("first")
    reason = f"{first} and {tmp_path}/latest are the same run, first: name two runs"
    assert error(capsys, first, str(tmp_path / "latest")) == f"error: {reason}"


@pytest.mark.parametrize("pace", [-3.0, 5e-324, 1.7e308])
def test_a_pace_that_no_step_has_is_one_clear_error(
    pace: float, first: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    second = run(tmp_path, "second", record(CASES[0], pace))
    assert f"{pace:g} s is no time of a step" in error(capsys, first, second)


def test_a_session_that_goes_on_with_the_run_that_it_compares_with_is_refused(
    first: str, tmp_path: Path
) -> None:
    (Path(first) / JOBS_LOG).touch()
    (tmp_path / "latest").symlink_to(first)
    options = {"--compare": "latest", "--results": str(tmp_path)}
    config: Any = SimpleNamespace(getoption=options.get, option=SimpleNamespace(resume="first"))
    reason = "it is the run that --resume goes on with, first: name another one"
    with pytest.raises(ConfigError, match=reason):
        earlier_run(config)
