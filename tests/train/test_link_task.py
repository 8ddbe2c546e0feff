"""`--task links` and `--task edges` on communities: most edges are within one."""

import numpy as np
import pytest
from cases import cases, rarely
from refusals import command_refused as refused
from small_data import communities
from small_runs import drawn_edges, result, resumed, started, trainer, unordered, words

import jgs
from jgs.predict.__main__ import main as predict

N = 60
train = trainer("""
    --hidden 8 --fanouts 4 4 --batch-size 40 --epochs 2 --lr 2e-2 --no-progress --learned 4
    --dropout 0.2
""")


@pytest.fixture(scope="module")
def data(saved):
    return saved(communities)


@pytest.fixture(scope="module")
def whole(data, tmp_path_factory):
    run_dir = tmp_path_factory.mktemp("links") / "whole"
    train(
        data, run_dir, "--task links --decoder dot --split random --checkpoint-every 3 --keep 9"
    )
    return run_dir


def test_the_run_and_what_it_tells(whole, tmp_path, capsys):
    found = result(whole)
    assert found["metric"] == "AUC"
    assert found["test_accuracy"] > 0.6
    run, every = jgs.open_run(whole), np.arange(N)
    assert run.embed().shape == (N, 8)
    pairs = np.stack([every, every[::-1]], axis=1)
    scores = (run.embed(pairs[:, 0]) * run.embed(pairs[:, 1])).sum(axis=1)
    np.testing.assert_allclose(run.scores(pairs), scores, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(run.predict(pairs), 1 / (1 + np.exp(-scores)), rtol=1e-4)
    best, value = run.recommend([3, 4], 5)
    table = run.embed() @ run.embed([3, 4]).T
    for query, row, own in zip((3, 4), best, table.T, strict=True):
        own[query] = -np.inf
        assert row.tolist() == np.argsort(-own, kind="stable")[:5].tolist()
    np.testing.assert_allclose(value[0], np.sort(table[:, 0])[::-1][:5], rtol=1e-4)
    graph = communities().graph
    src, dst = graph.edge_index()
    new, _ = run.recommend(every, 3, new_only=True)
    assert not set(zip(every.repeat(3), new.ravel(), strict=True)) & set(
        zip(src, dst, strict=True)
    )
    argv = ("--run-dir", whole, "--out", tmp_path / "out.npy", "--no-progress")
    assert predict(words(*argv, "--embed")) == 0
    np.testing.assert_allclose(np.load(argv[3])["embedding"], run.embed(), rtol=1e-5)
    for flags, says in (
        ("", "must be asked for one of --embed or --pairs or --top-k"),
        ("--embed --top-k 2", "got --embed and --top-k"),
        ("--top-k 0", "k must be an int of at least 1"),
        ("--split val", "--split for one of --task links --sampler neighbors"),
    ):
        refused(capsys, says, predict, words(*argv, flags))


@pytest.mark.parametrize("split", ["random", "column"])
def test_no_edge_to_predict_is_a_message(data, split):
    """Neither validation's and the test's nor the batch's own."""
    given = {"task": "links", "split": split, "fanouts": (-1, -1), "learned": 0}
    job, _ = started(dataset=data, batch_size=40, prefetch=0, **given)
    hidden = {pair for part in job.targets[1:3] for pair in unordered(part["src"], part["dst"])}
    if split == "column":  # copies that are messages by the table's own split
        hidden -= unordered(*job.targets.messages[0].edge_index())
    assert len(hidden) > 20
    seen = 0
    for batch, _ in job.loader:
        src, dst = (np.asarray(batch.items[name]) for name in ("src", "dst"))
        used = unordered(*drawn_edges(batch)[1:])
        assert not used & (hidden | unordered(src[src < N], dst[src < N]))
        seen += len(used)
    assert seen > 500
    job.close()


def test_a_resumed_run_is_the_same(whole, tmp_path):
    """Within the second epoch."""
    resumed(whole, tmp_path / "run", 8, "--prefetch 0")


WAYS = [
    ("--metric mrr --eval-negatives 7 --decoder mlp --loss bpr --val-messages", "MRR"),
    (
        "--metric recall --metric-k 9 --loss softmax --shared --num-negatives 20 "
        "--decoder cosine --sampler labor --model gcn --split random",
        "Recall@9",
    ),
    (
        "--metric hits --metric-k 20 --filtered --loss margin --sides dst "
        "--decoder bilinear --negatives-by degree",
        "Hits@20",
    ),
]


@cases("flags, metric", *rarely(WAYS, 1))
def test_other_ways(data, tmp_path, flags, metric):
    found = train(data, tmp_path / "run", "--task links --epochs 1", flags)
    assert found["metric"] == metric
    assert 0 < found["test_accuracy"] <= 1


def test_what_edges_are(data, tmp_path):
    graph = communities().graph
    for flags, metric in (("", "accuracy"), ("--label rating --metric mae", "MAE")):
        run_dir = tmp_path / metric
        found = train(data, run_dir, "--task edges --epochs 6 --combine concat", flags)
        assert found["metric"] == metric
        run = jgs.open_run(run_dir)
        pairs = np.stack(graph.edge_index(), axis=1)
        told = run.predict(pairs)
        train_loss = run.metrics["train_loss"]
        assert train_loss[-1] < train_loss[0]
        column = np.asarray(graph.edge_columns["label" if metric == "accuracy" else "rating"])
        if metric == "accuracy":
            assert (told.prediction == column).mean() > 0.5  # by chance a third
            assert found["test_accuracy"] > 0.5
        else:
            assert told.shape == (graph.num_edges,)
            assert found["val_accuracy"] == run.metrics["val_accuracy"].min()
