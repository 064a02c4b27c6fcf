"""Time stamps. `a_statement.tsr` is an authority's answer, made with `openssl ts`, on the text `a statement`."""

from __future__ import annotations

from datetime import UTC
from pathlib import Path

import pytest
from rfc3161_client import TimestampRequestBuilder

from pacemark.__main__ import main
from plugins.base.errors import ConfigError
from plugins.bundle import statement
from tests.unit.bundles import runs

HERE = Path(__file__).parent
ROOT = HERE / "tsa_root.pem"
ANSWER = (HERE / "a_statement.tsr").read_bytes()
OTHER = HERE.parents[2] / "README.md"


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    runs.make_keys(tmp_path, "vendor")
    path = tmp_path / "run.zip"
    run = runs.make_run(tmp_path)
    assert main(["bundle", str(run), "--key", str(tmp_path / "vendor.pem"), "-o", str(path)]) == 0
    return path


def verify(bundle: Path, *options: str) -> int:
    return main(["verify", str(bundle), "--key", str(bundle.parent / "vendor.pub"), *options])


def test_the_time_of_a_statement_is_that_of_the_answer() -> None:
    when = statement.time_of(ANSWER, b"a statement", statement.load_roots(ROOT))
    assert (when.year, when.tzinfo) == (2026, UTC)
    assert statement.time_of(ANSWER, b"a statement") == when


def test_an_answer_that_tells_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is a time stamp of something else"):
        statement.time_of(ANSWER, b"another statement", statement.load_roots(ROOT))
    with pytest.raises(ConfigError, match="is no answer of a time-stamping authority"):
        statement.time_of(b"hello", b"a statement")
    broken = bytearray(ANSWER)
    broken[-5] ^= 1
    with pytest.raises(ConfigError, match="is by none of the authorities of --tsa"):
        statement.time_of(bytes(broken), b"a statement", statement.load_roots(ROOT))
    with pytest.raises(ConfigError, match="is no certificate in PEM"):
        statement.load_roots(OTHER)


def test_a_request_is_of_the_statement(bundle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    request = bundle.with_name("run.tsq")
    assert main(["stamp", str(bundle), "--request", str(request)]) == 0
    assert f"request   {request}: send it to an authority" in capsys.readouterr().out
    envelope, _, _ = statement.read(runs.unpacked(bundle)[statement.ENVELOPE])
    made = TimestampRequestBuilder().data(envelope.payload).build()
    assert made.message_imprint.message in request.read_bytes()


def test_the_time_stamp_of_another_bundle_is_named(bundle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = bundle.read_bytes()
    assert main(["stamp", str(bundle), "--answer", str(HERE / "a_statement.tsr")]) == 2
    assert f"{HERE / 'a_statement.tsr'}: is a time stamp of something else" in capsys.readouterr().err
    assert bundle.read_bytes() == before
    assert verify(bundle, "--tsa", str(ROOT)) == 1
    assert "--tsa was given, and it carries no time stamp" in capsys.readouterr().out
    runs.packed({**runs.unpacked(bundle), statement.STAMP: ANSWER}, bundle)
    assert verify(bundle) == 1
    assert "statement.tsr: is a time stamp of something else" in capsys.readouterr().out
