"""`--task embed` on two rings: walks stay in their ring, so embeddings distinguish the two."""

import json
import signal

import jax
import numpy as np
import pytest
from small_runs import arrays

import jgs
from jgs import InputError
from jgs.data.plain import load_plain
from jgs.predict.__main__ import main as predict
from jgs.train.__main__ import main
from jgs.train.config import Config
from jgs.train.evaluation.probe import fit, probe
from jgs.train.loop import folder
from jgs.train.tasks import embed

FLAGS = """
    --task embed --dim 8 --walk-length 10 --num-walks 4 --window 3 --batch-size 16 --epochs 3
    --shared-negatives 5 --no-progress
"""


def two_rings(size=30):
    """The edges `[E, 2]` of two circular ladders, each edge once."""
    node = np.arange(size)
    ring = [np.stack([node, (node + k) % size], axis=1) for k in (1, 2, 3)]
    return np.concatenate([*ring, *(edges + size for edges in ring)])


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """An archive without features and without a split."""
    edges = two_rings()
    both = np.concatenate([edges, edges[:, ::-1]]).T
    path = tmp_path_factory.mktemp("data") / "rings.npz"
    labels = np.repeat([0, 1], 30)
    np.savez(path, edge_index=both, num_nodes=60, labels=labels)
    return path


def train(data, run_dir, *more):
    flags = [*FLAGS.split(), "--dataset", data, "--run-dir", run_dir, *more]
    return main([str(each) for each in flags])


@pytest.fixture(scope="module")
def whole(data, tmp_path_factory):
    run_dir = tmp_path_factory.mktemp("embed") / "whole"
    assert train(data, run_dir, "--lr", 0.2) == 0
    return run_dir


def test_the_run_folder_and_the_result(whole):
    held = {p.name for p in whole.iterdir() if p.name != ".lock"}
    files = {"config.json", "metrics.jsonl", "checkpoints", "curve.png", "result.json"}
    assert held == files | {"embeddings.npy"}
    found = np.load(whole / "embeddings.npy")
    assert (found.shape, found.dtype) == ((60, 8), np.float32)
    result = json.loads((whole / "result.json").read_text())
    assert result["embeddings"] == str(whole / "embeddings.npy")
    assert result["accuracy"] > 0.9
    losses = [row["train_loss"] for row in folder.read_metrics(whole, 3)]
    assert losses[0] > losses[1] > losses[2]


def test_the_opened_run_has_the_embeddings(whole, tmp_path):
    run, found = jgs.open_run(whole), np.load(whole / "embeddings.npy")
    np.testing.assert_array_equal(run.embed(), found)
    np.testing.assert_array_equal(run.embed([3, 59, 3]), found[[3, 59, 3]])
    losses = [row["train_loss"] for row in folder.read_metrics(whole, 3)]
    np.testing.assert_array_equal(run.metrics["train_loss"], losses)
    with pytest.raises(InputError, match="ids from 0 to 59; got 60"):
        run.embed([60])
    assert predict(["--run-dir", str(whole), "--out", str(tmp_path / "out.npy")]) == 0
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy")["embedding"], found)


def test_one_command_begins_the_run_and_goes_on_with_it(data, whole, tmp_path, monkeypatch):
    """As in the script of a job that is put back into the queue after SIGTERM."""
    made, calls = embed.EmbedLearner.step, []

    def interrupted(self, *arguments):
        calls.append(1)
        if len(calls) == 11:  # an epoch has 16 steps
            signal.raise_signal(signal.SIGTERM)
        made(self, *arguments)

    monkeypatch.setattr(embed.EmbedLearner, "step", interrupted)
    flags = ("--lr", 0.2, "--checkpoint-every", 2, "--resume")
    assert train(data, tmp_path / "run", *flags) == 143
    assert len(calls) == 11
    monkeypatch.undo()
    assert train(data, tmp_path / "run", *flags, "--prefetch", 0) == 0
    for mine, theirs in zip(arrays(tmp_path / "run"), arrays(whole), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    mine, theirs = (np.load(run / "embeddings.npy") for run in (tmp_path / "run", whole))
    np.testing.assert_array_equal(mine, theirs)


def word2vec(walks, num_nodes, width, window=10, negatives=5, rate=0.025):
    """Word2vec's vectors float64 `[N, D]`: a step after each center, and negatives of its own
    for each pair."""
    rng = np.random.default_rng(0)
    noise = np.cumsum(np.bincount(walks.ravel(), minlength=num_nodes) ** 0.75)
    centers = (rng.random((num_nodes, width)) - 0.5) / width
    contexts = np.zeros_like(centers)
    for at, walk in enumerate(walks):
        now = rate * (1 - at / len(walks))
        for i, center in enumerate(walk):
            reach = rng.integers(1, window + 1)
            near = np.r_[walk[max(i - reach, 0) : i], walk[i + 1 : i + reach + 1]]
            points = noise[-1] * rng.random(negatives * near.size)
            others = np.r_[near, np.searchsorted(noise, points, side="right")]
            label = np.arange(others.size) < near.size
            slope = now * (1 / (1 + np.exp(-contexts[others] @ centers[center])) - label)
            step = slope @ contexts[others]
            np.add.at(contexts, others, -slope[:, None] * centers[center])
            centers[center] -= step
    return centers


def test_the_defaults_learn_from_few_walks_what_word2vec_does(tmp_path):
    """Ten groups, with edges of weight inside them and to a few hubs. With a rate or a noise
    that is not word2vec's, five walks of each node do not yet tell the groups."""
    rng, size, num_groups = np.random.default_rng(0), 400, 10
    group = np.arange(size) % num_groups
    src, inside = np.repeat(np.arange(size), 16), np.tile(np.arange(16) < 6, size)
    hub = (size * rng.random(src.size) ** 2).astype(int)
    own = (hub // num_groups * num_groups + group[src]) % size
    dst, weight = np.where(inside, own, hub), rng.integers(1, 4, src.size)
    path = tmp_path / "groups.npz"
    np.savez(
        path,
        edge_index=np.stack([np.r_[src, dst], np.r_[dst, src]]),
        edge_weight=np.tile(np.float32(weight * np.where(inside, 3, 1)), 2),
        num_nodes=size,
        labels=group,
    )
    options = {"weighted": True, "epochs": 1, "num_walks": 5, "dim": 32, "walk_length": 40}
    job = embed.Embed().open(Config(dataset=path, task="embed", **options))
    learner, walks = embed.EmbedLearner(job, jax.random.key(0), None), []
    for batch in job.loader:
        walks.append(np.asarray(batch.nodes))
        learner.step(batch, None, False)
    job.close()
    nodes = np.concatenate(walks)
    theirs = word2vec(nodes[nodes[:, 0] < size], size, 32)
    mine = learner.arrays()["rows"][::2, :-1]
    ours, wanted = (probe(rows, group)["macro_f1"] for rows in (mine, theirs))
    assert wanted > 0.99
    assert ours > wanted - 0.01


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ("--hidden 7", "--hidden must be for --task nodes"),
        ("--fanouts 7", "--fanouts must be for --sampler neighbors or labor"),
        ("--partition p", "data alone"),
        ("--sampler labor", "--sampler labor must be for --task nodes"),
        ("--sampler walk --p 2", "--p must be for --sampler node2vec"),
        (
            "--sampler walk --relations a",
            "--relations must be for --sampler pinsage or metapath",
        ),
        ("--sampler metapath", "must have --relations"),
        ("--sampler metapath --relations a", "a typed graph"),
        ("--weighted", "weight"),
        ("--causal", "a graph without edge_time"),
        ("--half-life 3", "a graph without edge_time"),
        ("--batch-size 61", "at most the number of nodes"),
        ("--task nodes --dim 8 --sampler neighbors", "--dim must be for --task embed"),
    ],
)
def test_what_is_refused(data, tmp_path, capsys, flags, words):
    assert train(data, tmp_path / "run", *flags.split()) == 2
    assert words in capsys.readouterr().err


def test_along_a_metapath(tmp_path):
    """Two circles of users share no item. The steps go between users and items."""
    users, items = np.arange(40), np.random.default_rng(0).integers(0, 10, (6, 40))
    bought = np.stack([np.tile(users, 6), (items + 10 * (users >= 20)).ravel()])
    path = tmp_path / "shop.npz"
    np.savez(
        path,
        num_user=40,
        num_item=20,
        user_item=bought,
        user_features=np.zeros((40, 1), np.float32),
        user_labels=(users >= 20).astype(np.int32),
        train_idx=users[::4],
        val_idx=users[1::4],
        test_idx=users[2::4],
    )
    flags = [
        "--sampler",
        "metapath",
        "--relations",
        "rev_user_item",
        "user_item",
        "--lr",
        "0.2",
    ]
    assert train(path, tmp_path / "run", *flags) == 0
    assert json.loads((tmp_path / "run" / "result.json").read_text())["accuracy"] > 0.9


@pytest.mark.parametrize("sampler", ["walk", "node2vec"])
def test_by_causal_walks(tmp_path, sampler):
    """Of two rings, between which later edges lead. A walk follows one of these at most, and
    so stays in a ring after it."""
    edges = two_rings()
    both = np.concatenate([edges, edges[:, ::-1], (edges[:40] + np.array([0, 30])) % 60]).T
    time = np.r_[np.random.default_rng(0).integers(0, 1000, 2 * len(edges)), np.full(40, 2000)]
    path = tmp_path / "rings.npz"
    np.savez(
        path,
        edge_index=both,
        num_nodes=60,
        labels=np.repeat([0, 1], 30),
        edge_time=time,
    )
    flags = ["--sampler", sampler, "--causal", "--lr", 0.2]
    assert train(path, tmp_path / "run", *flags) == 0
    assert json.loads((tmp_path / "run" / "result.json").read_text())["accuracy"] > 0.9
    # Where all edges have one time, a causal walk has one step, and the edges are drawn.
    np.savez(path, edge_index=both, num_nodes=60, edge_time=np.full(len(time), -5))
    job = embed.Embed().open(Config(dataset=path, task="embed", sampler=sampler, causal=True))
    job.start(jax.random.key(0))
    nodes = np.asarray(next(iter(job.loader)).nodes)
    job.close()
    assert (nodes[:, :2] < 60).all()
    assert (nodes[:, 2:] == 60).all()


def test_an_edge_list_alone_will_do(tmp_path):
    path = tmp_path / "rings.txt"
    np.savetxt(path, two_rings(), fmt="%d", header="a comment")
    plain = load_plain(path, tmp_path)
    assert (plain.labels, plain.train_idx, plain.name) == (None, None, "rings")
    assert plain.graph.num_edges == 2 * 180
    path.write_text("0 -1\n")
    with pytest.raises(InputError, match="numbered from 0"):
        load_plain(path, tmp_path)


def test_the_probe_is_penalised_logistic_regression():
    """A label's penalised loss has slope 0 at its minimum. Known labels score 1."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 3)).astype(np.float32)
    y = x @ rng.normal(size=(3, 4)) + rng.normal(size=(200, 4)) > 0
    weights = fit(x, y)
    probability = 1 / (1 + np.exp(-(x @ weights[:-1] + weights[-1])))
    slope = x.T @ (probability - y) + weights[:-1]
    assert np.abs(slope).max() < 0.05
    assert np.abs((probability - y).sum(axis=0)).max() < 0.05
    several = np.float32([[1, 0, 1], [0, 1, 0]])[np.arange(200) % 2]
    told = several @ rng.normal(size=(3, 5)).astype(np.float32)
    assert probe(10 * told, several) == {"micro_f1": 1.0, "macro_f1": 1.0}
    single = np.where(np.arange(200) < 9, -1, np.arange(200) % 2)
    split = np.arange(9, 99), np.arange(99, 200)
    assert probe(10 * told, single, *split) == {"accuracy": 1.0, "macro_f1": 1.0}
    assert probe(told, None) == probe(told, np.full(200, -1)) == {}


def test_a_walker_draws_no_batches_for_a_model(tmp_path, capsys):
    assert main(["--sampler", "walk", "--run-dir", str(tmp_path / "run")]) == 2
    assert "--sampler walk must be for --task embed" in capsys.readouterr().err
