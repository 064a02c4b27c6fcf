"""DLLogger's log: a record of the configuration and one for each step, in its file or in the output of the pod.

NVIDIA/dllogger 0478734 (dllogger/logger.py: JSONStreamBackend, StdOutBackend), NVIDIA/NeMo v2.0.0: nemo/utils/loggers/dllogger.py. Keys and shapes
are those of AI-Hypercomputer/gpu-recipes: src/utils/training_metrics/examples/dllogger.json. The pod's output begins with the launcher's words.
"""

from __future__ import annotations

import datetime
import json

from tests.fuzz import words
from tests.fuzz.job import DAY, Job, Page, after_start

JSON = dict[str, object]


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


def record(job: Job, step: int | str, data: JSON, moment: datetime.datetime) -> str:
    if job.style.stdout:
        # The metric's unit, which is empty, stands behind a blank.
        shown = " ".join(f"{key} : {value} " for key, value in data.items())
        return f"DLL {moment} - {step} {shown}"
    fields = {
        "timestamp": f"{moment.replace(tzinfo=datetime.UTC).timestamp():.6f}",
        "datetime": f"{moment}",
        "elapsedtime": f"{(moment - DAY).total_seconds():.6f}",
        "type": "LOG",
        "step": step,
        "data": data,
    }
    return "DLLL " + json.dumps(fields)


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
            words.lightning(page, job)
        if job.style.nccl:
            words.nccl(page, job, rng)
    if not job.style.bare:
        page.add(record(job, "PARAMETER", parameters_of(job), after_start(33)))
        page.tell(
            sequence=case.sequence_length,
            layers=case.model.layers,
            dtype=case.dtype == "fp8",
            tp=case.tp,
            pp=case.pp,
            cp=case.cp,
        )
        page.tell(hidden=case.model.hidden, mbs=case.mbs, vp=case.vp)
    for index, (seconds, loss, moment) in enumerate(zip(job.means(), job.losses, job.moments(), strict=True)):
        data: JSON = {
            "reduced_train_loss": loss,
            "lr": 7.826087085049949e-07 * index,
            "global_step": float(index),
            "consumed_samples": float((index + 1) * case.gbs),
            "train_backward_timing in s": 6.508827209472656e-05,
        }
        if rng.random() < 0.9:
            data["grad_norm"] = 7.8570404052734375 if loss == loss else loss
        data |= {"train_step_timing in s": seconds, "epoch": 0}
        page.steps.append([record(job, index, data, moment) + "\n"])
    if job.style.stdout:
        page.end("Training completed", "Pod on pacemark-workload-0-0.pacemark is exiting")
    page.tell(gbs=case.gbs)
    return page
