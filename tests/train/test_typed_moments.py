"""`--task nodes` with labels at moments in a typed graph: how old an edge is, is seen."""

import json

import numpy as np

import jgs
from jgs import Graph
from jgs.data import Dataset, LabelTable
from jgs.graph import TypedFeatures
from jgs.train.__main__ import main

USERS, ITEMS, DAY = 50, 20, 86_400
FLAGS = """
    --hidden 16 --fanouts *=1 --latest --batch-size 60 --epochs 12 --lr 2e-2 --dropout 0
    --no-progress
"""


def purchases():
    """Users who buy once in a while. The label of a user at a moment is whether the last
    time is less than four days ago, which the edge's age alone tells."""
    rng = np.random.default_rng(0)
    user, item = np.tile(np.arange(USERS), 30), rng.integers(0, ITEMS, USERS * 30)
    time = rng.permutation(user.size) * 30 * 6 * DAY // user.size
    bought = ("item", "bought_by", "user")
    graph = Graph.from_relations(
        {"user": USERS, "item": ITEMS}, {bought: (item, user)}, edge_time={bought: time}
    )
    nodes, at = rng.integers(0, USERS, 900), rng.integers(20 * DAY, 180 * DAY, 900)
    last = [
        time[(user == node) & (time < moment)].max(initial=-9 * DAY)
        for node, moment in zip(nodes, at, strict=True)
    ]
    labels = (at - np.array(last) < 4 * DAY).astype(np.int64)
    features = TypedFeatures.from_dict(
        graph.schema,
        {"user": np.ones((USERS, 2), np.float32), "item": np.ones((ITEMS, 3), np.float32)},
    )
    table = LabelTable.from_arrays(nodes, at, labels)
    return Dataset.from_arrays(graph, features, None, None, label_table=table, name="buys")


def test_the_age_of_an_edge_is_learned_by_the_model_that_sees_it(tmp_path):
    data = purchases()
    labels = data.label_table.labels
    assert 0.3 < labels.mean() < 0.7
    data.save(tmp_path / "data")
    found = {}
    for model, more in (("trsage", ["--time-unit", DAY, "--time-width", 8]), ("rsage", [])):
        run = tmp_path / model
        argv = [*FLAGS.split(), "--dataset", tmp_path / "data", "--run-dir", run]
        assert main([str(a) for a in (*argv, "--model", model, *more)]) == 0
        found[model] = json.loads((run / "result.json").read_text())["test_accuracy"]
    assert found["trsage"] > 0.9, found
    assert found["rsage"] < 0.75, found
    table = data.label_table
    told = jgs.open_run(tmp_path / "trsage").predict(table.nodes[:200], time=table.time[:200])
    assert (told.prediction == labels[:200]).mean() > 0.9
