"""Adaptive layer-wise sampling: `ASGCN`."""

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
from jgs.sampling.base import Adaptive, Feedback, Sizes
from jgs.sampling.edges.project import FEATURES, features_of, project
from jgs.sampling.edges.random import threefry
from jgs.sampling.matrix import Matrix, MatrixSampler
from jgs.settings import usual_promotion


class Sized(NamedTuple):
    """The state of `ASGCN`: the vector `W`, float32 `[F]`, and the state of its Adam
    optimiser."""

    weight: jax.Array
    adam: optax.OptState


@dataclass(frozen=True)
class ASGCN(MatrixSampler, Adaptive):
    """AS-GCN (Huang et al., "Adaptive Sampling Towards Fast Graph Representation Learning",
    NeurIPS 2018, section 4).

    Every layer draws `sizes[h]` nodes jointly. Node `u` is drawn in proportion to

        (1 + |W x[u]|) sqrt(sum over v in the frontier of P[u, v]**2)

    where `x` are the nodes' features and `P[u, v] = 1 / d_v` is the weight of `u` in the mean
    over the `d_v` neighbours of `v`. `W` is learned: `|W x[u]|` stands for the norm of the
    message `h[u]`, which is not known before the draw (equation 10). The edges from drawn nodes
    into the frontier are kept, each divided by the probability `p[u]` that its source is drawn.
    So the estimate of a mean is unbiased, whatever `W` is.

    `W` descends a gradient with two parts. One is the gradient of the loss through the drawn
    edges' weights `w[u, v] = P[u, v] / p[u]`. The other is that of `variance` times the
    variance of the estimates (equation 11), averaged over targets and summed over layers. Let
    `g[v]` be the gradient of the loss by the aggregated row of `v`, and `T` the number of
    targets. A drawn node then has the score

        s[u] = sum over v of  w[u, v] g[v] h[u] + variance w[u, v]**2 ||h[u]||**2 / T

    and the gradient by `W` is estimated by

        - n / (n - 1) sum over u of c[u] (s[u] - mean of s) d log(1 + |W x[u]|)

    over the drawn nodes, where `c[u] = -log(1 - p[u]) (1 - p[u]) / p[u]` is the change of
    `log p[u]` by that of the logarithm of its bias: 1 for a small `p[u]`, and 0 where it is 1.
    The mean is weighted by `c`, and `n` is the sum of `c`. The mean is subtracted because
    `sizes[h]` nodes are drawn whatever `W` is. The part of the loss holds the draws fixed, as
    the authors' code does. (The expected loss has no first-order derivative in `W`, for the
    estimate is unbiased.) The part of the variance estimates the gradient of the variance.

    Differences from the paper: nodes are drawn without replacement, and `p` is the probability
    of inclusion (`Matrix.collective_sample`). The square root of squares and the 1 come from
    the authors' code. The paper's attention, which changes what is estimated, is left out,
    because the model is evaluated without it; so are the skip connections. All layers share
    `W`, and the variance of all layers counts, not that of the last alone. The variance trains
    the sampler and not the model.

    The model's layers must reduce by mean. The graph needs the node column `features`,
    `[N, F]`.

    Fields:
      sizes: the number of nodes that each layer draws, the seeds' hop first; 128 in the paper
        for Cora.
      variance: the weight of the variance in the loss; 0.5 in the paper.
      learning_rate: the learning rate of Adam; 0.001 in the paper.

    The state has `W`, float32 `[F]`, Glorot uniform at first, and the state of Adam.
    """

    sizes: Sizes = (128, 128)
    variance: float = 0.5
    learning_rate: float = 1e-3
    compact: bool = field(default=True, repr=False, kw_only=True)  # reads features of few nodes

    node_columns = (FEATURES,)

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("variance", "learning_rate"):
            value = float(getattr(self, name))
            object.__setattr__(self, name, value)
            if not 0 <= value < float("inf"):
                raise InputError(f"{name} must be finite, and not negative", value, "Raise it.")
        if self.weighted or min(self.sizes) < 1:
            raise InputError(
                "ASGCN must draw some nodes to estimate the mean over neighbours",
                f"weighted={self.weighted}, sizes={self.sizes}",
                "Give positive sizes alone.",
            )

    def layer(self, A: Matrix, frontier: jax.Array, k: int, state: Sized) -> Matrix:
        sub = A[:, frontier]
        sub = sub.div(jnp.maximum(sub.count(axis=0), 1), axis=0)
        size = 1 + jnp.abs(project(features_of(A.graph), sub.row(), state.weight))
        sample = sub.collective_sample(k, size * jnp.sqrt((sub**2).sum(axis=1)))
        return sample.div(sample.row_probs, axis=1)

    def arrays(self, graph: Graph) -> Sized:
        return self._first(threefry(0), features_of(graph).shape[1])

    @partial(jax.jit, static_argnums=(0, 2))
    def _first(self, key: jax.Array, width: int) -> Sized:
        glorot = jax.nn.initializers.glorot_uniform(dtype=jnp.float32)
        weight = glorot(key, (width, 1))[:, 0]
        return Sized(weight, optax.adam(self.learning_rate).init(weight))

    @usual_promotion()
    def update(
        self, state: Sized, batch: MiniBatch, feedback: Feedback, graph: Graph | None = None
    ) -> Sized:
        gradient = self.gradient(state.weight, batch, feedback, graph)
        steps, adam = optax.adam(self.learning_rate).update(gradient, state.adam)
        return Sized(optax.apply_updates(state.weight, steps), adam)

    def gradient(
        self, weight: jax.Array, batch: MiniBatch, feedback: Feedback, graph: Graph | None
    ) -> jax.Array:
        """float32 `[F]`: the gradient by `W` of the loss and its variance, as described
        above."""
        features = features_of(graph)
        assert graph is not None

        def change(weight: jax.Array) -> jax.Array:
            total = jnp.float32(0)
            for i, share in enumerate(shares):
                size = 1 + jnp.abs(project(features, batch.source_nodes(i), weight))
                total += jnp.sum(share * jnp.log(size))
            return total

        shares = [
            self._shares(i, batch, messages, derivative, graph)
            for i, (messages, derivative) in enumerate(zip(*feedback, strict=True))
        ]
        return jax.grad(change)(weight)

    def _shares(
        self,
        layer: int,
        batch: MiniBatch,
        messages: jax.Array,
        derivative: jax.Array,
        graph: Graph,
    ) -> jax.Array:
        """float32 `[S]`: the factor of each source's `d log(1 + |W x|)` in the gradient."""
        block = batch.block(layer)
        assert block.edge_weight is not None
        target, _ = targets_of(block)
        drawn = jnp.diff(block.indptr).at[target].get(mode="fill", fill_value=1)
        A = Matrix(graph, excluded=batch.excluded)
        degree = A[:, batch.target_nodes(layer)].count(axis=0)
        weight = block.edge_weight / drawn
        inclusion = 1 / (weight * degree.at[target].get(mode="fill", fill_value=1))
        norm = jnp.sum(messages**2, axis=1).at[block.indices].get(mode="fill", fill_value=0)
        counts = weight * edge_dot(block, messages, derivative)[:, 0]
        counts += self.variance / jnp.maximum(block.num_targets, 1) * weight**2 * norm
        none = jnp.zeros(messages.shape[0])
        count = none.at[block.indices].add(counts, mode="drop")
        missed = jnp.clip(1 - inclusion, 0, 1)
        change = -jnp.log(jnp.maximum(missed, 1e-5)) * missed / inclusion
        change = none.at[block.indices].max(change, mode="drop")
        n = jnp.sum(change)
        mean = jnp.sum(change * count) / jnp.maximum(n, 1e-5)
        return change * (mean - count) * n / jnp.maximum(n - 1, 1)
