"""The C++ kernel behind `visits`: jgs/kernels/visits.cc, one pass for each target."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jgs import kernels
from jgs.graph import Graph
from jgs.kernels.call import call
from jgs.sampling.walks import limit


def visit_kernel(
    key_data: jax.Array,
    graph: Graph,
    nodes: jax.Array,
    excluded: jax.Array | None,
    spec: Any,
    sizes: tuple[int, ...],
) -> tuple[jax.Array, jax.Array]:
    """See `visits.visit_plain`."""
    shape = jax.ShapeDtypeStruct((nodes.shape[0], sum(sizes)), jnp.int32)
    types = graph.edge_type
    if types is None or not spec.path:
        types = jnp.zeros(0, jnp.int16)
    gone = jnp.zeros(0, jnp.int64) if excluded is None else excluded
    groups = zip(sizes, spec.groups, strict=True)
    found, count = call(
        "jgs_visits",
        (shape, shape),
        (key_data, graph.indptr, graph.indices, types, nodes, gone),
        kernels.NUM_THREADS,
        num_walks=np.int64(spec.num_walks),
        length=np.int64(spec.length),
        stop=np.int64(limit(spec.stop)),
        path=np.array(spec.path, np.int64),
        groups=np.concatenate([(k, len(ends), *ends) for k, ends in groups], dtype=np.int64),
    )
    return found, count
