import numpy as np
import pytest
import scipy.sparse

from jgs import InputError
from jgs.data import load

SRC, DST = np.array([0, 1, 1, 2, 3]), np.array([1, 0, 2, 1, 3])
ARRAYS = {
    "feature": np.arange(8.0).reshape(4, 2),
    "label": np.array([1, 0, 2, 1]),
    "node_types": np.array([1, 3, 2, 1]),
    "node_ids": np.arange(4),
}


def write(folder, graph="reddit_graph.npz", kind=scipy.sparse.coo_matrix, **changes):
    folder.mkdir(parents=True, exist_ok=True)
    edges = scipy.sparse.coo_matrix((np.ones(SRC.size), (SRC, DST)), (4, 4))
    scipy.sparse.save_npz(folder / graph, kind(edges))
    arrays = {k: v for k, v in (ARRAYS | changes).items() if v is not None}
    np.savez(folder / "reddit_data.npz", **arrays)
    return folder


def rows(graph):
    found = np.split(np.asarray(graph.indices), np.asarray(graph.indptr)[1:-1])
    return [sorted(row.tolist()) for row in found]


@pytest.mark.parametrize("kind", ["coo_matrix", "csr_matrix"])
@pytest.mark.parametrize("place", [".", "raw"])
@pytest.mark.parametrize("graph", ["reddit_graph.npz", "reddit_self_loop_graph.npz"])
def test_what_is_in_a_folder(tmp_path, kind, place, graph):
    write(tmp_path / "reddit" / place, graph, getattr(scipy.sparse, kind))
    data = load("reddit", tmp_path)
    assert data.name == "reddit"
    assert rows(data.graph) == [[1], [0, 2], [1], [3]]
    np.testing.assert_array_equal(data.features, ARRAYS["feature"])
    assert data.labels.tolist() == [1, 0, 2, 1]
    splits = data.train_idx, data.val_idx, data.test_idx
    assert [ids.tolist() for ids in splits] == [[0, 3], [2], [1]]


def test_options(tmp_path):
    folder = write(tmp_path / "reddit")
    one_way = scipy.sparse.coo_matrix((np.ones(2), ([0, 2], [1, 2])), (4, 4))
    scipy.sparse.save_npz(folder / "reddit_graph.npz", one_way)
    assert rows(load(folder).graph) == [[], [0], [2], []]
    data = load(folder, symmetric=True, normalize_features=True)
    assert rows(data.graph) == [[1], [0], [2], []]
    np.testing.assert_allclose(np.asarray(data.features).sum(1), 1, rtol=1e-6)


def lacks(file):
    def change(folder):
        write(folder)
        (folder / file).unlink()

    return change


def has(**changes):
    return lambda folder: write(folder, **changes)


def edges(shape):
    def change(folder):
        matrix = scipy.sparse.coo_matrix(([1], ([0], [1])), shape)
        scipy.sparse.save_npz(write(folder) / "reddit_graph.npz", matrix)

    return change


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lacks("reddit_data.npz"), "got reddit_graph.npz. Put them there"),
        (lacks("reddit_graph.npz"), "got reddit_data.npz. Put them there"),
        (
            lambda folder: write(write(folder), "reddit_self_loop_graph.npz"),
            "got reddit_data.npz, reddit_graph.npz, reddit_self_loop_graph.npz. Put",
        ),
        (has(label=None), "must hold feature, label, node_types; got no label"),
        (has(feature=np.ones(4)), "reddit_data.npz must be a matrix of numbers [N, F]"),
        (has(feature=np.full((4, 2), np.inf)), "must be finite; got NaN or infinity in row 0"),
        (has(feature=np.full((4, 2), None)), "a whole NumPy .npz archive without pickles"),
        (has(label=np.zeros(3, int)), "labels of reddit must be one for every node"),
        (has(label=np.array([-1, 0, 1, 2])), "node 0, which has none (-1)"),
        (has(node_types=np.ones(3, int)), "an integer for each of 4 nodes; got int64[3]"),
        (has(node_types=np.ones(4)), "an integer for each of 4 nodes; got float64[4]"),
        (has(node_types=np.array([1, 2, 0, 3])), "must be 1, 2 or 3; got 0 at node 2"),
        (has(node_types=np.array([1, 2, 4, 3])), "must be 1, 2 or 3; got 4 at node 2"),
        (edges((5, 5)), "a row and a column for each of 4 nodes; got shape [5, 5]"),
        (edges((4, 5)), "a row and a column for each of 4 nodes; got shape [4, 5]"),
    ],
)
def test_unsound_folders_are_refused(tmp_path, change, says):
    change(tmp_path / "reddit")
    with pytest.raises(InputError) as caught:
        load("reddit", tmp_path)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)
