"""Small data sets, and folders of their parts."""

import numpy as np
import scipy.sparse

from jgs import Graph
from jgs.data import Dataset
from jgs.partition.folder import write_parts


def make_data(num_nodes, num_edges, seed=0, sparse=False, weighted=True, multilabel=False):
    rng = np.random.default_rng(seed)
    weight = rng.random(num_edges) * (rng.random(num_edges) > 0.3) if weighted else None
    src, dst = rng.integers(0, num_nodes, (2, num_edges))
    columns = {"rows": rng.integers(0, 2**40, num_edges), "feat": rng.random((num_edges, 2))}
    graph = Graph.from_edges(src, dst, num_nodes, weight, edge_columns=columns)
    features = rng.random((num_nodes, 5)).astype(np.float16)
    if sparse:
        features = scipy.sparse.csr_array(
            features.astype(np.float32) * (rng.random((num_nodes, 5)) > 0.6)
        )
    labels = rng.integers(0, 3, num_nodes)
    if multilabel:
        labels = (rng.random((num_nodes, 3)) > 0.5).astype(np.float32)
    order = rng.permutation(num_nodes)
    train, val, test = np.split(order, [max(1, num_nodes // 3), num_nodes // 2])
    splits = {"train": train, "val": val, "test": test}
    return Dataset.from_arrays(graph, features, labels, splits, name="made", num_classes=3)


def write(folder, data, num_parts, assignment=None, seed=0):
    if assignment is None:
        assignment = np.random.default_rng(seed).integers(0, num_parts, data.graph.num_nodes)
    return write_parts(folder, data, assignment, num_parts, method="by hand", seed=seed)
