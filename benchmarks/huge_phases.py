"""Phases of `benchmarks.huge`, each in a process of its own; the result is a JSON line.

`benchmarks.huge` starts it with the phase's name and a task as JSON: `graph`, the folder of the
data set, `nodes`, `edges`, `features`, and what the phases below read.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

CHUNK, SKEW, CLASSES = 1 << 20, 3, 64
FANOUTS, HIDDEN, BATCH = (5, 10, 15), 256, 1024
_STRIDE = 1_000_003  # spreads the hubs over all ids
_TRAINING = 100  # one node in so many is for training, or more where the steps need them


class Edges:
    """`count` directed edges between `nodes` nodes, in chunks. Chunk `i` is a function of the
    key `[seed, i]`.

    Both ends of an edge are drawn alike and apart: the node of rank `r` has a degree in
    proportion to `r ** (1 / SKEW - 1)`, so degrees have a power law with the exponent 2.5. The
    ids do not follow the ranks.
    """

    def __init__(self, nodes: int, count: int, seed: int = 0):
        self.nodes, self.count, self.seed = nodes, count, seed

    def __iter__(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for number, first in enumerate(range(0, self.count, CHUNK)):
            random = np.random.Generator(np.random.SFC64([self.seed, number]))
            size = min(CHUNK, self.count - first)
            yield self._ends(random, size), self._ends(random, size)

    def _ends(self, random: np.random.Generator, size: int) -> np.ndarray:
        ranks = (random.random(size) ** SKEW * self.nodes).astype(np.uint64)
        return (ranks * np.uint64(_STRIDE) % np.uint64(self.nodes)).astype(np.int32)


def build(task: dict[str, Any]) -> dict[str, Any]:
    """The topology with labels and splits. A data set must have features: these have the width
    0, so that partitioning does not copy any."""
    from jgs.data import build

    nodes = task["nodes"]
    labels = np.random.default_rng(1).integers(0, CLASSES, nodes, np.int32)
    stride = max(1, min(_TRAINING, nodes // (task["steps"] * task["batch"])))
    splits = {"train": np.arange(0, nodes, stride, dtype=np.int32)}
    edges = Edges(nodes, task["edges"])
    data = build(
        task["graph"], edges, nodes, labels=labels, splits=splits, memory=task["memory"]
    )
    assert data.graph.num_edges == task["edges"]
    degree = np.diff(np.asarray(data.graph.indptr))
    assert degree.sum(dtype=np.int64) == task["edges"]
    return {"largest_degree": int(degree.max()), "without_edges": float((degree == 0).mean())}


def features(task: dict[str, Any]) -> dict[str, Any]:
    """Gives the data set features, float16 `[N, F]`, in pieces: random, from 0.5 to 1."""
    from jgs.data import stored
    from jgs.files.storage import MANIFEST, ArrayFile

    folder, shape = Path(task["graph"]), (task["nodes"], task["features"])
    with ArrayFile(folder, "features", shape, np.float16) as file:
        for first in range(0, shape[0], CHUNK):
            size = min(CHUNK, shape[0] - first)
            random = np.random.SFC64([2, first])
            bits = random.random_raw(-(-size * shape[1] // 4)).view(np.uint16)
            bits &= 0x3FF
            bits |= 0x3800  # the exponent of numbers from 0.5 to 1
            file.append(bits[: size * shape[1]].view(np.float16).reshape(size, shape[1]))
    manifest = json.loads((folder / MANIFEST).read_text())
    fields = stored.read_about(str(folder), {"about": np.load(folder / "about.npy")})
    (about,) = stored.about(fields | {"num_features": shape[1]}).values()
    with ArrayFile(folder, "about", about.shape, about.dtype) as text:
        text.append(about)
    for name, each in (("features", file), ("about", text)):
        manifest["arrays"][name] |= {"shape": list(each.shape), "sha256": each.sha256()}
        manifest["arrays"][name]["dtype"] = each.dtype.str
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n")
    return {}


def train(task: dict[str, Any]) -> dict[str, Any]:
    """Steps of GraphSAGE with features on disk, as `python -m jgs.train --feature-memory` makes
    them. The command itself judges the model on all neighbours, for which rows of every node
    and layer would have to lie on the disk."""
    import jax
    from flax import nnx

    import jgs
    import jgs.data
    from jgs.graph import as_device
    from jgs.models import GraphSAGE
    from jgs.models.inputs import Placed
    from jgs.sampling import DiskRows, Loader, Neighbors
    from jgs.train.loop.step import init_state, make_optimizer, make_train_step

    jgs.keep_freed_memory()
    data = jgs.data.load(task["graph"], verify=False)
    size = task["batch"]
    seeds = np.random.default_rng(3).permutation(data.train_idx)[: task["steps"] * size]
    disk = DiskRows(
        data.features,
        task["feature_memory"] << 20,
        scratch=task["scratch"] if task["block"] else None,
        block=max(1, task["block"]),
        then=lambda tables, place, batch: Placed(tables, place).inputs(batch, "mean"),
    )
    sampler = Neighbors(tuple(task["fanouts"]))
    loader = Loader(data.graph, seeds, size, sampler, key=jax.random.key(0), read=disk)
    widths = (data.features.shape[1], task["hidden"], data.num_classes)
    model = GraphSAGE(*widths, len(task["fanouts"]), rngs=nnx.Rngs(0))
    graphdef, params = nnx.split(model)
    optimizer = make_optimizer(1e-3)
    state, step = init_state(params, optimizer), make_train_step(graphdef, optimizer)
    labels, key = as_device(data.labels), jax.random.key(1)
    began, rows, busy = time.perf_counter(), 0, 0.0
    for number, (batch, x) in enumerate(loader):
        if number == 1:  # the first step compiles
            first = time.perf_counter()
        rows += int((np.asarray(batch.nodes) < data.graph.num_nodes).sum())
        here = time.perf_counter()
        state = jax.block_until_ready(step(state, key, batch, x, labels))
        busy += time.perf_counter() - here
    end = time.perf_counter()
    loss = float(state.loss_sum) / (number + 1) / size
    assert np.isfinite(loss)
    return {
        "steps": number + 1,
        "steps_a_second": number / (end - first) if number else 0.0,
        "first_step_seconds": first - began if number else end - began,
        "computing_seconds": busy,
        "rows_a_step": rows / (number + 1),
        "loss": loss,
        **disk.counts,
    }


if __name__ == "__main__":
    _phases = {phase.__name__: phase for phase in (build, features, train)}
    print(json.dumps(_phases[sys.argv[1]](json.loads(sys.argv[2]))))
