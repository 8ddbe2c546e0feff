"""What the columns of a user's table become, kept with the data set; and drawn splits."""

import dataclasses
import json

import jax
import numpy as np
import pandas
from folders import cases, in_order, made, refused, splits, write

import jgs
from jgs.data import FeatureColumns, load, split_nodes
from jgs.data.plain import load_plain
from jgs.partition.__main__ import main as partition
from jgs.train.__main__ import main as train

DAYS = ["2020-01-01", "2020-01-02", None, "2020-01-03", "2020-01-05", "2020-01-05"]
NODES = {
    "id": range(6),
    "label": list("ababab"),
    "split": ["train", "train", "train", "val", "test", "test"],
    "age": [10, 20, None, 40, 50, 60],
    "zip": ["01", "1", "01", "02", "02", ""],
    "joined": DAYS,
    "member": [True, False, None, True, True, True],
    "name": [f"n{i}" for i in range(6)],
    "serial": range(6),
}
EDGES = {"src": range(6), "dst": [1, 2, 3, 4, 5, 0]}
ENCODE = {"age": "standard", "zip": "category", "name": "hash:4", "serial": "drop"}
SPLITS = ("train", "val", "test")
folder = made(".", {"nodes.csv": NODES, "edges.csv": EDGES})


def test_each_kind_is_fitted_on_training_rows_and_kept(folder, tmp_path):
    text = ",".join(f"{name}:{kind}" for name, kind in ENCODE.items())
    data, same = load(folder, encode=ENCODE), load(folder, encode=text)
    rows, names = np.asarray(data.features), data.feature_columns.names
    assert np.array_equal(rows, same.features)
    assert names == (
        *("age", "age missing", "zip=01", "zip=02", "zip=1", "zip missing"),
        *("joined", "joined missing", "member", "member missing"),
        *(f"name[{i}]" for i in range(4)),
    )
    column = dict(zip(names, rows.T.tolist(), strict=True))
    # Of the training rows 10 and 20 are known: mean 15, deviation 5. The same of the days.
    assert column["age"] == [-1, 1, 0, 5, 7, 9]
    assert column["age missing"] == [0, 0, 1, 0, 0, 0]
    assert column["joined"] == [-1, 1, 0, 3, 7, 7]
    assert column["zip=01"] == [1, 0, 1, 0, 0, 0]
    assert column["zip missing"] == [0, 0, 0, 0, 0, 1]
    assert column["member"] == [1, 0, 0, 1, 1, 1]
    # `printf n0 | b2sum -l 64` begins with 29, n1's with d9 and so on: modulo 4.
    assert rows[:, -4:].argmax(axis=1).tolist() == [1, 1, 2, 0, 0, 1]
    assert rows[:, -4:].sum() == 6

    spaced = NODES | {"split": [f" {name} " for name in NODES["split"]]}
    write(tmp_path / "spaced", {"nodes.csv": spaced, "edges.csv": EDGES})
    assert load(tmp_path / "spaced", encode=ENCODE).feature_columns == data.feature_columns

    data.save(tmp_path / "saved")
    kept = load(tmp_path / "saved").feature_columns
    assert kept == data.feature_columns
    assert kept == FeatureColumns.from_json(json.loads(json.dumps(kept.to_json())))
    assert np.array_equal(kept.encode(folder / "nodes.csv"), rows)
    new = {"age": [25], "zip": ["77"], "joined": ["2020-01-04"], "member": [False], "name": "x"}
    got = kept.encode({name: np.array([v[0]], object) for name, v in new.items()})
    assert got[0, :10].tolist() == [2, 0, 0, 0, 0, 0, 5, 0, 0, 0]


def test_moments_that_are_alike_are_scaled_by_a_year():
    """A model reads the first relative to its cutoff: in seconds it would learn nothing."""
    opened = np.array(["2020-01-01"] * 3, "M8[s]")
    fitted = FeatureColumns.fit({"opened": opened}, {"opened": "moment"}, name="plans")
    (column,) = fitted.columns
    assert column.deviation[0] == 365.2425 * 86_400
    assert not fitted.encode({"opened": opened}).any()


def test_what_nothing_is_said_of(folder):
    """Numbers stay, so that runs of earlier versions go on."""
    data = load(folder, max_categories=5)
    kinds = {c.name: c.becomes for c in data.feature_columns.columns}
    assert kinds == {
        "age": "number + missing",
        "zip": "number + missing",
        "joined": "date + missing",
        "member": "number + missing",
        "name": "hash:5",
        "serial": "number",
    }
    assert np.asarray(data.features)[:, 0].tolist() == [10, 20, 0, 40, 50, 60]
    became = load(folder, standardize=True).feature_columns
    assert [c.kind for c in became.columns][:5] == [
        *("standard", "standard", "date", "number", "category")
    ]
    halves = load(folder, encode="joined:drop,name:drop", normalize_features=True)
    table = pandas.read_csv(folder / "nodes.csv")
    np.testing.assert_allclose(np.asarray(halves.features).sum(axis=1), 1, rtol=1e-6)
    assert np.array_equal(halves.feature_columns.encode(table), halves.features)


@cases(
    "options, says",
    ({"encode": "age:onehot"}, "must be NAME:KIND, with a kind of number, standard"),
    ({"encode": "age:number:3"}, "or hash:K or words:K of K columns; got 'age:number:3'"),
    ({"encode": {"aeg": "drop"}}, "nodes.csv must have a column 'aeg'"),
    ({"encode": "label:drop"}, "nodes.csv must have a column 'label'"),
    ({"encode": "name:number"}, "must be numbers; got 'n0' in row 0. Give it the kind cat"),
    ({"encode": "name:date"}, "must be dates; got n0 at row with one 0"),
    ({"encode": "serial:date"}, "must be dates; got numbers. Give it the kind number"),
    ({"max_categories": 0}, "max_categories must be 1 or more"),
    ({"split": "0.5,0.5"}, "must be three shares with commas between; got '0.5,0.5'"),
    ({"split": "0.5,0.5,0.5"}, "must be at most 1 together, and train above 0"),
    ({"stratify": True}, "stratify must be beside the option split"),
    ({"split_seed": 1}, "split_seed must be beside the option split"),
)
def test_wrong_options_are_refused_in_one_line(folder, options, says):
    refused(says, load, folder, **options)


def test_other_rows_must_fit():
    fitted = FeatureColumns.fit({"x": np.array([1.0, 2.0]), "v": np.eye(2)}, {"x": "standard"})
    none = {"x": np.array([np.nan, 1]), "v": np.eye(2)}
    refused("must have a column 'x'", fitted.encode, {"v": np.eye(2)}, "new")
    refused("a value in every row*got none at row 0", fitted.encode, none, "new")
    other = {"x": np.ones(2), "v": np.eye(3)[:2]}
    refused("must have 2 numbers a row; got 3", fitted.encode, other, "new")
    columns = {"columns": [{"name": "x"}]}
    refused("feature columns must be as", FeatureColumns.from_json, columns)


def test_a_stratified_split_has_each_class_in_its_share(folder):
    labels = np.repeat([0, 1, 2, 3, -1], [100, 7, 3, 1, 5])
    found = split_nodes(jax.random.key(1), labels, stratify=True)
    counts = [np.bincount(labels[found[name]], minlength=4).tolist() for name in SPLITS]
    # By the largest remainder: 7 has 4.2, 1.4 and 1.4; 3 has 1.8, 0.6 and 0.6; 1 has 0.6.
    assert counts == [[60, 4, 2, 1], [20, 2, 1, 0], [20, 1, 0, 0]]
    ids = np.concatenate(list(found.values()))
    assert sorted(ids.tolist()) == list(range(111))
    again = split_nodes(jax.random.key(1), labels, stratify=True)
    other = split_nodes(jax.random.key(2), labels, stratify=True)
    assert all(np.array_equal(found[name], again[name]) for name in SPLITS)
    assert not np.array_equal(found["train"], other["train"])
    for partitionable in (True, False):
        with jax.threefry_partitionable(partitionable):
            ten = split_nodes(jax.random.key(1), np.zeros(10, int))
        assert (ten["val"].tolist(), ten["test"].tolist()) == ([7, 9], [4, 6])
    names = np.array(["d", "c", "b", "a", ""])[np.where(labels < 0, 4, labels)]
    by_name = split_nodes(jax.random.key(1), names)
    assert [by_name[name].size for name in SPLITS] == [67, 22, 22]
    some = split_nodes(jax.random.key(1), labels, train=0.1, val=0, test=0.1, stratify=True)
    assert [some[name].size for name in SPLITS] == [11, 0, 11]
    key, says = jax.random.key(0), "one class each; got several labels a node"
    refused(says, split_nodes, key, np.eye(4), stratify=True)

    data = load(folder, split="0.5,0.25,0.25", stratify=True, split_seed=3, encode="age:drop")
    drawn = split_nodes(
        jax.random.key(3), data.labels, train=0.5, val=0.25, test=0.25, stratify=True
    )
    assert splits(data) == [drawn[name].tolist() for name in SPLITS]
    assert sorted(data.labels[data.train_idx].tolist()) == [0, 1]  # 1.5, 0.75 and 0.75 of 3


def test_columns_of_edges(folder):
    edges = EDGES | {
        "kind": ["a", "b", "a", None, "b", "b"],
        "since": [*DAYS[:2], "2020-01-02", *DAYS[3:]],
        "code": list("uvwxyz"),
        "split": ["train"] * 2 + ["test"] * 4,
    }
    write(folder, {"edges.csv": edges})
    refused("'kind' must be numbers; *edges.kind:category, or", load, folder)
    options = {"encode": "edges.kind:category,edges.since:date,edges.code:drop,serial:drop"}
    for graph in (load(folder, **options).graph, load_plain(folder, "", **options).graph):
        columns = {name: in_order(graph, c) for name, c in graph.edge_columns.items()}
        assert sorted(columns) == ["kind", "since", "split"]
        assert columns["since"].tolist() == [-1, 1, 1, 3, 7, 7]
        assert columns["kind"].tolist() == [
            *([1, 0, 0], [0, 1, 0], [1, 0, 0], [0, 0, 1], [0, 1, 0], [0, 1, 0])
        ]
    refused("must have a column 'colour'", load, folder, encode="edges.colour:drop")


def test_splits_of_a_saved_data_set_are_drawn(folder, tmp_path):
    data = load(folder, encode="name:drop")
    data.save(tmp_path / "saved")
    key = jax.random.key(3, impl="threefry2x32")
    want = split_nodes(key, data.labels, train=0.4, val=0.3, test=0.3, stratify=True)
    options = {"split": "0.4,0.3,0.3", "stratify": True, "split_seed": 3}
    drawn = load(tmp_path / "saved", **options)
    for found in (drawn, load_plain(tmp_path / "saved", "", **options)):
        assert splits(found) == [want[name].tolist() for name in SPLITS]
    assert np.array_equal(drawn.labels, data.labels)
    assert [*map(len, splits(load(tmp_path / "saved", split="1,0,0")))] == [6, 0, 0]
    # Whole numbers are no classes here, so those below 0 are in a split too.
    arrays = (data.graph, np.asarray(data.features), np.arange(6.0) - 3)
    train = {"train": np.arange(6)}
    numbers = jgs.data.Dataset.from_arrays(*arrays, train, label_kind="number")
    numbers.save(tmp_path / "numbers")
    options = {"split": "0.5,0.5,0"}
    assert [*map(len, splits(load(tmp_path / "numbers", **options)))] == [3, 3, 0]
    says = "stratified split must be of nodes with one class"
    refused(says, load, tmp_path / "numbers", **options, stratify=True)
    at = np.arange(20)
    table = jgs.data.LabelTable.from_arrays(at % 6, at, at % 2)
    dataclasses.replace(data, label_table=table).save(tmp_path / "moments")
    refused("for labels of nodes; got * moments", load, tmp_path / "moments", **options)


def test_what_columns_of_edges_became_is_kept(tmp_path):
    """40 people with ages and towns, who know each other in several ways."""
    rng = np.random.default_rng(0)
    people = {"id": range(40), "label": list("ab") * 20, "age": rng.integers(9, 90, 40)}
    people |= {"split": ["train", "train", "val", "test"] * 10, "town": list("xyzuv") * 8}
    src, step = np.tile(np.arange(40), 4), np.repeat([1, 3, 7, 11], 40)
    knows = {"src": src, "dst": (src + step) % 40, "km": rng.random(160)}
    knows |= {"id": [f"e{i}" for i in range(160)], "way": rng.choice(["a", "b", None], 160)}
    town = write(tmp_path / "town", {"nodes.csv": people, "edges.csv": knows})
    encode = "town:hash:3,age:standard,edges.km:standard,edges.way:category,edges.id:drop"
    data, table = load(town, encode=encode), pandas.read_csv(town / "edges.csv")
    became = data.edge_feature_columns
    assert became.names == ("km", "way=a", "way=b", "way missing")
    assert {c.name: c.becomes for c in became.columns}["id"] == "drop"
    own = became.encode_each(table)
    for name, column in data.graph.edge_columns.items():
        assert np.array_equal(own[name], in_order(data.graph, column))
    assert sorted(own) == sorted(data.graph.edge_columns) == ["km", "way"]
    assert np.array_equal(became.encode(table), np.column_stack([own["km"], own["way"]]))
    new = became.encode_each({"km": np.array([table.km.mean()]), "way": np.array(["c"])})
    np.testing.assert_allclose(new["km"], [0], atol=1e-6)
    assert new["way"].tolist() == [[0, 0, 0]]  # a way that was not there, and none missing

    data.save(tmp_path / "saved")
    assert load(tmp_path / "saved").edge_feature_columns == became
    assert load(town, encode="edges.way:drop,edges.id:drop").edge_feature_columns.names == ()
    plain = load_plain(town, "", encode=encode)
    assert plain.edge_feature_columns == plain.dataset().edge_feature_columns == became

    # A run has both, on the whole data set and on its parts, of nodes and of pairs.
    given = ["--dataset", str(town), "--data-options", f"encode={encode}"]
    parts = ["--partition", str(tmp_path / "parts")]
    assert partition([*given, "--parts", "2", "--method", "ldg", "--out", parts[1]]) == 0
    flags = ["--fanouts", "2", "--hidden", "4", "--batch-size", "16", "--epochs", "1"]
    for task, of in (("nodes", given), ("links", parts)):
        run_dir = ["--no-progress", "--run-dir", str(tmp_path / task)]
        assert train([*of, "--task", task, *flags, *run_dir]) == 0
        run = jgs.open_run(tmp_path / task, progress=False)
        assert run.feature_columns == data.feature_columns
        assert run.edge_feature_columns == became
