"""The workflows in docs/ci: their published schemas accept them, and what they run exists."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import pytest
import yaml
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


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("github.yml", "runs-on:", "run-on:"),
        ("github.yml", "permissions:\n  contents: read", "permissions:\n  contents: reads"),
        ("github.yml", "cancel-in-progress", "cancel-in-process"),
        ("gitlab-ci.yml", "artifacts:", "artefacts:"),
        ("gitlab-ci.yml", "exit_codes: [12]", "exit_codes: [twelve]"),
        ("gitlab-ci.yml", "when: always", "when: ever"),
    ],
)
def test_the_published_schema_finds_a_mistake(tmp_path: Path, name: str, old: str, new: str) -> None:
    text = (ROOT / "docs" / "ci" / name).read_text()
    assert old in text
    (tmp_path / name).write_text(text.replace(old, new, 1))
    with pytest.raises(SystemExit) as ended:
        check(["--builtin-schema", EXAMPLES[name], str(tmp_path / name)])
    assert ended.value.code == 1


def test_their_scripts_are_bash() -> None:
    """No schema looks into a script."""
    github, gitlab = (yaml.safe_load((ROOT / "docs" / "ci" / name).read_text()) for name in EXAMPLES)
    scripts = [step["run"] for job in github["jobs"].values() for step in job["steps"] if "run" in step]
    job = gitlab["pace"]
    scripts += ["\n".join(job[part]) for part in ("before_script", "script", "after_script")]
    assert len(scripts) >= 7
    for script in scripts:
        # GitHub fills in what is in these braces before a shell sees it.
        assert "${{" not in script
        result = subprocess.run(["bash", "-n"], input=script, capture_output=True, text=True)
        assert result.returncode == 0, result.stderr


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
