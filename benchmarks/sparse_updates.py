"""Sparse against dense updates of learned embeddings: DistDGL's comparison, on this machine.

    python -m benchmarks.sparse_updates [--nodes 1000000] [--width 64] [--rounds 9]

One process with the table of all nodes. A step takes a gradient for the rows of a batch. The
sparse one is `jgs.dist.ShardedEmbedding.push`, with Adam's state of the touched rows alone. The
dense one adds the gradient into a matrix of all rows, and optax's Adam steps every row, its
buffers donated. Both get the same rows and gradients, in turn; milliseconds a step, medians.
"""

from __future__ import annotations

import statistics
import time
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax

from benchmarks.__main__ import command_line
from jgs.dist import ShardedEmbedding
from jgs.dist.communicators.comm import Alone

BATCHES = (1_000, 10_000, 100_000)


def main() -> None:
    parser = command_line("sparse_updates", __doc__)
    parser.add_argument("--nodes", type=int, default=1_000_000)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=9)
    arguments = parser.parse_args()
    nodes, width = arguments.nodes, arguments.width
    optimizer, rng = optax.adam(1e-2), np.random.default_rng(0)
    table = ShardedEmbedding(Alone(), [0, nodes], width, jax.random.key(0), optimizer)
    dense = jnp.zeros((nodes, width))
    state = optimizer.init(dense)

    @partial(jax.jit, donate_argnums=(0, 1))
    def step(rows, state, batch, gradient):
        whole = jnp.zeros_like(rows).at[batch].add(gradient, mode="drop")
        updates, state = optimizer.update(whole, state)
        return optax.apply_updates(rows, updates), state

    print("| rows in a batch | sparse, ms | dense, ms | times |\n|---|---|---|---|")
    for size in (each for each in BATCHES if each <= nodes):
        times: dict[str, list[float]] = {"sparse": [], "dense": []}
        for number in range(arguments.rounds + 1):
            batch = jnp.asarray(rng.choice(nodes, size, replace=False).astype(np.int32))
            gradient = jnp.asarray(rng.standard_normal((size, width), np.float32))
            _, token = table.pull(batch)
            jax.block_until_ready((batch, gradient, token))
            began = time.perf_counter()
            table.push(token, gradient)
            jax.block_until_ready(table._table.rows)
            between = time.perf_counter()
            dense, state = jax.block_until_ready(step(dense, state, batch, gradient))
            if number:  # the first call compiles
                times["sparse"].append(between - began)
                times["dense"].append(time.perf_counter() - between)
        sparse, whole = (1e3 * statistics.median(times[name]) for name in ("sparse", "dense"))
        print(f"| {size:,} | {sparse:.2f} | {whole:.1f} | {whole / sparse:.1f} |", flush=True)


if __name__ == "__main__":
    main()
