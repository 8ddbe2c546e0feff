"""Ranks that are devices of this process, and small parts of a graph for them."""

import jax
import numpy as np

from jgs.data import Dataset
from jgs.dist.communicators.comm import Alone
from jgs.dist.communicators.mesh import Mesh
from jgs.graph import SparseFeatures
from jgs.partition.__main__ import main as partition
from jgs.partition.folder import write_parts
from jgs.train.flags import parse
from jgs.train.loop import folder
from jgs.train.loop import training as loop
from jgs.train.tasks.task import open_job

# The nodes that ranks own, of 50. One rank of three has none.
OFFSETS = {1: [0, 50], 2: [0, 29, 50], 3: [0, 10, 10, 50], 4: [0, 1, 20, 37, 50]}
FLAGS = ["--fanouts", "3", "2", "--hidden", "8", "--no-progress", "--watchdog", "8"]


def ranks_of(size: int) -> Mesh | Alone:
    """A communicator of so many ranks, with its own counters."""
    return Mesh(jax.devices()[:size]) if size > 1 else Alone()


def make_parts(out, seed=0, num_parts=4, num_features=5):
    options = ["num_nodes=600", "num_edges=4000", f"num_features={num_features}"]
    options += [f"seed={seed}"]
    argv = ["--dataset", "synthetic", "--data-options", *options]
    argv += ["--parts", str(num_parts)]
    assert partition([*argv, "--method", "ldg", "--out", str(out)]) == 0
    return out


def write_graph(folder, graph, width, num_parts, every):
    """Random parts of a graph, with `width` features. One in `every` nodes is for training."""
    rng, num = np.random.default_rng(1), graph.num_nodes
    features = rng.standard_normal((num, width)).astype(np.float32)
    splits = {"train": np.arange(0, num, every)}
    data = Dataset.from_arrays(graph, features, np.zeros(num, np.int32), splits)
    owners = rng.integers(0, num_parts, num).astype(np.int32)
    write_parts(folder, data, owners, num_parts, method="random")
    return folder


def train_on(comm, *flags):
    """The result of `python -m jgs.train FLAGS...` on the ranks of `comm`."""
    config = folder.configure(parse(list(map(str, flags))) | {"ranks": comm.size})
    return loop.run(config, lambda config: open_job(config, comm))


def dense_rows(table, places):
    """The rows of a type's table, on the host; of no width where it has none."""
    if table is None:
        return np.zeros((len(places), 0), np.float32)
    if isinstance(table, SparseFeatures):
        return table.to_scipy()[places].toarray()
    tables = table if isinstance(table, tuple) else (table,)
    return np.concatenate(list(map(np.asarray, tables)))[places].astype(np.float32)
