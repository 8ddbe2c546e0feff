"""Arrays that change after a call: small ones were copied, large ones are read in place."""

import jax
import numpy as np
import pytest

from jgs import NodeIds, ops
from jgs.data import Dataset
from jgs.graph.device import aligned_empty
from jgs.sampling import FastGCN, Labor, Neighbors, PinSage, Seal, Shadow, Subgraph, Walk

N = 30
KEY = jax.random.key(0)


def aligned(values, dtype=np.int32):
    """The values in a buffer that JAX can use without a copy."""
    values = np.asarray(values, dtype)
    array = aligned_empty(values.size, dtype).reshape(values.shape)
    array[...] = values
    return array


@pytest.fixture(scope="module")
def graph(make_graph):
    return make_graph(N, 200)


SAMPLERS = [Neighbors((2,)), Labor((2,)), PinSage((2,), 2, 2), FastGCN((4,)), Subgraph(9)]
SAMPLERS += [Shadow((2,)), Seal((2,)), Walk(2)]


@pytest.mark.parametrize("sampler", SAMPLERS, ids=lambda sampler: type(sampler).__name__)
def test_a_batch_keeps_its_seeds(sampler, graph):
    """int64 seeds are copied anyway, since JAX has int32."""
    given = np.arange(16).reshape((8, 2) if isinstance(sampler, Seal) else 16)
    buffer = aligned(given)
    room = () if isinstance(sampler, Walk) else (None,)
    drawn = sampler.sample(KEY, graph, sampler.init(graph), buffer, *room)
    roots = drawn.nodes[:, 0] if isinstance(sampler, Walk) else drawn.seeds
    buffer[...] = 7
    np.testing.assert_array_equal(roots, given)


def test_a_raw_key_and_ids_are_read_before_the_call_returns(graph):
    key, ids = aligned([3, 4], np.uint32), aligned(np.arange(N))
    sampler, rows = Neighbors((2,)), ops.gather(jax.numpy.eye(N), ids)
    batch = sampler.sample(key, graph, (), ids, None)
    key[...], ids[...] = 0, 0
    np.testing.assert_array_equal(rows, np.eye(N))
    again = sampler.sample(np.array([3, 4], np.uint32), graph, (), np.arange(N), None)
    np.testing.assert_array_equal(batch.nodes, again.nodes)


def test_a_data_set_has_labels_splits_and_names_of_its_own(graph):
    labels, names = aligned(np.arange(N) % 3), aligned(np.arange(N), np.int64)
    train, val = aligned([1, 2, 3]), aligned(np.arange(N) == 5, bool)
    of = (graph, np.ones((N, 2), np.float32), labels, {"train": train, "val": val})
    data = Dataset.from_arrays(*of, node_ids=NodeIds(names))
    labels[...], names[...], train[...], val[...] = 0, 0, 0, False
    np.testing.assert_array_equal(data.labels, np.arange(N) % 3)
    np.testing.assert_array_equal(data.node_ids.values, np.arange(N))
    assert (data.train_idx.tolist(), data.val_idx.tolist()) == ([1, 2, 3], [5])


def test_large_arrays_are_read_in_place_and_only_read(graph):
    features = aligned(np.ones((N, 4)), np.float32)
    data = Dataset.from_arrays(graph, features, np.zeros(N, int), {"train": [0]})
    with_columns = graph.with_node_columns(features=features)
    for array in (data.features, with_columns.node_columns["features"]):
        assert np.shares_memory(array, features)
        assert not np.asarray(array).flags.writeable
    assert features.flags.writeable
