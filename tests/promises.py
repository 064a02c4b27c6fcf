"""What README promises, by name, each with the words that promise it. `tests/unit/test_docs.py` holds that a test proves each."""

from __future__ import annotations

PROMISES = {
    "launches published recipes": "launches **published pre-training recipes**",
    "on Kubernetes: a published recipe": "Google's Llama 3 70b for GKE A3 Mega, NeMo 24.07, in a JobSet",
    "a real training on this machine": "trains a small Llama decoder for 50 real steps",
    "no wrong pass: every step": "A run counts only if it has every step",
    "no wrong pass: the global batch size": "the right global batch size",
    "no wrong pass: a finite loss": "and a finite loss",
    "no wrong pass: a profiler": "A run with a profiler does not count",
    "no wrong pass: another job's log": "nor does another job's log",
    "no wrong pass: what a log states": "must agree with the case",
    "no wrong pass: one lucky step": "One lucky step does not make a case pass",
    "no wrong pass: one hiccup": "one hiccup does not make it fail",
    "no leaked job: recorded before it is submitted": "records it before it submits it",
    "no leaked job: Ctrl-C": "This holds for Ctrl-C (once or twice)",
    "no leaked job: Ctrl-C twice": "This holds for Ctrl-C (once or twice)",
    "no leaked job: SIGTERM": "SIGTERM",
    "no leaked job: -x": "`-x`",
    "no leaked job: a closed terminal": "a closed terminal without `nohup`",
    "no leaked job: an end that was not confirmed": "names each job whose end the cluster did not confirm",
    "no leaked job: --resume": "After `kill -9` or a lost laptop, `--resume` continues the run",
    "no leaked job: --sweep": "`--sweep` cleans up",
    "no leaked job: a hung collective": "A hung collective is ended in minutes",
    "no confusing failure: what was measured": "Each failure says what was measured, over which steps and on which nodes",
    "no confusing failure: what was expected": "It says what was expected, by which source, and how far off the run is",
    "no confusing failure: what the cluster said": "what the cluster said, the last lines of the log",
    "no confusing failure: two runs": "Two runs can be compared",
    "no confusing failure: a bundle": "every verdict is made again from the logs",
}
