import numpy as np
import scipy.sparse
from folders import cases, made, refused, rows, splits, write

from jgs.data import load
from jgs.data.plain import load_plain

# A ring both ways, a self-loop at 5 and an edge 0 -> 3 that goes one way; its entry is 0.
SRC = np.array([0, 1, 2, 3, 4, 5, 1, 2, 3, 4, 5, 0, 5, 0])
DST = np.array([1, 2, 3, 4, 5, 0, 0, 1, 2, 3, 4, 5, 5, 3])
ADJACENCY = scipy.sparse.coo_matrix((np.arange(13, -1, -1.0), (SRC, DST)), (6, 6)).tocsr()
ROWS = [[1, 5], [0, 2], [1, 3], [0, 2, 4], [3, 5], [0, 4, 5]]
BOTH = [[1, 3, 5], [0, 2], [1, 3], [0, 2, 4], [3, 5], [0, 4, 5]]
FEATURES = np.c_[np.arange(6.0), [5, 5, 5, 7, 7, 7], np.eye(6, 1)]
CLASSES = {"3": 1, "0": 2, "5": 2, "1": 0, "4": 0, "2": 1}  # in any order
ROLES = {"tr": [5, 0, 1], "va": [2], "te": [4, 3]}
FILES = {
    "adj_full.npz": ADJACENCY,
    "adj_train.npz": ADJACENCY[:3, :3],
    "feats.npy": FEATURES,
    "class_map.json": CLASSES,
    "role.json": ROLES,
}
folder = made("flickr", FILES)


def test_what_is_in_a_folder(folder, tmp_path):
    for data in (load(folder), load("flickr", tmp_path), load_plain(folder, "data")):
        assert data.name == "flickr"
        assert rows(data.graph) == ROWS
        np.testing.assert_array_equal(data.features, FEATURES)
        assert data.labels.tolist() == [2, 0, 1, 1, 0, 2]
        assert splits(data) == [[5, 0, 1], [2], [4, 3]]
    assert load(folder).num_classes == 3
    assert rows(load(folder, symmetric=True).graph) == BOTH
    write(folder, {"role.json": ROLES | {"va": []}})  # a node may have no role
    assert splits(load(folder)) == [[5, 0, 1], [], [4, 3]]
    write(tmp_path / "pyg" / "raw", FILES)  # as PyG has it
    data = load(tmp_path / "pyg")
    assert (data.name, rows(data.graph)) == ("pyg", ROWS)
    # Entries that come twice are parallel edges.
    twice = scipy.sparse.coo_matrix((np.ones(2, bool), ([0, 0], [1, 1])), (6, 6))
    write(folder, {"adj_full.npz": twice})
    assert rows(load(folder).graph) == [[], [0, 0], [], [], [], []]
    assert rows(load(folder, symmetric=True).graph) == [[1], [0], [], [], [], []]


def test_features_are_changed_by_options_only(folder):
    trained = FEATURES[ROLES["tr"]]
    expected = (FEATURES - trained.mean(0)) / trained.std(0)
    made = np.asarray(load(folder, standardize=True).features)
    np.testing.assert_allclose(made, expected, rtol=1e-5, atol=1e-6)
    normal = np.asarray(load(folder, normalize_features=True).features)
    np.testing.assert_allclose(normal.sum(1), 1, rtol=1e-6)
    np.save(folder / "feats.npy", np.full((6, 1), 0.1))  # a column without deviation
    np.testing.assert_allclose(load(folder, standardize=True).features, 0, atol=1e-6)


def matrix(**arrays):
    given = {"format": b"csr", "shape": [6, 6], "data": [1], "indices": [1]}
    return {"adj_full.npz": given | {"indptr": [0, *[1] * 6]} | arrays}


def validated(*nodes):
    return {"role.json": ROLES | {"va": list(nodes)}}


def classes(**changes):
    return {"class_map.json": CLASSES | {name[1:]: value for name, value in changes.items()}}


@cases(
    "changes, says",
    ({"adj_full.npz": None}, "class_map.json, role.json; got no adj_full.npz"),
    ({"role.json": {"tr": [0], "te": []}}, "must have lists tr, va and te of node ids"),
    (validated(6), "must hold node ids in [0, 6); got 6 at position 0"),
    (validated(2, 5), "must name each node at most once, in tr, va or te; got 2 at"),
    (validated("2"), "must be integers [n], ids of nodes; got <U1[1]"),
    (validated([2], [1, 0]), "must have lists tr, va and te of node ids"),
    ({"role.json": '{"tr": [0'}, "role.json must be whole JSON, an object; got "),
    ({"role.json": "[" * 99999}, "role.json must be whole JSON, an object; got "),
    ({"role.json": [1]}, "role.json must be whole JSON, an object; got a list."),
    ({"class_map.json": {"0": 1}}, "must name every node; got no node '1'"),
    (classes(_6=1), "must name nodes in [0, 6); got '6'"),
    (classes(_3=[0, 1]), "in a list; got 2 for node '0' and [0, 1] for node '3'"),
    (classes(_3=None), "node 3, which has none (-1)"),
    (classes(_3="x"), "class_map.json must give every node"),
    (classes(_3=1.5), "must be whole numbers; got 1.5 at node 3"),
    ({"feats.npy": np.ones((5, 2))}, "role.json must hold node ids in [0, 5); got 5"),
    (matrix(shape=[6, 7]), "must be [6, 6], a row and a column for each node; got int64[6, 7]"),
    (matrix(indices=[6]), "the edges in"),
    (matrix(shape=6), "must be a sound CSR matrix"),
    (matrix(format=b"dia"), "in the format csr, csc or coo; got dia with"),
    (matrix(format=[b"csr", b"coo"]), "in the format csr, csc or coo; got"),
    (matrix(format="coo", row=[0], col=[6]), "must hold a sound coo matrix"),
    (matrix(format="coo", row=[0], col=[1], shape=[-1, 6]), "must hold a sound coo matrix"),
    (matrix(data=np.array([None])), "must be a whole NumPy .npz archive without pickles"),
)
def test_unsound_folders_are_refused(folder, changes, says):
    refused(says, load, write(folder, changes))
