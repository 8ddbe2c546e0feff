"""Accuracy on real graphs, with the settings and references of the README in their folder."""

import json

import numpy as np
import pytest
import scipy.sparse.linalg
from cases import cases
from small_runs import command

import jgs
from benchmarks.quality import TASKS, accuracy
from jgs.data import Dataset
from jgs.train.loop.job import Job


@pytest.mark.slow  # 50 epochs on a real graph; others learn labels that a few epochs tell
def test_cora_reaches_80_percent(tmp_path, capsys, data_folder):
    accuracies = []
    for seed in range(3):
        flags = """--dataset cora --fanouts 10 10 --hidden 64 --batch-size 64 --epochs 50
            --lr 5e-3 --weight-decay 5e-4 --dropout 0.5"""
        place = ("--root", data_folder, "--run-dir", tmp_path / str(seed))
        assert command(flags, "--seed", seed, *place) == 0
        accuracies.append(json.loads(capsys.readouterr().out)["test_accuracy"])
    assert np.mean(accuracies) >= 0.80, accuracies
    assert np.std(accuracies) > 0, "the seeds must differ"


@pytest.mark.slow  # four trainings on a real graph
@cases("sampler, least", ("fastgcn", 82), ("ladies", 84.5), ("asgcn", 84.5), ("thanos", 84))
def test_samplers_that_draw_unevenly_still_train_well(sampler, least, data_folder):
    """A short `python -m benchmarks.quality`."""
    task = TASKS["cora-full"]
    task = task._replace(samplers=task.samplers | {"thanos": "--fanouts 3 3"})
    more = "--model gcn --dropout 0 --hidden 64 --epochs 10 --lr 3e-2 --weight-decay 0"
    assert accuracy(str(data_folder), task, sampler, more) >= least


@pytest.mark.slow  # three trainings on a real graph
def test_growing_fanouts_are_as_accurate_with_fewer_edges_drawn(
    data_folder, tmp_path, monkeypatch
):
    """On Facebook's 64 main components; the validation set's standard error is 0.4 points."""
    data = jgs.data.load("facebook", data_folder)
    sparse = data.features
    matrix = scipy.sparse.csr_matrix(
        tuple(map(np.asarray, (sparse.values, sparse.indices, sparse.indptr))), sparse.shape
    )
    left, scale, _ = scipy.sparse.linalg.svds(matrix, 64, random_state=0)
    dense = left * scale
    dense *= 4 / np.maximum(np.linalg.norm(dense, axis=1, keepdims=True), 1e-9)
    splits = {name: getattr(data, f"{name}_idx") for name in ("train", "val", "test")}
    dense = Dataset.from_arrays(data.graph, dense.astype(np.float32), data.labels, splits)
    dense.save(tmp_path / "data")
    edges, batches = [], Job.batches

    def counted(self, meter):
        for batch, x in batches(self, meter):
            edges.append(sum(int(block.num_edges) for block in batch.blocks))
            yield batch, x

    def trained(name, **schedule):
        """The accuracy on the validation nodes and the edges of each batch."""
        edges.clear()
        config = jgs.train.Config(
            dataset=tmp_path / "data", run_dir=str(tmp_path / name), batch_size=300, epochs=8,
            lr=1e-2, dropout=0.0, **schedule,
        )  # fmt: skip
        return jgs.train.run(config).metrics["val_accuracy"][-1], list(edges)

    monkeypatch.setattr(Job, "batches", counted)
    constant, of_constant = trained("constant", fanouts=(10, 10))
    of_loss = {"plateau_fraction": 0.12, "plateau_epochs": 1}
    for when, more in (("5", {}), ("plateau", of_loss)):
        schedule = {"fanouts": (3, 3), "fanout_schedule": (f"{when}:10,10",), **more}
        accuracy, drawn = trained(when, **schedule)
        assert accuracy >= constant - 0.007
        assert sum(drawn) < sum(of_constant) * 3 / 4
        assert max(drawn) > 2 * drawn[0]  # the last batch may be small
