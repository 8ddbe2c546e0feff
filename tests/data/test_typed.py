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
    assert data.features.shape == (graph.num_nodes, 1902)
    values = np.asarray(data.features.values)
    np.testing.assert_array_equal(values, archive["paper_feature_values"])
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
    assert np.asarray(data.features.indptr).tolist() == [0, 0, 0, 1, 2, 3]
    dense = {k: v for k, v in typed.items() if "feature" not in k}
    np.savez(tmp_path / "t.npz", **dense, b_features=np.ones((3, 2), np.float32))
    data = load(tmp_path / "t.npz", both_ways=False)
    assert data.graph.num_edges == 3
    assert np.asarray(data.features).sum(axis=1).tolist() == [0, 0, 2, 2, 2]


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
