"""The kernels of JAX's first device beside plain JAX there: bits and times.

    JGS_CUDA=1 python -m benchmarks.device_kernels

Draws of 1,024 seeds, and a mean over the edges of the last block with its gradient, by turns.
Prints the medians in milliseconds. Its status is 1 if samples differ, or sums by more than
rounding, or if a program has no kernel.
"""

from __future__ import annotations

import argparse
import sys
import time
from statistics import median
from typing import Any

import numpy as np


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scale", type=int, default=21, help="2**scale nodes")
    parser.add_argument("--edges", type=int, default=62_000_000)
    parser.add_argument("--features", type=int, default=100)
    parser.add_argument("--fanouts", type=int, nargs="+", default=(5, 10, 15))
    parser.add_argument("--rounds", type=int, default=50)
    given = parser.parse_args()
    import jax  # after the arguments, as it is slow
    import jax.numpy as jnp

    import jgs
    from benchmarks.graph import rmat_edges
    from jgs import kernels, ops
    from jgs.sampling import Neighbors, plan_capacity

    rng, size = np.random.default_rng(0), 1 << given.scale
    graph = jgs.Graph.from_edges(*rmat_edges(given.scale, given.edges, [0, 0]), size)
    sampler = Neighbors(tuple(given.fanouts))
    seeds = rng.permutation(size)[:10_240].astype(np.int32)
    room = plan_capacity(graph, 1024, sampler, seeds=seeds, key=jax.random.key(0))
    graph = jgs.to_device(graph)

    def draw(key: Any, graph: Any, seeds: Any) -> Any:
        return sampler.sample(key, graph, (), seeds, room)

    def sums(block: Any, x: Any) -> Any:
        def loss(x: Any) -> Any:
            out = ops.aggregate(block, x, "mean")
            return jnp.sum(out * out), out

        (_, out), grad = jax.value_and_grad(loss, has_aux=True)(x)
        return out, grad

    good = True

    def by_turns(name: str, program: Any, *operands: Any, exact: bool) -> Any:
        nonlocal good
        programs = {}
        for way in ("kernel", "plain"):
            with kernels.plain(way == "plain"):
                lowered = jax.jit(program).lower(*operands)
            has = way == "plain" or "jgs_" in lowered.as_text()
            good &= has
            programs[way] = lowered.compile()
        found = [jax.device_get(run(*operands)) for run in programs.values()]
        close = np.array_equal if exact else _near
        same = all(jax.tree.leaves(jax.tree.map(close, *found)))
        times: dict[str, list[float]] = {way: [] for way in programs}
        for _ in range(given.rounds):
            for way, run in programs.items():
                begin = time.perf_counter()
                jax.block_until_ready(run(*operands))
                times[way].append(1e3 * (time.perf_counter() - begin))
        kernel, plain = (median(times[way]) for way in programs)
        print(f"| {name} | {kernel:.2f} | {plain:.2f} | {same} |", flush=True)
        good &= same
        return jgs.to_device(found[0])

    print(f"{jax.devices()[0].device_kind}, JAX {jax.__version__}")
    print("| what | kernel, ms | plain, ms | equal |\n|---|---|---|---|")
    key = jax.random.key_data(jax.random.key(1))
    batch = by_turns("draw", draw, key, graph, seeds[:1024], exact=True)
    block = batch.blocks[0]
    x = jnp.asarray(rng.standard_normal((block.source_capacity, given.features), np.float32))
    by_turns("mean and gradient", sums, block, x, exact=False)
    return not good


def _near(a: np.ndarray, b: np.ndarray) -> bool:
    return bool(np.allclose(a, b, rtol=1e-4, atol=1e-4))


if __name__ == "__main__":
    sys.exit(main())
