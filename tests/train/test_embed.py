"""`--task embed` on two rings: walks stay in their ring, so embeddings distinguish the two."""

import jax
import numpy as np
import pytest
from refusals import refused
from small_data import ring_edges, rings, thirds
from small_runs import command, result, resumed, trainer

import jgs
from jgs import Graph
from jgs.data import Dataset
from jgs.data.plain import load_plain
from jgs.predict.__main__ import main as predict
from jgs.train.config import Config
from jgs.train.loop import folder
from jgs.train.tasks import embed
from jgs.train.tasks.embed import fit, probe

train = trainer("""
    --task embed --dim 8 --walk-length 10 --num-walks 4 --window 3 --batch-size 16 --epochs 3
    --shared-negatives 5 --lr 0.2 --no-progress
""")


@pytest.fixture(scope="module")
def whole(saved, tmp_path_factory):
    run_dir = tmp_path_factory.mktemp("embed") / "whole"
    train(saved(rings), run_dir, "--checkpoint-every 9 --keep 9")
    return run_dir


def test_the_run_folder_and_the_result(whole):
    held = {p.name for p in whole.iterdir() if p.name != ".lock"}
    files = {"config.json", "metrics.jsonl", "checkpoints", "curve.png", "result.json"}
    assert held == files | {"embeddings.npy"}
    assert result(whole)["embeddings"] == str(whole / "embeddings.npy")
    assert result(whole)["accuracy"] > 0.9
    losses = [row["train_loss"] for row in folder.read_metrics(whole, 3)]
    assert losses[0] > losses[1] > losses[2]


def test_the_opened_run_has_the_embeddings(whole, tmp_path):
    run, found = jgs.open_run(whole), np.load(whole / "embeddings.npy")
    assert (found.shape, found.dtype) == ((60, 8), np.float32)
    np.testing.assert_array_equal(run.embed(), found)
    np.testing.assert_array_equal(run.embed([3, 59, 3]), found[[3, 59, 3]])
    losses = [row["train_loss"] for row in folder.read_metrics(whole, 3)]
    np.testing.assert_array_equal(run.metrics["train_loss"], losses)
    refused("ids from 0 to 59; got 60", run.embed, [60])
    assert predict(["--run-dir", str(whole), "--out", str(tmp_path / "out.npy")]) == 0
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy")["embedding"], found)


def test_a_resumed_run_is_the_same(whole, tmp_path):
    resumed(whole, tmp_path / "run", 25, "--prefetch 0")  # an epoch has 16 steps
    mine, theirs = (np.load(run / "embeddings.npy") for run in (tmp_path / "run", whole))
    np.testing.assert_array_equal(mine, theirs)


def test_the_defaults_learn_from_few_walks(tmp_path):
    """With a rate or a noise that is not word2vec's, these walks do not tell the ten groups."""
    rng, size, num_groups = np.random.default_rng(0), 400, 10
    group = np.arange(size) % num_groups
    src, inside = np.repeat(np.arange(size), 16), np.tile(np.arange(16) < 6, size)
    hub = (size * rng.random(src.size) ** 2).astype(int)
    own = (hub // num_groups * num_groups + group[src]) % size
    dst, weight = np.where(inside, own, hub), rng.integers(1, 4, src.size)
    weight = np.tile(np.float32(weight * np.where(inside, 3, 1)), 2)
    graph = Graph.from_edges(np.r_[src, dst], np.r_[dst, src], size, weight)
    Dataset.from_arrays(graph, np.zeros((size, 1)), group, thirds(size)).save(tmp_path / "data")
    flags = """--task embed --weighted --epochs 1 --num-walks 5 --dim 32 --walk-length 40
        --no-progress"""
    assert command(flags, "--dataset", tmp_path / "data", "--run-dir", tmp_path / "run") == 0
    rows = np.load(tmp_path / "run" / "embeddings.npy")
    assert probe(rows, group)["macro_f1"] > 0.98


def test_along_a_metapath(tmp_path):
    """Two circles of users share no item. The steps go between users and items."""
    users, items = np.arange(40), np.random.default_rng(0).integers(0, 10, (6, 40))
    bought = np.stack([np.tile(users, 6), (items + 10 * (users >= 20)).ravel()])
    counts, edges = {"user": 40, "item": 20}, {("user", "buys", "item"): bought}
    graph, labels = Graph.from_relations(counts, edges, both_ways=True), {"user": users // 20}
    made = Dataset.from_arrays(graph, np.zeros((60, 1), np.float32), labels, thirds(40))
    made.save(tmp_path / "shop")
    flags = "--sampler metapath --relations rev_buys buys"
    assert train(tmp_path / "shop", tmp_path / "run", flags)["accuracy"] > 0.9


@pytest.mark.parametrize("sampler", ["walk", "node2vec"])
def test_by_causal_walks(tmp_path, sampler):
    """A walk follows one of the later edges between the rings at most, and then stays."""
    both, path = ring_edges(), tmp_path / "rings.npz"
    joined = np.c_[both, (both[:, :40] + np.array([[0], [30]])) % 60]
    time = np.r_[np.random.default_rng(0).integers(0, 1000, both.shape[1]), np.full(40, 2000)]
    labels = np.repeat([0, 1], 30)
    np.savez(path, edge_index=joined, num_nodes=60, labels=labels, edge_time=time)
    assert train(path, tmp_path / "run", "--causal --sampler", sampler)["accuracy"] > 0.9
    # Where all edges have one time, a causal walk has one step, and the edges are drawn.
    np.savez(path, edge_index=both, num_nodes=60, edge_time=np.full(both.shape[1], -5))
    job = embed.Embed().open(Config(dataset=path, task="embed", sampler=sampler, causal=True))
    job.start(jax.random.key(0))
    nodes = np.asarray(next(iter(job.loader)).nodes)
    job.close()
    assert (nodes[:, :2] < 60).all()
    assert (nodes[:, 2:] == 60).all()


def test_an_edge_list_alone_will_do(tmp_path):
    path = tmp_path / "rings.txt"
    np.savetxt(path, ring_edges()[:, :180].T, fmt="%d", header="a comment")
    plain = load_plain(path, tmp_path)
    assert (plain.labels, plain.train_idx, plain.name) == (None, None, "rings")
    assert plain.graph.num_edges == 2 * 180
    path.write_text("0 -1\n")
    refused("numbered from 0", load_plain, path, tmp_path)


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
