"""OGB's link data sets in their raw layout, as excerpts of the same form."""

import gzip

import numpy as np
import pandas
import pytest
from torch_files import Tensor, links, torch_pickles, torch_zip

from jgs import InputError
from jgs.data.formats import ogb_links
from jgs.data.plain import load_plain

TRAIN, VAL, TEST = links((0, 1), (1, 2), (1, 2), (3, 3)), links((0, 2)), links((4, 0), (2, 3))
NEG = {"val": links((0, 3), (0, 4)), "test": links((1, 3))}
YEARS, WEIGHTS = [2010, 2011, 2012, 2013], [1.0, 2.0, 3.0, 4.0]


def put(path, data):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(data.encode()) if isinstance(data, str) else data)


def text(rows):
    lines = (",".join(map(str, np.atleast_1d(row).tolist())) for row in rows)
    return "".join(f"{line}\n" for line in lines)


@pytest.fixture
def collab(tmp_path):
    """Writes a folder like ogbl-collab's; `save` makes the files of the splits."""

    def write(save=torch_pickles, beside=True, **changes):
        folder = tmp_path / "ogbl_collab"
        put(folder / "raw" / "edge.csv.gz", text(TRAIN))
        put(folder / "raw" / "num-node-list.csv.gz", "5\n")
        put(folder / "raw" / "node-feat.csv.gz", text(np.arange(10.0).reshape(5, 2)))
        splits = {
            "train": {"edge": TRAIN[[2, 0, 3, 1]][:, ::-1].copy()},  # in another order
            "valid": {"edge": VAL, "edge_neg": NEG["val"]},
            "test": {"edge": TEST, "edge_neg": NEG["test"]},
        }
        if beside:
            put(folder / "raw" / "edge_weight.csv.gz", text(WEIGHTS))
            put(folder / "raw" / "edge_year.csv.gz", text(YEARS))
            for arrays, year in zip(splits.values(), (2000, 2020, 2021), strict=True):
                count = len(arrays["edge"])
                arrays |= {"year": np.full(count, year), "weight": np.ones(count, np.int64)}
        for name, arrays in splits.items():
            arrays |= changes.get(name, {})
            arrays = {k: v for k, v in arrays.items() if v is not None}
            path = folder / "split" / "time" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if save == np.savez:
                np.savez(path, **arrays)
            elif save == "csv":
                edge = arrays.pop("edge")
                columns = {"src": edge[:, 0], "dst": edge[:, 1]}
                flat = {k: v for k, v in arrays.items() if v.ndim == 1}
                pandas.DataFrame(columns | flat).to_csv(f"{path}.csv.gz", index=False)
            else:
                some = {k: Tensor(v) if "edge" in k else v for k, v in arrays.items()}
                put(path.with_suffix(".pt"), save(some))
        return folder

    return write


def edges(graph, *names):
    fields = {"edge_time": graph.edge_time, "edge_weight": graph.edge_weight}
    columns = [np.asarray((fields | graph.edge_columns)[name]).tolist() for name in names]
    return sorted(zip(*graph.edge_index().tolist(), *columns, strict=True))


GIVEN = [
    (0, 1, 0, 2010, 1.0),
    (0, 2, 1, 2020, 1.0),
    (1, 2, 0, 2011, 2.0),
    (1, 2, 0, 2012, 3.0),
    (2, 3, 2, 2021, 1.0),
    (3, 3, 0, 2013, 4.0),
    (4, 0, 2, 2021, 1.0),
]


@pytest.mark.parametrize("save", [torch_zip, torch_pickles, np.savez, "csv"])
def test_the_graph_has_the_links_of_all_splits(collab, save):
    folder = collab(save)
    plain = load_plain(folder, "data")
    back = [(b, a, *rest) for a, b, *rest in GIVEN if a != b]
    columns = ("split", "edge_time", "edge_weight")
    assert edges(plain.graph, *columns) == sorted(GIVEN + back)
    assert sorted(back) == [e[:-1] for e in edges(plain.graph, *columns, "reverse") if e[-1]]
    assert edges(load_plain(folder, "data", both_ways=False).graph, *columns) == GIVEN
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
    folder = collab()
    first = load_plain(folder, "data")
    with monkeypatch.context() as patch:
        patch.setattr(ogb_links, "_arrays", None)
        again = load_plain(folder, "data")
    assert edges(again.graph, "split") == edges(first.graph, "split")
    assert again.negatives["val"].tolist() == NEG["val"].tolist()
    collab(beside=False)
    (folder / "raw" / "edge_weight.csv.gz").unlink()
    (folder / "raw" / "edge_year.csv.gz").unlink()
    graph = load_plain(folder, "data").graph
    assert graph.edge_time is graph.edge_weight is None


def test_edges_that_are_in_no_split_are_messages(collab):
    graph = load_plain(collab(train={"edge": TRAIN[1:2], "year": None}), "data").graph
    given = [edge for edge in edges(graph, "split", "reverse") if not edge[-1]]
    assert [edge[:3] for edge in given] == [
        *[(0, 1, -1), (0, 2, 1), (1, 2, 0), (1, 2, 0), (2, 3, 2), (3, 3, -1), (4, 0, 2)]
    ]


@pytest.mark.parametrize("save", [torch_zip, torch_pickles])
def test_links_from_a_source_node_are_judged_against_targets_of_their_own(tmp_path, save):
    folder = tmp_path / "citation"
    put(folder / "raw" / "edge.csv.gz", "0,1\n1,0\n")
    put(folder / "raw" / "num-node-list.csv.gz", "5\n")
    negatives = {
        "valid": np.array([[2, 3], [4, 1], [0, 2]]),
        "test": np.array([[1, 1]]),
    }
    ends = {"train": ([0], [1]), "valid": ([4, 2, 3], [1, 1, 0]), "test": ([2], [3])}
    for name, (source, target) in ends.items():
        arrays = {"source_node": np.array(source), "target_node": np.array(target)}
        if name in negatives:
            arrays["target_node_neg"] = negatives[name]
        tensors = {key: Tensor(array) for key, array in arrays.items()}
        put(folder / "split" / "time" / f"{name}.pt", save(tensors))
    plain = load_plain(folder, "data")
    # The edge from 1 to 0 is in no split: links have a direction.
    expected = [(0, 1, 0), (1, 0, -1), (2, 1, 1), (2, 3, 2), (3, 0, 1), (4, 1, 1)]
    assert edges(plain.graph, "split") == expected
    assert "reverse" not in plain.graph.edge_columns
    assert plain.features is None
    both = load_plain(folder, "data", both_ways=True)
    assert both.graph.num_edges == 12
    for graph, found in ((plain.graph, plain.negatives), (both.graph, both.negatives)):
        of_split = np.asarray(graph.edge_columns["split"]) == 1
        if "reverse" in graph.edge_columns:
            of_split &= ~np.asarray(graph.edge_columns["reverse"])
        at = np.flatnonzero(of_split)
        at = at[np.argsort(np.asarray(graph.edge_order)[at])]
        assert graph.edge_index()[:, at].tolist() == list(map(list, ends["valid"]))
        assert found["val"].tolist() == negatives["valid"].tolist()
        assert found["test"].tolist() == negatives["test"].tolist()


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (
            {"train": {"edge": links((0, 4))}},
            "must be edges in {raw}/edge.csv.gz; got [0, 4], wh",
        ),
        ({"valid": {"edge": links((0, 5))}}, "valid.pt must be node ids in [0, 5); got 5"),
        ({"valid": {"edge": links((-1, 0))}}, "valid.pt must be node ids in [0, 5); got -1"),
        ({"valid": {"edge": links((0, 1)) * 1.0}}, "valid.pt must be node ids; got float64"),
        (
            {"valid": {"edge": None, "head": np.arange(3)}},
            "source_node and target_node [n]; got",
        ),
        ({"test": {"edge_neg": np.arange(3)}}, "edge_neg in {split}/test.pt must be ['m', 2]"),
        ({"test": {"edge_neg": links((9, 0))}}, "edge_neg in {split}/test.pt must be node ids"),
        (
            {"test": {"edge_neg": None, "target_node_neg": links((9, 0))}},
            "target_node_neg in {split}/test.pt must be [2, 'm']; got (1, 2)",
        ),
        ({"test": {"year": None}}, "test.pt must hold year, as raw/edge_year.csv.gz is there"),
        (
            {"test": {"year": np.array([1, 2, 3])}},
            "one number for each of 2 edges; got shape [3]",
        ),
        ({"test": {"year": np.array([1, 2.5])}}, "whole number or a date; got 2.5 at edge 6"),
        ({"test": {"weight": np.array([1, np.nan])}}, "edge weights must be finite"),
    ],
)
def test_unsound_data_are_refused_in_a_line(collab, changes, says):
    folder = collab(**changes)
    with pytest.raises(InputError) as caught:
        load_plain(folder, "data")
    expected = says.format(raw=folder / "raw", split=folder / "split" / "time")
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (folder / "jgs").exists()


def test_missing_files_are_named(collab):
    folder = collab()
    (folder / "split" / "time" / "valid.pt").unlink()
    with pytest.raises(InputError, match=r"must hold valid\.pt, valid\.npz or valid\.csv\.gz"):
        load_plain(folder, "data")
    (folder / "raw" / "num-node-list.csv.gz").unlink()
    collab()
    (folder / "raw" / "num-node-list.csv.gz").unlink()
    with pytest.raises(InputError, match=r"got no .*num-node-list\.csv\.gz"):
        load_plain(folder, "data")
    (folder / "split" / "random").mkdir()
    with pytest.raises(InputError, match="must hold one folder"):
        load_plain(folder, "data")
