"""What `--collect-only` costs, in what can be counted: the modules that it imports, the files that it reads."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.unit import examples

_COUNT = """\
import gc, importlib.metadata, pathlib, sys
scans, every = [], importlib.metadata.distributions
importlib.metadata.distributions = lambda **context: scans.append(1) or every(**context)
programs = []
sys.addaudithook(lambda event, args: programs.append(args[0]) if event == "subprocess.Popen" else None)
import pytest
from plugins.base import yamlfile
from plugins.base import yaml_text
passes = []
gc.callbacks.append(lambda phase, _: passes.append(phase) if "fixtures" in sys.modules and not gc.get_freeze_count() else None)
read, opened = [], yaml_text.read_bytes
yamlfile.read_bytes = lambda path: read.append(path) or opened(path)
status = pytest.main(["suites", "--collect-only", "-q", "-p", "no:cacheprovider", "-p", "no:hypothesispytest", *sys.argv[1:]])
print("modules:", *sorted(name for name in sys.modules if name.partition(".")[0] in ("fixtures", "plugins")))
print("files:", *sorted(path.relative_to(pathlib.Path.cwd()).as_posix() for path in read))
print("garbage:", len(passes), gc.isenabled())
print("programs:", *programs)
print("scans:", len(scans))
sys.exit(status)
"""

RECIPES = [
    *("deepseek_v3", "gpt3_aks", "gpt_oss", "kimi_k2", "llama3", "llama3_gke", "maxtext_llama2"),
    *("megatron_bridge", "nemotron3", "nemotron4", "nemotron_h", "proxy", "qwen3"),
]

MODULES = """\
fixtures
fixtures.backends
fixtures.backends.redaction
fixtures.backends.section
fixtures.backends.this_machine
fixtures.options
fixtures.session
fixtures.session.choices
fixtures.session.choosing
fixtures.session.hooks
fixtures.session.plugins
fixtures.session.selection
fixtures.site
plugins
plugins.base
plugins.base.errors
plugins.base.words
plugins.base.yaml_text
plugins.base.yamlfile
plugins.isolation
plugins.judging
plugins.judging.choice
plugins.logs
plugins.logs.log
plugins.logs.means
plugins.logs.registry
plugins.recipes
plugins.recipes.arithmetic
plugins.recipes.cases
plugins.recipes.contracts
plugins.recipes.expansion
plugins.recipes.models
plugins.recipes.recipe_file
plugins.recipes.variants
plugins.record
plugins.record.baseline
plugins.record.folder
plugins.record.job
plugins.record.lines
plugins.record.plan
plugins.record.verdict
plugins.suite
plugins.suite.fixtures
plugins.suite.session
"""


def collect(*options: str) -> dict[str, list[str]]:
    """The lines that the program prints at its end, by their first words."""
    command = [sys.executable, "-c", _COUNT, *options]
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYDANTIC_")}
    done = subprocess.run(command, cwd=examples.ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line.partition(":") for line in done.stdout.splitlines()[-5:]]
    return {name: words.split() for name, _, words in lines}


@pytest.fixture(scope="module")
def collected() -> dict[str, list[str]]:
    return collect()


def test_only_what_collecting_needs_is_imported(collected: dict[str, list[str]]) -> None:
    assert collected["modules"] == MODULES.split()


def test_each_recipe_is_read_once(collected: dict[str, list[str]]) -> None:
    assert collected["files"] == [f"suites/{recipe}/recipe.yaml" for recipe in RECIPES]


def test_no_garbage_is_looked_for_until_all_is_collected(collected: dict[str, list[str]]) -> None:
    assert collected["garbage"] == ["0", "True"]


def test_no_program_is_started(collected: dict[str, list[str]]) -> None:
    assert collected["programs"] == []


def test_what_is_installed_is_looked_through_for_plugins_of_pytest_alone(
    collected: dict[str, list[str]],
) -> None:
    """Pytest itself does so twice."""
    assert collected["scans"] == ["2"]
