"""The programs of an artifact: one samples, reads the first layer's rows and runs the model;
of a run on pairs others make scores of rows."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from jgs import kernels
from jgs.devices import on_host
from jgs.export.spec import array_key
from jgs.graph import Graph, MiniBatch, Schema, TypedFeatures, as_device
from jgs.graph.grouping import RUN_BITS, RelationIndex
from jgs.graph.row_tables.table import RowTable, plain
from jgs.graph.row_tables.versioned import PARTS, VersionedFeatures
from jgs.models import read_inputs
from jgs.ops import gather
from jgs.sampling import Capacity, GraphShape, Neighbors, Seeds
from jgs.sampling.contexts.visits import VisitState
from jgs.sampling.fanouts import ByRelation
from jgs.sampling.links import SRC
from jgs.settings import exact_integers
from jgs.tables import ROW_TABLES

LEAST_EDGES = 4096  # a graph is padded to at least so many edges
_PADDING = 2**31 - 1  # more than any node
_WEIGHTS = ("edge_weight", "edge_weight_prefix")


class TableForm(NamedTuple):
    """The features of all nodes, or of those of a type."""

    form: str  # its name in `jgs.tables.ROW_TABLES`
    kind: str  # as of a `RowTable`
    width: int
    dtype: Any  # of rows

    @classmethod
    def of(cls, table: RowTable | None) -> TableForm | None:
        if table is None:
            return None
        dtype = np.float32 if table.by_entries else table.rows[0].dtype
        return cls(table.form, table.kind, table.shape[1], np.dtype(dtype))


class Form(NamedTuple):
    """What programs are made of.

    Fields:
      sampler, rows: as in `jgs.train.tasks.task.Served`.
      model: the run's.
      graph: the arrays of the graph that are read, by name, as `Graph.edge_arrays` has them;
        programs take graphs of another size.
      schema: None where types are not read. Otherwise programs are for so many nodes.
      tables: the features, of a typed graph by type.
      state: the sampler's, for the graph.
      timed: whether each seed has a cutoff.
      direct: whether the first layer reads the feature store directly.
      room: whether rows have room, as those of `jgs.graph.Live`.
    """

    sampler: Any
    model: Any
    rows: Callable[..., Any]
    graph: Mapping[str, Any]
    schema: Schema | None
    tables: tuple[TableForm | None, ...]
    typed: bool
    state: Any
    timed: bool
    direct: bool
    room: bool = False

    @property
    def fanouts(self) -> tuple[Any, ...]:
        return self.sampler.fanouts if isinstance(self.sampler, Neighbors) else ()

    @property
    def least_edges(self) -> int:
        relations = 0 if self.schema is None else len(self.schema.relations)
        most = [k.total(relations) if isinstance(k, ByRelation) else k for k in self.fanouts]
        return max(LEAST_EDGES, *most, 0)

    def capacity(self, batch_size: int) -> Capacity:
        """The sizes that no batch of distinct seeds exceeds, in whatever graph."""
        relations = 0 if self.schema is None else len(self.schema.relations)
        endless = GraphShape(2**31 - 1, 2**62, num_relations=relations)
        return self.sampler.bound(endless, batch_size, True)

    def params(self) -> list[np.ndarray]:
        return [np.asarray(leaf) for leaf in jax.tree.leaves(nnx.state(self.model))]

    def keys(self, number: int) -> str:
        """What the names of a table's arrays begin with."""
        return f"of_type_{number}." if self.typed else ""

    def later(self, table: TableForm) -> bool:
        """Whether rows of a table may hold from moments on, as those of `jgs.graph.Live`."""
        return self.room and self.timed and table.form == "dense"

    def arrays(self) -> dict[str, jax.ShapeDtypeStruct]:
        """The types of the arrays that a program reads, by name: those of `Graph`, the features
        and the sampler's state. `features.row` is as long as a row of sparse ones may have
        entries. The numbers of edges and of entries, and of nodes without types, are symbols.
        """
        sparse = [t for t, one in enumerate(self.tables) if one and one.form == "sparse"]
        leaves = self._state()
        sizes = {"n": 1} if self.schema is None else {}
        sizes |= {"e": self.least_edges} | {f"{a}{t or ''}": 1 for t in sparse for a in "zr"}
        later = [t for t, one in enumerate(self.tables) if one and self.later(one)]
        sizes |= {f"{a}{t or ''}": 1 for t in later for a in "vw"}
        known = "sums", "indptr"
        sizes |= {f"s{i}": 1 for i, (name, _) in enumerate(leaves) if name not in known}
        least = [f"{name} >= {size}" for name, size in sizes.items()]
        n: Any = "n" if self.schema is None else self.schema.num_nodes
        counts = [n] * len(self.tables)
        if self.typed and self.schema is not None:
            counts = [count for _, count in self.schema.node_types]
        least += [f"{counts[t]} + v{t or ''} <= {2**31 - 1}" for t in later]
        made = jax.export.symbolic_shape(", ".join(sizes), constraints=least)
        size = dict(zip(sizes, made, strict=True))
        n, counts = size.get(n, n), [size.get(count, count) for count in counts]
        found = {"indptr": _struct(np.int64, *((2,) if self.room else ()), n + 1)}
        found |= {
            name: _struct(array.dtype, size["e"], *array.shape[1:])
            for name, array in self.graph.items()
        }
        for t, (table, count) in enumerate(zip(self.tables, counts, strict=True)):
            if table is not None:
                of = (size.get(f"{name}{t or ''}") for name in "zr")
                own = _of_table(table, count, *of)
                if t in later:
                    v, w = (size[f"{name}{t or ''}"] for name in "vw")
                    index = _struct(np.int64, 2, count + 1), _struct(np.int64, w)
                    every = _struct(table.dtype, v, table.width), *index, _struct(np.int32, w)
                    own |= dict(zip(PARTS[1:], every, strict=True))
                found |= {array_key(self.keys(t) + name): each for name, each in own.items()}
        for i, (name, array) in enumerate(leaves):
            first = {"sums": size["e"], "indptr": n + 1}.get(name) or size[f"s{i}"]
            found[f"state.{i}"] = _struct(array.dtype, first, *array.shape[1:])
        return found

    def _state(self) -> list[tuple[str, Any]]:
        """The arrays of the state, with the names of their fields. `sums` are of edges,
        and `indptr` of nodes."""
        leaves = jax.tree_util.tree_flatten_with_path(self.state)[0]
        return [(getattr(path[-1], "name", ""), leaf) for path, leaf in leaves]

    def features(self, arrays: Mapping[str, Any]) -> Any:
        """The features of which `arrays` has the arrays."""
        tables: list[Any] = []
        for t, table in enumerate(self.tables):
            if table is None:
                tables.append(None)
                continue
            of_rows, begin = ROW_TABLES[table.form], self.keys(t)
            own = {name: arrays[array_key(begin + name)] for name in of_rows.names}
            most = arrays[array_key(begin + "row")].shape[0] if of_rows.by_entries else None
            tables.append(plain(of_rows.opened(own, table.width, most)))
            if self.later(table):
                parts = (arrays[array_key(begin + name)] for name in PARTS)
                tables[-1] = VersionedFeatures.of_parts(*parts)
        if self.typed and self.schema is not None:
            return TypedFeatures.of_tables(self.schema, tables)
        return tables[0]


def _of_table(table: TableForm, n: Any, z: Any, r: Any) -> dict[str, jax.ShapeDtypeStruct]:
    form = ROW_TABLES[table.form]
    if not form.by_entries:
        rows = _struct(table.dtype, n, table.width)
        column = _struct(np.float32, table.width)
        return {name: rows if name in form.row_names else column for name in form.names}
    return {
        "indptr": _struct(np.int64, n + 1),
        "indices": _struct(np.int32, z),
        "values": _struct(np.float32, z),
        "row": _struct(np.bool_, r),
    }


def graph_arrays(graph: Graph, sampler: Any, types: bool) -> dict[str, Any]:
    """The arrays of the edges that programs read, by name."""
    columns = {f"edge_columns.{name}" for name in sampler.edges}
    weighted = getattr(sampler, "weighted", False) or "weight" in sampler.edges
    read = {"indices", "edge_time", *columns, *(_WEIGHTS if weighted else ())}
    read |= {"edge_type"} if types else set()
    return {name: array for name, array in graph.edge_arrays().items() if name in read}


Exports = Callable[[tuple[str, ...], bool], Any]


def exported(form: Form, batch_size: int) -> Exports:
    """`exported(...)(platforms, kernel)` is the `jax.export.Exported` of `program` for
    `batch_size` seeds. With `kernel` it calls the compiled kernels and is for CPUs; otherwise
    it has plain forms alone."""
    graphdef, tree, params = _split(form.model)
    own = {"relabel_inputs": False} if form.direct else {}
    sampler = dataclasses.replace(form.sampler, **own)
    run = partial(program, form, sampler, graphdef, tree, form.capacity(batch_size))
    with jax.enable_x64(True), on_host():
        arguments: list[Any] = [params, form.arrays(), _struct(np.uint32, 2)]
        arguments.append(_struct(np.int32, batch_size))
        arguments += [_struct(np.int64, batch_size)] if form.timed else []
    return partial(_exported, run, arguments)


def exported_scores(
    form: Form, width: int, batch_size: int, related: bool
) -> dict[str, Exports]:
    """By name what `exported` returns, for what the model's decoder makes of rows float32
    `[B, width]`: "pair" takes (params, sources, targets, relation int32 `[B]`), and returns
    `[B]` or `[B, C]`; "list" takes (params, sources, others float32 `[c, width]`, relation),
    and returns `[B, c]`. `related` says whether pairs have relations."""
    graphdef, tree, params = _split(form.model)
    (c,) = jax.export.symbolic_shape("c", constraints=["c >= 1"])
    rows, relation = _struct(np.float32, batch_size, width), _struct(np.int32, batch_size)
    others = {"pair": rows, "list": _struct(np.float32, c, width)}

    def scores(
        name: str, params: Any, src: jax.Array, dst: jax.Array, relation: jax.Array
    ) -> jax.Array:
        decoder = nnx.merge(graphdef, jax.tree.unflatten(tree, params)).decoder
        of = (relation if related else None,)
        if name == "list":
            return decoder.against(src, dst, SRC, *of).astype(jnp.float32)
        return decoder(src, dst, *of)

    return {
        name: partial(_exported, partial(scores, name), [params, rows, each, relation])
        for name, each in others.items()
    }


def _exported(
    run: Callable[..., Any], arguments: Sequence[Any], platforms: tuple[str, ...], kernel: bool
) -> Any:
    checks = [jax.export.DisabledSafetyCheck.custom_call(name) for name in kernels.HANDLERS]
    with jax.enable_x64(True), on_host():
        make: Callable = jax.export.export(
            jax.jit(run), platforms=platforms, disabled_checks=checks if kernel else ()
        )
        with kernels.this_host_only(kernel), kernels.plain(not kernel):
            return make(*arguments)


def _split(model: Any) -> tuple[Any, Any, tuple[jax.ShapeDtypeStruct, ...]]:
    graphdef, state = nnx.split(model)
    leaves, tree = jax.tree.flatten(state)
    return graphdef, tree, tuple(jax.ShapeDtypeStruct(a.shape, a.dtype) for a in leaves)


def program(
    form: Form,
    sampler: Any,
    graphdef: Any,
    tree: Any,
    capacity: Capacity,
    params: tuple[jax.Array, ...],
    arrays: Mapping[str, jax.Array],
    key_data: jax.Array,
    seeds: jax.Array,
    time: jax.Array | None = None,
) -> jax.Array:
    """float32 `[B, W]`: the rows of the distinct `seeds` int32 `[B]`, each at its `time` int64
    `[B]` if there is one, as `jgs.predict` computes them. `arrays` are those of `Form.arrays`.
    """
    model = nnx.merge(graphdef, jax.tree.unflatten(tree, params))
    with exact_integers():  # what reads symbols is lowered with 64-bit integers
        graph = Graph.from_edge_arrays(arrays["indptr"], arrays, schema=form.schema)
        leaves, of_state = jax.tree.flatten(form.state)
        own = [arrays[f"state.{i}"] for i in range(len(leaves))]
        state = jax.tree.unflatten(of_state, own)
        features = form.features(arrays)
        given = seeds if time is None else Seeds(seeds, time)
        batch = sampler.sample(key_data, graph, state, given, capacity)
        if model.uses_degrees:
            batch = dataclasses.replace(batch, degrees=_degrees(graph.indptr, batch))
        if form.direct:
            x: Any = _read_inputs(features, batch, model.layers[0].reduce)
        else:
            x = gather(features, batch)
        batch = _without_symbols(batch)
    with jax.enable_x64(False):  # as in training
        return form.rows(model, batch, x)[0]


def _read_inputs(features: Any, batch: MiniBatch, reduce: str) -> Any:
    versions = getattr(features, "versions", None)  # arrays are tables too
    if versions is not None:
        first = features.table[0]
        read = (partial(read_inputs, each, batch, reduce) for each in (features, first))
        return jax.lax.cond(versions.some, *read)
    return read_inputs(features, batch, reduce)


def _without_symbols(batch: MiniBatch) -> MiniBatch:
    first, *others = batch.blocks
    if batch.direct_inputs:
        first = dataclasses.replace(first, source_capacity=_PADDING)
    nodes, seeds = (
        jnp.where(ids < batch.num_nodes, ids, jnp.int32(_PADDING))
        for ids in (batch.nodes, batch.seeds)
    )
    changed: dict[str, Any] = {"nodes": nodes, "seeds": seeds, "num_nodes": _PADDING}
    return dataclasses.replace(batch, blocks=(first, *others), **changed)


def _degrees(indptr: jax.Array, batch: MiniBatch) -> jax.Array:
    """int32 `[S]`: the degrees of the batch's nodes, 0 in padding, without those of all."""
    real = batch.nodes < batch.num_nodes
    at = jnp.where(real, batch.nodes, 0)
    begin, end = (indptr[0], indptr[1]) if indptr.ndim == 2 else (indptr, indptr[1:])
    return jnp.where(real, end[at] - begin[at], 0).astype(jnp.int32)


def form_of(
    sampler: Any,
    model: Any,
    rows: Callable[..., Any],
    graph: Graph,
    tables: tuple[TableForm | None, ...],
    typed: bool,
    timed: bool,
    direct: bool,
    room: bool = False,
    new_nodes: Sequence[int] = (),
) -> Form:
    """The form of programs that take graphs like this one, with `new_nodes` more of a type."""
    schema = graph.schema
    by_relation = any(isinstance(k, ByRelation) for k in getattr(sampler, "fanouts", ()))
    if schema is not None and (timed or typed or by_relation):
        schema = Schema(schema.node_types, schema.relations)  # of one part
        schema = schema.extended(new_nodes or [0] * len(schema.node_types))
    else:
        schema = None
    return Form(
        sampler,
        model,
        rows,
        graph_arrays(graph, sampler, schema is not None),
        schema,
        tables,
        typed,
        needed_state(sampler.init(graph), graph, timed),
        timed,
        direct,
        room,
    )


def needed_state(state: Any, graph: Graph, timed: bool) -> Any:
    """A sampler's state for the graph without the indices that only save time, which is little
    for a few seeds. Contexts by visits need theirs for seeds that are `timed`."""
    if isinstance(state, VisitState) and timed:
        return VisitState(_of_padded(state.walk, graph.num_edges), ())
    if isinstance(state, VisitState):
        return VisitState((), ())

    def is_index(each: Any) -> bool:
        return isinstance(each, RelationIndex)

    return jax.tree.map(lambda a: () if is_index(a) else a, state, is_leaf=is_index)


def _of_padded(index: Any, num_edges: int) -> Any:
    """An index of relations, or (), for edges padded to `LEAST_EDGES`. Padding is a run of no
    node."""
    if num_edges >= LEAST_EDGES or not isinstance(index, RelationIndex):
        return index
    end = np.int64(LEAST_EDGES << RUN_BITS)
    return index._replace(runs=as_device(np.append(np.asarray(index.runs), end)))


def shown(array: jax.ShapeDtypeStruct) -> str:
    """A dtype and a shape, as `int32[e]`."""
    return f"{array.dtype}[{', '.join(map(str, array.shape))}]"


def _struct(dtype: Any, *shape: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, dtype)
