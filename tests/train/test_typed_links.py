"""`--task links` and `--task edges` with models of typed graphs: features of other widths for
each type, learned rows for shops, and edges that are drawn by relation."""

import json

import jax
import numpy as np
import pytest
import scipy.sparse

import jgs
from jgs import Graph
from jgs.data import Dataset
from jgs.dist.communicators.mesh import Mesh
from jgs.ops import gather
from jgs.partition.folder import write_parts
from jgs.predict.__main__ import main as predict
from jgs.sampling import sample_neighbors
from jgs.train.__main__ import main
from jgs.train.config import Config
from jgs.train.loop import training as loop
from jgs.train.tasks.task import open_job

COUNTS = {"user": 40, "item": 60, "shop": 6}
ITEMS = range(40, 100)
FLAGS = """
    --relation buys --hidden 8 --fanouts *=4 *=4 --batch-size 40 --epochs 3 --lr 2e-2
    --no-progress
"""


def shops():
    """Users buy most items from those of their own group. They look at what they buy, too."""
    rng = np.random.default_rng(0)
    user = rng.integers(0, 40, 300)
    item = np.where(
        rng.random(300) < 0.9, user // 10 * 15 + rng.integers(0, 15, 300), user[::-1]
    )
    edges = {
        ("user", "buys", "item"): (user, item),
        ("user", "views", "item"): (
            np.r_[user[::3], user[:50]],
            np.r_[item[::3], item[99:149]],
        ),
        ("item", "at", "shop"): (np.arange(60), rng.integers(0, 6, 60)),
    }
    label = {"buys": item // 30, "views": np.full(150, -1), "at": np.full(60, -1)}
    columns = {triple: {"label": label[triple[1]].astype(np.int32)} for triple in edges}
    graph = Graph.from_relations(COUNTS, edges, both_ways=True, edge_columns=columns)
    features = {
        "user": np.eye(4)[np.arange(40) // 10] + rng.normal(size=(40, 4)) / 2,
        "item": scipy.sparse.random(60, 30, 0.2, "csr", np.float32, rng),
    }
    splits = {"train": [0, 1], "val": [2], "test": [3]}
    labels = {"user": np.arange(40) // 10}
    return Dataset.from_arrays(graph, features, labels, splits, name="shops")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data") / "shops"
    shops().save(folder)
    return folder


def train(data, run_dir, *more):
    flags = [*FLAGS.split(), "--dataset", data, "--run-dir", run_dir, *more]
    return main([str(each) for each in flags])


def unordered(pairs):
    return {tuple(sorted(pair)) for pair in np.asarray(pairs).T.tolist()}


@pytest.mark.parametrize(
    ("sampler", "fanout"), [("neighbors", -1), ("neighbors", 3), ("labor", 3)]
)
def test_no_edge_to_predict_is_a_message(data, sampler, fanout):
    """No block has an edge between the ends of a held-out link, or of one of the batch: not the
    link, nor its reverse, nor an edge of another relation. All other edges are read."""
    each = (f"*={fanout}",) * 2
    config = Config(
        task="links",
        model="rgcn",
        dataset=data,
        relation="buys",
        sampler=sampler,
        fanouts=each,
        batch_size=40,
        num_negatives=2,
    )
    job = open_job(config)
    job.start(job.model(jax.random.key(0)), jax.random.key(1), None)
    messages, whole = job.targets.messages[0], shops().graph
    assert messages.schema == whole.schema
    assert job.targets.types == ("user", "item")
    held = [np.stack([part["src"], part["dst"]]) for part in job.targets[1:3]]
    hidden = unordered(np.concatenate(held, axis=1))
    types, ends = np.asarray(whole.edge_type), np.stack(whole.edge_index())
    between = np.array([tuple(sorted(pair)) in hidden for pair in ends.T.tolist()])
    assert {*types[between].tolist()} == {0, 1, 3, 4}  # buys, views and both reverses
    assert messages.num_edges == (~between).sum()
    kept, seen = (
        {*zip(types[~between].tolist(), *ends[:, ~between].tolist(), strict=True)},
        set(),
    )
    for batch, _ in job.loader:
        nodes, items = np.asarray(batch.nodes), batch.items
        own = np.stack([np.asarray(items["src"]), np.asarray(items["dst"])])
        own = unordered(own[:, own[0] < 106])
        for block in batch.blocks:
            indptr = np.asarray(block.indptr)
            target = nodes[np.repeat(np.arange(indptr.size - 1), np.diff(indptr))]
            source = nodes[np.asarray(block.indices)[: target.size]]
            relation = np.asarray(block.edge_type)[: target.size]
            assert not unordered([source, target]) & (hidden | own)
            seen |= {*zip(relation.tolist(), source.tolist(), target.tolist(), strict=True)}
    job.close()
    assert seen <= kept
    assert {relation for relation, *_ in seen} == set(range(6))
    if fanout == -1:
        assert seen == kept


@pytest.mark.parametrize(
    ("model", "more", "metric"),
    [
        ("rgcn", "--metric mrr --eval-negatives 30", "MRR"),
        ("rsage", "--metric recall --metric-k 9 --sides dst --val-messages", "Recall@9"),
        ("hgt", "--sampler labor --decoder distmult --heads 2", "AUC"),
    ],
)
def test_a_run_and_what_it_tells(data, tmp_path, model, more, metric):
    run_dir, out = tmp_path / "run", tmp_path / "out.npy"
    assert train(data, run_dir, "--task", "links", "--model", model, *more.split()) == 0
    result = json.loads((run_dir / "result.json").read_text())
    assert result["metric"] == metric
    run = jgs.open_run(run_dir)
    assert run.model.encoder.inputs.in_features == (4, 30, 0)
    assert run.model.encoder.inputs.has_embedding
    # Rows are those of a batch of all neighbours, without the edges that were held out.
    targets, every = run._data[1], np.arange(106, dtype=np.int32)
    graph = targets.at_test[0]
    assert (graph.num_edges > targets.messages[0].num_edges) == ("--val-messages" in more)
    key = jax.random.key(0)
    batch = sample_neighbors(key, graph, every, (-1, -1), edges=("type",))
    rows = run.model.encoder(batch, gather(shops().features, batch.nodes))
    np.testing.assert_allclose(run.embed(), rows, rtol=1e-4, atol=1e-5)
    given = run.embed(graph=graph, features=shops().features)
    np.testing.assert_allclose(given, rows, rtol=1e-4, atol=1e-5)
    pairs = np.stack([np.arange(40), np.arange(99, 59, -1)], axis=1)
    src, dst = rows[pairs[:, 0]], rows[pairs[:, 1]]
    scores = run.model.decoder(src, dst, np.zeros(40, np.int32))
    np.testing.assert_allclose(run.predict(pairs), jax.nn.sigmoid(scores), rtol=1e-4)
    best, values = run.recommend([3, 4], 60)
    for node, own, value in zip((3, 4), best, values, strict=True):
        assert sorted(own.tolist()) == [*ITEMS]  # of the relation's target type
        asked = np.stack([np.full(60, node), own], axis=1)
        np.testing.assert_allclose(run.scores(asked), value, rtol=1e-4, atol=1e-5)
        assert (np.diff(value) <= 0).all()
    argv = ["--run-dir", run_dir, "--out", out, "--no-progress", "--top-k", 3, "--new-only"]
    assert predict([str(word) for word in [*argv, "--node-type", "user"]]) == 0
    new, _ = run.recommend(np.arange(40), 3, new_only=True)
    np.testing.assert_array_equal(np.load(out)["target"], new.ravel() - ITEMS.start)


def test_the_model_learns(data, tmp_path):
    """Of 9 in 10 links an item of the user's own group is the target, a quarter of all."""
    flags = """
        --task links --model hgt --sides dst --metric mrr --eval-negatives 30 --lr 1e-2
        --epochs 15
    """
    assert train(data, tmp_path / "run", *flags.split()) == 0
    result = json.loads((tmp_path / "run/result.json").read_text())
    assert result["test_accuracy"] > 0.2  # at random 0.13
    run = jgs.open_run(tmp_path / "run")
    best, _ = run.recommend(np.arange(40), 5)
    assert ((best - ITEMS.start) // 15 == np.arange(40)[:, None] // 10).mean() > 0.4


def test_labels_of_the_edges_of_a_relation(data, tmp_path):
    flags = "--task edges --model rsage --epochs 12"
    assert train(data, tmp_path / "run", *flags.split()) == 0
    run, (user, item) = jgs.open_run(tmp_path / "run"), shops().graph.edge_index()
    buys = np.asarray(shops().graph.edge_type) == 0
    told = run.predict(np.stack([user[buys], item[buys]], axis=1)).prediction
    assert (told == (item[buys] - ITEMS.start) // 30).mean() > 0.8  # by chance a half


def test_triples_without_features(tmp_path):
    """As R-GCN was first used for links: all rows are learned, and a decoder of relations."""
    rng = np.random.default_rng(0)
    head, relation = rng.integers(0, 40, 600), rng.integers(0, 3, 600)
    tail = (head + relation) % 4 + 4 * rng.integers(0, 10, 600)
    lines = [f"n{h}\tr{r}\tn{t}" for h, r, t in zip(head, relation, tail, strict=True)]
    for name, some in (
        ("train", lines[:500]),
        ("valid", lines[500:550]),
        ("test", lines[550:]),
    ):
        (tmp_path / f"{name}.txt").write_text("\n".join(some) + "\n")
    flags = "--task links --model rgcn --decoder distmult --metric mrr --fanouts *=3 5"
    argv = [*flags.split(), "--hidden", "8", "--batch-size", "100", "--epochs", "3"]
    argv += ["--no-progress", "--dataset", str(tmp_path), "--run-dir", str(tmp_path / "run")]
    assert main(argv) == 0
    run = jgs.open_run(tmp_path / "run")
    assert run.metrics["train_loss"][-1] < run.metrics["train_loss"][0]
    best, _ = run.recommend([0, 1], 4, relation="r1", new_only=True)
    assert best.shape == (2, 4)


def test_learned_rows_beside_those_of_the_model_are_refused(data, tmp_path, capsys):
    for given, said in (
        ("--model rgcn --learned 4", "--learned must be 0 for a model of typed graphs"),
        ("--model sage", "must have equally many for a model that knows no types"),
    ):
        assert train(data, tmp_path / "run", "--task", "links", *given.split()) == 2
        error = capsys.readouterr().err
        assert said in error
        assert len(error.strip().splitlines()) == 1


def test_any_number_of_ranks_learns_the_same(tmp_path):
    rng, parts = np.random.default_rng(1), tmp_path / "parts"
    write_parts(parts, shops(), rng.permutation(106) % 2, 2, method="random")
    found = []
    for ranks, mode in ((1, "hybrid"), (2, "hybrid"), (2, "vanilla")):
        run_dir = tmp_path / f"{ranks}-{mode}"
        given = {"partition": parts, "batch_size": 60 // ranks, "ranks": ranks, "mode": mode}
        given |= {"fanouts": ("*=4",) * 2, "run_dir": str(run_dir), "model": "rgcn"}
        given |= {"epochs": 2, "lr": 2e-2, "hidden": 8, "progress": False, "task": "links"}
        comm = Mesh(jax.devices()[:ranks]) if ranks > 1 else None
        config = Config(**given, relation="buys", metric="mrr", sides="dst", dropout=0.2)
        result = loop.run(config, lambda config, comm=comm: open_job(config, comm))
        run = jgs.open_run(run_dir)
        found.append((run.embed(), run.recommend([3], 60)[0], result))
    (rows, best, result), *others = found
    assert sorted(best[0].tolist()) == [*ITEMS]  # ids of the data set, not of the parts
    for own, _, told in others:
        np.testing.assert_allclose(own, rows, rtol=1e-2, atol=2e-3)
        assert told["test_accuracy"] == pytest.approx(result["test_accuracy"], abs=0.02)
