"""`relabel_inputs=False`: inputs are named by node id; the rest of the sample is the same."""

import jax
import numpy as np
import pytest

import jgs
from jgs.sampling import Capacity, Loader, sample_neighbors

KEY = jax.random.key(4)
KERNELS = ("kernel, 1 thread", "kernel, 2 threads", "kernel, 4 threads")
BOTH = pytest.mark.parametrize("name", ["plain", "kernel"])
MODES = [
    {"replace": replace, "weighted": weighted}
    for replace in (False, True)
    for weighted in (False, True)
]
EXTRAS = {"return_edge_ids": True, "return_edge_weights": True}


def assert_direct(direct: jgs.MiniBatch, full: jgs.MiniBatch) -> None:
    """`direct` equals `full`, bit for bit, with its inputs named by node id."""
    padding = full.num_nodes
    inputs, relabelled = direct.blocks[0], full.blocks[0]
    num_edges, num_targets = int(relabelled.num_edges), int(relabelled.num_targets)
    for name in ("indptr", "num_targets", "num_edges", "edge_id", "edge_weight"):
        expected = getattr(relabelled, name)
        assert (getattr(inputs, name) is None) == (expected is None)
        if expected is not None:
            np.testing.assert_array_equal(getattr(inputs, name), expected, err_msg=name)
    local, ids = np.asarray(relabelled.indices), np.asarray(inputs.indices)
    assert (ids.dtype, ids.shape) == (local.dtype, local.shape)
    nodes = np.asarray(full.nodes)
    np.testing.assert_array_equal(ids[:num_edges], nodes[local[:num_edges]])
    assert (ids[num_edges:] == padding).all()
    assert inputs.num_sources.dtype == np.int32
    assert int(inputs.num_sources) == (0 if full.overflow else padding)
    assert direct.nodes.shape == (inputs.target_capacity,)
    assert direct.nodes.dtype == np.int32
    np.testing.assert_array_equal(direct.nodes[:num_targets], nodes[:num_targets])
    assert (np.asarray(direct.nodes)[num_targets:] == padding).all()
    rest = [(batch.seeds, batch.blocks[1:], batch.overflow) for batch in (direct, full)]
    jax.tree.map(np.testing.assert_array_equal, *rest)
    for layer in range(len(full.blocks)):
        np.testing.assert_array_equal(direct.target_nodes(layer), full.target_nodes(layer))


@BOTH
@pytest.mark.parametrize("mode", MODES, ids=str)
@pytest.mark.parametrize("fanouts", [(3,), (2, 3, -1)], ids=str)
def test_only_the_names_of_the_inputs_differ(fanouts, mode, name, sample_with, make_graph):
    seeds = np.array([7, 300, 0, 7, 299, 150, 31, 8, 300])  # padding, and a repeated seed
    args = (KEY, make_graph(300, 4000), seeds, fanouts)
    capacity = Capacity((5000,) * len(fanouts), (3000,) * len(fanouts))
    full = sample_with(name, *args, capacity, **mode, **EXTRAS)
    assert not full.overflow
    direct = sample_with(name, *args, capacity, **mode, **EXTRAS, relabel_inputs=False)
    assert_direct(direct, full)


@pytest.mark.parametrize("name", KERNELS)
def test_at_parallel_sizes(name, sample_with, make_graph):
    seeds = np.random.default_rng(1).permutation(20_000)[:3000]
    args = (KEY, make_graph(20_000, 400_000), seeds, (4, 6))
    for mode in MODES[:2]:
        full = sample_with(name, *args, **mode)
        assert_direct(sample_with(name, *args, **mode, relabel_inputs=False), full)


@BOTH
@pytest.mark.parametrize("num_edges", [0, 1])
@pytest.mark.parametrize("fanouts", [(2,), (2, 2)], ids=str)
def test_tiny_graphs_and_batches_of_padding(fanouts, num_edges, name, sample_with):
    edges = np.zeros(num_edges, int)
    graph = jgs.Graph.from_edges(edges, edges, 2, np.ones(num_edges))
    for seeds in ([0, 1, 2, 2], [2, 2, 2, 2], [2, 1, 2, 2]):
        args = (KEY, graph, np.array(seeds), fanouts)
        for mode in (MODES[0], MODES[3]):
            full = sample_with(name, *args, **mode, **EXTRAS)
            direct = sample_with(name, *args, **mode, **EXTRAS, relabel_inputs=False)
            assert_direct(direct, full)


@BOTH
def test_the_last_hops_sources_need_no_room(name, sample_with, make_graph):
    graph, seeds = make_graph(300, 4000), np.arange(6)
    roomy = sample_with(name, KEY, graph, seeds, (4, 3))
    small = Capacity((99, 99), (int(roomy.blocks[1].num_sources),) * 2)
    assert sample_with(name, KEY, graph, seeds, (4, 3), small).overflow
    direct = sample_with(name, KEY, graph, seeds, (4, 3), small, relabel_inputs=False)
    assert not direct.overflow
    other = sample_with(
        name, KEY, graph, seeds, (4, 3), Capacity((99, 99), (small.sources[0], 9999))
    )
    assert_direct(direct, other)
    one_hop = sample_with(
        name, KEY, graph, seeds, (4,), Capacity((24,), (6,)), relabel_inputs=False
    )
    assert_direct(one_hop, sample_with(name, KEY, graph, seeds, (4,), Capacity((24,), (99,))))


@BOTH
@pytest.mark.parametrize(
    "capacity",
    [Capacity((5, 99), (99, 99)), Capacity((99, 5), (99, 99)), Capacity((99, 99), (8, 99))],
    ids=["edges 0", "edges 1", "sources 0"],
)
def test_overflow_is_flagged_and_empty(capacity, name, sample_with, make_graph):
    args = (KEY, make_graph(300, 4000), np.arange(6), (4, 3), capacity)
    full = sample_with(name, *args, **EXTRAS)
    direct = sample_with(name, *args, **EXTRAS, relabel_inputs=False)
    assert direct.overflow
    assert_direct(direct, full)
    assert (np.asarray(direct.nodes) == 300).all()


@BOTH
def test_vmap(name, sample_with, same_bits, make_graph):
    graph, keys = make_graph(300, 4000), jax.random.split(KEY, 3)
    seeds = np.random.default_rng(0).integers(0, 300, (3, 8)).astype(np.int32)

    def sample(key, seeds):
        return sample_with(name, key, graph, seeds, (3, 2), relabel_inputs=False)

    many = jax.vmap(sample)(keys, seeds)
    for i in range(3):
        same_bits(jax.tree.map(lambda x, i=i: x[i], many), sample(keys[i], seeds[i]))


def test_loader(make_graph):
    graph, seeds = make_graph(300, 4000), np.arange(100)
    options = {"key": KEY, "capacity": Capacity((60, 90), (70, 150))}
    loaders = [
        Loader(graph, seeds, 16, (3, 2), relabel_inputs=relabel, **options)
        for relabel in (True, False)
    ]
    for full, direct in zip(*loaders, strict=True):
        assert_direct(direct, full)
    # Either loader can resume the other's state.
    assert loaders[1].state_dict() == loaders[0].state_dict()


def test_a_loader_redraws(make_graph):
    graph, seeds = make_graph(300, 4000), np.arange(100)
    small = {"key": KEY, "capacity": Capacity((10, 10), (20, 25))}
    loader = Loader(graph, seeds, 16, (3, 2), relabel_inputs=False, **small)
    for step, batch in enumerate(loader):
        key = jax.random.fold_in(jax.random.fold_in(KEY, 0), 1 + step)
        full = sample_neighbors(key, graph, batch.seeds, (3, 2))
        num_edges = int(full.blocks[0].num_edges)
        np.testing.assert_array_equal(
            batch.blocks[0].indices[:num_edges],
            full.nodes[full.blocks[0].indices[:num_edges]],
        )
    assert loader.redraws >= 6
