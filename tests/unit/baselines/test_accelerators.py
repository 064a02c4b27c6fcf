"""The data sheets of accelerators: as their source has them, and no placeholder among them."""

from __future__ import annotations

from pathlib import Path

import pytest

from plugins.base.errors import ConfigError
from plugins.baselines.baseline_file import accelerators
from tests.unit import examples


# Reference table of the main README since v26.02; H100's figures stand in every release.
def test_the_accelerators_have_the_peaks_of_their_source() -> None:
    known = accelerators(examples.BASELINES)
    assert {name: (known[name].peak["bf16"], known[name].peak["fp8"]) for name in known} == {
        "h100": (989, 1979),
        # gpu-recipes' own.
        "h200": (989, 1978),
        "b200": (2250, 4500),
        "b300": (2250, 4500),
        "gb200": (2450, 4900),
        "gb300": (2450, 4900),
    }
    assert all(accelerator.source.startswith("https://") for accelerator in known.values())
    assert all(accelerator.peak["fp16"] == accelerator.peak["bf16"] for accelerator in known.values())


# A peak of 0 was divided by, after the run.
@pytest.mark.parametrize(
    ("peak", "source", "said"),
    [
        ("0", "x.org", "peak.fp8: must be greater than 0"),
        ("-1", "x.org", "peak.fp8: must be greater than 0,"),
        ("1", "tbd", "source: a placeholder"),
    ],
)
def test_a_data_sheet_is_no_placeholder(tmp_path: Path, peak: str, source: str, said: str) -> None:
    path = tmp_path / "accelerators.yaml"
    path.write_text(f"accelerators:\n  mi300: {{name: MI300, peak: {{fp8: {peak}}}, source: {source}}}\n")
    with pytest.raises(ConfigError) as caught:
        accelerators(tmp_path)
    assert str(caught.value).startswith(f"{path}:2: accelerators.mi300.{said}")
