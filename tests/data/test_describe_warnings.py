"""What `jgs data describe` warns of, each on data that have just that mistake."""

import json

import numpy as np
from folders import write

from jgs import Graph
from jgs.data import Dataset
from jgs.data.__main__ import main
from jgs.data.described import facts
from jgs.data.warned import one_rule, telling_features
from jgs.graph import TypedFeatures

N = 120
LABELS = np.arange(N) % 3
SPLIT = {"train": np.arange(60), "val": np.arange(60, 90), "test": np.arange(90, N)}
RING = np.arange(N), (np.arange(N) + 1) % N


def warned(graph=None, features=None, labels=LABELS, split=SPLIT, **more):
    random = np.random.default_rng(0)
    graph = Graph.from_edges(*RING, N, symmetric=True) if graph is None else graph
    noise = np.column_stack([random.random(N), random.integers(0, 2, N), np.ones(N)])
    rows = noise if features is None else np.column_stack([noise, features])
    told = facts(Dataset.from_arrays(graph, rows, labels, split, **more))
    return told, {each["kind"]: each["says"] for each in told["warnings"]}


def test_sound_data_are_not_warned_of():
    told, found = warned()
    assert found == {}
    assert told["in_degree"] == told["out_degree"] == {"mean": 2, "median": 2, "max": 2}
    assert told["label_counts"]["1"] == {"train": 20, "val": 10, "test": 10, "all": 40}
    rare = (np.arange(N) % 200 == 0).astype(int)  # its majority alone is right in 98 %
    assert set(warned(labels=rare)[1]) == {"few_training_nodes", "class_missing"}


def test_edges():
    src = np.concatenate([RING[0][:100], [3, 3, 5]])
    dst = np.concatenate([RING[1][:100], [4, 4, 5]])
    told, found = warned(Graph.from_edges(src, dst, N))
    assert (told["self_loops"], told["duplicate_edges"]) == (1, 2)
    assert (told["isolated_nodes"], told["edges_without_reverse"]) == (19, 102)
    assert found["edges_listed_once"].startswith("102 of 102 edges have no reverse")
    assert found["duplicate_edges"].startswith("2 edges have the ends of an earlier one")
    assert found["isolated_nodes"].startswith("19 of 120 nodes have no edge to another")
    lacking = {"dist": np.where(src == 3, np.nan, 1.0), "label": np.full(src.size, np.nan)}
    found = warned(Graph.from_edges(src, dst, N, edge_columns=lacking))[1]
    assert f"dist is missing (NaN) in {(src == 3).sum()} of" in found["missing_in_edge_column"]
    # An event that repeats at another time is another one.
    times = np.arange(src.size)
    found = warned(Graph.from_edges(src, dst, N, edge_time=times))[1]
    assert "duplicate_edges" not in found
    half = Graph.from_edges(np.append(RING[0], 1), np.append(RING[1], 0), N)
    assert "edges_listed_once" in warned(half)[1]  # 119 of 121
    some = (np.concatenate(pair) for pair in (RING, RING[::-1]))
    src, dst = (end[: N + 10] for end in some)
    assert "edges_listed_once" not in warned(Graph.from_edges(*(src, dst), N))[1]


def test_a_feature_that_tells_the_label():
    for features in (LABELS * 2.5, (LABELS + np.arange(N) / 1000)[:, None]):
        found = warned(features=features)[1]
        assert list(found) == ["label_in_feature"]
        assert found["label_in_feature"].startswith("the feature 3 alone tells 100.0% of")
    numbers = np.random.default_rng(1).random(N)
    found = warned(features=3 - 2 * numbers, labels=numbers)[1]
    assert list(found) == ["label_in_feature"]
    nearly = np.where(np.arange(N) % 10 == 0, 1 - LABELS, LABELS)
    assert warned(features=nearly)[1] == {}
    # Training nodes of several types: each type's rows are its own.
    graph = Graph.from_relations({"a": N // 2, "b": N // 2}, {("a", "to", "b"): ([0], [1])})
    noise = np.random.default_rng(3).random((N // 2, 1))
    tables = {"a": noise, "b": np.column_stack([noise, LABELS[60:] * 2.5])}
    features = TypedFeatures.from_dict(graph.schema, tables)
    for train in (np.arange(N), np.arange(N)[::-1]):
        data = Dataset.from_arrays(graph, features, LABELS, {"train": train})
        assert dict(telling_features(data)) == {"b.1": 1.0}
    # Other values for all rows tell nothing, although each value has one class.
    assert one_rule(np.random.default_rng(2).random(600), np.arange(600) % 2) < 0.2
    assert one_rule(np.repeat([1, 2, 3], 10), np.repeat([0, 0, 1], 10)) == 1


def test_classes_and_splits():
    labels = np.where(np.arange(N) < 4, 2, np.arange(N) % 2)
    told, found = warned(labels=labels, class_names=["a", "b", "c"])
    assert told["label_counts"]["c"] == {"train": 4, "val": 0, "test": 0, "all": 4}
    assert found["few_training_nodes"] == "1 classes have fewer than 5 training nodes: c 4"
    assert found["class_missing"].startswith("1 classes have no node in test: c; split=0.6,")


def test_time():
    graph = Graph.from_edges(*RING, N, symmetric=True)
    by_time = Graph.from_edges(*graph.edge_index(), N, node_time=np.arange(N))
    found = warned(by_time)[1]
    # Edges into nodes 0 and 59 are from 119 and 60.
    assert list(found) == ["edges_after_split"]
    assert found["edges_after_split"].startswith("2 edges into training nodes are later than")
    order = np.random.default_rng(3).permutation(N)
    mixed = {"train": order[:60], "val": order[60:90], "test": order[90:]}
    first = int(mixed["test"].min())
    late = int((mixed["train"] > first).sum())
    found = warned(by_time, split=mixed, time_unit="D")[1]
    day = np.datetime64("1970-01-01") + first
    says = f"{late} of 60 training nodes are later than the first of test ({day})"
    assert found["training_after_split"].startswith(says)


def test_the_command_shows_columns_labels_and_warnings(tmp_path, capsys):
    ids = np.array([f"n{i}" for i in range(N)], object)
    table = {
        "id": ids,
        "label": np.array(["red", "green", "blue"])[LABELS],
        "split": np.repeat(["train", "val", "test"], [60, 30, 30]),
        "shade": np.array(["r", "g", "b"])[LABELS],
        "name": [f"name {i}" for i in range(N)],
        "day": [f"2020-01-0{1 + i % 7}" for i in range(N)],
        "seldom": [1.0 if i % 3 == 0 else None for i in range(N)],
    }
    edges = {"src": ids[RING[0]], "dst": ids[RING[1]]}
    folder = write(tmp_path, {"nodes.parquet": table, "edges.parquet": edges})
    assert main(["describe", str(folder)]) == 0
    out, told = capsys.readouterr()
    found = json.loads(out)
    assert [(one["becomes"], one["features"]) for one in found["columns"]] == [
        *[("category", 3), ("hash:64", 64), ("category", 7), ("number + missing", 2)]
    ]
    kinds = {"edges_listed_once", "label_in_feature", "dates_as_text", "different_texts"}
    assert {one["kind"] for one in found["warnings"]} == kinds | {"mostly_missing"}
    lines = [line for line in told.splitlines() if line.startswith("warning: ")]
    assert lines == [f"warning: {one['says']}" for one in found["warnings"]]
    assert "different texts" in told
    assert " blue " in told
    mended = ["symmetric=true", "encode=shade:drop,name:drop,seldom:drop,day:date"]
    assert main(["describe", str(folder), "--data-options", *mended]) == 0
    assert json.loads(capsys.readouterr().out)["warnings"] == []
