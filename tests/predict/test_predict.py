"""A run's predictions, as arrays and as files, give the accuracy that the run reported."""

import importlib.util
import json
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from refusals import command_refused, refused
from trained import CLASSES, N, arrays, columns, predicted, untrained

import jgs
from jgs import InputError
from jgs.dist.communicators.mesh import Mesh
from jgs.models import GraphSAGE
from jgs.predict.__main__ import main as predict
from jgs.predict.command import write
from jgs.train import exact_inference
from jgs.train.config import Config
from jgs.train.evaluation import exact
from jgs.train.loop import checkpoint, folder
from jgs.train.loop.learner import digest


@pytest.mark.parametrize(("kind", "ending"), [("whole", "csv"), ("in_parts", "npy")])
def test_files_reproduce_the_reported_accuracy(kind, ending, request, tmp_path, capsys):
    """Ids are those of the data set, even where the parts have their own."""
    run_dir, result, data, _ = request.getfixturevalue(kind)
    for split, key in (("test", "test_accuracy"), ("val", "val_accuracy")):
        table = predicted(run_dir, tmp_path / f"{split}.{ending}", "--split", split)
        assert list(table) == ["node", "prediction", "probability", "class_name"]
        np.testing.assert_array_equal(table["node"], np.sort(getattr(data, f"{split}_idx")))
        right = np.count_nonzero(table["prediction"] == data.labels[table["node"]])
        assert right / len(table["node"]) == result[key]
    assert result["test_accuracy"] > 0.5
    np.testing.assert_array_equal(table["class_name"], np.take(CLASSES, table["prediction"]))
    capsys.readouterr()
    everything = predicted(run_dir, tmp_path / f"all.{ending}")
    np.testing.assert_array_equal(everything["node"], np.arange(N))
    np.testing.assert_array_equal(everything["prediction"][table["node"]], table["prediction"])
    said = json.loads(capsys.readouterr().out)
    assert said["nodes"] == N
    assert said["best_epoch"] == result["best_epoch"]
    of_train = predicted(run_dir, tmp_path / f"train.{ending}", "--split", "train")["node"]
    np.testing.assert_array_equal(of_train, np.sort(data.train_idx))


def test_a_run_says_of_nodes_what_its_model_does(whole, tmp_path):
    run, data = jgs.open_run(whole.folder), whole.data
    nodes = np.array([7, 250, 7, 0])
    logits = run.logits(nodes)
    infer = exact_inference(run.model, data.graph, data.features)
    np.testing.assert_array_equal(logits, infer(nnx.state(run.model), nodes))
    softmax = np.asarray(jax.nn.softmax(logits))
    got = run.predict(nodes)
    np.testing.assert_array_equal(got.prediction, softmax.argmax(1))
    np.testing.assert_allclose(got.probability, softmax.max(1), rtol=1e-6)
    hidden = run.embed(nodes)
    assert hidden.shape == (4, 8)
    assert (run.config.hidden, run.best_epoch) == (8, whole.result["best_epoch"])
    # The same predictions on another graph, here a copy, and for ids from files.
    again = run.predict(nodes, graph=data.graph, features=data.features)
    np.testing.assert_array_equal(again.probability, got.probability)
    lacking = np.array(data.features)
    lacking[7, 0] = np.nan  # it would be class 0 with probability NaN
    with pytest.raises(InputError, match="must be finite; got NaN or infinity in row 7"):
        run.predict(nodes, graph=data.graph, features=lacking)
    (tmp_path / "ids.txt").write_text("7\n250\n\n7\n0\n")
    np.save(tmp_path / "ids.npy", nodes)
    for ids, ending in (("ids.txt", "npy"), ("ids.npy", "parquet"), ("ids.npy", "csv")):
        asked = "--nodes", tmp_path / ids, "--embed"
        table = predicted(whole.folder, tmp_path / f"out.{ending}", *asked)
        np.testing.assert_array_equal(table["node"], nodes)
        if ending == "csv":
            units = np.stack([table[f"embedding_{i}"] for i in range(8)], axis=1)
            np.testing.assert_allclose(units, hidden, rtol=1e-6)
        else:
            np.testing.assert_array_equal(table["embedding"], hidden)


def test_a_run_has_its_metrics_and_both_epochs_parameters(whole, tmp_path):
    run_dir, result, *_ = whole
    run, last = jgs.open_run(run_dir), jgs.open_run(run_dir, params="last")
    rows = folder.read_metrics(run_dir, 3)
    for name, dtype in (("epoch", np.int64), ("train_loss", float), ("metric", np.str_)):
        assert run.metrics[name].tolist() == [row[name] for row in rows]
        assert np.issubdtype(run.metrics[name].dtype, dtype)
    assert run.metrics["val_accuracy"][run.best_epoch - 1] == run.val_accuracy
    assert digest(run.last_params) == result["params_sha256"]
    assert digest(nnx.state(run.model)) == digest(run.best_params)
    assert digest(nnx.state(last.model)) == result["params_sha256"]
    assert repr(run).startswith(f"Run('{run_dir}', dataset={whole.file}, model=sage")
    assert run.epochs == 3
    # Sampled neighbours: fanouts that take all predict the same as exact inference.
    more = ("--fanouts", -1, -1, "--split", "val", "--seed", 1)
    table = predicted(run_dir, tmp_path / "out.npy", *more)
    np.testing.assert_array_equal(table["prediction"], run.predict(table["node"]).prediction)


def test_ranks_predict_what_one_does(in_parts):
    alone = jgs.open_run(in_parts.folder)
    ranks = jgs.open_run(in_parts.folder, comm=Mesh(jax.devices()[:2]))
    nodes = np.array([7, 250, 7, 0, 299, 120])
    np.testing.assert_array_equal(ranks.split("train"), alone.split("train"))
    assert alone.class_names.tolist() == list(CLASSES)
    np.testing.assert_array_equal(ranks.class_names, alone.class_names)
    why, graph = alone.explain(7, fanouts=(-1, -1)), in_parts.data.graph
    assert why.node == why.nodes[0] == 7
    begin, end = np.asarray(graph.indptr)[7:9]
    neighbors = np.asarray(graph.indices)[begin:end]
    assert sorted(why.src[why.hop == 0].tolist()) == sorted(neighbors.tolist())
    for call in (lambda: ranks.explain(7), lambda: ranks.predict([7], fanouts=(2, 2))):
        refused("one process must predict by sampled", call)
    for name in ("logits", "embed"):
        want, got = getattr(alone, name)(nodes), getattr(ranks, name)(nodes)
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(ranks.predict().prediction, alone.predict().prediction)


def test_multi_label_predictions(tmp_path):
    """A label is predicted where its output is above 0, by which the accuracy counts."""
    run = untrained(GraphSAGE(4, 5, 3, 2, rngs=nnx.Rngs(0)), 4, 3, multilabel=True)
    rng = np.random.default_rng(0)
    graph = jgs.Graph.from_edges(*rng.integers(0, 20, (2, 60)), 20)
    given = {"graph": graph, "features": jnp.asarray(rng.normal(size=(20, 4)), jnp.float32)}
    logits, (prediction, probability) = run.logits(**given), run.predict(**given)
    np.testing.assert_array_equal(prediction, logits > 0)
    np.testing.assert_allclose(probability, jax.nn.sigmoid(logits), rtol=1e-5)
    table = {"node": np.arange(20), "prediction": prediction, "probability": probability}
    for ending in ("npy", "parquet"):
        write(tmp_path / f"out.{ending}", table)
        found = columns(tmp_path / f"out.{ending}")
        np.testing.assert_array_equal(found["prediction"], prediction)
    write(tmp_path / "out.csv", table)
    _, *lines = (tmp_path / "out.csv").read_text().splitlines()
    for line, row, each in zip(lines, prediction, probability, strict=True):
        _, labels, numbers = line.split(",")
        assert labels == " ".join(map(str, np.flatnonzero(row)))
        np.testing.assert_array_equal(np.array(numbers.split(), np.float32), each[row])


def test_from_disk_and_to_disk(tmp_path, monkeypatch):
    """Each of the features, hidden rows and embeddings takes 1.5 MiB; the memory is 1 MiB."""
    model, rng = GraphSAGE(128, 128, 7, 3, rngs=nnx.Rngs(0)), np.random.default_rng(0)
    np.save(tmp_path / "x.npy", rng.random((3000, 128), np.float32))
    graph = jgs.Graph.from_edges(*rng.integers(0, 3000, (2, 20_000)), 3000)
    of = {"graph": graph, "features": np.load(tmp_path / "x.npy", mmap_mode="r")}
    found = {}
    for place, most in (("memory", 1 << 40), ("disk", 1 << 20)):
        monkeypatch.setattr(exact, "mapped_at_most", lambda memory, most=most: most)
        run = untrained(model, 128, 7, Config(eval_memory=1))
        found[place] = run.embed(**of), run.logits(**of), *run.predict(**of)
    assert isinstance(found["disk"][0], np.memmap)
    for mine, theirs in zip(found["disk"], found["memory"], strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_what_a_run_cannot_predict(whole, in_parts, tmp_path, capsys, monkeypatch):
    run_dir, _, data, file = whole
    (tmp_path / "far.txt").write_text(f"3\n{N}\n")
    (tmp_path / "word.txt").write_text("3\nfour\n")
    np.save(tmp_path / "float.npy", np.zeros(3))
    np.save(ids := tmp_path / "ids.npy", np.arange(3))
    (tmp_path / "empty").mkdir()
    (tmp_path / "young" / "checkpoints").mkdir(parents=True)
    shutil.copy(run_dir / "config.json", tmp_path / "young")
    other, own = tmp_path / "other", arrays()
    shutil.copytree(run_dir, other)
    np.savez(tmp_path / "other.npz", **own | {"edge_index": own["edge_index"][:, 1:]})
    text = (other / "config.json").read_text()
    (other / "config.json").write_text(text.replace(str(file), str(tmp_path / "other.npz")))
    out = ["--out", str(tmp_path / "out.csv")]
    labels = in_parts.file.parent / "parts" / "shared" / "labels.npy"
    for argv, said in (
        (["--run-dir", run_dir, *out, "--nodes", tmp_path / "far.txt"], "got 300 (number 2)"),
        (["--run-dir", run_dir, *out, "--nodes", tmp_path / "word.txt"], "'four' in line 2"),
        (["--run-dir", run_dir, *out, "--nodes", tmp_path / "float.npy"], "float64[3]"),
        (["--run-dir", run_dir, *out, "--nodes", tmp_path / "none.txt"], "No such file"),
        (["--run-dir", run_dir, *out, "--nodes", "a", "--split", "val"], "not allowed with"),
        (["--run-dir", run_dir, *out, "--pairs", "a"], "--pairs for one of --task nodes"),
        (["--run-dir", run_dir, *out, "--fanouts", 3], "model's 2 layers; got (3,)"),
        (["--run-dir", run_dir, "--out", "out.txt"], "must end in .csv, .npy, .parquet"),
        (["--run-dir", run_dir, "--out", tmp_path / "no" / "x.csv"], "a folder that can be"),
        (["--run-dir", run_dir, "--out", ids, "--nodes", ids], "must not replace a file"),
        (["--run-dir", in_parts.folder, "--out", labels], "or one in a folder of those"),
        (["--run-dir", tmp_path / "none", *out], "must be the folder of a run"),
        (["--run-dir", tmp_path / "empty", *out], "must be the folder of a run"),
        (["--run-dir", tmp_path / "young", *out], "must have finished an epoch"),
        (["--run-dir", other, *out], "other graph"),
        (["--run-dir", in_parts.folder, *out, "--partition", tmp_path], "folder of parts"),
    ):
        errors = command_refused(capsys, said, predict, list(map(str, argv)))
        assert errors.count("\n") == 1
    assert not (tmp_path / "out.csv").exists()
    assert np.load(ids).tolist() == [0, 1, 2]
    with monkeypatch.context() as patch:
        patch.setattr(importlib.util, "find_spec", lambda name: None)
        argv = ["--run-dir", str(run_dir), "--out", "out.parquet"]
        command_refused(capsys, "jgs[tables]", predict, argv)
    refused("one of best, last; got 'first'", jgs.open_run, run_dir, params="first")
    run, graph = jgs.open_run(run_dir), data.graph
    for says, given in (
        (
            "must be [N, 8], with the run's columns",
            {"features": jnp.zeros((N, 5)), "graph": graph},
        ),
        ("one row for each", {"features": jnp.zeros((N - 1, 8)), "graph": graph}),
        ("ids from 0 to 299; got -1", {"nodes": [-1]}),
        ("features must be given with their graph", {"features": jnp.zeros((N, 8))}),
    ):
        refused(says, run.predict, **given)


def test_a_damaged_checkpoint_is_passed_over_and_left(whole, tmp_path, capsys):
    run_dir = tmp_path / "run"
    shutil.copytree(whole.folder, run_dir)
    last = checkpoint.checkpoints(run_dir / "checkpoints")[-1]
    (last / "record.json").write_text("{}")
    before = sorted(p.relative_to(run_dir) for p in run_dir.rglob("*"))
    predicted(run_dir, tmp_path / "out.npy")
    assert f"checkpoint {last} is damaged" in capsys.readouterr().err
    assert sorted(p.relative_to(run_dir) for p in run_dir.rglob("*")) == before
