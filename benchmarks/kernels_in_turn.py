"""Compares two builds of the sampling kernels in one process, in turn.

    python -m benchmarks.kernels_in_turn --before REV [--what uniform labor] [--draws 200]

The builds are that of a git revision, which is compiled for it, and the installed one. On a
shared machine, processes that take turns hide differences below 10 %. So each build draws once
in every turn, and who goes first alternates. Both draw from the same arrays and the same
batches with the same capacity, but in a turn they draw two different batches, so that neither
finds the rows of its batch in the caches. Times are milliseconds of a jitted call, best and
median. A ratio is the second median over the first; the last is that of the processor's time,
which other work on the machine changes less. `typed` draws from the graph of `typed_graph.py`.

The row `excluded` compares the installed build with itself: the seeds of a batch of pairs,
without and with the pairs' own edges excluded in both directions.
"""

from __future__ import annotations

import contextlib
import dataclasses
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

import jax
import numpy as np

import jgs
from benchmarks import graph, inputs, revision, typed_graph
from benchmarks.__main__ import CACHE, command_line, say
from jgs import kernels
from jgs.sampling import plan_capacity
from jgs.sampling.capacity import Capacity, round_up
from jgs.sampling.seeds import Seeds

SAMPLERS: dict[str, Callable[[Any], Any]] = {  # of the `jgs.sampling` of either build
    "uniform": lambda sampling: sampling.Neighbors((5, 10, 15)),
    "weighted": lambda sampling: sampling.Neighbors((5, 10, 15), False, True),
    "all": lambda sampling: sampling.Neighbors((-1, -1)),
    "labor": lambda sampling: sampling.Labor((5, 10, 15)),
    "walk": lambda sampling: sampling.Walk(80),
    "typed": lambda sampling: sampling.Neighbors(
        ({"*": 4}, {"*": 3}, {"*": 2}), edges=("type",)
    ),
}
ROWS = (*SAMPLERS, "excluded")
THREADS = (1, 2)
PAIRS = 1024
SLOTS = 3 * PAIRS  # seeds and excluded edges of a batch of pairs, padding included
_COMPARED = 8  # batches that are compared between the builds

Draw = Callable[[int], Any]  # draws the batch of this number


def measure(
    before: ModuleType,
    graph_of: Callable[[str], jgs.Graph],
    nodes: np.ndarray,
    what: Sequence[str],
    draws: int,
) -> Iterator[str]:
    """The table's lines. Seeds are taken from the start of `nodes`."""
    yield (
        "| draws | threads | before: best / median | now: best / median | ratio | processor's "
        "| same |"
    )
    yield "|---|---|---|---|---|---|---|"
    for name in what:
        data = graph_of(name)
        if name == "excluded":
            yield from _excluded(data, draws)
            continue
        size = 16 if name == "all" else 1024
        seeds = [jax.device_put(b) for b in np.resize(nodes, (draws, size)).astype(np.int32)]
        capacity = None if name == "walk" else _capacity(data, SAMPLERS[name], seeds)
        pair = [
            _drawing(build, SAMPLERS[name], data, seeds, capacity) for build in (before, jgs)
        ]
        for threads in THREADS:
            with _threads((before, jgs), threads):
                same = all(_equal(*(d(i) for d in pair)) for i in range(min(draws, _COMPARED)))
                times = in_turn(*pair, draws)
            yield _row(f"{name}, {size:,} seeds", threads, times, "yes" if same else "**no**")


def _excluded(data: jgs.Graph, draws: int) -> Iterator[str]:
    with_edges = [pairs(data, i) for i in range(draws)]
    without = [Seeds(seeds.nodes) for seeds in with_edges]
    make = SAMPLERS["uniform"]
    capacity = _capacity(data, make, without + with_edges)
    real = np.mean([(np.asarray(s.excluded) < data.num_edges).sum() for s in with_edges])
    label = f"uniform, {SLOTS:,} seeds, now: without / with {real:,.0f} edges excluded"
    pair = [_drawing(jgs, make, data, seeds, capacity) for seeds in (without, with_edges)]
    for threads in THREADS:
        with _threads((jgs,), threads):
            times = in_turn(*pair, draws)
        yield _row(label, threads, times, "")


def pairs(data: jgs.Graph, number: int) -> Seeds:
    """Batch `number` of pairs: the distinct ends of `PAIRS` edges and as many other nodes, and
    all edges between the two ends, in both directions, as far as they fit. Rows are sorted."""
    indptr, indices = np.asarray(data.indptr), np.asarray(data.indices)
    rng = np.random.default_rng(number)
    edges = rng.integers(data.num_edges, size=PAIRS)
    source, target = indices[edges], np.searchsorted(indptr, edges, "right") - 1
    between = []
    for a, b in (*zip(source, target, strict=True), *zip(target, source, strict=True)):
        row = indices[indptr[b] : indptr[b + 1]]
        first, end = (np.searchsorted(row, a, side) for side in ("left", "right"))
        between.append(indptr[b] + np.arange(first, end))
    nodes = [source, target, rng.integers(data.num_nodes, size=PAIRS)]

    def padded(arrays: list[np.ndarray], fill: int) -> np.ndarray:
        some = np.unique(np.concatenate(arrays))[:SLOTS]
        return np.concatenate([some, np.full(SLOTS - some.size, fill)])

    ends = jax.device_put(padded(nodes, data.num_nodes).astype(np.int32))
    return Seeds(ends, excluded=padded(between, data.num_edges))


def _capacity(data: jgs.Graph, make: Callable[[Any], Any], seeds: Sequence[Any]) -> Capacity:
    """A capacity that none of the batches exceeds."""
    pool = np.unique([np.asarray(Seeds.of(batch).nodes) for batch in seeds])
    size, sampler = Seeds.of(seeds[0]).nodes.size, make(jgs.sampling)
    capacity = plan_capacity(data, size, sampler, seeds=pool[pool < data.num_nodes], trials=4)
    while True:
        draw = _drawing(jgs, make, data, seeds, capacity)
        if not any(draw(i).overflow for i in range(len(seeds))):
            return capacity
        edges, sources = (tuple(round_up(n * 9 // 8) for n in sizes) for sizes in capacity)
        capacity = Capacity(edges, sources)


def _drawing(
    build: ModuleType,
    make: Callable[[Any], Any],
    data: jgs.Graph,
    seeds: Sequence[Any],
    capacity: Capacity | None,
) -> Draw:
    """The sampler of a build, jitted, on the arrays of `data`."""
    sampler, key = make(build.sampling), jax.random.key(0)
    names = (
        None if data.schema is None else build.graph.Schema(*dataclasses.astuple(data.schema))
    )
    own = build.Graph.from_edge_arrays(data.indptr, data.edge_arrays(), schema=names)
    state = sampler.init(own)

    @jax.jit
    def sample(key: Any, number: Any, own: Any, state: Any, seeds: Any) -> Any:
        return sampler.sample(jax.random.fold_in(key, number), own, state, seeds, capacity)

    def draw(number: int) -> Any:
        drawn = sample(key, np.int32(number), own, state, seeds[number])
        return jax.block_until_ready(drawn)

    return draw


@contextlib.contextmanager
def _threads(builds: Sequence[ModuleType], number: int) -> Iterator[None]:
    """A block in which the builds' kernels have so many threads."""
    with contextlib.ExitStack() as stack:
        stack.callback(jax.clear_caches)  # every trace has a number of threads in it
        for build in builds:
            stack.enter_context(mock.patch.object(build.kernels, "NUM_THREADS", number))
        jax.clear_caches()
        yield


def in_turn(first: Draw, second: Draw, draws: int) -> tuple[np.ndarray, np.ndarray]:
    """The milliseconds of each draw of both, and those of the processor, `[draws, 2]`, once
    they are compiled. Both draw each batch once."""
    first(0), second(0)
    times = np.empty((2, draws, 2))
    for turn in range(draws):
        both = [(0, first, turn), (1, second, (turn + draws // 2) % draws)]
        for at, draw, number in both if turn % 2 == 0 else reversed(both):
            began = time.perf_counter(), time.process_time()
            drawn = draw(number)
            ended = time.perf_counter(), time.process_time()
            times[at, turn] = 1e3 * np.subtract(ended, began)
            del drawn  # its memory is freed before the other's time begins
    return times[0], times[1]


def _equal(one: Any, other: Any) -> bool:
    """Whether two builds have drawn the same. Their classes may have different fields."""

    def arrays(drawn: Any) -> list[np.ndarray]:
        blocks = [a for b in getattr(drawn, "blocks", ()) for a in (b.indptr, b.indices)]
        return [np.asarray(a) for a in (drawn.nodes, *blocks)]

    return all(map(np.array_equal, arrays(one), arrays(other)))


def _row(label: str, threads: int, times: Sequence[np.ndarray], same: str) -> str:
    cells = [f"{some.min(0)[0]:.2f} / {np.median(some, 0)[0]:.2f}" for some in times]
    clock, processor = np.median(times[1], 0) / np.median(times[0], 0)
    cells += [f"{clock:.3f}", f"{processor:.3f}", same]
    return f"| {label} | {threads} | {' | '.join(cells)} |"


def main() -> None:
    parser = command_line("kernels_in_turn", __doc__)
    parser.add_argument("--before", required=True, metavar="REV", help="a git revision")
    parser.add_argument("--what", nargs="+", choices=ROWS, default=ROWS)
    parser.add_argument("--nodes", type=int, default=1 << graph.FULL.scale, help="a power of 2")
    parser.add_argument("--edges", type=int, default=graph.FULL.num_undirected)
    parser.add_argument("--draws", type=int, default=200)
    arguments = parser.parse_args()
    size = graph.Size(arguments.nodes.bit_length() - 1, arguments.edges)
    if arguments.nodes != 1 << size.scale or arguments.draws < 2:
        parser.error("--nodes must be a power of 2, and --draws at least 2")
    if not kernels.available():
        parser.error("the installed jgs has no kernels; `make test` builds them")
    with tempfile.TemporaryDirectory() as folder:
        say(f"the kernels of {arguments.before} ...")
        try:
            before = revision.load(arguments.before, Path(folder))
        except subprocess.CalledProcessError as error:
            parser.error(f"{arguments.before} could not be built: {error}")
        say("the graph ...")
        CACHE.mkdir(parents=True, exist_ok=True)
        plain = graph.cached(CACHE, size)

        def graph_of(name: str) -> jgs.Graph:
            typed = typed_graph.cached(CACHE, size, 4) if name == "typed" else plain
            return jgs.Graph.open(typed, verify=False)

        nodes = np.load(inputs.seeds(CACHE, size))
        for line in measure(before, graph_of, nodes, arguments.what, arguments.draws):
            print(line, flush=True)


if __name__ == "__main__":
    main()
