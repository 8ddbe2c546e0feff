import json

import numpy as np
import pytest
import scipy.sparse

from jgs import InputError
from jgs.data import load
from jgs.data.plain import load_plain
from jgs.train.__main__ import main

# A ring both ways, a self-loop at 5 and an edge 0 -> 3 that goes one way; its entry is 0.
SRC = np.array([0, 1, 2, 3, 4, 5, 1, 2, 3, 4, 5, 0, 5, 0])
DST = np.array([1, 2, 3, 4, 5, 0, 0, 1, 2, 3, 4, 5, 5, 3])
ROWS = [[1, 5], [0, 2], [1, 3], [0, 2, 4], [3, 5], [0, 4, 5]]
BOTH = [[1, 3, 5], [0, 2], [1, 3], [0, 2, 4], [3, 5], [0, 4, 5]]
FEATURES = np.c_[np.arange(6.0), [5, 5, 5, 7, 7, 7], np.eye(6, 1)]
CLASSES = [2, 0, 1, 1, 0, 2]
LABELS = [[1, 0, 1], [0, 0, 0], [0, 1, 0], [1, 1, 1], [0, 0, 1], [1, 0, 0]]
ROLES = {"tr": [5, 0, 1], "va": [2], "te": [4, 3]}
NAMES = ["3", "0", "5", "1", "4", "2"]  # a class map has any order


def adjacency(kind=scipy.sparse.csr_matrix):
    ones = np.ones(SRC.size)
    ones[-1] = 0
    return kind(scipy.sparse.coo_matrix((ones, (SRC, DST)), (6, 6)))


def write(folder, classes=CLASSES):
    folder.mkdir(parents=True, exist_ok=True)
    scipy.sparse.save_npz(folder / "adj_full.npz", adjacency())
    scipy.sparse.save_npz(folder / "adj_train.npz", adjacency()[:3, :3])
    np.save(folder / "feats.npy", FEATURES)
    class_map = {name: classes[int(name)] for name in NAMES}
    (folder / "class_map.json").write_text(json.dumps(class_map))
    (folder / "role.json").write_text(json.dumps(ROLES))
    return folder


@pytest.fixture
def folder(tmp_path):
    return write(tmp_path / "flickr")


def rows(graph):
    found = np.split(np.asarray(graph.indices), np.asarray(graph.indptr)[1:-1])
    return [sorted(row.tolist()) for row in found]


def test_what_is_in_a_folder(folder, tmp_path):
    for data in (load(folder), load("flickr", tmp_path), load_plain(folder, "data")):
        assert data.name == "flickr"
        assert rows(data.graph) == ROWS
        np.testing.assert_array_equal(data.features, FEATURES)
        assert data.labels.tolist() == CLASSES
        splits = data.train_idx, data.val_idx, data.test_idx
        assert [ids.tolist() for ids in splits] == [[5, 0, 1], [2], [4, 3]]
    assert load(folder).num_classes == 3
    assert rows(load(folder, symmetric=True).graph) == BOTH


def test_lists_of_classes_are_labels(tmp_path):
    data = load(write(tmp_path / "yelp", LABELS))
    assert data.multilabel
    assert data.labels.dtype == np.float32
    assert data.labels.tolist() == LABELS


def test_a_node_may_have_no_role(folder):
    before = load(folder)
    in_json("role.json", va=[])(folder)
    assert load(folder).val_idx.size == 0
    np.testing.assert_array_equal(load(folder).train_idx, before.train_idx)


def test_pyg_s_folder_raw(tmp_path):
    write(tmp_path / "Flickr" / "raw")
    data = load(tmp_path / "Flickr")
    assert (data.name, rows(data.graph)) == ("Flickr", ROWS)


@pytest.mark.parametrize("kind", ["csc_matrix", "coo_matrix", "csr_array"])
def test_every_form_of_a_matrix(folder, kind):
    kind = getattr(scipy.sparse, kind)
    scipy.sparse.save_npz(folder / "adj_full.npz", adjacency(kind))
    assert rows(load(folder).graph) == ROWS


def test_entries_that_come_twice_are_parallel_edges(folder):
    twice = scipy.sparse.coo_matrix((np.ones(2, bool), ([0, 0], [1, 1])), (6, 6))
    scipy.sparse.save_npz(folder / "adj_full.npz", twice)
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


def in_json(file, **changes):
    def change(folder):
        value = json.loads((folder / file).read_text()) | changes
        kept = {k: v for k, v in value.items() if v != "gone"}
        (folder / file).write_text(json.dumps(kept))

    return change


def text(file, content):
    return lambda folder: (folder / file).write_text(content)


def matrix(**arrays):
    def change(folder):
        given = {"format": b"csr", "shape": [6, 6], "data": [1], "indices": [1]}
        np.savez(folder / "adj_full.npz", **given | {"indptr": [0, *[1] * 6]} | arrays)

    return change


def features(array, **options):
    return lambda folder: np.save(folder / "feats.npy", array, **options)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            lambda f: (f / "adj_full.npz").unlink(),
            "must hold adj_full.npz, feats.npy, class_map.json, role.json; got no adj_full.npz",
        ),
        (lambda f: (f / "feats.npy").unlink(), "got no feats.npy"),
        (lambda f: (f / "class_map.json").unlink(), "got no class_map.json"),
        (lambda f: (f / "role.json").unlink(), "got no role.json"),
        (
            in_json("role.json", va="gone"),
            "must have lists tr, va and te of node ids; got no va",
        ),
        (in_json("role.json", va=[6]), "must hold node ids in [0, 6); got 6 at position 0"),
        (in_json("role.json", va=[-1]), "must hold node ids in [0, 6); got -1 at position 0"),
        (
            in_json("role.json", va=[2, 5]),
            "must name each node at most once, in tr, va or te; got 2 at",
        ),
        (
            in_json("role.json", va=[2, 2]),
            "must name each node at most once, in tr, va or te; got 2 at",
        ),
        (in_json("role.json", va=["2"]), "must be a one-dimensional array of node ids"),
        (in_json("role.json", va=[2.0]), "must be a one-dimensional array of node ids"),
        (in_json("role.json", va={"2": 1}), "must be a one-dimensional array of node ids"),
        (in_json("role.json", va=[2**70]), "must be a one-dimensional array of node ids"),
        (in_json("role.json", va=[[2], [1, 0]]), "must have lists tr, va and te of node ids"),
        (text("role.json", '{"tr": [0'), "role.json must be whole JSON, an object; got "),
        (text("role.json", "[" * 99999), "role.json must be whole JSON, an object; got "),
        (text("role.json", "[1]"), "role.json must be whole JSON, an object; got a list."),
        (text("class_map.json", "'0': 1"), "class_map.json must be whole JSON, an object"),
        (in_json("class_map.json", **{"4": "gone"}), "must name every node; got no node '4'"),
        (in_json("class_map.json", **{"6": 1}), "must name nodes in [0, 6); got '6'"),
        (in_json("class_map.json", **{"-1": 1}), "must name nodes in [0, 6); got '-1'"),
        (
            in_json("class_map.json", **{"3": [0, 1]}),
            "as many 0 and 1 in a list; got 2 for node '0' and [0, 1] for node '3'",
        ),
        (in_json("class_map.json", **{"3": None}), "node 3, which has none (-1)"),
        (in_json("class_map.json", **{"3": "x"}), "class_map.json must give every node"),
        (in_json("class_map.json", **{"3": 1.5}), "must be whole numbers; got 1.5 at node 3"),
        (in_json("class_map.json", **{"3": 2**70}), "must be whole numbers"),
        (in_json("class_map.json", **{"3": -1}), "node 3, which has none (-1)"),
        (features(np.ones((5, 2))), "role.json must hold node ids in [0, 5); got 5"),
        (
            features(np.ones((7, 2))),
            "class_map.json must name every node; got no node '6'",
        ),
        (features(np.ones(6)), "feats.npy must be a matrix of numbers [N, F]; got float64[6]"),
        (features(np.full((6, 2), np.nan)), "must be finite; got NaN or infinity in row 0"),
        (
            features(np.full((6, 2), None), allow_pickle=True),
            "feats.npy must be a whole NumPy .npy file without pickles",
        ),
        (
            lambda f: scipy.sparse.save_npz(
                f / "adj_full.npz", scipy.sparse.eye(7, format="csr")
            ),
            "a row and a column for each of 6 nodes; got shape [7, 7]",
        ),
        (matrix(shape=[6, 7]), "a row and a column for each of 6 nodes; got shape [6, 7]"),
        (matrix(indices=[6]), "the edges in"),
        (matrix(indptr=[0, 2, 1, 1, 1, 1, 1]), "must be a sound CSR matrix"),
        (matrix(shape=6), "must be a sound CSR matrix"),
        (matrix(format=b"dia"), "in the format csr, csc or coo; got dia with"),
        (matrix(format=[b"csr", b"coo"]), "in the format csr, csc or coo; got"),
        (matrix(format=b"c\nr"), "in the format csr, csc or coo; got c r with"),
        (matrix(format="coo", row=[0], col=[6]), "must hold a sound coo matrix"),
        (matrix(format="coo", row=[0], col=[1], shape=[-1, 6]), "must hold a sound coo matrix"),
        (
            matrix(data=np.array([None])),
            "adj_full.npz must be a whole NumPy .npz archive without",
        ),
        (text("adj_full.npz", "x"), "adj_full.npz must be a whole NumPy .npz archive without"),
    ],
)
def test_unsound_folders_are_refused(folder, change, says):
    change(folder)
    with pytest.raises(InputError) as caught:
        load(folder)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ([0, 1], "got [1, 0, 1] for node '0' and [0, 1] for node '3'"),
        (1, "got [1, 0, 1] for node '0' and 1 for node '3'"),
        ([0, 2, 0], "must be 0 or 1; got [0. 2. 0.] at node 3"),
        ([0, [1], 0], "class_map.json must give every node"),
        ([0, "x", 0], "class_map.json must give every node"),
    ],
)
def test_unsound_lists_of_labels_are_refused(tmp_path, value, says):
    folder = write(tmp_path / "yelp", LABELS)
    in_json("class_map.json", **{"3": value})(folder)
    with pytest.raises(InputError) as caught:
        load(folder)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_command_trains_on_several_labels(tmp_path, capsys):
    folder = write(tmp_path / "ppi", LABELS)
    flags = "--epochs 1 --fanouts 2 2 --hidden 4 --batch-size 3 --no-progress"
    options = ["--data-options", "standardize=true", "symmetric=true"]
    run = ["--dataset", str(folder), "--run-dir", str(tmp_path / "run"), *options]
    assert main([*run, *flags.split()]) == 0
    out, err = capsys.readouterr()
    result = json.loads(out)
    assert result["metric"] == "micro-F1"
    assert 0 <= result["test_accuracy"] <= 1
    assert "val micro-F1" in err
