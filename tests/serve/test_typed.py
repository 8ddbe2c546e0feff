"""Links of a typed graph with times, behind `jgs serve`: names, moments, lists, replays."""

import json

import numpy as np
import pytest
from asking import ask, good

import jgs
from jgs import Graph
from jgs.data import Dataset
from jgs.replay import main as replay
from jgs.serve import Application, Engine
from jgs.train.__main__ import main as train

BUYS = ("user", "buys", "item")
FLAGS = """
    --task links --temporal --model trsage --relation buys --fanouts *=3 --hidden 4 --epochs 1
    --batch-size 60 --no-progress --eval-negatives 5 --sides dst
"""


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    """The artifact of a run on 600 sales, every 10 s, to 30 users of 12 items."""
    folder, rng = tmp_path_factory.mktemp("shop"), np.random.default_rng(0)
    ends = rng.integers(0, 30, 600), rng.integers(0, 12, 600)
    times, both = {BUYS: np.arange(600) * 10}, {"both_ways": True}
    graph = Graph.from_relations(
        {"user": 30, "item": 12}, {BUYS: ends}, edge_time=times, **both
    )
    features = {
        "user": rng.random((30, 4), np.float32),
        "item": rng.random((12, 3), np.float32),
    }
    names = jgs.NodeIds([f"u{n}" for n in range(30)] + [f"i{n}" for n in range(12)])
    splits = {name: np.arange(42)[n::3] for n, name in enumerate(("train", "val", "test"))}
    about = {"time_unit": "s", "node_ids": names, "num_classes": 2}
    data = Dataset.from_arrays(graph, features, np.zeros(42, int), splits, **about)
    data.save(folder / "data")
    own = ["--dataset", str(folder / "data"), "--run-dir", str(folder / "run")]
    assert train([*FLAGS.split(), *own]) == 0
    options = {"with_graph": True, "live": True, "batch_sizes": (1, 8)}
    jgs.export_run(folder / "run", folder / "model", at=6000, **options)
    return folder / "model"


@pytest.mark.slow
def test_links_of_a_typed_graph_with_times(shop, tmp_path, capsys):
    record = tmp_path / "answers"
    with open(record, "w") as file:
        engine = Engine(shop, tmp_path / "graph")
        app = Application(engine, record=file)
        pairs = {"pairs": [["u1", "i2"], ["u3", "i4"]]}
        first = good(app, "/predict", pairs)
        assert (first["pairs"], first["names"]) == ([[1, 32], [3, 34]], pairs["pairs"])
        assert (first["time"], first["time_unit"]) == ([5991, 5991], "s")  # after the last sale
        past = good(app, "/predict", pairs | {"time": "1970-01-01 01:00:00"})
        assert past["time"] == [3600, 3600]
        lists = good(app, "/recommend", {"sources": ["u1", "u2"], "k": 3})
        assert [len(names) for names in lists["target_names"]] == [3, 3]
        assert lists["time"] == 6000  # of the export
        one = good(app, "/recommend", {"sources": ["u1"], "k": 3})
        np.testing.assert_allclose(one["scores"], lists["scores"][:1], rtol=1e-5)
        sale = {"src": ["u1"], "dst": ["i2"], "relation": "buys", "time": 7000}
        assert good(app, "/append", sale)["edges"] == [1200]
        sale |= {"src": [1], "dst": [32], "relation": list(BUYS), "time": "1970-01-01 02:00:00"}
        assert good(app, "/append", sale)["edges"] == [1201]
        after = good(app, "/predict", pairs)
        assert after["time"] == [7201, 7201]
        assert after["logits"][0] != first["logits"][0]
        assert good(app, "/predict", pairs | {"time": 3600})["logits"] == past["logits"]
        for path, body, words in (
            ("/predict", pairs | {"time": 7202}, "at most 7201"),
            ("/predict", pairs | {"time": "2031-01-01"}, "at most 7201"),
            ("/predict", pairs | {"time": [1, 2, 3]}, "times"),
            ("/predict", pairs | {"time": 1.5}, "times"),
            ("/predict", pairs | {"time": "noon"}, "noon"),
            ("/predict", {"pairs": [["u1", "u2"]]}, "user and item"),
            ("/predict", {"nodes": ["u1"]}, "pairs"),
            ("/recommend", {"sources": ["u1"], "k": 0}, "k must"),
            ("/recommend", {"sources": ["u1"], "time": 5000}, "of the candidates, 6000"),
            ("/append", sale | {"dst": [2]}, "30 to 41"),
            ("/append", sale | {"time": None}, "time"),
            ("/append", sale | {"relation": "eats"}, "eats"),
        ):
            answer = ask(app, path, body)
            assert (answer.status, words in answer.text) == (400, True), answer.text
        gone = {"between": [["u1", "i2"]], "relation": "buys"}
        assert good(app, "/delete", gone)["edges_removed"] >= 2
        best = lists["target_names"][0][0]
        removed = good(app, "/delete", {"nodes": ["u3", best]})["edges_removed"]
        assert removed > 0
        left = good(app, "/recommend", {"sources": ["u1"], "k": 12})["target_names"][0]
        assert (best in left, left.count(None)) == (False, 1)
        good(app, "/predict", pairs)
        app.close()
        engine.live.close()
    argv = ["--artifact", shop, "--log", tmp_path / "graph", "--answers", record]
    assert replay([*map(str, argv)]) == 0
    number = len(record.read_text().splitlines())
    assert json.loads(capsys.readouterr().out) == {"answers": number, "same": number}
