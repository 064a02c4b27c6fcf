"""What somebody may do to a bundle: each is found, and named.

`FORGED` is made by one who has the keys of both parties, so that every digest and signature is right.
"""

from __future__ import annotations

import errno
import hashlib
import io
import json
import re
import shutil
import stat
import struct
import zipfile
import zlib
from base64 import b64decode, b64encode
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from fixtures.session.screening import ScreenedNodes
from pacemark.__main__ import main
from plugins.acceptance.scaling import UNCHOSEN
from plugins.bundle import archive
from plugins.bundle.statement import ENVELOPE
from plugins.judging.choice import Choice
from plugins.record.lines import JOBS_LOG
from plugins.record.plan import PLAN
from tests.system.support import pacemark
from tests.unit import examples
from tests.unit.bundles import runs
from tests.unit.bundles.runs import AGAIN, PASSED, SLOW, Members, changed, replaced
from tests.unit.jobs_log import line_of, lines_of, link, log_of

Change = Callable[[Members], Members]
SUMMARY, LLAMA3, RECIPE = "summary.json", "basis/baselines/llama3.yaml", "basis/suites/llama3/recipe.yaml"


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("keys")
    runs.make_keys(folder, "vendor", "buyer", "other")
    return folder


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory, keys: Path) -> Path:
    folder = tmp_path_factory.mktemp("bundle")
    path = folder / "run.zip"
    signers = [word for name in ("vendor", "buyer") for word in ("--key", str(keys / f"{name}.pem"))]
    assert main(["bundle", str(runs.make_run(folder)), *signers, "-o", str(path)]) == 0
    return path


@pytest.fixture(scope="module")
def members(bundle: Path) -> Members:
    return runs.unpacked(bundle)


@pytest.fixture(scope="module")
def accepted(tmp_path_factory: pytest.TempPathFactory, keys: Path) -> Members:
    """The members of a bundle whose run has an acceptance plan, and is accepted by it."""
    folder = tmp_path_factory.mktemp("accepted")
    run = runs.make_run(folder, runs.PLAN_TEXT)
    assert main(["bundle", str(run), "-o", str(folder / "run.zip")]) == 0
    return runs.unpacked(folder / "run.zip")


def verify(path: Path, keys: Path, *names: str) -> int:
    given = [word for name in names or ("vendor", "buyer") for word in ("--key", str(keys / f"{name}.pub"))]
    return main(["verify", str(path), *given])


@pytest.mark.promise("no confusing failure: a bundle")
def test_a_bundle_as_it_was_made_is_verified(
    bundle: Path, keys: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert verify(bundle, keys) == 0
    said = capsys.readouterr().out
    assert "1 too slow" in said
    assert [line for line in said.splitlines() if line.startswith("note")] == [
        "note      judged as what the site file states: llama3 25.04 on h100",
        f"note      by the ledger, another job had to follow llama3/{AGAIN} try 1 (node gpu017 is down)",
    ]
    assert said.splitlines()[-1].startswith("result    VERIFIED: signed by ")
    assert "wrong" not in said


def test_a_bundle_that_is_forged_in_nothing_is_verified(members: Members, keys: Path, tmp_path: Path) -> None:
    """What the tests of forged bundles change is all that is wrong with them."""
    forged = runs.signed(members, keys / "vendor.pem", keys / "buyer.pem")
    assert verify(runs.packed(forged, tmp_path / "forged.zip"), keys) == 0


# Not signed again: the digests and signatures tell.

TOUCHED: dict[str, tuple[Change, str]] = {
    "a byte of a log": (
        lambda m: replaced(m, f"llama3/{SLOW}/log.txt", "iteration 49", "iteration 48"),
        f"llama3/{SLOW}/log.txt is not what was signed",
    ),
    "a step time": (
        lambda m: replaced(m, f"llama3/{SLOW}/log.txt", "s: 16.1", "s: 14.6", 99),
        f"llama3/{SLOW}/log.txt is not what was signed",
    ),
    "the summary": (lambda m: replaced(m, SUMMARY, "too slow", "passed"), f"{SUMMARY} is not what was signed"),
    "a member was added": (lambda m: {**m, "llama3/notes.txt": b"x"}, "llama3/notes.txt is not in the statement"),
    "a member was left out": (
        lambda m: {n: d for n, d in m.items() if n != f"llama3/{SLOW}/log.txt"},
        f"llama3/{SLOW}/log.txt is missing: the statement names it",
    ),
    "no statement": (
        lambda m: {n: d for n, d in m.items() if n != ENVELOPE},
        f"{ENVELOPE}: it is missing",
    ),
    "a statement that is no JSON": (lambda m: {**m, ENVELOPE: b"{"}, "is no statement of a bundle"),
    "a key twice in the statement": (lambda m: _told_twice(m), "is no statement of a bundle: it has a key twice"),
}  # fmt: skip


@pytest.mark.parametrize(("change", "said"), TOUCHED.values(), ids=TOUCHED)
def test_what_was_changed_after_it_was_signed_is_named(
    change: Change,
    said: str,
    members: Members,
    keys: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert verify(runs.packed(change(members), tmp_path / "touched.zip"), keys) == 1
    out = capsys.readouterr().out
    assert said in out
    assert "NOT VERIFIED" in out


# Forged by whoever has both keys.


def _journal(members: Members, change: Callable[[list[dict[str, Any]]], list[dict[str, Any]]]) -> Members:
    return {**members, JOBS_LOG: log_of(change(lines_of(members[JOBS_LOG])))}


def _screening(*case_ids: str) -> dict[str, Any]:
    """A screening that the logs do not show."""
    node = {
        "node": "gpu001",
        "case": case_ids[0],
        "leaf": "",
        "state": "passing",
        "seconds": None,
        "slowness": None,
        "reason": "",
    }
    return {"headline": "1 node", "limit": None, "smallest": None, "unlike": [], "nodes": [node]}


def _scaling(*case_ids: str) -> dict[str, Any]:
    """A curve in `summary.json` on which each scale is as good as the smallest."""
    figures = ("tokens_per_second_per_gpu", "published_tokens_per_second_per_gpu")
    even = {**dict.fromkeys(figures, 1000.0), "efficiency": 1.0, "published_efficiency": 1.0}
    rest = {"limit": None, "why": "", "waived": False}
    scales = [
        {"case": f"llama3/{one}", "gpus": int(one.split("-")[2][:-4]), **even, **rest} for one in case_ids
    ]
    return {"recipe": "llama3", "size": "70b", "dtype": "bf16", "scales": scales}


def _as_job(line: dict[str, Any], job_id: str) -> dict[str, Any]:
    """The line as it would be of another job, if it is on the first one."""
    return _jobs_with(line, lambda job: job["ref"].update(id=job_id) if job["ref"]["id"] == "101" else None)


def _chained(journal: bytes) -> bytes:
    """The same texts of the lines, whose chain is made anew."""
    lines, last = list[bytes](), b""
    for line in journal.splitlines():
        text = re.sub(r'"after": "[^"]*"', f'"after": "{link(last)}"', line.decode().partition(" ")[2])
        last = line_of(text)
        lines.append(last)
    return b"\n".join([*lines, b""])


def _without(members: Members, *, case_id: str, number: int) -> Members:
    """Without a submission, with a chain that is made anew."""

    def other(job: dict[str, Any]) -> bool:
        return (job["ref"]["case_id"], job["try_number"]) != (case_id, number)

    def rest(line: dict[str, Any]) -> dict[str, Any]:
        return {**line, "jobs": [job for job in line["jobs"] if other(job)]}

    return _journal(members, lambda lines: [rest(line) for line in lines])


def _case(record: dict[str, Any], case_id: str) -> dict[str, Any]:
    found: dict[str, Any] = next(case for case in record["cases"] if case["id"] == f"llama3/{case_id}")
    return found


def _jobs_with(line: dict[str, Any], change: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
    """The line, in which each job is changed."""
    made: dict[str, Any] = json.loads(json.dumps(line))
    for job in made["jobs"]:
        change(job)
    return made


def _values(job: dict[str, Any], case_id: str, values: dict[str, Any]) -> None:
    """Give the job of this case other facts, wherever in it they stand."""
    if job["ref"]["case_id"] == case_id:
        for name, value in values.items():
            part = next((job[part] for part in ("ref", "state", "times") if name in job[part]), job)
            part[name] = value


def _run(members: Members, **values: Any) -> Members:
    """With other facts of the run in the last line."""

    def told(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [*lines[:-1], {**lines[-1], "run": {**lines[-1]["run"], **values}}]

    return _journal(members, told)


def _passed(members: Members) -> Members:
    """Each record says that the slow case passed."""

    def of_summary(summary: dict[str, Any]) -> None:
        _case(summary, SLOW)["verdict"] = "passed"
        summary["totals"] = {**summary["totals"], "passed": 3, "too slow": 0}

    flipped = changed(members, SUMMARY, of_summary)
    return changed(flipped, f"llama3/{SLOW}/case.json", lambda case: case.update(verdict="passed"))


def _stopped(members: Members) -> Members:
    """The record of the slow case is that of the one which was cancelled in the queue."""

    def of_summary(summary: dict[str, Any]) -> None:
        _case(summary, SLOW).update({**_case(summary, runs.STOPPED), "id": f"llama3/{SLOW}"})
        summary["totals"].update({"too slow": 0, "infrastructure": 2})

    return changed(members, SUMMARY, of_summary)


def _told_twice(members: Members) -> Members:
    """The statement's payload has a key twice."""
    envelope = json.loads(members[ENVELOPE])
    payload = b64decode(envelope["payload"]).replace(b'"_type"', b'"_type": "x", "_type"')
    twice = {**envelope, "payload": b64encode(payload).decode()}
    return {**members, ENVELOPE: json.dumps(twice).encode()}


def _left_out(members: Members) -> Members:
    def shorter(summary: dict[str, Any]) -> None:
        summary["cases"].remove(_case(summary, SLOW))
        summary["totals"]["too slow"] = 0

    return changed(members, SUMMARY, shorter)


def _swapped(members: Members) -> Members:
    one, other = f"llama3/{PASSED}/log.txt", f"llama3/{SLOW}/log.txt"
    return {**members, one: members[other], other: members[one]}


def _moved(members: Members, old: str, new: str) -> Members:
    return {name.replace(old, new): data for name, data in members.items()}


def _at_last(members: Members, **values: Any) -> Members:
    """With other facts of the passed case's job in its last line."""

    def told(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
        last = max(n for n, line in enumerate(lines) if PASSED in [j["ref"]["case_id"] for j in line["jobs"]])
        changed = _jobs_with(lines[last], lambda job: _values(job, PASSED, values))
        return [*lines[:last], changed, *lines[last + 1 :]]

    return _journal(members, told)


def _throughout(members: Members, case_id: str = PASSED, **values: Any) -> Members:
    """With other facts of a case's jobs in each line."""
    return _journal(
        members, lambda lines: [_jobs_with(line, lambda job: _values(job, case_id, values)) for line in lines]
    )


def _without_gpus(members: Members) -> Members:
    """The slow case has no GPU, so that it is no case, and is left out of the summary."""
    return _left_out(_throughout(members, SLOW, gpus=0))


FORGED: dict[str, tuple[Change, str]] = {
    "a step time in a log": (
        lambda m: replaced(m, f"llama3/{SLOW}/log.txt", "s: 16.1", "s: 14.6", 99),
        f"llama3/{SLOW}: summary.json says 'too slow', its log says: passed",
    ),
    "a slow log was made of a good one": (
        lambda m: replaced(m, f"llama3/{PASSED}/log.txt", "s: 14.6", "s: 16.6", 99),
        f"llama3/{PASSED}: summary.json says 'passed', its log says: too slow",
    ),
    "the verdict in every record": (_passed, f"llama3/{SLOW}: summary.json says 'passed', its log says: too slow"),
    "a case counts as never judged": (
        lambda m: {n: d for n, d in m.items() if n != f"llama3/{SLOW}/case.json"},
        f"llama3/{SLOW}: summary.json says 'too slow' and llama3/{SLOW}/case.json is missing, its log says: too slow",
    ),
    "a slow case counts as one that never ran": (
        lambda m: _stopped({n: d for n, d in m.items() if n != f"llama3/{SLOW}/case.json"}),
        f"llama3/{SLOW}: summary.json says 'infrastructure' and llama3/{SLOW}/case.json is missing, its log says: too slow",
    ),
    "a figure of a case that never ran": (
        lambda m: changed(m, SUMMARY, lambda s: _case(s, runs.STOPPED).update(steady_median=1.0)),
        f"llama3/{runs.STOPPED}: summary.json differs from its log and the ledger in steady_median (1.0, None)",
    ),
    "the totals": (
        lambda m: changed(m, SUMMARY, lambda s: s["totals"].update({"too slow": 0})),
        "summary.json: its totals are not those of its cases: too slow (0, 1)",
    ),
    "the outcome": (
        lambda m: changed(m, SUMMARY, lambda s: s.update(outcome="passed")),
        "the session ended as 'passed', by its verdicts it is 'performance'",
    ),
    "a figure in the summary": (
        lambda m: changed(m, SUMMARY, lambda s: _case(s, PASSED).update(tokens_per_second=9.9e5)),
        f"llama3/{PASSED}: summary.json differs from its log and the ledger in tokens_per_second (990000.0,",
    ),
    "a remark in the summary": (
        lambda m: changed(m, SUMMARY, lambda s: _case(s, AGAIN).update(remarks=[])),
        f"llama3/{AGAIN}: summary.json differs from its log and the ledger in remarks",
    ),
    "a figure in a case's record": (
        lambda m: changed(m, f"llama3/{PASSED}/case.json", lambda c: c.update(mfu=60.0)),
        f"llama3/{PASSED}/case.json differs from its log and the ledger in mfu (60.0,",
    ),
    "a screening of no case": (
        lambda m: changed(m, SUMMARY, lambda s: s.update(screening=_screening(PASSED))),
        "summary.json: its screening differs from its logs in headline",
    ),
    "scaling without a plan": (
        lambda m: changed(m, SUMMARY, lambda s: s.update(scaling=[_scaling(PASSED, SLOW)])),
        f"summary.json: its scaling of llama3/{SLOW} differs from its logs in tokens_per_second_per_gpu (1000.0, ",
    ),
    "what repeats saved": (
        lambda m: changed(m, SUMMARY, lambda s: s.update(repeated={
            "at_most": 2, "runs": 3, "not_needed": 3, "gpu_hours_saved": 999.0})),
        "summary.json: what repeats saved differs from the ledger in gpu_hours_saved (999.0, ",
    ),
    "the headline of a case that never ran": (
        lambda m: changed(m, SUMMARY, lambda s: _case(s, runs.STOPPED).update(headline="passed: 1 s a step")),
        f"llama3/{runs.STOPPED}: summary.json says 'infrastructure' and llama3/{runs.STOPPED}/case.json is missing",
    ),
    "a key twice in the summary": (
        lambda m: replaced(m, SUMMARY, '"outcome":', '"outcome": "passed", "outcome":'),
        "summary.json: it has a key twice",
    ),
    "a key twice in a case's record": (
        lambda m: replaced(m, f"llama3/{SLOW}/case.json", '"verdict":', '"verdict": "passed", "verdict":'),
        f"llama3/{SLOW}/case.json: it has a key twice",
    ),
    "a key twice in the ledger": (
        lambda m: {**m, JOBS_LOG: _chained(m[JOBS_LOG].replace(b'"nodes":', b'"nodes": "other", "nodes":'))},
        "jobs.log: a line is none of Pacemark's: it has a key twice",
    ),
    "the run of the summary": (
        lambda m: changed(m, SUMMARY, lambda s: s.update(run="other")),
        f"summary.json is of run other, jobs.log of run {runs.RUN}, the bundle of run {runs.RUN}",
    ),
    "the site of the summary": (
        lambda m: changed(m, SUMMARY, lambda s: s.update(site="other")),
        "summary.json is of site other, jobs.log of site lab",
    ),
    "the GPU-hours": (
        lambda m: changed(m, SUMMARY, lambda s: s.update(gpu_hours=1.0)),
        "summary.json has 1.0 GPU-hours, the jobs in jobs.log took",
    ),
    "the day of the run": (
        lambda m: changed(m, SUMMARY, lambda s: s.update(started="2024-01-01T00:00:00.000+00:00")),
        "summary.json says that the run began at 2024-01-01",
    ),
    "an end of the run before its start": (
        lambda m: changed(m, SUMMARY, lambda s: s.update(ended="2024-01-01T00:00:00.000+00:00")),
        "summary.json says that the run ended at 2024-01-01T00:00:00.000+00:00, before its start at ",
    ),
    "an end of the ledger before its start": (
        lambda m: _run(m, ended=lines_of(m[JOBS_LOG])[0]["run"]["started"] - 1),
        "jobs.log: the run ended 1 s before its start",
    ),
    "an end of a job before its start": (
        lambda m: _throughout(m, ended=1.7e9),
        f"llama3/{PASSED} try 1: its end is 100,000,000 s before its start in jobs.log",
    ),
    "an end of a job before it was submitted": (
        lambda m: _throughout(m, started=None, ended=1.7e9),
        f"llama3/{PASSED} try 1: its end is ",
    ),
    "a cancellation that was confirmed before it was asked for": (
        lambda m: _throughout(m, cancel_asked=1.8e9, cancel_confirmed=1.7e9),
        f"llama3/{PASSED} try 1: its cancellation was confirmed 100,000,000 s before it was asked for in jobs.log",
    ),
    "a time that is no number": (
        lambda m: {**m, JOBS_LOG: _chained(m[JOBS_LOG].replace(b'"ended": 1800000900.0', b'"ended": NaN'))},
        "jobs.log: a line is none of Pacemark's: jobs.0.times.ended",
    ),
    "a time without its zone, which each machine reads otherwise": (
        lambda m: changed(m, SUMMARY, lambda s: s.update(started=s["started"].removesuffix("+00:00"))),
        "summary.json: is no record of a run: started: Value error, has no time zone",
    ),
    "a case was left out of the summary": (_left_out, f"llama3/{SLOW} was run and is left out of summary.json"),
    "a case was left out everywhere, and its files stayed": (
        lambda m: _left_out(_without(m, case_id=SLOW, number=1)),
        f"llama3/{SLOW} has files and no submission in jobs.log",
    ),
    "a case that was not run": (
        lambda m: changed(
            m, SUMMARY, lambda s: s["cases"].append({**_case(s, PASSED), "id": "llama3/8b-bf16-8gpus"})
        ),
        "llama3/8b-bf16-8gpus is in summary.json and was not run",
    ),
    "a case twice": (
        lambda m: changed(m, SUMMARY, lambda s: s["cases"].append(_case(s, PASSED))),
        "summary.json has a case twice",
    ),
    "a failed submission was left out": (
        lambda m: _without(m, case_id=AGAIN, number=1),
        f"llama3/{AGAIN}: try 1 is missing, and there is a try 2: a submission was left out",
    ),
    "a case was left out of the log of jobs": (
        lambda m: _without(m, case_id=SLOW, number=1),
        f"llama3/{SLOW} is in summary.json and was not run",
    ),
    "the journal was cut off": (
        lambda m: {**m, JOBS_LOG: b"".join(m[JOBS_LOG].splitlines(keepends=True)[:-3])},
        "jobs.log: the run has not ended",
    ),
    "the journal was cut off in a line": (
        lambda m: {**m, JOBS_LOG: m[JOBS_LOG][:-9]},
        "jobs.log: its last line is cut off",
    ),
    "lines of the journal were moved": (
        lambda m: {**m, JOBS_LOG: b"".join(reversed(m[JOBS_LOG].splitlines(keepends=True)))},
        "jobs.log: line 1 does not follow the line before it",
    ),
    "a line of the journal was left out": (
        lambda m: {**m, JOBS_LOG: b"".join(m[JOBS_LOG].splitlines(keepends=True)[:4] + m[JOBS_LOG].splitlines(keepends=True)[5:])},
        "jobs.log: line 5 does not follow the line before it",
    ),
    "a line of the journal means harm": (
        lambda m: {**m, JOBS_LOG: m[JOBS_LOG] + log_of([{"job": 7}])},
        "jobs.log: a line is none of Pacemark's",
    ),
    "a line of the journal with a number for a name": (
        lambda m: _throughout(m, recipe=7),
        "jobs.log: a line is none of Pacemark's: jobs.0.ref.recipe",
    ),
    "a line of the journal with another job's id": (
        lambda m: _journal(m, lambda rows: [_as_job(r, "77") if '"submitted"' in json.dumps(r["jobs"][:1]).partition("status")[2][:15] else r for r in rows]),
        f"llama3/{PASSED} try 1: jobs.log has it as the jobs 77, 101: one of them was left out",
    ),
    "a line of the journal on another run": (
        lambda m: _journal(m, lambda rows: [*rows, {**rows[0], "run": {**rows[0]["run"], "id": "other"}}]),
        "is of run other: lines were changed, left out or moved",
    ),
    "a line of the journal with another site": (
        lambda m: _journal(m, lambda rows: [*rows, {**rows[0], "run": {**rows[0]["run"], "site": "other"}}]),
        "has another site, folder, start or plan: lines were changed, left out or moved",
    ),
    "a line of the journal with a key twice": (
        lambda m: {**m, JOBS_LOG: _chained(m[JOBS_LOG].replace(b'"id": "101"', b'"id": "77", "id": "101"'))},
        "jobs.log: a line is none of Pacemark's",
    ),
    "no journal": (lambda m: {n: d for n, d in m.items() if n != JOBS_LOG}, "jobs.log is missing"),
    "the journal of another run": (
        lambda m: _journal(m, lambda rows: [{**row, "run": {**row["run"], "id": "x"}} for row in rows]),
        f"summary.json is of run {runs.RUN}, jobs.log of run x, the bundle of run {runs.RUN}",
    ),
    "a job's id": (lambda m: _at_last(m, id="999"), f"llama3/{PASSED} try 1: jobs.log has it as the jobs 101, 999: one of them was left out"),
    "a job's id is that of another": (
        lambda m: _at_last(m, id="102"),
        f"llama3/{PASSED} try 1 and llama3/{SLOW} try 1 are one job in jobs.log, 102",
    ),
    "a job that ran less than no time": (
        lambda m: _at_last(m, earlier_seconds=-240.0),
        "jobs.log: a line is none of Pacemark's: jobs.0.times.earlier_seconds",
    ),
    "a job's end": (lambda m: _at_last(m, phase="failed"), f"llama3/{PASSED}: summary.json differs from its log and the ledger in "),
    "a job that did not end": (lambda m: _at_last(m, status="submitted"), f"llama3/{PASSED} try 1 has not ended"),
    "a run that did not end": (
        lambda m: _run(m, ended=None),
        "jobs.log: the run has not ended",
    ),
    "logs that were replayed": (
        lambda m: _at_last(m, backend="replay"),
        "note      1 case(s) are of logs that were there before: no job of this run wrote them",
    ),
    "an unknown fact": (lambda m: _at_last(m, seal="x"), "jobs.log: a line is none of Pacemark's: jobs.0.seal"),
    "a job that is no case, for want of a GPU": (
        _without_gpus,
        f"llama3/{SLOW} is a job without a GPU in jobs.log",
    ),
    "a job's GPUs": (lambda m: _at_last(m, gpus=8), f"llama3/{PASSED}: jobs.log says that it has 8 GPUs"),
    "a path in the ledger": (
        lambda m: _at_last(m, recipe="../../etc"),
        "jobs.log: a line is none of Pacemark's: jobs.0.ref.recipe",
    ),
    "two logs were swapped": (_swapped, f"llama3/{PASSED}: summary.json says 'passed', its log says: "),
    "the files of a case that was not run": (
        lambda m: {**m, "llama3/8b-bf16-8gpus/log.txt": b"x"},
        "llama3/8b-bf16-8gpus has files and no submission in jobs.log",
    ),
    "the files of a try that was not": (
        lambda m: {**m, f"llama3/{PASSED}/try-1/log.txt": b"x"},
        f"llama3/{PASSED}/try-1 has files and no submission in jobs.log",
    ),
    "the files of a proof that was not": (
        lambda m: {**m, f"llama3/{SLOW}/proof/log.txt": b"x"},
        f"llama3/{SLOW}/proof has files and no submission in jobs.log",
    ),
    "the files of a try below another name": (
        lambda m: {**m, f"llama3/{AGAIN}/try-1/first/log.txt": b"x"},
        f"llama3/{AGAIN}/try-1/first has files and no submission in jobs.log",
    ),
    "a file beside the cases": (
        lambda m: {**m, "llama3/passed.txt": b"x"},
        "llama3/passed.txt has no place in a bundle",
    ),
    "a recipe of a thousand million steps": (
        lambda m: replaced(m, RECIPE, "steps: 50", "steps: 1000000000"),
        "has more than 1,000,000 steps",
    ),
    "what was sent is gone": (
        lambda m: {n: d for n, d in m.items() if n != f"llama3/{AGAIN}/try-1/sent.txt"},
        f"llama3/{AGAIN} try 1: what was sent is missing",
    ),
    "a page of their own": (lambda m: {**m, "report.html": b"passed"}, "report.html has no place in a bundle"),
    "a wider tolerance": (
        lambda m: replaced(m, LLAMA3, "tolerance: {slower: 0.05", "tolerance: {slower: 0.5", 9),
        f"{LLAMA3} is not the published one: tolerance.slower (0.05, 0.5)",
    ),
    "a lower baseline": (
        lambda m: replaced(m, LLAMA3, "step_time: 14.67", "step_time: 16.15", 9),
        f"llama3/{SLOW}: {LLAMA3} is not the published one: step_time (14.67, 16.15) (published, bundle)",
    ),
    "another statistic": (
        lambda m: replaced(m, LLAMA3, "statistic: last", "statistic: mean:10-20", 9),
        "is not the published one: statistic (last, mean:10-20)",
    ),
    "a figure of others": (
        lambda m: replaced(m, LLAMA3, "    statistic: last", "    references: [{name: x, size: 70b, dtype: bf16, gpus: 64, "
                           "tokens_per_second_per_gpu: 1.0, source: y}]\n    statistic: last", 9),
        f"llama3/{PASSED}: {LLAMA3} is not the published one: references ([], [{{'name': 'x'",
    ),
    "no baselines": (
        lambda m: {n: d for n, d in m.items() if n != LLAMA3},
        f"llama3/{PASSED}: a number for it is published, and {LLAMA3} has none",
    ),
    "another peak": (
        lambda m: replaced(m, "basis/baselines/accelerators.yaml", "bf16: 989", "bf16: 500", 1),
        "basis/baselines: the data of h100 are not the published ones: peak.bf16",
    ),
    "fewer steps in the recipe": (
        lambda m: replaced(m, RECIPE, "steps: 50", "steps: 20"),
        f"llama3/{PASSED}: its recipe is not the published one: steps (50, 20)",
    ),
    "another format of logs": (
        lambda m: replaced(m, RECIPE, "log: nemo2", "log: megatron_lm"),
        f"llama3/{PASSED}: its recipe is not the published one: log (nemo2, megatron_lm)",
    ),
    "a recipe of a hundred million cases": (
        lambda m: replaced(m, RECIPE, "dtype: [bf16], gpus: [64", f"dtype: [{'bf16, ' * 10_000}bf16], gpus: [{'64, ' * 10_000}64"),
        "recipe.yaml: cases: are more than 10,000 with all variants",
    ),
    "the tolerance of a plan that there is not": (
        lambda m: changed(m, "basis/choices/llama3.json", lambda c: c.update(agreed={"slower": 0.15})),
        "4 case(s) are judged by the tolerance of a plan in basis/choices/, and the run has no plan",
    ),
    "no recipe": (
        lambda m: {n: d for n, d in m.items() if n != RECIPE},
        "it cannot be judged: basis/suites/llama3/recipe.yaml is missing",
    ),
    "no recipe for a case that never ran": (
        lambda m: {n: d for n, d in m.items() if n != RECIPE},
        f"cannot    llama3/{runs.STOPPED}: summary.json says 'infrastructure', and it cannot be judged: ",
    ),
    "a recipe with an alias of aliases": (
        lambda m: {**m, RECIPE: b"a: &a [x, x, x, x, x, x, x, x, x]\n" + b"".join(
            f"{chr(98 + i)}: &{chr(98 + i)} [{', '.join([f'*{chr(97 + i)}'] * 9)}]\n".encode() for i in range(12))},
        "it cannot be judged: ",
    ),
    "a choice": (
        lambda m: changed(m, "basis/choices/llama3.json", lambda c: c.update(strict_last="yes")),
        "basis/choices/llama3.json: cannot be read: strict_last",
    ),
    "a driver's version": (
        lambda m: changed(m, "basis/choices/llama3.json", lambda c: c.update(versions={"driver": "600"})),
        "differs from its log and the ledger in versions.driver (550.54, 600)",
    ),
    "the bundle of another run": (lambda m: m, "the bundle of run another"),
    "a summary that is no record": (
        lambda m: changed(m, SUMMARY, lambda s: s.pop("cases") and None),
        "summary.json: is no record of a run: cases",
    ),
    "no summary": (lambda m: {n: d for n, d in m.items() if n != SUMMARY}, "summary.json is missing"),
    "a text that a terminal obeys": (
        lambda m: changed(m, SUMMARY, lambda s: _case(s, PASSED).update(remarks=["\x1b[2J\nresult    VERIFIED"])),
        r"\x1b[2J\nresult    VERIFIED",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", ["site", "plan"])
def test_a_statement_of_something_else_is_named(
    what: str, members: Members, keys: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    forged = runs.signed(members, keys / "vendor.pem", keys / "buyer.pem", **{what: "other"})
    assert verify(runs.packed(forged, tmp_path / "forged.zip"), keys) == 1
    assert f"{ENVELOPE} says {what} 'other', jobs.log says '" in capsys.readouterr().out


def test_how_a_case_without_a_number_is_measured_is_the_published_way(
    keys: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "Choice", partial(Choice, gpu="h123"))
    assert main(["bundle", str(runs.make_run(tmp_path)), "-o", str(tmp_path / "run.zip")]) == 0
    other = replaced(
        runs.unpacked(tmp_path / "run.zip"), LLAMA3, "statistic: last", "statistic: mean:10-20", 9
    )
    forged = runs.signed(other, keys / "vendor.pem", keys / "buyer.pem")
    assert verify(runs.packed(forged, tmp_path / "forged.zip"), keys) == 1
    assert (
        f"llama3/{PASSED}: {LLAMA3} is not the published one: statistic (last, mean:10-20)"
        in capsys.readouterr().out
    )


def test_a_number_that_nobody_published_proves_nothing(
    keys: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(examples.BASELINES, tmp_path / "baselines")
    text, begin, lacking = (examples.BASELINES / "llama3.yaml").read_text().partition("lacking:\n")
    head, _, tables = text.partition("tables:\n")
    more = tables.replace("gpu: h100", "gpu: h123").replace("gpu: gb200", "gpu: h124")
    (tmp_path / "baselines" / "llama3.yaml").write_text(f"{head}tables:\n{tables}{more}{begin}{lacking}")
    monkeypatch.setattr(examples, "BASELINES", tmp_path / "baselines")
    monkeypatch.setattr(runs, "Choice", partial(Choice, gpu="h123"))
    run, vendor = str(runs.make_run(tmp_path)), ("--key", str(keys / "vendor.pem"))
    assert main(["bundle", run, *vendor, "-o", str(tmp_path / "run.zip")]) == 0
    assert verify(tmp_path / "run.zip", keys, "vendor") == 2
    said = f"cannot    llama3/{PASSED}: this Pacemark has no number for it, the bundle has one in {LLAMA3}"
    assert said in capsys.readouterr().out


@pytest.mark.parametrize("name", FORGED)
def test_what_two_parties_forged_together_is_named(
    name: str, members: Members, keys: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change, said = FORGED[name]
    told = {"run": "another"} if name == "the bundle of another run" else {}
    forged = runs.signed(change(members), keys / "vendor.pem", keys / "buyer.pem", **told)
    status = verify(runs.packed(forged, tmp_path / "forged.zip"), keys)
    out = capsys.readouterr().out
    assert said in out
    assert status == 1, out
    assert [line for line in out.splitlines() if line.startswith("result")] == ["result    NOT VERIFIED"]


# The same, of a screening.

SCREENED: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "no screening": (
        lambda s: s.pop("screening") and s,
        "its screening differs from its logs in headline (None, 4 nodes, 1 failing (a4), 0 not judged, 3 passing; ",
    ),
    "its headline": (
        lambda s: s["screening"].update(headline="4 nodes, 4 passing"),
        "its screening differs from its logs in headline (4 nodes, 4 passing, 4 nodes, 1 failing (a4), ",
    ),
    "the state of a node": (
        lambda s: s["screening"]["nodes"][0].update(state="passing"),
        "its screening differs from its logs in nodes[0].state (passing, failing)",
    ),
    "what speaks against a node": (
        lambda s: s["screening"]["nodes"][0].update(reason=""),
        "its screening differs from its logs in nodes[0].reason (, 4.0 % slower than its peers (limit 2.5 %)",
    ),
    "the outcome": (
        lambda s: s.update(outcome="passed"),
        "the session ended as 'passed', by its verdicts it is 'performance'",
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def screening(tmp_path_factory: pytest.TempPathFactory) -> Members:
    """The members of a bundle of four nodes, each of which passed, and one of which is slower than the others."""
    folder = tmp_path_factory.mktemp("screening")
    healthy = (Path(__file__).parents[1] / "cpu_logs" / "busy.log").read_text()

    def slower(step: re.Match[str]) -> str:
        seconds = f"{1.04 * float(step[1]):.6f}"
        return f"seconds: {seconds}, TFLOP/s/device: {float(step[2]) / 1.04:.6f}, Tokens/s/device: {1024 / float(seconds):.3f}"

    slow = re.sub(r"seconds: (\S+), TFLOP/s/device: (\S+), Tokens/s/device: [\d.]+", slower, healthy)
    for node in ("a1", "a2", "a3", "a4"):
        place = folder / f"logs/proxy/tiny-fp32-1gpus.{node}"
        place.mkdir(parents=True)
        (place / "log.txt").write_text(slow if node == "a4" else healthy)
    nodes = ScreenedNodes("tiny-fp32-1gpus", dict.fromkeys(("a1", "a2", "a3", "a4"), ""), {"a1": "leaf0"})
    (folder / "logs/nodes.json").write_text(nodes.text)
    run = pacemark(
        "suites/node", "--backend", "replay", "--from", str(folder / "logs"), results=folder / "results"
    )
    assert run.status == 1, run.out
    assert (run.summary["outcome"], set(run.verdicts.values())) == ("performance", {"passed"})
    assert main(["bundle", str(run.folder), "-o", str(folder / "run.zip")]) == 0
    return runs.unpacked(folder / "run.zip")


def test_a_screening_as_it_was_made_is_verified(
    screening: Members, keys: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        verify(runs.packed(runs.signed(screening, keys / "vendor.pem"), tmp_path / "run.zip"), keys, "vendor")
        == 0
    )
    assert (
        "note      screening: 4 nodes, 1 failing (a4), 0 not judged, 3 passing; " in capsys.readouterr().out
    )


@pytest.mark.parametrize(("change", "said"), SCREENED.values(), ids=SCREENED)
def test_what_was_forged_in_a_screening_is_named(
    change: Callable[[dict[str, Any]], Any],
    said: str,
    screening: Members,
    keys: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    forged = runs.signed(changed(screening, SUMMARY, change), keys / "vendor.pem")
    assert verify(runs.packed(forged, tmp_path / "forged.zip"), keys, "vendor") == 1
    assert said in capsys.readouterr().out


# The same, of a run with an acceptance plan.


def _decided(change: Callable[[dict[str, Any]], Any]) -> Change:
    return lambda members: changed(members, SUMMARY, lambda summary: change(summary["acceptance"]))


def _planned(members: Members, text: str) -> Members:
    """Another plan, also in the summary."""
    digest = hashlib.sha256(text.encode()).hexdigest()
    told = changed(members, SUMMARY, lambda summary: summary["acceptance"].update(digest=digest))
    return {**told, PLAN: text.encode()}


def _planned_throughout(members: Members, text: str) -> Members:
    """Another plan, also in the summary and in each line of the log of jobs."""
    digest = hashlib.sha256(text.encode()).hexdigest()
    told = _journal(members, lambda rows: [{**r, "run": {**r["run"], "plan": digest}} for r in rows])
    return _planned(told, text)


def _narrowed(members: Members) -> Members:
    """The plan asks for all scales of a model, of which the recipe has fewer than the published one."""
    text = runs.PLAN_TEXT.replace("cases: [", "number: 4\ncases: [llama3/70b-bf16-*, ")
    scales = "dtype: [bf16], gpus: [64, 128"
    return replaced(
        _planned_throughout(members, text), RECIPE, f"{scales}, 256, 512, 1024, 2048]", f"{scales}, 256]"
    )


PLANS: dict[str, tuple[Change, str]] = {
    "the date of a waiver": (
        lambda m: replaced(m, PLAN, "2099-12-31", "2098-12-31"),
        "acceptance.yaml is not the plan that the ledger had before the first job",
    ),
    "another plan afterwards": (
        lambda m: _planned(m, runs.PLAN_TEXT.replace("0.06", "0.12")),
        "acceptance.yaml is not the plan that the ledger had before the first job",
    ),
    "another plan in a line after the first job": (
        lambda m: _run(m, plan="0" * 64),
        "has another site, folder, start or plan: lines were changed, left out or moved",
    ),
    "no plan any more": (
        lambda m: {n: d for n, d in m.items() if n != PLAN},
        "acceptance.yaml is missing: the ledger had it before the first job",
    ),
    "the tolerance beside the plan": (
        lambda m: changed(m, "basis/choices/llama3.json", lambda c: c.update(agreed={"slower": 0.15})),
        "basis/choices/llama3.json: its tolerance is not that of acceptance.yaml",
    ),
    "a plan of another site": (
        lambda m: _planned_throughout(m, runs.PLAN_TEXT.replace("site: lab", "site: other")),
        "acceptance.yaml is for site other, the run is of site lab",
    ),
    "logs that were replayed": (
        lambda m: _at_last(m, backend="replay"),
        "summary.json says 'accepted' of acceptance.yaml, its logs say: incomplete: the run: its logs were replayed",
    ),
    "a session that was shut down": (
        lambda m: changed(m, SUMMARY, lambda summary: summary.update(exit_code=None)),
        "summary.json says 'accepted' of acceptance.yaml, its logs say: incomplete: the run: the session was shut down",
    ),
    "another network than the plan's": (
        lambda m: _planned_throughout(m, f"{runs.PLAN_TEXT}network: IB\n"),
        "network: the plan has IB, and the site file has none",
    ),
    "the decision": (
        _decided(lambda told: told.update(decision="incomplete")),
        "summary.json says 'incomplete' of acceptance.yaml, its logs say: accepted",
    ),
    "a waived case is not told": (
        _decided(lambda told: told.update(waived=[])),
        "summary.json: its decision differs from its logs in waived",
    ),
    "no decision": (
        lambda m: changed(m, SUMMARY, lambda summary: summary.update(acceptance=None)),
        "summary.json says 'nothing' of acceptance.yaml, its logs say: accepted",
    ),
    "scaling": (
        lambda m: changed(m, SUMMARY, lambda s: s["scaling"][0]["scales"][1].update(efficiency=0.999)),
        "summary.json: its scaling differs from its logs in [0].scales[1].efficiency (0.999,",
    ),
    "a recipe without cases of the plan": (
        _narrowed,
        "acceptance.yaml: number: the plan says 4 cases, and `cases` selects ",
    ),
    "a case of the plan was left out": (
        lambda m: changed(_without(m, case_id=PASSED, number=1), SUMMARY, _without_passed),
        "summary.json says 'accepted' of acceptance.yaml, its logs say: incomplete: llama3/70b-bf16-64gpus: it was not run",
    ),
}  # fmt: skip


def _without_passed(summary: dict[str, Any]) -> None:
    summary["cases"].remove(_case(summary, PASSED))
    summary["totals"]["passed"] -= 1


@pytest.mark.parametrize(("change", "said"), PLANS.values(), ids=PLANS)
def test_what_was_forged_around_a_plan_is_named(
    change: Change,
    said: str,
    accepted: Members,
    keys: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    forged = runs.signed(change(accepted), keys / "vendor.pem", keys / "buyer.pem")
    assert verify(runs.packed(forged, tmp_path / "forged.zip"), keys) == 1
    out = capsys.readouterr().out
    assert said in out
    assert "has a decision, and the run has no plan" not in out


def test_a_plan_that_the_first_line_does_not_have_is_named(
    accepted: Members, keys: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """That line was there before the first job."""
    told = _journal(accepted, lambda rows: [{**rows[0], "run": {**rows[0]["run"], "plan": ""}}, *rows[1:]])
    forged = runs.signed(told, keys / "vendor.pem", keys / "buyer.pem")
    assert verify(runs.packed(forged, tmp_path / "forged.zip"), keys) == 1
    assert "jobs.log: line 2 has another site, folder, start or plan" in capsys.readouterr().out


def test_the_decision_of_a_plan_is_made_anew(
    accepted: Members, keys: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    signed = runs.signed(accepted, keys / "vendor.pem", keys / "buyer.pem")
    assert verify(runs.packed(signed, tmp_path / "run.zip"), keys) == 0
    said = capsys.readouterr().out
    assert "decision  accepted, by its acceptance plan: made anew" in said
    assert f"note      waived: llama3/{SLOW}: too slow: " in said


def test_why_a_run_has_not_shown_its_plan_is_what_its_session_said(
    keys: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its logs do not tell why a case was not run. A pattern is for no case of a variant."""
    text = runs.PLAN_TEXT.replace(f"llama3/{SLOW}, ", '"llama3/70b-*-128gpus", ', 1) + "number: 4\n"
    run, unrun = runs.make_run(tmp_path, text), "llama3/70b-fp8-128gpus"
    summary = json.loads((run / SUMMARY).read_text())
    missing = {unrun: "it was not selected", "the run": "the ledger was damaged"}
    cases = [f"llama3/{one}" for one in (PASSED, SLOW)] + [unrun, f"llama3/{AGAIN}"]
    summary["acceptance"].update(decision="incomplete", cases=cases, missing=missing)
    (run / SUMMARY).write_text(json.dumps(summary))
    assert main(["bundle", str(run), "--key", str(keys / "vendor.pem"), "-o", str(tmp_path / "run.zip")]) == 0
    assert verify(tmp_path / "run.zip", keys, "vendor") == 0
    said = capsys.readouterr().out
    assert "decision  incomplete, by its acceptance plan: made anew" in said
    assert f"note      missing: {unrun}: it was not selected" in said
    assert "note      missing: the run: the ledger was damaged" in said


def test_a_case_that_the_last_session_did_not_select_is_missing(
    keys: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An earlier session ran it, and it passed."""
    run = runs.make_run(tmp_path, runs.PLAN_TEXT)
    summary = json.loads((run / SUMMARY).read_text())
    summary["acceptance"].update(decision="incomplete", missing={f"llama3/{PASSED}": UNCHOSEN})
    (run / SUMMARY).write_text(json.dumps(summary))
    assert main(["bundle", str(run), "--key", str(keys / "vendor.pem"), "-o", str(tmp_path / "run.zip")]) == 0
    status, said = verify(tmp_path / "run.zip", keys, "vendor"), capsys.readouterr().out
    assert status == 0, said
    assert "decision  incomplete, by its acceptance plan: made anew" in said
    assert f"note      missing: llama3/{PASSED}: {UNCHOSEN}" in said


@pytest.mark.parametrize(
    ("change", "decided"),
    [
        pytest.param(
            lambda m: {n: d for n, d in m.items() if not n.startswith(f"llama3/{PASSED}/")},
            ["decision  incomplete, by its acceptance plan: made anew"],
            id="the files of a case are gone",
        ),
        pytest.param(
            lambda m: {**m, "basis/baselines/llama3.yaml": b"no table"},
            ["note      no decision was made anew: not every case can be judged"],
            id="no case can be judged",
        ),
    ],
)
def test_no_decision_rests_on_a_verdict_that_was_not_made_anew(
    change: Change,
    decided: list[str],
    accepted: Members,
    keys: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    forged = runs.signed(change(accepted), keys / "vendor.pem", keys / "buyer.pem")
    assert verify(runs.packed(forged, tmp_path / "forged.zip"), keys) == 1
    said = capsys.readouterr().out.splitlines()
    assert [line for line in said if "decision" in line and not line.startswith("wrong")] == decided


def test_a_bundle_that_cannot_be_read_proves_nothing(
    bundle: Path, keys: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, *given: Any, **more: Any) -> Any:
        if path == bundle:
            raise PermissionError(13, "Permission denied", str(path))
        return opened(path, *given, **more)

    opened = Path.open
    monkeypatch.setattr(Path, "open", refuse)
    assert verify(bundle, keys) == 2
    assert "cannot    it cannot be read: [Errno 13] Permission denied" in capsys.readouterr().out


@pytest.mark.parametrize("failing", [(zipfile, "ZipFile"), (archive, "_inflated")])
def test_a_disk_that_fails_proves_nothing(
    failing: tuple[Any, str],
    bundle: Path,
    keys: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(*failing, fail)
    assert verify(bundle, keys) == 2
    assert "cannot    it cannot be read: [Errno 5] Input/output error" in capsys.readouterr().out


def test_what_differs_comes_with_the_commit_that_made_the_run(
    members: Members, keys: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def change(summary: dict[str, Any]) -> None:
        summary["commit"], summary["gpu_hours"] = "ab12", 1.0

    forged = runs.signed(runs.changed(members, SUMMARY, change), keys / "vendor.pem", keys / "buyer.pem")
    assert verify(runs.packed(forged, tmp_path / "forged.zip"), keys) == 1
    assert (
        "note      the run was made with commit ab12 of Pacemark: with another one its records may differ"
        in capsys.readouterr().out
    )


def test_a_plan_that_was_added_is_named(
    members: Members, keys: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    added = runs.signed(
        {**members, PLAN: b"site: lab\ncases: [x]\n"}, keys / "vendor.pem", keys / "buyer.pem"
    )
    assert verify(runs.packed(added, tmp_path / "added.zip"), keys) == 1
    assert (
        "acceptance.yaml was added: no plan was in the ledger before the first job" in capsys.readouterr().out
    )


def test_a_decision_without_a_plan_is_named(
    accepted: Members, members: Members, keys: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    decision = json.loads(accepted[SUMMARY])["acceptance"]
    told = changed(members, SUMMARY, lambda summary: summary.update(acceptance=decision))
    forged = runs.signed(told, keys / "vendor.pem", keys / "buyer.pem")
    assert verify(runs.packed(forged, tmp_path / "told.zip"), keys) == 1
    assert "summary.json has a decision, and the run has no plan" in capsys.readouterr().out


# Signatures and keys.


def _envelope(members: Members, change: Callable[[dict[str, Any], dict[str, Any]], None]) -> Members:
    """With another envelope; `change` gets it and its payload."""
    envelope = json.loads(members[ENVELOPE])
    payload = json.loads(b64decode(envelope["payload"]))
    change(envelope, payload)
    envelope["payload"] = b64encode(json.dumps(payload, sort_keys=True).encode()).decode()
    return {**members, ENVELOPE: json.dumps(envelope).encode()}


STATEMENTS: dict[str, tuple[Callable[[dict[str, Any], dict[str, Any]], Any], str, int]] = {
    "a field of the statement": (
        lambda e, p: p["predicate"].update(site="other"),
        "signature is of another statement, or is damaged",
        1,
    ),
    "a signature was taken out": (lambda e, p: e["signatures"].pop(), "buyer.pub: its owner has not signed", 1),
    "no signature": (lambda e, p: e["signatures"].clear(), "vendor.pub: its owner has not signed", 1),
    "a signature twice": (lambda e, p: e["signatures"].append(e["signatures"][0]), "Multiple signatures found", 1),
    "a damaged signature": (
        lambda e, p: e["signatures"][0].update(sig=b64encode(bytes(64)).decode()),
        "vendor.pub: its owner's signature is of another statement, or is damaged",
        1,
    ),
    "another type of payload": (lambda e, p: e.update(payloadType="text/plain"), "its payload is of type text/plain", 1),
    "no in-toto statement": (lambda e, p: p.update(_type="x"), "its payload is no in-toto statement but x", 1),
    "a statement of another type": (
        lambda e, p: p.update(predicateType="https://slsa.dev/provenance/v1"),
        "its statement is of another type, https://slsa.dev/provenance/v1",
        1,
    ),
    "format 0": (
        lambda e, p: p.update(predicateType="urn:pacemark:run:0"),
        "its statement is of another type, urn:pacemark:run:0",
        1,
    ),
    "a format in other digits": (
        lambda e, p: p.update(predicateType="urn:pacemark:run:\u0661"),
        "its statement is of another type, urn:pacemark:run:",
        1,
    ),
    "a format with a zero before it": (
        lambda e, p: p.update(predicateType="urn:pacemark:run:01"),
        "its statement is of another type, urn:pacemark:run:01",
        1,
    ),
    "a format of many digits": (
        lambda e, p: p.update(predicateType="urn:pacemark:run:" + "9" * 5000),
        "its statement is of another type, urn:pacemark:run:9",
        1,
    ),
    "a field of the envelope that nobody signs": (
        lambda e, p: e.update(decision="accepted"),
        "it has a field or an encoding that nobody signs",
        1,
    ),
    "a field of a signature that nobody signs": (
        lambda e, p: e["signatures"][0].update(signer="the buyer"),
        "it has a field or an encoding that nobody signs",
        1,
    ),
    "a signature that is none": (
        lambda e, p: e["signatures"].append({"keyid": "f" * 64, "sig": b64encode(b"signed").decode()}),
        "a signature in it is none of Ed25519",
        1,
    ),
    "a signature of nobody": (
        lambda e, p: e["signatures"].append({"keyid": "the buyer", "sig": b64encode(bytes(64)).decode()}),
        "a signature in it is none of Ed25519",
        1,
    ),
    "an empty signature": (
        lambda e, p: e["signatures"].append({"keyid": "e" * 64, "sig": ""}),
        "a signature in it is none of Ed25519",
        1,
    ),
    "a newer format": (
        lambda e, p: p.update(predicateType="urn:pacemark:run:2"),
        "is of format 2, and this Pacemark knows 1: use a newer one",
        2,
    ),
    "a subject twice": (lambda e, p: p["subject"].append(p["subject"][0]), "its statement names", 1),
    "a subject whose name is a number": (
        lambda e, p: p["subject"][0].update(name=7),
        "7 is missing: the statement names it",
        1,
    ),
    "no subjects": (lambda e, p: p.pop("subject"), "it lacks 'subject'", 1),
    "no run": (lambda e, p: p["predicate"].update(run="../x"), "its statement names no run", 1),
    "a run whose name is a number": (lambda e, p: p["predicate"].update(run=7), "its statement names no run", 1),
}  # fmt: skip


@pytest.mark.parametrize(("change", "said", "status"), STATEMENTS.values(), ids=STATEMENTS)
def test_a_statement_that_was_changed_is_named(
    change: Callable[[dict[str, Any], dict[str, Any]], Any],
    said: str,
    status: int,
    members: Members,
    keys: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    made = runs.packed(_envelope(members, change), tmp_path / "other.zip")
    assert verify(made, keys) == status
    assert said in capsys.readouterr().out


def test_a_ledger_that_was_made_anew_proves_nothing(
    members: Members, keys: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = _journal(members, lambda lines: [*lines, {**lines[-1], "damage": ["line 3 has a wrong checksum"]}])
    mended = runs.signed(told, keys / "vendor.pem", keys / "buyer.pem")
    assert verify(runs.packed(mended, tmp_path / "mended.zip"), keys) == 2
    said = "jobs.log was damaged, so whether it has each submission is not known: line 3 has a wrong checksum"
    assert said in capsys.readouterr().out


def test_a_gap_in_the_journal_proves_nothing(
    members: Members, keys: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = lines_of(members[JOBS_LOG])
    between = next(row for row in rows if [job["status"] for job in row["jobs"]] == ["intent"])
    shorter = _journal(members, lambda rows: [row for row in rows if row != between])
    forged = runs.signed(shorter, keys / "vendor.pem", keys / "buyer.pem")
    assert verify(runs.packed(forged, tmp_path / "gap.zip"), keys) == 2
    said = f"llama3/{PASSED} try 1: jobs.log lacks a change of it: it was submitted, and no line says that it"
    assert said in capsys.readouterr().out


def test_what_this_version_does_not_know_proves_nothing(
    members: Members, keys: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A record of a newer schema, and a recipe that is nobody's."""
    for change, said in (
        (
            lambda m: changed(m, SUMMARY, lambda s: s.update(schema=2)),
            "summary.json is of schema 2, and this Pacemark knows 1",
        ),
        (_of_nobody, "this Pacemark has no recipe mine: it is judged by what the bundle says of it"),
    ):
        forged = runs.signed(change(members), keys / "vendor.pem", keys / "buyer.pem")
        assert verify(runs.packed(forged, tmp_path / "new.zip"), keys) == 2
        assert said in capsys.readouterr().out


def _of_nobody(members: Members) -> Members:
    """The same run of a recipe of another name."""
    renamed = {name.replace("llama3", "mine"): data for name, data in members.items()}
    for name, data in renamed.items():
        if name != ENVELOPE and not name.endswith("log.txt"):
            renamed[name] = data.replace(b"llama3", b"mine")
    return {**renamed, JOBS_LOG: log_of(lines_of(renamed[JOBS_LOG]))}


def test_the_files_of_a_mode_are_not_looked_for_by_the_pattern_of_another(
    members: Members, keys: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Such a pattern may take years."""
    case = "70b-profile-bf16-128gpus"
    renamed = {
        name.replace(SLOW, case): data.replace(SLOW.encode(), case.encode()) for name, data in members.items()
    }
    profiled = {**renamed, JOBS_LOG: log_of(lines_of(renamed[JOBS_LOG]))}
    slow = replaced(profiled, RECIPE, r"profile_.*\.nsys-rep", "(.|.)*x")
    for forged, status, said in (
        (slow, 1, f"llama3/{case}: summary.json says 'too slow', and it cannot be judged: its mode is not the published one"),
        (_of_nobody(slow), 2, f"mine/{case}: this Pacemark has no recipe mine, and looks for no files by another's patterns"),
    ):  # fmt: skip
        path = runs.packed(
            runs.signed(forged, keys / "vendor.pem", keys / "buyer.pem"), tmp_path / "slow.zip"
        )
        verified, out = verify(path, keys), capsys.readouterr().out
        assert said in out
        assert verified == status


def test_what_only_says_that_it_is_a_signature_does_not_keep_its_owner_from_signing(
    members: Members, keys: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fake = _envelope(members, lambda e, _: e["signatures"][1].update(sig=b64encode(bytes(64)).decode()))
    path = runs.packed(fake, tmp_path / "fake.zip")
    assert verify(path, keys) == 1
    assert main(["sign", str(path), "--key", str(keys / "buyer.pem")]) == 0
    assert verify(path, keys) == 0
    assert main(["sign", str(path), "--key", str(keys / "buyer.pem")]) == 2
    assert "this key has signed already" in capsys.readouterr().err


def test_the_signature_of_another_bundle_is_none(
    members: Members, keys: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    slow = replaced(members, f"llama3/{SLOW}/log.txt", "s: 16.1", "s: 17.1", 99)
    other = json.loads(runs.signed(slow, keys / "vendor.pem", keys / "buyer.pem")[ENVELOPE])
    swapped = _envelope(members, lambda envelope, _: envelope.update(signatures=other["signatures"]))
    assert verify(runs.packed(swapped, tmp_path / "swapped.zip"), keys) == 1
    assert capsys.readouterr().out.count("signature is of another statement, or is damaged") == 2
    whole = {**members, ENVELOPE: json.dumps(other).encode()}
    assert verify(runs.packed(whole, tmp_path / "whole.zip"), keys) == 1
    assert f"llama3/{SLOW}/log.txt is not what was signed" in capsys.readouterr().out


def test_one_party_that_signs_a_change_alone_is_not_enough(
    members: Members, keys: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    faster = replaced(members, f"llama3/{SLOW}/log.txt", "s: 16.1", "s: 14.6", 99)
    path = runs.packed(runs.signed(faster, keys / "vendor.pem"), tmp_path / "alone.zip")
    assert verify(path, keys) == 1
    assert "buyer.pub: its owner has not signed" in capsys.readouterr().out


def test_without_a_key_nobody_can_tell_who_made_it(
    bundle: Path, keys: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["verify", str(bundle)]) == 2
    out = capsys.readouterr().out
    assert "no --key was given, and it carries 2 signature(s): who made this bundle is not known" in out
    assert verify(bundle, keys, "vendor") == 0
    assert "1 more signature(s), by keys that were not given" in capsys.readouterr().out
    assert verify(bundle, keys, "vendor", "other") == 1
    assert "other.pub: its owner has not signed" in capsys.readouterr().out


def test_a_key_that_cannot_verify_is_refused(
    bundle: Path, keys: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rsa = generate_private_key(public_exponent=65537, key_size=2048).public_key()
    (tmp_path / "rsa.pub").write_bytes(rsa.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    (tmp_path / "text.pub").write_text("hello")
    (tmp_path / "same.pub").write_bytes((keys / "vendor.pub").read_bytes())
    for given, said in (
        ([tmp_path / "rsa.pub"], "rsa.pub: is no Ed25519 key"),
        ([tmp_path / "text.pub"], "text.pub: is no public key in PEM"),
        ([keys / "vendor.pem"], "vendor.pem -pubout makes the public one"),
        ([tmp_path / "none.pub"], "none.pub: cannot be read"),
        ([keys / "vendor.pub", tmp_path / "same.pub"], "two of these files have the same key"),
    ):
        assert main(["verify", str(bundle), *(word for path in given for word in ("--key", str(path)))]) == 2
        assert said in capsys.readouterr().err


# The archive itself.


def _entry(
    name: str, *, mode: int = stat.S_IFREG | 0o644, method: int = zipfile.ZIP_DEFLATED
) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name)
    entry.external_attr, entry.compress_type = mode << 16, method
    return entry


def _with(*entries: tuple[zipfile.ZipInfo | str, bytes]) -> Callable[[bytes, Members], bytes]:
    return lambda data, members: runs.raw_zip([*members.items(), *entries])


def _encrypted(data: bytes, members: Members) -> bytes:
    made = bytearray(runs.raw_zip([("a", b"x")]))
    made[made.index(b"PK\x01\x02") + 8] |= 1
    made[6] |= 1
    return bytes(made)


def _declared(size: int) -> Callable[[bytes, Members], bytes]:
    """The first member says in both of its headers that it is so large."""

    def change(data: bytes, members: Members) -> bytes:
        made = bytearray(runs.raw_zip([("a", bytes(100_000)), *members.items()]))
        at = made.index(b"PK\x01\x02")
        made[22:26] = made[at + 24 : at + 28] = struct.pack("<I", size)
        return bytes(made)

    return change


def _between(data: bytes, members: Members) -> bytes:
    """Behind the last member, there is one that the list of members does not have."""
    hidden = runs.raw_zip([("hidden", b"x")])
    end = data.rindex(b"PK\x05\x06")
    (at,) = struct.unpack("<I", data[end + 16 : end + 20])
    moved = data[at : end + 16] + struct.pack("<I", at + len(hidden)) + data[end + 20 :]
    return data[:at] + hidden + moved


def _flipped(data: bytes, members: Members) -> bytes:
    with zipfile.ZipFile(io.BytesIO(data)) as found:
        entry = found.getinfo(f"llama3/{SLOW}/log.txt")
        at = entry.header_offset + 30 + len(entry.filename) + 20 + entry.compress_size // 2
    return data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :]


def _commented(name: str) -> zipfile.ZipInfo:
    entry = _entry(name)
    entry.comment = b"passed"
    return entry


def _renamed(name: str) -> zipfile.ZipInfo:
    """With the field by which Info-ZIP gives a member another name."""
    entry, other = _entry(name), b"report.html"
    entry.extra = struct.pack("<HHBL", 0x7075, 5 + len(other), 1, zlib.crc32(name.encode())) + other
    return entry


def _resized(data: bytes, members: Members) -> bytes:
    made = bytearray(runs.raw_zip([("a", bytes(100_000)), *members.items()]))
    made[22:26] = struct.pack("<I", 5)
    return bytes(made)


def _padded(data: bytes, members: Members) -> bytes:
    """Behind the compressed data of the first member, its sizes count what no program decompresses."""
    made = runs.raw_zip([("a", bytes(100)), *members.items()])
    with zipfile.ZipFile(io.BytesIO(made)) as found:
        size = found.getinfo("a").compress_size
    packed = made[31 : 31 + size] + b"hidden"
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as stored:
        for member, data in (("a", packed), *members.items()):
            stored.writestr(member, data)
    whole = bytearray(file.getvalue())
    at = whole.index(b"PK\1\2")
    for head, fields in ((0, 8), (at, 10)):
        whole[head + fields : head + fields + 2] = struct.pack("<H", zipfile.ZIP_DEFLATED)
        whole[head + fields + 6 : head + fields + 10] = struct.pack("<L", zlib.crc32(bytes(100)))
        whole[head + fields + 14 : head + fields + 18] = struct.pack("<L", 100)
    return bytes(whole)


ARCHIVES: dict[str, tuple[Callable[[bytes, Members], bytes], str]] = {
    "cut off": (lambda data, _: data[: len(data) // 2], "is no whole ZIP file"),
    "empty": (lambda data, _: b"", "is no whole ZIP file"),
    "no ZIP file": (lambda data, _: b"hello" * 99, "is no whole ZIP file"),
    "a bit of the compressed data": (_flipped, f"llama3/{SLOW}/log.txt: it "),
    "a path to above": (_with(("../../x", b"x")), "../../x: it would be outside of the bundle's folder"),
    "a path to above in the midst": (_with(("llama3/../../x", b"x")), "it would be outside of the bundle's folder"),
    "an absolute path": (_with(("/etc/passwd", b"x")), "/etc/passwd: it would be outside of the bundle's folder"),
    "a backslash": (_with((_entry("..\\x"), b"x")), "a member cannot have this name"),
    "a drive": (_with(("C:x", b"x")), "a member cannot have this name"),
    "a name with a control character": (_with(("a\x1b[2J", b"x")), "a member cannot have this name"),
    "a name with a line feed": (_with(("a\nresult    VERIFIED", b"x")), "a member cannot have this name"),
    "a name of many bytes": (_with(("é" * 200, b"x")), "a member cannot have this name"),
    "many folders": (_with(("a/" * 100 + "a", b"x")), "it is below more than 7 folders"),
    "a long name": (_with(("a" * 300, b"x")), "a member cannot have this name"),
    "a link": (_with((_entry("link", mode=stat.S_IFLNK | 0o777), b"/etc/passwd")), "link: it is no plain file"),
    "a folder": (_with((_entry("folder/", mode=stat.S_IFDIR | 0o755), b"")), "folder/: it is no plain file"),
    "a device": (_with((_entry("device", mode=stat.S_IFBLK | 0o600), b"")), "device: it is no plain file"),
    "a name twice": (_with((SUMMARY, b"{}")), f"{SUMMARY}: two members have this name"),
    "a name in other letters": (_with(("Summary.json", b"{}")), "is the same name on some file systems"),
    "a file as a folder": (_with((f"{SUMMARY}/x", b"x")), f"{SUMMARY}: it is a file and a folder"),
    "encrypted": (_encrypted, "a: it is encrypted"),
    "another compression": (
        _with((_entry("a", method=zipfile.ZIP_BZIP2), b"x")),
        "a: it is compressed in another way than Deflate",
    ),
    "a bomb that says so": (_with(("a", bytes(200 << 20))), "too many for "),
    "a bomb of sizes": (_declared(0xFFFFFFF0), "too many for "),
    "more bytes than it says": (_declared(10), "a: it has more bytes than the archive says"),
    "fewer bytes than it says": (_declared(200_000), "a: it is 100,000 bytes shorter than the archive says"),
    "another archive before it": (lambda data, members: runs.raw_zip([*members.items()]) + data, "it has bytes of no member"),
    "a member that is in no list": (_between, "it has bytes of no member before its list of members"),
    "bytes after its end": (lambda data, _: data + b"x", "it has bytes after its list of members"),
    "a page after its end": (lambda data, _: data + b"PK\3\4<html>" * 9, "it has bytes after its list of members"),
    "an archive comment": (
        lambda data, _: data[:-2] + struct.pack("<H", 6) + b"passed",
        "it has bytes after its list of members, or an archive comment",
    ),
    "another end after its end": (lambda data, _: data + data[-22:], "is no whole ZIP file"),
    "bytes between its list and its end": (lambda data, _: data[:-22] + b"hidden" + data[-22:], "is no whole ZIP file"),
    "a comment of a member": (_with((_commented("a"), b"x")), "a: it has a comment or an extra field, which nobody signs"),
    "another name in Unicode": (_with((_renamed("a"), b"x")), "a: it has a comment or an extra field, which nobody signs"),
    "bytes after the end of compressed data": (_padded, "a: it cannot be decompressed: it has bytes after its end"),
    "another size in a member's own header": (_resized, "a: its own header says otherwise than the list of members"),
    "fewer members than it has": (
        lambda data, _: data[:-14] + struct.pack("<HH", 3, 3) + data[-10:],
        "its end is not that of its list of members",
    ),
    "many members": (
        lambda _, members: _many(),
        "members, more than 10",
    ),
}  # fmt: skip


def _many() -> bytes:
    return runs.raw_zip([(f"a{number}", b"") for number in range(11)])


@pytest.mark.parametrize("name", ARCHIVES)
@pytest.mark.filterwarnings("ignore:Duplicate name:UserWarning")
def test_an_archive_that_is_damaged_or_means_harm_is_named(
    name: str,
    bundle: Path,
    members: Members,
    keys: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    change, said = ARCHIVES[name]
    if name == "many members":
        monkeypatch.setattr(archive, "MOST_MEMBERS", 10)
    path = tmp_path / "odd.zip"
    path.write_bytes(change(bundle.read_bytes(), members))
    assert verify(path, keys) == 1
    out = capsys.readouterr().out
    assert said in out
    assert "\x1b" not in out
    assert out.splitlines()[-1] == "result    NOT VERIFIED"
    assert list(tmp_path.iterdir()) == [path]


def test_a_name_that_ends_at_a_nul_is_named(
    members: Members, keys: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "nul.zip"
    path.write_bytes(runs.raw_zip([*members.items(), ("a_b", b"x")]).replace(b"a_b", b"a\0b"))
    assert verify(path, keys) == 1
    assert r"a\x00b: a member cannot have this name" in capsys.readouterr().out
