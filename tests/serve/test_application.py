"""`jgs serve` without a socket: answers, changes, refusals, the queue, and /metrics."""

import asyncio
import json
import os
import threading

import numpy as np
import pytest
from asking import Client, ask, asked, good
from cases import cases
from prometheus_client.parser import text_string_to_metric_families
from refusals import refused

import jgs
from jgs.serve import Application, Engine


def metrics(app):
    text = ask(app, "/metrics").text
    samples = [s for family in text_string_to_metric_families(text) for s in family.samples]
    labels = ("route", "code", "le")
    return {(s.name, *(s.labels[n] for n in labels if n in s.labels)): s.value for s in samples}


def test_answers_are_the_models_bits(app, artifact):
    model = jgs.load_exported(artifact)
    found = good(app, "/predict", {"nodes": [7, 42, 7], "key": [3, 9]})
    logits = model.logits([7, 42, 7], key=np.uint32([3, 9]))
    np.testing.assert_array_equal(np.float32(found["logits"]), logits)
    want = model.predict([7, 42, 7], key=np.uint32([3, 9]))
    np.testing.assert_array_equal(np.float32(found["probability"]), want.probability)
    assert found["class_name"] == model.class_names[want.prediction].tolist()
    assert (found["position"], found["key"], found["nodes"]) == (0, [3, 9], [7, 42, 7])
    assert len(found["artifact"]) == 64
    one = good(app, "/predict", {"nodes": 7})["logits"]
    np.testing.assert_array_equal(np.float32(one), model.logits([7]))
    assert good(app, "/predict", {"nodes": []})["logits"] == []


def test_requests_that_wait_together_are_one_batch(engine, artifact):
    """Also where keys differ, and where one is refused. An answer says which program it is of,
    though others are in the batch."""
    model, rng = jgs.load_exported(artifact), np.random.default_rng(0)
    nodes = [rng.integers(0, 300, rng.integers(1, 5)).tolist() for _ in range(40)]
    app = Application(engine, delay=0.2)

    async def every(bodies):
        return await asyncio.gather(*(asked(app, "/predict", body) for body in bodies))

    keyed = [{"nodes": own, "key": [len(own), 9], "batch_size": None} for own in nodes]
    answers = asyncio.run(every(keyed))
    assert metrics(app)["jgs_batch_requests_count",] <= 2
    for own, answer in zip(nodes, answers, strict=True):
        logits = model.logits(own, key=np.uint32([len(own), 9]))
        np.testing.assert_array_equal(np.float32(answer.json["logits"]), logits)
        assert answer.json["batch_size"] == 8
    nodes[11] = [7, 300]
    answers = asyncio.run(every([{"nodes": own} for own in nodes]))
    assert [answer.status for answer in answers] == [200] * 11 + [400] + [200] * 28
    logits = model.logits(nodes[12])
    np.testing.assert_array_equal(np.float32(answers[12].json["logits"]), logits)
    app.close()


def test_changes_are_in_the_next_answer_and_in_one_record(engine, folder, artifact):
    app = Application(engine, delay=0.2)
    before = good(app, "/predict", {"nodes": [1]})["logits"]
    bodies = [{"src": [5, 6], "dst": [1, 1]}, {"src": [7], "dst": [300]}, {"src": 8, "dst": 1}]

    async def every():
        return await asyncio.gather(*(asked(app, "/append", body) for body in bodies))

    first, wrong, last = asyncio.run(every())
    total = engine.live.next_edge
    assert (first.json["edges"], last.json["edges"]) == ([total - 3, total - 2], [total - 1])
    assert wrong.status == 400
    assert "300" in wrong.json["value"]
    again = [good(app, "/append", body) for body in bodies[::2]]
    after = good(app, "/predict", {"nodes": [1]})
    assert after["logits"] != before
    assert after["position"] == again[-1]["position"] == engine.live.position
    fresh = jgs.load_exported(artifact, graph=engine.live.packed(), features=features(engine))
    np.testing.assert_array_equal(np.float32(after["logits"]), fresh.logits([1]))
    gone = good(app, "/delete", {"edges": again[0]["edges"]})
    assert gone["edges_removed"] == 2
    assert good(app, "/delete", {"between": [[8, 1]]})["edges_removed"] >= 2
    assert good(app, "/delete", {"nodes": [1]})["edges_removed"] > 0
    assert good(app, "/predict", {"nodes": [1]})["logits"] != before
    app.close()
    engine.live.close()
    opened = Engine(artifact, folder)
    np.testing.assert_array_equal(opened.model.logits(), engine.model.logits())
    opened.live.close()


def features(engine):
    return np.array(engine.live.features)


def test_requests_that_wait_are_one_change(engine):
    app = Application(engine, delay=0.2)

    async def every():
        bodies = [{"src": [n], "dst": [n + 1]} for n in range(20)]
        return await asyncio.gather(*(asked(app, "/append", body) for body in bodies))

    answers = [answer.json for answer in asyncio.run(every())]
    app.close()
    assert engine.live.position <= 2
    assert [a["edges"] for a in answers] == [[answers[0]["edges"][0] + n] for n in range(20)]


def test_nodes_have_names(app, engine):
    names = jgs.NodeIds([f"n{number}" for number in range(300)])
    engine.model.node_ids = names
    found = good(app, "/predict", {"nodes": ["n7", "n42"]})
    assert (found["nodes"], found["names"]) == ([7, 42], ["n7", "n42"])
    assert good(app, "/append", {"src": ["n7"], "dst": ["n42"]})["position"] == 1
    answer = ask(app, "/predict", {"nodes": ["n7", "nobody"]})
    assert (answer.status, "'nobody'" in answer.json["value"]) == (400, True)
    engine.model.node_ids = jgs.NodeIds(np.arange(300) * 10)
    assert good(app, "/predict", {"nodes": [70], "names": True})["nodes"] == [7]


BAD = (
    ("/predict", b"{", "JSON"),
    ("/predict", b"", "JSON"),
    ("/predict", b"\xff\xfe{\0}\0", "JSON"),
    ("/predict", b"[1]", "object"),
    ("/predict", b"[" * 100_000, "JSON"),
    ("/predict", b'{"nodes": ' + b"[" * 500 + b"]" * 500 + b"}", "integers"),
    ("/predict", {"nodes": ["n" * 10_000]}, "names"),
    ("/predict", {"n" * 10_000: 1}, "field"),
    ("/predict", b'{"nodes": [NaN]}', "finite"),
    ("/predict", b'{"nodes": [1], "time": -Infinity}', "finite"),
    ("/predict", b'{"nodes": [1e999]}', "finite"),
    ("/predict", b'{"nodes": [1], "nodes": [2]}', "once"),
    ("/predict", b'{"nodes": [' + b"9" * 5000 + b"]}", "JSON"),
    ("/predict", b'{"nodes": [1], "time": "\\uD800"}', "JSON"),
    ("/predict", {"nodes": [10**30]}, "nodes"),
    ("/predict", {"nodes": [300]}, "300"),
    ("/predict", {"nodes": [-1]}, "-1"),
    ("/predict", {"nodes": [1.5]}, "1.5"),
    ("/predict", {"nodes": [True]}, "integers"),
    ("/predict", {"nodes": [[1]]}, "integers"),
    ("/predict", {"nodes": {"a": 1}}, "integers"),
    ("/predict", {"nodes": None}, "integers"),
    ("/predict", {"nodes": ["ann"]}, "no names"),
    ("/predict", {"nodes": [1], "names": 3}, "names"),
    ("/predict", {"nodes": [1], "colour": 3}, "colour"),
    ("/predict", {"nodes": [1], "time": 7}, "time"),
    ("/predict", {"nodes": [1], "key": [1]}, "key"),
    ("/predict", {"nodes": [1], "batch_size": 3}, "batch_size"),
    ("/predict", {"nodes": [1], "batch_size": True}, "batch_size"),
    ("/predict", {"nodes": [1], "key": [1, 2**32]}, "key"),
    ("/predict", {"nodes": [1], "node_type": "user"}, "node_type"),
    ("/predict", {"nodes": [1], "relation": ["a"]}, "relation"),
    ("/predict", {"colour": 3, "nodes": [1]}, "colour"),
    ("/predict", {}, "nodes or pairs"),
    ("/predict", {"nodes": [1], "pairs": [[1, 2]]}, "Give one"),
    ("/predict", {"pairs": [[1]]}, "pairs"),
    ("/predict", {"nodes": [1] * 4097}, "4096"),
    ("/recommend", {"sources": [1]}, "links"),
    ("/recommend", {"sources": [1], "k": 10**9}, "k must"),
    ("/recommend", {"sources": [1], "k": "x"}, "k must"),
    ("/recommend", {"sources": [1] * 4096, "k": 65}, "at most 262144 targets"),
    ("/recommend", {"sources": [1], "new_only": "no"}, "new_only must"),
    ("/append", {"src": [1]}, "dst"),
    ("/append", {"src": [1], "dst": [1, 2]}, "dst"),
    ("/append", {"src": [1], "dst": [2], "time": [5]}, "time"),
    ("/append", {"src": [1], "dst": [2], "time": {"a": [None]}}, "time"),
    ("/append", {"src": [1], "dst": [2], "weight": ["x"]}, "weight"),
    ("/append", {"src": [1], "dst": [2], "weight": [[1], [1, 2]]}, "weight"),
    ("/append", {"src": [1], "dst": [2], "columns": [1]}, "columns"),
    ("/append", {"src": [1], "dst": [2], "columns": {"x": [1]}}, "x"),
    ("/append", {"src": [1], "dst": [2], "relation": "likes"}, "relation"),
    ("/delete", {}, "edges, between or nodes"),
    ("/delete", {"edges": [10**9]}, "10"),
    ("/delete", {"edges": [0.5]}, "numbers"),
    ("/delete", {"edges": [[1], [2, 3]]}, "numbers"),
    ("/delete", {"edges": [0], "nodes": [1]}, "Give one"),
    ("/delete", {"nodes": [1], "relation": "likes"}, "relation must not be beside nodes"),
    ("/delete", {"edges": [0], "names": True}, "names must not be beside edges"),
)


def test_malformed_requests_are_refused_and_change_nothing(app, engine):
    for path, body, words in BAD:
        answer = ask(
            app, path, body, client=Client([body]) if body == b"" else None, method="POST"
        )
        assert answer.status == 400, (path, body, answer)
        assert answer.text.count("\n") == 1
        assert answer.json.keys() == {"error", "value", "remedy"}
        assert words in answer.text, (path, body, answer.text)
        assert len(answer.text) < 500, answer.text
    assert engine.live.position == 0
    assert good(app, "/predict", {"nodes": [1]})["position"] == 0


def test_paths_methods_and_tokens(engine):
    app = Application(engine, token="s3cret")
    assert ask(app, "/nothing", {"a": 1}).status == 404
    answer = ask(app, "/predict")
    assert (answer.status, answer.headers["Allow"]) == (405, "POST")
    for given in ({}, {"authorization": "Bearer other"}, {"authorization": "s3cret"}):
        answer = ask(app, "/predict", {"nodes": [1]}, **given)
        assert (answer.status, answer.headers["WWW-Authenticate"]) == (401, "Bearer")
        assert ask(app, "/metrics", **given).status == 401
    good(app, "/predict", {"nodes": [1]}, authorization="Bearer s3cret")
    assert good(app, "/health")["position"] == 0
    app._token = os.fsdecode(b"\xff")  # as the environment gives it
    assert ask(app, "/predict", {"nodes": [1]}, authorization="Bearer s3cret").status == 401
    app.close()


def test_bodies_that_are_too_long_or_come_slowly(engine):
    app = Application(engine, body=1000, patience=0.2)
    long = Client([b" " * 600] * 3)
    assert ask(app, "/predict", client=long, method="POST").status == 413
    told = Client([], leaves=True)  # by its header alone: nothing is read
    answer = ask(app, "/predict", client=told, method="POST", content_length=1001)
    assert (answer.status, answer.headers["Connection"]) == (413, "close")
    slow = Client([b"{"] * 100, pause=0.05)
    assert ask(app, "/predict", client=slow, method="POST").status == 408
    leaver = Client([b'{"nodes": [1'], leaves=True, stays=False)
    assert ask(app, "/predict", client=leaver, method="POST") is None
    assert metrics(app)["jgs_requests_total", "/predict", "499"] == 1
    good(app, "/predict", {"nodes": [1]})
    app.close()


def test_the_queue_has_bounds_and_those_who_leave_make_room(engine, monkeypatch):
    free, begun, real = threading.Event(), threading.Event(), engine.answers

    def answers(questions):
        begun.set()
        assert free.wait(20)
        return real(questions)

    monkeypatch.setattr(engine, "answers", answers)
    app, body = Application(engine, places=2, patience=5), {"nodes": [1]}
    text = json.dumps(body).encode()

    async def crowd():
        tasks = [asyncio.ensure_future(asked(app, "/predict", body))]
        await asyncio.to_thread(begun.wait)  # it is computed; two may wait
        leaver = Client([text])
        gone = asyncio.ensure_future(asked(app, "/predict", body, client=leaver))
        tasks.append(asyncio.ensure_future(asked(app, "/predict", body)))
        while app.batcher.waiting < 2:
            await asyncio.sleep(0.01)
        full = await asked(app, "/predict", body)
        assert (full.status, full.headers["Retry-After"]) == (503, "1")
        leaver.gone.set()
        assert await gone is None
        assert app.batcher.waiting == 1
        tasks.append(asyncio.ensure_future(asked(app, "/predict", body)))
        while app.batcher.waiting < 2:
            await asyncio.sleep(0.01)
        free.set()
        return await asyncio.gather(*tasks)

    assert [answer.status for answer in asyncio.run(crowd())] == [200] * 3
    free.clear()
    begun.clear()
    late = Application(engine, patience=0.2)
    answer = ask(late, "/predict", body)
    assert (answer.status, "within 0.2 s" in answer.text) == (504, True)
    free.set()
    late.close()
    assert ask(late, "/predict", body).status == 503  # it is ending
    app.close()


def test_metrics_count_what_was_done(app):
    for _ in range(3):
        good(app, "/append", {"src": [1, 2], "dst": [3, 4]})
    ask(app, "/predict", b"{")
    good(app, "/predict", {"nodes": [1]})
    found = metrics(app)
    assert found["jgs_requests_total", "/append", "200"] == 3
    assert found["jgs_requests_total", "/predict", "400"] == 1
    assert found["jgs_request_seconds_count", "/predict"] == 2
    assert found["jgs_batch_requests_sum",] == 4
    assert (found["jgs_position",], found["jgs_edges_appended",]) == (3, 6)


def test_a_fault_is_500_and_the_server_goes_on(app, engine, monkeypatch, caplog):
    monkeypatch.setattr(engine, "answers", lambda questions: 1 / 0)
    answer = ask(app, "/predict", {"nodes": [1]})
    assert (answer.status, "division" in answer.text) == (500, True)
    assert "ZeroDivisionError" in caplog.text
    monkeypatch.undo()
    apply = engine.live.apply
    monkeypatch.setattr(engine.live, "apply", lambda change: 1 / 0 if apply(change).size else 0)
    assert ask(app, "/append", {"src": [5], "dst": [1]}).status == 500
    assert good(app, "/predict", {"nodes": [1]})["position"] == 1


def test_a_full_disk_is_told_and_the_next_change_is_made(app, engine, monkeypatch):
    before = good(app, "/predict", {"nodes": [1]})

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    answer = ask(app, "/append", {"src": [5], "dst": [1]})
    assert (answer.status, "No space left" in answer.text) == (503, True)
    monkeypatch.undo()
    assert good(app, "/predict", {"nodes": [1]}) == before
    assert good(app, "/append", {"src": [5], "dst": [1]})["position"] == 1


def test_followers_answer_with_the_writers_changes(app, engine, artifact, folder):
    reader = Application(Engine(artifact, folder, follow=True))
    static = Application(Engine(artifact))
    refused("one process that writes", Engine, artifact, folder)
    for number in range(3):
        position = good(app, "/append", {"src": [number], "dst": [1]})["position"]
        while (found := good(reader, "/predict", {"nodes": [1]}))["position"] < position:
            pass
        assert found == good(app, "/predict", {"nodes": [1]})
    answer = ask(reader, "/append", {"src": [1], "dst": [1]})
    assert (answer.status, "--follow" in answer.text) == (409, True)
    answer = ask(static, "/append", {"src": [1], "dst": [1]})
    assert (answer.status, "--log" in answer.text) == (409, True)
    about = good(reader, "/health")
    assert (about["writes"], about["position"]) == (False, 3)
    assert 0 <= about["lag_seconds"] < 5
    engine.live.merge()
    good(app, "/append", {"src": [9], "dst": [1]})
    while good(reader, "/predict", {"nodes": [1]})["position"] < 4:
        pass
    assert good(reader, "/predict", {"nodes": [1]}) == good(app, "/predict", {"nodes": [1]})
    reader.close()
    static.close()


@cases("option", {"live": False}, {"with_graph": False})
def test_other_artifacts_are_refused(whole, tmp_path, option):
    options = {"with_graph": True, "live": True, "batch_sizes": (1,)} | option
    jgs.export_run(whole.folder, tmp_path / "model", **options)
    with pytest.raises(jgs.InputError, match=r"--live|--with-graph"):
        Engine(tmp_path / "model", tmp_path / "graph")
    refused("graphs that grow*got 5", jgs.export_run, whole.folder, tmp_path, new_nodes=5)


def test_a_folder_of_another_graph_is_refused(artifact, folder):
    jgs.Live(jgs.Graph.from_edges([0, 1], [1, 2], 3), folder=folder).close()
    refused("graph of the artifact's form", Engine, artifact, folder)
