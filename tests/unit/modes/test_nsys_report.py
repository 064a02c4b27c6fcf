"""The digest of a real report, against what NVIDIA's own `nsys stats` counts in it.

`report_h100/` has the report: five steps of a decoder (8 layers, hidden 2048, PyTorch 2.11, bf16) on one H100, by
nsys 2023.4.4. `ranges.sqlite.gz` is its export without the tables that the digest does not read, and without the
environment. The others are what the same nsys prints of it:

    nsys stats -q --format csv --report cuda_gpu_kern_sum ranges.sqlite >kernels.csv
    nsys stats -q --format csv --report nvtx_gpu_proj_trace ranges.sqlite | grep -e ^Name -e ^iteration >steps.csv
    nsys stats -q --format csv --report cuda_gpu_mem_time_sum ranges.sqlite
"""

from __future__ import annotations

import csv
import gzip
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from plugins.modes import nsys

HERE = Path(__file__).parent / "report_h100"
COPIES = 365_486 + 14_688
"""The time of memsets and of copies, in ns."""


def printed(name: str) -> list[dict[str, str]]:
    with (HERE / name).open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def profile(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Any]:
    path = tmp_path_factory.mktemp("report") / "ranges.sqlite"
    path.write_bytes(gzip.decompress((HERE / "ranges.sqlite.gz").read_bytes()))
    (profile,) = nsys.digest(str(path))
    return profile


def test_the_window_is_that_of_nsys_stats(profile: Mapping[str, Any]) -> None:
    """From the first kernel of the first step to the last kernel of the last one."""
    rows = printed("steps.csv")
    end = int(rows[-1]["Projected Start (ns)"]) + int(rows[-1]["Projected Duration (ns)"])
    window = sum(profile[share] for share in ("compute", "exposed", "other", "gap"))
    assert window == end - int(rows[0]["Projected Start (ns)"])


def test_the_shares_are_those_of_nsys_stats(profile: Mapping[str, Any]) -> None:
    """No kernel of this report runs beside another one, nor beside a copy: each sum is a share."""
    kernels = sum(int(row["Total Time (ns)"]) for row in printed("kernels.csv"))
    assert (profile["compute"], profile["other"], profile["exposed"]) == (kernels, COPIES, 0)


def test_nothing_of_the_report_is_doubtful(profile: Mapping[str, Any]) -> None:
    assert profile["remarks"] == []
