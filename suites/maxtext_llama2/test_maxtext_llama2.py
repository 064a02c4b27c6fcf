"""Llama 2 70b pre-training with MaxText reaches the pace that NVIDIA published for it; its profiles are there."""

import pytest


def test_pretrain(measured, expected):
    assert measured.tokens_per_second == expected.tokens_per_second
    assert measured.mfu == expected.mfu


@pytest.mark.variant("profile")
def test_profile(lacking):
    assert not lacking
