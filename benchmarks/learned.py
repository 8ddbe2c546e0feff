"""What both sides of the benchmark of learned samplers read: the parameters, in NumPy."""

from __future__ import annotations

import numpy as np

WIDTH = 64  # the length of PASS's `W1 x` and `W2 x`, as in the paper


def asgcn(num_features: int) -> np.ndarray:
    """`W` of AS-GCN, float32 `[F]`, of the size that Glorot's first values have."""
    return _normal(num_features) * np.float32((2 / (num_features + 1)) ** 0.5)


def pass_(num_features: int) -> tuple[np.ndarray, np.ndarray]:
    """`W1` and `W2` of PASS beside each other, float32 `[F, 2 * WIDTH]`, and `a`, float32
    `[3]`. They make about half of the biases of random features positive."""
    weight = _normal(num_features, 2 * WIDTH) * np.float32(num_features**-0.5)
    return weight, np.array([0.5, 0.3, 1.0], np.float32)


def _normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(6).standard_normal(shape, np.float32)
