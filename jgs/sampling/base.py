"""The contract that every sampler keeps; the loader, plans, ranks and commands use no more.

A sampler is a frozen dataclass of its hyper-parameters. It is hashable, so it can be a static
argument of `jax.jit`. A checkpoint stores its `repr` to identify the sampler that drew the
batches. Fields that change what is returned but not what is drawn are left out of the `repr`.
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

State = Any  # a pytree of arrays; () if the sampler has no state


@runtime_checkable
class Sampler(Protocol):
    """Draws mini-batches: a pure function of (key, graph, state, seeds).

    Attributes:
      by_node: bool; whether what a node draws at a hop depends on (key, hop, node) alone.
        Several ranks then draw together, each with its share of the seeds, what one rank draws
        with all of them. If nodes draw among their own in-edges (`ByNode`), the topology may
        also be split over the ranks.

    A sampler whose batches are for pairs of nodes has an attribute `pairs = True` (`of_pairs`).
    Its seeds are int `[B, 2]`, the two ends of each pair, with `N` twice for padding. A loader
    then takes `[n, 2]` and shuffles whole pairs, and a super-batch has `[S, B, 2]`.
    """

    @property
    def by_node(self) -> bool: ...

    def init(self, graph: Graph) -> State:
        """The sampler's state: everything that depends on the graph alone, as a pytree; () if
        there is none. Raises `InputError` where the graph lacks what the sampler needs. A
        sampler whose `init` takes long may have `keep(graph, folder)` and
        `recall(graph, folder)`, which store the state for a run that is resumed."""

    def sample(
        self, key: Any, graph: Graph, state: State, seeds: Any, capacity: Capacity | None
    ) -> MiniBatch:
        """The batch of `seeds`, int `[B]` with `N` for padding; jittable. If `draws_seeds` is
        true of the sampler, the batch's seeds are some of these.

        Args:
          key: a Threefry key, typed or as its key data uint32 `[2]`, used once; or key data
            that the sampler's own `step_keys` made.
          graph: the graph; an argument of the jitted function, never a constant in it.
          state: what `init` returned for the graph; also an argument of the jitted function.
          capacity: static sizes. None: the sampler's `bound` for the shape of the graph. A
            sample that does not fit is empty, with `overflow` set, and `needed` as far as it is
            known.
        """

    def bound(self, shape: GraphShape, batch_size: int, distinct: bool = False) -> Capacity:
        """A capacity that no sample of `batch_size` seeds exceeds. With `distinct` no seed is
        repeated within a batch.

        There is one exception. If `shape.max_degree` is None and seeds may repeat, a sampler
        whose rows are bounded by their degree alone may exceed the capacity, because each
        repetition of a seed draws again.
        """


class Feedback(NamedTuple):
    """What a training step tells an adaptive sampler about a batch.

    Fields, one entry for each layer, in the order of the blocks:
      messages: float32 `[S, M]`, the rows that were aggregated; rows in padding are undefined.
      gradients: float32 `[T, M]`, the gradient of the batch's mean loss with respect to each
        target's aggregated row; 0 in padding.
    """

    messages: tuple[jax.Array, ...]
    gradients: tuple[jax.Array, ...]


class Adaptive(Sampler, Protocol):
    """A sampler that learns: its state changes after every training step (`Learning`)."""

    def update(self, state: State, batch: MiniBatch, feedback: Feedback) -> State:
        """The state after a step on `batch`, of the same shapes; pure and jittable. It is not
        called for a batch that has overflowed. An update that reads node columns takes the
        graph too: `update(state, batch, feedback, graph)`."""


def draws_seeds(sampler: Sampler) -> bool:
    """Whether the sampler chooses a batch's seeds among all those of the data set, which it is
    given (`SubgraphSampler`). Such a sampler has an attribute `draws_seeds`."""
    return getattr(sampler, "draws_seeds", False)


def is_adaptive(sampler: Sampler) -> bool:
    """Whether the sampler has an `update`."""
    return hasattr(sampler, "update")


def of_pairs(sampler: Sampler) -> bool:
    """Whether the sampler's seeds are pairs of nodes, int `[B, 2]`: its attribute `pairs`."""
    return getattr(sampler, "pairs", False)


def node_columns_of(sampler: Sampler) -> tuple[str, ...]:
    """The names of the node columns that the sampler reads (see `Graph.with_node_columns`): its
    attribute `node_columns`."""
    return getattr(sampler, "node_columns", ())


def update_of(sampler: Sampler) -> Callable[[State, MiniBatch, Feedback, Graph], State]:
    """The `update` of an adaptive sampler as a function that always takes the graph."""
    update = sampler.update  # type: ignore[attr-defined]
    if node_columns_of(sampler):
        return update
    return lambda state, batch, feedback, graph: update(state, batch, feedback)


class HopRows(NamedTuple):
    """What `T` nodes have drawn at one hop, with a capacity of `E` edges.

    Fields:
      indptr: int32 `[..., T+1]`; node `t` drew the neighbours `indptr[t]:indptr[t+1]`.
      neighbors: int32 `[..., E]` node ids, padded with `N`.
      needed: int32 `[...]`, the number of edges that is compared with the capacity. If it is
        larger than `E`, the hop has overflowed and nothing was drawn.
    """

    indptr: jax.Array
    neighbors: jax.Array
    needed: jax.Array


class ByNode(Sampler, Protocol):
    """A sampler whose hops can be drawn by any rank that has the nodes' in-edges.

    Attributes:
      num_hops: int; `L`.
      relabel_inputs: bool; whether the last hop's sources get local ids.
      edge_ids, edge_weights: bool; whether the blocks carry `edge_id` and `edge_weight`.
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
        """What each of the `nodes` draws at `hop`, in at most `num_edges` edges. Traced under
        x64.

        Args:
          key_data: uint32 `[..., 2]`, the key's data; or `[..., W]`, made by the sampler's own
            `step_keys`.
          nodes: int32 `[..., T]`, with `N` for padding.
        """

    def expected_draws(self, hop: int, degree: np.ndarray) -> np.ndarray:
        """The expected number of neighbours that a node of each `degree` draws at `hop`."""


def step_keys(sampler: Sampler, epoch_key_data: np.ndarray, steps: np.ndarray) -> np.ndarray:
    """The key that `sample` takes at each step of an epoch, uint32 `[n, W]`.

    Args:
      epoch_key_data: uint32 `[2]`, the key of the epoch.
      steps: int `[n]`.

    A sampler whose batches depend on each other may have a method
    `step_keys(epoch_key_data, steps)`, which must be a pure function. For any other sampler the
    keys are `fold_in(epoch_key, 1 + step)`, and `W` is 2.
    """
    if (method := getattr(sampler, "step_keys", None)) is not None:
        return method(epoch_key_data, steps)
    return step_key_data(epoch_key_data, steps)


def sample_separately(
    sampler: Sampler,
    key_data: jax.Array,
    graph: Graph,
    state: State,
    seeds: jax.Array,
    capacity: Capacity,
) -> list[MiniBatch]:
    """The batches of several steps, to be jitted.

    Args:
      key_data: uint32 `[S, W]`, one key for each batch.
      seeds: int32 `[S, B]`, or `[S, B, 2]` if they are pairs.

    A sampler may have a method of this name with these arguments, which draws them in one call;
    the batches of any other are drawn under `jax.vmap`.
    """
    if (method := getattr(sampler, "sample_separately", None)) is not None:
        return method(key_data, graph, state, seeds, capacity)
    if seeds.shape[0] == 1:
        return [sampler.sample(key_data[0], graph, state, seeds[0], capacity)]
    one = jax.vmap(lambda w, s: sampler.sample(w, graph, state, s, capacity))
    batches = one(key_data, seeds)
    return [jax.tree.map(lambda a, i=i: a[i], batches) for i in range(seeds.shape[0])]


def overflowed(batches: list[MiniBatch]) -> jax.Array:
    """bool `[S]`: which of the `S` batches overflowed."""
    return jnp.stack([batch.overflow for batch in batches])
