"""The output of 512 tasks in one file, in pieces: what is read of it, how fast, and who is blamed for its end."""

from __future__ import annotations

import itertools
import random
import time
from collections import Counter

import pytest

from fixtures.backends.slurm.answers import blamed, of_last_step
from plugins.judging.complaints import complaints
from plugins.logs import Log
from plugins.logs.formats import read
from tests.unit import ranks
from tests.unit.backends.slurm.test_answers import SUDO_FAILS


def parsed(recipe: str, data: bytes, seed: int) -> Log:
    chance = random.Random(seed)
    cuts = [0, *sorted(chance.sample(range(1, len(data)), 20)), len(data)]
    pieces = (data[start:end] for start, end in itertools.pairwise(cuts))
    begin = time.process_time()
    log = read(ranks.RECIPES[recipe][0], pieces)
    # 4.9 MB in half a second; ten times that would keep a session from its other jobs.
    assert time.process_time() - begin < 5
    return log


@pytest.mark.parametrize("label", [False, True], ids=["plain", "label"])
@pytest.mark.parametrize("recipe", list(ranks.RECIPES))
def test_every_step_of_512_tasks_is_read_and_none_wrong(recipe: str, label: bool) -> None:
    for seed in range(1 if recipe == "maxtext_llama2" else 2):
        shown, data = ranks.RECIPES[recipe][1](seed, label=label)
        log = parsed(recipe, data, seed)
        found = {step.index: step.seconds for step in log.steps}
        assert list(found) == list(range(ranks.STEPS))
        # What follows the time on the first line of NeMo 2 may be another rank's.
        unread = [step for step, seconds in found.items() if seconds is None]
        assert unread in ([], [0] if recipe == "llama3" else [])
        assert all(found[step] in (None, float(text)) for step, text in enumerate(shown))
        assert (log.repeated, log.restarted_after) == ((), ())
        assert log.ranks == (ranks.TASKS if recipe == "maxtext_llama2" else None)
        values = Counter(fact.name for fact in log.facts)
        assert values["group"] == 1
        assert set(values.values()) == {1}


def test_of_64_nodes_whose_tasks_srun_ended_only_the_first_is_blamed_and_shown() -> None:
    for seed in range(3):
        said = ranks.complaints_of_srun(seed)
        assert blamed(said.decode()) == "gpu002"
        assert complaints(said) == [ranks.CULPRIT.encode()]
        traced = f"{SUDO_FAILS}+ srun --output log.out train\n".encode() + said
        assert blamed(of_last_step(traced).decode()) == "gpu002"


def test_the_cause_is_shown_among_the_last_words_of_511_other_ranks() -> None:
    shown = complaints(ranks.errors(0) + b"\n" + ranks.complaints_of_srun(0))[-8:]
    assert ranks.CAUSE.encode() in shown
    assert shown[-1] == ranks.CULPRIT.encode()
