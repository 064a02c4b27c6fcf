"""Trees and archives as NVIDIA's llmb-run leaves them, of jobs that are made up.

NVIDIA/exemplar-performance e249aa3: cli/llmb-run/src/llmb_run/archive.py (the layout), run_config.py 276-412 (llmb-config); NeMo-Run
nemo_run/core/execution/slurm.py, `SlurmJobDetails` (names of logs); NVIDIA-NeMo/Megatron-Bridge b50da4c74
scripts/performance/setup_experiment.py 518 (the name of an experiment).
"""

from __future__ import annotations

import io
import tarfile
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from plugins.reports.checkout import PUBLISHED
from plugins.sources.registry import Candidate, Registry
from tests.printed.megatron_bridge import STATED, text_of

TOP = "llmb-archive-20260901T102030Z"
# By the recipe: llmb-run's key and name of the workload, and how an experiment calls the model.
WORKLOADS = {
    "deepseek_v3": ("pretrain_deepseek-v3", "deepseek-v3", "deepseek_v3"),
    "gpt_oss": ("pretrain_gpt_oss", "gpt_oss", "gpt_oss_{size}"),
    "kimi_k2": ("pretrain_kimi-k2", "kimi-k2", "kimi_k2"),
    "llama3": ("pretrain_llama3.1", "llama3.1", "llama3_{size}"),
    "nemotron3": ("pretrain_nemotron_3", "nemotron_3", "nemotron_3_{word}"),
    "nemotron_h": ("pretrain_nemotron-h", "nemotron-h", "nemotronh_{size}"),
    "qwen3": ("pretrain_qwen3", "qwen3", "qwen3_{size}_a3b"),
}
FAMILIES = tuple(WORKLOADS)
# Megatron-Bridge's words for a dtype.
DTYPES = {"mxfp8": "fp8_mx", "fp8_block": "fp8_sc"}


@cache
def registry() -> Registry:
    return Registry(PUBLISHED)


@cache
def candidate(key: str, release: str, gpu: str) -> Candidate:
    (found,) = (
        each
        for each in registry().candidates
        if (each.case.key, each.case.release, each.gpu) == (key, release, gpu)
    )
    return found


OLD = "26.06.01"
_KNOWN = {
    "gpt": ("gpt_oss/120b-bf16-64gpus", "gb200"),
    "kimi": ("kimi_k2/1t-mxfp8-256gpus", "gb300"),
    "llama": ("llama3/405b-nvfp4-256gpus", "gb200"),
    "proxy": ("deepseek_v3/671b-proxy-mxfp8-64gpus", "gb200"),
    "qwen": ("qwen3/30b-bf16-8gpus", "gb300"),
    "nano": ("nemotron3/30b-mxfp8-8gpus", "gb300"),
    "hybrid": ("nemotron_h/56b-fp8_cs-64gpus", "h100"),
}


def of(name: str) -> Candidate:
    """A case of release 26.06.01 by a short name."""
    key, gpu = _KNOWN[name]
    return candidate(key, OLD, gpu)


def whole_size(of: Candidate) -> str:
    return of.case.model_name.partition("-proxy")[0]


def experiment(of: Candidate) -> str:
    case = of.case
    size = whole_size(of)
    model = WORKLOADS[case.recipe][2].format(size=size, word="nano" if size == "30b" else "super")
    dtype = DTYPES.get(case.dtype, case.dtype)
    sizes = f"tp{case.tp}_pp{case.pp}_cp{case.cp}_vp{case.vp}_ep{case.ep}_etp1_mbs{case.mbs}_gbs{case.gbs}"
    return f"pretrain_{model}_{dtype}_gpus{case.gpus}_{sizes}"


def pace(of: Candidate) -> float:
    """Its published step time in s; of a case without one, any."""
    number = registry().number(of)
    return number.step_time if number else 40.0


_TEXTS: dict[tuple[str, float], bytes] = {}


def text(of: Candidate, slower: float = 1.0) -> bytes:
    """The log of a run that is so many times slower than published."""
    key = of.text, slower
    if key not in _TEXTS:
        _TEXTS[key] = text_of(of.case, pace(of) * slower, STATED[of.case.dtype]).encode()
    return _TEXTS[key]


def config(of: Candidate, job: int, **changed: Mapping[str, Any]) -> bytes:
    """What llmb-run writes when it has submitted the job, with these values changed, by their section."""
    case = of.case
    sections: dict[str, dict[str, Any]] = {
        "job_info": {
            "job_id": str(job),
            "user": "ada",
            "launcher_type": "megatron_bridge",
            "experiment_id": None,
        },
        "workload_info": {
            "framework": "megatron_bridge",
            "gsw_version": case.release,
            "workload_type": "pretrain",
            "synthetic_dataset": True,
        },
        "model_info": {
            "model_name": WORKLOADS[case.recipe][1],
            "model_size": whole_size(of),
            "dtype": "fp8" if "fp8" in case.dtype else case.dtype,
            "scale": case.gpus,
            "gpu_type": of.gpu,
        },
        "cluster_info": {"cluster_name": "north", "gpus_per_node": "4", "llmb_install": "/data/llmb"},
        "job_config": {
            "profile_enabled": False,
            "proxy": "proxy" in case.size,
            "env_overrides": {},
            "model_overrides": {},
            "mbridge_args": [],
        },
    }
    for section, values in changed.items():
        sections[section] |= values
    return yaml.safe_dump(sections, sort_keys=False).encode()


def folder(of: Candidate, at: int = 1756720000) -> str:
    name = experiment(of)
    return f"{WORKLOADS[of.case.recipe][0]}/experiments/{name}/{name}_{at}/{name}"


def log_name(of: Candidate, job: int, restart: int = 0) -> str:
    return f"{folder(of)}/log-lab-lab.{experiment(of)}_{job}_{restart}.out"


def job(of: Candidate, number: int, logs: Iterable[bytes], **changed: Mapping[str, Any]) -> dict[str, bytes]:
    """The files of a job with these logs, one for each start."""
    files = {f"{folder(of)}/llmb-config_{number}.yaml": config(of, number, **changed)}
    files |= {log_name(of, number, restart): log for restart, log in enumerate(logs)}
    files[f"{folder(of)}/sbatch_lab-lab.{experiment(of)}_{number}.out"] = b"srun: job step created\n"
    files[f"{folder(of)}/scripts/{experiment(of)}.sh"] = b"#!/bin/bash\n"
    return files


def write_tree(root: Path, files: Mapping[str, bytes]) -> Path:
    for name, data in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return root


def tar(files: Mapping[str, bytes], *special: tarfile.TarInfo, form: int = tarfile.PAX_FORMAT) -> bytes:
    """An archive as llmb-run makes it, sorted by name, then these members without data."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=form) as archive:
        top = tarfile.TarInfo(TOP)
        top.type = tarfile.DIRTYPE
        archive.addfile(top)
        for name, data in sorted(files.items()):
            member = tarfile.TarInfo(f"{TOP}/{name}")
            member.size, member.uname = len(data), "ada"
            archive.addfile(member, io.BytesIO(data))
        for member in special:
            archive.addfile(member)
    return made.getvalue()


def link(name: str, target: str, kind: bytes = tarfile.SYMTYPE) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, target
    return member


def zipped(files: Mapping[str, bytes]) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return made.getvalue()


def of_family(recipe: str, release: str) -> list[Candidate]:
    return [
        each for each in registry().candidates if (each.case.recipe, each.case.release) == (recipe, release)
    ]


def renamed(of: Candidate, **changed: Any) -> Candidate:
    return replace(of, case=replace(of.case, **changed))
