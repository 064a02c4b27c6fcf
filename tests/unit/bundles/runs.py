"""A run of four cases that has ended, its bundle, and how somebody would change one."""

from __future__ import annotations

import io
import json
import os
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from fixtures.runs.ledger import Ledger
from fixtures.session.life import About, write_record
from plugins.acceptance.decision import decide, waivers
from plugins.acceptance.scaling import RunShown, Shown, curves, scaling_record
from plugins.base.errors import ConfigError
from plugins.bundle import archive, statement
from plugins.bundle.examination import examine
from plugins.bundle.findings import Examination
from plugins.judging.choice import Choice, Setting
from plugins.judging.evidence import read_evidence
from plugins.judging.job_files import ParsedLogs
from plugins.judging.judge import judge
from plugins.judging.rejudge import write_basis
from plugins.record.case import CaseRecord
from plugins.record.folder import LOG, SENT
from plugins.record.job import JobRef, JobState, Phase
from plugins.record.lines import JOBS_LOG
from plugins.record.outcome import outcome_of
from plugins.record.plan import PLAN, parse_plan
from plugins.record.summary import Ending
from plugins.record.verdict import Outcome
from plugins.reports.checkout import PUBLISHED
from plugins.suite.judged import write_case
from tests.printed import nemo2
from tests.unit import examples
from tests.unit.jobs_log import lines_of, planned

RUN = "20261122-120000-0123abcd"
PASSED, SLOW, AGAIN, STOPPED = "70b-bf16-64gpus", "70b-bf16-128gpus", "70b-fp8-512gpus", "70b-fp8-64gpus"
Members = dict[str, bytes]
Change = Callable[[Members], Members]


def log_of(case_id: str, slower: float = 1.0, steps: int = 50) -> bytes:
    case, pace = examples.case(case_id), examples.target(case_id).step_time * slower
    lines = [nemo2.nemo2_line(i, pace * (1 + 0.001 * (i % 3)), gbs=case.gbs) for i in range(steps)]
    start = f"All distributed processes registered. Starting with {case.gpus} processes"
    return "\n".join([start, *lines, ""]).encode()


PLAN_TEXT = f"""\
site: lab
cases: [llama3/{PASSED}, llama3/{SLOW}, llama3/{AGAIN}]
nodes: ["gpu[001-064]"]
tolerance: {{slower: 0.06}}
waivers:
  - case: llama3/{SLOW}
    verdicts: [too slow]
    reason: a rail is being replaced
    agreed_by: both parties
    until: 2099-12-31
"""


def ended(outcome: Outcome, exit_code: int, **more: Any) -> Ending:
    """How a session ended of which nothing else is told."""
    nothing: dict[str, Any] = dict.fromkeys(("regressions", "uncompared", "scaling"), ())
    nothing |= {"acceptance": None, "screening": None}
    return Ending(outcome=outcome, exit_code=exit_code, **{**nothing, **more})


def make_run(folder: Path, plan: str = "", *, repeated: bool = False, baselines: Path | None = None) -> Path:
    """The folder of a run on Slurm: one case passed, one is too slow, one ran twice, one was cancelled in the queue.

    With a plan there is no case that was cancelled. The case that ran twice had a node that went down, or, if it is
    `repeated`, a first run that did not decide. `baselines` has the tables, usually the published ones.
    """
    run = folder / RUN
    run.mkdir(parents=True)
    agreed = parse_plan(Path(PLAN), plan.encode()) if plan else None
    if agreed is not None:
        (run / PLAN).write_bytes(agreed.data)
    chosen = Choice(
        versions={"driver": "550.54"},
        agreed=agreed.plan.tolerance if agreed else None,
        by_expected=agreed is not None and agreed.plan.by == "expected",
    )
    recipe = examples.llama3()
    ledger = Ledger.create(run / JOBS_LOG, RUN, "lab", agreed.digest if agreed else "")
    cases = [examples.case(case_id) for case_id in (PASSED, SLOW, AGAIN, *([] if plan else [STOPPED]))]
    ledger.plan([planned(case, "slurm", f"pacemark-{RUN}.{case.recipe}-{case.id}") for case in cases])
    write_basis(run, Setting(recipe, chosen, baselines or examples.BASELINES))
    number = 100

    def job(case_id: str, log: bytes, phase: Phase, **ending: str) -> None:
        nonlocal number
        number += 1
        case = examples.case(case_id)
        place = run / case.key
        place.mkdir(parents=True, exist_ok=True)
        (place / SENT).write_text(f"#SBATCH --nodes={case.nodes(8)}\n")
        ledger.intend(case.key, "slurm.example")
        entry = ledger.entry(case.key)
        assert entry is not None
        ledger.submitted(JobRef(case.recipe, case.id, entry.ref.name, str(number), "/lustre/me"))
        if log:
            (place / LOG).write_bytes(log)
            ledger.observe(case.key, JobState(phase, phase.upper(), nodes="gpu[001-064]"), started=1.8e9)
        if not ending:
            ledger.end(case.key, ended=1.8e9 + 900)

    job(PASSED, log_of(PASSED), Phase.SUCCEEDED)
    job(SLOW, log_of(SLOW, 1.1), Phase.SUCCEEDED)
    if repeated:
        job(AGAIN, log_of(AGAIN, 1.052), Phase.SUCCEEDED, retried="yes")
    else:
        job(AGAIN, log_of(AGAIN, steps=20), Phase.FAILED, retried="yes")
    again = run / examples.case(AGAIN).key
    (again / "try-1").mkdir()
    for name in (SENT, LOG):
        (again / name).rename(again / "try-1" / name)
    if repeated:
        ledger.try_again(examples.case(AGAIN).key, (), "repeated", "not decided by one run", 1.8e9 + 300)
    else:
        ledger.try_again(examples.case(AGAIN).key, (), "infrastructure", "node gpu017 is down", 1.8e9 + 300)
    job(AGAIN, log_of(AGAIN), Phase.SUCCEEDED)
    if not plan:
        stopped = examples.case(STOPPED).key
        job(STOPPED, b"", Phase.QUEUED, cancelled="yes")
        ledger.cancel_asked(stopped)
        entry = ledger.entry(stopped)
        assert entry is not None
        ledger.cancel_confirmed({stopped: entry.state})
        ledger.end(stopped, "interrupted", "cancelled: the session was stopped", 1.8e9 + 1)
    ledger.finish()
    for case in cases[:3]:
        entry = ledger.entry(case.key)
        assert entry is not None
        outcome = outcome_of(entry, run / case.key, chosen.gpu_of(case), ledger.earlier(case.key))
        outcome = replace(outcome, versions=chosen.versions)
        setting = Setting(recipe, chosen, baselines or examples.BASELINES)
        write_case(judge(read_evidence(case, outcome, setting, ParsedLogs())))
    begun = datetime.fromtimestamp(ledger.run().started, UTC).date()

    def ending(records: Sequence[CaseRecord]) -> Ending:
        if agreed is None:
            return ended(Outcome.INTERRUPTED, 2)
        shown = {record.id: Shown.of(record) for record in records}
        scaling = curves(cases, shown, agreed.plan.scaling, waivers(agreed.plan, shown, begun))
        decision = decide(agreed, cases, RunShown(shown, begun), Outcome.PERFORMANCE)
        return ended(Outcome.PERFORMANCE, 0, acceptance=decision, scaling=scaling_record(scaling))

    about = About("lab", ledger.run().started, gpu_hours=ledger.gpu_hours())
    write_record(run, about, ledger.entries(), None, ending)
    return run


@dataclass(frozen=True)
class Made:
    """A run that has ended: its folder, and the files in it."""

    folder: Path
    members: Members

    @classmethod
    def of(cls, folder: Path) -> Made:
        files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
        return cls(folder, {str(path.relative_to(folder)): path.read_bytes() for path in files})

    def examined(
        self,
        above: Path,
        change: Change = dict,
        published: Path = PUBLISHED,
        predicate: Mapping[str, str] | None = None,
    ) -> Examination:
        """What is found of the run if somebody changed it who has all keys, and so may sign what he likes.

        A file that was not changed is a link to that of this run, so that its log need not be parsed anew.
        """
        run = lines_of(self.members[JOBS_LOG])[0]["run"]
        told = {"run": self.folder.name, "site": run["site"], "plan": run["plan"], **(predicate or {})}
        folder = above / told["run"]
        for name, data in change(self.members).items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if data is self.members.get(name):
                os.link(self.folder / name, path)
            else:
                path.write_bytes(data)
        findings = Examination()
        try:
            examine(folder, told, (published,), findings)
        except ConfigError as error:
            findings.wrong.append(str(error))
        return findings


def make_keys(folder: Path, *names: str) -> None:
    """`vendor.pem` and `vendor.pub` for each name."""
    for name in names:
        key = Ed25519PrivateKey.generate()
        private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        (folder / f"{name}.pem").write_bytes(private)
        (folder / f"{name}.pub").write_bytes(public)


def unpacked(bundle: Path) -> Members:
    with zipfile.ZipFile(bundle) as found:
        return {name: found.read(name) for name in found.namelist()}


def packed(members: Members, path: Path) -> Path:
    path.unlink(missing_ok=True)
    archive.write(path, members)
    return path


def signed(members: Members, *keys: Path, **predicate: Any) -> Members:
    """The members with a statement of their own, signed by these keys: what whoever has the keys can make."""
    _, _, told = statement.read(members[statement.ENVELOPE])
    others = {name: data for name, data in members.items() if name != statement.ENVELOPE}
    envelope = statement.make({n: archive.digest(d) for n, d in others.items()}, {**told, **predicate})
    for key in keys:
        statement.sign(envelope, key)
    return {**others, statement.ENVELOPE: statement.written(envelope)}


def changed(members: Members, name: str, change: Callable[[Any], Any]) -> Members:
    """The members with another value in one that is JSON. `change` returns the new value, or None if it changed the old."""
    value = json.loads(members[name])
    made = change(value)
    return {**members, name: json.dumps(value if made is None else made, indent=2).encode()}


def replaced(members: Members, name: str, old: str, new: str, times: int = 1) -> Members:
    assert old.encode() in members[name], old
    return {**members, name: members[name].replace(old.encode(), new.encode(), times)}


def raw_zip(entries: Sequence[tuple[zipfile.ZipInfo | str, bytes]]) -> bytes:
    """A ZIP file of these entries as they are, also of names that occur twice."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as made:
        for entry, data in entries:
            made.writestr(entry, data)
    return file.getvalue()
