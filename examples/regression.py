"""A number of each node is learned from its neighbourhood, beside two models that see less.

The number depends on the mean of the in-neighbours, not linearly, and on the node itself. A
linear model of the node's own features misses the neighbours; one that has their mean too
misses the bend.
"""

import tempfile

import numpy as np

import jgs
from jgs.data import Dataset
from jgs.train import Config, r2, rmse

NODES, EDGES = 5_000, 50_000


def planted(seed: int = 0) -> tuple[Dataset, np.ndarray]:
    """The data set, and the mean of each node's in-neighbours, float `[N, 8]`."""
    rng = np.random.default_rng(seed)
    src, dst = rng.integers(0, NODES, (2, EDGES))
    features = rng.standard_normal((NODES, 8)).astype(np.float32)
    mean = np.zeros((NODES, 8))
    np.add.at(mean, dst, features[src])
    mean /= np.maximum(np.bincount(dst, minlength=NODES), 1)[:, None]
    noise = rng.standard_normal(NODES)
    numbers = 500 + 10 * features[:, 1] + 40 * np.abs(3 * mean[:, 0]) + noise
    split = rng.permutation(np.repeat(["train", "val", "test"], [2_500, 1_000, 1_500]))
    graph = jgs.Graph.from_edges(src, dst, num_nodes=NODES)
    # Floats that are not all whole are numbers; label_kind="number" says so of any.
    return Dataset.from_arrays(graph, features, numbers, split, name="planted"), mean


def linear(columns: np.ndarray, data: Dataset) -> np.ndarray:
    """What least squares on the training nodes predicts for those of the test."""
    columns = np.column_stack([columns, np.ones(NODES)])
    weights, *_ = np.linalg.lstsq(
        columns[data.train_idx], data.labels[data.train_idx], rcond=None
    )
    return columns[data.test_idx] @ weights


def main() -> None:
    data, mean = planted()
    with tempfile.TemporaryDirectory() as folder:
        data.save(f"{folder}/planted")
        run = jgs.train.run(
            Config(
                dataset=f"{folder}/planted",
                run_dir=f"{folder}/run",
                fanouts=(10, 10),
                batch_size=250,
                epochs=25,
                dropout=0.0,
                loss="huber",  # outliers count less than by "mse"
                metric="r2",
                clip_norm=1.0,
                average="ema",
                average_decay=0.95,
                progress=False,
            )
        )
        features, labels = np.asarray(data.features), data.labels[data.test_idx]
        found = {
            "the mean of the training nodes": np.full(
                len(labels), data.labels[data.train_idx].mean()
            ),
            "linear, of the node": linear(features, data),
            "linear, of node and neighbours": linear(np.column_stack([features, mean]), data),
            "GraphSAGE": run.predict(data.test_idx),
        }
    for name, numbers in found.items():
        print(f"{name:30}  R2 {r2(numbers, labels):6.3f}  RMSE {rmse(numbers, labels):6.2f}")
    scores = [r2(numbers, labels) for numbers in found.values()]
    assert scores[-1] > max(scores[:-1]) + 0.2


if __name__ == "__main__":
    main()
