"""Each log of a tree finds its case, or what is missing is asked; none finds another's."""

from __future__ import annotations

import random
from functools import cache

import pytest

from plugins.sources.attribution import Asked, Attribution, Attributor
from plugins.sources.files import File
from plugins.sources.jobs import FoundJob, JobLog, read_log
from plugins.sources.registry import Candidate
from tests.printed.megatron_bridge import STATED, text_of
from tests.unit.sources.upstream import log_name, registry, renamed

COUNT = 80


@cache
def cases() -> list[Candidate]:
    """All cases that Megatron-Bridge runs, shuffled."""
    found = [each for each in registry().candidates if each.recipe.file.log == "megatron_bridge"]
    random.Random(46).shuffle(found)
    return found


ANY = Asked()


def parsed(of: Candidate, name: str) -> JobLog:
    """The log of a few steps of a case."""
    return read_log(
        File(name, iter([text_of(renamed(of, steps=4).case, 10.0, STATED[of.case.dtype]).encode()]))
    )


def attributed(of: Candidate, name: str, asked: Asked = ANY) -> Attribution:
    return Attributor(registry().candidates, registry(), asked).of(FoundJob("", parsed(of, name)))


def is_right(of: Candidate, said: Attribution) -> bool:
    return said.candidate is not None and of in (said.candidate, *said.alike)


@pytest.mark.parametrize("number", range(COUNT))
def test_a_log_finds_its_case_or_asks(number: int) -> None:
    of = cases()[number * len(cases()) // COUNT]
    name = "log.out" if of.case.recipe == "megatron_bridge" else log_name(of, 7)
    free = attributed(of, name)
    assert is_right(of, free) or free.question.endswith(("give --gpu", "--case", "--release"))
    assert is_right(of, attributed(of, name, Asked(of.gpu, of.case.release, of.case.recipe)))
