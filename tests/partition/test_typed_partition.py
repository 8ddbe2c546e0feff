"""Partitions of typed graphs: every type is balanced, and each part has its tables."""

import dataclasses
import json

import jax
import numpy as np
import pytest
import scipy.sparse
from cases import cases
from made_parts import make_data, write
from mapped import is_mapped
from refusals import refused

from jgs import Graph
from jgs.data import Dataset
from jgs.data.parts import open_parts
from jgs.dist.batches.ranks import RankParts
from jgs.dist.communicators.comm import Alone
from jgs.dist.communicators.mesh import Mesh
from jgs.graph import SparseFeatures, TypedFeatures
from jgs.ops import gather
from jgs.partition.__main__ import main
from jgs.partition.balance import CONSTRAINTS, constraint_weights, limits, part_loads
from jgs.partition.nodes import METHODS, TOLERANCE, partition_nodes

COUNTS = {"author": 900, "paper": 300, "tag": 1500, "venue": 60}


@pytest.fixture(scope="module")
def data():
    """Skewed types: features of other widths, dtypes and sparsity for each, and one without."""
    rng, counts = np.random.default_rng(0), COUNTS

    def ends(src, dst, num, skew=1.0):
        """`num` edges; with `skew` above 1 the first nodes have more of them."""
        at = (counts[src] * rng.random(num) ** skew).astype(int)
        return at, (counts[dst] * rng.random(num) ** skew).astype(int)

    edges = {
        ("author", "writes", "paper"): ends("author", "paper", 2500, 2.0),
        ("paper", "cites", "paper"): ends("paper", "paper", 1500, 1.5),
        ("paper", "has", "tag"): ends("paper", "tag", 4000),
        ("paper", "at", "venue"): ends("paper", "venue", 300, 3.0),
    }
    graph = Graph.from_relations(counts, edges, both_ways=True)
    features = {
        "author": rng.standard_normal((counts["author"], 3)).astype(np.float32),
        "paper": scipy.sparse.random(counts["paper"], 40, 0.2, "csr", np.float32, rng),
        "tag": rng.standard_normal((counts["tag"], 5)).astype(np.float16),
    }
    order = rng.permutation(counts["paper"])
    labels = {"paper": rng.integers(0, 3, counts["paper"])}
    splits = {"train": order[:120], "val": order[120:200], "test": order[200:]}
    return Dataset.from_arrays(graph, features, labels, splits, name="typed")


def uneven(parts, weights, num_parts):
    """The constraints in which a part exceeds the tolerance."""
    loads = part_loads(parts, weights, num_parts)
    most = limits(loads.sum(axis=0), num_parts, TOLERANCE)
    over = (loads > most).any(axis=0)
    return {name for name, each in zip(weights.constraints, over, strict=True) if each}


@cases("method, num_parts", ("metis", 2), *((method, 4) for method in METHODS))
def test_every_type_is_within_5_percent(data, method, num_parts):
    graph, authors = data.graph, data.graph.schema.nodes("author")
    seeds = {
        "train_idx": np.concatenate([data.train_idx, authors[::3]]),  # of two types
        "val_idx": data.val_idx,
        "test_idx": data.test_idx,
    }
    weights = constraint_weights(graph, *seeds.values())
    names = ("author", "paper", "tag", "venue")
    of_types = [*(f"nodes of {n}" for n in names), "train of author", "train of paper"]
    assert list(weights.constraints) == [*CONSTRAINTS, *of_types]
    parts = partition_nodes(graph, num_parts, method, **seeds)
    assert not uneven(parts, weights, num_parts)
    # The types are skewed: without them they would not be even.
    plain = partition_nodes(Graph(graph.indptr, graph.indices), num_parts, method, **seeds)
    assert uneven(plain, weights, num_parts) & set(of_types)


def test_nodes_without_edges_even_out_their_own_type():
    counts = {"a": 300, "b": 400, "c": 40}
    rng = np.random.default_rng(0)
    edges = {("a", "to", "b"): (rng.integers(0, 30, 200), rng.integers(0, 50, 200))}
    graph = Graph.from_relations(counts, edges)
    seeds = np.arange(0, 700, 2)  # of two types, most of them without an edge
    weights = constraint_weights(graph, seeds, [], [])
    parts = partition_nodes(graph, 4, "ldg", train_idx=seeds)
    loads = dict(zip(weights.constraints, part_loads(parts, weights, 4).T, strict=True))
    for name in ("nodes of a", "nodes of b", "nodes of c", "train of a", "train of b", "train"):
        assert loads[name].max() - loads[name].min() <= 2, name


def test_the_command_says_how_even_the_types_are(data, tmp_path, capsys):
    data.save(tmp_path / "typed")
    out = tmp_path / "parts"
    arguments = ["--dataset", str(tmp_path / "typed"), "--parts", "3", "--out", str(out)]
    assert main(arguments) == 0
    shown = capsys.readouterr()
    result = json.loads(shown.out)
    assert result["balance"]["nodes of author"] <= TOLERANCE
    assert "train of paper" not in result["balance"]  # it is the train of all
    manifest = json.loads((out / "manifest.json").read_text())
    assert sum(part["nodes of venue"] for part in manifest["parts"]) == 60
    shapes = [each and each["shape"] for each in manifest["features"]["types"]]
    assert shapes == [[900, 3], [300, 40], [1500, 5], None]


def rows(features, ids):
    """A list of the rows of nodes, of the width of their type."""
    found, made = gather(features, np.asarray(ids, np.int32)), [[]] * len(ids)
    for number, table in enumerate(found.tables):
        at = np.flatnonzero(np.asarray(found.kind) == number)
        if isinstance(table, SparseFeatures):
            table = table.to_scipy().toarray()
        elif isinstance(table, tuple):
            table = np.concatenate(list(map(np.asarray, table)))
        if table is not None:
            for i, row in zip(at, np.asarray(table)[np.asarray(found.place)[at]], strict=True):
                made[i] = row.tolist()
    return made


@pytest.fixture(scope="module")
def parts(data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("parts") / "4"
    write(folder, data, 4)
    return open_parts(folder)


def test_each_part_has_a_mapped_table_for_each_type(data, parts):
    own = parts.part(0).features
    assert own.schema == parts.schema.of_parts(0, 1)
    assert own.table("tag").dtype == np.float16
    assert isinstance(own.table("paper"), SparseFeatures)
    assert own.table("paper").max_row == data.features.table("paper").max_row
    assert own.table("venue") is None
    assert all(is_mapped(leaf, "part-00000") for leaf in jax.tree.leaves(own))


@pytest.mark.parametrize("num_ranks", [1, 2, 4])
def test_ranks_have_the_rows_of_their_own_nodes(data, parts, num_ranks):
    comm = Mesh(jax.devices()[:num_ranks]) if num_ranks > 1 else Alone()
    ranks, old = RankParts(comm, parts), np.asarray(parts.original_ids)
    for rank, own in enumerate(ranks.features):
        first, stop = ranks.offsets[rank : rank + 2].tolist()
        assert own.widths == data.features.widths
        assert isinstance(own.table("author"), tuple) == (num_ranks < 4)
        ids = np.arange(stop - first)
        if num_ranks < 4:
            assert len(own.table("author")) == 4 // num_ranks
        assert rows(own, ids) == rows(data.features, old[first + ids])


def test_one_matrix_for_all_nodes_is_split_by_type_where_a_model_wants_that(data, tmp_path):
    features = np.random.default_rng(0).standard_normal((data.graph.num_nodes, 4), np.float32)
    data = dataclasses.replace(data, features=features)
    write(tmp_path / "parts", data, 2)
    parts = open_parts(tmp_path / "parts")
    (own,), old = RankParts(Alone(), parts, typed=True).features, parts.original_ids
    assert isinstance(own, TypedFeatures)
    assert own.widths == (4, 4, 4, 4)
    ids = np.arange(data.graph.num_nodes)
    assert rows(own, ids) == features[old].tolist()
    assert isinstance(RankParts(Alone(), parts).features[0], list)


def test_written_in_small_pieces_it_is_the_same(data, tmp_path, monkeypatch):
    plain = make_data(60, 500)
    whole = [write(tmp_path / "whole", each, 3)["parts_id"] for each in (plain, data)]
    monkeypatch.setattr("jgs.graph.rows._EDGES_AT_ONCE", 7)
    monkeypatch.setattr("jgs.partition.folder._BYTES_AT_ONCE", 30)
    monkeypatch.setattr("jgs.partition.folder._OPEN_AT_ONCE", 2)
    monkeypatch.setattr("jgs.partition.balance._NODES_AT_ONCE", 7)
    assert whole == [write(tmp_path / "few", each, 3)["parts_id"] for each in (plain, data)]


def test_parts_of_parts_with_typed_features_are_refused(data, parts, tmp_path):
    """Their ids are no longer in the types' order."""
    again = dataclasses.replace(data, graph=parts.graph)
    refused("must be one range of ids", write, tmp_path / "again", again, 2)
