"""Nodes that come while `jgs serve` answers."""

import numpy as np
from asking import ask, good, replayed

import jgs
from jgs.serve import Application, Engine


def test_a_new_node_is_asked_about_replayed_and_deleted(artifact, folder, tmp_path, capsys):
    record = tmp_path / "answers"
    engine, width = Engine(artifact, folder), jgs.load_exported(artifact).spec.num_features
    engine.model.node_ids = ids = jgs.NodeIds([f"n{number}" for number in range(300)])
    rows = np.random.default_rng(0).random((2, width), np.float32)
    with open(record, "w") as file:
        app = Application(engine, record=file)
        reader = Application(Engine(artifact, folder, follow=True))
        assert ask(app, "/predict", {"nodes": [300]}).status == 400
        new = {"features": rows.tolist(), "names": ["ann", "bob"]}
        assert good(app, "/nodes", new)["nodes"] == [300, 301]
        edges = {"src": ["n1", "n2", "bob"], "dst": ["ann", "ann", "n3"]}
        assert good(app, "/append", edges)["position"] == 2
        answer = good(app, "/predict", {"nodes": ["ann", "n3"]})
        assert (answer["nodes"], answer["names"]) == ([300, 3], ["ann", "n3"])
        graph, features = engine.live.packed(), np.array(engine.live.features)
        np.testing.assert_array_equal(features[300:302], rows)
        made = jgs.load_exported(artifact, graph=graph, features=features)
        np.testing.assert_array_equal(np.float32(answer["logits"]), made.logits([300, 3]))
        while good(reader, "/predict", {"nodes": [300]})["position"] < 2:
            pass
        assert good(reader, "/predict", {"nodes": [300, 3]})["logits"] == answer["logits"]
        reader.close()
        assert good(app, "/health")["num_nodes"] == 302
        engine.live.merge()
        assert good(app, "/delete", {"nodes": ["ann"]})["edges_removed"] == 2
        assert ask(app, "/predict", {"nodes": ["ann"]}).status == 400
        app.close()
    engine.live.close()
    again = Engine(artifact, folder)
    assert (again.live.names, again.live.named) == ({301: "bob"}, {"bob": 301})
    again.live.merge()
    files = [path for path in folder.rglob("*") if path.is_file()]
    gone = ("ann", rows[0].tobytes().decode("latin-1"))
    texts = [path.read_bytes().decode("latin-1") for path in files]
    assert not [text for text in texts for trace in gone if trace in text]
    assert any("bob" in text for text in texts)
    again.live.close()
    assert ids.later == {"bob": 301}


def test_answers_of_new_nodes_are_replayed(app, artifact, folder, tmp_path, capsys):
    width, record = app.engine.model.spec.num_features, tmp_path / "answers"
    with open(record, "w") as file:
        app._record = file
        for number in range(3):
            good(app, "/nodes", {"features": [[number] * width]})
            good(app, "/append", {"src": [number, 5], "dst": [300 + number] * 2})
            good(app, "/predict", {"nodes": [300 + number, 5]})
    replayed(capsys, artifact, folder, record)


def test_new_nodes_that_are_refused(app, engine):
    engine.model.node_ids = jgs.NodeIds([f"n{number}" for number in range(300)])
    row = [0.0] * engine.model.spec.num_features
    good(app, "/nodes", {"features": [row], "names": ["ann"]})
    for body, words in (
        ({}, "features"),
        ({"features": [row]}, "names"),
        ({"features": [row], "names": ["n7"]}, "new"),
        ({"features": [row], "names": ["ann"]}, "new"),
        ({"features": [row, row], "names": ["a", "a"]}, "2, 1 different"),
        ({"features": [row], "names": ["a", "b"]}, "one for each of 1"),
        ({"features": [row], "names": [7]}, "as others are"),
        ({"features": [row], "names": [["a"]]}, "text"),
        ({"features": [row], "names": ["a"], "type": "user"}, "type"),
        ({"features": [row], "names": ["a"], "time": [3]}, "times of new nodes"),
        ({"features": [row[:-1]], "names": ["a"]}, "rows must be like"),
        ({"features": [[1e300, *row[1:]]], "names": ["a"]}, "which is float32"),
        ({"features": ["x"], "names": ["a"]}, "numbers"),
        ({"features": [row] * 1200, "names": [f"x{n}" for n in range(1200)]}, "room for new"),
    ):
        answer = ask(app, "/nodes", body, method="POST")
        assert (answer.status, words in answer.text) == (400, True), answer.text
    assert engine.live.position == 1


def test_new_nodes_of_a_type_with_times(typed, tmp_path, capsys):
    """Their ids follow all others. One like another, with its edges, has its answers."""
    record = tmp_path / "answers"
    before = jgs.load_exported(typed).logits(np.arange(36), time=9000)
    with open(record, "w") as file:
        engine = Engine(typed, tmp_path / "graph")
        app = Application(engine, record=file)
        asked = {"nodes": [*range(36)], "time": 9000}
        np.testing.assert_array_equal(
            np.float32(good(app, "/predict", asked)["logits"]), before
        )
        row = np.asarray(engine.live.features["user"])[3].tolist()
        new = {"features": [row, row], "type": "user"}
        assert good(app, "/nodes", new)["nodes"] == [36, 37]
        graph = engine.live.packed()
        own = slice(*np.asarray(graph.indptr)[3:5])
        src, time = np.asarray(graph.indices)[own], np.asarray(graph.edge_time)[own]
        edges = {"src": src.tolist(), "dst": [37] * src.size, "time": time.tolist()}
        good(app, "/append", edges | {"relation": "of"})
        for moment in (4000, 9000):
            answer = good(app, "/predict", {"nodes": [37, 3, 36], "time": moment})["logits"]
            assert answer[0] == answer[1] != answer[2]
            assert good(app, "/predict", {"nodes": [], "time": moment})["time"] == []
            kind = {"nodes": [31], "node_type": "user", "time": moment}
            assert good(app, "/predict", kind)["logits"] == answer[:1]
        for path, body, words in (
            ("/predict", {"nodes": [38]}, "38"),
            ("/predict", {"nodes": [32], "node_type": "user"}, "32"),
            ("/nodes", {"features": [[1]], "type": "item"}, "matrix"),
            ("/nodes", {"features": [row]}, "type"),
            ("/append", edges | {"dst": [35] * src.size, "relation": "of"}, "0 to 29 or 36"),
        ):
            answer = ask(app, path, body)
            assert (answer.status, words in answer.text) == (400, True), answer.text
        app.close()
        engine.live.close()
    replayed(capsys, typed, tmp_path / "graph", record)


def test_a_share_of_changes_is_merged_beside_the_answers(artifact, folder, monkeypatch):
    monkeypatch.setattr("jgs.serve.engine._LEAST_MERGED", 20)
    engine = Engine(artifact, folder, merge_at=0.01)
    app = Application(engine)
    before = good(app, "/predict", {"nodes": [7, 8]})
    reader = Application(Engine(artifact, folder, follow=True))
    due = engine._due
    while engine.merging is None:
        edges = good(app, "/append", {"src": [1] * 9, "dst": [7] * 9})["edges"]
        good(app, "/delete", {"edges": edges})
    assert due <= engine.unmerged < due + 18
    more = good(app, "/append", {"src": [2], "dst": [8]})
    assert good(app, "/predict", {"nodes": [7]})["logits"] == before["logits"][:1]
    engine.merging.join()
    assert engine.unmerged < due
    (base,) = jgs.graph.live.base.bases(folder)
    assert 0 < base < more["position"]
    last = good(app, "/predict", {"nodes": [7, 8]})
    while (answer := good(reader, "/predict", {"nodes": [7, 8]}))["position"] < base:
        pass
    assert answer == last
    reader.close()
    app.close()
    engine.live.close()
