"""The line that each process of nemotron4 and maxtext_llama2 echoes first.

NVIDIA/dgxc-benchmarking v24.11.1 nemotron/configure.sh L87 to L127 and v25.01.1 maxtext/configure.sh L122 to L155, through bash's echo.
"""

from __future__ import annotations

IMAGES = {"nemo": ("24.09", "nvidia+nemo+24.09"), "maxtext": ("2024.12.09", "nvidia+jax+maxtext-2024.12.09")}


def info(
    framework: str,
    *,
    model: str,
    size: str,
    nodes: object,
    dtype: str,
    job: str,
    devices: object = 8,
    release: str = "25.01",
    config: str | None = None,
    more: str = "",
) -> str:
    """`config` are the arguments of the program, which tests of other facts leave out; `more` is what stands behind them."""
    version, image = IMAGES[framework]
    arguments = "" if config is None else f" OPTIMIZATION_CODE='' BASE_CONFIG='{config}'"
    return (
        f"GSW: MODEL={model} FRAMEWORK={framework} MODEL_SIZE={size} JOB_NUM_NODES={nodes} GPUS_PER_NODE={devices} DTYPE={dtype} "
        f"SYNTHETIC_DATA=True GSW_VERSION={release} FW_VERSION={version} IMAGE='/stage/{image}.sqsh' JOB_ID={job} JOB_MODE=training "
        f"OPTIMIZATION_NAME=''{arguments}{more}"
    )
