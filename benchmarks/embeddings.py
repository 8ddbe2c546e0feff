"""What embeddings from walks reach: a linear probe's scores, beside the least they must reach.

    python -m benchmarks.embeddings [--root ../shared/data] [--only blogcatalog] [--seeds 1]

Every run does what `python -m jgs.train --task embed` does with the flags of `RUNS`, in this
process. Prints a Markdown table of means over the seeds, with their standard errors. Words a
second are those of the whole run, with its start and its evaluation. `blogcatalog` has
DeepWalk's protocol, 5 random halves. `cora` and `acm` have the public split. On `acm` the probe
is also given the papers' features, and features and embeddings side by side, all as unit rows.
These have the public split, and 10 random ones with as many known papers of each class and all
others as the test: on the public one seeds differ by 4 points.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator, Sequence
from math import sqrt
from statistics import mean, stdev
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse

import jgs.data
from jgs.allocator import keep_freed_memory
from jgs.command import configure_jax
from jgs.train.config import Config
from jgs.train.flags import parse
from jgs.train.loop import training as loop
from jgs.train.tasks.embed import probe

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
    Run(
        "acm",
        "metapath",
        "--epochs 4 --negatives 1 --lr 0.025",
        "random embeddings macro_f1",
        0.76,
    ),
]
RANDOM_SPLITS = 10  # of acm's papers
ROOTS = {"blogcatalog": 10_312, "cora": 2_708, "acm": 7_167}  # how many nodes walks start from


def summary(values: Sequence[float], sign: str = "") -> str:
    """The mean of the values, and for several its standard error."""
    error = f" ± {stdev(values) / sqrt(len(values)):.3f}" if len(values) > 1 else ""
    return f"{mean(values):{sign}.3f}{error}"


def beside_features(data: str, root: str, embeddings: np.ndarray) -> dict[str, float]:
    """The probe's macro-F1 on features, on embeddings, and on both, all as unit rows: on the
    public split, and the mean on random ones."""
    found = jgs.data.load(data, root)
    rows = found.features.table("paper")
    matrix = scipy.sparse.csr_array((rows.values, rows.indices, rows.indptr), rows.shape)
    own = np.zeros((len(embeddings), rows.shape[1]), np.float32)
    (papers,) = found.graph.schema.ranges("paper")
    own[papers.start : papers.stop] = matrix.todense()
    both = [_unit(own), _unit(embeddings)]
    parts = {"features": both[0], "embeddings": both[1], "both": np.concatenate(both, axis=1)}
    splits = {"public": [(found.train_idx, found.test_idx)]}
    splits["random"] = list(random_splits(found.labels, found.train_idx))
    return {
        f"{name} {k} macro_f1": mean(
            probe(part, found.labels, *split)["macro_f1"] for split in some
        )
        for name, some in splits.items()
        for k, part in parts.items()
    }


def random_splits(
    labels: np.ndarray, train_idx: np.ndarray
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Known and other nodes: as many known ones of each class as in `train_idx`."""
    sizes = np.bincount(labels[train_idx])
    for i in range(RANDOM_SPLITS):
        order = np.random.default_rng(i).permutation(np.flatnonzero(labels >= 0))
        of_class = [order[labels[order] == c][:size] for c, size in enumerate(sizes)]
        known = np.concatenate(of_class)
        yield known, np.setdiff1d(order, known)


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
    print("| data | walks | seeds | score | at least | other scores | words a second |")
    print("|---|---|---|---|---|---|---|")
    for run in RUNS:
        if run.data not in arguments.only:
            continue
        found = [trained(run, arguments.root, seed) for seed in range(arguments.seeds)]
        columns = {name: [one[name] for one in found] for name in found[0]}
        speed = mean(columns.pop("speed"))
        score = columns.pop(run.score)
        said = ", ".join(f"{name} {summary(values)}" for name, values in columns.items())
        below = "" if mean(score) >= run.bar else " (below)"
        print(
            f"| {run.data} | {run.method} | {arguments.seeds} | {run.score} {summary(score)} "
            f"| {run.bar}{below} | {said} | {speed:,.0f} |",
            flush=True,
        )


def trained(run: Run, root: str, seed: int) -> dict[str, float]:
    """The run's scores by name, and under `speed` its words a second."""
    flags = f"--task embed --root {root} --dataset {run.data} --seed {seed}"
    flags += f" {SAMPLERS[run.method]} {run.flags}"
    with tempfile.TemporaryDirectory() as folder:
        given = parse([*flags.split(), "--run-dir", folder])
        config = Config(**given, progress=False)
        result: dict[str, Any] = loop.run(config)
        embeddings = np.load(result["embeddings"])
    names = ("accuracy", "micro_f1", "macro_f1")
    found = {name: result[name] for name in names if name in result}
    if run.data == "acm":
        found |= beside_features(run.data, root, embeddings)
    words = ROOTS[run.data] * config.num_walks * (config.walk_length + 1)
    return found | {"speed": config.epochs * words / result["seconds"]}


if __name__ == "__main__":
    main()
