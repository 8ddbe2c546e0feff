"""A data set of a typed graph with skewed types: features of other widths, dtypes and
sparsity for each, and none for one of them."""

import numpy as np
import scipy.sparse

from jgs import Graph
from jgs.data import Dataset

COUNTS = {"author": 900, "paper": 300, "tag": 1500, "venue": 60}


def make_typed(seed=0, counts=COUNTS, plain=False):
    """`plain`: one matrix has the features of all nodes, of one width."""
    rng = np.random.default_rng(seed)

    def ends(src, dst, num, skew=1.0):
        """`num` edges; with `skew` above 1 the first nodes have more of them."""
        at = (counts[src] * rng.random(num) ** skew).astype(int)
        return at, (counts[dst] * rng.random(num) ** skew).astype(int)

    edges = {
        ("author", "writes", "paper"): ends("author", "paper", 2500, 2.0),
        ("paper", "cites", "paper"): ends("paper", "paper", 1500, 1.5),
        ("paper", "has", "tag"): ends("paper", "tag", 4000),
        ("paper", "at", "venue"): ends("paper", "venue", 300, 3.0),
    }
    graph = Graph.from_relations(counts, edges, both_ways=True)
    features = {
        "author": rng.standard_normal((counts["author"], 3)).astype(np.float32),
        "paper": scipy.sparse.random(counts["paper"], 40, 0.2, "csr", np.float32, rng),
        "tag": rng.standard_normal((counts["tag"], 5)).astype(np.float16),
    }
    order = rng.permutation(counts["paper"])
    labels = {"paper": rng.integers(0, 3, counts["paper"])}
    splits = {"train": order[:120], "val": order[120:200], "test": order[200:]}
    if plain:
        features = rng.standard_normal((graph.num_nodes, 4)).astype(np.float32)
    return Dataset.from_arrays(graph, features, labels, splits, name="typed")
