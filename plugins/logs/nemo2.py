"""NeMo 2: the global rank 0 prints a line for each step, with `value:.4` (4 significant digits).

    Training epoch 0, iteration 49/49 | lr: 7.496e-06 | global_batch_size: 128 | global_step: 49 | ... |
    train_step_timing in s: 12.39 | consumed_samples: 6400

Iterations are 0-based. The line of step 0 has no `consumed_samples`, so the time is its last field (NeMo
d2b21556, nemo/lightning/data.py and data_sampler.py 143). In 2024, `consumed_samples` came before the time in
every line.

From 25.04 on, `TFLOPS_per_GPU` may come after the time. It is the mean of the last `log_every_n_steps` steps,
and is printed again until there is a new one. It is by full attention, and from 25.09 on by causal attention
(nemo/lightning/pytorch/callbacks/flops_callback.py, nemo/utils/flops_formulas.py; commit 6251117f4c).

Each rank prints how long it saved and loaded a checkpoint. The slowest one counts. `Iteration` is left out if
it is not known (nemo/lightning/io/pl.py 210 and 306, megatron_strategy.py 948):

    Global Checkpoint Save : Rank: 0 : Iteration: 50 : Start time: 1744408121.151s : Save duration: 4.389s
    Global Checkpoint Load : Rank : 0 : Start time : 1744407969.270s : Time spent in load_checkpoint: 9.712s
    Finished restoring from RestoreConfig(path='/lustre/...', ...), cleaning up.

The line may begin with a rank or a time, and the output of other ranks may come before or after it or cut it
in two. A field counts only if it is whole between its separators.
"""

from __future__ import annotations

import re

from plugins.logs.line_parser import LineParser
from plugins.logs.log import Step
from plugins.logs.numbers import NUMBER, integer, number, resolution, sections, single
from plugins.logs.statements import Statement

_HEAD = re.compile(r"Training epoch \d+, iteration (\d{1,9})/(\d{1,9})(?= \||$)")
_FIELD = re.compile(r"([A-Za-z_][\w ]*): (" + NUMBER + ")")
_TIMING = "train_step_timing in s"
_CONSUMED = "consumed_samples"
_RATE = "TFLOPS_per_GPU"

_SAVED = re.compile(
    r"Global Checkpoint Save : Rank ?: \d{1,7} : (?:Iteration ?: (\d{1,9}) : )?Start time ?: [\d.]{1,24}s : "
    r"Save duration ?: (\d{1,9}\.\d{3})s"
)
_LOADED = re.compile(
    r"Global Checkpoint Load : Rank ?: \d{1,7} : Start time ?: [\d.]{1,24}s : "
    r"Time spent in load_checkpoint ?: (\d{1,9}\.\d{3})s"
)
# A rank's message begins with `[`: a path with one was torn by it, and is not known.
_RESTORED = re.compile(r"Finished restoring from RestoreConfig\(path='([^'\[]{1,4096})'")

STATEMENTS = (
    # nemo/lightning/megatron_parallel.py 611: rank 0 prints the parameters of the first pipeline stage.
    Statement(
        b"model parallel rank (0",
        r"number of parameters on \(tensor, pipeline\) model parallel rank \(0 ?, ?0\): (?P<first_stage>\d{4,18})\b",
    ),
    # nemo/lightning/base.py 49. The recipes' vocabularies are those of the models (scripts/performance/llm/pretrain_llama31_405b.py,
    # pretrain_nemotron4_340b.py); on GKE, NeMo 1 has GPT-2's.
    Statement(
        b"Padded vocab_size: ", r"Padded vocab_size: (?P<vocab>\d{1,9}), original vocab_size: \d"
    ),
    # megatron/core/distributed/distributed_data_parallel.py 68. Not every FP8 run prints it.
    Statement(
        b"fp8_param_gather=True", r"\bfp8_param_gather=(?P<fp8>True)\b", {"True": True}
    ),
)  # fmt: skip


class NeMo2(LineParser):
    """Parses the lines of NeMo 2's ProgressPrinter (NeMo 25.02 and the releases around it)."""

    hints = (b"Training epoch ",)
    asides = (b"Global Checkpoint ", b"Finished restoring from RestoreConfig(")
    statements = STATEMENTS
    flops = ("full-attention", "causal-attention")

    def read_line(self, line: str, *, ended: bool) -> None:
        for head, text in sections(_HEAD, line):
            # If the line did not end, its last field may lack digits.
            whole = ended or head.end() + len(text) < len(line)
            self._read_step(head, text, whole=whole)

    def read_aside(self, line: str) -> None:
        # Other ranks' output may come before or after it on the line.
        for match in _SAVED.finditer(line):
            self.saved(float(match[2]), int(match[1] or -1))
        for match in _LOADED.finditer(line):
            self.loaded(float(match[1]))
        for match in _RESTORED.finditer(line):
            self.restored(match[1])

    def _read_step(self, head: re.Match[str], text: str, *, whole: bool) -> None:
        fields = _fields(text, first_step=head[1] == "0", whole=whole)
        index, last = int(head[1]), int(head[2])
        stated = integer(fields.get("global_step"))
        if not fields or (stated is not None and stated != index):
            return
        self.plan(last + 1)
        timing = fields.get(_TIMING)
        self.add(
            Step(
                index=index,
                seconds=number(timing),
                resolution=resolution(timing, 4),
                gbs=integer(fields.get("global_batch_size")),
                consumed_samples=integer(fields.get(_CONSUMED)),
                tflops_per_gpu=number(fields.get(_RATE)),
                loss=number(fields.get("reduced_train_loss")),
                grad_norm=number(fields.get("grad_norm")),
            )
        )


def _fields(text: str, *, first_step: bool, whole: bool) -> dict[str, str]:
    """The fields of a step by name. If it is not `whole`, its last one may lack digits."""
    *cells, end = (_FIELD.fullmatch(cell.strip()) for cell in text.split(" | "))
    pairs = [(cell[1], cell[2]) for cell in cells if cell is not None]
    # Other output may break a line within a number. So if the step time is at the end of a line whose
    # last field is another one, it does not count.
    closing = first_step or any(name == _CONSUMED for name, _ in pairs)
    if end is not None and whole and (end[1] != _TIMING or closing):
        pairs.append((end[1], end[2]))
    return single(pairs)
