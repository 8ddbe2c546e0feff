"""The C++ kernel behind `Frontier`: jgs/kernels/frontier.cc."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jgs import kernels
from jgs.graph import Graph
from jgs.kernels.call import call


def draw_kernel(
    key_data: jax.Array, graph: Graph, sampler: Any, room: int
) -> tuple[jax.Array, jax.Array]:
    """See `frontier.draw_plain`."""
    num = key_data.shape[0]
    shapes = [jax.ShapeDtypeStruct(s, jnp.int32) for s in ((num, room), (num,))]
    nodes, count = call(
        "jgs_frontier",
        shapes,
        (key_data, graph.indptr, graph.indices),
        kernels.NUM_THREADS,
        size=np.int64(sampler.m),
        pops=np.int64(sampler.budget - sampler.m),
        degree_cap=np.int64(sampler.degree_cap),
        enlargement=np.float64(sampler.enlargement),
    )
    return nodes, count
