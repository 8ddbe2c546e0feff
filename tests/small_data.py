"""The small data sets that tests of runs train on."""

import numpy as np
import scipy.sparse

import jgs
from jgs import Graph
from jgs.data import Dataset, LabelTable


def thirds(count):
    """Splits that have every third node each."""
    return {name: np.arange(count)[i::3] for i, name in enumerate(("train", "val", "test"))}


def small():
    """The data set of `SMALL`."""
    of = {"num_nodes": 400, "num_edges": 3000, "num_features": 8, "num_classes": 3}
    return jgs.data.load("synthetic", **of)


def ring_edges(size=30):
    """The edges `[2, E]` of two circular ladders; the second half has their reverses."""
    node = np.arange(size)
    ring = [np.stack([node, (node + k) % size]) for k in (1, 2, 3)]
    edges = np.concatenate([*ring, *(each + size for each in ring)], axis=1)
    return np.concatenate([edges, edges[::-1]], axis=1)


def rings():
    """Two rings, whose numbers are the labels, and features that say nothing."""
    features = np.random.default_rng(5).normal(size=(60, 2)).astype(np.float32)
    graph = Graph.from_edges(*ring_edges(), 60)
    return Dataset.from_arrays(graph, features, np.arange(60) // 30, thirds(60), name="rings")


def communities():
    """60 nodes in six groups, which most edges stay in. Edges have labels and copies."""
    rng = np.random.default_rng(0)
    src = rng.integers(0, 60, 300)
    dst = np.where(rng.random(300) < 0.9, src // 10 * 10 + rng.integers(0, 10, 300), src[::-1])
    src, dst = np.append(src, src[:9]), np.append(dst, dst[:9])  # copies
    split = rng.choice([-1, 0, 1, 2], src.size, p=[0.1, 0.6, 0.15, 0.15]).astype(np.int8)
    columns = {
        "label": (src // 20).astype(np.int32),
        "rating": (src % 10 - dst % 10).astype(np.float32),
        "split": split,
    }
    src, dst = np.concatenate([src, dst]), np.concatenate([dst, src])
    columns = {name: np.tile(column, 2) for name, column in columns.items()}
    graph = Graph.from_edges(src, dst, 60, edge_columns=columns)
    features = rng.normal(size=(60, 3)).astype(np.float32)
    labels = np.arange(60) // 10 % 2
    return Dataset.from_arrays(graph, features, labels, thirds(60), name="communities")


def last_before(src, dst, time, nodes, at):
    """The source of each node's last edge before a time."""
    found = []
    for node, moment in zip(nodes, at, strict=True):
        own = np.flatnonzero((dst == node) & (time < moment))
        found.append(src[own[np.argmax(time[own])]])
    return np.array(found)


def moments(numbers=False):
    """60 nodes whose label at a time is the kind of the source of the last edge before it."""
    rng = np.random.default_rng(0)
    dst = np.tile(np.arange(60), 80)
    src = rng.integers(0, 60, dst.size)
    time = rng.permutation(dst.size) * 10
    graph = Graph.from_edges(src, dst, 60, edge_time=time)
    nodes, at = rng.integers(0, 60, 900), rng.integers(8_000, 40_000, 900)
    labels = last_before(src, dst, time, nodes, at) % 3
    table = LabelTable.from_arrays(nodes, at, labels * 2.5 if numbers else labels)
    features = np.eye(3, dtype=np.float32)[np.arange(60) % 3]
    return Dataset.from_arrays(graph, features, None, None, label_table=table, name="past")


def typed_moments():
    """A user's label is told by the last event's item."""
    rng = np.random.default_rng(0)
    user, item = np.tile(np.arange(30), 40), rng.integers(0, 6, 1200)
    time = rng.permutation(1200) * 10
    events = {("item", "of", "user"): (item, user)}
    counts, times = {"user": 30, "item": 6}, dict.fromkeys(events, time)
    graph = Graph.from_relations(counts, events, edge_time=times)
    nodes, at = rng.integers(0, 30, 600), rng.integers(3_000, 11_000, 600)
    labels = last_before(item, user, time, nodes, at) % 2
    table = LabelTable.from_arrays(nodes, at, labels)
    features = {"user": rng.standard_normal((30, 2)).astype(np.float32)}
    return Dataset.from_arrays(graph, features, None, None, label_table=table, name="typed")


def events(answered=False):
    """Nodes write to whom they heard from last; if `answered`, chance partners answer at 1."""
    rng = np.random.default_rng(0)
    src, dst = rng.integers(0, 60, (2, 1500))
    time = 10 * np.arange(1500)
    last: dict[int, int] = {}
    for i, node in enumerate(src.tolist() if not answered else ()):
        dst[i] = last.get(node, dst[i])
        last[int(dst[i])] = node
    apart = src != dst
    src, dst, time = src[apart], dst[apart], time[apart]
    columns = {}
    if answered:
        src, dst = np.concatenate([src, dst]), np.concatenate([dst, src])
        time = np.concatenate([time, time + 1])
        columns = {"reverse": np.arange(src.size) >= src.size // 2}
    graph = Graph.from_edges(src, dst, 60, edge_time=time, edge_columns=columns)
    features, labels = np.eye(60, dtype=np.float32), np.arange(60) % 2
    return Dataset.from_arrays(graph, features, labels, thirds(60), name="events")


def papers(unit=1, sparse=False, bare=True):
    """Authors, papers that are to be told, and venues, which have no features if `bare`."""
    rng, counts = np.random.default_rng(0), {"author": 60, "paper": 90, "venue": 5}
    edges = {
        ("author", "writes", "paper"): (rng.integers(0, 60, 300), rng.integers(0, 90, 300)),
        ("paper", "at", "venue"): (np.arange(90), rng.integers(0, 5, 90)),
        ("paper", "cites", "paper"): (rng.integers(0, 90, 200), rng.integers(0, 90, 200)),
    }
    graph = Graph.from_relations(counts, edges, both_ways=True)
    labels = np.arange(90) % 3
    features = {
        "paper": (np.eye(3)[labels] + rng.standard_normal((90, 3)) / 2).astype(np.float32),
        "author": rng.standard_normal((60, 7)).astype(np.float32),
    }
    if sparse:
        features["author"] = scipy.sparse.random(60, 40, 0.1, "csr", np.float32, rng)
    if not bare:
        features["venue"] = np.eye(5, dtype=np.float32)
    features = {kind: table / unit for kind, table in features.items()}
    splits = {"train": np.arange(60), "val": np.arange(60, 70), "test": np.arange(70, 90)}
    return Dataset.from_arrays(graph, features, {"paper": labels}, splits, name="typed")


def planted():
    """Edges, features, and numbers that depend on the in-neighbours' mean, and not linearly."""
    rng = np.random.default_rng(0)
    src, dst = rng.integers(0, 400, (2, 3000))
    x = rng.standard_normal((400, 4)).astype(np.float32)
    total = np.zeros((400, 4))
    np.add.at(total, dst, x[src])
    mean = total / np.maximum(np.bincount(dst, minlength=400), 1)[:, None]
    y = 500 + 40 * np.tanh(3 * mean[:, 0]) + 10 * x[:, 1] + rng.standard_normal(400)
    split = rng.permutation(np.repeat(["train", "val", "test"], [200, 100, 100]))
    return src, dst, x, y.astype(np.float32), split


def several(missing=0.0):
    """A data set with three labels of a node, of which some are not known."""
    src, dst, x, y, split = planted()
    labels = np.stack([y > 500, x[:, 1] > 0, y > 530], axis=1).astype(np.float32)
    labels[np.random.default_rng(1).random(labels.shape) < missing] = np.nan
    graph = Graph.from_edges(src, dst, 400)
    return Dataset.from_arrays(graph, x, labels, split, name="several")


def numbers():
    src, dst, x, y, split = planted()
    return Dataset.from_arrays(Graph.from_edges(src, dst, 400), x, y, split, name="numbers")


def shops():
    """Users buy most items from those of their own group, and look at what they buy, too."""
    rng, counts = np.random.default_rng(0), {"user": 40, "item": 60, "shop": 6}
    user = rng.integers(0, 40, 300)
    near = user // 10 * 15 + rng.integers(0, 15, 300)
    item = np.where(rng.random(300) < 0.9, near, user[::-1])
    views = np.r_[user[::3], user[:50]], np.r_[item[::3], item[99:149]]
    edges = {
        ("user", "buys", "item"): (user, item),
        ("user", "views", "item"): views,
        ("item", "at", "shop"): (np.arange(60), rng.integers(0, 6, 60)),
    }
    label = {"buys": item // 30, "views": np.full(150, -1), "at": np.full(60, -1)}
    columns = {triple: {"label": label[triple[1]].astype(np.int32)} for triple in edges}
    graph = Graph.from_relations(counts, edges, both_ways=True, edge_columns=columns)
    features = {
        "user": np.eye(4)[np.arange(40) // 10] + rng.normal(size=(40, 4)) / 2,
        "item": scipy.sparse.random(60, 30, 0.2, "csr", np.float32, rng),
    }
    splits, labels = {"train": [0, 1], "val": [2], "test": [3]}, {"user": np.arange(40) // 10}
    return Dataset.from_arrays(graph, features, labels, splits, name="shops")
