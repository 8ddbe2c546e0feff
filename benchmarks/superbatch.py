"""When super-batches pay: batches a second through `jgs.sampling.Loader`, with and without.

    python -m benchmarks.superbatch [--quick] [--only layerwise]

All loaders run in one process. For every batch size and fanouts, loaders that differ only in
`super_batch` run through the same seeds in turn, `--rounds` times. Nothing is done with their
batches. `jgs.sampling.capacity` chooses by these figures, and the last column is its
choice. Neighbour sampling has a kernel for several batches. LADIES, FastGCN and PinSAGE draw
them one after the other in one program.
"""

from __future__ import annotations

import argparse
import time
from statistics import median
from typing import Any

import jax
import numpy as np

import jgs
from benchmarks import graph, inputs
from benchmarks.__main__ import CACHE
from jgs.sampling import FastGCN, Ladies, Loader, PinSage, plan_capacity

SIZES = (1, 2, 4, 8, 16)
FANOUTS = ((10, 10), (5, 10, 15))
BATCHES = (32, 128, 512, 1024)
LAYERWISE = (
    (64, Ladies((64, 64))),
    (512, Ladies((512, 512))),
    (64, FastGCN((64, 64))),
    (512, FastGCN((512, 512))),
    (128, PinSage((10,))),
)
_SEEDS = 1 << 16  # in an epoch


def measure(
    data: jgs.Graph, seeds: np.ndarray, batch_size: int, sampler: Any, rounds: int
) -> tuple[dict[int, float], int]:
    """The median batches a second by size of the super-batch, and the loader's own choice."""
    capacity = plan_capacity(data, batch_size, sampler, seeds=seeds, trials=20)
    make = {"key": jax.random.key(0), "capacity": capacity}
    loaders = {
        size: Loader(data, seeds, batch_size, sampler, super_batch=size, **make)
        for size in SIZES
    }
    times: dict[int, list[float]] = {size: [] for size in SIZES}
    for number in range(rounds + 1):
        for size, loader in loaders.items():
            began = time.perf_counter()
            for _ in loader:
                pass
            if number > 0:  # the first round compiles
                times[size].append(time.perf_counter() - began)
    chosen = Loader(data, seeds, batch_size, sampler, **make).super_batch
    return {size: len(loaders[size]) / median(t) for size, t in times.items()}, chosen


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.superbatch", description=__doc__
    )
    parser.add_argument("--quick", action="store_true", help="a smaller graph and fewer seeds")
    parser.add_argument("--only", choices=("neighbours", "layerwise"))
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    size = graph.QUICK if arguments.quick else graph.FULL
    data = jgs.Graph.open(graph.cached(CACHE, size), verify=False)
    seeds = np.load(inputs.seeds(CACHE, size))[: _SEEDS // (8 if arguments.quick else 1)]
    sizes = "".join(f" S={size} |" for size in SIZES)
    print(f"| batches a second |{sizes} chosen |\n|---|{'---|' * len(SIZES)}---|")
    cases: list[tuple[int, Any]] = []
    if arguments.only != "layerwise":
        cases += [(batch_size, fanouts) for fanouts in FANOUTS for batch_size in BATCHES]
    if arguments.only != "neighbours":
        cases += LAYERWISE
    for batch_size, sampler in cases:
        # Small batches are quick, so a fixed number of them would be over too soon.
        some = seeds[: max(seeds.size // 8, min(seeds.size, 64 * batch_size))]
        if not isinstance(sampler, tuple):
            some = some[: 32 * batch_size]
        rates, chosen = measure(data, some, batch_size, sampler, arguments.rounds)
        base = rates[1]
        cells = [f" {rate:,.0f} ({rate / base:.2f}×) |" for rate in rates.values()]
        name = sampler if isinstance(sampler, tuple) else _short(sampler)
        print(f"| B={batch_size} {name} |{''.join(cells)} {chosen} |", flush=True)


def _short(sampler: Any) -> str:
    return f"{type(sampler).__name__} {sampler.sizes}"


if __name__ == "__main__":
    main()
