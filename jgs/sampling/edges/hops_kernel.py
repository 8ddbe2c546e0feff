"""How a kernel that samples all hops is called; `hops.sample_hops` is its plain form."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_batching import custom_vmap

from jgs import kernels
from jgs.graph import Block, Graph
from jgs.kernels.call import call
from jgs.sampling.edges.hops import Sample, relabels
from jgs.sampling.seeds import Seeds
from jgs.settings import exact_integers

T = TypeVar("T")
# draw(key_data, graph, seeds): the samples of `seeds`, `Seeds` or nodes int32 `[..., B]`, with
# the keys `key_data` uint32 `[..., W]`. With `spec.separate` these are `[..., S, B]` and
# `[..., S, W]`, and there are S samples. The graph may be any pytree that the batches share.
Call = Callable[[jax.Array, Any, Any], T]


def call_once(draw: Call[T], key_data: jax.Array, graph: Any, seeds: Any) -> T:
    """`draw(key_data, graph, seeds)`. `jax.vmap` turns it into one call for several batches."""
    of_batch, form = jax.tree.flatten((key_data, seeds))
    arrays, of_graph = jax.tree.flatten(graph)
    own = len(of_batch)  # arrays that differ from batch to batch

    def one_call(*arrays):
        key_data, seeds = jax.tree.unflatten(form, arrays[:own])
        # Set here too: under a transformation this is traced outside the caller's x64 context.
        with exact_integers():
            return draw(key_data, jax.tree.unflatten(of_graph, arrays[own:]), seeds)

    once = custom_vmap(one_call)

    @once.def_vmap
    def vmapped(axis_size, batched, *arrays):
        if any(batched[own:]):  # each batch has a graph of its own: one call after the other
            axes = [0 if b else None for b in batched]
            samples = jax.vmap(one_call, axes)(*arrays)
        else:
            of_batches = [
                x if b else jnp.broadcast_to(x, (axis_size, *x.shape))
                for x, b in zip(arrays[:own], batched, strict=False)
            ]
            samples = once(*of_batches, *arrays[own:])
        return samples, jax.tree.map(lambda _: True, samples)

    return once(*of_batch, *arrays)


def call_kernel(
    target: str,
    operands: tuple[Any, ...],
    graph: Graph,
    of: Seeds,
    spec: Any,
    types: Sequence[bool] = (),
    **attributes: Any,
) -> list[Sample]:
    """The samples of the seeds `of`, by the FFI `target`. It takes the `operands`, then the
    seeds' nodes, times and excluded edges; and `attributes` besides those of every sampler.
    `types` says of each hop whether it draws by relation and returns `edge_type`."""
    capacity, seeds = spec.capacity, of.nodes
    batches = seeds.shape[: -2 if spec.separate else -1]

    def result(dtype, *shape):
        return jax.ShapeDtypeStruct((*batches, *shape), dtype)

    known = (seeds.shape[-1], *capacity.sources)
    types = types or (False,) * len(capacity.edges)
    blocks = [
        Block(
            indptr=result(jnp.int32, targets + 1),
            indices=result(jnp.int32, edges),
            num_targets=result(jnp.int32),
            num_sources=result(jnp.int32),
            num_edges=result(jnp.int32),
            edge_id=result(jnp.int64, edges if spec.edge_ids else 0),
            edge_weight=result(jnp.float32, edges if spec.edge_weights else 0),
            source_capacity=known[h + 1] if relabels(spec, h) else graph.num_nodes,
            edge_type=result(jnp.int16, edges if types[h] else 0),
        )
        for h, (targets, edges) in enumerate(zip(known, capacity.edges, strict=False))
    ]
    num_nodes = known[-1 if spec.relabel_inputs else -2]
    cutoff = result(jnp.int64, num_nodes if of.time is not None else 0)
    counts = result(jnp.bool), result(jnp.int32, 2, len(blocks))
    sample = (blocks, result(jnp.int32, num_nodes), *counts, cutoff)
    results, of_samples = jax.tree.flatten([sample] * (seeds.shape[-2] if spec.separate else 1))
    limits = [jnp.zeros(0, jnp.int64) if a is None else a for a in (of.time, of.excluded)]
    arrays = call(
        target,
        results,
        (*operands, seeds, *limits),
        kernels.NUM_THREADS,
        edge_capacity=np.array(capacity.edges, np.int64),
        source_capacity=np.array(capacity.sources, np.int64),
        relabel_inputs=np.bool_(spec.relabel_inputs),
        first_hop=np.int64(spec.first_hop),
        **attributes,
    )
    unwanted = {} if spec.edge_ids else {"edge_id": None}
    unwanted |= {} if spec.edge_weights else {"edge_weight": None}

    def wanted(block: Block, typed: bool) -> Block:
        kind = block.edge_type if typed else None
        return replace(block, **unwanted, edge_type=kind)  # type: ignore[arg-type]

    return [
        (
            [wanted(block, typed) for block, typed in zip(blocks, types, strict=True)],
            *rest,
            None if of.time is None else cutoff,
        )
        for blocks, *rest, cutoff in jax.tree.unflatten(of_samples, arrays)
    ]
