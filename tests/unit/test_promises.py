"""Each sentence that README promises is proved by a test that `make test` runs."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.promises import PROMISES
from tests.unit import examples

TESTS = sorted((examples.ROOT / "tests").glob("*/**/test_*.py"))


def marked(file: Path) -> Iterator[str]:
    """The promises that tests of this file say they prove: the arguments of `pytest.mark.promise`."""
    text = file.read_text()
    if "mark.promise(" not in text:
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.promise":
            yield from (ast.literal_eval(argument) for argument in node.args)


@pytest.fixture(scope="module")
def proved() -> set[str]:
    return {name for file in TESTS for name in marked(file)}


@pytest.mark.parametrize("name", PROMISES)
def test_a_test_proves_what_readme_promises(name: str, proved: set[str]) -> None:
    readme = " ".join(re.sub(r"\]\([^)]*\)|\[", "", (examples.ROOT / "README.md").read_text()).split())
    assert PROMISES[name] in readme
    assert name in proved


def test_no_test_proves_what_nobody_promised(proved: set[str]) -> None:
    assert proved - PROMISES.keys() == set()
