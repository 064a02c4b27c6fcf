"""What a session writes of texts that mean harm: Allure's results, JUnit's XML, the record, the terminal. A browser: tests/browser."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import jsonschema
import pytest
from markdown_it import MarkdownIt

from plugins.base.words import shown
from plugins.record.stored import read_summary
from plugins.record.verdict import Kind
from plugins.reports import page
from plugins.reports.ci_files import error_commands, verdicts
from tests import hostile, schema
from tests.system.support import Run
from tests.unit.reports.test_page import INERT, PROSE, Reader


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("hostile")
    found = hostile.run(folder, f"--junitxml={folder / 'junit.xml'}")
    wanted = {f"llama3/{case_id}": fate.verdict for case_id, fate in hostile.FATES.items()}
    assert found.verdicts == wanted, found.out
    return found


def loaded(session: Run, kind: str) -> list[dict[str, Any]]:
    found = [json.loads(path.read_text()) for path in (session.folder / "allure").glob(f"*-{kind}.json")]
    assert found
    return found


def texts(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        value = [*value, *value.values()]
    if isinstance(value, list):
        for one in value:
            yield from texts(one)
    elif isinstance(value, str):
        yield value


def attachments(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield from value.get("attachments", [])
        value = list(value.values())
    if isinstance(value, list):
        for one in value:
            yield from attachments(one)


def test_the_terminal_shows_it_as_text(session: Run) -> None:
    assert session.out == shown(session.out)
    assert shown(hostile.COMMAND) in session.out
    assert [
        line for line in session.out.splitlines() if line.strip().startswith("::") or "##vso[" in line
    ] == []
    assert all(line in session.out for markup in hostile.MARKUP for line in markup.splitlines())


@pytest.mark.parametrize("kind", ["result", "container"])
def test_nothing_in_allures_results_is_obeyed(session: Run, kind: str) -> None:
    for found in loaded(session, kind):
        assert [text for text in texts(found) if text != shown(text)] == []


def test_every_case_describes_itself_in_whatever_phase_its_test_ended(session: Run) -> None:
    assert len(session.allure) == len(hostile.FATES) == len(loaded(session, "result"))
    for case_id, fate in hostile.FATES.items():
        name = f"llama3/{case_id}"
        result = session.allure[name]
        assert result["name"].startswith(fate.verdict)
        read = Reader(result["descriptionHtml"])
        assert set(read.tags) <= {"pre", "img"}, name
        sources = re.findall(r'src="([^,]+)', result["descriptionHtml"])
        assert sources in ([], ["data:image/svg+xml;base64"]), name
        # Nothing but the description has it all.
        assert "trace" not in (result.get("statusDetails") or {}), name
        assert "".join(read.said).count(f"{name}: {fate.verdict}: ") == 1
        # Markdown, which nothing of a case is.
        assert "description" not in result
        assert all(
            re.fullmatch(r"https://[\w./#-]+", link["url"], re.ASCII) for link in result.get("links", [])
        )
        assert [step["name"].partition(":")[0] for step in result["steps"]] == [
            "provision",
            "launch",
            "run",
            "parse",
            "judge",
        ]


def test_what_is_attached_is_no_markup(session: Run) -> None:
    found = [one for kind in ("result", "container") for one in attachments(loaded(session, kind))]
    assert {one["type"] for one in found} == {
        "text/plain",
        "text/csv",
        "application/json",
    }
    for one in found:
        text = (session.folder / "allure" / one["source"]).read_text()
        if one["type"] == "text/plain":
            assert text == shown(text)
        else:
            assert re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", text.replace("\r\n", "\n")) is None


def test_the_page_shows_it_as_text(session: Run) -> None:
    html = (session.folder / page.HTML).read_text()
    read = Reader(html)
    assert set(read.tags) <= PROSE | INERT
    assert {
        name for name in read.names if name.startswith("on") or name in ("src", "style", "srcset")
    } == set()
    assert {link.partition(":")[0] for link in read.links if ":" in link} == set()
    assert html == shown(html)
    said = "".join(read.said)
    for case_id in hostile.FATES:
        assert f"llama3/{case_id}" in said
    assert [line for markup in hostile.MARKUP for line in markup.splitlines() if line not in said] == []


def test_the_page_in_markdown_shows_it_as_text(session: Run) -> None:
    text = (session.folder / page.MARKDOWN).read_text()
    assert text == shown(text)
    read = Reader(MarkdownIt("commonmark").enable("table").render(text))
    assert set(read.tags) <= PROSE
    assert [link for link in read.links if not re.fullmatch(r"report\.html|llama3/[\w-]+/[\w.]+", link)] == []
    said = "".join(read.said)
    # Their lines are joined, so that no line of theirs begins anything.
    assert [markup for markup in hostile.MARKUP if " ".join(markup.split()) not in said] == []


def test_a_reader_of_junit_gets_all_of_it(session: Run) -> None:
    suite = ElementTree.parse(Path(session.folder).parents[1] / "junit.xml").getroot().find("testsuite")
    assert suite is not None
    cases = {case.attrib["name"]: case for case in suite.findall("testcase")}
    assert sorted(cases) == sorted(f"test_pretrain[{case_id}]" for case_id in hostile.FATES)
    kinds = {
        case_id: [child.tag for child in cases[f"test_pretrain[{case_id}]"] if child.tag != "properties"]
        for case_id in ("70b-bf16-64gpus", "70b-bf16-128gpus", "70b-fp8-128gpus", "70b-fp8-512gpus")
    }
    assert list(kinds.values()) == [[], ["failure"], ["error"], ["skipped"]]
    # How long its job ran, not how long its test waited.
    assert all(0 <= float(case.attrib["time"]) - hostile.LASTED < 60 for case in cases.values())
    for case_id, fate in hostile.FATES.items():
        told = {
            p.attrib["name"]: p.attrib["value"] for p in cases[f"test_pretrain[{case_id}]"].iter("property")
        }
        assert told["verdict"] == fate.verdict
        assert told["nodes"] == shown(f"nodes {hostile.TEXT}").replace("\ufffe", "#xFFFE")
    said = "".join(cases["test_pretrain[70b-fp8-128gpus]"].itertext())
    assert f"sbatch: {shown(hostile.OBEYED)}".replace("\ufffe", "#xFFFE") in said
    assert all(markup in said for markup in hostile.MARKUP)


def test_what_ci_reads_is_whole_and_nothing_in_it_is_markup(session: Run) -> None:
    report = json.loads((session.folder / "ctrf.json").read_text())
    ctrf = json.loads((Path(__file__).parent / "reports" / "ctrf.schema.json").read_text())
    jsonschema.Draft7Validator(ctrf, format_checker=jsonschema.FormatChecker()).validate(report)
    found = {test["name"]: (test["status"], test["rawStatus"]) for test in report["results"]["tests"]}
    status = {"passed": "passed", "no baseline": "skipped"}
    assert found == {key: (status.get(kind, "failed"), kind) for key, kind in session.verdicts.items()}
    assert {test["duration"] for test in report["results"]["tests"]} == {1000 * hostile.LASTED}
    assert [text for text in texts(report) if text != shown(text)] == []
    sample = re.compile(r'\w+(\{(,?\w+="([^"\\]|\\["\\])+")+\})? -?[\d.e+]+|# (HELP|TYPE) .+|# EOF')
    lines = (session.folder / "metrics.txt").read_text().splitlines()
    assert [line for line in lines if not sample.fullmatch(line)] == []
    summary = read_summary(session.folder)
    failed = [f"llama3/{case_id}" for case_id, fate in hostile.FATES.items() if Kind(fate.verdict).fails]
    told = [re.fullmatch(r"::error title=(.+?)::.+", line) for line in error_commands(summary.cases)]
    assert [match and match[1] for match in told] == failed
    page = verdicts(summary, 1 << 20)
    assert page == shown(page)
    # What stands in code is no markup.
    assert re.findall(r"[<>\[\]`@]|http|::", re.sub("`[^`\n]*`", "", page)) == []
    assert page.count("\n| `") == page.count("\n- `") == len(session.verdicts)


def test_a_summary_for_ci_is_cut_to_its_limit(session: Run) -> None:
    page = verdicts(read_summary(session.folder), 2000)
    assert len(page.encode()) <= 2000
    assert page.endswith("more lines are left out: summary.json has all.\n")
    assert verdicts(read_summary(session.folder), 50) == ""


def test_the_record_is_of_its_published_schema(session: Run) -> None:
    jsonschema.Draft202012Validator(json.loads(schema.PATH.read_text())).validate(session.summary)


def test_the_record_is_ascii_that_every_reader_takes(session: Run) -> None:
    for path in (session.folder / "summary.json", *session.folder.glob("llama3/*/case.json")):
        path.read_bytes().decode("ascii")
    # For programs, so each text is as it was.
    assert session.case("llama3/70b-fp8-64gpus")["job"]["nodes"] == f"nodes {hostile.TEXT}"
    lines = (session.folder / "allure" / "environment.properties").read_text().splitlines()
    assert [line.partition("=")[0] for line in lines][:2] == ["site", "run"]
    assert all(re.fullmatch(r"[\w-]+=[\w. -]+", line) for line in lines)
