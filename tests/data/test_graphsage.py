import numpy as np
from folders import cases, made, refused, rows, splits, write

from jgs.data import load
from jgs.data.plain import load_plain

IDS = ["t3_b", "t3_a", "t3_d", "t3_c"]  # their rows are 2, 0, 3, 1; row 4 is of no node
ROW = {"t3_b": 2, "t3_a": 0, "t3_d": 3, "t3_c": 1, "t3_z": 4}
LINKS = [[0, 1], [1, 2], [2, 2]]  # positions in IDS
FEATURES = np.arange(10.0).reshape(5, 2)
# Of the nodes in the order of their rows: t3_a, t3_c, t3_b, t3_d.
EDGES = [[2, 3], [], [0], [0, 3]]
CLASSES = {"t3_a": 0, "t3_b": 1, "t3_c": 2, "t3_d": 1, "t3_z": 0}


def nodes(ids):
    """The first is for training, the second for validation, the others for the test."""
    return [{"id": i, "val": n == 1, "test": n > 1, "label": [n]} for n, i in enumerate(ids)]


def links(pairs):
    return [{"source": a, "target": b, "train_removed": False} for a, b in pairs]


GRAPH = {"directed": False, "graph": {"name": "g"}, "multigraph": False, "nodes": nodes(IDS)}
GRAPH |= {"links": links(LINKS)}
FILES = {
    "reddit-G.json": GRAPH,
    "reddit-id_map.json": ROW,
    "reddit-class_map.json": CLASSES,
    "reddit-feats.npy": FEATURES,
}
folder = made("data", FILES)


def graph(**changes):
    return {"reddit-G.json": {k: v for k, v in (GRAPH | changes).items() if v is not None}}


def node(**changes):
    return graph(
        nodes=[node | changes if at == 2 else node for at, node in enumerate(nodes(IDS))]
    )


@cases(
    "changes",
    {},
    graph(links=None, edges=links([[IDS[a], IDS[b]] for a, b in LINKS])),
    graph(links=links([*LINKS, [1, 0]])),
)
def test_both_conventions_of_networkx(folder, changes):
    write(folder, changes)
    for data in (load(folder), load(folder / "reddit-G.json"), load_plain(folder, "data")):
        assert data.name == "reddit"
        assert rows(data.graph) == EDGES
        np.testing.assert_array_equal(data.features, FEATURES[:4])
        assert data.labels.tolist() == [0, 2, 1, 1]
        assert splits(data) == [[2], [0], [1, 3]]
        assert data.node_ids[np.arange(4)].tolist() == ["t3_a", "t3_c", "t3_b", "t3_d"]
        assert data.node_ids.nodes(["t3_d"]) == [3]
    write(folder, graph(directed=True))
    assert rows(load(folder).graph) == [[2], [], [], [0, 3]]
    assert rows(load(folder, symmetric=True).graph) == EDGES


def integer_ids(folder, order, classes):
    """The files of nodes whose ids are integers, in the order of their rows."""
    ids = {str(name): row for row, name in enumerate(order)}
    maps = {"reddit-id_map.json": ids, "reddit-class_map.json": classes}
    return write(folder, maps | graph(nodes=nodes(order)))


def test_integers_as_ids(folder):
    classes = {"0": [1, 0], "1": [0, 1], "2": [1, 1], "3": [0, 0]}
    data = load(integer_ids(folder, [0, 1, 2, 3], classes))
    assert data.node_ids is None  # each node's id is its row
    assert (data.multilabel, data.labels.dtype) == (True, np.float32)
    assert data.labels.tolist() == list(classes.values())
    assert rows(data.graph) == [[1], [0, 2], [1, 2], []]
    np.testing.assert_array_equal(data.features, FEATURES[:4])


def test_integers_that_are_ids_and_positions_are_told_apart_by_an_option(folder):
    order = [3, 2, 1, 0]
    integer_ids(folder, order, dict.fromkeys("0123", 0))
    refused("the option ends must say *; got None, where both", load, folder)
    assert rows(load(folder, ends="positions").graph) == [[1], [0, 2], [1, 2], []]
    assert rows(load(folder, ends="ids").graph) == [[], [1, 2], [1, 3], [2]]
    assert load(folder, ends="ids").node_ids[[0, 3]].tolist() == [3, 0]
    refused("the option ends must be ids or positions; got 'id'", load, folder, ends="id")
    write(folder, graph(nodes=nodes(order), links=[]))
    assert load(folder).graph.num_edges == 0
    write(folder, graph(nodes=nodes(order), links=links([[1, 4]])))
    refused("ids or all positions* its 4 nodes; got 4.", load, folder)
    refused("must be ids of* its 4 nodes; got 4.", load, folder, ends="ids")


def test_features_may_be_missing_or_standardized(folder):
    np.testing.assert_array_equal(  # one node trains, so that columns have no deviation
        load(folder, standardize=True).features, FEATURES[:4] - FEATURES[2]
    )
    (folder / "reddit-feats.npy").unlink()
    assert load(folder, standardize=True).features.shape == (4, 0)


def test_several_prefixes(folder):
    write(folder, {f"toy{name[6:]}": content for name, content in FILES.items()})
    refused("got 2 of them", load, folder)
    assert load(folder / "toy-G.json").name == "toy"


LIST_OF_LINKS = "must have a list links, each with a source and a target"
A_NODE = "must have an id, and val and test, true or false and not both true; got "
NO_POSITION = "the ends of links in * must be all ids or all positions of its 4 nodes; got "


@cases(
    "changes, says",
    ({"reddit-id_map.json": None}, "got no reddit-id_map.json. Put"),
    (graph(nodes=None), "must have a list nodes; got None"),
    (graph(links=None), LIST_OF_LINKS + "; got N"),
    (graph(links=[{"source": 0}]), LIST_OF_LINKS),
    (graph(links=links([[0, 4]])), NO_POSITION + "4."),
    (graph(links=links([[-1, 0]])), NO_POSITION + "-1."),
    (graph(links=links([[0, [1]]])), NO_POSITION + "[1]."),
    (graph(links=links([[0, True]])), NO_POSITION + "True."),
    (graph(links=links([["t3_z", 0]])), NO_POSITION + "'t3_z'."),
    (graph(links=links([["t3_a", 0]])), NO_POSITION + "some of each."),
    (graph(nodes=["t3_a"]), A_NODE + "'t3_a'"),
    (node(val=None), A_NODE + "{'id': 't3_d', 'label': [2], "),
    (node(val=True), A_NODE + "{'id': 't3_d', 'label': [2], "),
    (node(id=1.5), A_NODE),
    (node(id="t3_b"), "must have an id and a row of its own; got row 2 twice"),
    (node(id="t3_e"), "reddit-id_map.json must name every node; got no node 't3_e'"),
    ({"reddit-id_map.json": ROW | {"t3_a": 5}}, "reddit-feats.npy in [0, 5); got 5"),
    ({"reddit-id_map.json": ROW | {"t3_a": 2**70}}, "the rows in"),
    ({"reddit-class_map.json": CLASSES | {"t3_c": 0.5}}, "must be whole numbers; got 0.5"),
)
def test_unsound_files_are_refused(folder, changes, says):
    refused(says, load, write(folder, changes))
