"""`--task links` and `--task edges` on communities: most edges are within one."""

import json
import signal

import jax
import numpy as np
import pytest
from small_runs import arrays, same_run

import jgs
from jgs import Graph
from jgs.data import Dataset
from jgs.dist.communicators.mesh import Mesh
from jgs.partition.folder import write_parts
from jgs.predict.__main__ import main as predict
from jgs.train.__main__ import main
from jgs.train.config import Config
from jgs.train.loop import learner
from jgs.train.loop import training as loop
from jgs.train.tasks.task import open_job

N, GROUPS = 60, 6
FLAGS = """
    --hidden 8 --fanouts 4 4 --batch-size 40 --epochs 2 --lr 2e-2 --no-progress --learned 4
    --dropout 0.2
"""


def communities(directed=False):
    """A data set whose edges have a label, a time and a split, and parallel copies."""
    rng = np.random.default_rng(0)
    src = rng.integers(0, N, 300)
    dst = np.where(rng.random(300) < 0.9, src // 10 * 10 + rng.integers(0, 10, 300), src[::-1])
    src, dst = np.append(src, src[:9]), np.append(dst, dst[:9])  # copies
    split = rng.choice([-1, 0, 1, 2], src.size, p=[0.1, 0.6, 0.15, 0.15]).astype(np.int8)
    columns = {
        "label": (src // 20).astype(np.int32),
        "rating": (src % 10 - dst % 10).astype(np.float32),
        "split": split,
    }
    if not directed:
        src, dst = np.concatenate([src, dst]), np.concatenate([dst, src])
        columns = {name: np.tile(column, 2) for name, column in columns.items()}
    graph = Graph.from_edges(src, dst, N, edge_columns=columns)
    features = rng.normal(size=(N, 3)).astype(np.float32)
    ids = np.arange(N)
    splits = {name: ids[i::3] for i, name in enumerate(("train", "val", "test"))}
    return Dataset.from_arrays(graph, features, ids // 10 % 2, splits, name="communities")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data") / "communities"
    communities().save(folder)
    return folder


def train(data, run_dir, *more):
    flags = [*FLAGS.split(), "--dataset", data, "--run-dir", run_dir, *more]
    return main([str(each) for each in flags])


@pytest.fixture(scope="module")
def whole(data, tmp_path_factory):
    run_dir = tmp_path_factory.mktemp("links") / "whole"
    assert train(data, run_dir, "--task", "links", "--split", "random") == 0
    return run_dir


def test_the_run_and_what_it_tells(whole, tmp_path, capsys):
    result = json.loads((whole / "result.json").read_text())
    assert result["metric"] == "AUC"
    assert result["test_accuracy"] > 0.6
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
    out, listed = tmp_path / "out.npy", tmp_path / "pairs.txt"
    np.savetxt(listed, pairs, fmt="%d")
    for flags, column, wanted in (
        (["--pairs", listed], "probability", run.predict(pairs)),
        (["--top-k", 3, "--new-only"], "target", new.ravel()),
        (["--embed"], "embedding", run.embed()),
    ):
        argv = ["--run-dir", whole, "--out", out, "--no-progress", *flags]
        assert predict([str(word) for word in argv]) == 0
        np.testing.assert_allclose(np.load(out)[column], wanted, rtol=1e-5)
    for flags, said in (
        ([], "must be asked for one of --embed or --pairs or --top-k"),
        (["--embed", "--top-k", 2], "got --embed and --top-k"),
        (["--top-k", 0], "k must be an int of at least 1"),
        (["--split", "val"], "--split for one of --task links --sampler neighbors"),
    ):
        argv = ["--run-dir", whole, "--out", out, "--no-progress", *flags]
        assert predict([str(word) for word in argv]) == 2
        assert said in capsys.readouterr().err


def blocks_of(job):
    """The edges `[2, n]` of all blocks of each batch of an epoch, and the batch's items."""
    for batch, _ in job.loader:
        found = []
        nodes = np.asarray(batch.nodes)
        for i, block in enumerate(batch.blocks):
            indptr = np.asarray(block.indptr)
            target = np.repeat(np.arange(indptr.size - 1), np.diff(indptr))
            source = np.asarray(block.indices)[: target.size]
            direct = batch.direct_inputs and i == 0
            found.append(np.stack([source if direct else nodes[source], nodes[target]]))
        yield np.concatenate(found, axis=1), {n: np.asarray(a) for n, a in batch.items.items()}


@pytest.mark.parametrize("split", ["random", "column"])
def test_no_edge_to_predict_is_a_message(data, split):
    """Neither validation's and the test's nor the batch's own."""
    config = Config(
        task="links", dataset=data, split=split, batch_size=40, fanouts=(-1, -1), learned=0
    )
    job = open_job(config)
    job.start(job.model(jax.random.key(0)), jax.random.key(1), None)
    job.loader._prefetch = 0
    held = [np.stack([part["src"], part["dst"]]) for part in job.targets[1:3]]
    hidden = {tuple(sorted(pair)) for pair in np.concatenate(held, axis=1).T.tolist()}
    if split == "column":  # copies that are messages by the table's own split
        messages = np.stack(job.targets.messages[0].edge_index())
        hidden -= {tuple(sorted(pair)) for pair in messages.T.tolist()}
    assert len(hidden) > 20
    seen = 0
    for edges, items in blocks_of(job):
        real = items["src"] < N
        own = {
            tuple(sorted(pair))
            for pair in zip(items["src"][real], items["dst"][real], strict=True)
        }
        used = {tuple(sorted(pair)) for pair in edges.T.tolist()}
        assert not used & (hidden | own)
        seen += len(used)
    assert seen > 500
    job.close()


def test_resumed_after_an_interruption_it_is_the_same_run(data, whole, tmp_path, monkeypatch):
    made, calls = learner.ModelLearner.step, []

    def interrupted(self, *arguments):
        calls.append(1)
        if len(calls) == 8:
            signal.raise_signal(signal.SIGTERM)
        made(self, *arguments)

    monkeypatch.setattr(learner.ModelLearner, "step", interrupted)
    flags = ("--task", "links", "--split", "random", "--checkpoint-every", 2)
    assert train(data, tmp_path / "run", *flags) == 143
    monkeypatch.undo()
    assert main(["--resume", "--run-dir", str(tmp_path / "run"), "--prefetch", "0"]) == 0
    same_run(tmp_path / "run", whole)


@pytest.mark.parametrize(
    ("flags", "metric"),
    [
        ("--metric mrr --eval-negatives 7 --decoder mlp --loss bpr --val-messages", "MRR"),
        ("--metric recall --metric-k 9 --loss softmax --shared --num-negatives 20", "Recall@9"),
        ("--metric hits --metric-k 5 --decoder cosine --sampler labor --model gcn", "Hits@5"),
        ("--metric ndcg --split random --filtered --loss margin --sides dst", "NDCG@50"),
        ("--metric ap --split column --decoder bilinear --negatives-by degree", "AP"),
    ],
)
def test_other_ways(data, tmp_path, flags, metric):
    assert train(data, tmp_path / "run", "--task", "links", *flags.split()) == 0
    result = json.loads((tmp_path / "run/result.json").read_text())
    assert result["metric"] == metric
    assert 0 < result["test_accuracy"] <= 1


def test_what_edges_are(data, tmp_path):
    graph = communities().graph
    for flags, metric in (("", "accuracy"), ("--label rating --metric mae", "MAE")):
        run_dir = tmp_path / metric
        flags = ["--task", "edges", "--epochs", 6, "--combine", "concat", *flags.split()]
        assert train(data, run_dir, *flags) == 0
        result = json.loads((run_dir / "result.json").read_text())
        assert result["metric"] == metric
        run = jgs.open_run(run_dir)
        pairs = np.stack(graph.edge_index(), axis=1)
        told = run.predict(pairs)
        train_loss = run.metrics["train_loss"]
        assert train_loss[-1] < train_loss[0]
        column = np.asarray(graph.edge_columns["label" if metric == "accuracy" else "rating"])
        if metric == "accuracy":
            assert (told.prediction == column).mean() > 0.5  # by chance a third
            assert result["test_accuracy"] > 0.5
        else:
            assert told.shape == (graph.num_edges,)
            assert result["val_accuracy"] == run.metrics["val_accuracy"].min()


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ("--task links --metric rmse", "--metric of --task links must be one of auc"),
        ("--task links --metric hits --metric-k 500", "at least --metric-k negatives, 500"),
        ("--task links --decoder distmult", "must be for a graph with relations"),
        ("--task links --relation buys", "--relation must be for a graph with relations"),
        ("--task links --split time", "--split time must be for edges with times"),
        ("--task links --sampler saint", "must have a sampler that is given its seeds"),
        ("--task links --test-share 0.9 --val-share 0.2 --split random", "split train"),
        ("--task links --batch-size 4000", "must not exceed the number of edges to train on"),
        ("--task edges --label colour", "the edges must have a column colour"),
        ("--task edges --decoder dot", "--task edges must have a decoder with several outputs"),
        ("--task edges --metric rmse", "--metric rmse must be for labels that are numbers"),
        ("--task edges --negatives-by degree", "--negatives-by must be for --task links"),
        ("--loss bpr", "--loss must be one of cross_entropy, focal"),
    ],
)
def test_what_is_refused(data, tmp_path, capsys, flags, words):
    argv = [
        "--no-progress",
        "--batch-size",
        "40",
        "--dataset",
        str(data),
        "--run-dir",
        str(tmp_path / "run"),
    ]
    assert main([*argv, *flags.split()]) == 2
    assert words in capsys.readouterr().err


def test_a_graph_without_any_pair_to_judge_by(tmp_path, capsys):
    full = np.array(np.nonzero(~np.eye(8, dtype=bool)))
    np.savez(tmp_path / "full.npz", edge_index=full, num_nodes=8)
    argv = ["--task", "links", "--dataset", str(tmp_path / "full.npz"), "--batch-size", "2"]
    argv += ["--no-progress", "--run-dir", str(tmp_path / "run")]
    assert main(argv) == 2
    assert "as many pairs without an edge as links to judge" in capsys.readouterr().err
    assert main([*argv, "--metric", "mrr"]) == 2
    assert (
        "some link must have a node that its source has no edge to" in capsys.readouterr().err
    )


@pytest.fixture(scope="module")
def parts(data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("parts") / "six"
    rng = np.random.default_rng(1)
    write_parts(folder, communities(), rng.permutation(N) % 6, 6, method="random")
    return folder


@pytest.mark.parametrize("task", ["links", "edges"])
def test_any_number_of_ranks_learns_the_same(parts, tmp_path, task):
    """One rank with all parts, two in vanilla and three in hybrid mode."""
    options = {"links": {"split": "random", "sides": "dst", "metric": "mrr"}, "edges": {}}
    found = []
    for ranks, mode in ((1, "hybrid"), (2, "vanilla"), (3, "hybrid")):
        run_dir = str(tmp_path / f"{ranks}")
        given = {"task": task, "partition": parts, "batch_size": 60 // ranks, "ranks": ranks}
        given |= {"mode": mode, "learned": 4, "hidden": 8, "dropout": 0.2, "fanouts": (4, 4)}
        given |= {"epochs": 2, "lr": 2e-2, "progress": False, "run_dir": run_dir}
        comm = Mesh(jax.devices()[:ranks]) if ranks > 1 else None
        config = Config(**given, **options[task])
        result = loop.run(config, lambda config, comm=comm: open_job(config, comm))
        found.append((arrays(tmp_path / f"{ranks}"), result))
    (one, best), *others = found
    for own, result in others:
        for mine, theirs in zip(own, one, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-2, atol=2e-3)
        assert result["test_accuracy"] == pytest.approx(best["test_accuracy"], abs=0.02)
    run = jgs.open_run(tmp_path / "3", partition=parts)
    src, dst = communities().graph.edge_index()
    if task == "links":  # ids are the data set's, not those of the parts
        targets, _ = run.recommend(np.arange(N), 5)
        near = targets // 10 == np.arange(N)[:, None] // 10
        assert near.mean() > 0.2  # by chance 9 in 59
        best = [np.argsort(-run.embed() @ row)[:6] for row in run.embed()]
        assert all({*own} <= {*six} for own, six in zip(targets.tolist(), best, strict=True))
    else:
        told = run.predict(np.stack([src, dst], axis=1)).prediction
        assert (told == src // 20).mean() > 0.4


def test_a_table_of_users_and_items(tmp_path):
    """Ratings of items by users, whose names are text: learned, and asked back by these names.
    With tags as well there are two relations, and a decoder that tells them apart."""
    rng = np.random.default_rng(0)
    user, item = rng.integers(0, 20, 300), rng.integers(0, 15, 300)
    lines = [f"u{u},i{i},{1 + (u + i) % 2 * 4}.5" for u, i in zip(user, item, strict=True)]
    table, out, pairs = tmp_path / "ratings.csv", tmp_path / "out.csv", tmp_path / "pairs.txt"
    table.write_text("\n".join(["src,dst,label", *lines]))
    typed = ("--data-options", "src_type=user", "dst_type=item")
    edges, links = tmp_path / "edges", tmp_path / "links"
    assert train(table, edges, *typed, "--task", "edges", "--epochs", 20) == 0
    result = json.loads((edges / "result.json").read_text())
    assert result["metric"] == "RMSE"
    assert result["val_accuracy"] < 1.7  # the mean of both ratings is 2 away
    pairs.write_text("user:u1\titem:i3\nuser:u2\titem:i3\n")
    argv = ["--run-dir", str(edges), "--out", str(out), "--pairs", str(pairs), "--no-progress"]
    assert predict(argv) == 0
    head, *rows = out.read_text().splitlines()
    assert head == "source,target,value"
    assert [row.rpartition(",")[0] for row in rows] == ["user:u1,item:i3", "user:u2,item:i3"]
    flags = (*typed, "--task", "links", "--metric", "recall", "--metric-k", 5, "--sides", "dst")
    assert train(table, links, *flags) == 0
    run = jgs.open_run(links)
    names = run.node_ids[np.arange(run.num_nodes())]
    users = np.flatnonzero([name.startswith("user") for name in names])
    best, _ = run.recommend(users, 4)
    assert all(name.startswith("item") for name in names[best.ravel()])


@pytest.mark.parametrize("metric", ["ap", "mrr"])
def test_several_relations(tmp_path, metric):
    rng = np.random.default_rng(0)
    user, item, shop = (
        rng.integers(0, 30, 200),
        rng.integers(0, 20, 200),
        rng.integers(0, 5, 200),
    )
    archive = {"num_user": 30, "num_item": 20, "num_shop": 5, "user_item": [user, item]}
    archive |= {"user_shop": [user, shop], "user_labels": np.zeros(30, int)}
    archive |= {"user_features": np.eye(30), "train_idx": [0], "val_idx": [1], "test_idx": [2]}
    np.savez(tmp_path / "shops.npz", **archive)
    flags = ("--task", "links", "--decoder", "complex", "--metric", metric)
    assert train(tmp_path / "shops.npz", tmp_path / "run", *flags) == 0
    config = Config(task="links", dataset=tmp_path / "shops.npz", metric=metric, batch_size=20)
    job = open_job(config)
    made = job.judged["test"]
    assert set(made.relation.tolist()) == {0, 1}
    kinds = job.data.graphs[0].schema.numbers
    other = made.other_relation.reshape(-1)
    ends = kinds(made.other_src.reshape(-1)), kinds(made.other_dst.reshape(-1))
    assert set(zip(other.tolist(), *(e.tolist() for e in ends), strict=True)) == {
        (0, 0, 1),
        (1, 0, 2),
    }
