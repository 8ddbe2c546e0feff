"""Whole runs of models of typed graphs by the command: on one machine, on ranks, resumed."""

import json
import re
import shutil
import signal

import jax
import numpy as np
import pytest
from small_runs import arrays, metrics, same_run

import jgs
from jgs import Graph
from jgs.data import Dataset, load
from jgs.dist.communicators.comm import Alone
from jgs.dist.communicators.mesh import Mesh
from jgs.partition.folder import write_parts
from jgs.predict.__main__ import main as predict
from jgs.train.__main__ import main
from jgs.train.config import Config
from jgs.train.flags import parse
from jgs.train.loop import training
from jgs.train.loop.learned import LearnedRows
from jgs.train.loop.learner import ModelLearner
from jgs.train.tasks.task import open_job

FLAGS = """
    --model rgcn --fanouts *=3 4 --hidden 8 --batch-size 20 --epochs 3 --lr 0.03
    --no-progress
"""

SPLITS = ("train", "train", "val", "test")
TABLES = {
    "nodes_user.csv": [
        "id,age,label,split",
        *(f"{i},{i},{i % 2},{SPLITS[i % 4]}" for i in range(40)),
    ],
    "nodes_item.csv": ["id,price", *(f"i{i},{i}" for i in range(5))],
    "edges_user_buys_item.csv": ["src,dst", *(f"{i},i{i % 5}" for i in range(40))],
}
UNTYPED = ["num_nodes=400", "num_edges=3000", "num_features=8", "num_classes=3"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A data set of authors, papers, and venues without features; its parts; tables."""
    rng, counts = np.random.default_rng(0), {"author": 60, "paper": 90, "venue": 5}
    edges = {
        ("author", "writes", "paper"): (rng.integers(0, 60, 300), rng.integers(0, 90, 300)),
        ("paper", "at", "venue"): (np.arange(90), rng.integers(0, 5, 90)),
        ("paper", "cites", "paper"): (rng.integers(0, 90, 200), rng.integers(0, 90, 200)),
    }
    graph = Graph.from_relations(counts, edges, both_ways=True)
    labels = np.arange(90) % 3
    features = {
        "paper": (np.eye(3)[labels] + rng.standard_normal((90, 3)) / 2).astype(np.float32),
        "author": rng.standard_normal((60, 7)).astype(np.float32),
    }
    splits = {"train": np.arange(60), "val": np.arange(60, 70), "test": np.arange(70, 90)}
    root = tmp_path_factory.mktemp("typed")
    data = Dataset.from_arrays(graph, features, {"paper": labels}, splits, name="typed")
    data.save(root / "data")
    other = {kind: table / 128 for kind, table in features.items()}
    of_unit = Dataset.from_arrays(graph, other, {"paper": labels}, splits, name="typed")
    of_unit.save(root / "unit")
    assignment = rng.integers(0, 2, graph.num_nodes).astype(np.int32)
    write_parts(root / "parts", data, assignment, 2, method="random")
    (root / "tables").mkdir()
    for name, rows in TABLES.items():
        (root / "tables" / name).write_text("\n".join(rows))
    return root


def train(run_dir, *more):
    return main([*FLAGS.split(), "--run-dir", str(run_dir), *map(str, more)])


@pytest.fixture(scope="module")
def whole(folder, tmp_path_factory):
    """The folder of a run on the whole graph that was not interrupted."""
    run_dir = tmp_path_factory.mktemp("whole") / "run"
    assert train(run_dir, "--dataset", folder / "data") == 0
    return run_dir


def test_a_run_learns_and_answers_by_type(whole, tmp_path, capsys):
    run, rows = jgs.open_run(whole), metrics(whole)
    result = json.loads((whole / "result.json").read_text())
    assert rows[-1]["train_loss"] < rows[0]["train_loss"] - 0.1
    logits = run.logits(node_type="paper")
    assert logits.shape == (90, 3)
    right = np.mean(logits[70:].argmax(1) == np.arange(70, 90) % 3)
    assert right == pytest.approx(result["test_accuracy"])
    np.testing.assert_array_equal(run.logits([3, 1], node_type="paper"), logits[[3, 1]])
    # Sampled evaluation over all neighbours reads the learned rows of venues too.
    sampled = run.logits([7, 2], node_type="paper", fanouts=(-1, -1))
    np.testing.assert_allclose(sampled, logits[[7, 2]], rtol=1e-4, atol=1e-5)
    assert run.embed(node_type="venue").shape == (5, 8)
    out = tmp_path / "out.npy"
    flags = ["--run-dir", whole, "--out", out, "--node-type", "paper", "--no-progress"]
    assert predict(list(map(str, flags))) == 0
    np.testing.assert_array_equal(np.load(out)["prediction"], logits.argmax(1))


def test_features_of_another_unit_are_learned_alike(folder, whole, tmp_path):
    """Small ones do not drown beside learned rows, and an opened run knows the unit."""
    assert train(tmp_path / "run", "--dataset", folder / "unit") == 0
    for mine, theirs in zip(metrics(tmp_path / "run"), metrics(whole), strict=True):
        assert mine["train_loss"] == pytest.approx(theirs["train_loss"], rel=1e-5)
    run = jgs.open_run(tmp_path / "run")
    np.testing.assert_allclose(run.logits(), jgs.open_run(whole).logits(), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("at", [1, 4, 6])
def test_a_run_is_resumed_to_the_same_bits(folder, whole, tmp_path, monkeypatch, capsys, at):
    """Ctrl-C in step `at` of 9, three in an epoch."""
    own, count, push, numbers = ModelLearner.step, [], LearnedRows.push, []

    def counted(self, token, gradient, number):
        numbers.append(number)  # learned rows have the rate of this step of the run
        push(self, token, gradient, number)

    monkeypatch.setattr(LearnedRows, "push", counted)

    def step(self, *given):
        count.append(1)
        if len(count) == at:
            signal.raise_signal(signal.SIGINT)
        own(self, *given)

    data = ("--dataset", folder / "data")
    with monkeypatch.context() as patched:
        patched.setattr(ModelLearner, "step", step)
        assert train(tmp_path / "run", *data) == 130
    assert len(count) == at
    assert train(tmp_path / "run", *data, "--resume") == 0
    assert "resuming after" in capsys.readouterr().err
    assert numbers == list(range(9))
    same_run(tmp_path / "run", whole)


def of_ranks(folder, run_dir, comm, *more):
    """The result of a run by the ranks of `comm`, 20 seeds in a step of all."""
    flags = [*FLAGS.split(), "--partition", folder / "parts", "--run-dir", run_dir, *more]
    config = Config(**parse(list(map(str, flags))) | {"batch_size": 20 // comm.size})
    return training.run(config, lambda config: open_job(config, comm))


@pytest.fixture(scope="module")
def alone(folder, tmp_path_factory):
    run_dir = tmp_path_factory.mktemp("alone") / "run"
    return run_dir, of_ranks(folder, run_dir, Alone())


@pytest.mark.parametrize("more", [(), ("--mode", "vanilla"), ("--cache", "planned")])
def test_ranks_train_as_one_does(folder, alone, tmp_path, more):
    run_dir, want = alone
    found = of_ranks(folder, tmp_path / "run", Mesh(jax.devices()[:2]), *more)
    for name in ("test_accuracy", "val_accuracy", "best_epoch"):
        assert found[name] == want[name], name
    for mine, theirs in zip(metrics(tmp_path / "run"), metrics(run_dir), strict=True):
        assert mine == pytest.approx(theirs, rel=1e-4)
    for mine, theirs in zip(arrays(tmp_path / "run"), arrays(run_dir), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-3, atol=1e-4)
    on_parts = jgs.open_run(tmp_path / "run").logits(node_type="paper")
    np.testing.assert_allclose(
        on_parts, jgs.open_run(run_dir).logits(node_type="paper"), rtol=1e-3, atol=1e-4
    )


def test_devices_train_as_the_host_does(folder, whole, alone, tmp_path, capsys):
    """With learned rows one device to the bit, and others by shares of the batch."""
    one = ("--device", "cpu:1")
    assert train(tmp_path / "one", "--dataset", folder / "data", *one) == 0
    same_run(tmp_path / "one", whole)
    assert train(tmp_path / "part", "--partition", folder / "parts", *one) == 0
    same_run(tmp_path / "part", alone[0])
    two = ("--device", "cpu:1,2", "--epochs", 1)
    assert train(tmp_path / "two", "--dataset", folder / "data", *two) == 2
    assert "rows of nodes that are learned" in capsys.readouterr().err
    of_tables = ("--dataset", folder / "tables", "--lr", 0.001)
    for name, flags in (("both", two), ("host", ("--epochs", 1))):
        assert train(tmp_path / name, *of_tables, *flags) == 0
    for mine, theirs in zip(arrays(tmp_path / "both"), arrays(tmp_path / "host"), strict=True):
        if np.asarray(mine).dtype.kind == "f":
            np.testing.assert_allclose(mine, theirs, rtol=1e-3, atol=1e-4)


def test_another_graph_must_have_the_nodes_in_the_order_of_the_learned_rows(
    folder, whole, alone
):
    data = load(folder / "data")
    given = {"graph": data.graph, "features": data.features}
    run = jgs.open_run(whole)
    np.testing.assert_array_equal(run.logits([70, 3], **given), run.logits([70, 3]))
    with pytest.raises(jgs.InputError, match="must be in the 2 parts that the run was trained"):
        jgs.open_run(alone[0]).logits([70, 3], **given)


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--fanouts", "buys=3", "4"], r"one of \(author, writes, paper\).*got 'buys'"),
        (["--fanouts", "writes=3,writes=2"], "must be written as writes=5,cites=10"),
        (
            ["--model", "sage", "--fanouts", "3"],
            "got author 7, paper 3. Choose",
        ),
    ],
)
def test_settings_that_do_not_fit_are_refused(folder, tmp_path, capsys, flags, says):
    refused(tmp_path, capsys, says, "--dataset", folder / "data", *flags)


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ([], "--model rgcn must be for a graph with node types.*got synthetic"),
        (["--model", "sage"], "for a graph with relations.*without"),
    ],
)
def test_a_graph_without_types_is_refused(tmp_path, capsys, flags, says):
    refused(tmp_path, capsys, says, "--data-options", *UNTYPED, *flags)


@pytest.mark.parametrize(
    ("name", "rows", "says"),
    [
        ("nodes_shop.csv", ["id,area"], "shop.csv must have nodes; got no row"),
        (
            "edges_item_in_user.csv",
            ["src,dst", "3,i1"],
            "item.* got '3' at position 0",
        ),
        ("edges_user_buys_item.csv", ["src,dst", "77,i3"], "got 77 at position 0"),
    ],
)
def test_tables_with_a_mistake_are_refused(folder, tmp_path, capsys, name, rows, says):
    """A type without nodes, an edge between the wrong types, and one of an unknown node."""
    wrong = tmp_path / "wrong"
    shutil.copytree(folder / "tables", wrong)
    (wrong / name).write_text("\n".join([*rows, ""]))
    refused(tmp_path, capsys, says, "--dataset", wrong, "--fanouts", "2", "2")


def refused(tmp_path, capsys, says, *flags):
    assert train(tmp_path / "run", *flags) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1, said
    assert re.search(says, said), said
    assert not (tmp_path / "run" / "checkpoints").exists()
