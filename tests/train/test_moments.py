"""`--task nodes` with labels at moments: what a leak would tell, what the past tells; ranks."""

import json
import signal

import jax
import numpy as np
import pytest
from small_runs import arrays, same_run

import jgs
from jgs import Graph
from jgs.data import Dataset, LabelTable
from jgs.dist.communicators.mesh import Mesh
from jgs.partition.folder import write_parts
from jgs.predict.__main__ import main as predict
from jgs.train.__main__ import main
from jgs.train.config import Config
from jgs.train.loop import learner
from jgs.train.loop import training as loop
from jgs.train.tasks.task import open_job

N, ROWS = 60, 900
FLAGS = """
    --hidden 16 --fanouts 3 --batch-size 60 --epochs 4 --lr 2e-2 --no-progress --dropout 0
    --latest
"""


def moments(kind, numbers=False):
    """Nodes whose label at a time is the kind of the source of one edge: the last before it
    ("past"), or the first at or after it ("leak")."""
    rng = np.random.default_rng(0)
    dst = np.tile(np.arange(N), 80)
    src = rng.integers(0, N, dst.size)
    time = rng.permutation(dst.size) * 10
    graph = Graph.from_edges(src, dst, N, edge_time=time)
    nodes, at = rng.integers(0, N, ROWS), rng.integers(8_000, 40_000, ROWS)
    labels = []
    for node, moment in zip(nodes, at, strict=True):
        own = np.flatnonzero(dst == node)
        own = own[np.argsort(time[own])]
        place = np.searchsorted(time[own], moment)
        labels.append(src[own[place - 1 if kind == "past" else min(place, own.size - 1)]] % 3)
    labels = np.array(labels)
    table = LabelTable.from_arrays(nodes, at, labels * 2.5 if numbers else labels)
    features = np.eye(3, dtype=np.float32)[np.arange(N) % 3]
    return Dataset.from_arrays(graph, features, None, None, label_table=table, name=kind)


@pytest.fixture(scope="module")
def past(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data") / "past"
    moments("past").save(folder)
    return folder


def train(data, run_dir, *more):
    return main([*map(str, (*FLAGS.split(), "--dataset", data, "--run-dir", run_dir, *more))])


def test_the_past_is_learned_and_the_future_is_not(past, tmp_path):
    moments("leak").save(tmp_path / "leak")
    for data, run in ((past, "a"), (tmp_path / "leak", "b")):
        assert train(data, tmp_path / run, "--fanouts", 1, "--epochs", 8) == 0
    found = [json.loads((tmp_path / run / "result.json").read_text()) for run in "ab"]
    assert found[0]["test_accuracy"] > 0.9
    assert found[1]["test_accuracy"] < 0.5  # by chance a third
    run = jgs.open_run(tmp_path / "a")
    table = moments("past").label_table
    some = slice(0, 200)
    told = run.predict(table.nodes[some], time=table.time[some])
    assert (told.prediction == table.labels[some]).mean() > 0.9


def test_numbers_by_the_command(tmp_path, capsys):
    moments("past", numbers=True).save(tmp_path / "data")
    assert train(tmp_path / "data", tmp_path / "run", "--model", "tgat", "--heads", 2) == 0
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["metric"] == "RMSE"
    assert result["val_accuracy"] < 2.0  # the deviation is 2.04
    (tmp_path / "nodes.txt").write_text("3\n7\n")
    argv = ["--run-dir", tmp_path / "run", "--nodes", tmp_path / "nodes.txt"]
    argv = [*map(str, argv), "--out", str(tmp_path / "out.csv"), "--no-progress"]
    assert predict([*argv, "--at", "30000"]) == 0
    head, *rows = (tmp_path / "out.csv").read_text().splitlines()
    assert head == "node,value"
    assert [row.split(",")[0] for row in rows] == ["3", "7"]
    capsys.readouterr()
    for said, call in {
        "--at must say the time": lambda: predict(argv),
        "--latest must be for --sampler neighbors": lambda: train(
            tmp_path / "data", tmp_path / "x", "--sampler", "shadow"
        ),
        "reads no degrees": lambda: train(tmp_path / "data", tmp_path / "y", "--model", "gcn"),
        "must be one of rmse, mae": lambda: train(
            tmp_path / "data", tmp_path / "x", "--metric", "auc"
        ),
    }.items():
        assert call() == 2
        assert said in capsys.readouterr().err.splitlines()[-1]


def test_a_run_is_resumed_within_an_epoch(past, tmp_path, monkeypatch):
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    assert train(past, whole, "--epochs", 2) == 0
    step, calls = learner.ModelLearner.step, []

    def stopping(self, *args):
        calls.append(None)
        if len(calls) == 14:
            signal.raise_signal(signal.SIGINT)
        return step(self, *args)

    with monkeypatch.context() as patch:
        patch.setattr(learner.ModelLearner, "step", stopping)
        assert train(past, cut, "--epochs", 2) == 130
    assert train(past, cut, "--epochs", 2, "--resume") == 0
    same_run(cut, whole)


def test_any_number_of_ranks_learns_the_same(tmp_path):
    folder = tmp_path / "parts"
    own = np.random.default_rng(2).permutation(N) % 4
    write_parts(folder, moments("past"), own, 4, method="random")
    found = []
    for ranks in (1, 2):
        run_dir = tmp_path / f"{ranks}"
        config = Config(
            partition=str(folder), batch_size=60 // ranks, ranks=ranks, latest=True, hidden=8,
            fanouts=(2, 2), epochs=2, progress=False, dropout=0.0, run_dir=str(run_dir),
        )  # fmt: skip
        comm = Mesh(jax.devices()[:ranks]) if ranks > 1 else None
        result = loop.run(config, lambda config, comm=comm: open_job(config, comm))
        found.append((arrays(run_dir), result))
    (one, best), (two, other) = found
    for mine, theirs in zip(one, two, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-2, atol=2e-3)
    assert other["test_accuracy"] == pytest.approx(best["test_accuracy"], abs=0.02)
    run = jgs.open_run(tmp_path / "1", partition=folder)
    whole = run.predict(time=30_000).probability
    some = run.predict([5, 40], time=30_000).probability
    np.testing.assert_allclose(some, whole[[5, 40]], rtol=1e-4)
