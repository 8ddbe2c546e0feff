"""Parts of graphs without labels, splits or features: edges keep what is known of them."""

import json

import jax
import numpy as np
from cases import cases

from jgs import Graph, NodeIds
from jgs.data.parts import open_parts
from jgs.data.plain import Plain, load_plain
from jgs.dist import RankParts, rank_loader
from jgs.dist.communicators.comm import Alone
from jgs.partition import write_parts
from jgs.partition.__main__ import main

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
    plain = Plain("own", graph, None, None, None, negatives=given)
    assignment = RNG.integers(0, 3, 60).astype(np.int32)
    known = {"negatives": given, "label_names": ("x",)}
    write_parts(tmp_path / "p", plain.dataset(), assignment, 3, method="by hand", **known)
    parts = open_parts(tmp_path / "p")
    assert parts.label_names == ("x",)
    for split, pairs in given.items():
        assert parts.negatives[split].dtype == np.int32
        assert parts.original_ids[parts.negatives[split]].tolist() == pairs.tolist()
