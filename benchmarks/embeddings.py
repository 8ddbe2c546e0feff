"""What embeddings from walks reach: a linear probe's scores, beside what they are held to.

    python -m benchmarks.embeddings [--root ../shared/data] [--only blogcatalog] [--seeds 1]

Every run is what `python -m jgs.train --task embed` does with the flags of `RUNS`, in this
process. Prints a Markdown table; words a second are of the whole run, evaluation and start
included. `blogcatalog`: DeepWalk's protocol, 5 random halves. `cora`: the public split.
"""

from __future__ import annotations

import argparse
import tempfile
from typing import NamedTuple

from jgs.allocator import keep_freed_memory
from jgs.command import settle_jax
from jgs.train import loop
from jgs.train.config import Config, of_task, parse

SAMPLERS = {"DeepWalk": "--sampler walk", "node2vec": "--sampler node2vec --p 0.25 --q 0.25"}


class Run(NamedTuple):
    """One line of the table: data, flags, and the least score, by its name in the result."""

    data: str
    method: str
    flags: str
    score: str
    bar: float


RUNS = [
    Run("blogcatalog", "DeepWalk", "", "macro_f1", 0.235),
    Run("blogcatalog", "node2vec", "", "macro_f1", 0.25),
    Run("cora", "DeepWalk", "--epochs 5", "accuracy", 0.70),
    Run("cora", "node2vec", "--epochs 5", "accuracy", 0.70),
]
NODES = {"blogcatalog": 10_312, "cora": 2_708}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--root", default="../shared/data", help="folder of the .npz archives")
    add("--seeds", type=int, default=1, help="of each line: seeds 0 to N-1")
    add("--only", nargs="+", choices=NODES, default=list(NODES), metavar="DATA")
    arguments = parser.parse_args()
    keep_freed_memory()
    settle_jax()
    print("| data | walks | seed | score | at least | other scores | words a second |")
    print("|---|---|---|---|---|---|---|")
    for run in RUNS:
        for seed in range(arguments.seeds if run.data in arguments.only else 0):
            flags = f"--task embed --root {arguments.root} --dataset {run.data} --seed {seed}"
            flags += f" {SAMPLERS[run.method]} {run.flags}"
            with tempfile.TemporaryDirectory() as folder:
                given = of_task(parse([*flags.split(), "--run-dir", folder]))
                config = Config(**given, progress=False)
                found = loop.run(config)
            words = NODES[run.data] * config.num_walks * (config.walk_length + 1)
            speed = config.epochs * words / found["seconds"]
            others = {k: v for k, v in found.items() if k.endswith("f1") and k != run.score}
            said = ", ".join(f"{k} {v:.3f}" for k, v in others.items())
            below = "" if found[run.score] >= run.bar else " (below)"
            print(
                f"| {run.data} | {run.method} | {seed} | {run.score} {found[run.score]:.3f} "
                f"| {run.bar}{below} | {said} | {speed:,.0f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
