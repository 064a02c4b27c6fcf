"""Pre-training by Megatron-Bridge reaches the pace that its performance tables print."""


def test_pretrain(measured, expected):
    assert measured.tokens_per_second == expected.tokens_per_second
    assert measured.mfu == expected.mfu
