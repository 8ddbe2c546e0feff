"""A generated graph whose nodes have several labels; and F1 without a graph network.

    python -m benchmarks.planted_labels --folder /tmp/planted [--nodes 10000]

Each label is a community, and a node is in 1 to 4 of them. An edge joins two members of one
community, or with probability `MIXING` two nodes of any kind. Features are the sum of the
directions of a node's labels plus noise that is wider than these. So neither features nor one
neighbour say enough. It is written as GraphSAINT's files (`jgs.data.formats.graphsaint`), and
`python -m jgs.train --dataset FOLDER` trains on it. The command also prints the F1 of what
`beside` says.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse

from benchmarks.__main__ import command_line

LABELS, MOST = 20, 4  # labels in all, and the most of a node
FEATURES, LENGTH = 50, 2.0  # the width, and the length of a label's direction; the noise has 1
DEGREE = 30  # edges of a node, in the mean, if none is drawn twice
MIXING = 0.2  # the share of edges that ignore labels
SPLIT = (0.6, 0.2)  # training, validation; the rest is for testing
_STEPS = 200  # thresholds that are tried


class Planted(NamedTuple):
    """A generated graph of `N` nodes.

    Fields:
      edges: int64 `[2, E]`, each edge both ways, once, without self-loops.
      features: float32 `[N, FEATURES]`.
      labels: int8 `[N, LABELS]` of 0 and 1, from 1 to `MOST` of them 1 in a row.
      role: int8 `[N]`: 0 for training, 1 for validation, 2 for testing.
    """

    edges: np.ndarray
    features: np.ndarray
    labels: np.ndarray
    role: np.ndarray


class F1(NamedTuple):
    """Micro-F1, which is accuracy where a node has one label, and macro-F1, in %."""

    micro: float
    macro: float


def planted(num_nodes: int, seed: int = 0) -> Planted:
    """The graph; the same arguments give the same one."""
    rng = np.random.default_rng(seed)
    # Labels drawn without replacement; the commonest is three times as likely as the rarest.
    likely = np.log(np.linspace(1, 3, LABELS)) + rng.gumbel(size=(num_nodes, LABELS))
    rank = np.argsort(np.argsort(-likely, axis=1), axis=1)
    labels = rank < rng.integers(1, MOST + 1, size=(num_nodes, 1))

    num_pairs = num_nodes * DEGREE // 2
    u, v = rng.integers(num_nodes, size=(2, num_pairs))
    # A membership drawn uniformly chooses a community, and a second one of it the other end.
    label_of, member = np.nonzero(labels.T)
    first = np.searchsorted(label_of, np.arange(LABELS + 1))
    one = rng.integers(member.size, size=num_pairs)
    other = rng.integers(first[label_of[one]], first[label_of[one] + 1])
    within = rng.random(num_pairs) >= MIXING
    u, v = np.where(within, member[one], u), np.where(within, member[other], v)
    u, v = np.concatenate([u, v]), np.concatenate([v, u])
    edges = np.stack(np.divmod(np.unique((u * num_nodes + v)[u != v]), num_nodes))

    directions = np.linalg.qr(rng.standard_normal((FEATURES, LABELS)))[0].T
    noise = rng.standard_normal((num_nodes, FEATURES))
    features = (LENGTH * labels @ directions + noise).astype(np.float32)
    role = np.searchsorted(np.cumsum(SPLIT), rng.random(num_nodes), side="right")
    return Planted(edges, features, labels.astype(np.int8), role.astype(np.int8))


def write(folder: Path, made: Planted) -> None:
    """Writes the graph to `folder`, which is made if it is missing."""
    folder.mkdir(parents=True, exist_ok=True)
    num_nodes = len(made.labels)
    ones = np.ones(made.edges.shape[1], np.int8)
    adjacency = scipy.sparse.csr_array((ones, tuple(made.edges)), shape=(num_nodes,) * 2)
    scipy.sparse.save_npz(folder / "adj_full.npz", adjacency)
    np.save(folder / "feats.npy", made.features)
    classes = {str(node): row for node, row in enumerate(made.labels.tolist())}
    (folder / "class_map.json").write_text(json.dumps(classes))
    roles = {
        n: np.flatnonzero(made.role == r).tolist() for r, n in enumerate(("tr", "va", "te"))
    }
    (folder / "role.json").write_text(json.dumps(roles))


def f1(outputs: np.ndarray, labels: np.ndarray) -> F1:
    """The F1 of outputs float `[n, C]`; labels are int `[n]`, or `[n, C]` of 0 and 1. With
    several labels those are predicted whose output is above 0."""
    from jgs.dist.communicators.comm import Alone
    from jgs.train.evaluation.metrics import METRICS

    names = ("f1_micro", "f1_macro")
    return F1(*(100 * METRICS[n].measure(Alone(), [outputs], [labels]) for n in names))


def beside(data: Any) -> dict[str, F1]:
    """The F1 on the test nodes of a `jgs.data.Dataset` of three simple predictions:

    - the same labels for every node: those most frequent in training;
    - a logistic regression for each label, on the node's features alone;
    - the share of each label among the node's neighbours in the training split.

    With several labels a node, those are predicted whose score is above a threshold. It is the
    best one for the micro-F1 of the validation nodes.
    """
    from jgs.ops import gather
    from jgs.train.tasks.embed import fit

    labels, train = np.asarray(data.labels), data.train_idx
    hot = labels if labels.ndim == 2 else labels[:, None] == np.arange(data.num_classes)
    known = np.zeros(hot.shape, np.float32)
    known[train] = hot[train]
    often = known[train].mean(axis=0)

    x = np.asarray(gather(data.features, np.arange(len(labels), dtype=np.int32)))
    weights = fit(x[train], known[train])

    indptr, indices = np.asarray(data.graph.indptr), np.asarray(data.graph.indices)
    ones = np.ones(indices.size, np.float32)
    adjacency = scipy.sparse.csr_array((ones, indices, indptr), shape=(len(labels),) * 2)
    count = adjacency @ np.isin(np.arange(len(labels)), train).astype(np.float32)
    # One more neighbour of the average labels: a node may have none in training.
    share = (adjacency @ known + often) / (count[:, None] + 1)

    scores = {
        "the most frequent labels": np.broadcast_to(often, hot.shape),
        "logistic regression on features": x @ weights[:-1] + weights[-1],
        "neighbours' labels": share,
    }
    return {name: _judged(score, labels, data) for name, score in scores.items()}


def _judged(score: np.ndarray, labels: np.ndarray, data: Any) -> F1:
    least = 0.0
    if labels.ndim == 2:
        val = score[data.val_idx]
        # Just below values that occur, so that equal scores are predicted together.
        tried = np.quantile(val, np.linspace(0, 1, _STEPS), method="lower") - 1e-6
        least = max(tried, key=lambda t: f1(val - t, labels[data.val_idx]).micro)
    return f1(score[data.test_idx] - least, labels[data.test_idx])


def beside_table(found: dict[str, F1]) -> list[str]:
    lines = ["| F1 of the test nodes, % | micro | macro |", "|---|---|---|"]
    return lines + [f"| {name} | {one[0]:.2f} | {one[1]:.2f} |" for name, one in found.items()]


def main() -> None:
    parser = command_line("planted_labels", __doc__)
    parser.add_argument("--folder", type=Path, required=True, help="where it is written")
    parser.add_argument("--nodes", type=int, default=10_000)
    args = parser.parse_args()
    write(args.folder, planted(args.nodes))

    from jgs.data import load

    data = load(args.folder)
    print(data, file=sys.stderr)
    print("\n".join(beside_table(beside(data))))


if __name__ == "__main__":
    main()
