"""Nothing here may touch the real network: every address points at a closed local port."""

import contextlib
import os
from pathlib import Path

import numpy as np
import pytest

from jgs import InputError
from jgs.data.formats import ogb, planetoid


@pytest.fixture(autouse=True)
def _no_network(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(ogb, "ADDRESS", "http://127.0.0.1:9/ogb")
    monkeypatch.setattr(planetoid, "ADDRESS", "http://127.0.0.1:9/planetoid")


@pytest.fixture
def may_refuse():
    """`with may_refuse():` lets an `InputError` pass, if its message is one line."""

    @contextlib.contextmanager
    def context():
        message = ""
        try:
            yield
        except InputError as error:
            message = str(error)
        assert "\n" not in message

    return context


@pytest.fixture
def real_data() -> Path:
    default = Path(__file__).parents[3] / "shared" / "data"
    folder = Path(os.environ.get("JGS_TEST_DATA", default))
    if not (folder / "cora.npz").is_file():
        pytest.skip(f"no real data sets in {folder}; set JGS_TEST_DATA")
    return folder


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
