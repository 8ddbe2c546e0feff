"""Partitions of typed graphs balance the nodes and the training nodes of every type."""

import json

import numpy as np
import pytest
from typed_data import make_typed

from jgs import Graph
from jgs.partition.__main__ import main
from jgs.partition.nodes import METHODS, TOLERANCE, partition_nodes
from jgs.partition.weights import CONSTRAINTS, constraint_weights, limits, part_loads


@pytest.fixture(scope="module")
def data():
    return make_typed()


def uneven(parts, weights, num_parts):
    """The constraints in which a part exceeds the tolerance."""
    loads = part_loads(parts, weights, num_parts)
    most = limits(loads.sum(axis=0), num_parts, TOLERANCE)
    over = (loads > most).any(axis=0)
    return {name for name, each in zip(weights.constraints, over, strict=True) if each}


@pytest.mark.parametrize("num_parts", [2, 4, 8])
@pytest.mark.parametrize("method", METHODS)
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


def test_a_graph_of_one_type_has_no_more_constraints():
    graph = Graph.from_relations({"a": 9}, {("a", "to", "a"): ([0, 1], [2, 3])})
    assert constraint_weights(graph, [0], [], []).constraints == CONSTRAINTS


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
    assert [each and each["shape"] for each in manifest["features"]["types"]] == [
        [900, 3],
        [300, 40],
        [1500, 5],
        None,
    ]
