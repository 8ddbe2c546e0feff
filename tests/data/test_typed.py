import numpy as np
import pytest
import scipy.sparse

from jgs import InputError, Schema
from jgs.data import load


def test_acm(real_data):
    if not (real_data / "acm.npz").is_file():
        pytest.skip(f"no acm.npz in {real_data}")
    archive = np.load(real_data / "acm.npz")
    data = load("acm", real_data)
    graph, schema = data.graph, data.graph.schema
    assert dict(schema.node_types) == {"paper": 4019, "author": 7167, "subject": 60}
    assert graph.num_edges == 2 * (13407 + 4019)
    splits = data.train_idx, data.val_idx, data.test_idx
    assert [ids.size for ids in splits] == [180, 1000, 1000]
    assert np.bincount(data.labels + 1).tolist() == [7227, 1993, 965, 1061]
    assert data.features.widths == (1902, 0, 0)
    values = np.asarray(data.features.table("paper").values)
    np.testing.assert_array_equal(values, archive["paper_feature_values"])
    padded = load("acm", real_data, features="padded").features
    assert padded.shape == (graph.num_nodes, 1902)
    np.testing.assert_array_equal(padded.values, archive["paper_feature_values"])
    ends = archive["paper_feature_indptr"]
    np.testing.assert_array_equal(padded.indptr, np.r_[ends, [ends[-1]] * (7167 + 60)])
    # The subjects of the papers, by the edges of one relation.
    kind = np.asarray(graph.edge_type) == schema.relation("paper_subject")
    row = np.repeat(np.arange(graph.num_nodes), np.asarray(graph.degrees()))[kind]
    found = np.stack([np.asarray(graph.indices)[kind], row - schema.nodes("subject").start])
    order = np.lexsort(found)
    given = archive["paper_subject"]
    np.testing.assert_array_equal(found[:, order], given[:, np.lexsort(given)])


@pytest.fixture
def typed() -> dict[str, np.ndarray]:
    matrix = scipy.sparse.csr_array(np.eye(3, 4, dtype=np.float32))
    return {
        "num_a": np.array(2),
        "num_b": np.array(3),
        "a_b": np.array([[0, 1, 1], [0, 0, 2]]),
        "b_labels": np.array([0, 1, -1]),
        "b_feature_values": matrix.data,
        "b_feature_indices": matrix.indices,
        "b_feature_indptr": matrix.indptr,
        "b_feature_shape": np.array([4, 3]),  # as if from a matrix of columns
        "train_idx": np.array([0]),
        "val_idx": np.array([], int),
        "test_idx": np.array([], int),
    }


def test_a_typed_archive(typed, tmp_path):
    np.savez(tmp_path / "t.npz", **typed)
    data = load("t", tmp_path, split="full")
    relations = (("a", "a_b", "b"), ("b", "rev_a_b", "a"))
    assert data.graph.schema == Schema((("a", 2), ("b", 3)), relations)
    assert np.asarray(data.graph.indices).tolist() == [2, 2, 4, 0, 1, 1]
    assert data.labels.tolist() == [-1, -1, 0, 1, -1]
    assert data.train_idx.tolist() == [2, 3]
    assert data.features.widths == (0, 4)
    assert np.asarray(data.features.table("b").indptr).tolist() == [0, 1, 2, 3]
    padded = load("t", tmp_path, features="padded").features
    assert np.asarray(padded.indptr).tolist() == [0, 0, 0, 1, 2, 3]
    dense = {k: v for k, v in typed.items() if "feature" not in k}
    np.savez(tmp_path / "t.npz", **dense, b_features=np.ones((3, 2), np.float32))
    data = load(tmp_path / "t.npz", both_ways=False, features="padded")
    assert data.graph.num_edges == 3
    assert np.asarray(data.features).sum(axis=1).tolist() == [0, 0, 2, 2, 2]
    both = dense | {"a_features": [[3], [1]], "b_features": np.ones((3, 2))}
    np.savez(tmp_path / "t.npz", **both)
    data = load(tmp_path / "t.npz", normalize_features=True)
    assert np.asarray(data.features.table("a")).tolist() == [[1], [1]]
    assert np.asarray(data.features.table("b")).tolist() == [[0.5, 0.5]] * 3
    with pytest.raises(InputError, match=r"equally many .* got a 1, b 2\. Choose a model of"):
        load(tmp_path / "t.npz", features="padded")
    with pytest.raises(InputError, match="must be typed or padded; got 'wide'"):
        load(tmp_path / "t.npz", features="wide")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"num_a": 1.5}, "num_a in"),
        ({"a_b": np.zeros((3, 2), int)}, "a_b must have shape [2, E]; got (3, 2)"),
        ({"a_b": np.array([[2], [0]])}, "src of (a, a_b, b) must be node ids in [0, 2); got 2"),
        ({"b_labels": None}, "must hold the labels of one type, and train_idx, val_idx, test"),
        ({"a_labels": np.zeros(2, int)}, "got labels of a, b"),
        ({"b_labels": np.zeros(2, int)}, "the labels of b in"),
        ({"b_feature_values": None}, "got no ['b_feature_values']"),
        ({"b_feature_shape": np.array([2, 4])}, "must be a sound CSR matrix"),
        ({"num_a": 0}, "must have nodes of the type a; got 0"),
        ({"test_idx": None}, "and train_idx, val_idx, test_idx"),
        ({"train_idx": np.array([3])}, "the train split of t must hold node ids"),
    ],
)
def test_unsound_typed_archives_are_refused(change, says, typed, tmp_path):
    arrays = {k: v for k, v in (typed | change).items() if v is not None}
    np.savez(tmp_path / "t.npz", **arrays)
    with pytest.raises(InputError) as error:
        load("t", tmp_path)
    assert says in str(error.value)
    assert "\n" not in str(error.value)
