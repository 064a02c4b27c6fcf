"""Logs of runs that were something else. They must not pass where they say so, and may where nothing tells."""

from __future__ import annotations

import random
from dataclasses import replace

from plugins.recipes.cases import Case
from tests.fuzz import cells
from tests.fuzz.cells import Cell
from tests.fuzz.kinds import Made, Truth, kind, made, told
from tests.printed.around import AROUND, around
from tests.printed.run import DEVICES


def as_if(cell: Cell, rng: random.Random, ran: Case, **more: object) -> Made:
    """The log of a run of `ran` at the pace of the cell."""
    job = replace(cells.job(rng, cell), case=ran, **more)  # type: ignore[arg-type]
    truth, why = told(cell, job)
    shape = f"{ran.gpus} GPUs, {ran.model.layers} layers, sequence {ran.sequence_length}"
    return made(cell, job, truth, f"ran {ran.id}, {shape}: {why}")


@kind("other-cell")
def other_cell(cell: Cell, rng: random.Random) -> Made | None:
    """Another case of the dialect whose pace and global batch size happen to be the same."""
    others = [
        o
        for o in cells.cells_of(cell.dialect)
        if o.case.id != cell.case.id and (o.case.recipe, o.release) == (cell.case.recipe, cell.release)
    ]
    if not others:
        return None
    other = rng.choice(others)
    ran = replace(other.case, gbs=cell.case.gbs, means=cell.case.means, steps=cell.case.steps)
    averaged = cells.buffer_size(other.case)
    return as_if(cell, rng, ran, averaged=averaged, gpu=other.gpu, per_node=other.per_node)


@kind("other-processes")
def other_processes(cell: Cell, rng: random.Random) -> Made:
    case = cell.case
    gpus = case.gpus * rng.choice((2, 2, 4))
    if rng.random() < 0.5 and case.gpus % (2 * case.tp * case.pp * case.cp * case.fsdp) == 0:
        gpus = case.gpus // 2
    return as_if(cell, rng, replace(case, gpus=gpus))


@kind("other-gpu")
def other_gpu(cell: Cell, rng: random.Random) -> Made:
    others = [gpu for gpu in ("a100", "h200", "b200", "h100") if gpu != cell.gpu]
    return as_if(cell, rng, cell.case, gpu=rng.choice(others))


@kind("other-sequence")
def other_sequence(cell: Cell, rng: random.Random) -> Made:
    length = cell.case.sequence_length
    return as_if(cell, rng, replace(cell.case, sequence_length=rng.choice((length // 2, length * 2))))


def another_model(cell: Cell, rng: random.Random, **shape: int) -> Made:
    return as_if(cell, rng, replace(cell.case, model=cell.case.model.model_copy(update=shape)))


@kind("other-layers")
def other_layers(cell: Cell, rng: random.Random) -> Made:
    """A model cut down, as the launchers do for 405b below 512 GPUs."""
    layers = cell.case.model.layers
    fewer = [n for n in (7, 8, 21, 30, 42, 62, layers // 2, layers // 4) if n < 0.9 * layers]
    return another_model(cell, rng, layers=rng.choice(fewer or [layers // 2]))


@kind("other-vocabulary")
def other_vocabulary(cell: Cell, rng: random.Random) -> Made:
    others = [size for size in (32000, 128256, 256000) if abs(size / cell.case.model.vocab - 1) > 0.1]
    return another_model(cell, rng, vocab=rng.choice(others))


@kind("other-dtype")
def other_dtype(cell: Cell, rng: random.Random) -> Made:
    dtype = {"bf16": "fp8", "fp8": "bf16", "fp16": "bf16"}[cell.case.dtype]
    return as_if(cell, rng, replace(cell.case, dtype=dtype))


@kind("other-batch")
def other_batch(cell: Cell, rng: random.Random) -> Made:
    gbs = cell.case.gbs * 2 if rng.random() < 0.5 else max(1, cell.case.gbs // 2)
    return as_if(cell, rng, replace(cell.case, gbs=gbs))


@kind("other-parallel-sizes")
def other_parallel(cell: Cell, rng: random.Random) -> Made | None:
    case = cell.case
    if cell.dialect == "maxtext":
        return as_if(cell, rng, replace(case, fsdp=case.fsdp // 2))
    if case.gpus % (case.tp * case.pp * case.cp * 2):
        return None
    size = rng.choice(("tp", "pp", "cp", "vp"))
    return as_if(cell, rng, replace(case, **{size: getattr(case, size) * 2}))


@kind("other-micro-batch")
def other_micro_batch(cell: Cell, rng: random.Random) -> Made | None:
    """The same batch in twice as many parts, or half as many."""
    case = cell.case
    mbs = rng.choice([mbs for mbs in (case.mbs // 2, case.mbs * 2) if mbs])
    return as_if(cell, rng, replace(case, mbs=mbs)) if case.gbs % (mbs * case.dp * case.fsdp) == 0 else None


@kind("few-of-another-gpu")
def few_of_another_gpu(cell: Cell, rng: random.Random) -> Made:
    """`nvidia-smi -L` of 64 GPUs of which few are of another type."""
    page, count = cells.page(cell, rng), rng.choice((1, 2, 8))
    other = rng.choice([name for gpu, name in DEVICES.items() if gpu != cell.gpu])
    names = [other] * count + [DEVICES[cell.gpu]] * (64 - count)
    rng.shuffle(names)
    for number, name in enumerate(names):
        page.add(f"GPU {number % 8}: {name} (UUID: GPU-{number:08x}-0000-1111-2222-333344445555)")
    return Made(page.text(), Truth.NOT_PASS, f"{count} of 64 {other}")


@kind("other-run-behind-prefix")
def behind_prefix(cell: Cell, rng: random.Random) -> Made | None:
    """Another run, with something around each of its lines."""
    other = rng.choice(
        (other_sequence, other_layers, other_dtype, other_vocabulary, other_parallel, other_micro_batch)
    )
    name, made = rng.choice(AROUND), other(cell, rng)
    return None if made is None else replace(made, text=around(name, made.text), note=f"{name}: {made.note}")


@kind("other-job")
def other_job(cell: Cell, rng: random.Random) -> Made:
    return as_if(cell, rng, cell.case, job_id="4699")


@kind("finished-then-other-configuration")
def other_configuration(cell: Cell, rng: random.Random) -> Made | None:
    """DLLogger appends: a finished run of the other dtype, and behind it the record of this case's configuration alone."""
    if cell.dialect != "dllogger":
        return None
    job = cells.job(rng, cell)
    ran = replace(job, case=replace(cell.case, dtype="fp8" if cell.case.dtype == "bf16" else "bf16"))
    behind = cell.render(replace(job, times=(), losses=()))
    return Made(cell.render(ran).text() + behind.text(), Truth.NOT_PASS)


@kind("finished-then-restarted")
def restarted(cell: Cell, rng: random.Random) -> Made | None:
    """A finished run, and behind it an attempt that never came to a step."""
    job = cells.job(rng, cell)
    page = cell.render(job)
    behind = cell.render(replace(job, times=(), losses=())) if cell.dialect == "dllogger" else None
    text = page.text() + (behind.text() if behind else "".join(page.head))
    return Made(text, Truth.NOT_PASS if cell.dialect == "dllogger" else Truth.OPEN)
