import numpy as np
import pytest
import scipy.sparse

from jgs import InputError
from jgs.data import load

PA = np.array([[0, 1], [4, 0], [2, 1]])
PS = np.array([[0, 2], [1, 0]])
P = np.eye(5, 3)
A = np.array([[1.0, 0, 2, 0], [0, 3, 0, 0]])


@pytest.fixture
def folder(tmp_path):
    """Five papers with features, two authors with others, three subjects without."""
    place = tmp_path / "acm"
    place.mkdir()
    np.savetxt(place / "pa.txt", PA, "%d", delimiter="\t")
    np.savetxt(place / "ps.txt", PS, "%d", delimiter=" ")
    scipy.sparse.save_npz(place / "p_feat.npz", scipy.sparse.csr_matrix(P))
    scipy.sparse.save_npz(place / "a_feat.npz", scipy.sparse.coo_matrix(A))
    scipy.sparse.save_npz(place / "pap.npz", scipy.sparse.coo_matrix(np.eye(5)))
    np.save(place / "nei_a.npy", np.array([[1], [0, 1]], object), allow_pickle=True)  # unread
    np.save(place / "labels.npy", np.array([0.0, 1, 1, 0, -1]))
    for number, ids in ((20, ([0], [1], [2, 3])), (40, ([0, 1], [2], [3]))):
        for split, own in zip(("train", "val", "test"), ids, strict=True):
            np.save(place / f"{split}_{number}.npy", np.array(own))
    return place


def test_letters_are_types(folder):
    data = load(folder, split="40")
    schema = data.graph.schema
    assert schema.node_types == (("a", 2), ("p", 5), ("s", 3))
    forward = (("p", "pa", "a"), ("p", "ps", "s"))
    assert schema.relations == (*forward, ("a", "rev_pa", "p"), ("s", "rev_ps", "p"))
    row = np.repeat(np.arange(10), np.asarray(data.graph.degrees()))
    for name, edges, shift in (("pa", PA, [2, 0]), ("ps", PS, [2, 7])):
        at = np.asarray(data.graph.edge_type) == schema.relation(name)
        found = np.stack([np.asarray(data.graph.indices)[at], row[at]], axis=1)
        assert sorted(found.tolist()) == sorted((edges + shift).tolist())
    assert data.features.widths == (4, 3, 0)
    for name, matrix in (("a", A), ("p", P)):
        table = data.features.table(name)
        arrays = (np.asarray(a) for a in (table.values, table.indices, table.indptr))
        dense = scipy.sparse.csr_matrix(tuple(arrays), shape=table.shape).toarray()
        np.testing.assert_array_equal(dense, matrix)
    assert data.labels.tolist() == [-1, -1, 0, 1, 1, 0, -1, -1, -1, -1]
    splits = data.train_idx, data.val_idx, data.test_idx
    assert [ids.tolist() for ids in splits] == [[2, 3], [4], [5]]
    assert load(folder, split=20, both_ways=False).graph.num_edges == 5
    with pytest.raises(InputError, match="the option split name one; got None, and splits 20"):
        load(folder)


def test_dense_and_csc_features_and_a_type_without(folder):
    scipy.sparse.save_npz(folder / "a_feat.npz", scipy.sparse.csc_matrix(A))
    csc = load(folder, split="20").features.table("a")
    assert np.asarray(csc.values).tolist() == [1, 2, 3]
    assert np.asarray(csc.indices).tolist() == [0, 2, 1]
    with open(folder / "a_feat.npz", "wb") as file:  # as the published t_feat.npz of dblp
        np.save(file, A)
    np.testing.assert_array_equal(load(folder, split="20").features.table("a"), A)
    with pytest.raises(InputError, match="with as many nodes, which"):
        load(folder, split="20", target="a")
    (folder / "p_feat.npz").unlink()
    (folder / "a_feat.npz").unlink()
    data = load(folder, split="20")
    assert data.features.widths == (0, 0, 0)
    assert dict(data.graph.schema.node_types)["p"] == 5
    np.save(folder / "labels.npy", np.array([0, 1, 1, 0, 1, 1]))  # one more, without an edge
    with pytest.raises(
        InputError, match=r"the option target names .* got target None and a 2,"
    ):
        load(folder, split="20")
    with pytest.raises(InputError, match="with as many nodes, which"):
        load(folder, split="20", target="x")
    counts = load(folder, split="20", target="p").graph.schema.node_types
    assert dict(counts) == {"a": 2, "p": 6, "s": 3}


@pytest.mark.parametrize(
    ("file", "content", "says"),
    [
        ("pa.txt", "0 1\n4 0 3\n", "pa.txt must be a table of int64 numbers"),
        ("pa.txt", "0 x\n", "pa.txt must be a table of int64 numbers"),
        ("pa.txt", "", "pa.txt must have edges; got none"),
        ("pa.txt", "0 2\n", "must name nodes of a in [0, 2); got 2"),
        ("pa.txt", "-1 1\n", "must have ids that count from 0; got -1 to 1"),
        ("a_feat.npz", {"format": b"dia", "data": A}, "in the format csr, csc or coo; got dia"),
        (
            "a_feat.npz",
            {"format": b"coo", "data": [1], "row": [2], "col": [0], "shape": [2, 4]},
            "must hold a sound coo matrix",
        ),
        ("train_20.npy", [5], "the train split of acm must hold node ids in [0, 5); got 5"),
        ("labels.npy", [0, 1], "must hold node ids in [0, 2); got 2"),  # of authors, then
        ("labels.npy", [0, 1, 0, 1], "the 4 labels in"),
    ],
)
def test_unsound_folders_are_refused(file, content, says, folder):
    if isinstance(content, str):
        (folder / file).write_text(content)
    elif isinstance(content, dict):
        np.savez(folder / file, **content)
    else:
        np.save(folder / file, np.array(content))
    with pytest.raises(InputError) as caught:
        load(folder, split="20")
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)
