"""What a dead job said besides its log: which lines are shown, and what they tell of its nodes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from plugins.isolation.probes import Answer, Ending
from plugins.judging.choice import Choice, Setting
from plugins.judging.complaints import complaints
from plugins.judging.evidence import read_evidence
from plugins.judging.job_files import ParsedLogs
from plugins.judging.job_words import symptoms
from plugins.judging.judge import judge
from plugins.judging.verdicts import Verdict
from plugins.logs import Log, Step
from plugins.logs.formats import parser
from plugins.recipes.cases import Recipe
from plugins.record.folder import LOG
from plugins.record.job import Job, JobRef, JobState
from plugins.record.outcome import Isolated, Outcome
from plugins.record.verdict import Kind
from tests.printed import nemo1
from tests.unit import examples
from tests.unit.examples import outcome
from tests.unit.stated import STARTING

CRASH = "srun: error: gpu002: task 11: Exited with exit code 1"
# As srun ends the others then.
AFTERMATH = (
    "srun: Terminating StepId=17.0",
    "slurmstepd: error: *** STEP 17.0 ON gpu001 CANCELLED AT 2026-11-22T07:00:00 ***",
    "srun: error: gpu001: tasks 0-7: Terminated",
    "srun: error: gpu002: tasks 8-10,12-15: Killed",
    "srun: error: gpu003: tasks 16-23: Exited with exit code 143",
    "srun: Force Terminated StepId=17.0",
)


def found(*lines: str) -> list[str]:
    return [line.decode() for line in complaints("\n".join(lines).encode())]


@pytest.mark.parametrize("program", ["srun", "/usr/bin/srun"])
def test_whatever_srun_says_is_a_complaint(program: str) -> None:
    said = (f"{program}: unrecognized option '--container-image'", 'Try "srun --help" for more information')
    assert found("+ srun --container-image i.sqsh ./train", *said, "+ exitcode=255") == [said[0]]
    traced = ("+ srun --error e --kill-on-bad-exit=1 ./train", CRASH, "+ exitcode=1", 'echo "job exited"')
    assert found(*traced) == [CRASH]


def test_what_follows_from_the_first_failure_is_left_out() -> None:
    assert found("RuntimeError: NCCL error", CRASH, *AFTERMATH) == ["RuntimeError: NCCL error", CRASH]
    killed = "srun: error: gpu002: task 11: Killed"
    assert found(killed, *AFTERMATH) == [killed]
    # Slurm 22.05.
    assert found(killed, "srun: launch/slurm: _step_signal: Terminating StepId=17.1", *AFTERMATH[1:]) == [
        killed
    ]


def test_the_end_itself_is_shown_where_there_is_nothing_else() -> None:
    assert found(*AFTERMATH) == list(AFTERMATH)
    limit = "slurmstepd: error: *** JOB 17 ON gpu001 CANCELLED AT 2026-11-22T07:00:00 DUE TO TIME LIMIT ***"
    assert found(AFTERMATH[0], limit, *AFTERMATH) == [limit]
    assert found("out of memory", "", "bye") == ["out of memory", "bye"]


def test_the_lines_of_srun_on_many_nodes_leave_room_for_the_cause() -> None:
    """One for each of 64 nodes; eight lines are shown."""
    cause = "RuntimeError: CUDA error: uncorrectable ECC error encountered"
    ends = [f"srun: error: gpu{node:03d}: task {node}: Exited with exit code 1" for node in range(64)]
    assert found(cause, *ends) == [cause, *ends[:2], f"{ends[2]} (and 61 more such lines)"]
    assert found(cause, *ends[:3]) == [cause, *ends[:3]]


# What the jobs of a slow case told of some of its nodes, before any probe: never of a node that no line names.

PORT_ERROR = "{}:1:9 [0] transport/net_ib.cc:101 NCCL WARN NET/IB : mlx5_0:1 Got async event : port error\n"
CHANNEL = "{}:1:9 [0] NCCL INFO Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/0{}\n"
XID = "Nov 07 18:17:15 {} kernel: NVRM: Xid (PCI:0000:01:00): 79, GPU has fallen off the bus.\n"
STEP = "{}: completed step: {}, seconds: {}, TFLOP/s/device: 400.0, Tokens/s/device: 8000.0, total_weights: 100, loss: 9.1\n"


def on(nodes: str, *earlier: Job) -> Outcome:
    job = outcome()
    return replace(job, job=replace(job.job, state=replace(job.job.state, nodes=nodes)), earlier=earlier)


def log(text: str, log_format: str = "nemo2") -> Log:
    reader = parser(log_format)
    reader.feed(text.encode())
    read = reader.finish()
    return read if read.steps else replace(read, steps=(Step(49, 2.0),))


def test_an_error_is_told_of_its_node_unless_most_nodes_have_it() -> None:
    text = XID.format("gpu003") + "".join(PORT_ERROR.format(f"gpu00{n}") for n in (1, 2, 3))
    assert symptoms(on("gpu[001-004]"), log(text)) == ("XID 79 on gpu003",)
    for nodes in ("gpu[001-006]", "gpu[001-002]"):
        assert symptoms(on(nodes), log(PORT_ERROR.format("gpu002"))) == (
            "NCCL WARN NET/IB : mlx5_0:1 Got async event : port error on gpu002",
        )


def test_a_host_that_is_no_node_of_the_job_names_none() -> None:
    assert symptoms(on("gpu[001-004]"), log(XID.format("login1") + PORT_ERROR.format("worker-0"))) == ()
    pods = "gpu-1.a.internal, gpu-2.a.internal, gpu-3.a.internal, gpu-3.b.internal"
    assert symptoms(on(pods), log(XID.format("gpu-2"))) == ("XID 79 on gpu-2.a.internal",)
    assert symptoms(on(pods), log(XID.format("gpu-3"))) == ()


def test_a_network_that_one_node_alone_uses_is_told() -> None:
    text = "".join(CHANNEL.format(f"gpu00{n}", "" if n == 2 else "/GDRDMA") for n in (1, 2, 3))
    assert symptoms(on("gpu[001-003]"), log(text)) == ("network IB only on gpu002",)
    two = "".join(CHANNEL.format(f"gpu00{n}", "" if n == 2 else "/GDRDMA") for n in (1, 2))
    assert symptoms(on("gpu[001-002]"), log(two)) == ()


def test_the_slowest_process_is_on_the_host_behind_its_own_label_or_on_none() -> None:
    steps = "".join(
        STEP.format(rank, step, 2.3 if rank == 1 else 2.0) for step in range(9) for rank in range(3)
    )
    labels = "".join(f"{n}: {CHANNEL.format(f'gpu00{n + 1}', '/GDRDMA')}" for n in range(3))
    words = "process 1 of 3 took 2.3 s in step 8, the median is 2 s; it is on gpu002"
    nodes = on("gpu[001-003]")
    assert symptoms(nodes, log(labels + steps, "maxtext")) == (words,)
    # The rank of NCCL is no label: a process may have eight GPUs.
    bare = labels.replace("0: ", "").replace("1: ", "").replace("2: ", "")
    assert symptoms(nodes, log(bare + steps, "maxtext")) == ()
    # Another attempt may have run on other nodes.
    again = log(labels + steps + steps, "maxtext")
    assert again.earlier
    assert symptoms(nodes, again) == ()


def test_a_node_that_an_earlier_job_ended_on_is_told() -> None:
    state = JobState(nodes="gpu-2", raw="Failed")
    tried = Job(ref=JobRef("llama3", "70b", "pacemark-1", "17"), state=state, failure="infrastructure")
    tried = replace(tried, message="pod w-1 on gpu-2:\nOOMKilled")
    nodes = "gpu-1, gpu-2, gpu-3"
    assert symptoms(on(nodes, tried), log("")) == ("try 1 ended (pod w-1 on gpu-2: OOMKilled) on gpu-2",)
    for other in (replace(tried, failure="repeated"), replace(tried, state=replace(state, nodes=nodes))):
        assert symptoms(on(nodes, other), log("")) == ()


def test_symptoms_come_before_what_the_probes_answer() -> None:
    quiet = Isolated(Answer(Ending.CANNOT_TELL, "it is over"), 0, 0.0)
    assert quiet.headline == "cannot tell which node: it is over"
    telling = replace(quiet, symptoms=("XID 79 on gpu003",))
    assert telling.headline == f"the job itself told: XID 79 on gpu003; the probes: {quiet.headline}"


# What the end of a log tells, of a log alone: how its job ended, and lines that no step is read from

# As a job says of itself that it was ended, or died: slurmstepd, srun, Python, ProcessGroupNCCL.cpp (PyTorch 2.5), torchrun, bash.
ENDS = (
    "slurmstepd: error: *** STEP 99012.0 ON gpu001 CANCELLED AT 2026-10-07T09:40:10 DUE TO TIME LIMIT ***",
    "srun: error: gpu001: task 3: Aborted (core dumped)",
    "srun: error: gpu[001-064]: tasks 0-511: Exited with exit code 1",
    "[rank3]: Traceback (most recent call last):",
    "[rank0]:[E1007 09:30:10.1 ProcessGroupNCCL.cpp:616] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=9)",
    "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:",
    "W1007 09:30:10 torch/distributed/elastic/agent: Received Signals.SIGTERM death signal, shutting down workers",
    "train.sh: line 7: 4711 Segmentation fault      python train.py",
)
QUIET = (
    "[rank0]:[W1007 09:30:10.1 ProcessGroupNCCL.cpp:1168] Warning: destroy_process_group() was not called before program exit",
    "srun: error: If this is a warning, nothing ended",
    "[after training is done] datetime: 2026-10-07 09:30:12",
)


def judged(recipe: Recipe, case_id: str, text: str, folder: Path) -> Verdict:
    """The verdict on a log by the files of its case's folder, as a replay has them."""
    case = recipe.case(case_id)
    assert case is not None
    (folder / LOG).write_text(text)
    outcome = replace(examples.outcome(), folder=folder, log=folder / LOG)
    setting = Setting(recipe, Choice(), examples.BASELINES)
    return judge(read_evidence(case, outcome, setting, ParsedLogs())).verdict


@pytest.mark.parametrize("end", ENDS)
def test_a_job_that_broke_off_behind_its_last_step_is_remarked_on(end: str, tmp_path: Path) -> None:
    text = f"{examples.nemo2_text()}{QUIET[0]}\n{end}\nsrun: Force Terminated StepId=1.0\n"
    verdict = judged(examples.llama3(), examples.CASE, text, tmp_path)
    words = f'behind its last step the log says "{end}": the pace stands, but look at how the job ended'
    assert (verdict.kind, verdict.remarks) == (Kind.PASSED, (words,))


@pytest.mark.parametrize("end", QUIET)
def test_what_a_job_that_ended_well_prints_is_no_remark(end: str, tmp_path: Path) -> None:
    text = f"{ENDS[3]}\n{examples.nemo2_text()}{end}\n"
    verdict = judged(examples.llama3(), examples.CASE, text, tmp_path)
    assert (verdict.kind, verdict.remarks) == (Kind.PASSED, ())


def test_bars_that_no_step_is_read_from_are_quoted(tmp_path: Path) -> None:
    """Lightning's own bar in the place of NeMo 2's ProgressPrinter; then one of a thousand steps and more in NeMo 1."""
    bar = nemo1.bar(49, gbs=1024).strip()
    verdict = judged(examples.llama3(), examples.CASE, bar + "\n", tmp_path)
    assert verdict.headline.startswith(
        'invalid run: the log has no training step; none can be read from lines such as "'
    )
    assert bar[:60] in verdict.headline
    rounded = bar.replace("global_step=49.00", "global_step=9e+3")
    assert rounded != bar
    verdict = judged(examples.recipe_named("nemotron4"), "340b-bf16-128gpus", rounded + "\n", tmp_path)
    assert 'none can be read from lines such as "' in verdict.headline
    begun = f"{STARTING.format(512)}\n"
    for text, said in (
        ("starting\n", "the log has no training step"),
        (
            f"{begun}{examples.nemo2_text()}{begun}",
            "the last attempt has no training step; the one before it ended after step 49",
        ),
    ):
        assert judged(examples.llama3(), examples.CASE, text, tmp_path).headline == f"invalid run: {said}"
