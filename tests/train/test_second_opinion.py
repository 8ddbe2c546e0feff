"""Each metric of links, and of edges, on one rank and two, against NumPy and the written table.

The table has several relations between the same types, edges that are others' reverses,
parallel edges, and nodes that no score tells apart."""

from itertools import product

import numpy as np
import pytest
from cases import cases
from small_data import communities
from small_runs import of_ranks, started

import jgs
from jgs import Graph
from jgs.data import Dataset

COUNTS = {"user": 30, "item": 40}
ENDS = {"follows": ("user", "user"), "blocks": ("user", "user")}
ENDS |= {"buys": ("user", "item"), "views": ("user", "item")}
FIRST = {"user": 0, "item": 30}
K = 5


def written():
    """For each relation of the table rows `[n, 4]`: source, target, split and time."""
    rng, found = np.random.default_rng(3), {}
    for name, (source, target) in ENDS.items():
        src = rng.integers(0, COUNTS[source] - 2, 150)
        dst = (src + rng.integers(0, 12, 150)) % (COUNTS[target] - 10)
        rows = np.stack([src, dst, np.repeat([0, 1, 2], [90, 30, 30]), np.arange(150)], axis=1)
        found[name] = np.concatenate([rows, rows[::7]])  # copies, of the same split
        found[name][:, 3] = found[name][:, 3] // 3 * 3  # ties
    # Who follows is followed, in part, and views are purchases, in part.
    found["follows"][20:60, :2] = found["follows"][80:120, 1::-1]
    found["views"][90:150:2, :2] = found["buys"][0:60:2, :2]
    return found


SPLITS = {"train": [0, 1], "val": [2], "test": [3]}
LABELS = np.arange(COUNTS["user"]) % 2


def features(count):
    return np.eye(3, dtype=np.float32)[np.arange(count) % 3]


def column_of(name, timed):
    """The times of a relation's edges, which tell their splits, or the splits."""
    _, _, split, time = written()[name].T
    return time + 1000 * split if timed else split.astype(np.int8)


def society(timed=False):
    triples = {name: (source, name, target) for name, (source, target) in ENDS.items()}
    edges = {triple: written()[name].T[:2] for name, triple in triples.items()}
    more = {triple: column_of(name, timed) for name, triple in triples.items()}
    if timed:
        more = {"edge_time": more}
    else:
        more = {"edge_columns": {triple: {"split": each} for triple, each in more.items()}}
    graph = Graph.from_relations(COUNTS, edges, both_ways=True, **more)
    x = {kind: features(count) for kind, count in COUNTS.items()}
    return Dataset.from_arrays(graph, x, {"user": LABELS}, SPLITS, name="society")


def plain(timed=False):
    """Who follows whom, without types, with the reverses that a reader adds."""
    src, dst, *_ = written()["follows"].T
    both = np.concatenate([src, dst]), np.concatenate([dst, src])
    columns = {"reverse": np.arange(2 * src.size) >= src.size}
    own, time = np.tile(column_of("follows", timed), 2), None
    if timed:
        time = own
    else:
        columns["split"] = own
    graph = Graph.from_edges(*both, COUNTS["user"], edge_time=time, edge_columns=columns)
    return Dataset.from_arrays(graph, features(COUNTS["user"]), LABELS, SPLITS, name="plain")


def rows_of(name, *splits):
    """The rows of a relation as `(source, target)`, numbered in the whole graph."""
    rows = written()[name]
    rows = rows[np.isin(rows[:, 2], splits)]
    source, target = ENDS[name]
    time = rows[:, 3] + 1000 * rows[:, 2]
    return rows[:, 0] + FIRST[source], rows[:, 1] + FIRST[target], time


def facts(name, *splits):
    src, dst, _ = rows_of(name, *splits)
    return {*zip(src.tolist(), dst.tolist(), strict=True)}


# -- what the metrics are ----------------------------------------------------------------------


def auc(good, bad):
    return ((good[:, None] > bad) + (good[:, None] == bad) / 2).mean()


def average_precision(good, bad):
    every, found = np.concatenate([good, bad]), 0.0
    for score in good:
        found += (good >= score).sum() / (every >= score).sum() / good.size
    return found


def hits_of_all(good, bad):
    """A link that is above all negatives but K - 1; as OGB judges."""
    return (good > np.sort(bad)[-K]).mean()


def place(own, others):
    return 1 + (others > own).sum() + (others == own).sum() / 2


def recall(relevant, best):
    return len(relevant & {*best}) / len(relevant)


def ndcg(relevant, best):
    gains = 1 / np.log2(2 + np.arange(K))
    return sum(g for g, node in zip(gains, best, strict=True) if node in relevant) / sum(
        gains[: len(relevant)]
    )


# -- links -------------------------------------------------------------------------------------


def of_types(name):
    return (np.arange(COUNTS[kind]) + FIRST[kind] for kind in ENDS[name])


def opened(ranks, saved, parted, make, task="links", **settings):
    """The job and its parameters, and the number that the table has for each of its nodes."""
    of = {"dataset": str(saved(*make))} if ranks == 1 else {"partition": str(parted(4, *make))}
    job, params = started(ranks, task=task, batch_size=40, hidden=6, **of, **settings)
    new = np.arange(int(job.data.offsets[-1])) if ranks == 1 else job.data.own_ids
    return job, params, np.argsort(new)


def pairs_of(src, dst):
    return [*zip(src.tolist(), dst.tolist(), strict=True)]


def check_pairs(name, src, dst):
    """Negatives are pairs of the relation's types that the table does not have."""
    sources, targets = of_types(name)
    assert np.isin(src, sources).all()
    assert np.isin(dst, targets).all()
    pairs = pairs_of(src, dst)
    assert not {*pairs} & facts(name, 0, 1, 2)
    assert not (src == dst).any()
    return pairs


LINKS = ["auc", "ap", "hits", "mrr", "recall", "ndcg"]


def of_k(metric):
    return {"metric_k": K} if metric in ("hits", "recall", "ndcg") else {}


@cases(
    "ranks, name, metric",
    *[(1, "buys", metric) for metric in LINKS],
    *product((1, 2), (None,), ("hits", "mrr", "ndcg")),
    *[(1, "follows", metric) for metric in ("auc", "mrr", "recall")],
    (2, "buys", "mrr"),
)
def test_links(saved, parted, metric, name, ranks):
    """`None`: a graph without relations."""
    typed = {"model": "rgcn", "relation": name, "fanouts": ("*=2",), "decoder": "distmult"}
    more = typed if name else {"fanouts": (2,), "decoder": "dot"}
    more |= {"metric": metric, "eval_negatives": 9, "learned": 0, **of_k(metric)}
    make, name = (society if name else plain,), name or "follows"
    job, params, old = opened(ranks, saved, parted, make, **more)
    for number, split in enumerate(("val", "test"), 1):
        made = job.judged[split]
        src, dst, _ = rows_of(name, number)
        apart = src != dst
        links = pairs_of(old[made.src], old[made.dst])
        assert sorted(links) == sorted(pairs_of(src[apart], dst[apart]))
        wanted = (by_lists if metric in ("recall", "ndcg") else by_negatives)(
            job, params, old, split, metric, name
        )
        assert job.metric(params, split) == pytest.approx(wanted, abs=1e-6)
    job.close()


def judged_rows(job, params, split):
    """`[N, F]`: the rows of the nodes that judge a split, NaN for others."""
    own = job.rows_of(params, split)
    rows = np.full((job.num_nodes, own.shape[1]), np.nan, np.float32)
    rows[job.judged_nodes(split)] = own
    return rows


def by_negatives(job, params, old, split, metric, name):
    made, (good, bad) = job.judged[split], job.scores(params, split)
    src, dst = old[made.other_src], old[made.other_dst]
    if metric != "mrr":
        assert len({*check_pairs(name, src, dst)}) == bad.size == good.size
        by = {"auc": auc, "ap": average_precision, "hits": hits_of_all}
        return by[metric](good, bad)
    known, places = facts(name, 0, 1, 2), []
    for own, others, *ends in zip(good, bad, src, dst, strict=True):
        counts = np.array([p not in known and p[0] != p[1] for p in pairs_of(*ends)])
        check_pairs(name, *(end[counts] for end in ends))
        places += [place(own, others[counts])] if counts.any() else []
    assert any(own in others for own, others in zip(good, bad, strict=True))  # ties
    return np.mean(1 / np.array(places))


def by_lists(job, params, old, split, metric, name):
    """The best K of all the type's nodes that the source has no earlier edge to."""
    number = ("train", "val", "test").index(split)
    known, wanted = facts(name, *range(number)), facts(name, number)
    rows = judged_rows(job, params, split)
    relation = job.judged[split].relation
    targets, found = {*[*of_types(name)][1].tolist()}, []
    for source in np.flatnonzero(np.isin(old, [*{a for a, _ in wanted - known}])):
        of = old[source]
        left = [
            v for v in range(old.size)
            if old[v] in targets and (of, old[v]) not in known and v != source
        ]  # fmt: skip
        ends = np.full(len(left), source, np.int32), np.array(left, np.int32)
        kind = None if relation is None else np.full(len(left), relation[0], np.int32)
        scores = job.decode(params, rows, *ends, kind)
        best = old[ends[1][np.argsort(-scores, kind="stable")[:K]]].tolist()
        relevant = {b for a, b in wanted - known if a == of} - {of}
        if relevant:
            found.append((recall if metric == "recall" else ndcg)(relevant, best))
    return np.mean(found)


@cases(
    "ranks, typed, metric",
    *[(1, True, metric) for metric in ("hits", "ap", "auc")],
    (1, False, "mrr"),
    (2, False, "hits"),
    (2, True, "mrr"),
)
def test_links_at_moments(saved, parted, metric, typed, ranks):
    more = {"model": "rgcn", "fanouts": ("*=2",)} if typed else {"fanouts": (2,)}
    more |= {"temporal": True, "metric": metric, "eval_negatives": 8, **of_k(metric)}
    more |= {"learned": 0}
    make = society if typed else plain, True
    job, params, old = opened(ranks, saved, parted, make, **more)
    names = list(ENDS) if typed else ["follows"]
    for split in ("val", "test"):
        links, others = getattr(job.targets, split), job.judged[split].other_dst
        good, bad = job.scores(params, split)
        real, places = others >= 0, []
        for i in range(len(good)):
            name = names[links["relation"][i]] if typed else "follows"
            src, dst, time = rows_of(name, 0, 1, 2)
            now = {*pairs_of(*(end[time == links["time"][i]] for end in (src, dst)))}
            own = old[others[i][real[i]]]
            assert (old[links["src"][i]], old[links["dst"][i]]) in now
            assert not now & {(old[links["src"][i]], v) for v in own}
            assert np.isin(own, [*of_types(name)][1]).all()
            places += [place(good[i], bad[i][real[i]])] if real[i].any() else []
        wanted = {
            "mrr": lambda p=places: np.mean(1 / np.array(p)),
            "hits": lambda p=places: np.mean(np.array(p) <= K),
            "ap": lambda g=good, b=bad[real]: average_precision(g, b),
            "auc": lambda g=good, b=bad[real]: auc(g, b),
        }[metric]()
        assert job.metric(params, split) == pytest.approx(wanted, abs=1e-6)
    job.close()


# -- edges ------------------------------------------------------------------------------------


def of_classes(metric, outputs, labels):
    true, given = (np.eye(outputs.shape[1], dtype=bool)[a] for a in (labels, outputs.argmax(1)))
    if metric == "f1_micro":  # of one class a row it is the accuracy
        return (given & true).sum() / len(labels)
    shares = np.exp(outputs.astype(float))
    every = zip((shares / shares.sum(1, keepdims=True)).T, true.T, strict=True)
    return np.mean([auc(own[t], own[~t]) for own, t in every if t.any() and not t.all()])


def of_numbers(metric, outputs, labels):
    error = outputs - labels
    if metric == "r2":
        return 1 - (error**2).sum() / ((labels - labels.mean()) ** 2).sum()
    return np.abs(error).mean()


def test_pairs_at_moments_are_of_the_types_of_the_data(parted, tmp_path):
    """Whatever ids the nodes have in the parts."""
    more = {"task": "links", "temporal": True, "model": "rgcn", "fanouts": ("*=2",)}
    more |= {"partition": str(parted(2, society, True)), "relation": "follows", "learned": 0}
    of_ranks(tmp_path / "run", 1, batch_size=20, hidden=8, epochs=1, **more)
    run = jgs.open_run(tmp_path / "run")
    users = np.stack(written()["follows"].T[:2], axis=1)
    assert run.scores(users, time=10**6).shape == (len(users),)
    (items,) = run.schema.ranges("item")
    with pytest.raises(jgs.InputError, match="got pair 0, of item and user"):
        run.scores([[items.start, 0]], time=10**6)


@cases(
    "ranks, label, metric",
    *((1, "label", "auc"), (1, "rating", "r2")),
    (2, "label", "f1_micro"),
    (2, "rating", "mae"),
)
def test_edges(saved, parted, label, metric, ranks):
    """The edges of a split are all the table's, copies too. An edge and its reverse are one."""
    more = {"task": "edges", "label": label, "metric": metric, "fanouts": (2,), "learned": 0}
    job, params, old = opened(ranks, saved, parted, (communities,), **more)
    graph = communities().graph
    (src, dst), column = graph.edge_index(), np.asarray(graph.edge_columns[label], float)
    split, new = np.asarray(graph.edge_columns["split"]), np.argsort(old)
    once = src <= dst
    train = column[(split == 0) & once]
    for number, name in enumerate(("val", "test"), 1):
        rows = judged_rows(job, params, name)
        mine = (split == number) & once
        outputs = job.decode(
            params, rows, *(new[end[mine]].astype(np.int32) for end in (src, dst))
        )
        if label == "rating":
            outputs = outputs.reshape(-1).astype(float) * train.std() + train.mean()
            wanted = of_numbers(metric, outputs, column[mine])
        else:
            wanted = of_classes(metric, outputs, column[mine].astype(int))
        assert job.metric(params, name) == pytest.approx(wanted, rel=1e-4)
    job.close()
