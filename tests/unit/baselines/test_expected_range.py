"""A case without a number has a range by the published numbers of other scales: how often it holds, and from what it follows."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations, pairwise
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import pytest
import yaml

from plugins.baselines.baseline_file import ACCELERATORS, NO_TABLES, accelerators, load_baselines
from plugins.baselines.expected_range import (
    EFFICIENCY,
    FASTER,
    FEW_DOUBLINGS,
    MOST_DOUBLINGS,
    MOST_GPUS,
    SLOWER,
    WIDER,
    Scaled,
    extrapolated,
)
from plugins.baselines.store import lacking
from plugins.recipes.cases import Case
from plugins.record.baseline import ExpectedRange
from tests.unit import examples

Point = tuple[int, float]
"""A number of GPUs, and the throughput of one of them."""


def families() -> dict[str, list[list[Point]]]:
    """The published series of weak scaling beyond what NVLink connects, by recipe and size."""
    sheets = accelerators(examples.BASELINES)
    series: dict[str, dict[str, list[Point]]] = defaultdict(lambda: defaultdict(list))
    for path in sorted(examples.BASELINES.glob("*.yaml")):
        if path.name in (*NO_TABLES, "proxy.yaml"):
            continue
        for table in load_baselines(path).tables:
            for cell in table.cells:
                alike = {
                    key: cell.configuration[key]
                    for key in cell.configuration
                    if key not in ("gbs", "dp", "ga")
                }
                name = f"{table.release} {table.gpu} {cell.dtype} {cell.gbs / cell.gpus} {alike}"
                if cell.step_time is not None and cell.gpus > sheets[table.gpu].nvlink:
                    series[f"{path.stem}/{cell.size}"][name].append(
                        (cell.gpus, cell.gbs / cell.gpus / cell.step_time)
                    )
    found = {
        family: [sorted(points) for points in of.values() if len(points) > 1] for family, of in series.items()
    }
    elsewhere = yaml.safe_load(Path(__file__).with_name("weak_scaling.yaml").read_text())
    for name, lists in elsewhere.items():
        found[name] = [[(gpus, 1 / seconds) for gpus, seconds in times.items()] for times in lists]
    return {family: lists for family, lists in found.items() if lists}


def pairs(series: list[list[Point]]) -> Iterator[tuple[float, float]]:
    for points in series:
        for (fewer, before), (more, after) in combinations(points, 2):
            doublings = math.log2(more / fewer)
            if doublings <= MOST_DOUBLINGS:
                yield doublings, math.log(after / before)


def figures(series: list[list[Point]]) -> tuple[float, float, float]:
    """The efficiency of a doubling, and by which shares 5 % of the pairs are below and above it."""
    neighbours = [
        math.log(after / before) / math.log2(more / fewer)
        for points in series
        for (fewer, before), (more, after) in pairwise(points)
    ]
    usual = median(neighbours)
    off = [(ratio - usual * doublings) / math.sqrt(doublings) for doublings, ratio in pairs(series)]
    cuts = quantiles(off, n=20, method="inclusive")
    return math.exp(usual), -cuts[0], cuts[-1]


def is_inside(doublings: float, ratio: float, efficiency: float, slower: float, faster: float) -> bool:
    off = (ratio - math.log(efficiency) * doublings) / math.sqrt(doublings)
    return -slower <= off <= faster


UNLIKE = ("llama4", "grok1", "deepseek_v3", "nemotronh")
"""The families with experts, and the one with Mamba layers."""


def held_out() -> dict[str, list[tuple[float, bool]]]:
    """For each pair of scales of a family: how far they are apart, and whether the range of the other families holds."""
    known = families()
    held = {}
    for family, series in known.items():
        others = [points for name, lists in known.items() if name != family for points in lists]
        efficiency, slower, faster = figures(others)
        wider = WIDER if family in UNLIKE else 1.0
        held[family] = [
            (doublings, is_inside(doublings, ratio, efficiency, wider * slower, wider * faster))
            for doublings, ratio in pairs(series)
        ]
    return held


def test_the_figures_are_those_of_the_published_series() -> None:
    series = [points for lists in families().values() for points in lists]
    assert (len(series), sum(map(len, series)), len(list(pairs(series)))) == (40, 185, 357)
    assert figures(series) == pytest.approx((EFFICIENCY, SLOWER, FASTER), abs=6e-5)
    assert max(gpus for points in series for gpus, _ in points) == MOST_GPUS


def test_nine_of_ten_paces_of_a_family_that_the_figures_do_not_know_are_inside() -> None:
    held = [pair for of in held_out().values() for pair in of]
    assert sum(inside for _, inside in held) / len(held) == pytest.approx(0.9, abs=0.035)
    for distance in range(1, MOST_DOUBLINGS + 1):
        at = [inside for doublings, inside in held if round(doublings) == distance]
        assert sum(at) / len(at) == pytest.approx(0.9, abs=0.035), distance


def test_the_families_are_not_alike_as_the_docs_say() -> None:
    shares = {family: sum(inside for _, inside in of) / len(of) for family, of in held_out().items()}
    assert min(shares, key=shares.__getitem__) == "maxtext_llama2/70b"
    assert shares["maxtext_llama2/70b"] == pytest.approx(5 / 12)
    assert shares["nemotron4/340b"] == pytest.approx(28 / 38)
    assert sum(shares.values()) / len(shares) == pytest.approx(0.88, abs=0.005)


def test_the_wider_range_of_experts_and_mamba_layers_holds_as_often() -> None:
    """Without `WIDER`, it held for 9 of the 13 pairs of models with experts, and 10 of the 18 of the other one."""
    held = {family: [inside for _, inside in of] for family, of in held_out().items() if family in UNLIKE}
    counts = {family: (sum(inside), len(inside)) for family, inside in held.items()}
    assert counts == {"llama4": (6, 6), "grok1": (5, 6), "deepseek_v3": (1, 1), "nemotronh": (17, 18)}
    known = families()
    assert max(doublings for family in UNLIKE[:3] for doublings, _ in pairs(known[family])) == FEW_DOUBLINGS


def scaled(case: Case, folder: Path = examples.BASELINES, gpu: str = "h100") -> ExpectedRange:
    found = extrapolated(case, gpu, folder)
    assert found.range is not None, found.why_none
    return found.range


def why_not(case: Case, folder: Path = examples.BASELINES, gpu: str = "h100") -> str:
    found = extrapolated(case, gpu, folder)
    assert found.range is None
    return found.why_none


def without(folder: Path, *gpus: int, recipe: str = "llama3") -> Path:
    """The published tables without the scales of 70b in fp8 with these numbers of GPUs."""
    folder.mkdir(exist_ok=True)
    gone = [f"size: 70b, dtype: fp8, gpus: {number}," for number in gpus]
    for name in (f"{recipe}.yaml", ACCELERATORS):
        lines = (examples.BASELINES / name).read_text().splitlines(keepends=True)
        (folder / name).write_text("".join(line for line in lines if not any(text in line for text in gone)))
    return folder


CASE = examples.case()
"""70b-fp8-512gpus of release 25.04, for which 1627.0 tokens/s/GPU are published, and 1638.4 at 256 GPUs."""


def test_it_follows_from_the_nearest_scale_and_grows_with_the_distance(tmp_path: Path) -> None:
    found = scaled(CASE, without(tmp_path / "near", 512))
    assert found.scales == (256, 1024, 128, 2048, 64)
    assert found.middle == pytest.approx(1638.4 * EFFICIENCY)
    assert (found.low, found.high) == pytest.approx(
        (found.middle * math.exp(-SLOWER), found.middle * math.exp(FASTER))
    )
    assert found.low < 1627.0 < found.high
    assert found.text == (
        "90 %: 1,599 to 1,646 tokens/s/GPU, from 5 published scales (the nearest: 256, 1,024 GPUs)"
    )
    far = scaled(CASE, without(tmp_path / "far", 128, 256, 512, 1024, 2048))
    assert far.scales == (64,)
    assert far.middle == pytest.approx(1661.7 * EFFICIENCY**3, rel=1e-4)
    assert far.high / far.low == pytest.approx((found.high / found.low) ** math.sqrt(3))
    # From a larger scale to a smaller one it is the other way round: the smaller one is more likely faster.
    larger = scaled(CASE, without(tmp_path / "larger", 64, 128, 256, 512))
    assert larger.scales == (1024, 2048)
    assert larger.middle / larger.low == pytest.approx(math.exp(FASTER))
    assert larger.high / larger.middle == pytest.approx(math.exp(SLOWER))


def test_it_is_no_narrower_than_that_of_a_doubling() -> None:
    found = scaled(replace(CASE, gpus=544, gbs=1088))
    assert found.scales[0] == 512
    assert found.high / found.low == pytest.approx(math.exp(SLOWER + FASTER))


def test_that_of_a_model_with_experts_or_mamba_layers_is_wider_and_goes_less_far() -> None:
    """`gpt_oss` and `nemotron3` have experts; `nemotron_h` has Mamba layers alone."""
    for case_id, recipe, gpu in (
        ("120b-bf16-128gpus", "gpt_oss", "b300"),
        ("120b-mxfp8-128gpus", "nemotron3", "b200"),
    ):
        case = examples.case(case_id, recipe, release="26.06.01", gpu=gpu)
        found = scaled(case, gpu=gpu)
        assert found.high / found.low == pytest.approx(math.exp(WIDER * (SLOWER + FASTER)))
        far = replace(case, gpus=8 * 64, gbs=case.gbs * 4)
        reason = "the nearest published scale, 64 GPUs, is 3 doublings away, more than 2"
        assert why_not(far, gpu=gpu) == reason
    dense = examples.case("70b-fp8_cs-512gpus", release="26.06.01")
    found = scaled(dense)
    assert found.high / found.low == pytest.approx(math.exp((SLOWER + FASTER) * math.sqrt(3)))


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"gbs": 512}, "64, 128, 256, 1024, 2048 GPUs run a batch of 2 sequences per GPU, the case 1"),
        ({"tp": 8}, "64, 128, 256, 1024, 2048 GPUs run tp 4, the case 8"),
        ({"pp": 4, "cp": 2}, "64, 128, 256, 1024, 2048 GPUs run pp 8, the case 4"),
        ({"vp": 10}, "64, 128, 256, 1024, 2048 GPUs run vp 5, the case 10"),
        ({"mbs": 2}, "64, 128, 256, 1024, 2048 GPUs run mbs 1, the case 2"),
        ({"fsdp": 2}, "64, 128, 256, 1024, 2048 GPUs run fsdp 1, the case 2"),
        ({"ep": 2}, "64, 128, 256, 1024, 2048 GPUs run ep 1, the case 2"),
        ({"sequence_length": 4096}, "64, 128, 256, 1024, 2048 GPUs run sequence_length 8192, the case 4096"),
        (
            {"model": CASE.model.model_copy(update={"layers": 40})},
            "64, 128, 256, 1024, 2048 GPUs run layers 80, the case 40",
        ),
        ({"gpus": 4096, "gbs": 8192}, "no published series has more than 2,304 GPUs"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, dict) else "",
)  # fmt: skip
def test_a_scale_with_another_configuration_says_nothing(
    changed: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    assert why_not(replace(CASE, **changed), without(tmp_path / "tables", 512)) == reason


@pytest.mark.parametrize(
    ("changed", "gpu"),
    [({"dtype": "mxfp8"}, "h100"), ({"size": "8b"}, "gb200"), ({}, "b200"), ({"release": "23.01"}, "h100")],
)
def test_another_dtype_model_type_of_gpu_or_release_is_no_scale_of_the_case(
    changed: dict[str, Any], gpu: str
) -> None:
    assert why_not(replace(CASE, **changed), gpu=gpu) == ""


def test_a_scale_whose_statistic_the_case_does_not_have_says_nothing(tmp_path: Path) -> None:
    tables = without(tmp_path / "tables", 512)
    path = tables / "llama3.yaml"
    path.write_text(path.read_text().replace("statistic: last", "statistic: mean:35-60"))
    assert why_not(CASE, tables) == (
        "64, 128, 256, 1024, 2048 GPUs were measured otherwise: statistic mean:35-60 needs step 60, but the recipe ends at step 49"
    )


def test_one_scale_that_is_far_away_is_too_little(tmp_path: Path) -> None:
    tables = without(tmp_path / "tables", 128, 256, 512, 1024, 2048)
    far = replace(CASE, gpus=2048, gbs=4096)
    assert why_not(far, tables) == "the nearest published scale, 64 GPUs, is 5 doublings away, more than 4"


def test_a_scale_within_nvlink_says_nothing_of_one_beyond_it_and_no_series_is_within() -> None:
    racks = examples.case("70b-nvfp4-128gpus", release="26.06.01", gpu="gb300")
    assert why_not(racks, gpu="gb300") == "64 GPUs are all connected by NVLink, those of the case are not"
    nodes = examples.case("30b-mxfp8-16gpus", "nemotron3", gpu="b200")
    assert why_not(nodes, gpu="b200") == "8 GPUs are all connected by NVLink, those of the case are not"
    rack = examples.case("30b-mxfp8-16gpus", "nemotron3", gpu="gb300")
    node = examples.case("70b-3l-bf16-8gpus", "proxy", gpu="h200")
    for case, gpu in ((rack, "gb300"), (node, "h200")):
        assert (
            why_not(case, gpu=gpu) == "NVLink connects all of its GPUs, and no published series is so small"
        )


def test_without_a_data_sheet_of_the_gpu_there_is_none(tmp_path: Path) -> None:
    tables = without(tmp_path / "tables", 512)
    path = tables / "llama3.yaml"
    path.write_text(path.read_text().replace("gpu: h100", "gpu: h123"))
    assert why_not(CASE, tables, "h123") == "how many GPUs NVLink connects is not known of h123"


def test_no_cell_of_a_table_is_one_that_upstream_calls_a_regression() -> None:
    """Such figures stand in the notes of their tables alone, so that none is a scale of another case."""
    notes = [
        (path.name, table.release, cell.size)
        for path in examples.BASELINES.glob("*.yaml")
        if path.name not in NO_TABLES
        for table in load_baselines(path).tables
        for cell in table.cells
        if "regression" in (cell.note or "").lower()
    ]
    assert notes == []
    case = examples.case("gpt-oss-120b-mxfp8-64gpus", "megatron_bridge", release="26.06.01", gpu="gb300")
    assert why_not(case, gpu="gb300") == ""


def test_another_release_says_too_little_of_a_case() -> None:
    """How far the same configuration of Megatron-Bridge moved from each release to the next, as the docs say."""
    paces: dict[str, dict[str, float]] = defaultdict(dict)
    releases: set[str] = set()
    for table in load_baselines(examples.BASELINES / "megatron_bridge.yaml").tables:
        releases.add(table.release)
        for cell in table.cells:
            key = f"{table.gpu} {cell.size} {cell.dtype} {cell.gpus} {cell.configuration}"
            paces[key][table.release] = cell.tflops_per_gpu or 0.0
    moved = sorted(
        abs(math.log(of[after] / of[before]))
        for of in paces.values()
        for before, after in pairwise(sorted(releases))
        if before in of and after in of
    )
    assert len(moved) == 157
    assert median(moved) == pytest.approx(0.015, abs=0.0005)
    assert quantiles(moved, n=10)[-1] > 0.06
    assert math.exp(moved[-1]) == pytest.approx(1.76, abs=0.005)


def test_so_many_cases_that_nobody_published_a_number_for_have_a_range() -> None:
    counts: Counter[str] = Counter()
    for name in ("deepseek_v3", "gpt_oss", "kimi_k2", "llama3", "nemotron3", "nemotron_h", "qwen3"):
        for gpu in ("gb300", "gb200", "b300", "b200", "h100"):
            recipe = examples.recipe_named(name, "26.06.01", gpu)
            for case in recipe.cases:
                if not lacking(examples.BASELINES, case, gpu) or case.variant:
                    continue
                found = extrapolated(case, gpu, examples.BASELINES)
                counts["reason"] += bool(found.why_none)
                counts["range"] += found.range is not None
                counts["nothing"] += found == Scaled()
    assert counts == {"range": 21, "reason": 44, "nothing": 240}
