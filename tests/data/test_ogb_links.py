"""OGB's link data sets in their raw layout, as excerpts of the same form."""

import numpy as np
import pytest
from folders import cases, edges, in_order, made, refused, write
from torch_files import Tensor, links, torch_pickles, torch_zip

from jgs.data.formats import ogb_links
from jgs.data.plain import load_plain

TRAIN, VAL, TEST = links((0, 1), (1, 2), (1, 2), (3, 3)), links((0, 2)), links((4, 0), (2, 3))
NEG = {"val": links((0, 3), (0, 4)), "test": links((1, 3))}
RAW = {
    "raw/edge.csv.gz": TRAIN,
    "raw/num-node-list.csv.gz": "5\n",
    "raw/node-feat.csv.gz": np.arange(10.0).reshape(5, 2),
    "raw/edge_weight.csv.gz": [1.0, 2.0, 3.0, 4.0],
    "raw/edge_year.csv.gz": [2010, 2011, 2012, 2013],
}
SPLITS = {
    "train": {"edge": TRAIN[[2, 0, 3, 1]][:, ::-1].copy()},  # in another order
    "valid": {"edge": VAL, "edge_neg": NEG["val"]},
    "test": {"edge": TEST, "edge_neg": NEG["test"]},
}
for each, year in zip(SPLITS.values(), (2000, 2020, 2021), strict=True):
    count = len(each["edge"])
    each.update({"year": np.full(count, year), "weight": np.ones(count, np.int64)})


def torch_file(arrays, save=torch_pickles):
    return save({k: v if k in ("year", "weight") else Tensor(v) for k, v in arrays.items()})


def split_files(save, splits):
    """The files of the splits, as `.pt`, `.npz` or tables."""
    for name, arrays in splits.items():
        if save == "csv":
            ends = {"src": arrays["edge"][:, 0], "dst": arrays["edge"][:, 1]}
            flat = {k: v for k, v in arrays.items() if v.ndim == 1}
            yield f"split/time/{name}.csv.gz", ends | flat
        elif save == "npz":
            yield f"split/time/{name}.npz", arrays
        else:
            yield f"split/time/{name}.pt", torch_file(arrays, save)


collab = made("ogbl_collab", RAW | dict(split_files(torch_pickles, SPLITS)))
GIVEN = [
    (0, 1, 0, 2010, 1.0),
    (0, 2, 1, 2020, 1.0),
    (1, 2, 0, 2011, 2.0),
    (1, 2, 0, 2012, 3.0),
    (2, 3, 2, 2021, 1.0),
    (3, 3, 0, 2013, 4.0),
    (4, 0, 2, 2021, 1.0),
]


@pytest.mark.parametrize("save", [torch_zip, torch_pickles, "npz", "csv"])
def test_the_graph_has_the_links_of_all_splits(tmp_path, save):
    folder = write(tmp_path / "ogbl_collab", RAW | dict(split_files(save, SPLITS)))
    plain = load_plain(folder, "data")
    back = [(b, a, *rest) for a, b, *rest in GIVEN if a != b]
    columns = ("split", "edge_time", "edge_weight")
    assert edges(plain, *columns) == sorted(GIVEN + back)
    assert sorted(back) == [e[:-1] for e in edges(plain, *columns, "reverse") if e[-1]]
    assert edges(load_plain(folder, "data", both_ways=False), *columns) == GIVEN
    assert (plain.name, plain.graph.num_nodes) == ("ogbl_collab", 5)
    assert plain.graph.edge_columns["split"].dtype == np.int8
    assert np.asarray(plain.features).tolist() == np.arange(10).reshape(5, 2).tolist()
    if save == "csv":
        assert plain.negatives is None
        return
    for split, pairs in NEG.items():
        assert plain.negatives[split].tolist() == pairs.tolist()
        assert plain.negatives[split].dtype == np.int32


def test_parsed_once_and_again_when_changed(collab, monkeypatch):
    first = load_plain(collab, "data")
    with monkeypatch.context() as patch:
        patch.setattr(ogb_links, "_arrays", None)
        again = load_plain(collab, "data")
    assert edges(again, "split") == edges(first, "split")
    assert again.negatives["val"].tolist() == NEG["val"].tolist()
    write(collab, {"raw/edge_weight.csv.gz": None, "raw/edge_year.csv.gz": None})
    graph = load_plain(collab, "data").graph
    assert graph.edge_time is graph.edge_weight is None


def changed(name, **arrays):
    """The file of a split with other arrays; None leaves one out."""
    kept = {k: v for k, v in (SPLITS[name] | arrays).items() if v is not None}
    return {f"split/time/{name}.pt": torch_file(kept)}


def test_edges_that_are_in_no_split_are_messages(collab):
    write(collab, changed("train", edge=TRAIN[1:2], year=None))
    found = edges(load_plain(collab, "data"), "split", "reverse")
    given = [(0, 1, -1), (0, 2, 1), (1, 2, 0), (1, 2, 0), (2, 3, 2), (3, 3, -1), (4, 0, 2)]
    assert [edge[:3] for edge in found if not edge[-1]] == given


SOURCES = {
    "train": {"source_node": np.array([0]), "target_node": np.array([1])},
    "valid": {"source_node": np.array([4, 2, 3]), "target_node": np.array([1, 1, 0])},
    "test": {"source_node": np.array([2]), "target_node": np.array([3])},
}
SOURCES["valid"]["target_node_neg"] = np.array([[2, 3], [4, 1], [0, 2]])
SOURCES["test"]["target_node_neg"] = np.array([[1, 1]])


def test_links_from_a_source_node_are_judged_against_targets_of_their_own(tmp_path):
    files = {"raw/edge.csv.gz": "0,1\n1,0\n", "raw/num-node-list.csv.gz": "5\n"}
    files |= split_files(torch_pickles, SOURCES)
    folder = write(tmp_path / "citation", files)
    plain = load_plain(folder, "data")
    # The edge from 1 to 0 is in no split: links have a direction.
    expected = [(0, 1, 0), (1, 0, -1), (2, 1, 1), (2, 3, 2), (3, 0, 1), (4, 1, 1)]
    assert edges(plain, "split") == expected
    assert "reverse" not in plain.graph.edge_columns
    assert plain.features is None
    both = load_plain(folder, "data", both_ways=True)
    assert both.graph.num_edges == 12
    for graph, negatives in ((plain.graph, plain.negatives), (both.graph, both.negatives)):
        columns = {name: in_order(graph, c) for name, c in graph.edge_columns.items()}
        links = (columns["split"] == 1) & ~columns.get("reverse", np.zeros(6, bool))
        ends = in_order(graph, graph.edge_index().T)[links]
        assert ends.tolist() == [[4, 1], [2, 1], [3, 0]]
        assert negatives["val"].tolist() == [[2, 3], [4, 1], [0, 2]]
        assert negatives["test"].tolist() == [[1, 1]]


TARGETS = {"edge_neg": None, "target_node_neg": links((9, 0))}


@cases(
    "name, changes, says",
    ("train", {"edge": links((0, 4))}, "must be edges in *raw/edge.csv.gz; got [0, 4], wh"),
    ("valid", {"edge": links((0, 5))}, "valid.pt must be node ids in [0, 5); got 5"),
    ("valid", {"edge": links((-1, 0))}, "valid.pt must be node ids in [0, 5); got -1"),
    (
        "valid",
        {"edge": links((0, 1)) * 1.0},
        "valid.pt must be integers [n, m], ids of nodes; got float64",
    ),
    ("valid", {"edge": None, "head": np.arange(3)}, "source_node and target_node [n]; got"),
    (
        "test",
        {"edge_neg": np.arange(3)},
        "edge_neg in *time/test.pt must be [m, 2]; got int64[3]",
    ),
    ("test", {"edge_neg": links((9, 0))}, "edge_neg in *test.pt must be node ids"),
    ("test", TARGETS, "target_node_neg in *test.pt must be [2, m]; got int64[1, 2]"),
    ("test", {"year": None}, "test.pt must hold year, as raw/edge_year.csv.gz is there"),
    ("test", {"year": np.arange(3)}, "must be [2], one an edge; got int64[3]"),
    ("test", {"year": np.array([1, 2.5])}, "whole number or a date; got 2.5 at edge 6"),
    ("test", {"weight": np.array([1, np.nan])}, "edge weights must be finite"),
)
def test_unsound_data_are_refused_in_a_line(collab, name, changes, says):
    refused(says, load_plain, write(collab, changed(name, **changes)), "data")
    assert not (collab / "jgs").exists()


def test_missing_files_are_named(collab):
    valid = (collab / "split" / "time" / "valid.pt").rename(collab / "valid.pt")
    refused("must hold valid.pt, valid.npz or valid.csv.gz", load_plain, collab, "data")
    valid.rename(collab / "split" / "time" / "valid.pt")
    write(collab, {"raw/num-node-list.csv.gz": None})
    refused("got no *num-node-list.csv.gz", load_plain, collab, "data")
    (collab / "split" / "random").mkdir()
    refused("must hold one folder", load_plain, collab, "data")
