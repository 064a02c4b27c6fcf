"""The worked example of Google's training metrics tool, reproduced to every digit that it prints.

Source: src/utils/training_metrics of https://github.com/AI-Hypercomputer/gpu-recipes: GPT-3 175B, FP8, 256 H100.
"""

from __future__ import annotations

import pytest

from plugins.baselines.metrics import FlopsDefinition, MfuBasis, flops_per_sequence
from plugins.judging.measurement import Measurement
from plugins.judging.timing import timing
from plugins.recipes.cases import Case
from plugins.recipes.models import Model
from plugins.record.baseline import Statistic
from tests.printed.dllogger import data, in_file
from tests.unit.examples import parse

# `train_step_timing in s` of the example file: running means over five steps.
SECONDS = [
    107.35490417480469, 66.42150115966797, 52.8040657043457, 46.034542083740234, 42.043312072753906,
    25.699249267578125, 25.725324630737305, 25.901508331298828, 25.846155166625977, 25.691082000732422,
    25.636751174926758, 25.579267501831055, 25.343032836914062, 25.46991729736328, 25.52934455871582,
    25.60711669921875, 25.637285232543945, 25.68196678161621, 25.384899139404297, 25.30147361755371,
    25.22845458984375, 25.06499481201172, 25.09807777404785, 25.201101303100586, 25.2277889251709,
    25.2721004486084, 25.44161033630371, 25.43352699279785, 25.470687866210938, 25.455108642578125,
    25.28065299987793, 25.21343231201172, 25.12631607055664, 25.023164749145508, 25.020967483520508,
    25.129417419433594, 25.11517333984375, 25.066465377807617, 25.080965042114258, 25.146541595458984,
    25.042591094970703, 24.933547973632812, 24.88899040222168, 24.928272247314453, 24.765525817871094,
    24.736591339111328, 31.65316390991211, 32.46758270263672, 32.76279830932617, 32.8956184387207,
]  # fmt: skip
GPT3_175B = Model(
    layers=96, hidden=12288, ffn=49152, heads=96, query_groups=96, vocab=51200, mlp="squared-relu"
)
# The tool's table has the model FLOPs with two digits.
ROUNDED = FlopsDefinition(definition="full-attention", significant_digits=2)
TABLE = flops_per_sequence(GPT3_175B, 2048, ROUNDED)
CASE = Case(
    recipe="gpt3", release="test", size="175b", dtype="fp8", gpus=256, accelerator="gpu", model_name="175b", model=GPT3_175B,
    sequence_length=2048, steps=50, tp=4, pp=8, cp=1, vp=2, fsdp=1, mbs=1, gbs=2048,
)  # fmt: skip


@pytest.mark.parametrize(
    ("window", "flops", "peak", "printed"),
    [
        ("mean:10-30", TABLE, 989, ("25.39738855", "692.98463368", "0.70069225")),
        ("mean:10-30", TABLE, 1978, ("25.39738855", "692.98463368", "0.35034612")),
        ("mean:15-40", TABLE, 1978, ("25.25968772", "696.76237478", "0.35225600")),
        ("mean:10-30", 1.6e15, 1000, ("25.39738855", "503.98882449", "0.50398882")),
    ],
)
def test_the_printed_figures(window: str, flops: float, peak: float, printed: tuple[str, str, str]) -> None:
    log = "".join(f"{in_file(i, data(i, seconds))}\n" for i, seconds in enumerate(SECONDS))
    found = timing(parse(log, "dllogger").steps, Statistic.parse(window))
    measured = Measurement(CASE, found, MfuBasis(flops, ROUNDED, peak))
    assert measured.tflops_per_gpu is not None
    assert measured.mfu is not None
    figures = (measured.step_time, measured.tflops_per_gpu, measured.mfu / 100)
    assert tuple(f"{figure:.8f}" for figure in figures) == printed


def test_the_table_holds_the_formula_with_two_digits() -> None:
    assert TABLE == 2.2e15
    exact = flops_per_sequence(GPT3_175B, 2048, FlopsDefinition(definition="full-attention"))
    assert exact == pytest.approx(2.20456e15, rel=1e-5)
