"""Sums over the edges of a square block, with the features in one part or in several.

    python -m benchmarks.feature_parts [--quick] [--rounds 7] [--no-peers] [--cache DIR]

gcn-ipdps19 (Zeng et al., IPDPS 2019), Algorithm 6 and Theorem 2, for subgraphs of 1,000 to
100,000 nodes with random edges: the milliseconds of `jgs.ops.aggregate` (mean) in one part; how
many times faster it is in several parts, and in those that the rule of `feature_parts.h` finds;
and how many times longer XLA takes for the same sums in plain JAX, and DGL's `copy_u_mean`.

The calls of jgs take turns, each after a call that is not timed. XLA runs after them, and DGL
before them in a process of its own. Medians. A second table has the derivative, and for DGL the
forward pass with it.
"""

from __future__ import annotations

import ctypes
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np

import jgs
from benchmarks import peers
from benchmarks.__main__ import CACHE, command_line, environment, run
from jgs import kernels
from jgs.ops import aggregate

NODES, FEATURES = (1_000, 4_000, 16_000, 32_000, 100_000), (128, 256, 512, 1024)
DEGREES, PARTS = (16, 64), (2, 4, 8)
_PLAIN = 1 << 28  # bytes of messages, above which XLA is not asked


def force(parts: int) -> None:
    """Forces this number of parts, or with 0 none."""
    kernels.function("JgsSetFeatureParts", None)(ctypes.c_int64(parts))


def make_block(nodes: int, degree: int) -> jgs.Block:
    rng = np.random.default_rng(0)
    indices = np.sort(rng.integers(0, nodes, (nodes, degree), np.int32)).ravel()
    return jgs.Block(
        indptr=jnp.arange(0, nodes * degree + 1, degree, jnp.int32),
        indices=jnp.asarray(indices),
        num_targets=jnp.int32(nodes),
        num_sources=jnp.int32(nodes),
        num_edges=jnp.int32(nodes * degree),
    )


def calls_of(
    block: jgs.Block, x: jax.Array, threads: int, backward: bool
) -> dict[str, Callable[[], object]]:
    """The calls to be timed, by name."""

    def summed(x: jax.Array) -> jax.Array:
        if not backward:
            return aggregate(block, x)
        return jax.grad(lambda x: jnp.vdot(aggregate(block, x), ones))(x)

    ones = jnp.ones_like(x)
    with mock.patch.object(kernels, "NUM_THREADS", threads):
        kernel = jax.jit(summed).lower(x).compile()
    calls: dict[str, Callable[[], object]] = {}

    def in_parts(parts: int) -> object:
        force(parts)
        return jax.block_until_ready(kernel(x))

    for parts in (1, *PARTS, 0):
        calls[str(parts)] = partial(in_parts, parts)
    if 4 * block.indices.shape[0] * x.shape[1] <= _PLAIN:
        with mock.patch.object(kernels, "available", return_value=False):
            plain = jax.jit(lambda x: summed(x)).lower(x).compile()
        calls["XLA"] = lambda: jax.block_until_ready(plain(x))
    return calls


def of_dgl(
    python: Path | None, block: jgs.Block, threads: int, backward: bool, rounds: int
) -> dict[int, float]:
    """DGL's milliseconds by width; `{}` without an environment that has it."""
    if python is None:
        return {}
    own = {"features": 0, "derivative": backward, "iterations": rounds}
    settings = [own | {"name": str(width), "features": width} for width in FEATURES]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "block.npz"
        num = int(block.num_sources)
        np.savez(path, indptr=block.indptr, indices=block.indices, num_sources=num)
        task = {"threads": threads, "block": str(path), "settings": settings}
        found = run(python, "aggregate_dgl", task, environment(threads, False, peer=True))
    return {int(each["name"]): statistics.median(each["ms"]) for each in found}


def medians(calls: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Milliseconds."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for number in range(rounds + 1):
        for name, call in calls.items():
            call()  # brings its data into the caches, and those of other calls out
            began = time.perf_counter()
            call()
            if number:
                times[name].append(1e3 * (time.perf_counter() - began))
    return {name: statistics.median(own) for name, own in times.items()}


def main() -> None:
    parser = command_line("feature_parts", __doc__)
    parser.add_argument("--quick", action="store_true", help="the largest and smallest alone")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--no-peers", action="store_true", help="leave DGL out")
    parser.add_argument("--cache", type=Path, default=CACHE)
    arguments = parser.parse_args()
    python = None if arguments.no_peers else peers.python(arguments.cache.resolve())
    nodes, features = (each[:: 3 if arguments.quick else 1] for each in (NODES, FEATURES))
    titles = "".join(f" Q={parts} |" for parts in PARTS)
    for backward in (False, True):
        print("\nderivative" if backward else "forward")
        print(f"| threads | nodes | degree | f | Q=1, ms |{titles} by rule | XLA | DGL |")
        print("|" + "---|" * (8 + len(PARTS)))
        for threads in (1, 2):
            for num in nodes:
                for degree in DEGREES:
                    block = make_block(num, degree)
                    peer = of_dgl(python, block, threads, backward, arguments.rounds)
                    for width in features:
                        x = jax.random.normal(jax.random.key(0), (num, width))
                        calls = calls_of(block, x, threads, backward)
                        # XLA's large temporaries would cost the next call page faults.
                        xla = {name: calls.pop(name) for name in ("XLA",) if name in calls}
                        found = medians(calls, arguments.rounds)
                        found |= medians(xla, arguments.rounds)
                        one = found["1"]
                        cells = "".join(f" {one / found[str(q)]:.2f} |" for q in (*PARTS, 0))
                        plain = f"{found['XLA'] / one:.1f}" if "XLA" in found else "-"
                        dgl = f"{peer[width] / one:.1f}" if peer else "-"
                        row = f"| {threads} | {num:,} | {degree} | {width} | {one:.2f} |"
                        print(f"{row}{cells} {plain} | {dgl} |", flush=True)
    force(0)


if __name__ == "__main__":
    main()
