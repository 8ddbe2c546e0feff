"""`--task links --sampler seal` on two rings: links join near nodes of one ring."""

import jax
import numpy as np
import pytest
from flax import nnx
from refusals import command_refused as refused
from small_data import ring_edges, rings
from small_runs import close_arrays, of_ranks, result, resumed, trainer, words

import jgs
from jgs import Graph, InputError
from jgs.dist.communicators.comm import Alone
from jgs.models import DGCNN
from jgs.predict.__main__ import main as predict
from jgs.sampling import Seal
from jgs.train.evaluation.metrics import auc
from jgs.train.loop import folder
from jgs.train.tasks.seal import PairDraws, SealData, hold_out, is_link

train = trainer("""
    --task links --sampler seal --hidden 8 --layers 2 --batch-size 20 --epochs 2 --lr 5e-3
    --no-progress --test-share 0.2 --val-share 0.1 --fanouts -1 --checkpoint-every 5 --keep 9
""")


@pytest.fixture(scope="module")
def whole(saved, tmp_path_factory):
    run_dir = tmp_path_factory.mktemp("links") / "whole"
    train(saved(rings), run_dir)
    return run_dir


def test_the_run_folder_and_the_result(whole, tmp_path, capsys):
    pairs = tmp_path / "pairs.txt"
    found = result(whole)
    assert found["metric"] == "AUC"
    assert found["test_accuracy"] > 0.9
    rows = folder.read_metrics(whole, 2)
    assert rows[0]["train_loss"] > rows[1]["train_loss"]
    assert found["val_accuracy"] == max(row["val_accuracy"] for row in rows)
    argv = ("--run-dir", whole, "--out", tmp_path / "out.npy")
    pairs.write_text("1 2\n3 60\n")
    for flags, says in (
        ("", "--pairs"),
        ("--split val", "--split for one of --task links --sampler seal"),
        (f"--pairs {pairs}", "got 60 (number 2)"),
    ):
        refused(capsys, says, predict, words(*argv, flags))
    np.savetxt(pairs, wanted := np.array([[1, 2], [3, 40]]), fmt="%d")
    assert predict(words(*argv, "--pairs", pairs)) == 0
    table = np.load(tmp_path / "out.npy")
    np.testing.assert_array_equal(table["target"], [2, 40])
    told = jgs.open_run(whole).predict(wanted)
    np.testing.assert_allclose(table["probability"], told, rtol=1e-5)


def test_the_opened_run_tells_of_pairs(whole):
    run = jgs.open_run(whole)
    held, judged = SealData(run.config).held, result(whole)["test_accuracy"]
    told = run.predict(held.test)
    assert ((told > 0) & (told < 1)).all()
    assert auc(told, is_link(held.test)) == pytest.approx(judged, abs=1e-3)
    features = SealData(run.config).plain.features
    again = run.predict(held.test[:3], graph=held.graph, features=features)
    np.testing.assert_allclose(again, told[:3], rtol=1e-5)
    for wrong in ([0, 1], [[0, 60]]):
        with pytest.raises(InputError):
            run.predict(wrong)
    for other in (None, features[:5], features[:, :1]):
        with pytest.raises(InputError, match="features must be"):
            run.predict(held.test, graph=held.graph, features=other)


def test_a_resumed_run_is_the_same(whole, tmp_path):
    resumed(whole, tmp_path / "run", 18, "--prefetch 0")  # an epoch has 13 steps


@pytest.mark.slow  # a product of what ranks and pairs do
def test_two_ranks_learn_what_one_does(saved, whole, tmp_path):
    given = {"task": "links", "sampler": "seal", "fanouts": (-1,), "hidden": 8, "layers": 2}
    given |= {"batch_size": 20, "epochs": 2, "lr": 5e-3, "test_share": 0.2, "val_share": 0.1}
    two, job = of_ranks(tmp_path / "run", 2, dataset=saved(rings), **given)
    assert two["test_accuracy"] == pytest.approx(result(whole)["test_accuracy"], abs=0.02)
    close_arrays(tmp_path / "run", whole)
    assert job.loader.source.counters.rounds > 0


def test_what_is_held_out():
    src, dst = ring_edges()
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
    graph = Graph.from_edges(*ring_edges(), 60)
    pairs = np.array([[0, 1], [2, 40], [7, 8]], np.int32)
    draws = PairDraws(Alone(), graph, None, 2, Seal(), pairs)
    every = list(draws.source(pairs, jax.random.key(0), shuffle=False).drawn(0, 0))
    assert [one.batch.pair_labels.tolist() for (one,) in every] == [[1, 0], [1, 0]]
    model = DGCNN(0, 10, rngs=nnx.Rngs(0))
    for ((batch, x),) in every:
        assert x.shape == (batch.nodes.size, 0)
        assert np.isfinite(nnx.jit(lambda m, b, x: m(b, x))(model, batch, x)).all()
