"""`Place`: where a run's training steps are computed, beside where its batches are drawn.
`LearnedRows`: rows that are learned for the nodes of types without features, sparsely."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from jgs.devices import find_devices, host_device, shown
from jgs.dist.communicators.collect import broadcast_arrays, everywhere
from jgs.dist.communicators.comm import OWN, Communicator, all_gather_rows
from jgs.dist.communicators.mesh import Mesh
from jgs.dist.rows.embedding import ShardedEmbedding
from jgs.dist.rows.owners import Owners, Token, evenly_divided
from jgs.dist.rows.split import SplitRows
from jgs.errors import InputError
from jgs.graph import MiniBatch, Schema, TypedFeatures, TypedRows, as_device
from jgs.models.inputs import TypedInputs
from jgs.sampling.loading.sending import Destination, RowsTogether


@dataclass(frozen=True)
class Place:
    """Where steps are computed."""

    host: Communicator  # of the ranks, which draw on their hosts
    comm: Communicator  # of the steps: `host`, or a `Mesh` in which each device is a rank
    destination: Destination | None = None  # this process's devices; None: the host
    together: RowsTogether = field(default_factory=RowsTogether)  # makes small what is sent

    @classmethod
    def of(cls, text: str, host: Communicator) -> Place:
        """The place that `--device` names. All ranks call it. Raises `InputError`, on all
        alike."""
        own = everywhere(host, lambda: _checked(text, host))
        if host.size == 1:
            if own == [host_device()]:
                return cls(host, host)
            mesh = Mesh(own)
            return cls(host, mesh, Destination.of(mesh.sharding))
        platform = own[0].platform
        kinds = ("cpu", "gpu", "tpu")
        kind = kinds.index(platform) if platform in kinds else len(kinds)
        on_host = own == [host_device()]
        said = np.array([kind, on_host, len(own)], np.int32)
        every = all_gather_rows(host, [said] * host.num_local)

        def agree() -> None:
            if len(np.unique(every, axis=0)) > 1:
                raise InputError(
                    "all ranks must train on as many devices, of one kind, or all where they "
                    "draw",
                    f"{shown(own)} on rank {host.rank} and others elsewhere",
                    "Give every rank the same --device.",
                )

        everywhere(host, agree)
        if on_host:
            return cls(host, host)
        local = list(jax.local_devices(backend=platform))
        mine = np.array([local.index(each) for each in own], np.int32)
        devices: list[Any] = []
        for process, numbers in enumerate(all_gather_rows(host, [mine] * host.num_local)):
            there = [d for d in jax.devices(platform) if d.process_index == process]
            devices += [there[number] for number in numbers]
        mesh = Mesh(devices)
        return cls(host, mesh, Destination.of(mesh.sharding, every_process=True))

    def send(self, value: Any) -> Any:
        """An `OWN` value of `host`, of one device a process, as one of `comm`."""
        if self.destination is None:
            return value
        (own,) = self.host.local(value)
        # Processes must send equal shapes. Rows that came from other ranks lie together.
        return self.destination.send([self.together(own) if self.host.size == 1 else own])

    def back(self, value: Any) -> Any:
        """An `OWN` value of `comm`, of one device a process, as one of `host`."""
        if self.destination is None:
            return value
        return self.host.own([jax.tree.map(np.asarray, own) for own in self.comm.local(value)])

    def __str__(self) -> str:
        if self.destination is None:
            return shown([host_device()])
        return shown(self.destination.devices)


def _checked(text: str, host: Communicator) -> Sequence[Any]:
    by_jax = host.size == 1 or jax.process_count() == host.size
    if text == "auto" and (host.num_local > 1 or not by_jax):
        return [host_device()]  # its ranks draw and train where they are
    own = find_devices(text)
    if host.size == 1 or own == [host_device()]:
        return own
    if host.num_local > 1 or not by_jax:
        raise InputError(
            "ranks on devices must meet by --comm jax, a process each",
            f"--device {text}",
            "Choose --comm jax, or --device cpu.",
        )
    return own


class LearnedRows:
    """A `ShardedEmbedding`, the `table`, with a row for each node of the types without
    features, in the order of their ids. A rank has the rows of its own nodes. A step reads and
    updates only the rows of the batch's nodes, by Adam as the other parameters. The first rows
    depend on the node alone and not on the ranks. With a `place` its devices have equally many
    rows each, and its steps read and update them (`jgs.dist.mesh_loader`)."""

    def __init__(
        self,
        comm: Communicator,  # of the training step
        inputs: TypedInputs,  # the model's, with `embedding=False`
        schema: Schema,  # of the whole graph, in its parts
        offsets: Any,  # rank `r` owns the nodes from `offsets[r]` to `offsets[r+1]`
        key: jax.Array,
        weight_decay: float,  # of the rows that a step reads
        place: Place | None = None,  # of devices that draw by themselves
    ):
        self.comm, self._at, owner = comm, place, comm
        self._place = _Places(schema, inputs.in_features)
        self._offsets = own = self._place.before(np.asarray(offsets))
        if place is not None:
            owner, own = place.comm, evenly_divided(self._place.num_rows, place.comm.size)
        optimizer = optax.chain(
            optax.add_decayed_weights(weight_decay), optax.scale_by_adam(), optax.scale(-1.0)
        )
        of_rows = (owner, own, inputs.out_features, key, optimizer)
        self.table = ShardedEmbedding(*of_rows, init=self._first)
        self._ids = comm.program(lambda batch: self._place.of(batch.nodes), (OWN,), OWN)
        self._fits = comm.size == 1  # nobody is asked there
        self._kept: SplitRows | None = None

    def fill(self, batch: MiniBatch, x: TypedRows) -> tuple[TypedRows, Token]:
        """`x`, the rows of the batch's nodes, with the learned ones; and what `push` needs."""
        ids = self._ids(batch)
        if not self._fits:  # twice what a rank is asked for where all are for equally much
            slots = self.comm.local(ids)[0].shape[0]
            self.table.resize(min(2 * -(-slots // self.comm.size), self.table.capacity))
            self._fits = True
        rows, token = self.table.pull(ids)
        return x._replace(learned=rows), token

    def push(self, token: Token, gradient: Any, rate: float) -> None:
        self.table.push(token, gradient, self.comm.same(np.float32(rate)))

    def own_rows(self) -> list[np.ndarray]:
        """NumPy copies of the rows of the local ranks of `comm`."""
        if self._at is None:
            return self.table.own_rows()
        return [broadcast_arrays(self._at.host, self.table.rows())]

    def joined(self, own: list[np.ndarray]) -> np.ndarray:
        """Those of all ranks, as `SplitRows.joined`, of what `own_rows` returned."""
        return self.table.joined(own) if self._at is None else own[0]

    def split(self, whole: np.ndarray) -> list[np.ndarray]:
        """What `own_rows` returns, of the rows of all ranks."""
        ranges = self.table.owners.local_ranges()
        return [whole[slice(*each)] for each in ranges] if self._at is None else [whole]

    def features(
        self, features: Sequence[TypedFeatures], own: Sequence[np.ndarray]
    ) -> list[TypedFeatures]:
        """The `features` of each local rank's nodes, where its learned rows, `own`, are the
        tables of the types that have no features."""
        found = []
        for each, rows in zip(features, own, strict=True):
            places, widths = _Places(each.schema, self._place.widths), self._place.widths
            tables = [
                table if width else as_device(rows[places.of_type(number)])
                for number, (table, width) in enumerate(zip(each.tables, widths, strict=True))
            ]
            found.append(TypedFeatures(tuple(tables), each.schema))
        return found

    def filler(self, own: Sequence[np.ndarray]) -> Callable[[MiniBatch, TypedRows], TypedRows]:
        """What fills `x` as `fill` does, but with the rows `own`, as of the table. It is good
        until the next call, which takes the memory over. All ranks call both alike."""
        if self._kept is None:
            owners = Owners(self.comm, self._offsets, self.table.capacity)
            self._kept = SplitRows(owners, None, (self.table.width,))
        kept = self._kept
        kept.hold(own)

        def fill(batch: MiniBatch, x: TypedRows) -> TypedRows:
            return x._replace(learned=kept.pull(self._ids(batch))[0])

        return fill

    def _first(self, key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
        most = math.sqrt(12 / (self._place.num_rows + shape[-1]))
        return jax.random.uniform(key, shape, jnp.float32, -most, most)


def learned_rows(model: Any) -> TypedInputs | None:
    """The inputs of a model whose batches need learned rows; None for other models."""
    inputs: Any = getattr(getattr(model, "encoder", model), "inputs", None)
    return inputs if getattr(inputs, "needs_rows", False) else None


def rows_by_type(schema: Schema, widths: Sequence[int], rows: np.ndarray) -> np.ndarray:
    """The learned rows `[n, W]`, given in the order of their nodes' ids, in the order in which
    `TypedInputs.embedding` has them: type after type."""
    places = _Places(schema, widths)
    return rows[
        np.concatenate([places.of_type(t) for t, width in enumerate(widths) if not width])
    ]


class _Places:
    """Which learned row a node has: the rows are in the order of the nodes' ids, and nodes of
    types with features, whose `widths` are not 0, have none.

    Attributes:
      num_rows: the number of learned rows.
    """

    def __init__(self, schema: Schema, widths: Sequence[int]):
        self.widths = tuple(widths)
        self._starts = np.array(schema.offsets, np.int32)  # of a type's ids in a part
        bare = np.resize(np.array(self.widths) == 0, self._starts.size - 1)
        self._counts = np.where(bare, np.diff(self._starts), 0)
        self._before = np.cumsum(self._counts) - self._counts
        self.num_rows = int(self._counts.sum())

    def of(self, nodes: jax.Array) -> jax.Array:
        """int32 `[S]`: the rows of nodes; `num_rows` where there is none. For `jax.jit`."""
        starts = jnp.asarray(self._starts)
        at = jnp.searchsorted(starts, nodes, side="right").astype(jnp.int32) - 1
        real = (at >= 0) & (at < self._counts.size)
        at = jnp.clip(at, 0, self._counts.size - 1)
        place = nodes - starts[at]
        real &= place < jnp.asarray(self._counts.astype(np.int32))[at]
        return jnp.where(
            real, jnp.asarray(self._before.astype(np.int32))[at] + place, self.num_rows
        )

    def before(self, ids: np.ndarray) -> np.ndarray:
        """int64: how many nodes with smaller ids have a row, for each of `ids`."""
        at = np.clip(np.searchsorted(self._starts, ids, "right") - 1, 0, self._counts.size - 1)
        return self._before[at] + np.minimum(ids - self._starts[at], self._counts[at])

    def of_type(self, number: int) -> np.ndarray:
        """int64: the rows of a type's nodes, in the order of their ids."""
        some = slice(number, None, len(self.widths))
        each = zip(self._before[some], self._counts[some], strict=True)
        return np.concatenate([np.arange(begin, begin + count) for begin, count in each])
