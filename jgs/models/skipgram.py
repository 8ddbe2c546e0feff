"""Skip-gram with negative sampling on walks: what DeepWalk and node2vec learn embeddings by.

Word2vec (Mikolov et al. 2013, section 2.2) with walks for sentences: the node at a position of
a walk, the *center*, is to tell the nodes within its window from nodes drawn at random. Every
node has two vectors of width `D`, one as a center and one as a context. A row `[2D + 2]` holds
the first, the second, and how much each has learned: the learning rates of its pairs, added.

Negatives are shared (Ji et al. 2016, section 3, share them in a window; here it is a walk), so
that a batch is a few dense products per walk, and one read and one update per node of a walk.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.extend.random import threefry_2x32

from jgs import kernels
from jgs.graph import Graph
from jgs.kernels.call import floats, on_cpu, vary_alike
from jgs.sampling.random import below, fold
from jgs.sampling.walks import walk_numbers, walker_keys

_PAIRS = 0x70616972  # folded into a step's key, which the walks are drawn with
_EDGES_AT_ONCE = 1 << 24
_CURVATURE = 0.25  # of the logistic loss, at most
_UNITS = 1 << 10  # the noise weights are integers: every device draws alike


class WalkBatch(NamedTuple):
    """Walks of one step, with what skip-gram draws for them.

    Fields:
      nodes: int32 `[B, T]`, as in `jgs.sampling.Walks`; `N` after a walk's end.
      windows: int32 `[B, T]`; how far the window of each center reaches to both sides.
      negatives: int32 `[B, K]`; nodes drawn at random, which all centers of the walk share.
    """

    nodes: jax.Array
    windows: jax.Array
    negatives: jax.Array


class Gradient(NamedTuple):
    """Of one batch: what `skipgram` returns.

    Fields:
      loss: float32 scalar, the sum over all pairs.
      pairs: float32 scalar, how many pairs of a center and a context there are.
      rows: float32 `[B, T, 2D + 2]`, the gradient of `loss` by the vectors in the rows of
        `nodes`; and in the last two columns how many pairs each of the two is in.
      negative_rows: float32 `[B, K, 2D + 2]`, likewise of `negatives`.
    """

    loss: jax.Array
    pairs: jax.Array
    rows: jax.Array
    negative_rows: jax.Array


def noise_prefix(graph: Graph, length: int) -> np.ndarray:
    """int64 `[N]`: prefix sums of the weights that negatives are drawn by.

    Word2vec draws a word by its count to the power 0.75. A node's count is taken to be its
    expected visits by one walk of `length` steps from every node, if a step arrives at a node
    in proportion to the rows that it stands in: for uniform walks on a symmetric graph that is
    the law they tend to.
    """
    rows = np.zeros(graph.num_nodes, np.int64)
    indices = np.asarray(graph.indices)
    for first in range(0, indices.size, _EDGES_AT_ONCE):
        some = indices[first : first + _EDGES_AT_ONCE]
        rows += np.bincount(some, minlength=graph.num_nodes)
    visits = 1 + length * graph.num_nodes * (rows / max(indices.size, 1))
    return np.cumsum(np.rint(visits**0.75 * _UNITS).astype(np.int64))


def draw_pairs(
    words: jax.Array, nodes: jax.Array, prefix: jax.Array, window: int, num_negatives: int
) -> WalkBatch:
    """The batch of the walks `nodes` int32 `[B, T]`; to be traced under x64.

    A center's window is uniform in `1, ..., window`, as word2vec's: near contexts weigh more.
    A draw belongs to the key, the walk (its root, and which of the root's it is) and its
    number, as the steps of the walk do.

    Args:
      words: uint32 `[2]`, the key that the walks were drawn with.
      prefix: int64 `[N]`, of `noise_prefix`.
      num_negatives: `K`.
    """
    roots = nodes[:, 0]
    keys = walker_keys(fold(words, _PAIRS), roots, walk_numbers(roots))
    (windows, _), bits = _words(keys, nodes.shape[1], 0), _words(keys, num_negatives, 1)
    reach = 1 + ((windows.astype(jnp.uint64) * jnp.uint64(window)) >> jnp.uint64(32))
    high, low = (word.astype(jnp.uint64) for word in bits)
    points = below((high << jnp.uint64(32)) | low, prefix[-1])
    negatives = jnp.searchsorted(prefix, points, side="right")
    return WalkBatch(nodes, reach.astype(jnp.int32), negatives.astype(jnp.int32))


def skipgram(
    rows: jax.Array, negative_rows: jax.Array, batch: WalkBatch, num_nodes: int, weight: float
) -> Gradient:
    """The loss of a batch, and its gradient by the rows that the batch reads.

    A center `c` and a context `x` at most the center's window away cost
    `-log sigmoid(c . x)`, and the walk's `K` negatives `y` cost the pair
    `-weight / K * sum(log sigmoid(-c . y))` more: in expectation word2vec's loss with `weight`
    negatives a pair. (Word2vec leaves out a negative that is the context itself; here it
    stays.) The derivatives are written out: the products are the same as the loss's. Their
    kernel scores the contexts of each window alone; to rounding it gives the same.

    Args:
      rows: float32 `[B, T, 2D + 2]`, of `batch.nodes`; those of padding may hold anything
        finite.
      negative_rows: float32 `[B, K, 2D + 2]`, of `batch.negatives`.
      num_nodes: `N`, which padding has.
      weight: how many negatives a pair counts for.
    """
    sizes: dict[str, Any] = {"num_nodes": num_nodes, "weight": weight}
    ways = partial(_kernel, **sizes), partial(skipgram_plain, **sizes)
    return on_cpu(*ways, *vary_alike(rows, negative_rows, batch))


def _kernel(rows, negative_rows, batch, num_nodes, weight):
    results = [floats(shape) for shape in (rows.shape, negative_rows.shape)]
    results.append(floats((rows.shape[0], 2)))
    found = jax.ffi.ffi_call("jgs_skipgram", results)(
        rows,
        negative_rows,
        batch.nodes,
        batch.windows,
        num_nodes=np.int64(num_nodes),
        weight=np.float32(weight),
        num_threads=np.int64(kernels.NUM_THREADS),
    )
    by_rows, by_negatives, sums, _ = vary_alike(*found, rows)
    loss, pairs = jnp.sum(sums, axis=0)
    return Gradient(loss, pairs, by_rows, by_negatives)


def skipgram_plain(
    rows: jax.Array, negative_rows: jax.Array, batch: WalkBatch, num_nodes: int, weight: float
) -> Gradient:
    """`skipgram` in plain JAX."""
    width = rows.shape[-1] // 2 - 1
    centers, contexts = rows[..., :width], rows[..., width : 2 * width]
    negatives = negative_rows[..., width : 2 * width]
    pairs = _pairs(batch, num_nodes)
    of_center = jnp.sum(pairs, axis=2, keepdims=True)
    share = of_center * (weight / negatives.shape[1])
    near = jnp.einsum("btd,bsd->bts", centers, contexts)
    far = jnp.einsum("btd,bkd->btk", centers, negatives)
    loss = jnp.sum(pairs * jax.nn.softplus(-near)) + jnp.sum(share * jax.nn.softplus(far))
    by_near, by_far = pairs * (jax.nn.sigmoid(near) - 1), share * jax.nn.sigmoid(far)
    by_centers = jnp.einsum("bts,bsd->btd", by_near, contexts)
    by_centers += jnp.einsum("btk,bkd->btd", by_far, negatives)
    by_contexts = jnp.einsum("bts,btd->bsd", by_near, centers)
    by_negatives = jnp.einsum("btk,btd->bkd", by_far, centers)
    counts = of_center * (1 + weight), jnp.sum(pairs, axis=1)[..., None]
    drawn = jnp.broadcast_to(jnp.sum(share, axis=1), negatives.shape[:2])[..., None]
    nothing = jnp.zeros_like(by_negatives), jnp.zeros_like(drawn)
    return Gradient(
        loss,
        jnp.sum(pairs),
        jnp.concatenate([by_centers, by_contexts, *counts], axis=-1),
        jnp.concatenate([nothing[0], by_negatives, nothing[1], drawn], axis=-1),
    )


def first_row(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """Of a table's rows, float32 `[2D + 2]`: word2vec's centers, uniform in +-1 / 2D, and
    zeros."""
    width = shape[0] // 2 - 1
    center = (jax.random.uniform(key, (width,)) - 0.5) / width
    return jnp.concatenate([center, jnp.zeros(width + 2)])


def damped_sgd() -> optax.GradientTransformation:
    """SGD on a row `[2D + 2]`, for gradients that come multiplied by the learning rate.

    Word2vec steps after each pair; here all pairs of a batch are added. A vector that is in
    many of them, as a hub's is, would step beyond its aim and diverge. So a vector in `n` pairs
    steps by `1 / (1 + rate * n / 4)` of SGD's step. The pairs' second derivatives add up to at
    most `n / 4`, where the other vectors have length 1: the step is then as an implicit one.
    One in few pairs steps as SGD has it.
    """

    def update(gradient, state, params=None):
        width = gradient.shape[0] // 2 - 1
        counts = gradient[2 * width :]
        damping = jnp.repeat(1 + _CURVATURE * counts, width, total_repeat_length=2 * width)
        return jnp.concatenate([-gradient[: 2 * width] / damping, counts]), state

    return optax.GradientTransformation(lambda params: optax.EmptyState(), update)


def _pairs(batch: WalkBatch, num_nodes: int) -> jax.Array:
    """float32 `[B, T, T]`: 1 where a center, the second axis, has the third's as a context."""
    place, real = jnp.arange(batch.nodes.shape[1]), batch.nodes < num_nodes
    apart = jnp.abs(place[:, None] - place)
    near = (apart > 0) & (apart <= batch.windows[:, :, None])
    return (near & real[:, :, None] & real[:, None, :]).astype(jnp.float32)


def _words(keys: jax.Array, count: int, which: int) -> Any:
    """Two uint32 `[B, count]`: for every walk's key those of the counters `(i, which)`."""
    number = jnp.arange(count, dtype=jnp.uint32)
    counter = jnp.concatenate([number, jnp.full_like(number, which)])
    bits = jax.vmap(lambda key: threefry_2x32(key, counter))(keys)
    return bits[:, :count], bits[:, count:]
