"""The proxy's program without a GPU: it trains on CPU devices of jax."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from plugins.gpu.samples import parse_gpus

PROXY = Path(__file__).resolve().parents[2] / "suites" / "proxy"

BEGIN = """
import json, sys
sys.path.insert(0, sys.argv[1])
import jax, jax.numpy as jnp, moe, train
from argparse import Namespace
train.LEARNING_RATE = 3e-4  # three steps have to show it
jax.config.update("jax_num_cpu_devices", 4)
"""

TRAINING = """
shape = dict(layers=1, hidden=32, ffn=64, heads=2, query_groups=1, vocab=64, seq_len=16, mbs=1, mlp="gated", handicap=1, seed=0,
             experts=1, top_k=1)
def losses(**given):
    a = Namespace(**{**shape, **given})
    step, state, tokens = train.prepare(a, jax.devices()[:a.gpus], None)
    step, found = jax.jit(step), []
    for _ in range(4):
        state, loss = step(state, tokens)
        found.append(float(loss))
    return found
print(json.dumps({
    "parallel": losses(dtype="fp32", gpus=2, fsdp=1, ga=2),
    "sharded": losses(dtype="fp32", gpus=2, fsdp=2, ga=2),
    "fp8": losses(dtype="fp8", gpus=2, fsdp=2, ga=2),
    "experts": losses(dtype="fp32", gpus=1, fsdp=1, ga=4, experts=8, top_k=2),
    "spread experts": losses(dtype="fp32", gpus=4, fsdp=1, ga=1, experts=8, top_k=2),
}))
"""

EXPERTS = """
T, H, F, E, K = 12, 8, 16, 4, 2
normal = lambda number, *shape: jax.random.normal(jax.random.key(number), shape)
x, logits, seed = normal(0, T, H), normal(1, T, E), normal(2, T, H)
weights = (normal(3, E, H, 2 * F), normal(4, E, F, H))
totals = (normal(5, E, H, 2 * F), normal(6, E, F, H))
def own(x, logits, totals):
    activation = lambda y: train.activated(y, "gated")
    return jnp.sum(seed * moe.layer(x, logits, weights, totals, K, activation, None))
ranked = jnp.argsort(-logits, axis=1)[:, :K]
pairs = sorted(((t, k) for t in range(T) for k in range(K)), key=lambda pair: int(ranked[pair]))
given = {pair: place // (T * K // E) for place, pair in enumerate(pairs)}
given = jnp.array([[given[t, k] for k in range(K)] for t in range(T)])
def plain(x, logits, weights):
    gate, up = jnp.split(jnp.einsum("th,ehf->tef", x, weights[0]), 2, axis=2)
    every = jnp.einsum("tef,efh->teh", gate / (1 + jnp.exp(-gate)) * up, weights[1])
    share = jnp.exp(jnp.take_along_axis(logits, ranked, axis=1))
    share /= jnp.sum(share, axis=1, keepdims=True)
    return jnp.sum(seed * jnp.einsum("tk,tkh->th", share, jnp.take_along_axis(every, given[:, :, None], axis=1)))
value, (of_x, of_logits, new) = jax.jit(jax.value_and_grad(own, argnums=(0, 1, 2)))(x, logits, totals)
wanted, (for_x, for_logits, added) = jax.jit(jax.value_and_grad(plain, argnums=(0, 1, 2)))(x, logits, weights)
pairs = [(value, wanted), (of_x, for_x), (of_logits, for_logits), *((n - t, a) for n, t, a in zip(new, totals, added))]
print(max(float(jnp.max(jnp.abs(one - other)) / jnp.max(jnp.abs(other))) for one, other in pairs))
"""

ALONE = """
a = Namespace(layers=1, hidden=32, ffn=64, heads=2, query_groups=1, vocab=64, seq_len=16, mbs=1, mlp="gated", handicap=1, seed=0,
              dtype="fp32", experts=2, top_k=1, gpus=2, fsdp=2, ga=4)
train.ALONE = 0.01
devices = jax.devices()[:2]
prepare, prepared = train.prepare, []
train.prepare = lambda *given, **more: prepared.append(prepare(*given, **more)) or prepared[-1]
train.measure_alone(a, devices, None)
train.measure_all_reduce(devices, mib=1)
(step, state, tokens), = prepared
lowered = jax.jit(step).lower(state, tokens).as_text()
print(any(word in lowered for word in ("all_to_all", "all_gather", "all_reduce", "reduce_scatter")))
"""

REFUSED = """
shape = dict.fromkeys(("layers", "query-groups", "vocab", "seq-len", "mbs"), 1) | {"hidden": 8, "ffn": 8, "heads": 1, "dtype": "bf16", "size": "x"}
for given in ({"top-k": 2}, {"experts": 2, "top-k": 2, "dtype": "fp8"}, {"experts": 2, "top-k": 2, "gpus": 4}, {"experts": 8}, {"seq-len": 8, "experts": 8}):
    sys.argv = ["train.py", *(f"--{name}={value}" for name, value in {**shape, **given}.items())]
    train.argparse.ArgumentParser.error = lambda _, message: sys.exit(message)
    try:
        train.parse_arguments()
        print(None)
    except SystemExit as ended:
        print(ended)
"""

JOINED = """
import os
os.environ.update(SLURM_LAUNCH_NODE_IPADDR="10.0.0.1", SLURM_JOB_ID="5000", SLURM_PROCID="0")
jax.distributed.initialize = lambda *arguments: print(json.dumps(arguments))
train.join(2, 8)
for clock in (-1e9, 1e9):
    print(sum(train.warms_up(Namespace(nodes=2), clock, done) for done in range(100)))
"""

# The last one changes jax for the whole process.
PROGRAMS = (TRAINING, EXPERTS, ALONE, REFUSED, JOINED)


@pytest.fixture(scope="module")
def printed() -> dict[str, str]:
    """What each program prints. They run in one process: to load jax takes longer than most of them."""
    done = subprocess.run(
        [sys.executable, "-c", "\nprint('===')\n".join([BEGIN, *PROGRAMS]), str(PROXY)],
        # What is compiled runs for milliseconds.
        env={
            "JAX_PLATFORMS": "cpu",
            "XLA_FLAGS": "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false "
            "--xla_llvm_disable_expensive_passes=true --xla_cpu_parallel_codegen_split_count=1",
        },
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    return dict(zip(PROGRAMS, done.stdout.split("===\n")[1:], strict=True))


def test_the_same_tokens_train_alike_however_they_are_spread_and_in_fp8(printed: dict[str, str]) -> None:
    losses = json.loads(printed[TRAINING])
    assert losses["sharded"] == pytest.approx(losses["parallel"], rel=1e-5)
    for found in losses.values():
        assert sorted(found, reverse=True) == found
        assert found[-1] < found[0] - 0.03
    assert losses["fp8"] == pytest.approx(losses["parallel"], rel=0.02)
    assert losses["spread experts"] == pytest.approx(losses["experts"], rel=1e-5)


def test_a_layer_of_experts_and_its_gradients_are_those_of_a_plain_one(printed: dict[str, str]) -> None:
    assert float(printed[EXPERTS]) < 1e-5


def test_each_gpus_step_alone_is_timed_without_a_word_between_them(printed: dict[str, str]) -> None:
    *told, collectives = printed[ALONE].splitlines()
    assert collectives == "False"
    found = parse_gpus(line.encode() for line in told)
    assert found is not None
    assert [gpu for gpu, _ in found.alone] == [0, 1]
    # Each of them took part of the time for which they trained.
    assert all(0 < seconds < 60 for _, seconds in found.alone)
    assert found.all_reduce is not None


def test_a_process_of_several_nodes_has_all_gpus_of_its_node_and_warms_up_as_long_as_the_others(
    printed: dict[str, str],
) -> None:
    """By default jax gives a task of a Slurm step one GPU. If one process takes another step than the others, it hangs."""
    joined, *steps = printed[JOINED].splitlines()
    assert json.loads(joined) == ["10.0.0.1:62344", 2, 0, list(range(8))]
    assert steps == ["9", "9"]


def test_experts_that_cannot_be_are_refused(printed: dict[str, str]) -> None:
    assert printed[REFUSED].splitlines() == [
        "--top-k must not be above --experts",
        "--experts needs --dtype bf16 or fp32",
        "--experts must be a multiple of --gpus: each has as many of them",
        "--mbs x --seq-len x --top-k must be a multiple of --experts: each gets as many rows",
        "None",
    ]


def refused(size: str, dtype: str, env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """What the program says that ends before it trains."""
    shape = ("layers", "hidden", "ffn", "heads", "query-groups", "vocab", "seq-len", "mbs")
    options = ["--size", size, "--dtype", dtype, *(word for name in shape for word in (f"--{name}", "2"))]
    done = subprocess.run(
        [sys.executable, str(PROXY / "train.py"), *options, "--hidden", "8"],
        env=env, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 3
    return done


def test_a_node_without_a_gpu_trains_nothing_in_bf16() -> None:
    done = refused("8b-8l", "bf16", {"JAX_PLATFORMS": "cpu"})
    assert re.fullmatch(r"proxy: bf16 needs an NVIDIA GPU, and \S+ shows none\n", done.stderr)
    assert done.stdout.startswith("proxy: trains on ")


def test_what_hides_the_devices_from_jax_is_named() -> None:
    done = refused("tiny", "fp32", {"JAX_PLATFORMS": "nonsense", "CUDA_VISIBLE_DEVICES": ""})
    assert "proxy: jax finds no device on " in done.stderr
    assert " (CUDA_VISIBLE_DEVICES is empty, JAX_PLATFORMS is nonsense): Unable to init" in done.stderr
    assert "Traceback" not in done.stderr
