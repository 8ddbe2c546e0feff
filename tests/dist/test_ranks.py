"""`rank_loader`: what it plans, compiles and draws again, and what ranks put together."""

import functools

import jax
import numpy as np
import pytest
import scipy.sparse
from orbax.checkpoint.experimental import v1 as ocp
from refusals import refused
from small_ranks import make_parts, ranks_of, write_graph

from jgs import Graph, InputError
from jgs.dist import RankParts, open_parts, rank_loader
from jgs.dist.batches.source import HybridSampler
from jgs.dist.communicators.collect import all_features
from jgs.dist.communicators.comm import Alone
from jgs.dist.communicators.mesh import Mesh
from jgs.dist.rows.exchange import FeatureExchange
from jgs.dist.rows.split_table import SplitTable
from jgs.graph import SparseFeatures
from jgs.sampling import Labor, Ladies, Links, Loader, Neighbors, Saint, Thanos, grain_iterator
from jgs.train.config import Config
from jgs.train.loop.model import make_model
from jgs.train.loop.progress import Meter
from jgs.train.tasks.task import open_job

N = 3000


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    """Two random parts of a graph; with a `skew`, nodes of low ids have most out-edges."""

    @functools.cache
    def make(num_edges, skew=1):
        ends = np.random.default_rng(0).random((2, num_edges)) ** [[skew], [1]] * N
        graph = Graph.from_edges(*ends.astype(int), num_nodes=N)
        return open_parts(
            write_graph(tmp_path_factory.mktemp("ranks") / "parts", graph, 8, 2, 30)
        )

    return make


def loader(comm, parts, batch_size=10, sampler=(3, 3), **options):
    ranks = RankParts(comm, parts)
    return rank_loader(comm, ranks, batch_size, sampler, key=jax.random.key(3), **options)


def test_devices_share_the_batch_of_a_rank(parts):
    """With by-node draws their batches are together the rank's, and each has its rows."""
    made, devices = parts(20_000), jax.devices()[1:4]
    there = Mesh(devices[:2]).sharding
    with loader(Alone(), made) as host:
        whole = list(host)
    for options in ({"mode": "vanilla"}, {"device": devices[2]}):
        options = {"device": there} | options
        with loader(Alone(), made, prefetch=2, **options) as batches:
            assert len(batches) == len(whole)
            assert batches.destination == options["device"]
            for (batch, x), (own, rows) in zip(batches, whole, strict=True):
                if options["device"] is not there:
                    assert x.devices() == {devices[2]}
                    np.testing.assert_array_equal(batch.nodes, own.nodes)
                    continue
                assert x.sharding == batch.nodes.sharding == there
                assert x.shape[:2] == batch.nodes.shape
                seeds = np.concatenate([np.asarray(one) for one in batch.seeds])
                np.testing.assert_array_equal(seeds, own.seeds)
                known = dict(zip(np.asarray(own.nodes).tolist(), np.asarray(rows), strict=True))
                drawn = set()
                for nodes, of_device in zip(batch.nodes, np.asarray(x), strict=True):
                    for node, row in zip(np.asarray(nodes).tolist(), of_device, strict=True):
                        np.testing.assert_array_equal(row, known.get(node, row * 0))
                        drawn.add(node)
                assert drawn - {N} == set(known) - {N}
    # Others draw another batch on each, and say so in their state.
    ladies = Ladies((40, 40))
    with loader(Alone(), made, 10, ladies, device=there) as batches:
        batch, _ = next(iter(batches))
        assert not np.array_equal(*np.asarray(batch.nodes))
        with (
            loader(Alone(), made, 10, ladies) as one,
            pytest.raises(InputError, match="as many ranks and devices"),
        ):
            one.load_state_dict(batches.state_dict())


def test_a_planned_cache_compiles_few_programs(parts, noted):
    """One program for a step, in the first epoch. Two fill: for all rows, and for a few."""
    steps, fills = noted(FeatureExchange, "_one_round"), noted(SplitTable, "_raw_rows")
    comm = ranks_of(2)
    with loader(comm, parts(20000), cache="planned", cache_memory=1 << 12) as batches:
        for epoch in range(4):
            assert sum(1 for _ in batches) == 5
            assert len(steps) == 1, epoch
            assert len(fills) <= min(1 + epoch, 2), epoch


def test_a_trial_cache_has_what_batches_read_most(parts):
    """It has a batch's size, is filled at the start, and changes no row."""
    comm, skewed = ranks_of(2), parts(20000, skew=6)
    counts, sizes, rows, sent = np.zeros((2, N), int), [0], [], []
    for cache in ("none", "trial"):
        with loader(comm, skewed, cache=cache) as batches:
            exchange = batches.source._exchange
            filled, before = exchange.store, batches.source.counters.bytes
            for epoch in range(2):
                for batch, x in batches:
                    rows.append(jax.device_get((batch.nodes, x)))
                    if epoch == 1 and cache == "none":  # the trials are epoch 1's batches
                        for rank, nodes in enumerate(rows[-1][0]):
                            real = nodes[nodes < N]
                            other = np.unique(real[skewed.owner(real) != rank])
                            counts[rank, other] += 1
                            sizes.append(other.size)
            assert exchange.store is filled
            sent.append(batches.source.counters.bytes - before)
    half = len(rows) // 2
    jax.tree.map(np.testing.assert_array_equal, rows[:half], rows[half:])
    slots = np.asarray(filled.cache_slot)
    assert max(sizes) <= filled.cached.shape[1] <= max(sizes) * 9 / 8 + 64
    for count, slot in zip(counts, slots.reshape(2, N), strict=True):
        assert 0 < (slot >= 0).sum() <= max(sizes)
        assert count[slot >= 0].min() >= count[slot < 0].max()
    assert sent[1] < 0.6 * sent[0]


def test_a_graph_without_edges(parts):
    comm = ranks_of(2)
    with loader(comm, parts(0), mode="vanilla", cache="planned") as batches:
        for batch, x in batches:
            for each, rows in zip(comm.local(batch), comm.local(x), strict=True):
                assert each.blocks[0].num_edges == 0
                assert np.any(rows[: each.blocks[0].num_sources])


def test_states_of_other_orders_and_draws_are_refused(parts):
    """Where draws belong to no node, the number of ranks must be the same."""
    parts, sampler = parts(20000), Labor((3, 3), importance=1)
    two = loader(ranks_of(2), parts, sampler=sampler).state_dict()
    with loader(Alone(), parts, 20, sampler) as one:
        state = one.state_dict()
        assert state.keys() == two.keys()
        refused("unless that is by-node, as many ranks", one.load_state_dict, two)
    other = loader(Alone(), parts, 20, sampler, shuffle=False)
    with other, pytest.raises(InputError, match="digest"):
        other.load_state_dict(state)


def test_orbax_restores_on_another_number_of_ranks(parts, tmp_path):
    """The seeds left to two ranks are those on which one rank then trains, and back."""
    parts, two = parts(20000), ranks_of(2)

    def rest(comm, iterator):
        batches = [comm.local(batch) for batch, _ in iterator]
        return [{int(v) for one in step for v in one.seeds if v < N} for step in batches]

    def iterator(comm, batch_size):
        return grain_iterator(loader(comm, parts, batch_size), num_epochs=2)

    first = iterator(two, 10)
    for _ in range(3):
        next(first)
    ocp.save_checkpointables(tmp_path / "two", {"dataset": first})
    expected, one = rest(two, first), iterator(Alone(), 20)
    ocp.load_checkpointables(tmp_path / "two", {"dataset": one})
    ocp.save_checkpointables(tmp_path / "one", {"dataset": one})
    assert rest(Alone(), one) == expected
    assert len(expected) == 7
    again = iterator(two, 10)
    ocp.load_checkpointables(tmp_path / "one", {"dataset": again})
    assert rest(two, again) == expected


def test_ranks_draw_subgraphs_of_their_own_whose_seeds_are_of_all_parts(parts):
    """Batches come with the rows of their nodes. A loader resumes from another's state."""
    parts, sampler = parts(20000), Saint("degree", 400, norm_error=0.5)
    every = np.concatenate([parts.part(i).train_idx for i in range(2)])
    features = np.concatenate([np.asarray(parts.part(i).features) for i in range(2)])
    comm, steps = ranks_of(2), []
    with loader(comm, parts, sampler=sampler) as batches:
        assert len(batches) == 5
        for batch, x in batches:
            if not steps:
                state = batches.state_dict()
            steps.append(comm.local(batch))
            for one, rows in zip(steps[-1], comm.local(x), strict=True):
                nodes = np.asarray(one.nodes)
                seeds = np.where(np.isin(nodes, every), nodes, N)
                np.testing.assert_array_equal(one.seeds, seeds)
                assert (seeds < N).sum() > 2
                np.testing.assert_array_equal(
                    np.asarray(rows)[nodes < N], features[nodes[nodes < N]]
                )
    drawn = {tuple(np.asarray(one.nodes).tolist()) for step in steps for one in step}
    assert len(drawn) == 10
    with loader(comm, parts, sampler=sampler) as again:
        again.load_state_dict(state)
        rest = [comm.local(batch) for batch, _ in again]
    for one, other in zip(steps[1:], rest, strict=True):
        jax.tree.map(np.testing.assert_array_equal, one, other)


# It reads degrees, which loaders compute.
links = Links(2, "degree", filtered=True, tries=2, copies=8)


def test_items_of_samplers_that_draw_their_seeds(parts):
    whole, ids, saint = parts(20000), np.arange(100), Saint("node", 50)
    one = Loader(whole.graph, ids, 10, saint, key=jax.random.key(3))
    of_ranks = [batch.seeds for batch, _ in loader(Alone(), whole, 10, saint, items=ids)]
    np.testing.assert_array_equal([batch.seeds for batch in one], of_ranks)


DEVICES = {"device": Mesh(jax.devices()[:4]).sharding}
REFUSED = [
    (2, {"before": links}, "must be given the items"),
    (2, {"items": np.arange(50), "before": links, "sampler": Saint("node", 9)}, "no stage"),
    (2, {"states": {Neighbors((4,)): ()}}, "states must be by sampler"),
    (2, DEVICES, "where a process is one rank"),
    (1, DEVICES | {"sampler": Thanos((3, 3))}, "the sampler does not learn"),
    (1, DEVICES | {"batch_size": 6}, "must be a multiple of 4, the number of devices"),
]


@pytest.mark.parametrize(("size", "options", "said"), REFUSED)
def test_what_is_refused(parts, size, options, said):
    refused(said, loader, ranks_of(size), parts(20000), **options)


@pytest.fixture(scope="module")
def two_parts(tmp_path_factory):
    return open_parts(make_parts(tmp_path_factory.mktemp("parts") / "parts", num_parts=2))


@pytest.mark.parametrize(("size", "mode"), [(1, "hybrid"), (2, "hybrid"), (2, "vanilla")])
def test_batches_have_the_degrees_in_the_whole_graph(two_parts, size, mode):
    whole, comm = np.diff(np.asarray(two_parts.graph.indptr)), ranks_of(size)
    shape = {"partition": str(two_parts.folder), "mode": mode, "model": "gcn", "hidden": 4}
    shape |= {"batch_size": 6, "fanouts": (3, 2), "ranks": size, "prefetch": 0}
    job = open_job(Config(**shape), comm)
    model = make_model(
        job.config, job.data.num_features, job.data.num_classes, False, jax.random.key(0)
    )
    job.start(model, jax.random.key(1), None)
    batches = job.batches(Meter())
    batch, _ = next(batches)
    for own in comm.local(batch):
        nodes = np.asarray(own.nodes)
        real = nodes < len(whole)
        np.testing.assert_array_equal(own.degrees, np.where(real, np.r_[whole, 0][nodes], 0))
    batches.close()
    job.close()


def test_dense_and_sparse_features_of_two_ranks_and_of_one():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(9, 4)).astype(np.float32) * (rng.random((9, 4)) < 0.5)
    rows[6:] = 0
    sparse = [
        SparseFeatures.from_scipy(scipy.sparse.csr_array(p)) for p in (rows[:5], rows[5:])
    ]
    whole = SparseFeatures.from_scipy(scipy.sparse.csr_array(rows))
    for comm, dense, of_ranks in (
        (ranks_of(2), [[rows[:3], rows[3:5]], [rows[5:]]], sparse),
        (Alone(), [[rows[:5], rows[5:]]], [whole]),
    ):
        np.testing.assert_array_equal(all_features(comm, dense), rows)
        found = all_features(comm, of_ranks)
        assert (found.shape, found.max_row) == (whole.shape, whole.max_row)
        for mine, true in zip(jax.tree.leaves(found), jax.tree.leaves(whole), strict=True):
            assert mine.dtype == true.dtype
            np.testing.assert_array_equal(mine, true)


def test_one_rank_plans_no_exchange(parts, noted):
    draws = noted(HybridSampler, "__call__")
    with loader(Alone(), parts(20000), 20, cache="planned") as batches:
        num = sum(1 for _ in batches)
    assert len(draws) == num + batches.redraws == 5
