"""One process of `benchmarks.disk`: epochs of GraphSAGE with features in memory, on disk
(`DiskRows`) or memory-mapped. The result is a JSON line."""

import json
import mmap
import sys
import tempfile
import time

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

import jgs
from benchmarks import worker
from benchmarks.disk import BATCH, CLASSES
from jgs.graph import as_device, read_ahead
from jgs.models import GraphSAGE, read_inputs
from jgs.models.inputs import Placed
from jgs.sampling import DiskRows, Loader, Neighbors
from jgs.train.loop.step import init_state, make_optimizer, make_train_step

FANOUTS, HIDDEN, SMALL = (5, 10, 15), 256, 32


def main() -> None:
    task = json.loads(sys.argv[1])
    jgs.keep_freed_memory()
    graph = jgs.Graph.open(task["graph"], verify=False)
    mapped, labels = (worker.array(task["features"], n) for n in ("features", "labels"))
    way, steps = task["way"], task["steps"]
    seeds = np.load(task["seeds"], mmap_mode="r")[: steps * BATCH]
    if way.startswith("drawn"):
        if way == "drawn ahead":
            graph = read_ahead(graph)
        print(json.dumps({"seconds": [drawn(graph, seeds[: steps * SMALL])]}))
        return
    loader, rows = make_loader(way, graph, mapped, seeds, task)
    model = GraphSAGE(mapped.shape[1], HIDDEN, CLASSES, len(FANOUTS), rngs=nnx.Rngs(0))
    graphdef, params = nnx.split(model)
    optimizer = make_optimizer(1e-3)
    state, step = init_state(params, optimizer), make_train_step(graphdef, optimizer)
    labels, key = as_device(np.array(labels)), jax.random.key(1)
    batch, x = loader.peek()
    jax.block_until_ready(step(state, key, batch, x, labels))  # compiles; donates the state
    state = init_state(nnx.split(model)[1], optimizer)
    seconds, counts = [], [rows.counts if rows else {}]
    for _ in range(2):
        began = time.perf_counter()
        for batch, x in loader:
            state = step(state, key, batch, x, labels)
        jax.block_until_ready(state)
        seconds.append(time.perf_counter() - began)
        counts.append(rows.counts if rows else {})
    assert jnp.isfinite(state.loss_sum)
    result = {
        "seconds": seconds,
        "waited": loader.waited,
        "peak": worker.peak_bytes(),
        "counts": {name: counts[-1][name] - counts[-2][name] for name in counts[0]},
        "loss": float(state.loss_sum),
    }
    if way == "memory":
        result["trace"] = trace(graph, seeds)
    print(json.dumps(result))


def make_loader(way, graph, mapped, seeds, task):
    make = dict(key=jax.random.key(0))
    if way.startswith(("disk", "random")):

        def inputs(tables, place, batch):
            return Placed(tables, place).inputs(batch, "mean")

        share = float(way.split()[1])
        path = f"{task['features']}/features.npy"
        memory = int(share * len(mapped)) * mapped[:1].nbytes
        scratch = task["features"] if way.startswith("disk") else None
        rows = DiskRows(path, memory, scratch=scratch, then=inputs)
        return Loader(graph, seeds, BATCH, Neighbors(FANOUTS), read=rows, **make), rows
    if way == "mapped random":
        mapped.base.madvise(mmap.MADV_RANDOM)
    table = np.array(mapped) if way == "memory" else mapped
    features, read = as_device(table), jax.jit(read_inputs)
    sampler = Neighbors(FANOUTS, relabel_inputs=False)
    return Loader(
        graph, seeds, BATCH, sampler, read=lambda batch: read(features, batch), **make
    ), None


def drawn(graph, seeds) -> float:
    """Seconds of an epoch that is only drawn, with no page in memory from an earlier one."""
    loader = Loader(graph, seeds, SMALL, Neighbors(FANOUTS), key=jax.random.key(0))
    loader.peek()  # compiles
    began = time.perf_counter()
    for batch in loader:
        jax.block_until_ready(batch)
    return time.perf_counter() - began


def trace(graph, seeds) -> str:
    """A file of the nodes of the batches of both epochs."""
    loader = Loader(graph, seeds, BATCH, Neighbors(FANOUTS), key=jax.random.key(0))
    every = []
    for _ in range(2):
        for batch in loader:
            nodes = np.asarray(batch.nodes)
            every.append(nodes[nodes < batch.num_nodes].copy())
    with tempfile.NamedTemporaryFile(suffix=".npz", delete=False) as file:
        np.savez(file, nodes=np.concatenate(every), sizes=np.array([len(e) for e in every]))
    return file.name


if __name__ == "__main__":
    main()
