import gzip
import zipfile

import numpy as np
import pytest

from jgs import InputError
from jgs.data import load

AUTHORS, PAPERS = 4, 6
WRITES = np.array([[0, 5], [1, 0], [3, 2], [0, 2]])
CITES = np.array([[1, 0], [5, 4]])
X = np.random.default_rng(0).standard_normal((PAPERS, 3)).astype(np.float32)
Y = [2, 0, 1, 1, 0, 348]
FILES = {
    "raw/num-node-dict.csv.gz": f"author,field,paper\n{AUTHORS},2,{PAPERS}\n",
    "raw/triplet-type-list.csv.gz": "author,writes,paper\npaper,cites,paper\n",
    "raw/relations/author___writes___paper/edge.csv.gz": WRITES,
    "raw/relations/author___writes___paper/num-edge-list.csv.gz": "4\n",
    "raw/relations/author___writes___paper/edge_reltype.csv.gz": "0\n0\n0\n0\n",
    "raw/relations/paper___cites___paper/edge.csv.gz": CITES,
    "raw/relations/paper___cites___paper/num-edge-list.csv.gz": "2\n",
    "raw/node-feat/paper/node-feat.csv.gz": X,
    "raw/node-feat/paper/node_year.csv.gz": "2019\n" * PAPERS,
    "raw/nodetype-has-label.csv.gz": "author,field,paper\nFalse,False,True\n",
    "raw/node-label/paper/node-label.csv.gz": "".join(f"{y}\n" for y in Y),
    "split/time/nodetype-has-split.csv.gz": "author,field,paper\nFalse,False,True\n",
    "split/time/paper/train.csv.gz": "3\n0\n",
    "split/time/paper/valid.csv.gz": "5\n",
    "split/time/paper/test.csv.gz": "1\n4\n",
}


def write(folder, files=FILES):
    for name, table in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not isinstance(table, str):
            table = "".join(",".join(map(repr, row)) + "\n" for row in table.tolist())
        path.write_bytes(gzip.compress(table.encode()))
    return folder


def test_the_raw_files_of_mag(tmp_path):
    write(tmp_path / "ogbn_mag")
    with zipfile.ZipFile(tmp_path / "mag.zip", "w"):  # unread: the folder is there
        pass
    for data in (load("ogbn-mag", tmp_path), load("ogbn-mag", tmp_path)):  # parsed, then opened
        schema = data.graph.schema
        assert dict(schema.node_types) == {"author": AUTHORS, "field": 2, "paper": PAPERS}
        forward = (("author", "writes", "paper"), ("paper", "cites", "paper"))
        assert schema.relations[:2] == forward
        assert schema.relations[2:] == tuple((b, f"rev_{n}", a) for a, n, b in forward)
        row = np.repeat(np.arange(data.graph.num_nodes), np.asarray(data.graph.degrees()))
        paper = schema.nodes("paper").start
        shift = {"writes": [0, paper], "rev_writes": [paper, 0], "cites": [paper, paper]}
        given = {"writes": WRITES, "rev_writes": WRITES[:, ::-1], "cites": CITES}
        for name, edges in given.items():
            at = np.asarray(data.graph.edge_type) == schema.relation(name)
            found = np.stack([np.asarray(data.graph.indices)[at], row[at]], axis=1)
            assert sorted(found.tolist()) == sorted((edges + shift[name]).tolist())
        assert data.features.widths == (0, 0, 3)
        np.testing.assert_array_equal(data.features.table("paper"), X)
        assert data.labels.tolist() == [-1] * paper + Y
        assert data.num_classes == 349
        splits = data.train_idx, data.val_idx, data.test_idx
        assert [(ids - paper).tolist() for ids in splits] == [[3, 0], [5], [1, 4]]
    padded = load(tmp_path / "ogbn_mag", features="padded", both_ways=False)
    assert padded.graph.num_edges == 6
    assert np.abs(np.asarray(padded.features[:paper])).max() == 0
    np.testing.assert_array_equal(padded.features[paper:], X)


def test_features_in_a_npy_file_and_a_changed_source(tmp_path):
    write(tmp_path)
    load(tmp_path)
    feat = tmp_path / "raw" / "node-feat" / "paper"
    (feat / "node-feat.csv.gz").unlink()
    np.save(feat / "node-feat.npy", 2 * X.astype(np.float16))
    data = load(tmp_path)  # parsed again
    assert data.features.table("paper").dtype == np.float16
    np.testing.assert_array_equal(data.features.table("paper"), 2 * X.astype(np.float16))
    changed = FILES | {"raw/relations/paper___cites___paper/edge.csv.gz": CITES[:, ::-1]}
    write(tmp_path, {k: v for k, v in changed.items() if "cites" in k})
    graph = load(tmp_path, both_ways=False).graph
    kind = np.asarray(graph.edge_type) == 1
    assert sorted(np.asarray(graph.indices)[kind].tolist()) == [6 + 0, 6 + 4]


@pytest.mark.parametrize(
    ("file", "text", "says"),
    [
        ("raw/num-node-dict.csv.gz", "author,paper\n4,0\n", "one node of each type"),
        ("raw/num-node-dict.csv.gz", "author,paper\n4\n", "a line of their counts"),
        (
            "raw/triplet-type-list.csv.gz",
            "author,writes,book\n",
            "'author,writes,book' in line",
        ),
        ("raw/triplet-type-list.csv.gz", "author,writes\n", "'author,writes' in line 1"),
        ("raw/triplet-type-list.csv.gz", "author,has,paper\n", "no raw/relations/author___has"),
        (
            "raw/relations/author___writes___paper/edge.csv.gz",
            "4,0\n",
            "name nodes of author in [0, 4); got 4 at position 0",
        ),
        (
            "raw/relations/author___writes___paper/edge.csv.gz",
            "1,0\n",
            "must have as many edges as num-edge-list.csv.gz says; got 1",
        ),
        ("raw/relations/paper___cites___paper/edge.csv.gz", "1,2\n3\n", "row 2"),
        ("raw/node-feat/paper/node-feat.csv.gz", "1,2\n", "one row for every node; got 1 rows"),
        (
            "raw/node-label/paper/node-label.csv.gz",
            "1\n",
            "one for every node of their type; got 1 for 6 nodes",
        ),
        ("split/time/paper/train.csv.gz", "6\n", "train split of mag must hold node ids in"),
        (
            "split/time/nodetype-has-split.csv.gz",
            "author,field,paper\nTrue,False,False\n",
            "one node type in",
        ),
    ],
)
def test_unsound_folders_are_refused(file, text, says, tmp_path):
    write(tmp_path / "mag", FILES | {file: text})
    with pytest.raises(InputError) as caught:
        load(tmp_path / "mag")
    assert says in str(caught.value), str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "mag" / "jgs").exists()
