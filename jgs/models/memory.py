"""A memory of nodes: Rossi et al., "Temporal Graph Networks for Deep Learning on Dynamic
Graphs" (TGN, 2020), in Flax NNX."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx

from jgs.arrays import require_array
from jgs.models.parts import TimeEncoding, check_widths
from jgs.settings import exact_integers, usual_promotion


class MemoryState(NamedTuple):
    """What a `Memory` knows of `N` nodes. It is a pytree of arrays: a checkpoint saves it.

    Fields:
      rows: float32 `[N, D]`, the memory of each node before its last event.
      time: int64 `[N]`, the time of the event before that; of its last one if it had but one.
      pending: bool `[N]`, whether the node has had an event, whose message is not in `rows`.
      partner: float32 `[N, D]`, the memory of the other node of the last event, at that time.
      features: float32 `[N, F]`, those of the last event; None where `F` is 0.
      last: int64 `[N]`, the time of the last event.
    """

    rows: jax.Array
    time: jax.Array
    pending: jax.Array
    partner: jax.Array
    features: jax.Array | None
    last: jax.Array


class Memory(nnx.Module):
    """A row of memory for each node, which a GRU changes by every event of the node (sections
    3.1 and 3.3).

    The message of an event to one of its nodes is `[memory of the node, memory of the other,
    phi(time since the node's event before), features]`, the paper's "identity" message. Of
    several events of a node in one batch the last one counts, the "most recent" aggregator; of
    equal times the one that stands later. An event of a batch sees the events of the batches
    before, and none of its own batch.

    A node's last event stays `pending`: `read` applies it, with the parameters of now, so that
    a loss reaches the GRU. `record` writes it into the memory when the node has its next event,
    and no gradient goes further back. A training step is thus:

        x = memory.read(state, batch.nodes)      # in the loss, differentiable
        ... loss, gradients, optimiser ...
        state = memory.record(state, src, dst, time, features)

    with batches in the order of time (`Loader(by_time=1)` or `shuffle=False`). Both methods are
    pure in `state` and jittable. A run that saves parameters, state and `loader.state_dict()`
    goes on with the same bits.

    Args:
      width: `D`, of a row of memory, of which each of `num_nodes` has one.
      edge_width: `F`, how many numbers an event has; 0: none.
      time_width, time_unit: `width` and `unit` of the `TimeEncoding`.
      rngs: its `params` stream makes the weights.
    """

    def __init__(
        self,
        num_nodes: int,
        width: int,
        *,
        edge_width: int = 0,
        time_width: int = 100,
        time_unit: float = 1.0,
        rngs: nnx.Rngs,
    ):
        check_widths(num_nodes=num_nodes, width=width)
        self.num_nodes, self.width, self.edge_width = num_nodes, width, edge_width
        self.time = TimeEncoding(time_width, unit=time_unit)
        message = 2 * width + time_width + edge_width
        self.cell = nnx.GRUCell(message, width, rngs=rngs)

    def init(self) -> MemoryState:
        """The state before the first event: rows of zeros."""
        rows = jnp.zeros((self.num_nodes, self.width))
        with exact_integers():
            times = [jnp.zeros(self.num_nodes, jnp.int64) for _ in range(2)]
        none = jnp.zeros(self.num_nodes, bool)
        width = self.edge_width
        features = jnp.zeros((self.num_nodes, width)) if width else None
        return MemoryState(rows, times[0], none, jnp.zeros_like(rows), features, times[1])

    @usual_promotion()
    def read(self, state: MemoryState, nodes: jax.Array) -> jax.Array:
        """float32 `[n, D]`: the memory of `nodes` int `[n]`, with the last event of each; zeros
        for ids of no nodes, such as padding."""

        def of(array: jax.Array) -> jax.Array:
            get = array.at[nodes].get
            return get(mode="fill", fill_value=0, wrap_negative_indices=False)

        rows, pending = of(state.rows), of(state.pending)
        with exact_integers():
            # As unsigned numbers, whose difference has room for any two times.
            last, time = of(state.last), of(state.time)
            since = last.astype(jnp.uint64) - time.astype(jnp.uint64)
            elapsed = jnp.where(last > time, since.astype(jnp.float32), 0)
        parts = [rows, of(state.partner), self.time(elapsed)]
        parts += [] if state.features is None else [of(state.features)]
        changed, _ = self.cell(rows, jnp.concatenate(parts, axis=1))
        return jnp.where(pending[:, None], changed, rows)

    @usual_promotion()
    def record(
        self,
        state: MemoryState,
        src: jax.Array,
        dst: jax.Array,
        time: jax.Array,
        features: Any = None,
    ) -> MemoryState:
        """The state after the events of a batch.

        Args:
          src, dst: int `[B]`, the nodes of each event; ids of no nodes are padding.
          time: int64 `[B]`, ascending, and not before the events of earlier batches. This is
            not checked: events count in their order here, and one that is earlier than its
            node's event before counts as 0 after it.
          features: float `[B, F]`, or None where `F` is 0.

        Raises `InputError` for features of another shape.
        """
        size = src.shape[0]
        features = jnp.zeros((size, 0)) if features is None else jnp.asarray(features)
        form, remedy = "[B, F]", "Build the memory with edge_width=features.shape[1]."
        what = "the features of events"
        require_array(what, features, form, remedy, B=size, F=self.edge_width)
        nodes, others = jnp.concatenate([src, dst]), jnp.concatenate([dst, src])
        real = (nodes >= 0) & (nodes < self.num_nodes)
        real &= (others >= 0) & (others < self.num_nodes)
        nodes = jnp.where(real, nodes, self.num_nodes)  # no event of the other end either
        event = jnp.tile(jnp.arange(size, dtype=jnp.int32), 2)
        order = jnp.lexsort((event, nodes))
        last = jnp.append(jnp.diff(nodes[order]) != 0, True)  # event of its node
        last = jnp.zeros(2 * size, bool).at[order].set(last)
        place = jnp.where(last, nodes, self.num_nodes)
        memory = jax.lax.stop_gradient(self.read(state, nodes))
        partner = jax.lax.stop_gradient(self.read(state, others))

        def put(array: jax.Array, values: jax.Array) -> jax.Array:
            return array.at[place].set(values, mode="drop")

        with exact_integers():
            now = jnp.tile(jnp.asarray(time).astype(jnp.int64), 2)
            last = state.last.at[nodes].get(mode="clip")
            had = state.pending.at[nodes].get(mode="fill", fill_value=False)
            before = put(state.time, jnp.where(had, last, now))
            after = put(state.last, now)
        kept = state.features
        if kept is not None:
            kept = put(kept, jnp.tile(features.astype(jnp.float32), (2, 1)))
        return MemoryState(
            put(state.rows, memory),
            before,
            put(state.pending, jnp.ones_like(real)),
            put(state.partner, partner),
            kept,
            after,
        )
