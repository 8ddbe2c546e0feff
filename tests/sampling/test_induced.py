"""`induced_subgraph` as a kernel and in plain JAX, and what all subgraph samplers share."""

from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from refusals import refused

from jgs import Graph, Live
from jgs.ops import aggregate
from jgs.sampling import SubgraphSampler, induced_subgraph, subgraphs
from jgs.sampling.edges.induced import induced_blocks, rows_sorted
from jgs.sampling.edges.random import node_bits

N, E = 200, 4000


@pytest.fixture(scope="module")
def graph():
    """Some rows are long, a third of the nodes have no in-edges, some edges are repeated."""
    rng = np.random.default_rng(0)
    target = (N * rng.random(E) ** 3).astype(int)
    target[target % 3 == 1] = 0
    return Graph.from_edges(rng.integers(0, N, E), target, N, edge_weight=rng.random(E))


def expected(graph, nodes, groups):
    """For each row the places and ids of the kept edges, found by a loop."""
    indptr, indices, rows = np.asarray(graph.indptr), np.asarray(graph.indices), []
    for begin, end in pairwise(groups):
        group = list(nodes[begin:end])
        for v in group:
            edges = range(indptr[v], indptr[v + 1]) if v < N else ()
            kept = [e for e in edges if indices[e] in group]
            rows.append([(begin + group.index(indices[e]), e) for e in kept])
    return rows


def test_the_edges_among_nodes(graph):
    rng = np.random.default_rng(1)
    for one in (graph, graph.sorted()):
        assert bool(rows_sorted(one)) == (one is not graph)
        for nodes in (rng.permutation(N)[:60], np.array([0, 5, 199]), np.arange(N), [7]):
            block = induced_subgraph(one, nodes, sorted_rows=one is not graph)
            count, indptr = int(block.num_edges), np.asarray(block.indptr)
            assert int(block.num_targets) == int(block.num_sources) == len(nodes)
            assert block.source_capacity == len(nodes) == indptr.size - 1
            both = (np.asarray(a)[:count] for a in (block.indices, block.edge_id))
            found = list(zip(*both, strict=True))
            rows = [found[a:b] for a, b in pairwise(indptr)]
            assert rows == expected(one, np.asarray(nodes), [0, len(nodes)])
            weights = np.asarray(one.edge_weight)[np.asarray(block.edge_id)[:count]]
            np.testing.assert_array_equal(np.asarray(block.edge_weight)[:count], weights)
            assert (np.asarray(block.indices)[count:] == len(nodes)).all()
            assert (np.asarray(block.edge_id)[count:] == E).all()


def test_wrong_nodes_and_no_edges(graph):
    for nodes, says in (([1, 1], "distinct"), ([N], "node ids"), ([], "not empty")):
        refused(says, induced_subgraph, graph, nodes)
    traced = jax.jit(lambda nodes: induced_subgraph(graph, nodes))
    refused("must be known", traced, jnp.arange(3))
    none = induced_subgraph(Graph.from_edges([], [], 3), [2, 0])
    assert int(none.num_edges) == 0 < int(none.num_targets)


@pytest.mark.parametrize(("is_sorted", "room"), [(False, 4096), (True, 4096), (False, 20)])
def test_plain_and_kernel_are_equal(graph, is_sorted, room, alike):
    """Several groups with repeated nodes and padding, an overflow, rows read and searched."""
    graph, rng = graph.sorted() if is_sorted else graph, np.random.default_rng(2)
    nodes = rng.integers(0, N + 1, (3, 50)).astype(np.int32)
    nodes[:, 1::9] = 0  # a long row
    groups = np.array([[0, 0, 30, 50], [3, 7, 7, 12], [0, 1, 2, 3]], np.int32)
    counts = np.array([50, 0, 12], np.int32)
    options = {"edge_weight": graph.edge_weight, "is_sorted": rows_sorted(graph)}

    def program(graph, nodes, groups, counts, options):
        def one(nodes, groups):
            return induced_blocks(graph, nodes, groups, room, edge_ids=True, **options)[0]

        whole = {"by_row": True, "max_edges": room, **options}
        with jax.enable_x64(True):
            separate = induced_blocks(graph, nodes, jnp.stack([0 * counts, counts], 1), **whole)
            return jax.vmap(one)(nodes, groups), separate

    found, _ = alike(program, graph, nodes, groups, counts, options, threads=(2, 4))
    assert len(set(found[1].tolist())) > 1


def test_many_groups_of_a_large_graph_are_told_apart(alike):
    """Number times nodes of the last group is 2**32."""
    graph = Graph.from_edges([7], [5], (1 << 20) - 1)
    nodes = np.full(4097, 11, np.int32)
    nodes[0], nodes[-1] = 5, 7  # the ends of the edge, in two groups

    def program(graph, nodes, groups):
        with jax.enable_x64(True):
            return induced_blocks(graph, nodes, groups, 8)[0]

    block, needed = alike(program, graph, nodes, np.arange(4098, dtype=np.int32))
    assert int(needed) == int(block.num_edges) == 0


@dataclass(frozen=True)
class Some(SubgraphSampler):
    """Draws each node by its own coin, with probability one in `v % 4 + 1`."""

    def draw_nodes(self, key_data, graph, state, room):
        node = jnp.arange(graph.num_nodes, dtype=jnp.int32)

        def one(key_data):
            bits = node_bits(key_data, node, 0).astype(jnp.uint32)
            drawn = bits % (node.astype(jnp.uint32) % 4 + 1) == 0
            (nodes,) = jnp.nonzero(drawn, size=room, fill_value=graph.num_nodes)
            return nodes.astype(jnp.int32), jnp.sum(drawn, dtype=jnp.int32)

        return jax.vmap(one)(key_data)

    def most_nodes(self, shape):
        return shape.num_nodes


def test_bad_seeds_empty_a_subgraph(graph):
    draw = jax.jit(partial(Some().sample, capacity=None))
    bad = draw(jax.random.key(5), graph, Some().init(graph), jnp.full(82, -1))
    assert bad.overflow
    assert int(bad.needed.max()) == -1


def test_normalised_sums_are_unbiased(graph):
    """GraphSAINT's coefficients normalise the loss of all seeds, and means over neighbours."""
    sampler = Some(norm_error=0.02)
    state = sampler.init(graph)
    known = np.arange(N) % 4 + 1
    np.testing.assert_allclose(state.coefficients.nodes, known, rtol=0.12)

    x = np.random.default_rng(4).normal(size=(N, 3)).astype(np.float32)
    loss = np.random.default_rng(5).random(N).astype(np.float32) * (np.arange(N) % 4)
    seeds = np.arange(0, N, 2)

    @jax.jit
    @jax.vmap
    def sums(key):
        batch = sampler.sample(key, graph, state, seeds, None)
        rows = jnp.take(x, batch.nodes, axis=0, mode="fill", fill_value=0)
        mean = aggregate(batch.block(0), rows, "mean")
        weight = jnp.take(state.coefficients.nodes, batch.nodes, mode="fill", fill_value=0)
        of_all = jnp.zeros((N, 3)).at[batch.nodes].add(mean * weight[:, None], mode="drop")
        own = jnp.take(loss, batch.seeds, mode="fill", fill_value=0) * batch.seed_weight
        return of_all, jnp.sum(own) / batch.seed_mask.sum()

    of_all, losses = sums(jax.random.split(jax.random.key(8), 4000))
    indptr, indices = np.asarray(graph.indptr), np.asarray(graph.indices)
    truth = np.zeros((N, 3))
    for v in range(N):
        if (row := indices[indptr[v] : indptr[v + 1]]).size:
            truth[v] = x[row].mean(axis=0)
    error = np.std(of_all, axis=0) / np.sqrt(4000)
    # The coefficients' own error, 2 % a node, is common to all draws.
    error = np.maximum(error + 0.03 * np.abs(truth), 1e-9)
    off = np.abs(np.mean(of_all, axis=0) - truth) / error
    assert np.percentile(off, 99) < 4
    expected_loss = loss[seeds].mean()
    assert abs(losses.mean() - expected_loss) < 0.03 * expected_loss
    assert losses.mean() > 1.2 * np.mean(loss[seeds][known[seeds] == 1])


def test_coefficients_are_kept_for_the_same_sampler_and_graph(graph, tmp_path, same_bits):
    sampler, folder = Some(norm_error=0.2), tmp_path / "kept"
    drawn, live = sampler.init(graph), Live(graph).graph
    sampler.save(graph, drawn, folder)
    where = np.concatenate([np.arange(*row) for row in np.asarray(live.indptr)[:, :-1].T])
    of_live = sampler.init(live).coefficients
    same_bits((of_live.nodes, of_live.edges[where]), tuple(drawn.coefficients))

    def recalled(sampler, graph):
        # Another Graph of the same arrays.
        graph = Graph(graph.indptr, graph.indices, graph.edge_weight)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(subgraphs, "estimate", lambda *_: None)
            return sampler.restore(graph, folder)

    same_bits(recalled(sampler, graph), drawn)
    assert recalled(Some(norm_error=0.3), graph).coefficients is None
    assert recalled(sampler, graph.sorted()).coefficients is None
    (folder / "nodes.npy").write_bytes(b"")
    assert recalled(sampler, graph).coefficients is None
    weighed, kept = Some(norm_error=0.2, edge_weights=True), drawn.coefficients
    folder = tmp_path / "weighed"
    weighed.save(graph, drawn, folder)
    same_bits(recalled(weighed, graph).coefficients, kept)
    other = Graph(graph.indptr, graph.indices, np.asarray(graph.edge_weight)[::-1])
    assert recalled(weighed, other).coefficients is None
