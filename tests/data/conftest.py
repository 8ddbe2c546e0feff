"""Nothing here may touch the real network: every address points at a closed local port."""

import numpy as np
import pytest

from jgs.data.formats import ogb, planetoid


@pytest.fixture(autouse=True)
def _no_network(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(ogb, "ADDRESS", "http://127.0.0.1:9/ogb")
    monkeypatch.setattr(planetoid, "ADDRESS", "http://127.0.0.1:9/planetoid")


@pytest.fixture
def arrays() -> dict[str, np.ndarray]:
    """A small data set in the archive layout: 6 nodes, a ring both ways, 3 features."""
    src = np.arange(6, dtype=np.int32)
    dst = (src + 1) % 6
    return {
        "edge_index": np.stack([np.r_[src, dst], np.r_[dst, src]]),
        "features": np.arange(18, dtype=np.float32).reshape(6, 3),
        "labels": np.array([0, 1, 2, 0, 1, 2], np.int32),
        "train_idx": np.array([0, 1], np.int32),
        "val_idx": np.array([2, 3], np.int32),
        "test_idx": np.array([4, 5], np.int32),
    }
