"""Skip-gram with negative sampling on walks: what DeepWalk and node2vec learn embeddings by.

Word2vec (Mikolov et al. 2013, section 2.2) with walks for sentences: the node at a position of
a walk, the *center*, is to tell the nodes within its window from nodes drawn at random. Every
node has two vectors of width `D`, one as a center and one as a context. They are rows of one
table, `2v` and `2v + 1` of node `v`. A row `[D + 1]` holds the vector and how much it has
learned: the learning rates of its pairs, added.

Negatives are shared by a few centers in a row (Ji et al. 2016, section 3, share them in a
window), so that a batch is a few dense products per walk, and one read and one update per row.
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
      negatives: int32 `[B, C, K]`; nodes drawn at random. A walk is cut in `C` runs of
        `ceil(T / C)` places; the centers of a run share its `K` negatives.
    """

    nodes: jax.Array
    windows: jax.Array
    negatives: jax.Array

    def rows(self) -> jax.Array:
        """int32 `[M]`, `M = B (2 T + C K)`: the rows of the table that the batch reads: of all
        centers, of all contexts, and of all negatives. Those of padding are `2N` or more."""
        nodes, negatives = 2 * self.nodes.ravel(), 2 * self.negatives.ravel()
        return jnp.concatenate([nodes, nodes + 1, negatives + 1])


class Gradient(NamedTuple):
    """Of one batch: what `skipgram` returns.

    Fields:
      loss: float32 scalar, the sum over all pairs.
      pairs: float32 scalar, how many pairs of a center and a context there are.
      rows: float32 `[M, D + 1]`, `rate` times: the gradient of `loss` by the vector of each row
        of `batch.rows()`, and in the last column how many pairs it is in.
    """

    loss: jax.Array
    pairs: jax.Array
    rows: jax.Array


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
    key_data: jax.Array, nodes: jax.Array, prefix: jax.Array, window: int, num_negatives: int
) -> WalkBatch:
    """The batch of the walks `nodes` int32 `[B, T]`; to be traced under x64.

    A center's window is uniform in `1, ..., window`, as word2vec's: near contexts weigh more.
    A draw belongs to the key, the walk (its root, and which of the root's it is) and its
    number, as the steps of the walk do.

    Args:
      key_data: uint32 `[2]`, the key that the walks were drawn with.
      prefix: int64 `[N]`, of `noise_prefix`.
      num_negatives: `K`. A run has about as many places: a walk reads about `T` negatives.
    """
    num_runs = count_runs(nodes.shape[1], num_negatives)
    roots = nodes[:, 0]
    keys = walker_keys(fold(key_data, _PAIRS), roots, walk_numbers(roots))
    (windows, _) = _bits(keys, nodes.shape[1], 0)
    bits = _bits(keys, num_runs * num_negatives, 1)
    reach = 1 + ((windows.astype(jnp.uint64) * jnp.uint64(window)) >> jnp.uint64(32))
    high, low = (word.astype(jnp.uint64) for word in bits)
    points = below((high << jnp.uint64(32)) | low, prefix[-1])
    negatives = jnp.searchsorted(prefix, points, side="right").astype(jnp.int32)
    return WalkBatch(
        nodes, reach.astype(jnp.int32), negatives.reshape(-1, num_runs, num_negatives)
    )


def count_runs(num_places: int, num_negatives: int) -> int:
    """`C` of a `WalkBatch`: runs of at least `num_negatives` places, or one of them all."""
    size = -(-num_places // max(num_places // num_negatives, 1))
    return -(-num_places // size)


def skipgram(
    rows: jax.Array, batch: WalkBatch, num_nodes: int, weight: float, rate: Any = 1.0
) -> Gradient:
    """The loss of a batch, and its gradient by the rows that the batch reads.

    A center `c` and a context `x` at most the center's window away cost
    `-log sigmoid(c . x)`, and the `K` negatives `y` of the center's run cost the pair
    `-weight / K * sum(log sigmoid(-c . y))` more: in expectation word2vec's loss with `weight`
    negatives a pair. (Word2vec leaves out a negative that is the context itself; here it
    stays.) The derivatives are written out: the products are the same as the loss's. Their
    kernel scores the contexts of each window alone; to rounding it gives the same.

    Args:
      rows: float32 `[M, D + 1]`, of `batch.rows()`; those of padding may hold anything finite.
      num_nodes: `N`, which padding has.
      weight: how many negatives a pair counts for.
      rate: float32 scalar, which the gradient is multiplied by.
    """
    sizes: dict[str, Any] = {"num_nodes": num_nodes, "weight": weight}
    ways = partial(_kernel, **sizes), partial(skipgram_plain, **sizes)
    return on_cpu(*ways, *vary_alike(rows, batch, jnp.asarray(rate, jnp.float32)))


def _kernel(rows, batch, rate, num_nodes, weight):
    results = floats(rows.shape), floats((batch.nodes.shape[0], 2))
    found = jax.ffi.ffi_call("jgs_skipgram", results)(
        rows,
        batch.nodes,
        batch.windows,
        rate,
        num_runs=np.int64(batch.negatives.shape[1]),
        num_nodes=np.int64(num_nodes),
        weight=np.float32(weight),
        num_threads=np.int64(kernels.NUM_THREADS),
    )
    gradient, sums, _ = vary_alike(*found, rows)
    loss, pairs = jnp.sum(sums, axis=0)
    return Gradient(loss, pairs, gradient)


def skipgram_plain(
    rows: jax.Array, batch: WalkBatch, rate: jax.Array, num_nodes: int, weight: float
) -> Gradient:
    """`skipgram` in plain JAX."""
    (num_walks, num_places), (_, num_runs, num_negatives) = (
        batch.nodes.shape,
        batch.negatives.shape,
    )
    size, width = -(-num_places // num_runs), rows.shape[1] - 1
    num_pairs = num_walks * num_places
    centers, contexts = (
        part.reshape(num_walks, num_places, width)
        for part in (rows[:num_pairs, :-1], rows[num_pairs : 2 * num_pairs, :-1])
    )
    negatives = rows[2 * num_pairs :, :-1].reshape(num_walks, num_runs, num_negatives, width)

    def by_run(array):
        room = num_runs * size - num_places
        padded = jnp.pad(array, ((0, 0), (0, room), (0, 0)))
        return padded.reshape(num_walks, num_runs, size, array.shape[2])

    pairs = _pairs(batch, num_nodes)
    of_center = jnp.sum(pairs, axis=2, keepdims=True)
    of_run, share = by_run(centers), by_run(of_center * (weight / num_negatives))
    near = jnp.einsum("btd,bsd->bts", centers, contexts)
    far = jnp.einsum("brtd,brkd->brtk", of_run, negatives)
    loss = jnp.sum(pairs * jax.nn.softplus(-near)) + jnp.sum(share * jax.nn.softplus(far))
    by_near, by_far = pairs * (jax.nn.sigmoid(near) - 1), share * jax.nn.sigmoid(far)
    from_far = jnp.einsum("brtk,brkd->brtd", by_far, negatives)
    by_centers = jnp.einsum("bts,bsd->btd", by_near, contexts)
    by_centers += from_far.reshape(num_walks, -1, width)[:, :num_places]
    by_contexts = jnp.einsum("bts,btd->bsd", by_near, centers)
    by_negatives = jnp.einsum("brtk,brtd->brkd", by_far, of_run)
    drawn = jnp.broadcast_to(jnp.sum(share, axis=2), by_negatives.shape[:3])
    found = (
        (by_centers, of_center * (1 + weight)),
        (by_contexts, jnp.sum(pairs, axis=1)),
        (by_negatives, drawn),
    )
    gradient = [
        jnp.concatenate([vectors.reshape(-1, width), counts.reshape(-1, 1)], axis=1)
        for vectors, counts in found
    ]
    return Gradient(loss, jnp.sum(pairs), rate * jnp.concatenate(gradient))


def first_row(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """Of the table, float32 `[D + 1]`: a vector uniform in +-1 / 2D, as word2vec's centers."""
    width = shape[0] - 1
    vector = (jax.random.uniform(key, (width,)) - 0.5) / width
    return jnp.concatenate([vector, jnp.zeros(1)])


def damped_sgd() -> optax.GradientTransformation:
    """SGD on a row `[D + 1]`, for gradients that come multiplied by the learning rate.

    Word2vec steps after each pair; here all pairs of a batch are added. A vector that is in
    many of them, as a hub's is, would step beyond its aim and diverge. So a vector in `n` pairs
    steps by `1 / (1 + rate * n / 4)` of SGD's step. The pairs' second derivatives add up to at
    most `n / 4`, where the other vectors have length 1: the step is then as an implicit one.
    One in few pairs steps as SGD has it.
    """

    def update(gradient, state, params=None):
        count = gradient[-1]
        is_count = jnp.arange(gradient.shape[0]) == gradient.shape[0] - 1
        return jnp.where(is_count, count, -gradient / (1 + _CURVATURE * count)), state

    return optax.GradientTransformation(lambda params: optax.EmptyState(), update)


def _pairs(batch: WalkBatch, num_nodes: int) -> jax.Array:
    """float32 `[B, T, T]`: 1 where a center, the second axis, has the third's as a context."""
    place, real = jnp.arange(batch.nodes.shape[1]), batch.nodes < num_nodes
    distance = jnp.abs(place[:, None] - place)
    near = (distance > 0) & (distance <= batch.windows[:, :, None])
    return (near & real[:, :, None] & real[:, None, :]).astype(jnp.float32)


def _bits(keys: jax.Array, count: int, which: int) -> Any:
    """Two uint32 `[B, count]`: for every walk's key those of the counters `(i, which)`."""
    number = jnp.arange(count, dtype=jnp.uint32)
    counter = jnp.concatenate([number, jnp.full_like(number, which)])
    bits = jax.vmap(lambda key: threefry_2x32(key, counter))(keys)
    return bits[:, :count], bits[:, count:]
