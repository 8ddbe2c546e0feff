"""`sample_neighbors`: the format of what it returns, its edge cases, and its errors."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from refusals import refused

import jgs
from jgs import Graph, kernels
from jgs.graph import as_device
from jgs.sampling import Capacity, plan_capacity, sample_neighbors

KEY, KEYS = jax.random.key(0), jax.random.split(jax.random.key(8), 5)
TWO = np.zeros((2, 3), int)  # two batches of seeds
RUNTIME_ERRORS = (ValueError, jax.errors.JaxRuntimeError)  # depends on JAX's version


def check_format(graph: Graph, batch: jgs.MiniBatch, fanouts: tuple[int, ...]) -> None:
    """What `Block` and `MiniBatch` promise beside what `test_protocol.py` tests of all."""
    nodes, degrees = batch.nodes, np.asarray(graph.degrees())
    num_targets = int((batch.seeds < graph.num_nodes).sum())
    for block, k in zip(batch.blocks[::-1], fanouts, strict=True):
        num_edges, num_sources = int(block.num_edges), int(block.num_sources)
        assert int(block.num_targets) == num_targets
        degree = degrees[nodes[:num_targets]]
        expected = degree if k == -1 else np.minimum(degree, k)
        np.testing.assert_array_equal(np.diff(block.indptr)[:num_targets], expected)
        edge, local = block.edge_id[:num_edges], block.indices[:num_edges]
        assert np.unique(edge).size == num_edges  # none twice
        np.testing.assert_array_equal(block.edge_weight[:num_edges], graph.edge_weight[edge])
        # New nodes are numbered in order of first appearance.
        new, first = np.unique(local[local >= num_targets], return_index=True)
        assert (np.diff(first) > 0).all()
        assert new.tolist() == list(range(num_targets, num_sources))
        num_targets = num_sources
    assert np.unique(nodes[:num_targets]).size == num_targets


@pytest.fixture
def drawn(alike):
    """`sample_neighbors(key, graph, seeds, ...)`, which plain JAX and the kernel do alike."""

    def draw(key, graph, seeds, *args, **options):
        def sample(key, graph, seeds):
            return sample_neighbors(key, graph, seeds, *args, **options)

        with kernels.this_host_only():
            return alike(sample, key, graph, np.int32(seeds))

    return draw


@pytest.mark.parametrize("fanouts", [(3,), (-1, 2), (2, -1, 1)], ids=str)
def test_format(fanouts, drawn, make_graph):
    graph = make_graph(300, 2000)
    seeds = np.random.default_rng(0).permutation(301)[:20]
    seeds = np.sort(seeds)  # the padding, if any, comes last
    options = {"return_edge_ids": True, "return_edge_weights": True}
    batch = drawn(KEY, graph, seeds, fanouts, **options)
    assert not batch.overflow
    check_format(graph, batch, fanouts)


def test_repeated_and_padded_seeds(drawn, make_graph):
    """And a batch of padding alone, which is empty."""
    seeds = [[4, 30, 4, 2, 30], [30] * 5]
    both = drawn(jax.random.split(KEY), make_graph(30, 200), seeds, (3, 2))
    batch, empty = (jax.tree.map(lambda a, i=i: a[i], both) for i in (0, 1))
    last = batch.blocks[-1]
    ptr, local = last.indptr, last.indices
    assert int(last.num_targets) == 4  # targets end with the last seed that is a node
    assert batch.nodes[:4].tolist() == [4, 30, 4, 2]
    assert batch.seed_mask.tolist() == [True, False, True, True, False]
    np.testing.assert_array_equal(local[ptr[0] : ptr[1]], local[ptr[2] : ptr[3]])
    assert ptr[1] == ptr[2]
    for block in batch.blocks:
        edges = block.indices[: int(block.num_edges)]
        assert not np.isin(edges, [1, 2]).any()  # edges name the first of repeated seeds
    assert [int(b.num_edges) for b in empty.blocks] == [0, 0]
    assert (empty.nodes == 30).all()
    assert not empty.seed_mask.any()


def test_offsets_beyond_32_bits(alike, tmp_path):
    """2**31 + 4 edges in a sparse file: only the last four are ever written or read."""
    hub, total = 2**30, 2**31 + 4
    indices = np.lib.format.open_memmap(tmp_path / "indices.npy", "w+", np.int32, (total,))
    indices[-4:] = [2, 0, 1, 2]
    indices.flush()
    indptr = np.array([0, hub, 2 * hub, total])
    mapped = np.load(tmp_path / "indices.npy", mmap_mode="r")
    graph = Graph._unchecked(as_device(indptr), as_device(mapped))
    if graph.indices.platform() != "cpu":
        pytest.skip("needs 8 GiB of device memory")

    def sample(graph, seeds):
        options = {"capacity": Capacity((8,), (8,)), "return_edge_ids": True}
        return [sample_neighbors(KEY, graph, seeds, (k,), **options) for k in (-1, 3, 4)]

    for count, batch in zip((4, 3, 4), alike(sample, graph, np.int32([2])), strict=True):
        (block,) = batch.blocks
        edges = block.edge_id[:count]
        assert edges.dtype == np.int64
        assert int(block.num_edges) == count
        assert set(edges.tolist()) <= set(range(total - 4, total))
        expected = np.array([2, 0, 1, 2])[edges - (total - 4)]
        np.testing.assert_array_equal(batch.nodes[block.indices[:count]], expected)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"seeds": np.array([0, 31])}, "[0, 30), or 30 for padding; got 31 at position 1"),
        ({"seeds": np.array([0.5])}, "seeds must be integers [B]"),
        ({"seeds": np.array([], int)}, "at least one id; got int64[0]"),
        ({"fanouts": (3, 0)}, "fanouts must be static positive 32-bit ints, or -1"),
        ({"fanouts": ()}, "got ()"),
        ({"fanouts": (2**31,)}, "got (2147483648,)"),
        ({"key": 3}, "must be a JAX random key; got int 3. "),
        ({"key": jax.random.key(0, impl="rbg")}, "must be one Threefry key"),
        ({"key": KEYS[:2]}, "must be one Threefry key"),
        ({"key": KEYS[0], "seeds": TWO}, "must be 2 Threefry keys, one a batch"),
        ({"key": KEYS, "seeds": TWO}, "got threefry2x32[5]"),
        ({"key": jax.random.PRNGKey(0), "seeds": TWO}, "must be a JAX random key"),
        ({"key": KEYS[:0], "seeds": TWO[:0]}, "at least one"),
        ({"key": KEYS[:2], "seeds": TWO[:, None]}, "or [S, B], a batch a row"),
        ({"graph": None}, "second argument must be a jgs.Graph; got NoneType"),
        ({"weighted": True}, "needs a graph with edge weights"),
        ({"return_edge_weights": True}, "needs a graph with edge weights"),
        ({"capacity": (1, 2)}, "the capacity must be edges and sources for 2 hops"),
        ({"capacity": Capacity((9,), (9,))}, "for 2 hops"),
        ({"capacity": Capacity((9, 9), (1, 9))}, "not decreasing from the 2 seeds on"),
        ({"capacity": Capacity((9, 2**31), (9, 2**31))}, "fewer than 2**31 edges"),
    ],
)  # fmt: skip
def test_bad_arguments_are_refused(change, says):
    good = {"key": KEY, "graph": Graph.from_edges([0, 1], [1, 2], 30)}
    good |= {"seeds": np.array([1, 2]), "fanouts": (2, 2)}
    refused(says, sample_neighbors, **(good | change))


def test_seeds_out_of_range_inside_jit(implemented, make_graph):
    """The kernel raises an error; the plain form flags the batch. Wide seeds do not wrap."""
    graph, rule = make_graph(30, 200), "seeds must be node ids in .* at position 1"

    def sample(seeds):
        return sample_neighbors(KEY, graph, seeds, (2, 2))

    for kernel in {False, kernels.available()}:
        implemented(kernel)
        program = jax.jit(sample)
        with jax.enable_x64(True):
            for bad in (-5, 31, 2**31 - 1, 2**32 + 1, -(2**32) + 1):
                if kernel:
                    with pytest.raises(RUNTIME_ERRORS, match=rule):
                        jax.block_until_ready(program(jnp.array([1, bad])))
                else:
                    batch = program(jnp.array([1, bad]))
                    assert batch.overflow
                    assert (np.asarray(batch.needed) == -1).all()
                    assert not any(int(b.num_edges) for b in batch.blocks)
                    assert np.isnan(batch.of_seeds(jnp.ones((2, 3)))).all()
            assert not program(jnp.array([1, 30])).overflow  # and the process goes on


def test_traced_fanouts_are_refused_with_the_remedy(make_graph):
    asked = KEY, make_graph(30, 200), np.arange(3), (2, 2)
    refused("close over it or make it static", jax.jit(sample_neighbors), *asked)


def test_the_graph_is_an_argument_not_a_constant(make_graph):
    graph = make_graph(300, 4000)
    sample = jax.jit(partial(sample_neighbors, fanouts=(2,)))
    text = sample.lower(KEY, graph, jnp.arange(3)).as_text()
    assert len(text) < 60_000  # a program with 4,000 constants would be longer
    assert "4000xi32" in text.split("{", 2)[2][:2000]


def test_a_huge_fanout_takes_all(same_bits, drawn, make_graph):
    """It takes memory and time for the neighbours that exist, not for the fanout's size."""
    args, roomy = (KEY, make_graph(300, 4000), np.arange(9)), Capacity((4000,), (400,))
    same_bits(drawn(*args, (2**31 - 1,), roomy), drawn(*args, (-1,), roomy))
    assert plan_capacity(args[1], 50, (10**6, 10**6)).edges[-1] <= 4000


@pytest.mark.parametrize("field", ["edge_weight", "edge_weight_prefix"])
@pytest.mark.parametrize("change", [lambda a: a[:1], lambda a: a.astype(np.int32)])
def test_graphs_with_other_weights_are_refused(field, change, make_graph):
    graph = make_graph(30, 200)
    fields = [graph.indptr, graph.indices, graph.edge_weight, graph.edge_weight_prefix]
    at = 2 if field == "edge_weight" else 3
    fields[at] = as_device(change(np.asarray(fields[at])))
    wrong = Graph._unchecked(*fields), np.arange(3), (2,)
    refused(f"the graph's {field} must be", sample_neighbors, KEY, *wrong, weighted=True)
