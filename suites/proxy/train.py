"""Train a layer-reduced Llama decoder for a few real steps, printing MaxText's step lines.

The proxy lets anyone see the whole suite judge a pace without a container or a data set: on one to eight GPUs of
a node with the true layers of a model and fewer of them, or on a laptop's CPU with a tiny shape. On a CPU it
measures the machine's own peak with a matrix product, so that its pace can be read as a share of that peak. It
measures the product behind each step, too, and who had the processors, so that a busy machine is not taken for a slow one.
On a GPU the pace itself is judged; the matrix product and what NVML tells of the GPUs only explain it.

Letters in shapes: T tokens of a micro batch, H hidden, F ffn, N heads, G query groups, D = H / N, V vocabulary.

Memory, in bytes for each parameter: master weight 4, AdamW's moments 8, gradients of a step 4, weight in the dtype
of the products 2. On several GPUs the first two are sharded, as by Megatron's distributed optimizer; with --fsdp
the others as well. The experts of a MoE are spread over the GPUs, with all that belongs to them.
"""

import argparse
import functools
import os
import signal
import socket
import statistics
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NoReturn

import cpus
import gpus

if __name__ == "__main__" and os.environ.get("SLURM_PROCID", "0") == "0":
    # The first line of every log. The tasks of a Slurm step write into one.
    print(f"proxy: trains on {socket.gethostname()}, Python {sys.version.split()[0]}", flush=True)


def refuse(why: str) -> NoReturn:
    """End this program, because it cannot train here."""
    sys.stderr.write(f"proxy: {why}\n")
    sys.exit(3)


GPU_FLAGS = "--xla_gpu_enable_latency_hiding_scheduler=true --xla_gpu_enable_triton_gemm=false"
ON_GPU = gpus.shown() and os.environ.get("JAX_PLATFORMS") != "cpu"
if ON_GPU:
    # cuBLAS is faster than Triton at products of this size. The default share of memory, 75 %, is too small. Container
    # images set flags of their own; the last one counts.
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {GPU_FLAGS}".strip()
    os.environ.setdefault("XLA_PYTHON_CLIENT_MEM_FRACTION", "0.94")
    os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"  # as NVML counts, or another GPU would be watched

try:
    import jax
    import jax.numpy as jnp
    import moe
    import optax
    from jax.sharding import Mesh, NamedSharding, PartitionSpec
except (ImportError, RuntimeError) as error:  # RuntimeError: jax and jaxlib of versions that do not fit
    refuse(
        f"{sys.executable} has no jax or optax ({error}): pip install -r suites/proxy/requirements-gpu.lock, or name a "
        f"container image that has them (docs/proxy.md)"
    )

Weights = dict[str, Any]  # arrays by name; "layers" is a list of such
State = tuple[Weights, optax.OptState, Any]  # master weights, AdamW's moments, the largest values seen by FP8

EXIT_TIME_LIMIT = 124  # what coreutils' timeout returns
ROPE_THETA = 500_000.0  # Llama 3
NORM_EPSILON = 1e-5  # Llama 3
ROUNDS = 100  # products of a burst on a CPU
BURSTS = 3  # before the first step
BURST_PAUSE = 0.5  # seconds
CPU_PRODUCT = 768  # rows and columns of the matrix product on a CPU
WARM_UP = 15.0  # seconds of training on a GPU before step 0, until clocks and temperature are those of its power limit
WARM_UP_STEPS = 9  # instead, on several nodes
ALONE = 3.0  # seconds for which each of several GPUs trains alone, after the last step
ALL_REDUCES = (1, 16, 256, 1024)  # MiB of each GPU
COPIES = 8  # within memory, in a row
PRODUCT = 8192  # rows and columns of the matrix product on a GPU
LARGEST = {jnp.float8_e4m3fn: 448.0, jnp.float8_e5m2: 57344.0}
# So low that the one batch is not learnt by heart: a loss near zero would leave gradients near zero, which cost a GPU less power.
LEARNING_RATE = 1e-5
MARGIN = 2.0  # by how much a value may grow from one step to the next before FP8 clips it
FP8_PRODUCT = 'custom_call_target="__cublas$lt$matmul$f8"'
LINEAR = ("qkv", "output", "up", "down")
DIMENSIONS = ("layers", "hidden", "ffn", "heads", "query-groups", "vocab", "seq-len", "mbs")
HANDICAP_HELP = (
    "compute forward and backward K times in each step, to stand in for a machine K times slower; "
    "tokens and FLOPs are still reported for one batch (default: 1)"
)


def positive(text: str) -> int:
    """Read a command line number that must be at least 1."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, not {number}")
    return number


def parse_arguments() -> argparse.Namespace:
    """Read the command line; every dimension of the model comes from there, so its caller owns the sizes."""
    parser = argparse.ArgumentParser(description="Train a small Llama on the devices of one node.")
    parser.add_argument("--size", required=True, help="name of the shape, only printed")
    parser.add_argument("--dtype", required=True, choices=["fp32", "bf16", "fp8"], help="of the products")
    for name in DIMENSIONS:
        parser.add_argument(f"--{name}", required=True, type=positive)
    parser.add_argument("--mlp", choices=["gated", "squared-relu"], default="gated")
    parser.add_argument(
        "--experts", type=positive, default=1, metavar="E", help="of each layer (default: 1, a dense MLP)"
    )
    parser.add_argument(
        "--top-k", type=positive, default=1, metavar="K", help="experts of a token (default: 1)"
    )
    parser.add_argument("--gpus", type=positive, default=1, metavar="N", help="devices (default: 1)")
    parser.add_argument(
        "--nodes",
        type=positive,
        default=1,
        metavar="N",
        help="each with a process and as many devices (default: 1)",
    )
    parser.add_argument(
        "--fsdp", type=positive, default=1, metavar="N", help="N devices: shard the weights, too"
    )
    parser.add_argument(
        "--ga", type=positive, default=1, help="micro batches of a device and step (default: 1)"
    )
    parser.add_argument("--steps", type=positive, default=50, help="training steps (default: 50)")
    parser.add_argument("--seed", type=int, default=0, help="of weights and tokens (default: 0)")
    parser.add_argument("--time-limit", type=float, metavar="SECONDS", help="then end with exit code 124")
    parser.add_argument("--handicap", type=positive, default=1, metavar="K", help=HANDICAP_HELP)
    arguments = parser.parse_args()
    if arguments.hidden % (2 * arguments.heads):
        parser.error("--hidden must be a multiple of twice --heads: RoPE turns pairs of a head's dimensions")
    if arguments.heads % arguments.query_groups:
        parser.error("--heads must be a multiple of --query-groups")
    if arguments.gpus % arguments.nodes:
        parser.error("--gpus must be a multiple of --nodes")
    if arguments.fsdp not in (1, arguments.gpus):
        parser.error("--fsdp must be 1 or --gpus")
    if arguments.top_k > arguments.experts:
        parser.error("--top-k must not be above --experts")
    if arguments.experts > 1 and arguments.dtype == "fp8":
        parser.error("--experts needs --dtype bf16 or fp32")
    if arguments.experts > 1 and arguments.experts % arguments.gpus:
        parser.error("--experts must be a multiple of --gpus: each has as many of them")
    if arguments.mbs * arguments.seq_len * arguments.top_k % arguments.experts:
        parser.error("--mbs x --seq-len x --top-k must be a multiple of --experts: each gets as many rows")
    return arguments


def join(nodes: int, gpus_per_node: int) -> None:
    """Let the processes of all nodes work together: as tasks of a Slurm step, or as pods of a PyTorchJob are told to."""
    env = os.environ
    if "SLURM_LAUNCH_NODE_IPADDR" in env:
        # Where srun runs, so does the first task. Ports below may be those of services, those above 61,000 are not given out.
        host, port, rank = (
            env["SLURM_LAUNCH_NODE_IPADDR"],
            61440 + int(env["SLURM_JOB_ID"]) % 4096,
            env["SLURM_PROCID"],
        )
    elif "MASTER_ADDR" in env:
        host, port, rank = env["MASTER_ADDR"], int(env["MASTER_PORT"]), env["RANK"]
    else:
        refuse(f"--nodes {nodes}: neither srun nor a PyTorchJob started this process")
    if not ON_GPU:
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
    # By default a task of a Slurm step gets one GPU of its node.
    jax.distributed.initialize(f"{host}:{port}", nodes, int(rank), list(range(gpus_per_node)))
    if int(rank):
        # One process tells of all.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def arm_time_limit(seconds: float) -> None:
    """End this process once `seconds` have passed, whatever it is doing then."""

    def expire() -> None:
        # os._exit and a bare write: neither waits for the main thread, which may sit in a native call.
        os.write(2, f"proxy: time limit of {seconds:g} s exceeded\n".encode())
        os._exit(EXIT_TIME_LIMIT)

    watchdog = threading.Timer(seconds, expire)
    watchdog.daemon = True
    watchdog.start()
    # A native call that never lets go of Python's lock starves the thread; an unhandled SIGALRM still kills.
    signal.setitimer(signal.ITIMER_REAL, seconds + 5)


def model_flops_per_sequence(a: argparse.Namespace) -> float:
    """FLOPs of forward and backward for one sequence, by the formula published with the training recipes.

    s (12 L h^2 (1 + g/n + s/h) + m L f h + 6 V h), where m is 18 for an MLP with a gate and 12 for one without: six
    FLOPs per token and weight of each matrix, and the full square of attention although causal attention needs
    half of it. The embedding is a look-up and counts nothing. Of a MoE the K experts of a token count, so K m; its
    router does not.
    """
    attention = 12 * a.layers * a.hidden**2 * (1 + a.query_groups / a.heads + a.seq_len / a.hidden)
    mlp = (18 if a.mlp == "gated" else 12) * a.top_k * a.layers * a.ffn * a.hidden
    return float(a.seq_len * (attention + mlp + 6 * a.vocab * a.hidden))


def state_configuration(a: argparse.Namespace) -> None:
    """Print the configuration as MaxText does, so that a log of another case is told from this one's."""
    settings = {
        "emb_dim": a.hidden,
        "num_decoder_layers": a.layers,
        "mlp_dim": a.ffn,
        "num_experts": a.experts,
        "num_experts_per_tok": a.top_k,
        "num_query_heads": a.heads,
        "num_kv_heads": a.query_groups,
        "vocab_size": a.vocab,
        "max_target_length": a.seq_len,
        "global_batch_size_to_train_on": a.ga * a.mbs * a.gpus,
        "dtype": "float32" if a.dtype == "fp32" else "bfloat16",
        "quantization": "fp8" if a.dtype == "fp8" else "",
    }
    for name, value in settings.items():
        print(f"Config param {name}: {value}")
    print(f"Num_devices: {a.gpus}, shape ({a.gpus},)")


def environment() -> str:
    """What hides devices from jax, in words."""
    names = ("CUDA_VISIBLE_DEVICES", "JAX_PLATFORMS")
    return ", ".join(f"{name} is {os.environ.get(name, 'not set') or 'empty'}" for name in names)


def is_cuda(device: jax.Device) -> bool:
    """Whether the device is an NVIDIA GPU (jax calls the platform "gpu", AMD's as well)."""
    return device.platform in ("gpu", "cuda") and "cuda" in device.client.platform_version.lower()


class CpuProduct:
    """A matrix product on a CPU, timed before the first step and behind each step.

    The best round is the machine's peak, not the median: the hardware bounds a round from below while a neighbour
    on the same cores can only lengthen it. A round of a few milliseconds fits between a scheduler's switches: of
    many, some run alone even beside a busy process on every core; a longer one never does. How much all of a burst
    are slower than the best one tells what the steps beside them had of the machine.
    """

    def __init__(self, dtype: jnp.dtype[Any]) -> None:
        n = CPU_PRODUCT
        self._pair = jax.random.normal(jax.random.key(0), (2, n, n), dtype)
        self._product = jax.jit(jnp.matmul).lower(*self._pair).compile()
        self._name = f"{dtype.name} matmul {n}x{n}x{n}"
        self._best, self._rounds = float("inf"), 0
        for _ in range(5):  # threads started, caches filled, clocks up
            self._product(*self._pair).block_until_ready()
        self._processors = cpus.Processors()

    def alone(self) -> None:
        """Several bursts, so that a neighbour must stay busy for seconds to spoil them all."""
        for _ in range(BURSTS):
            self._burst()
            time.sleep(BURST_PAUSE)
        self.print_peak()

    def behind(self, step: int) -> None:
        """A burst behind a step, and the line on who had the processors."""
        self._processors.begin()
        tflops = self._burst()
        print(self._processors.sample(step, tflops))

    def print_peak(self) -> None:
        tflops = self._tflop / self._best
        print(f"proxy machine peak: {tflops:.4f} TFLOP/s/device ({self._name}, best of {self._rounds})")

    @property
    def _tflop(self) -> float:
        return 2 * CPU_PRODUCT**3 / 1e12

    def _burst(self) -> float:
        """The mean rate of a burst in TFLOP/s (1e12 FLOP/s)."""
        begin = time.perf_counter()
        for _ in range(ROUNDS):
            start = time.perf_counter()
            self._product(*self._pair).block_until_ready()
            self._best = min(self._best, time.perf_counter() - start)
        self._rounds += ROUNDS
        return ROUNDS * self._tflop / (time.perf_counter() - begin)


def measure_products(devices: list[jax.Device], when: str, seconds: float = 2.0) -> None:
    """Print how fast each GPU multiplies bf16 matrices, all at the same time: for a moment, and for `seconds`.

    Under its power cap a GPU holds its highest clock for a moment only.
    """
    products, n = 16, PRODUCT
    rates: dict[int, tuple[float, float]] = {}
    product = jax.jit(jnp.matmul)

    def run(index: int, device: jax.Device) -> None:
        left, right = jax.device_put(jax.random.normal(jax.random.key(0), (2, n, n), jnp.bfloat16), device)
        product(left, right).block_until_ready()
        barrier.wait()
        begin = time.perf_counter()
        burst, rounds = 0.0, 0
        while (now := time.perf_counter()) < begin + seconds:
            for _ in range(products):
                result = product(left, right)
            result.block_until_ready()
            burst, rounds = max(burst, 1 / (time.perf_counter() - now)), rounds + 1
        tflop = products * 2 * n**3 / 1e12
        rates[index] = burst * tflop, rounds / (time.perf_counter() - begin) * tflop

    barrier = threading.Barrier(len(devices))
    threads = [threading.Thread(target=run, args=pair) for pair in enumerate(devices)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for index, (burst, sustained) in sorted(rates.items()):
        print(
            f"proxy gpu {index} product {when}: burst {burst:.1f}, sustained {sustained:.1f} TFLOP/s "
            f"(bfloat16 matmul {n}x{n}x{n}, {seconds:g} s)"
        )


def initial_weights(a: argparse.Namespace, key: jax.Array) -> Weights:
    """Float32 weights drawn from N(0, 0.02^2), norms' scales one; LM head untied from the embedding.

    Query, key and value are one matrix, and so are the gate and the MLP's first matrix.
    """
    h, f, kv = a.hidden, a.ffn, a.hidden // a.heads * a.query_groups
    shapes: dict[str, tuple[int, ...]] = {
        "qkv": (h, h + 2 * kv),
        "output": (h, h),
        "up": (h, 2 * f if a.mlp == "gated" else f),
        "down": (f, h),
    }
    if a.experts > 1:
        shapes |= {name: (a.experts, *shapes[name]) for name in ("up", "down")}
        shapes["router"] = (h, a.experts)
    keys = iter(jax.random.split(key, len(shapes) * a.layers + 2))

    def normal(*shape: int) -> jax.Array:
        return 0.02 * jax.random.normal(next(keys), shape, jnp.float32)

    def layer() -> Weights:
        matrices = {name: normal(*shape) for name, shape in shapes.items()}
        return {**matrices, "attention_norm": jnp.ones(h), "mlp_norm": jnp.ones(h)}

    ends = {"embedding": normal(a.vocab, h), "norm": jnp.ones(h), "head": normal(h, a.vocab)}
    return {**ends, "layers": [layer() for _ in range(a.layers)]}


# Each function below takes a weight and its gradient so far, `total` (float32), and its backward pass returns the
# new total as the gradient of `total`: so a product adds to it in place, and no gradient is written by itself.
# `axis` names the mesh's axis over which both are sharded (ZeRO-3), None if they are whole.


def gathered(weight: jax.Array, axis: str | None) -> jax.Array:
    return weight if axis is None else jax.lax.all_gather(weight, axis, tiled=True)


def added(total: jax.Array, gradient: jax.Array, axis: str | None) -> jax.Array:
    if axis is not None:
        gradient = jax.lax.psum_scatter(gradient, axis, tiled=True)
    return total + gradient


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def scale_of(axis: str | None, weight: jax.Array, total: jax.Array) -> jax.Array:
    """A norm's scale."""
    return _scale_forward(axis, weight, total)[0]


def _scale_forward(axis: str | None, weight: jax.Array, total: jax.Array) -> Any:
    return gathered(weight, axis), total


def _scale_backward(axis: str | None, total: jax.Array, gradient: jax.Array) -> Any:
    return None, added(total, gradient.astype(jnp.float32), axis)


scale_of.defvjp(_scale_forward, _scale_backward)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def embedded(axis: str | None, weight: jax.Array, total: jax.Array, tokens: jax.Array) -> jax.Array:
    """The rows [T, H] of these tokens [T]."""
    return _embedded_forward(axis, weight, total, tokens)[0]


def _embedded_forward(axis: str | None, weight: jax.Array, total: jax.Array, tokens: jax.Array) -> Any:
    return gathered(weight, axis)[tokens], (total, tokens)


def _embedded_backward(axis: str | None, kept: Any, gradient: jax.Array) -> Any:
    total, tokens = kept
    gradient = gradient.astype(jnp.float32)
    if axis is None:
        return None, total.at[tokens].add(gradient), None
    rows = total.shape[0] * jax.lax.axis_size(axis)
    return None, added(total, jnp.zeros((rows, total.shape[1])).at[tokens].add(gradient), axis), None


embedded.defvjp(_embedded_forward, _embedded_backward)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def linear(axis: str | None, x: jax.Array, weight: jax.Array, total: jax.Array) -> jax.Array:
    """The product of x [T, K] and a weight [K, N] in their dtype."""
    return _linear_forward(axis, x, weight, total)[0]


def _linear_forward(axis: str | None, x: jax.Array, weight: jax.Array, total: jax.Array) -> Any:
    return x @ gathered(weight, axis), (x, weight, total)


def _linear_backward(axis: str | None, kept: Any, gradient: jax.Array) -> Any:
    x, weight, total = kept
    of_weight = of_weights(x, gradient)
    return gradient @ gathered(weight, axis).T, None, added(total, of_weight, axis)


linear.defvjp(_linear_forward, _linear_backward)


def of_weights(x: jax.Array, gradient: jax.Array) -> jax.Array:
    """The gradient [K, N] of a weight in float32, from x [T, K] and the gradient [T, N] of the product."""
    return jax.lax.dot_general(x, gradient, (((0,), (0,)), ((), ())), preferred_element_type=jnp.float32)


# FP8 by delayed scaling, one scale for each tensor: e4m3 forward, e5m2 for gradients. The scales of activations and
# gradients are from the largest values of the step before, those of weights from the weights of this step. XLA
# makes scaled FP8 products of these products of converted and scaled operands.


def quantized(x: jax.Array, largest: jax.Array, dtype: Any) -> tuple[jax.Array, jax.Array]:
    """`x` in FP8 and the scale that turns it back."""
    scale = jnp.where(largest > 0, largest / LARGEST[dtype], 1.0).astype(jnp.float32)
    limit = LARGEST[dtype]
    return jnp.clip(x.astype(jnp.float32) / scale, -limit, limit).astype(dtype), scale


def restored(x: jax.Array, scale: jax.Array) -> jax.Array:
    return x.astype(jnp.bfloat16) * scale.astype(jnp.bfloat16)


def largest_of(x: jax.Array) -> jax.Array:
    return jnp.max(jnp.abs(x)).astype(jnp.float32)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def linear_fp8(axis: str | None, x: jax.Array, weight: Any, total: Any) -> jax.Array:
    """The product of x [T, K] and a weight [K, N] in FP8.

    `weight` is the weight in FP8, its scale, and the largest values of x and of the gradient in the step before.
    `total` has the gradient so far and the largest values so far of this step.
    """
    return _fp8_forward(axis, x, weight, total)[0]


def _fp8_forward(axis: str | None, x: jax.Array, weight: Any, total: Any) -> Any:
    matrix, scale, before = weight
    x8, x_scale = quantized(x, MARGIN * before[0], jnp.float8_e4m3fn)
    y = restored(x8, x_scale) @ restored(gathered(matrix, axis), scale)
    return y, (x8, x_scale, largest_of(x), weight, total)


def _fp8_backward(axis: str | None, kept: Any, gradient: jax.Array) -> Any:
    x8, x_scale, x_largest, (matrix, scale, before), (total, largest) = kept
    g8, g_scale = quantized(gradient, MARGIN * before[1], jnp.float8_e5m2)
    of_x = restored(g8, g_scale) @ restored(gathered(matrix, axis), scale).T
    of_weight = of_weights(restored(x8, x_scale), restored(g8, g_scale))
    seen = jnp.maximum(largest, jnp.stack([x_largest, largest_of(gradient)]))
    return of_x, None, (added(total, of_weight, axis), seen)


linear_fp8.defvjp(_fp8_forward, _fp8_backward)


def rms_norm(x: jax.Array, scale: jax.Array) -> jax.Array:
    """RMSNorm over the last axis, in float32 whatever the dtype of x [T, H]."""
    x32 = x.astype(jnp.float32)
    x32 *= jax.lax.rsqrt(jnp.mean(x32 * x32, axis=-1, keepdims=True) + NORM_EPSILON)
    return (x32 * scale).astype(x.dtype)


def rotate(x: jax.Array) -> jax.Array:
    """RoPE of x [B, S, heads, D]: the pair (i, i + D/2) at position p turns by p * theta^(-2i/D) radians."""
    seq_len, head_dim = x.shape[1], x.shape[3]
    frequency = ROPE_THETA ** (-jnp.arange(0, head_dim, 2) / head_dim)  # [D/2]
    angle = (jnp.arange(seq_len)[:, None] * frequency)[:, None, :]  # [S, 1, D/2]
    first, second = jnp.split(x.astype(jnp.float32), 2, axis=-1)
    cos, sin = jnp.cos(angle), jnp.sin(angle)
    return jnp.concatenate((first * cos - second * sin, second * cos + first * sin), axis=-1).astype(x.dtype)


def activated(y: jax.Array, mlp: str) -> jax.Array:
    """What comes between the two products of an MLP, over the last axis of y."""
    if mlp == "gated":
        gate, up = jnp.split(y, 2, axis=-1)
        return jax.nn.silu(gate) * up
    return jnp.square(jax.nn.relu(y))


def loss_of(
    totals: Weights,
    weights: Weights,
    tokens: jax.Array,
    a: argparse.Namespace,
    attention: Any,
    axis: str | None,
) -> jax.Array:
    """Sum of the next-token cross entropies in nats of tokens [B, S + 1]. A sum, so that no gradient is tiny in FP8."""
    # Activations are [T, H]: from three axes, XLA on a CPU takes twice as long for a weight's gradient.
    per_head = (tokens.shape[0], a.seq_len, -1, a.hidden // a.heads)  # [B, S, N or G, D]
    kv = a.hidden // a.heads * a.query_groups
    x = embedded(axis, weights["embedding"], totals["embedding"], tokens[:, :-1].reshape(-1))
    product = linear_fp8 if a.dtype == "fp8" else linear
    activation = functools.partial(activated, mlp=a.mlp)
    for w, total in zip(weights["layers"], totals["layers"], strict=True):
        y = rms_norm(x, scale_of(axis, w["attention_norm"], total["attention_norm"]))
        qkv = product(axis, y, w["qkv"], total["qkv"])
        parts = jnp.split(qkv, (a.hidden, a.hidden + kv), axis=1)
        query, key, value = (part.reshape(per_head) for part in parts)
        query, key = rotate(query), rotate(key)
        y = jax.nn.dot_product_attention(query, key, value, is_causal=True, implementation=attention)
        x = x + product(axis, y.reshape(x.shape), w["output"], total["output"])
        y = rms_norm(x, scale_of(axis, w["mlp_norm"], total["mlp_norm"]))
        if a.experts > 1:
            logits = linear(axis, y, w["router"], total["router"])  # [T, E]
            mlp, gradients = (w["up"], w["down"]), (total["up"], total["down"])
            spread = "gpus" if a.gpus > 1 else None
            x = x + moe.layer(y, logits, mlp, gradients, a.top_k, activation, spread)
        else:
            y = activation(product(axis, y, w["up"], total["up"]))
            x = x + product(axis, y, w["down"], total["down"])
    x = rms_norm(x, scale_of(axis, weights["norm"], totals["norm"]))
    logits = linear(axis, x, weights["head"], totals["head"]).astype(jnp.float32)  # [T, V]
    # One-hot targets, never stored: XLA fuses them into a comparison, where labels by index would cost the
    # backward pass a scatter into an array of the logits' size.
    targets = jax.nn.one_hot(tokens[:, 1:].reshape(-1), a.vocab)
    return jnp.sum(optax.softmax_cross_entropy(logits, targets))


def of_linear(function: Any, weights: Weights, *others: Any) -> Weights:
    """A tree like `weights`: `function` of each matrix in the layers, the other weights unchanged."""

    def layer(w: Weights, *rest: Weights) -> Weights:
        return {k: function(v, *(r[k] for r in rest)) if k in LINEAR else v for k, v in w.items()}

    layers = [layer(w, *(o["layers"][i] for o in others)) for i, w in enumerate(weights["layers"])]
    return {**weights, "layers": layers}


def make_step(a: argparse.Namespace, attention: Any, optimizer: Any) -> Any:
    """The training step: all micro batches of a device, then one update. `tokens` is [GA, B, S + 1]."""
    axis = "gpus" if a.gpus > 1 else None
    inner = axis if a.fsdp > 1 else None  # the axis of weights that are gathered for each product
    dtype = jnp.float32 if a.dtype == "fp32" else jnp.bfloat16
    passes = a.ga * a.handicap
    scale = 1 / (a.ga * a.gpus * a.handicap * a.mbs * a.seq_len)

    def fp8(master: jax.Array, before: jax.Array) -> Any:
        largest = largest_of(master)
        if axis is not None:
            largest = jax.lax.pmax(largest, axis)
        return *quantized(master, largest, jnp.float8_e4m3fn), before

    def is_replicated(x: jax.Array) -> bool:
        # The matrices of experts, which have three axes, stay where the expert is.
        return inner is None and 0 < x.ndim < 3

    def whole(x: jax.Array) -> jax.Array:
        return gathered(x, axis if is_replicated(x) else None)

    def zeros_of(x: jax.Array) -> jax.Array:
        ways = a.gpus if is_replicated(x) else 1
        return jnp.zeros((x.shape[0] * ways, *x.shape[1:]), jnp.float32)

    def reduced(x: jax.Array) -> jax.Array:
        return jax.lax.psum_scatter(x, axis, tiled=True) if is_replicated(x) else x

    def step(state: State, tokens: jax.Array) -> tuple[State, jax.Array]:
        master, moments, before = state
        if a.dtype == "fp8":
            ends = jax.tree.map(lambda x: x.astype(dtype), {k: v for k, v in master.items() if k != "layers"})
            weights = of_linear(fp8, {**master, **ends}, before)
            weights = of_linear(lambda w: (whole(w[0]), w[1], w[2]), weights)
            weights = {k: v if k == "layers" else whole(v) for k, v in weights.items()}
            weights["layers"] = [
                {k: v if k in LINEAR else whole(v) for k, v in w.items()} for w in weights["layers"]
            ]
        else:
            weights = jax.tree.map(lambda x: whole(x.astype(dtype)), master)
        zeros = jax.tree.map(zeros_of, master)
        if a.dtype == "fp8":
            zeros = of_linear(lambda x: (x, jnp.zeros(2)), zeros)

        def micro(number: jax.Array, carry: Any) -> Any:
            totals, loss = carry
            batch = jax.lax.dynamic_index_in_dim(tokens, number % a.ga, keepdims=False)
            if a.handicap > 1:
                # Adds 0, for no cross entropy is negative; but the compiler cannot know that, so each pass waits
                # for the one before it, and none can be merged with another or moved out of the loop.
                batch += (loss < 0).astype(batch.dtype)
            one, totals = jax.value_and_grad(loss_of)(totals, weights, batch, a, attention, inner)
            return totals, loss + one

        totals, loss = jax.lax.fori_loop(0, passes, micro, (zeros, jnp.zeros(())))
        seen = before
        if a.dtype == "fp8":
            seen = {"layers": [{k: w[k][1] for k in LINEAR} for w in totals["layers"]]}
            totals = of_linear(lambda pair: pair[0], totals)
        if axis is not None:
            loss = jax.lax.psum(loss, axis)
            seen = jax.tree.map(lambda x: jax.lax.pmax(x, axis), seen)
            totals = jax.tree.map(reduced, totals)
        gradient = jax.tree.map(lambda x: x * scale, totals)
        updates, moments = optimizer.update(gradient, moments, master)
        return (optax.apply_updates(master, updates), moments, seen), loss * scale

    return step


def partition(tree: Any) -> Any:
    """Weights and moments are sharded by their first axis; a count of steps has none."""
    return jax.tree.map(lambda x: PartitionSpec("gpus") if x.ndim else PartitionSpec(), tree)


def prepare(
    a: argparse.Namespace, devices: list[jax.Device], attention: Any, *, alone: bool = False
) -> tuple[Any, State, jax.Array]:
    """The training step, its first state, and its tokens, on these devices.

    If `alone`, each device does the whole step of one device, of one micro batch, and hears nothing of the others.
    """
    several = len(devices) > 1
    if alone:
        a = argparse.Namespace(**{**vars(a), "gpus": 1, "fsdp": 1, "ga": 1})
    optimizer = optax.adamw(LEARNING_RATE, b1=0.9, b2=0.95, weight_decay=0.1)
    mesh = Mesh(devices, ("gpus",))

    def begin(key: jax.Array) -> State:
        master = initial_weights(a, key)
        before = (
            {"layers": [{k: jnp.zeros(2) for k in LINEAR} for _ in range(a.layers)]}
            if a.dtype == "fp8"
            else {}
        )
        return master, optimizer.init(master), before

    weights_key, tokens_key = jax.random.split(jax.random.key(a.seed))
    *sharded, before = jax.eval_shape(begin, weights_key)
    sharded = jax.tree.map(lambda _: PartitionSpec(), sharded) if alone else partition(sharded)
    specs = (*sharded, jax.tree.map(lambda _: PartitionSpec(), before))
    state = jax.jit(begin, out_shardings=jax.tree.map(lambda spec: NamedSharding(mesh, spec), specs))(
        weights_key
    )
    # One batch for the whole run, so that a loss that falls shows real learning.
    by_gpu = PartitionSpec() if alone else PartitionSpec(None, "gpus")
    shape = (a.ga, a.mbs * a.gpus, a.seq_len + 1)
    draw = jax.jit(
        lambda key: jax.random.randint(key, shape, 0, a.vocab), out_shardings=NamedSharding(mesh, by_gpu)
    )
    tokens = draw(tokens_key)
    step = make_step(a, attention, optimizer)
    if several:
        ends = {"in_specs": (specs, by_gpu), "out_specs": (specs, PartitionSpec())}
        step = jax.shard_map(step, mesh=mesh, check_vma=False, **ends)
    return step, state, tokens


def measure_alone(a: argparse.Namespace, devices: list[jax.Device], attention: Any) -> None:
    """Print how long each GPU takes for a step of one micro batch, all at the same time and each by itself.

    In training the GPUs wait for each other in each step, so its time tells nothing of one of them.
    """
    step, state, tokens = prepare(a, devices, attention, alone=True)
    # One program for all GPUs is compiled once. It has no collective, so each GPU ends it at its own time.
    compiled = jax.jit(step, donate_argnums=0).lower(state, tokens).compile()
    rounds: list[list[float]] = []
    with ThreadPoolExecutor(len(devices)) as pool:
        begin = None
        while begin is None or time.perf_counter() < begin + ALONE:
            start = time.perf_counter()
            state, loss = compiled(state, tokens)

            def seconds(device: jax.Device, start: float = start, loss: jax.Array = loss) -> float:
                own = next(shard.data for shard in loss.addressable_shards if shard.device == device)
                own.block_until_ready()
                return time.perf_counter() - start

            found = list(pool.map(seconds, devices))
            jax.block_until_ready(state)
            if begin is None:  # the first round loads the program
                begin = time.perf_counter()
            else:
                rounds.append(found)
    for index, each in enumerate(zip(*rounds, strict=True)):
        print(
            f"proxy gpu {index} step alone: {statistics.median(each):.6f} s (one micro batch, median of {len(each)})"
        )


def measure_all_reduce(devices: list[jax.Device], mib: int, rounds: int = 10) -> None:
    """Print the bus bandwidth of an all-reduce of so many MiB of each GPU.

    It is 2 (n - 1) / n times the bytes of one GPU by the seconds, as in NVIDIA's nccl-tests (doc/PERFORMANCE.md).
    """
    mesh, n = Mesh(devices, ("gpus",)), len(devices)
    spec = PartitionSpec("gpus")
    ones = jax.jit(lambda: jnp.ones((n, mib << 18), jnp.float32), out_shardings=NamedSharding(mesh, spec))()
    total = jax.jit(
        jax.shard_map(lambda x: jax.lax.psum(x, "gpus"), mesh=mesh, in_specs=spec, out_specs=PartitionSpec())
    )
    seconds = seconds_of(lambda: total(ones), rounds)
    bandwidth = 2 * (n - 1) / n * (mib << 20) / seconds / 1e9
    print(f"proxy all-reduce: bus bandwidth {bandwidth:.1f} GB/s ({mib} MiB of each GPU, median of {rounds})")


def measure_memory(devices: list[jax.Device], mib: int = 1024, rounds: int = 20) -> None:
    """Print how fast each GPU copies so many MiB within its memory, counting the bytes that it reads and writes.

    Several copies are waited for together: the start of a single one would take a part of its time.
    """
    copy = jax.jit(lambda x: x + 1)

    def copies(x: jax.Array) -> jax.Array:
        for _ in range(COPIES):
            x = copy(x)
        return x

    for index, device in enumerate(devices):
        ones = jax.device_put(jnp.ones(mib << 18, jnp.float32), device)
        bandwidth = COPIES * 2 * (mib << 20) / seconds_of(lambda ones=ones: copies(ones), rounds) / 1e9
        print(f"proxy gpu {index} memory: {bandwidth:.0f} GB/s (copy of {mib} MiB, median of {rounds})")


def seconds_of(compute: Any, rounds: int) -> float:
    """The median time of so many rounds, behind one that loads the program."""
    compute().block_until_ready()
    seconds = []
    for _ in range(rounds):
        start = time.perf_counter()
        compute().block_until_ready()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def warms_up(a: argparse.Namespace, begin: float, done: int) -> bool:
    """Whether another step is to warm up the GPUs, after so many.

    The processes of several nodes must take as many: one that takes another step than the others waits for them for ever.
    """
    if a.nodes > 1:
        return done < WARM_UP_STEPS
    return time.perf_counter() - begin < WARM_UP


def main() -> None:
    """Look at the machine, train, print."""
    a = parse_arguments()
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    if a.time_limit is not None:
        arm_time_limit(a.time_limit)
    if a.dtype != "fp32" and not ON_GPU:
        why = "JAX_PLATFORMS is cpu" if gpus.shown() else f"{socket.gethostname()} shows none"
        refuse(f"{a.dtype} needs an NVIDIA GPU, and {why}")
    watch = gpus.watch(a.gpus // a.nodes) if ON_GPU else None
    if watch is not None:
        watch.wait_until_idle()
    if a.nodes > 1:
        join(a.nodes, a.gpus // a.nodes)
    try:
        devices = jax.devices()[: a.gpus]
    except (AssertionError, RuntimeError) as error:
        why = str(error).partition("\n")[0] or "it has no plugin for JAX_PLATFORMS"
        refuse(f"jax finds no device on {socket.gethostname()} ({environment()}): {why}")
    if ON_GPU and not is_cuda(devices[0]):
        refuse(
            f"this machine has an NVIDIA GPU, but this jax computes on {devices[0].platform}: "
            f"pip install -r suites/proxy/requirements-gpu.txt, or let the job have the GPU (`gres` of a Slurm site; {environment()})"
        )
    local = [device for device in devices if device.process_index == jax.process_index()]
    if len(local) < a.gpus // a.nodes:
        refuse(
            f"{a.gpus // a.nodes} devices wanted, {socket.gethostname()} shows {len(local)} ({environment()}): ask the cluster for "
            f"them (`gres` of a Slurm site), or set gpus_per_node or max_gpus in the site file"
        )
    cuda = is_cuda(devices[0])
    dtype = jnp.dtype("float32" if a.dtype == "fp32" else "bfloat16")
    # cuDNN's flash attention takes 16-bit types on NVIDIA GPUs only; None is jax's own, which runs anywhere.
    attention = "cudnn" if cuda and a.dtype != "fp32" else None
    state_configuration(a)
    print(f"proxy devices: {a.gpus} x {devices[0].device_kind} ({devices[0].platform})")
    print(f"proxy jax: {jax.__version__}")
    if ON_GPU:
        print(f"proxy XLA_FLAGS: {os.environ['XLA_FLAGS']}")
    if watch is not None:
        watch.begin([device.device_kind for device in local])
    elif cuda:
        for index, device in enumerate(local):
            print(f"GPU {index}: {device.device_kind} (UUID: GPU-unknown)")
    print("proxy begins: a matrix product by itself, for some seconds")
    cpu_product = None if cuda else CpuProduct(dtype)
    if cpu_product is None:
        measure_products(local, "before")
    else:
        cpu_product.alone()

    print("proxy begins: to compile the training step, which takes seconds to minutes")
    step, state, tokens = prepare(a, devices, attention)
    parameters = sum(x.size for x in jax.tree.leaves(state[0]))
    device_tokens = a.ga * a.mbs * a.seq_len
    device_tflop = a.ga * a.mbs * model_flops_per_sequence(a) / 1e12
    print(f"proxy model: {a.size}, {a.dtype}, {parameters} parameters, {device_tflop:.6f} TFLOP/step/device")
    print(f"proxy attention: {attention or 'xla'}, handicap {a.handicap}")

    start = time.perf_counter()
    # The state is donated: the updated one takes its memory, or a GPU would have to hold both.
    compiled = jax.jit(step, donate_argnums=0).lower(state, tokens).compile()
    print(f"proxy compiled in {time.perf_counter() - start:.1f} s")
    if cuda and a.dtype == "fp8":
        products, wanted = compiled.as_text().count(FP8_PRODUCT), 3 * len(LINEAR) * a.layers
        if products < wanted:
            refuse(f"XLA made {products} FP8 products of {wanted}: this jax or GPU computes in bf16")
        print(
            f"proxy fp8: {products} scaled products, delayed scaling by tensor, e4m3 forward, e5m2 backward"
        )
    if cuda:
        print(f"proxy begins: to train for about {WARM_UP:g} s before step 0, to warm up")
    start, warm = time.perf_counter(), 0
    while cuda and warms_up(a, start, warm):
        state, loss = jax.block_until_ready(compiled(state, tokens))
        warm += 1
    behind = f", each with {ROUNDS} matrix products behind it" if cpu_product else ""
    print(f"proxy begins: {a.steps} steps{behind}")
    for number in range(a.steps):
        if watch is not None:
            watch.stepping(number)
        start = time.perf_counter()
        state, loss = jax.block_until_ready(compiled(state, tokens))
        seconds = time.perf_counter() - start
        print(
            f"completed step: {number}, seconds: {seconds:.6f}, TFLOP/s/device: {device_tflop / seconds:.6f}, "
            f"Tokens/s/device: {device_tokens / seconds:.3f}, total_weights: {device_tokens * a.gpus}, loss: {loss:.3f}"
        )
        if cpu_product is not None:
            cpu_product.behind(number)
    if watch is not None:
        watch.stepping(-1)
    del state, loss  # a GPU's memory is full of them
    if cuda and a.gpus > 1:
        if a.nodes == 1:
            measure_alone(a, devices, attention)
        for mib in ALL_REDUCES:
            measure_all_reduce(devices, mib)
    if cpu_product is None:
        measure_memory(local)
        measure_products(local, "after")
    else:
        cpu_product.print_peak()
    if watch is not None:
        watch.end()
    print(f"proxy done: {a.steps} steps")


if __name__ == "__main__":
    main()
