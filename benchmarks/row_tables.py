"""Training with feature rows kept as float32, float16 and int8, by turns in one process.

    python -m benchmarks.row_tables [--quick] [--steps 60] [--features 100]

GraphSAGE (5, 10, 15) with batches of 1,024 on an RMAT graph of 2**21 nodes (`--quick`: 2**18)
with random features. Each batch is drawn once, and each way reads its first layer's inputs and
takes a step, in an order that rotates. The table has medians in milliseconds, and over float32:
`features`, the inputs alone; `iteration`, drawing, inputs and step; and the bytes of the rows.
"""

from __future__ import annotations

import time
from statistics import median
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

import jgs
from benchmarks import graph
from benchmarks.__main__ import command_line, say
from jgs.graph import as_device
from jgs.graph.row_tables.table import kept_as
from jgs.models import GraphSAGE, read_inputs
from jgs.sampling import Loader, Neighbors
from jgs.train.loop.step import init_state, make_optimizer, make_train_step

KINDS = ("float32", "float16", "int8")
FANOUTS, BATCH, CLASSES, HIDDEN = (5, 10, 15), 1024, 47, 256


def main() -> int:
    parser = command_line("row_tables", __doc__)
    parser.add_argument("--quick", action="store_true", help="a smaller graph")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--features", type=int, default=100)
    parser.add_argument("--hidden", type=int, default=HIDDEN)
    given = parser.parse_args()
    jgs.keep_freed_memory()
    size = graph.Size(18, 1 << 22) if given.quick else graph.Size(21, 1 << 25)
    for line in measure(size, given.features, given.hidden, given.steps):
        say(line)
    return 0


def measure(size: graph.Size, width: int, hidden: int, steps: int) -> Any:
    data = jgs.Graph(*graph.rmat(size))
    rng = np.random.default_rng(2)
    rows = rng.standard_normal((data.num_nodes, width), np.float32)
    tables = {kind: kept_as(as_device(rows), kind) for kind in KINDS}
    labels = as_device(rng.integers(0, CLASSES, data.num_nodes, dtype=np.int32))
    nodes = np.flatnonzero(np.diff(np.asarray(data.indptr))).astype(np.int32)
    seeds = rng.permutation(nodes)[: (steps + 2) * BATCH]
    more = {"key": jax.random.key(0), "shuffle": False, "prefetch": 0, "super_batch": 1}
    loader = Loader(data, seeds, BATCH, Neighbors(FANOUTS, relabel_inputs=False), **more)
    graphdef, params = nnx.split(
        GraphSAGE(width, hidden, CLASSES, len(FANOUTS), rngs=nnx.Rngs(0))
    )
    optimizer = make_optimizer(0.01)
    step = make_train_step(graphdef, optimizer)
    states = {kind: init_state(jax.tree.map(jnp.copy, params), optimizer) for kind in KINDS}
    key, read = jax.random.key(1), jax.jit(read_inputs)
    times: dict[str, dict[str, list[float]]] = {
        kind: {"features": [], "iteration": []} for kind in KINDS
    }
    began = time.perf_counter()
    for number, batch in enumerate(loader):
        drawn = time.perf_counter() - began
        for turn in range(len(KINDS)):
            kind = KINDS[(number + turn) % len(KINDS)]
            start = time.perf_counter()
            x = jax.block_until_ready(read(tables[kind], batch))
            inputs = time.perf_counter() - start
            states[kind] = jax.block_until_ready(step(states[kind], key, batch, x, labels))
            if number > 1:
                of_kind = times[kind]
                of_kind["features"].append(1e3 * inputs)
                of_kind["iteration"].append(1e3 * (time.perf_counter() - start + drawn))
        began = time.perf_counter()
    yield "| rows | features | over float32 | iteration | over float32 | MiB |"
    yield "|---|---|---|---|---|---|"
    base = {part: median(times["float32"][part]) for part in ("features", "iteration")}
    for kind, of_kind in times.items():
        cells = [kind]
        for part, found in of_kind.items():
            cells += [f"{median(found):.2f}", f"{median(found) / base[part]:.2f}"]
        size_of = sum(leaf.nbytes for leaf in jax.tree.leaves(tables[kind]))
        yield f"| {' | '.join([*cells, f'{size_of / 2**20:,.0f}'])} |"


if __name__ == "__main__":
    raise SystemExit(main())
