"""`--task links --sampler seal` on two rings: links join near nodes of one ring."""

import json
import signal

import jax
import numpy as np
import pytest
from flax import nnx
from small_runs import arrays, same_run

import jgs
from jgs import Graph, InputError
from jgs.dist.batches.pairs import PairDraws
from jgs.dist.communicators.comm import Alone
from jgs.dist.communicators.mesh import Mesh
from jgs.models import DGCNN
from jgs.predict.__main__ import main as predict
from jgs.sampling import Seal
from jgs.train.__main__ import main
from jgs.train.config import Config
from jgs.train.evaluation.metrics import auc
from jgs.train.loop import folder, learner
from jgs.train.loop import training as loop
from jgs.train.tasks.hold_out import hold_out, is_link
from jgs.train.tasks.seal import open_seal
from jgs.train.tasks.task import open_job

FLAGS = """
    --task links --sampler seal --hidden 8 --layers 2 --batch-size 20 --epochs 2 --lr 5e-3
    --no-progress --test-share 0.2 --val-share 0.1 --fanouts -1
"""


def two_rings(size=30):
    """The edges `[2, E]` of two circular ladders, in both directions."""
    node = np.arange(size)
    ring = [np.stack([node, (node + k) % size]) for k in (1, 2, 3)]
    edges = np.concatenate([*ring, *(each + size for each in ring)], axis=1)
    return np.concatenate([edges, edges[::-1]], axis=1)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A data set whose features say nothing."""
    path = tmp_path_factory.mktemp("data") / "rings.npz"
    node = np.arange(60)
    split = {f"{name}_idx": node[i::3] for i, name in enumerate(("train", "val", "test"))}
    features = np.random.default_rng(5).normal(size=(60, 2)).astype(np.float32)
    np.savez(path, edge_index=two_rings(), labels=node % 2, features=features, **split)
    return path


def train(data, run_dir, *more):
    flags = [*FLAGS.split(), "--dataset", data, "--run-dir", run_dir, *more]
    return main([str(each) for each in flags])


@pytest.fixture(scope="module")
def whole(data, tmp_path_factory):
    run_dir = tmp_path_factory.mktemp("links") / "whole"
    assert train(data, run_dir) == 0
    return run_dir


def test_the_run_folder_and_the_result(whole, tmp_path, capsys):
    pairs = tmp_path / "pairs.txt"
    held = {p.name for p in whole.iterdir() if p.name != ".lock"}
    assert held == {"config.json", "metrics.jsonl", "checkpoints", "curve.png", "result.json"}
    result = json.loads((whole / "result.json").read_text())
    assert result["metric"] == "AUC"
    assert result["test_accuracy"] > 0.9
    rows = folder.read_metrics(whole, 2)
    assert rows[0]["train_loss"] > rows[1]["train_loss"]
    assert result["val_accuracy"] == max(row["val_accuracy"] for row in rows)
    argv = ["--run-dir", str(whole), "--out", str(whole.parent / "out.npy")]
    for flags, said in (
        ([], "--pairs"),
        (["--split", "val"], "--split for one of --task links --sampler seal"),
        (["--pairs", str(pairs)], "got 60 (number 2)"),
    ):
        pairs.write_text("1 2\n3 60\n")
        assert predict([*argv, *flags]) == 2
        assert said in capsys.readouterr().err
    np.savetxt(pairs, wanted := np.array([[1, 2], [3, 40]]), fmt="%d")
    assert predict([*argv, "--pairs", str(pairs)]) == 0
    table = np.load(whole.parent / "out.npy")
    np.testing.assert_array_equal(table["target"], [2, 40])
    told = jgs.open_run(whole).predict(wanted)
    np.testing.assert_allclose(table["probability"], told, rtol=1e-5)


def test_the_opened_run_tells_of_pairs(whole):
    run, result = jgs.open_run(whole), json.loads((whole / "result.json").read_text())
    held = open_seal(run.config).held
    told = run.predict(held.test)
    assert ((told > 0) & (told < 1)).all()
    assert auc(told, is_link(held.test)) == pytest.approx(result["test_accuracy"], abs=1e-3)
    features = open_seal(run.config).plain.features
    again = run.predict(held.test[:3], graph=held.graph, features=features)
    np.testing.assert_allclose(again, told[:3], rtol=1e-5)
    for wrong in ([0, 1], [[0, 60]]):
        with pytest.raises(InputError):
            run.predict(wrong)
    for other in (None, features[:5], features[:, :1]):
        with pytest.raises(InputError, match="columns"):
            run.predict(held.test, graph=held.graph, features=other)


def test_resumed_after_an_interruption_it_is_the_same_run(data, whole, tmp_path, monkeypatch):
    made, calls = learner.ModelLearner.step, []

    def interrupted(self, *arguments):
        calls.append(1)
        if len(calls) == 16:  # an epoch has 13 steps
            signal.raise_signal(signal.SIGTERM)
        made(self, *arguments)

    monkeypatch.setattr(learner.ModelLearner, "step", interrupted)
    assert train(data, tmp_path / "run", "--checkpoint-every", 2) == 143
    monkeypatch.undo()
    assert main(["--resume", "--run-dir", str(tmp_path / "run"), "--prefetch", "0"]) == 0
    same_run(tmp_path / "run", whole)


def test_two_ranks_learn_what_one_does(data, whole, tmp_path):
    flags = {"hidden": 8, "layers": 2, "batch_size": 10, "epochs": 2, "lr": 5e-3, "ranks": 2}
    shares = {"test_share": 0.2, "val_share": 0.1}
    given = {"task": "links", "sampler": "seal", "fanouts": (-1,), **flags, **shares}
    run_dir = str(tmp_path / "run")
    config = Config(**given, dataset=data, run_dir=run_dir, progress=False)
    comm, jobs = Mesh(jax.devices()[:2]), []

    def make_job(config):
        jobs.append(open_job(config, comm))
        return jobs[0]

    result = loop.run(config, make_job)
    one = json.loads((whole / "result.json").read_text())
    assert result["test_accuracy"] == pytest.approx(one["test_accuracy"], abs=0.02)
    ours, theirs = arrays(tmp_path / "run"), arrays(whole)
    for mine, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-2, atol=2e-3)
    (job,) = jobs
    assert job.loader.source.counters.rounds > 0


def test_what_is_held_out():
    src, dst = two_rings()
    src, dst = np.r_[src, 5, 5], np.r_[dst, 5, 6]  # a loop, and a repeated edge
    graph = Graph.from_edges(src, dst, 60, np.arange(1, src.size + 1, dtype=np.float32))
    held = hold_out(graph, jax.random.key(1), 0.2, 0.1)
    every = {(min(a, b), max(a, b)) for a, b in zip(src, dst, strict=True) if a != b}
    assert [len(p) for p in held[1:]] == [2 * 126, 2 * 18, 2 * 36]
    seen = [tuple(pair) for pairs in held[1:] for pair in pairs.tolist()]
    assert len(seen) == len(set(seen)) == 2 * len(every)
    for pairs in held[1:]:
        assert [tuple(pair) in every for pair in pairs.tolist()] == is_link(pairs).tolist()
        assert (pairs[:, 0] < pairs[:, 1]).all()
    row = np.repeat(np.arange(60), np.diff(held.graph.indptr))
    left = np.stack([held.graph.indices, row], axis=1)
    gone = {tuple(pair) for pair in held.test[:36].tolist()}
    assert {(min(p), max(p)) for p in left.tolist()} == every - gone | {(5, 5)}
    weight = dict(zip(zip(src, dst, strict=True), np.arange(1, src.size + 1), strict=True))
    twice = (5, 6)
    for pair, own in zip(left.tolist(), held.graph.edge_weight, strict=True):
        assert tuple(pair) == twice or weight[tuple(pair)] == own
    again = hold_out(graph, jax.random.key(1), 0.2, 0.1)
    other = hold_out(graph, jax.random.key(2), 0.2, 0.1)
    np.testing.assert_array_equal(again.train, held.train)
    assert (other.train != held.train).any()
    full = Graph.from_edges(*np.nonzero(~np.eye(5, dtype=bool)), 5)
    with pytest.raises(InputError, match="without an edge"):
        hold_out(full, jax.random.key(1), 0.2, 0.1)
    with pytest.raises(InputError, match="left to train"):
        hold_out(graph, jax.random.key(1), 0.5, 0.5)


def test_without_features_pairs_have_empty_rows():
    graph = Graph.from_edges(*two_rings(), 60)
    pairs = np.array([[0, 1], [2, 40], [7, 8]], np.int32)
    draws = PairDraws(Alone(), graph, None, 2, Seal(), pairs)
    every = list(draws.source(pairs, jax.random.key(0), shuffle=False).drawn(0, 0))
    assert [one.batch.pair_labels.tolist() for (one,) in every] == [[1, 0], [1, 0]]
    model = DGCNN(0, 10, rngs=nnx.Rngs(0))
    for ((batch, x),) in every:
        assert x.shape == (batch.nodes.size, 0)
        assert np.isfinite(model(batch, x)).all()


def test_auc_counts_pairs():
    rng = np.random.default_rng(0)
    scores, links = rng.integers(0, 6, 40).astype(np.float32), rng.random(40) < 0.4
    a, b = scores[links][:, None], scores[~links]
    assert auc(scores, links) == pytest.approx(np.mean((a > b) + 0.5 * (a == b)))


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ("--model gcn", "--model must be for --task nodes or links or edges"),
        ("--decoder mlp", "--decoder must be for --task links or edges"),
        ("--loss bpr", "--sampler seal must have no other options of --task links"),
        ("--metric ap", "--metric must be for --task nodes or links or edges"),
        ("--dim 8", "--dim must be for --task embed"),
        ("--pool-share 0", "--pool-share must be above 0"),
        ("--test-share 1", "--test-share must be below 1"),
        ("--batch-size 2000", "at most those to train on"),
        ("--task embed --sampler walk", "--hidden must be for --task nodes or links or edges"),
    ],
)
def test_what_is_refused(data, tmp_path, capsys, flags, words):
    assert train(data, tmp_path / "run", *flags.split()) == 2
    assert words in capsys.readouterr().err


def test_pairs_are_no_batches_of_nodes(tmp_path, capsys):
    assert main(["--sampler", "seal", "--run-dir", str(tmp_path / "run")]) == 2
    assert "--sampler seal must be for --task links" in capsys.readouterr().err
