"""Whatever number stands in a line about a GPU: no error, and a verdict of the GPUs that can be told."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest

from plugins.gpu.causes import causes, spoiled, summary
from plugins.gpu.samples import parse_gpus
from plugins.record.verdict import Kind
from tests.unit.judging.test_gpus import judged

LOG = (Path(__file__).parents[1] / "gpu_logs" / "healthy.log").read_bytes()
WORDS = (
    b"0", b"-1", b"9" * 15, b"9" * 20, b"9" * 308, b"9" * 309, b"9" * 5000, b"-" + b"9" * 308, b"1e308", b"-1e308", b"1e400", b"1e-320",
    b"NaN", b"-Infinity", b"null", b"true", b'"7"', b"[]", b"", b"\xff",
)  # fmt: skip
_NUMBER = re.compile(rb"-?\d+(\.\d+)?")


def told(lines: list[bytes]) -> None:
    gpus = parse_gpus(lines)
    if gpus is not None:
        for view in (gpus, gpus.timed):
            assert all(
                isinstance(line, str) for line in [*summary(view), *spoiled(view), *causes(view, 700.0)]
            )
            assert view.clock is None or isinstance(view.clock, float)
            assert view.watts is None or isinstance(view.watts, float)


@pytest.mark.parametrize("seed", range(10))
def test_any_number_of_a_line_about_a_gpu_may_be_any_other(seed: int) -> None:
    rng, lines = random.Random(seed), LOG.splitlines(keepends=True)
    places = [n for n, line in enumerate(lines) if b"gpu s" in line or b"proxy" in line]
    for place in rng.sample(places, min(20, len(places))):
        for word in WORDS:
            number = rng.choice(list(_NUMBER.finditer(lines[place])) or [None])
            if number is not None:
                line = lines[place][: number.start()] + word + lines[place][number.end() :]
                told([*lines[max(0, place - 20) : place], line, *lines[place + 1 : place + 20]])


@pytest.mark.parametrize(
    "key", [b"energy_j", b"violations_ns", b"reasons", b"sm_mhz", b"at", b"mib", b"ecc_uncorrected"]
)
def test_a_number_of_308_digits_is_no_traceback(key: bytes) -> None:
    value = b'{"thermal": ' + b"9" * 308 + b"}" if key == b"violations_ns" else b"9" * 308
    sample = b'gpu sample: {"gpu": 0, "at": 1.0, "step": 1, "' + key + b'": ' + value + b"}\n"
    state = b'gpu state: {"gpu": 7, "when": "end", "' + key + b'": ' + value + b"}\n"
    assert judged("healthy", before=sample * 3 + state).verdict.kind is Kind.PASSED
