"""Runs of the command, in this process, on a small `synthetic` graph; and their metrics."""

import jax
import numpy as np

from jgs.dist.communicators.comm import Alone
from jgs.train.__main__ import main
from jgs.train.evaluation.metrics import METRICS
from jgs.train.loop import checkpoint, folder

SMALL = """
    --data-options num_nodes=400 num_edges=3000 num_features=8 num_classes=3 --fanouts 3 3
    --hidden 8 --batch-size 10 --epochs 3 --no-progress
"""


def measured(name, outputs, labels):
    """The metric `name` of one process."""
    return METRICS[name].measure(Alone(), [outputs], [labels])


def train(run_dir, *more):
    return main([*SMALL.split(), "--run-dir", str(run_dir), *map(str, more)])


def metrics(run_dir):
    keys = ("epoch", "train_loss", "val_accuracy")
    return [{k: row[k] for k in keys} for row in folder.read_metrics(run_dir, 10**6)]


def arrays(run_dir):
    """Every array of the last checkpoint, read without the model."""
    import orbax.checkpoint as ocp

    last = checkpoint.checkpoints(run_dir / folder.CHECKPOINTS)[-1]
    with ocp.PyTreeCheckpointer() as reader:
        return jax.tree.leaves(reader.restore(last.resolve() / checkpoint.ARRAYS))


def same_run(run_dir, whole):
    assert metrics(run_dir) == metrics(whole)
    for mine, theirs in zip(arrays(run_dir), arrays(whole), strict=True):
        np.testing.assert_array_equal(mine, theirs)
