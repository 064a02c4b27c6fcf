"""Megatron GPT-3 pre-training on AKS reaches the pace that was recorded on its site; nobody has published one."""

import pytest


def test_pretrain(measured, expected):
    assert measured.tokens_per_second == expected.tokens_per_second
    assert measured.mfu == expected.mfu


@pytest.mark.variant("checkpoint")
def test_checkpoint_write(written, promised):
    assert written.bytes_per_second == promised.bytes_per_second
