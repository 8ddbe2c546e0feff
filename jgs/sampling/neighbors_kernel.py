"""The C++ kernel behind `sample_neighbors`: jgs/kernels/sample.cc, all hops in one call."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from jgs import kernels
from jgs.graph import Block, Graph
from jgs.sampling.neighbors_plain import Sample, Spec
from jgs.sampling.random import fold


def sample_kernel(words: jax.Array, graph: Graph, seeds: jax.Array, spec: Spec) -> Sample:
    num_hops, capacity = len(spec.fanouts), spec.capacity
    known = (seeds.shape[0], *capacity.sources)
    results = []
    for targets, edges in zip(known, capacity.edges, strict=False):
        results += [
            jax.ShapeDtypeStruct((targets + 1,), jnp.int32),
            jax.ShapeDtypeStruct((edges,), jnp.int32),
            jax.ShapeDtypeStruct((edges if spec.edge_ids else 0,), jnp.int64),
            jax.ShapeDtypeStruct((edges if spec.edge_weights else 0,), jnp.float32),
        ]
    results += [
        jax.ShapeDtypeStruct((known[-1 if spec.relabel_inputs else -2],), jnp.int32),
        jax.ShapeDtypeStruct((num_hops, 3), jnp.int32),
        jax.ShapeDtypeStruct((), jnp.bool),
    ]
    prefix = graph.edge_weight_prefix if spec.weighted else jnp.zeros(0, jnp.int64)
    weight = graph.edge_weight if spec.edge_weights else jnp.zeros(0, jnp.float32)
    hop_keys = jnp.stack([fold(words, h) for h in range(num_hops)])
    *arrays, nodes, counts, overflow = jax.ffi.ffi_call(
        "jgs_sample_neighbors", results, vmap_method="sequential"
    )(
        hop_keys,
        graph.indptr,
        graph.indices,
        prefix,
        weight,
        seeds,
        fanouts=np.array(spec.fanouts, np.int64),
        edge_capacity=np.array(capacity.edges, np.int64),
        source_capacity=np.array(capacity.sources, np.int64),
        replace=np.bool_(spec.replace),
        weighted=np.bool_(spec.weighted),
        relabel_inputs=np.bool_(spec.relabel_inputs),
        num_threads=np.int64(kernels.NUM_THREADS),
    )
    blocks = [
        Block(
            indptr=arrays[4 * h],
            indices=arrays[4 * h + 1],
            num_targets=counts[h, 0],
            num_sources=counts[h, 1],
            num_edges=counts[h, 2],
            edge_id=arrays[4 * h + 2] if spec.edge_ids else None,
            edge_weight=arrays[4 * h + 3] if spec.edge_weights else None,
        )
        for h in range(num_hops)
    ]
    return blocks, nodes, overflow
