"""`--task links` and `--task edges` with models of typed graphs, by relation."""

import dataclasses

import numpy as np
import pytest
from cases import cases, rarely
from flax import nnx
from refusals import refused
from small_data import shops
from small_runs import drawn_edges, on_all_neighbours, started, trainer, unordered

import jgs
from jgs.errors import InputError
from jgs.train.config import Config
from jgs.train.tasks.task import open_job

ITEMS = range(40, 100)
FLAGS = "--hidden 8 --epochs 3 --lr 2e-2 --no-progress"
train = trainer(FLAGS + " --relation buys --fanouts *=4 *=4 --batch-size 40")


@pytest.fixture(scope="module")
def data(saved):
    return saved(shops)


@pytest.mark.parametrize(("sampler", "fanout"), [("neighbors", -1), ("labor", 3)])
def test_no_edge_to_predict_is_a_message(data, sampler, fanout):
    """Nor is its reverse, or an edge of another relation. All other edges are read."""
    given = {"model": "rgcn", "sampler": sampler, "fanouts": (f"*={fanout}",) * 2}
    given |= {"task": "links", "relation": "buys", "batch_size": 40, "num_negatives": 2}
    job, _ = started(dataset=data, **given)
    messages, whole = job.targets.messages[0], shops().graph
    assert messages.schema == whole.schema
    assert job.targets.types == ("user", "item")
    hidden = {pair for part in job.targets[1:3] for pair in unordered(part["src"], part["dst"])}
    every = np.stack([whole.edge_type, *whole.edge_index()]).T.tolist()
    between = {(r, a, b) for r, a, b in every if (min(a, b), max(a, b)) in hidden}
    assert {relation for relation, *_ in between} == {0, 1, 3, 4}  # buys, views, the reverses
    kept, seen = [edge for edge in map(tuple, every) if edge not in between], set()
    assert messages.num_edges == len(kept)
    for batch, _ in job.loader:
        src, dst = (np.asarray(batch.items[name]) for name in ("src", "dst"))
        own, drawn = unordered(src[src < 106], dst[src < 106]), drawn_edges(batch)
        assert not unordered(*drawn[1:]) & (hidden | own)
        seen |= {*map(tuple, drawn.T.tolist())}
    job.close()
    assert seen <= {*kept}
    assert {relation for relation, *_ in seen} == set(range(6))
    if fanout == -1:
        assert seen == {*kept}


RUNS = [
    ("rsage", "--metric recall --metric-k 9 --sides dst --val-messages", "Recall@9"),
    ("rgcn", "--sampler labor --decoder distmult", "AUC"),
]


@cases("model, more, metric", *rarely(RUNS, 1))
def test_a_run_and_what_it_tells(data, tmp_path, model, more, metric):
    run_dir = tmp_path / "run"
    assert train(data, run_dir, "--task links --model", model, more)["metric"] == metric
    run = jgs.open_run(run_dir)
    assert run.model.encoder.inputs.in_features == (4, 30, 0)
    assert run.model.encoder.inputs.has_embedding
    # Rows are those of a batch of all neighbours, without the edges that were held out.
    targets = run._data[1]
    graph = targets.at_test[0]
    assert (graph.num_edges > targets.messages[0].num_edges) == ("--val-messages" in more)
    rows = on_all_neighbours(run.model.encoder, graph, shops().features)
    np.testing.assert_allclose(run.embed(), rows, rtol=1e-4, atol=1e-5)
    given = run.embed(graph=graph, features=shops().features)
    np.testing.assert_allclose(given, rows, rtol=1e-4, atol=1e-5)
    pairs = np.stack([np.arange(40), np.arange(99, 59, -1)], axis=1)
    src, dst = rows[pairs[:, 0]], rows[pairs[:, 1]]
    scores = nnx.jit(run.model.decoder)(src, dst, np.zeros(40, np.int32))
    np.testing.assert_allclose(run.predict(pairs), 1 / (1 + np.exp(-scores)), rtol=1e-4)
    with pytest.raises(InputError, match="types user and item; got pair 1, of user and user"):
        run.predict([[3, 50], [3, 4]])
    best, values = run.recommend([3, 4], 60)
    for node, own, value in zip((3, 4), best, values, strict=True):
        assert sorted(own.tolist()) == [*ITEMS]  # of the relation's target type
        asked = np.stack([np.full(60, node), own], axis=1)
        np.testing.assert_allclose(run.scores(asked), value, rtol=1e-4, atol=1e-5)
        assert (np.diff(value) <= 0).all()


def test_labels_of_the_edges_of_a_relation(data, tmp_path):
    train(data, tmp_path / "run", "--task edges --model rsage --epochs 8 --fanouts *=4")
    run, (user, item) = jgs.open_run(tmp_path / "run"), shops().graph.edge_index()
    buys = np.asarray(shops().graph.edge_type) == 0
    told = run.predict(np.stack([user[buys], item[buys]], axis=1)).prediction
    assert (told == (item[buys] - ITEMS.start) // 30).mean() > 0.8  # by chance a half


def later():
    """The shops, of which the test has one relation, and validation two."""
    data = shops()
    kind, place = np.asarray(data.graph.edge_type), np.arange(data.graph.num_edges)
    split = np.where((kind == 0) & (place % 5 == 0), 2, np.where(place % 5 == 1, 1, 0))
    columns = data.graph.edge_columns | {"split": split.astype(np.int8)}
    return dataclasses.replace(data, graph=data.graph._with(edge_columns=columns))


def test_lists_are_of_one_relation_in_each_split(saved):
    given = {"model": "rgcn", "fanouts": ("*=4",), "metric": "recall", "batch_size": 20}
    refused(
        "recall must be of one relation; got 3 relations",
        *(open_job, Config(task="links", dataset=saved(later), **given)),
    )


@pytest.mark.parametrize("metric", ["ap", "mrr"])
def test_pairs_to_judge_by_are_of_a_relation(data, metric):
    """And their ends of its types."""
    given = {"model": "rgcn", "fanouts": ("*=4",), "metric": metric, "batch_size": 20}
    job = open_job(Config(task="links", dataset=data, **given))
    made, kinds = job.judged["test"], shops().graph.schema.numbers
    ends = made.other_relation, kinds(made.other_src), kinds(made.other_dst)
    found = set(zip(*(each.reshape(-1).tolist() for each in ends), strict=True))
    assert {*made.relation.tolist()} == {0, 1, 2}
    assert found == {(0, 0, 1), (1, 0, 1), (2, 1, 2)}
