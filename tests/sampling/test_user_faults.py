"""Faults that were found by using the samplers as a new user would, each with a test."""

import copy
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from refusals import refused

import jgs
from jgs import ops
from jgs.sampling import Loader, Neighbors, Walk, sample_neighbors
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
