"""Faults that new users found, each with a test; and graphs that were damaged on the disk."""

import copy
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from refusals import refused

import jgs
from jgs import Graph, NodeIds, kernels, ops
from jgs.arrays import aligned_empty
from jgs.data import Dataset
from jgs.graph import as_device
from jgs.sampling import (
    Capacity,
    FastGCN,
    Frontier,
    Labor,
    Loader,
    Neighbors,
    Node2Vec,
    PinSage,
    Seal,
    Seeds,
    Shadow,
    Subgraph,
    Walk,
    sample_neighbors,
)
from jgs.sampling.edges.columns import with_edges
from jgs.settings import exact_integers

KEY = jax.random.key(0)


def test_vmap_over_what_is_traced_already(graph):
    def one(key):
        return sample_neighbors(key, graph, jnp.arange(8), (3, 2)).nodes

    keys = jax.random.split(KEY, 3)
    expected = np.stack([one(key) for key in keys])
    inner = {
        "jit": jax.jit(one),
        "checkpoint": jax.checkpoint(one),
        "cond": lambda key: jax.lax.cond(key is not None, one, one, key),
        "scan": lambda key: jax.lax.scan(lambda c, _: (c, one(key)), 0, None, length=1)[1][0],
        "map": lambda key: jax.lax.map(one, key[None])[0],
    }
    for name, function in inner.items():
        np.testing.assert_array_equal(jax.vmap(function)(keys), expected, err_msg=name)


def test_a_list_of_seeds_under_jit_and_the_default_capacity(graph, same_bits):
    for sampler in (Neighbors((3, 2)), Walk(4)):
        expected = sampler.sample(KEY, graph, (), np.array([3, 1, 4]), None)
        drawn = jax.jit(lambda seeds, of=sampler: of.sample(KEY, graph, (), seeds))([3, 1, 4])
        same_bits(drawn, expected)
    assert repr(drawn) == "Walks(nodes=int32[3, 5], lengths=int32[3])"


def test_vmap_over_numpys_seeds(graph):
    seeds = np.arange(12).reshape(3, 4)
    for draw in (
        lambda s: Walk(2).sample(KEY, graph, (), s).nodes,
        lambda s: sample_neighbors(KEY, graph, s, (2,)).nodes,
    ):
        expected = np.stack([draw(row) for row in seeds])
        for dtype in (np.int64, np.uint64, np.int16):
            np.testing.assert_array_equal(jax.vmap(draw)(seeds.astype(dtype)), expected)


def test_blocks_take_the_rows_of_their_sources(graph):
    batch = sample_neighbors(KEY, graph, np.arange(8), (3, 2))
    features = jnp.ones((300, 4))
    refused("Gather the rows of batch.nodes", ops.aggregate, batch.blocks[0], features)
    x = ops.gather(features, batch.nodes)
    refused("take the blocks in their order", ops.aggregate, batch.blocks[1], x)
    h = ops.aggregate(batch.blocks[0], x)
    assert ops.aggregate(batch.blocks[1], h).shape == (8, 4)


@pytest.mark.parametrize("name", ["id", "time", "type", "weight"])
def test_a_users_column_does_not_pass_for_the_graphs_own(name):
    mine = jgs.Graph([0, 2, 2], [1, 0], edge_columns={name: np.array([7, 5])})
    said = f"the edge column '{name}' * must be the graph's own; got one * Rename it"
    refused(said, Neighbors((2,), edges=(name,)).sample, KEY, mine, (), np.array([0]), None)


def test_edges_that_are_left_out_take_their_columns_along():
    columns = {"feat": np.arange(8, dtype=np.float32).reshape(4, 2)}
    own = {"edge_time": np.array([4, 5, 6, 7]), "edge_columns": columns}
    mine = jgs.Graph([0, 3, 4], [1, 0, 1, 0], **own)
    sampler = Neighbors((-1,), edges=("id", "time", "feat"))
    (block,) = sampler.sample(KEY, mine, (), np.array([0, 1]), None).blocks
    with exact_integers():
        left = with_edges(block, block.edge_id != 1, 4)
    assert np.asarray(left.indptr).tolist() == [0, 2, 3]
    assert np.asarray(left.edge_id)[:4].tolist() == [0, 2, 3, 4]
    assert np.asarray(left.edge_time)[:4].tolist() == [4, 6, 7, 0]
    feat = np.asarray(left.edge_columns["feat"])
    assert feat[:4].tolist() == [[0, 1], [4, 5], [6, 7], [0, 0]]


def test_a_loader_is_not_copied_and_takes_no_state_of_another_graph(graph, make_graph):
    loader = Loader(graph, np.arange(20), 5, (3,), key=KEY)
    for attempt in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="give it this one's state_dict"):
            attempt(loader)
    refused("got None", loader.load_state_dict, None)
    for other in (make_graph(300, 4000, 1), make_graph(310, 4000)):
        state = Loader(other, np.arange(20), 5, (3,), key=KEY).state_dict()
        refused("the same graph", loader.load_state_dict, state)


def test_looking_at_a_batch_and_a_loop_that_begins_where_nothing_is_left(graph, same_bits):
    """An epoch has one batch, and each is taken by `next(iter(loader))`."""
    loader = Loader(graph, np.arange(20), 20, (3,), key=KEY, prefetch=2)
    for epoch in range(3):
        looked = loader.peek()
        assert (loader.epoch, loader.step) == ((epoch - 1, 1) if epoch else (0, 0))
        same_bits(looked, next(iter(loader)))
        assert (loader.epoch, loader.step) == (epoch, 1)
    loader.close()


needs_kernels = pytest.mark.skipif(not kernels.available(), reason="no compiled kernels")

RUNTIME_ERRORS = (ValueError, jax.errors.JaxRuntimeError)
N = 500
SAMPLERS = [
    *(Neighbors(k, relabel_inputs=yes) for k in ((-1,), (1, 2)) for yes in (True, False)),
    *(Frontier(100, 400), Walk(9), Node2Vec(9, 0.1, 0.5)),
]


def damaged(graph):
    """With rows that end before they begin or beyond the edges, and sources out of range."""
    indptr, indices = np.asarray(graph.indptr), np.asarray(graph.indices)
    for inner in (indptr[-2:0:-1], 7000, -9, 2**40):
        wrong = indptr.copy()
        wrong[1:-1] = inner
        yield wrong, indices
    yield from ((indptr, indices + N - 2), (indptr, indices - N + 1))


@needs_kernels
@pytest.mark.parametrize("sampler", SAMPLERS, ids=repr)
def test_a_damaged_graph_is_refused(sampler, make_graph):
    graph = make_graph(N, 6000).sorted().unweighted()
    state, seeds = sampler.init(graph), np.arange(N, dtype=np.int32)
    room = () if isinstance(sampler, Walk | Node2Vec) else (None,)
    draw = jax.jit(lambda graph: sampler.sample(KEY, graph, state, seeds, *room))
    for arrays in damaged(graph):
        wrong = Graph._unchecked(*map(as_device, arrays))
        with pytest.raises(RUNTIME_ERRORS, match=r"damaged|arrays must be valid"):
            jax.block_until_ready(draw(wrong))


@needs_kernels
def test_a_damaged_edge_that_is_excluded_is_found():
    """LABOR's importances are computed of whole rows, holes too."""
    indices = np.zeros(64, np.int32)
    indices[10] = -(2**31)
    wrong = Graph._unchecked(as_device(np.array([0, 64, 64, 64])), as_device(indices))
    seeds = Seeds([0], excluded=[10, 64])
    with pytest.raises(RUNTIME_ERRORS, match="must be valid"):
        Labor((4,), importance=1).sample(KEY, wrong, (), seeds, Capacity((64,), (3,)))


NUM = 30


def aligned(values, dtype=np.int32):
    """The values in a buffer that JAX can use without a copy."""
    values = np.asarray(values, dtype)
    array = aligned_empty(values.size, dtype).reshape(values.shape)
    array[...] = values
    return array


@pytest.fixture(scope="module")
def small(make_graph):
    return make_graph(NUM, 200)


HELD = [Neighbors((2,)), Labor((2,)), PinSage((2,), 2, 2), FastGCN((4,)), Subgraph(9)]
HELD += [Shadow((2,)), Seal((2,)), Walk(2)]


@pytest.mark.parametrize("sampler", HELD, ids=lambda sampler: type(sampler).__name__)
def test_a_batch_keeps_its_seeds(sampler, small):
    """int64 seeds are copied anyway, since JAX has int32."""
    given = np.arange(16).reshape((8, 2) if isinstance(sampler, Seal) else 16)
    buffer = aligned(given)
    room = () if isinstance(sampler, Walk) else (None,)
    drawn = sampler.sample(KEY, small, sampler.init(small), buffer, *room)
    roots = drawn.nodes[:, 0] if isinstance(sampler, Walk) else drawn.seeds
    buffer[...] = 7
    np.testing.assert_array_equal(roots, given)


def test_a_raw_key_and_ids_are_read_before_the_call_returns(small):
    key, ids = aligned([3, 4], np.uint32), aligned(np.arange(NUM))
    sampler, rows = Neighbors((2,)), ops.gather(jax.numpy.eye(NUM), ids)
    batch = sampler.sample(key, small, (), ids, None)
    key[...], ids[...] = 0, 0
    np.testing.assert_array_equal(rows, np.eye(NUM))
    again = sampler.sample(np.array([3, 4], np.uint32), small, (), np.arange(NUM), None)
    np.testing.assert_array_equal(batch.nodes, again.nodes)


def test_a_data_set_has_labels_splits_and_names_of_its_own(small):
    labels, names = aligned(np.arange(NUM) % 3), aligned(np.arange(NUM), np.int64)
    train, val = aligned([1, 2, 3]), aligned(np.arange(NUM) == 5, bool)
    of = (small, np.ones((NUM, 2), np.float32), labels, {"train": train, "val": val})
    data = Dataset.from_arrays(*of, node_ids=NodeIds(names))
    labels[...], names[...], train[...], val[...] = 0, 0, 0, False
    np.testing.assert_array_equal(data.labels, np.arange(NUM) % 3)
    np.testing.assert_array_equal(data.node_ids.values, np.arange(NUM))
    assert (data.train_idx.tolist(), data.val_idx.tolist()) == ([1, 2, 3], [5])


def test_large_arrays_are_read_in_place_and_only_read(small):
    features = aligned(np.ones((NUM, 4)), np.float32)
    data = Dataset.from_arrays(small, features, np.zeros(NUM, int), {"train": [0]})
    with_columns = small.with_node_columns(features=features)
    for array in (data.features, with_columns.node_columns["features"]):
        assert np.shares_memory(array, features)
        assert not np.asarray(array).flags.writeable
    assert features.flags.writeable
