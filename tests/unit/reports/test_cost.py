"""When what makes the page of a run is loaded: while its jobs run; and what of it is kept for the next run."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from jinja2 import Environment

from fixtures.session.life import Life
from fixtures.session.run import OwnRun
from plugins.record import stored
from plugins.reports import page
from plugins.reports.markup import template


@pytest.mark.parametrize(("done", "loaded"), [(0, 0), (1, 2)])
def test_what_makes_the_page_is_loaded_once_a_job_prints_steps(done: int, loaded: int) -> None:
    life = Life(cast(pytest.Config, None))
    board = {"llama3/70b": SimpleNamespace(done=done)}
    life._run = cast(OwnRun, SimpleNamespace(fleet=SimpleNamespace(board=board)))
    template.cache_clear()
    stored._adapter.cache_clear()  # type: ignore[attr-defined]
    for _ in range(3):
        life.pytest_pacemark_waiting()
    assert template.cache_info().misses == loaded
    assert stored._adapter.cache_info().misses == bool(loaded)  # type: ignore[attr-defined]


@pytest.mark.parametrize("damage", [b"", b"j2\x05", b"\xff" * 99])
def test_a_template_is_compiled_once_and_again_if_what_was_kept_is_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: bytes
) -> None:
    compiled: list[Any] = []
    compile_it = Environment.compile

    def counted(*args: Any) -> Any:
        compiled.append(args)
        return compile_it(*args)

    monkeypatch.setattr(Environment, "compile", counted)
    monkeypatch.setattr("plugins.reports.markup._COMPILED", tmp_path / "__pycache__")
    monkeypatch.setattr("sys.dont_write_bytecode", False)

    def load(times: int) -> None:
        template.cache_clear()
        template(page.MARKDOWN)
        assert len(compiled) == times

    load(1)
    load(1)
    [kept] = (tmp_path / "__pycache__").iterdir()
    kept.write_bytes(damage)
    load(2)
    load(2)
    template.cache_clear()
