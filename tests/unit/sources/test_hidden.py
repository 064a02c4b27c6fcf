"""What could pass in the place of something else, or be left out silently: it is said, and the exit code is not 0."""

from __future__ import annotations

import gzip
import json
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from pacemark.__main__ import main
from tests.unit.sources import upstream
from tests.unit.sources.test_archive import judged
from tests.unit.sources.test_hostile import good, member, with_member
from tests.unit.sources.upstream import job, log_name, of, text

MAXTEXT = "results/25.01/bf16/70b/64/log-maxtext_llama2_70b_64_{}.out"
# Of jobs whose launcher numbers no restarts: both are told.
TWO_JOBS = {MAXTEXT.format(11): b"OOM", MAXTEXT.format(12): b"OOM", "slurm-12.out": b"srun: error"}
CRASHED = b"RuntimeError: CUDA out of memory\n"


def slow() -> bytes:
    return text(of("gpt"), 1.3)


def log() -> str:
    return log_name(of("gpt"), 7)


def restart() -> str:
    return log_name(of("gpt"), 7, 1)


def config_name() -> str:
    return next(name for name in good() if "llmb-config" in name)


def restarted(last: bytes) -> dict[str, bytes]:
    return {**good(), restart(): last}


# The tree, the exit code, and what is said.
TREES: dict[str, tuple[Callable[[], Mapping[str, bytes]], int, str]] = {
    "two runs in a restart": (lambda: restarted(slow() + text(of("gpt"))), 1, "two runs share this log"),
    "damaged restart": (lambda: {**good(), f"{restart()}.gz": gzip.compress(slow())[:-40]}, 4, "_7_1.out.gz cannot be read"),
    "damaged config": (lambda: {**good(), config_name(): b"{"}, 4, "its llmb-config_7.yaml cannot be read"),
    "config of nothing": (lambda: {**good(), config_name(): b"model_info: null"}, 4, "which nothing tells: give --gpu"),
    "batch output alone": (lambda: {**good(), "slurm-12.out": CRASHED}, 4, "slurm-12.out: has no training step"),
    "log that crashed": (lambda: {**good(), "run2.log": CRASHED}, 0, "no training step: "),
    "folder named try-1": (lambda: {**good(), "try-1/a.log": slow()}, 4, "try-1/a.log: its type of GPU"),
    "folder named basis": (lambda: {**good(), "basis/a.log": slow()}, 4, "basis/a.log: its type of GPU"),
    "name of two lines": (lambda: {**good(), "a\n1 passed.log": slow()}, 4, "a\\x0a1 passed.log: its type of GPU"),
    "numbered log": (lambda: {**good(), "a.LOG.1": slow()}, 4, "a.LOG.1: its type of GPU"),
    "first of two jobs": (lambda: TWO_JOBS, 4, "_64_11.out: has no training step"),
    "second of two jobs": (lambda: TWO_JOBS, 4, "2 files without a verdict"),
    "copy under another job's name": (lambda: {**good(), "log-x_8.out": text(of("gpt"))}, 4, "has the steps of another job, "),
    "log of two jobs": (lambda: {**good(), **job(of("llama"), 9, [text(of("gpt"))])}, 4, "has the steps of another job, "),
}  # fmt: skip


@pytest.mark.parametrize("name", TREES)
def test_nothing_is_left_out_silently(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make, code, words = TREES[name]
    status = main(["judge", str(upstream.write_tree(tmp_path / "exp", make()))])
    shown = capsys.readouterr()
    assert (status, shown.err) == (code, "")
    assert words in shown.out


def test_a_log_that_is_named_and_has_no_step_is_no_pass(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    upstream.write_tree(tmp_path, {**good(), "b.log": CRASHED})
    record, status = judged(str(tmp_path / log().partition("/")[0]), str(tmp_path / "b.log"), capsys=capsys)
    assert (status, len(record["cases"])) == (4, 1)
    assert record["not_judged"] == {str(tmp_path / "b.log"): "has no training step of a known format"}


CONFIGS = {
    "levels": b"a: " + b"[" * 200,
    "bomb": b"a: &a [1, 1]\n" + b"b: &b [*a, *a]\nc: [*b, *a]\n" * 40_000,
    "tag": b"a: !!timestamp x",
    "list": b"[]",
    "text": b"model_info: x",
    "number": b"model_info: {scale: x}",
    "twice": b"model_info: {scale: 8}\nmodel_info: {scale: 9}",
    "bytes": b"a: \xc3(",
}


@pytest.mark.parametrize("name", CONFIGS)
def test_a_config_that_cannot_be_read_is_one_line(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record, status = judged(
        str(upstream.write_tree(tmp_path, {**good(), config_name(): CONFIGS[name]})), capsys=capsys
    )
    ((refused, reason),) = record["not_read"].items()
    assert (status, refused) == (4, str(tmp_path / config_name()))
    assert "\n" not in reason


def test_no_secret_of_a_config_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    changed: dict[str, Any] = {
        "env_overrides": {"HF_TOKEN": "s3"},
        "mbridge_args": [
            "--wandb_key",
            "s3",
            "--api-key s3",
            "-hf s3",
            "-wdk",
            "s3",
            "--env=HF_TOKEN=s3",
            "--x=2",
        ],
    }
    record, _ = judged(
        str(upstream.write_tree(tmp_path, job(of("gpt"), 7, [text(of("gpt"))], job_config=changed))),
        capsys=capsys,
    )
    assert record["cases"][0]["remarks"] == [
        "it was launched with HF_TOKEN=..., --wandb_key, ..., --api-key=..., -hf=..., -wdk, ..., --env=..., --x=2, by its llmb-config"
    ]


def test_a_path_is_judged_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tree = str(upstream.write_tree(tmp_path, good()))
    record, status = judged(tree, f"{tree}/", capsys=capsys)
    assert (status, len(record["cases"])) == (0, 1)


@pytest.mark.parametrize("page", ["b.log", ".", ""])
def test_a_report_takes_the_place_of_no_log(
    page: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    upstream.write_tree(tmp_path, {"a.log": b"a", "b.log": b"b"})
    monkeypatch.chdir(tmp_path)
    assert main(["judge", "--html", page, "a.log"]) == 2
    assert "is a folder or the name of a log" in capsys.readouterr().err
    assert (tmp_path / "b.log").read_bytes() == b"b"


def test_an_empty_path_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["judge", ""]) == 2
    assert "a path is empty" in capsys.readouterr().err


def test_closed_streams_are_no_traceback(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", None)
    assert main(["judge", "-"]) == 2
    assert "standard input is closed" in capsys.readouterr().err
    monkeypatch.setattr("sys.stdout", None)
    assert main(["judge", str(upstream.write_tree(tmp_path, good()))]) == 0


def test_junit_is_xml_whatever_a_file_is_called(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tree = upstream.write_tree(tmp_path / "exp", {"a\x1b\ufffe.log": text(of("gpt"))})
    main(["judge", str(tree), "--junit", str(tmp_path / "junit.xml")])
    suite = ElementTree.parse(tmp_path / "junit.xml").getroot()
    assert suite.attrib["errors"] == "1"
    assert "a\\x1b\\ufffe.log" in suite[0].attrib["name"]
    assert "a\\x1b\\ufffe.log" in capsys.readouterr().out


def pax(**values: str) -> bytes:
    """A header of what is said of all members that follow."""
    return tarfile.TarInfo.create_pax_global_header(values)


SPARSE_KEYS = {
    "GNU.sparse.major": "1",
    "GNU.sparse.minor": "0",
    "GNU.sparse.name": "x.py",
    "GNU.sparse.realsize": "9",
}


def test_headers_neither_pile_up_nor_nest(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "exp.tar"
    many = b"".join(pax(**{f"k{n}": "v"}) + member("x.py") for n in range(500))
    path.write_bytes(with_member(many))
    assert main(["judge", str(path)]) == 0
    sparse = pax(**SPARSE_KEYS).replace(b"\0g\0", b"\0x\0")
    for bad, words in ((pax(a="b") * 3000, "recursion"), (sparse, "sparse")):
        path.write_bytes(with_member(bad))
        assert main(["judge", str(path)]) == 4
        assert words in capsys.readouterr().out


def test_a_file_without_a_name_is_skipped(tmp_path: Path) -> None:
    path = tmp_path / "exp.zip"
    path.write_bytes(upstream.zipped({"Q.py": b"x", **good()}).replace(b"Q.py", b"\0.py"))
    assert main(["judge", str(path)]) == 0


def test_the_page_tells_two_jobs_of_a_case_apart_and_what_was_not_judged(tmp_path: Path) -> None:
    tree = {**good(), **job(of("gpt"), 8, [slow()]), "slurm-12.out": CRASHED}
    page = tmp_path / "report.html"
    main(["judge", str(upstream.write_tree(tmp_path / "exp", tree)), "--html", str(page)])
    html = page.read_text()
    assert '<th scope="col">64</th>' in html
    assert "120b bf16#7" in html
    assert "120b bf16#8" in html
    assert "slurm-12.out" in html
    assert "Every case of this run was judged" not in html


def test_the_folder_of_a_run_is_judged_by_its_records(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    upstream.write_tree(tmp_path / "exp", good())
    judged_record, _ = judged(str(tmp_path / "exp"), capsys=capsys)
    (case,) = judged_record["cases"]
    case["configuration"] = {**(case["configuration"] or {}), "gpu": "gb200"}
    record = json.dumps(case).encode()
    run, folder = tmp_path / "run", f"x/{of('gpt').case.key}"
    upstream.write_tree(
        run,
        {
            f"{folder}/case.json": record,
            f"{folder}/log.txt": text(of("gpt")),
            f"{folder}/try-1/log.txt": slow(),
            "x/allure/a.txt": slow(),
        },
    )
    found, status = judged(str(run), capsys=capsys)
    assert (status, [each["verdict"] for each in found["cases"]]) == (0, ["passed"])
    (run / folder / "log.txt").unlink()
    found, status = judged(str(run), capsys=capsys)
    assert (status, found["not_judged"]) == (
        4,
        {str(run / folder / "case.json"): "is passed by its case.json, and its log is not here"},
    )
