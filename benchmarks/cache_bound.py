"""What any cache could save: the fewest rows that a rank must ask for under a budget.

    python -m benchmarks.cache_bound [--quick] [--epochs 4]

The batches are those of rank 0 of 2, drawn from the parts of `benchmarks.distributed --only
cache`. The table says how many times fewer rows of the other rank it asks for with a cache.
`planned` keeps what an epoch reads most for that epoch. At the epoch's begin it asks for the
rows that it has not kept from the epoch before. The optimum knows all batches, and lets go the
row whose next read is the furthest off (Belady, "A study of replacement algorithms", IBM
Systems Journal 1966). It is shown from an empty cache, and from its second epoch on. No cache
of whole rows asks for fewer. Padding and ids are not counted.
"""

from __future__ import annotations

import sys

import jax
import numpy as np

from benchmarks import distributed_inputs as given
from benchmarks.__main__ import CACHE, command_line
from jgs.data.parts import open_parts
from jgs.sampling import plan_capacity, sample_neighbors

BUDGETS = (0.06, 0.1, 0.25, 0.5)
FANOUTS = (5, 10, 15)
_NEVER = np.iinfo(np.int64).max


def main() -> int:
    parser = command_line("cache_bound", __doc__)
    parser.add_argument("--quick", action="store_true", help="a smaller graph")
    parser.add_argument("--epochs", type=int, default=4, help="2 or more (default: 4)")
    arguments = parser.parse_args()
    if arguments.epochs < 2:
        parser.error(f"--epochs must be 2 or more; got {arguments.epochs}")
    setting = given.QUICK if arguments.quick else given.FULL
    CACHE.mkdir(parents=True, exist_ok=True)
    epochs, num_nodes, num_remote = _asked(setting, arguments.epochs)
    total = sum(step.size for epoch in epochs for step in epoch)
    later = total - sum(step.size for step in epochs[0])
    a_step = total / sum(map(len, epochs))
    print(f"{num_remote:,} remote rows; a step reads {a_step:,.0f} of them\n")
    print("| rows kept | planned | optimum | optimum, from the second epoch on |")
    print("|---|---|---|---|")
    for budget in BUDGETS:
        rows = int(budget * num_remote)
        best = [sum(misses) for misses in optimum(epochs, num_nodes, rows)]
        ratios = (
            total / sum(planned(epochs, num_nodes, rows)),
            total / sum(best),
            later / max(sum(best[1:]), 1),
        )
        print(
            f"| {budget:.0%} | {' | '.join(f'{ratio:.2f}' for ratio in ratios)} |", flush=True
        )
    return 0


def _asked(setting: given.Setting, num_epochs: int) -> tuple[list[list[np.ndarray]], int, int]:
    """The remote nodes that each step of each epoch reads, and how many nodes there are in all,
    and how many remote nodes."""
    parts = open_parts(str(given.parts_jgs(CACHE, setting, 2)), verify=False)
    graph, seeds = parts.graph, np.asarray(parts.part(0).train_idx)
    remote = parts.owner(np.arange(parts.num_nodes)) != 0
    capacity = plan_capacity(graph, setting.batch, FANOUTS, seeds=seeds)
    draw = jax.jit(
        lambda key, batch, graph: sample_neighbors(key, graph, batch, FANOUTS, capacity)
    )
    rng, epochs = np.random.default_rng(0), []
    for epoch in range(num_epochs):
        order = rng.permutation(seeds).astype(np.int32)
        steps = order[: order.size // setting.batch * setting.batch].reshape(-1, setting.batch)
        epochs.append([])
        for step, batch in enumerate(steps):
            key = jax.random.fold_in(jax.random.key(epoch), step)
            sample = draw(key, batch, graph)
            assert not sample.overflow
            nodes = np.asarray(sample.nodes)
            nodes = nodes[nodes < parts.num_nodes]
            epochs[-1].append(nodes[remote[nodes]])
    return epochs, parts.num_nodes, int(remote.sum())


def planned(epochs: list[list[np.ndarray]], num_nodes: int, rows: int) -> list[int]:
    """How many rows are asked for in each epoch, including those that fill the cache."""
    kept, asked = np.zeros(num_nodes, bool), []
    for steps in epochs:
        count = np.bincount(np.concatenate(steps), minlength=num_nodes)
        most = np.argsort(-count, kind="stable")[:rows]
        now = np.zeros(num_nodes, bool)
        now[most] = count[most] > 0
        filled = np.count_nonzero(now & ~kept)
        asked.append(filled + sum(np.count_nonzero(~now[step]) for step in steps))
        kept = now
    return asked


def optimum(epochs: list[list[np.ndarray]], num_nodes: int, rows: int) -> list[list[int]]:
    """How many rows each step of each epoch asks for."""
    steps = [step for epoch in epochs for step in epoch]
    needed = np.full(num_nodes, _NEVER)  # the next step that reads each row
    after = []
    for number, step in reversed(list(enumerate(steps))):
        after.append(needed[step])
        needed[step] = number
    kept, misses = np.zeros(num_nodes, bool), []
    for step, next_read in zip(steps, reversed(after), strict=True):
        misses.append(np.count_nonzero(~kept[step]))
        needed[step] = next_read
        kept[step] = True
        held = np.flatnonzero(kept)
        if held.size > rows:
            kept[held[np.argpartition(needed[held], rows)[rows:]]] = False
    each = iter(misses)
    return [[next(each) for _ in epoch] for epoch in epochs]


if __name__ == "__main__":
    sys.exit(main())
