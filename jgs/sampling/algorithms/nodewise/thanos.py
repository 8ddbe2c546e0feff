"""Neighbour sampling by a bandit with bounded rewards: `Thanos`."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jgs.graph import Graph, MiniBatch, as_device
from jgs.ops import aggregate, edge_dot
from jgs.sampling.algorithms.nodewise import exp3
from jgs.sampling.base import Adaptive, Fanouts, Feedback
from jgs.sampling.checks import require_int
from jgs.sampling.matrix import Matrix, MatrixSampler
from jgs.sampling.matrix.edges import places
from jgs.settings import exact_integers, usual_promotion


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
        exp3.check(self, ("gamma", "eta"))
        object.__setattr__(self, "restart", require_int("restart", self.restart, 1))

    def layer(self, A: Matrix, frontier: jax.Array, k: int, state: Weights) -> Matrix:
        sub = replace(A, stored=state.edges)[:, frontier]
        return sub.individual_sample(k, exp3.probabilities(sub, self.gamma))

    def arrays(self, graph: Graph) -> Weights:
        degrees = graph.degrees().astype(jnp.int32)
        edges, steps = as_device((np.zeros(graph.num_edges, np.float32), np.int32(0)))
        return Weights(edges, _log(degrees), degrees, steps)

    @usual_promotion()
    def update(self, state: Weights, batch: MiniBatch, feedback: Feedback) -> Weights:
        block, ids, messages = exp3.first_layer(batch, feedback)
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
        norms = exp3.of_sources(block, jnp.sum(messages**2, axis=1))
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
