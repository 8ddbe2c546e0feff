"""Models that know no node types train on typed data: features become one matrix."""

import json

import numpy as np
import pytest

from jgs.partition.__main__ import main as partition
from jgs.train.__main__ import main as train


@pytest.fixture
def archive(tmp_path):
    rng = np.random.default_rng(0)
    kind = np.arange(40) % 2
    features = rng.normal(size=(40, 3)) + 3 * kind[:, None]
    writes = np.stack([rng.integers(0, 10, 80), rng.integers(0, 40, 80)])
    ids = {f"{s}_idx": np.arange(40)[i::4] for i, s in enumerate(("train", "val", "test"))}
    np.savez(
        tmp_path / "t.npz",
        num_author=10,
        num_paper=40,
        author_paper=writes,
        paper_labels=kind,
        paper_features=features.astype(np.float32),
        **ids,
    )
    return tmp_path / "t.npz"


def run(capsys, main, *words):
    assert main([str(word) for word in words]) == 0
    return json.loads(capsys.readouterr().out.splitlines()[-1])


def test_train_and_partition(archive, tmp_path, capsys):
    flags = ("--fanouts", 3, "--batch-size", 10, "--epochs", 2)
    here = run(capsys, train, "--dataset", archive, "--run-dir", tmp_path / "run", *flags)
    assert 0 <= here["test_accuracy"] <= 1
    out = tmp_path / "parts"
    given = ("--dataset", archive, "--parts", 2, "--out", out, "--method", "random")
    assert run(capsys, partition, *given)["num_parts"] == 2
    flags = (*flags, "--run-dir", tmp_path / "parted")
    parted = run(capsys, train, "--partition", out, *flags)
    assert parted["epochs"] == 2
