"""Faults that were found by using the samplers as a new user would, each with a test."""

import copy
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import jgs
from jgs import InputError, ops
from jgs.models import GraphSAGE
from jgs.sampling import Capacity, Loader, Neighbors, Walk, plan_capacity, sample_neighbors
from jgs.sampling.edges.columns import with_edges
from jgs.settings import exact_integers

KEY = jax.random.key(0)


@pytest.fixture(scope="module")
def graph(make_graph):
    return make_graph(300, 4000)


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


@pytest.mark.parametrize("dtype", [np.int64, np.uint64, np.int16])
def test_vmap_over_numpys_seeds(graph, dtype):
    seeds = np.arange(12).reshape(3, 4)
    for draw in (
        lambda s: Walk(2).sample(KEY, graph, (), s).nodes,
        lambda s: sample_neighbors(KEY, graph, s, (2,)).nodes,
    ):
        expected = np.stack([draw(row) for row in seeds])
        np.testing.assert_array_equal(jax.vmap(draw)(seeds.astype(dtype)), expected)


def test_repeated_seeds_are_planned_for(make_graph):
    """Seeds are pairs of ends, as a user has them who predicts links by hand."""
    graph = make_graph(500, 8000)
    rng = np.random.default_rng(0)
    capacity = plan_capacity(graph, 3 * 256, (5, 5), distinct=False)
    distinct = plan_capacity(graph, 3 * 256, (5, 5))
    assert capacity.edges[0] > distinct.edges[0]
    for i in range(5):
        seeds = rng.integers(0, 500, 3 * 256)
        batch = sample_neighbors(jax.random.key(i), graph, seeds, (5, 5), capacity)
        assert not batch.overflow


def test_nobody_trains_on_an_overflow_unawares(graph):
    model = GraphSAGE(4, 8, 3, 2, dropout=0.0, rngs=nnx.Rngs(0))
    small = Capacity((4, 4), (8, 8))
    batch = sample_neighbors(KEY, graph, np.arange(8), (3, 2), small)
    assert batch.overflow
    out = model(batch, ops.gather(jnp.ones((300, 4)), batch.nodes))
    assert np.isnan(out).all()
    assert batch.seed_mask.all()  # so a loss over the seeds is NaN, not 0


def test_blocks_take_the_rows_of_their_sources(graph):
    batch = sample_neighbors(KEY, graph, np.arange(8), (3, 2))
    features = jnp.ones((300, 4))
    with pytest.raises(InputError, match=r"Gather the rows of batch\.nodes"):
        ops.aggregate(batch.blocks[0], features)
    x = ops.gather(features, batch.nodes)
    with pytest.raises(InputError, match="take the blocks in their order"):
        ops.aggregate(batch.blocks[1], x)
    h = ops.aggregate(batch.blocks[0], x)
    assert ops.aggregate(batch.blocks[1], h).shape == (8, 4)
    with pytest.raises(InputError, match="relabel_inputs=False"):
        jax.jit(ops.gather_aggregate)(features, batch.blocks[0])


@pytest.mark.filterwarnings("error")
def test_edge_features_line_up(graph):
    rng = np.random.default_rng(0)
    src, dst = rng.integers(0, 50, (2, 400))
    feat = rng.random((400, 3), np.float32)
    mine = jgs.Graph.from_edges(src, dst, 50, edge_columns={"feat": feat})
    batch = sample_neighbors(KEY, mine, np.arange(8), (3,), return_edge_ids=True)
    (block,) = batch.blocks
    rows = np.asarray(ops.gather(mine.edge_columns["feat"], block.edge_id))
    again = ops.gather(jnp.asarray(feat[np.asarray(mine.edge_order)]), block.edge_id)
    np.testing.assert_array_equal(rows, again)
    count, nodes = int(block.num_edges), np.asarray(batch.nodes)
    assert (rows[count:] == 0).all()  # padding
    source = nodes[np.asarray(block.indices)[:count]]
    target = np.repeat(np.arange(8), np.diff(np.asarray(block.indptr)))
    known = {(s, d): f for s, d, f in zip(src, dst, map(tuple, feat), strict=True)}
    for row, edge in zip(rows, zip(source, target, strict=True), strict=False):
        assert tuple(row) == known[edge] or list(zip(src, dst, strict=True)).count(edge) > 1


@pytest.mark.parametrize("name", ["id", "time", "type", "weight"])
def test_a_users_column_does_not_pass_for_the_graphs_own(name):
    mine = jgs.Graph([0, 2, 2], [1, 0], edge_columns={name: np.array([7, 5])})
    said = f"the edge column '{name}' .* must be the graph's own; got one .* Rename it"
    with pytest.raises(InputError, match=said):
        Neighbors((2,), edges=(name,)).sample(KEY, mine, (), np.array([0]), None)


def test_edges_that_are_left_out_take_their_columns_along():
    columns = {"feat": np.arange(8, dtype=np.float32).reshape(4, 2)}
    mine = jgs.Graph(
        [0, 3, 4], [1, 0, 1, 0], edge_time=np.array([4, 5, 6, 7]), edge_columns=columns
    )
    sampler = Neighbors((-1,), edges=("id", "time", "feat"))
    (block,) = sampler.sample(KEY, mine, (), np.array([0, 1]), None).blocks
    with exact_integers():
        left = with_edges(block, block.edge_id != 1, 4)
    assert np.asarray(left.indptr).tolist() == [0, 2, 3]
    assert np.asarray(left.edge_id)[:4].tolist() == [0, 2, 3, 4]
    assert np.asarray(left.edge_time)[:4].tolist() == [4, 6, 7, 0]
    feat = np.asarray(left.edge_columns["feat"])
    assert feat[:4].tolist() == [[0, 1], [4, 5], [6, 7], [0, 0]]


def test_a_loader_is_not_copied(graph):
    loader = Loader(graph, np.arange(20), 5, (3,), key=KEY)
    for attempt in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="give it this one's state_dict"):
            attempt(loader)


def test_states_that_are_none_or_of_another_graph(graph, make_graph):
    loader = Loader(graph, np.arange(20), 5, (3,), key=KEY)
    with pytest.raises(InputError, match="got None"):
        loader.load_state_dict(None)
    for other in (make_graph(300, 4000, 1), make_graph(310, 4000)):
        state = Loader(other, np.arange(20), 5, (3,), key=KEY).state_dict()
        with pytest.raises(InputError, match="the same graph"):
            loader.load_state_dict(state)


@pytest.mark.parametrize("prefetch", [0, 2])
def test_looking_at_a_batch_costs_nothing(prefetch, graph, same_bits):
    loader = Loader(graph, np.arange(20), 5, (3,), key=KEY, prefetch=prefetch)
    looked = loader.peek()
    assert (loader.epoch, loader.step) == (0, 0)
    first, *rest = loader
    same_bits(looked, first)
    assert len(rest) == 3
    looked = loader.peek()  # the first batch of the next epoch
    same_bits(looked, next(iter(loader)))
    loader.close()


def test_a_loop_that_begins_where_nothing_is_left(graph):
    """An epoch has one batch, and each is taken by `next(iter(loader))`."""
    loader = Loader(graph, np.arange(20), 20, (3,), key=KEY, prefetch=0)
    seen = []
    for epoch in range(3):
        batch = next(iter(loader))
        assert (loader.epoch, loader.step) == (epoch, 1)
        seen.append(np.asarray(batch.seeds).tolist())
    assert seen[0] != seen[1] != seen[2]
