"""The draws expected of a batch on graphs of which only the published size is known.

A graph is assumed to be random except for its degrees, which are log-normal with the published
mean. A drawn neighbour is a node with a probability in proportion to its degree, whichever node
draws it. Real graphs have communities, so a batch meets fewer distinct nodes there.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import scipy

from benchmarks.plan.cost import Draw, Workload

SIGMA = 1.2  # standard deviation of the logarithm of degrees
_CLASSES = 400
_TRIALS = 8  # the number of batches over which `request_capacities` takes the maximum


# All edges count in both directions. Node types are ignored: every node has a feature row.
_PUBLISHED = (
    # Hu et al., "Open Graph Benchmark" (2020): 1,615,685,872 citations.
    Workload("ogbn-papers100M", 111_059_956, 2 * 1_615_685_872, 128, 4, 172, 1_207_179),
    # Hu et al., "OGB-LSC" (2021): papers, authors and institutions; citations, authorships and
    # affiliations. Only the papers' features are published; OGB's baseline makes the others.
    Workload(
        "MAG240M",
        121_751_666 + 122_383_112 + 25_721,
        2 * (1_297_748_926 + 386_022_720 + 44_592_586),
        768,
        2,
        153,
        1_112_392,
    ),
    # Khatua et al., "IGB" (2023): all node types. 60 % of the 157,675,969 papers with one of
    # 2,983 labels are for training (IGB's `dataloader.py`).
    Workload("IGBH-full", 547_306_935, 2 * 5_812_005_639, 1024, 4, 2983, 157_675_969 * 6 // 10),
)
SHAPES = {work.name: work for work in _PUBLISHED}


class Degrees(NamedTuple):
    """Classes of nodes of equal degree.

    Fields:
      nodes: float `[K]`, the number of nodes in each class.
      degree: float `[K]`, the degree of these nodes.
    """

    nodes: np.ndarray
    degree: np.ndarray


def lognormal_degrees(num_nodes: int, num_edges: int, sigma: float = SIGMA) -> Degrees:
    """Log-normal degrees with the mean `num_edges / num_nodes`; `sigma` is the standard
    deviation of their logarithm."""
    z = np.linspace(-5, 5.5, _CLASSES)
    weight = np.exp(-(z**2) / 2)
    nodes = num_nodes * weight / weight.sum()
    degree = np.exp(sigma * z)
    return Degrees(nodes, degree * num_edges / (nodes @ degree))


def expected_draw(
    work: Workload, degrees: Degrees, ranks: int, cache_rows: int = 0, cut: float = 1.0
) -> Draw:
    """The expected `Draw`: means, and the maxima over the few batches from which jgs plans.

    Args:
      work: the graph and the training.
      degrees: the degrees of the graph's nodes.
      ranks: the number `R` of ranks, which have equal parts.
      cache_rows: the number of rows that a rank may keep.
      cut: the share of remote nodes as a fraction of a random partition's `1 - 1/R`.
    """
    remote = cut * (1 - 1 / ranks)
    # The probability that a batch has met a node of each class. Seeds are drawn like any node.
    met = np.full(len(degrees.nodes), min(1.0, work.batch_size / work.num_nodes))
    edges, sources = [], []
    asked_nodes, asked_edges = [], []
    for hop in range(work.sampler.num_hops):
        drawn = work.sampler.expected_draws(hop, degrees.degree)
        frontier = degrees.nodes * met
        if hop > 0:
            most = _most(frontier.sum() * remote / max(1, ranks - 1), ranks)
            asked_nodes.append(most)
            asked_edges.append(most * float(frontier @ drawn / frontier.sum()))
        edges.append(float(frontier @ drawn))
        met = 1 - (1 - met) * np.exp(-edges[-1] * degrees.degree / work.num_edges)
        sources.append(float(degrees.nodes @ met))
    steps = max(1, math.ceil(work.num_seeds / (work.batch_size * ranks)))
    kept, hit = _planned_hits(degrees.nodes * remote, met, steps, cache_rows)
    rows = 1.03 * _most(sources[-1] * remote / max(1, ranks - 1), ranks)
    return Draw(
        tuple(edges),
        tuple(sources),
        tuple(asked_nodes),
        tuple(asked_edges),
        rows,
        kept,
        hit,
        1 / ranks,
    )


def _most(mean: float, ranks: int) -> float:
    """The expected largest of the Poisson numbers with this mean that all pairs of ranks have
    in the batches of a plan."""
    return mean + math.sqrt(2 * mean * math.log(max(2, _TRIALS * ranks * (ranks - 1))))


def _planned_hits(
    nodes: np.ndarray, met: np.ndarray, steps: int, cache_rows: int
) -> tuple[int, float]:
    """The number of kept rows, those that `steps` batches read most often, and their share of
    all reads. A node that a batch meets with probability `p` is read `Binomial(steps, p)`
    times."""
    total = float(nodes @ met) * steps

    def often(count: int) -> float:
        """The expected number of nodes that are read `count` times or more."""
        return float(nodes @ scipy.stats.binom.sf(count - 1, steps, met))

    low, high = 1, steps + 1  # brackets the smallest count whose nodes all fit
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if often(middle) <= cache_rows else (middle + 1, high)
    kept = often(low)
    reads = float((nodes * met * steps) @ scipy.stats.binom.sf(low - 2, steps - 1, met))
    if low > 1:  # there is room for some of the nodes that are read once less
        more = min(cache_rows - kept, often(low - 1) - kept)
        kept, reads = kept + more, reads + more * (low - 1)
    return int(kept), min(1.0, reads / total) if total else 0.0
