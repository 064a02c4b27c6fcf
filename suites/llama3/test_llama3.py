"""Llama 3.1 pre-training reaches the pace that NVIDIA published for it; its other modes leave what they are for."""

import pytest


def test_pretrain(measured, expected):
    assert measured.tokens_per_second == expected.tokens_per_second
    assert measured.mfu == expected.mfu


@pytest.mark.variant("profile")
def test_profile(lacking):
    assert not lacking


@pytest.mark.variant("nccl-trace")
def test_nccl_trace(lacking):
    assert not lacking


@pytest.mark.variant("checkpoint")
def test_checkpoint_save(written, promised):
    assert promised is None or written.bytes_per_second == promised.bytes_per_second


@pytest.mark.variant("checkpoint", "checkpoint-load")
def test_checkpoint_load(loaded):
    assert loaded is not None
