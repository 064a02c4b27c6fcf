"""Train a layer-reduced Llama decoder for a few real steps on one device, printing MaxText's step lines.

The proxy lets anyone see the whole suite judge a pace without a cluster: on a laptop's CPU with a tiny shape,
or on one NVIDIA GPU with the real shape of a model and fewer layers. It first measures the device's own peak
with a square matrix product, so that the pace it then trains at can be read as a share of that peak (MFU).

Letters in shapes: B sequences, S tokens per sequence, H hidden, F ffn, N heads, G query groups, D = H / N,
V vocabulary, L layers.
"""

import argparse
import os
import signal
import sys
import threading
import time
from typing import Any

try:
    import jax
    import jax.numpy as jnp
    import optax
except (ImportError, RuntimeError) as error:  # RuntimeError: jax and jaxlib of versions that do not fit
    sys.stderr.write(f"proxy: no jax or optax ({error}): pip install -r suites/proxy/requirements.txt\n")
    sys.exit(3)

Weights = dict[str, Any]  # the decoder's arrays by name; those under "layers" have a first axis L
State = tuple[Weights, optax.OptState]  # master weights and AdamW's moments, float32

EXIT_TIME_LIMIT = 124  # what coreutils' timeout returns
ROPE_THETA = 500_000.0  # Llama 3
NORM_EPSILON = 1e-5  # Llama 3
BURST_PAUSE = 0.5  # seconds
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
    parser = argparse.ArgumentParser(description="Train a small Llama on one device, --mbs sequences a step.")
    parser.add_argument("--size", required=True, help="name of the shape, only printed")
    parser.add_argument("--dtype", required=True, choices=["fp32", "bf16"], help="of all but stored weights")
    for name in DIMENSIONS:
        parser.add_argument(f"--{name}", required=True, type=positive)
    parser.add_argument("--steps", type=positive, default=50, help="training steps (default: 50)")
    parser.add_argument("--seed", type=int, default=0, help="of weights and tokens (default: 0)")
    parser.add_argument("--time-limit", type=float, metavar="SECONDS", help="then end with exit code 124")
    parser.add_argument("--handicap", type=positive, default=1, metavar="K", help=HANDICAP_HELP)
    arguments = parser.parse_args()
    if arguments.hidden % (2 * arguments.heads):
        parser.error("--hidden must be a multiple of twice --heads: RoPE turns pairs of a head's dimensions")
    if arguments.heads % arguments.query_groups:
        parser.error("--heads must be a multiple of --query-groups")
    return arguments


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

    s (12 L h^2 (1 + g/n + s/h) + 18 L f h + 6 V h): six FLOPs per token and weight of each matrix (query and
    output, key and value, three of the MLP, LM head), and the full square of attention although causal
    attention needs half of it. The embedding is a look-up and counts nothing.
    """
    attention = 12 * a.layers * a.hidden**2 * (1 + a.query_groups / a.heads + a.seq_len / a.hidden)
    return float(a.seq_len * (attention + 18 * a.layers * a.ffn * a.hidden + 6 * a.vocab * a.hidden))


def is_cuda(device: jax.Device) -> bool:
    """Whether the device is an NVIDIA GPU (jax calls the platform "gpu", AMD's as well)."""
    return device.platform in ("gpu", "cuda") and "cuda" in device.client.platform_version.lower()


def measure_peak(device: jax.Device, dtype: jnp.dtype[Any]) -> str:
    """Measure the device's matrix product and return the line that states it, in TFLOP/s (1e12 FLOP/s).

    The best round is the statistic, not the median: the hardware bounds a round from below while a neighbour
    on the same cores can only lengthen it, so the minimum is what repeated runs agree on. For the same reason it
    is measured before the training and again behind it, and the better one counts.
    """
    # On a CPU a round of a few milliseconds fits between a scheduler's switches: of many, some run alone even
    # beside a busy process on every core; a longer one never does. A GPU needs a big product, several
    # in a row that its stream runs without a gap, so that a round outlasts the dispatch by far.
    # On a CPU the rounds come in bursts, so that a neighbour must stay busy for seconds to spoil them all.
    n, products, bursts, rounds = (8192, 16, 1, 30) if is_cuda(device) else (768, 1, 8, 100)
    left, right = jax.random.normal(jax.random.key(0), (2, n, n), dtype)
    product = jax.jit(jnp.matmul).lower(left, right).compile()

    def round_seconds() -> float:
        start = time.perf_counter()
        for _ in range(products):
            result = product(left, right)
        result.block_until_ready()
        return time.perf_counter() - start

    for _ in range(5):  # threads started, caches filled, clocks up
        round_seconds()
    best = min(round_seconds() for _ in range(rounds))
    for _ in range(bursts - 1):
        time.sleep(BURST_PAUSE)
        best = min(best, *(round_seconds() for _ in range(rounds)))
    peak = products * 2 * n**3 / best / 1e12
    product_text = f"{dtype.name} matmul {n}x{n}x{n}"
    return f"proxy machine peak: {peak:.4f} TFLOP/s/device ({product_text}, best of {bursts * rounds})"


def initial_weights(a: argparse.Namespace, key: jax.Array) -> Weights:
    """Float32 weights drawn from N(0, 0.02^2), norms' scales one; LM head untied from the embedding."""
    h, f, kv = a.hidden, a.ffn, a.hidden // a.heads * a.query_groups
    shapes = {"query": (h, h), "key": (h, kv), "value": (h, kv), "output": (h, h)}
    shapes |= {"gate": (h, f), "up": (h, f), "down": (f, h)}
    keys = iter(jax.random.split(key, len(shapes) + 2))

    def normal(*shape: int) -> jax.Array:
        return 0.02 * jax.random.normal(next(keys), shape, jnp.float32)

    layers = {name: normal(a.layers, *shape) for name, shape in shapes.items()}
    layers |= {name: jnp.ones((a.layers, h)) for name in ("attention_norm", "mlp_norm")}
    ends = {"embedding": normal(a.vocab, h), "norm": jnp.ones(h), "head": normal(h, a.vocab)}
    return {**ends, "layers": layers}


def rms_norm(x: jax.Array, scale: jax.Array) -> jax.Array:
    """RMSNorm over the last axis, in float32 whatever the dtype of x [B, S, H]."""
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


def loss_of(weights: Weights, tokens: jax.Array, a: argparse.Namespace, attention: Any) -> jax.Array:
    """Mean next-token cross entropy in nats of tokens [B, S + 1], computed in the dtype of the weights."""
    # Activations are [B S, H]: from three axes, XLA on a CPU takes twice as long for a weight's gradient.
    per_head = (tokens.shape[0], a.seq_len, -1, a.hidden // a.heads)  # [B, S, N or G, D]
    x = weights["embedding"][tokens[:, :-1].reshape(-1)]

    def layer(x: jax.Array, w: Weights) -> tuple[jax.Array, None]:
        y = rms_norm(x, w["attention_norm"])
        query, key, value = ((y @ w[name]).reshape(per_head) for name in ("query", "key", "value"))
        query, key = rotate(query), rotate(key)
        y = jax.nn.dot_product_attention(query, key, value, is_causal=True, implementation=attention)
        x = x + y.reshape(x.shape) @ w["output"]
        y = rms_norm(x, w["mlp_norm"])
        return x + (jax.nn.silu(y @ w["gate"]) * (y @ w["up"])) @ w["down"], None

    x, _ = jax.lax.scan(layer, x, weights["layers"])
    logits = (rms_norm(x, weights["norm"]) @ weights["head"]).astype(jnp.float32)  # [B S, V]
    # One-hot targets, never stored: XLA fuses them into a comparison, where labels by index would cost the
    # backward pass a scatter into an array of the logits' size.
    targets = jax.nn.one_hot(tokens[:, 1:].reshape(-1), a.vocab)
    return jnp.mean(optax.softmax_cross_entropy(logits, targets))


def mean_of_passes(evaluate: Any, weights: Weights, tokens: jax.Array, passes: int) -> Any:
    """Loss and gradient, the mean of `passes` equal calls of `evaluate` that are all really computed."""
    if passes == 1:
        return evaluate(weights, tokens)

    def once_more(_: jax.Array, total: tuple[jax.Array, Weights]) -> Any:
        # Adds 0, for no cross entropy is negative; but the compiler cannot know that, so each pass waits for
        # the one before it, and none can be merged with another or moved out of the loop.
        same_tokens = tokens + (total[0] < 0)
        share = jax.tree.map(lambda x: x / passes, evaluate(weights, same_tokens))
        return jax.tree.map(jnp.add, total, share)

    return jax.lax.fori_loop(0, passes, once_more, (jnp.zeros(()), jax.tree.map(jnp.zeros_like, weights)))


def main() -> None:
    """Measure the peak, train, print."""
    a = parse_arguments()
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    if a.time_limit is not None:
        arm_time_limit(a.time_limit)
    device = jax.devices()[0]
    dtype = jnp.dtype({"fp32": "float32", "bf16": "bfloat16"}[a.dtype])
    # cuDNN's flash attention takes 16-bit types on NVIDIA GPUs only; None is jax's own, which runs anywhere.
    attention = "cudnn" if is_cuda(device) and a.dtype == "bf16" else None
    print(f"proxy devices: 1 x {device.device_kind} ({device.platform})")
    print(f"proxy jax: {jax.__version__}")
    print(measure_peak(device, dtype))

    evaluate = jax.value_and_grad(lambda weights, tokens: loss_of(weights, tokens, a, attention))
    optimizer = optax.adamw(3e-4, b1=0.9, b2=0.95, weight_decay=0.1)

    def step(state: State, tokens: jax.Array) -> tuple[State, jax.Array]:
        master, moments = state
        weights = jax.tree.map(lambda x: x.astype(dtype), master)
        loss, gradient = mean_of_passes(evaluate, weights, tokens, a.handicap)
        gradient = jax.tree.map(lambda x: x.astype(jnp.float32), gradient)
        updates, moments = optimizer.update(gradient, moments, master)
        return (optax.apply_updates(master, updates), moments), loss

    weights_key, tokens_key = jax.random.split(jax.random.key(a.seed))
    weights = jax.jit(lambda key: initial_weights(a, key))(weights_key)
    state: State = (weights, optimizer.init(weights))
    # One batch for the whole run, so that a loss that falls shows real learning.
    tokens = jax.random.randint(tokens_key, (a.mbs, a.seq_len + 1), 0, a.vocab)
    parameters = sum(x.size for x in jax.tree.leaves(weights))
    step_tokens = a.mbs * a.seq_len
    step_tflop = a.mbs * model_flops_per_sequence(a) / 1e12
    print(f"proxy model: {a.size}, {a.dtype}, {parameters} parameters, {step_tflop:.6f} TFLOP/step")
    print(f"proxy attention: {attention or 'xla'}, handicap {a.handicap}")

    start = time.perf_counter()
    # The state is donated: the updated one takes its memory, or a GPU would have to hold both.
    compiled = jax.jit(step, donate_argnums=0).lower(state, tokens).compile()
    print(f"proxy compiled in {time.perf_counter() - start:.1f} s")
    for number in range(a.steps):
        start = time.perf_counter()
        state, loss = jax.block_until_ready(compiled(state, tokens))
        seconds = time.perf_counter() - start
        print(
            f"completed step: {number}, seconds: {seconds:.6f}, TFLOP/s/device: {step_tflop / seconds:.6f}, "
            f"Tokens/s/device: {step_tokens / seconds:.3f}, total_weights: {step_tokens}, loss: {loss:.3f}"
        )
    del state, loss  # a GPU's memory is full of them
    print(measure_peak(device, dtype))
    print(f"proxy done: {a.steps} steps")


if __name__ == "__main__":
    main()
