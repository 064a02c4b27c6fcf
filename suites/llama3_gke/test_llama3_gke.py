"""Llama 3 70b pre-training on GKE reaches the pace of the one step that was published with it."""


def test_pretrain(measured, expected):
    assert measured.tokens_per_second == expected.tokens_per_second
    assert measured.mfu == expected.mfu
