"""What is learned: regression, losses, class weights, missing labels, and one's own."""

import json
from itertools import pairwise
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

import jgs
from jgs import InputError, losses
from jgs.data import Dataset
from jgs.dist.communicators.comm import Alone
from jgs.dist.communicators.mesh import Mesh
from jgs.partition.folder import write_parts
from jgs.predict.__main__ import main as predict
from jgs.train.__main__ import main
from jgs.train.config import Config
from jgs.train.evaluation.metrics import ERRORS, METRICS
from jgs.train.loop import training as loop
from jgs.train.loop.objective import Objective
from jgs.train.tasks.task import open_job

N = 400
FLAGS = """--fanouts 8 8 --hidden 32 --batch-size 50 --epochs 20 --dropout 0 --lr 1e-2
    --no-progress"""
OWN = """
import jax.numpy as jnp
from jgs import losses

def squared(outputs, labels):
    return (outputs[:, 0] - labels) ** 2

def entropy(outputs, labels):
    return losses.cross_entropy(outputs, labels)

def mean(outputs, labels):
    return jnp.mean(outputs)

def of_each(outputs, labels):
    return losses.cross_entropy(outputs, labels).mean(axis=1)

def broken(outputs, labels):
    return outputs @ labels.missing

def largest(outputs, labels):
    return abs(outputs[:, 0] - labels).max()

largest.higher_is_better = False

def nothing(outputs, labels):
    return float("nan")
"""


def planted(seed=0):
    """Edges, features, and numbers about 500 that depend on the mean of a node's in-neighbours,
    not linearly, and on its own features."""
    rng = np.random.default_rng(seed)
    src, dst = rng.integers(0, N, (2, 3000))
    x = rng.standard_normal((N, 4)).astype(np.float32)
    total = np.zeros((N, 4))
    np.add.at(total, dst, x[src])
    mean = total / np.maximum(np.bincount(dst, minlength=N), 1)[:, None]
    y = 500 + 40 * np.tanh(3 * mean[:, 0]) + 10 * x[:, 1] + rng.standard_normal(N)
    split = rng.permutation(np.repeat(["train", "val", "test"], [200, 100, 100]))
    return src, dst, x, y.astype(np.float32), split


def several(missing=0.0):
    """A data set with three labels of a node, of which some are not known."""
    src, dst, x, y, split = planted()
    labels = np.stack([y > 500, x[:, 1] > 0, y > 530], axis=1).astype(np.float32)
    labels[np.random.default_rng(1).random(labels.shape) < missing] = np.nan
    graph = jgs.Graph.from_edges(src, dst, N)
    return Dataset.from_arrays(graph, x, labels, split, name="several")


def numbers():
    src, dst, x, y, split = planted()
    return Dataset.from_arrays(jgs.Graph.from_edges(src, dst, N), x, y, split, name="numbers")


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """A folder of tables, as a user writes it; node 0 is in no split and has no number."""
    folder = tmp_path_factory.mktemp("tables")
    src, dst, x, y, split = planted()
    split[0] = ""
    nodes = pd.DataFrame({"id": np.arange(N) + 1000, "label": y, "split": split})
    nodes.loc[0, "label"] = None
    for column in range(x.shape[1]):
        nodes[f"x{column}"] = x[:, column]
    nodes.to_csv(folder / "nodes.csv", index=False)
    edges = pd.DataFrame({"src": src + 1000, "dst": dst + 1000})
    edges.to_csv(folder / "edges.csv", index=False)
    return folder


@pytest.fixture
def own(tmp_path, monkeypatch):
    (tmp_path / "own_losses.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)


def train(data, run_dir, *more):
    return main([*map(str, (*FLAGS.split(), "--dataset", data, "--run-dir", run_dir, *more))])


def result(run_dir):
    return json.loads((run_dir / "result.json").read_text())


def rows_of(run_dir):
    return [json.loads(row) for row in (run_dir / "metrics.jsonl").read_text().splitlines()]


def first_losses(run_dir):
    return [row["train_loss"] for row in rows_of(run_dir)]


def test_a_regression_beside_a_linear_model(tables, tmp_path, own):
    """It is in the units of the labels, by the command and in Python, and by one's own loss of
    the same formula the same bits."""
    assert train(tables, tmp_path / "run", "--metric", "r2") == 0
    assert result(tmp_path / "run")["metric"] == "R2"
    _, _, x, y, split = planted()
    split[0] = ""
    known = {name: np.flatnonzero(split == name) for name in ("train", "test")}
    ones = np.column_stack([x, np.ones(N)])
    weights = np.linalg.lstsq(ones[known["train"]], y[known["train"]], rcond=None)[0]
    linear = jgs.train.r2(ones[known["test"]] @ weights, y[known["test"]])
    found = result(tmp_path / "run")["test_accuracy"]
    print(f"R2 on the test: GraphSAGE {found:.3f}, a linear model {linear:.3f}")
    assert found > linear + 0.3
    argv = ["--run-dir", tmp_path / "run", "--split", "test", "--out", tmp_path / "out.csv"]
    assert predict([*map(str, argv), "--no-progress"]) == 0
    table = pd.read_csv(tmp_path / "out.csv")
    assert list(table.columns) == ["node", "value"]
    np.testing.assert_array_equal(table["node"], known["test"] + 1000)
    assert jgs.train.r2(table["value"], y[known["test"]]) == pytest.approx(found, abs=1e-5)
    run = jgs.open_run(tmp_path / "run", progress=False)
    np.testing.assert_allclose(run.predict(known["test"]), table["value"], rtol=1e-6)
    near = run.predict(known["test"], fanouts=(-1, -1))
    np.testing.assert_allclose(near, table["value"], rtol=1e-4)
    more = ("--loss", "own_losses:squared", "--metric", "own_losses:largest", "--epochs", 2)
    assert train(tables, tmp_path / "own", *more) == 0
    assert first_losses(tmp_path / "own") == first_losses(tmp_path / "run")[:2]
    judged = result(tmp_path / "own")
    assert judged["metric"] == "largest"
    run = jgs.open_run(tmp_path / "own", progress=False)
    off = np.abs(run.predict(known["test"]) - y[known["test"]]).max()
    assert judged["test_accuracy"] == pytest.approx(off, rel=1e-5)
    assert judged["val_accuracy"] == min(r["val_accuracy"] for r in rows_of(tmp_path / "own"))


def objective(labels, num_classes, **options):
    more = {"missing": True} if labels.ndim == 2 else {}
    config = Config(**options)
    return Objective(config, labels, num_classes, **more)


@pytest.mark.parametrize("loss", ["cross_entropy", "focal"])
@pytest.mark.parametrize("kind", ["one", "several"])
def test_losses_of_classes_by_definition(loss, kind):
    """With smoothing and class weights, on all rows and on two shares of them."""
    rng = np.random.default_rng(0)
    outputs = rng.standard_normal((12, 3)).astype(np.float32)
    mask = np.arange(12) < 10
    outputs[10:] = np.nan
    weights, gamma = np.array([0.1, 1.0, 3.0]), 1.5
    options = {"loss": loss, "class_weights": tuple(weights), "label_smoothing": 0.2}
    options |= {"focal_gamma": gamma} if loss == "focal" else {}
    if kind == "one":
        labels = rng.integers(0, 3, 12).astype(np.int32)
        log_p = outputs - np.log(np.exp(outputs).sum(axis=1, keepdims=True))
        target = np.eye(3)[labels] * 0.8 + 0.2 / 3
        each, p = -(target * log_p).sum(axis=1), np.exp(log_p[np.arange(12), labels])
        weight, known = weights[labels], mask
    else:
        labels = (rng.random((12, 3)) < 0.5).astype(np.float32)
        labels[[0, 1, 1], [0, 1, 2]] = np.nan
        labels[2] = np.nan  # nothing is known of it
        q = 1 / (1 + np.exp(-outputs))
        target = labels * 0.8 + 0.1
        each = -(target * np.log(q) + (1 - target) * np.log(1 - q))
        p = np.where(labels > 0.5, q, 1 - q)
        weight = np.broadcast_to(weights, labels.shape)
        known = mask[:, None] & ~np.isnan(labels)
    each = each * (1 - p) ** gamma if loss == "focal" else each
    want = (each * weight)[known].sum() / weight[known].sum()
    made = objective(labels[:10], 3, **options)
    got = made.loss(outputs, labels, mask)
    np.testing.assert_allclose(got, want, rtol=1e-5)
    # Ranks weigh their means by their counts.
    shares = [(outputs[s], labels[s], mask[s]) for s in (slice(0, 3), slice(3, 12))]
    counts = [made.count(*own[1:]) for own in shares]
    np.testing.assert_allclose(sum(counts), weight[known].sum(), rtol=1e-6)
    means = [made.loss(*own) * n for own, n in zip(shares, counts, strict=True)]
    np.testing.assert_allclose(sum(means) / sum(counts), want, rtol=1e-5)
    slope = jax.grad(lambda o: made.loss(o, labels, mask))(jnp.asarray(outputs))
    assert np.isfinite(slope).all()
    assert not slope[~known].any()


def test_losses_far_from_and_at_the_truth():
    """Their derivatives are finite; a focal loss of power 0 is the cross-entropy."""
    outputs = jnp.array([[90.0, -90.0], [-90.0, 90.0], [0.0, 1.0]])
    for labels in (jnp.array([0, 0, 1]), jnp.array([[1.0, 0], [1, 0], [0, 1]])):
        for gamma in (0.5, 2.0):
            total = lambda o, g=gamma, y=labels: losses.focal(o, y, gamma=g).sum()  # noqa: E731
            assert np.isfinite(jax.grad(total)(outputs)).all()
        plain = losses.cross_entropy(outputs, labels)
        np.testing.assert_allclose(losses.focal(outputs, labels, gamma=0.0), plain, atol=1e-6)
    error = jnp.array([[0.5], [-3.0]])
    want = [0.5 * 0.5**2, 2 * (3 - 0.5 * 2)]
    np.testing.assert_allclose(losses.huber(error, jnp.zeros(2), delta=2.0), want)


def test_balanced_weights_give_each_class_its_share():
    labels = np.array([0, 0, 0, 1, -1, 3])
    weights = losses.balanced_weights(labels, 4)
    np.testing.assert_allclose(weights, [5 / 9, 5 / 3, 1, 5 / 3], rtol=1e-6)
    many = np.array([[0, 1], [0, 1], [1, 1], [np.nan, 1]])
    np.testing.assert_allclose(
        losses.balanced_weights(many, 2), [[0.75, 1], [1.5, 1]], rtol=1e-6
    )


@pytest.mark.parametrize("name", ["rmse", "mae", "r2"])
def test_errors_are_what_they_are_called_on_any_number_of_ranks(name):
    rng = np.random.default_rng(0)
    outputs, labels = rng.standard_normal((2, 60)).astype(np.float32)
    off = outputs.astype(float) - labels
    want = {"rmse": np.sqrt((off**2).mean()), "mae": np.abs(off).mean()}
    want["r2"] = 1 - (off**2).sum() / ((labels - labels.mean()) ** 2).sum()
    assert getattr(jgs.train, name)(outputs, labels) == pytest.approx(want[name], rel=1e-6)
    found = set()
    for ends in ([0, 60], [0, 7, 60], [0, 31, 31, 60]):  # one of these ranks has no row
        comm = Mesh(jax.devices()[: len(ends) - 1]) if len(ends) > 2 else Alone()
        bounds = list(pairwise(ends))
        own = [[outputs[a:b, None] for a, b in bounds], [labels[a:b] for a, b in bounds]]
        found.add(ERRORS[name].measure(comm, *own))
    assert len(found) == 1
    assert found.pop() == pytest.approx(want[name], rel=1e-6)


@pytest.mark.parametrize("name", ["rmse", "mae", "r2"])
def test_errors_of_several_numbers_are_means_over_columns(name):
    rng = np.random.default_rng(0)
    outputs, labels = rng.standard_normal((2, 60, 3)).astype(np.float32).astype(float)
    labels[rng.random(60) < 0.5, 1] = np.nan
    labels[:, 2] = np.nan  # nothing is known of it
    one, error = getattr(jgs.train, name), ERRORS[name].measure
    known = ~np.isnan(labels[:, 1])
    first = one(outputs[:, 0], labels[:, 0])
    want = (first + one(outputs[known, 1], labels[known, 1])) / 2
    assert error(Alone(), [outputs], [labels]) == pytest.approx(want, rel=1e-12)
    pieces = [(outputs[:20], labels[:20]), (outputs[20:], labels[20:])]
    found = error(Mesh(jax.devices()[:2]), *map(list, zip(*pieces, strict=True)))
    assert found == error(Alone(), [outputs], [labels])
    # Two equal columns are as one, and what is missing of one changes nothing of another.
    twice = [np.stack([each[:, 0]] * 2, axis=1) for each in (outputs, labels)]
    alone = error(Alone(), [outputs[:, :1]], [labels[:, 0]])
    assert error(Alone(), twice[:1], twice[1:]) == alone == first
    twice[1][:, 1] = np.nan
    assert error(Alone(), twice[:1], twice[1:]) == alone


@pytest.mark.parametrize("loss", ["mse", "huber"])
def test_losses_of_several_numbers(loss):
    rng = np.random.default_rng(0)
    outputs = jnp.asarray(rng.standard_normal((10, 2)), jnp.float32)
    y = (rng.standard_normal((10, 2)) * [1, 50] + [3, 500]).astype(np.float32)
    mask, options = np.arange(10) < 8, {"loss": loss}
    one = objective(y[:8, 0], 1, **options)
    alone = one.loss(outputs[:, :1], y[:, 0], mask)
    twice = [np.stack([each[:, 0]] * 2, axis=1) for each in (outputs, y)]
    for missing in (False, True):  # two programs
        both = Objective(Config(**options), twice[1][:8], 2, missing=missing)
        assert both.numbers
        np.testing.assert_allclose(both.loss(twice[0], twice[1], mask), alone, rtol=1e-6)
    # Each column has its own scale and derivative, and what is missing has none.
    lacking = y.copy()
    lacking[2:5, 1] = np.nan
    made = objective(lacking[:8], 2, **options)
    assert made.scale.mean[0] == one.scale.mean
    assert made.scale.mean[1] == pytest.approx(np.nanmean(lacking[:8, 1].astype(float)))
    slope = jax.grad(made.loss)(outputs, lacking, mask)
    of_one = jax.grad(one.loss)(outputs[:, :1], y[:, 0], mask)
    np.testing.assert_allclose(slope[:, 0] * 13, of_one[:, 0] * 8, rtol=1e-5)  # entries known
    assert not slope[2:5, 1].any()
    assert slope[:2, 1].all()
    assert made.count(lacking, mask) == 13
    units = made.scale.units(np.asarray(made.scale.standard(y)))
    np.testing.assert_allclose(units, y, rtol=1e-5)
    # Of 0 and 1 the loss decides what is learned.
    marks = (y > np.median(y, axis=0)).astype(np.float32)
    assert objective(marks, 2, **options).metric.name == "RMSE"
    assert objective(marks, 2).metric.name == "micro-F1"


def test_a_regression_of_several_numbers(tmp_path, capsys):
    """By the command, from columns of a table; predictions have the labels' units."""
    src, dst, x, y, split = planted()
    other = np.where(np.arange(N) % 3 == 0, np.nan, -3 * y + 7 * x[:, 2])
    nodes = {"id": np.arange(N), "split": split, "label:price": y, "label:loss": other}
    nodes |= {f"x{column}": x[:, column] for column in range(4)}
    pd.DataFrame(nodes).to_csv(tmp_path / "nodes.csv", index=False)
    pd.DataFrame({"src": src, "dst": dst}).to_csv(tmp_path / "edges.csv", index=False)
    data = jgs.data.load(tmp_path)
    assert data.numbers
    assert not data.multilabel
    assert data.class_names == ("price", "loss")
    assert "labels=2 numbers" in repr(data)
    data.save(tmp_path / "saved")
    assert train(tmp_path / "saved", tmp_path / "run", "--metric", "r2") == 0
    found = result(tmp_path / "run")
    assert found["metric"] == "R2"
    test = np.flatnonzero(split == "test")
    argv = ["--run-dir", tmp_path / "run", "--split", "test", "--no-progress", "--out"]
    assert predict([*map(str, argv), str(tmp_path / "out.csv")]) == 0
    table = pd.read_csv(tmp_path / "out.csv")
    assert list(table.columns) == ["node", "value_0", "value_1"]
    given = table[["value_0", "value_1"]].to_numpy()
    known = ~np.isnan(other[test])
    each = jgs.train.r2(given[:, 0], y[test])
    each = each, jgs.train.r2(given[known, 1], other[test][known])
    assert min(each) > 0.2
    assert np.mean(each) == pytest.approx(found["test_accuracy"], abs=1e-4)
    run = jgs.open_run(tmp_path / "run", progress=False)
    assert not run.multilabel
    np.testing.assert_allclose(run.predict(test), given, rtol=1e-4)
    assert predict([*map(str, argv), str(tmp_path / "out.npy")]) == 0
    assert np.load(tmp_path / "out.npy")["value"].shape == (test.size, 2)
    assert "nodes" not in jgs.report.write_report(tmp_path / "run")  # curves alone
    capsys.readouterr()
    assert train(tmp_path / "saved", tmp_path / "no", "--loss", "focal") == 2
    assert "labels that are numbers must be mse, huber" in capsys.readouterr().err


def test_missing_labels_do_not_count_and_change_nothing_where_none_is(tmp_path):
    whole = several()
    whole.save(tmp_path / "whole")
    # One that no training node lacks: the program for missing labels, on the same labels.
    lacking = np.array(whole.labels)
    lacking[whole.test_idx[0], 1] = np.nan
    splits = {s: getattr(whole, f"{s}_idx") for s in ("train", "val", "test")}
    made = Dataset.from_arrays(whole.graph, whole.features, lacking, splits, name="whole")
    made.save(tmp_path / "lacking")
    several(0.6).save(tmp_path / "few")
    for data in ("whole", "lacking", "few"):
        assert train(tmp_path / data, tmp_path / f"run-{data}", "--metric", "auc") == 0
    same = [first_losses(tmp_path / f"run-{data}") for data in ("whole", "lacking")]
    np.testing.assert_allclose(same[0], same[1], rtol=1e-4)
    # Those of two in five labels tell as much of the others, whose labels are known here.
    run = jgs.open_run(tmp_path / "run-few", progress=False)
    logits, labels = run.logits(whole.test_idx), whole.labels[whole.test_idx]
    auc = METRICS["auc"].measure
    assert auc(Alone(), [logits], [labels]) > 0.8
    # A metric is that of the known ones.
    known = several(0.6).labels[whole.test_idx]
    each = [
        jgs.train.auc(logits[k, c], known[k, c] > 0.5)
        for c in range(3)
        for k in [~np.isnan(known[:, c])]
    ]
    assert result(tmp_path / "run-few")["test_accuracy"] == pytest.approx(np.mean(each))
    given = np.where(np.isnan(known), 0, (logits > 0) != known)
    some = np.where(np.isnan(known), np.nan, known)
    right = METRICS["f1_micro"].measure(Alone(), [logits], [some])
    both = np.nansum(known) + ((logits > 0) & ~np.isnan(known)).sum()
    assert right == pytest.approx(1 - given.sum() / both)


@pytest.mark.parametrize(
    "flags",
    [
        {"loss": "huber", "metric": "r2"},
        {"balanced": True, "label_smoothing": 0.1},
        {"loss": "focal", "class_weights": (0.2, 3.0, 1.0), "average": "ema"},
        {"loss": "own_losses:entropy", "metric": "own_losses:nothing"},
    ],
)
def test_two_ranks_learn_what_one_learns(flags, tmp_path, own):
    """Of numbers; and of labels of which half are missing: ranks know unequally many."""
    data = numbers() if flags.get("metric") == "r2" else several(0.5)
    write_parts(tmp_path / "parts", data, np.arange(N) % 2, 2, method="given")
    if ":" in flags.get("metric", ""):
        with pytest.raises(InputError, match="finite; got nan of own_losses:nothing"):
            run_of(tmp_path, 2, flags)
        flags = flags | {"metric": "f1_macro"}
    rows = [run_of(tmp_path, size, flags) for size in (1, 2)]
    for name in ("train_loss", "val_accuracy"):
        one, two = ([row[name] for row in each] for each in rows)
        np.testing.assert_allclose(one, two, rtol=1e-4)


def run_of(folder, size, flags):
    config = Config(
        partition=str(folder / "parts"),
        run_dir=str(folder / f"run-{size}-{len(flags)}-{flags.get('metric')}"),
        batch_size=40 // size,
        fanouts=(5, 5),
        epochs=2,
        dropout=0.0,
        ranks=size,
        progress=False,
        **flags,
    )
    comm = Mesh(jax.devices()[:size]) if size > 1 else None
    loop.run(config, lambda config: open_job(config, comm))
    return rows_of(Path(config.run_dir))


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ("--loss focal", "--loss for labels that are numbers must be mse, huber, or"),
        ("--loss hinge", "--loss must be one of cross_entropy, focal, mse, huber, or package"),
        ("--loss own_losses:absent", "--loss must name a function of its module; got own_"),
        ("--loss absent:mse", "--loss must name a module that can be imported"),
        ("--loss own_losses:mean", "the loss of each row [B]; got float32[] of own_losses"),
        ("--loss own_losses:broken", "got own_losses:broken (AttributeError: "),
        ("--huber-delta 2", "--huber-delta must be for --loss huber"),
        ("--balanced", "--class-weights or --balanced must be for classes"),
        ("--metric f1_macro", "--metric for labels that are numbers must be one of rmse, mae"),
        ("--metric own_losses:nothing", "a number that is finite; got nan"),
        ("--average-decay 0.5", "--average-decay must be for --average ema"),
        ("--accumulate 81", "--accumulate must be at most the number of batches in the run"),
        ("--data-options label_kind=class", "must be whole numbers"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(flags, says, tables, tmp_path, own, capsys):
    assert train(tables, tmp_path / "run", *flags.split()) == 2
    lines = [line for line in capsys.readouterr().err.splitlines() if "error" in line]
    assert len(lines) == 1
    assert says in lines[0]


def test_a_loss_of_missing_labels_must_be_of_each(tmp_path, own):
    several(0.5).save(tmp_path / "few")
    config = Config(dataset=str(tmp_path / "few"), batch_size=50, loss="own_losses:of_each")
    with pytest.raises(InputError, match=r"the loss of each label \[B, C\]"):
        open_job(config)


def test_a_loss_of_links_of_ones_own(tables, tmp_path, own, capsys):
    links = ("--task", "links", "--epochs", 1, "--batch-size", 500, "--fanouts", 4)
    for name, loss in (("a", "bce"), ("b", "jgs.models:binary_cross_entropy")):
        assert train(tables, tmp_path / name, *links, "--loss", loss) == 0
    assert first_losses(tmp_path / "a") == first_losses(tmp_path / "b")
    assert train(tables, tmp_path / "c", *links, "--loss", "own_losses:squared") == 2
    assert "must take jgs.models.LinkScores" in capsys.readouterr().err.splitlines()[-1]
