"""What the report says of a case's job: its lines, and the remarks on how it ran and ended. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from plugins.base.words import counted, nodes_in_words
from plugins.baselines.changes import mixed
from plugins.judging import identity
from plugins.judging.evidence import Evidence
from plugins.judging.model import uncounted
from plugins.judging.validity.run import listed, without_time
from plugins.judging.validity.times import clock_remark, even_remark
from plugins.logs import Attempt, Log
from plugins.recipes.cases import Case
from plugins.record.job import REPLAY, Job, node_list
from plugins.record.outcome import Outcome

SLOW_RANK = 0.02
"""If the step time of the slowest process is above the median of all by this share, a remark names the process."""

STEPS_SHARE = 1.3
START_SECONDS = 1800.0
"""If a job ran longer than this many times its steps, plus this many seconds for its start, a remark says so."""


def job_lines(outcome: Outcome) -> list[str]:
    """The lines of the report on the case's jobs, oldest first, and on the log; none if there was no job."""
    job = outcome.job
    if not job.ref.id:
        return []
    parts = [f"{job.ref.id} ({job.ref.name})"]
    if job.state.raw:
        parts.append(job.state.raw)
    if job.state.nodes:
        parts.append(f"nodes {nodes_in_words(job.state.nodes)}")
    if job.backend == REPLAY and job.state.reason:
        parts.append(job.state.reason)
    if job.times.queued is not None:
        parts.append(f"queued {job.times.queued:.0f} s")
    if job.times.ended and job.times.started:
        parts.append(f"ran {job.times.ended - job.times.started:.0f} s")
    if job.excluded:
        parts.append(f"without {','.join(job.excluded)}")
    lines = [_try_line(earlier) for earlier in outcome.earlier]
    lines.append(f"job       {', '.join(parts)}")
    if outcome.log:
        lines.append(f"log       {outcome.log}")
    return lines


def _try_line(job: Job) -> str:
    label = job.ref.label
    if job.excluded:
        label += f", without {','.join(job.excluded)}"
    return f"try {job.try_number}     {label}: {job.message or job.state.raw}"


def quotes(evidence: Evidence) -> list[str]:
    """The end of the log, and the errors outside it."""
    return [*(f"its log   | {line}" for line in evidence.last_lines), *error_quotes(evidence.errors)]


def error_quotes(errors: Sequence[str]) -> list[str]:
    return [f"its error | {line}" for line in errors]


def log_faults(outcome: Outcome) -> list[str]:
    """Why the log that was read may not be the job's own; empty if it is."""
    fault = outcome.job.log_fault
    return [f"the log on the cluster is not the one that was read: {fault}"] if fault else []


def how_it_died(case: Case, outcome: Outcome, log: Log) -> str:
    """`job 17 ended NODE_FAIL on gpu[001-064] after step 17 of 0 to 49 (exit code 1:0)`."""
    job, state, last = outcome.job, outcome.job.state, log.last_index
    words = f"job {job.ref.id} ended {state.raw or 'without a state'}"
    if state.nodes:
        words += f" on {nodes_in_words(state.nodes)}"
    if last is None:
        words += " before its first step"
    else:
        words += f" after step {last} of 0 to {case.steps - 1}"
    parts = []
    if state.reason:
        parts.append(f"reason {state.reason}")
    if state.exit_code:
        parts.append(f"exit code {state.exit_code}")
    if parts:
        words += f" ({', '.join(parts)})"
    return words


def remarks(evidence: Evidence) -> tuple[str, ...]:
    """What a reader must know of a job whose log is valid, whatever its verdict is."""
    case, outcome, log = evidence.case, evidence.outcome, evidence.log
    notes = (
        outcome.job.log_note,
        *_of_attempts(outcome.job, log),
        *mixed(outcome, log),
        _broken_off(evidence),
        _idle(case, outcome, log),
        identity.untold(case, log) or identity.anonymous(case, log),
        uncounted(case, log),
        clock_remark(case, log),
        even_remark(log),
        identity.garbled(log),
        _unproved(evidence),
        _slow_process(log),
        _garbled_steps(case, log),
    )
    return (*_of_jobs(outcome), *_of_end(case, outcome), *filter(None, notes))


def _unproved(evidence: Evidence) -> str:
    """The remark on a timed run over several nodes whose log does not tell which network it used; "" if it does."""
    expected, run = evidence.site.network, evidence.timed(evidence.own, evidence.numbers.statistic)
    if expected is None or run.nodes == 1 or run.within_nvlink or not run.case.is_timed:
        return ""
    processes = run.log.processes
    if any(process.channels for process in processes):
        return ""
    if any(process.networks for process in processes) and "/" not in expected:
        return ""
    return f"nothing in the log shows that the network was {expected}: NCCL says it with NCCL_DEBUG=INFO and NCCL_DEBUG_SUBSYS=INIT"


def _of_jobs(outcome: Outcome) -> list[str]:
    """The remarks on the case's jobs before this one, and on the nodes that they cost."""
    lines = []
    broken = [job for job in outcome.earlier if job.failure != "repeated"]
    if broken:
        reason = broken[-1].message or broken[-1].state.raw
        lines.append(
            f"{counted(len(broken), 'job')} of this case ended as infrastructure before, lastly: {reason}"
        )
    chosen = (*outcome.earlier, outcome.job)[0].excluded
    blamed = [node for node in outcome.job.excluded if node not in chosen]
    if chosen:
        lines.append(f"kept away from {','.join(chosen)}, by --exclude-nodes")
    if blamed:
        lines.append(f"kept away from {','.join(blamed)}, which the end of an earlier job is blamed on")
    used = [node for node in node_list(outcome.job.state.nodes) if node in chosen]
    if used:
        lines.append(f"it ran on {','.join(used)} all the same: its launcher did not pass that on")
    return lines


def _of_end(case: Case, outcome: Outcome) -> list[str]:
    """The remark on how this job ended."""
    job = outcome.job
    if job.failure == "hung":
        return [f"job {job.ref.id}: {job.message}; the pace of its steps stands"]
    if job.failure:
        return []
    if not outcome.succeeded:
        done = "every step is there, so the pace stands"
        if case.checkpoint:
            done = "its checkpoint is there"
        return [
            f"job {job.ref.id} ended {job.state.raw} (exit code {job.state.exit_code or 'unknown'}) after its last "
            f"step: {done}, but look at its clean-up"
        ]
    # The log that a replay judges is told with its job.
    return [job.state.reason] if job.state.reason and job.backend != REPLAY else []


def _broken_off(evidence: Evidence) -> str:
    """The remark on a job that counts as succeeded although its log says that it broke off; "" if the log does not."""
    if not evidence.broken_off or not evidence.outcome.succeeded:
        return ""
    return f'behind its last step the log says "{evidence.broken_off}": the pace stands, but look at how the job ended'


def _of_attempts(job: Job, log: Log) -> list[str]:
    """The remarks on a job that the cluster started again, or whose log has several attempts."""
    lines = []
    if job.attempts > 1:
        if job.times.seconds is not None and not job.times.earlier_seconds:
            lines.append(
                "its GPU-hours are of its last attempt: the cluster does not tell how long the others ran"
            )
        lines.append(f"the job was started {job.attempts} times; judged by its last attempt")
    if log.earlier:
        ends = ", ".join(_end_of(attempt) for attempt in log.earlier)
        lines.append(f"training started over in the same log (after {ends}); judged by the last attempt")
    return lines


def _end_of(attempt: Attempt) -> str:
    """`step 17, at 2.041 s a step`."""
    if attempt.seconds is None:
        return f"step {attempt.last}"
    return f"step {attempt.last}, at {attempt.seconds:.4g} s a step"


def _idle(case: Case, outcome: Outcome, log: Log) -> str:
    """The remark on a job that ran far longer than its steps and a start take; "" if it did not."""
    times = outcome.job.times
    if times.started is None or times.ended is None or outcome.job.attempts > 1 or not case.is_timed:
        return ""
    ran, steps = times.ended - times.started, case.means.every * sum(case.means.times(log.steps).values())
    if ran <= STEPS_SHARE * steps + START_SECONDS:
        return ""
    return f"the job ran {ran / 60:.0f} minutes, and its steps took {steps / 60:.1f} of them: look at what the others went into"


def _slow_process(log: Log) -> str:
    """The slowest process in the last step, if it is far behind the others; "" if none is."""
    last = log.steps[-1]
    if not (last.seconds and last.slowest_seconds and last.slowest_seconds > (1 + SLOW_RANK) * last.seconds):
        return ""
    process = "the slowest process"
    if last.slowest_rank is not None:
        process = f"process {last.slowest_rank}"
    return (
        f"{process} of {last.ranks} took {last.slowest_seconds:.4g} s in step {last.index}, the median is "
        f"{last.seconds:.4g} s"
    )


def symptoms(outcome: Outcome, log: Log) -> tuple[str, ...]:
    """What the jobs of the case tell of some of its nodes, and not of most, a text each. No peer is measured here."""
    nodes = node_list(outcome.job.state.nodes)
    # NCCL prints the name of a host up to its first dot. What several nodes share names none of them.
    short = [node.partition(".")[0] for node in nodes]
    node_of = {name: node for name, node in zip(short, nodes, strict=True) if short.count(name) == 1}
    node_of |= {node: node for node in nodes}
    errors = [error for error in log.symptoms if error.host in node_of]
    count = Counter(error.kind for error in errors)
    parts = [(error.host, f"{error.words} on") for error in errors if 2 * count[error.kind] <= len(nodes)]
    parts += [(host, f"network {name} only on") for host, name in _single_networks(log)]
    slow, slowest = _slow_process(log), log.steps[-1].slowest_rank
    if slow and not log.earlier:
        parts += [(host, f"{slow}; it is on") for label, host in log.hosts if label == slowest]
    for job in outcome.earlier:
        blamed = node_list(job.state.nodes)
        if job.failure != "repeated" and len(blamed) == 1:
            reason = " ".join((job.message or job.state.raw).split())
            parts.append((blamed[0], f"try {job.try_number} ended ({reason}) on"))
    return tuple(f"{words} {node_of[host]}" for host, words in parts if host in node_of and len(nodes) > 1)


def _single_networks(log: Log) -> Iterator[tuple[str, str]]:
    """Each host with the network of its channels that no other host uses, if there are more than two."""
    users: defaultdict[str, set[str]] = defaultdict(set)
    for process in log.processes:
        for network in process.channels:
            users[network].add(process.host)
    if len(set().union(*users.values())) > 2:
        yield from ((min(hosts), network) for network, hosts in users.items() if len(hosts) == 1)


def _garbled_steps(case: Case, log: Log) -> str:
    """Which steps have no time because of other output; "" if none."""
    garbled = [step.index for step in log.steps if step.seconds is None]
    if not garbled:
        return ""
    remark = f"{listed(garbled)}: {without_time(log, garbled)}; judged without"
    if case.means.computed:
        remark += (
            f", and where the printed means over {case.means.over} steps do not tell a single step, by what they do tell: "
            f"the mean of a few"
        )
    return remark
