"""One process of the subgraphs' benchmark: `Saint` and `Shadow`, jitted, of planned capacity.

After every call the host reads whether the draw overflowed, as the loader does. A draw that
overflowed is repeated with a larger capacity, and both draws are timed.
"""

from functools import partial

import jax
import numpy as np

import jgs
from benchmarks import draws, worker
from jgs.sampling import SAMPLERS, plan_capacity, worst_case


def measure(graph: jgs.Graph, setting: dict) -> dict:
    batches, key = worker.batches(setting), jax.random.key(0)
    sampler = SAMPLERS[setting["sampler"]](*map(_hashable, setting["fields"]))
    state = sampler.init(graph)
    planned = plan_capacity(graph, setting["batch"], sampler, seeds=batches.ravel())
    worst = worst_case(graph, setting["batch"], sampler, distinct=True)
    draw = jax.jit(sampler.sample, static_argnums=4)

    def sample(step):
        capacity = planned
        while True:
            batch = draw(jax.random.fold_in(key, step), graph, state, batches[step], capacity)
            if not bool(jax.block_until_ready(batch).overflow):
                return batch
            capacity = capacity.enlarge(worst)

    digest = worker.digest(*graph_of(sample(np.int32(0))))
    return draws.measured(setting, sample) | {"digest": digest}


def graph_of(batch: jgs.MiniBatch) -> tuple[np.ndarray, ...]:
    """The nodes of a batch, and its edges' sources and targets as positions among them."""
    (block,), indptr = batch.blocks, np.asarray(batch.blocks[0].indptr)
    targets = np.repeat(np.arange(indptr.size - 1), np.diff(indptr))
    nodes = np.asarray(batch.nodes)[: int(block.num_targets)]
    return nodes, np.asarray(block.indices)[: targets.size], targets


def _hashable(field):
    return tuple(field) if isinstance(field, list) else field


if __name__ == "__main__":
    worker.main(
        lambda task: partial(measure, jgs.Graph.open(task["graph"], verify=False).unweighted())
    )
