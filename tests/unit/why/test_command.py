"""`pacemark why`: an archive with two jobs tells each by itself, whatever its texts are, and touches no verdict."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from pacemark.__main__ import main
from tests.printed.nccl import info
from tests.unit.sources.upstream import OLD, candidate, job, link, log_name, of, tar, text

QWEN = candidate("qwen3/30b-mxfp8-8gpus", "26.08.00", "gb200")
LINES = [
    "NCCL version 2.30.7+cuda13.0",
    "NCCL_NVLS_ENABLE set by environment to 0.",
    "NCCL_PXN_DISABLE set by environment to 1.",
]
HOSTILE = {
    "A\x1b]0;owned\x07\n::add-mask::x": "\x1b[2J" * 9999,
    "HF_TOKEN": "hf_abc",
    f"{'b' * 20} ::error::x": f"{'c' * 20} ::error::y",
}


def archive(**more: bytes) -> bytes:
    lines = "".join(info(line) + "\n" for line in LINES).encode()
    files = job(of("gpt"), 4701, [lines + text(of("gpt"), 1.2)], job_config={"env_overrides": HOSTILE})
    files |= job(QWEN, 4702, [lines + text(QWEN)], job_config={"mbridge_args": ["--cuda_graph_impl=none"]})
    return tar(files | more)


def test_two_jobs_are_told_each_by_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.tar"
    path.write_bytes(archive(**{"notes.log": b"nothing\n"}))
    assert main(["why", "--json", str(path)]) == 0
    gpt, qwen = json.loads(capsys.readouterr().out)["jobs"]
    assert (gpt["id"], gpt["verdict"]) == ("gpt_oss/120b-bf16-64gpus", "too slow")
    assert [row["what"] for row in gpt["rows"][1:]] == [name for name in HOSTILE if name != "HF_TOKEN"]
    assert (qwen["id"], qwen["verdict"]) == ("qwen3/30b-mxfp8-8gpus", "passed")
    assert [(row["evidence"], row["this_run"], row["read_from"]) for row in qwen["rows"]] == [
        ("A", "--cuda_graph_impl none", "llmb-config_4702.yaml"),
        ("C", "NCCL_PXN_DISABLE 1", "the log"),
    ]
    assert {"NCCL", "NCCL_NVLS_ENABLE"} <= set(qwen["agree"])
    assert "driver" in qwen["unread"]
    main(["judge", "--json", str(path)])
    assert [case["headline"] for case in json.loads(capsys.readouterr().out)["cases"]] == [
        gpt["headline"],
        qwen["headline"],
    ]


@pytest.mark.parametrize("columns", ["100", "250"])
def test_the_table_is_harmless_and_says_the_gap(
    columns: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(archive())))
    monkeypatch.setenv("COLUMNS", columns)
    assert main(["why", "-"]) == 0
    said = capsys.readouterr().out
    assert not {"\x1b", "\x07"} & set(said)
    assert "hf_abc" not in said
    assert not re.search(r"^\s*::", said, re.MULTILINE)
    assert max(map(len, said.splitlines())) < 1100
    assert "the whole gap is 16.7 %" in said
    assert ("484 to 623 ms a step (Qwen3" in said) == (columns == "250")


@pytest.mark.parametrize(
    ("files", "code", "words"),
    [
        ({"notes.txt": b"nothing\n"}, 5, "no log of a training run was found"),
        (job(of("hybrid"), 4713, []), 4, "its log is not here"),
        ({"log.out": text(of("qwen"))}, 4, "which nothing tells"),
    ],
)
def test_an_open_question_is_told_as_judge_tells_it(
    files: dict[str, bytes], code: int, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.tar"
    path.write_bytes(tar(files))
    assert main(["why", str(path)]) == code
    assert words in capsys.readouterr().out


def test_a_link_has_the_facts_of_its_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = (info(LINES[2]) + "\n").encode()
    files = {"a/log.out": lines + text(of("qwen"))}
    member = link(f"llmb-archive-20260901T102030Z/{log_name(of('qwen'), 7)}", "placeholder")
    member.linkname = "llmb-archive-20260901T102030Z/a/log.out"
    member.type = b"1"
    path = tmp_path / "a.tar"
    path.write_bytes(tar(files, member))
    assert main(["why", "--json", "--gpu", "gb300", "--release", OLD, str(path)]) == 0
    (told,) = json.loads(capsys.readouterr().out)["jobs"]
    assert [row["this_run"] for row in told["rows"]] == ["NCCL_PXN_DISABLE 1"]
