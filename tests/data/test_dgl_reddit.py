import numpy as np
import pytest
import scipy.sparse
from folders import cases, refused, rows, splits, write

from jgs.data import load

EDGES = scipy.sparse.coo_matrix((np.ones(4), ([0, 1, 1, 3], [1, 0, 2, 3])), (4, 4))
DATA = {
    "feature": np.arange(8.0).reshape(4, 2),
    "label": np.array([1, 0, 2, 1]),
    "node_types": np.array([1, 3, 2, 1]),
    "node_ids": np.arange(4),
}
FILES = {"reddit_graph.npz": EDGES, "reddit_data.npz": DATA}


@pytest.mark.parametrize("place", [".", "raw"])
@pytest.mark.parametrize("graph", ["reddit_graph.npz", "reddit_self_loop_graph.npz"])
def test_what_is_in_a_folder(tmp_path, place, graph):
    write(tmp_path / "reddit" / place, {"reddit_data.npz": DATA, graph: EDGES})
    data = load("reddit", tmp_path)
    assert data.name == "reddit"
    assert rows(data.graph) == [[1], [0], [1], [3]]
    np.testing.assert_array_equal(data.features, DATA["feature"])
    assert data.labels.tolist() == [1, 0, 2, 1]
    assert splits(data) == [[0, 3], [2], [1]]
    data = load("reddit", tmp_path, symmetric=True, normalize_features=True)
    assert rows(data.graph) == [[1], [0, 2], [1], [3]]
    np.testing.assert_allclose(np.asarray(data.features).sum(1), 1, rtol=1e-6)


def has(**arrays):
    return {"reddit_data.npz": DATA | arrays}


@cases(
    "changes, says",
    ({"reddit_data.npz": None}, "got reddit_graph.npz. Put them there"),
    ({"reddit_graph.npz": None}, "got reddit_data.npz. Put them there"),
    ({"reddit_self_loop_graph.npz": EDGES}, "got * reddit_self_loop_graph.npz. Put"),
    (has(label=None), "must hold feature, label, node_types; got no label"),
    (has(label=np.array([-1, 0, 1, 2])), "node 0, which has none (-1)"),
    (has(node_types=np.ones(3, int)), "must be integers [4], one for each node; got int64[3]"),
    (has(node_types=np.ones(4)), "must be integers [4], one for each node; got float64[4]"),
    (has(node_types=np.array([1, 2, 4, 3])), "must be 1, 2 or 3; got 4 at node 2"),
)
def test_unsound_folders_are_refused(tmp_path, changes, says):
    refused(says, load, write(tmp_path / "reddit", FILES | changes))
