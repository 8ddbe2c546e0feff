"""`HotRows`: feature rows of which the most read ones lie on the device."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from jgs.errors import InputError
from jgs.graph import MiniBatch, as_device
from jgs.graph.row_tables.table import RowTable, as_table
from jgs.ops.aggregate import rows_apart
from jgs.ops.checks import check_num_nodes, check_rows
from jgs.sampling.capacity import round_up
from jgs.sampling.checks import distinct_ids, require_int
from jgs.sampling.loading.loader import Loader
from jgs.sampling.loading.sending import Destination

_KEPT = 32  # the batches by which the room for sent rows is planned


class ColdRows(NamedTuple):
    """The `rows` `[C, F]` of a batch that the device lacks, in the dtype of the table, and the
    `place` int32 `[S]` of each of `batch.nodes` in `HotRows.table` followed by these rows, -1
    in padding. `jgs.ops.gather(hot.joined(table, cold), cold.place)` are the rows `[S, F]`, in
    a step that has the argument `table`, `hot.table`."""

    rows: jax.Array
    place: jax.Array


class HotRows:
    """Features of which some rows lie on the device, and others are sent with each batch.

    Give it to a loader as `Loader(..., read=hot)`, which then yields pairs of a batch and its
    `ColdRows`. The rows are those of `features`, whichever lie where.

    Args:
      features: `[N, F]` of a real dtype, or `jgs.graph.QuantizedFeatures`, on the host. Rows
        lie on the device and are sent in the dtype that they have here.
      nodes: int `[K]`, distinct nodes whose rows lie on the device.
      device: as in `Loader`. With a sharding each device has these rows.
      room: how many rows are sent with a batch at first. If a batch needs more, there is more
        room from then on, and a step is compiled again.

    Attributes:
      table: `[K, F]` on the device, the rows of `nodes`. Pass it to the step. Where features
        are a matrix, `(table, cold.rows)` is what `joined` returns.

    The device holds `K` rows, and the host 4 bytes a node more. Raises `InputError`.
    """

    def __init__(self, features: Any, nodes: Any, device: Any = None, room: int = 0):
        self._features = _rows_of(features)
        number = self._features.shape[0]
        nodes = distinct_ids("hot nodes", nodes, number)
        slot = np.full(number + 1, -1, np.int32)
        slot[nodes] = np.arange(nodes.size, dtype=np.int32)
        slot[number] = np.iinfo(np.int32).min  # padding
        self._slot = as_device(slot)
        self._hot, self._room = nodes.size, require_int("room", room, 0)
        rows = self._features.take(nodes).rows[0]
        # Without rows, and in NumPy, so that programs of any device can have it.
        self._kind = jax.tree.map(np.asarray, self._features.take(nodes[:0]))
        where = Destination.of(device)
        if where is None:
            self.table = as_device(rows)
        elif where.sharding is None:
            self.table = jax.device_put(rows, where.devices[0])
        else:
            mesh = getattr(where.sharding, "mesh", None)
            mesh = mesh or jax.sharding.Mesh(np.array(where.devices), ("data",))
            self.table = jax.device_put(rows, NamedSharding(mesh, PartitionSpec()))

    @classmethod
    def planned(
        cls,
        features: Any,
        loader: Loader,
        memory: int,
        device: Any = None,
        batches: int | None = None,
    ) -> HotRows:
        """The rows that a loader's batches read most, in at most `memory` bytes of each device.

        Args:
          loader: draws the batches that are counted, by `Loader.rehearse`: a loader with the
            same arguments as the one that will train. The rows are a function of its key.
          device: as above; None: where the loader sends its batches.
          batches: how many of an epoch's first batches are counted; None: all.

        Raises `InputError`.
        """
        table = _rows_of(features)
        num_nodes, row = table.shape[0], table.rows[0][:1]
        number = min(require_int("memory", memory, 0) // max(row.nbytes, 1), num_nodes)
        counts = np.zeros(num_nodes + 1, np.int32)
        kept: list[np.ndarray] = []
        for batch in loader.rehearse(batches):
            check_num_nodes(num_nodes, batch.num_nodes)
            nodes = np.asarray(batch.nodes)
            counts[nodes] += 1  # a node is once among them, but for padding
            kept = [*kept[1 - _KEPT :], nodes]
        hot = np.sort(np.argsort(-counts[:-1], kind="stable")[:number])
        held = np.zeros(counts.size, bool)
        held[hot] = held[-1] = True
        need = np.array([(~held[nodes]).sum() for nodes in kept])
        # What a normal law exceeds once in a billion batches, as its spread is known roughly.
        room = max(1.1 * need.max(), need.mean() + 6 * need.std())
        return cls(features, hot, device or loader.destination, int(room))

    def __call__(self, batch: MiniBatch) -> ColdRows:
        """What is sent with a batch of the host. A loader calls it."""
        while True:
            room = round_up(self._room)
            (rows,) = self._features.rows
            found, need = _split(rows, self._slot, batch.nodes, self._hot, room)
            if (cold := int(need)) <= room:
                return found
            self._room = cold + cold // 8

    def joined(self, table: jax.Array, cold: ColdRows) -> Any:
        """The features, as `jgs.ops.gather` takes them, in which the rows of a batch have their
        `cold.place`; `table` is `self.table`."""
        return self._kind.with_rows((table, cold.rows))


def _rows_of(features: Any) -> RowTable:
    if not isinstance(features, RowTable):
        check_rows("features", features, real=True)
        features = as_device(features)
    table = as_table(features)
    if table.schema is not None or table.by_entries or len(table.rows) > 1:
        form = "floats or integers [N, F], one row a node"
        raise InputError(f"features must be {form}", table.shown(), "Give them in one matrix.")
    return table


@partial(jax.jit, static_argnums=(3, 4))
def _split(
    rows: jax.Array, slot: jax.Array, nodes: jax.Array, num_hot: int, room: int
) -> tuple[ColdRows, jax.Array]:
    """What is sent of the `rows` of `nodes`, and how many these are. One program, so that other
    threads of Python run meanwhile."""
    place = slot[nodes]
    cold = place == -1
    number = jnp.cumsum(cold, dtype=jnp.int32) - 1
    asked = jnp.full(room, slot.shape[0], jnp.int32)
    asked = asked.at[jnp.where(cold, number, room)].set(nodes, mode="drop")
    place = jnp.where(cold, num_hot + number, jnp.maximum(place, -1))
    return ColdRows(rows_apart(rows, asked), place), number[-1] + 1
