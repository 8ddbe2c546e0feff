"""What SEAL reaches: the AUC of held-out links, beside the published one and the bar.

    python -m benchmarks.links [--root ../shared/data] [--only ns] [--seeds 5]

Every run does what `python -m jgs.train --task links --sampler seal` does with its defaults.
A tenth of the links is held out, with as many pairs that are no links. Each seed has a split of
its own. Prints a Markdown table with a line for each split and one for their mean. RA is
resource allocation on the same split, and shows how hard the split is. For two nodes it is the
sum of 1 / degree over their common neighbours. The published AUCs are those of Zhang and Chen,
"Link Prediction Based on Graph Neural Networks", 2018, Table 1.
"""

from __future__ import annotations

import argparse
import tempfile
from typing import NamedTuple

import numpy as np
import scipy.sparse

from jgs.allocator import keep_freed_memory
from jgs.command import configure_jax
from jgs.train.config import Config
from jgs.train.evaluation.metrics import auc
from jgs.train.flags import parse
from jgs.train.loop import training as loop
from jgs.train.tasks.seal import HeldOut, SealData, is_link


class Bar(NamedTuple):
    """The least mean AUC of a data set, and the published one."""

    least: float
    published: float


BARS = {"usair": Bar(0.955, 0.966), "ns": Bar(0.98, 0.989)}


def resource_allocation(held: HeldOut) -> float:
    """The AUC of resource allocation on the test pairs."""
    graph, (first, second) = held.graph, held.test.T
    edges = np.ones(graph.num_edges), np.asarray(graph.indices), np.asarray(graph.indptr)
    matrix = scipy.sparse.csr_array(edges, shape=(graph.num_nodes, graph.num_nodes))
    shares = matrix / np.maximum(np.diff(edges[2]), 1)
    return auc((shares[first] * matrix[second]).sum(axis=1), is_link(held.test))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--root", default="../shared/data", help="folder of the .npz archives")
    add("--seeds", type=int, default=5, help="splits of each data set: seeds 0 to N-1")
    add("--only", nargs="+", choices=BARS, default=list(BARS), metavar="DATA")
    add("--flags", default="", help="more flags of python -m jgs.train, e.g. '--epochs 5'")
    arguments = parser.parse_args()
    keep_freed_memory()
    configure_jax()
    print("| data | seed | test AUC | RA | validation AUC | best epoch | seconds |")
    print("|---|---|---|---|---|---|---|")
    for data in arguments.only:
        found, simple = [], []
        for seed in range(arguments.seeds):
            flags = f"--task links --sampler seal --root {arguments.root}"
            flags += f" --dataset {data} --seed {seed}"
            with tempfile.TemporaryDirectory() as folder:
                words = [*flags.split(), *arguments.flags.split(), "--run-dir", folder]
                given = parse(words)
                config = Config(**given, progress=False)
                one = loop.run(config)
            found.append(one["test_accuracy"])
            simple.append(resource_allocation(SealData(config).held))
            print(
                f"| {data} | {seed} | {found[-1]:.4f} | {simple[-1]:.4f} "
                f"| {one['val_accuracy']:.4f} | {one['best_epoch']} | {one['seconds']:.0f} |",
                flush=True,
            )
        mean, bar = float(np.mean(found)), BARS[data]
        below = "" if mean >= bar.least else " (below)"
        both = f"{mean:.4f}{below} | {np.mean(simple):.4f}"
        print(f"| {data} | mean | {both} | | | |")
        said = f"{bar.published}; at least {bar.least}"
        print(f"| {data} | published | {said} | | | | |", flush=True)


if __name__ == "__main__":
    main()
