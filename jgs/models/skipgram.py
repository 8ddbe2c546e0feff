"""Skip-gram with negative sampling on walks, by which DeepWalk and node2vec learn embeddings.

This is word2vec (Mikolov et al. 2013, section 2.2) with walks in place of sentences. The node
at a position of a walk is the *center*; it learns to tell the nodes within its window, its
*contexts*, from nodes drawn at random, the *negatives*. Every node has two vectors of width
`D`, one as a center and one as a context. They are rows `2v` and `2v + 1`, for node `v`, of one
table. A row `[D + 1]` holds the vector and then the sum of its pairs' learning rates, which
says how much the vector has learned.

A few consecutive centers share their negatives. (Ji et al. 2016, section 3, share them in a
window.) A batch is then a few dense products for each walk, and one read and one update for
each row.
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
from jgs.kernels.call import call, floats, vary_alike, where_it_is
from jgs.sampling.edges.random import as_key_data, below, fold
from jgs.sampling.seeds import Seeds
from jgs.sampling.walks import Walker, walk_numbers, walker_keys
from jgs.settings import exact_integers

_PAIRS = 0x70616972  # folded into the step's key, with which the walks are drawn
_VISITS = 0x76697374  # folded into the key of `count_visits`
_VISIT_WALKS = (1 << 14, 1 << 20)  # the walks of one call, and the most of all calls
_CURVATURE = 0.25  # the largest second derivative of the logistic loss
_NEGATIVES_A_PLACE = 2  # with fewer, a step rests on too few nodes: labels are told less well
_UNITS = 1 << 10  # of the noise weights, which are integers so that every device draws alike


class WalkBatch(NamedTuple):
    """The walks of one training step, with the windows and negatives drawn for them.

    Fields:
      nodes: int32 `[B, T]`, as in `jgs.sampling.Walks`; `N` after a walk's end.
      windows: int32 `[B, T]`, how far each center's window reaches to either side.
      negatives: int32 `[B, C, K]`, nodes drawn at random. A walk is cut into `C` runs of
        `ceil(T / C)` places, and the centers of a run share its `K` negatives.
    """

    nodes: jax.Array
    windows: jax.Array
    negatives: jax.Array

    def rows(self) -> jax.Array:
        """int32 `[M]`, `M = B (2 T + C K)`: the numbers of the table's rows that the batch
        reads, for all centers, then all contexts, then all negatives. In padding they are `2N`
        or more."""
        nodes, negatives = 2 * self.nodes.ravel(), 2 * self.negatives.ravel()
        return jnp.concatenate([nodes, nodes + 1, negatives + 1])


class Gradient(NamedTuple):
    """What `skipgram` returns: the loss, summed over all pairs; the number of pairs; and `rows`
    float32 `[M, D + 1]`, for each row of `batch.rows()` the gradient by its vector and, in the
    last column, the number of pairs it is in, both times `rate`."""

    loss: jax.Array
    pairs: jax.Array
    rows: jax.Array


def count_visits(
    key: Any, graph: Graph, walker: Walker, state: Any, cutoff: int | None = None
) -> np.ndarray:
    """float64 `[N]`: how often each node is in one walk from every node, by walks of `walker`,
    whose roots have the `cutoff`, or none.

    The nodes of all places of a walk count, its root too. A graph of fewer than 16,384 nodes
    has several walks from each, and one of more than 1,048,576 has them from so many evenly
    spaced nodes; the result is scaled. It depends on the arguments alone. The draws of a batch
    do not depend on these walks' `key`.
    """
    num_nodes, key_data = graph.num_nodes, fold(as_key_data(key), _VISITS)
    at_once = min(_VISIT_WALKS[0], max(_VISIT_WALKS[0] // num_nodes, 1) * num_nodes)
    count = min(max(at_once, num_nodes), _VISIT_WALKS[1])
    roots = np.arange(count) * max(num_nodes, count) // count % num_nodes
    visits = np.zeros(num_nodes, np.int64)
    for number, first in enumerate(range(0, count, at_once)):
        some = roots[first : first + at_once].astype(np.int32)
        some = np.pad(some, (0, at_once - some.size), constant_values=num_nodes)
        with exact_integers():
            times = None if cutoff is None else jnp.full(some.shape, cutoff)
        walks = walker.sample(fold(key_data, number), graph, state, Seeds(some, times))
        visits += np.bincount(np.asarray(walks.nodes)[:, 1:].ravel(), minlength=num_nodes + 1)[
            :num_nodes
        ]
    return 1 + visits * (num_nodes / max(count, 1))


def noise_prefix(visits: np.ndarray) -> np.ndarray:
    """int64 `[N]`: prefix sums of the weights in proportion to which negatives are drawn.

    Word2vec draws a word in proportion to its count to the power 0.75 (Mikolov et al. 2013,
    section 2.2). The `visits` `[N]` are a node's count, from `count_visits`.
    """
    return np.cumsum(np.rint(visits**0.75 * _UNITS).astype(np.int64))


def draw_pairs(
    key_data: jax.Array, nodes: jax.Array, prefix: jax.Array, window: int, num_negatives: int
) -> WalkBatch:
    """The batch of the walks `nodes` int32 `[B, T]`, which were drawn with the key's data
    `key_data`. It must be traced under x64.

    A center's window is uniform in `1, ..., window`, as in word2vec, so near contexts weigh
    more. As with a walk's steps, a draw depends on the key, the walk (its root, and which of
    the root's walks it is) and the draw's number. `prefix` is from `noise_prefix`. A run of
    centers shares `num_negatives` of them, `K`, and has about `K / 2` places, so a walk reads
    about `2 T` negatives.
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
    """The number `C` of a `WalkBatch`'s runs. A run has at least half of `num_negatives`
    places; a walk of fewer places is one run."""
    least = max(num_negatives // _NEGATIVES_A_PLACE, 1)
    size = -(-num_places // max(num_places // least, 1))
    return -(-num_places // size)


def skipgram(
    rows: jax.Array, batch: WalkBatch, num_nodes: int, weight: float, rate: Any = 1.0
) -> Gradient:
    """The loss of a batch of walks, and its gradient, times `rate`, by the table's `rows` `[M,
    D + 1]` that the batch reads. In padding, which has the id `num_nodes`, these may hold
    anything finite.

    A pair is a center `c` and a context `x` within the center's window. It costs `-log
    sigmoid(c . x)`, and for the `K` negatives `y` of the center's run another `-weight / K *
    sum(log sigmoid(-c . y))`. In expectation that is word2vec's loss with `weight` negatives
    for each pair. (Word2vec leaves out a negative that is the context itself; here it stays.)
    The derivatives are written out, as they use the same products as the loss. The kernel
    scores only the contexts within each window and gives the same to rounding.
    """
    sizes: dict[str, Any] = {"num_nodes": num_nodes, "weight": weight}
    ways = partial(_kernel, **sizes), partial(skipgram_plain, **sizes)
    return where_it_is(*ways, *vary_alike(rows, batch, jnp.asarray(rate, jnp.float32)))


def _kernel(rows, batch, rate, num_nodes, weight):
    gradient, sums = call(
        "jgs_skipgram",
        (floats(rows.shape), floats((batch.nodes.shape[0], 2))),
        (rows, batch.nodes, batch.windows, rate),
        kernels.NUM_THREADS,
        num_runs=np.int64(batch.negatives.shape[1]),
        num_nodes=np.int64(num_nodes),
        weight=np.float32(weight),
    )
    loss, pairs = jnp.sum(sums, axis=0)
    return Gradient(loss, pairs, gradient)


def skipgram_plain(
    rows: jax.Array, batch: WalkBatch, rate: jax.Array, num_nodes: int, weight: float
) -> Gradient:
    """`skipgram` in plain JAX."""
    (num_walks, num_places), (num_runs, num_negatives) = (
        batch.nodes.shape,
        batch.negatives.shape[1:],
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
    """The initial value of every row of the table, float32 `[D + 1]`: a vector uniform in
    +-1 / 2D, as word2vec has it for centers, and 0."""
    width = shape[0] - 1
    vector = (jax.random.uniform(key, (width,)) - 0.5) / width
    return jnp.concatenate([vector, jnp.zeros(1)])


def damped_sgd() -> optax.GradientTransformation:
    """SGD on a row `[D + 1]`, for gradients that are already multiplied by the learning rate.

    Word2vec steps after each pair; here the gradients of all pairs of a batch are added. A
    vector that is in many pairs, as a hub's is, would step beyond its aim and diverge. So a
    vector in `n` pairs takes `1 / (1 + rate * n / 4)` of SGD's step. If the other vectors have
    length 1, the pairs' second derivatives add up to at most `n / 4`, and the step is like an
    implicit one. At a rate of 0.05 a node that a batch visits once steps about as word2vec's
    0.025 does: its center is in about `(window + 1) * (1 + negatives)` pairs.
    """

    def update(gradient, state, params=None):
        count = gradient[-1]
        is_count = jnp.arange(gradient.shape[0]) == gradient.shape[0] - 1
        return jnp.where(is_count, count, -gradient / (1 + _CURVATURE * count)), state

    return optax.GradientTransformation(lambda params: optax.EmptyState(), update)


def _pairs(batch: WalkBatch, num_nodes: int) -> jax.Array:
    """float32 `[B, T, T]`: 1 where the place of the third axis is a context of the center at
    the place of the second, else 0."""
    place, real = jnp.arange(batch.nodes.shape[1]), batch.nodes < num_nodes
    distance = jnp.abs(place[:, None] - place)
    near = (distance > 0) & (distance <= batch.windows[:, :, None])
    return (near & real[:, :, None] & real[:, None, :]).astype(jnp.float32)


def _bits(keys: jax.Array, count: int, which: int) -> Any:
    """Two arrays uint32 `[B, count]`: the random bits of every walk's key at the counters
    `(i, which)`, `i` from 0 to `count - 1`."""
    number = jnp.arange(count, dtype=jnp.uint32)
    counter = jnp.concatenate([number, jnp.full_like(number, which)])
    bits = jax.vmap(lambda key: threefry_2x32(key, counter))(keys)
    return bits[:, :count], bits[:, count:]
