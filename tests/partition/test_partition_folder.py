"""The folder of parts has the graph under new ids, appears whole or not, and has an id."""

import dataclasses
import errno
import json
import shutil
from itertools import pairwise
from pathlib import Path

import jax
import numpy as np
import pytest
from cases import cases
from hypothesis import example, given, settings
from hypothesis import strategies as st
from made_parts import make_data, write
from mapped import is_mapped
from refusals import refused

from jgs import Graph, InputError, NodeIds, SparseFeatures
from jgs.data.parts import open_parts, part_name
from jgs.data.plain import Plain, load_plain
from jgs.dist import RankParts, rank_loader
from jgs.dist.communicators.comm import Alone
from jgs.files import storage
from jgs.files.storage import ArrayFile
from jgs.partition import write_parts
from jgs.partition.__main__ import main
from jgs.partition.balance import edge_cut, in_neighbors
from jgs.partition.nodes import partition_nodes


def rows(graph):
    """The in-edges of each node: sources and all other columns, in order."""
    indptr = np.asarray(graph.indptr)
    fields = [np.asarray(f) for f in jax.tree.leaves(graph)[1:]]
    return [[f[a:b].tolist() for f in fields] for a, b in pairwise(indptr)]


def dense(features):
    sparse = isinstance(features, SparseFeatures)
    return features.to_scipy().toarray() if sparse else np.asarray(features)


def check_isomorphic(data, folder, num_parts, assignment):
    parts = open_parts(folder)
    old = parts.original_ids
    assert np.sort(old).tolist() == list(range(data.graph.num_nodes))
    # Part by part; inside a part in the order of the data set.
    np.testing.assert_array_equal(old, np.argsort(assignment, kind="stable"))
    np.testing.assert_array_equal(
        parts.owner(np.arange(old.size)), assignment[old], err_msg="owner"
    )
    expected, found = rows(data.graph), rows(parts.graph)
    for new in range(old.size):
        sources, *weights = found[new]
        assert [old[sources].tolist(), *weights] == expected[old[new]]
    np.testing.assert_array_equal(parts.labels, data.labels[old])
    for name in ("val_idx", "test_idx"):
        ids = getattr(parts, name)
        assert ids.dtype == np.int32
        assert (np.diff(ids) > 0).all()
        np.testing.assert_array_equal(np.sort(old[ids]), np.sort(getattr(data, name)))
    opened = [parts.part(p) for p in range(num_parts)]
    features = np.concatenate([dense(p.features) for p in opened])
    np.testing.assert_array_equal(features, dense(data.features)[old])
    for p in opened:
        assert p.features.shape == (p.last - p.first, 5)
        assert type(p.features) is type(data.features)
        assert (np.diff(p.train_idx) > 0).all()
        if isinstance(p.features, SparseFeatures):  # one program for all ranks
            assert p.features.max_row == data.features.max_row
        else:
            assert p.features.dtype == np.float16
    sizes = [p.train_idx.size for p in opened]
    assert max(sizes) - min(sizes) <= 1
    train = np.concatenate([p.train_idx for p in opened])
    np.testing.assert_array_equal(np.sort(old[train]), np.sort(data.train_idx))
    for first in range(num_parts):
        for last in range(first + 1, num_parts + 1):
            local = rows(parts.local_graph(first, last))
            seeds = np.concatenate([p.train_idx for p in opened[first:last]])
            own = np.arange(parts.offsets[first], parts.offsets[last])
            held = np.union1d(own, seeds)
            for node in range(old.size):
                assert local[node] == (found[node] if node in held else [[]] * len(found[node]))
    return parts


@settings(max_examples=25, deadline=None)
@example(20, 60, 3, 0, False, True, False)  # some seeds train on another part than their own
@given(
    st.integers(2, 20), st.integers(0, 60), st.integers(1, 4), st.integers(0, 99),
    st.booleans(), st.booleans(), st.booleans(),
)  # fmt: skip
def test_parts_are_the_same_graph(tmp_path_factory, n, e, p, seed, sparse, weighted, multi):
    data = make_data(n, e, seed, sparse, weighted, multi)
    assignment = np.random.default_rng(seed).integers(0, p, n)  # some parts may be empty
    folder = tmp_path_factory.mktemp("parts")
    write(folder, data, p, assignment)
    check_isomorphic(data, folder, p, assignment)


@pytest.mark.parametrize("num_parts", [1, 3])
def test_nodes_and_edges_keep_their_types(tmp_path, num_parts):
    rng = np.random.default_rng(1)
    counts, writes = {"author": 20, "paper": 30, "venue": 0}, ("author", "writes", "paper")
    edges = {
        ("paper", "cites", "paper"): rng.integers(0, 30, (2, 60)),
        writes: (rng.integers(0, 20, 50), rng.integers(0, 30, 50)),
    }
    graph = Graph.from_relations(counts, edges, both_ways=True)
    data = dataclasses.replace(make_data(50, 0), graph=graph)
    assignment = rng.integers(0, num_parts, 50)
    write(tmp_path / "parts", data, num_parts, assignment)
    parts = open_parts(tmp_path / "parts")
    old, schema = parts.original_ids, parts.schema
    assert schema.node_types == graph.schema.node_types
    assert schema.relations == graph.schema.relations
    np.testing.assert_array_equal(schema.numbers(np.arange(50)), graph.schema.numbers(old))
    authors = [i for ids in schema.ranges("author") for i in ids]
    assert np.sort(old[authors]).tolist() == list(range(20))
    if num_parts == 1:
        assert schema == graph.schema
    else:
        refused("got 3, one in each part of a partitioned graph", schema.nodes, "author")
    whole = parts.graph
    assert whole.schema == parts.local_graph(0, 1).schema == schema
    # Every edge has a relation that joins the types of its ends.
    Graph(whole.indptr, whole.indices, edge_type=whole.edge_type, schema=schema)
    papers = np.array([i for ids in schema.ranges("paper") for i in ids])
    of_papers = (("author", 0), ("paper", 30), ("venue", 0))
    assert whole.subgraph(papers).schema.node_types == of_papers
    # Parts of parts: within each part the types are no longer in order.
    again = dataclasses.replace(data, graph=whole)
    write(tmp_path / "again", again, 2, np.arange(50) % 2)
    assert (open_parts(tmp_path / "again").schema is None) == (num_parts > 1)


def test_the_manifest_says_what_is_there(tmp_path):
    data = make_data(400, 4000, weighted=False)
    splits = {k: getattr(data, k) for k in ("train_idx", "val_idx", "test_idx")}
    assignment = partition_nodes(data.graph, 4, **splits)
    written = write(tmp_path / "parts", data, 4, assignment, seed=7)
    parts = open_parts(tmp_path / "parts")
    file = tmp_path / "parts" / "manifest.json"
    assert parts.manifest == written == json.loads(file.read_text())
    assert (parts.name, parts.num_classes, written["seed"]) == ("made", 3, 7)
    assert (parts.num_nodes, parts.num_edges, parts.num_parts) == (400, 4000, 4)
    # The cut and the counts, recomputed from the files.
    owner = parts.owner(np.arange(400))
    assert written["edge_cut"] == pytest.approx(edge_cut(in_neighbors(parts.graph), owner))
    for p, said in enumerate(written["parts"]):
        part = parts.part(p)
        own = np.arange(part.first, part.last)
        degree = np.diff(np.asarray(parts.graph.indptr))[own]
        assert said["nodes"] == own.size
        assert said["edges"] == degree.sum()
        assert said["val"] == np.isin(parts.val_idx, own).sum()
        assert said["test"] == np.isin(parts.test_idx, own).sum()
        assert said["seeds"] == part.train_idx.size
        assert said["foreign_seeds"] == np.count_nonzero(parts.owner(part.train_idx) != p)
        files = (tmp_path / "parts" / part_name(p)).iterdir()
        assert said["bytes"] == sum(f.stat().st_size for f in files)
    for name, share in written["balance"].items():
        counts = np.array([said[name] for said in written["parts"]])
        assert share == pytest.approx(counts.max() / counts.mean())


def test_everything_is_memory_mapped(tmp_path, same_bits):
    data = make_data(100, 3000)
    write(tmp_path / "parts", data, 2)
    parts = open_parts(tmp_path / "parts", verify=False)
    same_bits(parts.local_graph(0, 2), parts.graph)
    part, local = parts.part(1), parts.local_graph(1, 2)
    assert isinstance(part.train_idx, np.memmap)
    assert isinstance(parts.original_ids, np.memmap)
    if local.indices.platform() == "cpu":
        assert is_mapped(local.indices, f"{part_name(1)}/indices.npy")
        assert is_mapped(part.features, f"{part_name(1)}/features.npy")


def test_parts_that_do_not_exist(tmp_path):
    """A rank whose topology is split needs no more than its own part and what is shared."""
    write(tmp_path / "parts", make_data(50, 300), 3)
    parts = open_parts(tmp_path / "parts")
    for index in (-1, 3):
        refused("holds the parts 0 to 2", parts.part, index)
    for first, last in ((0, 4), (1, 1), (-1, 2)):
        refused("must lie within the 3", parts.local_graph, first, last)
    for name in ("graph", part_name(0), part_name(2)):
        shutil.rmtree(tmp_path / "parts" / name)
    parts = open_parts(tmp_path / "parts")
    assert parts.local_graph(1, 2).num_nodes == 50
    for missing in (lambda: parts.part(0), lambda: parts.graph):
        refused("must hold the folder", missing)


def test_two_partitions_have_two_ids(tmp_path):
    data = make_data(50, 300)
    ids = {write(tmp_path / "a", data, 3, seed=seed)["parts_id"] for seed in (0, 0, 1)}
    assert len(ids) == 2
    changed = make_data(50, 300)
    changed.labels[7] ^= 1
    assert write(tmp_path / "a", changed, 3)["parts_id"] not in ids


FULL = OSError(errno.ENOSPC, "No space left")


@cases(
    "at, error", (0, FULL), (8, FULL), (8, KeyboardInterrupt()), (25, FULL)
)  # graph, a part's features, last part
def test_a_full_disk_or_ctrl_c_leaves_the_old_parts(tmp_path, monkeypatch, at, error):
    folder = tmp_path / "parts"
    before = write(folder, make_data(50, 300), 3)
    calls, append = [], ArrayFile.append

    def refuse(file, piece):
        calls.append(file)
        if len(calls) == at + 1:
            raise error
        append(file, piece)

    monkeypatch.setattr(ArrayFile, "append", refuse)
    with pytest.raises((InputError, KeyboardInterrupt)) as raised:
        write(folder, make_data(60, 300), 3)
    if isinstance(error, OSError):
        assert "No space left" in str(raised.value)
    monkeypatch.undo()
    assert [p.name for p in tmp_path.iterdir()] == ["parts"]
    assert open_parts(folder).parts_id == before["parts_id"]
    check_isomorphic(make_data(50, 300), folder, 3, np.random.default_rng(0).integers(0, 3, 50))


def test_parts_replace_parts_and_nothing_else(tmp_path):
    folder = tmp_path / "parts"
    write(folder, make_data(50, 300), 3)
    last = write(folder, make_data(60, 300), 2)
    assert open_parts(folder).parts_id == last["parts_id"]
    assert sorted(p.name for p in folder.iterdir()) == [
        "graph", "manifest.json", "part-00000", "part-00001", "shared",
    ]  # fmt: skip
    assert [p.name for p in tmp_path.iterdir()] == ["parts"]
    for strange in (folder / "notes.txt", folder / "part-00000" / "mine.npy"):
        strange.write_text("mine")
        with pytest.raises(InputError, match=strange.name):
            write(folder, make_data(50, 300), 3)
        strange.unlink()
    make_data(50, 300).graph.save(tmp_path / "graph")
    with pytest.raises(InputError, match=r"must not exist, be empty, or be a jgs\.parts"):
        write(tmp_path / "graph", make_data(50, 300), 3)


def of_others(path):
    """The folder `path` of other parts takes its place."""
    other = path.parents[1] / "other"
    write(other, make_data(50, 300, seed=1), 3)
    shutil.rmtree(path)
    (other / path.name).rename(path)


def change(path, changed):
    path.write_bytes(changed(path.read_bytes()))


def flip(path):
    change(path, lambda content: content[:-1] + bytes([content[-1] ^ 1]))


def cut(path):
    change(path, lambda content: content[:-4])


def edit(path):
    change(path, lambda content: content.replace(b'"num_nodes": 50', b'"num_nodes": 51'))


FEATURES, INDICES = f"{part_name(1)}/features.npy", f"{part_name(1)}/indices.npy"
DAMAGE = [
    (of_others, part_name(1), "part-00001 must belong to the parts"),
    (of_others, "graph", "graph must belong to the parts"),
    (flip, FEATURES, "features.npy must have the manifest's checksum"),
    (cut, INDICES, "part-00001 must hold every array"),
    (edit, "manifest.json", "manifest.json must be whole"),
    (cut, "manifest.json", "manifest.json must be whole"),
    (shutil.rmtree, "shared", "must hold the folder shared"),
    (shutil.rmtree, part_name(1), "must hold the folder part-00001"),
    (Path.unlink, "manifest.json", "must be a folder of parts"),
    (shutil.rmtree, "", "must be a folder of parts"),
]


def open_all(folder):
    parts = open_parts(folder)
    assert parts.graph.num_nodes == 50
    parts.part(1)


@pytest.mark.parametrize(("damage", "name", "said"), DAMAGE)
def test_damage_is_named(tmp_path, damage, name, said):
    folder = tmp_path / "parts"
    write(folder, make_data(50, 300), 3)
    damage(folder / name)
    with pytest.raises(InputError, match=said) as error:
        open_all(folder)
    if folder.exists():  # a folder not marked as jgs's is never replaced
        assert f"after moving {folder}" in str(error.value)
        folder.rename(tmp_path / "away")
    write(folder, make_data(50, 300), 3)
    open_all(folder)


def test_without_verify_sizes_are_checked_still(tmp_path):
    folder = tmp_path / "parts"
    write(folder, make_data(50, 300), 3)
    flip(folder / FEATURES)
    open_parts(folder, verify=False).part(1)
    cut(folder / INDICES)
    refused("must hold every array", open_parts(folder, verify=False).part, 1)


def test_verified_once_files_are_read_again_only_where_they_changed(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder, read, hash_of = tmp_path / "parts", [], storage.sha256
    write(folder, make_data(50, 300), 3)
    monkeypatch.setattr(storage, "sha256", lambda path: read.append(path) or hash_of(path))

    def reads(index=1):
        read.clear()
        parts = open_parts(folder, "once")
        assert parts.graph.num_nodes == 50
        parts.part(index)
        return sum(path.suffix == ".npy" for path in map(Path, read))

    assert reads() > 10
    assert reads() == 0
    assert reads(2) > 0  # only the files of another part
    notes = tmp_path / "cache" / "jgs" / "whole"
    monkeypatch.setattr(storage, "_MOST_NOTES", most := len([*notes.iterdir()]) + 2)
    write(folder.with_name("others"), make_data(50, 300), 3)
    open_parts(folder.with_name("others"), "once").part(0)
    assert len([*notes.iterdir()]) <= most
    monkeypatch.setattr(storage, "_MOST_NOTES", 1000)
    assert reads() > 0  # the oldest were forgotten
    assert reads() == 0
    flip(folder / FEATURES)
    for _ in range(2):  # damaged files are not remembered
        refused("checksum", reads)
    write(folder, make_data(50, 300), 3)  # the same bytes, in other files
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/none")  # no result can be remembered
    assert reads() == reads() > 10


RNG = np.random.default_rng(0)
ENDS = RNG.integers(0, 60, (2, 400))


def edges(graph, names):
    """A tuple for each edge: the names of its ends, the time, and the columns; sorted."""
    columns = [np.asarray(column).tolist() for _, column in sorted(graph.edge_columns.items())]
    times = [] if graph.edge_time is None else [np.asarray(graph.edge_time).tolist()]
    return sorted(zip(*names[graph.edge_index()].tolist(), *times, *columns, strict=True))


def partition(tmp_path, capsys, path, *options):
    out = tmp_path / "parts"
    arguments = ["--dataset", str(path), "--parts", "3", "--out", str(out)]
    arguments += ["--data-options", *options] if options else []
    assert main(arguments) == 0, capsys.readouterr().err
    assert json.loads(capsys.readouterr().out)["num_parts"] == 3
    return open_parts(out)


@cases("options", [], ["src_type=user", "dst_type=item"], ["both_ways=true"])
def test_the_columns_of_edges_survive(tmp_path, capsys, options):
    path, (src, dst) = tmp_path / "t.csv", ENDS
    words = np.array(["good", "bad", ""])[RNG.integers(0, 3, 400)]
    splits = np.array(["train", "val", "test", ""])[RNG.integers(0, 4, 400)]
    rows = zip(src, dst, words, splits, RNG.integers(0, 2**40, 400), strict=True)
    lines = (",".join(map(str, row)) for row in rows)
    path.write_text("\n".join(["src,dst,label,split,time", *lines]))
    given = dict(option.split("=") for option in options)
    plain = load_plain(path, "data", **{k: v == "true" or v for k, v in given.items()})
    parts = partition(tmp_path, capsys, path, *options)
    assert parts.label_names == plain.label_names == ("bad", "good")
    names = NodeIds(parts.node_ids[parts.original_ids])
    assert edges(parts.graph, names) == edges(plain.graph, plain.node_ids)
    for name in ("label", "split"):
        own, whole = (graph.edge_columns[name] for graph in (parts.graph, plain.graph))
        assert own.dtype == whole.dtype
    assert sum(part["seeds"] for part in parts.manifest["parts"]) == plain.graph.num_nodes
    assert np.unique(parts.labels).tolist() == [0]
    assert parts.val_idx.size == parts.test_idx.size == 0
    for name, column in parts.local_graph(0, 3).edge_columns.items():
        np.testing.assert_array_equal(column, parts.graph.edge_columns[name])
    for index in range(3):
        part = parts.part(index)
        assert part.features.shape == (part.last - part.first, 0)


def test_ranks_take_parts_without_features(tmp_path):
    plain = Plain("own", Graph.from_edges(*ENDS, num_nodes=60), None, None, None)
    parts = np.arange(60) % 2
    write_parts(tmp_path / "p", plain.dataset(), parts, 2, method="by hand")
    comm, key = Alone(), jax.random.key(0)
    for cache in ("none", "trial"):
        ranks = RankParts(comm, open_parts(tmp_path / "p"))
        with rank_loader(comm, ranks, 10, (3, 2), key=key, cache=cache) as loader:
            seeds = []
            for batch, x in loader:
                assert x.shape == (*batch.nodes.shape, 0)
                seeds += np.asarray(batch.seeds)[np.asarray(batch.seed_mask)].tolist()
        assert sorted(seeds) == list(range(60))


def test_an_archive_without_labels(tmp_path, capsys):
    times = np.arange(400)[::-1] * 10**10
    np.savez(tmp_path / "a.npz", edge_index=ENDS, num_nodes=70, edge_time=times)
    parts = partition(tmp_path, capsys, tmp_path / "a.npz")
    names = NodeIds(np.arange(70))
    whole = load_plain(tmp_path / "a.npz", "data").graph
    assert np.asarray(whole.edge_time).max() == times.max()
    assert edges(parts.graph, NodeIds(parts.original_ids)) == edges(whole, names)
    assert parts.node_ids is parts.negatives is parts.label_names is None


def test_negatives_have_the_new_ids(tmp_path):
    graph = Graph.from_edges(*ENDS, num_nodes=60)
    given = {"val": RNG.integers(0, 60, (7, 2)), "test": RNG.integers(0, 60, (3, 9))}
    plain = Plain("own", graph, None, None, None, negatives=given, label_names=("x",))
    assignment = RNG.integers(0, 3, 60).astype(np.int32)
    write_parts(tmp_path / "p", plain.dataset(), assignment, 3, method="by hand")
    parts = open_parts(tmp_path / "p")
    assert parts.label_names == ("x",)
    for split, pairs in given.items():
        assert parts.negatives[split].dtype == np.int32
        assert parts.original_ids[parts.negatives[split]].tolist() == pairs.tolist()
