"""This machine trains a small Llama decoder at the share of its own peak that a healthy machine reaches."""


def test_pretrain(measured, expected):
    assert measured.tokens_per_second == expected.tokens_per_second
    assert measured.mfu == expected.mfu
