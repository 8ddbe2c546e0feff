"""A model of typed graphs trained by launched processes: hybrid, on devices, killed, resumed in
vanilla mode."""

import os
import signal
import time

import numpy as np
from launched import LIMIT, result

from jgs import Graph
from jgs.data import Dataset
from jgs.partition.folder import write_parts
from jgs.train.__main__ import main
from jgs.train.loop import checkpoint, folder

FLAGS = """
    --model rgcn --fanouts *=3 4 --hidden 8 --epochs 4 --checkpoint-every 1 --keep 99
    --no-progress --watchdog 8
"""


def write(out):
    """Two parts of authors, papers, and venues without features."""
    rng, counts = np.random.default_rng(0), {"author": 60, "paper": 90, "venue": 5}
    edges = {
        ("author", "writes", "paper"): (rng.integers(0, 60, 300), rng.integers(0, 90, 300)),
        ("paper", "at", "venue"): (np.arange(90), rng.integers(0, 5, 90)),
    }
    graph = Graph.from_relations(counts, edges, both_ways=True)
    features = {"paper": rng.standard_normal((90, 3)), "author": rng.standard_normal((60, 7))}
    splits = {"train": np.arange(60), "val": np.arange(60, 70), "test": np.arange(70, 90)}
    labels = {"paper": np.arange(90) % 3}
    data = Dataset.from_arrays(graph, features, labels, splits, name="typed")
    owners = rng.integers(0, 2, graph.num_nodes).astype(np.int32)
    write_parts(out, data, owners, 2, method="random")


def test_two_processes_killed_and_resumed_learn_what_one_does(start, tmp_path, capsys):
    write(tmp_path / "parts")
    flags = [*FLAGS.split(), "--partition", tmp_path / "parts", "--run-dir"]
    one = [*flags, tmp_path / "one", "--batch-size", 20]
    assert main(list(map(str, one))) == 0
    run_dir, end = tmp_path / "two", time.monotonic() + LIMIT
    # They draw on their hosts and train on devices; what goes on trains where it draws.
    four = {"XLA_FLAGS": "--xla_force_host_platform_device_count=4"}
    devices = {"each": [["--device", "cpu:1"]] * 2, "variables": [four] * 2}
    processes = start("jax", 2, *flags, run_dir, "--batch-size", 10, **devices)
    while len(checkpoint.checkpoints(run_dir / folder.CHECKPOINTS)) < 4:  # of 12 steps
        assert time.monotonic() < end
        time.sleep(0.01)
    os.kill(processes[1].pid, signal.SIGKILL)
    for process in processes:
        process.communicate(timeout=LIMIT)
    assert len(checkpoint.checkpoints(run_dir / folder.CHECKPOINTS)) < 12
    again = [*flags, run_dir, "--batch-size", 10, "--mode", "vanilla", "--resume"]
    again += ["--device", "cpu"]
    told, err = result(start("jax", 2, *again))
    assert "resuming after" in err
    mine, theirs = (folder.read_metrics(tmp_path / name, 99) for name in ("two", "one"))
    assert len(mine) == len(theirs) == told["epochs"] == 4
    for own, other in zip(mine, theirs, strict=True):
        np.testing.assert_allclose(own["train_loss"], other["train_loss"], rtol=1e-3)
        assert own["val_accuracy"] == other["val_accuracy"]
