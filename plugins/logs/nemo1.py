"""NeMo 1: a progress bar (tqdm, drawn by Lightning). A carriage return precedes each update.

    Epoch 0: : 100%|██████████| 100/100 [07:57<00:00, reduced_train_loss=7.310, global_step=99.00,
    consumed_samples=25600.0, train_step_timing in s=3.590]

Steps are 0-based. A float is printed with 3 significant digits, unless that text would not be shorter than
the number in full: `25600.0` is exact, `2.56e+5` is not. Lightning fills a text up to 5 characters with zeros
that say nothing: `3.5904` becomes `3.590`. `v_num=...` may come first.

Times are in seconds. NeMo may average them over the last few steps (`step_timing_kwargs.buffer_size`, 1
unless a recipe sets it). The configuration states that, but no bar does; the recipes' files state it by
`means`.

Rank 0 prints the configuration before the first step, as YAML that the logger indents by 4 (NeMo v2.0.0
examples/nlp/language_modeling/megatron_gpt_pretraining.py 38, nemo/utils/formatters/base.py):

    [NeMo I 2024-11-20 10:11:12 megatron_gpt_pretraining:37]
        trainer:
          num_nodes: 32
        model:
          encoder_seq_length: 4096

Its nodes and devices are those that were asked for. Interpolations (`${...}`) are not resolved.

Lightning draws the bar twice for each step: first with the new count and the old figures, then with the new
figures. So the step is the one that `global_step` names, and a bar with nothing new is no repeat.
"""

from __future__ import annotations

import re
from dataclasses import replace

from plugins.logs.line_parser import LineParser
from plugins.logs.log import Fact, Log, Step
from plugins.logs.numbers import NUMBER, number, resolution, sections, single, whole
from plugins.logs.statements import ANCHOR, ARGUMENTS, Statement, launch_argument

_BAR = re.compile(r"\| *\d{1,9}/(\d{1,9}) \[[\d:]+<[\d:?]+, ")
# A figure is whole if it is between a comma and the next one, or the bracket that ends the bar. Lightning's
# zeros make `nan.0` of nan.
_FIELD = re.compile(
    rf"(?:(?<=, )|^)([A-Za-z_][\w ]*)=(-?(?:nan|inf)(?=\.)|{NUMBER})(?:(?<=[nf])\.0*)?(?=, |\])"
)
_DIGITS = 3
_PROFILE = re.compile(r" {6}(nsys_profile|memory_profile):\s*$")
_ENABLED = re.compile(r" {8}enabled: (\w+)\s*$")
_CLOCK = re.compile(r" \[(?:(\d{1,4}):)?(\d{1,2}):(\d\d)<")


def _setting(key: str, fact: str, words: dict[str, int | str] | None = None, *, depth: int = 2) -> Statement:
    """A key of the configuration. Each section around it indents it by two more blanks."""
    return Statement(
        f" {key}: ".encode(),
        rf"{ANCHOR} {{{2 + 2 * depth}}}{key}: (?P<{fact}>\S+)\s*$",
        words or {},
    )


_SWITCH: dict[str, int | str] = {"true": True, "false": False}
STATEMENTS = (
    Statement(b" Experiment configuration ", r"\*{5,} Experiment configuration \*{5,}", begins=True),
    *(_setting(key, fact) for key, fact in ARGUMENTS.items()),
    _setting("virtual_pipeline_model_parallel_size", "vp", {"null": 1}),
    _setting("encoder_seq_length", "sequence_length"),
    _setting("global_batch_size", "gbs"),
    _setting("num_query_groups", "query_groups"),
    _setting("fp8", "fp8", _SWITCH),
    _setting(
        "precision", "precision", {"bf16": "bf16", "bf16-mixed": "bf16", "16": "fp16", "16-mixed": "fp16", "32": "fp32"}
    ),
    launch_argument(r"model\.global_batch_size", "gbs"),
    launch_argument(r"model\.micro_batch_size", "mbs"),
    launch_argument(r"model\.tensor_model_parallel_size", "tp"),
    launch_argument(r"model\.pipeline_model_parallel_size", "pp"),
    launch_argument(r"model\.virtual_pipeline_model_parallel_size", "vp", {"null": 1}),
    launch_argument(r"model\.fp8", "fp8", {"True": True, "False": False}),
    _setting("num_nodes", "asked_nodes"),
    _setting("devices", "asked_devices"),
    _setting("log_step_timing", "timed", _SWITCH),
    _setting("buffer_size", "buffer_size", depth=3),
    # megatron_gpt_model.py 1680: it is the number of the whole model, despite its words.
    Statement(
        b"precise model parameters on device: ",
        r"Number of precise model parameters on device: (?P<parameters>\d{4,18})\b",
    ),
)  # fmt: skip


class NeMo1(LineParser):
    """Parses the bars of NeMo 1's megatron_gpt_pretraining.py (NeMo 24.09 and the releases around it)."""

    hints = (b"global_step=",)
    asides = (b" nsys_profile:", b" memory_profile:", b" enabled: ", b"    trainer:")
    statements = STATEMENTS
    top = re.compile(r"^(?P<prefix>.*\S)?(?P<blanks> *) {4}trainer:\s*$")

    def __init__(self) -> None:
        super().__init__()
        self._section = ""

    def read_line(self, line: str, *, ended: bool) -> None:  # noqa: ARG002 - a bar ends with its own bracket
        for bar, text in sections(_BAR, line):
            self._read_bar(int(bar[1]), text, _elapsed(bar[0]))

    def read_aside(self, line: str) -> None:
        section = _PROFILE.search(line)
        if section:
            self._section = section[1]
            return
        switch = _ENABLED.search(line)
        if switch is None:
            return
        if self._section and switch[1] == "true":
            self.spoilt("profiler", f"{self._section}: enabled: true")
        self._section = ""

    def log(self) -> Log:
        log = super().log()
        stated = {fact.name for fact in log.facts}
        if "timed" not in stated or "buffer_size" in stated:
            return log
        return replace(
            log, facts=(*log.facts, Fact("buffer_size", 1, "step_timing_kwargs has no buffer_size"))
        )

    def _read_bar(self, total: int, text: str, elapsed: float | None) -> None:
        fields = single((match[1], match[2]) for match in _FIELD.finditer(text))
        index = whole(number(fields.get("global_step")))
        # `2e+3` may be any of ten steps, and no line says which.
        if index is None or _rounding(fields["global_step"]):
            return
        timing = fields.get("train_step_timing in s")
        consumed = fields.get("consumed_samples")
        self.plan(total)
        self.add(
            Step(
                index=index,
                seconds=number(timing),
                resolution=_resolution(timing),
                consumed_samples=whole(number(consumed)),
                consumed_resolution=_rounding(consumed),
                loss=number(fields.get("reduced_train_loss")),
                grad_norm=number(fields.get("grad_norm")),
                stamp=elapsed,
            )
        )

    def add(self, step: Step) -> None:
        known = self._steps.get(step.index)
        drawn_again = step.index == self._last and not self._stated.begun
        if known is None or not drawn_again or not _agree(known, step):
            super().add(step)
            return
        # The bar was drawn again. If other output garbled a figure in one bar, the other bar may have it.
        self._steps[step.index] = replace(known, **{k: v for k, v in vars(step).items() if v})


def _elapsed(bar: str) -> float | None:
    """The seconds since the bar was first drawn, as the bar states them."""
    clock = _CLOCK.search(bar)
    if clock is None:
        return None
    return 3600.0 * int(clock[1] or 0) + 60 * int(clock[2]) + int(clock[3])


def _agree(first: Step, second: Step) -> bool:
    """Whether no figure differs between two bars. nan agrees with nan."""
    pairs = zip(
        vars(replace(first, stamp=None)).values(), vars(replace(second, stamp=None)).values(), strict=True
    )
    return all(not a or not b or a == b or (a != a and b != b) for a, b in pairs)


def _resolution(timing: str | None) -> float:
    """Half a unit of the last digit of a time. From 1000 s on, it is printed in full or with an exponent."""
    if timing is None or "e" in timing or abs(float(timing)) < 1000:
        return resolution(timing, _DIGITS)
    return resolution(timing)


def _rounding(text: str | None) -> float:
    """Half a unit of the last digit of a count; 0 if it is printed in full, or not at all."""
    if text is None or "e" not in text:
        return 0.0
    return resolution(text, _DIGITS)
