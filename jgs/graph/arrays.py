"""The fields of a `Graph` as a JAX pytree and as a folder of files.

Nothing here checks edges: `jgs.graph.graph` does, and says what each field means.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np

from jgs.errors import InputError
from jgs.files import storage
from jgs.files.npy import with_room
from jgs.files.storage import Verify
from jgs.graph.checks import check_arrays, check_node_time
from jgs.graph.device import as_device, reduce_arrays
from jgs.graph.grouping import RelationIndex
from jgs.graph.rows import row_lengths
from jgs.graph.schema import Schema, check_schema
from jgs.graph.weights import weight_prefix_sums
from jgs.settings import exact_integers

# Every field and the dtypes that it may have. All but `indptr` have one entry for each edge.
_FIELDS = {
    "indptr": (np.int64,),
    "indices": (np.int32,),
    "edge_weight": (np.float32,),
    "edge_weight_prefix": (np.int64,),
    "edge_order": (np.int32, np.int64),
    "edge_type": (np.int16,),
    "edge_time": (np.int64,),
}
_NAMES = (*_FIELDS, "edge_columns", "node_columns", "node_time", "relation_index")
_SCHEMA, _SORTED = "schema", "sorted_by_source"
_NODE_TIME, _RUNS = _NAMES[-2:]
PREFIX = "edge_columns."  # before the name of a user's column, in dicts of arrays and in files
Arrays = dict[str, np.ndarray]
TAKEN = {*_NAMES, _SCHEMA, _SORTED}  # names that a user's column cannot have


@dataclass(frozen=True, eq=False, init=False, repr=False)
class GraphArrays:
    """The fields of a `Graph`, whose docstring specifies them."""

    indptr: jax.Array
    indices: jax.Array
    edge_weight: jax.Array | None
    edge_weight_prefix: jax.Array | None
    edge_order: jax.Array | None
    edge_type: jax.Array | None
    edge_time: jax.Array | None
    edge_columns: dict[str, jax.Array]
    node_columns: dict[str, Any]
    node_time: jax.Array | None
    relation_index: RelationIndex | None
    schema: Schema | None
    sorted_by_source: bool = False

    @property
    def num_nodes(self) -> int:
        return self.indptr.shape[-1] - 1

    @property
    def num_edges(self) -> int:
        return self.indices.shape[0]

    @property
    def has_room(self) -> bool:
        """Whether rows have room for more edges, as those of `jgs.graph.Live` have."""
        return self.indptr.ndim == 2

    __reduce__ = reduce_arrays

    # -- pytree: nothing is checked, for leaves may be tracers or anything else --------------

    def tree_flatten_with_keys(self):
        keyed = [(jax.tree_util.GetAttrKey(n), getattr(self, n)) for n in _NAMES]
        return keyed, (self.schema, self.sorted_by_source)

    def tree_flatten(self):  # faster, without names: each call of a jitted function flattens
        fields = vars(self)
        return [fields[name] for name in _NAMES], (self.schema, self.sorted_by_source)

    @classmethod
    def tree_unflatten(cls, static, leaves) -> Self:
        schema, sorted_by_source = static
        graph = cls._unchecked(*leaves, schema=schema)
        vars(graph)[_SORTED] = sorted_by_source
        return graph

    @classmethod
    def _unchecked(cls, *fields: Any, schema: Schema | None = None) -> Self:
        """The graph of these fields, unchecked. Fields left out are None or empty dicts."""
        graph = object.__new__(cls)
        graph._set(*fields, schema=schema)
        return graph

    def _set(self, *fields: Any, schema: Schema | None) -> None:
        vars(self).update(dict.fromkeys(_FIELDS), edge_columns={}, node_columns={})
        vars(self)[_NODE_TIME] = vars(self)[_RUNS] = None
        vars(self).update(zip(_NAMES, fields, strict=False), schema=schema)

    def _with(self, **fields: Any) -> Self:
        graph = object.__new__(type(self))
        vars(graph).update(vars(self) | fields)
        return graph

    def degrees(self) -> jax.Array:
        """int32 `[N]`: each node's number of in-edges."""
        with exact_integers():  # the offsets are 64-bit
            # Not by slices of a static graph: each would be a transfer.
            lengths = row_lengths(self.indptr) if self.has_room else jnp.diff(self.indptr)
            return lengths.astype(jnp.int32)

    # -- arrays of the edges: code that copies a part of a graph copies them by these methods --

    def edge_arrays(self) -> dict[str, jax.Array]:
        """All arrays `[E, ...]` with an entry for each edge, by name: the fields that are not
        None, and the user's columns."""
        columns = {PREFIX + name: array for name, array in self.edge_columns.items()}
        fields = {name: getattr(self, name) for name in _FIELDS if self.is_edge_array(name)}
        return {name: array for name, array in fields.items() if array is not None} | columns

    def unweighted(self) -> Self:
        """The same graph without `edge_weight`; nothing is copied."""
        return self._with(edge_weight=None, edge_weight_prefix=None)

    @staticmethod
    def is_edge_array(name: str) -> bool:
        """Whether an array of this name may be one of `edge_arrays`."""
        return name.startswith(PREFIX) or (name in _FIELDS and name != "indptr")

    @classmethod
    def from_edge_arrays(
        cls,
        indptr: Any,
        arrays: Mapping[str, Any],
        num_edges: int | None = None,
        schema: Schema | None = None,
    ) -> Self:
        """The graph of row offsets and of arrays named as in `edge_arrays`, unchecked.

        Args:
          indptr: int64 `[N+1]`.
          arrays: `[E, ...]` by name. Arrays that are not edge arrays are left out. A row of
            `edge_weight_prefix` is valid only for the whole row that it was computed of.
          num_edges: pads the arrays with zeros to this length; memory maps are padded without a
            copy (see `jgs.files.npy`). No row has the padding edges.
          schema: the schema of these nodes and edges. None: their types have no names.
        """

        def on_device(array: Any) -> jax.Array:
            if num_edges is not None:
                array = with_room(array, num_edges)
            return array if isinstance(array, jax.Array) else as_device(array)

        put = {n: on_device(array) for n, array in arrays.items() if cls.is_edge_array(n)}
        fields = [put.get(name) for name in list(_FIELDS)[1:]]
        columns = {n.removeprefix(PREFIX): a for n, a in put.items() if n.startswith(PREFIX)}
        indptr = indptr if isinstance(indptr, jax.Array) else as_device(indptr)
        return cls._unchecked(indptr, *fields, columns, schema=schema)

    def _numpy(self, without: str = "") -> tuple[np.ndarray, Arrays]:
        """`indptr`, and the edges' arrays but those that `_remade` makes and the one `without`
        which a copy is made. Raises `InputError` for rows with room."""
        self._refuse_room()
        left = ("edge_weight_prefix", without)
        given = {name: array for name, array in self.edge_arrays().items() if name not in left}
        return np.asarray(self.indptr), {name: np.asarray(a) for name, a in given.items()}

    def _refuse_room(self) -> None:
        if self.has_room:
            raise InputError(
                "a graph that is changed, written, converted or read as a whole must have rows "
                "without room",
                "the rows of a live graph",
                "Take one by live.packed().",
            )

    def _remade(self, indptr: np.ndarray, arrays: Arrays, **fields: Any) -> Self:
        """The graph of the same nodes with these edges, and with other values of `fields`."""
        schema = self.schema
        if schema is not None and "edge_type" not in arrays:
            schema = schema.without_relations()
        made = self._built(indptr, arrays, schema)
        return made._with(**{"node_time": self.node_time, **fields})

    @classmethod
    def _built(cls, indptr: np.ndarray, arrays: Arrays, schema: Schema | None) -> Self:
        """As `from_edge_arrays`, with the prefix sums of the weights."""
        if "edge_weight" in arrays:
            prefix = weight_prefix_sums(indptr, arrays["edge_weight"])
            arrays = arrays | {"edge_weight_prefix": prefix}
        return cls.from_edge_arrays(indptr, arrays, schema=schema)

    # -- files -------------------------------------------------------------------------------

    def save(
        self, folder: str | os.PathLike, *, packed: bool = False, edge_order: bool = True
    ) -> None:
        """Write the graph to `folder`: one `.npy` file a field or column, and a manifest.

        `packed` keeps integers, times and types too, in as few bits as their range needs,
        often less than half of the bytes. `open` then reads them into memory, as they were, in
        place of a memory map. `edge_order=False` leaves that array out.

        The manifest (`manifest.json`) has the shape, the dtype and the SHA-256 of each file.
        The folder appears whole or not at all. An earlier graph in the folder is replaced.
        Raises `InputError` when the folder holds anything else, when it cannot be written, or
        when the graph's arrays are such that `open` would refuse them.
        """
        graph = self if edge_order else self._with(edge_order=None)
        storage.save_arrays(folder, "jgs.graph", graph.stored(), packed)

    @classmethod
    def open(cls, folder: str | os.PathLike, verify: Verify = True) -> Self:
        """The graph that `save` wrote to `folder`, memory-mapped: nothing is read into RAM,
        unless it is packed.

        Shapes, dtypes and file sizes are always checked. True for `verify` also reads each file
        and compares its checksum (about a second a gigabyte). "once" does so unless this user
        has verified the same unchanged file on this machine before. The values themselves were
        checked when the graph was made. Raises `InputError`.
        """
        arrays = storage.open_arrays(folder, "jgs.graph", verify)
        return cls.from_stored(str(folder), arrays)

    def stored(self) -> dict[str, np.ndarray]:
        """The arrays of the graph's files by name, without node columns. Raises `InputError`
        if `from_stored` would refuse them."""
        self._refuse_room()
        given = {"indptr": self.indptr, **self.edge_arrays()}
        arrays = {name: np.asarray(array) for name, array in given.items()}
        check_arrays("the graph", arrays, _FIELDS, "Make it again from what it was made of.")
        if self.schema is not None:
            arrays[_SCHEMA] = self.schema.as_bytes()
        if self.node_time is not None:
            arrays[_NODE_TIME] = np.asarray(self.node_time)
        if self.sorted_by_source:  # without entries; older versions pass over it
            arrays[_SORTED] = np.empty((self.num_edges, 0), bool)
        return arrays

    @classmethod
    def from_stored(cls, owner: str, arrays: Mapping[str, np.ndarray]) -> Self:
        """The graph of the arrays that `stored` returned, used in place. `owner` is what error
        messages call the place that holds them. Raises `InputError`."""
        arrays = dict(arrays)
        named, node_time = arrays.pop(_SCHEMA, None), arrays.pop(_NODE_TIME, None)
        check_arrays(owner, arrays, _FIELDS, "Write the folder again with `save`.")
        schema = Schema.from_bytes(owner, named)
        check_schema(schema, arrays["indptr"].size - 1, "edge_type" in arrays)
        made = cls.from_edge_arrays(arrays["indptr"], arrays, schema=schema)
        if node_time is not None:
            made = made._with(node_time=as_device(check_node_time(node_time, made.num_nodes)))
        return made._with(sorted_by_source=_SORTED in arrays)
