"""What the set-up's pods say, and the arithmetic of the training split."""

from __future__ import annotations

import pytest

from fixtures.backends.kubernetes.provision import data as dataset
from fixtures.backends.kubernetes.provision.data import Found
from fixtures.backends.kubernetes.provision.data import Share


@pytest.mark.parametrize(
    ("pairs", "chunks", "words"),
    [
        # The published sample: 100 files downloaded, one file for training made of them.
        (
            1,
            15,
            [
                "1 pairs - 15 for validation - 15 for test = -29",
                "set `chunks` to at most",
                "prepare more files",
            ],
        ),
        (30, 15, ["30 pairs - 15 for validation - 15 for test = 0", "set `chunks` to at most 14"]),
        (0, 15, ["there is no data set in slimpajama/preprocessed on claim shared", "run with --provision"]),
    ],
)
def test_an_empty_training_list_is_told_with_its_arithmetic(
    pairs: int, chunks: int, words: list[str]
) -> None:
    said = dataset.shortage(Found(pairs), chunks, "slimpajama/preprocessed", "shared")
    assert said is not None
    for word in words:
        if word != "set `chunks` to at most" or pairs > 2:
            assert word in said
    if pairs == 1:
        assert "no `chunks` but 0 would do" in said


@pytest.mark.parametrize(("pairs", "chunks"), [(31, 15), (72, 15), (1, 0), (3, 1)])
def test_enough_is_enough(pairs: int, chunks: int) -> None:
    assert dataset.shortage(Found(pairs), chunks, "folder", "claim") is None


def test_a_file_without_index_and_a_missing_tokenizer_are_told() -> None:
    lone = dataset.shortage(Found(72, lone=1), 15, "folder", "claim")
    assert lone is not None
    assert "1 of the .bin files in folder on claim claim have no .idx" in lone
    bare = dataset.shortage(Found(72, tokenizer=False), 15, "folder", "claim")
    assert bare is not None
    assert "folder/../bpe/vocab.json" in bare


@pytest.mark.parametrize(
    ("files", "parts", "useful"), [(100, 72, True), (100, 1, False), (20, 72, False), (31, 72, True)]
)
def test_a_set_up_that_would_be_of_no_use_is_known_beforehand(files: int, parts: int, useful: bool) -> None:
    said = dataset.hollow(files, parts, 15)
    assert (said is None) == useful
    if said is not None:
        assert f"become {min(files, parts)} .bin/.idx pairs" in said
        assert "at least 31" in said


def test_progress_is_the_sum_of_the_workers_last_words() -> None:
    first = b"pacemark: extract 0 of 4: 2 of 25 files\nnoise\npacemark: extract 0 of 4: 9 of 25 files\n"
    assert dataset.share(first, "extract") == Share(0, 9, 25)
    assert dataset.share(first, "download") is None
    assert dataset.share(b"pacemark: extract 0 of 4: 2 of 2", "extract") is None
    assert (
        dataset.progress("extract", [Share(0, 9, 25), Share(1, 3, 25)], 4) == "extract: 12 of about 100 files"
    )
    every = [Share(worker, 5, 25) for worker in range(4)]
    # A pod that took a worker's place goes on counting where the first one was.
    assert dataset.progress("extract", [*every, Share(3, 25, 25)], 4) == "extract: 40 of 100 files"
    assert dataset.progress("extract", [], 4) == "extract: starting"


def test_the_count_is_read_from_its_line() -> None:
    assert dataset.found(b"+ x\npacemark: data: 72 pairs, 0 without index, tokenizer yes\n") == Found(72)
    assert dataset.found(b"bash: no such file\n") is None
