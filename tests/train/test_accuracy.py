"""Accuracy on real graphs, with the settings and references of the README in their folder."""

import json
import os
from pathlib import Path

import numpy as np
import pytest

from jgs.train.__main__ import main

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
