"""A run's predictions, as arrays and as files, give the accuracy that the run reported."""

import csv
import importlib.util
import io
import json
import os
import shutil
from contextlib import redirect_stdout

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow.parquet
import pytest
from flax import nnx

import jgs
import jgs.data
from jgs import InputError
from jgs.dist.communicators.comm import Alone
from jgs.dist.communicators.mesh import Mesh
from jgs.models import GraphSAGE
from jgs.partition.__main__ import main as partition
from jgs.predict import Run, progress
from jgs.predict.__main__ import main as predict
from jgs.predict.output import write
from jgs.train import exact_inference
from jgs.train.__main__ import main as train
from jgs.train.config import Config
from jgs.train.loop import checkpoint, folder
from jgs.train.loop.learner import digest

DATA = ["num_nodes=300", "num_edges=2500", "num_features=8", "num_classes=3"]
FLAGS = [
    "--fanouts",
    "3",
    "3",
    "--hidden",
    "8",
    "--batch-size",
    "12",
    "--epochs",
    "3",
    "--no-progress",
]


def result_of(run_dir, *data):
    """The run's folder, and the result that it printed."""
    with redirect_stdout(io.StringIO()) as said:
        assert train([*data, *FLAGS, "--no-progress", "--run-dir", str(run_dir)]) == 0
    return run_dir, json.loads(said.getvalue())


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    return result_of(folder / "whole", "--data-options", *DATA)


NAMES = ("red", "green, or not", 'a "blue"')


@pytest.fixture(scope="module")
def in_parts(tmp_path_factory):
    """Parts of an archive whose classes have names."""
    folder, own = tmp_path_factory.mktemp("parts"), data()
    splits = {name: getattr(own, name) for name in ("train_idx", "val_idx", "test_idx")}
    graph = {name: np.asarray(getattr(own.graph, name)) for name in ("indptr", "indices")}
    labels = {"labels": own.labels, "class_names": NAMES}
    features = np.asarray(own.features)
    np.savez(folder / "data.npz", features=features, **graph, **labels, **splits)
    argv = ["--dataset", str(folder / "data.npz"), "--parts", "2"]
    assert partition([*argv, "--method", "ldg", "--out", str(folder / "parts")]) == 0
    return result_of(folder / "run", "--partition", str(folder / "parts"))


def data():
    return jgs.data.load(
        "synthetic", **dict((k, int(v)) for k, v in (d.split("=") for d in DATA))
    )


def predicted(run_dir, out, *more):
    assert predict(["--run-dir", str(run_dir), "--out", str(out), *map(str, more)]) == 0
    if out.suffix == ".npy":
        return np.load(out)
    if out.suffix == ".parquet":
        table = pyarrow.parquet.read_table(out)
        columns = {name: table[name].to_numpy() for name in table.column_names}
        return {name: np.stack(a) if a.dtype == object else a for name, a in columns.items()}
    with open(out, newline="") as file:
        names, *rows = csv.reader(file)
    own = {"node": np.int32, "prediction": np.int32, "class_name": "U20"}
    dtype = [(name, own.get(name, np.float32)) for name in names]
    return np.array([tuple(row) for row in rows], dtype)


@pytest.mark.parametrize("ending", ["csv", "npy"])
@pytest.mark.parametrize("kind", ["whole", "in_parts"])
def test_files_reproduce_the_reported_accuracy(kind, ending, request, tmp_path, capsys):
    """Ids are those of the data set, even where the parts have their own."""
    run_dir, result = request.getfixturevalue(kind)
    want = data()
    for split, key in (("test", "test_accuracy"), ("val", "val_accuracy")):
        table = predicted(run_dir, tmp_path / f"{split}.{ending}", "--split", split)
        named = ("class_name",) * (kind == "in_parts")
        assert table.dtype.names == ("node", "prediction", "probability", *named)
        np.testing.assert_array_equal(table["node"], np.sort(getattr(want, f"{split}_idx")))
        right = np.count_nonzero(table["prediction"] == want.labels[table["node"]])
        assert right / len(table) == result[key]
    if named:
        np.testing.assert_array_equal(table["class_name"], np.take(NAMES, table["prediction"]))
    everything = predicted(run_dir, tmp_path / f"all.{ending}")
    np.testing.assert_array_equal(everything["node"], np.arange(300))
    np.testing.assert_array_equal(everything["prediction"][table["node"]], table["prediction"])
    said = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert said["nodes"] == 300
    assert said["best_epoch"] == result["best_epoch"]
    train_nodes = predicted(run_dir, tmp_path / f"train.{ending}", "--split", "train")["node"]
    np.testing.assert_array_equal(train_nodes, np.sort(want.train_idx))


def test_a_run_says_of_nodes_what_its_model_does(whole, tmp_path):
    run, want = jgs.open_run(whole[0]), data()
    nodes = np.array([7, 250, 7, 0])
    logits = run.logits(nodes)
    infer = exact_inference(run.model, want.graph, want.features)
    np.testing.assert_array_equal(logits, infer(nnx.state(run.model), nodes))
    softmax = np.asarray(jax.nn.softmax(logits))
    got = run.predict(nodes)
    np.testing.assert_array_equal(got.prediction, softmax.argmax(1))
    np.testing.assert_allclose(got.probability, softmax.max(1), rtol=1e-6)
    hidden = run.embed(nodes)
    assert hidden.shape == (4, 8)
    assert (run.config.hidden, run.best_epoch) == (8, whole[1]["best_epoch"])
    # The same predictions on another graph, here a copy, and for ids from files.
    again = run.predict(nodes, graph=want.graph, features=want.features)
    np.testing.assert_array_equal(again.probability, got.probability)
    (tmp_path / "ids.txt").write_text("7\n250\n\n7\n0\n")
    np.save(tmp_path / "ids.npy", nodes)
    for ids in ("ids.txt", "ids.npy"):
        more = ("--nodes", tmp_path / ids, "--embed")
        table = predicted(whole[0], tmp_path / "out.npy", *more)
        np.testing.assert_array_equal(table["node"], nodes)
        np.testing.assert_array_equal(table["embedding"], hidden)
    table = predicted(whole[0], tmp_path / "out.parquet", *more)
    np.testing.assert_array_equal(table["node"], nodes)
    np.testing.assert_array_equal(table["embedding"], hidden)
    table = predicted(whole[0], tmp_path / "out.csv", *more)
    units = np.stack([table[f"embedding_{i}"] for i in range(8)], axis=1)
    np.testing.assert_allclose(units, hidden, rtol=1e-6)


def test_a_run_has_its_metrics_and_both_epochs_parameters(whole, tmp_path):
    run_dir, result = whole
    run, last = jgs.open_run(run_dir), jgs.open_run(run_dir, params="last")
    rows = folder.read_metrics(run_dir, 3)
    for name, dtype in (("epoch", np.int64), ("train_loss", float), ("metric", np.str_)):
        assert run.metrics[name].tolist() == [row[name] for row in rows]
        assert np.issubdtype(run.metrics[name].dtype, dtype)
    assert run.metrics["val_accuracy"][run.best_epoch - 1] == run.val_accuracy
    assert digest(run.last_params) == result["params_sha256"]
    assert digest(nnx.state(run.model)) == digest(run.best_params)
    assert digest(nnx.state(last.model)) == result["params_sha256"]
    assert repr(run).startswith(f"Run('{run_dir}', dataset=synthetic, model=sage")
    assert (run.epochs, run.class_names) == (3, None)
    # Sampled neighbours: fanouts that take all predict the same as exact inference.
    more = ("--fanouts", -1, -1, "--split", "val", "--seed", 1)
    table = predicted(run_dir, tmp_path / "out.npy", *more)
    np.testing.assert_array_equal(table["prediction"], run.predict(table["node"]).prediction)


def test_a_bar_is_shown_on_a_terminal_alone(monkeypatch, capsys):
    monkeypatch.setattr(progress, "_PATIENCE", 0.0)
    for terminal, enabled in ((False, True), (True, False), (True, True)):
        monkeypatch.setenv("TTY_COMPATIBLE", str(int(terminal)))
        with progress.bar("predicting", enabled) as advance:
            for done in range(1, 4):
                advance(done, 3)
        printed, shown = capsys.readouterr()
        assert printed == ""
        assert ("predicting" in shown and "100%" in shown) == (terminal and enabled)


def test_ranks_predict_what_one_does(in_parts):
    alone = jgs.open_run(in_parts[0])
    ranks = jgs.open_run(in_parts[0], comm=Mesh(jax.devices()[:2]))
    nodes = np.array([7, 250, 7, 0, 299, 120])
    np.testing.assert_array_equal(ranks.split("train"), alone.split("train"))
    assert alone.class_names.tolist() == list(NAMES)
    np.testing.assert_array_equal(ranks.class_names, alone.class_names)
    why, ids = alone.explain(7, fanouts=(-1, -1)), data().graph
    assert why.node == why.nodes[0] == 7
    indptr = np.asarray(ids.indptr)
    neighbors = np.asarray(ids.indices)[indptr[7] : indptr[8]]
    assert sorted(why.src[why.hop == 0].tolist()) == sorted(neighbors.tolist())
    for call in (lambda: ranks.explain(7), lambda: ranks.predict([7], fanouts=(2, 2))):
        with pytest.raises(InputError, match="one process must predict by sampled"):
            call()
    for name in ("logits", "embed"):
        want, got = getattr(alone, name)(nodes), getattr(ranks, name)(nodes)
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(ranks.predict().prediction, alone.predict().prediction)


def test_multi_label_predictions(tmp_path):
    """A label is predicted where its output is above 0, the rule by which the accuracy
    counts."""
    shape = {"num_features": 4, "num_classes": 3, "sparse": False, "multilabel": True}
    record = {"best_epoch": 1, "val_accuracy": 0.5, "data": {}, "shape": shape}
    model = GraphSAGE(4, 5, 3, 2, rngs=nnx.Rngs(0))
    run = Run(Config(), model, record, Alone())
    rng = np.random.default_rng(0)
    graph = jgs.Graph.from_edges(*rng.integers(0, 20, (2, 60)), 20)
    given = {"graph": graph, "features": jnp.asarray(rng.normal(size=(20, 4)), jnp.float32)}
    logits, (prediction, probability) = run.logits(**given), run.predict(**given)
    np.testing.assert_array_equal(prediction, logits > 0)
    np.testing.assert_allclose(probability, jax.nn.sigmoid(logits), rtol=1e-5)
    columns = {"node": np.arange(20), "prediction": prediction, "probability": probability}
    write(tmp_path / "out.csv", columns)
    write(tmp_path / "out.npy", columns)
    write(tmp_path / "out.parquet", columns)
    table = pyarrow.parquet.read_table(tmp_path / "out.parquet")
    assert table["prediction"].to_pylist() == prediction.tolist()
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy")["prediction"], prediction)
    for line, row, each in zip(
        (tmp_path / "out.csv").read_text().splitlines()[1:],
        prediction,
        probability,
        strict=True,
    ):
        _, labels, numbers = line.split(",")
        assert labels == " ".join(map(str, np.flatnonzero(row)))
        np.testing.assert_array_equal(np.array(numbers.split(), np.float32), each[row])


def test_what_a_run_cannot_predict(whole, in_parts, tmp_path, capsys, monkeypatch):
    run_dir, _ = whole
    capsys.readouterr()
    (tmp_path / "far.txt").write_text("3\n300\n")
    (tmp_path / "word.txt").write_text("3\nfour\n")
    np.save(tmp_path / "float.npy", np.zeros(3))
    (tmp_path / "empty").mkdir()
    (tmp_path / "young" / "checkpoints").mkdir(parents=True)
    shutil.copy(run_dir / "config.json", tmp_path / "young")
    fresh = tmp_path / "other"
    shutil.copytree(run_dir, fresh)
    text = (fresh / "config.json").read_text()
    (fresh / "config.json").write_text(text.replace("num_edges=2500", "num_edges=2600"))
    out = ["--out", str(tmp_path / "out.csv")]
    for argv, said in (
        (["--run-dir", run_dir, *out, "--nodes", tmp_path / "far.txt"], "got 300 (number 2)"),
        (["--run-dir", run_dir, *out, "--nodes", tmp_path / "word.txt"], "b'four' in line 2"),
        (["--run-dir", run_dir, *out, "--nodes", tmp_path / "float.npy"], "float64[3]"),
        (["--run-dir", run_dir, *out, "--nodes", tmp_path / "none.txt"], "No such file"),
        (["--run-dir", run_dir, *out, "--nodes", "a", "--split", "val"], "not allowed with"),
        (["--run-dir", run_dir, *out, "--pairs", "a"], "--pairs for one of --task nodes"),
        (["--run-dir", run_dir, *out, "--fanouts", 3], "model's 2 layers; got (3,)"),
        (["--run-dir", run_dir, "--out", "out.txt"], "must end in .csv, .npy, .parquet"),
        (["--run-dir", run_dir, "--out", tmp_path / "no" / "x.csv"], "a folder that can be"),
        (["--run-dir", tmp_path / "none", *out], "must be the folder of a run"),
        (["--run-dir", tmp_path / "empty", *out], "must be the folder of a run"),
        (["--run-dir", tmp_path / "young", *out], "must have finished an epoch"),
        (["--run-dir", fresh, *out], "other graph"),
        (["--run-dir", in_parts[0], *out, "--partition", tmp_path], "folder of parts"),
    ):
        assert predict(list(map(str, argv))) == 2, said
        printed, errors = capsys.readouterr()
        assert printed == ""
        assert said in errors.splitlines()[-1]
        assert errors.count("\n") == 1
    assert not (tmp_path / "out.csv").exists()
    with monkeypatch.context() as patch:
        patch.setattr(importlib.util, "find_spec", lambda name: None)
        assert predict(["--run-dir", str(run_dir), "--out", "out.parquet"]) == 2
    assert "jgs[tables]" in capsys.readouterr().err
    with pytest.raises(InputError, match="params must be one of best, last; got 'first'"):
        jgs.open_run(run_dir, params="first")
    run = jgs.open_run(run_dir)
    with pytest.raises(InputError, match="the 8 columns of the run's; got 5"):
        run.predict(graph=data().graph, features=jnp.zeros((300, 5)))
    with pytest.raises(InputError, match="one row for each"):
        run.predict(graph=data().graph, features=jnp.zeros((299, 8)))
    with pytest.raises(InputError, match="ids from 0 to 299; got -1"):
        run.predict([-1])


def test_a_full_disk_leaves_the_old_file(whole, tmp_path, capsys, monkeypatch):
    out = tmp_path / "out.csv"
    out.write_text("before")

    def refuse(file):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", refuse)
        assert predict(["--run-dir", str(whole[0]), "--out", str(out)]) == 2
    assert "No space left" in capsys.readouterr().err
    assert [p.name for p in tmp_path.iterdir()] == ["out.csv"]
    assert out.read_text() == "before"


def test_a_damaged_checkpoint_is_passed_over_and_left(whole, tmp_path, capsys):
    run_dir = tmp_path / "run"
    shutil.copytree(whole[0], run_dir)
    last = checkpoint.checkpoints(run_dir / "checkpoints")[-1]
    (last / "record.json").write_text("{}")
    before = sorted(p.relative_to(run_dir) for p in run_dir.rglob("*"))
    predicted(run_dir, tmp_path / "out.npy")
    assert f"checkpoint {last} is damaged" in capsys.readouterr().err
    assert sorted(p.relative_to(run_dir) for p in run_dir.rglob("*")) == before
