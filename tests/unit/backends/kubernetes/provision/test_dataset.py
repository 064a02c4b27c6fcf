"""The set-up's rules of gpt3_aks, the arithmetic of its training split, and what its pods say."""

from __future__ import annotations

import pytest

from fixtures.backends.kubernetes.provision.apply import progress
from plugins.recipes.setup import read_setup
from tests.unit import gpt3_setup

DATA = read_setup(gpt3_setup.SOURCE / "setup.yaml").data
SITE = {
    "claim": "shared",
    "dataset": "slimpajama/preprocessed",
    "files": "100",
    "parts": "72",
    "chunks": "15",
}


def shortage(pairs: int, chunks: int = 15, *, lone: int = 0, tokenizer: str = "yes") -> str:
    """What is said of so many files; "" if they are enough."""
    there = {"pairs": str(pairs), "lone": str(lone), "tokenizer": tokenizer}
    return DATA.probe.broken({**SITE, "chunks": str(chunks), **there}) or ""


@pytest.mark.parametrize(
    ("pairs", "words"),
    [
        # The published sample: 100 files downloaded, one file for training made of them.
        (
            1,
            [
                "1 pairs - 15 for validation - 15 for test = -29, with chunks 15, in slimpajama/preprocessed on claim shared",
                "set `chunks` to at most 0",
                "prepare more files",
            ],
        ),
        (30, ["30 pairs - 15 for validation - 15 for test = 0", "set `chunks` to at most 14"]),
        (0, ["there is no data set in slimpajama/preprocessed on claim shared", "run with --provision"]),
    ],
)
def test_an_empty_training_list_is_told_with_its_arithmetic(pairs: int, words: list[str]) -> None:
    said = shortage(pairs)
    for word in words:
        assert word in said


@pytest.mark.parametrize(("pairs", "chunks"), [(31, 15), (72, 15), (1, 0), (3, 1)])
def test_enough_is_enough(pairs: int, chunks: int) -> None:
    assert shortage(pairs, chunks) == ""


def test_a_file_without_index_and_a_missing_tokenizer_are_told() -> None:
    assert "1 of the .bin files in slimpajama/preprocessed on claim shared have no .idx" in shortage(
        72, lone=1
    )
    assert "slimpajama/preprocessed/../bpe/vocab.json" in shortage(72, tokenizer="no")


@pytest.mark.parametrize(
    ("files", "parts", "useful"), [(100, 72, True), (100, 1, False), (20, 72, False), (31, 72, True)]
)
def test_a_set_up_that_would_be_of_no_use_is_known_beforehand(files: int, parts: int, useful: bool) -> None:
    said = DATA.broken({**SITE, "files": str(files), "parts": str(parts)})
    assert (said is None) == useful
    if said is not None:
        assert f"become {min(files, parts)} .bin/.idx pairs" in said
        assert "at least 31" in said


def told(said: list[str], stage: str = "extract", pattern: str = DATA.progress) -> str:
    return progress([text.encode() for text in said], pattern, stage, 4)


def line(worker: int, done: int) -> str:
    return f"pacemark: extract {worker} of 4: {done} of 25 files\n"


def test_progress_is_the_sum_of_the_workers_last_words() -> None:
    first = f"{line(0, 2)}noise\n{line(0, 9)}"
    assert told([first, line(1, 3)]) == "extract: 12 of about 100 files"
    assert told([first], stage="download") == "download: starting"
    assert told(["pacemark: extract 0 of 4: 2 of 2"]) == "extract: starting"
    # A pod that took a worker's place goes on counting where the first one was.
    every = [line(worker, 5) for worker in range(4)]
    assert told([*every, line(3, 25)]) == "extract: 40 of 100 files"
    assert told([]) == "extract: starting"


def test_progress_is_read_by_the_recipes_own_pattern() -> None:
    pattern = r"^(?P<stage>\w+)/(?P<worker>\w+) (?P<done>\S+)/(?P<all>\d+) (?P<unit>\w+)$"
    assert (
        told(["extract/a 3/5 shards\nextract/b 1/7 shards\n"], pattern=pattern)
        == "extract: 4 of about 24 shards"
    )
    # What is no number counts for nothing.
    assert told([f"extract/a {'9' * 5000}/5 shards"], pattern=pattern) == "extract: 0 of about 20 shards"
