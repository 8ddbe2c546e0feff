"""Parts that share many edges are those of one machine, and seeds stay on their machine."""

import itertools
import json

import numpy as np
import pytest
from refusals import command_refused

import jgs
from jgs.data.parts import open_parts
from jgs.graph.adjacency import edge_cut, in_neighbors
from jgs.partition.__main__ import main
from jgs.partition.folder import deal_seeds
from jgs.partition.machines import edges_between, machine_order
from jgs.partition.nodes import partition_nodes


def _cut(between, order, size):
    machine = order // size
    return int(between[machine[:, None] != machine].sum())


def test_each_edge_between_parts_counts_once(make_graph):
    graph = make_graph(70, 900)
    parts = np.random.default_rng(1).integers(0, 5, 70).astype(np.int32)
    found = edges_between(in_neighbors(graph), parts, 5)
    wanted = np.zeros((5, 5), np.int64)
    target = np.repeat(np.arange(70), np.diff(graph.indptr))
    np.add.at(wanted, (parts[target], parts[np.asarray(graph.indices)]), 1)
    np.testing.assert_array_equal(found, wanted)
    cut = 1 - wanted.trace() / wanted.sum()
    assert edge_cut(in_neighbors(graph), parts) == pytest.approx(cut)
    no_edges = jgs.Graph.from_edges([], [], 5)
    assert edge_cut(in_neighbors(no_edges), np.zeros(5, int)) == 0


@pytest.mark.parametrize(("num_parts", "size"), [(4, 2), (6, 2), (6, 3), (8, 4)])
def test_the_order_cuts_as_little_as_any(num_parts, size):
    rng, exact = np.random.default_rng(num_parts * size), 0
    for _ in range(20):
        between = rng.integers(0, 100, (num_parts, num_parts))
        order = machine_order(between, size)
        assert sorted(order) == list(range(num_parts))
        machines = itertools.product(range(num_parts // size), repeat=num_parts)
        even = (np.array(m) for m in machines if np.bincount(m, minlength=2).max() == size)
        best = min(_cut(between, m * size, size) for m in even)
        found = _cut(between, order, size)
        assert found <= 1.1 * best
        exact += found == best
    assert exact >= 14  # swaps of two end in a local minimum now and then


def test_machines_have_the_parts_that_belong_together():
    """Sixteen communities of 64 nodes, in two halves with many edges within each half."""
    rng = np.random.default_rng(3)
    place = rng.permutation(1024)  # the node at each place; communities are 64 places each
    near = rng.integers(0, 1024, 60_000)
    half = (near // 512) * 512 + rng.integers(0, 512, near.size)
    own = (near // 64) * 64 + rng.integers(0, 64, near.size)
    ends = np.where(rng.random(near.size) < 0.6, own, half)
    ends[:600] = rng.integers(0, 1024, 600)
    a, b = place[near], place[ends]
    graph = jgs.Graph.from_edges(np.r_[a, b], np.r_[b, a], 1024)
    splits = {"train_idx": rng.permutation(1024)[:301]}
    alone = partition_nodes(graph, 16, **splits)
    parts = partition_nodes(graph, 16, **splits, ranks_per_machine=8)
    # The same parts, with other numbers.
    assert len(set(zip(alone, parts, strict=True))) == 16
    adjacency = in_neighbors(graph)
    assert edge_cut(adjacency, parts // 8) < 0.1 < edge_cut(adjacency, parts)


def test_the_command_takes_the_ranks_of_a_machine(tmp_path, capsys):
    flags = ["--dataset", "synthetic", "--data-options", "num_nodes=200", "num_edges=900"]
    flags += ["--parts", "4", "--out", str(tmp_path / "p"), "--ranks-per-machine"]
    assert main([*flags, "2"]) == 0
    said, parts = capsys.readouterr(), open_parts(tmp_path / "p")
    machines = parts.owner(np.arange(200)) // 2
    cut = pytest.approx(edge_cut(in_neighbors(parts.graph), machines))
    assert json.loads(said.out)["machine_cut"] == parts.manifest["machine_cut"] == cut
    assert "between machines" in " ".join(said.err.split())
    assert parts.manifest["ranks_per_machine"] == 2
    for wrong, rule in (("3", "multiple"), ("0", "positive")):
        command_refused(capsys, rule, main, [*flags, wrong])


def _moved(has, counts, size):
    """How many seeds leave their part and their machine, at least, to be dealt so."""
    of_machines = np.add.reduceat(has - counts, np.arange(0, 6, size))
    return tuple(np.maximum(too_many, 0).sum() for too_many in (has - counts, of_machines))


@pytest.mark.parametrize("size", [1, 2, 3, 6])
def test_the_fewest_seeds_leave_their_part_and_their_machine(size):
    rng = np.random.default_rng(size)
    for _ in range(50):
        num = int(rng.integers(0, 200))
        owner = np.sort(rng.choice(6, num, p=rng.dirichlet(np.ones(6))))
        dealt = deal_seeds(owner, 6, size)
        counts, has = np.bincount(dealt, minlength=6), np.bincount(owner, minlength=6)
        assert np.ptp(counts) <= 1
        # No dealing to these counts moves fewer.
        assert (dealt != owner).sum() == np.maximum(has - counts, 0).sum()
        share, rest = divmod(num, 6)
        best = min(
            _moved(has, share + np.isin(range(6), more), size)
            for more in itertools.combinations(range(6), rest)
        )
        left = (dealt // size != owner // size).sum()
        assert ((dealt != owner).sum(), left) == best
