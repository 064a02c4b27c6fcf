"""Qwen3 pre-training reaches the pace that Megatron-Bridge publishes for it."""


def test_pretrain(measured, expected):
    assert measured.tokens_per_second == expected.tokens_per_second
    assert measured.mfu == expected.mfu
