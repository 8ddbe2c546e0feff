"""The contract that every sampler keeps; the loader, plans, ranks and commands know no more.

A sampler is a frozen dataclass of its hyper-parameters: its hash makes it a static argument of
`jax.jit`, and its `repr` says in a checkpoint what drew the batches. Fields that change what is
returned but not what is drawn are left out of the `repr`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np

from jgs.graph import Graph, MiniBatch
from jgs.sampling.capacity import Capacity, GraphShape
from jgs.sampling.random import step_key_data

State = Any  # a pytree of arrays, () if there is nothing to keep


@runtime_checkable
class Sampler(Protocol):
    """Draws mini-batches: a pure function of (key, graph, state, seeds).

    Attributes:
      by_node: whether what a node draws at a hop depends on (key, hop, node) alone. Then ranks
        with batches of B draw together what one rank draws with all their seeds. Topology may
        be split over them if it draws among the node's own in-edges (`ByNode`).

    A sampler whose batches are for pairs of nodes says so by an attribute `pairs = True`
    (`of_pairs`). Its seeds are then int `[B, 2]`, the ends of each pair, `N` twice for
    padding; a loader takes `[n, 2]`, shuffles whole pairs, and a super-batch has `[S, B, 2]`.
    """

    @property
    def by_node(self) -> bool: ...

    def init(self, graph: Graph) -> State:
        """What depends on the graph alone, as a pytree; () if nothing. Raises `InputError`
        where the graph lacks what the sampler needs. A sampler for which this takes long may
        have `keep(graph, folder)` and `recall(graph, folder)`, for a run that is resumed."""

    def sample(
        self, key: Any, graph: Graph, state: State, seeds: Any, capacity: Capacity | None
    ) -> MiniBatch:
        """The batch of `seeds`, int `[B]` with `N` for padding; jittable. Of a sampler that
        `draws_seeds` the batch's seeds are some of them.

        Args:
          key: a Threefry key, typed or as its key data uint32 `[2]`, used once; or the key
            data that the sampler's own `step_keys` made.
          graph, state: of `init`; arguments of the jitted function.
          capacity: static sizes; None: `bound` of the graph's shape. A sample that does not
            fit comes back empty, with `overflow` set and what is known to be `needed`.
        """

    def bound(self, shape: GraphShape, batch_size: int, distinct: bool = False) -> Capacity:
        """What no sample of `batch_size` seeds exceeds; with `distinct` no seed is repeated.

        Where `shape.max_degree` is None and seeds may repeat, a sampler whose rows have no
        other bound than their degree may exceed it: every repetition draws again.
        """


class Feedback(NamedTuple):
    """What a training step tells an adaptive sampler of a batch, of any algorithm.

    Fields, for every layer in the order of the blocks:
      messages: float32 `[S, M]`, the rows that were aggregated; in padding of no meaning.
      gradients: float32 `[T, M]`, the derivative of the batch's mean loss by each target's
        aggregated row; 0 in padding.
    """

    messages: tuple[jax.Array, ...]
    gradients: tuple[jax.Array, ...]


class Adaptive(Sampler, Protocol):
    """A sampler that learns: its state changes after every training step (`Learning`)."""

    def update(self, state: State, batch: MiniBatch, feedback: Feedback) -> State:
        """The state after a step on `batch`, of the same shapes; pure and jittable. Of an
        overflowed batch, which nobody trains on, nothing is asked. An update that reads
        columns of the nodes takes the graph too: `update(state, batch, feedback, graph)`."""


def draws_seeds(sampler: Sampler) -> bool:
    """Whether it chooses a batch's seeds itself among those it is given, which are then all
    that there are (`SubgraphSampler`): of a sampler that does, its attribute `draws_seeds`."""
    return getattr(sampler, "draws_seeds", False)


def is_adaptive(sampler: Sampler) -> bool:
    """Whether it has an `update`."""
    return hasattr(sampler, "update")


def of_pairs(sampler: Sampler) -> bool:
    """Whether its seeds are pairs of nodes, int `[B, 2]`: its attribute `pairs`."""
    return getattr(sampler, "pairs", False)


def node_columns_of(sampler: Sampler) -> tuple[str, ...]:
    """Which columns of the nodes it reads (`Graph.with_node_columns`): of a sampler that has
    them, its attribute `node_columns`."""
    return getattr(sampler, "node_columns", ())


def update_of(sampler: Sampler) -> Callable[[State, MiniBatch, Feedback, Graph], State]:
    """An adaptive sampler's `update`, given the graph whether it takes it or not."""
    own = sampler.update  # type: ignore[attr-defined]
    if node_columns_of(sampler):
        return own
    return lambda state, batch, feedback, graph: own(state, batch, feedback)


class HopRows(NamedTuple):
    """What some nodes have drawn at one hop, `T` nodes, `E` the capacity.

    Fields:
      indptr: int32 `[..., T+1]`; node `t` drew the neighbours `indptr[t]:indptr[t+1]`.
      neighbors: int32 `[..., E]` node ids, padded with `N`.
      needed: int32 `[...]`, the edges that count for a capacity; more than `E` is an overflow,
        and nothing was drawn.
    """

    indptr: jax.Array
    neighbors: jax.Array
    needed: jax.Array


class ByNode(Sampler, Protocol):
    """A sampler whose hops can be drawn by whoever has a node's in-edges.

    Attributes:
      num_hops: `L`.
      relabel_inputs: whether the last hop's sources get local ids.
      edge_ids, edge_weights: whether the blocks carry `edge_id`, `edge_weight`.
    """

    @property
    def num_hops(self) -> int: ...

    @property
    def relabel_inputs(self) -> bool: ...

    @property
    def edge_ids(self) -> bool: ...

    @property
    def edge_weights(self) -> bool: ...

    def draw_hop(
        self, key_data: jax.Array, graph: Graph, nodes: jax.Array, hop: int, num_edges: int
    ) -> HopRows:
        """What each of `nodes`, int32 `[..., T]` with `N` for padding, draws at `hop` by the
        key `key_data` uint32 `[..., 2]` (or `[..., W]` of the sampler's own `step_keys`), in at
        most `num_edges` edges; traced under x64."""

    def expected_draws(self, hop: int, degree: np.ndarray) -> np.ndarray:
        """How many neighbours a node of each `degree` draws at `hop`, on average."""


def step_keys(sampler: Sampler, epoch_key_data: np.ndarray, steps: np.ndarray) -> np.ndarray:
    """uint32 `[n, W]`: what `sample` takes for a key at each of the `steps`, int `[n]`, of the
    epoch whose key is `epoch_key_data`, uint32 `[2]`.

    A sampler whose batches depend on each other may have a method `step_keys(epoch_key_data,
    steps)`, which must be a pure function. Of any other they are the keys
    `fold_in(epoch_key, 1 + step)`, and `W` is 2.
    """
    if (own := getattr(sampler, "step_keys", None)) is not None:
        return own(epoch_key_data, steps)
    return step_key_data(epoch_key_data, steps)


def sample_separately(
    sampler: Sampler,
    key_data: jax.Array,
    graph: Graph,
    state: State,
    seeds: jax.Array,
    capacity: Capacity,
) -> list[MiniBatch]:
    """The batches of int32 seeds `[S, B]` (of pairs `[S, B, 2]`) by the keys `key_data` uint32
    `[S, W]`, to be jitted.

    A sampler may have a method of this name and these arguments that draws them in one call;
    any other is drawn under `jax.vmap`.
    """
    if (own := getattr(sampler, "sample_separately", None)) is not None:
        return own(key_data, graph, state, seeds, capacity)
    if seeds.shape[0] == 1:
        return [sampler.sample(key_data[0], graph, state, seeds[0], capacity)]
    one = jax.vmap(lambda w, s: sampler.sample(w, graph, state, s, capacity))
    batches = one(key_data, seeds)
    return [jax.tree.map(lambda a, i=i: a[i], batches) for i in range(seeds.shape[0])]


def overflowed(batches: list[MiniBatch]) -> jax.Array:
    """bool `[S]`: which of the batches overflowed."""
    return jnp.stack([batch.overflow for batch in batches])
