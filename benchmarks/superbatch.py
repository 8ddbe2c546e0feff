"""When super-batches pay: batches a second through `jgs.sampling.Loader`, with and without.

    python -m benchmarks.superbatch [--quick]

All loaders run in one process. For every batch size and fanouts, loaders that differ only in
`super_batch` run through the same seeds in turn, `--rounds` times. Nothing is done with their
batches. `jgs.sampling.capacity` chooses by these figures, and the last column is its
choice.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from statistics import median

import jax
import numpy as np

import jgs
from benchmarks import graph, inputs
from benchmarks.__main__ import CACHE
from jgs.sampling import Loader, plan_capacity

SIZES = (1, 2, 4, 8, 16)
FANOUTS = ((10, 10), (5, 10, 15))
BATCHES = (32, 128, 512, 1024)
_SEEDS = 1 << 16  # in an epoch


def measure(
    data: jgs.Graph, seeds: np.ndarray, batch_size: int, fanouts: Sequence[int], rounds: int
) -> tuple[dict[int, float], int]:
    """The median batches a second by size of the super-batch, and the loader's own choice."""
    capacity = plan_capacity(data, batch_size, fanouts, seeds=seeds, trials=20)
    make = {"key": jax.random.key(0), "capacity": capacity}
    loaders = {
        size: Loader(data, seeds, batch_size, fanouts, super_batch=size, **make)
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
    chosen = Loader(data, seeds, batch_size, fanouts, **make).super_batch
    return {size: len(loaders[size]) / median(t) for size, t in times.items()}, chosen


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.superbatch", description=__doc__
    )
    parser.add_argument("--quick", action="store_true", help="a smaller graph and fewer seeds")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    size = graph.QUICK if arguments.quick else graph.FULL
    data = jgs.Graph.open(graph.cached(CACHE, size), verify=False)
    seeds = np.load(inputs.seeds(CACHE, size))[: _SEEDS // (8 if arguments.quick else 1)]
    sizes = "".join(f" S={size} |" for size in SIZES)
    print(f"| batches a second |{sizes} chosen |\n|---|{'---|' * len(SIZES)}---|")
    for fanouts in FANOUTS:
        for batch_size in BATCHES:
            # Small batches are quick, so a fixed number of them would be over too soon.
            some = seeds[: max(seeds.size // 8, min(seeds.size, 64 * batch_size))]
            rates, chosen = measure(data, some, batch_size, fanouts, arguments.rounds)
            base = rates[1]
            cells = [f" {rate:,.0f} ({rate / base:.2f}×) |" for rate in rates.values()]
            print(f"| B={batch_size} {fanouts} |{''.join(cells)} {chosen} |", flush=True)


if __name__ == "__main__":
    main()
