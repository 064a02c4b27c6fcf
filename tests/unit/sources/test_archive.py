"""An archive in upstream's layout: each job has its line, as it has unpacked, and as each log has by itself."""

from __future__ import annotations

import json
import re
import tarfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from backports import zstd

from pacemark.__main__ import main
from plugins.sources.registry import Candidate
from tests.unit.sources import upstream
from tests.unit.sources.upstream import OLD, TOP, job, log_name, of, text

MICRO = {"workload_info": {"workload_type": "microbenchmark"}}


@cache
def jobs() -> list[tuple[int, str, list[bytes], dict[str, Any]]]:
    """Of each job its id, its case, its logs, and what its launcher says otherwise."""
    kimi = text(of("kimi"))
    oom = b"Traceback (most recent call last):\nRuntimeError: CUDA out of memory\n"
    return [
        (4701, "gpt", [text(of("gpt"))], {}),
        (4702, "gpt", [text(of("gpt"), 1.2)], {}),
        (4703, "kimi", [kimi[: len(kimi) // 2], kimi], {}),
        (4704, "kimi", [kimi[: len(kimi) // 2]], {}),
        (4705, "llama", [text(of("llama"))], {}),
        (4706, "llama", [text(of("llama"), 1.001)], {}),
        (4707, "proxy", [text(of("proxy"), 1.2)], {}),
        (4708, "qwen", [text(of("qwen"))], {}),
        (4709, "nano", [text(of("nano"))], {"job_config": {"profile_enabled": True}}),
        (4710, "nano", [text(of("nano"), 1.3)], {}),
        (4711, "hybrid", [oom], {}),
        (4712, "hybrid", [text(of("hybrid"), 1.3)], {"workload_info": {"gsw_version": "25.12"}}),
        (4713, "hybrid", [], {}),
        (4714, "llama", [text(of("qwen"), 1.1)], {}),
        (4715, "qwen", [b"# nThread 1 nGpus 1 minBytes 8\n"], MICRO),
    ]


@cache
def tree() -> dict[str, bytes]:
    """The files of all these jobs, and of those of the newer release."""
    made = [job(of(name), number, logs, **changed) for number, name, logs, changed in jobs()]
    made += [job(each, 4720 + n, [text(each, 1 + (n + 1) / 10_000)]) for n, each in enumerate(newer())]
    return {name: data for files in made for name, data in files.items()}


MORE = 25


@cache
def newer() -> list[Candidate]:
    """Cases of the release behind, of each family some."""
    found = [each for family in upstream.FAMILIES for each in upstream.of_family(family, "26.08.00")]
    return [found[number * len(found) // MORE] for number in range(MORE)]


EXPECTED = {
    **dict.fromkeys((4701, 4703, 4705, 4706), "passed"),
    **dict.fromkeys((4702, 4710), "too slow"),
    **dict.fromkeys((4704, 4711, 4714), "invalid run"),
    **dict.fromkeys((4707, 4708), "no baseline"),
    **dict.fromkeys((4709, 4715), "no published pace"),
    **dict.fromkeys((4712, 4713), "not judged"),
}


def judged(*arguments: str, capsys: pytest.CaptureFixture[str]) -> tuple[dict[str, Any], int]:
    status = main(["judge", "--json", *arguments])
    return json.loads(capsys.readouterr().out), status


def by_job(record: dict[str, Any]) -> dict[int, str]:
    """What is said of each job, by its id."""
    said = {int(case["job"]["id"]): case["verdict"] for case in record["cases"]}
    for name, reason in record["not_judged"].items():
        number = next(number for number in EXPECTED if f"_{number}" in name)
        other = "profiled" in reason or "microbenchmark" in reason
        said[number] = "no published pace" if other else "not judged"
    return said


@pytest.fixture(params=["tar", "tar.zst", "zip", "folder"])
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / f"exp.{request.param}"
    made = upstream.tar(tree())
    if request.param == "folder":
        upstream.write_tree(path, tree())
    else:
        path.write_bytes(
            {"tar": made, "tar.zst": zstd.compress(made), "zip": upstream.zipped(tree())}[request.param]
        )
    return path


def test_each_job_has_its_line(source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record, status = judged(str(source), capsys=capsys)
    fates = ["passed" if upstream.registry().number(each) else "no baseline" for each in newer()]
    assert by_job(record) == {**EXPECTED, **{4720 + number: fate for number, fate in enumerate(fates)}}
    assert record["not_read"] == {}
    assert status == 1
    known = {case["job"]["id"]: record["found"][case["id"]]["known"] for case in record["cases"]}
    assert (
        known["4703"] == "job 4703, restart 1, its last, release 26.06.01 on gb300 by llmb-config_4703.yaml"
    )
    # Two jobs of a case stay two.
    assert {
        case["id"] for case in record["cases"] if case["id"].startswith("llama3/405b-nvfp4-256gpus#")
    } == {f"llama3/405b-nvfp4-256gpus#{number}" for number in (4705, 4706, 4714)}


@pytest.mark.parametrize("number", range(4701, 4709))
def test_a_log_by_itself_is_judged_likewise(
    number: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    case = of(next(name for job_id, name, *_ in jobs() if job_id == number))
    name = max(name for name in tree() if f"_{number}_" in name and name.endswith(".out") and "log-" in name)
    path = tmp_path / Path(name).name
    path.write_bytes(tree()[name])
    record, _ = judged(
        str(path), "--gpu", case.gpu, "--release", OLD, "--case", case.case.recipe, capsys=capsys
    )
    assert by_job(record) == {number: EXPECTED[number]}
    assert [case["id"] for case in record["cases"]] == [case.case.key]


def test_what_nothing_tells_is_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / Path(log_name(of("qwen"), 7)).name
    path.write_bytes(text(of("qwen")))
    status = main(["judge", str(path)])
    assert status == 4
    out = capsys.readouterr().out
    question = r"its type of GPU is (\w+ or )+gb300 .* \(qwen3/30b-bf16-8gpus\), which nothing tells: give --gpu and --release"
    assert re.search(question, out)
    assert main(["judge", str(path), "--gpu", "gb300"]) == 0
    assert main(["judge", str(path), "--gpu", "gb300", "--gate"]) == 13
    assert main(["judge", str(path), "--gpu", "b9"]) == 2
    assert "--gpu b9: is no type of GPU; known: h100, h200," in capsys.readouterr().err


def test_what_can_be_judged_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cases", "--gpu", "gb200", "--release", OLD, "-k", "gpt_oss"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("gpt_oss/120b-bf16-64gpus of 26.06.01 on gb200: 5.2 s a step, Megatron-Bridge")
    assert lines[1] == "gpt_oss/120b-bf16-128gpus of 26.06.01 on gb200: no number was published"
    assert main(["cases", "-k", "gpt5"]) == 2


def test_a_log_under_two_names_is_one_job(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    upstream.write_tree(tmp_path, {**job(of("gpt"), 7, [text(of("gpt"))]), "copy.log": text(of("gpt"))})
    record, status = judged(str(tmp_path), capsys=capsys)
    assert (status, len(record["cases"])) == (0, 1)
    assert record["found"]["gpt_oss/120b-bf16-64gpus"]["known"].endswith(", also in copy.log")


def test_two_logs_of_one_attempt_are_not_guessed_between(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = log_name(of("gpt"), 7).replace("log-lab", "log-rab")
    upstream.write_tree(tmp_path, {**job(of("gpt"), 7, [text(of("gpt"))]), other: text(of("gpt"), 1.3)})
    record, status = judged(str(tmp_path), capsys=capsys)
    assert (status, record["cases"]) == (4, [])
    assert "more log(s) of the same attempt" in next(iter(record["not_judged"].values()))


@pytest.mark.parametrize("kind", [tarfile.LNKTYPE, tarfile.SYMTYPE], ids=["hard", "symbolic"])
def test_a_link_to_a_log_of_the_archive_is_that_log(
    kind: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = log_name(of("gpt"), 7)
    files = {key: data for key, data in job(of("gpt"), 7, [text(of("gpt"))]).items() if key != name}
    target = f"{TOP}/a.log"
    if kind == tarfile.SYMTYPE:
        target = "../" * name.count("/") + "a.log"
    linked = upstream.link(f"{TOP}/{name}", target, kind)
    path = tmp_path / "exp.tar"
    path.write_bytes(upstream.tar({**files, "a.log": text(of("gpt"))}, linked))
    record, status = judged(str(path), capsys=capsys)
    assert (status, by_job(record), record["not_read"]) == (0, {7: "passed"}, {})


def test_overrides_are_remarked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    changed = {"job_config": {"env_overrides": {"NCCL_DEBUG": "WARN"}, "mbridge_args": ["--x=2"]}}
    upstream.write_tree(tmp_path, job(of("gpt"), 7, [text(of("gpt"))], **changed))
    record, _ = judged(str(tmp_path), capsys=capsys)
    assert record["cases"][0]["remarks"] == [
        "it was launched with NCCL_DEBUG=WARN, --x=2, by its llmb-config"
    ]


def test_the_page_and_junit_have_each_job(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = upstream.write_tree(tmp_path / "exp", tree())
    page, junit = tmp_path / "report.html", tmp_path / "junit.xml"
    main(["judge", str(source), "--html", str(page), "--junit", str(junit)])
    assert "`pacemark why PATH` says what differs" in capsys.readouterr().out
    html = page.read_text()
    assert "gpt_oss/120b-bf16-64gpus#4702" in html
    assert "was profiled by llmb-config_4709.yaml" in html
    # It lies where the user named it, and not beside the page.
    assert "no log" not in html
    # The matrix has a row for each job of a case.
    matrix = html.partition('id="matrix"')[2].partition("</section>")[0]
    assert [f"#{job}</th>" in matrix for job in (4701, 4702)] == [True, True]
    xml = junit.read_text()
    assert 'failures="5" errors="2"' in xml
    assert xml.count('name="deviation" value="') == xml.count('name="fastest" value="') > 0
    assert '<property name="gpus" value="64" />' in xml
