"""The program of an artifact: it samples, reads the first layer's rows and runs the model."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from jgs import kernels
from jgs.devices import on_host
from jgs.export.spec import array_key
from jgs.graph import Graph, MiniBatch
from jgs.graph.row_tables.table import plain
from jgs.models import GNN, read_inputs
from jgs.ops import gather
from jgs.sampling import Capacity, Neighbors
from jgs.sampling.capacity import GraphShape
from jgs.settings import exact_integers
from jgs.tables import ROW_TABLES

LEAST_EDGES = 4096  # a graph is padded to at least so many edges
_PADDING = 2**31 - 1  # more than any node
_ENDLESS = GraphShape(2**31 - 1, 2**62)  # no batch of any graph needs more than in this one


class Form(NamedTuple):
    """What a program is made of."""

    sampler: Neighbors
    model: GNN
    fanouts: tuple[int, ...]
    rows: str  # the name of the features' form in `jgs.tables.ROW_TABLES`
    dtype: Any  # of their rows
    direct: bool  # whether the first layer reads the feature store directly

    @property
    def least_edges(self) -> int:
        return max(LEAST_EDGES, *self.fanouts)

    def capacity(self, batch_size: int) -> Capacity:
        """The sizes that no batch of distinct seeds exceeds, in whatever graph."""
        return self.sampler.bound(_ENDLESS, batch_size, True)

    def params(self) -> list[np.ndarray]:
        return [np.asarray(leaf) for leaf in jax.tree.leaves(nnx.state(self.model))]

    def arrays(self) -> dict[str, Any]:
        """The types of the arrays that the program reads, by name: those of `Graph`, and of
        the features. `features.row` is as long as a row of sparse ones may have entries.
        """
        form = ROW_TABLES[self.rows]
        sizes = {"n": 1, "e": self.least_edges, **({"z": 1, "r": 1} if form.by_entries else {})}
        least = [f"{name} >= {size}" for name, size in sizes.items()]
        n, e, *of_sparse = jax.export.symbolic_shape(", ".join(sizes), constraints=least)
        found = {"indptr": _struct(np.int64, n + 1), "indices": _struct(np.int32, e)}
        if self.sampler.weighted or self.model.edge_columns:
            found["edge_weight"] = _struct(np.float32, e)
            found["edge_weight_prefix"] = _struct(np.int64, e)
        if not form.by_entries:
            width = self.model.layers[0].in_features
            return found | {
                array_key(name): _struct(self.dtype, n, width)
                if name in form.row_names
                else _struct(np.float32, width)
                for name in form.names
            }
        z, r = of_sparse
        return found | {
            "features.indptr": _struct(np.int64, n + 1),
            "features.indices": _struct(np.int32, z),
            "features.values": _struct(np.float32, z),
            "features.row": _struct(np.bool_, r),
        }


def exported(form: Form, batch_size: int, platforms: tuple[str, ...], kernel: bool) -> Any:
    """The `jax.export.Exported` of `program` for `batch_size` seeds. The numbers of nodes, of
    edges and of the features' entries are symbols. With `kernel` it calls the compiled kernels
    and is for CPUs; otherwise it has plain forms alone."""
    graphdef, state = nnx.split(form.model)
    leaves, tree = jax.tree.flatten(state)
    sampler = dataclasses.replace(form.sampler, relabel_inputs=not form.direct)
    run = partial(program, form, sampler, graphdef, tree, form.capacity(batch_size))
    checks = [jax.export.DisabledSafetyCheck.custom_call(name) for name in kernels.HANDLERS]
    with jax.enable_x64(True), on_host():
        params = tuple(jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in leaves)
        arguments = params, form.arrays(), _struct(np.uint32, 2), _struct(np.int32, batch_size)
        make: Callable = jax.export.export(
            jax.jit(run), platforms=platforms, disabled_checks=checks if kernel else ()
        )
        with kernels.this_host_only(kernel), kernels.plain(not kernel):
            return make(*arguments)


def program(
    form: Form,
    sampler: Neighbors,
    graphdef: Any,
    tree: Any,
    capacity: Capacity,
    params: tuple[jax.Array, ...],
    arrays: Mapping[str, jax.Array],
    key_data: jax.Array,
    seeds: jax.Array,
) -> jax.Array:
    """float32 `[B, C]`: the model's outputs for the distinct `seeds` int32 `[B]`, as
    `jgs.predict.sampled.sampled_logits` computes them. `arrays` are those of `Form.arrays`."""
    model = nnx.merge(graphdef, jax.tree.unflatten(tree, params))
    with exact_integers():  # what reads symbols is lowered with 64-bit integers
        graph = Graph.from_edge_arrays(arrays["indptr"], arrays)
        of_rows = ROW_TABLES[form.rows]
        own = {name: arrays[array_key(name)] for name in of_rows.names}
        most = arrays["features.row"].shape[0] if of_rows.by_entries else None
        features = plain(of_rows.opened(own, model.layers[0].in_features, most))
        batch = sampler.sample(key_data, graph, (), seeds, capacity)
        if model.uses_degrees:
            batch = dataclasses.replace(batch, degrees=_degrees(graph.indptr, batch))
        if form.direct:
            x: Any = read_inputs(features, batch, model.layers[0].reduce)
        else:
            x = gather(features, batch.nodes)
        batch = _without_symbols(batch)
    with jax.enable_x64(False):  # as in training
        return model(batch, x)


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
    return jnp.where(real, indptr[at + 1] - indptr[at], 0).astype(jnp.int32)


def shown(array: jax.ShapeDtypeStruct) -> str:
    """A dtype and a shape, as `int32[e]`."""
    return f"{array.dtype}[{', '.join(map(str, array.shape))}]"


def _struct(dtype: Any, *shape: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, dtype)
