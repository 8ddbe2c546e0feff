"""What is learned: regression, losses, class weights, missing labels, and one's own."""

from functools import partial
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from cases import cases
from refusals import command_refused as refused
from small_data import planted, several
from small_runs import comm_of, command, measured, trainer, words

import jgs
from jgs import InputError, losses
from jgs.data import Dataset
from jgs.predict.__main__ import main as predict
from jgs.train.config import Config
from jgs.train.evaluation.metrics import ERRORS
from jgs.train.loop import folder
from jgs.train.loop.learner import ModelLearner
from jgs.train.loop.objective import Objective
from jgs.train.loop.step import TrainState
from jgs.train.tasks.task import open_job

N = 400
FLAGS = """--fanouts 8 8 --hidden 32 --batch-size 10 --epochs 4 --dropout 0 --lr 1e-2
    --no-progress"""
train = trainer(FLAGS)
OWN = """
import jax.numpy as jnp
from jgs import losses

def squared(outputs, labels):
    return (outputs[:, 0] - labels) ** 2

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


def write_tables(folder, split, **labels):
    """The data that are planted, as a user writes them."""
    src, dst, x, *_ = planted()
    nodes = {"id": np.arange(N) + 1000, "split": split, **labels}
    nodes |= {f"x{number}": column for number, column in enumerate(x.T)}
    folder.mkdir(exist_ok=True)
    pd.DataFrame(nodes).to_csv(folder / "nodes.csv", index=False)
    edges = pd.DataFrame({"src": src + 1000, "dst": dst + 1000})
    edges.to_csv(folder / "edges.csv", index=False)
    return folder


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """Node 0 is in no split and has no number."""
    *_, y, split = planted()
    split[0], y[0] = "", np.nan
    return write_tables(tmp_path_factory.mktemp("tables"), split, label=y)


@pytest.fixture
def own(tmp_path, monkeypatch):
    (tmp_path / "own_losses.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)


def column(run_dir, name="train_loss"):
    return [row[name] for row in folder.read_metrics(run_dir, 99)]


def test_a_regression_beside_a_linear_model(tables, tmp_path, own):
    """In the labels' units; one's own loss of the same formula gives the same bits."""
    judged = train(tables, tmp_path / "run", "--metric r2")
    assert judged["metric"] == "R2"
    _, _, x, y, split = planted()
    split[0] = ""
    known = {name: np.flatnonzero(split == name) for name in ("train", "test")}
    ones = np.column_stack([x, np.ones(N)])
    weights = np.linalg.lstsq(ones[known["train"]], y[known["train"]], rcond=None)[0]
    linear = jgs.train.r2(ones[known["test"]] @ weights, y[known["test"]])
    found = judged["test_accuracy"]
    assert found > linear + 0.3
    argv = words("--split test --no-progress --run-dir", tmp_path / "run")
    assert predict([*argv, "--out", str(tmp_path / "out.csv")]) == 0
    table = pd.read_csv(tmp_path / "out.csv")
    assert list(table.columns) == ["node", "value"]
    np.testing.assert_array_equal(table["node"], known["test"] + 1000)
    assert jgs.train.r2(table["value"], y[known["test"]]) == pytest.approx(found, abs=1e-5)
    run = jgs.open_run(tmp_path / "run", progress=False)
    np.testing.assert_allclose(run.predict(known["test"]), table["value"], rtol=1e-6)
    near = run.predict(known["test"], fanouts=(-1, -1))
    np.testing.assert_allclose(near, table["value"], rtol=1e-4)
    more = "--loss own_losses:squared --metric own_losses:largest --epochs 2"
    judged = train(tables, tmp_path / "own", more)
    assert column(tmp_path / "own") == column(tmp_path / "run")[:2]
    assert judged["metric"] == "largest"
    run = jgs.open_run(tmp_path / "own", progress=False)
    off = np.abs(run.predict(known["test"]) - y[known["test"]]).max()
    assert judged["test_accuracy"] == pytest.approx(off, rel=1e-5)
    assert judged["val_accuracy"] == min(column(tmp_path / "own", "val_accuracy"))


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
    loss = jax.jit(made.loss)
    np.testing.assert_allclose(loss(outputs, labels, mask), want, rtol=1e-5)
    # Ranks weigh their means by their counts.
    shares = [(outputs[s], labels[s], mask[s]) for s in (slice(0, 3), slice(3, 12))]
    counts = [jax.jit(made.count)(*own[1:]) for own in shares]
    np.testing.assert_allclose(sum(counts), weight[known].sum(), rtol=1e-6)
    means = [float(loss(*own) * n) for own, n in zip(shares, counts, strict=True)]
    np.testing.assert_allclose(sum(means) / sum(counts), want, rtol=1e-5)
    learner = object.__new__(ModelLearner)  # of weights a thousandth of these: below 1 together
    learner._together, few = None, (sum(means) / 1e3, sum(counts) / 1e3)
    learner.state = TrainState(None, None, 0, *few, 0)
    assert learner.loss() == pytest.approx(want, rel=1e-5)
    slope = jax.jit(jax.grad(made.loss))(outputs, labels, mask)
    assert np.isfinite(slope).all()
    assert not slope[~known].any()


def test_losses_far_from_and_at_the_truth():
    """Their derivatives are finite; a focal loss of power 0 is the cross-entropy."""
    outputs = np.float32([[90, -90], [-90, 90], [0, 1]])
    slope = jax.grad(lambda o, y, gamma: losses.focal(o, y, gamma=gamma).sum())
    for labels in (np.array([0, 0, 1]), np.float32([[1, 0], [1, 0], [0, 1]])):
        for gamma in (0.5, 2.0):
            assert np.isfinite(jax.jit(slope, static_argnums=2)(outputs, labels, gamma)).all()
        plain = jax.jit(losses.cross_entropy)(outputs, labels)
        focal = jax.jit(partial(losses.focal, gamma=0.0))(outputs, labels)
        np.testing.assert_allclose(focal, plain, atol=1e-6)
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
    """Those of several numbers are means over columns, of what is known."""
    rng = np.random.default_rng(0)
    outputs, labels = rng.standard_normal((2, 60, 3)).astype(np.float32).astype(float)
    labels[rng.random(60) < 0.5, 1] = np.nan
    labels[:, 2] = np.nan  # nothing is known of it

    def by_definition(column):
        known = ~np.isnan(labels[:, column])
        own, off = labels[known, column], (outputs - labels)[known, column]
        want = {"rmse": np.sqrt((off**2).mean()), "mae": np.abs(off).mean()}
        want["r2"] = 1 - (off**2).sum() / ((own - own.mean()) ** 2).sum()
        found = getattr(jgs.train, name)(outputs[known, column], own)
        assert found == pytest.approx(want[name], rel=1e-6)
        return found

    first, found = by_definition(0), set()
    for ends in ([0, 60], [0, 7, 60], [0, 31, 31, 60]):  # one of these ranks has no row
        comm = comm_of(len(ends) - 1)
        own = [[array[a:b] for a, b in pairwise(ends)] for array in (outputs, labels)]
        found.add(ERRORS[name].measure(comm, *own))
        one = [[array[a:b, 0] for a, b in pairwise(ends)] for array in (outputs, labels)]
        alone = ERRORS[name].measure(comm, [array[:, None] for array in one[0]], one[1])
        assert alone == pytest.approx(first, rel=1e-12)
    assert len(found) == 1
    assert found.pop() == pytest.approx((first + by_definition(1)) / 2, rel=1e-12)


@pytest.mark.parametrize("loss", ["mse", "huber"])
def test_losses_of_several_numbers(loss):
    rng = np.random.default_rng(0)
    outputs = jnp.asarray(rng.standard_normal((10, 2)), jnp.float32)
    y = (rng.standard_normal((10, 2)) * [1, 50] + [3, 500]).astype(np.float32)
    mask, options = np.arange(10) < 8, {"loss": loss}
    one = objective(y[:8, 0], 1, **options)
    alone = one.loss(outputs[:, :1], one.compared(y[:, 0]), mask)
    twice = [np.stack([each[:, 0]] * 2, axis=1) for each in (outputs, y)]
    for missing in (False, True):  # two programs
        both = Objective(Config(**options), twice[1][:8], 2, missing=missing)
        assert both.numbers
        np.testing.assert_allclose(
            both.loss(twice[0], both.compared(twice[1]), mask), alone, rtol=1e-6
        )
    # Each column has its own scale and derivative, and what is missing has none.
    lacking = y.copy()
    lacking[2:5, 1] = np.nan
    made = objective(lacking[:8], 2, **options)
    assert made.scale.mean[0] == one.scale.mean
    assert made.scale.mean[1] == pytest.approx(np.nanmean(lacking[:8, 1].astype(float)))
    slope = jax.grad(made.loss)(outputs, made.compared(lacking), mask)
    of_one = jax.grad(one.loss)(outputs[:, :1], one.compared(y[:, 0]), mask)
    np.testing.assert_allclose(slope[:, 0] * 13, of_one[:, 0] * 8, rtol=1e-5)  # entries known
    assert not slope[2:5, 1].any()
    assert slope[:2, 1].all()
    assert made.count(made.compared(lacking), mask) == 13
    units = made.scale.units(np.asarray(made.scale.standard(y)))
    np.testing.assert_allclose(units, y, rtol=1e-5)
    # Also where their squares are no float32.
    huge = y[:, 0] * np.float32(1e21)
    large = objective(huge[:8], 1, **options)
    same = large.loss(outputs[:, :1], large.compared(huge), mask)
    np.testing.assert_allclose(same, alone, rtol=1e-5)
    # Of 0 and 1 the loss decides what is learned.
    marks = (y > np.median(y, axis=0)).astype(np.float32)
    assert objective(marks, 2, **options).metric.name == "RMSE"
    assert objective(marks, 2).metric.name == "micro-F1"


def test_a_regression_of_several_numbers(tmp_path):
    """By the command, from columns of a table; predictions have the labels' units."""
    _, _, x, y, split = planted()
    other = np.where(np.arange(N) % 3 == 0, np.nan, -3 * y + 7 * x[:, 2])
    tables = write_tables(tmp_path / "tables", split, **{"label:price": y, "label:loss": other})
    data = jgs.data.load(tables)
    assert (data.numbers, data.multilabel) == (True, False)
    assert data.class_names == ("price", "loss")
    judged = train(tables, tmp_path / "run", "--metric r2")
    test, known = (split == "test").nonzero()[0], ~np.isnan(other)
    argv = words("--split test --no-progress --run-dir", tmp_path / "run", "--out")
    assert predict([*argv, str(tmp_path / "out.csv")]) == 0
    table = pd.read_csv(tmp_path / "out.csv")
    assert list(table.columns) == ["node", "value_0", "value_1"]
    given = np.full((N, 2), np.nan)
    given[test] = table[["value_0", "value_1"]]
    both = test[known[test]]
    each = jgs.train.r2(given[test, 0], y[test]), jgs.train.r2(given[both, 1], other[both])
    assert min(each) > 0.2
    assert judged["metric"] == "R2"
    assert judged["test_accuracy"] == pytest.approx(np.mean(each), abs=1e-4)
    run = jgs.open_run(tmp_path / "run", progress=False)
    assert not run.multilabel
    np.testing.assert_allclose(run.predict(test), given[test], rtol=1e-4)
    assert predict([*argv, str(tmp_path / "out.npy")]) == 0
    assert np.load(tmp_path / "out.npy")["value"].shape == (test.size, 2)
    assert "nodes" not in jgs.report.write_report(tmp_path / "run")  # curves alone


def test_missing_labels_change_nothing_where_none_is(saved, tmp_path):
    """One that no training node lacks: the program for missing labels, on the same labels."""
    whole = several()
    lacking = np.array(whole.labels)
    lacking[whole.test_idx[0], 1] = np.nan
    splits = {name: getattr(whole, f"{name}_idx") for name in ("train", "val", "test")}
    made = Dataset.from_arrays(whole.graph, whole.features, lacking, splits, name="several")
    made.save(tmp_path / "lacking")
    for name, data in (("a", saved(several)), ("b", tmp_path / "lacking")):
        train(data, tmp_path / name, "--epochs 1")
    np.testing.assert_allclose(column(tmp_path / "a"), column(tmp_path / "b"), rtol=1e-4)


def test_missing_labels_do_not_count(saved, tmp_path):
    """Those of two in five labels tell as much of the others, whose labels are known here."""
    judged = train(saved(several, 0.6), tmp_path / "run", "--metric auc")
    whole, test = several(), several().test_idx
    logits = jgs.open_run(tmp_path / "run", progress=False).logits(test)
    assert measured("auc", logits, whole.labels[test]) > 0.8
    # A metric is that of the known ones.
    known = several(0.6).labels[test]
    there = ~np.isnan(known)
    each = [jgs.train.auc(logits[k, c], known[k, c] > 0.5) for c, k in enumerate(there.T)]
    assert judged["test_accuracy"] == pytest.approx(np.mean(each))
    right = measured("f1_micro", logits, known)
    wrong = ((logits > 0) != known)[there].sum()
    both = np.nansum(known) + ((logits > 0) & there).sum()
    assert right == pytest.approx(1 - wrong / both)


@cases(
    "flags, says",
    ("--loss focal", "--loss for labels that are numbers must be mse, huber, or"),
    ("--loss hinge", "--loss must be one of cross_entropy, focal, mse, huber, or package"),
    ("--loss own_losses:absent", "--loss must name a function of its module; got own_"),
    ("--loss absent:mse", "--loss must name a module that can be imported"),
    ("--loss own_losses:mean", "the loss of each row [B]; got float32[] of own_losses"),
    ("--loss own_losses:broken", "got own_losses:broken (AttributeError: "),
    ("--balanced", "--class-weights or --balanced must be for classes"),
    ("--metric f1_macro", "--metric for labels that are numbers must be one of rmse, mae"),
    ("--metric own_losses:nothing", "a number that is finite; got nan"),
    ("--data-options label_kind=class", "must be whole numbers"),
    ("--task links --loss own_losses:squared", "must take jgs.models.LinkScores"),
)
@pytest.mark.usefixtures("own")
def test_what_does_not_fit_is_refused_in_one_line(flags, says, tables, tmp_path, capsys):
    run = ("--dataset", tables, "--run-dir", tmp_path / "run")
    refused(capsys, says, command, FLAGS, *run, flags)


@pytest.mark.usefixtures("own")
def test_a_loss_of_missing_labels_must_be_of_each(saved):
    config = Config(dataset=saved(several, 0.5), batch_size=50, loss="own_losses:of_each")
    with pytest.raises(InputError, match=r"the loss of each label \[B, C\]"):
        open_job(config)


def test_a_loss_of_links_of_ones_own(tables, tmp_path):
    links = "--task links --epochs 1 --batch-size 500 --fanouts 4"
    for name, loss in (("a", "bce"), ("b", "jgs.models:binary_cross_entropy")):
        train(tables, tmp_path / name, links, "--loss", loss)
    assert column(tmp_path / "a") == column(tmp_path / "b")
