"""What `bundle` and `sign` refuse, and what they leave out."""

from __future__ import annotations

import json
import shutil
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from fixtures.runs.leaks import leaks
from fixtures.runs.lock import RunLock
from pacemark import bundle as pacemark_bundle
from pacemark.__main__ import main
from plugins.bundle.statement import SBOM
from plugins.record.lines import JOBS_LOG
from plugins.reports.checkout import VERSION
from tests.unit import examples
from tests.unit.bundles import runs
from tests.unit.bundles.runs import PASSED, RUN, Made, Members
from tests.unit.jobs_log import rewrite

# Made up, and split, so that no scan of this repository finds one.
SECRETS = {
    "a token of Hugging Face": "hf_" + "aB3" * 12,
    "a private key": "-----BEGIN OPENSSH " + "PRIVATE KEY-----",
    "a token of GitHub": "ghp_" + "a1B2" * 9,
    "a token of GitLab": "glpat-" + "aB3_" * 6,
    "a key of NGC": "nvapi-" + "aB3-" * 15,
    "a token of Slack": "xoxb-" + "1234567890-abc",
    "a key of AWS": "AKIA" + "ABCD" * 4,
    "a key of Google": "AIza" + "aB3-5" * 7,
    "an access token of Google": "ya29." + "aB3-" * 8,
    "a key of an API": "sk-" + "aB3d" * 9,
    "a JSON web token": ".".join(("eyJ" + "aB3" * 5, "eyJ" + "aB3" * 5, "aB3" * 5)),
    "a password in a URL": "https://me:" + "hunter2@registry.example",
    "a header with credentials": "Authorization: Bearer " + "abcdefghijkl1234",
    "an encoded private key": "LS0tLS1CRUdJTiB" + "SU0EgUFJJVkFURSBLRVkt",
    "a registry's password": '{"auth": "' + "JG9hdXRodG9rZW46bnZhcGkt" + '"}',
    "a password of .netrc": "machine api.example login user password " + "0123456789abcdef",
    "a signed URL": "https://x.example/c?sv=2020&sig=" + "aB3%2B" * 8,
    "a password by its name": "MYSQL_PASSWORD=" + "hunter2",
    "a secret by its option": "docker login --password " + "hunter2",
    "a secret by its name": "WANDB_API_KEY=" + "0123456789abcdef" * 2,
}
HARMLESS = (
    "export HF_TOKEN=<HF_TOKEN>",
    "HF_TOKEN=$HF_TOKEN",
    "--password $PASSWORD1 --api-key=<KEY1>",
    "--token-dispatcher-type alltoall2 --tokenizer-model llama3",
    "password: ask bob2 for it",
    "--token ********************************",
    "tokens_per_second: 123456.123456789012345",
    "consumed_tokens=12345678901234567890",
    "tokenizer: meta-llama/Meta-Llama-3.1-70B-Instruct",
    "https://registry.example:5000/nemo@sha256:0123456789abcdef",
    "git@github.com:NVIDIA/NeMo.git",
    "secretName: hf-token",
)  # fmt: skip


@pytest.fixture
def run(usual: Made, tmp_path: Path) -> Path:
    shutil.copytree(usual.folder, tmp_path / "results" / RUN)
    return tmp_path / "results" / RUN


def bundle(run: Path, *options: str) -> int:
    return main(["bundle", str(run), "-o", str(run.parents[1] / "run.zip"), *options])


def refused(run: Path, capsys: pytest.CaptureFixture[str], *options: str) -> str:
    """What is said when no bundle is written."""
    capsys.readouterr()
    assert bundle(run, *options) == 2
    assert [path.name for path in run.parents[1].glob("*.zip")] == []
    assert list(run.parents[1].glob(".run.zip*")) == []
    return capsys.readouterr().err


def test_what_looks_like_a_secret_is_refused_with_file_and_line(
    run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pacemark_bundle, "_MOST_LEAKS", len(SECRETS))
    log = run / "llama3" / PASSED / "errors.txt"
    log.write_text("one\n" + "".join(f"the next: {secret} and more\n" for secret in SECRETS.values()))
    said = refused(run, capsys)
    for number, (kind, secret) in enumerate(SECRETS.items(), start=2):
        assert f"{log}:{number}: looks like {kind}\n" in said, kind
        assert secret not in said, kind
    assert said.count(": looks like ") == len(SECRETS)


def test_the_value_of_a_token_is_found_in_every_form(
    run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_TOKEN", "correct horse/battery")
    (run / "llama3" / PASSED / "errors.txt").write_text("x?t=correct%20horse%2Fbattery\n")
    assert "errors.txt:1: looks like the value of MY_TOKEN" in refused(run, capsys)


def test_a_secret_in_a_long_line_is_found(tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    for at in (0, 65_520, 65_536, 200_000):
        path.write_bytes(
            b"first\n" + b"." * at + b" " + SECRETS["a token of Hugging Face"].encode() + b" end\n"
        )
        assert {number for number, _ in leaks(path)} == {2}


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        *(
            ("an encoded private key", b64encode(f"-----BEGIN {algorithm}PRIVATE KEY-----".encode()).decode())
            for algorithm in ("", "RSA ", "EC ", "OPENSSH ", "ENCRYPTED ")
        ),
        ("a token of GitHub", "github_pat_" + "a1B2" * 16),
        ("a key of AWS", "ASIA" + "ABCD" * 4),
        ("a password in a URL", "redis://:" + "hunter2@registry.example"),
        ("a header with credentials", "authorization=basic " + "abcdefghijkl1234"),
        ("a signed URL", "https://x.example/c?X-Amz-Signature=" + "aB3f" * 8),
        ("a signed URL", "https://x.example/c?a=b&X-Goog-Signature=" + "aB3f" * 8),
        ("a secret by its option", "--api-key=" + "hunter2"),
        ("a secret by its name", "AWS_SECRET_ACCESS_KEY=" + "0aB3" * 10),
    ],
)
def test_a_secret_is_found_in_its_other_forms(kind: str, text: str, tmp_path: Path) -> None:
    (tmp_path / "log.txt").write_text(f"one\nthe second: {text} and more\n")
    assert list(leaks(tmp_path / "log.txt")) == [(2, kind)]


@pytest.mark.parametrize(
    "name", ["CLIENT_SECRET", "db_password", "MYSQL_PASSWD", "NGC_API_KEY", "APIKEY", "MY_ACCESS_KEY"]
)
def test_the_value_of_a_variable_is_found(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "correct horse")
    (tmp_path / "log.txt").write_text("correct horse\n")
    assert list(leaks(tmp_path / "log.txt")) == [(1, f"the value of {name}")]


def test_what_is_no_secret_is_not_refused(run: Path) -> None:
    (run / "llama3" / PASSED / "notes.txt").write_text("\n".join(HARMLESS))
    assert bundle(run) == 0


def test_a_run_that_goes_on_is_refused(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lock = RunLock(run)
    assert lock.take()
    assert f"run {RUN} is still going on" in refused(run, capsys)
    lock.release()
    assert bundle(run) == 0


def rewritten(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def without_a_line(log: Path) -> None:
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join([*lines[:3], *lines[4:]]))


AGAIN, CHANGED = f"llama3/{runs.AGAIN}", "was changed after the session ended"
# What is done to a file of the run, and what is then said.
UNFIT: dict[str, tuple[str, Callable[[Path], Any], str]] = {
    "it died": (
        JOBS_LOG,
        lambda path: rewrite(path, lambda line: line["run"].update(ended=None)),
        f"run {RUN} did not end: --resume {RUN} goes on with it",
    ),
    "its ledger is damaged": (
        JOBS_LOG,
        lambda path: path.write_bytes(path.read_bytes().replace(b'"plan": ""', b'"plan": "other"', 1)),
        "is damaged: jobs.log: line 1 has a wrong checksum",
    ),
    "its journal was changed": (JOBS_LOG, without_a_line, "line 4 does not follow the line before it"),
    "a verdict was changed": (
        "summary.json",
        lambda path: rewritten(path, '"too slow"', '"passed"'),
        f"llama3/{runs.SLOW}: summary.json says 'passed', its log says: too slow",
    ),
    "the log of a job that broke is emptied": (f"{AGAIN}/try-1/log.txt", lambda path: path.write_text(""), f"{AGAIN}/try-1/log.txt {CHANGED}"),
    "the log of a job that broke is removed": (f"{AGAIN}/try-1/log.txt", Path.unlink, f"{AGAIN}/try-1/log.txt is missing: summary.json has its digest"),
    "what was sent for it": (f"{AGAIN}/try-1/sent.txt", lambda path: path.write_text("#SBATCH --nodes=1"), f"{AGAIN}/try-1/sent.txt {CHANGED}"),
    "what was sent for a job that was cancelled": (
        f"llama3/{runs.STOPPED}/sent.txt",
        lambda path: path.write_text("#SBATCH"),
        f"llama3/{runs.STOPPED}/sent.txt {CHANGED}",
    ),
    "the log that is judged": (
        f"llama3/{PASSED}/log.txt",
        lambda path: path.write_text(f"{path.read_text()}\n"),
        f"run {RUN} would not be verified, and no bundle was written:\n  llama3/{PASSED}/log.txt {CHANGED}",
    ),
    **{
        f"{name} was added": (f"{AGAIN}/{name}", lambda path: path.write_text("all is well"), f"{AGAIN}/{name} was not there when the session ended")
        for name in ("try-1/errors.txt", "log.attempt-1.txt", "log.own.txt")
    },
    "it is from before there were bundles": ("basis", shutil.rmtree, f"run {RUN} has no basis/: it is from before there were bundles"),
    "it was not judged": ("summary.json", Path.unlink, f"run {RUN} has no summary.json: --resume {RUN} judges its cases"),
    "a link": (f"llama3/{PASSED}/link.txt", lambda path: path.symlink_to("/etc/hostname"), "link.txt: is no plain file: move it away"),
}  # fmt: skip


@pytest.mark.parametrize(("name", "change", "said"), UNFIT.values(), ids=UNFIT)
def test_a_run_that_was_changed_or_did_not_end_is_refused(
    name: str, change: Callable[[Path], Any], said: str, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change(run / name)
    assert said in refused(run, capsys)


def test_a_folder_that_cannot_be_listed_is_named(
    run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = run / "llama3" / PASSED / "try-1"
    examples.close_folder(folder, monkeypatch)
    assert refused(run, capsys) == f"error: {folder}: Permission denied\n"


def test_a_file_that_is_there_is_not_replaced(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = run.parents[1] / "run.zip"
    output.write_text("mine")
    assert bundle(run) == 2
    assert "is there already: give another name with -o" in capsys.readouterr().err
    assert output.read_text() == "mine"


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (PermissionError(13, "Permission denied", "run/log.txt"), "error: run/log.txt: Permission denied\n"),
        (KeyboardInterrupt(), "error: interrupted\n"),
    ],
)
def test_what_ends_it_while_it_reads_the_run_is_one_line(
    run: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    error: BaseException,
    said: str,
) -> None:
    monkeypatch.setattr("pacemark.bundle.leaks", Mock(side_effect=error))
    assert refused(run, capsys) == said


def test_a_place_that_cannot_be_written_to_is_named(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (run.parents[1] / "file").touch()
    for folder, reason in (("file", "Not a directory"), ("absent", "No such file or directory")):
        place = run.parents[1] / folder / "run.zip"
        assert refused(run, capsys, "-o", str(place)) == f"error: {place}: cannot be written: {reason}\n"


def test_a_key_that_cannot_sign_is_refused(run: Path, keys: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "vendor.pub: is no private key in PEM" in refused(run, capsys, "--key", str(keys / "vendor.pub"))
    key = ("--key", str(keys / "vendor.pem"))
    assert "this key has signed already" in refused(run, capsys, *key, *key)


def test_a_bundle_has_the_evidence_and_no_views(run: Path) -> None:
    for name in ("report.html", "lock", "allure/x.json", "reserve", f"llama3/{PASSED}/steps.csv"):
        (run / name).parent.mkdir(exist_ok=True)
        (run / name).write_text("")
    assert bundle(run) == 0
    names = runs.unpacked(run.parents[1] / "run.zip").keys()
    basis = {name for name in names if name.startswith("basis/")}
    assert {
        "basis/choices/llama3.json",
        "basis/baselines/llama3.yaml",
        "basis/suites/llama3/recipe.yaml",
    } <= basis
    cases = {
        f"llama3/{case}/{name}"
        for case in (PASSED, runs.SLOW, runs.AGAIN)
        for name in ("case.json", "log.txt", "sent.txt")
    }
    tries = {
        f"llama3/{runs.AGAIN}/try-1/log.txt",
        f"llama3/{runs.AGAIN}/try-1/sent.txt",
        f"llama3/{runs.STOPPED}/sent.txt",
    }
    rest = {"summary.json", "jobs.log", SBOM, "statement.dsse.json"}
    assert names - basis == cases | tries | rest


def test_the_bill_of_materials_names_what_is_installed(run: Path) -> None:
    assert bundle(run) == 0
    bill = json.loads(runs.unpacked(run.parents[1] / "run.zip")[SBOM])
    assert (bill["bomFormat"], bill["metadata"]["component"]["version"]) == ("CycloneDX", VERSION)
    packages = {part["name"].lower(): part for part in bill["components"]}
    assert packages["pydantic"]["purl"] == f"pkg:pypi/pydantic@{packages['pydantic']['version']}"


def test_what_is_not_verified_is_not_signed(
    members: Members, keys: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, key = tmp_path / "run.zip", ("--key", str(keys / "other.pem"))
    faster = runs.replaced(members, f"llama3/{runs.SLOW}/log.txt", "s: 16.1", "s: 14.6", 99)
    before = runs.packed(runs.signed(faster, keys / "vendor.pem"), path).read_bytes()
    assert main(["sign", str(path), *key]) == 1
    assert "not signed" in capsys.readouterr().out
    assert path.read_bytes() == before
    assert main(["sign", str(tmp_path / "none.zip"), *key]) == 2
    assert "none.zip" in capsys.readouterr().err
    assert main(["verify", str(tmp_path)]) == 2
    assert f"{tmp_path}: is no file" in capsys.readouterr().err
