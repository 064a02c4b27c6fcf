"""Writes what is known of a judged case into its folder: its record, its steps, and its GPUs' samples with a plot."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping
from typing import Any

from plugins.files import write_whole
from plugins.gpu.samples import Gpus, Sample
from plugins.judging.case_record import record_of
from plugins.judging.judgement import Judgement
from plugins.record.case import CaseRecord
from plugins.record.folder import FAILING_NODES, GPUS_PLOT, GPUS_TABLE, PASSING_NODES, STEPS, make_case_folder
from plugins.record.job import node_list
from plugins.record.stored import write_case as write_record
from plugins.svg import Svg

_WIDTH, _ROW, _LEFT, _RIGHT, _TOP = 860, 130, 70, 20, 40
_ROWS = (
    ("SM clock, MHz", "sm_mhz"),
    ("power, W", "power_w"),
    ("temperature, C", "temperature_c"),
    ("busy, %", "busy"),
)
_COLOURS = ("#1f5fa8", "#c0392b", "#2e8b57", "#8e44ad", "#d68910", "#117a65", "#7b241c", "#566573")


def gpus_svg(title: str, gpus: Gpus) -> str:
    """A row for each figure and a line for each GPU. The time of the steps that count is shaded."""
    begin = min(sample.at for sample in gpus.samples)
    length = max(max(sample.at for sample in gpus.samples) - begin, 1e-9)
    height = _TOP + _ROW * len(_ROWS) + 30

    def x(at: float) -> float:
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * (at - begin) / length

    svg = Svg(_WIDTH, height, f"{title}: GPUs by NVML", _LEFT)
    timed = [x(sample.at) for sample in gpus.timed.samples]
    if timed:
        svg.rect(min(timed), _TOP, max(timed) - min(timed), _ROW * len(_ROWS), "#eef4fb")
    for row, (label, name) in enumerate(_ROWS):
        bottom = _TOP + _ROW * (row + 1) - 10
        top = max((series.highest(name) or 0.0 for series in gpus.series), default=0.0) or 1.0
        svg.text(_LEFT, bottom - _ROW + 24, label)
        svg.text(_LEFT - 8, bottom - _ROW + 38, f"{top:.0f}", "end")
        svg.text(_LEFT - 8, bottom, "0", "end")
        for series in gpus.series:
            known = [(x(s.at), getattr(s, name)) for s in series.samples if getattr(s, name) is not None]
            points = [(at, bottom - (_ROW - 36) * value / top) for at, value in known]
            svg.polyline(points, _COLOURS[series.gpu % len(_COLOURS)])
    svg.text(_LEFT, height - 8, f"{length:.0f} s; shaded: the steps that count")
    return str(svg)


_STEPS = ("step", "seconds", "tokens_per_second", "loss", "grad_norm", "raw_seconds")


def write_case(judgement: Judgement, recording: Mapping[str, Any] | None = None) -> CaseRecord:
    """Write the files of a case. Returns its record. Raises OSError.

    `recording` is what the case offers for the site's own baselines.
    """
    folder, gpus, record = judgement.outcome.folder, judgement.gpus, record_of(judgement, recording)
    make_case_folder(folder)
    write_whole(folder / STEPS, _csv(_STEPS, _steps(judgement)), alone=False)
    write_record(folder, record)
    if gpus is not None and gpus.samples:
        write_whole(folder / GPUS_TABLE, _csv(Sample.model_fields, _samples(gpus)))
        write_whole(folder / GPUS_PLOT, gpus_svg(judgement.case.key, gpus))
    for name, nodes in _sorted_nodes(judgement).items():
        write_whole(folder / name, "".join(f"{node}\n" for node in nodes))
    return record


def _sorted_nodes(judgement: Judgement) -> dict[str, list[str]]:
    """The nodes of the case that slow it, and the others whose probes ran and were fast, for `srun --exclude` and `--nodelist`."""
    if judgement.isolated is None or not judgement.isolated.answer.culprits:
        return {}
    answer, nodes = judgement.isolated.answer, node_list(judgement.outcome.job.state.nodes)
    unknown = {node for failed in answer.failed for node in failed.probe.nodes}
    return {
        FAILING_NODES: [node for node in nodes if node in answer.accused],
        PASSING_NODES: [node for node in nodes if node not in answer.accused | answer.doubtful | unknown],
    }


def _steps(judgement: Judgement) -> Iterable[Iterable[object]]:
    case, steps = judgement.case, judgement.log.steps
    raw = case.means.times(steps)
    for step in steps:
        rate = case.tokens_per_step / step.seconds if step.seconds else None
        yield step.index, step.seconds, rate, step.loss, step.grad_norm, raw.get(step.index)


def _samples(gpus: Gpus) -> Iterable[Iterable[object]]:
    """Violations and other processes are JSON."""
    for sample in gpus.samples:
        values = sample.model_dump(mode="json").values()
        yield [json.dumps(value) if isinstance(value, list | dict) else value for value in values]


def _csv(head: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    table = io.StringIO()
    writer = csv.writer(table)
    writer.writerow(head)
    writer.writerows(rows)
    return table.getvalue()
