"""What a bundle may cost whoever verifies it: a bounded time, and meanwhile it is told what is done."""

from __future__ import annotations

import re
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from pacemark.__main__ import main
from plugins.bundle import findings
from plugins.bundle.findings import Examination
from plugins.judging.rejudge import Basis
from tests.printed import nemo2
from tests.unit.bundles import runs
from tests.unit.bundles.runs import SLOW, Members


class Clock:
    """What the limit takes for the time: it goes on by `each` whenever it is looked at."""

    def __init__(self) -> None:
        self.now = self.each = 0.0

    def monotonic(self) -> float:
        self.now += self.each
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(findings, "time", made)
    monkeypatch.setattr(findings, "_TICK", 0.03)
    return made


def verify(path: Path, keys: Path, seconds: float = 60.0) -> int:
    """If nothing cuts it off, it says so, or does not end."""
    return main(["verify", str(path), "--key", str(keys / "vendor.pub"), "--seconds", str(seconds)])


def test_a_log_of_many_lines_does_not_keep_it_busy(
    members: Members,
    keys: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    clock: Clock,
) -> None:
    clock.each = 0.5
    monkeypatch.setattr(findings, "_SHOWN_EVERY", 0.5)
    name, more = f"llama3/{SLOW}/log.txt", f"{nemo2.nemo2_line(49)}\n".encode() * 200_000
    forged = {**members, name: members[name] + more}
    status = verify(runs.packed(runs.signed(forged, keys / "vendor.pem"), tmp_path / "run.zip"), keys, 3.0)
    told = capsys.readouterr()
    assert status in (1, 2)
    assert re.search(
        r"^cannot    after 3 s it was at .+, and nothing after that was examined: ", told.out, re.MULTILINE
    )
    assert "llama3/70b-fp8-64gpus" not in told.out
    assert " s of at most 3 s" in told.err


def test_a_regular_expression_does_not_keep_it_busy(
    bundle: Path,
    keys: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    clock: Clock,
) -> None:
    def judge(*_: Any) -> None:
        clock.now = 3600
        re.match(r"(.|.)*x", "a" * 60)

    monkeypatch.setattr(Basis, "judge", judge)
    status = verify(bundle, keys)
    assert status == 2
    out = capsys.readouterr().out
    assert "--seconds N gives it more time" in out
    assert out.splitlines()[-1] == "result    CANNOT TELL"


@pytest.mark.parametrize(
    "where",
    ["plugins.bundle.verification.examine", "pacemark.bundle.opened", "pacemark.bundle.check_signatures"],
)
def test_no_other_part_keeps_it_busy(
    where: str,
    bundle: Path,
    keys: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    clock: Clock,
) -> None:
    def busy(*_: Any) -> None:
        clock.now = 3600
        try:
            while True:
                time.sleep(0.01)
        except Exception:
            pytest.fail("what catches the faults of files has caught the end of the time")

    monkeypatch.setattr(where, busy)
    status = verify(bundle, keys)
    assert status == 2
    assert "after 60 s it was at " in capsys.readouterr().out


def test_what_was_not_examined_is_not_signed(
    bundle: Path,
    keys: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    clock: Clock,
) -> None:
    def judge(*_: Any) -> None:
        clock.now = 3600
        time.sleep(60)

    monkeypatch.setattr(Basis, "judge", judge)
    before = bundle.read_bytes()
    assert main(["sign", str(bundle), "--key", str(keys / "other.pem")]) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "result    not signed"
    assert bundle.read_bytes() == before


def test_the_time_is_no_longer_counted_afterwards(clock: Clock) -> None:
    found = Examination()
    with findings.within(60, found):
        pass
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    clock.now = 3600
    time.sleep(0.2)
    assert not found.cut_off


@pytest.mark.parametrize("text", ["0", "-1", "nan", "inf", "1e99", "soon"])
def test_a_limit_that_is_no_time_is_refused(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["verify", "x.zip", "--seconds", text])
    assert "argument --seconds: " in capsys.readouterr().err
