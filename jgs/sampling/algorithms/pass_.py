"""Neighbour sampling that is learned from the task's loss: `PASS`."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from jgs.errors import InputError
from jgs.graph import Graph, MiniBatch
from jgs.graph.formats.export import targets_of
from jgs.ops import edge_dot
from jgs.sampling.base import Adaptive, Fanouts, Feedback
from jgs.sampling.checks import require_int
from jgs.sampling.edges.project import FEATURES, features_of, project
from jgs.sampling.edges.random import threefry
from jgs.sampling.matrix import Matrix, MatrixSampler, stack
from jgs.settings import usual_promotion

_LEAST = 1e-9  # added to every bias, so that none is 0


class Policy(NamedTuple):
    """The parameters that `PASS` learns: `W1` and `W2` beside each other, float32 `[F, 2 *
    width]`, and `a`, float32 `[3]`."""

    weight: jax.Array
    attention: jax.Array


class Learned(NamedTuple):
    """The state of `PASS`: its policy, and the state of the Adam optimiser."""

    policy: Policy
    adam: optax.OptState


@dataclass(frozen=True)
class PASS(MatrixSampler, Adaptive):
    """PASS (Yoon et al., "Performance-Adaptive Sampling Strategy Towards Fast and Accurate
    Graph Neural Networks", KDD 2021, section 4).

    Node `v`, of degree `n`, draws `k` of its neighbours with replacement. Neighbour `u` is
    drawn in proportion to

        b[u, v] = ReLU(s . ((W1 x[u]) . (W1 x[v]), (W2 x[u]) . (W2 x[v]), 1 / n)) + 1e-9

    where `x` are the nodes' features, `s = softmax(a)`, and `W1`, `W2` and `a` are learned. A
    layer's aggregated row is the plain mean of the drawn messages `h`. It does not estimate the
    mean over all neighbours: `v` learns to draw only neighbours whose messages lower the loss.

    Let `g[v]` be the gradient of the loss by the aggregated row of `v`, and `q` the
    probabilities. The gradient of the expected loss is that of the score function (Theorem
    4.1): the sum over `v` of the mean over draws of `g[v] h[u] d log q[u, v]`. It is estimated
    from the drawn neighbours alone by

        sum over v, over its draws u of  (g[v] h[u] - mean of g[v] h over the draws)
                                          / (k - 1)  d log b[u, v]

    which is a sample covariance, with the same expectation and less variance. Adam descends it.
    Where the ReLU is 0 a neighbour is almost never drawn, and nothing more is learned about it.
    A high learning rate may jump there and stay.

    Differences from the paper: a neighbour that is drawn several times counts as often. The
    authors' code draws from at most 32 neighbours, chosen beforehand, and learns from the input
    layer alone; here all neighbours can be drawn, and all layers are learned from. Rows of
    features are used as they are; the authors' code divides them by their Euclidean norms.

    The model's layers must reduce by mean. The graph needs the node column `features`,
    `[N, F]`. Exact evaluation weighs all neighbours equally, and the model was not trained for
    that.

    Fields:
      sizes: the number of neighbours that a node draws at each hop, the seeds' hop first, at
        least 2; 5 in the paper.
      width: the length of `W1 x` and of `W2 x`; 64 in the paper.
      learning_rate: the learning rate of Adam; 0.001 in the paper.

    The state has `W1` and `W2`, Glorot uniform with a gain of sqrt(2) at first, `a`, which is
    (0.01, 0.01, 1) at first, and the state of Adam.
    """

    sizes: Fanouts = (5, 5)
    width: int = 64
    learning_rate: float = 1e-3
    compact: bool = field(default=True, repr=False, kw_only=True)  # reads features of few nodes

    node_columns = (FEATURES,)
    repeats = True

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "width", require_int("width", self.width, 1))
        rate = float(self.learning_rate)
        object.__setattr__(self, "learning_rate", rate)
        if not 0 <= rate < float("inf"):
            raise InputError(
                "learning_rate must be finite, and not negative", rate, "Raise it."
            )
        if self.weighted or min(self.sizes) < 2:
            raise InputError(
                "PASS must draw at least two of each node's neighbours, all of equal weight",
                f"weighted={self.weighted}, sizes={self.sizes}",
                "Give sizes of 2 or more alone.",
            )

    def layer(self, A: Matrix, frontier: jax.Array, k: int, state: Learned) -> Matrix:
        policy = state.policy
        sub, x = A[:, frontier], features_of(A.graph)
        # Each head by itself: a part of one large projection would be copied.
        both = [
            [project(x, nodes, weight) for nodes in (sub.row(), frontier)]
            for weight in jnp.split(policy.weight, 2, axis=1)
        ]
        share = sub.div(jnp.maximum(sub.count(axis=0), 1), axis=0).values
        heads = stack([sub.dot(rows, columns) for rows, columns in both]).values
        bias = _bias(heads, share, policy.attention)
        return sub.individual_sample(k, bias, replace=True)

    def arrays(self, graph: Graph) -> Learned:
        return self._first(threefry(0), features_of(graph).shape[1])

    @partial(jax.jit, static_argnums=(0, 2))
    def _first(self, key: jax.Array, width: int) -> Learned:
        glorot = jax.nn.initializers.variance_scaling(2.0, "fan_avg", "uniform")
        both = [glorot(k, (width, self.width), jnp.float32) for k in jax.random.split(key)]
        attention = jnp.array([0.01, 0.01, 1.0], jnp.float32)
        policy = Policy(jnp.concatenate(both, axis=1), attention)
        return Learned(policy, optax.adam(self.learning_rate).init(policy))

    @usual_promotion()
    def update(
        self, state: Learned, batch: MiniBatch, feedback: Feedback, graph: Graph | None = None
    ) -> Learned:
        gradient = self.gradient(state.policy, batch, feedback, graph)
        steps, adam = optax.adam(self.learning_rate).update(gradient, state.adam)
        return Learned(optax.apply_updates(state.policy, steps), adam)

    def gradient(
        self, policy: Policy, batch: MiniBatch, feedback: Feedback, graph: Graph | None
    ) -> Policy:
        """The estimate of the gradient of the expected loss by `policy`."""
        x = features_of(graph)
        assert graph is not None

        def change(policy: Policy) -> jax.Array:
            total = jnp.float32(0)
            for i, (messages, derivative) in enumerate(zip(*feedback, strict=True)):
                block = batch.block(i)
                rows = project(x, batch.source_nodes(i), policy.weight)
                heads = edge_dot(block, rows, rows[: block.target_capacity], 2)
                A = Matrix(graph, excluded=batch.excluded)
                count = jnp.maximum(A[:, batch.target_nodes(i)].count(axis=0), 1)
                target, _ = targets_of(block)
                share = (1 / count).at[target].get(mode="fill", fill_value=0)
                bias = _bias(heads, share, policy.attention)
                lowers = edge_dot(block, messages, derivative)[:, 0]
                total += jnp.sum(_centred(lowers, target, block.indptr) * jnp.log(bias))
            return total

        return jax.grad(change)(policy)


def _bias(heads: jax.Array, share: jax.Array, attention: jax.Array) -> jax.Array:
    """`b`, float32 `[E]`, from the products `heads` `[E, 2]` and `share` `[E]`, which
    is `1 / n`."""
    s = jax.nn.softmax(attention)
    return jax.nn.relu(heads[:, 0] * s[0] + heads[:, 1] * s[1] + share * s[2]) + _LEAST


def _centred(values: jax.Array, target: jax.Array, indptr: jax.Array) -> jax.Array:
    """float32 `[E]`: each draw's value minus the mean of its target's draws, divided by the
    number of these draws minus one."""
    draws = jnp.diff(indptr)
    total = jnp.zeros(draws.shape[0]).at[target].add(values, mode="drop")
    mean = (total / jnp.maximum(draws, 1)).at[target].get(mode="fill", fill_value=0)
    less = jnp.maximum(draws - 1, 1).at[target].get(mode="fill", fill_value=1)
    return jnp.where(target < draws.shape[0], values - mean, 0) / less
