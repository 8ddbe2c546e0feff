"""What SEAL reaches: the AUC of held-out links, beside what is published and the bar.

    python -m benchmarks.links [--root ../shared/data] [--only ns] [--seeds 5]

Every run is what `python -m jgs.train --task links` does with its defaults, in this process: a
tenth of the links held out, and as many pairs that are none; each seed has a split of its own.
Prints a Markdown table, a line a split and one of their mean. Published: Zhang and Chen, "Link
Prediction Based on Graph Neural Networks", 2018, Table 1.
"""

from __future__ import annotations

import argparse
import tempfile
from typing import NamedTuple

import numpy as np

from jgs.allocator import keep_freed_memory
from jgs.command import settle_jax
from jgs.train import loop
from jgs.train.config import Config, of_task, parse


class Bar(NamedTuple):
    """Of a data set: the least mean AUC, and the published one."""

    least: float
    published: float


BARS = {"usair": Bar(0.955, 0.966), "ns": Bar(0.98, 0.989)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--root", default="../shared/data", help="folder of the .npz archives")
    add("--seeds", type=int, default=5, help="splits of each data set: seeds 0 to N-1")
    add("--only", nargs="+", choices=BARS, default=list(BARS), metavar="DATA")
    add("--flags", default="", help="more flags of python -m jgs.train, e.g. '--epochs 5'")
    arguments = parser.parse_args()
    keep_freed_memory()
    settle_jax()
    print("| data | seed | test AUC | validation AUC | best epoch | seconds |")
    print("|---|---|---|---|---|---|")
    for data in arguments.only:
        found = []
        for seed in range(arguments.seeds):
            flags = f"--task links --root {arguments.root} --dataset {data} --seed {seed}"
            with tempfile.TemporaryDirectory() as folder:
                words = [*flags.split(), *arguments.flags.split(), "--run-dir", folder]
                given = of_task(parse(words))
                one = loop.run(Config(**given, progress=False))
            found.append(one["test_accuracy"])
            print(
                f"| {data} | {seed} | {found[-1]:.4f} | {one['val_accuracy']:.4f} "
                f"| {one['best_epoch']} | {one['seconds']:.0f} |",
                flush=True,
            )
        mean, bar = float(np.mean(found)), BARS[data]
        below = "" if mean >= bar.least else " (below)"
        said = f"at least {bar.least}, published {bar.published}"
        print(f"| {data} | mean | {mean:.4f}{below} | {said} | | |", flush=True)


if __name__ == "__main__":
    main()
