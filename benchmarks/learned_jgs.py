"""One process of the benchmark of learned samplers: `ASGCN` or `PASS`, jitted.

All is as in `layerwise_jgs.py`; the state has the parameters of `learned.py`.
"""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

import jax.numpy as jnp

import jgs
from benchmarks import layerwise_jgs, learned, worker
from jgs.sampling import ASGCN, PASS


@dataclasses.dataclass(frozen=True)
class Asgcn(ASGCN):
    """AS-GCN with the parameters of the benchmark."""

    def arrays(self, graph: jgs.Graph) -> Any:
        state = super().arrays(graph)
        return state._replace(weight=jnp.asarray(learned.asgcn(state.weight.shape[0])))


@dataclasses.dataclass(frozen=True)
class Pass(PASS):
    """PASS with the parameters of the benchmark."""

    def arrays(self, graph: jgs.Graph) -> Any:
        state = super().arrays(graph)
        parameters = learned.pass_(state.policy.weight.shape[0])
        return state._replace(policy=type(state.policy)(*map(jnp.asarray, parameters)))


SAMPLERS = {"asgcn": Asgcn, "pass": Pass}


def prepare(task: dict):
    graph = jgs.Graph.open(task["graph"], verify=False).unweighted()
    graph = graph.with_node_columns(features=worker.array(task["features"], "features"))
    return partial(layerwise_jgs.measure, graph, samplers=SAMPLERS)


if __name__ == "__main__":
    worker.main(prepare)
