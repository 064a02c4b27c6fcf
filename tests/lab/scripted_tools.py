"""Plays sbatch, squeue, sacct, scontrol and scancel by a script: `scripted_tools.py FOLDER TOOL ARGUMENTS...`

Stands alone and uses only the standard library, as it is started for every call. In FOLDER: `script.json`, what to
play (`tests.lab.script.Script`), `jobs.json`, the jobs so far, `calls.jsonl`, every call, and `log.txt`, a whole
training log. Output, errors and exit codes for the options that Pacemark uses are those of Slurm 22.05; any
other option is an error, so that a test notices what nobody has looked up.
"""

import argparse
import contextlib
import fcntl
import io
import json
import os
import pwd
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

TITLES = {
    "JobArrayID": "JOBID",
    "Name": "NAME",
    "State": "STATE",
    "NodeList": "NODELIST",
    "Reason": "REASON",
    "StartTime": "START_TIME",
    "EndTime": "END_TIME",
    "SubmitTime": "SUBMIT_TIME",
    "RestartCnt": "RESTART_COUNT",
    "exit_code": "EXIT_CODE",
}
FIRST_ID = 4711
UNKNOWN_ID = "Invalid job id specified"

Job = dict[str, Any]
Fault = dict[str, Any]


class Scheduler:
    """The jobs and the script of one folder; made under the folder's lock."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.script: dict[str, Any] = json.loads((folder / "script.json").read_text())
        jobs = folder / "jobs.json"
        self.jobs: list[Job] = json.loads(jobs.read_text()) if jobs.exists() else []
        self.now = time.time()

    def calls(self, tool: str) -> int:
        """How often a tool has been called, with this call."""
        calls = (self.folder / "calls.jsonl").read_text().splitlines()
        return sum(json.loads(call)["tool"] == tool for call in calls)

    def save(self) -> None:
        # A test reads without the lock.
        fresh = self.folder / "jobs.json.new"
        fresh.write_text(json.dumps(self.jobs, indent=1))
        fresh.replace(self.folder / "jobs.json")

    def moment(self, job: Job) -> tuple[str, float, bool]:
        """State, share of the log that is written, and whether the job has ended."""
        ended = job["cancelled"] is not None and job["cancelled"] < self.end(job)
        age = (job["cancelled"] if ended else self.now) - job["submitted"]
        _, state, share = [step for step in self.script["timeline"] if step[0] <= age or step[0] == 0][-1]
        return ("CANCELLED", share, True) if ended else (state, share, self.now >= self.end(job))

    def ran(self, job: Job) -> bool:
        """Whether the job has ever been more than queued."""
        age = (self.now if job["cancelled"] is None else job["cancelled"]) - job["submitted"]
        return any(
            state != "PENDING" and (start <= age or start == 0) for start, state, _ in self.script["timeline"]
        )

    def start(self, job: Job, otherwise: str) -> str:
        """When the job began to run, in the form that the environment asks for."""
        return self.moment_of(job["submitted"]) if self.ran(job) else otherwise

    def ended(self, job: Job, otherwise: str) -> str:
        """When the job ended, in the same form."""
        if not self.moment(job)[2]:
            return otherwise
        return self.moment_of(min(self.end(job), job["cancelled"] or float("inf")))

    def moment_of(self, seconds: float) -> str:
        form = os.environ.get("SLURM_TIME_FORMAT", "%Y-%m-%dT%H:%M:%S")
        return time.strftime(form, time.localtime(seconds))

    def status(self) -> str:
        """The exit code of a job as squeue prints it before Slurm 23.02: as wait(2) gives it."""
        code, signal = map(int, self.script["exit_code"].split(":"))
        return str(signal or code << 8)

    def end(self, job: Job) -> float:
        """When the job ends by itself."""
        last: float = self.script["timeline"][-1][0]
        return job["submitted"] + last if self.script["ends"] else float("inf")

    def known(self, cluster: str) -> list[Job]:
        """The jobs in the controller's memory, their logs written as far as they have come."""
        for job in self.jobs:
            if job["submitted"] <= self.now:
                self.write(job)
        return [job for job in self.jobs if job["cluster"] == cluster and self.remembers(job)]

    def remembers(self, job: Job) -> bool:
        _, _, ended = self.moment(job)
        end = self.end(job) if job["cancelled"] is None else min(job["cancelled"], self.end(job))
        forgotten = self.script["forget_after"] is not None and ended
        return job["submitted"] <= self.now and not (
            forgotten and self.now > end + self.script["forget_after"]
        )

    def write(self, job: Job) -> None:
        _, share, ended = self.moment(job)
        text = (self.folder / "log.txt").read_bytes()
        path = Path(job["log"])
        path.parent.mkdir(parents=True, exist_ok=True)
        written = path.stat().st_size if path.exists() else 0
        with path.open("ab") as log:
            log.write(text[written : int(len(text) * share)])
        if ended and self.script["complaints"]:
            # The tasks' own, and srun's, which go to the batch script's output.
            Path(job["errors"]).write_text(self.script["traceback"])
            Path(job["batch_output"]).write_text(self.script["complaints"])

    def shown(self, job: Job) -> list[tuple[str, str]]:
        """What squeue calls the job's parts, and their raw ids: several for an array or a heterogeneous job."""
        number = job["id"]
        if self.script["kind"] == "array" and self.moment(job)[0] == "PENDING":
            return [(f"{number}_[0-1]", f"{number}")]
        if self.script["kind"] == "array":
            return [(f"{number}_1", f"{number}"), (f"{number}_0", f"{number + 1}")]
        if self.script["kind"] == "het":
            return [(f"{number}+0", f"{number}"), (f"{number}+1", f"{number + 1}")]
        return [(f"{number}", f"{number}")]


def sbatch(scheduler: Scheduler, argv: list[str], fault: Fault) -> None:
    options = argparse.ArgumentParser(prog="sbatch", allow_abbrev=False)
    options.add_argument("--parsable", action="store_true", required=True)
    options.add_argument("--requeue", action="store_true")
    options.add_argument("--no-requeue", action="store_true")
    options.add_argument("--output", default="slurm-%j.out")
    options.add_argument("-A")
    options.add_argument("-p")
    options.add_argument("-N")
    options.add_argument("script", type=Path)
    given = options.parse_args(argv)
    number = FIRST_ID + 10 * len(scheduler.jobs)
    # As srun does it, where the batch script leaves the log's place to the environment.
    log = os.environ.get("SLURM_STDOUTMODE", "/dev/null").replace("%j", str(number))
    job = {
        "id": number,
        "name": os.environ["SBATCH_JOB_NAME"],
        "submitted": scheduler.now + scheduler.script["appears_after"],
        "cancelled": None,
        "cluster": scheduler.script["cluster"],
        "log": log,
        "batch_output": str(Path(given.output.replace("%j", str(number))).absolute()),
        "errors": os.environ.get("SLURM_STDERRMODE", "/dev/null").replace("%j", str(number)),
    }
    scheduler.jobs.append(job)
    scheduler.save()
    print(scheduler.script["reply"].format(id=number))


def squeue(scheduler: Scheduler, argv: list[str], fault: Fault) -> None:
    options = argparse.ArgumentParser(prog="squeue", allow_abbrev=False)
    options.add_argument("--noheader", action="store_true")
    options.add_argument("--all", action="store_true")
    options.add_argument("--states", choices=["all"], required=True)
    options.add_argument("--Format", required=True)
    options.add_argument("--jobs")
    options.add_argument("--user", type=user_name)
    options.add_argument("--name")
    options.add_argument("--clusters", default="")
    given = options.parse_args(argv)
    wanted = given.jobs.split(",") if given.jobs else None
    jobs = scheduler.known(given.clusters)
    jobs = [job for job in jobs if wanted is None or str(job["id"]) in wanted]
    if wanted is not None and len(wanted) == 1 and not jobs:
        fail(f"slurm_load_jobs error: {UNKNOWN_ID}")
    columns = [column.partition(":")[0] for column in given.Format.split(",")]
    if not given.noheader:
        print("|".join(TITLES[column] for column in columns))
    for job in jobs:
        state, _, _ = scheduler.moment(job)
        for shown, _ in scheduler.shown(job):
            if given.name in (None, named(scheduler, job)) and given.user in (None, owner(scheduler, job)):
                fields = {
                    "JobArrayID": shown,
                    "Name": named(scheduler, job),
                    "State": state,
                    "NodeList": "" if state == "PENDING" else scheduler.script["nodes"],
                    "Reason": scheduler.script["reason"],
                    "StartTime": scheduler.start(job, "N/A"),
                    "EndTime": scheduler.ended(job, "N/A"),
                    "SubmitTime": scheduler.moment_of(job["submitted"]),
                    "RestartCnt": "0",
                    "exit_code": scheduler.status(),
                }
                print("|".join(fields[column] for column in columns))


def sacct(scheduler: Scheduler, argv: list[str], fault: Fault) -> None:
    options = argparse.ArgumentParser(prog="sacct", allow_abbrev=False)
    options.add_argument("-D", action="store_true")
    options.add_argument("-X", action="store_true", required=True)
    options.add_argument("-P", action="store_true", required=True)
    options.add_argument("--noheader", action="store_true", required=True)
    options.add_argument("--jobs")
    options.add_argument("--name")
    options.add_argument("--starttime")
    options.add_argument("--format", required=True)
    given = options.parse_args(argv)
    for job in scheduler.jobs:
        state, _, _ = scheduler.moment(job)
        wanted = (
            str(job["id"]) in given.jobs.split(",") if given.jobs else named(scheduler, job) == given.name
        )
        if state == "CANCELLED":
            state = f"CANCELLED by {os.getuid()}"
        if wanted and not scheduler.script["purged"]:
            fields = {
                "JobIDRaw": str(job["id"]),
                "JobName": named(scheduler, job),
                "State": scheduler.script["accounted"] or state,
                "NodeList": scheduler.script["nodes"] if scheduler.ran(job) else "None assigned",
                "ExitCode": scheduler.script["exit_code"],
                "Start": scheduler.start(job, "Unknown"),
                "End": scheduler.ended(job, "Unknown"),
            }
            print("|".join(fields[name] for name in given.format.split(",")))


def scontrol(scheduler: Scheduler, argv: list[str], fault: Fault) -> None:
    options = argparse.ArgumentParser(prog="scontrol", allow_abbrev=False)
    options.add_argument("--oneliner", action="store_true")
    options.add_argument("--all", action="store_true")
    options.add_argument("show", choices=["show"])
    options.add_argument("what", choices=["job", "partition", "config"])
    options.add_argument("which", nargs="?")
    given = options.parse_args(argv)
    if given.what == "config":
        print("ClusterName             = scripted")
        return
    if given.what == "partition":
        print(f"PartitionName={given.which}\n   State=UP")
        return
    found = [job for job in scheduler.known("") if str(job["id"]) == given.which]
    if not found:
        fail(f"slurm_load_jobs error: {UNKNOWN_ID}")
    for job in found:
        fields = {
            "JobId": job["id"],
            "JobName": named(scheduler, job),
            "JobState": scheduler.moment(job)[0],
            "Reason": scheduler.script["reason"],
            "ExitCode": scheduler.script["exit_code"],
            "NodeList": scheduler.script["nodes"],
            "StdOut": job["batch_output"],
        }
        print((" " if given.oneliner else "\n   ").join(f"{key}={value}" for key, value in fields.items()))


def scancel(scheduler: Scheduler, argv: list[str], fault: Fault) -> None:
    if argv == ["--version"]:
        print("slurm 22.05.8")
        return
    options = argparse.ArgumentParser(prog="scancel", allow_abbrev=False)
    options.add_argument("--user", type=user_name)
    options.add_argument("--name")
    options.add_argument("--clusters", default="")
    options.add_argument("ids", type=int, nargs="+")
    given = options.parse_args(argv)
    if fault:
        return
    known = {job["id"]: job for job in scheduler.known(given.clusters) if not scheduler.moment(job)[2]}
    # Without filters scancel is silent about ids that it does not know; with them not, but about those of others.
    if unknown := [job for job in given.ids if job not in known and (given.name or given.user)]:
        fail(f"scancel: error: Kill job error on job id {unknown[0]}: {UNKNOWN_ID}")
    for job in given.ids:
        ours = (
            job in known
            and given.name in (None, named(scheduler, known[job]))
            and given.user in (None, user())
        )
        if ours and not scheduler.script["cancel_ignored"]:
            known[job]["cancelled"] = scheduler.now
    scheduler.save()


TOOLS = {"sbatch": sbatch, "squeue": squeue, "sacct": sacct, "scontrol": scontrol, "scancel": scancel}


def turn(scheduler: Scheduler, tool: str) -> Fault:
    """The fault of a tool whose turn it is to fail; empty when it works."""
    fault: Fault = scheduler.script["faults"].get(tool, {})
    return fault if fault and (fault["calls"] is None or scheduler.calls(tool) <= fault["calls"]) else {}


def named(scheduler: Scheduler, job: Job) -> str:
    """The name under which the tools show a job. Its id passes to another one once squeue has shown it."""
    name: str = job["name"]
    if scheduler.calls("squeue") > 1 and scheduler.script["renamed"]:
        name = scheduler.script["renamed"]
    return name


def owner(scheduler: Scheduler, job: Job) -> str:
    """The user whose job it is. The job that an id passes to is another user's."""
    return "them" if named(scheduler, job) == scheduler.script["renamed"] else user()


def fail(text: str) -> NoReturn:
    print(text, file=sys.stderr)
    sys.exit(1)


def user() -> str:
    return pwd.getpwuid(os.getuid()).pw_name


def user_name(text: str) -> str:
    return pwd.getpwuid(int(text)).pw_name if text.isdecimal() else text


def main(folder: Path, tool: str, argv: list[str]) -> None:
    reply = io.StringIO()
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        scheduler = Scheduler(folder)
        call = {"tool": tool, "argv": argv, "time": scheduler.now, "pid": os.getpid()}
        with (folder / "calls.jsonl").open("a") as calls:
            calls.write(json.dumps(call) + "\n")
        fault = turn(scheduler, tool)
        try:
            with contextlib.redirect_stdout(reply):
                TOOLS[tool](scheduler, argv, fault)
        except SystemExit:
            if not fault:
                raise
    # Not under the lock: other calls go on meanwhile.
    time.sleep(fault.get("seconds", 0))
    if fault.get("error"):
        fail(fault["error"])
    if not fault.get("silent"):
        sys.stdout.write(reply.getvalue())


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3:])
