"""The page of a run: what stands on it, where its links lead, and that it is well-formed and needs nothing else."""

from __future__ import annotations

import base64
import hashlib
import io
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fixtures.session.life import write_reports
from plugins.judging.case_record import record_of
from plugins.record.case import CaseRecord, Means
from plugins.record.folder import STEPS, SUMMARY
from plugins.record.job import REPLAYED, Failure, Job, JobRef, Times
from plugins.record.outcome import UNKNOWN_JOB
from plugins.record.plan import Decision
from plugins.record.summary import NO_SITE, RunsSaved, Summary
from plugins.record.verdict import Kind, Outcome
from plugins.reports import ci_files, page, plot
from plugins.reports.case_view import SIGNS
from plugins.reports.ci_files import ctrf
from plugins.reports.gate import heading
from plugins.reports.terminal import print_table
from tests.unit import examples
from tests.unit.reports import example_run

_VOID = {"meta", "br", "img", "link", "hr"}
INERT = {"path", "rect", "text", "g", "defs", "clippath", "marker", "circle", "polygon", "svg"}
PROSE = {"html", "head", "body", "title", "style", "meta", "header", "nav", "main", "section", "article"}
PROSE |= {"pre", "h1", "h2", "h3", "p", "ul", "li", "dl", "dt", "dd", "div", "span", "small", "a", "figure"}
PROSE |= {"figcaption", "table", "caption", "thead", "tbody", "tfoot", "tr", "th", "td"}


class Reader(HTMLParser):
    """What a page has. Raises if its tags do not match."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: Counter[str] = Counter()
        self.names: Counter[str] = Counter()
        self.ids: Counter[str] = Counter()
        self.links: list[str] = []
        self.said: list[str] = []
        self._open: list[str] = []
        self.feed(html)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        assert len(dict(attrs)) == len(attrs)
        for name, value in attrs:
            self.names[name] += 1
            if name == "id":
                self.ids[value or ""] += 1
            if name == "href":
                self.links.append(value or "")
        if tag not in _VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in _VOID:
            self._open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open[-1:] != ["style"]:
            self.said.append(data)

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", " ".join(self.said))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("results") / "run-1"
    made.mkdir()
    page.PageReport().write(example_run.make(made), made)
    return made


@pytest.fixture(scope="module")
def html(folder: Path) -> str:
    return (folder / page.HTML).read_text()


def rendered(summary: Summary, folder: Path) -> tuple[str, str]:
    """The page and the Markdown of a run."""
    return page.PageReport().render(folder, summary)


def part(html: str, first: str, last: str) -> str:
    """What stands between the beginnings of two sections."""
    return html[html.index(f'id="{first}"') : html.index(f'id="{last}"')]


def of_ci(summary: Summary) -> str:
    return ci_files.verdicts(summary, 1 << 20)


@pytest.fixture
def passed(tmp_path: Path) -> Summary:
    """A run of one case, which passed."""
    return example_run.make(tmp_path, (Kind.PASSED,))


def cases(html: str) -> Iterator[tuple[str, str]]:
    """The id and the HTML of each case's own part."""
    for part in re.findall('<article class="case".*?</article>', html, re.DOTALL):
        yield part[part.index("<h3>") + 4 : part.index(": ")], part


def test_the_page_is_whole_and_needs_nothing_else(html: str) -> None:
    read = Reader(html)
    assert set(read.tags) <= PROSE | INERT
    assert {
        name for name in read.names if name.startswith("on") or name in ("src", "style", "srcset")
    } == set()
    assert html.startswith("<!DOCTYPE html>")
    assert [name for name, count in read.ids.items() if count > 1] == []
    assert [link for link in read.links if link.startswith("#") and link[1:] not in read.ids] == []
    assert set(re.findall(r"url\(#([^)]+)\)", html)) <= set(read.ids)
    style = html[html.index("<style>") + 7 : html.index("</style>")]
    allowed = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert f"default-src 'none'; style-src 'sha256-{allowed}';" in html


@pytest.mark.parametrize("decision", Decision)
def test_the_decision_on_a_plan_is_on_top_with_what_it_rests_on(tmp_path: Path, decision: Decision) -> None:
    hostile = {"the run": "it <b>ended</b> early"}
    failed = {"llama3/70b-fp8-16gpus": "too slow: by 7 %"}
    made = example_run.accepted_as(decision, failed=failed, missing=hostile)
    html, markdown_text = rendered(example_run.make(tmp_path, accepted=made), tmp_path)
    test_the_page_is_whole_and_needs_nothing_else(html)
    top = Reader(html[: html.index("<main>")] + "</body></html>").text
    for words in (
        f"Acceptance of lab: {decision}", "What speaks against the cluster llama3/70b-fp8-16gpus too slow: by 7 %",
        "What was not shown the run it <b>ended</b> early", "Waived", "a switch A & B 2027-01-31", "SHA-256 0123456789abcdef",
        "8 GPUs 100.0 %, 16 GPUs 90.0 % (limit 97.0 %), 32 GPUs waived", "slower 0.04, instead of the baselines' own",
        "at most 3 % below the published efficiency", "For the buyer", "For the vendor",
    ):  # fmt: skip
        assert words in top, words
    assert f"<title>{decision}, performance" in html
    assert f"# Acceptance of lab: {decision}\n" in markdown_text
    assert "- failed: llama3/70b-fp8-16gpus: too slow: by 7 %\n" in markdown_text
    assert "- missing: the run: it &lt;b&gt;ended&lt;/b&gt; early\n" in markdown_text


def test_the_first_line_says_how_many_cases_have_no_published_number(tmp_path: Path) -> None:
    by = {"llama3/70b-fp8-8gpus": "an expected range"}
    made = example_run.accepted_as(Decision.ACCEPTED, unpublished=by)
    html, markdown_text = rendered(example_run.make(tmp_path, accepted=made), tmp_path)
    line = "Acceptance of lab: accepted; no published number for 1 of 2 cases: judged 1 by an expected range"
    (heading,) = re.findall("<h1>(.*)</h1>", html)
    assert re.sub("<[^>]*>", "", heading) == line
    assert markdown_text.startswith(f"# {line}\n")


@pytest.fixture(scope="module")
def accepted(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """The page and the Markdown of a run that is accepted, although something is said against it."""
    folder = tmp_path_factory.mktemp("accepted")
    made = example_run.accepted_as(Decision.ACCEPTED, failed={"the 'run'": 'it <b>"ended"</b>'})
    return rendered(example_run.make(folder, accepted=made), folder)


def test_scaling_is_drawn_with_the_published_curve_and_the_limit(accepted: tuple[str, str]) -> None:
    scaling = part(accepted[0], "scaling", "not-run")
    for kind, points in (("measured", 2), ("published", 2), ("limit", 1), ("band", 4)):
        (path,) = re.findall(rf'<path[^>]*class="{kind}"[^>]*>', scaling)
        assert len(re.findall(r"[-\d.]+,[-\d.]+", path)) == points, kind
    # A loss of 3 % is no cliff.
    assert ">0</text>" in re.sub(r"\s+", "", scaling)
    assert "below the limit" in scaling
    # The third scale has no point.
    assert ">not run</text>" in scaling


def test_the_verdicts_come_before_everything_but_the_decision(accepted: tuple[str, str]) -> None:
    html, text = accepted
    assert re.findall('<section id="([^"]+)"', html)[:4] == ["acceptance", "verdicts", "matrix", "scaling"]
    assert text.index("## Verdicts") < text.index("## Scaling")


def test_markdown_can_be_read_as_it_is(accepted: tuple[str, str]) -> None:
    assert "- failed: the 'run': it &lt;b&gt;\"ended\"&lt;/b&gt;\n" in accepted[1]
    assert "the baselines' own" in accepted[1]


def test_a_run_without_a_plan_has_no_page_to_sign(html: str) -> None:
    assert "For the buyer" not in html
    assert 'id="scaling"' not in html


def test_its_title_says_how_the_run_ended(html: str) -> None:
    title = re.search("<title>(.*)</title>", html)
    assert title is not None
    assert title[1].startswith("performance: 1 too slow, 1 too fast, 1 noisy,")


def test_the_worst_verdicts_come_first_each_with_a_sign(html: str) -> None:
    kinds = [
        kind for _, part in cases(html) for kind in Kind if f"because of {list(Kind).index(kind)}<" in part
    ]
    assert kinds == list(SIGNS)
    assert set(SIGNS) == set(Kind)
    assert len(set(SIGNS.values())) == len(Kind)


def test_every_case_with_figures_leads_to_a_log_and_names_its_job(folder: Path, html: str) -> None:
    for case_id, part in cases(html):
        number = [f"llama3/70b-fp8-{8 * 2**number}gpus" for number in range(len(Kind))].index(case_id)
        if "<figure" in part:
            assert f'<a href="{case_id}/log.txt">10{number}</a>' in part
        else:
            assert f"10{number}, no log" in part
    paths = [link for link in Reader(html).links if not link.startswith("#")]
    assert [path for path in paths if not (folder / unquote(path)).is_file()] == []


def test_what_a_case_was_judged_by_is_told(html: str) -> None:
    words = Reader(html).text
    for fact in (
        "stated by the log processes (All distributed processes registered. Starting with 512 processes)",
        "not stated by it model, sequence length, dtype, type of GPU",
        "77: 10.5 s, steady 10.4 s, spread 2.0 %, on node77",
        "the last of 2 runs",
        "commit of Pacemark abc123, with changes",
        "llama3/x regressed",
        "12.5",
        "full-attention",
        "sequence length x global batch size",
    ):
        assert fact in words, fact


def test_an_earlier_job_leads_to_its_log(html: str) -> None:
    link = '<a href="llama3/70b-fp8-16gpus/try-1/log.txt">77</a>'
    assert f'{link}</td><td data-label="state" class="text">FAILED repeated</td>' in html


def test_what_did_not_run_is_told_with_the_reason(html: str) -> None:
    words = Reader(html).text
    assert "3 of llama3 4096 GPUs need 512 nodes" in words
    assert "1 skipped , without a pace to compare: llama3/70b-fp8-2048gpus" in words
    for kind in (Kind.NO_BASELINE, Kind.SKIPPED, Kind.INFRASTRUCTURE):
        assert f">because of {list(Kind).index(kind)}</td>" in part(html, "verdicts", "matrix")


def test_the_gpu_hours_that_were_saved_are_told(tmp_path: Path) -> None:
    summary = example_run.make(tmp_path, (Kind.PASSED, Kind.TOO_SLOW, Kind.INVALID))
    keys = [record.id for record in summary.cases]
    ref = JobRef("llama3", "8b-bf16-8gpus", "name")

    def run(hours: float, failure: Failure = "") -> Job:
        return Job(ref=ref, gpus=1, times=Times(started=0.0, ended=3600 * hours), failure=failure)

    unknown, broken = Job(ref=ref, gpus=1, failure="repeated"), run(8.0, "infrastructure")
    # The runs of the first case decided at once, those of the second one by two, whose first cost is not known. A job
    # that the cluster broke is no run.
    tries = dict(zip(keys, ([run(1.5)], [unknown, broken, run(4.0)], [run(9.0)]), strict=True))
    saved = RunsSaved.of(3, tries, summary.cases)
    assert saved == RunsSaved(at_most=3, runs=3, not_needed=3, gpu_hours_saved=7.0)
    words = "at most 3 runs of a case: 3 made, 3 not needed, which saved about 7 GPU-hours."
    html, text = rendered(replace(summary, repeated=saved), tmp_path)
    assert words in Reader(html).text
    assert words in text.replace("\\", "")
    assert "repeat-undecided" not in rendered(summary, tmp_path)[0]


def test_markdown_has_the_same_verdicts_and_links(folder: Path) -> None:
    text = (folder / page.MARKDOWN).read_text()
    rows = [line for line in text.splitlines() if re.match(r"\| \S+ (too|noisy|passed)", line)]
    assert len(rows) == 4
    assert all(re.search(r"\[10\d\]\(llama3/70b-fp8-\d+gpus/log\.txt\)", row) for row in rows)
    assert "- 3 of llama3: 4096 GPUs need 512 nodes" in text


def test_a_job_that_a_cluster_started_in_the_second_of_its_submission_did_not_wait(
    passed: Summary, tmp_path: Path
) -> None:
    job = replace(passed.cases[0].job, submitted=1795406812.9, started=1795406812.0)
    assert "| 0 s |" in rendered(example_run.changed(passed, job=job), tmp_path)[1]


def test_of_many_steps_the_extremes_are_drawn_and_the_caption_says_so(tmp_path: Path) -> None:
    summary = example_run.make(tmp_path, (Kind.PASSED,), steps=10_000)
    html, _ = rendered(summary, tmp_path)
    assert "10000 steps; of each of 400 columns only the fastest and the slowest step are drawn" in html
    points = [(index, 1.0 + (index == 4711) - (index == 9999)) for index in range(10_000)]
    kept = plot.thinned(points)
    assert len(kept) <= 2 * plot.COLUMNS
    assert {points[4711], points[9999]} <= set(kept)
    assert kept == sorted(kept)


def recorded(pace: float, *, band: bool = False) -> CaseRecord:
    """The record of a case of this pace in s; with a band it is expected to take 10 s."""
    log = examples.parse(examples.nemo2_text(examples.times()))
    judged = examples.judged(examples.case(), examples.outcome(), log, examples.baseline())
    expected = record_of(judged).expected if band else None
    empty = CaseRecord.unjudged(Job(ref=JobRef("llama3", "x", "x")), "")
    return replace(
        empty, steady_median=pace, step_time=pace, statistic="last", hiccups=(0,), expected=expected
    )


@given(
    st.lists(st.floats() | st.floats(0, 100), min_size=1, max_size=20),
    st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_whatever_a_log_states_can_be_drawn(seconds: list[float], band: bool) -> None:
    times = plot.drawable(dict(enumerate(seconds)))
    if times:
        svg = plot.steps_svg(recorded(next(iter(times.values())), band=band), times)
        assert all(len(points) < 40 for points in re.findall(r"-?\d+\.?\d*,", svg))


@pytest.mark.parametrize(
    "text", ["", "a,b\n1,2\n", "step,raw_seconds\n1\n", "step,raw_seconds\nx,y\n", f"{example_run.COLUMNS}\n"]
)
def test_damaged_steps_cost_the_plot_alone(passed: Summary, tmp_path: Path, text: str) -> None:
    (tmp_path / passed.cases[0].id / STEPS).write_text(text)
    html, _ = rendered(passed, tmp_path)
    assert "<figure>" not in html
    assert "because of 0" in html


@pytest.mark.usefixtures("passed")
def test_the_page_is_made_anew_from_the_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert page.main([str(tmp_path)]) == 0
    assert capsys.readouterr().out == f"{tmp_path / page.HTML}\n{tmp_path / page.MARKDOWN}\n"
    assert (tmp_path / page.HTML).is_file()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "a session writes it at its end"),
        ("{", "cannot be read"),
        ('{"schema": 1}', "is no record of a run"),
        ('{"schema": 2}', "use a newer one"),
    ],
)
def test_a_folder_without_a_whole_record_has_no_page(
    tmp_path: Path, text: str | None, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if text is not None:
        (tmp_path / SUMMARY).write_text(text)
    assert page.main([str(tmp_path)]) == 1
    assert said in capsys.readouterr().err
    assert not (tmp_path / page.HTML).exists()


def test_a_page_that_cannot_be_made_is_told(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write_reports(tmp_path, [page.PageReport()])
    assert (
        "report.html could not be written, the verdicts are in summary.json: ConfigError: "
        in capfd.readouterr().err
    )


def test_no_sentence_says_more_than_the_run_did(tmp_path: Path) -> None:
    summary = example_run.make(tmp_path, (Kind.TOO_SLOW,))
    assert summary.cases[0].expected is not None
    html, _ = rendered(example_run.changed(summary, step_time=None, expected=None, deviation=None), tmp_path)
    assert "1 too slow</span>, without a pace to compare: " in html
    assert "2 runs, with the steady median and the published statistic of what was judged" in html


def test_what_was_left_out_stands_beside_the_verdicts(passed: Summary, tmp_path: Path) -> None:
    html, text = rendered(passed, tmp_path)
    assert "1 passed</li>" in html[: html.index("</header>")]
    assert "3 left out</li>" in html[: html.index("</header>")]
    assert "1 passed, 3 left out\n" in text
    of_job = of_ci(example_run.changed(passed, remarks=("the last step is out of the band",)))
    assert "1 passed, 3 left out, on site" in of_job
    assert "- 3 of `llama3` left out: `4096 GPUs need 512 nodes`" in of_job
    assert "  - `the last step is out of the band`" in of_job


def test_means_over_steps_are_not_called_steps(tmp_path: Path) -> None:
    summary = example_run.make(tmp_path, (Kind.PASSED,), steps=5)
    summary = example_run.changed(summary, means=Means(over=10, every=10, judged=10))
    html, text = rendered(summary, tmp_path)
    caption = (
        "5 means over 10 steps each. In the plot, the black square is the last step, the published statistic"
    )
    assert caption in html
    assert "statistic last of means over 10 steps, every 10, FLOPs" in text
    assert "the black square" not in rendered(example_run.changed(summary, step_time=None), tmp_path)[0]


LAST = "the black square is the last step"


@pytest.mark.parametrize(
    ("statistic", "hiccups", "drawn", "undrawn"),
    [
        ("last", (20,), (LAST, "a cross is a hiccup"), "thick black line"),
        ("mean:35-44", (), ("the thick black line between two squares is the published statistic",), "a cross"),
        ("last", (), (LAST,), "a cross"),
    ],
)  # fmt: skip
def test_the_caption_names_the_marks_that_are_drawn(
    statistic: str, hiccups: tuple[int, ...], drawn: tuple[str, ...], undrawn: str, tmp_path: Path
) -> None:
    summary = example_run.make(tmp_path, (Kind.PASSED,))
    html, _ = rendered(example_run.changed(summary, statistic=statistic, hiccups=hiccups), tmp_path)
    (caption,) = re.findall("<figcaption>.*?</figcaption>", html, re.DOTALL)
    assert [words for words in drawn if words not in caption] == []
    assert undrawn not in caption
    assert f"{len(hiccups)} hiccups" not in html


def test_the_deviation_that_decides_is_told_everywhere(passed: Summary, tmp_path: Path) -> None:
    summary, off = example_run.changed(passed, deviation=-4.14), "-4.1 %"
    html, text = rendered(summary, tmp_path)
    assert off in part(html, "verdicts", "matrix")
    assert off.removesuffix(" %") in part(html, "matrix", "not-run")
    assert f"| {off} |" in text
    assert f"| {off} |" in of_ci(summary)
    table = io.StringIO()
    print_table(summary.cases, table, 120, colour=False)
    assert off in table.getvalue()


def test_a_matrix_has_a_column_for_each_scale_and_a_number_in_each_cell(html: str) -> None:
    matrix = part(html, "matrix", "not-run")
    assert re.findall(r'scope="col">(\d+)<', matrix) == [str(8 * 2**number) for number in range(9)]
    assert len(re.findall(r">[▼▲≈✗-] -0.4</a>", matrix)) == 5


def paced(summary: Summary, **deviations: float) -> Summary:
    """The summary with a case for each deviation in percent, all of the first case's verdict."""
    first = summary.cases[0]
    assert first.expected is not None
    made = [
        replace(
            first,
            id=f"llama3/70b-{name}-8gpus",
            step_time=None if value is None else first.expected.step_time / (1 + value / 100),
            steady_median=None,
            deviation=value,
        )
        for name, value in deviations.items()
    ]
    return replace(summary, cases=tuple(made), totals={first.verdict: len(made)})


@pytest.mark.parametrize(
    ("kind", "order"), [(Kind.TOO_SLOW, "bca"), (Kind.PASSED, "bca"), (Kind.TOO_FAST, "acb")]
)
def test_the_furthest_of_a_verdict_is_on_top(kind: Kind, order: str, tmp_path: Path) -> None:
    summary = paced(example_run.make(tmp_path, (kind,)), a=300.0, b=-60.0, c=-7.0)
    html, _ = rendered(summary, tmp_path)
    assert "".join(re.findall(r'<th scope="row"><a[^>]*>llama3/70b-(.)-8gpus', html)) == order
    # Two are beyond the axis: at its ends, with an arrow.
    assert len(re.findall(r'<svg x="(?:1|99)\.0%" y="50%"><path d="[^"]*"/><path d="M-?9,', html)) == 2


def test_the_hours_of_the_jobs_add_up_to_the_sum(passed: Summary, tmp_path: Path) -> None:
    job = replace(passed.cases[0].job, started=0.0, ended=1000.0)
    html, _ = rendered(replace(example_run.changed(passed, job=job), gpu_hours=12.5), tmp_path)
    jobs = part(html, "jobs", "cases")
    assert re.findall(r'class="number">(\d+\.\d+)</td>', jobs) == ["2.222", "10.278", "12.500"]


def test_a_log_of_others_has_no_site_and_no_job(passed: Summary, tmp_path: Path) -> None:
    judged = example_run.changed(passed, job=replace(passed.cases[0].job, state=REPLAYED))
    for summary in (replace(judged, site="this-machine"), replace(judged, site=NO_SITE, gpu_hours=0.0)):
        html, text = rendered(summary, tmp_path)
        assert ", judged from logs, 1970" in html
        assert ", judged from logs, 1970" in text
        assert "this-machine" not in html
        assert "1 case judged from logs" in html
        assert REPLAYED not in html
    assert ", site lab, 1970" in rendered(judged, tmp_path)[0]


@pytest.mark.parametrize(
    ("outcome", "totals", "words"),
    [
        (Outcome.PASSED, {Kind.PASSED: 2}, "passed"),
        (Outcome.NO_BASELINE, {Kind.PASSED: 2, Kind.NO_BASELINE: 1}, "2 passed, 1 no baseline, 1 not compared"),
        (Outcome.NO_BASELINE, {Kind.NO_BASELINE: 1}, "nothing was decided"),
        (Outcome.INFRASTRUCTURE, {Kind.PASSED: 2, Kind.LOST: 1}, "not passed: infrastructure"),
    ],
)  # fmt: skip
def test_the_heading_says_what_was_shown(
    outcome: Outcome, totals: dict[Kind, int], words: str, passed: Summary
) -> None:
    assert heading(replace(passed, outcome=outcome, totals=totals, uncompared=("x",))) == words


@pytest.mark.parametrize(
    ("hours", "words"), [(0.0, "0 GPU"), (12.345, "12.3 GPU"), (99.96, "100 GPU"), (12345.6, "12,346 GPU")]
)
def test_gpu_hours_of_a_large_run_are_written_out(passed: Summary, hours: float, words: str) -> None:
    assert f", {words}-hours," in of_ci(replace(passed, gpu_hours=hours))


def test_a_repeated_run_is_no_retry_and_an_unknown_job_has_no_id(tmp_path: Path) -> None:
    summary = example_run.make(tmp_path, (Kind.TOO_SLOW,))
    job, (repeated,) = replace(summary.cases[0].job, id=UNKNOWN_JOB), summary.cases[0].earlier_jobs
    earlier = (repeated, replace(repeated, failure="infrastructure"))
    summary = example_run.changed(summary, job=job, earlier_jobs=earlier)
    (test,) = ctrf(summary)["results"]["tests"]
    assert test["retries"] == 1
    assert "pacemark.job" not in test["extra"]
    assert UNKNOWN_JOB not in of_ci(summary)
