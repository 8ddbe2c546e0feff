"""The memory of partitioning, in bytes for each node; its one pass over the features."""

import tracemalloc

import numpy as np
import pytest

from jgs import Graph
from jgs.data.dataset import Dataset
from jgs.partition import partition_nodes, write_parts

NODES, EDGES, PARTS = 400_000, 600_000, 4


class Counted(np.ndarray):
    """An array that counts how many of its rows are read."""

    rows = 0

    def __getitem__(self, key):
        found = super().__getitem__(key)
        Counted.rows += len(found) if self.ndim == 2 else 0
        return found


@pytest.fixture(scope="module")
def data():
    """A fifth of the nodes has no edges; every node is in a split."""
    rng = np.random.default_rng(0)
    ids = rng.permutation(NODES)[: NODES * 4 // 5]
    src, dst = ids[(rng.random((2, EDGES)) ** 2 * ids.size).astype(int)]
    order = rng.permutation(NODES).astype(np.int32)
    splits = np.split(order, [NODES // 10, NODES // 5])
    features = rng.random((NODES, 2), np.float32).view(Counted)
    labels = rng.integers(0, 3, NODES).astype(np.int32)
    return Dataset("made", Graph.from_edges(src, dst, NODES), features, labels, 3, *splits)


@pytest.mark.parametrize("method", ["ldg", "random"])
def test_40_bytes_a_node_and_one_pass(tmp_path, monkeypatch, data, method):
    # Temporaries of a fixed size do not count; they are made small compared with the graph.
    for name, size in (
        ("jgs.graph.rows._EDGES_AT_ONCE", 1 << 12),
        ("jgs.graph.rows._ROWS_AT_ONCE", 1 << 12),
        ("jgs.partition.weights._NODES_AT_ONCE", 1 << 12),
        ("jgs.partition.folder._BYTES_AT_ONCE", 1 << 16),
    ):
        monkeypatch.setattr(name, size)
    splits = {f"{k}_idx": getattr(data, f"{k}_idx") for k in ("train", "val", "test")}
    tracemalloc.start()
    parts = partition_nodes(data.graph, PARTS, method, **splits)
    partitioned = tracemalloc.get_traced_memory()[1] / NODES
    tracemalloc.reset_peak()
    Counted.rows = 0
    write_parts(tmp_path / "parts", data, parts, PARTS, method=method)
    written = tracemalloc.get_traced_memory()[1] / NODES
    tracemalloc.stop()
    assert max(partitioned, written) <= 40, (partitioned, written)
    assert Counted.rows <= NODES + 1  # one more row tells how many bytes a row has
