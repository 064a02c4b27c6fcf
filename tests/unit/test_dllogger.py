"""DLLogger: JSON records in a file, name and value pairs in a pod's output."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from plugins.logs import Step
from plugins.metrics import Statistic
from plugins.validity import problems
from tests.unit import examples
from tests.unit.examples import parse

# As published, there spread over several lines.
PUBLISHED = (
    'DLLL {"timestamp": "1728595441.952723", "datetime": "2024-10-10 21:24:01.952723", '
    '"elapsedtime": "2087.21432", "type": "LOG", "step": 36, "data": {"reduced_train_loss": 7.976484775543213, '
    '"lr": 0.000008490565960528329, "global_step": 36, "consumed_samples": 37888, '
    '"train_backward_timing in s": 0.00005416870044427924, "train_step_timing in s": 45.81364059448242, "epoch": 0}}'
)
STEP_36 = Step(index=36, seconds=45.81364059448242, consumed_samples=37888, loss=7.976484775543213)
CONFIGURATION = {
    "cfg/micro_batch_size": 1,
    "cfg/global_batch_size": 1024,
    "cfg/encoder_seq_length": 8192,
    "cfg/fp8": True,
    "cfg/precision": "bf16-mixed",
}


def data(index: int, seconds: float = 10.07, **changed: Any) -> dict[str, Any]:
    return {
        "reduced_train_loss": 7.97,
        "lr": 0.000008490565960528329,
        "global_step": float(index),
        "consumed_samples": (index + 1) * 1024.0,
        "train_backward_timing in s": 0.00005416870044427924,
        "grad_norm": 1.5,
        "train_step_timing in s": seconds,
        "epoch": 0,
    } | changed


def in_file(step: object, values: dict[str, Any]) -> str:
    record = {
        "timestamp": "1.5",
        "datetime": "x",
        "elapsedtime": "2.5",
        "type": "LOG",
        "step": step,
        "data": values,
    }
    return f"DLLL {json.dumps(record)}"


def in_output(step: object, values: dict[str, Any]) -> str:
    metrics = " ".join(f"{name} : {value} " for name, value in values.items())
    return f"DLL 2024-10-10 21:24:01.952723 - {step} {metrics}"


BOTH = pytest.mark.parametrize("form", [in_file, in_output])


def whole(form: Any = in_file) -> str:
    lines = [form("PARAMETER", CONFIGURATION), *(form(i, data(i)) for i in range(50))]
    metadata = 'DLLL {"timestamp": "1.5", "type": "METADATA", "metric": "x", "metadata": {"unit": "s"}}'
    return "".join(f"{line}\n" for line in [metadata, *lines])


def only(text: str) -> Step:
    (step,) = parse(text, "dllogger").steps
    return step


def test_the_published_record() -> None:
    assert only(PUBLISHED) == STEP_36


def test_the_same_record_in_a_pods_output() -> None:
    assert only(in_output(36, json.loads(PUBLISHED[5:])["data"]) + "\n") == STEP_36


@BOTH
def test_a_whole_log_is_valid(form: Any) -> None:
    log = parse(whole(form), "dllogger")
    assert [step.index for step in log.steps] == list(range(50))
    assert {(step.seconds, step.gbs, step.tokens, step.grad_norm) for step in log.steps} == {
        (10.07, 1024, 1024 * 8192, 1.5)
    }
    assert problems(examples.case(), log, Statistic()) == []


@BOTH
def test_another_sequence_length_is_another_run(form: Any) -> None:
    log = parse(whole(form).replace("8192", "4096"), "dllogger")
    assert "4194304 tokens" in problems(examples.case(), log, Statistic())[0]


@BOTH
def test_validation_is_no_step(form: Any) -> None:
    assert parse(form(20, {"validation_loss": 3.5, "global_step": 20}), "dllogger").steps == ()


@BOTH
def test_a_record_that_contradicts_itself_is_no_step(form: Any) -> None:
    assert parse(form(20, data(21)), "dllogger").steps == ()


@BOTH
@pytest.mark.parametrize("key", ["reduced_train_loss", "grad_norm", "train_step_timing in s"])
def test_what_is_no_number_is_read_as_it_is(form: Any, key: str) -> None:
    text = form(20, data(20, **{key: math.nan})).replace("NaN", "nan" if form is in_output else "NaN")
    step = only(text)
    found = [step.loss, step.grad_norm, step.seconds]
    assert [value is not None and math.isnan(value) for value in found].count(True) == 1


@BOTH
def test_a_missing_gradient_norm(form: Any) -> None:
    values = data(20)
    del values["grad_norm"]
    assert only(form(20, values)).grad_norm is None


@BOTH
def test_two_records_on_one_line_behind_other_output(form: Any) -> None:
    log = parse(f"pod-0 | {form(3, data(3))} | {form(4, data(4))}\n", "dllogger")
    assert [step.index for step in log.steps] == [3, 4]


@BOTH
def test_a_restart(form: Any) -> None:
    first = "".join(f"{form(i, data(i))}\n" for i in range(20))
    log = parse(first + whole(form), "dllogger")
    assert log.restarted_after == (19,)
    assert len(log.steps) == 50


@BOTH
def test_a_record_cut_short_never_states_another_number(form: Any) -> None:
    text = form(36, json.loads(PUBLISHED[5:])["data"])
    for cut in range(len(text)):
        for mutated in (
            text[:cut],
            f"{text[:cut]}\n[rank3] careful\n{text[cut:]}",
            f"{text[:cut]}[rank3] oh{text[cut:]}",
        ):
            for step in parse(mutated, "dllogger").steps:
                assert step.index == 36, mutated
                assert step.seconds in (STEP_36.seconds, None), mutated
                assert step.consumed_samples in (37888, None), mutated
                assert step.loss in (STEP_36.loss, None), mutated


@pytest.mark.parametrize(
    "text",
    [
        "DLLL {}",
        "DLLL {" + '"a":[' * 12000,
        'DLLL {"type": "LOG", "data": {}}',
        'DLLL {"type": "LOG", "step": [], "data": {"train_step_timing in s": 1.5}}',
        'DLLL {"type": "LOG", "step": true, "data": {"train_step_timing in s": 1.5}}',
        'DLLL {"type": "LOG", "step": -1, "data": {"train_step_timing in s": 1.5}}',
        'DLLL {"type": "LOG", "step": 3, "data": "train_step_timing in s"}',
        'DLLL {"type": "LOG", "step": ' + "9" * 5000 + ', "data": {"train_step_timing in s": 1.5}}',
        'DLLL {"type": "METADATA", "step": 3, "data": {"train_step_timing in s": 1.5}}',
        "DLL 2024-10-10 21:24:01.952723 - x train_step_timing in s : 3.0 ",
    ],
)  # fmt: skip
def test_records_that_are_no_steps(text: str) -> None:
    assert parse(text + "\n", "dllogger").steps == ()


@pytest.mark.parametrize("value", ["9" * 400, '"10.07"', "null", "true", "[10.07]"])
def test_a_time_that_is_no_number_is_no_time(value: str) -> None:
    assert only(PUBLISHED.replace("45.81364059448242", value)).seconds is None
