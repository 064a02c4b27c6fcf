"""Each log of a tree finds its case, or what is missing is asked; none finds another's."""

from __future__ import annotations

import random
from functools import cache

import pytest
import yaml

from plugins.sources.attribution import Asked, Attribution, Attributor
from plugins.sources.files import File
from plugins.sources.jobs import FoundJob, JobLog, LaunchConfig, read_log
from plugins.sources.registry import Candidate
from tests.printed.megatron_bridge import STATED, text_of
from tests.unit.sources import upstream
from tests.unit.sources.upstream import FAMILIES, log_name, of_family, registry, renamed

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
    return not said.question and of in said.fitting


@pytest.mark.parametrize("number", range(COUNT))
def test_a_log_finds_its_case_or_asks(number: int) -> None:
    of = cases()[number * len(cases()) // COUNT]
    name = "log.out" if of.case.recipe == "megatron_bridge" else log_name(of, 7)
    free = attributed(of, name)
    assert is_right(of, free) or free.answer
    assert is_right(of, attributed(of, name, Asked(of.gpu, of.case.release, of.case.recipe)))


@pytest.mark.parametrize("recipe", FAMILIES)
@pytest.mark.parametrize("release", ["26.06.01", "26.08.00"])
def test_the_file_of_a_launcher_names_each_case(recipe: str, release: str) -> None:
    """Whatever the name of the log: of each scale on each type of GPU, whole or a proxy."""
    attributor = Attributor(registry().candidates, registry(), ANY)
    wrong = []
    for of in of_family(recipe, release)[::3]:
        config = LaunchConfig.model_validate(yaml.safe_load(upstream.config(of, 7)))
        job = FoundJob("7", parsed(of, "log.out"), config=config, config_name="llmb-config_7.yaml")
        said = attributor.of(job)
        if said.candidate is not of:
            wrong.append((of.text, said.question))
    assert wrong == []
