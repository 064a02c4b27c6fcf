"""DLLogger's log: a record of the configuration and one for each step, in its file or in the output of the pod.

NVIDIA/dllogger 0478734 (dllogger/logger.py: JSONStreamBackend, StdOutBackend), NVIDIA/NeMo v2.0.0: nemo/utils/loggers/dllogger.py. Keys and shapes
are those of AI-Hypercomputer/gpu-recipes: src/utils/training_metrics/examples/dllogger.json. The pod's output begins with the launcher's words.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping
from typing import Any

from tests.printed import lightning, nccl
from tests.printed.run import DAY, Job, Page, after_start

JSON = dict[str, Any]


def parameters_of(job: Job) -> JSON:
    case, model = job.case, job.case.model
    return {
        "cfg/micro_batch_size": case.mbs,
        "cfg/global_batch_size": case.gbs,
        "cfg/context_parallel_size": case.cp,
        "cfg/tensor_model_parallel_size": case.tp,
        "cfg/pipeline_model_parallel_size": case.pp,
        "cfg/virtual_pipeline_model_parallel_size": case.vp if case.vp > 1 else None,
        "cfg/resume_from_checkpoint": None,
        "cfg/encoder_seq_length": case.sequence_length,
        "cfg/max_position_embeddings": case.sequence_length,
        "cfg/num_layers": model.layers,
        "cfg/hidden_size": model.hidden,
        "cfg/ffn_hidden_size": model.ffn,
        "cfg/num_attention_heads": model.heads,
        "cfg/num_query_groups": model.query_groups,
        "cfg/fsdp": False,
        "cfg/mcore_gpt": True,
        "cfg/transformer_engine": True,
        "cfg/fp8": case.dtype == "fp8",
        "cfg/fp8_e4m3": False,
        "cfg/fp8_hybrid": case.dtype == "fp8",
        "cfg/nsys_profile/enabled": job.nsys,
        "cfg/nsys_profile/trace": ["nvtx", "cuda"],
        "cfg/nsys_profile/start_step": 41,
        "cfg/nsys_profile/end_step": 43,
        "cfg/optim/name": "distributed_fused_adam",
        "cfg/data/data_impl": "mmap",
        "cfg/data/seq_length": case.sequence_length,
        "cfg/precision": "bf16-mixed",
    }


def data(index: int, seconds: float = 10.07, **changed: object) -> JSON:
    """Of a step, whose loss falls."""
    return {
        "reduced_train_loss": 7.97 - index / 100,
        "lr": 0.000008490565960528329,
        "global_step": float(index),
        "consumed_samples": (index + 1) * 1024.0,
        "train_backward_timing in s": 0.00005416870044427924,
        "grad_norm": 1.5,
        "train_step_timing in s": seconds,
        "epoch": 0,
    } | changed


def in_file(
    step: object,
    values: Mapping[str, object],
    *,
    timestamp: str = "1.5",
    moment: object = "x",
    elapsed: str = "2.5",
) -> str:
    """`JSONStreamBackend.log`."""
    fields = {
        "timestamp": timestamp,
        "datetime": str(moment),
        "elapsedtime": elapsed,
        "type": "LOG",
        "step": step,
        "data": values,
    }
    return f"DLLL {json.dumps(fields)}"


def in_output(
    step: object, values: Mapping[str, object], moment: object = "2024-10-10 21:24:01.952723"
) -> str:
    """`StdOutBackend.log`. A metric's unit, which is empty, stands behind a blank."""
    metrics = " ".join(f"{name} : {value} " for name, value in values.items())
    return f"DLL {moment} - {step} {metrics}"


CONFIGURATION: JSON = {
    "cfg/micro_batch_size": 1,
    "cfg/global_batch_size": 1024,
    "cfg/encoder_seq_length": 8192,
    "cfg/num_layers": 80,
    "cfg/fp8": True,
    "cfg/precision": "bf16-mixed",
}

STATED: JSON = CONFIGURATION | {
    "cfg/tensor_model_parallel_size": 4,
    "cfg/pipeline_model_parallel_size": 8,
    "cfg/virtual_pipeline_model_parallel_size": 5,
    "cfg/context_parallel_size": 1,
    "cfg/hidden_size": 8192,
    "cfg/ffn_hidden_size": 28672,
    "cfg/num_attention_heads": 64,
    "cfg/num_query_groups": 8,
    "cfg/fp8_hybrid": True,
    "cfg/nsys_profile/enabled": False,
}
"""The whole of what is compared, for llama3's 70b in FP8 on 512 GPUs."""


def _record(job: Job, step: int | str, values: JSON, moment: datetime.datetime) -> str:
    if job.style.stdout:
        return in_output(step, values, moment)
    stamps = {
        "timestamp": f"{moment.replace(tzinfo=datetime.UTC).timestamp():.6f}",
        "elapsed": f"{(moment - DAY).total_seconds():.6f}",
    }
    return in_file(step, values, moment=moment, **stamps)


def render(job: Job) -> Page:
    page, rng, case = Page(), job.rng(), job.case
    if job.style.stdout:
        page.add(
            "Pod on pacemark-workload-0-0.pacemark is running",
            "Pod is assigned job index of 0",
            "NeMo configuration file:",
            "| run:\n|   name: llama3_70b\n| trainer:\n|   devices: 8\n|   precision: bf16",
            "NeMo config overrides:",
            f"  trainer.max_steps={job.total}",
        )
        if job.style.stderr:
            lightning.start(page, job)
        if job.style.nccl:
            nccl.start(page, job, rng)
    if not job.style.bare:
        page.add(_record(job, "PARAMETER", parameters_of(job), after_start(33)))
        page.tell_of(case, "sequence layers hidden tp pp cp vp mbs")
        page.tell(dtype=case.dtype == "fp8")
    for index, (seconds, loss, moment) in enumerate(zip(job.means(), job.losses, job.moments(), strict=True)):
        values: JSON = {
            "reduced_train_loss": loss,
            "lr": 7.826087085049949e-07 * index,
            "global_step": float(index),
            "consumed_samples": float((index + 1) * case.gbs),
            "train_backward_timing in s": 6.508827209472656e-05,
        }
        if rng.random() < 0.9:
            values["grad_norm"] = 7.8570404052734375 if loss == loss else loss
        values |= {"train_step_timing in s": seconds, "epoch": 0}
        page.steps.append([_record(job, index, values, moment) + "\n"])
    if job.style.stdout:
        page.end("Training completed", "Pod on pacemark-workload-0-0.pacemark is exiting")
    page.tell(gbs=case.gbs)
    return page
