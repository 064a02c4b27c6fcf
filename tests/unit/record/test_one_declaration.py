"""A fact of a job is declared once: one more field of `Job` is in the log of jobs and in the records of cases."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from plugins.record import job
from tests.unit.examples import ROOT

FIELD = """
    celsius: float | None = field(
        default=None, metadata={LAST: Key("celsius", "Its hottest GPU.", required=False)}
    )
"""

# What a session does with a job, with the module of the job from another file.
PROGRAM = """
import importlib.util, json, sys
from pathlib import Path

spec = importlib.util.spec_from_file_location("plugins.record.job", sys.argv[1])
sys.modules[spec.name] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(sys.modules[spec.name])

from plugins.record.lines import Line, Run, parsed, written
from plugins.record.case import CaseRecord
from plugins.record.job import Job, JobRef
from plugins.record.stored import case_as_json, read_case, write_case
from tests.schema import schema

job = Job(ref=JobRef("llama3", "70b-fp8-512gpus", "a"), celsius=71.5)
run = Run(id="run-1", site="lab", home="/results/run-1", started=0.0)
record = CaseRecord.unjudged(job, "stopped")
write_case(Path(sys.argv[2]), record)
older = case_as_json(record)
del older["job"]["celsius"]
(Path(sys.argv[3]) / "case.json").write_text(json.dumps(older))
print(json.dumps({
    "log": parsed(written(Line(after="", at=0.0, run=run, jobs=(job,)))).jobs[0].celsius,
    "record": case_as_json(record)["job"]["celsius"],
    "read": read_case(Path(sys.argv[2])).job.celsius,
    "older": read_case(Path(sys.argv[3])).job.celsius,
    "schema": json.loads(schema())["$defs"]["JobRecord"]["properties"]["celsius"]["description"],
}))
"""


def test_one_more_fact_of_a_job_is_in_the_log_of_jobs_and_in_the_record_of_its_case(tmp_path: Path) -> None:
    source = Path(job.__file__).read_text()
    last = '    message: str = field(default="", metadata={'
    assert source.count(last) == 1
    edited = tmp_path / "job.py"
    edited.write_text(source.replace(last, f"{FIELD.lstrip(chr(10))}{last}"))
    folders = [tmp_path / "now", tmp_path / "older"]
    for folder in folders:
        folder.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(edited), *map(str, folders)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "log": 71.5,
        "record": 71.5,
        "read": 71.5,
        "older": None,
        "schema": "Its hottest GPU.",
    }
