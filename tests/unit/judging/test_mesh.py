"""MaxText's mesh beside the case's sharding, and what Megatron-Bridge prints of dtypes and vocabularies."""

from __future__ import annotations

import pytest

from tests.unit import examples
from tests.unit.stated import judged, text_of

LARGE = examples.case("70b-bf16-512gpus", "maxtext_llama2")


def mesh(slices: object, **axes: int) -> list[str]:
    """As MaxText 8e55ab1 prints it, all axes that are not given being 1."""
    names = ("data", "fsdp", "fsdp_transpose", "sequence", "tensor", "pipeline", "expert", "autoregressive")
    lines = [
        f"Config param {place}_{axis}_parallelism: {axes.get(f'{place}_{axis}', 1)}"
        for axis in names
        for place in ("dcn", "ici")
    ]
    return [*lines, *([] if slices is None else [f"Config param num_slices: {slices}"])]


@pytest.mark.parametrize(
    ("axes", "slices", "wrong"),
    [
        # The recipe's 512 GPUs: 16 of 64 nodes share one copy of the parameters.
        ({"ici_fsdp": 8, "dcn_fsdp": 16, "dcn_data": 4}, 64, ""),
        ({"ici_fsdp": -1, "dcn_fsdp": 16, "dcn_data": -1}, 64, ""),
        ({"ici_fsdp": 8, "dcn_fsdp": -1, "dcn_data": 4}, 64, ""),
        # Without the number of slices, what is -1 is not known.
        ({"ici_fsdp": -1, "dcn_fsdp": 64}, None, "data is 4"),
        ({"ici_fsdp": 8, "dcn_fsdp": 16, "dcn_data": -1}, None, ""),
        # MaxText's defaults.
        ({"ici_fsdp": -1, "dcn_data": -1}, 64, "fsdp is 128"),
        ({"ici_fsdp": 8, "dcn_fsdp": 64}, 64, "fsdp is 128"),
        ({"ici_fsdp": 4, "ici_tensor": 2, "dcn_fsdp": 16, "dcn_data": 4}, 64, "tensor is 1"),
        ({"ici_fsdp": 8, "dcn_fsdp": 16, "dcn_pipeline": 4}, 64, "pipeline is 1"),
        ({"ici_fsdp": 8, "dcn_fsdp": 16, "dcn_expert": 4}, 64, "expert is 1"),
        ({"ici_fsdp_transpose": 8, "dcn_fsdp": 16, "dcn_data": 4}, 64, "fsdp_transpose is 1"),
        ({"ici_sequence": 8, "dcn_fsdp": 16, "dcn_data": 4}, 64, "sequence is 1"),
        ({"ici_fsdp": 8, "dcn_fsdp": 16, "dcn_autoregressive": 4}, 64, "autoregressive is 1"),
        ({"ici_data": 8, "dcn_fsdp": 16, "dcn_data": 4}, 64, "data is 4"),
    ],
)
def test_the_mesh_is_the_cases(axes: dict[str, int], slices: int | None, wrong: str) -> None:
    reasons = judged("maxtext", text_of("maxtext", *mesh(slices, **axes), count=50), LARGE)
    # The steps are those of 64 GPUs.
    stated = [reason for reason in reasons if "this case's" in reason and "_parallelism" in reason]
    assert any(reason.endswith(f"this case's {wrong}") for reason in stated) if wrong else stated == []


def yaml(model: str, optimizer: str = "torch.float32") -> list[str]:
    """As safe_dump writes the dtypes (Megatron-Bridge v0.3.0 src/megatron/bridge/utils/yaml_utils.py 120)."""
    return [
        "model:", "  autocast_dtype:", "    _call_: false", "    _target_: torch.float32",
        "  params_dtype:", "    _call_: false", f"    _target_: {model}",
        "  pipeline_dtype:", "    _call_: false", "    _target_: torch.float16",
        "optimizer:", "  params_dtype:", "    _call_: false", f"    _target_: {optimizer}",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("lines", "wrong"),
    [
        (yaml("torch.bfloat16"), ""),
        (yaml("torch.float32", "torch.bfloat16"), ""),
        (yaml("torch.float32"), "torch.float32"),
        (yaml("torch.float16"), "torch.float16"),
        (["  params_dtype: torch.bfloat16  (Mcore default: torch.float32)"], ""),
        (["  params_dtype: torch.float16  (Mcore default: torch.float32)"], "torch.float16"),
    ],
)
def test_the_dtype_of_the_parameters_is_the_cases(lines: list[str], wrong: str) -> None:
    reasons = judged("megatron_bridge", text_of("megatron_bridge", *lines))
    assert [f"params_dtype: {wrong}" in reason for reason in reasons] == ([True] if wrong else [])


@pytest.mark.parametrize(
    ("sizes", "valid"),
    [
        ((128256,), True), ((128256, 32000), True), ((32000, 128256), True), ((128257,), True), ((128512, 128256), True),
        ((32000,), False), ((256000, 128256), False), ((130000,), False),
    ],
)  # fmt: skip
def test_the_largest_vocabulary_is_the_models(sizes: tuple[int, ...], valid: bool) -> None:
    reasons = judged(
        "megatron_bridge", text_of("megatron_bridge", *(f"  vocab_size: {size}" for size in sizes))
    )
    assert bool(reasons) is not valid
    assert all("this case's vocab is 128256" in reason for reason in reasons)
