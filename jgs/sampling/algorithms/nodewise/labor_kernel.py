"""The C++ kernel behind `Labor`: jgs/kernels/labor.cc, all hops in one call."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from jgs.sampling.algorithms.nodewise.labor_index import HubEdges, LaborGraph
from jgs.sampling.algorithms.nodewise.labor_plain import Spec
from jgs.sampling.edges.hops import Sample
from jgs.sampling.edges.hops_kernel import call_kernel, call_once
from jgs.sampling.seeds import Seeds


def sample_kernel(
    key_data: jax.Array, graph: LaborGraph, seeds: Seeds, spec: Spec
) -> list[Sample]:
    """The result of `sample_plain`. `jax.vmap` makes it one call for several batches."""

    def call(key_data: jax.Array, of: LaborGraph, seeds: Seeds) -> list[Sample]:
        graph, hubs = of
        if not hubs:
            hubs = HubEdges(*[jnp.zeros(0, jnp.int32)] * 3)
        return call_kernel(
            "jgs_sample_labor",
            (key_data, graph.indptr, graph.indices, *hubs),
            graph,
            seeds,
            spec,
            draws=np.array(spec.fanouts, np.int64),
            key_words=np.int64(key_data.shape[-1]),
            importance=np.int64(spec.importance),
            layer_dependency=np.bool_(spec.layer_dependency),
            unbiased=np.bool_(spec.unbiased),
        )

    return call_once(call, key_data, graph, seeds)
