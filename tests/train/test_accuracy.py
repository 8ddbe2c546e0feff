"""Accuracy on real graphs, with the settings and references of the README in their folder."""

import json
import os
from pathlib import Path

import numpy as np
import pytest

import jgs
from jgs.train.__main__ import main
from jgs.train.evaluation.probe import probe

DATA = Path(os.environ.get("JGS_TEST_DATA", Path(__file__).parents[3] / "shared" / "data"))


def test_cora_reaches_80_percent(tmp_path, capsys):
    if not (DATA / "cora.npz").is_file():
        pytest.skip(f"no cora.npz in {DATA}: set JGS_TEST_DATA to its folder")
    accuracies = []
    for seed in range(3):
        run_dir = tmp_path / str(seed)
        flags = f"""
            --dataset cora --root {DATA} --fanouts 10 10 --hidden 64 --batch-size 64 --epochs 50
            --lr 5e-3 --weight-decay 5e-4 --dropout 0.5 --seed {seed} --run-dir {run_dir}
        """
        assert main(flags.split()) == 0
        accuracies.append(json.loads(capsys.readouterr().out)["test_accuracy"])
    assert np.mean(accuracies) >= 0.80, accuracies
    assert np.std(accuracies) > 0, "the seeds must differ"


def test_embeddings_of_cora_tell_the_classes(tmp_path, data_folder):
    """Embeddings under a linear probe, standardised, lose at most one point to the model. The
    probe reads no neighbours, but the rows of three layers have read two hops."""
    config = jgs.train.Config(
        dataset="cora", root=str(data_folder), model="gcn", fanouts=(20, 20, 20), hidden=16,
        batch_size=140, epochs=60, weight_decay=5e-4, run_dir=str(tmp_path / "run"),
    )  # fmt: skip
    run = jgs.train.run(config)
    data = jgs.data.load("cora", data_folder)
    test = data.test_idx
    accuracy = np.mean(run.predict(test).prediction == data.labels[test])
    rows = run.embed()
    rows = (rows - rows.mean(axis=0)) / (rows.std(axis=0) + 1e-6)
    found = probe(rows, data.labels, data.train_idx, test)["accuracy"]
    assert found >= accuracy - 0.01, (found, accuracy)
    assert accuracy >= 0.75
