"""What a session on Kubernetes asks of the API server: one job, many at once, and jobs that wait in Kueue's queue.

Counted by the API server's own audit log, by the session's user, which nobody else is. The cluster is the lab's.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from fixtures.runs.ledger import Ledger
from tests.bench import process
from tests.bench.checkout import ROOT
from tests.bench.process import Cost
from tests.bench.report import print_target
from tests.lab.k8s import programs
from tests.lab.k8s.cluster import KubernetesLab
from tests.system.kube import gke_site, items, left
from tests.system.kube_trial import make_queue, occupy
from tests.system.support import until

FEW, MANY = 1, 32
SHORT, LONG = 5.0, 30.0
LOGS_A_JOB = 6
_LOGS, _EARLY = "get pods/log", "get pods/log too early"
_WAITING = 8
_QUEUE = "a3-mega"
_STEP_SECONDS = 0.1
_CASE = (
    "  - {{size: s{n:02d}, model: 70b, dtype: [fp8], gpus: [8], sequence_length: 8192, tp: 1, pp: 1, cp: 1, vp: 1, mbs: 1, "
    "gbs: 1024}}"
)


@dataclass(frozen=True)
class Asked:
    """A session's requests by what they are, as `list pods`.

    `waited`: s in the queue of all its jobs at once. `waiting`: how many of the requests came in these.
    """

    jobs: int
    requests: Counter[str]
    cost: Cost
    left: int
    waited: float = 0.0
    waiting: int = 0

    @property
    def besides_logs(self) -> int:
        """All but those for logs: one that is silent is read besides."""
        return self.requests.total() - self.requests[_LOGS] - self.requests[_EARLY]


def make(folder: Path, jobs: int) -> Path:
    """A checkout whose only suite has `jobs` cases of one node each; all else of the recipe is as shipped."""
    folder.mkdir()
    for name in ("conftest.py", "pytest.ini", "plugins", "fixtures", "baselines"):
        (folder / name).symlink_to(ROOT / name)
    shipped, suite = ROOT / "suites" / "llama3_gke", folder / "suites" / "llama3_gke"
    suite.mkdir(parents=True)
    for name in ("manifest.yaml", "test_llama3_gke.py"):
        (suite / name).write_text((shipped / name).read_text())
    before, _, rest = (shipped / "recipe.yaml").read_text().partition("\ncases:\n")
    cases = "\n".join(_CASE.format(n=n) for n in range(jobs))
    behind = rest.partition("\n\n")[2]
    (suite / "recipe.yaml").write_text(f"{before}\ncases:\n{cases}\n\n{behind}")
    return folder


def session(lab: KubernetesLab, folder: Path, jobs: int, wait: float | None = None) -> Asked:
    """A session of `jobs` jobs; with `wait` all of them are in Kueue's queue together for that many seconds."""
    folder.mkdir()
    namespace = lab.namespace(f"bench-{folder.name}")
    go_on, waiting = None, 0
    if wait is not None:
        make_queue(lab, namespace, _QUEUE, 8 * jobs, topology=True)
        go_on = occupy(lab, namespace, jobs)
    lab.set(namespace, real_step=_STEP_SECONDS)
    site = gke_site(
        lab, namespace, folder, limits={"jobs_in_flight": jobs}, queue=_QUEUE if go_on is not None else None
    )
    running = process.pytest(make(folder / "checkout", jobs), folder / "pytest.out", "--site", str(site))
    if go_on is not None and wait is not None:
        until(lambda: len(items(lab, namespace, "workload")) == jobs + 1, f"{jobs} jobs in the queue")
        until(
            lambda: _suspended(folder / "checkout") == jobs, f"{jobs} jobs that the session knows to be there"
        )
        before = len(lab.requests(namespace))
        time.sleep(wait)
        waiting = len(lab.requests(namespace)) - before
        go_on()
    cost = running.wait()
    until(lambda: not left(lab, namespace), f"nothing left in {namespace}")
    if cost.status:
        sys.exit(f"status {cost.status}:\n{(folder / 'pytest.out').read_text()[-3000:]}")
    asked = Counter(_what(entry) for entry in lab.requests(namespace))
    return Asked(jobs, asked, cost, len(left(lab, namespace)), wait or 0.0, waiting)


def _suspended(checkout: Path) -> int:
    """How many jobs of the only session in this checkout wait in a queue, by its record."""
    jobs = Ledger(checkout / "results" / "latest" / "jobs.log").entries()
    return sum(job.state.raw == "Suspended" for job in jobs)


def _what(entry: dict[str, object]) -> str:
    """`list pods`, `get pods/log`; of what is no object its path.

    On a busy machine a pod runs for a while before the lab's kubelet knows its log: what was too early is told apart.
    """
    ref = entry.get("objectRef")
    if not isinstance(ref, dict) or "resource" not in ref:
        return f"{entry['verb']} {entry['requestURI']}"
    what = f"{entry['verb']} {ref['resource']}" + (f"/{ref['subresource']}" if "subresource" in ref else "")
    return _EARLY if what == _LOGS and "no logs found for container" in str(entry["responseStatus"]) else what


def main() -> None:
    if missing := programs.missing_parts():
        sys.exit("this bench needs " + "; ".join(missing))
    with tempfile.TemporaryDirectory() as name, KubernetesLab(nodes=64) as lab:
        folder = Path(name)
        few, many = (session(lab, folder / f"{jobs}-jobs", jobs) for jobs in (FEW, MANY))
        short, long = (session(lab, folder / f"{wait:.0f}-s", _WAITING, wait) for wait in (SHORT, LONG))
    ways = [few, many, short, long]
    names = [f"{FEW} job", f"{MANY} at once", f"queued {SHORT:g} s", f"queued {LONG:g} s"]
    for title, way in zip(names, ways, strict=True):
        counts = ", ".join(f"{what} {count}" for what, count in sorted(way.requests.items()))
        print(f"{title}, {way.cost.wall:.0f} s: {counts}")
    print_target(
        f"no more requests in {LONG:g} s of waiting than in {SHORT:g} s",
        long.besides_logs <= short.besides_logs,
        f"{long.besides_logs} and {short.besides_logs} for {_WAITING} jobs, without logs",
    )
    logs = many.requests[_LOGS]
    print_target(
        f"logs: {LOGS_A_JOB} requests for each job, however long it runs",
        logs <= LOGS_A_JOB * many.jobs,
        f"{logs} for {many.jobs} jobs in {many.cost.wall:.0f} s",
    )


if __name__ == "__main__":
    main()
