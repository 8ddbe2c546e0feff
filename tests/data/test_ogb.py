import gzip
import http.server
import threading
import zipfile
from functools import partial

import numpy as np
import pytest

from jgs import InputError
from jgs.data import load
from jgs.data.formats import ogb

NODES, FEATURES = 30, 4
RNG = np.random.default_rng(0)
# 0 -> 1 in both directions, and a loop.
EDGES = np.c_[RNG.integers(0, NODES, (2, 60)), [[0, 1, 1], [1, 0, 1]]]
X = RNG.standard_normal((NODES, FEATURES)).astype(np.float32)
Y = RNG.integers(0, 40, NODES)
SPLIT = {"train": np.arange(10), "valid": np.arange(10, 20), "test": np.arange(20, 30)}


def write_csv(path, table, fmt):
    path.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(path, "wt") as file:
        np.savetxt(file, table, fmt, delimiter=",")


def write_splits(folder, kind="time"):
    for name, ids in SPLIT.items():
        write_csv(folder / "split" / kind / f"{name}.csv.gz", ids, "%d")


def write_text(folder):
    write_csv(folder / "raw" / "edge.csv.gz", EDGES.T, "%d")
    write_csv(folder / "raw" / "node-feat.csv.gz", X, "%.9g")
    write_csv(folder / "raw" / "node-label.csv.gz", Y, "%d")
    write_csv(folder / "raw" / "num-node-list.csv.gz", [NODES], "%d")
    write_csv(folder / "raw" / "num-edge-list.csv.gz", [EDGES.shape[1]], "%d")
    write_splits(folder)
    return folder


def write_binary(folder, save=np.savez, x=X):
    (folder / "raw").mkdir(parents=True)
    save(
        folder / "raw" / "data.npz",
        edge_index=EDGES,
        node_feat=x,
        node_year=np.zeros((NODES, 1), int),
        num_nodes_list=np.array([NODES]),
        num_edges_list=np.array([EDGES.shape[1]]),
    )
    np.savez(folder / "raw" / "node-label.npz", node_label=Y[:, None].astype(np.float32))
    write_splits(folder)
    return folder


def rows(graph):
    return [
        r.tolist() for r in np.split(np.asarray(graph.indices), np.asarray(graph.indptr)[1:-1])
    ]


def expected_rows(symmetric):
    pairs = list(zip(*EDGES.tolist(), strict=True))
    if symmetric:
        pairs = {(u, v) for u, v in pairs if u != v}
        pairs |= {(v, u) for u, v in pairs}
    return [sorted(u for u, v in pairs if v == node) for node in range(NODES)]


def check(dataset, symmetric=True):
    np.testing.assert_array_equal(dataset.features, X)
    np.testing.assert_array_equal(dataset.labels, Y)
    np.testing.assert_array_equal(dataset.train_idx, SPLIT["train"])
    np.testing.assert_array_equal(dataset.val_idx, SPLIT["valid"])
    np.testing.assert_array_equal(dataset.test_idx, SPLIT["test"])
    assert rows(dataset.graph) == expected_rows(symmetric)


@pytest.mark.parametrize("symmetric", [True, False])
def test_text_layout(tmp_path, symmetric):
    write_text(tmp_path / "ogbn_arxiv")
    dataset = load("ogbn-arxiv", tmp_path, symmetric=symmetric)
    check(dataset, symmetric)
    assert (dataset.name, dataset.num_classes) == ("ogbn-arxiv", 40)


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_binary_layout(tmp_path, symmetric, save):
    write_binary(tmp_path / "papers100M-bin", save)
    dataset = load("ogbn-papers100M", tmp_path, symmetric=symmetric)
    check(dataset, symmetric)
    assert dataset.num_classes == 172


def test_binary_layout_in_other_types(tmp_path):
    folder = write_binary(tmp_path / "ogbn_papers100M", x=X.astype(np.float16))
    labels = Y.astype(np.float64)
    labels[:5] = np.nan  # unlabelled nodes belong to no split
    np.savez(folder / "raw" / "node-label.npz", node_label=labels)
    write_csv(folder / "split" / "time" / "train.csv.gz", np.arange(5, 10), "%d")
    dataset = load("ogbn-papers100M", tmp_path)
    assert dataset.features.dtype == np.float16
    np.testing.assert_array_equal(dataset.labels[:6], [-1, -1, -1, -1, -1, Y[5]])
    for i, x in enumerate([np.asfortranarray(X), X.astype(np.float64)]):
        write_binary(tmp_path / str(i) / "ogbn_papers100M", x=x)
        check(load("ogbn-papers100M", tmp_path / str(i)))


def test_products_is_undirected(tmp_path):
    write_text(tmp_path / "ogbn_products")
    check(load("ogbn-products", tmp_path))
    with pytest.raises(InputError, match="undirected"):
        load("ogbn-products", tmp_path, symmetric=False)


@pytest.mark.parametrize("place", ["ogbn_arxiv", "ogbn-arxiv", "arxiv", "."])
def test_places(tmp_path, place):
    write_text(tmp_path / place)
    check(load("ogbn-arxiv", tmp_path))


def test_any_folder_by_path(tmp_path):
    write_text(tmp_path / "mine")
    dataset = load(tmp_path / "mine")
    check(dataset)
    assert (dataset.name, dataset.num_classes) == ("mine", Y.max() + 1)


def test_the_second_load_parses_nothing_and_maps(tmp_path, monkeypatch):
    folder = write_text(tmp_path / "ogbn_arxiv")
    load("ogbn-arxiv", tmp_path)
    monkeypatch.setattr(ogb, "_parse_text", None)
    dataset = load("ogbn-arxiv", tmp_path)
    check(dataset)
    pointer = dataset.features.unsafe_buffer_pointer()
    with open("/proc/self/maps") as maps:
        spans = [line.split() for line in maps if str(folder / "jgs" / "features.npy") in line]
    assert any(
        int(span[0].split("-")[0], 16) <= pointer < int(span[0].split("-")[1], 16)
        for span in spans
    )


def test_the_cache_follows_its_sources(tmp_path):
    folder = write_text(tmp_path / "ogbn_arxiv")
    load("ogbn-arxiv", tmp_path)
    write_csv(folder / "raw" / "node-label.csv.gz", (Y + 1) % 40, "%d")
    np.testing.assert_array_equal(load("ogbn-arxiv", tmp_path).labels, (Y + 1) % 40)
    assert rows(load("ogbn-arxiv", tmp_path, symmetric=False).graph) == expected_rows(False)
    features = folder / "jgs" / "features.npy"
    features.write_bytes(features.read_bytes()[:-8])  # cut short, so it is parsed again
    np.testing.assert_array_equal(load("ogbn-arxiv", tmp_path).features, X)
    load("ogbn-arxiv", tmp_path, cache=str(tmp_path / "elsewhere"))
    assert (tmp_path / "elsewhere" / "graph" / "manifest.json").is_file()


def test_a_foreign_folder_is_not_replaced(tmp_path):
    folder = write_text(tmp_path / "ogbn_arxiv")
    (folder / "jgs").mkdir()
    (folder / "jgs" / "mine").write_text("keep")
    with pytest.raises(InputError, match="folder that jgs wrote"):
        load("ogbn-arxiv", tmp_path)
    assert (folder / "jgs" / "mine").read_text() == "keep"


@pytest.mark.parametrize("key", [None, "{}", "[" * 100_000])
def test_a_cache_with_something_of_the_users_is_not_replaced(key, tmp_path):
    folder = write_text(tmp_path / "ogbn_arxiv")
    load("ogbn-arxiv", tmp_path, cache=tmp_path / "kept")
    (tmp_path / "kept" / "mine").write_text("keep")
    if key is not None:
        (tmp_path / "kept" / "source.json").write_text(key)
    write_csv(folder / "raw" / "node-label.csv.gz", (Y + 1) % 40, "%d")
    with pytest.raises(InputError, match="nothing was added to"):
        load("ogbn-arxiv", tmp_path, cache=tmp_path / "kept")
    assert (tmp_path / "kept" / "mine").read_text() == "keep"


def test_a_flipped_bit_in_the_cache_does_not_change_the_data(tmp_path, caplog):
    folder = write_text(tmp_path / "ogbn_arxiv")
    load("ogbn-arxiv", tmp_path)
    files = ("graph/indices.npy", "graph/indptr.npy", "features.npy", "labels.npy")
    for file in (*files, "train_idx.npy"):
        path = folder / "jgs" / file
        data = bytearray(path.read_bytes())
        data[-8] ^= 1
        path.write_bytes(data)
        caplog.clear()
        check(load("ogbn-arxiv", tmp_path))
        assert f"another checksum in {file}" in caplog.text


def csv(file, table, fmt="%d"):
    return lambda f: write_csv(f / file, table, fmt)


NAN = np.where(np.arange(NODES * FEATURES) == 42, np.nan, 1).reshape(NODES, FEATURES)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda f: (f / "raw" / "node-feat.csv.gz").unlink(), "no raw/node-feat"),
        (lambda f: (f / "raw" / "edge.csv.gz").unlink(), "neither"),
        (lambda f: (f / "raw" / "data.npz").touch(), "both"),
        (lambda f: (f / "split" / "time" / "test.csv.gz").unlink(), "no split/time/test"),
        (lambda f: write_splits(f, "other"), "must hold one folder"),
        (
            csv("raw/edge.csv.gz", [[0, NODES]]),
            rf"edge\.csv\.gz must name nodes in \[0, {NODES}\)",
        ),
        (csv("raw/edge.csv.gz", [[0, 1, 2]]), "2 columns"),
        (csv("raw/edge.csv.gz", [[0.5, 1]], "%.1f"), "int64"),
        (csv("raw/node-feat.csv.gz", X[:-1], "%g"), f"{NODES - 1} rows for {NODES} nodes"),
        (csv("raw/node-feat.csv.gz", np.r_[X, X], "%g"), f"{2 * NODES} rows for {NODES} nodes"),
        (csv("raw/node-feat.csv.gz", NAN, "%g"), "NaN or infinity in row 10"),
        (csv("raw/node-label.csv.gz", Y[:-1]), "one for every node"),
        (csv("raw/node-label.csv.gz", Y + 40), r"\[0, 40\)"),
        (csv("raw/num-node-list.csv.gz", [15, 15]), "one graph"),
        (csv("raw/num-node-list.csv.gz", [2**62]), "at most 2147483646 nodes"),
        (csv("split/time/train.csv.gz", []), "train split of ogbn-arxiv must not be empty"),
        (csv("split/time/valid.csv.gz", [NODES]), "val split"),
    ],
)
def test_broken_text_layout(tmp_path, change, message):
    folder = write_text(tmp_path / "ogbn_arxiv")
    change(folder)
    with pytest.raises(InputError, match=message) as caught:
        load("ogbn-arxiv", tmp_path)
    assert "\n" not in str(caught.value)
    assert not (folder / "jgs").exists()  # no half-made folder is kept
    assert not (folder / ".jgs.new").exists()


@pytest.mark.parametrize(
    "file", ["raw/edge.csv.gz", "raw/node-feat.csv.gz", "raw/node-label.csv.gz"]
)
def test_cut_text_files(tmp_path, file):
    folder = write_text(tmp_path / "ogbn_arxiv")
    whole = (folder / file).read_bytes()
    for cut in (0, 15, len(whole) - 1):
        (folder / file).write_bytes(whole[:cut])
        if cut == 0 and file == "raw/edge.csv.gz":
            continue  # a graph without edges is still a graph
        with pytest.raises(InputError):
            load("ogbn-arxiv", tmp_path)


def test_broken_binary_layout(tmp_path, may_refuse):
    folder = write_binary(tmp_path / "ogbn_papers100M")
    data, good = folder / "raw" / "data.npz", dict(np.load(folder / "raw" / "data.npz"))
    for change, message in [
        ({"edge_index": EDGES[0]}, r"integers \[2, E\]"),
        ({"edge_index": EDGES * 1.0}, r"integers \[2, E\]"),
        ({"edge_index": EDGES + 25}, "must name nodes"),
        ({"node_feat": X[1:]}, "one row for every node"),
        ({"node_feat": NAN}, "row 10"),
        ({"node_feat": np.array([{}], dtype=object)}, "without pickles"),
        ({"num_nodes_list": np.array([15, 15])}, "one graph"),
        ({"num_nodes_list": np.array([1.5])}, "one graph"),
    ]:
        np.savez(data, **(good | change))
        with pytest.raises(InputError, match=message) as caught:
            load("ogbn-papers100M", tmp_path)
        assert "\n" not in str(caught.value)
    np.savez(data, **{k: v for k, v in good.items() if k != "node_feat"})
    with pytest.raises(InputError, match="node_feat"):
        load("ogbn-papers100M", tmp_path)
    np.savez_compressed(data, **good)
    whole = data.read_bytes()
    for position in np.random.default_rng(0).integers(0, len(whole), 60):
        damaged = bytearray(whole)
        damaged[position] ^= 0xFF
        data.write_bytes(damaged)
        with may_refuse():
            load("ogbn-papers100M", tmp_path)
    np.savez(data, **good)
    np.savez(folder / "raw" / "node-label.npz", other=Y)
    with pytest.raises(InputError, match="node_label"):
        load("ogbn-papers100M", tmp_path)


def zipped(tmp_path, target):
    write_text(tmp_path / "source" / "arxiv")
    with zipfile.ZipFile(target, "w") as file:
        for path in (tmp_path / "source").rglob("*"):
            file.write(path, path.relative_to(tmp_path / "source"))


def test_an_archive_placed_by_hand_is_unpacked(tmp_path):
    root = tmp_path / "root"
    root.mkdir()
    zipped(tmp_path, root / "arxiv.zip")
    check(load("ogbn-arxiv", root, download=False))
    assert (root / "ogbn_arxiv" / "raw" / "edge.csv.gz").is_file()
    assert (root / "arxiv.zip.sha256").is_file()


def test_a_missing_data_set_is_downloaded(tmp_path, monkeypatch):
    (tmp_path / "site").mkdir()
    zipped(tmp_path, tmp_path / "site" / "arxiv.zip")
    handler = partial(http.server.SimpleHTTPRequestHandler, directory=tmp_path / "site")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        monkeypatch.setattr(ogb, "ADDRESS", f"http://127.0.0.1:{server.server_port}")
        try:
            check(load("ogbn-arxiv", tmp_path / "root"))
        finally:
            server.shutdown()
            thread.join()


def test_offline_and_unpacked_wrongly(tmp_path):
    with pytest.raises(
        InputError, match=rf"127\.0\.0\.1:9/ogb/arxiv\.zip.*{tmp_path}"
    ) as caught:
        load("ogbn-arxiv", tmp_path)
    assert "\n" not in str(caught.value)
    with pytest.raises(InputError, match=r"products\.zip into"):
        load("ogbn-products", tmp_path, download=False)
    zipped(tmp_path, tmp_path / "arxiv.zip")
    (tmp_path / "ogbn_arxiv").mkdir()
    with pytest.raises(InputError, match="a folder without raw/"):
        load("ogbn-arxiv", tmp_path)


def test_the_real_addresses():
    assert {k: v.zip_name for k, v in ogb.PUBLISHED.items()} == {
        "ogbn-arxiv": "arxiv.zip",
        "ogbn-products": "products.zip",
        "ogbn-papers100M": "papers100M-bin.zip",
    }
