"""The C++ kernel behind `Labor`, all hops in one call: jgs/kernels/labor.cc. It is faster with
the hubs' edges by source: it then need not read the hubs' rows."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jgs import kernels
from jgs.devices import host_device
from jgs.graph import Graph
from jgs.graph.device import as_device
from jgs.graph.grouping import group_kernel
from jgs.sampling.edges.hops import Sample, Spec, call_hops
from jgs.sampling.seeds import Seeds

LEAST_DEGREE = 1 << 13  # at a fanout of 8 one neighbour in a thousand is taken


class HubEdges(NamedTuple):
    """The edges of `K` nodes with many neighbours, by source. A target of LABOR-0 with `d`
    neighbours takes those whose random number is below `k / d`. For a hub these are few of all
    nodes, and nobody need look at the others.

    Fields:
      nodes: int32 `[K]`, the hubs, ascending.
      indptr: int32 `[N+1]`; the edges of source `u` are `edges[indptr[u]:indptr[u+1]]`.
      edges: int32 `[H]`, positions among the edges of all hubs, one hub after the other.
    """

    nodes: jax.Array
    indptr: jax.Array
    edges: jax.Array


Hubs = HubEdges | tuple[()]


def hubs_of(graph: Graph) -> Hubs:
    """The `HubEdges` of the nodes that have `LEAST_DEGREE` neighbours or more; of the largest
    of them, if they have more than a quarter of all edges. It is () where it saves nothing:
    where the kernel does not draw, and where the hubs have fewer edges than the graph has
    nodes; and if the graph is damaged or traced."""
    traced = isinstance(graph.indptr, jax.core.Tracer)
    if traced or not kernels.available() or host_device().platform != "cpu":
        return ()
    indptr, indices = np.asarray(graph.indptr), np.asarray(graph.indices)
    degree = np.diff(indptr)
    hubs = np.flatnonzero(degree >= LEAST_DEGREE)
    hubs = hubs[np.argsort(-degree[hubs], kind="stable")]
    room = min(graph.num_edges // 4, np.iinfo(np.int32).max)
    hubs = np.sort(hubs[np.cumsum(degree[hubs]) <= room])
    if degree[hubs].sum() < max(1, graph.num_nodes):
        return ()
    sources = np.concatenate([indices[indptr[hub] : indptr[hub + 1]] for hub in hubs])
    groups = group_kernel(sources, None, graph.num_nodes)
    if groups is None:  # some sources are no nodes
        return ()
    arrays = hubs.astype(np.int32), groups.indptr.astype(np.int32), groups.order
    return HubEdges(*map(as_device, arrays))


def sample_kernel(
    key_data: jax.Array, graph: Graph, hubs: Hubs, seeds: Seeds, spec: Spec
) -> list[Sample]:
    """The result of `sample_plain`."""
    how = spec.sampler
    return call_hops(
        "jgs_sample_labor",
        key_data,
        graph,
        hubs or (jnp.zeros(0, jnp.int32),) * 3,
        seeds,
        spec,
        key_words=np.int64(key_data.shape[-1]),
        importance=np.int64(how.importance),
        layer_dependency=np.bool_(how.layer_dependency),
        unbiased=np.bool_(how.unbiased),
    )
