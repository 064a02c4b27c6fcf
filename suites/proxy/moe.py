"""A layer's experts: which tokens each of them gets, the exchange between GPUs, and their products.

Letters in shapes, besides those of train.py: E experts, K experts of a token, C = T K / E rows of an expert.

The router's product, the K best experts of each token, their softmax and the sort by expert are computed as in any
MoE. But then the sorted list is cut into E parts of equal length: so each expert gets as many rows, no token is
dropped, and the pace does not depend on what the router has learned.

On several GPUs each has some of the experts, with their gradients and AdamW's moments. The rows of all GPUs go to
the expert's (all-to-all) and come back, forward and backward. So an expert's gradient has the rows of all GPUs, and
nothing of it is reduced or gathered.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp


def layer(
    x: jax.Array,
    logits: jax.Array,
    weights: tuple[jax.Array, jax.Array],
    totals: tuple[jax.Array, jax.Array],
    top_k: int,
    activation: Callable[[jax.Array], jax.Array],
    axis: str | None,
) -> jax.Array:
    """What its experts make of each token of x [T, H], by the router's logits [T, E].

    `weights` and `totals` are those of the two matrices of the experts on this GPU, and their gradients so far.
    `axis` is the mesh's axis over which the experts are spread, None if they are all here.
    """
    best, chosen = jax.lax.top_k(logits.astype(jnp.float32), top_k)  # [T, K]
    order = jnp.argsort(chosen.reshape(-1))  # [T K]
    back = jnp.argsort(order)
    rows = permuted(jnp.repeat(x, top_k, axis=0), order, back)
    rows = rows.reshape(logits.shape[1], -1, x.shape[1])  # [E, C, H]
    if axis is not None:
        rows = jax.lax.all_to_all(rows, axis, split_axis=0, concat_axis=1, tiled=True)
    rows = product(activation(product(rows, weights[0], totals[0])), weights[1], totals[1])
    if axis is not None:
        rows = jax.lax.all_to_all(rows, axis, split_axis=1, concat_axis=0, tiled=True)
    parts = permuted(rows.reshape(-1, x.shape[1]), back, order).reshape(-1, top_k, x.shape[1])
    return jnp.sum(parts * jax.nn.softmax(best)[:, :, None], axis=1).astype(x.dtype)


@jax.custom_vjp  # type: ignore[untyped-decorator]
def permuted(x: jax.Array, there: jax.Array, back: jax.Array) -> jax.Array:
    """The rows of x in the order `there`. `back` is the reverse, so that the gradient is gathered too, not scattered."""
    return _permuted_forward(x, there, back)[0]


def _permuted_forward(x: jax.Array, there: jax.Array, back: jax.Array) -> Any:
    return x.at[there].get(mode="promise_in_bounds"), back


def _permuted_backward(back: jax.Array, gradient: jax.Array) -> Any:
    return gradient.at[back].get(mode="promise_in_bounds"), None, None


permuted.defvjp(_permuted_forward, _permuted_backward)


@jax.custom_vjp  # type: ignore[untyped-decorator]
def product(x: jax.Array, weight: jax.Array, total: jax.Array) -> jax.Array:
    """Each expert's product of its rows of x [E, C, K] and its weight [E, K, N]; `total` as in train.py."""
    return _product_forward(x, weight, total)[0]


def _product_forward(x: jax.Array, weight: jax.Array, total: jax.Array) -> Any:
    return x @ weight, (x, weight, total)


def _product_backward(kept: Any, gradient: jax.Array) -> Any:
    x, weight, total = kept
    of_weight = jax.lax.dot_general(
        x, gradient, (((1,), (1,)), ((0,), (0,))), preferred_element_type=jnp.float32
    )
    return gradient @ weight.swapaxes(1, 2), None, total + of_weight


product.defvjp(_product_forward, _product_backward)
