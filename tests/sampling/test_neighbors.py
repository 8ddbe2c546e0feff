"""`sample_neighbors`: the format of what it returns, its edge cases, and its errors."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jgs
from jgs import Graph, InputError
from jgs.sampling import Capacity, plan_capacity, sample_neighbors

BOTH = pytest.mark.parametrize("name", ["plain", "kernel"])
KEY = jax.random.key(0)
RUNTIME_ERRORS = (ValueError, jax.errors.JaxRuntimeError)  # depends on JAX's version


def check_format(graph: Graph, batch: jgs.MiniBatch, fanouts: tuple[int, ...]) -> None:
    """Everything the docstrings of `Block` and `MiniBatch` promise, for distinct seeds."""
    nodes = np.asarray(batch.nodes)
    indptr, indices = np.asarray(graph.indptr), np.asarray(graph.indices)
    num_targets = int((np.asarray(batch.seeds) < graph.num_nodes).sum())
    for block, k in zip(batch.blocks[::-1], fanouts, strict=True):
        ptr, num_edges = np.asarray(block.indptr), int(block.num_edges)
        local, edge = np.asarray(block.indices), np.asarray(block.edge_id)
        assert int(block.num_targets) == num_targets
        assert ptr[0] == 0
        assert (ptr[num_targets:] == num_edges).all()
        degree = np.diff(indptr)[nodes[:num_targets]]
        expected = degree if k == -1 else np.minimum(degree, k)
        np.testing.assert_array_equal(np.diff(ptr)[:num_targets], expected)
        num_sources = int(block.num_sources)
        assert (local[:num_edges] < num_sources).all()
        assert (edge[num_edges:] == graph.num_edges).all()
        row = np.repeat(nodes[:num_targets], np.diff(ptr)[:num_targets])
        assert (indptr[row] <= edge[:num_edges]).all()
        assert (edge[:num_edges] < indptr[row + 1]).all()
        assert np.unique(edge[:num_edges]).size == num_edges  # none twice
        np.testing.assert_array_equal(nodes[local[:num_edges]], indices[edge[:num_edges]])
        new = local[:num_edges][local[:num_edges] >= num_targets]
        _, first = np.unique(new, return_index=True)
        # New nodes are numbered in order of first appearance.
        assert (np.diff(new[np.sort(first)]) == 1).all()
        assert new.size == 0 or (new[0] == num_targets and new.max() == num_sources - 1)
        num_targets = num_sources
    assert np.unique(nodes[:num_targets]).size == num_targets
    assert (nodes[num_targets:] == graph.num_nodes).all()
    for block, after in itertools.pairwise(batch.blocks):
        assert int(block.num_targets) == int(after.num_sources)


@BOTH
@pytest.mark.parametrize("fanouts", [(3,), (2, 4), (-1, 2), (2, -1, 1)], ids=str)
def test_format(name, fanouts, sample_with, make_graph):
    graph = make_graph(300, 2000)
    seeds = np.random.default_rng(0).permutation(301)[:20]
    seeds = np.sort(seeds)  # the padding, if any, comes last
    batch = sample_with(name, KEY, graph, seeds, fanouts, return_edge_ids=True)
    assert not batch.overflow
    assert len(batch.blocks) == len(fanouts)
    check_format(graph, batch, fanouts)
    capacities = [b.target_capacity for b in batch.blocks] + [0]
    for block, source_capacity in zip(
        batch.blocks, [batch.nodes.size, *capacities], strict=False
    ):
        assert (np.asarray(block.indices)[int(block.num_edges) :] == source_capacity).all()


@BOTH
def test_all_neighbours_of_all_nodes_is_the_graph(name, sample_with, make_graph):
    graph = make_graph(300, 2000)
    nodes = np.arange(300)
    batch = sample_with(
        name, KEY, graph, nodes, (-1,), return_edge_ids=True, return_edge_weights=True
    )
    (block,) = batch.blocks
    np.testing.assert_array_equal(block.indptr, graph.indptr)
    np.testing.assert_array_equal(block.indices, graph.indices)
    np.testing.assert_array_equal(block.edge_id, np.arange(2000))
    np.testing.assert_array_equal(block.edge_weight, graph.edge_weight)
    np.testing.assert_array_equal(batch.nodes[:300], nodes)
    assert int(block.num_sources) == 300


@BOTH
def test_repeated_and_padded_seeds(name, sample_with, make_graph):
    graph = make_graph(30, 200)
    batch = sample_with(name, KEY, graph, np.array([4, 30, 4, 2, 30]), (3, 2))
    last = batch.blocks[-1]
    ptr, local = np.asarray(last.indptr), np.asarray(last.indices)
    assert int(last.num_targets) == 4  # targets end with the last seed that is a node
    assert batch.nodes[:4].tolist() == [4, 30, 4, 2]
    assert batch.seed_mask.tolist() == [True, False, True, True, False]
    np.testing.assert_array_equal(local[ptr[0] : ptr[1]], local[ptr[2] : ptr[3]])
    assert ptr[1] == ptr[2]
    for block in batch.blocks:
        edges = np.asarray(block.indices)[: int(block.num_edges)]
        assert not np.isin(edges, [1, 2]).any()  # edges name the first of repeated seeds


@BOTH
def test_a_batch_of_padding_is_empty(name, sample_with, make_graph):
    batch = sample_with(name, KEY, make_graph(30, 200), np.array([30, 30]), (3, -1))
    assert [int(b.num_edges) for b in batch.blocks] == [0, 0]
    assert (np.asarray(batch.nodes) == 30).all()
    assert not batch.seed_mask.any()


@BOTH
@pytest.mark.parametrize(
    "capacity",
    [Capacity((5, 99), (99, 99)), Capacity((99, 5), (99, 99)), Capacity((99, 99), (8, 99)),
     Capacity((99, 99), (40, 41))],
    ids=["edges 0", "edges 1", "sources 0", "sources 1"],
)  # fmt: skip
def test_overflow_is_flagged_and_empty(name, capacity, sample_with, make_graph):
    graph, seeds = make_graph(300, 4000), np.arange(6)
    options = {"return_edge_ids": True, "return_edge_weights": True}
    batch = sample_with(name, KEY, graph, seeds, (4, 3), capacity, **options)
    assert batch.overflow
    assert batch.seed_mask.all()  # so that a loss over the seeds is NaN, not 0
    assert np.isnan(batch.of_seeds(np.zeros((6, 2)))).all()
    for block, sources in zip(
        batch.blocks, (capacity.sources[1], capacity.sources[0]), strict=True
    ):
        assert (int(block.num_targets), int(block.num_sources), int(block.num_edges)) == (
            0,
            0,
            0,
        )
        assert not np.asarray(block.indptr).any()
        assert (np.asarray(block.indices) == sources).all()
        assert (np.asarray(block.edge_id) == 4000).all()
        assert not np.asarray(block.edge_weight).any()
    assert (np.asarray(batch.nodes) == 300).all()


def test_exact_capacity_does_not_overflow(sample_with, make_graph):
    graph, seeds = make_graph(300, 4000), np.arange(6)
    roomy = sample_with("kernel", KEY, graph, seeds, (4, 3))
    blocks = roomy.blocks[::-1]
    exact = Capacity(
        *(tuple(int(getattr(b, n)) for b in blocks) for n in ("num_edges", "num_sources"))
    )
    for name in ("plain", "kernel, 1 thread", "kernel, 4 threads"):
        assert not sample_with(name, KEY, graph, seeds, (4, 3), exact).overflow


@BOTH
def test_offsets_beyond_32_bits(name, sample_with, tmp_path):
    """2**31 + 4 edges in a sparse file: only the last four are ever written or read."""
    hub, total = 2**30, 2**31 + 4
    indices = np.lib.format.open_memmap(tmp_path / "indices.npy", "w+", np.int32, (total,))
    indices[-4:] = [2, 0, 1, 2]
    indices.flush()
    indptr = np.array([0, hub, 2 * hub, total])
    as_device = jgs.graph.as_device
    graph = Graph._unchecked(
        as_device(indptr), as_device(np.load(tmp_path / "indices.npy", mmap_mode="r"))
    )
    if graph.indices.platform() != "cpu":
        pytest.skip("needs 8 GiB of device memory")
    options = {"return_edge_ids": True}
    for k in (-1, 3, 4):
        roomy = Capacity((8,), (8,))
        batch = sample_with(name, KEY, graph, np.array([2]), (k,), roomy, **options)
        (block,) = batch.blocks
        count = 3 if k == 3 else 4
        edges = np.asarray(block.edge_id)[:count]
        assert edges.dtype == np.int64
        assert int(block.num_edges) == count
        assert set(edges.tolist()) <= set(range(total - 4, total))
        drawn = np.asarray(batch.nodes)[np.asarray(block.indices)[:count]]
        np.testing.assert_array_equal(drawn, np.array([2, 0, 1, 2])[edges - (total - 4)])


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"seeds": np.array([0, 31])}, "[0, 30), or 30 for padding; got 31 at position 1"),
        ({"seeds": np.array([-1, 0])}, "got -1 at position 0"),
        ({"seeds": np.array([0.5])}, "seeds must be a one-dimensional integer array"),
        ({"seeds": np.array([], int)}, "at least one; got int64[0]"),
        ({"seeds": np.array([[[1]]])}, "one-dimensional"),
        ({"fanouts": (3, 0)}, "fanouts must be static positive 32-bit ints, or -1"),
        ({"fanouts": (-2,)}, "got (-2,)"),
        ({"fanouts": ()}, "got ()"),
        ({"fanouts": 5}, "got 5"),
        ({"fanouts": (2.0,)}, "got (2.0,)"),
        ({"fanouts": (2**31,)}, "got (2147483648,)"),
        ({"key": 3}, "must be a JAX random key; got int 3. "),
        ({"key": jax.random.key(0, impl="rbg")}, "must be one Threefry key"),
        ({"key": jax.random.split(jax.random.key(0))}, "must be one Threefry key"),
        ({"graph": None}, "second argument must be a jgs.Graph; got NoneType"),
        ({"weighted": True}, "needs a graph with edge weights"),
        ({"return_edge_weights": True}, "needs a graph with edge weights"),
        ({"capacity": (1, 2)}, "the capacity must be edges and sources for 2 hops"),
        ({"capacity": Capacity((9,), (9,))}, "for 2 hops"),
        ({"capacity": ((float("inf"), 9), (9, 9))}, "for 2 hops"),
        ({"capacity": ((9.5, 9), (9, 9))}, "for 2 hops"),
        ({"capacity": Capacity((9, 9), (1, 9))}, "not decreasing from the 2 seeds on"),
        ({"capacity": Capacity((9, 2**31), (9, 2**31))}, "fewer than 2**31 edges"),
    ],
)  # fmt: skip
def test_bad_arguments_are_refused(change, says):
    good = {
        "key": KEY,
        "graph": Graph.from_edges([0, 1], [1, 2], 30),
        "seeds": np.array([1, 2]),
        "fanouts": (2, 2),
    }
    with pytest.raises(InputError) as error:
        sample_neighbors(**(good | change))
    assert says in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("bad", [-5, 31, 2**31 - 1])
def test_seeds_out_of_range_inside_jit_are_an_error(bad, sample_with, make_graph):
    graph = make_graph(30, 200)
    sample = jax.jit(lambda s: sample_with("kernel", KEY, graph, s, (2,)).nodes)
    assert sample(jnp.array([1, 2])).shape
    with pytest.raises(RUNTIME_ERRORS) as error:
        sample(jnp.array([1, bad])).block_until_ready()
    assert (
        f"seeds must be node ids in [0, 30), or 30 for padding; got {bad} at position 1"
        in str(error.value)
    )
    assert sample(jnp.array([1, 2])).shape  # and the process goes on


def test_seeds_out_of_range_on_other_devices_make_an_empty_batch(sample_with, make_graph):
    """The plain path cannot raise an error, but it never returns a wrong sample in silence."""
    graph = make_graph(30, 200)
    sample = jax.jit(lambda s: sample_with("plain", KEY, graph, s, (2, 2)))
    for bad in (-5, 31, 2**31 - 1):
        batch = sample(jnp.array([1, bad]))
        assert batch.overflow
        assert (np.asarray(batch.needed) == -1).all()
        assert not any(int(b.num_edges) for b in batch.blocks)
        assert np.isnan(batch.of_seeds(jnp.ones((2, 3)))).all()
    assert not sample(jnp.array([1, 30])).overflow


def test_traced_fanouts_are_refused_with_the_remedy(make_graph):
    with pytest.raises(InputError, match="close over it or make it static"):
        jax.jit(sample_neighbors)(KEY, make_graph(30, 200), np.arange(3), (2, 2))


@pytest.mark.parametrize(
    "arrays",
    [
        ([0, 5, 3, 6], [0] * 6),
        ([0, -1, 3, 6], [0] * 6),
        ([0, 2, 4, 900], [0] * 6),
        ([0, 2, 4, 2**40], [0] * 6),
        ([0, 2, 4, 6], [0, 1, 2, 7, 0, -3]),
    ],
    ids=["decreasing", "negative", "beyond", "far beyond", "indices"],
)
@pytest.mark.parametrize("relabel_inputs", [True, False])
def test_damaged_graphs_do_not_crash_the_kernel(relabel_inputs, arrays, sample_with):
    """A memory-mapped file may have been damaged since it was checked."""
    as_device = jgs.graph.as_device
    graph = Graph._unchecked(
        as_device(np.array(arrays[0])), as_device(np.array(arrays[1], np.int32))
    )
    roomy = {1: Capacity((99,), (99,)), 2: Capacity((99, 99), (99, 99))}

    def sample(i, fanouts):
        key, capacity = jax.random.key(i), roomy[len(fanouts)]
        options = {"relabel_inputs": relabel_inputs}
        batch = sample_with("kernel", key, graph, np.arange(3), fanouts, capacity, **options)
        return int(batch.nodes[0])

    for fanouts in ((-1,), (1, 2)):
        with pytest.raises(RUNTIME_ERRORS, match="the graph's arrays must be valid"):
            [sample(i, fanouts) for i in range(20)]  # at least one key reaches the damage


def test_the_graph_is_an_argument_not_a_constant(make_graph):
    graph = make_graph(300, 4000)
    lowered = jax.jit(lambda k, g, s: sample_neighbors(k, g, s, (2,))).lower(
        KEY, graph, jnp.arange(3)
    )
    assert len(lowered.as_text()) < 60_000  # a program with 4,000 constants would be longer
    assert "4000xi32" in lowered.as_text().split("{", 2)[2][:2000]


def test_a_notebooks_jit(make_graph):
    """The README's way of calling it: one trace for many keys and seeds."""
    traces = []

    @jax.jit
    def sample(key, graph, seeds):
        traces.append(None)
        return sample_neighbors(key, graph, seeds, (3, 2))

    graph = make_graph(30, 200)
    for i in range(5):
        batch = sample(jax.random.key(i), graph, jnp.arange(4) + i)
    assert len(traces) == 1
    assert batch.blocks[0].indptr.dtype == jnp.int32


def test_wide_seeds_do_not_wrap(sample_with, make_graph):
    graph = make_graph(30, 200)
    with jax.enable_x64(True):
        sample = jax.jit(lambda s: sample_with("kernel", KEY, graph, s, (2,)).nodes)
        plain = jax.jit(lambda s: sample_with("plain", KEY, graph, s, (2,)).overflow)
        assert sample(jnp.array([1, 2])).shape
        for bad in (2**32 + 1, -(2**32) + 1):
            with pytest.raises(RUNTIME_ERRORS, match="seeds must be node ids"):
                sample(jnp.array([1, bad])).block_until_ready()
            assert plain(jnp.array([1, bad]))


@BOTH
def test_a_huge_fanout_takes_all(name, sample_with, same_bits, make_graph):
    """It takes memory and time for the neighbours that exist, not for the fanout's size."""
    graph, roomy = make_graph(300, 4000), Capacity((4000,), (400,))
    huge = sample_with(name, KEY, graph, np.arange(9), (2**31 - 1,), roomy)
    same_bits(huge, sample_with(name, KEY, graph, np.arange(9), (-1,), roomy))
    planned = plan_capacity(graph, 50, (10**6, 10**6))
    assert planned.edges[-1] <= 4000


@pytest.mark.parametrize("field", ["edge_weight", "edge_weight_prefix"])
@pytest.mark.parametrize("change", [lambda a: a[:1], lambda a: a.astype(np.int32)])
def test_graphs_with_other_weights_are_refused(field, change, make_graph):
    graph = make_graph(30, 200)
    fields = [graph.indptr, graph.indices, graph.edge_weight, graph.edge_weight_prefix]
    at = 2 if field == "edge_weight" else 3
    fields[at] = jgs.graph.as_device(change(np.asarray(fields[at])))
    with pytest.raises(InputError, match=f"the graph's {field} must be"):
        sample_neighbors(KEY, Graph._unchecked(*fields), np.arange(3), (2,), weighted=True)
