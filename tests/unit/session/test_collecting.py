"""What `--collect-only` costs, in what can be counted: the modules that it imports, the files that it reads."""

from __future__ import annotations

import os
import subprocess
import sys

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
status = pytest.main(["suites", "--collect-only", "-q", "-p", "no:cacheprovider", "-p", "no:hypothesispytest"])
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

# The modules of each package.
MODULES = {
    "fixtures": "options session site",
    "fixtures.backends": "redaction section this_machine",
    "fixtures.session": "choices choosing plugins selection",
    "plugins": "base isolation judging logs recipes record suite",
    "plugins.base": "errors words yaml_text yamlfile",
    "plugins.judging": "choice",
    "plugins.logs": "log means registry",
    "plugins.recipes": "arithmetic cases contracts expansion models recipe_file variants",
    "plugins.record": "baseline folder job lines plan verdict",
    "plugins.suite": "fixtures session",
}


def collect() -> dict[str, list[str]]:
    """The lines that the program prints at its end, by their first words."""
    command = [sys.executable, "-c", _COUNT]
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYDANTIC_")}
    done = subprocess.run(command, cwd=examples.ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line.partition(":") for line in done.stdout.splitlines()[-5:]]
    return {name: words.split() for name, _, words in lines}


def test_collecting_does_only_what_it_needs() -> None:
    collected = collect()
    modules = {f"{package}.{name}" for package, names in MODULES.items() for name in names.split()}
    assert collected["modules"] == sorted(modules | MODULES.keys())
    assert collected["files"] == [f"suites/{recipe}/recipe.yaml" for recipe in RECIPES], "each is read once"
    assert collected["garbage"] == ["0", "True"], "none is looked for until all is collected"
    assert collected["programs"] == []
    # What is installed is looked through for plugins of pytest alone; pytest does so twice.
    assert collected["scans"] == ["2"]
