"""Baselines of a run, by NumPy and sets of Python that know nothing of jgs."""

import itertools
import math

import numpy as np
import pytest
from small_data import communities, events, moments, numbers, several, shops, small
from small_runs import comm_of, started, trainer, unordered

import jgs
from jgs import Graph
from jgs.train.config import Config
from jgs.train.evaluation import baselines
from jgs.train.evaluation.baselines import EventCounts, LinkCounts, adjacency, spread_labels
from jgs.train.tasks.task import open_job

BY_SETS = {  # of the neighbours of all nodes, and a pair
    "common_neighbors": lambda near, u, v: len(near[u] & near[v]),
    "adamic_adar": lambda near, u, v: sum(
        1 / math.log(max(len(near[w]), 2)) for w in near[u] & near[v]
    ),
    "degree_product": lambda near, u, v: len(near[u]) * len(near[v]),
    "paths_of_three": lambda near, u, v: sum(len(near[w] & near[v]) for w in near[u]),
}


def neighbors(src, dst, num_nodes):
    near = [set() for _ in range(num_nodes)]
    for a, b in zip(src, dst, strict=True):
        if a != b:
            near[a].add(b)
            near[b].add(a)
    return near


def by_sets(name, near, src, dst):
    pairs = zip(np.ravel(src).tolist(), np.ravel(dst).tolist(), strict=True)
    found = [BY_SETS[name](near, *pair) for pair in pairs]
    return np.array(found).reshape(np.shape(src))


def auc(good, bad):
    good, bad = np.ravel(good)[:, None], np.ravel(bad)[None]
    return ((good > bad) + (good == bad) / 2).mean()


def mrr(good, bad, mask):
    """Of links that have a negative; rounded as scores are, so that ties are ties."""
    good, bad = good[:, None].round(6), bad.round(6)
    rank = 1 + ((bad > good) & mask).sum(1) + ((bad == good) & mask).sum(1) / 2
    return (1 / rank[mask.any(1)]).mean()


def opened(ranks=1, **settings):
    return open_job(Config(progress=False, ranks=ranks, **settings), comm_of(ranks))


# -- counts ------------------------------------------------------------------------------------


@pytest.fixture
def messy():
    """30 nodes, parallel edges in both directions, self-loops, nodes without edges."""
    return *np.repeat(np.random.default_rng(0).integers(0, 26, (2, 60)), 2, axis=1), 30


@pytest.mark.parametrize("name", BY_SETS)
@pytest.mark.parametrize("at_once", [1, 50, 1 << 22])
def test_scores_of_all_pairs(messy, name, at_once, monkeypatch):
    monkeypatch.setattr(baselines, "_AT_ONCE", at_once)
    src, dst = np.array(list(itertools.product(range(30), repeat=2))).T
    found = LinkCounts(*messy).scores(name, src, dst)
    np.testing.assert_allclose(found, by_sets(name, neighbors(*messy), src, dst), atol=1e-8)


@pytest.mark.parametrize("name", BY_SETS)
def test_the_best_of_all_candidates(messy, name):
    """Lists have the highest scores, without the node itself and what is known, in order."""
    near, known = neighbors(*messy), Graph.from_edges([0, 0, 3], [4, 5, 0], 30)
    queries, candidates = np.array([0, 3, 28]), np.arange(2, 30)
    lists = LinkCounts(*messy).best(name, queries, candidates, 27, known)
    for query, row in zip(queries.tolist(), lists, strict=True):
        taken = {query} | {0: {4, 5}, 3: {0}}.get(query, set())
        left = [v for v in candidates.tolist() if v not in taken]
        scores = by_sets(name, near, np.full(len(left), query), np.array(left))
        real = row[row >= 0]
        assert len(set(real.tolist()) & set(left)) == min(27, len(left))
        own = by_sets(name, near, np.full(real.size, query), real)
        np.testing.assert_allclose(own, np.sort(scores)[::-1][: real.size], atol=1e-8)


def test_what_takes_too_long_is_left_out(messy, monkeypatch, capsys, saved):
    monkeypatch.setattr(baselines, "MOST_STEPS", 9)
    assert LinkCounts(*messy).scores("common_neighbors", *np.ones((2, 5), int)) is None
    job = opened(dataset=str(saved(communities)), task="links", split="random", batch_size=9)
    assert job.baselines() == dict.fromkeys(baselines.LINK_BASELINES)
    said = capsys.readouterr().err
    assert said.count("left out: it would take too long") == 3


def test_events_before_a_moment(monkeypatch):
    monkeypatch.setattr(baselines, "_AT_ONCE", 7)
    rng = np.random.default_rng(0)
    src, dst = rng.integers(0, 6, (2, 80))
    time = rng.integers(-20, 20, 80) * 10  # ties
    of = np.array(list(itertools.product(range(7), range(7), (-300, -200, 5, 50, 500)))).T
    popular, latest = [], []
    for u, v, t in of.T.tolist():
        before = time < t
        popular.append(np.sum(before & (dst == v)))
        own = before & (src == u)
        last = own & (time == time[own].max(initial=-(10**9)))
        latest.append(v in dst[last])
    counts = EventCounts(src, dst, time, 7)
    np.testing.assert_array_equal(counts.scores("popularity", *of), popular)
    np.testing.assert_array_equal(counts.scores("latest_partner", *of), latest)


@pytest.mark.parametrize("missing", [0.0, 0.4])
def test_labels_spread_to_neighbours(messy, missing):
    near, train = neighbors(*messy), np.arange(0, 30, 3)
    rng = np.random.default_rng(1)
    labels = rng.integers(0, 2, (10, 35)).astype(float)
    labels[rng.random(labels.shape) < missing] = np.nan
    known = ~np.isnan(labels)
    state, mass = np.zeros((2, 30, 35))
    for _ in range(20):
        for now, own in ((state, np.nan_to_num(labels)), (mass, known)):
            now[train] = np.where(known, own, now[train])
            old = now.copy()
            for v in range(30):
                now[v] = np.mean([old[w] for w in near[v]], axis=0) if near[v] else 0
    prior = np.nansum(labels, axis=0) / known.sum(axis=0)
    wanted = np.where(mass > 0, state / np.where(mass > 0, mass, 1), prior)
    found = spread_labels(adjacency(*messy), train, labels, 35, np.arange(30))
    np.testing.assert_allclose(found, wanted, atol=1e-8)


# -- runs --------------------------------------------------------------------------------------


def test_links_by_the_training_edges_alone(saved, tmp_path):
    """The result of a run has them; held-out edges count for nothing."""
    flags = "--task links --split random --hidden 4 --epochs 1 --fanouts 2 --no-progress"
    found = trainer(flags)(saved(communities), tmp_path / "run", "--batch-size 50")
    config, graph = jgs.open_run(tmp_path / "run").config, communities().graph
    assert config.decoder == "mlp"  # the default
    made, ends = open_job(config), graph.edge_index()
    held = unordered(made.targets.val["src"], made.targets.val["dst"])
    held |= unordered(made.targets.test["src"], made.targets.test["dst"])
    kept = [tuple(sorted(pair)) not in held for pair in ends.T.tolist()]
    near = neighbors(*ends[:, kept].tolist(), 60)
    assert set(found["baselines"]) == set(baselines.LINK_BASELINES)
    for name, split in itertools.product(found["baselines"], ("val", "test")):
        judged = made.judged[split]
        good = by_sets(name, near, judged.src, judged.dst)
        bad = by_sets(name, near, judged.other_src, judged.other_dst)
        wanted = pytest.approx(auc(good, bad), abs=1e-6)
        assert found["baselines"][name][f"{split}_accuracy"] == wanted


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("relation", ["buys", None])
def test_links_of_relations(parted, ranks, relation):
    """By the edges of the pair's relation alone, and not by reverses; on ranks as on one."""
    job = opened(
        **{"ranks": ranks, "partition": str(parted(2, shops)), "task": "links"},
        **{"model": "rgcn", "fanouts": ("*=2",), "batch_size": 20 // ranks},
        **{"metric": "mrr", "eval_negatives": 6, "relation": relation},
    )
    graph, found = job.targets.messages[0], job.baselines()
    (src, dst), kind = graph.edge_index(), np.asarray(graph.edge_type)
    assert set(found) == set(BY_SETS)
    for name, split in itertools.product(found, ("val", "test")):
        made, good, bad = job.judged[split], [], []
        for i, number in enumerate(made.relation.tolist()):
            of = kind == number
            near = neighbors(src[of].tolist(), dst[of].tolist(), graph.num_nodes)
            good.append(by_sets(name, near, made.src[i], made.dst[i]))
            bad.append(by_sets(name, near, made.other_src[i], made.other_dst[i]))
        wanted = mrr(np.array(good), np.array(bad), made.mask)
        assert found[name][f"{split}_accuracy"] == pytest.approx(wanted, abs=1e-6)


@pytest.mark.parametrize("ranks", [1, 2])
def test_events_by_their_past(parted, ranks):
    job = opened(
        **{"ranks": ranks, "partition": str(parted(4, events)), "task": "links"},
        **{"temporal": True, "fanouts": (2,), "batch_size": 60 // ranks, "eval_negatives": 5},
    )
    graph, found = job.targets.messages[0], job.baselines()
    (src, dst), time = graph.edge_index(), np.asarray(graph.edge_time)
    links, others = job.targets.test, job.judged["test"].other_dst
    every = np.column_stack([links["dst"], others])
    popular, latest = np.zeros((2, *every.shape))
    for i, (u, t) in enumerate(zip(links["src"], links["time"], strict=True)):
        before = np.flatnonzero(time < t)
        popular[i] = [np.sum(dst[before] == v) for v in every[i]]
        own = before[src[before] == u]
        latest[i] = every[i] == (dst[own[np.argmax(time[own])]] if own.size else -2)
    for name, scores in (("popularity", popular), ("latest_partner", latest)):
        wanted = mrr(scores[:, 0], scores[:, 1:], others >= 0)
        assert found[name]["test_accuracy"] == pytest.approx(wanted)


@pytest.mark.parametrize("make", [small, several, numbers])
def test_nodes(make, parted):
    """The majority, or the mean, and neighbours' labels; on ranks as on one."""
    of = {"partition": str(parted(2, make)), "fanouts": (2,), "batch_size": 20}
    runs = (1, "hybrid"), (2, "hybrid"), (2, "vanilla")
    found = [started(ranks, **of, mode=mode)[0].baselines() for ranks, mode in runs]
    assert found[0] == found[1] == found[2]
    data = make()
    train, test = (
        np.asarray(data.labels)[getattr(data, f"{s}_idx")] for s in ("train", "test")
    )
    if make is numbers:
        wanted = {"mean": np.sqrt(np.mean((test - train.mean(dtype=float)) ** 2))}
    elif make is several:
        most = np.broadcast_to(train.mean(axis=0) > 0.5, test.shape)
        wanted = {"majority_class": 2 * np.sum(most & (test > 0)) / (most.sum() + test.sum())}
    else:
        wanted = {"majority_class": np.mean(test == np.bincount(train).argmax())}
    names = set(wanted) | ({"label_propagation"} if make is not numbers else set())
    assert set(found[0]) == names
    for name, value in wanted.items():
        assert found[0][name]["test_accuracy"] == pytest.approx(value)


def test_edges_and_moments(saved):
    of = {"task": "edges", "batch_size": 20, "fanouts": (2,)}
    of |= {"dataset": str(saved(communities))}
    for label, name in (("label", "majority_class"), ("rating", "mean")):
        job = opened(**of, label=label)
        train, test = job.targets.train["label"], job.targets.test["label"].astype(float)
        wanted = np.sqrt(np.mean((test - train.mean(dtype=float)) ** 2))
        if name == "majority_class":
            wanted = np.mean(test == np.bincount(train).argmax())
        assert job.baselines()[name]["test_accuracy"] == pytest.approx(wanted)
    job = opened(dataset=str(saved(moments)), fanouts=(2,), batch_size=20)
    table = moments().label_table
    most = np.bincount(table.labels[table.split == 0]).argmax()
    wanted = np.mean(table.labels[table.split == 2] == most)
    assert job.baselines() == {"majority_class": {
        "val_accuracy": pytest.approx(np.mean(table.labels[table.split == 1] == most)),
        "test_accuracy": pytest.approx(wanted),
    }}  # fmt: skip


def test_seal(saved):
    of = {"dataset": str(saved(communities)), "task": "links", "sampler": "seal"}
    job = opened(**of, batch_size=20)
    held, found = job.data.held, job.baselines()
    train, val = (pairs[: len(pairs) // 2] for pairs in (held.train, held.val))
    near = {"val": neighbors(*train.T, 60), "test": neighbors(*np.r_[train, val].T, 60)}
    for name, split in itertools.product(baselines.LINK_BASELINES, near):
        scores = by_sets(name, near[split], *getattr(held, split).T)
        wanted = auc(*np.split(scores.round(6), 2))
        assert found[name][f"{split}_accuracy"] == pytest.approx(wanted, abs=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["usair", "ns"])
def test_the_defaults_do_not_lose_to_counting(data_folder, tmp_path, name):
    found = trainer("--task links --no-progress")(data_folder / f"{name}.npz", tmp_path / "run")
    best = max(each["test_accuracy"] for each in found["baselines"].values())
    assert found["test_accuracy"] >= best - 0.005
