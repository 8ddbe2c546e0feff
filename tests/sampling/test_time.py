"""`elapsed`, and the cutoffs at the first and last of all times."""

import jax
import numpy as np
from refusals import refused

from jgs import Graph
from jgs.sampling import Neighbors, Seeds

KEY = jax.random.key(0)


def test_elapsed():
    """It is the cutoff of an edge's target less its time, also in a super-batch."""
    rng = np.random.default_rng(0)
    ends, times = rng.integers(0, 50, (2, 900)), rng.integers(0, 99, 900)
    graph = Graph.from_edges(*ends, 50, edge_time=times)
    seeds = Seeds(rng.integers(0, 50, (2, 20)), rng.integers(20, 99, (2, 20)))
    sampler, keys = Neighbors((6, 3), edges=("elapsed", "time")), jax.random.split(KEY)
    sample = jax.jit(lambda graph, seeds: sampler.sample(keys, graph, (), seeds, None))
    batches = jax.device_get(sample(graph, seeds))
    for i in range(2):
        batch = jax.tree.map(lambda a, i=i: a[i], batches)
        for block in batch.blocks:
            count = int(block.num_edges)
            assert count > 90
            target = np.repeat(np.arange(block.target_capacity), np.diff(block.indptr))
            own = batch.cutoff[target] - block.edge_time[:count]
            elapsed = block.edge_columns["elapsed"]
            np.testing.assert_array_equal(elapsed[:count], own.astype(np.float32))
            assert own.min() > 0
            assert not elapsed[count:].any()
    refused("counted from the cutoffs", sampler.sample, KEY, graph, (), [3], None)


def test_the_first_and_last_of_all_times():
    """`elapsed` may need 64 bits; `inclusive` lets in the ties of a cutoff."""
    least, most = np.iinfo(np.int64).min, np.iinfo(np.int64).max
    far = Graph.from_edges([0, 1, 2], [3, 3, 3], 4, edge_time=[least, 5, most - 1])
    found = {}
    for inclusive in (False, True):
        of = Seeds([3, 3, 3], [5, most - 1, most], inclusive=inclusive)
        batch = Neighbors((-1,), edges=("elapsed",)).sample(KEY, far, (), of, None)
        block = batch.blocks[0]
        found[inclusive] = np.diff(block.indptr)[:3].tolist()
        (last,) = block.edge_columns["elapsed"][block.indptr[2] : block.indptr[2] + 1]
        assert last == np.float32(2.0**64 - 1)
    assert found == {False: [1, 2, 3], True: [2, 3, 3]}
