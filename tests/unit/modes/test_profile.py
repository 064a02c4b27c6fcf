"""Digests as they come back from the cluster, and how they are shown."""

from __future__ import annotations

import copy
import json
import re
import xml.etree.ElementTree as ET
from typing import Any

import pytest

from plugins.base.errors import ConfigError
from plugins.modes import nsys
from plugins.modes.profiles import MOST_BYTES, read_profiles, shares_svg, table
from tests.hostile import COMMAND, MARKUP, OBEYED
from tests.unit.modes.simulator import export, simulate


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the program prints for a job."""
    path = tmp_path_factory.mktemp("export") / "a.sqlite"
    profiles = nsys.digest(str(export(path, *simulate())))
    return {
        "version": 1,
        "profiles": profiles,
        "errors": [{"file": "profile_9.nsys-rep", "error": "is empty"}],
    }


def encoded(value: object) -> bytes:
    return json.dumps(value).encode()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"", "Invalid JSON"),
        (b"bash: python3: command not found", "Invalid JSON"),
        (b"[]", "Input should be an object"),
        (b'{"version": 2, "profiles": [], "errors": []}', "version: Input should be 1"),
        (b'{"version": 1, "profiles": [], "errors": [], "more": 1}', "more: Extra inputs are not permitted"),
        (b'{"version": 1, "profiles": [{}], "errors": []}', "profiles.0.file: Field required"),
        (b" " * (MOST_BYTES + 1), f"{MOST_BYTES + 1} bytes, at most {MOST_BYTES} are read"),
        (b"\xff\xfe", "Invalid JSON"),
        (b"[" * 100_000, "Invalid JSON"),
    ],
)
def test_a_text_that_is_no_digest_is_one_error(text: bytes, said: str) -> None:
    with pytest.raises(ConfigError) as failed:
        read_profiles(text, "node1:/a.json")
    assert str(failed.value).startswith("node1:/a.json: is no digest of profiles: ")
    assert said in str(failed.value)
    assert "\n" not in str(failed.value)


@pytest.mark.parametrize(
    ("where", "value"),
    [("gap", -1), ("gap", 1.5), ("gap", "5"), ("gap", None), ("other", 1 << 63), ("speed", 1), ("host", 7), ("host", "x" * 500)],
)  # fmt: skip
def test_a_profile_with_a_wrong_value_is_refused(printed: dict[str, Any], where: str, value: object) -> None:
    changed = copy.deepcopy(printed)
    changed["profiles"][0][where] = value
    with pytest.raises(ConfigError, match=rf"profiles\.0\.{where}"):
        read_profiles(encoded(changed), "here")


def test_the_table_shows_shares_and_what_is_doubtful(printed: dict[str, Any]) -> None:
    changed = copy.deepcopy(printed)
    changed["profiles"][1]["remarks"] = ["3 records are left out"]
    lines = table(read_profiles(encoded(changed), "here").profiles).splitlines()
    assert re.fullmatch(r"node07 GPU 0 +0\.5\d\d\d +8\d\.\d% +1\d\.\d% +0\.1% +0\.\d%", lines[1])
    assert lines[-1] == "node07 GPU 1: 3 records are left out"


def test_the_plot_stacks_each_rank(printed: dict[str, Any]) -> None:
    root = ET.fromstring(shares_svg(read_profiles(encoded(printed), "here").profiles))
    bars = [rect for rect in root if rect.tag.endswith("rect") and rect.get("height") == "16"]
    assert len(bars) == 4 * 4
    widths = [sum(float(rect.get("width", 0)) for rect in bars[n : n + 4]) for n in range(0, len(bars), 4)]
    assert max(widths) == pytest.approx(550, abs=0.5)
    assert min(widths) > 500


@pytest.mark.parametrize("text", [OBEYED.replace("\udc80", ""), *MARKUP, f"a\n{COMMAND}", "a\uffff"])
def test_texts_of_a_report_are_shown_harmless(printed: dict[str, Any], text: str) -> None:
    changed = copy.deepcopy(printed)
    for one in changed["profiles"]:
        one |= {"host": text, "remarks": [text], "file": text}
    profiles = read_profiles(encoded(changed), "here").profiles
    for shown in (table(profiles), shares_svg(profiles)):
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\ud800-\udfff]", shown)
        assert "\n::" not in shown
        assert "##vso[" not in shown
    tags = {str(node.tag).rpartition("}")[2] for node in ET.fromstring(shares_svg(profiles)).iter()}
    assert tags == {"svg", "rect", "text"}
