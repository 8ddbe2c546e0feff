"""What training costs on many machines: memory, bytes and time, by formulas.

`cost` puts together what a rank's batch draws (`Draw`: measured by `jgs.plan.trial`, or
expected of a graph of published size by `jgs.plan.shapes`), the speed of a machine
(`Constants`: `jgs.plan.calibrate`) and a network. Bytes are those of `Counters`: what one rank
sends, padding included. docs/scaling.md explains the formulas and compares them with runs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from jgs.sampling import Neighbors
from jgs.sampling.capacity import round_up

MODES = ("vanilla", "hybrid", "cached")
PREFETCH = 2  # batches drawn ahead, `jgs.train`'s default
EVAL_MEMORY = 256 << 20  # `jgs.train`'s default
# By communicator, how much of that its pieces take; measured, see docs/scaling.md. gloo's
# programs copy what they exchange.
_EVAL_PIECES = {"mpi": 1.75, "jax": 3.5}
_PADDING = 1.08  # of a planned capacity: 5 % of margin, and rounding up to 16 steps


class Workload(NamedTuple):
    """A graph and what is trained on it.

    Fields:
      name: of the data set.
      num_nodes, num_edges: `N` and `E`, edges as stored: both directions of a symmetric graph.
      num_features, itemsize: `F`, and the bytes of one number as it is stored.
      num_classes, num_seeds: `C`, and the training nodes.
      batch_size: `B`, a rank's seeds in a batch.
      sampler: a by-node `Sampler`, of a hop a layer.
      hidden: width of the hidden layers.
      wire: bytes of one number on its way.
      weighted: whether edges have weights.
      comm: "mpi" or "jax", what `jgs.train`'s `--comm` is.
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
        """Of the layers, from the features to the classes."""
        return [
            self.num_features,
            *[self.hidden] * (self.sampler.num_hops - 1),
            self.num_classes,
        ]


class Draw(NamedTuple):
    """What the batches of one of `R` ranks draw, an entry for each of `L` hops, seeds' first.

    Fields:
      edges, sources: on average, edges drawn and nodes known after the hop.
      asked_nodes, asked_edges: in vanilla mode, of the hops after the first: the most nodes
        that a rank asks one other for in a batch, and the most edges of the answer.
      asked_rows: the most feature rows that a rank will ask one other for in a batch (see
        `jgs.dist.demand`).
      cache_rows: rows of other ranks that a planned cache keeps.
      hit: the share of an epoch's remote rows that it serves.
      share: how large the largest rank's part of the nodes is, 1 / R where even.
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
    """How fast a machine is, one rank on it.

    Fields:
      edge_seconds: of sampling, an edge, relabelling included (the fused kernel).
      vanilla_edge_seconds: likewise, hop by hop, drawing and relabelling apart.
      row_bandwidth: bytes a second of feature rows read at random and written.
      flops: floating-point operations a second of the whole training step, as `step_flops`
        counts them.
      process_bytes: memory of a process but for its data: Python, JAX, MPI and compiled
        programs (measured with 2 ranks on a graph of 512 nodes).
    """

    edge_seconds: float
    vanilla_edge_seconds: float
    row_bandwidth: float
    flops: float
    process_bytes: float = 5.4e8


class Network(NamedTuple):
    """`bandwidth` in bytes a second and direction, `latency` in seconds a round."""

    bandwidth: float
    latency: float


class Cost(NamedTuple):
    """Of one rank.

    Fields:
      memory: bytes by what takes them; resident in full, though topology and features are
        memory-mapped and may stay on the disk in part.
      rounds, bytes: of a step, the gradients' all_reduce included.
      epoch_rounds, epoch_bytes: beside the steps', to fill a cache.
      steps: of an epoch.
      cpu_seconds: of a step by part: sampling, features, computing.
      network_seconds: of a step.
      epoch_seconds: network after computing, nothing overlapped.
      overlapped_seconds: of an epoch whose batches are drawn and fetched while the step before
        computes, on the same cores: the longer of computing and the network, and the
        all_reduce, which nothing overlaps.
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
    """What `mode`, one of `MODES`, costs each of `ranks` ranks, one a machine."""
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
        # A cache is filled in rounds of as many rows of every owner as a step asks for.
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
    """What `jgs.dist.plan.request_capacity` makes of the most rows asked of one rank."""
    return -(-math.ceil(most) // 64) * 64


def feature_bytes(ranks: int, rows: int, width: int, itemsize: int) -> float:
    """A request of ids and one number, and a reply of rows, to each other rank."""
    return (ranks - 1) * (4 * (rows + 1) + rows * width * itemsize)


def vanilla_rows(nodes: Sequence[float], edges: Sequence[float]) -> tuple[list[int], list[int]]:
    """What `VanillaSampler.plan` makes of the most nodes and edges asked of one rank."""
    planned = [[round_up(int(n * 1.1) + 1) for n in each] for each in (nodes, edges)]
    return planned[0], planned[1]


def vanilla_bytes(ranks: int, nodes: Sequence[int], edges: Sequence[int]) -> float:
    """Of each hop after the first a request of ids and one number, and a reply of two numbers,
    where each node's neighbours end, and the neighbours."""
    each = [4 * (1 + n) + 4 * (2 + n + e) for n, e in zip(nodes, edges, strict=True)]
    return (ranks - 1) * sum(each)


def reduce_bytes(ranks: int, parameters: int) -> float:
    """float32 gradients, loss, seeds and stop, each sent twice but for the own share."""
    return 2 * 4 * (parameters + 3) * (ranks - 1) // ranks


# -- computing --------------------------------------------------------------------------------


def num_parameters(widths: Sequence[int]) -> int:
    """Of a GraphSAGE: two matrices and a bias a layer."""
    return sum(2 * a * b + b for a, b in pairwise(widths))


def step_flops(work: Workload, draw: Draw) -> float:
    """Multiplications and additions of a step: forward, and backward for weights and (but in
    the first layer) inputs; an aggregated number counts as one."""
    total = 0.0
    for layer, targets, sources, edges, a, b in _layers(work, draw):
        passes = 2 if layer == 0 else 3
        if a > b:  # projects the sources first: narrower rows are aggregated
            total += passes * 2 * a * b * (targets + sources) + 2 * edges * b
        else:
            total += passes * 2 * a * b * 2 * targets + (1 if layer == 0 else 2) * edges * a
    return total


def _layers(work: Workload, draw: Draw) -> list[tuple]:
    """Of each layer, input side first: number, targets, sources, edges, width in and out."""
    targets = (work.batch_size, *draw.sources[:-1])
    hops = list(zip(targets, draw.sources, draw.edges, strict=True))[::-1]
    widths = pairwise(work.widths)
    return [(i, *hop, *w) for i, (hop, w) in enumerate(zip(hops, widths, strict=True))]


# -- memory -----------------------------------------------------------------------------------


def memory(
    work: Workload, draw: Draw, constants: Constants, ranks: int, mode: str, rows: int
) -> dict[str, float]:
    """Bytes by what takes them; `rows` is the most rows asked of one rank in a round."""
    share = draw.share if mode == "vanilla" else 1.0
    edge = 4 + (12 if work.weighted else 0)  # a weight, and its prefix sum in 64 bits
    width, nodes = work.num_features, work.num_nodes
    layers = _layers(work, draw)
    blocks = sum(4 * (t + e) for _, t, _, e, _, _ in layers)
    # With each node where its row is, and the rows that others sent; no matrix of all rows.
    batch = _PADDING * (blocks + draw.sources[-1] * (4 + 4)) + (ranks - 1) * rows * 4 * width
    # Of each layer what it aggregates and returns, and the derivative of the latter.
    step = _PADDING * sum(
        4 * (t * (2 * b + a) if a <= b else t * 2 * b + s * 2 * b)
        for _, t, s, _, a, b in layers
    )
    cached = mode == "cached"
    return {
        "topology": 8 * (nodes + 1) + share * edge * work.num_edges,
        "features": draw.share * nodes * width * work.itemsize,
        "labels": 4 * nodes,
        # The rows, where each node's is, and the counts while it is planned.
        "cache": draw.cache_rows * width * 4 + 8 * nodes if cached else 0.0,
        "exchange": 2 * feature_bytes(ranks, rows, width, work.wire),
        "batches": (PREFETCH + 2) * batch,
        "step": step,
        "model": 6 * 4 * num_parameters(work.widths),
        # Its pieces, and two layers' outputs as far as they do not lie in a file.
        "evaluation": _EVAL_PIECES[work.comm] * EVAL_MEMORY
        + 2 * min(4 * draw.share * nodes * max(work.widths[1:]), EVAL_MEMORY),
        "process": constants.process_bytes,
    }
