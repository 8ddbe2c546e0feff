"""Ranks learn what one rank with all parts learns, in every task; and what its runs predict."""

import functools

import jax
import numpy as np
import pytest
from cases import cases, rarely
from refusals import refused
from small_data import (
    communities,
    events,
    moments,
    numbers,
    papers,
    several,
    shops,
    small,
    typed_moments,
)
from small_runs import close_arrays, comm_of, cut, metrics, of_ranks, same_run

import jgs
from jgs import InputError
from jgs.train.loop import checkpoint, folder

SHARED = {"hidden": 8, "epochs": 2, "batch_size": 60, "checkpoint_every": 3, "keep": 99}
LINKS = {"task": "links", "decoder": "dot", "metric": "mrr", "sides": "dst", "lr": 2e-2}
LINKS |= {"dropout": 0.2}
NODES = {"batch_size": 40, "fanouts": (5,), "dropout": 0.0}
RUNS = {  # the number of parts, their data, and the settings
    "links": (6, (communities,), LINKS | {"split": "random", "learned": 4, "fanouts": (4,)}),
    "edges": (6, (communities,), {"task": "edges", "learned": 4, "fanouts": (4,), "lr": 2e-2}),
    "shops": (2, (shops,), LINKS | {"model": "rgcn", "relation": "buys", "fanouts": ("*=4",)}),
    "papers": (2, (papers,), {"model": "rgcn", "fanouts": ("*=3", 4), "batch_size": 20}),
    "contexts": (
        2,
        (papers,),
        {"sampler": "context", "context_size": 6, "fanouts": (3, 2), "model": "relgt"}
        | {"layers": 1, "heads": 2, "batch_size": 20, "dropout": 0.2},
    ),
    "moments": (4, (moments,), {"fanouts": (2, 2), "by_time": 150, "dropout": 0.0}),
    "typed moments": (
        4,
        (typed_moments,),
        {"model": "rgcn", "fanouts": (1,), "latest": True, "lr": 0.1, "epochs": 4},
    ),
    "events": (
        4,
        (events,),
        {"task": "links", "temporal": True, "half_life": 500}
        | {"fanouts": (3,), "by_time": 90, "learned": 3}
        | {"eval_negatives": 5, "eval_negatives_by": "historical"},
    ),
    "typed events": (
        4,
        (typed_moments,),
        {"task": "links", "temporal": True, "model": "rsage", "decoder": "mlp"}
        | {"fanouts": (1,), "latest": True, "eval_negatives": 5, "batch_size": 120},
    ),
    "numbers": (2, (numbers,), NODES | {"loss": "huber", "metric": "r2"}),
    "edge columns": (2, (communities,), NODES | {"model": "gin", "batch_size": 10}),
    "several": (
        2,
        (several, 0.5),  # ranks know unequally many labels
        NODES | {"loss": "focal", "balanced": True, "label_smoothing": 0.1, "average": "ema"},
    ),
    "own loss": (2, (several, 0.5), NODES | {"loss": "jgs.losses:cross_entropy"}),
    "schedule": (
        2,
        (small,),
        {"fanouts": (2,), "fanout_schedule": ("plateau:4",), "plateau_fraction": 0.9}
        | {"plateau_epochs": 1, "epochs": 3, "batch_size": 24},
    ),
}


def settings_of(name, parted):
    parts, data, own = RUNS[name]
    return SHARED | {"partition": str(parted(parts, *data))} | own


@pytest.fixture(scope="module")
def alone(parted, tmp_path_factory):
    """`alone(name)`: the folder of a run of one rank, and its result."""

    @functools.cache
    def alone(name):
        run_dir = tmp_path_factory.mktemp("alone") / "run"
        return run_dir, of_ranks(run_dir, 1, **settings_of(name, parted))[0]

    return alone


@cases(
    "name, ranks, more",
    ("links", 3, {}),
    pytest.param("edges", 2, {"mode": "vanilla"}, marks=pytest.mark.slow),
    pytest.param("shops", 2, {"mode": "vanilla"}, marks=pytest.mark.slow),
    ("papers", 2, {"mode": "vanilla"}),
    pytest.param("papers", 2, {"cache": "planned"}, marks=pytest.mark.slow),
    ("contexts", 2, {}),
    ("moments", 2, {}),
    pytest.param("typed moments", 2, {}, marks=pytest.mark.slow),
    pytest.param("events", 2, {}, marks=pytest.mark.slow),
    pytest.param("typed events", 2, {}, marks=pytest.mark.slow),
    pytest.param("numbers", 2, {}, marks=pytest.mark.slow),
    ("edge columns", 2, {}),
    ("several", 2, {}),
    pytest.param("own loss", 2, {}, marks=pytest.mark.slow),
    ("schedule", 2, {"cache": "planned"}),
)
def test_any_number_of_ranks_learns_the_same(alone, parted, tmp_path, name, ranks, more):
    run_dir, one = alone(name)
    many, _ = of_ranks(tmp_path / "run", ranks, **settings_of(name, parted), **more)
    assert many["test_accuracy"] == pytest.approx(one["test_accuracy"], abs=0.02)
    for mine, theirs in zip(metrics(tmp_path / "run"), metrics(run_dir), strict=True):
        assert mine["train_loss"] == pytest.approx(theirs["train_loss"], rel=1e-3)
    close_arrays(tmp_path / "run", run_dir)


@cases("name, ranks", *rarely([("moments", 1), ("events", 1), ("papers", 2)], 1))
def test_a_run_is_resumed(alone, parted, tmp_path, name, ranks):
    """In the order of time within an epoch, or with learned rows by other ranks."""
    run_dir, _ = alone(name)
    *_, last, _ = checkpoint.checkpoints(run_dir / folder.CHECKPOINTS)
    epoch, step = map(int, last.name.split("-"))
    assert epoch == 1
    half = cut(run_dir, tmp_path / "run", step)
    of_ranks(half, ranks, resume=True, **settings_of(name, parted))
    (same_run if ranks == 1 else close_arrays)(half, run_dir)


def test_links_are_told_by_the_ids_of_the_data(alone):
    run, every = jgs.open_run(alone("links")[0]), np.arange(60)
    targets, _ = run.recommend(every, 5)
    assert (targets // 10 == every[:, None] // 10).mean() > 0.2  # by chance 9 in 59
    best = [np.argsort(-run.embed() @ row)[:6] for row in run.embed()]
    assert all({*own} <= {*six} for own, six in zip(targets.tolist(), best, strict=True))


@pytest.mark.slow  # two trainings; test_second_opinion.py has edges and relations on two ranks
def test_edges_and_relations_are_told_by_the_ids_of_the_data(alone):
    ends = np.stack(communities().graph.edge_index(), axis=1)
    told = jgs.open_run(alone("edges")[0]).predict(ends).prediction
    assert (told == ends[:, 0] // 20).mean() > 0.4
    best, _ = jgs.open_run(alone("shops")[0]).recommend([3], 60)
    assert sorted(best[0].tolist()) == [*range(40, 100)]  # the items


def test_labels_at_moments_are_told_by_the_ids_of_the_data(alone):
    run_dir, one = alone("typed moments")
    assert one["test_accuracy"] > 0.9  # by chance a half
    run, data = jgs.open_run(run_dir), typed_moments()
    table, (nodes, time) = data.label_table, run.rows("test")
    np.testing.assert_array_equal(nodes, table.nodes[table.split == 2])
    right = run.predict(nodes, time=time).prediction == table.labels[table.split == 2]
    assert right.mean() == pytest.approx(one["test_accuracy"])
    whole = run.predict(time=9_000).probability
    some = run.predict([5, 20], time=9_000).probability
    np.testing.assert_allclose(some, whole[[5, 20]], rtol=1e-4)
    again = run.predict(time=9_000, graph=data.graph).probability
    np.testing.assert_allclose(again, whole, rtol=1e-4)


@cases("name, time", ("contexts", None), ("moments", 9_000))
def test_ranks_predict_by_samples_what_one_does(alone, name, time):
    one, two = (jgs.open_run(alone(name)[0], comm=comm_of(ranks)) for ranks in (1, 2))
    nodes, of = np.array([7, 41, 7, 0, 59]), {} if time is None else {"time": time}
    for ask in ("logits",) if time else ("logits", "embed"):
        want = getattr(one, ask)(nodes, **of)
        np.testing.assert_allclose(getattr(two, ask)(nodes, **of), want, rtol=1e-4, atol=1e-6)
    assert not np.allclose(*want[:2])
    np.testing.assert_array_equal(*(run.predict(**of).prediction for run in (one, two)))
    if name == "contexts":
        refused("one process must predict by sampled", two.explain, 3)


@pytest.mark.slow  # a training; test_temporal_links.py asks an opened run of links at times
def test_links_at_times_are_told_by_the_ids_of_the_data(alone):
    """Without what was after the time nothing changes."""
    run, graph = jgs.open_run(alone("events")[0]), events().graph
    pairs, close = np.stack(graph.edge_index(), axis=1)[:40], {"rtol": 1e-4, "atol": 1e-5}
    scores = run.scores(pairs, time=9_000)
    np.testing.assert_allclose(scores[7:9], run.scores(pairs[7:9], time=9_000), **close)
    assert not np.allclose(scores, run.scores(pairs, time=3_000))
    past = graph.edge_subgraph(np.asarray(graph.edge_time) < 9_000)
    np.testing.assert_allclose(scores, run.scores(pairs, time=9_000, graph=past), **close)
    with pytest.raises(InputError, match="must have times: integers of 64 bits"):
        run.scores(pairs, time=np.uint64(2**63 + 5))


def test_learned_rows_are_in_the_order_of_the_parts(alone, parted, tmp_path):
    """So another graph must be in these, and a device learns them to the bit."""
    run_dir, _ = alone("papers")
    given = {"graph": papers().graph, "features": papers().features}
    with pytest.raises(InputError, match="must be in the 2 parts that the run was trained"):
        jgs.open_run(run_dir).logits([70, 3], **given)
    of_ranks(tmp_path / "run", 1, device="cpu:1", **settings_of("papers", parted))
    same_run(tmp_path / "run", run_dir)


OWN = [{"sampler": "vrgcn", "fanouts": (2, 2)}, {"sampler": "asgcn", "sizes": (30,)}]


@cases("own", *rarely(OWN, 1))
def test_ranks_have_one_state(parted, tmp_path, own):
    own = own | {"partition": str(parted(2, small)), "model": "gcn", "batch_size": 24}
    own |= {"hidden": 8, "epochs": 2, "eval_memory": 1}
    _, job = of_ranks(tmp_path / "whole", 2, **own)
    assert job.data.num_steps == len(job.loader)
    for state in jax.tree.leaves(job.loader.sampler_state):
        one, other = (np.asarray(shard.data) for shard in state.addressable_shards)
        np.testing.assert_array_equal(one, other)
        assert one.any()
    half = cut(tmp_path / "whole", tmp_path / "half", len(job.loader))
    of_ranks(half, 2, resume=True, **own)
    same_run(half, tmp_path / "whole")
