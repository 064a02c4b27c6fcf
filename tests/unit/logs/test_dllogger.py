"""DLLogger: JSON records in a file, name and value pairs in a pod's output."""

from __future__ import annotations

import json
from typing import Any

import pytest

from plugins.judging.shelving import Offer, offer_of
from plugins.logs import Step
from plugins.record.baseline import Statistic
from plugins.record.verdict import Kind
from tests.printed.dllogger import CONFIGURATION, STATED, data, in_file, in_output
from tests.unit import examples
from tests.unit.examples import parse, problems
from tests.unit.own_tables import FIRST

# As published, there spread over several lines.
PUBLISHED = (
    'DLLL {"timestamp": "1728595441.952723", "datetime": "2024-10-10 21:24:01.952723", '
    '"elapsedtime": "2087.21432", "type": "LOG", "step": 36, "data": {"reduced_train_loss": 7.976484775543213, '
    '"lr": 0.000008490565960528329, "global_step": 36, "consumed_samples": 37888, '
    '"train_backward_timing in s": 0.00005416870044427924, "train_step_timing in s": 45.81364059448242, "epoch": 0}}'
)
STEP_36 = Step(
    index=36,
    seconds=45.81364059448242,
    consumed_samples=37888,
    loss=7.976484775543213,
    stamp=1728595441.952723,
)


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


@BOTH
def test_a_whole_log_is_valid(form: Any) -> None:
    log = parse(whole(form), "dllogger")
    assert [step.index for step in log.steps] == list(range(50))
    assert {(step.seconds, step.gbs, step.tokens, step.grad_norm) for step in log.steps} == {
        (10.07, 1024, 1024 * 8192, 1.5)
    }
    assert problems(examples.case(), log, Statistic()) == []


def facts(text: str) -> dict[str, int | str]:
    return {fact.name: fact.value for fact in parse(text, "dllogger").facts}


def run(form: Any, **changed: Any) -> str:
    """The log of a whole run that states `STATED` but for the changed keys (`...`: not stated)."""
    stated = STATED | {f"cfg/{key}": value for key, value in changed.items()}
    values = {key: value for key, value in stated.items() if value is not ...}
    return "".join(
        f"{line}\n" for line in [form("PARAMETER", values), *(form(i, data(i)) for i in range(50))]
    )


def configured(form: Any, case_id: str = examples.CASE, **changed: Any) -> list[str]:
    """What is wrong with such a run."""
    return problems(examples.case(case_id), parse(run(form, **changed), "dllogger"), Statistic())


@BOTH
def test_the_run_states_its_configuration(form: Any) -> None:
    assert facts(form("PARAMETER", STATED) + "\n") == {
        "tp": 4, "pp": 8, "vp": 5, "cp": 1, "mbs": 1, "sequence_length": 8192, "layers": 80, "hidden": 8192,
        "ffn": 28672, "heads": 64, "query_groups": 8, "fp8": True, "precision": "bf16",
    }  # fmt: skip
    assert set(facts(form("PARAMETER", STATED) + "\n")) < set(examples.case().facts())
    assert configured(form) == []


@BOTH
@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("tensor_model_parallel_size", 8, "cfg/tensor_model_parallel_size is 8\", this case's tp is 4"),
        ("pipeline_model_parallel_size", 4, "cfg/pipeline_model_parallel_size is 4\", this case's pp is 8"),
        ("virtual_pipeline_model_parallel_size", None, "parallel_size is None\", this case's vp is 5"),
        ("context_parallel_size", 2, "cfg/context_parallel_size is 2\", this case's cp is 1"),
        ("micro_batch_size", 2, "cfg/micro_batch_size is 2\", this case's mbs is 1"),
        ("num_layers", 8, "cfg/num_layers is 8\", this case's layers is 80"),
        ("hidden_size", 4096, "cfg/hidden_size is 4096\", this case's hidden is 8192"),
        ("ffn_hidden_size", 14336, "cfg/ffn_hidden_size is 14336\", this case's ffn is 28672"),
        ("num_query_groups", 64, "cfg/num_query_groups is 64\", this case's query_groups is 8"),
        ("fp8", False, 'cfg/fp8 is False", this case is fp8'),
        ("precision", "32", 'cfg/precision is 32", this case is fp8'),
        ("precision", "16-mixed", 'cfg/precision is 16-mixed", this case is fp8'),
    ],
)
def test_another_configuration_is_another_run(form: Any, key: str, value: Any, said: str) -> None:
    (found,) = configured(form, **{key: value})
    assert found.startswith('the log says "')
    assert found.endswith(said)


BF16 = "70b-bf16-512gpus"


@BOTH
@pytest.mark.parametrize("fp8", [True, "hybrid", "e4m3"])
def test_an_fp8_run_is_no_bf16_case(form: Any, fp8: object) -> None:
    case = examples.case(BF16)
    layout = {"pipeline_model_parallel_size": case.pp, "virtual_pipeline_model_parallel_size": case.vp,
              "context_parallel_size": case.cp, "tensor_model_parallel_size": case.tp}  # fmt: skip
    assert configured(form, BF16, fp8=fp8, **layout) == [
        f'the log says "cfg/fp8 is {fp8}", this case is bf16'
    ]
    assert configured(form, BF16, fp8=False, **layout) == []


# NeMo's default: without the key FP8 is off. A record in a pod's output may have lost it to other output.
UNKNOWN = "the log does not state {}: its record (PARAMETER) is garbled"


@pytest.mark.parametrize(
    ("form", "changed", "said"),
    [
        (in_file, {"fp8": ...}, 'the log says "cfg/fp8 is None", this case is fp8'),
        (in_output, {"fp8": ...}, UNKNOWN.format("whether it computed in FP8")),
        (in_file, {"fp8": "True[rank3]"}, UNKNOWN.format("whether it computed in FP8")),
        (in_file, {"encoder_seq_length": ...}, UNKNOWN.format("the sequence length")),
        (in_output, {"encoder_seq_length": ...}, UNKNOWN.format("the sequence length")),
        (in_output, {"nsys_profile/enabled": True}, "a profiler was on: cfg/nsys_profile/enabled is True"),
        (in_file, {"num_query_groups": None, "ffn_hidden_size": "4x", "num_layers": ..., "precision": "x"}, ""),
    ],
)  # fmt: skip
def test_what_a_run_does_not_state_is_no_evidence_where_it_matters(
    form: Any, changed: dict[str, Any], said: str
) -> None:
    assert configured(form, **changed) == ([said] if said else [])


@BOTH
def test_a_run_that_states_nothing_of_itself_is_no_evidence(form: Any) -> None:
    text = "".join(f"{form(i, data(i))}\n" for i in range(50))
    for before in ("", form("PARAMETER", {"cfg/seed": 1}) + "\n"):
        assert problems(examples.case(), parse(before + text, "dllogger"), Statistic()) == [
            "the log does not state its run's configuration: its record (PARAMETER) is missing"
        ]


@BOTH
@pytest.mark.parametrize(
    ("lost", "missing"),
    [
        ({"num_layers": "8[rank3]0"}, "the number of layers"),
        ({"num_layers": ..., "precision": "x"}, "the number of layers and the precision"),
        ({"hidden_size": ..., "micro_batch_size": ...}, ""),
    ],
)
def test_a_run_that_leaves_something_open_says_so_and_is_not_recorded(
    form: Any, lost: dict[str, Any], missing: str
) -> None:
    log = parse(run(form, **lost), "dllogger")
    judgement = examples.judged(examples.case(), examples.outcome(gpu="b200"), log, None)
    said = f"the log does not state {missing} (its record of the configuration is garbled); judged without"
    assert judgement.verdict.kind is Kind.NO_BASELINE
    assert [remark for remark in judgement.verdict.remarks if "configuration" in remark] == (
        [said] if missing else []
    )
    offer = offer_of(judgement, FIRST)
    assert offer == said if missing else isinstance(offer, Offer)


@BOTH
def test_validation_and_a_record_that_contradicts_itself_are_no_steps(form: Any) -> None:
    for values in ({"validation_loss": 3.5, "global_step": 20}, data(21)):
        assert parse(form(20, values), "dllogger").steps == ()


# The first died after `reached`; the second says that it begins, even where it goes on behind that.
@BOTH
@pytest.mark.parametrize("reached", [0, 7])
@pytest.mark.parametrize("goes_on", [False, True])
def test_an_attempt_begins_with_its_configuration(form: Any, reached: int, goes_on: bool) -> None:
    lines = whole(form).splitlines()
    steps = lines[2 + reached + 1 :] if goes_on else lines[2:]
    log = parse("\n".join([*lines[: 2 + reached + 1], lines[1], *steps]) + "\n", "dllogger")
    assert log.restarted_after == (reached,)
    assert (problems(examples.case(), log, Statistic()) == []) is not goes_on


@BOTH
def test_a_record_cut_short_never_states_another_value(form: Any) -> None:
    stated, step = form("PARAMETER", STATED), form(36, json.loads(PUBLISHED[5:])["data"])
    whole = facts(f"{stated}\n").items()
    for text in (stated, step):
        for cut in range(len(text)):
            for between in ("\n[rank3] careful\n", "[rank3] oh", None):
                log = parse(
                    text[:cut] if between is None else f"{text[:cut]}{between}{text[cut:]}", "dllogger"
                )
                assert {(fact.name, fact.value) for fact in log.facts} <= whole, (cut, between)
                for found in log.steps:
                    assert found.index == 36, (cut, between)
                    assert found.seconds in (STEP_36.seconds, None), (cut, between)
                    assert found.consumed_samples in (37888, None), (cut, between)
                    assert found.loss in (STEP_36.loss, None), (cut, between)
