"""`--this-machine --feature-memory MIB`: training on one machine with features on disk.

Batches are drawn, and the plan of `DiskRows` passes over their nodes; no row is read. So the
rows that a run lacks are counted, those of its first epoch if that has no more batches. For a
graph of which only the published size is known, a smaller graph is drawn: each node is in a
batch with the probability that its degree gives, see `benchmarks.plan.shapes`, and all numbers
are scaled to the whole graph.
"""

from __future__ import annotations

import math
import tempfile
import time
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from benchmarks import build, disk
from benchmarks.plan import cost
from benchmarks.plan.cost import Constants, Draw, Workload
from benchmarks.plan.shapes import Degrees, expected_draw, lognormal_degrees
from jgs.files import row_file
from jgs.graph import Graph
from jgs.sampling import Loader
from jgs.sampling.capacity import round_up
from jgs.sampling.loading.disk_rows import WINDOW
from jgs.sampling.loading.disk_source import _FIRST_BLOCK, _GROWTH
from jgs.sampling.loading.disk_table import row_pool

_PROCESS = 350e6  # bytes of Python, JAX, Orbax and programs: what runs took beside the rest
_PACKING = 26  # bytes for each row of a block, while it is packed: ids, steps, and their order
_SIMULATED = 1 << 20  # nodes of the graph that stands for a published one
_ALIGN = 512  # bytes: requests begin and end at multiples
_FILE = 256 << 20  # bytes of a file that shows how fast a disk is


class Reads(NamedTuple):
    """What steps read and write, the means of a step, from an empty memory on.

    Fields:
      steps: how many were simulated.
      rows: those that a step needs.
      missing: those that are not in memory; `later`: the same in the second half of the steps.
      most, most_of_block: the largest number of missing rows of a step, and of a block.
      requests, bytes: by which they are read from the features.
      written: bytes in the scratch file, which are read from there as well.
      planning: seconds of the processor for planning which rows stay, and for packing.
    """

    steps: int
    rows: float
    missing: float
    later: float
    most: int
    most_of_block: int
    requests: float
    bytes: float
    written: float
    planning: float

    def scaled(self, by: float) -> Reads:
        return Reads(self.steps, *(by * number for number in self[1:]))  # type: ignore[arg-type]


class Disk(NamedTuple):
    """How fast a disk is: bytes a second in order, and requests of 4 KiB a second at random."""

    read: float
    write: float
    requests: float


# -- what steps read ---------------------------------------------------------------------------


def drawn(
    work: Workload, graph: Graph, seeds: np.ndarray, most: int
) -> Iterator[tuple[np.ndarray, list[tuple[int, int]]]]:
    """For each of the first `most` batches of an epoch its nodes, and the edges and nodes after
    each hop."""
    size = min(work.batch_size, len(seeds))
    with Loader(graph, seeds, size, work.sampler, key=jax.random.key(0)) as loader:
        for number, batch in enumerate(loader):
            counts = [(int(b.num_edges), int(b.num_sources)) for b in batch.blocks[::-1]]
            nodes = np.asarray(batch.nodes)
            yield nodes[nodes < work.num_nodes], counts
            if number + 1 == most:
                return


def expected(degrees: Degrees, work: Workload, most: int) -> tuple[Draw, float, Iterator[Any]]:
    """The `Draw` of a graph with these degrees, how many of its nodes each node of a smaller
    graph stands for, and nodes of that one that are in `most` batches."""
    draw, rng = expected_draw(work, degrees, 1), np.random.default_rng(0)
    scale = max(1.0, work.num_nodes / _SIMULATED)
    counts = np.round(degrees.nodes / scale).astype(np.int64)
    # The last hop's nodes, which `expected_draw` counts, as one draw for each edge.
    met = np.full(len(degrees.nodes), min(1.0, work.batch_size / work.num_nodes))
    for edges in draw.edges:
        met = 1 - (1 - met) * np.exp(-edges * degrees.degree / work.num_edges)
    chance = rng.permutation(np.repeat(met, counts))

    def batches() -> Iterator[np.ndarray]:
        for _ in range(most):
            yield np.flatnonzero(rng.random(chance.size) < chance).astype(np.int32)

    return draw, work.num_nodes / chance.size, batches()


def simulated(
    batches: Iterable[np.ndarray], num_rows: int, capacity: int, row_bytes: int, block: int
) -> Reads:
    """What `DiskRows` reads for batches with these nodes, as it plans it."""
    rows, missing, costs, blocks, planning = 0, [], [], [0], 0.0
    held: list[np.ndarray] = []

    def pack() -> None:
        nonlocal planning
        began = time.perf_counter()
        costs.append(_packed(held, row_bytes))
        blocks.append(sum(each.size for each in held))
        held.clear()
        planning += time.perf_counter() - began

    size = min(_FIRST_BLOCK, block)
    for needed, lacking, spent in _missing(batches, num_rows, capacity):
        rows, planning = rows + needed, planning + spent
        missing.append(lacking.size)
        if not block:
            costs.append((*_requests(lacking, row_bytes), 0))
            continue
        held.append(lacking)
        if len(held) == size:
            pack()
            size = min(_GROWTH * size, block)
    if held:
        pack()
    steps = len(missing)
    requests, read, written = np.sum(costs, axis=0) / steps
    later = float(np.mean(missing[steps // 2 :]))
    return Reads(
        steps,
        rows / steps,
        float(np.mean(missing)),
        later,
        max(missing),
        max(blocks),
        float(requests),
        float(read),
        float(written),
        planning / steps,
    )


def _missing(
    batches: Iterable[np.ndarray], num_rows: int, capacity: int
) -> Iterator[tuple[int, np.ndarray, float]]:
    """For each batch the number of its nodes, those whose rows are not in memory, and the
    seconds of planning."""
    pool = row_pool(num_rows, capacity, np.zeros(0, np.int32))
    known, seen, passed, spent = deque[np.ndarray](), 0, 0, 0.0
    for nodes in chain(batches, [None]):
        began = time.perf_counter()
        if nodes is not None:
            pool.see(nodes, seen)
            known.append(nodes)
            seen += 1
        spent += time.perf_counter() - began
        while known and (nodes is None or seen > passed + WINDOW):
            first, began = known.popleft(), time.perf_counter()
            missing = pool.take(first, passed).missing.copy()
            yield first.size, missing, spent + time.perf_counter() - began
            passed, spent = passed + 1, 0.0


def _requests(rows: np.ndarray, row_bytes: int) -> tuple[int, int]:
    """By how many requests ascending rows are read, and their bytes."""
    if not rows.size:
        return 0, 0
    begin = rows.astype(np.int64) * row_bytes
    far = np.flatnonzero(np.diff(begin) - row_bytes > row_file._GAP)
    first = begin[np.r_[0, far + 1]] // _ALIGN * _ALIGN
    last = begin[np.r_[far, rows.size - 1]] + row_bytes
    sizes = -(-last // _ALIGN) * _ALIGN - first
    return int(np.sum(-(-sizes // row_file._MOST))), int(sizes.sum())


def _packed(steps: list[np.ndarray], row_bytes: int) -> tuple[int, int, int]:
    """Requests and bytes that a block reads from the features, and the bytes that it writes, as
    `PackedRows` does."""
    rows = np.concatenate(steps)
    step = np.repeat(np.arange(len(steps)), [each.size for each in steps])
    order = np.argsort(rows, kind="stable")
    rows, step, written = rows[order], step[order], 0
    size = max(1, row_file._CHUNK // row_bytes)
    for begin in range(0, rows.size, size):
        counts = np.bincount(step[begin : begin + size]) * row_bytes
        written += int((-(-counts // row_file._ALIGN) * row_file._ALIGN).sum())
    return *_requests(np.unique(rows), row_bytes), written


# -- memory and time ---------------------------------------------------------------------------


def memory(
    work: Workload, draw: Draw, reads: Reads, capacity: int, block: int, labels: int
) -> dict[str, float]:
    """Bytes of private memory while batches are trained on, by what takes them. Topology and
    labels in files are mapped, and not counted. Judging the model takes `--eval-memory`."""
    pad, wide = cost._PADDING, 4 * work.num_features
    row_bytes = work.num_features * work.itemsize
    layers = cost._layers(work, draw)
    _, targets, sources, edges, *_ = layers[0]
    batch = pad * 4 * (sources + sum(t + e for _, t, _, e, *_ in layers))
    window = WINDOW + 1
    # The first layer's input: each target's own row, and the mean of its neighbours'.
    inputs = (cost.PREFETCH + 2) * pad * 2 * targets * wide
    if work.itemsize != 4:  # no kernel reads such rows: those of all edges are made
        inputs += pad * edges * wide
    step = pad * sum(
        4 * (t * (2 * b + a) if a <= b else t * 2 * b + s * 2 * b)
        for _, t, s, _, a, b in layers
    )
    return {
        "rows that stay": capacity * row_bytes,
        "plan of rows": 8 * work.num_nodes + 12 * capacity,
        "rows a step lacks": round_up(int(reads.most * 9 / 8) + 1) * row_bytes,
        "packing": _PACKING * reads.most_of_block + 2 * row_file._CHUNK if block else 0,
        "known batches": window * (pad * 4 * sources + (0 if block else batch)),
        "batches": (cost.PREFETCH + 4) * batch,
        "inputs": inputs,
        "step": step,
        "labels": labels,
        "model": 6 * 4 * cost.num_parameters(work.widths),
        "process": _PROCESS,
    }


def seconds(
    work: Workload, draw: Draw, reads: Reads, constants: Constants, speed: Disk, block: int
) -> dict[str, float]:
    """Seconds of a step by what takes them. Reading goes on while the processor works."""
    if block:
        reading = (reads.bytes + reads.written) / speed.read + reads.written / speed.write
    else:
        reading = max(reads.requests / speed.requests, reads.bytes / speed.read)
    moved = 4 * work.num_features * draw.sources[-1]
    return {
        "disk": reading,
        "planning": reads.planning,
        "sampling": sum(draw.edges) * constants.edge_seconds,
        "features": moved / constants.row_bandwidth,
        "computing": cost.step_flops(work, draw) / constants.flops,
    }


def disk_speed(features: Path | None) -> Disk:
    """The speed of the disk of this file, or of a new one in the temporary folder."""
    with tempfile.TemporaryDirectory(prefix="jgs-plan-") as folder:
        own = Path(folder) / "speed"
        write, _ = build.disk(own, _FILE)
        if features is None or features.stat().st_size < _FILE:
            features = own
            own.write_bytes(bytes(_FILE))
        read, requests = disk.speeds(features, seconds=2)
    return Disk(read, write, requests)


# -- the result --------------------------------------------------------------------------------


def result(
    work: Workload,
    draw: Draw,
    reads: Reads,
    constants: Constants,
    speed: Disk,
    options: dict[str, Any],
    labels: int,
) -> dict[str, Any]:
    """What the command prints, by name."""
    capacity, block = capacity_of(work, options), options["feature_block"]
    sizes = memory(work, draw, reads, capacity, block, labels)
    times = seconds(work, draw, reads, constants, speed, block)
    bounds = {"disk": times["disk"], "processor": sum(times.values()) - times["disk"]}
    edge = 4 + (12 if work.weighted else 0)
    return {
        "workload": work._asdict() | {"sampler": repr(work.sampler)},
        "constants": constants._asdict(),
        "disk": speed._asdict(),
        "reads": reads._asdict(),
        "memory": {name: round(size) for name, size in sizes.items()},
        "memory_total": round(sum(sizes.values())),
        "mapped": 8 * (work.num_nodes + 1) + edge * work.num_edges + 4 * work.num_nodes,
        "disk_rows": reads.missing,
        "seconds": times,
        "bounds": {name: 1 / max(each, 1e-9) for name, each in bounds.items()},
        "binds": max(bounds, key=bounds.__getitem__),
        "steps": math.ceil(work.num_seeds / work.batch_size),
        "steps_a_second": 1 / max(*bounds.values(), 1e-9),
    }


def capacity_of(work: Workload, options: dict[str, Any]) -> int:
    row_bytes = work.num_features * work.itemsize
    return min(work.num_nodes, (options["feature_memory"] << 20) // row_bytes)


def plan_at_hand(
    work: Workload, graph: Graph, seeds: np.ndarray, options: dict[str, Any]
) -> tuple[Draw, Reads]:
    """What the batches of a graph draw and read."""
    counts: list[list[tuple[int, int]]] = []

    def nodes() -> Iterator[np.ndarray]:
        for each, found in drawn(work, graph, seeds, options["most_batches"]):
            counts.append(found)
            yield each

    row_bytes, capacity = work.num_features * work.itemsize, capacity_of(work, options)
    of_graph = work.num_nodes, capacity, row_bytes, options["feature_block"]
    reads = simulated(nodes(), *of_graph)
    edges, sources = np.mean(counts, axis=0).T.tolist()
    return Draw(tuple(edges), tuple(sources), (), (), 0, 0, 0.0, 1.0), reads


def plan_of_shape(work: Workload, options: dict[str, Any]) -> tuple[Draw, Reads]:
    """What the batches of a graph of published size draw and read, see the module."""
    degrees = lognormal_degrees(work.num_nodes, work.num_edges)
    draw, scale, batches = expected(degrees, work, options["most_batches"])
    num_rows = round(work.num_nodes / scale)
    row_bytes, capacity = work.num_features * work.itemsize, capacity_of(work, options)
    of_graph = num_rows, int(capacity / scale), row_bytes, options["feature_block"]
    return draw, simulated(batches, *of_graph).scaled(scale)


def show(found: dict[str, Any], published: bool) -> list[str]:
    """The lines that say what was found."""
    reads, speed, memory = found["reads"], found["disk"], found["memory"]
    lines = [
        f"{name:>18} {size / 1e9:7.2f} GB"
        for name, size in {**memory, "in all": found["memory_total"]}.items()
    ]
    lines += [
        f"{found['mapped'] / 1e9:.2f} GB of topology and labels are memory-mapped beside it",
        f"a step needs {reads['rows']:,.0f} rows, of which {reads['missing']:,.0f} are read "
        f"from disk ({reads['later']:,.0f} in the second half of {reads['steps']} steps)",
        f"a step reads {(reads['bytes'] + reads['written']) / 1e6:,.1f} MB and writes "
        f"{reads['written'] / 1e6:,.1f} MB",
        f"disk: {speed['read'] / 1e9:.2f} GB/s read and {speed['write'] / 1e9:.2f} GB/s "
        f"written in order, {speed['requests']:,.0f} requests of 4 KiB a second",
        f"steps a second: at most {found['bounds']['disk']:,.2f} by the disk, "
        f"{found['bounds']['processor']:,.2f} by the processor; the {found['binds']} binds",
    ]
    if published:
        lines.append(
            "assumed: log-normal degrees with the published mean, rows at random places, and "
            "no communities, which would make batches smaller"
        )
    return lines
