"""The cost model: formulas for memory, bytes and time of training on many machines.

`cost` combines three things: what a rank's batch draws (`Draw`), the speed of a machine
(`Constants`, measured by `calibrate`) and a network (`Network`). A `Draw` is measured by
`trial`, or computed by `shapes` for a graph of published size. Bytes are counted as in
`Counters`: what one rank sends, padding included. docs/scaling.md explains the
formulas and compares them with runs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from jgs.sampling import Neighbors
from jgs.sampling.capacity import round_up

MODES = ("vanilla", "hybrid", "cached")
PREFETCH = 2  # batches drawn ahead: the default of `jgs.train`
EVAL_MEMORY = 256 << 20  # bytes: the default of `jgs.train`
TRIAL_CACHE = 64 << 20  # bytes that the trial cache takes at most: the default of `jgs.train`
# The memory of evaluation's pieces, by communicator, as a multiple of EVAL_MEMORY. Measured,
# see docs/scaling.md. gloo's programs copy what they exchange.
_EVAL_PIECES = {"mpi": 1.75, "jax": 3.5}
_PADDING = 1.08  # of a planned capacity: 5 % of margin, and rounding up to 16 steps


class Workload(NamedTuple):
    """A graph, and the training on it.

    Fields:
      name: name of the data set.
      num_nodes: the number `N` of nodes.
      num_edges: the number `E` of stored edges: both directions in a symmetric graph.
      num_features: width `F` of the features.
      itemsize: bytes of one stored feature.
      num_classes: the number `C` of classes.
      num_seeds: the number of training nodes.
      batch_size: the number `B` of a rank's seeds in a batch.
      sampler: a by-node `Sampler` with one hop for each layer.
      hidden: width of the hidden layers.
      wire: bytes of one feature when ranks send it.
      weighted: whether edges have weights.
      comm: "mpi" or "jax", the `--comm` of `jgs.train`.
    """

    name: str
    num_nodes: int
    num_edges: int
    num_features: int
    itemsize: int
    num_classes: int
    num_seeds: int
    batch_size: int = 1000
    sampler: Any = Neighbors((5, 10, 15))
    hidden: int = 256
    wire: int = 4
    weighted: bool = False
    comm: str = "mpi"

    @property
    def widths(self) -> list[int]:
        """The widths of the layers' rows, from the features to the classes: one more than there
        are layers."""
        return [
            self.num_features,
            *[self.hidden] * (self.sampler.num_hops - 1),
            self.num_classes,
        ]


class Draw(NamedTuple):
    """What the batches of one of `R` ranks draw. Tuples have an entry for each of `L` hops,
    seeds' hop first.

    Fields:
      edges: the mean number of edges drawn in the hop.
      sources: the mean number of distinct nodes after the hop.
      asked_nodes: for vanilla mode, in each hop after the first the largest number of nodes
        about which a rank asks one other rank in a batch.
      asked_edges: likewise the largest number of edges in one answer.
      asked_rows: the largest number of feature rows that a rank asks one other rank for in a
        batch (see `jgs.dist.rows.owners`).
      cache_rows: the number of other ranks' rows that a planned cache keeps.
      hit: the share of an epoch's remote rows that the cache serves.
      share: the largest rank's share of the nodes; `1 / R` in an even partition.
    """

    edges: tuple[float, ...]
    sources: tuple[float, ...]
    asked_nodes: tuple[float, ...]
    asked_edges: tuple[float, ...]
    asked_rows: float
    cache_rows: int
    hit: float
    share: float


class Constants(NamedTuple):
    """How fast a machine with one rank is.

    Fields:
      edge_seconds: seconds of sampling for each edge by the fused kernel, with relabelling.
      vanilla_edge_seconds: the same where each hop is drawn and relabelled by itself.
      row_bandwidth: bytes of feature rows that are read at random and written in a second.
      flops: floating-point operations in a second of the whole training step, as `step_flops`
        counts them.
      process_bytes: memory of a process without its data: Python, JAX, MPI and compiled
        programs (measured with 2 ranks on a graph of 512 nodes).
    """

    edge_seconds: float
    vanilla_edge_seconds: float
    row_bandwidth: float
    flops: float
    process_bytes: float = 5.4e8


class Network(NamedTuple):
    """A network: its `bandwidth` in bytes per second in each direction, and its `latency` in
    seconds per round."""

    bandwidth: float
    latency: float


class Cost(NamedTuple):
    """What training costs one rank.

    Fields:
      memory: bytes, by what takes them. All of it counts as resident, although topology and
        features are memory-mapped and may partly stay on the disk.
      rounds, bytes: rounds and bytes of a step, with the gradients' all_reduce.
      epoch_rounds, epoch_bytes: what filling a cache adds to the steps' in an epoch.
      steps: steps of an epoch.
      cpu_seconds: seconds of a step by part: sampling, features, computing.
      network_seconds: seconds of a step on the network.
      epoch_seconds: seconds of an epoch if nothing overlaps.
      overlapped_seconds: seconds of an epoch if batches are drawn and fetched during the step
        before, on the same cores. For each step it is the longer of computing and the network,
        plus the all_reduce, which nothing overlaps.
    """

    memory: dict[str, float]
    rounds: int
    bytes: float
    epoch_rounds: int
    epoch_bytes: float
    steps: int
    cpu_seconds: dict[str, float]
    network_seconds: float
    epoch_seconds: float
    overlapped_seconds: float


def cost(
    work: Workload, draw: Draw, constants: Constants, network: Network, ranks: int, mode: str
) -> Cost:
    """The cost of training in `mode`, one of `MODES`, for each of `ranks` ranks, one on each
    machine."""
    cached = mode == "cached"
    rows = request_rows(draw.asked_rows * (1 - draw.hit if cached else 1))
    fetch = feature_bytes(ranks, rows, work.num_features, work.wire)
    rounds, background = 2, fetch
    if mode == "vanilla":
        background += vanilla_bytes(ranks, *vanilla_rows(draw.asked_nodes, draw.asked_edges))
        rounds += 2 * len(draw.asked_nodes)
    reduce = reduce_bytes(ranks, num_parameters(work.widths))
    if ranks == 1:
        rounds = fills = 0
    else:
        # A cache is filled in rounds; each takes from every owner as many rows as a step does.
        fills = math.ceil(draw.cache_rows / max(rows, 1)) if cached else 0
    edge_seconds = (
        constants.vanilla_edge_seconds if mode == "vanilla" else constants.edge_seconds
    )
    moved = (draw.sources[-1] + (ranks - 1) * rows) * work.num_features * 4
    cpu = {
        "sampling": sum(draw.edges) * edge_seconds,
        "features": moved / constants.row_bandwidth,
        "computing": step_flops(work, draw) / constants.flops,
    }
    waiting = rounds * network.latency + background / network.bandwidth
    reducing = (network.latency if ranks > 1 else 0) + reduce / network.bandwidth
    num_steps = math.ceil(work.num_seeds / (work.batch_size * ranks))
    filling = 2 * fills * network.latency + fills * fetch / network.bandwidth
    replay = num_steps * cpu["sampling"] if cached else 0.0
    computing = sum(cpu.values())
    return Cost(
        memory=memory(work, draw, constants, ranks, mode, rows),
        rounds=rounds + (ranks > 1),
        bytes=background + reduce,
        epoch_rounds=2 * fills,
        epoch_bytes=fills * fetch,
        steps=num_steps,
        cpu_seconds=cpu,
        network_seconds=waiting + reducing,
        epoch_seconds=num_steps * (computing + waiting + reducing) + filling + replay,
        overlapped_seconds=num_steps * (max(computing, waiting) + reducing) + filling + replay,
    )


# -- bytes ------------------------------------------------------------------------------------


def request_rows(most: float) -> int:
    """The capacity of requests that `jgs.dist.batches.plan.request_capacities` plans for at
    most `most` rows asked of one rank."""
    return -(-math.ceil(most) // 64) * 64


def feature_bytes(ranks: int, rows: int, width: int, itemsize: int) -> float:
    """Bytes that a rank sends to all others in an exchange of `rows` rows with each: requests
    of ids and one number, and replies of rows."""
    return (ranks - 1) * (4 * (rows + 1) + rows * width * itemsize)


def vanilla_rows(nodes: Sequence[float], edges: Sequence[float]) -> tuple[list[int], list[int]]:
    """The capacities that `VanillaSampler.plan` plans for at most so many nodes and edges asked
    of one rank."""
    planned = [[round_up(int(n * 1.1) + 1) for n in each] for each in (nodes, edges)]
    return planned[0], planned[1]


def vanilla_bytes(ranks: int, nodes: Sequence[int], edges: Sequence[int]) -> float:
    """Bytes that a rank sends to draw in vanilla mode. In each hop after the first a request
    has ids and one number. A reply has two numbers, the end of each node's neighbours, and the
    neighbours."""
    each = [4 * (1 + n) + 4 * (2 + n + e) for n, e in zip(nodes, edges, strict=True)]
    return (ranks - 1) * sum(each)


def reduce_bytes(ranks: int, parameters: int) -> float:
    """Bytes of the all_reduce. The gradients, the loss, the number of seeds and `stop` are
    float32, and a rank sends all of them twice, without its own share."""
    return 2 * 4 * (parameters + 3) * (ranks - 1) // ranks


# -- computing --------------------------------------------------------------------------------


def num_parameters(widths: Sequence[int]) -> int:
    """The number of parameters of a GraphSAGE: two matrices and a bias for each layer."""
    return sum(2 * a * b + b for a, b in pairwise(widths))


def step_flops(work: Workload, draw: Draw) -> float:
    """Multiplications and additions of a step: forward, backward for the weights, and backward
    for the inputs of all layers but the first. An aggregated number counts as one operation."""
    total = 0.0
    for layer, targets, sources, edges, a, b in _layers(work, draw):
        passes = 2 if layer == 0 else 3
        if a > b:  # the layer projects the sources first, to aggregate narrower rows
            total += passes * 2 * a * b * (targets + sources) + 2 * edges * b
        else:
            total += passes * 2 * a * b * 2 * targets + (1 if layer == 0 else 2) * edges * a
    return total


def _layers(work: Workload, draw: Draw) -> list[tuple]:
    """For each layer, input side first: its number, targets, sources, edges, and the widths of
    its input and output."""
    targets = (work.batch_size, *draw.sources[:-1])
    hops = list(zip(targets, draw.sources, draw.edges, strict=True))[::-1]
    widths = pairwise(work.widths)
    return [(i, *hop, *w) for i, (hop, w) in enumerate(zip(hops, widths, strict=True))]


# -- memory -----------------------------------------------------------------------------------


def memory(
    work: Workload, draw: Draw, constants: Constants, ranks: int, mode: str, rows: int
) -> dict[str, float]:
    """Bytes, by what takes them. `rows` is the largest number of rows asked of one rank in a
    round."""
    share = draw.share if mode == "vanilla" else 1.0
    edge = 4 + (12 if work.weighted else 0)  # 12: a weight, and its prefix sum in 64 bits
    width, nodes = work.num_features, work.num_nodes
    layers = _layers(work, draw)
    blocks = sum(4 * (t + e) for _, t, _, e, _, _ in layers)
    # For each node the place of its row, and the rows that others sent; no matrix of all rows.
    batch = _PADDING * (blocks + draw.sources[-1] * (4 + 4)) + (ranks - 1) * rows * 4 * width
    # For each layer what it aggregates and returns, and the derivative by what it returns.
    step = _PADDING * sum(
        4 * (t * (2 * b + a) if a <= b else t * 2 * b + s * 2 * b)
        for _, t, s, _, a, b in layers
    )
    places = 4 * nodes if ranks > 1 else 0  # of the nodes' rows in the cache
    if mode == "cached":
        cache = draw.cache_rows * width * 4 + 4 * nodes  # 4: counts while the cache is planned
    else:  # the default: the rows that trial batches read most
        cache = min((ranks - 1) * rows * width * 4, TRIAL_CACHE)
    return {
        "topology": 8 * (nodes + 1) + share * edge * work.num_edges,
        "features": draw.share * nodes * width * work.itemsize,
        "labels": 4 * nodes,
        "cache": cache + places,
        "exchange": 2 * feature_bytes(ranks, rows, width, work.wire),
        "batches": (PREFETCH + 2) * batch,
        "step": step,
        "model": 6 * 4 * num_parameters(work.widths),
        # The pieces, and the outputs of two layers unless they lie in a file.
        "evaluation": _EVAL_PIECES[work.comm] * EVAL_MEMORY
        + 2 * min(4 * draw.share * nodes * max(work.widths[1:]), EVAL_MEMORY),
        "process": constants.process_bytes,
    }
