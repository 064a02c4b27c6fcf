"""What a diagnosis says of the digests, with and without good ones, and how a site records these."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fixtures.session.recording import record_digests
from plugins.baselines.digests import MOST_BYTES, RecordedDigest, load_digest, path_of, shelve_digest
from plugins.errors import ConfigError
from plugins.judging.diagnose import diagnose, networks
from plugins.judging.diagnosis import (
    Diagnosis,
    ModeRun,
    advice,
    explain,
    gpu_hours,
    undiagnosed,
)
from plugins.judging.offer import Origin, digest
from plugins.modes import nsys
from plugins.modes.artefacts import Artefacts
from plugins.modes.profiles import ProfileDigest, read_profiles
from plugins.modes.traces import NcclDigest
from plugins.record.folder import ARTEFACTS
from plugins.record.verdict import Cause, Kind
from plugins.suite.judged import explained
from plugins.suite.session import SiteBaselines
from tests.unit import examples
from tests.unit.examples import record_json
from tests.unit.modes.simulator import RANKS, STEPS, Planted, export, simulate
from tests.unit.modes.test_nccl_trace import digest_of
from tests.unit.modes.traces import Trace
from tests.unit.own_tables import offering

CASE = examples.case()
PROFILE, TRACE = examples.llama3().diagnostic_modes(CASE)
RECORD = "pytest suites/llama3 --record-baselines"
NOTHING, SLOW = Planted(), Planted(compute={2: 1.25})


@pytest.fixture(scope="module")
def profiles(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., tuple[ProfileDigest, ...]]:
    folder = tmp_path_factory.mktemp("exports")

    def make(seed: str, planted: Planted = NOTHING) -> tuple[ProfileDigest, ...]:
        found = []
        for rank, recorded in enumerate(simulate(seed, planted)):
            path = export(folder / "a.sqlite", recorded, device=rank)
            found += nsys.digest(str(path), STEPS, rank)
            path.unlink()
        return read_profiles(json.dumps({"version": 1, "profiles": found, "errors": []}).encode(), seed).ranks

    return make


@pytest.fixture(scope="module")
def good(profiles: Callable[..., tuple[ProfileDigest, ...]]) -> tuple[ProfileDigest, ...]:
    return profiles("a good")


@pytest.fixture(scope="module")
def slow(profiles: Callable[..., tuple[ProfileDigest, ...]]) -> tuple[ProfileDigest, ...]:
    return profiles("a now", SLOW)


def trace(**kind: Any) -> NcclDigest:
    return digest_of(Trace(**kind).whole())


def left(**found: Any) -> Artefacts:
    return Artefacts(host="me@login", folder="/scratch", **found)


def recorded(**found: Any) -> RecordedDigest:
    fields = {
        "case": PROFILE.id, "release": "25.04", "dtype": "fp8", "gpu": "h100", "configuration": PROFILE.identity(),
        "run": "20261120-100000-aaaa", "date": "2026-11-20", "job": "17", "nodes": "gpu[001-064]", "versions": {},
    }  # fmt: skip
    return RecordedDigest(**{**fields, **found})


def run(mode: str, found: Artefacts | None = None, **more: Any) -> ModeRun:
    ended = examples.outcome(id="18", raw="COMPLETED", nodes="gpu[001-064]")
    return ModeRun(mode, ended, 1.5, found, **more)


def ran_profile(now: tuple[ProfileDigest, ...], good: tuple[ProfileDigest, ...] = ()) -> ModeRun:
    if good:
        return run("profile", left(profiles=now), good=recorded(profiles=good))
    return run("profile", left(profiles=now), why_no_good="none is recorded")


def ran_trace(good: NcclDigest | None = None, **kind: Any) -> ModeRun:
    known = recorded(trace=good) if good else None
    return run(
        "nccl-trace", left(trace=trace(**kind)), good=known, why_no_good="" if good else "none is recorded"
    )


def test_the_cause_is_named_with_the_figures_beside_each_other(
    good: tuple[ProfileDigest, ...], slow: tuple[ProfileDigest, ...]
) -> None:
    found = diagnose(RANKS, [ran_profile(slow, good), ran_trace(trace())], RECORD)
    assert found.cause is Cause.COMPUTE
    assert found.headline.startswith("cause: compute grew by ")
    assert found.ranks == ("rank 2 (node07 GPU 2)",)
    assert found.slowest == found.last == "rank 2 (node07 GPU 2)"
    assert found.figures is not None
    then, now = found.figures["step"]
    assert then is not None
    assert now > then > 0.05
    assert found.transport == ("IB/GDRDMA on 16 ranks",) * 2
    text = "\n".join(explain(found))
    assert "ms, mean of ranks" in text
    assert f"{1e3 * then:10.1f} {1e3 * now:10.1f}" in text
    assert "transport  IB/GDRDMA on 16 ranks in the good run, now IB/GDRDMA on 16 ranks" in text
    assert "good       profile of run 20261120-100000-aaaa (2026-11-20) on gpu[001-064]" in text
    assert "job        profile: 18, COMPLETED, nodes gpu[001-064], 1.5 GPU-hours, in " in text
    assert RECORD not in text


def test_the_parts_of_a_step_sum_to_it(
    good: tuple[ProfileDigest, ...], slow: tuple[ProfileDigest, ...]
) -> None:
    figures = dict(diagnose(RANKS, [ran_profile(slow, good)], RECORD).figures or {})
    whole = figures.pop("step")
    assert sum(now for _, now in figures.values()) == pytest.approx(whole[1])
    assert sum(then or 0 for then, _ in figures.values()) == pytest.approx(whole[0])


def test_sockets_instead_of_infiniband_are_the_transport(
    profiles: Callable[..., tuple[ProfileDigest, ...]], good: tuple[ProfileDigest, ...]
) -> None:
    runs = [ran_profile(profiles("a now", Planted(link=3.0)), good), ran_trace(trace(), sockets=(0, 1))]
    found = diagnose(RANKS, runs, RECORD)
    assert found.cause is Cause.TRANSPORT
    assert "rank 0 uses Socket, it used IB/GDRDMA (and 15 more ranks)" in found.headline
    assert found.transport == ("IB/GDRDMA on 16 ranks", "Socket on 16 ranks")


def test_a_trace_alone_tells_the_transport_and_nothing_else() -> None:
    broken = run("profile", why_not="job 18 ended NODE_FAIL")
    other = diagnose(16, [broken, ran_trace(trace(), sockets=(1,))], RECORD)
    assert other.cause is Cause.TRANSPORT
    assert "rank 8 uses Socket, it used IB/GDRDMA (and 7 more ranks)" in other.headline
    assert any("note       profile: job 18 ended NODE_FAIL" in line for line in explain(other))
    same = diagnose(16, [broken, ran_trace(trace())], RECORD)
    assert same.cause is Cause.UNKNOWN
    assert "there is no profile to compare" in same.headline


def test_without_a_good_digest_it_says_what_is_known_and_how_to_record_one(
    slow: tuple[ProfileDigest, ...],
) -> None:
    found = diagnose(RANKS, [ran_profile(slow), ran_trace()], RECORD)
    assert found.cause is Cause.UNKNOWN
    assert "there is no good digest to compare with" in found.headline
    text = "\n".join(explain(found))
    assert "rank 2 (node07 GPU 2) arrives last at the collectives" in text
    assert "rank 2 (node07 GPU 2) has the most work of its own" in text
    assert "transport  IB/GDRDMA on 16 ranks" in text
    assert text.rstrip().splitlines()[-3].endswith(f"to record one when the case is well: {RECORD}")


def test_a_rank_without_a_digest_is_told(
    good: tuple[ProfileDigest, ...], slow: tuple[ProfileDigest, ...]
) -> None:
    some = left(profiles=slow[1:], notes=("profile_4000.nsys-rep has no digest: the disk is full",))
    found = diagnose(RANKS, [run("profile", some, good=recorded(profiles=good))], RECORD)
    assert found.cause is Cause.COMPUTE
    assert found.lines[-1] == "note       profile: profile_4000.nsys-rep has no digest: the disk is full"


def test_no_rank_of_an_even_job_arrives_last(good: tuple[ProfileDigest, ...]) -> None:
    assert diagnose(RANKS, [ran_profile(good)], RECORD).last is None


@pytest.mark.parametrize(
    ("runs", "said"),
    [
        ([], "no diagnosis: no job was run"),
        ([run("profile", why_not="not run: 9 GPU-hours")], "no diagnosis: profile: not run: 9 GPU-hours"),
        (
            [run("profile", left(notes=("nsys is not on the PATH",)))],
            "no diagnosis: profile: nsys is not on the PATH",
        ),
        ([run("profile", left())], "no diagnosis: profile: no digest was made of what is in /scratch"),
    ],
)
def test_why_there_is_no_diagnosis(runs: list[ModeRun], said: str) -> None:
    found = diagnose(8, runs, RECORD)
    assert (found.headline, found.cause) == (said, None)


def test_ranks_are_those_of_nccl_or_counted_by_host_and_gpu() -> None:
    for stated in (True, False):
        found = networks(trace(sockets=(1,), ranks_stated=stated))
        assert found == {**dict.fromkeys(range(8), "IB/GDRDMA"), **dict.fromkeys(range(8, 16), "Socket")}
    # On one node nobody sends over a network.
    assert set(networks(trace(nodes=1)).values()) <= {"IB", "mlx5"}


@pytest.mark.parametrize(
    ("cost", "budget"), [(1.37, "1.4"), (0.0421, "0.043"), (123.4, "130"), (5120.0, "5200"), (2.0, "2")]
)
def test_the_advice_has_a_budget_that_is_enough(cost: float, budget: str) -> None:
    assert advice("pytest x", cost).command == f"pytest x --diagnose {budget}"
    assert advice("", cost) == Diagnosis("")


def test_what_a_mode_costs() -> None:
    assert gpu_hours(PROFILE, 6.0, 10.0) == pytest.approx(512 * (6 / 60 + 25 * 10 / 3600))


def test_a_diagnosis_is_in_the_record_and_the_text_and_changes_no_verdict(
    good: tuple[ProfileDigest, ...], slow: tuple[ProfileDigest, ...]
) -> None:
    log = examples.parse(examples.nemo2_text([1.1 * seconds for seconds in examples.times()]))
    plain = examples.judged(CASE, examples.outcome(), log, examples.baseline())
    assert plain.diagnosable
    found = diagnose(RANKS, [ran_profile(slow, good), ran_trace()], RECORD)
    judged = replace(plain, diagnosis=found)
    told = record_json(judged)
    assert told["verdict"] == record_json(plain)["verdict"] == "too slow"
    assert record_json(plain)["diagnosis"] is None
    assert told["diagnosis"]["cause"] == "compute"
    assert told["diagnosis"]["figures"]["step"]["now"] == pytest.approx((found.figures or {})["step"][1])
    assert told["diagnosis"]["jobs"][0]["good"]["run"] == "20261120-100000-aaaa"
    assert json.loads(json.dumps(told, allow_nan=False)) == told
    assert judged.text.startswith(plain.text.partition("\n")[0])
    assert found.headline in judged.text
    assert record_json(replace(plain, diagnosis=undiagnosed("no such mode")))["diagnosis"]["headline"] == (
        "no diagnosis: no such mode"
    )


def test_a_defect_of_ours_changes_no_verdict() -> None:
    log = examples.parse(examples.nemo2_text([1.1 * seconds for seconds in examples.times()]))
    slow = examples.judged(CASE, examples.outcome(), log, examples.baseline())
    judged = explained(slow, lambda: Diagnosis(str(1 / 0)))
    assert judged.verdict == slow.verdict
    assert judged.diagnosis == undiagnosed("Pacemark itself failed: ZeroDivisionError: division by zero")


# Recorded digests


def test_a_digest_is_kept_and_read_back_and_replaced_only_if_asked_for(
    tmp_path: Path, good: tuple[ProfileDigest, ...], slow: tuple[ProfileDigest, ...]
) -> None:
    site = SiteBaselines(tmp_path / "own", "lab", record=True)
    assert site.folder is not None
    site.folder.mkdir()
    runs = tmp_path / "results"

    def offered(name: str, profiles: tuple[ProfileDigest, ...], site: SiteBaselines = site) -> str:
        folder = runs / name / PROFILE.key
        folder.mkdir(parents=True)
        (folder / ARTEFACTS).write_text(left(profiles=profiles).model_dump_json())
        meta = recorded(run=name).model_dump(mode="json", exclude={"profiles", "trace"})
        (said,) = record_digests(site, runs / name, [offering(PROFILE.key, {"digest": meta})])
        return said

    path = path_of(site.folder, PROFILE)
    assert load_digest(path) is None
    assert offered("first", good) == f"{PROFILE.key}: digest recorded: {path}"
    assert path.stat().st_size < MOST_BYTES
    assert load_digest(path) == recorded(run="first", profiles=good)
    assert "that of run first (2026-11-20) on gpu[001-064] stays" in offered("second", slow)
    assert load_digest(path) == recorded(run="first", profiles=good)
    assert "takes the place of that of run first" in offered("third", slow, replace(site, replace=True))
    assert load_digest(path) == recorded(run="third", profiles=slow)


def test_a_digest_of_another_configuration_takes_the_place_of_the_old_one() -> None:
    old = recorded()
    new = recorded(run="second", release="25.05")
    assert shelve_digest(old, new, replace=False) == (
        new,
        f"digest replaced: it takes the place of that of {old.origin}, which had another release",
    )
    assert shelve_digest(old, recorded(), replace=True)[0] is old


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({}, ""),
        ({"release": "25.05"}, "release 25.05, not 25.04"),
        ({"dtype": "bf16"}, "dtype bf16, not fp8"),
        ({"gpu": "b200"}, "type of GPU b200, not h100"),
        ({"configuration": {**PROFILE.identity(), "gbs": 64}}, "gbs 64, not 1024"),
        ({"configuration": {}}, "cp None, not 1"),
    ],
)
def test_a_digest_of_something_else_is_not_compared(changed: dict[str, Any], said: str) -> None:
    assert recorded(**changed).unlike(PROFILE, "h100") == said


@pytest.mark.parametrize("text", ["", "{}", "[", "x" * (MOST_BYTES + 1)])
def test_a_damaged_digest_is_one_clear_error(tmp_path: Path, text: str) -> None:
    path = tmp_path / "a.json"
    path.write_text(text)
    with pytest.raises(
        ConfigError, match=r"a\.json: is no recorded digest: .*; remove it, and record it again"
    ):
        load_digest(path)
    path.unlink()
    path.mkdir()
    with pytest.raises(ConfigError, match="cannot be read"):
        load_digest(path)


def test_what_is_recorded_with_a_digest_and_what_is_refused(slow: tuple[ProfileDigest, ...]) -> None:
    origin = Origin("lab", "NeMo", "first", "2026-11-20")
    log = examples.parse(examples.nemo2_text([10.0] * PROFILE.steps).replace("/49 |", "/24 |"))
    files = [{"name": f"profile_{n}.nsys-rep", "size": 9999, "modified": 1.0} for n in range(8)]
    whole = Artefacts.model_validate({**left(profiles=slow).model_dump(), "files": files, "begun": 0.0})
    judged = examples.judged(PROFILE, examples.outcome(), log, None, artefacts=whole)
    assert judged.verdict.kind is Kind.PASSED, judged.text
    meta = digest(judged, origin)
    assert isinstance(meta, dict)
    assert RecordedDigest.model_validate({**meta, "profiles": slow}).unlike(PROFILE, "h100") == ""
    none = replace(judged, artefacts=whole.model_copy(update={"profiles": (), "notes": ("no nsys",)}))
    assert digest(none, origin) == "no digest was made of what is in /scratch; no nsys"
    bad = examples.judged(PROFILE, examples.outcome(), log, None, artefacts=left())
    assert str(digest(bad, origin)).startswith("no whole and valid run: invalid run: no profiles of this job")
