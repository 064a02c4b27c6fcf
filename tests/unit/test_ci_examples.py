"""The workflows in docs/ci: their published schemas accept them, and what they run exists."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from check_jsonschema import main as check

from tests.system.support import pacemark

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = {"github.yml": "vendor.github-workflows", "gitlab-ci.yml": "vendor.gitlab-ci"}


def test_there_is_a_schema_for_every_example() -> None:
    assert sorted(path.name for path in (ROOT / "docs" / "ci").iterdir()) == sorted(EXAMPLES)


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_published_schema_accepts_it(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        check(["--builtin-schema", EXAMPLES[name], str(ROOT / "docs" / "ci" / name)])
    assert ended.value.code == 0, capsys.readouterr()


def test_their_commands_are_of_this_version(tmp_path: Path) -> None:
    """Each call of pytest is understood, up to the site file that only its readers have."""
    found = {
        line.strip()
        for name in EXAMPLES
        for line in re.findall(r"\.venv/bin/pytest (.*)", (ROOT / "docs" / "ci" / name).read_text())
    }
    assert len(found) >= 3
    for line in found:
        options = shlex.split(line.replace("$SELECT", "70b and fp8"))
        run = pacemark(*options, f"--junitxml={tmp_path / 'junit.xml'}", results=tmp_path / "results")
        assert run.status == 4, run.out
        assert "my-cluster.yaml: no such file" in run.out
