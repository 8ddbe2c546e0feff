import json

import numpy as np
import pytest

from jgs import InputError
from jgs.data import load
from jgs.data.plain import load_plain

IDS = ["t3_b", "t3_a", "t3_d", "t3_c"]  # their rows are 2, 0, 3, 1; row 4 is of no node
ROW = {"t3_b": 2, "t3_a": 0, "t3_d": 3, "t3_c": 1, "t3_z": 4}
LINKS = [[0, 1], [1, 2], [2, 2]]  # positions in IDS
FEATURES = np.arange(10.0).reshape(5, 2)
# Of the nodes in the order of their rows: t3_a, t3_c, t3_b, t3_d.
EDGES = [[2, 3], [], [0], [0, 3]]
CLASSES = {"t3_a": 0, "t3_b": 1, "t3_c": 2, "t3_d": 1, "t3_z": 0}


def write(folder, ids=IDS, rows=ROW, links=LINKS, classes=CLASSES, key="links", **graph):
    """The first node is for training, the second for validation, the others for the test."""
    folder.mkdir(exist_ok=True)
    nodes = [{"id": i, "val": n == 1, "test": n > 1, "label": [n]} for n, i in enumerate(ids)]
    ends = [{"source": a, "target": b, "train_removed": False} for a, b in links]
    found = {"directed": False, "graph": {"name": "g"}, "multigraph": False, "nodes": nodes}
    put(folder, "G", found | {key: ends} | graph)
    put(folder, "id_map", {str(name): row for name, row in rows.items()})
    put(folder, "class_map", {str(name): label for name, label in classes.items()})
    np.save(folder / "reddit-feats.npy", FEATURES)
    return folder


def put(folder, part, value):
    (folder / f"reddit-{part}.json").write_text(json.dumps(value))


def get(folder, part):
    return json.loads((folder / f"reddit-{part}.json").read_text())


def rows(graph):
    found = np.split(np.asarray(graph.indices), np.asarray(graph.indptr)[1:-1])
    return [sorted(row.tolist()) for row in found]


@pytest.fixture
def folder(tmp_path):
    return write(tmp_path / "data")


def named(pairs):
    return [[IDS[a], IDS[b]] for a, b in pairs]


@pytest.mark.parametrize("key", ["links", "edges"])
@pytest.mark.parametrize("links", [LINKS, named(LINKS), [*LINKS, [1, 0]]])
def test_both_conventions_of_networkx(tmp_path, links, key):
    folder = write(tmp_path / "data", links=links, key=key)
    for data in (load(folder), load(folder / "reddit-G.json"), load_plain(folder, "data")):
        assert data.name == "reddit"
        assert rows(data.graph) == EDGES
        np.testing.assert_array_equal(data.features, FEATURES[:4])
        assert data.labels.tolist() == [0, 2, 1, 1]
        splits = data.train_idx, data.val_idx, data.test_idx
        assert [ids.tolist() for ids in splits] == [[2], [0], [1, 3]]
        assert data.node_ids[np.arange(4)].tolist() == ["t3_a", "t3_c", "t3_b", "t3_d"]
        assert data.node_ids.nodes(["t3_d"]) == [3]


def test_directed_links_stay_so(tmp_path):
    folder = write(tmp_path / "data", directed=True)
    assert rows(load(folder).graph) == [[2], [], [], [0, 3]]
    assert rows(load(folder, symmetric=True).graph) == EDGES


def test_integers_as_ids(tmp_path):
    ids = {0: 0, 1: 1, 2: 2, 3: 3}
    classes = {0: [1, 0], 1: [0, 1], 2: [1, 1], 3: [0, 0]}
    folder = write(tmp_path / "data", list(ids), ids, classes=classes)
    data = load(folder)
    assert data.node_ids is None  # each node's id is its row
    assert data.multilabel
    assert data.labels.tolist() == [[1, 0], [0, 1], [1, 1], [0, 0]]
    assert rows(data.graph) == [[1], [0, 2], [1, 2], []]
    np.testing.assert_array_equal(data.features, FEATURES[:4])


def test_integers_that_are_ids_and_positions_are_told_apart_by_an_option(tmp_path):
    ids, classes = {3: 0, 2: 1, 1: 2, 0: 3}, dict.fromkeys(range(4), 0)
    folder = write(tmp_path / "data", list(ids), ids, classes=classes)
    with pytest.raises(InputError, match=r"the option ends must say .*; got None, where both"):
        load(folder)
    assert rows(load(folder, ends="positions").graph) == [[1], [0, 2], [1, 2], []]
    assert rows(load(folder, ends="ids").graph) == [[], [1, 2], [1, 3], [2]]
    assert load(folder, ends="ids").node_ids[[0, 3]].tolist() == [3, 0]
    with pytest.raises(InputError, match="the option ends must be ids or positions; got 'id'"):
        load(folder, ends="id")
    put(folder, "G", get(folder, "G") | {"links": []})
    assert load(folder).graph.num_edges == 0
    put(folder, "G", get(folder, "G") | {"links": [{"source": 1, "target": 4}]})
    for options, says in [({}, "ids or all positions"), ({"ends": "ids"}, "must be ids of")]:
        with pytest.raises(InputError, match=says + r".* its 4 nodes; got 4\."):
            load(folder, **options)


def test_features_may_be_missing_or_standardized(folder):
    np.testing.assert_array_equal(  # one node trains, so that columns have no deviation
        load(folder, standardize=True).features, FEATURES[:4] - FEATURES[2]
    )
    (folder / "reddit-feats.npy").unlink()
    assert load(folder, standardize=True).features.shape == (4, 0)


def test_several_prefixes(folder):
    for part in ("G", "id_map", "class_map"):
        (folder / f"toy-{part}.json").write_text((folder / f"reddit-{part}.json").read_text())
    with pytest.raises(InputError, match="got 2 of them"):
        load(folder)
    assert load(folder / "toy-G.json").name == "toy"


def graph(**changes):
    return lambda folder: put(folder, "G", get(folder, "G") | changes)


def node(**changes):
    def change(folder):
        found = get(folder, "G")
        found["nodes"][2] = {**found["nodes"][2], **changes}
        put(folder, "G", found)

    return change


def entry(part, **changes):
    return lambda folder: put(folder, part, get(folder, part) | changes)


def without(part, name):
    def change(folder):
        found = get(folder, part)
        del found[name]
        put(folder, part, found)

    return change


def features(array, **options):
    return lambda folder: np.save(folder / "reddit-feats.npy", array, **options)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda f: (f / "reddit-id_map.json").unlink(), "got no reddit-id_map.json. Put"),
        (lambda f: (f / "reddit-class_map.json").unlink(), "got no reddit-class_map.json. Put"),
        (
            lambda f: (f / "reddit-G.json").write_text("{nodes"),
            "reddit-G.json must be whole JSON, an object; got ",
        ),
        (lambda f: (f / "reddit-G.json").write_bytes(b"\xff{}"), "reddit-G.json must be whole"),
        (lambda f: put(f, "G", [1]), "reddit-G.json must be whole JSON, an object; got a list"),
        (lambda f: put(f, "G", {"links": []}), "must have a list nodes; got None"),
        (
            without("G", "links"),
            "must have a list links, each with a source and a target; got N",
        ),
        (
            graph(links=[{"source": 0}]),
            "must have a list links, each with a source and a target",
        ),
        (graph(links=[[0, 1]]), "must have a list links, each with a source and a target"),
        (graph(links=[{"source": 0, "target": 4}]), "positions of its 4 nodes; got 4."),
        (graph(links=[{"source": -1, "target": 0}]), "positions of its 4 nodes; got -1."),
        (graph(links=[{"source": 0, "target": 1.0}]), "positions of its 4 nodes; got 1.0."),
        (graph(links=[{"source": 0, "target": [1]}]), "positions of its 4 nodes; got [1]."),
        (graph(links=[{"source": 0, "target": True}]), "positions of its 4 nodes; got True."),
        (
            graph(links=[{"source": "t3_z", "target": 0}]),
            "positions of its 4 nodes; got 't3_z'.",
        ),
        (graph(links=[{"source": "t3_a", "target": 0}]), "of its 4 nodes; got some of each."),
        (
            graph(nodes=["t3_a"]),
            "must have an id, and val and test, true or false and not both",
        ),
        (node(val=None), "true or false and not both true; got {'id': 't3_d', 'label': [2], "),
        (node(val=True), "true or false and not both true; got {'id': 't3_d', 'label': [2], "),
        (node(test="no"), "true or false and not both true; got {'id': 't3_d', 'label': [2], "),
        (node(id=1.5), "must have an id, and val and test"),
        (node(id=None), "must have an id, and val and test"),
        (node(id="t3_b"), "must have an id and a row of its own; got row 2 twice"),
        (node(id="t3_e"), "reddit-id_map.json must name every node; got no node 't3_e'"),
        (entry("id_map", t3_a=5), "reddit-feats.npy in [0, 5); got 5"),
        (entry("id_map", t3_a=-1), "reddit-feats.npy in [0, 5); got -1"),
        (entry("id_map", t3_a=2), "must have an id and a row of its own; got row 2 twice"),
        (entry("id_map", t3_a="0"), "the rows in"),
        (entry("id_map", t3_a=[0]), "the rows in"),
        (entry("id_map", t3_a=2**70), "the rows in"),
        (
            without("class_map", "t3_c"),
            "reddit-class_map.json must name every node; got no node",
        ),
        (entry("class_map", t3_c=[1]), "got 1 for node 't3_b' and [1] for node 't3_c'"),
        (entry("class_map", t3_c=0.5), "must be whole numbers; got 0.5"),
        (features(np.ones((3, 2))), "reddit-feats.npy in [0, 3); got 3"),
        (features(np.ones(5)), "reddit-feats.npy must be a matrix of numbers [N, F]"),
        (features(np.full((5, 2), np.nan)), "must be finite; got NaN or infinity in row 0"),
        (features(np.full((5, 2), None), allow_pickle=True), "NumPy .npy file without pickles"),
    ],
)
def test_unsound_files_are_refused(folder, change, says):
    change(folder)
    with pytest.raises(InputError) as caught:
        load(folder)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)
