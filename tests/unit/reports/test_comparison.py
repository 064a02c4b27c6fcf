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


def test_a_slower_case_and_what_else_changed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = run(tmp_path, "first", *(record(case, 5.0) for case in CASES))
    second = run(
        tmp_path,
        "second",
        *(record(case, 5.2 if case == CASES[3] else 5.0, versions={"NCCL": "2.23.4"}) for case in CASES),
        site="other",
    )
    assert main(["compare", first, second]) == 0
    told = capsys.readouterr().out
    assert "second against first" in told
    assert f"{CASES[3]}: -3.8 % (" in told
    assert told.count("slower") == 1
    assert "changed: NCCL: 2.21.5 became 2.23.4 (all cases)" in told
    assert "changed: site: lab became other" in told
    assert main(["compare", "--json", "--results", str(tmp_path), "first", "second"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [effect["cases"] for effect in found["effects"]] == [[CASES[3]]]
    assert {key for key, case in found["cases"].items() if case["finding"] == "slower"} == {CASES[3]}


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
    assert main(["compare", first, second]) == 0
    told = capsys.readouterr().out
    assert all(words in told for words in said), told


@pytest.mark.parametrize(
    ("seconds", "choice", "said"),
    [
        (5.0, "slower", (0, "gate: no case is slower beyond noise, exit code 0")),
        (5.2, "slower", (10, "gate: 1 case(s) slower, exit code 10")),
        (5.2, "different", (10, "gate: 1 case(s) different, exit code 10")),
        (4.8, "slower", (0, "gate: no case is slower beyond noise, exit code 0")),
        (4.8, "different", (10, "gate: 1 case(s) different, exit code 10")),
        (None, "slower", (13, "gate: 1 case(s) not compared, exit code 13")),
    ],
)
def test_a_comparison_can_fail_if_it_is_asked_to(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    seconds: float | None,
    choice: str,
    said: tuple[int, str],
) -> None:
    first = run(tmp_path, "first", *(record(case, 5.0) for case in CASES))
    others = [record(case, 5.0) for case in CASES if case != CASES[3]]
    second = run(tmp_path, "second", *others, *([record(CASES[3], seconds)] if seconds else []))
    assert main(["compare", first, second]) == 0
    assert "gate:" not in capsys.readouterr().out
    assert main(["compare", first, second, "--fail-if", choice]) == said[0]
    assert capsys.readouterr().out.endswith(f"{said[1]}\n")
    assert main(["compare", first, second, "--fail-if", choice, "--json"]) == said[0]
    told = capsys.readouterr()
    assert json.loads(told.out)["second"] == "second"
    assert told.err == f"{said[1]}\n"


def test_runs_without_a_case_in_common_do_not_pass(tmp_path: Path) -> None:
    first, second = run(tmp_path, "first"), run(tmp_path, "second")
    assert main(["compare", first, second, "--fail-if", "slower"]) == 13


def test_what_cannot_be_compared_is_said_with_the_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one, other, gone, new, invalid = CASES[:5]
    configuration = record(one, 5.0)["configuration"]
    first = run(
        tmp_path, "first", record(one, 5.0), record(other, 5.0), record(gone, 5.0), record(invalid, 5.0)
    )
    second = run(
        tmp_path, "second",
        record(one, 5.0, configuration={**configuration, "gpu": "h200"}),
        record(other, 5.0, verdict="infrastructure", steady_median=None),
        record(new, 5.0),
        record(invalid, 5.0, verdict="invalid run"),
    )  # fmt: skip
    assert main(["compare", "--json", first, second]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["cases"] == {}
    assert found["not_compared"] == {
        one: "not the same work: gpu h100 and h200",
        other: "infrastructure in second",
        gone: "not in second",
        new: "not in first",
        invalid: "invalid run in second",
    }
    assert main(["compare", first, second]) == 0
    assert "no case could be compared" in capsys.readouterr().out


def test_each_run_of_a_case_that_ran_several_times_counts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [
        {
            "id": str(i),
            "name": str(i),
            "nodes": "",
            "step_time": 5.0,
            "steady_median": seconds,
            "spread": 0.0,
            "hiccups": [],
        }
        for i, seconds in enumerate((4.0, 5.0, 6.25))
    ]
    first = run(tmp_path, "first", record(CASES[0], 5.0))
    second = run(tmp_path, "second", record(CASES[0], 9.0, runs=runs))
    assert main(["compare", "--json", first, second]) == 0
    assert json.loads(capsys.readouterr().out)["cases"][CASES[0]]["ratio"]["value"] == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "no run '"),
        ("{", "cannot be read"),
        ('{"schema": 1}', "Field required"),
        ('{"schema": 2}', "use a newer one"),
    ],
)
def test_a_run_without_a_record_is_one_clear_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str | None, said: str
) -> None:
    first = run(tmp_path, "first")
    (tmp_path / "second").mkdir()
    if text is not None:
        (tmp_path / "second" / SUMMARY).write_text(text)
    assert main(["compare", first, str(tmp_path / "second")]) == 2
    told = capsys.readouterr().err
    assert told.startswith("error: ")
    assert said in told
    assert told.count("\n") == 1


def test_a_run_and_itself_is_one_clear_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = run(tmp_path, "first", record(CASES[0], 5.0))
    (tmp_path / "latest").symlink_to("first")
    assert main(["compare", first, str(tmp_path / "latest")]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err == f"error: {first} and {tmp_path}/latest are the same run, first: name two runs\n"


def test_a_session_that_goes_on_with_the_run_that_it_compares_with_is_refused(tmp_path: Path) -> None:
    folder = Path(run(tmp_path, "first", record(CASES[0], 5.0)))
    (folder / JOBS_LOG).touch()
    (tmp_path / "latest").symlink_to(folder)
    options = {"--compare": "latest", "--results": str(tmp_path)}
    config: Any = SimpleNamespace(getoption=options.get, option=SimpleNamespace(resume="first"))
    with pytest.raises(
        ConfigError, match="it is the run that --resume goes on with, first: name another one"
    ):
        earlier_run(config)


@pytest.mark.parametrize("pace", [-3.0, 5e-324, 1.7e308])
def test_a_pace_that_no_step_has_is_one_clear_error(
    pace: float, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good, bad = (
        run(tmp_path, name, record(CASES[0], seconds)) for name, seconds in (("a", 10.0), ("b", pace))
    )
    assert main(["compare", good, bad]) == 2
    assert f"{pace:g} s is no time of a step" in capsys.readouterr().err
