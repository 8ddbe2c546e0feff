"""Edge columns as features: which models read which, how they are scaled, and what is said."""

import json
from dataclasses import replace

import jax
import numpy as np
import pytest
from cases import rarely
from flax import nnx
from refusals import command_refused as refused
from small_data import communities, events, papers
from small_runs import command, on_all_neighbours, started, trainer

import jgs
from jgs.graph import as_device
from jgs.models.parts import joined
from jgs.settings import exact_integers
from jgs.train.config import Config
from jgs.train.loop.progress import Meter

FLAGS = "--fanouts 3 --hidden 8 --batch-size 10 --epochs 1 --no-progress --dataset"
train = trainer(FLAGS.removesuffix("--dataset"))


def with_columns(data, **columns):
    columns = {name: as_device(column) for name, column in columns.items()}
    graph = data.graph._with(edge_columns=columns)
    return replace(data, graph=graph)


def amounts(graph, **gaps):
    """A column of whole numbers far from 0, and one of two numbers an edge, perhaps `gaps`."""
    rng = np.random.default_rng(3)
    amount = 10**15 + rng.integers(0, 9, graph.num_edges)
    pair = rng.normal(-4, 1e-3, (graph.num_edges, 2)).astype(np.float32)
    return {"amount": amount, "pair": pair} | gaps


NODES = {"batch_size": 10, "fanouts": (3,), "hidden": 8}
EVENTS = {"task": "links", "temporal": True, "fanouts": (3,), "latest": True, "learned": 0}
READERS = {
    "gat": (communities, NODES),
    "gatv2": (communities, NODES),
    "gin": (communities, NODES),
    "rgat": (lambda: papers(bare=False), NODES | {"fanouts": ("*=3",)}),
    "tgat": (events, NODES | EVENTS),
    "mixer": (events, NODES | EVENTS),
}


@pytest.mark.parametrize("model", rarely(list(READERS), list(READERS).index("tgat")))
def test_what_a_model_computes_depends_on_each_edge_column(model, tmp_path):
    make, settings = READERS[model]
    data = make()
    with_columns(data, **amounts(data.graph)).save(tmp_path / "data")
    job, params = started(dataset=str(tmp_path / "data"), model=model, **settings)
    assert job.edges.columns == ("amount", "pair")
    read = nnx.merge(nnx.graphdef(job.model(jax.random.key(0))), params)
    batch, x = next(iter(job.batches(Meter())))
    job.close()
    outputs = nnx.jit(lambda model, batch, x: jax.tree.leaves(model(batch, x))[0])

    def without(block, name):
        columns = block.edge_columns
        return replace(block, edge_columns=columns | {name: 0 * columns[name]})

    first = np.asarray(outputs(read, batch, x))
    assert np.isfinite(first).all()
    for name in job.edges.columns:
        other = replace(batch, blocks=tuple(without(block, name) for block in batch.blocks))
        assert np.abs(first - outputs(read, other, x)).max() > 1e-4


def test_a_run_reads_them_to_its_prediction(tmp_path, capsys):
    """The checkpoint has their names and scales, and runs of before read none."""
    data = communities()
    label = data.graph.edge_columns["label"]
    data = with_columns(data, label=label, **amounts(data.graph))
    data.save(tmp_path / "data")
    train(tmp_path / "data", tmp_path / "run", "--model gin")
    assert "edge columns that gin reads: amount, pair\n" in capsys.readouterr().err
    run = jgs.open_run(tmp_path / "run")
    assert run.edges.columns == run.model.edge_columns == ("amount", "pair")
    mean, factor = np.array(run.edges.scales).T
    columns = amounts(data.graph)
    numbers = np.column_stack([columns["amount"] - 10**15, columns["pair"]]).astype(float)
    np.testing.assert_allclose(mean - [10**15, 0, 0], numbers.mean(0), rtol=1e-3, atol=0.2)
    np.testing.assert_allclose(1 / factor, numbers.std(0), rtol=1e-4)
    want = on_all_neighbours(run.model, data.graph, jax.numpy.asarray(data.features))
    np.testing.assert_allclose(run.logits(), want, rtol=1e-3, atol=1e-4)
    saved = json.loads((tmp_path / "run" / "config.json").read_text())
    assert saved.pop("edge_features") == ["auto"]
    assert Config.from_json(json.dumps(saved)).edge_features == ("none",)


def test_numbers_far_from_0_keep_digits_until_the_mean_is_taken_off():
    rows = {  # a column, its mean and its factor, and what is to come out
        "big": (np.int64([2**60 + 3072, 2**60 - 5120]), 2**60, 2**-9, [6, -10]),
        "huge": (np.uint64([2**63 + 4096, 2**63]), 2**63, 2**-12, [1, 0]),
        "fine": (np.float64([1.7e9 + 0.25, 1.7e9 - 0.5]), 1.7e9, 2, [0.5, -1]),
        "byte": (np.uint8([3, 250]), 100.25, 2, [-194.5, 299.5]),
    }
    with exact_integers():
        edge = {name: jax.numpy.asarray(column) for name, (column, *_) in rows.items()}
        got = joined(edge, len(rows), [scale for _, *scale, _ in rows.values()])
    np.testing.assert_array_equal(got.T, [want for *_, want in rows.values()])
    assert got.dtype == np.float32


SAID = {
    "sage": ("--model sage", "that are not read: amount, pair, gap (--model sage reads none"),
    "gaps": ("--model gat", "reads: amount, pair; not read, for their gaps: gap"),
    "named": ("--model gat --edge-features pair", "that gat reads: pair\n"),
    "none": ("--model gat --edge-features none", ""),
    "saint": ("--model gat --sampler saint", "not read: amount, pair, gap (--sampler saint"),
}


@pytest.fixture(scope="module")
def gappy(tmp_path_factory):
    data = communities()
    gap = np.where(np.arange(data.graph.num_edges) % 9, 1.0, np.nan).astype(np.float32)
    folder = tmp_path_factory.mktemp("gappy") / "data"
    with_columns(data, **amounts(data.graph, gap=gap)).save(folder)
    return folder


@pytest.mark.parametrize("name", SAID)
def test_a_run_says_which_columns_are_read(gappy, tmp_path, name):
    flags, line = SAID[name]
    words = dict(zip(*[iter(flags.split())] * 2, strict=True))
    features = (words.get("--edge-features", "auto"),)
    sampler = words.get("--sampler", "neighbors")
    of = {"batch_size": 10} if sampler == "saint" else NODES
    job, _ = started(
        dataset=str(gappy),
        model=words["--model"],
        edge_features=features,
        sampler=sampler,
        **of,
    )
    job.close()
    (said,) = job.about
    assert line in said + "\n" if line else not said


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ("--model sage --edge-features pair", "must be for a model ... sage reads none; gat"),
        ("--model gat --edge-features gap", "a finite number for every edge ... gap"),
        ("--model gat --edge-features pairs", "must name edge columns ... amount, pair, gap"),
    ],
)
def test_named_columns_that_cannot_be_read_are_refused(gappy, tmp_path, capsys, flags, says):
    refused(capsys, says, command, FLAGS, gappy, flags, "--run-dir", tmp_path / "run")
