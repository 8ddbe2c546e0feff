"""`synthetic`: the default data set, a generated graph on which neighbours matter.

It is a degree-corrected planted partition (Karrer & Newman, "Stochastic blockmodels and
community structure in networks", 2011, equation 1). Node `v` has a class, and a propensity
`p_v` from a power law. An edge chooses one end with probability proportional to `p`. It chooses
the other end in the same way, within the same class with probability `homophily`, and otherwise
from all nodes. Features are the mean of the class plus Gaussian noise. The noise is so wide
that features alone classify about half of the nodes; the mean over a node's neighbours averages
the noise away.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from jgs.data.dataset import Dataset
from jgs.data.edge_stream import simple_symmetric_graph
from jgs.data.values import SPLITS
from jgs.errors import InputError

NAMES = {"synthetic": "communities with features that tell of them, made on the spot"}
# Under unit noise 16 orthogonal means of this length are recognised half of the time.
_MEAN_LENGTH = 1.75
_SPLIT = (0.2, 0.2)  # training, validation; the rest is for testing
_ROUNDS = 60
_CROWDED = "num_edges must leave most pairs of nodes without an edge"


def load(
    name: str,
    root: Path,
    *,
    num_nodes: int = 100_000,
    num_edges: int = 2_000_000,
    num_features: int = 64,
    num_classes: int = 16,
    seed: int = 0,
    noise: float = 1.0,
    homophily: float = 0.6,
    exponent: float = 2.5,
) -> Dataset:
    """A generated data set; the same options give the same data set. Nothing is read from
    `root`.

    Args:
      num_nodes, num_features, num_classes: int, positive; at least 5 nodes.
      num_edges: int, the exact number of directed edges, which must be even. Half as many pairs
        of nodes are joined, each in both directions, once, without self-loops.
      seed: int, at least 0; the seed of the generator.
      noise: the standard deviation of the features about the mean of their class. With 1 the
        features alone classify about half of the nodes (16 classes).
      homophily: the probability that an edge is drawn within a class. An edge between uniform
        nodes is within a class with probability 1 / num_classes.
      exponent: the exponent of the degrees' power law, above 2; a smaller one gives larger
        hubs.

    The split is random: 20 % train, 20 % validate, 60 % test. Raises `InputError`, at once if
    the result does not fit the memory of this machine.
    """
    counts = {"num_nodes": num_nodes, "num_features": num_features, "num_classes": num_classes}
    for key, value in counts.items():
        _require(value > 0, f"{key} must be a positive int", value)
    _require(seed >= 0, "seed must be an int of at least 0", seed)
    _require(num_nodes < 2**31 - 1, "num_nodes must fit in 31 bits", num_nodes)
    _require(num_nodes >= 5, "num_nodes must be at least 5, for a split", num_nodes)
    both_ways = "num_edges must be an even int of at least 0, for edges both ways"
    _require(num_edges >= 0 and num_edges % 2 == 0, both_ways, num_edges)
    most = max(num_nodes, 1 << 16)
    _require(num_classes <= most, f"num_classes must be at most {most}", num_classes)
    found = f"{num_edges} edges among {num_nodes} nodes"
    _require(num_edges <= num_nodes * (num_nodes - 1), _CROWDED, found)
    _require(0 <= noise < 1e6, "noise must be in [0, 1e6)", noise)
    _require(0 <= homophily <= 1, "homophily must be in [0, 1]", homophily)
    _require(2 < exponent <= 100, "exponent must be in (2, 100]", exponent)
    _check_memory(num_nodes, num_edges, num_features)

    rng = np.random.default_rng(seed)
    labels = rng.integers(num_classes, size=num_nodes, dtype=np.int32)
    # Pareto with a tail of that exponent, limited so that no node is joined to all others.
    propensity = np.minimum(
        (1 - rng.random(num_nodes)) ** (-1 / (exponent - 1)), num_nodes / 10
    )
    pairs = _pairs(rng, labels, propensity, num_edges // 2, homophily)
    graph = simple_symmetric_graph(pairs >> 32, pairs & 0xFFFFFFFF, num_nodes)

    means = _MEAN_LENGTH * _directions(rng, num_classes, num_features)
    features = rng.standard_normal((num_nodes, num_features), np.float32)
    features *= np.float32(noise)
    features += means[labels]
    order = rng.permutation(num_nodes)
    cuts = np.cumsum([int(num_nodes * part) for part in _SPLIT])
    ids = (np.sort(ids) for ids in np.split(order, cuts))
    splits = dict(zip(SPLITS, ids, strict=True))
    return Dataset.from_arrays(
        graph, features, labels, splits, name="synthetic", num_classes=num_classes
    )


def _check_memory(num_nodes: int, num_edges: int, num_features: int) -> None:
    """Raises `InputError` if the arrays of a stage exceed the memory of the machine.

    The stages are the nodes' classes and propensities, the edges' keys, and the features. A
    test measures each of them.
    """
    need = max(40 * num_nodes, 35 * num_edges, 8 * (num_features * num_nodes + num_edges))
    have = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    found = f"what takes {need / 2**30:.1f} GiB, of {have / 2**30:.1f} GiB"
    _require(need <= have, "num_nodes, num_edges and num_features must fit in memory", found)


def _pairs(rng, labels, propensity, wanted: int, homophily: float) -> np.ndarray:
    """`wanted` distinct pairs of nodes, each as a key `smaller << 32 | larger`."""
    by_class = np.argsort(labels, kind="stable")
    total = np.concatenate([[0.0], np.cumsum(propensity[by_class])])
    bound = total[np.searchsorted(labels[by_class], np.arange(labels.max() + 2))]
    found = np.empty(0, np.int64)
    for _ in range(_ROUNDS):
        if found.size >= wanted:
            # Keys are sorted, so a random subset is taken instead of the first ones.
            return np.sort(rng.choice(found, wanted, replace=False, shuffle=False))
        size = int((wanted - found.size) * 1.1) + 16
        u = _draw(rng, total, np.zeros(size), np.full(size, total[-1]))
        classes = labels[by_class[u]]
        within = rng.random(size) < homophily
        low = np.where(within, bound[classes], 0)
        high = np.where(within, bound[classes + 1], total[-1])
        u, v = by_class[u], by_class[_draw(rng, total, low, high)]
        keys = np.minimum(u, v) << 32 | np.maximum(u, v)
        found = np.union1d(found, keys[u != v])
    value = f"{2 * wanted} edges among {labels.size} nodes"
    raise InputError(f"synthetic: {_CROWDED}", value, "Ask for fewer edges or more nodes.")


def _draw(rng, total: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Positions drawn with the increments of `total`, of which the values are bounded."""
    at = low + rng.random(low.size) * (high - low)
    return np.clip(np.searchsorted(total, at, side="right") - 1, 0, total.size - 2)


def _directions(rng, num_classes: int, num_features: int) -> np.ndarray:
    """Unit vectors float32 `[num_classes, num_features]`, orthogonal if they can be."""
    normal = rng.standard_normal((num_features, num_classes))
    if num_classes <= num_features:
        return np.linalg.qr(normal)[0].T.astype(np.float32)
    return (normal / np.linalg.norm(normal, axis=0)).T.astype(np.float32)


def _require(holds: bool, rule: str, value: object) -> None:
    if not holds:
        raise InputError(f"synthetic: {rule}", value, "Correct the option.")
