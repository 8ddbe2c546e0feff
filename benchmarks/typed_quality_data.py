"""The data of the benchmark of typed graphs' quality, and its measures: NumPy and SciPy alone,
so that both sides read and judge with the same code.

`acm.npz` has papers with features and labels, authors and subjects. The relations are
`paper_author` and `paper_subject`, and the reverse of each, `rev_...`. A paper's features are
the words that it has, as 1. (The file has rows that sum to 1, with which DGL's R-GCN reaches
0.82 of macro-F1 and not 0.92.)
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import scipy.sparse

RELATION = ("paper", "paper_author", "author")  # of the links to predict


class Acm(NamedTuple):
    """Fields: the number of nodes of each type; the sources and targets int32 of the relations
    that the file has; the features of papers, float32; labels; and the splits by name."""

    num_nodes: dict[str, int]
    edges: dict[tuple[str, str, str], tuple[np.ndarray, np.ndarray]]
    features: scipy.sparse.csr_array
    labels: np.ndarray
    splits: dict[str, np.ndarray]


def read(root: str) -> Acm:
    with np.load(Path(root) / "acm.npz", allow_pickle=False) as file:
        indptr, indices = (file[f"paper_feature_{name}"] for name in ("indptr", "indices"))
        ones = np.ones(indices.size, np.float32)
        shape = tuple(file["paper_feature_shape"])
        features = scipy.sparse.csr_array((ones, indices, indptr), shape=shape)
        return Acm(
            {kind: int(file[f"num_{kind}"]) for kind in ("paper", "author", "subject")},
            {
                ("paper", f"paper_{other}", other): tuple(file[f"paper_{other}"])
                for other in ("author", "subject")
            },
            features,
            file["paper_labels"],
            {name: file[f"{name}_idx"] for name in ("train", "val", "test")},
        )


def hold_out(data: Acm, negatives: int, seed: int) -> dict[str, np.ndarray]:
    """A split of the edges of `RELATION`: 80 % to train on, 10 % for validation, 10 % to test.

    `<split>_src` and `<split>_dst` have the edges of a split. `val_others` and `test_others`
    `[n, negatives]` have uniform authors who did not write the link's paper.
    """
    src, dst = data.edges[RELATION]
    num_authors = data.num_nodes["author"]
    wrote = np.sort(src.astype(np.int64) * num_authors + dst)
    rng = np.random.default_rng(seed)
    order, tenth = rng.permutation(src.size), src.size // 10
    found = {}
    parts = np.split(order, [tenth, 2 * tenth])
    for name, some in zip(("val", "test", "train"), parts, strict=True):
        found |= {f"{name}_src": src[some], f"{name}_dst": dst[some]}
    for name in ("val", "test"):
        paper = found[f"{name}_src"][:, None].astype(np.int64)
        others = rng.integers(0, num_authors, (paper.size, negatives))
        while (wrong := np.isin(paper * num_authors + others, wrote)).any():
            others[wrong] = rng.integers(0, num_authors, wrong.sum())
        found[f"{name}_others"] = others.astype(np.int32)
    return found


def f1(predicted: np.ndarray, labels: np.ndarray) -> tuple[float, float]:
    """The macro-F1 and the micro-F1, which is the accuracy: each node has one label."""
    of_classes = []
    for label in np.unique(labels):
        right = ((predicted == label) & (labels == label)).sum()
        of_classes.append(2 * right / ((predicted == label).sum() + (labels == label).sum()))
    return float(np.mean(of_classes)), float((predicted == labels).mean())


def mrr(positive: np.ndarray, negative: np.ndarray) -> float:
    """The mean of 1 / rank of scores `[n]` among negatives' `[n, k]`; equal ones count half."""
    above = (negative > positive[:, None]).sum(1) + (negative == positive[:, None]).sum(1) / 2
    return float((1 / (1 + above)).mean())


class Best:
    """The epoch that is best on validation, and whether to go on.

    Args:
      patience: training stops after so many epochs that are no better; None: never.
    """

    def __init__(self, patience: int | None = None):
        self.patience, self.epoch, self.val, self.test = patience, -1, -1.0, None

    def add(self, epoch: int, val: float, test: object) -> bool:
        """Notes what an epoch reached. Returns whether there shall be another."""
        if val > self.val:
            self.epoch, self.val, self.test = epoch, val, test
        return self.patience is None or epoch - self.epoch < self.patience
