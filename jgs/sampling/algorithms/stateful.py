"""Neighbour sampling with a state that training changes.

`GCNBS` and `Thanos` draw by bandits. Every node is a player of EXP3 (Auer, Cesa-Bianchi, Freund
and Schapire, "The Nonstochastic Multiarmed Bandit Problem", SIAM J. Computing 2002), and its
arms are its in-edges. A state has the logarithm of each edge's weight. `VRGCN` has control
variates.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jgs.arrays import is_real
from jgs.errors import InputError
from jgs.graph import Block, Control, Graph, MiniBatch, as_device
from jgs.ops import aggregate, edge_dot, gather, gather_aggregate
from jgs.sampling.base import Adaptive, Fanouts, Feedback
from jgs.sampling.capacity import Capacity, GraphShape
from jgs.sampling.checks import check_graph, refuse_state, require_int
from jgs.sampling.matrix import Matrix, MatrixSampler, Room
from jgs.sampling.matrix.edge_arrays import distinct, places
from jgs.settings import exact_integers, usual_promotion


@dataclass(frozen=True)
class GCNBS(MatrixSampler, Adaptive):
    """GCN-BS (Liu et al., "Bandit Samplers for Training Graph Neural Networks", NeurIPS 2020,
    Algorithm 1 with EXP3). It is the paper's GNN-BS; GNN-BS.M draws subsets instead.

    Every edge has a weight `w`. Node `v`, of degree `n`, draws `k` neighbours independently,
    with replacement, with the probabilities

        q[u, v] = (1 - eta) w[u, v] / (sum of w over v's neighbours) + eta / n

    The mean of `h[u] / (n q[u, v])` over the draws estimates the mean of the neighbours'
    messages `h` without bias. Its variance is at most
    `V = sum of ||h[u]||**2 / (n**2 k q[u, v])`, and the reward of a draw is
    `r = -dV/dq = ||h[u]||**2 / (n**2 k q**2)` (section 4). After a step each draw multiplies
    its edge's weight by `exp(delta r / (n q))`, but at most by `e`, as the authors' code does.
    All rewards are equal where `q` is in proportion to `||h||`, which minimises `V`.

    Excluded edges (`Seeds.excluded`) are never drawn, and count neither in `n` nor in the sum
    of weights. They keep their weights for later batches.

    All layers share the weights. The rewards come from the layer on the input side, which draws
    for all nodes of the batch that have neighbours there (the algorithm's "1st layer").

    The authors' code differs from the paper: it draws distinct neighbours, and takes all
    neighbours of a node that has at most `k`.

    Fields:
      sizes: the number of neighbours that a node draws at each hop, the seeds' hop first; 10 in
        the authors' code.
      eta: the share of uniform draws, in (0, 1]; 0.4 in the paper.
      delta: the rate at which weights change, in (0, 1]. In the paper it depends on the number
        of steps and on the degree; in the authors' code it is 0.01.

    The state is float32 `[E]`, the logarithm of each edge's weight; zeros at first.
    """

    sizes: Fanouts = (10, 10)
    eta: float = 0.4
    delta: float = 0.01
    edge_ids: bool = field(default=True, repr=False, kw_only=True)

    repeats = True

    def __post_init__(self) -> None:
        super().__post_init__()
        _check(self, ("eta", "delta"))

    def layer(self, A: Matrix, frontier: jax.Array, k: int, state: jax.Array) -> Matrix:
        sub = replace(A, stored=state)[:, frontier]
        q = _probabilities(sub, self.eta)
        sample = sub.individual_sample(k, q, replace=True)
        assert sample.edge_probs is not None
        n = jnp.maximum(sub.count(axis=0), 1)
        return sample.with_values(1 / sample.edge_probs).div(n, axis=0)

    def arrays(self, graph: Graph) -> jax.Array:
        return as_device(np.zeros(graph.num_edges, np.float32))

    def update(self, state: jax.Array, batch: MiniBatch, feedback: Feedback) -> jax.Array:
        block, ids, messages = _first_layer(batch, feedback)
        weight = block.edge_weight  # 1 / (n q), the factor of the message
        assert weight is not None
        norms = _of_sources(block, jnp.sum(messages**2, axis=1))
        reward = norms * weight**2 / self.sizes[-1]
        with exact_integers():
            return state.at[ids].add(jnp.minimum(self.delta * reward * weight, 1), mode="drop")


class Weights(NamedTuple):
    """The state of `Thanos`: float32 `[E]`, the logarithm of each edge's weight; float32 `[N]`,
    that of the sum of the weights of each node's edges; int32 `[N]`, the nodes' in-degrees; and
    int32, the number of batches learned from."""

    edges: jax.Array
    sums: jax.Array
    degrees: jax.Array
    steps: jax.Array


@dataclass(frozen=True)
class Thanos(MatrixSampler, Adaptive):
    """Thanos (Zhang, Wipf, Gan and Song, "A Biased Graph Neural Network Sampler with
    Near-Optimal Regret", NeurIPS 2021).

    Every edge has a weight `w`. Node `v`, of degree `n`, draws `k` of its neighbours without
    replacement, one after the other, with the probabilities

        q[u, v] = (1 - gamma) w[u, v] / (sum of w over v's neighbours) + gamma / n

    among those left. It draws all of them if there are at most `k`. The plain mean of the drawn
    messages estimates the mean of all. Nothing is divided by `q`: the estimate is biased, and
    varies less. Let `z = h / n` for the message `h`, and let `m` be the mean of `z` over the
    draws, which stands for the mean over all neighbours. The reward of a draw is

        r = 2 <z, m> - ||z||**2 = ||m||**2 - ||z - m||**2

    It is largest for the neighbour nearest to the mean that it represents. Unlike the reward of
    `GCNBS` it has no `q`, and is at most `||m||**2`. After a step a draw multiplies its edge's
    weight by `exp(eta r / p)`, but at most by `e` and at least by `1 / e`. `p` is the draw's
    `edge_probs` (Des Raj's, see `Matrix.individual_sample`): on average over draws, `r / p` is
    the reward of each edge, drawn or not.

    Rewards change as the model learns. Every `restart` steps all weights become 1 again (Rexp3,
    Besbes, Gur and Zeevi, NeurIPS 2014).

    All layers share the weights. The rewards come from the layer on the input side, which draws
    for all nodes of the batch that have neighbours there. A node that is twice in a batch
    counts once. A node with at most `k` neighbours, which draws them all, learns nothing. `q`
    is computed from the given state. If the batch was drawn with an older state (with
    `Loader`'s `age`, or as the batch of another rank in the same step), `p` is off by what was
    learned in between. Excluded edges (`Seeds.excluded`) are never drawn, and count neither in
    `n` nor in the sum of weights of a draw; `update` computes `n`, `q` and `p` of all edges.

    The paper gives orders of magnitude: `restart` grows like `T**(2/3)` with the number `T` of
    steps. The defaults are those of the authors' command for CoraFull.

    Fields:
      sizes: the number of neighbours that a node draws at each hop, the seeds' hop first.
      gamma: the share of uniform draws, in (0, 1].
      eta: the rate at which weights change, in (0, 1].
      restart: the number of steps after which the weights begin anew, at least 1.

    The state is `Weights`; it belongs to a graph with the same edges.
    """

    sizes: Fanouts = (10, 10)
    gamma: float = 0.2
    eta: float = 0.1
    restart: int = 2000
    edge_ids: bool = field(default=True, repr=False, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        _check(self, ("gamma", "eta"))
        object.__setattr__(self, "restart", require_int("restart", self.restart, 1))

    def layer(self, A: Matrix, frontier: jax.Array, k: int, state: Weights) -> Matrix:
        sub = replace(A, stored=state.edges)[:, frontier]
        return sub.individual_sample(k, _probabilities(sub, self.gamma))

    def arrays(self, graph: Graph) -> Weights:
        degrees = graph.degrees().astype(jnp.int32)
        edges, steps = as_device((np.zeros(graph.num_edges, np.float32), np.int32(0)))
        return Weights(edges, _log(degrees), degrees, steps)

    @usual_promotion()
    def update(self, state: Weights, batch: MiniBatch, feedback: Feedback) -> Weights:
        block, ids, messages = _first_layer(batch, feedback)
        k, num_edges = self.sizes[-1], state.edges.shape[0]
        if num_edges == 0:
            return state
        targets = batch.target_nodes(0)
        n = state.degrees.at[targets].get(mode="fill", fill_value=1)[:, None]
        first = places(targets, targets, state.degrees.shape[0])
        learns = (n > k) & (first == jnp.arange(targets.shape[0]))[:, None]
        place = block.indptr[:-1, None] + jnp.arange(k, dtype=jnp.int32)
        drawn = learns & (place < block.indptr[1:, None])

        def of_draws(column: jax.Array) -> jax.Array:
            """`[T, k]`: the values of a column `[E]` for the targets' draws, in their order."""
            return jnp.where(drawn, column.at[place].get(mode="clip"), 0)

        with exact_integers():
            edges = jnp.where(drawn, ids.at[place].get(mode="clip"), num_edges)
            log_weight = state.edges.at[edges].get(mode="fill", fill_value=0)
        sums = state.sums.at[targets].get(mode="fill", fill_value=0)
        share = jnp.where(drawn, jnp.exp(log_weight - sums[:, None]), 0)
        q = jnp.where(drawn, (1 - self.gamma) * share + self.gamma / n, 0)
        left = 1 - (jnp.cumsum(q, axis=1) - q)
        still = jnp.arange(k - 1, -1, -1)
        times = jnp.where(drawn, (left / jnp.where(drawn, q, 1) + still) / k, 0)  # 1 / p

        mean = aggregate(block, messages, "mean")
        norms = _of_sources(block, jnp.sum(messages**2, axis=1))
        difference = norms - 2 * edge_dot(block, messages, mean)[:, 0]
        reward = jnp.where(drawn, -of_draws(difference) / n.astype(jnp.float32) ** 2, 0)
        gain = jnp.clip(self.eta * reward * times, -1, 1)
        growth = jnp.log1p(jnp.sum(share * jnp.expm1(gain), axis=1))
        with exact_integers():
            new = state.edges.at[edges].add(gain, mode="drop")
        grown = state.sums.at[targets].add(growth, mode="drop")
        steps = state.steps + 1
        new, grown = jax.lax.cond(
            steps % self.restart == 0,
            lambda: (jnp.zeros_like(new), _log(state.degrees)),
            lambda: (new, grown),
        )
        return Weights(new, grown, state.degrees, steps)


@jax.jit
def _log(degrees: jax.Array) -> jax.Array:
    return jnp.log(jnp.maximum(degrees, 1).astype(jnp.float32))


def _check(sampler: MatrixSampler, rates: tuple[str, ...]) -> None:
    """Makes the fields `rates` floats. Raises `InputError` unless they are in (0, 1], and the
    sampler draws a positive number of each node's neighbours, without edge weights."""
    for name in rates:
        value = vars(sampler)[name]
        if not is_real(value) or not 0 < value <= 1:
            raise InputError(f"{name} must be in (0, 1]", repr(value), "Give e.g. 0.1.")
        object.__setattr__(sampler, name, float(value))
    if sampler.weighted or min(sampler.sizes) < 1:
        raise InputError(
            f"{type(sampler).__name__} must draw some of each node's neighbours, all of equal "
            "weight",
            f"weighted={sampler.weighted}, sizes={sampler.sizes}",
            "Give positive sizes alone.",
        )


def _probabilities(sub: Matrix, uniform: float) -> Matrix:
    """The probability with which each column draws each of its edges. The values of `sub` are
    logarithms of weights. A share `uniform` of the draws is uniform, and the others are in
    proportion to the weights."""
    n = jnp.maximum(sub.count(axis=0), 1)
    return (sub.softmax(axis=0) * (1 - uniform)).add(uniform / n, axis=0)


def _first_layer(batch: MiniBatch, feedback: Feedback) -> tuple[Block, jax.Array, jax.Array]:
    """The block of the input side, the ids of its edges, and its sources' messages."""
    block = batch.block(0)
    if block.edge_id is None:
        raise InputError(
            "a bandit learns from batches with the ids of their edges",
            "edge_ids=False",
            "Leave it out.",
        )
    return block, block.edge_id, feedback.messages[0]


def _of_sources(block: Block, rows: jax.Array) -> Any:
    """`[E, ...]`: the row of each edge's source in `rows` `[S, ...]`, 0 in padding."""
    return rows.at[block.indices].get(mode="fill", fill_value=0)


History = tuple[jax.Array, ...]


@dataclass(frozen=True)
class VRGCN(MatrixSampler, Adaptive):
    """VR-GCN (Chen, Zhu and Song, "Stochastic Training of Graph Convolutional Networks with
    Variance Reduction", ICML 2018, section 4.2, the estimator "CV").

    Every node draws few of its neighbours, uniformly without replacement. For each node `u` the
    message `H[u]` that it last sent in training is stored. A layer's mean over all neighbours
    of `v` is estimated by

        mean over v's neighbours u of H[u]  +  mean over the drawn u of (x[u] - H[u])

    with the current messages `x`. The estimate is unbiased, and its variance goes to zero as
    `H` approaches `x`. The first mean is over all neighbours: a layer reads as many stored rows
    as its targets have edges, but computes nothing else for them. After a step the messages of
    all sources of a block are stored (the paper's Algorithm 2, line 7).

    Blocks carry `control`, by which `jgs.ops.aggregate` makes this estimate of every mean, so
    the model's layers must reduce by mean. Messages are stored as dropout leaves them; the
    paper's "CVD" stores their means separately.

    Excluded edges (`Seeds.excluded`) are in neither mean. What is stored are the messages of
    earlier steps, which may have passed along edges that only this batch excludes.

    Fields:
      sizes: the number of neighbours that a node draws at each hop, the seeds' hop first; 2 in
        the paper.
      widths: the width of the messages of each layer of the model, the input side first:
        `model.message_widths`.

    The state is float32 `[N, M]` for each layer, the input side first; zeros at first.
    """

    sizes: Fanouts = (2, 2)
    widths: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        widths = tuple(require_int("a width", width, 1) for width in self.widths)
        object.__setattr__(self, "widths", widths)
        if len(widths) != len(self.sizes):
            raise InputError(
                "VRGCN must know the width of the messages of each layer",
                f"{len(widths)} widths for {len(self.sizes)} sizes",
                "Give widths=model.message_widths.",
            )
        if self.weighted:
            raise InputError(
                "VRGCN must estimate the mean over neighbours", "weighted=True", "Leave it out."
            )

    def layer(self, A: Matrix, frontier: jax.Array, k: int) -> Matrix:
        # Built, because the histories of all neighbours are read too.
        return A[:, frontier].built().individual_sample(k)

    def init(self, graph: Graph) -> History:
        check_graph(graph, False)
        rows = (np.zeros((graph.num_nodes, width), np.float32) for width in self.widths)
        return tuple(map(as_device, rows))

    def sample(
        self,
        key: Any,
        graph: Graph,
        state: History,
        seeds: Any,
        capacity: Capacity | None = None,
    ) -> MiniBatch:
        widths = [getattr(history, "shape", ())[1:] for history in jax.tree.leaves(state)]
        if widths != [(width,) for width in self.widths]:
            refuse_state(state)
        batch = super().sample(key, graph, (), seeds, capacity)
        if capacity is None:
            capacity = self.bound(GraphShape.of(graph), batch.seeds.shape[0])
        blocks = []
        for i, (block, history) in enumerate(zip(batch.blocks, state, strict=True)):
            hop = 2 * (len(batch.blocks) - 1 - i)
            looked, columns = capacity.edges[hop], capacity.sources[hop]
            A = Matrix(graph.unweighted(), room=Room(max(looked, 1)), excluded=batch.excluded)
            means = _neighbor_means(A, history, batch.target_nodes(i), columns)
            control = Control(gather(history, batch.source_nodes(i)), means)
            blocks.append(replace(block, control=control))
        return replace(batch, blocks=tuple(blocks))

    def update(self, state: History, batch: MiniBatch, feedback: Feedback) -> History:
        return tuple(
            history.at[batch.source_nodes(i)].set(messages, mode="drop")
            for i, (history, messages) in enumerate(zip(state, feedback.messages, strict=True))
        )


def _neighbor_means(
    A: Matrix, history: jax.Array, targets: jax.Array, columns: int
) -> jax.Array:
    """float32 `[T, M]`: the mean of `history` `[N, M]` over all neighbours of each target in
    `A`, 0 in padding. `targets` int32 `[T]` may have at most `columns` distinct nodes, whose
    edges must fit the room of `A`."""
    num_nodes = A.graph.num_nodes
    with exact_integers():
        frontier = distinct(targets, columns, num_nodes)
        edges = A[:, frontier].built().edges
        assert edges is not None
        all_edges = Block(
            indptr=edges.indptr,
            indices=edges.row,  # rows of all nodes: node ids
            num_targets=jnp.sum(frontier < num_nodes, dtype=jnp.int32),
            num_sources=jnp.int32(num_nodes),
            num_edges=edges.indptr[-1],
            source_capacity=num_nodes,
        )
        means = gather_aggregate(history, all_edges, "mean")
        return gather(means, places(frontier, targets, num_nodes))
