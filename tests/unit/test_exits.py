"""Every text from outside, by the door through which it enters, at every exit: nothing in it is obeyed, and it stays readable."""

from __future__ import annotations

import ast
import re
import shlex
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml
from markdown_it import MarkdownIt

from fixtures.backends.draft import Draft
from fixtures.backends.shell import Answer
from fixtures.backends.slurm.answers import tail, unanswered
from fixtures.backends.slurm.artefacts import listed
from fixtures.backends.slurm.job_table import JobTable, from_scontrol
from fixtures.backends.slurm.states import Explanations
from fixtures.fleet.follow import cleaned
from fixtures.site import load_site
from plugins.base.errors import ConfigError, SubmitError
from plugins.base.svg import Svg
from plugins.base.words import as_html, brief, html_text, markdown_code, markdown_text, shown
from plugins.base.yaml_text import as_yaml
from plugins.record.job import JobRef, JobState, Phase
from tests import hostile
from tests.unit.backends.kubernetes import test_states
from tests.unit.reports.test_page import Reader

ROOT = Path(__file__).parents[2]
JOB = JobRef("llama3", "70b-fp8-512gpus", "ours", "17", "/logs")
# A row of a table is one line, and its columns end at `|`.
LINE = hostile.TEXT.replace("\n", " ").replace("\r", "").replace("|", "!")
WORD = re.sub(r"\s", "_", LINE)


def _of_squeue(**columns: str) -> JobState:
    row = {
        "id": "17",
        "name": "ours",
        "state": "PENDING",
        "nodes": "",
        "reason": "None",
    } | columns
    text = "|".join([*row.values(), "N/A", "N/A", "1763830000", "0", "0"])
    return cleaned(JobTable(text).states([JOB])[JOB])


def _of_scontrol() -> JobState:
    state = from_scontrol(JOB, f"JobId=17 JobName=ours JobState=PENDING Reason={WORD}")
    assert state is not None
    return cleaned(state)


def _explained(answer: str, state: JobState) -> str:
    return cleaned(Explanations(lambda command: answer).explained("17", state)).reason


def _of_jobset() -> str:
    jobset = test_states.jobset(("Failed", "FailedJobs", hostile.TEXT))
    return cleaned(test_states.state_of_jobset(jobset, [], None, 2)).reason


def _of_pod() -> str:
    pods = [
        test_states.pod(0, "Pending", containerStatuses=[test_states.waiting("ErrImagePull", hostile.TEXT)])
    ]
    return cleaned(test_states.state_of_jobset(test_states.jobset(), pods, None, 1)).reason


def _of_site(text: str) -> str:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "site.yaml"
        path.write_text(text)
        with pytest.raises(ConfigError) as caught:
            load_site(path)
    return str(caught.value)


HELD = JobState(Phase.QUEUED, "PENDING", "launch failed requeued held")
RESERVED = JobState(Phase.QUEUED, "PENDING", "Reserved for maintenance")

# Each gives the text as it is kept.
DOORS: dict[str, Callable[[], str]] = {
    "the reason of a job, by squeue": lambda: _of_squeue(reason=LINE).reason,
    "the state of a job, by squeue": lambda: _of_squeue(state=LINE).raw,
    "the nodes of a job, by squeue": lambda: _of_squeue(nodes=LINE).nodes,
    "the name of another job": lambda: _of_squeue(name=LINE).raw,
    "the reason of a job, by scontrol": lambda: _of_scontrol().reason,
    "the reason of a node": lambda: _explained(f"gpu1|{LINE}\n", HELD),
    "a reservation": lambda: _explained(f"ReservationName={WORD} Flags=MAINT\n", RESERVED),
    "what sbatch printed": lambda: str(SubmitError(f"refused: {tail(Answer(1, '', LINE))}")),
    "a controller that is away": lambda: unanswered(f"{LINE} Unable to contact slurm controller"),
    "the message of a JobSet": _of_jobset,
    "the message of a pod": _of_pod,
    "the value of a key in the site file": lambda: _of_site(
        as_yaml({"site": hostile.TEXT, "slurm": {"gpu": hostile.TEXT}})
    ),
    "a key of the site file": lambda: _of_site(as_yaml({"site": "a", hostile.TEXT: 1})),
    "the name of an artefact": lambda: (
        listed(Answer(0, f"files\n1.0 5 {LINE}\nend\n", ""), "h", "/f").files[0].name
    ),
    "a line of a log": lambda: hostile.TEXT,
}


def _of_terminal(text: str) -> str:
    out = shown(text)
    assert shown(out) == out
    assert not any(line.strip().startswith("::") for line in out.splitlines())
    return out


def _of_html(text: str) -> str:
    read = Reader(f"<p>{html_text(text)}</p>")
    assert dict(read.tags) == {"p": 1}
    assert Reader(as_html(text)).said == read.said
    return "".join(read.said)


def _of_attribute(text: str) -> str:
    read = Reader(f'<a href="{html_text(text)}">x</a>')
    assert set(read.names) == {"href"}
    return read.links[0]


def _of_svg(text: str) -> str:
    svg = Svg(10, 10, "", 0)
    svg.text(0, 0, text)
    root = ElementTree.fromstring(str(svg))
    assert {element.tag.partition("}")[2] for element in root} == {"rect", "text"}
    return "".join(root[-1].itertext())


def _of_markdown(escape: Callable[[str], str], tags: set[str]) -> Callable[[str], str]:
    def read(text: str) -> str:
        written = escape(text)
        assert "\n" not in written
        page = Reader(MarkdownIt("commonmark").enable("table").render(f"| a |\n| --- |\n| {written} |\n"))
        assert set(page.tags) == {"table", "thead", "tbody", "tr", "th", "td", *tags}
        assert page.links == []
        return "".join(page.said)

    return read


def _of_yaml(text: str) -> str:
    value = {"key": text, "after": 1}
    for flow in (True, False):
        assert yaml.safe_load(as_yaml(value, flow=flow)) == value
    draft = Draft()
    draft.set("key", text, text)
    assert yaml.safe_load(draft.text(text)) == {"key": text}
    return text


def _of_bash(text: str) -> str:
    script = f"printf %s {shlex.quote(text)}"
    return subprocess.run(["bash", "-c", script], capture_output=True, check=True).stdout.decode(
        "utf-8", "surrogateescape"
    )


# Each writes a text there, and gives what its reader sees.
EXITS: dict[str, Callable[[str], str]] = {
    "a terminal": _of_terminal,
    "HTML": _of_html,
    "an attribute of HTML": _of_attribute,
    "SVG": _of_svg,
    "Markdown": _of_markdown(markdown_text, set()),
    "code in Markdown": _of_markdown(markdown_code, {"code"}),
    "YAML": _of_yaml,
    "bash": _of_bash,
}


@pytest.mark.parametrize("exit_", EXITS)
def test_a_text_is_inert_at_every_exit(exit_: str) -> None:
    text = hostile.TEXT
    if exit_ in ("YAML", "bash"):
        # Neither takes NUL and halves of pairs, which no file and no argument can have.
        text = re.sub("[\0\ud800-\udfff]", "", text)
    assert "script" in EXITS[exit_](text)


PEOPLE_ONLY = [
    door
    for door in DOORS
    if not door.startswith(("the nodes", "the name of an artefact", "a line", "a controller"))
]


@pytest.mark.parametrize("door", PEOPLE_ONLY)
def test_what_only_people_read_is_cleaned_where_it_enters(door: str) -> None:
    text = DOORS[door]()
    assert text == shown(text)


def test_what_is_sent_back_or_looked_up_stays_as_it_was() -> None:
    assert _of_squeue(nodes=LINE, state="RUNNING").nodes == LINE.strip()
    assert DOORS["the name of an artefact"]() == LINE


def test_a_megabyte_of_a_reason_is_cut() -> None:
    state = _of_squeue(reason="x" * 1_000_000, state="y" * 1_000_000)
    assert (len(state.reason), len(state.raw)) == (2003, 2003)
    assert len(unanswered(f"Unable to contact slurm controller {'x' * 1_000_000}")) == 1000
    assert brief("ab\x1b", 2) == "ab..."
    assert brief("a\x1b", 2) == r"a\x1b"


# Who may call what writes for an exit; all others call these.
WRITERS = {
    "html.escape": {"plugins/base/words.py", "fixtures/backends/redaction.py"},
    "markupsafe.escape": set(),
    "yaml.safe_dump": set(),
    "yaml.dump": set(),
    "yaml.safe_dump_all": {"plugins/base/yaml_text.py"},
    "xml.sax.saxutils.escape": set(),
    "pipes.quote": set(),
}


def test_each_exit_has_one_escaper() -> None:
    callers: dict[str, set[str]] = {name: set() for name in WRITERS}
    for folder in ("plugins", "fixtures", "pacemark", "suites"):
        for path in (ROOT / folder).rglob("*.py"):
            text = path.read_text()
            # To parse all files takes two seconds.
            if not any(name.rpartition(".")[2] in text for name in WRITERS):
                continue
            for node in ast.walk(ast.parse(text)):
                for name in _names(node):
                    if name in callers:
                        callers[name].add(str(path.relative_to(ROOT)))
    assert callers == WRITERS


def _names(node: Any) -> list[str]:
    if isinstance(node, ast.ImportFrom):
        return [f"{node.module}.{alias.name}" for alias in node.names]
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name | ast.Attribute):
        return [ast.unparse(node)]
    return []
