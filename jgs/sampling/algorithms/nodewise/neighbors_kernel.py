"""The C++ kernel behind `sample_neighbors`: jgs/kernels/sample.cc, all hops in one call."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from jgs.graph import Graph
from jgs.sampling.algorithms.nodewise.neighbors_plain import Spec
from jgs.sampling.edges.hops import Sample
from jgs.sampling.edges.hops_kernel import call_kernel, call_once
from jgs.sampling.seeds import Seeds


def sample_kernel(key_data: jax.Array, graph: Graph, seeds: Seeds, spec: Spec) -> list[Sample]:
    """The result of `sample_plain`. `jax.vmap` makes it one call for several batches."""

    def call(key_data: jax.Array, graph: Graph, seeds: Seeds) -> list[Sample]:
        prefix = graph.edge_weight_prefix if spec.weighted else jnp.zeros(0, jnp.int64)
        times = jnp.zeros(0, jnp.int64) if seeds.time is None else graph.edge_time
        weight = graph.edge_weight if spec.edge_weights else jnp.zeros(0, jnp.float32)
        return call_kernel(
            "jgs_sample_neighbors",
            (key_data, graph.indptr, graph.indices, prefix, weight, times),
            graph,
            seeds,
            spec,
            draws=np.array(spec.fanouts, np.int64),
            replace=np.bool_(spec.replace),
            weighted=np.bool_(spec.weighted),
            latest=np.bool_(spec.latest),
            window=np.int64(-1 if spec.window is None else spec.window),
        )

    return call_once(call, key_data, graph, seeds)
