"""Rows of features that change while `jgs serve` answers: at every moment, or from one on."""

import shutil

import numpy as np
import pytest
from asking import ask, good, replayed
from small_data import typed_moments
from trained import of_data

import jgs
from jgs import Graph
from jgs.data import Dataset, LabelTable
from jgs.export.program import Form
from jgs.export.write import export_again
from jgs.graph import TypedFeatures
from jgs.serve import Application, Engine

BEFORE, SINCE, AFTER = 4000, 6000, 9000
USERS = {"nodes": [*range(30)]}


def logits(app, time, nodes=USERS):
    return np.float32(good(app, "/predict", nodes | {"time": time})["logits"])


def test_rows_from_a_moment_on(typed, tmp_path, capsys):
    """Answers before the moment stay; later ones are those of a graph with the row."""
    data, folder, record = typed_moments(), tmp_path / "graph", tmp_path / "answers"
    with open(record, "w") as file:
        engine = Engine(typed, folder)
        app, reader = Application(engine, record=file), Engine(typed, folder, follow=True)
        before = {time: logits(app, time) for time in (BEFORE, SINCE, AFTER)}
        row = {"nodes": [3], "features": [[4, -4]], "type": "user"}
        assert good(app, "/rows", row | {"time": SINCE}).keys() == {"artifact", "position"}
        compiled = engine.model._programs["4"]._cache_size()
        rows = np.array(data.features.tables[0])
        rows[3] = [4, -4]
        features = TypedFeatures.from_dict(data.graph.schema, {"user": rows})
        made = jgs.load_exported(typed, graph=data.graph, features=features)
        for time in (BEFORE, SINCE):
            np.testing.assert_array_equal(logits(app, time), before[time])
        for time in (SINCE + 1, AFTER):
            np.testing.assert_array_equal(
                logits(app, time), made.logits(np.arange(30), time=time)
            )
        assert (logits(app, AFTER)[3] != before[AFTER][3]).any()
        last = {"nodes": [3], "features": [[1, 1]], "type": "user", "time": 20_000}
        good(app, "/rows", last)
        assert good(app, "/predict", {"nodes": [3]})["time"] == [20_001]
        np.testing.assert_array_equal(
            logits(app, AFTER), made.logits(np.arange(30), time=AFTER)
        )
        assert engine.model._programs["4"]._cache_size() == compiled
        reader.follow()
        np.testing.assert_array_equal(
            reader.model.logits(np.arange(30), time=AFTER),
            made.logits(np.arange(30), time=AFTER),
        )
        reader.live.close()
        good(app, "/rows", {"nodes": [5], "features": [[0, 9]]})  # of its type, at every moment
        assert (logits(app, BEFORE)[5] != before[BEFORE][5]).any()
        seen = [logits(app, time) for time in (BEFORE, AFTER, 20_001)]
        for body, words in (
            ({}, "must have nodes"),
            (row | {"time": 1.5}, "times"),
            (row | {"time": [1, 2]}, "times"),
            (row | {"features": [[1]]}, "rows must be like"),
            (row | {"features": [[1, 2]] * 2}, "1 rows"),
            (row | {"nodes": [30]}, "30"),
            (row | {"type": "item"}, "matrix"),
            ({"nodes": [3, 31], "features": [[1, 2]] * 2}, "name the type"),
        ):
            answer = ask(app, "/rows", body, method="POST")
            assert (answer.status, words in answer.text) == (400, True), answer.text
        app.close()
        engine.live.close()
    replayed(capsys, typed, folder, record)
    again = Engine(typed, folder)
    app = Application(again)
    again.live.merge()
    for time, own in zip((BEFORE, AFTER, 20_001), seen, strict=True):
        np.testing.assert_array_equal(logits(app, time), own)
    again.model.node_ids = jgs.NodeIds([f"n{node}" for node in range(36)])
    named = {"nodes": ["n5"], "features": [[1, 9]], "time": SINCE}  # its type is known
    assert ask(app, "/rows", named | {"type": "user"}).status == 400
    good(app, "/rows", named)
    assert (logits(app, BEFORE)[5] == seen[0][5]).all()
    assert (logits(app, AFTER)[5] != seen[1][5]).any()
    good(app, "/delete", {"nodes": [3]})
    assert not np.asarray(again.live.features["user"].parts["later.rows"])[:2].any()
    app.close()
    again.live.close()
    kept = tmp_path / "kept"  # answers of before the merge are gone
    lines = record.read_text().splitlines()
    kept.write_text("".join(f"{line}\n" for line in lines if '"position": 3' in line))
    replayed(capsys, typed, folder, kept)


@pytest.fixture(scope="module")
def untyped(tmp_path_factory):
    """A run on a graph without types, whose first layer reads sums of rows."""
    folder, rng = tmp_path_factory.mktemp("untyped"), np.random.default_rng(0)
    src, dst = rng.integers(0, 40, (2, 900))
    graph = Graph.from_edges(src, dst, 40, edge_time=np.arange(900) * 11)
    nodes, at = rng.integers(0, 40, 300), rng.integers(2000, 9000, 300)
    table = LabelTable.from_arrays(nodes, at, rng.integers(0, 2, 300))
    features = rng.standard_normal((40, 3)).astype(np.float32)
    data = Dataset.from_arrays(graph, features, None, None, label_table=table, name="untyped")
    data.save(folder / "data")
    return data, of_data(
        f"--fanouts 3 3 --hidden 8 --batch-size 60 --dataset {folder / 'data'}"
    )


def test_an_older_artifact_is_written_again(untyped, tmp_path, monkeypatch):
    """Its programs read no moments, so that rows at moments are refused until then."""
    (data, run), artifact, folder = untyped, tmp_path / "model", tmp_path / "graph"
    with monkeypatch.context() as patch:
        patch.setattr(Form, "later", lambda self, table: False)
        options = {"with_graph": True, "live": True, "batch_sizes": (8,), "new_nodes": 5}
        assert jgs.export_run(run, artifact, **options).direct
    row = {"nodes": [7], "features": [[4, -4, 4]]}
    engine = Engine(artifact, folder)
    app = Application(engine)
    answer = ask(app, "/rows", row | {"time": SINCE})
    assert (answer.status, "--again" in answer.text) == (400, True), answer.text
    nodes = {"nodes": [*range(40)]}
    before = {time: logits(app, time, nodes) for time in (BEFORE, AFTER)}
    app.close()
    engine.live.close()
    old = shutil.copytree(artifact, tmp_path / "old")
    export_again(artifact)
    engine = Engine(artifact, folder)
    app = Application(engine)
    for time in (BEFORE, AFTER):
        np.testing.assert_array_equal(logits(app, time, nodes), before[time])
    good(app, "/rows", row | {"time": SINCE})
    rows = np.array(data.features)
    rows[7] = [4, -4, 4]
    made = jgs.load_exported(artifact, graph=data.graph, features=jgs.graph.as_device(rows))
    np.testing.assert_array_equal(logits(app, BEFORE, nodes), before[BEFORE])
    np.testing.assert_array_equal(logits(app, AFTER, nodes), made.logits(time=AFTER))
    assert (logits(app, AFTER, nodes) != before[AFTER]).any(axis=1).sum() > 1  # neighbours too
    app.close()
    engine.live.close()
    with pytest.raises(jgs.InputError, match="--again"):
        Engine(old, folder)


def test_a_model_without_times(app):
    row = {"nodes": [7], "features": [[1.0] * app.engine.model.spec.num_features]}
    before = good(app, "/predict", {"nodes": [7, 8]})["logits"]
    answer = ask(app, "/rows", row | {"time": 5})
    assert (answer.status, "without times" in answer.text) == (400, True), answer.text
    assert good(app, "/rows", row)["position"] == 1
    assert good(app, "/predict", {"nodes": [7]})["logits"] != before[:1]
