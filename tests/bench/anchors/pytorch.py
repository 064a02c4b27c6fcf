"""The anchor in PyTorch: trains the shape of a proxy's case with torch.compile, and prints the proxy's step lines.

    python tests/bench/anchors/pytorch.py --size 8b-8l --dtype bf16 --layers 8 ...

takes the arguments of suites/proxy/train.py and counts FLOPs by its formula. It is written as PyTorch's users write: one compiled
layer, cuDNN's attention, bf16 weights beside float32 master weights, AdamW fused. A hook adds each gradient to its float32 total.
FP8 is torchao's `tensorwise` recipe in the layers. Without a GPU it runs too, for a try in small.
"""

import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

sys.path.insert(0, str(Path(__file__).parents[3] / "suites" / "proxy"))
import train

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
PEAK = {"bf16": 989.0, "fp8": 1979.0}  # TFLOP/s of an H100 SXM
FIRST = 5  # the first step that is measured


def linear(rows: int, columns: int) -> Any:
    return nn.Linear(rows, columns, bias=False)


def rotate(x: Any, cos: Any, sin: Any) -> Any:
    """RoPE of x [B, heads, S, D]."""
    first, second = x.float().chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1).to(x.dtype)


class Layer(nn.Module):  # type: ignore[misc]
    def __init__(self, a: Any) -> None:
        super().__init__()
        self.heads, self.groups, self.per_head = a.heads, a.query_groups, a.hidden // a.heads
        kv = self.per_head * self.groups
        self.sizes = (a.hidden, kv, kv)
        self.attention_norm = nn.RMSNorm(a.hidden, eps=train.NORM_EPSILON)
        self.qkv = linear(a.hidden, a.hidden + 2 * kv)
        self.output = linear(a.hidden, a.hidden)
        self.mlp_norm = nn.RMSNorm(a.hidden, eps=train.NORM_EPSILON)
        self.up = linear(a.hidden, 2 * a.ffn)
        self.down = linear(a.ffn, a.hidden)

    def forward(self, x: Any, cos: Any, sin: Any) -> Any:
        parts = self.qkv(self.attention_norm(x)).split(self.sizes, dim=-1)
        query, key, value = (part.unflatten(-1, (-1, self.per_head)).transpose(1, 2) for part in parts)
        query, key = rotate(query, cos, sin), rotate(key, cos, sin)
        y = functional.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)
        x = x + self.output(y.transpose(1, 2).flatten(2))
        gate, up = self.up(self.mlp_norm(x)).chunk(2, dim=-1)
        return x + self.down(functional.silu(gate) * up)


class Model(nn.Module):  # type: ignore[misc]
    def __init__(self, a: Any) -> None:
        super().__init__()
        self.embedding = nn.Embedding(a.vocab, a.hidden)
        self.layers = nn.ModuleList(Layer(a) for _ in range(a.layers))
        self.norm = nn.RMSNorm(a.hidden, eps=train.NORM_EPSILON)
        self.head = linear(a.hidden, a.vocab)
        head_dim = a.hidden // a.heads
        frequency = train.ROPE_THETA ** (-torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim)
        self.angle = torch.arange(a.seq_len)[:, None] * frequency
        for layer in self.layers:
            layer.compile()

    @torch.compile  # type: ignore[untyped-decorator]
    def loss(self, x: Any, targets: Any) -> Any:
        return functional.cross_entropy(self.head(self.norm(x)).float().flatten(0, 1), targets.flatten())

    def forward(self, tokens: Any) -> Any:
        x = self.embedding(tokens[:, :-1])
        cos, sin = self.angle.cos(), self.angle.sin()
        for layer in self.layers:
            x = layer(x, cos, sin)
        return self.loss(x, tokens[:, 1:])


def build(a: Any) -> Any:
    """The model in bf16, its matrices drawn from N(0, 0.02^2)."""
    torch.manual_seed(a.seed)
    torch.set_default_dtype(torch.bfloat16)
    with torch.device(DEVICE):
        model = Model(a)
    torch.set_default_dtype(torch.float32)
    for parameter in model.parameters():
        if parameter.ndim > 1:
            nn.init.normal_(parameter, std=0.02)
    if a.dtype == "fp8":
        from torchao.float8 import Float8LinearConfig, convert_to_float8_training

        config = Float8LinearConfig.from_recipe_name("tensorwise")
        if DEVICE == "cpu":
            config = Float8LinearConfig(emulate=True)
        convert_to_float8_training(model.layers, config=config)
    return model


def main() -> None:
    a = train.parse_arguments()
    if a.dtype not in PEAK or a.mlp != "gated" or a.gpus > 1 or a.steps <= FIRST:
        sys.exit(
            f"anchor: it trains in bf16 or fp8, with --mlp gated, on one GPU, and more than {FIRST} steps"
        )
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    model = build(a)
    weights = list(model.parameters())
    masters = [weight.detach().float() for weight in weights]
    for weight, master in zip(weights, masters, strict=True):
        master.grad = torch.zeros_like(master)

        def add(weight: Any, total: Any = master.grad) -> None:
            total.add_(weight.grad)
            weight.grad = None

        weight.register_post_accumulate_grad_hook(add)
    optimizer = torch.optim.AdamW(masters, lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    tokens = torch.randint(a.vocab, (a.ga, a.mbs, a.seq_len + 1), device=DEVICE)
    tflop = a.ga * a.mbs * train.model_flops_per_sequence(a) / 1e12
    count = sum(weight.numel() for weight in weights)
    print(
        f"anchor torch: {torch.__version__}, {torch.cuda.get_device_name() if DEVICE == 'cuda' else DEVICE}"
    )
    print(f"anchor model: {a.size}, {a.dtype}, {count} parameters, {tflop:.6f} TFLOP/step/device")

    def step() -> float:
        torch._foreach_zero_([master.grad for master in masters])
        loss = torch.zeros((), device=DEVICE)
        for batch in tokens:
            one = model(batch) / a.ga
            one.backward()
            loss += one.detach()
        optimizer.step()
        with torch.no_grad():
            torch._foreach_copy_(weights, masters)
        return float(loss)  # waits for the GPU

    start = time.perf_counter()
    step()
    print(f"anchor compiled in {time.perf_counter() - start:.1f} s")
    start = time.perf_counter()
    while DEVICE == "cuda" and time.perf_counter() - start < train.WARM_UP:
        step()
    taken = []
    for number in range(a.steps):
        start = time.perf_counter()
        loss = step()
        seconds = time.perf_counter() - start
        taken.append(seconds)
        print(
            f"completed step: {number}, seconds: {seconds:.6f}, TFLOP/s/device: {tflop / seconds:.6f}, "
            f"Tokens/s/device: {a.ga * a.mbs * a.seq_len / seconds:.3f}, loss: {loss:.3f}"
        )
    mean = sum(taken[FIRST:]) / len(taken[FIRST:])
    print(
        f"anchor mean of steps {FIRST} to {a.steps - 1}: {mean:.4f} s, {tflop / mean:.1f} TFLOP/s, "
        f"{100 * tflop / mean / PEAK[a.dtype]:.1f} % of {PEAK[a.dtype]:g}"
    )
    if DEVICE == "cuda":
        print(f"anchor memory: {torch.cuda.max_memory_allocated() / 1e9:.1f} GB")


if __name__ == "__main__":
    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION if DEVICE == "cuda" else SDPBackend.MATH):
        main()
