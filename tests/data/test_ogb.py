import shutil
from pathlib import Path

import numpy as np
import pytest
from folders import cases, edges, is_mapped, made, refused, rows, rows_of_edges, splits, write

from jgs.data import load
from jgs.data.formats import ogb

NODES, FEATURES = 30, 4
RNG = np.random.default_rng(0)
# 0 -> 1 in both directions, and a loop.
EDGES = np.c_[RNG.integers(0, NODES, (2, 60)), [[0, 1, 1], [1, 0, 1]]]
X = RNG.standard_normal((NODES, FEATURES)).astype(np.float32)
Y = RNG.integers(0, 40, NODES)
SPLITS = {
    "split/time/train.csv.gz": range(10),
    "split/time/valid.csv.gz": range(10, 20),
    "split/time/test.csv.gz": range(20, 30),
}
TEXT = SPLITS | {
    "raw/edge.csv.gz": EDGES.T,
    "raw/node-feat.csv.gz": X,
    "raw/node-label.csv.gz": Y,
    "raw/num-node-list.csv.gz": [NODES],
    "raw/num-edge-list.csv.gz": [EDGES.shape[1]],
}
DATA = {
    "edge_index": EDGES,
    "node_feat": X,
    "node_year": np.zeros((NODES, 1), int),
    "num_nodes_list": np.array([NODES]),
    "num_edges_list": np.array([EDGES.shape[1]]),
}
BINARY = SPLITS | {
    "raw/data.npz": DATA,
    "raw/node-label.npz": {"node_label": Y[:, None].astype(np.float32)},
}
arxiv = made("ogbn_arxiv", TEXT)


def check(dataset, symmetric=True):
    np.testing.assert_array_equal(dataset.features, X)
    np.testing.assert_array_equal(dataset.labels, Y)
    assert splits(dataset) == [[*ids] for ids in SPLITS.values()]
    assert rows(dataset.graph) == rows_of_edges(*EDGES, NODES, symmetric)


@pytest.mark.parametrize("symmetric", [True, False])
def test_text_and_binary_layout(arxiv, tmp_path, symmetric):
    text = load("ogbn-arxiv", tmp_path, symmetric=symmetric)
    folder = write(tmp_path / "papers100M-bin", BINARY)
    (np.savez_compressed if symmetric else np.savez)(folder / "raw" / "data.npz", **DATA)
    binary = load("ogbn-papers100M", tmp_path, symmetric=symmetric)
    for dataset in (text, binary):
        check(dataset, symmetric)
    assert (text.name, text.num_classes, binary.num_classes) == ("ogbn-arxiv", 40, 172)


def test_binary_layout_in_other_types(tmp_path):
    labels = Y.astype(np.float64)
    labels[:5] = np.nan  # unlabelled nodes belong to no split
    changes = {
        "raw/data.npz": DATA | {"node_feat": X.astype(np.float16)},
        "raw/node-label.npz": {"node_label": labels},
        "split/time/train.csv.gz": range(5, 10),
    }
    write(tmp_path / "ogbn_papers100M", BINARY | changes)
    dataset = load("ogbn-papers100M", tmp_path)
    assert dataset.features.dtype == np.float16
    np.testing.assert_array_equal(dataset.features, X.astype(np.float16))
    np.testing.assert_array_equal(dataset.labels[:6], [-1, -1, -1, -1, -1, Y[5]])
    for x in (np.asfortranarray(X), X.astype(np.float64)):
        write(tmp_path / "ogbn_papers100M", BINARY | {"raw/data.npz": DATA | {"node_feat": x}})
        check(load("ogbn-papers100M", tmp_path))


def test_places_and_names(tmp_path):
    for root, place in (("a", "a/ogbn-arxiv"), ("b", "b/arxiv"), ("c", "c")):
        write(tmp_path / place, TEXT)
        check(load("ogbn-arxiv", tmp_path / root))
    dataset = load(tmp_path / "c")
    check(dataset)
    assert (dataset.name, dataset.num_classes) == ("c", Y.max() + 1)
    write(tmp_path / "ogbn_products", TEXT)
    check(load("ogbn-products", tmp_path))
    refused("undirected", load, "ogbn-products", tmp_path, symmetric=False)
    refused(
        "both_ways must be for*with node", load, "ogbn-arxiv", tmp_path / "b", both_ways=False
    )


def test_the_second_load_parses_nothing_and_maps(arxiv, tmp_path, monkeypatch):
    load("ogbn-arxiv", tmp_path)
    monkeypatch.setattr(ogb, "_parse_text", None)
    dataset = load("ogbn-arxiv", tmp_path)
    check(dataset)
    assert is_mapped(dataset.features, arxiv / "jgs" / "features.npy")


def test_the_cache_follows_its_sources(arxiv, tmp_path):
    load("ogbn-arxiv", tmp_path)
    write(arxiv, {"raw/node-label.csv.gz": (Y + 1) % 40})
    np.testing.assert_array_equal(load("ogbn-arxiv", tmp_path).labels, (Y + 1) % 40)
    graph = load("ogbn-arxiv", tmp_path, symmetric=False).graph
    assert rows(graph) == rows_of_edges(*EDGES, NODES, False)
    features = arxiv / "jgs" / "features.npy"
    data = features.read_bytes()
    features.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))  # so it is parsed again
    np.testing.assert_array_equal(load("ogbn-arxiv", tmp_path).features, X)
    load("ogbn-arxiv", tmp_path, cache=str(tmp_path / "elsewhere"))
    assert (tmp_path / "elsewhere" / "graph" / "manifest.json").is_file()


NAN = np.where(np.arange(NODES * FEATURES) == 42, np.nan, 1).reshape(NODES, FEATURES)


@cases(
    "changes, says",
    ({"raw/node-feat.csv.gz": None}, "no raw/node-feat"),
    ({"raw/edge.csv.gz": None}, "neither"),
    ({"raw/data.npz": b""}, "both"),
    ({"split/time/test.csv.gz": None}, "no split/time/test"),
    ({"split/other/test.csv.gz": [1]}, "must hold one folder"),
    ({"raw/edge.csv.gz": [[0, NODES]]}, f"edge.csv.gz must name nodes in [0, {NODES})"),
    ({"raw/edge.csv.gz": [[0, 1, 2]]}, "2 columns"),
    ({"raw/node-feat.csv.gz": X[:-1]}, f"{NODES - 1} rows for {NODES} nodes"),
    ({"raw/node-feat.csv.gz": np.r_[X, X]}, f"{2 * NODES} rows for {NODES} nodes"),
    ({"raw/node-feat.csv.gz": ""}, f"0 rows for {NODES} nodes"),
    ({"raw/node-feat.csv.gz": NAN}, "NaN or infinity in row 10"),
    ({"raw/node-label.csv.gz": Y[:-1]}, "one for every node"),
    ({"raw/node-label.csv.gz": Y + 40}, "[0, 40)"),
    ({"raw/num-node-list.csv.gz": [15, 15]}, "one graph"),
    ({"raw/num-node-list.csv.gz": [2**62]}, "at most 2147483646 nodes"),
    ({"split/time/valid.csv.gz": [NODES]}, "val split"),
)
def test_broken_text_layout(arxiv, tmp_path, changes, says):
    refused(says, load, "ogbn-arxiv", write(arxiv, changes).parent)
    # No half-made folder is kept.
    assert {path.name for path in arxiv.iterdir()} <= {"raw", "split", ".jgs.lock"}


@cases(
    "changes, says",
    ({"edge_index": EDGES[0]}, "integers [2, E]"),
    ({"edge_index": EDGES + 25}, "must name nodes"),
    ({"node_feat": X[1:]}, "one row for every node"),
    ({"node_feat": NAN}, "row 10"),
    ({"node_feat": np.array([{}], dtype=object)}, "without pickles"),
    ({"node_feat": None}, "node_feat"),
    ({}, "node_label"),
)
def test_broken_binary_layout(tmp_path, changes, says):
    files = BINARY | {"raw/data.npz": DATA | changes}
    if not changes:
        files["raw/node-label.npz"] = {"other": Y}
    refused(says, load, "ogbn-papers100M", write(tmp_path / "ogbn_papers100M", files).parent)


@pytest.fixture
def zipped(tmp_path):
    """The archive as it is published."""
    source = write(tmp_path / "source" / "arxiv", TEXT)
    return Path(shutil.make_archive(tmp_path / "arxiv", "zip", source.parent, source.name))


def test_an_archive_is_unpacked_and_downloaded_if_missing(zipped, tmp_path, monkeypatch):
    (site := tmp_path / "site").mkdir()
    shutil.copy(zipped, site)
    with monkeypatch.context() as patch:
        patch.setattr(ogb, "ADDRESS", site.as_uri())
        check(load("ogbn-arxiv", tmp_path / "root"))
    check(load("ogbn-arxiv", tmp_path, download=False))  # the archive was placed by hand
    for root in (tmp_path, tmp_path / "root"):
        assert (root / "ogbn_arxiv" / "raw" / "edge.csv.gz").is_file()
        assert (root / "arxiv.zip.sha256").is_file()


def test_offline_and_unpacked_wrongly(zipped, tmp_path):
    (root := tmp_path / "root").mkdir()
    refused(f"127.0.0.1:9/ogb/arxiv.zip*{root}", load, "ogbn-arxiv", root)
    refused("products.zip into", load, "ogbn-products", root, download=False)
    (tmp_path / "ogbn_arxiv").mkdir()
    refused("a folder without raw/", load, "ogbn-arxiv", tmp_path)


# -- node types --------------------------------------------------------------------------------

AUTHORS, PAPERS = 4, 6
WRITES = np.array([[0, 5], [1, 0], [3, 2], [0, 2]])
CITES = np.array([[1, 0], [5, 4]])
ROWS = RNG.standard_normal((PAPERS, 3)).astype(np.float32)
LABELS = [2, 0, 1, 1, 0, 348]
WRITING, CITING = "raw/relations/author___writes___paper", "raw/relations/paper___cites___paper"
MAG = {
    "raw/num-node-dict.csv.gz": f"author,field,paper\n{AUTHORS},2,{PAPERS}\n",
    "raw/triplet-type-list.csv.gz": "author,writes,paper\npaper,cites,paper\n",
    f"{WRITING}/edge.csv.gz": WRITES,
    f"{WRITING}/num-edge-list.csv.gz": [4],
    f"{WRITING}/edge_reltype.csv.gz": [0, 0, 0, 0],
    f"{CITING}/edge.csv.gz": CITES,
    f"{CITING}/num-edge-list.csv.gz": [2],
    "raw/node-feat/paper/node-feat.csv.gz": ROWS,
    "raw/node-feat/paper/node_year.csv.gz": "2019\n" * PAPERS,
    "raw/nodetype-has-label.csv.gz": "author,field,paper\nFalse,False,True\n",
    "raw/node-label/paper/node-label.csv.gz": LABELS,
    "split/time/nodetype-has-split.csv.gz": "author,field,paper\nFalse,False,True\n",
    "split/time/paper/train.csv.gz": [3, 0],
    "split/time/paper/valid.csv.gz": [5],
    "split/time/paper/test.csv.gz": [1, 4],
}


def test_the_raw_files_of_mag(tmp_path):
    write(tmp_path / "ogbn_mag", MAG)
    (tmp_path / "mag.zip").touch()  # unread: the folder is there
    for data in (load("ogbn-mag", tmp_path), load("ogbn-mag", tmp_path)):  # parsed, then opened
        schema = data.graph.schema
        assert dict(schema.node_types) == {"author": AUTHORS, "field": 2, "paper": PAPERS}
        forward = (("author", "writes", "paper"), ("paper", "cites", "paper"))
        assert schema.relations[:2] == forward
        assert schema.relations[2:] == tuple((b, f"rev_{n}", a) for a, n, b in forward)
        paper = schema.nodes("paper").start
        given = [(a, b + paper, 0) for a, b in WRITES.tolist()]
        given += [(a + paper, b + paper, 1) for a, b in CITES.tolist()]
        back = [(b, a, kind + 2) for a, b, kind in given]
        assert edges(data, "edge_type") == sorted(given + back)
        assert data.features.widths == (0, 0, 3)
        np.testing.assert_array_equal(data.features.table("paper"), ROWS)
        assert data.labels.tolist() == [-1] * paper + LABELS
        assert data.num_classes == 349
        assert splits(data) == [[paper + 3, paper], [paper + 5], [paper + 1, paper + 4]]
    padded = load(tmp_path / "ogbn_mag", features="padded", both_ways=False)
    assert padded.graph.num_edges == 6
    assert np.abs(np.asarray(padded.features[:paper])).max() == 0
    np.testing.assert_array_equal(padded.features[paper:], ROWS)


def test_features_in_a_npy_file_and_a_changed_source(tmp_path):
    load(write(tmp_path, MAG))
    half, feat = 2 * ROWS.astype(np.float16), "raw/node-feat/paper/node-feat"
    data = load(write(tmp_path, {f"{feat}.csv.gz": None, f"{feat}.npy": half}))  # parsed again
    assert data.features.table("paper").dtype == np.float16
    np.testing.assert_array_equal(data.features.table("paper"), half)
    write(tmp_path, {f"{CITING}/edge.csv.gz": CITES[:, ::-1]})
    found = edges(load(tmp_path, both_ways=False), "edge_type")
    assert [edge[0] for edge in found if edge[2] == 1] == [6 + 0, 6 + 4]


@cases(
    "file, text, says",
    ("raw/num-node-dict.csv.gz", "author,paper\n4,0\n", "one node of each type"),
    ("raw/num-node-dict.csv.gz", "author,paper\n4\n", "a line of their counts"),
    ("raw/triplet-type-list.csv.gz", "author,writes,book\n", "'author,writes,book' in"),
    ("raw/triplet-type-list.csv.gz", "author,writes\n", "'author,writes' in line 1"),
    ("raw/triplet-type-list.csv.gz", "author,has,paper\n", "no raw/relations/author___has"),
    (f"{WRITING}/edge.csv.gz", "4,0\n", "name nodes of author in [0, 4); got 4 at"),
    (f"{WRITING}/edge.csv.gz", "1,0\n", "edges as num-edge-list.csv.gz says; got 1"),
    (f"{CITING}/edge.csv.gz", "1,2\n3\n", "row 2"),
    ("raw/node-feat/paper/node-feat.csv.gz", "1,2\n", "one row for every node; got 1 rows"),
    ("raw/node-label/paper/node-label.csv.gz", "1\n", "of their type; got int32[1]"),
    ("split/time/paper/train.csv.gz", "6\n", "train split of mag must hold node ids in"),
    ("split/time/nodetype-has-split.csv.gz", "author,paper\nTrue,False\n", "one node type"),
)
def test_unsound_folders_are_refused(file, text, says, tmp_path):
    folder = write(tmp_path / "mag", MAG | {file: text})
    refused(says, load, folder)
    assert not (folder / "jgs").exists()
