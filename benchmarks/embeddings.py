"""What embeddings from walks reach: a linear probe's scores, beside the least they must reach.

    python -m benchmarks.embeddings [--root ../shared/data] [--only blogcatalog] [--seeds 1]

Every run does what `python -m jgs.train --task embed` does with the flags of `RUNS`, in this
process. Prints a Markdown table. Words a second are those of the whole run, with its start and
its evaluation. `blogcatalog` has DeepWalk's protocol, 5 random halves. `cora` and `acm` have
the public split. On `acm` the probe is also given the papers' features, and features and
embeddings side by side, all as unit rows.
"""

from __future__ import annotations

import argparse
import tempfile
from typing import NamedTuple

import numpy as np
import scipy.sparse

import jgs.data
from jgs.allocator import keep_freed_memory
from jgs.command import configure_jax
from jgs.train.config import Config
from jgs.train.evaluation.probe import probe
from jgs.train.flags import parse
from jgs.train.loop import training as loop

SAMPLERS = {
    "DeepWalk": "--sampler walk",
    "node2vec": "--sampler node2vec --p 0.25 --q 0.25",
    # From authors to papers, subjects, papers and authors. A step goes against its relation.
    "metapath": "--sampler metapath --relations "
    "paper_author rev_paper_subject paper_subject rev_paper_author",
}


class Run(NamedTuple):
    """One line of the table: data, flags, a score's name in the result, its least value."""

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
    Run("acm", "metapath", "--epochs 4 --negatives 1", "macro_f1", 0.0),
]
ROOTS = {"blogcatalog": 10_312, "cora": 2_708, "acm": 7_167}  # how many nodes walks start from


def beside_features(data: str, root: str, embeddings: np.ndarray) -> dict[str, float]:
    """The probe's macro-F1 on features, on embeddings, and on both, all as unit rows."""
    found = jgs.data.load(data, root)
    rows = found.features.table("paper")
    matrix = scipy.sparse.csr_array((rows.values, rows.indices, rows.indptr), rows.shape)
    own = np.zeros((len(embeddings), rows.shape[1]), np.float32)
    (papers,) = found.graph.schema.ranges("paper")
    own[papers.start : papers.stop] = matrix.todense()
    both = [_unit(own), _unit(embeddings)]
    parts = {"features": both[0], "embeddings": both[1], "both": np.concatenate(both, axis=1)}
    split = found.labels, found.train_idx, found.test_idx
    return {f"{k} macro_f1": probe(part, *split)["macro_f1"] for k, part in parts.items()}


def _unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-9)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--root", default="../shared/data", help="folder of the .npz archives")
    add("--seeds", type=int, default=1, help="of each line: seeds 0 to N-1")
    add("--only", nargs="+", choices=ROOTS, default=list(ROOTS), metavar="DATA")
    arguments = parser.parse_args()
    keep_freed_memory()
    configure_jax()
    print("| data | walks | seed | score | at least | other scores | words a second |")
    print("|---|---|---|---|---|---|---|")
    for run in RUNS:
        for seed in range(arguments.seeds if run.data in arguments.only else 0):
            flags = f"--task embed --root {arguments.root} --dataset {run.data} --seed {seed}"
            flags += f" {SAMPLERS[run.method]} {run.flags}"
            with tempfile.TemporaryDirectory() as folder:
                given = parse([*flags.split(), "--run-dir", folder])
                config = Config(**given, progress=False)
                found = loop.run(config)
                embeddings = np.load(found["embeddings"])
            words = ROOTS[run.data] * config.num_walks * (config.walk_length + 1)
            speed = config.epochs * words / found["seconds"]
            others = {k: v for k, v in found.items() if k.endswith("f1") and k != run.score}
            if run.data == "acm":
                others |= beside_features(run.data, arguments.root, embeddings)
            said = ", ".join(f"{k} {v:.3f}" for k, v in others.items())
            below = "" if found[run.score] >= run.bar else " (below)"
            print(
                f"| {run.data} | {run.method} | {seed} | {run.score} {found[run.score]:.3f} "
                f"| {run.bar}{below} | {said} | {speed:,.0f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
