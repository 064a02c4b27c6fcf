"""Runs of a case that nobody has published a number for, and the tables that they are recorded in."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from plugins.base.yamlfile import load
from plugins.baselines.baseline_file import BaselineFile, load_baselines
from plugins.baselines.store import Baseline, SiteNumbers, find
from plugins.judging.judgement import Judgement
from plugins.judging.shelving import Offer, Origin, as_text, offer_of, shelve
from plugins.record.case import CaseRecord
from plugins.record.job import Job, JobRef
from plugins.record.verdict import Kind
from tests.unit import examples

FIRST, SECOND, THIRD = (
    Origin("lab", "NeMo 2", f"2026112{n}-090000-aaaa", f"2026-11-2{n}") for n in (1, 2, 3)
)
KEY = f"llama3/{examples.CASE}"


def judged(
    times: Sequence[float] | None = None,
    *,
    own: Path | None = None,
    gpu: str = "b200",
    text: str = "",
    job: str = "4711",
    **changed: object,
) -> Judgement:
    """A run of the usual case on a GPU that nothing was published for; `changed` is of its outcome."""
    recipe, case = examples.llama3(), examples.case()
    site = SiteNumbers(own) if own else None
    baseline = find(examples.BASELINES, recipe, case, gpu, site)
    return examples.judged(
        case,
        examples.outcome(**{"gpu": gpu, "versions": {"driver": "550.90.07"}, "id": job, **changed}),
        examples.parse(text + examples.nemo2_text(times)),
        baseline,
        why_none=site.lapsed(recipe, case, gpu) if site else "",
    )


def offered(times: Sequence[float] | None = None, origin: Origin = FIRST, **more: object) -> Offer:
    found = offer_of(judged(times, **more), origin)  # type: ignore[arg-type]
    assert isinstance(found, Offer), found
    # As it travels in the record.
    return Offer.model_validate(json.loads(json.dumps(found.model_dump(mode="json", exclude_defaults=True))))


def refused(judgement: Judgement) -> str:
    found = offer_of(judgement, FIRST)
    assert isinstance(found, str)
    return found


def written(folder: Path, file: BaselineFile | None) -> Path:
    """The folder with this file in it, read back: what is written is what is read."""
    assert file is not None
    path = folder / "llama3.yaml"
    if path.exists():
        load_baselines.cache_clear()
    path.write_text(as_text(file, "lab"))
    assert load_baselines(path) == file
    return folder


def recorded(folder: Path, times: Sequence[float] | None = None) -> Path:
    return written(folder, shelve(None, "llama3", offered(times), verdict="no baseline", replace=False)[0])


def rewritten(path: Path, old: str, new: str) -> Path:
    """The file's folder, after somebody edited it."""
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    load_baselines.cache_clear()
    return path.parent


def own(folder: Path) -> Baseline:
    found = find(examples.BASELINES, examples.llama3(), examples.case(), "b200", SiteNumbers(folder))
    assert found is not None
    return found


def shelved(
    folder: Path,
    times: Sequence[float],
    origin: Origin = SECOND,
    *,
    replaces: bool = False,
    nodes: str = "gpu[001-064]",
    job: str = "4712",
) -> tuple[BaselineFile | None, str]:
    """What becomes of another run, judged as its session would judge it."""
    judgement = judged(times, own=None if replaces else folder, nodes=nodes, job=job)
    found = offer_of(judgement, origin)
    assert isinstance(found, Offer), found
    return shelve(
        load(folder / "llama3.yaml", BaselineFile),
        "llama3",
        found,
        verdict=str(judgement.verdict.kind),
        replace=replaces,
    )


def pace(factor: float) -> list[float]:
    return [factor * seconds for seconds in examples.times()]


def offering(case: str, offer: Mapping[str, Any] | None, verdict: Kind = Kind.NO_BASELINE) -> CaseRecord:
    """The record of a case that offers this for the site's own baselines."""
    recipe, _, case_id = case.partition("/")
    empty = CaseRecord.unjudged(Job(ref=JobRef(recipe, case_id, case_id)), "")
    return replace(empty, verdict=verdict, recording=offer)
