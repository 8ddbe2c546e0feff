"""`--task links --temporal`: what a leak would tell, what the past tells; ranks, and resume."""

import json
import signal

import jax
import numpy as np
import pytest
from flax import nnx
from small_runs import arrays, same_run

import jgs
from jgs import Graph, InputError
from jgs.data import Dataset
from jgs.dist.communicators.mesh import Mesh
from jgs.partition.folder import write_parts
from jgs.predict.__main__ import main as predict
from jgs.train.__main__ import main
from jgs.train.config import Config
from jgs.train.evaluation import ranking
from jgs.train.loop import learner
from jgs.train.loop import training as loop
from jgs.train.tasks.task import open_job

N, E = 60, 1500
FLAGS = """
    --task links --temporal --hidden 16 --fanouts 6 --batch-size 60 --epochs 2 --lr 1e-2
    --no-progress --learned 0 --dropout 0 --eval-negatives 10 --sides dst
"""


def events(kind):
    """Messages between nodes, at most one at a time, whose partner is by chance.

    "leak": the features say nothing, and each message is answered at once (1 later) by an edge
    the other way, so that a model that saw the answer would know the link. "past": each node
    writes to the one that it had a message from last.
    """
    rng = np.random.default_rng(0)
    src, dst = rng.integers(0, N, (2, E))
    time = 10 * np.arange(E)
    if kind == "past":
        last: dict[int, int] = {}
        for i, node in enumerate(src.tolist()):
            dst[i] = last.get(node, dst[i])
            last[int(dst[i])] = node
    apart = src != dst
    src, dst, time = src[apart], dst[apart], time[apart]
    if kind == "leak":
        src, dst = np.concatenate([src, dst]), np.concatenate([dst, src])
        time = np.concatenate([time, time + 1])
        reply = np.arange(src.size) >= src.size // 2
        graph = Graph.from_edges(src, dst, N, edge_time=time, edge_columns={"reverse": reply})
    else:
        graph = Graph.from_edges(src, dst, N, edge_time=time)
    ids = np.arange(N)
    splits = {name: ids[i::3] for i, name in enumerate(("train", "val", "test"))}
    features = np.eye(N, dtype=np.float32)
    return Dataset.from_arrays(graph, features, ids % 2, splits, name="events")


@pytest.fixture(scope="module", params=["past", "leak"])
def data(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("data") / request.param
    events(request.param).save(folder)
    return folder


@pytest.fixture(scope="module")
def past(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data") / "past"
    events("past").save(folder)
    return folder


def train(data, run_dir, *more):
    return main([*map(str, (*FLAGS.split(), "--dataset", data, "--run-dir", run_dir, *more))])


def test_the_past_is_learned_and_the_future_is_not(data, tmp_path):
    """By chance a link is the best of 11 once in 11 times, and its MRR is 0.27."""
    more = ("--latest", "--epochs", 12, "--decoder", "bilinear", "--fanouts", 2)
    assert train(data, tmp_path / "run", *more) == 0
    score = json.loads((tmp_path / "run" / "result.json").read_text())["test_accuracy"]
    if data.name == "leak":
        assert 0.2 < score < 0.36
    else:
        assert score > 0.5


def test_a_run_is_resumed_within_an_epoch(past, tmp_path, monkeypatch):
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    more = ("--model", "tgat", "--heads", 2, "--time-width", 4, "--latest", "--by-time", 90)
    assert train(past, whole, *more) == 0
    step, calls = learner.ModelLearner.step, []

    def stopping(self, *args):
        calls.append(None)
        if len(calls) == 7:
            signal.raise_signal(signal.SIGINT)
        return step(self, *args)

    with monkeypatch.context() as patch:
        patch.setattr(learner.ModelLearner, "step", stopping)
        assert train(past, cut, *more) == 130
    assert train(past, cut, *more, "--resume") == 0
    same_run(cut, whole)


def test_any_number_of_ranks_learns_the_same(past, tmp_path):
    """Batches, negatives, samples and the metric; predictions are by the data's own ids."""
    folder = tmp_path / "parts"
    own = np.random.default_rng(2).permutation(N) % 4
    write_parts(folder, events("past"), own, 4, method="random")
    found = []
    for ranks in (1, 2):
        run_dir = tmp_path / f"{ranks}"
        config = Config(
            task="links", temporal=True, partition=str(folder), batch_size=60 // ranks,
            ranks=ranks, half_life=500, fanouts=(4, 3), hidden=8,
            epochs=2, progress=False, run_dir=str(run_dir), eval_negatives=5,
            eval_negatives_by="historical", learned=3,
        )  # fmt: skip
        comm = Mesh(jax.devices()[:ranks]) if ranks > 1 else None
        result = loop.run(config, lambda config, comm=comm: open_job(config, comm))
        found.append((arrays(run_dir), result))
    (one, best), (two, other) = found
    for mine, theirs in zip(one, two, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-2, atol=2e-3)
    assert other["test_accuracy"] == pytest.approx(best["test_accuracy"], abs=0.02)
    run = jgs.open_run(tmp_path / "1", partition=folder)
    pairs = np.stack(events("past").graph.edge_index(), axis=1)[:40]
    scores = run.scores(pairs, time=9_000)
    np.testing.assert_allclose(
        scores[7:9], run.scores(pairs[7:9], time=9_000), rtol=1e-4, atol=1e-5
    )
    assert not np.allclose(scores, run.scores(pairs, time=3_000))
    later = events("past").graph  # without what was after the time nothing changes
    past_of = later.edge_subgraph(np.asarray(later.edge_time) < 9_000)
    np.testing.assert_allclose(
        scores, run.scores(pairs, time=9_000, graph=past_of), rtol=1e-4, atol=1e-5
    )
    with pytest.raises(InputError, match="must have times: integers of 64 bits"):
        run.scores(pairs, time=np.uint64(2**63 + 5))


def test_any_number_of_ranks_judges_the_same(tmp_path):
    """One model's scores of links and negatives, in the order of the links."""
    folder = tmp_path / "parts"
    own = np.random.default_rng(2).permutation(N) % 4
    write_parts(folder, events("past"), own, 4, method="random")
    found = []
    for ranks in (1, 2):
        config = Config(
            task="links", temporal=True, partition=str(folder), batch_size=64 // ranks,
            ranks=ranks, fanouts=(4,), hidden=8, progress=False, eval_negatives=5, learned=3,
            eval_negatives_by="inductive",
        )  # fmt: skip
        job = open_job(config, Mesh(jax.devices()[:ranks]) if ranks > 1 else None)
        model = job.model(jax.random.key(1))
        job.start(model, jax.random.key(2), None)
        found.append((job.negatives["val"], *job.scores(nnx.state(model), "val")))
        job.close()
    (one, *scores), (two, *others) = found
    np.testing.assert_array_equal(one, two)
    assert len(np.unique(scores[0])) > 20
    for mine, theirs in zip(scores, others, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["random", "historical", "inductive"])
def test_each_relation_has_negatives_of_its_own(kind, tmp_path):
    """They are of its target's type, exist before the link, and are none of its links of now;
    those of the past are of its own past."""
    rng = np.random.default_rng(0)
    sizes = {"user": 6, "item": 20, "shop": 10}
    edges = {
        ("user", name, other): (rng.integers(0, 6, 300), rng.integers(0, sizes[other], 300))
        for name, other in (("buys", "item"), ("visits", "shop"))
    }
    times = {relation: rng.integers(0, 90, 300) for relation in edges}
    born = {"user": np.zeros(6), "item": 5 * np.arange(20), "shop": np.zeros(10)}
    born = {name: each.astype(np.int64) for name, each in born.items()}
    graph = Graph.from_relations(sizes, edges, edge_time=times, node_time=born)
    ids, born = np.arange(36), np.concatenate(list(born.values()))
    splits = {name: ids[i::3] for i, name in enumerate(("train", "val", "test"))}
    features = np.ones((36, 1), np.float32)
    Dataset.from_arrays(graph, features, ids % 2, splits, name="typed").save(tmp_path / "data")
    config = Config(
        task="links", temporal=True, dataset=str(tmp_path / "data"), batch_size=50,
        fanouts=(2,), progress=False, eval_negatives=4, eval_negatives_by=kind,
    )  # fmt: skip
    job = open_job(config)
    src, dst = graph.edge_index()
    every = np.stack([src, dst, graph.edge_type, graph.edge_time], axis=1)
    begin, of_past = job.targets.val["time"].min(), 0
    for split in ("val", "test"):
        links = job.targets._asdict()[split]
        for i, row in enumerate(job.negatives[split].tolist()):
            source, relation, time = (links[name][i] for name in ("src", "relation", "time"))
            (own,) = graph.schema.ranges(graph.schema.relations[relation][2])
            mine = every[(every[:, 0] == source) & (every[:, 2] == relation)]
            now = {*mine[mine[:, 3] == time, 1].tolist()}
            first: dict[int, int] = {}
            for _, target, _, when in mine.tolist():
                first[target] = min(when, first.get(target, when))
            low = begin if kind == "inductive" else -1
            past = {node for node, when in first.items() if low <= when < time} - now
            real = [node for node in row if node >= 0]
            assert len({*real}) == len(real) > 0
            assert {*real} <= {*own} - now
            assert (born[real] < time).all()
            if kind != "random":
                assert {*real[: len(past)]} <= past
                of_past += len(past) > 0
    assert kind == "random" or of_past > 5


def test_a_column_says_what_the_splits_are(tmp_path):
    rng = np.random.default_rng(0)
    src, time = rng.integers(0, 9, 300), np.arange(300)
    dst = (src + rng.integers(1, 9, 300)) % 9
    split = np.searchsorted([150, 280], time, side="right")
    for wrong in (False, True):
        split[7] = 2 * wrong
        graph = Graph.from_edges(
            src, dst, 9, edge_time=time, edge_columns={"split": split.astype(np.int8)}
        )
        splits = {name: np.array([i]) for i, name in enumerate(("train", "val", "test"))}
        Dataset.from_arrays(graph, np.eye(9), np.arange(9) % 2, splits, name="s").save(
            tmp_path / f"{wrong}"
        )
        config = Config(
            task="links", temporal=True, dataset=str(tmp_path / f"{wrong}"), batch_size=50,
            fanouts=(2,), progress=False,
        )  # fmt: skip
        if wrong:
            with pytest.raises(
                jgs.InputError, match="test of --temporal must be later than val"
            ):
                open_job(config)
            continue
        targets = open_job(config).targets
        assert [np.sort(each["time"]).tolist() for each in targets[:3]] == [
            [*range(150)], [*range(150, 280)], [*range(280, 300)]
        ]  # fmt: skip


def test_types_without_features_are_learned_and_judged(tmp_path):
    """A user buys the item that comes after the last one. Items have learned rows, and the
    scores that `open_run` gives are those that were judged."""
    rng, users, items = np.random.default_rng(0), 30, 12
    user = rng.integers(0, users, 1500)
    item, at = np.zeros(user.size, int), rng.integers(0, items, users)
    for i, node in enumerate(user):
        at[node] = (at[node] + 1) % items if rng.random() < 0.9 else rng.integers(items)
        item[i] = at[node]
    buys = ("user", "buys", "item")
    graph = Graph.from_relations(
        {"user": users, "item": items}, {buys: (user, item)}, both_ways=True,
        edge_time={buys: 10 * np.arange(user.size)},
    )  # fmt: skip
    features = {"user": np.ones((users, 2), np.float32)}
    splits = {name: np.array([i]) for i, name in enumerate(("train", "val", "test"))}
    labels = {"user": np.arange(users) % 2}
    Dataset.from_arrays(graph, features, labels, splits, name="t").save(tmp_path / "data")
    more = ("--model", "rsage", "--fanouts", "*=1", "--latest", "--epochs", 12, "--lr", 2e-2)
    more += ("--decoder", "mlp", "--combine", "concat", "--relation", "buys")
    assert train(tmp_path / "data", tmp_path / "run", *more) == 0
    score = json.loads((tmp_path / "run" / "result.json").read_text())["test_accuracy"]
    assert score > 0.6  # 0.29 by chance
    run = jgs.open_run(tmp_path / "run")
    job = open_job(run.config)
    negatives, links = job.negatives["test"], job.targets.test
    pairs = np.stack([np.repeat(links["src"], 10), negatives.ravel()], axis=1)
    ends = np.stack([links["src"], links["dst"]], axis=1)
    found = ranking.ranks(
        run.scores(ends, time=links["time"]),
        run.scores(pairs, time=np.repeat(links["time"], 10)).reshape(-1, 10),
        negatives >= 0,
    )
    assert ranking.mrr(found) == pytest.approx(score, abs=1e-4)


def test_the_command_predicts_and_refuses_in_one_line(past, tmp_path, capsys):
    run_dir, pairs, out = tmp_path / "run", tmp_path / "pairs.txt", tmp_path / "out.csv"
    assert train(past, run_dir, "--epochs", 1) == 0
    pairs.write_text("1 2\n3 4\n")
    argv = ["--run-dir", str(run_dir), "--pairs", str(pairs), "--out", str(out)]
    assert predict([*argv, "--at", "500"]) == 0
    at_once = out.read_text().splitlines()
    assert len(at_once) == 3
    pairs.write_text("1 2 500\n3 4 500\n")
    assert predict(argv) == 0
    assert out.read_text().splitlines() == [
        ",".join([*line.split(",")[:2], time, line.split(",")[2]])
        for line, time in zip(at_once, ("time", "500", "500"), strict=True)
    ]
    pairs.write_text("1 2\n")
    capsys.readouterr()
    untimed = tmp_path / "untimed"
    graph = Graph.from_edges([0, 1, 2, 3], [1, 2, 3, 0], 4)
    splits = {name: np.array([i]) for i, name in enumerate(("train", "val", "test"))}
    features = np.ones((4, 1), np.float32)
    Dataset.from_arrays(graph, features, np.arange(4) % 2, splits, name="untimed").save(untimed)
    for said, call in {
        "two node ids and a time, without --at": lambda: predict(argv),
        "--temporal must have edges with times": lambda: train(untimed, tmp_path / "a"),
        "must split the links by time": lambda: train(
            past, tmp_path / "a", "--split", "random"
        ),
        "must have a sampler that takes cutoffs": lambda: train(
            past, tmp_path / "a", "--sampler", "shadow"
        ),
        "must be one of mrr, ap, auc, hits": lambda: train(
            past, tmp_path / "a", "--metric", "recall"
        ),
        "what sees times must be for": lambda: main(
            ["--model", "tgat", "--run-dir", str(tmp_path / "a")]
        ),
        "--shared": lambda: train(past, tmp_path / "a", "--shared"),
        "reads no degrees": lambda: train(past, tmp_path / "a", "--model", "gcn"),
        "that no later link decides": lambda: train(
            past, tmp_path / "a", "--negatives-by", "degree"
        ),
        "at least --metric-k negatives, 50; got --eval-negatives 10": lambda: train(
            past, tmp_path / "a", "--metric", "hits"
        ),
    }.items():
        assert call() == 2
        lines = capsys.readouterr().err.splitlines()
        assert said in lines[-1]
        assert len(lines) <= 2
