"""Figures beside a judgement: those of others, and Nemotron's corrected MFU; and a case without a baseline, measured as its neighbours are."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from plugins.base.errors import ConfigError
from plugins.baselines.baseline_file import load_baselines
from plugins.baselines.expected import counting, usual_statistic
from plugins.baselines.store import find, references
from plugins.judging.case_record import record_of
from plugins.judging.judgement import Judgement
from plugins.logs import Log, Step
from plugins.record.verdict import Kind
from plugins.reports.terminal import print_table
from tests.printed import nemo2
from tests.unit import examples
from tests.unit.baselines.test_store import FILE
from tests.unit.examples import record_json

DGX = (
    '{name: "NVIDIA NeMo 24.07 (DGX H100)", size: 70b, dtype: fp8, gpus: 64, tokens_per_second_per_gpu: 1549, '
    "source: https://example.org/summary.md, note: GBS 128}"
)
WITH = FILE.replace("    cells:\n", f"    references:\n      - {DGX}\n    cells:\n")
BESIDE = (
    "beside    1,627 tokens/s/GPU here; 1,549 tokens/s/GPU: NVIDIA NeMo 24.07 (DGX H100) on 64 GPUs (105.0 %), for "
    "comparison, not judged"
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.copy(examples.BASELINES / "accelerators.yaml", tmp_path)
    return write(tmp_path, WITH)


def write(folder: Path, text: str) -> Path:
    load_baselines.cache_clear()
    (folder / "llama3.yaml").write_text(text)
    return folder


def judged(folder: Path, case_id: str = examples.CASE, raw: Sequence[float] = (10.07,) * 50) -> Judgement:
    case = examples.case(case_id)
    lines = [nemo2.nemo2_line(i, seconds, gbs=case.gbs) for i, seconds in enumerate(raw)]
    return examples.judged(
        case,
        examples.outcome(folder=folder / "case"),
        examples.parse("\n".join(lines) + "\n"),
        find(folder, examples.llama3(), case, "h100"),
        baselines=folder,
    )


def test_a_figure_of_others_stands_beside_the_judgement(folder: Path) -> None:
    found = judged(folder)
    assert found.verdict.kind is Kind.PASSED
    assert BESIDE in found.details
    record = record_json(found)
    assert record["references"] == [
        {
            "name": "NVIDIA NeMo 24.07 (DGX H100)",
            "gpus": 64,
            "tokens_per_second_per_gpu": 1549,
            "source": "https://example.org/summary.md",
            "note": "GBS 128",
            "text": BESIDE,
        }
    ]


def test_it_is_never_judged(folder: Path) -> None:
    for rate in ("1", "999999"):
        write(folder, WITH.replace("1549", rate))
        assert judged(folder).verdict.kind is Kind.PASSED


def test_it_stands_beside_another_scale_that_has_no_baseline(folder: Path) -> None:
    found = judged(folder, "70b-fp8-256gpus")
    assert found.verdict.kind is Kind.NO_BASELINE
    assert [line.split()[0] for line in found.details] == [
        "measured",
        "steady",
        "MFU",
        "beside",
        "identity",
        "job",
        "log",
    ]
    assert "MFU" in found.details[0]
    shown = io.StringIO()
    print_table([record_of(found)], shown, 200, colour=False)
    assert "llama3/70b-fp8-256gpus: beside 1,627 tokens/s/GPU here; 1,549" in shown.getvalue()


def test_it_does_not_stand_beside_another_size_dtype_gpu_or_release(folder: Path) -> None:
    assert len(references(folder, examples.case(), "h100")) == 1
    for case_id, gpu in ((examples.CASE, "b200"), ("70b-bf16-512gpus", "h100"), ("405b-fp8-512gpus", "h100")):
        assert references(folder, examples.case(case_id), gpu) == ()
    assert references(folder, replace(examples.case(), release="25.05"), "h100") == ()
    assert record_json(judged(folder, "70b-bf16-512gpus"))["references"] == []


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("size: 70b, dtype: fp8, gpus: 64", "size: 71b, dtype: fp8, gpus: 64", "references: no cell has the size 71b"),
        ("1549", "0", "tokens_per_second_per_gpu: must be greater than 0"),
        ("https://example.org/summary.md", "TODO", "source: a placeholder"),
        ('name: "NVIDIA NeMo 24.07 (DGX H100)", ', "", "name: missing"),
        ("note: GBS 128", "nte: GBS 128", "did you mean 'note'?"),
    ],
)  # fmt: skip
def test_a_reference_that_says_nothing_is_refused(folder: Path, old: str, new: str, said: str) -> None:
    write(folder, WITH.replace(old, new))
    with pytest.raises(ConfigError) as caught:
        references(folder, examples.case(), "h100")
    assert said in str(caught.value)


# A case without a baseline is measured as its release's tables are.


def test_without_a_baseline_the_statistic_is_that_of_its_release(folder: Path) -> None:
    write(folder, FILE.replace("statistic: last", "statistic: mean:15-40"))
    found = judged(folder, "70b-fp8-256gpus", raw=[10.07] * 41 + [11.0] * 9)
    assert str(found.statistic) == "mean:15-40"
    assert found.measurement is not None
    assert found.measurement.step_time == pytest.approx(10.07)
    assert [line.split()[0] for line in found.details[:3]] == ["measured", "last", "steady"]
    assert "measured 10.07 s a step" in found.verdict.headline


@pytest.mark.parametrize(
    "text",
    [
        FILE + "  - " + FILE.partition("  - ")[2].replace("last", "mean:15-40").replace("512", "1024"),
        FILE.replace("25.04", "25.02").replace("statistic: last", "statistic: mean:15-40"),
        FILE.replace("statistic: last", "statistic: mean:15-60").replace("512", "1024"),
        "",
    ],
    ids=["two", "another release", "beyond the run", "none"],
)
def test_where_a_release_does_not_tell_it_is_the_last_step(folder: Path, text: str) -> None:
    write(folder, text)
    if not text:
        (folder / "llama3.yaml").unlink()
    assert str(usual_statistic(folder, examples.case())) == "last"


def test_without_a_baseline_mfu_is_counted_as_its_neighbours_is(folder: Path) -> None:
    own = FILE.replace("fp8: 1979", "fp8: 1978").replace("full-attention", "causal-attention")
    write(folder, own)
    case = examples.case("70b-fp8-256gpus")
    for gpu, peak in (("h100", 1978), ("b200", 4500)):
        basis = counting(case, None, gpu, folder).basis()
        assert basis is not None
        assert (str(basis.definition), basis.peak_tflops) == ("causal-attention", peak)


def test_without_a_baseline_a_definition_that_is_known_to_be_wrong_is_not_used(folder: Path) -> None:
    right = "    corrected_flops: {70b: {definition: full-attention}}\n    cells:\n"
    write(folder, FILE.replace("full-attention", "nemotron-24.11").replace("    cells:\n", right))
    basis = counting(examples.case("70b-fp8-256gpus"), None, "h100", folder).basis()
    assert basis is not None
    assert str(basis.definition) == "full-attention"


NEMOTRON = "340b-bf16-128gpus"


def corrected_run(step_time: float = 4.61, *, corrected: bool = True) -> Judgement:
    case, baseline = examples.case(NEMOTRON, "nemotron4"), examples.baseline(NEMOTRON, "nemotron4")
    if not corrected:
        baseline = replace(baseline, table=baseline.table.model_copy(update={"corrected_flops": {}}))
    steps = tuple(
        Step(i, step_time, 0.005, consumed_samples=(i + 1) * case.gbs, loss=7.31 - i / 100) for i in range(50)
    )
    return examples.judged(
        case,
        examples.outcome(),
        Log(steps=steps, planned=50),
        baseline,
    )


def test_it_is_recorded_with_its_definition() -> None:
    found = json.loads(json.dumps(record_json(corrected_run())))
    assert found["mfu"] == pytest.approx(55.38, abs=0.005)
    assert found["corrected_mfu"] == pytest.approx(47.27, abs=0.005)
    assert found["mfu_definition"]["flops"] == "nemotron-24.11 (3 digits)"
    assert found["mfu_definition"]["flops_per_sequence"] == 1.01e16
    assert found["mfu_definition"]["corrected_flops"] == "full-attention"
    assert found["mfu_definition"]["corrected_flops_per_sequence"] == pytest.approx(8.621236e15, rel=1e-6)
    assert found["expected"]["mfu"] == pytest.approx(55.38, abs=0.005)


def test_it_is_shown_as_what_it_is() -> None:
    (line,) = [line for line in corrected_run(4.7).details if line.startswith("corrected")]
    assert line == (
        "corrected MFU 46.37 %, expected 47.27 %, by full-attention FLOPs: the published definition is +17.2 % off; "
        "shown for comparison, not judged"
    )


@pytest.mark.parametrize(
    ("step_time", "kind"), [(4.61, Kind.PASSED), (4.9, Kind.TOO_SLOW), (4.1, Kind.TOO_FAST)]
)
def test_it_changes_no_verdict(step_time: float, kind: Kind) -> None:
    with_it, without = corrected_run(step_time), corrected_run(step_time, corrected=False)
    assert with_it.verdict == without.verdict
    assert with_it.verdict.kind is kind
    assert not [line for line in without.details if line.startswith("corrected")]


def test_a_table_without_a_correction_records_none() -> None:
    found = record_json(corrected_run(corrected=False))
    assert (found["corrected_mfu"], found["mfu_definition"]["corrected_flops"]) == (None, None)
