"""Bundles that an earlier Pacemark made are verified, with the same words."""

from __future__ import annotations

import pytest

from tests.unit.bundles import golden

BUNDLES = ("accepted", "repeated", "replayed", "stopped")


def test_no_bundle_is_left_out() -> None:
    assert tuple(sorted(path.stem for path in golden.FOLDER.glob("*.zip"))) == BUNDLES


@pytest.mark.parametrize("name", BUNDLES)
def test_a_bundle_of_before_is_verified_with_the_same_words(name: str) -> None:
    assert golden.verify(golden.FOLDER, name) == golden.Said(0, (golden.FOLDER / f"{name}.txt").read_text())
