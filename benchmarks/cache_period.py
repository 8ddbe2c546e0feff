"""How many rows a cache must fetch when LABOR's batches depend on each other.

    python -m benchmarks.cache_period [--quick] [--steps 1024] [--periods 1 8 64 512]

Batches of 1024 seeds (quick: 128), fanouts 5, 10, 15, are drawn by `Labor(period=k)` from the
benchmark's graph through `jgs.sampling.Loader`: the first `--steps` of an epoch. Every batch
reads the rows of its distinct input nodes. A miss is a row fetched from where features are
stored, during a step or beforehand. The table shows misses as a share of all rows read. Caches
are empty at first. The first column says how much a cache holds, as a part of the nodes that
the batches of the first period read.

- S3-FIFO: the default of GraphBolt's `CPUCachedFeature`. Beside it is LRU, which its authors
  published. Both are in `cache_policy.cc`. GraphBolt 2.1, the peers' release, has no such cache
  to run.
- planned: the rows read most in the epoch are fetched before it begins, as `jgs.dist` plans.
- planned every 64 steps: the same for every 64 steps. Rows that stay are not fetched again.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import jax
import numpy as np

import jgs
from benchmarks import graph, inputs, programs
from benchmarks.__main__ import CACHE, command_line, say
from benchmarks.cache_bound import planned
from jgs.sampling import Labor, Loader

FANOUTS = (5, 10, 15)
PARTS = (0.1, 0.25)  # a cache holds these parts of the nodes read
PLANNED_STEPS = 64
POLICIES = ("s3-fifo", "lru")
SOURCE = Path(__file__).with_name("cache_policy.cc")


def main() -> int:
    parser = command_line("cache_period", __doc__)
    parser.add_argument("--quick", action="store_true", help="a smaller graph and batches")
    parser.add_argument("--steps", type=int, default=1024, help="of the epoch (default: 1024)")
    parser.add_argument("--periods", type=int, nargs="+", default=[1, 8, 64, 512])
    arguments = parser.parse_args()
    size, batch_size = (graph.QUICK, 128) if arguments.quick else (graph.FULL, 1024)
    CACHE.mkdir(parents=True, exist_ok=True)
    data = jgs.Graph.open(graph.cached(CACHE, size), verify=False)
    seeds = np.load(inputs.seeds(CACHE, size))[: arguments.steps * batch_size]
    program = programs.compiled(SOURCE, CACHE)
    if program is None:
        parser.error("the policies are a C++ program; install g++")
    about: list[str] = []
    lines: dict[float, list[str]] = {part: [] for part in PARTS}
    rows: dict[float, int] = {}
    for period in arguments.periods:
        say(f"period {period} ...")
        steps = read(data, seeds, batch_size, period)
        total = sum(step.size for step in steps)
        if not rows:
            distinct = np.unique(np.concatenate(steps)).size
            rows = {part: int(part * distinct) for part in PARTS}
            about = header(len(steps), distinct, rows)
            if max(step.size for step in steps) > 0.9 * min(rows.values()):
                parser.error(
                    "a cache must hold more rows than a batch reads; take more --steps"
                )
        for part, kept in rows.items():
            misses = [
                missed(program, policy, data.num_nodes, kept, steps) for policy in POLICIES
            ]
            for length in (len(steps), PLANNED_STEPS):
                spans = [steps[at : at + length] for at in range(0, len(steps), length)]
                misses.append(sum(planned(spans, data.num_nodes, kept)))
            cells = [f"{period}", f"{total / len(steps):,.0f}"]
            cells += [f"{100 * count / total:.1f} %" for count in misses]
            lines[part].append(f"| {part:.0%} | {' | '.join(cells)} |")
    print("\n".join([*about, *(line for some in lines.values() for line in some)]))
    return 0


def header(num_steps: int, distinct: int, rows: dict[float, int]) -> list[str]:
    kept = " and ".join(f"{part:.0%} are {some:,} rows" for part, some in rows.items())
    return [
        f"{num_steps:,} steps, {distinct:,} nodes read at the first period; {kept}.",
        "",
        "| cache | period | rows a step reads | S3-FIFO | LRU | planned | planned every "
        f"{PLANNED_STEPS} steps |",
        "|---|---|---|---|---|---|---|",
    ]


def read(data: jgs.Graph, seeds: np.ndarray, batch_size: int, period: int) -> list[np.ndarray]:
    """For each step of an epoch the distinct nodes whose rows it reads, int32."""
    sampler = Labor(FANOUTS, period=period)
    with Loader(data, seeds, batch_size, sampler, key=jax.random.key(0)) as loader:
        return [np.asarray(b.nodes)[: int(b.blocks[0].num_sources)] for b in loader]


def missed(
    program: Path, policy: str, num_nodes: int, rows: int, steps: list[np.ndarray]
) -> int:
    """How many rows a cache of `rows` rows fetches under a policy of `cache_policy.cc`."""
    command = [str(program), policy, str(num_nodes), str(rows)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for step in steps:
            process.stdin.write(np.int32(step.size).tobytes())
            process.stdin.write(step.astype(np.int32).tobytes())
        process.stdin.close()
        return int(process.stdout.read())


if __name__ == "__main__":
    sys.exit(main())
