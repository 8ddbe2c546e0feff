"""`--task nodes` with labels at moments: what a leak would tell, what the past tells; ranks."""

import dataclasses
import json
import signal

import jax
import numpy as np
import pytest
from flax import nnx
from small_runs import arrays, same_run

import jgs
from jgs import Graph
from jgs.data import Dataset, LabelTable
from jgs.dist.communicators.mesh import Mesh
from jgs.partition.folder import write_parts
from jgs.predict.__main__ import main as predict
from jgs.report import write_report
from jgs.train.__main__ import main
from jgs.train.config import Config
from jgs.train.loop import learner
from jgs.train.loop import training as loop
from jgs.train.loop.fingerprint import fingerprint
from jgs.train.tasks.task import open_job

N, ROWS = 60, 900
FLAGS = """
    --hidden 16 --fanouts 3 --batch-size 60 --epochs 4 --lr 2e-2 --no-progress --dropout 0
    --latest
"""


def moments(numbers=False):
    """Nodes whose label at a time is the kind of the source of the last edge before it."""
    rng = np.random.default_rng(0)
    dst = np.tile(np.arange(N), 80)
    src = rng.integers(0, N, dst.size)
    time = rng.permutation(dst.size) * 10
    graph = Graph.from_edges(src, dst, N, edge_time=time)
    nodes, at = rng.integers(0, N, ROWS), rng.integers(8_000, 40_000, ROWS)
    labels = last_before(src, dst, time, nodes, at) % 3
    table = LabelTable.from_arrays(nodes, at, labels * 2.5 if numbers else labels)
    features = np.eye(3, dtype=np.float32)[np.arange(N) % 3]
    return Dataset.from_arrays(graph, features, None, None, label_table=table, name="past")


def last_before(src, dst, time, nodes, at):
    """The source of each node's last edge before a time."""
    found = []
    for node, moment in zip(nodes, at, strict=True):
        own = np.flatnonzero((dst == node) & (time < moment))
        found.append(src[own[np.argmax(time[own])]])
    return np.array(found)


def leaking():
    """A moment of each node. From it on, at the moment itself too, every edge comes from a
    node of the kind of the label; edges before it come from any. So whoever sees one edge too
    many knows the label, and the past does not."""
    rng = np.random.default_rng(0)
    at, labels = 1000 + rng.permutation(ROWS) * 10, rng.integers(0, 3, ROWS)
    dst = np.tile(np.arange(ROWS), 8)
    age = np.repeat([-40, -30, -20, -10, 0, 10, 20, 30], ROWS)
    kind = np.where(age < 0, rng.integers(0, 3, dst.size), labels[dst])
    src = rng.integers(0, ROWS // 3, dst.size) * 3 + kind
    graph = Graph.from_edges(src, dst, ROWS, edge_time=at[dst] + age)
    table = LabelTable.from_arrays(np.arange(ROWS), at, labels)
    features = np.eye(3, dtype=np.float32)[np.arange(ROWS) % 3]
    return Dataset.from_arrays(graph, features, None, None, label_table=table, name="leak")


def typed():
    """Users whose label at a time is told by the item of their last event, and items have no
    features: what they tell is learned."""
    rng = np.random.default_rng(0)
    user, item = np.tile(np.arange(30), 40), rng.integers(0, 6, 1200)
    time = rng.permutation(1200) * 10
    events = {("item", "of", "user"): (item, user)}
    counts, times = {"user": 30, "item": 6}, dict.fromkeys(events, time)
    graph = Graph.from_relations(counts, events, edge_time=times)
    nodes, at = rng.integers(0, 30, 600), rng.integers(3_000, 11_000, 600)
    table = LabelTable.from_arrays(nodes, at, last_before(item, user, time, nodes, at) % 2)
    features = {"user": rng.standard_normal((30, 2)).astype(np.float32)}
    return Dataset.from_arrays(graph, features, None, None, label_table=table, name="typed")


@pytest.fixture(scope="module")
def past(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data") / "past"
    moments().save(folder)
    return folder


def train(data, run_dir, *more):
    return main([*map(str, (*FLAGS.split(), "--dataset", data, "--run-dir", run_dir, *more))])


def test_the_past_is_learned_and_the_future_is_not(past, tmp_path, capsys):
    leaking().save(tmp_path / "leak")
    for data, run in ((past, "a"), (tmp_path / "leak", "b")):
        assert train(data, tmp_path / run, "--fanouts", 1, "--epochs", 8) == 0
    found = [json.loads((tmp_path / run / "result.json").read_text()) for run in "ab"]
    assert found[0]["test_accuracy"] > 0.9
    assert found[1]["test_accuracy"] < 0.5  # by chance a third; an edge too many: 1
    # Predictions of the test's rows are those that were judged, whatever the batches.
    run, table = jgs.open_run(tmp_path / "a"), moments().label_table
    nodes, time = run.rows("test")
    labels = table.labels[table.split == 2]
    np.testing.assert_array_equal(nodes, table.nodes[table.split == 2])
    told = run.predict(nodes, time=time)
    assert (told.prediction == labels).mean() == pytest.approx(found[0]["test_accuracy"])
    some = run.predict(nodes[[7, 3]], time=time[[7, 3]])
    np.testing.assert_allclose(some.probability, told.probability[[7, 3]], rtol=1e-5)
    argv = ["--run-dir", tmp_path / "a", "--split", "test", "--no-progress"]
    argv = [*map(str, argv), "--out", str(tmp_path / "out.npy")]
    assert predict(argv) == 0
    rows = np.load(tmp_path / "out.npy")
    assert rows.dtype.names == ("node", "time", "prediction", "probability")
    for name, want in (("node", nodes), ("time", time), ("prediction", told.prediction)):
        np.testing.assert_array_equal(rows[name], want)
    capsys.readouterr()
    assert predict([*argv, "--at", "7"]) == 2
    assert "--at must be for other rows than a split's" in capsys.readouterr().err


def test_a_page_opens_the_data_once(past, tmp_path, monkeypatch):
    assert train(past, tmp_path / "run", "--fanouts", 1, "--epochs", 1) == 0
    opened, own = [], jgs.data.load
    monkeypatch.setattr(jgs.data, "load", lambda *a, **o: opened.append(a) or own(*a, **o))
    found = write_report(tmp_path / "run", split="val")
    assert found["nodes"] == (moments().label_table.split == 1).sum()
    assert len(opened) == 1


def test_numbers_by_the_command(tmp_path, capsys):
    moments(numbers=True).save(tmp_path / "data")
    more = ("--model", "tgat", "--heads", 2, "--fanouts", 1, "--epochs", 8)
    assert train(tmp_path / "data", tmp_path / "run", *more) == 0
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["metric"] == "RMSE"
    assert result["val_accuracy"] < 1.0  # the deviation is 2.04
    (tmp_path / "nodes.txt").write_text("3\n7\n")
    argv = ["--run-dir", tmp_path / "run", "--nodes", tmp_path / "nodes.txt"]
    argv = [*map(str, argv), "--out", str(tmp_path / "out.csv"), "--no-progress"]
    assert predict([*argv, "--at", "30000"]) == 0
    head, *rows = (tmp_path / "out.csv").read_text().splitlines()
    assert head == "node,value"
    assert [row.split(",")[0] for row in rows] == ["3", "7"]
    capsys.readouterr()
    assert predict(argv) == 2
    said = "must hold a node id and a time, without --at, from 0 to 59, one a line"
    assert said in capsys.readouterr().err.splitlines()[-1]
    (tmp_path / "nodes.txt").write_text("7 20000\n3 30000\n7 30000\n")
    assert predict(argv) == 0
    head, *timed = (tmp_path / "out.csv").read_text().splitlines()
    assert head == "node,time,value"
    assert [row.split(",")[:2] for row in timed] == [
        ["7", "20000"],
        ["3", "30000"],
        ["7", "30000"],
    ]
    assert [row.split(",")[2] for row in timed[1:]] == [row.split(",")[1] for row in rows]
    assert timed[0].split(",")[2] != timed[2].split(",")[2]
    capsys.readouterr()
    assert predict([word for word in argv if "nodes" not in word]) == 2
    assert "--at must say the time" in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ("--metric rmse", "must be one of accuracy, f1_micro"),
        ("--sampler shadow --fanouts 3", "must have a sampler that takes cutoffs"),
        ("--model gcn", "a model that reads no degrees"),
        ("--batch-size 700", "the number of rows of labels to train on; got 700 for 6"),
        ("--by-time 0", "--by-time must be at least 1"),
    ],
)
def test_settings_that_do_not_fit_are_refused(past, tmp_path, capsys, flags, says):
    flags = [*FLAGS.replace("--latest", "").split(), *flags.split()]
    assert main([*flags, "--dataset", str(past), "--run-dir", str(tmp_path / "run")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert says in line


def test_data_that_do_not_fit_are_refused(tmp_path, capsys):
    data, folders = moments(), [str(tmp_path / name) for name in ("few", "untimed", "labels")]
    few = data.label_table._replace(split=np.minimum(data.label_table.split, 1))
    untimed = Graph.from_edges(np.arange(N - 1), np.arange(1, N), N)
    for graph, table, folder in (
        (data.graph, few, folders[0]),
        (untimed, data.label_table, folders[1]),
    ):
        made = Dataset.from_arrays(graph, data.features, None, None, label_table=table)
        made.save(folder)
    labels = np.arange(N) % 2, {"train": [1, 2, 3], "val": [4], "test": [5]}
    Dataset.from_arrays(data.graph, data.features, *labels).save(folders[2])
    for folder, more, says in (
        (folders[0], (), "must have rows of the split test; got none"),
        (folders[1], (), "must have a graph whose edges have times"),
        (folders[2], ("--by-time", "3"), "--by-time must be for labels at moments"),
    ):
        flags = [*FLAGS.replace("--latest", "").split(), "--batch-size", "3", *more]
        assert main([*flags, "--dataset", folder, "--run-dir", str(tmp_path / "run")]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert says in line


def test_a_run_knows_its_table():
    """Every column of it, so that no run goes on with other rows or labels."""
    data = moments()
    table, known = data.label_table, fingerprint(data)
    for name, column in table._asdict().items():
        other = dataclasses.replace(data, label_table=table._replace(**{name: column[::-1]}))
        assert fingerprint(other) != known


def test_classes_are_those_of_the_table(tmp_path):
    """Also where the nodes have labels of their own, of fewer classes and with names."""
    data, ids = moments(), np.arange(N)
    splits = {name: ids[i::3] for i, name in enumerate(("train", "val", "test"))}
    both = Dataset.from_arrays(
        data.graph, data.features, ids % 2, splits, class_names=("a", "b"),
        label_table=data.label_table,
    )  # fmt: skip
    both.save(tmp_path / "both")
    assert train(tmp_path / "both", tmp_path / "run", "--epochs", 1) == 0
    run = jgs.open_run(tmp_path / "run")
    assert run.num_classes == 3
    assert run.class_names is None
    with pytest.raises(jgs.InputError, match="of a run without labels at moments"):
        run.split("train")
    # A graph that is refused changes nothing for the next question.
    told = run.predict([3], time=9_000).probability
    untimed = Graph.from_edges([0], [1], N)
    with pytest.raises(jgs.InputError, match="times"):
        run.predict([3], time=9_000, graph=untimed)
    assert run.predict([3], time=9_000).probability == told


def test_a_run_in_the_order_of_time_is_resumed_within_an_epoch(past, tmp_path, monkeypatch):
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    more = ("--epochs", 2, "--by-time", 100)
    assert train(past, whole, *more) == 0
    step, calls = learner.ModelLearner.step, []

    def stopping(self, *args):
        calls.append(None)
        if len(calls) == 14:
            signal.raise_signal(signal.SIGINT)
        return step(self, *args)

    with monkeypatch.context() as patch:
        patch.setattr(learner.ModelLearner, "step", stopping)
        assert train(past, cut, *more) == 130
    assert train(past, cut, *more, "--resume") == 0
    same_run(cut, whole)


@pytest.mark.parametrize(
    ("data", "more"),
    [
        (moments, {"fanouts": (2, 2), "by_time": 150, "latest": False}),
        (typed, {"fanouts": (1,), "model": "rgcn", "epochs": 4, "lr": 0.1}),
    ],
)
def test_any_number_of_ranks_learns_the_same(tmp_path, data, more):
    folder, data = tmp_path / "parts", data()
    num = data.graph.num_nodes
    own = np.random.default_rng(2).permutation(num) % 4
    write_parts(folder, data, own, 4, method="random")
    found = []
    for ranks in (1, 2):
        run_dir = tmp_path / f"{ranks}"
        settings = {"epochs": 2, "hidden": 8, "latest": True, "dropout": 0.0} | more
        config = Config(
            partition=str(folder), batch_size=60 // ranks, ranks=ranks, progress=False,
            run_dir=str(run_dir), **settings
        )  # fmt: skip
        comm = Mesh(jax.devices()[:ranks]) if ranks > 1 else None
        result = loop.run(config, lambda config, comm=comm: open_job(config, comm))
        found.append((arrays(run_dir), result))
    (one, best), (two, other) = found
    for mine, theirs in zip(one, two, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-2, atol=2e-3)
    assert other["test_accuracy"] == pytest.approx(best["test_accuracy"], abs=0.02)
    if data.name == "typed":
        assert best["test_accuracy"] > 0.9  # by chance a half
    run = jgs.open_run(tmp_path / "2", partition=folder)
    nodes, time = run.rows("test")
    table = data.label_table
    np.testing.assert_array_equal(nodes, table.nodes[table.split == 2])
    right = run.predict(nodes, time=time).prediction == table.labels[table.split == 2]
    assert right.mean() == pytest.approx(other["test_accuracy"])
    whole = run.predict(time=9_000).probability
    some = run.predict([5, 20], time=9_000).probability
    np.testing.assert_allclose(some, whole[[5, 20]], rtol=1e-4)
    again = run.predict(time=9_000, graph=data.graph).probability  # by the data set's ids
    np.testing.assert_allclose(again, whole, rtol=1e-4)


def test_more_ranks_than_rows_to_judge(tmp_path):
    """Three rows each, on four ranks."""
    folder, data = tmp_path / "parts", moments(numbers=True)
    split = np.repeat([0, 1, 2], [ROWS - 6, 3, 3]).astype(np.int8)
    data = dataclasses.replace(data, label_table=data.label_table._replace(split=split))
    write_parts(folder, data, np.arange(N) % 4, 4, method="random")
    found = []
    for ranks in (1, 4):
        config = Config(
            partition=str(folder), batch_size=16 // ranks, ranks=ranks, fanouts=(4,), hidden=8,
            progress=False,
        )  # fmt: skip
        job = open_job(config, Mesh(jax.devices()[:ranks]) if ranks > 1 else None)
        model = job.model(jax.random.key(1))
        job.start(model, jax.random.key(2), None)
        found.append([job.metric(nnx.state(model), name) for name in ("val", "test")])
        job.close()
    np.testing.assert_allclose(*found, rtol=1e-4)


def test_numbers_of_any_size(tmp_path):
    """Also where their squares are no float32."""
    found = []
    for scale in (1, 1e21):
        folder, data = tmp_path / str(scale), moments(numbers=True)
        table = data.label_table
        table = table._replace(labels=table.labels * np.float32(scale))
        dataclasses.replace(data, label_table=table).save(folder)
        job = open_job(
            Config(dataset=str(folder), fanouts=(4,), hidden=8, batch_size=60, progress=False)
        )
        model = job.model(jax.random.key(1))
        job.start(model, jax.random.key(2), None)
        found.append(job.metric(nnx.state(model), "val") / scale)
        job.close()
    assert found[0] == pytest.approx(found[1], rel=1e-4)
