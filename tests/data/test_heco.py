import numpy as np
import scipy.sparse
from folders import cases, edges, made, refused, splits, write

from jgs.data import load

PA = np.array([[0, 1], [4, 0], [2, 1]])
PS = np.array([[0, 2], [1, 0]])
P = np.eye(5, 3)
A = np.array([[1.0, 0, 2, 0], [0, 3, 0, 0]])


# Five papers with features, two authors with others, three subjects without.
FILES = {
    "pa.txt": "0\t1\n4\t0\n2\t1\n",
    "ps.txt": "0 2\n1 0\n",
    "p_feat.npz": scipy.sparse.csr_matrix(P),
    "a_feat.npz": scipy.sparse.coo_matrix(A),
    "pap.npz": scipy.sparse.coo_matrix(np.eye(5)),
    "nei_a.npy": np.array([[1], [0, 1]], object),  # unread
    "labels.npy": np.array([0.0, 1, 1, 0, -1]),
}
for number, ids in ((20, ([0], [1], [2, 3])), (40, ([0, 1], [2], [3]))):
    names = (f"{split}_{number}.npy" for split in ("train", "val", "test"))
    FILES |= zip(names, map(np.array, ids), strict=True)
folder = made("acm", FILES)


def test_letters_are_types(folder):
    data = load(folder, split="40")
    schema = data.graph.schema
    assert schema.node_types == (("a", 2), ("p", 5), ("s", 3))
    forward = (("p", "pa", "a"), ("p", "ps", "s"))
    assert schema.relations == (*forward, ("a", "rev_pa", "p"), ("s", "rev_ps", "p"))
    given = [(p + 2, a, 0) for p, a in PA.tolist()]
    given += [(p + 2, s + 7, 1) for p, s in PS.tolist()]
    back = [(b, a, kind + 2) for a, b, kind in given]
    assert edges(data, "edge_type") == sorted(given + back)
    assert data.features.widths == (4, 3, 0)
    np.testing.assert_array_equal(data.features.table("a").to_scipy().toarray(), A)
    np.testing.assert_array_equal(data.features.table("p").to_scipy().toarray(), P)
    assert data.labels.tolist() == [-1, -1, 0, 1, 1, 0, -1, -1, -1, -1]
    assert splits(data) == [[2, 3], [4], [5]]
    assert load(folder, split=20, both_ways=False).graph.num_edges == 5
    refused("the option split name one; got None, and splits 20", load, folder)


def test_dense_and_csc_features_and_a_type_without(folder):
    scipy.sparse.save_npz(folder / "a_feat.npz", scipy.sparse.csc_matrix(A))
    csc = load(folder, split="20").features.table("a")
    assert np.asarray(csc.values).tolist() == [1, 2, 3]
    assert np.asarray(csc.indices).tolist() == [0, 2, 1]
    with open(folder / "a_feat.npz", "wb") as file:  # as the published t_feat.npz of dblp
        np.save(file, A)
    np.testing.assert_array_equal(load(folder, split="20").features.table("a"), A)
    refused("with as many nodes, which", load, folder, split="20", target="a")
    write(folder, {"p_feat.npz": None, "a_feat.npz": None})
    data = load(folder, split="20")
    assert data.features.widths == (0, 0, 0)
    assert dict(data.graph.schema.node_types)["p"] == 5
    np.save(folder / "labels.npy", np.array([0, 1, 1, 0, 1, 1]))  # one more, without an edge
    refused("the option target names * got target None and a 2,", load, folder, split="20")
    refused("with as many nodes, which", load, folder, split="20", target="x")
    counts = load(folder, split="20", target="p").graph.schema.node_types
    assert dict(counts) == {"a": 2, "p": 6, "s": 3}


@cases(
    "file, content, says",
    ("pa.txt", "0 1\n4 0 3\n", "pa.txt must be a table of int64 numbers"),
    ("pa.txt", "", "pa.txt must have edges; got none"),
    ("pa.txt", "0 2\n", "must name nodes of a in [0, 2); got 2"),
    ("pa.txt", "-1 1\n", "must have ids that count from 0; got -1 to 1"),
    ("train_20.npy", [5], "the train split of acm must hold node ids in [0, 5); got 5"),
    ("labels.npy", [0, 1], "must hold node ids in [0, 2); got 2"),  # of authors, then
    ("labels.npy", [0, 1, 0, 1], "the 4 labels in"),
)
def test_unsound_folders_are_refused(file, content, says, folder):
    refused(says, load, write(folder, {file: content}), split="20")
