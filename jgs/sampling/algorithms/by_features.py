"""Samplers that learn from the nodes' features: `PASS` and `ASGCN`."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from jgs.arrays import is_real
from jgs.errors import InputError
from jgs.graph import Graph, MiniBatch
from jgs.graph.foreign import targets_of
from jgs.ops import edge_dot
from jgs.sampling.base import Adaptive, Fanouts, Feedback, Sizes
from jgs.sampling.checks import require_int
from jgs.sampling.edges.project import FEATURES, features_of, project
from jgs.sampling.edges.random import threefry
from jgs.sampling.matrix import Matrix, MatrixSampler
from jgs.settings import usual_promotion

_LEAST = 1e-9  # added to every bias, so that none is 0


class FeatureSampler(MatrixSampler, Adaptive):
    """A sampler that learns from the nodes' features: what it learns descends a gradient by
    Adam.

    Attributes:
      learning_rate: that of Adam.
      record: the named tuple of the state: what is learned, and `adam`, the state of Adam.
    """

    learning_rate: float
    record: type
    node_columns = (FEATURES,)

    @abstractmethod
    def begin(self, key: jax.Array, width: int) -> Any:
        """What is learned, at first, for features `[N, width]`."""

    @abstractmethod
    def gradient(
        self, learned: Any, batch: MiniBatch, feedback: Feedback, graph: Graph | None
    ) -> Any:
        """An estimate of the gradient of the expected loss by what is learned."""

    def _check_finite(self, *names: str) -> None:
        for name in names:
            value = getattr(self, name)
            if not is_real(value) or not 0 <= value < float("inf"):
                rule = f"{name} must be a finite number, and not negative"
                raise InputError(rule, repr(value), "Give e.g. 0.001.")
            object.__setattr__(self, name, float(value))

    def arrays(self, graph: Graph) -> Any:
        return self._first(threefry(0), features_of(graph).shape[1])

    @partial(jax.jit, static_argnums=(0, 2))
    def _first(self, key: jax.Array, width: int) -> Any:
        learned = self.begin(key, width)
        return self.record(learned, optax.adam(self.learning_rate).init(learned))

    @usual_promotion()
    def update(
        self, state: Any, batch: MiniBatch, feedback: Feedback, graph: Graph | None = None
    ) -> Any:
        gradient = self.gradient(state[0], batch, feedback, graph)
        steps, adam = optax.adam(self.learning_rate).update(gradient, state.adam)
        return self.record(optax.apply_updates(state[0], steps), adam)


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
class PASS(FeatureSampler):
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

    record, repeats = Learned, True

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "width", require_int("width", self.width, 1))
        self._check_finite("learning_rate")
        if self.weighted or min(self.sizes) < 2:
            raise InputError(
                "PASS must draw at least two of each node's neighbours, all of equal weight",
                f"weighted={self.weighted}, sizes={self.sizes}",
                "Give sizes of 2 or more alone.",
            )

    def layer(self, A: Matrix, frontier: jax.Array, k: int, state: Learned) -> Matrix:
        policy = state.policy
        sub, x = A[:, frontier], features_of(A.graph)
        weight = policy.weight.reshape(policy.weight.shape[0], 2, -1)
        share = sub.div(jnp.maximum(sub.count(axis=0), 1), axis=0).values
        rows, columns = (project(x, nodes, weight) for nodes in (sub.row(), frontier))
        heads = sub.dot(rows, columns).values
        bias = _bias(heads, share, policy.attention)
        return sub.individual_sample(k, bias, replace=True)

    def begin(self, key: jax.Array, width: int) -> Policy:
        glorot = jax.nn.initializers.variance_scaling(2.0, "fan_avg", "uniform")
        both = [glorot(k, (width, self.width), jnp.float32) for k in jax.random.split(key)]
        attention = jnp.array([0.01, 0.01, 1.0], jnp.float32)
        return Policy(jnp.concatenate(both, axis=1), attention)

    def gradient(
        self, policy: Policy, batch: MiniBatch, feedback: Feedback, graph: Graph | None
    ) -> Policy:
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


class Sized(NamedTuple):
    """The state of `ASGCN`: the vector `W`, float32 `[F]`, and the state of its Adam
    optimiser."""

    weight: jax.Array
    adam: optax.OptState


@dataclass(frozen=True)
class ASGCN(FeatureSampler):
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

    record = Sized

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_finite("variance", "learning_rate")
        if self.weighted or min(self.sizes) < 1:
            raise InputError(
                "ASGCN must draw some nodes to estimate the mean over neighbours",
                f"weighted={self.weighted}, sizes={self.sizes}",
                "Give positive sizes alone.",
            )

    def layer(self, A: Matrix, frontier: jax.Array, k: int, state: Sized) -> Matrix:
        sub = A[:, frontier]
        sub = sub.div(jnp.maximum(sub.count(axis=0), 1), axis=0)
        nodes = jnp.where(sub.count(axis=1) > 0, sub.row(), A.graph.num_nodes)
        size = 1 + jnp.abs(project(features_of(A.graph), nodes, state.weight))
        sample = sub.collective_sample(k, size * jnp.sqrt((sub**2).sum(axis=1)))
        return sample.div(sample.row_probs, axis=1)

    def begin(self, key: jax.Array, width: int) -> jax.Array:
        glorot = jax.nn.initializers.glorot_uniform(dtype=jnp.float32)
        return glorot(key, (width, 1))[:, 0]

    def gradient(
        self, weight: jax.Array, batch: MiniBatch, feedback: Feedback, graph: Graph | None
    ) -> jax.Array:
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
