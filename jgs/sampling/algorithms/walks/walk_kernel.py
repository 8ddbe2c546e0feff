"""How walkers call the C++ kernel, jgs/kernels/walk.cc."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jgs import kernels
from jgs.graph import Graph
from jgs.kernels.call import vary_alike
from jgs.sampling.edges.hops_kernel import call_once
from jgs.sampling.seeds import Seeds
from jgs.sampling.walks import Walks, limit


def call_walks(
    key_data: jax.Array,
    graph: Graph,
    seeds: Seeds,
    walker: Any,
    restart: float = 0.0,
    stop: float = 0.0,
    stretches: jax.Array | None = None,
    relations: tuple[int, ...] = (),
    second: tuple[int, ...] = (),
    times: tuple[int | None, int | None] = (None, None),
) -> Walks:
    """The walks of `walker.length` steps from the `seeds`, nodes int32 `[..., B]`, with the
    keys `key_data` uint32 `[..., 2]`, by weight with `walker.weighted`. `jax.vmap` makes it one
    call.

    Args:
      restart, stop: see `Walk`.
      stretches: int64 `[U, N, 2]`: `U` parts of every row, each with the position of its first
        edge and its number of edges.
      relations: the index among the `U` parts that each step draws from, repeated for longer
        walks. Empty: steps draw from whole rows.
      second: the fields of `SecondOrder` in jgs/kernels/walk.h. Empty: a walk of first order.
      times: `window` and `latest` of `Walk`.
    """

    def call(key_data: jax.Array, of_graph: tuple[Graph, jax.Array], seeds: Seeds) -> Walks:
        (graph, parts), roots = of_graph, seeds.nodes
        none = jnp.zeros(0, jnp.int64)
        edge_time = none if seeds.time is None else graph.edge_time
        limits = [none if array is None else array for array in (seeds.time, seeds.excluded)]
        window, latest = (-1 if number is None else number for number in times)
        prefix = graph.edge_weight_prefix if walker.weighted else jnp.zeros(0, jnp.int64)
        shape = (*roots.shape, walker.length + 1)
        result = [jax.ShapeDtypeStruct(s, jnp.int32) for s in (shape, shape[:-1])]
        run = jax.ffi.ffi_call("jgs_walk", result, vmap_method="sequential")
        walks = run(
            *vary_alike(
                *(key_data, graph.indptr, graph.indices, prefix, parts, edge_time),
                *(roots, *limits),
            ),
            length=np.int64(walker.length),
            weighted=np.bool_(walker.weighted),
            restart=np.int64(limit(restart)),
            stop=np.int64(limit(stop)),
            relations=np.array(relations, np.int64),
            second=np.array(second, np.int64),
            window=np.int64(window),
            latest=np.int64(latest),
            num_threads=np.int64(kernels.NUM_THREADS),
        )
        return Walks(*(vary_alike(array, roots)[0] for array in walks))

    parts = jnp.zeros(0, jnp.int64) if stretches is None else stretches
    return call_once(call, key_data, (graph, parts), seeds)
