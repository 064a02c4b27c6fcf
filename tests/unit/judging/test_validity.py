"""The gates before speed: one by one, a log that is no evidence for its case is told so in words."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from plugins.baselines.baseline_file import accelerators
from plugins.judging.evidence import SiteFacts
from plugins.judging.judgement import Judgement
from plugins.judging.validity import Started, complete
from plugins.judging.validity.steps import MAX_GARBLED
from plugins.logs import Log, Span, Step, nodes
from plugins.record.baseline import Statistic
from plugins.record.verdict import Kind
from tests.printed.nccl import Trace
from tests.printed.nemo2 import nemo2_line
from tests.unit import examples
from tests.unit.examples import nemo2_text, parse, problems

LAST = Statistic()
WINDOW = Statistic.parse("mean:35-44")
LINES = [nemo2_line(i) for i in range(50)]


def found(lines: list[str], statistic: Statistic = LAST) -> list[str]:
    return problems(examples.case(), parse("\n".join(lines) + "\n"), statistic)


def with_line(index: int, seconds: float | str = 10.07, **changed: Any) -> list[str]:
    return [*LINES[:index], nemo2_line(index, seconds, **changed), *LINES[index + 1 :]]


def without(*indices: int) -> list[str]:
    return [line for i, line in enumerate(LINES) if i not in indices]


def garbled(*indices: int) -> list[str]:
    return [
        line.replace("in s: 10", "in s: 1[rank3] oh 0") if i in indices else line
        for i, line in enumerate(LINES)
    ]


NEEDED = "step {}: the log line is garbled by other output, and the statistic {} needs it"
NO_TIME = "step 30: the step time is not a positive number"


@pytest.mark.promise("no wrong pass: the global batch size")
@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([nemo2_line(i, gbs=512) for i in range(50)], ["global batch size 512 at step 0, this case runs 1024", "and 49 more such steps"]),
        (with_line(30, gbs=512), ["global batch size 512 at step 30, this case runs 1024"]),
        (with_line(30, consumed=31 * 1024 + 1), ["31745 consumed samples after step 30, 31 x GBS 1024 is 31744"]),
        # Of a resumed run.
        (
            [nemo2_line(i, consumed=(i + 51) * 1024) for i in range(50)],
            ["52224 consumed samples after step 0, 1 x GBS 1024 is 1024", "and 49 more such steps"],
        ),
        (
            [*LINES[:8], LINES[7], *LINES[8:]],
            ["step 7 printed more than once: two processes write this log, or two runs share it"],
        ),
        (with_line(30, "0"), [NO_TIME]),
        (with_line(30, "-10.07"), [NO_TIME]),
        (with_line(30, "nan"), [NO_TIME]),
        (with_line(30, "inf"), [NO_TIME]),
        (
            [nemo2_line(i, last=24) for i in range(25)],
            ["the run announced 25 steps, the recipe runs 50", "the last step seen is 24 of 0 to 49: steps 25 to 49 are missing"],
        ),
        ([nemo2_line(i, last=99) for i in range(50)], ["the run announced 100 steps, the recipe runs 50"]),
        (with_line(30, last=99), ["the run announced two different numbers of steps, the recipe runs 50"]),
        (
            garbled(20, 21, 41),
            ["steps 20, 21 and 41: the log line is garbled by other output; only 2 such steps are allowed"],
        ),
        (garbled(49), [NEEDED.format(49, "last")]),
        (["hello"], ["the log has no training step"]),
        (
            [*without(25), "NCCL INFO Using network Socket"],
            [
                "NCCL fell back to TCP sockets: the fast network was not used: NCCL INFO Using network Socket",
                "step 25 is missing between steps 0 and 49",
            ],
        ),
    ],
)  # fmt: skip
def test_a_log_of_another_run_is_told(lines: list[str], said: list[str]) -> None:
    assert sorted(found(lines)) == sorted(said)


def test_a_statistic_needs_its_own_lines_whole_and_all_steps() -> None:
    assert found(garbled(40), WINDOW) == [NEEDED.format(40, "mean:35-44")]
    assert found(without(3), WINDOW) == ["step 3 is missing between steps 0 and 49"]
    assert "the log goes on to step 50, the recipe ends at 49" in found([*LINES, nemo2_line(50)])
    h100 = accelerators(examples.BASELINES)["h100"]
    timeless = Log(steps=(Step(49, None),), queued=True)
    assert NEEDED.format(49, "last") in problems(examples.case(), timeless, LAST, h100)
    assert problems(examples.case(), Log(), LAST) == ["the log has no training step (it is empty)"]
    assert not complete(examples.case(), Log())


TOKENS = 1024 * 8192


@pytest.mark.parametrize(
    ("tokens", "losses", "said"),
    [
        (TOKENS, (0.001, 0.001), []),
        (TOKENS, (0.0, 0.0), ["every loss is zero"]),
        (TOKENS, None, ["no loss is stated"]),
        (
            TOKENS // 2,
            (7.31, -0.01),
            [
                "4194304 tokens (total_weights) at step 0, GBS 1024 x sequence length 8192 is 8388608",
                "and 49 more such steps",
            ],
        ),
        (None, (7.31, -0.01), ["no line states the global batch size, the consumed samples or the tokens of a step"]),
    ],
)  # fmt: skip
def test_the_tokens_and_losses_of_each_step(
    tokens: int | None, losses: tuple[float, float] | None, said: list[str]
) -> None:
    """`losses`: the first, and by how much each step changes it."""
    steps = tuple(
        Step(i, 10.0, tokens=tokens, loss=None if losses is None else losses[0] + i * losses[1])
        for i in range(50)
    )
    assert problems(examples.case(), Log(steps=steps, size=1), LAST) == said


@pytest.mark.parametrize(("ranks", "valid"), [(512, True), (64, True), (500, False), (1024, False)])
def test_the_number_of_processes(ranks: int, valid: bool) -> None:
    log = replace(parse(nemo2_text()), ranks=ranks)
    said = f"{ranks} processes print each step, which does not divide this case's 512 GPUs"
    assert problems(examples.case(), log, LAST) == ([] if valid else [said])


@pytest.mark.parametrize(
    ("key", "factor", "said"),
    [
        ("tokens_per_gpu", 1.0, ""),
        (
            "tokens_per_gpu",
            0.5,
            "step time x tokens/s is 8188 to 8196 tokens a GPU at step 7, this case runs 16384",
        ),
        ("flops_per_gpu", 1.0, ""),
        ("flops_per_gpu", 1.0012, ""),
        ("flops_per_gpu", 0.997, "this case's model is 7887.8"),
        ("flops_per_gpu", 1.05, "this case's model is 7887.8"),
    ],
)
def test_rates_and_times_agree_with_the_case(key: str, factor: float, said: str) -> None:
    case = examples.case()
    one = {"tokens_per_gpu": 16384.0, "flops_per_gpu": 2 * examples.basis().flops}[key] * factor
    span = Span(one * 0.9995, one * 1.0005)
    log = parse(nemo2_text())
    spoilt = Step(7, 10.07, 0.005, **{key: span})  # type: ignore[arg-type]
    steps = tuple(spoilt if step.index == 7 else step for step in log.steps)
    found = problems(case, replace(log, steps=steps), LAST)
    assert len(found) == bool(said)
    assert said in "".join(found)


@pytest.mark.parametrize(
    ("profiled", "behind", "valid"), [(True, 11, True), (True, 12, False), (False, 12, True)]
)
def test_a_profile_of_other_steps_than_in_the_published_run(profiled: bool, behind: int, valid: bool) -> None:
    log = replace(parse(nemo2_text()), captured_after=behind)
    said = problems(replace(examples.case(), profiled=profiled), log, LAST)
    assert [line for line in said if "behind step 12, and not on steps 9 to 11" in line] == said
    assert (said == []) is valid


@pytest.mark.promise("no wrong pass: every step")
@pytest.mark.parametrize(
    ("missing", "said"),
    [
        ((0,), "step 0 is missing between steps 1 and 49"),
        ((25,), "step 25 is missing between steps 0 and 49"),
        ((3, 25), "steps 3 and 25 are missing between steps 0 and 49"),
        ((27, 28, *range(31, 36)), "steps 27, 28 and 31 to 35 are missing between steps 0 and 49"),
        (tuple(range(1, 25, 2)), "steps 1, 3, 5, 7, 9, 11 and 6 more are missing between steps 0 and 49"),
        ((49,), "the last step seen is 48 of 0 to 49: step 49 is missing"),
        ((48, 49), "the last step seen is 47 of 0 to 49: steps 48 and 49 are missing"),
        (
            tuple(range(18, 50)),
            "the last step seen is 17 of 0 to 49: steps 18 to 49 are missing",
        ),
    ],
)
def test_a_missing_step(missing: tuple[int, ...], said: str) -> None:
    assert found(without(*missing)) == [said]
    assert not complete(examples.case(), parse("\n".join(without(*missing)) + "\n"))


@pytest.mark.promise("no wrong pass: a finite loss")
@pytest.mark.parametrize("loss", ["nan", "inf", "-inf"])
def test_a_loss_that_is_not_finite(loss: str) -> None:
    lines = [nemo2_line(i, loss=loss) if i >= 20 else line for i, line in enumerate(LINES)]
    assert found(lines) == ["the loss is not a finite number from step 20 on (30 steps)"]
    log = parse(nemo2_text())
    steps = tuple(replace(step, grad_norm=float(loss) if step.index == 5 else 1.0) for step in log.steps)
    assert problems(examples.case(), replace(log, steps=steps), LAST) == [
        "the gradient norm is not a finite number from step 5 on (1 steps)"
    ]


def test_few_garbled_lines_are_forgiven() -> None:
    assert MAX_GARBLED == 2
    assert found(garbled(20, 41)) == []
    assert complete(examples.case(), parse("\n".join(garbled(20, 41)) + "\n"))


@pytest.mark.promise("no wrong pass: a profiler")
@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            "Global Checkpoint Save : Rank: 0 : Iteration: 50",
            "a checkpoint was saved or loaded during the run: ",
        ),
        (
            "Global Checkpoint Load : Rank : 0 : Start time : 1",
            "a checkpoint was saved or loaded during the run: ",
        ),
        ("x:1:1 [0] NCCL INFO AllReduce: opCount 2 sendbuff", "NCCL tracing was on: "),
        ("Generating '/tmp/a.nsys-rep'", "a profiler was on: "),
        ("NCCL INFO Using network Socket", "NCCL fell back to TCP sockets: the fast network was not used: "),
    ],
)
def test_what_spoils_a_timed_run(line: str, said: str) -> None:
    assert found([*LINES[:30], line, *LINES[30:]]) == [said + line]


def test_a_recipe_that_was_published_with_a_profiler_may_profile() -> None:
    log = replace(
        parse(nemo2_text()), marks=(("profiler", "Capture range started"), ("nccl trace", "opCount"))
    )
    found = problems(replace(examples.case(), profiled=True), log, LAST)
    assert found == ["NCCL tracing was on: opCount"]
    assert len(problems(examples.case(), log, LAST)) == 2


@pytest.mark.parametrize(
    ("back", "hidden", "said"), [(0, 1.0, False), (3600, 1.0, False), (0, 1.5, True), (3600, 1.5, True)]
)
def test_a_clock_that_is_put_back_hides_no_time_that_passed(back: int, hidden: float, said: bool) -> None:
    """By the stamps each step takes `hidden` times what it prints; in the middle the clock is put back."""
    log = examples.parse(nemo2_text([10.07] * 50))
    stamped = [
        replace(step, stamp=1e9 + 10.07 * hidden * step.index - (back if step.index >= 30 else 0))
        for step in log.steps
    ]
    found = problems(examples.case(), replace(log, steps=tuple(stamped)), LAST)
    assert any("is time that no step tells of" in problem for problem in found) is said


# The network of a run

WHO = "gpu-00:4000:4000 [0] NCCL INFO "
CHOSEN = "".join(f"gpu-{node:02d}:4000:4000 [0] NCCL INFO Using network IBext_v8\n" for node in range(64))


def start(**changed: object) -> str:
    """What NCCL prints at the start of the case's 64 nodes of 8 GPUs."""
    trace = Trace(nodes=64, gpus=8, ranks_stated=True, **changed)  # type: ignore[arg-type]
    return b"".join(trace.set_up()).decode()


def judged(text: str, network: str | None = "IB") -> Judgement:
    return examples.judged(
        examples.case(), examples.outcome(), parse(text), examples.baseline(), site=SiteFacts(64, network)
    )


def test_the_name_of_a_network_counts_with_the_vendor_and_without() -> None:
    text = start().replace("NET/IB/", "NET/AWS Libfabric/") + nemo2_text()
    for network in ("Libfabric", "AWS Libfabric", "aws libfabric/gdrdma"):
        verdict = judged(text, network).verdict
        assert (verdict.kind, verdict.remarks) == (Kind.PASSED, ())


@pytest.mark.parametrize(
    ("text", "network", "reason"),
    [
        (start(), "Libfabric", "the network is IB/GDRDMA, not Libfabric: ranks 0 to 7 on gpu-00, ranks 8 to 15 on gpu-01,"),
        (start(sockets=(3,)), "IB", "the network is Socket, not IB: ranks 24 to 31 on gpu-03"),
        (start().replace("via NET/IB/2/GDRDMA", "via NET/IB/2"), "IB/GDRDMA", "the network is IB, not IB/GDRDMA: rank 2 on gpu-00,"),
        (CHOSEN, "Libfabric", "the network is IBext_v8, not Libfabric: GPU 0 on gpu-00,"),
        (start().replace("NET/IB/", "NET/AWS Libfabric/"), "IB", "the network is AWS Libfabric/GDRDMA, not IB: "),
    ],
)  # fmt: skip
def test_another_network_is_another_run(text: str, network: str, reason: str) -> None:
    verdict = judged(text + nemo2_text(), network).verdict
    assert verdict.kind is Kind.INVALID
    assert any(reason in line for line in verdict.reasons), verdict.reasons
    given_up = examples.outcome(failure="given up", message="cancelled for its pace")
    log, site = parse(text + nemo2_text()), SiteFacts(64, network)
    assert (
        examples.judged(examples.case(), given_up, log, examples.baseline(), site=site).verdict.kind
        is Kind.INVALID
    )


@pytest.mark.parametrize(
    ("text", "network", "remarked"),
    [
        ("", "IB", True),
        ("", None, False),
        (CHOSEN, "IB", False),
        (CHOSEN, "IB/GDRDMA", True),
    ],
)
def test_a_network_that_is_not_seen_is_remarked_on(text: str, network: str | None, remarked: bool) -> None:
    verdict = judged(text + nemo2_text(), network).verdict
    assert verdict.kind is Kind.PASSED
    assert (
        any("nothing in the log shows that the network was" in line for line in verdict.remarks) == remarked
    )


@pytest.mark.parametrize(
    ("nvlink", "line", "invalid"),
    [
        (512, "Using network Socket", False),
        (512, "Channel 00/0 : 0[0] -> 8[0] [send] via NET/Socket/0", True),
        (8, "Assigned NET plugin Socket to comm", True),
    ],
)
def test_within_nvlink_only_a_channel_tells_of_the_network(nvlink: int, line: str, invalid: bool) -> None:
    part = accelerators(examples.BASELINES)["h100"].model_copy(update={"nvlink": nvlink})
    log = parse(f"{WHO}{line}\n{nemo2_text()}")
    reasons = examples.problems(examples.case(), log, Statistic(), part, Started(), nodes=64, network="IB")
    assert ("the network is Socket, not IB: GPU 0 on gpu-00" in reasons) == invalid


def test_a_step_in_the_midst_of_lines_of_nccl_is_read() -> None:
    channel = f"{WHO}Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/0/GDRDMA"
    text = f"{channel}\n" * 3 + "".join(f"{channel}{nemo2_line(i)}\n{channel}\n" for i in range(50))
    log = parse(text)
    assert [step.index for step in log.steps] == list(range(50))
    assert [process.network for process in log.processes] == ["IB/GDRDMA"]
    wrapped = json.dumps({"log": f"{WHO}Using network gIB\n", "stream": "stderr"})
    assert [process.networks for process in parse(f"{wrapped}\n").processes] == [("gIB",)]


def test_so_many_lines_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodes, "MAX_LINES", 100)
    log = parse(start() + nemo2_text())
    assert 0 < len(log.processes) < 512
    assert len(log.steps) == 50
