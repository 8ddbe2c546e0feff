"""`probe`: how well linear functions of embeddings predict labels."""

from __future__ import annotations

from typing import Any

import numpy as np

from jgs.data.label_values import are_numbers

_SPLITS, _PENALTY = 5, 1.0


def probe(
    embeddings: np.ndarray,
    labels: np.ndarray | None,
    train_idx: np.ndarray | None = None,
    test_idx: np.ndarray | None = None,
) -> dict[str, Any]:
    """The scores of one-against-rest logistic regression on `embeddings` float32 `[N, D]`.

    Single labels, int `[N]` with -1 for none, give `accuracy` and `macro_f1`. Multi-label data
    `[N, C]` give `micro_f1` and `macro_f1`; the prediction for a node with `k` labels is the
    `k` most likely ones, as DeepWalk's authors do (Perozzi et al. 2014, section 5.1). A label
    that is not known counts as one that a node lacks. The regression is trained on `train_idx`
    and scored on `test_idx`; without a split the scores are means over 5 random halves of the
    labelled nodes. The result is `{}` where there are no labels, or float32 numbers `[N]`.

    The objective is the sum of the logistic losses plus half the squared weights, without the
    intercept, as in scikit-learn's `LogisticRegression` by default.
    """
    if labels is None or are_numbers(labels):
        return {}
    labels = np.nan_to_num(labels)  # integers stay as they are
    known = np.flatnonzero(labels >= 0 if labels.ndim == 1 else labels.any(axis=1))
    if known.size < 2:
        return {}
    if train_idx is not None and test_idx is not None and len(test_idx):
        splits = [(train_idx, test_idx)]
    else:
        orders = [np.random.default_rng(i).permutation(known) for i in range(_SPLITS)]
        splits = [(order[: known.size // 2], order[known.size // 2 :]) for order in orders]
    found = [_score(embeddings, labels, *split) for split in splits]
    return {name: float(np.mean([one[name] for one in found])) for name in found[0]}


def fit(x: np.ndarray, y: np.ndarray, penalty: float = _PENALTY) -> np.ndarray:
    """float64 `[D + 1, C]`: the weights, and in the last row the intercepts, of one logistic
    regression on `x` `[n, D]` for each column of `y` `[n, C]`, which is 0 or 1."""
    x = np.concatenate([x, np.ones((len(x), 1), x.dtype)], axis=1).astype(np.float32)
    sign = (2 * y.astype(np.float32)) - 1

    def objective(flat: np.ndarray) -> tuple[float, np.ndarray]:
        weights = flat.reshape(x.shape[1], -1)
        margin = sign * (x @ weights.astype(np.float32))
        loss = np.logaddexp(0, -margin).sum(dtype=np.float64)
        slope = -sign * (0.5 - 0.5 * np.tanh(margin / 2))  # no overflow
        gradient = (x.T @ slope).astype(np.float64)
        gradient[:-1] += penalty * weights[:-1]
        return loss + penalty / 2 * (weights[:-1] ** 2).sum(), gradient.ravel()

    from scipy.optimize import minimize  # a slow import, and most runs have no probe

    start = np.zeros(x.shape[1] * y.shape[1])
    options = {"maxiter": 200, "gtol": 1e-2}
    found = minimize(objective, start, jac=True, method="L-BFGS-B", options=options)
    return found.x.reshape(x.shape[1], -1)


def _score(
    x: np.ndarray, labels: np.ndarray, train: np.ndarray, test: np.ndarray
) -> dict[str, float]:
    single = labels.ndim == 1
    one_hot = labels[:, None] == np.arange(labels.max() + 1) if single else labels > 0.5
    weights = fit(x[train], one_hot[train])
    likely = x[test] @ weights[:-1] + weights[-1]
    true = one_hot[test]
    # Each label's rank at its node: a node with k labels is predicted the k most likely ones.
    rank = np.argsort(np.argsort(-likely, axis=1, kind="stable"), axis=1, kind="stable")
    predicted = rank < true.sum(axis=1, keepdims=True)
    right = (predicted & true).sum(axis=0)
    either = predicted.sum(axis=0) + true.sum(axis=0)
    macro = float(np.mean(2 * right / np.maximum(either, 1)))
    micro = float(2 * right.sum() / max(either.sum(), 1))
    return {"accuracy" if single else "micro_f1": micro, "macro_f1": macro}
