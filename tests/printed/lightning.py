"""What Lightning and NeMo's logger print in the logs of NeMo 1, NeMo 2 and NeMo's DLLogger, to standard error.

Lightning-AI/pytorch-lightning 2.4.0: src/lightning/fabric/utilities/distributed.py L296 and L304 (processes),
src/lightning/pytorch/trainer/setup.py (devices), src/lightning/fabric/accelerators/cuda.py L163 (the type of GPU). NVIDIA/NeMo d2b21556:
nemo/utils/nemo_logging.py and nemo/utils/formatters/base.py (the head of a line).
"""

from __future__ import annotations

from tests.printed.run import Job, Page

RULE = "-" * 100


def noted(text: str, where: str = "nemo_logging:393", moment: object = "2025-04-11 14:48:45") -> str:
    """A line of NeMo's logger; `where` is the module and the line that says it."""
    return f"[NeMo I {moment} {where}] {text}"


def initializing(rank: int, world: object) -> str:
    """Each process says so."""
    return f"Initializing distributed: GLOBAL_RANK: {rank}, MEMBER: {rank + 1}/{world}"


def starting(world: object) -> str:
    """Rank 0 says so when all are there."""
    return f"All distributed processes registered. Starting with {world} processes"


def tensor_cores(device: str) -> str:
    """Only while float32's matrix products are at their highest precision."""
    return (
        f"You are using a CUDA device ('{device}') that has Tensor Cores. To properly utilize them, you should set "
        "`torch.set_float32_matmul_precision('medium' | 'high')` which will trade-off precision for performance."
    )


def start(page: Page, job: Job) -> None:
    world = job.case.gpus
    page.add(
        "GPU available: True (cuda), used: True",
        "TPU available: False, using: 0 TPU cores",
        "HPU available: False, using: 0 HPUs",
        *(initializing(rank, world) for rank in range(min(world, 4))),
        RULE,
        "distributed_backend=nccl",
        starting(world),
        RULE,
        "",
    )
    page.tell(processes=world)
    if job.seed % 3 == 0:
        page.add(tensor_cores(job.device))
        page.tell(gpu=job.device)
